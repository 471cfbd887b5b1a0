//! Random trees with links, planted links and names that datapump keeps: `copy` and `spread` make
//! the same of them, as `cp -a` does of all that they do not refuse by name, and nothing outside of
//! the destination changes. `DATAPUMP_TREES` sets their number.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use mover::io::sim::Rng;

use crate::support::data::write_file;
use crate::support::far_spreads::ran;
use crate::support::{Scene, need};

const TREES: u64 = 8;

/// What a name is: its kind and mode, when it was changed, and a digest of its bytes, or of where
/// it leads.
type Look = BTreeMap<String, (u32, i64, i64, blake3::Hash)>;

fn look(root: &Path) -> Look {
    let mut all = Look::new();
    let mut open = vec![root.to_path_buf()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let meta = fs::symlink_metadata(&path).unwrap();
            let inside = match meta.file_type() {
                kind if kind.is_symlink() => {
                    fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes()
                }
                kind if kind.is_file() => fs::read(&path).unwrap(),
                kind if kind.is_dir() => {
                    open.push(path.clone());
                    Vec::new()
                }
                _ => Vec::new(),
            };
            let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_string();
            // A link that leads where it should is left as it is.
            let (seconds, nanos) = match meta.is_symlink() {
                true => (0, 0),
                false => (meta.mtime(), meta.mtime_nsec()),
            };
            all.insert(name, (meta.mode(), seconds, nanos, blake3::hash(&inside)));
        }
    }
    all
}

/// Names that random trees choose from, so that the same one is met in several places.
const NAMES: [&str; 8] =
    ["a", "b", "c", "new\nline", "é", ".datapump-spread", ".datapump-0123abcd-1.part", "z z"];

/// Where links lead.
const TARGETS: [&str; 8] = ["a", "../a", ".", "..", "nowhere", "../../outside", "/", "b/c"];

struct Tree<'a> {
    random: &'a mut Rng,
    outside: &'a Path,
    files: Vec<std::path::PathBuf>,
    left: u64,
}

impl Tree<'_> {
    fn fill(&mut self, folder: &Path, depth: u64) {
        fs::create_dir_all(folder).unwrap();
        for name in NAMES {
            if self.left == 0 || self.random.below(2) == 0 {
                continue;
            }
            self.left -= 1;
            let path = folder.join(name);
            match self.random.below(8) {
                0 | 1 if depth < 4 => self.fill(&path, depth + 1),
                2 => symlink(TARGETS[self.random.below(8) as usize], &path).unwrap(),
                3 => symlink(self.outside, &path).unwrap(),
                4 if !self.files.is_empty() => {
                    let first = self.random.below(self.files.len() as u64) as usize;
                    fs::hard_link(&self.files[first], &path).unwrap();
                }
                5 if depth > 0 => {
                    let made = Command::new(need("mkfifo", "coreutils")).arg(&path).status();
                    assert!(made.unwrap().success());
                }
                _ => {
                    write_file(&path, self.left, self.random.below(5000) as usize);
                    let mode = 0o400 | self.random.below(0o400) as u32;
                    fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
                    self.files.push(path);
                }
            }
        }
        let mode = 0o700 | self.random.below(0o100) as u32;
        fs::set_permissions(folder, Permissions::from_mode(mode)).unwrap();
    }
}

/// Links in the destination, where folders and files of the source belong: to the outside.
fn plant(src: &Path, destinations: &[&Path], outside: &Path, random: &mut Rng) {
    destinations.iter().for_each(|folder| fs::create_dir_all(folder).unwrap());
    for entry in fs::read_dir(src).unwrap() {
        let name = entry.unwrap().file_name();
        // A job whose own folder is a link is refused whole.
        if name != ".datapump-spread" && random.below(6) == 0 {
            let to = [outside.to_path_buf(), outside.join("sub"), outside.join("kept")]
                [random.below(3) as usize]
                .clone();
            destinations.iter().for_each(|folder| symlink(&to, folder.join(&name)).unwrap());
        }
    }
}

#[test]
fn copy_and_spread_agree_with_cp() {
    let count = std::env::var("DATAPUMP_TREES").map_or(TREES, |count| count.parse().unwrap());
    for seed in 0..count {
        check(seed);
    }
}

fn check(seed: u64) {
    let scene = Scene::new();
    let random = &mut Rng::new(0x5eed_7ee5 + seed);
    let outside = scene.path("outside");
    fs::create_dir_all(outside.join("sub")).unwrap();
    write_file(&outside.join("kept"), 1, 100);
    write_file(&outside.join("a"), 2, 100);
    let (src, by_copy, by_spread) = (scene.path("src"), scene.path("copied"), scene.path("spread"));
    Tree { random, outside: &outside, files: Vec::new(), left: 40 }.fill(&src, 0);
    plant(&src, &[&by_copy, &by_spread], &outside, random);
    let planted = look(&by_copy);
    let cp = Command::new(need("cp", "coreutils"))
        .arg("-a")
        .args([&src, &scene.path("theirs")])
        .status();
    assert!(cp.unwrap().success());
    let before = (look(&outside), look(&src));

    let copied = scene.run("copy -r @/src/ @/copied");
    let spread = ran(&scene, "spread @/src/ @/spread --on local:2 --job @/job");

    assert_eq!((look(&outside), look(&src)), before, "seed {seed}");
    let theirs = look(&scene.path("theirs"));
    for (made, ran) in [(&by_copy, &copied), (&by_spread, &spread)] {
        let made = visible(look(made));
        // A job lists ten; its folder has all.
        let more = fs::read_to_string(scene.path("job/failures")).unwrap_or_default();
        let told = format!("{}{}{more}", ran.stdout_text(), ran.stderr).replace("%0A", "\\n");
        for (name, expect) in &theirs {
            let found = made.get(name);
            if found != Some(expect) {
                let shown = name.replace('\n', "\\n");
                let is_told = |path: &Path| {
                    path != Path::new("") && told.contains(&format!("{}'", path.display()))
                };
                let is_told = Path::new(&shown).ancestors().any(is_told);
                assert!(
                    is_told,
                    "seed {seed}: '{shown}' is {found:?} and not told of\n{ran}\n{more}"
                );
            }
        }
        let others = made.keys().filter(|name| !theirs.contains_key(*name));
        let others: Vec<_> = others.filter(|name| !planted.contains_key(*name)).collect();
        assert!(others.is_empty(), "seed {seed}: {others:?}\n{ran}");
        let is_whole = theirs.iter().all(|(name, expect)| {
            made.get(name) == Some(expect) || expect.0 & 0o170_000 == 0o010_000
        });
        assert_eq!(ran.code == 0, is_whole, "seed {seed}\n{ran}");
    }
}

/// Without what a copy that failed keeps for the next.
fn visible(mut all: Look) -> Look {
    all.retain(|name, _| !name.ends_with(".journal"));
    all
}
