//! Rows of the store: records as JSON, and functions that read any row.

use rusqlite::types::Value;
use rusqlite::{Connection, Row, Transaction, params, params_from_iter};
use serde::de::DeserializeOwned;

use analysis::record::sample::{Record, SeriesPoint};

/// Inserts a record as JSON, without what is in other tables; returns its number.
pub(super) fn put_json(
    transaction: &Transaction<'_>,
    id: Option<i64>,
    record: &Record,
) -> rusqlite::Result<i64> {
    let alone = Record { id: 0, series: Vec::new(), paths: Vec::new(), ..record.clone() };
    let json = serde_json::to_string(&alone)
        .map_err(|why| rusqlite::Error::ToSqlConversionFailure(Box::new(why)))?;
    let sql = "INSERT INTO runs (id, record_json) VALUES (?, ?)";
    transaction.prepare_cached(sql)?.execute(params![id, json])?;
    Ok(transaction.last_insert_rowid())
}

pub(super) fn run(row: &Row<'_>) -> rusqlite::Result<Record> {
    let record: Record = parsed(row, "record_json")?;
    Ok(Record { id: row.get("id")?, ..record })
}

pub(super) fn with_series(connection: &Connection, run: Record) -> rusqlite::Result<Record> {
    let sql = "SELECT * FROM series WHERE run = ? ORDER BY place";
    let series = all(connection, sql, &[Value::Integer(run.id)], |row| {
        let bytes: i64 = row.get("bytes")?;
        Ok(SeriesPoint { at_s: number(row, "at_s")?, bytes: bytes.unsigned_abs() })
    })?;
    Ok(Record { series, ..run })
}

pub(super) fn all<T>(
    connection: &Connection,
    sql: &str,
    values: &[Value],
    read: impl Fn(&Row<'_>) -> rusqlite::Result<T>,
) -> rusqlite::Result<Vec<T>> {
    let mut statement = connection.prepare_cached(sql)?;
    let rows = statement.query_map(params_from_iter(values), read)?;
    rows.collect()
}

/// A number that must be there; NULL stands for NaN.
pub(super) fn number(row: &Row<'_>, name: &str) -> rusqlite::Result<f64> {
    Ok(row.get::<_, Option<f64>>(name)?.unwrap_or(f64::NAN))
}

pub(super) fn parsed<T: DeserializeOwned>(row: &Row<'_>, name: &str) -> rusqlite::Result<T> {
    let text: String = row.get(name)?;
    serde_json::from_str(&text).map_err(|why| unreadable(row, name, why.to_string()))
}

pub(super) fn unreadable(row: &Row<'_>, name: &str, why: String) -> rusqlite::Error {
    let at = row.as_ref().column_index(name).unwrap_or_default();
    let why = format!("column {name}: {why}").into();
    rusqlite::Error::FromSqlConversionFailure(at, rusqlite::types::Type::Text, why)
}
