//! What is done to a request between its ends. No system calls.

pub mod codec;
pub mod digest;
pub(crate) mod extra;
pub mod passage;
pub mod seal;
pub mod sparse;
pub mod voids;
