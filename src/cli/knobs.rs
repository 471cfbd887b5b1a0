//! Every knob, as one row of one table. The parser, `--help`, the man page, the completions and a
//! sweep's axes are all made from these rows; nothing else knows a knob's name.

mod lab;
mod net;
mod path;
mod sweep;

pub use self::lab::FORMATS;

use std::ffi::OsStr;
use std::path::PathBuf;

use super::args::Options;
use super::command::Verb;
use super::words;
use crate::base::addresses::{ADDRESSES_PHRASE, AddressList};
use crate::base::cpus::{CPUS_PHRASE, Cpus};
use crate::base::limits;
use crate::base::settings::{
    DigestKind, Direct, EngineChoice, Fsync, Links, Overwrite, Preallocate, Receive, Seal,
    SkipUnchanged,
};
use crate::base::units::{Bytes, Nanos, Rate, parse_rate, parse_size};
use crate::pump::select;

/// One knob: how it is typed, what it means, and which option it sets.
#[derive(Debug)]
pub struct Knob {
    /// The long name, without its dashes.
    pub name: &'static str,
    pub letter: Option<char>,
    /// What stands for its value in a synopsis; empty for a flag.
    pub value: &'static str,
    pub kind: Kind,
    /// What leaving it out means, as it would be typed; empty where that is nothing.
    pub default: &'static str,
    /// One line for `-h`.
    pub help: &'static str,
    /// What else there is to know, for `--help` and the man page.
    pub more: &'static str,
    pub group: Group,
    /// The commands that take it.
    pub verbs: &'static [Verb],
}

/// The heading under which a knob stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    Copying,
    Remote,
    Moving,
    Storage,
    Measuring,
    NetTest,
    Sweeping,
    Showing,
    Recording,
}

impl Group {
    pub fn heading(self) -> &'static str {
        match self {
            Group::Copying => "What is copied",
            Group::Remote => "The far side",
            Group::Moving => "How bytes move",
            Group::Storage => "Reading and writing files",
            Group::Measuring => "What is measured",
            Group::NetTest => "A net test (measure net --time 10 HOST)",
            Group::Sweeping => "A campaign",
            Group::Showing => "What is shown",
            Group::Recording => "What is recorded",
        }
    }
}

/// What may be typed as a knob's value, and where a good value goes.
#[derive(Debug)]
pub enum Kind {
    Flag(fn(&mut Options)),
    Number(Limits, fn(&mut Options, u64)),
    /// A number, or the word that leaves it to the program.
    NumberOr(&'static str, Limits, fn(&mut Options, Option<u64>)),
    /// Several numbers: `1,5`, or a range.
    List(Limits, Range, fn(&mut Options, Vec<u64>)),
    RateOr(&'static str, fn(&mut Options, Option<Rate>)),
    NameOr(&'static str, fn(&mut Options, Option<String>)),
    /// One of the names; the setter gets its place among them.
    Choice(&'static [&'static str], fn(&mut Options, usize)),
    Seconds(fn(&mut Options, Nanos)),
    /// A time with its unit, or off.
    Time(fn(&mut Options, Nanos)),
    /// A line of gitignore rules. It may be given again; the order on the command line counts.
    Pattern(fn(&mut Options, String)),
    Ports(fn(&mut Options, (u16, u16))),
    Cpus(fn(&mut Options, Cpus)),
    Words(fn(&mut Options, Vec<String>)),
    Text(fn(&mut Options, String)),
    /// What only this knob takes: the values as a phrase, and how they are read.
    Parsed(&'static str, fn(&mut Options, &str) -> Result<(), String>),
    Path(fn(&mut Options, PathBuf)),
}

/// The numbers that a knob takes: both ends included, multiples of `step`.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub unit: Unit,
    pub min: u64,
    pub max: u64,
    pub step: u64,
}

/// What `LOW..HIGH` stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Range {
    Each,
    Doubling,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    Count,
    Bytes,
}

impl Knob {
    /// Sets this knob from what was typed. The error says what to type instead.
    pub fn set(&self, options: &mut Options, typed: &OsStr) -> Result<(), String> {
        if let Kind::Path(set) = self.kind {
            if typed.is_empty() {
                return Err(format!("--{} needs a file name", self.name));
            }
            set(options, PathBuf::from(typed));
            return Ok(());
        }
        let text =
            typed.to_str().ok_or_else(|| format!("--{}: the value is not UTF-8", self.name))?;
        self.set_text(options, text).map_err(|why| format!("--{} '{text}': {why}", self.name))
    }

    fn set_text(&self, options: &mut Options, text: &str) -> Result<(), String> {
        match &self.kind {
            Kind::Flag(set) => set(options),
            Kind::Number(limits, set) => set(options, limits.parse(text)?),
            Kind::NumberOr(word, _, set) if text == *word => set(options, None),
            Kind::NumberOr(word, limits, set) => {
                let number = limits.parse(text).map_err(|why| format!("{why}, or {word}"))?;
                set(options, Some(number));
            }
            Kind::List(limits, range, set) => set(options, limits.list(*range, text)?),
            Kind::RateOr(word, set) if text == *word => set(options, None),
            Kind::RateOr(word, set) => {
                let rate = parse_rate(text).map_err(|_| {
                    format!("write 100Mbit (bits) or 80MB (bytes a second), or {word}")
                })?;
                set(options, Some(rate));
            }
            Kind::NameOr(word, set) if text == *word => set(options, None),
            Kind::NameOr(_, set) => set(options, Some(kernel_name(text)?)),
            Kind::Choice(names, set) => {
                let place = names.iter().position(|name| *name == text);
                set(options, place.ok_or_else(|| format!("write {}", any_of(names)))?);
            }
            Kind::Seconds(set) => set(options, seconds(text)?),
            Kind::Time(set) => set(options, time(text)?),
            Kind::Pattern(set) => {
                select::check_pattern(text)?;
                set(options, text.to_string());
            }
            Kind::Ports(set) => set(options, ports(text)?),
            Kind::Cpus(set) => set(options, Cpus::parse(text)?),
            Kind::Words(set) => set(options, words::split(text)?),
            Kind::Text(_) if text.is_empty() => return Err("write a value".into()),
            Kind::Text(set) => set(options, text.to_string()),
            Kind::Parsed(_, set) => set(options, text)?,
            Kind::Path(set) => set(options, PathBuf::from(text)),
        }
        Ok(())
    }

    /// The values it takes, as a phrase: `a number from 1 to 64`. Empty where anything goes.
    pub fn range(&self) -> String {
        match &self.kind {
            Kind::Number(limits, _) => limits.phrase(),
            Kind::NumberOr(word, limits, _) => format!("{}, or {word}", limits.phrase()),
            Kind::List(limits, range, _) => limits.list_phrase(*range),
            Kind::RateOr(word, _) => format!("100Mbit (bits) or 80MB (bytes a second), or {word}"),
            Kind::Choice(names, _) => any_of(names),
            Kind::Seconds(_) => SECONDS_PHRASE.to_string(),
            Kind::Time(_) => TIME_PHRASE.to_string(),
            Kind::Ports(_) => PORTS_PHRASE.to_string(),
            Kind::Cpus(_) => CPUS_PHRASE.to_string(),
            Kind::Parsed(phrase, _) => (*phrase).to_string(),
            _ => String::new(),
        }
    }
}

impl Limits {
    const REQUEST_BYTES: Limits = Limits {
        unit: Unit::Bytes,
        min: limits::REQUEST_BYTES_MIN as u64,
        max: limits::REQUEST_BYTES_MAX as u64,
        step: limits::REQUEST_BYTES_STEP as u64,
    };

    const fn count(min: u64, max: u64) -> Limits {
        Limits { unit: Unit::Count, min, max, step: 1 }
    }

    const fn bytes(min: u64, max: u64) -> Limits {
        Limits { unit: Unit::Bytes, min, max, step: 1 }
    }

    fn parse(self, text: &str) -> Result<u64, String> {
        let number = match self.unit {
            Unit::Count => text.parse().ok(),
            Unit::Bytes => parse_size(text).ok(),
        };
        number
            .filter(|n| (self.min..=self.max).contains(n) && n.is_multiple_of(self.step))
            .ok_or_else(|| format!("write {}", self.phrase()))
    }

    /// `16K..1M`, or `16K,96K`.
    fn list(self, range: Range, text: &str) -> Result<Vec<u64>, String> {
        let parse = |word: &str| {
            self.parse(word.trim()).map_err(|_| format!("write {}", self.list_phrase(range)))
        };
        let Some((low, high)) = text.split_once("..") else {
            return text.split(',').map(parse).collect();
        };
        let (low, high) = (parse(low)?, parse(high)?);
        let next = |number: &u64| match range {
            Range::Each => number.checked_add(1),
            Range::Doubling => number.checked_mul(2),
        };
        let numbers = std::iter::successors(Some(low), next);
        let numbers: Vec<u64> = numbers.take_while(|number| *number <= high).collect();
        match numbers.is_empty() {
            true => Err(format!("write {}", self.list_phrase(range))),
            false => Ok(numbers),
        }
    }

    fn list_phrase(self, range: Range) -> String {
        match range {
            Range::Each => format!("numbers as 1..4 or 1,3: each {}", self.phrase()),
            Range::Doubling => format!("sizes as 16K..1M or 16K,96K: each {}", self.phrase()),
        }
    }

    fn phrase(self) -> String {
        let Limits { unit, min, max, step } = self;
        match unit {
            Unit::Count if max == u64::MAX => format!("a number from {min} up"),
            Unit::Count => format!("a number from {min} to {max}"),
            Unit::Bytes if max == SIZE_MAX => format!("a size from {} up", Bytes(min).typed()),
            Unit::Bytes if step > 1 => format!(
                "a multiple of {} from {} to {}",
                Bytes(step).typed(),
                Bytes(min).typed(),
                Bytes(max).typed()
            ),
            Unit::Bytes => format!("a size from {} to {}", Bytes(min).typed(), Bytes(max).typed()),
        }
    }
}

/// `auto, uring or threads`.
fn any_of(names: &[&str]) -> String {
    match names {
        [] => String::new(),
        [only] => (*only).to_string(),
        [most @ .., last] => format!("{} or {last}", most.join(", ")),
    }
}

fn seconds(text: &str) -> Result<Nanos, String> {
    let number: Option<f64> = text.strip_suffix('s').unwrap_or(text).parse().ok();
    match number {
        Some(seconds) if (SECONDS_MIN..=SECONDS_MAX).contains(&seconds) => {
            Ok(Nanos((seconds * 1e9).round() as u64))
        }
        _ => Err(format!("write {SECONDS_PHRASE}")),
    }
}

/// `90`, `90s`, `10m`, `2h`; `0` and `off` are no time at all.
fn time(text: &str) -> Result<Nanos, String> {
    let (number, unit_seconds) = match text.char_indices().last() {
        Some((at, 's')) => (&text[..at], 1),
        Some((at, 'm')) => (&text[..at], 60),
        Some((at, 'h')) => (&text[..at], 3600),
        _ => (text, 1),
    };
    match number.parse::<u64>() {
        _ if text == "off" => Ok(Nanos(0)),
        Ok(number) if number.saturating_mul(unit_seconds) <= TIME_SECONDS_MAX => {
            Ok(Nanos(number * unit_seconds * 1_000_000_000))
        }
        _ => Err(format!("write {TIME_PHRASE}")),
    }
}

/// What is asked for twice is done the thorough way.
fn unchanged(options: &mut Options, how: SkipUnchanged) {
    if options.settings.skip_unchanged != SkipUnchanged::Checksum {
        options.settings.skip_unchanged = how;
    }
}

/// `50000-50100`, `50000:50100` as bbcp writes it, or one port.
fn ports(text: &str) -> Result<(u16, u16), String> {
    let (low, high) = text.split_once(['-', ':']).unwrap_or((text, text));
    match (low.parse(), high.parse()) {
        (Ok(low @ 1..), Ok(high)) if low <= high => Ok((low, high)),
        _ => Err(format!("write {PORTS_PHRASE}")),
    }
}

/// A congestion control as the kernel names it: at most 15 letters (TCP_CA_NAME_MAX with its zero).
fn kernel_name(text: &str) -> Result<String, String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    match (1..16).contains(&text.len()) && text.chars().all(plain) {
        true => Ok(text.to_string()),
        false => Err("write a name from 'sysctl net.ipv4.tcp_available_congestion_control', \
                      such as cubic or bbr"
            .into()),
    }
}

const COPY: &[Verb] = &[Verb::Copy];
const DEMO: &[Verb] = &[Verb::Demo];
const MOVING: &[Verb] = &[Verb::Copy, Verb::Demo];
/// What `model predict` takes too.
const FAR: &[Verb] = &[Verb::Copy, Verb::Measure, Verb::Model, Verb::Doctor, Verb::Sweep];
const PLANNED: &[Verb] = &[Verb::Copy, Verb::Demo, Verb::Model];
const PINNED: &[Verb] = &[Verb::Copy, Verb::Measure, Verb::Peer];
const COPYING: &[Verb] = &[Verb::Copy, Verb::Measure];
const DRY: &[Verb] = &[Verb::Copy, Verb::Clean, Verb::Sweep];
const TIMED: &[Verb] = &[Verb::Copy, Verb::Demo, Verb::Verify];
const PUMPING: &[Verb] = &[Verb::Copy, Verb::Demo, Verb::Measure];
/// What holds for all copies of a campaign.
const SWEPT: &[Verb] = &[Verb::Copy, Verb::Demo, Verb::Measure, Verb::Sweep];
const SEALED: &[Verb] = &[Verb::Copy, Verb::Demo, Verb::Sweep];
const SEEDED: &[Verb] = &[Verb::Copy, Verb::Measure, Verb::Sweep];
const ALL: &[Verb] = &[
    Verb::Copy,
    Verb::Demo,
    Verb::Verify,
    Verb::Clean,
    Verb::Measure,
    Verb::Model,
    Verb::Explain,
    Verb::Doctor,
    Verb::Sweep,
];

/// The largest size that `parse_size` reads.
const SIZE_MAX: u64 = i64::MAX as u64;
const SECONDS_MIN: f64 = 0.1;
const SECONDS_MAX: f64 = 3600.0;
const SECONDS_PHRASE: &str = "seconds from 0.1 to 3600";
/// A week.
const TIME_SECONDS_MAX: u64 = 7 * 24 * 3600;
const TIME_PHRASE: &str = "a time such as 90s, 10m or 2h (a week at most), or off";
const PORTS_PHRASE: &str = "LO-HI, for instance 50000-50100 (ports from 1 to 65535)";

/// Every knob, in the order of `--help`.
pub fn all() -> impl Iterator<Item = &'static Knob> {
    KNOBS.iter().chain(path::PATH).chain(lab::LAB).chain(net::NET).chain(sweep::SWEEP)
}

const KNOBS: &[Knob] = &[
    Knob {
        name: "recursive",
        letter: Some('r'),
        value: "",
        kind: Kind::Flag(|o| o.settings.recursive = true),
        default: "",
        help: "Copy folders with everything in them",
        more: "Without it a folder is refused by name and the other sources are copied.",
        group: Group::Copying,
        verbs: COPY,
    },
    Knob {
        name: "preserve",
        letter: Some('p'),
        value: "",
        kind: Kind::Flag(|o| o.preserve = true),
        default: "",
        help: "Keep permission bits and modification times",
        more: "They are kept anyway: it is here for who is used to typing it.",
        group: Group::Copying,
        verbs: COPY,
    },
    Knob {
        name: "no-preserve",
        letter: None,
        value: "",
        kind: Kind::Flag(|o| o.settings.preserve = false),
        default: "",
        help: "Let files have the mode and time of new ones",
        more: "The mode is the source's less the umask, the time that of the copy.",
        group: Group::Copying,
        verbs: COPY,
    },
    Knob {
        name: "archive",
        letter: Some('A'),
        value: "",
        kind: Kind::Flag(|o| o.settings.archive = true),
        default: "",
        help: "Keep owner, extended attributes and access control lists too",
        more: "What the destination does not allow is named by a warning, and the file is copied.",
        group: Group::Copying,
        verbs: COPY,
    },
    Knob {
        name: "links",
        letter: None,
        value: "WHAT",
        kind: Kind::Choice(Links::NAMES, |o, i| o.settings.links = Links::ALL[i]),
        default: "copy",
        help: "What becomes of symbolic links in a folder",
        more: "copy: they are made anew. follow: what they point to is copied. skip: they are \
               left out. safe: those are left out that lead out of what is copied: absolute \
               ones, and those that go up too far, or up after they have gone down.",
        group: Group::Copying,
        verbs: COPY,
    },
    Knob {
        name: "exclude",
        letter: None,
        value: "PATTERN",
        kind: Kind::Pattern(|o, text| o.settings.filters.push(text)),
        default: "",
        help: "Leave out what matches",
        more: "A line of gitignore rules, and may be written again and again: '*.o' matches \
               everywhere, '/build' at the top of the source only, 'tmp/' folders only. A folder \
               that is left out is left out with all that is in it. Of several that match, the \
               last on the command line counts.",
        group: Group::Copying,
        verbs: COPY,
    },
    Knob {
        name: "include",
        letter: None,
        value: "PATTERN",
        kind: Kind::Pattern(|o, text| o.settings.filters.push(format!("!{text}"))),
        default: "",
        help: "Keep what matches, although an earlier --exclude leaves it out",
        more: "Nothing below a folder that is left out can be kept.",
        group: Group::Copying,
        verbs: COPY,
    },
    Knob {
        name: "files-from",
        letter: None,
        value: "FILE",
        kind: Kind::Path(|o, path| o.files_from = Some(path)),
        default: "",
        help: "Copy what this file names, below the one SRC folder",
        more: "One name a line, relative to SRC; '-' is standard input. Each arrives under its \
               name below DST, and the folders on the way are made. A folder that is named is \
               copied with -r.",
        group: Group::Copying,
        verbs: COPY,
    },
    Knob {
        name: "null",
        letter: Some('0'),
        value: "",
        kind: Kind::Flag(|o| o.files_from_nul = true),
        default: "",
        help: "Names of --files-from end with a NUL byte, not with a line",
        more: "As 'find -print0' writes them.",
        group: Group::Copying,
        verbs: COPY,
    },
    Knob {
        name: "skip-unchanged",
        letter: None,
        value: "",
        kind: Kind::Flag(|o| unchanged(o, SkipUnchanged::Times)),
        default: "",
        help: "Leave destination files that have the size and time of their source",
        more: "They are neither copied nor refused. Links that point to the same are left too.",
        group: Group::Copying,
        verbs: COPY,
    },
    Knob {
        name: "checksum",
        letter: None,
        value: "",
        kind: Kind::Flag(|o| unchanged(o, SkipUnchanged::Checksum)),
        default: "",
        help: "Leave destination files that have the size and bytes of their source",
        more: "Every source file is read once more for it, and every destination file of the same \
               size.",
        group: Group::Copying,
        verbs: COPY,
    },
    Knob {
        name: "dry-run",
        letter: Some('n'),
        value: "",
        kind: Kind::Flag(|o| o.settings.dry_run = true),
        default: "",
        help: "Change nothing, only say what would be done",
        more: "A copy asks both sides as a real one does, and exits as it; a sweep says which \
               cells it has and how long they take.",
        group: Group::Copying,
        verbs: DRY,
    },
    Knob {
        name: "max-errors",
        letter: None,
        value: "N",
        kind: Kind::Number(Limits::count(0, u32::MAX as u64), |o, n| {
            o.settings.errors_max = Some(n as u32);
        }),
        default: "",
        help: "End the copy once more files than this have failed",
        more: "Left out, any number may fail, and the others are copied.",
        group: Group::Copying,
        verbs: COPY,
    },
    Knob {
        name: "fresh",
        letter: None,
        value: "",
        kind: Kind::Flag(|o| o.settings.fresh = true),
        default: "",
        help: "Do not go on where an earlier copy stopped",
        more: "",
        group: Group::Copying,
        verbs: COPY,
    },
    Knob {
        name: "overwrite",
        letter: None,
        value: "WHEN",
        kind: Kind::Choice(Overwrite::NAMES, |o, i| o.settings.overwrite = Overwrite::ALL[i]),
        default: "never",
        help: "What happens to a destination file that exists",
        more: "never: it is refused by name, the other files are copied, and the exit code is \
               3. older: it is replaced when it is older than its source, as all is older than \
               what comes from a pipe or is generated. always: it is replaced. The old file \
               keeps its name and bytes until the new one is complete and verified.",
        group: Group::Copying,
        verbs: COPY,
    },
    Knob {
        name: "manifest",
        letter: None,
        value: "FILE",
        kind: Kind::Path(|o, path| o.manifest = Some(path)),
        default: "",
        help: "Write a receipt: every file's digest and name",
        more: "'datapump verify FILE DST' re-reads what was written; with --digest blake3 so \
               does 'b3sum --check FILE' in the destination folder. The receipt gets its name \
               at the end.",
        group: Group::Copying,
        verbs: COPY,
    },
    Knob {
        name: "seed",
        letter: None,
        value: "N",
        kind: Kind::Number(Limits::count(0, u64::MAX), |o, n| o.seed = n),
        default: "0",
        help: "Seed of the bytes that 'random:SIZE' makes, and of the order of runs",
        more: "The same seed and size give the same bytes on every host. measure mixes its runs by \
               it.",
        group: Group::Copying,
        verbs: SEEDED,
    },
    Knob {
        name: "bytes",
        letter: None,
        value: "SIZE",
        kind: Kind::Number(Limits::bytes(1, SIZE_MAX), |o, n| o.demo_bytes = n),
        default: "512M",
        help: "Size of the one large file",
        more: "The demo needs twice as much room in the temporary folder ($TMPDIR or /tmp).",
        group: Group::Copying,
        verbs: DEMO,
    },
    Knob {
        name: "files",
        letter: None,
        value: "N",
        kind: Kind::Number(Limits::count(0, 1_000_000), |o, n| o.demo_files = n),
        default: "2000",
        help: "Number of small files beside it",
        more: "",
        group: Group::Copying,
        verbs: DEMO,
    },
    Knob {
        name: "ssh",
        letter: None,
        value: "CMD",
        kind: Kind::Words(|o, words| o.remote.ssh = Some(words)),
        default: "ssh",
        help: "The command that stands for ssh, with its arguments",
        more: "Split like a shell does, with quotes: --ssh 'ssh -p 2222 -i \"my key\"'. The \
               host and the far command follow. Your ssh configuration, agent and jump hosts \
               apply; one login.",
        group: Group::Remote,
        verbs: FAR,
    },
    Knob {
        name: "remote-datapump",
        letter: None,
        value: "PATH",
        kind: Kind::Text(|o, text| o.remote.datapump = Some(text)),
        default: "datapump",
        help: "The far side's datapump, where it is not in PATH",
        more: "",
        group: Group::Remote,
        verbs: FAR,
    },
    Knob {
        name: "ports",
        letter: Some('Z'),
        value: "LO-HI",
        kind: Kind::Ports(|o, range| o.remote.ports = Some(range)),
        default: "",
        help: "Ports that the far side may listen on",
        more: "Left out, the far system chooses a free one. If the port cannot be reached, the \
               data goes over the ssh connection itself, and a warning says so.",
        group: Group::Remote,
        verbs: FAR,
    },
    Knob {
        name: "addresses",
        letter: None,
        value: "LIST",
        kind: Kind::Parsed(ADDRESSES_PHRASE, |o, text| {
            o.remote.addresses = AddressList::parse(text)?;
            Ok(())
        }),
        default: "",
        help: "Where data may go besides the addresses of HOST",
        more: "Addresses, networks and names of hosts. Data connections go to addresses of the \
               host that was typed, as this host's resolver and 'ssh -G' know them. An address \
               or a name in LIST is tried before these: an interface for data. A network allows \
               what the far side names as its address, as behind a jump host.",
        group: Group::Remote,
        verbs: FAR,
    },
    Knob {
        name: "remote-cpus",
        letter: None,
        value: "LIST",
        kind: Kind::Cpus(|o, cpus| o.remote.cpus = Some(cpus)),
        default: "",
        help: "Hold the far side to these CPUs",
        more: "As --cpus does here.",
        group: Group::Remote,
        verbs: COPYING,
    },
    Knob {
        name: "retry-for",
        letter: None,
        value: "TIME",
        kind: Kind::Time(|o, time| o.remote.retry_for = time),
        default: "10m",
        help: "How long a lost ssh connection is made again",
        more: "off ends the copy at once; the same command goes on where it stopped.",
        group: Group::Remote,
        verbs: COPY,
    },
    Knob {
        name: "streams",
        letter: Some('s'),
        value: "N",
        kind: Kind::Number(Limits::count(1, limits::STREAMS_MAX as u64), |o, n| {
            o.settings.streams = n as u16;
        }),
        default: "4",
        help: "TCP streams side by side",
        more: "",
        group: Group::Moving,
        verbs: PLANNED,
    },
    Knob {
        name: "request-size",
        letter: None,
        value: "SIZE",
        kind: Kind::Number(Limits::REQUEST_BYTES, |o, n| o.settings.request_bytes = n as u32),
        default: "1M",
        help: "Bytes that one request moves",
        more: "",
        group: Group::Moving,
        verbs: MOVING,
    },
    Knob {
        name: "depth-source",
        letter: None,
        value: "N",
        kind: Kind::NumberOr("auto", Limits::count(1, limits::DEPTH_MAX as u64), |o, n| {
            o.settings.depth_source = n.map(|n| n as u16);
        }),
        default: "auto",
        help: "Requests in flight at the source, for each stream",
        more: "",
        group: Group::Moving,
        verbs: MOVING,
    },
    Knob {
        name: "depth-sink",
        letter: None,
        value: "N",
        kind: Kind::NumberOr("auto", Limits::count(1, limits::DEPTH_MAX as u64), |o, n| {
            o.settings.depth_sink = n.map(|n| n as u16);
        }),
        default: "auto",
        help: "Requests in flight at the sink, for each stream",
        more: "",
        group: Group::Moving,
        verbs: MOVING,
    },
    Knob {
        name: "rate",
        letter: None,
        value: "RATE",
        kind: Kind::RateOr("unlimited", |o, rate| o.settings.rate = rate),
        default: "unlimited",
        help: "Upper limit of all streams together",
        more: "The unit is always spelled out: 100Mbit is bits a second (decimal), 80MB bytes a \
               second (decimal), 80M bytes a second (binary).",
        group: Group::Moving,
        verbs: MOVING,
    },
    Knob {
        name: "seal",
        letter: None,
        value: "HOW",
        kind: Kind::Choice(Seal::NAMES, |o, i| o.settings.seal = Seal::ALL[i]),
        default: "tls",
        help: "How the streams are protected",
        more: "tls: TLS 1.3, both sides' keys made for this transfer. auth: clear text, each \
               block with a keyed tag: tamper-evident, not secret. off: clear text for a wire \
               you trust; strangers are still refused.",
        group: Group::Moving,
        verbs: SEALED,
    },
    Knob {
        name: "digest",
        letter: None,
        value: "WHICH",
        kind: Kind::Choice(DigestKind::NAMES, |o, i| o.settings.digest = DigestKind::ALL[i]),
        default: "blake3",
        help: "The digest that is checked before a file gets its name",
        more: "",
        group: Group::Moving,
        verbs: SEALED,
    },
    Knob {
        name: "cpus",
        letter: None,
        value: "LIST",
        kind: Kind::Cpus(|o, cpus| o.cpus = Some(cpus)),
        default: "",
        help: "Hold this side to these CPUs",
        more: "As 'taskset' does: what the kernel's own threads do for it may be elsewhere.",
        group: Group::Moving,
        verbs: PINNED,
    },
    Knob {
        name: "stall",
        letter: None,
        value: "SECONDS",
        kind: Kind::Seconds(|o, time| o.settings.stall = time),
        default: "10",
        help: "How long a stream may move nothing before it is replaced",
        more: "",
        group: Group::Moving,
        verbs: SEALED,
    },
    Knob {
        name: "engine",
        letter: None,
        value: "WHICH",
        kind: Kind::Choice(EngineChoice::NAMES, |o, i| o.settings.engine = EngineChoice::ALL[i]),
        default: "auto",
        help: "What does the input and output",
        more: "auto takes what measures best for each end; the summary names it.",
        group: Group::Storage,
        verbs: SWEPT,
    },
    Knob {
        name: "direct",
        letter: None,
        value: "WHEN",
        kind: Kind::Choice(Direct::NAMES, |o, i| o.settings.direct = Direct::ALL[i]),
        default: "auto",
        help: "Whether files bypass the page cache",
        more: "",
        group: Group::Storage,
        verbs: MOVING,
    },
    Knob {
        name: "receive",
        letter: None,
        value: "HOW",
        kind: Kind::Choice(Receive::NAMES, |o, i| o.settings.receive = Receive::ALL[i]),
        default: "waitall",
        help: "How bodies are taken off a socket",
        more: "waitall lets one call wait for a whole request; any takes what has come, so that \
               there are more calls. For measuring; sealed streams take what has come anyway.",
        group: Group::Moving,
        verbs: COPYING,
    },
    Knob {
        name: "fsync",
        letter: None,
        value: "WHAT",
        kind: Kind::Choice(Fsync::NAMES, |o, i| o.settings.fsync = Fsync::ALL[i]),
        default: "file",
        help: "Whether a file is on stable storage before it gets its name",
        more: "file: each file, and then its folder, is synced. off: the system writes when it \
               likes; a crash soon after can leave files without their bytes.",
        group: Group::Storage,
        verbs: PUMPING,
    },
    Knob {
        name: "preallocate",
        letter: None,
        value: "WHETHER",
        kind: Kind::Choice(Preallocate::NAMES, |o, i| {
            o.settings.preallocate = Preallocate::ALL[i];
        }),
        default: "auto",
        help: "Give a file its length, and room for it, before its bytes arrive",
        more: "Writes behind a file's end wait for each other; a disk that is too small is found \
               at once. auto: where files are written around the page cache (--direct). Where the \
               file system cannot do it, nothing is reserved.",
        group: Group::Storage,
        verbs: MOVING,
    },
    Knob {
        name: "memory",
        letter: None,
        value: "SIZE",
        kind: Kind::Number(Limits::bytes(limits::MEMORY_BYTES_MIN, SIZE_MAX), |o, n| {
            o.settings.memory_bytes = n;
        }),
        default: "256M",
        help: "Memory that each side may use for buffers",
        more: "Depths that are left to the program are chosen to fit.",
        group: Group::Storage,
        verbs: SWEPT,
    },
    Knob {
        name: "interval",
        letter: Some('P'),
        value: "SECONDS",
        kind: Kind::Seconds(|o, time| o.interval = Some(time)),
        default: "",
        help: "Print a line with the rate of every interval",
        more: "On a terminal the lines stand above the progress line. Left out and without a \
               terminal, a line is printed every 10 seconds.",
        group: Group::Showing,
        verbs: TIMED,
    },
    Knob {
        name: "json",
        letter: None,
        value: "",
        kind: Kind::Flag(|o| o.json = true),
        default: "",
        help: "Print one JSON object a line instead of text",
        more: "Events are start, progress, file, warning, verdict and end; end always comes, \
               also on failure. On standard output, or on standard error when '-' is the \
               destination.",
        group: Group::Showing,
        verbs: ALL,
    },
    Knob {
        name: "quiet",
        letter: Some('q'),
        value: "",
        kind: Kind::Flag(|o| o.quiet = true),
        default: "",
        help: "Print errors only",
        more: "With --json the events progress and file (of files that went well) are left out.",
        group: Group::Showing,
        verbs: ALL,
    },
];

#[cfg(test)]
mod tests;
