//! `--metrics`: the state of the routes of a copy, a campaign or a spread, for Prometheus.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::console::Console;
use crate::telemetry::{Destination, Metrics};
use analysis::diagnosis::{diagnose, evidence};
use analysis::record::sample::Record;
use analysis::report::openmetrics::{Figures, LastRun, Route};
use analysis::shards::overview::Overview;
use base::fault::Fault;
use base::job::{Job, Location};
use mover::io::clock;
use mover::pump::watch::Watch;

/// The metrics of a command; nothing happens where they were not asked for.
#[derive(Debug, Default)]
pub(super) struct Shown {
    metrics: Option<Metrics>,
}

impl Shown {
    /// Each route has the hosts of its two ends.
    pub(super) fn open(
        to: Option<&Destination>,
        command: &str,
        ends: Vec<[String; 2]>,
        console: &Console,
    ) -> Result<Shown, Fault> {
        let Some(to) = to else { return Ok(Shown::default()) };
        let (name, command) = (to.job(command), command.to_string());
        let route = |[source, target]: [String; 2]| Route {
            name: name.clone(),
            command: command.clone(),
            source,
            target,
        };
        let routes = ends.into_iter().map(route).collect();
        let metrics = Metrics::open(to, env!("CARGO_PKG_VERSION"), routes)?;
        if let Destination::Address(_) = to {
            console.remark(&format!("metrics are at {}", metrics.place()));
        }
        Ok(Shown { metrics: Some(metrics) })
    }

    pub(super) fn begins(&self, route: usize, watch: Option<&Arc<Watch>>) {
        if let Some(metrics) = &self.metrics {
            metrics.begins(route, watch);
        }
    }

    /// That they cannot be written is a warning: the work is done.
    pub(super) fn ended(
        &self,
        console: &Console,
        route: usize,
        exit_code: u8,
        figures: Option<Figures>,
    ) {
        let ended_unix_s = clock::unix().as_secs_f64();
        let last = LastRun { ended_unix_s, exit_code, figures };
        let done = self.metrics.as_ref().map_or(Ok(()), |metrics| metrics.ended(route, last));
        warn(console, done);
    }

    pub(super) fn overview(&self, overview: &Overview) {
        if let Some(metrics) = &self.metrics {
            metrics.overview(overview.clone());
        }
    }

    pub(super) fn cells(&self, console: &Console, measured: usize, left: usize) {
        let cells = [measured as u64, left as u64];
        let done = self.metrics.as_ref().map_or(Ok(()), |metrics| metrics.cells(cells));
        warn(console, done);
    }
}

fn warn(console: &Console, done: Result<(), Fault>) {
    if let Err(fault) = done {
        console.warning(&format!("the metrics are not up to date: {fault}"));
    }
}

/// The figures of a cell, with what held it back.
pub(super) fn of_record(record: &Record) -> Figures {
    let evidence = evidence::of_record(record, &BTreeMap::new());
    let verdict = (!evidence.streams.is_empty()).then(|| diagnose(&evidence));
    Figures::of(record, verdict.as_ref())
}

/// The hosts at both ends of a copy; of a store its bucket. No file is named: their number has no
/// bound.
pub(super) fn ends_of(job: &Job) -> [String; 2] {
    let end = |location: Option<&Location>, host: &Option<String>| match (location, host) {
        (Some(Location::Object(url)), _) => format!("s3://{}", url.bucket),
        (_, Some(host)) => plain_host(host),
        (_, None) => this_host(),
    };
    [end(job.sources.first(), &job.source_host), end(Some(&job.target), &job.target_host)]
}

/// `dtn2` of `ada@dtn2`.
pub(super) fn plain_host(host: &str) -> String {
    host.rsplit('@').next().unwrap_or(host).to_string()
}

pub(super) fn this_host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}
