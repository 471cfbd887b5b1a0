//! Soakers: a thread on each CPU that takes what nobody else wants and counts how much that was.
//!
//! It works in registers only, so that it evicts nothing from a cache, under `SCHED_IDLE`, whose
//! weight is 3 where that of others is 1024. Threads of other sessions are other groups to the
//! scheduler where `sched_autogroup_enabled` is 1: against those the weights of the groups count,
//! not those of the threads. `probe::intrusion` measures what is left of it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::{self, Thread};

use analysis::accounting::moment::SoakerTimes;
use base::cpus::Cpus;
use base::units::Tick;
use mover::io::system::{CpuClock, pin, run_when_idle};

/// The soakers of this process: made when they are first asked for, resting in between.
#[derive(Debug, Default)]
pub(crate) struct Soakers {
    by_cpu: BTreeMap<u32, Soaker>,
}

#[derive(Debug)]
struct Soaker {
    shared: Arc<Shared>,
    thread: Thread,
    clock: CpuClock,
    /// When it was set to work, if it is.
    since: Option<Tick>,
}

/// What a soaker and its reader share; a cache line of its own, and the line that is fetched with
/// it, so that nobody else's writes slow the soaker down.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Shared {
    iterations: AtomicU64,
    works: AtomicBool,
}

impl Soakers {
    /// Has exactly these CPUs soaked from now on. Where one cannot be, nothing has changed but that
    /// others may have been made, which rest.
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

    /// Those that work, and how far they have come.
    pub(crate) fn times(&self) -> BTreeMap<u32, SoakerTimes> {
        let times = |(cpu, soaker): (&u32, &Soaker)| {
            let since_ns = soaker.since?.0;
            let cpu_ns = soaker.clock.now()?.0;
            let iterations = soaker.shared.iterations.load(Ordering::Relaxed);
            Some((*cpu, SoakerTimes { since_ns, iterations, cpu_ns }))
        };
        self.by_cpu.iter().filter_map(times).collect()
    }

    /// What all of them have used, those that rest too.
    pub(crate) fn cpu_ns(&self) -> u64 {
        self.by_cpu.values().filter_map(|soaker| soaker.clock.now()).map(|time| time.0).sum()
    }
}

impl Soaker {
    /// A thread that rests.
    fn start(cpu: u32) -> Result<Soaker, String> {
        let shared = Arc::new(Shared::default());
        let (said, ready) = channel();
        let theirs = shared.clone();
        let thread = thread::Builder::new()
            .name(format!("soaker/{cpu}"))
            .spawn(move || live(cpu, &theirs, &said))
            .map_err(|why| format!("cannot start a soaker on CPU {cpu}: {why}"))?;
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

/// What the thread of a soaker does until the process ends.
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
    run_when_idle().map_err(|why| format!("SCHED_IDLE is refused: {why}"))?;
    CpuClock::of_this_thread().ok_or_else(|| "its thread has no clock".into())
}

/// A chain of steps each of which waits for the one before, in registers, whatever else the
/// processor could do at the same time: Marsaglia's xorshift. (Steps of a linear generator will not
/// do: compilers join several into one.)
fn churn(mut number: u64) -> u64 {
    for _ in 0..ROUND {
        number ^= number << 13;
        number ^= number >> 7;
        number ^= number << 17;
    }
    std::hint::black_box(number)
}

/// Iterations between two looks at what is shared: about two microseconds.
const ROUND: u64 = 1000;
