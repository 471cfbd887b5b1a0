//! Measurement as a science: what is run, what is known of each run, what it means. Runs and probes
//! touch the world; everything else here is a pure function of recorded samples.

pub mod experiment;
pub mod file;
pub mod gates;
pub mod model;
pub mod moment;
pub mod probe;
pub mod results;
pub mod rig;
pub mod observations;
pub mod sample;
pub mod soaker;
pub mod statistics;
