//! Recovery of a broken path within a run: streams that are cut or black-holed are replaced, and a
//! lost control connection is opened again.

use crate::support;
use std::fs;

use crate::support::data::{self, write_file};
use crate::support::relay::{Relay, Toward, Trouble, What};
use crate::support::run;
use crate::support::{Scene, each};

/// The troubles of one run.
type Case = (&'static str, Vec<Trouble>);

#[test]
fn streams_are_replaced() {
    let trouble = |connection, toward, at_byte, what| Trouble { connection, toward, at_byte, what };
    let one = |at_byte, what| vec![trouble(Some(1), Toward::Far, at_byte, what)];
    let all = |what| {
        let each = |n| trouble(Some(n), Toward::Far, 150_000 + 70_001 * n as u64, what);
        (0..4).map(each).collect::<Vec<_>>()
    };
    let cases: Vec<Case> = vec![
        ("cut in its first frame", one(5000, What::Cut)),
        ("cut behind some frames", one(777_777, What::Cut)),
        ("cut again and again", [one(300_000, What::Cut), all(What::Cut)].concat()),
        ("all cut once", all(What::Cut)),
        ("one swallows everything", one(400_000, What::Stall)),
        ("the way back is cut", vec![trouble(Some(2), Toward::Near, 60, What::Cut)]),
    ];
    let cases = ["push", "pull"].into_iter().flat_map(|way| cases.iter().map(move |c| (way, c)));
    each(cases, |(way, (name, troubles))| {
        for seal in ["tls", "auth"] {
            let (scene, relay) = set_up(troubles.clone());
            // Not so fast that one stream has carried all when the last one joins.
            let options = format!("--seal {seal} --stall 1s --rate 160Mbit");
            let ran = scene.run(&line(way, &relay, &options));
            assert_eq!(ran.code, 0, "{way}, {seal}, {name}\n{ran}");
            data::assert_same(&scene.path("in"), &scene.path("dst/out"));
            scene.assert_holds("dst", &["out"]);
            let came = relay.happened();
            assert!(way == &"pull" || came > 0, "{name}: the trouble did not come");
        }
    });
}

#[test]
fn a_lost_control_connection_is_made_again() {
    each(["push", "pull"], |way| {
        let (scene, relay) = set_up(Vec::new());
        let words = line(way, &relay, "--rate 80Mbit");
        let running = run::start(scene.command(&scene.words(&words)));
        for after in [1_000_000, 3_000_000] {
            wait_for(&relay, after, way);
            relay.cut_control();
        }
        let ran = running.end();
        assert_eq!(ran.code, 0, "{way}\n{ran}");
        assert!(relay.logins() >= 2, "{way}: {} logins", relay.logins());
        data::assert_same(&scene.path("in"), &scene.path("dst/out"));
        scene.assert_holds("dst", &["out"]);
    });
}

/// The list is sent again, though it can be read only once.
#[test]
fn a_list_of_names_outlives_its_connection() {
    each(["push", "pull"], |way| {
        let (scene, relay) = set_up(Vec::new());
        fs::create_dir_all(scene.path("src/deep/er")).unwrap();
        let names = ["deep/a", "b", "deep/er/c", "deep/d"];
        for (i, name) in names.iter().enumerate() {
            write_file(&scene.path("src").join(name), i as u64, BYTES / 4);
        }
        write_file(&scene.path("src/other"), 9, 1000);
        let ssh = relay.ssh.display();
        let (from, to) = if way == &"push" { ("", "127.0.0.1:") } else { ("127.0.0.1:", "") };
        let options = format!("--files-from @/list --json --rate 80Mbit --streams 2 --ssh {ssh}");
        let words = format!("copy {options} {from}@/src {to}@/dst");
        fs::write(scene.path("list"), names.join("\n")).unwrap();
        let running = run::start(scene.command(&scene.words(&words)));
        wait_for(&relay, 3_000_000, way);
        fs::remove_file(scene.path("list")).unwrap();
        relay.cut_control();
        let ran = running.end();
        assert_eq!(ran.code, 0, "{way}\n{ran}");
        let end = ran.events().pop().unwrap();
        let number = |name: &str| end["record"]["moved"][name].as_u64().unwrap();
        assert_eq!(number("files"), 4, "{way}\n{ran}");
        assert_eq!(number("directories"), 2, "{way}\n{ran}");
        assert_eq!(number("retries"), 1, "{way}\n{ran}");
        scene.assert_holds("dst", &["b", "deep/a", "deep/d", "deep/er/c"]);
        for name in names {
            data::assert_same(&scene.path("src").join(name), &scene.path("dst").join(name));
        }
    });
}

fn wait_for(relay: &Relay, after: u64, way: &str) {
    support::until(way, || relay.forwarded() >= after);
}

fn set_up(troubles: Vec<Trouble>) -> (Scene, Relay) {
    let scene = Scene::new();
    write_file(&scene.path("in"), 1, BYTES);
    fs::create_dir(scene.path("dst")).unwrap();
    let relay = Relay::start(&scene, troubles);
    (scene, relay)
}

fn line(way: &str, relay: &Relay, options: &str) -> String {
    let ssh = relay.ssh.display();
    let ends = match way {
        "push" => "@/in 127.0.0.1:@/dst/out",
        _ => "127.0.0.1:@/in @/dst/out",
    };
    format!("copy {options} --streams 4 --request-size 64K --ssh {ssh} {ends}")
}

const BYTES: usize = 8 << 20;
