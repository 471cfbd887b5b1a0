//! Carries an experiment out: sizes its runs, brackets each block of them with calibrations, and
//! judges them.

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::experiment::{Beside, Cell, Design, Run};
use super::gates::{self, Calibration};
use super::moment::Moment;
use super::probe::Probe;
use super::record;
use super::rig::{Cache, Ran, Rig};
use super::sample::{Gate, PlaceInExperiment, Record};
use crate::base::fault::Fault;
use crate::pump::watch::Watch;

/// What is told while it goes on.
#[derive(Debug)]
pub enum Step<'a> {
    /// It finds out how much a cell is to move; so many of so many.
    Sizing { cell: Cell, done: usize, of: usize },
    Calibrating { block: usize, of: usize },
    /// A run is over; so many of so many, those that are made again counted in.
    Ran { record: &'a Record, done: usize, of: usize },
    /// A block counts for nothing, and is made again or not.
    Void { why: &'a str, runs: usize, again: bool },
}

/// Who hears of it, and who keeps it.
pub struct Audience<'a> {
    pub tell: &'a mut dyn FnMut(&Step<'_>),
    /// Keeps a run; one that has a number already is written anew. Gives its number.
    pub keep: &'a mut dyn FnMut(&Record) -> Result<i64, Fault>,
}

/// The eyes on both hosts; one eye where both ends are on one.
#[derive(Debug)]
pub struct Eyes {
    pub near: Probe,
    pub far: Option<Probe>,
    /// Numbers of their environments in the store.
    pub near_environment: i64,
    pub far_environment: i64,
}

/// An experiment on a rig.
#[derive(Debug)]
pub struct Bench {
    pub name: String,
    pub design: Design,
    pub rig: Rig,
    pub eyes: Eyes,
    /// The best rate that each soaker has had so far: what an undisturbed CPU can do.
    pub best: gates::Best,
}
