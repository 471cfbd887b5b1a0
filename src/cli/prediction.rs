//! How long a copy will take: shown by a dry run, compared after a copy, and asked for by `datapump
//! model predict`.

use std::path::{Path, PathBuf};

use super::options::recording::RESULTS;
use super::order::{CopyArgs, Order, Preserve, Show, Wanted, ends};
use super::record::{Ends, Recording};
use super::settings::{remote_of_copy, settings};
use super::typed::Typed;
use crate::results::Store;
use crate::results::installed;
use analysis::model::HostModel;
use analysis::model::shape::Shape;
use analysis::model::travelling;
use analysis::predict::path_model::{self, PathKey, PathModel};
use analysis::predict::route::{RouteKey, RouteModel};
use analysis::predict::{Plan, Prediction};
use analysis::record::options::Options;
use analysis::record::sample::Record;
use base::job::{Carrier, Job, Outcome};
use base::limits::STREAMS_MAX;
use base::settings::Settings;
use base::tally::SideReport;

/// What is known of a copy before it is made.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// This host's model.
    pub model: Option<HostModel>,
    /// The path model of earlier copies to and from the far host.
    pub path_model: Option<PathModel>,
    /// As typed; `None` within one host.
    pub far_host: Option<String>,
    /// Of this host's ends: the source's and the sink's.
    pub file_systems: [Option<String>; 2],
    /// Earlier copies between these hosts in this direction, by kind and file systems.
    pub routes: Vec<RouteModel>,
    /// What is wrong with the store.
    pub warnings: Vec<String>,
}

impl Known {
    pub(super) fn of(recording: &Recording, job: &Job) -> Known {
        let store = recording.store.as_deref();
        let mut warnings = Vec::new();
        let model = model(store, &mut |text| warnings.push(text.to_string()));
        let far_host = far_host(job).cloned();
        // Within one host there is no login to wait for: only who keeps records learns from them.
        let learns = far_host.is_some() || job.settings.dry_run || recording.is_wanted();
        let earlier = if learns { earlier(store) } else { Vec::new() };
        let path_model =
            sought(job).and_then(|sought| PathModel::of(&path_model::crossings(&earlier, &sought)));
        let near_is_source = job.source_host.is_none();
        let routes = RouteModel::all(&earlier, |key| {
            key.far_host == far_host && key.near_is_source == near_is_source
        });
        let file_systems = Ends::of(job, Vec::new(), String::new()).file_systems();
        Known { model, path_model, far_host, file_systems, routes, warnings }
    }
}

/// This host's model; an error of the store is a warning.
fn model(store: Option<&Path>, warn: &mut dyn FnMut(&str)) -> Option<HostModel> {
    let path = store.map(Path::to_path_buf).or_else(Store::default_path)?;
    installed::model(&path).unwrap_or_else(|fault| {
        warn(&fault.text);
        None
    })
}

/// The model that the far side of a copy sends to the near side.
pub(super) fn told() -> String {
    model(None, &mut |_| {}).as_ref().map(travelling::told).unwrap_or_default()
}

/// Predicts a dry run, or a copy that was made, from the models of both sides. `None` without a
/// model, and if retries, failures or resumed or held files changed the copy.
pub(super) fn predict(
    outcome: &Outcome,
    shape: &Shape,
    settings: &Settings,
    known: &Known,
) -> Option<Prediction> {
    let disturbed = outcome.retries > 0
        || outcome.resumed_bytes > 0
        || outcome.held_files > 0
        || outcome.failed > 0;
    if disturbed || shape.files == 0 {
        return None;
    }
    let far = outcome.far.as_ref().and_then(|far| travelling::heard(&far.about.model));
    let (near, far) = (known.model.as_ref(), far.as_ref());
    let plan = plan(outcome, shape, settings);
    let recorded = known.file_systems.each_ref().map(Option::as_deref);
    let options = Options::of(settings);
    let key = RouteKey::of_plan(&plan, known.far_host.clone(), recorded, &options);
    match known.routes.iter().find(|route| route.key == key && route.is_about(&plan)) {
        Some(route) => Some(Prediction::on_route(&plan, near, far, route)),
        None => Prediction::over(&plan, near, far, known.path_model.as_ref()),
    }
}

/// The job with the number of streams that it begins with, where this is left to the program: that
/// which the newest such copy over its path was settled at.
pub(super) fn with_first_streams(store: Option<&Path>, job: &Job) -> Job {
    let mut job = job.clone();
    if job.settings.streams_auto
        && let Some(sought) = sought(&job)
        && let Some(streams) = path_model::streams_settled(&earlier(store), &sought)
    {
        job.settings.streams = streams.clamp(1, STREAMS_MAX);
    }
    job
}

/// The newest copies of the store.
pub(super) fn earlier(store: Option<&Path>) -> Vec<Record> {
    let store: Option<PathBuf> = store.map(Path::to_path_buf).or_else(Store::default_path);
    store.map_or_else(Vec::new, |store| Store::earlier(&store, COPIES_MAX))
}

fn far_host(job: &Job) -> Option<&String> {
    job.source_host.as_ref().or(job.target_host.as_ref())
}

/// The path of a job; `None` within one host.
fn sought(job: &Job) -> Option<PathKey> {
    let Settings { seal, congestion, window_bytes, pace, .. } = &job.settings;
    Some(PathKey {
        far_host: far_host(job)?.clone(),
        near_is_source: job.source_host.is_none(),
        seal: seal.name().to_string(),
        congestion: congestion.clone(),
        window_bytes: *window_bytes,
        pace: pace.typed(),
    })
}

/// Number of the newest copies that are searched.
const COPIES_MAX: u32 = 200;

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

/// Options that differ from those of the copies that the model was made with.
fn unusual(settings: &Settings, carrier: Carrier) -> Vec<&'static str> {
    let usual = Settings::default();
    let sealed = carrier != Carrier::Memory;
    let differences = [
        ("--seal", sealed && settings.seal != usual.seal),
        ("--digest", settings.digest != usual.digest),
        ("--fsync", settings.fsync != usual.fsync),
        (
            "--request-size",
            settings.request_bytes != settings.usual_request_bytes() && settings.rate.is_none(),
        ),
        ("--streams", settings.streams != usual.streams),
        ("--direct", settings.direct != usual.direct),
        ("--engine", settings.engine != usual.engine),
        ("--depth-source", settings.depth_source != usual.depth_source),
        ("--depth-sink", settings.depth_sink != usual.depth_sink),
        ("--window", sealed && settings.window_bytes != usual.window_bytes),
        ("--congestion", sealed && settings.congestion != usual.congestion),
        ("--pace", sealed && settings.pace != usual.pace),
        ("--lockstep", sealed && settings.lockstep != usual.lockstep),
        ("--archive", settings.archive),
    ];
    differences.into_iter().filter(|(_, differs)| *differs).map(|(name, _)| name).collect()
}

/// The arguments of `datapump model predict SRC... DST`: a dry run that shows only the prediction.
#[derive(Debug)]
pub(crate) struct PredictArgs {
    pub copy: CopyArgs,
}

impl PredictArgs {
    pub(super) fn of(typed: &Typed) -> Result<PredictArgs, String> {
        let (sources, target) = ends(typed).ok_or(NO_DESTINATION)?;
        let shown = |word: &std::ffi::OsString| word.to_string_lossy().into_owned();
        let (sources_typed, target_typed) = (sources.iter().map(shown).collect(), shown(&target));
        let order = Order::of(Wanted {
            sources,
            target,
            settings: Settings {
                dry_run: true,
                recursive: true,
                streams_auto: false,
                ..settings(typed)?
            },
            compress: None,
            remote: remote_of_copy(typed)?,
            about_far: Vec::new(),
            seed: 0,
            stores: s3::Options::default(),
            request_bytes: None,
            manifest: None,
            preserve: Preserve::Usual,
            files_from: None,
            files_from_nul: false,
            show: Show::of(typed)?,
        })?;
        let recording = Recording { store: typed.value(&RESULTS)?, refused: true };
        let copy = CopyArgs {
            sources: sources_typed,
            given: Vec::new(),
            target: target_typed,
            order,
            explain: false,
            stats: true,
            log: None,
            metrics: None,
            live: None,
            schedule: None,
            recording,
        };
        Ok(PredictArgs { copy })
    }
}

const NO_DESTINATION: &str = "model predict needs a source and a destination, as copy does: \
                              model predict SRC... DST";
