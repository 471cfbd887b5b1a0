//! `datapump sweep`: plans, measures, shows and compares campaigns.

mod hosts;
mod install;
mod kept;
mod regular;
mod under_way;

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use self::hosts::Host;
use self::install::InstallArgs;
use self::regular::Regular;
use self::under_way::Trouble;
use super::console::Console;
use super::options::recording::RESULTS;
use super::options::sweeping::{self, Preset};
use super::options::{copying, showing};
use super::order::{self, Show};
use super::record;
use super::settings::{remote, settings};
use super::typed::Typed;
use crate::telemetry::Destination;
use analysis::campaign::{self, Extent, Grid, Plan, Setting};
use analysis::report::campaign as page;
use analysis::report::json::{self, Event};
use analysis::study::experiment::Order;
use base::codec::{Coding, Compress};
use base::fault::Fault;
use base::job::Remote;
use base::settings::{DataSet, Settings};
use base::units::Nanos;

pub(crate) use self::kept::{CompareArgs, ProfileArgs, ShowCampaignArgs};
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
    /// The file that names the hosts.
    hosts: PathBuf,
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

impl SweepArgs {
    pub(super) fn of(typed: &Typed) -> Result<SweepArgs, String> {
        let words = typed.words("CAMPAIGN");
        let words: Vec<String> = words.iter().map(|w| w.to_string_lossy().into_owned()).collect();
        match (&words[..], typed.has(&sweeping::RESUME)) {
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
                "sweep {}: write show, compare, profile or install, --resume, or --hosts FILE to \
                 measure",
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
    let units = typed.value(&sweeping::UNITS)?;
    Ok(SweepArgs::Install(InstallArgs { every, units, hosts: args.hosts }, args.show))
}

/// A resumed campaign keeps its hosts and its grid.
fn goes_on_as_it_was(typed: &Typed) -> Result<(), String> {
    let of_a_grid = |name: &&str| {
        let mut grid = sweeping::TABLE.iter().map(|option| option.description().name);
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
        let preset = typed.value(&sweeping::PRESET)?;
        let (passes, order) = match preset {
            Some(_) => (1, Order::Given),
            None => (PASSES, Order::Random),
        };
        let request_bytes = typed.value(&sweeping::REQUEST_SIZE)?.unwrap_or(REQUEST_BYTES);
        let args = BeginArgs {
            hosts: typed.value(&sweeping::HOSTS)?.ok_or(NO_HOSTS)?,
            grid: grid(typed, preset)?,
            passes: typed.value(&sweeping::REPEAT)?.unwrap_or(passes),
            order: typed.value(&sweeping::ORDER)?.unwrap_or(order),
            seed: typed.value_or_default(&copying::SEED)?,
            data: typed.value_or_default(&sweeping::DATA)?,
            settings: Settings { request_bytes, ..settings(typed)? },
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
        let streams = args.grid.streams.iter().copied().max().unwrap_or(1);
        order::memory_suffices(&Settings { streams, ..args.settings.clone() })?;
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
    hosts: Vec<Host>,
    plan: Plan,
    settings: Settings,
}

impl Campaign {
    fn of(args: &BeginArgs) -> Result<Campaign, String> {
        let shown = args.hosts.display();
        let text = fs::read_to_string(&args.hosts).map_err(|why| {
            format!("--hosts '{shown}': cannot be read: {why}; name a file with one host per line")
        })?;
        let hosts = hosts::read(&text).map_err(|why| format!("--hosts '{shown}': {why}"))?;
        Ok(Campaign::with_hosts(hosts, args))
    }

    fn with_hosts(hosts: Vec<Host>, args: &BeginArgs) -> Campaign {
        let plan = Plan {
            hosts: hosts.len(),
            auto: auto(&args.grid.levels),
            passes: args.passes,
            order: args.order,
            seed: args.seed,
            grid: args.grid.clone(),
        };
        Campaign { hosts, plan, settings: args.settings.clone() }
    }

    fn names(&self) -> Vec<String> {
        self.hosts.iter().map(|host| host.name.clone()).collect()
    }
}

/// What is typed, else what the preset has, else the usual.
fn grid(typed: &Typed, preset: Option<Preset>) -> Result<Grid, String> {
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
    Ok(Grid {
        windows: typed.value(&sweeping::WINDOWS)?.unwrap_or(windows),
        streams: typed.value(&sweeping::STREAMS)?.unwrap_or(streams),
        levels: typed.value(&sweeping::LEVELS)?.unwrap_or(levels),
        extents,
    })
}

/// The settings of a copy without options; where levels are varied, its own choice of compression
/// too.
fn auto(levels: &[Compress]) -> Vec<Setting> {
    let usual = Settings::default();
    let of = |compress| Setting { window_bytes: None, streams: usual.streams, compress };
    let compresses = levels.iter().any(|level| level.is_on());
    let compressed = compresses.then(|| of(Compress::Auto));
    [of(Compress::Off)].into_iter().chain(compressed).collect()
}

fn begin(args: &BeginArgs, console: &Arc<Console>) -> Result<u8, String> {
    let campaign = Campaign::of(args)?;
    if let Some(every) = args.regular.every.filter(|_| !args.dry_run) {
        return Ok(ended(console, regular::repeat(every, args.metrics.as_ref(), console)));
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
    console.event(&super::start("sweep", campaign.names(), None, Some(&campaign.settings)));
    console.remark(&page::opening(&campaign.names(), &campaign.plan));
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
                        each line";
const WINDOWS: &[Option<u32>] = &[Some(64 << 10), Some(256 << 10), Some(1 << 20), None];
const STREAMS: &[u16] = &[1, 4, 8, 16];
const PASSES: u32 = 3;
const TIME: Nanos = Nanos::from_millis(10_000);
/// Requests in flight at the end are still sent, over the smallest window too.
const REQUEST_BYTES: u32 = 64 << 10;
