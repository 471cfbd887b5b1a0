//! What a sealed stream shows on its way, and whether others can open it as docs/WIRE.md says.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::support::data;
use crate::support::relay::Relay;
use crate::support::{Scene, each, need};

/// A capture of a sealed stream shows no byte of the payload, of its digests or of a header, and no
/// name; one of a stream that is only authenticated shows all of them but the name.
#[test]
fn captures() {
    each([("tls", false), ("auth", true)], |(seal, shows)| {
        let scene = Scene::new();
        // Less than a request: one frame, whose digest is that of the digest of the file.
        let text: String = (0..4000).map(|line| format!("line {line} of a letter\n")).collect();
        fs::write(scene.path("a secret name"), &text).unwrap();
        fs::create_dir(scene.path("dst")).unwrap();
        let relay = Relay::start(&scene, Vec::new());
        let words = [
            "copy",
            "--seal",
            seal,
            "--streams",
            "1",
            "--request-size",
            "256K",
            "--fsync",
            "off",
            "--compress",
            "off",
            "--ssh",
        ];
        let mut command = scene.command(&[]);
        command.args(words).arg(&relay.ssh).arg(scene.path("a secret name"));
        command.arg(format!("127.0.0.1:{}", scene.path("dst").display()));
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        assert_eq!(fs::read_to_string(scene.path("dst/a secret name")).unwrap(), text);

        let seen = relay.captured();
        assert!(seen.len() > text.len(), "{} bytes of {}", seen.len(), text.len());
        let digest = blake3::hash(text.as_bytes());
        let of_digest = blake3::hash(digest.as_bytes());
        let lines: Vec<&[u8]> = text.as_bytes().chunks(1000).collect();
        let parts = [b"DPF1".as_slice(), of_digest.as_bytes()].into_iter().chain(lines);
        for part in parts {
            assert_eq!(contains(&seen, part), *shows, "{seal}: {part:?}");
        }
        for part in [b"a secret name".as_slice(), digest.as_bytes()] {
            assert!(!contains(&seen, part), "{seal}: {part:?}");
        }
    });
}

/// Where the digests travel with the bytes the receipt is the same, and the sink hashes nothing.
#[test]
fn verified_at_the_source() {
    let scene = Scene::new();
    data::write_tree(&scene.path("tree"));
    data::write_file(&scene.path("tree/large"), 7, 9_000_001);
    for verify in ["received", "source"] {
        let options = format!("-r --verify {verify} --compress off --request-size 256K");
        let receipt = format!("--manifest @/{verify}.sums");
        let ran = scene.run(&format!("copy {options} {receipt} @/tree/ far:@/{verify}"));
        assert_eq!(ran.code, 0, "{ran}");
        data::assert_same(&scene.path("tree"), &scene.path(verify));
        let ran = scene.run(&format!("verify @/{verify}.sums @/{verify}"));
        assert_eq!(ran.code, 0, "{ran}");
    }
    let sums = |name: &str| {
        let text = fs::read_to_string(scene.path(name)).unwrap();
        let mut lines: Vec<String> = text.lines().map(str::to_string).collect();
        lines.sort();
        lines
    };
    assert!(sums("source.sums").len() > 40);
    assert_eq!(sums("source.sums"), sums("received.sums"));
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

/// The vectors, which `mover/src/work/seal/frame_keys.rs` makes, are opened by other code.
#[test]
fn others_open_the_vectors() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/wire");
    let mut python = Command::new(need("python3", "python3"));
    python.arg(folder.join("open_frames.py")).arg(folder.join("sealed-frames.json"));
    let output = python.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(said.trim(), "3 suites, 12 frames opened", "{output:?}");
}
