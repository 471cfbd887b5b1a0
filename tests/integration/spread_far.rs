//! `datapump spread` to far hosts that all see the destination: real sshds on two ports.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use rustix::process::Signal;
use serde_json::Value;

use crate::support::data::{files_below, write_file};
use crate::support::far_spreads::{
    check_copied, holder, lose_far_sides, noted, ran, start, write_dataset,
};
use crate::support::mount::Mount;
use crate::support::{Scene, far, need_root, processes, run, until, until_some};

/// All is there, the receipt agrees when it is read at the far side, and nothing else is there.
fn check_done(scene: &Scene) {
    check_copied(scene, 302);
    let check = Command::new("b3sum")
        .args(["--check", "--quiet"])
        .arg(scene.path("job/receipt"))
        .current_dir(scene.path("dst"))
        .output()
        .unwrap();
    assert!(check.status.success(), "{}", String::from_utf8_lossy(&check.stderr));
}

#[test]
fn three_workers_to_two_far_hosts() {
    let scene = Scene::new();
    write_dataset(&scene.path("src"));
    let ended = ran(&scene, "spread @/src/ far,far2:@/dst --on local:3 --job @/job");
    assert_eq!(ended.code, 0, "{ended}");
    check_done(&scene);
    let logins = noted(&scene, "logs in");
    let host_of = |worker: &str| {
        let mut hosts = logins.iter().filter(|(who, _)| who.starts_with(worker));
        hosts.next().map(|(_, host)| host.as_str())
    };
    let hosts = ["local-1-", "local-2-", "local-3-"].map(host_of);
    assert_eq!(hosts, [Some("far"), Some("far2"), Some("far")], "{logins:?}");
    let report = scene.succeed("spread report @/job --json");
    let job = report.events().into_iter().find(|event| event["event"] == "job").unwrap();
    let routes = job["routes"].as_array().unwrap();
    let files: u64 = routes.iter().map(|route| route["files"].as_u64().unwrap()).sum();
    assert_eq!(files, 303, "{report}");
    let status = scene.succeed("spread status @/job");
    assert!(status.stdout_text().contains(" to far2: ended"), "{status}");
    assert!(ended.stdout_text().contains("job/receipt far:"), "how to verify it there\n{ended}");
    // What is kept of the job says nothing of how ssh logs in.
    let manifest = fs::read_to_string(scene.path("job/manifest.json")).unwrap();
    let manifest: Value = serde_json::from_str(&manifest).unwrap();
    assert_eq!(manifest["far"]["hosts"], serde_json::json!(["far", "far2"]));
    assert_eq!(manifest["far"].as_object().unwrap().len(), 3, "{manifest}");
    let again = ran(&scene, "spread @/src/ far2:@/dst --job @/again --skip-unchanged");
    assert!(again.code == 0 && again.stdout_text().contains("303 kept"), "{again}");
}

/// The coordinator and each worker log in once, whatever there is to copy and to ask. This command
/// is not named ssh, so that no data port is known, and the same login carries the data.
#[test]
fn each_worker_logs_in_once() {
    let scene = Scene::new();
    for number in 0..4500 {
        let folder = scene.path(format!("src/f{}", number % 7));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(number.to_string()), number.to_string()).unwrap();
    }
    let (script, logins) = (scene.path("counted"), scene.path("logins"));
    let ssh = far::ssh_command_to_hosts(&scene.path(""));
    let lines = format!("echo login >> {}\nexec {ssh} \"$@\"\n", logins.display());
    fs::write(&script, lines).unwrap();
    let line = "spread @/src/ far:@/dst --on local:2 --job @/job --remote-datapump";
    let mut words = scene.words(line);
    words.extend([scene.far_program().into(), "--ssh".into()]);
    words.push(format!("/bin/sh {}", script.display()).into());
    let ended = run::to_end(scene.command(&words), b"");
    assert_eq!(ended.code, 0, "{ended}");
    check_copied(&scene, 4500);
    let shards = fs::read_dir(scene.path("job/done")).unwrap().count();
    let logins = fs::read_to_string(logins).unwrap().lines().count();
    assert!(shards == 3 && logins == 3, "{shards} shards by {logins} logins");
    // Nothing is known of the path here but that all workers share it.
    assert!(ended.stderr.contains("  use copy: it takes "), "{ended}");
    assert!(ended.stderr.contains("no copy to or from the far host is recorded"), "{ended}");
}

/// A worker is killed while it holds a shard: another takes it over, and the folders of what it had
/// are gone in the end.
#[test]
fn a_killed_worker_is_replaced() {
    for how in ["--job @/job", IN_RANGES] {
        let scene = Scene::new();
        write_dataset(&scene.path("src"));
        let line = "spread @/src/ far,far2:@/dst --on local:3 --lease 1 --rate 6MB --json";
        let running = start(&scene, &format!("{line} {how}"));
        let pid = until_some("a worker has a shard", || holder(&scene));
        processes::send(pid, Signal::KILL);
        let ended = running.end();
        assert_eq!(ended.code, 0, "{ended}");
        check_done(&scene);
        let text = fs::read_to_string(scene.path("job/events/coordinator")).unwrap();
        assert!(text.contains("signal 9"), "{text}");
    }
}

/// The coordinator is stopped, and another goes on; then `cancel --forget` leaves nothing.
#[test]
fn a_stopped_job_goes_on_at_far_hosts() {
    let scene = Scene::new();
    write_dataset(&scene.path("src"));
    let line = "spread @/src/ far,far2:@/dst --on local:2 --job @/job --lease 2 --rate 1MB --json";
    let running = start(&scene, line);
    until("a worker has a shard", || holder(&scene).is_some());
    processes::send(running.pid(), Signal::INT);
    let ended = running.end();
    assert_eq!(ended.code, 130, "{ended}");
    assert!(scene.path("dst/.datapump-spread").exists(), "the job has its destination still");
    let other = ran(&scene, "spread @/src/ far2:@/dst --job @/other");
    assert!(other.code == 2 && other.stderr.contains("another spread has"), "{other}");
    assert!(!scene.path("other").exists(), "what was refused leaves nothing\n{other}");
    // A host that sees another folder under the path is of no use.
    let token = until_some("the job's token is there", || {
        files_below(&scene.path("dst")).into_iter().find(|path| path.ends_with("token"))
    });
    let kept = fs::read(&token).unwrap();
    fs::write(&token, "another").unwrap();
    let worker = ran(&scene, "spread work @/job --worker w");
    assert!(worker.code == 2 && worker.stderr.contains("is not that of the job"), "{worker}");
    fs::write(&token, kept).unwrap();
    let resumed = ran(&scene, "spread resume @/job");
    assert_eq!(resumed.code, 0, "{resumed}");
    check_done(&scene);
    let over = ran(&scene, "spread resume @/job");
    let is_done = over.stdout_text().contains("done already, nothing to do");
    assert!(over.code == 0 && is_done, "{over}");
    // So slow that it is stopped before it is done, however late that is.
    let second = line.replace("@/job", "@/second").replace("@/dst", "@/dst2");
    let running = start(&scene, &second.replace("--rate 1MB", "--rate 50kB"));
    until("a worker has a shard", || {
        fs::read_dir(scene.path("second/claims")).is_ok_and(|mut claims| claims.next().is_some())
    });
    processes::send(running.pid(), Signal::INT);
    let ended = running.end();
    assert_eq!(ended.code, 130, "{ended}");
    let forgotten = ran(&scene, "spread cancel @/second --forget");
    assert_eq!(forgotten.code, 0, "{forgotten}");
    assert!(!scene.path("dst2/.datapump-spread").exists(), "{forgotten}");
    let status = scene.succeed("spread status @/second").stdout_text();
    assert!(status.contains("it was given up"), "{status}");
}

/// One far host refuses: it is named, and the others do all.
#[test]
fn a_host_that_refuses_costs_a_retry() {
    let scene = Scene::new();
    write_dataset(&scene.path("src"));
    let ended = ran(&scene, "spread @/src/ refused,far2:@/dst --on local:2 --job @/job");
    assert_eq!(ended.code, 0, "{ended}");
    assert!(ended.stderr.contains("the far host refused cannot be used now"), "{ended}");
    check_done(&scene);
    let left = noted(&scene, "leaves");
    assert!(left.iter().any(|(_, why)| why.starts_with("refused: cannot reach")), "{left:?}");
    let used: BTreeSet<String> =
        noted(&scene, "logs in").into_iter().map(|(_, host)| host).collect();
    assert_eq!(used, BTreeSet::from(["far2".to_string()]));
}

/// A host's login breaks in the middle, again and again: what its workers had goes on elsewhere.
#[test]
fn a_lost_login_goes_on_at_another_host() {
    for how in ["--job @/job", IN_RANGES] {
        let scene = Scene::new();
        write_dataset(&scene.path("src"));
        let line = "spread @/src/ far,far2:@/dst --on local:1 --lease 2 --rate 4MB --json";
        let running = start(&scene, &format!("{line} {how}"));
        until("the worker has a shard", || holder(&scene).is_some());
        lose_far_sides(&scene);
        let ended = running.end();
        assert_eq!(ended.code, 0, "{ended}");
        check_done(&scene);
    }
}

#[test]
fn what_far_hosts_refuse_is_told() {
    let scene = Scene::new();
    write_dataset(&scene.path("src"));
    let none = ran(&scene, "spread @/src/ refused:@/dst --job @/job");
    let told = "no far host of the destination can be used: cannot reach refused";
    assert!(none.code == 7 && none.stderr.contains(told), "{none}");
    assert!(!scene.path("job").exists(), "nothing was begun\n{none}");
    // A file that is there is kept and named.
    fs::create_dir_all(scene.path("dst/f0")).unwrap();
    fs::write(scene.path("dst/f0/file 0"), "mine").unwrap();
    let kept = ran(&scene, "spread @/src/ far:@/dst --on local:2 --job @/job");
    assert_eq!(kept.code, 3, "{kept}");
    assert!(kept.stdout_text().contains("/dst/f0/file 0' exists: it is kept"), "{kept}");
    assert_eq!(fs::read(scene.path("dst/f0/file 0")).unwrap(), b"mine");
    let planned = ran(&scene, "spread -n @/src/ far,far2:@/new --on local:2");
    assert!(planned.stdout_text().contains("plan: 303 files"), "{planned}");
    assert!(!scene.path("new").exists());
    // A host without the program: named, with what to do, before anything is made.
    let mut words =
        scene.words("spread @/src/ far:@/new --job @/none --remote-datapump /nowhere/x");
    words.extend(["--ssh".into(), far::ssh_command().into()]);
    let lacks = run::to_end(scene.command(&words), b"");
    assert!(lacks.code == 8 && lacks.stderr.contains("there is no datapump at far"), "{lacks}");
    assert!(!scene.path("none").exists() && !scene.path("new").exists(), "{lacks}");
    let both = ran(&scene, "spread far:@/src far2:@/new --job @/none");
    assert!(both.code == 2 && both.stderr.contains("at one of the two sites"), "{both}");
}

/// Ctrl-C while the job folder is made: it is told what was made, and that can go on.
#[test]
fn a_job_that_is_stopped_before_it_begins_is_told_of() {
    let scene = Scene::new();
    write_dataset(&scene.path("src"));
    // The second login waits: by then the job folder is there, and no worker.
    let held = "mkdir AT/first 2>/dev/null ||\n\
                while [ ! -e AT/go ]; do touch AT/held; sleep 0.1; done\n\
                exec SSH \"$@\"";
    let held = held.replace("AT", &scene.path("").display().to_string());
    let held = held.replace("SSH", &far::ssh_command_to_hosts(&scene.path("")));
    let mut words = scene.words("spread @/src/ far,far2:@/dst --on local:2 --job @/job --json");
    words.extend(["--remote-datapump".into(), scene.far_program().into()]);
    words.extend(["--ssh".into(), scene.script("held-ssh", &held).into()]);
    let mut running = run::start(scene.command(&words));
    until("the second far host is asked", || scene.path("held").exists());
    processes::send(running.pid(), Signal::INT);
    running.wait_for("warning");
    fs::write(scene.path("go"), "").unwrap();
    let ended = running.end();
    assert_eq!(ended.code, 130, "{ended}");
    let told = format!("{ended}");
    let job = scene.path("job").display().to_string();
    let stopped = format!("stopped before a worker was started: 'datapump spread resume {job}'");
    assert!(told.contains(&stopped), "{told}");
    assert_eq!(fs::read_dir(scene.path("job/workers")).unwrap().count(), 0, "{told}");
    let resumed = ran(&scene, "spread resume @/job");
    assert_eq!(resumed.code, 0, "{resumed}");
    check_done(&scene);
}

/// The far disk has room for the ranges of a file, and none to put them together: it is told where,
/// nothing runs for ever, and with room the job goes on.
#[test]
fn a_far_disk_that_is_full_is_told() {
    need_root("a small tmpfs is mounted");
    let scene = Scene::new();
    let room = Mount::small(&scene.path("dst"));
    fs::create_dir(scene.path("src")).unwrap();
    write_file(&scene.path("src/large-1"), 1, 2_500_000);
    let ended = ran(&scene, "spread @/src/ far:@/dst --on local:1 --job @/job --split-above 1M");
    assert_eq!(ended.code, 5, "{ended}");
    assert!(ended.stderr.contains("local-1 ended with code 5 (far: cannot write "), "{ended}");
    assert!(!scene.path("dst/large-1").exists(), "{ended}");
    room.again("size=64m");
    let resumed = ran(&scene, "spread resume @/job");
    assert_eq!(resumed.code, 0, "{resumed}");
    check_copied(&scene, 1);
}

/// Ranges of large files are put together at the far side.
#[test]
fn large_files_go_in_ranges() {
    let scene = Scene::new();
    write_dataset(&scene.path("src"));
    let ended = ran(&scene, &format!("spread @/src/ far,far2:@/dst --on local:2 {IN_RANGES}"));
    assert_eq!(ended.code, 0, "{ended}");
    check_done(&scene);
    let receipts = files_below(&scene.path("job/receipts"));
    assert!(receipts.len() > 2 * 8, "ranges of at most 1 MiB: {receipts:?}");
    // A file that changes after it was planned is named.
    fs::write(scene.path("src/large-1"), vec![1; 20 << 20]).unwrap();
    let line = format!("spread @/src/ far:@/new --on local:1 {IN_RANGES} --rate 3MB");
    let running = start(&scene, &line.replace("@/job", "@/other"));
    until("a range is copied", || {
        fs::read_dir(scene.path("other/done")).is_ok_and(|mut done| done.next().is_some())
    });
    let late = fs::File::options().append(true).open(scene.path("src/large-1")).unwrap();
    late.set_len(21 << 20).unwrap();
    let ended = running.end();
    assert_eq!(ended.code, 4, "{ended}");
    assert!(ended.stdout_text().contains("large-1' changed after it was planned"), "{ended}");
    assert!(!scene.path("new/large-1").exists() && scene.path("new/f1/large-2").exists());
}

const IN_RANGES: &str = "--job @/job --split-above 1M";
