//! The parsed command line: the command, its words, and its options in their order, those of a
//! profile first. Each command makes its own arguments from it.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};

use clap::ArgMatches;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use super::command_id::{self, Branch, CommandId, Group};
use super::config::{self, Given, Origin, Outside};
use super::endpoint;
use super::habits;
use super::help;
use super::options::copying::{OVERWRITE, UPDATE};
use super::options::moving::{CONFIG, PROFILE};
use super::options::recording::PATH_SAMPLES;
use super::options::{self, AnyOption, CliOption, Shape, any_of};
use super::parser;
use super::words;

/// A parsed command line. Every option in it is one that the command takes, with a valid value.
#[derive(Debug)]
pub(crate) struct Typed {
    pub command: CommandId,
    /// Of several with one name the last counts.
    options: Vec<Given>,
    words: BTreeMap<String, Vec<OsString>>,
    /// The options that the command has asked for, by name.
    asked: RefCell<BTreeSet<&'static str>>,
    outside: Outside,
}

/// Why there is nothing to do: help that was asked for, or an error.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// Text for standard output; not an error.
    Help(String),
    /// The command line is wrong. Written in JSON too when that is what the words asked for.
    Wrong { text: String, json: bool },
}

impl Stop {
    pub(super) fn wrong(words: &[OsString], text: impl Into<String>) -> Stop {
        let json = words.iter().take_while(|word| *word != "--").any(|word| word == "--json");
        Stop::Wrong { text: text.into(), json }
    }
}

impl Typed {
    /// Reads the words of a command line, the program's name first, and nothing else.
    pub(super) fn parse(words: &[OsString]) -> Result<Typed, Stop> {
        Typed::parse_with(words, &Outside::default())
    }

    /// The same with the options that come from elsewhere.
    pub(super) fn parse_with(words: &[OsString], outside: &Outside) -> Result<Typed, Stop> {
        let mut matches = parser::command()
            .try_get_matches_from(words)
            .map_err(|why| stop(words, &without_hidden(why)))?;
        let (name, below) =
            matches.remove_subcommand().ok_or_else(|| Stop::wrong(words, NO_COMMAND))?;
        let branch = command_id::branch(&name).ok_or_else(|| Stop::wrong(words, NO_COMMAND))?;
        let typed = match branch {
            Branch::Command(command) => Typed::of(*command, vec![below], outside),
            Branch::Group(group) => of_group(group, below, outside),
        };
        typed.map_err(|why| Stop::wrong(words, why))
    }

    /// Options in front of a command's own word come before those after it.
    fn of(
        command: CommandId,
        matches: Vec<ArgMatches>,
        outside: &Outside,
    ) -> Result<Typed, String> {
        let mut typed = Typed {
            command,
            options: Vec::new(),
            words: BTreeMap::new(),
            asked: RefCell::default(),
            outside: outside.clone(),
        };
        for mut level in matches {
            typed.take(&mut level)?;
        }
        if CONFIG.commands.contains(&command) && command != CommandId::ConfigShow {
            typed.maybe(&PROFILE)?;
            typed.value(&CONFIG)?;
            let (given, host) = (std::mem::take(&mut typed.options), typed.host());
            typed.options = config::complete(given, command, host.as_deref(), outside)?;
        }
        Ok(typed)
    }

    fn take(&mut self, matches: &mut ArgMatches) -> Result<(), String> {
        let names: Vec<String> = matches.ids().map(|id| id.to_string()).collect();
        let mut repeated: Vec<(usize, Given)> = Vec::new();
        for name in names {
            let is_typed =
                matches.value_source(&name) == Some(clap::parser::ValueSource::CommandLine);
            if !is_typed {
                continue;
            }
            if parser::is_word(&name) {
                let words = matches.remove_many(&name).into_iter().flatten().collect();
                self.words.insert(name, words);
                continue;
            }
            let option =
                options::find(self.command, &name).ok_or_else(|| not_of(self.command, &name))?;
            match option.shape() {
                Shape::Nothing => {
                    let (value, origin) = (OsString::new(), Origin::Typed);
                    self.options.push(Given { option, value, origin });
                }
                _ => {
                    let places: Vec<usize> =
                        matches.indices_of(&name).into_iter().flatten().collect();
                    let values = matches.remove_many::<OsString>(&name).into_iter().flatten();
                    for (at, value) in places.into_iter().zip(values) {
                        option.check(&value)?;
                        let origin = Origin::Typed;
                        repeated.push((at, Given { option, value, origin }));
                    }
                }
            }
        }
        // Of patterns the last match counts, so they stay in the order of the command line.
        repeated.sort_by_key(|(at, _)| *at);
        self.options.extend(repeated.into_iter().map(|(_, given)| given));
        Ok(())
    }

    /// True where a flag was typed.
    pub(super) fn has(&self, option: &'static CliOption<bool>) -> bool {
        self.given(option).next_back().is_some()
    }

    /// The value of an option that was typed.
    pub(super) fn value<T: std::fmt::Debug>(
        &self,
        option: &'static CliOption<T>,
    ) -> Result<Option<T>, String> {
        let last = self.given(option).next_back();
        last.map(|given| option.kind.read(option.name, &given.value)).transpose()
    }

    /// The value that was typed, else the option's default.
    pub(crate) fn value_or_default<T: std::fmt::Debug>(
        &self,
        option: &'static CliOption<T>,
    ) -> Result<T, String> {
        match self.value(option)? {
            Some(value) => Ok(value),
            None => option.kind.read(option.name, OsStr::new(option.default)),
        }
    }

    /// Sets a field that several commands have, if this one takes the option and it was typed.
    pub(super) fn set<T: std::fmt::Debug>(
        &self,
        field: &mut T,
        option: &'static CliOption<T>,
    ) -> Result<(), String> {
        if let Some(value) = self.maybe(option)? {
            *field = value;
        }
        Ok(())
    }

    /// The value of an option that this command may not take.
    pub(super) fn maybe<T: std::fmt::Debug>(
        &self,
        option: &'static CliOption<T>,
    ) -> Result<Option<T>, String> {
        match option.commands.contains(&self.command) {
            true => self.value(option),
            false => Ok(None),
        }
    }

    /// True where `one` was set nearer to the command line than `other`, in a place of its own.
    pub(super) fn overrides(&self, one: &dyn AnyOption, other: &dyn AnyOption) -> bool {
        let last =
            |wanted: &dyn AnyOption| self.options.iter().rposition(|given| given.option.is(wanted));
        let (Some(one), other) = (last(one), last(other)) else { return false };
        other.is_none_or(|other| {
            let [one_origin, other_origin] = [one, other].map(|at| &self.options[at].origin);
            one > other && !one_origin.is_same_place(other_origin)
        })
    }

    /// All values of options of one type, in the order in which they were typed.
    pub(super) fn values<T: std::fmt::Debug>(
        &self,
        of: &[&'static CliOption<T>],
    ) -> Result<Vec<T>, String> {
        of.iter().for_each(|option| self.note(option));
        let mut values = Vec::new();
        for given in &self.options {
            let name = given.option.description().name;
            if let Some(option) = of.iter().find(|option| option.name == name) {
                values.push(option.kind.read(name, &given.value)?);
            }
        }
        Ok(values)
    }

    /// The names of all options that were given.
    pub(super) fn names(&self) -> impl Iterator<Item = &'static str> {
        self.options.iter().map(|given| given.option.description().name)
    }

    /// The options that make another run what this one is, as words. Of several with one name the
    /// last is enough, unless each counts. What they name is readable by all users of the host
    /// while the program runs: secrets are not given to it as options.
    pub(super) fn repeated(&self) -> Vec<String> {
        let mut words = Vec::new();
        for (at, given) in self.options.iter().enumerate() {
            let about = given.option.description();
            let is_shown =
                matches!(about.group, options::Group::Showing | options::Group::Recording);
            let is_source = [PROFILE.name, CONFIG.name].contains(&about.name);
            let counts = given.option.shape() == Shape::Values
                || !self.options[at + 1..].iter().any(|later| later.option.is(given.option));
            let is_overridden = given.option.is(&OVERWRITE) && self.overrides(&UPDATE, &OVERWRITE);
            if is_source || is_overridden || !counts || is_shown && about.name != PATH_SAMPLES.name
            {
                continue;
            }
            let value = given.value.to_string_lossy();
            match given.option.shape() {
                Shape::Nothing => words.push(format!("--{}", about.name)),
                Shape::ValueOrNothing if value.is_empty() => {
                    words.push(format!("--{}", about.name))
                }
                Shape::ValueOrNothing => words.push(format!("--{}={value}", about.name)),
                _ if value.starts_with('-') => words.push(format!("--{}={value}", about.name)),
                _ => words.extend([format!("--{}", about.name), value.into_owned()]),
            }
        }
        words
    }

    /// True for an option of this name on the command line itself.
    pub(super) fn is_typed(&self, name: &str) -> bool {
        self.options
            .iter()
            .any(|given| given.origin == Origin::Typed && given.option.description().name == name)
    }

    /// Where options may come from besides the command line.
    pub(super) fn outside(&self) -> &Outside {
        &self.outside
    }

    /// An error with the place of each option that it names and that is not on the command line.
    pub(super) fn with_origins(&self, why: String) -> String {
        let mut places = Vec::new();
        for given in &self.options {
            let name = format!("--{}", given.option.description().name);
            let is_named = why.split(|c: char| c != '-' && !c.is_alphanumeric()).any(|w| w == name);
            if let Some(place) = given.origin.shown().filter(|_| is_named) {
                places.push(format!("{name} is from {place}"));
            }
        }
        match places.is_empty() {
            true => why,
            false => format!("{why} ({})", places.join(", ")),
        }
    }

    /// The other host as typed, for which the configuration may have options.
    fn host(&self) -> Option<String> {
        let words =
            [parser::ENDS, "HOST", "PATH", "A", "B"].into_iter().flat_map(|name| self.words(name));
        words
            .filter_map(|word| match self.command {
                CommandId::NetTest | CommandId::Doctor => endpoint::host_as_typed(&word).ok(),
                _ => endpoint::host_of(&word),
            })
            .next()
    }

    /// The words of this name that are no options.
    pub(super) fn words(&self, name: &str) -> Vec<OsString> {
        self.words.get(name).cloned().unwrap_or_default()
    }

    /// The only word of this name.
    pub(super) fn word(&self, name: &str) -> Option<OsString> {
        self.words.get(name).and_then(|words| words.first().cloned())
    }

    /// The options that the command has asked for so far, by name.
    #[cfg(test)]
    pub(super) fn asked(&self) -> BTreeSet<&'static str> {
        self.asked.borrow().clone()
    }

    fn given<T: std::fmt::Debug>(
        &self,
        option: &'static CliOption<T>,
    ) -> impl DoubleEndedIterator<Item = &Given> {
        self.note(option);
        self.options.iter().filter(|given| given.option.description().name == option.name)
    }

    fn note<T>(&self, option: &'static CliOption<T>) {
        let CliOption { name, commands, .. } = option;
        debug_assert!(commands.contains(&self.command), "{} has --{name}", self.command.typed());
        self.asked.borrow_mut().insert(name);
    }
}

fn of_group(
    group: &'static Group,
    mut first: ArgMatches,
    outside: &Outside,
) -> Result<Typed, String> {
    match first.remove_subcommand() {
        Some((name, second)) if group.words.iter().any(|(word, _)| *word == name) => {
            let alone = group.alone.ok_or_else(|| actions(group))?;
            let mut typed = Typed::of(alone, vec![first, second], outside)?;
            // The command takes it as the first of its words.
            typed.words.entry(CAMPAIGN.into()).or_default().insert(0, name.into());
            Ok(typed)
        }
        Some((name, second)) => {
            let command = group.commands.iter().find(|command| command.name() == name);
            let command = command.ok_or_else(|| actions(group))?;
            Typed::of(*command, vec![first, second], outside)
        }
        None => Typed::of(group.alone.ok_or_else(|| actions(group))?, vec![first], outside),
    }
}

/// The error for an option in front of a command's word that another command of its group has.
fn not_of(command: CommandId, name: &str) -> String {
    let having = CommandId::all().filter(|other| options::find(*other, name).is_some());
    let group = command.first_word();
    let of: Vec<String> = having.filter(|c| c.first_word() == group).map(|c| c.typed()).collect();
    let of: Vec<&str> = of.iter().map(String::as_str).collect();
    format!(
        "--{name} is an option of {}, and {} has none of that name",
        any_of(&of),
        command.typed()
    )
}

fn actions(group: &Group) -> String {
    let names: Vec<&str> = group.commands.iter().map(|command| command.name()).collect();
    format!("{} needs a word for what to do: write {}", group.name, any_of(&names))
}

fn stop(words: &[OsString], why: &clap::Error) -> Stop {
    let text = why.render().to_string();
    let first = words.get(1).and_then(|word| word.to_str()).and_then(command_id::branch);
    match (why.kind(), first) {
        (ErrorKind::DisplayHelp | ErrorKind::DisplayVersion, _) => Stop::Help(text),
        (ErrorKind::MissingSubcommand, Some(Branch::Group(group))) => {
            Stop::wrong(words, actions(group))
        }
        (ErrorKind::MissingSubcommand, _) => Stop::wrong(words, NO_COMMAND),
        (ErrorKind::MissingRequiredArgument, Some(Branch::Command(CommandId::Copy))) => {
            Stop::wrong(words, help::NO_DESTINATION)
        }
        (ErrorKind::InvalidSubcommand, Some(Branch::Group(group))) => {
            let names: Vec<&str> = group.commands.iter().map(|command| command.name()).collect();
            let typed = match why.get(ContextKind::InvalidSubcommand) {
                Some(ContextValue::String(typed)) => typed.as_str(),
                _ => "",
            };
            Stop::wrong(words, format!("{} '{typed}': write {}", group.name, any_of(&names)))
        }
        (ErrorKind::UnknownArgument, _) if tip(words, why).is_some() => {
            Stop::wrong(words, tip(words, why).unwrap_or_default())
        }
        (ErrorKind::InvalidSubcommand, None) if command_elsewhere(why).is_some() => {
            Stop::wrong(words, command_elsewhere(why).unwrap_or_default())
        }
        (ErrorKind::ValueValidation, _) if habits::other_meaning(words, &text).is_some() => {
            let other = habits::other_meaning(words, &text).unwrap_or_default();
            let text = text.strip_prefix("error: ").unwrap_or(&text).trim_end();
            Stop::wrong(words, format!("{text} ({other})"))
        }
        (ErrorKind::InvalidSubcommand | ErrorKind::UnknownArgument, _)
            if !is_misspelt(why) && means_copy(words) =>
        {
            let typed: Vec<String> = habits::without_verb(&words[1..])
                .iter()
                .map(|word| words::quote(&word.to_string_lossy()))
                .collect();
            let line = typed.join(" ");
            Stop::wrong(words, format!("the command is missing; write: datapump copy {line}"))
        }
        (kind, _) => {
            let text = text.strip_prefix("error: ").unwrap_or(&text);
            // The synopsis of all commands would hide which one was meant.
            let text = match kind {
                ErrorKind::InvalidSubcommand => text.split("\n\nUsage:").next().unwrap_or(text),
                _ => text,
            };
            Stop::wrong(words, text.trim_end())
        }
    }
}

/// The error without suggestions of commands that only datapump itself starts, and without the one
/// to take an unknown option for a value.
fn without_hidden(mut why: clap::Error) -> clap::Error {
    if why.kind() == ErrorKind::UnknownArgument {
        why.remove(ContextKind::Suggested);
    }
    let is_hidden = |name: &String| match command_id::branch(name) {
        Some(Branch::Command(command)) => command.is_hidden(),
        _ => false,
    };
    let near = match why.remove(ContextKind::SuggestedSubcommand) {
        Some(ContextValue::Strings(near)) => near,
        Some(ContextValue::String(near)) => vec![near],
        _ => return why,
    };
    let shown: Vec<String> = near.into_iter().filter(|name| !is_hidden(name)).collect();
    if !shown.is_empty() {
        why.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(shown));
    }
    why
}

/// What to type here instead of an option of another tool.
fn tip(words: &[OsString], why: &clap::Error) -> Option<String> {
    let Some(ContextValue::String(typed)) = why.get(ContextKind::InvalidArg) else { return None };
    // Of several letters behind one dash only the first unknown one is named, and all are told.
    let letter = typed.strip_prefix('-').filter(|letter| letter.chars().count() == 1);
    let of_letter = |word: &&str| {
        let letters = word.strip_prefix('-').filter(|letters| !letters.starts_with('-'));
        letters.zip(letter).is_some_and(|(letters, letter)| letters.contains(letter))
    };
    let whole = words.iter().filter_map(|word| word.to_str()).find(of_letter);
    let first = words.get(1).and_then(|word| word.to_str()).and_then(command_id::branch);
    let command = match first {
        Some(Branch::Command(command)) => *command,
        Some(Branch::Group(group)) => group.alone.unwrap_or(group.commands[0]),
        None => CommandId::Copy,
    };
    let of = |word: &str| habits::option(command, word);
    whole.and_then(of).or_else(|| of(typed))
}

/// What to type here instead of a command of another tool.
fn command_elsewhere(why: &clap::Error) -> Option<String> {
    match why.get(ContextKind::InvalidSubcommand) {
        Some(ContextValue::String(typed)) => habits::command(typed),
        _ => None,
    }
}

/// True if the word in the place of a command is nearly one: `kopy`.
fn is_misspelt(why: &clap::Error) -> bool {
    let typed = why.get(ContextKind::InvalidSubcommand);
    let near = why.get(ContextKind::SuggestedSubcommand);
    let (Some(ContextValue::String(typed)), Some(ContextValue::Strings(near))) = (typed, near)
    else {
        return false;
    };
    typed.len() > 3 && near.iter().any(|command| command.len().abs_diff(typed.len()) < 2)
}

/// True for `datapump SRC DST`: no command is named, and the words look like the ends of a copy.
fn means_copy(words: &[OsString]) -> bool {
    let names: Vec<_> = words[1..].iter().filter(|word| !is_option(word)).collect();
    let command =
        |word: &OsStr| word.to_str().is_some_and(|word| command_id::branch(word).is_some());
    let looks_like_an_end = |word: &OsStr| {
        word.to_string_lossy().contains([':', '/', '.']) || std::path::Path::new(word).exists()
    };
    match names.first() {
        Some(first) if command(first) => false,
        Some(_) if habits::without_tool(&words[1..]).len() < words.len() - 1 => names.len() > 1,
        // The first may be a command of another program: `mkdir s3://bucket`.
        Some(first) if names.len() == 2 && names[1].as_encoded_bytes().starts_with(b"s3:") => {
            looks_like_an_end(first)
        }
        Some(_) => names.len() > 1 && names.iter().any(|word| looks_like_an_end(word)),
        None => false,
    }
}

fn is_option(word: &OsStr) -> bool {
    word.len() > 1 && word.as_encoded_bytes().starts_with(b"-")
}

/// The words of `sweep`.
const CAMPAIGN: &str = "CAMPAIGN";
const NO_COMMAND: &str = "no command; write 'datapump copy SRC DST' to copy, 'datapump demo' to \
                          see it work, or 'datapump --help'";
