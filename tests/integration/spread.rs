//! `datapump spread`: workers on this host and over a real sshd, some killed, and coordinators too.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, UNIX_EPOCH};

use cluster::Manner;
use rustix::process::Signal;

use crate::support::data::{assert_same, files_below, write_file, write_odd_names, write_tree};
use crate::support::run::{self, Running};
use crate::support::{Scene, each, far, need, need_root, processes, until, until_some};

/// A tree of this many files of this size, in four folders.
fn write_many(root: &Path, count: u64, bytes: usize) {
    for number in 0..count {
        let folder = root.join(format!("f{}", number % 4));
        fs::create_dir_all(&folder).unwrap();
        write_file(&folder.join(format!("file {number}")), number, bytes);
    }
}

/// The destination is as the source, the receipt names every file once and agrees, and nothing of
/// the job is left at the destination.
fn check_done(scene: &Scene, source: &str, target: &str) {
    let (source, target) = (scene.path(source), scene.path(target));
    assert_same(&source, &target);
    assert!(!target.join(".datapump-spread").exists(), "something is left");
    let receipt = scene.path("job/receipt");
    let ran = scene.succeed(&format!("verify @/job/receipt {}", target.display()));
    let text = fs::read(&receipt).unwrap();
    let is_regular = |path: &std::path::PathBuf| fs::symlink_metadata(path).unwrap().is_file();
    let files = files_below(&source).iter().filter(|path| is_regular(path)).count();
    assert_eq!(text.iter().filter(|byte| **byte == b'\n').count(), files, "{ran}");
    // b3sum reads no names that are not UTF-8.
    if std::str::from_utf8(&text).is_err() {
        return;
    }
    let mut check = Command::new(need("b3sum", "b3sum"));
    let check = check.arg("--check").arg("--quiet").arg(&receipt).current_dir(&target);
    let said = check.output().unwrap();
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
}

/// The ids of running workers, from their beats.
fn workers(scene: &Scene) -> BTreeMap<String, i32> {
    let Ok(folder) = fs::read_dir(scene.path("job/workers")) else { return BTreeMap::new() };
    let beat = |entry: fs::DirEntry| {
        let name = entry.file_name().into_string().unwrap();
        let text = fs::read(entry.path()).ok()?;
        let beat: serde_json::Value = serde_json::from_slice(&text).ok()?;
        let pid = beat["pid"].as_i64()? as i32;
        (beat["code"].is_null() && !name.starts_with('.')).then_some((name, pid))
    };
    folder.map(Result::unwrap).filter_map(beat).collect()
}

/// Workers that have committed something, or have a shard.
fn busy(scene: &Scene) -> Vec<i32> {
    let claims = fs::read_dir(scene.path("job/claims")).into_iter().flatten();
    let claims: Vec<String> =
        claims.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    let holds = |name: &String| claims.iter().any(|claim| claim.ends_with(name.as_str()));
    workers(scene).into_iter().filter(|(name, _)| holds(name)).map(|(_, pid)| pid).collect()
}

fn start(scene: &Scene, line: &str) -> Running {
    run::start(scene.command(&scene.words(line)))
}

#[test]
fn a_tree_by_three_workers() {
    let scene = Scene::new();
    write_tree(&scene.path("src"));
    write_odd_names(&scene.path("src"));
    fs::set_permissions(scene.path("src/one"), fs::Permissions::from_mode(0o750)).unwrap();
    let ran = scene.succeed("spread @/src/ @/dst --on local:3 --job @/job");
    check_done(&scene, "src", "dst");
    let meta = |folder: &str| {
        let found = fs::metadata(scene.path(folder)).unwrap();
        (found.mode(), found.mtime(), found.mtime_nsec())
    };
    for folder in ["one", "one/two", "empty/inner", "one/two/small-3"] {
        assert_eq!(
            meta(&format!("src/{folder}")),
            meta(&format!("dst/{folder}")),
            "{folder}\n{ran}"
        );
    }
    let status = scene.succeed("spread status @/job");
    assert!(status.stdout_text().contains(": done"), "{status}");
    let report = scene.succeed("spread report @/job --json");
    let job = report.events().into_iter().find(|event| event["event"] == "job").unwrap();
    assert_eq!(job["workers"].as_array().unwrap().len(), 3, "{report}");
    assert_eq!(job["failed"], 0, "{report}");
}

#[test]
fn several_sources_have_their_names() {
    let scene = Scene::new();
    write_many(&scene.path("a"), 5, 100);
    write_many(&scene.path("b"), 5, 100);
    write_file(&scene.path("single"), 1, 1000);
    scene.succeed("spread @/a @/b/ @/single @/dst --on local --job @/job");
    assert_same(&scene.path("a"), &scene.path("dst/a"));
    assert_same(&scene.path("b/f1"), &scene.path("dst/f1"));
    assert_same(&scene.path("single"), &scene.path("dst/single"));
    scene.succeed("verify @/job/receipt @/dst");
}

#[test]
fn by_workers_over_ssh() {
    let scene = Scene::new();
    write_many(&scene.path("src"), 40, 5000);
    fs::write(scene.path("hosts"), "far # one\nfar\n").unwrap();
    let mut words = scene.words("spread @/src/ @/dst --job @/job --on");
    words.push(format!("ssh:{}", scene.path("hosts").display()).into());
    words.extend(["--ssh".into(), far::ssh_command().into()]);
    let ran = run::to_end(scene.command(&words), b"");
    assert_eq!(ran.code, 0, "{ran}");
    check_done(&scene, "src", "dst");
}

/// A worker is killed again and again while the job runs: others take what it had, and what was
/// committed is copied by nobody else.
#[test]
fn killed_workers_are_replaced() {
    let scene = Scene::new();
    write_many(&scene.path("src"), 160, 50_000);
    let line = "spread @/src/ @/dst --on local:3 --job @/job --lease 1 --rate 2MB --json";
    let running = start(&scene, line);
    let mut killed: Vec<i32> = Vec::new();
    for round in 0..4 {
        let pid = until_some("a worker has a shard", || {
            busy(&scene).into_iter().find(|pid| !killed.contains(pid))
        });
        processes::send(pid, Signal::KILL);
        killed.push(pid);
        until("its death is seen", || {
            fs::read_to_string(scene.path("job/events/coordinator"))
                .is_ok_and(|text| text.matches("signal 9").count() > round)
        });
    }
    let ran = running.end();
    assert_eq!(ran.code, 0, "{ran}");
    check_done(&scene, "src", "dst");
    // A name is noted twice only where its attempt was killed between the note and the link.
    let mut noted: BTreeMap<String, u32> = BTreeMap::new();
    for ledger in files_below(&scene.path("job/ledgers")) {
        for line in fs::read_to_string(ledger).unwrap().lines() {
            *noted.entry(line.to_string()).or_default() += 1;
        }
    }
    let twice = noted.values().filter(|count| **count > 1).count();
    assert!(twice <= 40, "{twice} of {} files were noted twice", noted.len());
}

/// Large files go in ranges by several workers, one of which is killed.
#[test]
fn a_large_file_goes_in_ranges() {
    let scene = Scene::new();
    fs::create_dir(scene.path("src")).unwrap();
    write_file(&scene.path("src/large"), 1, 9_000_001);
    write_file(&scene.path("src/other"), 2, 3_000_000);
    write_file(&scene.path("src/small"), 3, 5_000);
    fs::set_permissions(scene.path("src/large"), fs::Permissions::from_mode(0o640)).unwrap();
    let line = "spread @/src/ @/dst --on local:3 --job @/job --lease 1 --split-above 1M --json";
    let running = start(&scene, line);
    let pid = until_some("a worker has a shard", || busy(&scene).first().copied());
    processes::send(pid, Signal::KILL);
    let ran = running.end();
    assert_eq!(ran.code, 0, "{ran}");
    check_done(&scene, "src", "dst");
    let meta = |name: &str| {
        let found = fs::metadata(scene.path(name)).unwrap();
        (found.mode(), found.mtime(), found.mtime_nsec())
    };
    assert_eq!(meta("src/large"), meta("dst/large"));
    let shards = fs::read_dir(scene.path("job/shards")).unwrap().count();
    assert!(shards > 10, "{shards} shards");
}

/// A range is no file, and what puts ranges together moves no bytes a second time.
#[test]
fn workers_count_files_and_bytes_once() {
    let scene = Scene::new();
    fs::create_dir(scene.path("src")).unwrap();
    write_file(&scene.path("src/large"), 1, 4_000_001);
    write_file(&scene.path("src/small"), 2, 5_000);
    scene.succeed("spread @/src/ @/dst --on local:2 --job @/job --split-above 1M");
    let status = scene.succeed("spread status @/job --json");
    let job = status.events().into_iter().find(|event| event["event"] == "job").unwrap();
    let workers = job["workers"].as_array().unwrap();
    let sum = |key: &str| workers.iter().map(|one| one[key].as_u64().unwrap()).sum::<u64>();
    assert_eq!((sum("files"), sum("bytes")), (2, 4_005_001), "{status}");
    assert_eq!((&job["files"], &job["bytes"]), (&2.into(), &4_005_001.into()), "{status}");
}

/// The coordinator is asked to end, then killed: the workers go on, and another coordinator
/// finishes.
#[test]
fn a_killed_coordinator_is_replaced() {
    let scene = Scene::new();
    write_many(&scene.path("src"), 80, 50_000);
    let line = "spread @/src/ @/dst --on local:2 --job @/job --lease 1 --rate 400kB --json";
    let running = start(&scene, line);
    until("workers have shards", || busy(&scene).len() == 2);
    processes::send(running.pid(), Signal::TERM);
    let ran = running.end();
    assert!(ran.code == 130 && ran.stdout_text().contains("its workers go on"), "{ran}");
    assert!(!fs::read_to_string(scene.path("job/control.json")).unwrap().contains("true"));
    let mut running = start(&scene, "spread resume @/job --json");
    until("it coordinates", || {
        fs::read_to_string(scene.path("job/events/coordinator"))
            .is_ok_and(|text| text.matches("\"coordinates\"").count() == 2)
    });
    running.kill();
    running.end();
    let other = scene.run("spread @/src/ @/dst --job @/other");
    assert_eq!(other.code, 2, "two jobs have one destination\n{other}");
    assert!(other.stderr.contains("another spread has"), "{other}");
    assert!(!scene.path("other").exists(), "what was refused leaves nothing\n{other}");
    let ran = scene.run("spread resume @/job --json");
    assert_eq!(ran.code, 0, "{ran}");
    check_done(&scene, "src", "dst");
    let all = events(&scene);
    assert!(all.iter().all(|event| event["what"] != "is stopped"), "{all:?}");
    let again = scene.run("spread resume @/job");
    assert_eq!(again.code, 0, "a job that is over\n{again}");
    assert!(again.stdout_text().contains("done already, nothing to do"), "{again}");
}

/// Ctrl-C, `cancel`, and SIGTERM to a worker: nothing is held afterwards, and the job goes on.
#[test]
fn a_stopped_job_goes_on() {
    let scene = Scene::new();
    write_many(&scene.path("src"), 80, 50_000);
    let line = "spread @/src/ @/dst --on local:2 --job @/job --lease 2 --rate 2MB --json";
    let running = start(&scene, line);
    until("workers have shards", || busy(&scene).len() == 2);
    processes::send(running.pid(), Signal::INT);
    let ran = running.end();
    assert_eq!(ran.code, 130, "{ran}");
    assert_eq!(fs::read_dir(scene.path("job/claims")).unwrap().count(), 0, "something is held");
    assert!(workers(&scene).is_empty(), "a worker runs on");
    let running = start(&scene, "spread resume @/job --json");
    let pid = until_some("a worker has a shard", || busy(&scene).first().copied());
    processes::send(pid, Signal::TERM);
    until("the coordinator starts it again", || {
        fs::read_to_string(scene.path("job/events/coordinator"))
            .is_ok_and(|text| text.contains("ended with code 130"))
    });
    scene.succeed("spread cancel @/job");
    let ran = running.end();
    assert_eq!(ran.code, 130, "{ran}");
    scene.succeed("spread resume @/job");
    check_done(&scene, "src", "dst");
}

/// What fails for itself is named, and only that.
#[test]
fn files_that_fail_are_named() {
    let scene = Scene::new();
    write_many(&scene.path("src"), 20, 100);
    fs::create_dir_all(scene.path("dst/f0")).unwrap();
    fs::write(scene.path("dst/f0/file 0"), "mine").unwrap();
    let ran = scene.run("spread @/src/ @/dst --on local:2 --job @/job");
    assert_eq!(ran.code, 3, "{ran}");
    assert!(ran.stdout_text().contains("file 0' exists: it is kept"), "{ran}");
    assert!(ran.stderr.contains("1 file not copied; the others are complete"), "{ran}");
    let all = scene.run("spread @/src/ @/dst --on local:2 --job @/none");
    assert_eq!(all.code, 3, "{all}");
    assert_eq!(all.stdout_text().matches("exists: it is kept").count(), 10, "{all}");
    assert!(all.stdout_text().contains("and 10 more: all are in"), "{all}");
    assert!(!all.stderr.contains("the others"), "{all}");
    assert_eq!(fs::read(scene.path("dst/f0/file 0")).unwrap(), b"mine");
    fs::remove_file(scene.path("dst/f0/file 0")).unwrap();
    let ran = scene.succeed("spread @/src/ @/dst --on local:2 --job @/again --skip-unchanged");
    assert!(ran.stdout_text().contains("19 kept"), "{ran}");
    assert_same(&scene.path("src"), &scene.path("dst"));
}

/// As `copy` takes what is there: a link of the same target is kept, and a file is named, of which
/// nothing is copied, in ranges or not. --skip-unchanged keeps what links lead to, too.
#[test]
fn what_exists_is_as_copy_leaves_it() {
    let scene = Scene::new();
    for folder in ["src", "dst"] {
        fs::create_dir(scene.path(folder)).unwrap();
        symlink("small", scene.path(folder).join("link")).unwrap();
    }
    write_file(&scene.path("src/large"), 1, 3_000_001);
    write_file(&scene.path("src/small"), 2, 5_000);
    fs::write(scene.path("dst/large"), "mine").unwrap();
    let time = fs::File::options().write(true).open(scene.path("src/small")).unwrap();
    time.set_modified(UNIX_EPOCH + Duration::from_secs(1_000_000_000)).unwrap();
    let line = "spread @/src/ @/dst --on local:2 --split-above 1M";
    let ran = scene.run(&format!("{line} --job @/job"));
    assert_eq!(ran.code, 3, "{ran}");
    assert!(ran.stdout_text().contains("large' exists: it is kept"), "{ran}");
    assert!(ran.stderr.contains("1 file not copied"), "{ran}");
    assert!(ran.stdout_text().contains("1 kept"), "{ran}");
    assert_eq!(fs::read(scene.path("dst/large")).unwrap(), b"mine");
    let moved = |job: &str| {
        let status = scene.succeed(&format!("spread status @/{job} --json"));
        let job = status.events().into_iter().find(|event| event["event"] == "job").unwrap();
        job["bytes"].as_u64().unwrap()
    };
    assert_eq!(moved("job"), 5_000, "no range of what exists is copied");
    fs::remove_file(scene.path("dst/large")).unwrap();
    let line = format!("{line} --skip-unchanged");
    let ran = scene.succeed(&format!("{line} --job @/second"));
    assert!(ran.stdout_text().contains("2 kept"), "{ran}");
    let ran = scene.succeed(&format!("{line} --job @/third"));
    assert!(ran.stdout_text().contains("3 kept"), "{ran}");
    assert_eq!((moved("second"), moved("third")), (3_000_001, 0));
    assert_same(&scene.path("src"), &scene.path("dst"));
    let line = line.replace("@/dst", "@/followed") + " --links follow";
    scene.succeed(&format!("{line} --job @/fourth"));
    let ran = scene.succeed(&format!("{line} --job @/fifth"));
    assert!(ran.stdout_text().contains("3 kept"), "{ran}");
}

#[test]
fn bad_jobs_are_refused() {
    let scene = Scene::new();
    write_many(&scene.path("src"), 3, 100);
    fs::create_dir(scene.path("plain")).unwrap();
    scene.succeed("spread @/src/ @/dst --job @/job");
    fs::set_permissions(scene.path("job"), fs::Permissions::from_mode(0o777)).unwrap();
    let foreign = scene.run("spread status @/job");
    assert!(foreign.code == 2 && foreign.stderr.contains("may be written by others"), "{foreign}");
    fs::set_permissions(scene.path("job"), fs::Permissions::from_mode(0o700)).unwrap();
    let cases = [
        ("spread @/src/ @/src/f1 --job @/new", 2, "cannot be copied into itself"),
        ("spread @/src/ @/dst --job @/job", 2, "exists: name a new folder"),
        ("spread @/nothing @/dst2 --job @/new", 1, "cannot find"),
        ("spread other:a far:@/dst2", 2, "are both on far hosts"),
        ("spread @/src other:a @/dst2", 2, "make a job for each place"),
        ("spread null:4G @/dst2", 2, "is no file and no folder"),
        ("spread status @/plain", 2, "is no job folder"),
        ("spread status @/nowhere", 2, "there is no job folder"),
        ("spread work @/job --worker a.b", 2, "letters, digits and dashes"),
        ("spread @/src/ @/dst2 --on pbs", 2, "write local, local:N"),
        ("spread", 2, "spread needs a source and a destination"),
    ];
    each(cases, |(line, code, text)| {
        let ran = scene.run(line);
        assert!(ran.code == *code && ran.stderr.contains(text), "{ran}");
    });
    for command in ["resume", "cancel"] {
        let ran = scene.succeed(&format!("spread {command} @/job"));
        assert!(ran.stdout_text().contains("done already, nothing to do"), "{ran}");
    }
    let manifest = scene.path("job/manifest.json");
    let text = fs::read_to_string(&manifest).unwrap();
    let version = format!("\"{}\"", env!("CARGO_PKG_VERSION"));
    fs::write(&manifest, text.replace(&version, "\"0.0.1\"")).unwrap();
    let old = scene.run("spread resume @/job");
    assert!(old.code == 8 && old.stderr.contains("is of datapump 0.0.1"), "{old}");
}

/// A worker that sees another folder under the job's path, or another destination.
#[test]
fn a_folder_that_is_not_shared_is_seen() {
    let scene = Scene::new();
    write_many(&scene.path("src"), 40, 50_000);
    let line = "spread @/src/ @/dst --on local:1 --job @/job --lease 1 --rate 1MB --json";
    let mut running = start(&scene, line);
    until("a worker has a shard", || busy(&scene).len() == 1);
    running.kill();
    running.end();
    let pids: Vec<i32> = workers(&scene).into_values().collect();
    pids.iter().for_each(|pid| processes::send(*pid, Signal::KILL));
    let (from, to) = (scene.path("job"), scene.path("copy"));
    let copied = Command::new("cp").arg("-a").arg(from).arg(to).status().unwrap();
    assert!(copied.success());
    fs::write(scene.path("copy/token"), "another").unwrap();
    let ran = scene.run("spread work @/copy --worker w");
    assert!(ran.code == 2 && ran.stderr.contains("is not that of the job"), "{ran}");
}

/// A coordinator that was killed among the ranges of a large file has not planned what puts them
/// together: the file is planned again.
#[test]
fn a_file_that_is_planned_in_part_is_planned_again() {
    let scene = Scene::new();
    write_many(&scene.path("src"), 4, 1000);
    write_file(&scene.path("src/large"), 9, 4 << 20);
    // A worker copies one range, and then has nothing to spend for minutes.
    let line = "spread @/src/ @/dst --on local:1 --job @/job --split-above 1M --rate 2kB --json";
    let running = start(&scene, line);
    let read = |name: &str| -> serde_json::Value {
        let text = fs::read(scene.path("job").join(name)).unwrap_or_default();
        serde_json::from_slice(&text).unwrap_or_default()
    };
    until("all is planned", || !read("plan.json")["planned"].is_null());
    processes::send(running.pid(), Signal::INT);
    let ended = running.end();
    assert_eq!(ended.code, 130, "{ended}");
    for (name, key) in [("plan.json", "/planned"), ("manifest.json", "/copying/bytes_per_second")] {
        let mut value = read(name);
        *value.pointer_mut(key).unwrap() = serde_json::Value::Null;
        fs::write(scene.path("job").join(name), value.to_string()).unwrap();
    }
    let waiting = fs::read_dir(scene.path("job/waiting")).unwrap().next().unwrap().unwrap();
    let name = waiting.file_name().into_string().unwrap();
    fs::remove_file(scene.path("job/shards").join(name.split('.').next().unwrap())).unwrap();
    fs::remove_file(waiting.path()).unwrap();
    let resumed = scene.run("spread resume @/job");
    assert_eq!(resumed.code, 0, "{resumed}");
    check_done(&scene, "src", "dst");
}

/// Pieces of the job folder are lost: it is made again, and the job ends as it should.
#[test]
fn a_damaged_job_folder_is_made_again() {
    let scene = Scene::new();
    write_many(&scene.path("src"), 240, 20_000);
    let line = "spread @/src/ @/dst --on local:2 --job @/job --lease 1 --rate 1MB --json";
    let running = start(&scene, line);
    until("a shard is done", || {
        fs::read_dir(scene.path("job/done")).is_ok_and(|done| done.count() > 0)
    });
    processes::send(running.pid(), Signal::INT);
    assert_eq!(running.end().code, 130);
    let first = |part: &str| {
        let mut names = files_below(&scene.path(format!("job/{part}")));
        names.sort();
        names.into_iter().next().unwrap_or_else(|| panic!("nothing is in {part}"))
    };
    fs::remove_file(first("done")).unwrap();
    let lost = first("open");
    fs::write(first("shards"), "{").unwrap();
    fs::remove_file(lost).unwrap();
    fs::remove_dir_all(scene.path("job/claims")).unwrap();
    let ran = scene.run("spread resume @/job");
    assert_eq!(ran.code, 0, "{ran}");
    assert!(ran.stderr.contains("it is planned again"), "{ran}");
    assert_same(&scene.path("src"), &scene.path("dst"));
    scene.succeed("verify @/job/receipt @/dst");
}

/// A shard has given a part of itself away when its job is stopped and pieces of the folder are
/// lost: no file is lost or copied into two shards.
#[test]
fn a_damaged_job_with_parts_given_away_is_made_again() {
    let written_again = |scene: &Scene| {
        fs::write(scene.path("job/shards/16777216"), "{").unwrap();
        "shard 16777216 could not be read: it is written again"
    };
    check_damaged(&written_again);
    check_damaged(&|scene| {
        fs::write(scene.path("job/shards/0000000"), "{").unwrap();
        "shard 0 cannot be read: it is planned again"
    });
    check_damaged(&|scene| {
        fs::remove_dir_all(scene.path("job/given")).unwrap();
        "job/given' was missing"
    });
}

/// `damage` says what is told of it.
fn check_damaged(damage: &dyn Fn(&Scene) -> &'static str) {
    need_root("it mounts storage that one worker alone sees");
    let scene = Scene::new();
    write_many(&scene.path("src"), 60, 1000);
    let slow = SlowSource::new(&scene);
    fs::write(scene.path("hosts"), "slow\n").unwrap();
    let ssh = slow.ssh(&scene);
    let with_ssh = |line: &str| {
        let mut words = scene.words(line);
        words.extend(["--ssh".into(), ssh.clone().into()]);
        scene.command(&words)
    };
    let line = "spread @/src/ @/dst --job @/job --json --lease 2 --on ssh:";
    let hosts = scene.path("hosts");
    let running = run::start(with_ssh(&format!("{line}{}", hosts.display())));
    until("the slow worker has a shard", || busy(&scene).len() == 1);
    // As if another waited.
    fs::write(scene.path("job/idle/another"), "").unwrap();
    until("a part is open", || scene.path("job/open/16777216.0").exists());
    processes::send(running.pid(), Signal::INT);
    let control = scene.path("job/control.json");
    until("it is stopped", || {
        fs::read_to_string(&control).unwrap().contains("is_cancelled\": true")
    });
    // It ends by its first read that returns, before it could finish its shard in time.
    workers(&scene).into_values().for_each(|pid| processes::send(pid, Signal::KILL));
    slow.storage.heal();
    let stopped = running.end();
    assert_eq!(stopped.code, 130, "{stopped}");
    let told = damage(&scene);
    let ran = run::to_end(with_ssh("spread resume @/job"), b"");
    assert_eq!(ran.code, 0, "{ran}");
    assert!(ran.stderr.contains(told), "{told}\n{ran}");
    check_done(&scene, "src", "dst");
    let receipt = fs::read_to_string(scene.path("job/receipt")).unwrap();
    assert_eq!(receipt.lines().count(), 60, "each file once");
}

#[test]
fn a_dry_run_shows_the_plan() {
    let scene = Scene::new();
    write_many(&scene.path("src"), 200, 100);
    let ran = scene.succeed("spread -n @/src/ @/dst --on local:4");
    assert!(ran.stdout_text().contains("plan: 200 files"), "{ran}");
    assert!(ran.stdout_text().contains("predicted time by nodes: 1: "), "{ran}");
    assert!(ran.stdout_text().contains("most of it: the start of the workers"), "{ran}");
    fs::create_dir(scene.path("big")).unwrap();
    write_file(&scene.path("big/one"), 1, 20_000_000);
    let ran = scene.succeed("spread -n @/big/ @/dst --on local:2 --rate 2MB");
    assert!(ran.stdout_text().contains("in 1 shard\n"), "a file of 20 s stays whole\n{ran}");
    let ran = scene.succeed("spread -n @/big/ @/dst --on local:2 --rate 1MB");
    assert!(ran.stdout_text().contains("in 11 shards\n"), "ten ranges of 2 MiB\n{ran}");
    let ran = scene.succeed("spread -n @/src/ @/dst --on local:4 --rate 1kB");
    let limited = "1: 20.50 s, 2: 20.50 s, 4: 20.50 s, 8: 20.50 s\n  most of it: the limit of the";
    assert!(ran.stdout_text().contains(limited), "20 kB at 1 kB/s\n{ran}");
    assert!(!scene.path("dst").exists() && !Path::new("spread-1").exists());
    fs::create_dir_all(scene.path("there/src")).unwrap();
    fs::write(scene.path("there/src/one"), "another").unwrap();
    write_file(&scene.path("src/one"), 1, 10);
    for (options, fate) in
        [("", "named as not copied"), ("--skip-unchanged ", "the rest is kept too")]
    {
        let ran = scene.succeed(&format!("spread -n {options}@/src @/there --on local:1"));
        let told = "names that exist at the destination: 1; ";
        assert!(ran.stdout_text().contains(told) && ran.stdout_text().contains(fate), "{ran}");
    }
    let line = "spread --print-script @/src @/new --on slurm --workers 2 --job @/folder";
    let script = scene.succeed(line);
    let told = format!("# {} (--job names another)", scene.path("folder").display());
    assert!(script.stdout_text().contains(&told), "{script}");
}

/// A worker that cannot go on gives what it has not begun to one that waits; nothing is copied
/// twice, and nothing is lost.
#[test]
fn a_slow_worker_gives_its_rest_away() {
    need_root("it mounts storage that one worker alone sees");
    let scene = Scene::new();
    write_many(&scene.path("src"), 60, 1000);
    let slow = SlowSource::new(&scene);
    fs::write(scene.path("hosts"), "slow\nquick\n").unwrap();
    let mut words = scene.words("spread @/src/ @/dst --job @/job --json --lease 30 --on");
    words.push(format!("ssh:{}", scene.path("hosts").display()).into());
    words.extend(["--ssh".into(), slow.ssh(&scene).into()]);
    let running = run::start(scene.command(&words));
    until("the slow worker has a shard", || busy(&scene).len() == 1);
    fs::write(scene.path("go"), "").unwrap();
    let part = until_some("another has finished what it gave away", || {
        events(&scene).into_iter().find(|event| {
            event["what"] == "finishes" && event["shard"].as_u64().unwrap() >= 1 << 24
        })
    });
    slow.storage.heal();
    let ran = running.end();
    assert_eq!(ran.code, 0, "{ran}");
    check_done(&scene, "src", "dst");
    let events = events(&scene);
    let giver = events.iter().find(|event| event["what"] == "gives away").unwrap();
    assert_ne!(giver["who"], part["who"], "{events:?}");
    let is_giver = |event: &&serde_json::Value| event["who"] == giver["who"];
    assert!(events.iter().filter(is_giver).any(|event| event["what"] == "finishes"), "{events:?}");
    // Each file was noted by one attempt.
    let ledgers = files_below(&scene.path("job/ledgers"));
    let lines = |path| fs::read_to_string(path).unwrap().lines().count();
    assert_eq!(ledgers.into_iter().map(lines).sum::<usize>(), 60);
    let status = scene.succeed("spread status @/job --json");
    let job = status.events().into_iter().find(|event| event["event"] == "job").unwrap();
    assert_eq!((&job["files"], &job["shards"]), (&60.into(), &job["shards_done"]), "{status}");
}

fn events(scene: &Scene) -> Vec<serde_json::Value> {
    let folder = scene.path("job/events");
    let text = files_below(&folder).into_iter().map(|path| fs::read_to_string(path).unwrap());
    let lines: Vec<String> = text.collect();
    let whole = lines.iter().flat_map(|text| text.lines());
    whole.filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// A source whose files cannot be read by processes of one mount namespace.
struct SlowSource {
    storage: cluster::Storage,
    first: std::process::Child,
}

impl SlowSource {
    fn new(scene: &Scene) -> SlowSource {
        let mut command = Command::new(need("unshare", "util-linux"));
        command.args(["--mount", "--propagation", "private", "sh", "-c", "echo up; exec cat"]);
        let mut first = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut said = [0; 3];
        first.stdout.as_mut().unwrap().read_exact(&mut said).unwrap();
        let nothing = std::time::Duration::ZERO;
        let manner =
            Manner { caches_writes: false, remembers_names: nothing, write_takes: nothing };
        let pid = i32::try_from(first.id()).unwrap();
        let storage = cluster::Storage::mount(pid, &scene.path("src"), manner).unwrap();
        storage.hold_reads();
        SlowSource { storage, first }
    }

    /// What starts a worker on the host `slow` in that namespace, and on others once there is `go`.
    fn ssh(&self, scene: &Scene) -> std::path::PathBuf {
        let script = "\
            while [ \"$1\" = -o ]; do shift 2; done\n\
            host=$1; shift 2\n\
            [ $host != slow ] || exec nsenter --target PID --mount sh -c \"$1\"\n\
            while [ ! -e GO ]; do sleep 0.1; done\n\
            exec sh -c \"$1\"";
        let go = scene.path("go").display().to_string();
        scene.script("ssh", &script.replace("PID", &self.first.id().to_string()).replace("GO", &go))
    }
}

impl Drop for SlowSource {
    fn drop(&mut self) {
        // It ends with its input.
        drop(self.first.stdin.take());
        let _ = self.first.wait();
    }
}
