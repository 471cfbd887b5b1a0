//! `cargo xtask spread-peers`: a dataset over three nodes, by datapump and by what sites use in its
//! place, and what each does when a node dies; a page in `runs/`.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use cluster::rounds::{count_final, hashes, wait};
use cluster::{Cluster, Manner, Plan};

use crate::bench::machine;
use crate::page::table;
use xtask::packages;
use xtask::step::{cargo, output, root, run, target_folder};

/// What copies: its name, the words of its command, and how it starts something on a node.
struct Tool {
    name: &'static str,
    by: By,
    /// For `sh -c`, in the folder that all nodes share; `$DATAPUMP` is the program.
    command: &'static str,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    Slurm,
    Ssh,
}

const TOOLS: &[Tool] = &[
    Tool {
        name: "datapump spread --on slurm",
        by: By::Slurm,
        command: "\"$DATAPUMP\" spread src/ dst/ --on slurm:dtn --job job",
    },
    Tool {
        name: "rclone in an array job",
        by: By::Slurm,
        command: "cd src && find . -type f -printf '%P\\n' | sort | \
                  split -n r/3 -d -a 1 - ../list. && cd .. && \
                  sbatch --wait --requeue --array=0-2 --partition=dtn --export=PATH \
                  --output=/dev/null --wrap \
                  'exec rclone copy --files-from list.$SLURM_ARRAY_TASK_ID src dst'",
    },
    Tool {
        name: "datapump spread --on ssh",
        by: By::Ssh,
        command: "\"$DATAPUMP\" spread src/ dst/ --on ssh:hosts --job job",
    },
    Tool {
        name: "fpsync",
        by: By::Ssh,
        command: "fpsync -n 3 -f 20 -t \"$PWD/fpsync\" -d \"$PWD/fpsync\" -w 'c1 c2 c3' \
                  \"$PWD/src/\" \"$PWD/dst/\"",
    },
    Tool {
        name: "GNU parallel with rsync",
        by: By::Ssh,
        command: "(cd src && find . -type f) | parallel --will-cite -N 20 --jobs 1 --retries 3 \
                  --sshlogin c1,c2,c3 \
                  \"cd $PWD/src && rsync -a --relative {} $PWD/dst/\"",
    },
];

/// What came of a play.
struct Shown {
    time_s: f64,
    /// From the node's death to the command's end.
    after_s: Option<f64>,
    /// The command's end; `None` where it had not ended after `PATIENCE`.
    code: Option<i32>,
    missing: usize,
    /// Other bytes or another mode under a final name.
    differing: usize,
    /// Names that the source does not have.
    besides: usize,
    /// The same command once more: whether all is equal after it.
    again: Option<bool>,
}

const NODES: usize = 3;
const KILLED: usize = 2;
const FILES: u64 = 400;
const LARGE_BYTES: usize = 24 << 20;
const PATIENCE: Duration = Duration::from_secs(240);
const PARTS: &[packages::Part] =
    &[("fpart", "fpsync"), ("parallel", "parallel"), ("rsync", "rsync"), ("rclone", "rclone")];

/// `spread-peers [--rounds N]`.
pub(crate) fn spread_peers(words: &[&str]) -> Result<(), String> {
    let rounds = match words {
        [] => 3,
        ["--rounds", number] => number.parse().map_err(|_| "--rounds: write a number")?,
        _ => return Err("spread-peers [--rounds N]".to_string()),
    };
    packages::ensure(packages::FOR_TESTS)?;
    packages::ensure(PARTS)?;
    let program = match std::env::var_os("DATAPUMP_BIN") {
        Some(program) => PathBuf::from(program),
        None => {
            run("build", &mut cargo("build --bin datapump"))?;
            target_folder().join("debug/datapump")
        }
    };
    let mut all: BTreeMap<(usize, bool), Vec<Shown>> = BTreeMap::new();
    for round in 0..rounds {
        for (number, tool) in TOOLS.iter().enumerate() {
            for node_dies in [false, true] {
                let shown = play(tool, &program, node_dies)?;
                println!("{round} {} {}: {}", tool.name, death(node_dies), told(&shown));
                all.entry((number, node_dies)).or_default().push(shown);
            }
        }
    }
    let date = output(Command::new("date").arg("+%F"))?;
    let path = root().join(format!("runs/{}-spread-peers.md", date.trim()));
    fs::write(&path, page(rounds, &all)).map_err(|why| format!("{}: {why}", path.display()))?;
    println!("{}", path.display());
    Ok(())
}

fn death(node_dies: bool) -> &'static str {
    if node_dies { "a node dies" } else { "nothing fails" }
}

fn told(shown: &Shown) -> String {
    format!(
        "{:.1} s, {:?} s after it, code {:?}, {} missing, {} differ, {} besides, again {:?}",
        shown.time_s,
        shown.after_s,
        shown.code,
        shown.missing,
        shown.differing,
        shown.besides,
        shown.again
    )
}

fn play(tool: &Tool, program: &Path, node_dies: bool) -> Result<Shown, String> {
    let cluster = Cluster::up(&Plan::of(NODES))?;
    let shared = cluster.path().join("shared");
    make_source(&shared).map_err(|why| format!("{}: {why}", shared.display()))?;
    let manner = Manner {
        caches_writes: true,
        remembers_names: Duration::from_secs(1),
        write_takes: Duration::from_millis(5),
    };
    let _storage = (1..=NODES)
        .map(|node| cluster.mount(node, &shared, manner))
        .collect::<Result<Vec<_>, _>>()?;
    let mut servers = Servers(Vec::new());
    if tool.by == By::Ssh {
        servers.start(&cluster, &shared)?;
    }
    let started = Instant::now();
    let mut child = start(tool, program, &cluster, &shared)?;
    let mut killed = None;
    if node_dies {
        wait_for_files(FILES * 2 / 5, &shared, &mut child)?;
        cluster.kill_node(KILLED)?;
        killed = Some(Instant::now());
    }
    let status = wait(&mut child, PATIENCE);
    let (time_s, after_s) =
        (started.elapsed().as_secs_f64(), killed.map(|killed| killed.elapsed().as_secs_f64()));
    if status.is_none() {
        child.kill().and_then(|()| child.wait()).map_err(|why| why.to_string())?;
    }
    let (missing, differing, besides) = compare(&shared)?;
    let mut shown = Shown {
        time_s,
        after_s,
        code: status.map(|status| status.code().unwrap_or(-1)),
        missing,
        differing,
        besides,
        again: None,
    };
    if missing + differing > 0 {
        let mut second = start(tool, program, &cluster, &shared)?;
        if wait(&mut second, PATIENCE).is_none() {
            second.kill().and_then(|()| second.wait()).map_err(|why| why.to_string())?;
        }
        let (missing, differing, _) = compare(&shared)?;
        shown.again = Some(missing + differing == 0);
    }
    Ok(shown)
}

fn start(tool: &Tool, program: &Path, cluster: &Cluster, shared: &Path) -> Result<Child, String> {
    let mut command = cluster.login("sh");
    let log = File::options().create(true).append(true).open(shared.join("log"));
    let log = log.map_err(|why| why.to_string())?;
    let copy = log.try_clone().map_err(|why| why.to_string())?;
    let path = std::env::var("PATH").unwrap_or_default();
    command.args(["-c", tool.command]).current_dir(shared);
    command.env("DATAPUMP", program).env("DATAPUMP_NO_RECORD", "1").env("HOME", shared);
    command.env("PATH", format!("{}:{path}", shared.join("bin").display()));
    command.env("PARALLEL_SHELL", "/bin/bash").env("SHELL", "/bin/bash");
    command.stdin(Stdio::null()).stdout(log).stderr(copy);
    command.spawn().map_err(|why| format!("{}: {why}", tool.name))
}

/// Names that each of the tools can copy: no line breaks.
fn make_source(shared: &Path) -> std::io::Result<()> {
    fs::create_dir_all(shared.join("dst"))?;
    for number in 0..FILES {
        let folder = shared.join(format!("src/d{}", number % 17));
        fs::create_dir_all(&folder)?;
        let bytes = 200 + (number * 7919) % 20_000;
        let content: Vec<u8> = (0..bytes).map(|at| (at * number % 251) as u8).collect();
        fs::write(folder.join(format!("f{number}")), content)?;
    }
    for number in 0..2_usize {
        let content: Vec<u8> = (0..LARGE_BYTES).map(|at| ((at >> 7) + number) as u8).collect();
        fs::write(shared.join(format!("src/large{number}")), content)?;
    }
    Ok(())
}

/// An ssh server on each node, which end with the cluster.
struct Servers(Vec<Child>);

impl Servers {
    fn start(&mut self, cluster: &Cluster, shared: &Path) -> Result<(), String> {
        let told = |why: std::io::Error| format!("{}: {why}", shared.display());
        fs::create_dir_all("/run/sshd").map_err(told)?;
        let keys = cluster.path().join("keys");
        fs::create_dir_all(&keys).map_err(told)?;
        let key = keys.join("key");
        let mut keygen = Command::new("ssh-keygen");
        output(keygen.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(&key))?;
        fs::copy(keys.join("key.pub"), keys.join("authorized")).map_err(told)?;
        let mut config = String::new();
        for node in 1..=NODES {
            let mut server = cluster.on_node(node, "/usr/sbin/sshd")?;
            server.args(["-D", "-f", "/dev/null", "-o", "StrictModes=no", "-o", "UsePAM=no"]);
            server.args(["-o", "PidFile=none", "-o", "PermitRootLogin=yes", "-h"]).arg(&key);
            let authorized = format!("AuthorizedKeysFile={}", keys.join("authorized").display());
            server.args(["-o", &authorized]).stdin(Stdio::null()).stderr(Stdio::null());
            self.0.push(server.spawn().map_err(|why| format!("sshd: {why}"))?);
            config.push_str(&format!("Host c{node}\n  HostName {}\n", cluster.address(node)));
        }
        config.push_str(&format!("Host *\n  IdentityFile {}\n{SSH}", key.display()));
        let file = keys.join("config");
        fs::write(&file, config).map_err(told)?;
        fs::create_dir_all(shared.join("bin")).map_err(told)?;
        let ssh = shared.join("bin/ssh");
        let text = format!("#!/bin/sh\nexec /usr/bin/ssh -F {} \"$@\"\n", file.display());
        fs::write(&ssh, text).map_err(told)?;
        fs::set_permissions(&ssh, fs::Permissions::from_mode(0o755)).map_err(told)?;
        fs::write(shared.join("hosts"), "c1\nc2\nc3\n").map_err(told)?;
        for node in 1..=NODES {
            let deadline = Instant::now() + PATIENCE;
            let mut try_it = cluster.login(&ssh);
            try_it.args([&format!("c{node}"), "true"]).stdin(Stdio::null());
            while !try_it.status().is_ok_and(|status| status.success()) {
                if Instant::now() > deadline {
                    return Err(format!("no ssh server on c{node}"));
                }
                std::thread::sleep(Duration::from_millis(200));
            }
        }
        Ok(())
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        for server in &mut self.0 {
            server.kill().and_then(|()| server.wait()).ok();
        }
    }
}

/// A dead node is noticed after 15 s, as long as a lease of ours lasts.
const SSH: &str = "  User root\n  StrictHostKeyChecking no\n  UserKnownHostsFile /dev/null\n  \
                   LogLevel ERROR\n  ServerAliveInterval 5\n  ServerAliveCountMax 3\n  \
                   ConnectTimeout 10\n  BatchMode yes\n";

fn wait_for_files(wanted: u64, shared: &Path, child: &mut Child) -> Result<(), String> {
    let deadline = Instant::now() + PATIENCE;
    while count_final(&shared.join("dst")) < wanted {
        let ended = child.try_wait().map_err(|why| why.to_string())?;
        if ended.is_some() || Instant::now() > deadline {
            let log = fs::read_to_string(shared.join("log")).unwrap_or_default();
            return Err(format!("no {wanted} files; the command: {ended:?}\n{log}"));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// How many files are missing, differ, and are there besides.
fn compare(shared: &Path) -> Result<(usize, usize, usize), String> {
    let (source, target) = (hashes(&shared.join("src"))?, hashes(&shared.join("dst"))?);
    let is_file = |what: &String| what != "folder";
    let missing = source.keys().filter(|path| !target.contains_key(*path)).count();
    let differs = |(path, what): &(&PathBuf, &String)| {
        is_file(what) && target.get(*path).is_some_and(|found| found != *what)
    };
    let differing = source.iter().filter(differs).count();
    let besides = target.keys().filter(|path| !source.contains_key(*path)).count();
    Ok((missing, differing, besides))
}

fn page(rounds: u32, all: &BTreeMap<(usize, bool), Vec<Shown>>) -> String {
    let mut page = String::from("# A dataset over three nodes, by datapump and by others\n\n");
    for note in machine::notes(&std::env::temp_dir()) {
        page.push_str(&format!("- {note}\n"));
    }
    page.push_str(&format!("\n`cargo xtask spread-peers --rounds {rounds}`.\n\n{METHOD}\n\n"));
    let rows: Vec<_> = all.iter().map(|((tool, dies), shown)| row(*tool, *dies, shown)).collect();
    page.push_str(&table(&COLUMNS, &rows));
    page.push_str("\nThe commands, by `sh -c` in the folder that all nodes share:\n\n");
    for tool in TOOLS {
        let command = tool.command.split_whitespace().collect::<Vec<_>>().join(" ");
        page.push_str(&format!("- {}: `{command}`\n", tool.name));
    }
    page
}

fn row(tool: usize, node_dies: bool, all: &[Shown]) -> Vec<String> {
    let each = |of: &dyn Fn(&Shown) -> String| {
        let mut told: Vec<String> = all.iter().map(of).collect();
        told.dedup();
        told.join(", ")
    };
    let median = |of: &dyn Fn(&Shown) -> Option<f64>| {
        let mut figures: Vec<f64> = all.iter().filter_map(of).collect();
        figures.sort_by(f64::total_cmp);
        figures.get(figures.len() / 2).map_or("-".to_string(), |figure| format!("{figure:.1} s"))
    };
    vec![
        TOOLS[tool].name.to_string(),
        death(node_dies).to_string(),
        median(&|shown| Some(shown.time_s)),
        median(&|shown| shown.after_s),
        each(&|shown| shown.code.map_or("none".to_string(), |code| code.to_string())),
        each(&|shown| shown.missing.to_string()),
        each(&|shown| shown.differing.to_string()),
        each(&|shown| shown.besides.to_string()),
        each(&|shown| match shown.again {
            None => "-".to_string(),
            Some(true) => "equal".to_string(),
            Some(false) => "not equal".to_string(),
        }),
    ]
}

const COLUMNS: [&str; 9] = [
    "tool",
    "what fails",
    "time, median",
    "from the death to the end, median",
    "exit code",
    "missing",
    "different",
    "names besides",
    "the same command again",
];

const METHOD: &str = "\
Each play is a new cluster of three nodes (Slurm with munge; for those that use ssh, a server on
each node), and 400 files of up to 20 kB and two of 24 MiB from a folder to another, on storage
that each node sees through a FUSE file system: written bytes stay with the node until a file is
closed or synced, and a write takes 5 ms. In every other play the second node is killed as by a
power cut when 160 files have their final names, for good. Tools are interleaved. What is compared
at the end is names, modes and bytes. A command that has not ended after 240 s is ended, exit code
\"none\". Where something is missing or different, the same command is given once more. ssh notices
a dead node after 15 s (`ServerAliveInterval 5`), as datapump's leases do. datapump is
a debug build.

Criterion, written before the first run: `datapump spread` ends with code 0 and all is equal, with
nothing besides, in every play; a dead node costs it at most 30 s; without a fault it takes at most
as long as the fastest other tool that is started the same way (Slurm, ssh), by medians. What the
others do is told.";
