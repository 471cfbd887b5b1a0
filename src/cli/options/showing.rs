//! The options that say what is shown.

use std::path::PathBuf;

use super::kind::Kind;
use super::{AnyOption, COPY, CliOption, Group, MOVING};
use crate::cli::command_id::CommandId;
use crate::telemetry::{self, Destination};
use base::units::Nanos;

const TIMED: &[CommandId] = &[CommandId::Copy, CommandId::Demo, CommandId::Verify];
const TOLD: &[CommandId] = &[
    CommandId::Copy,
    CommandId::Demo,
    CommandId::Verify,
    CommandId::Compare,
    CommandId::Ls,
    CommandId::Clean,
    CommandId::Queue,
    CommandId::Limit,
    CommandId::Measure,
    CommandId::MeasureCodec,
    CommandId::NetTest,
    CommandId::ModelFit,
    CommandId::ModelShow,
    CommandId::ModelPredict,
    CommandId::Explain,
    CommandId::Doctor,
    CommandId::Sweep,
    CommandId::SweepShow,
    CommandId::Spread,
    CommandId::SpreadStatus,
    CommandId::SpreadResume,
    CommandId::SpreadCancel,
    CommandId::SpreadReport,
    CommandId::ConfigShow,
];
const QUIET_TOO: &[CommandId] = &[
    CommandId::Copy,
    CommandId::Demo,
    CommandId::Verify,
    CommandId::Compare,
    CommandId::Ls,
    CommandId::Clean,
    CommandId::Measure,
    CommandId::MeasureCodec,
    CommandId::NetTest,
    CommandId::ModelPredict,
    CommandId::Explain,
    CommandId::Doctor,
    CommandId::Sweep,
    CommandId::SweepProfile,
    CommandId::Spread,
    CommandId::SpreadResume,
];
const NAMING: &[CommandId] = &[CommandId::Copy, CommandId::Demo, CommandId::Verify];
const WATCHED: &[CommandId] =
    &[CommandId::Copy, CommandId::Sweep, CommandId::Spread, CommandId::SpreadResume];
const WITH_A_PAGE: &[CommandId] =
    &[CommandId::Copy, CommandId::Sweep, CommandId::Spread, CommandId::SpreadResume];
const EXPLAINED: &[CommandId] = &[CommandId::Copy, CommandId::Demo, CommandId::NetTest];

/// In the order of `--help`.
pub(crate) const TABLE: &[&dyn AnyOption] =
    &[&INTERVAL, &JSON, &QUIET, &VERBOSE, &SUMS, &STATS, &LOG, &EXPLAIN, &METRICS, &LIVE];

pub(crate) static INTERVAL: CliOption<Nanos> = CliOption {
    name: "interval",
    letter: None,
    value: "SECONDS",
    kind: Kind::Seconds(|time| time),
    default: "",
    help: "Print a line with the rate of every interval",
    more: "On a terminal the lines are printed above the progress line. Without this option \
           and without a terminal, a line is printed every 10 seconds.",
    group: Group::Showing,
    commands: TIMED,
};

pub(crate) static JSON: CliOption<bool> = CliOption {
    name: "json",
    letter: None,
    value: "",
    kind: Kind::Flag(|| true),
    default: "",
    help: "Print one JSON object per line instead of text",
    more: "Events of a copy are start, progress, file, warning, verdict and end. A net test has an \
           interval for each, measure and sweep a run for each. end is always printed, also on \
           failure. They go to standard output, or to standard error if '-' is the destination.",
    group: Group::Showing,
    commands: TOLD,
};

pub(crate) static QUIET: CliOption<bool> = CliOption {
    name: "quiet",
    letter: Some('q'),
    value: "",
    kind: Kind::Flag(|| true),
    default: "",
    help: "Print errors only",
    more: "With --json, the events progress, interval, and file of files without an error are \
           omitted.",
    group: Group::Showing,
    commands: QUIET_TOO,
};

pub(crate) static VERBOSE: CliOption<bool> = CliOption {
    name: "verbose",
    letter: Some('v'),
    value: "",
    kind: Kind::Flag(|| true),
    default: "",
    help: "List each file that is copied, and why",
    more: "One line per file, as rsync itemizes: '<f' is a file that is sent to another host, \
           '>f' one that is received or copied on this host; then its size, why it is copied \
           (new, or in what it differs: kind, size, time, contents, mode, owner; same where it is \
           replaced whatever it is), and its name. A dry run lists the same without this option.",
    group: Group::Showing,
    commands: NAMING,
};

pub(crate) static SUMS: CliOption<bool> = CliOption {
    name: "sums",
    letter: Some('s'),
    value: "",
    kind: Kind::Flag(|| true),
    default: "",
    help: "Add up what is below each folder",
    more: "All that is below is looked at, which takes a while for a large tree; of a store all \
           keys below are listed.",
    group: Group::Showing,
    commands: &[CommandId::Ls],
};

pub(crate) static STATS: CliOption<bool> = CliOption {
    name: "stats",
    letter: None,
    value: "",
    kind: Kind::Flag(|| true),
    default: "",
    help: "Print the figures of the run: path, wire, checks, CPU, engines, request times",
    more: "The same figures are in --json and in 'datapump results show'.",
    group: Group::Showing,
    commands: MOVING,
};

pub(crate) static LOG: CliOption<PathBuf> = CliOption {
    name: "log",
    letter: None,
    value: "FILE",
    kind: Kind::Path(|file| file),
    default: "",
    help: "Append a line to FILE for each file, warning and error, and the summary",
    more: "Each line begins with the time in UTC. It is written with --quiet and --json too.",
    group: Group::Showing,
    commands: COPY,
};

pub(crate) static EXPLAIN: CliOption<bool> = CliOption {
    name: "explain",
    letter: None,
    value: "",
    kind: Kind::Flag(|| true),
    default: "",
    help: "Show why it was not faster, with the evidence, and what to change",
    more: "The summary says it in one sentence. For a recorded run, 'datapump explain' shows \
           the same.",
    group: Group::Showing,
    commands: EXPLAINED,
};

pub(crate) static METRICS: CliOption<Destination> = CliOption {
    name: "metrics",
    letter: None,
    value: "WHERE",
    kind: Kind::Parsed(telemetry::PHRASE, Destination::of),
    default: "",
    help: "Show the state of the run to Prometheus: on this port, or in this file",
    more: "A port is served on this host alone (127.0.0.1) while the program runs; 0.0.0.0:9911 \
           serves others too. A file is for the textfile collector of node_exporter, whose \
           files end in .prom: it is replaced whole, during the run and at its end.",
    group: Group::Showing,
    commands: WATCHED,
};

pub(crate) static LIVE: CliOption<u16> = CliOption {
    name: "live",
    letter: None,
    value: "PORT",
    kind: Kind::Port(|port| port),
    default: "",
    help: "Show the run while it runs, as a page for a browser of this host",
    more: "Its address is printed at the start: of this host alone (127.0.0.1), with a token that \
           only this run has. The page has the charts of 'datapump report', is drawn anew each \
           second, and ends as the page of the whole run. The run waits for no browser; what the \
           page cost is printed at the end.",
    group: Group::Showing,
    commands: WITH_A_PAGE,
};
