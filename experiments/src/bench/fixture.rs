//! The fixture of the tools: data on tmpfs and on a disk, a private sshd, a daemon's file.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::rows::{Grid, Scenario, Sizes};
use super::shuffle::Shuffle;
use super::{Options, far};
use xtask::step::target_folder;

pub(super) struct Fixture {
    /// On tmpfs: `src`, `dst`, `log`, and in `bin` the peers that were given by their paths.
    memory: TempDir,
    /// On a disk: `src` and `dst`.
    disk: TempDir,
    pub sizes: Sizes,
}

impl Fixture {
    /// Makes the data of the scenarios that will be run.
    pub(super) fn lay(options: &Options) -> Result<Fixture, String> {
        println!("\n== data");
        Fixture::make(options).map_err(|why| format!("the bench's data cannot be made: {why}"))
    }

    fn make(options: &Options) -> io::Result<Fixture> {
        let shm = Path::new("/dev/shm");
        let memory = if shm.is_dir() { shm.to_path_buf() } else { std::env::temp_dir() };
        let folder =
            |parent: &Path| tempfile::Builder::new().prefix("datapump-bench-").tempdir_in(parent);
        fs::create_dir_all(&options.disk)?;
        let mut fixture = Fixture {
            memory: folder(&memory)?,
            disk: folder(&options.disk)?,
            sizes: Sizes { big: options.bytes, small: 0, wire: WIRE_FACTOR * options.bytes },
        };
        let src = fixture.memory.path().join("src");
        for name in ["src", "dst", "log", "bin"] {
            fs::create_dir(fixture.memory.path().join(name))?;
        }
        let wanted = |scenario| Scenario::is_wanted(scenario, options);
        fs::write(src.join("two"), "2\n")?;
        let large = [Scenario::Clear, Scenario::Sealed, Scenario::Memory];
        let grids = [Grid::Clear, Grid::Sealed].map(Scenario::Grid);
        if large.into_iter().chain(grids).any(wanted) {
            random_file(&src.join("big"), 1, options.bytes)?.sync_all()?;
        }
        if wanted(Scenario::Small) || wanted(Scenario::Grid(Grid::Small)) {
            fixture.sizes.small = small_files(&src.join("small"), options.small_files)?;
        }
        if wanted(Scenario::Memory) {
            empty_files(&src.join("empty"), options.empty_files)?;
        }
        if wanted(Scenario::Disk) || wanted(Scenario::Grid(Grid::Disk)) {
            random_file(&fixture.disk.path().join("src"), 2, options.bytes)?.sync_all()?;
        }
        for peer in &options.peers {
            symlink(&peer.path, fixture.memory.path().join("bin").join(peer.name))?;
        }
        let log = fixture.log();
        let module = format!(
            "use chroot = no\n[b]\npath = {}\nread only = no\nuid = {}\ngid = {}\n",
            fixture.memory.path().display(),
            rustix::process::geteuid().as_raw(),
            rustix::process::getegid().as_raw(),
        );
        fs::write(log.join("rsyncd.conf"), module)?;
        fs::write(log.join("wdt-one"), "big\n")?;
        fs::write(log.join("here"), "shift 2\nexec \"$@\"\n")?;
        Ok(fixture)
    }

    pub(super) fn log(&self) -> PathBuf {
        self.memory.path().join("log")
    }

    pub(super) fn source(&self, name: &str) -> PathBuf {
        self.memory.path().join("src").join(name)
    }

    pub(super) fn arrived(&self, name: &str) -> PathBuf {
        self.memory.path().join("dst").join(name)
    }

    pub(super) fn disk_source(&self) -> PathBuf {
        self.disk.path().join("src")
    }

    pub(super) fn disk_arrived(&self) -> PathBuf {
        self.disk.path().join("dst/f")
    }

    /// Empties the destination, and syncs everything that was written before.
    pub(super) fn sweep(&self) -> io::Result<()> {
        for folder in [self.memory.path().join("dst"), self.disk.path().join("dst")] {
            if folder.exists() {
                fs::remove_dir_all(&folder)?;
            }
            fs::create_dir(&folder)?;
        }
        Ok(())
    }

    /// The given peers come first; servers may be where an account's PATH does not lead.
    fn path_of_rows(&self) -> OsString {
        let mut path = self.memory.path().join("bin").into_os_string();
        path.push(":");
        path.push(std::env::var_os("PATH").unwrap_or_default());
        path.push(":/usr/sbin:/sbin");
        path
    }

    /// The variables of the rows' scripts.
    pub(super) fn variables(&self, port: u16) -> Vec<(&'static str, OsString)> {
        let memory = self.memory.path();
        vec![
            ("PATH", self.path_of_rows()),
            ("SRC", memory.join("src").into()),
            ("DST", memory.join("dst").into()),
            ("LOG", memory.join("log").into()),
            ("DISK", self.disk.path().into()),
            ("DP", target_folder().join("release/datapump").into()),
            ("SSH", far::ssh_command().into()),
            ("CFG", far::ssh_command().trim_start_matches("ssh -F ").into()),
            ("P", port.to_string().into()),
            ("BYTES", self.sizes.big.to_string().into()),
            ("WIRE_BYTES", self.sizes.wire.to_string().into()),
        ]
    }
}

/// Incompressible bytes from a seed.
pub(super) fn random_file(path: &Path, seed: u64, len: u64) -> io::Result<File> {
    let mut stream = blake3::Hasher::new().update(&seed.to_le_bytes()).finalize_xof();
    let mut file = File::create(path)?;
    let mut buffer = vec![0; len.min(1 << 20) as usize];
    let mut left = len;
    while left > 0 {
        let count = left.min(buffer.len() as u64) as usize;
        stream.fill(&mut buffer[..count]);
        file.write_all(&buffer[..count])?;
        left -= count as u64;
    }
    Ok(file)
}

/// Files of 4 to 64 KiB, a hundred per folder. Returns their total bytes.
fn small_files(root: &Path, count: usize) -> io::Result<u64> {
    let mut sizes = Shuffle::from_seed(3);
    let mut total = 0;
    for i in 0..count {
        let folder = root.join(format!("{:03}", i / 100));
        if i % 100 == 0 {
            fs::create_dir_all(&folder)?;
        }
        let len = sizes.between(4 << 10, 64 << 10);
        let mut bytes = vec![0; len as usize];
        blake3::Hasher::new().update(&i.to_le_bytes()).finalize_xof().fill(&mut bytes);
        fs::write(folder.join(format!("{i:05}")), bytes)?;
        total += len;
    }
    Ok(total)
}

fn empty_files(root: &Path, count: usize) -> io::Result<()> {
    for i in 0..count {
        let folder = root.join(format!("{:04}", i / 1000));
        if i % 1000 == 0 {
            fs::create_dir_all(&folder)?;
        }
        File::create(folder.join(i.to_string()))?;
    }
    Ok(())
}

/// Memory to memory is so fast that it needs more bytes to take as long.
const WIRE_FACTOR: u64 = 16;
