//! One exam for every file system: what it cannot do is told once, and all bytes arrive; a second
//! run finds nothing to do; what is broken off is resumed; no name is lost.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Signal;

use crate::support::data::{self, write_file};
use crate::support::file_systems::{self, Recipe};
use crate::support::run::{self, Ran};
use crate::support::{Scene, each_at_once, need, need_root, processes};

/// What a file system keeps of what it is given.
#[derive(Debug)]
struct Keeps {
    name: &'static str,
    /// Times are cut to this.
    time_step_ns: i128,
    modes: bool,
    second_names: bool,
    /// Two names of a file have one inode number.
    inodes: bool,
    symbolic_links: bool,
    /// Names that differ only in case are two.
    case: bool,
    /// It can be asked more than to take a tree.
    sound: bool,
    /// What is told of a copy of a tree: each has one of these words.
    told: &'static [&'static str],
}

const ALL_KEPT: Keeps = Keeps {
    name: "",
    time_step_ns: 1,
    modes: true,
    second_names: true,
    inodes: true,
    symbolic_links: true,
    case: true,
    sound: true,
    told: &[],
};

const NO_NEW_NAMES: &str = "is looked at before it is taken";
const NO_SECOND_NAMES: &str = "second names of files are files of their own";
const NO_MODES: &str = "permissions are not kept";

const ALL: &[Keeps] = &[
    Keeps { name: "ext4", ..ALL_KEPT },
    Keeps { name: "xfs", ..ALL_KEPT },
    Keeps { name: "btrfs", ..ALL_KEPT },
    Keeps { name: "tmpfs", ..ALL_KEPT },
    Keeps { name: "overlay", ..ALL_KEPT },
    Keeps {
        name: "exfat",
        time_step_ns: SECOND_NS,
        modes: false,
        second_names: false,
        inodes: false,
        symbolic_links: false,
        case: false,
        sound: true,
        told: &[NO_NEW_NAMES, NO_SECOND_NAMES],
    },
    Keeps {
        name: "fat",
        time_step_ns: 2 * SECOND_NS,
        modes: false,
        second_names: false,
        inodes: false,
        symbolic_links: false,
        case: false,
        // fusefat 0.1a, the only driver outside the kernel: it refuses or misplaces writes that are
        // not in order, and ends by itself where a file is replaced.
        sound: false,
        told: &[NO_NEW_NAMES, NO_SECOND_NAMES, NO_MODES],
    },
    Keeps { name: "ntfs", time_step_ns: 100, modes: false, ..ALL_KEPT },
    Keeps { name: "ntfs-without-case", time_step_ns: 100, modes: false, case: false, ..ALL_KEPT },
    Keeps { name: "sshfs", time_step_ns: SECOND_NS, inodes: false, ..ALL_KEPT },
    Keeps { name: "without-chmod", modes: false, told: &[NO_MODES], ..ALL_KEPT },
    Keeps { name: "all-of-nobody", ..ALL_KEPT },
    Keeps { name: "all-of-all", modes: false, ..ALL_KEPT },
    Keeps { name: "unionfs", inodes: false, ..ALL_KEPT },
    Keeps { name: "mergerfs", inodes: false, ..ALL_KEPT },
    Keeps {
        name: "s3fs",
        second_names: false,
        inodes: false,
        told: &[NO_NEW_NAMES, NO_SECOND_NAMES],
        ..ALL_KEPT
    },
    // It takes a file's bytes only in their order, and uploads what was removed while it was open.
    Keeps { name: "rclone-mount", sound: false, ..WITH_CACHE },
    WITH_CACHE,
];
const WITH_CACHE: Keeps = Keeps {
    name: "rclone-mount-with-cache",
    modes: false,
    second_names: false,
    inodes: false,
    symbolic_links: false,
    told: &[NO_NEW_NAMES, NO_SECOND_NAMES],
    ..ALL_KEPT
};
const SECOND_NS: i128 = 1_000_000_000;

#[test]
fn every_file_system_sits_the_exam() {
    need_root("file systems are mounted");
    assert_eq!(ALL.len(), file_systems::ALL.len(), "each is in both tables");
    each_at_once(ALL, |keeps| {
        let recipe = file_systems::ALL.iter().find(|recipe| recipe.name == keeps.name);
        sit(keeps, recipe.expect("each is in both tables"));
    });
}

fn sit(keeps: &Keeps, recipe: &Recipe) {
    if recipe.needs_fuse() && !Path::new("/dev/fuse").exists() {
        return println!("{}: this kernel has no FUSE, so it is not tried", keeps.name);
    }
    let scene = Scene::new();
    let mounted = recipe.mount(&scene);
    std::os::unix::fs::symlink(&mounted.at, scene.path("at")).unwrap();
    lay(&scene, keeps);
    // libfuse removes a name of an open file when that is closed, which may be after the folder has
    // got its time.
    let removes_later = recipe.needs_fuse() && keeps.second_names;
    all_arrives(&scene, keeps, removes_later);
    again_there_is_nothing_to_do(&scene, keeps);
    if !keeps.sound {
        return;
    }
    what_exists_is_not_replaced(&scene, keeps);
    what_is_broken_off_is_resumed(&scene, keeps);
    no_name_is_lost(&scene, keeps);
    a_mirror_keeps_a_name_of_other_case(&scene, keeps);
    // What this program keeps for itself is gone.
    let left = data::files_below(&mounted.at);
    let left: Vec<_> = left.iter().filter(|path| is_ours(path)).collect();
    assert!(left.is_empty(), "{}: {left:?}", keeps.name);
    links_are_made_or_named(&scene, keeps);
    a_spread_copies_or_refuses(&scene, keeps);
}

fn is_ours(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(".datapump-"))
}

/// A tree with a name of its own for each kind, and times that no coarse clock has.
fn lay(scene: &Scene, keeps: &Keeps) {
    fs::create_dir_all(scene.path("src/folder")).unwrap();
    write_file(&scene.path("src/one"), 1, 3000);
    write_file(&scene.path("src/folder/empty"), 2, 0);
    let requests = if keeps.sound { 9 } else { 0 };
    write_file(&scene.path("src/folder/long"), 3, (requests << 20) + 70_017);
    fs::hard_link(scene.path("src/one"), scene.path("src/two")).unwrap();
    let modes = [("src/one", 0o640), ("src/folder/long", 0o600), ("src/folder", 0o750)];
    for (name, mode) in modes {
        fs::set_permissions(scene.path(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    let names = ["src/one", "src/folder/empty", "src/folder/long", "src/folder"];
    for (number, name) in names.iter().enumerate() {
        let mut touch = Command::new(need("touch", "coreutils"));
        touch.args(["-d", &format!("2021-03-04 05:06:0{}.123456789 UTC", 2 * number + 1)]);
        assert!(touch.arg(scene.path(name)).status().unwrap().success());
    }
}

const NAMES: [&str; 4] = ["one", "two", "folder/empty", "folder/long"];

fn all_arrives(scene: &Scene, keeps: &Keeps, removes_later: bool) {
    let ran = scene.succeed("copy --json -r --manifest @/sums @/src/ @/at/dst");
    let said = warnings(&ran);
    for told in keeps.told {
        let count = said.iter().filter(|said| said.contains(told)).count();
        assert_eq!(count, 1, "{}: {told}\n{ran}", keeps.name);
    }
    assert_eq!(said.len(), keeps.told.len(), "{}: {said:#?}", keeps.name);
    for name in NAMES.iter().chain(&["folder"]) {
        let (from, to) = (scene.path("src").join(name), scene.path("at/dst").join(name));
        let (source, there) = (from.metadata().unwrap(), to.metadata().unwrap());
        if !from.is_dir() {
            assert!(fs::read(&from).unwrap() == fs::read(&to).unwrap(), "{}: {name}", keeps.name);
        }
        let time = time_ns(&source);
        let kept = time - time.rem_euclid(keeps.time_step_ns);
        if !(removes_later && from.is_dir()) {
            assert_eq!(time_ns(&there), kept, "{}: the time of {name}", keeps.name);
        }
        if keeps.modes {
            assert_eq!(there.mode(), source.mode(), "{}: the mode of {name}", keeps.name);
        }
    }
    let inode = |name: &str| scene.path("at/dst").join(name).metadata().unwrap().ino();
    if keeps.second_names && keeps.inodes {
        assert_eq!(inode("one"), inode("two"), "{}: two names of one file", keeps.name);
    }
    scene.succeed("verify @/sums @/at/dst");
}

fn time_ns(of: &fs::Metadata) -> i128 {
    i128::from(of.mtime()) * SECOND_NS + i128::from(of.mtime_nsec())
}

fn warnings(ran: &Ran) -> Vec<String> {
    let events = ran.events().into_iter();
    let warnings = events.filter(|event| event["event"] == "warning");
    warnings.map(|event| event["text"].as_str().unwrap_or_default().to_string()).collect()
}

fn again_there_is_nothing_to_do(scene: &Scene, keeps: &Keeps) {
    for options in ["--skip-unchanged", "--overwrite older", "--delete"] {
        let ran = scene.succeed(&format!("copy --json -r {options} @/src/ @/at/dst"));
        let moved = &ran.events().pop().unwrap()["record"]["moved"];
        assert_eq!(moved["bytes"], 0, "{}: {options}\n{ran}", keeps.name);
    }
}

fn what_exists_is_not_replaced(scene: &Scene, keeps: &Keeps) {
    fs::write(scene.path("at/taken"), "theirs").unwrap();
    let ran = scene.run("copy @/src/one @/at/taken");
    assert_eq!(ran.code, 3, "{}\n{ran}", keeps.name);
    assert_eq!(fs::read(scene.path("at/taken")).unwrap(), b"theirs", "{}", keeps.name);
    scene.succeed("copy --overwrite always @/src/one @/at/taken");
    assert_eq!(fs::read(scene.path("at/taken")).unwrap().len(), 3000, "{}", keeps.name);
}

fn what_is_broken_off_is_resumed(scene: &Scene, keeps: &Keeps) {
    let line = "copy --json --request-size 64K @/src/folder/long @/at/resumed/";
    fs::create_dir(scene.path("at/resumed")).unwrap();
    let begun = run::start(scene.command(&scene.words(&format!("{line} --rate 2MB"))));
    data::wait_for_flush(&scene.path("at/resumed"));
    processes::send(begun.pid(), Signal::KILL);
    begun.end();
    let ran = scene.succeed(line);
    let moved = &ran.events().pop().unwrap()["record"]["moved"];
    assert!(moved["resumed_bytes"].as_u64().unwrap() > 0, "{}\n{ran}", keeps.name);
    let (from, to) = (scene.path("src/folder/long"), scene.path("at/resumed/long"));
    assert!(fs::read(from).unwrap() == fs::read(to).unwrap(), "{}", keeps.name);
}

/// Two names that differ only in case: both arrive, or the second one is named.
fn no_name_is_lost(scene: &Scene, keeps: &Keeps) {
    fs::create_dir_all(scene.path("cases")).unwrap();
    fs::write(scene.path("cases/README"), "in capitals").unwrap();
    fs::write(scene.path("cases/readme"), "in small letters").unwrap();
    let lines = ["--overwrite never", "--overwrite always", "--delete"];
    for (number, options) in lines.iter().enumerate() {
        let ran = scene.run(&format!("copy -r {options} @/cases/ @/at/cases{number}"));
        let folder = scene.path(format!("at/cases{number}"));
        let there: BTreeSet<_> = data::files_below(&folder).into_iter().collect();
        // Where case does not count, names may be shown in another.
        let sources = ["README", "readme"].map(|name| fs::read(scene.path("cases").join(name)));
        let sources = sources.map(Result::unwrap);
        let whole = |path: &&PathBuf| sources.contains(&fs::read(path).unwrap());
        let what = format!("{}: {options}\n{ran}", keeps.name);
        assert!(there.iter().all(|path| whole(&path)), "{what}");
        match keeps.case {
            true => assert_eq!((ran.code, there.len()), (0, 2), "{what}"),
            false => {
                assert_eq!((ran.code, there.len()), (3, 1), "{what}");
                assert!(ran.stderr.contains("differs from it only in case"), "{what}");
            }
        }
    }
}

/// A name that the source spells otherwise is the source's where case does not count.
fn a_mirror_keeps_a_name_of_other_case(scene: &Scene, keeps: &Keeps) {
    fs::create_dir_all(scene.path("spelled")).unwrap();
    fs::write(scene.path("spelled/Name"), "of the source").unwrap();
    fs::create_dir(scene.path("at/spelled")).unwrap();
    fs::write(scene.path("at/spelled/NAME"), "of the destination").unwrap();
    let ran = scene.succeed("copy -r --delete @/spelled/ @/at/spelled");
    let there = data::files_below(&scene.path("at/spelled"));
    assert_eq!(there.len(), 1, "{}\n{ran}", keeps.name);
    assert_eq!(fs::read(&there[0]).unwrap(), b"of the source", "{}\n{ran}", keeps.name);
}

fn links_are_made_or_named(scene: &Scene, keeps: &Keeps) {
    fs::create_dir_all(scene.path("links")).unwrap();
    fs::write(scene.path("links/file"), "beside it").unwrap();
    std::os::unix::fs::symlink("nowhere", scene.path("links/link")).unwrap();
    let ran = scene.run("copy -r @/links/ @/at/links");
    assert_eq!(fs::read(scene.path("at/links/file")).unwrap(), b"beside it", "{}", keeps.name);
    match keeps.symbolic_links {
        true => {
            assert_eq!(ran.code, 0, "{}\n{ran}", keeps.name);
            let target = fs::read_link(scene.path("at/links/link")).unwrap();
            assert_eq!(target, Path::new("nowhere"), "{}", keeps.name);
        }
        false => {
            assert_eq!(ran.code, 3, "{}\n{ran}", keeps.name);
            assert!(ran.stderr.contains("links/link"), "{}\n{ran}", keeps.name);
        }
    }
}

fn a_spread_copies_or_refuses(scene: &Scene, keeps: &Keeps) {
    let line = "spread @/src/ @/at/spread --on local:2 --job @/job";
    let ran = scene.run(line);
    match keeps.second_names {
        true => {
            assert_eq!(ran.code, 0, "{}\n{ran}", keeps.name);
            data::assert_same(&scene.path("src"), &scene.path("at/spread"));
        }
        false => {
            assert_eq!(ran.code, 1, "{}\n{ran}", keeps.name);
            assert!(ran.stderr.contains("use 'copy' there"), "{}\n{ran}", keeps.name);
            assert!(data::files_below(&scene.path("at/spread")).is_empty(), "{}", keeps.name);
        }
    }
}

/// An attribute that does not fit is told: the disk has room, so the copy is not over.
#[test]
fn attributes_without_room_are_no_full_disk() {
    need_root("a file system is mounted");
    let recipe = file_systems::ALL.iter().find(|recipe| recipe.name == "ext4").unwrap();
    let scene = Scene::new();
    let mounted = recipe.mount(&scene);
    fs::create_dir(scene.path("src")).unwrap();
    ["a", "b"].iter().for_each(|name| write_file(&scene.path("src").join(name), 1, 3000));
    // ext4 keeps all attributes of a file in one block of 4 KiB.
    let mut set = Command::new(need("setfattr", "attr"));
    set.args(["-n", "user.large", "-v", &"x".repeat(3500)]).arg(scene.path("src/a"));
    assert!(set.status().unwrap().success());
    let to = mounted.at.display();
    let line = format!("copy --json -rA --digest-also adler32,crc32c,md5,sha256 @/src/ {to}/dst");
    let ran = scene.succeed(&line);
    let said = warnings(&ran);
    assert_eq!(said.len(), 1, "{ran}");
    assert!(said[0].contains("/dst") && said[0].contains("with room for them"), "{ran}");
    assert!(!said[0].contains(".part"), "it has a name that the user knows\n{ran}");
    for name in ["a", "b"] {
        let (from, to) = (scene.path("src").join(name), mounted.at.join("dst").join(name));
        assert!(fs::read(from).unwrap() == fs::read(to).unwrap(), "{name}\n{ran}");
    }
}

/// A time that ext4 does not have is told, and no difference in the next run.
#[test]
fn times_beyond_the_last_one_are_told() {
    need_root("a file system is mounted");
    let recipe = |name| file_systems::ALL.iter().find(|recipe| recipe.name == name).unwrap();
    let scene = Scene::new();
    let (near, far) = (recipe("tmpfs").mount(&scene), recipe("ext4").mount(&scene));
    write_file(&near.at.join("late"), 1, 3000);
    let mut touch = Command::new(need("touch", "coreutils"));
    assert!(touch.args(["-d", "2500-01-01"]).arg(near.at.join("late")).status().unwrap().success());
    let line = format!("copy --json -r {}/ {}/dst", near.at.display(), far.at.display());
    let said = warnings(&scene.succeed(&line));
    assert!(said.len() == 1 && said[0].contains("times are not kept"), "{said:?}");
    let ran = scene.succeed(&format!("{line} --skip-unchanged"));
    assert_eq!(ran.events().pop().unwrap()["record"]["moved"]["kept"], 1, "{ran}");
}

/// A second name that has no room as a file of its own leaves nothing behind.
#[test]
fn a_second_name_without_room_leaves_nothing() {
    need_root("a file system is mounted");
    let recipe = file_systems::ALL.iter().find(|recipe| recipe.name == "exfat").unwrap();
    if !Path::new("/dev/fuse").exists() {
        return println!("this kernel has no FUSE, so it is not tried");
    }
    let scene = Scene::new();
    let mounted = recipe.mount(&scene);
    fs::create_dir(scene.path("src")).unwrap();
    write_file(&scene.path("src/one"), 1, 40 << 20);
    fs::hard_link(scene.path("src/one"), scene.path("src/two")).unwrap();
    let ran = scene.run(&format!("copy -r @/src/ {}/dst", mounted.at.display()));
    assert_eq!(ran.code, 5, "{ran}");
    let there = fs::metadata(mounted.at.join("dst/one")).unwrap();
    assert_eq!(there.len(), 40 << 20, "{ran}");
    let left = data::files_below(&mounted.at);
    let parts: Vec<_> =
        left.iter().filter(|path| path.extension() == Some("part".as_ref())).collect();
    assert!(parts.is_empty(), "{parts:?}\n{ran}");
}
