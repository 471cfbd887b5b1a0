//! An axis in a drawing: where a value is, and the numbers beside it.

use super::scale::{tick_texts, ticks, value};
use super::xy::{Axis, Ticks};

/// Where the values of an axis are in the drawing.
pub(super) struct Span {
    pub(super) low: f64,
    pub(super) high: f64,
    pub(super) from_px: f64,
    pub(super) to_px: f64,
    pub(super) is_log: bool,
    pub(super) ticks: Vec<(f64, String)>,
}

impl Span {
    pub(super) fn of(
        axis: &Axis,
        values: impl Iterator<Item = f64>,
        px: (f64, f64),
        most: usize,
    ) -> Span {
        let usable = |value: &f64| value.is_finite() && (!axis.is_log || *value > 0.0);
        let all: Vec<f64> = values.chain(axis.holds.iter().copied()).filter(usable).collect();
        let mut low = all.iter().copied().fold(f64::INFINITY, f64::min);
        let mut high = all.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        if low > high {
            (low, high) = (0.0, 1.0);
        }
        if low == high && !axis.is_log {
            high = if low == 0.0 { 1.0 } else { low + low.abs() * 0.1 };
        }
        let ticks = match (&axis.ticks, axis.is_log) {
            (Ticks::At(all), _) => all.clone(),
            (Ticks::Round, true) => log_ticks(low, high),
            (Ticks::Round, false) => {
                let ticks = ticks(low, high, most);
                tick_texts(&ticks).into_iter().zip(ticks).map(|(text, at)| (at, text)).collect()
            }
        };
        Span { low, high, from_px: px.0, to_px: px.1, is_log: axis.is_log, ticks }
    }

    pub(super) fn px(&self, value: f64) -> f64 {
        let share = match self.is_log {
            true => (value / self.low).ln() / (self.high / self.low).ln().max(1e-9),
            false => (value - self.low) / (self.high - self.low),
        };
        self.from_px + share.clamp(-0.02, 1.02) * (self.to_px - self.from_px)
    }
}

fn log_ticks(low: f64, high: f64) -> Vec<(f64, String)> {
    let mut found = Vec::new();
    let mut power = 10f64.powf(low.log10().floor());
    while power <= high * 1.000_001 && found.len() < 40 {
        found.extend([1.0, 2.0, 5.0].map(|one| one * power));
        power *= 10.0;
    }
    found.retain(|tick| (low * 0.999..=high * 1.001).contains(tick));
    if found.len() > 9 {
        found.retain(|tick| (tick.log10() - tick.log10().round()).abs() < 1e-6);
    }
    found.into_iter().map(|tick| (tick, log_text(tick))).collect()
}

/// One digit says all of a round number, and a longer text than four has no space.
fn log_text(tick: f64) -> String {
    match (1e-3..1e4).contains(&tick) {
        true => value(tick),
        false => format!("{tick:.0e}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logarithmic_ticks_are_short() {
        let texts = |low, high| -> Vec<String> {
            log_ticks(low, high).into_iter().map(|(_, text)| text).collect()
        };
        assert_eq!(texts(4e-4, 3e-3), ["5e-4", "0.001", "0.002"]);
        assert_eq!(texts(4e3, 3e4), ["5000", "1e4", "2e4"]);
    }
}
