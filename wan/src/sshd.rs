//! An sshd in each namespace, with keys of its own: only who can read the folder can log in.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::namespaces::Namespace;
use crate::{FAR_ADDRESS, NEAR_ADDRESS};

/// Makes keys and files, once for both.
pub(crate) fn prepare(folder: &Path, program: Option<&Path>) -> Result<(), String> {
    let told = |what: &str, why: std::io::Error| format!("sshd in the namespaces: {what}: {why}");
    // The folder of sshd's unprivileged process.
    fs::create_dir_all("/run/sshd").map_err(|why| told("/run/sshd", why))?;
    for name in ["host", "user"] {
        let mut keygen = Command::new("ssh-keygen");
        keygen.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(folder.join(name));
        let made = keygen
            .output()
            .map_err(|why| told("ssh-keygen (apt-get install openssh-client)", why))?;
        if !made.status.success() {
            let words = String::from_utf8_lossy(&made.stderr).into_owned();
            return Err(format!("ssh-keygen: {}", words.trim()));
        }
    }
    let write = |name: &str, text: String| {
        fs::write(folder.join(name), text).map_err(|why| told(name, why))
    };
    let host_key =
        fs::read_to_string(folder.join("host.pub")).map_err(|why| told("host.pub", why))?;
    write("known", format!("{NEAR_ADDRESS},{FAR_ADDRESS} {host_key}"))?;
    for side in SIDES {
        write(&format!("sshd_{side}"), server_config(folder, side))?;
    }
    write("ssh_config", client_config(folder))?;
    fs::create_dir_all(folder.join("bin")).map_err(|why| told("bin", why))?;
    if let Some(program) = program {
        symlink(program, folder.join("bin/datapump")).map_err(|why| told("bin/datapump", why))?;
    }
    Ok(())
}

/// Starts it, and returns when it listens. It ends with its namespace.
pub(crate) fn start(namespace: &Namespace, folder: &Path, side: &str) -> Result<(), String> {
    let program = SSHD_PLACES.iter().map(Path::new).find(|path| path.exists());
    let program = program.ok_or("sshd is missing: apt-get install openssh-server")?;
    // sshd executes itself again for each login, so it needs its full path.
    let mut sshd = Command::new(program);
    sshd.args(["-D", "-e", "-f"]).arg(folder.join(format!("sshd_{side}")));
    sshd.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let spawned = namespace.enter(sshd).and_then(|mut sshd| sshd.spawn());
    let mut sshd = spawned.map_err(|why| format!("sshd ({side}): {why}"))?;
    let mut said = Vec::new();
    let mut words = sshd.stderr.take().map(|pipe| BufReader::new(pipe).lines());
    for line in words.iter_mut().flatten().map_while(Result::ok) {
        said.push(line);
        if said.last().is_some_and(|line| line.contains("Server listening on")) {
            // It writes the PID file after this message, and `stop` reads that file.
            while running(folder, side).is_none() && matches!(sshd.try_wait(), Ok(None)) {
                std::thread::sleep(Duration::from_millis(2));
            }
            // A thread drains its output and waits for its end.
            std::thread::spawn(move || {
                words.into_iter().flatten().for_each(drop);
                sshd.wait().ok();
            });
            return Ok(());
        }
    }
    sshd.wait().ok();
    Err(format!("sshd ({side}) does not start: {}", said.join("; ")))
}

/// Ends the daemon and waits until it is gone; existing logins stay.
pub(crate) fn stop(folder: &Path, side: &str) -> Result<(), String> {
    let pid = running(folder, side).ok_or_else(|| format!("sshd ({side}) does not run"))?;
    let told = |why| format!("sshd ({side}): {why}");
    kill_process(pid, Signal::TERM).map_err(told)?;
    while running(folder, side) == Some(pid) {
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

/// The daemon, by its PID file. The number may belong to another process: it must have this folder
/// in its command line.
pub(crate) fn running(folder: &Path, side: &str) -> Option<Pid> {
    let pid = fs::read_to_string(folder.join(format!("{side}.pid"))).ok()?;
    let pid = Pid::from_raw(pid.trim().parse().ok()?)?;
    let line = fs::read(format!("/proc/{}/cmdline", pid.as_raw_nonzero())).unwrap_or_default();
    String::from_utf8_lossy(&line).contains(&folder.display().to_string()).then_some(pid)
}

/// The value for `--ssh`: `far` and `near` are the two hosts.
pub(crate) fn command(folder: &Path) -> String {
    format!("ssh -F {}", config(folder).display())
}

fn config(folder: &Path) -> PathBuf {
    folder.join("ssh_config")
}

/// SHLVL=2 keeps the account's start-up files out.
fn server_config(folder: &Path, side: &str) -> String {
    let folder = folder.display();
    format!(
        "ListenAddress 0.0.0.0:22\nHostKey {folder}/host\nAuthorizedKeysFile {folder}/user.pub\n\
         PidFile {folder}/{side}.pid\nStrictModes no\nUsePAM no\n\
         PermitRootLogin prohibit-password\nPasswordAuthentication no\n\
         KbdInteractiveAuthentication no\nMaxStartups 100:30:200\nUseDNS no\nPrintMotd no\n\
         PrintLastLog no\nSetEnv SHLVL=2 PATH={folder}/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin\n\
         Subsystem sftp internal-sftp\n"
    )
}

fn client_config(folder: &Path) -> String {
    let folder = folder.display();
    format!(
        "Host far\n HostName {FAR_ADDRESS}\nHost near\n HostName {NEAR_ADDRESS}\n\
         Host *\n IdentityFile {folder}/user\n IdentitiesOnly yes\n \
         UserKnownHostsFile {folder}/known\n StrictHostKeyChecking yes\n BatchMode yes\n \
         ConnectTimeout 30\n"
    )
}

pub(crate) const SIDES: [&str; 2] = ["near", "far"];
const SSHD_PLACES: [&str; 3] = ["/usr/sbin/sshd", "/sbin/sshd", "/usr/local/sbin/sshd"];
