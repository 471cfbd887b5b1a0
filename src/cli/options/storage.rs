//! The options of reading and writing files.

use super::kind::{Kind, Limits, SIZE_MAX};
use super::{AnyOption, CliOption, Group, MOVING, SWEPT};
use crate::cli::command_id::CommandId;
use base::limits;
use base::settings::{Direct, EngineChoice, Fsync, Preallocate};

const WRITTEN: &[CommandId] = &[CommandId::Copy, CommandId::Demo, CommandId::Measure];

/// In the order of `--help`.
pub(crate) const TABLE: &[&dyn AnyOption] = &[&ENGINE, &DIRECT, &FSYNC, &PREALLOCATE, &MEMORY];

pub(crate) static ENGINE: CliOption<EngineChoice> = CliOption {
    name: "engine",
    letter: None,
    value: "WHICH",
    kind: Kind::Choice(EngineChoice::NAMES, |i| EngineChoice::ALL[i]),
    default: "auto",
    help: "I/O engine",
    more: "auto uses the fastest for each end; 'datapump results show' names it.",
    group: Group::Storage,
    commands: SWEPT,
};

pub(crate) static DIRECT: CliOption<Direct> = CliOption {
    name: "direct",
    letter: None,
    value: "WHEN",
    kind: Kind::Choice(Direct::NAMES, |i| Direct::ALL[i]),
    default: "auto",
    help: "Whether files bypass the page cache",
    more: "",
    group: Group::Storage,
    commands: MOVING,
};

pub(crate) static FSYNC: CliOption<Fsync> = CliOption {
    name: "fsync",
    letter: None,
    value: "WHAT",
    kind: Kind::Choice(Fsync::NAMES, |i| Fsync::ALL[i]),
    default: "file",
    help: "Whether a file is on stable storage before it gets its final name",
    more: "file: each file, and then its folder, is synced. off: the system writes later; a \
           crash soon after can leave files without their data.",
    group: Group::Storage,
    commands: WRITTEN,
};

pub(crate) static PREALLOCATE: CliOption<Preallocate> = CliOption {
    name: "preallocate",
    letter: None,
    value: "WHETHER",
    kind: Kind::Choice(Preallocate::NAMES, |i| Preallocate::ALL[i]),
    default: "auto",
    help: "Set a file's length and reserve its space before its data arrives",
    more: "Writes that extend a file wait for each other, and a full disk is detected at once. \
           auto: for files that bypass the page cache (--direct). If the file system cannot do \
           it, nothing is reserved.",
    group: Group::Storage,
    commands: MOVING,
};

pub(crate) static MEMORY: CliOption<u64> = CliOption {
    name: "memory",
    letter: None,
    value: "SIZE",
    kind: Kind::Number(Limits::bytes(limits::MEMORY_BYTES_MIN, SIZE_MAX), |n| n),
    default: "256M",
    help: "Memory that each side may use for buffers",
    more: "Depths that are auto are chosen to fit.",
    group: Group::Storage,
    commands: SWEPT,
};
