//! CPU time accounting: the clocks of a host at two moments, the difference between them, whose CPU
//! time it was, and whether a run counts. Pure: the clocks are read elsewhere.

pub mod gates;
pub mod moment;
