//! Compression of given bytes: ratio, speed and cost, the link rate below which it pays, and the
//! results of external tools. The measurement is elsewhere.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::record::options::Options;
use crate::record::packed;
use crate::record::sample::{Moved, Record, Side};

/// One source's results.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Findings {
    pub source: String,
    pub bytes: u64,
    pub payload_bytes: u32,
    pub ways: Vec<Packed>,
    pub tools: Vec<Tool>,
}

/// One coding for one source.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Packed {
    /// As typed after `--compress`.
    pub way: String,
    pub ratio: f64,
    pub pack_bytes_per_s: f64,
    /// `None` where nothing shrank, so that nothing was decompressed.
    pub unpack_bytes_per_s: Option<f64>,
}

/// A program with the same bytes: one stream, no payloads.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Tool {
    pub command: String,
    pub ratio: f64,
    /// `None` where the start of the program was most of its time.
    pub pack_bytes_per_s: Option<f64>,
}

impl Packed {
    /// Below this link rate, compression with this many processors at each end is faster than
    /// sending raw bytes: they compress and decompress more than the link carries. `None` where
    /// compression gains nothing on any link.
    pub(crate) fn pays_below_bytes_per_s(&self, processors: usize) -> Option<f64> {
        let unpack = self.unpack_bytes_per_s.unwrap_or(f64::INFINITY);
        let slower = self.pack_bytes_per_s.min(unpack) * processors as f64;
        (self.ratio > GAIN_MIN).then_some(slower)
    }

    /// Time of compression over that of decompression: c/x of SLAC (2001).
    pub fn pack_over_unpack(&self) -> Option<f64> {
        self.unpack_bytes_per_s.map(|unpack| unpack / self.pack_bytes_per_s)
    }
}

/// A record for each coding, and for each program whose speed is known.
pub fn records(findings: &Findings, started_unix_s: f64, environment: i64) -> Vec<Record> {
    let record = |codec: &str, ratio: f64, rate: f64, unpack: Option<f64>| {
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
            sink: unpack.map(side),
            packed: Some(packed::Packed {
                raw_bytes: bytes,
                packed_bytes: (bytes as f64 / ratio).round() as u64,
                bytes_by_way: BTreeMap::from([(codec.to_string(), bytes)]),
                pack_over_unpack: unpack.map(|unpack| unpack / rate),
                without: None,
            }),
            ..Record::default()
        }
    };
    let ways = findings
        .ways
        .iter()
        .map(|way| record(&way.way, way.ratio, way.pack_bytes_per_s, way.unpack_bytes_per_s));
    let tools = findings
        .tools
        .iter()
        .filter_map(|tool| Some(record(&tool.command, tool.ratio, tool.pack_bytes_per_s?, None)));
    ways.chain(tools).collect()
}

/// A ratio close to 1 gains nothing.
const GAIN_MIN: f64 = 1.01;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packing_pays_below_the_slower_of_its_ends() {
        let packed = |ratio, pack, unpack| Packed {
            way: "zlib:1".into(),
            ratio,
            pack_bytes_per_s: pack,
            unpack_bytes_per_s: unpack,
        };
        let cases = [
            (packed(4.0, 100e6, Some(300e6)), Some(200e6), Some(3.0)),
            (packed(4.0, 100e6, Some(50e6)), Some(100e6), Some(0.5)),
            (packed(1.0, 100e6, None), None, None),
        ];
        for (packed, pays, c_over_x) in cases {
            assert_eq!(packed.pays_below_bytes_per_s(2), pays, "{packed:?}");
            assert_eq!(packed.pack_over_unpack(), c_over_x, "{packed:?}");
        }
    }

    #[test]
    fn findings_become_records() {
        let packed = Packed {
            way: "zlib:1".into(),
            ratio: 4.0,
            pack_bytes_per_s: 100.0,
            unpack_bytes_per_s: Some(400.0),
        };
        let tool =
            |pack_bytes_per_s| Tool { command: "gzip -1 -c".into(), ratio: 4.0, pack_bytes_per_s };
        let findings = Findings {
            source: "a".into(),
            bytes: 1000,
            payload_bytes: 64,
            ways: vec![packed],
            tools: vec![tool(Some(50.0)), tool(None)],
        };
        let [way, tool] = &records(&findings, 5.0, 2)[..] else { panic!("two records") };
        let seen = way.packed.as_ref().unwrap();
        assert_eq!(
            (seen.raw_bytes, seen.packed_bytes, seen.pack_over_unpack),
            (1000, 250, Some(4.0))
        );
        assert_eq!((way.source.stages_s["codec"], way.source.environment), (10.0, 2));
        assert_eq!(way.sink.as_ref().unwrap().stages_s["codec"], 2.5);
        assert_eq!(tool.options.compress, "gzip -1 -c");
        assert!(tool.moved.elapsed_s == 20.0 && tool.sink.is_none(), "{tool:?}");
    }
}
