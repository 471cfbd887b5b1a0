//! The protocol as pure values: nothing here can block. `docs/WIRE.md` describes this module in
//! prose.

pub mod frame;
pub mod manifest;
pub mod message;
pub mod preamble;
pub mod reader;
pub mod session;
pub mod voids;
