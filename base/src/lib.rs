//! Types that all packages use. No I/O, no clock, no policy about allocation.

pub mod addresses;
pub mod attributes;
pub mod codec;
pub mod cpus;
pub mod dscp;
pub mod escape;
pub mod extent;
pub mod extra;
pub mod fault;
pub mod job;
pub mod label;
pub mod limits;
pub mod listing;
pub mod owners;
pub mod packed;
pub mod path;
pub mod reason;
pub mod schedule;
pub mod secret;
pub mod settings;
pub mod store_times;
pub mod stream_steps;
pub mod tally;
pub mod units;
