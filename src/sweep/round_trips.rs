//! Round trips, measured open-loop: probes are sent at fixed times, answered or not. A closed loop
//! would send the fewest probes just when answers are slow (coordinated omission).

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, JoinHandle};

use analysis::record::sample::{Probes, RoundTrips};
use base::units::{Nanos, Tick};
use mover::io::clock;
use mover::io::echo::Reflector;

/// One probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Probed {
    /// When it was due, and when it was sent.
    pub due: Tick,
    pub sent: Tick,
    pub back: Option<Tick>,
}

/// Sends probes from a thread of its own, over a socket of its own.
#[derive(Debug)]
pub(crate) struct Prober {
    enough: Arc<AtomicBool>,
    method: &'static str,
    thread: JoinHandle<(Option<Reflector>, Vec<Probed>)>,
}

/// All probes of a prober.
#[derive(Debug)]
pub(crate) struct Seen {
    pub method: &'static str,
    pub probes: Vec<Probed>,
}

impl Prober {
    pub(crate) fn start(reflector: Reflector) -> Prober {
        let enough = Arc::new(AtomicBool::new(false));
        let (method, told) = (reflector.method(), enough.clone());
        Prober { enough, method, thread: thread::spawn(move || probe(reflector, &told)) }
    }

    /// Waits for outstanding answers. The reflector is `None` if its connection broke.
    pub(crate) fn finish(self) -> (Option<Reflector>, Seen) {
        self.enough.store(true, Relaxed);
        let (reflector, probes) = self.thread.join().unwrap_or_default();
        (reflector, Seen { method: self.method, probes })
    }
}

fn probe(mut reflector: Reflector, enough: &AtomicBool) -> (Option<Reflector>, Vec<Probed>) {
    let began = clock::now();
    // Numbers continue from one prober to the next, so a late answer matches no probe.
    let first = (began.0 / EVERY.0) as u32;
    let mut probes: Vec<Probed> = Vec::new();
    // Each turn receives answers until the next probe is due, and sends it.
    while !enough.load(Relaxed) {
        let due = began.after(Nanos(probes.len() as u64 * EVERY.0));
        if hear_until(due, &mut reflector, first, &mut probes).is_err() {
            return (None, probes);
        }
        // A probe that could not be sent counts as lost: it is not sent later.
        let sent = clock::now();
        let _ = reflector.send(first.wrapping_add(probes.len() as u32));
        probes.push(Probed { due, sent, back: None });
    }
    let end = clock::now().after(PATIENCE);
    while clock::now() < end && probes.iter().any(may_come) {
        let next = end.min(clock::now().after(BEAT));
        if hear_until(next, &mut reflector, first, &mut probes).is_err() {
            return (None, probes);
        }
    }
    (Some(reflector), probes)
}

/// Records the answers until that time. An error means that the connection has ended.
fn hear_until(
    until: Tick,
    reflector: &mut Reflector,
    first: u32,
    probes: &mut [Probed],
) -> io::Result<()> {
    while clock::now() < until {
        reflector.wait(until.since(clock::now()))?;
        let now = clock::now();
        loop {
            match reflector.receive() {
                Ok(Some(number)) => {
                    if let Some(probe) = probes.get_mut(number.wrapping_sub(first) as usize) {
                        probe.back.get_or_insert(now);
                    }
                }
                Ok(None) => break,
                // An ICMP error: the host is unreachable for a moment.
                Err(_) if reflector.method() == "icmp" => break,
                Err(why) => return Err(why),
            }
        }
    }
    Ok(())
}

fn may_come(probe: &Probed) -> bool {
    probe.back.is_none() && clock::now().since(probe.sent) < PATIENCE
}

impl Seen {
    /// Round trips of the probes sent before the load, and of those sent during it.
    pub(crate) fn round_trips(&self, loaded: (Tick, Tick)) -> RoundTrips {
        let (from, to) = loaded;
        let of = |keep: &dyn Fn(&Probed) -> bool| {
            summary(self.probes.iter().filter(|probe| keep(probe)))
        };
        let late = self.probes.iter().map(|probe| probe.sent.since(probe.due).seconds());
        RoundTrips {
            method: self.method.to_string(),
            unloaded: of(&|probe| probe.due < from),
            loaded: of(&|probe| from <= probe.due && probe.due < to),
            late_max_s: late.fold(0.0, f64::max),
        }
    }
}

fn summary<'a>(probes: impl Iterator<Item = &'a Probed>) -> Probes {
    let mut sent = 0;
    let mut trips: Vec<f64> = Vec::new();
    for probe in probes {
        sent += 1;
        let trip = probe.back.map(|back| back.since(probe.sent));
        trips.extend(trip.filter(|trip| *trip < PATIENCE).map(Nanos::seconds));
    }
    trips.sort_by(f64::total_cmp);
    let at = |share: f64| {
        let last = trips.len().checked_sub(1)?;
        trips.get((share * last as f64).round() as usize).copied()
    };
    let lost = sent - trips.len() as u32;
    Probes { sent, lost, min_s: at(0.0), median_s: at(0.5), p95_s: at(0.95) }
}

/// The reflector of an address that answers ICMP.
pub fn answers(address: IpAddr) -> io::Result<Reflector> {
    let mut reflector = Reflector::icmp(address)?;
    for number in 0..TRIES {
        // A late answer to a try must match no probe.
        reflector.send(u32::MAX - number)?;
        reflector.wait(TRY_PATIENCE)?;
        if reflector.receive()?.is_some() {
            return Ok(reflector);
        }
    }
    Err(io::ErrorKind::TimedOut.into())
}

/// Ten a second.
pub(crate) const EVERY: Nanos = Nanos::from_millis(100);
/// A later answer counts as lost.
const PATIENCE: Nanos = Nanos::from_millis(1000);
const TRIES: u32 = 3;
const TRY_PATIENCE: Nanos = Nanos::from_millis(700);
const BEAT: Nanos = Nanos::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    fn probed(due_ms: u64, trip_ms: Option<u64>) -> Probed {
        let due = Tick(due_ms * 1_000_000);
        Probed { due, sent: due, back: trip_ms.map(|ms| due.after(Nanos::from_millis(ms))) }
    }

    #[test]
    fn load_is_told_from_rest() {
        let trips = [Some(10), Some(12), Some(11), None, Some(40), Some(60), Some(1500), Some(50)];
        let probes = (0..).step_by(100).zip(trips).map(|(at, trip)| probed(at, trip)).collect();
        let seen = Seen { method: "icmp", probes };
        let trips = seen.round_trips((Tick(400_000_000), Tick(750_000_000)));
        let probes = |sent, lost, min, median, p95| Probes {
            sent,
            lost,
            min_s: Some(min),
            median_s: Some(median),
            p95_s: Some(p95),
        };
        assert_eq!(trips.unloaded, probes(4, 1, 0.010, 0.011, 0.012));
        assert_eq!(trips.loaded, probes(4, 1, 0.040, 0.050, 0.060));
        let none = seen.round_trips((Tick(0), Tick(0)));
        assert_eq!(none.loaded, Probes::default());
    }

    /// The far end delays all answers: probes are still sent on time.
    #[test]
    fn probes_do_not_wait_for_answers() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        let prober = Prober::start(Reflector::tcp(near).unwrap());
        let mut all = [0; 5 * size_of::<u32>()];
        far.read_exact(&mut all).unwrap();
        far.write_all(&all).unwrap();
        let (reflector, seen) = prober.finish();
        assert!(reflector.is_some() && seen.probes.len() >= 5, "{seen:?}");
        let spread = seen.probes[4].due.since(seen.probes[0].due);
        assert_eq!(spread, Nanos(4 * EVERY.0));
        assert!(seen.probes[..5].iter().all(|probe| probe.back.is_some()), "{seen:?}");
        let first = seen.probes[0];
        assert!(first.back.unwrap().since(first.sent) >= spread, "it waited there: {seen:?}");
    }
}
