//! `wan test conditions`: what a path does to traffic beside what ping and iperf3 see of it.

use std::fmt::Write;
use std::fs::{self, File};
use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use ::wan::{
    Counters, FAR_ADDRESS, NEAR_ADDRESS, Outcome, RunningRivals, Scenario, Wan, enter_myself, jain,
};
use serde_json::Value;

use super::cases::{CASES, Case, Claim, Host, Ping, Quantity};
use super::selftest::LATE_MAX;
use crate::bench::machine;
use crate::page::table;
use xtask::{packages, step};

/// `[--only NAME] [--criteria]`: prints a table, writes a page, and fails where a claim does.
pub(super) fn test(options: &[&str]) -> Result<(), String> {
    let (only, criteria) = match options {
        [] => ("", false),
        ["--criteria"] => ("", true),
        ["--only", name] => (*name, false),
        _ => return Err("write wan test conditions [--only NAME] or [--criteria]".to_string()),
    };
    let chosen: Vec<&Case> = CASES.iter().filter(|case| case.name.contains(only)).collect();
    if chosen.is_empty() {
        let names: Vec<&str> = CASES.iter().map(|case| case.name).collect();
        return Err(format!("--only names a part of one of: {}", names.join("; ")));
    }
    if criteria {
        println!("{}", table(&COLUMNS, &rows_of(CASES.iter().map(|case| (case, None)))));
        return Ok(());
    }
    packages::ensure(packages::FOR_WAN)?;
    let mut seen = Vec::new();
    for case in chosen {
        let result = measure(case)?;
        let pairs = [(case, Some(&result))];
        println!("{}", table(&COLUMNS, &rows_of(pairs.into_iter())));
        seen.push((case, result));
    }
    let results = || seen.iter().map(|(case, result)| (*case, Some(result)));
    let failed: Vec<String> = results().flat_map(|(case, result)| faults(case, result)).collect();
    if only.is_empty() {
        write_page(&rows_of(results()), &failed)?;
    }
    match failed.is_empty() {
        true => Ok(()),
        false => Err(format!("claims that do not hold:\n{}", failed.join("\n"))),
    }
}

/// What was seen of a case.
#[derive(Default)]
struct Seen {
    iperf: Value,
    rivals: Outcome,
    pings: Pings,
    /// To far, and to near.
    one_way_ms: [f64; 2],
    /// `ss -tino` of the near host, in the middle.
    sockets: String,
    /// `nstat` of near and far.
    counters: [String; 2],
    path: Counters,
    /// The share of packets that left the link more than 1 ms late.
    late: f64,
}

impl Seen {
    fn is_void(&self) -> bool {
        self.late > LATE_MAX
    }
}

/// Measured again if the machine was too busy for the link.
fn measure(case: &Case) -> Result<Seen, String> {
    let mut seen = look(case)?;
    for _ in 1..ATTEMPTS {
        if !seen.is_void() {
            break;
        }
        println!("{}: {:.1} % of the packets were late; again", case.name, seen.late * 100.0);
        seen = look(case)?;
    }
    Ok(seen)
}

fn look(case: &Case) -> Result<Seen, String> {
    let mut words: Vec<&str> = case.scenario.split_whitespace().collect();
    let limits = [
        "--sysctl",
        "net.ipv4.tcp_rmem=4096 131072 134217728",
        "--sysctl",
        "net.ipv4.tcp_wmem=4096 131072 134217728",
    ];
    words.splice(0..0, limits);
    let scenario = Scenario::from_words(&words).map_err(|why| format!("{}: {why}", case.name))?;
    let wan = Wan::up(&scenario.profile, None)?;
    let mut seen = Seen { one_way_ms: one_way_ms(&wan)?, ..Seen::default() };
    let mut server = Ended(serve(&wan)?);
    let rivals = wan.begin(&scenario)?;
    let ping = ping(&wan, &case.ping)?;
    let load = (!case.load.is_empty()).then(|| iperf(&wan, case.load)).transpose()?;
    let lasts = Duration::from_millis(u64::from(case.ping.count * case.ping.every_ms));
    thread::sleep(lasts / 2);
    seen.sockets = output_of(wan.near(words_of("ss -tinoH")))?;
    if let Some(load) = load {
        let said = ended(load, "iperf3")?;
        seen.iperf = serde_json::from_str(&said).map_err(|why| format!("iperf3: {why}: {said}"))?;
    }
    let said = ended(ping, "ping")?;
    seen.pings = Pings::of(&said, &case.ping);
    let outcomes = rivals.into_iter().map(RunningRivals::stop);
    seen.rivals.flows = outcomes.flat_map(|outcome| outcome.flows).collect();
    // What is on its way still arrives.
    thread::sleep(SETTLE);
    seen.counters =
        [output_of(wan.near(words_of("nstat -asz")))?, output_of(wan.far(words_of("nstat -asz")))?];
    server.0.kill().ok();
    seen.path = wan.counters();
    seen.late = seen.path.late_share();
    Ok(seen)
}

impl Quantity {
    /// `None` if it was not there to be seen.
    fn of(self, seen: &Seen) -> Option<f64> {
        let time = Duration::from_secs_f64;
        let rival_mbit = |from, until| seen.rivals.bits_per_s(time(from), time(until)) / 1e6;
        let forward = seen.path.forward.packets;
        let flows = seen.rivals.flows.len() as f64 + 1.0;
        let stream = &seen.iperf["end"]["streams"][0]["sender"];
        Some(match self {
            Quantity::Rate(from, until) => iperf_mbit(&seen.iperf, from, until)?,
            Quantity::RivalRate(from, until) => rival_mbit(from, until),
            Quantity::SumRate(from, until) => {
                iperf_mbit(&seen.iperf, from, until)? + rival_mbit(from, until)
            }
            Quantity::FairParts(from, until) => {
                let own = iperf_mbit(&seen.iperf, from, until)?;
                own * flows / (own + rival_mbit(from, until))
            }
            Quantity::Jain(from, until) => {
                let rivals = seen.rivals.flows.iter();
                let mut shares: Vec<f64> =
                    rivals.map(|flow| flow.bits_per_s(time(from), time(until)) / 1e6).collect();
                shares.push(iperf_mbit(&seen.iperf, from, until)?);
                jain(&shares)
            }
            Quantity::DatagramLoss => seen.iperf["end"]["sum"]["lost_percent"].as_f64()? / 100.0,
            Quantity::Retransmits => seen.iperf["end"]["sum_sent"]["retransmits"].as_f64()?,
            // In µs.
            Quantity::TcpRtt => stream["mean_rtt"].as_f64()? / 1e3,
            Quantity::PingMedian(from, until) => seen.pings.median_ms(from, until)?,
            Quantity::PingLoss => seen.pings.loss(),
            Quantity::PingRun => seen.pings.mean_run()?,
            Quantity::PingReordered => seen.pings.reordered(),
            Quantity::OneWay(Host::Far) => seen.one_way_ms[0],
            Quantity::OneWay(Host::Near) => seen.one_way_ms[1],
            Quantity::Sockets(word) => {
                let has = |line: &&str| line.split_whitespace().any(|own| own == word);
                seen.sockets.lines().filter(has).count() as f64
            }
            Quantity::Counter(host, name) => counter(&seen.counters[host as usize], name)?,
            Quantity::MarksReceived => {
                counter(&seen.counters[1], "IpExtInCEPkts")? / forward.marks as f64
            }
            Quantity::PolicerDrops => forward.policer_drops as f64,
            Quantity::QueueDrops => forward.queue_drops as f64,
            Quantity::AqmDrops => forward.aqm_drops as f64,
            Quantity::Marks => forward.marks as f64,
            Quantity::Completed => seen.rivals.completed().len() as f64,
            Quantity::CompletedMedian => {
                let times = seen.rivals.completed();
                times.get(times.len() / 2)?.as_secs_f64() * 1e3
            }
        })
    }

    fn named(self) -> String {
        let between = |from: f64, until: f64| format!("{from} to {until} s");
        match self {
            Quantity::Rate(from, until) => format!("iperf3, Mbit/s, {}", between(from, until)),
            Quantity::RivalRate(from, until) => {
                format!("rivals, Mbit/s, {}", between(from, until))
            }
            Quantity::SumRate(from, until) => {
                format!("iperf3 and rivals, Mbit/s, {}", between(from, until))
            }
            Quantity::FairParts(from, until) => {
                format!("iperf3, of its equal share, {}", between(from, until))
            }
            Quantity::Jain(from, until) => format!("Jain's index, {}", between(from, until)),
            Quantity::DatagramLoss => "iperf3, datagrams lost".to_string(),
            Quantity::Retransmits => "iperf3, segments sent again".to_string(),
            Quantity::TcpRtt => "round trip by TCP, ms".to_string(),
            Quantity::PingMedian(from, until) => {
                format!("ping, median ms, {}", between(from, until))
            }
            Quantity::PingLoss => "ping, lost".to_string(),
            Quantity::PingRun => "ping, lost in a row".to_string(),
            Quantity::PingReordered => "ping, overtaken".to_string(),
            Quantity::OneWay(Host::Far) => "datagram there, ms".to_string(),
            Quantity::OneWay(Host::Near) => "datagram back, ms".to_string(),
            Quantity::Sockets(word) => format!("ss, connections with {word}"),
            Quantity::Counter(Host::Near, name) => format!("nstat near, {name}"),
            Quantity::Counter(Host::Far, name) => format!("nstat far, {name}"),
            Quantity::MarksReceived => "nstat far, IpExtInCEPkts for each mark".to_string(),
            Quantity::PolicerDrops => "dropped by the policer".to_string(),
            Quantity::QueueDrops => "dropped by a full queue".to_string(),
            Quantity::AqmDrops => "dropped by CoDel".to_string(),
            Quantity::Marks => "marked by CoDel".to_string(),
            Quantity::Completed => "transfers completed".to_string(),
            Quantity::CompletedMedian => "median of a transfer, ms".to_string(),
        }
    }
}

impl Claim {
    fn holds(&self, seen: Option<f64>) -> bool {
        seen.is_some_and(|seen| (self.least..=self.most).contains(&seen))
    }

    fn bounds(&self) -> String {
        match (self.least, self.most) {
            (least, f64::MAX) => format!("at least {least}"),
            (least, most) if least == most => format!("{least}"),
            (least, most) => format!("{least} to {most}"),
        }
    }
}

/// The goodput by the receiver's intervals of iperf3, weighted by how much of each is in the time.
fn iperf_mbit(said: &Value, from: f64, until: f64) -> Option<f64> {
    let (mut bits, mut seconds) = (0.0, 0.0);
    for interval in said["server_output_json"]["intervals"].as_array()? {
        let sum = &interval["sum"];
        let (start, end) = (sum["start"].as_f64()?, sum["end"].as_f64()?);
        let inside = (end.min(until) - start.max(from)).max(0.0);
        bits += sum["bits_per_second"].as_f64()? * inside;
        seconds += inside;
    }
    (seconds > 0.0).then(|| bits / seconds / 1e6)
}

/// The pings of a run.
#[derive(Default)]
struct Pings {
    /// Of each, in the order of their sending: the round trip in ms, and its place among answers.
    answers: Vec<Option<(f64, usize)>>,
    every_s: f64,
}

impl Pings {
    /// Of lines like `64 bytes from 10.77.0.2: icmp_seq=1 ttl=64 time=102 ms`.
    fn of(said: &str, ping: &Ping) -> Pings {
        let mut answers = vec![None; ping.count as usize];
        let answer = |line: &str| {
            let after = |name: &str| line.split_once(name)?.1.split_whitespace().next();
            let number: usize = after("icmp_seq=")?.parse().ok()?;
            Some((number.checked_sub(1)?, after("time=")?.parse::<f64>().ok()?))
        };
        for (place, (number, ms)) in said.lines().filter_map(answer).enumerate() {
            if let Some(own) = answers.get_mut(number) {
                *own = Some((ms, place));
            }
        }
        Pings { answers, every_s: f64::from(ping.every_ms) / 1e3 }
    }

    fn median_ms(&self, from: f64, until: f64) -> Option<f64> {
        let sent_s = |i: usize| i as f64 * self.every_s;
        let mut times: Vec<f64> = (0..self.answers.len())
            .filter(|i| (from..until).contains(&sent_s(*i)))
            .filter_map(|i| Some(self.answers[i]?.0))
            .collect();
        times.sort_by(f64::total_cmp);
        times.get(times.len() / 2).copied()
    }

    fn loss(&self) -> f64 {
        let lost = self.answers.iter().filter(|answer| answer.is_none()).count();
        lost as f64 / self.answers.len().max(1) as f64
    }

    fn mean_run(&self) -> Option<f64> {
        let is_lost = |i: usize| self.answers[i].is_none();
        let lost = (0..self.answers.len()).filter(|i| is_lost(*i)).count();
        let runs = (0..self.answers.len()).filter(|i| is_lost(*i) && (*i == 0 || !is_lost(i - 1)));
        let runs = runs.count();
        (runs > 0).then(|| lost as f64 / runs as f64)
    }

    /// The share whose answers came behind the answer of a later one.
    fn reordered(&self) -> f64 {
        let mut first_of_later = usize::MAX;
        let mut overtaken = 0;
        for (_, place) in self.answers.iter().rev().flatten() {
            overtaken += usize::from(*place > first_of_later);
            first_of_later = first_of_later.min(*place);
        }
        overtaken as f64 / self.answers.len().max(1) as f64
    }
}

/// `TcpExtTCPSACKReorder            12                 0.0`.
fn counter(said: &str, name: &str) -> Option<f64> {
    let line = said.lines().find(|line| line.split_whitespace().next() == Some(name))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// Both hosts have one clock: the median time of datagrams to far, and to near.
fn one_way_ms(wan: &Wan) -> Result<[f64; 2], String> {
    let told = |why: std::io::Error| format!("datagrams: {why}");
    let access = wan.access();
    let socket = |namespace: &Path, address: &str| {
        let file = File::open(namespace).map_err(told)?;
        let address = format!("{address}:0");
        let bound = thread::spawn(move || {
            enter_myself(&file)?;
            UdpSocket::bind(address)
        });
        bound.join().map_err(|_| "the thread in a namespace panicked")?.map_err(told)
    };
    let near = socket(&access.near, NEAR_ADDRESS)?;
    let far = socket(&access.far, FAR_ADDRESS)?;
    let median = |from: &UdpSocket, to: &UdpSocket| {
        to.set_read_timeout(Some(Duration::from_secs(1)))?;
        let address: SocketAddr = to.local_addr()?;
        let mut times = Vec::new();
        for _ in 0..DATAGRAMS {
            let sent = Instant::now();
            from.send_to(&[0], address)?;
            // One may be lost.
            if to.recv(&mut [0]).is_ok() {
                times.push(sent.elapsed().as_secs_f64() * 1e3);
            }
            thread::sleep(Duration::from_millis(10));
        }
        times.sort_by(f64::total_cmp);
        times.get(times.len() / 2).copied().ok_or(std::io::Error::other("all were lost"))
    };
    Ok([median(&near, &far).map_err(told)?, median(&far, &near).map_err(told)?])
}

fn words_of(line: &str) -> Command {
    let mut words = line.split_whitespace();
    let mut command = Command::new(words.next().unwrap_or_default());
    command.args(words);
    command
}

/// A process that is killed with its owner.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// Its intervals are in the output of the client.
fn serve(wan: &Wan) -> Result<Child, String> {
    let mut server = words_of("iperf3 -s -J -i 0.5");
    server.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let spawned = wan.far(server).and_then(|mut server| server.spawn());
    let server = spawned.map_err(|why| format!("iperf3: {why}"))?;
    // It prints nothing when it listens.
    thread::sleep(SETTLE);
    Ok(server)
}

fn iperf(wan: &Wan, words: &str) -> Result<Child, String> {
    let line = format!("iperf3 -c {FAR_ADDRESS} -J --get-server-output {words}");
    started(wan.near(words_of(&line)))
}

fn ping(wan: &Wan, ping: &Ping) -> Result<Child, String> {
    let Ping { count, every_ms } = ping;
    let every_s = f64::from(*every_ms) / 1e3;
    started(wan.near(words_of(&format!("ping -n -i {every_s} -c {count} -W 2 {FAR_ADDRESS}"))))
}

fn started(command: std::io::Result<Command>) -> Result<Child, String> {
    let mut command = command.map_err(|why| format!("a namespace: {why}"))?;
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().map_err(|why| format!("{command:?}: {why}"))
}

/// Its output. Ping also fails where every packet is lost.
fn ended(child: Child, name: &str) -> Result<String, String> {
    let output = child.wait_with_output().map_err(|why| format!("{name}: {why}"))?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn output_of(command: std::io::Result<Command>) -> Result<String, String> {
    step::output(&mut command.map_err(|why| format!("a namespace: {why}"))?)
}

/// A row for each claim.
fn rows_of<'a>(cases: impl Iterator<Item = (&'a Case, Option<&'a Seen>)>) -> Vec<Vec<String>> {
    let row = |case: &Case, claim: &Claim, seen: Option<&Seen>| {
        let value = seen.and_then(|seen| claim.what.of(seen));
        let verdict = match seen {
            None => "",
            Some(seen) if seen.is_void() => "void",
            Some(_) if claim.holds(value) => "yes",
            Some(_) => "NO",
        };
        vec![
            case.name.to_string(),
            format!("`{}`", case.scenario),
            if case.load.is_empty() { "ping".to_string() } else { format!("`{}`", case.load) },
            claim.what.named(),
            claim.bounds(),
            value.map_or(String::new(), |value| format!("{:.3}", value)),
            verdict.to_string(),
        ]
    };
    cases
        .flat_map(|(case, seen)| case.claims.iter().map(move |claim| row(case, claim, seen)))
        .collect()
}

fn faults(case: &Case, seen: Option<&Seen>) -> Vec<String> {
    let Some(seen) = seen else { return Vec::new() };
    if seen.is_void() {
        return vec![format!("{}: void: {:.1} % late", case.name, seen.late * 100.0)];
    }
    let failed = case.claims.iter().filter(|claim| !claim.holds(claim.what.of(seen)));
    failed
        .map(|claim| {
            let value =
                claim.what.of(seen).map_or("nothing".to_string(), |value| value.to_string());
            format!("{}: {} is {value}, not {}", case.name, claim.what.named(), claim.bounds())
        })
        .collect()
}

fn write_page(rows: &[Vec<String>], failed: &[String]) -> Result<(), String> {
    let mut page = String::from("# Conditions of an emulated path: claimed and seen\n\n");
    for note in machine::notes(Path::new("/dev/shm")) {
        writeln!(page, "- {note}").ok();
    }
    page.push_str(EXPLANATION);
    page.push_str(&table(&COLUMNS, rows));
    writeln!(page, "\n{} claims did not hold or are void.\n", failed.len()).ok();
    failed.iter().for_each(|fault| page.push_str(&format!("- {fault}\n")));
    let date = step::output(Command::new("date").arg("+%F"))?;
    let path = step::root().join(format!("runs/{}-wan-ground.md", date.trim()));
    fs::write(&path, page).map_err(|why| format!("{}: {why}", path.display()))?;
    println!("written to {}", path.display());
    Ok(())
}

const ATTEMPTS: u32 = 3;
const DATAGRAMS: u32 = 11;
const SETTLE: Duration = Duration::from_millis(300);
const COLUMNS: [&str; 7] =
    ["condition", "scenario", "load", "what is seen", "criterion", "seen", "as claimed"];
const EXPLANATION: &str = "
`cargo xtask wan test conditions`, in a dev build. Each scenario is made once; a row is a claim \
about it. The load is one iperf3 from near to far, its rates by the receiver; ping runs beside \
it, 20 a second, or as often as the claim needs. Rivals are the crate's own flows, their rates \
by their receivers. Times count from the moment when rivals and changes begin. If more than 3 % \
of the packets left the link more than 1 ms late, then the machine was too busy: the scenario \
is made again, up to three times, and is void after that.

";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_are_complete() {
        for (at, case) in CASES.iter().enumerate() {
            let words: Vec<&str> = case.scenario.split_whitespace().collect();
            assert!(Scenario::from_words(&words).is_ok(), "{}", case.name);
            assert!(CASES[..at].iter().all(|other| other.name != case.name), "{}", case.name);
            assert!(case.claims.iter().all(|claim| claim.least <= claim.most), "{}", case.name);
        }
    }

    #[test]
    fn what_ping_says_is_read() {
        let line = |number: u32, ms: f64| {
            format!("64 bytes from 10.77.0.2: icmp_seq={number} ttl=64 time={ms} ms\n")
        };
        // Of ten, 3, 4 and 8 are lost; 1 comes behind 2, and 6 behind 7 and 9.
        let order = [(2, 20.0), (1, 60.0), (5, 21.0), (7, 22.0), (9, 23.0), (6, 80.0), (10, 24.0)];
        let said: String = order.iter().map(|(number, ms)| line(*number, *ms)).collect();
        let pings = Pings::of(&said, &Ping { count: 10, every_ms: 100 });
        assert_eq!((pings.loss(), pings.mean_run(), pings.reordered()), (0.3, Some(1.5), 0.2));
        assert_eq!(pings.median_ms(0.4, 1.0), Some(23.0));
        assert_eq!(pings.median_ms(0.2, 0.4), None);
    }

    #[test]
    fn what_iperf3_and_nstat_say_is_read() {
        let interval = |start: f64, mbit: f64| {
            let (end, rate) = (start + 0.5, mbit * 1e6);
            serde_json::json!({"sum": {"start": start, "end": end, "bits_per_second": rate}})
        };
        let intervals = vec![interval(0.0, 10.0), interval(0.5, 20.0), interval(1.0, 40.0)];
        let said = serde_json::json!({"server_output_json": {"intervals": intervals}});
        assert_eq!(iperf_mbit(&said, 0.0, 1.0), Some(15.0));
        assert_eq!(iperf_mbit(&said, 0.75, 1.25), Some(30.0));
        assert_eq!(iperf_mbit(&said, 5.0, 6.0), None);
        let said = "#kernel\nTcpInCsumErrors                 3                  0.0\n";
        assert_eq!(counter(said, "TcpInCsumErrors"), Some(3.0));
        assert_eq!(counter(said, "Tcp"), None);
    }
}
