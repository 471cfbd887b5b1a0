//! Samples of the sending ends of streams over time, from the lines of `results export`.

use std::fmt::Write;

use super::packets;

/// One sample of a stream. Counters are since the connection began.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Sample {
    /// Since the first sample of any stream of the run.
    pub at_s: f64,
    pub rtt_s: f64,
    pub cwnd_segments: f64,
    pub unacked_segments: f64,
    pub unsent_bytes: f64,
    pub peer_window_bytes: f64,
    pub sent_bytes: f64,
    pub acked_bytes: f64,
    pub segments_sent: f64,
    pub segments_again: f64,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Stream {
    pub number: u32,
    pub samples: Vec<Sample>,
}

/// Reads the output of `results export --what paths --format csv` for one run.
pub(super) fn sending_ends(csv: &str) -> Result<Vec<Stream>, String> {
    let mut lines = csv.lines();
    let names: Vec<&str> = lines.next().unwrap_or_default().split(',').collect();
    let place = |name: &str| {
        let place = names.iter().position(|other| *other == name);
        place.ok_or_else(|| format!("results export has no column {name}"))
    };
    let (role, stream) = (place("role")?, place("stream")?);
    let columns: Vec<usize> = COLUMNS.iter().map(|name| place(name)).collect::<Result<_, _>>()?;
    let mut streams: Vec<Stream> = Vec::new();
    for line in lines {
        let words: Vec<&str> = line.split(',').collect();
        if words.get(role) != Some(&"source") {
            continue;
        }
        let number = words.get(stream).and_then(|word| word.parse().ok()).unwrap_or(0);
        let value = |column: usize| {
            let word = words.get(columns[column]);
            word.and_then(|word| word.parse::<f64>().ok()).unwrap_or(0.0)
        };
        let sample = Sample {
            at_s: value(0) / 1e9,
            rtt_s: value(1) / 1e9,
            cwnd_segments: value(2),
            unacked_segments: value(3),
            unsent_bytes: value(4),
            peer_window_bytes: value(5),
            sent_bytes: value(6),
            acked_bytes: value(7),
            segments_sent: value(8),
            segments_again: value(9),
        };
        match streams.iter_mut().find(|stream| stream.number == number) {
            Some(stream) => stream.samples.push(sample),
            None => streams.push(Stream { number, samples: vec![sample] }),
        }
    }
    let first = streams.iter().filter_map(|stream| stream.samples.first());
    let origin_s = first.map(|sample| sample.at_s).fold(f64::INFINITY, f64::min);
    let all = streams.iter_mut().flat_map(|stream| &mut stream.samples);
    all.for_each(|sample| sample.at_s -= origin_s);
    streams.sort_by_key(|stream| stream.number);
    Ok(streams)
}

impl Stream {
    pub(crate) fn segments_again(&self) -> u64 {
        self.grown(|sample| sample.segments_again) as u64
    }

    pub(crate) fn segments_sent(&self) -> u64 {
        self.grown(|sample| sample.segments_sent) as u64
    }

    fn grown(&self, counter: fn(&Sample) -> f64) -> f64 {
        match (self.samples.first(), self.samples.last()) {
            (Some(first), Some(last)) => counter(last) - counter(first),
            _ => 0.0,
        }
    }

    /// Bytes acknowledged until a time, interpolated between samples.
    fn acked_until(&self, at_s: f64) -> f64 {
        let later = self.samples.partition_point(|sample| sample.at_s <= at_s);
        let Some(before) = later.checked_sub(1).map(|index| self.samples[index]) else {
            return self.samples.first().map_or(0.0, |first| first.acked_bytes);
        };
        let Some(after) = self.samples.get(later) else { return before.acked_bytes };
        let share = (at_s - before.at_s) / (after.at_s - before.at_s);
        before.acked_bytes + share * (after.acked_bytes - before.acked_bytes)
    }

    /// The longest time between two samples in which data was sent; an end message is not data.
    pub(crate) fn longest_silence_s(&self) -> f64 {
        let sends: Vec<f64> = self
            .samples
            .windows(2)
            .filter(|pair| pair[1].sent_bytes - pair[0].sent_bytes > FAREWELL_BYTES_MAX)
            .map(|pair| pair[1].at_s)
            .collect();
        sends.windows(2).map(|pair| pair[1] - pair[0]).fold(0.0, f64::max)
    }
}

pub(super) fn duration_s(streams: &[Stream]) -> f64 {
    let last = streams.iter().filter_map(|stream| stream.samples.last());
    last.map(|sample| sample.at_s).fold(0.0, f64::max)
}

/// The rate of acknowledgements of all streams together, in Mbit/s, one value per time span.
pub(super) fn rates_mbit_s(streams: &[Stream], stretch_s: f64) -> Vec<f64> {
    let count = (duration_s(streams) / stretch_s).floor() as usize;
    let until = |at_s: f64| streams.iter().map(|stream| stream.acked_until(at_s)).sum::<f64>();
    let rate = |index: usize| {
        let from_s = index as f64 * stretch_s;
        (until(from_s + stretch_s) - until(from_s)) * 8.0 / stretch_s / 1e6
    };
    (0..count).map(rate).collect()
}

/// Rates over time of several copies, as CSV.
pub(super) fn rates_csv<'a>(
    copies: impl IntoIterator<Item = (String, &'a [Stream])>,
    stretch_s: f64,
) -> String {
    let mut text = String::from("copy,at_s,mbit_per_s\n");
    for (name, streams) in copies {
        for (index, rate) in rates_mbit_s(streams, stretch_s).iter().enumerate() {
            let at_s = (index + 1) as f64 * stretch_s;
            let _ = writeln!(text, "{name},{at_s:.2},{rate:.2}");
        }
    }
    text
}

/// Every sample in a span of time, as CSV; only every second, third, … if there were more than
/// `lines`.
pub(super) fn samples_csv(streams: &[Stream], from_s: f64, to_s: f64, lines: usize) -> String {
    let within = |sample: &&Sample| (from_s..=to_s).contains(&sample.at_s);
    let all: usize = streams.iter().map(|one| one.samples.iter().filter(within).count()).sum();
    let stride = all.div_ceil(lines.max(1)).max(1);
    let mut text = String::from(
        "stream,at_s,rtt_ms,cwnd_segments,unacked_segments,peer_window_bytes,sent_bytes,\
         acked_bytes,segments_again\n",
    );
    for stream in streams {
        for sample in stream.samples.iter().filter(within).step_by(stride) {
            let _ = writeln!(
                text,
                "{},{:.4},{:.2},{},{},{},{},{},{}",
                stream.number,
                sample.at_s,
                sample.rtt_s * 1e3,
                sample.cwnd_segments,
                sample.unacked_segments,
                sample.peer_window_bytes,
                sample.sent_bytes,
                sample.acked_bytes,
                sample.segments_again
            );
        }
    }
    text
}

/// Segments of a span of time from a capture: position in the stream against time.
pub(super) fn packets_csv(
    stream: &packets::Stream,
    from_s: f64,
    to_s: f64,
    lines: usize,
) -> String {
    let within = |event: &&packets::Event| (from_s..=to_s).contains(&event.at_s);
    let stride = stream.events.iter().filter(within).count().div_ceil(lines.max(1)).max(1);
    let mut text = String::from("at_s,kind,place_bytes,bytes\n");
    for event in stream.events.iter().filter(within).step_by(stride) {
        let (kind, place, bytes) = match event.what {
            packets::What::Sent { from, bytes, again: false } => ("sent", from, bytes),
            packets::What::Sent { from, bytes, again: true } => ("sent again", from, bytes),
            packets::What::Acked { until } => ("acknowledged", until, 0),
        };
        let _ = writeln!(text, "{:.6},{kind},{place},{bytes}", event.at_s);
    }
    text
}

/// In the order of the fields of a sample.
const COLUMNS: [&str; 10] = [
    "at_ns",
    "rtt_ns",
    "cwnd_segments",
    "unacked_segments",
    "unsent_bytes",
    "peer_window_bytes",
    "bytes_sent",
    "bytes_acked",
    "segments_sent",
    "segments_retransmitted",
];
const FAREWELL_BYTES_MAX: f64 = 128.0;

#[cfg(test)]
mod tests {
    use super::*;

    /// Two sending ends, and a receiving one that must be ignored.
    fn text() -> String {
        let mut text = format!("run,stream,role,{}\n", COLUMNS.join(","));
        for (stream, role) in [(1, "source"), (0, "sink"), (0, "source")] {
            for step in 0..11 {
                let at_ns = (5 + step) * 100_000_000u64;
                let bytes = step * 125_000;
                let _ = writeln!(text, "1,{stream},{role},{at_ns},1,2,3,4,5,{bytes},{bytes},8,9");
            }
        }
        text
    }

    #[test]
    fn exported_samples_are_read() {
        let streams = sending_ends(&text()).unwrap();
        let numbers: Vec<u32> = streams.iter().map(|stream| stream.number).collect();
        assert_eq!(numbers, [0, 1]);
        let last = streams[1].samples.last().unwrap();
        assert!((last.at_s - 1.0).abs() < 1e-9, "{last:?}");
        assert_eq!((last.sent_bytes, last.cwnd_segments), (1_250_000.0, 2.0));
        assert!(sending_ends("run,stream,role\n").unwrap_err().contains("at_ns"));
    }

    #[test]
    fn rates_are_those_of_all_streams() {
        let streams = sending_ends(&text()).unwrap();
        let rates = rates_mbit_s(&streams, 0.25);
        assert_eq!(rates.len(), 4);
        assert!(rates.iter().all(|rate| (rate - 20.0).abs() < 1e-6), "{rates:?}");
        assert!((streams[0].longest_silence_s() - 0.1).abs() < 1e-9);
        assert_eq!(samples_csv(&streams, 0.0, 1.0, 11).lines().count(), 13);
    }
}
