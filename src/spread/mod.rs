//! A dataset over many nodes: a plan cut into shards, a job folder on storage that all nodes share,
//! and workers that claim shards from it. `shards` decides; here are the files, the processes and
//! the clock. docs/SPREAD.md has the protocol and what always holds.

pub mod launcher;
pub mod submitted;
