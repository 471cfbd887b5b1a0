//! The options of workers and copies that are jobs of Slurm.

use std::path::PathBuf;

use super::kind::{Kind, Limits};
use super::{AnyOption, CliOption, Group};
use crate::cli::command_id::CommandId;

const JOBS: &[CommandId] = &[CommandId::Spread, CommandId::Submit];
const QUEUE: &[CommandId] = &[CommandId::Submit, CommandId::Queue];

/// In the order of `--help`.
pub(crate) const TABLE: &[&dyn AnyOption] = &[
    &PARTITION,
    &ACCOUNT,
    &QOS,
    &TIME_LIMIT,
    &WORKERS,
    &SBATCH,
    &PRINT_SCRIPT,
    &DETACH,
    &SUBMITTED,
];

pub(crate) static PARTITION: CliOption<String> = CliOption {
    name: "partition",
    letter: None,
    value: "NAME",
    kind: Kind::Text(|text| text),
    default: "",
    help: "The partition of Slurm that the job goes to",
    more: "Default: the site's. sinfo lists them.",
    group: Group::Slurm,
    commands: &[CommandId::Submit],
};

pub(crate) static ACCOUNT: CliOption<String> = CliOption {
    name: "account",
    letter: None,
    value: "NAME",
    kind: Kind::Text(|text| text),
    default: "",
    help: "The account of Slurm that pays",
    more: "",
    group: Group::Slurm,
    commands: JOBS,
};

pub(crate) static QOS: CliOption<String> = CliOption {
    name: "qos",
    letter: None,
    value: "NAME",
    kind: Kind::Text(|text| text),
    default: "",
    help: "The quality of service in Slurm",
    more: "",
    group: Group::Slurm,
    commands: JOBS,
};

pub(crate) static TIME_LIMIT: CliOption<String> = CliOption {
    name: "time-limit",
    letter: None,
    value: "TIME",
    kind: Kind::Text(|text| text),
    default: "",
    help: "The time limit of a job, as Slurm takes it: 8:00:00",
    more: "A minute before it the work is left as it is, and goes on when the job is in the queue \
           again.",
    group: Group::Slurm,
    commands: JOBS,
};

pub(crate) static WORKERS: CliOption<usize> = CliOption {
    name: "workers",
    letter: None,
    value: "N",
    kind: Kind::Number(Limits::count(1, 1000), |n| n as usize),
    default: "",
    help: "How many workers Slurm starts",
    more: "Default: one for each node of the partition that can run something now.",
    group: Group::Slurm,
    commands: &[CommandId::Spread],
};

pub(crate) static SBATCH: CliOption<String> = CliOption {
    name: "sbatch",
    letter: None,
    value: "OPTION",
    kind: Kind::Repeated(|text| text),
    default: "",
    help: "Another option of sbatch, without its dashes: constraint=ib; may be repeated",
    more: "Refused are those that must be as they are: array, export, output, requeue, signal.",
    group: Group::Slurm,
    commands: JOBS,
};

pub(crate) static PRINT_SCRIPT: CliOption<bool> = CliOption {
    name: "print-script",
    letter: None,
    value: "",
    kind: Kind::Flag(|| true),
    default: "",
    help: "Print what sbatch would be given, and start nothing",
    more: "",
    group: Group::Slurm,
    commands: JOBS,
};

pub(crate) static DETACH: CliOption<bool> = CliOption {
    name: "detach",
    letter: None,
    value: "",
    kind: Kind::Flag(|| true),
    default: "",
    help: "Do not wait for the end of the copy",
    more: "'datapump queue' shows it, and puts it back into Slurm's queue where it must.",
    group: Group::Slurm,
    commands: &[CommandId::Submit],
};

pub(crate) static SUBMITTED: CliOption<PathBuf> = CliOption {
    name: "submitted",
    letter: None,
    value: "DIR",
    kind: Kind::Path(|path| path),
    default: "",
    help: "The folder of submitted copies, which nodes must see too",
    more: "Default: datapump/submitted in $XDG_STATE_HOME or ~/.local/state.",
    group: Group::Slurm,
    commands: QUEUE,
};
