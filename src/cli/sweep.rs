//! `datapump sweep`: plans, measures, shows and compares campaigns.

mod at_store;
mod hosts;
mod install;
mod kept;
pub(super) mod measured;
mod regular;
mod under_way;

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use self::at_store::StoreArgs;
use self::hosts::Host;
use self::install::InstallArgs;
use self::regular::Regular;
use self::under_way::Trouble;
use super::command_id::CommandId;
use super::console::Console;
use super::options::recording::RESULTS;
use super::options::sweeping::{self, Preset};
use super::options::{copying, showing, storage, stores};
use super::order::{self, Show};
use super::record;
use super::settings::{remote, settings};
use super::typed::Typed;
use crate::telemetry::Destination;
use analysis::campaign::{self, Axes, Extent, Grid, Plan, Setting};
use analysis::report::campaign as page;
use analysis::report::json::{self, Event};
use analysis::study::experiment::Order;
use base::codec::{Coding, Compress};
use base::fault::{Fault, reason};
use base::job::Remote;
use base::settings::{DataSet, Settings};
use base::units::Nanos;

pub(crate) use self::kept::{CompareCampaignsArgs, ProfileArgs, ShowCampaignArgs};
pub(super) use self::kept::{cells, find};
pub(crate) use self::kept::{recorded, run_compare, run_profile, run_show};

/// The arguments of `sweep` alone, which begins or resumes a campaign.
#[derive(Debug)]
pub(crate) enum SweepArgs {
    Begin(Box<BeginArgs>),
    /// Units of systemd that begin it regularly.
    Install(InstallArgs, Show),
    Resume {
        /// `None` for the newest.
        campaign: Option<String>,
        /// Only say what is left to measure.
        dry_run: bool,
        show: Show,
        metrics: Option<Destination>,
        live: Option<u16>,
        store: Option<PathBuf>,
    },
}

/// The arguments of a campaign from its beginning.
#[derive(Debug)]
pub(crate) struct BeginArgs {
    measured: Measured,
    purpose: Purpose,
    grid: Grid,
    passes: u32,
    order: Order,
    seed: u64,
    data: DataSet,
    settings: Settings,
    remote: Remote,
    regular: Regular,
    dry_run: bool,
    show: Show,
    metrics: Option<Destination>,
    live: Option<u16>,
    store: Option<PathBuf>,
}

/// Whether settings are compared, or one is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    Compare,
    Measure,
}

impl Purpose {
    /// The command that asks for it.
    fn command(self) -> &'static str {
        match self {
            Purpose::Compare => kept::COMMAND,
            Purpose::Measure => "measure",
        }
    }
}

/// What is measured.
#[derive(Debug)]
enum Measured {
    /// The hosts that this file names.
    Hosts(PathBuf),
    Store(StoreArgs),
}

impl SweepArgs {
    pub(super) fn of(typed: &Typed) -> Result<SweepArgs, String> {
        if typed.command == CommandId::Measure {
            return measured::of(typed)?.ok_or_else(|| "it measures no store".to_string());
        }
        let words = typed.words("CAMPAIGN");
        let words: Vec<String> = words.iter().map(|w| w.to_string_lossy().into_owned()).collect();
        match (&words[..], typed.has(&sweeping::RESUME)) {
            ([word], false) if let Some(store) = StoreArgs::of(word, typed)? => {
                Ok(SweepArgs::Begin(Box::new(BeginArgs::at_store(store, typed)?)))
            }
            ([], false) => {
                let args = BeginArgs::of(typed)?;
                match typed.value(&sweeping::UNITS)? {
                    Some(_) => Err("--units is where 'sweep install' writes; leave it out".into()),
                    None => Ok(SweepArgs::Begin(Box::new(args))),
                }
            }
            ([word], false) if word == install::INSTALL => install_of(typed),
            ([] | [_], true) => {
                goes_on_as_it_was(typed)?;
                Ok(SweepArgs::Resume {
                    campaign: words.first().cloned(),
                    dry_run: typed.has(&copying::DRY_RUN),
                    show: Show::of(typed)?,
                    metrics: typed.value(&showing::METRICS)?,
                    live: order::live(typed)?,
                    store: typed.value(&RESULTS)?,
                })
            }
            _ => Err(format!(
                "sweep {}: write show, compare, profile or install, --resume, or --hosts FILE or \
                 s3://BUCKET/PREFIX to measure",
                words.join(" ")
            )),
        }
    }
}

/// What is wrong with the campaign is told now, and not when the timer fires.
fn install_of(typed: &Typed) -> Result<SweepArgs, String> {
    let args = BeginArgs::of(typed)?;
    if args.dry_run {
        return Err("sweep install --dry-run: leave --dry-run out".into());
    }
    let every = args.regular.every.ok_or("sweep install: add how often, such as --every 6h")?;
    if matches!(args.metrics, Some(Destination::Address(_))) {
        return Err(
            "sweep install --metrics: between two campaigns of a timer nobody serves a port; \
                    name a file, for node_exporter"
                .into(),
        );
    }
    let Measured::Hosts(hosts) = args.measured else { return Err(NO_HOSTS.into()) };
    let units = typed.value(&sweeping::UNITS)?;
    Ok(SweepArgs::Install(InstallArgs { every, units, hosts }, args.show))
}

/// A resumed campaign keeps its hosts and its grid.
fn goes_on_as_it_was(typed: &Typed) -> Result<(), String> {
    let of_a_grid = |name: &&str| {
        let options = sweeping::TABLE.iter().chain(stores::TABLE);
        let mut grid = options.map(|option| option.description().name);
        *name != sweeping::RESUME.name && grid.any(|known| known == *name)
    };
    match typed.names().find(of_a_grid) {
        None => Ok(()),
        Some(name) => Err(format!(
            "--{name} with --resume: a resumed campaign keeps its original options; leave it out, \
             or start a new campaign without --resume"
        )),
    }
}

impl BeginArgs {
    fn of(typed: &Typed) -> Result<BeginArgs, String> {
        at_store::refuse_without_store(typed)?;
        let preset = typed.value(&sweeping::PRESET)?;
        let hosts = typed.value(&sweeping::HOSTS)?.ok_or(NO_HOSTS)?;
        let request_bytes = typed.value(&sweeping::REQUEST_SIZE)?.unwrap_or(REQUEST_BYTES);
        let settings = Settings { request_bytes, ..settings(typed)? };
        let (grid, streams) = grid(typed, preset)?;
        order::memory_suffices(&Settings { streams, ..settings.clone() })?;
        BeginArgs::with((Measured::Hosts(hosts), grid, settings), preset, typed)
    }

    fn at_store(store: StoreArgs, typed: &Typed) -> Result<BeginArgs, String> {
        let grid = at_store::grid(typed)?;
        let is_typed = typed.value(&storage::MEMORY)?.is_some();
        let settings = at_store::with_memory(&grid, settings(typed)?, is_typed)?;
        BeginArgs::with((Measured::Store(store), grid, settings), None, typed)
    }

    fn with(
        (measured, grid, settings): (Measured, Grid, Settings),
        preset: Option<Preset>,
        typed: &Typed,
    ) -> Result<BeginArgs, String> {
        let (passes, order) = match preset {
            Some(_) => (1, Order::Given),
            None => (PASSES, Order::Random),
        };
        let args = BeginArgs {
            measured,
            purpose: Purpose::Compare,
            grid,
            passes: typed.value(&sweeping::REPEAT)?.unwrap_or(passes),
            order: typed.value(&sweeping::ORDER)?.unwrap_or(order),
            seed: typed.value_or_default(&copying::SEED)?,
            data: typed.value_or_default(&sweeping::DATA)?,
            settings,
            remote: remote(typed)?,
            regular: Regular::of(typed)?,
            dry_run: typed.has(&copying::DRY_RUN),
            show: Show::of(typed)?,
            metrics: typed.value(&showing::METRICS)?,
            live: order::live(typed)?,
            store: typed.value(&RESULTS)?,
        };
        if args.live.is_some() && (args.regular.every.is_some() || args.dry_run) {
            return Err("--live is for a campaign that is measured now: leave out --every and \
                        --dry-run, or --live"
                .into());
        }
        Ok(args)
    }
}

pub(super) fn run(args: &SweepArgs, started: Instant) -> Result<u8, String> {
    match args {
        SweepArgs::Begin(args) => begin(args, &Arc::new(Console::new(args.show, started))),
        SweepArgs::Install(args, show) => {
            let console = Console::new(*show, started);
            let done = install::write(args).map(|written| {
                written.iter().for_each(|path| console.summary(&path.display().to_string()));
                console.remark(&install::next_step(&written[written.len() - 1]));
                None
            });
            Ok(ended(&console, done))
        }
        SweepArgs::Resume { campaign, dry_run, show, metrics, live, store } => {
            let console = Arc::new(Console::new(*show, started));
            let store = record::store_path(store.as_deref());
            let done = store.and_then(|store| {
                let told = |campaign: &Campaign| tell(campaign, &console);
                let which = (campaign.as_deref(), *dry_run);
                let shown = (metrics.as_ref(), *live);
                under_way::resume(which, shown, &store, &console, &told)
            });
            Ok(ended(&console, done))
        }
    }
}

/// The campaign that a command line asks for.
struct Campaign {
    routes: Routes,
    plan: Plan,
    purpose: Purpose,
    settings: Settings,
}

/// Where its copies go.
enum Routes {
    Hosts(Vec<Host>),
    Store(StoreArgs),
}

impl Campaign {
    fn of(args: &BeginArgs) -> Result<Campaign, String> {
        let Measured::Hosts(file) = &args.measured else {
            return Ok(Campaign::with_hosts(Vec::new(), args));
        };
        let shown = file.display();
        let text = fs::read_to_string(file).map_err(|why| {
            format!(
                "--hosts '{shown}': cannot be read: {}; name a file with one host per line",
                reason(&why)
            )
        })?;
        let hosts = hosts::read(&text).map_err(|why| format!("--hosts '{shown}': {why}"))?;
        Ok(Campaign::with_hosts(hosts, args))
    }

    /// The hosts count where no store is measured.
    fn with_hosts(hosts: Vec<Host>, args: &BeginArgs) -> Campaign {
        let routes = match &args.measured {
            Measured::Hosts(_) => Routes::Hosts(hosts),
            Measured::Store(store) => Routes::Store(store.clone()),
        };
        let plan = Plan {
            hosts: routes.names().len(),
            auto: auto(&args.grid.axes, args.purpose),
            passes: args.passes,
            order: args.order,
            seed: args.seed,
            grid: args.grid.clone(),
        };
        Campaign { routes, plan, purpose: args.purpose, settings: args.settings.clone() }
    }

    fn names(&self) -> Vec<String> {
        self.routes.names()
    }
}

impl Routes {
    fn names(&self) -> Vec<String> {
        match self {
            Routes::Hosts(hosts) => hosts.iter().map(|host| host.name.clone()).collect(),
            Routes::Store(store) => store.routes(),
        }
    }
}

/// What is typed, else what the preset has, else the usual; and the most streams of them.
fn grid(typed: &Typed, preset: Option<Preset>) -> Result<(Grid, u16), String> {
    let kib = |kib: &u32| Some(kib << 10);
    let zlib = |level: &u8| match level {
        0 => Compress::Off,
        level => Compress::Always(Coding::Zlib(*level)),
    };
    let (windows, streams, levels) = match preset {
        Some(Preset::Slac) => (
            campaign::SLAC_WINDOWS_KIB.iter().map(kib).collect(),
            campaign::SLAC_STREAMS.to_vec(),
            campaign::SLAC_LEVELS.iter().map(zlib).collect(),
        ),
        None => (WINDOWS.to_vec(), STREAMS.to_vec(), vec![Compress::Off]),
    };
    let extents = match (
        typed.value(&sweeping::TIME)?,
        typed.value(&sweeping::SIZES)?,
        typed.value(&sweeping::DURATIONS)?,
    ) {
        (None, None, None) => vec![Extent::Time(TIME)],
        (Some(time), None, None) => vec![Extent::Time(time)],
        (None, Some(sizes), None) => sizes.into_iter().map(Extent::Bytes).collect(),
        (None, None, Some(times)) => times.into_iter().map(Extent::Time).collect(),
        _ => {
            return Err(
                "--time, --sizes and --durations each say when a copy ends: keep one".into()
            );
        }
    };
    let streams = typed.value(&sweeping::STREAMS)?.unwrap_or(streams);
    let most = streams.iter().copied().max().unwrap_or(1);
    let axes = Axes::Path {
        windows: typed.value(&sweeping::WINDOWS)?.unwrap_or(windows),
        streams,
        levels: typed.value(&sweeping::LEVELS)?.unwrap_or(levels),
    };
    Ok((Grid { axes, extents }, most))
}

/// The settings of a copy without options; where levels are varied, its own choice of compression
/// too.
fn auto(axes: &Axes, purpose: Purpose) -> Vec<Setting> {
    let Axes::Path { levels, .. } = axes else {
        let is_chosen = purpose == Purpose::Measure && !axes.settings().is_empty();
        return if is_chosen { Vec::new() } else { at_store::auto() };
    };
    let usual = Settings::default();
    let of = |compress| Setting::Path { window_bytes: None, streams: usual.streams, compress };
    let compresses = levels.iter().any(|level| level.is_on());
    let compressed = compresses.then(|| of(Compress::Auto));
    [of(Compress::Off)].into_iter().chain(compressed).collect()
}

fn begin(args: &BeginArgs, console: &Arc<Console>) -> Result<u8, String> {
    let campaign = Campaign::of(args)?;
    if let Some(every) = args.regular.every.filter(|_| !args.dry_run) {
        return Ok(ended(console, regular::repeat(every, args.metrics.as_ref(), console)));
    }
    if let Measured::Store(store) = &args.measured
        && let Err(fault) = store.check(args.dry_run)
    {
        return Ok(ended(console, Err(fault)));
    }
    tell(&campaign, console);
    if args.dry_run {
        let cells = campaign.plan.cells();
        console.summary(&page::order(&campaign.names(), &cells));
        console.event(&Event::Order { cells: page::rows(&campaign.names(), &cells) });
        return Ok(ended(console, Ok(None)));
    }
    Ok(ended(console, under_way::begin(&campaign, args, console)))
}

fn tell(campaign: &Campaign, console: &Console) {
    let command = campaign.purpose.command();
    console.event(&super::start(command, campaign.names(), None, Some(&campaign.settings)));
    console.remark(&match campaign.purpose {
        Purpose::Compare => page::opening(&campaign.names(), &campaign.plan),
        Purpose::Measure => page::measuring(&campaign.names(), &campaign.plan),
    });
}

/// Reports what went wrong, as text or JSON; returns the exit code.
fn ended(console: &Console, done: Result<Trouble, Fault>) -> u8 {
    console.clear();
    let trouble = done.unwrap_or_else(|fault| Some((fault.class, fault.text)));
    if let Some((_, text)) = &trouble {
        console.error(text);
    }
    let (class, text) = trouble.unzip();
    let end = json::end(class, text);
    let code = end.exit_code;
    console.event(&Event::End(Box::new(end)));
    code
}

const NO_HOSTS: &str = "a campaign needs hosts: write --hosts FILE, with [USER@]HOST[:FOLDER] on \
                        each line; or s3://BUCKET/PREFIX, to measure a store";
const WINDOWS: &[Option<u32>] = &[Some(64 << 10), Some(256 << 10), Some(1 << 20), None];
const STREAMS: &[u16] = &[1, 4, 8, 16];
const PASSES: u32 = 3;
const TIME: Nanos = Nanos::from_millis(10_000);
/// Requests in flight at the end are still sent, over the smallest window too.
const REQUEST_BYTES: u32 = 64 << 10;
