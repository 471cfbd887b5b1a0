//! What packing comes to on given bytes: ratio, speed and cost, the link below which it pays, and
//! what plain tools do with the same bytes.

use std::collections::BTreeMap;
use std::io::{Read, Seek, Write};
use std::process::{Command, Stdio};

use serde::Serialize;

use super::packed;
use super::sample::{Knobs, Moved, Record, Side};
use crate::base::codec::Way;
use crate::base::fault::{Class, Fault};
use crate::base::job::Place;
use crate::base::units::Nanos;
use crate::io::clock;
use crate::pump::speed::{self, Speed};
use crate::pump::watch::Watch;

/// What is measured of each source.
#[derive(Clone, Debug)]
pub struct Plan {
    pub ways: Vec<Way>,
    pub payload_bytes: u32,
    /// So long each way is packed and unpacked.
    pub each: Nanos,
    /// Bytes of a source that are looked at.
    pub bytes_max: u64,
}

/// One source's results.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Findings {
    pub source: String,
    pub bytes: u64,
    pub payload_bytes: u32,
    pub ways: Vec<Packed>,
    pub tools: Vec<Tool>,
}

/// One way on one source.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Packed {
    /// As it is typed behind `--compress`.
    pub way: String,
    pub ratio: f64,
    pub pack_bytes_per_s: f64,
    /// `None` where nothing shrank, so that nothing was unpacked.
    pub unpack_bytes_per_s: Option<f64>,
}

/// A program on the same bytes: one stream, no payloads.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Tool {
    pub command: String,
    pub ratio: f64,
    /// `None` where it took so little that the start of the program was most of it.
    pub pack_bytes_per_s: Option<f64>,
}

impl Packed {
    fn of(speed: &Speed) -> Packed {
        let rate = |spent: Nanos| speed.raw_bytes as f64 / spent.seconds().max(1e-9);
        Packed {
            way: speed.way.typed(),
            ratio: speed.raw_bytes as f64 / speed.packed_bytes.max(1) as f64,
            pack_bytes_per_s: rate(speed.pack),
            unpack_bytes_per_s: (speed.unpack.0 > 0).then(|| rate(speed.unpack)),
        }
    }

    /// Below this rate of the link, packing with so many processors at each end is faster than
    /// sending as it is: what they pack and unpack is then more than the link carries raw. `None`
    /// where nothing is gained on any link.
    pub fn pays_below_bytes_per_s(&self, processors: usize) -> Option<f64> {
        let unpack = self.unpack_bytes_per_s.unwrap_or(f64::INFINITY);
        let slower = self.pack_bytes_per_s.min(unpack) * processors as f64;
        (self.ratio > GAIN_MIN).then_some(slower)
    }

    /// How many times as long packing takes as unpacking: c/x of the SLAC study.
    pub fn pack_over_unpack(&self) -> Option<f64> {
        self.unpack_bytes_per_s.map(|unpack| unpack / self.pack_bytes_per_s)
    }
}

/// Measures one source; `stop` ends it between two ways.
pub fn study(name: &str, place: &Place, plan: &Plan, watch: &Watch) -> Result<Findings, Fault> {
    let bytes = speed::load(place, plan.bytes_max, plan.payload_bytes)?;
    let mut findings = Findings {
        source: name.to_string(),
        bytes: bytes.len() as u64,
        payload_bytes: plan.payload_bytes,
        ways: Vec::new(),
        tools: Vec::new(),
    };
    for way in &plan.ways {
        if watch.stopping() {
            return Err(Fault::interrupted());
        }
        let speed = speed::measure(*way, &bytes, plan.payload_bytes, plan.each)?;
        findings.ways.push(Packed::of(&speed));
    }
    for words in TOOLS {
        if watch.stopping() {
            return Err(Fault::interrupted());
        }
        findings.tools.extend(tool(words, &bytes)?);
    }
    Ok(findings)
}

/// A record for each way, and for each program whose speed is known.
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
            knobs: Knobs {
                request_bytes: findings.payload_bytes,
                codec: Some(codec.into()),
                ..Knobs::default()
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

/// A program on these bytes, by the clock on the wall, less what it takes to start it; `None` where
/// it is not installed.
fn tool(words: &[&str], bytes: &[u8]) -> Result<Option<Tool>, Fault> {
    let Some((packed_bytes, spent)) = run(words, bytes)? else { return Ok(None) };
    let mut start = spent;
    for _ in 0..STARTS {
        if let Some((_, spent)) = run(words, &[])? {
            start = start.min(spent);
        }
    }
    let packing = Nanos(spent.0 - start.0);
    let is_known = packing > start;
    Ok(Some(Tool {
        command: words.join(" "),
        ratio: bytes.len() as f64 / packed_bytes.max(1) as f64,
        pack_bytes_per_s: is_known.then(|| bytes.len() as f64 / packing.seconds()),
    }))
}

/// Gives a program these bytes: how many come back, and how long that takes.
fn run(words: &[&str], bytes: &[u8]) -> Result<Option<(u64, Nanos)>, Fault> {
    let fault = |error| Fault::system("hand bytes to a program to pack", &error);
    let mut file = tempfile::tempfile().map_err(fault)?;
    file.write_all(bytes).and_then(|()| file.rewind()).map_err(fault)?;
    let begun = clock::now();
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).stdin(file).stdout(Stdio::piped()).stderr(Stdio::null());
    let Ok(mut child) = command.spawn() else { return Ok(None) };
    let mut out = child.stdout.take().expect("it is piped");
    let mut room = vec![0; 1 << 16];
    let mut packed_bytes = 0_u64;
    loop {
        match out.read(&mut room).map_err(fault)? {
            0 => break,
            count => packed_bytes += count as u64,
        }
    }
    let status = child.wait().map_err(fault)?;
    let spent = clock::now().since(begun);
    if !status.success() {
        let text = format!("'{}' failed on what it was given", words.join(" "));
        return Err(Fault::new(Class::Local, text));
    }
    Ok(Some((packed_bytes, spent)))
}

const TOOLS: &[&[&str]] = &[
    &["gzip", "-1", "-c"],
    &["gzip", "-6", "-c"],
    &["gzip", "-9", "-c"],
    &["zstd", "-1", "-q", "-c", "--single-thread"],
    &["zstd", "-3", "-q", "-c", "--single-thread"],
    &["zstd", "-9", "-q", "-c", "--single-thread"],
];

const STARTS: usize = 3;
/// A ratio that is hardly one gains nothing.
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
    fn a_program_that_is_not_there_is_left_out() {
        assert_eq!(tool(&["datapump-no-such-program"], b"bytes").unwrap(), None);
        assert!(tool(&["false"], b"bytes").is_err());
        let seen = tool(&["cat"], &[7; 100_000]).unwrap().unwrap();
        assert_eq!(seen.ratio, 1.0);
    }

    /// A program that takes long to start is not slow at packing.
    #[test]
    fn the_start_of_a_program_is_not_packing() {
        let seen = tool(&["sh", "-c", "sleep 0.05; cat"], &[7; 1000]).unwrap().unwrap();
        assert_eq!(seen.pack_bytes_per_s, None, "{seen:?}");
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
        assert_eq!(tool.knobs.codec.as_deref(), Some("gzip -1 -c"));
        assert!(tool.moved.elapsed_s == 20.0 && tool.sink.is_none(), "{tool:?}");
    }
}
