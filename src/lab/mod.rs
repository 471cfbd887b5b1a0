//! Measurement as a science: what is run, what is known of each run, what it means. Runs and probes
//! touch the world; everything else here is a pure function of recorded samples.

pub mod campaign;
pub mod codec;
pub mod compression;
pub mod copied;
pub mod diagnose;
pub mod doctor;
pub mod environment;
pub mod experiment;
pub mod export;
pub mod file;
pub mod gates;
pub mod measure;
pub mod model;
pub mod moment;
pub mod nettest;
pub mod observations;
pub mod packed;
pub mod path;
pub mod paths;
pub mod predict;
pub mod probe;
pub mod results;
pub mod rig;
pub mod round_trips;
pub mod sample;
pub mod shape;
pub mod soaker;
pub mod statistics;
pub mod study;
pub mod way;
pub mod whole;
pub mod workplace;
