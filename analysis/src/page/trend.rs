//! The page of routes over weeks: what each carries now, and when that changed.

use super::{Block, Page, Section};
use crate::plot::scale::{Unit, value};
use crate::plot::{Axis, Chart, Column, Figure, Mark, Marks, Series, Table, Xy};
use crate::report::{live, trend as text, utc};
use crate::trend::Route;
use std::time::Duration;

/// `since` says from when on, for people.
pub fn page(routes: &[Route], since: &str) -> Page {
    let known = || routes.iter().filter(|route| !route.samples.is_empty());
    let changed = known().filter(|route| !route.changes.is_empty()).count();
    let lead = match (known().count(), changed) {
        (0, _) => format!("No campaign was measured since {since}."),
        (_, 0) => "No route has changed its rate.".to_string(),
        (all, changed) => {
            format!("The rate of {changed} of {} changed.", live::count(all as u64, "route"))
        }
    };
    let sentences = known().map(text::sentence).collect();
    let overview = vec![Block::Lead(lead), Block::List(sentences), Block::Text(METHOD.into())];
    let of_route = |(number, route): (usize, &Route)| {
        // One campaign is a number, and no line.
        let figures = match number < CHARTS_MAX && route.samples.len() > 1 {
            true => vec![Block::Figures(vec![figure(number, route)])],
            false => Vec::new(),
        };
        let tables = [Block::Table(changes(route)), Block::Table(samples(route))];
        let blocks = figures.into_iter().chain(tables).collect();
        Section::of(&format!("route-{number}"), &route.host, blocks)
    };
    let sections = known().enumerate().map(of_route);
    Page {
        title: "Routes over time".into(),
        subtitle: format!("{} since {since}", live::count(known().count() as u64, "route")),
        sections: std::iter::once(Section::of("overview", "What each route carries", overview))
            .chain(sections)
            .flatten()
            .collect(),
    }
}

fn figure(number: usize, route: &Route) -> Figure {
    let samples = &route.samples;
    let first_s = samples[0].at_unix_s;
    let most = samples.iter().map(|sample| sample.bytes_per_s).fold(0.0, f64::max);
    let unit = Unit::of_rates(most);
    let day = |at_unix_s: f64| (at_unix_s - first_s) / 86_400.0;
    let points: Vec<(f64, f64)> = samples
        .iter()
        .map(|sample| (day(sample.at_unix_s), sample.bytes_per_s / unit.of))
        .collect();
    let at = route.changes.iter().map(|change| day(samples[change.at].at_unix_s));
    Figure {
        name: format!("trend-{number}"),
        title: format!("Rate {} over time", toward(&route.host)),
        about: format!(
            "One point for each of {} campaigns: the median of its copies with default options. \
             A triangle is where the rate changed.",
            samples.len()
        ),
        chart: Chart::Xy(Xy {
            x: Axis::from_zero(&format!("days since {}", moment(first_s))),
            y: Axis::from_zero(&format!("rate, {}", unit.name)),
            series: vec![Series::line("median of a campaign", 0, points)],
            marks: vec![Marks {
                name: "change".into(),
                mark: Mark::Down,
                at: at.map(|x| (x, x)).collect(),
            }],
        }),
    }
}

fn changes(route: &Route) -> Table {
    let rate = |rate: f64| Unit::of_rates(rate).name_with(rate);
    let row = |change: &crate::trend::Change| {
        vec![
            moment(route.samples[change.at].at_unix_s),
            rate(change.before),
            rate(change.after),
            value(change.ratio),
            format!("{:.2e}", change.p),
            change.reference.to_string(),
        ]
    };
    Table {
        caption: "Changes of the rate, the newest first".into(),
        columns: vec![
            Column::text("from"),
            Column::number("before"),
            Column::number("after"),
            Column::number("after / before"),
            Column::number("p"),
            Column::number("samples before"),
        ],
        rows: route.changes.iter().rev().map(row).collect(),
    }
}

fn samples(route: &Route) -> Table {
    let rate = |rate: f64| Unit::of_rates(rate).name_with(rate);
    let rows = route.samples.iter().rev().take(ROWS_MAX).map(|sample| {
        vec![
            moment(sample.at_unix_s),
            rate(sample.bytes_per_s),
            sample.passes.to_string(),
            sample.campaign.clone(),
        ]
    });
    let caption = match route.samples.len() > ROWS_MAX {
        true => format!("The newest {ROWS_MAX} of {} campaigns", route.samples.len()),
        false => "All campaigns, the newest first".to_string(),
    };
    Table {
        caption,
        columns: vec![
            Column::text("began, UTC"),
            Column::number("median"),
            Column::number("copies"),
            Column::text("campaign"),
        ],
        rows: rows.collect(),
    }
}

/// Routes of stores say the way themselves: `from s3://bucket/key`.
fn toward(route: &str) -> String {
    match route.starts_with("from ") || route.starts_with("to ") {
        true => route.to_string(),
        false => format!("to {route}"),
    }
}

/// `2026-11-22 08:00`.
fn moment(unix_s: f64) -> String {
    let text = utc::utc(Duration::try_from_secs_f64(unix_s).unwrap_or_default());
    text.chars().take(16).collect::<String>().replace('T', " ")
}

const METHOD: &str = "A change is told when the newest four or eight campaigns differ from those \
                      before by more than chance (Mann-Whitney, p of 0.005 at most), by 15 % or \
                      more, and by three times the spread of those before.";
/// Routes with charts; the others have their tables.
const CHARTS_MAX: usize = 16;
const ROWS_MAX: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trend::Sample;

    #[test]
    fn a_step_stands_in_the_sentence_the_chart_and_the_table() {
        let sample = |at: u32| Sample {
            at_unix_s: 1.79e9 + f64::from(at) * 21_600.0,
            bytes_per_s: if at < 32 { 11.9e6 } else { 8.3e6 } + f64::from(at % 5) * 1e4,
            passes: 3,
            campaign: format!("sweep-{at}"),
        };
        let route = Route::of("<b>dtn2".into(), (0..56).map(sample).collect());
        let page = page(&[route, Route::default()], "2026-09-21");
        let Block::Lead(lead) = &page.sections[0].blocks[0] else { panic!("{page:?}") };
        assert_eq!(lead, "The rate of 1 of 1 route changed.");
        let Block::List(sentences) = &page.sections[0].blocks[1] else { panic!("{page:?}") };
        assert!(sentences[0].contains("fell to 0.70"), "{sentences:?}");
        let tables = page.figures().next().unwrap().tables();
        assert!(tables.iter().any(|table| table.caption == "Change: 1"), "{tables:?}");
        let html = page.html();
        assert!(html.contains("&lt;b&gt;dtn2") && html.len() < 100_000, "{}", html.len());
        let empty = super::page(&[], "2026-09-21").html();
        assert!(empty.contains("No campaign was measured since 2026-09-21."));
    }
}
