//! # A cluster on this machine
//!
//! A real Slurm: a controller, munge, and nodes with a slurmd each. A node is a set of namespaces
//! (network, hostname, mounts, processes) with an address of its own on a bridge that only the
//! cluster has, so several clusters at once do not meet. A node is killed as by a power cut: its
//! link goes down first, so that nothing says goodbye, then all its processes are killed at once.
//!
//! Nothing of a cluster remains after its owner, however that ends: all its processes are in one
//! process namespace, whose first process ends when its standard input closes. It needs root.

#![warn(missing_debug_implementations)]

mod boundary;
pub mod rounds;
mod slurm;
mod storage;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use boundary::Boundary;
pub use storage::{Manner, Storage};

/// What a cluster is made of.
#[derive(Clone, Debug)]
pub struct Plan {
    pub nodes: usize,
    /// CPUs that Slurm believes each node to have: as many array elements run there at a time.
    pub cpus: usize,
    /// Lines for `slurm.conf`, after ours.
    pub lines: String,
}

impl Plan {
    pub fn of(nodes: usize) -> Plan {
        Plan { nodes, cpus: 1, lines: String::new() }
    }
}

/// A controller `ctl` and nodes `c1`, `c2`, …; removed on drop.
#[derive(Debug)]
pub struct Cluster {
    /// The hosts by number: the controller is 0. `None` where it is killed.
    hosts: Mutex<Vec<Option<Boundary>>>,
    /// What nodes see of shared storage, by node, where it is not this machine's own.
    storage: Mutex<BTreeMap<usize, Arc<Storage>>>,
    /// Holds every other process, and the bridge; dropped after the hosts.
    outer: Boundary,
    folder: tempfile::TempDir,
}

/// The Debian packages of its parts, and a program of each.
pub const PARTS: &[(&str, &str)] = &[
    ("slurmctld", "slurmctld"),
    ("slurmd", "slurmd"),
    ("slurm-client", "sbatch"),
    ("munge", "munged"),
    ("iproute2", "ip"),
    ("util-linux", "nsenter"),
];

/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

impl Cluster {
    /// Starts all of it, and returns when every node is idle.
    pub fn up(plan: &Plan) -> Result<Cluster, String> {
        let folder = tempfile::Builder::new()
            .prefix("datapump-cluster-")
            .tempdir()
            .map_err(|why| format!("a folder for the cluster: {why}"))?;
        let outer = Boundary::outermost()?;
        outer.run("ip link set lo up")?;
        outer.run("ip link add br0 type bridge")?;
        outer.run("ip link set br0 up")?;
        let hosts = (0..=plan.nodes).map(|_| None).collect();
        let storage = Mutex::new(BTreeMap::new());
        let cluster = Cluster { hosts: Mutex::new(hosts), storage, outer, folder };
        slurm::configure(cluster.path(), plan)?;
        slurm::start_munge(&cluster.outer, cluster.path())?;
        for host in 0..=plan.nodes {
            cluster.start_host(host)?;
        }
        cluster.wait_for("idle nodes", || cluster.idle_nodes() == plan.nodes)?;
        Ok(cluster)
    }

    /// A folder that all hosts see at this path.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// A command on the controller's host: its network and hostname, with Slurm's configuration.
    /// It sees this machine's processes and mounts, and is a child of the caller.
    pub fn login(&self, program: impl AsRef<Path>) -> Command {
        let hosts = self.locked();
        let host = hosts[0].as_ref().expect("the controller's host is never killed");
        let mut command = host.entered_shallowly();
        command.arg(program.as_ref()).env("SLURM_CONF", self.slurm_conf());
        command
    }

    /// A command on a node, among its processes and mounts.
    pub fn on_node(&self, node: usize, program: impl AsRef<Path>) -> Result<Command, String> {
        let hosts = self.locked();
        let host = hosts[node].as_ref().ok_or_else(|| format!("c{node} is killed"))?;
        let mut command = host.entered();
        command.arg(program.as_ref()).env("SLURM_CONF", self.slurm_conf());
        Ok(command)
    }

    /// Runs a client of Slurm on the controller's host, and returns what it prints.
    pub fn client(&self, words: &str) -> Result<String, String> {
        let mut command = self.login("timeout");
        command.arg("60").args(words.split_whitespace());
        output(command)
    }

    /// How many nodes it has, also those that are killed.
    pub fn nodes(&self) -> usize {
        self.locked().len() - 1
    }

    pub fn slurm_conf(&self) -> PathBuf {
        slurm::conf(self.path())
    }

    /// Kills a node as by a power cut.
    pub fn kill_node(&self, node: usize) -> Result<(), String> {
        assert!(node > 0, "the controller has a command of its own");
        self.cut_link(node)?;
        if let Some(storage) = self.storage(node) {
            storage.end();
        }
        match self.locked()[node].take() {
            Some(host) => host.kill(),
            None => Err(format!("c{node} is killed already")),
        }
    }

    /// Starts a killed node again.
    pub fn start_node(&self, node: usize) -> Result<(), String> {
        self.start_host(node)
    }

    /// Puts storage that can be cut between a node and a folder that all hosts see. Of a node that
    /// is started again it must be mounted again.
    pub fn mount(
        &self,
        node: usize,
        folder: &Path,
        manner: Manner,
    ) -> Result<Arc<Storage>, String> {
        let first = self.first_process(node).ok_or_else(|| format!("c{node} is killed"))?;
        let storage = Arc::new(Storage::mount(first, folder, manner)?);
        let mut all = self.storage.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert(node, storage.clone());
        Ok(storage)
    }

    /// The address of a node on the cluster's own bridge.
    pub fn address(&self, node: usize) -> String {
        slurm::address(node)
    }

    /// What was mounted last on a node.
    pub fn storage(&self, node: usize) -> Option<Arc<Storage>> {
        self.storage.lock().unwrap_or_else(PoisonError::into_inner).get(&node).cloned()
    }

    /// Takes a node off the network; what runs there runs on.
    pub fn cut_link(&self, node: usize) -> Result<(), String> {
        self.outer.run(&format!("ip link set v{node} down")).map(drop)
    }

    pub fn mend_link(&self, node: usize) -> Result<(), String> {
        self.outer.run(&format!("ip link set v{node} up")).map(drop)
    }

    /// The controller as by `kill -9`; its host stays.
    pub fn kill_controller(&self) -> Result<(), String> {
        let file = self.path().join("slurmctld.pid");
        let text = fs::read_to_string(&file).map_err(|why| format!("{}: {why}", file.display()))?;
        let inner: i32 = text.trim().parse().map_err(|why| format!("{}: {why}", file.display()))?;
        let hosts = self.locked();
        let host = hosts[0].as_ref().ok_or("the controller's host is gone")?;
        host.run(&format!("kill -9 {inner}"))?;
        fs::remove_file(&file).map_err(|why| format!("{}: {why}", file.display()))
    }

    pub fn start_controller(&self) -> Result<(), String> {
        let hosts = self.locked();
        slurm::start_controller(hosts[0].as_ref().ok_or("no host")?, self.path())
    }

    /// The process on this machine that is the first of a node: its descendants are the node's.
    pub fn first_process(&self, node: usize) -> Option<i32> {
        self.locked()[node].as_ref().map(Boundary::first)
    }

    /// What the daemons wrote, for a failed test.
    pub fn logs(&self) -> String {
        let mut all = String::new();
        let entries = fs::read_dir(self.path().join("log")).into_iter().flatten();
        for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
            let text = fs::read(&path).unwrap_or_default();
            let tail = String::from_utf8_lossy(&text[text.len().saturating_sub(4000)..]);
            all.push_str(&format!("--- {}\n{tail}\n", path.display()));
        }
        all
    }

    fn start_host(&self, number: usize) -> Result<(), String> {
        let name = match number {
            0 => "ctl".to_string(),
            node => format!("c{node}"),
        };
        // The kernel takes away that of a killed host some time after its last process.
        let link = format!("ip link show v{number}");
        self.wait_for("end of the old link", || self.outer.run_in_network(&link).is_err())?;
        let host = self.outer.host(&name)?;
        let first = host.first();
        // In the caller's process namespace, so that its number for the host is the right one.
        let added = format!("ip link add v{number} type veth peer name e0 netns {first}");
        self.outer.run_in_network(&added)?;
        self.outer.run(&format!("ip link set v{number} master br0 up"))?;
        host.run("ip link set lo up")?;
        host.run(&format!("ip addr add {}/24 dev e0", slurm::address(number)))?;
        host.run("ip link set e0 up")?;
        match number {
            0 => slurm::start_controller(&host, self.path())?,
            node => slurm::start_node(&host, self.path(), node)?,
        }
        self.locked()[number] = Some(host);
        Ok(())
    }

    fn idle_nodes(&self) -> usize {
        let listed = self.client("sinfo --noheader --Node --partition dtn --format %T");
        listed.map_or(0, |text| text.lines().filter(|line| *line == "idle").count())
    }

    fn wait_for(&self, what: &str, is_so: impl Fn() -> bool) -> Result<(), String> {
        let deadline = Instant::now() + PATIENCE;
        while !is_so() {
            if Instant::now() > deadline {
                return Err(format!("no {what} within {PATIENCE:?}:\n{}", self.logs()));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    fn locked(&self) -> MutexGuard<'_, Vec<Option<Boundary>>> {
        self.hosts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs a command to its end; what it printed, or why it failed.
fn output(mut command: Command) -> Result<String, String> {
    let words = format!("{command:?}");
    let ran = command.stdin(Stdio::null()).output().map_err(|why| format!("{words}: {why}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match ran.status.success() {
        true => Ok(text(&ran.stdout)),
        false => {
            Err(format!("{words} ({}): {}{}", ran.status, text(&ran.stdout), text(&ran.stderr)))
        }
    }
}
