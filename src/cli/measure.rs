//! `datapump measure`: what a byte costs, part by part.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Instant;

use super::console::Console;
use super::end_to_end::{Stage, Wanted};
use super::model::{models, page, studied};
use super::options::recording::RESULTS;
use super::options::{any_of, copying, measuring, moving};
use super::order::Show;
use super::record;
use super::results::environments;
use super::settings::{remote, settings};
use super::signals;
use super::typed::Typed;
use crate::host::environment;
use crate::host::file;
use crate::measure::rig::{Cache, Rig, RunConditions};
use crate::measure::{self, Bench, HostProbe, Observer, Step};
use crate::probe::{self, Probe};
use crate::results::{Experiment, Filter, Store};
use analysis::record::sample::{Environment, Record, Scenario};
use analysis::report::json::{self, Event};
use analysis::report::live;
use analysis::report::sheet::Form;
use analysis::study::experiment::{Beside, Cell, Design, Order, Soak};
use base::cpus::Cpus;
use base::fault::{Class, Fault};
use base::job::Remote;
use base::settings::Settings;
use base::units::{Bytes, Nanos};
use mover::io::{clock, tcp};
use mover::pump::watch::Watch;
use mover::remote::launch::Launch;

/// The arguments of `measure`.
#[derive(Debug)]
pub(crate) struct MeasureArgs {
    /// Empty for all.
    what: Vec<Subject>,
    /// `what` as typed.
    shown: Vec<String>,
    request_sizes: Vec<u32>,
    depths: Option<Vec<u16>>,
    /// Of each run; `None` leaves it to the program.
    bytes: Option<u64>,
    repeat: Option<u32>,
    order: Order,
    soak: Soak,
    cache: Cache,
    /// The folder or file that is read; `None` for this folder.
    place: Option<PathBuf>,
    /// The folder that is written, if it is another.
    sink_place: Option<PathBuf>,
    /// The host at the other end of the network.
    on: Option<String>,
    thorough: bool,
    seed: u64,
    settings: Settings,
    cpus: Option<Cpus>,
    remote: Remote,
    show: Show,
    store: Option<PathBuf>,
}

/// What is measured: one part or what is composed of parts, whole copies, or everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Subject {
    One(Scenario),
    EndToEnd,
    All,
}

impl MeasureArgs {
    pub(super) fn of(typed: &Typed) -> Result<MeasureArgs, String> {
        let words = typed.words("WHAT");
        if words.is_empty() {
            return Err(WHAT.into());
        }
        let shown: Vec<String> =
            words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        Ok(MeasureArgs {
            what: shown.iter().map(|word| Subject::of(word)).collect::<Result<_, _>>()?,
            shown,
            request_sizes: typed.value_or_default(&measuring::REQUEST_SIZES)?,
            depths: typed.value(&measuring::DEPTHS)?,
            bytes: typed.value_or_default(&measuring::BYTES)?,
            repeat: typed.value(&measuring::REPEAT)?,
            order: typed.value_or_default(&measuring::ORDER)?,
            soak: typed.value_or_default(&measuring::SOAK)?,
            cache: typed.value_or_default(&measuring::CACHE)?,
            place: typed.value(&measuring::FILE)?,
            sink_place: typed.value(&measuring::SINK_FOLDER)?,
            on: typed.value(&measuring::ON)?,
            thorough: typed.has(&measuring::THOROUGH),
            seed: typed.value_or_default(&copying::SEED)?,
            settings: settings(typed)?,
            cpus: typed.value(&moving::CPUS)?,
            remote: remote(typed)?,
            show: Show::of(typed)?,
            store: typed.value(&RESULTS)?,
        })
    }
}

impl Subject {
    fn of(word: &str) -> Result<Subject, String> {
        match (word, Scenario::parse(word)) {
            (ALL, _) => Ok(Subject::All),
            (WHOLE, _) => Ok(Subject::EndToEnd),
            (_, Some(scenario)) => Ok(Subject::One(scenario)),
            (_, None) => {
                let known = [&Scenario::NAMES[..], &[WHOLE, ALL]].concat();
                Err(format!(
                    "'{word}' cannot be measured: write {}; the path to a host is tested by \
                     datapump net-test HOST",
                    any_of(&known)
                ))
            }
        }
    }
}

pub(super) fn run(args: &MeasureArgs, started: Instant) -> u8 {
    let (scenarios, whole) = subjects(args);
    let design = design(scenarios, args);
    let console = Console::new(args.show, started);
    console.event(&super::start("measure", args.shown.clone(), None, None));
    let (notices, _) = channel();
    let watch = Arc::new(Watch::new(notices));
    if let Err(why) = signals::install(&watch) {
        console.warning(&format!("Ctrl-C ends the program at once: {why}"));
    }
    let result = carry_out(design, whole, args, &console, &watch);
    console.clear();
    let (class, text) = match result {
        Ok(()) => (None, None),
        Err(_) if watch.stopping() => {
            let text = "stopped; what was measured so far is recorded ('datapump results list')";
            (Some(Class::Interrupted), Some(text.to_string()))
        }
        Err(fault) => (Some(fault.class), Some(fault.text)),
    };
    if let Some(text) = &text {
        console.error(text);
    }
    let end = json::end(class, text);
    let code = end.exit_code;
    console.event(&Event::End(Box::new(end)));
    code
}

/// The far probe: the exit code.
pub(super) fn probe() -> u8 {
    probe::main(environment::here)
}

/// The parts and what is composed of them, and whether whole copies are measured too.
fn subjects(args: &MeasureArgs) -> (Vec<Scenario>, bool) {
    let mut scenarios = Vec::new();
    let mut whole = false;
    let apart = ends_are_apart(args);
    let everything = [Subject::All];
    let what = if args.what.is_empty() { &everything[..] } else { &args.what };
    for subject in what {
        match subject {
            Subject::One(scenario) => scenarios.push(*scenario),
            Subject::EndToEnd => whole = true,
            Subject::All => {
                let all = Scenario::ALL.into_iter();
                scenarios.extend(all.filter(|scenario| apart || !scenario.is_half()));
                whole = true;
            }
        }
    }
    scenarios.sort();
    scenarios.dedup();
    (scenarios, whole)
}

/// True if the source and the sink of a transfer share no device. If they do, the load of one end
/// cannot be told from that of the other, and the halves have no meaning.
fn ends_are_apart(args: &MeasureArgs) -> bool {
    let here = Path::new(".");
    let read = args.place.as_deref().unwrap_or(here);
    let written = args.sink_place.as_deref().unwrap_or(read);
    let in_memory = |path| file::state(path).is_ok_and(|state| state.is_in_memory());
    args.on.is_some() || file::device(read) != file::device(written) || in_memory(read)
}

fn design(scenarios: Vec<Scenario>, args: &MeasureArgs) -> Design {
    let MeasureArgs { request_sizes, depths, repeat, order, soak, thorough, .. } = args;
    let usual_depths = if *thorough { vec![1, 2, 3, 4] } else { vec![1] };
    Design {
        scenarios,
        request_sizes: request_sizes.clone(),
        depth_apart: (depths.is_none() && !thorough).then_some(DEPTH_APART),
        depths: depths.clone().unwrap_or(usual_depths),
        repeats: repeat.unwrap_or(if *thorough { 10 } else { 5 }),
        order: *order,
        soak: *soak,
        seed: args.seed,
    }
}

fn carry_out(
    design: Design,
    whole: bool,
    args: &MeasureArgs,
    console: &Console,
    watch: &Watch,
) -> Result<(), Fault> {
    let mut store = Store::open(&record::store_path(args.store.as_deref())?)?;
    let seed = design.seed;
    // Errors are reported before the first run.
    let copies = || Wanted {
        place: args.place.as_deref(),
        seed,
        repeats: args.repeat,
        bytes_max: args.bytes,
    };
    let stage = whole.then(|| Stage::of(copies())).transpose()?;
    let mut bench = match design.scenarios.is_empty() {
        true => None,
        false => Some(bench(design, args, &mut store, console)?),
    };
    console.remark(&opening(bench.as_ref(), stage.as_ref(), seed));
    if bench.as_ref().is_some_and(is_held_up) {
        console.warning(HELD_UP);
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
        let thorough = args.thorough;
        measure_parts(bench, &mut store, (whole_s, thorough), console, watch)?;
    }
    let copied = stage.map_or(Ok(()), |stage| stage.carry_out(&mut store, &name, console, watch));
    if watch.stopping() {
        return copied;
    }
    console.clear();
    conclude(&mut store, &name, console)?;
    copied
}

/// Void blocks are repeated until all would take longer than was announced.
fn again_within(duration_s: f64, whole_s: f64) -> Nanos {
    let left_s = (ALL_S - whole_s).max(duration_s * 1.1);
    Nanos((left_s * 1e9) as u64)
}

/// `whole_s` is the time of the copies that follow.
fn measure_parts(
    bench: &mut Bench,
    store: &mut Store,
    (whole_s, thorough): (f64, bool),
    console: &Console,
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
        told(console, step, running, Times { duration_s, whole_s });
    };
    let mut keep = |record: &Record| match record.id {
        0 => store.insert(record),
        id => store.replace(record).map(|()| id),
    };
    bench.carry_out(watch, &mut Observer { tell: &mut tell, keep: &mut keep })
}

/// The results: the tables, and the models that predictions are made from.
fn conclude(store: &mut Store, name: &str, console: &Console) -> Result<(), Fault> {
    let records =
        store.records(&Filter { experiment: Some(name.to_string()), ..Filter::default() })?;
    let environments = environments(store, &records)?;
    let study = studied(&records, &environments);
    let models = models(&study, &records, &environments);
    for model in &models {
        store.put_model(model)?;
    }
    let environments: Vec<Environment> = environments.into_values().collect();
    console.summary(&page(&study, &environments, &models, Form::Text));
    console.summary(&format!("The runs are experiment {name} of {}", store.path().display()));
    all_void(&records).map_or(Ok(()), Err)
}

/// Nothing was measured where each run was disturbed.
fn all_void(records: &[Record]) -> Option<Fault> {
    let why = records.last()?.void_reason.as_ref()?;
    records.iter().all(|run| run.void_reason.is_some()).then(|| {
        let runs = live::count(records.len() as u64, "run");
        let text = format!("nothing was measured: {runs} discarded, the last as {why}");
        Fault::new(Class::Local, format!("{text}; measure when the machine is quiet"))
    })
}

/// Runs must be repeatable. BBR probes the path anew in each run and settles on another pace: on
/// one host its CPU time differs by a factor of two from run to run.
fn steady_congestion() -> Option<String> {
    const STEADY: &str = "cubic";
    tcp::check_congestion(Some(STEADY)).is_ok().then(|| STEADY.to_string())
}

/// The experiment gets its name when it begins.
fn bench(
    design: Design,
    args: &MeasureArgs,
    store: &mut Store,
    console: &Console,
) -> Result<Bench, Fault> {
    let mut near = Probe::start(&measure::own_process()?)?;
    let here = near.environment()?;
    let autogroup = here.facts.get(environment::AUTOGROUP).is_some_and(|fact| fact == "1");
    let near_environment = store.environment(&here)?;
    let (far_launch, far_folder) = far(args)?;
    let far = match &far_launch {
        Launch::Process { .. } => None,
        Launch::Ssh { .. } => {
            let mut probe = Probe::start(&far_launch)?;
            if let Some(text) = probe.installed() {
                console.warning(&text);
            }
            let environment = store.environment(&probe.environment()?)?;
            Some(HostProbe { probe, environment })
        }
    };
    let (near_cpus, far_cpus) = bindings(args, near.cpus(), far.is_some());
    let far_list = far_cpus.as_ref().map(|cpus| cpus.list().to_vec()).unwrap_or_default();
    let conditions = RunConditions {
        place: args.place.clone().unwrap_or_else(|| PathBuf::from(".")),
        sink_place: args.sink_place.clone(),
        settings: Settings {
            congestion: args.settings.congestion.clone().or_else(steady_congestion),
            ..args.settings.clone()
        },
        cache: args.cache,
        far: held_to(far_launch, far_cpus),
        far_folder,
        near_cpus,
        run_s: RUN_S,
        bytes: args.bytes,
        seed: args.seed,
    };
    Ok(Bench {
        name: String::new(),
        design,
        rig: Rig::new(conditions)?,
        near: HostProbe { probe: near, environment: near_environment },
        far,
        far_cpus: far_list,
        intrusion: BTreeMap::new(),
        autogroup,
        again_within: None,
    })
}

/// True if soakers delay the kernel's threads. Those belong to no session: a scheduler that groups
/// threads by session lets them wait for a soaker's session as long as for any other.
fn is_held_up(bench: &Bench) -> bool {
    bench.design.soak != Soak::None && bench.autogroup
}

const HELD_UP: &str = "a soaker may delay kernel threads by up to one tick, as \
                       sched_autogroup_enabled is 1: set it to 0 while this runs (sysctl \
                       kernel.sched_autogroup_enabled=0), or measure with --soak none";

/// The other end of the network: another process here, or ssh to `HOST[:FOLDER]`.
fn far(args: &MeasureArgs) -> Result<(Launch, Option<PathBuf>), Fault> {
    let Some(on) = &args.on else { return Ok((measure::own_process()?, None)) };
    let (host, folder) = on.split_once(':').unwrap_or((on, ""));
    let launch = Launch::Ssh { host: host.to_string(), remote: args.remote.clone() };
    Ok((launch, Some(Path::new(folder).to_path_buf())))
}

/// On one host each end has a CPU of its own, so that the costs of the two can be told apart.
fn bindings(args: &MeasureArgs, allowed: &[u32], two_hosts: bool) -> (Option<Cpus>, Option<Cpus>) {
    let one = |place: usize| allowed.get(place).and_then(|cpu| Cpus::of([*cpu]));
    let usual = match (two_hosts, allowed.len()) {
        (_, 0 | 1) => (None, None),
        (true, _) => (one(0), None),
        (false, _) => (one(0), one(1)),
    };
    (args.cpus.clone().or(usual.0), args.remote.cpus.clone().or(usual.1))
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
        "measuring {}\nestimated duration {}; the seed is {seed}",
        parts.join("\nand "),
        live::clock(Nanos((duration_s * 1e9) as u64)),
    )
}

/// The expected time of the runs, and of what follows them.
#[derive(Clone, Copy, Debug)]
struct Times {
    duration_s: f64,
    whole_s: f64,
}

/// `running` is the time since the end of the first run.
fn told(console: &Console, step: &Step<'_>, running: Nanos, times: Times) {
    let line = match step {
        // Without a line that can be redrawn, one line for each would be too many.
        Step::Sizing { done, .. } if done % REMARK_EVERY != 0 && !console.has_line() => return,
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
            console.event(&Event::Run { record: Box::new((*record).clone()) });
            let left = live::clock(Nanos((left_s * 1e9) as u64));
            format!("{done} of {of} runs, {left} left: {line}")
        }
        Step::Void { why, runs, again } => {
            let runs = live::count(*runs as u64, "run");
            let then = if *again { "will be repeated at the end" } else { "not repeated" };
            console.warning(&format!("{runs} discarded: {why}; {then}"));
            return;
        }
        Step::NoTime { runs } => {
            console.warning(&format!(
                "{} discarded and not repeated, as no time is left; measure when the machine is \
                 quiet, or with --thorough",
                live::count(*runs as u64, "run")
            ));
            return;
        }
    };
    match console.has_line() {
        true => console.draw(line),
        false => console.remark(&line),
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
        Bytes(record.options.request_bytes.into()).typed(),
        Bytes(rate as u64),
        (near + far) * 1e9 / record.moved.bytes.max(1) as f64
    )
}

fn words_of(cell: Cell) -> String {
    let size = Bytes(cell.request_bytes.into()).typed();
    format!("{} {size} depth {}", cell.scenario.name(), cell.depth)
}

const WHOLE: &str = "whole";
const WHAT: &str = "measure loads this host, so say what: 'datapump measure whole' takes about 4 \
                    minutes and makes the model that predictions need; all takes about 18 and \
                    measures each part too; cpu, disk-source, disk-sink, disk-disk or net take \
                    less, 'measure codec FILE' compares codecs, and 'measure \
                    s3://BUCKET/PREFIX' measures a store";
const ALL: &str = "all";
/// Deep enough that most requests find others in flight.
const DEPTH_APART: u16 = 4;
const PACE_FROM_RUNS: usize = 10;
const REMARK_EVERY: usize = 10;
/// The target duration of a run.
const RUN_S: f64 = 1.15;
/// Less than the twenty minutes that `measure all` may take, for its start and its tables.
const ALL_S: f64 = 19.5 * 60.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_that_are_all_void_are_a_failure() {
        let run =
            |why: Option<&str>| Record { void_reason: why.map(String::from), ..Record::default() };
        let cases: [(&[Option<&str>], bool); 4] = [
            (&[], false),
            (&[Some("background"), None], false),
            (&[None, Some("drift")], false),
            (&[Some("background"), Some("drift")], true),
        ];
        for (runs, fails) in cases {
            let records: Vec<Record> = runs.iter().map(|why| run(*why)).collect();
            let fault = all_void(&records);
            assert_eq!(fault.is_some(), fails, "{runs:?}");
            let of = |fault: Fault| (fault.class, fault.text.contains("2 runs discarded"));
            assert!(fault.is_none_or(|fault| of(fault) == (Class::Local, true)), "{runs:?}");
        }
    }
}
