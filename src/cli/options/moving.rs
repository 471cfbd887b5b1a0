//! The options that say how bytes move.

use super::kind::{Kind, Limits};
use super::{AnyOption, COPY, COPYING, CliOption, Group, MOVING, SWEPT};
use crate::cli::command_id::CommandId;
use base::codec::{COMPRESS_PHRASE, Compress};
use base::cpus::Cpus;
use base::dscp::{DSCP_PHRASE, Dscp};
use base::settings::{DigestKind, LOCKSTEP_PHRASE, Lockstep, PACE_PHRASE, Pace, Receive, Seal};
use base::units::{Nanos, Rate};

const PLANNED: &[CommandId] = &[CommandId::Copy, CommandId::Demo, CommandId::ModelPredict];
const PINNED: &[CommandId] = &[
    CommandId::Copy,
    CommandId::Measure,
    CommandId::MeasureCodec,
    CommandId::NetTest,
    CommandId::Peer,
];
const SEALED: &[CommandId] = &[CommandId::Copy, CommandId::Demo, CommandId::Sweep];
const WINDOWED: &[CommandId] =
    &[CommandId::Copy, CommandId::Demo, CommandId::Measure, CommandId::NetTest];

/// In the order of `--help`.
pub(crate) const TABLE: &[&dyn AnyOption] = &[
    &STREAMS,
    &REQUEST_SIZE,
    &DEPTH_SOURCE,
    &DEPTH_SINK,
    &RATE,
    &SEAL,
    &DIGEST,
    &CPUS,
    &STALL,
    &RECEIVE,
    &PROFILE,
    &WINDOW,
    &CONGESTION,
    &PACE,
    &COMPRESS,
    &DSCP,
    &LOCKSTEP,
];

pub(crate) static STREAMS: CliOption<u16> = CliOption {
    name: "streams",
    letter: Some('s'),
    value: "N",
    kind: Kind::Number(Limits::STREAMS, |n| n as u16),
    default: "4",
    help: "TCP streams side by side",
    more: "",
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
    more: "",
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
    help: "Upper limit of all streams together",
    more: "The unit is always spelled out: 100Mbit is bits a second (decimal), 80MB bytes a \
           second (decimal), 80M bytes a second (binary).",
    group: Group::Moving,
    commands: MOVING,
};

pub(crate) static SEAL: CliOption<Seal> = CliOption {
    name: "seal",
    letter: None,
    value: "HOW",
    kind: Kind::Choice(Seal::NAMES, |i| Seal::ALL[i]),
    default: "tls",
    help: "How the streams are protected",
    more: "tls: TLS 1.3, both sides' keys made for this transfer. auth: clear text, each \
           block with a keyed tag: tamper-evident, not secret. off: clear text for a wire \
           you trust; strangers are still refused.",
    group: Group::Moving,
    commands: SEALED,
};

pub(crate) static DIGEST: CliOption<DigestKind> = CliOption {
    name: "digest",
    letter: None,
    value: "WHICH",
    kind: Kind::Choice(DigestKind::NAMES, |i| DigestKind::ALL[i]),
    default: "blake3",
    help: "The digest that is checked before a file gets its name",
    more: "",
    group: Group::Moving,
    commands: SEALED,
};

pub(crate) static CPUS: CliOption<Cpus> = CliOption {
    name: "cpus",
    letter: None,
    value: "LIST",
    kind: Kind::Cpus(|cpus| cpus),
    default: "",
    help: "Hold this side to these CPUs",
    more: "As 'taskset' does: what the kernel's own threads do for it may be elsewhere.",
    group: Group::Moving,
    commands: PINNED,
};

pub(crate) static STALL: CliOption<Nanos> = CliOption {
    name: "stall",
    letter: None,
    value: "SECONDS",
    kind: Kind::Seconds(|time| time),
    default: "10",
    help: "How long a stream may move nothing before it is replaced",
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
    help: "How bodies are taken off a socket",
    more: "waitall lets one call wait for a whole request; any takes what has come, so that \
           there are more calls. For measuring; sealed streams take what has come anyway.",
    group: Group::Moving,
    commands: COPYING,
};

pub(crate) static PROFILE: CliOption<String> = CliOption {
    name: "profile",
    letter: None,
    value: "NAME",
    kind: Kind::Text(|text| text),
    default: "",
    help: "Options that are kept under this name, usually that of the host",
    more: "'datapump sweep profile' writes what was best there, one option a line, in \
           $XDG_CONFIG_HOME/datapump/profiles or ~/.config/datapump/profiles. A name with a \
           slash is a file. What is typed beside it counts.",
    group: Group::Moving,
    commands: COPY,
};

pub(crate) static WINDOW: CliOption<Option<u32>> = CliOption {
    name: "window",
    letter: Some('w'),
    value: "SIZE",
    kind: Kind::NumberOr("auto", Limits::WINDOW_BYTES, |n| n.map(|n| n as u32)),
    default: "auto",
    help: "TCP window of each stream",
    more: "The receiving side advertises it; the summary shows what the sending side saw. \
           A warning names the kernel's limit (net.core.rmem_max, wmem_max) where that is \
           less. auto leaves it to TCP, which suits most paths.",
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
    more: "default is what each host's kernel is set to.",
    group: Group::Moving,
    commands: SWEPT,
};

pub(crate) static PACE: CliOption<Pace> = CliOption {
    name: "pace",
    letter: None,
    value: "RATE",
    kind: Kind::Parsed(PACE_PHRASE, Pace::parse),
    default: "auto",
    help: "Space what TCP sends at this rate of all streams together",
    more: "Bursts that overflow a queue on the path are lost; spaced they are not. auto lets \
           TCP space what it sends where a round trip takes 2 ms and more, and sets a pace \
           below what the path delivers once bursts are lost all the same. off leaves it to \
           the congestion control.",
    group: Group::Moving,
    commands: SWEPT,
};

pub(crate) static COMPRESS: CliOption<Compress> = CliOption {
    name: "compress",
    letter: None,
    value: "HOW",
    kind: Kind::Parsed(COMPRESS_PHRASE, Compress::parse),
    default: "",
    help: "Pack what goes over the network [default: auto]",
    more: "Worth it where the network is slower than a processor packs. auto finds out, for \
           each request, whether and how; on a fast network it tries now and then, and else \
           leaves the bytes as they are. Left out, null:, zero:, random: and other data that \
           is made up go as they are: they are there to measure with. All processors pack, \
           for one stream too, and unpack at the other end. What does not shrink goes as it \
           is. zlib has the levels of gzip (0 is off), zstd those of zstd. How long packed \
           data is can be seen on the wire: off is for where somebody may both see that and \
           choose some of the data.",
    group: Group::Moving,
    commands: MOVING,
};

pub(crate) static DSCP: CliOption<Dscp> = CliOption {
    name: "dscp",
    letter: None,
    value: "MARK",
    kind: Kind::Parsed(DSCP_PHRASE, Dscp::parse),
    default: "",
    help: "Mark the data streams for the network",
    more: "What routers make of it is theirs: le asks for what is left over. The ssh \
           connection keeps its own mark.",
    group: Group::Moving,
    commands: SWEPT,
};

pub(crate) static LOCKSTEP: CliOption<Lockstep> = CliOption {
    name: "lockstep",
    letter: None,
    value: "SIZE:TIME",
    kind: Kind::Parsed(LOCKSTEP_PHRASE, Lockstep::parse),
    default: "",
    help: "For the lab: stop after each SIZE of a stream until all is there, and TIME more",
    more: "How movers behave that hand over one block at a time, to see what it costs. Never \
           useful for copying.",
    group: Group::Moving,
    commands: MOVING,
};
