//! A dataset over many nodes, as decisions: what a shard is, who may work on it, and what a worker
//! does next. Pure: the same answers give the same calls, so the simulation runs what ships.
//! docs/SPREAD.md has the protocol.

pub mod attention;
pub mod calls;
mod choice;
pub mod far;
pub mod given;
pub mod history;
pub mod lease;
pub mod names;
pub mod overview;
pub mod plan;
pub mod restarts;
pub mod start;
pub mod worker;

use serde::{Deserialize, Serialize};

/// One attempt at one shard. Attempts count from 1, and no number is used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Claim {
    pub shard: u32,
    pub attempt: u32,
}

/// A claim, and the worker that has it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Held {
    pub claim: Claim,
    pub worker: String,
}
