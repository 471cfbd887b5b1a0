//! `datapump report`: web pages and drawings of what is recorded.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::console::{self, written};
use super::model::studied;
use super::options::recording::{HTML, RESULTS, SINCE, SVG, Since, XPLOT};
use super::order::Channel;
use super::record;
use super::results::{ended, environments, into_file, number};
use super::sweep::{cells, find, recorded as campaigns};
use super::typed::Typed;
use crate::measure::unix_s;
use crate::results::{Experiment, Filter, Store};
use analysis::diagnosis::{diagnose, evidence};
use analysis::model::HostModel;
use analysis::page::campaign::Campaign;
use analysis::page::host::Host;
use analysis::page::{self, Page};
use analysis::record::sample::Record;
use analysis::report::{utc, xplot};
use analysis::trend::{self, Route};
use base::fault::{Class, Fault};

/// The arguments of `report`.
#[derive(Debug)]
pub(crate) struct ReportArgs {
    about: About,
    html: Option<PathBuf>,
    svg: Option<PathBuf>,
    xplot: Option<PathBuf>,
    store: Option<PathBuf>,
}

/// What a report is about.
#[derive(Debug)]
enum About {
    /// `None` for the newest run that has samples.
    Run(Option<i64>),
    /// A campaign, or a host that has a model.
    Named(String),
    /// An earlier campaign, and a later one.
    Campaigns([String; 2]),
    /// What campaigns found on each host since then, or on the hosts of this name.
    Since(Since, Option<String>),
}

impl About {
    fn of(words: &[OsString], since: Option<Since>) -> Result<About, String> {
        let text = |word: &OsString| word.to_string_lossy().into_owned();
        let is_number = |word: &OsString| word.to_str().is_some_and(|w| w.parse::<i64>().is_ok());
        if let Some(since) = since {
            return match words {
                [] => Ok(About::Since(since, None)),
                [host] => Ok(About::Since(since, Some(text(host)))),
                _ => Err("--since: name one host, or none for all".into()),
            };
        }
        match words {
            [] => Ok(About::Run(None)),
            [one] if is_number(one) => Ok(About::Run(Some(number(one)?))),
            [one] => Ok(About::Named(text(one))),
            [before, after] if ![before, after].into_iter().any(is_number) => {
                Ok(About::Campaigns([text(before), text(after)]))
            }
            _ => Err("a page is about one run, one host, or one or two campaigns".into()),
        }
    }
}

impl ReportArgs {
    pub(super) fn of(typed: &Typed) -> Result<ReportArgs, String> {
        Ok(ReportArgs {
            about: About::of(&typed.words("WHAT"), typed.value(&SINCE)?)?,
            html: typed.value(&HTML)?,
            svg: typed.value(&SVG)?,
            xplot: typed.value(&XPLOT)?,
            store: typed.value(&RESULTS)?,
        })
    }
}

pub(super) fn run(args: &ReportArgs) -> u8 {
    ended(report(args))
}

fn report(args: &ReportArgs) -> Result<u8, Fault> {
    let to_stdout = args.html.is_none() && args.svg.is_none() && args.xplot.is_none();
    if to_stdout && console::is_for_a_terminal() {
        return Err(Fault::usage(
            "a page is not for terminals: name a file with --html, or a folder with --svg",
        ));
    }
    if args.xplot.is_some() && !matches!(args.about, About::Run(_)) {
        return Err(Fault::usage("--xplot: only a run has streams; name its number"));
    }
    let store = Store::open_existing(&record::store_path(args.store.as_deref())?)?;
    let mut made = Vec::new();
    let (name, page, about) = match &args.about {
        About::Run(id) => {
            let record = recorded(&store, *id)?;
            if let Some(folder) = &args.xplot {
                made.extend(sequences(folder, &record)?);
            }
            let about = told(&store, &record, *id)?;
            let (name, page) = of_run(&store, record)?;
            (name, page, about)
        }
        About::Named(name) => {
            let (name, page) = named(&store, name)?;
            let about = page.title.clone();
            (name, page, about)
        }
        About::Campaigns([before, after]) => {
            let (before, after) = (find(&store, Some(before))?, find(&store, Some(after))?);
            let (name, page) = of_campaign(&store, &after.name, Some(&before.name))?;
            (name, page, format!("campaign {} beside {}", after.name, before.name))
        }
        About::Since(since, host) => {
            let page = over_time(&store, *since, host.as_deref())?;
            let about = page.title.clone();
            ("routes".to_string(), page, about)
        }
    };
    if let Some(folder) = &args.svg {
        made.extend(drawings(folder, &name, &page)?);
    }
    match &args.html {
        Some(file) => {
            let text = page.html();
            into_file(file, &mut |out| out.write_all(text.as_bytes()))?;
            made.push(file.clone());
        }
        None if to_stdout => {
            let text = page.html();
            return Ok(written("the page", console::data().write_all(text.as_bytes())));
        }
        None => {}
    }
    console::say_line(Channel::Stdout, &format!("{about}:"));
    for path in made {
        console::say_line(Channel::Stdout, &path.display().to_string());
    }
    Ok(0)
}

/// Which run it is; and, where none was named, that a newer one has no samples.
fn told(store: &Store, record: &Record, named: Option<i64>) -> Result<String, Fault> {
    let about = page::run::about(record);
    let newest = Filter { newest: Some(1), ..Filter::default() };
    let newer = match named {
        Some(_) => None,
        None => store.records(&newest)?.pop().filter(|newest| newest.id != record.id),
    };
    Ok(newer.map_or(about.clone(), |newer| {
        format!(
            "{about} (run {} is newer, without samples of streams: 'datapump report {}' is about \
             it)",
            newer.id, newer.id
        )
    }))
}

/// The page of a run, and the beginning of the names of its files.
fn of_run(store: &Store, record: Record) -> Result<(String, Page), Fault> {
    let environments = environments(store, std::slice::from_ref(&record))?;
    Ok((format!("run-{}", record.id), page::run::page(record, &environments)))
}

fn recorded(store: &Store, id: Option<i64>) -> Result<Record, Fault> {
    match id {
        Some(id) => one(store, id),
        None => newest(store),
    }
}

/// A campaign of that name, or a host of that name.
fn named(store: &Store, name: &str) -> Result<(String, Page), Fault> {
    if let Some(model) = store.model(name)? {
        return of_host(store, &model);
    }
    match find(store, Some(name)) {
        Ok(campaign) => of_campaign(store, &campaign.name, None),
        Err(fault) => {
            let text = format!("{}; nor is there a model of a host '{name}'", fault.text);
            Err(Fault { text, ..fault })
        }
    }
}

fn of_campaign(store: &Store, name: &str, earlier: Option<&str>) -> Result<(String, Page), Fault> {
    let records = cells(store, name)?;
    let before = earlier.map(|earlier| cells(store, earlier)).transpose()?;
    let earlier = earlier.zip(before.as_deref());
    let earlier = earlier.map(|(name, records)| Campaign { name, records });
    let page = page::campaign::page(Campaign { name, records: &records }, earlier);
    Ok((name.to_string(), page))
}

/// What campaigns found on each host since a time.
fn over_time(store: &Store, since: Since, host: Option<&str>) -> Result<Page, Fault> {
    let since_unix_s = since.unix_s(unix_s());
    let mut experiments = campaigns(store)?;
    experiments.retain(|experiment| experiment.started_unix_s >= since_unix_s);
    let mut routes = routes(store, &experiments)?;
    routes.retain(|route| host.is_none_or(|host| route.host.contains(host)));
    let since = utc::utc(Duration::try_from_secs_f64(since_unix_s).unwrap_or_default());
    let since: String = since.chars().take(16).collect();
    Ok(page::trend::page(&routes, &since.replace('T', " ")))
}

/// The routes of these campaigns, which are in the order of their time.
pub(super) fn routes(store: &Store, experiments: &[Experiment]) -> Result<Vec<Route>, Fault> {
    let mut records = Vec::new();
    for experiment in experiments {
        records.push(cells(store, &experiment.name)?);
    }
    let campaigns: Vec<trend::Campaign<'_>> = experiments
        .iter()
        .zip(&records)
        .map(|(experiment, records)| trend::Campaign {
            name: &experiment.name,
            started_unix_s: experiment.started_unix_s,
            records,
        })
        .collect();
    Ok(trend::routes(&campaigns))
}

fn of_host(store: &Store, model: &HostModel) -> Result<(String, Page), Fault> {
    let filter =
        |experiment: &str| Filter { experiment: Some(experiment.into()), ..Filter::default() };
    let mut records = Vec::new();
    for experiment in model.experiment.split_whitespace() {
        records.extend(store.records(&filter(experiment))?);
    }
    let known = environments(store, &records)?;
    let study = (!records.is_empty()).then(|| studied(&records, &known));
    let copies = Filter { command: Some("copy".into()), newest: Some(COPIES), ..Filter::default() };
    let mut copies = store.records(&copies)?;
    copies.retain(|record| record.predicted.is_some());
    let of_copies = environments(store, &copies)?;
    let here = |id: i64| of_copies.get(&id).is_some_and(|known| known.host == model.host);
    copies.retain(|record| {
        let sink = record.sink.as_ref().map_or(0, |side| side.environment);
        here(record.source.environment) || here(sink)
    });
    let host = Host { model, study: study.as_ref().map(|study| &study.full), copies: &copies };
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' };
    Ok((
        format!("host-{}", model.host.chars().map(plain).collect::<String>()),
        page::host::page(host),
    ))
}

fn one(store: &Store, id: i64) -> Result<Record, Fault> {
    let mut records = store.records(&Filter { ids: vec![id], ..Filter::default() })?;
    let record = records.pop().ok_or_else(|| {
        let path = store.path().display();
        let text = format!(
            "there is no run {id} in '{path}'; 'datapump results list' shows those that are there"
        );
        Fault::new(Class::Local, text)
    })?;
    Ok(Record { paths: store.paths(id)?, ..record })
}

/// The newest run whose streams were sampled, else the newest of all.
fn newest(store: &Store) -> Result<Record, Fault> {
    let filter = Filter { newest: Some(LOOKED_AT), ..Filter::default() };
    let mut newest = None;
    for record in store.records(&filter)?.into_iter().rev() {
        let paths = store.paths(record.id)?;
        if !paths.is_empty() {
            return Ok(Record { paths, ..record });
        }
        newest = newest.or(Some(record));
    }
    newest.ok_or_else(|| {
        let path = store.path().display();
        Fault::new(Class::Local, format!("no run is recorded in '{path}'; a copy records itself"))
    })
}

/// The time-sequence of each stream as a file for xplot.
fn sequences(folder: &Path, record: &Record) -> Result<Vec<PathBuf>, Fault> {
    let evidence = evidence::of_record(record, &BTreeMap::new());
    if evidence.streams.is_empty() {
        let text = format!(
            "run {} has no samples of data streams: it ran inside one process, or sampling was \
             off (--path-samples off)",
            record.id
        );
        return Err(Fault::new(Class::Local, text));
    }
    fs::create_dir_all(folder).map_err(|why| Fault::io("make", folder, &why))?;
    let round_trip_s = diagnose(&evidence).figures.round_trip_min_s;
    let mut made = Vec::new();
    for stream in &evidence.streams {
        let title = format!("run {}, stream {}", record.id, stream.number);
        let text = xplot::stream(&title, &stream.sent, round_trip_s);
        let path = folder.join(format!("run-{}-stream-{}.xpl", record.id, stream.number));
        into_file(&path, &mut |out| out.write_all(text.as_bytes()))?;
        made.push(path);
    }
    Ok(made)
}

/// Every chart of a page as a file in a folder, which is made where it is not there.
fn drawings(folder: &Path, name: &str, page: &Page) -> Result<Vec<PathBuf>, Fault> {
    fs::create_dir_all(folder).map_err(|why| Fault::io("make", folder, &why))?;
    let mut made = Vec::new();
    for figure in page.figures() {
        let path = folder.join(format!("{name}-{}.svg", figure.name));
        let text = figure.file();
        into_file(&path, &mut |out| out.write_all(text.as_bytes()))?;
        made.push(path);
    }
    Ok(made)
}

/// Number of the newest runs that are searched for one with samples.
const LOOKED_AT: u32 = 100;
/// Number of the newest copies that are looked at for predictions.
const COPIES: u32 = 500;
