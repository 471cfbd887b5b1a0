//! A faulty path between near and far: flipped bits, replayed and delayed streams. No wrong byte
//! gets a final name, and every flip is detected where the seal or the digest promises it.

use crate::support;
use std::fs;
use std::time::Duration;

use crate::support::data::{self, write_file};
use crate::support::relay::{Relay, Toward, Trouble, What};
use crate::support::run::{self, Ran};
use crate::support::{Scene, each};

/// The byte of a stream that is flipped, and what is there without TLS.
const CLEAR: &[(u64, &str)] = &[
    (1, "preamble: magic"),
    (4, "preamble: stream"),
    (6, "preamble: zero"),
    (20, "preamble: nonce"),
    (50, "proof"),
    (72 + 4, "header: kind"),
    (72 + 9, "header: start"),
    (72 + 17, "header: length"),
    (72 + 30, "header: digest"),
    (72 + 62, "header: sum"),
    (72 + 64 + 3, "tag or body"),
    (72 + 64 + 32 + 1000, "body"),
    (500_000, "a later body"),
];
const SEALED: &[(u64, &str)] = &[
    (1, "preamble: magic"),
    (4, "preamble: stream"),
    (20, "preamble: nonce"),
    (40, "handshake: record"),
    (100, "handshake: hello"),
    (700, "handshake: certificate"),
    (3000, "body"),
    (500_000, "a later body"),
];
const BACK: &[(u64, &str)] = &[(3, "challenge or record"), (40, "answer or hello")];

#[test]
fn flips_under_tls() {
    flips("tls", &["blake3", "crc64", "none"], SEALED);
}

#[test]
fn flips_under_auth() {
    flips("auth", &["blake3", "crc64", "none"], CLEAR);
}

#[test]
fn flips_in_the_clear() {
    flips("off", &["blake3", "crc64"], CLEAR);
}

fn flips(seal: &str, digests: &[&str], places: &[(u64, &str)]) {
    let there = places.iter().map(|place| (Toward::Far, *place));
    let back = BACK.iter().map(|place| (Toward::Near, *place));
    let places: Vec<_> = there.chain(back).collect();
    let mut cases: Vec<_> =
        digests.iter().flat_map(|digest| places.iter().map(move |at| (*digest, *at))).collect();
    // Before the first frame every digest is the same.
    cases.retain(|(digest, (_, (at_byte, _)))| *digest == digests[0] || *at_byte >= 72);
    each(cases, |(digest, (toward, (at_byte, _)))| {
        let what = What::Flip((at_byte % 8) as u8);
        // Of two streams one may carry all of the file: the other has a handshake and an end then.
        let (connection, streams) = if *at_byte < 1000 { (Some(0), 1) } else { (None, 2) };
        let trouble = Trouble { connection, toward: *toward, at_byte: *at_byte, what };
        let options = format!("--seal {seal} --digest {digest} --streams {streams}");
        let (scene, ran) = copy(&options, vec![trouble], 1);
        check(&scene, &ran);
        let words = ran.stderr.to_lowercase();
        assert!(!words.contains("panicked"), "{ran}");
    });
}

/// A replay of recorded streams achieves nothing, and delay alone is no fault.
#[test]
fn repeated_and_late() {
    let mut cases = Vec::new();
    for seal in ["tls", "auth", "off"] {
        for (at_byte, what) in [
            (40, What::Replay),
            (72, What::Replay),
            (2000, What::Replay),
            (300_000, What::Replay),
            (60, What::Delay(Duration::from_millis(300))),
            (300_000, What::Delay(Duration::from_millis(300))),
        ] {
            cases.push((seal, at_byte, what));
        }
    }
    each(cases, |(seal, at_byte, what)| {
        let (at_byte, what) = (*at_byte, *what);
        let trouble = Trouble { connection: None, toward: Toward::Far, at_byte, what };
        let (scene, ran) = copy(&format!("--seal {seal} --streams 2"), vec![trouble], 1);
        assert_eq!(ran.code, 0, "{ran}");
        data::assert_same(&scene.path("in"), &scene.path("dst/out"));
    });
}

/// The streams' secret is in no command line, no environment variable and no output.
#[test]
fn secrets_stay_secret() {
    let scene = Scene::new();
    write_file(&scene.path("in"), 1, BYTES);
    fs::create_dir(scene.path("dst")).unwrap();
    let relay = Relay::start(&scene, Vec::new());
    let line = format!(
        "copy --json --interval 0.1 --rate 16Mbit --ssh {} @/in 127.0.0.1:@/dst/out",
        relay.ssh.display()
    );
    let running = run::start(scene.command(&scene.words(&line)));
    support::until("bytes are moved", || relay.forwarded() >= 200_000);
    let secret = relay.opens().remove(0).secret.0;
    let children = support::processes::children_named(running.pid(), "socat");
    assert_eq!(children.len(), 1, "the near side's ssh");
    let seen: Vec<u8> = [running.pid()]
        .into_iter()
        .chain(children)
        .chain(relay.far_pids())
        .flat_map(|pid| ["cmdline", "environ"].map(|name| format!("/proc/{pid}/{name}")))
        .flat_map(|path| fs::read(&path).unwrap_or_else(|why| panic!("{path}: {why}")))
        .collect();
    let ran = running.end();
    assert_eq!(ran.code, 0, "{ran}");
    let said = [&ran.stdout, ran.stderr.as_bytes()].concat();
    for (where_, bytes) in [("processes", seen), ("words", said)] {
        let hex: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
        let text = String::from_utf8_lossy(&bytes).to_lowercase();
        assert!(!text.contains(&hex[..16]), "{where_} show the secret");
        assert!(!bytes.windows(8).any(|part| part == &secret[..8]), "{where_} show the secret");
    }
}

/// Copies one file over a path with these troubles, all of which must come.
fn copy(options: &str, troubles: Vec<Trouble>, happen_min: usize) -> (Scene, Ran) {
    let scene = Scene::new();
    write_file(&scene.path("in"), 1, BYTES);
    fs::create_dir(scene.path("dst")).unwrap();
    let relay = Relay::start(&scene, troubles);
    let ssh = relay.ssh.display();
    let fixed = "--request-size 256K --fsync off";
    let ran = scene.run(&format!("copy {options} {fixed} --ssh {ssh} @/in 127.0.0.1:@/dst/out"));
    assert!(relay.happened() >= happen_min, "the trouble did not come: {}", relay.happened());
    (scene, ran)
}

/// Everything is copied, or nothing has the final name and the fault has its class.
fn check(scene: &Scene, ran: &Ran) {
    match ran.code {
        0 => data::assert_same(&scene.path("in"), &scene.path("dst/out")),
        6 | 7 | 9 => {
            assert!(!scene.path("dst/out").exists(), "a broken file has its name\n{ran}");
            assert!(ran.stderr.contains("datapump: "), "nothing is said\n{ran}");
        }
        _ => panic!("{ran}"),
    }
}

const BYTES: usize = 4 << 20;
