//! What comes from around a run: files of others, links of the system, limits of the process.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};

use crate::support::data::write_file;
use crate::support::{Scene, each, need_root, run};

/// A configuration names programs that are started: only its user, and root, may have written it.
#[test]
fn a_configuration_of_others_is_refused() {
    need_root("files belong to other users");
    let cases = [
        (0, 0o600, true),
        (0, 0o644, true),
        (0, 0o664, true),
        (0, 0o666, false),
        (12345, 0o600, false),
    ];
    each(cases, |(owner, mode, is_taken)| {
        let scene = Scene::new();
        fs::create_dir_all(scene.path("config/datapump")).unwrap();
        let file = scene.path("config/datapump/config.toml");
        fs::write(&file, "[defaults]\noverwrite = \"always\"\n").unwrap();
        chown(&file, Some(*owner), None).unwrap();
        fs::set_permissions(&file, Permissions::from_mode(*mode)).unwrap();
        for name in ["a", "b"] {
            write_file(&scene.path(name), 1, 100);
        }
        let ran = |line: &str| {
            let mut command = scene.command(&scene.words(line));
            command.env("XDG_CONFIG_HOME", scene.path("config"));
            run::to_end(command, b"")
        };
        let ended = ran("copy @/a @/b");
        assert_eq!(ended.code, if *is_taken { 0 } else { 2 }, "{ended}");
        assert_eq!(ended.stderr.contains("any program run"), !is_taken, "{ended}");
        // One that is named, and none.
        let named = ran("copy --config @/config/datapump/config.toml @/a @/b");
        assert_eq!(named.code, 0, "{named}");
        let none = ran("copy --config none --overwrite always @/a @/b");
        assert_eq!(none.code, 0, "{none}");
    });
}

/// `/dev/stdout` is such a link: the system's own name stays.
#[test]
fn a_link_to_an_open_file_is_no_target() {
    let scene = Scene::new();
    write_file(&scene.path("f"), 1, 100);
    symlink("/proc/self/fd/1", scene.path("direct")).unwrap();
    symlink("direct", scene.path("by-another")).unwrap();
    fs::write(scene.path("file"), "there").unwrap();
    symlink("file", scene.path("to-a-file")).unwrap();
    for (name, is_refused) in [("direct", true), ("by-another", true), ("to-a-file", false)] {
        let mut command =
            scene.command(&scene.words(&format!("copy -q --overwrite always @/f @/{name}")));
        let output = command.stdout(File::create(scene.path("out")).unwrap()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(if is_refused { 2 } else { 0 }), "{name}: {said}");
        assert_eq!(said.contains("'-' as the target"), is_refused, "{name}: {said}");
        assert_eq!(scene.path(name).is_symlink(), is_refused, "{name}");
        assert_eq!(fs::metadata(scene.path("out")).unwrap().len(), 0, "{name}");
    }
}

/// The limit of a process is an error of the file that goes beyond it, near and far.
#[test]
fn a_file_beyond_the_limit_of_the_process() {
    let scene = Scene::new();
    fs::create_dir(scene.path("src")).unwrap();
    write_file(&scene.path("src/large"), 1, 3 << 20);
    write_file(&scene.path("src/small"), 2, 1000);
    // Blocks of 512 or 1024 bytes, as the shell has it.
    let limited = "ulimit -f 1000; exec \"$PROGRAM\" \"$@\"";
    let near = scene.script("limited", limited);
    scene.far_script(limited);
    let words = scene.words("copy -r --engine threads @/src/ @/near");
    let mut command = scene.here(&near);
    command.args(words);
    let far = scene.command(&scene.words("copy -r --engine threads @/src/ far:@/far"));
    for (command, to) in [(command, "near"), (far, "far")] {
        let ended = run::to_end(command, b"");
        assert_eq!(ended.code, 3, "{to}\n{ended}");
        let told = format!("{}': file too large", scene.path(to).join("large").display());
        assert!(ended.stderr.contains(&told), "{to}\n{ended}");
        scene.assert_arrived(to, &["small"]);
    }
}

/// Others may write to the folder: what was copied from where is for its user alone, and no link
/// that another has put there is written through.
#[test]
fn a_results_store_in_a_shared_folder() {
    need_root("a link belongs to another user");
    let scene = Scene::new();
    write_file(&scene.path("f"), 1, 100);
    let shared = scene.path("shared");
    fs::create_dir(&shared).unwrap();
    fs::set_permissions(&shared, Permissions::from_mode(0o1777)).unwrap();
    let ran = |to: &str, store: &str| {
        let mut command = scene.command(&scene.words(&format!("copy @/f @/{to}")));
        command.env("DATAPUMP_RESULTS", shared.join(store)).env_remove("DATAPUMP_NO_RECORD");
        run::to_end(command, b"")
    };
    let ended = ran("a", "results.db");
    assert!(ended.code == 0 && shared.join("results.db").exists(), "{ended}");
    for entry in fs::read_dir(&shared).unwrap().flatten() {
        assert_eq!(entry.metadata().unwrap().mode() & 0o777, 0o600, "{:?}", entry.path());
    }
    let outside = scene.path("outside");
    symlink(&outside, shared.join("planted.db")).unwrap();
    std::os::unix::fs::lchown(shared.join("planted.db"), Some(12345), None).unwrap();
    let ended = ran("b", "planted.db");
    assert_eq!(ended.code, 0, "the copy succeeds\n{ended}");
    assert!(ended.stderr.contains("a link that another user has made"), "{ended}");
    assert!(!outside.exists(), "{ended}");
    // One's own link is followed.
    symlink(scene.path("own.db"), shared.join("own-link.db")).unwrap();
    let ended = ran("c", "own-link.db");
    assert!(ended.code == 0 && scene.path("own.db").exists(), "{ended}");
}

/// Where the source has nothing its mount may be away.
#[test]
fn an_empty_source_empties_no_mirror() {
    let scene = Scene::new();
    for folder in ["empty", "dst/d", "dst/empty"] {
        fs::create_dir_all(scene.path(folder)).unwrap();
    }
    for name in ["a", "d/b", "empty/c"] {
        write_file(&scene.path("dst").join(name), 1, 100);
    }
    let all = ["a", "d/b", "empty/c"];
    for line in [
        "copy -r --delete @/empty/ @/dst",
        "copy -r --delete -n @/empty/ @/dst",
        "copy -r --delete @/empty @/dst",
        "copy -r --delete @/empty/ far:@/dst",
    ] {
        let ended = scene.run(line);
        assert_eq!(ended.code, 3, "{line}\n{ended}");
        assert!(ended.stderr.contains("the source has nothing for it"), "{line}\n{ended}");
        scene.assert_holds("dst", &all);
    }
    let ended = scene.run("copy -r --delete --max-delete 1 @/empty/ @/dst");
    assert_eq!(ended.code, 3, "{ended}");
    scene.assert_holds("dst", &all);
    scene.succeed("copy -r --delete --max-delete 10 @/empty/ @/dst");
    scene.assert_holds("dst", &[]);
    scene.succeed("copy -r --delete @/empty/ @/dst");
    scene.succeed("copy -r --delete @/empty/ @/new");
}
