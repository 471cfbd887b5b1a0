//! The options of a campaign. Its axes are lists of values of options of `copy`.

use std::path::PathBuf;

use super::kind::{Kind, Limits, Range, SIZE_MAX};
use super::{AnyOption, CliOption, Group, moving, narrowed};
use crate::cli::command_id::CommandId;
use crate::telemetry::alarm::{self, Receiver};
use analysis::study::experiment::Order;
use base::codec::Compress;
use base::limits;
use base::settings::DataSet;
use base::units::Nanos;

const SWEEP: &[CommandId] = &[CommandId::Sweep];

/// Grids of earlier studies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Preset {
    Slac,
}

impl Preset {
    pub(crate) const NAMES: &[&str] = &["slac"];
    pub(crate) const ALL: &[Preset] = &[Preset::Slac];
}

/// The axes of a campaign, each with the option of `copy` that its cells vary.
pub(crate) const AXES: &[(&dyn AnyOption, &dyn AnyOption)] = &[
    (&WINDOWS, &moving::WINDOW),
    (&STREAMS, &moving::STREAMS),
    (&LEVELS, &moving::COMPRESS),
    (&REQUEST_SIZES, &moving::REQUEST_SIZE),
    (&DEPTHS, &moving::DEPTH_SINK),
];

/// In the order of `--help`.
pub(crate) const TABLE: &[&dyn AnyOption] = &[
    &HOSTS,
    &PRESET,
    &WINDOWS,
    &STREAMS,
    &LEVELS,
    &REQUEST_SIZES,
    &DEPTHS,
    &TIME,
    &SIZES,
    &DURATIONS,
    &REPEAT,
    &ORDER,
    &DATA,
    &REQUEST_SIZE,
    &RESUME,
    &EVERY,
    &THIN,
    &KEEP,
    &ALARM,
    &UNITS,
];

pub(crate) static HOSTS: CliOption<PathBuf> = CliOption {
    name: "hosts",
    letter: None,
    value: "FILE",
    kind: Kind::Path(|path| path),
    default: "",
    help: "File with the hosts to measure, one per line: [USER@]HOST[:FOLDER]",
    more: "Text after a # is a comment. With a FOLDER, the data is written to a file there, \
           which is removed after the cell; without one the data is discarded.",
    group: Group::Sweeping,
    commands: SWEEP,
};

pub(crate) static PRESET: CliOption<Preset> = CliOption {
    name: "preset",
    letter: None,
    value: "NAME",
    kind: Kind::Choice(Preset::NAMES, |i| Preset::ALL[i]),
    default: "",
    help: "Lists and order of an earlier study",
    more: "slac is the order of SLAC's measurements of 2001: windows \
           8,1024,16,512,32,256,128,64 KB, streams 1,20,5,12,8,10,4,25,11,3,7,40,15,9,2,30,6, \
           levels 0 5 1 7 3 9 2 4, ten seconds each. A list on the command line replaces that \
           of the preset.",
    group: Group::Sweeping,
    commands: SWEEP,
};

pub(crate) static WINDOWS: CliOption<Vec<Option<u32>>> = CliOption {
    name: "windows",
    letter: Some('w'),
    value: "LIST",
    kind: Kind::Parsed(WINDOWS_PHRASE, windows),
    default: "",
    help: "TCP windows of each stream to try [default: 64K,256K,1M,auto]",
    more: "auto leaves the window to TCP.",
    group: Group::Sweeping,
    commands: SWEEP,
};

pub(crate) static STREAMS: CliOption<Vec<u16>> = CliOption {
    name: "streams",
    letter: Some('s'),
    value: "LIST",
    kind: Kind::List(Limits::STREAMS, Range::Each, |list| narrowed(&list)),
    default: "",
    help: "Numbers of streams to try [default: 1,4,8,16]",
    more: "",
    group: Group::Sweeping,
    commands: SWEEP,
};

pub(crate) static LEVELS: CliOption<Vec<Compress>> = CliOption {
    name: "levels",
    letter: None,
    value: "LIST",
    kind: Kind::Parsed(LEVELS_PHRASE, levels),
    default: "",
    help: "Compression levels to try [default: 0]",
    more: "A number is a level of zlib; 0 is no compression. What a level gains depends on the \
           data: see --data.",
    group: Group::Sweeping,
    commands: SWEEP,
};

pub(crate) static REQUEST_SIZES: CliOption<Vec<u32>> = CliOption {
    name: "request-sizes",
    letter: None,
    value: "LIST",
    kind: Kind::List(Limits::REQUEST_BYTES, Range::Each, |list| narrowed(&list)),
    default: "",
    help: "At a store: sizes of requests to try, parts of an object [default: 5M,8M,16M]",
    more: "From 5M on: no part but the last has less.",
    group: Group::Sweeping,
    commands: SWEEP,
};

pub(crate) static DEPTHS: CliOption<Vec<u16>> = CliOption {
    name: "depths",
    letter: None,
    value: "LIST",
    kind: Kind::List(Limits::count(1, limits::DEPTH_MAX as u64), Range::Each, |list| {
        narrowed(&list)
    }),
    default: "",
    help: "At a store: numbers of requests under way at each of 4 streams to try [default: 2,4,8]",
    more: "What is read from the store is read with that --depth-source.",
    group: Group::Sweeping,
    commands: SWEEP,
};

pub(crate) static TIME: CliOption<Nanos> = CliOption {
    name: "time",
    letter: Some('t'),
    value: "SECONDS",
    kind: Kind::Seconds(|time| time),
    default: "",
    help: "Duration of each copy [default: 10]",
    more: "Requests in flight at the end are still sent.",
    group: Group::Sweeping,
    commands: SWEEP,
};

pub(crate) static SIZES: CliOption<Vec<u64>> = CliOption {
    name: "sizes",
    letter: None,
    value: "LIST",
    kind: Kind::List(Limits::bytes(1, SIZE_MAX), Range::Doubling, |list| list),
    default: "",
    help: "Copy these sizes instead, to find from which size the rate stops growing",
    more: "1M..256M doubles from 1M to 256M. Nine passes are recommended. Objects of a store have \
           512M unless this says another size.",
    group: Group::Sweeping,
    commands: SWEEP,
};

pub(crate) static DURATIONS: CliOption<Vec<Nanos>> = CliOption {
    name: "durations",
    letter: None,
    value: "LIST",
    kind: Kind::Parsed(DURATIONS_PHRASE, durations),
    default: "",
    help: "Copy for each of these times, to find how long a copy must run to measure the rate",
    more: "",
    group: Group::Sweeping,
    commands: SWEEP,
};

pub(crate) static REPEAT: CliOption<u32> = CliOption {
    name: "repeat",
    letter: None,
    value: "N",
    kind: Kind::Number(Limits::count(1, 1000), |n| n as u32),
    default: "",
    help: "Number of passes through all cells [default: 3, with a preset 1]",
    more: "",
    group: Group::Sweeping,
    commands: SWEEP,
};

pub(crate) static ORDER: CliOption<Order> = CliOption {
    name: "order",
    letter: None,
    value: "HOW",
    kind: Kind::Choice(Order::NAMES, |i| Order::ALL[i]),
    default: "",
    help: "The order of the cells [default: random, with a preset given]",
    more: "random shuffles each pass with --seed, over all hosts. given takes one host after \
           the other, and the lists in the order of the command line.",
    group: Group::Sweeping,
    commands: SWEEP,
};

pub(crate) static DATA: CliOption<DataSet> = CliOption {
    name: "data",
    letter: None,
    value: "KIND",
    kind: Kind::Choice(DataSet::NAMES, |i| DataSet::ALL[i]),
    default: "records",
    help: "Kind of the synthetic data: it matters for compression only",
    more: "It is generated from --seed, as with records:SIZE and the like of copy.",
    group: Group::Sweeping,
    commands: SWEEP,
};

pub(crate) static REQUEST_SIZE: CliOption<u32> = CliOption {
    name: "request-size",
    letter: None,
    value: "SIZE",
    kind: Kind::Number(Limits::REQUEST_BYTES, |n| n as u32),
    default: "",
    help: "Bytes that one request moves [default: 64K]",
    more: "Requests in flight at the end are still sent: small ones take less time, which \
           matters if windows are small and round trips long.",
    group: Group::Sweeping,
    commands: SWEEP,
};

pub(crate) static RESUME: CliOption<bool> = CliOption {
    name: "resume",
    letter: None,
    value: "",
    kind: Kind::Flag(|| true),
    default: "",
    help: "Resume an interrupted campaign: sweep --resume [CAMPAIGN]",
    more: "It runs with its original options; cells that are measured are not measured again.",
    group: Group::Sweeping,
    commands: SWEEP,
};

pub(crate) static EVERY: CliOption<Nanos> = CliOption {
    name: "every",
    letter: None,
    value: "TIME",
    kind: Kind::Parsed(PERIOD_PHRASE, period),
    default: "",
    help: "Measure a whole campaign again and again, each beginning so long after the last began",
    more: "It ends with Ctrl-C or SIGTERM. A campaign that takes longer is followed at once. \
           'sweep install --hosts FILE --every 6h' writes units for systemd instead, which do \
           the same.",
    group: Group::Sweeping,
    commands: SWEEP,
};

pub(crate) static THIN: CliOption<Nanos> = CliOption {
    name: "thin",
    letter: None,
    value: "TIME",
    kind: Kind::Parsed(PERIOD_PHRASE, period),
    default: "",
    help: "Afterwards thin regular campaigns that are older than this",
    more: "Of each day one is left, without the samples of its streams. Regular campaigns are \
           those that were begun with --every, --thin, --keep or --alarm; others are never \
           touched.",
    group: Group::Sweeping,
    commands: SWEEP,
};

pub(crate) static KEEP: CliOption<Nanos> = CliOption {
    name: "keep",
    letter: None,
    value: "TIME",
    kind: Kind::Parsed(PERIOD_PHRASE, period),
    default: "",
    help: "Afterwards remove regular campaigns that are older than this",
    more: "By default, all are kept.",
    group: Group::Sweeping,
    commands: SWEEP,
};

pub(crate) static ALARM: CliOption<Receiver> = CliOption {
    name: "alarm",
    letter: None,
    value: "WHO",
    kind: Kind::Parsed(alarm::PHRASE, Receiver::of),
    default: "",
    help: "Tell this command or webhook when the rate of a host has changed",
    more: "After each campaign its medians are compared with those of the campaigns before: four \
           that differ by more than chance and by 15 % or more are told, once. A command gets \
           the evidence as JSON on standard input, and a sentence in $DATAPUMP_ALARM; a webhook \
           gets the JSON by POST.",
    group: Group::Sweeping,
    commands: SWEEP,
};

pub(crate) static UNITS: CliOption<PathBuf> = CliOption {
    name: "units",
    letter: None,
    value: "DIR",
    kind: Kind::Path(|path| path),
    default: "",
    help: "With sweep install: the folder for the units of systemd",
    more: "By default /etc/systemd/system for root, for others systemd/user in \
           $XDG_CONFIG_HOME or ~/.config.",
    group: Group::Sweeping,
    commands: SWEEP,
};

/// A list between commas; each value is one of the option that the axis varies.
fn each<T>(text: &str, read: impl Fn(&str) -> Option<T>, phrase: &str) -> Result<Vec<T>, String> {
    let all: Option<Vec<T>> = text.split(',').map(|word| read(word.trim())).collect();
    all.ok_or_else(|| format!("write {phrase}"))
}

fn windows(text: &str) -> Result<Vec<Option<u32>>, String> {
    each(text, |word| moving::WINDOW.kind.read_text(word).ok(), WINDOWS_PHRASE)
}

/// As SLAC wrote the levels, or in the words of `copy --compress`.
fn levels(text: &str) -> Result<Vec<Compress>, String> {
    let level = |word: &str| match word.parse::<u8>() {
        Ok(level) => moving::COMPRESS.kind.read_text(&format!("zlib:{level}")).ok(),
        Err(_) => moving::COMPRESS.kind.read_text(word).ok(),
    };
    each(text, level, LEVELS_PHRASE)
}

fn durations(text: &str) -> Result<Vec<Nanos>, String> {
    each(text, |word| TIME.kind.read_text(word).ok(), DURATIONS_PHRASE)
}

/// `90s`, `30m`, `6h`, `400d`.
fn period(text: &str) -> Result<Nanos, String> {
    let units = [('s', 1), ('m', 60), ('h', 3600), ('d', 86_400)];
    let read = |(unit, seconds): (char, u64)| {
        let number: u64 = text.strip_suffix(unit)?.parse().ok()?;
        Some(number.saturating_mul(seconds))
            .filter(|seconds| (1..=PERIOD_SECONDS_MAX).contains(seconds))
    };
    let seconds = units.into_iter().find_map(read);
    seconds
        .map(|seconds| Nanos(seconds * 1_000_000_000))
        .ok_or_else(|| format!("write {PERIOD_PHRASE}"))
}

const PERIOD_PHRASE: &str = "a time such as 30m, 6h or 400d, from 1s to 36500d";
const PERIOD_SECONDS_MAX: u64 = 36_500 * 86_400;
const WINDOWS_PHRASE: &str = "sizes such as 64K,1M, each from 4K to 1G; auto is allowed too";
const LEVELS_PHRASE: &str = "levels such as 0,1,9 (of zlib), or as for copy --compress: zstd:3";
const DURATIONS_PHRASE: &str = "times such as 2,5,10: each seconds from 0.1 to 3600";
