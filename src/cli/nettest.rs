//! `datapump net-test HOST`: the throughput of the path to a host, interval by interval.
//!
//! For each direction it is a copy from an endless source to null, which is stopped after the given
//! time. It shows the samples that every copy takes.

use std::ffi::OsString;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::console::Console;
use super::endpoint::{EndArg, Role};
use super::options::{net_test, showing};
use super::order::{self, Show};
use super::progress::Collected;
use super::record::{self, Ends, Recording};
use super::settings::{remote, settings};
use super::typed::Typed;
use super::{explain, signals, start};
use crate::measure::own_process;
use analysis::nettest::{Direction, DirectionSamples, Interval, Span};
use analysis::record::copy_record::Series;
use analysis::record::sample::Record;
use analysis::report::explain as page;
use analysis::report::json::{self, Event};
use analysis::report::nettest::{self as report, NetTest, Passed, WayTotal};
use base::codec::Compress;
use base::fault::{Class, Fault};
use base::job::{Job, Location, Notice, Outcome, Remote, StreamPath};
use base::settings::{DigestKind, Seal, Settings};
use base::units::{Nanos, Tick};
use mover::io::clock;
use mover::pump::watch::Watch;
use mover::remote::copy::run_with;
use mover::remote::launch::Launch;

pub(super) fn run(args: &NetTestArgs, started: Instant) -> u8 {
    let order = &args.order;
    let console = Console::new(args.show, started);
    let words = args.shown.iter().cloned().collect();
    console.event(&start("net-test", words, None, Some(&order.settings)));
    let (notices_in, notices) = channel();
    let control = Arc::new(Watch::new(notices_in));
    if let Err(why) = signals::install(&control) {
        console.warning(&format!("Ctrl-C ends the program at once: {why}"));
    }
    let name = order.host.as_deref().unwrap_or("this host");
    let span = report::span(order.span.omit, order.span.time);
    console.remark(&report::opening(name, &order.directions, &span, &order.settings));
    let launch = match &order.host {
        Some(host) => Ok(Launch::Ssh { host: host.clone(), remote: args.remote.clone() }),
        None => own_process(),
    };
    let done = launch.and_then(|launch| {
        let test = Test::new(order, &console, launch, (&control, &notices));
        test.run()
    });
    let (net_test, trouble) = match done {
        Ok(done) => done.tell(args, &console),
        Err(fault) => (None, Some((fault.class, fault.text))),
    };
    if let Some((_, text)) = &trouble {
        console.error(text);
    }
    let (class, message) = trouble.unzip();
    let end = json::EndEvent { net_test: net_test.map(Box::new), ..json::end(class, message) };
    let code = end.exit_code;
    console.event(&Event::End(Box::new(end)));
    code
}

/// The arguments of `net-test`.
#[derive(Debug)]
pub(crate) struct NetTestArgs {
    order: Order,
    /// The options, as words, that another test would have.
    given: Vec<String>,
    /// The host as it was typed.
    shown: Option<String>,
    remote: Remote,
    /// Show the evidence of what held it back, not only the sentence.
    explain: bool,
    show: Show,
    recording: Recording,
}

impl NetTestArgs {
    pub(super) fn of(typed: &Typed) -> Result<NetTestArgs, String> {
        let host = typed.word("HOST");
        Ok(NetTestArgs {
            order: Order::of(typed, host.as_ref())?,
            given: typed.repeated(),
            shown: host.map(|host| host.to_string_lossy().into_owned()),
            remote: remote(typed)?,
            explain: typed.has(&showing::EXPLAIN),
            show: Show::of(typed)?,
            recording: Recording::of(typed)?,
        })
    }
}

/// The net test that a command line asks for.
#[derive(Debug)]
struct Order {
    /// `None` for another process on this host.
    host: Option<String>,
    span: Span,
    directions: Vec<Direction>,
    settings: Settings,
}

impl Order {
    fn of(typed: &Typed, host: Option<&OsString>) -> Result<Order, String> {
        if typed.has(&net_test::UDP) {
            return Err(UDP.into());
        }
        let directions = match (typed.has(&net_test::BIDIR), typed.has(&net_test::REVERSE)) {
            (true, true) => {
                return Err("--bidir is both directions and --reverse is one: leave one out".into());
            }
            (true, false) => vec![Direction::Forward, Direction::Reverse],
            (false, true) => vec![Direction::Reverse],
            (false, false) => vec![Direction::Forward],
        };
        let host = host.map(host_of).transpose()?;
        let settings = Settings {
            streams: typed.value(&net_test::STREAMS)?.unwrap_or(1),
            seal: typed.value(&net_test::SEAL)?.unwrap_or(Seal::Off),
            request_bytes: typed.value(&net_test::REQUEST_SIZE)?.unwrap_or(REQUEST_BYTES),
            digest: DigestKind::None,
            // Null data compresses to nothing: the path would not be what is tested.
            compress: Compress::Off,
            ..settings(typed)?
        };
        order::memory_suffices(&settings)?;
        let span = Span {
            omit: typed.value(&net_test::OMIT)?.unwrap_or(Nanos(0)),
            time: typed.value(&net_test::TIME)?.unwrap_or(TIME),
            interval: typed.value(&net_test::INTERVAL)?.unwrap_or(INTERVAL),
        };
        Ok(Order { host, span, directions, settings })
    }

    fn job(&self, direction: Direction, launch: &Launch) -> Job {
        let host = Some(self.host.clone().unwrap_or_else(|| "localhost".to_string()));
        let (source_host, target_host) = match direction {
            Direction::Forward => (None, host),
            Direction::Reverse => (host, None),
        };
        let remote = match launch {
            Launch::Ssh { remote, .. } => remote.clone(),
            Launch::Process { .. } => Default::default(),
        };
        Job {
            sources: vec![Location::Endless],
            source_host,
            target: Location::Null { len: 0 },
            target_host,
            settings: self.settings.clone(),
            listed: None,
            range: None,
            remote,
        }
    }

    /// The ends of a direction, in the words of `copy`.
    fn ends(&self, direction: Direction) -> Ends {
        let here = "null:".to_string();
        let there = match &self.host {
            Some(host) => format!("{host}:null:"),
            None => here.clone(),
        };
        match direction {
            Direction::Forward => Ends::of_null(here, there),
            Direction::Reverse => Ends::of_null(there, here),
        }
    }
}

/// `HOST` or `HOST:`, as `copy` knows hosts.
fn host_of(word: &OsString) -> Result<String, String> {
    let shown = word.to_string_lossy();
    let only = || format!("'{shown}': a net test needs a host without a path: HOST or HOST:");
    let mut with_colon = word.clone();
    if !shown.ends_with(':') {
        with_colon.push(":");
    }
    match EndArg::parse(&with_colon, Role::Target, 0)? {
        EndArg { host: Some(host), location: Location::Path(path), .. }
            if path.as_os_str() == "." =>
        {
            Ok(host)
        }
        _ => Err(only()),
    }
}

/// One direction while it runs.
struct Running {
    direction: Direction,
    watch: Arc<Watch>,
    notices: Receiver<Notice>,
    paths: Receiver<StreamPath>,
    thread: JoinHandle<Result<Outcome, Fault>>,
    direction_samples: DirectionSamples,
    /// Bytes that arrived, for the record.
    series: Series,
}

/// A test while it runs.
struct Test<'a> {
    order: &'a Order,
    console: &'a Console,
    launch: Launch,
    /// Signals stop this one.
    control: (&'a Watch, &'a Receiver<Notice>),
    running: Vec<Running>,
    started: Tick,
    /// When the first byte had moved in every direction.
    began: Option<Tick>,
    stopped: Option<Tick>,
    left: Vec<Interval>,
    bytes: Vec<u64>,
}

/// A test that ran to its end, or was stopped after its beginning.
struct Done {
    directions: Vec<(Direction, Outcome, Series)>,
    began: Tick,
    /// The end of the measured time.
    until: Tick,
    stopped: bool,
}

impl<'a> Test<'a> {
    fn new(
        order: &'a Order,
        console: &'a Console,
        launch: Launch,
        control: (&'a Watch, &'a Receiver<Notice>),
    ) -> Test<'a> {
        let mut left: Vec<Interval> = order.span.intervals().collect();
        left.reverse();
        Test {
            order,
            console,
            launch,
            control,
            running: Vec::new(),
            started: clock::now(),
            began: None,
            stopped: None,
            left,
            bytes: vec![0; order.directions.len()],
        }
    }

    fn run(mut self) -> Result<Done, Fault> {
        loop {
            self.start_next();
            self.hear();
            self.end_in_time();
            self.show_known();
            if self.running.iter().all(|running| running.thread.is_finished()) {
                return self.finish();
            }
            thread::sleep(BEAT);
        }
    }

    /// Starts one direction after the other: each may ask for a password.
    fn start_next(&mut self) {
        let begun = self.running.iter().all(|running| running.direction_samples.began().is_some());
        let Some(direction) = self.order.directions.get(self.running.len()).copied() else {
            return;
        };
        if !begun || self.is_over() {
            return;
        }
        let (notices_in, notices) = channel();
        let (paths_in, paths) = channel();
        let watch = Arc::new(Watch::new(notices_in).with_paths(paths_in));
        let job = self.order.job(direction, &self.launch);
        let (launch, its_watch, started) = (self.launch.clone(), watch.clone(), clock::now());
        let thread = thread::spawn(move || run_with(&job, &launch, &its_watch, started));
        let direction_samples = DirectionSamples::new(direction, self.order.span.interval);
        let series = Series::default();
        self.running.push(Running {
            direction,
            watch,
            notices,
            paths,
            thread,
            direction_samples,
            series,
        });
    }

    /// True once a direction has ended, successfully or not, or all are to end.
    fn is_over(&self) -> bool {
        let ended = self.running.iter().any(|running| running.thread.is_finished());
        ended || self.control.0.stopping()
    }

    fn hear(&mut self) {
        for running in &mut self.running {
            running.paths.try_iter().for_each(|path| running.direction_samples.see(&path));
            for notice in running.notices.try_iter() {
                tell(self.console, notice);
            }
        }
        self.control.1.try_iter().for_each(|notice| tell(self.console, notice));
        if self.began.is_none() && self.running.len() == self.order.directions.len() {
            let began: Option<Vec<Tick>> =
                self.running.iter().map(|running| running.direction_samples.began()).collect();
            self.began = began.and_then(|began| began.into_iter().max());
            if self.began.is_some() {
                self.console.summary(&report::heading());
            }
        }
    }

    /// Ends all directions when the time is over, one has ended, or the user stops the test.
    fn end_in_time(&mut self) {
        let now = clock::now();
        let Some(began) = self.began else {
            if self.is_over() {
                self.running.iter().for_each(|running| running.watch.stop());
            }
            return;
        };
        let over = self.is_over();
        if over && now < self.order.span.end(began) {
            self.stopped.get_or_insert(now);
        }
        if over || now >= self.order.span.end(began) {
            self.running.iter().for_each(|running| running.watch.enough());
        }
    }

    /// Shows the intervals that are complete, and those whose last samples are too late.
    fn show_known(&mut self) {
        let Some(began) = self.began else { return };
        while let Some(interval) = self.left.last().copied() {
            let (from, to) = self.order.span.bounds(began, interval);
            if self.stopped.is_some_and(|stopped| to > stopped) {
                return; // cut short: it is shown when all is known
            }
            let known =
                self.running.iter().all(|running| running.direction_samples.is_known_until(to));
            if !known && clock::now() < to.after(PATIENCE) {
                return;
            }
            self.left.pop();
            for (running, bytes) in self.running.iter_mut().zip(&mut self.bytes) {
                *bytes += show(self.console, &running.direction_samples, (from, to), interval);
                running.series.add(to.since(self.started), *bytes);
                running.direction_samples.forget(to);
            }
        }
    }

    /// Shows the intervals that are left, from the samples that each direction has kept.
    fn finish(self) -> Result<Done, Fault> {
        let mut directions = Vec::new();
        for running in self.running {
            running.notices.try_iter().for_each(|notice| tell(self.console, notice));
            let panicked = |_| Fault::new(Class::Local, "a net test panicked: please report this");
            let outcome = running.thread.join().map_err(panicked)??;
            directions.push((running.direction, outcome, running.series));
        }
        let Some(began) = self.began.filter(|_| directions.len() == self.order.directions.len())
        else {
            return Err(Fault::interrupted());
        };
        let span = self.order.span;
        let until = self.stopped.unwrap_or(span.end(began)).min(span.end(began));
        let whole = |(direction, outcome, _): &(Direction, Outcome, Series)| {
            DirectionSamples::whole(*direction, &outcome.paths)
        };
        let seen: Vec<DirectionSamples> = directions.iter().map(whole).collect();
        for interval in self.left.into_iter().rev() {
            let (from, to) = span.bounds(began, interval);
            let cut = until.min(to);
            if from < cut {
                let interval = Interval { to: interval.from + cut.since(from), ..interval };
                for direction_samples in &seen {
                    show(self.console, direction_samples, (from, cut), interval);
                }
            }
        }
        Ok(Done { directions, began, until, stopped: self.stopped.is_some() })
    }
}

/// Prints a direction's lines of an interval; returns the bytes that arrived in it.
fn show(
    console: &Console,
    direction_samples: &DirectionSamples,
    (from, to): (Tick, Tick),
    interval: Interval,
) -> u64 {
    let passed =
        Passed::of(direction_samples.direction, interval, &direction_samples.between(from, to));
    report::lines(&passed).iter().for_each(|line| console.summary(line));
    let bytes = passed.sum.bytes;
    if console.show().amount >= order::Amount::Usual {
        console.event(&Event::Interval(Box::new(passed)));
    }
    bytes
}

fn tell(console: &Console, notice: Notice) {
    match notice {
        Notice::Warning(text) | Notice::Again(text) => console.warning(&text),
        Notice::FileFailed { fault, .. } => console.error(&fault.text),
        _ => {} // nothing is kept, and nothing replaced
    }
}

/// The exit code's class and the message, if something went wrong.
type Trouble = Option<(Class, String)>;

impl Done {
    /// Prints the result and records it.
    fn tell(&self, args: &NetTestArgs, console: &Console) -> (Option<NetTest>, Trouble) {
        let order = &args.order;
        let from = self.began.after(order.span.omit);
        let lasted = self.until.since(from);
        let outcomes: Vec<&Outcome> =
            self.directions.iter().map(|(_, outcome, _)| outcome).collect();
        let total = |(direction, outcome, _): &(Direction, Outcome, Series)| {
            let direction_samples = DirectionSamples::whole(*direction, &outcome.paths);
            WayTotal::of(*direction, direction_samples.total(from, self.until.max(from)), outcome)
        };
        let test = NetTest {
            omitted_s: order.span.omit.seconds().min(self.until.since(self.began).seconds()),
            duration_s: lasted.seconds(),
            ways: self.directions.iter().map(total).collect(),
            hosts: report::costs(&outcomes),
        };
        let mut text = report::summary(&test);
        let mut runs = Vec::new();
        for ((direction, outcome, series), total) in self.directions.iter().zip(&test.ways) {
            let run = self.keep(args, console, (*direction, outcome, series), total);
            runs.extend((run > 0).then(|| run.to_string()));
            if let Some(verdict) = explain::of_copy(outcome, &order.settings) {
                text.push_str(&report::held_back(*direction, &page::sentence(&verdict)));
                if args.explain {
                    let _ = write!(text, "\n{}", page::page(&verdict));
                }
                console.event(&Event::Verdict(Box::new(verdict)));
            }
        }
        if !runs.is_empty() {
            let _ = writeln!(text, "recorded as run {}", runs.join(" and run "));
        }
        console.summary(&text);
        let asked_s = order.span.time.seconds();
        let trouble = self.stopped.then(|| {
            let text = format!("stopped after {:.1} of {asked_s} s", lasted.seconds());
            (Class::Interrupted, text)
        });
        (Some(test), trouble)
    }

    /// Records a direction; the number of the run, or 0.
    fn keep(
        &self,
        args: &NetTestArgs,
        console: &Console,
        (direction, outcome, series): (Direction, &Outcome, &Series),
        total: &WayTotal,
    ) -> i64 {
        let collected = Collected { series: series.clone(), ..Collected::default() };
        let steady = total.receiver.or(total.sender);
        let ends = args.order.ends(direction).having(&args.given);
        let of = (outcome, &args.order.settings);
        let add = |record: &mut Record| {
            record.moved.steady_bytes_per_s = steady.map(|end| end.rate_bits_per_s / 8.0);
            record.moved.steady_from_s = Some(args.order.span.omit.seconds());
        };
        record::keep_with(console, &args.recording, "net-test", &ends, of, &collected, add).id
    }
}

const UDP: &str = "--udp: UDP is out of scope: datapump moves bytes over TCP, and a net test \
                   measures TCP throughput; leave --udp out, or send datagrams with iperf3 -u";
const TIME: Nanos = Nanos::from_millis(10_000);
const INTERVAL: Nanos = Nanos::from_millis(1_000);
/// Requests in flight at the end are still sent, which takes little time if they are small; large
/// ones gain nothing, as nothing is written.
const REQUEST_BYTES: u32 = 128 << 10;
const BEAT: Duration = Duration::from_millis(25);
/// The far end sends its samples once a second; there is no wait beyond this time.
const PATIENCE: Nanos = Nanos::from_millis(2_500);
