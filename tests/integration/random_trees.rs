//! Random trees with links, planted links and names that datapump keeps: `copy` and `spread` make
//! the same of them, as `cp -a` and rsync do of all that they do not refuse by name, and nothing
//! outside of the destination changes. `DATAPUMP_TREES` sets their number.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;
use std::process::Command;

use mover::io::sim::Rng;
use rustix::fs::XattrFlags;

use crate::support::data::write_file;
use crate::support::far_spreads::ran;
use crate::support::{Scene, is_root, need};

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

/// Names that random trees choose from, so that the same one is met in several places. The last
/// are refused.
const NAMES: [&str; 8] =
    ["a", "b", "c", "new\nline", "é", "z z", ".datapump-spread", ".datapump-0123abcd-1.part"];
const PLAIN: usize = 6;

/// Where links lead.
const TARGETS: [&str; 8] = ["a", "../a", ".", "..", "nowhere", "../../outside", "/", "b/c"];

struct Tree<'a> {
    random: &'a mut Rng,
    names: &'static [&'static str],
    outside: &'a Path,
    files: Vec<std::path::PathBuf>,
    left: u64,
}

impl Tree<'_> {
    fn fill(&mut self, folder: &Path, depth: u64) {
        fs::create_dir_all(folder).unwrap();
        for name in self.names {
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
                    if self.random.below(4) == 0 {
                        self.mark(&path);
                    }
                    fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
                    self.files.push(path);
                }
            }
        }
        let mode = 0o700 | self.random.below(0o100) as u32;
        fs::set_permissions(folder, Permissions::from_mode(mode)).unwrap();
    }

    /// An attribute, and an owner and a group without names.
    fn mark(&mut self, path: &Path) {
        let value = [self.left as u8, 0, 0xff];
        rustix::fs::setxattr(path, "user.mark", &value, XattrFlags::empty()).unwrap();
        if is_root() {
            let id = |random: &mut Rng| Some(70_000 + random.below(3) as u32);
            chown(path, id(self.random), id(self.random)).unwrap();
        }
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
    let names = &NAMES;
    Tree { random, names, outside: &outside, files: Vec::new(), left: 40 }.fill(&src, 0);
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

/// A new copy, with all that it can keep, is what rsync makes of the same tree: rsync finds no
/// difference between them, but for what was told by name.
#[test]
fn archives_are_those_of_rsync() {
    let count = std::env::var("DATAPUMP_TREES").map_or(TREES, |count| count.parse().unwrap());
    for seed in 0..count {
        check_beside_rsync(seed);
    }
}

fn check_beside_rsync(seed: u64) {
    let scene = Scene::new();
    let random = &mut Rng::new(0xa5_5eed + seed);
    let outside = scene.path("outside");
    fs::create_dir_all(&outside).unwrap();
    let names = &NAMES[..if seed.is_multiple_of(2) { PLAIN } else { NAMES.len() }];
    let mut tree = Tree { random, names, outside: &outside, files: Vec::new(), left: 40 };
    tree.fill(&scene.path("src"), 0);
    // Pipes are named and skipped.
    rsync(&scene, "-aHX --no-specials @/src/ @/theirs");
    let copied = scene.run("copy -rAv @/src/ @/ours");
    let is_plain = names.len() == PLAIN;
    assert!(copied.code == 0 || (copied.code == 3 && !is_plain), "seed {seed}\n{copied}");
    let all = "-aHXn --checksum --no-specials --itemize-changes --delete";
    let found = rsync(&scene, &format!("{all} --exclude=*.journal @/theirs/ @/ours"));
    let is_told = |line: &&str| {
        let (_, name) = line.split_once(' ').unwrap_or_default();
        // Where a link leads, or which name of the file there is already.
        let name = name.split(" -> ").flat_map(|name| name.split(" => ")).next();
        let name = name.unwrap_or_default().trim_end_matches('/').replace("\\#012", "\\n");
        let mut names = Path::new(&name).ancestors().filter(|name| *name != Path::new(""));
        names.any(|name| copied.stderr.contains(&format!("/ours/{}'", name.display())))
    };
    let untold: Vec<&str> = found.lines().filter(|line| !is_told(line)).collect();
    assert!(untold.is_empty(), "seed {seed}: {untold:#?}\n{copied}");
    assert_eq!(found.is_empty(), copied.code == 0, "seed {seed}: {found}\n{copied}");
    if copied.code == 0 {
        // What rsync has made is no different to us either.
        for checksum in ["", "--checksum"] {
            let ran = scene.run(&format!("compare @/src @/theirs {checksum}"));
            assert_eq!(ran.code, 0, "seed {seed}\n{ran}");
        }
    }
}

fn rsync(scene: &Scene, line: &str) -> String {
    let output = Command::new(need("rsync", "rsync")).args(scene.words(line)).output().unwrap();
    assert!(output.status.success(), "{line}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Without what a copy that failed keeps for the next.
fn visible(mut all: Look) -> Look {
    all.retain(|name, _| !name.ends_with(".journal"));
    all
}
