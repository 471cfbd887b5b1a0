//! Slurm's configuration and its daemons.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Plan;
use crate::boundary::Boundary;

pub(crate) fn conf(folder: &Path) -> PathBuf {
    folder.join("slurm.conf")
}

/// Addresses of different clusters are on different bridges.
pub(crate) fn address(host: usize) -> String {
    format!("10.78.0.{}", 10 + host)
}

pub(crate) fn configure(folder: &Path, plan: &Plan) -> Result<(), String> {
    let told = |why: std::io::Error| format!("{}: {why}", folder.display());
    for name in ["munge", "state", "log", "spool"] {
        fs::create_dir_all(folder.join(name)).map_err(told)?;
    }
    let only_owner = |path: &Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(told)
    };
    only_owner(&folder.join("munge"), 0o711)?;
    // Nodes run jobs as other users too.
    only_owner(folder, 0o755)?;
    let key = folder.join("munge/key");
    let random = {
        use std::io::Read;
        let mut bytes = [0; 128];
        let read = fs::File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes));
        read.map_err(told)?;
        bytes
    };
    fs::write(&key, random).map_err(told)?;
    only_owner(&key, 0o400)?;
    fs::write(conf(folder), text(folder, plan)).map_err(told)
}

fn text(folder: &Path, plan: &Plan) -> String {
    let mut text = CONF.replace("FOLDER", &folder.display().to_string());
    text = text.replace("CONTROLLER", &address(0));
    for node in 1..=plan.nodes {
        let (address, cpus) = (address(node), plan.cpus);
        text.push_str(&format!(
            "NodeName=c{node} NodeHostname=c{node} NodeAddr={address} CPUs={cpus} State=UNKNOWN\n"
        ));
    }
    text.push_str(
        "PartitionName=dtn Nodes=ALL Default=YES MaxTime=INFINITE State=UP PriorityTier=1 \
         GraceTime=20\n\
         PartitionName=urgent Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=9 \
         PreemptMode=off\n",
    );
    text.push_str(&plan.lines);
    text
}

pub(crate) fn start_munge(outer: &Boundary, folder: &Path) -> Result<(), String> {
    let mut command = outer.entered();
    let at = |name: &str| folder.join("munge").join(name).display().to_string();
    command.args(["munged", "--force", "--num-threads=2"]).args([
        format!("--key-file={}", at("key")),
        format!("--socket={}", at("socket")),
        format!("--pid-file={}", at("pid")),
        format!("--log-file={}", at("log")),
        format!("--seed-file={}", at("seed")),
    ]);
    super::output(command).map(drop)
}

pub(crate) fn start_controller(host: &Boundary, folder: &Path) -> Result<(), String> {
    super::output(daemon(host, folder, &["slurmctld"])).map(drop)
}

pub(crate) fn start_node(host: &Boundary, folder: &Path, node: usize) -> Result<(), String> {
    super::output(daemon(host, folder, &["slurmd", "-N", &format!("c{node}")])).map(drop)
}

/// It starts in the foreground, and returns when it has become a daemon.
fn daemon(host: &Boundary, folder: &Path, words: &[&str]) -> Command {
    let mut command = host.entered();
    // What a daemon of a site has, and nothing of the test's own.
    command.args(words).env_clear().env("SLURM_CONF", conf(folder));
    command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    command
}

/// A site without accounting and without control groups. `KillWait` is between SIGTERM and SIGKILL.
const CONF: &str = "\
ClusterName=test
SlurmctldHost=ctl(CONTROLLER)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=FOLDER/munge/socket
StateSaveLocation=FOLDER/state
SlurmdSpoolDir=FOLDER/spool/%n
SlurmctldPidFile=FOLDER/slurmctld.pid
SlurmdPidFile=FOLDER/%n.pid
SlurmctldLogFile=FOLDER/log/slurmctld.log
SlurmdLogFile=FOLDER/log/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SlurmdTimeout=5
KillWait=10
ReturnToService=2
MpiDefault=none
SlurmdParameters=config_overrides
SchedulerParameters=batch_sched_delay=1,sched_interval=2
";
