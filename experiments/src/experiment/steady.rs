//! Rates over time: how fast they rise, what a window or a path allows.

use super::Experiment;
use super::hpss::{self, line};
use super::series;
use super::shown::{Shown, Table};
use super::testbed::{Order, Run, Testbed};
use analysis::statistics::median;

pub(super) const RAMP: Experiment = Experiment {
    name: "steady-rate",
    title: "rates rise fast, and stay",
    about: "Four copies with windows of 64 KB on four streams, one of them for 200 s: the rate of \
            each second rises at once and is flat from then on. Here over 100 Mbit/s and 25 ms, \
            where four such windows carry 84 Mbit/s; three of the copies last 30 s.",
    run: ramp,
};

pub(super) const FAST_PATH: Experiment = Experiment {
    name: "paced-stream",
    title: "one paced stream fills an OC-12",
    about: "Two hosts with gigabit reached 300 Mbit/s over the OC-12 between ORNL and NERSC (622 \
            Mbit/s, 102 ms). Here one stream of a paced sender over the same path, whose queue \
            holds one bandwidth-delay product.",
    run: fast_path,
};

pub(super) const STAGING: Experiment = Experiment {
    name: "large-window-pauses",
    title: "NERSC to ORNL: a large window and pauses",
    about: "The way back of the 1 GB, with windows of 2 MB: 71 Mbit/s, with visible pauses. Here \
            1 GB over 100 Mbit/s and 102 ms with a window of 2 MiB, once as our program moves it \
            and once in lockstep with stops of 200 ms every 32 MiB.",
    run: staging,
};

pub(super) const CEILING: Experiment = Experiment {
    name: "window-limit",
    title: "a window of 256 KB at 102 ms",
    about: "The window was only 256 KB, limiting bandwidth to roughly 20 Mbit/s: window by round \
            trip. Here a window of 256 KiB on a path that has nothing else to hold it back.",
    run: ceiling,
};

fn ramp(testbed: &Testbed) -> Result<Shown, String> {
    let mut shown = Shown::default();
    let mut table = Table::new(
        "Of each copy (final: the median of all seconds from the 4th on):",
        "copy | MB | seconds | final Mbit/s | 3rd second | of final % | CV after % | held back by",
    );
    let (mut least, mut most) = (f64::INFINITY, 0.0f64);
    let mut copies = Vec::new();
    for (number, size) in ["2000M", "300M", "300M", "300M"].into_iter().enumerate() {
        let copy = format!("--streams 4 --window 64K null:{size} far:null:");
        let run = testbed.copy(&Order::new("--rate 100Mbit --rtt 25ms --queue 1bdp", copy))?;
        let rates = series::rates_mbit_s(&run.streams, 1.0);
        let later = rates.get(3..).unwrap_or_default();
        let settled = median(later).unwrap_or(0.0);
        let third = rates.get(2).copied().unwrap_or(0.0);
        let variation = deviation(later) / mean(later) * 100.0;
        least = least.min(third / settled * 100.0);
        most = most.max(variation);
        table.row(vec![
            (number + 1).to_string(),
            format!("{:.0}", run.bytes() / 1e6),
            rates.len().to_string(),
            format!("{settled:.1}"),
            format!("{third:.1}"),
            format!("{:.1}", third / settled * 100.0),
            format!("{variation:.2}"),
            run.sentence().to_string(),
        ]);
        copies.push(((number + 1).to_string(), run.streams));
    }
    shown.table(table);
    shown.check(
        "90 % of the final rate within 3 s",
        format!("{least:.1} % in the 3rd second, at least"),
        least >= 90.0,
    );
    shown.check("CV afterwards at most 5 %", format!("{most:.2} % at most"), most <= 5.0);
    let named = copies.iter().map(|(name, streams)| (name.clone(), streams.as_slice()));
    shown.data("", series::rates_csv(named, 1.0));
    Ok(shown)
}

fn fast_path(testbed: &Testbed) -> Result<Shown, String> {
    let mut shown = Shown::default();
    let mut table = table_of_copies("One stream, a window of 32 MiB:");
    let mut best = 0.0f64;
    let mut copies = Vec::new();
    for (name, pace) in
        [("paced as the program does by itself", "auto"), ("paced at 580 Mbit/s", "580Mbit")]
    {
        let copy = format!(
            "--streams 1 --congestion cubic --pace {pace} --window 32M null:3000M far:null:"
        );
        let run = testbed.copy(&Order::new("--rate 622Mbit --rtt 102ms --queue 1bdp", copy))?;
        table.row(line(name, &run));
        best = best.max(run.copying_mbit_s());
        late(&mut shown, name, &run);
        copies.push((name.to_string(), run.streams));
    }
    shown.table(table);
    shown.check(
        "85 % of the link by one paced stream (529 Mbit/s)",
        format!("{best:.0} Mbit/s, {:.1} %", best / 6.22),
        best >= 0.85 * 622.0,
    );
    let named = copies.iter().map(|(name, streams)| (name.clone(), streams.as_slice()));
    shown.data("", series::rates_csv(named, 1.0));
    Ok(shown)
}

fn staging(testbed: &Testbed) -> Result<Shown, String> {
    let mut shown = Shown::default();
    let mut table = table_of_copies("1 GB each, one stream, a window of 2 MiB:");
    let path = "--rate 100Mbit --rtt 102ms --queue 1bdp";
    let copy = |stops: &str| {
        let copy = format!("--streams 1 {stops} --window 2M null:954M far:null:");
        testbed.copy(&Order::new(path, copy))
    };
    let plain = copy("")?;
    table.row(line("as it is", &plain));
    let stopping = copy("--lockstep 32M:200ms")?;
    table.row(line("in lockstep", &stopping));
    shown.table(table);
    shown.table(hpss::episodes(&stopping));
    let rates = [plain.copying_mbit_s(), stopping.copying_mbit_s()];
    shown.check(
        "65 Mbit/s and more",
        format!("{:.1}, in lockstep {:.1}", rates[0], rates[1]),
        rates[0].min(rates[1]) >= 65.0,
    );
    let pauses = [&plain, &stopping].map(|run| run.of_streams("pause_list").len());
    // After the last block there is no stop.
    shown.check(
        "pauses are listed: none of our own, and each of the lockstep's 29",
        format!("{} and {}", pauses[0], pauses[1]),
        pauses == [0, 29],
    );
    let copies = [("as it is", &plain), ("in lockstep", &stopping)];
    let named = copies.map(|(name, run)| (name.to_string(), run.streams.as_slice()));
    shown.data("", series::rates_csv(named, 1.0));
    Ok(shown)
}

fn ceiling(testbed: &Testbed) -> Result<Shown, String> {
    let mut shown = Shown::default();
    let mut table = table_of_copies("One stream, a window of 256 KiB:");
    let (mut rates, mut classes, mut advice) = (Vec::new(), Vec::new(), Vec::new());
    for (name, sender) in [
        ("cubic, its bursts as they are", "--congestion cubic --pace off"),
        ("cubic, spaced", "--congestion cubic"),
        ("bbr", "--congestion bbr"),
    ] {
        let copy = format!("--streams 1 {sender} --window 256K null:64M far:null:");
        let run = testbed.copy(&Order::new("--rate 100Mbit --rtt 102ms --queue 1bdp", copy))?;
        table.row(line(name, &run));
        rates.push(run.steady_mbit_s());
        classes.push(run.class());
        let list = run.verdict["advice"].as_array().cloned().unwrap_or_default();
        let window = list.iter().find(|one| one["change"]["change"] == "window");
        let link = window.map(|one| &one["change"]["for_link"]);
        let of_link = |name: &str| link.and_then(|link| link[name].as_f64()).unwrap_or(0.0);
        advice.push((of_link("bytes"), of_link("bits_per_s") / 1e6));
    }
    shown.table(table);
    shown.check(
        "20.6 Mbit/s within 10 %",
        rates.iter().map(|rate| format!("{rate:.1}")).collect::<Vec<_>>().join(", "),
        rates.iter().all(|rate| (rate / 20.6 - 1.0).abs() <= 0.1),
    );
    shown.check(
        "held back by its receive window",
        classes.join(", "),
        classes.iter().all(|class| class == "receive_window"),
    );
    let text = advice.iter().map(|(bytes, to)| format!("{:.2} MB for {to:.0}", bytes / 1e6));
    shown.check(
        "a window of 1.28 MB and more is named for 100 Mbit/s",
        text.collect::<Vec<_>>().join(", "),
        advice.iter().all(|(bytes, to)| *bytes >= 1.28e6 && *to == 100.0),
    );
    Ok(shown)
}

fn table_of_copies(title: &str) -> Table {
    let columns =
        "copy | MiB | Mbit/s | steady | sent again | % | episodes | pauses | held back by";
    Table::new(title, columns)
}

/// A late link is a property of the machine, and the page says so.
fn late(shown: &mut Shown, name: &str, run: &Run) {
    let forward = run.counters.forward;
    let share = forward.late_packets as f64 / forward.packets.packets_in.max(1) as f64;
    if share > 0.03 || forward.kernel_drops > 0 {
        shown.note(format!(
            "{name}: {:.1} % of the packets came out of the link more than 1 ms late, and devices \
             dropped {}: the machine was busy.",
            share * 100.0,
            forward.kernel_drops
        ));
    }
}

pub(super) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// The standard deviation of a sample.
pub(super) fn deviation(values: &[f64]) -> f64 {
    let middle = mean(values);
    let squares: f64 = values.iter().map(|value| (value - middle).powi(2)).sum();
    (squares / (values.len().max(2) - 1) as f64).sqrt()
}
