//! The knobs of a campaign, `sweep`.

use super::{Group, Kind, Knob, Limits, Range, SIZE_MAX, seconds};
use crate::base::codec::Compress;
use crate::base::limits;
use crate::base::settings::DataSet;
use crate::base::units::parse_size;
use crate::cli::args::Preset;
use crate::cli::command::Verb;
use crate::study::experiment::Order;

const SWEEP_VERB: &[Verb] = &[Verb::Sweep];

pub const SWEEP: &[Knob] = &[
    Knob {
        name: "hosts",
        letter: None,
        value: "FILE",
        kind: Kind::Path(|o, path| o.sweep.hosts = Some(path)),
        default: "",
        help: "The hosts that are measured, one a line: [USER@]HOST[:FOLDER]",
        more: "What follows a # is a comment. With a FOLDER the bytes are written to a file there, \
               which goes when the cell is over; without one they go to nothing.",
        group: Group::Sweeping,
        verbs: SWEEP_VERB,
    },
    Knob {
        name: "preset",
        letter: None,
        value: "NAME",
        kind: Kind::Choice(Preset::NAMES, |o, i| o.sweep.preset = Some(Preset::ALL[i])),
        default: "",
        help: "Lists and order that somebody has used before",
        more: "slac is the order of SLAC's measurements of 2001: windows \
               8,1024,16,512,32,256,128,64 KB, streams \
               1,20,5,12,8,10,4,25,11,3,7,40,15,9,2,30,6, levels 0 5 1 7 3 9 2 4, ten seconds \
               each. A list that is typed takes the place of the preset's.",
        group: Group::Sweeping,
        verbs: SWEEP_VERB,
    },
    Knob {
        name: "windows",
        letter: Some('w'),
        value: "LIST",
        kind: Kind::Parsed(WINDOWS_PHRASE, |o, text| {
            o.sweep.windows = Some(each(text, window, WINDOWS_PHRASE)?);
            Ok(())
        }),
        default: "",
        help: "TCP windows of each stream that are tried [default: 64K,256K,1M,auto]",
        more: "auto leaves the window to TCP.",
        group: Group::Sweeping,
        verbs: SWEEP_VERB,
    },
    Knob {
        name: "streams",
        letter: Some('s'),
        value: "LIST",
        kind: Kind::List(Limits::count(1, limits::STREAMS_MAX as u64), Range::Each, |o, list| {
            o.sweep.streams = Some(list.iter().map(|n| *n as u16).collect())
        }),
        default: "",
        help: "Numbers of streams that are tried [default: 1,4,8,16]",
        more: "",
        group: Group::Sweeping,
        verbs: SWEEP_VERB,
    },
    Knob {
        name: "levels",
        letter: None,
        value: "LIST",
        kind: Kind::Parsed(LEVELS_PHRASE, |o, text| {
            o.sweep.levels = Some(each(text, level, LEVELS_PHRASE)?);
            Ok(())
        }),
        default: "",
        help: "Levels of compression that are tried [default: 0]",
        more: "A number is one of zlib, 0 is none. What a level gains depends on the data: see \
               --data.",
        group: Group::Sweeping,
        verbs: SWEEP_VERB,
    },
    Knob {
        name: "time",
        letter: Some('t'),
        value: "SECONDS",
        kind: Kind::Seconds(|o, time| o.sweep.time = Some(time)),
        default: "",
        help: "How long each copy lasts [default: 10]",
        more: "What has been begun then is still sent.",
        group: Group::Sweeping,
        verbs: SWEEP_VERB,
    },
    Knob {
        name: "sizes",
        letter: None,
        value: "LIST",
        kind: Kind::List(Limits::bytes(1, SIZE_MAX), Range::Doubling, |o, sizes| {
            o.sweep.sizes = Some(sizes);
        }),
        default: "",
        help: "Copy so many bytes instead, to find from which size on the rate no longer grows",
        more: "1M..256M doubles from one to the other. Nine passes say most.",
        group: Group::Sweeping,
        verbs: SWEEP_VERB,
    },
    Knob {
        name: "durations",
        letter: None,
        value: "LIST",
        kind: Kind::Parsed(DURATIONS_PHRASE, |o, text| {
            o.sweep.durations = Some(each(text, |word| seconds(word).ok(), DURATIONS_PHRASE)?);
            Ok(())
        }),
        default: "",
        help: "Copy for each of these times, to find how long a copy must be to tell the rate",
        more: "",
        group: Group::Sweeping,
        verbs: SWEEP_VERB,
    },
    Knob {
        name: "repeat",
        letter: None,
        value: "N",
        kind: Kind::Number(Limits::count(1, 1000), |o, n| o.sweep.passes = Some(n as u32)),
        default: "",
        help: "Passes through all cells [default: 3, with a preset 1]",
        more: "",
        group: Group::Sweeping,
        verbs: SWEEP_VERB,
    },
    Knob {
        name: "order",
        letter: None,
        value: "HOW",
        kind: Kind::Choice(Order::NAMES, |o, i| o.sweep.order = Some(Order::ALL[i])),
        default: "",
        help: "In which order cells are measured [default: random, with a preset given]",
        more: "random mixes every pass by --seed, over all hosts. given goes host by host through \
               the lists as they are typed.",
        group: Group::Sweeping,
        verbs: SWEEP_VERB,
    },
    Knob {
        name: "data",
        letter: None,
        value: "KIND",
        kind: Kind::Choice(DataSet::NAMES, |o, i| o.sweep.data = DataSet::ALL[i]),
        default: "records",
        help: "What the bytes are like: this matters to compression only",
        more: "They are made from --seed, as those of records:SIZE and the like of copy.",
        group: Group::Sweeping,
        verbs: SWEEP_VERB,
    },
    Knob {
        name: "request-size",
        letter: None,
        value: "SIZE",
        kind: Kind::Number(Limits::REQUEST_BYTES, |o, n| o.sweep.request_bytes = Some(n as u32)),
        default: "",
        help: "Bytes that one request moves [default: 64K]",
        more: "At the end of its time a copy sends what has been begun: of small requests that is \
               less, which matters where windows are small and round trips long.",
        group: Group::Sweeping,
        verbs: SWEEP_VERB,
    },
    Knob {
        name: "resume",
        letter: None,
        value: "",
        kind: Kind::Flag(|o| o.sweep.resume = true),
        default: "",
        help: "Go on with a campaign that was interrupted: sweep --resume [CAMPAIGN]",
        more: "As it was typed then; what it has measured is not measured again.",
        group: Group::Sweeping,
        verbs: SWEEP_VERB,
    },
];

/// Words between commas.
fn each<T>(text: &str, read: impl Fn(&str) -> Option<T>, phrase: &str) -> Result<Vec<T>, String> {
    let all: Option<Vec<T>> = text.split(',').map(|word| read(word.trim())).collect();
    all.ok_or_else(|| format!("write {phrase}"))
}

fn window(word: &str) -> Option<Option<u32>> {
    const FIT: std::ops::RangeInclusive<u64> =
        limits::WINDOW_BYTES_MIN as u64..=limits::WINDOW_BYTES_MAX as u64;
    match word {
        "auto" => Some(None),
        size => parse_size(size).ok().filter(|bytes| FIT.contains(bytes)).map(|b| Some(b as u32)),
    }
}

/// As SLAC wrote them, or in the words of `copy --compress`.
fn level(word: &str) -> Option<Compress> {
    match word.parse::<u8>() {
        Ok(level) => Compress::parse(&format!("zlib:{level}")).ok(),
        Err(_) => Compress::parse(word).ok(),
    }
}

const WINDOWS_PHRASE: &str = "sizes as 64K,1M, each from 4K to 1G, or auto among them";
const LEVELS_PHRASE: &str = "levels as 0,1,9 (of zlib), or as copy --compress takes them: zstd:3";
const DURATIONS_PHRASE: &str = "times as 2,5,10: each seconds from 0.1 to 3600";
