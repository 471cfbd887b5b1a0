//! Do source and sink overlap? Both are limited to the same rate, the disk by a control group and
//! the network by a shaper: a lane without overlap reaches half of it, one with overlap all.

use crate::quota::Quota;
use crate::said;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use xtask::step::{output, target_folder};

/// `cargo xtask bench overlap [--disk DIR]`.
pub(crate) fn overlap(words: &[&str]) -> Result<(), String> {
    let disk = match words {
        [] => target_folder(),
        ["--disk", folder] => PathBuf::from(folder),
        _ => return Err("bench overlap: write nothing, or --disk DIR".into()),
    };
    if !super::is_root() {
        return Err("bench overlap needs root: it makes a network and a control group".into());
    }
    super::build()?;
    let rig = Rig::build(&disk)?;
    for alone in [Direction::NetAlone, Direction::DiskAlone] {
        let rate = rig.measure("auto", alone)?;
        println!("{:<21} {:>6.1} MB/s", alone.name(), rate / 1e6);
        if rate > HELD_SHARE_MAX * HELD_BYTES_PER_S as f64 {
            return Err(format!("{} is not held: nothing could be shown", alone.name()));
        }
    }
    let least = LEAST_SHARE * HELD_BYTES_PER_S as f64 / 1e6;
    let mut slow = 0;
    for engine in ["uring", "threads"] {
        for direction in [Direction::DiskToNet, Direction::NetToDisk] {
            let rate = rig.measure(engine, direction)? / 1e6;
            let verdict = if rate >= least { "pass" } else { "fail" };
            slow += usize::from(rate < least);
            println!("{engine:<8} {:<12} {rate:>6.1} MB/s  {verdict}", direction.name());
        }
    }
    println!(
        "each end is held to {} MB/s, at least {least} are wanted",
        HELD_BYTES_PER_S / 1_000_000
    );
    match slow {
        0 => Ok(()),
        _ => Err(format!("{slow} of 4 take turns instead of overlapping")),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    DiskToNet,
    NetToDisk,
    /// The limits are tested first: without a working limit every lane would pass.
    NetAlone,
    DiskAlone,
}

impl Direction {
    fn name(self) -> &'static str {
        match self {
            Direction::DiskToNet => "disk to net",
            Direction::NetToDisk => "net to disk",
            Direction::NetAlone => "net alone",
            Direction::DiskAlone => "disk alone",
        }
    }
}

/// A far network behind a shaper, a group that limits the disk, and a script in place of ssh.
struct Rig {
    folder: TempDir,
    network: Network,
    /// Both sides run in the group; null does not use the disk.
    program: PathBuf,
    _quota: Quota,
}

impl Rig {
    fn build(disk: &Path) -> Result<Rig, String> {
        let make = |why: std::io::Error| format!("{}: {why}", disk.display());
        fs::create_dir_all(disk).map_err(make)?;
        let folder = tempfile::Builder::new().prefix("datapump-overlap-").tempdir_in(disk);
        let quota = Quota::with_disk()?;
        quota.allow_disk(disk, HELD_BYTES_PER_S)?;
        let rig = Rig {
            folder: folder.map_err(make)?,
            network: Network::make()?,
            program: quota.runs(&target_folder().join("release/datapump"))?,
            _quota: quota,
        };
        rig.write_source().map_err(make)?;
        rig.write_ssh().map_err(make)?;
        Ok(rig)
    }

    fn write_source(&self) -> std::io::Result<()> {
        let mut file = fs::File::create(self.path("source"))?;
        let block = vec![7; 1 << 20];
        for _ in 0..MOVED_BYTES >> 20 {
            file.write_all(&block)?;
        }
        file.sync_all()
    }

    /// In place of ssh: runs the command in the far network.
    fn write_ssh(&self) -> std::io::Result<()> {
        let script = format!(
            "#!/bin/sh\n\
             while [ \"$1\" != {FAR_ADDRESS} ]; do shift; done; shift\n\
             export SSH_CONNECTION='{NEAR_ADDRESS} 1 {FAR_ADDRESS} 22'\n\
             exec ip netns exec {} sh -c \"$*\"\n",
            self.network.name,
        );
        let path = self.path("ssh");
        fs::write(&path, script)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Bytes a second by datapump's own clock.
    fn measure(&self, engine: &str, direction: Direction) -> Result<f64, String> {
        let mut command = Command::new(&self.program);
        command.arg("copy");
        command.args(["--json", "-q", "--streams", "1", "--direct", "on", "--digest", "crc64"]);
        command.args(["--seal", "off", "--overwrite", "always", "--engine", engine]);
        command.arg("--ssh").arg(self.path("ssh")).arg("--remote-datapump").arg(&self.program);
        match direction {
            Direction::DiskToNet => {
                command.arg(self.path("source")).arg(format!("{FAR_ADDRESS}:null:"));
            }
            Direction::NetAlone => {
                command.arg(format!("zero:{MOVED_BYTES}")).arg(format!("{FAR_ADDRESS}:null:"));
            }
            Direction::DiskAlone => {
                command.arg(self.path("source")).arg("null:");
            }
            Direction::NetToDisk => {
                let target = format!("{FAR_ADDRESS}:{}", self.path("arrived").display());
                command.arg(format!("zero:{MOVED_BYTES}")).arg(target);
            }
        }
        let said = output(&mut command)?;
        Ok(said::record(&said)?.moved.goodput_bytes_per_s)
    }
}

/// A veth pair, its far end in a namespace of its own; the near end is limited to the rate.
struct Network {
    name: String,
}

impl Network {
    fn make() -> Result<Network, String> {
        super::need("ip", "iproute2");
        let name = format!("dp{}", std::process::id());
        let network = Network { name: name.clone() };
        let bits = HELD_BYTES_PER_S * 8;
        let shape = format!("root tbf rate {bits}bit burst 512k latency 50ms");
        let lines = [
            format!("ip netns add {name}"),
            format!(
                "ip link add {name}n mtu 9000 type veth peer name {name}f mtu 9000 netns {name}"
            ),
            format!("ip addr add {NEAR_ADDRESS}/30 dev {name}n"),
            format!("ip link set {name}n up"),
            format!("ip -n {name} addr add {FAR_ADDRESS}/30 dev {name}f"),
            format!("ip -n {name} link set {name}f up"),
            format!("ip -n {name} link set lo up"),
            format!("tc qdisc add dev {name}n {shape}"),
        ];
        for line in lines {
            output(&mut words(&line))?;
        }
        Ok(network)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        // The veth pair is removed with its far end.
        output(&mut words(&format!("ip netns del {}", self.name))).ok();
    }
}

fn words(line: &str) -> Command {
    let mut words = line.split(' ');
    let mut command = Command::new(words.next().unwrap_or_default());
    command.args(words);
    command
}

const HELD_BYTES_PER_S: u64 = 200_000_000;
const LEAST_SHARE: f64 = 0.9;
const HELD_SHARE_MAX: f64 = 1.05;
/// Ten seconds at the rate, five of which a lane without overlap would waste.
const MOVED_BYTES: u64 = 2000 << 20;
/// A pair of addresses that are not routed (RFC 2544, for benches).
const NEAR_ADDRESS: &str = "198.18.77.1";
const FAR_ADDRESS: &str = "198.18.77.2";
