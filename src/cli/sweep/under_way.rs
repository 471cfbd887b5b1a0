//! Measures a campaign, from its beginning or from where it stopped.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;

use serde_json::json;

use super::hosts::Host;
use super::kept;
use super::regular;
use super::{BeginArgs, Campaign, Purpose, Routes, SweepArgs};
use crate::cli::console::Console;
use crate::cli::live::Cells;
use crate::cli::metrics::{self, Shown};
use crate::cli::record;
use crate::cli::signals;
use crate::cli::typed::Typed;
use crate::host::hold;
use crate::measure;
use crate::probe::Probe;
use crate::results::{Experiment, Store};
use crate::sweep::course::{Course, Done, LeftOut, Route, RouteEnd, Step};
use crate::telemetry::Destination;
use analysis::campaign::{Plan, Way};
use analysis::record::sample::Record;
use analysis::report::campaign as page;
use analysis::report::explain::store::costs as store_costs;
use analysis::report::json::Event;
use analysis::report::live;
use base::fault::{Class, Fault};
use base::job::Notice;
use base::units::{Nanos, Tick};
use mover::io::clock;
use mover::pump::watch::Watch;

/// Why a campaign is not complete, if so.
pub(super) type Trouble = Option<(Class, String)>;

/// A new campaign.
pub(super) fn begin(
    campaign: &Campaign,
    args: &BeginArgs,
    console: &Arc<Console>,
) -> Result<Trouble, Fault> {
    let mut store = Store::open(&record::store_path(args.store.as_deref())?)?;
    let typed: Vec<String> =
        std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
    let hosts = match &campaign.routes {
        Routes::Hosts(hosts) => &hosts[..],
        // Its URL is typed.
        Routes::Store(_) => &[],
    };
    let more = [(TYPED.to_string(), json!(typed)), (HOSTS.to_string(), json!(hosts))];
    let mut experiment = Experiment {
        name: format!("{}-{}", campaign.purpose.command(), live::stamp(clock::unix())),
        command: kept::COMMAND.into(),
        started_unix_s: measure::unix_s(),
        seed: campaign.plan.seed,
        more: more.into_iter().collect::<BTreeMap<_, _>>(),
    };
    if args.regular.is_one() {
        regular::marked(&mut experiment);
    }
    let near = claim(&experiment.name)?;
    let name = store.begin_experiment(&experiment)?;
    let done = measure_rest(campaign, args, (&name, Done::default(), near), &mut store, console)?;
    if !matches!(done, Some((Class::Interrupted, _))) {
        args.regular.after(&mut store, console);
    }
    Ok(done)
}

/// Measures the missing cells of an earlier campaign; in a dry run it only tells how many they are.
pub(super) fn resume(
    (named, dry_run): (Option<&str>, bool),
    (metrics, live): (Option<&Destination>, Option<u16>),
    store: &Path,
    console: &Arc<Console>,
    tell: &dyn Fn(&Campaign),
) -> Result<Trouble, Fault> {
    let mut store = Store::open_existing(store)?;
    let experiment = kept::find(&store, named)?;
    let (campaign, typed) = as_typed(&experiment)?;
    tell(&campaign);
    let records = kept::cells(&store, &experiment.name)?;
    let took = |record: &Record| Nanos((record.moved.elapsed_s * 1e9) as u64);
    let done = Done { cells: kept::measured(&records), last_took: records.last().map(took) };
    let all = campaign.plan.cells().len();
    let name = &experiment.name;
    let left = all.saturating_sub(done.cells.len());
    if left == 0 {
        console
            .remark(&format!("all {all} cells of {name} are measured: datapump sweep show {name}"));
        return Ok(None);
    }
    let left_s = each_s(&campaign.plan) * left as f64;
    console.remark(&format!(
        "{} {name}: {} of {all} cells are measured; the others take about {}",
        if dry_run { "would resume" } else { "resuming" },
        done.cells.len(),
        live::clock(Nanos((left_s * 1e9) as u64))
    ));
    if dry_run {
        return Ok(None);
    }
    let typed = BeginArgs { metrics: metrics.cloned(), live, ..typed };
    let near = claim(&experiment.name)?;
    measure_rest(&campaign, &typed, (&experiment.name, done, near), &mut store, console)
}

/// The campaign and its options, as they were typed then.
pub(crate) fn as_typed(experiment: &Experiment) -> Result<(Campaign, BeginArgs), Fault> {
    let unreadable = |why: String| {
        let text = format!("{} cannot be resumed: {why}; start a new campaign", experiment.name);
        Fault::new(Class::Local, text)
    };
    let part = |name: &str| experiment.more.get(name).cloned().unwrap_or_default();
    let typed: Vec<String> =
        serde_json::from_value(part(TYPED)).map_err(|why| unreadable(why.to_string()))?;
    let hosts: Vec<Host> =
        serde_json::from_value(part(HOSTS)).map_err(|why| unreadable(why.to_string()))?;
    let words: Vec<OsString> = typed.into_iter().map(Into::into).collect();
    let typed = Typed::parse(&words)
        .map_err(|why| unreadable(format!("its command line is not valid any more: {why:?}")))?;
    match SweepArgs::of(&typed).map_err(unreadable)? {
        SweepArgs::Begin(args) => Ok((Campaign::with_hosts(hosts, &args), *args)),
        SweepArgs::Install(..) | SweepArgs::Resume { .. } => {
            Err(unreadable("it resumes another campaign".into()))
        }
    }
}

/// Reserves this host for the campaign and starts its probe.
fn claim(name: &str) -> Result<Probe, Fault> {
    hold::hold(hold::PathEnd::Near, &format!("{name} (process {})", std::process::id()))
        .map_err(|why| Fault::new(Class::Local, format!("this host cannot be measured: {why}")))?;
    Probe::start(&measure::own_process()?)
}

fn measure_rest(
    campaign: &Campaign,
    args: &BeginArgs,
    (name, done, near): (&str, Done, Probe),
    store: &mut Store,
    console: &Arc<Console>,
) -> Result<Trouble, Fault> {
    let control = control(console);
    let course = Course {
        name: name.to_string(),
        plan: campaign.plan.clone(),
        routes: routes(campaign),
        settings: campaign.settings.clone(),
        remote: args.remote.clone(),
        data: args.data,
    };
    let all = campaign.plan.cells().len();
    let mut progress = CampaignProgress {
        console,
        names: campaign.names(),
        began: clock::now(),
        before: done.cells.len(),
        each_s: each_s(&campaign.plan),
        left: all - done.cells.len(),
        metrics: Shown::open(args.metrics.as_ref(), kept::COMMAND, ends(campaign), console)?,
        page: Cells::open(args.live, name, kept::cells(store, name)?, console)?,
    };
    progress.metrics.cells(console, progress.before, progress.left);
    let left_out =
        course.carry_out(&done, near, store, &control, &mut |step| progress.show(step))?;
    console.clear();
    progress.page.ended(console);
    let left = progress.left;
    if control.stopping() {
        let text = format!(
            "stopped after {} of {all} cells; continue with: datapump sweep --resume {name}",
            all - left
        );
        return Ok(Some((Class::Interrupted, text)));
    }
    if campaign.purpose == Purpose::Measure {
        console.summary(&store_costs(&kept::cells(store, name)?));
    }
    console.summary(&format!(
        "the cells are experiment {name} of {}: datapump sweep show {name}",
        store.path().display()
    ));
    Ok(missing(&left_out, name))
}

fn routes(campaign: &Campaign) -> Vec<Route> {
    let of_host = |host: &Host| Route {
        name: host.name.clone(),
        end: RouteEnd::Host { folder: host.folder.clone() },
    };
    match &campaign.routes {
        Routes::Hosts(hosts) => hosts.iter().map(of_host).collect(),
        Routes::Store(store) => {
            let (url, options) = (store.url.clone(), store.options.clone());
            let of = |way: Way| Route {
                name: way.route(&url.to_string()),
                end: RouteEnd::Store { way, url: url.clone(), options: options.clone() },
            };
            Way::ALL.map(of).into()
        }
    }
}

/// Estimated time of a cell with the pause before it.
fn each_s(plan: &Plan) -> f64 {
    let load = plan.load(page::ASSUMED_BYTES_PER_S);
    load.duration_s / load.cells.max(1) as f64
}

/// The watch that signals stop; its warnings are printed at once.
fn control(console: &Arc<Console>) -> Arc<Watch> {
    let (notices_in, notices) = channel();
    let control = Arc::new(Watch::new(notices_in));
    if let Err(why) = signals::install(&control) {
        console.warning(&format!("Ctrl-C ends the program at once: {why}"));
    }
    let console = console.clone();
    thread::spawn(move || {
        for notice in notices {
            if let Notice::Warning(text) = notice {
                console.warning(&format!("the campaign ends after the current cell: {text}"));
            }
        }
    });
    control
}

fn missing(left_out: &[LeftOut], name: &str) -> Trouble {
    let class = left_out.iter().map(|left| left.fault.class).max()?;
    let of = |left: &LeftOut| format!("{} ({} cells: {})", left.host, left.cells, left.fault);
    let hosts: Vec<String> = left_out.iter().map(of).collect();
    let text = format!(
        "not measured to the end: {}; try them again with: datapump sweep --resume {name}",
        hosts.join("; ")
    );
    Some((class, text))
}

/// Prints the progress of a campaign.
struct CampaignProgress<'a> {
    console: &'a Console,
    names: Vec<String>,
    began: Tick,
    /// Cells that an earlier run has measured.
    before: usize,
    /// Estimated time of a cell, until some were measured.
    each_s: f64,
    left: usize,
    metrics: Shown,
    page: Cells,
}

/// The routes of a campaign, in the order of its hosts.
fn ends(campaign: &Campaign) -> Vec<[String; 2]> {
    match &campaign.routes {
        Routes::Hosts(hosts) => {
            let names = hosts.iter().map(|host| metrics::plain_host(&host.name));
            names.map(|there| [metrics::this_host(), there]).collect()
        }
        Routes::Store(store) => {
            let bucket = || format!("s3://{}", store.url.bucket);
            vec![[metrics::this_host(), bucket()], [bucket(), metrics::this_host()]]
        }
    }
}

impl CampaignProgress<'_> {
    fn show(&mut self, step: &Step<'_>) {
        match step {
            Step::Pausing { cell, length } => {
                let pause = live::clock(*length);
                self.draw(&format!("pause of {pause}, then {}", page::words(&self.names, cell)));
            }
            Step::Copying { cell } => {
                self.metrics.begins(cell.host, None);
                self.draw(&page::words(&self.names, cell));
            }
            Step::CopyRecord { cell, record, done, of } => {
                self.left = of - done;
                let made = (done - self.before).max(1) as f64;
                self.each_s = clock::now().since(self.began).seconds() / made;
                self.console.summary(&page::line(&self.names, cell, record, *done, *of));
                self.console.event(&Event::Run { record: Box::new((*record).clone()) });
                self.page.measured(record);
                let figures = Some(metrics::of_record(record));
                self.metrics.ended(self.console, cell.host, record.moved.exit_code, figures);
                self.metrics.cells(self.console, *done, self.left);
            }
            Step::Resting { host, fault, length } => {
                let length = live::clock(*length);
                self.console.warning(&format!("{host} is skipped for {length}: {fault}"));
                if let Some(route) = self.names.iter().position(|name| name == host) {
                    self.metrics.ended(self.console, route, fault.class.exit_code(), None);
                }
            }
            Step::Warning(text) => self.console.warning(text),
        }
    }

    fn draw(&self, text: &str) {
        let left = live::clock(Nanos((self.each_s * self.left as f64 * 1e9) as u64));
        let of = self.left;
        self.console.draw(format!("{of} cells, {left} left: {text}"));
    }
}

/// Names in what is kept of an experiment.
const TYPED: &str = "typed";
const HOSTS: &str = "hosts";
