//! A file in a staging folder that the bytes of a range go to: here, or at a far host through a
//! copy of standard input that runs beside.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

use super::launcher::ssh::one_word;
use base::fault::{Class, Fault};
use base::job::Remote;

#[derive(Debug)]
pub(super) enum StagedFile<'a> {
    Here { file: File, path: PathBuf },
    Far(FarFile<'a>),
}

/// A file at a far host.
#[derive(Debug)]
pub(super) struct FarFile<'a> {
    copy: Child,
    /// Until the last byte.
    input: Option<ChildStdin>,
    says: Option<JoinHandle<String>>,
    stop: &'a AtomicBool,
}

impl<'a> StagedFile<'a> {
    pub(super) fn here(file: File, path: PathBuf) -> StagedFile<'a> {
        StagedFile::Here { file, path }
    }

    /// What is asked of it while it runs ends within a second of a stop.
    pub(super) fn far(
        (host, path): (&str, &Path),
        streams: u16,
        remote: &Remote,
        stop: &'a AtomicBool,
    ) -> Result<StagedFile<'a>, Fault> {
        let fault = |why: io::Error| Fault::system("start a copy to a far host", &why);
        let program = std::env::current_exe().map_err(fault)?;
        let mut target = OsString::from(format!("{host}:"));
        target.push(path);
        let mut command = Command::new(program);
        command.args(["copy", "--config", "none", "--no-record", "--quiet", "--overwrite"]);
        command.args(["always", "--fsync", "file", "--retry-for", "0s", "--streams"]);
        command.arg(streams.to_string()).args(["--install", remote.install.name()]);
        if let Some(ssh) = &remote.ssh {
            command.arg("--ssh").arg(one_word(ssh));
        }
        if let Some(datapump) = &remote.datapump {
            command.arg("--remote-datapump").arg(datapump);
        }
        command.arg("-").arg(target).stdin(Stdio::piped()).stdout(Stdio::null());
        let mut copy = command.stderr(Stdio::piped()).spawn().map_err(fault)?;
        let (input, errors) = (copy.stdin.take(), copy.stderr.take());
        let says = thread::spawn(move || {
            let mut said = Vec::new();
            errors.map(|errors| errors.take(SAID_BYTES_MAX).read_to_end(&mut said));
            String::from_utf8_lossy(&said).into_owned()
        });
        if let Some(input) = &input {
            let flags = fcntl_getfl(input).map_err(|why| fault(why.into()))?;
            fcntl_setfl(input, flags | OFlags::NONBLOCK).map_err(|why| fault(why.into()))?;
        }
        Ok(StagedFile::Far(FarFile { copy, input, says: Some(says), stop }))
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        match self {
            StagedFile::Here { file, path } => {
                file.write_all(bytes).map_err(|why| Fault::write("write", path, &why))
            }
            StagedFile::Far(file) => file.write(bytes),
        }
    }

    /// All of it is on stable storage after that.
    pub(super) fn finish(self) -> Result<(), Fault> {
        match self {
            StagedFile::Here { file, path } => {
                file.sync_all().map_err(|why| Fault::write("write", &path, &why))
            }
            StagedFile::Far(mut file) => file.end(),
        }
    }
}

impl FarFile<'_> {
    fn write(&mut self, mut bytes: &[u8]) -> Result<(), Fault> {
        while let Some(input) = &mut self.input
            && !bytes.is_empty()
        {
            if self.stop.load(Relaxed) {
                return Err(Fault::interrupted());
            }
            match input.write(bytes) {
                Ok(count) => bytes = &bytes[count..],
                Err(why) if why.kind() == io::ErrorKind::WouldBlock => {
                    let mut ready = [PollFd::new(input, PollFlags::OUT)];
                    let _ = poll(&mut ready, Some(&LOOK_EVERY));
                }
                Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
                // It has ended, and has said why.
                Err(_) => {
                    self.end()?;
                    let text = "a copy to a far host ended before its last byte";
                    return Err(Fault::new(Class::Local, text));
                }
            }
        }
        Ok(())
    }

    fn end(&mut self) -> Result<(), Fault> {
        self.input = None;
        let status = loop {
            let fault = |why: io::Error| Fault::system("wait for a copy to a far host", &why);
            match self.copy.try_wait().map_err(fault)? {
                Some(status) => break status,
                None if self.stop.load(Relaxed) => return Err(Fault::interrupted()),
                None => thread::sleep(WAIT_EVERY),
            }
        };
        if status.success() {
            return Ok(());
        }
        let said = self.says.take().and_then(|says| says.join().ok()).unwrap_or_default();
        let code = status.code().and_then(|code| u8::try_from(code).ok());
        let class = code.and_then(Class::from_code).unwrap_or(Class::Local);
        let last = said.lines().rfind(|line| !line.trim().is_empty());
        let why = last.map_or_else(|| format!("a copy to a far host: {status}"), str::to_string);
        Err(Fault::new(class, why))
    }
}

impl Drop for FarFile<'_> {
    fn drop(&mut self) {
        let _ = self.copy.kill();
        let _ = self.copy.wait();
    }
}

const SAID_BYTES_MAX: u64 = 64 << 10;
const LOOK_EVERY: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
const WAIT_EVERY: Duration = Duration::from_millis(20);
