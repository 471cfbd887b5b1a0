//! How long a copy must be, and whether the prober says what `ping` says.

use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use super::Experiment;
use super::campaign::{Campaign, csv, figure, interrupt, mbit_s, word};
use super::desk::Desk;
use super::shown::{Shown, Table};
use crate::bench::stats::Spread;

pub const SIZES: Experiment = Experiment {
    name: "g12",
    title: "from which size on the rate no longer grows",
    about: "Files of 1 to 100 MB and more to CERN and on SLAC's LAN: asymptotic from 100 MB (7 to \
            10 s) and from 50 to 100 MB (1 to 2 s). Here sizes doubling on two paths. In theory a \
            copy takes t0 + S / r, where t0 is the handshakes of TCP and TLS and the ramp \
            (log2(BDP / IW) + 1 round trips), so 95 % of r is reached at 19 t0 r.",
    run: sizes,
};

pub const DURATIONS: Experiment = Experiment {
    name: "g14",
    title: "duration against window, one stream",
    about: "iperf for 2 to 320 s with windows of 256 KB to 4 MB: medians still rose by about 10 % \
            from 10 to 20 s, so 10 s were chosen. Here 2 to 20 s over 300 Mbit/s and 25 ms.",
    run: durations,
};

pub const PROBES: Experiment = Experiment {
    name: "prober",
    title: "round trips beside those of ping",
    about: "SLAC noted ping times with and without load. Here our prober and the system's ping, \
            both ten times a second, over the same path at the same time: their medians over \
            each pause and each copy of a campaign.",
    run: probes,
};

fn sizes(desk: &Desk) -> Result<Shown, String> {
    let mut shown = Shown::default();
    let mut table = Table::new(
        "Medians in Mbit/s, and where they come within 5 % of the three largest:",
        "path | 1M | 2M | 4M | 8M | 16M | 32M | 64M | found | theory MB | found / theory",
    );
    for (path, rate_mbit, rtt_s) in [
        ("--rate 100Mbit --rtt 20ms --queue 1bdp", 100.0, 0.020),
        ("--rate 50Mbit --rtt 50ms --queue 1bdp", 50.0, 0.050),
    ] {
        let campaign = Campaign::over(desk, path, "far\n")?;
        campaign
            .measure("--sizes 1M..64M --windows auto --streams 4 --repeat 2 --congestion cubic")?;
        let cells = campaign.cells()?;
        let sizes: Vec<u64> = (0..7).map(|power| 1 << 20 << power).collect();
        let medians: Vec<f64> = sizes.iter().map(|size| median_of(&cells, *size)).collect();
        let last = Spread::of(medians[4..].iter().copied()).map_or(0.0, |spread| spread.median);
        let found = sizes.iter().zip(&medians).find(|(_, median)| **median >= 0.95 * last);
        let found = found.map_or(f64::NAN, |(size, _)| *size as f64 / 1e6);
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
        let page = campaign.page()?;
        let of_growth = page.lines().filter(|line| line.contains("no longer grows"));
        shown.note(of_growth.map(str::trim).collect::<Vec<_>>().join("; "));
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

fn durations(desk: &Desk) -> Result<Shown, String> {
    let mut shown = Shown::default();
    let campaign = Campaign::over(desk, "--rate 300Mbit --rtt 25ms --queue 1bdp", "far\n")?;
    campaign.measure(
        "--durations 2,5,10,20 --windows 256K,1M --streams 1 --repeat 1 --congestion cubic \
         --seal off --digest none",
    )?;
    let cells = campaign.cells()?;
    let mut table = Table::new(
        "One pass, in Mbit/s:",
        "window | 2 s | 5 s | 10 s | 20 s | gain from 10 to 20 s %",
    );
    for window in [256 << 10, 1 << 20] {
        let rates = [2.0, 5.0, 10.0, 20.0].map(|seconds| {
            let alike = cells.iter().filter(|cell| {
                figure(cell, "/knobs/window_bytes") == f64::from(window)
                    && figure(cell, "/more/extent/seconds") == seconds
            });
            Spread::of(alike.map(mbit_s)).map_or(f64::NAN, |spread| spread.median)
        });
        let gain = (rates[3] / rates[2] - 1.0) * 100.0;
        let mut row = vec![format!("{} KB", window >> 10)];
        row.extend(rates.iter().map(|rate| format!("{rate:.1}")));
        row.push(format!("{gain:+.1}"));
        table.row(row);
        shown.check(
            &format!("window {} KB: 10 to 20 s gains at most 15 %", window >> 10),
            format!("{gain:+.1} %"),
            gain <= 15.0,
        );
        let rises = rates.windows(2).all(|pair| pair[1] >= 0.98 * pair[0]);
        shown.check("rates do not fall with the duration", format!("{rates:.1?}"), rises);
    }
    shown.table(table);
    shown.data("", csv(&cells));
    Ok(shown)
}

fn probes(desk: &Desk) -> Result<Shown, String> {
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
        let campaign = Campaign::over(desk, path, "far\n")?;
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
            // The handshakes at its beginning are no load yet.
            let load = median_between(&echoes, began + login + moving * 0.02, ended);
            let ours = ["unloaded", "loaded"]
                .map(|state| figure(&cell, &format!("/round_trips/{state}/median_s")) * 1e3);
            let late = figure(&cell, "/round_trips/late_max_s") * 1e3;
            worst_rest = worst_rest.max((ours[0] - rest).abs());
            worst_load = worst_load.max((ours[1] - load).abs());
            latest = latest.max(late);
            // From the first byte to the last, as the prober counts them.
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

/// When each answer came, and after how many milliseconds.
fn echoes(said: &str) -> Vec<(f64, f64)> {
    let of = |line: &str| {
        let at = line.strip_prefix('[')?.split(']').next()?.parse().ok()?;
        let trip = line.split("time=").nth(1)?.split(' ').next()?.parse().ok()?;
        Some((at, trip))
    };
    said.lines().filter_map(of).collect()
}

/// Of the probes that left in that time.
fn median_between(echoes: &[(f64, f64)], from: f64, to: f64) -> f64 {
    let left = |(at, trip): &(f64, f64)| at - trip / 1e3;
    let within = echoes.iter().filter(|echo| (from..to).contains(&left(echo)));
    Spread::of(within.map(|(_, trip)| *trip)).map_or(f64::NAN, |spread| spread.median)
}

/// Round trips of TCP, of TLS 1.3, of the proof of a stream, and of the last acknowledgement.
const HANDSHAKES: f64 = 4.0;

#[cfg(test)]
mod tests {
    use super::*;

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
