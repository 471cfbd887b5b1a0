//! Objects of a real store as sources and destinations: sizes, trees, pipes, other hosts, other
//! programs, and what is refused.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::process::Command;
use std::thread;

use crate::support::gateway::{Gateway, file_of, no_difference_for_rsync, set_mtime};
use crate::support::run;
use crate::support::{Scene, data, each, need, until};

const MIB: u64 = 1 << 20;

#[test]
fn objects_of_all_sizes_go_up_and_down() {
    let gateway = Gateway::new();
    let sizes = [0, 1, 100_000, 8 * MIB - 1, 8 * MIB, 8 * MIB + 1, 40 * MIB + 3];
    let options = ["", "--streams 1 --request-size 5M", "--digest crc64 --engine threads"];
    let cases = sizes.iter().flat_map(|size| options.iter().map(move |options| (*size, *options)));
    each(cases, |(size, options)| {
        let scene = Scene::new();
        let key = format!("{size}{}", options.len());
        file_of(&scene.path("a"), *size, *size);
        fs::set_permissions(scene.path("a"), fs::Permissions::from_mode(0o640)).unwrap();
        set_mtime(&scene.path("a"), 1_600_000_000, 123_456_789);
        gateway.succeed(&scene, &format!("copy @/a s3:/d/{key} {options}"));
        gateway.succeed(&scene, &format!("copy s3:/d/{key} @/b {options}"));
        let bytes = fs::read(scene.path("a")).unwrap();
        assert!(fs::read(gateway.object(&format!("d/{key}"))).unwrap() == bytes, "in the store");
        assert!(fs::read(scene.path("b")).unwrap() == bytes, "back");
        let (there, back) =
            (scene.path("a").metadata().unwrap(), scene.path("b").metadata().unwrap());
        let kept = |meta: &fs::Metadata| (meta.mode(), meta.mtime(), meta.mtime_nsec());
        assert_eq!(kept(&there), kept(&back));
    });
}

/// Parts of 32 MiB, and of more than a map of holes is sent for, of a file with holes.
#[test]
fn long_parts_go_up_and_down() {
    let gateway = Gateway::new();
    each([(32, 70 * MIB + 5), (128, 136 * MIB)], |(request_mib, size)| {
        let scene = Scene::new();
        let file = fs::File::create(scene.path("a")).unwrap();
        for (number, at) in [0, 31 * MIB, 66 * MIB, *size - 1000].into_iter().enumerate() {
            file.write_all_at(&data::bytes(number as u64, 1000), at).unwrap();
        }
        let options = format!("--request-size {request_mib}M --streams 1 --memory 512M");
        gateway.succeed(&scene, &format!("copy @/a s3:/long/{size} {options}"));
        data::assert_same(&scene.path("a"), &gateway.object(&format!("long/{size}")));
        gateway.succeed(&scene, &format!("copy s3:/long/{size} @/b {options}"));
        data::assert_same(&scene.path("a"), &scene.path("b"));
        fs::remove_file(gateway.object(&format!("long/{size}"))).unwrap();
    });
}

/// A store takes 10,000 parts, and a part has 1 GiB at most.
#[test]
fn what_is_too_long_for_a_store_is_refused_by_its_name() {
    let (gateway, scene) = (Gateway::new(), Scene::new());
    fs::File::create(scene.path("huge")).unwrap().set_len(11 << 40).unwrap();
    let ran = gateway.run(&scene, "copy @/huge s3:/d/huge");
    let text = "'s3://bucket/d/huge' would have 11 TiB, and an object in a store has 9.77 TiB";
    assert!(ran.code != 0 && ran.stderr.contains(text), "{ran}");
    assert!(!gateway.object("d/huge").exists());
}

/// More objects than a page of a listing has, odd names, links, empty folders, modes, times.
#[test]
fn trees_come_back_as_they_were() {
    let (gateway, scene) = (Gateway::new(), Scene::new());
    let tree = scene.path("tree");
    fs::create_dir_all(tree.join("a/b")).unwrap();
    fs::create_dir_all(tree.join("empty")).unwrap();
    fs::create_dir_all(tree.join("od d+%&ü;=?#")).unwrap();
    for number in 0..1100 {
        fs::write(tree.join(format!("a/b/{number}")), format!("{number}")).unwrap();
    }
    fs::write(tree.join("od d+%&ü;=?#/new\nline <&>'\""), "x").unwrap();
    fs::write(tree.join("a-b"), "").unwrap();
    file_of(&tree.join("a/long"), 20 * MIB, 7);
    symlink("a/b/1", tree.join("link")).unwrap();
    symlink("nowhere", tree.join("a/dangling")).unwrap();
    fs::set_permissions(tree.join("a/b/7"), fs::Permissions::from_mode(0o600)).unwrap();
    fs::set_permissions(tree.join("a"), fs::Permissions::from_mode(0o750)).unwrap();
    for (name, seconds) in [("a/b/8", 1), ("a/b", 1_000_000_000), ("a", 999_999_999), ("empty", 5)]
    {
        set_mtime(&tree.join(name), seconds, 0);
    }
    gateway.succeed(&scene, "copy -r -A @/tree s3:/up/");
    gateway.succeed(&scene, "copy -r -A s3:/up/tree @/down");
    no_difference_for_rsync(&scene.path("tree/"), &scene.path("down/tree/"));
    // The same again finds that nothing has changed; a filter leaves out what it names.
    let again = gateway.succeed(&scene, "copy -r @/tree s3:/up/ --skip-unchanged --json");
    let end = again.events().pop().unwrap();
    assert_eq!(end["record"]["moved"]["files"], 0, "{end}");
    gateway.succeed(&scene, "copy -r s3:/up/tree/ @/some --exclude b --exclude long");
    assert_eq!(fs::read_dir(scene.path("some/a")).unwrap().count(), 1, "the dangling link");
}

#[test]
fn pipes_and_other_hosts_are_ends_too() {
    let (gateway, scene) = (Gateway::new(), Scene::new());
    file_of(&scene.path("a"), 21 * MIB + 5, 3);
    let bytes = fs::read(scene.path("a")).unwrap();
    let put = run::to_end(gateway.command(&scene, "copy - s3:/piped", gateway.port), &bytes);
    assert_eq!(put.code, 0, "{put}");
    assert!(fs::read(gateway.object("piped")).unwrap() == bytes);
    let got = gateway.succeed(&scene, "copy s3:/piped -");
    assert!(got.stdout == bytes);
    let empty = run::to_end(gateway.command(&scene, "copy - s3:/none", gateway.port), b"");
    assert_eq!((empty.code, fs::read(gateway.object("none")).unwrap().len()), (0, 0), "{empty}");
    for line in ["copy s3:/piped far:@/there", "copy far:@/there s3:/again"] {
        gateway.succeed(&scene, line);
    }
    assert!(fs::read(gateway.object("again")).unwrap() == bytes);
    gateway.succeed(&scene, "copy s3:/again s3:/within --manifest @/receipt");
    assert!(fs::read(gateway.object("within")).unwrap() == bytes);
    let hash = blake3::hash(&bytes).to_hex().to_string();
    let receipt = fs::read_to_string(scene.path("receipt")).unwrap();
    assert!(receipt.contains(&hash), "{receipt}");
}

/// What rclone puts is copied with its times, and what is put here is what rclone sees.
#[test]
fn rclone_sees_the_same() {
    let (gateway, scene) = (Gateway::new(), Scene::new());
    fs::create_dir_all(scene.path("t/d")).unwrap();
    for (number, name) in ["t/one", "t/d/two", "t/d/thr ee"].into_iter().enumerate() {
        file_of(&scene.path(name), 6 * MIB * number as u64 + 1, 9);
        set_mtime(&scene.path(name), 1_500_000_000 + number as u64, 250_000_000);
    }
    let local = scene.path("t").display().to_string();
    let put = gateway.rclone(&["copy", &local, "store:bucket/by-rclone", "--s3-chunk-size", "5M"]);
    assert_eq!(put.code, 0, "{put}");
    gateway.succeed(&scene, "copy -r s3:/by-rclone/ @/back");
    gateway.succeed(&scene, "copy -r @/t/ s3:/by-us");
    let check = gateway.rclone(&["check", "--download", &local, "store:bucket/by-us"]);
    assert_eq!(check.code, 0, "{check}");
    let listed = gateway.rclone(&["lsl", "store:bucket/by-us"]);
    for name in ["one", "d/two", "d/thr ee"] {
        let (there, back) = (scene.path("t").join(name), scene.path("back").join(name));
        assert!(fs::read(&there).unwrap() == fs::read(&back).unwrap(), "{name}");
        let mtime = |path: &std::path::Path| {
            path.metadata().map(|meta| (meta.mtime(), meta.mtime_nsec())).unwrap()
        };
        assert_eq!(mtime(&there), mtime(&back), "{name}");
        let time = if name == "one" { "02:40:00.25" } else { "02:40:0" };
        let line = listed.stdout_text().lines().find(|line| line.ends_with(name)).map(String::from);
        assert!(line.is_some_and(|line| line.contains(time)), "{name}: {listed}");
    }
}

/// One of two that write the same new name gets it, and what it has is whole.
#[test]
fn nothing_that_exists_is_replaced_unless_it_is_asked() {
    let (gateway, scene) = (Gateway::new(), Scene::new());
    for (round, size) in [1, 1000, 9 * MIB, 17 * MIB].into_iter().enumerate() {
        file_of(&scene.path(format!("one{round}")), size, 1);
        file_of(&scene.path(format!("two{round}")), size, 2);
        let codes: Vec<i32> = thread::scope(|scope| {
            let run = |name: &'static str| {
                let (gateway, scene) = (&gateway, &scene);
                scope.spawn(move || {
                    gateway.run(scene, &format!("copy @/{name}{round} s3:/raced/{round}")).code
                })
            };
            let both = [run("one"), run("two")];
            both.map(|ran| ran.join().unwrap()).to_vec()
        });
        let won = codes.iter().position(|code| *code == 0).expect("one of them wins");
        assert_eq!(codes[1 - won], 3, "the other is told: {codes:?}");
        let winner = scene.path(format!("{}{round}", ["one", "two"][won]));
        let there = fs::read(gateway.object(&format!("raced/{round}"))).unwrap();
        assert!(there == fs::read(winner).unwrap(), "what won is there");
    }
    gateway.succeed(&scene, "copy @/two0 s3:/raced/1 --overwrite always");
    assert_eq!(fs::read(gateway.object("raced/1")).unwrap().len(), 1);
}

#[test]
fn what_is_refused_is_named() {
    let (gateway, scene) = (Gateway::new(), Scene::new());
    fs::create_dir_all(scene.path("odd/d")).unwrap();
    let odd = OsStr::from_bytes(b"odd/\xff");
    fs::write(scene.path(odd), "x").unwrap();
    fs::write(scene.path("file"), "x").unwrap();
    let long = format!("odd/{}", vec!["x".repeat(200); 5].join("/"));
    fs::create_dir_all(scene.path(&long)).unwrap();
    fs::write(scene.path(format!("{long}/{}", "y".repeat(200))), "x").unwrap();
    gateway.succeed(&scene, "copy @/file s3:/there");
    let cases = [
        ("copy @/file s3://nowhere/x", 2, "there is no bucket 'nowhere'"),
        ("copy s3://nowhere/x @/y", 2, "there is no bucket 'nowhere'"),
        ("copy s3:/nothing @/y", 1, "there is no such object"),
        ("copy s3:/ @/y", 2, "is a folder: -r copies it"),
        ("copy @/file s3:/there", 3, "exists: --update"),
        ("copy @/file s3://B_!/x", 2, "is no name of a bucket"),
        ("copy @/file s3:///x", 2, "names no bucket"),
        ("copy @/file s3:/a/../b", 2, "a key with '.' or '..'"),
        ("copy @/file s3:/x --request-size 4M", 2, "a part of an object in a store has 5M"),
        ("copy @/file s3:/x --s3-profile none", 2, "there is no profile 'none'"),
        ("copy @/file s3:/x --s3-endpoint ftp://h", 2, "begins with neither https:// nor"),
        ("copy -r @/odd s3:/odd", 3, "is not UTF-8: rename it"),
        ("copy -r @/odd s3:/odd2", 3, "more than 1024 bytes: shorten it"),
        ("verify @/file s3://nowhere/x", 2, "there is no bucket 'nowhere'"),
        ("copy -r @/odd s3:/x --delete", 2, "--delete is for folders of hosts"),
    ];
    each(cases, |(line, code, says)| {
        let ran = gateway.run(&scene, line);
        assert_eq!(ran.code, *code, "{line}: {ran}");
        assert!(ran.stderr.contains(says), "{line}: {ran}");
    });
    let variables = [
        ("AWS_ACCESS_KEY_ID", "other", 2, "does not know these credentials"),
        ("AWS_SECRET_ACCESS_KEY", "other", 2, "the secret key is wrong"),
        ("AWS_ACCESS_KEY_ID", "", 2, "no credentials for the store"),
        ("AWS_ENDPOINT_URL", "http://127.0.0.1:1", 7, "cannot connect"),
        ("AWS_ENDPOINT_URL", "https://127.0.0.1:1", 7, "cannot connect"),
    ];
    each(variables, |(name, value, code, says)| {
        for line in ["copy @/file s3:/x", "copy s3:/there @/y", "copy -r s3:/ @/z"] {
            let mut command = gateway.command(&scene, line, gateway.port);
            command.env(name, value);
            let ran = run::to_end(command, b"");
            assert_eq!(ran.code, *code, "{line}: {ran}");
            assert!(ran.stderr.contains(says), "{line}: {ran}");
        }
    });
    assert!(!gateway.object("x").exists() && !scene.path("y").exists());
}

#[test]
fn a_dry_run_asks_and_changes_nothing() {
    let (gateway, scene) = (Gateway::new(), Scene::new());
    fs::create_dir_all(scene.path("t/d")).unwrap();
    fs::write(scene.path("t/d/f"), "x").unwrap();
    let ran = gateway.succeed(&scene, "copy -r @/t s3:/dry -n");
    assert!(ran.stdout_text().contains("1 file"), "{ran}");
    assert!(!ran.stdout_text().contains("enough"), "a store does not say how much room it has");
    assert!(!gateway.object("dry").exists());
}

/// A store behind TLS is trusted by its certificate, and by no other.
#[test]
fn certificates_are_checked() {
    let scene = Scene::new();
    let (key, certificate) = (scene.path("key.pem"), scene.path("cert.pem"));
    let made = Command::new(need("openssl", "openssl"))
        .args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=store"])
        .args(["-addext", "basicConstraints=critical,CA:FALSE"])
        .args(["-addext", "subjectAltName=IP:127.0.0.1", "-keyout"])
        .arg(&key)
        .arg("-out")
        .arg(&certificate)
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let gateway = Gateway::with_tls(&certificate, &key);
    file_of(&scene.path("a"), 9 * MIB, 1);
    let through = |line: &str| {
        let mut command = gateway.command(&scene, line, gateway.port);
        command.env("AWS_ENDPOINT_URL", format!("https://127.0.0.1:{}", gateway.port));
        run::to_end(command, b"")
    };
    for line in ["copy @/a s3:/a --s3-ca @/cert.pem", "copy s3:/a @/b --s3-ca @/cert.pem"] {
        let ran = through(line);
        assert_eq!(ran.code, 0, "{line}: {ran}");
    }
    assert!(fs::read(scene.path("a")).unwrap() == fs::read(scene.path("b")).unwrap());
    let ran = through("copy @/a s3:/c");
    assert_eq!(ran.code, 7, "{ran}");
    assert!(ran.stderr.contains("cannot be trusted"), "{ran}");
    let ran = through("copy @/a s3:/c --s3-ca @/a");
    assert_eq!(ran.code, 2, "{ran}");
    assert!(ran.stderr.contains("has no certificate in the form PEM"), "{ran}");
    assert!(!gateway.object("c").exists());
}

/// What a killed program leaves is kept while it is young, and removed when it is old, wherever the
/// store has it; other keys are left alone.
#[test]
fn uploads_of_a_killed_program_are_cleaned() {
    let (gateway, scene) = (Gateway::new(), Scene::new());
    file_of(&scene.path("big"), 64 * MIB, 1);
    let line = "copy @/big s3:/left/big --rate 8MB";
    let mut child = gateway.command(&scene, line, gateway.port).spawn().unwrap();
    let states = |line: &str| -> Vec<(String, String)> {
        let events = gateway.run(&scene, &format!("{line} --json")).events();
        let files = events.iter().filter(|event| event["event"] == "file");
        let text =
            |event: &serde_json::Value, name: &str| event[name].as_str().unwrap().to_string();
        files.map(|event| (text(event, "path"), text(event, "state"))).collect()
    };
    until("an upload has begun", || !states("clean -n --min-age off s3:/left/").is_empty());
    child.kill().unwrap();
    child.wait().unwrap();
    let left = |state: &str| vec![("s3://bucket/left/big".to_string(), state.to_string())];
    for (line, expect) in [
        ("clean s3:/left/", left("young")),
        ("clean --min-age off s3:/lef", vec![]),
        ("clean -n --min-age off s3:/left", left("would_remove")),
        ("clean --min-age off s3:/left/big", left("removed")),
        ("clean --min-age off s3:/", vec![]),
    ] {
        assert_eq!(states(line), expect, "{line}");
    }
    assert!(!gateway.object("left/big").exists());
    let ran = gateway.run(&scene, "clean s3://nosuchbucket/");
    assert_eq!(ran.code, 3, "{ran}");
    assert!(format!("{ran}").contains("nosuchbucket"), "{ran}");
}

/// A receipt is compared with what the store gives back.
#[test]
fn objects_are_verified_by_a_receipt() {
    let (gateway, scene) = (Gateway::new(), Scene::new());
    fs::create_dir_all(scene.path("t/d")).unwrap();
    for (number, size) in [0, 1, 5000, 20 * MIB].into_iter().enumerate() {
        file_of(&scene.path(format!("t/d/f{number}")), size, 3);
    }
    gateway.succeed(&scene, "copy -r @/t s3:/v --manifest @/sums --digest-also md5");
    for root in ["s3:/v", "s3:/v/"] {
        let ran = gateway.succeed(&scene, &format!("verify @/sums {root}"));
        assert!(ran.stdout_text().contains("all 4 files match"), "{ran}");
    }
    gateway.succeed(&scene, "copy @/t/d/f2 s3:/one --manifest @/one");
    gateway.succeed(&scene, "verify @/one s3:/one");
    // Another object of the same length, with a checksum of its own; and one that is gone.
    fs::write(scene.path("other"), vec![7; 5000]).unwrap();
    gateway.succeed(&scene, "copy @/other s3:/v/t/d/f2 --overwrite always");
    fs::remove_file(gateway.object("v/t/d/f1")).unwrap();
    let ran = gateway.run(&scene, "verify @/sums s3:/v");
    assert_eq!(ran.code, 6, "{ran}");
    assert!(ran.stdout_text().contains("1 differing, 1 missing"), "{ran}");
}
