//! Habits of scp's, rsync's and bbcp's users, through the real sshd: wildcards, homes, ports, odd
//! names, missing folders, bbcp's flags; and the configuration file.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

use crate::support::data::{assert_same, write_file};
use crate::support::run::{self, Ran, not_recorded};
use crate::support::{PROGRAM, Scene, each, far, liar};
use mover::wire::message::Origin;

fn scene() -> Scene {
    let scene = Scene::new();
    fs::create_dir_all(scene.path("src/sub")).unwrap();
    for (seed, name) in
        ["a.tar", "b c.tar", ".h.tar", "x.zip", "[1].x", "1.x", "sub/e.tar", "sub/[a"]
            .iter()
            .enumerate()
    {
        write_file(&scene.path("src").join(name), seed as u64, 100_000);
    }
    fs::create_dir(scene.path("out")).unwrap();
    scene
}

/// The line with `_` for a blank in a name.
fn run(scene: &Scene, line: &str) -> Ran {
    let words: Vec<_> = scene
        .words(line)
        .iter()
        .map(|word| word.to_str().unwrap().replace('_', " ").into())
        .collect();
    run::to_end(scene.command(&words), b"")
}

#[test]
fn wildcards_of_a_far_source() {
    let cases: [(&str, i32, &[&str]); 11] = [
        ("far:@/src/*.tar", 0, &["a.tar", "b c.tar"]),
        ("far:@/src/?.tar far:@/src/*.zip", 0, &["a.tar", "x.zip"]),
        ("far:@/s*/[a-b]*", 0, &["a.tar", "b c.tar"]),
        ("far:@/src/.*", 0, &[".h.tar"]),
        // A name that exists is itself, and a backslash takes a character literally.
        ("far:@/src/[1].x", 0, &["[1].x"]),
        ("far:@/src/sub/[a", 0, &["[a"]),
        (r"far:@/src/b\_c.tar", 0, &["b c.tar"]),
        ("far:@/src/b_c.tar", 0, &["b c.tar"]),
        // A folder among what matches is refused by name without -r.
        ("far:@/src/*", 2, &["1.x", "[1].x", "a.tar", "b c.tar", "x.zip"]),
        ("-r far:@/src/*b", 0, &["sub/[a", "sub/e.tar"]),
        ("far:@/src/*.none far:@/src/a.tar", 3, &["a.tar"]),
    ];
    each(cases, |(sources, code, names)| {
        let scene = scene();
        let ran = run(&scene, &format!("copy {sources} @/out/"));
        let failed = *code != 0;
        assert_eq!(ran.code != 0, failed, "{ran}");
        scene.assert_arrived("out", names);
        for name in names.iter().filter(|name| scene.path("src").join(name).is_file()) {
            assert_same(&scene.path("src").join(name), &scene.path("out").join(name));
        }
    });
    let scene = scene();
    let ran = scene.run("copy far:@/src/*.none @/out/");
    assert!(ran.code != 0 && ran.stderr.contains("far: nothing there matches '"), "{ran}");
    // One that matches may get a new name.
    scene.succeed("copy far:@/src/a* @/out/new");
    assert_same(&scene.path("src/a.tar"), &scene.path("out/new"));
}

#[test]
fn homes_of_the_far_side() {
    let scene = scene();
    let user = String::from_utf8(Command::new("id").arg("-un").output().unwrap().stdout).unwrap();
    let user = user.trim();
    let listed = |word: &str| {
        let ran = scene.run(&format!("copy -n -r --exclude * {word} @/out/"));
        assert_eq!(ran.code, 0, "{word}\n{ran}");
    };
    listed("far:~/");
    listed(&format!("far:~{user}/"));
    listed(&format!("far:~{user}"));
    let ran = scene.run("copy far:~nobody-has-this-name/x @/out/");
    assert!(ran.stderr.contains("there is no user 'nobody-has-this-name' here"), "{ran}");
    assert_eq!(ran.code, 2, "{ran}");
    let ran = scene.run("copy @/src/a.tar far:~nobody-has-this-name/x");
    assert_eq!(ran.code, 2, "{ran}");
}

/// The port is typed, and the configuration of ssh has another one.
#[test]
fn ports_and_keys() {
    let scene = scene();
    let config = far::ssh_command().replace("ssh -F ", "");
    let text = fs::read_to_string(&config).unwrap();
    let port = far::port().to_string();
    assert!(text.contains(&port), "{text}");
    let wrong = text.replace(&format!("Port {port}"), &format!("Port {}", far::closed_port()));
    fs::write(scene.path("config"), wrong).unwrap();
    let far = scene.far_program();
    let copy = |words: &[&str]| {
        let mut command = Command::new(PROGRAM);
        not_recorded(&mut command);
        command.args(["copy", "--overwrite", "always", "--ssh"]);
        command.arg(format!("ssh -F {}", scene.path("config").display()));
        command.arg("--remote-datapump").arg(&far).args(words);
        run::to_end(command, b"")
    };
    let (source, out) = (scene.path("src/a.tar"), scene.path("out/x"));
    let (source, out) = (source.to_str().unwrap(), out.to_str().unwrap());
    let url = format!("ssh://far:{port}{out}");
    let far_out = format!("far:{out}");
    assert_eq!(copy(&[source, &far_out]).code, 7);
    for words in [
        &["-P", &port, source, &far_out][..],
        &["--port", &port, source, &far_out],
        &[source, &url],
    ] {
        let ran = copy(words);
        assert_eq!(ran.code, 0, "{words:?}\n{ran}");
    }
    let spaced = format!("ssh://far:{port}{}", scene.path("src/b%20c.tar").display());
    let ran = copy(&[&spaced, out]);
    assert_eq!(ran.code, 0, "{ran}");
    assert_same(&scene.path("src/b c.tar"), &scene.path("out/x"));
}

#[test]
fn missing_folders_are_made_where_that_is_asked_for() {
    let cases = [
        ("@/src/a.tar", "new/er/x", "new/er/x"),
        ("@/src/a.tar", "new/er/", "new/er/a.tar"),
        ("-r @/src/sub", "new/er", "new/er/sub/e.tar"),
        ("-r @/src/sub/", "new/er/", "new/er/e.tar"),
    ];
    each(cases, |(source, target, file)| {
        for side in ["", "far:"] {
            let scene = scene();
            let line = format!("copy {source} {side}@/out/{target}");
            let ran = scene.run(&line);
            assert_ne!(ran.code, 0, "{line}\n{ran}");
            assert!(ran.stderr.contains("--mkpath makes the folders above it"), "{line}\n{ran}");
            assert_eq!(fs::read_dir(scene.path("out")).unwrap().count(), 0, "{line}");
            scene.succeed(&format!("{line} --mkpath -n"));
            assert_eq!(fs::read_dir(scene.path("out")).unwrap().count(), 0, "{line} -n");
            scene.succeed(&format!("{line} --mkpath"));
            assert!(scene.path("out").join(file).is_file(), "{line} --mkpath");
        }
    });
}

/// The program under the name of bbcp.
#[test]
fn as_bbcp() {
    let scene = scene();
    symlink(PROGRAM, scene.path("bbcp")).unwrap();
    let ran = |line: &str| {
        let mut command = Command::new(scene.path("bbcp"));
        not_recorded(&mut command);
        command.args(scene.words(line));
        command.env("DATAPUMP_SSH", far::ssh_command());
        command.env("DATAPUMP_REMOTE_DATAPUMP", scene.far_program());
        run::to_end(command, b"")
    };
    let done = ran("-P 2 -V -w 1m -s 2 @/src/a.tar far:@/out/");
    assert_eq!(done.code, 0, "{done}");
    assert_same(&scene.path("src/a.tar"), &scene.path("out/a.tar"));
    assert_eq!(ran("@/src/a.tar far:@/out/").code, 3, "it exists");
    let done = ran("-A -r @/src/sub far:@/out/new/er/");
    assert_eq!(done.code, 0, "{done}");
    assert!(scene.path("out/new/er/sub/e.tar").is_file());
    let done = ran("-N io @/src/a.tar far:@/out/");
    assert_eq!(done.code, 2, "{done}");
    assert!(done.stderr.contains("bbcp: -N is not known to datapump: write -"), "{done}");
}

#[test]
fn the_configuration_reaches_a_host_and_is_shown() {
    let scene = scene();
    let text = format!(
        "[host.far]\nssh = \"{}\"\nremote-datapump = \"{}\"\nstreams = 3\n",
        far::ssh_command(),
        scene.far_program().display()
    );
    fs::create_dir(scene.path("datapump")).unwrap();
    let file = scene.path("datapump/config.toml");
    fs::write(&file, text).unwrap();
    let ran = |line: &str| {
        let mut command = Command::new(PROGRAM);
        command.env("XDG_CONFIG_HOME", scene.path(""));
        not_recorded(&mut command);
        command.args(scene.words(line));
        run::to_end(command, b"")
    };
    let done = ran("copy --json @/src/a.tar far:@/out/");
    assert_eq!(done.code, 0, "{done}");
    assert_eq!(done.events()[0]["options"]["streams"], 3, "{done}");
    let shown = ran("config show far").stdout_text();
    let line = shown.lines().find(|line| line.starts_with("streams ")).unwrap();
    let place = format!("{}:4 [host.\"far\"]", file.display());
    assert_eq!(line.split_whitespace().skip(1).collect::<Vec<_>>().join(" "), format!("3 {place}"));
    assert!(shown.contains("links "), "{shown}");
    let shown = ran("config show --json me@far");
    let row = shown.events().into_iter().find(|row| row["option"] == "streams").unwrap();
    assert_eq!(
        (&row["from"], &row["line"], &row["host"]),
        (&"host".into(), &4.into(), &"far".into())
    );
    let shown = ran("config show").stdout_text();
    assert!(
        shown.lines().any(|line| line.ends_with("4  default") || line.contains("4 ")),
        "{shown}"
    );
    fs::write(&file, "[host.else]\nstraems = 3\n").unwrap();
    let done = ran("copy @/src/a.tar @/out/b");
    assert_eq!(done.code, 2, "{done}");
    assert!(done.stderr.contains("config.toml', line 2: there is no option 'straems'"), "{done}");
}

/// CVE-2022-29154: what was asked for is a pattern, and the far side adds a name.
#[test]
fn a_far_side_that_adds_a_name_to_a_pattern_is_refused() {
    for (names, expect) in [(["a.tar", ".bashrc"], "'.bashrc' (a file)"), (["a.tar", "b"], "'b'")] {
        let scene = Scene::new();
        fs::create_dir(scene.path("out")).unwrap();
        let entries = names.map(|name| liar::file(name, 1));
        let origin = Some(Origin { single: false, endless: false });
        let moves = [liar::offer(entries.into()), liar::Move::Hear(1)];
        let (ran, _) = liar::against_near(&scene, "127.0.0.1:*.tar @/out/", origin, &moves);
        assert_eq!(ran.code, 9, "{ran}");
        let said = format!("the far side offered {expect}");
        assert!(ran.stderr.contains(&said), "{ran}");
        scene.assert_arrived("out", &[]);
    }
}

/// The same command on a complete tree: ten names, how many more, and a hint, not a line a file.
#[test]
fn a_second_run_is_short() {
    let scene = Scene::new();
    fs::create_dir(scene.path("src")).unwrap();
    (0..400).for_each(|i| write_file(&scene.path(format!("src/{i}")), i, 10));
    scene.succeed("copy -q -r @/src/ @/dst");
    for line in ["copy -r @/src/ @/dst", "copy -q -r @/src/ @/dst", "copy -n -r @/src/ @/dst"] {
        let ran = scene.run(&format!("{line} --log @/log"));
        assert_eq!(ran.code, 3, "{line}\n{ran}");
        assert_eq!(ran.stderr.matches("' exists: ").count(), 11, "{line}\n{ran}");
        assert!(ran.stderr.contains("and 390 more as the first of them"), "{line}\n{ran}");
        let log = fs::read_to_string(scene.path("log")).unwrap();
        assert!(log.matches("' exists: ").count() >= 400, "{line}: the log has all");
        fs::remove_file(scene.path("log")).unwrap();
    }
    let ran = scene.run("copy -v -r @/src/ @/dst");
    assert_eq!(ran.stderr.matches("' exists: ").count(), 400, "-v names all\n{ran}");
}
