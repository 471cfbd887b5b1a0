//! What users of other programs type, and what it is here: one list, which the parser answers from
//! and the guide's table is.

/// Words of another program with one meaning.
pub(super) struct Habit {
    /// The programs that take them.
    #[cfg_attr(not(test), expect(dead_code, reason = "a column of the guide's table"))]
    pub of: &'static str,
    /// An option in its long or short form, or the first word of a command line.
    pub words: &'static [&'static str],
    pub here: Here,
}

/// In Markdown: what is to be typed is between backticks.
pub(super) enum Here {
    /// `copy` takes each of the words for this; the text says what differs.
    #[cfg_attr(not(test), expect(dead_code, reason = "a row of the guide's table"))]
    Same(&'static str),
    /// `copy` takes none of the words: what to write.
    Instead(&'static str),
    /// `copy` takes the letter for something else.
    Differs(&'static str),
}

use Here::{Differs, Instead, Same};

const fn row(of: &'static str, words: &'static [&'static str], here: Here) -> Habit {
    Habit { of, words, here }
}

/// Options, and then commands. Of `copy`; other commands answer with what they have too.
pub(super) const COPY: &[Habit] = &[
    row("rsync", &["-a"], Instead("write `-r`; with owners and attributes `-r -A`")),
    row("rsync, scp", &["-r"], Same("`SRC/` copies what is in the folder, as with rsync")),
    row(
        "rsync, scp",
        &["-v", "-q", "-n", "--dry-run"],
        Same("`-n` and `-v` list each file, and why it is copied"),
    ),
    row("rsync, scp", &["-p", "--stats"], Same("modes and times are preserved without `-p` too")),
    row("rsync, cp", &["-u", "--update"], Same("it skips what is unchanged, and needs no `-a`")),
    row("rsync", &["--checksum"], Same("add `-u` or `--overwrite always` to replace what differs")),
    row("rsync", &["-c"], Instead("write `--checksum --overwrite always`")),
    row(
        "rsync, rclone",
        &["--size-only"],
        Instead("write `-u`, which compares size and time, or `--checksum`"),
    ),
    row(
        "rsync, rclone",
        &["-I", "--ignore-times"],
        Instead("write `--overwrite always`: it copies everything again"),
    ),
    row("cp, scp", &["-f", "--force"], Instead("write `--overwrite always`")),
    row(
        "rsync, rclone",
        &["--ignore-existing", "--immutable"],
        Instead("existing files stay by default, are named, and the exit code is 3: leave it out"),
    ),
    row(
        "rsync",
        &["--existing"],
        Instead("there is none: name the files that are wanted with `--files-from`"),
    ),
    row(
        "rsync, rclone",
        &["--delete", "--delete-excluded", "--max-delete"],
        Same("above `--max-delete N` nothing is deleted"),
    ),
    row(
        "rsync, rclone",
        &["--del", "--delete-after", "--delete-during", "--delete-before", "--delete-delay"],
        Instead("write `--delete`: it deletes when everything has arrived"),
    ),
    row("rsync, rclone", &["--backup-dir"], Same("a folder below DST")),
    row(
        "rsync, rclone",
        &["-b", "--backup", "--suffix"],
        Instead("write `--backup-dir DIR`: old files keep their names in a folder"),
    ),
    row(
        "rsync",
        &["--link-dest", "--compare-dest", "--copy-dest"],
        Instead("there is none: `--backup-dir DIR` keeps what is replaced or deleted"),
    ),
    row(
        "rsync, tar",
        &["--exclude", "--include", "--exclude-from"],
        Same("the last pattern that matches decides, not the first; `/build` is at the top of SRC"),
    ),
    row(
        "rsync, rclone",
        &["--include-from", "--filter", "--filter-from", "-F", "--cvs-exclude"],
        Instead("write `--exclude-from FILE`: a pattern a line, `!` in front of what is copied"),
    ),
    row("rsync", &["--files-from", "-0", "--min-size", "--max-size"], Same("")),
    row("rsync", &["--from0"], Instead("write `-0`")),
    row("tar", &["--newer"], Same("")),
    row("rclone", &["--max-age"], Instead("write `--newer TIME`: `2026-11-20`, or `@SECONDS`")),
    row(
        "rsync",
        &["--numeric-ids", "--chown", "--usermap", "--groupmap"],
        Same("only what is named is kept without `-A`"),
    ),
    row(
        "rsync",
        &["-o", "-g", "--owner", "--group"],
        Instead("write `--archive` (`-A`); an option of ssh is `--ssh 'ssh -o OPTION'`"),
    ),
    row(
        "rsync, rclone",
        &["-X", "--xattrs", "--acls", "-M", "--metadata"],
        Instead("write `--archive` (`-A`): owners, extended attributes and access control lists"),
    ),
    row(
        "rsync, cp",
        &["-t", "--times", "--perms", "-E", "--executability"],
        Instead("modes and times are kept by default: leave it out"),
    ),
    row("rsync", &["-H", "--hard-links"], Instead("hard links are kept by default: leave it out")),
    row("rsync, cp", &["-S", "--sparse"], Instead("holes are kept by default: leave it out")),
    row("rsync, cp", &["-L", "--copy-links", "--dereference"], Instead("write `--links follow`")),
    row("rsync", &["--safe-links"], Instead("write `--links safe`")),
    row(
        "rsync",
        &["-x", "--one-file-system"],
        Instead("there is none: leave mounted folders out with `--exclude /FOLDER`"),
    ),
    row(
        "rsync",
        &["-D", "--devices", "--specials"],
        Instead("devices, pipes and sockets are skipped with a warning: leave it out"),
    ),
    row("rsync", &["--mkpath"], Same("")),
    row("cp", &["-R"], Instead("write `--recursive` (`-r`)")),
    row(
        "rsync",
        &["--remove-source-files"],
        Instead(
            "nothing is removed at SRC: write `--manifest FILE`, then `datapump verify FILE DST`",
        ),
    ),
    row(
        "rsync, scp",
        &["-z", "--compress-level", "-C"],
        Instead("compression is on where it helps: leave it out, or see `--compress`"),
    ),
    row(
        "rsync, rclone",
        &["--bwlimit", "--limit"],
        Instead("write `--rate`, with a unit: `--rate 80MB`; by the hour `--rate-schedule TIMES`"),
    ),
    row(
        "scp",
        &["-l"],
        Instead("for a limited rate write `--rate 80Mbit`; links are kept by default"),
    ),
    row(
        "rclone",
        &["--transfers", "--checkers", "--multi-thread-streams"],
        Instead("write `--streams N`: files go over all streams, small ones together"),
    ),
    row(
        "rsync, rclone",
        &["--timeout", "--contimeout"],
        Instead("write `--stall SECONDS` for a stream, `--retry-for TIME` for a lost connection"),
    ),
    row("rclone", &["--retries", "--low-level-retries"], Instead("write `--retry-for TIME`")),
    row(
        "rsync",
        &["--partial", "--partial-dir", "--append", "--append-verify"],
        Instead("the same command resumes: leave it out"),
    ),
    row(
        "rsync",
        &["--inplace"],
        Instead("a file gets its final name when it is complete: leave it out"),
    ),
    row(
        "rsync, cp",
        &["-W", "--whole-file", "--no-whole-file"],
        Instead("files are always copied whole: leave it out"),
    ),
    row(
        "rsync, rclone",
        &["--progress", "--info"],
        Instead("progress is shown on a terminal: leave it out, or write `--interval SECONDS`"),
    ),
    row("rsync", &["-P"], Differs("rsync's `-P` is the default: leave it out")),
    row("scp", &["-P"], Same("the port of ssh; also `--port 2222` and `ssh://HOST:2222/PATH`")),
    row(
        "rsync",
        &["--itemize-changes"],
        Instead("write `--verbose` (`-v`), or `-n`: both say in words what differs"),
    ),
    row("rsync", &["--log-file"], Instead("write `--log FILE`")),
    row(
        "rsync",
        &["-h", "--human-readable"],
        Instead("sizes are always human-readable; `--help` shows the options"),
    ),
    row("rsync", &["-e", "--rsh"], Instead("write `--ssh COMMAND`, as in `--ssh 'ssh -v'`")),
    row("scp", &["-i"], Same("a key of ssh; rsync's `-i` is `-v` here")),
    row("ssh", &["-p22"], Instead("write `--port 22`")),
    row("rsync", &["--rsync-path"], Instead("write `--remote-datapump PATH`")),
    row("aws s3", &["--endpoint-url"], Instead("write `--s3-endpoint URL`")),
    row("aws s3", &["--region"], Instead("write `--s3-region NAME`")),
    row(
        "rclone, aws s3",
        &["sync"],
        Instead("write `datapump copy -r -u SRC/ DST`; with `--delete` DST becomes a mirror"),
    ),
    row(
        "rclone, aws s3",
        &["lsl", "lsf", "lsd", "lsjson", "list", "size", "du", "tree"],
        Instead("write `datapump ls PATH`; with `-s` it adds up what is below each folder"),
    ),
    row(
        "rclone",
        &["hashsum", "md5sum", "sha1sum", "sha256sum"],
        Instead(
            "digests are made as files are copied: write `datapump copy --manifest FILE SRC DST`",
        ),
    ),
    row(
        "rclone",
        &["check", "diff"],
        Instead("write `datapump compare A B`, with `--checksum` to compare contents"),
    ),
    row(
        "rclone",
        &["move", "moveto", "mv"],
        Instead("nothing is removed at SRC: write `datapump copy`, then remove what was copied"),
    ),
    row(
        "rclone",
        &["rm", "delete", "deletefile", "purge", "rmdir"],
        Instead("files are removed by the host or store: `datapump clean PATH` removes parts only"),
    ),
    row("rclone", &["cat"], Instead("write `datapump copy SRC -`")),
    row("rclone", &["version"], Instead("write `datapump --version`")),
    row("scp", &["resume"], Instead("write the same `datapump copy` again: it resumes")),
    row("iperf3", &["iperf3", "iperf"], Instead("write `datapump net-test HOST`")),
];

/// Of `net-test`, for users of iperf3.
pub(super) const NET_TEST: &[Habit] = &[
    row("iperf3", &["-P"], Instead("for several streams write `--streams N`")),
    row("iperf3", &["-c"], Instead("write the host alone: `datapump net-test HOST`")),
    row("iperf3", &["-b", "--rate"], Instead("write `--pace`, with a unit: `--pace 100Mbit`")),
    row("iperf3", &["--server"], Instead("no server is needed: write `datapump net-test HOST`")),
    row("iperf3", &["-J"], Instead("write `--json`")),
    row("iperf3", &["-n"], Instead("a net test takes a time: write `--time SECONDS`")),
    row("iperf3", &["-p"], Instead("write `--ports LOW-HIGH`")),
];

/// Of `spread`, for users of `copy`.
pub(super) const SPREAD: &[Habit] = &[
    row("", &["-r", "--recursive"], Instead("folders are copied with all in them: leave it out")),
    row("", &["-p", "--preserve"], Instead("modes and times are kept by default: leave it out")),
    row(
        "",
        &["-A", "-a", "--archive"],
        Instead("modes and times are kept; owners and attributes only by `datapump copy -r -A`"),
    ),
    row(
        "",
        &["-u", "--update", "--overwrite", "--delete", "--checksum"],
        Instead(
            "a spread replaces and deletes nothing: write `--skip-unchanged`, or `datapump copy`",
        ),
    ),
];

/// Of `verify`, for users of b3sum and sha256sum.
pub(super) const LS: &[Habit] = &[
    row(
        "ls",
        &["-l", "-a", "-A"],
        Instead("the long form with all names is the only one: leave it out"),
    ),
    row(
        "ls",
        &["-R", "-d", "-t", "-S", "-1"],
        Instead("one folder is listed, by name; `-s` adds up what is below each folder of it"),
    ),
];

pub(super) const VERIFY: &[Habit] = &[row(
    "b3sum",
    &["-c", "--check", "--algorithm"],
    Instead("the kind of digest is read from the list: write `datapump verify FILE PATH`"),
)];
