//! The texts of the first screen, as values: `--help` and the man page use the same tables.

use base::fault::Class;

/// What the program is, in one sentence.
pub(crate) const ABOUT: &str =
    "Moves files, trees and streams between hosts: fast, sealed, verified, and measured";

pub(crate) const SYNOPSIS: &str = "datapump copy [OPTIONS] SRC... DST\n\
                            \x20      datapump demo [OPTIONS]\n\
                            \x20      datapump verify MANIFEST PATH\n\
                            \x20      datapump clean [-n] PATH...\n\
                            \x20      datapump measure [OPTIONS] [WHAT]...\n\
                            \x20      datapump measure codec [OPTIONS] [FILE]...\n\
                            \x20      datapump net-test [OPTIONS] [HOST]\n\
                            \x20      datapump model fit|show|predict [OPTIONS]\n\
                            \x20      datapump results list|show|export [OPTIONS] [RUN]...\n\
                            \x20      datapump explain [RUN]\n\
                            \x20      datapump doctor [HOST]\n\
                            \x20      datapump sweep --hosts FILE [OPTIONS]\n\
                            \x20      datapump sweep show|compare|profile [OPTIONS] [CAMPAIGN]...";

/// Printed below the options of the commands of these names.
pub(crate) const DEMO: &str =
    "The far side is another process. The data is made in $TMPDIR or /tmp.";

pub(crate) const VERIFY: &str = "\
Each file that differs, is missing or cannot be read is named. The exit code is\n\
6 when one differs, else 3 when one is missing or unreadable.";

pub(crate) const CLEAN: &str = "\
Removes .datapump-*.part and .datapump-*.journal files; those of a copy that\n\
runs stay. A copy that is begun again afterwards starts over.";

/// Where the results are, below the options of the command that shows them.
pub(crate) const RESULTS: &str = "\
list shows the newest runs, show all that is known of those that are numbered, export writes\n\
them for other programs: one row a run in csv and parquet, with lists as JSON text; all of it\n\
in json. The store is one SQLite file, ~/.local/state/datapump/results.db where nothing else\n\
is said; sqlite3 reads it too: the table runs has the columns of csv, series has how many bytes\n\
had arrived when.";

/// What an explanation is made from, below the options of the command that makes it.
pub(crate) const EXPLAIN: &str = "\
What TCP and the lanes said of each data stream while it ran is recorded with a run. Shares are\n\
of the bytes; a class holds a stream while it is the reason why nothing more is sent. A rate that\n\
is expected counts on all advice above it too. A copy inside one process has no streams.";

/// What `doctor` does and does not do, below the options of the command.
pub(crate) const DOCTOR: &str = "\
Each finding has what was found, why it matters and the command that would change it; nothing\n\
is changed. Trouble costs speed or breaks copies, advice costs speed on some paths. Buffers are\n\
judged by --target and the round trip to HOST. The exit code is 1 when there is trouble, 7 or 8\n\
when HOST cannot be asked. A connection to a data port of HOST is made, and 128 KiB go each way.";

/// What a net test is, below its options.
pub(crate) const NET_TEST: &str = "\
What iperf3 is used for, over the streams of a copy and without a server to start: rate,\n\
retransmissions, congestion window and round trip of every interval, what arrived, what it cost\n\
both hosts, and what held it back. Without HOST the path is the one inside this host.";

/// How a campaign goes, below the options of the command.
pub(crate) const SWEEP: &str = "\
Each cell is a copy of synthetic data to nothing on the other host, by the streams of a copy.\n\
Behind each comes a pause as long as it took, so at most half of the time is load. Round trips\n\
are measured ten times a second, in pauses and under load. Every cell is recorded as soon as it\n\
is over. Ctrl-C ends the campaign after the current cell, and 'sweep --resume' goes on; a\n\
second one ends it at once. A host that fails is left out for a while and tried again; one that\n\
stays away is named at the end (exit code 7). Hosts must let ssh in without asking: each cell\n\
logs in.";

/// The error for a wrong number of words of `copy`.
pub(crate) const NO_DESTINATION: &str =
    "copy needs something to copy and a place to put it: datapump copy [OPTIONS] SRC... DST";

pub(crate) const SYNOPSIS_COPY: &str = "datapump copy [OPTIONS] SRC... DST";

/// What SRC and DST may be.
pub(crate) const ENDPOINTS: &[(&str, &str)] = &[
    ("PATH", "a file or folder of this host; ./a:b where a name has a colon"),
    ("[USER@]HOST:PATH", "one of a host that ssh reaches; [USER@][V6ADDR]:PATH as well"),
    ("-", "standard input as SRC, named stdin in a folder; standard output as DST"),
    ("null:4G", "as SRC, 4 GiB of synthetic data at no cost; null: as DST discards everything"),
    ("zero:4G, random:4G", "as SRC, so many zero bytes, or bytes from --seed"),
    ("records:4G, text:, mix:, runs:", "as SRC, bytes that compress like such data, from --seed"),
];

pub(crate) const TRAILING_SLASH: &str = "\
A trailing slash has a meaning, as with rsync: SRC/ copies what is in the folder, SRC the folder \
itself. HOST: alone is the home folder there; HOST:null: is null on that host.";

pub(crate) const EXAMPLES: &[(&str, &str)] = &[
    ("datapump copy big.tar host:/data/", "push one file"),
    ("datapump copy -r host:project .", "pull a folder; the same again goes on where it stopped"),
    ("datapump copy -r src/ host:dst", "what is in src goes into dst"),
    ("tar c . | datapump copy - host:all.tar", "push a pipe"),
    ("datapump copy null:20G host:null:", "measure the path without any disk"),
];

/// Where the program keeps what it keeps, for the man pages.
pub(crate) const FILES: &[(&str, &str)] = &[
    ("~/.local/state/datapump/results.db", "The results store: every recorded run, and models."),
    ("~/.config/datapump/profiles/NAME", "A profile: options of copy, one a line, as 'streams 8'."),
    (
        ".datapump-*.part, .datapump-*.journal",
        "In the folder that is copied to: an incomplete file, and what a resume needs to know. \
         The same copy again goes on with them; datapump clean removes them.",
    ),
];

/// The variables that are read, for the man pages.
pub(crate) const ENVIRONMENT: &[(&str, &str)] = &[
    ("DATAPUMP_RESULTS", "The results store, where --results names none."),
    ("DATAPUMP_NO_RECORD", "When set to anything but 0, no run is recorded."),
    ("XDG_STATE_HOME", "Where datapump/results.db lies, instead of ~/.local/state."),
    ("XDG_CONFIG_HOME", "Where datapump/profiles lies, instead of ~/.config."),
    ("TMPDIR", "Where demo makes its data, instead of /tmp."),
];

/// Every exit code with its sentence, success first.
pub(crate) fn exit_codes() -> Vec<(String, &'static str)> {
    let failures = Class::ALL.iter().map(|(class, text)| (class.exit_code().to_string(), *text));
    std::iter::once(("0".to_string(), "everything was copied")).chain(failures).collect()
}

/// The first screen below the synopsis.
pub(crate) fn first_screen() -> String {
    let codes = exit_codes();
    let codes: Vec<(&str, &str)> =
        codes.iter().map(|(code, text)| (code.as_str(), *text)).collect();
    format!(
        "{}\n{}\n\n{}\n{}",
        section("SRC and DST:", ENDPOINTS),
        indented(TRAILING_SLASH),
        section("Examples:", EXAMPLES),
        section("Exit codes:", &codes).trim_end(),
    )
}

/// A heading with two aligned columns below it.
fn section(heading: &str, rows: &[(&str, &str)]) -> String {
    let width = rows.iter().map(|(left, _)| left.len()).max().unwrap_or(0);
    let mut text = format!("{heading}\n");
    for (left, right) in rows {
        text.push_str(&format!("  {left:width$}  {right}\n"));
    }
    text
}

fn indented(text: &str) -> String {
    fold(text).lines().map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n")
}

/// Breaks a text of one line into several.
pub(super) fn fold(text: &str) -> String {
    let mut folded = String::new();
    let mut column = 0;
    for word in text.split(' ') {
        let width = word.chars().count();
        if column > 0 && column + 1 + width > TEXT_COLUMNS {
            folded.push('\n');
            column = 0;
        } else if column > 0 {
            folded.push(' ');
            column += 1;
        }
        folded.push_str(word);
        column += width;
    }
    folded
}

/// With the ten columns that clap indents by, a text fits a terminal of 92.
const TEXT_COLUMNS: usize = 82;

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::path::Path;

    use super::*;
    use crate::cli::man::ManArgs;
    use crate::cli::typed::Typed;
    use crate::cli::words;

    /// The README's table and the man page say what the code says.
    #[test]
    fn exit_codes_are_the_same_everywhere() {
        let readme = include_str!("../../README.md");
        let table = readme.split("## Exit codes").nth(1).unwrap().split("##").next().unwrap();
        let rows: Vec<&str> = table.lines().filter(|line| line.starts_with("| ")).skip(1).collect();
        let expect: Vec<String> =
            exit_codes().iter().map(|(code, text)| format!("| {code} | {text} |")).collect();
        assert_eq!(rows, expect);
        let mut page = Vec::new();
        ManArgs::default().print(&mut page).unwrap();
        let page = String::from_utf8(page).unwrap().replace("\\-", "-");
        let status = page.split("EXIT STATUS").nth(1).unwrap();
        for (code, text) in exit_codes() {
            assert!(status.contains(&format!("\\fB{code}\\fR\n{text}\n")), "{code}: {status}");
        }
    }

    /// Each command line of README and guide is one that the program takes.
    #[test]
    fn commands_of_the_documents_are_commands() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let chapters = std::fs::read_dir(root.join("docs/guide")).unwrap();
        let chapters = chapters.map(|entry| entry.unwrap().path());
        let pages = chapters.filter(|path| path.extension().is_some_and(|end| end == "md"));
        let mut lines = 0;
        for path in pages.chain([root.join("README.md")]) {
            let text = std::fs::read_to_string(&path).unwrap();
            let blocks = text.split("```sh\n").skip(1);
            for line in blocks.flat_map(|block| block.split("```").next().unwrap().lines()) {
                let words: Vec<OsString> =
                    words::split(line).unwrap().into_iter().map(OsString::from).collect();
                assert!(["datapump", "cargo"].contains(&&*words[0].to_string_lossy()), "{line}");
                if words[0] != "datapump" {
                    continue;
                }
                lines += 1;
                let told = Typed::parse(&words);
                // A profile is a file, which does not exist here.
                let is_there = !line.contains("--profile");
                assert!(told.is_ok() || !is_there, "{}: {line}: {told:?}", path.display());
            }
        }
        assert!(lines > 80, "{lines} commands are few");
    }

    #[test]
    fn every_class_is_on_the_first_screen_and_lines_fit() {
        let screen = first_screen();
        for (class, text) in Class::ALL {
            assert!(screen.contains(&format!("{}  ", class.exit_code())), "{class:?}");
            assert!(screen.contains(text), "{class:?}");
        }
        for line in screen.lines() {
            assert!(line.chars().count() <= 110, "{line}");
        }
        assert!(screen.lines().count() <= 32, "the first screen is one screen");
    }
}
