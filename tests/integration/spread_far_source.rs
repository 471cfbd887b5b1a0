//! `datapump spread` from far hosts that all see the source: real sshds on two ports.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::PathBuf;

use rustix::process::Signal;
use serde_json::Value;

use crate::support::data::{assert_same, files_below, odd_names, write_file, write_odd_names};
use crate::support::far_spreads::{
    check_copied, holder, lose_far_sides, noted, ran, start, write_dataset,
};
use crate::support::{Scene, processes, until, until_some};

/// How many shards there are, once the plan is complete.
fn planned(scene: &Scene) -> Option<u64> {
    let plan = fs::read(scene.path("job/plan.json")).ok()?;
    serde_json::from_slice::<Value>(&plan).ok()?["planned"].as_u64()
}

fn logged_in(scene: &Scene) -> BTreeSet<String> {
    noted(scene, "logs in").into_iter().map(|(_, host)| host).collect()
}

#[test]
fn two_workers_from_two_far_hosts() {
    let scene = Scene::new();
    write_dataset(&scene.path("src"));
    write_odd_names(&scene.path("src/odd"));
    let plan = ran(&scene, "spread -n far,far2:@/src/ @/dst --on local:2");
    let files = 303 + odd_names().len();
    assert!(plan.stdout_text().contains(&format!("plan: {files} files")), "{plan}");
    assert!(!scene.path("dst").exists(), "{plan}");
    let ended = ran(&scene, "spread far,far2:@/src/ @/dst --on local:2 --job @/job");
    assert_eq!(ended.code, 0, "{ended}");
    // The link has no bytes, and no line.
    check_copied(&scene, files - 1);
    for name in ["f1/large-2", "f2"] {
        let time = |folder: &str| scene.path(folder).join(name).metadata().unwrap().modified();
        assert_eq!(time("src").unwrap(), time("dst").unwrap(), "{name}");
    }
    assert_eq!(logged_in(&scene), BTreeSet::from(["far".to_string(), "far2".to_string()]));
    let status = scene.succeed("spread status @/job").stdout_text();
    assert!(
        status.contains(" from far: ended") && status.contains(" from far2: ended"),
        "{status}"
    );
    let report = scene.succeed("spread report @/job --json");
    let job = report.events().into_iter().find(|event| event["event"] == "job").unwrap();
    let routes = job["routes"].as_array().unwrap();
    let copied: u64 = routes.iter().map(|route| route["files"].as_u64().unwrap()).sum();
    assert_eq!((copied, &job["is_source_far"]), (files as u64, &Value::Bool(true)), "{report}");
    // What is kept of the job says nothing of how ssh logs in.
    let manifest = fs::read_to_string(scene.path("job/manifest.json")).unwrap();
    let manifest: Value = serde_json::from_str(&manifest).unwrap();
    assert_eq!(manifest["far_source"]["hosts"], serde_json::json!(["far", "far2"]));
    assert_eq!(manifest["far_source"].as_object().unwrap().len(), 3, "{manifest}");
    let again = ran(&scene, "spread far2:@/src/ @/dst --job @/again --skip-unchanged");
    assert!(again.code == 0 && again.stdout_text().contains(&format!("{files} kept")), "{again}");
    let plan = ran(&scene, "spread -n far,far2:@/src/ @/dst --on local:2");
    let exist = format!("names that exist at the destination: {files}");
    assert!(plan.stdout_text().contains(&exist), "{plan}");
}

/// As `copy` takes them: a folder, one file, and names with wildcards that the far host expands.
#[test]
fn far_sources_have_their_names() {
    let scene = Scene::new();
    write_dataset(&scene.path("src"));
    let line = "spread far:@/src/f* far:@/src/large-1 far:@/src/f0/ @/dst --job @/job";
    let ended = ran(&scene, line);
    assert_eq!(ended.code, 0, "{ended}");
    for name in ["f0", "f1", "f2", "f3", "large-1"] {
        assert_same(&scene.path("src").join(name), &scene.path("dst").join(name));
    }
    for file in files_below(&scene.path("src/f0")) {
        assert_same(&file, &scene.path("dst").join(file.file_name().unwrap()));
    }
    scene.succeed("verify @/job/receipt @/dst");
}

/// A worker is killed while it holds a shard, or is in the middle of a range.
#[test]
fn a_killed_worker_of_a_far_source_is_replaced() {
    for how in ["--job @/job", IN_RANGES] {
        let scene = Scene::new();
        write_dataset(&scene.path("src"));
        let line = "spread far,far2:@/src/ @/dst --on local:2 --lease 1 --rate 2MB --json";
        let running = start(&scene, &format!("{line} {how}"));
        if how == IN_RANGES {
            until("a range is under way", || is_range_staged(&scene));
        }
        let pid = until_some("a worker has a shard", || holder(&scene));
        processes::send(pid, Signal::KILL);
        let ended = running.end();
        assert_eq!(ended.code, 0, "{ended}");
        check_copied(&scene, 302);
    }
}

const IN_RANGES: &str = "--job @/job --split-above 4M";

/// Some of a range is in the staging folder of an attempt.
fn is_range_staged(scene: &Scene) -> bool {
    let staged = files_below(&scene.path("dst/.datapump-spread"));
    let is_of_range = |path: &&PathBuf| {
        let attempt = path.iter().find_map(|name| name.to_str()?.split_once('.')?.0.parse().ok());
        attempt.is_some_and(|shard: u32| is_range(scene, shard))
    };
    let has_bytes = |path: &PathBuf| path.metadata().is_ok_and(|file| file.blocks() > 0);
    staged.iter().filter(is_of_range).any(has_bytes)
}

fn is_range(scene: &Scene, shard: u32) -> bool {
    let head = fs::read(scene.path(format!("job/shards/{shard:07}"))).unwrap_or_default();
    String::from_utf8_lossy(&head).contains("\"range\"")
}

/// Of all sizes around that from which on files are cut: some with odd names, one that is read
/// only, and one with holes. Nothing is told to be moved twice.
#[test]
fn large_files_of_a_far_source_go_in_ranges() {
    let scene = Scene::new();
    let mib = 1 << 20;
    fs::create_dir_all(scene.path("src/in")).unwrap();
    for (number, bytes) in
        [mib - 1, mib, mib + 1, 2 * mib - 1, 2 * mib, 3 * mib + 5, 4_500_001].iter().enumerate()
    {
        write_file(&scene.path(format!("src/in/{number}")), number as u64, *bytes);
    }
    let odd = OsStr::from_bytes(b"odd [0-9]*? \xff");
    write_file(&scene.path("src").join(odd), 10, 2 * mib + 7);
    let holes = fs::File::create(scene.path("src/holes")).unwrap();
    holes.set_len(8 << 20).unwrap();
    holes.write_all_at(&[7; 5000], 3_000_000).unwrap();
    fs::set_permissions(scene.path("src/in/3"), fs::Permissions::from_mode(0o440)).unwrap();
    let line = "spread far,far2:@/src/ @/dst --on local:2 --job @/job --split-above 1M";
    let plan = ran(&scene, &line.replace("--job @/job", "-n"));
    assert!(plan.code == 0 && plan.stdout_text().contains("plan: 9 files"), "{plan}");
    let ended = ran(&scene, line);
    assert_eq!(ended.code, 0, "{ended}");
    check_copied(&scene, 9);
    for name in ["in/3", "in/6"] {
        let look = |folder: &str| {
            let found = scene.path(folder).join(name).metadata().unwrap();
            (found.mode(), found.modified().unwrap())
        };
        assert_eq!(look("src"), look("dst"), "{name}");
    }
    let ranges = (0..100).filter(|shard| is_range(&scene, *shard)).count();
    assert_eq!(ranges, 2 + 2 + 2 + 4 + 5 + 3 + 8, "ranges of 1 MiB, and what is left");
    assert_eq!(logged_in(&scene), BTreeSet::from(["far".to_string(), "far2".to_string()]));
    let status = scene.succeed("spread status @/job --json");
    let job = status.events().into_iter().find(|event| event["event"] == "job").unwrap();
    let files = files_below(&scene.path("src")).into_iter();
    let bytes: u64 = files.map(|path| path.metadata().unwrap().len()).sum();
    assert_eq!((&job["files"], &job["bytes"]), (&9.into(), &bytes.into()), "{status}");
    // One file is a source too.
    let alone = ran(&scene, "spread far:@/src/in/6 @/alone --job @/other --split-above 1M");
    assert_eq!(alone.code, 0, "{alone}");
    assert_same(&scene.path("src/in/6"), &scene.path("alone/6"));
}

/// A file that changes between two of its ranges is named; the others are complete.
#[test]
fn a_far_file_that_changes_between_its_ranges_is_named() {
    let scene = Scene::new();
    write_dataset(&scene.path("src"));
    write_file(&scene.path("src/large-1"), 5, 20 << 20);
    let line = format!("spread far,far2:@/src/ @/dst --on local:1 {IN_RANGES} --rate 1MB");
    let running = start(&scene, &line);
    until("a range of it is there", || {
        let done = fs::read_dir(scene.path("job/done")).into_iter().flatten();
        let names = done.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let mut shards = names.filter_map(|name| name.split_once('.')?.0.parse().ok());
        shards.any(|shard: u32| {
            let head = fs::read(scene.path(format!("job/shards/{shard:07}"))).unwrap();
            is_range(&scene, shard) && String::from_utf8_lossy(&head).contains("large-1")
        })
    });
    let late = fs::File::options().append(true).open(scene.path("src/large-1")).unwrap();
    late.set_len(21 << 20).unwrap();
    let ended = running.end();
    assert_eq!(ended.code, 4, "{ended}");
    let path = scene.path("src/large-1").display().to_string();
    let named = format!("'{path}' changed");
    assert!(ended.stdout_text().contains(&named), "{ended}");
    assert!(!scene.path("dst/large-1").exists() && scene.path("dst/f1/large-2").exists());
}

/// A host's login breaks in the middle, again and again: what its workers had is copied from
/// another.
#[test]
fn a_lost_login_to_a_source_goes_on_at_another_host() {
    for how in ["--job @/job", IN_RANGES] {
        let scene = Scene::new();
        write_dataset(&scene.path("src"));
        let line = "spread far,far2:@/src/ @/dst --on local:1 --lease 2 --rate 2MB --json";
        let running = start(&scene, &format!("{line} {how}"));
        until("all is planned", || planned(&scene).is_some());
        match how == IN_RANGES {
            true => until("a range is under way", || is_range_staged(&scene)),
            false => until("the worker has a shard", || holder(&scene).is_some()),
        }
        lose_far_sides(&scene);
        let ended = running.end();
        assert_eq!(ended.code, 0, "{ended}");
        check_copied(&scene, 302);
    }
}

/// The host that walks the source is lost after it has told of some of it: another one walks, and
/// nothing is copied twice or left out.
#[test]
fn a_lost_walk_begins_anew() {
    let scene = Scene::new();
    fs::create_dir(scene.path("src")).unwrap();
    (0..2500).for_each(|number| write_file(&scene.path(format!("src/{number}")), number, 10));
    // The first that tells of entries ends after them.
    let lines = "[ \"$1\" = spread-far ] || exec $PROGRAM \"$@\"
        $PROGRAM \"$@\" | while IFS= read -r line; do
            printf '%s\\n' \"$line\"
            case \"$line\" in *'\"entries\"'*) mkdir AT/cut 2>/dev/null && exit;; esac
        done";
    scene.far_script(&lines.replace("AT", &scene.path("").display().to_string()));
    let ended = ran(&scene, "spread far,far2:@/src/ @/dst --on local:2 --job @/job");
    assert_eq!(ended.code, 0, "{ended}");
    assert!(scene.path("cut").exists());
    assert!(ended.stderr.contains("the walk of the source begins anew"), "{ended}");
    assert!(ended.stdout_text().contains("2500 files"), "{ended}");
    check_copied(&scene, 2500);
}

/// Stopped, and continued when two planned files are gone and changed: one is named, the other is
/// copied as it is then.
#[test]
fn a_file_that_is_gone_is_named() {
    let scene = Scene::new();
    fs::create_dir(scene.path("src")).unwrap();
    (0..600).for_each(|number| write_file(&scene.path(format!("src/{number}")), number, 1000));
    let line = "spread far,far2:@/src/ @/dst --on local:1 --job @/job --rate 60kB --json";
    let running = start(&scene, line);
    until("all is planned", || planned(&scene).is_some());
    processes::send(running.pid(), Signal::INT);
    let ended = running.end();
    assert_eq!(ended.code, 130, "{ended}");
    let names = left_names(&scene);
    let [gone, changed] = [&names[0], &names[1]].map(|name| scene.path("src").join(name));
    fs::remove_file(&gone).unwrap();
    write_file(&changed, 7, 2000);
    let resumed = ran(&scene, "spread resume @/job");
    assert_eq!(resumed.code, 3, "{resumed}");
    let named = format!("/src/{}'", names[0]);
    assert!(resumed.stdout_text().contains(&named), "{resumed}");
    assert!(resumed.stdout_text().contains("1 failed"), "{resumed}");
    check_copied(&scene, 599);
}

/// Names of shards that nobody has begun with.
fn left_names(scene: &Scene) -> Vec<String> {
    let open = fs::read_dir(scene.path("job/open")).unwrap();
    let open = open.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let shard = |name: String| {
        let shard = name.strip_suffix(".0")?.to_string();
        let text = fs::read_to_string(scene.path("job/shards").join(shard)).unwrap();
        let names = text.split_once('\n').unwrap().1.split_terminator('\0');
        Some(names.map(str::to_string).collect::<Vec<_>>())
    };
    open.filter_map(shard).flatten().collect()
}

/// A file that changes while it is read is named, with a code of its own; the others are complete.
#[test]
fn a_far_file_that_changes_is_named() {
    let scene = Scene::new();
    write_dataset(&scene.path("src"));
    write_file(&scene.path("src/changes"), 5, 64 << 20);
    let line = "spread far,far2:@/src/ @/dst --on local:1 --rate 4MB --job @/job";
    let running = start(&scene, line);
    until("the file is being copied", || {
        let staged = files_below(&scene.path("dst/.datapump-spread"));
        staged.iter().any(|path| path.metadata().is_ok_and(|file| file.len() == 64 << 20))
    });
    let late = fs::File::options().append(true).open(scene.path("src/changes")).unwrap();
    late.set_len(65 << 20).unwrap();
    let ended = running.end();
    assert_eq!(ended.code, 4, "{ended}");
    assert!(ended.stdout_text().contains("changes' changed while it was read"), "{ended}");
    assert!(!scene.path("dst/changes").exists() && scene.path("dst/f1/large-2").exists());
}

#[test]
fn what_far_sources_refuse_is_told() {
    let scene = Scene::new();
    write_dataset(&scene.path("src"));
    let none = ran(&scene, "spread refused:@/src/ @/dst --job @/job");
    let told = "no far host of the source can be used: cannot reach refused";
    assert!(none.code == 7 && none.stderr.contains(told), "{none}");
    let missing = ran(&scene, "spread far,far2:@/nothing @/dst --job @/job");
    assert!(missing.code == 1 && missing.stderr.contains("/nothing"), "{missing}");
    assert!(!scene.path("job").exists() && !scene.path("dst").exists(), "{missing}");
    // The first host refuses: it is named, and the other does all.
    let ended = ran(&scene, "spread refused,far2:@/src/ @/dst --on local:2 --job @/job");
    assert_eq!(ended.code, 0, "{ended}");
    assert!(ended.stderr.contains("the far host refused cannot be used now"), "{ended}");
    check_copied(&scene, 302);
    assert_eq!(logged_in(&scene), BTreeSet::from(["far2".to_string()]));
}
