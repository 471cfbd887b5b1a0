//! The page of a campaign: for each host the best setting beside the program's own choice, rates
//! over windows, streams and levels, round trips, how long a copy must be; and what changed since
//! another campaign.

mod changes;
mod grid;
mod lengths;
mod levels;

use super::{Block, Page, Section};
use crate::campaign::study::{self, Best, Choice, OFF, Point, Row};
use crate::plot::scale::Unit;
use crate::plot::{Bar, Bars, Chart, Column, Figure, Part, Table};
use crate::record::sample::Record;
use crate::report::{campaign as text, live, results};
use crate::statistics::{Estimate, median_estimate};

/// A campaign and its cells.
#[derive(Clone, Copy, Debug)]
pub struct Campaign<'a> {
    pub name: &'a str,
    pub records: &'a [Record],
}

/// The page of a campaign, beside an earlier one if there is one.
pub fn page(campaign: Campaign<'_>, earlier: Option<Campaign<'_>>) -> Page {
    let rows = study::rows(campaign.records);
    let best = study::best(&rows);
    let mut sections =
        vec![Section::of("overview", "The best of each host", overview(campaign, &best, &rows))];
    if let Some(earlier) = earlier {
        let before = study::rows(earlier.records);
        let blocks = changes::blocks(earlier.name, &before, &rows);
        sections.push(Section::of("changes", "What changed", blocks));
    }
    for (number, one) in best.iter().enumerate() {
        let of_host: Vec<&Row> = rows.iter().filter(|row| row.point.host == one.host).collect();
        let blocks = match number < HOSTS_MAX {
            true => host(number, one, &of_host),
            false => vec![Block::Table(table(&of_host))],
        };
        sections.push(Section::of(&format!("host-{number}"), one.host, blocks));
    }
    let began = campaign.records.first().map_or(String::new(), results::started);
    Page {
        title: format!("Campaign {}", campaign.name),
        subtitle: format!(
            "{} on {}, {began}",
            live::count(campaign.records.len() as u64, "cell"),
            live::count(best.len() as u64, "host")
        ),
        sections: sections.into_iter().flatten().collect(),
    }
}

fn overview(campaign: Campaign<'_>, best: &[Best<'_>], rows: &[Row]) -> Vec<Block> {
    let sentences = best.iter().filter_map(|one| sentence(one, rows.iter())).collect();
    let bars: Vec<Bar> = best.iter().flat_map(|one| beside(one, rows)).collect();
    let figure = Figure {
        name: "best".into(),
        title: "The best setting beside the program’s own choice".into(),
        about: "Medians of all passes, as a share of the best of the lists on that host.".into(),
        chart: Chart::Bars(Bars { label: "share of the best rate, %".into(), bars, most: None }),
    };
    let duty =
        study::duty(campaign.records).filter(|duty| *duty > 0.0).map_or(String::new(), |duty| {
            format!("Paths were loaded for {:.0} % of the time.", duty * 100.0)
        });
    vec![Block::List(sentences), Block::Figures(vec![figure]), Block::Text(duty)]
}

/// The answer for a host in a sentence.
fn sentence<'a>(best: &Best<'_>, rows: impl Iterator<Item = &'a Row>) -> Option<String> {
    let grid = best.grid?;
    let passes = grid.rate.n;
    let rate = told(grid);
    let own = best.usual().or_else(|| best.auto.first().map(|(row, _)| *row));
    let ratio = own.and_then(|own| best.auto.iter().find(|(row, _)| *row == own)?.1);
    let own = match (own, ratio) {
        (Some(own), Some(ratio)) => format!(
            "; by itself the program makes {} ({:.3} of it{})",
            Unit::of_rates(own.rate.median).name_with(own.rate.median),
            ratio.value,
            interval(ratio, own.rate.n.min(passes))
        ),
        _ => String::new(),
    };
    let compressed = compressed(grid, rows);
    let setting = text::chosen(&grid.point.choice);
    Some(format!("{}: {setting} carries {rate}{own}.{compressed}", best.host))
}

/// What a rate is that was reached by compression: how much of it the network carried, and what the
/// best setting without compression is.
fn compressed<'a>(grid: &Row, rows: impl Iterator<Item = &'a Row>) -> String {
    if grid.point.choice.level() == OFF {
        return String::new();
    }
    let rate = |bytes_per_s: f64| Unit::of_rates(bytes_per_s).name_with(bytes_per_s);
    let ratio = grid.compression_ratio.filter(|ratio| *ratio > 1.0);
    let ratio = ratio.map_or(String::new(), |ratio| {
        let carried = rate(grid.rate.median / ratio);
        format!(", of which the network carried {carried} (compressed to 1/{ratio:.1})")
    });
    let plain = best_without(grid, rows).map_or(String::new(), |row| {
        let setting = text::chosen(&row.point.choice);
        format!(" Without compression the best is {setting}: {}.", rate(row.rate.median))
    });
    format!(" It is reached by compression{ratio}: files that do not shrink gain nothing.{plain}")
}

/// The best setting without compression of the same host, where the best has some.
fn best_without<'a>(grid: &Row, rows: impl Iterator<Item = &'a Row>) -> Option<&'a Row> {
    let point = &grid.point;
    let same = rows.filter(|row| {
        let other = &row.point;
        (&other.host, other.kind, other.extent) == (&point.host, point.kind, point.extent)
    });
    same.filter(|row| point.choice.level() != OFF && row.point.choice.level() == OFF)
        .max_by(|a, b| a.rate.median.total_cmp(&b.rate.median))
}

/// A median with its interval, where there are passes for one.
fn told(row: &Row) -> String {
    let unit = Unit::of_rates(row.rate.median);
    let limits = estimate(row).filter(|_| row.rate.n >= study::PASSES_MIN);
    let limits = limits.map_or(String::new(), |found| {
        let (low, high) = (found.low / unit.of, found.high / unit.of);
        format!(
            " (95 %: {} to {})",
            crate::plot::scale::value(low),
            crate::plot::scale::value(high)
        )
    });
    format!("{}{limits}", unit.name_with(row.rate.median))
}

fn interval(ratio: Estimate, passes: usize) -> String {
    match passes >= study::PASSES_MIN {
        true => format!(", 95 %: {:.3} to {:.3}", ratio.low, ratio.high),
        false => match passes {
            1 => ", measured once: it may be chance".into(),
            _ => format!(", measured {passes} times: it may be chance"),
        },
    }
}

/// The best of a host's lists is the whole; its own choices stand beside it.
fn beside(best: &Best<'_>, rows: &[Row]) -> Vec<Bar> {
    let whole = best.grid.map_or(f64::NAN, |row| row.rate.median);
    let bar = |row: &Row, name: &str, colour| Bar {
        name: format!("{}: {}", best.host, text::chosen(&row.point.choice)),
        parts: vec![Part { name: name.into(), colour, value: row.rate.median / whole * 100.0 }],
        text: Unit::of_rates(row.rate.median).name_with(row.rate.median),
    };
    let grid = best.grid.map(|row| bar(row, "best of the lists", 0));
    let plain = best.grid.and_then(|grid| best_without(grid, rows.iter()));
    let plain = plain.map(|row| bar(row, "best without compression", 3));
    let own = best.auto.iter().map(|(row, _)| bar(row, "own choice", 1));
    grid.into_iter().chain(plain).chain(own).collect()
}

fn host(number: usize, best: &Best<'_>, rows: &[&Row]) -> Vec<Block> {
    let longest = rows.iter().map(|row| row.point.extent).max();
    let same: Vec<&Row> =
        rows.iter().copied().filter(|row| Some(row.point.extent) == longest).collect();
    let mut figures = Vec::new();
    figures.extend(grid::figures(&same));
    figures.extend(levels::figures(best, &same));
    figures.extend(grid::round_trips(&same));
    figures.extend(lengths::figures(rows));
    // Names are unique in a page.
    for figure in &mut figures {
        figure.name = format!("{}-{number}", figure.name);
    }
    let lead = sentence(best, rows.iter().copied()).map(Block::Lead);
    lead.into_iter().chain([Block::Figures(figures), Block::Table(table(rows))]).collect()
}

/// Each setting, the fastest first.
fn table(rows: &[&Row]) -> Table {
    let mut rows = rows.to_vec();
    rows.sort_by(|a, b| b.rate.median.total_cmp(&a.rate.median));
    let most = rows.first().map_or(0.0, |row| row.rate.median);
    let unit = Unit::of_rates(most);
    let number = Column::number;
    let caption = match rows.len() > ROWS_MAX {
        true => format!("Median rates: the fastest {ROWS_MAX} of {} settings", rows.len()),
        false => "Median rates of all settings, the fastest first".to_string(),
    };
    let (names, _) = rows.first().map(|row| text::axes_of(&row.point.choice)).unwrap_or_default();
    let is_store = rows.iter().any(|row| is_store(row));
    let more: &[&str] = if is_store { &STORE_COLUMNS } else { &PATH_COLUMNS };
    Table {
        caption,
        // What is looked for comes first: on a phone the first four columns fit.
        columns: [number(unit.name)]
            .into_iter()
            .chain(names.iter().map(|name| number(name)))
            .chain(is_store.then(|| Column::text("held back by")))
            .chain([
                Column::text("choice"),
                number("middle half"),
                number("passes"),
                number("length"),
            ])
            .chain(more.iter().map(|name| number(name)))
            .collect(),
        rows: rows.into_iter().take(ROWS_MAX).map(|row| cells(row, unit)).collect(),
    }
}

fn cells(row: &Row, unit: Unit) -> Vec<String> {
    let Point { kind, choice, extent, .. } = &row.point;
    let value = crate::plot::scale::value;
    let times = |figure: Option<f64>, by: f64| figure.map_or("-".into(), |f| value(f * by));
    let mut cells = vec![value(row.rate.median / unit.of)];
    cells.extend(text::axes_of(choice).1);
    if is_store(row) {
        cells.push(text::held_back(row));
    }
    cells.extend([
        kind.name().into(),
        format!(
            "{} to {}",
            value(row.rate.lower_quartile / unit.of),
            value(row.rate.upper_quartile / unit.of)
        ),
        row.rate.n.to_string(),
        extent.typed(),
    ]);
    if !is_store(row) {
        cells.extend([times(row.rtt_unloaded_s, 1e3), times(row.rtt_loaded_s, 1e3)]);
    }
    cells.push(times(row.cpu_source, 100.0));
    if !is_store(row) {
        cells.push(times(row.cpu_sink, 100.0));
    }
    cells
}

/// A store has no probes, and no CPU time that is known here.
fn is_store(row: &Row) -> bool {
    matches!(row.point.choice, Choice::Store { .. })
}

const PATH_COLUMNS: [&str; 4] = ["rest, ms", "load, ms", "CPU here, %", "CPU there, %"];
const STORE_COLUMNS: [&str; 1] = ["CPU here, %"];

/// The median rate of a setting with its interval.
fn estimate(row: &Row) -> Option<Estimate> {
    median_estimate(&row.rates, SEED)
}

/// Any value will do: the same records give the same intervals.
const SEED: u64 = 1;
/// Hosts with charts; the others have their table.
const HOSTS_MAX: usize = 8;
const ROWS_MAX: usize = 200;

#[cfg(test)]
mod tests;
