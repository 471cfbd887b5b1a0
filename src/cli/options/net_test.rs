//! The options of a net test.

use super::kind::{Kind, Limits};
use super::{AnyOption, CliOption, Group};
use crate::cli::command_id::CommandId;
use base::settings::Seal;
use base::units::Nanos;

const NET_TEST: &[CommandId] = &[CommandId::NetTest];

/// In the order of `--help`.
pub(crate) const TABLE: &[&dyn AnyOption] =
    &[&TIME, &OMIT, &INTERVAL, &REVERSE, &BIDIR, &STREAMS, &SEAL, &REQUEST_SIZE, &UDP];

pub(crate) static TIME: CliOption<Nanos> = CliOption {
    name: "time",
    letter: Some('t'),
    value: "SECONDS",
    kind: Kind::Seconds(|time| time),
    default: "",
    help: "How long the path is tested [default: 10]",
    more: "What has been begun then is still sent, and does not count.",
    group: Group::NetTest,
    commands: NET_TEST,
};

pub(crate) static OMIT: CliOption<Nanos> = CliOption {
    name: "omit",
    letter: Some('O'),
    value: "SECONDS",
    kind: Kind::Seconds(|time| time),
    default: "",
    help: "Do not count so much at the beginning, which comes in front of --time",
    more: "TCP finds out first what the path carries.",
    group: Group::NetTest,
    commands: NET_TEST,
};

pub(crate) static INTERVAL: CliOption<Nanos> = CliOption {
    name: "interval",
    letter: Some('i'),
    value: "SECONDS",
    kind: Kind::Seconds(|time| time),
    default: "",
    help: "How long an interval is, of which there is a line [default: 1]",
    more: "",
    group: Group::NetTest,
    commands: NET_TEST,
};

pub(crate) static REVERSE: CliOption<bool> = CliOption {
    name: "reverse",
    letter: Some('R'),
    value: "",
    kind: Kind::Flag(|| true),
    default: "",
    help: "The far host sends, this one receives",
    more: "",
    group: Group::NetTest,
    commands: NET_TEST,
};

pub(crate) static BIDIR: CliOption<bool> = CliOption {
    name: "bidir",
    letter: None,
    value: "",
    kind: Kind::Flag(|| true),
    default: "",
    help: "Both directions at once, each with a result of its own",
    more: "Each has its own login.",
    group: Group::NetTest,
    commands: NET_TEST,
};

pub(crate) static STREAMS: CliOption<u16> = CliOption {
    name: "streams",
    letter: Some('s'),
    value: "N",
    kind: Kind::Number(Limits::STREAMS, |n| n as u16),
    default: "",
    help: "TCP streams side by side, in each direction [default: 1]",
    more: "copy uses 4 where nothing is said.",
    group: Group::NetTest,
    commands: NET_TEST,
};

pub(crate) static SEAL: CliOption<Seal> = CliOption {
    name: "seal",
    letter: None,
    value: "HOW",
    kind: Kind::Choice(Seal::NAMES, |i| Seal::ALL[i]),
    default: "",
    help: "How the streams are protected [default: off]",
    more: "The path is what is tested, so its bytes are clear. tls is what copy does, and \
           measures what that costs too.",
    group: Group::NetTest,
    commands: NET_TEST,
};

pub(crate) static REQUEST_SIZE: CliOption<u32> = CliOption {
    name: "request-size",
    letter: None,
    value: "SIZE",
    kind: Kind::Number(Limits::REQUEST_BYTES, |n| n as u32),
    default: "",
    help: "Bytes that one request moves [default: 128K]",
    more: "At the end, what has been begun is still sent: of small requests that is less.",
    group: Group::NetTest,
    commands: NET_TEST,
};

pub(crate) static UDP: CliOption<bool> = CliOption {
    name: "udp",
    letter: Some('u'),
    value: "",
    kind: Kind::Flag(|| true),
    default: "",
    help: "Refused: datapump moves bytes over TCP",
    more: "",
    group: Group::NetTest,
    commands: NET_TEST,
};
