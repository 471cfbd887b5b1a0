//! `datapump measure`: what a byte costs, part by part.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Instant;

use super::args::{Measuring, Options};
use super::model::{models, page, studied};
use super::nettest;
use super::order::{Channel, Show};
use super::record;
use super::results::environments;
use super::signals;
use super::voice::Voice;
use super::whole::Stage;
use crate::base::cpus::Cpus;
use crate::base::fault::{Class, Fault};
use crate::base::settings::Settings;
use crate::base::units::{Bytes, Nanos};
use crate::host::environment;
use crate::host::file;
use crate::io::{clock, tcp};
use crate::measure::rig::{Ground, Rig};
use crate::measure::{self, Audience, Bench, Eye, Step};
use crate::probe::{self, Probe};
use crate::pump::watch::Watch;
use crate::record::sample::{Environment, Record, Scenario};
use crate::remote::launch::Launch;
use crate::report::json::{self, Event};
use crate::report::live;
use crate::report::sheet::Form;
use crate::results::{Experiment, Filter, Store};
use crate::study::experiment::{Beside, Cell, Design, Soak};

pub fn run(what: &[OsString], options: &Options, started: Instant) -> Result<u8, String> {
    if nettest::is_asked(options) {
        return nettest::run(what, options, started);
    }
    nettest::refuse_its_options(options)?;
    let Subject { scenarios, whole } = subject(what, options)?;
    let design = design(scenarios, options);
    let voice = Voice::new(Show::of(options, Channel::Stdout)?, started);
    voice.event(&super::start("measure", words(what), None, None));
    let (notices, _) = channel();
    let watch = Arc::new(Watch::new(notices));
    if let Err(why) = signals::install(&watch) {
        voice.warning(&format!("Ctrl-C ends the program at once: {why}"));
    }
    let result = carry_out(design, whole, options, &voice, &watch);
    voice.clear();
    let (class, text) = match result {
        Ok(()) => (None, None),
        Err(_) if watch.stopping() => {
            let text = "stopped; what was measured so far is recorded ('datapump results list')";
            (Some(Class::Interrupted), Some(text.to_string()))
        }
        Err(fault) => (Some(fault.class), Some(fault.text)),
    };
    if let Some(text) = &text {
        voice.error(text);
    }
    let end = json::end(class, text);
    let code = end.exit_code;
    voice.event(&Event::End(Box::new(end)));
    Ok(code)
}

/// The far eye: the exit code.
pub fn probe() -> u8 {
    probe::main(environment::here)
}

fn words(what: &[OsString]) -> Vec<String> {
    what.iter().map(|word| word.to_string_lossy().into_owned()).collect()
}

/// What is measured: parts and what is composed of them, and whole copies.
struct Subject {
    scenarios: Vec<Scenario>,
    whole: bool,
}

fn subject(what: &[OsString], options: &Options) -> Result<Subject, String> {
    let mut scenarios = Vec::new();
    let mut whole = what.is_empty();
    let apart = ends_are_apart(&options.measure);
    let all = || Scenario::ALL.into_iter().filter(|scenario| apart || !scenario.is_half());
    if what.is_empty() {
        scenarios.extend(all());
    }
    for word in words(what) {
        match (word.as_str(), Scenario::parse(&word)) {
            ("all", _) => {
                scenarios.extend(all());
                whole = true;
            }
            ("whole", _) => whole = true,
            (_, Some(scenario)) => scenarios.push(scenario),
            (_, None) => {
                return Err(format!(
                    "'{word}' cannot be measured: write {}, whole or all; the path to a host is \
                     tested by measure net --time 10 HOST",
                    Scenario::NAMES.join(", ")
                ));
            }
        }
    }
    scenarios.sort();
    scenarios.dedup();
    Ok(Subject { scenarios, whole })
}

/// True where source and sink of a transfer wake no device together. Where they do, neither end
/// can be told from the other, and halves tell nothing of it.
fn ends_are_apart(measuring: &Measuring) -> bool {
    let here = Path::new(".");
    let read = measuring.place.as_deref().unwrap_or(here);
    let written = measuring.sink_place.as_deref().unwrap_or(read);
    let in_memory = |path| file::state(path).is_ok_and(|state| state.is_in_memory());
    measuring.on.is_some() || file::device(read) != file::device(written) || in_memory(read)
}

fn design(scenarios: Vec<Scenario>, options: &Options) -> Design {
    let Measuring { request_sizes, depths, repeat, order, soak, thorough, .. } = &options.measure;
    let usual_depths = if *thorough { vec![1, 2, 3, 4] } else { vec![1] };
    Design {
        scenarios,
        request_sizes: request_sizes.clone(),
        depth_apart: (depths.is_none() && !thorough).then_some(DEPTH_APART),
        depths: depths.clone().unwrap_or(usual_depths),
        repeats: repeat.unwrap_or(if *thorough { 10 } else { 5 }),
        order: *order,
        soak: *soak,
        seed: options.seed,
    }
}

fn carry_out(
    design: Design,
    whole: bool,
    options: &Options,
    voice: &Voice,
    watch: &Watch,
) -> Result<(), Fault> {
    let mut store = open_store(options)?;
    let seed = design.seed;
    // What cannot be done is said before anything is.
    let stage = whole.then(|| Stage::of(options)).transpose()?;
    let mut bench = match design.scenarios.is_empty() {
        true => None,
        false => Some(bench(design, options, &mut store)?),
    };
    voice.remark(&opening(bench.as_ref(), stage.as_ref(), seed));
    if bench.as_ref().is_some_and(is_held_up) {
        voice.warning(HELD_UP);
    }
    let name = store.begin_experiment(&Experiment {
        name: format!("measure-{}", live::stamp(clock::unix())),
        command: "measure".into(),
        started_unix_s: measure::unix_s(),
        seed,
        more: BTreeMap::new(),
    })?;
    if let Some(bench) = &mut bench {
        bench.name.clone_from(&name);
        let whole_s = stage.as_ref().map_or(0.0, Stage::duration_s);
        let thorough = options.measure.thorough;
        measure_parts(bench, &mut store, (whole_s, thorough), voice, watch)?;
    }
    let copied = stage.map_or(Ok(()), |stage| stage.carry_out(&mut store, &name, voice, watch));
    if watch.stopping() {
        return copied;
    }
    voice.clear();
    conclude(&mut store, &name, voice)?;
    copied
}

/// Void blocks are made again until all would take longer than people were told to wait.
fn again_within(duration_s: f64, whole_s: f64) -> Nanos {
    let left_s = (ALL_S - whole_s).max(duration_s * 1.1);
    Nanos((left_s * 1e9) as u64)
}

/// `whole_s` is what comes afterwards.
fn measure_parts(
    bench: &mut Bench,
    store: &mut Store,
    (whole_s, thorough): (f64, bool),
    voice: &Voice,
    watch: &Watch,
) -> Result<(), Fault> {
    let mut first = None;
    let duration_s = bench.design.duration_s(RUN_S);
    bench.again_within = (!thorough).then(|| again_within(duration_s, whole_s));
    let mut tell = |step: &Step<'_>| {
        let now = clock::now();
        let running = match step {
            Step::Ran { .. } => now.since(*first.get_or_insert(now)),
            _ => Nanos(0),
        };
        told(voice, step, running, Times { duration_s, whole_s });
    };
    let mut keep = |record: &Record| match record.id {
        0 => store.insert(record),
        id => store.replace(record).map(|()| id),
    };
    bench.carry_out(watch, &mut Audience { tell: &mut tell, keep: &mut keep })
}

/// What was found: the tables, and the models that predictions are made from.
fn conclude(store: &mut Store, name: &str, voice: &Voice) -> Result<(), Fault> {
    let records =
        store.records(&Filter { experiment: Some(name.to_string()), ..Filter::default() })?;
    let environments = environments(store, &records)?;
    let study = studied(&records, &environments);
    let models = models(&study, &records, &environments);
    for model in &models {
        store.put_model(model)?;
    }
    let environments: Vec<Environment> = environments.into_values().collect();
    voice.summary(&page(&study, &environments, &models, Form::Text));
    voice.summary(&format!("The runs are experiment {name} of {}", store.path().display()));
    Ok(())
}

fn open_store(options: &Options) -> Result<Store, Fault> {
    Store::open(&record::store_path(options)?)
}

/// What one run does, the next is to do again. BBR measures the path anew each time and settles on
/// another pace: on one host its CPU time differs by a factor of two from run to run.
fn steady_congestion() -> Option<String> {
    const STEADY: &str = "cubic";
    tcp::check_congestion(Some(STEADY)).is_ok().then(|| STEADY.to_string())
}

/// Its name is given to it when it begins.
fn bench(design: Design, options: &Options, store: &mut Store) -> Result<Bench, Fault> {
    let mut near = Probe::start(&measure::own_process()?)?;
    let here = near.environment()?;
    let autogroup = here.facts.get(environment::AUTOGROUP).is_some_and(|fact| fact == "1");
    let near_environment = store.environment(&here)?;
    let (far_launch, far_folder) = far(options)?;
    let far = match &far_launch {
        Launch::Process { .. } => None,
        Launch::Ssh { .. } => {
            let mut probe = Probe::start(&far_launch)?;
            let environment = store.environment(&probe.environment()?)?;
            Some(Eye { probe, environment })
        }
    };
    let (near_cpus, far_cpus) = seats(options, near.cpus(), far.is_some());
    let far_list = far_cpus.as_ref().map(|cpus| cpus.list().to_vec()).unwrap_or_default();
    let ground = Ground {
        place: options.measure.place.clone().unwrap_or_else(|| PathBuf::from(".")),
        sink_place: options.measure.sink_place.clone(),
        settings: Settings {
            congestion: options.settings.congestion.clone().or_else(steady_congestion),
            ..options.settings.clone()
        },
        cache: options.measure.cache,
        far: held_to(far_launch, far_cpus),
        far_folder,
        near_cpus,
        run_s: RUN_S,
        bytes: options.measure.bytes,
        seed: options.seed,
    };
    Ok(Bench {
        name: String::new(),
        design,
        rig: Rig::new(ground)?,
        near: Eye { probe: near, environment: near_environment },
        far,
        far_cpus: far_list,
        intrusion: BTreeMap::new(),
        autogroup,
        again_within: None,
    })
}

/// The kernel's threads belong to no session. Where the scheduler weighs sessions first, it knows a
/// soaker as one of a session that works: they wait for it as long as for anybody.
fn is_held_up(bench: &Bench) -> bool {
    bench.design.soak != Soak::None && bench.autogroup
}

const HELD_UP: &str = "beside a soaker the kernel's own threads may wait for it, up to a tick, as \
                       sched_autogroup_enabled is 1: set it to 0 while this runs (sysctl \
                       kernel.sched_autogroup_enabled=0), or measure with --soak none";

/// The other end of the network: another process here, or ssh to `HOST[:FOLDER]`.
fn far(options: &Options) -> Result<(Launch, Option<PathBuf>), Fault> {
    let Some(on) = &options.measure.on else { return Ok((measure::own_process()?, None)) };
    let (host, folder) = on.split_once(':').unwrap_or((on, ""));
    let launch = Launch::Ssh { host: host.to_string(), remote: options.remote.clone() };
    Ok((launch, Some(Path::new(folder).to_path_buf())))
}

/// On one host each end has a CPU of its own, so that its costs can be told from the other's.
fn seats(options: &Options, allowed: &[u32], two_hosts: bool) -> (Option<Cpus>, Option<Cpus>) {
    let one = |place: usize| allowed.get(place).and_then(|cpu| Cpus::of([*cpu]));
    let usual = match (two_hosts, allowed.len()) {
        (_, 0 | 1) => (None, None),
        (true, _) => (one(0), None),
        (false, _) => (one(0), one(1)),
    };
    (options.cpus.clone().or(usual.0), options.remote.cpus.clone().or(usual.1))
}

fn held_to(launch: Launch, cpus: Option<Cpus>) -> Launch {
    match launch {
        Launch::Process { program, .. } => Launch::Process { program, cpus },
        Launch::Ssh { host, mut remote } => {
            remote.cpus = cpus;
            Launch::Ssh { host, remote }
        }
    }
}

fn opening(bench: Option<&Bench>, stage: Option<&Stage>, seed: u64) -> String {
    let mut parts = Vec::new();
    let mut duration_s = 0.0;
    if let Some(bench) = bench {
        let design = &bench.design;
        let runs = design.blocks().concat();
        let names: Vec<&str> = design.scenarios.iter().map(|scenario| scenario.name()).collect();
        let soaked = runs.iter().filter(|run| run.beside == Beside::Soaker).count();
        let soaker = match soaked {
            0 => "without a soaker".to_string(),
            _ => format!("{soaked} of them beside a soaker"),
        };
        duration_s += design.duration_s(RUN_S);
        let (folder, sink_folder) = (bench.rig.folder(), bench.rig.sink_folder());
        let written = match folder == sink_folder {
            true => String::new(),
            false => format!(", written in {}", sink_folder.display()),
        };
        parts.push(format!(
            "{}: {} combinations, {} runs, {soaker}, in {}{written}",
            names.join(", "),
            design.cells().len(),
            runs.len(),
            folder.display()
        ));
    }
    if let Some(stage) = stage {
        duration_s += stage.duration_s();
        parts.push(format!("whole copies: {} of them", stage.copies()));
    }
    format!(
        "measuring {}\nthat takes about {}; the seed is {seed}",
        parts.join("\nand "),
        live::clock(Nanos((duration_s * 1e9) as u64)),
    )
}

/// How long the runs are to take, and what comes behind them.
#[derive(Clone, Copy, Debug)]
struct Times {
    duration_s: f64,
    whole_s: f64,
}

/// `running` is the time since the first run was over.
fn told(voice: &Voice, step: &Step<'_>, running: Nanos, times: Times) {
    let line = match step {
        // Where lines stay, one for each would be many.
        Step::Sizing { done, .. } if done % REMARK_EVERY != 0 && !voice.has_line() => return,
        Step::Sizing { cell, done, of } => {
            format!("sizing {}: {done} of {of} combinations", words_of(*cell))
        }
        Step::Calibrating { done, of } => format!("calibrating the soakers: {done} of {of} runs"),
        Step::Ran { record, beside, done, of } => {
            let (made, all) = (*done as f64, *of as f64);
            // A few runs say little about the others.
            let each_s = match *done > PACE_FROM_RUNS {
                true => running.seconds() / (made - 1.0),
                false => times.duration_s / all,
            };
            let left_s = each_s * (all - made) + times.whole_s;
            let line = ran(record, *beside);
            voice.event(&Event::Run(Box::new((*record).clone())));
            let left = live::clock(Nanos((left_s * 1e9) as u64));
            format!("{done} of {of} runs, {left} left: {line}")
        }
        Step::Void { why, runs, again } => {
            let (count, they) = match runs {
                1 => ("1 run counts".to_string(), "it is"),
                _ => (format!("{runs} runs count"), "they are"),
            };
            let then = if *again { "made again at the end" } else { "void for good" };
            voice.warning(&format!("{count} for nothing: {why}; {they} {then}"));
            return;
        }
        Step::NoTime { runs } => {
            voice.warning(&format!(
                "{runs} runs stay void: there is no time left to make them again; measure when the \
                 machine is quiet, or with --thorough"
            ));
            return;
        }
    };
    match voice.has_line() {
        true => voice.draw(line),
        false => voice.remark(&line),
    }
}

fn ran(record: &Record, beside: Beside) -> String {
    let place = record.place.as_ref();
    let scenario = place.map_or("", |place| place.scenario.name());
    let rate = record.moved.steady_bytes_per_s.unwrap_or(record.moved.goodput_bytes_per_s);
    let near = record.source.cpu_s();
    let far = record.sink.as_ref().map_or(0.0, |sink| sink.cpu_s());
    let soaked = match beside {
        Beside::Nothing => "",
        Beside::Soaker => " beside the soaker",
    };
    format!(
        "{scenario} {}{soaked}: {}/s, {:.3} ns/B",
        Bytes(record.knobs.request_bytes.into()).typed(),
        Bytes(rate as u64),
        (near + far) * 1e9 / record.moved.bytes.max(1) as f64
    )
}

fn words_of(cell: Cell) -> String {
    let size = Bytes(cell.request_bytes.into()).typed();
    format!("{} {size} depth {}", cell.scenario.name(), cell.depth)
}

/// Deep enough that most requests find others in the air.
const DEPTH_APART: u16 = 4;
const PACE_FROM_RUNS: usize = 10;
const REMARK_EVERY: usize = 10;
/// What a run is to take.
const RUN_S: f64 = 1.15;
/// Less than the twenty minutes that `measure all` may take, for its start and its tables.
const ALL_S: f64 = 19.5 * 60.0;
