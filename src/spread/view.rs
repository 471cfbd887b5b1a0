//! How a job stands, read from its folder: the same for the coordinator and for anybody else.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::thread;
use std::time::Duration;

use super::ending::{head, receipt_path};
use super::folder::{JobFolder, Part, read_json};
use super::records::{Beat, PlanState, Shard, WorkerDoes};
use analysis::shards::attention::{LOST, SILENT};
use analysis::shards::given;
use analysis::shards::lease::Observer;
use analysis::shards::overview::{
    JobState, Overview, Queued, RouteView, ShardTime, WorkerView, left_s, not_faster,
    slow_but_for_the_limit,
};
use analysis::shards::{Held, names};
use base::fault::Fault;
use base::units::{Nanos, Tick};
use mover::io::clock;

/// Reads a job repeatedly, what is done only once.
#[derive(Debug, Default)]
pub struct View {
    /// Of shards that are done, by the names of their attempts.
    done: BTreeMap<String, Done>,
    /// Of shards that are held, by their numbers.
    held: BTreeMap<u32, Planned>,
    /// Since when each worker shows no change: known only to who looks repeatedly.
    observer: Option<Observer>,
    /// Silent for who has looked once before, and has waited.
    silent: BTreeSet<String>,
    /// What a queue has said of workers, where there is one.
    pub queue: Vec<Queued>,
    /// The queue was asked since the last look.
    pub(super) is_queue_new: bool,
    /// The bytes of the last looks, for the rate.
    recent: VecDeque<(Tick, u64)>,
}

#[derive(Debug)]
struct Done {
    files: u64,
    bytes: u64,
    kept: u64,
    failed: u64,
    far: Option<String>,
    time: ShardTime,
}

/// What workers have of the shards under way, counted once.
#[derive(Debug, Default)]
struct UnderWay {
    files: u64,
    bytes: u64,
    predicted_s: f64,
}

/// A shard that is held, as it was planned.
#[derive(Debug)]
struct Planned {
    bytes: u64,
    predicted_s: f64,
    /// No file of its own, and no bytes of its own.
    is_range: bool,
    is_whole: bool,
    /// The most that was seen of an attempt: a worker may be at its next shard already.
    attempt: u32,
    seen_files: u64,
    seen_bytes: u64,
}

impl Planned {
    fn of(shard: &Shard) -> Planned {
        Planned {
            bytes: shard.bytes,
            predicted_s: shard.predicted_ns as f64 / 1e9,
            is_range: shard.range.is_some(),
            is_whole: shard.whole.is_some(),
            attempt: 0,
            seen_files: 0,
            seen_bytes: 0,
        }
    }

    /// What a worker has of it, by its beat if that is of this shard. It never goes back.
    fn see(&mut self, attempt: u32, beat: Option<&Beat>) {
        if self.attempt != attempt {
            (self.attempt, self.seen_files, self.seen_bytes) = (attempt, 0, 0);
        }
        if let Some(beat) = beat {
            self.seen_files = self.seen_files.max(beat.shard_files);
            // A beat may be of a copy that has begun again: none has more than was planned.
            self.seen_bytes = self.seen_bytes.max(beat.shard_bytes.min(self.bytes));
        }
    }
}

/// How many shards there are, with those that are known to be given away.
struct Shards {
    held: u32,
    done: u32,
    planned: u32,
}

impl Shards {
    /// What nobody holds. Parts of the folder are listed one after another, and a shard may go from
    /// one to the next meanwhile: once all are planned, the numbers add up.
    fn open(&self, is_planned: bool, listed: u32) -> u32 {
        match is_planned {
            true => self.planned.saturating_sub(self.done + self.held),
            false => listed,
        }
    }
}

/// What `View` has seen, besides what it shows.
#[derive(Debug)]
pub struct Look {
    pub overview: Overview,
    pub beats: BTreeMap<String, Beat>,
}

impl View {
    pub fn look(&mut self, folder: &JobFolder) -> Result<Look, Fault> {
        let plan = folder.plan()?;
        // Before what is done: a shard that goes from here to there meanwhile is counted there.
        let claims: Vec<Held> =
            folder.names(Part::Claims)?.iter().filter_map(|name| names::parse_held(name)).collect();
        let listed = folder.done()?;
        let turns: Vec<_> = listed.iter().map(|(held, gave)| (held.claim.shard, *gave)).collect();
        let (count, planned) = given::count(&turns, plan.planned.unwrap_or(0));
        let mut done = BTreeSet::new();
        for (held, _) in listed {
            done.insert(held.claim.shard);
            let attempt = names::of_attempt(held.claim);
            if self.done.contains_key(&attempt) {
                continue;
            }
            let head = head(folder, &attempt)?;
            let predicted_ns = folder.shard_head(held.claim.shard)?.predicted_ns;
            let predicted_s = predicted_ns.saturating_sub(head.given_ns) as f64 / 1e9;
            let time = ShardTime { host: head.host, predicted_s, seconds: head.seconds };
            let (files, bytes, kept, failed) = (head.files, head.bytes, head.kept, head.failed);
            let far = head.far;
            self.done.insert(attempt, Done { files, bytes, kept, failed, far, time });
        }
        let beats: BTreeMap<String, Beat> = folder
            .names(Part::Workers)?
            .into_iter()
            .filter_map(|name| {
                Some((name.clone(), read_json(&folder.file(Part::Workers, &name)).ok()?))
            })
            .collect();
        let (now, times) = (clock::now(), folder.manifest.times);
        let observer = self.observer.get_or_insert_with(|| Observer::new(times));
        beats.iter().for_each(|(name, beat)| observer.note(name, Some(beat.beat), now));
        let is_silent =
            |name: &&String| observer.has_expired(name, now) || self.silent.contains(*name);
        let silent: BTreeSet<String> = beats.keys().filter(is_silent).cloned().collect();
        let under_way = self.under_way(folder, &claims, &done, &beats);
        // It may have been finished between the two looks.
        let held = claims.iter().filter(|held| !done.contains(&held.claim.shard)).count();
        let shards = Shards { held: held as u32, done: count, planned };
        let mut overview =
            self.overview(folder, &plan, (&shards, &under_way), (&beats, &silent))?;
        if let Some(rate) = self.recent_rate(overview.bytes, times.lease()) {
            overview.rate_bytes_per_s = rate;
        }
        overview.notes = overview.attention();
        Ok(Look { overview, beats })
    }

    /// The rate since about two leases ago, to who has looked for long enough: beats come five
    /// times in a lease.
    fn recent_rate(&mut self, bytes: u64, lease: Nanos) -> Option<f64> {
        let now = clock::now();
        self.recent.push_back((now, bytes));
        while self.recent.get(1).is_some_and(|(at, _)| now.since(*at).0 > 2 * lease.0) {
            self.recent.pop_front();
        }
        let (at, before) = *self.recent.front()?;
        let since = now.since(at);
        let rate = bytes.saturating_sub(before) as f64 / since.seconds();
        (since > lease).then_some(rate)
    }

    /// The same for who looks once. A worker whose beat seems old may have another clock, or be
    /// lost: whether it shows a change is waited for.
    pub fn look_once(&mut self, folder: &JobFolder) -> Result<Look, Fault> {
        let first = self.look(folder)?;
        let doubtful: Vec<String> = first
            .beats
            .iter()
            .filter(|(_, beat)| beat.code.is_none())
            .filter(|(name, _)| is_old(folder, name))
            .map(|(name, _)| name.clone())
            .collect();
        if doubtful.is_empty() || first.overview.is_finished {
            return Ok(first);
        }
        thread::sleep(Duration::from(folder.manifest.times.beat()) * 2);
        let second = self.look(folder)?;
        let beat = |look: &Look, name: &String| look.beats.get(name).map(|beat| beat.beat);
        let is_same = |name: &String| beat(&first, name) == beat(&second, name);
        self.silent = doubtful.into_iter().filter(is_same).collect();
        self.look(folder)
    }

    /// What workers have of the shards that they hold. What a worker has copied of a shard that was
    /// taken from it, or that is done by now, does not count.
    fn under_way(
        &mut self,
        folder: &JobFolder,
        claims: &[Held],
        done: &BTreeSet<u32>,
        beats: &BTreeMap<String, Beat>,
    ) -> UnderWay {
        let mut sum = UnderWay::default();
        for held in claims.iter().filter(|held| !done.contains(&held.claim.shard)) {
            let shard = held.claim.shard;
            let beat = beats.get(&held.worker).filter(|beat| beat.shard == Some(shard));
            let of = match self.held.entry(shard) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(_) if beat.is_none() => continue,
                Entry::Vacant(new) => {
                    let Ok(header) = folder.shard_head(shard) else { continue };
                    new.insert(Planned::of(&header))
                }
            };
            of.see(held.claim.attempt, beat);
            sum.files += if of.is_range { 0 } else { of.seen_files };
            sum.bytes += if of.is_whole { 0 } else { of.seen_bytes };
            sum.predicted_s += of.predicted_s * of.seen_bytes as f64 / of.bytes.max(1) as f64;
        }
        self.held.retain(|shard, _| claims.iter().any(|held| held.claim.shard == *shard));
        sum
    }

    fn overview(
        &self,
        folder: &JobFolder,
        plan: &PlanState,
        (shards, under_way): (&Shards, &UnderWay),
        (beats, silent): (&BTreeMap<String, Beat>, &BTreeSet<String>),
    ) -> Result<Overview, Fault> {
        let sum = |of: fn(&Done) -> u64| self.done.values().map(of).sum::<u64>();
        let runs = |name: &&String| beats[*name].code.is_none() && !silent.contains(*name);
        let running: Vec<&String> = beats.keys().filter(runs).collect();
        let times: Vec<ShardTime> = self.done.values().map(|done| done.time.clone()).collect();
        let predicted_s: f64 = times.iter().map(|time| time.predicted_s).sum();
        let left = (plan.predicted_s - predicted_s - under_way.predicted_s).max(0.0);
        let (files, bytes) = (sum(|done| done.files), sum(|done| done.bytes));
        let bytes = bytes + under_way.bytes;
        let share = folder.manifest.copying.bytes_per_second;
        // A worker that waits leaves its share of the rate unused.
        let at_work = running.iter().filter(|name| beats[**name].state != WorkerDoes::Watching);
        let usable = share.map(|share| share * at_work.count().max(1) as f64);
        let limit = share.map(|share| share * folder.manifest.workers as f64);
        let is_finished = receipt_path(folder.path()).exists();
        let shown = |(name, beat): (&String, &Beat)| {
            let worker = worker(name, beat, silent.contains(name), share);
            match is_finished && beat.code.is_none() {
                true => WorkerView { state: LOST.to_string(), shard: None, ..worker },
                false => worker,
            }
        };
        let workers: Vec<WorkerView> = beats.iter().map(shown).collect();
        let control = folder.control()?;
        Ok(Overview {
            job: folder.path().display().to_string(),
            state: match plan.planned {
                Some(_) if shards.done >= shards.planned => JobState::Done,
                _ if control.is_given_up => JobState::GivenUp,
                _ if control.is_cancelled => JobState::Cancelled,
                None => JobState::Planning,
                Some(_) => JobState::Running,
            },
            shards_done: shards.done,
            shards_held: shards.held,
            shards_open: shards
                .open(plan.planned.is_some(), folder.names(Part::Open)?.len() as u32),
            // With those that are known to be given away.
            shards: plan.planned.map(|_| shards.planned),
            files: files + under_way.files,
            bytes,
            files_planned: plan.files,
            bytes_planned: plan.bytes,
            unfinished_bytes: running.iter().map(|name| beats[*name].unfinished_bytes).sum(),
            failed: sum(|done| done.failed) + plan.failed,
            kept: sum(|done| done.kept),
            elapsed_s: elapsed_s(folder),
            rate_bytes_per_s: running.iter().map(|name| rate(&beats[*name])).sum(),
            left_s: plan
                .planned
                .and_then(|_| left_s(&times, left, running.len()))
                .map(|left_s| not_faster(left_s, plan.bytes.saturating_sub(bytes), usable)),
            limit_bytes_per_s: limit,
            slow: slow_but_for_the_limit(&times, &workers),
            workers,
            is_source_far: folder.manifest.far_source.is_some(),
            routes: self.routes(),
            queue: self.queue.clone(),
            lease_s: folder.manifest.times.lease().seconds(),
            is_finished,
            notes: Vec::new(),
        })
    }
}

impl View {
    /// What went between which node and which far host.
    fn routes(&self) -> Vec<RouteView> {
        let mut routes: BTreeMap<(&str, &str), RouteView> = BTreeMap::new();
        for done in self.done.values() {
            let (host, Some(far)) = (&done.time.host, &done.far) else { continue };
            let route = routes.entry((host, far)).or_insert_with(|| RouteView {
                host: host.clone(),
                far: far.clone(),
                ..RouteView::default()
            });
            route.shards += 1;
            route.files += done.files;
            route.bytes += done.bytes;
        }
        routes.into_values().collect()
    }
}

/// Whether a worker has written its beat a lease ago, as far as clocks of hosts agree.
fn is_old(folder: &JobFolder, name: &str) -> bool {
    let written = fs::metadata(folder.file(Part::Workers, name));
    written.is_ok_and(|found| {
        clock::unix().as_secs_f64() - modified_s(&found) > folder.manifest.times.lease().seconds()
    })
}

fn modified_s(found: &fs::Metadata) -> f64 {
    found.mtime() as f64 + found.mtime_nsec() as f64 / 1e9
}

/// With what is not complete.
fn moved(beat: &Beat) -> u64 {
    beat.bytes + beat.unfinished_bytes
}

fn rate(beat: &Beat) -> f64 {
    if beat.seconds > 0.0 { moved(beat) as f64 / beat.seconds } else { 0.0 }
}

/// Since the job began, to its receipt if it has one.
fn elapsed_s(folder: &JobFolder) -> f64 {
    let receipt = fs::metadata(receipt_path(folder.path()));
    let until_s = match receipt {
        Ok(found) => modified_s(&found),
        Err(_) => clock::unix().as_secs_f64(),
    };
    (until_s - folder.manifest.began_unix_s as f64).max(0.0)
}

fn worker(name: &str, beat: &Beat, is_silent: bool, limit: Option<f64>) -> WorkerView {
    WorkerView {
        name: name.to_string(),
        started_as: beat.name.clone(),
        host: beat.host.clone(),
        far: beat.far.clone(),
        state: match beat.state {
            _ if is_silent && beat.code.is_none() => SILENT,
            WorkerDoes::Claiming => "claiming",
            WorkerDoes::Copying => "copying",
            WorkerDoes::Watching => "watching",
            WorkerDoes::Ended => "ended",
        }
        .to_string(),
        shard: beat.shard,
        files: beat.files,
        bytes: moved(beat),
        shard_bytes: beat.shard_bytes,
        failed: beat.failed,
        rate_bytes_per_s: rate(beat),
        held_back_by: beat.waits.held_back(moved(beat), limit),
        waits: beat.waits,
        code: beat.code,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_add_up() {
        let cases = [
            // A shard that is claimed between two looks is in none of the parts.
            ((46, 0, 61), true, 14, 15),
            ((46, 1, 61), true, 15, 14),
            ((61, 0, 61), true, 0, 0),
            ((3, 2, 4), true, 0, 0),
            ((3, 2, 0), false, 7, 7),
        ];
        for ((done, held, planned), is_planned, listed, open) in cases {
            let shards = Shards { held, done, planned };
            assert_eq!(shards.open(is_planned, listed), open, "{done} {held} {planned}");
        }
    }

    /// Beats of one attempt as they are read, and what is shown after each.
    #[test]
    fn what_is_shown_never_goes_back() {
        let header = Shard {
            shard: 7,
            source: 0,
            files: 5,
            bytes: 100,
            predicted_ns: 0,
            range: None,
            whole: None,
        };
        let beat = |shard_files, shard_bytes| Beat { shard_files, shard_bytes, ..Beat::default() };
        let mut of = Planned::of(&header);
        let mut shown = |attempt: u32, beat: Option<Beat>| {
            of.see(attempt, beat.as_ref());
            (of.seen_files, of.seen_bytes)
        };
        assert_eq!(shown(1, Some(beat(1, 60))), (1, 60));
        // It is committed; its worker is at its next shard; a copy began again.
        assert_eq!(shown(1, Some(beat(4, 0))), (4, 60));
        assert_eq!(shown(1, None), (4, 60));
        assert_eq!(shown(1, Some(beat(5, 170))), (5, 100));
        // Another worker has it: what the first one staged is lost.
        assert_eq!(shown(2, None), (0, 0));
        assert_eq!(shown(2, Some(beat(3, 10))), (3, 10));
    }
}
