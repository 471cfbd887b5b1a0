//! Processes of the system: which run, which end, and when.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};

use super::PATIENCE;

/// Processes that name this path on their command line, but for the near side, which names it as an
/// option. Zombies have no command line.
pub(crate) fn that_name(path: &Path) -> Vec<i32> {
    let path = path.as_os_str().as_bytes();
    let contains = |line: &[u8], part: &[u8]| line.windows(part.len()).any(|at| at == part);
    let names = |pid: &i32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        contains(&line, path) && !contains(&line, b"--remote-datapump")
    };
    all().into_iter().filter(names).collect()
}

/// Processes that were started as this very path.
pub(crate) fn named_exactly(path: &Path) -> Vec<i32> {
    let started_so = |pid: &i32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).next() == Some(path.as_os_str().as_bytes())
    };
    all().into_iter().filter(started_so).collect()
}

/// Children of a process that run a program of this name.
pub(crate) fn children_named(parent: i32, name: &str) -> Vec<i32> {
    let is_child = |pid: &i32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // `pid (name) state ppid …`, and the name may contain anything.
        let Some((front, back)) = stat.rsplit_once(") ") else { return false };
        let ppid = back.split(' ').nth(1).and_then(|field| field.parse().ok());
        ppid == Some(parent) && front.ends_with(&format!("({name}"))
    };
    all().into_iter().filter(is_child).collect()
}

/// True when the process ends within this time, or has ended before.
pub(crate) fn ends_within(pid: i32, patience: Duration) -> bool {
    let deadline = Instant::now() + patience;
    let handle = match pidfd_open(Pid::from_raw(pid).unwrap(), PidfdFlags::empty()) {
        Ok(handle) => handle,
        Err(Errno::SRCH) => return true,
        Err(why) => panic!("pidfd of {pid}: {why}"),
    };
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let left =
            Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: left.subsec_nanos().into() };
        match poll(&mut [PollFd::new(&handle, PollFlags::IN)], Some(&left)) {
            Ok(count) => return count > 0,
            Err(Errno::INTR) => {}
            Err(why) => panic!("poll: {why}"),
        }
    }
}

/// Fails the test if one of these processes does not end.
pub(crate) fn assert_end(pids: &[i32]) {
    let deadline = Instant::now() + PATIENCE;
    for pid in pids {
        let left = deadline.saturating_duration_since(Instant::now());
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let ended = ends_within(*pid, left);
        assert!(ended, "an orphan after {PATIENCE:?}: {}", OsStr::from_bytes(&line).display());
    }
}

/// Sends a signal to a process that this test started, unless it has just ended: a far side is no
/// child of ours, and goes by itself.
pub(crate) fn send(pid: i32, signal: Signal) {
    let sent = kill_process(Pid::from_raw(pid).unwrap(), signal);
    assert!(matches!(sent, Ok(()) | Err(Errno::SRCH)), "{signal:?} to {pid}: {sent:?}");
}

fn all() -> Vec<i32> {
    let entries = fs::read_dir("/proc").unwrap().map(Result::unwrap);
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}
