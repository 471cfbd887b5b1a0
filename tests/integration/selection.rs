//! What is copied, what is left out, and what is only reported: filters, lists of names, unchanged
//! files, dry runs, failures by file, and cleaning up. On one host and through a real sshd.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::time::{Duration, SystemTime};

use crate::support::data::{self, assert_same, write_file};
use crate::support::{Scene, each, run};

/// The prefixes of the source and of the destination: local, push and pull.
const WAYS: &[(&str, &str)] = &[("", ""), ("", "far:"), ("far:", "")];

fn write_sources(scene: &Scene) {
    for folder in ["src/build", "src/lib/build", "src/lib/tmp", "src/empty"] {
        fs::create_dir_all(scene.path(folder)).unwrap();
    }
    let names =
        ["a.c", "a.o", "keep.o", "build/x", "lib/b.c", "lib/b.o", "lib/build/y", "lib/tmp/z"];
    for (i, name) in names.iter().enumerate() {
        write_file(&scene.path("src").join(name), i as u64, 1000 + i);
    }
}

#[test]
fn filters() {
    let cases: &[(&str, &[&str], u64)] = &[
        ("--exclude *.o", &["a.c", "build/x", "lib/b.c", "lib/build/y", "lib/tmp/z"], 3),
        (
            "--exclude *.o --include keep.o --exclude tmp/",
            &["a.c", "build/x", "keep.o", "lib/b.c", "lib/build/y"],
            3,
        ),
        ("--include keep.o --exclude *.o --exclude lib", &["a.c", "build/x"], 3),
        (
            "--exclude /build",
            &["a.c", "a.o", "keep.o", "lib/b.c", "lib/b.o", "lib/build/y", "lib/tmp/z"],
            1,
        ),
        ("--exclude * --include */ --include *.c", &["a.c", "lib/b.c"], 6),
    ];
    let cases: Vec<_> =
        cases.iter().flat_map(|case| WAYS.iter().map(move |way| (case, way))).collect();
    each(cases, |((options, expect, excluded), (from, to))| {
        let scene = Scene::new();
        write_sources(&scene);
        let ran = scene.succeed(&format!("copy -r --json {options} {from}@/src/ {to}@/out/"));
        scene.assert_holds("out", expect);
        let end = ran.events().pop().unwrap();
        assert_eq!(end["record"]["moved"]["excluded"].as_u64(), Some(*excluded), "{options}");
        assert_eq!(
            end["record"]["moved"]["files"].as_u64(),
            Some(expect.len() as u64),
            "{options}"
        );
    });
}

/// Files of patterns count where they stand among the other patterns; one may be standard input.
#[test]
fn files_of_patterns() {
    let files =
        [("objects", "# objects\n*.o  \n!keep.o"), ("keep", "!keep.o\r\n"), ("tmp", "tmp/")];
    let all_c: &[&str] = &["a.c", "build/x", "lib/b.c", "lib/build/y", "lib/tmp/z"];
    let with_keep: &[&str] = &["a.c", "build/x", "keep.o", "lib/b.c", "lib/build/y", "lib/tmp/z"];
    let cases: &[(&str, &str, &[&str])] = &[
        ("--exclude-from @/objects", "", with_keep),
        ("--exclude *.o --exclude-from @/keep", "", with_keep),
        ("--exclude-from @/keep --exclude *.o", "", all_c),
        ("--exclude-from @/objects --exclude keep.o", "", all_c),
        ("--exclude-from -", "*.o\n", all_c),
        ("--exclude-from @/objects --exclude-from @/tmp", "", &with_keep[..5]),
    ];
    each(cases, |(options, input, expect)| {
        let scene = Scene::new();
        write_sources(&scene);
        for (name, text) in files {
            fs::write(scene.path(name), text).unwrap();
        }
        let line = format!("copy -r {options} @/src/ @/out/");
        let ran = run::to_end(scene.command(&scene.words(&line)), input.as_bytes());
        assert_eq!(ran.code, 0, "{line}\n{ran}");
        scene.assert_holds("out", expect);
    });
}

#[test]
fn wrong_files_of_patterns_copy_nothing() {
    let cases = [
        ("--exclude-from @/none", "cannot read '"),
        ("--exclude-from @/bad", "line 3: "),
        ("--exclude-from @/rsyncs", "line 1: rsync's '- ' and '+ ' are not read"),
        ("--exclude-from -  --exclude-from -", "standard input is read once"),
        ("--exclude-from - --files-from -", "standard input is read once"),
    ];
    each(cases, |(options, expect)| {
        let scene = Scene::new();
        write_sources(&scene);
        fs::write(scene.path("bad"), "a\n\n[b\n").unwrap();
        fs::write(scene.path("rsyncs"), "- *.o\n").unwrap();
        let ran = scene.run(&format!("copy -r {options} @/src @/out"));
        assert_eq!(ran.code, 2, "{ran}");
        assert!(ran.stderr.contains(expect), "{ran}");
        assert!(!scene.path("out").exists(), "{ran}");
    });
}

/// Who writes patterns as rsync reads them, where the first match counts, is told.
#[test]
fn a_pattern_without_effect_is_warned_of() {
    let cases = [
        ("--include keep.o --exclude *.o", true),
        ("--exclude *.o --include keep.o", false),
        ("--include keep.o --exclude /*.o", false),
        ("--include keep.o --exclude *.o --include keep.o", false),
    ];
    each(cases, |(options, is_told)| {
        for command in ["copy -r -n", "spread -n"] {
            let scene = Scene::new();
            write_sources(&scene);
            let ran = scene.run(&format!("{command} {options} @/src/ @/out"));
            assert_eq!(ran.stderr.contains("what --include 'keep.o' keeps"), *is_told, "{ran}");
        }
    });
}

/// Two sources of one command that have a file of the same name: the first is copied, whatever the
/// order in which they are read and finished, and the other is told of.
#[test]
fn a_name_of_two_sources_is_copied_once() {
    let cases: [(&str, &[&str]); 3] =
        [("@/a/f @/b/f", &["f"]), ("-r @/a/ @/b/", &["f", "g"]), ("-r @/a/f @/b/", &["f", "g"])];
    let cases = cases.iter().flat_map(|case| ["", "--overwrite always"].map(|it| (case, it)));
    let cases = cases.flat_map(|case| WAYS.iter().map(move |way| (case, way)));
    each(cases, |(((sources, expect), options), (from, to))| {
        let scene = Scene::new();
        for (folder, name, bytes) in [("a", "f", 2000), ("b", "f", 0), ("b", "g", 5)] {
            fs::create_dir_all(scene.path(folder)).unwrap();
            write_file(&scene.path(folder).join(name), 1, bytes);
        }
        let sources = sources.replace("@/", &format!("{from}@/"));
        for dry in [true, false] {
            let dry = if dry { "-n" } else { "" };
            let ran = scene.run(&format!("copy --json {dry} {options} {sources} {to}@/out/"));
            assert_eq!(ran.code, 3, "{ran}");
            assert!(ran.stdout_text().contains("another source of this command"), "{ran}");
            let done = ran.events().into_iter().find(|event| {
                event["path"] == "f"
                    && ["done", "would_copy"].contains(&event["state"].as_str().unwrap())
            });
            assert_eq!(done.unwrap()["bytes"], 2000, "{ran}");
        }
        scene.assert_arrived("out", expect);
        assert_same(&scene.path("a/f"), &scene.path("out/f"));
    });
}

#[test]
fn lists_of_names() {
    each(WAYS, |(from, to)| {
        let scene = Scene::new();
        write_sources(&scene);
        let list = b"lib/tmp\nmissing\n./a.c\nlib/b.o\nempty/\n";
        fs::write(scene.path("list"), list).unwrap();
        let line = format!("copy -r --files-from @/list {from}@/src {to}@/out/");
        let ran = scene.run(&line);
        assert_eq!(ran.code, 3, "{ran}");
        assert!(ran.stderr.contains("src/missing': no such file"), "{ran}");
        scene.assert_arrived("out", &["a.c", "lib/b.o", "lib/tmp/z"]);
        assert!(scene.path("out/empty").is_dir());
        assert_same(&scene.path("src/lib/tmp"), &scene.path("out/lib/tmp"));

        let words = scene.words(&format!("copy -0 --files-from - {from}@/src/ {to}@/nul/"));
        let ran = run::to_end(scene.command(&words), b"lib/b.c\0a.o\0lib\0");
        assert_eq!(ran.code, 3, "{ran}");
        assert!(ran.stderr.contains("src/lib' is a directory: -r copies it"), "{ran}");
        scene.assert_arrived("nul", &["a.o", "lib/b.c"]);
    });
}

/// Parent folders get mode and time though the list returns to them; hard links stay hard links; a
/// file that comes with its folder is copied once.
#[test]
fn lists_in_any_order() {
    each(WAYS, |(from, to)| {
        let scene = Scene::new();
        write_sources(&scene);
        fs::hard_link(scene.path("src/lib/b.c"), scene.path("src/build/other")).unwrap();
        for folder in ["src/lib/tmp", "src/lib", "src/build"] {
            let path = scene.path(folder);
            let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
            fs::set_permissions(&path, fs::Permissions::from_mode(0o555)).unwrap();
            fs::File::open(&path).unwrap().set_modified(time).unwrap();
        }
        let list = "lib/b.c\nbuild/x\nlib/tmp/z\nlib/tmp\nbuild/other\nlib/b.o\n";
        fs::write(scene.path("list"), list).unwrap();
        let copy = |options: &str| {
            let line =
                format!("copy -r --json {options} --files-from @/list {from}@/src {to}@/out/");
            let ran = scene.succeed(&line);
            let end = ran.events().pop().unwrap();
            let number = |name: &str| end["record"]["moved"][name].as_u64().unwrap();
            (number("files"), number("directories"), number("kept"))
        };
        assert_eq!(copy("-n"), (5, 3, 0));
        assert_eq!(copy(""), (5, 3, 0));
        scene.assert_holds("out", &["build/other", "build/x", "lib/b.c", "lib/b.o", "lib/tmp/z"]);
        for folder in ["lib/tmp", "lib", "build"] {
            let stated = |root: &str| {
                let meta = fs::metadata(scene.path(root).join(folder)).unwrap();
                (meta.mode(), meta.mtime())
            };
            assert_eq!(stated("out"), stated("src"), "{folder}");
        }
        let inode = |name: &str| fs::metadata(scene.path("out").join(name)).unwrap().ino();
        assert_eq!(inode("lib/b.c"), inode("build/other"));
        assert_eq!(copy("--skip-unchanged -n"), (0, 3, 5));
        assert_eq!(copy("--skip-unchanged"), (0, 3, 5));
    });
}

#[test]
fn wrong_lists_copy_nothing() {
    let cases: &[(&[u8], &str)] = &[
        (b"a.c\n../x\n", "line 2: '../x' is no name below the source folder"),
        (b"/etc/passwd\n", "line 1: '/etc/passwd' is no name"),
        (b"a.c\na.o\na.c\n", "has 'a.c' twice"),
    ];
    each(cases, |(list, expect)| {
        let scene = Scene::new();
        write_sources(&scene);
        fs::write(scene.path("list"), list).unwrap();
        for (from, to) in WAYS {
            let ran = scene.run(&format!("copy --files-from @/list {from}@/src {to}@/out/"));
            assert_eq!(ran.code, 2, "{ran}");
            assert!(ran.stderr.contains(expect), "{ran}");
            assert!(!scene.path("out").exists());
        }
    });
}

#[test]
fn a_long_list_through_ssh() {
    let scene = Scene::new();
    fs::create_dir(scene.path("src")).unwrap();
    let names: Vec<String> = (0..5000).map(|i| format!("file-with-a-longer-name-{i}")).collect();
    names.iter().for_each(|name| fs::write(scene.path("src").join(name), name).unwrap());
    fs::write(scene.path("list"), names[..4000].join("\n")).unwrap();
    scene.succeed("copy --fsync off --files-from @/list far:@/src @/out/");
    assert_eq!(data::files_below(&scene.path("out")).len(), 4000);
}

/// Overwrites a file with other bytes of the same length, and gives it the time of another.
fn spoil(path: &Path, like: &Path) {
    let mut bytes = fs::read(path).unwrap();
    bytes[10] ^= 1;
    fs::write(path, bytes).unwrap();
    let time = fs::metadata(like).unwrap().modified().unwrap();
    fs::File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
}

fn touch(path: &Path) {
    let time = SystemTime::now() - Duration::from_secs(3600);
    fs::File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
}

#[test]
fn unchanged_files_stay() {
    each(WAYS, |(from, to)| {
        let scene = Scene::new();
        write_sources(&scene);
        symlink("a.c", scene.path("src/link")).unwrap();
        let copy =
            |options: &str| scene.run(&format!("copy -r --json {options} {from}@/src/ {to}@/out/"));
        assert_eq!(copy("").code, 0);
        let counts = |options: &str| {
            let ran = copy(options);
            let end = ran.events().pop().unwrap();
            let number = |name: &str| end["record"]["moved"][name].as_u64().unwrap();
            (ran.code, number("files"), number("kept"), number("failed"))
        };
        assert_eq!(counts(""), (3, 1, 0, 8), "never is the rule for files that are there");
        assert_eq!(counts("--skip-unchanged"), (0, 0, 9, 0));
        assert_eq!(counts("--checksum"), (0, 0, 9, 0));
        spoil(&scene.path("out/a.c"), &scene.path("src/a.c"));
        touch(&scene.path("out/a.o"));
        assert_eq!(counts("--skip-unchanged"), (3, 0, 8, 1), "times tell of a.o");
        assert_eq!(counts("--checksum"), (3, 0, 8, 1), "bytes tell of a.c");
        assert_eq!(counts("--checksum --overwrite always"), (0, 1, 8, 0));
        assert_eq!(counts("--skip-unchanged --overwrite always"), (0, 1, 8, 0));
        assert_same(&scene.path("src"), &scene.path("out"));
    });
}

#[test]
fn a_single_file_that_is_there() {
    each(WAYS, |(from, to)| {
        let scene = Scene::new();
        write_file(&scene.path("a"), 1, 3 << 20);
        scene.succeed(&format!("copy {from}@/a {to}@/b"));
        touch(&scene.path("b"));
        let ran = scene.succeed(&format!("copy --checksum {from}@/a {to}@/b"));
        assert!(ran.stdout_text().contains("1 kept (unchanged)"), "{ran}");
    });
}

#[test]
fn a_dry_run_changes_nothing() {
    each(WAYS, |(from, to)| {
        let scene = Scene::new();
        write_sources(&scene);
        let line = format!("copy -r -n --json --exclude tmp/ {from}@/src/ {to}@/out/");
        let ran = scene.succeed(&line);
        assert!(!scene.path("out").exists(), "the folder would be made, and is not");
        let end = ran.events().pop().unwrap();
        let record = &end["record"];
        assert_eq!(record["options"]["dry_run"].as_bool(), Some(true), "{ran}");
        assert_eq!(record["moved"]["files"].as_u64(), Some(7), "{ran}");
        assert_eq!(
            record["moved"]["bytes"].as_u64(),
            Some((0..7).map(|i| 1000 + i).sum()),
            "{ran}"
        );
        assert!(record["conditions"]["free_bytes"].as_u64() > Some(0), "{ran}");
        let would = |event: &&serde_json::Value| event["state"] == "would_copy";
        assert_eq!(ran.events().iter().filter(would).count(), 7);

        fs::create_dir(scene.path("out")).unwrap();
        write_file(&scene.path("out/a.c"), 99, 5);
        let ran = scene.run(&format!("copy -r --dry-run {from}@/src/ {to}@/out/"));
        assert_eq!(ran.code, 3, "{ran}");
        assert!(ran.stderr.contains("out/a.c' exists"), "{ran}");
        assert!(ran.stderr.contains("1 file would not be copied"), "{ran}");
        let text = ran.stdout_text();
        assert_eq!(text.lines().filter(|line| line.contains("  new  ")).count(), 7, "{ran}");
        assert!(text.contains("\nDry run: would copy 7 files, "), "{ran}");
        assert!(text.contains("; 1 would NOT be copied"), "{ran}");
        scene.assert_holds("out", &["a.c"]);
        let single = scene.succeed(&format!("copy -n {from}@/src/a.c {to}@/new"));
        assert!(single.stdout_text().contains("would copy 1 file"), "{single}");
        assert!(!scene.path("new").exists());
    });
}

#[test]
fn too_many_failures_end_the_copy() {
    each(WAYS, |(from, to)| {
        let scene = Scene::new();
        write_sources(&scene);
        scene.succeed(&format!("copy -r {from}@/src/ {to}@/out/"));
        let few = scene.run(&format!("copy -r --json --max-errors 8 {from}@/src/ {to}@/out/"));
        assert_eq!(few.code, 3, "{few}");
        let end = few.events().pop().unwrap();
        assert_eq!(end["failed_count"].as_u64(), Some(8), "{few}");
        assert_eq!(end["failed"].as_array().unwrap().len(), 8, "{few}");
        assert_eq!(end["failed"][0]["class"].as_str(), Some("local"), "{few}");
        let many = scene.run(&format!("copy -r --max-errors 2 {from}@/src/ {to}@/out/"));
        assert_eq!(many.code, 3, "{many}");
        assert!(many.stderr.contains("and --max-errors allows 2; the last: "), "{many}");
    });
}

#[test]
fn clean_removes_what_is_ours() {
    let scene = Scene::new();
    fs::create_dir_all(scene.path("out/deep")).unwrap();
    let ours = ["out/.datapump-0123abcd-7.part", "out/deep/.datapump-0123abcd00112233.journal"];
    ours.iter().for_each(|name| write_file(&scene.path(name), 1, 5000));
    write_file(&scene.path("out/mine.part"), 1, 10);
    let told = scene.succeed("clean -n @/out");
    assert!(told.stdout_text().contains("2 files would be removed"), "{told}");
    assert_eq!(data::files_below(&scene.path("out")).len(), 3);
    let done = scene.succeed("clean @/out");
    assert!(done.stdout_text().contains("2 files removed"), "{done}");
    assert!(done.stdout_text().contains("removed: "), "{done}");
    scene.assert_holds("out", &["mine.part"]);
    let events = scene.run("clean --json @/missing");
    assert_eq!(events.code, 3, "{events}");
    assert_eq!(events.events().pop().unwrap()["exit_code"].as_u64(), Some(3), "{events}");
    assert_eq!(scene.run("clean far:x").code, 2);
}

/// For any number and depth of folders, and any number of journals.
#[test]
fn clean_needs_few_descriptors() {
    let scene = Scene::new();
    let (part, journal) = (".datapump-0123abcd-7.part", ".datapump-0123abcd00112233.journal");
    let deep: String = (0..200).map(|_| "d/").collect();
    fs::create_dir_all(scene.path("out/deep").join(&deep)).unwrap();
    let mut folders = vec![scene.path("out/deep").join(&deep)];
    folders.extend((0..150).map(|i| scene.path(format!("out/wide/{i}"))));
    for folder in &folders {
        fs::create_dir_all(folder.join("below")).unwrap();
        for name in [part, journal, "below/.datapump-89abcdef-0.part", "kept"] {
            write_file(&folder.join(name), 1, 10);
        }
    }
    for i in 0..150 {
        write_file(&scene.path(format!("out/.datapump-{i:08x}00112233.journal")), 1, 10);
    }
    let program = scene.script("few", "ulimit -n 24; exec $PROGRAM \"$@\"");
    let mut command = std::process::Command::new(program);
    command.args(scene.words("clean @/out"));
    let ran = run::to_end(command, b"");
    assert_eq!(ran.code, 0, "{ran}");
    let left = data::files_below(&scene.path("out"));
    let kept = left.iter().filter(|path| path.ends_with("kept")).count();
    assert_eq!((left.len(), kept), (folders.len(), folders.len()), "of {} folders", folders.len());
}

/// Files by size and time; folders are copied in any case, and generated sources are no files.
#[test]
fn files_by_size_and_time() {
    let cases: &[(&str, &[&str], u64)] = &[
        ("--max-size 1001", &["a.c", "a.o"], 6),
        ("--min-size 1006", &["lib/build/y", "lib/tmp/z"], 6),
        ("--min-size 1001 --max-size 1002", &["a.o", "keep.o"], 6),
        ("--newer @1000000000", &["a.o"], 7),
        ("--newer 2001-09-09T01:46:40", &["a.o"], 7),
        ("--newer @/src/a.c", &["a.o"], 7),
        ("--newer @999999999 --exclude *.o", &["a.c"], 7),
    ];
    let cases: Vec<_> =
        cases.iter().flat_map(|case| WAYS.iter().map(move |way| (case, way))).collect();
    each(cases, |((options, expect, excluded), (from, to))| {
        let scene = Scene::new();
        write_sources(&scene);
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        for file in data::files_below(&scene.path("src")) {
            let seconds = match file.file_name().unwrap().to_str().unwrap() {
                "a.c" => 1_000_000_000,
                "a.o" if file.parent().unwrap().ends_with("src") => 1_000_000_001,
                _ => 999_999_999,
            };
            fs::File::options().write(true).open(file).unwrap().set_modified(at(seconds)).unwrap();
        }
        let ran = scene.succeed(&format!("copy -r --json {options} {from}@/src/ {to}@/out/"));
        scene.assert_holds("out", expect);
        assert!(scene.path("out/empty").is_dir(), "{options}");
        let end = ran.events().pop().unwrap();
        assert_eq!(end["record"]["moved"]["excluded"].as_u64(), Some(*excluded), "{options}");
    });
    // What is left out so is no stranger to a mirror.
    let scene = Scene::new();
    write_sources(&scene);
    scene.succeed("copy -r @/src/ @/out/");
    scene.succeed("copy -r --delete --max-size 1001 @/src/ @/out/");
    assert_same(&scene.path("src"), &scene.path("out"));
    assert_eq!(scene.run("copy --max-size 10 @/src/a.c @/alone").code, 0);
    assert!(!scene.path("alone").exists());
}
