//! `--verify disk`: a byte that changes on the medium, under a file that is being written, is found
//! before the file gets its name.

use std::fs;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::data;
use crate::support::gateway::{Fault, FaultyStore, Gateway, Rule, file_of};
use crate::support::mount::Mount;
use crate::support::run::{self, Ran};
use crate::support::{Scene, each, need, need_root, until_some};

const BLOCK: usize = 4096;
const BYTES: usize = 1 << 20;

#[test]
fn a_flipped_byte_is_found() {
    rounds(3);
}

/// `cargo test --test integration read_back -- --ignored --nocapture`, with a page in runs/.
#[test]
#[ignore = "100 rounds take a minute"]
fn a_flipped_byte_is_found_a_hundred_times() {
    rounds(100);
}

/// Rounds with a flipped byte, and as many without one; where only what is received is compared,
/// nothing is found.
fn rounds(count: u64) {
    need_root("a loop device is mounted");
    let disk = LoopDisk::new();
    let (mut found, mut passed, mut missed) = (0, 0, 0);
    for round in 0..count {
        let ran = disk.copy(round, "--verify disk", Some(round as usize * 131 % (BYTES / 4)));
        assert_eq!(ran.code, 6, "round {round}: {ran}");
        assert!(ran.stderr.contains("the disk gives back other bytes"), "{ran}");
        assert!(!disk.file(round).exists(), "a wrong byte has a final name");
        found += 1;
        let ran = disk.copy(round, "--verify disk", None);
        assert_eq!(ran.code, 0, "round {round}: {ran}");
        fs::remove_file(disk.file(round)).unwrap();
        passed += 1;
        let ran = disk.copy(round, "--verify received", Some(7));
        missed += u64::from(ran.code == 0);
        fs::remove_file(disk.file(round)).unwrap();
    }
    assert_eq!(missed, count, "without --verify disk nobody looks at the disk");
    println!("{count} flipped bytes: {found} found; {count} right files: {passed} taken as right");
}

/// A file system on a loop device.
struct LoopDisk {
    scene: Scene,
    image: PathBuf,
    _mount: Mount,
}

impl LoopDisk {
    fn new() -> LoopDisk {
        let scene = Scene::new();
        let image = scene.path("image");
        fs::File::create(&image).unwrap().set_len(64 << 20).unwrap();
        let mut make = Command::new(need("mkfs.ext4", "e2fsprogs"));
        let made = make.args(["-q", "-b", "4096"]).arg(&image).status();
        assert!(made.unwrap().success(), "mkfs.ext4");
        let _mount = Mount::new(&scene.path("disk"), &["-o", "loop"], &image);
        LoopDisk { scene, image, _mount }
    }

    fn file(&self, round: u64) -> PathBuf {
        self.scene.path(format!("disk/f{round}"))
    }

    /// Copies a pipe to a file. When its front is on the device, a byte of that is flipped there;
    /// then the rest comes.
    fn copy(&self, round: u64, options: &str, flip: Option<usize>) -> Ran {
        let bytes = data::bytes(round, BYTES);
        let line = format!("copy - @/disk/f{round} --request-size 64K {options}");
        let mut running = run::start(self.scene.command(&self.scene.words(&line)));
        let mut input = running.child.stdin.take().unwrap();
        input.write_all(&bytes[..BYTES / 2]).unwrap();
        if let Some(at) = flip {
            let block = at / BLOCK * BLOCK;
            let on_device = until_some("the front of the file is on the device", || {
                let mut sync = Command::new("sync");
                assert!(sync.arg("-f").arg(self.scene.path("disk")).status().unwrap().success());
                find(&self.image, &bytes[block..block + BLOCK])
            });
            let device = fs::OpenOptions::new().write(true).open(&self.image).unwrap();
            let flipped = bytes[at] ^ 1;
            device.write_all_at(&[flipped], on_device + (at - block) as u64).unwrap();
        }
        input.write_all(&bytes[BYTES / 2..]).unwrap();
        drop(input);
        running.end()
    }
}

/// Where a block is in a file.
fn find(image: &Path, block: &[u8]) -> Option<u64> {
    let bytes = fs::read(image).unwrap();
    bytes.chunks_exact(BLOCK).position(|there| there == block).map(|at| (at * BLOCK) as u64)
}

/// Files of all sizes and ways to be written are right on a good disk, here and on another host.
#[test]
fn what_is_right_is_taken_as_right() {
    let scene = Scene::new();
    fs::create_dir_all(scene.path("t/d")).unwrap();
    for size in [0, 1, 4095, 4096, 4097, 300_000, (9 << 20) + 5, 70 << 20] {
        file_of(&scene.path(format!("t/d/{size}")), size, size);
    }
    let ways = ["@/t @/here", "@/t far:@/there", "far:@/t @/back"];
    let options = ["", "--digest crc64", "--direct on --verify disk --seal auth"];
    let cases = ways.iter().flat_map(|way| options.map(|options| (way, options)));
    each(cases.enumerate(), |(number, (way, options))| {
        scene.succeed(&format!("copy -r {way}{number} --verify disk {options}"));
        let target = way.rsplit_once('/').unwrap().1;
        data::assert_same(&scene.path("t"), &scene.path(format!("{target}{number}/t")));
    });
}

/// What a store gives back is compared when it is complete; a wrong object is deleted.
#[test]
fn objects_are_read_again() {
    let gateway = std::sync::Arc::new(Gateway::new());
    let scene = Scene::new();
    for size in [0_u64, 1, 100_000, 20 << 20] {
        file_of(&scene.path("a"), size, size);
        gateway.succeed(&scene, &format!("copy @/a s3:/o/{size} --verify disk"));
        let there = fs::read(gateway.object(&format!("o/{size}"))).unwrap();
        assert!(there == fs::read(scene.path("a")).unwrap());
    }
    for name in ["small", "long"] {
        file_of(&scene.path("a"), if name == "small" { 1000 } else { 20 << 20 }, 4);
        let target: &str = if name == "small" { "/w/small" } else { "/w/long" };
        let target = Box::leak(target.to_string().into_boxed_str());
        let rule = Rule { method: "GET", target, after: 0, times: 1, fault: Fault::Flipped(77) };
        let store = FaultyStore::new(&gateway, rule);
        let line = format!("copy @/a s3:/w/{name} --verify disk");
        let ran = run::to_end(gateway.command(&scene, &line, store.port), b"");
        assert_eq!(ran.code, 6, "{ran}");
        assert!(!gateway.object(&format!("w/{name}")).exists(), "{ran}");
    }
}

#[test]
fn what_cannot_be_read_again_is_refused() {
    let scene = Scene::new();
    fs::write(scene.path("a"), "x").unwrap();
    let cases = [
        ("copy @/a @/b --verify disk --digest none", "--digest none makes none"),
        ("copy @/a @/b --verify disk --fsync off", "--fsync off syncs nothing"),
        ("copy @/a - --verify disk", "DST keeps nothing"),
        ("copy @/a null: --verify disk", "DST keeps nothing"),
    ];
    each(cases, |(line, says)| {
        let ran = scene.run(line);
        assert_eq!(ran.code, 2, "{line}: {ran}");
        assert!(ran.stderr.contains(says), "{line}: {ran}");
    });
}
