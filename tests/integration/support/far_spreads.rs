//! `datapump spread` with an end on far hosts: real sshds on two ports.

use std::fs;
use std::path::Path;
use std::process::Command;

use rustix::process::Signal;
use serde_json::Value;

use super::data::{assert_same, write_file};
use super::run::{self, Ran, Running};
use super::{Scene, far, processes, until};

/// 300 small files in four folders, a link, and two files of 8 MiB.
pub(crate) fn write_dataset(root: &Path) {
    for number in 0..300 {
        let folder = root.join(format!("f{}", number % 4));
        fs::create_dir_all(&folder).unwrap();
        write_file(&folder.join(format!("file {number}")), number, 1000 + number as usize);
    }
    write_file(&root.join("large-1"), 1000, 8 << 20);
    write_file(&root.join("f1/large-2"), 1001, 8 << 20);
    std::os::unix::fs::symlink("f1/large-2", root.join("link")).unwrap();
}

fn command(scene: &Scene, line: &str) -> Command {
    let mut words = scene.words(line);
    words.extend(["--ssh".into(), far::ssh_command_to_hosts(&scene.path("")).into()]);
    if line.starts_with("spread ") && line.contains(":@/") {
        words.extend(["--remote-datapump".into(), scene.far_program().into()]);
    }
    scene.command(&words)
}

pub(crate) fn ran(scene: &Scene, line: &str) -> Ran {
    run::to_end(command(scene, line), b"")
}

pub(crate) fn start(scene: &Scene, line: &str) -> Running {
    run::start(command(scene, line))
}

/// What workers noted of this kind, with whose event it is.
pub(crate) fn noted(scene: &Scene, what: &str) -> Vec<(String, String)> {
    let events = fs::read_dir(scene.path("job/events")).into_iter().flatten();
    let texts = events.map(|entry| fs::read_to_string(entry.unwrap().path()).unwrap());
    let all: String = texts.collect();
    let lines = all.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let text = |line: &Value, key: &str| line[key].as_str().unwrap_or_default().to_string();
    lines.filter(|line| line["what"] == what).map(|l| (text(&l, "who"), text(&l, "why"))).collect()
}

/// Kills the far sides of workers, again and again, until one has left the host far.
pub(crate) fn lose_far_sides(scene: &Scene) {
    until("the far sides are lost", || {
        scene.far_processes().iter().for_each(|pid| processes::send(*pid, Signal::KILL));
        noted(scene, "leaves").iter().any(|(_, why)| why.starts_with("far: "))
    });
}

/// A worker that has a shard, by the id of its process.
pub(crate) fn holder(scene: &Scene) -> Option<i32> {
    let claims = fs::read_dir(scene.path("job/claims")).ok()?;
    let name = claims.flatten().next()?.file_name().into_string().ok()?;
    let worker = name.splitn(3, '.').nth(2)?.to_string();
    let beat = fs::read(scene.path("job/workers").join(worker)).ok()?;
    let beat: Value = serde_json::from_slice(&beat).ok()?;
    beat["pid"].as_i64().map(|pid| pid as i32).filter(|_| beat["code"].is_null())
}

/// All is there, the receipt has so many files and agrees with them, and nothing else is left.
pub(crate) fn check_copied(scene: &Scene, files: usize) {
    assert_same(&scene.path("src"), &scene.path("dst"));
    assert!(!scene.path("dst/.datapump-spread").exists(), "something is left");
    // Names need not be text.
    let receipt = fs::read(scene.path("job/receipt")).unwrap();
    let lines = receipt.iter().filter(|byte| **byte == b'\n').count();
    assert_eq!(lines, files, "a line for each file");
    scene.succeed("verify @/job/receipt @/dst");
}
