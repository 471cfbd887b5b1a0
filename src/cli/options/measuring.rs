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
    help: "Request sizes that are measured",
    more: "16K..1M doubles from one to the other; 16K,96K are just these.",
    group: Group::Measuring,
    commands: PARTS,
};

pub(crate) static DEPTHS: CliOption<Vec<u16>> = CliOption {
    name: "depths",
    letter: None,
    value: "LIST",
    kind: Kind::List(Limits::DEPTH, Range::Each, |list| narrowed(&list)),
    default: "",
    help: "Request depths that are measured, of both ends [default: 1]",
    more: "1..4 are 1, 2, 3 and 4. The end that is a connection has one request in the air: \
           its depth is the buffers behind it.",
    group: Group::Measuring,
    commands: PARTS,
};

pub(crate) static BYTES: CliOption<Option<u64>> = CliOption {
    name: "bytes",
    letter: None,
    value: "SIZE",
    kind: Kind::NumberOr("auto", Limits::bytes(4096, 1 << 50), |n| n),
    default: "auto",
    help: "How much each run moves",
    more: "auto sizes each run to take a second or more. null to null counts requests anyway.",
    group: Group::Measuring,
    commands: MEASURED,
};

pub(crate) static REPEAT: CliOption<u32> = CliOption {
    name: "repeat",
    letter: None,
    value: "N",
    kind: Kind::Number(Limits::count(1, 1000), |n| n as u32),
    default: "",
    help: "How often each combination is run [default: 5]",
    more: "One repeat is a pass through all combinations, so that a slow minute of the machine \
           hits none of them more than the others.",
    group: Group::Measuring,
    commands: PARTS,
};

pub(crate) static ORDER: CliOption<Order> = CliOption {
    name: "order",
    letter: None,
    value: "HOW",
    kind: Kind::Choice(Order::NAMES, |i| Order::ALL[i]),
    default: "random",
    help: "In which order combinations are run",
    more: "random mixes every pass by --seed.",
    group: Group::Measuring,
    commands: PARTS,
};

pub(crate) static SOAK: CliOption<Soak> = CliOption {
    name: "soak",
    letter: None,
    value: "CPUS",
    kind: Kind::Choice(Soak::NAMES, |i| Soak::ALL[i]),
    default: "all",
    help: "On which CPUs a soaker counts the time that is left",
    more: "Each combination is run without the soaker for its bandwidth and beside it for its \
           CPU time. A soaker is a thread of the lowest priority on each CPU; some are half of \
           them. With none, idle time is what the kernel says it is.",
    group: Group::Measuring,
    commands: PARTS,
};

pub(crate) static CACHE: CliOption<Cache> = CliOption {
    name: "cache",
    letter: None,
    value: "HOW",
    kind: Kind::Choice(Cache::NAMES, |i| Cache::ALL[i]),
    default: "bypass",
    help: "How the page cache stands to the files",
    more: "bypass is direct I/O; with warm all that is read is in it, with cold nothing.",
    group: Group::Measuring,
    commands: PARTS,
};

pub(crate) static FILE: CliOption<PathBuf> = CliOption {
    name: "file",
    letter: None,
    value: "PATH",
    kind: Kind::Path(|path| path),
    default: "",
    help: "The folder where files are made, or a file to read [default: this folder]",
    more: "What is made is removed at the end. A file that is named is only read.",
    group: Group::Measuring,
    commands: PLACED,
};

pub(crate) static SINK_FOLDER: CliOption<PathBuf> = CliOption {
    name: "sink-folder",
    letter: None,
    value: "PATH",
    kind: Kind::Path(|path| path),
    default: "",
    help: "The folder where files are written, if it is another than --file's",
    more: "With a disk of its own for each end, neither spares the other anything. Whole \
           copies stay between --file and memory.",
    group: Group::Measuring,
    commands: PARTS,
};

pub(crate) static TARGET: CliOption<Option<Rate>> = CliOption {
    name: "target",
    letter: None,
    value: "RATE",
    kind: Kind::RateOr("interface", |rate| rate),
    default: "interface",
    help: "The rate that copies are to reach",
    more: "interface is that of the slower interface, or 1 Gbit where none tells its speed.",
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
    more: "Without it the other end is another process on this host.",
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
    more: "Parts at depths 1 to 4, ten times each, where it is said first how long that takes; \
           compression at every level, two seconds each.",
    group: Group::Measuring,
    commands: MEASURED,
};
