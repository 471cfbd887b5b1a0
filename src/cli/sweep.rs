//! `datapump sweep`: a campaign is planned, measured, shown and compared.

mod hosts;
mod kept;
mod under_way;

use std::ffi::OsString;
use std::fs;
use std::sync::Arc;
use std::time::Instant;

use self::hosts::Host;
use self::under_way::Trouble;
use super::args::{Options, Preset, Sweeping};
use super::order::{self, Channel, Show};
use super::voice::Voice;
use crate::base::codec::{Compress, Way};
use crate::base::fault::Fault;
use crate::base::settings::Settings;
use crate::base::units::Nanos;
use crate::campaign::{self, Extent, Grid, Plan, Setting};
use crate::report::campaign as page;
use crate::report::json::{self, Event};
use crate::study::experiment::Order;

pub fn run(words: &[OsString], options: &Options, started: Instant) -> Result<u8, String> {
    let words: Vec<String> = words.iter().map(|w| w.to_string_lossy().into_owned()).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let voice =
        || Ok::<_, String>(Arc::new(Voice::new(Show::of(options, Channel::Stdout)?, started)));
    match (&words[..], options.sweep.resume) {
        ([], false) => begin(options, &voice()?),
        ([] | [_], true) => Ok(resume(words.first().copied(), options, &voice()?)),
        (["show", rest @ ..], false) if rest.len() < 2 => {
            let voice = voice()?;
            Ok(read(&voice, kept::show(rest.first().copied(), options, &voice)))
        }
        (["profile", rest @ ..], false) if rest.len() < 2 => {
            let voice = voice()?;
            Ok(read(&voice, kept::profiles(rest.first().copied(), options, &voice)))
        }
        (["compare", before, after], false) => {
            let voice = voice()?;
            Ok(read(&voice, kept::compare([before, after], options, &voice)))
        }
        (["compare", ..], _) => {
            Err("compare needs two campaigns: the earlier, and the later".into())
        }
        _ => Err(format!(
            "sweep {}: write show, compare or profile, --resume, or --hosts FILE to measure",
            words.join(" ")
        )),
    }
}

/// A campaign as it is meant.
struct Campaign {
    hosts: Vec<Host>,
    plan: Plan,
    settings: Settings,
}

impl Campaign {
    fn of(options: &Options) -> Result<Campaign, String> {
        let file = options.sweep.hosts.as_ref().ok_or(NO_HOSTS)?;
        let shown = file.display();
        let text = fs::read_to_string(file).map_err(|why| {
            format!("--hosts '{shown}': cannot be read: {why}; name a file with a host a line")
        })?;
        let hosts = hosts::read(&text).map_err(|why| format!("--hosts '{shown}': {why}"))?;
        Campaign::with_hosts(hosts, options)
    }

    fn with_hosts(hosts: Vec<Host>, options: &Options) -> Result<Campaign, String> {
        let Sweeping { preset, passes, order, request_bytes, .. } = &options.sweep;
        let grid = grid(&options.sweep)?;
        let plan = Plan {
            hosts: hosts.len(),
            auto: auto(&grid.levels),
            passes: passes.unwrap_or(if preset.is_some() { 1 } else { PASSES }),
            order: order.unwrap_or(if preset.is_some() { Order::Given } else { Order::Random }),
            seed: options.seed,
            grid,
        };
        let settings = Settings {
            request_bytes: request_bytes.unwrap_or(REQUEST_BYTES),
            ..options.settings.clone()
        };
        let most = plan.grid.streams.iter().copied().max().unwrap_or(1);
        order::memory_suffices(&Settings { streams: most, ..settings.clone() })?;
        Ok(Campaign { hosts, plan, settings })
    }

    fn names(&self) -> Vec<String> {
        self.hosts.iter().map(|host| host.name.clone()).collect()
    }
}

/// What is typed, else what the preset has, else the usual.
fn grid(typed: &Sweeping) -> Result<Grid, String> {
    let kib = |kib: &u32| Some(kib << 10);
    let zlib = |level: &u8| match level {
        0 => Compress::Off,
        level => Compress::Always(Way::Zlib(*level)),
    };
    let (windows, streams, levels) = match typed.preset {
        Some(Preset::Slac) => (
            campaign::SLAC_WINDOWS_KIB.iter().map(kib).collect(),
            campaign::SLAC_STREAMS.to_vec(),
            campaign::SLAC_LEVELS.iter().map(zlib).collect(),
        ),
        None => (WINDOWS.to_vec(), STREAMS.to_vec(), vec![Compress::Off]),
    };
    let extents = match (&typed.time, &typed.sizes, &typed.durations) {
        (None, None, None) => vec![Extent::Time(TIME)],
        (Some(time), None, None) => vec![Extent::Time(*time)],
        (None, Some(sizes), None) => sizes.iter().copied().map(Extent::Bytes).collect(),
        (None, None, Some(times)) => times.iter().copied().map(Extent::Time).collect(),
        _ => {
            return Err(
                "--time, --sizes and --durations each say when a copy ends: keep one".into()
            );
        }
    };
    Ok(Grid {
        windows: typed.windows.clone().unwrap_or(windows),
        streams: typed.streams.clone().unwrap_or(streams),
        levels: typed.levels.clone().unwrap_or(levels),
        extents,
    })
}

/// What a copy does that is told nothing; and where levels are tried, what it does by itself about
/// packing.
fn auto(levels: &[Compress]) -> Vec<Setting> {
    let usual = Settings::default();
    let of = |compress| Setting { window_bytes: None, streams: usual.streams, compress };
    let packs = levels.iter().any(|level| level.is_on());
    let packing = packs.then(|| of(Compress::Auto));
    [of(Compress::Off)].into_iter().chain(packing).collect()
}

fn begin(options: &Options, voice: &Arc<Voice>) -> Result<u8, String> {
    let campaign = Campaign::of(options)?;
    tell(&campaign, voice);
    if options.settings.dry_run {
        let cells = campaign.plan.cells();
        voice.summary(&page::order(&campaign.names(), &cells));
        voice.event(&Event::Order { cells: page::rows(&campaign.names(), &cells) });
        return Ok(ended(voice, Ok(None)));
    }
    Ok(ended(voice, under_way::begin(&campaign, options, voice)))
}

fn resume(named: Option<&str>, options: &Options, voice: &Arc<Voice>) -> u8 {
    let done = under_way::resume(named, options, voice, &|campaign| tell(campaign, voice));
    ended(voice, done)
}

fn tell(campaign: &Campaign, voice: &Voice) {
    voice.event(&super::start("sweep", campaign.names(), None, Some(&campaign.settings)));
    voice.remark(&page::opening(&campaign.names(), &campaign.plan));
}

/// What is kept was read; only what is wrong is left to be said.
fn read(voice: &Voice, done: Result<(), Fault>) -> u8 {
    let Err(fault) = done else { return 0 };
    voice.error(&fault.text);
    fault.class.exit_code()
}

/// What was wrong, for people and programs; the exit code.
fn ended(voice: &Voice, done: Result<Trouble, Fault>) -> u8 {
    voice.clear();
    let trouble = done.unwrap_or_else(|fault| Some((fault.class, fault.text)));
    if let Some((_, text)) = &trouble {
        voice.error(text);
    }
    let (class, text) = trouble.unzip();
    let end = json::end(class, text);
    let code = end.exit_code;
    voice.event(&Event::End(Box::new(end)));
    code
}

const NO_HOSTS: &str = "a campaign needs hosts: write --hosts FILE, with [USER@]HOST[:FOLDER] on \
                        each line";
const WINDOWS: &[Option<u32>] = &[Some(64 << 10), Some(256 << 10), Some(1 << 20), None];
const STREAMS: &[u16] = &[1, 4, 8, 16];
const PASSES: u32 = 3;
const TIME: Nanos = Nanos::from_millis(10_000);
/// What has been begun at the end is still sent, over the smallest window too.
const REQUEST_BYTES: u32 = 64 << 10;
