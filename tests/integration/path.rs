//! Copies over an emulated WAN: a long path, a lossy one, one that is cut.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::data::{self, write_file};
use crate::support::wan::Wan;
use crate::support::{Scene, each, need, processes, run};

#[test]
fn a_wan_is_what_it_was_asked_to_be() {
    let wan = Wan::up("--rate 50Mbit --rtt 60ms --queue 64K");
    // Another one, at the same time, with the same addresses.
    let other = Wan::up("--rate 10Mbit --rtt 20ms");
    assert_rtt(&wan, 60.0);
    assert_rtt(&other, 20.0);
    wan.set("--rtt 40ms");
    assert_rtt(&wan, 40.0);

    let forward = wan.counters().forward.packets;
    assert_eq!((forward.packets_in, forward.queue_drops, forward.losses), (22, 0, 0));
    wan.set("--loss 100% --loss-back 0");
    assert_eq!(round_trips_ms(&wan), Vec::<f64>::new());
    assert_eq!(wan.counters().forward.packets.losses, 11);
    assert_eq!(wan.counters().back.packets.packets_in, 22);
}

/// Of 1500 bytes 1448 are TCP's user's. A busy machine may be late: then it is tried
/// again. `cargo xtask wan test` looks closer, and at more links.
#[test]
fn a_stream_gets_the_rate() {
    let wan = Wan::up("--rate 50Mbit --rate-back 20Mbit --rtt 10ms --queue 2bdp");
    let mut server = Command::new(need("iperf3", "iperf3"));
    server.args(["-s", "--forceflush"]);
    let mut server = run::start(wan.far(server));
    server.wait_for_line("listening");
    for (way, rate_mbit) in [("--reverse", 20.0), ("--parallel=1", 50.0)] {
        let asked = rate_mbit * 1448.0 / 1500.0;
        let reached = |_| {
            let mut client = Command::new("iperf3");
            client.args(["-c", "10.77.0.2", "-J", "-C", "cubic", "-O", "1", "-t", "2", way]);
            let ran = run::to_end(wan.near(client), b"");
            assert_eq!(ran.code, 0, "{way}\n{ran}");
            let said: serde_json::Value = serde_json::from_slice(&ran.stdout).unwrap();
            let seen = said["end"]["sum_received"]["bits_per_second"].as_f64().unwrap() / 1e6;
            (seen - asked).abs() < asked * 0.05
        };
        assert!((0..20).any(reached), "{way}: never {asked} Mbit/s");
    }
}

/// `cargo xtask wan test conditions` looks closer, and at all that a path can do.
#[test]
fn rivals_fill_a_queue_that_marks() {
    let wan = Wan::up("--rate 10Mbit --rtt 10ms --aqm fq_codel-ecn --reorder 1%,5ms");
    let bulk = wan.rivals("2xcubic");
    let short = wan.rivals("2xshort,size=16K,every=50ms,back");
    let deadline = Instant::now() + Duration::from_secs(60);
    let wait_for = |what: &str, is_so: &dyn Fn() -> bool| {
        while !is_so() {
            assert!(Instant::now() < deadline, "{what}: {:?}", wan.counters());
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    wait_for("marks", &|| wan.counters().forward.packets.marks > 2);
    wait_for("reordering", &|| wan.counters().forward.packets.reordered > 2);
    wait_for("transfers", &|| short.outcome().completed().len() > 5);
    wait_for("both flows", &|| {
        bulk.outcome().flows.iter().all(|flow| !flow.received_bytes.is_empty())
    });
    assert_eq!((bulk.stop().broken(), short.stop().broken()), (0, 0));
    // The far kernel counts each mark, once it has arrived, and finds no header damaged.
    let nstat = |name: &str| {
        let mut nstat = Command::new("nstat");
        nstat.args(["-asz", name]);
        let ran = run::to_end(wan.far(nstat), b"").stdout_text();
        let value = ran.lines().find_map(|line| line.strip_prefix(name)?.split_whitespace().next());
        value.and_then(|value| value.parse::<u64>().ok()).unwrap_or_else(|| panic!("{name}: {ran}"))
    };
    wait_for("marks that arrive", &|| {
        nstat("IpExtInCEPkts") == wan.counters().forward.packets.marks
    });
    assert_eq!((nstat("IpInHdrErrors"), nstat("TcpInCsumErrors")), (0, 0));
}

#[test]
fn a_copy_crosses_a_long_path() {
    each(["push", "pull"], |way| {
        let (scene, ends) = set_up(way);
        let wan = Wan::up("--rate 100Mbit --rtt 102ms --queue 1bdp");
        let ran = run::to_end(wan.datapump(&scene, &format!("copy --json {ends}")), b"");
        assert_eq!(ran.code, 0, "{way}\n{ran}");
        assert_arrived(&scene);
        // The bytes took this path, and not another, and were sent once but for what the path lost.
        let counters = wan.counters();
        let data = if way == &"push" { counters.forward } else { counters.back };
        let packets = data.packets;
        assert!(packets.bytes_out as usize > BYTES, "{way}: {counters:?}");
        assert!((packets.bytes_out as usize) < BYTES * 6 / 5, "{way}: {counters:?}");
        assert_eq!(data.kernel_drops, 0, "{way}: {counters:?}");
    });
}

#[test]
fn a_copy_survives_a_cut() {
    each(["push", "pull"], |way| {
        let (scene, ends) = set_up(way);
        let wan = Wan::up("--rate 50Mbit --rtt 40ms --queue 1bdp");
        let line = format!("copy --json --streams 2 {ends}");
        let mut running = run::start(wan.datapump(&scene, &line));
        running.wait_for_bytes();
        wan.cut(Duration::from_secs(2));
        let ran = running.end();
        assert_eq!(ran.code, 0, "{way}\n{ran}");
        assert_arrived(&scene);
        let counters = wan.counters();
        let lost = counters.forward.packets.cut_drops + counters.back.packets.cut_drops;
        assert!(lost > 0, "{way}: nothing was cut: {counters:?}");
    });
}

#[test]
fn a_copy_survives_loss() {
    each(["push", "pull"], |way| {
        let (scene, ends) = set_up(way);
        let wan = Wan::up("--rate 100Mbit --rtt 20ms --loss 1% --seed 5");
        let ran = run::to_end(wan.datapump(&scene, &format!("copy --streams 4 {ends}")), b"");
        assert_eq!(ran.code, 0, "{way}\n{ran}");
        assert_arrived(&scene);
        let counters = wan.counters();
        let data = if way == &"push" { counters.forward } else { counters.back };
        let packets = data.packets;
        let share = packets.losses as f64 / packets.packets_in as f64;
        assert!((0.006..0.014).contains(&share), "{way}: {counters:?}");
    });
}

/// A second run of this program gets the name: it is the owner that is killed.
#[test]
fn nothing_outlives_its_owner() {
    if std::env::var_os(OWNER).is_some() {
        let wan = Wan::up("--rate 10Mbit --rtt 10ms");
        println!("{FOLDER}{}", wan.folder().display());
        std::thread::sleep(Duration::from_secs(60));
        return;
    }
    // A WAN that is dropped removes everything.
    let wan = Wan::up("--rate 10Mbit --rtt 10ms");
    let folder = wan.folder();
    let mut left = Command::new("sleep");
    left.arg("1000");
    let mut left = wan.far(left).spawn().unwrap();
    assert!(!processes::that_name(&folder).is_empty(), "sshd names the folder");
    drop(wan);
    assert!(!left.wait().unwrap().success(), "it was ended");
    assert!(!folder.exists());
    assert_eq!(processes::that_name(&folder), Vec::<i32>::new());

    // An owner that is killed leaves its folder, which the next one removes.
    let mut owner = Command::new(std::env::current_exe().unwrap());
    owner.args(["--exact", "path::nothing_outlives_its_owner", "--nocapture"]).env(OWNER, "1");
    owner.stdout(Stdio::piped());
    let mut owner = run::start(owner);
    let folder = PathBuf::from(owner.wait_for_line(FOLDER));
    assert!(folder.exists());
    let sshd = processes::that_name(&folder);
    assert!(sshd.len() >= 2, "{sshd:?}");
    owner.child.kill().unwrap();
    owner.child.wait().unwrap();
    processes::assert_end(&sshd);
    drop(Wan::up("--rate 10Mbit --rtt 10ms"));
    assert!(!folder.exists());
}

fn set_up(way: &str) -> (Scene, &'static str) {
    let scene = Scene::new();
    write_file(&scene.path("in"), 1, BYTES);
    fs::create_dir(scene.path("dst")).unwrap();
    match way {
        "push" => (scene, "@/in far:@/dst/out"),
        _ => (scene, "far:@/in @/dst/out"),
    }
}

fn assert_arrived(scene: &Scene) {
    data::assert_same(&scene.path("in"), &scene.path("dst/out"));
    scene.assert_holds("dst", &["out"]);
}

/// The minimum must be within 2 %, and a quarter of a millisecond for the hosts themselves: what a
/// busy machine adds to other samples is not the path's delay.
fn assert_rtt(wan: &Wan, rtt_ms: f64) {
    let times = round_trips_ms(wan);
    let least = times.iter().copied().min_by(f64::total_cmp).unwrap_or_default();
    assert!((least - rtt_ms).abs() <= rtt_ms * 0.02 + 0.25, "{rtt_ms} ms: {times:?}");
}

fn round_trips_ms(wan: &Wan) -> Vec<f64> {
    let mut ping = Command::new(need("ping", "iputils-ping"));
    ping.args(["-n", "-i", "0.05", "-c", "11", "-W", "1", "10.77.0.2"]);
    let said = wan.near(ping).output().unwrap();
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    let time = |line: &str| line.split_once("time=")?.1.split(' ').next()?.parse().ok();
    said.lines().filter_map(time).collect()
}

const BYTES: usize = 8 << 20;
const OWNER: &str = "DATAPUMP_TEST_OWNS_WAN";
const FOLDER: &str = "folder: ";
