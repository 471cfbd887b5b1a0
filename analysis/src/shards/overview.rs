//! How a job stands: totals, each worker's rate and what holds it back, the time that is left, and
//! which node is slow.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use super::attention::{QueueState, Queued};

/// Where a worker's requests and its own time went, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Waits {
    /// Requests that waited for the source, for the CPU (digests), for the destination.
    pub source_s: f64,
    pub cpu_s: f64,
    pub destination_s: f64,
    /// The worker itself: copying, committing, everything else about shards, and nothing to do.
    pub copying_s: f64,
    pub committing_s: f64,
    pub claiming_s: f64,
    pub idle_s: f64,
}

impl Waits {
    /// What took most of the time of a worker that has moved so many bytes, and may move no more
    /// than `limit` a second.
    pub fn held_back(&self, bytes: u64, limit: Option<f64>) -> HeldBackBy {
        let by = self.held_back_by();
        // What the limit alone makes these bytes take.
        let limited_s = limit.map_or(0.0, |limit| bytes as f64 / limit);
        let waited_s = self.source_s.max(self.cpu_s).max(self.destination_s);
        let is_near = self.copying_s > 0.0 && limited_s >= LIMITED * self.copying_s;
        let is_most = limited_s >= self.busy_s() / 2.0 && limited_s > waited_s;
        let is_limited = limited_s > 0.0 && (is_near || is_most);
        if is_limited && by != HeldBackBy::NoShard { HeldBackBy::Limit } else { by }
    }

    fn busy_s(&self) -> f64 {
        self.copying_s + self.committing_s + self.claiming_s
    }

    /// What took most of the time.
    pub fn held_back_by(&self) -> HeldBackBy {
        let busy_s = self.busy_s();
        if busy_s + self.idle_s <= 0.0 {
            return HeldBackBy::Nothing;
        }
        if self.idle_s > busy_s {
            return HeldBackBy::NoShard;
        }
        if self.committing_s + self.claiming_s > self.copying_s {
            return HeldBackBy::Commits;
        }
        let parts = [
            (self.source_s, HeldBackBy::Source),
            (self.cpu_s, HeldBackBy::Cpu),
            (self.destination_s, HeldBackBy::Destination),
        ];
        let most = parts.into_iter().max_by(|a, b| a.0.total_cmp(&b.0));
        // Requests that waited for less than half of the time leave the rest to something else.
        let waited_s: f64 = parts.iter().map(|(time_s, _)| time_s).sum();
        if waited_s > 0.0 && waited_s < self.copying_s / 2.0 {
            return HeldBackBy::Starts;
        }
        most.filter(|(time_s, _)| *time_s > 0.0).map_or(HeldBackBy::Nothing, |(_, part)| part)
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum HeldBackBy {
    #[default]
    Nothing,
    Source,
    Cpu,
    Destination,
    /// No request was under way.
    Starts,
    Commits,
    NoShard,
    /// `--rate`.
    Limit,
}

impl HeldBackBy {
    pub fn name(self) -> &'static str {
        match self {
            HeldBackBy::Nothing => "nothing yet",
            HeldBackBy::Source => "reading the source",
            HeldBackBy::Cpu => "CPU (digests)",
            HeldBackBy::Destination => "writing the destination",
            HeldBackBy::Starts => "the start and the end of copies, and their round trips",
            HeldBackBy::Commits => "claims and commits",
            HeldBackBy::NoShard => "no shard was free",
            HeldBackBy::Limit => "the limit of the rate",
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    #[default]
    Planning,
    Running,
    Cancelled,
    /// It cannot go on: its destination was left.
    GivenUp,
    Done,
}

impl JobState {
    pub fn name(self) -> &'static str {
        match self {
            JobState::Planning => "the plan is being made",
            JobState::Running => "running",
            JobState::Cancelled => "cancelled",
            JobState::GivenUp => "given up",
            JobState::Done => "done",
        }
    }
}

/// A job at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Overview {
    pub job: String,
    pub state: JobState,
    pub shards_done: u32,
    pub shards_held: u32,
    pub shards_open: u32,
    /// Known once the plan is complete.
    pub shards: Option<u32>,
    pub files: u64,
    pub bytes: u64,
    pub files_planned: u64,
    pub bytes_planned: u64,
    /// Of files that are not complete: who stops now copies them again.
    pub unfinished_bytes: u64,
    pub failed: u64,
    pub kept: u64,
    pub elapsed_s: f64,
    /// Of the last seconds to who looks repeatedly, else since each worker began.
    pub rate_bytes_per_s: f64,
    /// Low, middle and high: 80 % of the shards so far were in between.
    pub left_s: Option<[f64; 3]>,
    /// `--rate`: what all workers together may move in a second.
    pub limit_bytes_per_s: Option<f64>,
    pub workers: Vec<WorkerView>,
    /// Hosts that take much longer than the others, with the factor.
    pub slow: Vec<(String, f64)>,
    /// The far hosts have the source, and not the destination.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_source_far: bool,
    /// What is done, by node and far host; only of a job one end of which is far.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<RouteView>,
    /// What a queue says of workers, where there is one.
    pub queue: Vec<Queued>,
    pub lease_s: f64,
    /// Its receipt is written: nothing is left to be done.
    pub is_finished: bool,
    /// What a reader should know.
    pub notes: Vec<String>,
}

/// What went between a node and a far host.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RouteView {
    pub host: String,
    pub far: String,
    pub shards: u32,
    pub files: u64,
    pub bytes: u64,
}

/// A worker, as it shows itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct WorkerView {
    pub name: String,
    /// The name that its process was started with: others may have had it before.
    pub started_as: String,
    pub host: String,
    /// The far host that it logs in to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub far: Option<String>,
    pub state: String,
    pub shard: Option<u32>,
    pub files: u64,
    /// With what it has of files that are not complete.
    pub bytes: u64,
    /// Of the shard that it has.
    pub shard_bytes: u64,
    pub failed: u64,
    pub rate_bytes_per_s: f64,
    pub held_back_by: HeldBackBy,
    pub waits: Waits,
    pub code: Option<u8>,
}

/// A shard that is done: what was predicted, and what it took.
#[derive(Clone, Debug, PartialEq)]
pub struct ShardTime {
    pub host: String,
    pub predicted_s: f64,
    pub seconds: f64,
}

/// The time that is left: as the shards before, by as many workers as there are.
pub fn left_s(done: &[ShardTime], left_predicted_s: f64, workers: usize) -> Option<[f64; 3]> {
    let mut ratios: Vec<f64> = done.iter().filter_map(ratio).collect();
    if ratios.len() < SHARDS_MIN || workers == 0 {
        return None;
    }
    ratios.sort_by(f64::total_cmp);
    let total = |of: fn(&ShardTime) -> f64| done.iter().map(of).sum::<f64>();
    let mean = total(|shard| shard.seconds) / total(|shard| shard.predicted_s).max(1e-9);
    let at = |share: f64| ratios[((ratios.len() - 1) as f64 * share).round() as usize];
    let time = |ratio: f64| left_predicted_s * ratio / workers as f64;
    Some([time(at(0.1).min(mean)), time(mean), time(at(0.9).max(mean))])
}

/// A time that is left, where no more than `limit` bytes a second may move.
pub fn not_faster(left_s: [f64; 3], bytes: u64, limit: Option<f64>) -> [f64; 3] {
    let least_s = limit.map_or(0.0, |limit| bytes as f64 / limit.max(1.0));
    left_s.map(|time_s| time_s.max(least_s))
}

/// Hosts whose shards took at least twice as long for what was predicted as those of the median
/// host.
pub fn slow(done: &[ShardTime]) -> Vec<(String, f64)> {
    let mut by_host: BTreeMap<&str, (f64, f64, usize)> = BTreeMap::new();
    for shard in done.iter().filter(|shard| ratio(shard).is_some()) {
        let of_host = by_host.entry(&shard.host).or_default();
        *of_host = (of_host.0 + shard.seconds, of_host.1 + shard.predicted_s, of_host.2 + 1);
    }
    let known = by_host.iter().filter(|(_, (_, _, count))| *count >= SHARDS_MIN);
    let mut pace: Vec<(&str, f64)> =
        known.map(|(host, (seconds, predicted_s, _))| (*host, seconds / predicted_s)).collect();
    if pace.len() < 2 {
        return Vec::new();
    }
    pace.sort_by(|a, b| a.1.total_cmp(&b.1));
    let median = pace[(pace.len() - 1) / 2].1;
    let factors = pace.iter().map(|(host, pace)| (host.to_string(), pace / median));
    factors.filter(|(_, factor)| *factor >= SLOW_FACTOR).collect()
}

/// Without those that keep to the limit of the rate: it is the limit that makes them slow.
pub fn slow_but_for_the_limit(done: &[ShardTime], workers: &[WorkerView]) -> Vec<(String, f64)> {
    let keeps_to_it =
        |of: &&WorkerView, host: &str| of.host == host && of.held_back_by == HeldBackBy::Limit;
    let mut slow = slow(done);
    slow.retain(|(host, _)| !workers.iter().any(|of| keeps_to_it(&of, host)));
    slow
}

fn ratio(shard: &ShardTime) -> Option<f64> {
    (shard.predicted_s > 0.0 && shard.seconds > 0.0).then(|| shard.seconds / shard.predicted_s)
}

/// Fewer say nothing.
const SHARDS_MIN: usize = 3;
const SLOW_FACTOR: f64 = 2.0;
/// A limit binds whoever comes so near to it.
pub(crate) const LIMITED: f64 = 0.85;

#[cfg(test)]
mod tests {
    use super::*;

    fn shards(host: &str, seconds: &[f64]) -> Vec<ShardTime> {
        let shard =
            |seconds: &f64| ShardTime { host: host.into(), predicted_s: 1.0, seconds: *seconds };
        seconds.iter().map(shard).collect()
    }

    #[test]
    fn what_holds_a_worker_back() {
        let usual = Waits { copying_s: 10.0, ..Waits::default() };
        let cases = [
            (Waits::default(), HeldBackBy::Nothing),
            (Waits { idle_s: 1.0, ..Waits::default() }, HeldBackBy::NoShard),
            (Waits { source_s: 30.0, cpu_s: 2.0, ..usual }, HeldBackBy::Source),
            (Waits { source_s: 3.0, cpu_s: 20.0, idle_s: 9.0, ..usual }, HeldBackBy::Cpu),
            (Waits { destination_s: 5.0, ..usual }, HeldBackBy::Destination),
            // The review's job: 16 s of copies, one after the other, and hardly a request.
            (Waits { source_s: 0.4, ..usual }, HeldBackBy::Starts),
            (Waits { committing_s: 6.0, claiming_s: 6.0, ..usual }, HeldBackBy::Commits),
            // No copy has ended yet.
            (usual, HeldBackBy::Nothing),
        ];
        for (waits, expect) in cases {
            assert_eq!(waits.held_back_by(), expect, "{waits:?}");
        }
    }

    #[test]
    fn a_limit_holds_back_who_comes_near_to_it() {
        let waits = Waits { copying_s: 10.0, source_s: 30.0, ..Waits::default() };
        let cases = [
            (900, Some(100.0), HeldBackBy::Limit),
            (800, Some(100.0), HeldBackBy::Source),
            (900, None, HeldBackBy::Source),
        ];
        for (bytes, limit, expect) in cases {
            assert_eq!(waits.held_back(bytes, limit), expect, "{bytes} {limit:?}");
        }
        // Most of the time is what the limit takes, and requests waited for nothing else.
        let usual = Waits { destination_s: 0.1, source_s: 0.05, ..waits };
        let cases = [(700, HeldBackBy::Limit), (400, HeldBackBy::Starts)];
        for (bytes, expect) in cases {
            assert_eq!(usual.held_back(bytes, Some(100.0)), expect, "{bytes}");
        }
        let idle = Waits { idle_s: 99.0, ..waits };
        assert_eq!(idle.held_back(900, Some(100.0)), HeldBackBy::NoShard);
    }

    #[test]
    fn the_time_left_is_as_the_shards_before() {
        assert_eq!(left_s(&shards("a", &[1.0, 1.0]), 10.0, 2), None);
        let even = shards("a", &[2.0; 10]);
        assert_eq!(left_s(&even, 10.0, 2), Some([10.0; 3]));
        let [low, middle, high] = left_s(&shards("a", &[1.0, 2.0, 3.0, 4.0]), 8.0, 1).unwrap();
        assert_eq!((low, middle, high), (8.0, 20.0, 32.0));
    }

    #[test]
    fn a_slow_host_is_named() {
        let with = |slow: f64| {
            let hosts = [("a", 1.0), ("b", 1.2), ("c", slow)];
            let all: Vec<ShardTime> =
                hosts.iter().flat_map(|(host, pace)| shards(host, &[*pace; 4])).collect();
            super::slow(&all)
        };
        assert_eq!(with(1.9), []);
        assert_eq!(with(6.0), [("c".to_string(), 5.0)]);
        let worker =
            |held_back_by| WorkerView { host: "b".into(), held_back_by, ..WorkerView::default() };
        let both: Vec<ShardTime> =
            [("a", 1.0), ("b", 6.0)].iter().flat_map(|(h, pace)| shards(h, &[*pace; 4])).collect();
        let limited = slow_but_for_the_limit(&both, &[worker(HeldBackBy::Limit)]);
        let other = slow_but_for_the_limit(&both, &[worker(HeldBackBy::Source)]);
        assert_eq!((limited.len(), other.len()), (0, 1), "the limit makes no host slow");
        assert_eq!(super::slow(&shards("a", &[9.0; 9])), [], "one host has nothing beside it");
    }
}
