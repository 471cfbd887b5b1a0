//! The prediction of a copy as text, and the comparison with what it took.

use super::sheet::{Sheet, percent};
use crate::predict::Prediction;
use crate::predict::score::{self, Pair, Score};
use base::job::Outcome;
use base::units::{Nanos, Rate};

/// The line of a dry run: how long the copy will take.
pub fn expected(prediction: &Prediction) -> String {
    lines(&[("expected", seconds(prediction.elapsed_s))])
}

/// Time, rate, CPU of both sides, and the bottleneck.
pub fn figures(prediction: &Prediction, outcome: &Outcome) -> String {
    let [slow, rate, fast] = prediction.rate_bytes_per_s.map(per_second);
    let mut facts = vec![("expected", seconds(prediction.elapsed_s))];
    if outcome.bytes > 0 {
        facts.push(("expected rate", format!("{rate} ({slow} to {fast})")));
    }
    let source = seconds(prediction.cpu_source_s);
    match outcome.far {
        Some(_) => {
            facts.push(("cpu of the source", source));
            facts.push(("cpu of the sink", seconds(prediction.cpu_sink_s)));
        }
        None => facts.push(("expected cpu", source)),
    }
    facts.push(("held back by", prediction.binding.name().to_string()));
    facts.extend(prediction.notes.iter().map(|note| ("note", note.clone())));
    lines(&facts)
}

/// A dry run without any measurements.
pub fn unknown() -> String {
    lines(&[("expected", "unknown: 'datapump measure whole' makes a model of this host".into())])
}

/// One line below the summary of a finished copy.
pub fn compared(prediction: &Prediction, outcome: &Outcome) -> String {
    let took_s = outcome.elapsed.seconds();
    let sides = std::iter::once(&outcome.near).chain(&outcome.far);
    let cpu_s: f64 = sides.map(|side| (side.cpu_user + side.cpu_system).seconds()).sum();
    let expected_cpu_s = prediction.cpu_source_s[1] + prediction.cpu_sink_s[1];
    let text = format!(
        "{} and {} of CPU; actual: time {}, CPU {}",
        seconds(prediction.elapsed_s),
        time(expected_cpu_s),
        than(took_s, prediction.elapsed_s[1]),
        than(cpu_s, expected_cpu_s),
    );
    lines(&[("expected", text)])
}

/// How good the predictions of times were, of short and of long copies apart.
pub fn scores(times: &[Pair]) -> Sheet {
    let mut sheet = Sheet::new("How good predictions were", &SCORE_COLUMNS);
    for (name, score) in score::by_length(times) {
        sheet.row(std::iter::once(name.to_string()).chain(score_cells(&score)).collect());
    }
    sheet.note(
        "bias: the median of observed over predicted, below 1 where copies were faster; width: \
         the highest over the lowest of the interval, median; interval score (Gneiting and \
         Raftery 2007): of logarithms at 90 %, mean, the lower the better",
    );
    sheet
}

/// Their number, bias, median error, width, share within and interval score.
pub fn score_cells(score: &Score) -> [String; 6] {
    [
        score.count.to_string(),
        format!("{:.2}", score.bias_ln.exp()),
        percent(score.error),
        format!("{:.2}", score.width),
        percent(score.covered),
        format!("{:.2}", score.interval_score),
    ]
}

const SCORE_COLUMNS: [&str; 7] =
    ["copies", "n", "bias", "median error", "width", "within", "interval score"];

fn lines(facts: &[(&str, String)]) -> String {
    facts.iter().map(|(name, value)| format!("  {name:<NAME_WIDTH$}{value}\n")).collect()
}

/// `3.12 s (2.80 s to 3.50 s)`.
fn seconds([low, middle, high]: [f64; 3]) -> String {
    format!("{} ({} to {})", time(middle), time(low), time(high))
}

fn time(seconds: f64) -> Nanos {
    // The cast saturates: no copy takes five hundred years.
    Nanos((seconds * 1e9) as u64)
}

fn per_second(bytes: f64) -> Rate {
    Rate { bytes_per_second: bytes }
}

/// `4 % more`, `as expected`.
fn than(observed: f64, expected: f64) -> String {
    if expected <= 0.0 || !observed.is_finite() {
        return "more".to_string();
    }
    let percent = ((observed / expected - 1.0) * 100.0).round();
    match percent {
        0.0 => "as expected".to_string(),
        more if more > 0.0 => format!("{more:.0} % more"),
        less => format!("{:.0} % less", -less),
    }
}

/// As wide as in a summary.
const NAME_WIDTH: usize = 18;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::predict::Binding;
    use crate::report::text::sample;

    fn prediction() -> Prediction {
        Prediction {
            elapsed_s: [3.2, 3.5, 3.8],
            cpu_source_s: [2.0, 2.1, 2.2],
            cpu_sink_s: [0.0, 0.5, 1.0],
            rate_bytes_per_s: [1e9, 1.2e9, 1.4e9],
            binding: Binding::Cpu,
            notes: vec!["xfs was not measured; using ext4 instead".into()],
        }
    }

    #[test]
    fn a_dry_run_names_both_sides() {
        let text = figures(&prediction(), &sample::push());
        insta::assert_snapshot!("expected", text);
        for line in [
            "  expected          3.50 s (3.20 s to 3.80 s)\n",
            "  cpu of the source 2.10 s (2.00 s to 2.20 s)\n",
            "  cpu of the sink   500.0 ms (0 ns to 1.00 s)\n",
            "  held back by      CPU\n",
            "  note              xfs was not measured; using ext4 instead\n",
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
        let alone = Outcome { far: None, ..sample::push() };
        assert!(!figures(&prediction(), &alone).contains("of the sink"));
        assert_eq!(expected(&prediction()), "  expected          3.50 s (3.20 s to 3.80 s)\n");
    }

    #[test]
    fn differences_are_said_in_words() {
        let cases = [
            (1.04, 1.0, "4 % more"),
            (0.5, 1.0, "50 % less"),
            (1.001, 1.0, "as expected"),
            (1.0, 0.0, "more"),
            (f64::NAN, 1.0, "more"),
        ];
        for (observed, expected, words) in cases {
            assert_eq!(than(observed, expected), words);
        }
        let line = compared(&prediction(), &sample::push());
        insta::assert_snapshot!("compared", line);
        assert!(line.starts_with("  expected          3.50 s (3.20 s to 3.80 s) and 2.60 s of"));
        assert_eq!(line.lines().count(), 1);
    }
}
