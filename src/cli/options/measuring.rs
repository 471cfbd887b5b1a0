//! The options of measuring.

use std::path::PathBuf;

use super::kind::{Kind, Limits, Range};
use super::{AnyOption, CliOption, Group, narrowed};
use crate::cli::command_id::CommandId;
use crate::measure::rig::Cache;
use analysis::study::experiment::{Order, Soak};
use base::units::Rate;

const PARTS: &[CommandId] = &[CommandId::Measure];
const MEASURED: &[CommandId] = &[CommandId::Measure, CommandId::MeasureCodec];
const PLACED: &[CommandId] = &[CommandId::Measure, CommandId::Doctor];
const DOCTOR: &[CommandId] = &[CommandId::Doctor];

/// In the order of `--help`.
pub(crate) const TABLE: &[&dyn AnyOption] = &[
    &REQUEST_SIZES,
    &DEPTHS,
    &BYTES,
    &REPEAT,
    &ORDER,
    &SOAK,
    &CACHE,
    &FILE,
    &SINK_FOLDER,
    &TARGET,
    &ON,
    &THOROUGH,
];

pub(crate) static REQUEST_SIZES: CliOption<Vec<u32>> = CliOption {
    name: "request-sizes",
    letter: None,
    value: "LIST",
    kind: Kind::List(Limits::REQUEST_BYTES, Range::Doubling, |list| narrowed(&list)),
    default: "16K..1M",
    help: "Request sizes to measure",
    more: "16K..1M doubles from 16K to 1M; 16K,96K are just these two. Of a store one size, from \
           5M on; not given, what a copy has.",
    group: Group::Measuring,
    commands: PARTS,
};

pub(crate) static DEPTHS: CliOption<Vec<u16>> = CliOption {
    name: "depths",
    letter: None,
    value: "LIST",
    kind: Kind::List(Limits::DEPTH, Range::Each, |list| narrowed(&list)),
    default: "",
    help: "Request depths to measure, at both ends [default: 1]",
    more: "1..4 are 1, 2, 3 and 4. An end that is a connection has one request in flight: its \
           depth is its number of buffers. Of a store one depth; not given, what a copy has.",
    group: Group::Measuring,
    commands: PARTS,
};

pub(crate) static BYTES: CliOption<Option<u64>> = CliOption {
    name: "bytes",
    letter: None,
    value: "SIZE",
    kind: Kind::NumberOr("auto", Limits::bytes(4096, 1 << 50), |n| n),
    default: "auto",
    help: "How many bytes each run moves",
    more: "auto: enough for a run of one second or more. Runs from null to null are always \
           sized so.",
    group: Group::Measuring,
    commands: MEASURED,
};

pub(crate) static REPEAT: CliOption<u32> = CliOption {
    name: "repeat",
    letter: None,
    value: "N",
    kind: Kind::Number(Limits::count(1, 1000), |n| n as u32),
    default: "",
    help: "How many times each combination is run [default: 5]",
    more: "One repeat is a pass through all combinations, so that a slow minute of the host \
           affects all of them alike. A store is measured 3 times by default, with an object of \
           512M.",
    group: Group::Measuring,
    commands: PARTS,
};

pub(crate) static ORDER: CliOption<Order> = CliOption {
    name: "order",
    letter: None,
    value: "HOW",
    kind: Kind::Choice(Order::NAMES, |i| Order::ALL[i]),
    default: "random",
    help: "The order of the combinations",
    more: "random shuffles each pass with --seed.",
    group: Group::Measuring,
    commands: PARTS,
};

pub(crate) static SOAK: CliOption<Soak> = CliOption {
    name: "soak",
    letter: None,
    value: "CPUS",
    kind: Kind::Choice(Soak::NAMES, |i| Soak::ALL[i]),
    default: "all",
    help: "CPUs on which a soaker counts idle time",
    more: "Each combination is run without a soaker to measure its bandwidth, and beside one \
           to measure its CPU time. A soaker is a thread of the lowest priority on each CPU; \
           some: on half of the CPUs. With none, idle time is what the kernel reports.",
    group: Group::Measuring,
    commands: PARTS,
};

pub(crate) static CACHE: CliOption<Cache> = CliOption {
    name: "cache",
    letter: None,
    value: "HOW",
    kind: Kind::Choice(Cache::NAMES, |i| Cache::ALL[i]),
    default: "bypass",
    help: "How the files use the page cache",
    more: "bypass: direct I/O; warm: all data is cached; cold: no data is cached.",
    group: Group::Measuring,
    commands: PARTS,
};

pub(crate) static FILE: CliOption<PathBuf> = CliOption {
    name: "file",
    letter: None,
    value: "PATH",
    kind: Kind::Path(|path| path),
    default: "",
    help: "The folder for test files, or a file to read [default: this folder]",
    more: "Test files are removed at the end. A file that is named is only read.",
    group: Group::Measuring,
    commands: PLACED,
};

pub(crate) static SINK_FOLDER: CliOption<PathBuf> = CliOption {
    name: "sink-folder",
    letter: None,
    value: "PATH",
    kind: Kind::Path(|path| path),
    default: "",
    help: "The folder for files that are written, if it is not that of --file",
    more: "If each end has its own disk, the ends do not share wake-ups. Whole copies stay \
           between --file and memory.",
    group: Group::Measuring,
    commands: PARTS,
};

pub(crate) static TARGET: CliOption<Option<Rate>> = CliOption {
    name: "target",
    letter: None,
    value: "RATE",
    kind: Kind::RateOr("interface", |rate| rate),
    default: "interface",
    help: "Target rate of copies",
    more: "interface: the rate of the slower interface, or 1 Gbit if no interface reports its \
           speed.",
    group: Group::Measuring,
    commands: DOCTOR,
};

pub(crate) static ON: CliOption<String> = CliOption {
    name: "on",
    letter: None,
    value: "HOST[:FOLDER]",
    kind: Kind::Text(|text| text),
    default: "",
    help: "Another host as the other end of the network, reached by ssh",
    more: "Without it, the other end is another process on this host.",
    group: Group::Measuring,
    commands: PARTS,
};

pub(crate) static THOROUGH: CliOption<bool> = CliOption {
    name: "thorough",
    letter: None,
    value: "",
    kind: Kind::Flag(|| true),
    default: "",
    help: "Measure more, which takes longer",
    more: "Parts at depths 1 to 4, ten times each, after a line with the estimated duration; \
           compression at every level, two seconds each.",
    group: Group::Measuring,
    commands: MEASURED,
};
