//! The rate that a source keeps to.

use base::units::{Nanos, Rate, Tick};

/// A rate kept by departure times: unused time is lost, except for one request.
#[derive(Debug)]
pub(super) struct Pace {
    pub rate: Rate,
    pub allowed_at: Tick,
    pub has_holes: bool,
}

impl Pace {
    pub(super) fn takes(&self, bytes: u32) -> Nanos {
        Nanos((f64::from(bytes) / self.rate.bytes_per_second * 1e9) as u64)
    }

    /// Bytes that are not sent did not use the rate.
    pub(super) fn give_back(&mut self, bytes: u32) {
        self.allowed_at.0 = self.allowed_at.0.saturating_sub(self.takes(bytes).0);
    }

    pub(super) fn spend(&mut self, now: Tick, bytes: u32) {
        let takes = self.takes(bytes);
        let from = if self.allowed_at.0 + takes.0 < now.0 { now } else { self.allowed_at };
        self.allowed_at = from.after(takes);
    }
}
