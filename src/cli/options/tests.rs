use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::*;
use crate::cli::args::Args;
use crate::cli::settings::{remote as remote_of, settings as settings_of};
use crate::cli::typed::Typed;
use analysis::record::options::Options;
use base::settings::{Pace, Settings};
use base::units::{Nanos, Rate};

fn option(name: &str) -> &'static dyn AnyOption {
    all().find(|option| option.description().name == name).unwrap()
}

fn typed(line: &str) -> Typed {
    let words = std::iter::once("datapump").chain(line.split_whitespace());
    Typed::parse(&words.map(OsString::from).collect::<Vec<_>>()).unwrap()
}

/// The shortest command line of each command.
fn shortest(command: CommandId) -> String {
    let words = match command {
        CommandId::Copy | CommandId::ModelPredict | CommandId::Verify | CommandId::Compare => "a b",
        CommandId::Spread => "a b",
        CommandId::SpreadStatus
        | CommandId::SpreadResume
        | CommandId::SpreadCancel
        | CommandId::SpreadReport
        | CommandId::SpreadWork => "a",
        CommandId::SweepCompare | CommandId::Clean => "a b",
        CommandId::ResultsShow => "1",
        CommandId::Submit => "copy a b",
        CommandId::SubmittedCopy => "a",
        CommandId::Measure => "all",
        CommandId::Sweep => "--hosts h",
        CommandId::Completions => "bash",
        _ => "",
    };
    format!("{} {words}", command.typed())
}

/// Finds a command that forgets an option, or asks for another's.
#[test]
fn every_command_asks_for_all_of_its_options_and_for_no_other() {
    for command in CommandId::all() {
        let mut lines = vec![shortest(command)];
        // Hosts and a store have options of their own.
        let at_store = matches!(command, CommandId::Measure | CommandId::Sweep);
        lines.extend(at_store.then(|| format!("{} s3://b/p", command.typed())));
        let mut asked: BTreeSet<String> = BTreeSet::new();
        for line in lines {
            let typed = typed(&line);
            assert_eq!(typed.command, command);
            Args::of(&typed).unwrap_or_else(|why| panic!("{}: {why}", command.typed()));
            asked.extend(typed.asked().into_iter().map(String::from));
        }
        let of_it = of(command).map(|option| option.description().name.to_string());
        let has: BTreeSet<String> = of_it.collect();
        assert_eq!(asked, has, "{}", command.typed());
    }
}

/// An option that stands in no table cannot be typed.
#[test]
fn every_description_is_in_its_table() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/cli/options");
    let mut described = 0;
    for file in std::fs::read_dir(folder).unwrap() {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        described += text
            .lines()
            .filter(|line| line.contains(") static ") && line.starts_with("pub("))
            .count();
    }
    assert_eq!(all().count(), described);
}

#[test]
fn defaults_are_those_of_the_settings() {
    for command in CommandId::all() {
        let plain = typed(&shortest(command));
        for option in of(command) {
            let Description { name, default, .. } = option.description();
            if default.is_empty() || option.shape() == Shape::Nothing {
                continue;
            }
            option.check(OsStr::new(default)).unwrap();
            let spelled = typed(&format!("{} --{name} {default}", shortest(command)));
            let settings = |typed: &Typed| settings_of(typed).unwrap();
            assert_eq!(settings(&spelled), settings(&plain), "--{name}");
        }
    }
    let plain = typed("copy a b");
    let spelled = typed("copy --links copy --overwrite never --retry-for 10m a b");
    let order = |typed: &Typed| crate::cli::order::CopyArgs::of(typed).unwrap().order;
    assert_eq!(order(&spelled), order(&plain));
    assert_eq!(settings_of(&plain).unwrap(), Settings::default());
}

#[test]
fn names_and_letters_are_unique_and_texts_are_there() {
    let rows: Vec<Description> = all().map(AnyOption::description).collect();
    for (i, row) in rows.iter().enumerate() {
        // Two commands may mean different things by one name; one command may not.
        let same = |other: &&Description| {
            other.commands.iter().any(|command| row.commands.contains(command))
        };
        let before: Vec<_> = rows[..i].iter().filter(same).collect();
        assert!(before.iter().all(|other| other.name != row.name), "--{}", row.name);
        let letter = |other: &Description| other.letter.is_some() && other.letter == row.letter;
        assert!(!before.iter().any(|other| letter(other)), "--{}", row.name);
        assert!(!row.help.is_empty() && !row.help.ends_with('.'), "--{}", row.name);
        assert!(!row.commands.is_empty(), "--{}", row.name);
    }
    for option in all() {
        let Description { name, value, .. } = option.description();
        assert_eq!(value.is_empty(), option.shape() == Shape::Nothing, "--{name}");
    }
}

/// A campaign varies values that `copy` takes for the option of the axis.
#[test]
fn axes_take_the_values_of_their_options() {
    let cases: [(&str, &[&str]); 5] = [
        ("windows", &["4K", "64K", "1G", "auto", "2G", "1K", "x"]),
        ("streams", &["1", "64", "65", "0", "x"]),
        ("levels", &["zstd:3", "lz4", "off", "auto", "zstd:99", "x"]),
        ("request-sizes", &["5M", "1G", "4K", "1025M", "x"]),
        ("depths", &["1", "256", "257", "0", "x"]),
    ];
    assert_eq!(sweeping::AXES.len(), cases.len());
    for ((axis, varied), (name, values)) in sweeping::AXES.iter().zip(cases) {
        assert_eq!(axis.description().name, name);
        for value in values {
            let value = OsStr::new(value);
            assert_eq!(axis.check(value).is_ok(), varied.check(value).is_ok(), "{value:?}");
        }
    }
}

/// The options in JSON, in SQL and in exports have the names of the options, with the unit where
/// there is one.
#[test]
fn json_has_the_names_of_the_options() {
    let value = serde_json::to_value(Options::of(&Settings::default())).unwrap();
    let named: Vec<String> = of(CommandId::Copy)
        .flat_map(|option| {
            let name = option.description().name;
            [name, name.trim_end_matches("-size")].map(|name| name.replace('-', "_"))
        })
        .collect();
    let others = [
        // What two options say together.
        "filters",
        "deletes",
        // `auto` of an option whose number is recorded too.
        "streams_auto",
        // No option: only xtask sets it.
        "null_cycle_bytes",
    ];
    for name in value.as_object().unwrap().keys().filter(|name| !others.contains(&&***name)) {
        let known = named.iter().any(|option| match name.strip_prefix(option.as_str()) {
            Some(rest) => ["", "_bytes", "_s", "_bytes_per_s"].contains(&rest),
            None => false,
        });
        assert!(known, "{name} is the name of no option");
    }
}

/// Every sentence that names an option names an existing one: errors, help and the README.
#[test]
fn options_that_are_named_exist() {
    let known: BTreeSet<&str> = all().map(|option| option.description().name).collect();
    let others = ["help", "version"];
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for path in sources(&root.join("src/cli")) {
        // Other tools' options stand in habits, which have a test of their own.
        if path.ends_with("tests.rs") || path.ends_with("habits.rs") || path.ends_with("list.rs") {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let text = text.split("#[cfg(test)]").next().unwrap();
        for (at, _) in text.match_indices("--") {
            let before = text[..at].chars().next_back().unwrap_or(' ');
            let rest = &text[at + 2..];
            let letter = |c: char| c.is_ascii_lowercase() || c == '-';
            let name = &rest[..rest.find(|c| !letter(c)).unwrap_or(rest.len())];
            let name = name.trim_end_matches('-');
            if name.is_empty() || before.is_alphanumeric() || before == '-' {
                continue;
            }
            let is_known = known.contains(name) || others.contains(&name);
            let is_foreign = FOREIGN.contains(&name);
            assert!(is_known || is_foreign, "--{name} in {}", path.display());
        }
    }
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries
        .flat_map(|path| match path.is_dir() {
            true => sources(&path),
            false => vec![path],
        })
        .collect()
}

/// Options of other programs: b3sum, md5sum, systemctl.
const FOREIGN: &[&str] = &["check", "tag", "user", "now"];

#[test]
fn wrong_values_are_told_what_to_type() {
    let cases = [
        ("streams", "0", "--streams '0': write a number from 1 to 64"),
        ("streams", "65", "--streams '65': write a number from 1 to 64"),
        ("streams", "four", "--streams 'four': write a number from 1 to 64"),
        ("streams", "-1", "--streams '-1': write a number from 1 to 64"),
        ("request-size", "5000", "--request-size '5000': write a multiple of 4K from 4K to 1G"),
        ("request-size", "2G", "--request-size '2G': write a multiple of 4K from 4K to 1G"),
        ("depth-sink", "257", "--depth-sink '257': write a number from 1 to 256, or auto"),
        ("window", "2G", "--window '2G': write a size from 4K to 1G, or auto"),
        ("memory", "1M", "--memory '1M': write a size from 64M up"),
        (
            "rate",
            "100",
            "--rate '100': '100' has no unit of a rate: write 100Mbit (bits) or 100MB (bytes a \
             second), or unlimited",
        ),
        ("engine", "epoll", "--engine 'epoll': write auto, uring or threads"),
        ("fsync", "all", "--fsync 'all': write file or off"),
        ("interval", "0", "--interval '0': write seconds from 0.1 to 3600"),
        ("interval", "nan", "--interval 'nan': write seconds from 0.1 to 3600"),
        (
            "ports",
            "9-8",
            "--ports '9-8': write LO-HI, for instance 50000-50100 (ports from 1 to 65535)",
        ),
        ("ssh", "ssh 'a", "--ssh 'ssh 'a': a quote is not closed"),
        ("ssh", " ", "--ssh ' ': write a command"),
        ("manifest", "", "--manifest needs a file name"),
        ("retry-for", "8d", RETRY_FOR),
        ("retry-for", "1w", "--retry-for '1w': write a time such as 90s, 10m or 2h"),
        ("exclude", "a[", "--exclude 'a[': "),
        (
            "pace",
            "fast",
            "--pace 'fast': write 100Mbit (bits) or 80MB (bytes a second), auto, scavenger or off",
        ),
        ("dscp", "af44", "--dscp 'af44': write a name (cs0 to cs7, af11 to af43, ef, va, le)"),
        ("lockstep", "32M", "--lockstep '32M': write SIZE:TIME, for instance 32M:250ms"),
        ("newer", "", "--newer '': write a time in UTC such as 2026-11-20"),
        ("newer", "@x", "--newer '@x': write a time in UTC such as 2026-11-20"),
        ("max-errors", "-1", "--max-errors '-1': write a number from 0 to 4294967295"),
    ];
    for (name, typed, expect) in cases {
        let got = option(name).check(OsStr::new(typed)).unwrap_err();
        assert!(got.starts_with(expect), "{got}");
    }
}

#[test]
fn requests_of_many_streams_fit_into_the_memory() {
    let cases = [
        ("", 1 << 20),
        ("--memory 64M", 1 << 20),
        ("--streams 32", 1 << 20),
        ("--streams 64", 512 << 10),
        ("--streams auto", 512 << 10),
        ("--streams auto --memory 1G", 1 << 20),
        ("--streams 64 --memory 64M", 128 << 10),
        ("--streams 64 --request-size 1M", 1 << 20),
    ];
    for (options, expect) in cases {
        let settings = settings_of(&typed(&format!("copy a b {options}"))).unwrap();
        assert_eq!(settings.request_bytes, expect, "{options}");
    }
}

const RETRY_FOR: &str = "--retry-for '8d': write a time such as 90s, 10m or 2h (a week at \
                         most), or off";

#[test]
fn good_values_arrive() {
    let line = "copy a b --streams 64 --request-size 1M --depth-source 8 --window 64K \
                --rate 100Mbit --congestion bbr --ports 50000:50100 --retry-for 2h --pace 90Mbit \
                --dscp ef --lockstep 32M:250ms --interval 0.5";
    let typed = typed(line);
    let settings = settings_of(&typed).unwrap();
    assert_eq!((settings.streams, settings.request_bytes), (64, 1 << 20));
    assert_eq!((settings.depth_source, settings.window_bytes), (Some(8), Some(64 << 10)));
    assert_eq!(settings.rate, Some(Rate { bytes_per_second: 12.5e6 }));
    assert_eq!(settings.pace, Pace::Fixed(Rate { bytes_per_second: 11.25e6 }));
    assert_eq!(settings.dscp.map(|dscp| dscp.code()), Some(46));
    assert_eq!(settings.lockstep.map(|lockstep| lockstep.every_bytes), Some(32 << 20));
    assert_eq!(settings.congestion.as_deref(), Some("bbr"));
    assert_eq!(typed.value(&showing::INTERVAL), Ok(Some(Nanos::from_millis(500))));
    let remote = remote_of(&typed).unwrap();
    assert_eq!(remote.ports, Some((50000, 50100)));
    assert_eq!(remote.retry_for.seconds(), 7200.0);
    let ssh = remote::SSH.kind.read("ssh", OsStr::new("ssh -p 22"));
    assert_eq!(ssh.unwrap(), ["ssh", "-p", "22"]);
}
