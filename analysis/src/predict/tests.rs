use super::*;
use crate::model::end_to_end::planted::planted_end_to_end;

fn model() -> HostModel {
    HostModel { cpus: 2, whole: Some(planted_end_to_end()), ..HostModel::default() }
}

fn plan(carrier: &'static str, source: &str, sink: &str, shape: Shape) -> Plan {
    Plan {
        shape,
        carrier,
        streams: 4,
        source: source.into(),
        sink: sink.into(),
        resident: 1.0,
        login_s: if carrier == "memory" { 0.0 } else { 0.25 },
        near_is_source: true,
        same_machine: true,
        rate_limit_bytes_per_s: None,
        unusual: Vec::new(),
    }
}

const GIB: u64 = 1 << 30;

fn large(bytes: u64) -> Shape {
    let mut shape = Shape::default();
    shape.add(bytes);
    shape
}

/// The planted costs, and the prediction from them.
#[test]
fn time_cpu_and_what_binds() {
    let many = Shape { files: 10_000, small_bytes: 10_000_000, large_bytes: 0 };
    let cases = [
        (plan("memory", "tmpfs", "tmpfs", large(GIB)), 0.434, Binding::Cpu),
        (plan("memory", "tmpfs", "ext4", large(GIB)), 0.664, Binding::DiskSink),
        (plan("memory", "tmpfs", "ext4", many), 2.03, Binding::Files),
        (plan("tcp", "tmpfs", "tmpfs", large(1)), 0.28, Binding::Login),
        (plan("memory", "tmpfs", "tmpfs", large(1)), 0.004, Binding::Start),
    ];
    let model = model();
    for (plan, seconds, binding) in cases {
        let got = Prediction::of(&plan, Some(&model), None).unwrap();
        let [low, middle, high] = got.elapsed_s;
        assert!((middle / seconds - 1.0).abs() < 0.1, "{plan:?}: {got:?}");
        assert!(low < middle && middle < high && low > 0.0, "{got:?}");
        assert!(got.notes.is_empty(), "{got:?}");
        if binding != Binding::Cpu {
            assert_eq!(got.binding, binding, "{plan:?}: {got:?}");
        }
    }
}

#[test]
fn what_is_not_known_widens_and_is_said() {
    let model = model();
    let usual = plan("memory", "tmpfs", "ext4", large(GIB));
    let width = |plan: &Plan| {
        let got = Prediction::of(plan, Some(&model), None).unwrap();
        (got.elapsed_s[2] / got.elapsed_s[0], got.notes.len())
    };
    let (narrow, _) = width(&usual);
    let cases = [
        (Plan { sink: "xfs".into(), ..usual.clone() }, 1),
        (Plan { sink: String::new(), ..usual.clone() }, 1),
        (Plan { unusual: vec!["--fsync"], ..usual.clone() }, 1),
        (Plan { shape: large(64 * GIB), ..usual.clone() }, 0),
        (Plan { same_machine: false, carrier: "tcp", ..usual.clone() }, 2),
        (Plan { carrier: "control", ..usual.clone() }, 1),
    ];
    for (plan, notes) in cases {
        let (wide, said) = width(&plan);
        assert!(wide > narrow, "{plan:?}: {wide} against {narrow}");
        assert_eq!(said, notes, "{plan:?}");
    }
}

#[test]
fn a_rate_limit_is_what_binds() {
    let limited =
        Plan { rate_limit_bytes_per_s: Some(1e8), ..plan("memory", "tmpfs", "tmpfs", large(GIB)) };
    let got = Prediction::of(&limited, Some(&model()), None).unwrap();
    assert_eq!(got.binding, Binding::RateLimit);
    assert!((10.0..12.0).contains(&got.elapsed_s[1]), "{got:?}");
}

/// Two hosts: each side's CPU is from the model of its own host.
#[test]
fn each_side_is_its_own_hosts() {
    let mut slow = planted_end_to_end();
    for route in &mut slow.routes {
        route.cpu_sink.large_byte_s *= 10.0;
        route.cpu_source.large_byte_s *= 10.0;
    }
    let far = HostModel { cpus: 8, whole: Some(slow), ..HostModel::default() };
    let near = model();
    let across = Plan { same_machine: false, ..plan("tcp", "tmpfs", "tmpfs", large(GIB)) };
    let alone = Prediction::of(&across, Some(&near), None).unwrap();
    let push = Prediction::of(&across, Some(&near), Some(&far)).unwrap();
    assert!(push.cpu_sink_s[1] > 5.0 * alone.cpu_sink_s[1], "{push:?}");
    assert_eq!(push.cpu_source_s[1], alone.cpu_source_s[1]);
    let pull = Plan { near_is_source: false, ..across };
    let pull = Prediction::of(&pull, Some(&near), Some(&far)).unwrap();
    assert!(pull.cpu_source_s[1] > 5.0 * alone.cpu_source_s[1], "{pull:?}");
}

#[test]
fn without_a_model_nothing_is_said() {
    let plan = plan("memory", "tmpfs", "tmpfs", large(GIB));
    let none = HostModel::default();
    let empty =
        HostModel { whole: Some(EndToEnd { cpus: 2, ..EndToEnd::default() }), ..none.clone() };
    for model in [None, Some(&none), Some(&empty)] {
        assert_eq!(Prediction::of(&plan, model, None), None);
    }
}

/// The path is predicted from earlier copies; of hosts and path, the slower one counts.
#[test]
fn a_way_that_is_known_needs_no_model_of_the_hosts() {
    let path_model = PathModel {
        copies: 6,
        rtt_s: 0.1,
        rate_bytes_per_s: 12e6,
        fixed_s: 0.6,
        file_s: 0.0,
        spread: 0.05,
        bytes_max: 200e6,
        cpu_source_byte_s: 3e-9,
        cpu_sink_byte_s: 6e-9,
    };
    let across = Plan { same_machine: false, ..plan("tcp", "tmpfs", "tmpfs", large(120_000_000)) };
    let model = model();
    for hosts in [None, Some(&model)] {
        let got = Prediction::over(&across, hosts, None, Some(&path_model)).unwrap();
        // The login, the fixed time, slow start, and 10 s of bytes.
        assert!((got.elapsed_s[1] - 11.2).abs() < 0.3, "{got:?}");
        assert!(got.elapsed_s[2] / got.elapsed_s[0] < 1.2, "{got:?}");
        assert_eq!(got.binding, Binding::Net);
        assert!(!got.notes.iter().any(|note| note == NET_UNKNOWN), "{got:?}");
        assert!(got.cpu_sink_s[1] > 0.0, "{got:?}");
    }
    let fast = PathModel { rate_bytes_per_s: 1e12, ..path_model.clone() };
    let got = Prediction::over(&across, Some(&model), None, Some(&fast)).unwrap();
    assert_ne!(got.binding, Binding::Net, "{got:?}");
    // A copy of four bytes is not comparable with gigabytes.
    let tiny = PathModel { bytes_max: 4.0, rate_bytes_per_s: 70.0, ..path_model.clone() };
    assert_eq!(Prediction::over(&across, None, None, Some(&tiny)), None);
    // The ssh connection is another path.
    let carried = Plan { carrier: "control", ..across };
    assert_eq!(Prediction::over(&carried, None, None, Some(&path_model)), None);
}
