//! What a spread will do: its plan, and what starts its workers.

use std::sync::{Arc, mpsc};

use super::super::console::Console;
use super::super::prediction::earlier;
use super::super::{Conclusion, signals};
use super::{SpreadArgs, concluded, program, tell_news};
use crate::spread::cutting;
use crate::spread::far::Hosts;
use crate::spread::launcher::WorkerCommand;
use crate::spread::launcher::slurm::Slurm;
use crate::spread::planning::{Counted, PlanOrder, Planned, walk};
use crate::spread::records::{FarHosts, bytes_of};
use crate::spread::source::Source;
use analysis::record::sample::Record;
use analysis::report::spread as page;
use analysis::shards::plan::{Cost, Cutting};
use analysis::shards::start::{Route, Start};
use base::fault::{Class, Fault};
use mover::pump::watch::Watch;

impl SpreadArgs {
    /// What each worker may move in a second.
    pub(super) fn share(&self, workers: usize) -> Option<f64> {
        self.rate_bytes_per_second.map(|rate| rate / workers.max(1) as f64)
    }

    /// Where nothing is typed, as long as a file of that size takes.
    pub(super) fn split_above(&self, share: Option<f64>) -> u64 {
        match self.split_above_typed {
            true => self.split_above,
            false => Cost::UNKNOWN.limited(share).split_above(),
        }
    }

    pub(super) fn cutting(&self, workers: usize) -> Cutting {
        let share = self.share(workers);
        let far = self.far.as_ref().or(self.far_source.as_ref());
        cutting(workers, self.split_above(share), far).limited(share)
    }
}

/// What `sbatch` would get, and nothing is made.
pub(super) fn print_script(args: &SpreadArgs, workers: usize) -> Result<Conclusion, Fault> {
    let job = args.job.clone().unwrap_or_else(|| "spread-1".into());
    let job_folder = std::path::absolute(&job).map_err(|why| Fault::io("find", &job, &why))?;
    let told = format!(
        "# Nothing was made: 'datapump spread' without --print-script makes the job folder\n\
         # {} (--job names another) and submits this.\n",
        job_folder.display()
    );
    let worker = WorkerCommand { name: String::new(), program: program()?, job_folder };
    let script = Slurm::new(args.slurm.clone()).script(&worker, workers)?;
    let (first, rest) = script.split_once('\n').unwrap_or((&script, ""));
    Ok(concluded(format!("{first}\n{told}{rest}"), None))
}

/// The plan, and nothing is made.
pub(super) fn dry_run(args: &SpreadArgs, console: &Console) -> Result<Conclusion, Fault> {
    let workers = args.on.on.launcher(args.ssh.clone(), &args.slurm)?.workers()?;
    let cutting = args.cutting(workers);
    let mut source = Source::new(args.far_source.as_ref(), "", args.ssh.as_deref());
    let sources = source.find(&args.sources)?;
    tell_news(source.hosts().map(Hosts::news).unwrap_or_default(), console);
    let order = PlanOrder { sources: &sources, copying: &args.copying, cutting, first: 0 };
    let (notices, _told) = mpsc::channel();
    let watch = Arc::new(Watch::new(notices));
    let _ = signals::install(&watch);
    let prefixes = sources.iter().filter_map(|source| bytes_of(&source.prefix)).collect();
    let destination = args.far.is_none().then(|| (args.target.clone(), prefixes));
    let mut counted = Counted { destination, existing: 0 };
    let planned = walk(&order, &mut source, &mut counted, &watch, &mut |_| {})?;
    let route = route(args.far.as_ref(), args.far_source.as_ref());
    let how = (workers, args.on.on.start(), args.rate_bytes_per_second, route);
    let mut summary = page::plan(&figures(&planned, how));
    summary.push_str(&existing(counted.existing, args.copying.skip_unchanged));
    for failed in &planned.unplanned {
        summary.push_str(&format!("  {}\n", failed.why));
    }
    let failed = !planned.unplanned.is_empty();
    let trouble = failed.then(|| (Class::SomeFailed, "some names cannot be copied".to_string()));
    Ok(concluded(summary, trouble))
}

/// What will become of names that are there.
fn existing(count: u64, skips_unchanged: bool) -> String {
    let fate = match skips_unchanged {
        _ if count == 0 => return String::new(),
        true => {
            "what has the same size and time is kept without an error, the rest is kept too and \
             named"
        }
        false => {
            "they are kept, and named as not copied (--skip-unchanged keeps what has the same \
             size and time without an error)"
        }
    };
    format!("  names that exist at the destination: {count}; {fate}\n")
}

/// The way to the far hosts of a job, as the newest copies have shown it that are recorded here.
pub(super) fn route(far: Option<&FarHosts>, far_source: Option<&FarHosts>) -> Option<Route> {
    let hosts = &far.or(far_source)?.hosts;
    let is_such = |record: &&Record| {
        let host = record.remote.as_ref().filter(|remote| remote.is_push == far.is_some());
        record.void_reason.is_none() && host.is_some_and(|remote| hosts.contains(&remote.host))
    };
    let shown = |record: &Record| {
        let predicted = Cost::UNKNOWN.of(record.moved.files, record.moved.bytes).seconds();
        let login_s = record.remote.as_ref().map_or(0.0, |remote| remote.login_s);
        let factor = record.moved.elapsed_s / predicted;
        (predicted > COPY_MIN_S && factor.is_finite()).then_some((login_s, factor))
    };
    let copies = earlier(None);
    Some(Route::of(copies.iter().filter(is_such).filter_map(shown).take(COPIES).collect()))
}

/// Shorter copies show little of a path.
const COPY_MIN_S: f64 = 0.1;
const COPIES: usize = 5;

/// `how`: so many workers, how they are started, what all of them may move in a second, and the way
/// to a far host.
pub(super) fn figures(
    planned: &Planned,
    how: (usize, Start, Option<f64>, Option<Route>),
) -> page::PlanFigures {
    let (workers, start, limit_bytes_per_s, route) = how;
    page::PlanFigures {
        files: planned.files,
        bytes: planned.bytes,
        folders: planned.folders,
        shards: planned.shards,
        workers,
        cost: Cost::UNKNOWN,
        total: Cost::UNKNOWN.of(planned.files, planned.bytes),
        longest: planned.longest,
        longest_bytes: planned.longest_bytes,
        start,
        limit_bytes_per_s,
        route,
    }
}
