//! Campaigns in the results store: shown, compared, and what is best of them kept as profiles.

use std::collections::BTreeSet;
use std::fs;

use super::under_way::as_typed;
use crate::base::fault::{Class, Fault};
use crate::campaign::study;
use crate::cli::args::Options;
use crate::cli::knobs::FORMATS;
use crate::cli::profile;
use crate::cli::record;
use crate::cli::results;
use crate::cli::voice::Voice;
use crate::record::export::Format;
use crate::record::sample::Record;
use crate::report::campaign as page;
use crate::report::sheet::Form;
use crate::results::{Experiment, Filter, Store};

pub fn show(named: Option<&str>, options: &Options, voice: &Voice) -> Result<(), Fault> {
    let store = open(options)?;
    let experiment = find(&store, named)?;
    let name = &experiment.name;
    let records = cells(&store, name)?;
    let left = left(&experiment, &records);
    let usual = if options.json { "json" } else { "text" };
    let format = options.format.map_or(usual, |at| FORMATS[at]);
    let text = match format {
        "markdown" => page::page(name, &records, &left, Form::Markdown),
        "text" => page::page(name, &records, &left, Form::Text),
        other => {
            let known = Format::ALL.into_iter().find(|(name, _)| *name == other);
            let (_, format) = known.ok_or_else(|| Fault::usage(format!("no format {other}")))?;
            return results::export(&store, &records, format, options.output.as_deref()).map(drop);
        }
    };
    put(&text, options, voice)
}

/// Hosts of which cells are missing, and how many; none where its plan can no longer be read.
fn left(experiment: &Experiment, records: &[Record]) -> Vec<(String, usize)> {
    let Ok((campaign, _)) = as_typed(experiment) else { return Vec::new() };
    let measured = measured(records);
    let mut cells = campaign.plan.cells();
    cells.retain(|cell| !measured.contains(&cell.index));
    let of = |(at, name)| (name, cells.iter().filter(|cell| cell.host == at).count());
    campaign.names().into_iter().enumerate().map(of).filter(|(_, left)| *left > 0).collect()
}

pub fn compare(named: [&str; 2], options: &Options, voice: &Voice) -> Result<(), Fault> {
    let store = open(options)?;
    let [before, after] = named.map(|name| find(&store, Some(name)));
    let (before, after) = (before?.name, after?.name);
    let (old, new) = (cells(&store, &before)?, cells(&store, &after)?);
    let form = match options.format.map(|at| FORMATS[at]) {
        None | Some("text") => Form::Text,
        Some("markdown") => Form::Markdown,
        Some(other) => {
            return Err(Fault::usage(format!(
                "--format '{other}': a comparison is written as text or markdown"
            )));
        }
    };
    put(&page::comparison([&before, &after], &old, &new, form), options, voice)
}

/// Writes what is best for each host where `copy --profile HOST` finds it.
pub fn profiles(named: Option<&str>, options: &Options, voice: &Voice) -> Result<(), Fault> {
    let store = open(options)?;
    let name = find(&store, named)?.name;
    let rows = study::rows(&cells(&store, &name)?);
    for best in study::best(&rows) {
        let path = profile::path_of(best.host).map_err(Fault::usage)?;
        let folder = path.parent().unwrap_or(&path);
        fs::create_dir_all(folder).map_err(|why| Fault::io("make", folder, &why))?;
        let text = page::profile(&name, &best);
        fs::write(&path, &text).map_err(|why| Fault::write("write", &path, &why))?;
        voice.summary(&format!("{}:\n{text}", path.display()));
    }
    Ok(())
}

fn put(text: &str, options: &Options, voice: &Voice) -> Result<(), Fault> {
    match &options.output {
        Some(file) => results::into_file(file, &mut |out| out.write_all(text.as_bytes())),
        None => {
            voice.summary(text);
            Ok(())
        }
    }
}

pub fn open(options: &Options) -> Result<Store, Fault> {
    Store::open_existing(&record::store_path(options)?)
}

pub fn open_to_write(options: &Options) -> Result<Store, Fault> {
    Store::open(&record::store_path(options)?)
}

/// The campaign of this name, or of which the name ends so; the newest where none is named.
pub fn find(store: &Store, named: Option<&str>) -> Result<Experiment, Fault> {
    let mut all = store.experiments()?;
    all.retain(|experiment| experiment.command == COMMAND);
    let names = all.iter().map(|experiment| experiment.name.clone()).collect::<Vec<_>>();
    let fits = |experiment: &Experiment| named.is_none_or(|name| experiment.name.ends_with(name));
    all.into_iter().rfind(fits).ok_or_else(|| {
        let store = store.path().display();
        let text = match named {
            Some(name) if !names.is_empty() => {
                format!("there is no campaign '{name}' in '{store}', but {}", names.join(", "))
            }
            _ => format!("no campaign is recorded in '{store}': begin one with --hosts FILE"),
        };
        Fault::new(Class::Local, text)
    })
}

/// Its cells, in the order in which they were measured.
pub fn cells(store: &Store, name: &str) -> Result<Vec<Record>, Fault> {
    store.records(&Filter { experiment: Some(name.to_string()), ..Filter::default() })
}

/// The places of these cells in the order of all.
pub fn measured(records: &[Record]) -> BTreeSet<u32> {
    records.iter().filter_map(|record| Some(record.place.as_ref()?.order_index)).collect()
}

pub const COMMAND: &str = "sweep";
