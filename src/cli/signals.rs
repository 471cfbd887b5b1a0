//! Signals such as Ctrl-C: the first stops the transfer, the second ends the program at once.

use std::fs;
use std::io;
use std::process;
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};
use std::sync::{Arc, Weak, mpsc};
use std::thread;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::console::Console;
use base::fault::Class;
use base::job::Notice;
use mover::pump::watch::Watch;

/// From here on, signals stop the watch.
pub(super) fn install(watch: &Arc<Watch>) -> io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    // Under nohup SIGHUP is ignored, and must stay so.
    if ignored_signals() & (1 << (SIGHUP - 1)) == 0 {
        signals.add_signal(SIGHUP)?;
    }
    let watch = Arc::downgrade(watch);
    thread::spawn(move || {
        let mut arrivals = signals.forever();
        if let Some(signal) = arrivals.next() {
            FIRST.store(signal, Relaxed);
            stop(&watch, signal);
        }
        if arrivals.next().is_some() {
            process::exit(i32::from(Class::Interrupted.exit_code()));
        }
    });
    Ok(())
}

/// A watch that signals stop from here on, whose warnings are shown.
pub(super) fn stopped_watch(console: &Arc<Console>) -> Arc<Watch> {
    let (notices, told) = mpsc::channel();
    let watch = Arc::new(Watch::new(notices));
    if let Err(why) = install(&watch) {
        console.warning(&format!("Ctrl-C ends the program at once: {why}"));
    }
    let console = console.clone();
    thread::spawn(move || {
        for notice in told {
            if let Notice::Warning(text) = notice {
                console.warning(&text);
            }
        }
    });
    watch
}

/// Whether this program alone was asked to end, by `kill` or with its terminal, and not by Ctrl-C.
pub(super) fn program_alone() -> bool {
    matches!(FIRST.load(Relaxed), SIGTERM | SIGHUP)
}

/// The first signal that arrived.
static FIRST: AtomicI32 = AtomicI32::new(0);

/// Does nothing when the transfer is over and only its summary is still to come.
fn stop(watch: &Weak<Watch>, signal: i32) {
    if let Some(watch) = watch.upgrade() {
        watch.stop();
        watch.warn(match signal {
            SIGINT => "stopping; press Ctrl-C again to quit",
            _ => "this command is stopping; another signal ends it at once",
        });
    }
}

/// The mask of ignored signals, from Linux; on other systems none is assumed to be ignored.
fn ignored_signals() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
