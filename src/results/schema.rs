//! The tables of the results store, and the migration of older stores. A run is one JSON text, the
//! record. SQLite computes its columns from that text, so both always agree. Columns that are
//! searched have an index. Series and samples of streams have tables of their own.

use std::collections::BTreeSet;

use rusqlite::{Connection, Transaction, TransactionBehavior};

use super::older;
use super::rows::put_json;
use analysis::record::columns::{COLUMNS, Column, Kind};

/// Marks a store in the file header, so that no database of another program is taken for one.
const APPLICATION_ID: i32 = i32::from_be_bytes(*b"dpmp");

/// Each takes a store from one version to the next. A released migration is never edited.
pub(crate) const MIGRATIONS: &[Migration] = &[
    Migration::Sql(VERSION_1),
    Migration::Sql(VERSION_2),
    Migration::Sql(VERSION_3),
    Migration::Sql(VERSION_4),
    Migration::Sql(VERSION_5),
    Migration::Code(records_as_json),
    Migration::Code(compression_by_its_name),
];

/// A step from one version to the next.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Migration {
    Sql(&'static str),
    Code(fn(&Transaction<'_>) -> rusqlite::Result<()>),
}

/// Why a database cannot be used as a store.
#[derive(Debug)]
pub enum Unusable {
    /// It has the tables of another program.
    Foreign,
    /// A later version of datapump has made it.
    Newer(usize),
    Sqlite(rusqlite::Error),
}

impl From<rusqlite::Error> for Unusable {
    fn from(why: rusqlite::Error) -> Unusable {
        Unusable::Sqlite(why)
    }
}

/// Migrates a database to today's version, all at once or not at all.
pub(crate) fn migrate(
    connection: &mut Connection,
    migrations: &[Migration],
) -> Result<(), Unusable> {
    // Usually there is nothing to do, and then there is no wait for a writer.
    if version(connection, migrations.len())? == migrations.len() {
        return Ok(());
    }
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    // Another program may have migrated it since.
    let found = version(&transaction, migrations.len())?;
    for migration in &migrations[found..] {
        match migration {
            Migration::Sql(text) => transaction.execute_batch(text)?,
            Migration::Code(step) => step(&transaction)?,
        }
    }
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    transaction.pragma_update(None, "user_version", migrations.len() as i64)?;
    transaction.commit()?;
    Ok(())
}

/// Adds columns for fields of records that are newer than the store.
pub(crate) fn add_columns(connection: &mut Connection) -> rusqlite::Result<()> {
    if missing_columns(connection)?.is_empty() {
        return Ok(());
    }
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    for column in missing_columns(&transaction)? {
        transaction
            .execute_batch(&format!("ALTER TABLE runs ADD COLUMN {}", definition(column)))?;
    }
    transaction.commit()
}

fn missing_columns(connection: &Connection) -> rusqlite::Result<Vec<&'static Column>> {
    let mut statement = connection.prepare("SELECT name FROM pragma_table_xinfo('runs')")?;
    let names = statement.query_map([], |row| row.get(0))?;
    let there: BTreeSet<String> = names.collect::<rusqlite::Result<_>>()?;
    Ok(COLUMNS.iter().filter(|column| !there.contains(&column.name())).collect())
}

/// A column that SQLite computes from the JSON of a run when it is read.
fn definition(column: &Column) -> String {
    let found = format!("json_extract(record_json, '$.{}')", column.path);
    let (kind, found) = match (column.kind, column.path) {
        (Kind::Integer, "source.environment" | "sink.environment") => {
            ("INTEGER REFERENCES environments (id)", format!("nullif({found}, 0)"))
        }
        (Kind::Text, "place.experiment") => ("TEXT REFERENCES experiments (name)", found),
        // A value beyond SQL's integers becomes the largest of them.
        (Kind::Integer, _) => ("INTEGER", format!("CAST({found} AS INTEGER)")),
        (Kind::Real, _) => ("REAL", found),
        (Kind::Text | Kind::Json, _) => ("TEXT", found),
    };
    format!("{} {kind} GENERATED ALWAYS AS ({found}) VIRTUAL", column.name())
}

/// Version 6: a run is its record as JSON; it was a row here and rows in six other tables.
fn records_as_json(transaction: &Transaction<'_>) -> rusqlite::Result<()> {
    transaction.execute_batch(VERSION_6_BEFORE)?;
    let columns: Vec<String> = COLUMNS.iter().map(definition).collect();
    transaction.execute_batch(&format!(
        "CREATE TABLE runs (\n    id INTEGER PRIMARY KEY AUTOINCREMENT,\n    \
         record_json TEXT NOT NULL,\n    {}\n) STRICT;",
        columns.join(",\n    ")
    ))?;
    let mut statement = transaction.prepare("SELECT id FROM runs_of_5 ORDER BY id")?;
    let ids: Vec<i64> =
        statement.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
    for id in ids {
        put_json(transaction, Some(id), &older::record(transaction, id)?)?;
    }
    transaction.execute_batch(VERSION_6_AFTER)
}

/// Version 7: records of schema 3, in which `compression` is called so and not `packed`.
fn compression_by_its_name(transaction: &Transaction<'_>) -> rusqlite::Result<()> {
    transaction.execute_batch(VERSION_7)?;
    let mut statement =
        transaction.prepare("SELECT name FROM pragma_table_xinfo('runs') WHERE name GLOB ?")?;
    let old = statement.query_map(["packed_*"], |row| row.get::<_, String>(0))?;
    for name in old.collect::<rusqlite::Result<Vec<_>>>()? {
        transaction.execute_batch(&format!("ALTER TABLE runs DROP COLUMN {name}"))?;
    }
    Ok(())
}

/// The version of a store: how many migrations were applied.
pub fn version(connection: &Connection, newest: usize) -> Result<usize, Unusable> {
    let number = |pragma| connection.pragma_query_value(None, pragma, |row| row.get::<_, i64>(0));
    let application = number("application_id")?;
    let version = number("user_version")?;
    let tables: i64 =
        connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    let ours = application == i64::from(APPLICATION_ID);
    match usize::try_from(version) {
        Ok(0) if tables == 0 => Ok(0),
        Ok(version) if ours && version <= newest => Ok(version),
        Ok(version) if ours => Err(Unusable::Newer(version)),
        _ => Err(Unusable::Foreign),
    }
}

const VERSION_1: &str = "
CREATE TABLE environments (
    id INTEGER PRIMARY KEY,
    content_hash TEXT NOT NULL UNIQUE,
    host TEXT NOT NULL,
    facts_json TEXT NOT NULL
) STRICT;

CREATE TABLE experiments (
    name TEXT PRIMARY KEY,
    command TEXT NOT NULL,
    started_unix_s REAL,
    seed TEXT NOT NULL,
    more_json TEXT NOT NULL
) STRICT;

CREATE TABLE models (
    host TEXT NOT NULL,
    fitted_unix_s REAL,
    experiment TEXT NOT NULL,
    model_json TEXT NOT NULL
) STRICT;

CREATE TABLE runs (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    command TEXT NOT NULL,
    version TEXT NOT NULL,
    started_unix_s REAL,
    sources_json TEXT NOT NULL,
    target TEXT NOT NULL,
    experiment TEXT REFERENCES experiments (name),
    scenario TEXT,
    seed TEXT,
    order_index INTEGER,
    repeat INTEGER,
    block INTEGER,
    request_bytes INTEGER NOT NULL,
    depth_source INTEGER,
    depth_sink INTEGER,
    streams INTEGER NOT NULL,
    window_bytes INTEGER,
    congestion TEXT,
    rate_limit_bytes_per_s REAL,
    engine TEXT NOT NULL,
    direct TEXT NOT NULL,
    seal TEXT NOT NULL,
    digest TEXT NOT NULL,
    fsync TEXT NOT NULL,
    receive TEXT NOT NULL,
    codec TEXT,
    cache TEXT NOT NULL,
    resident_before REAL,
    carrier TEXT NOT NULL,
    source_file_system TEXT,
    sink_file_system TEXT,
    soaked_cpus_json TEXT NOT NULL,
    bytes INTEGER NOT NULL,
    files INTEGER NOT NULL,
    wire_bytes INTEGER NOT NULL,
    elapsed_s REAL,
    goodput_bytes_per_s REAL,
    steady_bytes_per_s REAL,
    steady_from_s REAL,
    retries INTEGER NOT NULL,
    void_reason TEXT,
    predicted_elapsed_low_s REAL,
    predicted_elapsed_s REAL,
    predicted_elapsed_high_s REAL,
    predicted_cpu_source_low_s REAL,
    predicted_cpu_source_s REAL,
    predicted_cpu_source_high_s REAL,
    predicted_cpu_sink_low_s REAL,
    predicted_cpu_sink_s REAL,
    predicted_cpu_sink_high_s REAL,
    predicted_binding TEXT,
    more_json TEXT NOT NULL
) STRICT;
CREATE INDEX runs_of_experiment ON runs (experiment);
CREATE INDEX runs_by_time ON runs (started_unix_s);

CREATE TABLE sides (
    run INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    role TEXT NOT NULL,
    environment INTEGER REFERENCES environments (id),
    cpus_json TEXT NOT NULL,
    cpu_user_s REAL,
    cpu_system_s REAL,
    requests INTEGER NOT NULL,
    calls INTEGER NOT NULL,
    partial_returns INTEGER NOT NULL,
    partial_bytes INTEGER NOT NULL,
    fill_s REAL,
    pass_s REAL,
    gate_s REAL,
    drain_s REAL,
    peak_memory_bytes INTEGER NOT NULL,
    planned_memory_bytes INTEGER NOT NULL,
    engine TEXT NOT NULL,
    depth INTEGER NOT NULL,
    congestion TEXT NOT NULL,
    window_seen_bytes INTEGER NOT NULL,
    PRIMARY KEY (run, role)
) STRICT, WITHOUT ROWID;

CREATE TABLE side_kernel_threads (
    run INTEGER NOT NULL,
    role TEXT NOT NULL,
    name TEXT NOT NULL,
    cpu_s REAL,
    PRIMARY KEY (run, role, name),
    FOREIGN KEY (run, role) REFERENCES sides (run, role) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;

CREATE TABLE side_stages (
    run INTEGER NOT NULL,
    role TEXT NOT NULL,
    stage TEXT NOT NULL,
    spent_s REAL,
    PRIMARY KEY (run, role, stage),
    FOREIGN KEY (run, role) REFERENCES sides (run, role) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;

CREATE TABLE machines (
    run INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    machine INTEGER NOT NULL,
    cpus INTEGER NOT NULL,
    span_s REAL,
    busy_idle_s REAL,
    busy_iter_s REAL,
    busy_clock_s REAL,
    background_s REAL,
    steal_s REAL,
    soaked_cpus_json TEXT NOT NULL,
    PRIMARY KEY (run, machine)
) STRICT, WITHOUT ROWID;

CREATE TABLE machine_kernel_threads (
    run INTEGER NOT NULL,
    machine INTEGER NOT NULL,
    place INTEGER NOT NULL,
    name TEXT NOT NULL,
    cpu INTEGER,
    cpu_s REAL,
    PRIMARY KEY (run, machine, place),
    FOREIGN KEY (run, machine) REFERENCES machines (run, machine) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;

CREATE TABLE gates (
    run INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    place INTEGER NOT NULL,
    name TEXT NOT NULL,
    value REAL,
    limit_value REAL,
    passed INTEGER NOT NULL,
    PRIMARY KEY (run, place)
) STRICT, WITHOUT ROWID;

CREATE TABLE series (
    run INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    place INTEGER NOT NULL,
    at_s REAL,
    bytes INTEGER NOT NULL,
    PRIMARY KEY (run, place)
) STRICT, WITHOUT ROWID;
";

/// Earlier runs have no such count.
const VERSION_2: &str = "ALTER TABLE sides ADD COLUMN starts INTEGER NOT NULL DEFAULT 0;";

/// Path samples of each data stream from each of its ends; `packed` as in `base::packed`.
const VERSION_3: &str = "
CREATE TABLE paths (
    run INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    stream INTEGER NOT NULL,
    side TEXT NOT NULL,
    role TEXT NOT NULL,
    samples INTEGER NOT NULL,
    packed BLOB NOT NULL,
    UNIQUE (run, stream, side)
) STRICT;
";

/// What compression did in a run, and the prediction without it.
const VERSION_4: &str = "
ALTER TABLE runs ADD COLUMN packed_from_bytes INTEGER;
ALTER TABLE runs ADD COLUMN packed_to_bytes INTEGER;
ALTER TABLE runs ADD COLUMN packed_ways_json TEXT;
ALTER TABLE runs ADD COLUMN pack_over_unpack REAL;
ALTER TABLE runs ADD COLUMN off_bytes_per_s REAL;
ALTER TABLE runs ADD COLUMN off_held_by TEXT;
";

/// Round trips of probes beside a run.
const VERSION_5: &str = "
ALTER TABLE runs ADD COLUMN probe_method TEXT;
ALTER TABLE runs ADD COLUMN probe_late_max_s REAL;
ALTER TABLE runs ADD COLUMN unloaded_probes_sent INTEGER;
ALTER TABLE runs ADD COLUMN unloaded_probes_lost INTEGER;
ALTER TABLE runs ADD COLUMN unloaded_rtt_min_s REAL;
ALTER TABLE runs ADD COLUMN unloaded_rtt_median_s REAL;
ALTER TABLE runs ADD COLUMN unloaded_rtt_p95_s REAL;
ALTER TABLE runs ADD COLUMN loaded_probes_sent INTEGER;
ALTER TABLE runs ADD COLUMN loaded_probes_lost INTEGER;
ALTER TABLE runs ADD COLUMN loaded_rtt_min_s REAL;
ALTER TABLE runs ADD COLUMN loaded_rtt_median_s REAL;
ALTER TABLE runs ADD COLUMN loaded_rtt_p95_s REAL;
";

const VERSION_6_BEFORE: &str = "
ALTER TABLE runs RENAME TO runs_of_5;
DROP INDEX runs_of_experiment;
DROP INDEX runs_by_time;
";

const VERSION_6_AFTER: &str = "
DELETE FROM sqlite_sequence WHERE name = 'runs';
INSERT INTO sqlite_sequence (name, seq)
    SELECT 'runs', seq FROM sqlite_sequence WHERE name = 'runs_of_5';
CREATE INDEX runs_of_experiment ON runs (experiment);
CREATE INDEX runs_of_command ON runs (command);
CREATE INDEX runs_by_time ON runs (started_unix_s);

ALTER TABLE series RENAME TO series_of_5;
CREATE TABLE series (
    run INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    place INTEGER NOT NULL,
    at_s REAL,
    bytes INTEGER NOT NULL,
    PRIMARY KEY (run, place)
) STRICT, WITHOUT ROWID;
INSERT INTO series SELECT run, place, at_s, bytes FROM series_of_5;

ALTER TABLE paths RENAME TO paths_of_5;
CREATE TABLE paths (
    run INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    stream INTEGER NOT NULL,
    side TEXT NOT NULL,
    role TEXT NOT NULL,
    samples INTEGER NOT NULL,
    packed BLOB NOT NULL,
    UNIQUE (run, stream, side)
) STRICT;
INSERT INTO paths SELECT run, stream, side, role, samples, packed FROM paths_of_5;

DROP TABLE paths_of_5;
DROP TABLE series_of_5;
DROP TABLE gates;
DROP TABLE machine_kernel_threads;
DROP TABLE machines;
DROP TABLE side_stages;
DROP TABLE side_kernel_threads;
DROP TABLE sides;
DROP TABLE runs_of_5;
";

const VERSION_7: &str = "
UPDATE runs SET record_json = json_set(record_json, '$.schema', 3);
UPDATE runs SET record_json = json_remove(
    json_set(record_json, '$.compression', json_object(
        'raw_bytes', record_json ->> '$.packed.raw_bytes',
        'compressed_bytes', record_json ->> '$.packed.packed_bytes',
        'bytes_by_coding', record_json -> '$.packed.bytes_by_way',
        'compress_over_decompress', record_json ->> '$.packed.pack_over_unpack',
        'without', record_json -> '$.packed.without')),
    '$.packed')
    WHERE json_type(record_json, '$.packed') = 'object';
UPDATE runs SET record_json =
    json_set(record_json, '$.compression.without.held_by', 'compression')
    WHERE record_json ->> '$.compression.without.held_by' = 'packing';
UPDATE runs SET record_json =
    json_set(record_json, '$.compression.without.held_by', 'decompression')
    WHERE record_json ->> '$.compression.without.held_by' = 'unpacking';
";
