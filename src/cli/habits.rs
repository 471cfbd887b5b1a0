//! Options and commands of `scp`, `rsync`, `rclone` and `cp`, and what to type here instead.

mod list;

use std::ffi::{OsStr, OsString};
use std::path::Path;

use self::list::{Habit, Here};
use super::command_id::CommandId;
use super::options;

/// Names of other tools, typed in front of what `copy` takes.
const TOOLS: [&str; 4] = ["cp", "scp", "rsync", "bbcp"];

/// What to write in the place of an option that the command does not have: `typed` is one word of
/// the command line, perhaps several letters behind one dash.
pub(super) fn option(command: CommandId, typed: &str) -> Option<String> {
    let name = typed.split('=').next().unwrap_or(typed);
    if let Some(instead) = instead(command, name) {
        return Some(format!("{name} is not known: {instead}"));
    }
    // -avz: each letter by itself.
    let letters = typed.strip_prefix('-').filter(|rest| !rest.starts_with('-')).unwrap_or_default();
    // One answer for all letters that it is of.
    let mut said: Vec<(String, String)> = Vec::new();
    for letter in letters.chars().map(|letter| format!("-{letter}")) {
        let Some(text) = instead(command, &letter) else { continue };
        match said.iter_mut().find(|(_, other)| *other == text) {
            Some((letters, _)) => letters.push_str(&format!(", {letter}")),
            None => said.push((letter, text)),
        }
    }
    let said: Vec<String> =
        said.iter().map(|(letters, text)| format!("{letters}: {text}")).collect();
    let whole = (!said.is_empty()).then(|| format!("{typed} is not known: {}", said.join("; ")));
    whole.or_else(|| of_others(command, name))
}

/// What to write instead of one option. A command that is no copy answers with what it has itself.
fn instead(command: CommandId, name: &str) -> Option<String> {
    let own = match command {
        CommandId::NetTest => list::NET_TEST,
        CommandId::Spread => list::SPREAD,
        CommandId::Verify => list::VERIFY,
        CommandId::Ls => list::LS,
        _ => &[],
    };
    let of = |rows: &'static [Habit]| {
        rows.iter().filter(move |row| name.starts_with('-') && row.words.contains(&name))
    };
    let answer = |row: &Habit| match row.here {
        Here::Instead(text) | Here::Differs(text) => Some(text.replace('`', "")),
        Here::Same(_) => None,
    };
    if let Some(own) = of(own).find_map(answer) {
        return Some(own);
    }
    let text = of(list::COPY).find_map(answer)?;
    let is_copy = matches!(command, CommandId::Copy | CommandId::Submit | CommandId::ModelPredict);
    let has_them = named(&text).next().is_some()
        && named(&text).all(|option| options::find(command, option).is_some());
    (is_copy || has_them).then_some(text)
}

/// The options that a text tells to write.
fn named(text: &str) -> impl Iterator<Item = &str> {
    text.split([' ', ',', ':', ';', '(', ')', '\'']).filter_map(|word| word.strip_prefix("--"))
}

/// Names the commands that have the option.
fn of_others(command: CommandId, name: &str) -> Option<String> {
    let long = name.strip_prefix("--");
    let letter = name.strip_prefix('-').filter(|rest| rest.chars().count() == 1);
    let is_it = |option: &options::Description| match (long, letter) {
        (Some(long), _) => option.name == long,
        (None, Some(letter)) => option.letter.is_some_and(|own| letter.starts_with(own)),
        (None, None) => false,
    };
    let option = options::of(CommandId::Copy).map(|option| option.description()).find(is_it)?;
    let (typed, copy) = (command.typed(), CommandId::Copy.typed());
    let word = if command == CommandId::Copy { return None } else { option.name };
    Some(format!("{typed} has no {name}: --{word} is an option of {copy}"))
}

/// What to write in the place of a command that the program does not have.
pub(super) fn command(word: &str) -> Option<String> {
    let row = list::COPY.iter().find(|row| !word.starts_with('-') && row.words.contains(&word))?;
    match row.here {
        Here::Instead(text) if !Path::new(word).exists() => {
            Some(format!("there is no command {word}: {}", text.replace('`', "")))
        }
        _ => None,
    }
}

/// What a letter is elsewhere, where a value that `copy` refuses shows that that was meant.
pub(super) fn other_meaning(words: &[OsString], why: &str) -> Option<String> {
    let letters = words.iter().filter_map(|word| word.to_str()?.strip_prefix('-'));
    let letters: String = letters.filter(|letters| !letters.starts_with('-')).collect();
    list::COPY.iter().find_map(|row| {
        let Here::Differs(text) = row.here else { return None };
        let letter = row.words[0].strip_prefix('-')?;
        let option = options::of(CommandId::Copy)
            .map(|option| option.description())
            .find(|option| option.letter.is_some_and(|own| letter.starts_with(own)))?;
        let is_meant = letters.contains(letter) && why.contains(&format!("--{} '", option.name));
        is_meant.then(|| text.replace('`', ""))
    })
}

/// The words without the name of another tool in front: `datapump cp a b`.
pub(super) fn without_tool(words: &[OsString]) -> &[OsString] {
    match words.first().and_then(|word| word.to_str()) {
        Some(first) if TOOLS.contains(&first) => &words[1..],
        _ => words,
    }
}

/// The same for any word in front of two others that names nothing here: `datapump push a host:`.
pub(super) fn without_verb(words: &[OsString]) -> &[OsString] {
    match without_tool(words) {
        [verb, rest @ ..] if rest.len() >= 2 && !names_something(verb) => rest,
        words => words,
    }
}

/// True for an option, the name of something that exists, and what is on another host.
fn names_something(word: &OsStr) -> bool {
    let text = word.to_string_lossy();
    text.starts_with('-') || text.contains([':', '/']) || Path::new(word).exists()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::typed::{Stop, Typed};

    fn answer(line: &str) -> String {
        let words = std::iter::once("datapump").chain(line.split_whitespace());
        let words: Vec<OsString> = words.map(OsString::from).collect();
        match Typed::parse(&words) {
            Err(Stop::Wrong { text, .. }) => text,
            other => format!("{other:?}"),
        }
    }

    /// Each row is answered as it says, whatever stands beside it.
    #[test]
    fn the_parser_answers_each_row() {
        let rows = |command, rows: &'static [Habit]| rows.iter().map(move |row| (command, row));
        let rows = rows(CommandId::Copy, list::COPY)
            .chain(rows(CommandId::NetTest, list::NET_TEST))
            .chain(rows(CommandId::Spread, list::SPREAD))
            .chain(rows(CommandId::Verify, list::VERIFY))
            .chain(rows(CommandId::Ls, list::LS));
        for (command, row) in rows {
            for word in row.words {
                let option = options::of(command).map(|option| option.description()).find(|it| {
                    let letter = it.letter.map(|letter| format!("-{letter}"));
                    *word == format!("--{}", it.name) || letter.is_some_and(|own| own == *word)
                });
                match row.here {
                    Here::Same(_) => assert!(option.is_some(), "there is no {word}"),
                    Here::Differs(text) => {
                        assert!(option.is_some(), "there is no {word}");
                        let text = text.replace('`', "");
                        for line in
                            [format!("copy -rz{} a b", &word[1..]), format!("copy {word} a b")]
                        {
                            assert!(answer(&line).contains(&text), "{line}: {}", answer(&line));
                        }
                    }
                    Here::Instead(text) => {
                        assert!(option.is_none(), "{} has {word}", command.typed());
                        let text = text.replace('`', "");
                        let line = match word.starts_with('-') {
                            true => format!("{} {word} a b", command.typed()),
                            false => format!("{word} a b"),
                        };
                        // -h asks for help before anything is wrong.
                        let said = if *word == "-h" { text.clone() } else { answer(&line) };
                        assert!(said.contains(&text), "{line}: {said}");
                        for option in named(&text) {
                            let is_there = options::find(command, option).is_some()
                                || options::find(CommandId::Copy, option).is_some()
                                    && text.contains("datapump copy")
                                || ["help", "version"].contains(&option);
                            assert!(is_there, "{word}: there is no --{option}");
                        }
                    }
                }
            }
        }
    }

    /// The guide's table has the rows of the list, and no other.
    #[test]
    fn the_guide_has_the_list() {
        let mut table = String::from("| typed there | by users of | here |\n|---|---|---|\n");
        for Habit { of, words, here } in list::COPY {
            let words: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
            let here = match here {
                Here::Same("") => "the same".into(),
                Here::Same(text) => format!("the same: {text}"),
                Here::Instead(text) | Here::Differs(text) => text.to_string(),
            };
            table.push_str(&format!("| {} | {of} | {here} |\n", words.join(", ")));
        }
        let guide = include_str!("../../docs/guide/copying.md");
        let section = guide.split("## For users of scp, rsync and rclone\n").nth(1).unwrap();
        let rows: String =
            section.split_inclusive('\n').filter(|line| line.starts_with('|')).collect();
        assert!(rows == table, "docs/guide/copying.md has another table than this:\n{table}");
    }

    #[test]
    fn options_of_other_tools() {
        let cases = [
            (CommandId::Copy, "--bwlimit=100", "--bwlimit is not known: write --rate"),
            (
                CommandId::Copy,
                "-az",
                "-az is not known: -a: write -r; with owners and attributes -r -A; -z: \
                 compression is on where it helps",
            ),
            (CommandId::NetTest, "-P", "-P is not known: for several streams write --streams N"),
            (CommandId::Doctor, "-e", "-e is not known: write --ssh COMMAND"),
            (CommandId::Verify, "-r", "verify has no -r: --recursive is an option of copy"),
            (CommandId::Doctor, "--delete", "doctor has no --delete: --delete is an option of"),
            (CommandId::Copy, "--nonsense", ""),
            (CommandId::Copy, "-q", ""),
            // What only a copy does is no answer of others.
            (CommandId::Doctor, "-t", ""),
        ];
        for (command, typed, expect) in cases {
            let said = option(command, typed).unwrap_or_default();
            assert!(said.starts_with(expect) && said.is_empty() == expect.is_empty(), "{said}");
        }
    }

    #[test]
    fn another_tool_in_front() {
        for tool in TOOLS {
            let words = ["datapump", tool, "a", "b"].map(OsString::from);
            let told = format!("{:?}", crate::cli::typed::Typed::parse(&words).unwrap_err());
            assert!(told.contains("write: datapump copy a b"), "{told}");
        }
    }

    #[test]
    fn a_verb_in_front() {
        let typed = |words: &[&str]| -> Vec<OsString> { words.iter().map(Into::into).collect() };
        for (words, copied) in [
            (["push", "a", "host:"], &["a", "host:"][..]),
            (["./push", "a", "host:"], &["./push", "a", "host:"]),
            (["-r", "a", "host:"], &["-r", "a", "host:"]),
            (["src", "a", "host:"], &["src", "a", "host:"]),
        ] {
            assert_eq!(without_verb(&typed(&words)), typed(copied), "{words:?}");
        }
        assert_eq!(without_verb(&typed(&["a", "host:"])).len(), 2);
    }
}
