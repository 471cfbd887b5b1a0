//! What follows from recorded samples of a path by arithmetic alone: windows and their features,
//! recovery episodes, pauses, the sawtooth, others on it, a policer. `diagnose` interprets them.

pub mod episodes;
pub mod pauses;
pub mod policing;
pub mod sawtooth;
pub mod series;
pub mod sharing;
pub mod windows;

#[cfg(test)]
mod tests;
