//! Every option, described once. The parser, `--help`, the man page, the completions, profiles and
//! the axes of a campaign are made from these descriptions and take the names from them; sentences
//! that name an option are tested against them (`tests.rs`).

pub(crate) mod copying;
mod kind;
pub(crate) mod measuring;
pub(crate) mod moving;
pub(super) mod net_test;
pub(super) mod recording;
pub(super) mod remote;
pub(crate) mod showing;
pub(super) mod slurm;
pub(crate) mod spreading;
pub(super) mod storage;
pub(super) mod stores;
pub(crate) mod sweeping;

pub(crate) use self::kind::{Kind, any_of};

use std::ffi::OsStr;
use std::fmt::Debug;

use super::command_id::CommandId;

/// One option: how it is typed, what it means, and what its value becomes.
#[derive(Debug)]
pub(crate) struct CliOption<T: 'static> {
    /// The long name, without its dashes.
    pub name: &'static str,
    pub letter: Option<char>,
    /// What stands for its value in a synopsis; empty for a flag.
    pub value: &'static str,
    pub kind: Kind<T>,
    /// The default as it would be typed; empty if there is none.
    pub default: &'static str,
    /// One line for `-h`.
    pub help: &'static str,
    /// More text, for `--help` and the man page.
    pub more: &'static str,
    pub group: Group,
    /// The commands that take it.
    pub commands: &'static [CommandId],
}

/// The heading under which an option stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Group {
    Copying,
    Remote,
    Moving,
    Storage,
    Stores,
    Slurm,
    Measuring,
    NetTest,
    Sweeping,
    Spreading,
    Showing,
    Recording,
}

impl Group {
    pub(crate) fn heading(self) -> &'static str {
        match self {
            Group::Copying => "What is copied",
            Group::Remote => "The far side",
            Group::Moving => "How bytes move",
            Group::Storage => "Reading and writing files",
            Group::Stores => "Object stores",
            Group::Slurm => "Slurm",
            Group::Measuring => "What is measured",
            Group::NetTest => "What is tested",
            Group::Sweeping => "A campaign",
            Group::Spreading => "A job over many nodes",
            Group::Showing => "What is shown",
            Group::Recording => "What is recorded",
        }
    }
}

/// An option whose value may be of any type.
pub(crate) trait AnyOption: Debug + Sync {
    fn description(&self) -> Description;
    fn shape(&self) -> Shape;
    /// The values it takes, as a phrase; empty where all are allowed.
    fn phrase(&self) -> String;
    /// The error says what to type instead.
    fn check(&self, typed: &OsStr) -> Result<(), String>;
}

impl dyn AnyOption + '_ {
    /// True for the same option, not only one of the same name.
    pub(super) fn is(&self, other: &dyn AnyOption) -> bool {
        let (this, other) = (self.description(), other.description());
        this.name == other.name && this.commands == other.commands
    }
}

/// All of an option but its value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Description {
    pub name: &'static str,
    pub letter: Option<char>,
    pub value: &'static str,
    pub default: &'static str,
    pub help: &'static str,
    pub more: &'static str,
    pub group: Group,
    pub commands: &'static [CommandId],
}

/// What follows an option's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    Nothing,
    Value,
    /// A value after `=`, or nothing.
    ValueOrNothing,
    /// A value; the option may be typed again, and each counts.
    Values,
    OneOf(&'static [&'static str]),
}

impl<T: Debug> AnyOption for CliOption<T> {
    fn description(&self) -> Description {
        let CliOption { name, letter, value, default, help, more, group, commands, .. } = *self;
        Description { name, letter, value, default, help, more, group, commands }
    }

    fn shape(&self) -> Shape {
        match self.kind {
            Kind::Flag(_) => Shape::Nothing,
            Kind::Port(_) => Shape::ValueOrNothing,
            Kind::Pattern(_) | Kind::Repeated(_) | Kind::Paths(_) => Shape::Values,
            Kind::Choice(names, _) => Shape::OneOf(names),
            _ => Shape::Value,
        }
    }

    fn phrase(&self) -> String {
        self.kind.phrase()
    }

    fn check(&self, typed: &OsStr) -> Result<(), String> {
        self.kind.read(self.name, typed).map(drop)
    }
}

/// Every option, in the order of `--help`.
pub(super) fn all() -> impl Iterator<Item = &'static dyn AnyOption> {
    let tables = [
        copying::TABLE,
        remote::TABLE,
        moving::TABLE,
        storage::TABLE,
        stores::TABLE,
        slurm::TABLE,
        showing::TABLE,
        measuring::TABLE,
        net_test::TABLE,
        sweeping::TABLE,
        spreading::TABLE,
        recording::TABLE,
    ];
    tables.into_iter().flatten().copied()
}

/// The options of a command, its own before those that it shares.
pub(super) fn of(command: CommandId) -> impl Iterator<Item = &'static dyn AnyOption> {
    let of_it = move || all().filter(move |it| it.description().commands.contains(&command));
    let is_own = move |option: &&dyn AnyOption| Some(option.description().group) == own(command);
    of_it().filter(is_own).chain(of_it().filter(move |option| !is_own(option)))
}

/// The group that no other kind of command has.
fn own(command: CommandId) -> Option<Group> {
    match command {
        CommandId::NetTest => Some(Group::NetTest),
        CommandId::Measure | CommandId::MeasureCodec => Some(Group::Measuring),
        CommandId::Submit => Some(Group::Slurm),
        _ => match command.first_word() {
            "sweep" => Some(Group::Sweeping),
            "spread" => Some(Group::Spreading),
            _ => None,
        },
    }
}

/// The option of this name that a command takes.
pub(super) fn find(command: CommandId, name: &str) -> Option<&'static dyn AnyOption> {
    of(command).find(|option| option.description().name == name)
}

/// Converts numbers whose limits fit the narrower type.
fn narrowed<T: TryFrom<u64>>(list: &[u64]) -> Vec<T> {
    list.iter().filter_map(|number| T::try_from(*number).ok()).collect()
}

const COPY: &[CommandId] = &[CommandId::Copy];
/// What a job over many nodes takes too.
const COPY_AND_SPREAD: &[CommandId] = &[CommandId::Copy, CommandId::Spread];
const MOVING: &[CommandId] = &[CommandId::Copy, CommandId::Demo];
const COPYING: &[CommandId] = &[CommandId::Copy, CommandId::Measure, CommandId::NetTest];
/// Options that hold for all copies of a campaign.
const SWEPT: &[CommandId] =
    &[CommandId::Copy, CommandId::Demo, CommandId::Measure, CommandId::NetTest, CommandId::Sweep];

#[cfg(test)]
mod tests;
