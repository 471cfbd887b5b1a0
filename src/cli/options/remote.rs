//! The options of the other host.

use std::path::PathBuf;

use super::kind::{Kind, Limits};
use super::{AnyOption, COPY, COPYING, CliOption, Group};
use crate::cli::command_id::CommandId;
use base::addresses::{ADDRESSES_PHRASE, AddressList};
use base::cpus::Cpus;
use base::job::Install;
use base::settings::Seal;
use base::units::Nanos;

/// Those that log in to another host, without `copy`.
const FAR_BUT_COPY: &[CommandId] = &[
    CommandId::Measure,
    CommandId::NetTest,
    CommandId::ModelPredict,
    CommandId::Doctor,
    CommandId::Sweep,
];

/// Those that ask the program there something, and move no data.
const ASKING: &[CommandId] = &[CommandId::Verify, CommandId::Compare, CommandId::Ls];

/// Both, whose options have no letters.
const THERE: &[CommandId] = &together::<8>(FAR_BUT_COPY, ASKING);

/// Without the commands of a spread.
const FAR: &[CommandId] = &together::<6>(COPY, FAR_BUT_COPY);

/// What starts a program there.
const FAR_PROGRAM: &[CommandId] =
    &together::<10>(&together::<7>(FAR, &[CommandId::Spread]), ASKING);

/// All that log in to another host.
const ALL_FAR: &[CommandId] = &together::<13>(
    FAR_PROGRAM,
    &[CommandId::SpreadResume, CommandId::SpreadCancel, CommandId::SpreadWork],
);

/// Two lists in one: a count that is not theirs does not compile.
const fn together<const COUNT: usize>(
    first: &[CommandId],
    second: &[CommandId],
) -> [CommandId; COUNT] {
    assert!(first.len() + second.len() == COUNT);
    let (mut all, mut at) = ([CommandId::Copy; COUNT], 0);
    while at < COUNT {
        all[at] = if at < first.len() { first[at] } else { second[at - first.len()] };
        at += 1;
    }
    all
}

/// What a forced command limits a far side to.
const PEER: &[CommandId] = &[CommandId::Peer];

/// In the order of `--help`.
pub(crate) const TABLE: &[&dyn AnyOption] = &[
    &SSH,
    &PORT,
    &PORT_THERE,
    &IDENTITY,
    &IDENTITY_THERE,
    &REMOTE_DATAPUMP,
    &INSTALL,
    &PORTS,
    &ADDRESSES,
    &REMOTE_CPUS,
    &RETRY_FOR,
    &ROOT,
    &READ_ONLY,
    &WRITE_ONLY,
    &LEAST_SEAL,
];

pub(crate) static SSH: CliOption<Vec<String>> = CliOption {
    name: "ssh",
    letter: None,
    value: "CMD",
    kind: Kind::Words(|words| words),
    default: "ssh",
    help: "The command to use as ssh, with its arguments",
    more: "It is split as a shell does, with quotes: --ssh 'ssh -p 2222 -i \"my key\"'. The \
           host and the far command are added at the end. Your ssh configuration, agent and \
           jump hosts apply. A copy logs in once.",
    group: Group::Remote,
    commands: ALL_FAR,
};

pub(crate) static PORT: CliOption<u16> = port(Some('P'), COPY);
/// Without its letter, which iperf3 uses for streams.
pub(crate) static PORT_THERE: CliOption<u16> = port(None, THERE);

const fn port(letter: Option<char>, commands: &'static [CommandId]) -> CliOption<u16> {
    CliOption {
        name: "port",
        letter,
        value: "PORT",
        kind: Kind::Number(Limits::count(1, 65_535), |n| n as u16),
        default: "",
        help: "The port of ssh on HOST",
        more: "As 'ssh -p' and 'scp -P'. For copy, ssh://HOST:PORT/PATH says the same.",
        group: Group::Remote,
        commands,
    }
}

pub(crate) static IDENTITY: CliOption<String> = identity(Some('i'), COPY);
/// Without its letter, which iperf3 uses for the interval.
pub(crate) static IDENTITY_THERE: CliOption<String> = identity(None, THERE);

const fn identity(letter: Option<char>, commands: &'static [CommandId]) -> CliOption<String> {
    CliOption {
        name: "identity",
        letter,
        value: "FILE",
        kind: Kind::Text(|file| file),
        default: "",
        help: "The file of the private key that ssh logs in with",
        more: "As 'ssh -i' and 'scp -i'.",
        group: Group::Remote,
        commands,
    }
}

pub(crate) static REMOTE_DATAPUMP: CliOption<String> = CliOption {
    name: "remote-datapump",
    letter: None,
    value: "PATH",
    kind: Kind::Text(|text| text),
    default: "datapump",
    help: "Path of datapump on the far side, if it is not in PATH",
    more: "Then that program is used, whatever its version, and none is sent there.",
    group: Group::Remote,
    commands: FAR_PROGRAM,
};

pub(crate) static INSTALL: CliOption<Install> = CliOption {
    name: "install",
    letter: None,
    value: "WHEN",
    kind: Kind::Choice(Install::NAMES, |i| Install::ALL[i]),
    default: "auto",
    help: "Send the far side's program there",
    more: "With auto a host that has no datapump in its PATH, or one that does not fit this one, \
           gets its program over the same ssh connection, once. It stays in the first of \
           $DATAPUMP_DIR/datapump, ~/.cache/datapump, $XDG_RUNTIME_DIR/datapump, \
           /var/tmp/datapump-UID and /tmp/datapump-UID there from which programs run, and is \
           removed by later ones when it was not used for 30 days. With never the far command is \
           'datapump peer' alone, and with always the program of this host is used there.",
    group: Group::Remote,
    commands: FAR_PROGRAM,
};

pub(crate) static PORTS: CliOption<(u16, u16)> = CliOption {
    name: "ports",
    letter: Some('Z'),
    value: "LO-HI",
    kind: Kind::Ports(|range| range),
    default: "",
    help: "Ports that the far side may listen on",
    more: "By default the far system chooses a free one. If the port cannot be reached, the \
           data goes over the ssh connection itself, and a warning says so.",
    group: Group::Remote,
    commands: FAR,
};

pub(crate) static ADDRESSES: CliOption<AddressList> = CliOption {
    name: "addresses",
    letter: None,
    value: "LIST",
    kind: Kind::Parsed(ADDRESSES_PHRASE, AddressList::parse),
    default: "",
    help: "Where data may be sent besides the addresses of HOST",
    more: "Addresses, networks and host names. Data connections go to addresses of HOST that \
           this host's resolver and 'ssh -G' know. An address or a name in LIST is tried \
           before these, such as an interface for data. With a network, addresses in it that \
           the far side reports are allowed, as behind a jump host.",
    group: Group::Remote,
    commands: FAR,
};

pub(crate) static REMOTE_CPUS: CliOption<Cpus> = CliOption {
    name: "remote-cpus",
    letter: None,
    value: "LIST",
    kind: Kind::Cpus(|cpus| cpus),
    default: "",
    help: "Bind the far side to these CPUs",
    more: "As --cpus does on this side.",
    group: Group::Remote,
    commands: COPYING,
};

pub(crate) static RETRY_FOR: CliOption<Nanos> = CliOption {
    name: "retry-for",
    letter: None,
    value: "TIME",
    kind: Kind::Time(|time| time),
    default: "10m",
    help: "How long to retry a lost ssh connection",
    more: "off ends the copy at once; the same command resumes it.",
    group: Group::Remote,
    commands: COPY,
};

pub(crate) static ROOT: CliOption<PathBuf> = CliOption {
    name: "root",
    letter: None,
    value: "DIR",
    kind: Kind::Path(|path| path),
    default: "",
    help: "Limit this far side to what is beneath DIR",
    more: "For a forced command in authorized_keys, as rrsync is for rsync: restrict,command=\
           \"datapump peer --root DIR\". The client's own command is ignored. Every path begins at \
           DIR, also one with a slash in front; one that leads out, by '..' or through a link, is \
           refused.",
    group: Group::Remote,
    commands: PEER,
};

pub(crate) static READ_ONLY: CliOption<bool> = CliOption {
    name: "read-only",
    letter: None,
    value: "",
    kind: Kind::Flag(|| true),
    default: "",
    help: "With --root: files are only copied from here",
    more: "",
    group: Group::Remote,
    commands: PEER,
};

pub(crate) static WRITE_ONLY: CliOption<bool> = CliOption {
    name: "write-only",
    letter: None,
    value: "",
    kind: Kind::Flag(|| true),
    default: "",
    help: "With --root: files are only copied to here",
    more: "",
    group: Group::Remote,
    commands: PEER,
};

pub(crate) static LEAST_SEAL: CliOption<Seal> = CliOption {
    name: "seal",
    letter: None,
    value: "HOW",
    kind: Kind::Choice(Seal::NAMES, |i| Seal::ALL[i]),
    default: "off",
    help: "With --root: the weakest protection of streams that is accepted",
    more: "tls refuses copies with --seal auth or off.",
    group: Group::Remote,
    commands: PEER,
};
