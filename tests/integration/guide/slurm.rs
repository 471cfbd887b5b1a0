//! A site with Slurm for the page about it. Nodes and this host see one folder; what the page has
//! at `/scratch`, `/archive` and `/backup` is below it.

use std::fs;
use std::path::PathBuf;

use cluster::{Cluster, Plan};

use super::scene::{Ended, LINE, Line, script};
use crate::support::{PROGRAM, far, need, run};

/// Runs the lines on the host with the controller.
pub(super) fn play(prepare: &str, lines: &[Line]) -> (Vec<Ended>, run::Ran) {
    for (package, program) in cluster::PARTS {
        need(program, package);
    }
    let more = "FirstJobId=1234\n".to_string();
    let cluster = Cluster::up(&Plan { lines: more, ..Plan::of(2) }).unwrap();
    let site = cluster.path().join("site");
    let home = site.join("home");
    let far = far::hosts_of(&cluster, &["dtn2"]);
    fs::create_dir_all(home.join(".config/datapump")).unwrap();
    let config = format!("[defaults]\nremote-datapump = \"{PROGRAM}\"\n");
    fs::write(home.join(".config/datapump/config.toml"), config).unwrap();
    for node in 1..=cluster.nodes() {
        for (from, to) in [(&far.config, "/etc/ssh/ssh_config"), (&home, "/root")] {
            let mut mount = cluster.on_node(node, need("mount", "mount")).unwrap();
            assert!(
                mount.arg("--bind").args([from, &PathBuf::from(to)]).status().unwrap().success()
            );
        }
    }
    let below = |text: &str| {
        let root = site.display();
        ["scratch", "archive", "backup"].iter().fold(text.to_string(), |text, name| {
            let text = text.replace(&format!(" /{name}"), &format!(" {root}/{name}"));
            text.replace(&format!(":/{name}"), &format!(":{root}/{name}"))
        })
    };
    let lines: Vec<Line> =
        lines.iter().cloned().map(|line| Line { run: below(&line.run), ..line }).collect();
    let path = home.join("page");
    fs::write(&path, format!("{LINE}\n{}\n{}", below(prepare), script(&lines))).unwrap();
    let out = site.join("out");
    fs::create_dir_all(&out).unwrap();
    let folder = PathBuf::from(PROGRAM).parent().unwrap().display().to_string();
    let mut bash = cluster.login("bash");
    bash.arg(&path).current_dir(&home).env("HOME", &home).env("OUT", &out);
    bash.env("PATH", format!("{folder}:/usr/sbin:/usr/bin:/sbin:/bin"));
    bash.env("DATAPUMP_RESULTS", home.join("results.db"));
    bash.env("XDG_CONFIG_HOME", home.join(".config"));
    let ran = run::to_end(bash, b"");
    ((0..lines.len()).map(|at| Ended::of(&out, at)).collect(), ran)
}
