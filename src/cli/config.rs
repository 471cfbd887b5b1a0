//! Options that are not on the command line: those of the configuration file, for every host and
//! for some, those of the environment, and those of a profile. All of them are options as they are
//! typed; what is nearer to the command line counts.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use toml_edit::{Document, Item, Key, TableLike, Value as TomlValue};

use super::command_id::CommandId;
use super::options::moving::{CONFIG, PROFILE};
use super::options::{self, AnyOption, Group, Shape};
use super::profile;
use base::fault::reason;
use mover::pump::source::pattern::Pattern;

/// Where options may come from besides the command line.
#[derive(Clone, Debug, Default)]
pub(super) struct Outside {
    /// The configuration file, which need not exist.
    file: Option<PathBuf>,
    /// The variables of the environment that may stand for an option.
    variables: BTreeMap<String, OsString>,
}

/// An option with its value.
#[derive(Clone, Debug)]
pub(super) struct Given {
    pub option: &'static dyn AnyOption,
    /// As typed; empty for a flag.
    pub value: OsString,
    pub origin: Origin,
}

/// Where the value of an option comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    Typed,
    Environment {
        variable: String,
    },
    Profile {
        name: String,
    },
    File {
        path: PathBuf,
        line: usize,
        /// The pattern of hosts of its table; `None` for the defaults.
        table: Option<String>,
    },
}

/// One place in which options are set.
#[derive(Clone, Debug)]
struct Setting {
    given: Given,
    /// False for a flag that is off: what other places say of it does not count.
    on: bool,
}

/// A configuration file.
#[derive(Debug)]
struct Config {
    defaults: Vec<Setting>,
    /// In the order of the file.
    hosts: Vec<(HostPattern, Vec<Setting>)>,
}

/// A pattern for hosts as they are typed: with a user, or for any user.
#[derive(Debug)]
struct HostPattern {
    pattern: Pattern,
    has_user: bool,
}

impl Outside {
    /// What this process has.
    pub(super) fn of_process() -> Outside {
        let variables = std::env::vars_os().filter_map(|(name, value)| {
            let name = name.into_string().ok()?;
            name.starts_with(VARIABLE).then_some((name, value))
        });
        let folder = profile::config_folder();
        Outside {
            file: folder.map(|folder| folder.join("config.toml")),
            variables: variables.filter(|(_, value)| !value.is_empty()).collect(),
        }
    }

    /// The options that variables set for a command.
    fn settings(&self, command: CommandId) -> Result<Vec<Setting>, String> {
        let mut settings = Vec::new();
        for option in options::of(command).filter(|option| takes(command, *option)) {
            let name = option.description().name;
            let variable = variable_of(name);
            let Some(value) = self.variables.get(&variable) else { continue };
            let is_flag = option.shape() == Shape::Nothing;
            let on = !is_flag || !["0", "false", "no", "off"].map(OsStr::new).contains(&&**value);
            let value = if is_flag { OsString::new() } else { value.clone() };
            option.check(&value).map_err(|why| format!("{variable}: {why}"))?;
            let origin = Origin::Environment { variable };
            settings.push(Setting { given: Given { option, value, origin }, on });
        }
        Ok(settings)
    }

    /// The file that counts: as typed, as a variable says, or the usual one.
    fn config(&self, typed: &[Given]) -> Result<Option<Config>, String> {
        let typed = typed.iter().rev().find(|given| is(given.option, &CONFIG));
        let variable = self.variables.get(&variable_of(CONFIG.name));
        let (path, is_named) = match (typed.map(|given| &given.value), variable, &self.file) {
            (Some(path), _, _) | (None, Some(path), _) if path == NO_FILE => return Ok(None),
            (Some(path), _, _) | (None, Some(path), _) => (PathBuf::from(path), true),
            (None, None, Some(path)) => (path.clone(), false),
            (None, None, None) => return Ok(None),
        };
        if !is_named {
            owned(&path)?;
        }
        match fs::read_to_string(&path) {
            Ok(text) => Config::parse(&path, &text).map(Some),
            Err(why) if why.kind() == io::ErrorKind::NotFound && !is_named => Ok(None),
            Err(why) => Err(format!(
                "cannot read the configuration '{}': {}; --config none does without",
                path.display(),
                reason(&why)
            )),
        }
    }
}

/// Refuses a file in which somebody else can name programs that this one starts, as ssh does. One
/// that was named is of whoever was trusted with it.
fn owned(path: &Path) -> Result<(), String> {
    let Ok(found) = fs::metadata(path) else { return Ok(()) }; // reading it says why
    let user = rustix::process::geteuid().as_raw();
    let why = match (found.uid(), found.mode()) {
        (owner, _) if owner != user && owner != 0 => "belongs to another user",
        (_, mode) if mode & WRITABLE_BY_ALL != 0 => "can be written by everybody",
        _ => return Ok(()),
    };
    Err(format!(
        "the configuration '{0}' {why}, who could have any program run: make it yours (chown, \
         chmod go-w), name it with --config {0}, or do without with --config none",
        path.display()
    ))
}

const WRITABLE_BY_ALL: u32 = 0o002;

/// All options of a command line that count, those that others override first. `host` is as typed.
pub(super) fn complete(
    typed: Vec<Given>,
    command: CommandId,
    host: Option<&str>,
    outside: &Outside,
) -> Result<Vec<Given>, String> {
    let mut layers = match outside.config(&typed)? {
        Some(config) => config.layers(host),
        None => Vec::new(),
    };
    layers.push(outside.settings(command)?);
    layers.push(typed.into_iter().map(|given| Setting { given, on: true }).collect());
    // A profile stands just below the place that names it.
    let named = |layer: &Vec<Setting>| {
        let profile = layer.iter().rev().find(|setting| is(setting.given.option, &PROFILE));
        profile.map(|setting| setting.given.value.clone())
    };
    let place = layers.iter().rposition(|layer| named(layer).is_some());
    if let Some((at, name)) = place.and_then(|at| Some((at, named(&layers[at])?))) {
        let name = name.into_string().map_err(|_| "--profile: the value is not UTF-8")?;
        let origin = Origin::Profile { name: name.clone() };
        let options = profile::options(&name, CommandId::Copy)?.into_iter();
        let given = options.map(|(option, value)| Given { option, value, origin: origin.clone() });
        layers.insert(at, given.map(|given| Setting { given, on: true }).collect());
    }
    let mut counting: Vec<Given> = Vec::new();
    for Setting { given, on } in layers.into_iter().flatten() {
        match on {
            true => counting.push(given),
            false => counting.retain(|other| !is(other.option, given.option)),
        }
    }
    // The file is for several commands, and options differ in their letters alone.
    let own = |given: Given| {
        let option = options::find(command, given.option.description().name)?;
        let counts = given.origin == Origin::Typed || takes(command, option);
        counts.then_some(Given { option, ..given })
    };
    Ok(counting.into_iter().filter_map(own).collect())
}

/// Whether a command takes this option from elsewhere than the command line. A measurement has all
/// of its options on its command line.
fn takes(command: CommandId, option: &dyn AnyOption) -> bool {
    let description = option.description();
    !ONE_RUN.contains(&description.name)
        && description.name != CONFIG.name
        && match command {
            CommandId::Copy => true,
            CommandId::ModelPredict => options::find(CommandId::Copy, description.name).is_some(),
            CommandId::NetTest
            | CommandId::Doctor
            | CommandId::Spread
            | CommandId::SpreadResume
            | CommandId::SpreadCancel => description.group == Group::Remote,
            CommandId::Verify | CommandId::Compare | CommandId::Ls => {
                let filters = ["exclude", "include", "exclude-from"];
                matches!(description.group, Group::Remote | Group::Stores)
                    || filters.contains(&description.name)
            }
            _ => false,
        }
}

impl Config {
    /// Reads a whole file. Every error names the file and the line.
    fn parse(path: &Path, text: &str) -> Result<Config, String> {
        let file = File { path, text };
        let document = Document::parse(text)
            .map_err(|why| file.at(why.span(), &why.message().replace('\n', ", ")))?;
        let mut config = Config { defaults: Vec::new(), hosts: Vec::new() };
        for (key, item) in entries(document.as_table()) {
            match (key.get(), item.as_table_like()) {
                ("defaults", Some(table)) => config.defaults = file.settings(table, None)?,
                ("host", Some(hosts)) => {
                    for (key, item) in entries(hosts) {
                        let pattern =
                            HostPattern::new(key.get()).map_err(|why| file.at(key.span(), &why))?;
                        let Some(table) = item.as_table_like() else {
                            let text = format!(
                                "'{}' is no host's table: write [host.\"PATTERN\"] above it",
                                key.get()
                            );
                            return Err(file.at(key.span(), &text));
                        };
                        config.hosts.push((pattern, file.settings(table, Some(key.get()))?));
                    }
                }
                (name, _) => {
                    let text = format!(
                        "'{name}' is not below [defaults] or [host.\"PATTERN\"]: write one of the \
                         two above it"
                    );
                    return Err(file.at(key.span(), &text));
                }
            }
        }
        Ok(config)
    }

    /// What counts for a host, later tables over earlier ones.
    fn layers(self, host: Option<&str>) -> Vec<Vec<Setting>> {
        let fits = |pattern: &HostPattern| host.is_some_and(|host| pattern.matches(host));
        let of_host = self.hosts.into_iter().filter(|(pattern, _)| fits(pattern));
        [self.defaults].into_iter().chain(of_host.map(|(_, settings)| settings)).collect()
    }
}

impl HostPattern {
    fn new(typed: &str) -> Result<HostPattern, String> {
        Ok(HostPattern { pattern: Pattern::new(typed.as_bytes())?, has_user: typed.contains('@') })
    }

    fn matches(&self, host: &str) -> bool {
        let without_user = host.rsplit_once('@').map_or(host, |(_, host)| host);
        let name = if self.has_user { host } else { without_user };
        self.pattern.matches(name.as_bytes())
    }
}

/// A file that is read, to name the lines of errors.
struct File<'a> {
    path: &'a Path,
    text: &'a str,
}

impl File<'_> {
    fn line(&self, span: Option<Range<usize>>) -> usize {
        let start = span.map_or(0, |span| span.start.min(self.text.len()));
        1 + self.text.as_bytes()[..start].iter().filter(|byte| **byte == b'\n').count()
    }

    fn at(&self, span: Option<Range<usize>>, why: &str) -> String {
        format!("'{}', line {}: {why}", self.path.display(), self.line(span))
    }

    fn settings(&self, table: &dyn TableLike, host: Option<&str>) -> Result<Vec<Setting>, String> {
        let mut settings = Vec::new();
        for (key, item) in entries(table) {
            let wrong = |why: String| self.at(key.span(), &why);
            let option = option(key.get()).map_err(wrong)?;
            let line = self.line(key.span());
            let table = host.map(String::from);
            let origin = Origin::File { path: self.path.into(), line, table };
            for (value, on) in values(option, item).map_err(wrong)? {
                option.check(OsStr::new(&value)).map_err(wrong)?;
                let given = Given { option, value: value.into(), origin: origin.clone() };
                settings.push(Setting { given, on });
            }
        }
        Ok(settings)
    }
}

fn entries(table: &dyn TableLike) -> impl Iterator<Item = (&Key, &Item)> {
    table.iter().filter_map(|(name, _)| table.get_key_value(name))
}

/// The option of this name that may stand in the file.
fn option(name: &str) -> Result<&'static dyn AnyOption, String> {
    let find = |name: &str| options::find(CommandId::Copy, name);
    match find(name) {
        Some(option) if takes(CommandId::Copy, option) => Ok(option),
        Some(_) => Err(format!("'{name}' is for one run: write it on the command line")),
        None => {
            let spelled = name.replace('_', "-");
            Err(match find(&spelled) {
                Some(_) => format!("there is no option '{name}': write {spelled}"),
                None => format!(
                    "there is no option '{name}': the names are those of 'datapump copy --help', \
                     without the dashes"
                ),
            })
        }
    }
}

/// The values of an option as typed, and whether a flag is on.
fn values(option: &dyn AnyOption, item: &Item) -> Result<Vec<(String, bool)>, String> {
    let name = option.description().name;
    let text = |value: &TomlValue| match value {
        TomlValue::String(text) => Ok((text.value().clone(), true)),
        TomlValue::Integer(number) => Ok((number.value().to_string(), true)),
        TomlValue::Float(number) => Ok((number.value().to_string(), true)),
        other => Err(format!("{name} is a {}: write a string", other.type_name())),
    };
    match (option.shape(), item) {
        (Shape::Nothing, Item::Value(TomlValue::Boolean(on))) => {
            Ok(vec![(String::new(), *on.value())])
        }
        (Shape::Nothing, _) => Err(format!("{name} is a flag: write true or false")),
        (Shape::ValueOrNothing, Item::Value(TomlValue::Boolean(on))) if *on.value() => {
            Ok(vec![(String::new(), true)])
        }
        (Shape::Values, Item::Value(TomlValue::Array(list))) => list.iter().map(text).collect(),
        (_, Item::Value(value)) => Ok(vec![text(value)?]),
        (_, other) => Err(format!("{name} is a {}: write a value", other.type_name())),
    }
}

/// `DATAPUMP_REMOTE_DATAPUMP`.
fn variable_of(name: &str) -> String {
    format!("{VARIABLE}{}", name.to_ascii_uppercase().replace('-', "_"))
}

fn is(option: &dyn AnyOption, other: &dyn AnyOption) -> bool {
    option.description().name == other.description().name
}

impl Origin {
    /// True for options that stand side by side: neither is nearer to the command line.
    pub(super) fn is_same_place(&self, other: &Origin) -> bool {
        match (self, other) {
            (Origin::File { table: one, .. }, Origin::File { table: other, .. }) => one == other,
            (one, other) => std::mem::discriminant(one) == std::mem::discriminant(other),
        }
    }

    /// As a person reads it; `None` for what is typed.
    pub(super) fn shown(&self) -> Option<String> {
        match self {
            Origin::Typed => None,
            Origin::Environment { variable } => Some(format!("the variable {variable}")),
            Origin::Profile { name } => Some(format!("the profile {name}")),
            Origin::File { path, line, .. } => Some(format!("'{}', line {line}", path.display())),
        }
    }
}

const VARIABLE: &str = "DATAPUMP_";
/// As a path of the file: there is none.
const NO_FILE: &str = "none";
/// Options that are about one run, and not about how a host is used.
const ONE_RUN: &[&str] = &["dry-run", "files-from", "null", "manifest", "fresh"];

#[cfg(test)]
mod tests;
