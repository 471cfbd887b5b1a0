//! Far hosts of many kinds, for the installation of the far side's program: each is an sshd of its
//! own, in namespaces of its own for mounts and for the network, with one account. A virtual
//! Ethernet link leads there.

#[path = "cells/table.rs"]
mod table;

use std::fs;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

pub(crate) use table::CELLS;

/// One kind of far host, and what a copy to it must do.
#[derive(Debug)]
pub(crate) struct Cell {
    pub name: &'static str,
    /// The account's login shell.
    pub shell: &'static str,
    /// Files of its home: name and text. An executable begins with `#!`.
    pub files: &'static [(&'static str, &'static str)],
    /// Commands of root in the host's namespace, after the home was made.
    pub mounts: &'static str,
    /// What stands before its key, such as a forced command.
    pub key: &'static str,
    /// Lines of its sshd_config.
    pub config: &'static str,
    /// Options of the copy.
    pub options: &'static str,
    pub expect: Expect,
}

/// What the first copy does; a second one after it does the same and sends nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Expect {
    /// It succeeds and sends the program so often; these words are in its messages.
    Works { sent: usize, says: &'static [&'static str] },
    /// It ends with this exit code and these words, and sends nothing.
    Fails { code: i32, says: &'static [&'static str] },
}

impl Cell {
    /// A host of Debian with nothing to say of it.
    pub(crate) const BARE: Cell = Cell {
        name: "bare",
        shell: "/bin/bash",
        files: &[],
        mounts: "",
        key: "",
        config: "",
        options: "",
        expect: Expect::Works { sent: 1, says: &["there is no datapump at cell: sending"] },
    };
}

/// A near side: a folder with the program, and what it can send beside it.
#[derive(Debug)]
pub(crate) struct Near {
    pub program: PathBuf,
    /// Used where the cell has a datapump of its own.
    pub own: PathBuf,
}

/// A copy to a cell.
#[derive(Debug)]
pub(crate) struct Copied {
    pub output: Output,
    #[allow(dead_code, reason = "only the matrix has times")]
    pub took: Duration,
    /// Logins that sshd has seen for it.
    pub logins: usize,
    /// How often the program was sent.
    pub sent: usize,
}

impl Copied {
    pub(crate) fn words(&self) -> String {
        String::from_utf8_lossy(&self.output.stderr).into_owned()
    }
}

/// A host as a cell describes it, until it is dropped.
#[derive(Debug)]
pub(crate) struct FarHost {
    folder: tempfile::TempDir,
    sshd: Child,
}

impl Drop for FarHost {
    fn drop(&mut self) {
        let _ = self.sshd.kill();
        let _ = self.sshd.wait();
    }
}

impl FarHost {
    /// Starts it; `datapump` of the near side is where its cell can put it into the PATH.
    pub(crate) fn start(cell: &Cell, near: &Near) -> FarHost {
        let folder = tempfile::Builder::new().prefix("datapump-cell-").tempdir().unwrap();
        let path = folder.path();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        fs::create_dir_all("/run/sshd").unwrap();
        for name in ["host", "user"] {
            let made = Command::new("ssh-keygen")
                .args(["-q", "-t", "ed25519", "-N", "", "-f"])
                .arg(path.join(name))
                .status();
            assert!(made.unwrap().success(), "ssh-keygen failed");
        }
        for name in ["home", "out", "bin"] {
            let below = path.join(name);
            fs::create_dir(&below).unwrap();
            chown(&below, Some(UID), Some(UID)).unwrap();
        }
        for (name, text) in cell.files {
            let file = path.join("home").join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(&file, text).unwrap();
            let mode = if text.starts_with("#!") { 0o755 } else { 0o644 };
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
            for below in file.ancestors().take_while(|below| *below != path.join("home")) {
                chown(below, Some(UID), Some(UID)).unwrap();
            }
        }
        let copied = Command::new("cp").arg(&near.own).arg(path.join("own")).status();
        assert!(copied.unwrap().success(), "cp of the program");
        let log = fs::File::create(path.join("said")).unwrap();
        let sshd = Command::new("unshare")
            .args(["--mount", "--net", "sh", "-ec", BEGIN, "sh"])
            .arg(path)
            .arg(cell.mounts)
            .stdin(Stdio::piped())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut host = FarHost { folder, sshd };
        host.until(cell, "has no namespaces", |host| host.path("apart").exists());
        let address = link_to(host.sshd.id());
        write_configs(&host.path(""), cell, &address);
        let mut begin = host.sshd.stdin.take().unwrap();
        writeln!(begin, "{address}").unwrap();
        host.until(cell, "does not listen", |host| host.log().contains("Server listening"));
        host
    }

    fn until(&mut self, cell: &Cell, what: &str, is_so: impl Fn(&FarHost) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while !is_so(self) {
            let ended = self.sshd.try_wait().unwrap();
            let said = || fs::read_to_string(self.path("said")).unwrap_or_default() + &self.log();
            assert!(ended.is_none(), "{}: sshd does not start: {}", cell.name, said());
            assert!(Instant::now() < deadline, "{}: sshd {what}: {}", cell.name, said());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    fn logins(&self) -> usize {
        self.log().matches("Accepted publickey for cell").count()
    }

    /// `ssh` to this host.
    pub(crate) fn ssh(&self) -> String {
        format!("ssh -F {}", self.path("config").display())
    }

    /// Copies a new file there, and checks that it arrived where it must.
    pub(crate) fn copy(&self, cell: &Cell, near: &Near, number: usize) -> Copied {
        let name = format!("file-{number}");
        let file = self.path(&name);
        fs::write(&file, name.repeat(10_000)).unwrap();
        let before = self.logins();
        let begun = Instant::now();
        let mut copy = Command::new(&near.program);
        copy.args(["copy", "--no-record", "--retry-for", "off"]);
        copy.args(cell.options.split_whitespace());
        copy.arg("--ssh").arg(self.ssh()).arg(&file).arg("cell:/mnt/out/");
        let output = copy.stdin(Stdio::null()).output().unwrap();
        let took = begun.elapsed();
        let sent = String::from_utf8_lossy(&output.stderr).matches(": sending ").count();
        if output.status.success() {
            let arrived = fs::read(self.path("out").join(&name)).unwrap_or_default();
            assert_eq!(arrived, fs::read(&file).unwrap(), "{}: {name} differs", cell.name);
        }
        Copied { output, took, logins: self.logins() - before, sent }
    }

    /// The time of a login that does nothing.
    #[allow(dead_code, reason = "only the matrix has times")]
    pub(crate) fn login(&self) -> Duration {
        let begun = Instant::now();
        let mut ssh = Command::new("ssh");
        ssh.arg("-F").arg(self.path("config")).args(["cell", "true"]).stdin(Stdio::null());
        assert!(ssh.output().is_ok(), "ssh does not start");
        begun.elapsed()
    }
}

/// What a cell gave, in the order of its copies; the error says what it should have been.
pub(crate) fn check(cell: &Cell, host: &FarHost, near: &Near) -> Result<Vec<Copied>, String> {
    let mut all = Vec::new();
    for number in 0..2 {
        let copied = host.copy(cell, near, number);
        let words = copied.words();
        let code = copied.output.status.code();
        let wrong = |what: &str| Err(format!("{} (copy {number}): {what}\n{words}", cell.name));
        if copied.logins != 1 {
            return wrong(&format!("{} logins", copied.logins));
        }
        let (expected, sent, says) = match cell.expect {
            Expect::Works { sent, says } => (0, if number == 0 { sent } else { 0 }, says),
            Expect::Fails { code, says } => (code, 0, says),
        };
        if code != Some(expected) {
            return wrong(&format!("exit code {code:?}, not {expected}"));
        }
        if copied.sent != sent {
            return wrong(&format!("sent {} times, not {sent}", copied.sent));
        }
        let is_told = number == 0 || matches!(cell.expect, Expect::Fails { .. });
        if let Some(missing) = says.iter().find(|part| is_told && !words.contains(**part)) {
            return wrong(&format!("does not say '{missing}'"));
        }
        all.push(copied);
    }
    Ok(all)
}

/// Makes a link between this host's network and that of a process, and returns the address there.
/// It goes with the process. Its name is one that no other link here has, and its addresses follow
/// from the name.
fn link_to(process: u32) -> String {
    let first = process % LINKS;
    for number in (first..LINKS).chain(0..first) {
        let name = format!("dpcell{number}");
        let words = format!("link add {name} type veth peer name far netns {process}");
        let made = Command::new("ip").args(words.split(' ')).output().unwrap();
        if !made.status.success() {
            let said = String::from_utf8_lossy(&made.stderr).into_owned();
            assert!(said.contains("exists"), "ip {words}: {said}");
            continue;
        }
        // Of the network for benchmarks (RFC 2544), which no other host has.
        let [near, far] = [0, 1].map(|end| {
            let last = number * 2 + end;
            format!("198.18.{}.{}", last / 256, last % 256)
        });
        for words in [format!("address add {near}/31 dev {name}"), format!("link set {name} up")] {
            let done = Command::new("ip").args(words.split(' ')).status().unwrap();
            assert!(done.success(), "ip {words}");
        }
        return far;
    }
    panic!("all {LINKS} links are taken");
}

const LINKS: u32 = 30_000;

fn write_configs(path: &Path, cell: &Cell, address: &str) {
    let user_key = fs::read_to_string(path.join("user.pub")).unwrap();
    let before = if cell.key.is_empty() { String::new() } else { format!("{} ", cell.key) };
    fs::write(path.join("keys"), format!("{before}{user_key}")).unwrap();
    fs::write(path.join("jump-keys"), user_key).unwrap();
    fs::write(path.join("banner"), "Authorized users only.\nEverything is logged.\n").unwrap();
    let shell = cell.shell;
    let accounts = fs::read_to_string("/etc/passwd").unwrap();
    let accounts = format!(
        "{accounts}cell:x:{UID}:{UID}::/mnt/home:{shell}\njump:x:{}:{}::/mnt:/bin/false\n",
        UID + 1,
        UID + 1
    );
    fs::write(path.join("passwd"), accounts).unwrap();
    let config = format!(
        "ListenAddress {address}\nHostKey /mnt/host\nAuthorizedKeysFile /mnt/keys\n\
         PidFile none\nStrictModes no\nUsePAM no\nPermitUserEnvironment yes\n\
         PasswordAuthentication no\nKbdInteractiveAuthentication no\nMaxStartups 100:30:200\n\
         PrintMotd no\nPrintLastLog no\nSubsystem sftp internal-sftp\n{}\n\
         Match User jump\n AuthorizedKeysFile /mnt/jump-keys\n",
        cell.config
    );
    fs::write(path.join("sshd_config"), config).unwrap();
    let host_key = fs::read_to_string(path.join("host.pub")).unwrap();
    fs::write(path.join("known"), format!("{address} {host_key}")).unwrap();
    let folder = path.display();
    let jump = if cell.name.contains("ProxyJump") { " ProxyJump jump\n" } else { "" };
    let config = format!(
        "Host cell\n User cell\n{jump}Host jump\n User jump\nHost *\n HostName {address}\n \
         IdentityFile {folder}/user\n IdentitiesOnly yes\n \
         UserKnownHostsFile {folder}/known\n StrictHostKeyChecking yes\n BatchMode yes\n \
         ConnectTimeout 10\n"
    );
    fs::write(path.join("config"), config).unwrap();
}

const UID: u32 = 70_001;

/// In the namespace: the cell's folder is /mnt, temporary folders are its own, and the account is
/// known. `$1` is the folder, `$2` what the cell does; the address comes when the link is there.
const BEGIN: &str = "
: > \"$1/apart\"
read -r address
ip link set lo up
ip address add \"$address/31\" dev far
ip link set far up
mount --make-rprivate /
mount --bind \"$1\" /mnt
mount -t tmpfs -o mode=1777,size=200m tmpfs /tmp
mount -t tmpfs -o mode=1777,size=200m tmpfs /var/tmp
mount --bind /mnt/passwd /etc/passwd
mounted() { mount -t tmpfs -o \"mode=0700,uid=70001,gid=70001,$2\" tmpfs \"$1\"; }
eval \"$2\"
exec /usr/sbin/sshd -D -f /mnt/sshd_config -E /mnt/log";
