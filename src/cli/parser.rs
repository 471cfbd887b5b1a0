//! The command line as clap knows it, made from the command tree and the descriptions of options.
//! The man pages and the completions are made from it.

use std::ffi::{OsStr, OsString};

use clap::builder::{
    EnumValueParser, OsStringValueParser, PossibleValue, TypedValueParser, ValueParser,
};
use clap::error::ErrorKind;
use clap::{Arg, ArgAction, Command};
use clap_complete::Shell;

use super::command_id::{self, Branch, CommandId, Group, TREE};
use super::complete;
use super::help;
use super::options::{self, AnyOption, Description, Shape};
use mover::remote::version;

/// The whole command line.
pub(super) fn command() -> Command {
    TREE.iter().fold(top(), |top, branch| top.subcommand(first_word(branch)))
}

/// The same without what only another program types.
pub(super) fn shown() -> Command {
    let is_shown = |branch: &&Branch| branch.commands().any(|command| !command.is_hidden());
    TREE.iter().filter(is_shown).fold(top(), |top, branch| top.subcommand(first_word(branch)))
}

fn top() -> Command {
    Command::new("datapump")
        .version(env!("CARGO_PKG_VERSION"))
        .long_version(version::text())
        .about(help::ABOUT)
        .override_usage(help::SYNOPSIS)
        .before_help(help::first_screen())
        .help_template(
            "{name} {version}: {about}\n\n{usage-heading} {usage}\n\n\
             Commands:\n{subcommands}\n\n{before-help}",
        )
        .subcommand_required(true)
        .subcommand_value_name("COMMAND")
}

/// A first word. What may follow it is made where it is typed: all options of all commands take
/// some milliseconds, at both ends of a copy.
fn first_word(branch: &Branch) -> Command {
    let first = match branch {
        Branch::Command(one) => bare(*one),
        Branch::Group(Group { alone: Some(alone), .. }) => bare(*alone),
        Branch::Group(group) => Command::new(group.name).about(group.about),
    };
    first.defer(|first| match command_id::branch(first.get_name()) {
        Some(Branch::Command(one)) => with_arguments(*one, first),
        Some(Branch::Group(group)) => with_commands(group, first),
        None => first,
    })
}

/// A first word with commands below it. Their options may also precede the second word.
fn with_commands(group: &'static Group, first: Command) -> Command {
    let first = match group.alone {
        Some(alone) => with_arguments(alone, first),
        None => first.args_override_self(true).subcommand_required(true),
    };
    let first = first.subcommand_value_name("COMMAND");
    let first =
        group.commands.iter().fold(first, |first, command| first.subcommand(leaf(*command)));
    let first = group.words.iter().fold(first, |first, (word, about)| match group.alone {
        Some(alone) => first.subcommand(with_arguments(alone, Command::new(*word).about(*about))),
        None => first,
    });
    let below = group.commands.iter().flat_map(|command| options::of(*command));
    below.fold(first, |first, option| {
        let known = first.get_arguments().any(|arg| arg.get_id() == option.description().name);
        if known { first } else { first.arg(in_front(option)) }
    })
}

pub(super) fn leaf(command: CommandId) -> Command {
    with_arguments(command, bare(command))
}

/// What the list of commands says of it.
fn bare(command: CommandId) -> Command {
    Command::new(command.name()).about(command.about()).hide(command.is_hidden())
}

fn with_arguments(command: CommandId, bare: Command) -> Command {
    let plain = bare.args_override_self(true);
    let with_options =
        options::of(command).fold(plain, |plain, option| plain.arg(argument(option)));
    let with_words = words(command)
        .into_iter()
        .map(|word| complete::word(command, word))
        .fold(with_options, Command::arg);
    match command {
        CommandId::Copy => copy(with_words),
        command if command.is_hidden() => with_words,
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
        CommandId::Copy => vec![word(ENDS, "What to copy, and where").num_args(1..)],
        CommandId::Verify => vec![
            word("MANIFEST", "The receipt, as --manifest wrote it or b3sum prints it"),
            word(
                "PATH",
                "The folder that its names are relative to, or its only file: PATH, \
                          HOST:PATH or s3://BUCKET/KEY",
            ),
        ],
        CommandId::Compare => compared(),
        CommandId::Ls => {
            vec![optional("PATH", "A folder, HOST:PATH or s3://BUCKET/KEY; default: .")]
        }
        CommandId::Clean => {
            vec![word("PATH", "Destination folders of copies, or s3://BUCKET/KEY").num_args(1..)]
        }
        CommandId::Submit => vec![submitted()],
        CommandId::SubmittedCopy => vec![word("FOLDER", "The folder of the submitted copy")],
        CommandId::Limit => vec![
            optional("PROCESS", "The number of the copy's process; default: list all copies"),
            optional("RATE", "The new limit: 100Mbit, 80MB, or unlimited; default: show it"),
        ],
        CommandId::Measure => vec![many("WHAT", MEASURED)],
        CommandId::MeasureCodec => vec![many("FILE", PACKED)],
        CommandId::NetTest => {
            vec![optional("HOST", "The other host, as for ssh: [USER@]HOST; default: this host")]
        }
        CommandId::ModelShow => vec![optional("HOST", "The name of the host; default: this host")],
        CommandId::ModelPredict => vec![many(ENDS, "What would be copied, and where")],
        CommandId::ResultsList | CommandId::ResultsExport => {
            vec![many("RUN", "Numbers of runs; default: all that the options select")]
        }
        CommandId::ResultsShow => vec![many("RUN", "Numbers of runs, as list shows them")],
        CommandId::Explain => vec![optional("RUN", "The run; default: the newest with samples")],
        CommandId::Report => vec![many("WHAT", REPORTED)],
        CommandId::Doctor => {
            vec![optional("HOST", "Another host, as for ssh: [USER@]HOST[:FOLDER]")]
        }
        CommandId::Sweep => vec![many(
            "CAMPAIGN",
            "With --resume; default: the newest campaign. Or s3://BUCKET/PREFIX: measure a store",
        )],
        CommandId::SweepShow | CommandId::SweepProfile => {
            vec![optional("CAMPAIGN", "The campaign, or the end of its name; default: the newest")]
        }
        CommandId::SweepCompare => vec![many("CAMPAIGN", "The earlier campaign, then the later")],
        CommandId::Spread => vec![many(ENDS, "What to copy, and the folder where it goes")],
        CommandId::ConfigShow => {
            vec![optional("HOST", "A host as a copy names it; default: what holds for every host")]
        }
        CommandId::Completions => vec![shell()],
        CommandId::Man => vec![many(PAGE, "A command, such as 'model fit'; default: the program")],
        CommandId::Complete => vec![many(LINE, "The words of the line so far")],
        command if command.first_word() == "spread" => {
            vec![word(JOB, "The job folder, as spread printed it")]
        }
        _ => Vec::new(),
    }
}

fn shell() -> Arg {
    let name = EnumValueParser::<Shell>::new().map(|shell| OsString::from(shell.to_string()));
    word(SHELL, "bash, elvish, fish, powershell or zsh")
        .hide_possible_values(true)
        .value_parser(name)
}

fn compared() -> Vec<Arg> {
    vec![
        word("A", "A file, a folder or s3://BUCKET/KEY; one of the two may be HOST:PATH"),
        word("B", "What it is compared with: a folder with a folder, a file with a file"),
    ]
}

/// The copy that becomes a job: all that follows belongs to it.
fn submitted() -> Arg {
    word(SUBMITTED, "The copy: copy [OPTIONS] SRC... DST")
        .num_args(1..)
        .trailing_var_arg(true)
        .allow_hyphen_values(true)
}

/// True for a name of a command's words, which no option has.
pub(super) fn is_word(name: &str) -> bool {
    name.starts_with(|letter: char| letter.is_ascii_uppercase())
}

pub(super) fn after_help(command: CommandId) -> &'static str {
    match command {
        CommandId::Demo => help::DEMO,
        CommandId::Verify => help::VERIFY,
        CommandId::Compare => help::COMPARE,
        CommandId::Clean => help::CLEAN,
        CommandId::Submit => help::SUBMIT,
        CommandId::Limit => help::LIMIT,
        CommandId::NetTest => help::NET_TEST,
        CommandId::ResultsList | CommandId::ResultsShow | CommandId::ResultsExport => help::RESULTS,
        CommandId::Explain => help::EXPLAIN,
        CommandId::Report => help::REPORT,
        CommandId::Doctor => help::DOCTOR,
        CommandId::Sweep => help::SWEEP,
        CommandId::Spread => help::SPREAD,
        _ => "",
    }
}

fn copy(with_words: Command) -> Command {
    with_words
        .override_usage(help::SYNOPSIS_COPY)
        .before_help(help::before_first_options())
        .before_long_help(help::before_options())
        .after_help(help::MORE_OF_COPY)
        .after_long_help(help::exit_codes_section())
        .help_template("{about}\n\n{usage-heading} {usage}\n\n{before-help}{all-args}{after-help}")
        // The screen above says more about them than two lines below it could.
        .mut_args(|arg| match arg.is_positional() {
            true => arg.hide_short_help(true).hide_long_help(true),
            false => {
                let is_first = help::FIRST_OPTIONS.contains(&arg.get_id().as_str());
                arg.hide_short_help(!is_first)
            }
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
        arg => complete::value(option, arg.value_parser(ByOption(option))),
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
        Shape::Value | Shape::ValueOrNothing | Shape::OneOf(_) => ArgAction::Set,
    };
    let arg = match option.shape() {
        Shape::ValueOrNothing => arg.num_args(0..=1).require_equals(true).default_missing_value(""),
        _ => arg,
    };
    arg.action(action)
        .value_name(match option.shape() {
            Shape::OneOf(names) => names.join("|"),
            _ => option.description().value.to_string(),
        })
        .allow_negative_numbers(true)
        .hide_possible_values(true)
}

pub(super) fn short_help(option: &dyn AnyOption) -> String {
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
        ("Each cell uses one of them as ", varied.unwrap_or_default()),
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

/// The values of `measure`.
const MEASURED: &str = "cpu, disk-source, disk-sink, net, disk-disk, disk-net-disk, its halves \
                        disk-net and net-disk, whole or all; or s3://BUCKET/PREFIX by itself";
const REPORTED: &str = "A run, a campaign (or an earlier and a later one), or a host with a model; \
                        default: the newest run with samples";
const PACKED: &str = "Files to compress, or generators (records:16M); default: one of each kind";
/// The positional arguments of `copy`.
pub(crate) const ENDS: &str = "SRC... DST";
pub(crate) const JOB: &str = "JOB";
pub(crate) const SHELL: &str = "SHELL";
/// The copy that becomes a job.
pub(super) const SUBMITTED: &str = "COPY";
/// The command whose page is wanted.
pub(super) const PAGE: &str = "COMMAND";
/// A command line that is to be completed.
pub(super) const LINE: &str = "WORD";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clap_finds_no_contradiction() {
        command().debug_assert();
    }
}
