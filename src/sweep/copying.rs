//! One cell: a copy with a limit of time or bytes, and its progress.

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use analysis::campaign::Extent;
use analysis::campaign::fields::CopyRecord;
use analysis::record::copy_record::Series;
use base::fault::{Class, Fault};
use base::job::{Job, Notice};
use base::units::{Nanos, Tick};
use mover::io::clock;
use mover::io::reach::Reach;
use mover::pump::watch::Watch;
use mover::remote;
use mover::remote::launch::Launch;

/// How the other end is reached.
#[derive(Clone, Debug)]
pub(super) enum Via {
    Host(Launch),
    Store(Reach),
}

/// Makes a copy. A limit of time stops it; a copy without progress for long is aborted.
pub(super) fn copy(job: &Job, via: &Via, extent: Extent) -> Result<CopyRecord, Fault> {
    let (notices_in, notices) = channel();
    let watch = Arc::new(Watch::new(notices_in));
    let (started, started_unix_s) = (clock::now(), clock::unix().as_secs_f64());
    let (job, via, its_watch) = (job.clone(), via.clone(), watch.clone());
    let thread = thread::spawn(move || match via {
        Via::Host(launch) => remote::copy::run_with(&job, &launch, &its_watch, started),
        Via::Store(reach) => remote::copy::run_in(&job, &reach, &its_watch),
    });
    let mut follower = Follower { extent, series: Series::default(), started, moved: None };
    while !thread.is_finished() {
        follower.look(&watch);
        thread::sleep(BEAT);
    }
    let ended = clock::now();
    let panicked = |_| Fault::new(Class::Local, "a copy panicked: please report this");
    let outcome = thread.join().map_err(panicked)?;
    let (first, last) = follower.moved.map_or((ended, ended), |moved| (moved.first, moved.last));
    let outcome = match outcome {
        Err(fault) if watch.stopping() => Err(Fault { text: STUCK.into(), ..fault }),
        other => other,
    };
    let outcome = outcome.map_err(|fault| match fault.class {
        Class::Interrupted => Fault { class: Class::Unreachable, ..fault },
        _ => fault,
    })?;
    let mut warnings = Vec::new();
    for notice in notices.try_iter() {
        match notice {
            Notice::Warning(text) | Notice::Again(text) => warnings.push(text),
            // All that is copied is one object: without it nothing was measured.
            Notice::FileFailed { fault, .. } => return Err(fault),
            _ => {}
        }
    }
    let (series, moving) = (follower.series, (first, last.max(first)));
    Ok(CopyRecord { outcome, series, started_unix_s, moving, warnings })
}

struct Follower {
    extent: Extent,
    series: Series,
    started: Tick,
    moved: Option<Moved>,
}

/// When progress was seen.
#[derive(Clone, Copy)]
struct Moved {
    first: Tick,
    last: Tick,
    bytes: u64,
}

impl Follower {
    fn look(&mut self, watch: &Watch) {
        let now = clock::now();
        let bytes = watch.gauge.bytes_done.load(std::sync::atomic::Ordering::Relaxed);
        self.series.add(now.since(self.started), bytes);
        match &mut self.moved {
            Some(moved) if bytes > moved.bytes => (moved.last, moved.bytes) = (now, bytes),
            None if bytes > 0 => self.moved = Some(Moved { first: now, last: now, bytes }),
            _ => {}
        }
        if let (Extent::Time(time), Some(moved)) = (self.extent, self.moved)
            && now >= moved.first.after(time)
        {
            watch.enough();
        }
        let last = self.moved.map_or(self.started, |moved| moved.last);
        if now >= last.after(PATIENCE) {
            watch.stop();
        }
    }
}

const STUCK: &str = "no progress for two minutes";
const PATIENCE: Nanos = Nanos::from_millis(120_000);
const BEAT: Duration = Duration::from_millis(20);
