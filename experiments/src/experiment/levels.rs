//! The findings of SLAC (2001) on compression levels, with zlib as it was used there.

use analysis::record::compression::Compression;
use analysis::statistics::median;
use std::path::Path;
use std::process::Command;

use ::wan::{Profile, Wan};

use super::Experiment;
use super::shown::{Shown, Table};
use super::steady::{deviation, mean};
use super::testbed::{Order, Run, Testbed};
use super::timed::{self, Programs, Stretch};
use crate::quota::Quota;
use analysis::statistics::Spread;

pub(super) const LEVELS: Experiment = Experiment {
    name: "compression-levels",
    title: "from level 0 to 1 much is won, from 1 to 9 little",
    about: "SLAC to ANL with bbcp: from level 0 to 1 both ratio and CPU time grew about sevenfold, \
            from 1 to 9 the ratio less than 10 %. Here records over the loopback, every level of \
            zlib once; CPU time is that of the sending process for a byte before packing.",
    run: levels,
};

pub(super) const COST: Experiment = Experiment {
    name: "compression-cost",
    title: "what a byte costs packed and not",
    about: "8.3 ± 0.9 cycles a byte were spent without compression, 57.3 ± 0.5 with level 1: 6.9 \
            times as many. Here records over the loopback, by turns; CPU time of the sending \
            process.",
    run: cost,
};

pub(super) const LINKS: Experiment = Experiment {
    name: "compression-crossover",
    title: "a compressed rate is flat over links, and helps below a crossover",
    about: "To 22 hosts compressed data moved at about 50 Mbit/s whatever the link, so it helped \
            below and hurt above; over 10 Mbit/s it was more than four times as fast. Here the \
            sender has a fifth of a CPU; links up to 100 Mbit/s are the emulated WAN with 10 \
            ms, faster ones a veth pair with a token bucket. What it packs over the loopback \
            predicts the flat rate, and with it the crossover.",
    run: links,
};

pub(super) const BARE: Experiment = Experiment {
    name: "codec-pipeline",
    title: "the pipeline beside the bare codec",
    about: "gzip alone was 6 to 17 % slower than bbcp with the same level. Here each side has a \
            CPU of its own and neither seals nor digests; what the copy moves beside what \
            `datapump measure codec` packs on the sender's CPU, by turns.",
    run: bare,
};

pub(super) const QUOTAS: Experiment = Experiment {
    name: "compression-by-cpu",
    title: "compressed rates are as fast as the CPU",
    about: "On hosts of 336 to 1131 MHz the compressed rate was linear in MHz (from memory and \
            disk: in their sum), and packing took 3.3 to 4.4 times as long as unpacking. Here \
            the sender has a quota of 10 to 100 % of a CPU, records go over the loopback with \
            zlib 1.",
    run: quotas,
};

pub(super) const CROSSING: Experiment = Experiment {
    name: "small-window-crossover",
    title: "with how many streams compression no longer pays",
    about: "With windows of 16 KB level 1 was the best for fewer than 18 streams, and none for \
            more: each stream adds a window a round trip, packed or not, until the CPU packs no \
            faster. Here over 300 Mbit/s and 50 ms the sender has a twenty-fifth of a CPU. What it \
            packs with few streams (six, with level 9 two), by a window a round trip, predicts \
            the number of streams.",
    run: crossing,
};

fn levels(testbed: &Testbed) -> Result<Shown, String> {
    let mut shown = Shown::default();
    let mut table = Table::new("By level:", "level | ratio | CPU ns/B | c/x | Mbit/s");
    let mut seen = Vec::new();
    for level in 0..=9 {
        let run =
            testbed.copy(&loopback(&format!("--compress zlib:{level} records:192M near:null:")))?;
        let ratio = run.record.compression.as_ref().map_or(1.0, Compression::ratio);
        let c_over_x =
            run.record.compression.as_ref().and_then(|packed| packed.compress_over_decompress);
        let cost_ns = cpu_ns_per_byte(&run);
        table.row(vec![
            level.to_string(),
            format!("{ratio:.2}"),
            format!("{cost_ns:.1}"),
            c_over_x.map_or("-".into(), |times| format!("{times:.1}")),
            format!("{:.0}", run.copying_mbit_s()),
        ]);
        seen.push((ratio, cost_ns));
    }
    shown.table(table);
    let [off, one, nine] = [seen[0], seen[1], seen[9]];
    let by = |more: (f64, f64), less: (f64, f64)| (more.0 / less.0, more.1 / less.1);
    let (to_one, to_nine) = (by(one, off), by(nine, one));
    let text = |(ratio, cost): (f64, f64)| format!("ratio × {ratio:.2}, CPU × {cost:.1}");
    shown.check(
        "from 0 to 1 the ratio at least × 6.5, CPU × 5",
        text(to_one),
        to_one.0 >= 6.5 && to_one.1 >= 5.0,
    );
    shown.check(
        "from 1 to 9 the ratio at most + 20 %, CPU × 5",
        text(to_nine),
        to_nine.0 <= 1.2 && to_nine.1 >= 5.0,
    );
    Ok(shown)
}

fn cost(testbed: &Testbed) -> Result<Shown, String> {
    let mut shown = Shown::default();
    let mut table = Table::new("By turns, CPU ns/B of the source:", "turn | off | zlib 1 | ratio");
    let mut ratios = Vec::new();
    for turn in 0..7 {
        let copy = |way: &str| {
            let run =
                testbed.copy(&loopback(&format!("--compress {way} records:384M near:null:")))?;
            Ok::<f64, String>(cpu_ns_per_byte(&run))
        };
        let (off, one) = (copy("off")?, copy("zlib:1")?);
        table.row(vec![
            turn.to_string(),
            format!("{off:.2}"),
            format!("{one:.2}"),
            format!("{:.2}", one / off),
        ]);
        ratios.push(one / off);
    }
    shown.table(table);
    // For seven values: Student's t with 6 degrees of freedom.
    let half = 2.447 * deviation(&ratios) / (ratios.len() as f64).sqrt();
    let middle = mean(&ratios);
    let seen = format!("{middle:.2} ± {half:.2} (95 %)");
    shown.check("level 1 costs 5 times what level 0 does", seen.clone(), middle >= 5.0);
    shown.check("known to 10 %", seen, half <= 0.1 * middle);
    shown.note("CPU time is that of the process by the kernel's account; no soaker ran beside it.");
    Ok(shown)
}

fn links(testbed: &Testbed) -> Result<Shown, String> {
    let quota = Quota::new()?;
    let near = quota.runs(&testbed.program)?;
    let programs = Programs { near: &near, far: &testbed.program };
    quota.allow(Some(LINKS_QUOTA))?;
    let loopback = Wan::up(&Profile::from_words(&["--rate", "none"])?, Some(&testbed.program))?;
    let copy = "--compress zlib:1 --request-size 256K records:64T near:null:";
    let flat_mbit = timed::copy(&loopback, programs, copy, STEADY)?.bytes_per_s * 8.0 / 1e6;
    drop(loopback);
    let mut shown = Shown::default();
    let mut packed = vec![Vec::new(); LINK_RATES_MBIT.len()];
    let mut off = Vec::new();
    for pass in 0..LINK_PASSES {
        for (link, packed) in LINK_RATES_MBIT.into_iter().zip(&mut packed) {
            let rate = over_link(testbed, programs, link)?;
            packed.push(rate("zlib:1")?);
            if pass == 0 {
                off.push(rate("off")?);
            }
        }
    }
    let mut table = Table::new(
        &format!("Mbit/s of payload; packed in {LINK_PASSES} passes over all links, medians:"),
        "link | off | zlib 1 | its range | zlib 1 by off",
    );
    let mut seen: Vec<[f64; 3]> = Vec::new();
    for ((link, off), packed) in LINK_RATES_MBIT.into_iter().zip(off).zip(packed) {
        let Spread { median, min, max, .. } = Spread::of(packed).ok_or("nothing was packed")?;
        table.row(vec![
            link.to_string(),
            format!("{off:.1}"),
            format!("{median:.1}"),
            format!("{min:.1} to {max:.1}"),
            format!("{:.2}", median / off),
        ]);
        seen.push([f64::from(link), off, median]);
    }
    shown.table(table);
    judge_links(&mut shown, &seen, flat_mbit);
    Ok(shown)
}

/// Rates of copies over a link of this rate, in Mbit/s, by their `--compress`.
fn over_link(
    testbed: &Testbed,
    programs: Programs<'_>,
    link_mbit: u32,
) -> Result<impl Fn(&str) -> Result<f64, String>, String> {
    let words = match link_mbit {
        0..=100 => format!("--rate {link_mbit}Mbit --rtt 10ms --queue 64K"),
        _ => format!("--veth --rate {link_mbit}Mbit --queue 1M"),
    };
    let words: Vec<&str> = words.split(' ').collect();
    let wan = Wan::up(&Profile::from_words(&words)?, Some(&testbed.program))?;
    let request = if link_mbit < 10 { "32K" } else { "256K" };
    Ok(move |way: &str| {
        let copy = format!("--compress {way} --request-size {request} records:64T far:null:");
        let seen = timed::copy(&wan, programs, &copy, STEADY)?;
        Ok(seen.bytes_per_s * 8.0 / 1e6)
    })
}

/// `seen`: rate of the link, without compression, and with it, in Mbit/s.
fn judge_links(shown: &mut Shown, seen: &[[f64; 3]], flat_mbit: f64) {
    let at_10 = seen.iter().find(|row| row[0] == 10.0).map_or(0.0, |row| row[2] / row[1]);
    shown.check("at 10 Mbit/s at least four times off", format!("× {at_10:.2}"), at_10 >= 4.0);
    // Links that compressed data does not fill.
    let flat: Vec<f64> =
        seen.iter().filter(|row| row[0] > flat_mbit / 3.0).map(|row| row[2]).collect();
    let middle = median(&flat).unwrap_or(0.0);
    let off = flat.iter().map(|rate| (rate / middle - 1.0).abs()).fold(0.0, f64::max) * 100.0;
    shown.check(
        "flat within 5 % over faster links",
        format!("{middle:.0} Mbit/s, {off:.1} % off at most"),
        off <= 5.0,
    );
    let crossover = crossover(seen, 1);
    let error = crossover.map_or(f64::NAN, |seen| (flat_mbit / seen - 1.0) * 100.0);
    shown.check(
        "the crossover is predicted within 15 %",
        crossover.map_or("none was seen".into(), |seen| {
            format!("{flat_mbit:.0} for {seen:.0} Mbit/s ({error:+.0} %)")
        }),
        error.abs() <= 15.0,
    );
}

/// The point at which both rates are equal, interpolated between two rows by their quotients: the
/// value of the first or second column.
fn crossover(seen: &[[f64; 3]], column: usize) -> Option<f64> {
    let gain = |row: &[f64; 3]| row[2] / row[1] - 1.0;
    let pair = seen.windows(2).find(|pair| gain(&pair[0]) >= 0.0 && gain(&pair[1]) < 0.0)?;
    let (before, behind) = (gain(&pair[0]), gain(&pair[1]));
    let share = before / (before - behind);
    Some(pair[0][column] + share * (pair[1][column] - pair[0][column]))
}

fn crossing(testbed: &Testbed) -> Result<Shown, String> {
    let quota = Quota::new()?;
    let near = quota.runs(&testbed.program)?;
    let programs = Programs { near: &near, far: &testbed.program };
    let words: Vec<&str> = "--rate 300Mbit --rtt 50ms --queue 1bdp".split(' ').collect();
    let wan = Wan::up(&Profile::from_words(&words)?, Some(&testbed.program))?;
    quota.allow(Some(CROSSING_QUOTA))?;
    let rate = |streams: u32, level: u8| {
        let copy = format!(
            "--compress zlib:{level} --streams {streams} --window 16K --request-size 64K \
             --seal off --digest none --congestion cubic records:64T far:null:"
        );
        Ok::<f64, String>(timed::copy(&wan, programs, &copy, STEADY)?.bytes_per_s * 8.0 / 1e6)
    };
    let mut shown = Shown::default();
    let mut table = Table::new("Mbit/s of payload:", "streams | level 0 | level 1 | level 9");
    let (mut with_one, mut with_nine): (Vec<[f64; 3]>, Vec<[f64; 3]>) = Default::default();
    for streams in CROSSING_STREAMS {
        let of = |level: u8| rate(streams, level);
        let (off, one) = (of(0)?, of(1)?);
        with_one.push([f64::from(streams), off, one]);
        let mut row = vec![streams.to_string(), format!("{off:.2}"), format!("{one:.2}")];
        if streams <= CROSSING_STREAMS_OF_NINE {
            let nine = of(9)?;
            with_nine.push([f64::from(streams), off, nine]);
            row.push(format!("{nine:.2}"));
        } else {
            row.push("-".into());
        }
        table.row(row);
    }
    shown.table(table);
    let points: Vec<(f64, f64)> = with_one.iter().map(|row| (row[0], row[1])).collect();
    let fit = r_squared(&points);
    shown.check(
        "level 0 is linear in streams, r² of 0.99 or more",
        format!("{fit:.4}"),
        fit >= 0.99,
    );
    // Predicted from runs with fewer streams.
    for (level, seen, few) in [(1, with_one, 6.0), (9, with_nine, 2.0)] {
        let few = seen.iter().filter(|row| row[0] <= few).map(|row| row[2]);
        let few_mbit = few.fold(0.0, f64::max);
        let predicted = few_mbit / WINDOW_MBIT;
        let found = crossover(&seen, 0).unwrap_or(f64::NAN);
        shown.check(
            &format!("level {level}: predicted within 2 streams"),
            format!("{predicted:.1} for {found:.1}, by {few_mbit:.1} Mbit/s with few streams"),
            (predicted - found).abs() <= 2.0,
        );
    }
    Ok(shown)
}

fn bare(testbed: &Testbed) -> Result<Shown, String> {
    let wan = Wan::up(&Profile::from_words(&["--rate", "none"])?, Some(&testbed.program))?;
    let programs = Programs { near: &testbed.program, far: &testbed.program };
    let mut alone: [Vec<f64>; BARE_WAYS.len()] = Default::default();
    let mut piped = alone.clone();
    for _ in 0..BARE_TURNS {
        let codec = bare_codec(&testbed.program)?;
        for ((way, alone), piped) in BARE_WAYS.into_iter().zip(&mut alone).zip(&mut piped) {
            alone.push(codec(way));
            let copy = format!(
                "--compress {way} --digest none --seal off --cpus 0 --remote-cpus 1 records:64T \
                 near:null:"
            );
            piped.push(timed::copy(&wan, programs, &copy, STEADY)?.bytes_per_s * 8.0 / 1e6);
        }
    }
    let mut shown = Shown::default();
    let title = format!("Mbit/s of payload, medians of {BARE_TURNS} turns and ranges:");
    let mut table = Table::new(&title, "way | bare codec | pipeline | by codec");
    let mut least = f64::INFINITY;
    for ((way, alone), piped) in BARE_WAYS.into_iter().zip(alone).zip(piped) {
        let spread = |seen: Vec<f64>| Spread::of(seen).ok_or("nothing was packed");
        let (alone, piped) = (spread(alone)?, spread(piped)?);
        let share = piped.median / alone.median;
        table.row(vec![way.to_string(), alone.text(0), piped.text(0), format!("{share:.3}")]);
        least = least.min(share);
    }
    shown.table(table);
    shown.check("0.95 of the bare codec", format!("{least:.3} at least"), least >= 0.95);
    Ok(shown)
}

/// The compression rate of one processor alone, by level, in Mbit/s.
fn bare_codec(program: &Path) -> Result<impl Fn(&str) -> f64, String> {
    let mut measure = Command::new(program);
    measure.args(["measure", "codec", "--json", "--no-record", "--cpus", "0", "records:32M"]);
    let said = xtask::step::output(&mut measure)?;
    let event = said
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .find(|event| event["event"] == "codec");
    let event = event.ok_or("datapump measure codec --json has no findings")?;
    Ok(move |coding: &str| {
        let codings = event["codings"].as_array().into_iter().flatten();
        let found = codings
            .filter(|found| found["coding"] == coding)
            .map(|found| &found["compress_bytes_per_s"]);
        found.filter_map(serde_json::Value::as_f64).next().unwrap_or(f64::NAN) * 8.0 / 1e6
    })
}

fn quotas(testbed: &Testbed) -> Result<Shown, String> {
    let quota = Quota::new()?;
    let near = quota.runs(&testbed.program)?;
    let programs = Programs { near: &near, far: &testbed.program };
    let wan = Wan::up(&Profile::from_words(&["--rate", "none"])?, Some(&testbed.program))?;
    let mut shown = Shown::default();
    let mut table = Table::new("By quota:", "% of a CPU | Mbit/s | Mbit/s a per cent");
    let mut seen = Vec::new();
    for percent in [10.0, 25.0, 50.0, 75.0, 100.0] {
        quota.allow(Some(percent))?;
        let copy = "--compress zlib:1 records:64T near:null:";
        let rate = timed::copy(&wan, programs, copy, STEADY)?.bytes_per_s * 8.0 / 1e6;
        table.row(vec![
            format!("{percent:.0}"),
            format!("{rate:.0}"),
            format!("{:.2}", rate / percent),
        ]);
        seen.push((percent, rate));
    }
    shown.table(table);
    let fit = r_squared(&seen);
    shown.check("linear, r² at least 0.98", format!("{fit:.4}"), fit >= 0.98);
    quota.allow(None)?;
    let free = testbed.copy(&loopback("--compress zlib:1 records:192M near:null:"))?;
    let c_over_x =
        free.record.compression.as_ref().and_then(|packed| packed.compress_over_decompress);
    let c_over_x = c_over_x.unwrap_or(f64::NAN);
    shown.check(
        "c/x is known (3.3 to 4.4 in the study)",
        format!("{c_over_x:.1}"),
        c_over_x.is_finite(),
    );
    Ok(shown)
}

/// The coefficient of determination of a straight line through these points.
pub(super) fn r_squared(points: &[(f64, f64)]) -> f64 {
    let (xs, ys): (Vec<f64>, Vec<f64>) = points.iter().copied().unzip();
    let (x, y) = (mean(&xs), mean(&ys));
    let of = |values: &[f64], middle: f64| values.iter().map(|v| (v - middle).powi(2)).sum::<f64>();
    let both: f64 = points.iter().map(|(a, b)| (a - x) * (b - y)).sum();
    both.powi(2) / (of(&xs, x) * of(&ys, y)).max(1e-12)
}

fn loopback(copy: &str) -> Order {
    Order::new("--rate none", copy)
}

fn cpu_ns_per_byte(run: &Run) -> f64 {
    run.source_ns_per_byte()
}

pub(super) const STEADY: Stretch = Stretch::Time { ramp_s: 1.5, seconds: 5.0 };
/// Percent of a CPU.
const LINKS_QUOTA: f64 = 20.0;
const CROSSING_QUOTA: f64 = 4.0;
const CROSSING_STREAMS: [u32; 12] = [1, 2, 3, 4, 6, 10, 14, 18, 22, 26, 32, 40];
const CROSSING_STREAMS_OF_NINE: u32 = 6;
/// 16 KiB in 50 ms.
const WINDOW_MBIT: f64 = 16.0 * 1024.0 * 8.0 / 50e3;
const BARE_WAYS: [&str; 3] = ["zlib:1", "zlib:6", "zlib:9"];
const BARE_TURNS: u32 = 3;
const LINK_PASSES: u32 = 3;
const LINK_RATES_MBIT: [u32; 12] = [2, 5, 10, 20, 40, 70, 100, 150, 200, 260, 320, 400];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_and_crossings() {
        assert!((r_squared(&[(1.0, 2.0), (2.0, 4.0), (3.0, 6.0)]) - 1.0).abs() < 1e-9);
        assert!(r_squared(&[(1.0, 2.0), (2.0, 9.0), (3.0, 2.0)]) < 0.1);
        let seen = [[10.0, 10.0, 60.0], [50.0, 50.0, 75.0], [100.0, 100.0, 75.0]];
        assert!((crossover(&seen, 1).unwrap() - 83.33).abs() < 0.1);
        assert_eq!(crossover(&seen[..2], 1), None);
    }
}
