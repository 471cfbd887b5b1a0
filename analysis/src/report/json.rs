//! A run as JSON, one object a line: `start`, `progress`, `file`, `warning`, `end`.
//!
//! Every line has `schema`, `event`, `time_utc` and `monotonic_s` (since the start of the
//! program). Numbers are raw, and their names end in their unit. A field is only ever added within
//! a schema; a removed or changed one makes a new schema. `end` is the last line of every run,
//! whatever happened.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use super::compare::{Compared, Difference};
use super::files::Dry;
use super::live::{Meter, Seen, Walk};
use super::nettest::{NetTest, Passed};
use super::utc::utc;
use crate::diagnosis::Verdict;
use crate::diagnosis::store::StoreVerdict;
use crate::doctor::Finding;
use crate::record::export::cpu_ns_per_byte;
use crate::record::options::Options;
use crate::record::sample::{Record, SCHEMA, StreamStep};
use crate::shards::overview::Overview;
use crate::study::compression::Findings;
use base::extra::ExtraSums;
use base::fault::{Class, Fault};
use base::job::{CleanEvent, FileKind, Verified};
use base::listing::{Item, ItemKind};
use base::reason::{Changes, Reason};
use base::units::Nanos;

/// When something happened, on both clocks.
#[derive(Clone, Copy, Debug)]
pub struct Stamp {
    /// Since 1970-01-01T00:00:00Z.
    pub unix: Duration,
    pub since_start: Nanos,
}

/// The content of one line.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    Start(Box<Start>),
    Progress(Progress),
    File(File),
    /// A name that `ls` lists.
    Item(Listed),
    Warning {
        text: String,
    },
    /// The limit of the rate was changed while the copy ran: null for none.
    Limit {
        rate_bytes_per_s: Option<f64>,
    },
    /// The number of streams was changed, or is settled.
    StreamsStep(StreamStep),
    /// Where the page of a run is, while it runs.
    Live {
        address: String,
    },
    /// What that page took. Null where nothing was moved.
    LiveEnded {
        cpu_s: f64,
        cpu_ns_per_byte: Option<f64>,
    },
    /// A run of an experiment.
    Run {
        record: Box<Record>,
    },
    /// Results of compression for one source.
    Codec(Box<Findings>),
    /// The diagnosis of a transfer.
    Verdict(Box<Verdict>),
    /// The diagnosis of a copy from or to an object store.
    StoreVerdict(Box<StoreVerdict>),
    /// A part of a net test, in one direction.
    Interval(Box<Passed>),
    /// The order of the cells of a campaign, from a dry run.
    Order {
        cells: Vec<super::campaign::Row>,
    },
    /// A job over many nodes, as it stands.
    Job(Box<Overview>),
    /// The findings of `doctor`.
    Findings {
        findings: Vec<Finding>,
    },
    End(Box<EndEvent>),
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Start {
    pub version: &'static str,
    pub command: &'static str,
    /// As typed; bytes that are not UTF-8 are replaced.
    pub sources: Vec<String>,
    pub target: Option<String>,
    /// The options of the transfer; null if there is none.
    pub options: Option<Options>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Progress {
    phase: &'static str,
    elapsed_s: f64,
    bytes_done: u64,
    /// Those of them that an earlier run has copied.
    bytes_held: u64,
    /// Null when it cannot be known, as with a pipe.
    bytes_found: Option<u64>,
    files_done: u64,
    files_found: u64,
    /// True when `bytes_found` and `files_found` are final.
    all_found: bool,
    rate_bytes_per_s: f64,
    average_bytes_per_s: f64,
    eta_s: Option<f64>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct File {
    path: String,
    /// Only where the path is not UTF-8: its bytes in hexadecimal.
    #[serde(skip_serializing_if = "Option::is_none")]
    path_hex: Option<String>,
    /// `done`, `failed`, `deleted` or `adjusted` (it stays, with its source's mode and owner), or
    /// after a dry run `would_copy`, `would_delete` or `would_adjust`; of `clean` `removed`,
    /// `would_remove` or `held`; of `compare` `differs`, `only_in_a` or `only_in_b`.
    state: &'static str,
    /// `hard` for another name of a file, `symbolic` for a symbolic link: of neither bytes move.
    #[serde(skip_serializing_if = "Option::is_none")]
    link: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
    /// `new`, or in what it differed from what had its name: `kind`, `size`, `time`, `contents`,
    /// `mode`, `owner`; empty where it was replaced whatever it was.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<Vec<&'static str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    digest: Option<String>,
    /// Digests besides, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    also: BTreeMap<&'static str, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    class: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
}

/// What a folder has, or a store.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Listed {
    path: String,
    /// Only where the path is not UTF-8: its bytes in hexadecimal.
    #[serde(skip_serializing_if = "Option::is_none")]
    path_hex: Option<String>,
    kind: &'static str,
    /// Of a folder the sum of all files below it, with `--sums`.
    bytes: Option<u64>,
    /// How many these are.
    #[serde(skip_serializing_if = "Option::is_none")]
    files: Option<u64>,
    /// Since 1970.
    mtime_s: Option<f64>,
    /// Permission bits, in octal digits.
    mode: Option<String>,
    user: Option<String>,
    group: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    link_target: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EndEvent {
    pub exit_code: u8,
    /// `ok`, or the class of the failure.
    pub class: &'static str,
    /// Null in case of success.
    pub message: Option<String>,
    /// The record of a copy as in the store, without its series and samples; null when the copy did
    /// not run to its end, and after `verify`.
    pub record: Option<Box<Record>>,
    /// CPU time of both sides; null where nothing was moved.
    pub cpu_ns_per_byte: Option<f64>,
    /// Objects that were not copied, the first thousand; `failed_count` counts all.
    pub failed: Vec<File>,
    pub failed_count: u64,
    /// The result; null unless `verify` ran to its end.
    pub verified: Option<Found>,
    /// The result of `compare`; only present after one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compared: Option<Compared>,
    /// The result of a net test; only present after one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub net_test: Option<Box<NetTest>>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Found {
    files: u64,
    bytes: u64,
    differing: u64,
    missing: u64,
    unreadable: u64,
    /// Which kinds of digests files had.
    digests: Vec<&'static str>,
    elapsed_s: f64,
}

/// The event as a line of text, without its newline.
pub fn line(stamp: Stamp, event: &Event) -> String {
    #[derive(Serialize)]
    struct Line<'a> {
        schema: u32,
        time_utc: String,
        monotonic_s: f64,
        #[serde(flatten)]
        event: &'a Event,
    }
    let line = Line {
        schema: SCHEMA,
        time_utc: utc(stamp.unix),
        monotonic_s: stamp.since_start.seconds(),
        event,
    };
    // Strings and numbers can always be serialized; if not, the line would still be JSON.
    serde_json::to_string(&line).unwrap_or_else(|why| {
        format!("{{\"schema\":{SCHEMA},\"event\":\"error\",\"text\":\"{why:?}\"}}")
    })
}

pub fn progress(seen: &Seen, meter: &Meter) -> Event {
    Event::Progress(Progress {
        phase: seen.phase().name(),
        elapsed_s: seen.at.seconds(),
        bytes_done: seen.bytes_done,
        bytes_held: seen.bytes_held,
        bytes_found: (seen.walk != Walk::Endless).then_some(seen.bytes_found),
        files_done: seen.files_done,
        files_found: seen.files_found,
        all_found: seen.walk == Walk::Done,
        rate_bytes_per_s: meter.now().bytes_per_second,
        average_bytes_per_s: seen.average().bytes_per_second,
        eta_s: meter.left(seen).map(Nanos::seconds),
    })
}

pub fn file_done(
    (path, kind, bytes, reason): (&[u8], FileKind, u64, Option<Reason>),
    digest: Option<&str>,
    also: &ExtraSums,
) -> Event {
    let digest = digest.map(String::from);
    let also = also.hex().into_iter().map(|(kind, hex)| (kind.name(), hex)).collect();
    let reason = reason.map(Reason::words);
    Event::File(File { digest, also, reason, ..sized(path, kind, bytes, "done") })
}

/// A file that a dry run would copy.
pub fn would_copy(path: &[u8], kind: FileKind, bytes: u64, reason: Reason) -> Event {
    let reason = Some(reason.words());
    Event::File(File { reason, ..sized(path, kind, bytes, "would_copy") })
}

/// A file that stays, with its source's mode and owner.
pub fn adjusted(path: &[u8], changes: Changes, dry: Dry) -> Event {
    let state = if dry == Dry::Yes { "would_adjust" } else { "adjusted" };
    let reason = Some(Reason::Changed(changes).words());
    Event::File(File { reason, ..file(path, state) })
}

fn sized(path: &[u8], kind: FileKind, bytes: u64, state: &'static str) -> File {
    let link = match kind {
        FileKind::File => None,
        FileKind::HardLink => Some("hard"),
        FileKind::SymbolicLink => Some("symbolic"),
    };
    File { link, bytes: Some(bytes), ..file(path, state) }
}

/// A name of which two trees differ.
pub fn difference(path: &[u8], difference: Difference) -> Event {
    let reason = match difference {
        Difference::Differs(changes) => Some(Reason::Changed(changes).words()),
        Difference::OnlyInA | Difference::OnlyInB => None,
    };
    Event::File(File { reason, ..file(path, difference.name()) })
}

/// A name that `ls` lists.
pub fn item(item: &Item) -> Event {
    let File { path, path_hex, .. } = file(&item.name, "");
    let link = String::from_utf8_lossy(&item.link_target);
    let (user, group) = item.owner.clone().unzip();
    Event::Item(Listed {
        path,
        path_hex,
        kind: item.kind.name(),
        bytes: item.bytes.or(item.below.map(|below| below.bytes)),
        files: item.below.map(|below| below.files),
        mtime_s: item.mtime.map(|at| at.seconds as f64 + f64::from(at.nanos) / 1e9),
        mode: item.mode.map(|mode| format!("{mode:04o}")),
        user,
        group,
        link_target: (item.kind == ItemKind::Link).then(|| link.into_owned()),
    })
}

/// A name that the source does not have, and that was removed.
pub fn deleted(path: &[u8], dry: Dry) -> Event {
    Event::File(file(path, if dry == Dry::Yes { "would_delete" } else { "deleted" }))
}

/// What `clean` did with one file, or would do in a dry run.
pub fn cleaned(sight: &CleanEvent, dry: Dry) -> Event {
    use std::os::unix::ffi::OsStrExt;
    match sight {
        CleanEvent::Removed { path, bytes } => {
            let state = if dry == Dry::Yes { "would_remove" } else { "removed" };
            let bytes = Some(*bytes);
            Event::File(File { bytes, ..file(path.as_os_str().as_bytes(), state) })
        }
        CleanEvent::Held(path) => Event::File(file(path.as_os_str().as_bytes(), "held")),
        CleanEvent::Young(path) => Event::File(file(path.as_os_str().as_bytes(), "young")),
        CleanEvent::Failed(fault) => file_failed(b"", fault),
    }
}

pub fn file_failed(path: &[u8], fault: &Fault) -> Event {
    Event::File(failure(path, fault))
}

/// One object that was not copied, also for the list at the end.
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
        link: None,
        bytes: None,
        reason: None,
        digest: None,
        also: BTreeMap::new(),
        class: None,
        message: None,
    }
}

/// The end of a run, without any results.
pub fn end(class: Option<Class>, message: Option<String>) -> EndEvent {
    EndEvent {
        exit_code: class.map_or(0, Class::exit_code),
        class: class.map_or("ok", class_name),
        message,
        record: None,
        cpu_ns_per_byte: None,
        failed: Vec::new(),
        failed_count: 0,
        verified: None,
        compared: None,
        net_test: None,
    }
}

/// The end of a copy that ran to its end.
pub fn end_of_copy(class: Option<Class>, record: Record) -> EndEvent {
    let cost = cpu_ns_per_byte(&record);
    let record = Record { series: Vec::new(), paths: Vec::new(), ..record };
    EndEvent { record: Some(Box::new(record)), cpu_ns_per_byte: cost, ..end(class, None) }
}

pub fn found(verified: &Verified, digests: Vec<&'static str>, elapsed: Nanos) -> Found {
    Found {
        digests,
        files: verified.files,
        bytes: verified.bytes,
        differing: verified.differing,
        missing: verified.missing,
        unreadable: verified.unreadable,
        elapsed_s: elapsed.seconds(),
    }
}

/// The name of a class for programs.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::sample::{Moved, SeriesPoint, Side};

    fn check(event: Event, expect: &str) {
        let stamp =
            Stamp { unix: Duration::from_millis(1500), since_start: Nanos::from_millis(250) };
        let front = "{\"schema\":3,\"time_utc\":\"1970-01-01T00:00:01.500Z\",\"monotonic_s\":0.25,";
        let line = line(stamp, &event);
        assert_eq!(line.strip_prefix(front), Some(expect), "{line}");
        assert!(serde_json::from_str::<serde_json::Value>(&line).unwrap().is_object());
    }

    #[test]
    fn lines() {
        check(Event::Warning { text: "a\nb".into() }, r#""event":"warning","text":"a\nb"}"#);
        check(
            file_done(
                (b"a/b", FileKind::File, 3, Some(Reason::New)),
                Some("00ff"),
                &ExtraSums::NONE,
            ),
            "\"event\":\"file\",\"path\":\"a/b\",\"state\":\"done\",\"bytes\":3,\
             \"reason\":[\"new\"],\"digest\":\"00ff\"}",
        );
        check(
            file_done((b"c", FileKind::HardLink, 0, None), Some("00ff"), &ExtraSums::NONE),
            r#""event":"file","path":"c","state":"done","link":"hard","bytes":0,"digest":"00ff"}"#,
        );
        check(
            file_failed(b"\xff", &Fault::new(Class::Local, "cannot open it")),
            "\"event\":\"file\",\"path\":\"\u{fffd}\",\"path_hex\":\"ff\",\"state\":\"failed\",\
             \"class\":\"local\",\"message\":\"cannot open it\"}",
        );
        check(
            Event::End(Box::new(end(Some(Class::NoSpace), Some("no room".into())))),
            "\"event\":\"end\",\"exit_code\":5,\"class\":\"no_space\",\"message\":\"no room\",\
             \"record\":null,\"cpu_ns_per_byte\":null,\"failed\":[],\"failed_count\":0,\
             \"verified\":null}",
        );
        let seen = Seen { at: Nanos::from_millis(2000), bytes_done: 10, ..Seen::default() };
        check(
            progress(&seen, &Meter::default()),
            "\"event\":\"progress\",\"phase\":\"moving\",\"elapsed_s\":2.0,\"bytes_done\":10,\
             \"bytes_held\":0,\"bytes_found\":0,\"files_done\":0,\"files_found\":0,\
             \"all_found\":false,\"rate_bytes_per_s\":0.0,\
             \"average_bytes_per_s\":5.0,\"eta_s\":null}",
        );
    }

    #[test]
    fn the_end_of_a_transfer_has_its_numbers() {
        let source = Side { cpu_user_s: 2e-6, ..Side::default() };
        let moved = Moved { bytes: 1000, ..Moved::default() };
        let series = vec![SeriesPoint::default()];
        let record = Record { id: 3, moved, source, series, ..Record::default() };
        let stamp = Stamp { unix: Duration::ZERO, since_start: Nanos(0) };
        let line = line(stamp, &Event::End(Box::new(end_of_copy(None, record))));
        let value: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!((value["exit_code"].as_u64(), value["class"].as_str()), (Some(0), Some("ok")));
        assert_eq!(value["cpu_ns_per_byte"].as_f64(), Some(2.0));
        let record = &value["record"];
        assert_eq!((record["id"].as_u64(), record["schema"].as_u64()), (Some(3), Some(3)));
        assert_eq!(record["moved"]["bytes"].as_u64(), Some(1000));
        assert!(record.get("series").is_none(), "it may be long");
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
}
