//! The options that say what is shown.

use super::kind::Kind;
use super::{AnyOption, CliOption, Group};
use crate::cli::command_id::CommandId;
use base::units::Nanos;

const TIMED: &[CommandId] = &[CommandId::Copy, CommandId::Demo, CommandId::Verify];
const TOLD: &[CommandId] = &[
    CommandId::Copy,
    CommandId::Demo,
    CommandId::Verify,
    CommandId::Clean,
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
];
const QUIET_TOO: &[CommandId] = &[
    CommandId::Copy,
    CommandId::Demo,
    CommandId::Verify,
    CommandId::Clean,
    CommandId::Measure,
    CommandId::MeasureCodec,
    CommandId::NetTest,
    CommandId::ModelPredict,
    CommandId::Explain,
    CommandId::Doctor,
    CommandId::Sweep,
    CommandId::SweepProfile,
];
const EXPLAINED: &[CommandId] = &[CommandId::Copy, CommandId::Demo, CommandId::NetTest];

/// In the order of `--help`.
pub(crate) const TABLE: &[&dyn AnyOption] = &[&INTERVAL, &JSON, &QUIET, &EXPLAIN];

pub(crate) static INTERVAL: CliOption<Nanos> = CliOption {
    name: "interval",
    letter: Some('P'),
    value: "SECONDS",
    kind: Kind::Seconds(|time| time),
    default: "",
    help: "Print a line with the rate of every interval",
    more: "On a terminal the lines stand above the progress line. Left out and without a \
           terminal, a line is printed every 10 seconds.",
    group: Group::Showing,
    commands: TIMED,
};

pub(crate) static JSON: CliOption<bool> = CliOption {
    name: "json",
    letter: None,
    value: "",
    kind: Kind::Flag(|| true),
    default: "",
    help: "Print one JSON object a line instead of text",
    more: "Events are start, progress, file, warning, verdict and end; end always comes, \
           also on failure. On standard output, or on standard error when '-' is the \
           destination.",
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
    more: "With --json the events progress and file (of files that went well) are left out.",
    group: Group::Showing,
    commands: QUIET_TOO,
};

pub(crate) static EXPLAIN: CliOption<bool> = CliOption {
    name: "explain",
    letter: None,
    value: "",
    kind: Kind::Flag(|| true),
    default: "",
    help: "Show why the copy was not faster, with the evidence, and what to change",
    more: "The summary has it in one sentence. Later, 'datapump explain' shows the same of \
           a run that was recorded.",
    group: Group::Showing,
    commands: EXPLAINED,
};
