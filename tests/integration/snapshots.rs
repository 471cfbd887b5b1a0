//! Snapshots of what users read: the help of every command, and the error for each wrong use. After
//! a change `INSTA_UPDATE=always cargo test snapshots` writes `tests/integration/snapshots/` anew,
//! and the difference is to be reviewed.

use std::fs;
use std::process::Command;

use crate::support::data::write_file;
use crate::support::{PROGRAM, Scene, run};

/// Every command, as it is typed.
const COMMANDS: &[&str] = &[
    "",
    "copy",
    "demo",
    "verify",
    "clean",
    "limit",
    "measure",
    "measure codec",
    "net-test",
    "model fit",
    "model show",
    "model predict",
    "results list",
    "results show",
    "results export",
    "explain",
    "report",
    "doctor",
    "sweep",
    "sweep show",
    "sweep compare",
    "sweep profile",
    "config show",
    "man",
    "completions",
    "peer",
    "probe",
];

/// The name of a snapshot, and command lines that are wrong in one way each.
const WRONG: &[(&str, &[&str])] = &[
    ("program", &["", "kopy @/file @/out", "--bogus", "help kopy"]),
    (
        "copy",
        &[
            "copy",
            "copy @/file",
            "copy --bogus @/file @/out",
            "copy @/nothing @/out",
            "copy @/folder @/out",
            "copy null: null:",
            "copy far:@/file far:@/out",
            "copy @/file http://host/x",
            "copy @/file ssh://host:x/y",
            "copy @/file @/none/out",
            "copy --streams 65 @/file @/out",
            "copy --window 5Q @/file @/out",
            "copy --compress gzip @/file @/out",
            "copy --seal maybe @/file @/out",
            "copy --rate 0 @/file @/out",
            "copy --rate-schedule 25:00,5MB @/file @/out",
            "copy - @/file @/folder",
            "copy --files-from @/nothing @/folder @/out",
            "copy --profile @/nothing @/file @/out",
        ],
    ),
    ("demo", &["demo more", "demo --size 0"]),
    ("verify", &["verify", "verify @/nothing", "verify @/file @/folder"]),
    ("clean", &["clean", "clean @/nothing", "clean @/file"]),
    ("limit", &["limit dtn2", "limit 1 5", "limit 1 5MB 6MB", "limit 4294967295"]),
    ("measure", &["measure --rounds 0", "measure everything", "measure codec @/nothing"]),
    ("net-test", &["net-test --time 0 host", "net-test a b", "measure net host"]),
    ("model", &["model", "model fit more", "model show", "model predict", "model predict cpu"]),
    (
        "results",
        &[
            "results",
            "results list --command kopy",
            "results show",
            "results show 1",
            "results export",
        ],
    ),
    ("explain", &["explain", "explain one", "explain 1"]),
    (
        "report",
        &[
            "report 1",
            "report 0",
            "report 1 2",
            "report a b c",
            "report a 1",
            "report 1 --html",
            "report a --xplot @/out",
            "report 1 --png @/out",
        ],
    ),
    ("doctor", &["doctor --bogus", "doctor a b"]),
    (
        "sweep",
        &[
            "sweep",
            "sweep --hosts @/nothing",
            "sweep --hosts @/file --windows 5Q",
            "sweep --resume --windows 64K",
            "sweep show",
            "sweep show nothing",
            "sweep compare a",
            "sweep profile",
        ],
    ),
    ("config", &["config", "config show a b", "config show --config @/nothing"]),
    ("completions", &["completions", "completions csh", "man more"]),
];

#[test]
fn help() {
    for command in COMMANDS {
        let mut asked = Command::new(PROGRAM);
        asked.args(command.split_whitespace()).arg("--help");
        let ran = run::to_end(asked, b"");
        assert_eq!(ran.code, 0, "{command} --help\n{ran}");
        let name = format!("help-{}", command.replace(' ', "-"));
        insta::assert_snapshot!(name.trim_end_matches('-'), ran.stdout_text());
    }
}

/// A new command is not forgotten here: the first screen names them all.
#[test]
fn every_command_is_there() {
    let ran = run::to_end(Command::new(PROGRAM), b"");
    let screen = format!("{}{}", ran.stdout_text(), ran.stderr);
    let named = |line: &&str| line.starts_with("  ") && !line.starts_with("   ");
    for line in screen.lines().filter(named) {
        let word = line.split_whitespace().next().unwrap_or_default();
        let known = COMMANDS.iter().any(|command| command.split(' ').next() == Some(word));
        assert!(known || word == "help" || word == "datapump" || word.starts_with('-'), "{line}");
    }
}

#[test]
fn errors() {
    for (name, lines) in WRONG {
        let said: Vec<String> = lines.iter().map(|line| said(line)).collect();
        let said = said.join("\n");
        assert!(!said.contains("(os error"), "a sentence needs no number of an error: {said}");
        insta::assert_snapshot!(format!("errors-{name}"), said);
    }
}

/// What people type who use other programs, and what they are told: one line each.
#[test]
fn wrong_commands() {
    let lines = include_str!("../data/wrong-commands.txt").lines();
    let lines: Vec<&str> = lines.filter(|line| !line.starts_with('#')).collect();
    assert!(lines.len() >= 70, "{} commands are few", lines.len());
    let said: Vec<String> = lines.iter().map(|line| said(line)).collect();
    for text in &said {
        assert!(!text.contains("as a value, use") && !text.contains("(os error"), "{text}");
    }
    insta::assert_snapshot!("wrong-commands", said.join("\n"));
}

/// The command line, its exit code, and all its output.
fn said(line: &str) -> String {
    let scene = Scene::new();
    fs::create_dir(scene.path("folder")).unwrap();
    write_file(&scene.path("file"), 1, 1000);
    fs::write(scene.path("name.toml"), "[defaults]\nstraems = 8\n").unwrap();
    fs::write(scene.path("unit.toml"), "[defaults]\nrate = \"10\"\n").unwrap();
    let ran = scene.run(line);
    assert_ne!(ran.code, 0, "{line}\n{ran}");
    let both = format!("{}{}", ran.stdout_text(), ran.stderr);
    let steady = both.replace(&scene.path("").display().to_string(), "@/");
    format!("$ datapump {line}\n{}exit code {}\n", steady, ran.code)
}
