//! Bytes and conversation as pure values: nothing here can block. `docs/WIRE.md` is this room in
//! prose.

pub mod frame;
pub mod manifest;
pub mod message;
pub mod reader;
pub mod session;
