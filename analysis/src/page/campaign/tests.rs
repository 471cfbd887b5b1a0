//! The page of campaigns that were run.

use super::*;
use crate::record::options::Options;
use crate::record::sample::{Cell, Moved, Probes, Remote, RoundTrips, Side};

/// The cells of a campaign as its page in `runs/` keeps them.
fn cells(table: &str) -> Vec<Record> {
    let mut reader = csv::Reader::from_reader(table.as_bytes());
    let names = reader.headers().unwrap().clone();
    let record = |row: csv::StringRecord| {
        let text = |name: &str| &row[names.iter().position(|known| known == name).unwrap()];
        let number = |name: &str| text(name).parse::<f64>().ok();
        let probes = |name: &str| Probes { sent: 10, median_s: number(name), ..Probes::default() };
        Record {
            options: Options {
                window_bytes: number("window_bytes").map(|bytes| bytes as u32),
                streams: number("streams").unwrap() as u16,
                compress: text("level").into(),
                ..Options::default()
            },
            moved: Moved { bytes: number("bytes").unwrap() as u64, ..Moved::default() },
            remote: Some(Remote { host: text("host").into(), ..Remote::default() }),
            source: Side {
                cpu_user_s: number("cpu_user_s").unwrap_or(0.0),
                cpu_system_s: number("cpu_system_s").unwrap_or(0.0),
                ..Side::default()
            },
            round_trips: Some(RoundTrips {
                unloaded: probes("unloaded_median_s"),
                loaded: probes("loaded_median_s"),
                ..RoundTrips::default()
            }),
            cell: Some(Cell {
                choice: text("choice").into(),
                extent_s: number("seconds"),
                extent_bytes: number("size_bytes").map(|bytes| bytes as u64),
                moving_s: number("moving_s"),
                pause_s: number("pause_s"),
                ..Cell::default()
            }),
            ..Record::default()
        }
    };
    reader.records().map(|row| record(row.unwrap())).collect()
}

fn names(page: &Page) -> Vec<&str> {
    page.figures().map(|figure| figure.name.as_str()).collect()
}

/// SLAC's order, windows and streams on a path of 100 Mbit/s and 20 ms.
#[test]
fn streams_and_windows_of_a_whole_campaign() {
    let table = include_str!(
        "../../../../runs/data/2026-11-22-compression-campaign-whole-100Mbit-20ms.csv"
    );
    let records = cells(table);
    let page = page(Campaign { name: "sweep-whole", records: &records }, None);
    let found = names(&page);
    for name in ["best", "heat-off-0", "heat-zlib-1-0", "lines-0", "levels-0", "round-trips-0"] {
        assert!(found.contains(&name), "{name}: {found:?}");
    }
    let heat = page.figures().find(|figure| figure.name == "heat-off-0").unwrap();
    let Chart::Heat(heat) = &heat.chart else { panic!("{heat:?}") };
    let known = heat.values.iter().flatten().flatten().count();
    assert_eq!((heat.rows.len(), heat.columns.len(), known), (8, 17, 136), "{heat:?}");
    // The fastest cell is framed, and its window is among those that are drawn as lines.
    let fastest = heat.values.iter().flatten().flatten().copied().fold(0.0, f64::max);
    let (row, column, told) = heat.best.clone().unwrap();
    assert_eq!(heat.values[row][column], Some(fastest), "{told}");
    for name in ["lines-0", "lines-zlib-1-0"] {
        let lines = page.figures().find(|figure| figure.name == name).unwrap();
        let Chart::Xy(chart) = &lines.chart else { panic!("{lines:?}") };
        assert_eq!(chart.series.len(), crate::plot::colour::COUNT, "{name}");
        assert!(lines.about.contains("6 of 8 windows"), "{}", lines.about);
    }
    let window = format!("window {}", heat.rows[row]);
    let lines = page.figures().find(|figure| figure.name == "lines-0").unwrap();
    assert!(lines.legend().iter().any(|key| key.text == window), "{window}");
    let html = page.html();
    assert!(html.len() < 600_000, "{}", html.len());
    assert_eq!(html.matches("data-best").count(), 8, "two hosts, two heat maps, two strokes");
    // The fastest setting is one of compression, and says so beside the best without it.
    let Block::List(sentences) = &page.sections[0].blocks[0] else { panic!("{page:?}") };
    for text in [
        "compression zlib:1 carries 597 Mbit/s",
        "It is reached by compression",
        "compression off: 9",
    ] {
        assert!(sentences[0].contains(text), "{text}: {sentences:?}");
    }
}

#[test]
fn the_length_that_shows_the_rate() {
    let table = include_str!("../../../../runs/data/2026-11-22-transfer-size-100Mbit.csv");
    let records = cells(table);
    let page = page(Campaign { name: "sweep-size", records: &records }, None);
    let lengths = page.figures().find(|figure| figure.name.starts_with("lengths-"));
    let about = &lengths.unwrap_or_else(|| panic!("{:?}", names(&page))).about;
    assert!(about.contains("a copy is within 5 % of it") && about.contains("time = "), "{about}");
}

#[test]
fn what_changed_is_told() {
    let campaign = crate::campaign::study::tests::campaign;
    let (old, new) = (campaign([40, 40, 41, 39, 40]), campaign([30, 31, 30, 29, 30]));
    let earlier = Campaign { name: "sweep-a", records: &old };
    let page = page(Campaign { name: "sweep-b", records: &new }, Some(earlier));
    let section = page.sections.iter().find(|section| section.id == "changes").unwrap();
    let Block::Lead(lead) = &section.blocks[0] else { panic!("{section:?}") };
    assert!(lead.starts_with("1 of 3 settings changed since sweep-a"), "{lead}");
    let Some(Block::Table(table)) = section.blocks.last() else { panic!("{section:?}") };
    assert_eq!((table.rows.len(), table.rows[0][3].as_str()), (1, "320 Mbit/s"), "{table:?}");
}

/// A campaign of nothing, and one of many hosts.
#[test]
fn odd_campaigns_have_pages() {
    let empty = page(Campaign { name: "sweep-none", records: &[] }, None);
    assert!(empty.html().contains("sweep-none"));
    let of_host = |host: usize| {
        let mut records = crate::campaign::study::tests::campaign([40, 40, 41, 39, 40]);
        for record in &mut records {
            record.remote.as_mut().unwrap().host = format!("host-{host:02}");
        }
        records
    };
    let records: Vec<Record> = (0..40).flat_map(of_host).collect();
    let many = page(Campaign { name: "sweep-many", records: &records }, None);
    assert_eq!(many.sections.len(), 41);
    assert!(many.html().len() < 3_000_000);
}
