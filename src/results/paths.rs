//! Path samples of streams in the store.

use rusqlite::{Row, Transaction, params};

use analysis::record::path_json::side_and_role;
use base::job::StreamPath;
use base::packed;

/// One row for each stream and end. Its samples are one value, a tenth of the size that they would
/// have as rows.
pub(super) fn insert(
    transaction: &Transaction<'_>,
    run: i64,
    path: &StreamPath,
) -> rusqlite::Result<()> {
    let sql = "INSERT INTO paths (run, stream, side, role, samples, packed) \
               VALUES (?, ?, ?, ?, ?, ?)";
    let values = params![
        run,
        path.stream,
        path.side.name(),
        path.role.name(),
        path.samples.len() as i64,
        packed::pack(&path.samples)
    ];
    transaction.prepare_cached(sql)?.execute(values).map(|_| ())
}

pub(crate) fn of_row(row: &Row<'_>) -> rusqlite::Result<StreamPath> {
    let unreadable = |why: String| {
        let kind = rusqlite::types::Type::Blob;
        rusqlite::Error::FromSqlConversionFailure(0, kind, format!("a path: {why}").into())
    };
    let (side, role): (String, String) = (row.get("side")?, row.get("role")?);
    let (side, role) = side_and_role(&side, &role).map_err(unreadable)?;
    let count: u32 = row.get("samples")?;
    let bytes: Vec<u8> = row.get("packed")?;
    let samples = packed::unpack(&bytes, count as usize);
    let samples = samples.map_err(|why| unreadable(why.to_string()))?;
    Ok(StreamPath { stream: row.get("stream")?, side, role, samples })
}
