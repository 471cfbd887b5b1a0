//! The rules for a host's network interface, processors, limits and files.

use super::finding::{Facts, Goal, Rule, RuleResult};
use base::units::{Bytes, Rate};

pub(super) const RULES: &[(&str, Rule)] = &[
    ("interface", interface),
    ("packet size", packet_size),
    ("queue discipline", queue_discipline),
    ("receive backlog", backlog),
    ("interrupts", interrupts),
    ("processors", processors),
    ("frequency governor", governor),
    ("clock source", clock_source),
    ("random numbers", random_numbers),
    ("open files", open_files),
    ("kernel", kernel),
    ("io_uring", io_uring),
    ("huge pages", huge_pages),
    ("free memory", free_memory),
    ("freed memory", freed_memory),
    ("file system", file_system),
    ("free space", free_space),
];

fn interface(facts: &Facts<'_>, goal: &Goal) -> Option<RuleResult> {
    let name = facts.text("interface")?;
    let Some(mbit) = facts.number("interface_mbit").filter(|mbit| *mbit > 0.0) else {
        return Some(RuleResult::good(format!("{name}, speed unknown")));
    };
    let speed = Rate { bytes_per_second: mbit * 1e6 / 8.0 };
    let found = format!("{name}, {speed}");
    Some(match speed.bytes_per_second < 0.99 * goal.bytes_per_s {
        true => RuleResult::trouble(
            found,
            format!(
                "it is slower than the target of {}",
                Rate { bytes_per_second: goal.bytes_per_s }
            ),
            format!("ethtool {name}: check the negotiated speed"),
        ),
        false => RuleResult::good(found),
    })
}

fn packet_size(facts: &Facts<'_>, _: &Goal) -> Option<RuleResult> {
    let mtu = facts.number("mtu_bytes")?;
    let name = facts.text("interface").unwrap_or("the interface");
    let found = format!("MTU {mtu:.0} on {name}");
    let remedy = format!("ip link set {name} mtu 1500");
    Some(match mtu {
        MTU_USUAL.. => RuleResult::good(found),
        MTU_LEAST.. => RuleResult::advice(
            found,
            "more packets for the same bytes, and headers take a larger share of the link",
            remedy,
        ),
        _ => RuleResult::trouble(found, "IPv6 does not work below 1280 (RFC 8200)", remedy),
    })
}

fn queue_discipline(facts: &Facts<'_>, _: &Goal) -> Option<RuleResult> {
    let name = facts.text("interface").unwrap_or("the interface");
    let Some(all) = facts.text("qdisc") else {
        let default = facts.sysctl("net.core.default_qdisc")?;
        return Some(RuleResult::unknown(format!("unknown for {name}; default is {default}")));
    };
    let found = format!("{all} on {name}");
    if let Some(shaper) = all.split(' ').find(|one| SHAPERS.contains(one)) {
        return Some(RuleResult::trouble(
            found,
            format!("{shaper} limits or delays what this host sends"),
            format!(
                "tc qdisc show dev {name}, and if it is not intended: tc qdisc del dev {name} root"
            ),
        ));
    }
    let is_plain = all.split(' ').any(|one| one.starts_with("pfifo") || one == "bfifo");
    let packets = facts.number("interface_queue_packets").unwrap_or(QUEUE_PACKETS);
    Some(match is_plain && packets < QUEUE_PACKETS {
        true => RuleResult::trouble(
            format!("{found}, {packets:.0} packets long"),
            "a burst of one window overflows the queue and is dropped on this host",
            format!("ip link set {name} txqueuelen 1000"),
        ),
        false => RuleResult::good(found),
    })
}

fn backlog(facts: &Facts<'_>, _: &Goal) -> Option<RuleResult> {
    let key = "net.core.netdev_max_backlog";
    let most = facts.number(&format!("sysctl {key}"))?;
    let dropped = facts.number("backlog_dropped").unwrap_or(0.0);
    let found = format!("{key} = {most:.0}, {dropped:.0} packets dropped there since the start");
    let remedy = format!("sysctl -w {key}={:.0}", (most * 4.0).max(BACKLOG_USUAL));
    Some(match (most < BACKLOG_USUAL, dropped > 0.0) {
        (true, _) => RuleResult::trouble(found, "bursts of what comes in are dropped", remedy),
        (false, true) => RuleResult::advice(found, "received packets were dropped here", remedy),
        (false, false) => RuleResult::good(found),
    })
}

/// If one CPU takes all interrupts of an interface, it is at its limit long before the others.
fn interrupts(facts: &Facts<'_>, _: &Goal) -> Option<RuleResult> {
    let name = facts.text("interface")?;
    let queues = facts.number("interrupt_queues")?;
    let share = facts.number("interrupt_busiest_share")?;
    let cpus = facts.number("cpus").unwrap_or(1.0);
    let found = format!("{queues:.0} of {name}, {:.0} % on one CPU", share * 100.0);
    let is_spread = share < SPREAD || facts.text("receive_packet_steering") == Some("on");
    Some(match cpus < 2.0 || is_spread {
        true => RuleResult::good(found),
        false => RuleResult::advice(
            found,
            "above a few Gbit/s that CPU is the bottleneck",
            match queues > 1.0 {
                true => "apt-get install irqbalance, or write masks to /proc/irq/*/smp_affinity"
                    .to_string(),
                false => format!(
                    "echo {:x} > /sys/class/net/{name}/queues/rx-0/rps_cpus",
                    (1_u64 << cpus.min(63.0) as u32) - 1
                ),
            },
        ),
    })
}

fn processors(facts: &Facts<'_>, _: &Goal) -> Option<RuleResult> {
    let cpus = facts.number("cpus")?;
    let allowed = facts.number("cpus_allowed").unwrap_or(cpus);
    let quota = facts.text("cpu_quota").and_then(|quota| {
        let (share, period) = quota.split_once(' ')?;
        Some(share.parse::<f64>().ok()? / period.parse::<f64>().ok()?)
    });
    let quota = quota.filter(|quota| quota.is_finite());
    let usable = quota.unwrap_or(cpus).min(allowed);
    let found = format!("{usable} of {cpus:.0} CPUs");
    Some(match (quota, allowed < cpus) {
        (Some(quota), _) if quota < cpus => RuleResult::trouble(
            found,
            "the control group throttles this program when its CPU quota is used up",
            "echo max > cpu.max of the control group that /proc/self/cgroup names",
        ),
        (_, true) => RuleResult::advice(
            found,
            "this login is restricted to some of the CPUs",
            "taskset -cp 0-N PID of the shell, or what set its affinity",
        ),
        _ => RuleResult::good(found),
    })
}

fn governor(facts: &Facts<'_>, _: &Goal) -> Option<RuleResult> {
    let all = facts.text("frequency_governors").or_else(|| facts.text("frequency_governor"));
    let Some(all) = all else {
        return Some(RuleResult::good("none: this system does not control the clock rate"));
    };
    // With these drivers powersave follows the load, as schedutil does.
    let by_hardware = facts.text("frequency_driver").is_some_and(|driver| {
        driver.starts_with("intel_pstate") || driver.starts_with("amd-pstate")
    });
    let slow = |name: &str| match name {
        "powersave" => !by_hardware,
        "userspace" | "conservative" => true,
        _ => false,
    };
    Some(match all.split(' ').any(slow) {
        true => RuleResult::trouble(
            all,
            "the CPUs stay at a low clock: encryption and digests take proportionally longer",
            "cpupower frequency-set -g performance",
        ),
        false => RuleResult::good(all),
    })
}

fn clock_source(facts: &Facts<'_>, _: &Goal) -> Option<RuleResult> {
    let name = facts.text("clocksource")?;
    Some(match CLOCKS_READ_IN_PLACE.contains(&name) {
        true => RuleResult::good(name),
        false => RuleResult::trouble(
            name,
            "each reading of the clock is a call to the system or an access to a device",
            "echo tsc > /sys/devices/system/clocksource/clocksource0/current_clocksource, where \
             the kernel trusts it",
        ),
    })
}

fn random_numbers(facts: &Facts<'_>, _: &Goal) -> Option<RuleResult> {
    let bits = facts.number("entropy_bits")?;
    let found = format!("{bits:.0} bits of entropy");
    Some(match bits < ENTROPY_BITS {
        true => RuleResult::trouble(
            found,
            "TLS keys may have to wait for entropy",
            "apt-get install rng-tools-debian, or give the virtual machine a virtio-rng device",
        ),
        false => RuleResult::good(found),
    })
}

fn open_files(facts: &Facts<'_>, _: &Goal) -> Option<RuleResult> {
    let most = facts.number("open_files")?;
    let found = format!("{most:.0} at once");
    Some(match most < OPEN_FILES {
        true => RuleResult::trouble(
            found,
            "a copy of a tree keeps hundreds open: it fails with 'too many open files'",
            "ulimit -n 4096, and for logins 'nofile' in /etc/security/limits.conf",
        ),
        false => RuleResult::good(found),
    })
}

/// What an older kernel lacks is done in another way. Linux 4.18 is the oldest that is supported.
fn kernel(facts: &Facts<'_>, _: &Goal) -> Option<RuleResult> {
    let absent = facts.text("absent_calls")?;
    let release = facts.text("kernel").unwrap_or("of unknown release");
    let version = release.split('-').next().unwrap_or(release);
    if absent.is_empty() {
        return Some(RuleResult::good(format!("Linux {version}")));
    }
    let effects = [
        ("io_uring", "disk requests are serialized: depth 1 per stream"),
        ("openat2", "each folder of a path is opened by itself"),
        ("cachestat", "how much of a file was in memory is not known"),
    ];
    let effects = effects.iter().filter(|(call, _)| absent.contains(call));
    let effects: Vec<&str> = effects.map(|(_, effect)| *effect).collect();
    Some(RuleResult::advice(
        format!("Linux {version} without {absent}"),
        effects.join("; "),
        "a newer kernel, or a sandbox that allows these calls; copies are right without them",
    ))
}

fn io_uring(facts: &Facts<'_>, _: &Goal) -> Option<RuleResult> {
    let disabled = facts.text("io_uring_disabled")?;
    Some(match disabled {
        "0" => RuleResult::good("allowed"),
        _ => RuleResult::advice(
            format!("kernel.io_uring_disabled = {disabled}"),
            "disk requests are serialized: depth 1 per stream",
            "sysctl -w kernel.io_uring_disabled=0",
        ),
    })
}

fn huge_pages(facts: &Facts<'_>, _: &Goal) -> Option<RuleResult> {
    let enabled = facts.text("huge_pages")?;
    Some(match enabled.contains("[never]") {
        true => RuleResult::advice(
            "never",
            "many disks split direct requests of 1 MiB in two (docs/decisions/0030: 2.5 times \
             slower here)",
            "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
        ),
        false => RuleResult::good(chosen(enabled)),
    })
}

/// `always [madvise] never` → `madvise`.
fn chosen(text: &str) -> &str {
    let inner = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    inner.map_or(text, |(chosen, _)| chosen)
}

fn free_memory(facts: &Facts<'_>, _: &Goal) -> Option<RuleResult> {
    let free = facts.number("memory_available_bytes")?;
    let found = format!("{} available", Bytes(free as u64));
    Some(match free < MEMORY_FREE {
        true => RuleResult::advice(
            found,
            "a copy with the usual settings plans 80 MB of buffers, plus page cache",
            "stop other programs (ps aux --sort=-rss | head), or copy --memory 64M",
        ),
        false => RuleResult::good(found),
    })
}

fn freed_memory(facts: &Facts<'_>, _: &Goal) -> Option<RuleResult> {
    Some(match facts.text("orders_given_back")?.split_once("..") {
        Some((_, end)) => RuleResult::advice(
            "given back to the host of this virtual machine",
            "its next use takes it from there again: writing 2 GiB into memory took 0.8 or 6 s by \
             that",
            format!(
                "only for measurements: echo {end} > \
                 /sys/module/page_reporting/parameters/page_reporting_order"
            ),
        ),
        None => RuleResult::good("kept in this machine"),
    })
}

fn file_system(facts: &Facts<'_>, _: &Goal) -> Option<RuleResult> {
    let folder = facts.text("folder")?;
    let kind = facts.text("folder_file_system")?;
    let options = facts.text("folder_mount_options").unwrap_or("");
    let has = |option: &str| options.split(',').any(|one| one == option);
    let found = format!("{kind} under {folder}");
    if facts.text("folder_exists") == Some("false") {
        return Some(RuleResult::trouble(
            format!("there is no folder {folder}; {kind} is above it"),
            "a copy makes the last folder of a path, and no more",
            format!("mkdir -p {folder}, or name another folder"),
        ));
    }
    Some(match (has("ro"), has("sync")) {
        (true, _) => RuleResult::trouble(
            format!("{found}, read only"),
            "nothing can be written there",
            format!(
                "mount -o remount,rw {folder}, if it is not read only because of errors: dmesg"
            ),
        ),
        (_, true) => RuleResult::trouble(
            format!("{found}, mounted with sync"),
            "each write waits for the disk",
            format!("mount -o remount,async {folder}"),
        ),
        _ => RuleResult::good(found),
    })
}

fn free_space(facts: &Facts<'_>, _: &Goal) -> Option<RuleResult> {
    let folder = facts.text("folder")?;
    let free = facts.number("folder_free_bytes")?;
    let all = facts.number("folder_total_bytes")?;
    let nodes = facts.number("folder_free_nodes");
    let found = format!("{} of {} in {folder}", Bytes(free as u64), Bytes(all as u64));
    if nodes.is_some_and(|nodes| nodes < NODES_FREE) {
        return Some(RuleResult::trouble(
            format!("{found}, but no more than {:.0} new files", nodes.unwrap_or(0.0)),
            "files need an inode each",
            format!("df -i {folder}; remove small files or choose another file system"),
        ));
    }
    let why =
        "file systems write slowly when they are nearly full, and copies end with exit code 5";
    let remedy = format!("df -h {folder}; make room");
    Some(match free / all.max(1.0) {
        share if share < SHARE_TROUBLE => RuleResult::trouble(found, why, remedy),
        share if share < SHARE_ADVICE => RuleResult::advice(found, why, remedy),
        _ => RuleResult::good(found),
    })
}

const MTU_USUAL: f64 = 1400.0;
const MTU_LEAST: f64 = 1280.0;
/// Queue disciplines that limit or delay what is sent.
const SHAPERS: &[&str] = &["netem", "tbf", "htb", "hfsc", "cbq", "cake"];
/// Packets of one window of 64 KiB.
const QUEUE_PACKETS: f64 = 44.0;
/// The default of Linux.
const BACKLOG_USUAL: f64 = 1000.0;
/// From this share of interrupts on one CPU, they do not count as spread.
const SPREAD: f64 = 0.9;
/// Clock sources that a program reads without a system call.
const CLOCKS_READ_IN_PLACE: &[&str] =
    &["tsc", "kvm-clock", "arch_sys_counter", "hyperv_clocksource_tsc_page", "timebase", "tod"];
const ENTROPY_BITS: f64 = 128.0;
const OPEN_FILES: f64 = 1024.0;
const MEMORY_FREE: f64 = 256e6;
const NODES_FREE: f64 = 1000.0;
const SHARE_TROUBLE: f64 = 0.01;
const SHARE_ADVICE: f64 = 0.05;
