//! A network namespace without a name: it exists only while a process holds it, so a killed owner
//! leaves none.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::process::{Child, Command, Stdio};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::tun;

pub(crate) struct Namespace {
    handle: OwnedFd,
    /// Ends every process in here when its standard input closes, however the owner ended.
    keeper: Child,
}

impl Namespace {
    pub(crate) fn new() -> io::Result<Namespace> {
        let made = std::thread::spawn(|| {
            tun::leave_network()?;
            File::open("/proc/thread-self/ns/net").map(OwnedFd::from)
        });
        let handle = joined(made)?;
        let mut keeper = Command::new("/bin/sh");
        keeper.args(["-c", KEEPER, "wan-keeper"]);
        keeper.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        tun::begin_in(&mut keeper, handle.try_clone()?);
        let keeper = keeper.spawn()?;
        let namespace = Namespace { handle, keeper };
        namespace.settle()?;
        Ok(namespace)
    }

    /// Makes this command run in here.
    pub(crate) fn enter(&self, mut command: Command) -> io::Result<Command> {
        tun::begin_in(&mut command, self.handle.try_clone()?);
        Ok(command)
    }

    /// Runs a function on a thread in here.
    pub(crate) fn within<T: Send + 'static>(
        &self,
        what: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let handle = self.handle.try_clone()?;
        let inside = std::thread::spawn(move || {
            enter_myself(&handle)?;
            what()
        });
        joined(inside)
    }

    /// Runs a command of the system in here, and returns its output if it fails.
    pub(crate) fn run(&self, line: &str) -> Result<String, String> {
        let mut words = line.split_whitespace();
        let mut command = Command::new(words.next().unwrap_or_default());
        command.args(words);
        let output = self.enter(command).and_then(|mut command| command.output());
        let output = output.map_err(|why| format!("{line}: {why}"))?;
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
            false => Err(format!("{line}: {}", String::from_utf8_lossy(&output.stderr).trim())),
        }
    }

    /// Sets a value of `/proc/sys`, by its name with dots.
    pub(crate) fn sysctl(&self, key: &str, value: &str) -> Result<(), String> {
        let path = format!("/proc/sys/{}", key.replace('.', "/"));
        let written = value.to_string();
        self.within(move || fs::write(path, written)).map_err(|why| {
            format!("{key}={value}: {why}: see what /proc/sys has for a network namespace")
        })
    }

    pub(crate) fn handle(&self) -> &OwnedFd {
        &self.handle
    }

    /// The path at which other processes can open it while this one lives.
    pub(crate) fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.handle.as_raw_fd())
    }

    /// Ends the processes in here, without waiting for them.
    pub(crate) fn release(&mut self) {
        drop(self.keeper.stdin.take());
    }

    /// Nothing else must be on the link, and no run must learn from the one before.
    fn settle(&self) -> io::Result<()> {
        let set = |key: &str, value: &str| self.sysctl(key, value).map_err(io::Error::other);
        // Fails on a kernel without IPv6, where it is not needed.
        set("net.ipv6.conf.all.disable_ipv6", "1").ok();
        set("net.ipv4.tcp_no_metrics_save", "1")?;
        self.run("ip link set lo up").map(drop).map_err(io::Error::other)
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        self.release();
        self.keeper.wait().ok();
    }
}

/// Moves the calling thread into a namespace, by its handle.
pub fn enter_myself(handle: &impl AsFd) -> io::Result<()> {
    move_into_link_name_space(handle.as_fd(), Some(LinkNameSpaceType::Network))?;
    Ok(())
}

fn joined<T>(thread: std::thread::JoinHandle<io::Result<T>>) -> io::Result<T> {
    thread.join().unwrap_or_else(|_| Err(io::Error::other("the thread in a namespace panicked")))
}

/// It is in the namespace itself, so the inode number that it compares is not reused.
const KEEPER: &str = "trap : INT TERM HUP
cat > /dev/null
own=$(readlink /proc/self/ns/net)
those() {
  ls -l /proc/[0-9]*/ns/net 2>/dev/null | while read -r line; do
    case $line in *\" -> $own\") line=${line##* /proc/}; echo \"${line%%/*}\";; esac
  done | grep -vx $$
}
kill $(those) 2>/dev/null
sleep 0.1
kill -9 $(those) 2>/dev/null";
