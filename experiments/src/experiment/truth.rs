//! Samples compared with a packet capture of the same copy.

use serde_json::Value;

use super::shown::{Shown, Table};
use super::testbed::{Order, Run, Testbed};
use super::{Experiment, hpss, packets, series};

pub(super) const EPISODES: Experiment = Experiment {
    name: "retransmission-count",
    title: "episodes and retransmissions by samples and by a capture",
    about: "tcptrace found 2233 retransmissions in 33 recovery events in the capture of the 1 GB, \
            about 30 MB apart: the mover's block. Here both are counted twice: from TCP_INFO, as \
            the program samples it, and in the packets that the sender's interface had of the same \
            copy, which nothing else is taken from.",
    run: episodes,
};

pub(super) const ZOOM: Experiment = Experiment {
    name: "pause-capture",
    title: "one pause from near",
    about: "The sender paused more than 200 ms at the end of a block, sent 200 KB at once, and \
            lost most of them. Here every pause of the mover is measured twice, by samples and in \
            its packets; the data holds one of them, segment by segment.",
    run: zoom,
};

fn episodes(testbed: &Testbed) -> Result<Shown, String> {
    let mut shown = Shown::default();
    let mut table = Table::new(
        "Counted by samples, and in the packets:",
        "copy | segments | in packets | sent again | in packets | off % | episodes | in packets \
         | off % | pauses | in packets",
    );
    let mover = hpss::mover(testbed)?;
    let others: Vec<(&str, Run)> = [
        ("0.1 % lost, one stream", LOSSY, "--streams 1 --congestion cubic null:150M far:null:"),
        ("0.1 % lost, four streams", LOSSY, "--streams 4 --congestion cubic null:250M far:null:"),
        (
            "queue of 64 KiB",
            SHALLOW,
            "--streams 1 --congestion cubic --pace off null:100M far:null:",
        ),
    ]
    .into_iter()
    .map(|(name, path, copy)| Ok((name, testbed.copy(&Order::new(path, copy).captured())?)))
    .collect::<Result<_, String>>()?;
    let all = [("mover in lockstep", mover)].into_iter();
    for (name, run) in all.chain(others.iter().map(|(name, run)| (*name, run))) {
        let both = Both::of(run);
        table.row(both.line(name));
        shown.check(
            &format!("{name}: retransmissions and episodes within 10 %"),
            format!(
                "{} and {}, in packets {} and {}",
                both.again[0], both.episodes[0], both.again[1], both.episodes[1]
            ),
            both.off_again() <= 10.0 && both.off_episodes() <= 10.0,
        );
    }
    shown.table(table);
    let period = mover.verdict["figures"]["period"]["bytes"].as_f64().unwrap_or(0.0) / MIB;
    shown.check(
        "the period of 32 MiB is named, within 10 %",
        format!("{period:.1} MiB"),
        (period / 32.0 - 1.0).abs() <= 0.1,
    );
    shown.table(hpss::episodes(mover));
    shown.data("", series::samples_csv(&mover.streams, 0.0, f64::INFINITY, 2500));
    Ok(shown)
}

/// The same figures from both: from samples, then from packets.
struct Both {
    segments: [u64; 2],
    again: [u64; 2],
    episodes: [u64; 2],
    pauses: [u64; 2],
}

impl Both {
    fn of(run: &Run) -> Both {
        let round_trip_s = run.round_trip_s();
        let sum = |count: &dyn Fn(&packets::Stream) -> u64| run.packets.iter().map(count).sum();
        let sent: u64 = run.streams.iter().map(series::Stream::segments_sent).sum();
        Both {
            segments: [sent, sum(&packets::Stream::segments)],
            again: [run.segments_again(), sum(&packets::Stream::sent_again)],
            episodes: [
                run.of_streams("episodes").len() as u64,
                sum(&|stream| stream.episodes(round_trip_s).len() as u64),
            ],
            pauses: [
                run.of_streams("pause_list").len() as u64,
                sum(&|stream| stream.pauses(round_trip_s).len() as u64),
            ],
        }
    }

    fn off_again(&self) -> f64 {
        off_percent(self.again)
    }

    fn off_episodes(&self) -> f64 {
        off_percent(self.episodes)
    }

    fn line(&self, name: &str) -> Vec<String> {
        let text = |pair: [u64; 2]| pair.map(|number| number.to_string());
        let mut cells = vec![name.to_string()];
        cells.extend(text(self.segments));
        cells.extend(text(self.again));
        cells.push(format!("{:.1}", self.off_again()));
        cells.extend(text(self.episodes));
        cells.push(format!("{:.1}", self.off_episodes()));
        cells.extend(text(self.pauses));
        cells
    }
}

/// The relative difference of the first from the second, in percent.
fn off_percent([samples, packets]: [u64; 2]) -> f64 {
    let off = samples.abs_diff(packets) as f64;
    if packets == 0 { off * 100.0 } else { off / packets as f64 * 100.0 }
}

fn zoom(testbed: &Testbed) -> Result<Shown, String> {
    let mover = hpss::mover(testbed)?;
    let round_trip_s = mover.round_trip_s();
    let wire = mover.packets.first().ok_or("the capture has no data stream")?;
    let in_packets = wire.pauses(round_trip_s);
    let lost = wire.episodes(round_trip_s);
    let sampled = mover.of_streams("pause_list");
    let mut shown = Shown::default();
    let mut table = Table::new(
        "Each pause by samples, and in the packets:",
        "pause | ms | in packets | burst KB | in packets | of it sent again | loss begins behind \
         its end, ms",
    );
    let (mut off_ms, mut off_burst, mut lossy) = (0.0f64, 0.0f64, 0);
    let pairs = pairs(&sampled, &in_packets);
    for (number, (seen, truth)) in pairs.iter().enumerate() {
        let length_ms = seen["length_s"].as_f64().unwrap_or(0.0) * 1e3;
        let burst = seen["burst"]["bytes"].as_f64().unwrap_or(0.0);
        let ends_s = truth.at_s + truth.length_s;
        let within =
            |one: &&packets::Episode| one.at_s >= ends_s && one.at_s <= ends_s + 3.0 * round_trip_s;
        let loss = lost.iter().find(within);
        off_ms = off_ms.max((length_ms - truth.length_s * 1e3).abs());
        off_burst = off_burst.max((burst / truth.burst_bytes as f64 - 1.0).abs() * 100.0);
        lossy += usize::from(loss.is_some());
        let again = loss.map_or(0.0, |loss| loss.segments as f64 * SEGMENT_BYTES);
        table.row(vec![
            (number + 1).to_string(),
            format!("{length_ms:.0}"),
            format!("{:.0}", truth.length_s * 1e3),
            format!("{:.0}", burst / 1e3),
            format!("{:.0}", truth.burst_bytes as f64 / 1e3),
            format!("{:.0} %", (again / truth.burst_bytes as f64 * 100.0).min(100.0)),
            loss.map_or("none".into(), |loss| format!("{:.0}", (loss.at_s - ends_s) * 1e3)),
        ]);
    }
    shown.table(table);
    let counts = (sampled.len(), in_packets.len());
    shown.check(
        "every pause is seen by both",
        format!("{} and {}", counts.0, counts.1),
        counts.0 == counts.1 && counts.0 == pairs.len() && counts.0 > 0,
    );
    shown.check("lengths within 20 ms", format!("{off_ms:.0} ms at worst"), off_ms <= 20.0);
    shown.check("bursts within 15 %", format!("{off_burst:.1} % at worst"), off_burst <= 15.0);
    shown.check(
        "losses within three round trips of every pause",
        format!("{lossy} of {}", pairs.len()),
        lossy == pairs.len(),
    );
    if let Some((seen, truth)) = pairs.get(1) {
        let span = |at_s: f64, length_s: f64| (at_s - 0.3, at_s + length_s + 0.7);
        let (from_s, to_s) = span(truth.at_s, truth.length_s);
        shown.data("packets", series::packets_csv(wire, from_s, to_s, 4000));
        let at_s = seen["at_s"].as_f64().unwrap_or(0.0);
        let (from_s, to_s) = span(at_s, truth.length_s);
        shown.data("samples", series::samples_csv(&mover.streams, from_s, to_s, 1000));
    }
    Ok(shown)
}

/// Pauses in both at the same position of the stream.
fn pairs<'a>(
    sampled: &[&'a Value],
    in_packets: &'a [packets::Pause],
) -> Vec<(&'a Value, &'a packets::Pause)> {
    let mut place = 0;
    let mut pairs = Vec::new();
    for seen in sampled {
        place += seen["bytes_before"].as_u64().unwrap_or(0);
        let near = |truth: &&packets::Pause| truth.place_bytes.abs_diff(place) <= NEAR_BYTES;
        pairs.extend(in_packets.iter().find(near).map(|truth| (*seen, truth)));
    }
    pairs
}

const LOSSY: &str = "--rate 100Mbit --rtt 40ms --queue 1bdp --loss 0.1% --loss-back 0";
const SHALLOW: &str = "--rate 100Mbit --rtt 102ms --queue 64K";
/// Bytes of the handshake are not in a sample's counters.
const NEAR_BYTES: u64 = 64 << 10;
const SEGMENT_BYTES: f64 = 1448.0;
const MIB: f64 = 1048576.0;
