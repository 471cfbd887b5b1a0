//! A campaign carried out: copy after copy over the paths to far hosts, with pauses and with probes
//! in both. Which copies and in which order, and what they say, is the business of `campaign`.

mod copying;
pub mod course;
pub mod round_trips;
mod site;
