//! Runs a campaign: copies over the paths to far hosts, or to a store and back, with pauses between
//! them and, to hosts, probes in both. `analysis::campaign` plans the copies and interprets the
//! results.

mod copying;
pub mod course;
pub mod round_trips;
mod site;
mod store_folder;
