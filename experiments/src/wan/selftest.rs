//! `wan test`: the requested properties of links, and what ping and iperf3 measure on them.

use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ::wan::{FAR_ADDRESS, Joined, Profile, UNLIMITED, Wan};
use serde_json::Value;

use crate::bench::machine;
use crate::page::table;
use xtask::step;

/// A link, and what is measured on it.
struct Case {
    profile: &'static str,
    look: Look,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Look {
    /// The rate of one TCP stream each way, over `seconds` after a warm-up, in which slow start and
    /// its losses must end.
    Rate { warm_up_s: u32, seconds: u32 },
    /// The share of datagrams that are lost, each way.
    Loss,
}

/// Measurements on one link.
#[derive(Clone, Debug, Default)]
struct Seen {
    rtt_ms: f64,
    /// The least round trip of any packet, by the senders' TCP, under load.
    rtt_least_ms: Option<f64>,
    /// Forward and back.
    rate_mbit: [Option<f64>; 2],
    loss: [Option<f64>; 2],
    late_ms_max: f64,
    late_packets: u64,
    late_share: f64,
    kernel_drops: u64,
    /// Shares of one CPU, the largest of all parts.
    cpu: f64,
}

/// `test [--quick]`: prints a table, and fails where a link is not as requested.
pub(crate) fn test(options: &[&str]) -> Result<(), String> {
    let cases = match options {
        [] => CASES,
        ["--quick"] => QUICK,
        _ => return Err("write wan test or wan test --quick".to_string()),
    };
    let mut rows = Vec::new();
    let mut failed = Vec::new();
    for case in cases {
        println!("\n== {}", case.profile);
        let profile = profile_of(case.profile)?;
        let seen = match look(&profile, case.look) {
            Ok(seen) => seen,
            Err(why) => {
                println!("{why}");
                failed.push(format!("{}: {why}", case.profile));
                continue;
            }
        };
        let faults = judge(&profile, &seen);
        let cells = cells(case.profile, &profile, &seen, &faults);
        println!("| {} |", cells.join(" | "));
        rows.push(cells);
        failed.extend(faults.into_iter().map(|fault| format!("{}: {fault}", case.profile)));
    }
    let table = table(&COLUMNS, &rows);
    println!("\n{table}");
    if options.is_empty() {
        write_page(&table, &failed)?;
    }
    match failed.is_empty() {
        true => Ok(()),
        false => Err(format!("links are not what they were asked to be:\n{}", failed.join("\n"))),
    }
}

fn write_page(table: &str, failed: &[String]) -> Result<(), String> {
    let mut page = String::from("# An emulated WAN: asked and seen\n\n");
    for note in machine::notes(Path::new("/dev/shm")) {
        writeln!(page, "- {note}").ok();
    }
    page.push_str(EXPLANATION);
    page.push_str(table);
    writeln!(page, "\n{} links were not as asked.", failed.len()).ok();
    failed.iter().for_each(|fault| page.push_str(&format!("- {fault}\n")));
    let date = step::output(Command::new("date").arg("+%F"))?;
    let path = step::root().join(format!("runs/{}-wan.md", date.trim()));
    fs::write(&path, page).map_err(|why| format!("{}: {why}", path.display()))?;
    println!("written to {}", path.display());
    Ok(())
}

/// Limits of the kernel's buffers must not limit the measurement.
fn profile_of(line: &str) -> Result<Profile, String> {
    let mut words: Vec<&str> = line.split_whitespace().collect();
    words.extend(["--sysctl", "net.ipv4.tcp_rmem=4096 131072 134217728"]);
    words.extend(["--sysctl", "net.ipv4.tcp_wmem=4096 131072 134217728"]);
    Profile::from_words(&words)
}

fn look(profile: &Profile, look: Look) -> Result<Seen, String> {
    let wan = Wan::up(profile, None)?;
    let mut seen = Seen { rtt_ms: ping(&wan)?, ..Seen::default() };
    let mut server = serve(&wan)?;
    let ways = [("", 0), ("--reverse", 1)];
    let looked = ways.into_iter().try_for_each(|(way, i)| {
        let before = wan.counters();
        let began = Instant::now();
        match look {
            Look::Rate { warm_up_s, seconds } => {
                let words = format!("-C cubic -O {warm_up_s} -t {seconds} {way}");
                let said = iperf(&wan, &words)?;
                let rate = said["end"]["sum_received"]["bits_per_second"].as_f64();
                seen.rate_mbit[i] = Some(rate.ok_or("iperf3 says no rate")? / 1e6);
                // In µs. If the output does not have it, that is no fault of the link's.
                let least = said["end"]["streams"][0]["sender"]["min_rtt"].as_f64();
                let least = least.filter(|least_us| *least_us > 0.0).map(|us| us / 1e3);
                seen.rtt_least_ms = seen.rtt_least_ms.into_iter().chain(least).reduce(f64::min);
            }
            Look::Loss => {
                let said =
                    datagrams(&wan, &format!("-u -w 4M -b {DATAGRAMS} -l 64 -t {LOSS_S} {way}"))?;
                let lost = said["end"]["sum"]["lost_percent"].as_f64();
                seen.loss[i] = Some(lost.ok_or("iperf3 says no loss")? / 100.0);
            }
        }
        let time_ns = began.elapsed().as_nanos() as f64;
        let after = wan.counters();
        let cpu_ns =
            after.forward.cpu_ns + after.back.cpu_ns - before.forward.cpu_ns - before.back.cpu_ns;
        seen.cpu = seen.cpu.max(cpu_ns as f64 / time_ns);
        Ok(())
    });
    server.kill().ok();
    server.wait().ok();
    let counters = wan.counters();
    for way in [counters.forward, counters.back] {
        seen.late_ms_max = seen.late_ms_max.max(way.late_ns_max as f64 / 1e6);
        seen.late_packets += way.late_packets;
        seen.kernel_drops += way.kernel_drops;
    }
    seen.late_share = counters.late_share();
    looked.map(|()| seen)
}

/// The median round-trip time. The first packet waits for look-ups of the kernel; a median is
/// hardly affected by that.
fn ping(wan: &Wan) -> Result<f64, String> {
    let mut ping = Command::new("ping");
    ping.args(["-n", "-i", "0.1", "-c", "21", FAR_ADDRESS]);
    let mut ping = wan.near(ping).map_err(|why| format!("ping: {why}"))?;
    let said = step::output(&mut ping)?;
    let mut times = round_trips_ms(&said);
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().ok_or_else(|| format!("no answer to ping:\n{said}"))
}

/// The times of lines like `64 bytes from 10.77.0.2: icmp_seq=1 ttl=64 time=102 ms`.
fn round_trips_ms(said: &str) -> Vec<f64> {
    let time = |line: &str| line.split_once("time=")?.1.split(' ').next()?.parse().ok();
    said.lines().filter_map(time).collect()
}

pub(crate) fn serve(wan: &Wan) -> Result<Child, String> {
    let told = |why: std::io::Error| format!("iperf3: {why}");
    let mut server = Command::new("iperf3");
    server.arg("-s").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut server = wan.far(server).and_then(|mut server| server.spawn()).map_err(told)?;
    // It prints nothing when it listens. A client that comes too early is refused.
    std::thread::sleep(Duration::from_millis(300));
    match server.try_wait().map_err(told)? {
        None => Ok(server),
        Some(status) => Err(format!("the iperf3 server ended: {status}")),
    }
}

fn iperf(wan: &Wan, words: &str) -> Result<Value, String> {
    let mut client = Command::new("iperf3");
    client.args(["-c", FAR_ADDRESS, "-J"]).args(words.split_whitespace());
    let mut client = wan.near(client).map_err(|why| format!("iperf3: {why}"))?;
    let said = step::output(&mut client)?;
    serde_json::from_str(&said).map_err(|why| format!("iperf3 {words}: {why}:\n{said}"))
}

/// The first datagram is not retried: if it is lost, the run is repeated.
fn datagrams(wan: &Wan, words: &str) -> Result<Value, String> {
    let mut said = iperf(wan, words);
    for _ in 1..ATTEMPTS {
        let is_whole = |said: &Value| said["end"]["sum"]["lost_percent"].is_number();
        if said.as_ref().is_ok_and(is_whole) {
            break;
        }
        said = iperf(wan, words);
    }
    said
}

/// Deviations from the requested link.
fn judge(profile: &Profile, seen: &Seen) -> Vec<String> {
    if seen.late_share > LATE_MAX {
        // Then the measurement is of the machine, not of the link.
        return vec![format!(
            "void: {:.0} % of the packets came out more than 1 ms late: leave this machine alone \
             meanwhile, or ask for a lower rate",
            seen.late_share * 100.0
        )];
    }
    let mut faults = Vec::new();
    let mut check = |what: &str, asked: f64, seen: f64, share: f64, least: f64| {
        if (seen - asked).abs() > (asked * share).max(least) {
            faults.push(format!("{what} {seen:.3} for {asked:.3}"));
        }
    };
    let (forward, back) = (profile.forward, profile.back);
    if profile.joined == Joined::Link {
        // The hosts, and four thread wake-ups, take time too.
        let rtt_ms = (forward.delay_ns + back.delay_ns) as f64 / 1e6;
        check("rtt in ms", rtt_ms, seen.rtt_ms, 0.02, 0.25);
        // TCP keeps the minimum, even of one packet that was early.
        let least_ms = seen.rtt_least_ms.unwrap_or(rtt_ms).min(rtt_ms);
        check("least rtt in ms", rtt_ms, least_ms, 0.02, 1.0);
    }
    for (i, shape) in [forward, back].into_iter().enumerate() {
        if let Some(rate) = seen.rate_mbit[i].filter(|_| shape.rate_bits_per_s != UNLIMITED) {
            let asked = goodput_mbit(profile, shape.rate_bits_per_s);
            // A token bucket is only an upper limit: a slow host is not its fault.
            if profile.joined == Joined::Link || rate > asked {
                check("rate in Mbit/s", asked, rate, 0.03, 0.0);
            }
        }
        if let Some(loss) = seen.loss[i] {
            check("loss", shape.loss.share, loss, 0.2, 0.0);
        }
    }
    if seen.cpu > CPU_MAX && forward.rate_bits_per_s <= CPU_RATE_MAX {
        faults.push(format!("the link took {:.0} % of a CPU", seen.cpu * 100.0));
    }
    if seen.kernel_drops > 0 && profile.joined == Joined::Link {
        faults.push(format!("{} packets were dropped outside the link", seen.kernel_drops));
    }
    faults
}

/// The goodput of TCP with time stamps at a rate: 1448 of 1500 bytes are payload. A token bucket
/// also counts the Ethernet header.
fn goodput_mbit(profile: &Profile, rate_bits_per_s: u64) -> f64 {
    let frame_bytes = if profile.joined == Joined::Veth { 1514.0 } else { 1500.0 };
    rate_bits_per_s as f64 * 1448.0 / frame_bytes / 1e6
}

fn cells(line: &str, profile: &Profile, seen: &Seen, faults: &[String]) -> Vec<String> {
    let rate_of = |rate| match rate {
        UNLIMITED => "-".to_string(),
        rate => format!("{:.2}", goodput_mbit(profile, rate)),
    };
    let (forward, back) = (profile.forward, profile.back);
    let rates = [forward, back].map(|shape| rate_of(shape.rate_bits_per_s));
    let shown = |value: Option<f64>, factor: f64, digits: usize| {
        value.map_or("-".to_string(), |value| format!("{:.digits$}", value * factor))
    };
    let mut cells = vec![
        line.to_string(),
        format!("{:.1}", (forward.delay_ns + back.delay_ns) as f64 / 1e6),
        format!("{:.2}", seen.rtt_ms),
    ];
    for (asked, seen) in rates.into_iter().zip(seen.rate_mbit) {
        let asked = if seen.is_some() { asked } else { "-".to_string() };
        cells.extend([asked, shown(seen, 1.0, 2)]);
    }
    let lost = seen.loss.map(|loss| shown(loss, 100.0, 3));
    let verdict = match faults {
        [] => "yes",
        [fault, ..] if fault.starts_with("void") => "void",
        _ => "NO",
    };
    cells.extend([
        (forward.loss.share * 100.0).to_string(),
        lost.join(" / "),
        format!("{:.2}", seen.late_ms_max),
        seen.late_packets.to_string(),
        format!("{:.0}", seen.cpu * 100.0),
        verdict.to_string(),
    ]);
    cells
}

const CASES: &[Case] = &[
    Case { profile: "--rate 100Mbit --rtt 102ms --queue 1bdp", look: LONG },
    Case { profile: "--rate 300Mbit --rtt 102ms --queue 1bdp", look: LONG },
    Case { profile: "--rate 10Mbit --rtt 180ms --queue 1bdp", look: LONGEST },
    Case { profile: "--rate 200Mbit --rtt 50ms --queue 1bdp", look: MEDIUM },
    Case { profile: "--rate 1Gbit --rtt 5ms --queue 1bdp", look: MEDIUM },
    Case { profile: "--rate 1Gbit --rtt 150ms --queue 1bdp", look: LONG },
    Case { profile: "--rate 100Mbit --rate-back 20Mbit --rtt 20ms --queue 1bdp", look: MEDIUM },
    Case { profile: "--rate 100Mbit --rtt 102ms --loss 0.1%", look: Look::Loss },
    Case { profile: "--rate 100Mbit --rtt 50ms --loss 1% --loss-back 5%", look: Look::Loss },
    Case { profile: "--veth --rate 1Gbit", look: SHORT },
    Case { profile: "--veth --rate 10Gbit", look: SHORT },
    Case { profile: "--rate none", look: SHORT },
];
const QUICK: &[Case] = &[
    Case { profile: "--rate 100Mbit --rtt 20ms --queue 1bdp", look: SHORT },
    Case { profile: "--rate 300Mbit --rtt 20ms --queue 1bdp", look: SHORT },
    Case { profile: "--rate 100Mbit --rtt 10ms --loss 1%", look: Look::Loss },
];
const SHORT: Look = Look::Rate { warm_up_s: 3, seconds: 3 };
const MEDIUM: Look = Look::Rate { warm_up_s: 4, seconds: 8 };
const LONG: Look = Look::Rate { warm_up_s: 12, seconds: 10 };
/// Data that the receiver held back in the warm-up counts too: for 1 % it takes this long.
const LONGEST: Look = Look::Rate { warm_up_s: 12, seconds: 25 };
/// 30,000 datagrams of 64 bytes a second: with 240,000, a loss of 0.1 % is exact to 6 %.
const DATAGRAMS: &str = "15360K";
const LOSS_S: u32 = 8;
const ATTEMPTS: u32 = 3;
/// The largest share of a CPU for the link, and up to which rate it applies.
const CPU_MAX: f64 = 0.5;
const CPU_RATE_MAX: u64 = 300_000_000;
/// The largest share of packets that may be more than 1 ms late.
pub(crate) const LATE_MAX: f64 = 0.03;
const COLUMNS: [&str; 13] = [
    "link",
    "RTT ms",
    "ping",
    "forward Mbit/s",
    "iperf3",
    "back Mbit/s",
    "iperf3",
    "loss %",
    "iperf3",
    "late ms max",
    "late > 1 ms",
    "CPU %",
    "as asked",
];
const EXPLANATION: &str = "
`cargo xtask wan test`, in a dev build. Ping is the median of 21. iperf3 is one TCP stream of \
cubic, its rate behind slow start beside what 1448 bytes of every 1500 (for token buckets 1514) \
make of the link's; loss is of 240,000 datagrams each way. Late: how far behind its time a packet \
came out of the link, at worst, and how many did so by more than 1 ms; then the machine was busy, \
and with more than 3 % of them the row is void. CPU: of one core, both directions together, with \
all that the receiving kernel does at once. As asked: round-trip time within 2 % or 0.25 ms, rate \
within 3 % (a token bucket: not above), loss within 20 %, up to 300 Mbit/s less than half a core, \
and no packet lost outside the link.

";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ping_says_is_read() {
        let said = "PING 10.77.0.2 (10.77.0.2) 56(84) bytes of data.\n\
                    64 bytes from 10.77.0.2: icmp_seq=1 ttl=64 time=102 ms\n\
                    64 bytes from 10.77.0.2: icmp_seq=2 ttl=64 time=101.5 ms\n\n--- statistics\n";
        assert_eq!(round_trips_ms(said), [102.0, 101.5]);
    }

    #[test]
    fn links_are_judged() {
        let profile = |line: &str| profile_of(line).unwrap();
        let link = profile("--rate 100Mbit --rtt 100ms --loss 1%");
        let good = Seen {
            rtt_ms: 100.4,
            rate_mbit: [Some(96.5), Some(95.0)],
            loss: [Some(0.011), None],
            cpu: 0.3,
            ..Seen::default()
        };
        // (measurement, faults)
        let cases = [
            (good.clone(), vec![]),
            (Seen { late_share: 0.04, rtt_ms: 9.0, ..good.clone() }, vec!["void: 4 %"]),
            (Seen { rtt_ms: 103.0, ..good.clone() }, vec!["rtt in ms 103"]),
            (Seen { rtt_least_ms: Some(76.0), ..good.clone() }, vec!["least rtt in ms 76"]),
            (Seen { rtt_least_ms: Some(99.0), ..good.clone() }, vec![]),
            (
                Seen { rate_mbit: [Some(96.5), Some(90.0)], ..good.clone() },
                vec!["rate in Mbit/s 90"],
            ),
            (
                Seen { loss: [Some(0.013), Some(0.0)], ..good.clone() },
                vec!["loss 0.013", "loss 0.000"],
            ),
            (
                Seen { cpu: 0.6, kernel_drops: 3, ..good.clone() },
                vec!["60 % of a CPU", "3 packets"],
            ),
        ];
        for (seen, expected) in cases {
            let faults = judge(&link, &seen);
            assert_eq!(faults.len(), expected.len(), "{faults:?}");
            for (fault, part) in faults.iter().zip(expected) {
                assert!(fault.contains(part), "{fault}");
            }
        }
        // Without limits there is nothing to judge.
        let fast = Seen { cpu: 2.0, loss: [None; 2], ..good };
        assert_eq!(judge(&profile("--rate none"), &fast), Vec::<String>::new());
    }
}
