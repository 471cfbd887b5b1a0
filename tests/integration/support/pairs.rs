//! Pairs of trees from a seed, for mirrors: what one side has, the other has too, or not, or has
//! another of that name. And what is in a tree, to compare.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::time::{Duration, SystemTime};

use rustix::process::Signal;

use super::data::bytes;
use super::run::{self, Ran};
use super::{Scene, processes};

/// Numbers from a seed.
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Rng {
        Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// One of `0..count`.
    pub(crate) fn below(&mut self, count: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % count
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }
}

/// Names that filters of the tests match among them.
const NAMES: &[&str] = &[
    "a",
    "b",
    "c",
    "d",
    "e",
    "x.o",
    "y.o",
    "tmp",
    "build",
    "é 漢",
    "-r",
    "*",
    "new\nline",
    ".hidden",
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Thing {
    File,
    Folder,
    Link,
}

/// Lays a tree at `src` and another at `dst`.
pub(crate) fn lay(seed: u64, src: &Path, dst: &Path) {
    let mut rng = Rng::new(seed);
    for root in [src, dst] {
        fs::create_dir_all(root).unwrap();
    }
    grow(&mut rng, Some(src), Some(dst), 0);
    for root in [src, dst] {
        finish(root, 0o755, 7);
    }
}

fn grow(rng: &mut Rng, src: Option<&Path>, dst: Option<&Path>, depth: u32) {
    for name in NAMES {
        if rng.below(3) > 0 {
            continue;
        }
        let there = |root: Option<&Path>| root.map(|root| root.join(name));
        let (src, dst) = match rng.below(5) {
            0 => (there(src), None),
            1 => (None, there(dst)),
            _ => (there(src), there(dst)),
        };
        let thing = thing(rng, depth);
        let other = if rng.below(5) == 0 { self::thing(rng, depth) } else { thing };
        let is_same = rng.below(2) == 0;
        let (number, mode, seconds) =
            (rng.below(1000), rng.one_of(&[0o644, 0o600, 0o755, 0o400]), rng.below(1_000_000));
        if thing == other {
            let (src, dst) = (src.as_deref(), dst.as_deref());
            if thing == Thing::Folder {
                grow_folder(rng, (src, dst), depth, mode | 0o100);
                continue;
            }
            src.iter().for_each(|path| make(path, thing, number, mode, seconds));
            let (number, mode, seconds) = match is_same {
                true => (number, rng.one_of(&[mode, 0o640]), seconds),
                false => (number + rng.below(2), 0o644, seconds + 1),
            };
            dst.iter().for_each(|path| make(path, thing, number, mode, seconds));
            continue;
        }
        for (path, thing) in [(src, thing), (dst, other)] {
            let Some(path) = path else { continue };
            match thing {
                Thing::Folder => grow_folder(rng, (Some(&path), None), depth, 0o755),
                thing => make(&path, thing, number, mode, seconds),
            }
        }
    }
    if let Some(dst) = dst
        && rng.below(8) == 0
    {
        let kind = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, dst.join("pipe"), kind, rustix::fs::Mode::RUSR, 0)
            .unwrap();
    }
}

fn thing(rng: &mut Rng, depth: u32) -> Thing {
    match rng.below(10) {
        0 => Thing::Link,
        1..=4 if depth < 4 => Thing::Folder,
        _ => Thing::File,
    }
}

fn grow_folder(rng: &mut Rng, roots: (Option<&Path>, Option<&Path>), depth: u32, mode: u32) {
    for root in [roots.0, roots.1].into_iter().flatten() {
        fs::create_dir_all(root).unwrap();
    }
    grow(rng, roots.0, roots.1, depth + 1);
    let seconds = rng.below(1_000_000);
    for (root, seconds) in [(roots.0, seconds), (roots.1, seconds / 2)] {
        if let Some(root) = root {
            finish(root, mode, seconds);
        }
    }
}

fn make(path: &Path, thing: Thing, number: u64, mode: u32, seconds: u64) {
    if thing == Thing::Link {
        return symlink(format!("to-{number}"), path).unwrap();
    }
    fs::write(path, bytes(number, (number * 7 % 3000) as usize)).unwrap();
    finish(path, mode, seconds);
}

/// rsync compares whole seconds.
fn finish(path: &Path, mode: u32, seconds: u64) {
    let then = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000 + seconds);
    fs::File::open(path).unwrap().set_modified(then).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// A copy that is killed after some of its events, on one side or the other.
pub(crate) fn killed_somewhere(scene: &Scene, line: &str, rng: &mut Rng) -> Ran {
    let events = rng.below(60);
    let mut running = run::start(scene.command(&scene.words(line)));
    for _ in 0..events {
        if !running.wait_for_any() {
            break;
        }
    }
    let far = scene.far_processes();
    match far.first().filter(|_| rng.below(2) == 0) {
        Some(far) => processes::send(*far, Signal::KILL),
        None => running.kill(),
    }
    let ran = running.end();
    processes::assert_end(&scene.far_processes());
    ran
}

/// What is below a folder, by its name: kind, mode, time of files, and content. rsync does not
/// always restore the time of a folder in which it deletes.
pub(crate) fn look(root: &Path) -> BTreeMap<Vec<u8>, String> {
    let mut found = BTreeMap::new();
    let mut open = vec![root.to_path_buf()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(&folder).unwrap().map(Result::unwrap) {
            let path = entry.path();
            let meta = fs::symlink_metadata(&path).unwrap();
            let mode = format!("{:o}", meta.mode());
            let what = match meta.file_type() {
                kind if kind.is_dir() => {
                    open.push(path.clone());
                    format!("folder {mode}")
                }
                // The time of an unchanged link stays.
                kind if kind.is_symlink() => format!("link {:?}", fs::read_link(&path).unwrap()),
                kind if kind.is_file() => {
                    let hash = blake3::hash(&fs::read(&path).unwrap());
                    format!("file {mode} {} {hash}", meta.mtime())
                }
                kind => format!("{kind:?}"),
            };
            let name = path.strip_prefix(root).unwrap().as_os_str().as_bytes().to_vec();
            found.insert(name, what);
        }
    }
    found
}

/// Folders that both have, below the two that are named, have one time.
pub(crate) fn assert_folder_times(src: &Path, dst: &Path) {
    for (name, what) in look(src) {
        let [there, here] = [src, dst].map(|root| root.join(OsStr::from_bytes(&name)));
        if what.starts_with("folder")
            && let Ok(here) = fs::symlink_metadata(here)
        {
            let there = fs::symlink_metadata(there).unwrap();
            assert_eq!(here.mtime(), there.mtime(), "{}", name.escape_ascii());
        }
    }
}

/// What two trees do not have in common, for a message.
pub(crate) fn differences(
    left: &BTreeMap<Vec<u8>, String>,
    right: &BTreeMap<Vec<u8>, String>,
) -> Vec<String> {
    let mut names: Vec<&Vec<u8>> = left.keys().chain(right.keys()).collect();
    names.sort();
    names.dedup();
    names
        .into_iter()
        .filter(|name| left.get(*name) != right.get(*name))
        .map(|name| {
            let what = |tree: &BTreeMap<Vec<u8>, String>| tree.get(name).cloned();
            format!("{}: {:?} and {:?}", name.escape_ascii(), what(left), what(right))
        })
        .collect()
}
