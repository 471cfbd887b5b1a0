//! How long a copy must be to show its rate.

use super::estimate;
use crate::campaign::Extent;
use crate::campaign::study::{Growth, Row, growths};
use crate::plot::scale::Unit;
use crate::plot::{Axis, Chart, Figure, Mark, Marks, Series, Ticks, Xy};
use crate::report::campaign as text;

pub(super) fn figures(rows: &[&Row]) -> Vec<Figure> {
    let rows: Vec<Row> = rows.iter().map(|row| (*row).clone()).collect();
    growths(&rows).iter().take(FIGURES_MAX).enumerate().map(figure).collect()
}

fn figure((place, growth): (usize, &Growth<'_>)) -> Figure {
    let unit = Unit::of_rates(growth.asymptote.high);
    let first = growth.lengths[0].row;
    let of = |extent: Extent| match extent {
        Extent::Time(time) => time.seconds(),
        Extent::Bytes(bytes) => bytes as f64,
    };
    let points =
        growth.lengths.iter().map(|one| (of(one.row.point.extent), one.rate.value / unit.of));
    let limits = growth.lengths.iter().map(|one| {
        estimate(one.row).map_or((f64::NAN, f64::NAN), |e| (e.low / unit.of, e.high / unit.of))
    });
    let ticks =
        growth.lengths.iter().map(|one| (of(one.row.point.extent), one.row.point.extent.typed()));
    let step = growth.lengths.len().div_ceil(TICKS_MAX).max(1);
    let line = Series::line("median", 0, points.collect());
    let asymptote = growth.asymptote.value / unit.of;
    let close = growth.close_at.map_or(String::new(), |length| {
        format!(" From {} on a copy is within 5 % of it.", length.row.point.extent.typed())
    });
    let reached = growth.reached_at.map_or(String::new(), |length| {
        format!(" From {} on their intervals overlap.", length.row.point.extent.typed())
    });
    let fall = growth.fall.map_or(String::new(), |[short, long]| {
        format!(
            " {} is slower than {}, beyond its interval.",
            long.row.point.extent.typed(),
            short.row.point.extent.typed()
        )
    });
    let model = growth.model.map_or(String::new(), |model| {
        format!(
            " time = {:.3} s + bytes / ({}).",
            model.t0_s.value,
            Unit::of_rates(model.bytes_per_s.value).name_with(model.bytes_per_s.value)
        )
    });
    Figure {
        name: format!("lengths-{place}"),
        title: format!(
            "Rate over the length of a copy: {}, {}",
            first.point.kind.name(),
            text::chosen(&first.point.choice)
        ),
        about: format!(
            "Medians with 95 % intervals; the dashed line is the rate of the three longest.{close}\
             {reached}{fall}{model}"
        ),
        chart: Chart::Xy(Xy {
            x: Axis {
                is_log: true,
                ticks: Ticks::At(ticks.step_by(step).collect()),
                ..Axis::of("length")
            },
            y: Axis::from_zero(&format!("rate, {}", unit.name)),
            series: vec![Series { limits: limits.collect(), ..line }],
            marks: vec![Marks {
                name: "rate of long copies".into(),
                mark: Mark::Level,
                at: vec![(asymptote, asymptote)],
            }],
        }),
    }
}

const FIGURES_MAX: usize = 4;
const TICKS_MAX: usize = 7;
