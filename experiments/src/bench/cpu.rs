//! CPU time of everything that a run starts, on both sides, whichever process started it.
//!
//! The bench moves itself into a control group of its own, so that sshd, the tools and their
//! children start in it; the CPU time of the group is that of the run.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// How CPU time is counted on this machine.
pub(super) struct Accounts {
    variant: Variant,
    ksoftirqd: Vec<u32>,
}

enum Variant {
    /// Control groups, first version: `cpuacct.usage`, in nanoseconds.
    First { group: PathBuf, parent: PathBuf },
    /// Control groups, second version: `cpu.stat`, in microseconds.
    Second { group: PathBuf, parent: PathBuf },
    /// Only the times of children that were waited for.
    Children,
}

/// All clocks at one moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    at: Instant,
    ours_ns: u64,
    softirq_ns: u64,
    machine_ns: u64,
}

/// The difference between two moments.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Used {
    pub wall_s: f64,
    /// Of both sides, including the kernel's soft interrupt threads.
    pub cpu_ns: f64,
    /// CPU used by everything else, as a share of all CPUs.
    pub foreign: f64,
}

impl Accounts {
    pub(super) fn open() -> Accounts {
        let variant = first().or_else(second).unwrap_or(Variant::Children);
        Accounts { variant, ksoftirqd: ksoftirqd() }
    }

    /// How CPU time is counted, and what is not.
    pub(super) fn description(&self) -> &'static str {
        match self.variant {
            Variant::First { .. } => {
                "cpuacct.usage of one control group that holds both sides and sshd"
            }
            Variant::Second { .. } => {
                "cpu.stat of one control group that holds both sides and sshd"
            }
            Variant::Children => {
                "times of ended children only (no control group can be made here): what sshd \
                 starts is missed, so tools over ssh look cheaper than they are"
            }
        }
    }

    pub(super) fn now(&self) -> Moment {
        let softirq = self.ksoftirqd.iter().filter_map(|pid| thread_ns(*pid));
        Moment {
            ours_ns: self.ours_ns(),
            softirq_ns: softirq.sum(),
            machine_ns: machine_ns(),
            at: Instant::now(),
        }
    }

    /// Processes of the group; empty where there is none.
    pub(super) fn processes(&self) -> Vec<u32> {
        let group = match &self.variant {
            Variant::First { group, .. } | Variant::Second { group, .. } => group,
            Variant::Children => return Vec::new(),
        };
        let text = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
        text.lines().filter_map(|line| line.parse().ok()).collect()
    }

    fn ours_ns(&self) -> u64 {
        let read = |path: PathBuf| fs::read_to_string(path).unwrap_or_default();
        match &self.variant {
            Variant::First { group, .. } => {
                read(group.join("cpuacct.usage")).trim().parse().unwrap_or(0)
            }
            Variant::Second { group, .. } => {
                let text = read(group.join("cpu.stat"));
                let usec = text.lines().find_map(|line| line.strip_prefix("usage_usec "));
                usec.and_then(|usec| usec.parse::<u64>().ok()).unwrap_or(0) * 1000
            }
            Variant::Children => {
                // Fields 16 and 17: user and system ticks of children that were waited for.
                let text = read(PathBuf::from("/proc/self/stat"));
                let fields = text.rsplit(") ").next().unwrap_or_default().split(' ');
                fields.skip(13).take(2).filter_map(|f| f.parse::<u64>().ok()).sum::<u64>() * TICK_NS
            }
        }
    }
}

impl Drop for Accounts {
    fn drop(&mut self) {
        if let Variant::First { group, parent } | Variant::Second { group, parent } = &self.variant
        {
            // An empty group is removed; any other stays, which does no harm.
            for pid in self.processes() {
                fs::write(parent.join("cgroup.procs"), pid.to_string()).ok();
            }
            fs::remove_dir(group).ok();
        }
    }
}

impl Moment {
    pub(super) fn until(&self, later: &Moment) -> Used {
        let wall_s = later.at.duration_since(self.at).as_secs_f64();
        let cpu = (later.ours_ns - self.ours_ns) + later.softirq_ns.saturating_sub(self.softirq_ns);
        let machine = later.machine_ns.saturating_sub(self.machine_ns);
        let foreign_ns = machine.saturating_sub(cpu) as f64;
        let all_ns = wall_s * 1e9 * crate::bench::machine::cpus() as f64;
        Used { wall_s, cpu_ns: cpu as f64, foreign: foreign_ns / all_ns.max(1.0) }
    }
}

impl Used {
    /// False when something else used the CPUs meanwhile.
    pub(super) fn is_clean(&self) -> bool {
        self.foreign < CLEAN_FOREIGN_MAX
    }
}

fn first() -> Option<Variant> {
    let has_cpuacct = |name: &str| name.split(',').any(|part| part == "cpuacct");
    let mount =
        mounts().into_iter().find(|mount| mount.kind == "cgroup" && has_cpuacct(&mount.options));
    let own = fs::read_to_string("/proc/self/cgroup").ok()?;
    let own = own.lines().find_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let (names, path) = rest.split_once(':')?;
        has_cpuacct(names).then(|| path.trim_start_matches('/').to_string())
    })?;
    let parent = mount?.folder.join(own);
    Some(Variant::First { group: enter(&parent)?, parent })
}

fn second() -> Option<Variant> {
    let mount = mounts().into_iter().find(|mount| mount.kind == "cgroup2")?;
    let own = fs::read_to_string("/proc/self/cgroup").ok()?;
    let own = own.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let parent = mount.folder.join(own);
    let group = enter(&parent)?;
    Some(Variant::Second { group, parent })
}

/// Makes a new group below this one and moves the bench into it.
fn enter(parent: &Path) -> Option<PathBuf> {
    let group = parent.join(format!("datapump-bench-{}", std::process::id()));
    fs::create_dir(&group).ok()?;
    match fs::write(group.join("cgroup.procs"), std::process::id().to_string()) {
        Ok(()) => Some(group),
        Err(_) => {
            fs::remove_dir(&group).ok();
            None
        }
    }
}

struct Mounted {
    folder: PathBuf,
    kind: String,
    options: String,
}

/// The mounts: `id parent dev root folder … - kind source options`.
fn mounts() -> Vec<Mounted> {
    let text = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mounted = |line: &str| {
        let (front, back) = line.split_once(" - ")?;
        let mut back = back.split(' ');
        Some(Mounted {
            folder: front.split(' ').nth(4)?.into(),
            kind: back.next()?.to_string(),
            options: back.nth(1)?.to_string(),
        })
    };
    text.lines().filter_map(mounted).collect()
}

/// The kernel's threads that handle soft interrupts, for example for loopback packets.
fn ksoftirqd() -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let named = |pid: &u32| {
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        name.starts_with("ksoftirqd/")
    };
    pids.filter(named).collect()
}

/// The first field of schedstat: nanoseconds on a CPU.
fn thread_ns(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/schedstat")).ok()?;
    text.split(' ').next()?.parse().ok()
}

/// Every CPU's busy time. Stolen time counts as busy.
fn machine_ns() -> u64 {
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    let line = text.lines().next().unwrap_or_default();
    let fields: Vec<u64> =
        line.split_whitespace().skip(1).filter_map(|field| field.parse().ok()).collect();
    // user nice system idle iowait irq softirq steal
    let busy = [0, 1, 2, 5, 6, 7].iter().filter_map(|i| fields.get(*i));
    busy.sum::<u64>() * TICK_NS
}

/// Linux reports hundredths of a second to programs, whatever its own tick is.
const TICK_NS: u64 = 10_000_000;
/// Runs during which everything else used less than this share of the CPUs are clean.
pub(super) const CLEAN_FOREIGN_MAX: f64 = 0.12;
