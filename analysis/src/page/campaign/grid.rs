//! Rates over windows and streams, or over the sizes of requests and depths at a store; and round
//! trips at rest and under load.

use std::collections::BTreeSet;

use super::estimate;
use crate::campaign::Kind;
use crate::campaign::study::{OFF, PASSES_MIN, Row};
use crate::plot::scale::Unit;
use crate::plot::{Axis, Chart, Figure, Heat, Series, Ticks, Xy, colour};
use crate::report::campaign as text;

/// Of each level a heat map, and of the first one lines too.
pub(super) fn figures(rows: &[&Row]) -> Vec<Figure> {
    let rows: Vec<&Row> = rows.iter().copied().filter(|row| row.point.kind == Kind::Grid).collect();
    let Some(axes) = rows.first().map(|row| text::axes_of(&row.point.choice).0) else {
        return Vec::new();
    };
    let (windows, streams) = (windows(&rows), streams(&rows));
    let names = [axes[0], axes[1]];
    let mut found = Vec::new();
    let levels = levels(&rows);
    if windows.len() > 1 && streams.len() > 1 {
        found.extend(levels.iter().map(|level| {
            let title = named(level, &levels);
            heat(&rows, (level, &title), names, (&windows, &streams))
        }));
    }
    // Without compression first: then the network is what is measured. Then the level that won.
    let first = levels.iter().find(|level| *level == OFF).or_else(|| levels.first());
    let won = fastest(rows.iter().copied()).map(|row| row.point.choice.level().to_string());
    let won = won.as_ref().filter(|level| Some(*level) != first);
    for level in first.into_iter().chain(won).filter(|_| streams.len() > 1) {
        let title = named(level, &levels);
        found.push(lines(&of_level(&rows, level), (level, &title), names, &windows));
    }
    found
}

fn of_level<'a>(rows: &[&'a Row], level: &str) -> Vec<&'a Row> {
    rows.iter().copied().filter(|row| row.point.choice.level() == level).collect()
}

fn fastest<'a>(rows: impl Iterator<Item = &'a Row>) -> Option<&'a Row> {
    rows.max_by(|a, b| a.rate.median.total_cmp(&b.rate.median))
}

/// `, compression zlib:1`; nothing where no cell was compressed.
fn named(level: &str, levels: &[String]) -> String {
    match levels {
        [only] if only == OFF => String::new(),
        _ => format!(", compression {level}"),
    }
}

/// The name of an axis for all of its values.
fn many(axis: &str) -> String {
    if axis.ends_with('s') { axis.to_string() } else { format!("{axis}s") }
}

/// A name of letters, digits and `-`.
fn plain_name(name: &str, level: &str) -> String {
    format!("{name}-{}", level.replace(|c: char| !c.is_ascii_alphanumeric(), "-"))
}

fn windows(rows: &[&Row]) -> Vec<Option<u32>> {
    let all: BTreeSet<Option<u32>> = rows.iter().map(|row| row.point.choice.bytes()).collect();
    // `auto`, which is none, comes last.
    let (auto, given): (Vec<_>, Vec<_>) = all.into_iter().partition(Option::is_none);
    given.into_iter().chain(auto).collect()
}

fn streams(rows: &[&Row]) -> Vec<u16> {
    let all: BTreeSet<u16> = rows.iter().filter_map(|row| row.point.choice.count()).collect();
    all.into_iter().collect()
}

/// In the order of names; `off` first.
fn levels(rows: &[&Row]) -> Vec<String> {
    let all: BTreeSet<&str> = rows.iter().map(|row| row.point.choice.level()).collect();
    let mut all: Vec<String> = all.into_iter().map(String::from).collect();
    all.sort_by_key(|level| (level != OFF, level.clone()));
    all
}

fn heat(
    rows: &[&Row],
    (level, named): (&str, &str),
    [of_bytes, of_count]: [&str; 2],
    (windows, streams): (&[Option<u32>], &[u16]),
) -> Figure {
    let at = |window: &Option<u32>, streams: &u16| {
        let fits = |row: &&&Row| {
            let choice = &row.point.choice;
            let place = (choice.bytes(), choice.count(), choice.level());
            place == (*window, Some(*streams), level)
        };
        rows.iter().find(fits).map(|row| row.rate.median)
    };
    let values: Vec<Vec<Option<f64>>> = windows
        .iter()
        .rev()
        .map(|window| streams.iter().map(|count| at(window, count)).collect())
        .collect();
    let most = values.iter().flatten().flatten().copied().fold(0.0, f64::max);
    let unit = Unit::of_rates(most);
    let scaled = |row: Vec<Option<f64>>| {
        row.into_iter().map(|cell| cell.map(|rate| rate / unit.of)).collect()
    };
    let best = fastest(of_level(rows, level).into_iter()).and_then(|row| {
        let choice = &row.point.choice;
        let window = windows.iter().rev().position(|window| *window == choice.bytes())?;
        let count = streams.iter().position(|count| Some(*count) == choice.count())?;
        let rate = unit.name_with(row.rate.median);
        let (setting, streams) = (text::window(choice.bytes()), streams[count]);
        let told = format!("fastest: {of_bytes} {setting}, {of_count} {streams}, {rate}");
        Some((window, count, told))
    });
    Figure {
        name: plain_name("heat", level),
        title: format!("Rate over {} and {}{}", many(of_bytes), many(of_count), named),
        about: "Medians of all passes; the brighter, the faster. The fastest cell has a frame."
            .into(),
        chart: Chart::Heat(Heat {
            label: format!("rate, {}", unit.name),
            row_label: of_bytes.into(),
            column_label: of_count.into(),
            rows: windows.iter().rev().map(|window| text::window(*window)).collect(),
            columns: streams.iter().map(u16::to_string).collect(),
            values: values.into_iter().map(scaled).collect(),
            best,
            spots: Vec::new(),
        }),
    }
}

fn lines(
    rows: &[&Row],
    (level, named): (&str, &str),
    [of_bytes, of_count]: [&str; 2],
    windows: &[Option<u32>],
) -> Figure {
    let most = rows.iter().map(|row| row.rate.median).fold(0.0, f64::max);
    let unit = Unit::of_rates(most);
    let some = shown(rows, windows);
    let series = some.iter().enumerate().map(|(place, window)| {
        let mut mine: Vec<&&Row> =
            rows.iter().filter(|row| row.point.choice.bytes() == *window).collect();
        mine.sort_by_key(|row| row.point.choice.count());
        let count = |row: &Row| f64::from(row.point.choice.count().unwrap_or(0));
        let point = |row: &&&Row| (count(row), row.rate.median / unit.of);
        let limits = |row: &&&Row| {
            let found = estimate(row).filter(|_| row.rate.n >= PASSES_MIN)?;
            Some((found.low / unit.of, found.high / unit.of))
        };
        let limits: Option<Vec<(f64, f64)>> = mine.iter().map(limits).collect();
        let name = format!("{of_bytes} {}", text::window(*window));
        let line = Series::line(&name, place, mine.iter().map(point).collect());
        Series { limits: limits.unwrap_or_default(), ..line }
    });
    // A count is whole; ticks of many are whole anyway.
    let ticks = match rows.iter().filter_map(|row| row.point.choice.count()).max() {
        Some(most) if most <= 8 => {
            Ticks::At((0..=most).map(|count| (f64::from(count), count.to_string())).collect())
        }
        _ => Ticks::Round,
    };
    let shown = match some.len() < windows.len() {
        true => format!(
            " {} of {} {} are drawn, those that won among them.",
            some.len(),
            windows.len(),
            many(of_bytes)
        ),
        false => String::new(),
    };
    Figure {
        name: if level == OFF { "lines".into() } else { plain_name("lines", level) },
        title: format!("Rate over {}{}", many(of_count), named),
        about: format!(
            "Medians of all passes; bars are 95 % intervals, where there are {PASSES_MIN} passes \
             or more.{shown}"
        ),
        chart: Chart::Xy(Xy {
            x: Axis { ticks, ..Axis::from_zero(of_count) },
            y: Axis::from_zero(&format!("rate, {}", unit.name)),
            series: series.collect(),
            marks: Vec::new(),
        }),
    }
}

/// As many as there are colours: the window of the fastest cell, those that won with some number of
/// streams, the fastest first, and of the others some from the first to the last.
fn shown(rows: &[&Row], windows: &[Option<u32>]) -> Vec<Option<u32>> {
    let mut winners: Vec<&Row> = streams(rows)
        .into_iter()
        .filter_map(|count| {
            fastest(rows.iter().copied().filter(|row| row.point.choice.count() == Some(count)))
        })
        .collect();
    winners.sort_by(|a, b| b.rate.median.total_cmp(&a.rate.median));
    let last = windows.len().saturating_sub(1);
    let spread = (0..colour::COUNT).map(|at| windows[at * last / (colour::COUNT - 1)]);
    let wanted = winners.iter().map(|row| row.point.choice.bytes());
    let mut chosen: Vec<Option<u32>> = Vec::new();
    for window in wanted.chain(spread).chain(windows.iter().copied()) {
        if chosen.len() < colour::COUNT && !chosen.contains(&window) {
            chosen.push(window);
        }
    }
    windows.iter().copied().filter(|window| chosen.contains(window)).collect()
}

/// What the load does to the round trip: one point for each setting.
pub(super) fn round_trips(rows: &[&Row]) -> Option<Figure> {
    let rate = |row: &Row| row.rate.median;
    let most = rows.iter().map(|row| rate(row)).fold(0.0, f64::max);
    let unit = Unit::of_rates(most);
    let trips = |pick: fn(&Row) -> Option<f64>| -> Vec<(f64, f64)> {
        let mut points: Vec<(f64, f64)> =
            rows.iter().filter_map(|row| Some((rate(row) / unit.of, pick(row)? * 1e3))).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        points
    };
    let (rest, load) = (trips(|row| row.rtt_unloaded_s), trips(|row| row.rtt_loaded_s));
    if load.is_empty() {
        return None;
    }
    Some(Figure {
        name: "round-trips".into(),
        title: "Round trip at rest and under load".into(),
        about:
            "One point of each kind for each setting, at the rate that it reached. What load adds \
                waits in queues."
                .into(),
        chart: Chart::Xy(Xy {
            x: Axis { ticks: Ticks::Round, ..Axis::from_zero(&format!("rate, {}", unit.name)) },
            y: Axis::from_zero("round trip, ms"),
            series: vec![Series::dots("under load", 1, load), Series::dots("at rest", 0, rest)],
            marks: Vec::new(),
        }),
    })
}
