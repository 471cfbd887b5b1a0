//! Options and commands of `scp`, `rsync` and `cp`, and what to type here instead.

use std::ffi::OsString;

/// An option of another tool, in its long or short form, and what to write in its place.
const OPTIONS: &[(&str, &str)] = &[
    ("-P", "for a port of ssh write --ssh 'ssh -p PORT'; for a line every N seconds, --interval N"),
    ("-p22", "for a port of ssh write --ssh 'ssh -p 22'"),
    ("-i", "for a key of ssh write --ssh 'ssh -i KEY'"),
    ("-e", "for another ssh write --ssh COMMAND"),
    ("--rsh", "for another ssh write --ssh COMMAND"),
    ("-o", "for an option of ssh write --ssh 'ssh -o OPTION'"),
    ("-l", "for a limited rate write --rate 80MB; for a user name, USER@HOST:PATH"),
    ("-C", "compression is on where it helps: leave -C out, or see --compress"),
    ("-z", "compression is on where it helps: leave -z out, or see --compress"),
    ("-u", "write --overwrite older"),
    ("--update", "write --overwrite older"),
    ("--bwlimit", "write --rate, with a unit: --rate 80MB"),
    ("--log-file", "write --log FILE"),
    ("--progress", "progress is shown on a terminal: leave it out, or write --interval SECONDS"),
    ("--info", "progress is shown on a terminal: leave it out, or write --interval SECONDS"),
    ("--partial", "partial files are kept automatically: leave it out"),
    ("--append", "an interrupted copy is resumed automatically: leave it out"),
    ("--inplace", "a file gets its final name when it is complete; there is no --inplace"),
    ("--delete", "datapump removes no files at the destination: there is no --delete"),
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
/// Commands of other tools, typed as the first word.
const TOOLS: [&str; 5] = ["cp", "scp", "rsync", "mv", "bbcp"];

/// What to write in the place of an option that the program does not have: `typed` is one word of
/// the command line, perhaps several letters behind one dash.
pub(super) fn option(typed: &str) -> Option<String> {
    let name = typed.split('=').next().unwrap_or(typed);
    let known = |name: &str| OPTIONS.iter().find(|(known, _)| *known == name);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::command_id::CommandId;
    use crate::cli::options;

    #[test]
    fn options_of_other_tools() {
        let cases = [
            ("-P", Some("-P is not known: for a port of ssh write --ssh 'ssh -p PORT'")),
            ("--bwlimit=100", Some("--bwlimit is not known: write --rate")),
            (
                "-az",
                Some(
                    "-az is not known: -a: write -r -A: folders; owners and extended attributes \
                     too; -z: compression is on where it helps",
                ),
            ),
            ("--log-file", Some("--log-file is not known: write --log FILE")),
            ("--nonsense", None),
            ("-q", None),
        ];
        for (typed, expect) in cases {
            let said = option(typed);
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
