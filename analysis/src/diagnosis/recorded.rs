//! Samples of real connections over an emulated path, for tests: `tests/data/paths/*.csv`, one row
//! per sample of a stream, from either end.

use std::collections::BTreeMap;

use super::evidence::{Evidence, Stream};
use base::path::{LaneClocks, PathSample};
use base::units::{Nanos, Tick};

/// Reads a table; columns are found by name. Panics on errors, as the tables are our own.
pub(super) fn evidence(table: &str) -> Evidence {
    let mut reader = csv::Reader::from_reader(table.as_bytes());
    let names = reader.headers().expect("a table has headings").clone();
    let mut streams: BTreeMap<u32, Stream> = BTreeMap::new();
    for row in reader.records() {
        let row = row.expect("a row is as long as its headings");
        let text = |name: &str| -> &str {
            names.iter().position(|other| other == name).map_or("0", |at| &row[at])
        };
        let number = |name: &str| text(name).parse::<u64>().expect("a cell is a number");
        let sample = sample(&number);
        let key = number("stream") as u32;
        let stream = streams.entry(key).or_insert(Stream { number: key, ..Stream::default() });
        match text("side") {
            "sent" => stream.sent.push(sample),
            _ => stream.received.push(sample),
        }
    }
    Evidence { streams: streams.into_values().collect(), ..Evidence::default() }
}

fn sample(number: &dyn Fn(&str) -> u64) -> PathSample {
    let short = |name: &str| number(name) as u32;
    PathSample {
        at: Tick(number("at_ns")),
        rtt: Nanos(number("rtt_ns")),
        rtt_deviation: Nanos(number("rtt_deviation_ns")),
        rtt_min: Nanos(number("rtt_min_ns")),
        mss_bytes: short("mss_bytes"),
        cwnd_segments: short("cwnd_segments"),
        ssthresh_segments: short("ssthresh_segments"),
        unacked_segments: short("unacked_segments"),
        lost_segments: short("lost_segments"),
        unsent_bytes: short("unsent_bytes"),
        peer_window_bytes: short("peer_window_bytes"),
        state: number("state") as u8,
        app_limited: number("app_limited") == 1,
        delivery_bytes_per_s: number("delivery_bytes_per_s"),
        pace_max_bytes_per_s: number("pace_max_bytes_per_s"),
        bytes_sent: number("bytes_sent"),
        bytes_acked: number("bytes_acked"),
        bytes_retransmitted: number("bytes_retransmitted"),
        segments_sent: number("segments_sent"),
        segments_retransmitted: number("segments_retransmitted"),
        busy: Nanos(number("busy_ns")),
        window_limited: Nanos(number("window_limited_ns")),
        buffer_limited: Nanos(number("buffer_limited_ns")),
        send_buffer_bytes: short("send_buffer_bytes"),
        clocks: LaneClocks {
            source: Nanos(number("source_ns")),
            passage: Nanos(number("passage_ns")),
            sink: Nanos(number("sink_ns")),
            idle: Nanos(number("idle_ns")),
        },
        ..PathSample::default()
    }
}
