//! Soakers: one thread on each CPU that uses idle time only, and counts it.
//!
//! A soaker works in registers, so it evicts nothing from a cache, and runs under `SCHED_IDLE`,
//! with weight 3 where other threads have 1024. Where `sched_autogroup_enabled` is 1, threads of
//! other sessions are other scheduler groups: then the weights of the groups count, not those of
//! the threads. `probe::intrusion` measures what a soaker still takes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::{self, Thread};

use analysis::accounting::moment::SoakerTimes;
use base::cpus::Cpus;
use base::fault::reason;
use base::units::Tick;
use mover::io::system::{CpuClock, pin, run_when_idle};

/// The soakers of this process: created on first use, paused between measurements.
#[derive(Debug, Default)]
pub(crate) struct Soakers {
    by_cpu: BTreeMap<u32, Soaker>,
}

#[derive(Debug)]
struct Soaker {
    shared: Arc<Shared>,
    thread: Thread,
    clock: CpuClock,
    /// When it started to run; `None` while paused.
    since: Option<Tick>,
}

/// State shared by a soaker and its reader. It fills a cache line and the adjacent line that is
/// prefetched with it, so that no other write slows the soaker down.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Shared {
    iterations: AtomicU64,
    works: AtomicBool,
}

impl Soakers {
    /// Runs soakers on exactly these CPUs from now on. If one cannot be created, nothing changes,
    /// except that others may have been created, which are paused.
    pub(crate) fn soak(&mut self, cpus: &[u32], now: Tick) -> Result<(), String> {
        for cpu in cpus {
            if !self.by_cpu.contains_key(cpu) {
                self.by_cpu.insert(*cpu, Soaker::start(*cpu)?);
            }
        }
        for (cpu, soaker) in &mut self.by_cpu {
            match (cpus.contains(cpu), soaker.since) {
                (true, None) => soaker.work(now),
                (false, Some(_)) => soaker.rest(),
                _ => {}
            }
        }
        Ok(())
    }

    /// The times of the running soakers.
    pub(crate) fn times(&self) -> BTreeMap<u32, SoakerTimes> {
        let times = |(cpu, soaker): (&u32, &Soaker)| {
            let since_ns = soaker.since?.0;
            let cpu_ns = soaker.clock.now()?.0;
            let iterations = soaker.shared.iterations.load(Ordering::Relaxed);
            Some((*cpu, SoakerTimes { since_ns, iterations, cpu_ns }))
        };
        self.by_cpu.iter().filter_map(times).collect()
    }

    /// CPU time of all soakers, paused ones included.
    pub(crate) fn cpu_ns(&self) -> u64 {
        self.by_cpu.values().filter_map(|soaker| soaker.clock.now()).map(|time| time.0).sum()
    }
}

impl Soaker {
    /// Creates a paused thread.
    fn start(cpu: u32) -> Result<Soaker, String> {
        let shared = Arc::new(Shared::default());
        let (said, ready) = channel();
        let theirs = shared.clone();
        let thread = thread::Builder::new()
            .name(format!("soaker/{cpu}"))
            .spawn(move || live(cpu, &theirs, &said))
            .map_err(|why| format!("cannot start a soaker on CPU {cpu}: {}", reason(&why)))?;
        let clock = ready.recv().unwrap_or_else(|_| Err("its thread ended".into()));
        let clock = clock.map_err(|why| format!("cannot soak CPU {cpu}: {why}"))?;
        Ok(Soaker { shared, thread: thread.thread().clone(), clock, since: None })
    }

    fn work(&mut self, now: Tick) {
        self.since = Some(now);
        self.shared.works.store(true, Ordering::Release);
        self.thread.unpark();
    }

    fn rest(&mut self) {
        self.since = None;
        self.shared.works.store(false, Ordering::Release);
    }
}

/// The loop of a soaker's thread, until the process ends.
fn live(cpu: u32, shared: &Shared, said: &Sender<Result<CpuClock, String>>) {
    let clock = prepare(cpu);
    let failed = clock.is_err();
    if said.send(clock).is_err() || failed {
        return;
    }
    let mut number = u64::from(cpu) + 1;
    let mut iterations = 0;
    loop {
        while shared.works.load(Ordering::Acquire) {
            number = churn(number);
            iterations += ROUND;
            shared.iterations.store(iterations, Ordering::Relaxed);
        }
        thread::park();
    }
}

fn prepare(cpu: u32) -> Result<CpuClock, String> {
    let one = Cpus::of([cpu]).ok_or("there is no such CPU")?;
    pin(&one)?;
    run_when_idle().map_err(|why| format!("SCHED_IDLE is refused: {}", reason(&why)))?;
    CpuClock::of_this_thread().ok_or_else(|| "its thread has no clock".into())
}

/// A dependency chain in registers: each step needs the result of the one before, so the processor
/// cannot run two at a time. Marsaglia's xorshift. (A linear generator will not do: compilers merge
/// several of its steps into one.)
fn churn(mut number: u64) -> u64 {
    for _ in 0..ROUND {
        number ^= number << 13;
        number ^= number >> 7;
        number ^= number << 17;
    }
    std::hint::black_box(number)
}

/// Iterations between two reads of the shared state: about two microseconds.
const ROUND: u64 = 1000;
