//! Simulated weeks, with the noise of runs that were stored.

use super::change::mann_whitney;
use super::*;
use crate::statistics::median;

/// The deviations of single copies from the median of their setting, in two campaigns of eleven
/// settings and more that were run over emulated paths: five copies of each.
fn noise() -> Vec<f64> {
    let tables = [
        include_str!("../../../runs/data/2026-11-22-transfer-size-100Mbit.csv"),
        include_str!("../../../runs/data/2026-11-22-transfer-size-50Mbit.csv"),
    ];
    let mut found = Vec::new();
    for table in tables {
        let mut reader = csv::Reader::from_reader(table.as_bytes());
        let names = reader.headers().unwrap().clone();
        let at = |name: &str| names.iter().position(|known| known == name).unwrap();
        let (choice, bytes, size, time) =
            (at("choice"), at("bytes"), at("size_bytes"), at("moving_s"));
        let mut settings: BTreeMap<(String, String), Vec<f64>> = BTreeMap::new();
        for row in reader.records().map(Result::unwrap) {
            let number = |at: usize| row[at].parse::<f64>().unwrap();
            let setting = (row[choice].to_string(), row[size].to_string());
            settings.entry(setting).or_default().push(number(bytes) / number(time));
        }
        for rates in settings.values().filter(|rates| rates.len() >= 5) {
            let middle = median(rates).unwrap();
            found.extend(rates.iter().map(|rate| rate / middle));
        }
    }
    assert!(found.len() >= 100 && found.iter().any(|one| *one < 0.8), "{found:?}");
    found
}

/// The same numbers for the same seed (xorshift).
struct Dice(u64);

impl Dice {
    fn one_of(&mut self, values: &[f64]) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        values[(self.0 % values.len() as u64) as usize]
    }
}

/// One sample for each six hours of 14 days: the median of so many copies, at these levels.
fn fortnight(
    dice: &mut Dice,
    noise: &[f64],
    passes: usize,
    level: impl Fn(usize) -> f64,
) -> Vec<f64> {
    let sample = |at: usize, dice: &mut Dice| {
        let copies: Vec<f64> = (0..passes).map(|_| dice.one_of(noise)).collect();
        level(at) * median(&copies).unwrap()
    };
    (0..56).map(|at| sample(at, dice)).collect()
}

/// A step to 0.7 at the beginning of the ninth day is told with at most four samples, once, in each
/// of a hundred fortnights; a step to 1/0.7 with at most eight.
#[test]
fn a_step_is_told_within_four_samples() {
    let noise = noise();
    for (seed, by) in (1..=100).flat_map(|seed| [(seed, 0.7), (seed, 1.0 / 0.7)]) {
        let level = |at: usize| 11.9e6 * if at < STEP { 1.0 } else { by };
        let rates = fortnight(&mut Dice(seed * 7919), &noise, 3, level);
        let found = changes(&rates);
        let [change] = found[..] else { panic!("seed {seed}, {by}: {found:?}\n{rates:?}") };
        // Bad luck is downwards, so that it can hide a rise a little longer.
        let within = if by < 1.0 { 4 } else { 8 };
        assert!((STEP..STEP + within).contains(&change.told_at), "seed {seed}: {change:?}");
        // Bad luck just before the step may count as the first of it.
        assert!(change.at.abs_diff(STEP) <= 4 && change.p <= 0.005, "seed {seed}: {change:?}");
        assert_eq!(change.ratio < 1.0, by < 1.0, "seed {seed}: {change:?}");
    }
}

/// A hundred routes whose level stays raise no alarm in a fortnight.
#[test]
fn flat_routes_raise_no_alarm() {
    let noise = noise();
    for seed in 1..=100 {
        let rates = fortnight(&mut Dice(seed * 104_729), &noise, 3, |_| 11.9e6);
        assert_eq!(changes(&rates), [], "seed {seed}: {rates:?}");
    }
}

/// The step that is looked for is found because of the step: with half of it nothing is told where
/// the noise is as large, and a single bad day is none.
#[test]
fn what_is_no_change() {
    let steady = |levels: &[(usize, f64)]| -> Vec<f64> {
        let each = |(count, level): &(usize, f64)| vec![*level; *count];
        // Never quite the same.
        let level = levels.iter().flat_map(each).enumerate();
        level.map(|(at, level)| level * (1.0 + 0.001 * (at % 7) as f64)).collect()
    };
    let cases: [(&str, Vec<f64>, usize); 7] = [
        ("nothing", Vec::new(), 0),
        ("a few samples", steady(&[(12, 1.0), (4, 0.5)]), 0),
        ("enough samples", steady(&[(13, 1.0), (4, 0.5)]), 1),
        ("a change that is small", steady(&[(30, 1.0), (20, 0.9)]), 0),
        ("two bad samples", steady(&[(30, 1.0), (2, 0.5), (20, 1.0)]), 0),
        ("down and up again", steady(&[(30, 1.0), (20, 0.5), (20, 1.0)]), 2),
        ("a slow fall", (0..56).map(|at| 1.0 - 0.002 * f64::from(at)).collect(), 0),
    ];
    for (name, rates, expect) in cases {
        let found = changes(&rates);
        assert_eq!(found.len(), expect, "{name}: {found:?}");
    }
    let wide: Vec<f64> = (0..50).map(|at| if at % 2 == 0 { 1.0 } else { 1.4 }).collect();
    let after: Vec<f64> = wide.iter().copied().chain([0.9; 4]).collect();
    assert_eq!(changes(&after), [], "it varies by more than that");
}

/// Against the table of Mann and Whitney: with 3 and 4 values, 35 orders.
#[test]
fn probabilities_are_exact() {
    let cases = [
        (&[1.0, 2.0, 3.0][..], &[4.0, 5.0, 6.0, 7.0][..], 2.0 / 35.0),
        (&[1.0, 2.0, 4.0], &[3.0, 5.0, 6.0, 7.0], 4.0 / 35.0),
        (&[5.0, 6.0, 7.0], &[1.0, 2.0, 3.0, 4.0], 2.0 / 35.0),
        (&[1.0, 1.0, 1.0], &[1.0, 1.0, 1.0, 1.0], 1.0),
    ];
    for (a, b, expect) in cases {
        let found = mann_whitney(a, b);
        assert!((found - expect).abs() < 1e-12, "{a:?} {b:?}: {found} {expect}");
    }
}

/// Campaigns become one sample a host, by the program's own choice.
#[test]
fn campaigns_become_samples() {
    let campaign = crate::campaign::study::tests::campaign;
    let records: Vec<Vec<Record>> =
        (0..20).map(|at| campaign(if at < 16 { [40; 5] } else { [20; 5] })).collect();
    let campaigns: Vec<Campaign<'_>> = records
        .iter()
        .enumerate()
        .map(|(at, records)| Campaign {
            name: "sweep",
            started_unix_s: at as f64 * 21_600.0,
            records,
        })
        .collect();
    let found = routes(&campaigns);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].samples.len(), 20);
    let told = found[0].told_now().map(|change| (change.at, change.told_at));
    assert_eq!(told, Some((16, 19)), "{found:?}");
}

/// Samples before the ninth day.
const STEP: usize = 32;
