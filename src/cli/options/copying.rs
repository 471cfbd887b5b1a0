//! The options that say what is copied.

use std::path::PathBuf;

use super::kind::{Kind, Limits, SIZE_MAX};
use super::{AnyOption, COPY, CliOption, Group};
use crate::cli::command_id::CommandId;
use base::settings::{Links, Overwrite};

const DEMO: &[CommandId] = &[CommandId::Demo];
const DRY: &[CommandId] = &[CommandId::Copy, CommandId::Clean, CommandId::Sweep];
const SEEDED: &[CommandId] =
    &[CommandId::Copy, CommandId::Measure, CommandId::MeasureCodec, CommandId::Sweep];

/// In the order of `--help`.
pub(crate) const TABLE: &[&dyn AnyOption] = &[
    &RECURSIVE,
    &PRESERVE,
    &NO_PRESERVE,
    &ARCHIVE,
    &LINKS,
    &EXCLUDE,
    &INCLUDE,
    &FILES_FROM,
    &NULL,
    &SKIP_UNCHANGED,
    &CHECKSUM,
    &DRY_RUN,
    &MAX_ERRORS,
    &FRESH,
    &OVERWRITE,
    &MANIFEST,
    &SEED,
    &DEMO_BYTES,
    &DEMO_FILES,
];

pub(crate) static RECURSIVE: CliOption<bool> = CliOption {
    name: "recursive",
    letter: Some('r'),
    value: "",
    kind: Kind::Flag(|| true),
    default: "",
    help: "Copy folders with everything in them",
    more: "Without it a folder is refused by name and the other sources are copied.",
    group: Group::Copying,
    commands: COPY,
};

pub(crate) static PRESERVE: CliOption<bool> = CliOption {
    name: "preserve",
    letter: Some('p'),
    value: "",
    kind: Kind::Flag(|| true),
    default: "",
    help: "Keep permission bits and modification times",
    more: "They are kept anyway: it is here for who is used to typing it.",
    group: Group::Copying,
    commands: COPY,
};

pub(crate) static NO_PRESERVE: CliOption<bool> = CliOption {
    name: "no-preserve",
    letter: None,
    value: "",
    kind: Kind::Flag(|| true),
    default: "",
    help: "Let files have the mode and time of new ones",
    more: "The mode is the source's less the umask, the time that of the copy.",
    group: Group::Copying,
    commands: COPY,
};

pub(crate) static ARCHIVE: CliOption<bool> = CliOption {
    name: "archive",
    letter: Some('A'),
    value: "",
    kind: Kind::Flag(|| true),
    default: "",
    help: "Keep owner, extended attributes and access control lists too",
    more: "What the destination does not allow is named by a warning, and the file is copied.",
    group: Group::Copying,
    commands: COPY,
};

pub(crate) static LINKS: CliOption<Links> = CliOption {
    name: "links",
    letter: None,
    value: "WHAT",
    kind: Kind::Choice(Links::NAMES, |i| Links::ALL[i]),
    default: "copy",
    help: "What becomes of symbolic links in a folder",
    more: "copy: they are made anew. follow: what they point to is copied. skip: they are \
           left out. safe: those are left out that lead out of what is copied: absolute \
           ones, and those that go up too far, or up after they have gone down.",
    group: Group::Copying,
    commands: COPY,
};

pub(crate) static EXCLUDE: CliOption<String> = CliOption {
    name: "exclude",
    letter: None,
    value: "PATTERN",
    kind: Kind::Pattern(|text| text),
    default: "",
    help: "Leave out what matches",
    more: "A line of gitignore rules, and may be written again and again: '*.o' matches \
           everywhere, '/build' at the top of the source only, 'tmp/' folders only. A folder \
           that is left out is left out with all that is in it. Of several that match, the \
           last on the command line counts.",
    group: Group::Copying,
    commands: COPY,
};

pub(crate) static INCLUDE: CliOption<String> = CliOption {
    name: "include",
    letter: None,
    value: "PATTERN",
    kind: Kind::Pattern(|text| format!("!{text}")),
    default: "",
    help: "Keep what matches, although an earlier --exclude leaves it out",
    more: "Nothing below a folder that is left out can be kept.",
    group: Group::Copying,
    commands: COPY,
};

pub(crate) static FILES_FROM: CliOption<PathBuf> = CliOption {
    name: "files-from",
    letter: None,
    value: "FILE",
    kind: Kind::Path(|path| path),
    default: "",
    help: "Copy what this file names, below the one SRC folder",
    more: "One name a line, relative to SRC; '-' is standard input. Each arrives under its \
           name below DST, and the folders on the way are made. A folder that is named is \
           copied with -r.",
    group: Group::Copying,
    commands: COPY,
};

pub(crate) static NULL: CliOption<bool> = CliOption {
    name: "null",
    letter: Some('0'),
    value: "",
    kind: Kind::Flag(|| true),
    default: "",
    help: "Names of --files-from end with a NUL byte, not with a line",
    more: "As 'find -print0' writes them.",
    group: Group::Copying,
    commands: COPY,
};

pub(crate) static SKIP_UNCHANGED: CliOption<bool> = CliOption {
    name: "skip-unchanged",
    letter: None,
    value: "",
    kind: Kind::Flag(|| true),
    default: "",
    help: "Leave destination files that have the size and time of their source",
    more: "They are neither copied nor refused. Links that point to the same are left too.",
    group: Group::Copying,
    commands: COPY,
};

pub(crate) static CHECKSUM: CliOption<bool> = CliOption {
    name: "checksum",
    letter: None,
    value: "",
    kind: Kind::Flag(|| true),
    default: "",
    help: "Leave destination files that have the size and bytes of their source",
    more: "Every source file is read once more for it, and every destination file of the same \
           size.",
    group: Group::Copying,
    commands: COPY,
};

pub(crate) static DRY_RUN: CliOption<bool> = CliOption {
    name: "dry-run",
    letter: Some('n'),
    value: "",
    kind: Kind::Flag(|| true),
    default: "",
    help: "Change nothing, only say what would be done",
    more: "A copy asks both sides as a real one does, and exits as it; a sweep says which \
           cells it has and how long they take.",
    group: Group::Copying,
    commands: DRY,
};

pub(crate) static MAX_ERRORS: CliOption<u32> = CliOption {
    name: "max-errors",
    letter: None,
    value: "N",
    kind: Kind::Number(Limits::count(0, u32::MAX as u64), |n| n as u32),
    default: "",
    help: "End the copy once more files than this have failed",
    more: "Left out, any number may fail, and the others are copied.",
    group: Group::Copying,
    commands: COPY,
};

pub(crate) static FRESH: CliOption<bool> = CliOption {
    name: "fresh",
    letter: None,
    value: "",
    kind: Kind::Flag(|| true),
    default: "",
    help: "Do not go on where an earlier copy stopped",
    more: "",
    group: Group::Copying,
    commands: COPY,
};

pub(crate) static OVERWRITE: CliOption<Overwrite> = CliOption {
    name: "overwrite",
    letter: None,
    value: "WHEN",
    kind: Kind::Choice(Overwrite::NAMES, |i| Overwrite::ALL[i]),
    default: "never",
    help: "What happens to a destination file that exists",
    more: "never: it is refused by name, the other files are copied, and the exit code is \
           3. older: it is replaced when it is older than its source, as all is older than \
           what comes from a pipe or is generated. always: it is replaced. The old file \
           keeps its name and bytes until the new one is complete and verified.",
    group: Group::Copying,
    commands: COPY,
};

pub(crate) static MANIFEST: CliOption<PathBuf> = CliOption {
    name: "manifest",
    letter: None,
    value: "FILE",
    kind: Kind::Path(|path| path),
    default: "",
    help: "Write a receipt: every file's digest and name",
    more: "'datapump verify FILE DST' re-reads what was written; with --digest blake3 so \
           does 'b3sum --check FILE' in the destination folder. The receipt gets its name \
           at the end.",
    group: Group::Copying,
    commands: COPY,
};

pub(crate) static SEED: CliOption<u64> = CliOption {
    name: "seed",
    letter: None,
    value: "N",
    kind: Kind::Number(Limits::count(0, u64::MAX), |n| n),
    default: "0",
    help: "Seed of the bytes that 'random:SIZE' makes, and of the order of runs",
    more: "The same seed and size give the same bytes on every host. measure mixes its runs by \
           it.",
    group: Group::Copying,
    commands: SEEDED,
};

pub(crate) static DEMO_BYTES: CliOption<u64> = CliOption {
    name: "bytes",
    letter: None,
    value: "SIZE",
    kind: Kind::Number(Limits::bytes(1, SIZE_MAX), |n| n),
    default: "512M",
    help: "Size of the one large file",
    more: "The demo needs twice as much room in the temporary folder ($TMPDIR or /tmp).",
    group: Group::Copying,
    commands: DEMO,
};

pub(crate) static DEMO_FILES: CliOption<u64> = CliOption {
    name: "files",
    letter: None,
    value: "N",
    kind: Kind::Number(Limits::count(0, 1_000_000), |n| n),
    default: "2000",
    help: "Number of small files beside it",
    more: "",
    group: Group::Copying,
    commands: DEMO,
};
