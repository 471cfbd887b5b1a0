//! All clocks of one host at one moment, and the difference between two moments. `probe` reads
//! them; here are the types, the parsers for `/proc`, and the arithmetic.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::record::sample::{KernelThread, Machine};

/// The clocks of one host. Only moments of the same probe can be compared.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Moment {
    /// Time since the probe first read its clock.
    pub at_ns: u64,
    /// Every CPU that is online.
    pub cpus: BTreeMap<u32, CpuTimes>,
    /// CPUs with a running soaker.
    pub soakers: BTreeMap<u32, SoakerTimes>,
    pub kernel_threads: Vec<ThreadTime>,
    /// CPU time of the probe itself, without its soakers.
    pub own_cpu_ns: u64,
    /// Memory that programs can get without swapping.
    pub memory_available_bytes: u64,
    /// Interrupts of all devices since boot.
    #[serde(default)]
    pub device_interrupts: u64,
}

/// One CPU's time since boot, as the kernel accounts for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CpuTimes {
    pub idle_s: f64,
    pub iowait_s: f64,
    pub steal_s: f64,
    pub total_s: f64,
}

/// The counts of a soaker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SoakerTimes {
    /// When it was last started: between moments with different starts it was stopped.
    pub since_ns: u64,
    pub iterations: u64,
    pub cpu_ns: u64,
}

/// One thread of the kernel.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ThreadTime {
    pub pid: u32,
    /// Start time in ticks: process numbers are reused.
    pub started: u64,
    /// Without the parts that change from boot to boot.
    pub name: String,
    /// The one CPU that it may run on, where it is only one.
    pub cpu: Option<u32>,
    pub cpu_ns: u64,
}

/// What a soaker did between two moments.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Soaked {
    pub cpu: u32,
    pub iterations: f64,
    pub cpu_s: f64,
    /// The time that the CPU had for this machine: the span less stolen time.
    pub capacity_s: f64,
}

impl Moment {
    pub fn span_s(&self, later: &Moment) -> f64 {
        later.at_ns.saturating_sub(self.at_ns) as f64 / 1e9
    }

    /// What the machine did from this moment to a later one.
    ///
    /// `busy_idle_s` is of all CPUs: a soaker's time counts as idle. `busy_clock_s` is of the CPUs
    /// in `soaked_cpus` only, and `busy_iter_s` needs a calibration: `gates::Calibration::referee`.
    pub fn until(&self, later: &Moment) -> Machine {
        let span_s = self.span_s(later);
        let mut machine = Machine { span_s, ..Machine::default() };
        for cpu in self.cpus.keys().filter(|cpu| later.cpus.contains_key(cpu)) {
            let passed = self.cpu_until(later, *cpu);
            machine.cpus += 1;
            machine.steal_s += passed.steal_s;
            machine.busy_idle_s +=
                (span_s - passed.idle_s - passed.iowait_s - passed.steal_s).max(0.0);
        }
        let soaked = self.soaked_until(later);
        machine.busy_idle_s -= soaked.iter().map(|soaked| soaked.cpu_s).sum::<f64>();
        machine.busy_idle_s = machine.busy_idle_s.max(0.0);
        machine.soaked_cpus = soaked.iter().map(|soaked| soaked.cpu).collect();
        machine.busy_clock_s = (!soaked.is_empty())
            .then(|| soaked.iter().map(|soaked| (soaked.capacity_s - soaked.cpu_s).max(0.0)).sum());
        machine.kernel_threads = self.kernel_threads_until(later);
        machine
    }

    /// Soakers that ran all the time between both moments.
    pub fn soaked_until(&self, later: &Moment) -> Vec<Soaked> {
        let span_s = self.span_s(later);
        let both = self.soakers.iter().filter_map(|(cpu, from)| {
            let to = later.soakers.get(cpu).filter(|to| to.since_ns == from.since_ns)?;
            let steal_s = self.cpu_until(later, *cpu).steal_s;
            Some(Soaked {
                cpu: *cpu,
                iterations: to.iterations.saturating_sub(from.iterations) as f64,
                cpu_s: to.cpu_ns.saturating_sub(from.cpu_ns) as f64 / 1e9,
                capacity_s: (span_s - steal_s).max(0.0),
            })
        });
        both.collect()
    }

    /// The kernel may report idle and iowait times that decrease a little; that counts as 0.
    fn cpu_until(&self, later: &Moment, cpu: u32) -> CpuTimes {
        let of = |moment: &Moment| moment.cpus.get(&cpu).copied().unwrap_or_default();
        let (from, to) = (of(self), of(later));
        CpuTimes {
            idle_s: (to.idle_s - from.idle_s).max(0.0),
            iowait_s: (to.iowait_s - from.iowait_s).max(0.0),
            steal_s: (to.steal_s - from.steal_s).max(0.0),
            total_s: (to.total_s - from.total_s).max(0.0),
        }
    }

    /// A new thread did all its work in between. The work of a thread that ended is lost.
    fn kernel_threads_until(&self, later: &Moment) -> Vec<KernelThread> {
        let key = |thread: &ThreadTime| (thread.pid, thread.started);
        let before: BTreeMap<_, u64> =
            self.kernel_threads.iter().map(|thread| (key(thread), thread.cpu_ns)).collect();
        let mut by_name: BTreeMap<(&str, Option<u32>), u64> = BTreeMap::new();
        for thread in &later.kernel_threads {
            let from = before.get(&key(thread)).copied().unwrap_or(0);
            let sum = by_name.entry((&thread.name, thread.cpu)).or_default();
            *sum = sum.saturating_add(thread.cpu_ns.saturating_sub(from));
        }
        let ran = by_name.into_iter().filter(|(_, cpu_ns)| *cpu_ns > 0);
        ran.map(|((name, cpu), cpu_ns)| KernelThread {
            name: name.to_string(),
            cpu,
            cpu_s: cpu_ns as f64 / 1e9,
        })
        .collect()
    }
}

/// Every CPU's times in the text of `/proc/stat`, which counts in ticks.
pub fn read_cpus(stat: &str, ticks_per_second: u64) -> BTreeMap<u32, CpuTimes> {
    let of = |line: &str| {
        let mut words = line.strip_prefix("cpu")?.split_ascii_whitespace();
        let cpu = words.next()?.parse().ok()?;
        // user nice system idle iowait irq softirq steal; guest time is in user already.
        let seconds = |word: &str| Some(word.parse::<u64>().ok()? as f64 / ticks_per_second as f64);
        let times: Vec<f64> = words.take(8).map_while(seconds).collect();
        let at = |i: usize| times.get(i).copied().unwrap_or(0.0);
        let total_s = times.iter().sum();
        Some((cpu, CpuTimes { idle_s: at(3), iowait_s: at(4), steal_s: at(7), total_s }))
    };
    stat.lines()
        .take_while(|line| line.starts_with("cpu"))
        .filter(|line| line.as_bytes().get(3).is_some_and(u8::is_ascii_digit))
        .filter_map(of)
        .collect()
}

/// Numbered interrupts, which are those of devices, in the text of `/proc/stat`. The first number
/// of the line is the sum of these and all others, such as timers.
pub fn read_device_interrupts(stat: &str) -> u64 {
    let line = stat.lines().find_map(|line| line.strip_prefix("intr "));
    let counts = line.into_iter().flat_map(|line| line.split_ascii_whitespace().skip(1));
    counts.filter_map(|count| count.parse::<u64>().ok()).fold(0, u64::saturating_add)
}

/// Name and start of a kernel thread in the text of its `/proc/PID/stat`; `None` for others.
pub fn read_kernel_thread(stat: &str) -> Option<(String, u64)> {
    /// `PF_KTHREAD` of the kernel's sched.h.
    const KERNEL_THREAD: u64 = 0x0020_0000;
    // A name may contain anything, so the last parenthesis ends it.
    let (front, back) = stat.rsplit_once(") ")?;
    let (_, name) = front.split_once('(')?;
    let fields: Vec<&str> = back.split_ascii_whitespace().collect();
    let field = |i: usize| fields.get(i)?.parse::<u64>().ok();
    (field(6)? & KERNEL_THREAD != 0).then_some(())?;
    Some((plain_name(name), field(19)?))
}

/// `MemAvailable` in the text of `/proc/meminfo`; 0 where it is missing.
pub fn read_available_bytes(meminfo: &str) -> u64 {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|line| line.split_ascii_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0).saturating_mul(1024)
}

/// The sizes of free memory blocks that a virtual machine gives back to its host ("free page
/// reporting"), from the order that its parameter names on; `None` where it gives none back. The
/// parameter and `/proc/buddyinfo`, a column for each order behind four words.
pub fn read_orders_given_back(parameter: &str, buddyinfo: &str) -> Option<Range<u32>> {
    let columns = buddyinfo.lines().next().map_or(0, |line| line.split_ascii_whitespace().count());
    let given = parameter.trim().parse().ok()?..columns.saturating_sub(4) as u32;
    (!given.is_empty()).then_some(given)
}

/// The parameter of [`read_orders_given_back`].
pub const ORDER_GIVEN_BACK: &str = "/sys/module/page_reporting/parameters/page_reporting_order";

/// A kernel thread's name without the parts that change from boot to boot: the number of a worker,
/// of an interrupt, of a partition's journal. Workers have the name of their last work.
pub(crate) fn plain_name(name: &str) -> String {
    if let Some(worker) = name.strip_prefix("kworker/") {
        let (pool, work) = worker.split_once(['-', '+']).unwrap_or((worker, ""));
        let pool = pool.split(':').next().unwrap_or(pool);
        // A writeback worker has the numbers of its device in its name.
        return match work {
            "" => format!("kworker/{pool}"),
            work if work.starts_with("flush-") => format!("kworker/{pool}-writeback"),
            work => format!("kworker/{pool}-{work}"),
        };
    }
    if let Some(interrupt) = name.strip_prefix("irq/") {
        return format!("irq/{}", interrupt.split_once('-').map_or(interrupt, |(_, of)| of));
    }
    if let Some((journal, number)) = name.rsplit_once('-')
        && journal.starts_with("jbd2/")
        && number.bytes().all(|byte| byte.is_ascii_digit())
    {
        return journal.to_string();
    }
    name.to_string()
}

#[cfg(test)]
#[path = "moment/tests.rs"]
mod tests;
