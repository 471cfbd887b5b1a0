//! Samples of streams as CSV.

use std::io::{self, Write};

use super::sample::Record;
use base::job::StreamPath;
use base::packed;

/// Reads the paths of a run from the store.
pub(crate) type PathsOf<'a> = &'a dyn Fn(&Record) -> io::Result<Vec<StreamPath>>;

/// A header line, and a line for each sample of each stream of each run.
pub fn csv(records: &[Record], paths_of: PathsOf<'_>, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "run,stream,side,role,{}", packed::NAMES.join(","))?;
    for record in records {
        for path in paths_of(record)? {
            let StreamPath { stream, side, role, samples } = &path;
            let key = format!("{},{stream},{},{}", record.id, side.name(), role.name());
            for sample in samples {
                out.write_all(key.as_bytes())?;
                for number in packed::exported(sample) {
                    match number {
                        Some(number) => write!(out, ",{number}")?,
                        None => out.write_all(b",")?,
                    }
                }
                out.write_all(b"\n")?;
            }
        }
    }
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::job::{PathRole, PathSide};
    use base::path::PathSample;
    use base::units::Tick;

    fn record() -> Record {
        let sample = |at| PathSample {
            at: Tick(at),
            pace_max_bytes_per_s: u64::MAX,
            app_limited: at > 1,
            ..PathSample::default()
        };
        let path = |stream, side, role| StreamPath {
            stream,
            side,
            role,
            samples: (1..4).map(sample).collect(),
        };
        let paths = vec![
            path(0, PathSide::Near, PathRole::Source),
            path(70, PathSide::Far, PathRole::Sink),
        ];
        Record { id: 8, paths, ..Record::default() }
    }

    #[test]
    fn csv_has_a_line_for_each_sample() {
        let mut bytes = Vec::new();
        let paths_of = |record: &Record| Ok(record.paths.clone());
        csv(&[record()], &paths_of, &mut bytes).unwrap();
        let text = String::from_utf8(bytes).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 7, "{text}");
        assert!(lines[0].starts_with("run,stream,side,role,at_ns,rtt_ns,"), "{text}");
        assert!(lines[4].starts_with("8,70,far,sink,1,0,"), "{text}");
        let columns = |line: &str| line.split(',').count();
        assert!(lines.iter().all(|line| columns(line) == 4 + packed::COUNT), "{text}");
    }
}
