//! The page of a host: what a byte costs on it, how well the model fits, and predictions beside
//! what was measured.

use super::{Block, Page, Section};
use crate::model::HostModel;
use crate::model::fit::SizeFit;
use crate::plot::scale::{Unit, value};
use crate::plot::{Axis, Chart, Column, Figure, Mark, Marks, Series, Table, Ticks, Xy, colour};
use crate::predict::score::Pair;
use crate::record::sample::{Record, Scenario};
use crate::report::sheet::Sheet;
use crate::report::{curves, end_to_end, predicted, tables, utc};
use crate::statistics::median;
use crate::study::Study;
use crate::study::cells::Cell;
use crate::study::compositions::name;
use crate::study::parts::PartStudy;
use base::units::Bytes;
use std::time::Duration;

/// What is known of a host.
#[derive(Clone, Copy, Debug)]
pub struct Host<'a> {
    pub model: &'a HostModel,
    /// Of the experiment that the model was fitted to, where its runs are still stored.
    pub study: Option<&'a Study>,
    /// Copies of this host that were predicted before they began.
    pub copies: &'a [Record],
}

pub fn page(host: Host<'_>) -> Page {
    let model = host.model;
    let parts = host.study.map(Study::chosen).unwrap_or_default();
    let of_study = host.study.map(|study| {
        [
            Section::of("rates", "Rates by request size", rates(study)),
            Section::of("composed", "What is composed of parts", compositions(study)),
            Section::of("tables", "The tables of the report", sheets(&tables::tables(study))),
        ]
    });
    let fits = Section::of("costs", "What a request costs", costs(model, &parts));
    let copies = Section::of("predicted", "Predicted and measured", predictions(host));
    let fitted = Duration::try_from_secs_f64(model.fitted_unix_s).unwrap_or_default();
    let sections = [fits, copies].into_iter().chain(of_study.into_iter().flatten());
    Page {
        title: format!("Costs of {}", model.host),
        subtitle: format!(
            "{}experiment {}, fitted {}",
            curves::of_cpus(model),
            model.experiment,
            utc::utc(fitted).split('.').next().unwrap_or_default().replace('T', " ")
        ),
        sections: sections.flatten().collect(),
    }
}

fn costs(model: &HostModel, parts: &[&PartStudy]) -> Vec<Block> {
    let mut figures: Vec<Figure> = parts.iter().enumerate().map(cost).collect();
    figures.extend(residuals(parts));
    let mut blocks = vec![Block::Lead(request_costs(model)), Block::Figures(figures)];
    blocks.extend(sheets(&[curves::host(model)]));
    blocks
}

/// The answer in a sentence: what a usual request costs in each part, the dearest first.
fn request_costs(model: &HostModel) -> String {
    let of = |component: &crate::model::Component| {
        let regime = component.regimes.last()?;
        let (byte_ns, request_ns) = (regime.cb_ns.value, regime.cr_ns.value);
        let whole_us = byte_ns.mul_add(USUAL_REQUEST_BYTES, request_ns) / 1e3;
        let told = format!(
            "{} {} µs ({})",
            name(component.part),
            value(whole_us),
            each(byte_ns, request_ns)
        );
        Some((whole_us, told))
    };
    let mut known: Vec<(f64, String)> = model.components.iter().filter_map(of).collect();
    known.sort_by(|one, other| other.0.total_cmp(&one.0));
    let told: Vec<String> = known.into_iter().map(|(_, told)| told).collect();
    match told.is_empty() {
        true => "No part of this host was measured alone: 'datapump measure all' does it.".into(),
        false => format!(
            "CPU time of a request of 1 MiB, by part: {}. The time until it has passed is longer: \
             it is in the rates.",
            told.join("; ")
        ),
    }
}

/// What a byte costs, and what a request. A fit has no cost below 0: 0 is none that could be seen.
fn each(byte_ns: f64, request_ns: f64) -> String {
    let request = format!("{} µs a request", value(request_ns / 1e3));
    match byte_ns > 0.0 {
        true => format!("{request} and {} ns a byte", value(byte_ns)),
        false => format!("{request}, however large"),
    }
}

const USUAL_REQUEST_BYTES: f64 = 1_048_576.0;

/// A part, and the conditions that it was measured under.
fn titled(part: &PartStudy) -> String {
    match part.conditions.as_str() {
        "" => name(part.part).to_string(),
        conditions => format!("{} ({conditions})", name(part.part)),
    }
}

/// Observed costs as points, the fitted curve as a line.
fn cost((number, part): (usize, &&PartStudy)) -> Figure {
    let mut sizes: Vec<&SizeFit> = part.curve.sizes().collect();
    sizes.sort_by_key(|size| size.request_bytes);
    let points = |pick: fn(&SizeFit) -> f64| -> Vec<(f64, f64)> {
        sizes.iter().map(|size| (f64::from(size.request_bytes), pick(size))).collect()
    };
    let fits: Vec<String> = part
        .curve
        .fits
        .iter()
        .map(|fit| {
            let costs = each(fit.cb_ns.value, fit.cr_ns.value);
            format!("{costs}, off by {:.1} % at most", fit.max_error() * 100.0)
        })
        .collect();
    Figure {
        name: format!("cost-{number}"),
        title: titled(part),
        about: format!("Fitted: {}.", fits.join("; for larger requests ")),
        chart: Chart::Xy(Xy {
            x: sizes_axis(sizes.iter().map(|size| size.request_bytes)),
            y: Axis { is_log: true, ..Axis::of("CPU time, ns/B") },
            series: vec![
                Series::line("fitted", 1, points(|size| size.predicted_ns)),
                Series::dots("observed, medians", 0, points(|size| size.observed_ns)),
            ],
            marks: Vec::new(),
        }),
    }
}

/// The errors of all parts, with the bounds of a good fit.
fn residuals(parts: &[&PartStudy]) -> Option<Figure> {
    let errors = |(place, part): (usize, &&PartStudy)| {
        let mut points: Vec<(f64, f64)> = part
            .curve
            .sizes()
            .map(|size| (f64::from(size.request_bytes), size.signed_error() * 100.0))
            .collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        Series::dots(&titled(part), place, points)
    };
    let series: Vec<Series> = parts.iter().take(colour::COUNT).enumerate().map(errors).collect();
    let all = parts.iter().flat_map(|part| part.curve.sizes().map(|size| size.request_bytes));
    (!series.is_empty()).then(|| Figure {
        name: "residuals".into(),
        title: "What the fits leave".into(),
        about:
            "By how much the larger of fitted and observed is above the smaller, by request size; \
                below 0 where the fit is too low. Dashed: 15 % either way."
                .into(),
        chart: Chart::Xy(Xy {
            x: sizes_axis(all),
            y: Axis::from_zero("error, %"),
            series,
            marks: vec![Marks {
                name: "15 % either way".into(),
                mark: Mark::Level,
                at: vec![(15.0, 15.0), (-15.0, -15.0)],
            }],
        }),
    })
}

fn sizes_axis(sizes: impl Iterator<Item = u32>) -> Axis {
    let mut all: Vec<u32> = sizes.collect();
    all.sort_unstable();
    all.dedup();
    let step = all.len().div_ceil(TICKS_MAX).max(1);
    let tick = |bytes: &u32| (f64::from(*bytes), Bytes(u64::from(*bytes)).typed());
    let ticks = all.iter().step_by(step).map(tick).collect();
    Axis { is_log: true, ticks: Ticks::At(ticks), ..Axis::of("request size, bytes") }
}

/// One figure for each pump: the rate of each of its conditions.
fn rates(study: &Study) -> Vec<Block> {
    let mut scenarios: Vec<_> = study.cells.iter().map(|cell| cell.key.scenario).collect();
    scenarios.sort();
    scenarios.dedup();
    let figure = |scenario: Scenario| {
        let cells: Vec<&Cell> =
            study.cells.iter().filter(|cell| cell.key.scenario == scenario).collect();
        let medians = cells.iter().filter_map(|cell| Some(cell.rate.as_ref()?.median));
        let unit = Unit::of_rates(medians.fold(0.0, f64::max));
        let mut groups: Vec<String> = cells.iter().map(|cell| group(cell)).collect();
        groups.sort();
        groups.dedup();
        let series = groups.iter().take(colour::COUNT).enumerate().map(|(place, named)| {
            let mine = cells.iter().filter(|cell| group(cell) == *named);
            let known = mine.filter_map(|cell| Some((cell.key.request_bytes, cell.rate.as_ref()?)));
            let mut known: Vec<_> = known.collect();
            known.sort_by_key(|(bytes, _)| *bytes);
            let points = known.iter().map(|(b, rate)| (f64::from(*b), rate.median / unit.of));
            let limits = known
                .iter()
                .map(|(_, rate)| (rate.lower_quartile / unit.of, rate.upper_quartile / unit.of));
            let line = Series::line(named, place, points.collect());
            Series { limits: limits.collect(), ..line }
        });
        let series: Vec<Series> = series.filter(|series| !series.points.is_empty()).collect();
        (!series.is_empty()).then(|| Figure {
            name: format!("rate-{}", scenario.name()),
            title: match scenario {
                Scenario::Cpu => "Rate of the pump, null to null".into(),
                _ => format!("Rate of {}", scenario.told()),
            },
            about: "Medians; bars are the middle half of the runs.".into(),
            chart: Chart::Xy(Xy {
                x: sizes_axis(cells.iter().map(|cell| cell.key.request_bytes)),
                y: Axis::from_zero(&format!("rate, {}", unit.name)),
                series,
                marks: Vec::new(),
            }),
        })
    };
    vec![Block::Figures(scenarios.into_iter().filter_map(figure).collect())]
}

fn group(cell: &Cell) -> String {
    let depths = cell.key.depths;
    match depths.source == depths.sink {
        true => format!("{}, depth {}", cell.key.conditions, depths.source),
        false => format!("{}, depths {} and {}", cell.key.conditions, depths.source, depths.sink),
    }
}

/// Costs of compositions that were predicted from their parts, against what was measured.
fn compositions(study: &Study) -> Vec<Block> {
    let mut series: Vec<Series> = Vec::new();
    let mut errors = Vec::new();
    for one in &study.compositions {
        let mut points: Vec<(f64, f64)> = one
            .sizes
            .iter()
            .filter_map(|size| Some((size.predicted_ns, size.observed_ns?)))
            .collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        errors.extend(one.errors());
        let name = format!("{}, {:?}", one.scenario.told(), one.end).to_lowercase();
        match series.iter_mut().find(|series| series.name == name) {
            Some(series) => series.points.extend(points),
            None => series.push(Series::dots(&name, series.len(), points)),
        }
    }
    series.iter_mut().for_each(|one| one.points.sort_by(|a, b| a.0.total_cmp(&b.0)));
    series.retain(|series| !series.points.is_empty());
    series.truncate(colour::COUNT);
    let known =
        || series.iter().flat_map(|series| &series.points).flat_map(|point| [point.0, point.1]);
    let (low, high) = (known().fold(f64::INFINITY, f64::min), known().fold(0.0, f64::max));
    if series.is_empty() || low >= high {
        return Vec::new();
    }
    let middle = median(&errors).unwrap_or(f64::NAN) * 100.0;
    series.push(Series::line("as predicted", 5, vec![(low, low), (high, high)]));
    let log = |label: &str| Axis { is_log: true, ..Axis::of(label) };
    vec![
        Block::Lead(format!("Costs predicted from parts are off by {middle:.1} % in the median.")),
        Block::Figures(vec![Figure {
            name: "compositions".into(),
            title: "Predicted from parts, and measured".into(),
            about: "One point for each request size; on the line the prediction is exact.".into(),
            chart: Chart::Xy(Xy {
                x: log("predicted CPU time, ns/B"),
                y: log("measured CPU time, ns/B"),
                series,
                marks: Vec::new(),
            }),
        }]),
    ]
}

/// Copies that were predicted: the time that they took over the predicted one.
fn predictions(host: Host<'_>) -> Vec<Block> {
    let times: Vec<Pair> = host.copies.iter().filter_map(Pair::of_time).collect();
    let mut blocks = Vec::new();
    if !times.is_empty() {
        blocks.push(Block::Lead(format!(
            "{} of {} copies took a time within the predicted interval.",
            times.iter().filter(|pair| pair.is_covered()).count(),
            times.len(),
        )));
        blocks.extend(sheets(&[predicted::scores(&times)]));
        let known: Vec<(f64, f64, f64)> = times
            .iter()
            .map(|Pair { expected: [low, middle, high], observed }| {
                (observed / middle, low / middle, high / middle)
            })
            .collect();
        let x = |place: usize| place as f64 + 1.0;
        let took = known.iter().enumerate().map(|(place, known)| (x(place), known.0));
        let high = known.iter().enumerate().map(|(place, known)| (x(place), known.2));
        let low = known.iter().map(|known| known.1).collect();
        let range = Series {
            drawn: crate::plot::Drawn::Range(low),
            ..Series::line("predicted interval", 0, high.collect())
        };
        blocks.push(Block::Figures(vec![Figure {
            name: "predictions".into(),
            title: "Time of copies over the predicted time".into(),
            about: "In the order of their runs. At 1 the prediction is exact.".into(),
            chart: Chart::Xy(Xy {
                x: Axis::of("copies, in their order"),
                y: Axis::from_zero("measured / predicted"),
                series: vec![range, Series::dots("copies", 1, took.collect())],
                marks: vec![Marks {
                    name: "as predicted".into(),
                    mark: Mark::Level,
                    at: vec![(1.0, 1.0)],
                }],
            }),
        }]));
    }
    blocks.extend(host.model.whole.iter().flat_map(|whole| sheets(&[end_to_end::sheet(whole)])));
    blocks
}

/// A sheet as a table of the page, and its notes.
fn sheets(sheets: &[Sheet]) -> Vec<Block> {
    let block = |sheet: &Sheet| {
        let columns = sheet.columns.iter().enumerate();
        let table = Table {
            caption: sheet.title.clone(),
            columns: columns
                .map(|(at, column)| match at {
                    0 => Column::text(column),
                    _ => Column::number(column),
                })
                .collect(),
            rows: sheet.rows.clone(),
        };
        [Block::Table(table), Block::Text(sentences(&sheet.notes))]
    };
    sheets.iter().flat_map(block).collect()
}

/// Notes, each of which has a line of its own elsewhere, one behind the other. What is no word,
/// such as `ns/B`, stays as it is spelled.
fn sentences(notes: &[String]) -> String {
    let sentence = |note: &String| {
        let first = note.split([' ', ':']).next().unwrap_or_default();
        let is_word = first.chars().all(char::is_lowercase);
        let mut letters = note.trim_end_matches('.').chars();
        match letters.next() {
            Some(letter) if is_word => format!("{}{}.", letter.to_uppercase(), letters.as_str()),
            _ => format!("{}.", note.trim_end_matches('.')),
        }
    };
    notes.iter().map(sentence).collect::<Vec<_>>().join(" ")
}

const TICKS_MAX: usize = 7;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::sample::{Moved, Predicted};
    use crate::study::tests::planted;

    #[test]
    fn a_host_with_planted_costs() {
        let records = planted(0.02);
        let study = Study::of(&records);
        let model = study.hosts(|_| "ada".into()).pop().unwrap();
        let copy = |took_s: f64| Record {
            moved: Moved { elapsed_s: took_s, ..Moved::default() },
            predicted: Some(Predicted {
                elapsed_low_s: 1.0,
                elapsed_s: 2.0,
                elapsed_high_s: 3.0,
                ..Predicted::default()
            }),
            ..Record::default()
        };
        let copies = [copy(2.0), copy(2.2), copy(5.0)];
        let page = page(Host { model: &model, study: Some(&study), copies: &copies });
        let html = page.html();
        assert!(html.len() < 3_000_000, "{}", html.len());
        let texts = [
            "disk source 13",
            "2 of 3 copies took",
            "How good predictions were",
            "Table 1. CPU cost of a disk source",
            "Rate of disk source",
            "CPU time, ns/B (log scale)",
        ];
        for text in texts {
            assert!(html.contains(text), "{text}\n{html}");
        }
        for text in [">disk-source", " disk-source", "EiB", " us<", " us ", ">0 CPUs", "of cpu"] {
            assert!(!html.contains(text), "{text}\n{html}");
        }
        let names: Vec<&str> = page.figures().map(|figure| figure.name.as_str()).collect();
        for name in ["cost-0", "residuals", "predictions", "rate-net", "compositions"] {
            assert!(names.contains(&name), "{name}: {names:?}");
        }
    }

    #[test]
    fn notes_are_sentences() {
        let notes = ["a word", "ns/B is a unit.", "part: it is"].map(String::from);
        assert_eq!(sentences(&notes), "A word. ns/B is a unit. Part: it is.");
    }

    #[test]
    fn a_host_that_nobody_measured() {
        let model = HostModel { host: "ada".into(), ..HostModel::default() };
        let html = page(Host { model: &model, study: None, copies: &[] }).html();
        assert!(html.contains("datapump measure all"), "{html}");
        assert!(!html.contains("CPUs unknown"), "{html}");
    }
}
