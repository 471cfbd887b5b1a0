//! CPU time and compression.

use crate::page::Block;
use crate::plot::{Bar, Bars, Chart, Figure, Part};
use crate::record::sample::{Record, Side};
use base::units::Bytes;

pub(super) fn blocks(record: &Record) -> Vec<Block> {
    vec![Block::Figures([cpu(record), codings(record)].into_iter().flatten().collect())]
}

fn cpu(record: &Record) -> Option<Figure> {
    let bytes = record.moved.bytes as f64;
    if bytes <= 0.0 {
        return None;
    }
    let bar = |name: &str, side: &Side| {
        let each = |seconds: f64| if seconds.is_finite() { seconds * 1e9 / bytes } else { 0.0 };
        let kernel: f64 = side.kernel_threads_s.values().filter(|s| s.is_finite()).sum();
        let parts = [
            ("user", 0, side.cpu_user_s),
            ("system", 1, side.cpu_system_s),
            ("kernel threads", 2, kernel),
        ];
        let all = each(side.cpu_user_s) + each(side.cpu_system_s) + each(kernel);
        let parts = parts.into_iter().filter(|(_, _, seconds)| *seconds > 0.0);
        let parts = parts.map(|(name, colour, seconds)| Part {
            name: name.into(),
            colour,
            value: each(seconds),
        });
        let seconds = all * bytes / 1e9;
        Bar {
            name: name.into(),
            parts: parts.collect(),
            text: format!("{all:.3} ns/B, {seconds:.2} s"),
        }
    };
    let bars = match &record.sink {
        None => vec![bar("both ends", &record.source)],
        Some(sink) => vec![bar("sending host", &record.source), bar("receiving host", sink)],
    };
    Some(Figure {
        name: "cpu".into(),
        title: "CPU time for each byte".into(),
        about: "CPU time of the program on each host over the bytes that were moved.".into(),
        chart: Chart::Bars(Bars { label: "CPU time, ns/B".into(), bars, most: None }),
    })
}

fn codings(record: &Record) -> Option<Figure> {
    let compression = record.compression.as_ref()?;
    let all: u64 = compression.bytes_by_coding.values().sum();
    let share = |bytes: u64| bytes as f64 / all.max(1) as f64 * 100.0;
    let bar = |(name, bytes): (&String, &u64)| {
        let text = format!("{}, {:.0} %", Bytes(*bytes), share(*bytes));
        Bar::one(name, 0, share(*bytes), text)
    };
    let ratio = compression.raw_bytes as f64 / compression.compressed_bytes.max(1) as f64;
    let without = compression.without.map_or(String::new(), |without| {
        format!(
            " Without compression it would have made about {} (held back by the {}).",
            base::units::Rate { bytes_per_second: without.bytes_per_s },
            without.held_by.name()
        )
    });
    Some(Figure {
        name: "codings".into(),
        title: "How payloads were coded".into(),
        about: format!("Payloads shrank to 1/{ratio:.2} of their size.{without}"),
        chart: Chart::Bars(Bars {
            label: "share of the bytes, %".into(),
            bars: compression.bytes_by_coding.iter().map(bar).collect(),
            most: Some(100.0),
        }),
    })
}
