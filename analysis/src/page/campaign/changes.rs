//! What is different from an earlier campaign.

use crate::campaign::study::{self, Change, PASSES_MIN, Row};
use crate::page::Block;
use crate::plot::scale::{Unit, value};
use crate::plot::{Column, Table};
use crate::report::campaign as text;

pub(super) fn blocks(earlier: &str, before: &[Row], after: &[Row]) -> Vec<Block> {
    let all = study::changes(before, after);
    let mut changed: Vec<&Change<'_>> = all.iter().filter(|change| change.is_one()).collect();
    changed.sort_by(|a, b| size(b).total_cmp(&size(a)));
    let lead = match changed.len() {
        0 => format!(
            "Nothing changed since {earlier} beyond its interval, in {} settings that both have.",
            all.len()
        ),
        count => format!(
            "{count} of {} settings changed since {earlier}: their 95 % intervals leave 1 out.",
            all.len()
        ),
    };
    let few = all.iter().filter(|change| change.after.rate.n < PASSES_MIN).count();
    let few = match few {
        0 => String::new(),
        few => format!("{few} settings have fewer than {PASSES_MIN} passes, too few to say."),
    };
    vec![Block::Lead(lead), Block::Text(few), Block::Table(table(&changed))]
}

/// How much it changed, up or down.
fn size(change: &Change<'_>) -> f64 {
    change.ratio.map_or(0.0, |ratio| ratio.value.max(1e-9).ln().abs())
}

fn table(changed: &[&Change<'_>]) -> Table {
    let row = |change: &&Change<'_>| {
        let point = &change.after.point;
        let rate = |row: &Row| Unit::of_rates(row.rate.median).name_with(row.rate.median);
        let ratio = change.ratio.map_or("-".into(), |ratio| {
            format!("{} ({} to {})", value(ratio.value), value(ratio.low), value(ratio.high))
        });
        vec![
            point.host.clone(),
            text::chosen(&point.choice),
            point.extent.typed(),
            rate(change.before),
            rate(change.after),
            ratio,
        ]
    };
    Table {
        caption: "Settings that changed, the largest change first".into(),
        columns: vec![
            Column::text("host"),
            Column::text("setting"),
            Column::number("length"),
            Column::number("before"),
            Column::number("after"),
            Column::number("after / before (95 %)"),
        ],
        rows: changed.iter().map(row).collect(),
    }
}
