//! An emulated WAN for a test: two hosts and a path of known rate, delay and loss between them.

use std::process::Command;
use std::time::Duration;

use wan::{Change, Counters, Profile, Rivals, RunningRivals};

use super::{PROGRAM, Scene, need, need_root};

/// Two hosts, `near` (10.77.0.1) and `far` (10.77.0.2), and the path between them, until it is
/// dropped. Several at once do not interfere.
pub(crate) struct Wan(wan::Wan);

impl Wan {
    /// In the words of `cargo xtask wan up`: `--rate 100Mbit --rtt 102ms --queue 64K --loss 0.1%`.
    pub(crate) fn up(words: &str) -> Wan {
        need_root("it makes network namespaces");
        for (program, package) in PARTS {
            need(program, package);
        }
        let words: Vec<&str> = words.split_whitespace().collect();
        let profile = Profile::from_words(&words).unwrap_or_else(|why| panic!("{why}"));
        Wan(wan::Wan::up(&profile, Some(PROGRAM.as_ref())).unwrap_or_else(|why| panic!("{why}")))
    }

    /// Makes a command run on the near host.
    pub(crate) fn near(&self, command: Command) -> Command {
        self.0.near(command).unwrap()
    }

    pub(crate) fn far(&self, command: Command) -> Command {
        self.0.far(command).unwrap()
    }

    /// `--ssh` on the near host: `far:` is the far one. There `datapump` is the program under test.
    pub(crate) fn ssh_command(&self) -> String {
        self.0.ssh_command()
    }

    /// The real program on the near host, by a command line as `Scene::words` reads it; `far:` is
    /// the far host.
    pub(crate) fn datapump(&self, scene: &Scene, line: &str) -> Command {
        let mut words = scene.words(line);
        words.extend(["--ssh".into(), self.ssh_command().into()]);
        self.near(scene.command(&words))
    }

    /// Changes the path while it is in use: `--loss 1%`.
    pub(crate) fn set(&self, words: &str) {
        let words: Vec<&str> = words.split_whitespace().collect();
        let set = Change::from_words(&words).and_then(|change| self.0.set(&change));
        set.unwrap_or_else(|why| panic!("{why}"));
    }

    /// Starts other flows on the path: `4xcubic`. They end when they are dropped.
    pub(crate) fn rivals(&self, word: &str) -> RunningRivals {
        let rivals = Rivals::from_word(word).and_then(|rivals| self.0.rivals(&rivals));
        rivals.unwrap_or_else(|why| panic!("{why}"))
    }

    /// Drops all packets for this time.
    pub(crate) fn cut(&self, time: Duration) {
        self.0.cut(Some(time)).unwrap_or_else(|why| panic!("{why}"));
    }

    /// Counters of packets so far, near to far and back.
    pub(crate) fn counters(&self) -> Counters {
        self.0.counters()
    }

    /// The folder of its keys, removed with the WAN.
    pub(crate) fn folder(&self) -> std::path::PathBuf {
        self.0.access().folder
    }
}

const PARTS: &[(&str, &str)] =
    &[("ip", "iproute2"), ("sshd", "openssh-server"), ("ssh-keygen", "openssh-client")];
