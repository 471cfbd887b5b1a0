//! # datapump
//!
//! A bulk data mover over parallel TCP streams that is also the instrument that measures itself.
//! The modules stand in dependency order, which ARCHITECTURE.md has: none knows a module below its
//! own line, and `tests/tidy.rs` keeps the walls.
//!
//! A **request** carries an extent of the transfer's address space from a source to a sink. An
//! **endpoint** says what to do next with it, an **engine** does it, a **passage** works on it in
//! between, and a **lane** moves it through them.

#![deny(unsafe_code)]
#![warn(missing_debug_implementations)]

pub mod accounting;
pub mod base;
pub mod campaign;
pub mod cli;
pub mod diagnosis;
pub mod doctor;
pub mod ends;
pub mod host;
pub mod io;
pub mod measure;
pub mod model;
pub mod nettest;
pub mod predict;
pub mod probe;
pub mod pump;
pub mod receipt;
pub mod record;
pub mod remote;
pub mod report;
pub mod results;
pub mod statistics;
pub mod study;
pub mod sweep;
pub mod wire;
pub mod work;
