//! What whole copies cost on this host: calibration copies with default options, and the costs of
//! each route that are fitted to them.

use std::path::PathBuf;

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64;
use serde::{Deserialize, Serialize};

use self::cost::{Cost, Features, Misses, Point, spread};
use super::shape::{LARGE_FROM_BYTES, Shape};
use base::limits::NAME_BYTES_MAX;

pub mod cost;
pub mod records;

/// What whole copies cost on one host.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EndToEnd {
    pub cpus: u32,
    pub fitted_unix_s: f64,
    pub routes: Vec<Route>,
}

/// What copies cost between two file systems of one host.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Route {
    /// `memory` in one process, `tcp` between two.
    pub carrier: String,
    pub source: String,
    pub sink: String,
    /// The source was not in the page cache.
    pub cold: bool,
    pub copies: u32,
    /// The largest copies that it was fitted to.
    pub bytes_max: f64,
    pub files_max: f64,
    pub elapsed: Cost,
    /// Of both sides, where both are one process.
    pub cpu_source: Cost,
    pub cpu_sink: Cost,
}

/// A copy that was made for calibration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EndToEndSample {
    pub carrier: String,
    pub source: String,
    pub sink: String,
    pub cold: bool,
    pub streams: u16,
    pub files: u64,
    pub small_bytes: u64,
    pub large_bytes: u64,
    pub login_s: f64,
    pub elapsed_s: f64,
    pub cpu_source_s: f64,
    pub cpu_sink_s: f64,
}

impl EndToEndSample {
    pub fn shape(&self) -> Shape {
        let EndToEndSample { files, small_bytes, large_bytes, .. } = *self;
        Shape { files, small_bytes, large_bytes }
    }

    fn route(&self) -> (&str, &str, &str, bool) {
        (&self.carrier, &self.source, &self.sink, self.cold)
    }

    fn point(&self, seconds: f64, beside_s: f64) -> Point {
        Point { features: Features::of(&self.shape(), self.streams), seconds, beside_s }
    }
}

impl EndToEnd {
    /// Fits each route of the samples.
    pub fn fit(samples: &[EndToEndSample], cpus: u32, fitted_unix_s: f64) -> EndToEnd {
        let mut routes: Vec<(&str, &str, &str, bool)> = Vec::new();
        for sample in samples {
            if !routes.contains(&sample.route()) {
                routes.push(sample.route());
            }
        }
        let fitted = routes.into_iter().map(|route| {
            let own: Vec<&EndToEndSample> =
                samples.iter().filter(|sample| sample.route() == route).collect();
            Route::fit(route, &own)
        });
        let (mut routes, misses): (Vec<Route>, Vec<[Misses; 3]>) = fitted.unzip();
        for place in 0..routes.len() {
            let kind = routes[place].kind();
            let alike: Vec<&[Misses; 3]> = routes
                .iter()
                .zip(&misses)
                .filter(|(route, _)| route.kind() == kind)
                .map(|(_, misses)| misses)
                .collect();
            for (i, cost) in routes[place].costs_mut().into_iter().enumerate() {
                let own = &misses[place][i];
                // A route with few misses takes the spread of all routes of its kind.
                cost.spread = match own.len() >= MISSES_MIN {
                    true => spread(own),
                    false => {
                        let all: Misses = alike.iter().flat_map(|all| all[i].clone()).collect();
                        spread(&all)
                    }
                };
            }
        }
        EndToEnd { cpus, fitted_unix_s, routes }
    }

    /// The route with these ends: carrier, source, sink.
    pub fn find(&self, ends: (&str, &str, &str), cold: bool) -> Option<&Route> {
        self.routes.iter().find(|route| route.ends() == ends && route.cold == cold)
    }

    /// The route that is most like the one with these ends, and in what it differs.
    pub fn nearest(&self, ends: (&str, &str, &str), cold: bool) -> Option<(&Route, Vec<String>)> {
        let (carrier, source, sink) = ends;
        if let Some(route) = self.find(ends, cold) {
            return Some((route, Vec::new()));
        }
        let like = |wanted: &str, measured: &str| waits(wanted) == waits(measured);
        // The control connection is measured nowhere: TCP between two processes is closest to it.
        let carrier = if carrier == "control" { "tcp" } else { carrier };
        let route = self.routes.iter().find(|route| {
            route.carrier == carrier
                && route.cold == cold
                && like(source, &route.source)
                && like(sink, &route.sink)
        })?;
        let wanted = [(ends.0, &route.carrier), (source, &route.source), (sink, &route.sink)];
        let other = wanted.into_iter().filter(|(wanted, measured)| wanted != measured);
        let notes = other.map(|(wanted, measured)| {
            let wanted = if wanted.is_empty() { "an unknown file system" } else { wanted };
            format!("{wanted} was not measured; using {measured} instead")
        });
        Some((route, notes.collect()))
    }
}

impl EndToEnd {
    /// True when every number in it is finite and within its limits.
    pub fn is_sound(&self) -> bool {
        let sound = |number: f64| number.is_finite() && (0.0..=COST_MAX).contains(&number);
        let large = |number: f64| number.is_finite() && (0.0..=COUNT_MAX).contains(&number);
        let routes = self.routes.iter().all(|route| {
            let costs = [&route.elapsed, &route.cpu_source, &route.cpu_sink];
            let names = [&route.carrier, &route.source, &route.sink];
            costs.into_iter().all(|cost| cost.numbers().into_iter().all(sound))
                && names.into_iter().all(|name| is_plain(name))
                && large(route.bytes_max)
                && large(route.files_max)
        });
        routes && self.routes.len() <= ROUTES_MAX && (1..=CPUS_MAX).contains(&self.cpus)
    }
}

impl Route {
    fn fit(
        (carrier, source, sink, cold): (&str, &str, &str, bool),
        samples: &[&EndToEndSample],
    ) -> (Route, [Misses; 3]) {
        let most = |of: fn(&EndToEndSample) -> u64| {
            samples.iter().map(|sample| of(sample) as f64).fold(0.0, f64::max)
        };
        let cost = |seconds: fn(&EndToEndSample) -> f64, beside_s: fn(&EndToEndSample) -> f64| {
            let points = samples.iter().map(|s| s.point(seconds(s), beside_s(s)));
            Cost::fit(&points.collect::<Vec<_>>())
        };
        let (elapsed, elapsed_misses) = cost(|s| (s.elapsed_s - s.login_s).max(0.0), |s| s.login_s);
        let (cpu_source, source_misses) = cost(|s| s.cpu_source_s, |_| 0.0);
        let (cpu_sink, sink_misses) = cost(|s| s.cpu_sink_s, |_| 0.0);
        let route = Route {
            carrier: carrier.to_string(),
            source: source.to_string(),
            sink: sink.to_string(),
            cold,
            copies: samples.len() as u32,
            bytes_max: most(|sample| sample.shape().bytes()),
            files_max: most(|sample| sample.files),
            elapsed,
            cpu_source,
            cpu_sink,
        };
        (route, [elapsed_misses, source_misses, sink_misses])
    }

    /// Routes whose predictions err in a similar way.
    fn kind(&self) -> (String, bool) {
        (self.carrier.clone(), waits(&self.sink))
    }

    fn costs_mut(&mut self) -> [&mut Cost; 3] {
        [&mut self.elapsed, &mut self.cpu_source, &mut self.cpu_sink]
    }

    fn ends(&self) -> (&str, &str, &str) {
        (&self.carrier, &self.source, &self.sink)
    }
}

/// Names are printed: they must not contain terminal control sequences.
fn is_plain(name: &str) -> bool {
    name.len() <= NAME_BYTES_MAX && name.chars().all(|c| c.is_ascii_graphic())
}

/// With fewer, the ninth decile would be the largest value.
const MISSES_MIN: usize = 20;
/// Upper limit in seconds for the cost of a byte, a file or a copy.
const COST_MAX: f64 = 1e6;
const COUNT_MAX: f64 = 1e18;
const ROUTES_MAX: usize = 64;
const CPUS_MAX: u32 = 1 << 16;

/// True of file systems on a device; an unknown one is taken for one of these.
fn waits(file_system: &str) -> bool {
    !matches!(file_system, "tmpfs" | "ramfs" | "null" | "generated" | "pipe")
}

/// Where one end of a trial is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Medium {
    Memory,
    Disk,
}

/// What is copied in a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    pub files: u64,
    pub file_bytes: u64,
}

impl Load {
    pub fn shape(self) -> Shape {
        let bytes = self.files * self.file_bytes;
        match self.file_bytes < LARGE_FROM_BYTES {
            true => Shape { files: self.files, small_bytes: bytes, large_bytes: 0 },
            false => Shape { files: self.files, small_bytes: 0, large_bytes: bytes },
        }
    }
}

/// A copy to be made for calibration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trial {
    /// To a far side, which is another process on this host.
    pub far: bool,
    pub source: Medium,
    pub sink: Medium,
    pub cold: bool,
    pub load: Load,
}

/// A calibration copy that was made.
#[derive(Clone, Debug)]
pub struct TrialCopy {
    pub trial: Trial,
    pub sample: EndToEndSample,
    pub source: PathBuf,
    pub target: PathBuf,
    pub started_unix_s: f64,
    /// Its number, from 1, and how many there are.
    pub number: usize,
    pub of: usize,
}

/// All trials of a calibration in random order, so that a slow minute of the machine affects no
/// route more than the others.
pub fn calibration_jobs(seed: u64, repeats: u32) -> Vec<Trial> {
    let media = [Medium::Memory, Medium::Disk];
    let mut generator = Pcg64::seed_from_u64(seed);
    let mut all = Vec::new();
    for repeat in 0..repeats {
        let mut pass = Vec::new();
        for far in [false, true] {
            for (source, sink) in media.iter().flat_map(|a| media.iter().map(move |b| (*a, *b))) {
                let trial = |load, cold| Trial { far, source, sink, cold, load };
                pass.extend(LOADS.iter().map(|load| trial(*load, false)));
                // A source in memory is never cold.
                if source == Medium::Disk && repeat == 0 {
                    pass.extend(LOADS.iter().map(|load| trial(*load, true)));
                }
            }
        }
        pass.shuffle(&mut generator);
        all.extend(pass);
    }
    all
}

/// The loads of a calibration: enough sizes to separate the costs of a copy, of a file, and of
/// small and large bytes.
pub const LOADS: &[Load] = &[
    Load { files: 1, file_bytes: 1 << 20 },
    Load { files: 1, file_bytes: 12 << 20 },
    Load { files: 1, file_bytes: 96 << 20 },
    Load { files: 1, file_bytes: 320 << 20 },
    Load { files: 1, file_bytes: 1 << 30 },
    Load { files: 100, file_bytes: 8 << 10 },
    Load { files: 1000, file_bytes: 1 << 10 },
    Load { files: 6000, file_bytes: 12 << 10 },
    Load { files: 1500, file_bytes: 200 << 10 },
];

#[cfg(test)]
mod tests;
#[cfg(test)]
pub mod planted {
    pub(crate) use crate::model::end_to_end::tests::planted_end_to_end;
}
