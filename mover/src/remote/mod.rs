//! Reaching the other host: one duplex byte stream for control, and data streams beside it.

pub mod addresses;
mod answering;
pub mod asking;
pub mod control;
pub mod copy;
pub mod demo;
pub mod home;
mod install;
pub mod installed;
pub mod launch;
pub mod peer;
pub mod restriction;
pub mod streams;
pub mod tunnel;
pub mod version;
mod write_queue;
