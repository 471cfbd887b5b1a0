//! The knobs of a net test, `measure net --time`.

use super::{Group, Kind, Knob, Limits};
use crate::base::limits;
use crate::base::settings::Seal;
use crate::cli::command::Verb;

const MEASURE: &[Verb] = &[Verb::Measure];

pub const NET: &[Knob] = &[
    Knob {
        name: "time",
        letter: Some('t'),
        value: "SECONDS",
        kind: Kind::Seconds(|o, time| o.measure.net.time = Some(time)),
        default: "",
        help: "Test the path to a host for so long: measure net --time 10 HOST",
        more: "What iperf3 is used for, over the streams that copy uses: the rate, \
               retransmissions, congestion window and round trip of every interval, what arrived, \
               and what held it back. Without HOST the path is the one inside this host. Any of \
               the options of a net test asks for one; left out, the time is 10 seconds.",
        group: Group::NetTest,
        verbs: MEASURE,
    },
    Knob {
        name: "omit",
        letter: Some('O'),
        value: "SECONDS",
        kind: Kind::Seconds(|o, time| o.measure.net.omit = Some(time)),
        default: "",
        help: "Do not count so much at the beginning, which comes in front of --time",
        more: "TCP finds out first what the path carries.",
        group: Group::NetTest,
        verbs: MEASURE,
    },
    Knob {
        name: "interval",
        letter: Some('P'),
        value: "SECONDS",
        kind: Kind::Seconds(|o, time| o.measure.net.interval = Some(time)),
        default: "",
        help: "How long an interval is, of which there is a line [default: 1]",
        more: "",
        group: Group::NetTest,
        verbs: MEASURE,
    },
    Knob {
        name: "reverse",
        letter: Some('R'),
        value: "",
        kind: Kind::Flag(|o| o.measure.net.reverse = true),
        default: "",
        help: "The far host sends, this one receives",
        more: "",
        group: Group::NetTest,
        verbs: MEASURE,
    },
    Knob {
        name: "bidir",
        letter: None,
        value: "",
        kind: Kind::Flag(|o| o.measure.net.bidir = true),
        default: "",
        help: "Both directions at once, each with a result of its own",
        more: "Each has its own login.",
        group: Group::NetTest,
        verbs: MEASURE,
    },
    Knob {
        name: "streams",
        letter: Some('s'),
        value: "N",
        kind: Kind::Number(Limits::count(1, limits::STREAMS_MAX as u64), |o, n| {
            o.measure.net.streams = Some(n as u16);
        }),
        default: "",
        help: "TCP streams side by side, in each direction [default: 1]",
        more: "copy uses 4 where nothing is said.",
        group: Group::NetTest,
        verbs: MEASURE,
    },
    Knob {
        name: "seal",
        letter: None,
        value: "HOW",
        kind: Kind::Choice(Seal::NAMES, |o, i| o.measure.net.seal = Some(Seal::ALL[i])),
        default: "",
        help: "How the streams are protected [default: off]",
        more: "The path is what is tested, so its bytes are clear. tls is what copy does, and \
               measures what that costs too.",
        group: Group::NetTest,
        verbs: MEASURE,
    },
    Knob {
        name: "request-size",
        letter: None,
        value: "SIZE",
        kind: Kind::Number(Limits::REQUEST_BYTES, |o, n| {
            o.measure.net.request_bytes = Some(n as u32);
        }),
        default: "",
        help: "Bytes that one request moves [default: 128K]",
        more: "At the end, what has been begun is still sent: of small requests that is less.",
        group: Group::NetTest,
        verbs: MEASURE,
    },
    Knob {
        name: "udp",
        letter: Some('u'),
        value: "",
        kind: Kind::Flag(|o| o.measure.net.udp = true),
        default: "",
        help: "Refused: datapump moves bytes over TCP",
        more: "",
        group: Group::NetTest,
        verbs: MEASURE,
    },
];
