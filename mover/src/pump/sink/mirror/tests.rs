use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use super::*;
use crate::io::disk::Disk;
use crate::pump::sink::Root;

/// A name in a table: `d/` is a folder, `l@` a link, `p|` a pipe, anything else a file.
fn make(root: &Path, word: &str) {
    let path = root.join(word.trim_end_matches(['/', '@', '|']));
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    match word.chars().last() {
        Some('/') => fs::create_dir_all(path).unwrap(),
        Some('@') => symlink("elsewhere", path).unwrap(),
        Some('|') => {
            let mode = rustix::fs::Mode::RUSR;
            rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0)
                .unwrap();
        }
        _ => fs::write(path, word).unwrap(),
    }
}

fn entries(words: &str) -> Vec<Entry> {
    let entry = |word: &str| {
        let (kind, is_root) = match word.chars().last() {
            Some('/') => (EntryKind::Directory, word.starts_with('s')),
            Some('@') => (EntryKind::Link, false),
            Some('=') => (EntryKind::Leave, true),
            _ => (EntryKind::File, false),
        };
        let path = word.trim_end_matches(['/', '@', '=']).as_bytes().to_vec();
        Entry { kind, path, is_root, ..Entry::default() }
    };
    words.split_whitespace().map(entry).collect()
}

fn all_below(root: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut open = vec![root.to_path_buf()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
            if entry.file_type().unwrap().is_dir() {
                open.push(entry.path());
            }
            let path = entry.path();
            found.push(path.strip_prefix(root).unwrap().to_str().unwrap().to_string());
        }
    }
    found.sort();
    found
}

fn mirror(root: &Path, settings: &Settings) -> Mirror {
    let volume: Arc<dyn Volume> = Arc::new(Disk::open(root).unwrap());
    let target = Target::Tree { volume, rename: None, root: Root::FOUND };
    Mirror::of(&target, settings, "00c0ffee", Backup::of(&target, settings)).unwrap().unwrap()
}

/// Does all that is due; returns what it says.
fn run(mut mirror: Mirror) -> Removed {
    let mut all = Removed::default();
    let mut rest = match mirror.due().expect("it was not done yet") {
        Due::Remove(pass) => Some(pass),
        other => panic!("{other:?}"),
    };
    while let Some(pass) = rest.take() {
        let Step { removed, rest: more } = pass.step();
        all.paths.extend(removed.paths);
        all.failed.extend(removed.failed);
        all.warnings.extend(removed.warnings);
        rest = more;
    }
    all
}

fn settings(filters: &[&str]) -> Settings {
    let filters = filters.iter().map(|line| line.to_string()).collect();
    Settings { delete: Delete::On, overwrite: Overwrite::Always, filters, ..Settings::default() }
}

/// What is here, what the source has, what filters leave out, and what is left.
#[test]
fn what_the_source_does_not_have_goes() {
    let journal = ".datapump-0123456789abcdef.journal";
    let own = "x/.datapump-00c0ffee-1.part";
    let other = "x/.datapump-00000001-1.part";
    let with_folder = format!("x {other}");
    let cases: &[(&str, &str, &[&str], &str)] = &[
        ("a b", "a =", &[], "a"),
        ("a b d/c d/e/f", "a d/ d/c =", &[], "a d d/c"),
        ("d/e/f d/e/g", "d/ =", &[], "d"),
        ("l@ m@ p|", "l@ =", &[], "l"),
        // Only what is below a folder that was named as a source.
        ("s/a s/b t/a u", "s/ s/a s=", &[], "s s/a t t/a u"),
        ("s/a s/b sx/b sx/c u", "s/ s/a s= sx/ sx/c sx=", &[], "s s/a sx sx/c u"),
        ("s/a s/b t/b u", "s/ s/b x = s=", &[], "s s/b"),
        // Nothing below what is no folder at the source.
        ("d/x", "d =", &[], "d d/x"),
        // Filters count from the source.
        ("a.o b d/c.o d/e f/g.o f/h", "d/ =", &["*.o"], "a.o d d/c.o f f/g.o"),
        (
            "build/x s/build/x s/d/build/y",
            "s/ s/z s=",
            &["/build"],
            "build build/x s s/build s/build/x",
        ),
        ("tmp d/tmp/x", "d/ =", &["tmp/"], "d d/tmp d/tmp/x"),
        ("a.o keep.o", "z =", &["*.o", "!keep.o"], "a.o"),
        // Names of datapump's own.
        (journal, "z =", &[], journal),
        (own, "z =", &[], ""),
        (other, "z =", &[], &with_folder[..]),
        ("", "=", &[], ""),
    ];
    for (here, source, filters, left) in cases {
        let scene = tempfile::tempdir().unwrap();
        here.split_whitespace().for_each(|word| make(scene.path(), word));
        let before = all_below(scene.path());
        let mut mirror = mirror(scene.path(), &settings(filters));
        mirror.note(&entries(source));
        let removed = run(mirror);
        let about = format!("{here}: {source}: {removed:?}");
        assert!(removed.failed.is_empty(), "{about}");
        let after = all_below(scene.path());
        assert_eq!(after.join(" "), *left, "{about}");
        let gone = before.len() - after.len();
        let own = usize::from(before.iter().any(|name| name == own));
        assert_eq!(removed.paths.len(), gone - own, "{about}");
    }
}

#[test]
fn nothing_goes_where_something_lacks_or_there_is_too_much() {
    let scene = tempfile::tempdir().unwrap();
    ["a", "d/b", "d/c"].iter().for_each(|word| make(scene.path(), word));
    let all = all_below(scene.path());
    let mut lacking = mirror(scene.path(), &settings(&[]));
    lacking.note(&entries("="));
    lacking.note_lacking();
    assert!(matches!(lacking.due(), Some(Due::Nothing(_))));
    assert!(lacking.due().is_none(), "it is due once");
    for (most, goes) in [(0, false), (3, false), (4, true)] {
        let mut mirror =
            mirror(scene.path(), &Settings { delete_max: Some(most), ..settings(&[]) });
        mirror.note(&entries("="));
        let removed = run(mirror);
        assert_eq!(removed.failed.is_empty(), goes, "{most}: {removed:?}");
        let left = all_below(scene.path());
        assert_eq!(left, if goes { Vec::new() } else { all.clone() }, "{most}");
        assert_eq!(removed.paths.len(), if goes { 4 } else { 0 });
    }
    let mut forgets = mirror(scene.path(), &Settings { memory_bytes: 8, ..settings(&[]) });
    forgets.note(&entries("a b ="));
    assert!(matches!(forgets.due(), Some(Due::Refused(_))));
}

/// What a dry run tells is what a real run removes, and nothing has changed.
#[test]
fn a_dry_run_tells_the_same() {
    let scene = tempfile::tempdir().unwrap();
    ["a", "d/b", "d/e/c", "f.o", "g/h.o"].iter().for_each(|word| make(scene.path(), word));
    let told = |dry_run| {
        let mut mirror = mirror(scene.path(), &Settings { dry_run, ..settings(&["*.o"]) });
        mirror.note(&entries("d/ ="));
        mirror.note_present(&[b"a".to_vec()]);
        let mut paths = run(mirror).paths;
        paths.sort();
        paths
    };
    let before = all_below(scene.path());
    let dry = told(true);
    assert_eq!(all_below(scene.path()), before);
    assert_eq!(dry, [&b"d/b"[..], b"d/e", b"d/e/c"]);
    assert_eq!(told(false), dry);
}

/// Times and modes of folders stay, and what was a folder and became a link is not entered.
#[test]
fn folders_stay_as_they_are() {
    let scene = tempfile::tempdir().unwrap();
    ["d/a", "d/b", "out/x"].iter().for_each(|word| make(scene.path(), word));
    let folder = scene.path().join("d");
    let then = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o555)).unwrap();
    fs::File::open(&folder).unwrap().set_modified(then).unwrap();
    let mut mirror = mirror(scene.path(), &settings(&[]));
    mirror.note(&entries("d/ d/a out/ out/x l/ ="));
    symlink("out", scene.path().join("l")).unwrap();
    let removed = run(mirror);
    assert_eq!(removed.paths, [b"d/b"]);
    let meta = fs::metadata(&folder).unwrap();
    assert_eq!((meta.mode() & 0o777, meta.modified().unwrap()), (0o555, then));
    let disk = Disk::open(scene.path()).unwrap();
    assert!(disk.clear(b"l/x", StatusKind::File).is_err(), "through a link");
    assert!(disk.names_in(b"l", &mut |_, _| panic!("through a link")).is_err());
    disk.clear(b"l", StatusKind::Link).unwrap();
    assert!(scene.path().join("out/x").exists());
}

#[test]
fn a_folder_makes_way_whole_or_not_at_all() {
    for (here, filters, goes) in [("x/a x/b/c", &[][..], true), ("x/a x/b.o", &["*.o"], false)] {
        let scene = tempfile::tempdir().unwrap();
        here.split_whitespace().for_each(|word| make(scene.path(), word));
        let before = all_below(scene.path());
        let mut mirror = mirror(scene.path(), &settings(filters));
        mirror.note(&entries("x"));
        let obstacles = mirror.obstacles().unwrap().clone();
        obstacles.check(b"x", StatusKind::Directory).unwrap();
        assert_eq!(obstacles.remove(b"x").is_ok(), goes);
        let after = all_below(scene.path());
        assert_eq!(after, if goes { Vec::new() } else { before.clone() }, "{here}");
        assert_eq!(obstacles.take_removed().len(), before.len() - after.len());
    }
    let scene = tempfile::tempdir().unwrap();
    make(scene.path(), "x/a");
    let counting = mirror(scene.path(), &Settings { delete_max: Some(9), ..settings(&[]) });
    let obstacles = counting.obstacles().unwrap();
    assert!(obstacles.check(b"x", StatusKind::Directory).is_err());
    assert!(obstacles.check(b"x/a", StatusKind::File).is_ok());
    let never = Settings { overwrite: Overwrite::Never, ..settings(&[]) };
    assert!(mirror(scene.path(), &never).obstacles().is_none());
}

/// Where the source is empty its mount may be away. What is here, what the source has, and whether
/// all stays.
#[test]
fn an_empty_source_empties_nothing() {
    let cases = [
        ("a b/c", "=", true),
        ("s/a", "s/ s=", true),
        ("s/a sx/b", "s/ s= sx/ sx/b sx=", true),
        ("s/a sx/b", "s/ s/b s= sx/ sx=", true),
        ("a s/b", "s/ s/b s= =", true),
        ("sx/b u", "s/ s= sx/ sx/c sx=", false),
        ("a b", "c =", false),
        ("a b", "c/ =", false),
    ];
    for (here, source, stays) in cases {
        let folder = tempfile::tempdir().unwrap();
        here.split(' ').for_each(|word| make(folder.path(), word));
        let before = all_below(folder.path());
        for is_dry in [true, false] {
            let settings = Settings { dry_run: is_dry, ..settings(&[]) };
            let mut mirror = mirror(folder.path(), &settings);
            mirror.note(&entries(source));
            let removed = run(mirror);
            let told = removed.failed.iter().any(|(_, fault)| fault.text.contains("has nothing"));
            assert_eq!((told, removed.paths.is_empty()), (stays, stays), "{here}: {source}");
        }
        assert_eq!(all_below(folder.path()) == before, stays, "{here}: {source}");
    }
    // Unless it was said how many may go.
    let folder = tempfile::tempdir().unwrap();
    make(folder.path(), "a");
    let settings = Settings { delete_max: Some(1), ..settings(&[]) };
    let mut mirror = mirror(folder.path(), &settings);
    mirror.note(&entries("="));
    assert_eq!(run(mirror).paths, [b"a"]);
}
