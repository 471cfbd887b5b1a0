//! The options that say what is copied.

use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use super::kind::{Kind, Limits, SIZE_MAX};
use super::{AnyOption, COPY, COPY_AND_SPREAD, CliOption, Group};
use crate::cli::command_id::CommandId;
use crate::cli::patterns::Filter;
use analysis::report::utc;
use base::owners::{CHOWN_PHRASE, Chown, OWNER_RULES_PHRASE, OwnerRule};
use base::settings::{Links, Moment, Overwrite};
use mover::wire::manifest::path_is_safe;

const DEMO: &[CommandId] = &[CommandId::Demo];
const FILTERED: &[CommandId] = &[CommandId::Copy, CommandId::Spread, CommandId::Compare];
const CHECKED: &[CommandId] = &[CommandId::Copy, CommandId::Compare];
const DRY: &[CommandId] = &[CommandId::Copy, CommandId::Clean, CommandId::Sweep, CommandId::Spread];
const SEEDED: &[CommandId] =
    &[CommandId::Copy, CommandId::Measure, CommandId::MeasureCodec, CommandId::Sweep];

/// In the order of `--help`.
pub(crate) const TABLE: &[&dyn AnyOption] = &[
    &RECURSIVE,
    &PRESERVE,
    &NO_PRESERVE,
    &ARCHIVE,
    &NUMERIC_IDS,
    &CHOWN,
    &USERMAP,
    &GROUPMAP,
    &LINKS,
    &EXCLUDE,
    &INCLUDE,
    &EXCLUDE_FROM,
    &FILES_FROM,
    &NULL,
    &MIN_SIZE,
    &MAX_SIZE,
    &NEWER,
    &UPDATE,
    &SKIP_UNCHANGED,
    &CHECKSUM,
    &DELETE,
    &DELETE_EXCLUDED,
    &MAX_DELETE,
    &BACKUP_DIR,
    &DRY_RUN,
    &MAX_ERRORS,
    &FRESH,
    &OVERWRITE,
    &MKPATH,
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
    help: "Copy folders with all their contents",
    more: "Without it, a folder is refused by name, and the other sources are copied.",
    group: Group::Copying,
    commands: COPY,
};

pub(crate) static PRESERVE: CliOption<bool> = CliOption {
    name: "preserve",
    letter: Some('p'),
    value: "",
    kind: Kind::Flag(|| true),
    default: "",
    help: "Preserve permission bits and modification times",
    more: "This is the default; the option is for users of scp and rsync.",
    group: Group::Copying,
    commands: COPY,
};

pub(crate) static NO_PRESERVE: CliOption<bool> = CliOption {
    name: "no-preserve",
    letter: None,
    value: "",
    kind: Kind::Flag(|| true),
    default: "",
    help: "Do not preserve modes and times",
    more: "A file gets the mode of its source without the bits of the umask, and the time of \
           the copy.",
    group: Group::Copying,
    commands: COPY_AND_SPREAD,
};

pub(crate) static ARCHIVE: CliOption<bool> = CliOption {
    name: "archive",
    letter: Some('A'),
    value: "",
    kind: Kind::Flag(|| true),
    default: "",
    help: "Preserve owner, extended attributes and access control lists too",
    more: "Users and groups are those of the same name at the destination, and of the same number \
           where it has no such name. What the destination does not allow causes a warning, and \
           the file is copied.",
    group: Group::Copying,
    commands: COPY,
};

pub(crate) static NUMERIC_IDS: CliOption<bool> = CliOption {
    name: "numeric-ids",
    letter: None,
    value: "",
    kind: Kind::Flag(|| true),
    default: "",
    help: "Preserve the numbers of users and groups, not their names",
    more: "With --archive, --usermap and --groupmap. Rules then match numbers only.",
    group: Group::Copying,
    commands: COPY,
};

pub(crate) static CHOWN: CliOption<Chown> = CliOption {
    name: "chown",
    letter: None,
    value: "USER:GROUP",
    kind: Kind::Parsed(CHOWN_PHRASE, Chown::parse),
    default: "",
    help: "Give all files to this user and group at the destination",
    more: "Short for --usermap '*:USER' --groupmap '*:GROUP'; USER and :GROUP are enough. Only \
           root can give files to others, anybody to groups that they are in: otherwise a warning \
           says so, and the file is copied.",
    group: Group::Copying,
    commands: COPY,
};

pub(crate) static USERMAP: CliOption<Vec<OwnerRule>> = CliOption {
    name: "usermap",
    letter: None,
    value: "RULES",
    kind: Kind::Parsed(OWNER_RULES_PHRASE, OwnerRule::parse_all),
    default: "",
    help: "Which user at the destination gets the files of which at the source",
    more: "Rules such as 'alice:bob,1000-1999:nobody,*:root'; the first that matches counts. Names \
           on the left are those of the source, with the wildcards *, ? and [a-z]; an empty one \
           matches numbers without a name. Users that no rule matches are kept as by --archive. A \
           name on the right that the destination does not have is an error, before anything is \
           copied.",
    group: Group::Copying,
    commands: COPY,
};

pub(crate) static GROUPMAP: CliOption<Vec<OwnerRule>> = CliOption {
    name: "groupmap",
    letter: None,
    value: "RULES",
    kind: Kind::Parsed(OWNER_RULES_PHRASE, OwnerRule::parse_all),
    default: "",
    help: "The same for groups",
    more: "",
    group: Group::Copying,
    commands: COPY,
};

pub(crate) static LINKS: CliOption<Links> = CliOption {
    name: "links",
    letter: None,
    value: "WHAT",
    kind: Kind::Choice(Links::NAMES, |i| Links::ALL[i]),
    default: "copy",
    help: "How symbolic links in a folder are copied",
    more: "copy: links are copied as links. follow: what they point to is copied. skip: links \
           are skipped. safe: links that lead out of the tree are skipped: absolute links, and \
           those that go up too far, or go up after they have gone down.",
    group: Group::Copying,
    commands: COPY_AND_SPREAD,
};

pub(crate) static EXCLUDE: CliOption<Filter> = CliOption {
    name: "exclude",
    letter: None,
    value: "PATTERN",
    kind: Kind::Pattern(Filter::Line),
    default: "",
    help: "Do not copy what matches",
    more: "A gitignore pattern; may be repeated: '*.o' matches everywhere, '/build' at the top \
           of the source only, 'tmp/' folders only. A folder is excluded with all its \
           contents. If several patterns match, the last on the command line counts.",
    group: Group::Copying,
    commands: FILTERED,
};

pub(crate) static INCLUDE: CliOption<Filter> = CliOption {
    name: "include",
    letter: None,
    value: "PATTERN",
    kind: Kind::Pattern(|text| Filter::Line(format!("!{text}"))),
    default: "",
    help: "Copy what matches, although an earlier --exclude matches it too",
    more: "Nothing in an excluded folder can be included.",
    group: Group::Copying,
    commands: FILTERED,
};

pub(crate) static EXCLUDE_FROM: CliOption<Filter> = CliOption {
    name: "exclude-from",
    letter: None,
    value: "FILE",
    kind: Kind::Paths(Filter::File),
    default: "",
    help: "Do not copy what the patterns in this file match",
    more: "A file as .gitignore is: a pattern a line, '#' begins a comment, '!' keeps what an \
           earlier line leaves out. '-' is standard input. It may be repeated, and its lines \
           count where the option stands among --exclude and --include.",
    group: Group::Copying,
    commands: FILTERED,
};

pub(crate) static FILES_FROM: CliOption<PathBuf> = CliOption {
    name: "files-from",
    letter: None,
    value: "FILE",
    kind: Kind::Path(|path| path),
    default: "",
    help: "Copy what this file lists, from the one SRC folder",
    more: "One name per line, relative to SRC; '-' is standard input. Each keeps its name \
           below DST, and its parent folders are created. A folder in the list is copied with \
           -r only.",
    group: Group::Copying,
    commands: COPY,
};

pub(crate) static NULL: CliOption<bool> = CliOption {
    name: "null",
    letter: Some('0'),
    value: "",
    kind: Kind::Flag(|| true),
    default: "",
    help: "Names in --files-from are separated by NUL bytes, not newlines",
    more: "As 'find -print0' writes them.",
    group: Group::Copying,
    commands: COPY,
};

pub(crate) static MIN_SIZE: CliOption<u64> = CliOption {
    name: "min-size",
    letter: None,
    value: "SIZE",
    kind: Kind::Number(Limits::bytes(0, SIZE_MAX), |n| n),
    default: "",
    help: "Do not copy files smaller than this",
    more: "--delete does not remove such files at the destination.",
    group: Group::Copying,
    commands: COPY_AND_SPREAD,
};

pub(crate) static MAX_SIZE: CliOption<u64> = CliOption {
    name: "max-size",
    letter: None,
    value: "SIZE",
    kind: Kind::Number(Limits::bytes(0, SIZE_MAX), |n| n),
    default: "",
    help: "Do not copy files larger than this",
    more: "--delete does not remove such files at the destination.",
    group: Group::Copying,
    commands: COPY_AND_SPREAD,
};

pub(crate) static NEWER: CliOption<Newer> = CliOption {
    name: "newer",
    letter: None,
    value: "TIME|FILE",
    kind: Kind::Parsed(NEWER_PHRASE, Newer::parse),
    default: "",
    help: "Copy only files that were modified after this time, or after this file was",
    more: "TIME is 2026-11-20, 2026-11-20T12:15 or 2026-11-20T12:15:03, in UTC, or @SECONDS \
           since 1970; anything else is a FILE of this host. Folders are copied in any case. For \
           files that are newer than what is at the destination, see --update.",
    group: Group::Copying,
    commands: COPY,
};

/// The value of `--newer`, as typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Newer {
    Than(Moment),
    File(PathBuf),
}

const NEWER_PHRASE: &str = "a time in UTC such as 2026-11-20, 2026-11-20T12:15 or @1763640903, \
                            or the name of a file of this host";

impl Newer {
    fn parse(text: &str) -> Result<Newer, String> {
        let seconds = match text.strip_prefix('@') {
            Some(number) => {
                Some(number.parse::<i64>().map_err(|_| format!("write {NEWER_PHRASE}"))?)
            }
            None => utc::unix_s(text).and_then(|seconds| i64::try_from(seconds).ok()),
        };
        match seconds {
            _ if text.is_empty() => Err(format!("write {NEWER_PHRASE}")),
            Some(seconds) => Ok(Newer::Than(Moment { seconds, nanos: 0 })),
            None => Ok(Newer::File(text.into())),
        }
    }

    /// The time that it means.
    pub(crate) fn moment(&self) -> Result<Moment, String> {
        let path = match self {
            Newer::Than(moment) => return Ok(*moment),
            Newer::File(path) => path,
        };
        let meta = std::fs::metadata(path).map_err(|why| {
            format!("--newer '{}' is no file ({why}): write {NEWER_PHRASE}", path.display())
        })?;
        Ok(Moment { seconds: meta.mtime(), nanos: u32::try_from(meta.mtime_nsec()).unwrap_or(0) })
    }
}

pub(crate) static UPDATE: CliOption<bool> = CliOption {
    name: "update",
    letter: Some('u'),
    value: "",
    kind: Kind::Flag(|| true),
    default: "",
    help: "For a second run: copy what is new, replace what is older at DST",
    more: "Short for --skip-unchanged --overwrite older, as with rsync and cp: what is unchanged \
           or newer at DST stays, and the summary counts it. A file of the same time and of \
           another size is replaced. --overwrite always beside it replaces newer files too.",
    group: Group::Copying,
    commands: COPY,
};

pub(crate) static SKIP_UNCHANGED: CliOption<bool> = CliOption {
    name: "skip-unchanged",
    letter: None,
    value: "",
    kind: Kind::Flag(|| true),
    default: "",
    help: "Skip files whose destination has the same size and modification time",
    more: "They are neither copied nor refused. Links with the same target are skipped too.",
    group: Group::Copying,
    commands: COPY_AND_SPREAD,
};

pub(crate) static CHECKSUM: CliOption<bool> = CliOption {
    name: "checksum",
    letter: None,
    value: "",
    kind: Kind::Flag(|| true),
    default: "",
    help: "Compare contents: what has the same size and contents is unchanged",
    more: "Each source file is read one more time, and so is each destination file of the same \
           size.",
    group: Group::Copying,
    commands: CHECKED,
};

pub(crate) static DELETE: CliOption<bool> = CliOption {
    name: "delete",
    letter: None,
    value: "",
    kind: Kind::Flag(|| true),
    default: "",
    help: "Make a mirror: delete what is in a copied folder at DST and not in its SRC",
    more: "After everything has arrived; nothing if anything of SRC could not be read or \
           copied. What --exclude matches is kept. Files that differ are replaced and files \
           of the same size and time are skipped, unless --overwrite or --checksum says \
           otherwise; what is a folder on one side only is replaced too. Needs -r.",
    group: Group::Copying,
    commands: COPY,
};

pub(crate) static DELETE_EXCLUDED: CliOption<bool> = CliOption {
    name: "delete-excluded",
    letter: None,
    value: "",
    kind: Kind::Flag(|| true),
    default: "",
    help: "The same, and delete what --exclude matches too",
    more: "",
    group: Group::Copying,
    commands: COPY,
};

pub(crate) static MAX_DELETE: CliOption<u64> = CliOption {
    name: "max-delete",
    letter: None,
    value: "N",
    kind: Kind::Number(Limits::count(0, u64::MAX), |n| n),
    default: "",
    help: "Delete nothing if there are more than N names to delete",
    more: "All are counted first, files and folders alike; the exit code is then 3, and the copy \
           is complete. Without it any number is deleted, but none where the source is empty.",
    group: Group::Copying,
    commands: COPY,
};

pub(crate) static BACKUP_DIR: CliOption<String> = CliOption {
    name: "backup-dir",
    letter: None,
    value: "DIR",
    kind: Kind::Parsed(BACKUP_DIR_PHRASE, backup_dir),
    default: "",
    help: "Move what is replaced or deleted to this folder below DST",
    more: "Under the same relative name; what an earlier run has moved there by that name is \
           replaced. The folder is made when it is first needed, and --delete leaves it alone. It \
           must be on the file system of what is moved. Needs --delete or --overwrite.",
    group: Group::Copying,
    commands: COPY,
};

/// The values of `--backup-dir`, as the user reads them.
const BACKUP_DIR_PHRASE: &str = "the name of a folder below DST, such as .old or old/monday";

/// A relative path that goes down only, without what it can be without.
fn backup_dir(text: &str) -> Result<String, String> {
    let names = text.split('/').filter(|name| !matches!(*name, "" | "."));
    let path = names.collect::<Vec<&str>>().join("/");
    match !text.starts_with('/') && path_is_safe(path.as_bytes()) {
        true => Ok(path),
        false => Err(format!("write {BACKUP_DIR_PHRASE}")),
    }
}

pub(crate) static DRY_RUN: CliOption<bool> = CliOption {
    name: "dry-run",
    letter: Some('n'),
    value: "",
    kind: Kind::Flag(|| true),
    default: "",
    help: "Only show what would be done",
    more: "A copy asks both sides as a real copy does, and has its exit code. Files that an \
           interrupted run completed are kept; those of which it left a part count whole. A sweep \
           shows its cells and how long they take, a spread its plan.",
    group: Group::Copying,
    commands: DRY,
};

pub(crate) static MAX_ERRORS: CliOption<u32> = CliOption {
    name: "max-errors",
    letter: None,
    value: "N",
    kind: Kind::Number(Limits::count(0, u32::MAX as u64), |n| n as u32),
    default: "",
    help: "Stop the copy when more than N files have failed",
    more: "By default any number may fail, and the others are copied.",
    group: Group::Copying,
    commands: COPY,
};

pub(crate) static FRESH: CliOption<bool> = CliOption {
    name: "fresh",
    letter: None,
    value: "",
    kind: Kind::Flag(|| true),
    default: "",
    help: "Do not resume an earlier copy: start over",
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
    more: "never: it is refused by name, the other files are copied, and the exit code is 3. \
           older: it is replaced if it is older than its source; data from a pipe or a \
           generator counts as newer. always: it is replaced. The old file keeps its name and \
           contents until the new one is complete and verified.",
    group: Group::Copying,
    commands: COPY,
};

pub(crate) static MKPATH: CliOption<bool> = CliOption {
    name: "mkpath",
    letter: None,
    value: "",
    kind: Kind::Flag(|| true),
    default: "",
    help: "Make the folders above DST that are missing",
    more: "As 'mkdir -p'. Without it, the folder above DST must exist.",
    group: Group::Copying,
    commands: COPY,
};

pub(crate) static MANIFEST: CliOption<PathBuf> = CliOption {
    name: "manifest",
    letter: None,
    value: "FILE",
    kind: Kind::Path(|path| path),
    default: "",
    help: "Write a receipt: the digest and name of every file that is written",
    more: "'datapump verify FILE DST' re-reads what was written; with --digest blake3, 'b3sum \
           --check FILE' in the destination folder does so too. FILE appears when the copy has \
           ended. Files that --skip-unchanged or --checksum kept are not in it.",
    group: Group::Copying,
    commands: COPY,
};

pub(crate) static SEED: CliOption<u64> = CliOption {
    name: "seed",
    letter: None,
    value: "N",
    kind: Kind::Number(Limits::count(0, u64::MAX), |n| n),
    default: "0",
    help: "Seed of generated data such as random:SIZE, and of the order of runs",
    more: "The same seed and size give the same bytes on every host. measure and sweep shuffle \
           their runs with it.",
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
    more: "The demo needs twice as much space in the temporary folder ($TMPDIR or /tmp).",
    group: Group::Copying,
    commands: DEMO,
};

pub(crate) static DEMO_FILES: CliOption<u64> = CliOption {
    name: "files",
    letter: None,
    value: "N",
    kind: Kind::Number(Limits::count(0, 1_000_000), |n| n),
    default: "2000",
    help: "Number of small files",
    more: "",
    group: Group::Copying,
    commands: DEMO,
};
