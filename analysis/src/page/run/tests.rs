//! The page of a run says what its record says, and has no more of it than a page may have.

use super::*;
use crate::diagnosis::Shares;
use crate::record::compression::Compression;
use crate::record::options::Options;
use crate::record::sample::{Conditions, Moved, Side};
use base::job::{PathRole, PathSide, StreamPath};
use base::path::PathSample;
use base::settings::Settings;
use base::store_times::StoreTimes;
use base::units::{Nanos, Tick};

/// A stream of 10 s that sends 1 MB/s, loses something each second from the third on, and pauses
/// once.
fn stream(number: u32, samples: u64) -> StreamPath {
    let sample = |at: u64| {
        let second = at as f64 * 10.0 / samples as f64;
        let sent = (second.min(5.0) + (second - 6.0).max(0.0)) * 1e6;
        let lost = (second as u64).saturating_sub(3);
        PathSample {
            at: Tick((second * 1e9) as u64),
            rtt: Nanos::from_millis(20),
            rtt_min: Nanos::from_millis(20),
            mss_bytes: 1448,
            cwnd_segments: 40,
            unacked_segments: if (5.0..6.0).contains(&second) { 0 } else { 20 },
            peer_window_bytes: 1 << 20,
            state: if lost > 0 && second.fract() < 0.05 { 3 } else { 0 },
            bytes_sent: sent as u64 + lost * 1448,
            bytes_acked: sent as u64,
            bytes_retransmitted: lost * 1448,
            segments_sent: (sent / 1448.0) as u64 + lost,
            segments_retransmitted: lost,
            busy: Nanos((second * 0.9e9) as u64),
            ..PathSample::default()
        }
    };
    StreamPath {
        stream: number,
        side: PathSide::Near,
        role: PathRole::Source,
        samples: (0..=samples).map(sample).collect(),
    }
}

fn record(streams: u32, samples: u64) -> Record {
    let bytes = u64::from(streams) * 9_000_000;
    Record {
        id: 7,
        command: "copy".into(),
        sources: vec!["a".into()],
        given: Some(vec!["--streams".into(), streams.to_string()]),
        target: "far:b".into(),
        options: Options { streams: streams as u16, ..Options::of(&Settings::default()) },
        moved: Moved {
            bytes,
            elapsed_s: 10.0,
            goodput_bytes_per_s: bytes as f64 / 10.0,
            ..Moved::default()
        },
        source: Side { cpu_user_s: 0.2, requests: 9, fill_s: 1.0, ..Side::default() },
        paths: (0..streams).map(|number| stream(number, samples)).collect(),
        ..Record::default()
    }
}

fn figure<'a>(page: &'a Page, name: &str) -> &'a Figure {
    let names: Vec<&str> = page.figures().map(|figure| figure.name.as_str()).collect();
    page.figures().find(|f| f.name == name).unwrap_or_else(|| panic!("{name}: {names:?}"))
}

fn cell<'a>(table: &'a Table, row: &str, column: &str) -> &'a str {
    let at = table.columns.iter().position(|known| known.name == column).unwrap();
    let row = table.rows.iter().find(|cells| cells[0] == row).unwrap();
    &row[at]
}

#[test]
fn figures_have_what_the_samples_say() {
    let page = page(record(2, 400), &BTreeMap::new());
    let rates = &figure(&page, "throughput").tables()[0];
    assert_eq!(cell(rates, "all streams", "most"), "16.0", "2 x 1 MB/s in Mbit/s");
    assert_eq!(cell(rates, "stream 1", "least"), "0", "it pauses");
    let window = &figure(&page, "congestion-window").tables()[0];
    assert_eq!(cell(window, "stream 0", "median"), "56.6", "40 x 1448 B in KiB");
    let lost = &figure(&page, "retransmissions");
    let told = "of all streams: 14 of the 12444 that were sent";
    assert!(lost.about.contains(told), "{}", lost.about);
    let of_marks = figure(&page, "time-sequence").tables();
    let marks: Vec<&str> = of_marks.iter().map(|table| table.caption.as_str()).collect();
    assert!(marks.iter().any(|text| text.starts_with("Pause: 1")), "{marks:?}");
    assert!(marks.iter().any(|text| text.starts_with("Recovery episode: 7")), "{marks:?}");
    let Block::Lead(lead) = &page.sections[0].blocks[0] else { panic!("{page:?}") };
    assert!(lead.starts_with("Held back by: "), "{lead}");
    assert!(page.html().contains("datapump copy --streams 2 a far:b"));
}

/// A verdict that is not the largest share of the bytes says why.
#[test]
fn a_verdict_beside_a_larger_share_is_explained() {
    let evidence = evidence::of_record(&record(1, 400), &BTreeMap::new());
    let mut verdict = diagnose(&evidence);
    verdict.shares = Shares::of(&[(Bottleneck::PathFull, 0.55), (Bottleneck::Pauses, 0.45)]);
    (verdict.figures.duration_s, verdict.figures.ramp_s) = (11.0, 1.0);
    verdict.figures.pauses.total_s = 2.1;
    let of = |primary| beside_verdict(&Verdict { primary, ..verdict.clone() });
    let told = of(Some(Bottleneck::Pauses));
    assert!(told.contains("21 % of the time") && told.contains("met: path full"), "{told}");
    assert_eq!(of(Some(Bottleneck::PathFull)), "");
    assert!(of(None).contains("mixed"));
}

/// One time is that of the rate; what else passed stands beside it.
#[test]
fn a_time_says_what_is_in_it() {
    let whole = record(1, 100);
    assert_eq!(time(&whole), "10.00 s");
    let moved = Moved { elapsed_s: 12.5, ..whole.moved };
    let told = time(&Record { moved, ..whole });
    assert_eq!(told, "10.00 s of copying, 2.50 s of login before it: 12.50 s in all");
}

/// A run under way has a verdict at once, and a new one when the last is some seconds old.
#[test]
fn a_verdict_on_a_run_under_way_is_kept_for_a_while() {
    let mut pages = SoFar::default();
    let times_and_found = [
        (1.0, 1.0),
        (9.0, 9.0),
        (10.0, 10.0),
        (11.0, 10.0),
        (14.0, 10.0),
        (15.0, 15.0),
        (16.0, 15.0),
    ];
    for (elapsed_s, expect) in times_and_found {
        let two = record(2, 100);
        let moved = Moved { elapsed_s, ..two.moved };
        let page = pages.page(Record { moved, ..two }, &Progress::default());
        let Block::Lead(lead) = &page.sections[0].blocks[1] else { panic!("{page:?}") };
        assert!(lead.starts_with("Held back by: "), "{lead}");
        let found = pages.verdict.as_ref().map(|(found_s, _)| *found_s);
        assert_eq!(found, Some(expect), "at {elapsed_s}");
    }
}

/// What happened to a stream stands in its row, and only there.
#[test]
fn marks_stand_in_the_row_of_their_stream() {
    let mut two = record(2, 400);
    for sample in &mut two.paths[0].samples {
        (sample.segments_retransmitted, sample.bytes_retransmitted, sample.state) = (0, 0, 0);
    }
    let page = page(two, &BTreeMap::new());
    let Chart::Heat(heat) = &figure(&page, "by-stream").chart else { panic!("{page:?}") };
    let rows = |name: &str| -> Vec<usize> {
        let spots = heat.spots.iter().find(|spots| spots.name == name);
        spots.unwrap_or_else(|| panic!("{name}: {heat:?}")).at.iter().map(|at| at.0).collect()
    };
    assert_eq!(rows("pause"), [0, 1]);
    assert_eq!(rows("recovery episode"), [1; 7]);
    let svg = figure(&page, "by-stream").drawing().into_string();
    assert!(svg.contains("data-spots=\"7\" data-name=\"recovery episode\""), "{svg}");
}

/// However many streams and samples there are: 64 of them, and four hours of the fastest sampling.
#[test]
fn a_page_is_bounded() {
    for (streams, samples) in [(1, 200), (4, 2_000), (64, 500), (1, 300_000)] {
        let page = page(record(streams, samples), &BTreeMap::new());
        let html = page.html();
        assert!(html.len() <= 600_000, "{streams} x {samples}: {} bytes", html.len());
        assert!(page.figures().count() >= 8, "{streams} x {samples}");
    }
}

#[test]
fn a_record_with_nothing_in_it_has_a_page() {
    let empty = page(Record::default(), &BTreeMap::new());
    assert!(empty.html().contains("Nothing was moved"), "{empty:?}");
    let compression = Compression {
        raw_bytes: 100,
        compressed_bytes: 50,
        bytes_by_coding: [("zstd:3".to_string(), 60), ("off".to_string(), 40)].into(),
        ..Compression::default()
    };
    let packed = Record { compression: Some(compression), ..record(1, 100) };
    let page = page(packed, &BTreeMap::new());
    assert_eq!(cell(&figure(&page, "codings").tables()[0], "zstd:3", "value"), "60.0");
}

/// What the first words of a page are, by what its run was.
#[test]
fn the_headline_is_that_of_the_run() {
    let none = Record { paths: Vec::new(), ..record(1, 100) };
    let with = |moved: Moved, carrier: &str| Record {
        moved,
        conditions: Conditions { carrier: carrier.into(), ..Conditions::default() },
        ..none.clone()
    };
    let moved = |bytes, files, failed| Moved { bytes, files, failed, ..none.moved };
    let mut at_store = with(moved(9, 1, 0), "memory");
    let times =
        StoreTimes { requests: 9, first_byte: Nanos::from_millis(9000), ..StoreTimes::default() };
    let verdict = crate::diagnosis::store::diagnose(&times, Nanos::from_millis(9000));
    store::keep(&mut at_store, Some(&verdict.unwrap()));
    let mut failed = with(moved(0, 0, 4801), "tcp");
    let why =
        |number: u32| Failure { path: format!("f{number}"), why: format!("'f{number}' exists") };
    failures::keep(&mut failed, (0..4801).map(why));
    let cases = [
        (with(moved(9, 1, 0), "memory"), vec!["The run was inside one process"]),
        (with(moved(9, 1, 0), "tcp"), vec!["No streams were sampled: the run was short"]),
        (with(moved(0, 0, 0), "tcp"), vec!["Nothing was moved: all was at the destination"]),
        (failed, vec!["4801 files not copied.", "Nothing was moved."]),
        (at_store, vec!["Held back by: "]),
    ];
    for (record, expect) in cases {
        // Streams that moved nothing say nothing.
        let paths = if record.moved.bytes == 0 { vec![stream(0, 4)] } else { Vec::new() };
        let page = page(Record { paths, ..record }, &BTreeMap::new());
        let leads = page.sections[0].blocks.iter().filter_map(|block| match block {
            Block::Lead(text) => Some(text.as_str()),
            _ => None,
        });
        let leads: Vec<&str> = leads.collect();
        assert!(
            leads.iter().zip(&expect).all(|(lead, begin)| lead.starts_with(begin)),
            "{leads:?}"
        );
        assert_eq!(leads.len(), expect.len(), "{leads:?}");
        if expect.len() == 2 {
            let html = page.html();
            assert!(html.contains("f9") && !html.contains("f10"), "the first are named");
            assert!(html.contains("And 4791 more."), "{html}");
        }
    }
}

/// A stream has one colour in all charts; what to change stands above the figures.
#[test]
fn a_stream_has_one_colour() {
    let page = page(record(3, 400), &BTreeMap::new());
    for figure in page.figures() {
        let Chart::Xy(chart) = &figure.chart else { continue };
        for series in &chart.series {
            let Some(number) = series.name.strip_prefix("stream ") else { continue };
            let number: usize = number.parse().unwrap();
            assert_eq!(series.colour, number + 1, "{} in {}", series.name, figure.name);
        }
    }
    let html = page.html();
    let at = |text: &str| html.find(text).unwrap_or_else(|| panic!("{text}"));
    assert!(at("What to change") < at("What limited the bytes"));
    assert!(at("What to change") < at("<dl>"));
}

/// A run under way says how far it has come, and how long it takes from there.
#[test]
fn how_far_a_run_has_come() {
    let half = record(1, 100);
    let known =
        |bytes_done, bytes_found, all_found| Progress { bytes_done, bytes_found, all_found };
    let cases = [
        (known(4_500_000, Some(9_000_000), true), "50 % of 8.58 MiB copied; 0:05 left"),
        (known(0, Some(9_000_000), false), "0 B copied of 8.58 MiB found until now."),
        (known(5, None, false), "5 B copied; how much there is shows at its end."),
    ];
    for (progress, expect) in cases {
        let told = how_far(&half, &progress);
        assert!(told.starts_with(expect), "{told}");
    }
    let pipe = Record { sources: vec!["-".into()], target: "dtn2:out".into(), ..half };
    assert_eq!(title(&pipe), "standard input → dtn2:out");
}
