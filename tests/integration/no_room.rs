//! Destinations that fill up or fail, and sources that change. An incomplete file has no final
//! name, the exit code says what to do, and the same command resumes.

use crate::support;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::data::{self, assert_same, write_file};
use crate::support::mount::Mount;
use crate::support::run::{self, Ran};
use crate::support::{Scene, each, need, need_root};

const MIB: u64 = 1 << 20;
const TOTAL_BYTES: u64 = 8 * MIB;

/// Another process fills the disk when this share of the bytes has arrived.
#[test]
fn full_on_the_way() {
    need_root("a small tmpfs is mounted");
    let shares = [0.01, 0.5, 0.99];
    let ways = [("", ""), ("", "far:"), ("far:", "")];
    let cases = ways.iter().flat_map(|way| shares.iter().map(move |share| (way, share)));
    let cases = cases.flat_map(|(way, share)| ["one", "many"].map(|load| (load, way, share)));
    each(cases, |(load, (from, to), share)| {
        let scene = Scene::new();
        lay(&scene, load);
        let room = Mount::tmpfs(&scene.path("room"), "size=20m");
        fs::create_dir(scene.path("room/dst")).unwrap();
        let line = format!("copy -r --rate 160Mbit {from}@/src/ {to}@/room/dst");
        let running = run::start(scene.command(&scene.words(&line)));
        let due = (TOTAL_BYTES as f64 * **share) as u64;
        support::until(&line, || stored_bytes(&scene.path("room/dst")) >= due);
        fill(&scene.path("room/ballast"));
        let ran = running.end();
        // What was under way may just have fitted at the very end.
        if ran.code == 0 {
            return assert_same(&scene.path("src"), &scene.path("room/dst"));
        }
        check_no_room(&ran, &line);
        assert!(!ran.stderr.contains("trying again"), "{line}: it is no use\n{ran}");
        check_whole_names(&scene);
        fs::remove_file(scene.path("room/ballast")).unwrap();
        goes_on(&scene, &line);
        drop(room);
    });
}

/// If another file system is mounted below the destination, its files need room there.
#[test]
fn room_below_a_mount() {
    need_root("small tmpfs are mounted");
    let ways = [("", ""), ("", "far:"), ("far:", "")];
    let rooms = [("4m", "40m"), ("40m", "4m")];
    let cases = ways.iter().flat_map(|way| rooms.iter().map(move |sizes| (way, sizes)));
    each(cases, |((from, to), (outer, inner))| {
        let scene = Scene::new();
        fs::create_dir_all(scene.path("src/below")).unwrap();
        (0..4).for_each(|i| write_file(&scene.path(format!("src/below/{i}")), i, 2 << 20));
        (0..40).for_each(|i| write_file(&scene.path(format!("src/below/s{i}")), i, 3000));
        let room = Mount::tmpfs(&scene.path("room"), &format!("size={outer}"));
        let below = Mount::tmpfs(&scene.path("room/dst/below"), &format!("size={inner}"));
        let line = format!("copy -r {from}@/src/ {to}@/room/dst");
        let dry = scene.run(&line.replace("copy", "copy -n"));
        let ran = scene.run(&line);
        assert_eq!(dry.code, ran.code, "{line}\n{dry}\n{ran}");
        if *inner == "40m" {
            assert_eq!(ran.code, 0, "{line}\n{ran}");
        } else {
            check_no_room(&ran, &line);
            assert!(ran.stderr.contains("has no room"), "{line}\n{ran}");
            assert!(ran.stderr.contains("below"), "it does not say where: {line}\n{ran}");
            below.again("size=40m");
            goes_on(&scene, &line);
        }
        assert_same(&scene.path("src"), &scene.path("room/dst"));
        drop(below);
        drop(room);
    });
}

/// There are no inodes left, although there is room for bytes.
#[test]
fn no_inodes() {
    need_root("a small tmpfs is mounted");
    each(["", "far:"], |to| {
        let scene = Scene::new();
        fs::create_dir(scene.path("src")).unwrap();
        (0..300).for_each(|i| write_file(&scene.path(format!("src/{i}")), i, 3000));
        let room = Mount::tmpfs(&scene.path("room"), "nr_inodes=150");
        fs::create_dir(scene.path("room/dst")).unwrap();
        let line = format!("copy -r @/src/ {to}@/room/dst");
        check_no_room(&scene.run(&line), &line);
        check_whole_names(&scene);
        room.again("nr_inodes=1000");
        goes_on(&scene, &line);
    });
}

/// Of a sparse file only the data needs room: too much is refused before anything is written, and
/// what fits is copied, also after an interruption.
#[test]
fn holes_need_no_room() {
    need_root("a small tmpfs is mounted");
    let cases = [("", ""), ("", "far:"), ("far:", "")];
    each(cases, |(from, to)| {
        let scene = Scene::new();
        let _room = Mount::tmpfs(&scene.path("room"), "size=20m");
        for (data_mib, fits) in [(30, false), (12, true)] {
            let path = scene.path(format!("in-{data_mib}"));
            let file = fs::File::create(&path).unwrap();
            for (seed, mib) in (0..data_mib).enumerate() {
                let bytes = data::bytes(seed as u64, MIB as usize);
                file.write_all_at(&bytes, mib * 9 * MIB + 4096).unwrap();
            }
            let dst = format!("room/dst-{data_mib}");
            fs::create_dir(scene.path(&dst)).unwrap();
            let line = |options: &str| {
                format!("copy --request-size 128K {options} {from}@/in-{data_mib} {to}@/{dst}/out")
            };
            let dry = scene.run(&line("-n"));
            assert_eq!(dry.code, if fits { 0 } else { 5 }, "{dry}");
            assert_eq!(dry.stdout_text().contains("are missing"), !fits, "{dry}");
            if !fits {
                let ran = scene.run(&line(""));
                assert_eq!(ran.code, 5, "{ran}");
                assert!(ran.stderr.contains("has no room"), "{ran}");
                scene.assert_holds(&dst, &[]);
                continue;
            }
            let running = run::start(scene.command(&scene.words(&line("--rate 2MB"))));
            data::wait_for_flush(&scene.path(&dst));
            let pid = rustix::process::Pid::from_raw(running.pid()).unwrap();
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
            running.end();
            // What is here already needs no room again.
            scene.succeed(&line("-n"));
            let ran = scene.succeed(&line("--json"));
            let resumed = &ran.events().pop().unwrap()["record"]["moved"]["resumed_bytes"];
            assert!(resumed.as_u64().unwrap() > 0, "it began anew\n{ran}");
            assert_same(&path, &scene.path(&dst).join("out"));
        }
    });
}

/// A destination that is read-only.
#[test]
fn read_only() {
    need_root("a folder is mounted again");
    each(["", "far:"], |to| {
        let scene = Scene::new();
        lay(&scene, "many");
        let room = Mount::tmpfs(&scene.path("room"), "size=20m");
        fs::create_dir(scene.path("room/dst")).unwrap();
        room.again("ro");
        let line = format!("copy -r @/src/ {to}@/room/dst");
        let ran = scene.run(&line);
        assert_eq!(ran.code, 5, "{line}\n{ran}");
        assert!(ran.stderr.to_lowercase().contains("read-only"), "{line}\n{ran}");
        scene.assert_holds("room/dst", &[]);
        room.again("rw");
        goes_on(&scene, &line);
    });
}

/// A disk that fails only when it is synced: a loop device whose own file cannot grow.
#[test]
fn a_disk_that_fails() {
    need_root("a loop device is mounted");
    each(["", "far:"], |to| {
        let scene = Scene::new();
        lay(&scene, "many");
        let _small = Mount::tmpfs(&scene.path("small"), "size=6m");
        let image = scene.path("small/image");
        fs::File::create(&image).unwrap().set_len(64 * MIB).unwrap();
        let mut make = Command::new(need("mkfs.ext4", "e2fsprogs"));
        let made = make.args(["-q", "-O", "^has_journal", "-E", "nodiscard"]).arg(&image).status();
        assert!(made.unwrap().success(), "no file system can be made");
        let _room = Mount::new(&scene.path("room"), &["-o", "loop"], &image);
        let _ = fs::create_dir(scene.path("room/dst"));
        let line = format!("copy -r @/src/ {to}@/room/dst");
        let ran = scene.run(&line);
        assert_ne!(ran.code, 0, "{line}\n{ran}");
        assert!(!ran.stderr.contains("panicked"), "{line}\n{ran}");
        println!("{line}: exit code {}: {}", ran.code, ran.stderr);
        check_whole_names(&scene);
    });
}

/// The user's quota is used up.
#[test]
fn quota() {
    need_root("a file system with quota is mounted");
    let scene = Scene::new();
    lay(&scene, "many");
    let image = scene.path("image");
    fs::File::create(&image).unwrap().set_len(64 * MIB).unwrap();
    let mut make = Command::new(need("mkfs.ext4", "e2fsprogs"));
    let made = make.args(["-q", "-O", "quota", "-E", "quotatype=usrquota"]).arg(&image).status();
    assert!(made.unwrap().success(), "no file system can be made");
    let Ok(_room) = Mount::attempt(&scene.path("room"), &["-o", "loop"], &image) else {
        println!("this kernel has no disk quota (CONFIG_QFMT_V2): EDQUOT was not tried");
        return;
    };
    fs::create_dir(scene.path("room/dst")).unwrap();
    fs::set_permissions(scene.path("room/dst"), fs::Permissions::from_mode(0o777)).unwrap();
    let set = |kib: &str| {
        let mut set = Command::new(need("setquota", "quota"));
        let set = set.args(["-u", "nobody", kib, kib, "0", "0"]).arg(scene.path("room")).status();
        assert!(set.unwrap().success(), "no quota can be set");
    };
    set("3000");
    let program = scene.program_for_all();
    let copy = || {
        let mut command = Command::new(need("setpriv", "util-linux"));
        command.args(["--reuid", "nobody", "--clear-groups"]).arg(&program);
        command.args(["copy", "-r"]);
        command.arg(format!("{}/", scene.path("src").display())).arg(scene.path("room/dst"));
        run::to_end(command, b"")
    };
    let ran = copy();
    assert_eq!(ran.code, 5, "{ran}");
    check_whole_names(&scene);
    set("30000");
    let ran = copy();
    assert_eq!(ran.code, 0, "{ran}");
    assert_same(&scene.path("src"), &scene.path("room/dst"));
}

/// A change of a file while it is copied.
type Change = (&'static str, fn(&Path));

/// Files that shrink, grow, change or disappear while they are copied do not stop the others.
#[test]
fn sources_that_change() {
    let changes: [Change; 4] = [
        ("shrinks", |path| fs::File::options().write(true).open(path).unwrap().set_len(5).unwrap()),
        ("grows", |path| {
            let mut file = fs::File::options().append(true).open(path).unwrap();
            file.write_all(&[7; 100_000]).unwrap();
        }),
        ("is written", |path| {
            let file = fs::File::options().write(true).open(path).unwrap();
            std::os::unix::fs::FileExt::write_all_at(&file, b"changed", 5 * MIB).unwrap();
        }),
        ("goes away", |path| fs::remove_file(path).unwrap()),
    ];
    let ways = [("", ""), ("", "far:"), ("far:", "")];
    let cases = changes.iter().flat_map(|change| ways.iter().map(move |way| (change, way)));
    each(
        cases.map(|((name, change), way)| (*name, *change, *way)),
        |(name, change, (from, to))| {
            let scene = Scene::new();
            fs::create_dir_all(scene.path("src")).unwrap();
            fs::create_dir_all(scene.path("room/dst")).unwrap();
            write_file(&scene.path("src/big"), 1, TOTAL_BYTES as usize);
            (0..20).for_each(|i| write_file(&scene.path(format!("src/s{i}")), i, 3000));
            let line = format!("copy -r --rate 64Mbit --fsync off {from}@/src/ {to}@/room/dst");
            let running = run::start(scene.command(&scene.words(&line)));
            support::until(&line, || stored_bytes(&scene.path("room/dst")) >= MIB);
            change(&scene.path("src/big"));
            let ran = running.end();
            // A file that is only unlinked can still be read to its end.
            let may = if *name == "goes away" { vec![0, 1, 3, 4] } else { vec![3, 4] };
            assert!(may.contains(&ran.code), "{name}: {line}\n{ran}");
            if ran.code != 0 {
                assert!(ran.stderr.contains("big"), "{name}: {line}\n{ran}");
                assert!(!scene.path("room/dst/big").exists(), "{name}: {line}\n{ran}");
            }
            for i in 0..20 {
                assert_same(
                    &scene.path(format!("src/s{i}")),
                    &scene.path(format!("room/dst/s{i}")),
                );
            }
            if scene.path("src/big").exists() {
                goes_on(&scene, &line);
            }
        },
    );
}

/// One large file, or many that are of all sizes; 8 MiB either way.
fn lay(scene: &Scene, load: &str) {
    fs::create_dir(scene.path("src")).unwrap();
    match load {
        "one" => write_file(&scene.path("src/one"), 1, TOTAL_BYTES as usize),
        _ => (0..64).for_each(|i| {
            let len = [TOTAL_BYTES / 64 + 50_000, TOTAL_BYTES / 64 - 50_000][i as usize % 2];
            write_file(&scene.path(format!("src/{i}")), i, len as usize);
        }),
    }
}

fn check_no_room(ran: &Ran, line: &str) {
    assert_eq!(ran.code, 5, "{line}\n{ran}");
    let words = ran.stderr.to_lowercase();
    let says = ["missing", "space", "room", "inodes"].iter().any(|word| words.contains(word));
    assert!(says && !words.contains("panicked"), "{line}\n{ran}");
}

/// Every final name has the bytes of its source.
fn check_whole_names(scene: &Scene) {
    for path in data::files_below(&scene.path("room/dst")) {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if !name.starts_with(".datapump-") {
            assert_same(&scene.path("src").join(&name), &path);
        }
    }
}

/// The same command completes what is there, and leaves nothing of its own.
fn goes_on(scene: &Scene, line: &str) {
    let ran = scene.run(line);
    assert_eq!(ran.code, 0, "again: {line}\n{ran}");
    assert_same(&scene.path("src"), &scene.path("room/dst"));
}

fn stored_bytes(folder: &Path) -> u64 {
    let blocks = |path: &PathBuf| fs::symlink_metadata(path).map_or(0, |meta| meta.blocks());
    data::files_below(folder).iter().map(blocks).sum::<u64>() * 512
}

/// Takes all the room that there is.
fn fill(path: &Path) {
    let mut file = fs::File::create(path).unwrap();
    let mut len = 256 << 10;
    let block = vec![1; len];
    while len >= 512 {
        if file.write_all(&block[..len]).is_err() {
            len /= 2;
        }
    }
}
