//! The options that say how bytes move.

use std::path::PathBuf;

use super::kind::{Kind, Limits};
use super::{AnyOption, COPY, COPYING, CliOption, Group, MOVING, SWEPT};
use crate::cli::command_id::CommandId;
use base::codec::{COMPRESS_PHRASE, Compress};
use base::cpus::Cpus;
use base::dscp::{DSCP_PHRASE, Dscp};
use base::extra::ExtraDigests;
use base::schedule::{RateSchedule, SCHEDULE_PHRASE};
use base::settings::{
    DigestKind, LOCKSTEP_PHRASE, Lockstep, PACE_PHRASE, Pace, Receive, Seal, Verify,
};
use base::units::{Nanos, Rate};

const PLANNED: &[CommandId] =
    &[CommandId::Copy, CommandId::Demo, CommandId::ModelPredict, CommandId::Spread];
const RATED: &[CommandId] = &[CommandId::Copy, CommandId::Demo, CommandId::Spread];
const PINNED: &[CommandId] = &[
    CommandId::Copy,
    CommandId::Measure,
    CommandId::MeasureCodec,
    CommandId::NetTest,
    CommandId::Peer,
];
const SEALED: &[CommandId] = &[CommandId::Copy, CommandId::Demo, CommandId::Sweep];
const CONFIGURED: &[CommandId] = &[
    CommandId::Copy,
    CommandId::Verify,
    CommandId::Compare,
    CommandId::Ls,
    CommandId::NetTest,
    CommandId::ModelPredict,
    CommandId::Doctor,
    CommandId::Spread,
    CommandId::SpreadResume,
    CommandId::SpreadCancel,
    CommandId::ConfigShow,
];
const WINDOWED: &[CommandId] =
    &[CommandId::Copy, CommandId::Demo, CommandId::Measure, CommandId::NetTest];

/// In the order of `--help`.
pub(crate) const TABLE: &[&dyn AnyOption] = &[
    &STREAMS,
    &REQUEST_SIZE,
    &DEPTH_SOURCE,
    &DEPTH_SINK,
    &RATE,
    &RATE_SCHEDULE,
    &SEAL,
    &DIGEST,
    &VERIFY,
    &DIGEST_ALSO,
    &CPUS,
    &STALL,
    &RECEIVE,
    &PROFILE,
    &CONFIG,
    &WINDOW,
    &CONGESTION,
    &PACE,
    &COMPRESS,
    &DSCP,
    &LOCKSTEP,
];

pub(crate) static STREAMS: CliOption<Option<u16>> = CliOption {
    name: "streams",
    letter: Some('s'),
    value: "N",
    kind: Kind::NumberOr("auto", Limits::STREAMS, |n| n.map(|n| n as u16)),
    default: "4",
    help: "Number of parallel TCP streams; auto: chosen while the copy runs",
    more: "Not given and with both ends on this host, no more than it has CPUs. auto begins with 4 \
           or with what the newest such copy over this path was settled at; more are opened where \
           a window, losses or a CPU hold each stream back, and stay if they are faster. 'datapump \
           explain' tells each step. demo, spread and model predict take auto as 4.",
    group: Group::Moving,
    commands: PLANNED,
};

pub(crate) static REQUEST_SIZE: CliOption<u32> = CliOption {
    name: "request-size",
    letter: None,
    value: "SIZE",
    kind: Kind::Number(Limits::REQUEST_BYTES, |n| n as u32),
    default: "1M",
    help: "Bytes that one request moves",
    more: "Not given, it is smaller where --memory has no room for the requests of more than 4 \
           streams; --streams auto counts as 64.",
    group: Group::Moving,
    commands: MOVING,
};

pub(crate) static DEPTH_SOURCE: CliOption<Option<u16>> = CliOption {
    name: "depth-source",
    letter: None,
    value: "N",
    kind: Kind::NumberOr("auto", Limits::DEPTH, |n| n.map(|n| n as u16)),
    default: "auto",
    help: "Requests in flight at the source, for each stream",
    more: "",
    group: Group::Moving,
    commands: MOVING,
};

pub(crate) static DEPTH_SINK: CliOption<Option<u16>> = CliOption {
    name: "depth-sink",
    letter: None,
    value: "N",
    kind: Kind::NumberOr("auto", Limits::DEPTH, |n| n.map(|n| n as u16)),
    default: "auto",
    help: "Requests in flight at the sink, for each stream",
    more: "",
    group: Group::Moving,
    commands: MOVING,
};

pub(crate) static RATE: CliOption<Option<Rate>> = CliOption {
    name: "rate",
    letter: None,
    value: "RATE",
    kind: Kind::RateOr("unlimited", |rate| rate),
    default: "unlimited",
    help: "Maximum rate of all streams together",
    more: "The unit is required: 100Mbit is bits per second (decimal), 80MB bytes per second \
           (decimal), 80M bytes per second (binary). 10m is refused, as it is bits to iperf3 and \
           bytes to rsync. The workers of a spread share it evenly.",
    group: Group::Moving,
    commands: RATED,
};

pub(crate) static RATE_SCHEDULE: CliOption<RateSchedule> = CliOption {
    name: "rate-schedule",
    letter: None,
    value: "TIMES",
    kind: Kind::Parsed(SCHEDULE_PHRASE, RateSchedule::parse),
    default: "",
    help: "Maximum rates by the time of day or of the week",
    more: "'08:00,20MB 18:00,unlimited Sat-00:00,unlimited' limits copies in office hours. A rate \
           holds until the next time; a time without a day is of every day. Times are of this \
           host's clock. It counts instead of --rate, also while a copy runs; 'datapump limit' \
           counts until the next time.",
    group: Group::Moving,
    commands: COPY,
};

pub(crate) static SEAL: CliOption<Seal> = CliOption {
    name: "seal",
    letter: None,
    value: "HOW",
    kind: Kind::Choice(Seal::NAMES, |i| Seal::ALL[i]),
    default: "tls",
    help: "How the streams are protected",
    more: "tls: encrypted (AES-128-GCM, or ChaCha20-Poly1305 without AES in the processor), with \
           keys of a TLS 1.3 handshake that both sides make for this transfer. auth: clear text, \
           each block with a keyed tag: changes are detected, but the data is not secret. off: \
           clear text, for trusted networks; other clients are still refused.",
    group: Group::Moving,
    commands: SEALED,
};

pub(crate) static DIGEST: CliOption<DigestKind> = CliOption {
    name: "digest",
    letter: None,
    value: "WHICH",
    kind: Kind::Choice(DigestKind::NAMES, |i| DigestKind::ALL[i]),
    default: "blake3",
    help: "The digest that every block is checked against",
    more: "A file gets its final name only when all of its bytes have matched.",
    group: Group::Moving,
    commands: SEALED,
};

pub(crate) static VERIFY: CliOption<Verify> = CliOption {
    name: "verify",
    letter: None,
    value: "WHAT",
    kind: Kind::Choice(Verify::NAMES, |i| Verify::ALL[i]),
    default: "received",
    help: "Which bytes are compared: those of the source, those received, those of the disk",
    more: "received: those that the source reads and again those that arrive. source: the first \
           alone; under --seal tls their digests travel with the bytes, and the sink checks a \
           CRC-64 of what arrives. disk: as received, and each file is read again past the page \
           cache when it is synced; only one that is right gets its final name. An object of a \
           store is read again when it is complete, and deleted where it is wrong.",
    group: Group::Moving,
    commands: SEALED,
};

pub(crate) static DIGEST_ALSO: CliOption<ExtraDigests> = CliOption {
    name: "digest-also",
    letter: None,
    value: "LIST",
    kind: Kind::Parsed(EXTRA_PHRASE, |text| {
        ExtraDigests::parse(text).ok_or_else(|| format!("write {EXTRA_PHRASE}"))
    }),
    default: "",
    help: "Compute these digests besides, for archives that keep them",
    more: "Each is a list beside the receipt (--manifest sums: sums.md5), extended attributes \
           of the file (user.checksum.NAME, and user.XrdCks.NAME as XRootD has it) or tags of \
           the object (checksum.NAME). adler32 and crc32c are computed as the bytes pass. md5 \
           and sha256 need them in their order: a file of several requests is read once more \
           for these.",
    group: Group::Moving,
    commands: COPY,
};

const EXTRA_PHRASE: &str = "adler32, crc32c, md5, sha256, or several with commas between them";

pub(crate) static CPUS: CliOption<Cpus> = CliOption {
    name: "cpus",
    letter: None,
    value: "LIST",
    kind: Kind::Cpus(|cpus| cpus),
    default: "",
    help: "Bind this side to these CPUs",
    more: "As 'taskset' does: kernel threads may run elsewhere.",
    group: Group::Moving,
    commands: PINNED,
};

pub(crate) static STALL: CliOption<Nanos> = CliOption {
    name: "stall",
    letter: None,
    value: "SECONDS",
    kind: Kind::Seconds(|time| time),
    default: "10",
    help: "Time without progress after which a stream is replaced",
    more: "",
    group: Group::Moving,
    commands: SEALED,
};

pub(crate) static RECEIVE: CliOption<Receive> = CliOption {
    name: "receive",
    letter: None,
    value: "HOW",
    kind: Kind::Choice(Receive::NAMES, |i| Receive::ALL[i]),
    default: "waitall",
    help: "How data is read from a socket",
    more: "waitall: one call waits for a whole request. any: a call returns what has arrived, \
           so there are more calls. For measurements.",
    group: Group::Moving,
    commands: COPYING,
};

pub(crate) static PROFILE: CliOption<String> = CliOption {
    name: "profile",
    letter: None,
    value: "NAME",
    kind: Kind::Text(|text| text),
    default: "",
    help: "Use the options that are saved under this name, usually that of the host",
    more: "'datapump sweep profile' saves the best settings of each host, one option per line, \
           in $XDG_CONFIG_HOME/datapump/profiles or ~/.config/datapump/profiles. A name with a \
           slash is a file. Options that stand beside it, here or in the configuration file, take \
           precedence.",
    group: Group::Moving,
    commands: COPY,
};

pub(crate) static CONFIG: CliOption<PathBuf> = CliOption {
    name: "config",
    letter: None,
    value: "FILE",
    kind: Kind::Path(|path| path),
    default: "",
    help: "Read this configuration file instead of the usual one; none: read no file",
    more: "The usual one is $XDG_CONFIG_HOME/datapump/config.toml, or \
           ~/.config/datapump/config.toml. It has options for all hosts below [defaults], and for \
           some below [host.\"PATTERN\"]. Options on the command line take precedence, then \
           variables such as DATAPUMP_STREAMS. 'datapump config show HOST' shows what counts.",
    group: Group::Moving,
    commands: CONFIGURED,
};

pub(crate) static WINDOW: CliOption<Option<u32>> = CliOption {
    name: "window",
    letter: Some('w'),
    value: "SIZE",
    kind: Kind::NumberOr("auto", Limits::WINDOW_BYTES, |n| n.map(|n| n as u32)),
    default: "auto",
    help: "TCP window of each stream",
    more: "The receiving side advertises it; 'datapump results show' has what the sending side \
           saw. A warning names the kernel's limit (net.core.rmem_max, wmem_max) if it is lower. \
           auto leaves it to TCP, which suits most paths.",
    group: Group::Moving,
    commands: WINDOWED,
};

pub(crate) static CONGESTION: CliOption<Option<String>> = CliOption {
    name: "congestion",
    letter: None,
    value: "NAME",
    kind: Kind::NameOr("default", |name| name),
    default: "default",
    help: "TCP congestion control, such as cubic or bbr",
    more: "default: the setting of each host's kernel.",
    group: Group::Moving,
    commands: SWEPT,
};

pub(crate) static PACE: CliOption<Pace> = CliOption {
    name: "pace",
    letter: None,
    value: "RATE",
    kind: Kind::Parsed(PACE_PHRASE, Pace::parse),
    default: "auto",
    help: "Pace TCP at this rate of all streams together",
    more: "Bursts that overflow a queue on the path are lost; paced segments are not. auto \
           lets TCP pace if a round trip takes 2 ms or more, and sets a rate below that of the \
           path if bursts are still lost. off leaves pacing to the congestion control. scavenger \
           is an experiment: it gives way to other traffic, but needs seconds to come back, and \
           where the queue of the path is very short it may take half of it.",
    group: Group::Moving,
    commands: SWEPT,
};

pub(crate) static COMPRESS: CliOption<Compress> = CliOption {
    name: "compress",
    letter: None,
    value: "HOW",
    kind: Kind::Parsed(COMPRESS_PHRASE, Compress::parse),
    default: "",
    help: "Compress network data [default: auto]",
    more: "Useful if the network is slower than a CPU compresses. auto decides for each \
           request whether and how; on a fast network it tries from time to time, and \
           otherwise sends data uncompressed. null:, zero:, random: and synthetic data is not \
           compressed by default, as it is for measurements. All CPUs compress, also for one \
           stream, and decompress at the other end; incompressible data is sent uncompressed. \
           zlib has the levels of gzip (0 is off), zstd those of zstd. The length of \
           compressed data can be seen on the network: use off if somebody can see it and also \
           choose part of the data.",
    group: Group::Moving,
    commands: MOVING,
};

pub(crate) static DSCP: CliOption<Dscp> = CliOption {
    name: "dscp",
    letter: None,
    value: "MARK",
    kind: Kind::Parsed(DSCP_PHRASE, Dscp::parse),
    default: "",
    help: "DSCP mark of the data streams",
    more: "Routers decide what to do with it; le asks for lower priority than other traffic. \
           The ssh connection keeps its own mark.",
    group: Group::Moving,
    commands: SWEPT,
};

pub(crate) static LOCKSTEP: CliOption<Lockstep> = CliOption {
    name: "lockstep",
    letter: None,
    value: "SIZE:TIME",
    kind: Kind::Parsed(LOCKSTEP_PHRASE, Lockstep::parse),
    default: "",
    help: "For experiments: send one block of SIZE, wait until it has arrived and TIME longer",
    more: "On each stream. It shows what it costs to move one block at a time, as some \
           programs do. Never useful for copying.",
    group: Group::Moving,
    commands: MOVING,
};
