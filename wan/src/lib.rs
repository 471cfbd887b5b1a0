//! # An emulated WAN
//!
//! Two network namespaces, `near` (10.77.0.1) and `far` (10.77.0.2), joined by a link in user space
//! over two TUN devices: rate, propagation delay, a queue in bytes (droptail or FQ-CoDel with and
//! without ECN), a policer, loss from a seed, alone or in runs, reordering, jitter, cuts; each way
//! by itself, and all of it changeable while packets flow. Every packet is a real one of at most
//! 1500 bytes. Rivals are other flows on the same path. Each namespace has an sshd of its own.
//!
//! `cargo xtask wan` is the command for people; tests call [`Wan::up`]. Nothing of a WAN remains
//! after its owner: namespaces have no names, devices belong to the link's process, and a keeper in
//! each namespace ends its processes when the owner is gone. It needs root and Linux.

#![warn(missing_debug_implementations)]

mod codel;
mod flows;
mod folder;
mod fq_codel;
mod ip;
mod link;
mod losses;
mod namespaces;
mod pcap;
mod pipe;
mod policer;
mod profile;
mod queue;
mod rivals;
mod scenario;
mod schedule;
mod sshd;
mod tun;
mod words;

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use folder::Folder;
use link::{Link, MTU_BYTES};
use namespaces::Namespace;
use pcap::Pcap;

pub use flows::RunningRivals;
pub use link::WayCounters;
pub use losses::Loss;
pub use namespaces::enter_myself;
pub use pipe::{PipeCounters, Reordering, Shape};
pub use policer::Policer;
pub use profile::{Change, Joined, Profile, UNLIMITED};
pub use queue::{Aqm, Codel};
pub use rivals::{FlowOutcome, KINDS, Kind, Outcome, Rivals, SLOT, Way, jain};
pub use scenario::Scenario;
pub use schedule::Schedule;

/// Two hosts and the path between them; removed on drop.
pub struct Wan {
    // Fields are dropped in this order: first what runs, then what it runs on.
    near: Namespace,
    far: Namespace,
    /// `None` for a veth pair.
    link: Option<Link>,
    folder: Folder,
    profile: Mutex<Profile>,
}

/// Counters of the path, in both directions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// From near to far. A veth pair only has packets, bytes and drops.
    pub forward: WayCounters,
    pub back: WayCounters,
}

impl Counters {
    /// Of the packets of both ways, the share that left more than 1 ms late.
    pub fn late_share(&self) -> f64 {
        let ways = [self.forward, self.back];
        let late: u64 = ways.iter().map(|way| way.late_packets).sum();
        let packets: u64 = ways.iter().map(|way| way.packets.packets_out).sum();
        late as f64 / packets.max(1) as f64
    }
}

/// What another process needs to run commands in the WAN.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Access {
    pub folder: PathBuf,
    /// Files that open the namespaces while the owner lives.
    pub near: PathBuf,
    pub far: PathBuf,
    pub ssh: String,
}

impl Wan {
    /// Makes all of it. `program` is the `datapump` of those who log in.
    pub fn up(profile: &Profile, program: Option<&Path>) -> Result<Wan, String> {
        may_be_made()?;
        folder::sweep();
        let folder = Folder::new().map_err(|why| format!("a folder for the WAN: {why}"))?;
        let namespace = || {
            Namespace::new().map_err(|why| {
                format!(
                    "a network namespace cannot be made: {why}: run as root, on a kernel with \
                         CONFIG_NET_NS"
                )
            })
        };
        let (near, far) = (namespace()?, namespace()?);
        if profile.has_ecn() {
            ask_for_marks([&near, &far])?;
        }
        for (key, value) in &profile.sysctls {
            near.sysctl(key, value)?;
            far.sysctl(key, value)?;
        }
        let link = match profile.joined {
            Joined::Link => Some(join_by_link(profile, &near, &far)?),
            Joined::Veth => {
                join_by_veth(&near, &far)?;
                None
            }
        };
        sshd::prepare(folder.path(), program)?;
        for (namespace, side) in [&near, &far].into_iter().zip(sshd::SIDES) {
            sshd::start(namespace, folder.path(), side)?;
        }
        let wan = Wan { near, far, link, folder, profile: Mutex::new(profile.clone()) };
        wan.shape_veth(profile)?;
        Ok(wan)
    }

    /// Makes a command run on the near host, or on the far one.
    pub fn near(&self, command: Command) -> io::Result<Command> {
        self.near.enter(command)
    }

    pub fn far(&self, command: Command) -> io::Result<Command> {
        self.far.enter(command)
    }

    /// `--ssh` for a datapump on one of the hosts, which are then called `far:` and `near:`.
    pub fn ssh_command(&self) -> String {
        sshd::command(self.folder.path())
    }

    /// Begins the changes and the rivals of a scenario. Its times count from now.
    pub fn begin(&self, scenario: &Scenario) -> Result<Vec<RunningRivals>, String> {
        if !scenario.schedule.is_empty() {
            self.follow(&scenario.schedule)?;
        }
        scenario.rivals.iter().map(|rivals| self.rivals(rivals)).collect()
    }

    /// Starts other flows on the path.
    pub fn rivals(&self, rivals: &Rivals) -> Result<RunningRivals, String> {
        RunningRivals::start(self.near.handle(), self.far.handle(), rivals)
    }

    /// Changes the path while it is in use, in place of all changes to come.
    pub fn set(&self, change: &Change) -> Result<(), String> {
        let mut profile = self.locked();
        let mut changed = self.with_shapes_of_now(profile.clone());
        changed.apply(change)?;
        self.prepare(&profile, &changed)?;
        match &self.link {
            Some(link) => link.set([changed.forward, changed.back]),
            None => self.shape_veth(&changed)?,
        }
        *profile = changed;
        Ok(())
    }

    /// Changes the path at times that count from now, in place of all changes to come.
    pub fn follow(&self, schedule: &Schedule) -> Result<(), String> {
        let link = self.link.as_ref().ok_or("a veth pair cannot change by itself: use wan set")?;
        let now = self.profile();
        let steps = schedule.profiles(now.clone())?;
        steps.iter().try_for_each(|(_, profile)| self.prepare(&now, profile))?;
        let shapes: Vec<_> =
            steps.iter().map(|(at, profile)| (*at, [profile.forward, profile.back])).collect();
        link.follow(&shapes);
        Ok(())
    }

    /// Drops all packets, for this time or until `mend`.
    pub fn cut(&self, time: Option<Duration>) -> Result<(), String> {
        self.need_link()?.cut(time);
        Ok(())
    }

    pub fn mend(&self) -> Result<(), String> {
        self.need_link()?.mend();
        Ok(())
    }

    /// Stops the far host's sshd, whose logins continue, and starts it again after this time.
    pub fn restart_far_sshd(&self, away: Duration) -> Result<(), String> {
        let [_, side] = sshd::SIDES;
        sshd::stop(self.folder.path(), side)?;
        std::thread::sleep(away);
        sshd::start(&self.far, self.folder.path(), side)
    }

    /// What the path is now.
    pub fn profile(&self) -> Profile {
        let profile = self.locked().clone();
        self.with_shapes_of_now(profile)
    }

    fn with_shapes_of_now(&self, profile: Profile) -> Profile {
        match &self.link {
            Some(link) => {
                let [forward, back] = link.shapes();
                Profile { forward, back, ..profile }
            }
            None => profile,
        }
    }

    /// What the hosts need for this path. Connections that are there already keep what they have.
    fn prepare(&self, before: &Profile, after: &Profile) -> Result<(), String> {
        match after.has_ecn() && !before.has_ecn() {
            true => ask_for_marks([&self.near, &self.far]),
            false => Ok(()),
        }
    }

    pub fn counters(&self) -> Counters {
        let devices = [&self.near, &self.far].map(device_counters);
        let [mut forward, mut back] = match &self.link {
            Some(link) => link.counters(),
            None => [0, 1].map(|i| devices[i].as_sent()),
        };
        forward.kernel_drops += devices[0].sent_dropped + devices[1].received_dropped;
        back.kernel_drops += devices[1].sent_dropped + devices[0].received_dropped;
        Counters { forward, back }
    }

    pub fn access(&self) -> Access {
        Access {
            folder: self.folder.path().to_path_buf(),
            near: self.near.path().into(),
            far: self.far.path().into(),
            ssh: self.ssh_command(),
        }
    }

    fn need_link(&self) -> Result<&Link, String> {
        self.link.as_ref().ok_or_else(|| "a veth pair cannot be cut: name a --rate".to_string())
    }

    /// Sets token buckets on a veth pair's devices.
    fn shape_veth(&self, profile: &Profile) -> Result<(), String> {
        if profile.joined == Joined::Link {
            return Ok(());
        }
        for (namespace, shape) in [(&self.near, profile.forward), (&self.far, profile.back)] {
            if shape.rate_bits_per_s == UNLIMITED {
                // There may be none to remove.
                namespace.run(&format!("tc qdisc del dev {DEVICE} root")).ok();
                continue;
            }
            let burst_bytes = (shape.rate_bits_per_s / 8 / BURSTS_PER_SECOND).max(BURST_BYTES_MIN);
            namespace.run(&format!(
                "tc qdisc replace dev {DEVICE} root tbf rate {}bit burst {burst_bytes} limit {}",
                shape.rate_bits_per_s, shape.queue_bytes
            ))?;
        }
        Ok(())
    }

    fn locked(&self) -> MutexGuard<'_, Profile> {
        self.profile.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Wan {
    fn drop(&mut self) {
        // Both at once; each drop waits for its own end.
        self.near.release();
        self.far.release();
    }
}

impl fmt::Debug for Wan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Wan({}, {})", self.folder.path().display(), self.locked())
    }
}

fn may_be_made() -> Result<(), String> {
    if !rustix::process::geteuid().is_root() {
        return Err("an emulated WAN needs root: it makes network namespaces".to_string());
    }
    let tun = Path::new("/dev/net/tun");
    match tun.exists() {
        true => Ok(()),
        false => {
            Err("/dev/net/tun is missing: modprobe tun, or in a container give it the device \
                      (--device /dev/net/tun)"
                .to_string())
        }
    }
}

/// Makes the hosts ask for explicit congestion notification when they connect.
fn ask_for_marks(hosts: [&Namespace; 2]) -> Result<(), String> {
    hosts.into_iter().try_for_each(|host| host.sysctl("net.ipv4.tcp_ecn", "1"))
}

fn join_by_link(profile: &Profile, near: &Namespace, far: &Namespace) -> Result<Link, String> {
    let mut devices = Vec::new();
    for (namespace, own, other) in
        [(near, NEAR_ADDRESS, FAR_ADDRESS), (far, FAR_ADDRESS, NEAR_ADDRESS)]
    {
        let device = namespace.within(|| tun::open(DEVICE));
        devices.push(device.map_err(|why| format!("a TUN device cannot be made: {why}"))?);
        namespace.run(&format!("ip addr add {own} peer {other} dev {DEVICE}"))?;
        // The queue of the path is the link's: the device itself must not drop bursts.
        namespace.run(&format!(
            "ip link set {DEVICE} mtu {MTU_BYTES} txqueuelen {DEVICE_QUEUE_PACKETS} up"
        ))?;
    }
    let pcap = profile
        .pcap
        .as_ref()
        .map(|path| Pcap::create(path).map_err(|why| format!("--pcap {}: {why}", path.display())));
    let [near, far] = <[_; 2]>::try_from(devices).map_err(|_| "two devices were made")?;
    Link::start(near, far, [profile.forward, profile.back], profile.seed, pcap.transpose()?)
        .map_err(|why| format!("the link does not start: {why}"))
}

fn join_by_veth(near: &Namespace, far: &Namespace) -> Result<(), String> {
    near.run(&format!("ip link add {DEVICE} type veth peer name {DEVICE} netns {}", far.path()))?;
    for (namespace, own, other) in
        [(near, NEAR_ADDRESS, FAR_ADDRESS), (far, FAR_ADDRESS, NEAR_ADDRESS)]
    {
        namespace.run(&format!("ip addr add {own} peer {other} dev {DEVICE}"))?;
        namespace.run(&format!("ip link set {DEVICE} mtu {MTU_BYTES} up"))?;
    }
    Ok(())
}

/// The counters of a host's own device.
#[derive(Clone, Copy, Debug, Default)]
struct Device {
    sent_bytes: u64,
    sent_packets: u64,
    sent_dropped: u64,
    received_dropped: u64,
}

impl Device {
    fn as_sent(self) -> WayCounters {
        let packets = PipeCounters {
            packets_in: self.sent_packets + self.sent_dropped,
            bytes_in: self.sent_bytes,
            packets_out: self.sent_packets,
            bytes_out: self.sent_bytes,
            ..PipeCounters::default()
        };
        WayCounters { packets, ..WayCounters::default() }
    }
}

fn device_counters(namespace: &Namespace) -> Device {
    let text = namespace.within(|| fs::read_to_string("/proc/thread-self/net/dev"));
    text.ok().and_then(|text| device_in(&text)).unwrap_or_default()
}

/// `wan0: received bytes packets errs drop fifo frame compressed multicast, sent the same`.
fn device_in(text: &str) -> Option<Device> {
    let line = text.lines().find_map(|line| line.trim().strip_prefix(DEVICE)?.strip_prefix(':'))?;
    let numbers: Vec<u64> = line.split_whitespace().map_while(|word| word.parse().ok()).collect();
    Some(Device {
        received_dropped: *numbers.get(3)?,
        sent_bytes: *numbers.get(8)?,
        sent_packets: *numbers.get(9)?,
        sent_dropped: *numbers.get(11)?,
    })
}

/// The two hosts on every WAN: their namespaces have no other addresses.
pub const NEAR_ADDRESS: &str = "10.77.0.1";
pub const FAR_ADDRESS: &str = "10.77.0.2";
/// The device on both hosts.
pub const DEVICE: &str = "wan0";
const DEVICE_QUEUE_PACKETS: u32 = 20_000;
/// A token bucket is filled a thousand times a second, and holds at least one packet of any size.
const BURSTS_PER_SECOND: u64 = 1000;
const BURST_BYTES_MIN: u64 = 128 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_devices_line_is_read() {
        let text = "Inter-|   Receive | Transmit\n face |bytes …\n    lo: 1 2 3 4 5 6 7 8 9 \
                    10 11 12 13 14 15 16\n  wan0: 100 2 0 7 0 0 0 0 900 12 0 5 0 0 0 0\n";
        let device = device_in(text).unwrap();
        assert_eq!((device.received_dropped, device.sent_bytes), (7, 900));
        assert_eq!((device.sent_packets, device.sent_dropped), (12, 5));
        assert!(device_in("").is_none());
        assert!(device_in("wan0: 1 2 x").is_none());
    }
}
