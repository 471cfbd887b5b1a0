//! Drawings and tables of the same numbers agree, whatever the numbers and the names are.

use super::*;

fn figure(chart: Chart) -> Figure {
    Figure { name: "a-1".into(), title: "T".into(), about: "About it.".into(), chart }
}

fn xy(points: Vec<(f64, f64)>) -> Xy {
    Xy {
        x: Axis::of("time, s"),
        y: Axis::from_zero("rate, Mbit/s"),
        series: vec![Series::line("stream 0", 0, points)],
        marks: Vec::new(),
    }
}

/// A timeline with a span of each kind.
fn timeline(name: &str, from: f64) -> Timeline {
    let all = [SpanKind::Done, SpanKind::Lost, SpanKind::GivenBack, SpanKind::UnderWay];
    let spans = all.into_iter().enumerate().map(|(place, kind)| TimeSpan {
        name: place.to_string(),
        from: from + place as f64,
        to: from + place as f64 + 0.9,
        kind,
    });
    Timeline { name: name.into(), text: "n1".into(), spans: spans.collect() }
}

/// Kinds differ in their shape, not in their colour alone, and so do lines.
#[test]
fn spans_and_lines_are_told_apart_without_colours() {
    let timelines = Timelines { timelines: vec![timeline("w", 0.0)], ..Timelines::default() };
    let whole = figure(Chart::Timelines(timelines));
    assert_eq!(whole.tables()[0].rows.len(), 4);
    assert_eq!(whole.legend().len(), 4);
    insta::assert_snapshot!("timelines", whole.drawing().into_string().replace("><", ">\n<"));
    let dashes: Vec<_> = (0..colour::COUNT).map(draw::dash).collect();
    for (at, one) in dashes.iter().enumerate() {
        assert!(!dashes[at + 1..].contains(one), "{one:?}");
    }
}

/// The number of points in the drawing of a series, counted in its path.
fn drawn(svg: &str, series: &str) -> usize {
    let path = svg.split("<path").find(|path| path.contains(&format!("data-series=\"{series}\"")));
    let d = path.unwrap().split(" d=\"").nth(1).unwrap().split('"').next().unwrap();
    d.matches(['M', 'L', 'V']).count()
}

#[test]
fn the_drawing_has_as_many_points_as_the_table_says() {
    for samples in [1usize, 3, 500, 50_000] {
        let points: Vec<(f64, f64)> = (0..samples).map(|i| (i as f64, (i % 97) as f64)).collect();
        for kind in [Drawn::Line, Drawn::Steps, Drawn::Dots] {
            let mut chart = xy(points.clone());
            chart.series[0].drawn = kind;
            let figure = figure(Chart::Xy(chart));
            let table = &figure.tables()[0];
            assert_eq!(table.rows[0][1], samples.to_string());
            let svg = figure.drawing().into_string();
            assert_eq!(table.rows[0][2], drawn(&svg, "stream 0").to_string());
            assert!(svg.contains(&format!("data-points=\"{}\"", table.rows[0][2])), "{samples}");
        }
    }
}

#[test]
fn all_series_together_are_bounded() {
    let points: Vec<(f64, f64)> = (0..40_000).map(|i| (f64::from(i), f64::from(i % 31))).collect();
    let series = (0..40).map(|i| Series::line(&format!("s{i}"), i, points.clone())).collect();
    let svg = figure(Chart::Xy(Xy { series, ..xy(Vec::new()) })).drawing().into_string();
    assert!(svg.len() < 80_000, "{} bytes", svg.len());
}

/// What a page has space for is worked out from this.
#[test]
fn a_drawing_of_two_thousand_points_is_small() {
    let points = (0..2000).map(|i| (f64::from(i) / 80.0, 20.0 + (f64::from(i) / 47.0).sin()));
    let svg = figure(Chart::Xy(xy(points.collect()))).drawing().into_string();
    assert!((15_000..30_000).contains(&svg.len()), "{} bytes", svg.len());
}

/// A drawing is well-formed, stays on its paper, and has no number that is none.
#[test]
fn odd_numbers_make_no_odd_drawing() {
    let odd = [f64::NAN, f64::INFINITY, -1.0, 0.0, 1e300, f64::MIN_POSITIVE];
    let mut charts =
        vec![Chart::Xy(Xy::default()), Chart::Bars(Bars::default()), Chart::Heat(Heat::default())];
    for value in odd {
        let mut log = xy(vec![(1.0, value), (2.0, 3.0)]);
        log.y.is_log = true;
        charts.extend([
            Chart::Xy(xy(vec![(0.0, value), (1.0, 2.0), (2.0, value)])),
            Chart::Xy(log),
            Chart::Bars(Bars {
                bars: vec![Bar::one("b", 0, value, "t".into())],
                ..Bars::default()
            }),
            Chart::Timelines(Timelines {
                timelines: vec![timeline("l", value)],
                ..Timelines::default()
            }),
            Chart::Heat(Heat {
                rows: vec!["r".into()],
                columns: vec!["c".into(), "d".into()],
                values: vec![vec![Some(value), None]],
                ..Heat::default()
            }),
        ]);
    }
    for chart in charts {
        let text = figure(chart.clone()).file();
        assert!(!text.contains("NaN") && !text.contains("inf"), "{chart:?}\n{text}");
        balanced(&text);
    }
}

/// Every element is closed, and attributes have values: XML, which a file needs.
fn balanced(text: &str) {
    let mut open = Vec::new();
    for tag in text.split('<').skip(1).filter(|tag| !tag.starts_with('?')) {
        let name: String = tag.chars().take_while(|c| c.is_alphanumeric() || *c == '/').collect();
        match name.strip_prefix('/') {
            Some(name) => assert_eq!(open.pop().as_deref(), Some(name), "{text}"),
            None => open.push(name),
        }
    }
    assert!(open.is_empty(), "{open:?}");
}

#[test]
fn names_of_strangers_are_text() {
    let name = "</title><script>alert(1)</script>\u{202e}\u{1b}[2J\"'&".repeat(50);
    let mut chart = xy(vec![(0.0, 1.0), (1.0, 2.0)]);
    chart.series[0].name = name.clone();
    chart.x.label = name.clone();
    let text = Figure { title: name.clone(), ..figure(Chart::Xy(chart)) }.file();
    assert!(!text.contains("<script") && !text.contains('\u{202e}') && !text.contains('\u{1b}'));
    balanced(&text);
}

#[test]
fn drawings() {
    let mut chart = xy(vec![(0.0, 1.0), (1.0, 30.0), (2.0, f64::NAN), (3.0, 20.0)]);
    chart.marks = vec![
        Marks { name: "pause".into(), mark: Mark::Span, at: vec![(1.5, 2.5)] },
        Marks { name: "recovery episode".into(), mark: Mark::Down, at: vec![(1.0, 1.0)] },
    ];
    insta::assert_snapshot!("xy", figure(Chart::Xy(chart)).file());
    let part = |name: &str, colour, value| Part { name: name.into(), colour, value };
    let bar = Bar {
        name: "source".into(),
        parts: vec![part("read", 0, 0.25), part("wait", 1, 0.5)],
        text: "75 %".into(),
    };
    let bars = Bars { label: "share".into(), bars: vec![bar], most: Some(1.0) };
    insta::assert_snapshot!("bars", figure(Chart::Bars(bars)).file());
    let heat = Heat {
        label: "Mbit/s".into(),
        row_label: "window".into(),
        column_label: "streams".into(),
        rows: vec!["64K".into(), "1M".into()],
        columns: vec!["1".into(), "4".into()],
        values: vec![vec![Some(1.0), Some(4.0)], vec![Some(9.0), None]],
        best: Some((1, 0, "fastest: window 1M, streams 1, 9 Mbit/s".into())),
        spots: vec![Spots { name: "pause".into(), mark: Mark::Span, at: vec![(0, 0.5, 1.5)] }],
    };
    insta::assert_snapshot!("heat", figure(Chart::Heat(heat)).file());
}

/// Without their colours series differ in their dashes, their shapes or their patterns, and the
/// legend shows the same; a logarithmic axis says that it is one.
#[test]
fn series_differ_in_more_than_their_colour() {
    let mut dashes: Vec<_> = (0..colour::COUNT).map(draw::dash).collect();
    let mut shapes: Vec<_> = (0..colour::COUNT).map(draw::marker).collect();
    dashes.sort();
    dashes.dedup();
    shapes.sort();
    shapes.dedup();
    assert_eq!((dashes.len(), shapes.len()), (colour::COUNT, colour::COUNT));
    let points = vec![(1.0, 1.0), (10.0, 2.0)];
    let chart = Xy {
        x: Axis { is_log: true, ..Axis::of("request size, bytes") },
        series: vec![
            Series::line("a", 1, points.clone()),
            Series::dots("b", 2, points.clone()),
            Series::area("c", 3, points, vec![0.0, 0.0]),
        ],
        ..xy(Vec::new())
    };
    let file = figure(Chart::Xy(chart)).file();
    // The shape stands at each of two points.
    for (times, text) in [
        (2, "stroke-dasharray=\"8 3\""),
        (3, "h0m-3 -3l6 6m0 -6l-6 6"),
        (2, "fill=\"url(#fill-3) "),
    ] {
        assert_eq!(file.matches(text).count(), times, "{text}: series and legend\n{file}");
    }
    assert!(file.contains("id=\"fill-3\"") && file.contains("request size, bytes (log scale)"));
    assert!(!file.contains("Mbit/s (log scale)"), "{file}");
}

/// Names keep what tells them apart, which is often their end.
#[test]
fn long_names_stand_in_lines() {
    let long = format!("{}: window 512K, 25 streams, level 1", "h".repeat(200));
    let cases = [
        ("short", vec!["short"]),
        (
            "dtn2.example.org: window 512K, 25 streams, level 1",
            vec!["dtn2.example.org: window 512K, 25", "streams, level 1"],
        ),
        ("", vec![]),
    ];
    for (text, expect) in cases {
        assert_eq!(draw::lines(text, 38, 3), expect, "{text}");
    }
    for text in [long.as_str(), &"n".repeat(4000)] {
        let lines = draw::lines(text, 38, 3);
        assert!(
            lines.len() <= 3 && lines.iter().all(|line| line.chars().count() <= 38),
            "{lines:?}"
        );
        let last = &text[text.len() - 6..];
        assert!(lines.last().unwrap().ends_with(last), "{lines:?}");
    }
}
