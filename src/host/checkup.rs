//! The facts that `doctor` needs beside those of the environment, read on the host that they
//! describe. Pure functions parse the kernel's texts.

use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::Range;
use std::path::Path;
use std::process::Command;

use rustix::process::{Resource, getrlimit};
use serde::{Deserialize, Serialize};

use super::file;
use analysis::accounting::moment::{
    ORDER_GIVEN_BACK, read_available_bytes, read_orders_given_back,
};
use mover::io::system;

/// Facts by name, as in an environment.
type Facts = BTreeMap<String, String>;

/// The peer to which the examined interface leads.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Toward {
    World,
    Address(IpAddr),
    /// The client of the ssh login.
    WhoLoggedIn,
}

/// All facts of this host: of an interface, and of a folder that copies are to use.
pub(crate) fn here(folder: &Path, toward: Toward) -> Facts {
    let mut facts = Facts::new();
    let mut add = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            facts.insert(name.to_string(), value);
        }
    };
    let text = |path: &str| fs::read_to_string(path).ok();
    let trimmed = |path: &str| text(path).map(|text| text.trim().to_string());
    add("frequency_governors", distinct(&governors()));
    add("frequency_driver", trimmed("/sys/devices/system/cpu/cpu0/cpufreq/scaling_driver"));
    add("open_files", Some(getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX).to_string()));
    add("entropy_bits", trimmed("/proc/sys/kernel/random/entropy_avail"));
    add("io_uring_disabled", trimmed("/proc/sys/kernel/io_uring_disabled"));
    add("absent_calls", Some(system::absent_calls().join(", ")));
    add("cpus_allowed", Some(system::allowed_cpus(0).len().to_string()));
    add("backlog_dropped", text("/proc/net/softnet_stat").map(|text| dropped(&text).to_string()));
    let memory = text("/proc/meminfo").map(|text| read_available_bytes(&text).to_string());
    add("memory_available_bytes", memory);
    let parameter = text(ORDER_GIVEN_BACK).unwrap_or_default();
    let given = text("/proc/buddyinfo").map(|orders| read_orders_given_back(&parameter, &orders));
    let told = |given: Option<Range<u32>>| given.map(|given| format!("{given:?}"));
    add("orders_given_back", given.map(|given| told(given).unwrap_or_default()));
    of_folder(folder, &mut add);
    let login = std::env::var("SSH_CONNECTION").ok();
    let (who, at) = login.as_deref().map_or((None, None), both_ends);
    let peer = match toward {
        Toward::World => None,
        Toward::Address(address) => Some(address),
        Toward::WhoLoggedIn => {
            add("reached_at", at.map(|address| address.to_string()));
            who
        }
    };
    if let Some(interface) = interface_to(peer) {
        of_interface(&interface, &mut add);
    }
    facts
}

/// Of `client port server port`: the client's address, and the server's.
fn both_ends(connection: &str) -> (Option<IpAddr>, Option<IpAddr>) {
    let words: Vec<&str> = connection.split(' ').collect();
    let address = |at: usize| words.get(at)?.parse().ok();
    (address(0), address(2))
}

fn of_folder(folder: &Path, add: &mut dyn FnMut(&str, Option<String>)) {
    let folder = std::path::absolute(folder).unwrap_or(folder.to_path_buf());
    add("folder", Some(folder.display().to_string()));
    add("folder_exists", Some(folder.is_dir().to_string()));
    if let Ok(state) = file::state(&folder) {
        add("folder_file_system", Some(state.file_system));
        add("folder_mount_options", Some(state.mount_options));
    }
    // Of a path that does not exist, the nearest folder above it.
    let found = folder.ancestors().find_map(|path| rustix::fs::statvfs(path).ok());
    if let Some(found) = found {
        add("folder_free_bytes", Some((found.f_bavail * found.f_frsize).to_string()));
        add("folder_total_bytes", Some((found.f_blocks * found.f_frsize).to_string()));
        // Some file systems have no fixed number of inodes.
        add("folder_free_nodes", (found.f_files > 0).then(|| found.f_favail.to_string()));
    }
}

fn of_interface(name: &str, add: &mut dyn FnMut(&str, Option<String>)) {
    add("interface", Some(name.to_string()));
    let Some(numbers) = system::interface(name) else { return };
    add("mtu_bytes", Some(numbers.mtu_bytes.to_string()));
    add("interface_queue_packets", Some(numbers.queue_packets.to_string()));
    let said = Command::new("tc").args(["qdisc", "show", "dev", name]).output();
    let said = said.ok().filter(|output| output.status.success());
    add("qdisc", said.and_then(|output| qdiscs(&String::from_utf8_lossy(&output.stdout))));
    // `/sys` may be that of another network namespace, with an interface of the same name.
    let folder = format!("/sys/class/net/{name}");
    let index = fs::read_to_string(format!("{folder}/ifindex")).ok();
    if index.and_then(|text| text.trim().parse().ok()) != Some(numbers.index) {
        return;
    }
    let speed = fs::read_to_string(format!("{folder}/speed")).ok();
    let mbit = speed.and_then(|text| text.trim().parse::<i64>().ok()).filter(|mbit| *mbit > 0);
    add("interface_mbit", mbit.map(|mbit| mbit.to_string()));
    add("receive_packet_steering", steering(&folder));
    let device = fs::canonicalize(format!("{folder}/device")).ok();
    let device = device.and_then(|path| Some(path.file_name()?.to_str()?.to_string()));
    let names: Vec<&str> = std::iter::once(name).chain(device.as_deref()).collect();
    let table = fs::read_to_string("/proc/interrupts").unwrap_or_default();
    if let Some((queues, share)) = interrupts(&table, &names) {
        add("interrupt_queues", Some(queues.to_string()));
        add("interrupt_busiest_share", Some(format!("{share:.3}")));
    }
}

fn governors() -> Vec<String> {
    let folders = fs::read_dir("/sys/devices/system/cpu").into_iter().flatten().flatten();
    let files = folders.map(|folder| folder.path().join("cpufreq/scaling_governor"));
    files.filter_map(|file| fs::read_to_string(file).ok()).map(|text| text.trim().into()).collect()
}

fn distinct(all: &[String]) -> Option<String> {
    let mut all = all.to_vec();
    all.sort();
    all.dedup();
    (!all.is_empty()).then(|| all.join(" "))
}

/// Whether any receive queue steers packets to other CPUs (RPS).
fn steering(folder: &str) -> Option<String> {
    let queues = fs::read_dir(format!("{folder}/queues")).ok()?.flatten();
    let masks = queues.filter_map(|queue| fs::read_to_string(queue.path().join("rps_cpus")).ok());
    let any =
        masks.into_iter().any(|mask| mask.chars().any(|c| matches!(c, '1'..='9' | 'a'..='f')));
    Some(if any { "on" } else { "off" }.to_string())
}

/// The interface of the route to an address; without an address, of the default route.
fn interface_to(peer: Option<IpAddr>) -> Option<String> {
    let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
    match peer.map(|peer| peer.to_canonical()) {
        Some(IpAddr::V6(peer)) if peer.is_loopback() => Some("lo".into()),
        Some(IpAddr::V4(peer)) if peer.is_loopback() => Some("lo".into()),
        Some(IpAddr::V6(peer)) => route_v6(&text("/proc/net/ipv6_route"), peer),
        Some(IpAddr::V4(peer)) => route_v4(&text("/proc/net/route"), peer),
        None => route_v4(&text("/proc/net/route"), SOMEBODY),
    }
}

/// `Iface Destination Gateway Flags RefCnt Use Metric Mask …`, addresses as hexadecimal words in
/// host byte order. The longest mask wins, then the lowest metric.
fn route_v4(routes: &str, peer: Ipv4Addr) -> Option<String> {
    let word = |text: &str| {
        let word = u32::from_str_radix(text, 16).ok()?;
        Some(u32::from_be_bytes(word.to_ne_bytes()))
    };
    let route = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (to, mask) = (word(fields.get(1)?)?, word(fields.get(7)?)?);
        let metric: u32 = fields.get(6)?.parse().ok()?;
        let fits = u32::from(peer) & mask == to;
        fits.then(|| ((mask.count_ones(), std::cmp::Reverse(metric)), fields[0].to_string()))
    };
    routes.lines().skip(1).filter_map(route).max().map(|(_, name)| name)
}

/// `destination length source length next metric … interface`, all hexadecimal.
fn route_v6(routes: &str, peer: Ipv6Addr) -> Option<String> {
    let route = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let to = u128::from_str_radix(fields.first()?, 16).ok()?;
        let length = u32::from_str_radix(fields.get(1)?, 16).ok()?;
        let metric = u32::from_str_radix(fields.get(5)?, 16).ok()?;
        let name = *fields.get(9)?;
        let mask = u128::MAX.checked_shl(128_u32.checked_sub(length)?).unwrap_or(0);
        let fits = u128::from(peer) & mask == to && name != "lo";
        fits.then(|| ((length, std::cmp::Reverse(metric)), name.to_string()))
    };
    routes.lines().filter_map(route).max().map(|(_, name)| name)
}

/// The names of what `tc qdisc show` lists: `qdisc fq_codel 0: root refcnt 2 …`.
fn qdiscs(text: &str) -> Option<String> {
    let names = text.lines().filter_map(|line| line.strip_prefix("qdisc ")?.split(' ').next());
    let names: Vec<String> = names.map(String::from).collect();
    distinct(&names)
}

/// Packets dropped at a full backlog: the second column of each CPU's line, in hexadecimal.
fn dropped(softnet: &str) -> u64 {
    let of = |line: &str| u64::from_str_radix(line.split_whitespace().nth(1)?, 16).ok();
    softnet.lines().filter_map(of).sum()
}

/// How many of a device's interrupts receive packets, and the busiest CPU's share of them.
fn interrupts(table: &str, names: &[&str]) -> Option<(usize, f64)> {
    let mut lines = table.lines();
    let cpus = lines.next()?.split_whitespace().count();
    let mut by_cpu = vec![0_u64; cpus];
    let mut queues = 0;
    for line in lines {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let Some(label) = fields.last().filter(|_| fields.len() > cpus + 1) else { continue };
        let own = names.iter().any(|name| {
            label.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
        });
        let sends = label.contains("output") || label.contains("config") || label.contains("-tx");
        let counts = fields[1..=cpus].iter().map(|field| field.parse::<u64>());
        let counts: Vec<u64> = counts.map_while(Result::ok).collect();
        if !own || sends || counts.len() != cpus || counts.iter().sum::<u64>() == 0 {
            continue;
        }
        queues += 1;
        by_cpu.iter_mut().zip(&counts).for_each(|(all, count)| *all += count);
    }
    let all: u64 = by_cpu.iter().sum();
    let most = by_cpu.iter().max().copied().unwrap_or(0);
    (all > 0).then(|| (queues, most as f64 / all as f64))
}

/// A documentation address (RFC 5737): its route is the default route.
const SOMEBODY: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_route_with_the_longest_mask_counts() {
        let routes = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\n\
            eth0\t00000000\t0101A8C0\t0003\t0\t0\t100\t00000000\t0\n\
            eth1\t00000000\t0101A8C0\t0003\t0\t0\t50\t00000000\t0\n\
            dp0\t00004D0A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\n\
            nonsense\n";
        let cases = [
            ("10.77.0.2", Some("dp0")),
            ("10.77.1.2", Some("eth1")),
            ("203.0.113.1", Some("eth1")),
        ];
        for (peer, expect) in cases {
            assert_eq!(route_v4(routes, peer.parse().unwrap()).as_deref(), expect, "{peer}");
        }
        let zeros = "0".repeat(32);
        let routes = format!(
            "{zeros} 00 {zeros} 00 {zeros} 00000400 0 0 00000003 eth0\n\
             20010db8000000000000000000000000 20 {zeros} 00 {zeros} 00000100 0 0 00000001 eth1\n\
             {zeros} 00 {zeros} 00 {zeros} ffffffff 0 0 00200200 lo\nodd\n"
        );
        for (peer, expect) in [("2001:db8::1", Some("eth1")), ("2002::1", Some("eth0"))] {
            assert_eq!(route_v6(&routes, peer.parse().unwrap()).as_deref(), expect, "{peer}");
        }
    }

    #[test]
    fn texts_of_the_kernel() {
        let table = "           CPU0       CPU1\n\
            24:     100        300   PCI-MSI 1-edge      virtio2-input.0\n\
            25:     500          0   PCI-MSI 2-edge      virtio2-output.0\n\
            26:       0          0   PCI-MSI 3-edge      virtio2-config\n\
            27:       9          9   PCI-MSI 4-edge      virtio21-input.0\n\
            NMI:      0          0   Non-maskable interrupts\n";
        assert_eq!(interrupts(table, &["eth0", "virtio2"]), Some((1, 0.75)));
        assert_eq!(interrupts(table, &["eth0"]), None);
        assert_eq!(interrupts("", &["eth0"]), None);
        assert_eq!(dropped("0001 0000000a 0\n0002 00000005 0\nodd\n"), 15);
        let said = "qdisc mq 0: root\nqdisc fq_codel 0: parent :1\nqdisc fq_codel 0: parent :2\n";
        assert_eq!(qdiscs(said).as_deref(), Some("fq_codel mq"));
        assert_eq!(qdiscs(""), None);
    }

    #[test]
    fn ends_of_a_login() {
        let (who, at) = both_ends("10.77.0.1 40000 10.77.0.2 22");
        assert_eq!((who, at), ("10.77.0.1".parse().ok(), "10.77.0.2".parse().ok()));
        assert_eq!(both_ends("odd"), (None, None));
    }

    #[test]
    fn this_host_has_facts() {
        let facts = here(Path::new("not/there/yet"), Toward::Address([127, 0, 0, 1].into()));
        for name in ["open_files", "folder_free_bytes", "memory_available_bytes", "mtu_bytes"] {
            assert!(facts.contains_key(name), "{name}: {facts:?}");
        }
        assert_eq!(facts["interface"], "lo");
    }
}
