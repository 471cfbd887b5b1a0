//! The pump: moves what a transfer is made of. What belongs to a source, to a sink, to a lane
//! between them, and to the transfer, which decides; and what runs it on a host.

pub mod brake;
pub mod lane;
pub mod run;
pub mod sink;
pub mod source;
pub mod transfer;
pub mod watch;
