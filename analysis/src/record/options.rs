//! The options of a run, by their names on the command line.

use serde::{Deserialize, Serialize};

use base::dscp::Dscp;
use base::settings::Settings;

/// How bytes are moved. Null where the choice is left to the program, empty or 0 where an older
/// record lacks it. After a run, `streams` and `request_bytes` are the values that it used.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Options {
    pub streams: u16,
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
    /// Which bytes are digested: `received` or `source`.
    pub verify: String,
    pub fsync: String,
    pub overwrite: String,
    pub memory_bytes: u64,
    pub preallocate: String,
    pub preserve: bool,
    pub archive: bool,
    pub recursive: bool,
    pub links: String,
    pub filters: Vec<String>,
    pub skip_unchanged: String,
    pub dry_run: bool,
    pub max_errors: Option<u32>,
    pub fresh: bool,
    pub stall_s: f64,
    pub path_samples: String,
    /// `off`, or a codec with its level as typed.
    pub compress: String,
    pub null_cycle_bytes: u32,
}

impl Options {
    pub fn of(settings: &Settings) -> Options {
        Options {
            streams: settings.streams,
            request_bytes: settings.request_bytes,
            depth_source: settings.depth_source,
            depth_sink: settings.depth_sink,
            window_bytes: settings.window_bytes,
            congestion: settings.congestion.clone(),
            rate_bytes_per_s: settings.rate.map(|rate| rate.bytes_per_second),
            pace: settings.pace.typed(),
            dscp: settings.dscp.map(Dscp::code),
            lockstep: settings.lockstep.map(|lockstep| lockstep.typed()),
            engine: settings.engine.name().into(),
            direct: settings.direct.name().into(),
            receive: settings.receive.name().into(),
            seal: settings.seal.name().into(),
            digest: settings.digest.name().into(),
            verify: settings.verify.name().into(),
            fsync: settings.fsync.name().into(),
            overwrite: settings.overwrite.name().into(),
            memory_bytes: settings.memory_bytes,
            preallocate: settings.preallocate.name().into(),
            preserve: settings.preserve,
            archive: settings.archive,
            recursive: settings.recursive,
            links: settings.links.name().into(),
            filters: settings.filters.clone(),
            skip_unchanged: settings.skip_unchanged.name().into(),
            dry_run: settings.dry_run,
            max_errors: settings.errors_max,
            fresh: settings.fresh,
            stall_s: settings.stall.seconds(),
            path_samples: settings.path_samples.name().into(),
            compress: settings.compress.typed(),
            null_cycle_bytes: settings.null_cycle_bytes,
        }
    }
}

/// Names every setting, without `..`: a new one does not compile until it is here, and in
/// `Options::of`.
#[allow(dead_code, reason = "only the compiler reads it")]
fn every_setting_is_recorded(settings: Settings) {
    let Settings {
        streams: _,
        request_bytes: _,
        depth_source: _,
        depth_sink: _,
        window_bytes: _,
        congestion: _,
        rate: _,
        pace: _,
        dscp: _,
        lockstep: _,
        engine: _,
        direct: _,
        receive: _,
        seal: _,
        digest: _,
        verify: _,
        fsync: _,
        overwrite: _,
        memory_bytes: _,
        preallocate: _,
        preserve: _,
        archive: _,
        recursive: _,
        links: _,
        filters: _,
        skip_unchanged: _,
        dry_run: _,
        errors_max: _,
        fresh: _,
        stall: _,
        path_samples: _,
        compress: _,
        null_cycle_bytes: _,
    } = settings;
}
