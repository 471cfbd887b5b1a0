//! The far side's program is sent to hosts that have none: real sshds, each on a host of its own
//! kind. `cargo xtask install-matrix` tries all kinds.

use std::fs::{self, File, FileTimes};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;
use std::time::{Duration, SystemTime};

use crate::support::cells::{CELLS, Cell, Copied, FarHost, Near, check};
use crate::support::{PROGRAM, Scene, data, each_at_once, need, need_root, run};

/// The program as it is shipped: with a mover beside it that can be sent. The mover here is the
/// whole program, which is one too. In one place for all runs of the tests.
pub(crate) static SHIPPED: LazyLock<Near> = LazyLock::new(|| {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("shipped");
    fs::create_dir_all(&folder).unwrap();
    let near = Near { program: folder.join("datapump"), own: folder.join(brought()) };
    let strip = need("strip", "binutils");
    for file in [&near.program, &near.own] {
        // Another run of the tests may be running what is there.
        let new = tempfile::NamedTempFile::new_in(&folder).unwrap().into_temp_path();
        let made = Command::new(&strip).arg("-o").arg(&new).arg(PROGRAM).status();
        assert!(made.unwrap().success(), "strip {PROGRAM}");
        fs::set_permissions(&new, fs::Permissions::from_mode(0o755)).unwrap();
        new.persist(file).unwrap();
    }
    near
});

fn brought() -> String {
    format!("datapump-peer-{}", std::env::consts::ARCH)
}

fn need_parts() {
    need_root("hosts are mount namespaces");
    for (program, package) in [
        ("unshare", "util-linux"),
        ("ip", "iproute2"),
        ("sshd", "openssh-server"),
        ("zsh", "zsh"),
        ("fish", "fish"),
        ("tcsh", "tcsh"),
    ] {
        need(program, package);
    }
}

/// The cells that are tried here.
const SHORT: &[&str] = &[
    "bare",
    "login shell zsh",
    "login shell fish",
    "login shell tcsh",
    "bash with a noisy rc file",
    "noexec home",
    "full home",
    "no folder from which programs run",
    "an old datapump",
    "a datapump that fits",
    "another processor",
    "--install never",
    "a forced command",
    "a forced command that starts a datapump",
    "a restricted shell",
    "behind a ProxyJump",
];

#[test]
fn a_far_host_needs_no_datapump() {
    need_parts();
    let cells: Vec<&Cell> = CELLS.iter().filter(|cell| SHORT.contains(&cell.name)).collect();
    assert_eq!(cells.len(), SHORT.len(), "a name in SHORT is of no cell");
    each_at_once(&cells, |cell| {
        let host = FarHost::start(cell, &SHIPPED);
        check(cell, &host, &SHIPPED).unwrap();
    });
}

const IN_OUT: Cell = Cell { key: "environment=\"DATAPUMP_DIR=/mnt/out/sent\"", ..Cell::BARE };

/// A host whose programs can be looked at, after its first copy.
fn host_with_program() -> (FarHost, PathBuf) {
    need_parts();
    let host = FarHost::start(&IN_OUT, &SHIPPED);
    succeeds(&host.copy(&IN_OUT, &SHIPPED, 0), 1);
    let names = names_in(&host.path("out/sent/datapump"));
    let [name] = names.as_slice() else { panic!("{names:?}") };
    let program = host.path("out/sent/datapump").join(name);
    (host, program)
}

fn succeeds(copied: &Copied, sent: usize) {
    assert!(copied.output.status.success(), "{}", copied.words());
    assert_eq!(copied.sent, sent, "{}", copied.words());
    assert_eq!(copied.logins, 1, "{}", copied.words());
}

fn names_in(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<_> = entries.map(|name| name.into_string().unwrap()).collect();
    names.sort();
    names
}

/// Its folder and the program are the user's alone, whatever the account's umask.
#[test]
fn what_is_sent_is_private_and_checked_at_every_use() {
    let (host, program) = host_with_program();
    for path in [program.as_path(), program.parent().unwrap()] {
        assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o7777, 0o700);
    }
    let whole = fs::read(&program).unwrap();
    // A byte of its text, a lost end, nothing at all (which a shell runs), and another program.
    let mut flipped = whole.clone();
    let at = flipped.windows(17).position(|bytes| bytes == b"what arrived is d").unwrap();
    flipped[at] ^= 1;
    let damages = [flipped, whole[..whole.len() / 2].to_vec(), Vec::new(), b"#!/bin/sh\n".to_vec()];
    for (number, damaged) in damages.into_iter().enumerate() {
        fs::write(&program, damaged).unwrap();
        succeeds(&host.copy(&IN_OUT, &SHIPPED, number + 1), 1);
        assert!(fs::read(&program).unwrap() == whole, "damage {number}");
    }
}

/// Programs of earlier versions go when they were not used for 30 days, but for the newest two.
#[test]
fn what_is_not_used_is_removed() {
    let (host, program) = host_with_program();
    let folder = host.path("out/sent/datapump");
    let name = program.file_name().unwrap().to_str().unwrap().to_string();
    let old = |name: &str, days: u64| {
        let used = SystemTime::now() - Duration::from_secs(days * 24 * 3600);
        let file = File::options().write(true).open(folder.join(name)).unwrap();
        file.set_times(FileTimes::new().set_modified(used)).unwrap();
    };
    for (other, days) in [
        ("datapump-peer-0.0.1-0123456789abcdef", 100),
        ("datapump-peer-0.0.2-0123456789abcdef", 50),
        ("datapump-0.0.3-0123456789abcdef", 40),
        (".new-0123abcd", 2),
        (".new-config", 400),
        ("notes", 400),
    ] {
        fs::write(folder.join(other), "").unwrap();
        let owner = fs::metadata(&program).unwrap();
        std::os::unix::fs::chown(folder.join(other), Some(owner.uid()), None).unwrap();
        old(other, days);
    }
    old(&name, 400);
    // Of somebody else.
    let strangers = "datapump-0.0.4-0123456789abcdef";
    fs::write(folder.join(strangers), "").unwrap();
    old(strangers, 400);
    succeeds(&host.copy(&IN_OUT, &SHIPPED, 1), 0);
    let mut kept =
        vec![".new-config", "datapump-0.0.3-0123456789abcdef", strangers, &name, "notes"];
    kept.sort_unstable();
    assert_eq!(names_in(&folder), kept);
}

/// A folder that is there already stays as it is, with all in it.
#[test]
fn a_folder_of_the_user_stays_as_it_is() {
    need_parts();
    let host = FarHost::start(&IN_OUT, &SHIPPED);
    let folder = host.path("out/sent");
    fs::create_dir(&folder).unwrap();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
    let old = SystemTime::now() - Duration::from_secs(3 * 24 * 3600);
    for name in [".new-config", ".new-0123abcd", "datapump-0.0.1-0123456789abcdef"] {
        let file = File::create(folder.join(name)).unwrap();
        file.set_times(FileTimes::new().set_modified(old)).unwrap();
    }
    let owner = fs::metadata(host.path("out")).unwrap();
    std::os::unix::fs::chown(&folder, Some(owner.uid()), Some(owner.gid())).unwrap();
    succeeds(&host.copy(&IN_OUT, &SHIPPED, 0), 1);
    succeeds(&host.copy(&IN_OUT, &SHIPPED, 1), 0);
    assert_eq!(fs::metadata(&folder).unwrap().permissions().mode() & 0o7777, 0o755);
    let names = [".new-0123abcd", ".new-config", "datapump", "datapump-0.0.1-0123456789abcdef"];
    assert_eq!(names_in(&folder), names);
    assert_eq!(fs::metadata(folder.join("datapump")).unwrap().permissions().mode() & 0o777, 0o700);
}

/// No lock is held: each has its own temporary file, and the last rename wins.
#[test]
fn several_first_copies_at_once() {
    need_parts();
    let host = FarHost::start(&IN_OUT, &SHIPPED);
    each_at_once(&[0, 1, 2, 3], |number| {
        let copied = host.copy(&IN_OUT, &SHIPPED, *number);
        assert!(copied.output.status.success(), "{}", copied.words());
    });
    assert_eq!(names_in(&host.path("out/sent/datapump")).len(), 1);
}

/// A pull, a net test and `doctor`, which wants the whole program.
#[test]
fn other_commands_send_what_they_need() {
    need_parts();
    let host = FarHost::start(&IN_OUT, &SHIPPED);
    data::write_file(&host.path("out/there"), 1, 100_000);
    fs::set_permissions(host.path("out/there"), fs::Permissions::from_mode(0o644)).unwrap();
    let here = host.path("here");
    let pull = format!("copy --no-record cell:/mnt/out/there {}", here.display());
    // In each: whether a program is sent.
    let lines = [(pull.as_str(), true), ("net-test --time 1 cell", false), ("doctor cell", true)];
    for (line, sends) in lines {
        let mut command = Command::new(&SHIPPED.program);
        command.args(line.split(' ')).arg("--ssh").arg(host.ssh());
        command.env("XDG_STATE_HOME", host.path("state")).env("XDG_DATA_HOME", host.path("state"));
        let ran = run::to_end(command, b"");
        assert!(ran.code <= 1, "{line}\n{ran}");
        assert_eq!(ran.stderr.contains(": sending "), sends, "{line}\n{ran}");
    }
    data::assert_same(&host.path("out/there"), &here);
}

/// A mover that was linked for other hosts is not tried in every folder.
#[test]
fn a_program_that_does_not_run_there() {
    need_parts();
    let folder = tempfile::tempdir().unwrap();
    let near = Near { program: folder.path().join("datapump"), own: SHIPPED.own.clone() };
    fs::hard_link(&SHIPPED.program, &near.program)
        .or_else(|_| fs::copy(&SHIPPED.program, &near.program).map(drop))
        .unwrap();
    let mover = folder.path().join(brought());
    let host = FarHost::start(&IN_OUT, &near);
    let cases = [
        ("#!/nowhere/loader\n", "its dynamic loader is not there"),
        ("#!/bin/sh\nexit 9\n", "exit code 9"),
    ];
    for (number, (text, why)) in cases.into_iter().enumerate() {
        fs::write(&mover, text).unwrap();
        let copied = host.copy(&IN_OUT, &near, number);
        let words = copied.words();
        assert_eq!(copied.output.status.code(), Some(8), "{words}");
        assert_eq!(copied.sent, 1, "{words}");
        for part in ["does not run at cell", why, "statically linked"] {
            assert!(words.contains(part), "{part}: {words}");
        }
        assert_eq!(names_in(&host.path("out/sent/datapump")), Vec::<String>::new());
    }
}

#[test]
fn options_that_contradict() {
    let scene = Scene::new();
    let line = "copy --install always --remote-datapump there @/file far:";
    let ran = scene.run(line);
    assert_eq!(ran.code, 2, "{ran}");
    assert!(ran.stderr.contains("leave one out"), "{ran}");
}
