//! ORNL to NERSC, 8 August 2001: a mover that stops every 32 MB for its peer, with a small window,
//! and a sender that is faster than the path's router.

use super::Experiment;
use super::series;
use super::shown::{Shown, Table};
use super::testbed::{Order, Run, Testbed};

pub(super) const TOLD_WHOLE: Experiment = Experiment {
    name: "lockstep-mover",
    title: "a mover that stops every 32 MiB, told whole",
    about: "ORNL to NERSC, 1 GB, 256 KB of window: 6.5 Mbit/s of 100, a sawtooth; every 32 MB the \
            sender paused more than 200 ms for its peer and then sent 200 KB at once, most of \
            which were lost. Here `--lockstep` makes our own program behave so, over a path of the \
            same rate and round trip with a queue of 128 KiB, on a kernel that keeps its window \
            while idle, as AIX did; beside it the plain program on the same path.",
    run: told_whole,
};

pub(super) const SLOWER_SENDER: Experiment = Experiment {
    name: "paced-sender",
    title: "a slower sender is better",
    about: "A host with a 100 Mbit/s interface moved more from ORNL than one with gigabit. Here \
            the sender is as fast as the host, paced, or behind a token bucket of 100 Mbit/s; it \
            stops every 32 MiB for 250 ms, its window is left to TCP.",
    run: slower_sender,
};

/// The path at that time: AIX kept its congestion window while idle.
pub(super) const PATH: &str =
    "--rate 100Mbit --rtt 102ms --queue 128K --sysctl net.ipv4.tcp_slow_start_after_idle=0";

/// The mover on that path, with a capture; made once for all experiments that use it.
pub(super) fn mover(testbed: &Testbed) -> Result<&Run, String> {
    if let Some(run) = testbed.mover.get() {
        return Ok(run);
    }
    let copy = "--streams 1 --congestion cubic --pace off --lockstep 32M:250ms --window 256K \
                null:416M far:null:";
    let run = testbed.copy(&Order::new(PATH, copy).captured())?;
    Ok(testbed.mover.get_or_init(|| run))
}

fn told_whole(testbed: &Testbed) -> Result<Shown, String> {
    let mover = mover(testbed)?;
    let mut shown = Shown::default();
    let mut table = Table::new(
        "Copies over that path (Mbit/s: payload by the time of the copy without its login; steady: \
         behind the ramp):",
        "copy | MiB | Mbit/s | steady | sent again | % | episodes | pauses | held back by",
    );
    table.row(line("in lockstep, window 256 KiB", mover));
    let mut plain = Vec::new();
    for (name, options) in [
        ("plain, one stream", "--streams 1"),
        ("plain, one stream, cubic", "--streams 1 --congestion cubic"),
        ("plain, as it comes", ""),
    ] {
        let run = testbed.copy(&Order::new(PATH, format!("{options} null:500M far:null:")))?;
        table.row(line(name, &run));
        plain.push((name, run));
    }
    shown.table(table);
    shown.table(episodes(mover));
    judge_mover(&mut shown, mover);
    let best = &plain[0].1;
    shown.check(
        "the plain program on the same path, one stream: 85 Mbit/s and more",
        plain
            .iter()
            .map(|(name, run)| format!("{:.1} ({name})", run.copying_mbit_s()))
            .collect::<Vec<_>>()
            .join(", "),
        best.copying_mbit_s() >= 85.0,
    );
    let copies = [("in lockstep", mover), ("plain", best)];
    let named = copies.map(|(name, run)| (name.to_string(), run.streams.as_slice()));
    shown.data("", series::rates_csv(named, 1.0));
    shown.data("samples", series::samples_csv(&mover.streams, 0.0, f64::INFINITY, 2500));
    shown.note(format!("`datapump explain` of the first copy:\n\n```\n{}```", head(&mover.page)));
    Ok(shown)
}

fn judge_mover(shown: &mut Shown, mover: &Run) {
    let rate = mover.copying_mbit_s();
    shown.check("in lockstep: below 25 Mbit/s", format!("{rate:.1}"), rate < 25.0);
    let episodes = mover.of_streams("episodes").len();
    let behind = mover.figure_at(&["pauses", "episodes_after_pause"]);
    let share = behind / episodes.max(1) as f64;
    shown.check("three recovery episodes and more", episodes.to_string(), episodes >= 3);
    shown.check(
        "80 % of them within three round trips of a pause",
        format!("{behind:.0} of {episodes}"),
        share >= 0.8,
    );
    let class = mover.class();
    let right = ["pauses", "shallow_buffer", "receive_window"].contains(&class.as_str());
    shown.check(
        "held back by pauses, a shallow buffer or the window",
        format!("{class}: {}", mover.sentence()),
        right,
    );
    for (what, words) in
        [("the lockstep", "lockstep"), ("its period", "every 32 MiB"), ("the window", "256 KiB")]
    {
        let said = mover.page.lines().find(|line| line.contains(words));
        shown.check(
            &format!("`explain` names {what}"),
            said.unwrap_or("it does not").trim(),
            said.is_some(),
        );
    }
}

fn slower_sender(testbed: &Testbed) -> Result<Shown, String> {
    let mut shown = Shown::default();
    let mut table = Table::new(
        "128 MiB each:",
        "sender | MiB | Mbit/s | steady | sent again | % | episodes | pauses | held back by",
    );
    let mut rates = Vec::new();
    let mut copies = Vec::new();
    for (name, pace, bucket) in [
        ("as fast as the host", "off", None),
        ("paced at 300 Mbit/s", "300Mbit", None),
        ("paced at 100 Mbit/s", "100Mbit", None),
        ("paced at 90 Mbit/s", "90Mbit", None),
        ("paced as the program does by itself", "auto", None),
        ("behind a token bucket of 100 Mbit/s", "off", Some(BUCKET)),
    ] {
        let copy = format!(
            "--streams 1 --congestion cubic --pace {pace} --lockstep 32M:250ms null:128M far:null:"
        );
        let before = bucket.into_iter().map(String::from).collect();
        let run = testbed.copy(&Order { before, ..Order::new(PATH, copy) })?;
        table.row(line(name, &run));
        rates.push(run.copying_mbit_s());
        copies.push((name.to_string(), run.streams));
    }
    shown.table(table);
    let best = rates[1..4].iter().copied().fold(0.0, f64::max);
    shown.check(
        "paced at least 2.5 times as fast as not",
        format!("{best:.1} by {:.1}: {:.1} times", rates[0], best / rates[0]),
        best >= 2.5 * rates[0],
    );
    shown.check(
        "90 and 100 Mbit/s better than 300",
        format!("{:.1} and {:.1} against {:.1}", rates[3], rates[2], rates[1]),
        rates[3].max(rates[2]) > rates[1],
    );
    let named = copies.iter().map(|(name, streams)| (name.clone(), streams.as_slice()));
    shown.data("", series::rates_csv(named, 0.5));
    Ok(shown)
}

/// The figures of a copy in all tables of these experiments.
pub(super) fn line(name: &str, run: &Run) -> Vec<String> {
    vec![
        name.to_string(),
        format!("{:.0}", run.bytes() / f64::from(1 << 20)),
        format!("{:.1}", run.copying_mbit_s()),
        format!("{:.1}", run.steady_mbit_s()),
        run.segments_again().to_string(),
        format!("{:.2}", run.again_percent()),
        run.of_streams("episodes").len().to_string(),
        run.of_streams("pause_list").len().to_string(),
        run.sentence().to_string(),
    ]
}

/// Pauses and episodes of one stream in order of time.
pub(super) fn episodes(run: &Run) -> Table {
    let mut table =
        Table::new("What happened in it:", "at, s | what | segments again | MiB since the last");
    let mut events: Vec<(f64, Vec<String>)> = Vec::new();
    let mib = |value: &serde_json::Value| {
        format!("{:.2}", value.as_f64().unwrap_or(0.0) / f64::from(1 << 20))
    };
    for episode in run.of_streams("episodes") {
        let at_s = episode["at_s"].as_f64().unwrap_or(0.0);
        let segments = episode["retransmitted_segments"].to_string();
        let cells = vec!["recovery".into(), segments, mib(&episode["bytes_before"])];
        events.push((at_s, cells));
    }
    for pause in run.of_streams("pause_list") {
        let at_s = pause["at_s"].as_f64().unwrap_or(0.0);
        let length_ms = pause["length_s"].as_f64().unwrap_or(0.0) * 1e3;
        let what = format!("pause of {length_ms:.0} ms");
        events.push((at_s, vec![what, String::new(), mib(&pause["bytes_before"])]));
    }
    events.sort_by(|a, b| a.0.total_cmp(&b.0));
    for (at_s, mut cells) in events {
        cells.insert(0, format!("{at_s:.2}"));
        table.row(cells);
    }
    table
}

/// The page without its lists.
fn head(page: &str) -> &str {
    page.find("\nstream 0:").map_or(page, |at| &page[..at + 1])
}

const BUCKET: &str = "tc qdisc add dev wan0 root tbf rate 100mbit burst 16kb limit 20mb";
