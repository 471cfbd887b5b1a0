use super::*;
use crate::wire::manifest::ENDLESS_BYTES;
use base::job::Remote;
use base::settings::{DataSet, Moment, Settings};

/// A pull as it is typed: its sources, options, and the list of names where there is one.
#[derive(Clone, Copy)]
struct Typed<'a> {
    sources: &'a [&'a str],
    recursive: bool,
    links: Links,
    filters: &'a [&'a str],
    listed: Option<&'a [&'a str]>,
}

const PLAIN: Typed<'static> =
    Typed { sources: &["x"], recursive: false, links: Links::Copy, filters: &[], listed: None };

fn job(typed: Typed<'_>) -> Job {
    Job {
        sources: typed.sources.iter().map(|path| Location::Path(path.into())).collect(),
        source_host: Some("far".into()),
        target: Location::Path(".".into()),
        target_host: None,
        settings: Settings {
            recursive: typed.recursive,
            links: typed.links,
            filters: typed.filters.iter().map(|line| line.to_string()).collect(),
            ..Settings::default()
        },
        listed: None,
        range: None,
        remote: Remote::default(),
    }
}

fn names(typed: Typed<'_>) -> Option<Arc<Names>> {
    typed.listed.map(|listed| {
        let mut names = Names::new().unwrap();
        listed.iter().for_each(|name| names.push(name.as_bytes()).unwrap());
        names.complete().unwrap();
        Arc::new(names)
    })
}

/// `f path`, `d path`, `v path` (leave), `l path`, `h path first-name`, `s path` and `p path`.
fn entry(word: &str) -> Entry {
    let mut parts = word.split(' ');
    let (kind, path) = (parts.next().unwrap(), parts.next().unwrap());
    let (kind, size) = match kind {
        "f" => (EntryKind::File, 0),
        "d" => (EntryKind::Directory, 0),
        "v" => (EntryKind::Leave, 0),
        "l" => (EntryKind::Link, 0),
        "h" => (EntryKind::HardLink, 0),
        "s" => (EntryKind::Stretch, 100),
        _ => (EntryKind::Pipe, ENDLESS_BYTES),
    };
    let link_target = parts.next().unwrap_or_default().into();
    Entry { kind, size, path: path.into(), link_target, ..Entry::default() }
}

fn check(typed: Typed<'_>, single: bool, allowed: &[&str], refused: &[&str]) {
    let origin = Origin { single, endless: false };
    let expected = Expected::of(&job(typed), origin, names(typed).as_ref()).unwrap();
    let about = format!("{:?} -r {}", typed.sources, typed.recursive);
    for word in allowed {
        assert_eq!(expected.check(0, &[entry(word)]), Ok(()), "{about}: {word}");
    }
    for word in refused {
        let fault = expected.check(0, &[entry(word)]).expect_err(&format!("{about}: {word}"));
        assert_eq!(fault.class.exit_code(), 9, "{about}: {word}");
    }
}

/// CVE-2019-6111: one name is asked for, and another one is offered.
#[test]
fn a_file_is_what_was_typed() {
    for source in ["x", "/a/b/x", "../x", "./x", "x:y/x"] {
        let typed = Typed { sources: &[source], ..PLAIN };
        check(
            typed,
            true,
            &["f x"],
            &[
                "f y",
                "f .bashrc",
                "f .ssh/authorized_keys",
                "d x",
                "f x/y",
                "l x",
                "v x",
                "s x",
                "p x",
                "h x y",
                "v ",
                "f X",
                "f xx",
                "d .ssh",
            ],
        );
    }
    let expected = Expected::of(&job(PLAIN), Origin { single: true, endless: false }, None);
    let both = [entry("f x"), entry("f x")];
    assert!(expected.as_ref().unwrap().check(0, &both).is_err(), "two where one was said");
    assert!(expected.unwrap().check(1, &both[..1]).is_err(), "a second one later");
}

#[test]
fn several_sources_are_what_was_typed() {
    let typed = Typed { sources: &["a/x", "b/y"], ..PLAIN };
    check(
        typed,
        false,
        &["f x", "f y", "h y x"],
        &["f z", "d x", "f x/y", "l y", "h y z", "f a/x"],
    );
    let typed = Typed { recursive: true, ..typed };
    let below = ["f x", "d x", "v x", "f x/y/z", "l x/l", "d y", "f y/.bashrc", "h y/a x/b"];
    check(typed, false, &below, &["f z", "f xy/a", "l x", "l y", "v ", "d .ssh", "h x/a z"]);
}

/// With `-r` one source is a file or a folder, as the far side says, and not both.
#[test]
fn one_source_with_recursion() {
    let typed = Typed { recursive: true, ..PLAIN };
    check(typed, true, &["f x"], &["d x", "f x/a", "v x", "l x"]);
    check(typed, false, &["d x", "f x/a", "l x/l", "v x/d"], &["f x", "l x", "f y", "v "]);
}

/// CVE-2019-6111 and CVE-2022-29154: the far side expands wildcards, and adds a name.
#[test]
fn wildcards_are_matched_again() {
    let tars = Typed { sources: &["/data/*.tar"], ..PLAIN };
    let others = ["f a.zip", "f .a.tar", "f .bashrc", "d a.tar", "f a.tar/b", "l a.tar", "v "];
    check(tars, false, &["f a.tar", "f b-c.tar", "h b.tar a.tar", "f *.tar"], &others);
    check(tars, true, &["f a.tar"], &others);
    let below = ["d a.tar", "f a.tar/.bashrc", "v a.tar", "f b.tar"];
    check(Typed { recursive: true, ..tars }, false, &below, &["f a.zip", "d .ssh", "l a.tar"]);
    let middle = Typed { sources: &["/data/*/x"], ..PLAIN };
    check(middle, false, &["f x"], &["f y", "d x", "f a/x"]);
    let escaped = Typed { sources: &[r"a\-b"], ..PLAIN };
    check(escaped, true, &["f a-b"], &["f a", "f b", "f ab"]);
    let folders = Typed { sources: &["d*/"], recursive: true, ..PLAIN };
    check(folders, false, &["f a", "f .b", "d c"], &["s a"]);
    let no_pattern = Typed { sources: &["a[b"], ..PLAIN };
    check(no_pattern, true, &["f a[b"], &["f ab", "f a"]);
}

/// The names below `SRC/` were not typed.
#[test]
fn contents() {
    for source in ["d/", ".", "..", "/", "d/.", "d/..", "./"] {
        let typed = Typed { sources: &[source], recursive: true, ..PLAIN };
        check(typed, false, &["f a", "d a", "f a/b", "l a", "v ", "v a", "h b a"], &["s a", "p a"]);
    }
    let both = Typed { sources: &["d/", "x"], recursive: true, ..PLAIN };
    check(both, false, &["f a", "d x", "l a"], &["s x"]);
    let flat = Typed { sources: &["d/", "x"], ..PLAIN };
    check(flat, false, &["f x"], &["f a", "v ", "d a", "d x"]);
}

#[test]
fn lists() {
    let typed = Typed { sources: &["src"], listed: Some(&["a", "b/c/d", "e"]), ..PLAIN };
    let allowed = ["f a", "l a", "h e a", "d b", "d b/c", "v b", "v b/c", "f b/c/d"];
    let refused = ["f b/x", "f b", "l b", "d a", "f a/x", "f .bashrc", "v ", "f src", "h a x"];
    check(typed, false, &allowed, &refused);
    check(Typed { recursive: true, ..typed }, false, &["d a", "f a/x", "v a"], &["f b/x", "f f"]);
}

/// Links are allowed only where they are copied, and where they may lead.
#[test]
fn links() {
    let safe = Typed { sources: &["d/"], recursive: true, links: Links::Safe, ..PLAIN };
    check(
        safe,
        false,
        &["f a", "d a", "l a f", "l a/b ../f"],
        &["l a /f", "l a ../f", "l a/b c/../f"],
    );
    for links in [Links::Follow, Links::Skip] {
        let typed = Typed { sources: &["d/"], recursive: true, links, ..PLAIN };
        check(typed, false, &["f a", "d a"], &["l a", "l a/b"]);
    }
}

/// What the filters leave out is not asked for either (CVE-2022-29154).
#[test]
fn filters() {
    let filters = &[".*", "*.o", "!keep.o", "tmp/"];
    let typed = Typed { sources: &["d"], recursive: true, filters, ..PLAIN };
    let allowed = ["f d/a", "f d/keep.o", "f d/tmp", "l d/tmp", "d d"];
    let refused = ["f d/.bashrc", "d d/.ssh", "f d/.ssh/k", "f d/a.o", "d d/tmp", "f d/tmp/a"];
    check(typed, false, &allowed, &refused);
    // A link to a folder is found as a link, and offered as a folder.
    let follow = Typed { links: Links::Follow, ..typed };
    check(follow, false, &["d d/tmp", "f d/tmp/a"], &["f d/.bashrc", "f d/.ssh/k", "d d/a.o"]);
    let listed = Typed { sources: &["d"], filters, listed: Some(&["b/a", "c.o"]), ..PLAIN };
    check(listed, false, &["f b/a", "d b"], &["f c.o"]);
}

#[test]
fn what_is_made_up() {
    let typed = |place| Job { sources: vec![place], ..job(PLAIN) };
    let cases = [
        (Location::Null { len: 100 }, "s null", false),
        (Location::Zero { len: 100 }, "s zero", false),
        (Location::Random { len: 100, seed: 1 }, "s random", false),
        (Location::Synthetic { set: DataSet::Text, len: 100, seed: 1 }, "s text", false),
        (Location::Endless, "p null", true),
    ];
    for (place, allowed, endless) in cases {
        let origin = Origin { single: true, endless };
        let expected = Expected::of(&typed(place.clone()), origin, None).unwrap();
        assert_eq!(expected.check(0, &[entry(allowed)]), Ok(()), "{place:?}");
        for refused in ["f null", "s other", "d null", "f x"] {
            assert!(expected.check(0, &[entry(refused)]).is_err(), "{place:?}: {refused}");
        }
        let more = Entry { size: entry(allowed).size + 1, ..entry(allowed) };
        assert!(expected.check(0, &[more]).is_err(), "{place:?}: another size");
        assert!(Expected::of(&typed(place), Origin { endless: !endless, ..origin }, None).is_err());
    }
}

/// Whether DST is a new folder or a new file depends on what the far side says.
#[test]
fn what_the_source_is_must_fit_what_was_typed() {
    let list: Option<&'static [&'static str]> = Some(&["a"]);
    let cases = [
        (PLAIN, true, false),
        (Typed { recursive: true, ..PLAIN }, true, true),
        (Typed { sources: &["a", "b"], ..PLAIN }, false, true),
        (Typed { sources: &["a", "b"], recursive: true, ..PLAIN }, false, true),
        (Typed { sources: &["d/"], recursive: true, ..PLAIN }, false, true),
        (Typed { sources: &["d"], listed: list, ..PLAIN }, false, true),
    ];
    for (typed, single, several) in cases {
        for (said, fits) in [(true, single), (false, several)] {
            let origin = Origin { single: said, endless: false };
            let got = Expected::of(&job(typed), origin, names(typed).as_ref());
            assert_eq!(got.is_ok(), fits, "{:?}: single {said}", typed.sources);
            let endless = Origin { endless: true, ..origin };
            assert!(Expected::of(&job(typed), endless, names(typed).as_ref()).is_err());
        }
    }
    assert!(matches!(Expected::Anything.check(0, &[entry("f any")]), Ok(())));
}

/// A range is taken of the file that was planned, and of no other.
#[test]
fn a_range_is_of_the_planned_file() {
    let of_mtime = Moment { seconds: 7, nanos: 5 };
    let range = Some(FileRange { bytes: 4096..8192, of_size: 9000, of_mtime });
    let typed = Typed { sources: &["/a/b"], listed: Some(&["c/x"]), ..PLAIN };
    let origin = Origin { single: false, endless: false };
    let job = Job { range, ..job(typed) };
    let expected = Expected::of(&job, origin, names(typed).as_ref()).unwrap();
    let file = |size: u64, mtime_nanos: u32| Entry {
        size,
        mtime_seconds: 7,
        mtime_nanos,
        ..entry("f c/x")
    };
    assert_eq!(expected.changed(&file(9000, 5)), None);
    assert_eq!(expected.changed(&entry("d c")), None);
    for other in [file(9001, 5), file(9000, 6), entry("l c/x"), entry("h c/x c")] {
        let fault = expected.changed(&other).expect("it is another");
        assert_eq!(fault.class, Class::SourceChanged);
        assert!(fault.text.starts_with("'/a/b/c/x' changed after it was planned"), "{fault}");
    }
}
