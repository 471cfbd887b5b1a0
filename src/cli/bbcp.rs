//! Called as `bbcp`: what bbcp's flags mean here, as one table. The guide has the same table, and a
//! test compares the two.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use super::typed::Stop;

/// A flag of bbcp 17.12.
struct Flag {
    letter: char,
    /// Its long names, each with the letters that must be typed at least.
    long: &'static [(&'static str, usize)],
    argument: Argument,
    becomes: Becomes,
}

/// What follows a flag, as the next word.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Argument {
    None,
    Needed,
    /// Left out where the next word is a flag.
    Possible,
}

/// What a flag is here.
enum Becomes {
    /// These words, and what differs.
    Words(&'static str, &'static str),
    /// This option with the value as typed, and what differs.
    Option(&'static str, &'static str),
    /// The same with a value that is spelled differently.
    Spelled(&'static str, fn(&str) -> Result<String, String>, &'static str),
    /// Nothing needs to be said, and why.
    Nothing(&'static str),
    /// A list of sources.
    Sources(&'static str),
    /// This page, or the version.
    Page(&'static str),
    /// It cannot be done, and what to do instead.
    Refused(&'static str),
}

use Argument::{Needed, None as Alone, Possible};
use Becomes::{Nothing, Option as Opt, Page, Refused, Sources, Spelled, Words};
use base::fault::reason;

const fn flag(
    letter: char,
    long: &'static [(&'static str, usize)],
    argument: Argument,
    becomes: Becomes,
) -> Flag {
    Flag { letter, long, argument, becomes }
}

/// Every flag of bbcp 17.12, in the order of its help.
const FLAGS: &[Flag] = &[
    flag(
        'a',
        &[("append", 1)],
        Possible,
        Nothing("the same command resumes an interrupted copy; there is no folder for it"),
    ),
    flag('A', &[("mkdir", 3)], Alone, Words("--mkpath", "")),
    flag('b', &[("buffers", 1)], Needed, Nothing("buffers are counted by --memory")),
    flag('B', &[("buffsz", 6)], Needed, Spelled("request-size", size, "a multiple of 4K up to 1G")),
    flag(
        'c',
        &[("compress", 1)],
        Possible,
        Spelled("compress", level, "without the flag --compress off"),
    ),
    flag(
        'C',
        &[("config", 6)],
        Needed,
        Refused("write the options into ~/.config/datapump/config.toml"),
    ),
    flag(
        'd',
        &[("dirbase", 3)],
        Needed,
        Refused(
            "write datapump copy --files-from LIST FOLDER HOST:FOLDER, with names \
             below FOLDER",
        ),
    ),
    flag(
        'D',
        &[("debug", 5)],
        Alone,
        Refused("write --stats for the figures of a run, or --log FILE"),
    ),
    flag('e', &[], Alone, Nothing("every block is checked by its BLAKE3 digest")),
    flag(
        'E',
        &[("checksum", 5)],
        Needed,
        Refused(
            "every block is checked by its BLAKE3 digest; --manifest FILE writes \
             the digests of files",
        ),
    ),
    flag(
        'f',
        &[("force", 1)],
        Alone,
        Words("--overwrite always", "the old file stays until the new one is complete"),
    ),
    flag(
        'F',
        &[("nofschk", 4)],
        Alone,
        Nothing("a copy ends for lack of space only where what is wanted cannot fit"),
    ),
    flag('g', &[("gross", 1)], Alone, Nothing("bbcp ignores it too")),
    flag('h', &[("help", 1)], Alone, Page("prints this table")),
    flag('i', &[("idfile", 1)], Needed, Opt("identity", "")),
    flag(
        'I',
        &[("infiles", 2)],
        Needed,
        Sources("each line of the file is a source, up to an empty line"),
    ),
    flag(
        'k',
        &[("keep", 1)],
        Alone,
        Nothing(
            "what has arrived is kept beside the destination, and the same command \
             resumes",
        ),
    ),
    flag(
        'K',
        &[],
        Alone,
        Refused(
            "an existing file is replaced when the new one is complete, and never \
             truncated",
        ),
    ),
    flag('l', &[("logfile", 1)], Needed, Opt("log", "")),
    flag('L', &[], Needed, Refused("write --log FILE, or --json")),
    flag(
        'm',
        &[("mode", 1)],
        Needed,
        Refused(
            "files have the mode of their source: -p keeps it, else the umask \
             applies; or use chmod",
        ),
    ),
    flag('n', &[("nodns", 1)], Alone, Nothing("addresses are never resolved to names")),
    flag(
        'N',
        &[("pipe", 4)],
        Needed,
        Refused(
            "write - as the source or the destination: tar c . | datapump copy - \
             HOST:all.tar",
        ),
    ),
    flag(
        'o',
        &[("order", 1)],
        Alone,
        Refused(
            "files are written in any order; a pipe, '-' as the destination, is \
             written in order",
        ),
    ),
    flag(
        'O',
        &[("omit", 4), ("omit-dups", 9)],
        Alone,
        Words("--skip-unchanged", "files that exist and differ are named, and the exit code is 3"),
    ),
    flag(
        'p',
        &[("preserve", 1)],
        Alone,
        Words("--archive", "also attributes and access control lists"),
    ),
    flag('P', &[("progress", 4)], Needed, Opt("interval", "")),
    flag('q', &[("qos", 3)], Needed, Spelled("dscp", dscp, "the upper six bits of the byte")),
    flag('r', &[("recursive", 1)], Alone, Words("--recursive", "")),
    flag(
        'R',
        &[("realtime", 4)],
        Possible,
        Refused(
            "a file is copied as it is; one that still grows is named with exit \
             code 4",
        ),
    ),
    flag('s', &[("streams", 1)], Needed, Opt("streams", "64 at most")),
    flag(
        'S',
        &[],
        Needed,
        Refused(
            "write --ssh CMD for another ssh, and --remote-datapump PATH for the \
             program there",
        ),
    ),
    flag(
        'T',
        &[],
        Needed,
        Refused(
            "write --ssh CMD for another ssh, and --remote-datapump PATH for the \
             program there",
        ),
    ),
    flag(
        't',
        &[("timelimit", 1)],
        Needed,
        Refused("write timeout SECONDS in front of the command; the same command resumes"),
    ),
    flag('v', &[("verbose", 1)], Alone, Words("--verbose", "")),
    flag('V', &[("vverbose", 2)], Alone, Words("--verbose --stats", "")),
    flag(
        'u',
        &[("unbuffered", 1)],
        Needed,
        Spelled("direct", unbuffered, "st alone: it is for both ends"),
    ),
    flag(
        'U',
        &[],
        Needed,
        Spelled("window", size, "the kernel's limits apply, and a warning names them"),
    ),
    flag(
        'w',
        &[("windowsz", 1)],
        Needed,
        Spelled("window", size, "without the flag TCP chooses, not 128K"),
    ),
    flag('W', &[], Needed, Spelled("window", size, "the same as -w")),
    flag('x', &[("xfrrate", 1)], Needed, Spelled("rate", rate, "")),
    flag(
        'y',
        &[("sync", 4)],
        Needed,
        Nothing("files and their folders are synced by default; --fsync off does not"),
    ),
    flag(
        'z',
        &[("reverse", 3)],
        Alone,
        Refused(
            "data connections go from this host to the far one: open ports there \
             and name them with -Z, else the data goes over ssh",
        ),
    ),
    flag('Z', &[("port", 4)], Needed, Opt("ports", "")),
    flag(
        '+',
        &[("readable", 4)],
        Alone,
        Nothing("what cannot be read is named, the rest is copied, and the exit code is 3"),
    ),
    flag(
        '4',
        &[("ipv4", 4)],
        Possible,
        Refused(
            "write datapump copy --ssh 'ssh -4', and --addresses for the address of \
             the data",
        ),
    ),
    flag(
        '~',
        &[("ptime", 2)],
        Alone,
        Words("--preserve", "modes too; access times are never kept"),
    ),
    flag(
        '@',
        &[("links", 4), ("symlinks", 7)],
        Needed,
        Spelled("links", links, "without the flag --links skip"),
    ),
    flag('$', &[("license", 7)], Alone, Page("prints this table")),
    flag('#', &[("version", 7)], Alone, Page("prints the version")),
    flag(
        '^',
        &[("omit-ed", 7), ("omit-emptydirs", 11)],
        Alone,
        Refused("empty folders are copied: name the files with --files-from"),
    ),
    flag(
        '<',
        &[("omit-ie", 7), ("omit-inerrs", 11)],
        Alone,
        Nothing("what cannot be read is named, the rest is copied, and the exit code is 3"),
    ),
    flag(
        '>',
        &[("omit-oe", 7), ("omit-outerrs", 12)],
        Alone,
        Nothing(
            "what cannot be written is named, the rest is copied, and the exit code \
             is 3",
        ),
    ),
    flag('-', &[], Alone, Nothing("ends a flag whose value may be left out")),
];

/// The words of this program for those of bbcp; other words stay as they are.
pub(super) fn words(words: Vec<OsString>) -> Result<Vec<OsString>, Stop> {
    let name = words.first().and_then(|word| Path::new(word).file_name());
    if name != Some(OsStr::new(NAME)) {
        return Ok(words);
    }
    match translated(&words[1..]) {
        Ok(Translated::Words(translated)) => Ok(translated),
        Ok(Translated::Page(text)) => Err(Stop::Help(text)),
        Err(why) => Err(Stop::wrong(&words, format!("{NAME}: {why}"))),
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Translated {
    Words(Vec<OsString>),
    Page(String),
}

fn translated(words: &[OsString]) -> Result<Translated, String> {
    let mut said: Vec<OsString> = Vec::new();
    let mut listed = Vec::new();
    let mut rest = words.iter().peekable();
    // As with bbcp, the first word that is no flag ends them.
    while let Some(word) = rest.next_if(|word| word.as_bytes().starts_with(b"-")) {
        let typed = word.to_str().ok_or("a flag is not UTF-8")?;
        for (flag, typed) in flags_in(typed)? {
            let is_flag = |word: &&OsString| word.as_bytes().starts_with(b"-");
            let value = match flag.argument {
                Alone => None,
                Needed | Possible => rest.next_if(|word| !is_flag(word)),
            };
            if value.is_none() && flag.argument == Needed {
                return Err(format!("{typed} needs a value"));
            }
            let text = value.map(|value| value.to_string_lossy()).unwrap_or_default();
            match flag.becomes {
                Words(words, _) => said.extend(words.split(' ').map(OsString::from)),
                Opt(name, _) => {
                    said.push(format!("--{name}").into());
                    said.extend(value.cloned());
                }
                Spelled(name, spell, _) => {
                    let value = spell(&text).map_err(|why| format!("{typed} '{text}': {why}"))?;
                    said.extend([format!("--{name}").into(), value.into()]);
                }
                Nothing(_) => {}
                Sources(_) => listed = sources(Path::new(&*text))?,
                Page(_) if flag.letter == '#' => {
                    return Ok(Translated::Page(
                        concat!("datapump ", env!("CARGO_PKG_VERSION"), "\n").into(),
                    ));
                }
                Page(_) => return Ok(Translated::Page(help())),
                Refused(instead) => {
                    return Err(format!("{typed} is not known to datapump: {instead}"));
                }
            }
        }
    }
    let has = |names: &[&str]| names.iter().any(|name| said.iter().any(|word| word == name));
    let usual = [
        (["--archive", "--preserve"], &["--no-preserve"][..]),
        (["--compress", "--compress"], &["--compress", "off"]),
        (["--links", "--links"], &["--links", "skip"]),
    ];
    let usual: Vec<&str> = usual
        .into_iter()
        .filter(|(names, _)| !has(names))
        .flat_map(|(_, words)| words)
        .copied()
        .collect();
    let mut ends: Vec<OsString> = listed.into_iter().chain(rest.cloned()).collect();
    if let Some(target) = ends.last_mut() {
        // How bbcp measures a path.
        let far_null = target
            .as_bytes()
            .strip_suffix(b"/dev/null")
            .filter(|before| before.is_empty() || before.ends_with(b":"));
        if let Some(before) = far_null {
            *target = OsString::from_vec([before, b"null:"].concat());
        }
    }
    let copy = [NAME, "copy"].into_iter().chain(usual).map(OsString::from);
    Ok(Translated::Words(copy.chain(said).chain(["--".into()]).chain(ends).collect()))
}

/// The flags in one word: a long name, or letters. Each as it is typed alone.
fn flags_in(typed: &str) -> Result<Vec<(&'static Flag, String)>, String> {
    let unknown = |typed: &str| format!("{typed} is no flag of bbcp: see {NAME} -h");
    if let Some(name) = typed.strip_prefix("--").filter(|name| !name.is_empty()) {
        let fits = |flag: &&Flag| {
            flag.long.iter().any(|(long, least)| name.len() >= *least && long.starts_with(name))
        };
        let flag = FLAGS.iter().find(fits).ok_or_else(|| unknown(typed))?;
        return Ok(vec![(flag, typed.to_string())]);
    }
    let letters = typed[1..].chars();
    let found = letters.map(|letter| {
        let typed = format!("-{letter}");
        let flag = FLAGS.iter().find(|flag| flag.letter == letter);
        flag.map(|flag| (flag, typed.clone())).ok_or_else(|| unknown(&typed))
    });
    match typed {
        "-" => Err("a flag is missing after '-'".into()),
        _ => found.collect(),
    }
}

fn sources(list: &Path) -> Result<Vec<OsString>, String> {
    let text =
        std::fs::read(list).map_err(|why| format!("-I '{}': {}", list.display(), reason(&why)))?;
    let lines = text.split(|byte| *byte == b'\n').take_while(|line| !line.is_empty());
    Ok(lines.map(|line| OsString::from_vec(line.to_vec())).collect())
}

/// `8m` of bbcp as `8M`; of `=8m` the `=`, which switches autotuning off, says nothing here.
fn size(text: &str) -> Result<String, String> {
    let text = text.strip_prefix('=').unwrap_or(text);
    let digits = text.trim_end_matches(|letter: char| "kKmMgG".contains(letter));
    match !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) {
        true if text.len() - digits.len() < 2 => Ok(text.to_ascii_uppercase()),
        _ => Err("write a number, or one with k, m or g".into()),
    }
}

/// Bytes a second need their unit here.
fn rate(text: &str) -> Result<String, String> {
    let size = size(text)?;
    Ok(if size.ends_with(|letter: char| letter.is_ascii_digit()) { size + "B" } else { size })
}

fn level(text: &str) -> Result<String, String> {
    match text {
        "" => Ok("zlib:1".into()),
        "0" => Ok("off".into()),
        level => Ok(format!("zlib:{level}")),
    }
}

fn dscp(text: &str) -> Result<String, String> {
    match text.parse::<u8>() {
        Ok(byte) if byte.is_multiple_of(4) => Ok((byte / 4).to_string()),
        _ => Err("write a multiple of 4 from 0 to 252: the two lowest bits are not ours".into()),
    }
}

fn unbuffered(text: &str) -> Result<String, String> {
    match text {
        "st" | "ts" => Ok("on".into()),
        _ => Err("--direct is for both ends: write st, or leave it out".into()),
    }
}

fn links(text: &str) -> Result<String, String> {
    match text {
        "copy" | "keep" => Ok("copy".into()),
        "follow" => Ok("follow".into()),
        "ignore" => Ok("skip".into()),
        _ => Err("write copy, follow or ignore".into()),
    }
}

/// The table as rows: the flag, what it is here, and what to know.
fn rows() -> impl Iterator<Item = [String; 3]> {
    FLAGS.iter().map(|flag| {
        let long: Vec<String> = flag.long.iter().map(|(name, _)| format!(", --{name}")).collect();
        let typed = format!("-{}{}", flag.letter, long.concat());
        let (here, note) = match &flag.becomes {
            Words(words, note) => (words.to_string(), note),
            Opt(name, note) | Spelled(name, _, note) => (format!("--{name}"), note),
            Nothing(note) => ("nothing to say".into(), note),
            Sources(note) => ("sources".into(), note),
            Page(note) => ("a page".into(), note),
            Refused(note) => ("refused".into(), note),
        };
        [typed, here, note.to_string()]
    })
}

fn help() -> String {
    let mut text = format!(
        "Called as {NAME}, datapump takes the flags of bbcp 17.12 and copies as\n\
         'datapump copy' does: {NAME} [FLAGS] SRC... DST\n\n"
    );
    for [typed, here, note] in rows() {
        text.push_str(&format!("{typed:<28}  {here:<20}  {note}\n"));
    }
    text
}

/// The name under which the program takes bbcp's flags.
const NAME: &str = "bbcp";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::args::{Args, Task};
    use crate::cli::config::Outside;

    fn line(typed: &str) -> String {
        let words: Vec<OsString> = typed.split_whitespace().map(OsString::from).collect();
        match translated(&words) {
            Ok(Translated::Words(words)) => words.join(OsStr::new(" ")).into_string().unwrap(),
            Ok(Translated::Page(text)) => text,
            Err(why) => why,
        }
    }

    #[test]
    fn command_lines() {
        let plain = "bbcp copy --no-preserve --compress off --links skip";
        let cases = [
            ("a h:b", format!("{plain} -- a h:b")),
            (
                "-P 2 -V -w 8m -s 16 a h:b",
                format!("{plain} --interval 2 --verbose --stats --window 8M --streams 16 -- a h:b"),
            ),
            ("-rv -f a h:b", format!("{plain} --recursive --verbose --overwrite always -- a h:b")),
            ("-rs 8 a h:b", format!("{plain} --recursive --streams 8 -- a h:b")),
            ("-p a b", "bbcp copy --compress off --links skip --archive -- a b".into()),
            ("-c 3 a b", "bbcp copy --no-preserve --links skip --compress zlib:3 -- a b".into()),
            ("-c -- a b", "bbcp copy --no-preserve --links skip --compress zlib:1 -- a b".into()),
            ("-a -k -F -e -g -n a b", format!("{plain} -- a b")),
            ("-y dd -A a h:b/", format!("{plain} --mkpath -- a h:b/")),
            ("-q 184 -x 10m a b", format!("{plain} --dscp 46 --rate 10M -- a b")),
            ("-x 5000 -W =64k a b", format!("{plain} --rate 5000B --window 64K -- a b")),
            ("--streams 2 --win 1m --reca", "--reca is no flag of bbcp: see bbcp -h".into()),
            ("--stre 2 --verb a b", format!("{plain} --streams 2 --verbose -- a b")),
            (
                "-@ follow a b",
                "bbcp copy --no-preserve --compress off --links follow -- a b".into(),
            ),
            ("a h:/dev/null", format!("{plain} -- a h:null:")),
            ("a /dev/null", format!("{plain} -- a null:")),
            ("a -f b", format!("{plain} -- a -f b")),
            ("-j a b", "-j is no flag of bbcp: see bbcp -h".into()),
            ("-s", "-s needs a value".into()),
            ("-s -v a b", "-s needs a value".into()),
            ("-", "a flag is missing after '-'".into()),
            ("-w 8q a b", "-w '8q': write a number, or one with k, m or g".into()),
            (
                "-q 3 a b",
                "-q '3': write a multiple of 4 from 0 to 252: the two lowest bits are not \
                          ours"
                    .into(),
            ),
            ("-u s a b", "-u 's': --direct is for both ends: write st, or leave it out".into()),
            ("-#", concat!("datapump ", env!("CARGO_PKG_VERSION"), "\n").into()),
        ];
        for (typed, expect) in cases {
            assert_eq!(line(typed), expect, "{typed}");
        }
        assert!(line("-h").contains("-a, --append"));
    }

    /// Each flag by itself, with a value of its kind, is a copy, or is refused by its name.
    #[test]
    fn every_flag_is_a_copy_or_is_refused_by_name() {
        let list = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(list.path(), "x\ny\n").unwrap();
        for flag in FLAGS {
            let value = match flag.letter {
                'I' => list.path().to_str().unwrap(),
                'q' => "8",
                'u' => "st",
                'B' | 'U' | 'w' | 'W' => "64k",
                'y' => "d",
                '@' => "follow",
                'Z' => "50000:50100",
                'l' | 'i' => "file",
                _ => "8",
            };
            let value = if flag.argument == Alone { "" } else { value };
            let typed = format!("bbcp -{} {value} a h:b", flag.letter);
            let parsed =
                Args::parse(typed.split_whitespace().map(OsString::from), &Outside::default());
            match (&flag.becomes, parsed) {
                (Refused(instead), Err(Stop::Wrong { text, .. })) => {
                    let start = format!("bbcp: -{} is not known to datapump: ", flag.letter);
                    assert!(text.starts_with(&start) && text.contains(instead), "{text}");
                }
                (Page(_), Err(Stop::Help(_))) => {}
                (Refused(_) | Page(_), other) => panic!("{typed}: {other:?}"),
                (_, Ok(Args { task: Task::Copy(copy), .. })) => {
                    let extra = if flag.letter == 'I' { 2 } else { 0 };
                    assert_eq!(copy.sources.len(), 1 + extra, "{typed}");
                }
                (_, other) => panic!("{typed}: {other:?}"),
            }
        }
    }

    #[test]
    fn letters_and_names_are_unique() {
        let mut letters: Vec<char> = FLAGS.iter().map(|flag| flag.letter).collect();
        letters.sort_unstable();
        letters.dedup();
        assert_eq!(letters.len(), FLAGS.len());
        for flag in FLAGS {
            for (name, least) in flag.long {
                assert!(*least <= name.len(), "{name}");
                let short = format!("--{}", &name[..*least]);
                assert_eq!(flags_in(&short).unwrap()[0].0.letter, flag.letter, "{short}");
            }
        }
    }

    /// The guide has this table, row by row.
    #[test]
    fn the_guide_has_the_table() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/guide/bbcp.md");
        let page = std::fs::read_to_string(path).unwrap();
        let cell = |text: &str| text.replace('|', "\\|").replace('<', "&lt;");
        let code = |text: &str| {
            let words = text.split(", ").map(|word| format!("`{word}`"));
            words.collect::<Vec<_>>().join(", ")
        };
        let rows: String = rows()
            .map(|[typed, here, note]| {
                let here = if here.starts_with("--") { format!("`{here}`") } else { here };
                format!("| {} | {} | {} |\n", code(&typed), cell(&here), cell(&note))
            })
            .collect();
        let table = format!("| bbcp | datapump copy | note |\n|---|---|---|\n{rows}");
        assert!(page.contains(&table), "docs/guide/bbcp.md needs this table:\n{table}");
    }
}
