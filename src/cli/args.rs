//! Exactly what was typed: which command, which words, which options.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use clap::ArgMatches;
use clap::error::ErrorKind;

use super::command::{ENDS, Verb, command};
use super::help;
use super::knobs::{self, Kind, Knob};
use super::profile::{self, PROFILE};
use super::words;
use crate::base::codec::Compress;
use crate::base::cpus::Cpus;
use crate::base::job::Remote;
use crate::base::settings::{DataSet, Seal, Settings};
use crate::base::units::{Nanos, Rate};
use crate::measure::rig::Cache;
use crate::record::export::What;
use crate::study::CpuFrom;
use crate::study::experiment::{Order, Soak};

/// The command line, word by word.
#[derive(Debug)]
pub struct Args {
    pub task: Task,
    pub options: Options,
}

/// What to do, with its words as typed.
#[derive(Debug, PartialEq, Eq)]
pub enum Task {
    Copy { sources: Vec<OsString>, target: OsString },
    Demo,
    Verify { manifest: PathBuf, path: OsString },
    Clean { paths: Vec<OsString> },
    Measure { what: Vec<OsString> },
    Model { action: OsString, words: Vec<OsString> },
    Results { action: OsString, runs: Vec<OsString> },
    Explain { run: Option<OsString> },
    Doctor { host: Option<OsString> },
    Sweep { words: Vec<OsString> },
    Peer,
    Probe,
    Man,
    Completions(clap_complete::Shell),
}

/// Everything that a knob can set.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    pub settings: Settings,
    /// As typed; what leaving it out means depends on what is copied.
    pub compress: Option<Compress>,
    pub remote: Remote,
    /// The CPUs that this side is held to.
    pub cpus: Option<Cpus>,
    pub seed: u64,
    pub manifest: Option<PathBuf>,
    /// `-p` was typed.
    pub preserve: bool,
    pub profile: Option<String>,
    pub files_from: Option<PathBuf>,
    pub files_from_nul: bool,
    pub interval: Option<Nanos>,
    pub json: bool,
    pub quiet: bool,
    pub measure: Measuring,
    pub sweep: Sweeping,
    pub demo_bytes: u64,
    pub demo_files: u64,
    /// The measurements of `model fit`, in place of the store.
    pub input: Option<PathBuf>,
    /// Where results are kept, if not in the usual place.
    pub results: Option<PathBuf>,
    pub no_record: bool,
    /// Show the evidence of what held the copy back, not only the sentence.
    pub explain: bool,
    /// The rate that a doctor judges by.
    pub target: Option<Rate>,
    /// Runs that a list shows.
    pub limit: u32,
    /// Which runs a model's tables take CPU time from.
    pub cpu_from: CpuFrom,
    pub experiment: Option<String>,
    /// Of `FORMATS`.
    pub format: Option<usize>,
    pub output: Option<PathBuf>,
    pub export: What,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            settings: Settings::default(),
            compress: None,
            remote: Remote::default(),
            cpus: None,
            seed: 0,
            manifest: None,
            preserve: false,
            profile: None,
            files_from: None,
            files_from_nul: false,
            interval: None,
            json: false,
            quiet: false,
            measure: Measuring::default(),
            sweep: Sweeping::default(),
            demo_bytes: 512 << 20,
            demo_files: 2000,
            input: None,
            results: None,
            no_record: false,
            explain: false,
            target: None,
            limit: 20,
            cpu_from: CpuFrom::default(),
            experiment: None,
            format: None,
            output: None,
            export: What::Runs,
        }
    }
}

/// What is measured and how, as typed.
#[derive(Clone, Debug, PartialEq)]
pub struct Measuring {
    pub request_sizes: Vec<u32>,
    pub depths: Option<Vec<u16>>,
    pub bytes: Option<u64>,
    pub repeat: Option<u32>,
    pub order: Order,
    pub soak: Soak,
    pub cache: Cache,
    pub place: Option<PathBuf>,
    /// The folder that is written in, where it is another.
    pub sink_place: Option<PathBuf>,
    pub on: Option<String>,
    pub thorough: bool,
    pub net: NetTesting,
}

/// A net test, as typed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NetTesting {
    pub time: Option<Nanos>,
    pub omit: Option<Nanos>,
    pub interval: Option<Nanos>,
    pub reverse: bool,
    pub bidir: bool,
    pub udp: bool,
    pub streams: Option<u16>,
    pub seal: Option<Seal>,
    pub request_bytes: Option<u32>,
}

/// A campaign, as typed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sweeping {
    pub hosts: Option<PathBuf>,
    pub preset: Option<Preset>,
    /// `None` among them leaves the window to TCP.
    pub windows: Option<Vec<Option<u32>>>,
    pub streams: Option<Vec<u16>>,
    pub levels: Option<Vec<Compress>>,
    pub time: Option<Nanos>,
    pub sizes: Option<Vec<u64>>,
    pub durations: Option<Vec<Nanos>>,
    pub passes: Option<u32>,
    pub order: Option<Order>,
    pub data: DataSet,
    pub request_bytes: Option<u32>,
    pub resume: bool,
}

/// Orders that somebody has used before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preset {
    Slac,
}

impl Preset {
    pub const NAMES: &[&str] = &["slac"];
    pub const ALL: &[Preset] = &[Preset::Slac];
}

impl Default for Measuring {
    fn default() -> Measuring {
        Measuring {
            request_sizes: (14..=20).map(|power| 1 << power).collect(),
            depths: None,
            bytes: None,
            repeat: None,
            order: Order::Random,
            soak: Soak::All,
            cache: Cache::Bypass,
            place: None,
            sink_place: None,
            on: None,
            thorough: false,
            net: NetTesting::default(),
        }
    }
}

/// Why there is nothing to do: help that was asked for, or an error.
#[derive(Debug, PartialEq, Eq)]
pub enum Stop {
    /// Text for standard output; not an error.
    Help(String),
    /// The command line is wrong. Written in JSON too when that is what the words asked for.
    Wrong { text: String, json: bool },
}

impl Args {
    /// Reads the words of a command line, the program's name first.
    pub fn parse(words: impl IntoIterator<Item = OsString>) -> Result<Args, Stop> {
        let words: Vec<OsString> = words.into_iter().collect();
        let mut matches =
            command().try_get_matches_from(&words).map_err(|why| stop(&words, why))?;
        let (name, mut below) =
            matches.remove_subcommand().ok_or_else(|| wrong(&words, NO_COMMAND))?;
        let verb = Verb::ALL.iter().copied().find(|verb| verb.name() == name);
        let verb = verb.ok_or_else(|| wrong(&words, NO_COMMAND))?;
        let options = options(verb, &mut below).map_err(|why| wrong(&words, why))?;
        let task = task(verb, &mut below).map_err(|why| wrong(&words, why))?;
        Ok(Args { task, options })
    }
}

fn task(verb: Verb, typed: &mut ArgMatches) -> Result<Task, &'static str> {
    let mut all = |name: &str| typed.remove_many(name).into_iter().flatten();
    // clap has made sure that what is required is there.
    Ok(match verb {
        Verb::Copy => {
            let mut sources: Vec<OsString> = all(ENDS).collect();
            let target = sources.pop().filter(|_| !sources.is_empty());
            Task::Copy { target: target.ok_or(help::NO_DESTINATION)?, sources }
        }
        Verb::Demo => Task::Demo,
        Verb::Verify => Task::Verify {
            manifest: PathBuf::from(all("MANIFEST").next().unwrap_or_default()),
            path: all("PATH").next().unwrap_or_default(),
        },
        Verb::Clean => Task::Clean { paths: all("PATH").collect() },
        Verb::Measure => Task::Measure { what: all("WHAT").collect() },
        Verb::Model => Task::Model {
            action: all("ACTION").next().unwrap_or_default(),
            words: all("WORDS").collect(),
        },
        Verb::Results => Task::Results {
            action: all("ACTION").next().unwrap_or_default(),
            runs: all("RUN").collect(),
        },
        Verb::Explain => Task::Explain { run: all("RUN").next() },
        Verb::Doctor => Task::Doctor { host: all("HOST").next() },
        Verb::Sweep => Task::Sweep { words: all("WORDS").collect() },
        Verb::Peer => Task::Peer,
        Verb::Probe => Task::Probe,
        Verb::Man => Task::Man,
        Verb::Completions => {
            let shell = typed.get_one("SHELL").copied();
            Task::Completions(shell.unwrap_or(clap_complete::Shell::Bash))
        }
    })
}

fn options(verb: Verb, typed: &mut ArgMatches) -> Result<Options, String> {
    let mut options = Options::default();
    if verb == Verb::Copy
        && let Some(name) = typed.get_one::<OsString>(PROFILE)
    {
        profile::apply(name, verb, &mut options)?;
    }
    let mut patterns: Vec<(usize, &Knob, OsString)> = Vec::new();
    for knob in knobs::all().filter(|knob| knob.verbs.contains(&verb)) {
        match knob.kind {
            Kind::Flag(_) if typed.get_flag(knob.name) => knob.set(&mut options, OsStr::new(""))?,
            Kind::Flag(_) => {}
            Kind::Pattern(_) => {
                let places: Vec<usize> =
                    typed.indices_of(knob.name).into_iter().flatten().collect();
                let lines = typed.remove_many::<OsString>(knob.name).into_iter().flatten();
                patterns.extend(places.into_iter().zip(lines).map(|(at, line)| (at, knob, line)));
            }
            _ => {
                if let Some(value) = typed.remove_one::<OsString>(knob.name) {
                    knob.set(&mut options, &value)?;
                }
            }
        }
    }
    // Of patterns the last one that matches counts, so they stay in the order that they came in.
    patterns.sort_by_key(|(at, ..)| *at);
    for (_, knob, line) in patterns {
        knob.set(&mut options, &line)?;
    }
    Ok(options)
}

fn stop(words: &[OsString], why: clap::Error) -> Stop {
    let text = why.render().to_string();
    match why.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => Stop::Help(text),
        ErrorKind::MissingSubcommand => wrong(words, NO_COMMAND),
        ErrorKind::MissingRequiredArgument if words.iter().any(|word| word == "copy") => {
            wrong(words, help::NO_DESTINATION)
        }
        ErrorKind::InvalidSubcommand | ErrorKind::UnknownArgument if means_copy(words) => {
            let typed: Vec<String> =
                words[1..].iter().map(|word| words::quote(&word.to_string_lossy())).collect();
            wrong(
                words,
                format!("the command is missing; write: datapump copy {}", typed.join(" ")),
            )
        }
        _ => wrong(words, text.strip_prefix("error: ").unwrap_or(&text).trim_end()),
    }
}

/// True for `datapump SRC DST`: no command is named, and what stands there looks like ends of a
/// copy.
fn means_copy(words: &[OsString]) -> bool {
    let names: Vec<_> = words[1..].iter().filter(|word| !is_option(word)).collect();
    let command = |word: &OsStr| Verb::ALL.iter().any(|verb| word == verb.name());
    let looks_like_an_end = |word: &OsStr| {
        word.to_string_lossy().contains([':', '/', '.']) || std::path::Path::new(word).exists()
    };
    match names.first() {
        Some(first) if command(first) => false,
        Some(_) => names.len() > 1 && names.iter().any(|word| looks_like_an_end(word)),
        None => false,
    }
}

fn is_option(word: &OsStr) -> bool {
    word.len() > 1 && word.as_encoded_bytes().starts_with(b"-")
}

fn wrong(words: &[OsString], text: impl Into<String>) -> Stop {
    let json = words.iter().take_while(|word| *word != "--").any(|word| word == "--json");
    Stop::Wrong { text: text.into(), json }
}

const NO_COMMAND: &str = "no command; write 'datapump copy SRC DST' to copy, 'datapump demo' to \
                          see it work, or 'datapump --help'";

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStringExt;

    fn parse(line: &str) -> Result<Args, Stop> {
        let words = line.split_whitespace().map(OsString::from);
        Args::parse(std::iter::once(OsString::from("datapump")).chain(words))
    }

    #[test]
    fn sources_and_target() {
        let args = parse("copy -r a b/ host:c -s 8 --streams=2 --json").unwrap();
        let sources = vec!["a".into(), "b/".into()];
        assert_eq!(args.task, Task::Copy { sources, target: "host:c".into() });
        assert_eq!(args.options.settings.streams, 2, "the last one counts");
        assert!(args.options.settings.recursive && args.options.json);
    }

    /// As with cp and rsync, an option may stand anywhere before `--`.
    #[test]
    fn options_between_the_ends() {
        let lines = [
            "copy -r --json a b c",
            "copy a -r --json b c",
            "copy a b -r c --json",
            "copy a b --json c -r",
            "copy -r a --json b -- c",
        ];
        for line in lines {
            let args = parse(line).unwrap_or_else(|why| panic!("{line}: {why:?}"));
            let sources = vec!["a".into(), "b".into()];
            assert_eq!(args.task, Task::Copy { sources, target: "c".into() }, "{line}");
            assert!(args.options.settings.recursive && args.options.json, "{line}");
        }
        let args = parse("copy a -s 2 --exclude x b -- -s").unwrap();
        let sources = vec!["a".into(), "b".into()];
        assert_eq!(args.task, Task::Copy { sources, target: "-s".into() });
        assert_eq!(args.options.settings.streams, 2);
    }

    #[test]
    fn names_need_not_be_utf8() {
        let bad = OsString::from_vec(vec![b'a', 0xff]);
        let words = ["datapump", "copy", "--manifest"].map(OsString::from).into_iter();
        let words = words.chain([bad.clone(), bad.clone(), bad.clone()]);
        let args = Args::parse(words).unwrap();
        assert_eq!(args.options.manifest, Some(PathBuf::from(bad.clone())));
        assert_eq!(args.task, Task::Copy { sources: vec![bad.clone()], target: bad });
    }

    #[test]
    fn wrong_lines_are_told_what_to_write() {
        let cases = [
            ("", "no command; write 'datapump copy SRC DST'"),
            ("a host:b", "the command is missing; write: datapump copy a host:b"),
            ("-r a/ b/", "the command is missing; write: datapump copy -r a/ b/"),
            ("coyp a b", "unrecognized subcommand 'coyp'"),
            ("copy a", "copy needs something to copy and a place to put it"),
            ("copy -s 99 a b", "--streams '99': write a number from 1 to 64"),
            ("copy -s -1 a b", "--streams '-1': write a number from 1 to 64"),
            ("copy --sael off a b", "unexpected argument '--sael' found"),
            ("copy --seal none a b", "--seal 'none': write tls, auth or off"),
            ("demo x", "unexpected argument 'x' found"),
        ];
        for (line, expect) in cases {
            match parse(line) {
                Err(Stop::Wrong { text, .. }) => {
                    assert!(text.starts_with(expect), "{line}: {text}")
                }
                other => panic!("{line}: {other:?}"),
            }
        }
    }

    #[test]
    fn patterns_stay_in_order() {
        let args = parse("copy --exclude *.o --include=keep.o -r --exclude tmp/ a b").unwrap();
        assert_eq!(args.options.settings.filters, ["*.o", "!keep.o", "tmp/"]);
    }

    #[test]
    fn json_is_known_even_when_the_rest_is_wrong() {
        assert!(matches!(parse("copy --json -s 0 a b"), Err(Stop::Wrong { json: true, .. })));
        assert!(matches!(parse("copy -s 0 a -- --json"), Err(Stop::Wrong { json: false, .. })));
        assert!(matches!(parse("copy --help"), Err(Stop::Help(_))));
    }
}
