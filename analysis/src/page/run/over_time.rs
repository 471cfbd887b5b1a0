//! How a run went over time: rates, windows, round trips, losses and pauses, sequence.

use super::streams::{One, Streams, closed};
use crate::page::Block;
use crate::plot::scale::Unit;
use crate::plot::{Axis, Chart, Drawn, Figure, Heat, Mark, Marks, Series, Spots, Xy};
use crate::record::sample::Record;
use base::path::PathSample;

pub(super) fn blocks(record: &Record, streams: &Streams<'_>) -> Vec<Block> {
    if streams.each.is_empty() {
        return vec![Block::Figures(of_series(record).into_iter().collect())];
    }
    let edges = streams.edges();
    let mut figures = vec![throughput(streams, &edges)];
    figures.extend((streams.each.len() > 1).then(|| by_stream(streams, &edges)));
    figures.extend([
        windows(streams),
        in_flight(streams),
        round_trips(streams),
        limits(streams, &edges),
        sequence(streams),
    ]);
    let lost = figures.len() - 2;
    let again = streams.each.iter().map(|one| one.series.grown(|s| s.segments_retransmitted));
    match again.sum::<u64>() {
        0 => {}
        _ => figures.insert(lost, retransmissions(streams, &edges)),
    }
    let between_s = between_s(streams);
    figures.extend(closer(streams, between_s));
    let text = format!(
        "The charts show the {:.2} s in which data moved: from the first byte that was sent to the \
         last acknowledgement, on the clock of the sending host; the login before and the end of \
         files after are not in them. Each stream was sampled every {}: {} samples in all. Grey \
         spans are pauses, in which a stream had nothing to send. Orange triangles at the top are \
         recovery episodes, in which TCP sends again; green triangles at the bottom are bursts \
         after a pause{}.",
        streams.seconds,
        Unit::of_seconds(between_s).name_with(between_s),
        streams.each.iter().map(|one| one.series.samples().len()).sum::<usize>(),
        match pauses_of_most(streams) {
            many if many > PAUSES_DRAWN_MAX => ", where they are not too many to be drawn",
            _ => "",
        }
    );
    vec![Block::Text(text), Block::Figures(figures)]
}

fn pauses_of_most(streams: &Streams<'_>) -> usize {
    let of = |one: &One<'_>| one.verdict.map_or(0, |verdict| verdict.pause_list.len());
    streams.each.iter().map(of).max().unwrap_or(0)
}

/// The median time between two samples.
fn between_s(streams: &Streams<'_>) -> f64 {
    let mut steps: Vec<f64> =
        streams.each.iter().flat_map(|one| one.series.steps().map(|step| step.seconds())).collect();
    if steps.is_empty() {
        return 0.0;
    }
    let middle = steps.len() / 2;
    *steps.select_nth_unstable_by(middle, f64::total_cmp).1
}

/// A copy inside one process has only its bytes over time.
fn of_series(record: &Record) -> Option<Figure> {
    let points = &record.series;
    let rate = |pair: &[crate::record::sample::SeriesPoint]| {
        let seconds = pair[1].at_s - pair[0].at_s;
        let bytes = pair[1].bytes.saturating_sub(pair[0].bytes) as f64;
        (pair[0].at_s, if seconds > 0.0 { bytes / seconds } else { f64::NAN })
    };
    let rates: Vec<(f64, f64)> = points.windows(2).map(rate).collect();
    let most = rates.iter().map(|(_, rate)| *rate).filter(|r| r.is_finite()).fold(0.0, f64::max);
    let unit = Unit::of_rates(most);
    let mut steps: Vec<(f64, f64)> = rates.iter().map(|(x, rate)| (*x, rate / unit.of)).collect();
    steps.push((points.last()?.at_s, steps.last()?.1));
    Some(Figure {
        name: "throughput".into(),
        title: "Throughput".into(),
        about: format!("Bytes that have arrived, between {} moments of the copy.", points.len()),
        chart: Chart::Xy(Xy {
            x: Axis::from_zero("time since the start, s"),
            y: Axis::from_zero(&format!("rate, {}", unit.name)),
            series: vec![Series::steps("rate", 0, steps)],
            marks: Vec::new(),
        }),
    })
}

fn throughput(streams: &Streams<'_>, edges: &[f64]) -> Figure {
    let acked = |one: &One<'_>| one.rates(edges, |sample| sample.bytes_acked);
    let rates: Vec<Vec<f64>> = streams.each.iter().map(acked).collect();
    let sums: Vec<f64> =
        (0..edges.len() - 1).map(|bin| rates.iter().map(|one| one[bin]).sum()).collect();
    let unit = Unit::of_rates(sums.iter().copied().fold(0.0, f64::max));
    let scaled = |values: &[f64]| -> Vec<f64> { values.iter().map(|v| v / unit.of).collect() };
    let mut series = Vec::new();
    if streams.each.len() > 1 && streams.each.len() < EACH_MAX {
        for (place, (one, rates)) in streams.each.iter().zip(&rates).enumerate() {
            let colour = colour_of(place, streams);
            series.push(Series::steps(&one.name(), colour, closed(edges, &scaled(rates))));
        }
    }
    let name = if streams.each.len() > 1 { "all streams" } else { "stream" };
    series.push(Series::steps(name, 0, closed(edges, &scaled(&sums))));
    let bin_s = streams.bin_s();
    Figure {
        name: "throughput".into(),
        title: "Throughput".into(),
        about: format!("Bytes that the receiver acknowledged, in spans of {} s.", short(bin_s)),
        chart: Chart::Xy(Xy {
            marks: marks(streams),
            ..over_time(streams, &format!("rate, {}", unit.name), series)
        }),
    }
}

/// Each stream as a row of colours: who was fast when, also where there are many.
fn by_stream(streams: &Streams<'_>, edges: &[f64]) -> Figure {
    let group = (edges.len() - 1).div_ceil(HEAT_COLUMNS_MAX).max(1);
    let coarse: Vec<f64> = edges.iter().copied().step_by(group).collect();
    let coarse = if coarse.len() < 2 { edges.to_vec() } else { coarse };
    let rates: Vec<Vec<f64>> =
        streams.each.iter().map(|one| one.rates(&coarse, |sample| sample.bytes_acked)).collect();
    let unit = Unit::of_rates(rates.iter().flatten().copied().fold(0.0, f64::max));
    Figure {
        name: "by-stream".into(),
        title: "Throughput of each stream".into(),
        about:
            "One row a stream; the brighter, the faster. What happened to a stream stands in its \
                row."
                .into(),
        chart: Chart::Heat(Heat {
            label: format!("rate, {}", unit.name),
            row_label: "stream".into(),
            column_label: "time since the first byte, s".into(),
            rows: streams.each.iter().map(|one| one.number.to_string()).collect(),
            columns: coarse[..coarse.len() - 1].iter().map(|x| short(*x)).collect(),
            values: rates
                .into_iter()
                .map(|row| row.into_iter().map(|rate| Some(rate / unit.of)).collect())
                .collect(),
            best: None,
            spots: spots(streams, coarse[1] - coarse[0]),
        }),
    }
}

/// Pauses, episodes and bursts in the rows of their streams, whose columns are so long.
fn spots(streams: &Streams<'_>, column_s: f64) -> Vec<Spots> {
    let of_row = |(row, one): (usize, &One<'_>)| {
        let marks = marks_of(&[one]);
        marks.into_iter().map(move |marks| {
            let at = marks.at.iter().map(|(from, to)| (row, from / column_s, to / column_s));
            Spots { name: marks.name, mark: marks.mark, at: at.collect() }
        })
    };
    let mut all: Vec<Spots> = Vec::new();
    for spots in streams.each.iter().enumerate().flat_map(of_row) {
        match all.iter_mut().find(|known| known.name == spots.name) {
            Some(known) => known.at.extend(spots.at),
            None => all.push(spots),
        }
    }
    all
}

fn windows(streams: &Streams<'_>) -> Figure {
    let cwnd = |sample: &PathSample| f64::from(sample.cwnd_segments) * f64::from(sample.mss_bytes);
    let peer = |sample: &PathSample| f64::from(sample.peer_window_bytes);
    let most = highest(streams, cwnd).max(highest(streams, peer).min(4.0 * highest(streams, cwnd)));
    let unit = Unit::of_bytes(most);
    let mut series = each(streams, |sample| cwnd(sample) / unit.of);
    let advertised = widest(streams, peer);
    let mut marks = marks(streams);
    let mut about = "How much TCP allows to be unacknowledged in each stream.".to_string();
    // A window far above is no limit, and would flatten all else.
    match advertised <= 4.0 * highest(streams, cwnd) {
        true => marks.push(Marks {
            name: "largest window that the receiver advertised".into(),
            mark: Mark::Level,
            at: vec![(advertised / unit.of, advertised / unit.of)],
        }),
        false => about.push_str(&format!(
            " The receiver advertised up to {}, which limits nothing here.",
            base::units::Bytes(advertised as u64)
        )),
    }
    series.truncate(SERIES_MAX);
    Figure {
        name: "congestion-window".into(),
        title: "Congestion window".into(),
        about,
        chart: Chart::Xy(Xy {
            marks,
            ..over_time(streams, &format!("window, {}", unit.name), series)
        }),
    }
}

fn in_flight(streams: &Streams<'_>) -> Figure {
    let bytes =
        |sample: &PathSample| f64::from(sample.unacked_segments) * f64::from(sample.mss_bytes);
    let unit = Unit::of_bytes(highest(streams, bytes));
    Figure {
        name: "in-flight".into(),
        title: "In flight".into(),
        about: "Sent and not yet acknowledged.".into(),
        chart: Chart::Xy(Xy {
            marks: marks(streams),
            ..over_time(
                streams,
                &format!("in flight, {}", unit.name),
                each(streams, |sample| bytes(sample) / unit.of),
            )
        }),
    }
}

fn round_trips(streams: &Streams<'_>) -> Figure {
    let rtt = |sample: &PathSample| match sample.rtt.seconds() {
        seconds if seconds > 0.0 && seconds < 4000.0 => seconds,
        _ => f64::NAN,
    };
    let unit = Unit::of_seconds(highest(streams, rtt));
    let least = streams.each.iter().filter_map(|one| one.series.round_trip_min_s());
    let least = least.reduce(f64::min).map(|seconds| Marks {
        name: "least".into(),
        mark: Mark::Level,
        at: vec![(seconds / unit.of, seconds / unit.of)],
    });
    Figure {
        name: "round-trip".into(),
        title: "Round trip".into(),
        about: "TCP's smoothed round trip. What is above the least one waits in a queue.".into(),
        chart: Chart::Xy(Xy {
            marks: marks(streams).into_iter().chain(least).collect(),
            ..over_time(
                streams,
                &format!("round trip, {}", unit.name),
                each(streams, |sample| rtt(sample) / unit.of),
            )
        }),
    }
}

fn retransmissions(streams: &Streams<'_>, edges: &[f64]) -> Figure {
    let bin_s = streams.bin_s();
    let segments = |one: &One<'_>| -> Vec<f64> {
        let rates = one.rates(edges, |sample| sample.segments_retransmitted);
        rates.into_iter().map(|rate| rate * bin_s).collect()
    };
    let all: Vec<Vec<f64>> = streams.each.iter().map(segments).collect();
    let sums: Vec<f64> =
        (0..edges.len() - 1).map(|bin| all.iter().map(|one| one[bin]).sum()).collect();
    let points = closed(edges, &sums);
    let below = vec![0.0; points.len()];
    let total: f64 = sums.iter().sum();
    let sent: u64 = streams.each.iter().map(|one| one.series.grown(|s| s.segments_sent)).sum();
    Figure {
        name: "retransmissions".into(),
        title: "Retransmissions".into(),
        about: format!(
            "Segments sent again, of all streams: {total:.0} of the {sent} that were sent, these \
             included."
        ),
        chart: Chart::Xy(Xy {
            marks: marks(streams),
            ..over_time(
                streams,
                &format!("segments in {} s", short(bin_s)),
                vec![Series::area("segments sent again", 1, points, below)],
            )
        }),
    }
}

/// The three clocks that TCP keeps of a sender, stacked: what limited it.
fn limits(streams: &Streams<'_>, edges: &[f64]) -> Figure {
    let count = streams.each.len() as f64;
    let mean = |clock: fn(&PathSample) -> u64| -> Vec<f64> {
        let all: Vec<Vec<f64>> = streams.each.iter().map(|one| one.rates(edges, clock)).collect();
        (0..edges.len() - 1)
            .map(|bin| all.iter().map(|one| one[bin]).sum::<f64>() / 1e9 / count * 100.0)
            .collect()
    };
    let busy = mean(|sample| sample.busy.0);
    let window = mean(|sample| sample.window_limited.0);
    let buffer = mean(|sample| sample.buffer_limited.0);
    let network = (0..busy.len()).map(|bin| (busy[bin] - window[bin] - buffer[bin]).max(0.0));
    let parts = [
        ("network: congestion window, pace, path", 0, network.collect::<Vec<f64>>()),
        ("receive window", 4, window.clone()),
        ("send buffer", 3, buffer.clone()),
    ];
    let mut below = vec![0.0; edges.len()];
    let mut series = Vec::new();
    for (name, colour, values) in parts {
        let upper: Vec<(f64, f64)> = closed(edges, &values)
            .into_iter()
            .zip(&below)
            .map(|((x, y), low)| (x, (y + low).min(100.0)))
            .collect();
        let edge = upper.iter().map(|point| point.1).collect();
        series.push(Series::area(name, colour, upper, std::mem::replace(&mut below, edge)));
    }
    let mut chart = over_time(streams, "share of time, %", series);
    chart.y.holds.push(100.0);
    Figure {
        name: "limits".into(),
        title: "What TCP waited for".into(),
        about: "TCP's own three clocks, the mean of all streams. The rest of the time it had \
                nothing to send: it waited for the program."
            .into(),
        chart: Chart::Xy(chart),
    }
}

/// Sent and acknowledged; what is sent again stands on the line.
fn sequence(streams: &Streams<'_>) -> Figure {
    let fresh = |sample: &PathSample| sample.bytes_sent.saturating_sub(sample.bytes_retransmitted);
    let most = highest(streams, |sample| fresh(sample) as f64);
    let unit = Unit::of_bytes(most);
    let one = streams.each.iter().max_by_key(|one| {
        (one.series.grown(|sample| sample.segments_retransmitted), one.series.acked_bytes())
    });
    let mut series = Vec::new();
    let mut name = String::new();
    if let Some(one) = one {
        name = one.name();
        series.push(Series::line(
            "sent",
            0,
            one.over_time(|sample| fresh(sample) as f64 / unit.of),
        ));
        series.push(Series::line(
            "acknowledged",
            2,
            one.over_time(|sample| sample.bytes_acked as f64 / unit.of),
        ));
        series.push(Series::dots("sent again", 1, again(one, unit)));
    }
    let about = match streams.each.len() {
        1 => "The distance of the lines is what is in flight; a flat line is a pause.".to_string(),
        _ => format!(
            "Of {name}, which sent most again. The distance of the lines is what is in flight; a \
             flat line is a pause."
        ),
    };
    Figure {
        name: "time-sequence".into(),
        title: "Time-sequence".into(),
        about,
        chart: Chart::Xy(Xy {
            marks: one.map(|one| marks_of(&[one])).unwrap_or_default(),
            ..over_time(streams, &format!("sequence, {}", unit.name), series)
        }),
    }
}

/// The same around the recovery episode with the most retransmissions.
fn closer(streams: &Streams<'_>, between_s: f64) -> Option<Figure> {
    let of = |one: &&One<'_>| one.series.grown(|sample| sample.segments_retransmitted);
    let one = streams.each.iter().max_by_key(of)?;
    let episodes = &one.verdict?.episodes;
    let worst = episodes.iter().max_by_key(|episode| episode.retransmitted_segments)?;
    let round_trip_s = one.series.round_trip_min_s().unwrap_or(0.0);
    let beside_s = (5.0 * round_trip_s).max(8.0 * between_s).max(worst.length_s);
    let at_s = one.from_s + worst.at_s;
    let (from_s, to_s) = ((at_s - beside_s).max(0.0), at_s + worst.length_s + beside_s);
    let mut figure = sequence(streams);
    let Chart::Xy(chart) = &mut figure.chart else { return None };
    let within = |x: f64| (from_s..=to_s).contains(&x);
    for series in &mut chart.series {
        series.points.retain(|point| within(point.0));
    }
    for marks in &mut chart.marks {
        marks.at.retain(|(from, to)| within(*from) && within(*to));
    }
    chart.x.holds = vec![from_s, to_s];
    chart.y.holds.clear();
    figure.name = "time-sequence-closer".into();
    figure.title = "Time-sequence of the worst recovery".into();
    figure.about = format!(
        "{} at {}: {} segments were sent again; the window was {} segments before.",
        capital(&one.name()),
        Unit { name: "s", of: 1.0 }.name_with(at_s),
        worst.retransmitted_segments,
        worst.cwnd_segments
    );
    Some(figure)
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

/// Where something was sent again: at what is acknowledged, from where TCP sends again.
fn again(one: &One<'_>, unit: Unit) -> Vec<(f64, f64)> {
    let origin = one.series.origin();
    let steps = one.series.steps();
    let resent = steps.filter(|step| step.grown(|sample| sample.segments_retransmitted) > 0);
    resent
        .map(|step| {
            let at_s = one.from_s + step.after.at.since(origin).seconds();
            (at_s, step.after.bytes_acked as f64 / unit.of)
        })
        .collect()
}

/// The same in all charts of a page; the first is that of a sum, or of the only stream.
fn colour_of(place: usize, streams: &Streams<'_>) -> usize {
    if streams.each.len() > 1 { place + 1 } else { 0 }
}

/// A series for each stream; where they are many, their median and range.
fn each(streams: &Streams<'_>, figure: impl Fn(&PathSample) -> f64) -> Vec<Series> {
    if streams.each.len() <= SERIES_MAX {
        let line = |(place, one): (usize, &One<'_>)| {
            Series::line(&one.name(), colour_of(place, streams), one.over_time(&figure))
        };
        return streams.each.iter().enumerate().map(line).collect();
    }
    let all: Vec<Vec<(f64, f64)>> = streams.each.iter().map(|one| one.over_time(&figure)).collect();
    let samples = all.iter().map(Vec::len).sum();
    let bins = 300;
    let (mut middle, mut high, mut low) = (Vec::new(), Vec::new(), Vec::new());
    for bin in 0..=bins {
        let x = streams.seconds * f64::from(bin) / f64::from(bins);
        let latest = |points: &Vec<(f64, f64)>| {
            let behind = points.partition_point(|point| point.0 <= x);
            behind.checked_sub(1).map(|at| points[at].1).filter(|y| y.is_finite())
        };
        let mut values: Vec<f64> = all.iter().filter_map(latest).collect();
        values.sort_by(f64::total_cmp);
        if let (Some(least), Some(most)) = (values.first(), values.last()) {
            middle.push((x, values[values.len() / 2]));
            high.push((x, *most));
            low.push(*least);
        }
    }
    let range = Series {
        drawn: Drawn::Range(low),
        ..Series::line("least to most of all streams", 0, high)
    };
    let median = Series::steps(&format!("median of {} streams", all.len()), 1, middle);
    vec![Series { samples: Some(samples), ..range }, Series { samples: Some(samples), ..median }]
}

fn highest(streams: &Streams<'_>, figure: impl Fn(&PathSample) -> f64) -> f64 {
    let samples = streams.each.iter().flat_map(|one| one.series.samples());
    samples.map(figure).filter(|value| value.is_finite()).fold(0.0, f64::max)
}

fn widest(streams: &Streams<'_>, figure: impl Fn(&PathSample) -> f64) -> f64 {
    highest(streams, figure)
}

fn over_time(streams: &Streams<'_>, label: &str, series: Vec<Series>) -> Xy {
    Xy {
        x: Axis { holds: vec![0.0, streams.seconds], ..Axis::of("time since the first byte, s") },
        y: Axis::from_zero(label),
        series,
        marks: Vec::new(),
    }
}

fn marks(streams: &Streams<'_>) -> Vec<Marks> {
    marks_of(&streams.each.iter().collect::<Vec<_>>())
}

/// Pauses, episodes and bursts of some streams. Pauses are drawn where most of them pause.
fn marks_of(streams: &[&One<'_>]) -> Vec<Marks> {
    let known = || streams.iter().filter_map(|one| Some((one.from_s, one.verdict?)));
    let most_paused = known().max_by_key(|(_, verdict)| verdict.pause_list.len());
    let pauses: Vec<_> = most_paused
        .into_iter()
        .flat_map(|(from_s, verdict)| {
            verdict.pause_list.iter().map(move |pause| (from_s + pause.at_s, pause))
        })
        .collect();
    let episodes = known().flat_map(|(from_s, verdict)| {
        verdict.episodes.iter().map(move |episode| from_s + episode.at_s)
    });
    let pauses = if pauses.len() > PAUSES_DRAWN_MAX { Vec::new() } else { pauses };
    let bursts = pauses.iter().filter(|(_, pause)| pause.burst.is_some());
    let moment = |at_s: f64| (at_s, at_s);
    vec![
        Marks {
            name: match streams.len() {
                1 => "pause".into(),
                _ => "pause of the stream with most".into(),
            },
            mark: Mark::Span,
            at: pauses.iter().map(|(at_s, pause)| (*at_s, at_s + pause.length_s)).collect(),
        },
        Marks {
            name: "recovery episode".into(),
            mark: Mark::Down,
            at: episodes.map(moment).collect(),
        },
        Marks {
            name: "burst".into(),
            mark: Mark::Up,
            at: bursts.map(|(at_s, pause)| moment(at_s + pause.length_s)).collect(),
        },
    ]
}

fn short(value: f64) -> String {
    let text = format!("{value:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}

/// With so many streams each has a colour beside the one of their sum.
const EACH_MAX: usize = 6;
/// More of them, as a limit of the rate makes, would cover a chart.
const PAUSES_DRAWN_MAX: usize = 40;
const SERIES_MAX: usize = 5;
const HEAT_COLUMNS_MAX: usize = 60;
