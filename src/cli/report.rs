//! `datapump report`: web pages and drawings of what is recorded.

use std::fs;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};

use super::options::recording::{HTML, RESULTS, SVG};
use super::results::{ended, environments, into_file, number};
use super::typed::Typed;
use super::{console, record, written};
use crate::results::{Filter, Store};
use analysis::page::{self, Page};
use analysis::record::sample::Record;
use base::fault::{Class, Fault};

/// The arguments of `report`.
#[derive(Debug)]
pub(crate) struct ReportArgs {
    about: About,
    html: Option<PathBuf>,
    svg: Option<PathBuf>,
    store: Option<PathBuf>,
}

/// What a report is about.
#[derive(Debug)]
enum About {
    /// `None` for the newest run that has samples.
    Run(Option<i64>),
}

impl ReportArgs {
    pub(super) fn of(typed: &Typed) -> Result<ReportArgs, String> {
        let word = typed.word("RUN");
        Ok(ReportArgs {
            about: About::Run(word.as_ref().map(number).transpose()?),
            html: typed.value(&HTML)?,
            svg: typed.value(&SVG)?,
            store: typed.value(&RESULTS)?,
        })
    }
}

pub(super) fn run(args: &ReportArgs) -> u8 {
    ended(report(args))
}

fn report(args: &ReportArgs) -> Result<u8, Fault> {
    if args.html.is_none() && args.svg.is_none() && io::stdout().is_terminal() {
        return Err(Fault::usage(
            "a page is not for terminals: name a file with --html, or a folder with --svg",
        ));
    }
    let store = Store::open_existing(&record::store_path(args.store.as_deref())?)?;
    let (name, page) = match &args.about {
        About::Run(id) => of_run(&store, *id)?,
    };
    let mut made = Vec::new();
    if let Some(folder) = &args.svg {
        made.extend(drawings(folder, &name, &page)?);
    }
    match &args.html {
        Some(file) => {
            let text = page.html();
            into_file(file, &mut |out| out.write_all(text.as_bytes()))?;
            made.push(file.clone());
        }
        None if args.svg.is_none() => {
            let text = page.html();
            return Ok(written("the page", io::stdout().lock().write_all(text.as_bytes())));
        }
        None => {}
    }
    for path in made {
        console::print_line(&mut io::stdout(), &path.display().to_string());
    }
    Ok(0)
}

/// The page of a run, and the beginning of the names of its files.
fn of_run(store: &Store, id: Option<i64>) -> Result<(String, Page), Fault> {
    let record = match id {
        Some(id) => one(store, id)?,
        None => newest(store)?,
    };
    let environments = environments(store, std::slice::from_ref(&record))?;
    Ok((format!("run-{}", record.id), page::run::page(&record, &environments)))
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
