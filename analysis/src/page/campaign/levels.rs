//! What levels of compression gain, and what they cost.

use crate::campaign::Kind;
use crate::campaign::study::{Best, OFF, Row};
use crate::plot::scale::Unit;
use crate::plot::{Axis, Chart, Figure, Series, Ticks, Xy};
use crate::report::campaign as text;

/// At the window and the streams of the best setting.
pub(super) fn figures(best: &Best<'_>, rows: &[&Row]) -> Vec<Figure> {
    let Some(grid) = best.grid else { return Vec::new() };
    let choice = &grid.point.choice;
    let mut levels: Vec<&Row> = rows
        .iter()
        .copied()
        .filter(|row| {
            let other = &row.point.choice;
            row.point.kind == Kind::Grid
                && other.bytes() == choice.bytes()
                && other.count() == choice.count()
        })
        .collect();
    levels.sort_by_key(|row| {
        let level = row.point.choice.level().to_string();
        (level != OFF, level)
    });
    if levels.len() < 2 {
        return Vec::new();
    }
    let count = text::depth(choice.count());
    let at = format!("{}, {count} streams", window(choice.bytes()));
    let ticks: Vec<(f64, String)> = (0..)
        .zip(&levels)
        .map(|(place, row)| (f64::from(place), short(row.point.choice.level())))
        .collect();
    let axis = || Axis { ticks: Ticks::At(ticks.clone()), ..Axis::of(AXIS) };
    let unit = Unit::of_rates(levels.iter().map(|row| row.rate.median).fold(0.0, f64::max));
    let over = |figure: &dyn Fn(&Row) -> Option<f64>| -> Vec<(f64, f64)> {
        (0..)
            .zip(&levels)
            .map(|(place, row)| (f64::from(place), figure(row).unwrap_or(f64::NAN)))
            .collect()
    };
    let rates = over(&|row| Some(row.rate.median / unit.of));
    let cpu = [
        ("sending host", 0, over(&|row| row.cpu_source.map(|share| share * 100.0))),
        ("receiving host", 1, over(&|row| row.cpu_sink.map(|share| share * 100.0))),
    ];
    let cpu = cpu.into_iter().filter(|(.., points)| points.iter().any(|point| point.1.is_finite()));
    let cpu: Vec<Series> =
        cpu.map(|(name, colour, points)| Series::line(name, colour, points)).collect();
    let mut figures = vec![Figure {
        name: "levels".into(),
        title: format!("Rate over compression: {at}"),
        about: "Medians of all passes, in bytes of files.".into(),
        chart: Chart::Xy(Xy {
            x: axis(),
            y: Axis::from_zero(&format!("rate, {}", unit.name)),
            series: vec![Series::line("rate", 0, rates)],
            marks: Vec::new(),
        }),
    }];
    figures.extend((!cpu.is_empty()).then(|| Figure {
        name: "levels-cpu".into(),
        title: format!("CPU time over compression: {at}"),
        about: "As a share of one CPU; compression has threads of its own.".into(),
        chart: Chart::Xy(Xy {
            x: axis(),
            y: Axis::from_zero("CPU time, % of one CPU"),
            series: cpu,
            marks: Vec::new(),
        }),
    }));
    figures
}

/// As short as the numbers of an axis are: `1` for `zlib:1`, others as they are typed.
fn short(typed: &str) -> String {
    typed.strip_prefix("zlib:").unwrap_or(typed).to_string()
}

fn window(bytes: Option<u32>) -> String {
    format!("window {}", text::window(bytes))
}

const AXIS: &str = "compression (numbers: levels of zlib)";
