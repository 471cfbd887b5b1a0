//! # datapump
//!
//! A bulk data mover over parallel TCP streams that is also the instrument that measures itself.
//! This package is the program: what looks at hosts, keeps records and carries experiments out,
//! and the command line. What moves bytes is the package `mover`, what says what a run means is
//! `analysis`, and both stand on `base`. ARCHITECTURE.md is the map.

pub mod cli;
pub mod host;
pub mod measure;
pub mod probe;
pub mod results;
pub mod sweep;
