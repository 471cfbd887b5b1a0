//! Who files belong to: names, numbers and rules, beside rsync's; and what is refused.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, lchown, symlink};
use std::path::Path;
use std::process::Command;

use base::attributes::Attributes;
use base::fault::Class;
use mover::wire::manifest::Entry;
use mover::wire::message::Origin;

use crate::support::data::write_file;
use crate::support::liar::{self, file, offer};
use crate::support::{Scene, each, need, need_root, run};

/// The prefixes of the source and of the destination: local, push and pull.
const WAYS: &[(&str, &str)] = &[("", ""), ("", "far:"), ("far:", "")];

/// Options here, and those of rsync that mean the same.
const CELLS: &[(&str, &str)] = &[
    ("", "-rlpt"),
    ("-A", "-a"),
    ("-A --numeric-ids", "-a --numeric-ids"),
    ("-A --chown games:mail", "-a --chown=games:mail"),
    ("--chown games:mail", "-rlpt --chown=games:mail"),
    ("--chown games", "-rlpt --chown=games"),
    ("--chown :12345", "-rlpt --chown=:12345"),
    (
        "-A --usermap bin:games,54321:daemon,*:nobody",
        "-a --usermap=bin:games,54321:daemon,*:nobody",
    ),
    (
        "-A --usermap :games --groupmap daemon:mail,*:bin",
        "-a --usermap=:games --groupmap=daemon:mail,*:bin",
    ),
    ("--usermap 0-9:1,n*:0", "-rlpt --usermap=0-9:1,n*:0"),
    ("--groupmap [a-d]*:8,?o*:9", "-rlpt --groupmap=[a-d]*:8,?o*:9"),
    ("-A --usermap root:games --groupmap 0:games", "-a --usermap=root:games --groupmap=0:games"),
    (
        "-A --numeric-ids --usermap bin:games,2:5,*:6",
        "-a --numeric-ids --usermap=bin:games,2:5,*:6",
    ),
];

/// Files, a link, folders and another name of a file, of several users and groups.
fn lay(root: &Path) {
    let owners = [
        ("", 0, 0),
        ("root", 0, 0),
        ("d", 2, 8),
        ("d/bin", 2, 1),
        ("d/nobody", 65534, 2),
        ("d/nameless", 54321, 54322),
        ("d/e", 1, 65534),
        ("d/e/large", 3, 3),
    ];
    fs::create_dir_all(root.join("d/e")).unwrap();
    symlink("bin", root.join("d/link")).unwrap();
    for (name, uid, gid) in owners {
        let path = root.join(name);
        if !path.is_dir() {
            write_file(&path, 1, if name.ends_with("large") { 3 << 20 } else { 100 });
        }
        chown(&path, Some(uid), Some(gid)).unwrap();
    }
    lchown(root.join("d/link"), Some(5), Some(60)).unwrap();
    fs::hard_link(root.join("d/bin"), root.join("d/twin")).unwrap();
}

/// User and group of all that is there.
fn owners(root: &Path) -> BTreeMap<String, (u32, u32)> {
    let mut found = BTreeMap::new();
    let mut open = vec![root.to_path_buf()];
    while let Some(path) = open.pop() {
        let meta = fs::symlink_metadata(&path).unwrap();
        if meta.is_dir() {
            open.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
        let name = path.strip_prefix(root).unwrap().display().to_string();
        found.insert(name, (meta.uid(), meta.gid()));
    }
    found
}

#[test]
fn owners_are_those_of_rsync() {
    need_root("files are given to other users");
    let cases = CELLS.iter().flat_map(|cell| WAYS.iter().map(move |way| (cell, way)));
    each(cases, |((ours, theirs), (from, to))| {
        let scene = Scene::new();
        lay(&scene.path("src"));
        scene.succeed(&format!("copy -r {ours} {from}@/src/ {to}@/dst"));
        let mut rsync = Command::new(need("rsync", "rsync"));
        rsync.args(scene.words(&format!("{theirs} @/src/ @/rsync/")));
        let rsync = run::to_end(rsync, b"");
        assert_eq!(rsync.code, 0, "{rsync}");
        assert_eq!(owners(&scene.path("dst")), owners(&scene.path("rsync")), "{ours}");
    });
}

/// In a mirror what is unchanged gets its owner too, and its mode stays whole.
#[test]
fn a_mirror_gives_what_is_there_to_whom_it_belongs() {
    need_root("files are given to other users");
    each(WAYS, |(from, to)| {
        let scene = Scene::new();
        lay(&scene.path("src"));
        let program = fs::Permissions::from_mode(0o4755);
        fs::set_permissions(scene.path("src/d/bin"), program).unwrap();
        let line = format!("copy -r -A --delete --json {from}@/src/ {to}@/dst");
        scene.succeed(&line);
        let rules = "--usermap bin:games,*:daemon --groupmap 8:9";
        let ran = scene.succeed(&format!("{line} {rules}"));
        let end = ran.events().pop().unwrap();
        assert_eq!(end["record"]["moved"]["files"], 0, "{ran}");
        assert_eq!(end["record"]["options"]["usermap"], "bin:games,*:daemon");
        let mut rsync = Command::new(need("rsync", "rsync"));
        let rules = "--usermap=bin:games,*:daemon --groupmap=8:9";
        rsync.args(scene.words(&format!("-aH --delete {rules} @/src/ @/rsync/")));
        assert_eq!(run::to_end(rsync, b"").code, 0);
        assert_eq!(owners(&scene.path("dst")), owners(&scene.path("rsync")));
        let mode = fs::metadata(scene.path("dst/d/bin")).unwrap().mode();
        assert_eq!(mode & 0o7777, 0o4755);
    });
}

/// The far side in a mount namespace where other users have these names and numbers.
fn far_with_other_accounts(scene: &Scene) {
    let passwd = "root:x:0:0::/root:/bin/sh\nbin:x:7002:7002::/:\nzoe:x:7003:7003::/:\n\
                  games:x:2:2::/:\n";
    fs::write(scene.path("passwd"), passwd).unwrap();
    fs::write(scene.path("group"), "root:x:0:\nmail:x:7008:\nother:x:8:\n").unwrap();
    let folder = scene.path("").display().to_string();
    let unshare = need("unshare", "util-linux").display().to_string();
    scene.far_script(&format!(
        "exec {unshare} --mount sh -c 'mount --bind {folder}/passwd /etc/passwd && \
         mount --bind {folder}/group /etc/group && exec \"$@\"' sh $PROGRAM \"$@\""
    ));
}

/// Names count, not numbers, where the two hosts have different ones.
#[test]
fn names_are_looked_up_on_both_hosts() {
    need_root("the far side gets other accounts");
    // Options, then for a push and a pull: owners of root, d, d/e/large (sys:sys), d/nameless.
    type Four = [(u32, u32); 4];
    let cases: [(&str, Four, Four); 5] = [
        (
            "-A",
            [(0, 0), (7002, 7008), (3, 3), (54321, 54322)],
            [(0, 0), (5, 8), (3, 3), (54321, 54322)],
        ),
        (
            "-A --numeric-ids",
            [(0, 0), (2, 8), (3, 3), (54321, 54322)],
            [(0, 0), (2, 8), (3, 3), (54321, 54322)],
        ),
        (
            "--usermap bin:root,*:65534",
            [(65534, 0), (0, 0), (65534, 0), (65534, 0)],
            [(65534, 0), (65534, 0), (65534, 0), (65534, 0)],
        ),
        (
            "-A --usermap games:0,:1 --groupmap other:1",
            [(0, 0), (7002, 7008), (3, 3), (1, 54322)],
            [(0, 0), (0, 1), (1, 3), (1, 54322)],
        ),
        (
            "--chown games:mail",
            [(2, 7008), (2, 7008), (2, 7008), (2, 7008)],
            [(5, 8), (5, 8), (5, 8), (5, 8)],
        ),
    ];
    let cases = cases.iter().flat_map(|case| [true, false].map(|is_push| (case, is_push)));
    each(cases, |((options, push, pull), is_push)| {
        let scene = Scene::new();
        lay(&scene.path("src"));
        far_with_other_accounts(&scene);
        let (from, to, expect) = if *is_push { ("", "far:", push) } else { ("far:", "", pull) };
        scene.succeed(&format!("copy -r {options} {from}@/src/ {to}@/dst"));
        let found = owners(&scene.path("dst"));
        let names = ["root", "d", "d/e/large", "d/nameless"];
        assert_eq!(names.map(|name| found[name]), *expect, "{options}");
    });
}

/// What comes from a pipe or is generated has no owner, and goes to whom gets all.
#[test]
fn a_pipe_is_given_away() {
    need_root("files are given to other users");
    each(["", "far:"], |to| {
        let scene = Scene::new();
        for (source, name) in [("-", "piped"), ("zero:0", "empty"), ("zero:100", "zeros")] {
            let line = format!("copy --chown games:mail {source} {to}@/{name}");
            let ran = run::to_end(scene.command(&scene.words(&line)), b"bytes");
            assert_eq!(ran.code, 0, "{ran}");
            let meta = fs::metadata(scene.path(name)).unwrap();
            assert_eq!((meta.uid(), meta.gid()), (5, 8), "{name}");
        }
    });
}

/// Nothing is made where somebody is named whom the destination does not have.
#[test]
fn an_unknown_name_is_refused_first() {
    let cases = [
        ("--chown no-such-user", "there is no user 'no-such-user' at the destination"),
        ("--chown :no-such-group", "there is no group 'no-such-group' at the destination"),
        ("--usermap a:0,b:nowhere", "at the destination for the rule 'b:nowhere'"),
        ("-n --groupmap *:nowhere", "there is no group 'nowhere' at the destination"),
    ];
    each(cases.iter().flat_map(|case| WAYS.iter().map(move |way| (case, way))), |(case, way)| {
        let ((options, says), (from, to)) = (case, way);
        let scene = Scene::new();
        fs::create_dir(scene.path("src")).unwrap();
        write_file(&scene.path("src/a"), 1, 10);
        let ran = scene.run(&format!("copy -r --mkpath {options} {from}@/src {to}@/new/dst"));
        assert_eq!(ran.code, 2, "{ran}");
        assert!(ran.stderr.contains(says), "{ran}");
        assert!(!scene.path("new").exists());
    });
}

/// Who is not root keeps their own files, with a warning, and can give them to their groups.
#[test]
fn others_than_root_are_told() {
    need_root("setpriv makes a process of another user");
    let scene = Scene::new();
    fs::create_dir(scene.path("src")).unwrap();
    write_file(&scene.path("src/a"), 1, 10);
    let open = fs::Permissions::from_mode(0o777);
    fs::create_dir(scene.path("to")).unwrap();
    fs::set_permissions(scene.path("to"), open).unwrap();
    let cases = [
        ("--chown games:mail", true, (65534, 8)),
        ("--chown :mail", false, (65534, 8)),
        ("--chown :games", true, (65534, 65534)),
        ("--chown nobody", false, (65534, 65534)),
    ];
    for (number, (options, warns, owner)) in cases.into_iter().enumerate() {
        let mut command = Command::new(need("setpriv", "util-linux"));
        command.args(["--reuid", "65534", "--regid", "65534", "--groups", "8"]);
        command.arg(scene.program_for_all());
        let line = format!("copy -r {options} @/src/ @/to/{number}");
        let ran = run::to_end(with(command, scene.words(&line)), b"");
        assert_eq!(ran.code, 0, "{ran}");
        assert_eq!(ran.stderr.contains("owner and group are not kept"), warns, "{options}: {ran}");
        assert_eq!(owners(&scene.path(format!("to/{number}")))["a"], owner, "{options}: {ran}");
    }
}

fn with(mut command: Command, words: Vec<OsString>) -> Command {
    command.args(words);
    command
}

/// Names that a far source sends where nobody asked for them, or twice.
#[test]
fn a_far_source_names_owners_as_it_may() {
    let named = |path: &str, user: &str| {
        let attributes = Attributes { uid: 7, user: user.into(), ..Attributes::default() };
        Entry { attributes: Some(attributes.into()), ..file(path, 0) }
    };
    let cases = [
        ("-r", vec![named("tree/a", "bin")]),
        ("-r -A --numeric-ids", vec![named("tree/a", "bin")]),
        ("-r -A", vec![named("tree/a", "bin"), named("tree/b", "bin")]),
    ];
    each(cases, |(options, entries)| {
        let scene = Scene::new();
        let origin = Origin { single: false, endless: false };
        let line = format!("{options} 127.0.0.1:tree @/dst");
        let folder = Entry { kind: mover::wire::manifest::EntryKind::Directory, ..file("tree", 0) };
        let all: Vec<Entry> = [folder].into_iter().chain(entries.clone()).collect();
        let (ran, _) = liar::against_near(&scene, &line, Some(origin), &[offer(all)]);
        assert_eq!(ran.code, Class::Peer.exit_code() as i32, "{ran}");
    });
}
