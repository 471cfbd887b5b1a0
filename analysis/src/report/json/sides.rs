//! What each side of a transfer did, as its last event tells it.

use std::collections::BTreeMap;

use crate::record::packed as recorded;
use base::job::Outcome;
use base::tally::{SideReport, Stage};
use base::units::Nanos;
use serde::Serialize;

pub(super) fn sides(outcome: &Outcome) -> Vec<Side> {
    match &outcome.far {
        None => vec![side("both", "here", &outcome.near)],
        Some(far) if outcome.near_is_source => {
            vec![side("source", "here", &outcome.near), side("sink", "there", far)]
        }
        Some(far) => vec![side("source", "there", far), side("sink", "here", &outcome.near)],
    }
}

pub(super) fn source(outcome: &Outcome) -> &SideReport {
    match &outcome.far {
        Some(far) if !outcome.near_is_source => far,
        _ => &outcome.near,
    }
}

pub(super) fn side(role: &'static str, host: &'static str, report: &SideReport) -> Side {
    let tally = &report.tally;
    let stage = |stage: Stage| tally.stages[stage as usize].seconds();
    Side {
        role,
        host,
        engine: report.engine.clone(),
        depth: report.depth,
        congestion: report.congestion.clone(),
        cpu_user_seconds: report.cpu_user.seconds(),
        cpu_system_seconds: report.cpu_system.seconds(),
        cpu_ns_per_byte: per_byte(report.cpu_user + report.cpu_system, tally.bytes),
        peak_memory_bytes: report.peak_memory_bytes,
        planned_memory_bytes: report.planned_memory_bytes,
        requests: tally.requests,
        bytes: tally.bytes,
        wire_bytes: tally.wire_bytes,
        calls: tally.calls,
        partial_returns: tally.partial_returns,
        partial_bytes: tally.partial_bytes,
        starts: tally.starts,
        filling_seconds: tally.life.fill.seconds(),
        passing_seconds: tally.life.pass.seconds(),
        waiting_seconds: tally.life.gate.seconds(),
        draining_seconds: tally.life.drain.seconds(),
        digest_seconds: stage(Stage::Digest),
        codec_seconds: stage(Stage::Codec),
        seal_seconds: stage(Stage::Seal),
    }
}

pub(super) fn packed(packed: &recorded::Packed) -> Packed {
    Packed {
        raw_bytes: packed.raw_bytes,
        packed_bytes: packed.packed_bytes,
        ratio: packed.ratio(),
        raw_share: packed.raw_share(),
        bytes_by_way: packed.bytes_by_way.clone(),
        pack_over_unpack: packed.pack_over_unpack,
        off_bytes_per_second: packed.without.map(|without| without.bytes_per_s),
        off_held_by: packed.without.map(|without| without.held_by.name()),
    }
}

pub(super) fn per_byte(spent: Nanos, bytes: u64) -> Option<f64> {
    (bytes > 0).then(|| spent.0 as f64 / bytes as f64)
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Packed {
    pub(super) raw_bytes: u64,
    /// What they were on the wire, without frames and seals.
    pub(super) packed_bytes: u64,
    pub(super) ratio: f64,
    /// The share of the bytes that went as they were.
    pub(super) raw_share: f64,
    /// Bytes that went each way, by its name as it is typed; `off` is for those that went as they
    /// were.
    pub(super) bytes_by_way: BTreeMap<String, u64>,
    /// Time of packing over that of unpacking.
    pub(super) pack_over_unpack: Option<f64>,
    /// What `--compress off` would have come to, as is believed.
    pub(super) off_bytes_per_second: Option<f64>,
    /// Why: what held this back, `wire`, `packing`, `unpacking` or `source`.
    pub(super) off_held_by: Option<&'static str>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Side {
    /// `source`, `sink` or `both`.
    pub(super) role: &'static str,
    /// `here` or `there`.
    pub(super) host: &'static str,
    pub(super) engine: String,
    pub(super) depth: u16,
    pub(super) congestion: String,
    pub(super) cpu_user_seconds: f64,
    pub(super) cpu_system_seconds: f64,
    pub(super) cpu_ns_per_byte: Option<f64>,
    pub(super) peak_memory_bytes: u64,
    pub(super) planned_memory_bytes: u64,
    pub(super) requests: u64,
    pub(super) bytes: u64,
    pub(super) wire_bytes: u64,
    pub(super) calls: u64,
    pub(super) partial_returns: u64,
    pub(super) partial_bytes: u64,
    pub(super) starts: u64,
    /// Sums over all requests.
    pub(super) filling_seconds: f64,
    pub(super) passing_seconds: f64,
    pub(super) waiting_seconds: f64,
    pub(super) draining_seconds: f64,
    pub(super) digest_seconds: f64,
    pub(super) codec_seconds: f64,
    pub(super) seal_seconds: f64,
}
