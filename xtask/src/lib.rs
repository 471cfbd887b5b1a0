//! How developer commands run other programs, and the packages that they need.

pub mod packages;
pub mod step;
