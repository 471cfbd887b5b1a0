//! Axes: round ticks, numbers as text, and units that fit.

/// Round numbers from `low` to `high`, both included where they are round: at most `most + 1`.
pub fn ticks(low: f64, high: f64, most: usize) -> Vec<f64> {
    let span = high - low;
    if !(span > 0.0 && span.is_finite()) {
        return vec![low];
    }
    let step = round_up(span / most.max(1) as f64);
    let first = (low / step - 1e-9).ceil() as i64;
    let last = (high / step + 1e-9).floor() as i64;
    (first..=last).map(|number| number as f64 * step).collect()
}

/// The next of 1, 2 and 5 times a power of ten.
pub fn round_up(value: f64) -> f64 {
    if !(value > 0.0 && value.is_finite()) {
        return 1.0;
    }
    let power = 10f64.powf(value.log10().floor());
    let times = [1.0, 2.0, 5.0, 10.0];
    times.into_iter().map(|one| one * power).find(|one| *one >= value * 0.999_999).unwrap_or(power)
}

/// The numbers of ticks as text, with the digits that tell them apart.
pub fn tick_texts(ticks: &[f64]) -> Vec<String> {
    let step = ticks.windows(2).map(|pair| pair[1] - pair[0]).fold(f64::INFINITY, f64::min);
    let digits = match step.is_finite() && step > 0.0 {
        true => (-(step.log10() + 1e-9).floor()).clamp(0.0, 6.0) as usize,
        false => 2,
    };
    ticks.iter().map(|tick| format!("{:.digits$}", tick + 0.0)).collect()
}

/// A value with three significant digits, as a table shows it.
pub fn value(value: f64) -> String {
    match value.abs() {
        _ if !value.is_finite() => "-".into(),
        size if size < 1e-12 => "0".into(),
        size if !(1e-3..1e7).contains(&size) => format!("{value:.2e}"),
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

/// A unit, and what a number in base units is divided by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Unit {
    pub name: &'static str,
    pub of: f64,
}

impl Unit {
    /// The unit for rates up to this one. Rates are in bytes a second, and are shown in bits.
    pub fn of_rates(most_bytes_per_s: f64) -> Unit {
        let all =
            [("bit/s", 1.0), ("kbit/s", 1e3), ("Mbit/s", 1e6), ("Gbit/s", 1e9), ("Tbit/s", 1e12)];
        let Unit { name, of } = pick(&all, most_bytes_per_s * 8.0);
        Unit { name, of: of / 8.0 }
    }

    /// The unit for sizes up to this one.
    pub fn of_bytes(most: f64) -> Unit {
        let (kib, mib) = (1024.0, 1024.0 * 1024.0);
        pick(&[("B", 1.0), ("KiB", kib), ("MiB", mib), ("GiB", mib * kib)], most)
    }

    /// The unit for times up to this one.
    pub fn of_seconds(most: f64) -> Unit {
        pick(&[("µs", 1e-6), ("ms", 1e-3), ("s", 1.0)], most)
    }
}

impl Unit {
    /// A value in base units, as text with this unit.
    pub fn name_with(&self, amount: f64) -> String {
        format!("{} {}", value(amount / self.of), self.name)
    }
}

/// The largest unit of which there are two at least.
fn pick(units: &[(&'static str, f64)], most: f64) -> Unit {
    let fits = units.iter().rfind(|(_, of)| most >= 2.0 * of);
    let (name, of) = *fits.unwrap_or(&units[0]);
    Unit { name, of }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_told_apart() {
        let cases: [(f64, f64, usize, &[&str]); 6] = [
            (0.0, 10.0, 5, &["0", "2", "4", "6", "8", "10"]),
            (0.0, 97.3, 5, &["0", "20", "40", "60", "80"]),
            (0.0, 0.47, 5, &["0.0", "0.1", "0.2", "0.3", "0.4"]),
            (-3.0, 3.0, 4, &["-2", "0", "2"]),
            (99.95, 100.05, 2, &["99.95", "100.00", "100.05"]),
            (5.0, 5.0, 5, &["5.00"]),
        ];
        for (low, high, most, expect) in cases {
            assert_eq!(tick_texts(&ticks(low, high, most)), expect, "{low} to {high}");
        }
        assert_eq!(ticks(0.0, f64::NAN, 5).len(), 1);
    }

    #[test]
    fn units_fit() {
        assert_eq!(Unit::of_rates(12.5e6), Unit { name: "Mbit/s", of: 125_000.0 });
        assert_eq!(Unit::of_rates(2.6e12).name, "Tbit/s");
        assert_eq!(Unit::of_bytes(3.0 * 1024.0).name, "KiB");
        assert_eq!((Unit::of_seconds(0.1).name, Unit::of_seconds(3.0).name), ("ms", "s"));
        assert_eq!(Unit::of_seconds(0.0).name, "µs");
        let texts = [1234.6, 12.34, 1.234, 0.1234, 1e-9, 0.0, f64::NAN].map(value);
        assert_eq!(texts, ["1235", "12.3", "1.23", "0.123", "1.00e-9", "0", "-"]);
    }
}
