//! The prediction of a copy: time, and CPU on both sides, with 90 % intervals, and the bottleneck.
//! Pure: from the shape of the copy and the cost of whole copies on its hosts; it uses neither the
//! store nor the copy.
//!
//! A copy's time is that of its login, plus
//! `fixed + streams·lane + files·file + small bytes·small + large bytes·large`; the CPU of each
//! side has the same form. The five costs of each route are fitted to calibration copies.

pub mod path_model;
pub mod route;
pub mod score;

use self::path_model::PathModel;
use self::route::RouteModel;
use crate::model::HostModel;
use crate::model::end_to_end::cost::{Cost, Features};
use crate::model::end_to_end::{EndToEnd, Route};
use crate::model::shape::Shape;
use crate::record::sample::Predicted;

/// A copy to be made.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    pub shape: Shape,
    /// `memory`, `tcp` or `control`.
    pub carrier: &'static str,
    pub streams: u16,
    /// File systems of the two ends.
    pub source: String,
    pub sink: String,
    /// The share of the source that is in the page cache, from 0 to 1.
    pub resident: f64,
    /// How long the login took; 0 on one host.
    pub login_s: f64,
    pub near_is_source: bool,
    /// Both ends run on the CPUs of one machine.
    pub same_machine: bool,
    pub rate_limit_bytes_per_s: Option<f64>,
    /// Settings that differ from those of the calibration, by name.
    pub unusual: Vec<&'static str>,
}

/// The prediction: low, middle and high; 90 % of copies are in between.
#[derive(Clone, Debug, PartialEq)]
pub struct Prediction {
    pub elapsed_s: [f64; 3],
    /// Of both sides, where both are one process.
    pub cpu_source_s: [f64; 3],
    pub cpu_sink_s: [f64; 3],
    pub rate_bytes_per_s: [f64; 3],
    pub binding: Binding,
    /// Why the error may be larger than the intervals.
    pub notes: Vec<String>,
}

/// The part that takes most of the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binding {
    Login,
    Start,
    Files,
    Cpu,
    DiskSource,
    DiskSink,
    Net,
    RateLimit,
}

impl Binding {
    /// The name for people.
    pub fn name(self) -> &'static str {
        match self {
            Binding::Login => "ssh login",
            Binding::Start => "startup (streams, buffers, first and last sync)",
            Binding::Files => "per-file work (create, sync, rename)",
            Binding::Cpu => "CPU",
            Binding::DiskSource => "reading the source's disk",
            Binding::DiskSink => "writing the destination's disk",
            Binding::Net => "network",
            Binding::RateLimit => "the rate limit",
        }
    }

    /// The name for programs.
    pub fn word(self) -> &'static str {
        match self {
            Binding::Login => "login",
            Binding::Start => "start",
            Binding::Files => "files",
            Binding::Cpu => "cpu",
            Binding::DiskSource => "disk-source",
            Binding::DiskSink => "disk-sink",
            Binding::Net => "net",
            Binding::RateLimit => "rate-limit",
        }
    }
}

impl Prediction {
    /// `None` where no model has a similar copy.
    pub fn of(
        plan: &Plan,
        near: Option<&HostModel>,
        far: Option<&HostModel>,
    ) -> Option<Prediction> {
        Some(PartialPrediction::of_hosts(plan, near, far)?.conclude(plan))
    }

    /// The same, with earlier copies between the two hosts: they predict the time, and the hosts
    /// then need no models of their own.
    pub fn over(
        plan: &Plan,
        near: Option<&HostModel>,
        far: Option<&HostModel>,
        path_model: Option<&PathModel>,
    ) -> Option<Prediction> {
        // A copy of a few bytes does not measure the rate of a path.
        let bytes = plan.shape.bytes() as f64;
        let is_comparable = |model: &&PathModel| bytes <= COMPARABLE * model.bytes_max;
        let path_model = path_model.filter(|_| plan.carrier == "tcp").filter(is_comparable);
        let Some(path_model) = path_model else {
            return Prediction::of(plan, near, far);
        };
        let hosts = PartialPrediction::of_hosts(plan, near, far);
        Some(PartialPrediction::over(plan, hosts, path_model).conclude(plan))
    }

    /// From earlier copies of the same kind over the same route: they took what this one will
    /// take, whatever the models of the hosts say.
    pub fn on_route(
        plan: &Plan,
        near: Option<&HostModel>,
        far: Option<&HostModel>,
        route: &RouteModel,
    ) -> Prediction {
        let hosts = PartialPrediction::of_hosts(plan, near, far);
        PartialPrediction::on_route(plan, hosts, route).conclude(plan)
    }
}

impl From<&Prediction> for Predicted {
    fn from(prediction: &Prediction) -> Predicted {
        let [rate_low_bytes_per_s, rate_bytes_per_s, rate_high_bytes_per_s] =
            prediction.rate_bytes_per_s.map(Some);
        let [elapsed_low_s, elapsed_s, elapsed_high_s] = prediction.elapsed_s;
        let [cpu_source_low_s, cpu_source_s, cpu_source_high_s] = prediction.cpu_source_s;
        let [cpu_sink_low_s, cpu_sink_s, cpu_sink_high_s] = prediction.cpu_sink_s;
        Predicted {
            elapsed_low_s,
            elapsed_s,
            elapsed_high_s,
            cpu_source_low_s,
            cpu_source_s,
            cpu_source_high_s,
            cpu_sink_low_s,
            cpu_sink_s,
            cpu_sink_high_s,
            binding: prediction.binding.word().to_string(),
            rate_low_bytes_per_s,
            rate_bytes_per_s,
            rate_high_bytes_per_s,
            notes: prediction.notes.clone(),
        }
    }
}

/// The parts of a copy's time, and its CPU, before they are combined.
#[derive(Clone, Debug)]
struct PartialPrediction {
    start_s: f64,
    files_s: f64,
    bytes_s: f64,
    cpu_source_s: f64,
    cpu_sink_s: f64,
    /// Half of the interval, as the logarithm of a factor.
    elapsed_spread: f64,
    cpu_source_spread: f64,
    cpu_sink_spread: f64,
    /// What limits the rate of bytes.
    byte_binding: Binding,
    notes: Vec<String>,
}

impl PartialPrediction {
    /// The prediction from the models of the two hosts.
    fn of_hosts(
        plan: &Plan,
        near: Option<&HostModel>,
        far: Option<&HostModel>,
    ) -> Option<PartialPrediction> {
        let near = near.and_then(|model| model.whole.as_ref());
        let far = far.and_then(|model| model.whole.as_ref());
        // On one machine the near model counts; a far one may be of another machine.
        let (near, far) = match plan.same_machine {
            true => (near.or(far)?, None),
            false => (near.or(far)?, far),
        };
        let mut outlook = PartialPrediction::of(plan, near)?;
        if !plan.same_machine {
            let there = far.and_then(|whole| PartialPrediction::of(plan, whole));
            outlook.across(plan, near.cpus, there);
        }
        Some(outlook)
    }

    /// The prediction from earlier copies over the same path. Where the hosts have models too, the
    /// slower of both counts: the copy may use other disks.
    fn over(
        plan: &Plan,
        hosts: Option<PartialPrediction>,
        path_model: &PathModel,
    ) -> PartialPrediction {
        let parts = path_model.at_shape(&plan.shape, plan.streams);
        let bytes = plan.shape.bytes() as f64;
        let beyond = (bytes / path_model.bytes_max.max(1.0)).max(1.0);
        let spread = path_model.spread.max(SPREAD_MIN) * (1.0 + EXTRAPOLATION * beyond.log2());
        let mut outlook = hosts.unwrap_or(PartialPrediction {
            start_s: 0.0,
            files_s: 0.0,
            bytes_s: 0.0,
            cpu_source_s: bytes * path_model.cpu_source_byte_s,
            cpu_sink_s: bytes * path_model.cpu_sink_byte_s,
            elapsed_spread: spread,
            cpu_source_spread: UNKNOWN_CPU_SPREAD,
            cpu_sink_spread: UNKNOWN_CPU_SPREAD,
            byte_binding: Binding::Net,
            notes: Vec::new(),
        });
        if parts.bytes_s >= outlook.bytes_s {
            (outlook.bytes_s, outlook.byte_binding) = (parts.bytes_s, Binding::Net);
            outlook.elapsed_spread = spread;
        }
        outlook.start_s = outlook.start_s.max(parts.start_s);
        outlook.files_s = outlook.files_s.max(parts.files_s);
        outlook.notes.retain(|note| note != NET_UNKNOWN);
        outlook
    }

    /// The prediction from earlier copies over the same route. CPU time is from the hosts' models
    /// where they know it better.
    fn on_route(
        plan: &Plan,
        hosts: Option<PartialPrediction>,
        route: &RouteModel,
    ) -> PartialPrediction {
        let model = &route.model;
        let parts = model.at_shape(&plan.shape, plan.streams);
        let bias = route.bias_ln.exp();
        let bytes = plan.shape.bytes() as f64;
        let beyond = (bytes / model.bytes_max.max(1.0)).max(1.0);
        let wider = 1.0 + EXTRAPOLATION * beyond.log2();
        // The spread is that of the time after the login.
        let moving_s = parts.total_s() * bias;
        let spread = route.spread.max(SPREAD_MIN) * wider * moving_s
            / (moving_s + plan.login_s).max(f64::MIN_POSITIVE);
        let [cpu_source_spread, cpu_sink_spread] =
            route.cpu_spreads.map(|spread| spread.max(SPREAD_MIN) * wider);
        let learned = PartialPrediction {
            start_s: parts.start_s * bias,
            files_s: parts.files_s * bias,
            bytes_s: parts.bytes_s * bias,
            cpu_source_s: bytes * model.cpu_source_byte_s,
            cpu_sink_s: bytes * model.cpu_sink_byte_s,
            elapsed_spread: spread,
            cpu_source_spread,
            cpu_sink_spread,
            byte_binding: if plan.carrier == "memory" { Binding::Cpu } else { Binding::Net },
            notes: Vec::new(),
        };
        let Some(hosts) = hosts else { return learned };
        let knows_cpu = hosts.cpu_source_spread.max(hosts.cpu_sink_spread)
            < learned.cpu_source_spread.max(learned.cpu_sink_spread);
        let byte_binding = hosts.byte_binding;
        match knows_cpu {
            true => PartialPrediction {
                start_s: learned.start_s,
                files_s: learned.files_s,
                bytes_s: learned.bytes_s,
                elapsed_spread: learned.elapsed_spread,
                notes: Vec::new(),
                ..hosts
            },
            false => PartialPrediction { byte_binding, ..learned },
        }
    }

    fn of(plan: &Plan, whole: &EndToEnd) -> Option<PartialPrediction> {
        let features = Features::of(&plan.shape, plan.streams);
        let wanted = (plan.carrier, plan.source.as_str(), plan.sink.as_str());
        let (warm, mut notes) = whole.nearest(wanted, false)?;
        let cold = whole.nearest(wanted, true).map_or(warm, |(route, _)| route);
        let blend = |of: fn(&Route) -> &Cost| {
            let (warm, cold) = (of(warm).at(&features), of(cold).at(&features));
            warm.blend(&cold, plan.resident.clamp(0.0, 1.0))
        };
        let elapsed = blend(|route| &route.elapsed);
        let (source, sink) = (blend(|route| &route.cpu_source), blend(|route| &route.cpu_sink));
        let beyond = (plan.shape.bytes() as f64 / warm.bytes_max.max(1.0))
            .max(plan.shape.files as f64 / warm.files_max.max(1.0))
            .max(1.0);
        let mut wider = 1.0 + EXTRAPOLATION * beyond.log2();
        wider *= (notes.len() as f64 * UNKNOWN_LN_WIDER).exp();
        for name in &plan.unusual {
            notes.push(format!("{name} differs from the calibration"));
            wider *= UNUSUAL_WIDER;
        }
        let spread = |cost: &Cost| cost.spread.max(SPREAD_MIN) * wider;
        Some(PartialPrediction {
            start_s: elapsed.start_s,
            files_s: elapsed.files_s,
            bytes_s: elapsed.bytes_s,
            cpu_source_s: source.total_s(),
            cpu_sink_s: sink.total_s(),
            elapsed_spread: spread(&warm.elapsed),
            cpu_source_spread: spread(&warm.cpu_source),
            cpu_sink_spread: spread(&warm.cpu_sink),
            byte_binding: byte_binding(
                plan,
                whole,
                &features,
                elapsed.bytes_s,
                [source.bytes_s, sink.bytes_s],
            ),
            notes,
        })
    }

    /// The far host is another machine: its side has its own model, and the two share no CPUs. The
    /// network between them has not been measured.
    fn across(&mut self, plan: &Plan, near_cpus: u32, there: Option<PartialPrediction>) {
        self.notes.push(NET_UNKNOWN.into());
        self.elapsed_spread = self.elapsed_spread.max(UNKNOWN_NET_SPREAD);
        let Some(there) = there else {
            let text = "no model of the far host: assuming it is like this one (run `datapump \
                        measure whole` there too)";
            self.notes.push(text.into());
            self.cpu_source_spread *= UNUSUAL_WIDER;
            self.cpu_sink_spread *= UNUSUAL_WIDER;
            return;
        };
        // On one machine both sides share the CPUs; on two machines each has its own.
        if self.byte_binding == Binding::Cpu && near_cpus > 0 {
            let both = self.cpu_source_s + self.cpu_sink_s;
            let most = self.cpu_source_s.max(self.cpu_sink_s);
            self.bytes_s *= if both > 0.0 { most / both } else { 1.0 };
        }
        self.start_s = self.start_s.max(there.start_s);
        self.files_s = self.files_s.max(there.files_s);
        self.elapsed_spread = self.elapsed_spread.max(there.elapsed_spread);
        match plan.near_is_source {
            true => {
                self.cpu_sink_s = there.cpu_sink_s;
                self.cpu_sink_spread = there.cpu_sink_spread;
            }
            false => {
                self.cpu_source_s = there.cpu_source_s;
                self.cpu_source_spread = there.cpu_source_spread;
            }
        }
    }

    fn conclude(self, plan: &Plan) -> Prediction {
        let bytes = plan.shape.bytes() as f64;
        let mut total_s = plan.login_s + self.start_s + self.files_s + self.bytes_s;
        let parts = [
            (plan.login_s, Binding::Login),
            (self.start_s, Binding::Start),
            (self.files_s, Binding::Files),
            (self.bytes_s, self.byte_binding),
        ];
        let largest = parts.into_iter().max_by(|a, b| a.0.total_cmp(&b.0));
        let mut binding = largest.map_or(Binding::Start, |(_, binding)| binding);
        let limited_s =
            plan.rate_limit_bytes_per_s.filter(|rate| *rate > 0.0).map_or(0.0, |rate| bytes / rate);
        if limited_s > self.bytes_s.max(self.files_s) {
            total_s = total_s.max(plan.login_s + self.start_s + limited_s);
            binding = Binding::RateLimit;
        }
        // Login times vary.
        let login_share = if total_s > 0.0 { plan.login_s / total_s } else { 0.0 };
        let spread = self.elapsed_spread.hypot(LOGIN_SPREAD * login_share);
        let elapsed_s = around(total_s, spread);
        let rate = |seconds: f64| if seconds > 0.0 { bytes / seconds } else { 0.0 };
        Prediction {
            elapsed_s,
            cpu_source_s: around(self.cpu_source_s, self.cpu_source_spread),
            cpu_sink_s: around(self.cpu_sink_s, self.cpu_sink_spread),
            rate_bytes_per_s: [rate(elapsed_s[2]), rate(elapsed_s[1]), rate(elapsed_s[0])],
            binding,
            notes: self.notes,
        }
    }
}

/// What limits bytes on a route: the CPU where it is busy all the time; else a disk, if memory in
/// its place would be faster; else the network.
fn byte_binding(
    plan: &Plan,
    whole: &EndToEnd,
    features: &Features,
    bytes_s: f64,
    cpu_s: [f64; 2],
) -> Binding {
    let busy = cpu_s.iter().sum::<f64>() / (f64::from(whole.cpus.max(1)) * bytes_s.max(1e-9));
    if busy >= CPU_BOUND {
        return Binding::Cpu;
    }
    let without = |source: &str, sink: &str| {
        let found = whole.find((plan.carrier, source, sink), false);
        found.map_or(f64::INFINITY, |route| route.elapsed.at(features).bytes_s)
    };
    let candidates = [
        (without("tmpfs", &plan.sink), Binding::DiskSource),
        (without(&plan.source, "tmpfs"), Binding::DiskSink),
    ];
    let best = candidates.into_iter().min_by(|a, b| a.0.total_cmp(&b.0));
    match best {
        Some((seconds, binding)) if seconds < bytes_s * DISK_BOUND => binding,
        _ if plan.carrier == "memory" => Binding::Cpu,
        _ => Binding::Net,
    }
}

/// A middle and its interval.
fn around(middle: f64, spread: f64) -> [f64; 3] {
    [middle / spread.exp(), middle, middle * spread.exp()]
}

/// An interval is never narrower than 3 %, the error of clocks and ticks.
const SPREAD_MIN: f64 = 0.03;
/// A path model is used for copies of up to this many times the bytes of its largest copy.
const COMPARABLE: f64 = 100.0;
/// How much wider an interval becomes with each doubling beyond the measured sizes.
const EXTRAPOLATION: f64 = 0.25;
const UNUSUAL_WIDER: f64 = 2.0;
/// For each end that the model does not have and replaces by a similar one.
const UNKNOWN_LN_WIDER: f64 = std::f64::consts::LN_2;
/// Variation of login times.
const LOGIN_SPREAD: f64 = 0.15;
/// A network may be slower by any factor; this is the least that the interval is widened.
const UNKNOWN_NET_SPREAD: f64 = std::f64::consts::LN_2;
/// CPU time per byte, from copies of other sizes.
const UNKNOWN_CPU_SPREAD: f64 = std::f64::consts::LN_2;
const NET_UNKNOWN: &str = "the network between the two hosts has not been measured";
/// From this share of all CPUs on, they are the bottleneck.
const CPU_BOUND: f64 = 0.8;
/// A disk is the bottleneck if memory in its place would take less than this share of the time.
const DISK_BOUND: f64 = 0.85;

#[cfg(test)]
mod tests;
