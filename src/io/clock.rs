//! The clock: one origin for the whole process.

use std::sync::OnceLock;
use std::time::Instant;

use crate::base::units::{Nanos, Tick};

static ORIGIN: OnceLock<Instant> = OnceLock::new();

/// Now, counted from the first time anybody asked.
pub fn now() -> Tick {
    let origin = ORIGIN.get_or_init(Instant::now);
    Tick(Nanos::from(origin.elapsed()).0)
}
