//! `--backup-dir`: what is replaced or deleted is kept, beside rsync's; at any moment.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::support::data::write_file;
use crate::support::pairs::{self, Rng, differences, look};
use crate::support::{Scene, each, each_at_once, need, need_root, run};

/// The prefixes of the source and of the destination: local, push and pull.
const WAYS: &[(&str, &str)] = &[("", ""), ("", "far:"), ("far:", "")];

type Tree = BTreeMap<Vec<u8>, String>;

/// A tree without the modes of its folders: those of a backup need not be rsync's.
fn look_kinds(tree: Tree) -> Tree {
    let plain = |what: String| match what.starts_with("folder") {
        true => "folder".to_string(),
        false => what,
    };
    tree.into_iter().map(|(name, what)| (name, plain(what))).collect()
}

/// The trees of a seed, mirrored here and by rsync. False where rsync could not.
fn keeps_as_rsync(seed: u64) -> bool {
    let scene = Scene::new();
    let (from, to) = WAYS[(seed % 3) as usize];
    let backup_dir = [".old", "x/older"][(seed % 2) as usize];
    pairs::lay(seed, &scene.path("src"), &scene.path("dst"));
    pairs::lay(seed, &scene.path("src-too"), &scene.path("rsync"));
    let options = "--delete --backup --filter=P_/.old --filter=P_/x";
    let line = format!("-a {options} --backup-dir={backup_dir} @/src/ @/rsync/");
    let mut rsync = Command::new(need("rsync", "rsync"));
    rsync.args(scene.words(&line));
    let rsync = run::to_end(rsync, b"");
    let line = format!("copy -r --delete --backup-dir {backup_dir} {from}@/src/ {to}@/dst/");
    let ran = scene.run(&line);
    if rsync.code != 0 {
        return false;
    }
    let (ours, theirs) = (look(&scene.path("dst")), look(&scene.path("rsync")));
    let found = differences(&look_kinds(ours), &look_kinds(theirs));
    assert!(ran.code == 0 && found.is_empty(), "seed {seed}: {line}\n{found:#?}\n{ran}");
    let again = scene.succeed(&format!("{line} --json"));
    let end = again.events().pop().unwrap();
    assert_eq!(end["record"]["moved"]["deleted"], 0, "seed {seed}: {again}");
    assert_eq!(end["record"]["moved"]["files"], 0, "seed {seed}: {again}");
    true
}

#[test]
fn backups_are_those_of_rsync() {
    let compared = AtomicU64::new(0);
    each_at_once(&(0..24).collect::<Vec<u64>>(), |seed| {
        compared.fetch_add(u64::from(keeps_as_rsync(*seed)), Relaxed);
    });
    assert!(compared.into_inner() >= 20, "too few could be compared");
}

/// What files of a tree have in them, and where its links lead.
fn contents(tree: &Tree) -> BTreeSet<String> {
    let last = |what: &String| what.rsplit(' ').next().map(str::to_string);
    let is_kept = |what: &&String| what.starts_with("file") || what.starts_with("link");
    tree.values().filter(is_kept).filter_map(last).collect()
}

fn keeps_all_when_killed(seed: u64) {
    let scene = Scene::new();
    let mut rng = Rng::new(seed ^ 0xbac);
    let (from, to) = WAYS[(seed % 3) as usize];
    pairs::lay(seed, &scene.path("src"), &scene.path("dst"));
    let before = contents(&look(&scene.path("dst")));
    let line =
        format!("copy -r --json --rate 2MB --delete --backup-dir .old {from}@/src/ {to}@/dst/");
    let ran = pairs::killed_somewhere(&scene, &line, &mut rng);
    let check = |when: &str| {
        let now = contents(&look(&scene.path("dst")));
        let lost: Vec<_> = before.difference(&now).collect();
        assert!(lost.is_empty(), "seed {seed}, {when}: {lost:?}\n{ran}");
    };
    check("killed");
    scene.succeed(&line);
    check("run again");
    let mut now = look(&scene.path("dst"));
    now.retain(|name, _| !name.starts_with(b".old"));
    let found = differences(&look_kinds(now), &look_kinds(look(&scene.path("src"))));
    let found: Vec<_> = found.iter().filter(|line| !line.contains("pipe")).collect();
    assert!(found.is_empty(), "seed {seed}: {found:#?}");
}

#[test]
fn a_killed_run_has_kept_all() {
    each_at_once(&(0..12).collect::<Vec<u64>>(), |seed| keeps_all_when_killed(*seed));
}

fn lay_small(scene: &Scene) {
    for name in ["src/a", "src/d/b", "dst/a", "dst/d/b", "dst/gone/x"] {
        let path = scene.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        // Of other lengths: they may be of one time.
        let is_old = name.starts_with("dst");
        write_file(&path, 1, if is_old { 100 } else { 90 });
    }
}

/// Without a mirror too, and once more over an older backup; a dry run changes nothing.
#[test]
fn what_is_replaced_is_kept() {
    each(WAYS, |(from, to)| {
        let scene = Scene::new();
        lay_small(&scene);
        let line =
            format!("copy -r --overwrite always --backup-dir old/er {from}@/src/ {to}@/dst/");
        let before = look(&scene.path("dst"));
        scene.succeed(&format!("{line} -n"));
        assert_eq!(look(&scene.path("dst")), before);
        scene.succeed(&line);
        let after = look(&scene.path("dst"));
        for name in ["a", "d/b"] {
            let kept = format!("old/er/{name}");
            assert_eq!(after[kept.as_bytes()], before[name.as_bytes()], "{name}");
        }
        assert!(!after.contains_key(&b"old/er/gone"[..]));
        scene.succeed(&line);
        let last = look(&scene.path("dst"));
        assert_eq!(last[&b"old/er/a"[..]], after[&b"a"[..]]);
        // One file, by another name.
        scene.succeed(&format!(
            "copy --overwrite always --backup-dir old {from}@/src/a {to}@/dst/d/b"
        ));
        assert_eq!(look(&scene.path("dst"))[&b"d/old/b"[..]], last[&b"d/b"[..]]);
    });
}

/// What cannot be: nothing is replaced or deleted then.
#[test]
fn what_has_no_backup_stays() {
    need_root("a tmpfs is mounted");
    let folder_is = |kind: &'static str| {
        move |scene: &Scene| match kind {
            "file" => write_file(&scene.path("dst/old"), 5, 5),
            "link" => symlink("d", scene.path("dst/old")).unwrap(),
            "mount" => {
                fs::create_dir(scene.path("dst/old")).unwrap();
                let mut mount = Command::new(need("mount", "mount"));
                mount.args(["-t", "tmpfs", "-o", "size=1m", "tmpfs"]).arg(scene.path("dst/old"));
                assert!(mount.status().unwrap().success(), "a tmpfs cannot be mounted here");
            }
            "folder" => {
                fs::create_dir_all(scene.path("dst/old/a")).unwrap();
                fs::create_dir_all(scene.path("dst/old/d/b")).unwrap();
                fs::create_dir_all(scene.path("dst/old/gone/x")).unwrap();
            }
            _ => write_file(&scene.path("src/old"), 5, 5),
        }
    };
    let cases = [
        ("file", "is in the way of a backup"),
        ("link", "is in the way of a backup"),
        ("folder", "is in the way of a backup"),
        ("mount", "would be on another file system"),
        ("source", "is the folder of --backup-dir, or in it: leave it out by --exclude"),
    ];
    each(cases.iter().flat_map(|case| WAYS.iter().map(move |way| (case, way))), |(case, way)| {
        let ((kind, says), (from, to)) = (case, way);
        let scene = Scene::new();
        lay_small(&scene);
        folder_is(kind)(&scene);
        let line = format!("copy -r --delete --backup-dir old {from}@/src/ {to}@/dst/");
        let before = look(&scene.path("dst"));
        let ran = scene.run(&line);
        assert_eq!(ran.code, 3, "{kind}: {ran}");
        assert!(ran.stderr.contains(says), "{kind}: {ran}");
        let after = look(&scene.path("dst"));
        if *kind == "mount" {
            let status = Command::new("umount").arg(scene.path("dst/old")).status();
            assert!(status.unwrap().success());
        }
        if *kind == "source" {
            assert!(after.contains_key(&b"gone/x"[..]), "{kind}: {ran}");
        } else {
            let is_user_file = |(name, what): &(&Vec<u8>, &String)| {
                what.starts_with("file") && !name.starts_with(b".datapump-")
            };
            let files = |tree: &Tree| tree.clone().iter().filter(is_user_file).count();
            assert_eq!(files(&after), files(&before), "{kind}: {ran}");
            for name in [&b"a"[..], b"d/b", b"gone/x"] {
                assert_eq!(after[name], before[name], "{kind}: {ran}");
            }
        }
    });
}
