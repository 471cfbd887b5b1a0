//! `datapump submit` and `queue`: copies as jobs of Slurm.

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;
use signal_hook::consts::{SIGINT, SIGTERM};

use super::args::{Args, Task};
use super::config::Outside;
use super::console;
use super::options::showing::JSON;
use super::options::slurm;
use super::order::{Channel, Form};
use super::parser;
use super::typed::{Stop, Typed};
use super::words::quote;
use crate::results::state_folder;
use crate::spread::launcher::slurm::{Request, Slurm};
use crate::spread::submitted::{Progress, Submitted};
use analysis::report::escape;
use base::fault::{Class, Fault, reason};
use mover::io::clock;

/// The arguments of `submit`.
#[derive(Debug)]
pub(crate) struct SubmitArgs {
    request: Request,
    words: Vec<OsString>,
    folder: PathBuf,
    then: Then,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    Follow,
    Detach,
    PrintOnly,
}

impl SubmitArgs {
    pub(super) fn of(typed: &Typed) -> Result<SubmitArgs, String> {
        let words = typed.words(parser::SUBMITTED);
        check(&words)?;
        let then = match (typed.has(&slurm::PRINT_SCRIPT), typed.has(&slurm::DETACH)) {
            (true, _) => Then::PrintOnly,
            (false, true) => Then::Detach,
            (false, false) => Then::Follow,
        };
        Ok(SubmitArgs { request: request_of(typed)?, words, folder: folder_of(typed)?, then })
    }
}

/// What a site asks of jobs.
pub(super) fn request_of(typed: &Typed) -> Result<Request, String> {
    Ok(Request {
        partition: typed.maybe(&slurm::PARTITION)?,
        account: typed.value(&slurm::ACCOUNT)?,
        qos: typed.value(&slurm::QOS)?,
        time_limit: typed.value(&slurm::TIME_LIMIT)?,
        workers: typed.maybe(&slurm::WORKERS)?,
        extra: typed.values(&[&slurm::SBATCH])?,
    })
}

fn folder_of(typed: &Typed) -> Result<PathBuf, String> {
    let folder = match typed.value(&slurm::SUBMITTED)? {
        Some(folder) => folder,
        None => state_folder().ok_or(NO_HOME)?.join("submitted"),
    };
    std::path::absolute(&folder).map_err(|why| format!("--submitted: {}", reason(&why)))
}

const NO_HOME: &str = "there is no home directory: say --submitted DIR";

/// The copy is read here too, so that what is wrong with it is said at once.
fn check(words: &[OsString]) -> Result<(), String> {
    let program = [OsString::from("datapump")];
    let line = program.iter().chain(words).cloned();
    match Args::parse(line, &Outside::of_process()) {
        Ok(Args { task: Task::Copy(_), .. }) if words.iter().any(|word| word == "-") => {
            Err("a job has no standard input and output: name files".to_string())
        }
        Ok(Args { task: Task::Copy(_), .. }) => Ok(()),
        Ok(_) => Err("only a copy can be submitted: datapump submit copy SRC... DST".to_string()),
        Err(Stop::Wrong { text, .. }) => Err(text),
        Err(Stop::Help(_)) => Err("'datapump copy --help' shows help".to_string()),
    }
}

pub(super) fn run(args: &SubmitArgs) -> u8 {
    match submit(args) {
        Ok(code) => code,
        Err(fault) => told(&fault),
    }
}

fn submit(args: &SubmitArgs) -> Result<u8, Fault> {
    let program = std::env::current_exe()
        .map_err(|why| Fault::new(Class::Local, format!("where this program is: {why}")))?;
    let name = format!("{}-{}", clock::unix().as_secs(), std::process::id());
    if args.then == Then::PrintOnly {
        let script = Slurm::new(args.request.clone());
        let script = script.script_of_copy(&program, &args.folder.join(name))?;
        return Ok(console::written("the script", console::data().write_all(script.as_bytes())));
    }
    let copy = Submitted::create(&args.folder, &name, &args.words, &program, &args.request)?;
    // What Slurm has refused is in no queue.
    let refused = |fault: &Fault| fault.class != Class::Unreachable;
    copy.submit().inspect_err(|fault| {
        if refused(fault) {
            copy.remove()
        }
    })?;
    say(&format!("submitted: {}", copy.folder().display()));
    match args.then {
        Then::Detach => Ok(0),
        _ => follow(&copy),
    }
}

/// Looks every few seconds until the copy has ended.
fn follow(copy: &Submitted) -> Result<u8, Fault> {
    let mut slurm = Slurm::default();
    let mut last = None;
    loop {
        let progress = copy.tend(&mut slurm)?;
        if last.as_ref() != Some(&progress) {
            say(&text(&progress));
        }
        match &progress {
            Progress::Ended(code) => return Ok(*code),
            Progress::Abandoned(why) => {
                let log = copy.folder().join("log.txt");
                let text = format!("the copy is not done: {why}: see '{}'", log.display());
                return Err(Fault::new(Class::Local, text));
            }
            _ => {}
        }
        last = Some(progress);
        thread::sleep(LOOK);
    }
}

const LOOK: Duration = Duration::from_secs(3);

/// The arguments of `queue`.
#[derive(Debug)]
pub(crate) struct QueueArgs {
    folder: PathBuf,
    form: Form,
}

impl QueueArgs {
    pub(super) fn of(typed: &Typed) -> Result<QueueArgs, String> {
        let form = if typed.has(&JSON) { Form::Json } else { Form::Text };
        Ok(QueueArgs { folder: folder_of(typed)?, form })
    }
}

/// One submitted copy.
#[derive(Debug, Serialize)]
struct Row {
    /// The numbers of its jobs, the newest last.
    jobs: Vec<String>,
    state: &'static str,
    /// Why it waits, or where it runs.
    detail: String,
    exit_code: Option<u8>,
    copy: String,
    folder: String,
}

pub(super) fn run_queue(args: &QueueArgs) -> u8 {
    let all = Submitted::all(&args.folder);
    if all.is_empty() && args.form == Form::Text {
        say(&format!("no submitted copies in '{}'", args.folder.display()));
    }
    for copy in all {
        match (row(&copy), args.form) {
            (Ok(row), Form::Json) => {
                console::say_json(&serde_json::to_string(&row).expect("a row is plain text"));
            }
            (Ok(row), Form::Text) => {
                let job = row.jobs.last().map_or("-", String::as_str);
                let state = format!("{} {}", row.state, row.detail);
                let line = format!("{job:>8}  {:<32}  {}", state.trim(), row.copy);
                console::say_line(Channel::Stdout, &line);
            }
            (Err(fault), _) => return told(&fault),
        }
    }
    0
}

fn row(copy: &Submitted) -> Result<Row, Fault> {
    let progress = copy.tend(&mut Slurm::default())?;
    let words = copy.words()?;
    let words: Vec<String> = words.iter().map(|word| quote(&word.to_string_lossy())).collect();
    let number = |note: String| note.split_whitespace().nth(1).unwrap_or_default().to_string();
    let (state, detail, exit_code) = match &progress {
        Progress::Waits(why) => ("waits", why.clone(), None),
        Progress::Runs(node) => ("runs", format!("on {node}"), None),
        Progress::Ended(0) => ("done", String::new(), Some(0)),
        Progress::Ended(code) => ("failed", format!("with exit code {code}"), Some(*code)),
        Progress::Abandoned(why) => ("abandoned", why.clone(), None),
        Progress::Unknown(why) => ("unknown", why.clone(), None),
    };
    Ok(Row {
        jobs: copy.jobs().into_iter().map(number).collect(),
        state,
        detail: escape::line(&detail),
        exit_code,
        copy: escape::line(&words.join(" ")),
        folder: escape::line(&copy.folder().display().to_string()),
    })
}

fn text(progress: &Progress) -> String {
    match progress {
        Progress::Waits(why) => format!("waits: {why}"),
        Progress::Runs(node) => format!("runs on {node}"),
        Progress::Ended(0) => "done".to_string(),
        Progress::Ended(code) => format!("ended with exit code {code}"),
        Progress::Abandoned(why) => format!("abandoned: {why}"),
        Progress::Unknown(why) => format!("not known now: {why}"),
    }
}

/// Runs the copy on its node, and again where its connection breaks.
pub(super) fn run_copy(folder: &Path, started: Instant) -> u8 {
    let ran = Submitted::open(folder).and_then(|copy| carry_out(&copy, started));
    ran.unwrap_or_else(|fault| told(&fault))
}

fn carry_out(copy: &Submitted, started: Instant) -> Result<u8, Fault> {
    if let Some(code) = copy.ended() {
        return Ok(code);
    }
    let told = |why: io::Error| Fault::new(Class::Local, format!("running the copy: {why}"));
    std::env::set_current_dir(copy.directory()?).map_err(told)?;
    let words = copy.words()?;
    let line = std::iter::once(OsString::from("datapump")).chain(words);
    // In this process: where it is killed, nothing of it goes on.
    let args = Args::parse(line, &Outside::of_process()).map_err(|_| {
        Fault::usage(format!("'{}' has no copy of this version", copy.folder().display()))
    })?;
    let is_stopped = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT] {
        signal_hook::flag::register(signal, is_stopped.clone()).map_err(told)?;
    }
    let mut pauses = PAUSES_S.iter();
    loop {
        let code = super::perform(&args, started);
        if code == Class::Interrupted.exit_code() {
            return Ok(code);
        }
        // What a copy finds wrong here or there is wrong the next time too.
        let may_pass = code == Class::Unreachable.exit_code();
        match pauses.next().filter(|_| may_pass) {
            Some(pause_s) => wait(*pause_s, &is_stopped),
            None => {
                copy.set_ended(code)?;
                return Ok(code);
            }
        }
        if is_stopped.load(Relaxed) {
            return Ok(Class::Interrupted.exit_code());
        }
    }
}

/// Waits so many seconds, or until it is stopped.
fn wait(seconds: u32, is_stopped: &AtomicBool) {
    for _ in 0..seconds * 10 {
        if !is_stopped.load(Relaxed) {
            thread::sleep(TICK);
        }
    }
}

const TICK: Duration = Duration::from_millis(100);

/// Between tries; a path or a host that is away for longer is for a person to look at.
const PAUSES_S: [u32; 5] = [5, 20, 60, 120, 300];

fn say(text: &str) {
    console::say_line(Channel::Stderr, text);
}

fn told(fault: &Fault) -> u8 {
    say(&format!("datapump: {}", fault.text));
    fault.class.exit_code()
}
