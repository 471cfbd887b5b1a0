//! What a store answers is compared with what it was asked, and a contradiction is an error.

use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use rustix::process::Signal;

use crate::support::gateway::{Gateway, file_of};
use crate::support::processes::send;
use crate::support::run;
use crate::support::scripted_store::{Answer, Asked, ScriptedStore};
use crate::support::{Scene, each};

/// Without the signal it would wait for an hour.
#[test]
fn a_signal_ends_the_first_request() {
    let lines = [
        "copy s3://bucket/k @/x",
        "copy -r s3://bucket/t/ @/x",
        "copy @/f s3://bucket/k",
        "copy -r @/ s3://bucket/t/",
    ];
    let cases = lines.iter().flat_map(|line| [Signal::INT, Signal::TERM].map(|s| (line, s)));
    each(cases, |(line, signal)| {
        let scene = Scene::new();
        fs::write(scene.path("f"), b"x").unwrap();
        let store = ScriptedStore::new(|_| Answer::Silence);
        let running = run::start(store.command(&scene, &format!("{line} --stall 3600")));
        store.wait_for_one();
        send(running.pid(), *signal);
        let ran = running.end();
        assert_eq!(ran.code, 130, "{line}\n{ran}");
        assert_eq!(store.asked.lock().unwrap().len(), 1, "{line}: it has asked again");
    });
}

/// How a listing of `k/a` to `k/d`, in pages of one or two, says where it goes on.
fn paged(asked: &Asked, says: &dyn Fn(usize) -> String, page: usize) -> Answer {
    let pages = [&["k/a", "k/b"][..], &["k/c"], &["k/d"]];
    let prefix = asked.query.split('&').find_map(|pair| pair.strip_prefix("prefix="));
    let prefix = prefix.unwrap_or("").replace("%2F", "/");
    let page = page.min(pages.len() - 1);
    let mut text = String::from("<ListBucketResult>");
    if page < pages.len() - 1 {
        text.push_str(&format!("<IsTruncated>true</IsTruncated>{}", says(page)));
    }
    for name in pages[page].iter().filter(|name| name.starts_with(&prefix)) {
        text.push_str(&format!(
            "<Contents><Key>{name}</Key><Size>3</Size>\
             <LastModified>2026-01-01T00:00:00Z</LastModified></Contents>"
        ));
    }
    Answer::text(200, &format!("{text}</ListBucketResult>"))
}

fn object(asked: &Asked) -> Answer {
    let is_there = ["k/a", "k/b", "k/c", "k/d"].contains(&&asked.key[..]);
    match (&asked.method[..], is_there) {
        ("PUT", _) => Answer::Of(200, "ETag: \"1\"\r\n".into(), Vec::new()),
        (_, true) => {
            let head = "ETag: \"1\"\r\nLast-Modified: Thu, 01 Jan 2026 00:00:00 GMT\r\n";
            Answer::Of(200, head.into(), b"old".to_vec())
        }
        (_, false) => Answer::refused(404, "NoSuchKey"),
    }
}

type Says = fn(usize) -> String;

/// A store that tells where each page but the last goes on.
fn paging(says: Says) -> ScriptedStore {
    ScriptedStore::new(move |asked| {
        if !asked.query.contains("list-type") {
            return object(asked);
        }
        static ASKED: AtomicUsize = AtomicUsize::new(0);
        let is_next = asked.query.contains("continuation-token");
        let page = match is_next {
            true => ASKED.fetch_add(1, Relaxed) + 1,
            false => {
                ASKED.store(0, Relaxed);
                0
            }
        };
        paged(asked, &says, page)
    })
}

const NO_TOKEN: Says = |_| "<NextMarker>k/b</NextMarker>".into();
const SAME_TOKEN: Says = |_| "<NextContinuationToken>T</NextContinuationToken>".into();
const RIGHT: Says = |page| format!("<NextContinuationToken>T{page}</NextContinuationToken>");

/// Of a listing that says that it goes on, and not where, nobody knows what is missing.
#[test]
fn a_listing_that_cannot_be_followed_is_no_end() {
    for (says, code) in [(RIGHT, 0), (NO_TOKEN, 3), (SAME_TOKEN, 3)] {
        let (scene, store) = (Scene::new(), paging(says));
        let line = "copy -r --no-preserve s3://bucket/k/ @/back";
        let ran = run::to_end(store.command(&scene, line), b"");
        assert_eq!(ran.code, code, "{ran}");
        assert_eq!(code == 0, scene.path("back/d").exists(), "{ran}");
        let says = "cannot be followed to its end";
        assert!(code == 0 || ran.stderr.contains(says), "{ran}");
        let dry = run::to_end(store.command(&scene, &line.replace("@/back", "@/dry -n")), b"");
        assert_eq!(dry.code, code, "{dry}");
    }
}

/// Nor is what such a listing leaves out known to be no object: each is asked for by its name.
#[test]
fn nothing_is_replaced_that_a_listing_leaves_out() {
    for says in [RIGHT, NO_TOKEN, SAME_TOKEN] {
        let (scene, store) = (Scene::new(), paging(says));
        fs::create_dir(scene.path("new")).unwrap();
        fs::write(scene.path("new/c"), b"new").unwrap();
        let ran = run::to_end(store.command(&scene, "copy -r @/new/ s3://bucket/k"), b"");
        assert_eq!(ran.code, 3, "{ran}");
        assert!(!store.has_been_asked(|asked| asked.is("PUT", "k/c")), "it is replaced\n{ran}");
    }
}

/// A store that ignores conditions: its ranges are of two versions.
#[test]
fn ranges_of_two_versions_are_never_one_file() {
    const SIZE: usize = 20 << 20;
    let changes = [("e1", "e1", 0), ("e1", "e2", 4)];
    each(changes, |(first, then, code)| {
        let (scene, first, then) = (Scene::new(), first.to_string(), then.to_string());
        let store = ScriptedStore::new(move |asked| {
            if asked.method == "HEAD" {
                let head = format!("ETag: \"{first}\"\r\nContent-Length: {SIZE}\r\n");
                return Answer::Of(200, head, Vec::new());
            }
            let range = asked.header("range").trim_start_matches("bytes=").to_string();
            let Some((from, to)) = range.split_once('-') else {
                return Answer::refused(400, "InvalidRange");
            };
            let (from, to): (usize, usize) = (from.parse().unwrap(), to.parse().unwrap());
            let (tag, byte) = if from == 0 { (&first, b'A') } else { (&then, b'B') };
            let head = format!("ETag: \"{tag}\"\r\nContent-Range: bytes {range}/{SIZE}\r\n");
            Answer::Of(206, head, vec![byte; to + 1 - from])
        });
        let ran = run::to_end(store.command(&scene, "copy s3://bucket/o @/x"), b"");
        assert_eq!(ran.code, *code, "{ran}");
        assert_eq!(scene.path("x").exists(), *code == 0, "{ran}");
        assert!(*code == 0 || ran.stderr.contains("changed while it was read"), "{ran}");
    });
}

/// Whose keys sign what is sent.
#[test]
fn a_profile_that_is_typed_counts_more_than_variables() {
    for (option, variable, key) in [
        (" --s3-profile other", "", "profilekey"),
        ("", "other", "testkey"), // as AWS' tools do
        ("", "", "testkey"),
    ] {
        let (scene, store) = (Scene::new(), ScriptedStore::new(object));
        let text = "[other]\naws_access_key_id = profilekey\naws_secret_access_key = y\n";
        fs::write(scene.path("creds"), text).unwrap();
        let mut command = store.command(&scene, &format!("copy s3://bucket/k/a @/x{option}"));
        command.env("AWS_SHARED_CREDENTIALS_FILE", scene.path("creds"));
        command.env("AWS_ACCESS_KEY_ID", "testkey").env("AWS_PROFILE", variable);
        let ran = run::to_end(command, b"");
        assert_eq!(ran.code, 0, "{ran}");
        let signs = format!("Credential={key}/");
        let is_signed = |asked: &Asked| asked.header("authorization").contains(&signs);
        assert!(!store.has_been_asked(|asked| !is_signed(asked)), "{option}{variable}: not {key}");
    }
}

/// It looks like an empty backup.
#[test]
fn a_mistyped_key_is_no_empty_folder() {
    let (gateway, scene) = (Gateway::new(), Scene::new());
    fs::create_dir(scene.path("tree")).unwrap();
    fs::write(scene.path("tree/f"), b"x").unwrap();
    let empty = gateway.run(&scene, "copy -r s3:/ @/empty");
    assert_eq!(empty.code, 0, "an empty bucket is no mistake\n{empty}");
    gateway.succeed(&scene, "copy -r @/tree s3:/");
    gateway.succeed(&scene, "copy -r s3:/tree/ @/back");
    for line in ["copy -r s3:/tre/ @/no", "copy -r s3:/tre @/no", "copy -r -n s3:/tree/g/ @/no"] {
        let ran = gateway.run(&scene, line);
        assert_eq!(ran.code, 1, "{line}\n{ran}");
        assert!(ran.stderr.contains("there "), "{ran}");
        assert!(!scene.path("no").exists(), "{line}");
    }
}

/// Whatever made the objects, and whatever the store keeps of them.
#[test]
fn objects_are_compared_by_their_bytes() {
    each(["gateway", "moto"], |store| {
        let (gateway, scene) = match *store {
            "moto" => (Gateway::moto(), Scene::new()),
            _ => (Gateway::new(), Scene::new()),
        };
        fs::create_dir(scene.path("tree")).unwrap();
        file_of(&scene.path("tree/long"), (9 << 20) + 1, 5);
        fs::write(scene.path("tree/small"), b"small").unwrap();
        fs::write(scene.path("tree/empty"), b"").unwrap();
        gateway.succeed(&scene, "copy -r @/tree/ s3:/t/");
        gateway.succeed(&scene, "copy -r s3:/t/ @/back");
        let up = "copy -r --checksum --overwrite always @/tree/ s3:/t/";
        let down = "copy -r --checksum --overwrite always s3:/t/ @/back";
        let copied = |line: &str| {
            let ran = gateway.succeed(&scene, &format!("{line} --json"));
            ran.events().last().unwrap()["record"]["moved"]["files"].as_u64().unwrap()
        };
        for line in [up, down] {
            assert_eq!(copied(line), 0, "{line}: nothing has changed");
        }
        fs::write(scene.path("tree/small"), b"Small").unwrap();
        file_of(&scene.path("tree/long"), (9 << 20) + 1, 6);
        gateway.succeed(&scene, &format!("{up} -n"));
        for line in [up, down] {
            assert_eq!(copied(line), 2, "{line}: two have changed, and keep their lengths");
            assert_eq!(copied(line), 0, "{line}");
        }
        assert!(
            fs::read(scene.path("back/long")).unwrap()
                == fs::read(scene.path("tree/long")).unwrap()
        );
    });
}

/// Of "123456789", which comes whole, and of 12 MiB of zeros, which come in ranges.
#[test]
fn checksums_of_other_writers_are_checked() {
    const LONG: usize = 12 << 20;
    let cases = [
        ("crc32", "y/Q5Jg==", "AfsszQ=="),
        ("crc32c", "4waSgw==", "u7MK/Q=="),
        ("sha1", "98O8HYCOBHMq32eZZczDTKeuNEE=", "6WUifmIAZV9PveXnTfE/LhDDu74="),
        (
            "sha256",
            "FeKw08M4keuw8e9gnsQZQgwg4yDOlMZfvIwzEkSOsiU=",
            "z63UShA8vW1XJvoHsn16rS9n7Tkw/5aQHEhqW+r35yM=",
        ),
    ];
    let cases = cases.iter().flat_map(|(kind, short, long)| {
        let (short_bytes, long_bytes) = (b"123456789".to_vec(), vec![0; LONG]);
        [(*kind, *short, short_bytes), (*kind, *long, long_bytes)]
    });
    each(cases, |(kind, sum, bytes)| {
        for at in [None, Some(0), Some(bytes.len() - 1)] {
            let (scene, mut sent, sum) = (Scene::new(), bytes.clone(), sum.to_string());
            at.iter().for_each(|at| sent[*at] ^= 1);
            let kind = kind.to_string();
            let store = ScriptedStore::new(move |asked| {
                let size = sent.len();
                let mut head = format!(
                    "ETag: \"1\"\r\nLast-Modified: Thu, 01 Jan 2026 00:00:00 GMT\r\n\
                     x-amz-checksum-{kind}: {sum}\r\n\
                     x-amz-checksum-type: FULL_OBJECT\r\n"
                );
                if asked.query.contains("list-type") {
                    let text = format!(
                        "<ListBucketResult><Contents><Key>t/o</Key><Size>{size}</Size>\
                         <LastModified>2026-01-01T00:00:00Z</LastModified></Contents>\
                         </ListBucketResult>"
                    );
                    return Answer::text(200, &text);
                }
                match asked.header("range").trim_start_matches("bytes=").split_once('-') {
                    Some((from, to)) => {
                        let (from, to): (usize, usize) =
                            (from.parse().unwrap(), to.parse().unwrap());
                        head.push_str(&format!("Content-Range: bytes {from}-{to}/{size}\r\n"));
                        Answer::Of(206, head, sent[from..=to].to_vec())
                    }
                    None => Answer::Of(200, head, sent.clone()),
                }
            });
            for (line, code) in [("copy s3://bucket/t/o @/x", 6), ("copy -r s3://bucket/t/ @/y", 6)]
            {
                let ran = run::to_end(store.command(&scene, line), b"");
                let code = at.map_or(0, |_| code);
                assert_eq!(ran.code, code, "{at:?}: {ran}");
                assert!(code == 0 || ran.stderr.contains("not what its checksum"), "{ran}");
            }
            assert_eq!(
                (scene.path("x").exists(), scene.path("y/o").exists()),
                (at.is_none(), at.is_none())
            );
        }
    });
}
