//! How developer commands run other programs, and the packages that they need.

pub mod gateway;
pub mod packages;
pub mod step;
