//! A dataset over many nodes: how far it is, and its nodes. Hosts are labels, workers are not: each
//! that is started has a name of its own.

use std::collections::BTreeMap;

use super::{Family, Kind, Labels};
use crate::shards::overview::{Overview, WorkerView};

/// Makes a gauge: its name, its help, a label of its own if it has one, and its samples.
type Gauge<'a> =
    dyn Fn(&'static str, &'static str, &'static str, Vec<(String, f64)>) -> Family + 'a;

pub(super) fn families(route: &Labels, of: &Overview) -> Vec<Family> {
    let gauge = |name, help, by: &'static str, samples: Vec<(String, f64)>| {
        let labelled = |(label, value)| {
            let own = [(by, label)].into_iter().filter(|(name, _)| !name.is_empty());
            (route.iter().cloned().chain(own).collect::<Labels>(), value)
        };
        let samples = samples.into_iter().map(labelled).collect();
        Family { name, kind: Kind::Gauge, help, samples }
    };
    let mut families = progress(&gauge, of);
    families.extend(nodes(&gauge, of));
    families
}

fn progress(gauge: &Gauge<'_>, of: &Overview) -> Vec<Family> {
    let parts = |parts: &[(&str, f64)]| -> Vec<(String, f64)> {
        parts.iter().map(|(part, value)| (part.to_string(), *value)).collect()
    };
    let one = |value: u64| parts(&[("", value as f64)]);
    let left =
        |[low, middle, high]: [f64; 3]| parts(&[("low", low), ("middle", middle), ("high", high)]);
    let shards = [
        ("done", f64::from(of.shards_done)),
        ("held", f64::from(of.shards_held)),
        ("open", f64::from(of.shards_open)),
    ];
    vec![
        gauge("datapump_spread_shards", "Shards by state.", "state", parts(&shards)),
        gauge(
            "datapump_spread_planned_bytes",
            "Bytes of the files that are planned so far.",
            "",
            one(of.bytes_planned),
        ),
        gauge(
            "datapump_spread_planned_files",
            "Files that are planned so far.",
            "",
            one(of.files_planned),
        ),
        gauge("datapump_spread_failed_files", "Files that cannot be copied.", "", one(of.failed)),
        gauge(
            "datapump_spread_left_seconds",
            "Time to the end: 80 % of the shards so far say between low and high.",
            "bound",
            of.left_s.map(left).unwrap_or_default(),
        ),
    ]
}

fn nodes(gauge: &Gauge<'_>, of: &Overview) -> Vec<Family> {
    let rate = |worker: &WorkerView| match worker.code {
        None => worker.rate_bytes_per_s,
        Some(_) => 0.0,
    };
    let slowness = of.workers.iter().map(|worker| {
        let slow = of.slow.iter().find(|(host, _)| *host == worker.host);
        (worker.host.clone(), slow.map_or(1.0, |(_, factor)| *factor))
    });
    let slowness: BTreeMap<String, f64> = slowness.collect();
    vec![
        gauge(
            "datapump_spread_workers",
            "Workers by state; a silent one may be lost.",
            "state",
            sums(of, |worker| &worker.state, &|_| 1.0),
        ),
        gauge(
            "datapump_spread_host_rate_bytes_per_second",
            "Bytes that the workers of a host that have not ended moved in a second.",
            "host",
            sums(of, |worker| &worker.host, &rate),
        ),
        gauge(
            "datapump_spread_host_slowness_ratio",
            "How many times as long as others a host takes for a shard; 1 where it is not slow.",
            "host",
            slowness.into_iter().collect(),
        ),
    ]
}

fn sums(
    of: &Overview,
    by: impl Fn(&WorkerView) -> &String,
    figure: &dyn Fn(&WorkerView) -> f64,
) -> Vec<(String, f64)> {
    let mut sums: BTreeMap<String, f64> = BTreeMap::new();
    for worker in &of.workers {
        *sums.entry(by(worker).clone()).or_default() += figure(worker);
    }
    sums.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::super::{Format, Route, RouteState, State, write};
    use super::*;
    use crate::shards::overview::{HeldBackBy, JobState, Waits};

    /// Hosts are labels, workers are not, so the number of series is that of the nodes.
    #[test]
    fn a_spread() {
        let worker = |name: &str, host: &str, state: &str, code| WorkerView {
            name: name.into(),
            started_as: name[..1].into(),
            host: host.into(),
            far: None,
            state: state.into(),
            shard: Some(3),
            files: 100,
            bytes: 1 << 20,
            shard_bytes: 0,
            failed: 0,
            rate_bytes_per_s: 2e8,
            held_back_by: HeldBackBy::Source,
            waits: Waits::default(),
            code,
        };
        let overview = Overview {
            job: "spread-1".into(),
            state: JobState::Running,
            shards_done: 5,
            shards_held: 2,
            shards_open: 9,
            shards: Some(16),
            files: 700,
            bytes: 5 << 20,
            files_planned: 1600,
            bytes_planned: 16 << 20,
            failed: 1,
            kept: 0,
            elapsed_s: 12.0,
            rate_bytes_per_s: 6e8,
            left_s: Some([10.0, 12.0, 20.0]),
            workers: vec![
                worker("1-aaaaaaaa", "n1", "copying", None),
                worker("2-bbbbbbbb", "n1", "copying", None),
                worker("3-cccccccc", "n2", "silent", None),
                worker("4-dddddddd", "n2", "ended", Some(0)),
            ],
            slow: vec![("n2".into(), 3.0)],
            ..Overview::default()
        };
        let nodes = String::from("ssh:nodes.txt");
        let route = Route {
            name: "nightly".into(),
            command: "spread".into(),
            source: nodes.clone(),
            target: nodes,
        };
        let state = State {
            version: "0.2.0".into(),
            routes: vec![RouteState { route, ..RouteState::default() }],
            spread: Some(overview),
            ..State::default()
        };
        insta::assert_snapshot!(write(&state, Format::OpenMetrics));
    }
}
