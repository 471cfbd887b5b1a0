//! What a store cannot do has a way round, is told once, and never makes a copy wrong: every store
//! sits one exam, real ones and small ones with one fault each.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

use crate::support::gateway::{Gateway, file_of, no_difference_for_rsync, set_mtime};
use crate::support::run::{self, Ran};
use crate::support::scripted_store::{Answer, Asked};
use crate::support::small_store::{Edits, Kept, Refuses, SmallStore};
use crate::support::{Scene, each};

const LONG: u64 = (9 << 20) + 1;
const UNCONDITIONAL: &str = "knows no conditional writes";
const BY_MD5: &str = "it checks the MD5 of each request";
const BY_SIGNATURE: &str = "only the SHA-256 in each signature";
const NO_WHOLE: &str = "keeps no checksum of whole objects";
const NO_MARKERS: &str = "refuses markers of folders";

/// A store with a fault, and the warnings that its user gets, each once.
#[derive(Clone, Copy)]
struct Faulty {
    name: &'static str,
    refuses: Refuses,
    edits: Edits,
    warns: &'static [&'static str],
}

impl std::fmt::Debug for Faulty {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

fn takes_all(_: &Asked, _: &Kept) -> Option<Answer> {
    None
}

fn as_it_is(_: &Asked, headers: String) -> String {
    headers
}

fn has(asked: &Asked, name: &str) -> bool {
    asked.head.lines().any(|line| line.starts_with(name))
}

fn writes_sum(asked: &Asked) -> bool {
    ["crc64nvme", "algorithm", "type"]
        .iter()
        .any(|rest| has(asked, &format!("x-amz-checksum-{rest}")))
}

fn no_condition(asked: &Asked) -> Option<Answer> {
    has(asked, "if-none-match").then(|| Answer::refused(501, "NotImplemented"))
}

fn no_crc64(asked: &Asked) -> Option<Answer> {
    writes_sum(asked).then(|| Answer::refused(400, "InvalidArgument"))
}

const FAULTY: &[Faulty] = &[
    Faulty { name: "none", refuses: takes_all, edits: as_it_is, warns: &[] },
    Faulty {
        name: "no conditions",
        refuses: |asked, _| no_condition(asked),
        edits: as_it_is,
        warns: &[UNCONDITIONAL],
    },
    Faulty {
        name: "no conditions, as a wrong argument",
        refuses: |asked, _| no_condition(asked).map(|_| Answer::refused(400, "InvalidArgument")),
        edits: as_it_is,
        warns: &[UNCONDITIONAL],
    },
    Faulty {
        name: "no conditions of what is completed or copied",
        refuses: |asked, _| {
            let is_it = asked.method == "POST" || has(asked, "x-amz-copy-source");
            no_condition(asked).filter(|_| is_it)
        },
        edits: as_it_is,
        warns: &[UNCONDITIONAL],
    },
    Faulty {
        name: "no CRC-64",
        refuses: |asked, _| no_crc64(asked),
        edits: as_it_is,
        warns: &[BY_MD5, NO_WHOLE],
    },
    Faulty {
        name: "no checksums at all",
        refuses: |asked, _| {
            let is_new = has(asked, "x-amz-checksum-") || has(asked, "content-md5");
            is_new.then(|| Answer::refused(501, "NotImplemented"))
        },
        edits: as_it_is,
        warns: &[BY_SIGNATURE, NO_WHOLE],
    },
    Faulty {
        name: "neither conditions nor CRC-64",
        refuses: |asked, _| no_condition(asked).or_else(|| no_crc64(asked)),
        edits: as_it_is,
        warns: &[BY_MD5, UNCONDITIONAL, NO_WHOLE],
    },
    Faulty {
        name: "weak tags",
        refuses: |asked, _| {
            has(asked, "if-match").then(|| Answer::refused(412, "PreconditionFailed"))
        },
        edits: |_, headers| headers.replace("ETag: ", "ETag: W/"),
        warns: &[],
    },
    Faulty {
        name: "no tags and no checksums told",
        refuses: takes_all,
        edits: |_, headers| {
            let is_kept = |line: &&str| {
                !line.starts_with("ETag") && !line.starts_with("x-amz-checksum-crc64nvme")
            };
            headers.split_inclusive('\n').filter(is_kept).collect()
        },
        warns: &[NO_WHOLE],
    },
    Faulty {
        name: "HEAD without a length",
        refuses: takes_all,
        edits: |asked, headers| match &asked.method[..] {
            "HEAD" => headers.replace("Content-Length: ", "Transfer-Encoding: chunked\r\nx-was: "),
            _ => headers,
        },
        warns: &[],
    },
    Faulty {
        name: "HEAD refused",
        refuses: |asked, _| (asked.method == "HEAD").then(|| Answer::refused(403, "AccessDenied")),
        edits: as_it_is,
        warns: &[NO_WHOLE],
    },
    Faulty {
        name: "no markers",
        refuses: |asked, _| {
            let is_marker = asked.method == "PUT" && asked.key.ends_with('/');
            is_marker.then(|| Answer::refused(500, "InternalError"))
        },
        edits: as_it_is,
        warns: &[NO_MARKERS],
    },
    Faulty {
        name: "status 500 where a folder has the name",
        refuses: |asked, kept| {
            let is_read = ["HEAD", "GET"].contains(&&asked.method[..]) && !asked.key.is_empty();
            let is_it = is_read && kept.is_folder(&asked.key);
            is_it.then(|| Answer::refused(500, "InternalError"))
        },
        edits: as_it_is,
        warns: &[],
    },
];

#[test]
fn small_stores_with_one_fault_each_pass_the_exam() {
    each(FAULTY, |faulty| {
        let store = SmallStore::new(faulty.refuses, faulty.edits);
        exam(&|scene, line| store.asked.command(scene, line), faulty.warns, Keeps::All);
    });
}

#[test]
fn real_stores_pass_the_exam() {
    each(["gateway", "moto", "rclone", "s3s-fs"], |name| {
        let (store, warns, keeps) = match *name {
            "moto" => (Gateway::moto(), &[NO_WHOLE][..], Keeps::All),
            // A marker that it refuses takes the place of the folder in its listings.
            "rclone" => (Gateway::rclone_serve(), &[NO_WHOLE][..], Keeps::Bytes),
            // It takes markers, and lists none.
            "s3s-fs" => (Gateway::s3s_fs(), &[NO_WHOLE][..], Keeps::Files),
            _ => (Gateway::new(), &[][..], Keeps::All),
        };
        exam(&|scene, line| store.command(scene, line, store.port), warns, keeps);
    });
}

/// What is to come back of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Keeps {
    All,
    /// Not folders that have no file, and nothing else of folders.
    Files,
    /// `--no-preserve` is typed.
    Bytes,
}

/// A tree goes up, what is there stays, it comes back, and a second run finds nothing to do.
fn exam(command: &dyn Fn(&Scene, &str) -> Command, warns: &[&str], keeps: Keeps) {
    let scene = Scene::new();
    let run = |line: &str, code| {
        let ran = run::to_end(command(&scene, line), b"");
        assert_eq!(ran.code, code, "{line}\n{ran}");
        ran
    };
    let tree = scene.path("x");
    fs::create_dir_all(tree.join("d")).unwrap();
    if keeps == Keeps::All {
        fs::create_dir(tree.join("empty")).unwrap();
    }
    fs::write(tree.join("a"), b"one").unwrap();
    fs::write(tree.join("zero"), b"").unwrap();
    fs::hard_link(tree.join("a"), tree.join("b")).unwrap();
    symlink("../a", tree.join("d/link")).unwrap();
    file_of(&tree.join("d/long"), LONG, 1);
    set_mtime(&tree.join("a"), 1_000_000_000, 500_000_000);
    set_mtime(&tree, 900_000_000, 250_000_000);
    let up = match keeps {
        Keeps::All | Keeps::Files => run("copy -r @/x s3://bucket/", 0),
        Keeps::Bytes => run("copy -r --no-preserve @/x s3://bucket/", 0),
    };
    told_once(&up, warns);
    fs::write(scene.path("new"), b"two").unwrap();
    file_of(&scene.path("new-long"), LONG, 2);
    for line in ["copy @/new s3://bucket/x/a", "copy @/new-long s3://bucket/x/d/long"] {
        assert!(run(line, 3).stderr.contains("exists"), "{line}");
    }
    run("copy -r s3://bucket/x @/back/", 0);
    let same = ["a", "b", "zero", "d/long", "d/link"];
    for name in same {
        let read = |path: &str| fs::read(scene.path(path).join(name)).unwrap();
        assert!(read("x") == read("back/x"), "{name}");
    }
    if keeps == Keeps::All && !warns.contains(&NO_MARKERS) {
        no_difference_for_rsync(&scene.path("x/"), &scene.path("back/x/"));
    }
    if keeps != Keeps::Bytes {
        let time = |path: &str| fs::metadata(scene.path(path)).unwrap().modified().unwrap();
        assert_eq!(time("x/a"), time("back/x/a"));
        let again = run("copy -r --skip-unchanged --json @/x s3://bucket/", 0);
        let moved = again.events().last().unwrap()["record"]["moved"]["files"].clone();
        assert_eq!(moved, 0, "{again}");
    }
    run("copy --overwrite always @/new s3://bucket/x/a", 0);
    run("copy -r --no-preserve s3://bucket/x/ @/plain", 0);
    assert_eq!(fs::read(scene.path("plain/a")).unwrap(), b"two");
    assert_eq!(
        fs::read(scene.path("plain/d/long")).unwrap(),
        fs::read(tree.join("d/long")).unwrap()
    );
}

fn told_once(ran: &Ran, warns: &[&str]) {
    let told = ran.stderr.lines().filter(|line| line.contains("warning: "));
    let told: Vec<&str> = told.collect();
    assert_eq!(told.len(), warns.len(), "{ran}");
    for warning in warns {
        assert_eq!(
            told.iter().filter(|line| line.contains(warning)).count(),
            1,
            "{warning}\n{ran}"
        );
    }
}

/// Once it is known, nothing is asked for in the form that is refused; and a store that knows
/// conditions is never asked without.
#[test]
fn what_a_store_refuses_is_found_out_once() {
    each(FAULTY.iter().filter(|faulty| faulty.name.starts_with("no c")), |faulty| {
        let (scene, store) = (Scene::new(), SmallStore::new(faulty.refuses, faulty.edits));
        fs::create_dir(scene.path("t")).unwrap();
        for number in 0..60 {
            fs::write(scene.path(format!("t/{number}")), b"x").unwrap();
        }
        let ran = run::to_end(store.asked.command(&scene, "copy -r @/t/ s3://bucket/t"), b"");
        assert_eq!(ran.code, 0, "{ran}");
        let asked = store.asked.asked.lock().unwrap();
        let files: Vec<&Asked> = asked
            .iter()
            .filter(|asked| asked.method == "PUT" && !asked.key.ends_with('/'))
            .collect();
        let refused =
            files.iter().filter(|asked| (faulty.refuses)(asked, &Kept::default()).is_some());
        assert!(refused.count() <= 20, "the first ones, and other forms of one: {}", files.len());
        let is_plain = |asked: &&&Asked| !has(asked, "if-none-match");
        let knows = !faulty.warns.contains(&UNCONDITIONAL);
        assert!(!knows || !files.iter().any(|asked| is_plain(&asked)), "without a condition");
        let is_checked = |asked: &&Asked| {
            let is_signed = asked.header("x-amz-content-sha256").len() == 64;
            is_signed || has(asked, "content-md5: ") || has(asked, "x-amz-checksum-crc64nvme: ")
        };
        assert!(files.iter().all(is_checked), "nothing protects it");
    });
}

/// A marker is of use where a folder has nothing, or something that it keeps.
#[test]
fn folders_that_have_files_need_no_markers() {
    let markers = |line: &str| {
        let (scene, store) = (Scene::new(), SmallStore::new(takes_all, as_it_is));
        fs::create_dir_all(scene.path("t/full/deep")).unwrap();
        fs::create_dir_all(scene.path("t/empty")).unwrap();
        fs::write(scene.path("t/full/deep/f"), b"x").unwrap();
        let ran = run::to_end(store.asked.command(&scene, line), b"");
        assert_eq!(ran.code, 0, "{ran}");
        let keys = store.keys().into_iter().filter(|key| key.ends_with('/'));
        keys.collect::<Vec<_>>()
    };
    assert_eq!(markers("copy -r --no-preserve @/t/ s3://bucket/x"), ["x/empty/"]);
    let all = ["x/empty/", "x/full/", "x/full/deep/"];
    assert_eq!(markers("copy -r @/t/ s3://bucket/x"), all);
}

/// An answer without a body does not say why, another does. What is true of all requests ends the
/// copy.
#[test]
fn why_a_request_is_refused_is_found_out() {
    let expired: Refuses = |asked, _| {
        (!asked.query.contains("list-type")).then(|| Answer::refused(400, "ExpiredToken"))
    };
    let later: Refuses = |asked, kept| {
        let is_late = asked.method == "PUT" && kept.objects.len() >= 200;
        is_late.then(|| Answer::refused(400, "ExpiredToken"))
    };
    let elsewhere: Refuses = |asked, _| match asked.query.contains("list-type") {
        true => None,
        false => Some(Answer::text(
            301,
            "<Error><Code>PermanentRedirect</Code><Region>eu-7</Region></Error>",
        )),
    };
    let forbidden: Refuses = |asked, _| {
        let is_it = asked.key == "k/7" && asked.method != "PUT";
        is_it.then(|| Answer::refused(403, "AccessDenied"))
    };
    let cases = [
        (expired, "copy s3://bucket/k/7 @/x", 2, "have expired"),
        (expired, "copy -r s3://bucket/k/ @/x", 2, "have expired"),
        (expired, "copy -r @/t/ s3://bucket/t", 2, "have expired"),
        (later, "copy -r --no-preserve @/t/ s3://bucket/t", 2, "have expired"),
        (elsewhere, "copy s3://bucket/k/7 @/x", 2, "write --s3-region eu-7"),
        (elsewhere, "copy -r s3://bucket/k/ @/x", 2, "write --s3-region eu-7"),
        (forbidden, "copy s3://bucket/k/7 @/x", 1, "No (AccessDenied"),
        (forbidden, "copy -r s3://bucket/k/ @/x", 3, "No (AccessDenied"),
    ];
    each(cases.iter().enumerate(), |(_, (refuses, line, code, says))| {
        let (scene, store) = (Scene::new(), SmallStore::new(*refuses, as_it_is));
        fs::create_dir(scene.path("t")).unwrap();
        for number in 0..400 {
            store.put(&format!("k/{number}"), b"x", "");
            fs::write(scene.path(format!("t/{number}")), b"x").unwrap();
        }
        if line.contains("@/t/") {
            store.kept.lock().unwrap().objects.clear();
        }
        let ran = run::to_end(store.asked.command(&scene, line), b"");
        assert_eq!(ran.code, *code, "{line}\n{ran}");
        assert!(ran.stderr.contains(says), "{line}\n{ran}");
        assert!(ran.stderr.lines().count() < 10, "each object is named: {ran}");
        let asked = store.asked.asked.lock().unwrap().len();
        assert!(*code != 2 || asked < 300, "each object is asked for: {asked}");
    });
}

/// A gateway lists a link with its own length, and sends what it leads to.
#[test]
fn an_object_that_is_listed_with_another_length_is_told() {
    let (gateway, scene) = (Gateway::new(), Scene::new());
    fs::create_dir(gateway.object("t")).unwrap();
    fs::write(gateway.object("t/file"), b"0123456789").unwrap();
    symlink("file", gateway.object("t/link")).unwrap();
    let ran = gateway.run(&scene, "copy -r --no-preserve s3:/t/ @/plain");
    assert_eq!(ran.code, 3, "{ran}");
    assert!(ran.stderr.contains("without --no-preserve"), "{ran}");
    gateway.succeed(&scene, "copy -r s3:/t/ @/back");
    assert_eq!(fs::read(scene.path("back/link")).unwrap(), b"0123456789");
}
