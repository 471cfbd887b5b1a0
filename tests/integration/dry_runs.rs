//! Dry runs beside the runs that they tell of, over random pairs of trees and options, and beside
//! rsync's where it can say the same. `DATAPUMP_TREES` sets their number.

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::support::pairs::{self, Rng, look};
use crate::support::run::{self, Ran};
use crate::support::{Scene, each, each_at_once, is_root, need, need_root};

const TREES: u64 = 30;
const NOBODY: u32 = 65534;

/// Local most often: a login takes long.
const WAYS: &[(&str, &str)] = &[("", ""), ("", ""), ("", ""), ("", "far:"), ("", ""), ("far:", "")];
const SKIPS: &[&str] = &["", "--skip-unchanged", "--checksum"];
const OVERWRITES: &[&str] = &["", "--overwrite always", "--overwrite older", "--overwrite never"];
const DELETES: &[&str] = &["", "", "--delete", "--delete-excluded", "--delete --max-delete 3"];
const LINKS: &[&str] = &["", "--links follow", "--links skip", "--links safe"];
const FILTERS: &[&str] = &[
    "",
    "--exclude *.o",
    "--exclude tmp/ --exclude /build",
    "--exclude * --include */ --include *.o",
    "--min-size 500",
    "--max-size 1K --exclude a",
];

/// What a run did, or would do: files by name, kind and bytes; what is deleted; what failed.
#[derive(Debug, PartialEq, Eq)]
struct Told {
    code: i64,
    files: BTreeSet<String>,
    deleted: BTreeSet<String>,
    failed: BTreeSet<String>,
    counts: Vec<(&'static str, Option<u64>)>,
}

const COUNTS: [&str; 5] = ["files", "failed", "kept", "deleted", "excluded"];

fn told(ran: &Ran) -> Told {
    let mut events = ran.events();
    let end = events.pop().unwrap();
    let name = |event: &Value| {
        let path = event["path_hex"].as_str().or(event["path"].as_str()).unwrap();
        format!("{path} {} {}", event["link"], event["bytes"])
    };
    let of = |states: [&str; 2]| -> BTreeSet<String> {
        let those = events.iter().filter(|event| {
            event["event"] == "file" && states.contains(&event["state"].as_str().unwrap_or(""))
        });
        those.map(name).collect()
    };
    let moved = &end["record"]["moved"];
    Told {
        code: end["exit_code"].as_i64().unwrap(),
        files: of(["done", "would_copy"]),
        deleted: of(["deleted", "would_delete"]),
        failed: of(["failed", "failed"]),
        counts: COUNTS.map(|count| (count, moved[count].as_u64())).into(),
    }
}

fn differences(what: &str, left: &BTreeSet<String>, right: &BTreeSet<String>) -> String {
    let (first, second): (Vec<_>, Vec<_>) =
        (left.difference(right).collect(), right.difference(left).collect());
    format!("{what}: only in the first {first:?}, only in the second {second:?}\n")
}

fn pick<'a>(rng: &mut Rng, all: &[&'a str]) -> &'a str {
    all[rng.below(all.len() as u64) as usize]
}

/// The trees of a seed: the destination is filled, empty, or not there.
fn lay(seed: u64, scene: &Scene, rng: &mut Rng) {
    pairs::lay(seed, &scene.path("src"), &scene.path("dst"));
    match rng.below(4) {
        0 => {
            fs::remove_dir_all(scene.path("dst")).unwrap();
            fs::create_dir(scene.path("dst")).unwrap();
        }
        1 => fs::remove_dir_all(scene.path("dst")).unwrap(),
        _ => {}
    }
    let mut files = Vec::new();
    each_below(&scene.path("src"), &mut |path| {
        if fs::symlink_metadata(path).unwrap().is_file() {
            files.push(path.to_path_buf());
        }
    });
    files.sort();
    for file in &files {
        if rng.below(8) == 0 {
            let second = file.with_file_name(format!("second-{}", rng.below(3)));
            let _ = fs::hard_link(file, second);
        }
    }
}

fn each_below(folder: &Path, tell: &mut dyn FnMut(&Path)) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if fs::symlink_metadata(&path).unwrap().is_dir() {
            each_below(&path, tell);
        }
        tell(&path);
    }
}

/// All of it belongs to somebody who may not read some of the source.
fn give_away(scene: &Scene, rng: &mut Rng) {
    for root in ["src", "dst"] {
        let root = scene.path(root);
        if !root.exists() {
            continue;
        }
        let mut own = |path: &Path| {
            let meta = fs::symlink_metadata(path).unwrap();
            std::os::unix::fs::lchown(path, Some(NOBODY), Some(NOBODY)).unwrap();
            if root.ends_with("src") && !meta.is_symlink() && rng.below(6) == 0 {
                fs::set_permissions(path, Permissions::from_mode(0o000)).unwrap();
            }
        };
        each_below(&root, &mut own);
        chown(&root, Some(NOBODY), Some(NOBODY)).unwrap();
    }
    // The destination may have to be made here.
    fs::set_permissions(scene.path(""), Permissions::from_mode(0o777)).unwrap();
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum User {
    Own,
    Nobody,
}

fn ran(scene: &Scene, user: User, line: &str) -> Ran {
    let words = scene.words(line);
    match user {
        User::Own => run::to_end(scene.command(&words), b""),
        User::Nobody => {
            let mut command = Command::new(need("setpriv", "util-linux"));
            command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
            command.arg(scene.program_for_all()).args(words).env("HOME", "/nonexistent");
            run::to_end(command, b"")
        }
    }
}

/// The dry run says what the run does, and changes nothing.
fn agree(seed: u64) {
    let scene = Scene::new();
    let mut rng = Rng::new(seed ^ 0xd27);
    lay(seed, &scene, &mut rng);
    let user = if is_root() && seed % 3 == 1 { User::Nobody } else { User::Own };
    let (mut from, mut to) = WAYS[(seed % WAYS.len() as u64) as usize];
    if user == User::Nobody {
        give_away(&scene, &mut rng);
        (from, to) = ("", "");
    }
    let options = [
        pick(&mut rng, SKIPS),
        pick(&mut rng, OVERWRITES),
        pick(&mut rng, LINKS),
        pick(&mut rng, FILTERS),
    ];
    let mut delete = pick(&mut rng, DELETES);
    // A mirror replaces what differs, and is one of folders.
    let overwrite = if delete.is_empty() { options[1] } else { "" };
    if !scene.path("dst").exists() {
        delete = "";
    }
    let slash = if rng.below(4) == 0 { "" } else { "/" };
    let [skip, _, links, filters] = options;
    let line = format!(
        "copy -r --json {skip} {overwrite} {links} {filters} {delete} {from}@/src{slash} {to}@/dst"
    );
    let before = scene.path("dst").exists().then(|| look(&scene.path("dst")));
    let dry = ran(&scene, user, &line.replacen("--json", "--json -n", 1));
    let after = scene.path("dst").exists().then(|| look(&scene.path("dst")));
    assert_eq!(before, after, "seed {seed}: {line}");
    let run = ran(&scene, user, &line);
    let (would, did) = (told(&dry), told(&run));
    let found = [
        differences("files", &would.files, &did.files),
        differences("deleted", &would.deleted, &did.deleted),
        differences("failed", &would.failed, &did.failed),
    ];
    let counts = (would.code, &would.counts, did.code, &did.counts);
    let found = found.concat();
    assert!(would == did, "seed {seed}: {line}\n{found}{counts:?}\n{}{}", dry.stderr, run.stderr);
}

fn count() -> u64 {
    std::env::var("DATAPUMP_TREES").map_or(TREES, |count| count.parse().unwrap())
}

#[test]
fn a_dry_run_says_what_the_run_does() {
    each_at_once(&(0..count()).collect::<Vec<u64>>(), |seed| agree(*seed));
}

/// What rsync would copy, files and links, and what it deletes; `None` where it fails.
fn of_rsync(scene: &Scene, line: &str) -> Option<(BTreeSet<String>, BTreeSet<String>)> {
    let rsync = |options: &[&str]| {
        let mut rsync = Command::new(need("rsync", "rsync"));
        rsync.args(["-a", "-8", "--out-format=%i %n"]).args(options).args(scene.words(line));
        run::to_end(rsync, b"")
    };
    let dry = rsync(&["-n"]);
    let before = look(&scene.path("dst"));
    // Its dry run also names folders that it then finds not to be empty.
    if dry.code != 0 || rsync(&[]).code != 0 {
        return None;
    }
    let after = look(&scene.path("dst"));
    let name = |name: &Vec<u8>| String::from_utf8(name.clone()).unwrap();
    let gone = before.keys().filter(|name| !after.contains_key(*name)).map(name).collect();
    let mut copied = BTreeSet::new();
    for line in
        dry.stdout_text().lines().filter(|line| line.starts_with(">f") || line.starts_with("cL"))
    {
        let name = line.split_at(11).1.trim_start().replace("\\#012", "\n");
        copied.insert(name.split(" -> ").next().unwrap_or_default().to_string());
    }
    Some((copied, gone))
}

fn agrees_with_rsync(seed: u64) {
    let scene = Scene::new();
    let mut rng = Rng::new(seed ^ 0x25c);
    pairs::lay(seed, &scene.path("src"), &scene.path("dst"));
    let filters = ["", "--exclude *.o", "--exclude tmp/ --exclude /build"];
    let filters = pick(&mut rng, &filters);
    let delete = pick(&mut rng, &["--delete", "--delete-excluded"]);
    let line = format!("{delete} {filters} @/src/ @/dst");
    let dry = scene.run(&format!("copy -r -n --json {line}"));
    if fs::read_dir(scene.path("src")).unwrap().next().is_none() {
        return; // of an empty source datapump deletes nothing
    }
    let Some((copied, gone)) = of_rsync(&scene, &line) else { return };
    let events = dry.events();
    let names = |state: &str| -> BTreeSet<String> {
        let those = events.iter().filter(|event| event["state"] == state);
        those.map(|event| event["path"].as_str().unwrap().to_string()).collect()
    };
    let found = differences("files", &names("would_copy"), &copied);
    assert!(names("would_copy") == copied, "seed {seed}: {line}\n{found}");
    // What makes way for another kind is named too, and its name stays.
    let deleted: BTreeSet<String> = names("would_delete")
        .into_iter()
        .filter(|name| fs::symlink_metadata(scene.path("dst").join(name)).is_err())
        .collect();
    let found = differences("deleted", &deleted, &gone);
    assert!(deleted == gone, "seed {seed}: {line}\n{found}");
}

#[test]
fn a_dry_mirror_is_that_of_rsync() {
    each_at_once(&(0..count().min(100)).collect::<Vec<u64>>(), |seed| agrees_with_rsync(*seed));
}

/// A folder that cannot be made takes what is in it along, and nothing else: each is told of once,
/// and for this reason.
#[test]
fn a_folder_that_cannot_be_made_spoils_no_other() {
    each(["", "far:"], |to| {
        let scene = Scene::new();
        for folder in ["src/a/b", "src/c"] {
            fs::create_dir_all(scene.path(folder)).unwrap();
        }
        for number in 0..40 {
            fs::write(scene.path(format!("src/c/{number}")), vec![7; number * 100]).unwrap();
        }
        fs::write(scene.path("src/a/b/file"), "x").unwrap();
        fs::create_dir(scene.path("dst")).unwrap();
        std::os::unix::fs::symlink("nowhere", scene.path("dst/a")).unwrap();
        let line = format!("copy -r --json @/src/ {to}@/dst");
        let dry = scene.run(&line.replace("--json", "--json -n"));
        let ran = scene.run(&line);
        for ran in [&dry, &ran] {
            let failed = ran.events().into_iter().filter(|event| event["state"] == "failed");
            let failed: Vec<(String, bool)> = failed
                .map(|event| {
                    let is_told = event["message"].as_str().unwrap().contains("could not be made");
                    (event["path"].as_str().unwrap().to_string(), is_told)
                })
                .collect();
            let expect = [("a", false), ("a/b", true), ("a/b/file", true)];
            assert_eq!(failed, expect.map(|(path, is_told)| (path.to_string(), is_told)), "{ran}");
            assert_eq!(ran.code, 3, "{ran}");
        }
        for number in 0..40 {
            assert!(scene.path(format!("dst/c/{number}")).exists(), "{number}: {ran}");
        }
    });
}

/// A file that its reader may not open, and what a run says of it.
#[test]
fn what_cannot_be_read_is_told() {
    need_root("setpriv makes a process of another user");
    each(["", "--skip-unchanged"], |skip| {
        let scene = Scene::new();
        fs::create_dir(scene.path("src")).unwrap();
        for name in ["a", "b"] {
            fs::write(scene.path("src").join(name), name).unwrap();
            fs::set_permissions(scene.path("src").join(name), Permissions::from_mode(0o000))
                .unwrap();
        }
        fs::set_permissions(scene.path("src/b"), Permissions::from_mode(0o644)).unwrap();
        fs::create_dir(scene.path("dst")).unwrap();
        fs::set_permissions(scene.path("dst"), Permissions::from_mode(0o777)).unwrap();
        let dry = ran(&scene, User::Nobody, &format!("copy -r {skip} -n @/src/ @/dst"));
        let run = ran(&scene, User::Nobody, &format!("copy -r {skip} @/src/ @/dst"));
        for ran in [&dry, &run] {
            assert_eq!(ran.code, 3, "{ran}");
            let text = format!("cannot open '{}'", scene.path("src/a").display());
            assert!(ran.stderr.contains(&text), "{ran}");
        }
    });
}
