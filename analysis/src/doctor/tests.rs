use super::*;
use base::fault::Class;
use base::units::Nanos;

/// The facts of a host on which every check is good.
fn sound() -> BTreeMap<String, String> {
    let facts = [
        ("sysctl net.ipv4.tcp_rmem", "4096 131072 33554432"),
        ("sysctl net.ipv4.tcp_wmem", "4096 65536 33554432"),
        ("sysctl net.ipv4.tcp_moderate_rcvbuf", "1"),
        ("sysctl net.ipv4.tcp_window_scaling", "1"),
        ("sysctl net.ipv4.tcp_sack", "1"),
        ("sysctl net.ipv4.tcp_timestamps", "1"),
        ("sysctl net.ipv4.tcp_slow_start_after_idle", "0"),
        ("sysctl net.ipv4.tcp_congestion_control", "cubic"),
        ("sysctl net.ipv4.tcp_available_congestion_control", "reno cubic"),
        ("sysctl net.ipv4.tcp_mem", "200000 300000 400000"),
        ("sysctl net.core.rmem_max", "16777216"),
        ("sysctl net.core.wmem_max", "16777216"),
        ("sysctl net.core.default_qdisc", "fq_codel"),
        ("sysctl net.core.netdev_max_backlog", "1000"),
        ("backlog_dropped", "0"),
        ("interface", "eth0"),
        ("interface_mbit", "1000"),
        ("interface_queue_packets", "1000"),
        ("mtu_bytes", "1500"),
        ("qdisc", "fq_codel"),
        ("interrupt_queues", "2"),
        ("interrupt_busiest_share", "0.55"),
        ("cpus", "2"),
        ("cpus_allowed", "2"),
        ("cpu_quota", "max 100000"),
        ("frequency_governors", "performance"),
        ("clocksource", "tsc"),
        ("entropy_bits", "256"),
        ("open_files", "1024"),
        ("kernel", "6.1.0-28-amd64"),
        ("absent_calls", ""),
        ("io_uring_disabled", "0"),
        ("huge_pages", "always [madvise] never"),
        ("memory_available_bytes", "8000000000"),
        ("orders_given_back", ""),
        ("folder", "/data"),
        ("folder_file_system", "ext4"),
        ("folder_mount_options", "rw,relatime"),
        ("folder_free_bytes", "50000000000"),
        ("folder_total_bytes", "100000000000"),
        ("folder_free_nodes", "1000000"),
    ];
    facts.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect()
}

fn far_away() -> Goal {
    Goal { bytes_per_s: 125e6, round_trip: Some(Nanos::from_millis(100)) }
}

#[test]
fn nothing_is_wrong_with_a_sound_host() {
    for round_trip in [None, Some(Nanos(100_000)), Some(Nanos::from_millis(100))] {
        let findings = of_host("h", &sound(), &Goal { round_trip, ..far_away() });
        for finding in &findings {
            assert_eq!(finding.state, State::Good, "{round_trip:?}: {finding:?}");
        }
        assert_eq!(findings.len(), tcp::RULES.len() + rules::RULES.len(), "all have looked");
    }
}

/// Each fault is found by its own check, and by no other.
#[test]
fn each_fault_is_found() {
    use State::{Advice, Trouble, Unknown};
    let sysctl = |name: &str| format!("sysctl net.ipv4.{name}");
    let cases: Vec<(String, Option<&str>, &str, State)> = vec![
        (sysctl("tcp_rmem"), Some("4096 131072 1048576"), "receive buffer", Trouble),
        (sysctl("tcp_rmem"), Some("4096 131072 20000000"), "receive buffer", Advice),
        (sysctl("tcp_wmem"), Some("4096 16384 262144"), "send buffer", Trouble),
        (sysctl("tcp_moderate_rcvbuf"), Some("0"), "receive autotuning", Trouble),
        (sysctl("tcp_window_scaling"), Some("0"), "window scaling", Trouble),
        (sysctl("tcp_sack"), Some("0"), "selective acknowledgements", Trouble),
        (sysctl("tcp_timestamps"), Some("0"), "timestamps", Trouble),
        (sysctl("tcp_slow_start_after_idle"), Some("1"), "slow start after idle", Advice),
        (sysctl("tcp_congestion_control"), Some("reno"), "congestion control", Advice),
        (sysctl("tcp_mem"), Some("100 200 300"), "memory for TCP", Trouble),
        ("sysctl net.core.rmem_max".into(), Some("212992"), "explicit windows", Advice),
        ("sysctl net.core.netdev_max_backlog".into(), Some("10"), "receive backlog", Trouble),
        ("backlog_dropped".into(), Some("7"), "receive backlog", Advice),
        ("interface_mbit".into(), Some("100"), "interface", Trouble),
        ("mtu_bytes".into(), Some("1300"), "packet size", Advice),
        ("mtu_bytes".into(), Some("576"), "packet size", Trouble),
        ("qdisc".into(), Some("netem"), "queue discipline", Trouble),
        ("qdisc".into(), None, "queue discipline", Unknown),
        ("interrupt_busiest_share".into(), Some("0.99"), "interrupts", Advice),
        ("cpu_quota".into(), Some("50000 100000"), "processors", Trouble),
        ("cpus_allowed".into(), Some("1"), "processors", Advice),
        (
            "frequency_governors".into(),
            Some("performance powersave"),
            "frequency governor",
            Trouble,
        ),
        ("clocksource".into(), Some("hpet"), "clock source", Trouble),
        ("entropy_bits".into(), Some("12"), "random numbers", Trouble),
        ("open_files".into(), Some("256"), "open files", Trouble),
        ("absent_calls".into(), Some("openat2 (Linux 5.6)"), "kernel", Advice),
        ("io_uring_disabled".into(), Some("2"), "io_uring", Advice),
        ("huge_pages".into(), Some("always madvise [never]"), "huge pages", Advice),
        ("memory_available_bytes".into(), Some("1000000"), "free memory", Advice),
        ("orders_given_back".into(), Some("9..11"), "freed memory", Advice),
        ("folder_mount_options".into(), Some("ro,relatime"), "file system", Trouble),
        ("folder_mount_options".into(), Some("rw,sync"), "file system", Trouble),
        ("folder_free_bytes".into(), Some("3000000000"), "free space", Advice),
        ("folder_free_bytes".into(), Some("0"), "free space", Trouble),
        ("folder_free_nodes".into(), Some("0"), "free space", Trouble),
    ];
    for (name, value, check, state) in cases {
        let mut facts = sound();
        match value {
            Some(value) => facts.insert(name.clone(), value.to_string()),
            None => facts.remove(&name),
        };
        let findings = of_host("h", &facts, &far_away());
        let odd: Vec<_> = findings.iter().filter(|one| one.state != State::Good).collect();
        assert_eq!(odd.len(), 1, "{name} {value:?}: {odd:?}");
        assert_eq!((odd[0].check, odd[0].state), (check, state), "{name} {value:?}: {odd:?}");
        let told = state == Unknown || !(odd[0].why.is_empty() || odd[0].remedy.is_empty());
        assert!(told, "{name} {value:?}: {odd:?}");
    }
}

/// A buffer of the advised size passes the check.
#[test]
fn a_buffer_as_advised_is_good() {
    let mut facts = sound();
    let key = "sysctl net.ipv4.tcp_rmem";
    facts.insert(key.into(), "4096 131072 262144".into());
    let findings = of_host("h", &facts, &far_away());
    let remedy = &findings.iter().find(|one| one.check == "receive buffer").unwrap().remedy;
    let value = remedy.split('\'').nth(1).unwrap();
    assert!(value.starts_with("4096 131072 "), "{remedy}");
    facts.insert(key.into(), value.into());
    let findings = of_host("h", &facts, &far_away());
    assert!(findings.iter().all(|one| one.state == State::Good), "{remedy}: {findings:?}");
}

#[test]
fn a_host_that_tells_nothing_is_not_blamed() {
    let odd = ["", "x", "-1", "NaN", "9999999999999999999999", "1 2 3 4 5", "\u{0}"];
    assert_eq!(of_host("h", &BTreeMap::new(), &far_away()).len(), 1, "no governor is a fact");
    for name in sound().keys() {
        for value in odd {
            let mut facts = sound();
            facts.insert(name.clone(), value.into());
            of_host("h", &facts, &far_away()); // it does not panic
        }
    }
}

fn tried() -> TestConnection {
    TestConnection {
        address: "10.77.0.2:5000".into(),
        round_trip: Nanos::from_millis(21),
        round_trip_min: Nanos::from_millis(20),
        path_mtu_bytes: 1500,
        window_scaling: true,
        selective: true,
        timestamps: true,
        there: true,
        back: true,
    }
}

fn knocked() -> PathProbe {
    PathProbe {
        login: Nanos::from_millis(300),
        program: "datapump 1".into(),
        clock_apart_s: 0.01,
        asked: Nanos::from_millis(21),
        tried: Ok(tried()),
    }
}

#[test]
fn paths_and_their_faults() {
    let cases: Vec<(PathProbe, Option<&str>)> = vec![
        (knocked(), None),
        (PathProbe { login: Nanos::from_millis(9000), ..knocked() }, Some("ssh")),
        (PathProbe { clock_apart_s: -75.0, ..knocked() }, Some("clocks")),
        (PathProbe { tried: Err("cannot connect".into()), ..knocked() }, Some("data port")),
        (
            PathProbe { tried: Ok(TestConnection { there: false, ..tried() }), ..knocked() },
            Some("full packets"),
        ),
        (
            PathProbe { tried: Ok(TestConnection { back: false, ..tried() }), ..knocked() },
            Some("full packets"),
        ),
        (
            PathProbe {
                tried: Ok(TestConnection { path_mtu_bytes: 1400, ..tried() }),
                ..knocked()
            },
            Some("path MTU"),
        ),
        (
            PathProbe { tried: Ok(TestConnection { timestamps: false, ..tried() }), ..knocked() },
            Some("TCP options"),
        ),
    ];
    for (knocked, expect) in cases {
        let findings = of_path("far", &knocked, &sound());
        let odd: Vec<&str> = findings
            .iter()
            .filter(|one| one.state != State::Good)
            .inspect(|one| assert!(!one.why.is_empty() && !one.remedy.is_empty(), "{one:?}"))
            .map(|one| one.check)
            .collect();
        assert_eq!(odd, expect.into_iter().collect::<Vec<_>>(), "{knocked:?}");
    }
}

#[test]
fn who_cannot_be_asked_is_trouble() {
    for (class, check) in [(Class::Unreachable, "ssh"), (Class::Version, "versions")] {
        let finding = not_reached("far", &Fault::new(class, "it is so"));
        assert_eq!((finding.check, finding.state), (check, State::Trouble));
        assert_eq!(finding.found, "it is so");
    }
}
