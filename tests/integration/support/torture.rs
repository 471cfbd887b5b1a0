//! Stress rounds: copies that are interrupted again and again, and the invariants afterwards.
//! `cargo xtask torture` runs many, `tests/torture.rs` a few.

#[path = "torture/draw.rs"]
mod draw;
#[path = "torture/files.rs"]
mod files;
#[path = "torture/round.rs"]
mod round;
#[path = "torture/running.rs"]
mod running;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

#[allow(unused_imports, reason = "each program uses its own part of this")]
pub(crate) use draw::{Direction, Fault, Load, Moment, Path, Plan, Strike};

use round::Round;

/// Where the rounds run, and with what.
#[derive(Debug)]
pub(crate) struct Fixture {
    pub program: PathBuf,
    /// What `--ssh` takes; the host is `far`.
    pub ssh: String,
    pub folder: PathBuf,
    /// Where the output of a failed round is kept.
    pub logs: PathBuf,
    pub large_bytes: u64,
    pub tree_files: u64,
    pub islands: u64,
    /// Whether folders that a copy made are compared too.
    pub checks_folders: bool,
    /// The emulated WAN of rounds that use one.
    pub wan: Option<wan::Wan>,
}

/// The results of a round.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shown {
    /// The faults that had a target.
    pub struck: Vec<Fault>,
    pub runs: u64,
    /// Bytes sent over all runs beyond the size of what was to be sent.
    pub resent_bytes: u64,
    /// The limit of that.
    pub bound_bytes: u64,
    /// Final names that were compared while the round ran.
    pub compared: u64,
    /// Logins that were interrupted and reported with exit code 7.
    pub refused_logins: u64,
    /// The most memory that a side used beyond its plan.
    pub beyond_plan_bytes: u64,
}

impl Fixture {
    /// Makes the sources.
    pub(crate) fn lay(&self) {
        for folder in ["large", "tree", "sparse"] {
            fs::create_dir_all(self.folder.join(folder)).unwrap();
        }
        fs::create_dir_all(&self.logs).unwrap();
        files::write(&self.folder.join("large/large"), 0, self.large_bytes);
        files::write_sparse(&self.folder.join("sparse/image"), self.islands);
        let tree = self.folder.join("tree");
        let mut names = String::new();
        for number in 0..self.tree_files {
            let inner = format!("d{}/e{}", number % 7, number % 11);
            let folder = tree.join(&inner);
            fs::create_dir_all(&folder).unwrap();
            // Mostly small, some of several requests, a few around the page cache.
            let bytes = match number % 400 {
                0 => (17 << 20) + number,
                1..=10 => (300 << 10) * (number % 9),
                _ => number * 7919 % 20_000,
            };
            files::write(&folder.join(format!("f{number}")), number + 1, bytes);
            if number % 2 == 0 {
                names.push_str(&format!("{inner}/f{number}\n"));
            }
        }
        fs::write(self.folder.join("list"), names).unwrap();
        let past = SystemTime::now() - Duration::from_secs(1_000_000);
        for folder in files::below(&tree, true).iter().rev().chain([&tree]) {
            fs::set_permissions(folder, fs::Permissions::from_mode(0o750)).unwrap();
            fs::File::open(folder).unwrap().set_modified(past).unwrap();
        }
    }

    /// Runs one round; an error says what was violated, and where its log is.
    pub(crate) fn play(&self, name: &str, plan: &Plan) -> Result<Shown, String> {
        if let Some(wan) = self.wan.as_ref().filter(|_| plan.path.wan) {
            wan.set(&change(&plan.path.words())?)?;
        }
        let mut round = Round::new(self, name, plan)?;
        let played = round.play();
        round.clear(played.is_err());
        let struck = round.struck();
        played.map_err(|why| {
            let logs = self.logs.display();
            format!("{name}: {why} ({plan:?}; struck {struck:?}; {logs}/{name}-run*)")
        })
    }
}

impl Path {
    /// As `cargo xtask wan` takes it.
    pub(crate) fn words(&self) -> String {
        let loss = self.loss_permille as f64 / 10.0;
        format!(
            "--rate {}Mbit --rtt {}ms --queue 1bdp --loss {loss}% --loss-back {loss}%",
            self.rate_mbit, self.rtt_ms
        )
    }

    pub(crate) fn bytes_per_second(&self) -> u64 {
        self.rate_mbit * 125_000
    }
}

fn change(words: &str) -> Result<wan::Change, String> {
    wan::Change::from_words(&words.split_whitespace().collect::<Vec<_>>())
}
