//! Recorded runs as text: a list of many, and the details of one.

use std::collections::BTreeMap;
use std::time::Duration;

use super::escape;
use super::utc::utc;
use crate::record::columns::{self, COLUMNS, Cell, Column, Kind};
use crate::record::export::cpu_ns_per_byte;
use crate::record::sample::{Environment, Machine, Record, SeriesPoint, Side};
use base::job::{PathRole, StreamPath};
use base::units::{Bytes, Rate};

/// A table with one line for each run.
pub fn list(records: &[Record]) -> String {
    if records.is_empty() {
        return "no matching runs\n".to_string();
    }
    let mut rows = vec![LIST_HEADINGS.map(String::from)];
    rows.extend(records.iter().map(list_row));
    let mut widths = [0; LIST_HEADINGS.len()];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |row: &[String; LIST_HEADINGS.len()]| {
        let cells =
            row.iter().zip(widths).enumerate().map(|(at, (cell, width))| {
                match LIST_NUMBERS.contains(&at) {
                    true => format!("{cell:>width$}"),
                    false => format!("{cell:width$}"),
                }
            });
        format!("{}\n", cells.collect::<Vec<_>>().join("  ").trim_end())
    };
    rows.iter().map(line).collect()
}

/// One run in one line, without its number: when, which command, what, bytes and rate.
pub fn headline(record: &Record) -> String {
    list_row(record)[1..6].join(", ")
}

/// How much of a run is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    Usual,
    /// With each setting of the kernels.
    All,
}

/// All data of one run.
pub fn show(record: &Record, environments: &BTreeMap<i64, Environment>, detail: Detail) -> String {
    let mut text = format!("run {}, {}\n", record.id, when(record));
    let value = columns::value(record);
    let listed = |column: &&Column| LISTED_APART.contains(&column.path);
    let of_side = |column: &&Column, role| column.path.split('.').next() == Some(role);
    let cells = |some: &dyn Fn(&&Column) -> bool| -> Vec<(String, Cell)> {
        COLUMNS.iter().filter(some).map(|c| (c.name(), c.cell(&value))).collect()
    };
    let sides = |column: &&Column| of_side(column, "source") || of_side(column, "sink");
    text.push_str(&section("", cells(&|column| !sides(column) && !listed(column))));
    let more = record.more.iter().map(|(name, value)| (name.clone(), value.to_string()));
    text.push_str(&lines("more", more));
    let sides = std::iter::once(("source", &record.source));
    let sink = record.sink.as_ref().map(|side| ("sink", side));
    for (role, side) in sides.chain(sink) {
        let named = cells(&|column| of_side(column, role) && column.kind != Kind::Json);
        text.push_str(&side_text(role, side, named));
    }
    for machine in &record.machines {
        text.push_str(&section("machine", of_machine(machine)));
        let threads = machine.kernel_threads.iter().map(|thread| {
            let cpu = thread.cpu.map_or(String::new(), |cpu| format!(" on CPU {cpu}"));
            (format!("{}{cpu}", thread.name), format!("{:.6} s", thread.cpu_s))
        });
        text.push_str(&lines("kernel threads of the machine", threads));
    }
    let gates = record.gates.iter().map(|gate| {
        let verdict = if gate.passed { "passed" } else { "FAILED" };
        (gate.name.clone(), format!("{verdict}: {} (limit {})", gate.value, gate.limit))
    });
    text.push_str(&lines("gates", gates));
    text.push_str(&lines("data streams", record.paths.iter().map(path)));
    text.push_str(&series(&record.series));
    for (id, environment) in environments {
        let here = |side: &Side| side.environment == *id;
        if here(&record.source) || record.sink.as_ref().is_some_and(here) {
            let heading = format!("environment {id}, {}", environment.host);
            text.push_str(&lines(&heading, facts(environment, detail).into_iter()));
        }
    }
    text
}

/// What is known of a host; of a kernel's settings, of which there are a hundred, how many.
fn facts(environment: &Environment, detail: Detail) -> Vec<(String, String)> {
    let is_shown = |name: &str| detail == Detail::All || !name.starts_with(SETTING);
    let known = || environment.facts.iter();
    let mut facts: Vec<(String, String)> = known()
        .filter(|(name, _)| is_shown(name))
        .map(|(name, fact)| (name.clone(), fact.clone()))
        .collect();
    match known().count() - facts.len() {
        0 => {}
        hidden => facts.push((SETTING.trim().into(), format!("{hidden} of them: -v shows them"))),
    }
    facts
}

fn list_row(record: &Record) -> [String; LIST_HEADINGS.len()] {
    let what = match &record.place {
        Some(place) => format!("{} {}", place.scenario.name(), place.experiment),
        None if record.sources.is_empty() => String::new(),
        None => format!("{} -> {}", record.sources.join(" "), record.target),
    };
    let cost = cpu_ns_per_byte(record).map_or("-".to_string(), |cost| format!("{cost:.3}"));
    // A net test has the rate that it printed: without what was omitted at its beginning.
    let steady = record.moved.steady_bytes_per_s.filter(|_| record.command == "net-test");
    let rate = Rate { bytes_per_second: steady.unwrap_or(record.moved.goodput_bytes_per_s) };
    [
        record.id.to_string(),
        when(record),
        record.command.clone(),
        shortened(&what),
        Bytes(record.moved.bytes).to_string(),
        rate.to_string(),
        cost,
        record.void_reason.clone().unwrap_or_default(),
    ]
    .map(|cell| escape::line(&cell))
}

fn side_text(role: &str, side: &Side, cells: Vec<(String, Cell)>) -> String {
    let without_role = |name: String| name[role.len() + 1..].to_string();
    let cells = cells.into_iter().map(|(name, cell)| (without_role(name), cell)).collect();
    let mut text = section(role, cells);
    let cpus: Vec<String> = side.cpus.iter().map(u32::to_string).collect();
    let cpus = (!cpus.is_empty()).then(|| (role.to_string(), cpus.join(" ")));
    text.push_str(&lines("bound to CPUs", cpus.into_iter()));
    let spent = |by: &BTreeMap<String, f64>| -> Vec<(String, String)> {
        by.iter().map(|(name, spent)| (name.clone(), format!("{spent:.6} s"))).collect()
    };
    text.push_str(&lines(&format!("stages of the {role}"), spent(&side.stages_s).into_iter()));
    let threads = spent(&side.kernel_threads_s).into_iter();
    text.push_str(&lines(&format!("kernel threads of the {role}"), threads));
    text
}

/// A stream in one line: its last sample, and extremes over all samples.
fn path(path: &StreamPath) -> (String, String) {
    let StreamPath { stream, side, role, samples } = path;
    let name = format!("{stream}, {} {}", side.name(), role.name());
    let (Some(first), Some(last)) = (samples.first(), samples.last()) else {
        return (name, "no samples".into());
    };
    let moved = match role {
        PathRole::Source => format!(
            "{} of {} segments retransmitted, peer window {}",
            last.segments_retransmitted,
            last.segments_sent,
            Bytes(samples.iter().map(|sample| sample.peer_window_bytes).max().unwrap_or(0).into())
        ),
        PathRole::Sink => format!("{} received", Bytes(last.bytes_received)),
    };
    let text = format!(
        "{} samples in {}, RTT {} (least {}), {moved}",
        samples.len(),
        last.at.since(first.at),
        last.rtt,
        last.rtt_min
    );
    (name, text)
}

/// Some of the points, evenly spaced; an export has all.
fn series(points: &[SeriesPoint]) -> String {
    let step = points.len().div_ceil(SERIES_LINES).max(1);
    let some = points.iter().step_by(step);
    let rows = some.map(|point| (format!("{:.3} s", point.at_s), Bytes(point.bytes).to_string()));
    let heading = match step {
        1 => "series".to_string(),
        _ => format!("series, one of each {step} points"),
    };
    lines(&heading, rows)
}

fn of_machine(machine: &Machine) -> Vec<(String, Cell)> {
    let Machine { cpus, span_s, busy_idle_s, busy_iter_s, busy_clock_s, background_s, .. } =
        machine;
    let soaked: Vec<String> = machine.soaked_cpus.iter().map(u32::to_string).collect();
    vec![
        ("cpus".to_string(), Cell::Integer(Some((*cpus).into()))),
        ("span_s".to_string(), Cell::Real(Some(*span_s))),
        ("busy_idle_s".to_string(), Cell::Real(Some(*busy_idle_s))),
        ("busy_iter_s".to_string(), Cell::Real(*busy_iter_s)),
        ("busy_clock_s".to_string(), Cell::Real(*busy_clock_s)),
        ("background_s".to_string(), Cell::Real(*background_s)),
        ("steal_s".to_string(), Cell::Real(Some(machine.steal_s))),
        ("soaked_cpus".to_string(), Cell::Text(Some(soaked.join(" ")))),
    ]
}

fn section(heading: &str, cells: Vec<(String, Cell)>) -> String {
    let there = cells.into_iter().filter_map(|(name, cell)| {
        let value = match cell {
            Cell::Integer(value) => match name.ends_with("bytes") {
                true => value.map(|value| {
                    let bytes = Bytes(value.unsigned_abs());
                    if bytes.0 < 1024 { bytes.to_string() } else { format!("{value} ({bytes})") }
                }),
                false => value.map(|value| value.to_string()),
            },
            Cell::Real(value) => value.map(|value| value.to_string()),
            Cell::Text(value) => value.filter(|value| !value.is_empty() && value != "[]"),
        };
        Some((name, value?))
    });
    lines(heading, there)
}

/// Two aligned columns below a heading; empty where there are no rows.
fn lines(heading: &str, rows: impl Iterator<Item = (String, String)>) -> String {
    let plain = |(name, value): (String, String)| (escape::line(&name), escape::line(&value));
    let rows: Vec<(String, String)> = rows.map(plain).collect();
    if rows.is_empty() {
        return String::new();
    }
    let width = rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    let heading =
        if heading.is_empty() { String::new() } else { format!("\n{}\n", escape::line(heading)) };
    let rows = rows.iter().map(|(name, value)| format!("  {name:width$}  {value}\n"));
    heading + &rows.collect::<String>()
}

/// When a run began, in UTC.
pub fn started(record: &Record) -> String {
    format!("{} UTC", when(record))
}

fn when(record: &Record) -> String {
    let since = Duration::try_from_secs_f64(record.started_unix_s).unwrap_or_default();
    let full = utc(since);
    // To the second: `2026-11-20 12:15:03`.
    full.split('.').next().unwrap_or_default().replace('T', " ")
}

fn shortened(text: &str) -> String {
    match text.chars().count() > WHAT_COLUMNS {
        true => text.chars().take(WHAT_COLUMNS - 1).chain(['\u{2026}']).collect(),
        false => text.to_string(),
    }
}

const LIST_HEADINGS: [&str; 8] =
    ["run", "when (UTC)", "command", "what", "bytes", "rate", "CPU ns/B", "void"];
/// Columns that are aligned right.
const LIST_NUMBERS: [usize; 4] = [0, 4, 5, 6];
/// Fields of a record that have sections of their own.
const LISTED_APART: [&str; 4] = ["schema", "machines", "gates", "more"];
const WHAT_COLUMNS: usize = 44;
const SERIES_LINES: usize = 20;
/// How the names of a kernel's settings begin.
const SETTING: &str = "sysctl ";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::export::flat;
    use crate::record::sample::{Gate, KernelThread, Machine, Moved, PlaceInExperiment, Scenario};

    fn records() -> Vec<Record> {
        let moved =
            Moved { bytes: 1 << 30, elapsed_s: 2.0, goodput_bytes_per_s: 5e8, ..Moved::default() };
        let copy = Record {
            id: 1,
            command: "copy".into(),
            started_unix_s: 951_782_399.5,
            sources: vec!["a\u{1b}[2J".into(), "b\nc".into()],
            target: "host:long".repeat(9),
            moved,
            source: Side { cpu_user_s: 1.073741824, ..Side::default() },
            ..Record::default()
        };
        let place = PlaceInExperiment {
            experiment: "e1".into(),
            scenario: Scenario::Cpu,
            seed: 1,
            order_index: 0,
            repeat: 0,
            block: 0,
        };
        let thread = KernelThread { name: "ksoftirqd/0".into(), cpu: Some(0), cpu_s: 0.5 };
        let machine = Machine { kernel_threads: vec![thread], ..Machine::default() };
        let gate = Gate { name: "drift".into(), value: 0.05, limit: 0.03, passed: false };
        let measured = Record {
            id: 22,
            command: "measure".into(),
            place: Some(place),
            machines: vec![machine],
            gates: vec![gate],
            void_reason: Some("drift".into()),
            started_unix_s: f64::NAN,
            series: vec![SeriesPoint { at_s: 0.1, bytes: 2048 }; 50],
            source: Side { environment: 3, ..Side::default() },
            ..Record::default()
        };
        vec![copy, measured]
    }

    #[test]
    fn a_list() {
        let text = list(&records());
        insta::assert_snapshot!("list", text);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3, "{text}");
        assert!(lines[0].starts_with("run  when (UTC)           command  what"), "{text}");
        assert!(
            lines[1].starts_with("  1  2000-02-28 23:59:59  copy     a\\u{1b}[2J b\\nc -> host")
        );
        assert!(lines[1].contains("1 GiB") && lines[1].ends_with("1.000"), "{text}");
        assert!(lines[2].starts_with(" 22  1970-01-01 00:00:00  measure  cpu e1"), "{text}");
        assert!(lines[2].ends_with("-  drift"), "{text}");
        assert_eq!(list(&[]), "no matching runs\n");
    }

    #[test]
    fn all_of_one() {
        let facts = [("kernel", "6.1"), ("sysctl net.core.rmem_max", "212992")];
        let facts = BTreeMap::from(facts.map(|(name, fact)| (name.into(), fact.into())));
        let environment = Environment { host: "ada".into(), facts };
        let environments = BTreeMap::from([(3, environment.clone()), (4, environment)]);
        let text = show(&records()[1], &environments, Detail::Usual);
        insta::assert_snapshot!("show", text);
        for expect in [
            "run 22, 1970-01-01 00:00:00\n",
            "  experiment           e1\n",
            "\nkernel threads of the machine\n  ksoftirqd/0 on CPU 0  0.500000 s\n",
            "\ngates\n  drift  FAILED: 0.05 (limit 0.03)\n",
            "\nseries, one of each 3 points\n  0.100 s  2 KiB\n",
            "\nenvironment 3, ada\n  kernel  6.1\n  sysctl  1 of them: -v shows them\n",
        ] {
            assert!(text.contains(expect), "{expect}\n{text}");
        }
        let all = show(&records()[1], &environments, Detail::All);
        assert!(all.contains("  sysctl net.core.rmem_max  212992\n"), "{all}");
        let few = Record { series: records()[1].series[..7].to_vec(), ..records()[1].clone() };
        let few = show(&few, &environments, Detail::Usual);
        assert!(few.contains("\nseries\n  0.100 s  2 KiB\n"), "{few}");
        assert!(!text.contains("environment 4"), "{text}");
        let text = show(&records()[0], &environments, Detail::Usual);
        assert!(text.contains("  bytes                1073741824 (1 GiB)"), "{text}");
        assert!(!text.contains('\u{1b}'), "{text}");
        // What is in a row is on the page too.
        for (name, cell) in flat(&records()[0]) {
            let side = name.starts_with("source_") || name.starts_with("sink_");
            let there = matches!(cell, Cell::Integer(Some(_)) | Cell::Real(Some(_)));
            let derived = matches!(name.as_str(), "id" | "schema" | "cpu_ns_per_byte");
            assert!(side || derived || !there || text.contains(&name), "{name}\n{text}");
        }
    }
}
