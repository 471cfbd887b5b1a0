//! The figures and tables of the reports that this project repeats, beside ours: one page of the
//! guide, made of stored runs and of what their pages state. What a report says is what its text
//! and captions say: their pictures were not seen, so nothing is read off them.

mod stated;

use std::fs;
use std::path::Path;

use stated::Page;

type Done<T> = Result<T, String>;

/// A figure or table of a report.
struct Row {
    figure: &'static str,
    says: &'static str,
    ours: Ours,
    /// The page of runs/ with the measurement.
    page: &'static str,
}

enum Ours {
    /// What the rows of a file of runs/data say.
    Of(&'static str, fn(&Rows) -> Done<String>),
    /// What the page states: its rows are not stored as data.
    Stated(fn(&Page) -> Done<String>),
    Not(&'static str),
}

struct Report {
    name: &'static str,
    rows: &'static [Row],
}

/// Writes the page.
pub(crate) fn write() -> Done<()> {
    let page = page(Path::new("runs"))?;
    fs::write(PAGE, page).map_err(|why| format!("{PAGE}: {why}"))
}

fn page(runs: &Path) -> Done<String> {
    let mut page = HEAD.to_string();
    for report in REPORTS {
        page.push_str(&format!("\n## {}\n\n", report.name));
        page.push_str("| figure | the report says | ours | from |\n|---|---|---|---|\n");
        for Row { figure, says, ours, page: of } in report.rows {
            let link = match *of {
                "" => "–".to_string(),
                of => format!("[page](../../runs/{of}.md)"),
            };
            let (ours, from) = match ours {
                Ours::Of(name, told) => {
                    let rows = Rows::read(&runs.join(format!("data/{name}.csv")))?;
                    let data = format!("{link}, [data](../../runs/data/{name}.csv)");
                    (told(&rows).map_err(|why| format!("{name}: {why}"))?, data)
                }
                Ours::Stated(told) => {
                    let path = runs.join(format!("{of}.md"));
                    let text = fs::read_to_string(&path);
                    let text = text.map_err(|why| format!("{}: {why}", path.display()))?;
                    (told(&Page(text)).map_err(|why| format!("{of}: {why}"))?, link)
                }
                Ours::Not(why) => (format!("not repeated: {why}"), link),
            };
            page.push_str(&format!("| {figure} | {says} | {ours} | {from} |\n"));
        }
    }
    Ok(page)
}

/// A file of comma-separated values, none of which has a comma.
struct Rows {
    names: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Rows {
    fn read(path: &Path) -> Done<Rows> {
        let text = fs::read_to_string(path).map_err(|why| format!("{}: {why}", path.display()))?;
        let cells = |line: &str| line.split(',').map(String::from).collect();
        let mut lines = text.lines().map(cells);
        Ok(Rows { names: lines.next().unwrap_or_default(), rows: lines.collect() })
    }

    /// The numbers of a column, in the rows in which other columns have these values.
    fn of(&self, name: &str, wanted: &[(&str, &str)]) -> Done<Vec<f64>> {
        let at = |name: &str| {
            let found = self.names.iter().position(|known| known == name);
            found.ok_or(format!("no column {name}"))
        };
        let places: Done<Vec<(usize, &str)>> =
            wanted.iter().map(|(name, value)| Ok((at(name)?, *value))).collect();
        let (place, places) = (at(name)?, places?);
        let fits = |row: &&Vec<String>| places.iter().all(|(at, value)| row[*at] == *value);
        let number = |row: &Vec<String>| {
            row[place].parse().map_err(|_| format!("{name} '{}' is no number", row[place]))
        };
        self.rows.iter().filter(fits).map(number).collect()
    }

    /// Mbit/s of the cells of a campaign, by bytes and the time in which they moved.
    fn rates(&self, wanted: &[(&str, &str)]) -> Done<Vec<f64>> {
        let (bytes, times) = (self.of("bytes", wanted)?, self.of("moving_s", wanted)?);
        Ok(bytes.iter().zip(times).map(|(bytes, s)| bytes * 8.0 / s / 1e6).collect())
    }

    /// The values of a column, each once, as numbers.
    fn each(&self, name: &str, wanted: &[(&str, &str)]) -> Done<Vec<f64>> {
        let mut all = self.of(name, wanted)?;
        all.sort_by(f64::total_cmp);
        all.dedup();
        Ok(all)
    }
}

fn median(mut all: Vec<f64>) -> Done<f64> {
    all.sort_by(f64::total_cmp);
    let (low, high) = (all.len().saturating_sub(1) / 2, all.len() / 2);
    match all.get(low).zip(all.get(high)) {
        Some((low, high)) => Ok((low + high) / 2.0),
        None => Err("no row fits".into()),
    }
}

fn mean_and_deviation(all: &[f64]) -> (f64, f64) {
    let count = all.len().max(1) as f64;
    let mean = all.iter().sum::<f64>() / count;
    let squares: f64 = all.iter().map(|one| (one - mean).powi(2)).sum();
    (mean, (squares / (count - 1.0).max(1.0)).sqrt())
}

fn correlation(a: &[f64], b: &[f64]) -> f64 {
    let ((mean_a, dev_a), (mean_b, dev_b)) = (mean_and_deviation(a), mean_and_deviation(b));
    let both: f64 = a.iter().zip(b).map(|(a, b)| (a - mean_a) * (b - mean_b)).sum();
    both / (a.len() as f64 - 1.0) / (dev_a * dev_b)
}

/// CPU time of the sending host for each byte, and how much data shrank, of the two levels.
fn cpu_by_level(rows: &Rows) -> Done<String> {
    let of = |level: &str| -> Done<(f64, f64)> {
        let wanted = [("choice", "grid"), ("level", level)];
        let (user, system) = (rows.of("cpu_user_s", &wanted)?, rows.of("cpu_system_s", &wanted)?);
        let bytes = rows.of("bytes", &wanted)?;
        let cpu = user.iter().zip(system).zip(&bytes).map(|((u, s), b)| (u + s) / b * 1e9);
        Ok((median(cpu.collect())?, median(rows.of("compression_ratio", &wanted)?)?))
    };
    let ((off, _), (one, ratio)) = (of("off")?, of("zlib:1")?);
    Ok(format!(
        "level 1 shrinks to 1/{ratio:.1}, for {one:.1} ns/B of CPU time instead of {off:.1} \
         (medians of all windows and streams)"
    ))
}

/// The best setting without compression and with level 1.
fn best_by_level(rows: &Rows) -> Done<String> {
    let best = |level: &str| -> Done<f64> {
        let all = rows.rates(&[("choice", "grid"), ("level", level)])?;
        all.into_iter().reduce(f64::max).ok_or("no row fits".into())
    };
    let (off, one) = (best("off")?, best("zlib:1")?);
    Ok(format!("fastest cell {off:.0} Mbit/s without, {one:.0} with level 1: × {:.1}", one / off))
}

fn source_over_target(rows: &Rows) -> Done<String> {
    let (source, target) = (rows.of("source_ns_per_b", &[])?, rows.of("target_ns_per_b", &[])?);
    let ratios: Vec<f64> = source.iter().zip(target).map(|(s, t)| s / t).collect();
    let (mean, deviation) = mean_and_deviation(&ratios);
    let more = if mean < 1.0 { "target" } else { "source" };
    let count = ratios.len();
    Ok(format!("{mean:.2} ± {deviation:.2} in {count} copies: here the {more} works more"))
}

fn target_cpu(rows: &Rows) -> Done<String> {
    let target = rows.of("target_ns_per_b", &[])?;
    let with = |name: &str| Ok::<f64, String>(correlation(&target, &rows.of(name, &[])?));
    let (rate, streams) = (with("mbit_per_s")?, with("streams")?);
    Ok(format!(
        "CPU time of a byte at the target: correlation {rate:.2} with the rate, {streams:.2} with \
         the streams"
    ))
}

fn small_window(rows: &Rows) -> Done<String> {
    let grid = [("choice", "grid"), ("window_bytes", "16384")];
    let streams = rows.each("streams", &grid)?;
    let rate = |streams: f64, level: &str| {
        let streams = streams.to_string();
        let wanted = [grid[0], grid[1], ("streams", streams.as_str()), ("level", level)];
        median(rows.rates(&wanted)?)
    };
    let ends = [streams[0], streams[streams.len() - 1]];
    let (low, high) = (rate(ends[0], "off")?, rate(ends[1], "off")?);
    let mut from = "at no number of streams".to_string();
    for count in streams.iter().rev() {
        if rate(*count, "off")? < rate(*count, "zlib:1")? {
            break;
        }
        from = format!("from {count} streams on");
    }
    Ok(format!(
        "{low:.1} Mbit/s by {} stream, {high:.1} by {}; without compression as fast as level 1 or \
         faster {from}",
        ends[0], ends[1]
    ))
}

/// The least size from which the median rate stays within 10 % of that of the largest.
fn size_needed(rows: &Rows) -> Done<String> {
    let grid = [("choice", "grid")];
    let sizes = rows.each("size_bytes", &grid)?;
    let rate = |size: f64| {
        let size = size.to_string();
        median(rows.rates(&[grid[0], ("size_bytes", size.as_str())])?)
    };
    let largest = sizes[sizes.len() - 1];
    let whole = rate(largest)?;
    let mut needed = largest;
    for size in sizes.iter().rev() {
        if rate(*size)? < 0.9 * whole {
            break;
        }
        needed = *size;
    }
    Ok(format!(
        "within 10 % of the rate of {:.0} MiB ({whole:.1} Mbit/s) from {:.0} MiB on",
        largest / MIB,
        needed / MIB
    ))
}

/// When the rate of each copy first is 90 % of its median.
fn rise(rows: &Rows) -> Done<String> {
    let mut told = Vec::new();
    for copy in rows.each("copy", &[])? {
        let copy = copy.to_string();
        let wanted = [("copy", copy.as_str())];
        let (at, rates) = (rows.of("at_s", &wanted)?, rows.of("mbit_per_s", &wanted)?);
        let whole = median(rates.clone())?;
        let first = at.iter().zip(&rates).find(|(_, rate)| **rate >= 0.9 * whole);
        let first = first.ok_or("it never rises")?.0;
        told.push(format!("{whole:.0} Mbit/s, 90 % of it in second {first:.0}"));
    }
    Ok(told.join("; "))
}

fn duration_needed(rows: &Rows) -> Done<String> {
    let mut told = Vec::new();
    for window in rows.each("window_bytes", &[("choice", "grid")])? {
        let text = window.to_string();
        let rate = |seconds: &str| {
            let wanted =
                [("choice", "grid"), ("window_bytes", text.as_str()), ("seconds", seconds)];
            median(rows.rates(&wanted)?)
        };
        let more = (rate("20.0")? / rate("10.0")? - 1.0) * 100.0;
        told.push(format!("{more:+.1} % with {:.0} KiB", window / 1024.0));
    }
    Ok(format!("from 10 s to 20 s: {}", told.join(", ")))
}

/// The rate of a copy in each second: its mean, and how many seconds have less than half of the
/// median.
fn each_second(rows: &Rows, copy: &str) -> Done<String> {
    let rates = rows.of("mbit_per_s", &[("copy", copy)])?;
    let (mean, _) = mean_and_deviation(&rates);
    let half = median(rates.clone())? / 2.0;
    let slow = rates.iter().filter(|rate| **rate < half).count();
    Ok(format!("{mean:.1} Mbit/s; {slow} of {} seconds below half of the median", rates.len()))
}

/// Segments sent again, in episodes that are three round trips apart or more.
fn recoveries(rows: &Rows) -> Done<String> {
    let (at, again) = (rows.of("at_s", &[])?, rows.of("segments_again", &[])?);
    let (trip_s, sent) = (median(rows.of("rtt_ms", &[])?)? / 1e3, rows.of("acked_bytes", &[])?);
    let grown = at.windows(2).zip(again.windows(2)).filter(|(_, again)| again[1] > again[0]);
    let moments: Vec<f64> = grown.map(|(at, _)| at[1]).collect();
    let apart = moments.windows(2).filter(|pair| pair[1] - pair[0] > 3.0 * trip_s).count();
    let count = usize::from(!moments.is_empty()) + apart;
    let [total, bytes] = [&again, &sent].map(|all| all.last().copied().unwrap_or(0.0));
    Ok(format!("{total:.0} in {count} recoveries, in {:.0} MiB", bytes / MIB))
}

/// The longest time in which nothing was sent, and the burst behind it.
fn pause(rows: &Rows) -> Done<String> {
    let sent = [("kind", "sent")];
    let (at, places) = (rows.of("at_s", &sent)?, rows.of("place_bytes", &sent)?);
    let gaps = at.windows(2).map(|pair| pair[1] - pair[0]);
    let (longest, gap_s) =
        gaps.enumerate().max_by(|a, b| a.1.total_cmp(&b.1)).ok_or("nothing was sent")?;
    let behind = at[longest + 1];
    let bytes = rows.of("bytes", &sent)?;
    let burst: f64 =
        at.iter().zip(&bytes).filter(|(at, _)| within(**at, behind)).map(|p| p.1).sum();
    let again: f64 = rows.of("bytes", &[("kind", "sent again")])?.iter().sum();
    Ok(format!(
        "a pause of {:.0} ms, then {:.0} KB within {:.0} ms; {:.0} KB were sent again; the pause \
         is {:.1} MiB into the stream",
        gap_s * 1e3,
        burst / 1e3,
        BURST_S * 1e3,
        again / 1e3,
        (places[longest] + bytes[longest]) / MIB
    ))
}

fn within(at: f64, from: f64) -> bool {
    (from..from + BURST_S).contains(&at)
}

/// Less than a round trip of that path.
const BURST_S: f64 = 0.05;
const MIB: f64 = 1048576.0;
const PAGE: &str = "docs/guide/published.md";
const HEAD: &str = "\
# Published figures beside ours

For researchers and readers of old reports; to copy nobody needs it. The reports of 2000 and 2001 \
that this project stands on ([references](../REFERENCES.md)) show figures. This page has each \
figure and table of them, what its text or caption says, and what our stored runs say of the same \
question. The hosts and paths are others, and twenty-five years lie between: not the numbers are \
compared, but what they show. The copies of the reports that were read have no pictures, so \
nothing is read off one.

`cargo xtask published` makes this page from [runs/data](../../runs/data), and from the tables of \
the pages that it names; a test says if it is not what they say.
";

const CAMPAIGN: &str = "2026-11-22-compression-campaign-whole";

const REPORTS: &[Report] = &[
    Report {
        name: "Bulk file transfer with compression (SLAC, 2001)",
        rows: &[
            Row {
                figure: "CPU time and compression by level, SLAC to ANL",
                says: "level 1 shrinks to 1/6.9, for 57.3 MHz s instead of 8.3; higher levels add \
                       less than 10 %",
                ours: Ours::Of("2026-11-22-compression-campaign-whole-100Mbit-20ms", cpu_by_level),
                page: CAMPAIGN,
            },
            Row {
                figure: "rates to 22 hosts with levels 0 and 1: a slow path",
                says: "× 4 and more to KEK, behind 10 Mbit/s",
                ours: Ours::Of("2026-11-22-compression-campaign-whole-20Mbit-80ms", best_by_level),
                page: CAMPAIGN,
            },
            Row {
                figure: "the same: a fast path",
                says: "no gain where the path carries more than the 50 Mbit/s that level 1 makes",
                ours: Ours::Of("2026-11-22-compression-campaign-whole-300Mbit-5ms", best_by_level),
                page: CAMPAIGN,
            },
            Row {
                figure: "the table of measuring hosts, and the graph of their clock rate",
                says: "median compressed rate 58 Mbit/s at 336 MHz, 67 at 532, 142 at 1131; \
                       compressing takes 3.3 to 4.4 times as long as decompressing",
                ours: Ours::Stated(stated::rates_by_cpu),
                page: "2026-11-22-compression-by-cpu",
            },
            Row {
                figure: "CPU time at the source over that at the target",
                says: "1.2 ± 0.3 without compression",
                ours: Ours::Of("2026-11-21-source-and-target-cpu", source_over_target),
                page: "2026-11-21-source-and-target-cpu",
            },
            Row {
                figure: "plots of target CPU against rate and streams",
                says: "little evidence for any correlation",
                ours: Ours::Of("2026-11-21-source-and-target-cpu", target_cpu),
                page: "2026-11-21-source-and-target-cpu",
            },
            Row {
                figure: "rate over streams with windows of 16 KB",
                says: "1.3 to 115 Mbit/s, linear in the streams; compression helps below 18 \
                       streams",
                ours: Ours::Of("2026-11-22-small-window-streams", small_window),
                page: "2026-11-22-small-window-streams",
            },
        ],
    },
    Report {
        name: "Bulk file transfer measurements (SLAC)",
        rows: &[
            Row {
                figure: "rate over file size, CERN",
                says: "the limit is reached with 100 MB (7 to 10 s) at about 70 Mbit/s",
                ours: Ours::Of("2026-11-22-transfer-size-100Mbit", size_needed),
                page: "2026-11-22-transfer-size",
            },
            Row {
                figure: "rate over file size, SLAC's LAN",
                says: "the limit is reached with 50 to 100 MB (1 to 2 s) at about 450 Mbit/s",
                ours: Ours::Not("the stored runs are over paths of 50 and 100 Mbit/s"),
                page: "",
            },
            Row {
                figure: "rate in each second of four copies",
                says: "it rises rapidly to its maximum",
                ours: Ours::Of("2026-11-21-steady-rate", rise),
                page: "2026-11-21-steady-rate",
            },
            Row {
                figure: "rate over duration, for five windows, one stream",
                says: "about 10 % more from 10 s to 20 s",
                ours: Ours::Of("2026-11-22-transfer-duration", duration_needed),
                page: "2026-11-22-transfer-duration",
            },
        ],
    },
    Report {
        name: "HPSS migration and staging, ORNL and NERSC (Dunigan, 2001)",
        rows: &[
            Row {
                figure: "Figure 1: rate of the way back, each second",
                says: "71 Mbit/s with windows of 2 MB; the application may have pauses",
                ours: Ours::Of("2026-11-21-large-window-pauses", |rows| {
                    each_second(rows, "in lockstep")
                }),
                page: "2026-11-21-large-window-pauses",
            },
            Row {
                figure: "Figure 2: rate of the way there, each second",
                says: "6.5 Mbit/s, a sawtooth; a window of 256 KB allows about 20",
                ours: Ours::Of("2026-11-22-lockstep-mover", |rows| {
                    each_second(rows, "in lockstep")
                }),
                page: "2026-11-22-lockstep-mover",
            },
            Row {
                figure: "Figure 3: packets over time",
                says: "2,233 retransmissions in 33 recoveries, in 1 GB; about 30 MB between them",
                ours: Ours::Of("2026-11-22-lockstep-mover-samples", recoveries),
                page: "2026-11-22-lockstep-mover",
            },
            Row {
                figure: "Figures 4 and 5: one loss from near, and the data from the other side",
                says: "a pause of more than 200 ms at the end of a block of 32 MB, then 200 KB at \
                       once, most of which are lost",
                ours: Ours::Of("2026-11-22-pause-capture-packets", pause),
                page: "2026-11-22-pause-capture",
            },
        ],
    },
    Report {
        name: "Compression on modern networks (a blog)",
        rows: &[Row {
            figure: "its list: zeros and noise through ssh, without compression and with levels 6, \
                     9, 1",
            says: "zeros 9.1, 13.3, 8.0, 55.5 MB/s; noise 8.6, 2.9, 2.1, 5.7 MB/s",
            ours: Ours::Stated(stated::through_ssh),
            page: "2026-11-22-ssh-compression",
        }],
    },
    Report {
        name: "Performance of the 1-1 data pump (Mayr and Gray, 2000)",
        rows: &[
            Row {
                figure: "Figure 1: the four isolated experiments",
                says: "a drawing of how parts are measured",
                ours: Ours::Stated(stated::isolated),
                page: "2026-11-23-cost-model-10",
            },
            Row {
                figure: "Figures 2 and 3, Tables 1 and 2: disk source and sink",
                says: "source 0.5 ns a byte and 86 µs a request; sink 1.6 ns and 73 µs",
                ours: Ours::Stated(stated::disks),
                page: "2026-11-23-cost-model-10",
            },
            Row {
                figure: "Figure 4, Tables 3 and 4: network sender and receiver",
                says: "sender 20 ns a byte and 40 µs a request; receiver 40 ns and 20 µs",
                ours: Ours::Stated(stated::networks),
                page: "2026-11-23-cost-model-10",
            },
            Row {
                figure: "Figure 5, Table 5: disk to disk",
                says: "22.4 MB/s; 2.1 ns a byte and 139 µs a request are predicted",
                ours: Ours::Stated(stated::disk_to_disk),
                page: "2026-11-23-cost-model-10",
            },
            Row {
                figure: "Figure 6, Tables 6 and 7: disk to disk over the network",
                says: "the network is the bottleneck, and the receiver works more",
                ours: Ours::Stated(stated::over_network),
                page: "2026-11-23-cost-model-10",
            },
            Row {
                figure: "Table 8: all of them",
                says: "costs of a byte and a request of each part; the sums predict the whole",
                ours: Ours::Stated(stated::sums),
                page: "2026-11-23-cost-model-10",
            },
        ],
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    /// `cargo xtask published` makes it anew.
    #[test]
    fn the_page_of_the_guide_is_what_the_data_say() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let there = fs::read_to_string(root.join(PAGE)).unwrap();
        assert_eq!(there, page(&root.join("runs")).unwrap());
    }

    #[test]
    fn figures_of_made_up_rows() {
        let rows = |text: &str| {
            let mut lines = text.lines().map(|line| line.split(',').map(String::from).collect());
            Rows { names: lines.next().unwrap(), rows: lines.collect() }
        };
        let of_seconds = rows("copy,at_s,mbit_per_s\na,1,10\na,2,100\na,3,100\na,4,90\nb,1,1");
        let told = each_second(&of_seconds, "a").unwrap();
        assert_eq!(told, "75.0 Mbit/s; 1 of 4 seconds below half of the median");
        let losses = rows(
            "at_s,rtt_ms,acked_bytes,segments_again\n0,100,0,0\n1,100,0,5\n1.1,100,0,6\n2,100,0,9\n\
             9,100,1048576,9",
        );
        assert_eq!(recoveries(&losses).unwrap(), "9 in 2 recoveries, in 1 MiB");
        assert!(each_second(&of_seconds, "c").unwrap_err().contains("no row fits"));
        assert!((correlation(&[1.0, 2.0, 3.0], &[2.0, 4.0, 6.0]) - 1.0).abs() < 1e-12);
    }
}
