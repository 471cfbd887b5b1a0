//! The command line as clap knows it, made from the command tree and the descriptions of options;
//! and what is made from that: the man page and the completions.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};

use clap::builder::{
    EnumValueParser, OsStringValueParser, PossibleValue, TypedValueParser, ValueParser,
};
use clap::error::ErrorKind;
use clap::{Arg, ArgAction, Command};
use clap_complete::Shell;
use clap_mangen::roff::{Roff, bold, roman};

use super::command_id::{Branch, CommandId, Group, TREE};
use super::help;
use super::options::{self, AnyOption, Description, Shape};

/// The whole command line.
pub(super) fn command() -> Command {
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
    TREE.iter().fold(top, |top, branch| {
        top.subcommand(match branch {
            Branch::Command(one) => leaf(*one),
            Branch::Group(group) => of_group(group),
        })
    })
}

/// A first word with commands below it. Their options may also precede the second word.
fn of_group(group: &'static Group) -> Command {
    let first = match group.alone {
        Some(alone) => leaf(alone).subcommand_value_name("COMMAND"),
        None => Command::new(group.name)
            .about(group.about)
            .args_override_self(true)
            .subcommand_required(true)
            .subcommand_value_name("COMMAND"),
    };
    let first =
        group.commands.iter().fold(first, |first, command| first.subcommand(leaf(*command)));
    let below = group.commands.iter().flat_map(|command| options::of(*command));
    below.fold(first, |first, option| {
        let known = first.get_arguments().any(|arg| arg.get_id() == option.description().name);
        if known { first } else { first.arg(in_front(option)) }
    })
}

fn leaf(command: CommandId) -> Command {
    let plain = Command::new(command.name()).about(command.about()).args_override_self(true);
    let with_options =
        options::of(command).fold(plain, |plain, option| plain.arg(argument(option)));
    let with_words = words(command).into_iter().fold(with_options, Command::arg);
    match command {
        CommandId::Copy => copy(with_words),
        command if command.is_hidden() => with_words.hide(true),
        command => match after_help(command) {
            "" => with_words,
            text => with_words.after_help(text),
        },
    }
}

/// The positional arguments of a command.
fn words(command: CommandId) -> Vec<Arg> {
    let many = |name, help| word(name, help).required(false).num_args(0..);
    match command {
        // One list, of which the last is DST: so options may stand between them, as with cp.
        CommandId::Copy => vec![word(ENDS, "What to copy, and where to").num_args(1..)],
        CommandId::Verify => vec![
            word("MANIFEST", "The receipt, as --manifest wrote it or b3sum prints it"),
            word("PATH", "The folder that its names count from, or its only file"),
        ],
        CommandId::Clean => vec![word("PATH", "The folders that were copied to").num_args(1..)],
        CommandId::Measure => vec![many("WHAT", MEASURED)],
        CommandId::MeasureCodec => vec![many("FILE", PACKED)],
        CommandId::NetTest => {
            vec![optional("HOST", "The other host, as ssh takes it: [USER@]HOST; else this one")]
        }
        CommandId::ModelShow => vec![optional("HOST", "The host's name; else this host")],
        CommandId::ModelPredict => vec![many(ENDS, "What would be copied, and where to")],
        CommandId::ResultsList | CommandId::ResultsExport => {
            vec![many("RUN", "Numbers of runs; where none is given, all that the options leave")]
        }
        CommandId::ResultsShow => vec![many("RUN", "Numbers of runs, as list shows them")],
        CommandId::Explain => vec![optional("RUN", "A run's number; else the newest with samples")],
        CommandId::Doctor => {
            vec![optional("HOST", "Another host as ssh takes it: [USER@]HOST[:FOLDER]")]
        }
        CommandId::Sweep => vec![many("CAMPAIGN", "With --resume, the campaign; else the newest")],
        CommandId::SweepShow | CommandId::SweepProfile => {
            vec![optional("CAMPAIGN", "The campaign, or the end of its name; else the newest")]
        }
        CommandId::SweepCompare => vec![many("CAMPAIGN", "The earlier campaign, and the later")],
        CommandId::Completions => vec![
            Arg::new(SHELL)
                .required(true)
                .help("bash, elvish, fish, powershell or zsh")
                .hide_possible_values(true)
                .value_parser(
                    EnumValueParser::<Shell>::new().map(|shell| OsString::from(shell.to_string())),
                ),
        ],
        CommandId::Demo
        | CommandId::ModelFit
        | CommandId::Man
        | CommandId::Peer
        | CommandId::Probe => Vec::new(),
    }
}

/// True for a name of a command's words, which no option has.
pub(super) fn is_word(name: &str) -> bool {
    name.starts_with(|letter: char| letter.is_ascii_uppercase())
}

fn after_help(command: CommandId) -> &'static str {
    match command {
        CommandId::Demo => help::DEMO,
        CommandId::Verify => help::VERIFY,
        CommandId::Clean => help::CLEAN,
        CommandId::NetTest => help::NET_TEST,
        CommandId::ResultsList | CommandId::ResultsShow | CommandId::ResultsExport => help::RESULTS,
        CommandId::Explain => help::EXPLAIN,
        CommandId::Doctor => help::DOCTOR,
        CommandId::Sweep => help::SWEEP,
        _ => "",
    }
}

fn copy(with_words: Command) -> Command {
    with_words
        .override_usage(help::SYNOPSIS_COPY)
        .before_help(help::first_screen())
        .help_template("{about}\n\n{usage-heading} {usage}\n\n{before-help}{all-args}")
        // The screen above says more about them than two lines below it could.
        .mut_args(|arg| match arg.is_positional() {
            true => arg.hide_short_help(true).hide_long_help(true),
            false => arg,
        })
}

fn word(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name).required(true).help(help).value_parser(ValueParser::os_string())
}

fn optional(name: &'static str, help: &'static str) -> Arg {
    word(name, help).required(false)
}

/// An option as an argument. Its value stays as typed; the option has checked it.
fn argument(option: &'static dyn AnyOption) -> Arg {
    let Description { name, letter, group, .. } = option.description();
    let arg = Arg::new(name)
        .long(name)
        .help(short_help(option))
        .long_help(long_help(option))
        .help_heading(group.heading());
    let arg = match letter {
        Some(letter) => arg.short(letter),
        None => arg,
    };
    match with_action(arg, option) {
        flag if option.shape() == Shape::Nothing => flag,
        arg => arg.value_parser(ByOption(option)),
    }
}

/// The same in front of the word of its command, where it may still be refused.
fn in_front(option: &'static dyn AnyOption) -> Arg {
    let Description { name, letter, .. } = option.description();
    let arg = Arg::new(name).long(name).hide(true);
    let arg = match letter {
        Some(letter) => arg.short(letter),
        None => arg,
    };
    match with_action(arg, option) {
        flag if option.shape() == Shape::Nothing => flag,
        arg => arg.value_parser(ValueParser::os_string()),
    }
}

fn with_action(arg: Arg, option: &'static dyn AnyOption) -> Arg {
    let action = match option.shape() {
        Shape::Nothing => return arg.action(ArgAction::SetTrue),
        Shape::Values => ArgAction::Append,
        Shape::Value | Shape::OneOf(_) => ArgAction::Set,
    };
    arg.action(action)
        .value_name(match option.shape() {
            Shape::OneOf(names) => names.join("|"),
            _ => option.description().value.to_string(),
        })
        .allow_negative_numbers(true)
        .hide_possible_values(true)
}

fn short_help(option: &dyn AnyOption) -> String {
    let Description { help, default, .. } = option.description();
    match default {
        "" => help.to_string(),
        default => format!("{help} [default: {default}]"),
    }
}

fn long_help(option: &dyn AnyOption) -> String {
    let Description { help, more, default, .. } = option.description();
    let mut text = format!("{help}.");
    if !more.is_empty() {
        text.push_str(&format!("\n{}", help::fold(more)));
    }
    let varied = options::sweeping::AXES.iter().find(|(axis, _)| axis.is(option));
    let varied = varied.map(|(_, varied)| format!("copy --{}", varied.description().name));
    let facts = [
        ("Takes ", option.phrase()),
        ("Default: ", default.to_string()),
        ("Each cell has one of them as ", varied.unwrap_or_default()),
    ];
    let facts: Vec<String> = facts
        .into_iter()
        .filter(|(_, fact)| !fact.is_empty())
        .map(|(before, fact)| format!("{before}{fact}."))
        .collect();
    if !facts.is_empty() {
        text.push_str(&format!("\n{}", facts.join(" ")));
    }
    text
}

/// An option checks its value while clap parses, so that the error has the option's words.
#[derive(Clone, Debug)]
struct ByOption(&'static dyn AnyOption);

impl TypedValueParser for ByOption {
    type Value = OsString;

    fn parse_ref(
        &self,
        command: &Command,
        arg: Option<&Arg>,
        value: &OsStr,
    ) -> Result<OsString, clap::Error> {
        if let Err(why) = self.0.check(value) {
            return Err(clap::Error::raw(ErrorKind::ValueValidation, why).with_cmd(command));
        }
        OsStringValueParser::new().parse_ref(command, arg, value)
    }

    /// For completions.
    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        match self.0.shape() {
            Shape::OneOf(names) => Some(Box::new(names.iter().map(PossibleValue::new))),
            _ => None,
        }
    }
}

/// The completions of a shell.
pub(crate) fn completions(shell: Shell, out: &mut dyn Write) -> io::Result<()> {
    // The generator cannot report an error, so it writes to memory.
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut command(), "datapump", &mut text);
    out.write_all(&text)
}

/// The man page: one page for the whole program, the options of `copy` in full, those of the other
/// commands with a line each.
pub(crate) fn man(out: &mut dyn Write) -> io::Result<()> {
    let copy = leaf(CommandId::Copy)
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
    for command in CommandId::all() {
        rows(roff, [(command.typed().as_str(), command.about())].into_iter());
    }
    for command in CommandId::all().filter(|command| *command != CommandId::Copy) {
        let options: Vec<_> = options::of(command).collect();
        if options.is_empty() || command.is_hidden() {
            continue;
        }
        roff.control("SH", [format!("OPTIONS OF {}", command.typed().to_uppercase()).as_str()]);
        for option in options {
            let help = short_help(option);
            rows(roff, [(synopsis(option).as_str(), help.as_str())].into_iter());
        }
    }
    roff.control("SH", ["EXAMPLES"]);
    rows(roff, help::EXAMPLES.iter().copied());
    roff.control("SH", ["EXIT STATUS"]);
    for (code, text) in help::exit_codes() {
        rows(roff, [(code.as_str(), text)].into_iter());
    }
    roff
}

/// `-s, --streams N`.
fn synopsis(option: &dyn AnyOption) -> String {
    let Description { name, letter, value, .. } = option.description();
    let letter = letter.map_or(String::new(), |letter| format!("-{letter}, "));
    format!("{letter}--{name} {value}").trim_end().to_string()
}

fn rows<'a>(roff: &mut Roff, rows: impl Iterator<Item = (&'a str, &'a str)>) {
    for (left, right) in rows {
        roff.control("TP", []);
        roff.text([bold(left)]);
        roff.text([roman(right)]);
    }
}

/// The values of `measure`.
const MEASURED: &str = "cpu, disk-source, disk-sink, net, disk-disk, disk-net-disk, its halves \
                        disk-net and net-disk, whole or all";
const PACKED: &str = "Files to compress, or what makes bytes (records:16M); else one of each kind";
/// The positional arguments of `copy`.
pub(crate) const ENDS: &str = "SRC... DST";
pub(crate) const SHELL: &str = "SHELL";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clap_finds_no_contradiction() {
        command().debug_assert();
    }

    #[test]
    fn every_option_is_in_help_man_page_and_completions() {
        let mut page = Vec::new();
        man(&mut page).unwrap();
        let page = String::from_utf8(page).unwrap().replace("\\-", "-");
        let mut shell = Vec::new();
        completions(Shell::Bash, &mut shell).unwrap();
        let shell = String::from_utf8(shell).unwrap();
        for command in CommandId::all() {
            let help = leaf(command).render_long_help().to_string();
            for option in options::of(command) {
                let typed = format!("--{}", option.description().name);
                assert!(help.contains(&typed), "{typed} in the help of {}", command.typed());
                assert!(shell.contains(&typed), "{typed} in the completions");
                assert!(command.is_hidden() || page.contains(&typed), "{typed} in the man page");
            }
            let usage = help::SYNOPSIS.replace('\n', " ");
            let named = usage.contains(&format!("datapump {}", command.first_word()));
            let own = matches!(command, CommandId::Man | CommandId::Completions);
            assert!(named || own || command.is_hidden(), "{} in the synopsis", command.typed());
        }
    }
}
