//! A job over many nodes, for people: its plan, a line of progress, and how it stands.

use std::collections::BTreeSet;

use super::escape;
use super::live::{clock, count};
use crate::shards::history::{JobHistory, Loss, attempts, losses};
use crate::shards::overview::{HeldBackBy, JobState, Overview, WorkerView};
use crate::shards::plan::{Cost, time_on};
use crate::shards::start::{Route, Start};
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
    /// To a far host, or from one.
    pub route: Option<Route>,
}

impl PlanFigures {
    /// How many hosts the workers are on: workers on one share its way to a far host.
    fn nodes(&self) -> u64 {
        let is_shared = self.route.is_some() && self.start == Start::Here;
        if is_shared { 1 } else { self.workers.max(1) as u64 }
    }

    /// Of everything on one node.
    fn copying(&self) -> Nanos {
        self.route.map_or(self.total, |route| route.copying(self.total))
    }

    fn longest(&self) -> Nanos {
        self.route.map_or(self.longest, |route| route.copying(self.longest))
    }

    /// What it takes besides, on so many nodes.
    fn besides(&self, nodes: u64) -> Nanos {
        let added = self.route.map_or(Nanos(0), |route| route.added(self.shards.into(), nodes));
        self.start.time() + added
    }
}

/// What is planned, and what it is predicted to take on so many nodes.
pub fn plan(of: &PlanFigures) -> String {
    let PlanFigures { files, bytes, folders, shards, cost, .. } = *of;
    let mut text = format!(
        "plan: {}, {}, {} in {}\n",
        count(files, "file"),
        Bytes(bytes),
        count(folders, "folder"),
        count(shards.into(), "shard")
    );
    let asked = of.nodes();
    let counts: BTreeSet<u64> = [1, 2, 4, 8, asked].into();
    let nodes: Vec<String> =
        counts.into_iter().map(|nodes| format!("{nodes}: {}", time(of, nodes))).collect();
    text.push_str(&format!("  predicted time by nodes: {}\n", nodes.join(", ")));
    let (total, longest) = (of.copying(), of.longest());
    let (copying, besides) = (time_on(asked, total, longest), of.besides(asked));
    let (limited, last) = (limited(of), last_limited(of, of.workers as u64));
    let is_last = last > limited && last > copying && last > besides;
    let binding = match (is_last || longest.0 > total.0 / asked, files) {
        (_, 0) => "nothing to copy",
        _ if !is_last && limited > copying && limited > besides => HeldBackBy::Limit.name(),
        _ if besides > copying && of.route.is_some() => "logins, and the start of the workers",
        _ if besides > copying => "the start of the workers",
        (true, _) => {
            "the longest shard: more nodes do not help it (--split-above cuts large files)"
        }
        (false, _) if cost.is_bound_by_files(files, bytes) => "per-file work",
        (false, _) => "reading and writing bytes",
    };
    text.push_str(&format!("  most of it: {binding}\n  {}\n", of.start.told(besides)));
    text.push_str(&of.route.map_or(String::new(), |route| beside_a_copy(of, route)));
    text
}

/// What a copy by one command would take, over the same route.
fn beside_a_copy(of: &PlanFigures, route: Route) -> String {
    let copy = route.copy(of.total).max(limited(of));
    let known = match route.copies {
        0 => "no copy to or from the far host is recorded".to_string(),
        1 => "as the last copy to or from the far host".to_string(),
        copies => format!("as the last {copies} copies to or from the far host"),
    };
    // What is assumed of a path says nothing of several.
    let is_known = route.copies > 0 || of.nodes() == 1;
    match is_known && copy < time(of, of.nodes()) && of.files > 0 {
        true => format!("  use copy: it takes {copy} ({known})\n"),
        false => format!("  copy alone takes {copy} ({known})\n"),
    }
}

/// The start of workers, and the copying: as fast as nodes are, and no faster than the limit.
fn time(of: &PlanFigures, nodes: u64) -> Nanos {
    let copying = time_on(nodes, of.copying(), of.longest());
    of.besides(nodes) + copying.max(limited(of)).max(last_limited(of, nodes))
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Workers on one host share its way: a copy is sooner. Three hosts with ways of their own are
    /// sooner than a copy once there is enough to copy.
    #[test]
    fn a_plan_says_where_a_copy_is_sooner() {
        let told_of = |start, workers, route| {
            plan(&PlanFigures {
                files: 4915,
                bytes: 98_800_000,
                folders: 427,
                shards: 3,
                workers,
                cost: Cost::UNKNOWN,
                total: Cost::UNKNOWN.of(4915, 98_800_000),
                longest: Cost::UNKNOWN.of(1667, 33_000_000),
                longest_bytes: 33_000_000,
                start,
                limit_bytes_per_s: None,
                route: Some(route),
            })
        };
        let told = |start, workers, factor| told_of(start, workers, Route::of(vec![(0.5, factor)]));
        for (start, workers, factor, is_copy) in [
            (Start::Here, 3, 1.6, true),
            (Start::BySsh, 1, 1.6, true),
            (Start::BySsh, 3, 0.2, true),
            (Start::BySsh, 3, 1.6, false),
        ] {
            let text = told(start, workers, factor);
            assert_eq!(text.contains("  use copy: it takes "), is_copy, "{text}");
            assert!(text.contains("(as the last copy to or from the far host)"), "{text}");
        }
        assert!(told(Start::BySsh, 3, 1.6).contains(", 3: "), "the number that was asked for");
        let unknown = told_of(Start::BySsh, 3, Route::of(Vec::new()));
        assert!(
            unknown.contains("  copy alone takes ") && unknown.contains("no copy"),
            "{unknown}"
        );
    }
}
