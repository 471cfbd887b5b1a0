//! Whether a measurement counts: calibrations of the soakers, the gates that a block of runs must
//! pass, how well three ways of counting CPU time agree, and which side the kernel's threads are
//! charged to. All of it is arithmetic over moments.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::moment::Moment;
use crate::record::sample::{Gate, KernelThread, Machine};

/// What the soakers count while nothing is measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    pub span_s: f64,
    /// Iterations a second of time that the CPU had for this machine, by CPU.
    pub rho: BTreeMap<u32, f64>,
    /// Iterations a second of the soaker's CPU time: the highest known for each CPU.
    pub rho_best: BTreeMap<u32, f64>,
    /// CPU time of others, as a share of the soaked CPUs: the time missing on the soakers' clocks.
    pub background: f64,
    /// How fast the CPUs were, as a share of the highest known speed.
    #[serde(default)]
    pub speed: f64,
    /// Time stolen by the hypervisor, as a share of all CPUs.
    pub steal: f64,
    /// Background load of the kernel's threads, in seconds of CPU a second.
    pub kernel_threads: Vec<KernelThread>,
}

impl Calibration {
    /// From two moments, some two seconds apart, with soakers running. `best` is `rho_best` of the
    /// last calibration of these CPUs; empty for the first.
    ///
    /// A soaker's own CPU clock stops while others run: the time it lacks is the background. Steal
    /// that is not reported, other threads of a core and a lower clock rate reduce the iterations
    /// even by that clock: they only show in comparison with the best ever seen, as `speed`.
    pub fn between(from: &Moment, to: &Moment, best: &BTreeMap<u32, f64>) -> Calibration {
        let machine = from.until(to);
        let mut calibration = Calibration {
            span_s: machine.span_s,
            steal: machine.steal_s / (f64::from(machine.cpus) * machine.span_s),
            rho_best: best.clone(),
            ..Calibration::default()
        };
        let (mut lacks, mut speeds) = (Vec::new(), Vec::new());
        for soaked in from.soaked_until(to) {
            let alone = soaked.iterations / soaked.cpu_s;
            let best = calibration.rho_best.entry(soaked.cpu).or_insert(alone);
            // `max` also works where one of them is NaN.
            *best = best.max(alone);
            lacks.push(1.0 - soaked.cpu_s / soaked.capacity_s);
            speeds.push(alone / *best);
            calibration.rho.insert(soaked.cpu, soaked.iterations / soaked.capacity_s);
        }
        // Without a soaker nothing is known, and the mean is NaN.
        let mean = |shares: &[f64]| shares.iter().sum::<f64>() / shares.len() as f64;
        calibration.background = mean(&lacks);
        calibration.speed = mean(&speeds);
        calibration.kernel_threads = machine.kernel_threads;
        for thread in &mut calibration.kernel_threads {
            thread.cpu_s /= machine.span_s;
        }
        calibration
    }

    /// The calibration for runs between two calibrations: the mean of both.
    pub fn mean(&self, other: &Calibration) -> Calibration {
        let mean = |a: f64, b: f64| (a + b) / 2.0;
        let both = |(cpu, rho): (&u32, &f64)| Some((*cpu, mean(*rho, *other.rho.get(cpu)?)));
        let rates = self.kernel_threads.iter().chain(&other.kernel_threads);
        let halves =
            rates.map(|thread| KernelThread { cpu_s: thread.cpu_s / 2.0, ..thread.clone() });
        let mut kernel_threads: Vec<KernelThread> = Vec::new();
        for half in halves {
            match kernel_threads.iter_mut().find(|had| same(had, &half)) {
                Some(had) => had.cpu_s += half.cpu_s,
                None => kernel_threads.push(half),
            }
        }
        Calibration {
            span_s: self.span_s + other.span_s,
            rho: self.rho.iter().filter_map(both).collect(),
            rho_best: other.rho_best.clone(),
            background: mean(self.background, other.background),
            speed: mean(self.speed, other.speed),
            steal: mean(self.steal, other.steal),
            kernel_threads,
        }
    }

    /// What the machine did between two moments, with `busy_iter_s` from the soakers' iterations.
    ///
    /// A soaker with as many iterations as in the calibration had a CPU as free as then: so
    /// `busy_iter_s` is what exceeds the background, of the soaked CPUs only.
    pub fn referee(&self, from: &Moment, to: &Moment) -> Machine {
        let mut machine = from.until(to);
        let soaked = from.soaked_until(to);
        let busy = |cpu, capacity_s: f64, iterations: f64| {
            let rho = self.rho.get(cpu).filter(|rho| rho.is_finite() && **rho > 0.0)?;
            Some(capacity_s - iterations / rho)
        };
        let all = soaked.iter().map(|s| busy(&s.cpu, s.capacity_s, s.iterations));
        machine.busy_iter_s = match soaked.is_empty() {
            true => None,
            false => all.sum(),
        };
        machine.background_s = self
            .background
            .is_finite()
            .then(|| self.background.max(0.0) * machine.span_s * f64::from(machine.cpus));
        machine
    }

    /// Time of the kernel's threads during a run, less their background load.
    pub fn beyond_usual(&self, machine: &Machine) -> Vec<KernelThread> {
        let usual = |thread: &KernelThread| {
            let rate = self.kernel_threads.iter().find(|usual| same(usual, thread));
            rate.map_or(0.0, |usual| usual.cpu_s * machine.span_s)
        };
        let less = |thread: &KernelThread| KernelThread {
            cpu_s: thread.cpu_s - usual(thread),
            ..thread.clone()
        };
        machine.kernel_threads.iter().map(less).filter(|thread| thread.cpu_s > 0.0).collect()
    }
}

fn same(one: &KernelThread, other: &KernelThread) -> bool {
    (&one.name, one.cpu) == (&other.name, other.cpu)
}

/// The time that a busy-looping thread got on a CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spun {
    pub wall_ns: u64,
    pub cpu_ns: u64,
}

/// The share of a CPU that a soaker took from a busy-looping thread. Between the two moments there
/// was also time before that thread started and after it ended: what the soaker used then is not
/// counted.
pub fn intruded(span_s: f64, soaker_s: f64, spun: Spun) -> f64 {
    let wall_s = spun.wall_ns as f64 / 1e9;
    let free_s = (span_s - wall_s).max(0.0);
    ((soaker_s - free_s) / wall_s).clamp(0.0, 1.0)
}

/// The gates that all runs between two calibrations share: `drift`, `background`, `slowness`,
/// `steal` and `intrusion` (by CPU, from `probe::intrusion`).
pub fn of_block(
    before: &Calibration,
    after: &Calibration,
    intrusion: &BTreeMap<u32, f64>,
) -> Vec<Gate> {
    let drift = |(cpu, rho): (&u32, &f64)| {
        let later = after.rho.get(cpu).copied().unwrap_or(f64::NAN);
        (later / rho - 1.0).abs()
    };
    let drifts = before.rho.iter().map(drift);
    let same_cpus = before.rho.keys().eq(after.rho.keys()) && !before.rho.is_empty();
    vec![
        at_most("drift", if same_cpus { worst(drifts) } else { f64::NAN }, DRIFT_MAX),
        at_most("background", worst([before.background, after.background]), BACKGROUND_MAX),
        at_most("slowness", worst([1.0 - before.speed, 1.0 - after.speed]), SLOWNESS_MAX),
        at_most("steal", worst([before.steal, after.steal]), STEAL_MAX),
        at_most("intrusion", worst(intrusion.values().copied()), INTRUSION_MAX),
    ]
}

/// True where a calibration alone passes its gates.
pub fn is_calm(calibration: &Calibration) -> bool {
    let gates = of_block(calibration, calibration, &BTreeMap::new());
    gates.iter().all(|gate| gate.passed || gate.name == "intrusion")
}

/// The gates of one run: `steal`, and `memory` where it copies a file of `file_bytes` from or to
/// the page cache.
pub fn of_run(machine: &Machine, memory_available_bytes: u64, file_bytes: u64) -> Vec<Gate> {
    let steal = machine.steal_s / (f64::from(machine.cpus) * machine.span_s);
    let mut gates = vec![at_most("steal", steal, STEAL_MAX)];
    if file_bytes > 0 {
        let value = memory_available_bytes as f64 / file_bytes as f64;
        let passed = value >= MEMORY_MIN;
        gates.push(Gate { name: "memory".into(), value, limit: MEMORY_MIN, passed });
    }
    gates
}

/// Why a run with these gates is void: a sentence about the first that it failed.
pub fn void_reason(gates: &[Gate]) -> Option<String> {
    gates.iter().find(|gate| !gate.passed).map(sentence)
}

/// What a gate measured, and what to do where it failed.
pub fn sentence(gate: &Gate) -> String {
    let percent = |share: f64| match share < UNKNOWN {
        true => format!("{:.1} %", share * 100.0),
        false => "an unknown share".to_string(),
    };
    let (value, limit) = (percent(gate.value), percent(gate.limit));
    match gate.name.as_str() {
        "drift" => format!(
            "the CPUs' speed changed by {value} from before the runs to after them (at most \
             {limit}): wait until the machine is idle and measure again"
        ),
        "background" => format!(
            "other processes used {value} of the CPUs while nothing was measured (at most \
             {limit}): end them, or wait until they are done"
        ),
        "slowness" => format!(
            "the CPUs were {value} below their best speed (at most {limit}): wait until their \
             clock rate is up, or until the host of this virtual machine is less busy"
        ),
        "steal" => format!(
            "the host of this virtual machine took {value} of its CPUs (at most {limit}): measure \
             when the host is less busy"
        ),
        "intrusion" => format!(
            "the soaker took {value} of a CPU from a busy thread (at most {limit}): set the \
             sysctl kernel.sched_autogroup_enabled to 0 there, or measure with --soak none"
        ),
        "memory" => format!(
            "only {:.1} times the file's size is free in memory (at least {:.0} times): free \
             some, or measure with a smaller file",
            gate.value, gate.limit
        ),
        name => format!("{name} is {} (limit {})", gate.value, gate.limit),
    }
}

fn at_most(name: &str, value: f64, limit: f64) -> Gate {
    let value = if value.is_finite() { value } else { UNKNOWN };
    Gate { name: name.into(), value, limit, passed: value <= limit }
}

/// The greatest; NaN where one of them is, and where there are none.
fn worst(values: impl IntoIterator<Item = f64>) -> f64 {
    let greater = |a: f64, b: f64| if a.is_nan() || a > b { a } else { b };
    values.into_iter().reduce(greater).unwrap_or(f64::NAN)
}

/// Two ways of counting the same CPU time.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    pub one: &'static str,
    pub one_s: f64,
    pub other: &'static str,
    pub other_s: f64,
    pub agrees: bool,
    /// The likely cause of the difference, where they do not agree.
    pub residue: Option<&'static str>,
}

/// Compares idle accounting, the soaker and the clocks of the threads.
///
/// `own_s` is the CPU time of the run's threads by their own clocks. The soaker is compared only
/// where all CPUs were soaked. Two figures agree within 10 % of the larger, or within 2 % of what
/// the machine has, the resolution of ticks.
pub fn agreement(machine: &Machine, own_s: f64) -> Vec<Comparison> {
    let kernel_s: f64 = machine.kernel_threads.iter().map(|thread| thread.cpu_s).sum();
    let background_s = machine.background_s.unwrap_or(0.0);
    let clocks_s = own_s + kernel_s + background_s;
    let idle_s = machine.busy_idle_s;
    let capacity_s = f64::from(machine.cpus) * machine.span_s;
    let compare = |one, one_s: f64, other, other_s: f64, more, less| {
        let agrees = (one_s - other_s).abs() <= (0.1 * one_s.max(other_s)).max(0.02 * capacity_s);
        let residue = (!agrees).then_some(if one_s > other_s { more } else { less });
        Comparison { one, one_s, other, other_s, agrees, residue }
    };
    let mut all = vec![compare("idle accounting", idle_s, "clocks", clocks_s, OTHERS_RAN, SAMPLED)];
    if machine.soaked_cpus.len() != machine.cpus as usize {
        return all;
    }
    if let Some(clock_s) = machine.busy_clock_s {
        all.push(compare("soaker's clock", clock_s, "clocks", clocks_s, OTHERS_RAN, SAMPLED));
    }
    if let Some(iter_s) = machine.busy_iter_s {
        // Iterations are compared with a calibration that includes the background.
        let iter_s = iter_s + background_s;
        all.push(compare("iterations", iter_s, "idle accounting", idle_s, ABSORBED, FASTER));
    }
    all
}

const OTHERS_RAN: &str = "processes that are not part of the run";
const SAMPLED: &str = "interrupt time that was charged to the run's threads, or idle time that was \
                       counted by ticks";
const ABSORBED: &str = "interrupts that the soaker absorbed, or CPUs that were slower than in the \
                        calibration";
const FASTER: &str = "CPUs that were faster than in the calibration";

/// What decides which side a kernel thread is charged to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CpuBinding {
    /// The CPUs that the side is bound to; empty for all.
    pub cpus: Vec<u32>,
    pub reads_files: bool,
    pub writes_files: bool,
}

/// Charges the kernel threads of a host to its sides: by name, for each side in the order given.
///
/// A thread that is bound to a CPU is charged to the one side that is bound to that CPU. Any other
/// is charged to the side that writes files (write-back, journal, memory reclaim), else to the side
/// that reads, else to the first, which is the source. Where both sides have the same CPUs, bound
/// threads are charged that way too.
pub fn attribute(threads: &[KernelThread], bindings: &[CpuBinding]) -> Vec<BTreeMap<String, f64>> {
    let mut charged = vec![BTreeMap::new(); bindings.len()];
    let roaming = bindings
        .iter()
        .position(|binding| binding.writes_files)
        .or_else(|| bindings.iter().position(|binding| binding.reads_files))
        .unwrap_or(0);
    for thread in threads {
        let held = |cpu: u32| {
            bindings.iter().enumerate().filter(move |(_, binding)| binding.cpus.contains(&cpu))
        };
        let place = match thread.cpu {
            Some(cpu) if held(cpu).count() == 1 => held(cpu).map(|(place, _)| place).next(),
            _ => None,
        };
        if let Some(side) = charged.get_mut(place.unwrap_or(roaming)) {
            *side.entry(thread.name.clone()).or_insert(0.0) += thread.cpu_s;
        }
    }
    charged
}

const DRIFT_MAX: f64 = 0.03;
const BACKGROUND_MAX: f64 = 0.02;
/// All runs of a block share it: it changes CPU seconds by as much, and ratios not at all.
const SLOWNESS_MAX: f64 = 0.10;
const STEAL_MAX: f64 = 0.01;
pub const INTRUSION_MAX: f64 = 0.01;
/// Available memory over the file's size.
const MEMORY_MIN: f64 = 2.0;
/// Value of a gate without a measurement: JSON has only finite numbers.
const UNKNOWN: f64 = f64::MAX;

#[cfg(test)]
#[path = "gates/tests.rs"]
mod tests;
