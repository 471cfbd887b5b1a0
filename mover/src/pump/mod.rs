//! The pump: moves the bytes of a transfer. The parts of a source, of a sink, of the lanes between
//! them, and of the transfer, which decides; and what runs it on a host.

pub mod cancellation;
pub mod lane;
pub mod run;
pub mod sink;
pub mod source;
pub mod transfer;
pub mod watch;
