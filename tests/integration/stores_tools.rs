//! What other tools write of a file's mode and time, and what they make of ours: each cell of the
//! table in the guide.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;

use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, utimensat};

use crate::support::file_systems;
use crate::support::gateway::{Gateway, with_credentials};
use crate::support::{Scene, need, need_root};

/// Names, modes, and times, the last two before 1970.
const FILES: [(&str, u32, (i64, i64)); 4] = [
    ("new", 0o600, (1_700_000_000, 123_456_789)),
    ("open", 0o666, (1_700_000_000, 0)),
    ("old", 0o640, (-2, 500_000_000)),
    ("odd", 0o755, (-2, 876_543_211)),
];

type Seen = Vec<(u32, (i64, i64))>;

fn make(folder: &Path) {
    fs::create_dir(folder).unwrap();
    for (name, mode, (tv_sec, tv_nsec)) in FILES {
        let path = folder.join(name);
        fs::write(&path, name).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        let time = Timespec { tv_sec, tv_nsec };
        let times = Timestamps { last_access: time, last_modification: time };
        utimensat(CWD, &path, &times, AtFlags::empty()).unwrap();
    }
}

/// Modes and times, in the order of the names above; the bytes are right.
fn seen(folder: &Path) -> Seen {
    let look = |(name, ..): (&str, u32, (i64, i64))| {
        let path = folder.join(name);
        assert_eq!(fs::read_to_string(&path).unwrap(), name);
        let found = fs::metadata(&path).unwrap();
        (found.mode() & 0o7777, (found.mtime(), found.mtime_nsec()))
    };
    FILES.map(look).to_vec()
}

fn all() -> Seen {
    FILES.map(|(_, mode, time)| (mode, time)).to_vec()
}

fn times(seen: &Seen) -> Vec<(i64, i64)> {
    seen.iter().map(|(_, time)| *time).collect()
}

#[test]
fn rclone_and_this_program_read_each_other() {
    let (gateway, scene) = (Gateway::new(), Scene::new());
    make(&scene.path("src"));
    let (local, back) = (scene.path("src"), scene.path("back"));
    let (local, back) = (local.to_str().unwrap(), back.to_str().unwrap());
    for (option, is_whole) in [("--metadata", true), ("--use-mmap", false)] {
        let place = format!("store:bucket/by{option}");
        assert_eq!(gateway.rclone(&["copy", option, local, &place]).code, 0);
        gateway.succeed(&scene, &format!("copy -r s3:/by{option}/ @/by{option}"));
        let found = seen(&scene.path(format!("by{option}")));
        assert_eq!(times(&found), times(&all()), "{option}");
        assert_eq!(found == all(), is_whole, "{option}");
    }
    gateway.succeed(&scene, "copy -r @/src/ s3:/ours");
    assert_eq!(gateway.rclone(&["copy", "store:bucket/ours", back]).code, 0);
    assert_eq!(times(&seen(&scene.path("back"))), times(&all()));
    // It reads decimal modes as octal numbers, where they are such.
    assert_eq!(gateway.rclone(&["copy", "-M", "store:bucket/ours", &format!("{back}-M")]).code, 0);
    let found = seen(&scene.path("back-M"));
    assert_eq!((found[0].0, times(&found)), (0o152, times(&all())));
}

#[test]
fn s3cmd_and_this_program_read_each_other() {
    let (gateway, scene) = (Gateway::new(), Scene::new());
    make(&scene.path("src"));
    let s3cmd = |words: &[&str]| {
        let mut command = Command::new(need("s3cmd", "s3cmd"));
        let host = format!("127.0.0.1:{}", gateway.port);
        let keys = ["--access_key=testkey", "--secret_key=testsecret123", "--region=us-east-1"];
        command.args(["-c", "/dev/null", "--no-ssl"]).args(keys).args(words);
        command.arg(format!("--host={host}")).arg(format!("--host-bucket={host}"));
        let ran = with_credentials(&mut command).current_dir(scene.path("src")).output().unwrap();
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    };
    let names = FILES.map(|(name, ..)| name);
    s3cmd(&[&["put"], &names[..], &["s3://bucket/s3cmd/"]].concat());
    gateway.succeed(&scene, "copy -r s3:/s3cmd/ @/back");
    // It writes whole seconds, rounded down.
    let told: Seen = FILES.map(|(_, mode, (seconds, _))| (mode, (seconds, 0))).to_vec();
    assert_eq!(seen(&scene.path("back")), told);
    gateway.succeed(&scene, "copy -r @/src/ s3:/ours");
    fs::create_dir(scene.path("fetched")).unwrap();
    let fetched = scene.path("fetched");
    s3cmd(&["get", "--recursive", "s3://bucket/ours/", fetched.to_str().unwrap()]);
    assert_ne!(times(&seen(&fetched)), times(&all()), "it reads times: correct the guide");
}

#[test]
fn s3fs_and_this_program_read_each_other() {
    need_root("s3fs is mounted");
    let (gateway, scene) = (Gateway::new(), Scene::new());
    make(&scene.path("src"));
    gateway.succeed(&scene, "copy -r @/src/ s3:/ours");
    let s3fs = file_systems::ALL.iter().find(|recipe| recipe.name == "s3fs").unwrap();
    let mounted = s3fs.mount_of(&scene, Some(&gateway));
    let theirs = mounted.at.join("theirs");
    let ours = seen(&mounted.at.join("ours"));
    let is_old = |index: usize| FILES[index].2.0 < 0;
    for (index, (found, expect)) in ours.iter().zip(all()).enumerate() {
        assert_eq!(found.0, expect.0);
        // It has no times before 1970.
        assert_eq!(found.1 == expect.1, !is_old(index), "{found:?}");
    }
    fs::create_dir(&theirs).unwrap();
    for (name, ..) in FILES {
        let to = theirs.join(name);
        let from = scene.path("src").join(name);
        assert!(Command::new("cp").arg("-p").args([from, to]).status().unwrap().success());
    }
    fs::create_dir(theirs.join("folder")).unwrap();
    drop(mounted);
    gateway.succeed(&scene, "copy -r s3:/theirs/ @/back");
    for (index, (found, expect)) in seen(&scene.path("back")).iter().zip(all()).enumerate() {
        assert_eq!((found.0, found.1 == expect.1), (expect.0, !is_old(index)), "{found:?}");
    }
    let folder = fs::metadata(scene.path("back/folder")).unwrap();
    assert_eq!(folder.mode() & 0o7777, 0o755, "it writes this mode in decimal, without the kind");
}
