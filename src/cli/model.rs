//! `datapump model`.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use super::console;
use super::options::recording::{
    CPU_FROM, EXPERIMENT, INPUT, MODEL_FORMAT, OUTPUT, PageFormat, RESULTS,
};
use super::options::showing::JSON;
use super::record;
use super::results::{ended, environments, into_file};
use super::typed::Typed;
use crate::host::environment;
use crate::results::{Filter, Store};
use analysis::model::HostModel;
use analysis::model::curve::Curve;
use analysis::model::end_to_end::records::{fitted, is_whole};
use analysis::model::fit::Known;
use analysis::model::observations;
use analysis::record::sample::{Environment, Record};
use analysis::report::sheet::Form;
use analysis::report::tables;
use analysis::report::{self, curves};
use analysis::study::{CpuFrom, Studies, verdicts};
use base::fault::{Class, Fault};

/// The arguments of `model fit`.
#[derive(Debug)]
pub(crate) struct FitArgs {
    input: Input,
    page: Page,
    store: Option<PathBuf>,
}

/// What a model is fitted to.
#[derive(Debug)]
enum Input {
    /// Measurements of any program, as CSV.
    Table(PathBuf),
    /// The runs of an experiment, by default the newest, and which of them give the CPU time of the
    /// tables.
    Runs { experiment: Option<String>, cpu_from: CpuFrom },
}

/// The arguments of `model show`.
#[derive(Debug)]
pub(crate) struct ShowModelArgs {
    /// `None` for this host.
    host: Option<String>,
    page: Page,
    store: Option<PathBuf>,
}

/// How a model is written, and to which file; `None` for standard output.
#[derive(Debug)]
struct Page {
    form: Written,
    output: Option<PathBuf>,
}

/// How a model is written.
#[derive(Clone, Copy, Debug)]
enum Written {
    Page(Form),
    Json,
}

impl FitArgs {
    pub(super) fn of(typed: &Typed) -> Result<FitArgs, String> {
        let experiment = typed.value(&EXPERIMENT)?;
        let cpu_from = typed.value_or_default(&CPU_FROM)?;
        Ok(FitArgs {
            input: match typed.value(&INPUT)? {
                Some(path) => Input::Table(path),
                None => Input::Runs { experiment, cpu_from },
            },
            page: Page::of(typed)?,
            store: typed.value(&RESULTS)?,
        })
    }
}

impl ShowModelArgs {
    pub(super) fn of(typed: &Typed) -> Result<ShowModelArgs, String> {
        Ok(ShowModelArgs {
            host: typed.word("HOST").map(|host| host.to_string_lossy().into_owned()),
            page: Page::of(typed)?,
            store: typed.value(&RESULTS)?,
        })
    }
}

impl Page {
    fn of(typed: &Typed) -> Result<Page, String> {
        let form = match (typed.value(&MODEL_FORMAT)?, typed.has(&JSON)) {
            (None, true) | (Some(PageFormat::Json), _) => Written::Json,
            (Some(PageFormat::Text), true) => {
                return Err("--json and --format text: leave one of the two out".into());
            }
            (None | Some(PageFormat::Text), false) => Written::Page(Form::Text),
            (Some(PageFormat::Markdown), _) => Written::Page(Form::Markdown),
        };
        Ok(Page { form, output: typed.value(&OUTPUT)? })
    }

    /// Writes to standard output, or to a file that does not exist yet.
    fn put(&self, text: &str) -> Result<(), Fault> {
        match &self.output {
            Some(path) => into_file(path, &mut |out| out.write_all(text.as_bytes())),
            None => {
                match self.form {
                    Written::Page(Form::Text) => console::show_page("the model", text),
                    _ => console::written("the model", console::data().write_all(text.as_bytes())),
                };
                Ok(())
            }
        }
    }
}

pub(crate) fn run_fit(args: &FitArgs) -> u8 {
    ended(match &args.input {
        Input::Table(path) => fit_table(path, &args.page).map(|()| 0),
        Input::Runs { experiment, cpu_from } => {
            fit(experiment.as_deref(), *cpu_from, args).map(|()| 0)
        }
    })
}

pub(crate) fn run_show(args: &ShowModelArgs) -> u8 {
    ended(show(args).map(|()| 0))
}

/// Shows the runs of one experiment as tables, and stores what they say of each host as its model.
fn fit(named: Option<&str>, cpu_from: CpuFrom, args: &FitArgs) -> Result<(), Fault> {
    let mut store = store(args.store.as_deref())?;
    let experiment = experiment(&store, named)?;
    let filter = Filter { experiment: Some(experiment.clone()), ..Filter::default() };
    let records = store.records(&filter)?;
    let environments = environments(&store, &records)?;
    let study = studied_from(&records, &environments, cpu_from);
    let models = models(&study, &records, &environments);
    for model in &models {
        store.put_model(model)?;
    }
    let text = match args.page.form {
        Written::Page(form) => {
            let environments: Vec<Environment> = environments.into_values().collect();
            page(&study, &environments, &models, form)
        }
        Written::Json => json(&serde_json::json!({
            "study": study, "verdicts": verdicts::of(&study.full), "models": models,
        })),
    };
    args.page.put(&text)?;
    match models.is_empty() {
        false => Ok(()),
        true => Err(Fault::new(
            Class::Local,
            format!(
                "nothing of experiment {experiment} could be fitted: {}; 'datapump measure all' \
                 makes the runs",
                study.full.remarks.first().map_or("no part was measured alone", String::as_str)
            ),
        )),
    }
}

/// What an experiment says of each host: its parts, and whole copies where some were made.
pub(super) fn models(
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
pub(super) fn page(
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
        text.push_str(&report::end_to_end::sheet(whole).write(form));
    }
    text
}

/// The analysis of an experiment's records, by the procedure of the report.
pub(crate) fn studied(records: &[Record], environments: &BTreeMap<i64, Environment>) -> Studies {
    studied_from(records, environments, CpuFrom::default())
}

fn studied_from(
    records: &[Record],
    environments: &BTreeMap<i64, Environment>,
    cpu_from: CpuFrom,
) -> Studies {
    // If hosts differ, requests outgrow the smallest cache first.
    let caches = environments.values().filter_map(environment::core_cache_bytes);
    Studies::of(records, caches.min(), cpu_from)
}

fn show(args: &ShowModelArgs) -> Result<(), Fault> {
    let host = args.host.clone().unwrap_or_else(|| environment::here().host);
    let model = store(args.store.as_deref())?.model(&host)?.ok_or_else(|| {
        Fault::new(
            Class::Local,
            format!(
                "there is no model of host '{host}': 'datapump measure whole' makes one, 'datapump \
                 model fit' recreates it from stored runs"
            ),
        )
    })?;
    let text = match args.page.form {
        Written::Page(form) => {
            let mut text = curves::host(&model).write(form);
            if let Some(whole) = &model.whole {
                text.push_str(&format!("\n{}", report::end_to_end::sheet(whole).write(form)));
            }
            text
        }
        Written::Json => json(&model),
    };
    args.page.put(&text)
}

fn store(named: Option<&Path>) -> Result<Store, Fault> {
    Store::open_existing(&record::store_path(named)?)
}

/// The experiment that is asked for, else the newest that is no campaign: those measure paths.
fn experiment(store: &Store, named: Option<&str>) -> Result<String, Fault> {
    let mut experiments = store.experiments()?;
    if named.is_none() {
        experiments.retain(|one| one.command != "sweep");
    }
    let names: Vec<String> = experiments.into_iter().map(|one| one.name).collect();
    let missing = |name: &str| {
        let newest: Vec<&str> = names.iter().rev().take(NAMED_MAX).map(String::as_str).collect();
        Fault::new(
            Class::Local,
            match newest.is_empty() {
                true => "no experiment is stored: 'datapump measure all' makes one".to_string(),
                false => {
                    format!("there is no experiment '{name}'; the newest are {}", newest.join(", "))
                }
            },
        )
    };
    match named {
        Some(name) if names.iter().any(|known| known == name) => Ok(name.to_string()),
        Some(name) => Err(missing(name)),
        None => names.last().cloned().ok_or_else(|| missing("")),
    }
}

/// Measurements of any program.
fn fit_table(path: &Path, page: &Page) -> Result<(), Fault> {
    let text = read(path)?;
    let name = match path == Path::new("-") {
        true => "standard input".to_string(),
        false => format!("'{}'", path.display()),
    };
    let wrong = |why: String| Fault::new(Class::Local, format!("{name}: {why}"));
    let runs = observations::read(&text).map_err(wrong)?;
    let curve =
        Curve::of(&runs, Known::default(), None, SEED).map_err(|why| wrong(why.to_string()))?;
    let text = match page.form {
        Written::Page(form) => {
            curves::curve(&format!("Cost of a byte in {name}"), &curve).write(form)
        }
        Written::Json => json(&curve),
    };
    page.put(&text)
}

fn json(value: &impl serde::Serialize) -> String {
    // NaN and infinity become null; nothing else in these can fail.
    let text = serde_json::to_string_pretty(value).unwrap_or_default();
    format!("{text}\n")
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

/// Of the resampling behind the intervals: the same table gives the same page.
const SEED: u64 = 0;
/// A million rows: resampling them takes minutes already.
const INPUT_BYTES_MAX: u64 = 32 << 20;
const NAMED_MAX: usize = 5;
