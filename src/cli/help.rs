//! The texts of the first screen, as values: `--help` and the man page use the same tables.

use base::fault::Class;

/// What the program is, in one sentence.
pub(crate) const ABOUT: &str =
    "Moves files, trees and streams between hosts: fast, encrypted, verified, and measured";

pub(crate) const SYNOPSIS: &str = "datapump copy [OPTIONS] SRC... DST\n\
                            \x20      datapump demo [OPTIONS]\n\
                            \x20      datapump verify MANIFEST PATH\n\
                            \x20      datapump compare [--checksum] A B\n\
                            \x20      datapump ls [-s] [PATH]\n\
                            \x20      datapump clean [-n] PATH...\n\
                            \x20      datapump submit [OPTIONS] copy ...\n\
                            \x20      datapump queue [OPTIONS]\n\
                            \x20      datapump limit [PROCESS [RATE]]\n\
                            \x20      datapump measure [OPTIONS] [WHAT]...\n\
                            \x20      datapump measure codec [OPTIONS] [FILE]...\n\
                            \x20      datapump net-test [OPTIONS] [HOST]\n\
                            \x20      datapump model fit|show|predict [OPTIONS]\n\
                            \x20      datapump results list|show|export [OPTIONS] [RUN]...\n\
                            \x20      datapump explain [RUN]\n\
                            \x20      datapump report [WHAT] --html FILE\n\
                            \x20      datapump doctor [HOST]\n\
                            \x20      datapump sweep --hosts FILE|s3://BUCKET/PREFIX [OPTIONS]\n\
                            \x20      datapump sweep install --every TIME [OPTIONS]\n\
                            \x20      datapump sweep show|compare|profile [OPTIONS] [CAMPAIGN]...\n\
                            \x20      datapump spread [OPTIONS] SRC... DST\n\
                            \x20      datapump spread status|resume|cancel|report JOB\n\
                            \x20      datapump config show [HOST]";

/// Printed below the options of the commands of these names.
pub(crate) const DEMO: &str =
    "The far side is another process. The data is generated in $TMPDIR or /tmp.";

pub(crate) const VERIFY: &str = "\
Each file that differs, is missing or cannot be read is named. The exit code is\n\
6 if a file differs, else 3 if one is missing or cannot be read.";

pub(crate) const COMPARE: &str = "\
Nothing is copied or changed. Files are compared by size, time and permissions; with\n\
--checksum by contents. 'only in A' and 'only in B' name what the other lacks. The exit\n\
code is 0 if nothing differs, and 3 if something does.";

pub(crate) const CLEAN: &str = "\
Removes .datapump-*.part and .datapump-*.journal files; files of a running copy\n\
are kept. A copy restarted afterwards starts over. In an object store it aborts uploads to KEY,\n\
and to keys below it, that were begun at least --min-age ago and never completed.";

/// What `limit` reaches, below the options of the command.
pub(crate) const LIMIT: &str = "\
A limit holds for what a copy still has to send, until another is given, and when it reconnects;\n\
the copy that is asked may push, pull, or be on this host alone. It must run here, as the same\n\
user, in the same network namespace. The next copy begins with its own --rate again.";

/// Where the results are, below the options of the command that shows them.
pub(crate) const RESULTS: &str = "\
list shows the newest runs. show prints the details of the given runs. export writes runs for\n\
other programs: csv and parquet have one row per run, with lists as JSON text; json has all\n\
details. The store is one SQLite file, by default ~/.local/state/datapump/results.db; sqlite3\n\
reads it too: the table runs has the columns of csv, series has the bytes over time.";

/// What an explanation is made from, below the options of the command that makes it.
pub(crate) const EXPLAIN: &str = "\
Samples of TCP and of the lanes are recorded with a run, for each data stream. Shares are of the\n\
bytes; a class holds a stream while it is the reason why no more is sent. An expected rate\n\
assumes that all advice above it was followed. A copy inside one process has no streams.";

/// What a report is, below the options of the command that writes it.
pub(crate) const REPORT: &str = "\
The page is one file that loads nothing: charts are drawings in it, each with its numbers as a\n\
table, and it needs no script. A run (its number): what held it back, stages, throughput,\n\
windows, round trips and losses over time, costs, and the command that repeats it. A campaign\n\
(its name, or the end of it): rates over windows, streams, levels and lengths, and the best of\n\
each host; with an earlier campaign in front of it, what changed. A host: its cost model and how\n\
well it fits. Without --html, --svg and --xplot the page goes to standard output.";

/// What `doctor` does and does not do, below the options of the command.
pub(crate) const DOCTOR: &str = "\
Each finding says what was found, why it matters and which command would change it; doctor\n\
changes nothing. Trouble slows copies down or breaks them; advice matters on some paths. Buffers\n\
are judged by --target and the round trip to HOST. doctor connects to a data port of HOST and\n\
sends 128 KiB each way. The exit code is 1 if there is trouble, 7 or 8 if HOST cannot be tested.";

/// What a submitted copy is, below its options.
pub(crate) const SUBMIT: &str = "\
datapump submit --partition dtn copy -r /scratch/run7 dtn2:/archive/\n\n\
The words of the copy are kept in a folder that nodes see too; the job's script has only the path\n\
of that folder. Nodes need their own credentials: no variable of your environment reaches them. A\n\
copy whose connection breaks is tried again on its node; one whose node is lost, or whose time\n\
limit is over, is put back into the queue, and goes on where it was. Ctrl-C leaves the job as it\n\
is. The exit code is that of the copy.";

/// What a net test is, below its options.
pub(crate) const NET_TEST: &str = "\
Like iperf3, but over the streams of a copy and without a server to start. It shows rate,\n\
retransmissions, congestion window and round trip of every interval, then what has arrived, its\n\
CPU time on both hosts, and the bottleneck. Without HOST, the path is inside this host.";

/// How a campaign goes, below the options of the command.
pub(crate) const SWEEP: &str = "\
Each cell is a copy of synthetic data to the other host, over the streams of a copy; data is\n\
discarded there, or written to its FOLDER. After each cell follows a pause as long as the cell,\n\
so at most half of the time is load. Round trips are measured ten times a second, in pauses and\n\
under load. Every cell is recorded as soon as it is over. Ctrl-C ends the campaign after the\n\
current cell; 'sweep --resume' continues; press Ctrl-C again to quit. A host that fails is\n\
skipped for a while and tried again; one that stays unreachable is named at the end (exit code\n\
7). ssh must log in without a question: each cell logs in.\n\n\
With s3://BUCKET/PREFIX each cell puts an object of --sizes, or gets one, with one of\n\
--request-sizes and one of --depths, and says what the store held it back by. Objects are in a\n\
folder of the campaign's own below PREFIX, which is removed at the end; all else stays.\n\n\
'sweep install', with --hosts, --every and the other options of the campaign, writes a service\n\
and a timer of systemd that measure it regularly, and says how to start them; --units names\n\
their folder.";

/// How a job over many nodes goes, below the options of the command.
pub(crate) const SPREAD: &str = "\
SRC and DST are folders or files that all nodes see under the same path, as they see the job\n\
folder. One of the two may be on far hosts instead that all see it, HOST:/FOLDER or\n\
HOST,HOST:/FOLDER; ssh logs in to each of them from all nodes without a question. The sources\n\
are cut into shards, which workers claim while the plan is still made. A worker that is lost\n\
costs the files that it had open: others take its shards. Nothing at DST is replaced. At the end\n\
the job folder has one receipt, for 'datapump verify' and b3sum --check.\n\
Ctrl-C stops the workers; 'datapump spread resume JOB' continues, also after the coordinator was\n\
killed. The exit code is that of a copy: 7 where no far host can be reached.";

/// The error for a wrong number of words of `copy`.
pub(crate) const NO_DESTINATION: &str =
    "copy needs a source and a destination: datapump copy [OPTIONS] SRC... DST";

pub(crate) const SYNOPSIS_COPY: &str = "datapump copy [OPTIONS] SRC... DST";

/// What SRC and DST may be.
pub(crate) const ENDPOINTS: &[(&str, &str)] = &[
    ("PATH", "a file or folder on this host; write ./a:b if its name has a colon"),
    ("[USER@]HOST:PATH", "a file or folder on a host that ssh reaches; also [USER@][V6ADDR]:PATH"),
    (
        "ssh://[USER@]HOST[:PORT]/PATH",
        "the same with a port; PATH is from the root, /~/PATH from the home folder",
    ),
    ("s3://BUCKET[/KEY]", "an object of a store, or all objects below a key"),
    ("-", "as SRC, standard input (named stdin in a folder); as DST, standard output"),
    ("null:4G", "as SRC, 4 GiB of generated data at no cost; as DST, null: discards all data"),
    ("zero:4G, random:4G", "as SRC, 4 GiB of zero bytes, or of random bytes from --seed"),
    (
        "records:4G, text:, mix:, runs:",
        "as SRC, synthetic data that compresses like data of this kind, from --seed",
    ),
];

pub(crate) const TRAILING_SLASH: &str = "\
As with rsync, a trailing slash matters: SRC/ copies the contents of the folder, SRC the folder \
itself. HOST: alone is the home folder on HOST; HOST:null: is null: on HOST.";

/// How names on another host are read, for the man page.
pub(crate) const FAR_NAMES: &str = "\
HOST:~USER/ is the home folder of another user there. In a SRC on HOST, '*', '?' and '[a-z]' match \
names there, and a backslash takes a character literally; quote them from your shell. A name that \
exists is never a pattern. In a URL %20 is a space.";

pub(crate) const EXAMPLES: &[(&str, &str)] = &[
    ("datapump copy big.tar host:/data/", "push one file"),
    ("datapump copy -r host:project .", "pull a folder; run it again to resume"),
    ("datapump copy -r -u src/ host:dst", "copy what is new or was changed in src into dst"),
    ("datapump copy -n -v -r --delete src/ host:dst", "show what a mirror would copy and delete"),
    ("datapump copy -r results s3://bucket/run7/", "upload a folder to an object store"),
];

/// The kinds of SRC and DST that `copy -h` shows, of those above.
const FIRST_ENDPOINTS: [&str; 4] =
    ["PATH", "[USER@]HOST:PATH", "ssh://[USER@]HOST[:PORT]/PATH", "s3://BUCKET[/KEY]"];

/// The options that `copy -h` shows: those of daily use.
pub(super) const FIRST_OPTIONS: [&str; 22] = [
    "recursive",
    "update",
    "overwrite",
    "checksum",
    "archive",
    "exclude",
    "include",
    "files-from",
    "delete",
    "dry-run",
    "mkpath",
    "manifest",
    "port",
    "identity",
    "streams",
    "rate",
    "compress",
    "quiet",
    "verbose",
    "json",
    "stats",
    "explain",
];

/// Below the options of `copy -h`.
pub(super) const MORE_OF_COPY: &str =
    "'datapump copy --help' has all options, all kinds of SRC and DST, and the exit codes.";

/// Where the program keeps what it keeps, for the man pages.
pub(crate) const FILES: &[(&str, &str)] = &[
    ("~/.local/state/datapump/results.db", "The results store: every recorded run, and models."),
    (
        "~/.config/datapump/config.toml",
        "Options of copy for all hosts, below [defaults], and for some, below [host.\"PATTERN\"]: \
         'streams = 8'. 'datapump config show HOST' shows what counts.",
    ),
    ("~/.config/datapump/profiles/NAME", "A profile: options of copy, one per line: 'streams 8'."),
    (
        ".datapump-*.part, .datapump-*.journal",
        "In the destination folder: an incomplete file, and the state to resume it. The same \
         command resumes with them; datapump clean removes them.",
    ),
];

/// What the program does under another name, for the man page.
pub(crate) const AS_BBCP: &str = "\
Called as bbcp, through a link of that name, the program takes the flags of bbcp 17.12 and copies \
as 'datapump copy' does. 'bbcp -h' prints what each flag means; one that cannot be honoured is \
refused by its name, with what to do instead.";

/// The variables that are read, for the man pages.
pub(crate) const ENVIRONMENT: &[(&str, &str)] = &[
    ("DATAPUMP_RESULTS", "The results store, if --results names none."),
    (
        "DATAPUMP_OPTION",
        "The value of an option of copy: DATAPUMP_STREAMS=8 is --streams 8, unless that is typed.",
    ),
    ("DATAPUMP_NO_RECORD", "When set to anything but 0, no run is recorded."),
    (
        "DATAPUMP_DIR",
        "On the far host: a far side's program that is sent there goes to its folder datapump.",
    ),
    ("XDG_STATE_HOME", "The folder of datapump/results.db, instead of ~/.local/state."),
    ("XDG_CONFIG_HOME", "The folder of datapump/config.toml and datapump/profiles, not ~/.config."),
    ("TMPDIR", "The folder where demo generates its data, instead of /tmp."),
];

/// Every exit code with its sentence, success first.
pub(crate) fn exit_codes() -> Vec<(String, &'static str)> {
    let failures = Class::ALL.iter().map(|(class, text)| (class.exit_code().to_string(), *text));
    std::iter::once(("0".to_string(), "everything was copied")).chain(failures).collect()
}

/// The first screen below the synopsis, exit codes last.
pub(crate) fn first_screen() -> String {
    format!("{}\n{}", before_options(), exit_codes_section())
}

/// What is above the options of `copy --help`.
pub(super) fn before_options() -> String {
    format!(
        "{}\n{}\n\n{}",
        section("SRC and DST:", ENDPOINTS),
        indented(TRAILING_SLASH),
        section("Examples:", EXAMPLES),
    )
}

/// What is above the options of `copy -h`, which fits one screen.
pub(super) fn before_first_options() -> String {
    let is_first = |row: &&(&str, &str)| FIRST_ENDPOINTS.contains(&row.0);
    let endpoints: Vec<(&str, &str)> = ENDPOINTS.iter().filter(is_first).copied().collect();
    format!(
        "{}  With a trailing slash SRC/ is what is in the folder, SRC the folder itself.\n\n{}",
        section("SRC and DST:", &endpoints),
        section("Examples:", EXAMPLES).trim_end(),
    )
}

pub(super) fn exit_codes_section() -> String {
    let codes = exit_codes();
    let codes: Vec<(&str, &str)> =
        codes.iter().map(|(code, text)| (code.as_str(), *text)).collect();
    section("Exit codes:", &codes).trim_end().to_string()
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
    use std::collections::BTreeSet;
    use std::ffi::OsString;
    use std::path::{Path, PathBuf};

    use super::*;
    use crate::cli::bbcp;
    use crate::cli::command_id::{self, CommandId};
    use crate::cli::habits;
    use crate::cli::man::ManArgs;
    use crate::cli::options;
    use crate::cli::parser;
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
                let program = Path::new(&words[0]).file_name().unwrap().to_string_lossy();
                let others = [
                    "cargo",
                    "duckdb",
                    "find",
                    "tar",
                    "ln",
                    "export",
                    "sinfo",
                    "squeue",
                    "scancel",
                    "systemctl",
                ];
                assert!(OWN.contains(&&*program) || others.contains(&&*program), "{line}");
                if others.contains(&&*program) {
                    continue;
                }
                lines += 1;
                let told = bbcp::words(words).and_then(|words| Typed::parse(&words));
                // A profile is a file, which does not exist here.
                let is_there = !line.contains("--profile");
                assert!(told.is_ok() || !is_there, "{}: {line}: {told:?}", path.display());
            }
        }
        assert!(lines > 80, "{lines} commands are few");
    }

    const OWN: [&str; 2] = ["datapump", "bbcp"];

    /// Each option that README and guide name is one of a command, or of another program that is
    /// answered by name, or named below. The page for users of bbcp has a test of its own.
    #[test]
    fn options_of_the_documents_are_options() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let chapters = std::fs::read_dir(root.join("docs/guide")).unwrap();
        let chapters = chapters.map(|entry| entry.unwrap().path());
        let is_read = |path: &PathBuf| {
            path.extension().is_some_and(|end| end == "md") && !path.ends_with("bbcp.md")
        };
        let pages = chapters.filter(is_read).chain([root.join("README.md")]);
        let commands = || command_id::TREE.iter().flat_map(|branch| branch.commands());
        let has = |name: &str| {
            let is_it = |command| options::of(command).any(|it| it.description().name == name);
            commands().any(is_it) || ["help", "version"].contains(&name)
        };
        let is_answered = |name: &str| {
            let typed = format!("--{name}");
            [CommandId::Copy, CommandId::NetTest]
                .iter()
                .any(|command| habits::option(*command, &typed).is_some())
        };
        let mut others = BTreeSet::new();
        for path in pages {
            let text = std::fs::read_to_string(&path).unwrap();
            let of_word = |c: char| !(c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
            for word in text.split([' ', '\n', '`', '(', ')', '\'', '"', '|']) {
                let Some(rest) = word.strip_prefix("--") else { continue };
                let name = rest.split(of_word).next().unwrap();
                // `--` alone, and a beginning such as `--s3-…`, are none.
                let is_option = !name.is_empty() && !name.ends_with('-');
                if is_option && !has(name) && !is_answered(name) {
                    others.insert(name.to_string());
                }
            }
        }
        let named: BTreeSet<String> = OF_OTHERS.iter().map(|(name, _)| (*name).into()).collect();
        assert_eq!(others, named, "options of no command, and those of other programs");
    }

    /// Options of other programs that pages name, and whose they are.
    const OF_OTHERS: [(&str, &str); 14] = [
        ("check", "b3sum, md5sum"),
        ("collector", "node_exporter"),
        ("example", "cargo"),
        ("fq-rate", "iperf3"),
        ("locked", "cargo"),
        ("me", "squeue"),
        ("metadata-set", "rclone"),
        ("now", "systemctl"),
        ("path", "cargo"),
        ("purge", "dpkg"),
        ("release", "cargo"),
        ("spec", "pipx"),
        ("user", "systemctl"),
        ("vfs-cache-mode", "rclone"),
    ];

    /// `copy -h` is what a terminal shows at once, and its end says where the rest is. The exit
    /// codes are the end of `copy --help`, and are there once.
    #[test]
    fn the_help_of_copy_begins_with_what_matters() {
        let mut copy = parser::leaf(CommandId::Copy);
        let short = copy.render_help().to_string();
        let is_option = |line: &&str| line.trim_start().starts_with('-') && line.starts_with("  ");
        assert!(short.lines().filter(is_option).count() <= 25, "{short}");
        assert!(short.lines().count() <= 54, "{} lines\n{short}", short.lines().count());
        for name in FIRST_OPTIONS {
            assert!(short.contains(&format!("--{name}")), "--{name}\n{short}");
        }
        for name in FIRST_ENDPOINTS {
            assert!(short.contains(&format!("\n  {name}  ")), "{name}\n{short}");
        }
        let long = copy.render_long_help().to_string();
        assert_eq!(long.matches("Exit codes:").count(), 1);
        let end = long.split("Exit codes:").nth(1).unwrap();
        assert!(!end.contains("--") && end.contains("130"), "{end}");
    }

    /// What only one kind of command has stands above what it shares with copies.
    #[test]
    fn own_options_come_before_shared_ones() {
        let cases = [
            (CommandId::Spread, "--on", "--exclude"),
            (CommandId::Spread, "--on", "--account"),
            (CommandId::NetTest, "--time", "--ssh"),
            (CommandId::Measure, "--request-sizes", "--ssh"),
            (CommandId::Sweep, "--hosts", "--ssh"),
        ];
        for (command, own, shared) in cases {
            let text = parser::leaf(command).render_help().to_string();
            let at = |name: &str| text.find(&format!("{name} <")).unwrap();
            assert!(at(own) < at(shared), "{own} below {shared} of {}", command.typed());
        }
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
        assert!(screen.lines().count() <= 33, "the first screen is one screen");
    }
}
