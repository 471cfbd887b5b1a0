//! `datapump explain`, and the sentence of a copy's summary.

use std::path::PathBuf;
use std::time::Instant;

use super::console::{self, Console};
use super::options::recording::RESULTS;
use super::order::{Form, Show};
use super::progress::Collected;
use super::record;
use super::results::{environments, number};
use super::typed::Typed;
use crate::host::environment;
use crate::results::{Filter, Store};
use analysis::diagnosis::store::{self, StoreVerdict};
use analysis::diagnosis::{Verdict, diagnose, evidence};
use analysis::record::sample::Record;
use analysis::report::explain as page;
use analysis::report::json::{self, Event};
use analysis::report::live::count;
use analysis::report::{results, stream_steps};
use base::fault::{Class, Fault};
use base::job::Outcome;
use base::settings::Settings;

/// What held a copy back; `None` if its streams were not sampled, or it had none.
pub(crate) fn of_copy(outcome: &Outcome, settings: &Settings) -> Option<Verdict> {
    if outcome.dry.is_some() || outcome.paths.is_empty() {
        return None;
    }
    let evidence = evidence::of_copy(outcome, settings, &environment::here());
    (!evidence.streams.is_empty()).then(|| diagnose(&evidence))
}

/// Of a run of the results store.
enum Found {
    Streams(Box<Verdict>),
    AtStore(Box<StoreVerdict>),
}

impl Found {
    fn page(&self) -> String {
        match self {
            Found::Streams(verdict) => page::page(verdict),
            Found::AtStore(verdict) => page::store::page(verdict),
        }
    }

    fn event(self) -> Event {
        match self {
            Found::Streams(verdict) => Event::Verdict(verdict),
            Found::AtStore(verdict) => Event::StoreVerdict(verdict),
        }
    }
}

#[derive(Debug)]
pub(crate) struct ExplainArgs {
    /// `None` for the newest that can be explained.
    run: Option<i64>,
    store: Option<PathBuf>,
    show: Show,
}

impl ExplainArgs {
    pub(super) fn of(typed: &Typed) -> Result<ExplainArgs, String> {
        Ok(ExplainArgs {
            run: typed.word("RUN").as_ref().map(number).transpose()?,
            store: typed.value(&RESULTS)?,
            show: Show::of(typed)?,
        })
    }
}

pub(super) fn run(args: &ExplainArgs, started: Instant) -> u8 {
    let console = Console::new(args.show, started);
    let (record, verdict) = match of_store(args) {
        Ok(found) => found,
        Err(fault) => {
            console.error(&fault.text);
            console.event(&Event::End(Box::new(json::end(
                Some(fault.class),
                Some(fault.text.clone()),
            ))));
            return fault.class.exit_code();
        }
    };
    if args.show.form == Form::Json {
        let steps = record.stream_steps.into_iter();
        steps.for_each(|step| console.event(&Event::StreamsStep(step)));
        console.event(&verdict.event());
        console.event(&Event::End(Box::new(json::end(None, None))));
        return 0;
    }
    let run = format!("run {}: {}\n", record.id, results::headline(&record));
    let steps = stream_steps::page(&record.stream_steps);
    console::show_page("the explanation", &(run + &verdict.page() + &steps))
}

/// The run that is meant, and its verdict.
fn of_store(args: &ExplainArgs) -> Result<(Record, Found), Fault> {
    let id = args.run;
    let path = record::store_path(args.store.as_deref())?;
    let store = Store::open_existing(&path)?;
    let ids = id.into_iter().collect();
    let newest = id.is_none().then_some(LOOKED_AT);
    let mut records = store.records(&Filter { ids, newest, ..Filter::default() })?;
    records.sort_by_key(|record| std::cmp::Reverse(record.id));
    let none = records.is_empty();
    let first = records.first().cloned();
    for record in records {
        let paths = store.paths(record.id)?;
        let record = Record { paths, ..record };
        let known = environments(&store, std::slice::from_ref(&record))?;
        let evidence = evidence::of_record(&record, &known);
        if !evidence.streams.is_empty() {
            let verdict = diagnose(&evidence);
            return Ok((record, Found::Streams(Box::new(verdict))));
        }
        if let Some(verdict) = store::kept(&record) {
            return Ok((record, Found::AtStore(Box::new(verdict))));
        }
    }
    let text = match id {
        Some(id) if none => format!(
            "there is no run {id} in '{}'; 'datapump results list' shows those that are there",
            path.display()
        ),
        Some(_) => untold(&first.unwrap_or_default()),
        None => format!(
            "none of the newest {LOOKED_AT} runs in '{}' has samples of data streams; name one \
             that has: 'datapump results list' shows all",
            path.display()
        ),
    };
    Err(Fault::new(Class::Local, text))
}

/// Why nothing is said of what held a run back.
fn untold(run: &Record) -> String {
    let (id, moved) = (run.id, &run.moved);
    let first = run.more.get(FIRST_FAILURE).and_then(|text| text.as_str());
    match (moved.bytes, moved.failed) {
        (0, 1..) => {
            let first = first.map_or(String::new(), |text| format!(", the first as {text}"));
            let failed = count(moved.failed, "file");
            format!("run {id} moved nothing: {failed} not copied{first}")
        }
        (0, 0) if moved.kept > 0 => {
            let first = first.map_or(String::new(), |text| format!("; {text}"));
            format!("run {id} moved nothing: {} kept{first}", count(moved.kept, "file"))
        }
        _ => format!(
            "run {id} has no samples of data streams: it ran inside one process, or sampling was \
             off (--path-samples off)"
        ),
    }
}

/// Adds to the record of a copy what explains it without streams.
pub(super) fn keep(record: &mut Record, at_store: Option<&StoreVerdict>, collected: &Collected) {
    store::keep(record, at_store);
    if let Some((_, fault)) = collected.failed.first() {
        record.more.insert(FIRST_FAILURE.into(), fault.text.clone().into());
    }
}

/// Its name among what a record has more.
const FIRST_FAILURE: &str = "first_failure";

/// Number of the newest runs that are searched for one with samples.
const LOOKED_AT: u32 = 100;
