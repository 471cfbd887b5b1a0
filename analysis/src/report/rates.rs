//! The rates of compositions, predicted from their parts, beside those that were observed.

use super::sheet::{Sheet, mega, percent, size};
use crate::study::compositions::{Composed, Composition};
use crate::study::law::{Bound, RateGrid, RatePrediction};
use crate::study::verdicts::AT_EVERY_SIZE;

/// Behind the observed rate.
pub(crate) const COLUMNS: &[&str] = &["predicted MB/s", "what binds", "rate error", "verdict"];

pub(crate) fn note(one: &Composition) -> Option<String> {
    let is_predicted = one.sizes.iter().any(|seen| seen.predicted_rate.is_some());
    is_predicted.then(|| {
        format!(
            "predicted MB/s: the least of what the lane (one call after another), each part, a \
             device of both ends and the CPUs allow, from the parts alone; within: off by at most \
             {}",
            percent(AT_EVERY_SIZE)
        )
    })
}

/// The predicted rate, what bounds it, its error, and whether that is within the tolerance.
pub(crate) fn cells(seen: &Composed) -> [String; 4] {
    let error = seen.rate_error();
    [
        seen.predicted_rate.map_or("-".into(), |rate| mega(rate.bytes_per_s)),
        seen.predicted_rate.map_or("-".into(), |rate| rate.bound.name().into()),
        error.map_or("-".into(), percent),
        match error {
            None => "-".into(),
            Some(error) if error <= AT_EVERY_SIZE => "within".into(),
            Some(_) => "outside".into(),
        },
    ]
}

/// Table 9: what other depths and more lanes would give.
pub(crate) fn grid(grid: &RateGrid) -> Sheet {
    let RateGrid { scenario, conditions, request_bytes, by_depth, blocking, depth_max } = grid;
    let title = format!(
        "Table 9. Rate of {} that the law predicts, MB/s, requests of {} ({conditions})",
        scenario.told(),
        size(*request_bytes)
    );
    let lanes = by_depth.iter().map(Vec::len).max().unwrap_or(0);
    let names = (1..=lanes).map(|lanes| match lanes {
        1 => "1 lane".to_string(),
        more => format!("{more} lanes"),
    });
    let mut sheet = Sheet { columns: vec!["depth".into()], ..Sheet::new(title, &[]) };
    sheet.columns.extend(names);
    for (place, rates) in by_depth.iter().enumerate() {
        let told =
            |rate: &RatePrediction| format!("{} ({})", mega(rate.bytes_per_s), rate.bound.name());
        let row = std::iter::once((place + 1).to_string()).chain(rates.iter().map(told));
        sheet.row(row.collect());
    }
    sheet.note(format!(
        "depth: requests in flight at each end of a lane; disks as measured at up to {depth_max} \
         in flight; runs have one lane, more are predicted only"
    ));
    if !blocking.is_empty() {
        let parts: Vec<&str> = blocking.iter().map(|part| Bound::of(*part).name()).collect();
        sheet.note(format!(
            "calls of the {} block: a lane does nothing else meanwhile, at any depth; more lanes \
             (--streams) overlap",
            parts.join(" and of the ")
        ));
    }
    sheet
}
