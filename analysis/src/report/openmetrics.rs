//! The state of routes for Prometheus: in its text format, which its textfile collector reads, and
//! in OpenMetrics. Names and units follow Prometheus' conventions; labels are of bounded number:
//! hosts, the name of the job, the side, and the class of what held a run back. A file's name is in
//! no label.

mod spread;

use super::escape;
use crate::diagnosis::path::episodes::Losses;
use crate::diagnosis::{Bottleneck, Verdict};
use crate::record::sample::{Record, Side};
use crate::shards::overview::Overview;

/// The two formats in which the same state is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Prometheus' text format, version 0.0.4.
    Text,
    /// OpenMetrics 1.0.
    OpenMetrics,
}

impl Format {
    pub fn content_type(self) -> &'static str {
        match self {
            Format::Text => "text/plain; version=0.0.4; charset=utf-8",
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// From which host to which, and for which job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Route {
    /// Of the job: it keeps two jobs between the same hosts apart.
    pub name: String,
    /// `copy`, `sweep` or `spread`.
    pub command: String,
    pub source: String,
    pub target: String,
}

/// All that is exported.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct State {
    pub version: String,
    pub routes: Vec<RouteState>,
    /// Cells of the campaign that are measured, and that are left.
    pub cells: Option<[u64; 2]>,
    /// Of the first route, where it is a dataset over many nodes.
    pub spread: Option<Overview>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct RouteState {
    pub route: Route,
    pub running: Option<Running>,
    pub last: Option<LastRun>,
    /// Of the newest run that succeeded, which may be older than the last.
    pub success_unix_s: Option<f64>,
    /// The state of the last run as an earlier process wrote it; it counts until `last` is known.
    pub earlier: Vec<Earlier>,
}

/// A sample of a route that was read back.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Earlier {
    pub metric: String,
    /// A label that it has beside those of its route.
    pub label: Option<(String, String)>,
    pub value: f64,
}

impl Earlier {
    fn labels(&self, route: &Route) -> Labels {
        let name = |name: &str| OWN_LABELS.into_iter().find(|known| *known == name);
        let own =
            self.label.as_ref().and_then(|(label, value)| Some((name(label)?, value.clone())));
        labels(route).into_iter().chain(own).collect()
    }

    /// Reads a line that `write` made, if it is of this route and of its last run.
    pub fn read(line: &str, route: &Route) -> Option<Earlier> {
        let (metric, rest) = line.split_once('{').filter(|(name, _)| name.starts_with(LAST_RUN))?;
        let own: Vec<String> = labels(route).iter().map(written).collect();
        let rest = rest.strip_prefix(&own.join(","))?;
        let (label, value) = rest.rsplit_once("} ")?;
        let label = match label.strip_prefix(',').and_then(|label| label.split_once('=')) {
            Some((name, value)) => Some((name.to_string(), value.trim_matches('"').to_string())),
            None if label.is_empty() => None,
            None => return None,
        };
        Some(Earlier { metric: metric.to_string(), label, value: value.parse().ok()? })
    }
}

/// A run that is under way.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Running {
    pub started_unix_s: f64,
    pub bytes: u64,
    pub files: u64,
}

/// How the last run ended.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LastRun {
    pub ended_unix_s: f64,
    pub exit_code: u8,
    /// `None` where it did not run to its end.
    pub figures: Option<Figures>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures {
    pub bytes: u64,
    pub files: u64,
    pub failed_files: u64,
    pub duration_s: f64,
    /// `None` where nothing was moved but holes: a rate of such a run tells nothing of its route.
    pub bytes_per_s: Option<f64>,
    /// CPU time of a byte, by side.
    pub cpu_s_per_byte: Vec<(&'static str, f64)>,
    pub round_trip_min_s: Option<f64>,
    /// Segments that were sent again, of those that were sent; `None` where these were few.
    pub retransmitted: Option<f64>,
    /// Each class with its share of the bytes, and whether it is the verdict; `mixed` for no class.
    pub held_back: Vec<(String, f64, bool)>,
}

impl Figures {
    pub fn of(record: &Record, verdict: Option<&Verdict>) -> Figures {
        let moved = &record.moved;
        let bytes = moved.bytes as f64;
        let cost = |side: &Side| if bytes > 0.0 { side.cpu_s() / bytes } else { f64::NAN };
        let sides = match &record.sink {
            None => vec![("both", cost(&record.source))],
            Some(sink) => vec![("source", cost(&record.source)), ("target", cost(sink))],
        };
        let round_trip_s = verdict.map(|verdict| verdict.figures.round_trip_min_s);
        let losses = verdict.map(|verdict| &verdict.figures.losses);
        Figures {
            bytes: moved.bytes,
            files: moved.files,
            failed_files: moved.failed,
            duration_s: moved.elapsed_s,
            bytes_per_s: (moved.data_bytes() > 0).then_some(moved.goodput_bytes_per_s),
            cpu_s_per_byte: sides,
            round_trip_min_s: round_trip_s
                .or_else(|| record.remote.as_ref()?.rtt_min_s)
                .filter(|seconds| *seconds > 0.0),
            retransmitted: losses.and_then(Losses::retransmitted_of_many),
            held_back: verdict.map(held_back).unwrap_or_default(),
        }
    }
}

fn held_back(verdict: &Verdict) -> Vec<(String, f64, bool)> {
    let class = |class: Bottleneck| {
        // As in JSON.
        let name = serde_json::to_value(class).ok();
        let name = name.and_then(|name| Some(name.as_str()?.to_string())).unwrap_or_default();
        (name, verdict.shares.get(class), verdict.primary == Some(class))
    };
    let mixed = ("mixed".to_string(), f64::NAN, verdict.primary.is_none());
    Bottleneck::ALL.into_iter().map(class).chain([mixed]).collect()
}

/// The whole state as text.
pub fn write(state: &State, format: Format) -> String {
    let mut text = String::new();
    for family in families(state) {
        family.write(format, &mut text);
    }
    if format == Format::OpenMetrics {
        text.push_str("# EOF\n");
    }
    text
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Gauge,
    Counter,
}

type Labels = Vec<(&'static str, String)>;

/// A metric with a sample for each set of labels.
struct Family {
    /// Without the `_total` of a counter.
    name: &'static str,
    kind: Kind,
    help: &'static str,
    samples: Vec<(Labels, f64)>,
}

impl Family {
    fn write(&self, format: Format, text: &mut String) {
        let known = || self.samples.iter().filter(|(_, value)| value.is_finite());
        if known().next().is_none() {
            return;
        }
        let Family { name, kind, help, .. } = self;
        let suffix = if *kind == Kind::Counter { "_total" } else { "" };
        // In OpenMetrics a counter is described without the ending of its samples.
        let described = match format {
            Format::Text => format!("{name}{suffix}"),
            Format::OpenMetrics => (*name).to_string(),
        };
        let kind = if *kind == Kind::Counter { "counter" } else { "gauge" };
        text.push_str(&format!("# HELP {described} {help}\n# TYPE {described} {kind}\n"));
        if let Some(unit) = UNITS.iter().find(|unit| name.ends_with(&format!("_{unit}")))
            && format == Format::OpenMetrics
        {
            text.push_str(&format!("# UNIT {described} {unit}\n"));
        }
        for (labels, value) in known() {
            let labels: Vec<String> = labels.iter().map(written).collect();
            text.push_str(&format!("{name}{suffix}{{{}}} {value}\n", labels.join(",")));
        }
    }
}

fn written((name, value): &(&'static str, String)) -> String {
    format!("{name}=\"{}\"", escaped(value))
}

/// Control characters and those that reverse text are spelled out, as everywhere; then what the
/// format itself escapes. A long name is cut.
fn escaped(value: &str) -> String {
    let shown: String = escape::line(value).chars().take(LABEL_LETTERS).collect();
    shown.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn families(state: &State) -> Vec<Family> {
    // Each file of a folder with several jobs, and each job, has series of its own.
    let of_job = |label: &'static str, value: String| -> Labels {
        let name = state.routes.first().map(|one| ("name", one.route.name.clone()));
        name.into_iter().chain([(label, value)]).collect()
    };
    let mut families = vec![Family {
        name: "datapump_build_info",
        kind: Kind::Gauge,
        help: "Version of datapump that wrote this.",
        samples: vec![(of_job("version", state.version.clone()), 1.0)],
    }];
    families.extend(running(state));
    families.extend(last(state));
    for route in state.routes.iter().filter(|route| route.last.is_none()) {
        for earlier in &route.earlier {
            let of_it = families.iter_mut().find(|family| family.name == earlier.metric);
            if let Some(family) = of_it {
                family.samples.push((earlier.labels(&route.route), earlier.value));
            }
        }
    }
    families.push(Family {
        name: "datapump_campaign_cells",
        kind: Kind::Gauge,
        help: "Cells of the campaign by state: measured or left.",
        samples: state.cells.map_or(Vec::new(), |[measured, left]| {
            let cells = |state: &str, count: u64| (of_job("state", state.into()), count as f64);
            vec![cells("measured", measured), cells("left", left)]
        }),
    });
    if let (Some(overview), Some(of)) = (&state.spread, state.routes.first()) {
        families.extend(spread::families(&labels(&of.route), overview));
    }
    families
}

fn running(state: &State) -> Vec<Family> {
    let of = |name, kind, help, figure: &dyn Fn(&RouteState) -> f64| Family {
        name,
        kind,
        help,
        samples: state.routes.iter().map(|one| (labels(&one.route), figure(one))).collect(),
    };
    let under_way = |one: &RouteState, figure: &dyn Fn(&Running) -> f64| {
        one.running.as_ref().map_or(f64::NAN, figure)
    };
    vec![
        of(
            "datapump_run_in_progress",
            Kind::Gauge,
            "1 while a run is under way, else 0.",
            &|one| f64::from(u8::from(one.running.is_some())),
        ),
        of(
            "datapump_run_start_timestamp_seconds",
            Kind::Gauge,
            "When the run that is under way began, in seconds since 1970.",
            &|one| under_way(one, &|run| run.started_unix_s),
        ),
        of(
            "datapump_run_moved_bytes",
            Kind::Counter,
            "Bytes that the run that is under way has moved so far.",
            &|one| under_way(one, &|run| run.bytes as f64),
        ),
        of(
            "datapump_run_finished_files",
            Kind::Counter,
            "Files that the run that is under way has finished so far.",
            &|one| under_way(one, &|run| run.files as f64),
        ),
    ]
}

fn last(state: &State) -> Vec<Family> {
    let gauge = |name, help, figure: &dyn Fn(&RouteState) -> Option<f64>| {
        let of = |one: &RouteState| (labels(&one.route), figure(one).unwrap_or(f64::NAN));
        Family { name, kind: Kind::Gauge, help, samples: state.routes.iter().map(of).collect() }
    };
    let ended = |one: &RouteState, figure: &dyn Fn(&LastRun) -> f64| one.last.as_ref().map(figure);
    let found = |one: &RouteState, figure: &dyn Fn(&Figures) -> f64| {
        one.last.as_ref().and_then(|last| last.figures.as_ref()).map(figure)
    };
    let mut families = vec![
        gauge(
            "datapump_last_run_timestamp_seconds",
            "When the last run ended, in seconds since 1970.",
            &|one| ended(one, &|last| last.ended_unix_s),
        ),
        gauge(
            "datapump_last_success_timestamp_seconds",
            "When the newest run that succeeded ended, in seconds since 1970.",
            &|one| one.success_unix_s,
        ),
        gauge("datapump_last_run_exit_code", "Exit code of the last run; 0 is success.", &|one| {
            ended(one, &|last| f64::from(last.exit_code))
        }),
        gauge("datapump_last_run_bytes", "Bytes that the last run moved.", &|one| {
            found(one, &|run| run.bytes as f64)
        }),
        gauge("datapump_last_run_files", "Files that the last run moved.", &|one| {
            found(one, &|run| run.files as f64)
        }),
        gauge(
            "datapump_last_run_failed_files",
            "Files that the last run could not move.",
            &|one| found(one, &|run| run.failed_files as f64),
        ),
        gauge("datapump_last_run_duration_seconds", "How long the last run took.", &|one| {
            found(one, &|run| run.duration_s)
        }),
        gauge(
            "datapump_last_run_rate_bytes_per_second",
            "Bytes of files, without holes, that the last run moved in a second.",
            &|one| found(one, &|run| run.bytes_per_s.unwrap_or(f64::NAN)),
        ),
        gauge(
            "datapump_last_run_round_trip_min_seconds",
            "The shortest round trip that TCP measured in the last run.",
            &|one| found(one, &|run| run.round_trip_min_s.unwrap_or(f64::NAN)),
        ),
        gauge(
            "datapump_last_run_retransmitted_ratio",
            "Segments sent again in the last run, of all that were sent, where these were 3000 or \
             more.",
            &|one| found(one, &|run| run.retransmitted.unwrap_or(f64::NAN)),
        ),
    ];
    families.extend(by_label(state));
    families
}

/// Those with a label of their own beside the route.
fn by_label(state: &State) -> Vec<Family> {
    let figures = || {
        let known = |one: &RouteState| Some((labels(&one.route), one.last.clone()?.figures?));
        state.routes.iter().filter_map(known).collect::<Vec<_>>()
    };
    let with = |labels: &Labels, name, value: &str| -> Labels {
        labels.iter().cloned().chain([(name, value.to_string())]).collect()
    };
    let cost = figures().into_iter().flat_map(|(labels, run)| {
        let sample = |(side, cost): &(&str, f64)| (with(&labels, "side", side), *cost);
        run.cpu_s_per_byte.iter().map(sample).collect::<Vec<_>>()
    });
    let classes = |figure: fn(f64, bool) -> f64| -> Vec<(Labels, f64)> {
        let of = |(labels, run): (Labels, Figures)| {
            let held_back = run.held_back.into_iter();
            held_back
                .map(|(class, share, is_it)| (with(&labels, "class", &class), figure(share, is_it)))
                .collect::<Vec<_>>()
        };
        figures().into_iter().flat_map(of).collect()
    };
    let family = |name, help, samples| Family { name, kind: Kind::Gauge, help, samples };
    vec![
        family(
            "datapump_last_run_cpu_seconds_per_byte",
            "CPU time for each byte that the last run moved, by side: source, target, or both.",
            cost.collect(),
        ),
        family(
            "datapump_last_run_bottleneck",
            "1 for the class that held the last run back, else 0.",
            classes(|_, is_it| f64::from(u8::from(is_it))),
        ),
        family(
            "datapump_last_run_bottleneck_ratio",
            "Share of the bytes of the last run that each class limited.",
            classes(|share, _| share),
        ),
    ]
}

fn labels(route: &Route) -> Labels {
    let Route { name, command, source, target } = route;
    vec![
        ("name", name.clone()),
        ("command", command.clone()),
        ("source", source.clone()),
        ("target", target.clone()),
    ]
}

/// Where a metric's name ends with one of these, it is its unit.
const UNITS: [&str; 4] = ["seconds", "bytes", "ratio", "bytes_per_second"];
const LABEL_LETTERS: usize = 120;
const LAST_RUN: &str = "datapump_last_run_";
const OWN_LABELS: [&str; 2] = ["side", "class"];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::diagnosis::simulator::World;
    use crate::record::sample::Moved;

    fn state() -> State {
        let record = Record {
            moved: Moved {
                bytes: 1 << 30,
                files: 3,
                elapsed_s: 12.5,
                goodput_bytes_per_s: 8.6e7,
                ..Moved::default()
            },
            source: Side { cpu_user_s: 0.5, cpu_system_s: 0.573_741_824, ..Side::default() },
            sink: Some(Side { cpu_user_s: 2.0, ..Side::default() }),
            ..Record::default()
        };
        let world = World { seconds: 12.0, window_bytes: 326_880.0, ..World::default() };
        let verdict = crate::diagnosis::diagnose(&world.evidence());
        let route = Route {
            name: "backup".into(),
            command: "copy".into(),
            source: "dtn1".into(),
            target: "a\"b\\c\u{202e}\n".into(),
        };
        let last = LastRun {
            ended_unix_s: 1.79e9,
            exit_code: 0,
            figures: Some(Figures::of(&record, Some(&verdict))),
        };
        let running = Running { started_unix_s: 1.79e9, bytes: 5, files: 1 };
        State {
            version: "0.2.0".into(),
            routes: vec![RouteState {
                route,
                running: Some(running),
                last: Some(last),
                success_unix_s: Some(1.79e9),
                earlier: Vec::new(),
            }],
            cells: Some([3, 4]),
            spread: None,
        }
    }

    #[test]
    fn both_formats() {
        insta::assert_snapshot!("metrics-text", write(&state(), Format::Text));
        insta::assert_snapshot!("metrics-openmetrics", write(&state(), Format::OpenMetrics));
    }

    /// What is not known has no sample, and no name without samples is written.
    #[test]
    fn nothing_known_is_nothing_written() {
        let text = write(&State::default(), Format::Text);
        assert_eq!(text.lines().count(), 3, "{text}");
        let route = RouteState { route: Route::default(), ..RouteState::default() };
        let text = write(&State { routes: vec![route], ..State::default() }, Format::Text);
        assert!(text.contains("datapump_run_in_progress{") && !text.contains("NaN"), "{text}");
        assert!(!text.contains("datapump_last_run"), "{text}");
    }

    /// What an earlier process wrote is written again until the run has ended, and of this route
    /// alone.
    #[test]
    fn an_earlier_state_is_read_back() {
        let text = write(&state(), Format::Text);
        let route = state().routes[0].route.clone();
        let read = |route: &Route| -> Vec<Earlier> {
            text.lines().filter_map(|line| Earlier::read(line, route)).collect()
        };
        let earlier = read(&route);
        assert_eq!(read(&Route { name: "other".into(), ..route.clone() }), []);
        let mut again = state();
        again.routes[0] = RouteState { last: None, earlier, ..state().routes[0].clone() };
        assert_eq!(write(&again, Format::Text), text);
    }

    /// The rate is of what disks and networks had, and a run without any has none: an alert
    /// compares it with the median of others.
    #[test]
    fn holes_are_in_no_rate() {
        for (hole_bytes, expect) in [(0, Some(100.0)), (900, Some(100.0)), (1000, None)] {
            let goodput_bytes_per_s = 100.0;
            let moved = Moved { bytes: 1000, hole_bytes, goodput_bytes_per_s, ..Moved::default() };
            let figures = Figures::of(&Record { moved, ..Record::default() }, None);
            assert_eq!((figures.bytes, figures.bytes_per_s), (1000, expect), "{hole_bytes}");
        }
    }

    /// A copy with nothing to move sends a handful of segments, of which one is often sent again.
    #[test]
    fn a_ratio_needs_segments() {
        let cases = [
            (1, 2, None),
            (0, 5, None),
            (2999, 2999, None),
            (0, 3000, Some(0.0)),
            (30, 3000, Some(0.01)),
        ];
        for (again, sent, expect) in cases {
            let mut verdict = crate::diagnosis::diagnose(&World::default().evidence());
            let losses = &mut verdict.figures.losses;
            (losses.retransmitted_segments, losses.segments_sent) = (again, sent);
            let figures = Figures::of(&Record::default(), Some(&verdict));
            assert_eq!(figures.retransmitted, expect, "{again} of {sent}");
        }
    }

    /// Two jobs that write into one folder, with the same hosts, have no series in common.
    #[test]
    fn every_series_is_of_one_job() {
        let series = |name: &str| -> BTreeSet<String> {
            let mut state = state();
            state.routes[0].route.name = name.into();
            let text = write(&state, Format::Text);
            let lines = text.lines().filter(|line| !line.starts_with('#'));
            lines.map(|line| line.rsplit_once(' ').unwrap().0.to_string()).collect()
        };
        let shared: Vec<String> =
            series("nightly").intersection(&series("weekly")).cloned().collect();
        assert!(shared.is_empty(), "{shared:?}");
    }

    /// However many files and classes there are, the number of series of a route is known.
    #[test]
    fn the_number_of_series_is_bounded() {
        let text = write(&state(), Format::Text);
        let series = text.lines().filter(|line| !line.starts_with('#')).count();
        assert!(series <= 60, "{series}");
        let mut long = state();
        long.routes[0].route.target = "n".repeat(4000);
        let text = write(&long, Format::Text);
        assert!(text.lines().all(|line| line.len() < 400), "{text}");
    }
}
