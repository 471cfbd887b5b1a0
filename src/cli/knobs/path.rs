//! The knobs of what TCP does with the bytes.

use super::{COPY, Group, Kind, Knob, Limits, MOVING, PUMPING, SWEPT};
use crate::base::codec::{COMPRESS_PHRASE, Compress};
use crate::base::dscp::{DSCP_PHRASE, Dscp};
use crate::base::limits;
use crate::base::settings::{LOCKSTEP_PHRASE, Lockstep, PACE_PHRASE, Pace};
use crate::cli::profile::PROFILE;

pub const PATH: &[Knob] = &[
    Knob {
        name: PROFILE,
        letter: None,
        value: "NAME",
        kind: Kind::Text(|o, name| o.profile = Some(name)),
        default: "",
        help: "Options that are kept under this name, usually that of the host",
        more: "'datapump sweep profile' writes what was best there, one option a line, in \
               $XDG_CONFIG_HOME/datapump/profiles or ~/.config/datapump/profiles. A name with a \
               slash is a file. What is typed beside it counts.",
        group: Group::Moving,
        verbs: COPY,
    },
    Knob {
        name: "window",
        letter: Some('w'),
        value: "SIZE",
        kind: Kind::NumberOr(
            "auto",
            Limits::bytes(limits::WINDOW_BYTES_MIN as u64, limits::WINDOW_BYTES_MAX as u64),
            |o, n| o.settings.window_bytes = n.map(|n| n as u32),
        ),
        default: "auto",
        help: "TCP window of each stream",
        more: "The receiving side advertises it; the summary shows what the sending side saw. \
               A warning names the kernel's limit (net.core.rmem_max, wmem_max) where that is \
               less. auto leaves it to TCP, which suits most paths.",
        group: Group::Moving,
        verbs: PUMPING,
    },
    Knob {
        name: "congestion",
        letter: None,
        value: "NAME",
        kind: Kind::NameOr("default", |o, name| o.settings.congestion = name),
        default: "default",
        help: "TCP congestion control, such as cubic or bbr",
        more: "default is what each host's kernel is set to.",
        group: Group::Moving,
        verbs: SWEPT,
    },
    Knob {
        name: "pace",
        letter: None,
        value: "RATE",
        kind: Kind::Parsed(PACE_PHRASE, |o, text| {
            o.settings.pace = Pace::parse(text)?;
            Ok(())
        }),
        default: "auto",
        help: "Space what TCP sends at this rate of all streams together",
        more: "Bursts that overflow a queue on the path are lost; spaced they are not. auto lets \
               TCP space what it sends where a round trip takes 2 ms and more, and sets a pace \
               below what the path delivers once bursts are lost all the same. off leaves it to \
               the congestion control.",
        group: Group::Moving,
        verbs: SWEPT,
    },
    Knob {
        name: "compress",
        letter: None,
        value: "HOW",
        kind: Kind::Parsed(COMPRESS_PHRASE, |o, text| {
            o.compress = Some(Compress::parse(text)?);
            Ok(())
        }),
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
        verbs: MOVING,
    },
    Knob {
        name: "dscp",
        letter: None,
        value: "MARK",
        kind: Kind::Parsed(DSCP_PHRASE, |o, text| {
            o.settings.dscp = Some(Dscp::parse(text)?);
            Ok(())
        }),
        default: "",
        help: "Mark the data streams for the network",
        more: "What routers make of it is theirs: le asks for what is left over. The ssh \
               connection keeps its own mark.",
        group: Group::Moving,
        verbs: SWEPT,
    },
    Knob {
        name: "lockstep",
        letter: None,
        value: "SIZE:TIME",
        kind: Kind::Parsed(LOCKSTEP_PHRASE, |o, text| {
            o.settings.lockstep = Some(Lockstep::parse(text)?);
            Ok(())
        }),
        default: "",
        help: "For the lab: stop after each SIZE of a stream until all is there, and TIME more",
        more: "How movers behave that hand over one block at a time, to see what it costs. Never \
               useful for copying.",
        group: Group::Moving,
        verbs: MOVING,
    },
];
