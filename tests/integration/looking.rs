//! What looks and copies nothing: `compare`, `ls` and `verify` here, at another host through a real
//! sshd, and in a store; and the reasons that a dry run and `-v` give.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Command;

use crate::support::gateway::Gateway;
use crate::support::run::{self, Ran};
use crate::support::{Scene, each, need};

/// Two trees that differ in each way that is told, and in times that are old enough to be kept.
fn scene_of_two() -> Scene {
    let scene = Scene::new();
    for (path, text) in [
        ("a/same", "same"),
        ("b/same", "same"),
        ("a/size", "longer"),
        ("b/size", "long"),
        ("a/bytes", "one"),
        ("b/bytes", "two"),
        ("a/time", "time"),
        ("b/time", "time"),
        ("a/sub/only", "a"),
        ("b/old/er/only", "b"),
        ("b/sub/only-b", "b"),
        ("a/kind", "file"),
    ] {
        let path = scene.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        run::to_end(touch("2020-01-01T00:00:00Z", &path), b"");
    }
    fs::create_dir(scene.path("a/empty")).unwrap();
    run::to_end(touch("2021-01-01T00:00:00Z", &scene.path("b/time")), b"");
    symlink("same", scene.path("b/kind")).unwrap();
    scene
}

fn touch(date: &str, path: &std::path::Path) -> Command {
    let mut touch = Command::new(need("touch", "coreutils"));
    touch.args(["-d", date]).arg(path);
    touch
}

/// `state path reason` of each name that a run tells of, sorted.
fn told(ran: &Ran) -> Vec<String> {
    let events = ran.events();
    let files = events.iter().filter(|event| event["event"] == "file");
    let line = |event: &serde_json::Value| {
        let reason: Vec<&str> = match event["reason"].as_array() {
            Some(words) => words.iter().map(|word| word.as_str().unwrap()).collect(),
            None => Vec::new(),
        };
        let text = |name: &str| event[name].as_str().unwrap().to_string();
        format!("{} {} {}", text("state"), text("path"), reason.join(",")).trim_end().to_string()
    };
    let mut told: Vec<String> = files.map(line).collect();
    told.sort();
    told
}

const DIFFERENCES: [&str; 8] = [
    "differs kind kind",
    "differs size size",
    "differs time time",
    "only_in_a empty/",
    "only_in_a sub/only",
    "only_in_b old",
    "only_in_b old/er",
    "only_in_b old/er/only",
];

/// One answer, wherever the two are. By contents another name differs, and a time does not.
#[test]
fn two_trees_are_compared_wherever_they_are() {
    let expect = |lines: &[&str]| {
        let mut all: Vec<String> = lines.iter().map(|line| line.to_string()).collect();
        all.push("only_in_b sub/only-b".into());
        all
    };
    each(["@/a @/b", "@/a far:b", "far:a @/b", "@/a/ far:b/"], |ends| {
        let scene = scene_of_two();
        let ends = ends.replace("far:", &format!("far:{}/", scene.path("").display()));
        let ran = scene.run(&format!("compare {ends} --json"));
        assert_eq!((ran.code, told(&ran)), (3, expect(&DIFFERENCES)), "{ran}");
        let end = ran.events().pop().unwrap();
        let compared = serde_json::json!(
            {"equal": 2, "differing": 3, "only_in_a": 2, "only_in_b": 4});
        assert_eq!(end["compared"], compared, "{ran}");
        let ran = scene.run(&format!("compare {ends} --json --checksum"));
        let mut by_contents = expect(&DIFFERENCES);
        by_contents.retain(|line| line != "differs time time");
        by_contents.push("differs bytes contents".into());
        by_contents.sort();
        assert_eq!((ran.code, told(&ran)), (3, by_contents), "{ran}");
        // Filters hold for both; what is left is equal.
        let filters = ["kind", "size", "time", "empty", "only", "old", "only-b"];
        let filters = filters.map(|name| format!("--exclude {name}")).join(" ");
        let ran = scene.succeed(&format!("compare {ends} {filters}"));
        let text = "no difference: 2 files equal by size and time\n";
        assert!(ran.stdout_text().ends_with(text), "{ran}");
        scene.assert_holds(
            "b",
            &["bytes", "kind", "old/er/only", "same", "size", "sub/only-b", "time"],
        );
    });
}

#[test]
fn one_file_is_compared_with_one() {
    let scene = scene_of_two();
    scene.succeed("compare @/a/same @/b/same");
    let ran = scene.run("compare @/a/size @/b/size");
    assert_eq!(ran.code, 3, "{ran}");
    assert_eq!(
        ran.stdout_text(),
        "differs    size (size)\n1 differs; 0 files equal by size and time\n"
    );
    for (ends, name) in [("@/a @/none", "none"), ("@/none @/b", "none"), ("@/a far:/none", "/none")]
    {
        let ran = scene.run(&format!("compare {ends}"));
        assert_eq!(ran.code, 1, "{ran}");
        assert!(ran.stderr.contains(name) && ran.stderr.contains("no such file"), "{ran}");
    }
}

/// A store and a tree: what was copied is equal, and each side's own names are told.
#[test]
fn a_store_is_compared_and_listed() {
    let (gateway, scene) = (Gateway::new(), scene_of_two());
    let run = |line: &str| run::to_end(gateway.command(&scene, line, gateway.port), b"");
    let ran = run("copy -r @/a/ s3:/a");
    assert_eq!(ran.code, 0, "{ran}");
    for ends in ["@/a s3:/a", "s3:/a @/a", "@/a s3:/a/", "s3:/a/ s3:/a"] {
        let ran = run(&format!("compare {ends} --exclude empty"));
        assert_eq!(ran.code, 0, "{ends}\n{ran}");
    }
    fs::write(scene.path("a/size"), "longer now").unwrap();
    fs::remove_file(scene.path("a/sub/only")).unwrap();
    fs::write(scene.path("a/new"), "").unwrap();
    let ran = run("compare @/a s3:/a --json --exclude empty");
    let expect = ["differs size size,time", "only_in_a new", "only_in_b sub/only"];
    assert_eq!((ran.code, told(&ran)), (3, expect.map(String::from).to_vec()), "{ran}");
    let ran = run("compare s3:/a @/a --json --exclude empty");
    let expect = ["differs size size,time", "only_in_a sub/only", "only_in_b new"];
    assert_eq!((ran.code, told(&ran)), (3, expect.map(String::from).to_vec()), "{ran}");
    for (line, names) in [
        ("ls s3:/a --json", vec!["bytes", "empty", "kind", "same", "size", "sub", "time"]),
        ("ls s3:/a/ --json -s", vec!["bytes", "empty", "kind", "same", "size", "sub", "time"]),
        ("ls s3:/a/sub/only --json", vec!["only"]),
    ] {
        let ran = run(line);
        assert_eq!((ran.code, names_of(&ran)), (0, names.iter().map(|n| n.to_string()).collect()));
    }
    let sums = run("ls s3:/a --json -s");
    let sub = item(&sums, "sub");
    assert_eq!(
        (sub["kind"].as_str(), &sub["bytes"], &sub["files"]),
        (Some("folder"), &1.into(), &1.into())
    );
    let ran = run("ls s3:/nokey/");
    assert!(ran.code == 1 && ran.stderr.contains("there are no such objects"), "{ran}");
}

fn names_of(ran: &Ran) -> Vec<String> {
    let events = ran.events();
    let items = events.iter().filter(|event| event["event"] == "item");
    items.map(|item| item["path"].as_str().unwrap().to_string()).collect()
}

fn item(ran: &Ran, path: &str) -> serde_json::Value {
    let mut events = ran.events();
    events.retain(|event| event["event"] == "item" && event["path"] == path);
    events.pop().unwrap_or_else(|| panic!("no {path}\n{ran}"))
}

/// Another host lists what this one does, and its words say which host that is.
#[test]
fn a_folder_is_listed_here_and_there() {
    let scene = scene_of_two();
    fs::set_permissions(scene.path("b/same"), fs::Permissions::from_mode(0o640)).unwrap();
    let there = format!("far:{}", scene.path("b").display());
    each(["", "-s"], |sums| {
        let items = |place: &str| {
            let mut events = scene.succeed(&format!("ls {place} {sums} --json")).events();
            events.retain(|event| event["event"] == "item");
            let stamps = ["time_utc", "monotonic_s"];
            for event in &mut events {
                stamps.iter().for_each(|name| drop(event.as_object_mut().unwrap().remove(*name)));
            }
            events
        };
        let (here, far) = (items("@/b"), items(&there));
        assert_eq!(here, far);
        assert_eq!(here.len(), 7);
    });
    let ran = scene.succeed(&format!("ls -s {there} --json"));
    let (old, same, kind) = (item(&ran, "old"), item(&ran, "same"), item(&ran, "kind"));
    assert_eq!((old["files"].as_u64(), old["bytes"].as_u64()), (Some(1), Some(1)), "{ran}");
    assert_eq!((same["mode"].as_str(), same["bytes"].as_u64()), (Some("0640"), Some(4)), "{ran}");
    assert_eq!(same["mtime_s"].as_f64(), Some(1_577_836_800.0), "{ran}");
    assert_eq!((kind["kind"].as_str(), kind["link_target"].as_str()), (Some("link"), Some("same")));
    let ran = scene.succeed(&format!("ls {there}/s* --json"));
    let base = scene.path("b").display().to_string();
    let expect = ["same", "size", "sub"].map(|name| format!("{base}/{name}"));
    assert_eq!(names_of(&ran), expect, "{ran}");
    let ran = scene.run(&format!("ls {there}/none"));
    assert!(ran.code == 1 && ran.stderr.starts_with("datapump: far: cannot find '"), "{ran}");
}

/// A receipt of a push is verified where the files are: on a host that has nothing but what the
/// copy has brought.
#[test]
fn a_receipt_is_verified_at_another_host() {
    let scene = scene_of_two();
    let there = format!("far:{}", scene.path("store").display());
    scene.succeed(&format!("copy -r -q @/a/ {there} --manifest @/sums --digest-also sha256"));
    each(["@/sums", "@/sums.sha256", "-"], |receipt| {
        let mut command = scene.command(&scene.words(&format!("verify {receipt} {there}")));
        let input = fs::read(scene.path("sums")).unwrap();
        command.arg("--json");
        let ran = run::to_end(command, if *receipt == "-" { &input } else { b"" });
        assert_eq!(ran.code, 0, "{ran}");
        let end = ran.events().pop().unwrap();
        assert_eq!(end["verified"]["files"].as_u64(), Some(6), "{ran}");
    });
    fs::write(scene.path("store/bytes"), "eno").unwrap();
    fs::remove_file(scene.path("store/same")).unwrap();
    let ran = scene.run(&format!("verify @/sums {there}"));
    assert_eq!(ran.code, 6, "{ran}");
    for text in
        ["far: 'bytes' does not match the receipt: its bytes differ", "far: 'same' is missing"]
    {
        assert!(ran.stderr.contains(text), "{text}\n{ran}");
    }
    let ran = scene.run(&format!("verify @/sums {there}/none"));
    assert!(ran.code == 1 && ran.stderr.starts_with("datapump: far: cannot open '"), "{ran}");
    // What is no receipt is told of by its own name, not by that of the copy there.
    fs::write(scene.path("no"), "nothing of a receipt\n").unwrap();
    let ran = scene.run(&format!("verify @/no {there}"));
    let text = format!("far: '{}' is no receipt: line 1", scene.path("no").display());
    assert!(ran.code == 2 && ran.stderr.contains(&text), "{ran}");
}

/// A bag's paths are read as BagIt writes them, there too.
#[test]
fn a_bag_is_verified_at_another_host() {
    let scene = Scene::new();
    fs::create_dir_all(scene.path("bag/data")).unwrap();
    fs::write(scene.path("bag/bagit.txt"), "BagIt-Version: 1.0\n").unwrap();
    fs::write(scene.path("bag/data/50%"), "half").unwrap();
    let sum = blake3::hash(b"half").to_hex();
    fs::write(scene.path("bag/manifest-blake3.txt"), format!("{sum} data/50%25\n")).unwrap();
    let there = format!("far:{}", scene.path("bag").display());
    scene.succeed(&format!("verify @/bag/manifest-blake3.txt {there}"));
}

/// A dry run says why each file would be copied, and `-v` why it was: the same.
#[test]
fn a_run_says_why_each_file_is_copied() {
    let cases = [
        ("-u", vec!["new sub/only", "size size"]),
        (
            "--skip-unchanged --overwrite always",
            vec!["new sub/only", "size size", "time time", "kind kind"],
        ),
        (
            "--checksum --overwrite always",
            vec!["new sub/only", "size size", "contents bytes", "kind kind"],
        ),
        (
            "--overwrite always",
            vec!["new sub/only", "size size", "time time", "kind kind", "same bytes", "mode same"],
        ),
        (
            "--delete",
            vec![
                "new sub/only",
                "size size",
                "time time",
                "kind kind",
                "deleting old",
                "deleting old/er",
                "deleting old/er/only",
                "deleting sub/only-b",
                "mode same",
            ],
        ),
    ];
    for (options, mut expect) in cases {
        let scene = scene_of_two();
        fs::set_permissions(scene.path("b/same"), fs::Permissions::from_mode(0o600)).unwrap();
        let there = format!("far:{}", scene.path("b").display());
        let lines = |ran: &Ran| {
            let text = ran.stdout_text();
            let lines = text.lines().filter(|line| line.starts_with(['<', '>', '.', '*']));
            let mut found: Vec<String> = lines
                .map(|line| {
                    let words: Vec<&str> = line.split_whitespace().collect();
                    match words[0] {
                        "*deleting" => format!("deleting {}", words[1]),
                        _ => words[words.len() - 2..].join(" "),
                    }
                })
                .collect();
            found.sort();
            found
        };
        expect.sort_unstable();
        let dry = scene.succeed(&format!("copy -n -r {options} @/a/ {there}"));
        assert_eq!(lines(&dry), expect, "{options}\n{dry}");
        let ran = scene.succeed(&format!("copy -v -r {options} @/a/ {there}"));
        assert_eq!(lines(&ran), expect, "{options}\n{ran}");
    }
}

/// The receipt of all files is not replaced by one of the few that a second run copies.
#[test]
fn a_receipt_stays_in_a_second_run() {
    let scene = scene_of_two();
    scene.succeed("copy -r @/a/ @/new --manifest @/sums");
    let sums = fs::read(scene.path("sums")).unwrap();
    for options in ["-u", "--delete --overwrite older"] {
        let ran = scene.run(&format!("copy -r {options} @/a/ @/new --manifest @/sums"));
        assert!(ran.code == 2 && ran.stderr.contains("sums' exists: name another"), "{ran}");
        assert_eq!(fs::read(scene.path("sums")).unwrap(), sums);
    }
    scene.succeed("verify -v @/sums @/new");
}

/// A name with a line break is one line, wherever it is from.
#[test]
fn a_name_is_one_line() {
    let scene = Scene::new();
    fs::create_dir(scene.path("odd")).unwrap();
    fs::write(scene.path("odd/a\nb"), "").unwrap();
    for place in ["@/odd".to_string(), format!("far:{}", scene.path("odd").display())] {
        let ran = scene.succeed(&format!("ls {place}"));
        let text = ran.stdout_text();
        assert_eq!(text.lines().count(), 2, "{ran}");
        assert!(text.contains("  a\\nb\n"), "{ran}");
    }
}
