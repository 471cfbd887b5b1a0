//! The options of a run, by their names on the command line.

use serde::{Deserialize, Serialize};

use base::dscp::Dscp;
use base::owners::OwnerRule;
use base::settings::Settings;

/// How bytes are moved. Null where the choice is left to the program, empty or 0 where an older
/// record lacks it. After a run, `streams` and `request_bytes` are the values that it used.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Options {
    pub streams: u16,
    /// The number was chosen while the copy ran; `streams` is that at its beginning.
    pub streams_auto: bool,
    pub request_bytes: u32,
    pub depth_source: Option<u16>,
    pub depth_sink: Option<u16>,
    pub window_bytes: Option<u32>,
    pub congestion: Option<String>,
    pub rate_bytes_per_s: Option<f64>,
    /// `off`, `auto`, or bytes a second with a `B`.
    pub pace: String,
    pub dscp: Option<u8>,
    /// `SIZE:TIME`, as typed.
    pub lockstep: Option<String>,
    pub engine: String,
    pub direct: String,
    /// How a network source receives: `waitall` or `any`.
    pub receive: String,
    pub seal: String,
    pub digest: String,
    /// Which bytes are digested: `received`, `source` or `disk`.
    pub verify: String,
    /// Names with commas between them; empty where there are none.
    pub digest_also: String,
    pub fsync: String,
    pub overwrite: String,
    pub memory_bytes: u64,
    pub preallocate: String,
    pub preserve: bool,
    pub archive: bool,
    pub numeric_ids: bool,
    /// Rules as typed, those of `--chown` too; empty where there are none.
    pub usermap: String,
    pub groupmap: String,
    pub recursive: bool,
    pub links: String,
    pub filters: Vec<String>,
    pub min_size_bytes: Option<u64>,
    pub max_size_bytes: Option<u64>,
    /// Since 1970.
    pub newer_s: Option<f64>,
    pub skip_unchanged: String,
    /// `off`, `on` or `excluded`: what `--delete` and `--delete-excluded` say (no word of SQL).
    pub deletes: String,
    pub max_delete: Option<u64>,
    pub backup_dir: Option<String>,
    pub dry_run: bool,
    pub max_errors: Option<u32>,
    pub fresh: bool,
    pub mkpath: bool,
    pub stall_s: f64,
    pub path_samples: String,
    /// `off`, or a codec with its level as typed.
    pub compress: String,
    pub null_cycle_bytes: u32,
}

impl Options {
    pub fn of(settings: &Settings) -> Options {
        // Without `..`: a new setting does not compile until it has a name here, and is an unused
        // variable until it is recorded.
        #[rustfmt::skip]
        let Settings {
            streams, streams_auto, request_bytes, depth_source, depth_sink, window_bytes,
            congestion, rate,
            pace, dscp, lockstep, engine, direct, receive, seal, digest, verify, digest_also,
            fsync,
            overwrite, memory_bytes, preallocate, preserve, archive, numeric_ids, user_rules,
            group_rules, recursive, links, filters, min_size, max_size, newer, skip_unchanged,
            delete, delete_max, backup_dir, dry_run, compare: _, errors_max, fresh, mkpath, stall,
            path_samples, compress, null_cycle_bytes,
            // Of the workers of a spread alone.
            names_apart: _,
        } = settings;
        Options {
            streams: *streams,
            streams_auto: *streams_auto,
            request_bytes: *request_bytes,
            depth_source: *depth_source,
            depth_sink: *depth_sink,
            window_bytes: *window_bytes,
            congestion: congestion.clone(),
            rate_bytes_per_s: rate.map(|rate| rate.bytes_per_second),
            pace: pace.typed(),
            dscp: dscp.map(Dscp::code),
            lockstep: lockstep.map(|lockstep| lockstep.typed()),
            engine: engine.name().into(),
            direct: direct.name().into(),
            receive: receive.name().into(),
            seal: seal.name().into(),
            digest: digest.name().into(),
            verify: verify.name().into(),
            digest_also: digest_also.to_string(),
            fsync: fsync.name().into(),
            overwrite: overwrite.name().into(),
            memory_bytes: *memory_bytes,
            preallocate: preallocate.name().into(),
            preserve: *preserve,
            archive: *archive,
            numeric_ids: *numeric_ids,
            usermap: OwnerRule::typed_all(user_rules),
            groupmap: OwnerRule::typed_all(group_rules),
            recursive: *recursive,
            links: links.name().into(),
            filters: filters.clone(),
            min_size_bytes: *min_size,
            max_size_bytes: *max_size,
            newer_s: newer.map(|newer| newer.seconds as f64 + f64::from(newer.nanos) / 1e9),
            skip_unchanged: skip_unchanged.name().into(),
            deletes: delete.name().into(),
            max_delete: *delete_max,
            backup_dir: backup_dir.clone(),
            dry_run: *dry_run,
            max_errors: *errors_max,
            fresh: *fresh,
            mkpath: *mkpath,
            stall_s: stall.seconds(),
            path_samples: path_samples.name().into(),
            compress: compress.typed(),
            null_cycle_bytes: *null_cycle_bytes,
        }
    }
}
