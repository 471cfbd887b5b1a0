//! `datapump measure codec`: how fast this host compresses, and on which links it pays off.

use std::ffi::{OsStr, OsString};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Instant;

use super::console::Console;
use super::endpoint::{EndArg, Role};
use super::options::{copying, measuring};
use super::order::Show;
use super::record::{self, Recording};
use super::signals;
use super::typed::Typed;
use crate::host::environment;
use crate::measure::codec::{self, Plan};
use analysis::report::codecs::{self, Host};
use analysis::report::json::{self, Event};
use analysis::report::sheet::Form;
use analysis::study::compression;
use base::codec::Coding;
use base::fault::{Class, Fault};
use base::job::Location;
use base::settings::Settings;
use base::units::Nanos;
use mover::pump::watch::Watch;

#[derive(Debug)]
pub(crate) struct CodecArgs {
    /// Files or generators, each with its name as typed.
    sources: Vec<(String, Location)>,
    thorough: bool,
    /// Of each source; `None` for the default.
    bytes_max: Option<u64>,
    show: Show,
    recording: Recording,
}

impl CodecArgs {
    pub(super) fn of(typed: &Typed) -> Result<CodecArgs, String> {
        let seed = typed.value_or_default(&copying::SEED)?;
        Ok(CodecArgs {
            sources: sources(&typed.words("FILE"), seed)?,
            thorough: typed.has(&measuring::THOROUGH),
            bytes_max: typed.value(&measuring::BYTES)?.flatten(),
            show: Show::of(typed)?,
            recording: Recording::of(typed)?,
        })
    }
}

pub(super) fn run(args: &CodecArgs, started: Instant) -> u8 {
    let console = Console::new(args.show, started);
    let words = args.sources.iter().map(|(name, _)| name.clone()).collect();
    console.event(&super::start("measure", words, None, None));
    let (notices, _) = channel();
    let watch = Arc::new(Watch::new(notices));
    if let Err(why) = signals::install(&watch) {
        console.warning(&format!("Ctrl-C ends the program at once: {why}"));
    }
    let result = measure(args, &console, &watch);
    console.clear();
    let (class, text) = match result {
        Ok(()) => (None, None),
        Err(_) if watch.stopping() => (Some(Class::Interrupted), Some("stopped".to_string())),
        Err(fault) => (Some(fault.class), Some(fault.text)),
    };
    if let Some(text) = &text {
        console.error(text);
    }
    let end = json::end(class, text);
    let code = end.exit_code;
    console.event(&Event::End(Box::new(end)));
    code
}

/// If nothing is typed, one source of each kind.
fn sources(what: &[OsString], seed: u64) -> Result<Vec<(String, Location)>, String> {
    let usual: Vec<OsString> = USUAL.iter().map(OsString::from).collect();
    let words = if what.is_empty() { &usual[..] } else { what };
    words.iter().map(|word| source(word, seed)).collect()
}

fn source(word: &OsStr, seed: u64) -> Result<(String, Location), String> {
    let name = word.to_string_lossy().into_owned();
    match EndArg::parse(word, Role::Source, seed)? {
        EndArg { host: Some(_), .. } => Err(format!(
            "'{name}': what compression costs is measured on this host: name a file here"
        )),
        EndArg { location: Location::Stdio, .. } => {
            Err("'-' cannot be measured: name a file".into())
        }
        EndArg { location, host: None, .. } => Ok((name, location)),
    }
}

fn measure(args: &CodecArgs, console: &Console, watch: &Watch) -> Result<(), Fault> {
    let (codings, each) = match args.thorough {
        true => (THOROUGH.to_vec(), Nanos::from_millis(2000)),
        false => (QUICK.to_vec(), Nanos::from_millis(300)),
    };
    let plan = Plan {
        codings,
        payload_bytes: Settings::default().request_bytes,
        each,
        bytes_max: args.bytes_max.unwrap_or(BYTES_MAX),
    };
    let host = Host {
        processors: std::thread::available_parallelism().map_or(1, |count| count.get()),
        mhz: environment::here().facts.get("mhz").and_then(|mhz| mhz.parse().ok()),
    };
    for (name, location) in &args.sources {
        console.draw(format!("compressing {name}"));
        let findings = codec::study(name, location, &plan, watch)?;
        console.clear();
        console.summary(&codecs::sheet(&findings, host).write(Form::Text));
        record::keep_measured(console, &args.recording, |started_unix_s, environment| {
            compression::records(&findings, started_unix_s, environment)
        });
        console.event(&Event::Codec(Box::new(findings)));
    }
    console.summary(&format!("{}\n", codecs::legend(host).join("\n")));
    Ok(())
}

const USUAL: &[&str] = &["records:16M", "text:16M", "random:16M", "zero:16M"];
/// Only the first bytes of a larger file are measured.
const BYTES_MAX: u64 = 64 << 20;
const QUICK: &[Coding] = &[
    Coding::Lz4,
    Coding::Zlib(1),
    Coding::Zlib(6),
    Coding::Zlib(9),
    Coding::Zstd(-5),
    Coding::Zstd(-1),
    Coding::Zstd(1),
    Coding::Zstd(3),
    Coding::Zstd(6),
    Coding::Zstd(9),
];
const THOROUGH: &[Coding] = &[
    Coding::Lz4,
    Coding::Zlib(1),
    Coding::Zlib(2),
    Coding::Zlib(3),
    Coding::Zlib(4),
    Coding::Zlib(5),
    Coding::Zlib(6),
    Coding::Zlib(7),
    Coding::Zlib(8),
    Coding::Zlib(9),
    Coding::Zstd(-5),
    Coding::Zstd(-3),
    Coding::Zstd(-1),
    Coding::Zstd(1),
    Coding::Zstd(2),
    Coding::Zstd(3),
    Coding::Zstd(4),
    Coding::Zstd(6),
    Coding::Zstd(9),
    Coding::Zstd(12),
    Coding::Zstd(15),
    Coding::Zstd(19),
];
