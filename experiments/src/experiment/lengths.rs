//! How long a copy must be, and whether probes agree with `ping`.

use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use super::Experiment;
use super::campaign::{Campaign, csv, figure, interrupt, mbit_s, word};
use super::shown::{Shown, Table};
use super::steady::{deviation, mean};
use super::testbed::Testbed;
use analysis::statistics::Spread;

pub(super) const SIZES: Experiment = Experiment {
    name: "transfer-size",
    title: "from which size on the rate no longer grows",
    about: "Files of 1 to 100 MB and more to CERN and on SLAC's LAN: asymptotic from 100 MB (7 to \
            10 s) and from 50 to 100 MB (1 to 2 s). Here sizes doubling on two paths, as \
            `sweep show` judges them. In theory a \
            copy takes t0 + S / r, where t0 is the handshakes of TCP and TLS and the ramp \
            (log2(BDP / IW) + 1 round trips), so 95 % of r is reached at 19 t0 r.",
    run: sizes,
};

pub(super) const DURATIONS: Experiment = Experiment {
    name: "transfer-duration",
    title: "duration against window, one stream",
    about: "iperf for 2 to 320 s with windows of 256 KB to 4 MB: medians still rose by about 10 % \
            from 10 to 20 s, so 10 s were chosen. Here 2 to 20 s in three passes and 40 s in one, \
            over 300 Mbit/s and 25 ms, a window of which is 0.9 MB.",
    run: durations,
};

pub(super) const PROBES: Experiment = Experiment {
    name: "prober",
    title: "round trips beside those of ping",
    about: "SLAC noted ping times with and without load. Here our prober and the system's ping, \
            both ten times a second, over the same path at the same time: their medians over \
            each pause and each copy of a campaign.",
    run: probes,
};

fn sizes(testbed: &Testbed) -> Result<Shown, String> {
    let mut shown = Shown::default();
    let mut table = Table::new(
        "Medians in Mbit/s, and from where on they are within 5 % of the three largest:",
        "path | 1M | 2M | 4M | 8M | 16M | 32M | 64M | found | theory MB | found / theory",
    );
    for (path, rate_mbit, rtt_s) in [
        ("--rate 100Mbit --rtt 20ms --queue 1bdp", 100.0, 0.020),
        ("--rate 50Mbit --rtt 50ms --queue 1bdp", 50.0, 0.050),
    ] {
        let campaign = Campaign::over(testbed, path, "far\n")?;
        campaign
            .measure("--sizes 1M..64M --windows auto --streams 4 --repeat 5 --congestion cubic")?;
        let cells = campaign.cells()?;
        let sizes: Vec<u64> = (0..7).map(|power| 1 << 20 << power).collect();
        let medians: Vec<f64> = sizes.iter().map(|size| median_of(&cells, *size)).collect();
        let page = campaign.page()?;
        // The first line is the grid's; the program's own choice comes after it.
        let long_enough = page.lines().map(str::trim).find(|line| line.contains(LONG_ENOUGH));
        let is_found = |size: &&u64| {
            long_enough.is_some_and(|line| line.starts_with(&format!("from {}M ", *size >> 20)))
        };
        let found = sizes.iter().find(is_found).map_or(f64::NAN, |size| *size as f64 / 1e6);
        let theory = theory_megabytes(rate_mbit, rtt_s);
        let mut row = vec![path.to_string()];
        row.extend(medians.iter().map(|rate| format!("{rate:.1}")));
        row.extend([found, theory, found / theory].map(|value| format!("{value:.2}")));
        table.row(row);
        shown.check(
            &format!("{path}: within a factor of 2 of theory"),
            format!("{found:.1} MB, in theory {theory:.1} MB"),
            (0.5..=2.0).contains(&(found / theory)),
        );
        let falls: Vec<&str> = page.lines().map(str::trim).filter(|l| l.contains(FALLS)).collect();
        shown.check(
            &format!("{path}: medians do not fall beyond their 95 % intervals"),
            if falls.is_empty() { "none does".to_string() } else { falls.join("; ") },
            falls.is_empty(),
        );
        shown.note(format!("```text\n{page}```"));
        shown.data(&format!("{rate_mbit}Mbit"), csv(&cells));
    }
    shown.table(table);
    Ok(shown)
}

fn median_of(cells: &[Value], size: u64) -> f64 {
    let grid = cells.iter().filter(|cell| word(cell, "/more/choice") == "grid");
    let alike = grid.filter(|cell| figure(cell, "/more/extent/bytes") == size as f64);
    Spread::of(alike.map(mbit_s)).map_or(f64::NAN, |spread| spread.median)
}

/// Four streams begin with ten segments each.
fn theory_megabytes(rate_mbit: f64, rtt_s: f64) -> f64 {
    let rate = rate_mbit * 1e6 / 8.0 * 1448.0 / 1500.0;
    let ramp = (rate * rtt_s / (4.0 * 10.0 * 1448.0)).max(1.0).log2() + 1.0;
    19.0 * (HANDSHAKES + ramp) * rtt_s * rate / 1e6
}

fn durations(testbed: &Testbed) -> Result<Shown, String> {
    let mut shown = Shown::default();
    let campaign = Campaign::over(testbed, "--rate 300Mbit --rtt 25ms --queue 1bdp", "far\n")?;
    for (seconds, passes) in [("40", 1), ("2,5,10,20", 3)] {
        campaign.measure(&format!(
            "--durations {seconds} --repeat {passes} --windows 256K,1M,4M --streams 1 \
             --congestion cubic --seal off --digest none"
        ))?;
    }
    let mut cells = campaign.cells()?;
    cells.sort_by(|a, b| figure(a, "/place/repeat").total_cmp(&figure(b, "/place/repeat")));
    let rates = |window: u32, seconds: u32| -> Vec<f64> {
        let alike = cells.iter().filter(|cell| {
            figure(cell, "/options/window_bytes") == f64::from(window)
                && figure(cell, "/more/extent/seconds") == f64::from(seconds)
        });
        alike.map(mbit_s).collect()
    };
    let mut table = Table::new(
        "Mbit/s, medians (least to most):",
        "window | 2 s | 5 s | 10 s | 20 s | 40 s | gain from 10 to 20 s %",
    );
    let (mut seen, mut gains) = (Vec::new(), Vec::new());
    for window in [256 << 10, 1 << 20, 4 << 20] {
        let mut spreads = Vec::new();
        for seconds in [2, 5, 10, 20, 40] {
            let spread = Spread::of(rates(window, seconds));
            spreads.push(spread.ok_or(format!("no copy of {seconds} s with window {window}"))?);
        }
        let pairs = rates(window, 20).into_iter().zip(rates(window, 10));
        let gain: Vec<f64> = pairs.map(|(long, short)| (long / short - 1.0) * 100.0).collect();
        let mut row = vec![format!("{} KB", window >> 10)];
        row.extend(spreads.iter().map(|spread| spread.text(1)));
        row.push(Spread::of(gain.iter().copied()).map_or("-".into(), |spread| spread.text(1)));
        table.row(row);
        seen.push(spreads);
        gains.extend(gain);
    }
    shown.table(table);
    judge_durations(&mut shown, &seen, &gains);
    shown.note(format!("```text\n{}```", campaign.page()?));
    shown.data("", csv(&cells));
    Ok(shown)
}

/// `seen` by window and duration, both in ascending order.
fn judge_durations(shown: &mut Shown, seen: &[Vec<Spread>], gains: &[f64]) {
    let falls = |less: &Spread, more: &Spread| more.max < less.min;
    let said = |falls: usize| if falls == 0 { "none is".into() } else { format!("{falls} are") };
    let by_time =
        seen.iter().flat_map(|row| row.windows(2)).filter(|pair| falls(&pair[0], &pair[1]));
    let by_time = by_time.count();
    shown.check(
        "no longer copy is slower beyond the range of its passes",
        said(by_time),
        by_time == 0,
    );
    let pairs = seen.windows(2).flat_map(|rows| rows[0].iter().zip(&rows[1]));
    let by_window = pairs.filter(|(less, more)| falls(less, more)).count();
    shown.check("nor is one with a larger window", said(by_window), by_window == 0);
    let half = T_OF_NINE * deviation(gains) / (gains.len() as f64).sqrt();
    let middle = mean(gains);
    shown.check(
        "from 10 to 20 s rates gain at most 15 %, by the 95 % interval of nine pairs",
        format!("{middle:+.1} % ({:+.1} to {:+.1})", middle - half, middle + half),
        gains.len() == 9 && middle + half <= 15.0,
    );
}

fn probes(testbed: &Testbed) -> Result<Shown, String> {
    let mut shown = Shown::default();
    let mut table = Table::new(
        "Medians in ms, of each cell:",
        "path | at rest | ping | under load | ping | probes sent | in time | late by ms at most",
    );
    let (mut worst_rest, mut worst_load, mut latest) = (0.0f64, 0.0f64, 0.0f64);
    let mut missed = 0.0f64;
    for path in [
        "--rate 100Mbit --rtt 20ms --queue 1bdp",
        "--rate 20Mbit --rtt 50ms --queue 2bdp",
        "--rate 10Mbit --rtt 10ms --queue 64K",
    ] {
        let campaign = Campaign::over(testbed, path, "far\n")?;
        let mut ping = Command::new("ping");
        ping.args(["-n", "-D", "-i", "0.1", "10.77.0.2"]).stdout(Stdio::piped());
        let ping = campaign.wan.near(ping).and_then(|mut ping| ping.spawn());
        let ping = ping.map_err(|why| format!("ping: {why}"))?;
        let measured = campaign.measure(
            "--windows auto --streams 2 --time 5 --repeat 1 --congestion cubic --order given",
        );
        thread::sleep(Duration::from_millis(500));
        interrupt(&ping)?;
        let said = ping.wait_with_output().map_err(|why| format!("ping: {why}"))?;
        measured?;
        let echoes = echoes(&String::from_utf8_lossy(&said.stdout));
        for cell in campaign.cells()? {
            let began = figure(&cell, "/started_unix_s");
            let login = figure(&cell, "/more/login_s");
            let ended = began + figure(&cell, "/moved/elapsed_s");
            let moving = figure(&cell, "/more/moving_s");
            let rest = median_between(&echoes, began - figure(&cell, "/more/pause_s"), began);
            // The handshakes at the beginning are not load yet.
            let load = median_between(&echoes, began + login + moving * 0.02, ended);
            let ours = ["unloaded", "loaded"]
                .map(|state| figure(&cell, &format!("/round_trips/{state}/median_s")) * 1e3);
            let late = figure(&cell, "/round_trips/late_max_s") * 1e3;
            worst_rest = worst_rest.max((ours[0] - rest).abs());
            worst_load = worst_load.max((ours[1] - load).abs());
            latest = latest.max(late);
            // From the first byte to the last, as for the probes.
            let sent = figure(&cell, "/round_trips/loaded/sent");
            let fit = figure(&cell, "/more/loaded_s") * 10.0;
            missed = missed.max((sent - fit).abs());
            let mut row = vec![path.to_string()];
            row.extend([ours[0], rest, ours[1], load].map(|ms| format!("{ms:.2}")));
            row.extend([format!("{sent}"), format!("{fit:.1}"), format!("{late:.2}")]);
            table.row(row);
        }
    }
    shown.table(table);
    let at_most = |ms: f64| format!("{ms:.2} ms");
    shown.check("at rest within 1 ms of ping", at_most(worst_rest), worst_rest <= 1.0);
    shown.check("under load within 1 ms of ping", at_most(worst_load), worst_load <= 1.0);
    shown.check(
        "ten probes a second on full paths, none left out",
        format!("{missed:.2} more or fewer than time for them at most"),
        missed <= 1.0,
    );
    shown.check("no probe later than a tenth of the interval", at_most(latest), latest <= 10.0);
    Ok(shown)
}

/// When each answer arrived, and its round trip in milliseconds.
fn echoes(said: &str) -> Vec<(f64, f64)> {
    let of = |line: &str| {
        let at = line.strip_prefix('[')?.split(']').next()?.parse().ok()?;
        let trip = line.split("time=").nth(1)?.split(' ').next()?.parse().ok()?;
        Some((at, trip))
    };
    said.lines().filter_map(of).collect()
}

/// The median of the probes that were sent in that time.
fn median_between(echoes: &[(f64, f64)], from: f64, to: f64) -> f64 {
    let left = |(at, trip): &(f64, f64)| at - trip / 1e3;
    let within = echoes.iter().filter(|echo| (from..to).contains(&left(echo)));
    Spread::of(within.map(|(_, trip)| *trip)).map_or(f64::NAN, |spread| spread.median)
}

/// Parts of the notes of `sweep show`: on the length that is long enough, and on a length that is
/// slower than a shorter one.
const LONG_ENOUGH: &str = "the rate is within 5 %";
const FALLS: &str = "the rate falls";
/// Student's t with 8 degrees of freedom, for 95 %.
const T_OF_NINE: f64 = 2.306;
/// Round trips of TCP, TLS 1.3, the authentication of a stream, and the last acknowledgement.
const HANDSHAKES: f64 = 4.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fall_is_one_beyond_the_range_of_passes() {
        let check = |rows: [[[f64; 3]; 2]; 2], gain: f64, failed: usize| {
            let spread = |rates: [f64; 3]| Spread::of(rates).unwrap();
            let seen = rows.map(|row| row.map(spread).to_vec());
            let mut shown = Shown::default();
            judge_durations(&mut shown, &seen, &[gain - 1.0, gain, gain + 1.0].repeat(3));
            assert_eq!(shown.failed(), failed, "{rows:?}");
        };
        let narrow = [[70.0, 71.0, 72.0], [75.0, 76.0, 77.0]];
        check([narrow, [[250.0, 251.0, 252.0], [251.5, 240.0, 241.0]]], 3.0, 0);
        check([narrow, [[250.0, 251.0, 252.0], [249.5, 240.0, 241.0]]], 3.0, 1);
        check([narrow, [[250.0, 251.0, 252.0], [74.0, 74.5, 74.9]]], 3.0, 2);
        check([narrow, narrow], 14.5, 1);
    }

    #[test]
    fn what_ping_says_is_read() {
        let said = "PING 10.77.0.2\n[1700000000.500000] 64 bytes from 10.77.0.2: icmp_seq=1 ttl=64 \
                    time=20.1 ms\n[1700000000.600000] 64 bytes: icmp_seq=2 time=22.3 ms\n";
        let echoes = echoes(said);
        assert_eq!(echoes.len(), 2);
        assert_eq!(median_between(&echoes, 1_700_000_000.55, 1_700_000_001.0), 22.3);
        assert!(median_between(&echoes, 0.0, 1.0).is_nan());
    }
}
