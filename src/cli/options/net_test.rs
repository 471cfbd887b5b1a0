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
    help: "Duration of the test [default: 10]",
    more: "Requests in flight at the end are still sent, and do not count.",
    group: Group::NetTest,
    commands: NET_TEST,
};

pub(crate) static OMIT: CliOption<Nanos> = CliOption {
    name: "omit",
    letter: Some('O'),
    value: "SECONDS",
    kind: Kind::Seconds(|time| time),
    default: "",
    help: "Ignore this time at the beginning, before --time",
    more: "TCP first needs time to reach the rate of the path.",
    group: Group::NetTest,
    commands: NET_TEST,
};

pub(crate) static INTERVAL: CliOption<Nanos> = CliOption {
    name: "interval",
    letter: Some('i'),
    value: "SECONDS",
    kind: Kind::Seconds(|time| time),
    default: "",
    help: "Length of an interval; one line is printed for each [default: 1]",
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
    help: "Both directions at once, each with its own result",
    more: "Each direction has its own ssh login.",
    group: Group::NetTest,
    commands: NET_TEST,
};

pub(crate) static STREAMS: CliOption<u16> = CliOption {
    name: "streams",
    letter: Some('s'),
    value: "N",
    kind: Kind::Number(Limits::STREAMS, |n| n as u16),
    default: "",
    help: "Number of parallel TCP streams in each direction [default: 1]",
    more: "The default of copy is 4.",
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
    more: "The test is about the path, so data is not encrypted. tls is the default of copy; \
           with it, the test measures its cost too.",
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
    more: "Requests in flight at the end are still sent: small ones take less time.",
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
