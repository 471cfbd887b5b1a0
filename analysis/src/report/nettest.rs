//! A net test: a line for each stream and interval, and the result; as text and for JSON.

use serde::Serialize;

use super::escape;
use super::explain::bits;
use crate::nettest::{Direction, EndTotal, Interval, Moved, Total};
use base::job::Outcome;
use base::settings::Settings;
use base::tally::SideReport;
use base::units::{Bytes, Nanos};

/// What one direction moved in an interval.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Passed {
    pub direction: Direction,
    /// It does not count: TCP was still probing the path.
    pub omitted: bool,
    /// Time since the start of the omitted part, or of the one that counts.
    pub from_s: f64,
    pub to_s: f64,
    pub streams: Vec<Moved>,
    pub sum: Moved,
}

/// The result of a test.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NetTest {
    pub omitted_s: f64,
    /// The time that counts: less than requested where the test was stopped.
    pub duration_s: f64,
    pub ways: Vec<WayTotal>,
    pub hosts: Vec<Cost>,
}

/// One direction.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WayTotal {
    pub direction: Direction,
    /// The name in the sender's kernel.
    pub congestion: String,
    pub streams: u16,
    pub sender: Option<EndTotal>,
    /// Bytes that arrived.
    pub receiver: Option<EndTotal>,
    pub sender_streams: Vec<EndTotal>,
    pub receiver_streams: Vec<EndTotal>,
    pub login_s: f64,
}

/// CPU time of a host's processes, from the first stream to the last byte.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cost {
    /// `here` or `there`.
    pub host: &'static str,
    pub cpu_user_s: f64,
    pub cpu_system_s: f64,
    /// Percent of one CPU.
    pub cpu_user_percent: f64,
    pub cpu_system_percent: f64,
}

impl Passed {
    /// In `moved` the sum comes after the streams.
    pub fn of(direction: Direction, interval: Interval, moved: &[Moved]) -> Passed {
        let (sum, streams) =
            moved.split_last().map_or((Moved::default(), &[][..]), |(sum, all)| (*sum, all));
        Passed {
            direction,
            omitted: interval.omitted,
            from_s: interval.from.seconds(),
            to_s: interval.to.seconds(),
            streams: streams.to_vec(),
            sum,
        }
    }
}

impl WayTotal {
    pub fn of(direction: Direction, total: Total, outcome: &Outcome) -> WayTotal {
        let parts = |mut ends: Vec<EndTotal>| {
            let sum = ends.pop();
            (sum, ends)
        };
        let (sender, sender_streams) = parts(total.sender);
        let (receiver, receiver_streams) = parts(total.receiver);
        let source = match (direction, &outcome.far) {
            (Direction::Reverse, Some(far)) => far,
            _ => &outcome.near,
        };
        WayTotal {
            direction,
            congestion: source.congestion.clone(),
            streams: outcome.streams,
            sender,
            receiver,
            sender_streams,
            receiver_streams,
            login_s: outcome.login.seconds(),
        }
    }
}

/// The CPU time of each host. A local process that has both directions reports them twice.
pub fn costs(outcomes: &[&Outcome]) -> Vec<Cost> {
    let cpu = |side: &SideReport| (side.cpu_user.seconds(), side.cpu_system.seconds());
    let near = outcomes.iter().map(|outcome| cpu(&outcome.near));
    let near = near.reduce(|a, b| if a.0 + a.1 >= b.0 + b.1 { a } else { b });
    let far = outcomes.iter().filter_map(|outcome| outcome.far.as_ref()).map(cpu);
    let far = far.reduce(|a, b| (a.0 + b.0, a.1 + b.1));
    let moved = outcomes.iter().map(|outcome| outcome.moving().seconds());
    let seconds = moved.fold(0.0, f64::max);
    let percent = |cpu_s: f64| if seconds > 0.0 { cpu_s / seconds * 100.0 } else { 0.0 };
    let cost = |(host, (user_s, system_s))| Cost {
        host,
        cpu_user_s: user_s,
        cpu_system_s: system_s,
        cpu_user_percent: percent(user_s),
        cpu_system_percent: percent(system_s),
    };
    let there = far.map(|far| ("there", far));
    near.map(|near| ("here", near)).into_iter().chain(there).map(cost).collect()
}

/// What will be tested, for the first line.
pub fn opening(host: &str, directions: &[Direction], span: &str, settings: &Settings) -> String {
    let ways: Vec<&str> = directions.iter().map(|direction| arrow(*direction)).collect();
    let window =
        settings.window_bytes.map_or("auto".to_string(), |bytes| Bytes(bytes.into()).typed());
    format!(
        "net test: here {} {host}, {span}, {}; seal {}, congestion {}, window {window}, pace {}",
        ways.join(" "),
        super::live::count(settings.streams.into(), "stream"),
        settings.seal.name(),
        settings.congestion.as_deref().unwrap_or("of the system"),
        settings.pace.typed(),
    )
}

/// `10 s after 3 s omitted`.
pub fn span(omit: Nanos, time: Nanos) -> String {
    match omit.0 {
        0 => format!("{} s", time.seconds()),
        _ => format!("{} s after {} s omitted", time.seconds(), omit.seconds()),
    }
}

/// The header of the lines of intervals.
pub fn heading() -> String {
    row(["dir", "stream", "seconds", "bytes", "bitrate", "retr", "cwnd", "rtt"].map(String::from))
}

/// A line for each stream, and one for all of them where there are several.
pub fn lines(passed: &Passed) -> Vec<String> {
    let alone = passed.streams.len() == 1;
    let sum = (!alone).then_some(&passed.sum);
    let line = |moved: &Moved| {
        let omitted = if passed.omitted { "  omitted" } else { "" };
        let line = row([
            arrow(passed.direction).to_string(),
            stream(moved.stream),
            seconds(passed.from_s, passed.to_s),
            Bytes(moved.bytes).to_string(),
            bits(moved.rate_bits_per_s / 8.0),
            moved.retransmitted_segments.map_or(NOTHING.into(), |count| count.to_string()),
            moved.congestion_window_bytes.map_or(NOTHING.into(), |bytes| Bytes(bytes).to_string()),
            moved.rtt_s.map_or(NOTHING.into(), |rtt_s| Nanos((rtt_s * 1e9) as u64).to_string()),
        ]);
        format!("{line}{omitted}")
    };
    passed.streams.iter().chain(sum).map(line).collect()
}

/// The result: each end of each direction, and the CPU time.
pub fn summary(test: &NetTest) -> String {
    let mut text = format!("\ntotal of {:.1} s", test.duration_s);
    if test.omitted_s > 0.0 {
        text.push_str(&format!(", after {:.1} s omitted", test.omitted_s));
    }
    text.push('\n');
    for way in &test.ways {
        let ends = [
            ("sender", &way.sender_streams, &way.sender),
            ("receiver", &way.receiver_streams, &way.receiver),
        ];
        for (name, streams, sum) in ends {
            let several = streams.len() > 1;
            let each = streams.iter().chain(sum.iter().filter(|_| several));
            each.for_each(|end| text.push_str(&end_line(way, test.duration_s, end, name)));
        }
        text.push_str(&format!(
            "{:>3}  congestion {}\n",
            arrow(way.direction),
            escape::line(&way.congestion)
        ));
    }
    let cost = |cost: &Cost| {
        format!(
            "{} {:.1} % of a CPU ({:.1} % user, {:.1} % system)",
            cost.host,
            cost.cpu_user_percent + cost.cpu_system_percent,
            cost.cpu_user_percent,
            cost.cpu_system_percent
        )
    };
    let costs: Vec<String> = test.hosts.iter().map(cost).collect();
    text.push_str(&format!("cpu  {}\n", costs.join("; ")));
    text
}

/// The bottleneck of a direction, in one sentence.
pub fn held_back(direction: Direction, sentence: &str) -> String {
    format!("{:>3}  held back by {sentence}\n", arrow(direction))
}

fn end_line(way: &WayTotal, test_s: f64, end: &EndTotal, name: &str) -> String {
    let line = row([
        arrow(way.direction).to_string(),
        stream(end.stream),
        seconds(0.0, test_s),
        Bytes(end.bytes).to_string(),
        bits(end.rate_bits_per_s / 8.0),
        end.retransmitted_segments.map_or(String::new(), |count| count.to_string()),
        String::new(),
        String::new(),
    ]);
    format!("{}  {name}\n", line.trim_end())
}

/// From this host to the other, or back.
fn arrow(direction: Direction) -> &'static str {
    match direction {
        Direction::Forward => "->",
        Direction::Reverse => "<-",
    }
}

fn stream(number: Option<u32>) -> String {
    number.map_or("sum".to_string(), |number| number.to_string())
}

fn seconds(from: f64, to: f64) -> String {
    format!("{from:.1}-{to:.1}")
}

fn row(cells: [String; 8]) -> String {
    let widths = [3, 6, 11, 11, 12, 6, 10, 9];
    let cells = cells.iter().zip(widths).map(|(cell, width)| format!("{cell:>width$}"));
    cells.collect::<Vec<_>>().join("  ")
}

/// Stands for an unknown figure.
const NOTHING: &str = "-";

#[cfg(test)]
mod tests {
    use super::*;

    fn moved(stream: Option<u32>) -> Moved {
        Moved {
            stream,
            bytes: 12_000_000,
            rate_bits_per_s: 96e6,
            retransmitted_segments: Some(7),
            congestion_window_bytes: Some(1_310_720),
            rtt_s: Some(0.102),
        }
    }

    #[test]
    fn an_interval_is_a_line_for_each_stream_and_their_sum() {
        let interval = Interval { from: Nanos(0), to: Nanos::from_millis(1000), omitted: true };
        let one = Passed::of(Direction::Forward, interval, &[moved(Some(0)), moved(None)]);
        assert_eq!(heading(), HEADING);
        assert_eq!(lines(&one), [format!("{FIRST}  omitted")]);
        let unknown = Moved {
            retransmitted_segments: None,
            congestion_window_bytes: None,
            rtt_s: None,
            ..moved(Some(1))
        };
        let interval = Interval { omitted: false, ..interval };
        let all = [moved(Some(0)), unknown, moved(None)];
        let two = Passed::of(Direction::Reverse, interval, &all);
        let lines = lines(&two);
        assert_eq!(lines[0], FIRST.replace("->", "<-"));
        assert_eq!(lines[1], UNKNOWN);
        assert!(lines[2].contains("   sum   "), "{}", lines[2]);
        assert_eq!(lines.len(), 3);
    }

    #[test]
    fn a_summary_has_both_ends_and_what_they_cost() {
        let end = |again| EndTotal {
            stream: Some(0),
            bytes: 120_000_000,
            rate_bits_per_s: 96e6,
            retransmitted_segments: again,
        };
        let way = WayTotal {
            direction: Direction::Forward,
            congestion: "cubic".into(),
            streams: 1,
            sender: Some(end(Some(12))),
            receiver: Some(end(None)),
            sender_streams: vec![end(Some(12))],
            receiver_streams: vec![end(None)],
            login_s: 0.1,
        };
        let cost = Cost {
            host: "here",
            cpu_user_s: 0.1,
            cpu_system_s: 0.3,
            cpu_user_percent: 1.0,
            cpu_system_percent: 3.0,
        };
        let there = Cost { host: "there", ..cost.clone() };
        let test =
            NetTest { omitted_s: 3.0, duration_s: 10.0, ways: vec![way], hosts: vec![cost, there] };
        assert_eq!(summary(&test), SUMMARY);
    }

    const HEADING: &str =
        "dir  stream      seconds        bytes       bitrate    retr        cwnd        rtt";
    const FIRST: &str =
        " ->       0      0.0-1.0    11.44 MiB   96.0 Mbit/s       7    1.25 MiB   102.0 ms";
    const UNKNOWN: &str =
        " <-       1      0.0-1.0    11.44 MiB   96.0 Mbit/s       -           -          -";
    const SUMMARY: &str = "
total of 10.0 s, after 3.0 s omitted
 ->       0     0.0-10.0   114.44 MiB   96.0 Mbit/s      12  sender
 ->       0     0.0-10.0   114.44 MiB   96.0 Mbit/s  receiver
 ->  congestion cubic
cpu  here 4.0 % of a CPU (1.0 % user, 3.0 % system); there 4.0 % of a CPU (1.0 % user, \
3.0 % system)
";
}
