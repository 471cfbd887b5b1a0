//! A job over many nodes, for people: its plan, a line of progress, and how it stands.

use super::escape;
use super::live::{clock, count};
use crate::shards::history::{JobHistory, Loss, attempts, losses};
use crate::shards::overview::{HeldBackBy, JobState, Overview, WorkerView};
use crate::shards::plan::{Cost, time_on};
use crate::shards::start::Start;
use base::units::{Bytes, Nanos, Rate};

/// A plan, before and while it is carried out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PlanFigures {
    pub files: u64,
    pub bytes: u64,
    pub folders: u64,
    pub shards: u32,
    pub workers: usize,
    pub cost: Cost,
    pub total: Nanos,
    /// The longest shard at that cost, and the most bytes of one.
    pub longest: Nanos,
    pub longest_bytes: u64,
    pub start: Start,
    /// What all workers together may move in a second.
    pub limit_bytes_per_s: Option<f64>,
}

/// What is planned, and what it is predicted to take on so many nodes.
pub fn plan(of: &PlanFigures) -> String {
    let PlanFigures { files, bytes, folders, shards, workers, cost, total, longest, .. } = *of;
    let mut text = format!(
        "plan: {}, {}, {} in {}\n",
        count(files, "file"),
        Bytes(bytes),
        count(folders, "folder"),
        count(shards.into(), "shard")
    );
    let nodes: Vec<String> =
        [1, 2, 4, 8].into_iter().map(|nodes| format!("{nodes}: {}", time(of, nodes))).collect();
    text.push_str(&format!("  predicted time by nodes: {}\n", nodes.join(", ")));
    let copying = time_on(workers as u64, total, longest);
    let (limited, last) = (limited(of), last_limited(of, workers as u64));
    let is_last = last > limited && last > copying && last > of.start.time();
    let binding = match (is_last || longest.0 > total.0 / workers.max(1) as u64, files) {
        (_, 0) => "nothing to copy",
        _ if !is_last && limited > copying && limited > of.start.time() => HeldBackBy::Limit.name(),
        _ if of.start.time() > copying => "the start of the workers",
        (true, _) => {
            "the longest shard: more nodes do not help it (--split-above cuts large files)"
        }
        (false, _) if cost.is_bound_by_files(files, bytes) => "per-file work",
        (false, _) => "reading and writing bytes",
    };
    text.push_str(&format!("  most of it: {binding}\n  {}\n", of.start.told()));
    text
}

/// The start of workers, and the copying: as fast as nodes are, and no faster than the limit.
fn time(of: &PlanFigures, nodes: u64) -> Nanos {
    let copying = time_on(nodes, of.total, of.longest);
    of.start.time() + copying.max(limited(of)).max(last_limited(of, nodes))
}

/// The largest shard, by one of so many nodes, each of which has its share of the limit.
fn last_limited(of: &PlanFigures, nodes: u64) -> Nanos {
    let seconds = of
        .limit_bytes_per_s
        .map_or(0.0, |limit| of.longest_bytes as f64 * nodes as f64 / limit.max(1.0));
    Nanos((seconds * 1e9) as u64)
}

fn limited(of: &PlanFigures) -> Nanos {
    let seconds = of.limit_bytes_per_s.map_or(0.0, |limit| of.bytes as f64 / limit.max(1.0));
    Nanos((seconds * 1e9) as u64)
}

/// One line of progress.
pub fn line(of: &Overview) -> String {
    let shards = match of.shards {
        Some(shards) => format!("{}/{shards} shards", of.shards_done),
        None => format!("{} shards, planning", of.shards_done),
    };
    let left = of.left_s.map_or(String::new(), |left_s| {
        let (middle, interval) = left(left_s);
        format!(", {middle} left{interval}")
    });
    format!(
        "{shards}, {} of {}, {}, {}, {}{left}",
        Bytes(of.bytes),
        Bytes(of.bytes_planned),
        count(of.files, "file"),
        Rate { bytes_per_second: of.rate_bytes_per_s },
        count(of.running() as u64, "worker"),
    )
}

/// The time that is left, and its interval where it has one.
fn left([low_s, middle_s, high_s]: [f64; 3]) -> (String, String) {
    let time = |seconds: f64| clock(Nanos((seconds * 1e9) as u64));
    let interval = match time(low_s) == time(high_s) {
        true => String::new(),
        false => format!(" ({} to {})", time(low_s), time(high_s)),
    };
    (time(middle_s), interval)
}

/// How a job stands.
pub fn page(of: &Overview) -> String {
    let mut text = format!("{}: {}\n", escape::line(&of.job), of.state.name());
    of.notes.iter().for_each(|note| text.push_str(&format!("  note: {}\n", escape::line(note))));
    let planned = of.shards.map_or("?".to_string(), |shards| shards.to_string());
    text.push_str(&format!(
        "  shards: {} of {planned} done, {} held, {} free\n",
        of.shards_done, of.shards_held, of.shards_open
    ));
    text.push_str(&format!(
        "  files: {} of {}, {} of {}{}{}\n",
        of.files,
        of.files_planned,
        Bytes(of.bytes),
        Bytes(of.bytes_planned),
        if of.kept > 0 { format!(", {} kept", of.kept) } else { String::new() },
        if of.failed > 0 { format!(", {} failed", of.failed) } else { String::new() },
    ));
    if let (JobState::Running, Some(left_s)) = (of.state, of.left_s) {
        let (middle, interval) = left(left_s);
        text.push_str(&format!("  left: {middle}{interval}\n"));
    }
    for worker in &of.workers {
        text.push_str(&worker_line(worker, if of.is_source_far { "from" } else { "to" }));
    }
    for route in &of.routes {
        let (from, to) = match of.is_source_far {
            true => (&route.far, &route.host),
            false => (&route.host, &route.far),
        };
        text.push_str(&format!(
            "  from {} to {}: {}, {}, {}\n",
            escape::line(from),
            escape::line(to),
            count(route.shards.into(), "shard"),
            count(route.files, "file"),
            Bytes(route.bytes)
        ));
    }
    for (host, factor) in &of.slow {
        text.push_str(&format!(
            "  slow: {} takes {factor:.1} times as long as the others for the same work\n",
            escape::line(host)
        ));
    }
    text
}

fn worker_line(of: &WorkerView, to: &str) -> String {
    let state = match (of.code, of.shard) {
        (Some(0), _) => "ended".to_string(),
        (Some(code), _) => format!("ended with code {code}"),
        (None, Some(shard)) => format!("{} shard {shard}", of.state),
        (None, None) => of.state.clone(),
    };
    let far = of.far.as_ref().map_or(String::new(), |far| format!(" {to} {far}"));
    let held = match of.is_lost() {
        true => String::new(),
        false => format!("; held back by: {}", of.held_back_by.name()),
    };
    let line = format!(
        "{} on {}{far}: {state}; {}, {}, {}{held}",
        of.name,
        of.host,
        count(of.files, "file"),
        Bytes(of.bytes),
        Rate { bytes_per_second: of.rate_bytes_per_s },
    );
    format!("  {}\n", escape::line(&line))
}

/// What a job came to.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary<'a> {
    pub files: u64,
    pub bytes: u64,
    pub kept: u64,
    pub failed: u64,
    pub elapsed_s: f64,
    pub job: &'a str,
    pub destination: &'a str,
    pub failures: Vec<&'a str>,
}

pub fn summary(of: &Summary<'_>) -> String {
    let elapsed = Nanos((of.elapsed_s * 1e9) as u64);
    let rate = Rate { bytes_per_second: of.bytes as f64 / of.elapsed_s.max(1e-9) };
    let mut text = format!(
        "{} ({}) in {elapsed}, {rate}{}{}\n",
        count(of.files, "file"),
        Bytes(of.bytes),
        if of.kept > 0 { format!(", {} kept", of.kept) } else { String::new() },
        if of.failed > 0 { format!(", {} failed", of.failed) } else { String::new() },
    );
    for failure in of.failures.iter().take(FAILURES_SHOWN) {
        text.push_str(&format!("  {}\n", escape::line(failure)));
    }
    let more = of.failed.saturating_sub(FAILURES_SHOWN as u64);
    if more > 0 && of.failures.len() > FAILURES_SHOWN {
        text.push_str(&format!("  and {more} more: all are in {}/failures\n", of.job));
    }
    let (job, destination) = (escape::line(of.job), escape::line(of.destination));
    text.push_str(&format!(
        "  receipt: {job}/receipt; 'datapump verify {job}/receipt {destination}' reads the files \
         again\n"
    ));
    text
}

/// The same with where each worker's time went.
pub fn report(of: &Overview) -> String {
    let mut text = page(of);
    text.push_str(
        "  time of each worker: copying / committing / claiming / idle; its requests \
                   waited for source / CPU / destination\n",
    );
    for worker in &of.workers {
        let waits = worker.waits;
        text.push_str(&format!(
            "  {}: {:.1} / {:.1} / {:.1} / {:.1} s; {:.1} / {:.1} / {:.1} s\n",
            escape::line(&worker.name),
            waits.copying_s,
            waits.committing_s,
            waits.claiming_s,
            waits.idle_s,
            waits.source_s,
            waits.cpu_s,
            waits.destination_s,
        ));
    }
    text
}

/// What each worker that was lost cost, a sentence each.
pub fn lost(of: &JobHistory) -> Vec<String> {
    let time = |seconds: f64| Nanos((seconds.max(0.0) * 1e9) as u64);
    let lease = time(of.overview.lease_s);
    let losses = losses(&attempts(&of.log, of.until_s), &of.overview.workers);
    let more = losses.len().saturating_sub(LOSSES_SHOWN);
    let told = |loss: Loss| {
        let host = loss.host.map_or(String::new(), |host| format!(" on {}", escape::line(&host)));
        let then = match (loss.again_after_s, loss.done_after_s) {
            (Some(again_s), Some(done_s)) => format!(
                "another began it {} later and was done after {}",
                time(again_s),
                time(done_s)
            ),
            (Some(again_s), None) => {
                format!("another began it {} later, and it is not done", time(again_s))
            }
            (None, _) => "nobody has begun it again".to_string(),
        };
        format!(
            "{}{host} was lost with shard {}, {} after it had claimed it ({lease} of that without \
             a sign of it); {then}.",
            loss.worker,
            loss.shard,
            time(loss.held_s)
        )
    };
    let mut lines: Vec<String> = losses.into_iter().take(LOSSES_SHOWN).map(told).collect();
    if more > 0 {
        lines.push(format!("And {more} more were lost: {}/events has all.", of.overview.job));
    }
    lines
}

const LOSSES_SHOWN: usize = 10;
/// Files that were not copied and are named on the screen.
const FAILURES_SHOWN: usize = 10;
