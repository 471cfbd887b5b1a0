//! `doctor` finds each planted fault and nothing else, and changes nothing.

use std::collections::BTreeSet;
use std::process::Command;

use crate::support::mount::Mount;
use crate::support::run::{self, Ran};
use crate::support::wan::Wan;
use crate::support::{Scene, data, each};

/// Settings of both hosts that leave nothing to report except the machine itself.
const SOUND: &str = "sysctl -w 'net.ipv4.tcp_rmem=4096 131072 33554432' \
                     'net.ipv4.tcp_wmem=4096 65536 33554432' \
                     net.ipv4.tcp_slow_start_after_idle=0";

/// A fault: where, how it is made and undone, and which checks of which host must find it.
struct Plant {
    side: Side,
    make: &'static str,
    undo: &'static str,
    /// In front of the program, and behind its words.
    before: &'static str,
    options: &'static str,
    found: &'static [(&'static str, &'static str)],
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Side {
    Near,
    Far,
}

impl std::fmt::Debug for Plant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}: {}{}{}", self.side, self.make, self.before, self.options)
    }
}

const HERE: &str = "this host";
const THERE: &str = "far";
const BETWEEN: &str = "path to far";

const fn setting(
    side: Side,
    make: &'static str,
    undo: &'static str,
    found: &'static [(&'static str, &'static str)],
) -> Plant {
    Plant { side, make, undo, before: "", options: "", found }
}

const PLANTS: &[Plant] = &[
    setting(
        Side::Near,
        "sysctl -w net.ipv4.tcp_window_scaling=0",
        "sysctl -w net.ipv4.tcp_window_scaling=1",
        &[(HERE, "window scaling"), (BETWEEN, "TCP options")],
    ),
    setting(
        Side::Far,
        "sysctl -w net.ipv4.tcp_sack=0",
        "sysctl -w net.ipv4.tcp_sack=1",
        &[(THERE, "selective acknowledgements"), (BETWEEN, "TCP options")],
    ),
    setting(
        Side::Near,
        "sysctl -w net.ipv4.tcp_timestamps=0",
        "sysctl -w net.ipv4.tcp_timestamps=1",
        &[(HERE, "timestamps"), (BETWEEN, "TCP options")],
    ),
    setting(
        Side::Far,
        "sysctl -w 'net.ipv4.tcp_rmem=4096 65536 131072'",
        "sysctl -w 'net.ipv4.tcp_rmem=4096 131072 33554432'",
        &[(THERE, "receive buffer")],
    ),
    setting(
        Side::Near,
        "sysctl -w 'net.ipv4.tcp_wmem=4096 16384 65536'",
        "sysctl -w 'net.ipv4.tcp_wmem=4096 65536 33554432'",
        &[(HERE, "send buffer")],
    ),
    setting(
        Side::Far,
        "sysctl -w net.ipv4.tcp_moderate_rcvbuf=0",
        "sysctl -w net.ipv4.tcp_moderate_rcvbuf=1",
        &[(THERE, "receive autotuning")],
    ),
    setting(
        Side::Near,
        // Not with BBR, which some machines run: it begins by its model of the path.
        "sysctl -w net.ipv4.tcp_slow_start_after_idle=1 net.ipv4.tcp_congestion_control=reno",
        "sysctl -w net.ipv4.tcp_slow_start_after_idle=0 net.ipv4.tcp_congestion_control=$USUAL",
        &[(HERE, "congestion control"), (HERE, "slow start after idle")],
    ),
    setting(
        Side::Far,
        "sysctl -w net.ipv4.tcp_congestion_control=reno",
        "sysctl -w net.ipv4.tcp_congestion_control=$USUAL",
        &[(THERE, "congestion control")],
    ),
    setting(
        Side::Near,
        "ip link set wan0 mtu 1300",
        "ip link set wan0 mtu 1500",
        &[(HERE, "packet size")],
    ),
    setting(
        Side::Far,
        "ip link set wan0 txqueuelen 5 && tc qdisc replace dev wan0 root pfifo",
        "tc qdisc del dev wan0 root && ip link set wan0 txqueuelen 20000",
        &[(THERE, "queue discipline")],
    ),
    setting(
        Side::Near,
        "tc qdisc add dev wan0 root tbf rate 50mbit burst 64kb latency 50ms",
        "tc qdisc del dev wan0 root",
        &[(HERE, "queue discipline")],
    ),
    // Packets to that port are dropped without an answer, as with most firewalls.
    Plant {
        options: " --ports 50000-50000",
        ..setting(
            Side::Far,
            "ip rule add ipproto tcp sport 50000 blackhole",
            "ip rule del ipproto tcp sport 50000 blackhole",
            &[(BETWEEN, "data port")],
        )
    },
    Plant { before: "ulimit -n 300; ", ..setting(Side::Near, "", "", &[(HERE, "open files")]) },
    Plant { options: " --file @/full", ..setting(Side::Near, "", "", &[(HERE, "free space")]) },
];

#[test]
fn what_is_planted_is_found_and_nothing_else() {
    let scene = Scene::new();
    let wan = Wan::up("--rate 100Mbit --rtt 10ms --queue 1bdp");
    for side in [Side::Near, Side::Far] {
        sh(&wan, side, SOUND);
    }
    let full = full(&scene);
    let settings = || [Side::Near, Side::Far].map(|side| sh(&wan, side, SETTINGS).stdout_text());
    let before = settings();
    let usual = findings(&doctor(&scene, &wan, "", "--target 100Mbit"));
    // There may be findings about this machine, but not about TCP and the path.
    for (of, check) in &usual {
        assert!(OF_THE_MACHINE.contains(&check.as_str()), "{of}: {check} is a false alarm");
    }
    assert_eq!(settings(), before, "a doctor changes nothing");
    each(PLANTS, |plant| {
        sh(&wan, plant.side, plant.make);
        let ran = doctor(&scene, &wan, plant.before, &format!("--target 100Mbit{}", plant.options));
        sh(&wan, plant.side, plant.undo);
        let expect = plant.found.iter().map(|(of, check)| (of.to_string(), check.to_string()));
        let expect: BTreeSet<_> = expect.collect();
        // This machine may have little space on its own disk, too.
        let mut found = findings(&ran);
        found.retain(|finding| expect.contains(finding) || !usual.contains(finding));
        assert_eq!(found, expect, "{ran}");
        let trouble = found_by(&ran).iter().any(|finding| finding["state"] == "trouble");
        assert_eq!(ran.code, i32::from(trouble), "{ran}");
    });
    drop(full);
    assert_eq!(settings(), before);
}

#[test]
fn without_a_host_this_one_is_looked_at() {
    let ran = Scene::new().run("doctor --json");
    assert!(matches!(ran.code, 0 | 1), "{ran}");
    assert!(found_by(&ran).iter().all(|finding| finding["of"] == HERE), "{ran}");
}

/// Both sides have the calls of Linux 4.18 only.
#[test]
fn what_an_old_kernel_lacks_is_told_and_done_in_another_way() {
    let scene = Scene::with_old_kernel();
    let found = found_by(&scene.run("doctor --json"));
    let kernel = found.iter().find(|finding| finding["check"] == "kernel").unwrap();
    let text = kernel["found"].as_str().unwrap();
    for call in ["io_uring (Linux 5.1)", "openat2 (Linux 5.6)", "cachestat (Linux 6.5)"] {
        assert!(text.contains(call), "{kernel}");
    }
    assert_eq!(kernel["state"], "advice");
    scene.script("login", "shift\nexec sh -c \"$*\"");
    data::write_tree(&scene.path("there"));
    scene.succeed("copy -r --ssh @/login far:@/there/ @/here");
    scene.succeed("copy -r --ssh @/login @/here/ far:@/back");
    data::assert_same(&scene.path("there"), &scene.path("back"));
}

#[test]
fn a_host_that_cannot_be_asked_is_the_finding() {
    let scene = Scene::new();
    let ran = scene.run("doctor --json --ssh /bin/false far");
    assert_eq!(ran.code, 7, "{ran}");
    assert!(findings(&ran).contains(&(BETWEEN.into(), "ssh".into())), "{ran}");
    let cases = [("doctor -x", "-x"), ("doctor @", "no user"), ("doctor a b", "'b'")];
    for (line, why) in cases {
        let ran = scene.run(line);
        assert_eq!(ran.code, 2, "{ran}");
        assert!(ran.stderr.contains(why), "{line}: {ran}");
    }
}

fn doctor(scene: &Scene, wan: &Wan, before: &str, options: &str) -> Ran {
    let asked = wan.datapump(scene, &format!("doctor --json {options} far"));
    let words: Vec<String> = std::iter::once(asked.get_program())
        .chain(asked.get_args())
        .map(|word| format!("'{}'", word.to_string_lossy()))
        .collect();
    run::to_end(within(wan, Side::Near, &format!("{before}exec {}", words.join(" "))), b"")
}

fn within(wan: &Wan, side: Side, line: &str) -> Command {
    let mut shell = Command::new("sh");
    let usual = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control").unwrap();
    shell.args(["-c", line]).env("USUAL", usual.trim());
    match side {
        Side::Near => wan.near(shell),
        Side::Far => wan.far(shell),
    }
}

fn sh(wan: &Wan, side: Side, line: &str) -> Ran {
    let ran = run::to_end(within(wan, side, line), b"");
    assert_eq!(ran.code, 0, "{line}: {ran}");
    ran
}

fn found_by(ran: &Ran) -> Vec<serde_json::Value> {
    let event = ran.events().into_iter().find(|event| event["event"] == "findings");
    let event = event.unwrap_or_else(|| panic!("no findings\n{ran}"));
    event["findings"].as_array().unwrap().clone()
}

/// The findings: of which host, and by which check.
fn findings(ran: &Ran) -> BTreeSet<(String, String)> {
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_string();
    let odd = |finding: &serde_json::Value| {
        let state = text(&finding["state"]);
        let told = !text(&finding["why"]).is_empty() && !text(&finding["remedy"]).is_empty();
        assert!(state == "good" || state == "unknown" || told, "{finding}");
        matches!(state.as_str(), "advice" | "trouble")
            .then(|| (text(&finding["of"]), text(&finding["check"])))
    };
    found_by(ran).iter().filter_map(odd).collect()
}

/// A full file system.
fn full(scene: &Scene) -> Mount {
    let mounted = Mount::tmpfs(&scene.path("full"), "size=1m");
    // It takes what fits, then fails.
    let _ = std::fs::write(mounted.at.join("all"), vec![0; 2 << 20]);
    mounted
}

const SETTINGS: &str = "grep -r . /proc/sys/net/ipv4/tcp_* /proc/sys/net/core 2>/dev/null; \
                        ip link show wan0; tc qdisc show";
/// Checks of the machine, which a namespace does not change.
const OF_THE_MACHINE: &[&str] = &[
    "explicit windows",
    "memory for TCP",
    "processors",
    "frequency governor",
    "clock source",
    "random numbers",
    "io_uring",
    "huge pages",
    "free memory",
    "freed memory",
    "free space",
    "receive backlog",
    "ssh",
];
