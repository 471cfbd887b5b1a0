//! A Slurm of some nodes on this machine, to try things on by hand, without a site's own:
//! `cargo run -p cluster --example by_hand -- 3`, as root. It says how to get in; lines typed here
//! kill nodes and start them again. All of it is gone when standard input ends.

use std::fs;
use std::io::{BufRead, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use cluster::{Cluster, Plan};

fn main() -> ExitCode {
    match by_hand() {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            say(&format!("by_hand: {why}"));
            ExitCode::FAILURE
        }
    }
}

fn by_hand() -> Result<(), String> {
    let nodes = std::env::args().nth(1).map_or(Ok(3), |word| word.parse());
    let nodes = nodes.map_err(|why| format!("a number of nodes: {why}"))?;
    say(&format!("starting Slurm's controller and {nodes} nodes"));
    let cluster = Cluster::up(&Plan::of(nodes))?;
    let login = login_script(&cluster)?;
    say("Slurm runs. A shell on its login host, in a folder that all nodes share:");
    say(&format!("\n  {}\n\n{HELP}", login.display()));
    for line in std::io::stdin().lock().lines() {
        let line = line.map_err(|why| format!("standard input: {why}"))?;
        match obey(&cluster, &line) {
            Ok(()) => say("done"),
            Err(why) => say(&why),
        }
    }
    Ok(())
}

const HELP: &str = "\
Here: `kill 2` (a node, as by a power cut), `start 2`, `cut 2` and `mend 2` (its network),
`kill controller`, `start controller`. The end of input (Ctrl-D) ends it all.";

fn obey(cluster: &Cluster, line: &str) -> Result<(), String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    match words.as_slice() {
        [] => Ok(()),
        ["kill", "controller"] => cluster.kill_controller(),
        ["start", "controller"] => cluster.start_controller(),
        [verb @ ("kill" | "start" | "cut" | "mend"), node] => {
            let known = node.parse().ok().filter(|node| (1..=cluster.nodes()).contains(node));
            let node = known.ok_or(format!("nodes are 1 to {}", cluster.nodes()))?;
            match *verb {
                "kill" => cluster.kill_node(node),
                "start" => cluster.start_node(node),
                "cut" => cluster.cut_link(node),
                _ => cluster.mend_link(node),
            }
        }
        _ => Err(HELP.to_string()),
    }
}

/// A program that runs its arguments, or a shell, on the controller's host.
fn login_script(cluster: &Cluster) -> Result<PathBuf, String> {
    let command = cluster.login("env");
    let words = |command: &Command| -> Vec<String> {
        let program = std::iter::once(command.get_program());
        program.chain(command.get_args()).map(|word| word.to_string_lossy().into_owned()).collect()
    };
    let share = cluster.path().join("share");
    let text = format!(
        "#!/bin/sh\ncd {} || exit\n[ $# -gt 0 ] || set -- \"${{SHELL:-sh}}\"\n\
         exec {} SLURM_CONF={} \"$@\"\n",
        share.display(),
        words(&command).join(" "),
        cluster.slurm_conf().display(),
    );
    let path = cluster.path().join("login");
    let told = |why: std::io::Error| format!("{}: {why}", path.display());
    fs::create_dir_all(&share).map_err(told)?;
    fs::write(&path, text).map_err(told)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).map_err(told)?;
    Ok(path)
}

/// To standard output, whose reader may be gone: then the cluster stays until its input ends.
fn say(line: &str) {
    writeln!(std::io::stdout(), "{line}").ok();
}
