//! The plan: entries become shards of about the same predicted time, large files become ranges.
//! It works while the walk goes on, so it knows nothing of what is still to come.

use serde::{Deserialize, Serialize};

use base::units::Nanos;

/// What a file is predicted to take on one node.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    pub file_ns: f64,
    pub ns_per_byte: f64,
}

impl Cost {
    /// Where nothing was measured: small files at 2,000 a second, bytes at 200 MB/s.
    pub const UNKNOWN: Cost = Cost { file_ns: 500_000.0, ns_per_byte: 5.0 };

    pub fn of(self, files: u64, bytes: u64) -> Nanos {
        Nanos((self.file_ns * files as f64 + self.ns_per_byte * bytes as f64) as u64)
    }

    /// The same for a node that may move so many bytes a second and no more.
    pub fn limited(self, bytes_per_s: Option<f64>) -> Cost {
        let least_ns = bytes_per_s.map_or(0.0, |rate| 1e9 / rate.max(1.0));
        Cost { ns_per_byte: self.ns_per_byte.max(least_ns), ..self }
    }

    /// A file of more bytes is cut into ranges where nothing else is said: the last file of a job
    /// would hold it up, and so much of it would be lost with a node. A range costs a dozen small
    /// calls and its bytes may be copied again, so nothing is cut that is copied in 20 seconds.
    pub fn split_above(self) -> u64 {
        let bytes = Nanos::from_millis(20_000).0 as f64 / self.ns_per_byte.max(1e-6);
        (bytes as u64).clamp(SPLIT_ABOVE_MIN, SPLIT_ABOVE_MAX)
    }

    /// The part that binds: true where files, and not bytes, take most of the time.
    pub fn is_bound_by_files(self, files: u64, bytes: u64) -> bool {
        self.file_ns * files as f64 > self.ns_per_byte * bytes as f64
    }
}

/// How a dataset is cut.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cutting {
    pub cost: Cost,
    /// How many workers share the shards.
    pub workers: u64,
    /// A shard takes no longer, unless it is one file.
    pub longest: Nanos,
    /// A shard is not cut smaller.
    pub shortest: Nanos,
    /// A file of more bytes is cut into ranges.
    pub range_above: Option<u64>,
}

impl Cutting {
    pub fn new(cost: Cost, workers: usize) -> Cutting {
        Cutting {
            cost,
            workers: workers.max(1) as u64,
            longest: Nanos::from_millis(5_000),
            shortest: shortest(workers),
            range_above: None,
        }
    }

    /// The same where an end is on a far host: each shard costs a dozen round trips, and one worker
    /// shares with nobody.
    pub fn far(self) -> Cutting {
        let least = if self.workers == 1 { self.longest } else { SHORTEST_FAR };
        Cutting { shortest: self.shortest.max(least), ..self }
    }

    /// The same where a node may move so many bytes a second and no more.
    pub fn limited(self, bytes_per_s: Option<f64>) -> Cutting {
        Cutting { cost: self.cost.limited(bytes_per_s), ..self }
    }
}

/// Each claim is a dozen calls on the storage that all share.
fn shortest(workers: usize) -> Nanos {
    let each = Nanos(Nanos::from_millis(1000).0 / CLAIMS_A_SECOND_MAX);
    let wanted = each.0.saturating_mul(workers as u64);
    Nanos(wanted.clamp(Nanos::from_millis(50).0, Nanos::from_millis(5_000).0))
}

/// The files of a shard, in the order of the walk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch<T> {
    pub items: Vec<T>,
    pub files: u64,
    pub bytes: u64,
}

/// Gathers entries until they are a shard.
///
/// The first shards are short, so that no worker waits and a small dataset has enough of them; each
/// is at most an eighth of a worker's part of what was found before it, so that the last ones are
/// short beside the whole.
#[derive(Debug)]
pub struct Cutter<T> {
    cutting: Cutting,
    open: Batch<T>,
    open_time: Nanos,
    /// Predicted, of all shards before.
    before: Nanos,
}

impl<T> Cutter<T> {
    pub fn new(cutting: Cutting) -> Cutter<T> {
        let open = Batch { items: Vec::new(), files: 0, bytes: 0 };
        Cutter { cutting, open, open_time: Nanos(0), before: Nanos(0) }
    }

    /// Adds an entry; a shard that is full now is returned.
    pub fn add(&mut self, item: T, bytes: u64) -> Option<Batch<T>> {
        self.open.items.push(item);
        self.open.files += 1;
        self.open.bytes = self.open.bytes.saturating_add(bytes);
        self.open_time += self.cutting.cost.of(1, bytes);
        let is_full = self.open_time >= self.wanted() || self.open.files >= FILES_MAX;
        if is_full { self.rest() } else { None }
    }

    /// Counts what is a shard of its own.
    pub fn count(&mut self, time: Nanos) {
        self.before += time;
    }

    /// What is left at the end, or where something else begins.
    pub fn rest(&mut self) -> Option<Batch<T>> {
        self.before += std::mem::take(&mut self.open_time);
        let empty = Batch { items: Vec::new(), files: 0, bytes: 0 };
        let full = std::mem::replace(&mut self.open, empty);
        (!full.items.is_empty()).then_some(full)
    }

    fn wanted(&self) -> Nanos {
        let Cutting { workers, longest, shortest, .. } = self.cutting;
        Nanos(self.before.0 / (8 * workers)).clamp(shortest, longest)
    }
}

/// A part of a large file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Range {
    pub offset: u64,
    pub len: u64,
}

/// The ranges of a file, or `None` for one that stays whole. All but the last have the same length,
/// a power of two of BLAKE3's chunks, so that their digests add up to that of the file.
pub fn ranges(bytes: u64, cutting: &Cutting) -> Option<Vec<Range>> {
    let above = cutting.range_above?;
    if bytes <= above {
        return None;
    }
    let wanted = (cutting.longest.0 as f64 / cutting.cost.ns_per_byte.max(1e-6)) as u64;
    let least = (bytes / RANGES_MAX).next_power_of_two();
    let wanted = wanted.clamp(RANGE_BYTES_MIN, RANGE_BYTES_MAX);
    // The next power of two from there down.
    let at_most = 1_u64 << above.max(1).ilog2();
    let len = (1_u64 << wanted.ilog2()).min(at_most).max(least).max(CHUNK_BYTES);
    let starts = (0..bytes.div_ceil(len)).map(|i| i * len);
    Some(starts.map(|offset| Range { offset, len: len.min(bytes - offset) }).collect())
}

/// The time of a whole dataset on so many nodes: shards are spread evenly, and the longest cannot
/// be.
pub fn time_on(nodes: u64, total: Nanos, longest_shard: Nanos) -> Nanos {
    Nanos((total.0 / nodes.max(1)).max(longest_shard.0))
}

const SPLIT_ABOVE_MIN: u64 = 4 << 20;
const SPLIT_ABOVE_MAX: u64 = 1 << 30;
const FILES_MAX: u64 = 20_000;
const SHORTEST_FAR: Nanos = Nanos::from_millis(1000);
/// By all workers together.
const CLAIMS_A_SECOND_MAX: u64 = 2000;
const CHUNK_BYTES: u64 = 1024;
const RANGE_BYTES_MIN: u64 = 1 << 20;
const RANGE_BYTES_MAX: u64 = 4 << 30;
/// A claim, a receipt and a part for each.
const RANGES_MAX: u64 = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(sizes: impl IntoIterator<Item = u64>, workers: usize) -> Vec<Batch<u64>> {
        let mut cutter = Cutter::new(Cutting::new(Cost::UNKNOWN, workers));
        let mut shards: Vec<_> =
            sizes.into_iter().filter_map(|size| cutter.add(size, size)).collect();
        shards.extend(cutter.rest());
        shards
    }

    #[test]
    fn shards_have_everything_once_and_are_balanced() {
        for workers in [1, 3, 100] {
            let sizes: Vec<u64> = (0..20_000).map(|i| i * 7919 % 300_000).collect();
            let shards = cut(sizes.clone(), workers);
            let all: Vec<u64> = shards.iter().flat_map(|shard| shard.items.clone()).collect();
            assert_eq!(all, sizes);
            let time = |shard: &Batch<u64>| Cost::UNKNOWN.of(shard.files, shard.bytes);
            let total: u64 = shards.iter().map(|shard| time(shard).0).sum();
            let longest = shards.iter().map(|shard| time(shard).0).max().unwrap();
            // The share that the last shard can add to the time of a worker.
            let part = total / workers as u64;
            let allowed = (part / 7).max(Nanos::from_millis(60).0);
            assert!(longest <= allowed, "{workers}: {longest} of {part}");
            assert!(shards.len() >= 4 * workers, "{workers}: {} shards", shards.len());
        }
    }

    #[test]
    fn a_small_dataset_has_a_shard_for_each_worker() {
        let shards = cut(vec![1000; 2000], 3);
        assert!(shards.len() > 9, "{}", shards.len());
        assert_eq!(cut([], 3).len(), 0);
        assert_eq!(cut([1 << 40, 5], 3).len(), 2, "one large file is a shard");
    }

    #[test]
    fn many_workers_have_no_shards_that_are_too_short() {
        let shortest = |workers| Cutting::new(Cost::UNKNOWN, workers).shortest;
        let cases = [(0, 50), (1, 50), (100, 50), (1000, 500), (1_000_000, 5000)];
        for (workers, expect) in cases {
            assert_eq!(shortest(workers), Nanos::from_millis(expect), "{workers}");
        }
    }

    /// A dozen round trips of 20 ms are a quarter of a second.
    #[test]
    fn far_shards_are_long_beside_their_round_trips() {
        let cutting = Cutting::new(Cost::UNKNOWN, 3).far();
        let mut cutter = Cutter::new(cutting);
        let batches: Vec<_> = (0..5000).filter_map(|n| cutter.add(n, 20_000)).collect();
        assert!(batches.len() < 4 && batches[0].files > 1500, "{}", batches.len());
        for workers in [1, 1 << 30] {
            let cutting = Cutting::new(Cost::UNKNOWN, workers).far();
            assert_eq!(cutting.shortest, Nanos::from_millis(5_000), "{workers}");
        }
    }

    #[test]
    fn ranges_are_whole_subtrees() {
        let cutting =
            |above| Cutting { range_above: Some(above), ..Cutting::new(Cost::UNKNOWN, 3) };
        for (bytes, above) in
            [(100 << 20, 16 << 20), ((1 << 40) + 5, 1 << 30), (5000, 2048), (1 << 50, 1 << 30)]
        {
            let ranges = ranges(bytes, &cutting(above)).unwrap();
            assert!(ranges.len() > 1 && ranges.len() as u64 <= RANGES_MAX + 1, "{}", ranges.len());
            let mut end = 0;
            for range in &ranges {
                assert_eq!(range.offset, end);
                assert!(range.len > 0 && range.offset % ranges[0].len == 0);
                end += range.len;
            }
            assert_eq!(end, bytes);
            let len = ranges[0].len;
            assert!(len.is_power_of_two() && len >= CHUNK_BYTES, "{len}");
        }
        assert_eq!(ranges(1 << 20, &cutting(1 << 20)), None);
        assert_eq!(ranges(1 << 40, &Cutting::new(Cost::UNKNOWN, 3)), None);
    }

    /// 6 MB/s for three nodes: no shard and no range takes longer than five seconds.
    #[test]
    fn a_limit_of_the_rate_makes_smaller_shards() {
        assert_eq!(Cost::UNKNOWN.split_above(), 1 << 30);
        let cutting = Cutting::new(Cost::UNKNOWN, 3).limited(Some(2e6));
        assert_eq!(cutting.cost.split_above(), 40_000_000);
        let above = Some(cutting.cost.split_above());
        let ranges = ranges(400 << 20, &Cutting { range_above: above, ..cutting }).unwrap();
        assert_eq!((ranges.len(), ranges[0].len), (50, 8 << 20));
        let mut cutter = Cutter::new(cutting);
        let batches: Vec<_> = (0..5000).filter_map(|n| cutter.add(n, 100_000)).collect();
        let longest = batches.iter().map(|batch| batch.bytes).max().unwrap();
        assert!(longest <= 10_000_000 && batches.len() > 40, "{longest} {}", batches.len());
        assert_eq!(Cost::UNKNOWN.limited(Some(10.0)).split_above(), 4 << 20);
        assert_eq!(Cost::UNKNOWN.limited(Some(1e12)), Cost::UNKNOWN);
    }

    #[test]
    fn more_nodes_take_less_until_the_longest_shard() {
        let (total, longest) = (Nanos(1000), Nanos(120));
        let times: Vec<u64> = [1, 2, 4, 8, 16].map(|n| time_on(n, total, longest).0).to_vec();
        assert_eq!(times, [1000, 500, 250, 125, 120]);
    }
}
