//! The command line: parses words, starts the work, reports results and failures, returns the exit
//! code. All printing is in this module.

mod args;
mod bbcp;
mod clean;
mod codec;
mod command_id;
mod compare;
mod complete;
mod config;
mod config_show;
mod console;
mod demo;
mod doctor;
mod end_to_end;
mod endpoint;
mod explain;
mod habits;
mod help;
mod limit;
mod live;
mod ls;
mod man;
mod measure;
mod metrics;
mod model;
mod nettest;
mod old_forms;
mod options;
mod order;
mod parser;
mod patterns;
mod prediction;
mod profile;
mod progress;
mod record;
mod refusals;
#[cfg(test)]
mod repeated;
mod report;
mod results;
mod settings;
mod signals;
mod spread;
mod submit;
mod sweep;
mod typed;
mod verify;
mod words;

use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::thread::{self, JoinHandle};
use std::time::Instant;

use self::args::{Args, Task};
use self::config::Outside;
use self::console::{Console, written};
use self::order::{Amount, Channel, CopyArgs, Form, Order, Show};
use self::prediction::Known;
use self::progress::{Collected, follow};
use self::record::Recording;
use self::typed::Stop;
use crate::host::environment;
use analysis::diagnosis::Verdict;
use analysis::diagnosis::store::{self, StoreVerdict};
use analysis::predict::Prediction;
use analysis::record::options::Options;
use analysis::record::sample::{Environment, Record};
use analysis::report::explain as page;
use analysis::report::files::{self, Direction};
use analysis::report::json::{self, EndEvent, Event, Start};
use analysis::report::live::{Phase, count};
use analysis::report::predicted;
use analysis::report::text;
use base::fault::{Class, Fault};
use base::job::{Job, Location, Outcome, StreamPath, Verified};
use base::settings::{Delete, Settings};
use base::units::Nanos;
use mover::io::reach::Reach;
use mover::io::system;
use mover::pump::watch::Watch;
use mover::receipt::Receipt;
use mover::remote;
use s3::S3;

/// The whole program.
pub fn main() -> ExitCode {
    let started = Instant::now();
    system::outlive_file_size_limit();
    // What a program is asked before it is started as a far side.
    let words: Vec<String> =
        std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    if let Some(code) = remote::installed::asked(&words, &["peer", "probe", "spread-far"]) {
        return ExitCode::from(code);
    }
    let code = match Args::parse(std::env::args_os(), &Outside::of_process()) {
        Ok(args) => perform(&args, started),
        Err(Stop::Help(text)) => written("the help", console::data().write_all(text.as_bytes())),
        Err(Stop::Wrong { text, json }) => {
            let form = if json { Form::Json } else { Form::Text };
            refuse(form, started, &text)
        }
    };
    ExitCode::from(match (code, console::lost()) {
        (0, Some(fault)) => {
            console::say_fault(fault);
            fault.class.exit_code()
        }
        _ => code,
    })
}

fn perform(args: &Args, started: Instant) -> u8 {
    // Before there is any other thread, so that all threads are bound to the same CPUs. A far side
    // binds itself, and reports errors to its near side.
    let cpus = args.cpus.as_ref().filter(|_| !matches!(args.task, Task::Peer(_)));
    if let Some(Err(why)) = cpus.map(system::pin) {
        return refuse(args.form, started, &format!("--cpus: {why}"));
    }
    match &args.task {
        Task::Copy(args) => copy(args, started),
        Task::Demo(args) => demo::run(args, started),
        Task::Verify(args) => verify::run(args, started),
        Task::Compare(args) => compare::run(args, started),
        Task::Ls(args) => ls::run(args, started),
        Task::Clean(args) => clean::run(args, started),
        Task::Submit(args) => submit::run(args),
        Task::Queue(args) => submit::run_queue(args),
        Task::SubmittedCopy(folder) => submit::run_copy(folder, started),
        Task::Limit(args) => limit::run(args),
        Task::Measure(args) => measure::run(args, started),
        Task::MeasureCodec(args) => codec::run(args, started),
        Task::NetTest(args) => nettest::run(args, started),
        Task::ModelFit(args) => model::run_fit(args),
        Task::ModelShow(args) => model::run_show(args),
        Task::ModelPredict(args) => copy(&args.copy, started),
        Task::ResultsList(args) => results::list(args),
        Task::ResultsShow(args) => results::show(args),
        Task::ResultsExport(args) => results::export(args),
        Task::Explain(args) => explain::run(args, started),
        Task::Report(args) => report::run(args),
        Task::Doctor(args) => doctor::run(args, started),
        Task::Sweep(sweep) => {
            let done = sweep::run(sweep, started);
            done.unwrap_or_else(|why| refuse(args.form, started, &why))
        }
        Task::SweepShow(args) => sweep::run_show(args, started),
        Task::SweepCompare(args) => sweep::run_compare(args, started),
        Task::SweepProfile(args) => sweep::run_profile(args, started),
        Task::Spread(args) => spread::run(args, started),
        Task::SpreadStatus(args) => spread::run_status(args, started),
        Task::SpreadResume(args) => spread::run_resume(args, started),
        Task::SpreadCancel(args) => spread::run_cancel(args, started),
        Task::SpreadReport(args) => spread::run_report(args, started),
        Task::SpreadWork(args) => spread::run_work(args),
        Task::ConfigShow(args) => config_show::run(args),
        Task::Probe => measure::probe(),
        Task::SpreadFar => crate::spread::far::serving::main(),
        Task::Peer(options) => remote::peer::main(options, prediction::told),
        Task::Man(page) => man::run(page),
        Task::Completions(shell) => {
            written("completions", complete::script(*shell, &mut console::data()))
        }
        Task::Complete(words) => {
            written("candidates", complete::print(words, &mut console::data()))
        }
    }
}

/// Reports what is wrong with the command line.
fn refuse(form: Form, started: Instant, why: &str) -> u8 {
    let show = Show {
        form,
        amount: Amount::Usual,
        channel: Channel::Stdout,
        direction: Direction::ToHere,
        interval: None,
    };
    let console = Console::new(show, started);
    console.refusal(why);
    console.event(&Event::End(Box::new(json::end(Some(Class::Usage), Some(why.to_string())))));
    Class::Usage.exit_code()
}

/// What a record and a prediction need at the end, read on a thread of its own: a login leaves time
/// for it.
fn read_ahead(job: &Job, recording: &Recording) -> JoinHandle<(Known, Option<Environment>)> {
    let (job, recording) = (job.clone(), recording.clone());
    thread::spawn(move || {
        let environment = recording.is_wanted().then(environment::here);
        (Known::of(&recording, &job), environment)
    })
}

fn copy(args: &CopyArgs, started: Instant) -> u8 {
    let CopyArgs { sources, target, order, explain, stats, log, schedule, recording, .. } = args;
    let Order { job, receipt, stores, show, idle } = order;
    let job = &prediction::with_first_streams(recording.store.as_deref(), job);
    let console = match Console::with_log(*show, started, log.as_deref()) {
        Ok(console) => Arc::new(console),
        Err(fault) => {
            return conclude(&Console::new(*show, started), Err(fault), Collected::default());
        }
    };
    // The limit of its rate may change while it runs: the record has the last.
    let mut settings = job.settings.clone();
    console.event(&start("copy", sources.clone(), Some(target.clone()), Some(&settings)));
    let idle = idle.iter().cloned().chain(forgotten_colon(job));
    let idle = idle.chain(patterns::without_effect(&job.settings.filters));
    idle.for_each(|text| console.warning(&text));
    let (mut watched_by, paths) = match live::Watched::open(args, &console) {
        Ok(opened) => opened,
        Err(fault) => return conclude(&console, Err(fault), Collected::default()),
    };
    let first = first_phase(&console, job.source_host.as_ref().or(job.target_host.as_ref()));
    let receipt = receipt_of(receipt.as_ref(), job).transpose();
    let read_ahead = read_ahead(job, recording);
    let stores = Arc::new(S3::new(stores.clone()));
    let (result, mut collected) = match receipt {
        Ok(receipt) => {
            let reach = Reach::Stores(stores.clone());
            watched(&console, first, receipt, paths, |watch| {
                watched_by.begins(watch);
                limit::listen(&console, watch, (sources, target), &job.settings);
                schedule.iter().for_each(|schedule| limit::keep(&console, watch, schedule));
                remote::copy::run_in(job, &reach, watch)
                    .inspect(|_| settings.rate = watch.limit_asked().unwrap_or(settings.rate))
            })
        }
        Err(fault) => (Err(fault), Collected::default()),
    };
    let (known, environment) = read_ahead.join().unwrap_or_default();
    collected.environment = environment;
    collected.expected = result.as_ref().ok().and_then(|outcome| {
        // If the run is to be recorded, that step reports what is wrong with the store.
        if outcome.dry.is_some() {
            known.warnings.iter().for_each(|text| console.warning(text));
        }
        prediction::predict(outcome, &collected.shape, &job.settings, &known)
    });
    let conclusion = result.map(|outcome| {
        let ends = record::Ends::of(job, sources.clone(), target.clone()).having(&args.given);
        let made = (&outcome, &settings);
        let at_store = store::of_copy(&stores.times(), &outcome);
        let add = |record: &mut Record| explain::keep(record, at_store.as_ref(), &collected);
        let record = record::keep_with(&console, recording, "copy", &ends, made, &collected, add);
        let verdict = explain::of_copy(&outcome, &settings);
        watched_by.made(&record, verdict.as_ref());
        let conclusion =
            moved(made, record, *stats).beside(job, &outcome, collected.expected.as_ref(), *stats);
        let conclusion = conclusion.explained(&console, &outcome, verdict, *explain);
        conclusion.explained_at_store(&console, at_store, *explain)
    });
    conclude_with(&console, conclusion, collected, |code| watched_by.ended(&console, code))
}

/// The phase that is shown first: with another host the login.
fn first_phase(console: &Console, host: Option<&String>) -> Phase {
    let Some(host) = host else { return Phase::Finding };
    if console.has_line() {
        console.remark(&format!("connecting to {host}"));
    }
    Phase::Connecting
}

fn receipt_of(order: Option<&order::ReceiptOrder>, job: &Job) -> Option<Result<Receipt, Fault>> {
    order.map(|it| Receipt::create(&it.path, job.settings.digest_also, it.overwrite))
}

/// A destination that is a new file here and is called like a host that ssh knows.
fn forgotten_colon(job: &Job) -> Option<String> {
    let Location::Path(path) = &job.target else { return None };
    let name = path.to_str().filter(|_| job.target_host.is_none())?;
    let is_host = !name.contains('/') && !path.exists() && complete::hosts().contains(name);
    is_host.then(|| {
        format!("'{name}' is made a file of this host; for the host of that name write {name}:")
    })
}

fn start(
    command: &'static str,
    sources: Vec<String>,
    target: Option<String>,
    settings: Option<&Settings>,
) -> Event {
    let version = env!("CARGO_PKG_VERSION");
    let options = settings.map(Options::of);
    Event::Start(Box::new(Start { version, command, sources, target, options }))
}

/// Does the work, while a thread follows it and signals can stop it.
fn watched<T>(
    console: &Arc<Console>,
    first: Phase,
    receipt: Option<Receipt>,
    paths: Option<Sender<StreamPath>>,
    work: impl FnOnce(&Arc<Watch>) -> Result<T, Fault>,
) -> (Result<T, Fault>, Collected) {
    let followed = follow(console, first, receipt, paths);
    if let Err(why) = signals::install(&followed.watch) {
        followed.watch.warn(format!("Ctrl-C ends the program at once: {why}"));
    }
    let result = work(&followed.watch);
    (result, followed.finish())
}

/// The report on work that ran to its end.
struct Conclusion {
    summary: String,
    /// The number under which it was recorded.
    run: Option<i64>,
    /// What went wrong, if something did.
    trouble: Option<(Class, String)>,
    end: EndEvent,
}

impl Conclusion {
    /// Adds the prediction: to a dry run, and beside the figures.
    fn beside(
        mut self,
        job: &Job,
        outcome: &Outcome,
        expected: Option<&Prediction>,
        stats: bool,
    ) -> Conclusion {
        let ends = || job.sources.iter().chain([&job.target]);
        // No model is about stores.
        let is_at_store = ends().any(|end| matches!(end, Location::Object(_)));
        let text = match (expected, outcome.dry) {
            (Some(expected), Some(_)) if stats => predicted::figures(expected, outcome),
            (Some(expected), Some(_)) => predicted::expected(expected),
            (Some(expected), None) if stats => predicted::compared(expected, outcome),
            (Some(_), None) => String::new(),
            (None, Some(_)) if outcome.files > 0 && !is_at_store => predicted::unknown(),
            (None, _) => String::new(),
        };
        self.summary.push_str(&text);
        self
    }

    /// Adds what held it back, if its streams were sampled.
    fn explained(
        mut self,
        console: &Console,
        outcome: &Outcome,
        verdict: Option<Verdict>,
        explain: bool,
    ) -> Conclusion {
        if let Some(verdict) = verdict {
            self.summary.push_str(&match explain {
                true => format!("\n{}", page::page(&verdict)),
                false if outcome.moved_bytes() > 0 => page::line(&verdict),
                false => String::new(),
            });
            console.event(&Event::Verdict(Box::new(verdict)));
        }
        self
    }

    /// Adds what held it back at a store.
    fn explained_at_store(
        mut self,
        console: &Console,
        verdict: Option<StoreVerdict>,
        explain: bool,
    ) -> Conclusion {
        if let Some(verdict) = verdict {
            // One line says it of the streams between hosts.
            let is_said = self.summary.contains(&format!("  {HELD_BACK_BY} "));
            let name = if is_said { "by the store" } else { HELD_BACK_BY };
            self.summary.push_str(&match explain {
                true => format!("\n{}", page::store::page(&verdict)),
                false => page::store::lines(&verdict, name),
            });
            console.event(&Event::StoreVerdict(Box::new(verdict)));
        }
        self
    }
}

const HELD_BACK_BY: &str = "held back by";

fn moved((outcome, settings): (&Outcome, &Settings), record: Record, stats: bool) -> Conclusion {
    let mut worst = outcome.worst.or((outcome.failed > 0).then_some(Class::SomeFailed));
    let no_room = outcome.dry.is_some_and(|room| room.missing_bytes > 0);
    if no_room {
        worst = worst.max(Some(Class::NoSpace));
    }
    Conclusion {
        summary: match stats && outcome.dry.is_none() {
            true => text::summary(outcome, settings) + &text::statistics(outcome, settings),
            false => text::summary(outcome, settings),
        },
        run: (record.id > 0).then_some(record.id),
        trouble: worst.map(|class| {
            let failed = count(outcome.failed, "file");
            let or_deleted = if settings.delete == Delete::Off { "" } else { " or deleted" };
            let text = match outcome.dry {
                Some(_) if no_room => "not enough free space at the destination".to_string(),
                // A mirror that removes nothing.
                Some(_) if outcome.failed == 0 => "nothing would be deleted".to_string(),
                None if outcome.failed == 0 => "nothing was deleted".to_string(),
                Some(_) => format!("{failed} would not be copied; the others would"),
                None if outcome.files == 0 => format!("{failed} not copied{or_deleted}"),
                None => format!("{failed} not copied{or_deleted}; the others are complete"),
            };
            (class, text)
        }),
        end: json::end_of_copy(worst, record),
    }
}

fn read_again(found: &Verified, kinds: Vec<&'static str>, elapsed: Nanos) -> Conclusion {
    let worst = found.worst();
    let bad = found.differing + found.missing + found.unreadable;
    let do_not = if bad == 1 { "does not" } else { "do not" };
    let end = json::end(worst, None);
    Conclusion {
        summary: files::verified(found, &kinds, elapsed),
        run: None,
        trouble: worst
            .map(|class| (class, format!("{} {do_not} match the receipt", count(bad, "file")))),
        end: EndEvent { verified: Some(json::found(found, kinds, elapsed)), ..end },
    }
}

/// Reports how it ended and returns the exit code.
fn conclude(console: &Console, result: Result<Conclusion, Fault>, collected: Collected) -> u8 {
    conclude_with(console, result, collected, |_| {})
}

/// The same; what is to be done with the exit code comes before the last event.
fn conclude_with(
    console: &Console,
    result: Result<Conclusion, Fault>,
    collected: Collected,
    with: impl FnOnce(u8),
) -> u8 {
    // Only a transfer that ran to its end has a receipt; otherwise its temporary file is removed.
    let receipt = match result {
        Ok(_) => collected.receipt.map_or(Ok(()), |receipt| receipt.and_then(Receipt::finish)),
        Err(_) => Ok(()),
    };
    let no_receipt = receipt.err().map(|fault| (fault.class, fault.text));
    let (end, trouble) = match result {
        Ok(conclusion) => {
            let run = conclusion.run.map(|run| {
                format!("  recorded as run {run}: 'datapump results show {run}' has the details\n")
            });
            console.summary(&format!("{}{}", conclusion.summary, run.unwrap_or_default()));
            (conclusion.end, conclusion.trouble.or(no_receipt))
        }
        Err(fault) => (json::end(Some(fault.class), None), Some((fault.class, fault.text))),
    };
    if let Some((_, text)) = &trouble {
        console.error(text);
    }
    let (class, message) = trouble.unzip();
    let verdict = json::end(class, message);
    let code = verdict.exit_code;
    with(code);
    let failed = collected.failed.iter().map(|(path, fault)| json::failure(path, fault)).collect();
    let failed_count = collected.failed_count;
    let EndEvent { record, cpu_ns_per_byte, verified, compared, .. } = end;
    let end =
        EndEvent { record, cpu_ns_per_byte, verified, compared, failed, failed_count, ..verdict };
    console.event(&Event::End(Box::new(end)));
    code
}
