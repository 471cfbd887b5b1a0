//! Campaigns in the results store: shows them, compares them, and writes the best as profiles.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use super::under_way::as_typed;
use crate::cli::console::Console;
use crate::cli::options::recording::{
    COMPARE_FORMAT, CampaignFormat, OUTPUT, RESULTS, SHOW_FORMAT,
};
use crate::cli::order::{Form as Spoken, Show};
use crate::cli::profile;
use crate::cli::record;
use crate::cli::results;
use crate::cli::typed::Typed;
use crate::results::{Experiment, Filter, Store};
use analysis::campaign::study;
use analysis::record::export::Format;
use analysis::record::sample::Record;
use analysis::report::campaign as page;
use analysis::report::sheet::Form;
use base::fault::{Class, Fault};

/// The arguments of `sweep show`.
#[derive(Debug)]
pub(crate) struct ShowCampaignArgs {
    /// `None` for the newest.
    campaign: Option<String>,
    format: CampaignFormat,
    output: Option<PathBuf>,
    show: Show,
    store: Option<PathBuf>,
}

/// The arguments of `sweep compare`.
#[derive(Debug)]
pub(crate) struct CompareCampaignsArgs {
    before: String,
    after: String,
    form: Form,
    output: Option<PathBuf>,
    show: Show,
    store: Option<PathBuf>,
}

/// The arguments of `sweep profile`.
#[derive(Debug)]
pub(crate) struct ProfileArgs {
    /// `None` for the newest.
    campaign: Option<String>,
    show: Show,
    store: Option<PathBuf>,
}

impl ShowCampaignArgs {
    pub(crate) fn of(typed: &Typed) -> Result<ShowCampaignArgs, String> {
        let show = Show::of(typed)?;
        let usual = match show.form {
            Spoken::Json => CampaignFormat::Runs(Format::Json),
            Spoken::Text => CampaignFormat::Page(Form::Text),
        };
        Ok(ShowCampaignArgs {
            campaign: campaigns(typed).into_iter().next(),
            format: typed.value(&SHOW_FORMAT)?.unwrap_or(usual),
            output: typed.value(&OUTPUT)?,
            show,
            store: typed.value(&RESULTS)?,
        })
    }
}

impl CompareCampaignsArgs {
    pub(crate) fn of(typed: &Typed) -> Result<CompareCampaignsArgs, String> {
        let [before, after] = campaigns(typed).try_into().map_err(|_| TWO)?;
        Ok(CompareCampaignsArgs {
            before,
            after,
            form: typed.value_or_default(&COMPARE_FORMAT)?,
            output: typed.value(&OUTPUT)?,
            show: Show::of(typed)?,
            store: typed.value(&RESULTS)?,
        })
    }
}

impl ProfileArgs {
    pub(crate) fn of(typed: &Typed) -> Result<ProfileArgs, String> {
        Ok(ProfileArgs {
            campaign: campaigns(typed).into_iter().next(),
            show: Show::of(typed)?,
            store: typed.value(&RESULTS)?,
        })
    }
}

fn campaigns(typed: &Typed) -> Vec<String> {
    let words = typed.words("CAMPAIGN");
    words.iter().map(|word| word.to_string_lossy().into_owned()).collect()
}

pub(crate) fn run_show(args: &ShowCampaignArgs, started: Instant) -> u8 {
    let console = Console::new(args.show, started);
    ended(&console, show(args, &console))
}

pub(crate) fn run_compare(args: &CompareCampaignsArgs, started: Instant) -> u8 {
    let console = Console::new(args.show, started);
    ended(&console, compare(args, &console))
}

pub(crate) fn run_profile(args: &ProfileArgs, started: Instant) -> u8 {
    let console = Console::new(args.show, started);
    ended(&console, profiles(args, &console))
}

/// The output is already written; only an error is left to report.
fn ended(console: &Console, done: Result<(), Fault>) -> u8 {
    let Err(fault) = done else { return 0 };
    console.error(&fault.text);
    fault.class.exit_code()
}

fn show(args: &ShowCampaignArgs, console: &Console) -> Result<(), Fault> {
    let store = open(args.store.as_deref())?;
    let experiment = find(&store, args.campaign.as_deref())?;
    let name = &experiment.name;
    let records = cells(&store, name)?;
    let left = left(&experiment, &records);
    match args.format {
        CampaignFormat::Page(form) => {
            put(&page::page(name, &records, &left, form), args.output.as_deref(), console)
        }
        CampaignFormat::Runs(format) => {
            results::write_runs(&store, &records, format, args.output.as_deref()).map(drop)
        }
    }
}

/// Hosts with missing cells, and how many; none if the campaign's plan cannot be read any more.
fn left(experiment: &Experiment, records: &[Record]) -> Vec<(String, usize)> {
    let Ok((campaign, _)) = as_typed(experiment) else { return Vec::new() };
    let measured = measured(records);
    let mut cells = campaign.plan.cells();
    cells.retain(|cell| !measured.contains(&cell.index));
    let of = |(at, name)| (name, cells.iter().filter(|cell| cell.host == at).count());
    campaign.names().into_iter().enumerate().map(of).filter(|(_, left)| *left > 0).collect()
}

fn compare(args: &CompareCampaignsArgs, console: &Console) -> Result<(), Fault> {
    let store = open(args.store.as_deref())?;
    let [before, after] = [&args.before, &args.after].map(|name| find(&store, Some(name)));
    let (before, after) = (before?.name, after?.name);
    let (old, new) = (cells(&store, &before)?, cells(&store, &after)?);
    let text = page::comparison([&before, &after], &old, &new, args.form);
    put(&text, args.output.as_deref(), console)
}

/// Writes what is best for each host where `copy --profile HOST` finds it.
fn profiles(args: &ProfileArgs, console: &Console) -> Result<(), Fault> {
    let store = open(args.store.as_deref())?;
    let name = find(&store, args.campaign.as_deref())?.name;
    let rows = study::rows(&cells(&store, &name)?);
    let best = study::best(&rows);
    if best.iter().all(|best| best.is_at_store()) && !best.is_empty() {
        return Err(Fault::usage(format!(
            "{name} has measured a store, whose two ways have settings of their own: type the best \
             of 'datapump sweep show', as --request-size and --depth-sink or --depth-source"
        )));
    }
    for best in best {
        let path = profile::path_of(best.host).map_err(Fault::usage)?;
        let folder = path.parent().unwrap_or(&path);
        fs::create_dir_all(folder).map_err(|why| Fault::io("make", folder, &why))?;
        let text = page::profile(&name, &best);
        let shown = path.display();
        // One that somebody has written by hand stays.
        let before = fs::read_to_string(&path).unwrap_or_default();
        if !before.is_empty() && !page::is_profile(&before) {
            return Err(Fault::usage(format!(
                "'{shown}' exists and is not of a campaign: move it away to have it written anew"
            )));
        }
        fs::write(&path, &text).map_err(|why| Fault::write("write", &path, &why))?;
        let replaced = if before.is_empty() { "" } else { " (replaced)" };
        console.summary(&format!("{shown}{replaced}:\n{text}"));
    }
    Ok(())
}

fn put(text: &str, output: Option<&Path>, console: &Console) -> Result<(), Fault> {
    match output {
        Some(file) => results::into_file(file, &mut |out| out.write_all(text.as_bytes())),
        None => {
            console.summary(text);
            Ok(())
        }
    }
}

fn open(store: Option<&Path>) -> Result<Store, Fault> {
    Store::open_existing(&record::store_path(store)?)
}

/// The campaigns of a store, the oldest first.
pub(crate) fn recorded(store: &Store) -> Result<Vec<Experiment>, Fault> {
    let mut all = store.experiments()?;
    all.retain(|experiment| experiment.command == COMMAND);
    Ok(all)
}

/// The campaign of this name, or whose name ends with it; the newest if none is given.
pub(in crate::cli) fn find(store: &Store, named: Option<&str>) -> Result<Experiment, Fault> {
    let all = recorded(store)?;
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
pub(in crate::cli) fn cells(store: &Store, name: &str) -> Result<Vec<Record>, Fault> {
    store.records(&Filter { experiment: Some(name.to_string()), ..Filter::default() })
}

/// The positions of these cells in the order of all.
pub(super) fn measured(records: &[Record]) -> BTreeSet<u32> {
    records.iter().filter_map(|record| Some(record.place.as_ref()?.order_index)).collect()
}

pub(crate) const COMMAND: &str = "sweep";

const TWO: &str = "compare needs two campaigns: the earlier, and the later";
