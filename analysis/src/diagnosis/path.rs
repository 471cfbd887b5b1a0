//! What recorded samples of a path say by arithmetic alone: windows and their features, recovery
//! episodes, pauses, the sawtooth. What all that means is the business of `diagnose`.

pub mod episodes;
pub mod pauses;
pub mod sawtooth;
pub mod series;
pub mod windows;

#[cfg(test)]
mod tests;
