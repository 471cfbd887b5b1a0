//! The command line as clap knows it, made from the table of knobs; and what is made from that: the
//! man page and the completions.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};

use clap::builder::{OsStringValueParser, PossibleValue, TypedValueParser, ValueParser};
use clap::error::ErrorKind;
use clap::{Arg, ArgAction, Command};
use clap_mangen::roff::{Roff, bold, roman};

use super::args::Options;
use super::help;
use super::knobs::{self, Kind, Knob};

/// What the program can be told to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    Copy,
    Demo,
    Verify,
    Clean,
    Measure,
    Model,
    Results,
    Explain,
    Doctor,
    Sweep,
    Peer,
    Probe,
    Man,
    Completions,
}

impl Verb {
    pub const ALL: &[Verb] = &[
        Verb::Copy,
        Verb::Demo,
        Verb::Verify,
        Verb::Clean,
        Verb::Measure,
        Verb::Model,
        Verb::Results,
        Verb::Explain,
        Verb::Doctor,
        Verb::Sweep,
        Verb::Man,
        Verb::Completions,
        Verb::Peer,
        Verb::Probe,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Verb::Copy => "copy",
            Verb::Demo => "demo",
            Verb::Verify => "verify",
            Verb::Clean => "clean",
            Verb::Measure => "measure",
            Verb::Model => "model",
            Verb::Results => "results",
            Verb::Explain => "explain",
            Verb::Doctor => "doctor",
            Verb::Sweep => "sweep",
            Verb::Peer => "peer",
            Verb::Probe => "probe",
            Verb::Man => "man",
            Verb::Completions => "completions",
        }
    }

    pub fn about(self) -> &'static str {
        match self {
            Verb::Copy => {
                "Copy files, folders and streams between this host and another, or on this host"
            }
            Verb::Demo => {
                "Show all of it on this host alone: make data, move it sealed, verify, clean up"
            }
            Verb::Verify => "Read again what a receipt (copy --manifest) says was written",
            Verb::Clean => "Remove what copies that were given up have left below a folder",
            Verb::Measure => {
                "Measure what a byte costs: each part alone, then what is made of them"
            }
            Verb::Model => "Fit, show and use the cost model of what was measured",
            Verb::Results => "List, show and export what was recorded of every run",
            Verb::Explain => {
                "Say what held a recorded run back, with the evidence, and what to change"
            }
            Verb::Doctor => {
                "Look for what would hold copies back: on this host, on another and between them"
            }
            Verb::Sweep => {
                "Try windows, streams and levels on many hosts, again and again, and say which suit"
            }
            Verb::Peer => "The far side of a copy, started over ssh; not for typing",
            Verb::Probe => "The clocks of a host while something is measured; not for typing",
            Verb::Man => "Print the man page",
            Verb::Completions => "Print a shell's completions",
        }
    }
}

/// The whole command line.
pub fn command() -> Command {
    let top = Command::new("datapump")
        .version(env!("CARGO_PKG_VERSION"))
        .about(help::ABOUT)
        .override_usage(help::SYNOPSIS)
        .before_help(help::first_screen())
        .help_template(
            "{name} {version}: {about}\n\n{usage-heading} {usage}\n\n\
             Commands:\n{subcommands}\n\n{before-help}",
        )
        .subcommand_required(true)
        .subcommand_value_name("COMMAND");
    Verb::ALL.iter().fold(top, |top, verb| top.subcommand(subcommand(*verb)))
}

fn subcommand(verb: Verb) -> Command {
    let plain = Command::new(verb.name()).about(verb.about()).args_override_self(true);
    let with_knobs = knobs::all()
        .filter(|knob| knob.verbs.contains(&verb))
        .fold(plain, |command, knob| command.arg(argument(knob)));
    match verb {
        Verb::Copy => copy(with_knobs),
        Verb::Demo => with_knobs
            .after_help("The far side is another process. The data is made in $TMPDIR or /tmp."),
        Verb::Verify => with_knobs
            .arg(positional("MANIFEST", "The receipt, as --manifest wrote it or b3sum prints it"))
            .arg(positional("PATH", "The folder that its names count from, or its only file"))
            .after_help(
                "Each file that differs, is missing or cannot be read is named. The exit code is\n\
                 6 when one differs, else 3 when one is missing or unreadable.",
            ),
        Verb::Clean => with_knobs
            .arg(positional("PATH", "The folders that were copied to").num_args(1..))
            .after_help(
                "Removes .datapump-*.part and .datapump-*.journal files; those of a copy that\n\
                 runs stay. A copy that is begun again afterwards starts over.",
            ),
        Verb::Measure => with_knobs.arg(positional("WHAT", MEASURED).required(false).num_args(0..)),
        Verb::Model => with_knobs
            .arg(positional("ACTION", "fit, show or predict"))
            .arg(positional("WORDS", "For predict: SRC... DST").required(false).num_args(0..)),
        Verb::Results => with_knobs
            .arg(positional("ACTION", "list, show or export"))
            .arg(
                positional("RUN", "Numbers of runs; all where none is given")
                    .required(false)
                    .num_args(0..),
            )
            .after_help(help::RESULTS),
        Verb::Explain => with_knobs
            .arg(positional("RUN", "A run's number; else the newest with samples").required(false))
            .after_help(help::EXPLAIN),
        Verb::Doctor => with_knobs
            .arg(
                positional("HOST", "Another host as ssh takes it: [USER@]HOST[:FOLDER]")
                    .required(false),
            )
            .after_help(help::DOCTOR),
        Verb::Sweep => with_knobs
            .arg(positional("WORDS", SWEEPING).required(false).num_args(0..))
            .after_help(help::SWEEP),
        Verb::Peer | Verb::Probe => with_knobs.hide(true),
        Verb::Man => with_knobs,
        Verb::Completions => with_knobs.arg(
            Arg::new("SHELL")
                .required(true)
                .help("bash, elvish, fish, powershell or zsh")
                .hide_possible_values(true)
                .value_parser(clap::value_parser!(clap_complete::Shell)),
        ),
    }
}

fn copy(with_knobs: Command) -> Command {
    with_knobs
        .override_usage(help::SYNOPSIS_COPY)
        .before_help(help::first_screen())
        .help_template("{about}\n\n{usage-heading} {usage}\n\n{before-help}{all-args}")
        // The screen above says more about them than two lines below it could.
        // One list, of which the last is DST: so options may stand between them, as with cp.
        .arg(positional(ENDS, "What to copy, and where to").num_args(1..))
        .mut_args(|arg| match arg.is_positional() {
            true => arg.hide_short_help(true).hide_long_help(true),
            false => arg,
        })
}

/// What `measure` measures.
const MEASURED: &str = "cpu, disk-source, disk-sink, net, disk-disk, disk-net-disk, its halves \
                        disk-net and net-disk, whole or all; or net and a host, with the options \
                        of a net test; or codec and files to pack";

/// What is done with campaigns.
const SWEEPING: &str = "Nothing to measure; else show [CAMPAIGN], compare CAMPAIGN CAMPAIGN, or \
                        profile [CAMPAIGN]; with --resume a CAMPAIGN. The newest where none is \
                        named";

/// All that `copy` is told beside its options.
pub const ENDS: &str = "SRC... DST";

fn positional(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name).required(true).help(help).value_parser(ValueParser::os_string())
}

/// A knob as an argument. Its value stays as typed, but it is a good one: the knob has said so.
fn argument(knob: &'static Knob) -> Arg {
    let arg = Arg::new(knob.name)
        .long(knob.name)
        .help(short_help(knob))
        .long_help(long_help(knob))
        .help_heading(knob.group.heading());
    let arg = match knob.letter {
        Some(letter) => arg.short(letter),
        None => arg,
    };
    match knob.kind {
        Kind::Flag(_) => arg.action(ArgAction::SetTrue),
        _ => arg
            .action(match knob.kind {
                Kind::Pattern(_) => ArgAction::Append,
                _ => ArgAction::Set,
            })
            .value_name(match knob.kind {
                Kind::Choice(names, _) => names.join("|"),
                _ => knob.value.to_string(),
            })
            .allow_negative_numbers(true)
            .hide_possible_values(true)
            .value_parser(KnobParser(knob)),
    }
}

fn short_help(knob: &Knob) -> String {
    match knob.default {
        "" => knob.help.to_string(),
        default => format!("{} [default: {default}]", knob.help),
    }
}

fn long_help(knob: &Knob) -> String {
    let mut text = format!("{}.", knob.help);
    if !knob.more.is_empty() {
        text.push_str(&format!("\n{}", help::fold(knob.more)));
    }
    let facts: Vec<String> = [("Takes ", knob.range()), ("Default: ", knob.default.to_string())]
        .into_iter()
        .filter(|(_, fact)| !fact.is_empty())
        .map(|(before, fact)| format!("{before}{fact}."))
        .collect();
    if !facts.is_empty() {
        text.push_str(&format!("\n{}", facts.join(" ")));
    }
    text
}

/// Lets a knob judge its value while clap parses, so that clap's own words never get in between.
#[derive(Clone, Debug)]
struct KnobParser(&'static Knob);

impl TypedValueParser for KnobParser {
    type Value = OsString;

    fn parse_ref(
        &self,
        command: &Command,
        arg: Option<&Arg>,
        value: &OsStr,
    ) -> Result<OsString, clap::Error> {
        if let Err(why) = self.0.set(&mut Options::default(), value) {
            return Err(clap::Error::raw(ErrorKind::ValueValidation, why).with_cmd(command));
        }
        OsStringValueParser::new().parse_ref(command, arg, value)
    }

    /// For completions.
    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        match self.0.kind {
            Kind::Choice(names, _) => Some(Box::new(names.iter().map(PossibleValue::new))),
            _ => None,
        }
    }
}

/// The completions of a shell.
pub fn completions(shell: clap_complete::Shell, out: &mut dyn Write) -> io::Result<()> {
    // The generator cannot report an error, so it writes to memory.
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut command(), "datapump", &mut text);
    out.write_all(&text)
}

/// The man page: one page for the whole program, the options of `copy` in full.
pub fn man(out: &mut dyn Write) -> io::Result<()> {
    let copy = subcommand(Verb::Copy)
        .name("datapump")
        .version(env!("CARGO_PKG_VERSION"))
        .about(help::ABOUT)
        // They have a section of their own.
        .mut_args(|arg| if arg.is_positional() { arg.hide(true) } else { arg });
    let man = clap_mangen::Man::new(copy)
        .title("DATAPUMP")
        .section("1")
        .source(concat!("datapump ", env!("CARGO_PKG_VERSION")))
        .manual("User commands");
    man.render_title(out)?;
    man.render_name_section(out)?;
    front(&mut Roff::new()).to_writer(out)?;
    man.render_options_section(out)?;
    back(&mut Roff::new()).to_writer(out)
}

/// The sections in front of the options.
fn front(roff: &mut Roff) -> &mut Roff {
    roff.control("SH", ["SYNOPSIS"]);
    for line in help::SYNOPSIS.lines() {
        roff.text([bold(line.trim())]);
        roff.control("br", []);
    }
    roff.control("SH", ["SRC AND DST"]);
    rows(roff, help::ENDPOINTS.iter().copied());
    roff.control("PP", []);
    roff.text([roman(help::TRAILING_SLASH)])
}

/// The sections behind them.
fn back(roff: &mut Roff) -> &mut Roff {
    roff.control("SH", ["COMMANDS"]);
    rows(roff, Verb::ALL.iter().map(|verb| (verb.name(), verb.about())));
    roff.control("SH", ["EXAMPLES"]);
    rows(roff, help::EXAMPLES.iter().copied());
    roff.control("SH", ["EXIT STATUS"]);
    for (code, text) in help::exit_codes() {
        rows(roff, [(code.as_str(), text)].into_iter());
    }
    roff
}

fn rows<'a>(roff: &mut Roff, rows: impl Iterator<Item = (&'a str, &'a str)>) {
    for (left, right) in rows {
        roff.control("TP", []);
        roff.text([bold(left)]);
        roff.text([roman(right)]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clap_finds_no_contradiction() {
        command().debug_assert();
    }

    #[test]
    fn every_knob_is_in_help_man_page_and_completions() {
        let help = subcommand(Verb::Copy).render_long_help().to_string();
        let mut page = Vec::new();
        man(&mut page).unwrap();
        let page = String::from_utf8(page).unwrap().replace("\\-", "-");
        let mut shell = Vec::new();
        completions(clap_complete::Shell::Bash, &mut shell).unwrap();
        let shell = String::from_utf8(shell).unwrap();
        for knob in knobs::all() {
            let typed = format!("--{}", knob.name);
            let text = match knob.verbs.contains(&Verb::Copy) {
                true => help.clone(),
                false => subcommand(knob.verbs[0]).render_long_help().to_string(),
            };
            assert!(text.contains(&typed), "{typed} in --help");
            assert!(shell.contains(&typed), "{typed} in the completions");
            if knob.verbs.contains(&Verb::Copy) {
                assert!(page.contains(&typed), "{typed} in the man page");
            }
        }
    }
}
