//! Measurements by other programs, as comma-separated values: request sizes with the cost per byte,
//! or with bytes, calls and CPU time.

use csv::{ReaderBuilder, StringRecord, Trim};

use super::fit::Observation;
use base::units::parse_size;

/// Reads measurements. An error names the line and what is expected there.
pub fn read(text: &[u8]) -> Result<Vec<Observation>, String> {
    let mut reader = ReaderBuilder::new()
        .delimiter(delimiter(text))
        .trim(Trim::All)
        .comment(Some(b'#'))
        .from_reader(text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text));
    let header = reader.headers().map_err(|why| format!("line 1: {}", plain(&why)))?.clone();
    let columns = Columns::of(&header)?;
    let mut found = Vec::new();
    for row in reader.records() {
        let row = row.map_err(|why| plain(&why))?;
        let line = row.position().map_or(0, csv::Position::line);
        if row.iter().all(str::is_empty) {
            continue;
        }
        let observation = columns.observation(&row).map_err(|why| format!("line {line}: {why}"))?;
        found.push(observation);
    }
    match found.is_empty() {
        true => Err(format!("there are no rows below the header; {WANTED}")),
        false => Ok(found),
    }
}

/// The column of each value in a row.
struct Columns {
    request_size: usize,
    depth: Option<usize>,
    cost: Cost,
}

enum Cost {
    PerByte { ns: usize },
    Run { bytes: usize, calls: Option<usize>, starts: Option<usize>, cpu_s: usize },
}

impl Columns {
    fn of(header: &StringRecord) -> Result<Columns, String> {
        let named = |name: &str| name.to_lowercase().replace(['-', ' '], "_");
        let place = |names: &[&str]| -> Result<Option<usize>, String> {
            let mut places = (0..header.len()).filter(|i| names.contains(&&*named(&header[*i])));
            let first = places.next();
            match places.next() {
                Some(_) => Err(format!("line 1: there are two columns of {}", names[0])),
                None => Ok(first),
            }
        };
        let request_size = place(&["request_size", "request_bytes", "rs"])?;
        let request_size = request_size
            .ok_or_else(|| format!("line 1: there is no column 'request_size'; {WANTED}"))?;
        let depth = place(&["depth"])?;
        let ns = place(&["ns_per_byte", "cost_ns_per_byte"])?;
        let (bytes, calls) = (place(&["bytes"])?, place(&["calls", "n_calls"])?);
        let starts = place(&["starts", "n_starts"])?;
        let cpu_s = place(&["cpu_s", "cpu_seconds"])?;
        let cost = match (ns, bytes, cpu_s) {
            (Some(ns), None, None) => Cost::PerByte { ns },
            (None, Some(bytes), Some(cpu_s)) => Cost::Run { bytes, calls, starts, cpu_s },
            (Some(_), ..) => {
                return Err("line 1: there is 'ns_per_byte' and also 'bytes' or 'cpu_s'; leave \
                            one of the two out"
                    .into());
            }
            _ => return Err(format!("line 1: what a byte costs is missing; {WANTED}")),
        };
        Ok(Columns { request_size, depth, cost })
    }

    fn observation(&self, row: &StringRecord) -> Result<Observation, String> {
        let request_bytes = request_size(&row[self.request_size])?;
        let depth = self.depth.map_or(Ok(0), |depth| depth_of(&row[depth]))?;
        match self.cost {
            Cost::PerByte { ns } => {
                let ns = above_0("ns_per_byte", &row[ns])?;
                Ok(Observation { depth, ..Observation::per_byte(request_bytes, ns) })
            }
            Cost::Run { bytes, calls, starts, cpu_s } => {
                let bytes = size_above_0("bytes", &row[bytes])?;
                let calls = match calls {
                    None => bytes / f64::from(request_bytes),
                    Some(calls) => above_0("calls", &row[calls])?,
                };
                let starts = match starts {
                    None => calls,
                    Some(starts) => above_0("starts", &row[starts])?,
                };
                let cpu_s = above_0("cpu_s", &row[cpu_s])?;
                Ok(Observation { request_bytes, depth, bytes, calls, starts, cpu_s })
            }
        }
    }
}

/// A size as the program reads it elsewhere, or as in old reports: there `32KB` is 32 KiB.
fn request_size(text: &str) -> Result<u32, String> {
    let plain = text.replace("KB", "K").replace("MB", "M").replace(' ', "");
    let size = parse_size(&plain).ok().and_then(|size| u32::try_from(size).ok());
    size.filter(|size| *size > 0).ok_or_else(|| {
        format!("the request size is {}; write 32768, 32K or 1M, below 4G", shown(text))
    })
}

fn depth_of(text: &str) -> Result<u16, String> {
    let depth = text.parse::<u16>().ok().filter(|depth| *depth > 0);
    depth.ok_or_else(|| format!("depth is {}; write how many requests are in flight", shown(text)))
}

fn size_above_0(name: &str, text: &str) -> Result<f64, String> {
    match parse_size(text) {
        Ok(size) if size > 0 => Ok(size as f64),
        _ => above_0(name, text),
    }
}

fn above_0(name: &str, text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok();
    number.filter(|number| number.is_finite() && *number > 0.0).ok_or_else(|| {
        format!("{name} is {}; write a number above 0, with a decimal point", shown(text))
    })
}

/// The text of a cell for a message: short, without terminal control characters.
fn shown(text: &str) -> String {
    match text {
        "" => "missing".into(),
        text => {
            let short: String = text.chars().take(SHOWN_MAX).collect();
            let rest = if text.chars().count() > SHOWN_MAX { "…" } else { "" };
            format!("'{}{rest}'", short.escape_debug())
        }
    }
}

fn plain(why: &csv::Error) -> String {
    let line = why.position().map_or(String::new(), |at| format!("line {}: ", at.line()));
    match why.kind() {
        csv::ErrorKind::UnequalLengths { expected_len, len, .. } => {
            format!("{line}there are {len} columns where the header has {expected_len}")
        }
        csv::ErrorKind::Utf8 { .. } => format!("{line}this is not UTF-8 text"),
        _ => format!("{line}this cannot be read as comma-separated values"),
    }
}

/// What separates the columns of the first line: comma, semicolon or tab.
fn delimiter(text: &[u8]) -> u8 {
    let data = text.split(|byte| *byte == b'\n').find(|line| !line.starts_with(b"#"));
    let count = |one: u8| data.unwrap_or(b"").iter().filter(|byte| **byte == one).count();
    // With equal counts the last one wins.
    [b'\t', b';', b','].into_iter().max_by_key(|one| count(*one)).unwrap_or(b',')
}

const WANTED: &str = "the first line names the columns: request_size and ns_per_byte, or \
                      request_size, bytes, cpu_s and, where they were counted, calls and starts; \
                      depth too, where runs differ in it";
const SHOWN_MAX: usize = 40;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn good_files() {
        let cases: [(&str, Vec<Observation>); 6] = [
            ("request_size,ns_per_byte\n32K,3.2\n", vec![Observation::per_byte(32768, 3.2)]),
            ("\u{feff}RS;NS per byte\n32768; 3.2\n\n", vec![Observation::per_byte(32768, 3.2)]),
            (
                "# mine\nrequest-size\tns_per_byte\n32KB\t3.2",
                vec![Observation::per_byte(32768, 3.2)],
            ),
            (
                "host,request_size,bytes,calls,cpu_s\na,64K,1M,20,0.5\n",
                vec![Observation {
                    request_bytes: 65536,
                    depth: 0,
                    bytes: 1048576.0,
                    calls: 20.0,
                    starts: 20.0,
                    cpu_s: 0.5,
                }],
            ),
            (
                "request_size,bytes,cpu_s\n64K,1e6,0.5\n",
                vec![Observation {
                    request_bytes: 65536,
                    depth: 0,
                    bytes: 1e6,
                    calls: 1e6 / 65536.0,
                    starts: 1e6 / 65536.0,
                    cpu_s: 0.5,
                }],
            ),
            (
                "request_size,ns_per_byte\n\"32K\",3.2\n32K,3.3\n",
                vec![Observation::per_byte(32768, 3.2), Observation::per_byte(32768, 3.3)],
            ),
        ];
        for (text, expect) in cases {
            assert_eq!(read(text.as_bytes()), Ok(expect), "{text}");
        }
    }

    #[test]
    fn bad_files_are_told_where_and_what() {
        let cases: [(&[u8], &str); 14] = [
            (b"", "line 1: there is no column 'request_size'"),
            (b"request_size,ns_per_byte\n", "there are no rows below the header"),
            (b"size,ns\n1,2\n", "line 1: there is no column 'request_size'"),
            (b"request_size\n32K\n", "line 1: what a byte costs is missing"),
            (b"request_size,rs,ns_per_byte\n1,2,3\n", "line 1: there are two columns of request"),
            (b"rs,ns_per_byte,cpu_s\n1,2,3\n", "line 1: there is 'ns_per_byte' and also"),
            (b"rs,ns_per_byte\n32Q,1\n", "line 2: the request size is '32Q'; write 32768"),
            (b"rs,ns_per_byte\n32K,1\n64K,\n", "line 3: ns_per_byte is missing; write a number"),
            (b"rs,ns_per_byte\n32K,nan\n", "line 2: ns_per_byte is 'nan'; write a number above 0"),
            (b"rs,ns_per_byte\n32K,-1\n", "line 2: ns_per_byte is '-1'; write a number above 0"),
            (b"rs,depth,ns_per_byte\n1K,0,1\n", "line 2: depth is '0'; write how many"),
            (b"rs,ns_per_byte\n0,1\n", "line 2: the request size is '0'"),
            (b"rs,ns_per_byte\n32K,1,7\n", "line 2: there are 3 columns where the header has 2"),
            (b"rs,ns_per_byte\n32K,\xff\n", "line 2: this is not UTF-8 text"),
        ];
        for (text, expect) in cases {
            let why = read(text).unwrap_err();
            assert!(why.starts_with(expect), "{}: {why}", String::from_utf8_lossy(text));
        }
        let control = read(b"rs,ns_per_byte\n\x1b[2J,1\n").unwrap_err();
        assert!(!control.contains('\x1b'), "{control}");
    }

    proptest! {
        #[test]
        fn nothing_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = read(&bytes);
            let _ = read(&[b"request_size,bytes,calls,cpu_s\n".as_slice(), &bytes].concat());
        }
    }
}
