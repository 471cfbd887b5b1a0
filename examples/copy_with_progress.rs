//! Copies a file or a folder from Rust, and prints its progress.
//!
//! ```sh
//! cargo run --release --example copy_with_progress -- SRC DST
//! ```
//!
//! SRC and DST are of this host here. For another host `Job::target_host` (or `source_host`) is
//! what ssh takes, and `Job::remote` says how it is reached.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use base::job::{Job, Location, Notice, Remote};
use base::settings::Settings;
use base::units::Bytes;
use mover::pump::watch::Watch;
use mover::remote::copy;

fn main() -> ExitCode {
    let Some([source, target]) = two_paths() else {
        eprintln!("usage: copy_with_progress SRC DST");
        return ExitCode::from(2);
    };
    let job = Job {
        sources: vec![Location::Path(source)],
        source_host: None,
        target: Location::Path(target),
        target_host: None,
        listed: None,
        range: None,
        settings: Settings { recursive: true, ..Settings::default() },
        remote: Remote::default(),
    };
    // Events of single files come through a channel; `watch.stop()` would end the copy early.
    let (notices, told) = channel();
    let watch = Arc::new(Watch::new(notices));
    let copying = thread::spawn({
        let watch = watch.clone();
        move || copy::run(&job, &watch)
    });
    while !copying.is_finished() {
        let gauge = &watch.gauge;
        let (done, found) = (gauge.bytes_done.load(Relaxed), gauge.bytes_found.load(Relaxed));
        println!("{} of {}", Bytes(done), Bytes(found));
        thread::sleep(Duration::from_millis(500));
    }
    let result = copying.join().expect("the copy does not panic");
    drop(watch);
    for notice in told {
        match notice {
            Notice::FileFailed { fault, .. } => eprintln!("{fault}"),
            Notice::Warning(text) => eprintln!("warning: {text}"),
            _ => {}
        }
    }
    match result {
        Ok(outcome) => {
            println!("{} files, {}: {}", outcome.files, Bytes(outcome.bytes), outcome.rate());
            outcome.worst.map_or(ExitCode::SUCCESS, |class| ExitCode::from(class.exit_code()))
        }
        Err(fault) => {
            eprintln!("{fault}");
            ExitCode::from(fault.class.exit_code())
        }
    }
}

fn two_paths() -> Option<[PathBuf; 2]> {
    let paths: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    paths.try_into().ok()
}
