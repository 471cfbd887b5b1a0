//! Compression of given bytes: ratio, speed and cost, the link rate below which it pays, and the
//! results of external tools. The measurement is elsewhere.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::record::compression;
use crate::record::options::Options;
use crate::record::sample::{Moved, Record, Side};

/// One source's results.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Findings {
    pub source: String,
    pub bytes: u64,
    pub payload_bytes: u32,
    pub codings: Vec<CodingSpeed>,
    pub tools: Vec<Tool>,
}

/// One coding for one source.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CodingSpeed {
    /// As typed after `--compress`.
    pub coding: String,
    pub ratio: f64,
    pub compress_bytes_per_s: f64,
    /// `None` where nothing shrank, so that nothing was decompressed.
    pub decompress_bytes_per_s: Option<f64>,
}

/// A program with the same bytes: one stream, no payloads.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Tool {
    pub command: String,
    pub ratio: f64,
    /// `None` where the start of the program was most of its time.
    pub compress_bytes_per_s: Option<f64>,
}

impl CodingSpeed {
    /// Below this link rate, compression with this many processors at each end is faster than
    /// sending raw bytes: they compress and decompress more than the link carries. `None` where
    /// compression gains nothing on any link.
    pub(crate) fn pays_below_bytes_per_s(&self, processors: usize) -> Option<f64> {
        let decompress = self.decompress_bytes_per_s.unwrap_or(f64::INFINITY);
        let slower = self.compress_bytes_per_s.min(decompress) * processors as f64;
        (self.ratio > GAIN_MIN).then_some(slower)
    }

    /// Time of compression over that of decompression: c/x of SLAC (2001).
    pub fn compress_over_decompress(&self) -> Option<f64> {
        self.decompress_bytes_per_s.map(|decompress| decompress / self.compress_bytes_per_s)
    }
}

/// A record for each coding, and for each program whose speed is known.
pub fn records(findings: &Findings, started_unix_s: f64, environment: i64) -> Vec<Record> {
    let record = |codec: &str, ratio: f64, rate: f64, decompress: Option<f64>| {
        let bytes = findings.bytes;
        let seconds = |rate: f64| bytes as f64 / rate;
        let side = |rate: f64| Side {
            environment,
            cpu_user_s: seconds(rate),
            stages_s: BTreeMap::from([("codec".to_string(), seconds(rate))]),
            ..Side::default()
        };
        Record {
            command: "measure".into(),
            version: env!("CARGO_PKG_VERSION").into(),
            started_unix_s,
            sources: vec![findings.source.clone()],
            options: Options {
                request_bytes: findings.payload_bytes,
                compress: codec.into(),
                ..Options::default()
            },
            moved: Moved {
                bytes,
                elapsed_s: seconds(rate),
                goodput_bytes_per_s: rate,
                ..Moved::default()
            },
            source: side(rate),
            sink: decompress.map(side),
            compression: Some(compression::Compression {
                raw_bytes: bytes,
                compressed_bytes: (bytes as f64 / ratio).round() as u64,
                bytes_by_coding: BTreeMap::from([(codec.to_string(), bytes)]),
                compress_over_decompress: decompress.map(|decompress| decompress / rate),
                without: None,
            }),
            ..Record::default()
        }
    };
    let codings = findings.codings.iter().map(|speed| {
        let (compress, decompress) = (speed.compress_bytes_per_s, speed.decompress_bytes_per_s);
        record(&speed.coding, speed.ratio, compress, decompress)
    });
    let tools = findings.tools.iter().filter_map(|tool| {
        Some(record(&tool.command, tool.ratio, tool.compress_bytes_per_s?, None))
    });
    codings.chain(tools).collect()
}

/// A ratio close to 1 gains nothing.
const GAIN_MIN: f64 = 1.01;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compression_pays_below_the_slower_of_its_ends() {
        let speed = |ratio, compress, decompress| CodingSpeed {
            coding: "zlib:1".into(),
            ratio,
            compress_bytes_per_s: compress,
            decompress_bytes_per_s: decompress,
        };
        let cases = [
            (speed(4.0, 100e6, Some(300e6)), Some(200e6), Some(3.0)),
            (speed(4.0, 100e6, Some(50e6)), Some(100e6), Some(0.5)),
            (speed(1.0, 100e6, None), None, None),
        ];
        for (speed, pays, c_over_x) in cases {
            assert_eq!(speed.pays_below_bytes_per_s(2), pays, "{speed:?}");
            assert_eq!(speed.compress_over_decompress(), c_over_x, "{speed:?}");
        }
    }

    #[test]
    fn findings_become_records() {
        let speed = CodingSpeed {
            coding: "zlib:1".into(),
            ratio: 4.0,
            compress_bytes_per_s: 100.0,
            decompress_bytes_per_s: Some(400.0),
        };
        let tool = |compress_bytes_per_s| Tool {
            command: "gzip -1 -c".into(),
            ratio: 4.0,
            compress_bytes_per_s,
        };
        let findings = Findings {
            source: "a".into(),
            bytes: 1000,
            payload_bytes: 64,
            codings: vec![speed],
            tools: vec![tool(Some(50.0)), tool(None)],
        };
        let [coding, tool] = &records(&findings, 5.0, 2)[..] else { panic!("two records") };
        let seen = coding.compression.as_ref().unwrap();
        assert_eq!(
            (seen.raw_bytes, seen.compressed_bytes, seen.compress_over_decompress),
            (1000, 250, Some(4.0))
        );
        assert_eq!((coding.source.stages_s["codec"], coding.source.environment), (10.0, 2));
        assert_eq!(coding.sink.as_ref().unwrap().stages_s["codec"], 2.5);
        assert_eq!(tool.options.compress, "gzip -1 -c");
        assert!(tool.moved.elapsed_s == 20.0 && tool.sink.is_none(), "{tool:?}");
    }
}
