//! Terminal output: nothing in a peer's text or a name can colour it, forge a line or reverse text.
//! JSON has it exactly.

use std::fs;

use crate::support::data::write_file;
use crate::support::far_spreads;
use crate::support::liar::{self, Move, Stands, file, offer, payload, steps};
use crate::support::run::Ran;
use crate::support::{Scene, each};
use base::tally::SideReport;
use mover::wire::message::{Message, Origin};

/// A title, a colour, a line of its own, and right-to-left text.
const PAINT: &str = "\u{1b}]0;PWNED\u{7}\u{9b}31m\ndatapump: forged\r\u{202e}gpj\u{2066}\u{200f}";

/// The same as a name of a file: 60 bytes without a slash.
fn name() -> String {
    format!("x{PAINT}.txt")
}

fn check(about: &str, ran: &Ran) {
    for text in [&ran.stdout_text(), &ran.stderr] {
        let paints = |c: &char| {
            (c.is_control() && *c != '\n') || "\u{202e}\u{2066}\u{200f}\u{61c}\u{200b}".contains(*c)
        };
        assert_eq!(text.chars().find(paints), None, "{about}: {text:?}");
        let forged = text.lines().any(|line| line.starts_with("datapump: forged"));
        assert!(!forged, "{about}: {text:?}");
    }
}

/// A far side with this text in its warnings, its reasons and its report.
#[test]
fn words_of_a_peer() {
    let said = |text: &str| text.to_string();
    let report = |engine: &str| {
        let report =
            SideReport { engine: said(engine), congestion: said(PAINT), ..SideReport::default() };
        Message::Report(Box::new(report))
    };
    let fault = || base::fault::Fault::new(base::fault::Class::Local, PAINT);
    let unoffered = Message::Unoffered { path: PAINT.into(), fault: fault() };
    let cases = [
        ("a warning", Some(Message::Warning { text: said(PAINT) }), report("x")),
        ("an engine", None, report(PAINT)),
        ("a reason", None, report(&format!("threads ({PAINT})"))),
        ("a path", Some(unoffered), report("x")),
        ("a stop", None, Message::Stop(fault())),
    ];
    each(cases, |(about, first, last)| {
        let scene = Scene::new();
        fs::create_dir(scene.path("dst")).unwrap();
        let origin = Origin { single: true, endless: false };
        let opened = liar::opened(Some(origin));
        let (ran, _) = liar::near_with(&scene, "--stats 127.0.0.1:f @/dst", opened, |speaker| {
            if let Some(first) = first {
                speaker.say(first);
            }
            let moves = [offer(vec![file("f", 3)]), Move::Hear(1), payload(0, b"abc")];
            steps(speaker, &scene, &moves, Stands::Far);
            speaker.say(&Message::OfferEnd { objects: 1, bytes: 3 });
            speaker.end_frames();
            while !matches!(speaker.hear(), Some(Message::Finished { .. }) | None) {}
            speaker.say(last);
        });
        assert!(
            ran.stderr.contains("PWNED") || ran.stdout_text().contains("PWNED"),
            "{about}\n{ran}"
        );
        check(about, &ran);
    });
}

/// Such names in every command that shows names.
#[test]
fn names_of_files() {
    let scene = Scene::new();
    fs::create_dir_all(scene.path("src").join(name())).unwrap();
    write_file(&scene.path("src").join(name()).join(name()), 1, 100);
    let shown = |line: &str, code: i32| {
        let ran = scene.run(line);
        assert_eq!(ran.code, code, "{line}\n{ran}");
        check(line, &ran);
        assert!(format!("{ran}").contains("PWNED") || code == 0, "{line}: no name\n{ran}");
        ran
    };
    shown("copy -r --manifest @/receipt @/src/ @/dst", 0);
    shown("copy -r @/src/ @/dst", 3);
    let copied = scene.path("dst").join(name()).join(name());
    fs::write(&copied, b"else").unwrap();
    shown("verify @/receipt @/dst", 6);
    fs::remove_file(&copied).unwrap();
    shown("verify @/receipt @/dst", 3);
    fs::write(scene.path("dst").join(name()).join(".datapump-0123abcd-7.part"), b"x").unwrap();
    shown("clean @/dst", 0);
    let json = scene.run("copy -r --json @/src/ @/dst2");
    let exact = json.events().iter().any(|event| event.to_string().contains("\u{202e}"));
    assert!(exact, "JSON has names as they are\n{json}");
}

/// What a login or a far side prints on its standard error, in every command that logs in.
#[test]
fn words_of_a_login() {
    let lines = [
        "copy @/src/f far:@/copied",
        "copy far:@/src/f @/pulled",
        "spread @/src/ far:@/there --on local:1 --job @/job",
        "spread far:@/src/ @/here --on local:1 --job @/job",
        "doctor far:",
        "net-test far: --time 0.2 --omit 0.1",
    ];
    each(lines, |line| {
        let scene = Scene::new();
        fs::create_dir(scene.path("src")).unwrap();
        write_file(&scene.path("src/f"), 1, 1000);
        scene.far_script(&format!("printf '%s\\n' '{PAINT}' >&2\nexec $PROGRAM \"$@\""));
        let ran = match line.starts_with("spread") {
            true => far_spreads::ran(&scene, line),
            false => scene.run(line),
        };
        assert_eq!(ran.code, 0, "{line}\n{ran}");
        assert!(format!("{ran}").contains("PWNED"), "{line}: it is told\n{ran}");
        check(line, &ran);
    });
}

/// Names of files, where they are told that they fail, of folders, and of a job.
#[test]
fn names_in_a_spread() {
    let scene = Scene::new();
    let folder = scene.path("src").join(name());
    fs::create_dir_all(&folder).unwrap();
    write_file(&folder.join(format!(".datapump-0123abcd-1.part{}", name())), 1, 100);
    write_file(&folder.join(".datapump-0123abcd-1.part"), 1, 100);
    let ended = scene.run("spread @/src/ @/dst --on local:1 --job @/job");
    assert_eq!(ended.code, 3, "{ended}");
    assert!(ended.stdout_text().contains("PWNED"), "it is named\n{ended}");
    check("spread", &ended);
    for line in ["spread status @/job", "spread report @/job"] {
        check(line, &scene.run(line));
    }
}

/// A disk that is full where standard output is a file: no run ends as if all had been told.
#[test]
fn output_that_cannot_be_written() {
    let scene = Scene::new();
    write_file(&scene.path("f"), 1, 100);
    for line in ["copy --json @/f @/a", "copy @/f @/b", "help", "man"] {
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let mut command = scene.command(&scene.words(line));
        let ended = command.stdout(full).output().unwrap();
        let said = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(5), "{line}: {said}");
        assert!(said.contains("no space left"), "{line}: {said}");
    }
    assert!(scene.path("a").exists() && scene.path("b").exists());
}
