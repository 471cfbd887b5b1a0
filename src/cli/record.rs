//! Records a run that ran to its end in the results store. A failure of that is only a warning: the
//! files are in place.

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use super::console::Console;
use super::options::recording::{NO_RECORD, RESULTS};
use super::progress::Collected;
use super::typed::Typed;
use crate::host::environment;
use crate::measure;
use crate::results::{Durability, Store};
use analysis::record::copy_record::{CopyRecord, record_of_copy};
use analysis::record::failures::{self, Failure};
use analysis::record::sample::{Predicted, Record};
use base::fault::{Class, Fault};
use base::job::{Job, Location, Outcome};
use base::settings::Settings;

/// Whether a run is recorded, and where.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Recording {
    /// `None` for the default store.
    pub store: Option<PathBuf>,
    pub refused: bool,
}

impl Recording {
    pub(super) fn of(typed: &Typed) -> Result<Recording, String> {
        Ok(Recording { store: typed.value(&RESULTS)?, refused: typed.has(&NO_RECORD) })
    }

    pub(super) fn is_wanted(&self) -> bool {
        let refused = std::env::var_os("DATAPUMP_NO_RECORD")
            .is_some_and(|value| !value.is_empty() && value != "0");
        !self.refused && !refused
    }

    fn store(&self) -> Result<Store, Fault> {
        Store::open_lasting(&store_path(self.store.as_deref())?, Durability::Program)
    }
}

/// Where a run went from and to, as typed, and on which file systems of this host.
#[derive(Debug, Default)]
pub(super) struct Ends {
    sources: Vec<String>,
    target: String,
    source_file_system: Option<String>,
    sink_file_system: Option<String>,
    far_host: Option<String>,
    /// The options, as words, where a page shows how to repeat the run.
    given: Option<Vec<String>>,
}

impl Ends {
    pub(super) fn having(self, given: &[String]) -> Ends {
        Ends { given: Some(given.to_vec()), ..self }
    }

    /// Generated at one end and discarded at the other: no file system is involved.
    pub(crate) fn of_null(source: String, target: String) -> Ends {
        Ends { sources: vec![source], target, ..Ends::default() }
    }

    pub(super) fn of(job: &Job, sources: Vec<String>, target: String) -> Ends {
        let here = |location: Option<&Location>, host: &Option<String>| match (location, host) {
            (Some(Location::Path(path)), None) => environment::file_system(path),
            _ => None,
        };
        Ends {
            sources,
            target,
            source_file_system: here(job.sources.first(), &job.source_host),
            sink_file_system: here(Some(&job.target), &job.target_host),
            far_host: job.source_host.clone().or_else(|| job.target_host.clone()),
            given: None,
        }
    }

    /// Of this host's ends: the source's and the sink's.
    pub(super) fn file_systems(self) -> [Option<String>; 2] {
        [self.source_file_system, self.sink_file_system]
    }

    /// A demo makes both ends, in the folder for temporary files.
    pub(crate) fn of_demo() -> Ends {
        let file_system = environment::file_system(&std::env::temp_dir());
        Ends {
            source_file_system: file_system.clone(),
            sink_file_system: file_system,
            ..Ends::default()
        }
    }
}

/// Records a run, if that is wanted, and returns the record.
pub(super) fn keep(
    console: &Console,
    recording: &Recording,
    command: &str,
    ends: &Ends,
    made: (&Outcome, &Settings),
    collected: &Collected,
) -> Record {
    keep_with(console, recording, command, ends, made, collected, |_| {})
}

/// The same; `add` adds what only that kind of run has.
pub(crate) fn keep_with(
    console: &Console,
    recording: &Recording,
    command: &str,
    ends: &Ends,
    (outcome, settings): (&Outcome, &Settings),
    collected: &Collected,
    add: impl FnOnce(&mut Record),
) -> Record {
    let opened = (outcome.dry.is_none() && recording.is_wanted()).then(|| {
        let mut store = recording.store()?;
        let here = collected.environment.clone().unwrap_or_else(environment::here);
        Ok((store.environment(&here)?, store))
    });
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut record = record_of_copy(&CopyRecord {
        command,
        sources: ends.sources.clone(),
        target: ends.target.clone(),
        settings,
        outcome,
        series: &collected.series,
        started_unix_s: now.as_secs_f64() - console.started().elapsed().as_secs_f64(),
        environment: opened.as_ref().and_then(|opened| Some(opened.as_ref().ok()?.0)).unwrap_or(0),
        source_file_system: ends.source_file_system.clone(),
        sink_file_system: ends.sink_file_system.clone(),
        predicted: collected.expected.as_ref().map(Predicted::from),
        far_host: ends.far_host.as_deref(),
    });
    record.given.clone_from(&ends.given);
    let shown = |path: &[u8]| String::from_utf8_lossy(path).into_owned();
    let failed = collected.failed.iter();
    failures::keep(
        &mut record,
        failed.map(|(path, fault)| Failure { path: shown(path), why: fault.text.clone() }),
    );
    add(&mut record);
    match opened.map(|opened| opened.and_then(|(_, mut store)| store.insert(&record))) {
        None => {}
        Some(Ok(id)) => record.id = id,
        Some(Err(fault)) => {
            console.warning(&format!("this run is not recorded: {fault}, or use --no-record"));
        }
    }
    record
}

/// Records a measurement, which `records` makes from the time and this host's environment.
pub(crate) fn keep_measured(
    console: &Console,
    recording: &Recording,
    records: impl FnOnce(f64, i64) -> Vec<Record>,
) {
    if !recording.is_wanted() {
        return;
    }
    let done = recording.store().and_then(|mut store| {
        let environment = store.environment(&environment::here())?;
        let records = records(measure::unix_s(), environment);
        records.iter().try_for_each(|record| store.insert(record).map(|_| ()))
    });
    if let Err(fault) = done {
        console.warning(&format!("this is not recorded: {fault}, or use --no-record"));
    }
}

/// The path of the store.
pub(crate) fn store_path(named: Option<&Path>) -> Result<PathBuf, Fault> {
    let path = named.map(Path::to_path_buf).or_else(Store::default_path);
    path.ok_or_else(|| {
        let text =
            "there is no place for results, since HOME is not set: name a file with --results";
        Fault::new(Class::Local, text)
    })
}
