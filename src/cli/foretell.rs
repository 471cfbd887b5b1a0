//! What a copy is expected to take: said by a dry run, compared after a copy, and asked for by
//! `datapump model predict`. And `datapump measure whole`, which makes that possible.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Instant;

use super::args::Options;
use super::order::{Channel, Show};
use super::signals;
use super::voice::Voice;
use crate::base::fault::Fault;
use crate::base::job::{Carrier, Outcome};
use crate::base::settings::Settings;
use crate::base::tally::SideReport;
use crate::io::clock;
use crate::lab::model::HostModel;
use crate::lab::predict::{Plan, Prediction, Shape};
use crate::lab::whole::{Whole, WholeSample, installed, trials};
use crate::pump::watch::Watch;

/// This host's model; what is wrong with it is a warning.
pub fn model(warn: &mut dyn FnMut(&str)) -> Option<HostModel> {
    let path = installed::path()?;
    installed::load(&path).unwrap_or_else(|fault| {
        warn(&fault.text);
        None
    })
}

/// What the far side of a copy tells of its host.
pub fn told() -> String {
    model(&mut |_| {}).as_ref().map(installed::told).unwrap_or_default()
}

/// What is expected of a copy whose sides have told of themselves: one that was only tried, or one
/// that was made. `None` without a model, and where something made it another copy.
pub fn foretell(
    outcome: &Outcome,
    shape: &Shape,
    settings: &Settings,
    near: Option<&HostModel>,
) -> Option<Prediction> {
    let disturbed = outcome.retries > 0
        || outcome.resumed_bytes > 0
        || outcome.held_files > 0
        || outcome.failed > 0;
    if disturbed || shape.files == 0 {
        return None;
    }
    let far = outcome.far.as_ref().and_then(|far| installed::heard(&far.about.model));
    Prediction::of(&plan(outcome, shape, settings), near, far.as_ref())
}

fn plan(outcome: &Outcome, shape: &Shape, settings: &Settings) -> Plan {
    let near = &outcome.near;
    let far: &SideReport = outcome.far.as_ref().unwrap_or(near);
    let (source, sink) = if outcome.near_is_source { (near, far) } else { (far, near) };
    let sink_is_here = outcome.far.is_none();
    Plan {
        shape: *shape,
        carrier: match outcome.carrier {
            Carrier::Memory => "memory",
            Carrier::Tcp => "tcp",
            Carrier::Control => "control",
        },
        streams: outcome.streams,
        source: source.about.file_system.clone(),
        sink: match sink_is_here {
            true => near.about.sink_file_system.clone(),
            false => sink.about.file_system.clone(),
        },
        resident: source.about.resident_percent.map_or(1.0, |percent| f64::from(percent) / 100.0),
        login_s: outcome.login.seconds(),
        near_is_source: outcome.near_is_source,
        same_machine: near.about.machine == far.about.machine,
        rate_limit_bytes_per_s: settings.rate.map(|rate| rate.bytes_per_second),
        unusual: unusual(settings, outcome.carrier),
    }
}

/// What is set otherwise than in the copies that the model was made with.
fn unusual(settings: &Settings, carrier: Carrier) -> Vec<&'static str> {
    let usual = Settings::default();
    let sealed = carrier != Carrier::Memory;
    let differences = [
        ("--seal", sealed && settings.seal != usual.seal),
        ("--digest", settings.digest != usual.digest),
        ("--fsync", settings.fsync != usual.fsync),
        (
            "--request-size",
            settings.request_bytes != usual.request_bytes && settings.rate.is_none(),
        ),
        ("--streams", settings.streams != usual.streams),
        ("--direct", settings.direct != usual.direct),
        ("--engine", settings.engine != usual.engine),
        ("--depth-source", settings.depth_source != usual.depth_source),
        ("--depth-sink", settings.depth_sink != usual.depth_sink),
        ("--window", sealed && settings.window_bytes != usual.window_bytes),
        ("--congestion", sealed && settings.congestion != usual.congestion),
        ("--archive", settings.archive),
    ];
    differences.into_iter().filter(|(_, differs)| *differs).map(|(name, _)| name).collect()
}

/// `datapump model predict SRC... DST`: a dry run, of which only what is expected is said.
pub fn predict(words: &[OsString], options: &Options, started: Instant) -> Result<u8, String> {
    let Some((target, sources)) = words.split_last().filter(|(_, sources)| !sources.is_empty())
    else {
        return Err("model predict needs something to copy and a place to put it, as copy does: \
                    model predict SRC... DST"
            .into());
    };
    let mut options = options.clone();
    options.settings.dry_run = true;
    options.settings.recursive = true;
    super::copy(sources, target, &options, started)
}

/// `datapump measure whole`: makes the copies that predictions are made from, and keeps what they
/// cost.
pub fn measure(options: &Options, started: Instant) -> Result<u8, String> {
    let voice = Arc::new(Voice::new(Show::of(options, Channel::Stdout)?, started));
    let disk = options.measure.place.clone().unwrap_or_else(|| PathBuf::from("."));
    let repeats = options.measure.repeat.unwrap_or(trials::REPEATS);
    let watch = Arc::new(Watch::new(channel().0));
    if let Err(why) = signals::install(&watch) {
        voice.warning(&format!("Ctrl-C ends the program at once: {why}"));
    }
    let order = trials::Order { memory: memory_folder(), disk, seed: options.seed, repeats };
    let result = order
        .run(&|| watch.stopping(), &mut |done, all| {
            if voice.has_line() {
                voice.draw(format!("copying, to learn what copies cost: {done} of {all}"));
            } else if done % 20 == 0 {
                voice.remark(&format!("{done} of {all} copies"));
            }
        })
        .and_then(|samples| Ok((keep(&samples)?, samples)));
    voice.clear();
    match result {
        Ok((path, samples)) => {
            let text = format!("{} copies; their costs are in {}", samples.len(), path.display());
            voice.summary(&text);
            Ok(0)
        }
        Err(fault) => {
            voice.error(&fault.text);
            Ok(fault.class.exit_code())
        }
    }
}

/// Puts what was learned beside what the model knows already, and what it was learned from beside
/// the model.
fn keep(samples: &[WholeSample]) -> Result<PathBuf, Fault> {
    let path = installed::path().ok_or_else(|| {
        Fault::usage("there is no home to keep the model in: name a file in DATAPUMP_MODEL")
    })?;
    let cpus = thread::available_parallelism().map_or(1, |cores| cores.get() as u32);
    let whole = Whole::fit(samples, cpus, clock::unix().as_secs_f64());
    let before = installed::load(&path).ok().flatten().unwrap_or_default();
    let model = HostModel {
        host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
        cpus: whole.cpus,
        whole: Some(whole),
        ..before
    };
    installed::save(&path, &model)?;
    let table = path.with_extension("csv");
    std::fs::write(&table, trials::to_csv(samples))
        .map_err(|error| Fault::io("write", &table, &error))?;
    Ok(path)
}

/// Where files are in memory.
fn memory_folder() -> PathBuf {
    let shared = Path::new("/dev/shm");
    if shared.is_dir() { shared.to_path_buf() } else { std::env::temp_dir() }
}
