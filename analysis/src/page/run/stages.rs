//! Where the time of lanes and requests went, and how fast each stage is while it works.

use super::streams::Streams;
use crate::page::Block;
use crate::plot::scale::Unit;
use crate::plot::{Bar, Bars, Chart, Figure, Part};
use crate::record::sample::{Record, Side};
use base::path::{LaneClocks, PathSample};

pub(super) fn blocks(record: &Record, streams: &Streams<'_>) -> Vec<Block> {
    let sides = [lane_times(streams, true), lane_times(streams, false)];
    let [sender, receiver] = sides;
    let mut figures = Vec::new();
    figures.extend(lanes(&sender, &receiver));
    figures.extend(rates(record, &sender, &receiver));
    figures.extend(requests(record));
    vec![Block::Figures(figures)]
}

/// The time of all lanes of one side, in seconds.
#[derive(Clone, Copy, Debug, Default)]
struct LaneTimes {
    lanes: usize,
    total_s: f64,
    source_s: f64,
    passage_s: f64,
    sink_s: f64,
    idle_s: f64,
}

fn lane_times(streams: &Streams<'_>, of_sender: bool) -> LaneTimes {
    let mut times = LaneTimes::default();
    for stream in &streams.evidence.streams {
        let samples: &[PathSample] = if of_sender { &stream.sent } else { &stream.received };
        let (Some(first), Some(last)) = (samples.first(), samples.last()) else { continue };
        let spent = |clock: fn(&LaneClocks) -> base::units::Nanos| {
            (clock(&last.clocks) - clock(&first.clocks)).seconds()
        };
        times.lanes += 1;
        times.total_s += last.at.since(first.at).seconds();
        times.source_s += spent(|clocks| clocks.source);
        times.passage_s += spent(|clocks| clocks.passage);
        times.sink_s += spent(|clocks| clocks.sink);
        times.idle_s += spent(|clocks| clocks.idle);
    }
    times
}

fn lanes(sender: &LaneTimes, receiver: &LaneTimes) -> Option<Figure> {
    let bar = |name: &str, times: &LaneTimes, busy: [(&str, usize); 3]| {
        let all = times.total_s.max(1e-9);
        let share = |seconds: f64| (seconds / all).clamp(0.0, 1.0) * 100.0;
        let known = [times.source_s, times.passage_s, times.sink_s, times.idle_s];
        let rest = (all - known.iter().sum::<f64>()).max(0.0);
        let mut parts: Vec<Part> = busy
            .into_iter()
            .zip(known)
            .map(|((name, colour), seconds)| Part {
                name: name.into(),
                colour,
                value: share(seconds),
            })
            .collect();
        parts.push(Part { name: "other work".into(), colour: 4, value: share(rest) });
        let text = format!("{:.0} % with nothing to do", share(times.idle_s));
        Bar { name: name.into(), parts, text }
    };
    let mut bars = Vec::new();
    if sender.lanes > 0 {
        let busy = [("reading the source", 0), (PROCESSING, 3), (NETWORK, 1)];
        bars.push(bar("sending host", sender, busy));
    }
    if receiver.lanes > 0 {
        let busy = [(NETWORK, 1), (PROCESSING, 3), ("writing", 2)];
        bars.push(bar("receiving host", receiver, busy));
    }
    (!bars.is_empty()).then(|| Figure {
        name: "lanes".into(),
        title: "What the threads of the streams did".into(),
        about:
            "Each stream has one thread on each host. The rest of a bar is time with nothing to \
                do: the other side had not asked for more, or there was no more."
                .into(),
        chart: Chart::Bars(Bars {
            label: "share of the threads’ time, %".into(),
            bars,
            most: Some(100.0),
        }),
    })
}

/// The rate of each stage while it works: the lowest is the first that would limit the run.
fn rates(record: &Record, sender: &LaneTimes, receiver: &LaneTimes) -> Option<Figure> {
    let bytes = record.moved.bytes as f64;
    let lanes = sender.lanes.max(receiver.lanes).max(1) as f64;
    let copy = record.moved.goodput_bytes_per_s;
    let stage = |side: &Side, name: &str| side.stages_s.get(name).copied().unwrap_or(0.0);
    let sink = record.sink.as_ref();
    let mut stages = vec![("source: reading".to_string(), sender.source_s)];
    for (name, told) in [("digest", "digest"), ("codec", "compression"), ("seal", "encryption")] {
        stages.push((format!("{told}, sending host"), stage(&record.source, name)));
    }
    stages.push(("wire: sending".into(), sender.sink_s));
    if let Some(sink) = sink {
        let of_sink = [("seal", "decryption"), ("codec", "decompression"), ("digest", "digest")];
        for (name, told) in of_sink {
            stages.push((format!("{told}, receiving host"), stage(sink, name)));
        }
    }
    stages.push(("sink: writing".into(), receiver.sink_s));
    let most = 8.0 * copy;
    let bar = |(name, seconds): (String, f64)| {
        let rate = bytes * lanes / seconds;
        let text = match rate > most {
            true => format!("{} →", bits(rate)),
            false => bits(rate),
        };
        Bar::one(&name, 0, rate.min(most), text)
    };
    let least_s = LEAST_SHARE * sender.total_s.max(receiver.total_s);
    let known = stages.into_iter().filter(|(_, seconds)| *seconds > least_s && seconds.is_finite());
    let mut bars: Vec<Bar> = known.map(bar).collect();
    if bars.is_empty() || copy <= 0.0 || !copy.is_finite() {
        return None;
    }
    bars.insert(0, Bar::one("the run itself", 1, copy, bits(copy)));
    Some(Figure {
        name: "stage-rates".into(),
        title: "How fast each stage is while it works".into(),
        about:
            "Computed: the bytes over the time that the threads spent in a stage, as if nothing \
                else held them up; only the rate of the run was reached. A stage near that rate is \
                what it waits for. Bars with an arrow end at eight times that rate; a stage that \
                took less than a thousandth of the time has none."
                .into(),
        chart: Chart::Bars(Bars { label: "rate while at work".into(), bars, most: Some(most) }),
    })
}

/// Of the threads' time: less is a stage that has nothing to do.
const LEAST_SHARE: f64 = 0.001;

/// The mean time of a request in each stage, on each side.
fn requests(record: &Record) -> Option<Figure> {
    let bar = |name: &str, side: &Side| {
        let each = |seconds: f64| seconds / side.requests as f64 * 1e3;
        let times = [
            ("filling", 0, side.fill_s),
            ("processing", 3, side.pass_s),
            ("waiting", 4, side.gate_s),
            ("draining", 1, side.drain_s),
        ];
        let all: f64 = times.iter().map(|(_, _, seconds)| each(*seconds)).sum();
        let parts = times.map(|(name, colour, seconds)| Part {
            name: name.into(),
            colour,
            value: each(seconds),
        });
        Bar {
            name: name.into(),
            parts: parts.into(),
            text: format!("{} requests of {all:.2} ms", side.requests),
        }
    };
    let alone = record.sink.is_none();
    let source = (if alone { "both ends" } else { "sending host" }, &record.source);
    let sink = record.sink.as_ref().map(|side| ("receiving host", side));
    let counted = [Some(source), sink].into_iter().flatten().filter(|(_, side)| side.requests > 0);
    let bars: Vec<Bar> = counted.map(|(name, side)| bar(name, side)).collect();
    (!bars.is_empty()).then(|| Figure {
        name: "requests".into(),
        title: "Mean time of a request".into(),
        about: "A request is a piece of data and its buffer. Filling: the source gives the bytes, \
                or at the receiving host the network does. Processing: digest, compression and \
                encryption. Waiting: until the next stream or file takes it. Draining: the network \
                takes the bytes, or at the receiving host the sink does."
            .into(),
        chart: Chart::Bars(Bars { label: "time, ms".into(), bars, most: None }),
    })
}

const NETWORK: &str = "sending, receiving: waiting for the network";
const PROCESSING: &str = "digest, compression, encryption";

fn bits(bytes_per_s: f64) -> String {
    Unit::of_rates(bytes_per_s).name_with(bytes_per_s)
}
