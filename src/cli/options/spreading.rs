//! The options of a job over many nodes.

use std::path::PathBuf;

use super::kind::{Kind, Limits, SIZE_MAX};
use super::{AnyOption, CliOption, Group};
use crate::cli::command_id::CommandId;
use crate::spread::{ON_PHRASE, On};
use analysis::shards::names;
use base::units::Nanos;

const SPREAD: &[CommandId] = &[CommandId::Spread];
const CANCEL: &[CommandId] = &[CommandId::SpreadCancel];
const WORK: &[CommandId] = &[CommandId::SpreadWork];

/// In the order of `--help`.
pub(crate) const TABLE: &[&dyn AnyOption] = &[&ON, &JOB, &LEASE, &SPLIT_ABOVE, &FORGET, &WORKER];

/// What was typed, and what it means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TypedOn {
    pub text: String,
    pub on: On,
}

pub(crate) static ON: CliOption<TypedOn> = CliOption {
    name: "on",
    letter: None,
    value: "WHERE",
    kind: Kind::Parsed(ON_PHRASE, |text| {
        On::parse(text).map(|on| TypedOn { text: text.to_string(), on })
    }),
    default: "local",
    help: "Where the workers run",
    more: "local:4 starts four on this host; ssh:FILE starts one on each host that the file names \
           ([USER@]HOST, one a line), where ssh must log in without a question; slurm starts one \
           on each node of a partition. SRC, DST and the job folder must have the same path on \
           all of them.",
    group: Group::Spreading,
    commands: SPREAD,
};

pub(crate) static JOB: CliOption<PathBuf> = CliOption {
    name: "job",
    letter: None,
    value: "FOLDER",
    kind: Kind::Path(|path| path),
    default: "",
    help: "The job folder, which is made [default: spread-1, spread-2 … here]",
    more: "Plan, claims, receipts and the log are in it. It must be on storage that all nodes \
           share, and only you may write to it.",
    group: Group::Spreading,
    commands: SPREAD,
};

pub(crate) static LEASE: CliOption<Nanos> = CliOption {
    name: "lease",
    letter: None,
    value: "SECONDS",
    kind: Kind::Seconds(|time| time),
    default: "15",
    help: "How long a worker may be silent before others take its shards",
    more: "It shows itself five times in this time. Too short costs time and nothing else: what a \
           worker that is taken for lost still writes is never committed.",
    group: Group::Spreading,
    commands: SPREAD,
};

pub(crate) static SPLIT_ABOVE: CliOption<u64> = CliOption {
    name: "split-above",
    letter: None,
    value: "SIZE",
    kind: Kind::Number(Limits::bytes(1 << 20, SIZE_MAX), |bytes| bytes),
    default: "1G",
    help: "Larger files are copied in ranges, by several workers",
    more: "A range is a file of its own until all are there, and then they are put together by the \
           file system: at once where it can share blocks, else with as much reading and writing \
           again. With --rate, files are cut from a size on that takes a worker 20 seconds.",
    group: Group::Spreading,
    commands: SPREAD,
};

pub(crate) static FORGET: CliOption<bool> = CliOption {
    name: "forget",
    letter: None,
    value: "",
    kind: Kind::Flag(|| true),
    default: "",
    help: "Give the job up: remove what it has unfinished at the destination",
    more: "Files that were committed stay. The job cannot be resumed afterwards.",
    group: Group::Spreading,
    commands: CANCEL,
};

pub(crate) static WORKER: CliOption<String> = CliOption {
    name: "worker",
    letter: None,
    value: "NAME",
    kind: Kind::Parsed(names::WORKER_PHRASE, |text| match names::is_worker(text) {
        true => Ok(text.to_string()),
        false => Err(format!("write {}", names::WORKER_PHRASE)),
    }),
    default: "worker",
    help: "The name of this worker in the job folder",
    more: "",
    group: Group::Spreading,
    commands: WORK,
};
