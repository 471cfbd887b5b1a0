//! The page of one run: what held it back, where its time went, how it went over time, what it
//! cost, and how to repeat it.

pub(super) mod command;

pub use command::line as command_line;
mod costs;
mod over_time;
mod stages;
mod streams;

use std::collections::BTreeMap;

use self::streams::Streams;
use super::{Block, Page, Section};
use crate::diagnosis::{Bottleneck, Evidence, StreamVerdict, Verdict, diagnose, evidence, store};
use crate::plot::scale::Unit;
use crate::plot::{Bar, Bars, Chart, Column, Figure, Table};
use crate::record::failures::{self, Failure};
use crate::record::sample::{Environment, Record};
use crate::report::text::with_holes;
use crate::report::{explain, files, live, results};
use base::units::{Bytes, Nanos, Rate};

/// The page of a run with its paths, whose samples may be many.
pub fn page(mut record: Record, environments: &BTreeMap<i64, Environment>) -> Page {
    let evidence = evidence::taken(&mut record, environments);
    let record = &record;
    // Nothing held back what had nothing to move.
    let is_known = !evidence.streams.is_empty() && record.moved.bytes > 0;
    let verdict = is_known.then(|| diagnose(&evidence));
    let streams = Streams::of(record, &evidence, verdict.as_ref());
    let sections = [
        Section::of("verdict", "What held it back", why(record, verdict.as_ref())),
        Section::of("stages", "Where the time went", stages::blocks(record, &streams)),
        Section::of("over-time", "Over time", over_time::blocks(record, &streams)),
        Section::of("costs", "What it cost", costs::blocks(record)),
        Section::of("choices", "What was chosen", command::choices(record)),
        Section::of("repeat", "To repeat it", command::blocks(record)),
        Section::of("environment", "The hosts", hosts(record, environments)),
    ];
    Page {
        title: title(record),
        subtitle: format!(
            "run {}, {}, datapump {}",
            record.id,
            results::started(record),
            record.version
        ),
        sections: sections.into_iter().flatten().collect(),
    }
}

/// How far a copy has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Those that an earlier run has left included.
    pub bytes_done: u64,
    /// `None` where it is not known, as of a pipe.
    pub bytes_found: Option<u64>,
    /// There is no more to find.
    pub all_found: bool,
}

/// The pages of a run that is under way, one after the other. Each is a part of what its page will
/// have, of what is known by then; the verdict may be up to `VERDICT_EACH_S` old, as it is half of
/// what a page costs and changes little.
#[derive(Debug, Default)]
pub struct SoFar {
    /// The newest, with the time of the run at which it was found.
    verdict: Option<(f64, Verdict)>,
}

impl SoFar {
    pub fn page(&mut self, mut record: Record, progress: &Progress) -> Page {
        let mut evidence = evidence::taken(&mut record, &BTreeMap::new());
        // What CPU time it took is told when it has ended.
        (evidence.sender.busy_cpus, evidence.receiver.busy_cpus) = (None, None);
        let record = &record;
        let verdict = self.verdict(record, &evidence);
        let streams = Streams::of(record, &evidence, verdict);
        let sections = [
            Section::of("verdict", "What holds it back", why_so_far(record, verdict, progress)),
            Section::of("over-time", "Over time", over_time::blocks(record, &streams)),
            Section::of("repeat", "To repeat it", command::blocks(record)),
        ];
        Page {
            title: title(record),
            subtitle: format!(
                "under way since {}, for {:.0} s; datapump {}",
                results::started(record),
                record.moved.elapsed_s,
                record.version
            ),
            sections: sections.into_iter().flatten().collect(),
        }
    }

    /// The last one, unless a new one is due: of a run that has just begun, always, as each second
    /// is much of what is known.
    fn verdict(&mut self, record: &Record, evidence: &Evidence) -> Option<&Verdict> {
        let now_s = record.moved.elapsed_s;
        let is_fresh = |found_s: f64| {
            found_s >= VERDICT_ALWAYS_S && (found_s..found_s + VERDICT_EACH_S).contains(&now_s)
        };
        let is_known = self.verdict.as_ref().is_some_and(|(found_s, _)| is_fresh(*found_s));
        if !is_known {
            self.verdict = (!evidence.streams.is_empty()).then(|| (now_s, diagnose(evidence)));
        }
        self.verdict.as_ref().map(|(_, verdict)| verdict)
    }
}

/// Which run it is, in a line: `run 7, 2026-11-26 08:40:12 UTC, a → far:b`.
pub fn about(record: &Record) -> String {
    format!("run {}, {}, {}", record.id, results::started(record), title(record))
}

/// What was copied, and where.
pub fn title(record: &Record) -> String {
    let what = match record.sources.is_empty() {
        true => record.command.clone(),
        false => format!("{} → {}", ends(&record.sources), of_pipe(&record.target, "output")),
    };
    let length = what.chars().count();
    match length > TITLE_LETTERS {
        true => what.chars().take(TITLE_LETTERS).chain(['\u{2026}']).collect(),
        false => what,
    }
}

fn ends(sources: &[String]) -> String {
    let named: Vec<&str> = sources.iter().map(|source| of_pipe(source, "input")).collect();
    named.join(" ")
}

/// `-` as it is called.
fn of_pipe<'a>(end: &'a str, kind: &str) -> &'a str {
    match (end, kind) {
        ("-", "input") => "standard input",
        ("-", _) => "standard output",
        _ => end,
    }
}

fn why_so_far(record: &Record, verdict: Option<&Verdict>, progress: &Progress) -> Vec<Block> {
    let lead = Block::Lead(how_far(record, progress));
    let rest = match verdict {
        Some(_) => why(record, verdict),
        None => {
            let text = "What holds it back is not known: no samples of streams have come. A copy \
                        inside one process has none.";
            vec![Block::Text(text.into()), Block::Facts(moved(record))]
        }
    };
    std::iter::once(lead).chain(rest).collect()
}

/// `45 % of 1.20 GiB copied; 0:32 left at this rate`.
fn how_far(record: &Record, progress: &Progress) -> String {
    let Progress { bytes_done, bytes_found, all_found } = *progress;
    let done = Bytes(bytes_done);
    let Some(found) = bytes_found else {
        return format!("{done} copied; how much there is shows at its end.");
    };
    if !all_found {
        return format!("{done} copied of {} found until now.", Bytes(found));
    }
    let percent = 100.0 * bytes_done as f64 / (found as f64).max(1.0);
    let left_s = found.saturating_sub(bytes_done) as f64 / record.moved.goodput_bytes_per_s;
    let left = match left_s.is_finite() {
        true => format!("; {} left at this rate", live::clock(Nanos((left_s * 1e9) as u64))),
        false => String::new(),
    };
    format!("{percent:.0} % of {} copied{left}.", Bytes(found))
}

/// What was moved, and how fast.
fn moved(record: &Record) -> Vec<(String, String)> {
    let moved = &record.moved;
    let rate = Rate { bytes_per_second: moved.goodput_bytes_per_s };
    let mut facts = vec![
        ("moved".to_string(), with_holes(moved.bytes, moved.hole_bytes)),
        ("time".to_string(), time(record)),
        ("rate".to_string(), format!("{rate}, over that time")),
        ("streams".to_string(), record.options.streams.to_string()),
    ];
    let counts = [
        (moved.failed, "not copied"),
        (moved.kept, "kept as they were"),
        (moved.deleted, "deleted"),
        (moved.held_files, "copied by an earlier run"),
    ];
    let counts = counts.into_iter().filter(|(count, _)| *count > 0);
    facts.extend(counts.map(|(count, name)| (name.to_string(), live::count(count, "file"))));
    if let Some(reason) = &record.void_reason {
        facts.push(("void, because of".into(), reason.clone()));
    }
    facts
}

fn why(record: &Record, verdict: Option<&Verdict>) -> Vec<Block> {
    let mut blocks = not_copied(record);
    let mut facts = moved(record);
    let Some(verdict) = verdict else {
        blocks.extend(without_streams(record));
        blocks.push(Block::Facts(facts));
        return blocks;
    };
    let told = explain::figures(verdict);
    let told = told.into_iter().map(|(name, value)| match name {
        "rate" => ("rate of the streams", value),
        "slow start" => {
            ("slow start", format!("the first {}", explain::time(verdict.figures.ramp_s)))
        }
        _ => (name, value),
    });
    facts.extend(told.map(|(name, value)| (name.to_string(), value)));
    facts.push(("confidence".into(), explain::confidence(verdict)));
    let sampled = verdict.streams.len();
    if sampled != usize::from(record.options.streams) {
        facts.push(("streams with samples".into(), sampled.to_string()));
    }
    blocks.extend([
        Block::Lead(format!("Held back by: {}.", explain::sentence(verdict))),
        Block::Text(format!("What to change{}:", explain::in_order(verdict))),
        Block::List(explain::advice(verdict)),
        Block::Figures(vec![shares(verdict)]),
        Block::Text(beside_verdict(verdict)),
        Block::Facts(facts),
        Block::Table(each_stream(verdict)),
    ]);
    blocks
}

/// What was not copied stands above all else.
fn not_copied(record: &Record) -> Vec<Block> {
    if record.moved.failed == 0 {
        return Vec::new();
    }
    let lead = format!("{} not copied.", live::count(record.moved.failed, "file"));
    let failures = failures::kept(record);
    let list = failures.iter().map(|Failure { path, why }| files::named(path.as_bytes(), why));
    let more = match record.moved.failed.saturating_sub(failures.len() as u64) {
        0 => String::new(),
        _ if failures.is_empty() => String::new(),
        more => format!("And {more} more."),
    };
    vec![Block::Lead(lead), Block::List(list.collect()), Block::Text(more)]
}

/// What is known where no stream was sampled.
fn without_streams(record: &Record) -> Vec<Block> {
    if let Some(verdict) = store::kept(record) {
        return vec![
            Block::Lead(format!("Held back by: {}.", explain::store::sentence(&verdict))),
            Block::Text("What to change:".into()),
            Block::List(vec![explain::store::advice(verdict.primary).to_string()]),
        ];
    }
    let moved = &record.moved;
    let text = match record.conditions.carrier.as_str() {
        _ if moved.bytes == 0 && moved.failed > 0 => "Nothing was moved.",
        _ if moved.bytes == 0 && moved.files == 0 => {
            "Nothing was moved: all was at the destination already."
        }
        "memory" => "The run was inside one process: there are no streams to judge it by.",
        _ => "No streams were sampled: the run was short, or sampling was off.",
    };
    vec![Block::Lead(text.into())]
}

/// What held each stream back; nothing where one stream is the run.
fn each_stream(verdict: &Verdict) -> Table {
    let number = Column::number;
    let rates = verdict.streams.iter().map(|one| one.features.goodput);
    let unit = Unit::of_rates(rates.fold(0.0, f64::max));
    let row = |one: &StreamVerdict| {
        let held = one.shares.all().iter().take(3);
        let held: Vec<String> = held
            .map(|share| format!("{} {:.0} %", share.class.name(), 100.0 * share.share))
            .collect();
        vec![
            one.number.to_string(),
            unit.name_with(one.features.goodput),
            held.join(", "),
            format!("{:.3} %", 100.0 * one.losses.retransmitted()),
            one.losses.episodes.to_string(),
            one.pauses.count.to_string(),
        ]
    };
    let is_many = verdict.streams.len() > 1;
    let rows = verdict.streams.iter().filter(|_| is_many).take(ROWS_MAX).map(row).collect();
    let columns = vec![
        number("stream"),
        number("rate after slow start"),
        Column::text("limited by, share of its time"),
        number("sent again, of all segments sent"),
        number("recovery episodes"),
        number("pauses"),
    ];
    Table { caption: "Each stream".into(), columns, rows }
}

/// The time that the rate is over, and what else passed.
fn time(record: &Record) -> String {
    let moved = &record.moved;
    let over_s = moved.data_bytes() as f64 / moved.goodput_bytes_per_s;
    match over_s.is_finite() && over_s < moved.elapsed_s * 0.995 {
        true => format!(
            "{over_s:.2} s of copying, {:.2} s of login before it: {:.2} s in all",
            moved.elapsed_s - over_s,
            moved.elapsed_s
        ),
        false => format!("{:.2} s", moved.elapsed_s),
    }
}

/// Why the verdict is not what most bytes were limited by, where it is so.
fn beside_verdict(verdict: &Verdict) -> String {
    let Some(first) = verdict.shares.all().first() else { return String::new() };
    let figures = &verdict.figures;
    match verdict.primary {
        Some(Bottleneck::Pauses) if first.class != Bottleneck::Pauses => format!(
            "Bytes are counted here, and while a stream stands still none move. So pauses have \
             few of the bytes, but {:.0} % of the time after slow start: without them the rest \
             would have taken that much less. While data moved, most bytes met: {}.",
            100.0 * figures.pauses.total_s / (figures.duration_s - figures.ramp_s).max(1e-9),
            first.class.name()
        ),
        None => "Nothing limited half of the bytes, so the verdict is mixed.".into(),
        _ => String::new(),
    }
}

fn shares(verdict: &Verdict) -> Figure {
    let bar = |share: &crate::diagnosis::Share| {
        let text = format!("{:.0} %", share.share * 100.0);
        Bar::one(share.class.name(), 0, share.share * 100.0, text)
    };
    let bars = verdict.shares.all().iter().map(bar).collect();
    Figure {
        name: "shares".into(),
        title: "What limited the bytes".into(),
        about: "Shares of the bytes, not of the time: each byte is assigned to what limited its \
                stream when it was acknowledged."
            .into(),
        chart: Chart::Bars(Bars { label: "share of the bytes, %".into(), bars, most: Some(100.0) }),
    }
}

/// Every fact that is known of the hosts, both beside each other where there are two.
fn hosts(record: &Record, environments: &BTreeMap<i64, Environment>) -> Vec<Block> {
    let ids = std::iter::once(&record.source).chain(&record.sink).map(|side| side.environment);
    let mut known: Vec<&Environment> = Vec::new();
    for environment in ids.filter_map(|id| environments.get(&id)) {
        if !known.contains(&environment) {
            known.push(environment);
        }
    }
    let blocks = known.into_iter().flat_map(|environment| {
        let name = ("host".to_string(), environment.host.clone());
        let facts = environment.facts.iter().map(|(name, fact)| (name.clone(), fact.clone()));
        [Block::Facts(std::iter::once(name).chain(facts).collect())]
    });
    blocks.collect()
}

/// From one verdict on a run under way to the next, but not while it is young.
const VERDICT_EACH_S: f64 = 4.5;
const VERDICT_ALWAYS_S: f64 = 10.0;
const TITLE_LETTERS: usize = 160;
const ROWS_MAX: usize = 256;

#[cfg(test)]
mod tests;
