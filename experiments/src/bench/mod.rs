//! datapump compared with other tools, on this machine, in one run.

mod cpu;
mod cube;
mod diagnosis;
#[path = "../../../tests/integration/support/far.rs"]
#[allow(dead_code, reason = "the tests use more of it")]
pub(crate) mod far;
mod fixture;
mod instructions;
pub(crate) mod machine;
mod many;
mod memory;
mod net_test;
mod overlap;
mod page;
mod predict;
mod profiles;
mod race;
mod ratios;
mod results;
mod rows;
mod shared;
pub(crate) mod shuffle;
mod streams;
mod walk;
mod windows;

use std::path::{Path, PathBuf};

use xtask::packages;
use xtask::step::{cargo, root, run, target_folder};

pub(crate) use cube::cube;
pub(crate) use diagnosis::diagnosis;
pub(crate) use instructions::instructions;
pub(crate) use many::many;
pub(crate) use net_test::net_test;
pub(crate) use overlap::overlap;
pub(crate) use predict::predict;
pub(crate) use profiles::profiles;
pub(crate) use shared::shared;
pub(crate) use streams::streams;
pub(crate) use walk::walk;
pub(crate) use windows::windows;

/// The options of a bench.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub rounds: usize,
    /// The size of the large file.
    pub bytes: u64,
    pub small_files: usize,
    pub empty_files: usize,
    /// Only scenarios with this in their name.
    pub only: Vec<String>,
    /// A folder on a real disk: direct I/O on tmpfs is not worth measuring.
    pub disk: PathBuf,
    /// A quick look, not evidence: nothing is written to `runs/`.
    pub quick: Quick,
    pub peers: Vec<Peer>,
}

/// Where a program under comparison is; the others are looked for in PATH.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    pub name: &'static str,
    pub path: PathBuf,
}

impl Options {
    /// True when a program was given or is installed.
    pub(crate) fn has(&self, program: &str) -> bool {
        self.program(program).is_some() || packages::is_installed(program)
    }

    /// The given path of a peer.
    pub(crate) fn program(&self, name: &str) -> Option<&Path> {
        Some(&self.peers.iter().find(|peer| peer.name == name)?.path)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Quick {
    Yes,
    No,
}

/// `cargo xtask bench peers`.
pub(crate) fn peers(words: &[&str]) -> Result<(), String> {
    let options = options(words)?;
    packages::ensure(packages::FOR_BENCHES)?;
    build()?;
    let _kept = memory::Kept::begin();
    let accounts = cpu::Accounts::open();
    let fixture = fixture::Fixture::lay(&options)?;
    let mut congestions = machine::congestion_available();
    congestions.retain(|name| name != "reno");
    let rows = rows::rows(&options, fixture.sizes, &congestions);
    let results = race::run(&rows, &fixture, &accounts, &options)?;
    let page = page::peers(&results, &options, &accounts);
    let date = xtask::step::output(std::process::Command::new("date").arg("+%F"))?;
    // A part must not replace the whole page of the day.
    let only: Vec<&str> = options.only.iter().map(String::as_str).collect();
    let path = match (options.quick, only.as_slice()) {
        (Quick::No, []) => root().join(format!("runs/{}-peers.md", date.trim())),
        (Quick::No, [rows::GRIDS]) => root().join(format!("runs/{}-peers-grid.md", date.trim())),
        _ => target_folder().join("bench-peers-part.md"),
    };
    std::fs::write(&path, &page).map_err(|why| format!("{}: {why}", path.display()))?;
    println!("\n{page}\nwritten to {}", path.display());
    Ok(())
}

/// The program under test, in the build that is shipped.
fn build() -> Result<(), String> {
    run("build", &mut cargo("build --release --bin datapump"))
}

fn options(words: &[&str]) -> Result<Options, String> {
    let mut options = Options {
        rounds: ratios::ROUNDS_MIN,
        bytes: 1 << 30,
        small_files: 10_000,
        empty_files: 1_000_000,
        only: Vec::new(),
        disk: target_folder(),
        quick: Quick::No,
        peers: Vec::new(),
    };
    let mut words = words.iter();
    while let Some(word) = words.next() {
        if *word == "--quick" {
            options.quick = Quick::Yes;
            (options.rounds, options.bytes) = (1, 256 << 20);
            (options.small_files, options.empty_files) = (1000, 20_000);
            continue;
        }
        let value = words.next().ok_or_else(|| format!("bench: {word} needs a value"))?;
        let wrong =
            || format!("bench: {word} {value}: write a number, as in --rounds 5 or --size 1G");
        match *word {
            "--rounds" => options.rounds = value.parse().map_err(|_| wrong())?,
            "--size" => options.bytes = size(value).ok_or_else(wrong)?,
            "--only" => options.only = scenarios(value)?,
            "--disk" => options.disk = PathBuf::from(value),
            "--peer" => options.peers.push(peer(value)?),
            _ => return Err(format!("bench: unknown option {word}")),
        }
    }
    match options.rounds {
        0 => Err("bench: --rounds 0 measures nothing".into()),
        _ => Ok(options),
    }
}

/// `sealed,clear`.
fn scenarios(text: &str) -> Result<Vec<String>, String> {
    let words: Vec<String> = text.split(',').map(str::to_string).collect();
    let is_known = |word: &&String| rows::Scenario::ALL.iter().any(|all| all.is_called(word));
    match words.iter().find(|word| !is_known(word)) {
        None => Ok(words),
        Some(word) => {
            let known: Vec<&str> = rows::Scenario::ALL.iter().map(|all| all.word()).collect();
            Err(format!("bench: --only {word}: write some of {},{}", known.join(","), rows::GRIDS))
        }
    }
}

/// `wdt=/opt/wdt/bin/wdt`.
fn peer(text: &str) -> Result<Peer, String> {
    let (name, path) = text
        .split_once('=')
        .ok_or_else(|| format!("bench: --peer {text}: write NAME=PATH, as in wdt=/opt/bin/wdt"))?;
    let known = PEERS.iter().find(|known| **known == name);
    let name =
        known.ok_or_else(|| format!("bench: --peer {name}: the peers are {}", PEERS.join(", ")))?;
    match std::fs::canonicalize(path) {
        Ok(path) if path.is_file() => Ok(Peer { name, path }),
        Ok(_) => Err(format!("bench: --peer {name}: {path} is not a file")),
        Err(why) => Err(format!("bench: --peer {name}: {path}: {why}")),
    }
}

/// `256M` or `4G`, binary.
fn size(text: &str) -> Option<u64> {
    let (number, shift) = match text.strip_suffix('G') {
        Some(number) => (number, 30),
        None => (text.strip_suffix('M')?, 20),
    };
    number.parse::<u64>().ok().filter(|n| (1..=1024).contains(n)).map(|n| n << shift)
}

/// The path of a program that the benches require.
fn need(program: &str, package: &str) -> PathBuf {
    let folders = ["/usr/sbin", "/usr/bin", "/sbin", "/bin"];
    let found =
        folders.iter().map(|folder| Path::new(folder).join(program)).find(|path| path.exists());
    found.unwrap_or_else(|| panic!("{program} is missing: install the Debian package {package}"))
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The programs that `--peer` can name.
const PEERS: &[&str] = &["wdt", "bbcp", "mscp", "globus-gridftp-server", "globus-url-copy"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_are_given_by_name_and_path() {
        let shell = std::fs::canonicalize("/bin/sh").unwrap();
        let given = options(&["--peer", "wdt=/bin/sh", "--peer", "bbcp=/bin/sh"]).unwrap();
        assert_eq!(given.rounds, ratios::ROUNDS_MIN);
        assert_eq!(given.program("wdt"), Some(shell.as_path()));
        assert!(given.has("bbcp"));
        assert_eq!(given.program("mscp"), None);
        for wrong in ["wdt", "netcat=/bin/sh", "wdt=/nowhere/wdt", "wdt=/bin"] {
            let why = options(&["--peer", wrong]).unwrap_err();
            assert!(why.starts_with("bench: --peer "), "{why}");
        }
    }
}
