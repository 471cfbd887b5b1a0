//! `datapump spread`: a dataset over many nodes.

mod cancel;
mod plan;

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Instant;

pub(crate) use self::cancel::CancelArgs;
pub(super) use self::cancel::run_cancel;
use self::plan::{dry_run, figures, print_script, route};
use super::console::Console;
use super::endpoint::{EndArg, Role, host_as_typed};
use super::live::{JobShown, JobWatched};
use super::metrics::Shown;
use super::options::{copying, moving, recording, remote, showing, slurm, spreading};
use super::order::{Form, Show, ends, live};
use super::parser::JOB;
use super::patterns;
use super::progress::Collected;
use super::results::into_file;
use super::submit::request_of;
use super::typed::Typed;
use super::{Conclusion, conclude, signals, start};
use crate::spread::coordinator::{self, RunOrder, Told};
use crate::spread::ending::{Totals, failures_path};
use crate::spread::far::News;
use crate::spread::folder::JobFolder;
use crate::spread::history::HistoryReader;
use crate::spread::launcher::Launcher;
use crate::spread::launcher::slurm::{Request, Slurm};
use crate::spread::records::{Copying, FarHosts};
use crate::spread::view::View;
use crate::spread::{On, SpreadOrder, begin, resumed, work};
use crate::telemetry::Destination;
use analysis::report::json::{self, Event};
use analysis::report::live::count;
use analysis::report::openmetrics::Figures;
use analysis::report::spread as page;
use analysis::shards::lease::LeaseTimes;
use analysis::shards::overview::{Overview, Queued};
use analysis::shards::start::Start;
use base::fault::{Class, Fault};
use base::job::Location;
use base::settings::{Links, Settings};
use mover::pump::watch::Watch;

/// The arguments of `spread`.
#[derive(Debug)]
pub(crate) struct SpreadArgs {
    /// As typed.
    sources: Vec<PathBuf>,
    target: PathBuf,
    /// The hosts that see it, where the nodes do not.
    far: Option<FarHosts>,
    /// The same of the sources.
    far_source: Option<FarHosts>,
    job: Option<PathBuf>,
    on: spreading::TypedOn,
    ssh: Option<Vec<String>>,
    slurm: Request,
    /// Show what `sbatch` would get, and start nothing.
    print_script: bool,
    copying: Copying,
    rate_bytes_per_second: Option<f64>,
    times: LeaseTimes,
    split_above: u64,
    split_above_typed: bool,
    dry_run: bool,
    metrics: Option<Destination>,
    live: Option<u16>,
    show: Show,
}

/// The arguments of `spread report`.
#[derive(Debug)]
pub(crate) struct JobReportArgs {
    of: JobArgs,
    /// The file of the page.
    html: Option<PathBuf>,
}

/// The arguments of `spread status`.
#[derive(Debug)]
pub(crate) struct JobArgs {
    job: PathBuf,
    show: Show,
}

/// The arguments of `spread resume`.
#[derive(Debug)]
pub(crate) struct ResumeArgs {
    job: PathBuf,
    ssh: Option<Vec<String>>,
    metrics: Option<Destination>,
    live: Option<u16>,
    show: Show,
}

/// The arguments of `spread work`.
#[derive(Debug)]
pub(crate) struct WorkArgs {
    job: PathBuf,
    /// For far hosts.
    ssh: Option<Vec<String>>,
    name: String,
}

impl SpreadArgs {
    pub(super) fn of(typed: &Typed) -> Result<SpreadArgs, String> {
        let (sources, target) = ends(typed).ok_or(NO_ENDS)?;
        let (sources, far_source) = sources_of(typed, &sources)?;
        let (target, far) = end_of(typed, &target, Role::Target)?;
        if far.is_some() && far_source.is_some() {
            return Err(BOTH_FAR.to_string());
        }
        let settings = Settings::default();
        let rate = typed.value(&moving::RATE)?.flatten();
        let mut links = Links::Copy;
        typed.set(&mut links, &copying::LINKS)?;
        let copying = Copying {
            streams: typed.value(&moving::STREAMS)?.flatten().unwrap_or(settings.streams),
            links: links.name().to_string(),
            engine: settings.engine.name().to_string(),
            direct: settings.direct.name().to_string(),
            preserve: !typed.has(&copying::NO_PRESERVE),
            skip_unchanged: typed.has(&copying::SKIP_UNCHANGED),
            filters: patterns::filters(typed)?,
            min_size: typed.value(&copying::MIN_SIZE)?,
            max_size: typed.value(&copying::MAX_SIZE)?,
            bytes_per_second: None,
        };
        let on = typed.value_or_default(&spreading::ON)?;
        let metrics = typed.value(&showing::METRICS)?;
        let (dry_run, print_script) =
            (typed.has(&copying::DRY_RUN), typed.has(&slurm::PRINT_SCRIPT));
        let live = live(typed)?;
        if (metrics.is_some() || live.is_some()) && (dry_run || print_script) {
            return Err("--metrics and --live are for a run: leave them out, or --dry-run and \
                        --print-script"
                .to_string());
        }
        Ok(SpreadArgs {
            slurm: slurm_of(typed, &on.on)?,
            print_script,
            sources,
            target,
            far,
            far_source,
            job: typed.value(&spreading::JOB)?,
            on,
            ssh: typed.value(&remote::SSH)?,
            copying,
            rate_bytes_per_second: rate.map(|rate| rate.bytes_per_second),
            times: LeaseTimes::of_lease(typed.value_or_default(&spreading::LEASE)?),
            split_above: typed.value_or_default(&spreading::SPLIT_ABOVE)?,
            split_above_typed: typed.value(&spreading::SPLIT_ABOVE)?.is_some(),
            dry_run,
            metrics,
            live,
            show: Show::of(typed)?,
        })
    }
}

/// The sources, and the hosts that see them where they are not on the nodes. All are in one place.
fn sources_of(
    typed: &Typed,
    words: &[OsString],
) -> Result<(Vec<PathBuf>, Option<FarHosts>), String> {
    let ends = words.iter().map(|word| end_of(typed, word, Role::Source));
    let (paths, mut hosts): (Vec<PathBuf>, Vec<Option<FarHosts>>) =
        ends.collect::<Result<Vec<_>, String>>()?.into_iter().unzip();
    let first = hosts.pop().flatten();
    match hosts.iter().all(|other| *other == first) {
        true => Ok((paths, first)),
        false => Err("the sources of spread are all on the nodes, or all on the same far hosts \
                      (HOST,HOST:/PATH): make a job for each place"
            .to_string()),
    }
}

/// An end, and the hosts that see it where it is not on the nodes: `a,b:/archive`.
fn end_of(typed: &Typed, word: &OsStr, role: Role) -> Result<(PathBuf, Option<FarHosts>), String> {
    let install = typed.value_or_default(&remote::INSTALL)?.name().to_string();
    let datapump = typed.value(&remote::REMOTE_DATAPUMP)?;
    let text = word.to_string_lossy();
    let end = EndArg::parse(word, role, 0)?;
    let Location::Path(path) = end.location else {
        return Err(match role {
            Role::Source => format!(
                "'{text}' is no file and no folder: the sources of spread are those, on the nodes \
                 or on far hosts (HOST,HOST:/PATH)"
            ),
            Role::Target => format!(
                "'{text}' is no folder: the destination of spread is one, here or on far hosts \
                 (HOST,HOST:/FOLDER)"
            ),
        });
    };
    let Some(hosts) = end.host else { return Ok((path, None)) };
    if end.port.is_some() {
        return Err(format!(
            "'{text}': a port of ssh is in ssh_config on all nodes: write HOST,HOST:/FOLDER"
        ));
    }
    let hosts = hosts.split(',').map(|host| host_as_typed(OsStr::new(host)));
    let mut hosts: Vec<String> = hosts.collect::<Result<_, String>>()?;
    let mut seen = BTreeSet::new();
    hosts.retain(|host| seen.insert(host.clone()));
    Ok((path, Some(FarHosts { hosts, datapump, install })))
}

/// Options of Slurm are for workers in Slurm.
fn slurm_of(typed: &Typed, on: &On) -> Result<Request, String> {
    let request = request_of(typed)?;
    let given = request != Request::default() || typed.has(&slurm::PRINT_SCRIPT);
    match on {
        On::Slurm(_) => Ok(on.request(&request)),
        _ if given => {
            Err("--account, --qos, --time-limit, --sbatch, --workers and --print-script are for \
             --on slurm"
                .to_string())
        }
        _ => Ok(request),
    }
}

fn job(typed: &Typed) -> PathBuf {
    typed.word(JOB).map(PathBuf::from).unwrap_or_default()
}

impl JobArgs {
    pub(super) fn of(typed: &Typed) -> Result<JobArgs, String> {
        Ok(JobArgs { job: job(typed), show: Show::of(typed)? })
    }
}

impl JobReportArgs {
    pub(super) fn of(typed: &Typed) -> Result<JobReportArgs, String> {
        Ok(JobReportArgs { of: JobArgs::of(typed)?, html: typed.value(&recording::HTML)? })
    }
}

impl ResumeArgs {
    pub(super) fn of(typed: &Typed) -> Result<ResumeArgs, String> {
        let ssh = typed.value(&remote::SSH)?;
        let metrics = typed.value(&showing::METRICS)?;
        let live = live(typed)?;
        Ok(ResumeArgs { job: job(typed), ssh, metrics, live, show: Show::of(typed)? })
    }
}

impl WorkArgs {
    pub(super) fn of(typed: &Typed) -> Result<WorkArgs, String> {
        let name = typed.value_or_default(&spreading::WORKER)?;
        Ok(WorkArgs { job: job(typed), ssh: typed.value(&remote::SSH)?, name })
    }
}

pub(super) fn run(args: &SpreadArgs, started: Instant) -> u8 {
    let console = Arc::new(Console::new(args.show, started));
    let shown = |path: &PathBuf| path.to_string_lossy().into_owned();
    let names: Vec<String> = args.sources.iter().map(shown).collect();
    console.event(&start("spread", names, Some(shown(&args.target)), None));
    let idle = patterns::without_effect(&args.copying.filters);
    idle.iter().for_each(|text| console.warning(text));
    let done = match args.dry_run {
        true => dry_run(args, &console),
        false => spread(args, &console),
    };
    conclude(&console, done, Collected::default())
}

fn spread(args: &SpreadArgs, console: &Arc<Console>) -> Result<Conclusion, Fault> {
    let mut launcher = args.on.on.launcher(args.ssh.clone(), &args.slurm)?;
    let workers = launcher.workers()?;
    if args.print_script {
        return print_script(args, workers);
    }
    // A place that cannot be used ends it before anything is made.
    let metrics = shown_to_prometheus(args.metrics.as_ref(), &args.on.text, console)?;
    let live = JobShown::open(args.live, console)?;
    let share = args.share(workers);
    let watch = signals::stopped_watch(console);
    let (folder, destination, news) = begin(&SpreadOrder {
        sources: args.sources.clone(),
        target: args.target.clone(),
        far: args.far.clone(),
        far_source: args.far_source.clone(),
        ssh: args.ssh.clone(),
        job: args.job.clone(),
        copying: Copying { bytes_per_second: share, ..args.copying.clone() },
        times: args.times,
        on: args.on.text.clone(),
        workers,
        split_above: args.split_above(share),
        command: std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect(),
    })?;
    tell_news(news, console);
    let order = RunOrder {
        program: program()?,
        cutting: args.cutting(workers),
        earlier: None,
        is_planned: false,
        ssh: args.ssh.clone(),
        destination: Mutex::new(Some(destination)),
        leaves: signals::program_alone,
    };
    let watched = JobWatched { metrics, live };
    coordinate((&folder, &watch), &order, launcher.as_mut(), (console, watched))
}

fn tell_news(news: Vec<News>, console: &Console) {
    for one in news {
        if let News::Refused(host, why) = one {
            console.warning(&format!("the far host {host} cannot be used now: {why}"));
        }
    }
}

/// Where the program is: the same path on all nodes.
fn program() -> Result<PathBuf, Fault> {
    std::env::current_exe().map_err(|why| Fault::system("find this program", &why))
}

fn concluded(summary: String, trouble: Option<(Class, String)>) -> Conclusion {
    let end = json::end(trouble.as_ref().map(|(class, _)| *class), None);
    Conclusion { summary, run: None, trouble, end }
}

/// The nodes that the workers run on are at both ends of the route.
fn shown_to_prometheus(
    to: Option<&Destination>,
    nodes: &str,
    console: &Console,
) -> Result<Shown, Fault> {
    Shown::open(to, "spread", vec![[nodes.to_string(), nodes.to_string()]], console)
}

/// Runs a job to its end, and shows how it goes, to people and to Prometheus.
fn coordinate(
    (folder, watch): (&JobFolder, &Arc<Watch>),
    order: &RunOrder,
    launcher: &mut dyn Launcher,
    (console, watched): (&Arc<Console>, JobWatched),
) -> Result<Conclusion, Fault> {
    watched.metrics.begins(0, None);
    watched.live.begins(folder);
    let ran = follow((folder, watch), order, launcher, (console, &watched));
    let code = match &ran {
        Ok((totals, _)) => totals.worst.map_or(0, Class::exit_code),
        Err(fault) => fault.class.exit_code(),
    };
    watched.metrics.ended(console, 0, code, ran.as_ref().ok().map(moved));
    watched.live.ended(console);
    ran.map(|(totals, overview)| finished(folder, &totals, &overview))
}

fn moved((totals, overview): &(Totals, Overview)) -> Figures {
    Figures {
        bytes: totals.bytes,
        files: totals.files,
        failed_files: totals.failed,
        duration_s: overview.elapsed_s,
        bytes_per_s: (totals.bytes > 0).then(|| totals.bytes as f64 / overview.elapsed_s),
        ..Figures::default()
    }
}

fn follow(
    (folder, watch): (&JobFolder, &Arc<Watch>),
    order: &RunOrder,
    launcher: &mut dyn Launcher,
    (console, watched): (&Arc<Console>, &JobWatched),
) -> Result<(Totals, Overview), Fault> {
    let job = folder.path().display().to_string();
    console.remark(&format!("job folder: {job}"));
    if watch.stopping() {
        return Err(Fault::new(
            Class::Interrupted,
            format!(
                "stopped before a worker was started: 'datapump spread resume {job}' continues, \
                 'datapump spread cancel --forget {job}' gives it up"
            ),
        ));
    }
    let manifest = &folder.manifest;
    let limit = manifest.copying.bytes_per_second.map(|share| share * manifest.workers as f64);
    let start = On::parse(&manifest.on).map_or(Start::Here, |on| on.start());
    let route = route(manifest.far.as_ref(), manifest.far_source.as_ref());
    let how = (manifest.workers, start, limit, route);
    let mut line_at = console.started().elapsed();
    let ran = coordinator::run(folder, order, launcher, watch, &mut |told| match told {
        Told::Warning(text) => console.warning(&text),
        Told::Planned(planned) => {
            planned.warnings.iter().for_each(|text| console.warning(text));
            console.remark(page::plan(&figures(planned, how)).trim_end());
        }
        Told::Progress(overview) => {
            watched.overview(overview);
            if console.has_line() {
                console.draw(page::line(overview));
            } else if console.started().elapsed() >= line_at + interval(console) {
                line_at = console.started().elapsed();
                console.remark(&page::line(overview));
                console.event(&Event::Job(Box::new(overview.clone())));
            }
        }
    });
    console.clear();
    let totals = ran.map_err(|fault| match fault == Fault::interrupted() {
        true => Fault::new(
            Class::Interrupted,
            format!("stopped: 'datapump spread resume {job}' continues"),
        ),
        false => fault,
    })?;
    let overview = View::default().look(folder)?.overview;
    watched.overview(&overview);
    console.event(&Event::Job(Box::new(overview.clone())));
    Ok((totals, overview))
}

fn interval(console: &Console) -> std::time::Duration {
    std::time::Duration::from_secs(match console.show().form {
        Form::Json => 1,
        Form::Text => 10,
    })
}

fn finished(folder: &JobFolder, totals: &Totals, overview: &Overview) -> Conclusion {
    let job = folder.path().display().to_string();
    let failures = totals.failures.iter().map(|failed| failed.why.as_str()).collect();
    let mut summary = page::summary(&page::Summary {
        files: totals.files,
        bytes: totals.bytes,
        kept: totals.kept,
        failed: totals.failed,
        elapsed_s: overview.elapsed_s,
        job: &job,
        destination: &folder.destination_shown(),
        failures,
    });
    for (host, factor) in &overview.slow {
        summary.push_str(&format!("  slow: {host}, {factor:.1} times as long as the others\n"));
    }
    let trouble = totals.worst.map(|class| {
        let others = if totals.files > 0 { "; the others are complete" } else { "" };
        let text = format!("{} not copied{others}", count(totals.failed, "file"));
        (class, text)
    });
    concluded(summary, trouble)
}

pub(super) fn run_resume(args: &ResumeArgs, started: Instant) -> u8 {
    let console = Arc::new(Console::new(args.show, started));
    console.event(&start("spread resume", vec![args.job.display().to_string()], None, None));
    let done = resume(args, &console);
    conclude(&console, done, Collected::default())
}

fn resume(args: &ResumeArgs, console: &Arc<Console>) -> Result<Conclusion, Fault> {
    let folder = JobFolder::open(&args.job)?;
    let metrics = shown_to_prometheus(args.metrics.as_ref(), &folder.manifest.on, console)?;
    let live = JobShown::open(args.live, console)?;
    let watch = signals::stopped_watch(console);
    let Some((order, repaired)) = resumed(&folder, program()?, args.ssh.clone())? else {
        let trouble = failures_path(folder.path()).exists().then(|| {
            let list = failures_path(folder.path());
            (Class::SomeFailed, format!("some files were not copied: '{}'", list.display()))
        });
        return Ok(concluded(cancel::already_done(&folder), trouble));
    };
    repaired.iter().for_each(|text| console.warning(text));
    let order = RunOrder { leaves: signals::program_alone, ..order };
    let on = On::parse(&folder.manifest.on).map_err(Fault::usage)?;
    // What was asked of Slurm is in the notes that the launcher is given.
    let mut launcher = on.launcher(args.ssh.clone(), &Request::default())?;
    let watched = JobWatched { metrics, live };
    coordinate((&folder, &watch), &order, launcher.as_mut(), (console, watched))
}

pub(super) fn run_status(args: &JobArgs, started: Instant) -> u8 {
    shown(args, started, "spread status", &|_, overview| Ok(page::page(overview)))
}

pub(super) fn run_report(args: &JobReportArgs, started: Instant) -> u8 {
    shown(&args.of, started, "spread report", &|folder, overview| match &args.html {
        None => {
            let history = HistoryReader::default().read(folder, overview.clone())?;
            let mut text = page::report(overview);
            for line in page::lost(&history) {
                text.push_str(&format!("  {line}\n"));
            }
            Ok(text)
        }
        Some(file) => {
            let history = HistoryReader::default().read(folder, overview.clone())?;
            let page = analysis::page::spread::page(&history).html();
            into_file(file, &mut |out| out.write_all(page.as_bytes()))?;
            Ok(format!("{}:\n{}\n", overview.job, file.display()))
        }
    })
}

/// Shows how a job stands, as text that is made of it.
fn shown(
    args: &JobArgs,
    started: Instant,
    command: &'static str,
    text: &dyn Fn(&JobFolder, &Overview) -> Result<String, Fault>,
) -> u8 {
    let console = Console::new(args.show, started);
    console.event(&start(command, vec![args.job.display().to_string()], None, None));
    let look = || {
        let folder = JobFolder::open(&args.job)?;
        let mut view = View::default();
        view.queue = queue(&folder);
        let overview = view.look_once(&folder)?.overview;
        console.event(&Event::Job(Box::new(overview.clone())));
        text(&folder, &overview).map(|text| concluded(text, None))
    };
    let done = look();
    conclude(&console, done, Collected::default())
}

/// What the queue says of a job's workers: nothing where this host does not see it.
fn queue(folder: &JobFolder) -> Vec<Queued> {
    let Ok(On::Slurm(_)) = On::parse(&folder.manifest.on) else { return Vec::new() };
    let mut slurm = Slurm::default();
    let asked = slurm.adopt(&folder.notes()).and_then(|()| slurm.queue());
    asked.unwrap_or_default()
}

/// A worker: what it says goes to its log.
pub(super) fn run_work(args: &WorkArgs) -> u8 {
    let (notices, _told) = mpsc::channel();
    let watch = Arc::new(Watch::new(notices));
    let done = signals::install(&watch)
        .map_err(|why| Fault::system("catch signals", &why))
        .and_then(|()| JobFolder::open(&args.job))
        .and_then(|folder| work::work(folder, &args.name, args.ssh.as_deref(), &watch));
    match done {
        Ok(()) => 0,
        Err(fault) => {
            super::console::say_fault(&fault);
            fault.class.exit_code()
        }
    }
}

const BOTH_FAR: &str = "SRC and DST are both on far hosts: one of them is seen by the nodes. Run \
                        spread at one of the two sites, on a host there, with the other end as \
                        HOST,HOST:/PATH";
const NO_ENDS: &str = "spread needs a source and a destination: datapump spread [OPTIONS] SRC... \
                       DST; or status, resume, cancel or report, and a job folder";
