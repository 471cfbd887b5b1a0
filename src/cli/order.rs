//! What a command line of `copy` means. Every conflict between words and options is reported here,
//! and no code below checks again.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::endpoint::{EndArg, Role};
use super::help;
use super::options::{copying, moving, showing};
use super::parser::ENDS;
use super::patterns;
use super::record::Recording;
use super::settings::{remote_of_copy, settings, ssh_to, streams_agree};
use super::typed::Typed;
use crate::telemetry::Destination;
use analysis::report::files::Direction;
use analysis::report::live::count;
use base::codec::Compress;
use base::job::{Job, Listed, Location, Remote};
use base::limits::{FILTER_BYTES_MAX, FILTERS_MAX, HEADROOM_BYTES};
use base::owners::OwnerRule;
use base::schedule::RateSchedule;
use base::settings::{Delete, DigestKind, Fsync, Overwrite, Settings, SkipUnchanged, Verify};
use base::units::{Bytes, Nanos};
use mover::io::store::PartSize;

mod existing;
mod stores;

pub(super) use self::stores::{can_be_parts, stores_of};
use self::stores::{for_stores, requests_of};

/// The arguments of `copy`, none of which contradicts another.
#[derive(Clone, Debug)]
pub(crate) struct CopyArgs {
    /// As typed.
    pub sources: Vec<String>,
    pub target: String,
    /// The options, as words, that another run would have.
    pub given: Vec<String>,
    pub order: Order,
    /// Show the evidence of what held the copy back, not only the sentence.
    pub explain: bool,
    /// Show the figures of the run too.
    pub stats: bool,
    /// Where each file, warning and error is written too.
    pub log: Option<PathBuf>,
    /// Where Prometheus sees it.
    pub metrics: Option<Destination>,
    /// The port of its page; 0 for one that is free.
    pub live: Option<u16>,
    pub schedule: Option<RateSchedule>,
    pub recording: Recording,
}

/// The copy that a command line asks for.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Order {
    pub job: Job,
    pub receipt: Option<ReceiptOrder>,
    /// How object stores are reached.
    pub stores: s3::Options,
    pub show: Show,
    /// Options that have no effect; the user is told.
    pub idle: Vec<String>,
}

/// What an order is made from.
#[derive(Debug)]
pub(crate) struct Wanted {
    pub sources: Vec<OsString>,
    pub target: OsString,
    pub settings: Settings,
    /// Left out, these depend on what is copied.
    pub compress: Option<Compress>,
    pub request_bytes: Option<u32>,
    pub remote: Remote,
    /// The options on the command line that are about the other host.
    pub about_far: Vec<&'static str>,
    /// Of generated data.
    pub seed: u64,
    pub manifest: Option<PathBuf>,
    pub stores: s3::Options,
    pub preserve: Preserve,
    pub files_from: Option<PathBuf>,
    /// The names in that file end with a NUL byte.
    pub files_from_nul: bool,
    pub show: Show,
}

/// Whether modes and times were asked for explicitly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Preserve {
    Asked,
    Usual,
}

/// Where the receipt goes, and whether it may take another file's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReceiptOrder {
    pub path: PathBuf,
    pub overwrite: Overwrite,
}

/// How a run is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Show {
    pub form: Form,
    pub amount: Amount,
    pub channel: Channel,
    /// The direction of the files, for the list of them.
    pub direction: Direction,
    /// How often a line of progress is printed; `None` leaves it to the kind of output.
    pub interval: Option<Nanos>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Text,
    Json,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Amount {
    /// Errors only.
    Quiet,
    Usual,
    /// Each file too.
    Verbose,
}

/// Where the summary or the JSON goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Channel {
    Stdout,
    /// Standard output carries the data.
    Stderr,
}

impl CopyArgs {
    pub(super) fn of(typed: &Typed) -> Result<CopyArgs, String> {
        let (sources, target) = ends(typed).ok_or(help::NO_DESTINATION)?;
        let shown = |word: &OsString| word.to_string_lossy().into_owned();
        let (sources_typed, target_typed) = (sources.iter().map(shown).collect(), shown(&target));
        let asked = typed.has(&copying::PRESERVE);
        let preserve = if asked { Preserve::Asked } else { Preserve::Usual };
        let metrics = typed.value(&showing::METRICS)?;
        let settings = copied(typed)?;
        let live = live(typed)?;
        let shown = [("metrics", metrics.is_some()), ("live", live.is_some())];
        if let Some((name, _)) = shown.iter().find(|(_, is_shown)| settings.dry_run && *is_shown) {
            return Err(format!("--{name} with --dry-run: a dry run moves nothing; leave one out"));
        }
        let request_bytes = typed.value(&moving::REQUEST_SIZE)?;
        let order = Order::of(Wanted {
            sources,
            target,
            stores: s3::Options {
                silent_max: typed.value(&moving::STALL)?.map(Duration::from),
                part_size: request_bytes.map_or(PartSize::ByLength, |_| PartSize::AsRequests),
                requests: requests_of(&settings),
                ..stores_of(typed)?
            },
            settings,
            compress: typed.value(&moving::COMPRESS)?,
            request_bytes,
            remote: remote_of_copy(typed)?,
            about_far: ABOUT_FAR.iter().copied().filter(|name| typed.is_typed(name)).collect(),
            seed: typed.value_or_default(&copying::SEED)?,
            manifest: typed.value(&copying::MANIFEST)?,
            preserve,
            files_from: typed.value(&copying::FILES_FROM)?,
            files_from_nul: typed.has(&copying::NULL),
            show: Show::of(typed)?,
        })?;
        Ok(CopyArgs {
            sources: sources_typed,
            target: target_typed,
            given: typed.repeated(),
            order,
            explain: typed.has(&showing::EXPLAIN),
            stats: typed.has(&showing::STATS),
            log: typed.value(&showing::LOG)?,
            metrics,
            live,
            schedule: typed.value(&moving::RATE_SCHEDULE)?,
            recording: Recording::of(typed)?,
        })
    }
}

/// The port of `--live`.
pub(super) fn live(typed: &Typed) -> Result<Option<u16>, String> {
    let port = typed.value(&showing::LIVE)?;
    match port.is_some() && typed.has(&showing::QUIET) {
        true => Err("--live with --quiet: nobody would read its address; leave one out".into()),
        false => Ok(port),
    }
}

/// The sources and the destination after a command's name.
pub(super) fn ends(typed: &Typed) -> Option<(Vec<OsString>, OsString)> {
    let mut sources = typed.words(ENDS);
    let target = sources.pop()?;
    (!sources.is_empty()).then_some((sources, target))
}

/// The settings of `copy`, with those that no other command has.
fn copied(typed: &Typed) -> Result<Settings, String> {
    let mut settings = Settings {
        preserve: !typed.has(&copying::NO_PRESERVE),
        archive: typed.has(&copying::ARCHIVE),
        recursive: typed.has(&copying::RECURSIVE),
        dry_run: typed.has(&copying::DRY_RUN),
        fresh: typed.has(&copying::FRESH),
        mkpath: typed.has(&copying::MKPATH),
        filters: patterns::filters(typed)?,
        min_size: typed.value(&copying::MIN_SIZE)?,
        max_size: typed.value(&copying::MAX_SIZE)?,
        newer: typed.value(&copying::NEWER)?.map(|newer| newer.moment()).transpose()?,
        ..settings(typed)?
    };
    existing::say(&mut settings, typed)?;
    settings.delete_max = typed.value(&copying::MAX_DELETE)?;
    settings.backup_dir = typed.value(&copying::BACKUP_DIR)?;
    settings.numeric_ids = typed.has(&copying::NUMERIC_IDS);
    (settings.user_rules, settings.group_rules) = owner_rules(typed)?;
    typed.set(&mut settings.links, &copying::LINKS)?;
    streams_agree(&settings)?;
    Ok(settings)
}

/// The rules for users and for groups. `--chown` says the same for all.
fn owner_rules(typed: &Typed) -> Result<(Vec<OwnerRule>, Vec<OwnerRule>), String> {
    let chown = typed.value(&copying::CHOWN)?.unwrap_or_default();
    let merged = |all: Vec<OwnerRule>, some: Option<Vec<OwnerRule>>, name: &str| match some {
        Some(_) if !all.is_empty() => Err(format!(
            "--chown says who gets all files and --{name} says it for some: leave one out"
        )),
        some => Ok(some.unwrap_or(all)),
    };
    Ok((
        merged(chown.users, typed.value(&copying::USERMAP)?, "usermap")?,
        merged(chown.groups, typed.value(&copying::GROUPMAP)?, "groupmap")?,
    ))
}

impl Order {
    pub(super) fn of(wanted: Wanted) -> Result<Order, String> {
        let read = |word: &OsString, role| EndArg::parse(word, role, wanted.seed);
        let ends: Result<Vec<EndArg>, String> =
            wanted.sources.iter().map(|word| read(word, Role::Source)).collect();
        let ends = ends?;
        let target = read(&wanted.target, Role::Target)?;
        let source_host = one_host(&ends)?;
        let port = ends.iter().chain([&target]).find_map(|end| end.port);
        not_host_to_host(source_host.as_deref(), target.host.as_deref())?;
        sources_agree(&ends)?;
        target_fits(&ends, &target, &wanted.settings)?;
        memory_suffices(&wanted.settings)?;
        can_read_back(&wanted.settings, &target)?;
        choices_agree(&wanted, &ends)?;
        mirror_fits(&wanted, &ends, &target)?;
        backup_fits(&wanted.settings, &target)?;
        filters_fit(&wanted.settings.filters)?;
        let settings = for_stores(&wanted, &ends, &target)?;
        let receipt = receipt(&wanted)?;
        let idle = idle(&wanted, source_host.is_some() || target.host.is_some());
        let compress = wanted.compress.unwrap_or_else(|| usual_compress(&ends));
        let channel = match target.location {
            Location::Stdio => Channel::Stderr,
            _ => Channel::Stdout,
        };
        let direction = match target.host {
            Some(_) => Direction::ToFar,
            None => Direction::ToHere,
        };
        Ok(Order {
            receipt,
            stores: wanted.stores,
            show: Show { channel, direction, ..wanted.show },
            idle,
            job: Job {
                sources: ends.into_iter().map(|end| end.location).collect(),
                source_host,
                target: target.location,
                target_host: target.host,
                settings: Settings { compress, ..settings },
                listed: wanted.files_from.map(|file| Listed { file, nul: wanted.files_from_nul }),
                range: None,
                remote: Remote {
                    ssh: ssh_to(wanted.remote.ssh.clone(), port, None),
                    ..wanted.remote
                },
            },
        })
    }
}

impl Show {
    /// On standard output, as for most commands.
    pub(super) fn of(typed: &Typed) -> Result<Show, String> {
        let is_set = |option| Ok::<_, String>(typed.maybe(option)?.unwrap_or(false));
        let (json, quiet) = (is_set(&showing::JSON)?, is_set(&showing::QUIET)?);
        let interval = typed.maybe(&showing::INTERVAL)?;
        let verbose = is_set(&showing::VERBOSE)?;
        if quiet && interval.is_some() {
            return Err(
                "--quiet shows no progress and --interval asks for it: leave one out".into()
            );
        }
        if quiet && verbose {
            return Err("--quiet and --verbose contradict each other: leave one out".into());
        }
        Ok(Show {
            form: if json { Form::Json } else { Form::Text },
            amount: match (quiet, verbose) {
                (true, _) => Amount::Quiet,
                (false, true) => Amount::Verbose,
                (false, false) => Amount::Usual,
            },
            channel: Channel::Stdout,
            direction: Direction::ToHere,
            interval,
        })
    }
}

/// Files and pipes are compressed where that pays off; generated data is there to measure with.
fn usual_compress(sources: &[EndArg]) -> Compress {
    let is_kept = |end: &EndArg| {
        matches!(end.location, Location::Path(_) | Location::Stdio | Location::Object(_))
    };
    if sources.iter().all(is_kept) { Compress::Auto } else { Compress::Off }
}

fn one_host(sources: &[EndArg]) -> Result<Option<String>, String> {
    let Some(first) = sources.first() else { return Ok(None) };
    let name = |end: &EndArg| match (&end.host, end.port) {
        (None, _) => "this host".into(),
        (Some(host), None) => host.clone(),
        (Some(host), Some(port)) => format!("{host}, port {port}"),
    };
    match sources.iter().find(|end| (&end.host, end.port) != (&first.host, first.port)) {
        Some(other) => Err(format!(
            "the sources are on different hosts ({} and {}): copy them one host at a time",
            name(first),
            name(other)
        )),
        None => Ok(first.host.clone()),
    }
}

fn not_host_to_host(source: Option<&str>, target: Option<&str>) -> Result<(), String> {
    match (source, target) {
        (Some(source), Some(target)) => Err(format!(
            "copying from {source} to {target} (host to host) is not supported: \
             run datapump on {source}, or copy to this host first"
        )),
        _ => Ok(()),
    }
}

/// A pipe or a generator must be the only source.
fn sources_agree(sources: &[EndArg]) -> Result<(), String> {
    let [_, _, ..] = sources else {
        return Ok(());
    };
    match sources
        .iter()
        .map(|end| &end.location)
        .find(|location| !matches!(location, Location::Path(_) | Location::Object(_)))
    {
        Some(Location::Stdio) => {
            Err("'-' (standard input) is copied alone: leave the other sources out".into())
        }
        Some(_) => {
            Err("null:, zero: and random: are copied alone: leave the other sources out".into())
        }
        None => Ok(()),
    }
}

/// Standard output takes one file and nothing else.
fn target_fits(sources: &[EndArg], target: &EndArg, settings: &Settings) -> Result<(), String> {
    if target.location != Location::Stdio {
        return Ok(());
    }
    if sources.len() > 1 {
        return Err(
            "'-' (standard output) takes one file: copy them one at a time, or to a folder".into(),
        );
    }
    let folder =
        |end: &EndArg| matches!(&end.location, Location::Path(path) if ends_in_slash(path));
    match settings.recursive || sources.iter().any(folder) {
        true => Err("'-' (standard output) takes one file, not a folder: leave out -r and the \
                     slash at the end, or copy to a folder"
            .into()),
        false => Ok(()),
    }
}

fn ends_in_slash(path: &Path) -> bool {
    path.as_os_str().as_encoded_bytes().ends_with(b"/")
}

/// Every stream needs a buffer for each request in flight, two at least, or nothing overlaps.
pub(crate) fn memory_suffices(settings: &Settings) -> Result<(), String> {
    let depth = settings.depth_source.max(settings.depth_sink).unwrap_or(0).max(2);
    let request = u64::from(settings.request_bytes) + u64::from(HEADROOM_BYTES);
    let needed = u64::from(settings.streams) * u64::from(depth) * request;
    match needed <= settings.memory_bytes {
        true => Ok(()),
        false => Err(format!(
            "{} with {depth} requests of {} each: {} of buffers, and --memory is {}: raise \
             --memory to {}, or lower --streams, --request-size or a depth",
            count(settings.streams.into(), "stream"),
            Bytes(settings.request_bytes.into()).typed(),
            Bytes(needed),
            Bytes(settings.memory_bytes).typed(),
            Bytes(needed.next_multiple_of(1 << 20)).typed(),
        )),
    }
}

fn choices_agree(wanted: &Wanted, sources: &[EndArg]) -> Result<(), String> {
    let preserve = wanted.settings.preserve;
    let why =
        match wanted {
            Wanted { settings: Settings { archive: true, .. }, .. } if !preserve => {
                "--archive keeps mode and time too and --no-preserve does not: leave one out"
            }
            Wanted { settings: Settings { user_rules, group_rules, .. }, .. }
                if !(preserve || user_rules.is_empty() && group_rules.is_empty()) =>
            {
                "--chown, --usermap and --groupmap keep mode and time too and --no-preserve does \
                 not: leave one out"
            }
            Wanted { preserve: Preserve::Asked, .. } if !preserve => {
                "--preserve and --no-preserve say the opposite: leave one out"
            }
            Wanted {
                settings: Settings { min_size: Some(min), max_size: Some(max), .. }, ..
            } if min > max => "--min-size is more than --max-size: no file can be both",
            Wanted { files_from: None, files_from_nul: true, .. } => {
                "--null is about the names of --files-from: write that too, or leave it out"
            }
            Wanted { files_from: Some(_), .. } if sources.len() > 1 || !is_path(sources) => {
                "--files-from names what is below one SRC folder: write one, and DST"
            }
            Wanted { settings: Settings { dry_run: true, .. }, .. } if is_pipe(sources) => {
                "--dry-run reads nothing, and what comes from '-' is known by reading only"
            }
            Wanted { settings: Settings { dry_run: true, .. }, manifest: Some(_), .. } => {
                "--dry-run copies nothing that --manifest could list: leave one out"
            }
            _ => return Ok(()),
        };
    Err(why.into())
}

/// What is deleted is in folders that are copied whole.
fn mirror_fits(wanted: &Wanted, sources: &[EndArg], target: &EndArg) -> Result<(), String> {
    let Settings { delete, delete_max, recursive, .. } = wanted.settings;
    let why = match delete {
        Delete::Off if delete_max.is_some() => {
            "--max-delete limits what --delete does: write that too, or leave it out"
        }
        Delete::Off => return Ok(()),
        _ if !recursive => "--delete is about the contents of folders: add -r",
        _ if wanted.files_from.is_some() => {
            "--delete needs all of a folder and --files-from names some of it: leave one out"
        }
        _ if matches!(target.location, Location::Object(_)) => {
            "--delete is for folders of hosts, and not for object stores yet: leave it out; \
             'datapump compare SRC DST' lists what only DST has"
        }
        _ if !is_path(sources) || !is_path(std::slice::from_ref(target)) => {
            "--delete makes a folder the mirror of another: SRC and DST must be folders"
        }
        _ => return Ok(()),
    };
    Err(why.into())
}

/// What is read again has been synced, has a digest, and is there to be read.
fn can_read_back(settings: &Settings, target: &EndArg) -> Result<(), String> {
    let is_store = matches!(target.location, Location::Object(_));
    let keeps = is_store || is_path(std::slice::from_ref(target));
    let why = match settings {
        Settings { digest_also, .. } if !keeps && digest_also.iter().any(|it| !it.combines()) => {
            "--digest-also md5 and sha256 read files again, and DST keeps nothing: leave them out"
        }
        Settings { verify: Verify::Received | Verify::Source, .. } => return Ok(()),
        Settings { digest: DigestKind::None, .. } => {
            "--verify disk compares digests and --digest none makes none: leave one out"
        }
        _ if !keeps => {
            "--verify disk reads again what has been written, and DST keeps nothing: leave it out"
        }
        Settings { fsync: Fsync::Off, .. } if !is_store => {
            "--verify disk reads what has been synced and --fsync off syncs nothing: leave one out"
        }
        _ => return Ok(()),
    };
    Err(why.into())
}

/// Something is replaced or deleted, and has a folder.
fn backup_fits(settings: &Settings, target: &EndArg) -> Result<(), String> {
    let Settings { backup_dir: Some(_), delete, overwrite, .. } = settings else { return Ok(()) };
    if !is_path(std::slice::from_ref(target)) {
        return Err("--backup-dir is a folder below DST, which is none here: leave it out".into());
    }
    match (delete, overwrite) {
        (Delete::Off, Overwrite::Never) => Err("--backup-dir keeps what is replaced or deleted, \
                                                and nothing is: add --overwrite or --delete"
            .into()),
        _ => Ok(()),
    }
}

fn is_path(sources: &[EndArg]) -> bool {
    sources.iter().all(|end| matches!(end.location, Location::Path(_)))
}

fn is_pipe(sources: &[EndArg]) -> bool {
    sources.iter().any(|end| end.location == Location::Stdio)
}

/// The patterns travel to the far side in one message.
fn filters_fit(filters: &[String]) -> Result<(), String> {
    let bytes: usize = filters.iter().map(String::len).sum();
    match bytes <= FILTER_BYTES_MAX && filters.len() <= FILTERS_MAX {
        true => Ok(()),
        false => Err(format!(
            "--exclude, --include and --exclude-from give {} patterns of {} in all, and \
             {FILTERS_MAX} of {} are allowed: write wider ones, or use --files-from",
            filters.len(),
            Bytes(bytes as u64),
            Bytes(FILTER_BYTES_MAX as u64)
        )),
    }
}

fn receipt(wanted: &Wanted) -> Result<Option<ReceiptOrder>, String> {
    match (&wanted.manifest, wanted.settings.digest) {
        (Some(_), DigestKind::None) => {
            Err("--manifest needs digests and --digest none makes none: write --digest blake3"
                .into())
        }
        (Some(path), _) => {
            Ok(Some(ReceiptOrder { path: path.clone(), overwrite: wanted.settings.overwrite }))
        }
        (None, _) => Ok(None),
    }
}

/// Options for the far side when there is none. Shell aliases set them, so this is no error.
fn idle(wanted: &Wanted, far_side: bool) -> Vec<String> {
    let mut idle: Vec<String> = wanted
        .about_far
        .iter()
        .filter(|_| !far_side)
        .map(|name| format!("--{name} has no effect: both ends are on this host"))
        .collect();
    let settings = &wanted.settings;
    if settings.skip_unchanged == SkipUnchanged::Times && !settings.preserve {
        idle.push(
            "--skip-unchanged and --update compare times that --no-preserve does not keep: \
             --checksum finds what is unchanged"
                .into(),
        );
    }
    if settings.numeric_ids && !settings.keeps_owners() {
        idle.push(
            "--numeric-ids is about owners, which are not kept: --archive (-A) keeps them".into(),
        );
    }
    idle
}

/// Options that need another host.
pub(super) const ABOUT_FAR: [&str; 8] =
    ["ssh", "port", "identity", "remote-datapump", "install", "ports", "addresses", "remote-cpus"];

#[cfg(test)]
mod tests {
    use super::*;
    use base::codec::Coding;

    fn order(line: &str) -> Result<Order, String> {
        let words = std::iter::once("datapump").chain(line.split_whitespace()).map(OsString::from);
        let typed = Typed::parse(&words.collect::<Vec<_>>()).unwrap();
        CopyArgs::of(&typed).map(|args| args.order)
    }

    /// Nobody's request size is changed, not even one that is the usual.
    #[test]
    fn parts_grow_only_where_no_request_size_is_typed() {
        let size = |line: &str| order(line).unwrap().stores.part_size;
        assert_eq!(size("copy a s3://bucket/k"), PartSize::ByLength);
        assert_eq!(size("copy a s3://bucket/k --request-size 8M"), PartSize::AsRequests);
    }

    /// The same of how many are under way.
    #[test]
    fn requests_follow_what_they_move_only_where_no_depth_is_typed() {
        let requests = |line: &str| order(line).unwrap().stores.requests;
        assert_eq!(requests("copy a s3://bucket/k --streams 8"), s3::Requests::ByRate);
        for depth in ["--depth-sink 2", "--depth-source 2"] {
            let line = format!("copy a s3://bucket/k {depth}");
            assert_eq!(requests(&line), s3::Requests::AsAsked);
        }
    }

    #[test]
    fn what_is_meant() {
        let push = order("copy -r a b/ me@h:c --manifest m").unwrap();
        assert_eq!(push.job.sources, [Location::Path("a".into()), Location::Path("b/".into())]);
        assert_eq!((push.job.source_host, push.job.target_host), (None, Some("me@h".into())));
        assert_eq!(push.receipt.unwrap().path, PathBuf::from("m"));
        assert_eq!(push.show.channel, Channel::Stdout);
        let pull = order("copy h:a h:b . --json -q").unwrap();
        assert_eq!((pull.job.source_host, pull.job.target_host), (Some("h".into()), None));
        assert_eq!((pull.show.form, pull.show.amount), (Form::Json, Amount::Quiet));
        assert_eq!(order("copy h:a -").unwrap().show.channel, Channel::Stderr);
        for fine in
            ["copy - h:a", "copy - -", "copy null:1G h:null:", "copy a b null:", "copy -r a null:"]
        {
            assert_eq!(order(fine).map(|order| order.idle), Ok(vec![]), "{fine}");
        }
        let idle = order("copy a b -Z 1-2 --ssh ssh").unwrap().idle;
        assert_eq!(idle.len(), 2);
        assert_eq!(order("copy a b --skip-unchanged --no-preserve").unwrap().idle.len(), 1);
    }

    #[test]
    fn who_gets_files_and_where_old_ones_go() {
        let settings = |line: &str| order(line).unwrap().job.settings;
        let rules = |line: &str| {
            let Settings { user_rules, group_rules, .. } = settings(line);
            (OwnerRule::typed_all(&user_rules), OwnerRule::typed_all(&group_rules))
        };
        let cases = [
            ("copy a b -A", "", ""),
            ("copy a b --chown me:us", "*:me", "*:us"),
            ("copy a b --chown :us --usermap a:b,:0", "a:b,:0", "*:us"),
            ("copy a b --chown me --groupmap 1-9:us", "*:me", "1-9:us"),
        ];
        for (line, users, groups) in cases {
            assert_eq!(rules(line), (users.into(), groups.into()), "{line}");
        }
        for (typed, expect) in [("old", "old"), ("./old//er/", "old/er"), (".old", ".old")] {
            let line = format!("copy a b --overwrite older --backup-dir {typed}");
            assert_eq!(settings(&line).backup_dir.as_deref(), Some(expect), "{typed}");
        }
        assert_eq!(order("copy a b --numeric-ids").unwrap().idle.len(), 1);
        assert_eq!(order("copy a b --numeric-ids -A").unwrap().idle.len(), 0);
    }

    #[test]
    fn the_port_and_the_key_are_told_to_ssh() {
        let ssh = |line: &str| order(line).unwrap().job.remote.ssh.map(|words| words.join(" "));
        let cases = [
            ("copy a h:", None),
            ("copy a h: --ssh mine", Some("mine")),
            ("copy a h: -P 22", Some("ssh -p 22")),
            ("copy a h: --port 22 -i key", Some("ssh -p 22 -i key")),
            ("copy a ssh://h:23/b", Some("ssh -p 23")),
            // ssh takes the first of two ports.
            ("copy ssh://h:23/b . --port 22", Some("ssh -p 23 -p 22")),
        ];
        for (line, expect) in cases {
            assert_eq!(ssh(line).as_deref(), expect, "{line}");
        }
        let words = ["datapump", "copy", "a", "h:", "-P", "22", "--ssh", "ssh -F f"];
        let typed = Typed::parse(&words.map(OsString::from)).unwrap();
        let remote = CopyArgs::of(&typed).unwrap().order.job.remote;
        assert_eq!(remote.ssh.unwrap().join(" "), "ssh -p 22 -F f");
    }

    #[test]
    fn what_is_kept_is_compressed_unless_it_is_typed() {
        let cases = [
            ("copy a b h:", Compress::Auto),
            ("copy h:a .", Compress::Auto),
            ("copy - h:a", Compress::Auto),
            ("copy null:1G h:null:", Compress::Off),
            ("copy zero:1G h:null:", Compress::Off),
            ("copy text:1G h:a", Compress::Off),
            ("copy text:1G h:a --compress auto", Compress::Auto),
            ("copy a h: --compress off", Compress::Off),
            ("copy a h: --compress lz4", Compress::Always(Coding::Lz4)),
        ];
        for (line, expect) in cases {
            assert_eq!(order(line).unwrap().job.settings.compress, expect, "{line}");
        }
    }

    #[test]
    fn conflicts_have_names() {
        let cases = [
            ("copy h:a g:b", "copying from h to g (host to host) is not supported"),
            ("copy h:a h:b", "copying from h to h (host to host)"),
            ("copy h:a g:b c", "the sources are on different hosts (h and g)"),
            (
                "copy ssh://h:22/a h:b c",
                "the sources are on different hosts (h, port 22 and h): copy them",
            ),
            ("copy a h:b c", "the sources are on different hosts (this host and h)"),
            ("copy - a b", "'-' (standard input) is copied alone"),
            ("copy a zero:1 b", "null:, zero: and random: are copied alone"),
            ("copy null: b", "null: as a source needs a size: write null:4G"),
            ("copy a null:4G", "null: accepts any amount of data: write null: without a size"),
            ("copy a zero:", "zero: only generates data"),
            ("copy a b -", "'-' (standard output) takes one file: copy them one at a time"),
            ("copy -r a -", "'-' (standard output) takes one file, not a folder"),
            ("copy h:a/ -", "'-' (standard output) takes one file, not a folder"),
            ("copy a b --digest none --manifest m", "--manifest needs digests"),
            ("copy a b -A --no-preserve", "--archive keeps mode and time too"),
            ("copy a b -p --no-preserve", "--preserve and --no-preserve say the opposite"),
            ("copy a b c --files-from l", "--files-from names what is below one SRC folder"),
            ("copy - b -n", "--dry-run reads nothing"),
            ("copy a b --delete", "--delete is about the contents of folders: add -r"),
            ("copy a b --max-delete 3", "--max-delete limits what --delete does"),
            ("copy -r a b --delete --files-from l", "--delete needs all of a folder"),
            ("copy -r - b --delete-excluded", "--delete makes a folder the mirror of another"),
            ("copy a b --chown a --no-preserve", "--chown, --usermap and --groupmap keep mode and"),
            ("copy a b --chown a --usermap b:c", "--chown says who gets all files and --usermap"),
            ("copy a b --chown :a --groupmap b:c", "--chown says who gets all files and --group"),
            ("copy a b --backup-dir old", "--backup-dir keeps what is replaced or deleted, and no"),
            ("copy a - --backup-dir o --overwrite always", "--backup-dir is a folder below DST"),
            ("copy a b --min-size 2K --max-size 1K", "--min-size is more than --max-size"),
            ("copy a b --newer /nowhere", "--newer '/nowhere' is no file (No such file"),
            ("copy a b -0", "--null is about the names of --files-from"),
            ("copy a b -n --manifest m", "--dry-run copies nothing"),
            ("copy a b -q --interval 1", "--quiet shows no progress and --interval asks for it"),
            (
                "copy a b -s 64 --request-size 16M",
                "64 streams with 2 requests of 16M each: 2.00 GiB of buffers, and --memory is \
                 256M: raise --memory to 2049M",
            ),
            (
                "copy a b -s 1 --request-size 256M",
                "1 stream with 2 requests of 256M each: 512.01 MiB of buffers, and --memory is",
            ),
        ];
        for (line, expect) in cases {
            let why = order(line).unwrap_err();
            assert!(why.starts_with(expect), "{line}: {why}");
        }
    }
}
