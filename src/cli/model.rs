//! `datapump model`.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::time::Instant;

use super::args::Options;
use super::knobs::FORMATS;
use super::record;
use super::results::{environments, into_file};
use super::voice;
use crate::base::fault::{Class, Fault};
use crate::host::environment;
use crate::model::HostModel;
use crate::model::curve::Curve;
use crate::model::fit::Known;
use crate::model::observations;
use crate::model::whole::records::{fitted, is_whole};
use crate::record::sample::{Environment, Record};
use crate::report::sheet::Form;
use crate::report::tables;
use crate::report::{self, curves};
use crate::results::{Filter, Store};
use crate::study::{CpuFrom, Studies, verdicts};

pub fn run(
    action: &OsString,
    words: &[OsString],
    options: &Options,
    started: Instant,
) -> Result<u8, String> {
    if action == "predict" {
        return super::foretell::predict(words, options, started);
    }
    let form = form(options)?;
    let action = action.to_string_lossy();
    if let (Some(word), "fit") = (words.first(), &*action) {
        return Err(format!("'{}': model fit takes no words", word.to_string_lossy()));
    }
    match (&*action, &options.input) {
        ("fit", Some(path)) => Ok(ended(strangers(path, form, options))),
        ("fit", None) => Ok(ended(fit(form, options))),
        ("show", None) => match words {
            [] => Ok(ended(show(&environment::here().host, form, options))),
            [host] => Ok(ended(show(&host.to_string_lossy(), form, options))),
            _ => Err("model show takes the name of one host, or none for this one".into()),
        },
        ("show", Some(_)) => Err("--input is for model fit".into()),
        (other, _) => Err(format!("model has no '{other}'; write fit, show or predict")),
    }
}

/// How a model is written.
#[derive(Clone, Copy, Debug)]
enum Written {
    Page(Form),
    Json,
}

fn form(options: &Options) -> Result<Written, String> {
    match options.format.map(|place| FORMATS[place]) {
        None | Some("text") if !options.json => Ok(Written::Page(Form::Text)),
        None | Some("json") => Ok(Written::Json),
        Some("markdown") => Ok(Written::Page(Form::Markdown)),
        Some("text") => Err("--json and --format text: leave one of the two out".into()),
        Some(other) => Err(format!("--format '{other}': model writes text, json or markdown")),
    }
}

/// The exit code of a command; a fault is named.
fn ended(result: Result<(), Fault>) -> u8 {
    match result {
        Ok(()) => 0,
        Err(fault) => {
            voice::print_line(&mut io::stderr(), &format!("datapump: {fault}"));
            fault.class.exit_code()
        }
    }
}

/// The runs of one experiment as tables, and what they say of each host kept as its model.
fn fit(form: Written, options: &Options) -> Result<(), Fault> {
    let mut store = store(options)?;
    let experiment = experiment(&store, options)?;
    let filter = Filter { experiment: Some(experiment.clone()), ..Filter::default() };
    let records = store.records(&filter)?;
    let environments = environments(&store, &records)?;
    let study = studied_from(&records, &environments, options.cpu_from);
    let models = models(&study, &records, &environments);
    for model in &models {
        store.put_model(model)?;
    }
    let text = match form {
        Written::Page(form) => {
            let environments: Vec<Environment> = environments.into_values().collect();
            page(&study, &environments, &models, form)
        }
        Written::Json => json(&serde_json::json!({
            "study": study, "verdicts": verdicts::of(&study.full), "models": models,
        })),
    };
    put(&text, options)?;
    match models.is_empty() {
        false => Ok(()),
        true => Err(Fault::new(
            Class::Local,
            format!(
                "nothing of experiment {experiment} could be fitted: {}; 'datapump measure' makes \
                 the runs",
                study.full.remarks.first().map_or("no part was measured alone", String::as_str)
            ),
        )),
    }
}

/// What an experiment says of each host: its parts, and whole copies where some were made.
pub fn models(
    study: &Studies,
    records: &[Record],
    environments: &BTreeMap<i64, Environment>,
) -> Vec<HostModel> {
    let host = |id: i64| environments.get(&id).map(|found| found.host.clone()).unwrap_or_default();
    let mut models = study.hosts(host);
    let Some(first) = records.iter().find(|record| is_whole(record)) else { return models };
    let at = first.source.environment;
    let cpus = environments.get(&at).and_then(|found| found.facts.get("cpus")?.parse().ok());
    let Some(whole) = fitted(records, cpus.unwrap_or(1)) else { return models };
    let name = host(at);
    if !models.iter().any(|model| model.host == name) {
        models.push(HostModel { host: name.clone(), ..HostModel::default() });
    }
    for model in models.iter_mut().filter(|model| model.host == name) {
        model.cpus = model.cpus.max(whole.cpus);
        model.fitted_unix_s = model.fitted_unix_s.max(whole.fitted_unix_s);
        model.whole = Some(whole.clone());
    }
    models
}

/// The tables of an experiment; what copies cost comes last.
pub fn page(
    study: &Studies,
    environments: &[Environment],
    models: &[HostModel],
    form: Form,
) -> String {
    let mut text = match study.full.runs {
        0 => String::new(),
        _ => tables::page(study, environments, form),
    };
    for whole in models.iter().filter_map(|model| model.whole.as_ref()) {
        text.push_str(&report::whole::sheet(whole).write(form));
    }
    text
}

/// What the records of an experiment say, by the procedure of the report.
pub fn studied(records: &[Record], environments: &BTreeMap<i64, Environment>) -> Studies {
    studied_from(records, environments, CpuFrom::default())
}

fn studied_from(
    records: &[Record],
    environments: &BTreeMap<i64, Environment>,
    cpu_from: CpuFrom,
) -> Studies {
    // Where hosts differ the smaller cache is the first that requests leave.
    let caches = environments.values().filter_map(environment::core_cache_bytes);
    Studies::of(records, caches.min(), cpu_from)
}

fn show(host: &str, form: Written, options: &Options) -> Result<(), Fault> {
    let model = store(options)?.model(host)?.ok_or_else(|| {
        Fault::new(
            Class::Local,
            format!(
                "there is no model of host '{host}': 'datapump measure' makes one, 'datapump model \
                 fit' makes it anew from stored runs"
            ),
        )
    })?;
    let text = match form {
        Written::Page(form) => {
            let mut text = curves::host(&model).write(form);
            if let Some(whole) = &model.whole {
                text.push_str(&format!("\n{}", report::whole::sheet(whole).write(form)));
            }
            text
        }
        Written::Json => json(&model),
    };
    put(&text, options)
}

fn store(options: &Options) -> Result<Store, Fault> {
    Store::open_existing(&record::store_path(options)?)
}

/// The experiment that is asked for, else the newest.
fn experiment(store: &Store, options: &Options) -> Result<String, Fault> {
    let names: Vec<String> = store.experiments()?.into_iter().map(|one| one.name).collect();
    let there = |name: &String| {
        let newest: Vec<&str> = names.iter().rev().take(NAMED_MAX).map(String::as_str).collect();
        Fault::new(
            Class::Local,
            match newest.is_empty() {
                true => "no experiment is stored: 'datapump measure' makes one".to_string(),
                false => {
                    format!("there is no experiment '{name}'; the newest are {}", newest.join(", "))
                }
            },
        )
    };
    match &options.experiment {
        Some(name) if names.contains(name) => Ok(name.clone()),
        Some(name) => Err(there(name)),
        None => names.last().cloned().ok_or_else(|| there(&String::new())),
    }
}

/// Measurements by anything.
fn strangers(path: &Path, form: Written, options: &Options) -> Result<(), Fault> {
    let text = read(path)?;
    let name = match path == Path::new("-") {
        true => "standard input".to_string(),
        false => format!("'{}'", path.display()),
    };
    let wrong = |why: String| Fault::new(Class::Local, format!("{name}: {why}"));
    let runs = observations::read(&text).map_err(wrong)?;
    let curve = Curve::of(&runs, Known::default(), None, options.seed)
        .map_err(|why| wrong(why.to_string()))?;
    let text = match form {
        Written::Page(form) => {
            curves::curve(&format!("Cost of a byte in {name}"), &curve).write(form)
        }
        Written::Json => json(&curve),
    };
    put(&text, options)
}

fn json(value: &impl serde::Serialize) -> String {
    // Numbers without an end become null; nothing else in these can fail.
    let text = serde_json::to_string_pretty(value).unwrap_or_default();
    format!("{text}\n")
}

/// Writes to standard output, or to a file that is not there yet.
fn put(text: &str, options: &Options) -> Result<(), Fault> {
    match &options.output {
        Some(path) => into_file(path, &mut |out| out.write_all(text.as_bytes())),
        None => {
            voice::print(&mut io::stdout().lock(), text);
            Ok(())
        }
    }
}

fn read(path: &Path) -> Result<Vec<u8>, Fault> {
    let mut text = Vec::new();
    let input: Box<dyn Read> = match path == Path::new("-") {
        true => Box::new(io::stdin().lock()),
        false => Box::new(
            File::open(path).map_err(|why| Fault::io("open the measurements", path, &why))?,
        ),
    };
    let mut input = input.take(INPUT_BYTES_MAX + 1);
    input.read_to_end(&mut text).map_err(|why| Fault::io("read the measurements", path, &why))?;
    match text.len() as u64 > INPUT_BYTES_MAX {
        true => Err(Fault::new(
            Class::Local,
            format!(
                "'{}' has more than {} MiB of measurements; fit a part of them",
                path.display(),
                INPUT_BYTES_MAX >> 20
            ),
        )),
        false => Ok(text),
    }
}

/// A million rows: resampling them takes minutes already.
const INPUT_BYTES_MAX: u64 = 32 << 20;
const NAMED_MAX: usize = 5;
