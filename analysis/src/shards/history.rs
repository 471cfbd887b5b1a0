//! How a job went: which worker had which shard from when to when, and what became of it, from the
//! logs of its workers.

use std::collections::{BTreeMap, BTreeSet};

use super::Claim;
use super::overview::{Overview, WorkerView};

/// All that is known of how a job went.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobHistory {
    pub overview: Overview,
    pub began_unix_s: f64,
    /// Its end, or now.
    pub until_s: f64,
    pub version: String,
    pub sources: Vec<String>,
    pub target: String,
    /// Where its workers run, as typed.
    pub on: String,
    pub command: Vec<String>,
    /// What all workers together may move.
    pub limit_bytes_per_s: Option<f64>,
    /// In the order of time.
    pub log: Vec<Happened>,
    pub finished: BTreeMap<Claim, Finished>,
    /// Why files were not copied, each with its name.
    pub failures: Vec<String>,
}

/// A line of a log.
#[derive(Clone, Debug, PartialEq)]
pub struct Happened {
    /// Since the job began.
    pub at_s: f64,
    pub who: String,
    pub what: String,
    pub claim: Option<Claim>,
    pub why: String,
}

/// A shard that is done, by its receipt.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Finished {
    pub host: String,
    /// What this attempt moved.
    pub bytes: u64,
}

/// One worker with one shard.
#[derive(Clone, Debug, PartialEq)]
pub struct Attempt {
    pub worker: String,
    pub claim: Claim,
    pub from_s: f64,
    pub to_s: f64,
    pub outcome: Outcome,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Done,
    /// Taken away from a worker that was lost, or that was taken for lost.
    Lost,
    /// The worker gave it back, as it was stopped or could not go on.
    GivenBack,
    UnderWay,
}

/// The attempts in the order of their beginnings. Logs have the clocks of their hosts: an end that
/// another host tells may seem to be before its beginning, and is put there.
pub fn attempts(log: &[Happened], until_s: f64) -> Vec<Attempt> {
    let mut open: BTreeMap<Claim, Attempt> = BTreeMap::new();
    let mut over: Vec<Attempt> = Vec::new();
    let finished: BTreeSet<Claim> =
        log.iter().filter(|line| line.what == "finishes").filter_map(|line| line.claim).collect();
    for line in log {
        let Some(claim) = line.claim else { continue };
        let outcome = match line.what.as_str() {
            "claims" => {
                let (worker, from_s) = (line.who.clone(), line.at_s);
                let outcome = Outcome::UnderWay;
                open.insert(claim, Attempt { worker, claim, from_s, to_s: until_s, outcome });
                continue;
            }
            "finishes" => Outcome::Done,
            "releases" => Outcome::GivenBack,
            // What is finished was not lost, whatever another thought.
            "takes away" | "has lost" if finished.contains(&claim) => continue,
            "takes away" => Outcome::Lost,
            // Of a claim that somebody else had, it says only that this worker came too late.
            "has lost" if open.get(&claim).is_some_and(|of| of.worker == line.who) => Outcome::Lost,
            _ => continue,
        };
        // One that lost the race for a claim says so too, and another has it.
        let is_anothers = |attempt: &Attempt| line.what == "has lost" && attempt.worker != line.who;
        if open.get(&claim).is_some_and(is_anothers) {
            continue;
        }
        if let Some(attempt) = open.remove(&claim) {
            over.push(Attempt { to_s: line.at_s.max(attempt.from_s), outcome, ..attempt });
        }
    }
    over.extend(
        open.into_values().map(|attempt| Attempt { to_s: until_s.max(attempt.from_s), ..attempt }),
    );
    over.sort_by(|a, b| {
        (a.from_s, a.claim).partial_cmp(&(b.from_s, b.claim)).unwrap_or(a.claim.cmp(&b.claim))
    });
    over
}

/// A worker that was lost with a shard, and what that cost.
#[derive(Clone, Debug, PartialEq)]
pub struct Loss {
    pub worker: String,
    /// Where it is known.
    pub host: Option<String>,
    pub shard: u32,
    /// From its claim until it was taken away, the lease without a sign included.
    pub held_s: f64,
    /// Until another began the shard, and from there until it was done.
    pub again_after_s: Option<f64>,
    pub done_after_s: Option<f64>,
}

/// In the order in which they were lost.
pub fn losses(attempts: &[Attempt], workers: &[WorkerView]) -> Vec<Loss> {
    let lost = attempts.iter().filter(|attempt| attempt.outcome == Outcome::Lost);
    let mut losses: Vec<(f64, Loss)> = lost
        .map(|attempt| {
            let later = attempts.iter().filter(|other| {
                other.claim.shard == attempt.claim.shard
                    && other.claim.attempt > attempt.claim.attempt
            });
            let next = later.clone().min_by_key(|other| other.claim.attempt);
            let done = later.clone().find(|other| other.outcome == Outcome::Done);
            let again_s = next.map(|next| next.from_s.max(attempt.to_s));
            let known = workers.iter().find(|worker| worker.name == attempt.worker);
            let loss = Loss {
                worker: attempt.worker.clone(),
                host: known.map(|worker| worker.host.clone()),
                shard: attempt.claim.shard,
                held_s: attempt.to_s - attempt.from_s,
                again_after_s: again_s.map(|again_s| again_s - attempt.to_s),
                done_after_s: again_s.zip(done).map(|(again_s, done)| done.to_s - again_s),
            };
            (attempt.to_s, loss)
        })
        .collect();
    losses.sort_by(|a, b| a.0.total_cmp(&b.0));
    losses.into_iter().map(|(_, loss)| loss).collect()
}

/// The rate of each host in equal spans of time, in bytes a second. The bytes of a shard are spread
/// evenly over the time that it took; of one under way, those that its worker has.
pub fn rates(
    attempts: &[Attempt],
    (finished, workers): (&BTreeMap<Claim, Finished>, &[WorkerView]),
    until_s: f64,
    spans: usize,
) -> BTreeMap<String, Vec<f64>> {
    let span_s = until_s / spans.max(1) as f64;
    let mut rates: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for attempt in attempts {
        let moved = match attempt.outcome {
            Outcome::Done => finished.get(&attempt.claim).map(|done| (&done.host, done.bytes)),
            Outcome::UnderWay => workers
                .iter()
                .find(|of| of.name == attempt.worker && of.shard == Some(attempt.claim.shard))
                .map(|of| (&of.host, of.shard_bytes)),
            Outcome::Lost | Outcome::GivenBack => None,
        };
        let Some((host, bytes)) = moved else { continue };
        let of_host = rates.entry(host.clone()).or_insert_with(|| vec![0.0; spans]);
        // Of an instant too.
        let took_s = (attempt.to_s - attempt.from_s).max(span_s * 1e-3);
        for (place, rate) in of_host.iter_mut().enumerate() {
            let (from_s, to_s) = (place as f64 * span_s, (place + 1) as f64 * span_s);
            let both_s = to_s.min(attempt.from_s + took_s) - from_s.max(attempt.from_s);
            if both_s > 0.0 {
                *rate += bytes as f64 * both_s / took_s / span_s;
            }
        }
    }
    rates
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(at_s: f64, who: &str, what: &str, shard: u32, attempt: u32) -> Happened {
        let claim = Some(Claim { shard, attempt });
        Happened { at_s, who: who.into(), what: what.into(), claim, why: String::new() }
    }

    #[test]
    fn what_became_of_each_attempt() {
        let log = [
            line(0.0, "a", "claims", 1, 1),
            line(0.5, "b", "claims", 2, 1),
            // It came too late for that claim.
            line(0.6, "b", "has lost", 1, 1),
            line(1.0, "a", "finishes", 1, 1),
            line(3.0, "a", "takes away", 2, 1),
            line(3.1, "a", "claims", 2, 2),
            // It wakes up.
            line(3.2, "b", "has lost", 2, 1),
            line(4.0, "b", "claims", 3, 1),
            line(5.0, "b", "releases", 3, 1),
            // Another clock.
            line(9.0, "c", "claims", 4, 1),
            line(8.0, "a", "takes away", 4, 1),
            // Two reached for one shard; it was finished in time.
            line(9.1, "a", "claims", 5, 1),
            line(9.2, "b", "has lost", 5, 1),
            line(9.3, "a", "claims", 6, 1),
            line(9.4, "b", "takes away", 6, 1),
            line(9.5, "a", "finishes", 6, 1),
        ];
        let found: Vec<(u32, f64, f64, Outcome)> = attempts(&log, 10.0)
            .into_iter()
            .map(|of| (of.claim.shard, of.from_s, of.to_s, of.outcome))
            .collect();
        assert_eq!(
            found,
            [
                (1, 0.0, 1.0, Outcome::Done),
                (2, 0.5, 3.0, Outcome::Lost),
                (2, 3.1, 10.0, Outcome::UnderWay),
                (3, 4.0, 5.0, Outcome::GivenBack),
                (4, 9.0, 9.0, Outcome::Lost),
                (5, 9.1, 10.0, Outcome::UnderWay),
                (6, 9.3, 9.5, Outcome::Done),
            ]
        );
    }

    #[test]
    fn what_a_lost_worker_cost() {
        let log = [
            line(0.0, "a", "claims", 7, 1),
            line(0.0, "b", "claims", 8, 1),
            line(20.0, "c", "takes away", 7, 1),
            line(20.5, "c", "claims", 7, 2),
            line(24.5, "c", "finishes", 7, 2),
            line(30.0, "c", "takes away", 8, 1),
        ];
        let (name, host) = ("a".to_string(), "x".to_string());
        let workers = [WorkerView { name, host, ..WorkerView::default() }];
        let found = losses(&attempts(&log, 40.0), &workers);
        let costs: Vec<_> = found
            .iter()
            .map(|of| (of.shard, of.host.as_deref(), of.held_s, of.again_after_s, of.done_after_s))
            .collect();
        let first = (7, Some("x"), 20.0, Some(0.5), Some(4.0));
        assert_eq!(costs, [first, (8, None, 30.0, None, None)]);
    }

    /// All bytes are in the rates, and none twice.
    #[test]
    fn rates_have_all_bytes() {
        let log = [
            line(0.0, "a", "claims", 1, 1),
            line(2.5, "a", "finishes", 1, 1),
            line(1.0, "b", "claims", 2, 1),
            line(1.0, "b", "finishes", 2, 1),
            line(2.0, "c", "claims", 3, 1),
        ];
        let of_c = ("c".into(), "z".into(), Some(3), 400);
        let (name, host, shard, shard_bytes) = of_c;
        let workers = [WorkerView { name, host, shard, shard_bytes, ..WorkerView::default() }];
        let done = |shard, host: &str, bytes| {
            (Claim { shard, attempt: 1 }, Finished { host: host.into(), bytes })
        };
        let finished = [done(1, "x", 1000), done(2, "y", 70)].into();
        let rates = rates(&attempts(&log, 4.0), (&finished, &workers), 4.0, 8);
        let sum = |host: &str| rates[host].iter().sum::<f64>() * 0.5;
        assert!((sum("x") - 1000.0).abs() < 1e-6 && (sum("y") - 70.0).abs() < 1e-6, "{rates:?}");
        assert_eq!(rates["x"][0], 400.0);
        assert_eq!(rates["z"], [0.0, 0.0, 0.0, 0.0, 200.0, 200.0, 200.0, 200.0], "under way");
    }
}
