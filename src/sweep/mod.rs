//! Runs a campaign: copies over the paths to far hosts, with pauses between them and probes in
//! both. `analysis::campaign` plans the copies and interprets the results.

mod copying;
pub mod course;
pub mod round_trips;
mod site;
