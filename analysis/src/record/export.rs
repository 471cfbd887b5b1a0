//! Records for other programs: CSV and Parquet with one row per run, JSON with everything.

use std::io::{self, Write};
use std::sync::Arc;

use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use serde::Serialize as _;
use serde_json::ser::Formatter;

use super::columns::{self, COLUMNS, Cell, Column, Kind};
use super::paths::PathsOf;
use super::sample::{Record, Side};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Csv,
    Json,
    Parquet,
}

impl Format {
    pub const ALL: [(&str, Format); 3] =
        [("csv", Format::Csv), ("json", Format::Json), ("parquet", Format::Parquet)];

    /// Only JSON includes the paths, which do not fit into a row.
    pub fn write(
        self,
        records: &[Record],
        paths_of: PathsOf<'_>,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        match self {
            Format::Csv => csv(records, out),
            Format::Json => json(records, paths_of, out),
            Format::Parquet => parquet(records, out),
        }
    }
}

/// What the rows of an export are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum What {
    #[default]
    Runs,
    /// The samples of the streams of runs.
    Paths,
}

impl What {
    pub const ALL: [What; 2] = [What::Runs, What::Paths];
    pub const NAMES: &[&str] = &["runs", "paths"];
}

/// A run as one row: names with units, lists as JSON text. All runs have the same columns.
pub fn flat(record: &Record) -> Vec<(String, Cell)> {
    let value = columns::value(record);
    let mut row = vec![("id".to_string(), Cell::Integer(Some(record.id)))];
    row.extend(COLUMNS.iter().map(|column| (column.name(), column.cell(&value))));
    row.push(("cpu_ns_per_byte".to_string(), Cell::Real(cpu_ns_per_byte(record))));
    for (name, side) in [("source", Some(&record.source)), ("sink", record.sink.as_ref())] {
        row.push((format!("{name}_cpu_s"), Cell::Real(side.map(Side::cpu_s))));
    }
    let series = Column { path: "series", kind: Kind::Json };
    row.push((series.name(), series.cell(&value)));
    row
}

/// CPU time of both sides per byte; `None` where nothing was moved.
pub fn cpu_ns_per_byte(record: &Record) -> Option<f64> {
    let spent_s = record.source.cpu_s() + record.sink.as_ref().map_or(0.0, Side::cpu_s);
    (record.moved.bytes > 0).then(|| spent_s * 1e9 / record.moved.bytes as f64)
}

/// A header line, and a line for each run, as in RFC 4180.
fn csv(records: &[Record], out: &mut dyn Write) -> io::Result<()> {
    let mut writer = csv::Writer::from_writer(out);
    let names = flat(&Record::default()).into_iter().map(|(name, _)| name);
    writer.write_record(names).map_err(csv_error)?;
    for record in records {
        let cells = flat(record).into_iter().map(|(_, cell)| match cell {
            Cell::Integer(value) => value.map_or(String::new(), |value| value.to_string()),
            Cell::Real(value) => value.map_or(String::new(), |value| value.to_string()),
            Cell::Text(value) => value.unwrap_or_default(),
        });
        writer.write_record(cells).map_err(csv_error)?;
    }
    writer.flush()
}

/// One array of whole records.
fn json(records: &[Record], paths_of: PathsOf<'_>, out: &mut dyn Write) -> io::Result<()> {
    out.write_all(b"[")?;
    for (at, record) in records.iter().enumerate() {
        out.write_all(if at == 0 { b"\n" } else { b",\n" })?;
        // One at a time: the paths of many runs do not fit in memory.
        let whole = Record { paths: paths_of(record)?, ..record.clone() };
        let mut writer = serde_json::Serializer::with_formatter(&mut *out, SqlIntegers);
        whole.serialize(&mut writer).map_err(io::Error::from)?;
    }
    out.write_all(b"\n]\n")?;
    out.flush()
}

/// A number too large for SQL becomes the largest that SQL has, as in a column: programs that read
/// JSON into tables refuse the whole file for one of these.
struct SqlIntegers;

impl Formatter for SqlIntegers {
    fn write_u64<W: ?Sized + Write>(&mut self, out: &mut W, number: u64) -> io::Result<()> {
        write!(out, "{}", number.min(i64::MAX as u64))
    }
}

/// One file, with a row group for every so many runs.
fn parquet(records: &[Record], out: &mut dyn Write) -> io::Result<()> {
    // In memory: the end of the file says where its parts are.
    let bytes = parquet_bytes(records).map_err(|why| io::Error::other(why.to_string()))?;
    out.write_all(&bytes)?;
    out.flush()
}

fn parquet_bytes(records: &[Record]) -> Result<Vec<u8>, ParquetError> {
    let fields: Vec<String> = flat(&Record::default())
        .iter()
        .map(|(name, cell)| match cell {
            Cell::Integer(_) => format!("OPTIONAL INT64 {name};"),
            Cell::Real(_) => format!("OPTIONAL DOUBLE {name};"),
            Cell::Text(_) => format!("OPTIONAL BYTE_ARRAY {name} (UTF8);"),
        })
        .collect();
    let schema = Arc::new(parse_message_type(&format!("message run {{ {} }}", fields.join(" ")))?);
    let properties = Arc::new(WriterProperties::builder().build());
    let mut writer = SerializedFileWriter::new(Vec::new(), schema, properties)?;
    for group in records.chunks(ROWS_OF_GROUP) {
        let rows: Vec<Vec<(String, Cell)>> = group.iter().map(flat).collect();
        let mut group = writer.next_row_group()?;
        let mut place = 0;
        while let Some(mut column) = group.next_column()? {
            let cells: Vec<&Cell> = rows.iter().map(|row| &row[place].1).collect();
            let there: Vec<i16> = cells.iter().map(|cell| i16::from(is_there(cell))).collect();
            match cells.first() {
                Some(Cell::Integer(_)) => {
                    let values: Vec<i64> = cells.iter().filter_map(|cell| integer(cell)).collect();
                    column.typed::<Int64Type>().write_batch(&values, Some(&there), None)?;
                }
                Some(Cell::Real(_)) => {
                    let values: Vec<f64> = cells.iter().filter_map(|cell| real(cell)).collect();
                    column.typed::<DoubleType>().write_batch(&values, Some(&there), None)?;
                }
                _ => {
                    let values: Vec<ByteArray> =
                        cells.iter().filter_map(|cell| text(cell)).map(ByteArray::from).collect();
                    column.typed::<ByteArrayType>().write_batch(&values, Some(&there), None)?;
                }
            }
            column.close()?;
            place += 1;
        }
        group.close()?;
    }
    writer.into_inner()
}

fn is_there(cell: &Cell) -> bool {
    !matches!(cell, Cell::Integer(None) | Cell::Real(None) | Cell::Text(None))
}

fn integer(cell: &Cell) -> Option<i64> {
    if let Cell::Integer(value) = cell { *value } else { None }
}

fn real(cell: &Cell) -> Option<f64> {
    if let Cell::Real(value) = cell { *value } else { None }
}

fn text(cell: &Cell) -> Option<&str> {
    if let Cell::Text(Some(value)) = cell { Some(value) } else { None }
}

/// An I/O error, such as a closed pipe, is not hidden in an error of CSV.
fn csv_error(why: csv::Error) -> io::Error {
    match why.into_kind() {
        csv::ErrorKind::Io(why) => why,
        other => io::Error::other(format!("{other:?}")),
    }
}

const ROWS_OF_GROUP: usize = 10_000;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::record::sample::{Moved, SeriesPoint};
    use base::job::{PathRole, PathSide, StreamPath};
    use base::packed;

    fn records() -> Vec<Record> {
        let moved = Moved { bytes: 1000, elapsed_s: 0.5, ..Moved::default() };
        let source = Side { cpu_user_s: 2e-6, requests: 9, ..Side::default() };
        vec![
            Record { id: 1, target: "a,\"b\"\nc\u{e4}".into(), moved, source, ..Record::default() },
            Record {
                id: 2,
                sink: Some(Side { cpu_user_s: 0.25, ..Side::default() }),
                series: vec![SeriesPoint { at_s: 0.1, bytes: 5 }],
                moved: Moved { elapsed_s: f64::NAN, ..Moved::default() },
                ..Record::default()
            },
        ]
    }

    fn none(_: &Record) -> io::Result<Vec<StreamPath>> {
        Ok(Vec::new())
    }

    #[test]
    fn names_are_unique_and_rows_have_the_same() {
        let names = |record: &Record| -> Vec<String> {
            flat(record).into_iter().map(|(name, _)| name).collect()
        };
        let first = names(&Record::default());
        assert_eq!(first.iter().collect::<BTreeSet<_>>().len(), first.len());
        for record in records() {
            assert_eq!(names(&record), first);
        }
        let lower = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        assert!(first.iter().all(|name| name.chars().all(lower)), "{first:?}");
    }

    #[test]
    fn csv_is_read_back() {
        let mut bytes = Vec::new();
        csv(&records(), &mut bytes).unwrap();
        let mut reader = csv::Reader::from_reader(&bytes[..]);
        let names = reader.headers().unwrap().clone();
        let at = |name: &str| names.iter().position(|other| other == name).unwrap();
        let rows: Vec<csv::StringRecord> = reader.records().map(Result::unwrap).collect();
        let cases = [
            (0, "id", "1"),
            (0, "target", "a,\"b\"\nc\u{e4}"),
            (0, "cpu_ns_per_byte", "2"),
            (0, "elapsed_s", "0.5"),
            (0, "sink_cpu_user_s", ""),
            (1, "sink_cpu_user_s", "0.25"),
            (1, "elapsed_s", ""),
            (1, "series_json", "[{\"at_s\":0.1,\"bytes\":5}]"),
        ];
        for (row, name, expect) in cases {
            assert_eq!(&rows[row][at(name)], expect, "{name} of row {row}");
        }
    }

    #[test]
    fn json_is_read_back() {
        let mut bytes = Vec::new();
        json(&records()[..1], &none, &mut bytes).unwrap();
        assert_eq!(serde_json::from_slice::<Vec<Record>>(&bytes).unwrap(), records()[..1]);
        for count in [0, 2] {
            let mut bytes = Vec::new();
            json(&records()[..count], &none, &mut bytes).unwrap();
            let all: Vec<serde_json::Value> = serde_json::from_slice(&bytes).unwrap();
            assert_eq!(all.len(), count);
        }
    }

    /// Every number of the record and of its samples is as large as it can be.
    #[test]
    fn no_export_has_a_number_too_large_for_sql() {
        const MOST: u64 = u64::MAX;
        let record = Record {
            moved: Moved { bytes: MOST, hole_bytes: MOST, files: MOST, ..Moved::default() },
            source: Side { bytes: MOST, requests: MOST, ..Side::default() },
            series: vec![SeriesPoint { at_s: 1.0, bytes: MOST }],
            ..Record::default()
        };
        let mut numbers = [0; packed::COUNT];
        let sample = |at: usize| {
            numbers = [0; packed::COUNT];
            let fits = [u64::MAX, u32::MAX.into(), u8::MAX.into(), 1];
            let sample = fits.into_iter().find_map(|number| {
                numbers[at] = number;
                packed::of_numbers(&numbers)
            });
            sample.unwrap()
        };
        let samples: Vec<_> = (0..packed::COUNT).map(sample).collect();
        let paths_of = |_: &Record| {
            let (side, role) = (PathSide::Near, PathRole::Source);
            Ok(vec![StreamPath { stream: 0, side, role, samples: samples.clone() }])
        };
        let records = [record];
        let mut exports = vec![];
        for (name, format) in [("json", Format::Json), ("csv", Format::Csv)] {
            let mut bytes = Vec::new();
            format.write(&records, &paths_of, &mut bytes).unwrap();
            exports.push((name, String::from_utf8(bytes).unwrap()));
        }
        let mut bytes = Vec::new();
        crate::record::paths::csv(&records, &paths_of, &mut bytes).unwrap();
        exports.push(("paths", String::from_utf8(bytes).unwrap()));
        for (name, text) in exports {
            let numbers = text.split(|c: char| !c.is_ascii_digit() && c != '.');
            let large = numbers.filter(|word| word.parse::<u64>().is_ok_and(|n| n >= 1 << 63));
            assert_eq!(large.collect::<Vec<_>>(), [""; 0], "{name}");
        }
    }

    /// A closed pipe is reported as one.
    #[test]
    fn a_reader_that_has_gone_is_told() {
        struct Gone;
        impl Write for Gone {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::BrokenPipe.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Err(io::ErrorKind::BrokenPipe.into())
            }
        }
        for (_, format) in Format::ALL {
            let why = format.write(&records(), &none, &mut Gone).unwrap_err();
            assert_eq!(why.kind(), io::ErrorKind::BrokenPipe);
        }
    }
}
