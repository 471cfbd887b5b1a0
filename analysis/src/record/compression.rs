//! What compression did to a copy, and how fast the copy would have been without it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::number;

use base::codec::Coding;
use base::job::{Outcome, PathRole};
use base::tally::{Life, SideReport, Stage};
use base::units::Nanos;

/// The payloads of a copy with compression.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Compression {
    pub raw_bytes: u64,
    /// Compressed size on the wire, without frame headers and TLS.
    pub compressed_bytes: u64,
    /// Bytes by coding, with its name as typed; `off` is for those that were sent as they were.
    pub bytes_by_coding: BTreeMap<String, u64>,
    /// Time of compression over that of decompression (c/x of SLAC (2001)), where both are known.
    pub compress_over_decompress: Option<f64>,
    /// Only of a copy.
    pub without: Option<Without>,
}

/// A prediction of the same copy with `--compress off`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Without {
    #[serde(deserialize_with = "number::or_nan")]
    pub bytes_per_s: f64,
    pub held_by: HeldBy,
}

/// Where requests spent most of their time: what limited the copy, and so the basis of the
/// prediction for `off`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HeldBy {
    /// The network limited it: the wire rate would have been the same.
    #[default]
    Wire,
    /// Without compression it would have been as fast as the network, which is only known from its
    /// highest delivery rate.
    Compression,
    /// The same for decompression.
    Decompression,
    /// The source limited it, with or without compression.
    Source,
}

impl HeldBy {
    pub const ALL: [HeldBy; 4] =
        [HeldBy::Wire, HeldBy::Compression, HeldBy::Decompression, HeldBy::Source];

    pub fn name(self) -> &'static str {
        match self {
            HeldBy::Wire => "wire",
            HeldBy::Compression => "compression",
            HeldBy::Decompression => "decompression",
            HeldBy::Source => "source",
        }
    }

    pub fn parse(text: &str) -> Option<HeldBy> {
        HeldBy::ALL.into_iter().find(|held_by| held_by.name() == text)
    }

    /// From the times of requests at the source and at the sink.
    fn of(source: &Life, sink: &Life) -> HeldBy {
        let gone = source.gate + source.drain;
        if source.fill > source.pass.max(gone) {
            HeldBy::Source
        } else if source.pass > gone {
            HeldBy::Compression
        } else if sink.pass > sink.fill {
            HeldBy::Decompression
        } else {
            HeldBy::Wire
        }
    }
}

impl Compression {
    /// `None` where compression was off.
    pub fn of(outcome: &Outcome) -> Option<Compression> {
        let (source, sink) = match &outcome.far {
            Some(far) if outcome.near_is_source => (&outcome.near, far),
            Some(far) => (far, &outcome.near),
            None => return None,
        };
        let counts = &source.tally.compression;
        let used = Coding::all().filter(|coding| counts.by_coding[coding.index()] > 0);
        let codec = |side: &SideReport| side.tally.stages[Stage::Codec as usize];
        let (compress, decompress) = (codec(source), codec(sink));
        (counts.raw_bytes() > 0).then(|| Compression {
            raw_bytes: counts.raw_bytes(),
            compressed_bytes: counts.compressed_bytes,
            bytes_by_coding: used
                .map(|coding| (coding.typed(), counts.by_coding[coding.index()]))
                .collect(),
            compress_over_decompress: (decompress.0 > 0)
                .then(|| compress.0 as f64 / decompress.0 as f64),
            without: Some(Without::of(outcome, source, sink)),
        })
    }

    pub fn ratio(&self) -> f64 {
        self.raw_bytes as f64 / self.compressed_bytes.max(1) as f64
    }

    /// The share of the bytes that was sent as it was.
    pub fn raw_share(&self) -> f64 {
        let raw = self.bytes_by_coding.get(&Coding::Raw.typed()).copied().unwrap_or(0);
        raw as f64 / self.raw_bytes.max(1) as f64
    }
}

impl Without {
    fn of(outcome: &Outcome, source: &SideReport, sink: &SideReport) -> Without {
        let seconds = outcome.moving().seconds().max(1e-9);
        let rate = source.tally.bytes as f64 / seconds;
        let wire = source.tally.compression.compressed_bytes as f64 / seconds;
        let held_by = HeldBy::of(&source.tally.life, &sink.tally.life);
        let carries = wire.max(best_moment(outcome));
        let bytes_per_s = match held_by {
            HeldBy::Wire => wire,
            HeldBy::Compression | HeldBy::Decompression => carries,
            HeldBy::Source => carries.min(rate),
        };
        Without { bytes_per_s, held_by }
    }
}

/// The highest delivery rate that TCP saw on one stream, in bytes a second; 0 on a short path,
/// where it sees batches and no rate.
fn best_moment(outcome: &Outcome) -> f64 {
    let ends = outcome.paths.iter().filter(|path| path.role == PathRole::Source);
    let looks = ends.flat_map(|path| &path.samples).filter(|look| look.rtt_min >= RTT_MIN);
    looks.map(|look| look.delivery_bytes_per_s).max().unwrap_or(0) as f64
}

const RTT_MIN: Nanos = Nanos::from_millis(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_held_a_copy_back() {
        let life = |fill, pass, gate, drain| Life {
            fill: Nanos(fill),
            pass: Nanos(pass),
            gate: Nanos(gate),
            drain: Nanos(drain),
        };
        let waits = life(9, 1, 0, 1);
        let cases = [
            (life(1, 2, 3, 4), waits, HeldBy::Wire),
            (life(1, 8, 3, 4), waits, HeldBy::Compression),
            (life(1, 2, 3, 4), life(1, 9, 0, 1), HeldBy::Decompression),
            (life(9, 2, 3, 4), waits, HeldBy::Source),
        ];
        for (source, sink, expect) in cases {
            assert_eq!(HeldBy::of(&source, &sink), expect, "{source:?} {sink:?}");
            assert_eq!(HeldBy::parse(expect.name()), Some(expect));
        }
    }
}
