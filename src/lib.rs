//! # datapump
//!
//! Moves bulk data over parallel TCP streams, and measures its cost. This package is the program:
//! the command line, checks of hosts, records, experiments. The package `mover` moves the bytes,
//! `analysis` interprets runs, and both use `base`. ARCHITECTURE.md is the map.

pub mod cli;
pub mod host;
pub mod measure;
pub mod probe;
pub mod results;
pub mod spread;
pub mod sweep;
pub mod telemetry;
