//! Other programs that copy a file, from their start to their end.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use ::wan::{FAR_ADDRESS, NEAR_ADDRESS, Wan};

use xtask::step::output;

#[derive(Debug)]
pub(super) struct Tool {
    pub name: &'static str,
    pub program: &'static str,
    pub options: &'static [&'static str],
    /// The option for the ssh command to use.
    pub ssh: fn(&str) -> Vec<String>,
    /// The name of a host of the WAN for this tool.
    pub host: fn(&'static str) -> &'static str,
}

impl Tool {
    pub(super) const fn scp(name: &'static str, options: &'static [&'static str]) -> Tool {
        Tool { name, program: "/usr/bin/scp", options, ssh: scp_ssh, host: |host| host }
    }

    pub(super) const fn rsync(name: &'static str, options: &'static [&'static str]) -> Tool {
        Tool { name, program: "/usr/bin/rsync", options, ssh: rsync_ssh, host: |host| host }
    }

    pub(super) const fn datapump(name: &'static str, options: &'static [&'static str]) -> Tool {
        Tool { name, program: "datapump", options, ssh: datapump_ssh, host: |host| host }
    }

    /// Its streams resolve names outside of ssh, so it gets addresses.
    pub(super) const fn bbcp(name: &'static str, options: &'static [&'static str]) -> Tool {
        Tool { name, program: "bbcp", options, ssh: bbcp_ssh, host: address }
    }

    /// The time of a copy in seconds; `program` replaces the tool's own.
    pub(super) fn copy(
        &self,
        wan: &Wan,
        program: &Path,
        file: &Path,
        (host, target): (&'static str, &Path),
    ) -> Result<f64, String> {
        let told = |why: std::io::Error| format!("{}: {why}", self.name);
        fs::remove_file(target).ok();
        let mut command = Command::new(program);
        command.args(self.options).args((self.ssh)(&wan.ssh_command())).arg(file);
        command.arg(format!("{}:{}", (self.host)(host), target.display()));
        let mut command = wan.near(command).map_err(told)?;
        command.stdin(Stdio::null());
        let began = Instant::now();
        output(&mut command)?;
        Ok(began.elapsed().as_secs_f64())
    }
}

/// For scp, `ssh -F FILE` is an option of its own.
fn scp_ssh(ssh: &str) -> Vec<String> {
    ssh.split_whitespace().skip(1).map(String::from).collect()
}

fn rsync_ssh(ssh: &str) -> Vec<String> {
    vec!["-e".into(), ssh.into()]
}

fn datapump_ssh(ssh: &str) -> Vec<String> {
    vec!["--ssh".into(), ssh.into()]
}

fn bbcp_ssh(ssh: &str) -> Vec<String> {
    vec!["-T".into(), format!("{ssh} -x -a %I -l %U %H bbcp")]
}

fn address(host: &'static str) -> &'static str {
    if host == "near" { NEAR_ADDRESS } else { FAR_ADDRESS }
}
