//! `datapump limit`: the copies that run on this host, and the limit of their rate.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::Duration;

use clap_complete::CompletionCandidate;

use super::console::{self, Console};
use super::options::moving::RATE;
use super::options::showing::JSON;
use super::order::{Channel, Form};
use super::typed::Typed;
use super::words::quote;
use crate::host::control::{self, Answer, Question};
use crate::host::local_time;
use analysis::report::json::Event;
use base::fault::Class;
use base::schedule::RateSchedule;
use base::settings::Settings;
use base::units::{Bytes, Rate};
use mover::pump::watch::Watch;

#[derive(Debug)]
pub(crate) struct LimitArgs {
    what: What,
    form: Form,
}

#[derive(Debug)]
enum What {
    All,
    One(u32, Question),
}

impl LimitArgs {
    pub(super) fn of(typed: &Typed) -> Result<LimitArgs, String> {
        let process = typed.word("PROCESS").map(process).transpose()?;
        let what = match (process, typed.word("RATE")) {
            (None, _) => What::All,
            (Some(process), None) => What::One(process, Question::Tell),
            (Some(process), Some(rate)) => {
                let rate = RATE.kind.read_text(&rate.to_string_lossy())?;
                let bytes_per_s = rate.map(|rate| rate.bytes_per_second);
                What::One(process, Question::Limit { bytes_per_s })
            }
        };
        let form = if typed.has(&JSON) { Form::Json } else { Form::Text };
        Ok(LimitArgs { what, form })
    }
}

fn process(word: OsString) -> Result<u32, String> {
    let text = word.to_string_lossy();
    text.parse().map_err(|_| {
        format!("'{text}' is no process number: 'datapump limit' lists the copies that run here")
    })
}

pub(super) fn run(args: &LimitArgs) -> u8 {
    match args.what {
        What::All => {
            let copies = running();
            if copies.is_empty() && args.form == Form::Text {
                console::say_line(Channel::Stdout, "no copy of yours runs on this host");
            }
            copies.iter().for_each(|copy| show(args.form, copy));
            0
        }
        What::One(process, question) => match control::ask(process, question) {
            Ok(copy) => {
                show(args.form, &copy);
                0
            }
            Err(why) => {
                // Nobody listens: that says no more than the sentence.
                let why = match why.kind() {
                    ErrorKind::ConnectionRefused | ErrorKind::NotFound => String::new(),
                    _ => format!(" ({why})"),
                };
                let text = format!(
                    "datapump: process {process} is no copy of yours that runs here{why}; \
                     'datapump limit' lists those that are"
                );
                console::say_line(Channel::Stderr, &text);
                Class::Local.exit_code()
            }
        },
    }
}

/// The copies of this user. One that ends meanwhile is left out, as those of others are.
fn running() -> Vec<Answer> {
    let processes = control::listening().unwrap_or_default();
    processes.into_iter().filter_map(|it| control::ask(it, Question::Tell).ok()).collect()
}

pub(super) fn candidates() -> Vec<CompletionCandidate> {
    let candidate = |copy: &Answer| {
        CompletionCandidate::new(copy.process.to_string()).help(Some(command(copy).into()))
    };
    running().iter().map(candidate).collect()
}

fn show(form: Form, copy: &Answer) {
    match form {
        Form::Json => {
            console::say_json(&serde_json::to_string(copy).expect("an answer is plain text"));
        }
        Form::Text => {
            let Answer { process, bytes_done, bytes_found, .. } = copy;
            let (done, found) = (Bytes(*bytes_done), Bytes(*bytes_found));
            let limit = worded(copy.limit_bytes_per_s.map(rate));
            let line = format!("process {process}: {}: {done} of {found}, {limit}", command(copy));
            console::say_line(Channel::Stdout, &line);
        }
    }
}

/// What was copied where, as it was typed.
fn command(copy: &Answer) -> String {
    let words: Vec<String> =
        copy.sources.iter().chain([&copy.target]).map(|word| quote(word)).collect();
    format!("copy {}", words.join(" "))
}

fn rate(bytes_per_second: f64) -> Rate {
    Rate { bytes_per_second }
}

fn worded(limit: Option<Rate>) -> String {
    limit.map_or("unlimited".into(), |rate| format!("limited to {rate}"))
}

/// Lets other processes of this user ask about the copy, and change the limit of its rate.
pub(super) fn listen(
    console: &Arc<Console>,
    watch: &Arc<Watch>,
    (sources, target): (&[String], &str),
    settings: &Settings,
) {
    let (console, watch) = (console.clone(), Arc::downgrade(watch));
    let (sources, target) =
        (sources[..sources.len().min(SOURCES_MAX)].to_vec(), target.to_string());
    let first = settings.rate;
    let heard = control::serve(move |question| {
        let watch = watch.upgrade()?;
        if let Question::Limit { bytes_per_s } = question {
            set(&console, &watch, bytes_per_s.map(rate));
        }
        let limit = watch.limit_asked().unwrap_or(first);
        Some(Answer {
            process: std::process::id(),
            sources: sources.clone(),
            target: target.clone(),
            limit_bytes_per_s: limit.map(|rate| rate.bytes_per_second),
            bytes_done: watch.gauge.bytes_done.load(Relaxed),
            bytes_found: watch.gauge.bytes_found.load(Relaxed),
        })
    });
    // Another process may have taken the name: then the copy runs without.
    drop(heard);
}

/// Keeps to the schedule while the copy runs, from its start.
pub(super) fn keep(console: &Arc<Console>, watch: &Arc<Watch>, schedule: &RateSchedule) {
    let mut now = schedule.at(local_time::minute_of_week());
    set(console, watch, now);
    let (console, watch, schedule) = (console.clone(), Arc::downgrade(watch), schedule.clone());
    thread::spawn(move || {
        loop {
            thread::sleep(LOOK_EVERY);
            let Some(watch) = watch.upgrade() else { return };
            let next = schedule.at(local_time::minute_of_week());
            if next != now {
                set(&console, &watch, next);
                now = next;
            }
        }
    });
}

fn set(console: &Console, watch: &Watch, limit: Option<Rate>) {
    watch.limit(limit);
    console.remark(&format!("the copy is {} from now on", worded(limit)));
    let rate_bytes_per_s = limit.map(|rate| rate.bytes_per_second);
    console.event(&Event::Limit { rate_bytes_per_s });
}

const LOOK_EVERY: Duration = Duration::from_secs(1);
/// An answer lists no more of them.
const SOURCES_MAX: usize = 100;
