//! The description of the machine for a measurement, without anything that identifies it.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::LazyLock;

use super::{Options, memory};
use xtask::packages;
use xtask::step::{output, root};

pub(crate) fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The default congestion control, for tools that cannot choose one.
pub(crate) fn congestion() -> String {
    first_line("/proc/sys/net/ipv4/tcp_congestion_control")
}

pub(crate) fn congestion_available() -> Vec<String> {
    let names = first_line("/proc/sys/net/ipv4/tcp_available_congestion_control");
    names.split_whitespace().map(String::from).collect()
}

/// The notes, as lines of a list.
pub(crate) fn notes(disk: &Path) -> Vec<String> {
    let sysctl = |name: &str| first_line(&format!("/proc/sys/net/ipv4/{name}"));
    let disk_kind = output(Command::new("stat").args(["-f", "-c", "%T"]).arg(disk));
    let mut notes = vec![
        format!("CPU: {}, {} cores, L2 {} a core", cpu_model(), cpus(), l2()),
        format!("memory: {:.0} GiB; {}", memory_gib(), memory::note()),
        format!("kernel: {}; {}", first_line("/proc/sys/kernel/osrelease"), distribution()),
        format!("congestion control of the system: {}", congestion()),
        format!("tcp_rmem {}; tcp_wmem {} (bytes)", sysctl("tcp_rmem"), sysctl("tcp_wmem")),
        format!(
            "disk of the disk rows: {}; all other files on tmpfs",
            disk_kind.unwrap_or_default().trim()
        ),
        format!("datapump at commit {}", commit()),
    ];
    notes.extend(VERSIONS.iter().filter_map(|(program, option)| version(program, option, None)));
    notes
}

const VERSIONS: &[(&str, &str)] = &[
    ("ssh", "-V"),
    ("rsync", "--version"),
    ("rclone", "version"),
    ("iperf3", "--version"),
    ("socat", "-V"),
    ("fio", "--version"),
    ("tar", "--version"),
];

/// Those of the peers, which may be where no PATH leads.
pub(super) fn peers(options: &Options) -> Vec<String> {
    let note =
        |(program, option): &(&str, &str)| version(program, option, options.program(program));
    PEER_VERSIONS.iter().filter_map(note).collect()
}

const PEER_VERSIONS: &[(&str, &str)] = &[
    ("wdt", "--version"),
    ("bbcp", "--version"),
    ("mscp", "-h"),
    ("globus-gridftp-server", "-version"),
    ("globus-url-copy", "-version"),
];

/// The first line of a tool's output with a digit and a dot, as in a version number.
fn version(program: &str, option: &str, path: Option<&Path>) -> Option<String> {
    if path.is_none() && !packages::is_installed(program) {
        return None;
    }
    let mut command = Command::new(path.unwrap_or(Path::new(program)));
    let said = command.arg(option).output().ok()?;
    let text = String::from_utf8_lossy(&said.stdout) + String::from_utf8_lossy(&said.stderr);
    let like_a_version =
        |line: &&str| line.split('.').count() > 1 && line.chars().any(|c| c.is_ascii_digit());
    let line = text.lines().find(like_a_version)?;
    let short: String = line.trim().chars().take(70).collect();
    Some(format!("{program}: {short}"))
}

fn cpu_model() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text.lines().find_map(|line| line.strip_prefix("model name"));
    model.map_or("unknown", |model| model.trim_start_matches(['\t', ' ', ':'])).to_string()
}

fn l2() -> String {
    first_line("/sys/devices/system/cpu/cpu0/cache/index2/size")
}

fn memory_gib() -> f64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().next().unwrap_or_default();
    let kib = line.split_whitespace().nth(1).and_then(|kib| kib.parse::<f64>().ok());
    kib.unwrap_or(0.0) / f64::from(1 << 20)
}

fn distribution() -> String {
    let text = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let name = text.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    name.unwrap_or("unknown system").trim_matches('"').to_string()
}

/// The commit of the working tree when this is first asked: what is built then is measured, and
/// the tree may go on while a long experiment runs.
pub(crate) fn commit() -> &'static str {
    static COMMIT: LazyLock<String> = LazyLock::new(|| {
        let changes = git("status --porcelain --untracked-files=no").unwrap_or_default();
        let is_clean = changes.trim().is_empty();
        head() + if is_clean { "" } else { " with changes that are not committed" }
    });
    &COMMIT
}

/// The commit of the working tree.
pub(crate) fn head() -> String {
    git("rev-parse --short HEAD").map_or("none yet".to_string(), |commit| commit.trim().to_string())
}

fn git(words: &str) -> Result<String, String> {
    output(Command::new("git").args(words.split(' ')).current_dir(root()))
}

fn first_line(path: &str) -> String {
    let text = fs::read_to_string(path).unwrap_or("unknown".into());
    text.lines().next().unwrap_or_default().trim().to_string()
}
