//! Folders that a copy creates: closed to other users until they are complete, then with the mode
//! and time of their sources, also when another run completes them.

use crate::support;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

use crate::support::data::{self, write_file};
use crate::support::processes;
use crate::support::{Scene, each, run, until};
use rustix::process::Signal;

/// Folders below the source, in the order in which they get their times, and their modes.
const FOLDERS: [(&str, u32); 5] = [
    ("src/open/in", 0o777),
    ("src/open", 0o775),
    ("src/shut", 0o500),
    ("src/own", 0o700),
    ("src", 0o755),
];
const UMASK: u32 = 0o027;

/// Which process is killed during a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Killed {
    Nobody,
    /// Who was typed: the same command ends it.
    Near,
    /// The far side: the same run ends it.
    Far,
    /// Ctrl-C.
    Interrupted,
}

#[derive(Clone, Copy, Debug)]
struct Case {
    from: &'static str,
    to: &'static str,
    killed: Killed,
    options: &'static str,
    /// The destination is a new folder, or one that is there.
    is_new: bool,
}

fn cases(from: &'static str, to: &'static str) -> Vec<Case> {
    let mut cases = Vec::new();
    for killed in [Killed::Nobody, Killed::Near, Killed::Far, Killed::Interrupted] {
        if killed == Killed::Far && !from.starts_with("far") && !to.starts_with("far") {
            continue;
        }
        for options in ["", "--no-preserve", "--archive"] {
            cases.push(Case { from, to, killed, options, is_new: true });
            if matches!(killed, Killed::Nobody | Killed::Near) {
                cases.push(Case { from, to, killed, options, is_new: false });
            }
        }
    }
    cases
}

#[test]
fn new_folders_are_closed_until_all_is_in_them() {
    check_new_folders("@/", "@/");
}

#[test]
fn new_folders_at_the_far_side() {
    check_new_folders("@/", "far:@/");
}

#[test]
fn new_folders_from_the_far_side() {
    check_new_folders("far:@/", "@/");
}

/// They are closed until complete, and like their sources then, whichever process was killed.
fn check_new_folders(from: &'static str, to: &'static str) {
    each(cases(from, to), |case| {
        let scene = Scene::new();
        make_source(&scene);
        if !case.is_new {
            fs::create_dir_all(scene.path("dst/open")).unwrap();
            set_mode(&scene.path("dst/open"), 0o750);
            set_mode(&scene.path("dst"), 0o751);
        }
        let Case { from, to, options, .. } = case;
        let ends = format!("{from}src/ {to}dst");
        let line = format!("copy -r {options} --retry-for 60 {ends}");
        if case.killed != Killed::Nobody {
            break_off(
                &scene,
                *case,
                &format!("copy -r {options} --retry-for 60 --rate 1MB {ends}"),
            );
        }
        if case.killed != Killed::Far {
            let ran = run::to_end(under_umask(&scene, &line), b"");
            assert_eq!(ran.code, 0, "{line}\n{ran}");
        }
        check_folders(&scene, *case);
        data::assert_same(&scene.path("src"), &scene.path("dst"));
        let left = data::files_below(&scene.path("dst"));
        assert!(!left.iter().any(|path| path.to_string_lossy().contains(".datapump-")), "{left:?}");
    });
}

fn make_source(scene: &Scene) {
    for (folder, _) in FOLDERS {
        fs::create_dir_all(scene.path(folder)).unwrap();
    }
    write_file(&scene.path("src/open/first"), 1, 1000);
    write_file(&scene.path("src/open/in/long"), 2, 2 << 20);
    write_file(&scene.path("src/shut/last"), 3, 1000);
    let long_ago = SystemTime::UNIX_EPOCH + Duration::from_secs(1_500_000_000);
    for (number, (folder, mode)) in (0..).zip(FOLDERS) {
        let then = long_ago + Duration::from_secs(number);
        fs::File::open(scene.path(folder)).unwrap().set_modified(then).unwrap();
        set_mode(&scene.path(folder), mode);
    }
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// Runs under a umask, here and at the far side.
fn under_umask(scene: &Scene, line: &str) -> Command {
    let _ = fs::remove_file(scene.far_program());
    scene.script("far-datapump", &format!("umask {UMASK:o}\nexec \"$0.there\" \"$@\""));
    let there = scene.path("far-datapump.there");
    let _ = fs::remove_file(&there);
    std::os::unix::fs::symlink(support::PROGRAM, there).unwrap();
    let plain = scene.command(&scene.words(line));
    let mut command = Command::new("sh");
    command.args(["-c", &format!("umask {UMASK:o}; exec \"$@\""), "sh"]);
    command.arg(plain.get_program()).args(plain.get_args());
    command
}

/// Waits until some of the long file has arrived, looks at the folders, and kills a process.
fn break_off(scene: &Scene, case: Case, line: &str) {
    let running = run::start(under_umask(scene, line));
    let dst = scene.path("dst");
    until("the folder", || dst.join("open/in").exists());
    data::wait_for_flush(&dst);
    for folder in ["", "open", "open/in"] {
        let was_there = !case.is_new && folder != "open/in";
        let mode = fs::metadata(dst.join(folder)).unwrap().mode() & 0o777;
        assert!(was_there || mode == 0o700, "{line}: '{folder}' has mode {mode:o} under way");
    }
    match case.killed {
        Killed::Near => processes::send(running.pid(), Signal::KILL),
        Killed::Interrupted => processes::send(running.pid(), Signal::INT),
        Killed::Far => {
            let far = processes::named_exactly(&scene.path("far-datapump.there"));
            assert!(!far.is_empty(), "no far side is seen");
            far.iter().for_each(|pid| processes::send(*pid, Signal::KILL));
        }
        Killed::Nobody => unreachable!("nobody is killed"),
    }
    let ran = running.end();
    assert_eq!(ran.code == 0, case.killed == Killed::Far, "{line}\n{ran}");
    until("its other processes end", || scene.far_processes().is_empty());
}

fn check_folders(scene: &Scene, case: Case) {
    for (folder, mode) in FOLDERS {
        let inside = folder.trim_start_matches("src").trim_start_matches('/');
        let there = fs::metadata(scene.path("dst").join(inside)).unwrap();
        let was_there = !case.is_new && ["", "open"].contains(&inside);
        let keeps = was_there
            && (case.options == "--no-preserve" || (inside.is_empty() && case.options.is_empty()));
        let expect = match (keeps, inside, case.options) {
            (true, "", _) => 0o751,
            (true, _, _) => 0o750,
            (false, _, "--no-preserve") => mode & !UMASK,
            (false, ..) => mode,
        };
        assert_eq!(
            format!("{:o}", there.mode() & 0o7777),
            format!("{expect:o}"),
            "'{inside}' {case:?}"
        );
        if !keeps && case.options != "--no-preserve" {
            let source = fs::metadata(scene.path(folder)).unwrap();
            assert_eq!(
                there.modified().unwrap(),
                source.modified().unwrap(),
                "'{inside}' {case:?}"
            );
        }
    }
}

/// A new folder without a folder at the source has the default mode.
#[test]
fn a_folder_for_several_things_has_a_plain_mode() {
    let targets = ["@/dst/", "far:@/dst/"];
    let sources = ["@/one", "@/one @/src", "@/src"];
    let cases = targets.iter().flat_map(|to| sources.iter().map(move |from| (to, from)));
    each(cases, |(to, from)| {
        let scene = Scene::new();
        make_source(&scene);
        write_file(&scene.path("one"), 3, 1000);
        let line = format!("copy -r {from} {to}");
        let ran = run::to_end(under_umask(&scene, &line), b"");
        assert_eq!(ran.code, 0, "{line}\n{ran}");
        let mode = fs::metadata(scene.path("dst")).unwrap().mode() & 0o7777;
        assert_eq!(mode, 0o777 & !UMASK, "{line}: {mode:o}");
    });
}
