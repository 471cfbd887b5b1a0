//! Campaigns over emulated paths, as a site would run them: `datapump sweep`, its store, and its
//! output.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;

use ::wan::{Profile, Wan};
use serde_json::Value;

use super::Experiment;
use super::levels::r_squared;
use super::shown::{Shown, Table};
use super::testbed::Testbed;
use analysis::statistics::Spread;
use xtask::step::output;

pub(super) const SLAC: Experiment = Experiment {
    name: "compression-campaign",
    title: "SLAC's campaign, short, over four paths and two hosts",
    about: "Windows, streams and levels in a printed order on some thirty hosts, ten seconds each, \
            a pause as long as the measurement before it, round trips with and without load. Here \
            the same order with `--time 1 --levels 0,1` and some of its windows and streams, on \
            four paths to a real sshd and on the host itself, interrupted after three cells and \
            gone on with.",
    run: short,
};

/// A campaign of hours: run only by name.
pub(super) const WHOLE: Experiment = Experiment {
    name: "compression-campaign-whole",
    title: "SLAC's campaign, whole, over four paths and two hosts",
    about: "Windows, streams and levels in a printed order on some thirty hosts, ten seconds each, \
            a pause as long as the measurement before it, round trips with and without load. Here \
            all windows and streams of the page with `--time 1 --levels 0,1`: from three sites at \
            once, over one path or two in turn, to a real sshd at the far end and, on the first \
            path, on the site itself as well; each interrupted after three cells and gone on with.",
    run: whole,
};

pub(super) const LINEAR: Experiment = Experiment {
    name: "small-window-streams",
    title: "a window of 16 KB, streams 1 to 40",
    about: "With windows of 16 KB the rate grew in a fairly linear fashion with streams, from 1.3 \
            to over 115 Mbit/s; level 1 was the best for fewer than 18 streams. Here over 300 \
            Mbit/s and 50 ms.",
    run: linear,
};

/// A path with a campaign on it.
pub(super) struct Campaign<'a> {
    testbed: &'a Testbed,
    pub wan: Wan,
    folder: tempfile::TempDir,
}

impl<'a> Campaign<'a> {
    /// `hosts` is the content of the file: `far` and `near` are the two ends of the path.
    pub(super) fn over(
        testbed: &'a Testbed,
        path: &str,
        hosts: &str,
    ) -> Result<Campaign<'a>, String> {
        let words: Vec<&str> = path.split_whitespace().collect();
        let wan = Wan::up(&Profile::from_words(&words)?, Some(&testbed.program))?;
        let told = |why: std::io::Error| format!("experiment: {why}");
        let folder = tempfile::Builder::new().prefix("datapump-sweep-").tempdir().map_err(told)?;
        fs::write(folder.path().join("hosts"), hosts).map_err(told)?;
        Ok(Campaign { testbed, wan, folder })
    }

    fn store(&self) -> PathBuf {
        self.folder.path().join("results.db")
    }

    fn command(&self, words: &str) -> Result<Command, String> {
        let mut sweep = Command::new(&self.testbed.program);
        sweep.args(["sweep", "--results"]).arg(self.store());
        sweep.arg("--hosts").arg(self.folder.path().join("hosts"));
        sweep.args(["--ssh", &self.wan.ssh_command()]).args(words.split_whitespace());
        self.wan.near(sweep).map_err(|why| why.to_string())
    }

    /// Measures until the end.
    pub(super) fn measure(&self, words: &str) -> Result<String, String> {
        let said = output(&mut self.command(words)?)?;
        print!("{said}");
        Ok(said)
    }

    /// Measures this many cells, then Ctrl-C, then the rest.
    fn measure_in_two(&self, words: &str, cells: usize) -> Result<(), String> {
        let mut first = self.command(words)?;
        let mut child = first.stdout(Stdio::piped()).spawn().map_err(|why| why.to_string())?;
        let mut lines = BufReader::new(child.stdout.take().ok_or("no output")?).lines();
        for line in lines.by_ref().map_while(Result::ok).take(cells) {
            println!("{line}");
        }
        interrupt(&child)?;
        lines.map_while(Result::ok).for_each(|line| println!("{line}"));
        let code = child.wait().map_err(|why| why.to_string())?.code();
        if code != Some(INTERRUPTED) {
            return Err(format!("an interrupted campaign ends with {code:?}"));
        }
        self.measure("--resume").map(drop)
    }

    /// Every cell, in the order of measurement.
    pub(super) fn cells(&self) -> Result<Vec<Value>, String> {
        let text = output(&mut self.ask("results export --format json"))?;
        serde_json::from_str(&text).map_err(|why| format!("results export: {why}"))
    }

    /// The output of `sweep show`.
    pub(super) fn page(&self) -> Result<String, String> {
        output(&mut self.ask("sweep show"))
    }

    fn ask(&self, words: &str) -> Command {
        let mut ask = Command::new(&self.testbed.program);
        ask.args(words.split_whitespace()).arg("--results").arg(self.store());
        ask
    }
}

pub(super) fn interrupt(child: &Child) -> Result<(), String> {
    output(Command::new("kill").args(["-INT", &child.id().to_string()])).map(drop)
}

/// The data of figures: a line for each cell.
pub(super) fn csv(cells: &[Value]) -> String {
    let names: Vec<&str> = FIGURES.iter().map(|(name, _)| *name).collect();
    let line = |cell: &Value| {
        let text = |path: &str| match cell.pointer(path) {
            None | Some(Value::Null) => String::new(),
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
        };
        let values: Vec<String> = FIGURES.iter().map(|(_, path)| text(path)).collect();
        format!("{}\n", values.join(","))
    };
    std::iter::once(format!("{}\n", names.join(","))).chain(cells.iter().map(line)).collect()
}

pub(super) fn figure(cell: &Value, path: &str) -> f64 {
    cell.pointer(path).and_then(Value::as_f64).unwrap_or(f64::NAN)
}

pub(super) fn word<'a>(cell: &'a Value, path: &str) -> &'a str {
    cell.pointer(path).and_then(Value::as_str).unwrap_or_default()
}

/// From the login to the last byte.
pub(super) fn mbit_s(cell: &Value) -> f64 {
    figure(cell, "/moved/bytes") * 8.0 / figure(cell, "/cell/moving_s") / 1e6
}

fn short(testbed: &Testbed) -> Result<Shown, String> {
    let paths = PATHS.map(|(path, _)| (path, "far\nnear\n"));
    let seen = paths.iter().map(|path| over(testbed, *path, &SHORT)).collect::<Result<_, _>>()?;
    Ok(tell(&SHORT, seen))
}

fn whole(testbed: &Testbed) -> Result<Shown, String> {
    let measure = |site: &[usize]| {
        site.iter()
            .map(|path| over(testbed, PATHS[*path], &WHOLE_COURSE))
            .collect::<Result<Vec<_>, _>>()
    };
    let seen = thread::scope(|scope| {
        let sites = SITES.map(|site| scope.spawn(move || measure(site)));
        let ended = sites.map(|site| site.join().unwrap_or(Err("a campaign's thread died".into())));
        ended.into_iter().collect::<Result<Vec<_>, _>>()
    })?;
    let mut seen: Vec<Seen> = seen.into_iter().flatten().collect();
    seen.sort_by_key(|seen| PATHS.iter().position(|(path, _)| *path == seen.path));
    Ok(tell(&WHOLE_COURSE, seen))
}

/// A finished campaign over a path.
struct Seen {
    path: &'static str,
    hosts: &'static str,
    cells: Vec<Value>,
}

fn over(
    testbed: &Testbed,
    (path, hosts): (&'static str, &'static str),
    course: &Course,
) -> Result<Seen, String> {
    let campaign = Campaign::over(testbed, path, hosts)?;
    campaign.measure_in_two(course.words, 3)?;
    Ok(Seen { path, hosts, cells: campaign.cells()? })
}

fn tell(course: &Course, all: Vec<Seen>) -> Shown {
    let mut shown = Shown::default();
    let mut table = Table::new(
        "Of each path (rates are those of level 0 with the largest window and most streams):",
        "path | cells | order | duty % | fields missing | Mbit/s | ratio at level 1 \
         | round trip at rest ms | under load ms | probes late by ms at most",
    );
    let mut all_in_order = true;
    let mut missing = Vec::new();
    let (mut busy_s, mut idle_s) = (0.0, 0.0);
    for Seen { path, hosts, cells } in all {
        let order: Vec<f64> = cells.iter().map(|c| figure(c, "/place/order_index")).collect();
        let in_order = order.iter().zip(0..).all(|(index, place)| *index == f64::from(place));
        let printed = cells.iter().map(as_printed).collect::<Vec<_>>() == course.printed(hosts);
        all_in_order &= in_order && printed;
        let gone: Vec<String> = cells.iter().flat_map(missing_of).collect();
        let busy: f64 = cells.iter().map(|cell| figure(cell, "/moved/elapsed_s")).sum();
        let idle: f64 = cells.iter().map(|cell| figure(cell, "/cell/pause_s")).sum();
        (busy_s, idle_s) = (busy_s + busy, idle_s + idle);
        let far: Vec<&Value> = cells.iter().filter(|c| word(c, "/remote/host") == "far").collect();
        table.row(line(
            path,
            &far,
            (cells.len(), in_order && printed, busy / (busy + idle)),
            &gone,
        ));
        missing.extend(gone);
        shown.data(&path_name(path), csv(&cells));
    }
    shown.table(table);
    shown.check("the order is the printed one", yes(all_in_order), all_in_order);
    missing.sort();
    missing.dedup();
    shown.check(
        "every field of the record filled",
        match missing.is_empty() {
            true => "all".to_string(),
            false => missing.join(", "),
        },
        missing.is_empty(),
    );
    let duty = busy_s / (busy_s + idle_s) * 100.0;
    shown.check("load in at most 50 % of the time", format!("{duty:.1} %"), duty <= 50.0);
    shown
}

fn line(path: &str, far: &[&Value], said: (usize, bool, f64), gone: &[String]) -> Vec<String> {
    let (cells, in_order, duty) = said;
    let most =
        far.iter().filter(|cell| word(cell, "/options/compress") == "off").map(|c| mbit_s(c));
    let of = |path: &str, keep: &dyn Fn(&Value) -> bool| {
        let values = far.iter().filter(|cell| keep(cell)).map(|cell| figure(cell, path));
        Spread::of(values).map_or(f64::NAN, |spread| spread.median)
    };
    let late = far.iter().map(|cell| figure(cell, "/round_trips/late_max_s")).fold(0.0, f64::max);
    let packed = |cell: &Value| word(cell, "/options/compress") == "zlib:1";
    vec![
        path.to_string(),
        cells.to_string(),
        if in_order { "as printed" } else { "**another**" }.to_string(),
        format!("{:.1}", duty * 100.0),
        gone.len().to_string(),
        format!("{:.1}", most.fold(0.0, f64::max)),
        format!("{:.2}", of("/cell/compression_ratio", &packed)),
        format!("{:.2}", of("/round_trips/unloaded/median_s", &|_| true) * 1e3),
        format!("{:.2}", of("/round_trips/loaded/median_s", &|_| true) * 1e3),
        format!("{:.1}", late * 1e3),
    ]
}

/// The part of SLAC's page that is measured.
struct Course {
    words: &'static str,
    windows_kib: &'static [u32],
    streams: &'static [u16],
}

impl Course {
    /// The lists of SLAC's page, host by host, then the program's own choice.
    fn printed(&self, hosts: &str) -> Vec<String> {
        let mut order = Vec::new();
        for host in hosts.lines() {
            for window in self.windows_kib {
                for streams in self.streams {
                    for level in ["off", "zlib:1"] {
                        order.push(format!("{host} {} {streams} {level}", window << 10));
                    }
                }
            }
            order.extend(["off", "auto"].map(|level| format!("{host} auto 4 {level}")));
        }
        order
    }
}

fn as_printed(cell: &Value) -> String {
    let window = cell.pointer("/options/window_bytes").and_then(Value::as_u64);
    format!(
        "{} {} {} {}",
        word(cell, "/remote/host"),
        window.map_or("auto".into(), |bytes| bytes.to_string()),
        figure(cell, "/options/streams"),
        word(cell, "/options/compress"),
    )
}

fn missing_of(cell: &Value) -> Vec<String> {
    let is_missing =
        |path: &&&str| cell.pointer(path).is_none_or(|value| value.is_null() || *value == "");
    FIELDS.iter().filter(is_missing).map(|path| path.to_string()).collect()
}

fn linear(testbed: &Testbed) -> Result<Shown, String> {
    let mut shown = Shown::default();
    let path = "--rate 300Mbit --rtt 50ms --queue 1bdp";
    let campaign = Campaign::over(testbed, path, "far\n")?;
    campaign.measure(STREAMS)?;
    let cells = campaign.cells()?;
    let grid: Vec<&Value> = cells.iter().filter(|c| word(c, "/cell/choice") == "grid").collect();
    let of = |streams: f64, level: &str| {
        let alike = grid.iter().filter(|cell| {
            figure(cell, "/options/streams") == streams && word(cell, "/options/compress") == level
        });
        Spread::of(alike.map(|cell| mbit_s(cell))).map_or(f64::NAN, |spread| spread.median)
    };
    let mut table = Table::new(
        &format!("Over {path}, Mbit/s of payload, medians of two passes:"),
        "streams | level 0 | for each stream | level 1 | level 9",
    );
    let mut points = Vec::new();
    let mut one_is_best = true;
    for streams in [1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 40.0] {
        let rates = ["off", "zlib:1", "zlib:9"].map(|level| of(streams, level));
        points.push((streams, rates[0]));
        one_is_best &= rates[1] >= 0.97 * rates[2];
        let mut row = vec![streams.to_string(), format!("{:.2}", rates[0])];
        row.push(format!("{:.3}", rates[0] / streams));
        row.extend(rates[1..].iter().map(|rate| format!("{rate:.1}")));
        table.row(row);
    }
    shown.table(table);
    let r2 = r_squared(&points);
    shown.check("level 0 is linear in streams, r² of 0.99 or more", format!("{r2:.5}"), r2 >= 0.99);
    shown.check("level 1 is the best of zlib, or within 3 % of it", yes(one_is_best), one_is_best);
    shown.note(format!("```text\n{}```", campaign.page()?));
    shown.data("", csv(&cells));
    Ok(shown)
}

fn yes(is_so: bool) -> String {
    if is_so { "yes" } else { "no" }.to_string()
}

/// For example `100Mbit-20ms`, from the words of a path.
fn path_name(path: &str) -> String {
    let words: Vec<&str> = path.split_whitespace().collect();
    format!("{}-{}", words[1], words[3])
}

/// Paths, and the hosts that are measured in the whole campaign.
const PATHS: [(&str, &str); 4] = [
    ("--rate 100Mbit --rtt 20ms --queue 1bdp", "far\nnear\n"),
    ("--rate 20Mbit --rtt 80ms --queue 1bdp", "far\n"),
    ("--rate 50Mbit --rtt 50ms --queue 2bdp --loss 0.01%", "far\n"),
    ("--rate 300Mbit --rtt 5ms --queue 1bdp", "far\n"),
];
/// The paths that one site measures, one after the other, in parallel with the other sites.
const SITES: [&[usize]; 3] = [&[0, 3], &[1], &[2]];
const SHORT: Course = Course {
    words: "--preset slac --time 1 --levels 0,1 --windows 8K,1024K --streams 1,20 \
            --congestion cubic",
    windows_kib: &[8, 1024],
    streams: &[1, 20],
};
const WHOLE_COURSE: Course = Course {
    words: "--preset slac --time 1 --levels 0,1 --congestion cubic",
    windows_kib: &[8, 1024, 16, 512, 32, 256, 128, 64],
    streams: &[1, 20, 5, 12, 8, 10, 4, 25, 11, 3, 7, 40, 15, 9, 2, 30, 6],
};
const STREAMS: &str = "--windows 16K --streams 1,2,5,10,20,30,40 --levels 0,1,9 --time 1 \
                       --repeat 2 --congestion cubic --seal off --digest none";
const INTERRUPTED: i32 = 130;
/// The fields of a record, as paths within an exported cell.
const FIELDS: &[&str] = &[
    "/version",
    "/moved/bytes",
    "/moved/files",
    "/moved/wire_bytes",
    "/moved/elapsed_s",
    "/moved/goodput_bytes_per_s",
    "/cell/moving_s",
    "/cell/pause_s",
    "/options/streams",
    "/options/request_bytes",
    "/options/seal",
    "/options/digest",
    "/options/compress",
    "/cell/compression_ratio",
    "/source/cpu_user_s",
    "/source/cpu_system_s",
    "/source/kernel_threads_s",
    "/source/environment",
    "/source/calls",
    "/source/partial_returns",
    "/source/congestion",
    "/source/window_seen_bytes",
    "/sink/cpu_user_s",
    "/sink/cpu_system_s",
    "/sink/kernel_threads_s",
    "/sink/environment",
    "/sink/calls",
    "/machines/0/busy_idle_s",
    "/machines/0/background_s",
    "/machines/0/steal_s",
    "/machines/1/busy_idle_s",
    "/cell/cycles_per_byte_source",
    "/round_trips/method",
    "/round_trips/unloaded/min_s",
    "/round_trips/unloaded/median_s",
    "/round_trips/unloaded/p95_s",
    "/round_trips/unloaded/lost",
    "/round_trips/loaded/min_s",
    "/round_trips/loaded/median_s",
    "/round_trips/loaded/p95_s",
    "/round_trips/loaded/lost",
    "/source/window_scale",
    "/tcp/mss_bytes",
    "/tcp/segments_retransmitted",
    "/tcp/rtt_min_s",
    "/tcp/busy_s",
    "/tcp/window_limited_s",
    "/tcp/peer_window_p50_bytes",
    "/tcp/peer_window_p90_bytes",
    "/tcp/receive_threshold_bytes",
    "/more/verdict/shares",
    "/more/verdict/pauses",
    "/more/verdict/losses",
    "/series/0",
    "/paths/0",
    "/gates/0",
    "/place/seed",
    "/place/order_index",
    "/place/repeat",
];
/// Columns for figures, and their paths within an exported cell.
const FIGURES: &[(&str, &str)] = &[
    ("order_index", "/place/order_index"),
    ("pass", "/place/repeat"),
    ("host", "/remote/host"),
    ("choice", "/cell/choice"),
    ("window_bytes", "/options/window_bytes"),
    ("streams", "/options/streams"),
    ("level", "/options/compress"),
    ("seconds", "/cell/extent_s"),
    ("size_bytes", "/cell/extent_bytes"),
    ("bytes", "/moved/bytes"),
    ("moving_s", "/cell/moving_s"),
    ("pause_s", "/cell/pause_s"),
    ("compression_ratio", "/cell/compression_ratio"),
    ("cpu_user_s", "/source/cpu_user_s"),
    ("cpu_system_s", "/source/cpu_system_s"),
    ("probe_late_max_s", "/round_trips/late_max_s"),
    ("unloaded_median_s", "/round_trips/unloaded/median_s"),
    ("loaded_median_s", "/round_trips/loaded/median_s"),
    ("loaded_p95_s", "/round_trips/loaded/p95_s"),
    ("loaded_lost", "/round_trips/loaded/lost"),
];
