//! What is known of the wire and of the receiver: how fast they accept data.

use base::codec::{Codec, CodecTime, DecompressionTime};
use base::units::{Nanos, Tick};

/// How fast the wire accepts bytes. Only lanes that it delays can measure that. If it never delayed
/// any, its rate is estimated as what they would send if it always did; if it has, a higher rate is
/// assumed after a while, and tried.
#[derive(Debug)]
pub(super) struct Link {
    /// Bytes a second; `None` while nothing is known.
    pub(super) rate: Option<f64>,
    pub(super) is_evident: bool,
    pub(super) is_raised: bool,
    pub(super) raise_at: Tick,
    /// What has been sent since without delaying lanes, and since when: send buffers hold some.
    pub(super) unhindered_bytes: u64,
    pub(super) unhindered_since: Tick,
    pub(super) patience: Nanos,
    pub(super) since: Tick,
    pub(super) wire_bytes: u64,
    pub(super) held_up: Nanos,
    pub(super) frames: u32,
}

impl Link {
    pub(super) fn new(now: Tick) -> Link {
        Link {
            rate: None,
            is_evident: false,
            is_raised: false,
            raise_at: now,
            unhindered_bytes: 0,
            unhindered_since: now,
            patience: PATIENCE_MIN,
            since: now,
            wire_bytes: 0,
            held_up: Nanos(0),
            frames: 0,
        }
    }

    pub(super) fn sent(
        &mut self,
        now: Tick,
        bytes: u32,
        held_up: Nanos,
        lanes: usize,
        behind: bool,
    ) {
        self.wire_bytes += u64::from(bytes);
        self.held_up += held_up;
        self.frames += 1;
        let elapsed = now.since(self.since);
        let look_every = if self.is_evident { LOOK_EVERY } else { LOOK_FIRST };
        if elapsed < look_every || self.frames < FRAMES_MIN {
            return;
        }
        let rate = self.wire_bytes as f64 / elapsed.seconds();
        let busy = self.held_up.seconds() / (elapsed.seconds() * lanes.max(1) as f64);
        match (busy >= BUSY, behind) {
            (true, false) => self.is_limit(now, rate),
            (false, _) if !self.is_evident => {
                // If always delayed they would send this much, at least: a small frame has costs
                // that do not depend on its length, and a sender may wait for a CPU.
                let at_least = (rate / busy.max(rate / RATE_MAX)).min(RATE_MAX);
                self.rate = Some(self.rate.map_or(at_least, |known| known.max(at_least)));
            }
            _ => self.is_no_limit(now, rate, lanes),
        }
        (self.since, self.wire_bytes, self.held_up, self.frames) = (now, 0, Nanos(0), 0);
    }

    pub(super) fn is_limit(&mut self, now: Tick, rate: f64) {
        let before = self.rate.filter(|_| self.is_evident && !self.is_raised);
        self.rate = Some(before.map_or(rate, |before| before + LINK_WEIGHT * (rate - before)));
        if self.is_raised {
            self.patience = Nanos(self.patience.0.saturating_mul(2)).min(PATIENCE_MAX);
        }
        self.is_evident = true;
        self.is_raised = false;
        self.begin_unhindered(now);
        self.raise_at = now.after(self.patience);
    }

    pub(super) fn is_no_limit(&mut self, now: Tick, rate: f64, lanes: usize) {
        self.unhindered_bytes += self.wire_bytes;
        // What buffers hold says nothing of the wire. But if compression is so strong that they
        // never fill, a rate that was measured at a bad moment would be kept forever.
        let is_buffered = self.unhindered_bytes < lanes.max(1) as u64 * SEND_BUFFER_BYTES;
        if is_buffered && now.since(self.unhindered_since) < self.patience {
            return;
        }
        let known = self.rate.map_or(rate, |known| known.max(rate));
        self.rate = Some(known);
        if now >= self.raise_at && known < RATE_MAX {
            self.begin_unhindered(now);
            self.rate = Some((known * 2.0).min(RATE_MAX));
            self.is_raised = true;
        }
    }

    pub(super) fn begin_unhindered(&mut self, now: Tick) {
        self.unhindered_bytes = 0;
        self.unhindered_since = now;
    }
}

/// The cost of decompression at the receiver.
#[derive(Debug, Default)]
pub(super) struct Receiver {
    /// Seconds for a byte on all its CPUs together, by codec; 0 while unknown.
    pub(super) seconds: [f64; Codec::COUNT],
    /// The recent share of its CPUs' time that went into it.
    pub(super) load: f64,
}

impl Receiver {
    pub(super) fn record_decompression_time(&mut self, time: &DecompressionTime) {
        let workers = f64::from(time.workers.max(1));
        let spent_s = |codec_time: &CodecTime| codec_time.spent.seconds() / workers;
        let all_s: f64 = time.by_codec.iter().map(spent_s).sum();
        let all_bytes: f64 =
            time.by_codec.iter().map(|codec_time| codec_time.raw_bytes as f64).sum();
        self.load = all_s / time.elapsed.seconds().max(1e-9);
        if all_s <= 0.0 || all_bytes <= 0.0 {
            return;
        }
        // At first all formats are equal; what is not compressed is not decompressed either.
        let formats = self.seconds.iter_mut().skip(Codec::Raw as usize + 1);
        for known in formats.filter(|known| **known == 0.0) {
            *known = all_s / all_bytes;
        }
        let expected = self.seconds.iter().zip(&time.by_codec);
        let expected_s: f64 =
            expected.map(|(known, codec_time)| known * codec_time.raw_bytes as f64).sum();
        let alike = all_s / expected_s.max(1e-15);
        // Usually everything takes longer there than before, or nothing does: others use its CPUs
        // too. So all formats change by the common factor, those too that were not used, and each
        // by the remaining difference in proportion to its share.
        for (known, codec_time) in self.seconds.iter_mut().zip(&time.by_codec) {
            let bytes = codec_time.raw_bytes as f64;
            let own = if bytes > 0.0 { spent_s(codec_time) / bytes / alike } else { *known };
            let change = *known * (alike - 1.0) + bytes / all_bytes * (own - *known);
            *known += RECEIVER_WEIGHT * change;
        }
    }

    pub(super) fn seconds_per_byte(&self, codec: Codec) -> f64 {
        self.seconds[codec as usize]
    }

    /// The lanes are not delayed by the wire.
    pub(super) fn is_behind(&self) -> bool {
        self.load > BUSY
    }
}

pub(super) const RECEIVER_WEIGHT: f64 = 0.3;

pub(super) const LINK_WEIGHT: f64 = 0.15;

/// The share of their time that lanes are delayed, from which on the wire is the cause.
pub(super) const BUSY: f64 = 0.7;

pub(super) const LOOK_EVERY: Nanos = Nanos(50_000_000);

pub(super) const LOOK_FIRST: Nanos = Nanos(20_000_000);

pub(super) const FRAMES_MIN: u32 = 4;

/// What the system usually buffers for a stream at most (net.ipv4.tcp_wmem).
pub(super) const SEND_BUFFER_BYTES: u64 = 4 << 20;

/// How long a measured rate of the wire is trusted.
pub(super) const PATIENCE_MIN: Nanos = Nanos(1_000_000_000);

pub(super) const PATIENCE_MAX: Nanos = Nanos(32_000_000_000);

/// What one CPU seals and passes to the system: no estimate is higher.
pub(super) const RATE_MAX: f64 = 2e9;
