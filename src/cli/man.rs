//! The man pages: one of the program and one of each command, from the tables that `--help` is made
//! from.

use std::ffi::OsStr;
use std::io::{self, Write};
use std::process::{Command, Stdio};

use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use super::command_id::CommandId;
use super::console::{self, written};
use super::help;
use super::options;
use super::parser;
use super::typed::Typed;
use base::fault::{Class, Fault};

/// The arguments of `man`.
#[derive(Debug, Default)]
pub(crate) struct ManArgs {
    /// `None` for the page of the program.
    page: Option<CommandId>,
}

impl ManArgs {
    pub(super) fn of(typed: &Typed) -> Result<ManArgs, String> {
        let words = typed.words(parser::PAGE).join(OsStr::new(" "));
        let name = words.to_string_lossy();
        let page = CommandId::all().find(|command| command.typed() == name);
        match page.filter(|command| !command.is_hidden()) {
            None if !name.is_empty() => {
                let pages: Vec<_> = pages().map(|command| command.typed()).collect();
                Err(format!("man '{name}': there is no such page; write {}", pages.join(", ")))
            }
            page => Ok(ManArgs { page }),
        }
    }

    pub(super) fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        match self.page {
            None => of_program(out),
            Some(command) => of_command(command, out),
        }
    }
}

/// A terminal gets the page as man(1) shows it, all else its source.
pub(super) fn run(page: &ManArgs) -> u8 {
    if !console::is_for_a_terminal() {
        return written("the man page", page.print(&mut console::data()));
    }
    match shown(page) {
        Ok(()) => 0,
        Err(why) => {
            let words = page.page.map_or(String::new(), |command| format!(" {}", command.typed()));
            let name = page.page.map_or("datapump(1)".to_string(), name).replace("(1)", ".1");
            console::say_fault(&Fault::new(
                Class::Local,
                format!(
                    "'man -l -' does not show the page ({why}): write 'datapump man{words} > \
                     {name}' for a file of it, or read 'datapump{words} --help'"
                ),
            ));
            Class::Local.exit_code()
        }
    }
}

fn shown(page: &ManArgs) -> io::Result<()> {
    let mut man = Command::new("man").args(["-l", "-"]).stdin(Stdio::piped()).spawn()?;
    let mut text = Vec::new();
    page.print(&mut text)?;
    if let Some(mut to) = man.stdin.take() {
        // Where nobody reads it, its exit code says why.
        let _ = to.write_all(&text);
    }
    match man.wait()? {
        status if status.success() => Ok(()),
        status => Err(io::Error::other(status.to_string())),
    }
}

/// The commands that have a page.
fn pages() -> impl Iterator<Item = CommandId> {
    CommandId::all().filter(|command| !command.is_hidden())
}

fn of_program(out: &mut dyn Write) -> io::Result<()> {
    let man = page(parser::command().about(help::ABOUT), "DATAPUMP");
    man.render_title(out)?;
    man.render_name_section(out)?;
    let mut roff = Roff::new();
    roff.control("SH", ["SYNOPSIS"]);
    for line in help::SYNOPSIS.lines() {
        roff.text([bold(line.trim())]);
        roff.control("br", []);
    }
    roff.control("SH", ["COMMANDS"]);
    for command in pages() {
        rows(&mut roff, [(name(command).as_str(), command.about())].into_iter());
    }
    ends(&mut roff);
    roff.control("SH", ["EXAMPLES"]);
    rows(&mut roff, help::EXAMPLES.iter().copied());
    roff.control("SH", ["CALLED AS BBCP"]);
    roff.text([roman(help::AS_BBCP)]);
    last(&mut roff);
    roff.to_writer(out)
}

fn of_command(command: CommandId, out: &mut dyn Write) -> io::Result<()> {
    let name = format!("datapump-{}", command.typed().replace(' ', "-"));
    let with_usage = parser::leaf(command).bin_name(format!("datapump {}", command.typed()));
    let usage = with_usage.clone().render_usage().to_string();
    let man = page(with_usage.name(name.clone()), &name.to_uppercase());
    man.render_title(out)?;
    man.render_name_section(out)?;
    let mut roff = Roff::new();
    roff.control("SH", ["SYNOPSIS"]);
    roff.text([bold(usage.trim_start_matches("Usage:").trim())]);
    match command {
        CommandId::Copy => ends(&mut roff),
        _ => {
            let text = parser::after_help(command);
            if !text.is_empty() {
                roff.control("SH", ["DESCRIPTION"]);
                roff.text([roman(text)]);
            }
        }
    }
    roff.to_writer(out)?;
    if options::of(command).next().is_some() {
        man.render_options_section(out)?;
    }
    let mut roff = Roff::new();
    if command == CommandId::Copy {
        roff.control("SH", ["EXAMPLES"]);
        rows(&mut roff, help::EXAMPLES.iter().copied());
    }
    last(&mut roff);
    roff.control("SH", ["SEE ALSO"]);
    roff.text([bold("datapump"), roman("(1)")]);
    roff.to_writer(out)
}

fn page(command: clap::Command, title: &str) -> Man {
    // What is not an option has a section of its own.
    let command = command
        .version(env!("CARGO_PKG_VERSION"))
        .mut_args(|arg| if arg.is_positional() { arg.hide(true) } else { arg });
    Man::new(command)
        .title(title)
        .section("1")
        .source(concat!("datapump ", env!("CARGO_PKG_VERSION")))
        .manual("User commands")
}

/// `datapump-model-fit(1)`.
fn name(command: CommandId) -> String {
    format!("datapump-{}(1)", command.typed().replace(' ', "-"))
}

fn ends(roff: &mut Roff) {
    roff.control("SH", ["SRC AND DST"]);
    rows(roff, help::ENDPOINTS.iter().copied());
    roff.control("PP", []);
    roff.text([roman(help::TRAILING_SLASH)]);
    roff.control("PP", []);
    roff.text([roman(help::FAR_NAMES)]);
}

/// The sections that every page ends with.
fn last(roff: &mut Roff) {
    roff.control("SH", ["FILES"]);
    rows(roff, help::FILES.iter().copied());
    roff.control("SH", ["ENVIRONMENT"]);
    rows(roff, help::ENVIRONMENT.iter().copied());
    roff.control("SH", ["EXIT STATUS"]);
    for (code, text) in help::exit_codes() {
        rows(roff, [(code.as_str(), text)].into_iter());
    }
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

    fn text(page: Option<CommandId>) -> String {
        let mut text = Vec::new();
        ManArgs { page }.print(&mut text).unwrap();
        String::from_utf8(text).unwrap().replace("\\-", "-")
    }

    #[test]
    fn every_option_is_on_the_page_of_its_command_and_in_its_help() {
        let program = text(None);
        for command in pages() {
            assert!(program.contains(&name(command)), "{} on the first page", command.typed());
            let page = text(Some(command));
            let help = parser::leaf(command).render_long_help().to_string();
            for option in options::of(command) {
                let typed = format!("--{}", option.description().name);
                assert!(help.contains(&typed), "{typed} in the help of {}", command.typed());
                assert!(page.contains(&typed), "{typed} on the page of {}", command.typed());
            }
            for heading in ["SYNOPSIS", "FILES", "ENVIRONMENT", "EXIT STATUS"] {
                assert!(page.contains(heading), "{heading} of {}", command.typed());
            }
            let usage = help::SYNOPSIS.replace('\n', " ");
            let named = usage.contains(&format!("datapump {}", command.first_word()));
            let own = matches!(command, CommandId::Man | CommandId::Completions);
            assert!(named || own, "{} in the synopsis", command.typed());
        }
    }
}
