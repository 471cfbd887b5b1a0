//! Options and commands of `scp`, `rsync` and `cp`, and what to type here instead.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use super::command_id::CommandId;

/// An option of another tool, in its long or short form, and what to write in its place.
const OPTIONS: &[(&str, &str)] = &[
    ("-P", "for a port of ssh write --port PORT"),
    ("-p22", "for a port of ssh write --port 22"),
    ("-i", "for a key of ssh write --identity FILE"),
    ("-e", "for another ssh write --ssh COMMAND"),
    ("--rsh", "for another ssh write --ssh COMMAND"),
    ("-l", "for a limited rate write --rate 80MB; for a user name, USER@HOST:PATH"),
    ("-C", "compression is on where it helps: leave -C out, or see --compress"),
    ("-z", "compression is on where it helps: leave -z out, or see --compress"),
    ("--limit", "write --rate, with a unit: --rate 80MB"),
    ("--bwlimit", "write --rate, with a unit: --rate 80MB"),
    ("--log-file", "write --log FILE"),
    ("--progress", "progress is shown on a terminal: leave it out, or write --interval SECONDS"),
    ("--info", "progress is shown on a terminal: leave it out, or write --interval SECONDS"),
    ("--partial", "partial files are kept automatically: leave it out"),
    ("--append", "an interrupted copy is resumed automatically: leave it out"),
    ("--inplace", "a file gets its final name when it is complete; there is no --inplace"),
    ("--del", "write --delete: it deletes when everything has arrived"),
    ("--delete-after", "write --delete: it deletes when everything has arrived"),
    ("--delete-during", "write --delete: it deletes when everything has arrived"),
    ("--delete-before", "write --delete: it deletes when everything has arrived"),
    ("-o", "for an option of ssh write --ssh 'ssh -o OPTION'; for owners as rsync, --archive (-A)"),
    ("--owner", "write --archive (-A): owner, group, attributes and access control lists"),
    ("--group", "write --archive (-A): owner, group, attributes and access control lists"),
    ("-g", "write --archive (-A): owner, group, attributes and access control lists"),
    ("-b", "write --backup-dir DIR: old files keep their names in a folder"),
    ("--backup", "write --backup-dir DIR: old files keep their names in a folder"),
    ("--suffix", "write --backup-dir DIR: old files keep their names in a folder"),
    ("--itemize-changes", "write --verbose"),
    ("-f", "write --overwrite always"),
    ("--force", "write --overwrite always"),
    ("-R", "for a folder write --recursive (-r)"),
    ("-a", "write -r -A: folders; owners and extended attributes too"),
    ("-h", "sizes are always human-readable; for help write --help"),
    ("--human-readable", "sizes are always human-readable"),
    ("-t", "times are kept by default: leave it out"),
    ("--times", "times are kept by default: leave it out"),
    ("--perms", "modes are kept by default: leave it out"),
    ("-W", "files are always copied whole: leave it out"),
    ("--whole-file", "files are always copied whole: leave it out"),
    ("-S", "holes are kept by default: leave it out"),
];
/// The same for `net-test`, of iperf3.
const NET_TEST: &[(&str, &str)] = &[
    ("-P", "for several streams write --streams N"),
    ("-c", "write the host alone: datapump net-test HOST"),
    ("-b", "write --pace, with a unit: --pace 100Mbit"),
    ("-J", "write --json"),
    ("-n", "a net test takes a time: write --time SECONDS"),
    ("-p", "write --ports LOW-HIGH"),
];
/// Commands of other tools, typed as the first word.
const TOOLS: [&str; 5] = ["cp", "scp", "rsync", "mv", "bbcp"];

/// What to write in the place of an option that the program does not have: `typed` is one word of
/// the command line, perhaps several letters behind one dash.
pub(super) fn option(command: CommandId, typed: &str) -> Option<String> {
    let name = typed.split('=').next().unwrap_or(typed);
    let own = if command == CommandId::NetTest { NET_TEST } else { &[] };
    let known = |name: &str| own.iter().chain(OPTIONS).find(|(known, _)| *known == name);
    if let Some((name, instead)) = known(name) {
        return Some(format!("{name} is not known: {instead}"));
    }
    // -avz: each letter by itself.
    let letters = typed.strip_prefix('-').filter(|rest| !rest.starts_with('-'))?;
    let said: Vec<String> = letters
        .chars()
        .filter_map(|letter| {
            let (name, instead) = known(&format!("-{letter}"))?;
            Some(format!("{name}: {instead}"))
        })
        .collect();
    (!said.is_empty()).then(|| format!("{typed} is not known: {}", said.join("; ")))
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
    use crate::cli::options;

    #[test]
    fn options_of_other_tools() {
        let cases = [
            ("-P", Some("-P is not known: for a port of ssh write --port PORT")),
            ("--bwlimit=100", Some("--bwlimit is not known: write --rate")),
            (
                "-az",
                Some(
                    "-az is not known: -a: write -r -A: folders; owners and extended attributes \
                     too; -z: compression is on where it helps",
                ),
            ),
            ("--limit", Some("--limit is not known: write --rate, with a unit")),
            ("--log-file", Some("--log-file is not known: write --log FILE")),
            ("--nonsense", None),
            ("-q", None),
        ];
        let streams = "-P is not known: for several streams write --streams N".to_string();
        assert_eq!(option(CommandId::NetTest, "-P"), Some(streams));
        for (typed, expect) in cases {
            let said = option(CommandId::Copy, typed);
            let fits = match (&said, expect) {
                (Some(said), Some(expect)) => said.starts_with(expect),
                (said, expect) => said.is_none() && expect.is_none(),
            };
            assert!(fits, "{typed}: {said:?}");
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

    /// A tip names an option that exists, and no option that `copy` has gets a tip.
    #[test]
    fn tips_name_options_that_exist() {
        for (name, instead) in OPTIONS {
            let long = name.strip_prefix("--").unwrap_or_default();
            assert!(options::find(CommandId::Copy, long).is_none(), "copy has {name}");
            for word in instead.split([' ', ',', ':', ';']).filter_map(|w| w.strip_prefix("--")) {
                let is_named = options::find(CommandId::Copy, word).is_some();
                assert!(is_named || *name == format!("--{word}") || word == "help", "{instead}");
            }
        }
    }
}
