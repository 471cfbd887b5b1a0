//! Trees with everything that a tree can have, copied on one host and through a real sshd, and
//! compared by rsync: names, kinds, links, holes, modes, times, owners, attributes and ACLs.

use crate::support;
use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, lchown, symlink};
use std::path::Path;
use std::process::Command;

use base::job::Location;
use base::settings::Settings;
use mover::io::reach::Reach;
use mover::pump::source::walk::{Sources, WalkEvent};
use mover::wire::manifest::Entry;
use rustix::fs::{
    AtFlags, CWD, FileType, Timespec, Timestamps, UTIME_OMIT, XattrFlags, setxattr, utimensat,
};

use crate::support::run::{self, Ran};
use crate::support::{Scene, data, each, need, need_root};

/// The prefixes of the source and of the destination.
const WAYS: &[(&str, &str)] = &[("", ""), ("", "far:"), ("far:", "")];

const MIB: u64 = 1 << 20;

#[test]
fn odd_trees_arrive_as_they_are() {
    need_root("files of other owners are made and compared");
    let options = [
        "",
        "--request-size 64K --engine threads",
        "--request-size 4K --streams 2 --direct on",
        "--seal auth --digest crc64",
        "--seal off --digest none --preallocate on",
    ];
    let cases = WAYS.iter().flat_map(|way| options.iter().map(move |options| (way, *options)));
    each(cases, |((from, to), options)| {
        let scene = Scene::new();
        write_odd_tree(&scene.path("src"));
        scene.succeed(&format!("copy -r -A {options} {from}@/src/ {to}@/dst"));
        assert_rsync_finds_nothing(&scene.path("src"), &scene.path("dst"), "-HAX");
        assert_no_temporary(&scene.path("dst"));
        // Again, over the copy: hard links are separated and joined again.
        scene.succeed(&format!("copy -r -A --overwrite always {options} {from}@/src/ {to}@/dst"));
        assert_rsync_finds_nothing(&scene.path("src"), &scene.path("dst"), "-HAX");
        assert_no_temporary(&scene.path("dst"));
    });
}

#[test]
fn the_folder_itself_is_one_of_them() {
    need_root("files of other owners are made and compared");
    each(WAYS, |(from, to)| {
        let scene = Scene::new();
        write_odd_tree(&scene.path("src"));
        let ran = scene.succeed(&format!("copy -r -A --json {from}@/src {to}@/dst"));
        assert_rsync_finds_nothing(&scene.path("src"), &scene.path("dst/src"), "-HAX");
        let folders = walk_folders(&scene.path("src"));
        assert_eq!(end_of(&ran)["record"]["moved"]["directories"], folders, "{ran}");
    });
}

/// Every file has as few blocks as its source, and holes are not sent.
#[test]
fn holes_stay_holes() {
    let cases = WAYS.iter().flat_map(|way| ["4K", "64K", "1M"].map(|size| (way, size)));
    each(cases, |((from, to), size)| {
        let scene = Scene::new();
        write_sparse_files(&scene.path("src"));
        let options = format!("--request-size {size}");
        let ran = scene.succeed(&format!("copy -r --json {options} {from}@/src/ {to}@/dst"));
        assert_rsync_finds_nothing(&scene.path("src"), &scene.path("dst"), "-H");
        for file in data::files_below(&scene.path("src")) {
            let arrived = scene.path("dst").join(file.file_name().unwrap());
            let blocks = |path: &Path| fs::metadata(path).unwrap().blocks();
            // A file system may need some more blocks to say where the others are: how many depends
            // on the order in which they were written out. A filled hole would double the number.
            let most = blocks(&file) * 5 / 4 + 64;
            assert!(blocks(&arrived) <= most, "{}: {}", file.display(), blocks(&arrived));
        }
        let sent = end_of(&ran)["record"]["moved"]["wire_bytes"].as_u64().unwrap();
        assert!(
            sent < 24 * MIB,
            "{sent} bytes were sent of 100 MiB, most of which are holes\n{ran}"
        );
        for file in data::files_below(&scene.path("src")) {
            let name = file.file_name().unwrap().to_str().unwrap();
            if to.is_empty() {
                let ran = scene.succeed(&format!("copy {options} {from}@/src/{name} -"));
                fs::write(scene.path("piped"), &ran.stdout).unwrap();
                data::assert_same(&file, &scene.path("piped"));
            }
        }
    });
}

/// The digest of a file with holes is that of all its bytes.
#[test]
fn digests_count_holes() {
    each(WAYS, |(from, to)| {
        let scene = Scene::new();
        write_sparse_files(&scene.path("src"));
        let line = format!("copy -r --json --manifest @/manifest {from}@/src/ {to}@/dst");
        let ran = scene.succeed(&line);
        scene.succeed("verify @/manifest @/dst");
        let events = ran.events();
        let done: Vec<_> = events.iter().filter(|event| event["event"] == "file").collect();
        assert!(!done.is_empty(), "{ran}");
        for event in done {
            let path = scene.path("src").join(event["path"].as_str().unwrap());
            let expect = blake3::hash(&fs::read(&path).unwrap()).to_hex().to_string();
            assert_eq!(event["digest"], expect, "{}", path.display());
        }
    });
}

/// Without -A no owner, attribute or special bit is copied; mode and time are.
#[test]
fn modes_and_times_are_kept_by_default() {
    need_root("files of other owners are made");
    each(WAYS, |(from, to)| {
        let scene = Scene::new();
        write_odd_tree(&scene.path("src"));
        scene.succeed(&format!("copy -r {from}@/src/ {to}@/dst"));
        let program = fs::metadata(scene.path("dst/program")).unwrap();
        assert_eq!((program.mode() & 0o7777, program.uid(), program.gid()), (0o755, 0, 0));
        let mut value = [0; 100];
        let path = scene.path("dst/attributes");
        assert!(rustix::fs::getxattr(&path, "user.colour", &mut value).is_err());
        // What rsync compares without owners, and without the special bits.
        for name in ["src/program", "src/shared"] {
            let mode = fs::metadata(scene.path(name)).unwrap().mode() & 0o777;
            fs::set_permissions(scene.path(name), Permissions::from_mode(mode)).unwrap();
        }
        assert_rsync_finds_nothing(
            &scene.path("src"),
            &scene.path("dst"),
            "-H --no-owner --no-group",
        );
    });
}

/// The destination folder itself: its mode before, the options, and its mode after.
#[test]
fn the_destination_itself() {
    need_root("special bits are made");
    let cases = [
        ("src/", None, "", 0o751),
        ("src/", None, "-A", 0o751),
        ("src/", Some(0o1777), "", 0o1777),
        ("src/", Some(0o1777), "-A", 0o751),
        ("src", Some(0o1777), "-A", 0o1777),
    ];
    let cases = WAYS.iter().flat_map(|way| cases.iter().map(move |case| (way, case)));
    each(cases, |((from, to), (source, before, options, after))| {
        let scene = Scene::new();
        make_folder(&scene.path("src"), 0o751);
        data::write_file(&scene.path("src/file"), 1, 10);
        if let Some(mode) = before {
            make_folder(&scene.path("dst"), *mode);
        }
        scene.succeed(&format!("copy -r {options} {from}@/{source} {to}@/dst"));
        let mode = fs::metadata(scene.path("dst")).unwrap().mode() & 0o7777;
        assert_eq!(mode, *after, "{mode:o}");
    });
}

#[test]
fn links_are_copied_followed_or_skipped() {
    // The option, exit code, words on standard error, and what arrives.
    let cases: [(&str, i32, &[&str], &[&str]); 3] = [
        ("copy", 0, &[], &["dangling", "loop", "to-file", "to-folder", "folder/file"]),
        (
            "follow",
            3,
            &["dangling", "leads back"],
            &["to-file", "to-folder/file", "folder/file", "to-folder"],
        ),
        ("skip", 0, &["'@/src/dangling' is a symbolic link: skipped"], &["folder/file"]),
    ];
    let all = ["dangling", "loop", "to-file", "to-folder", "to-folder/file", "folder/file"];
    let cases = WAYS.iter().flat_map(|way| cases.iter().map(move |case| (way, case)));
    each(cases, |((from, to), (option, code, words, arrives))| {
        let scene = Scene::new();
        fs::create_dir_all(scene.path("src/folder")).unwrap();
        data::write_file(&scene.path("src/folder/file"), 3, 5000);
        data::write_file(&scene.path("elsewhere"), 4, 3_000_000);
        for (target, name) in [
            ("nowhere", "dangling"),
            ("../src", "loop"),
            ("../elsewhere", "to-file"),
            ("folder", "to-folder"),
        ] {
            symlink(target, scene.path("src").join(name)).unwrap();
        }
        let ran = scene.run(&format!("copy -r --links {option} {from}@/src/ {to}@/dst"));
        assert_eq!(ran.code, *code, "{ran}");
        let folder = scene.path("").display().to_string();
        for word in *words {
            let word = word.replace("@/", &folder);
            assert!(ran.stderr.contains(&word), "{word}\n{ran}");
        }
        for name in all {
            let there = fs::symlink_metadata(scene.path("dst").join(name));
            let followed = *option == "copy" && name == "to-folder/file";
            assert_eq!(there.is_ok(), arrives.contains(&name) || followed, "{name}\n{ran}");
            let is_link = there.is_ok_and(|meta| meta.is_symlink());
            assert!(!is_link || *option == "copy", "{name} is a link");
        }
        if *option == "follow" {
            data::assert_same(&scene.path("elsewhere"), &scene.path("dst/to-file"));
        }
    });
}

/// A hard link never gets the content of another file than its source's.
#[test]
fn a_name_of_a_file_that_failed_fails() {
    let cases = WAYS.iter().flat_map(|way| [("one", "two"), ("two", "one")].map(|two| (way, two)));
    each(cases, |((from, to), (taken, free))| {
        let scene = Scene::new();
        fs::create_dir(scene.path("src")).unwrap();
        fs::create_dir(scene.path("dst")).unwrap();
        data::write_file(&scene.path("src/one"), 1, 3000);
        fs::hard_link(scene.path("src/one"), scene.path("src/two")).unwrap();
        data::write_file(&scene.path("dst").join(taken), 2, 10);
        let ran = scene.run(&format!("copy -r {from}@/src/ {to}@/dst"));
        assert_eq!(ran.code, 3, "{ran}");
        assert_eq!(fs::read(scene.path("dst").join(taken)).unwrap(), data::bytes(2, 10));
        // The folder's own order says which of the two is the first.
        match fs::read(scene.path("dst").join(free)) {
            Ok(bytes) => assert!(bytes == data::bytes(1, 3000), "the name of another file\n{ran}"),
            Err(_) => assert!(ran.stderr.contains("is another name of"), "{ran}"),
        }
        assert_no_temporary(&scene.path("dst"));
    });
}

/// Hard links to one file in several sources of one command.
#[test]
fn names_across_sources_are_joined() {
    each(WAYS, |(from, to)| {
        let scene = Scene::new();
        for folder in ["one", "two"] {
            fs::create_dir(scene.path(folder)).unwrap();
        }
        data::write_file(&scene.path("one/file"), 1, 2_000_000);
        fs::hard_link(scene.path("one/file"), scene.path("two/again")).unwrap();
        scene.succeed(&format!("copy -r {from}@/one {from}@/two {to}@/dst"));
        let inode = |name: &str| fs::metadata(scene.path(name)).unwrap().ino();
        assert_eq!(inode("dst/one/file"), inode("dst/two/again"));
    });
}

/// Folders that their owner may not write, and an owner who may not change owners.
#[test]
fn another_user_keeps_what_is_allowed() {
    need_root("setpriv makes a process of another user");
    let scene = Scene::new();
    write_odd_tree(&scene.path("src"));
    fs::remove_file(scene.path("src/unreadable")).unwrap();
    for (name, mode) in [("src", 0o755), ("src/closed", 0o555), ("src/secret", 0o555)] {
        fs::set_permissions(scene.path(name), Permissions::from_mode(mode)).unwrap();
    }
    fs::create_dir(scene.path("theirs")).unwrap();
    chown(scene.path("theirs"), Some(NOBODY), Some(NOBODY)).unwrap();
    let program = fs::read(scene.path("src/program")).unwrap();
    for _ in 0..2 {
        let ran = as_nobody(&scene, "copy -r -A --overwrite always @/src/ @/theirs/dst");
        assert_eq!(ran.code, 0, "{ran}");
        assert_eq!(ran.stderr.matches("owner and group are not kept").count(), 1, "{ran}");
        let arrived = fs::metadata(scene.path("theirs/dst/program")).unwrap();
        assert_eq!((arrived.uid(), arrived.mode() & 0o7777), (NOBODY, 0o755), "no set-user-ID bit");
        assert_eq!(fs::read(scene.path("theirs/dst/program")).unwrap(), program);
        let closed = fs::metadata(scene.path("theirs/dst/closed")).unwrap();
        assert_eq!(closed.mode() & 0o7777, 0o555);
    }
    // A destination of another user keeps its own mode and time.
    make_folder(&scene.path("open"), 0o777);
    let ran = as_nobody(&scene, "copy -r -A @/src/ @/open");
    assert_eq!(ran.code, 0, "{ran}");
    assert_eq!(ran.stderr.matches("belongs to somebody else").count(), 1, "{ran}");
    // Nothing is preserved: the folder that was there has its own mode back.
    fs::set_permissions(scene.path("theirs/dst/closed"), Permissions::from_mode(0o500)).unwrap();
    let ran =
        as_nobody(&scene, "copy -r --no-preserve --overwrite always @/src/closed @/theirs/dst");
    assert_eq!(ran.code, 0, "{ran}");
    let closed = fs::metadata(scene.path("theirs/dst/closed")).unwrap();
    assert_eq!(closed.mode() & 0o7777, 0o500);
}

/// A file in a folder without read permission, and a folder with write permission only.
#[test]
fn folders_that_may_not_be_listed() {
    need_root("setpriv makes a process of another user");
    let options = ["", "--fsync off", "--request-size 64K --direct on", "--preallocate on"];
    let cases = WAYS.iter().flat_map(|way| options.map(|options| (way, options)));
    each(cases, |((from, to), options)| {
        let scene = Scene::new();
        make_folder(&scene.path("src"), 0o711);
        make_folder(&scene.path("dst"), 0o733);
        fs::create_dir(scene.path("src/folder")).unwrap();
        for (name, len) in [("long", 3_000_000), ("short", 100), ("folder/empty", 0)] {
            data::write_file(&scene.path("src").join(name), 1, len);
        }
        fs::write(scene.path("list"), "long\nshort\nfolder/empty\n").unwrap();
        let setpriv = format!("setpriv --reuid {NOBODY} --regid {NOBODY} --clear-groups");
        let program = scene.program_for_all();
        scene.far_script(&format!("exec {setpriv} {} \"$@\"", program.display()));
        let run = |line: &str| match (*from, *to) {
            ("", "") => as_nobody(&scene, line),
            _ => scene.run(line),
        };
        let same = |source: &str, arrived: &str| {
            data::assert_same(&scene.path(source), &scene.path(arrived));
        };
        let ran = run(&format!("copy {options} {from}@/src/long {from}@/src/short {to}@/dst"));
        assert_eq!(ran.code, 0, "{ran}");
        same("src/long", "dst/long");
        same("src/short", "dst/short");
        let ran = run(&format!("copy {options} {from}@/src/long {to}@/dst/other"));
        assert_eq!(ran.code, 0, "{ran}");
        same("src/long", "dst/other");
        let always = "--overwrite always";
        let ran = run(&format!("copy {options} {always} {from}@/src/short {to}@/dst/other"));
        assert_eq!(ran.code, 0, "{ran}");
        same("src/short", "dst/other");
        let list = format!("-r -A {always} --files-from @/list");
        let ran = run(&format!("copy {options} {list} {from}@/src {to}@/dst"));
        assert_eq!(ran.code, 0, "{ran}");
        same("src/folder/empty", "dst/folder/empty");
        assert_no_temporary(&scene.path("dst"));
    });
}

fn as_nobody(scene: &Scene, line: &str) -> Ran {
    run::to_end(nobodys_command(scene, line), b"")
}

fn nobodys_command(scene: &Scene, line: &str) -> Command {
    let mut command = Command::new(need("setpriv", "util-linux"));
    let nobody = NOBODY.to_string();
    command.args(["--reuid", &nobody, "--regid", &nobody, "--clear-groups"]);
    command.arg(scene.program_for_all()).args(scene.words(line));
    command
}

const NOBODY: u32 = 65534;

/// Sockets, pipes and devices are reported, and everything else is copied.
#[test]
fn other_kinds_are_named_and_skipped() {
    each(WAYS, |(from, to)| {
        let scene = Scene::new();
        fs::create_dir(scene.path("src")).unwrap();
        data::write_file(&scene.path("src/file"), 1, 10);
        let _socket = std::os::unix::net::UnixListener::bind(scene.path("src/socket")).unwrap();
        let kind = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(CWD, scene.path("src/pipe"), kind, 0o600.into(), 0).unwrap();
        let ran = scene.succeed(&format!("copy -r {from}@/src/ {to}@/dst"));
        for name in ["socket", "pipe"] {
            let words = format!("src/{name}' is a socket, pipe or device: skipped");
            assert!(ran.stderr.contains(&words), "{ran}");
        }
        scene.assert_holds("dst", &["file"]);
    });
}

/// A tree deeper than the number of files that may be open.
#[test]
fn deep_trees_with_few_open_files() {
    let scene = Scene::new();
    let deep: String = (0..600).map(|_| "d/").collect();
    fs::create_dir_all(scene.path("src").join(&deep)).unwrap();
    data::write_file(&scene.path("src").join(&deep).join("file"), 1, 10);
    data::write_file(&scene.path("src/d/file"), 2, 10);
    scene.far_script("ulimit -n 256; exec $PROGRAM \"$@\"");
    scene.succeed("copy -r @/src/ far:@/pushed");
    data::assert_same(&scene.path("src"), &scene.path("pushed"));
    scene.succeed("copy -r far:@/src/ @/pulled");
    data::assert_same(&scene.path("src"), &scene.path("pulled"));
}

/// While a tree is walked, a folder that is being listed is replaced by a link to another one:
/// neither names nor link targets from there are copied, at any depth.
#[test]
fn folders_that_become_links_while_they_are_walked() {
    let cases = [0, 1, 63, 64, 65, 300]
        .into_iter()
        .flat_map(|depth| [false, true].map(|archive| (depth, archive)));
    each(cases, |(depth, archive)| {
        let scene = Scene::new();
        let deep: String = (0..*depth).map(|_| "d/").collect();
        let swapped = scene.path("src").join(deep).join("swapped");
        fs::create_dir_all(&swapped).unwrap();
        fs::create_dir(scene.path("outside")).unwrap();
        for i in 0..20 {
            // A pipe is reported at once, so that the test knows that the folder is being listed.
            let pipe = swapped.join(format!("pipe{i}"));
            rustix::fs::mknodat(CWD, pipe, FileType::Fifo, 0o600.into(), 0).unwrap();
            for (place, target) in [(swapped.clone(), "inside"), (scene.path("outside"), "secret")]
            {
                let folder = place.join(format!("folder{i}"));
                fs::create_dir(&folder).unwrap();
                fs::write(folder.join(target), "").unwrap();
                symlink(target, place.join(format!("link{i}"))).unwrap();
                symlink(target, place.join(format!("folder{i}/link"))).unwrap();
            }
        }
        let settings = Settings { archive: *archive, ..Settings::default() };
        let places = [Location::Path(scene.path("src"))];
        let sources =
            Sources::look(&places, true, &Reach::Host).unwrap().choose(&settings).unwrap();
        let (mut swaps, mut found, mut failed) = (0, Vec::new(), Vec::new());
        sources.walk(&settings, &mut |sighting| {
            match sighting {
                WalkEvent::Skipped(text) if swaps == 0 => {
                    assert!(text.contains("pipe"), "{text}");
                    fs::rename(&swapped, scene.path("aside")).unwrap();
                    symlink(scene.path("outside"), &swapped).unwrap();
                    swaps += 1;
                }
                WalkEvent::Chunk(chunk) => found.extend(chunk.into_iter().map(|one| one.entry)),
                WalkEvent::Unoffered { path, .. } => failed.push(path),
                _ => {}
            }
            true
        });
        assert_eq!(swaps, 1);
        let leaks = |entry: &&Entry| {
            entry.path.ends_with(b"secret") || entry.link_target.starts_with(b"secret")
        };
        assert_eq!(found.iter().filter(leaks).count(), 0, "what is outside is offered");
        // Not because nothing was left to be walked.
        let inside = found.iter().filter(|entry| entry.link_target == b"inside").count();
        assert!(inside + failed.len() > 0, "{inside} links, {} failures", failed.len());
    });
}

/// Without `openat2` the same is copied, and the same is refused with the same messages.
#[test]
fn without_openat2() {
    need_root("files of other owners are made and compared");
    let lines = [
        "copy -r -A @/src/ @/dst",
        "copy -r -A --overwrite always @/src/ @/dst",
        "copy -r --links follow @/src/deep @/followed/",
        // A folder on the way is a link: beneath the destination, out of it, and away from it.
        "copy -r --overwrite always @/more/ @/linked",
        "copy --files-from @/list @/linked @/listed/",
    ];
    let outcome = |scene: Scene| {
        write_odd_tree(&scene.path("src"));
        for folder in ["more/in/a", "more/out/a", "more/away/a", "linked/real", "outside/a"] {
            fs::create_dir_all(scene.path(folder)).unwrap();
        }
        for folder in ["in", "out", "away"] {
            data::write_file(&scene.path(format!("more/{folder}/a/file")), 1, 100);
            data::write_file(&scene.path(format!("more/{folder}/file")), 2, 2_000_000);
        }
        data::write_file(&scene.path("outside/file"), 3, 10);
        data::write_file(&scene.path("linked/real/file"), 3, 10);
        symlink("./../linked/real", scene.path("linked/up")).unwrap();
        symlink("real/../real", scene.path("linked/in")).unwrap();
        symlink("../outside", scene.path("linked/out")).unwrap();
        symlink(scene.path("outside"), scene.path("linked/away")).unwrap();
        fs::write(scene.path("list"), "in/file\nout/file\naway/file\nup/file\n").unwrap();
        let folder = scene.path("").display().to_string();
        let ran = lines.map(|line| {
            let ran = scene.run(line);
            let mut said: Vec<String> =
                ran.stderr.lines().map(|line| line.replace(&folder, "@/")).collect();
            said.sort();
            (ran.code, said)
        });
        assert_rsync_finds_nothing(&scene.path("src"), &scene.path("dst"), "-HAX");
        assert_eq!(fs::read_dir(scene.path("outside")).unwrap().count(), 2);
        assert_eq!(fs::read(scene.path("outside/file")).unwrap(), data::bytes(3, 10));
        assert_eq!(fs::read_dir(scene.path("outside/a")).unwrap().count(), 0);
        let mut files = data::files_below(&scene.path("linked"));
        files.extend(data::files_below(&scene.path("listed")));
        files.retain(|path| path.extension().is_none_or(|end| end != "journal"));
        let files = files.into_iter();
        let files = files.map(|path| path.strip_prefix(scene.path("")).unwrap().to_path_buf());
        (ran, files.collect::<Vec<_>>())
    };
    let (new, old) = (outcome(Scene::new()), outcome(Scene::with_old_kernel()));
    assert_eq!(new, old);
    assert_eq!(new.0.clone().map(|(code, _)| code), [0, 0, 0, 3, 3], "{new:?}");
}

/// In a folder where everybody may write, another user has guessed our names and holds their
/// targets. The copy continues with other names, and `clean` finds what such a copy leaves.
#[test]
fn names_that_a_stranger_has_taken() {
    need_root("there are two users");
    let kinds = ["file", "locked", "hard link", "symbolic link", "pipe", "folder"];
    let cases = kinds.iter().flat_map(|kind| [".journal", ".part"].map(|end| (*kind, end)));
    each(cases, |(kind, end)| {
        let scene = Scene::new();
        fs::create_dir(scene.path("src")).unwrap();
        data::write_file(&scene.path("src/long"), 1, 3_000_000);
        data::write_file(&scene.path("src/short"), 2, 100);
        symlink("short", scene.path("src/link")).unwrap();
        make_folder(&scene.path("dst"), 0o1777);
        data::write_file(&scene.path("victims"), 3, 5000);
        chown(scene.path("victims"), Some(NOBODY), Some(NOBODY)).unwrap();
        let copy = "copy -r --streams 1 --request-size 64K @/src/ @/dst";
        let mut taken = stop_under_way(&scene, &format!("{copy} --json --rate 200KB"));
        // The names of a small file and of a link are guessed as well as that of the long one.
        let part = taken.iter().find(|name| name.ends_with(".part")).unwrap();
        let tag = part.rsplit_once('-').unwrap().0.to_string();
        let front = |path: &str| blake3::hash(path.as_bytes()).to_hex()[..16].to_string();
        taken.extend(["short", "link"].map(|path| format!("{tag}-{}.part", front(path))));
        taken.retain(|name| name.ends_with(end));
        taken.sort();
        taken.dedup();
        let mut held = Vec::new();
        for name in &taken {
            let path = scene.path("dst").join(name);
            fs::remove_file(&path).ok();
            held.extend(take_name(&scene, &path, kind));
        }
        for name in ["short", "link"] {
            fs::remove_file(scene.path("dst").join(name)).ok();
        }
        let parts_before = ours_in(&scene.path("dst"));
        let before = fs::read(scene.path("victims")).unwrap();
        let ran = as_nobody(&scene, copy);
        assert_eq!(ran.code, 0, "{ran}");
        for name in ["long", "short", "link"] {
            data::assert_same(&scene.path("src").join(name), &scene.path("dst").join(name));
        }
        assert_eq!(fs::read(scene.path("victims")).unwrap(), before, "it was written to");
        // A part with our owner is removed, whoever created its name.
        let removed = (*kind, *end) == ("hard link", ".part");
        let warned = |text: &str| ran.stderr.matches(text).count();
        let expect = (usize::from(*end == ".journal"), usize::from(*end == ".part" && !removed));
        let got = (warned("its journal under another name"), warned("has taken the name that"));
        assert_eq!(got, expect, "{ran}");
        let expect = match (removed, *end) {
            (true, _) => Vec::new(),
            (false, ".part") => taken,
            _ => parts_before, // nobody knew that they are of the same copy
        };
        assert_eq!(ours_in(&scene.path("dst")), expect, "what is left");
        // `clean` removes what such an interrupted copy leaves.
        for name in ["long", "short", "link"] {
            fs::remove_file(scene.path("dst").join(name)).unwrap();
        }
        let more = stop_under_way(&scene, &format!("{copy} --json --rate 200KB"));
        assert!(more.len() > expect.len(), "{more:?} is no more than {expect:?}");
        as_nobody(&scene, "clean @/dst");
        let still = ours_in(&scene.path("dst"));
        assert!(still.iter().all(|name| expect.contains(name)), "{still:?} beside {expect:?}");
        drop(held);
    });
}

/// Starts a copy as nobody, and kills it when it has a journal and a part; returns their names.
fn stop_under_way(scene: &Scene, line: &str) -> Vec<String> {
    let before = ours_in(&scene.path("dst"));
    let command = nobodys_command(scene, line);
    let running = run::start(command);
    loop {
        let names = ours_in(&scene.path("dst"));
        let new =
            |end: &str| names.iter().any(|name| name.ends_with(end) && !before.contains(name));
        // The part of the long file: those of the others are gone in a moment.
        let is_long = |name: &String| {
            let there = fs::symlink_metadata(scene.path("dst").join(name));
            there.is_ok_and(|there| there.is_file() && there.len() > 1000)
        };
        let parts = names.iter().filter(|name| name.ends_with(".part") && !before.contains(name));
        if new(".journal") && parts.into_iter().any(is_long) {
            let pid = rustix::process::Pid::from_raw(running.pid()).unwrap();
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
            running.end();
            return ours_in(&scene.path("dst"));
        }
        assert!(running_still(running.pid()), "it ended before it had both: {names:?}");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

fn running_still(pid: i32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    !status.is_empty() && !status.contains(") Z ")
}

/// Names in a folder that only datapump gives, in order.
fn ours_in(folder: &Path) -> Vec<String> {
    let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
    names.retain(|name| name.starts_with(".datapump-"));
    names.sort();
    names
}

/// Puts another user's file under a name; returns what keeps it locked.
fn take_name(scene: &Scene, path: &Path, kind: &str) -> Option<fs::File> {
    let stranger = Some(NOBODY - 1);
    match kind {
        "hard link" => {
            // The victim's own file, which only they may write to.
            fs::hard_link(scene.path("victims"), path).unwrap();
            return None;
        }
        "symbolic link" => symlink(scene.path("victims"), path).unwrap(),
        "pipe" => {
            let mode = rustix::fs::Mode::from_raw_mode(0o666);
            rustix::fs::mknodat(CWD, path, FileType::Fifo, mode, 0).unwrap();
        }
        "folder" => make_folder(path, 0o777),
        _ => fs::write(path, "a stranger's").unwrap(),
    }
    lchown(path, stranger, stranger).unwrap();
    let file = (kind == "locked").then(|| fs::File::open(path).unwrap())?;
    rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive).unwrap();
    Some(file)
}

/// Passes if rsync finds no difference between the trees.
fn assert_rsync_finds_nothing(source: &Path, destination: &Path, more: &str) {
    let slash = |path: &Path| format!("{}/", path.display());
    let mut rsync = Command::new(need("rsync", "rsync"));
    rsync.args(["-a", "--dry-run", "--itemize-changes", "--checksum", "--delete"]);
    let output = rsync
        .args(more.split_whitespace())
        .args([slash(source), slash(destination)])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.is_empty(), "rsync would still change:\n{text}");
}

fn assert_no_temporary(folder: &Path) {
    let is_left = |path: &&std::path::PathBuf| {
        path.file_name().is_some_and(|name| name.as_bytes().starts_with(b".datapump-"))
    };
    let files = data::files_below(folder);
    assert_eq!(files.iter().find(is_left), None);
}

fn end_of(ran: &Ran) -> serde_json::Value {
    ran.events().pop().unwrap_or_else(|| panic!("no events\n{ran}"))
}

/// The number of folders below this one, and itself.
fn walk_folders(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).unwrap().map(Result::unwrap);
    let folders = entries.filter(|entry| entry.file_type().unwrap().is_dir());
    1 + folders.map(|entry| walk_folders(&entry.path())).sum::<u64>()
}

/// All kinds of files at once.
fn write_odd_tree(root: &Path) {
    data::write_odd_names(root);
    fs::create_dir_all(root.join("empty/inner")).unwrap();
    fs::create_dir_all(root.join("deep/deeper")).unwrap();
    fs::create_dir(root.join(OsStr::from_bytes(&[b'd'; 255]))).unwrap();
    write_links(root);
    write_sparse_files(&root.join("sparse"));
    write_attributes(root);
    write_owners(root);
    for (name, mode) in [("closed", 0o500), ("shut", 0o555), ("secret", 0o000)] {
        let folder = root.join(name);
        fs::create_dir(&folder).unwrap();
        data::write_file(&folder.join("file"), 5, 100);
        fs::set_permissions(&folder, Permissions::from_mode(mode)).unwrap();
    }
    let unreadable = root.join("unreadable");
    data::write_file(&unreadable, 8, 20);
    fs::set_permissions(&unreadable, Permissions::from_mode(0o000)).unwrap();
    // Times last: everything above changes those of the folders.
    set_time(&root.join("deep/deeper"), -1_000_000_000, 1);
    set_time(&root.join("deep"), 1_700_000_000, 999_999_999);
    set_time(&root.join("dangling"), -5, 7);
    set_time(&root.join("first"), -86_400 * 365 * 30, 123_456_789);
    set_time(root, 1_000_000_007, 42);
    fs::set_permissions(root, Permissions::from_mode(0o751)).unwrap();
}

fn write_links(root: &Path) {
    for (target, name) in [
        ("nowhere", "dangling"),
        ("/etc/passwd", "absolute"),
        ("deep", "to-folder"),
        ("../../#", "deep/deeper/up"),
    ] {
        symlink(target, root.join(name)).unwrap();
    }
    // A long file, a short one and one without bytes, each with names in several folders.
    for (seed, (name, len)) in
        [("first", 3_000_000), ("short", 100), ("nothing", 0)].into_iter().enumerate()
    {
        data::write_file(&root.join(name), 50 + seed as u64, len);
        fs::hard_link(root.join(name), root.join(format!("{name}-too"))).unwrap();
        fs::hard_link(root.join(name), root.join(format!("deep/deeper/{name}"))).unwrap();
    }
}

/// Name, length, and where there is how much data.
type Sparse = (&'static str, u64, Vec<(u64, usize)>);

fn write_sparse_files(folder: &Path) {
    fs::create_dir_all(folder).unwrap();
    let block = 4096;
    let full = data::bytes(77, MIB as usize);
    let files: [Sparse; 7] = [
        ("hole-first", 20 * MIB, vec![(19 * MIB, MIB as usize)]),
        ("hole-amid", 9 * MIB + 17, vec![(0, MIB as usize), (5 * MIB, 100)]),
        ("hole-last", 20 * MIB + 5, vec![(0, block)]),
        ("all-hole", 40 * MIB, vec![]),
        ("small-holes", 4 * MIB, (0..512).map(|at| (at * 2 * block as u64, block)).collect()),
        ("short-with-holes", 100_000, vec![(2 * block as u64, 10)]),
        ("short-all-hole", 300_000, vec![]),
    ];
    for (name, len, parts) in files {
        let mut file = fs::File::create(folder.join(name)).unwrap();
        for (at, count) in parts {
            file.seek(SeekFrom::Start(at)).unwrap();
            file.write_all(&full[..count]).unwrap();
        }
        file.set_len(len).unwrap();
    }
}

fn write_attributes(root: &Path) {
    let path = root.join("attributes");
    data::write_file(&path, 60, 500);
    fs::create_dir(root.join("listed")).unwrap();
    let set = |path: &Path, name: &str, value: &[u8]| {
        setxattr(path, name, value, XattrFlags::empty()).unwrap();
    };
    set(&path, "user.colour", b"blue\0\xff");
    set(&path, "user.empty", b"");
    set(&root.join("listed"), "user.of-a-folder", &[7; 1000]);
    set(&root.join("first"), "user.of-a-long-file", b"long");
    if support::is_root() {
        set(&path, "trusted.datapump", b"root only");
    }
    for (args, name) in [
        ("-m u:1234:rw,g:55:r,m::rw", "attributes"),
        ("-m u:1234:rwx", "listed"),
        ("-d -m u:1234:rx,g::rwx", "listed"),
    ] {
        let mut setfacl = Command::new(need("setfacl", "acl"));
        let status = setfacl.args(args.split_whitespace()).arg(root.join(name)).status();
        assert!(status.unwrap().success(), "setfacl {args} {name}");
    }
    // It was there before the default list, and has none of it.
    data::write_file(&root.join("listed/inherits"), 61, 10);
}

/// Owners other than the user of the test, where those can be set.
fn write_owners(root: &Path) {
    data::write_file(&root.join("program"), 70, 4000);
    make_folder(&root.join("shared"), 0o2775);
    if !support::is_root() {
        return;
    }
    chown(root.join("program"), Some(1000), Some(1001)).unwrap();
    lchown(root.join("dangling"), Some(12), Some(13)).unwrap();
    chown(root.join("shared"), None, Some(55)).unwrap();
    for (name, mode) in [("program", 0o4755), ("shared", 0o3775)] {
        fs::set_permissions(root.join(name), Permissions::from_mode(mode)).unwrap();
    }
}

fn make_folder(path: &Path, mode: u32) {
    fs::create_dir(path).unwrap();
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

fn set_time(path: &Path, seconds: i64, nanos: i64) {
    let times = Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        last_modification: Timespec { tv_sec: seconds, tv_nsec: nanos },
    };
    utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}
