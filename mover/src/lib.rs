//! The mover: everything that a far side needs. The modules are in order of dependency, as in
//! ARCHITECTURE.md: none knows a module below its own line, and `tests/tidy.rs` enforces that.
//! Nothing that is reached from here is an async runtime, a store or a parser of command lines; a
//! test over `cargo metadata` enforces that.
//!
//! A **request** carries an extent of the transfer's address space from a source to a sink. An
//! **endpoint** says what to do next with it, an **engine** does it, a **passage** works on it in
//! between, and a **lane** moves it through them.

pub mod ends;
pub mod folder_listing;
pub mod io;
pub mod pump;
pub mod receipt;
pub mod remote;
pub mod wire;
pub mod work;
