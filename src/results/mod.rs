//! The results store: one SQLite file with the record of every run. It stores and finds records and
//! models, and does not know the code that makes them.

mod faults;
pub mod installed;
mod older;
mod paths;
mod retention;
mod rows;
pub mod schema;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::types::Value;
use rusqlite::{Connection, ErrorCode, OpenFlags, Row, Transaction, TransactionBehavior};
use rusqlite::{OptionalExtension, params};

use self::faults::{ANOTHER, fault, is_busy, is_damage};
use self::rows::{all, number, parsed, put_json, run, with_series};
use self::schema::Unusable;
use analysis::model::HostModel;
use analysis::record::sample::{Environment, Record, Scenario};
use base::fault::{Class, Fault};
use base::job::StreamPath;

/// An open store. Each run is a transaction of its own: what was inserted stays, however the
/// program ends.
#[derive(Debug)]
pub struct Store {
    path: PathBuf,
    connection: Connection,
}

/// What an inserted run must survive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// A crash of the machine: each run waits for the disk.
    Machine,
    /// A crash of the program. There is no wait for the disk, which would make a copy longer.
    Program,
}

/// All runs of one command.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Experiment {
    /// Unique in the store.
    pub name: String,
    /// As typed.
    pub command: String,
    pub started_unix_s: f64,
    pub seed: u64,
    /// Other facts: the grid, how it ended.
    pub more: BTreeMap<String, serde_json::Value>,
}

/// Selects runs; each condition that is set must hold.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Filter {
    pub ids: Vec<i64>,
    pub experiment: Option<String>,
    pub command: Option<String>,
    pub scenario: Option<Scenario>,
    /// A text in a source, in the target, or in the name of a host, in whatever case.
    pub containing: Option<String>,
    /// Started at this time or later.
    pub since_unix_s: Option<f64>,
    /// At most so many, the newest.
    pub newest: Option<u32>,
}

impl Store {
    /// Opens the store for writing, and creates it if it does not exist.
    pub fn open(path: &Path) -> Result<Store, Fault> {
        Store::open_lasting(path, Durability::Machine)
    }

    pub fn open_lasting(path: &Path, lasting: Durability) -> Result<Store, Fault> {
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            // Other users must not read what a user has copied from where.
            let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
            made.map_err(|why| {
                let fault = Fault::io("make the folder of the results store", folder, &why);
                Fault { text: format!("{}; {ANOTHER}", fault.text), ..fault }
            })?;
        }
        make_private(path)?;
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
        Store::open_with(path, flags, lasting)
    }

    /// Opens a store that exists.
    pub fn open_existing(path: &Path) -> Result<Store, Fault> {
        match fs::metadata(path) {
            Ok(_) => Store::open_with(path, OpenFlags::SQLITE_OPEN_READ_WRITE, Durability::Machine),
            Err(why) if why.kind() == std::io::ErrorKind::NotFound => Err(Fault::new(
                Class::Local,
                format!(
                    "nothing has been recorded yet: there is no results store '{}'; \
                     a copy makes it, or name another with --results",
                    path.display()
                ),
            )),
            Err(why) => Err(Fault::io("open the results store", path, &why)),
        }
    }

    /// The default store: `DATAPUMP_RESULTS`, else `datapump/results.db` in `XDG_STATE_HOME` or
    /// `~/.local/state`. `None` without a home.
    pub(crate) fn default_path() -> Option<PathBuf> {
        let named = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        if let Some(path) = named("DATAPUMP_RESULTS") {
            return Some(PathBuf::from(path));
        }
        Some(state_folder()?.join("results.db"))
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Inserts an experiment before its first run and returns its name. If the name is taken, as by
    /// an experiment that began in the same second, a number is added to it.
    pub fn begin_experiment(&mut self, experiment: &Experiment) -> Result<String, Fault> {
        let more = serde_json::to_string(&experiment.more).unwrap_or_else(|_| "{}".into());
        let sql = "INSERT INTO experiments (name, command, started_unix_s, seed, more_json) \
                   VALUES (?, ?, ?, ?, ?) ON CONFLICT (name) DO NOTHING";
        let mut name = experiment.name.clone();
        let mut number = 1;
        loop {
            let values = params![
                name,
                experiment.command,
                experiment.started_unix_s,
                experiment.seed.to_string(),
                more
            ];
            let added = self.connection.execute(sql, values);
            if self.told("write to", added)? == 1 {
                return Ok(name);
            }
            number += 1;
            name = format!("{}-{number}", experiment.name);
        }
    }

    /// All experiments, the oldest first.
    pub fn experiments(&self) -> Result<Vec<Experiment>, Fault> {
        let sql = "SELECT * FROM experiments ORDER BY started_unix_s, rowid";
        self.told("read", all(&self.connection, sql, &[], experiment))
    }

    /// The number of an environment: the same for the same facts.
    pub fn environment(&mut self, environment: &Environment) -> Result<i64, Fault> {
        let found = environment_id(&self.connection, environment);
        self.told("write to", found)
    }

    /// The environment with a number that `environment` has returned.
    pub fn environment_of(&self, id: i64) -> Result<Option<Environment>, Fault> {
        let read = |row: &Row<'_>| {
            Ok(Environment { host: row.get("host")?, facts: parsed(row, "facts_json")? })
        };
        let sql = "SELECT host, facts_json FROM environments WHERE id = ?";
        let found = self.connection.query_row(sql, [id], read).optional();
        self.told("read", found)
    }

    /// Adds a run and returns its number. The number in the record is ignored.
    pub fn insert(&mut self, record: &Record) -> Result<i64, Fault> {
        let done = insert(&mut self.connection, record);
        self.told("write to", done)
    }

    /// Replaces a run under its number, once the calibration after it is known.
    pub fn replace(&mut self, record: &Record) -> Result<(), Fault> {
        let done = replace(&mut self.connection, record);
        self.told("write to", done)
    }

    /// The selected runs, in the order of their numbers.
    pub fn records(&self, filter: &Filter) -> Result<Vec<Record>, Fault> {
        let (sql, values) = filter.query();
        let runs = all(&self.connection, &sql, &values, run);
        let runs = self.told("read", runs)?;
        let whole = |run| with_series(&self.connection, run);
        self.told("read", runs.into_iter().map(whole).collect())
    }

    /// The path samples of the data streams of a run, by number of stream, near ends first.
    pub fn paths(&self, run: i64) -> Result<Vec<StreamPath>, Fault> {
        let sql = "SELECT * FROM paths WHERE run = ? ORDER BY stream, side DESC";
        self.told("read", all(&self.connection, sql, &[Value::Integer(run)], paths::of_row))
    }

    /// Adds a model of a host to its earlier ones. Parts that only the newest of those has are
    /// copied into it.
    pub fn put_model(&mut self, model: &HostModel) -> Result<(), Fault> {
        let older = self.model(&model.host)?.unwrap_or_default();
        let model = model.clone().merged(older);
        let json = serde_json::to_string(&model).unwrap_or_else(|_| "null".into());
        let sql = "INSERT INTO models (host, fitted_unix_s, experiment, model_json) \
                   VALUES (?, ?, ?, ?)";
        let values = params![model.host, model.fitted_unix_s, model.experiment, json];
        let done = self.connection.execute(sql, values).map(|_| ());
        self.told("write to", done)
    }

    /// The newest model of a host.
    pub fn model(&self, host: &str) -> Result<Option<HostModel>, Fault> {
        self.told("read", model(&self.connection, host))
    }

    /// The newest model of a host, read without a long wait and without writing. No store, or one
    /// that cannot be read now, means no model; only a damaged store is a fault.
    pub(crate) fn glance(path: &Path, host: &str) -> Result<Option<HostModel>, Fault> {
        if !path.is_file() {
            return Ok(None);
        }
        let found = || -> Result<Option<HostModel>, Unusable> {
            let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
            let connection = Connection::open_with_flags(path, flags)?;
            connection.busy_timeout(GLANCE_PATIENCE)?;
            match schema::version(&connection, schema::MIGRATIONS.len())? {
                0 => Ok(None),
                _ => Ok(model(&connection, host)?),
            }
        };
        match found() {
            Ok(found) => Ok(found),
            Err(why) if is_damage(&why) => Err(refused(path, why)),
            Err(_) => Ok(None),
        }
    }

    /// The newest copies, the oldest of them first, read in the same way; none if the store cannot
    /// be read now.
    pub fn earlier(path: &Path, newest: u32) -> Vec<Record> {
        if !path.is_file() {
            return Vec::new();
        }
        let found = || -> Result<Vec<Record>, Unusable> {
            let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
            let connection = Connection::open_with_flags(path, flags)?;
            connection.busy_timeout(GLANCE_PATIENCE)?;
            if schema::version(&connection, schema::MIGRATIONS.len())? == 0 {
                return Ok(Vec::new());
            }
            let filter = Filter {
                command: Some("copy".to_string()),
                newest: Some(newest),
                ..Filter::default()
            };
            let (sql, values) = filter.query();
            Ok(all(&connection, &sql, &values, run)?)
        };
        found().unwrap_or_default()
    }

    fn open_with(path: &Path, flags: OpenFlags, lasting: Durability) -> Result<Store, Fault> {
        let prepared = || -> Result<Connection, Unusable> {
            let mut connection =
                Connection::open_with_flags(path, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
            connection.busy_timeout(BUSY_PATIENCE)?;
            connection.pragma_update(None, "foreign_keys", true)?;
            if lasting == Durability::Program {
                connection.pragma_update(None, "synchronous", "NORMAL")?;
            }
            // Before any change: the database of another program stays as it is.
            schema::version(&connection, schema::MIGRATIONS.len())?;
            write_ahead(&connection)?;
            schema::migrate(&mut connection, schema::MIGRATIONS)?;
            schema::add_columns(&mut connection)?;
            if lasting == Durability::Program && log_bytes(path) < LOG_BYTES_MAX {
                // Closing would checkpoint the log into the file and wait for the disk.
                connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
            }
            Ok(connection)
        };
        match prepared() {
            Ok(connection) => Ok(Store { path: path.to_path_buf(), connection }),
            Err(why) => Err(refused(path, why)),
        }
    }

    fn told<T>(&self, doing: &str, result: rusqlite::Result<T>) -> Result<T, Fault> {
        result.map_err(|why| fault(doing, &self.path, &why))
    }
}

impl Filter {
    fn query(&self) -> (String, Vec<Value>) {
        let mut wheres = Vec::new();
        let mut values = Vec::new();
        let texts = [
            ("experiment = ?", self.experiment.clone()),
            ("command = ?", self.command.clone()),
            ("scenario = ?", self.scenario.map(|scenario| scenario.name().to_string())),
            (CONTAINING, self.containing.clone()),
        ];
        for (condition, value) in texts {
            if let Some(value) = value {
                wheres.push(condition);
                values.push(Value::Text(value));
            }
        }
        if let Some(since) = self.since_unix_s {
            wheres.push("started_unix_s >= ?");
            values.push(Value::Real(since));
        }
        if !self.ids.is_empty() {
            // As one value, since the number of values in a statement is limited.
            wheres.push("id IN (SELECT value FROM json_each(?))");
            values.push(Value::Text(serde_json::json!(self.ids).to_string()));
        }
        let condition = match wheres.is_empty() {
            true => "true".to_string(),
            false => wheres.join(" AND "),
        };
        let newest = self.newest.map_or(String::new(), |number| format!(" LIMIT {number}"));
        let sql = format!(
            "SELECT * FROM (SELECT id, record_json FROM runs WHERE {condition} \
             ORDER BY id DESC{newest}) ORDER BY id"
        );
        (sql, values)
    }
}

/// The size of a store's write-ahead log.
fn log_bytes(path: &Path) -> u64 {
    let mut log = path.as_os_str().to_os_string();
    log.push("-wal");
    fs::metadata(log).map_or(0, |log| log.len())
}

/// Write-ahead logging: readers and one writer do not wait for each other. Where the file system
/// cannot do that, SQLite keeps the mode that it has.
fn write_ahead(connection: &Connection) -> rusqlite::Result<()> {
    let name = |row: &Row<'_>| row.get::<_, String>(0);
    if connection.pragma_query_value(None, "journal_mode", name)? == "wal" {
        return Ok(());
    }
    // The change needs exclusive access, and SQLite does not wait for that.
    for _ in 0..WRITE_AHEAD_ATTEMPTS {
        let changed = connection.pragma_update_and_check(None, "journal_mode", "wal", name);
        match changed {
            Err(why) if is_busy(&why) => thread::sleep(WRITE_AHEAD_PAUSE),
            // A file of another user, which may only be read, needs no log.
            Err(why) if why.sqlite_error_code() == Some(ErrorCode::ReadOnly) => return Ok(()),
            other => return other.map(|_| ()),
        }
    }
    Ok(())
}

fn insert(connection: &mut Connection, record: &Record) -> rusqlite::Result<i64> {
    // Immediate: the wait for another writer is here, and not in the middle.
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let run = write(&transaction, None, record)?;
    transaction.commit()?;
    Ok(run)
}

fn replace(connection: &mut Connection, record: &Record) -> rusqlite::Result<()> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    transaction.execute("DELETE FROM runs WHERE id = ?", [record.id])?;
    write(&transaction, Some(record.id), record)?;
    transaction.commit()
}

fn write(transaction: &Transaction<'_>, id: Option<i64>, record: &Record) -> rusqlite::Result<i64> {
    if let Some(place) = &record.place {
        let sql = "INSERT OR IGNORE INTO experiments \
                   (name, command, started_unix_s, seed, more_json) VALUES (?, ?, ?, ?, '{}')";
        let seed = place.seed.to_string();
        transaction.prepare_cached(sql)?.execute(params![
            place.experiment,
            record.command,
            record.started_unix_s,
            seed
        ])?;
    }
    let run = put_json(transaction, id, record)?;
    let sql = "INSERT INTO series (run, place, at_s, bytes) VALUES (?, ?, ?, ?)";
    for (place, point) in (0_i64..).zip(&record.series) {
        let bytes = i64::try_from(point.bytes).unwrap_or(i64::MAX);
        let at_s = Some(point.at_s).filter(|at_s| !at_s.is_nan());
        transaction.prepare_cached(sql)?.execute(params![run, place, at_s, bytes])?;
    }
    for path in &record.paths {
        paths::insert(transaction, run, path)?;
    }
    Ok(run)
}

fn environment_id(connection: &Connection, environment: &Environment) -> rusqlite::Result<i64> {
    let facts = serde_json::to_string(&environment.facts).unwrap_or_else(|_| "{}".into());
    let mut hasher = blake3::Hasher::new();
    for part in [&environment.host, &facts] {
        hasher.update(&(part.len() as u64).to_le_bytes()).update(part.as_bytes());
    }
    let hash = hasher.finalize().to_hex();
    let known = "SELECT id FROM environments WHERE content_hash = ?";
    let find = || connection.query_row(known, [hash.as_str()], |row| row.get(0)).optional();
    if let Some(id) = find()? {
        return Ok(id);
    }
    let sql = "INSERT OR IGNORE INTO environments (content_hash, host, facts_json) \
               VALUES (?, ?, ?)";
    connection.execute(sql, params![hash.as_str(), environment.host, facts])?;
    // Another program may have inserted it first: then its number counts.
    find()?.ok_or(rusqlite::Error::QueryReturnedNoRows)
}

fn model(connection: &Connection, host: &str) -> rusqlite::Result<Option<HostModel>> {
    let sql = "SELECT model_json FROM models WHERE host = ? \
               ORDER BY fitted_unix_s DESC, rowid DESC LIMIT 1";
    let read = |row: &Row<'_>| parsed(row, "model_json");
    connection.query_row(sql, [host], read).optional()
}

fn experiment(row: &Row<'_>) -> rusqlite::Result<Experiment> {
    let seed: String = row.get("seed")?;
    Ok(Experiment {
        name: row.get("name")?,
        command: row.get("command")?,
        started_unix_s: number(row, "started_unix_s")?,
        seed: seed.parse().unwrap_or_default(),
        more: parsed(row, "more_json")?,
    })
}

fn refused(path: &Path, why: Unusable) -> Fault {
    let shown = path.display();
    let today = schema::MIGRATIONS.len();
    match why {
        Unusable::Sqlite(why) => fault("open", path, &why),
        Unusable::Foreign => Fault::new(
            Class::Local,
            format!("'{shown}' is a database of another program; {ANOTHER}"),
        ),
        Unusable::Newer(version) => Fault::new(
            Class::Local,
            format!(
                "the results store '{shown}' has version {version}, this datapump knows those up \
                 to {today}: use the newer datapump that made it, or name another store with \
                 --results"
            ),
        ),
    }
}

const CONTAINING: &str = "EXISTS (SELECT 1 FROM (
    SELECT value AS text FROM json_each(sources_json)
    UNION ALL SELECT target
    UNION ALL SELECT remote_host
    UNION ALL SELECT host FROM environments
        WHERE environments.id IN (source_environment, sink_environment)
) WHERE instr(lower(text), lower(?)) > 0)";
/// How long to wait for another writer.
const BUSY_PATIENCE: Duration = Duration::from_secs(10);
/// A copy waits no longer for its prediction.
const GLANCE_PATIENCE: Duration = Duration::from_millis(50);
/// Opening a store reads the log that is left, 128 pages at most. One copy in about fifteen writes
/// it back, and waits for the disk.
const LOG_BYTES_MAX: u64 = 512 << 10;
const WRITE_AHEAD_ATTEMPTS: u32 = 500;
const WRITE_AHEAD_PAUSE: Duration = Duration::from_millis(10);

/// `datapump` in `XDG_STATE_HOME` or `~/.local/state`. `None` without a home.
pub(crate) fn state_folder() -> Option<PathBuf> {
    let named = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    // The XDG specification says to ignore a relative path.
    let state = named("XDG_STATE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let home = || named("HOME").map(|home| Path::new(&home).join(".local/state"));
    Some(state.or_else(home)?.join("datapump"))
}

/// Makes a new store for its user alone, wherever it is; its log and its index get the same mode.
/// A link that somebody else has put in its place is refused: it could lead to any file.
fn make_private(path: &Path) -> Result<(), Fault> {
    let new = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    if new.is_ok() {
        return Ok(());
    }
    // Why it cannot be made is said where it is opened.
    let Ok(found) = fs::symlink_metadata(path) else { return Ok(()) };
    let user = rustix::process::geteuid().as_raw();
    match found.is_symlink() && found.uid() != user && found.uid() != 0 {
        true => Err(Fault::new(
            Class::Local,
            format!(
                "the results store '{}' is a link that another user has made: remove it, or name \
                 another with --results",
                path.display()
            ),
        )),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests;
