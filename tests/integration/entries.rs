//! One exam: a tree with every kind of name, and everything that consumes what a walk finds. Each
//! name is there afterwards, or it is told by its name.

use std::collections::BTreeSet;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;

use crate::support::data::write_file;
use crate::support::gateway::Gateway;
use crate::support::run::{self, Ran};
use crate::support::{Scene, each, need, need_root};

/// An enum and all of its values: who adds one must say what is expected of it.
macro_rules! every {
    ($name:ident: $($value:ident),+) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        enum $name { $($value),+ }

        impl $name {
            const ALL: &[$name] = &[$($name::$value),+];
        }
    };
}

every!(Kind: File, Empty, Sparse, HardLink, SymbolicLink, Folder, Fifo, Socket, Device, Unreadable,
    Reserved, OddName);
every!(Consumer: Copy, Push, Pull, Spread, Mirror, Receipt, Verify, Events, DryRun, Again, Compared,
    Store);

/// What a consumer does with a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// It is in what the consumer made.
    There,
    /// It is not, and the user is told of it by its name.
    Told,
    /// It is no name of this consumer's, and nobody needs to be told.
    Silent,
}

fn fate(kind: Kind, consumer: Consumer) -> Fate {
    let copied = match kind {
        Kind::File | Kind::Empty | Kind::Sparse | Kind::HardLink | Kind::OddName => Fate::There,
        Kind::SymbolicLink | Kind::Folder => Fate::There,
        Kind::Fifo | Kind::Socket | Kind::Device => Fate::Told,
        Kind::Unreadable | Kind::Reserved => Fate::Told,
    };
    match (consumer, kind) {
        (Consumer::Copy | Consumer::Push | Consumer::Pull, _) => copied,
        (Consumer::Spread | Consumer::Mirror | Consumer::Store, _) => copied,
        // A receipt has what has bytes.
        (Consumer::Receipt | Consumer::Verify, Kind::SymbolicLink | Kind::Folder) => Fate::Silent,
        (Consumer::Receipt | Consumer::Verify, _) => copied,
        // Folders are counted.
        (Consumer::Events | Consumer::DryRun, Kind::Folder) => Fate::Silent,
        (Consumer::Events | Consumer::DryRun, _) => copied,
        // What is there already is not copied again, whether its names are joined or not.
        (Consumer::Again | Consumer::Compared, _) if copied == Fate::There => Fate::Silent,
        (Consumer::Again | Consumer::Compared, _) => copied,
    }
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::File => "file",
            Kind::Empty => "empty",
            Kind::Sparse => "sparse",
            Kind::HardLink => "hard-link",
            Kind::SymbolicLink => "symbolic-link",
            Kind::Folder => "folder",
            Kind::Fifo => "fifo",
            Kind::Socket => "socket",
            Kind::Device => "device",
            Kind::Unreadable => "unreadable",
            Kind::Reserved => ".datapump-0123abcd-1.part",
            Kind::OddName => "odd %2F+' é",
        }
    }

    fn make(self, folder: &Path) {
        let path = folder.join(self.name());
        match self {
            Kind::File | Kind::Reserved | Kind::OddName => write_file(&path, self as u64, 1000),
            Kind::Empty => write_file(&path, 0, 0),
            Kind::Sparse => {
                let file = File::create(&path).unwrap();
                file.write_all_at(b"x", 3_000_000).unwrap();
            }
            Kind::HardLink => fs::hard_link(folder.join(Kind::File.name()), &path).unwrap(),
            Kind::SymbolicLink => symlink(Kind::File.name(), &path).unwrap(),
            Kind::Folder => fs::create_dir(&path).unwrap(),
            Kind::Fifo | Kind::Device => {
                let kind = if self == Kind::Fifo { &["p"][..] } else { &["c", "1", "3"] };
                let made = Command::new(need("mknod", "coreutils")).arg(&path).args(kind).status();
                assert!(made.unwrap().success());
            }
            Kind::Socket => drop(UnixListener::bind(&path).unwrap()),
            Kind::Unreadable => {
                write_file(&path, 0, 1000);
                fs::set_permissions(&path, Permissions::from_mode(0o000)).unwrap();
            }
        }
    }
}

/// What a consumer has made of the tree, and what it said.
struct Seen {
    names: BTreeSet<String>,
    ran: Ran,
}

impl Consumer {
    fn see(self, scene: &Scene) -> Seen {
        let below = |folder: &str| names_in(&scene.path(folder));
        match self {
            Consumer::Copy | Consumer::Push | Consumer::Pull | Consumer::Spread => {
                let line = match self {
                    Consumer::Push => "copy -r @/src/ far:@/dst",
                    Consumer::Pull => "copy -r far:@/src/ @/dst",
                    Consumer::Spread => "spread @/src/ @/dst --on local:1 --job @/job",
                    _ => "copy -r @/src/ @/dst",
                };
                let ran = bound(scene.command(&scene.words(line)));
                Seen { names: below("dst"), ran }
            }
            Consumer::Mirror => {
                let ran = bound(scene.command(&scene.words("copy -r --delete @/src/ @/dst")));
                Seen { names: below("dst"), ran }
            }
            Consumer::Receipt => {
                let line = "copy -r --manifest @/sums @/src/ @/dst";
                let ran = bound(scene.command(&scene.words(line)));
                let names = fs::read_to_string(scene.path("sums")).unwrap();
                let name = |line: &str| line.split_once("  ").unwrap().1.to_string();
                Seen { names: names.lines().map(name).collect(), ran }
            }
            Consumer::Verify => {
                let mut seen = Consumer::Receipt.see(scene);
                fs::remove_dir_all(scene.path("dst")).unwrap();
                fs::create_dir(scene.path("dst")).unwrap();
                let ran = scene.run("verify --json @/sums @/dst");
                seen.names = names_of(&ran, "failed");
                seen
            }
            Consumer::Events => {
                let ran = bound(scene.command(&scene.words("copy -r --json @/src/ @/dst")));
                Seen { names: names_of(&ran, "done"), ran }
            }
            Consumer::DryRun => {
                let ran = bound(scene.command(&scene.words("copy -r -n --json @/src/ @/dst")));
                Seen { names: names_of(&ran, "would_copy"), ran }
            }
            Consumer::Again | Consumer::Compared => {
                let cp = |options: &str, from: &str, to: &str| {
                    let mut cp = Command::new(need("cp", "coreutils"));
                    cp.arg(options).args([scene.path(from), scene.path(to)]);
                    assert!(cp.status().unwrap().success());
                };
                cp("-a", "src", "dst");
                // Equal files, and no names of one.
                fs::remove_file(scene.path("dst/hard-link")).unwrap();
                cp("-p", "src/hard-link", "dst/hard-link");
                for kind in [Kind::Unreadable, Kind::Reserved] {
                    fs::remove_file(scene.path("dst").join(kind.name())).unwrap();
                }
                let how = if self == Consumer::Again { "--skip-unchanged" } else { "--checksum" };
                let line = format!("copy -r --json {how} @/src/ @/dst");
                let ran = bound(scene.command(&scene.words(&line)));
                Seen { names: names_of(&ran, "done"), ran }
            }
            Consumer::Store => {
                let gateway = Gateway::new();
                let line = "copy -r @/src/ s3://bucket/dst";
                let ran = bound(gateway.command(scene, line, gateway.port));
                Seen { names: names_in(&gateway.object("dst")), ran }
            }
        }
    }
}

/// Runs a command that may not read what its owner may not.
fn bound(inner: Command) -> Ran {
    let mut command = Command::new(need("setpriv", "util-linux"));
    command.arg("--bounding-set=-dac_override,-dac_read_search");
    command.arg(inner.get_program()).args(inner.get_args());
    for (name, value) in inner.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    run::to_end(command, b"")
}

fn names_in(folder: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(folder).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

fn names_of(ran: &Ran, state: &str) -> BTreeSet<String> {
    let events = ran.events();
    let of_state = events.iter().filter(|event| event["state"] == state);
    of_state.map(|event| event["path"].as_str().unwrap().to_string()).collect()
}

#[test]
fn every_kind_reaches_every_consumer() {
    need_root("mknod makes a device, and setpriv takes rights away");
    each(Consumer::ALL, |consumer| {
        let scene = Scene::new();
        let program = scene.program_for_all();
        let bounded = "setpriv --bounding-set=-dac_override,-dac_read_search";
        scene.far_script(&format!("exec {bounded} {} \"$@\"", program.display()));
        fs::create_dir(scene.path("src")).unwrap();
        Kind::ALL.iter().for_each(|kind| kind.make(&scene.path("src")));
        let Seen { names, ran } = consumer.see(&scene);
        let told = format!("{}{}", ran.stdout_text(), ran.stderr);
        for kind in Kind::ALL {
            let fate = fate(*kind, **consumer);
            let case = format!("{kind:?}: {names:?}\n{ran}");
            assert_eq!(names.contains(kind.name()), fate == Fate::There, "{case}");
            if fate == Fate::Told {
                assert!(told.contains(kind.name()), "{case}");
            }
        }
        let is_own = |name: &String| Kind::ALL.iter().any(|kind| kind.name() == name.as_str());
        let is_journal = |name: &String| name.starts_with(".datapump-");
        assert!(names.iter().all(|name| is_own(name) || is_journal(name)), "{names:?}\n{ran}");
        assert_eq!(ran.code, 3, "{ran}");
    });
}
