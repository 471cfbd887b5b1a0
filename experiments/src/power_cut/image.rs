//! The guest's disk as a file of the host, and the checks of its content.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use xtask::step::output;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum FileSystem {
    Ext4,
    Xfs,
    Btrfs,
}

impl FileSystem {
    pub(crate) const ALL: [FileSystem; 3] = [FileSystem::Ext4, FileSystem::Xfs, FileSystem::Btrfs];

    pub(crate) fn name(self) -> &'static str {
        match self {
            FileSystem::Ext4 => "ext4",
            FileSystem::Xfs => "xfs",
            FileSystem::Btrfs => "btrfs",
        }
    }

    /// Makes an empty file system in a new file.
    pub(crate) fn make(self, image: &Path) -> Result<(), String> {
        let text = |why: std::io::Error| format!("{}: {why}", image.display());
        fs::File::create(image).and_then(|file| file.set_len(IMAGE_BYTES)).map_err(text)?;
        let (program, words) = match self {
            FileSystem::Ext4 => ("mkfs.ext4", "-q -F -b 4096"),
            FileSystem::Xfs => ("mkfs.xfs", "-q -f -s size=4096"),
            FileSystem::Btrfs => ("mkfs.btrfs", "-q -f"),
        };
        output(Command::new(program).args(words.split(' ')).arg(image)).map(drop)
    }
}

/// The sink's disk, mounted on the host.
pub(super) struct Mounted(PathBuf);

impl Mounted {
    /// Mounts it, which replays the file system's own journal.
    pub(super) fn mount(image: &Path, kind: FileSystem, folder: &Path) -> Result<Mounted, String> {
        fs::create_dir_all(folder).map_err(|why| format!("{}: {why}", folder.display()))?;
        let mut command = Command::new("mount");
        command.args(["-t", kind.name(), "-o", "loop,noatime"]).arg(image).arg(folder);
        output(&mut command)?;
        Ok(Mounted(folder.to_path_buf()))
    }

    pub(super) fn tree(&self) -> PathBuf {
        self.0.join("tree")
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

/// The content of the sink, compared with its source.
#[derive(Clone, Debug, Default)]
pub(super) struct Found {
    /// Number of files under final names.
    pub final_names: u64,
    /// Broken guarantees: content that is not the source's, names that the source does not have.
    pub wrong: Vec<String>,
    /// Final names whose mode or time differs from the source's.
    pub attributes: Vec<String>,
    /// Partial files and journals.
    pub temporary: Vec<PathBuf>,
    /// Names of the source that are missing.
    pub missing: Vec<String>,
}

/// Compares every final name at the sink with its source.
pub(super) fn compare(source: &Path, sink: &Path) -> Found {
    let (there, here) = (entries(source), entries(sink));
    let mut found = Found::default();
    for (name, path) in &here {
        let last = name.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if last.starts_with(".datapump-") {
            found.temporary.push(path.clone());
            continue;
        }
        let shown = name.display();
        let Some(original) = there.get(name) else {
            found.wrong.push(format!("{shown} is not at the source"));
            continue;
        };
        let (Ok(left), Ok(right)) = (fs::symlink_metadata(original), fs::symlink_metadata(path))
        else {
            found.wrong.push(format!("{shown} cannot be looked at"));
            continue;
        };
        let same = match left.file_type() {
            kind if kind != right.file_type() => false,
            kind if kind.is_symlink() => fs::read_link(original).ok() == fs::read_link(path).ok(),
            kind if kind.is_dir() => continue,
            _ => fs::read(original).ok() == fs::read(path).ok(),
        };
        found.final_names += 1;
        if !same {
            let (left, right) = (left.len(), right.len());
            found.wrong.push(format!("{shown} is not its source's ({right} of {left} bytes)"));
        }
        let told = |meta: &fs::Metadata| (meta.mode(), meta.mtime(), meta.mtime_nsec());
        if !left.is_symlink() && told(&left) != told(&right) {
            found.attributes.push(format!("{shown}: {:?}, not {:?}", told(&right), told(&left)));
        }
    }
    let missing = there.keys().filter(|name| !here.contains_key(*name));
    found.missing = missing.map(|name| name.display().to_string()).collect();
    found
}

/// Everything in a folder, by its relative path.
fn entries(root: &Path) -> BTreeMap<PathBuf, PathBuf> {
    let (mut found, mut open) = (BTreeMap::new(), vec![root.to_path_buf()]);
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().filter_map(Result::ok) {
            let path = entry.path();
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                open.push(path.clone());
            }
            let name = path.strip_prefix(root).expect("below its root").to_path_buf();
            found.insert(name, path);
        }
    }
    found
}

const IMAGE_BYTES: u64 = 2 << 30;
