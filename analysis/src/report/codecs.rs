//! Results of compression, as tables.

use super::sheet::Sheet;
use crate::study::compression::Findings;
use base::units::Bytes;

/// The processors of one end that compress, and their clock rate.
#[derive(Clone, Copy, Debug)]
pub struct Host {
    pub processors: usize,
    /// `None` where the host does not report it.
    pub mhz: Option<f64>,
}

/// A row for each coding, and for each external tool.
pub fn sheet(findings: &Findings, host: Host) -> Sheet {
    let title = format!(
        "{}: {} in payloads of {}",
        findings.source,
        Bytes(findings.bytes),
        Bytes(findings.payload_bytes.into())
    );
    let mut sheet = Sheet::new(title, COLUMNS);
    let cycles = |rate: Option<f64>| match (rate, host.mhz) {
        (Some(rate), Some(mhz)) => format!("{:.1}", mhz * 1e6 / rate),
        _ => "-".into(),
    };
    for speed in &findings.codings {
        let pays = |processors| match speed.pays_below_bytes_per_s(processors) {
            Some(rate) => megabits(rate),
            None => "never".into(),
        };
        sheet.row(vec![
            speed.coding.clone(),
            format!("{:.2}", speed.ratio),
            mega(Some(speed.compress_bytes_per_s)),
            mega(speed.decompress_bytes_per_s),
            cycles(Some(speed.compress_bytes_per_s)),
            cycles(speed.decompress_bytes_per_s),
            speed.compress_over_decompress().map_or("-".into(), |times| format!("{times:.1}")),
            pays(1),
            pays(host.processors),
        ]);
    }
    for tool in &findings.tools {
        let mut row = vec![tool.command.clone(), format!("{:.2}", tool.ratio)];
        row.push(mega(tool.compress_bytes_per_s));
        row.resize(COLUMNS.len(), "-".into());
        sheet.row(row);
    }
    sheet
}

/// Explanation of the columns, once for all tables.
pub fn legend(host: Host) -> Vec<String> {
    let clock = match host.mhz {
        Some(mhz) => format!("cycles are at {mhz:.0} MHz, as reported by the host"),
        None => "no clock rate reported: cycles are omitted".to_string(),
    };
    vec![
        format!(
            "MB/s are of raw bytes and of one processor; {clock}; c/x is the time of compression \
             over that of decompression"
        ),
        format!(
            "pays below: on slower links, compressing with 1 or all {} processors at each end is \
             faster than sending uncompressed",
            host.processors
        ),
        "programs compress one stream, by wall-clock time, including I/O, minus start-up; - where \
         start-up is most of it"
            .into(),
    ]
}

const COLUMNS: &[&str] = &[
    "coding",
    "ratio",
    "compress MB/s",
    "decompress MB/s",
    "compress cycles/B",
    "decompress cycles/B",
    "c/x",
    "pays below Mbit/s (1)",
    "(all)",
];

fn mega(rate: Option<f64>) -> String {
    rate.map_or("-".into(), |rate| format!("{:.0}", rate / 1e6))
}

fn megabits(rate: f64) -> String {
    format!("{:.0}", rate * 8.0 / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sheet::Form;
    use crate::study::compression::{CodingSpeed, Tool};

    #[test]
    fn a_table_for_people() {
        let speed = |coding: &str, ratio, compress, decompress| CodingSpeed {
            coding: coding.into(),
            ratio,
            compress_bytes_per_s: compress,
            decompress_bytes_per_s: decompress,
        };
        let findings = Findings {
            source: "text".into(),
            bytes: 16 << 20,
            payload_bytes: 1 << 20,
            codings: vec![speed("zlib:6", 3.5, 40e6, Some(400e6)), speed("lz4", 1.0, 5000e6, None)],
            tools: vec![Tool {
                command: "gzip -6 -c".into(),
                ratio: 3.6,
                compress_bytes_per_s: Some(38e6),
            }],
        };
        let text = sheet(&findings, Host { processors: 2, mhz: Some(2000.0) }).write(Form::Text);
        insta::assert_snapshot!("codecs", text);
        let rows: Vec<Vec<&str>> =
            text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows[0].join(" "), "text: 16 MiB in payloads of 1 MiB");
        assert_eq!(rows[2], ["zlib:6", "3.50", "40", "400", "50.0", "5.0", "10.0", "320", "640"]);
        assert_eq!(rows[3], ["lz4", "1.00", "5000", "-", "0.4", "-", "-", "never", "never"]);
        assert!(rows[4].join(" ").starts_with("gzip -6 -c 3.60 38 - -"), "{text}");
    }
}
