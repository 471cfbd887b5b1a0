//! CPU time accounting: what a host's clocks said at two moments, what passed in between, whose CPU
//! time it was, and whether a run counts. Pure: who reads the clocks is not known here.

pub mod gates;
pub mod moment;
