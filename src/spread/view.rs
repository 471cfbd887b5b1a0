//! How a job stands, read from its folder: the same for the coordinator and for anybody else.

use std::collections::BTreeMap;

use super::ending::head;
use super::folder::{JobFolder, Part, read_json};
use super::records::{Beat, PlanState, WorkerDoes};
use analysis::shards::names;
use analysis::shards::overview::{JobState, Overview, ShardTime, WorkerView, left_s, slow};
use base::fault::Fault;
use mover::io::clock;

/// Reads a job repeatedly, what is done only once.
#[derive(Debug, Default)]
pub struct View {
    /// Of shards that are done, by the names of their attempts.
    done: BTreeMap<String, Done>,
}

#[derive(Debug)]
struct Done {
    files: u64,
    bytes: u64,
    kept: u64,
    failed: u64,
    time: ShardTime,
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
        let mut shards_done = 0;
        for held in folder.names(Part::Done)?.iter().filter_map(|name| names::parse_held(name)) {
            shards_done += 1;
            let attempt = names::of_attempt(held.claim);
            if self.done.contains_key(&attempt) {
                continue;
            }
            let head = head(folder, &attempt)?;
            let predicted_s = folder.shard(held.claim.shard)?.0.predicted_ns as f64 / 1e9;
            let time = ShardTime { host: head.host, predicted_s, seconds: head.seconds };
            let (files, bytes, kept, failed) = (head.files, head.bytes, head.kept, head.failed);
            self.done.insert(attempt, Done { files, bytes, kept, failed, time });
        }
        let beats: BTreeMap<String, Beat> = folder
            .names(Part::Workers)?
            .into_iter()
            .filter_map(|name| {
                Some((name.clone(), read_json(&folder.file(Part::Workers, &name)).ok()?))
            })
            .collect();
        let overview = self.overview(folder, &plan, shards_done, &beats)?;
        Ok(Look { overview, beats })
    }

    fn overview(
        &self,
        folder: &JobFolder,
        plan: &PlanState,
        shards_done: u32,
        beats: &BTreeMap<String, Beat>,
    ) -> Result<Overview, Fault> {
        let sum = |of: fn(&Done) -> u64| self.done.values().map(of).sum::<u64>();
        let (shards_held, shards_open) =
            (folder.names(Part::Claims)?.len() as u32, folder.names(Part::Open)?.len() as u32);
        let under_way = |of: fn(&Beat) -> u64| -> u64 {
            let busy = beats.values().filter(|beat| beat.code.is_none() && beat.shard.is_some());
            busy.map(of).sum()
        };
        let elapsed_s = clock::unix().as_secs_f64() - folder.manifest.began_unix_s as f64;
        let times: Vec<ShardTime> = self.done.values().map(|done| done.time.clone()).collect();
        let predicted_s: f64 = times.iter().map(|time| time.predicted_s).sum();
        let workers = beats.values().filter(|beat| beat.code.is_none()).count();
        let left = plan.predicted_s - predicted_s;
        Ok(Overview {
            job: folder.path().display().to_string(),
            state: match plan.planned {
                Some(planned) if shards_done >= planned => JobState::Done,
                _ if folder.control()?.is_cancelled => JobState::Cancelled,
                None => JobState::Planning,
                Some(_) => JobState::Running,
            },
            shards_done,
            shards_held,
            shards_open,
            shards: plan.planned,
            files: sum(|done| done.files) + under_way(|beat| beat.shard_files),
            bytes: sum(|done| done.bytes) + under_way(|beat| beat.shard_bytes),
            files_planned: plan.files,
            bytes_planned: plan.bytes,
            failed: sum(|done| done.failed) + plan.unplanned.len() as u64,
            kept: sum(|done| done.kept),
            elapsed_s: elapsed_s.max(0.0),
            rate_bytes_per_s: beats.values().filter(|beat| beat.code.is_none()).map(rate).sum(),
            left_s: plan.planned.and_then(|_| left_s(&times, left.max(0.0), workers)),
            workers: beats.iter().map(|(name, beat)| worker(name, beat)).collect(),
            slow: slow(&times),
        })
    }
}

fn rate(beat: &Beat) -> f64 {
    if beat.seconds > 0.0 { (beat.bytes + beat.shard_bytes) as f64 / beat.seconds } else { 0.0 }
}

fn worker(name: &str, beat: &Beat) -> WorkerView {
    WorkerView {
        name: name.to_string(),
        host: beat.host.clone(),
        state: match beat.state {
            WorkerDoes::Claiming => "claiming",
            WorkerDoes::Copying => "copying",
            WorkerDoes::Watching => "watching",
            WorkerDoes::Ended => "ended",
        }
        .to_string(),
        shard: beat.shard,
        files: beat.files,
        bytes: beat.bytes,
        failed: beat.failed,
        rate_bytes_per_s: rate(beat),
        held_back_by: beat.waits.held_back_by(),
        waits: beat.waits,
        code: beat.code,
    }
}
