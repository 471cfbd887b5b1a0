//! A far side has no choice: a pull creates only the names that were asked for, a push sends only
//! what was named. The test itself speaks for each far side.

use crate::support;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::support::data::write_file;
use crate::support::liar::{self, Move, file, offer, payload};
use crate::support::speaker::Speaker;
use crate::support::{Scene, each};
use base::attributes::Attributes;
use mover::wire::manifest::{Entry, EntryKind};
use mover::wire::message::{Message, Opened, Origin, WantedRanges};

/// What is typed, whether the far side announces a single object, and what it offers.
type Pull = (&'static str, bool, Vec<Entry>);

/// What a malicious sink wants of an entry, by its index in the offer.
type Greed = fn(usize, &Entry) -> WantedRanges;

/// The classes of CVE-2019-6111 and CVE-2022-29154: the far side offers other names than the file,
/// the folder or the list that was asked for, or names that a filter leaves out.
#[test]
fn only_what_was_asked_for_is_made() {
    let of = |kind, path: &str| Entry { kind, mode: 0o755, ..file(path, 0) };
    let folder = |path: &str| of(EntryKind::Directory, path);
    let link =
        |path: &str| Entry { link_target: "/etc/passwd".into(), ..of(EntryKind::Link, path) };
    let hard =
        |path: &str, to: &str| Entry { link_target: to.into(), ..of(EntryKind::HardLink, path) };
    let leave = of(EntryKind::Leave, "");
    let one = "127.0.0.1:docs/report @/dst";
    let tree = "-r 127.0.0.1:tree @/dst";
    let list = "--files-from @/list 127.0.0.1:docs @/dst";
    let cases: Vec<Pull> = vec![
        (one, true, vec![file(".bashrc", 3)]),
        (one, true, vec![file(".ssh/authorized_keys", 3)]),
        (one, true, vec![folder(".ssh")]),
        (one, true, vec![folder("report")]),
        (one, true, vec![file("report/.bashrc", 3)]),
        (one, true, vec![link("report")]),
        (one, true, vec![hard("report", ".bashrc")]),
        (one, true, vec![file("report", 3), file(".bashrc", 3)]),
        (one, true, vec![leave.clone()]),
        (one, false, vec![file("report", 3)]),
        ("--overwrite always 127.0.0.1:report @/dst", true, vec![file(".bashrc", 3)]),
        ("--checksum 127.0.0.1:report @/dst", true, vec![file(".bashrc", 3)]),
        ("127.0.0.1:report @/dst/renamed", true, vec![file("other", 3)]),
        ("127.0.0.1:report @/dst/new", false, vec![file("report", 3)]),
        ("127.0.0.1:a 127.0.0.1:b @/dst", false, vec![file("a", 3), file("c", 3)]),
        ("127.0.0.1:a 127.0.0.1:b @/dst", true, vec![file("a", 3)]),
        (tree, false, vec![folder("tree"), file(".bashrc", 3)]),
        (tree, false, vec![folder("tree"), folder(".ssh")]),
        (tree, false, vec![link("tree")]),
        (tree, false, vec![file("tree", 3)]),
        (tree, false, vec![folder("tree"), hard("tree/x", ".bashrc")]),
        (tree, false, vec![folder("tree"), leave]),
        ("-r --links skip 127.0.0.1:tree/ @/dst", false, vec![link("x")]),
        ("-r --links safe 127.0.0.1:tree/ @/dst", false, vec![link("x")]),
        ("-r --exclude .* 127.0.0.1:tree/ @/dst", false, vec![file(".bashrc", 3)]),
        (list, false, vec![file("c", 3)]),
        (list, false, vec![file(".bashrc", 3)]),
        (list, false, vec![folder("a")]),
    ];
    each(cases, |(ways, single, entries)| {
        let scene = set_up();
        let before = look(&scene.path("dst"));
        let origin = Origin { single: *single, endless: false };
        let moves = [offer(entries.clone()), Move::Hear(1)];
        let (ran, watched) = liar::against_near(&scene, ways, Some(origin), &moves);
        let about = format!("{ways}: {entries:?}\n{ran}");
        assert!(!watched.killed, "it does not end by itself: {about}");
        assert_eq!(ran.code, 9, "{about}");
        assert_eq!(look(&scene.path("dst")), before, "something was written: {about}");
    });
}

/// The same far side may offer what was asked for: the cases above fail for their names alone.
#[test]
fn what_was_asked_for_is_made() {
    let cases: [(&str, bool, &str, &str); 6] = [
        ("127.0.0.1:docs/report @/dst", true, "report", "dst/report"),
        ("--overwrite always 127.0.0.1:.bashrc @/dst", true, ".bashrc", "dst/.bashrc"),
        ("127.0.0.1:report @/dst/renamed", true, "report", "dst/renamed"),
        ("-r 127.0.0.1:tree @/dst", true, "tree", "dst/tree"),
        ("-r 127.0.0.1:tree/ @/dst", false, "x", "dst/x"),
        ("--files-from @/list 127.0.0.1:docs @/dst", false, "a", "dst/a"),
    ];
    each(cases, |(ways, single, name, made)| {
        let scene = set_up();
        let origin = Origin { single: *single, endless: false };
        let moves =
            [offer(vec![file(name, 3)]), Move::Hear(1), payload(0, b"abc"), Move::Finish(1)];
        let (ran, _) = liar::against_near(&scene, ways, Some(origin), &moves);
        assert_eq!(ran.code, 0, "{ways}\n{ran}");
        assert_eq!(fs::read(scene.path(made)).unwrap(), b"abc", "{ways}\n{ran}");
    });
}

/// Nor does it choose the attributes of a file: extreme times, and special bits, owners and
/// extended attributes that were not asked for.
#[test]
fn what_a_file_is_like_is_not_chosen() {
    let xattrs = vec![(b"user.x".to_vec(), vec![1])];
    let owned = Attributes { uid: 12, gid: 13, xattrs, ..Attributes::default() };
    let seconds = [i64::MIN, -1, 1 << 40, i64::MAX];
    each(seconds.iter().flat_map(|at| ["", "-A "].map(|keeps| (keeps, *at))), |(keeps, at)| {
        let scene = set_up();
        let entry = Entry {
            mode: 0o6755,
            mtime_seconds: *at,
            mtime_nanos: 999_999_999,
            attributes: Some(Arc::new(owned.clone())),
            ..file("report", 3)
        };
        let moves = [offer(vec![entry]), Move::Hear(1), payload(0, b"abc"), Move::Finish(1)];
        let origin = Some(Origin { single: true, endless: false });
        let ways = format!("{keeps}127.0.0.1:docs/report @/dst/new");
        let (ran, _) = liar::against_near(&scene, &ways, origin, &moves);
        assert_eq!(ran.code, 0, "{at} {ran}");
        assert!(!ran.stderr.contains("panicked"), "{at} {ran}");
        let made = fs::metadata(scene.path("dst/new")).unwrap();
        let names = rustix::fs::listxattr(scene.path("dst/new"), &mut [0; 100][..]).unwrap();
        let found = (made.mode() & 0o7777, made.uid() == 12, names > 0);
        let root = support::is_root();
        let kept = (if root { 0o6755 } else { 0o755 }, root, true);
        let expect = if keeps.is_empty() { (0o755, false, false) } else { kept };
        assert_eq!(found, expect, "{at} {keeps}\n{ran}");
    });
}

/// A far sink that wants all bytes, also of entries without any and beyond their end.
#[test]
fn only_what_was_named_is_sent() {
    let greedy: [(&str, Greed); 4] = [
        ("all of all", |_, _| WantedRanges::All),
        ("the rest of all", |_, entry| match entry.size {
            0 => WantedRanges::Rest(vec![(0, 1 << 16)]),
            _ => WantedRanges::Rest(vec![]),
        }),
        ("what a hole hides", |_, entry| {
            WantedRanges::Rest(vec![(entry.size, entry.size + (1 << 16))])
        }),
        (
            "every second",
            |at, _| if at % 2 == 0 { WantedRanges::All } else { WantedRanges::Nothing },
        ),
    ];
    each(greedy, |(name, want)| {
        let scene = set_up();
        let (ways, mut sent) = ("-r @/src/ 127.0.0.1:/dst", Vec::new());
        let (ran, watched) = liar::near_with(&scene, ways, liar::opened(None), |speaker| {
            sent = take_all(speaker, *want, *name == "all of all");
            speaker.say(&support::speaker::hello()); // nobody greets twice: it ends
        });
        assert!(!watched.killed && !ran.stderr.contains("panicked"), "{name}: {ran}");
        let secret = b"SECRET";
        assert!(!sent.windows(secret.len()).any(|part| part == secret), "{name}: it was sent");
        assert!(*name != "all of all" || sent.windows(5).any(|part| part == b"named"), "{name}");
    });
}

/// A far sink that announces another name than the one that was typed.
#[test]
fn names_of_the_far_sink_are_not_believed() {
    let scene = set_up();
    let opened = Opened { rename: Some(b"../../x".to_vec()), ..liar::opened(None) };
    let ways = "@/src/f 127.0.0.1:dst";
    let (ran, _) = liar::near_with(&scene, ways, opened, |_| {});
    assert_eq!(ran.code, 9, "{ran}");
}

/// Answers each offer by `want`, and returns all carried bytes; `some`: there must be some.
fn take_all(speaker: &mut Speaker, want: Greed, some: bool) -> Vec<u8> {
    let (mut sent, mut offered) = (Vec::new(), false);
    loop {
        // No more messages are needed once everything has been offered.
        let message = match offered && (!some || !sent.is_empty()) {
            true => speaker.hear_within(Duration::from_millis(500)),
            false => speaker.hear(),
        };
        match message {
            Some(Message::Offer { first, entries }) => {
                let wanted = entries.iter().enumerate().map(|(at, entry)| want(at, entry));
                speaker.say(&Message::Want { first, wanted: wanted.collect() });
            }
            Some(Message::OfferEnd { .. }) => offered = true,
            Some(Message::Carried(bytes)) => sent.extend(bytes),
            Some(Message::Stop(_)) | None => return sent,
            Some(_) => {}
        }
    }
}

/// A destination with a shell start-up file, a folder to copy, and a secret file outside it.
fn set_up() -> Scene {
    let scene = Scene::new();
    fs::create_dir_all(scene.path("dst")).unwrap();
    fs::create_dir_all(scene.path("src/folder")).unwrap();
    write_file(&scene.path("dst/.bashrc"), 1, 100);
    fs::write(scene.path("list"), "a\nb/c\n").unwrap();
    fs::write(scene.path("outside"), b"SECRET".repeat(1000)).unwrap();
    fs::write(scene.path("src/f"), b"named".repeat(100)).unwrap();
    fs::hard_link(scene.path("src/f"), scene.path("src/g")).unwrap();
    std::os::unix::fs::symlink(scene.path("outside"), scene.path("src/link")).unwrap();
    std::os::unix::fs::symlink(scene.path(""), scene.path("src/folder/up")).unwrap();
    scene
}

/// Every name in a folder, links and folders too, with what an unsafe writer would change.
fn look(folder: &Path) -> BTreeMap<String, (u64, i64, u32, u64)> {
    let mut seen = BTreeMap::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let meta = fs::symlink_metadata(&path).unwrap();
            if meta.is_dir() {
                folders.push(path.clone());
            }
            let what = (meta.ino(), meta.mtime_nsec(), meta.mode(), meta.len());
            seen.insert(path.display().to_string(), what);
        }
    }
    seen
}
