//! The command that a page shows does what the run did: options drawn at random, the command that
//! follows from them, and what a shell and the parser make of that.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::process::Command;

use super::args::{Args, Task};
use super::command_id::CommandId;
use super::config::Outside;
use super::options::{self, AnyOption, Group, Shape};
use super::order::CopyArgs;
use analysis::page::run::command_line;
use analysis::record::sample::Record;

/// Values of the options that have no names for them, and no default that is one.
const VALUES: &[(&str, &[&str])] = &[
    ("chown", &["root", "0:0", ":root"]),
    ("usermap", &["alice:bob,*:root", "0-99:nobody"]),
    ("groupmap", &["staff:users"]),
    ("exclude", &["*.o", "a b", "-x", "it's", "/d/**", "$HOME", "\\!x"]),
    ("include", &["*.rs"]),
    ("exclude-from", &[".gitignore"]),
    ("files-from", &["names", "-"]),
    ("min-size", &["10K", "0"]),
    ("max-size", &["5G", "1234567"]),
    ("newer", &["@1763640903", "2026-11-20T12:15"]),
    ("max-delete", &["7"]),
    ("max-errors", &["3"]),
    ("backup-dir", &[".old", "-old"]),
    ("manifest", &["sums", "a\"b"]),
    ("seed", &["7"]),
    ("streams", &["1", "7", "auto"]),
    ("request-size", &["256K"]),
    ("depth-source", &["4"]),
    ("depth-sink", &["2"]),
    ("rate", &["80MB", "1Gbit", "unlimited"]),
    ("rate-schedule", &["08:00,20MB 18:00,unlimited"]),
    ("digest-also", &["md5,sha256", "crc32c"]),
    ("cpus", &["0"]),
    ("stall", &["2.5"]),
    ("window", &["4M"]),
    ("congestion", &["cubic"]),
    ("pace", &["80MB", "auto", "off"]),
    ("compress", &["zstd:3", "off", "auto", "lz4", "zlib:6"]),
    ("dscp", &["8", "cs1"]),
    ("lockstep", &["32M:250ms"]),
    ("memory", &["512M", "300000000"]),
    ("ssh", &["ssh -v", "ssh -o 'A=b c'"]),
    ("port", &["2222"]),
    ("identity", &["key"]),
    ("remote-datapump", &["/opt/data pump"]),
    ("ports", &["5000-5010"]),
    ("addresses", &["192.0.2.1,192.0.2.2"]),
    ("remote-cpus", &["1"]),
    ("retry-for", &["60", "off", "2m"]),
    ("s3-endpoint", &["http://127.0.0.1:9000"]),
    ("s3-profile", &["work"]),
    ("s3-region", &["eu-west-1"]),
    ("s3-ca", &["ca.pem"]),
];

/// Where nothing is at odds with an option, one of these lets it be.
const ENDS: &[&[&str]] = &[
    &["a", "b"],
    &["-r", "a/", "b"],
    &["-r", "--delete", "a", "host:b"],
    &["--overwrite", "always", "host:a b", "it's"],
    &["--files-from", "names", "a", "b"],
    &["s3://bucket/key", "b"],
    &["null:1G", "host:null:"],
];

fn copied(words: &[OsString]) -> Option<CopyArgs> {
    let words = ["datapump", "copy"].map(OsString::from).into_iter().chain(words.iter().cloned());
    match Args::parse(words, &Outside::default()).ok()?.task {
        Task::Copy(args) => Some(*args),
        other => panic!("{other:?}"),
    }
}

/// What a shell makes of the line of the page.
fn by_shell(line: &str) -> Vec<OsString> {
    let output = Command::new("sh").arg("-c").arg(format!("printf '%s\\0' {line}")).output();
    let bytes = output.unwrap().stdout;
    let words = bytes.split(|byte| *byte == 0).map(|word| OsStr::from_bytes(word).to_os_string());
    let mut words: Vec<OsString> = words.collect();
    assert_eq!(words.pop().as_deref(), Some(OsStr::new("")), "{line}");
    words
}

/// The options that decide what a copy does.
fn deciding() -> Vec<&'static dyn AnyOption> {
    let decides = |option: &&'static dyn AnyOption| {
        let about = option.description();
        let is_shown = matches!(about.group, Group::Showing | Group::Recording);
        (!is_shown || about.name == "path-samples") && !["profile", "config"].contains(&about.name)
    };
    options::of(CommandId::Copy).filter(decides).collect()
}

fn values(option: &dyn AnyOption) -> Vec<String> {
    let name = option.description().name;
    let of = |values: &[&str]| values.iter().map(|value| format!("--{name}={value}")).collect();
    match option.shape() {
        Shape::Nothing => vec![format!("--{name}")],
        Shape::OneOf(names) => of(names),
        _ => match VALUES.iter().find(|(known, _)| *known == name) {
            Some((_, values)) => of(values),
            None => panic!("--{name}: VALUES has none for it"),
        },
    }
}

/// True where these words are a copy, whose command is that copy again.
fn repeats(words: &[OsString]) -> bool {
    let Some(args) = copied(words) else { return false };
    let record = Record {
        command: "copy".into(),
        sources: args.sources.clone(),
        target: args.target.clone(),
        given: Some(args.given.clone()),
        ..Record::default()
    };
    let line = command_line(&record).unwrap();
    let again = by_shell(&line);
    assert_eq!(again[..2], ["datapump", "copy"].map(OsString::from), "{line}");
    let again = copied(&again[2..]).unwrap_or_else(|| panic!("{words:?} became {line}"));
    let of = |args: &CopyArgs| {
        (args.order.clone(), args.schedule.clone(), args.sources.clone(), args.target.clone())
    };
    assert_eq!(of(&again), of(&args), "{words:?} became {line}");
    true
}

#[test]
fn every_option_comes_back() {
    for option in deciding() {
        for value in values(option) {
            let fits = ENDS.iter().any(|ends| {
                let words: Vec<OsString> =
                    [value.as_str()].iter().chain(ends.iter()).map(OsString::from).collect();
                repeats(&words)
            });
            assert!(fits, "{value}: with none of ENDS");
        }
    }
}

#[test]
fn random_options_come_back() {
    let options = deciding();
    let mut state = 88_172_645_463_325_252_u64;
    let mut random = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below as u64) as usize
    };
    let (mut repeated, mut seen) = (0, BTreeSet::new());
    for _ in 0..1500 {
        let mut words: Vec<OsString> = Vec::new();
        for _ in 0..1 + random(6) {
            let option = options[random(options.len())];
            let values = values(option);
            words.push(values[random(values.len())].clone().into());
            seen.insert(option.description().name);
        }
        words.extend(ENDS[random(ENDS.len())].iter().map(OsString::from));
        repeated += u32::from(repeats(&words));
    }
    assert!(repeated > 200, "{repeated} of 1500 were copies");
    assert_eq!(seen.len(), options.len());
}
