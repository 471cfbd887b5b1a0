//! The cluster itself: it runs jobs, loses nodes and its controller, and leaves nothing.

use std::fs;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use cluster::{Cluster, Plan};

#[test]
fn two_clusters_at_once_run_jobs_and_leave_nothing() {
    let clusters = thread::scope(|scope| {
        let made = [2, 3].map(|nodes| scope.spawn(move || Cluster::up(&Plan::of(nodes))));
        made.map(|made| made.join().unwrap().unwrap_or_else(|why| panic!("{why}")))
    });
    for (cluster, nodes) in clusters.iter().zip([2, 3]) {
        let last = nodes - 1;
        let ran = batch(cluster, &format!("--wait --array=0-{last}"), "hostname");
        assert!(ran.is_ok(), "{ran:?}\n{}", cluster.logs());
        let mut hosts: Vec<String> = (0..nodes).map(|element| said(cluster, element)).collect();
        hosts.sort();
        let expected: Vec<String> = (1..=nodes).map(|node| format!("c{node}\n")).collect();
        assert_eq!(hosts, expected);
    }
    let paths = clusters.each_ref().map(|cluster| cluster.path().to_path_buf());
    drop(clusters);
    for path in paths {
        assert!(!path.exists());
        until("no process names its folder", || named(&path.display().to_string()).is_empty());
    }
}

/// All that the design of a spread stands on: a dead node's element comes back, held, and can be
/// released; the controller forgets nothing that runs.
#[test]
fn nodes_and_controller_die_and_come_back() {
    let cluster = Cluster::up(&Plan::of(2)).unwrap_or_else(|why| panic!("{why}"));
    batch(&cluster, "--array=0-1", "sleep 1000").unwrap();
    until("both run", || states(&cluster) == ["RUNNING|None", "RUNNING|None"]);
    cluster.kill_controller().unwrap();
    assert!(cluster.client("squeue").is_err());
    cluster.start_controller().unwrap();
    until("both still run", || states(&cluster) == ["RUNNING|None", "RUNNING|None"]);

    let left = children_of(cluster.first_process(2).unwrap());
    assert!(!left.is_empty());
    cluster.kill_node(2).unwrap();
    assert!(left.iter().all(|pid| !is_running(*pid)), "{left:?}");
    let held = || states(&cluster).contains(&"PENDING|BeginTime".to_string());
    until("the dead node's element waits", held);
    cluster.start_node(2).unwrap();
    until("it runs again", || {
        for element in 0..2 {
            let id = format!("{}_{element}", job(&cluster));
            cluster.client(&format!("scontrol update JobId={id} StartTime=now")).ok();
        }
        states(&cluster) == ["RUNNING|None", "RUNNING|None"]
    });
    // Slurm can lose what it is told of a task that it has only just started: it is told again.
    until("both end", || {
        cluster.client("scancel --user=root").ok();
        states(&cluster).iter().all(|state| state.starts_with("CANCELLED"))
    });
}

/// Submits a command as a job.
fn batch(cluster: &Cluster, options: &str, command: &str) -> Result<(), String> {
    let out = cluster.path().join("out-%a");
    let mut sbatch = cluster.login("sbatch");
    sbatch.args(options.split(' ')).arg("--output").arg(out).args(["--requeue", "--wrap"]);
    let ran = sbatch.arg(command).stdin(Stdio::null()).output().unwrap();
    match ran.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&ran.stderr).into_owned()),
    }
}

fn said(cluster: &Cluster, element: usize) -> String {
    fs::read_to_string(cluster.path().join(format!("out-{element}"))).unwrap()
}

fn states(cluster: &Cluster) -> Vec<String> {
    let listed = cluster.client("squeue --noheader --array --states=all --format=%T|%r");
    let mut states: Vec<String> =
        listed.unwrap_or_default().lines().map(|line| line.trim().to_string()).collect();
    states.sort();
    states
}

fn job(cluster: &Cluster) -> String {
    let listed = cluster.client("squeue --noheader --array --states=all --format=%F").unwrap();
    listed.lines().next().unwrap().trim().to_string()
}

fn until(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(120);
    while !is_so() {
        assert!(Instant::now() < deadline, "not in time: {what}");
        thread::sleep(Duration::from_millis(200));
    }
}

/// Processes that have this word in their command line, zombies not.
fn named(word: &str) -> Vec<i32> {
    pids()
        .filter(|pid| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).contains(word)
        })
        .collect()
}

fn children_of(parent: i32) -> Vec<i32> {
    let ran = Command::new("ps").args(["-o", "pid=", "--ppid", &parent.to_string()]).output();
    let text = String::from_utf8_lossy(&ran.unwrap().stdout).into_owned();
    text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

fn is_running(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, fields)| !fields.starts_with(['Z', 'X']))
}

fn pids() -> impl Iterator<Item = i32> {
    let entries = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}
