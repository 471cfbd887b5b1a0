//! Measurement as a science: what is run, what is known of each run, what it means. Runs and probes
//! touch the world; everything else here is a pure function of recorded samples.

pub mod copying;
pub mod course;
pub mod round_trips;
pub mod site;
