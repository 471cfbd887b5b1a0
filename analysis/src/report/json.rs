//! A run as JSON, one object a line: `start`, `progress`, `file`, `warning`, `end`.
//!
//! Every line has `schema`, `event`, `time_utc` and `monotonic_seconds` (since the start of the
//! program). Numbers are raw, and their names end in their unit. A field is only ever added within
//! a schema; a removed or changed one makes a new schema. `end` is the last line of every run,
//! whatever happened.

mod sides;

use std::time::Duration;

pub use self::sides::{Packed, Side};
use self::sides::{packed, per_byte, sides, source};
use serde::Serialize;

use super::foretold::Expected;
use super::live::{Meter, Seen, Walk};
use super::nettest::{NetTest, Passed};
use super::text::Dry;
use crate::diagnosis::Verdict;
use crate::doctor::Finding;
use crate::predict::Prediction;
use crate::record::packed as recorded;
use crate::record::sample::Record;
use crate::study::compression::Findings;
use base::dscp::Dscp;
use base::fault::{Class, Fault};
use base::job::{Carrier, Outcome, Sight, Verified};
use base::settings::Settings;
use base::units::{Nanos, Rate};

pub(crate) const SCHEMA: u32 = 1;

/// When something happened, on both clocks.
#[derive(Clone, Copy, Debug)]
pub struct Stamp {
    /// Since 1970-01-01T00:00:00Z.
    pub unix: Duration,
    pub since_start: Nanos,
}

/// One line's content.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    Start(Box<Start>),
    Progress(Progress),
    File(File),
    Warning {
        text: String,
    },
    /// A run of an experiment.
    Run(Box<Record>),
    /// What packing comes to on one source.
    Codec(Box<Findings>),
    /// What held a transfer back.
    Verdict(Box<Verdict>),
    /// A part of a net test, in one direction.
    Interval(Box<Passed>),
    /// In which order a campaign would be measured.
    Order {
        cells: Vec<super::campaign::Row>,
    },
    /// What a doctor found.
    Findings {
        findings: Vec<Finding>,
    },
    End(Box<End>),
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Start {
    pub version: &'static str,
    pub command: &'static str,
    /// As typed; bytes that are not UTF-8 are replaced.
    pub sources: Vec<String>,
    pub target: Option<String>,
    pub settings: Option<Knobs>,
}

/// The settings of a transfer; null means that the choice was left to the program.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Knobs {
    streams: u16,
    request_bytes: u32,
    depth_source: Option<u16>,
    depth_sink: Option<u16>,
    window_bytes: Option<u32>,
    congestion: Option<String>,
    rate_limit_bytes_per_second: Option<f64>,
    /// `off`, `auto`, or bytes a second with a `B`.
    pace: String,
    dscp: Option<u8>,
    /// `SIZE:TIME`, as it is typed.
    lockstep: Option<String>,
    engine: &'static str,
    direct: &'static str,
    receive: &'static str,
    seal: &'static str,
    digest: &'static str,
    fsync: &'static str,
    overwrite: &'static str,
    memory_bytes: u64,
    preallocate: &'static str,
    preserve: bool,
    archive: bool,
    recursive: bool,
    links: &'static str,
    filters: Vec<String>,
    skip_unchanged: &'static str,
    dry_run: bool,
    errors_max: Option<u32>,
    fresh: bool,
    stall_seconds: f64,
    path_samples: &'static str,
    /// `off`, or a codec with its level as it is typed.
    compress: String,
    null_cycle_bytes: u32,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Progress {
    phase: &'static str,
    elapsed_seconds: f64,
    bytes_done: u64,
    /// Those of them that an earlier run has left.
    bytes_held: u64,
    /// Null when nobody can know, as with a pipe.
    bytes_found: Option<u64>,
    files_done: u64,
    files_found: u64,
    /// True when `bytes_found` and `files_found` are final.
    all_found: bool,
    rate_bytes_per_second: f64,
    average_bytes_per_second: f64,
    eta_seconds: Option<f64>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct File {
    path: String,
    /// Only where the path is not UTF-8: its bytes in hexadecimal.
    #[serde(skip_serializing_if = "Option::is_none")]
    path_hex: Option<String>,
    /// `done`, `failed`, or after a dry run `would_copy`; of `clean` `removed`,
    /// `would_remove` or `held`.
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    digest: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    class: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct End {
    pub exit_code: u8,
    /// `ok`, or the class of the failure.
    pub class: &'static str,
    /// Null when all went well.
    pub message: Option<String>,
    /// What was moved; null when the transfer did not run to its end, and after `verify`.
    pub transfer: Option<Transfer>,
    /// What was not copied, the first thousand; `failed_count` counts all.
    pub failed: Vec<File>,
    pub failed_count: u64,
    /// What was found; null unless `verify` ran to its end.
    pub verified: Option<Found>,
    /// What a net test came to; only there after one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub net_test: Option<Box<NetTest>>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Transfer {
    files: u64,
    directories: u64,
    failed: u64,
    /// Destination files that stay as they were.
    kept: u64,
    /// Names that filters left out.
    excluded: u64,
    /// Bytes and files that an earlier run had brought.
    resumed_bytes: u64,
    held_files: u64,
    /// How often a lost connection was made again.
    retries: u32,
    /// True when nothing was copied: files and bytes are what would be.
    dry_run: bool,
    /// Room at the destination as a dry run found it.
    free_bytes: Option<u64>,
    request_bytes: u32,
    bytes: u64,
    elapsed_seconds: f64,
    /// How long it took of that until the far side had answered.
    login_seconds: f64,
    rate_bytes_per_second: f64,
    wire_bytes: u64,
    streams: u16,
    carrier: &'static str,
    window_asked_bytes: Option<u32>,
    /// The largest that the sink's TCP advertised; null when unknown.
    window_seen_bytes: Option<u64>,
    /// Bits by which those windows are shifted, as agreed on in the first packets.
    window_scale: Option<u8>,
    /// What `--pace auto` has chosen for all streams together; null where it saw no need.
    pace_chosen_bytes_per_second: Option<u64>,
    cpu_ns_per_byte: Option<f64>,
    /// What became of payloads that were to be packed; null where none were.
    packed: Option<Packed>,
    /// What was expected of it; null where no model knows.
    expected: Option<Expected>,
    /// One for each host, the source first; one alone when both ends were in this process.
    sides: Vec<Side>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Found {
    files: u64,
    bytes: u64,
    differing: u64,
    missing: u64,
    unreadable: u64,
    elapsed_seconds: f64,
}

/// The event as a line of text, without its newline.
pub fn line(stamp: Stamp, event: &Event) -> String {
    #[derive(Serialize)]
    struct Line<'a> {
        schema: u32,
        time_utc: String,
        monotonic_seconds: f64,
        #[serde(flatten)]
        event: &'a Event,
    }
    let line = Line {
        schema: SCHEMA,
        time_utc: utc(stamp.unix),
        monotonic_seconds: stamp.since_start.seconds(),
        event,
    };
    // Strings and numbers always serialize; if they ever did not, the line would still be JSON.
    serde_json::to_string(&line).unwrap_or_else(|why| {
        format!("{{\"schema\":{SCHEMA},\"event\":\"error\",\"text\":\"{why:?}\"}}")
    })
}

/// Takes settings apart without `..`, so that a new one cannot be forgotten here.
pub fn knobs(settings: &Settings) -> Knobs {
    let Settings {
        streams,
        request_bytes,
        depth_source,
        depth_sink,
        window_bytes,
        congestion,
        rate,
        pace,
        dscp,
        lockstep,
        engine,
        direct,
        receive,
        seal,
        digest,
        fsync,
        overwrite,
        memory_bytes,
        preallocate,
        preserve,
        archive,
        recursive,
        links,
        filters,
        skip_unchanged,
        dry_run,
        errors_max,
        fresh,
        stall,
        path_samples,
        compress,
        null_cycle_bytes,
    } = settings.clone();
    Knobs {
        streams,
        request_bytes,
        depth_source,
        depth_sink,
        window_bytes,
        congestion,
        rate_limit_bytes_per_second: rate.map(|rate| rate.bytes_per_second),
        pace: pace.typed(),
        dscp: dscp.map(Dscp::code),
        lockstep: lockstep.map(|lockstep| lockstep.typed()),
        engine: engine.name(),
        direct: direct.name(),
        receive: receive.name(),
        seal: seal.name(),
        digest: digest.name(),
        fsync: fsync.name(),
        overwrite: overwrite.name(),
        memory_bytes,
        preallocate: preallocate.name(),
        preserve,
        archive,
        recursive,
        links: links.name(),
        filters,
        skip_unchanged: skip_unchanged.name(),
        dry_run,
        errors_max,
        fresh,
        stall_seconds: stall.seconds(),
        path_samples: path_samples.name(),
        null_cycle_bytes,
        compress: compress.typed(),
    }
}

pub fn progress(seen: &Seen, meter: &Meter) -> Event {
    Event::Progress(Progress {
        phase: seen.phase().name(),
        elapsed_seconds: seen.at.seconds(),
        bytes_done: seen.bytes_done,
        bytes_held: seen.bytes_held,
        bytes_found: (seen.walk != Walk::Endless).then_some(seen.bytes_found),
        files_done: seen.files_done,
        files_found: seen.files_found,
        all_found: seen.walk == Walk::Done,
        rate_bytes_per_second: meter.now().bytes_per_second,
        average_bytes_per_second: seen.average().bytes_per_second,
        eta_seconds: meter.left(seen).map(Nanos::seconds),
    })
}

pub fn file_done(path: &[u8], bytes: u64, digest: Option<&str>) -> Event {
    let digest = digest.map(String::from);
    Event::File(File { bytes: Some(bytes), digest, ..file(path, "done") })
}

/// A dry run's word for what a real one would do.
pub fn would_copy(path: &[u8], bytes: u64) -> Event {
    Event::File(File { bytes: Some(bytes), ..file(path, "would_copy") })
}

/// What `clean` did with one file, or would do.
pub fn cleaned(sight: &Sight, dry: Dry) -> Event {
    use std::os::unix::ffi::OsStrExt;
    match sight {
        Sight::Removed { path, bytes } => {
            let state = if dry == Dry::Yes { "would_remove" } else { "removed" };
            let bytes = Some(*bytes);
            Event::File(File { bytes, ..file(path.as_os_str().as_bytes(), state) })
        }
        Sight::Held(path) => Event::File(file(path.as_os_str().as_bytes(), "held")),
        Sight::Failed(fault) => file_failed(b"", fault),
    }
}

pub fn file_failed(path: &[u8], fault: &Fault) -> Event {
    Event::File(failure(path, fault))
}

/// One thing that was not copied, for the list at the end too.
pub fn failure(path: &[u8], fault: &Fault) -> File {
    let class = Some(class_name(fault.class));
    File { class, message: Some(fault.text.clone()), ..file(path, "failed") }
}

fn file(path: &[u8], state: &'static str) -> File {
    let hex = || path.iter().map(|byte| format!("{byte:02x}")).collect();
    File {
        path: String::from_utf8_lossy(path).into_owned(),
        path_hex: std::str::from_utf8(path).is_err().then(hex),
        state,
        bytes: None,
        digest: None,
        class: None,
        message: None,
    }
}

/// The end of a run, before anything is known of what it did.
pub fn end(class: Option<Class>, message: Option<String>) -> End {
    End {
        exit_code: class.map_or(0, Class::exit_code),
        class: class.map_or("ok", class_name),
        message,
        transfer: None,
        failed: Vec::new(),
        failed_count: 0,
        verified: None,
        net_test: None,
    }
}

pub fn transfer(outcome: &Outcome, settings: &Settings) -> Transfer {
    let sides = sides(outcome);
    let source = source(outcome);
    let cpu = std::iter::once(&outcome.near)
        .chain(&outcome.far)
        .fold(Nanos(0), |cpu, side| cpu + side.cpu_user + side.cpu_system);
    Transfer {
        files: outcome.files,
        directories: outcome.directories,
        failed: outcome.failed,
        kept: outcome.kept,
        excluded: outcome.excluded,
        resumed_bytes: outcome.resumed_bytes,
        held_files: outcome.held_files,
        retries: outcome.retries,
        dry_run: outcome.dry.is_some(),
        free_bytes: outcome.dry.and_then(|room| room.free_bytes),
        request_bytes: outcome.request_bytes,
        bytes: outcome.bytes,
        elapsed_seconds: outcome.elapsed.seconds(),
        login_seconds: outcome.login.seconds(),
        rate_bytes_per_second: Rate::of(outcome.bytes, outcome.elapsed).bytes_per_second,
        wire_bytes: source.tally.wire_bytes,
        streams: outcome.streams,
        carrier: match outcome.carrier {
            Carrier::Memory => "memory",
            Carrier::Tcp => "tcp",
            Carrier::Control => "control",
        },
        window_asked_bytes: settings.window_bytes,
        window_seen_bytes: Some(source.window_seen_bytes).filter(|bytes| *bytes > 0),
        window_scale: source.window_scale.filter(|_| outcome.carrier == Carrier::Tcp),
        pace_chosen_bytes_per_second: source.pace_bytes_per_s,
        cpu_ns_per_byte: per_byte(cpu, outcome.bytes),
        packed: recorded::Packed::of(outcome).as_ref().map(packed),
        expected: None,
        sides,
    }
}

impl Transfer {
    pub fn expected(self, prediction: Option<&Prediction>) -> Transfer {
        Transfer { expected: prediction.map(Expected::from), ..self }
    }
}

pub fn found(verified: &Verified, elapsed: Nanos) -> Found {
    Found {
        files: verified.files,
        bytes: verified.bytes,
        differing: verified.differing,
        missing: verified.missing,
        unreadable: verified.unreadable,
        elapsed_seconds: elapsed.seconds(),
    }
}

/// A class as programs read it.
pub(crate) fn class_name(class: Class) -> &'static str {
    match class {
        Class::Local => "local",
        Class::Usage => "usage",
        Class::SomeFailed => "some_failed",
        Class::SourceChanged => "source_changed",
        Class::NoSpace => "no_space",
        Class::Corrupt => "corrupt",
        Class::Unreachable => "unreachable",
        Class::Version => "version",
        Class::Peer => "peer",
        Class::Interrupted => "interrupted",
    }
}

/// `2026-11-20T12:15:03.123Z`. The days become a date as Howard Hinnant's `civil_from_days` does
/// it: years begin in March, so that the leap day is the last of its year.
pub(crate) fn utc(unix: Duration) -> String {
    let seconds = unix.as_secs();
    let days = seconds / 86_400 + 719_468; // since 0000-03-01
    let era = days / 146_097;
    let day_of_era = days % 146_097;
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    let millis = unix.subsec_millis();
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(event: Event, expect: &str) {
        let stamp =
            Stamp { unix: Duration::from_millis(1500), since_start: Nanos::from_millis(250) };
        let front =
            "{\"schema\":1,\"time_utc\":\"1970-01-01T00:00:01.500Z\",\"monotonic_seconds\":0.25,";
        let line = line(stamp, &event);
        assert_eq!(line.strip_prefix(front), Some(expect), "{line}");
        assert!(serde_json::from_str::<serde_json::Value>(&line).unwrap().is_object());
    }

    #[test]
    fn lines() {
        check(Event::Warning { text: "a\nb".into() }, r#""event":"warning","text":"a\nb"}"#);
        check(
            file_done(b"a/b", 3, Some("00ff")),
            r#""event":"file","path":"a/b","state":"done","bytes":3,"digest":"00ff"}"#,
        );
        check(
            file_failed(b"\xff", &Fault::new(Class::Local, "cannot open it")),
            "\"event\":\"file\",\"path\":\"\u{fffd}\",\"path_hex\":\"ff\",\"state\":\"failed\",\
             \"class\":\"local\",\"message\":\"cannot open it\"}",
        );
        check(
            Event::End(Box::new(end(Some(Class::NoSpace), Some("no room".into())))),
            "\"event\":\"end\",\"exit_code\":5,\"class\":\"no_space\",\"message\":\"no room\",\
             \"transfer\":null,\"failed\":[],\"failed_count\":0,\"verified\":null}",
        );
        let seen = Seen { at: Nanos::from_millis(2000), bytes_done: 10, ..Seen::default() };
        check(
            progress(&seen, &Meter::default()),
            "\"event\":\"progress\",\"phase\":\"moving\",\"elapsed_seconds\":2.0,\"bytes_done\":10,\
             \"bytes_held\":0,\"bytes_found\":0,\"files_done\":0,\"files_found\":0,\
             \"all_found\":false,\"rate_bytes_per_second\":0.0,\
             \"average_bytes_per_second\":5.0,\"eta_seconds\":null}",
        );
    }

    #[test]
    fn the_end_of_a_transfer_has_its_numbers() {
        let outcome = super::super::text::sample::push();
        let end =
            End { transfer: Some(transfer(&outcome, &Settings::default())), ..end(None, None) };
        let stamp = Stamp { unix: Duration::ZERO, since_start: Nanos(0) };
        let line = line(stamp, &Event::End(Box::new(end)));
        let value: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!((value["exit_code"].as_u64(), value["class"].as_str()), (Some(0), Some("ok")));
        let transfer = &value["transfer"];
        assert_eq!(transfer["bytes"].as_u64(), Some(outcome.bytes));
        assert_eq!(transfer["window_seen_bytes"].as_u64(), Some(6 << 20));
        assert_eq!(transfer["sides"][0]["role"].as_str(), Some("source"));
        assert_eq!(transfer["sides"][1]["host"].as_str(), Some("there"));
        assert_eq!(transfer["sides"][0]["digest_seconds"].as_f64(), Some(0.9));
    }

    #[test]
    fn classes_are_named_as_in_the_code() {
        for (class, _) in Class::ALL {
            let mut snake = String::new();
            for letter in format!("{class:?}").chars() {
                if letter.is_uppercase() && !snake.is_empty() {
                    snake.push('_');
                }
                snake.extend(letter.to_lowercase());
            }
            assert_eq!(class_name(*class), snake);
        }
    }

    #[test]
    fn dates() {
        let cases = [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399, "2000-02-28T23:59:59.000Z"),
            (951_782_400, "2000-02-29T00:00:00.000Z"),
            (951_868_800, "2000-03-01T00:00:00.000Z"),
            (1_709_164_800, "2024-02-29T00:00:00.000Z"),
            (1_735_689_599, "2024-12-31T23:59:59.000Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000Z"),
        ];
        for (seconds, expect) in cases {
            assert_eq!(utc(Duration::from_secs(seconds)), expect);
        }
    }
}
