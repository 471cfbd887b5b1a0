//! A far side that a forced command limits to a folder (`datapump peer --root`), through a real
//! sshd and a real `authorized_keys`: what is beneath the folder is copied, and nothing else is
//! read, written or named.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

use crate::support::run::{self, Ran};
use crate::support::speaker::Speaker;
use crate::support::{Scene, data, each, far, need, processes};

use rustix::process::Signal;

use base::job::Location;
use base::settings::Settings;
use mover::wire::message::{Message, Role};

/// A folder `jail` with links that lead out of it, `outside` beside it, and a login that is limited
/// to it.
struct Limited {
    scene: Scene,
    ssh: String,
}

impl Limited {
    fn new(options: &str) -> Limited {
        let scene = Scene::new();
        for folder in ["jail/in/deep", "jail/own", "outside/deep", "here"] {
            fs::create_dir_all(scene.path(folder)).unwrap();
        }
        for (file, text) in [
            ("jail/in/file", "inside"),
            ("jail/in/deep/file", "inside, deep"),
            ("outside/secret", "classified"),
            ("outside/deep/secret", "classified, deep"),
            ("here/new", "new"),
        ] {
            fs::write(scene.path(file), text).unwrap();
        }
        for (target, link) in [
            ("../outside", "jail/out"),
            ("../outside/secret", "jail/secret"),
            ("../../outside/deep", "jail/own/out"),
            ("in", "jail/inner"),
        ] {
            symlink(target, scene.path(link)).unwrap();
        }
        symlink(scene.path("outside"), scene.path("jail/absolute")).unwrap();
        let forced = format!(
            "{} peer --root {} {options}",
            scene.far_program().display(),
            scene.path("jail").display()
        );
        let ssh = far::ssh_command_forced(&scene.path(""), forced.trim_end());
        Limited { scene, ssh }
    }

    fn run(&self, line: &str) -> Ran {
        let mut words = self.scene.words(line);
        words.extend(["--ssh".into(), self.ssh.clone().into()]);
        run::to_end(self.scene.command(&words), b"")
    }

    fn text(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.scene.path(path)).ok()
    }

    /// What lies outside is as it was, and nothing of it has come here.
    fn check_outside(&self) {
        self.scene.assert_holds("outside", &["deep/secret", "secret"]);
        assert_eq!(self.text("outside/secret").as_deref(), Some("classified"));
        assert_eq!(self.text("outside/deep/secret").as_deref(), Some("classified, deep"));
        let here = data::files_below(&self.scene.path("here"));
        for file in here.iter().filter(|file| !file.is_symlink()) {
            let bytes = fs::read(file).unwrap();
            let text = String::from_utf8_lossy(&bytes);
            assert!(!text.contains("classified"), "{} has come", file.display());
        }
        let others = ["far-datapump", "forced-config", "here", "jail", "key", "key.pub", "outside"];
        let mut there: Vec<_> = fs::read_dir(self.scene.path("")).unwrap().flatten().collect();
        there.sort_by_key(fs::DirEntry::file_name);
        let there: Vec<_> = there.iter().map(|entry| entry.file_name()).collect();
        assert_eq!(there, others, "nothing is new beside the folder");
    }
}

#[test]
fn what_is_beneath_the_folder_is_copied() {
    let cases = [
        ("far:in/file", "here/file", "inside"),
        ("far:/in/file", "here/file", "inside"),
        ("far:in/deep/../file", "here/file", "inside"),
        ("far:inner/file", "here/file", "inside"),
        ("far:in", "here/in/deep/file", "inside, deep"),
        ("far:/in/", "here/deep/file", "inside, deep"),
        ("far:inner/", "here/deep/file", "inside, deep"),
    ];
    let limited = Limited::new("");
    each(cases, |(source, arrives, text)| {
        let _ = fs::remove_dir_all(limited.scene.path("here"));
        fs::create_dir(limited.scene.path("here")).unwrap();
        let ran = limited.run(&format!("copy -r {source} @/here/"));
        assert_eq!((ran.code, limited.text(arrives).as_deref()), (0, Some(*text)), "{ran}");
        limited.check_outside();
    });
    let limited = Limited::new("");
    let cases = [
        ("far:", "jail/new"),
        ("far:in/", "jail/in/new"),
        ("far:/in/other", "jail/in/other"),
        ("far:fresh/", "jail/fresh/new"),
        ("far:/inner/third", "jail/in/third"),
    ];
    each(cases, |(target, arrives)| {
        let ran = limited.run(&format!("copy @/here/new {target}"));
        assert_eq!((ran.code, limited.text(arrives).as_deref()), (0, Some("new")), "{ran}");
        limited.check_outside();
    });
}

#[test]
fn what_leads_out_is_refused() {
    let limited = Limited::new("");
    let folders = [
        "..",
        "../outside",
        "/../outside",
        "in/../../outside",
        "out",
        "out/",
        "/out/deep",
        "own/out",
        "absolute",
        "inner/../../outside",
    ];
    each(folders, |path| {
        let ran = limited.run(&format!("copy -r far:{path} @/here/"));
        assert_eq!(ran.code, 2, "{ran}");
        assert!(ran.stderr.contains("leads out of the folder"), "{ran}");
        let ran = limited.run(&format!("copy -r @/here far:{path}"));
        assert_eq!(ran.code, 2, "{ran}");
        limited.check_outside();
    });
    each(["secret", "out/secret", "../outside/secret", "absolute/secret"], |path| {
        let ran = limited.run(&format!("copy far:{path} @/here/"));
        assert_eq!(ran.code, 2, "{ran}");
        limited.check_outside();
    });
    each(["../new", "/../new", "out/new", "absolute/new", "own/out/new", "secret"], |path| {
        for options in ["", "--dry-run", "--fresh", "--overwrite always --fsync off"] {
            let ran = limited.run(&format!("copy {options} @/here/new far:{path}"));
            assert_ne!(ran.code, 0, "{ran}");
            assert!(ran.stderr.contains("leads out of the folder"), "{ran}");
            limited.check_outside();
        }
    });
    // A host's own path does not exist beneath the folder.
    let ran = limited.run(&format!("copy far:{} @/here/", limited.scene.path("outside").display()));
    assert!(ran.code != 0 && ran.stderr.contains("no such file"), "{ran}");
}

#[test]
fn links_below_a_source_lead_nowhere_outside() {
    let limited = Limited::new("");
    let ran = limited.run("copy -r --links follow far: @/here/");
    assert_eq!(ran.code, 3, "{ran}");
    assert_eq!(limited.text("here/inner/file").as_deref(), Some("inside"), "{ran}");
    assert_eq!(ran.stderr.matches("leads out of the folder").count(), 4, "{ran}");
    limited.check_outside();
    let list = limited.scene.path("here/list");
    fs::write(&list, "in/file\nout/deep\nown/out\nabsolute/deep\nsecret\n").unwrap();
    let ran = limited.run("copy -r --links follow --files-from @/here/list far: @/here/listed/");
    assert_eq!(ran.code, 3, "{ran}");
    assert_eq!(limited.text("here/listed/in/file").as_deref(), Some("inside"), "{ran}");
    limited.check_outside();
}

#[test]
fn a_login_may_be_for_one_direction() {
    let cases = [
        ("--read-only", "copy far:in/file @/here/", 0),
        ("--read-only", "copy @/here/new far:", 2),
        ("--read-only", "copy null:1M far:null:", 2),
        ("--read-only", "copy --dry-run @/here/new far:", 2),
        ("--write-only", "copy @/here/new far:", 0),
        ("--write-only", "copy far:in/file @/here/", 2),
        ("--write-only", "copy --dry-run far:in/file @/here/", 2),
        ("--write-only", "copy -r @/here/ far:", 0),
        ("--write-only", "copy -r --overwrite always @/here/ far:", 0),
        ("--write-only", "copy --dry-run @/here/new far:", 2),
        ("--write-only", "copy -r --delete @/here/ far:", 2),
        ("--write-only", "copy -r --delete-excluded @/here/ far:", 2),
        ("--write-only", "copy -r --delete --max-delete 5 --dry-run @/here/ far:", 2),
        ("--write-only", "copy --checksum @/here/new far:", 2),
        ("--write-only", "copy --skip-unchanged @/here/new far:", 2),
        ("--seal tls", "copy @/here/new far:", 0),
        ("--seal tls", "copy --seal tls @/here/new far:", 0),
        ("--seal tls", "copy --seal auth @/here/new far:", 2),
        ("--seal tls", "copy --seal off far:in/file @/here/", 2),
        ("--seal auth", "copy --seal auth far:in/file @/here/", 0),
        ("--seal auth", "copy --seal off far:in/file @/here/", 2),
        ("--read-only --seal tls", "copy --remote-cpus 0 far:in/file @/here/", 0),
    ];
    each(cases, |(options, line, code)| {
        let limited = Limited::new(options);
        let ran = limited.run(line);
        assert_eq!(ran.code, *code, "{ran}");
        let arrived = [limited.text("here/file"), limited.text("jail/new")];
        assert_eq!(arrived.iter().flatten().count(), usize::from(*code == 0), "{ran}");
        limited.scene.assert_holds("jail/in", &["deep/file", "file"]);
        limited.check_outside();
    });
}

#[test]
fn nothing_else_runs_by_that_key() {
    let limited = Limited::new("");
    let other = limited.scene.path("outside/secret");
    let ssh = |words: &[&str]| {
        let mut command = Command::new(need("ssh", "openssh-client"));
        command.arg("-F").arg(limited.scene.path("forced-config")).args(["-T", "far"]).args(words);
        run::to_end(command, b"")
    };
    let read = format!("cat {}", other.display());
    for (words, part) in [
        (&[][..], "not for a shell"),
        (&["datapump", "probe"][..], "not for measurements"),
        (&["rsync", "--server", "--sender", ".", "/etc/"][..], "not for rsync"),
        (&["scp", "-f", "/etc/passwd"][..], "not for scp"),
    ] {
        let ran = ssh(words);
        assert_eq!((ran.code, ran.stdout_text().as_str()), (2, ""), "{words:?} {ran}");
        assert!(ran.stderr.contains(part), "{words:?} {ran}");
    }
    // It is answered as a far side answers, which sees at once that nobody speaks to it.
    for words in [&[read.as_str()][..], &["datapump", "peer", "--root", "/"][..]] {
        let ran = ssh(words);
        assert_ne!(ran.code, 0, "{words:?} {ran}");
        assert!(!ran.stdout_text().contains("classified"), "{words:?} {ran}");
    }
    let ran = limited.run("copy -r --remote-datapump /bin/cat far:../outside @/here/");
    assert_eq!(ran.code, 2, "the client's words do not choose the program: {ran}");
    limited.check_outside();
}

/// What a client of one's own could send, and where the kernel has no `openat2`.
#[test]
fn hostile_requests() {
    for scene in [Scene::new(), Scene::with_old_kernel()] {
        fs::create_dir_all(scene.path("jail")).unwrap();
        fs::write(scene.path("secret"), "secret").unwrap();
        symlink("..", scene.path("jail/up")).unwrap();
        let path = |text: &str| Location::Path(text.into());
        let absolute = scene.path("secret");
        let cases = [
            (Role::Source, vec![path("../secret")]),
            (Role::Source, vec![path("up/secret")]),
            (Role::Source, vec![Location::Path(absolute.clone())]),
            (Role::Source, vec![path("//../../secret")]),
            (Role::Source, vec![path("../secret"), path("up/secret")]),
            (Role::Source, vec![Location::Stdio]),
            (Role::Source, vec![path("/proc/self/root/etc/passwd")]),
            (Role::Sink, vec![path("../new/")]),
            (Role::Sink, vec![path("up/new")]),
            (Role::Sink, vec![path("up")]),
            (Role::Sink, vec![Location::Stdio]),
        ];
        each(cases, |(role, locations)| {
            let mut command = scene.here(&scene.far_program());
            command.arg("peer").arg("--root").arg(scene.path("jail"));
            command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
            command.env_remove("SSH_CONNECTION").env_remove("SSH_ORIGINAL_COMMAND");
            let mut child = command.spawn().unwrap();
            let (stdin, stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
            let mut speaker = Speaker::driver(stdout, stdin);
            let settings = Settings { recursive: true, ..Settings::default() };
            speaker.ask(*role, locations.clone(), settings);
            let answer = speaker.hear();
            assert!(matches!(answer, Some(Message::Stop(_))), "{answer:?}");
            drop(speaker);
            assert_ne!(child.wait().unwrap().code(), Some(0));
        });
        assert!(!scene.path("new").exists());
        assert_eq!(fs::read_dir(scene.path("jail")).unwrap().count(), 1);
    }
}

/// A login that only writes tells nothing of what is there, deletes nothing, and resumes its own.
#[test]
fn a_login_that_only_writes() {
    let limited = Limited::new("--write-only");
    fs::write(limited.scene.path("here/file"), "inside").unwrap();
    fs::create_dir(limited.scene.path("here/empty")).unwrap();
    for line in [
        "copy -n -r --delete @/here/empty/ far:in/",
        "copy -n --checksum @/here/file far:in/file",
        "copy --checksum @/here/file far:in/file",
        "copy --skip-unchanged @/here/file far:in/file",
        "copy -r --delete @/here/ far:in/",
    ] {
        let ran = limited.run(line);
        assert_eq!(ran.code, 2, "{line}\n{ran}");
        assert!(ran.stderr.contains("may only write"), "{line}\n{ran}");
        assert!(!format!("{ran}").contains("deep/file"), "no names: {line}\n{ran}");
        limited.scene.assert_holds("jail/in", &["deep/file", "file"]);
    }
    fs::write(limited.scene.path("here/file"), "replaced").unwrap();
    let ran = limited.run("copy @/here/file far:in/file");
    assert_eq!((ran.code, limited.text("jail/in/file").as_deref()), (3, Some("inside")), "{ran}");
    let ran = limited.run("copy --overwrite always @/here/file far:in/file");
    assert_eq!((ran.code, limited.text("jail/in/file").as_deref()), (0, Some("replaced")), "{ran}");
    // A copy of its own that was interrupted goes on.
    data::write_file(&limited.scene.path("here/long"), 5, 30_000_000);
    let line = "copy --json @/here/long far:in/long";
    let mut words = limited.scene.words(&format!("{line} --rate 4MB"));
    words.extend(["--ssh".into(), limited.ssh.clone().into()]);
    let mut running = run::start(limited.scene.command(&words));
    running.wait_for_bytes();
    processes::send(running.pid(), Signal::TERM);
    assert_eq!(running.end().code, 130);
    let ran = limited.run(line);
    assert_eq!(ran.code, 0, "{ran}");
    let end = ran.events().pop().unwrap();
    assert!(end["record"]["moved"]["resumed_bytes"].as_u64() > Some(0), "{ran}");
    data::assert_same(&limited.scene.path("here/long"), &limited.scene.path("jail/in/long"));
    limited.check_outside();
}

/// What is replaced or deleted beneath the folder is kept beneath it, or stays.
#[test]
fn backups_stay_beneath_the_root() {
    each([(".old", "in", true), ("out", "own", false), ("out/deep", "own", false)], |case| {
        let (backup_dir, to, is_kept) = *case;
        let limited = Limited::new("");
        fs::write(limited.scene.path(format!("jail/{to}/file")), "inside").unwrap();
        let line = format!("copy -r --delete --backup-dir {backup_dir} @/here/ far:{to}/");
        let ran = limited.run(&line);
        assert_eq!(ran.code, if is_kept { 0 } else { 3 }, "{ran}");
        let kept = limited.text(&format!("jail/{to}/{backup_dir}/file"));
        let stayed = limited.text(&format!("jail/{to}/file"));
        let of = |is_there: bool| is_there.then_some("inside");
        assert_eq!(kept.as_deref(), of(is_kept), "{ran}");
        assert_eq!(stayed.as_deref(), of(!is_kept), "{ran}");
        assert_eq!(limited.text(&format!("jail/{to}/new")).as_deref(), Some("new"), "{ran}");
        limited.check_outside();
    });
}

/// A login that is limited to a folder lists what is beneath it; one that only writes lists
/// nothing. Files are not read again for a receipt: that goes by paths of the whole host.
#[test]
fn what_may_be_asked() {
    for (options, path, expect) in [
        ("", "in", 0),
        ("--read-only", "in", 0),
        ("--read-only", "out", 2),
        ("--read-only", "../outside", 2),
        ("--write-only", "in", 2),
    ] {
        let limited = Limited::new(options);
        let ran = limited.run(&format!("ls -s far:{path} --json"));
        assert_eq!(ran.code, expect, "{options} {path}\n{ran}");
        assert!(!ran.stdout_text().contains("secret"), "{ran}");
    }
    let limited = Limited::new("");
    fs::write(limited.scene.path("jail/sums"), format!("{:064}  file\n", 0)).unwrap();
    let ran = limited.run("verify @/jail/sums far:in");
    assert!(ran.code == 2 && ran.stderr.contains("this login is not for"), "{ran}");
}
