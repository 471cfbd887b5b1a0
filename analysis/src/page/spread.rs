//! The page of a dataset that many nodes copied, or copy: what it came to, what held nodes back,
//! each node's rate and each worker's shards over time, what failed, and what happened and why.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::run::command::quoted;
use super::{Block, Page, Section};
use crate::plot::colour;
use crate::plot::scale::Unit;
use crate::plot::{
    Axis, Bar, Bars, Chart, Column, Figure, Mark, Marks, Part, Series, SpanKind, Table, TimeSpan,
    Timeline, Timelines, Xy,
};
use crate::report::spread::lost;
use crate::report::utc::utc;
use crate::shards::history::{Attempt, JobHistory, Outcome, attempts, rates};
use crate::shards::overview::{HeldBackBy, JobState, LIMITED, Overview, Waits, WorkerView};
use base::units::{Bytes, Rate};

/// The page of a job, whether it is over or not.
pub fn page(of: &JobHistory) -> Page {
    let attempts = attempts(&of.log, of.until_s);
    let sections = [
        Section::of("verdict", "What it came to", verdict(of, &attempts)),
        Section::of("over-time", "Over time", over_time(of, &attempts)),
        Section::of("nodes", "The nodes", nodes(of)),
        Section::of("failed", "Files that were not copied", failed(of)),
        Section::of("events", "What happened, and why", events(of)),
        Section::of("repeat", "To repeat it", repeat(of)),
    ];
    Page {
        title: title(of),
        subtitle: format!(
            "spread {}, begun {}, {}; datapump {}",
            of.overview.job,
            utc(Duration::from_secs_f64(of.began_unix_s.max(0.0))),
            of.overview.state.name(),
            of.version
        ),
        sections: sections.into_iter().flatten().collect(),
    }
}

/// What is copied, and where.
pub fn title(of: &JobHistory) -> String {
    let what = format!("{} → {}", of.sources.join(" "), of.target);
    cut(&what, TITLE_LETTERS)
}

fn verdict(of: &JobHistory, attempts: &[Attempt]) -> Vec<Block> {
    let overview = &of.overview;
    let seconds = if overview.is_finished { overview.elapsed_s } else { of.until_s };
    let rate = overview.bytes as f64 / seconds.max(1e-3);
    let is_over = overview.state == JobState::Done;
    let lead = format!(
        "{}{} in {} by {} on {}. {}.",
        if is_over { "" } else { "So far: " },
        Bytes(overview.bytes),
        spoken(seconds),
        counted(names(overview, |worker| &worker.started_as).len(), "worker"),
        counted(names(overview, |worker| &worker.host).len(), "node"),
        held(of, attempts),
    );
    let lost_count = attempts.iter().filter(|attempt| attempt.outcome == Outcome::Lost).count();
    let shards = overview.shards.map_or("?".to_string(), |shards| shards.to_string());
    let mut facts = vec![
        ("files".to_string(), format!("{} of {}", overview.files, overview.files_planned)),
        ("bytes".into(), format!("{} of {}", Bytes(overview.bytes), Bytes(overview.bytes_planned))),
        ("rate over that time".into(), Rate { bytes_per_second: rate }.to_string()),
        ("shards".into(), format!("{} of {shards} done", overview.shards_done)),
        ("attempts that were lost".into(), lost_count.to_string()),
        ("files not copied".into(), overview.failed.to_string()),
        ("files kept as they were".into(), overview.kept.to_string()),
        ("where the workers ran".into(), of.on.clone()),
    ];
    if let Some(limit) = of.limit_bytes_per_s {
        let limit = Rate { bytes_per_second: limit };
        facts.push(("limit of the rate (--rate)".into(), limit.to_string()));
    }
    if let (false, Some([low, middle, high])) = (is_over, overview.left_s) {
        let left = match spoken(low) == spoken(high) {
            true => spoken(middle),
            false => format!("{} ({} to {})", spoken(middle), spoken(low), spoken(high)),
        };
        facts.push(("left".into(), left));
    }
    let slow = overview.slow.iter().map(|(host, factor)| {
        format!(
            "{} is slow: it took {factor:.1} times as long as the others for the same work.",
            cut(host, NAME_LETTERS)
        )
    });
    let notes = overview.notes.iter().map(|note| cut(note, CELL_LETTERS));
    let costs = lost(of).into_iter().map(|text| cut(&text, CELL_LETTERS));
    let list = notes.chain(slow).chain(costs).collect();
    vec![Block::Lead(lead), Block::List(list), Block::Facts(facts)]
}

/// What most workers were held back by, weighed by their time.
fn held(history: &JobHistory, attempts: &[Attempt]) -> String {
    let of = &history.overview;
    if is_at_limit(history, attempts) {
        return format!("Held back by: {}", HeldBackBy::Limit.name());
    }
    let mut times: BTreeMap<HeldBackBy, f64> = BTreeMap::new();
    for worker in &of.workers {
        let waits = worker.waits;
        let busy_s = waits.copying_s + waits.committing_s + waits.claiming_s;
        *times.entry(worker.held_back_by).or_default() += busy_s;
    }
    let most = times.into_iter().max_by(|a, b| a.1.total_cmp(&b.1));
    match most.filter(|(_, time_s)| *time_s > 0.0) {
        Some((by, _)) => format!("Held back by: {}", by.name()),
        None => "What holds it back is not known yet".to_string(),
    }
}

/// The nodes together moved as much as they may, for most of the time in which they moved any.
fn is_at_limit(of: &JobHistory, attempts: &[Attempt]) -> bool {
    let Some(limit) = of.limit_bytes_per_s else { return false };
    let until_s = of.until_s.max(1e-3);
    let hosts = rates(attempts, (&of.finished, &of.overview.workers), until_s, SPANS);
    let all = (0..SPANS).map(|at| hosts.values().map(|rates| rates[at]).sum::<f64>());
    let moving: Vec<f64> = all.filter(|rate| *rate > 0.0).collect();
    let at_limit = moving.iter().filter(|rate| **rate >= LIMITED * limit).count();
    2 * at_limit > moving.len()
}

fn over_time(of: &JobHistory, attempts: &[Attempt]) -> Vec<Block> {
    if attempts.is_empty() {
        return Vec::new();
    }
    let text = "Times are since the job began, on the clock of each host. The bytes of a shard are \
                spread evenly over the time that it took.";
    let figures = [rate_of_nodes(of, attempts), Some(timelines(of, attempts))];
    vec![Block::Text(text.into()), Block::Figures(figures.into_iter().flatten().collect())]
}

/// The rate of each node: of many those with the most bytes, and the others together.
fn rate_of_nodes(of: &JobHistory, attempts: &[Attempt]) -> Option<Figure> {
    let until_s = of.until_s.max(1e-3);
    let mut hosts: Vec<(String, Vec<f64>)> =
        rates(attempts, (&of.finished, &of.overview.workers), until_s, SPANS).into_iter().collect();
    let sum = |rates: &[f64]| rates.iter().sum::<f64>();
    hosts.sort_by(|a, b| sum(&b.1).total_cmp(&sum(&a.1)).then(a.0.cmp(&b.0)));
    if hosts.len() > colour::COUNT {
        let others = hosts.split_off(colour::COUNT - 1);
        let name = format!("{} other nodes", others.len());
        let together = (0..SPANS).map(|at| others.iter().map(|host| host.1[at]).sum());
        hosts.push((name, together.collect()));
    }
    let most = hosts.iter().flat_map(|host| host.1.iter().copied()).fold(0.0, f64::max);
    let unit = Unit::of_rates(most.max(of.limit_bytes_per_s.unwrap_or(0.0)));
    let at = |place: usize| until_s * place as f64 / SPANS as f64;
    let series = hosts.iter().enumerate().map(|(place, (host, rates))| {
        let mut points: Vec<(f64, f64)> =
            rates.iter().enumerate().map(|(span, rate)| (at(span), rate / unit.of)).collect();
        points.extend(points.last().map(|last| (until_s, last.1)));
        Series::steps(&cut(host, NAME_LETTERS), place, points)
    });
    let limit = of.limit_bytes_per_s.map(|limit| Marks {
        name: "limit of all nodes together".into(),
        mark: Mark::Level,
        at: vec![(limit / unit.of, limit / unit.of)],
    });
    let series: Vec<Series> = series.collect();
    (!series.is_empty()).then(|| Figure {
        name: "node-rates".into(),
        title: "Rate of each node".into(),
        about: format!(
            "Bytes of finished shards and of those under way, in spans of {}.",
            spoken(until_s / SPANS as f64)
        ),
        chart: Chart::Xy(Xy {
            x: Axis::from_zero("time since the job began, s"),
            y: Axis::from_zero(&format!("rate, {}", unit.name)),
            series,
            marks: limit.into_iter().collect(),
        }),
    })
}

/// What each worker did when. Of many workers those whose attempts were lost come first.
fn timelines(of: &JobHistory, attempts: &[Attempt]) -> Figure {
    let hosts: BTreeMap<&str, &str> =
        of.overview.workers.iter().map(|w| (w.name.as_str(), w.host.as_str())).collect();
    let mut by_worker: BTreeMap<&str, Vec<&Attempt>> = BTreeMap::new();
    for attempt in attempts {
        by_worker.entry(&attempt.worker).or_default().push(attempt);
    }
    let count = by_worker.len();
    let mut workers: Vec<(&str, Vec<&Attempt>)> = by_worker.into_iter().collect();
    if count > TIMELINES_MAX {
        let losses = |of: &[&Attempt]| of.iter().filter(|a| a.outcome == Outcome::Lost).count();
        workers.sort_by_key(|(_, attempts)| std::cmp::Reverse(losses(attempts)));
        workers.truncate(TIMELINES_MAX);
    }
    let each = (SPANS_MAX / workers.len().max(1)).max(1);
    let mut is_cut = count > TIMELINES_MAX;
    let timelines = workers.into_iter().map(|(worker, attempts)| {
        is_cut |= attempts.len() > each;
        Timeline {
            name: worker.to_string(),
            text: hosts.get(worker).map_or_else(String::new, |host| (*host).to_string()),
            spans: attempts.into_iter().take(each).map(span).collect(),
        }
    });
    let timelines = timelines.collect();
    let more = match is_cut {
        true => format!(" Not all of {} attempts by {count} workers are drawn.", attempts.len()),
        false => String::new(),
    };
    Figure {
        name: "timelines".into(),
        title: "Shards of each worker".into(),
        about: format!(
            "Each box is an attempt at a shard: full where it was done, hatched where the worker \
             was lost with it, an outline where it was given back.{more}"
        ),
        chart: Chart::Timelines(Timelines {
            x: Axis::from_zero("time since the job began, s"),
            of: "worker".into(),
            noun: "shard".into(),
            timelines,
        }),
    }
}

fn span(of: &Attempt) -> TimeSpan {
    TimeSpan {
        name: format!("{}, attempt {}", of.claim.shard, of.claim.attempt),
        from: of.from_s,
        to: of.to_s,
        kind: match of.outcome {
            Outcome::Done => SpanKind::Done,
            Outcome::Lost => SpanKind::Lost,
            Outcome::GivenBack => SpanKind::GivenBack,
            Outcome::UnderWay => SpanKind::UnderWay,
        },
    }
}

/// Each node: what its workers did, what held them back, and where their time went.
fn nodes(of: &JobHistory) -> Vec<Block> {
    let mut by_host: BTreeMap<&str, Vec<&WorkerView>> = BTreeMap::new();
    for worker in &of.overview.workers {
        by_host.entry(&worker.host).or_default().push(worker);
    }
    let mut done: BTreeMap<&str, u64> = BTreeMap::new();
    for finished in of.finished.values() {
        *done.entry(&finished.host).or_default() += 1;
    }
    let row = |(host, workers): (&&str, &Vec<&WorkerView>)| {
        let sum = |of: fn(&WorkerView) -> u64| workers.iter().map(|worker| of(worker)).sum::<u64>();
        let slow = of.overview.slow.iter().find(|(slow, _)| slow == host);
        let waits = added(workers);
        let busy_s = waits.copying_s + waits.committing_s + waits.claiming_s + waits.idle_s;
        let rate = sum(|worker| worker.bytes) as f64 / (busy_s / workers.len() as f64).max(1e-3);
        let mut by: BTreeSet<HeldBackBy> = workers.iter().map(|w| w.held_back_by).collect();
        // A worker that was lost early says nothing of its node.
        if by.len() > 1 {
            by.remove(&HeldBackBy::Nothing);
        }
        vec![
            cut(host, NAME_LETTERS),
            workers.len().to_string(),
            done.get(*host).copied().unwrap_or(0).to_string(),
            sum(|worker| worker.files).to_string(),
            Bytes(sum(|worker| worker.bytes)).to_string(),
            Rate { bytes_per_second: rate }.to_string(),
            by.into_iter().map(HeldBackBy::name).collect::<Vec<_>>().join("; "),
            slow.map_or(String::new(), |(_, factor)| format!("{factor:.1} times as long")),
        ]
    };
    let number = Column::number;
    let table = Table {
        caption: limited("Nodes", by_host.len()),
        columns: vec![
            Column::text("node"),
            number("processes"),
            number("shards"),
            number("files"),
            number("bytes"),
            number("rate while at work"),
            Column::text("held back by"),
            Column::text("slow"),
        ],
        rows: by_host.iter().map(row).take(ROWS_MAX).collect(),
    };
    let shown: Vec<(&str, Waits)> =
        by_host.iter().take(BARS_MAX).map(|(host, workers)| (*host, added(workers))).collect();
    vec![Block::Table(table), Block::Figures(vec![own_time(&shown), waiting(&shown)])]
}

fn added(workers: &[&WorkerView]) -> Waits {
    let mut sum = Waits::default();
    for waits in workers.iter().map(|worker| worker.waits) {
        sum.source_s += waits.source_s;
        sum.cpu_s += waits.cpu_s;
        sum.destination_s += waits.destination_s;
        sum.copying_s += waits.copying_s;
        sum.committing_s += waits.committing_s;
        sum.claiming_s += waits.claiming_s;
        sum.idle_s += waits.idle_s;
    }
    sum
}

fn own_time(hosts: &[(&str, Waits)]) -> Figure {
    let parts = |waits: &Waits| {
        vec![
            ("copying", 0, waits.copying_s),
            ("committing files", 1, waits.committing_s),
            ("claims and the job folder", 2, waits.claiming_s),
            ("no shard was free", 5, waits.idle_s),
        ]
    };
    Figure {
        name: "own-time".into(),
        title: "Where the time of workers went".into(),
        about: "The time of all workers of a node together.".into(),
        chart: Chart::Bars(bars("time of workers, s", hosts, parts)),
    }
}

fn waiting(hosts: &[(&str, Waits)]) -> Figure {
    let parts = |waits: &Waits| {
        vec![
            ("reading the source", 0, waits.source_s),
            ("CPU (digests)", 1, waits.cpu_s),
            ("writing the destination", 2, waits.destination_s),
        ]
    };
    Figure {
        name: "requests".into(),
        title: "What requests waited for".into(),
        about: "Of finished shards. Many requests are under way at once, so this is more than the \
                time of the workers; the longest part is what to make faster."
            .into(),
        chart: Chart::Bars(bars("time of requests, s", hosts, parts)),
    }
}

fn bars(
    label: &str,
    hosts: &[(&str, Waits)],
    parts: impl Fn(&Waits) -> Vec<(&'static str, usize, f64)>,
) -> Bars {
    let bar = |(host, waits): &(&str, Waits)| {
        let all = parts(waits);
        let sum: f64 = all.iter().map(|part| part.2).sum();
        let part =
            |(name, colour, value): (&str, usize, f64)| Part { name: name.into(), colour, value };
        Bar {
            name: cut(host, NAME_LETTERS),
            parts: all.into_iter().map(part).collect(),
            text: spoken(sum),
        }
    };
    Bars { label: label.into(), bars: hosts.iter().map(bar).collect(), most: None }
}

fn failed(of: &JobHistory) -> Vec<Block> {
    let table = Table {
        caption: limited("Files that were not copied", of.failures.len()),
        columns: vec![Column::text("why")],
        rows: of.failures.iter().take(ROWS_MAX).map(|why| vec![cut(why, CELL_LETTERS)]).collect(),
    };
    vec![Block::Table(table)]
}

/// What is no claim that went well.
fn events(of: &JobHistory) -> Vec<Block> {
    let is_told = |what: &str| !matches!(what, "claims" | "finishes");
    let told: Vec<_> = of.log.iter().filter(|line| is_told(&line.what)).collect();
    let row = |line: &&crate::shards::history::Happened| {
        let shard = line
            .claim
            .map_or(String::new(), |claim| format!("{}, attempt {}", claim.shard, claim.attempt));
        vec![
            format!("{:.3}", line.at_s),
            cut(&line.who, NAME_LETTERS),
            cut(&line.what, NAME_LETTERS),
            shard,
            cut(&line.why, CELL_LETTERS),
        ]
    };
    let table = Table {
        caption: limited("Events other than claims that went well", told.len()),
        columns: vec![
            Column::number("at, s"),
            Column::text("who"),
            Column::text("what"),
            Column::text("shard"),
            Column::text("why"),
        ],
        rows: told.iter().take(ROWS_MAX).map(row).collect(),
    };
    vec![Block::Table(table)]
}

fn repeat(of: &JobHistory) -> Vec<Block> {
    let words: Vec<String> = of.command.iter().skip(1).map(|word| quoted(word)).collect();
    vec![
        Block::Text("As it was typed; a job folder that is there is not used again:".into()),
        Block::Command(cut(&format!("datapump {}", words.join(" ")), COMMAND_LETTERS)),
    ]
}

fn names(of: &Overview, name: fn(&WorkerView) -> &String) -> BTreeSet<&String> {
    of.workers.iter().map(name).collect()
}

fn counted(number: usize, noun: &str) -> String {
    crate::report::live::count(number as u64, noun)
}

fn spoken(seconds: f64) -> String {
    Unit::of_seconds(seconds).name_with(seconds)
}

/// What a table says of its rows where it has not all of them.
fn limited(caption: &str, count: usize) -> String {
    match count > ROWS_MAX {
        true => format!("{caption}: the first {ROWS_MAX} of {count}"),
        false => format!("{caption}: {count}"),
    }
}

/// Names of strangers may be of any length, and a page is not.
fn cut(text: &str, letters: usize) -> String {
    match text.chars().count() > letters {
        true => text.chars().take(letters - 1).chain(['\u{2026}']).collect(),
        false => text.to_string(),
    }
}

const TITLE_LETTERS: usize = 160;
const NAME_LETTERS: usize = 60;
const CELL_LETTERS: usize = 300;
const COMMAND_LETTERS: usize = 4000;
/// Spans of time of a chart.
const SPANS: usize = 120;
const TIMELINES_MAX: usize = 48;
/// Boxes of all timelines.
const SPANS_MAX: usize = 1500;
const ROWS_MAX: usize = 200;
const BARS_MAX: usize = 40;
