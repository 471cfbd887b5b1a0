//! Spreads and submitted copies over a real Slurm, in namespaces of this machine.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use cluster::rounds::{self, Fault, Fixture, Round};
use cluster::{Cluster, Plan};

use rustix::process::Signal;
use serde_json::Value;

use crate::support::data::{assert_same, write_file};
use crate::support::run::{self, Ran};
use crate::support::{PROGRAM, each_at_once, far, need, need_root, processes, until};

fn need_parts() {
    need_root("it makes nodes of namespaces");
    for (package, program) in cluster::PARTS {
        need(program, package);
    }
}

/// 2,000 files and two large ones over three nodes; one is killed half-way. Then a controller, and
/// a node with its storage that is cut off and comes back. Eight nodes, one of whose workers is
/// killed.
#[test]
fn spreads_survive_what_fails() {
    need_parts();
    let of_nodes = |nodes, files, large_bytes| Fixture {
        program: PROGRAM.into(),
        files,
        large_bytes,
        write_takes: Duration::from_millis(2),
        split_above: None,
        nodes,
    };
    let fixture = |files, large_bytes| of_nodes(rounds::NODES, files, large_bytes);
    let round = |number, fault| Round {
        fault,
        node: 2,
        after_percent: 40,
        caches_writes: true,
        ..Round::of(28, number)
    };
    let cases = [
        (fixture(2000, 24 << 20), round(0, Fault::NodeKilled)),
        (fixture(300, 8 << 20), round(1, Fault::ControllerKilled)),
        (fixture(300, 8 << 20), round(2, Fault::CutOff)),
        (fixture(300, 8 << 20), round(3, Fault::CoordinatorKilled)),
        (of_nodes(8, 1000, 4 << 20), round(4, Fault::TaskKilled)),
    ];
    each_at_once(&cases, |(fixture, round)| {
        let shown = rounds::play(fixture, round);
        shown.unwrap_or_else(|why| panic!("{why}"));
    });
}

/// Account, QOS and further options are those of the job in Slurm. (Without accounting slurmctld
/// keeps no QOS of a job: the script that it keeps has it.)
#[test]
fn options_for_slurm_reach_it() {
    need_parts();
    let cluster = Cluster::up(&Plan::of(1)).unwrap_or_else(|why| panic!("{why}"));
    let place = cluster.path().join("place");
    fs::create_dir_all(place.join("a")).unwrap();
    fs::write(place.join("a/b"), "content").unwrap();
    let options = ["--account", "phys1", "--qos", "transfer", "--sbatch", "comment=moved"];
    let words = ["spread", "a/", "c/", "--on", "slurm:dtn"];
    let done = datapump(&cluster, &place, &words, &options);
    assert_eq!(done.code, 0, "{done}\n{}", cluster.logs());
    assert_eq!(fs::read_to_string(place.join("c/b")).unwrap(), "content");

    let words = ["spread", "a/", "d/", "--on", "slurm:nope", "--workers", "2"];
    let refused = datapump(&cluster, &place, &words, &[]);
    assert!(refused.code == 2 && refused.stderr.contains("no partition 'nope'"), "{refused}");
    assert!(!place.join("spread-2").exists() && !place.join("d").exists(), "{refused}");

    let job = cluster.client("scontrol show job 1").unwrap();
    for kept in ["Account=phys1", "Comment=moved", "Partition=dtn"] {
        assert!(job.contains(kept), "{kept}: {job}");
    }
    let script = cluster.client("scontrol write batch_script 1 -").unwrap();
    assert!(script.contains("--qos=transfer\n"), "{script}");
}

/// A coordinator that comes later follows the workers that are in the queue and asks for no more.
/// What is cancelled in Slurm stays away until the job is resumed.
#[test]
fn cancelled_workers_stay_away() {
    need_parts();
    let cluster = Cluster::up(&Plan::of(2)).unwrap_or_else(|why| panic!("{why}"));
    let place = cluster.path().join("place");
    fs::create_dir_all(place.join("src")).unwrap();
    (0..200).for_each(|n| write_file(&place.join(format!("src/{n}")), n, 50_000));
    // So slow that it lasts until it is cancelled. Of three workers one waits for a node.
    let words = ["spread", "--on", "slurm:dtn", "--workers", "3", "--rate", "10kB", "--job=job"];
    let mut first = run::start(command(&cluster, &place, &words, &["--json", "src/", "dst"]));
    let claims = || fs::read_dir(place.join("job/claims")).map_or(0, Iterator::count);
    until("two workers have shards", || claims() == 2);
    first.kill();
    first.end();
    let status = || {
        let shown = datapump(&cluster, &place, &["spread", "status", "job"], &[]);
        assert_eq!(shown.code, 0, "{shown}");
        shown.stdout_text()
    };
    until("the third waits", || status().contains("in the queue: 1 worker (Resources: "));

    let resume = command(&cluster, &place, &["spread", "resume", "job", "--json"], &[]);
    let mut second = run::start(resume);
    let said = second.wait_for_line("follows 3 workers of this job");
    let notes = || fs::read_to_string(place.join("job/notes.json")).unwrap();
    assert_eq!(notes().matches("\"slurm ").count(), 3, "{said}\n{}", notes());
    cluster.client("scancel --name=datapump-spread").unwrap();
    let ran = second.end();
    assert_eq!(ran.code, 130, "{ran}\n{}", cluster.logs());
    assert!(ran.stdout_text().contains("its workers were cancelled in Slurm"), "{ran}");
    let listed = "squeue --noheader --states=pending,running";
    until("nobody is there", || cluster.client(listed).unwrap().trim().is_empty());
    assert!(status().contains("nobody works on it, as it was cancelled"), "{}", status());

    let manifest = place.join("job/manifest.json");
    let mut job: Value = serde_json::from_slice(&fs::read(&manifest).unwrap()).unwrap();
    job["copying"]["bytes_per_second"] = Value::Null;
    fs::write(&manifest, job.to_string()).unwrap();
    let ran = datapump(&cluster, &place, &["spread", "resume", "job"], &[]);
    assert_eq!(ran.code, 0, "{ran}\n{}", cluster.logs());
    assert_same(&place.join("src"), &place.join("dst"));
    assert_eq!(status().matches("note: ").count(), 0, "{}", status());
}

/// To far hosts from workers in Slurm: each node has its own configuration of ssh, nothing of it is
/// in the job, and the workers divide among the hosts. Stopped, the job goes on there.
#[test]
fn workers_in_slurm_log_in_to_far_hosts() {
    need_parts();
    need("sshd", "openssh-server");
    let cluster = Cluster::up(&Plan::of(2)).unwrap_or_else(|why| panic!("{why}"));
    let hosts = far::hosts_of(&cluster, &["dtn1", "dtn2"]);
    for node in 1..=2 {
        let mut mount = cluster.on_node(node, need("mount", "mount")).unwrap();
        mount.arg("--bind").arg(&hosts.config).arg("/etc/ssh/ssh_config");
        assert!(mount.status().unwrap().success(), "c{node} has no configuration of ssh");
    }
    let place = cluster.path().join("place");
    fs::create_dir_all(place.join("src")).unwrap();
    (0..200).for_each(|n| write_file(&place.join(format!("src/{n}")), n, 50_000));
    let ssh = format!("ssh -F {}", hosts.config.display());
    let target = format!("dtn1,dtn2:{}", place.join("dst").display());
    let far = ["--ssh", &ssh, "--json"];
    // So slow that it lasts until both workers are there.
    let words = ["spread", "--on", "slurm:dtn", "--rate", "10kB", "--job=job", "src/", &target];
    let more = [&far[..], &["--remote-datapump", PROGRAM]].concat();
    let first = run::start(command(&cluster, &place, &words, &more));
    let hosts_used = || {
        let beats = fs::read_dir(place.join("job/workers")).into_iter().flatten().flatten();
        let beat = |path| serde_json::from_slice::<Value>(&fs::read(path).ok()?).ok();
        let beats = beats.filter_map(|entry| beat(entry.path()));
        let used: BTreeSet<String> =
            beats.filter_map(|beat| Some(beat["far"].as_str()?.to_string())).collect();
        used.into_iter().collect::<Vec<_>>()
    };
    until("each worker has a host of its own", || hosts_used() == ["dtn1", "dtn2"]);
    processes::send(first.pid(), Signal::INT);
    let stopped = first.end();
    assert_eq!(stopped.code, 130, "{stopped}\n{}", cluster.logs());

    let manifest = place.join("job/manifest.json");
    let kept = fs::read_to_string(&manifest).unwrap();
    assert!(!kept.contains("far-hosts"), "how ssh logs in is in the job: {kept}");
    let mut job: Value = serde_json::from_str(&kept).unwrap();
    job["copying"]["bytes_per_second"] = Value::Null;
    fs::write(&manifest, job.to_string()).unwrap();
    let ran = datapump(&cluster, &place, &["spread", "resume", "job"], &far);
    assert_eq!(ran.code, 0, "{ran}\n{}", cluster.logs());
    assert_same(&place.join("src"), &place.join("dst"));
}

/// A copy as a job: it ends, and says so; it is tried again; and what is typed reaches no script.
#[test]
fn submitted_copies_end_and_are_tried_again() {
    need_parts();
    let cluster = Cluster::up(&Plan::of(1)).unwrap_or_else(|why| panic!("{why}"));
    let place = cluster.path().join("place");
    fs::create_dir_all(place.join("it's $(id)\n")).unwrap();
    fs::write(place.join("it's $(id)\n/a"), "content").unwrap();

    let done = datapump(
        &cluster,
        &place,
        &["submit", "--partition", "dtn", "--submitted", "jobs"],
        &["copy", "-r", "it's $(id)\n/", "b/"],
    );
    assert_eq!(done.code, 0, "{done}\n{}", cluster.logs());
    assert_eq!(fs::read_to_string(place.join("b/a")).unwrap(), "content");

    let failed =
        datapump(&cluster, &place, &["submit", "--submitted", "jobs"], &["copy", "missing", "c"]);
    assert_ne!(failed.code, 0, "{failed}");
    let listed = datapump(&cluster, &place, &["queue", "--submitted", "jobs", "--json"], &[]);
    let states: Vec<String> = listed
        .events()
        .iter()
        .map(|row| format!("{} {}", row["state"].as_str().unwrap(), row["exit_code"]))
        .collect();
    assert_eq!(states, ["done 0", &format!("failed {}", failed.code)], "{listed}");

    let script = datapump(
        &cluster,
        &place,
        &["submit", "--submitted", "jobs", "--print-script"],
        &["copy", "-r", "it's $(id)\n/", "b/"],
    );
    assert_eq!(script.code, 0, "{script}");
    assert!(!script.stdout_text().contains("$(id)"), "{script}");
}

/// A submitted copy whose process is killed goes on when `queue` looks at it.
#[test]
fn a_killed_submitted_copy_is_put_back_into_the_queue() {
    need_parts();
    let cluster = Cluster::up(&Plan::of(1)).unwrap_or_else(|why| panic!("{why}"));
    let place = cluster.path().join("place");
    fs::create_dir_all(&place).unwrap();
    fs::write(place.join("a"), vec![7; 4 << 20]).unwrap();
    let options = ["submit", "--detach", "--submitted", "jobs"];
    let sent = datapump(&cluster, &place, &options, &["copy", "--rate", "500kB", "a", "b"]);
    assert_eq!(sent.code, 0, "{sent}");
    crate::support::until("it runs", || queue(&cluster, &place) == "runs");
    // Slurm says so before the script begins.
    crate::support::until("it is killed", || {
        let mut kill = cluster.on_node(1, "pkill").unwrap();
        // In the node's own process namespace: no other process can be meant.
        kill.args(["-KILL", "-f", "submitted-copy"]).status().unwrap().success()
    });
    crate::support::until("it is done", || queue(&cluster, &place) == "done");
    assert_eq!(fs::read(place.join("b")).unwrap(), vec![7; 4 << 20]);
}

/// The state of the only submitted copy.
fn queue(cluster: &Cluster, place: &Path) -> String {
    let listed = datapump(cluster, place, &["queue", "--submitted", "jobs", "--json"], &[]);
    listed.events()[0]["state"].as_str().unwrap().to_string()
}

/// The program on the controller's host.
fn datapump(cluster: &Cluster, place: &Path, words: &[&str], more: &[&str]) -> Ran {
    run::to_end(command(cluster, place, words, more), b"")
}

fn command(cluster: &Cluster, place: &Path, words: &[&str], more: &[&str]) -> Command {
    let mut command: Command = cluster.login(PROGRAM);
    command.args(words).args(more).current_dir(place);
    command.env("DATAPUMP_NO_RECORD", "1").env("DATAPUMP_CONFIG", "none");
    command
}
