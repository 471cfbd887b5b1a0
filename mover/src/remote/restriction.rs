//! What a far side is limited to by the command that starts it: a forced command in
//! `authorized_keys`, or one in a configuration of sshd.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use crate::io::reach::Reach;
use crate::wire::message::{Ask, Open, Role};
use base::cpus::Cpus;
use base::fault::Fault;
use base::job::Location;
use base::settings::{Delete, Seal, Settings, SkipUnchanged};

/// What a client may do with a far side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restriction {
    /// Every path is resolved beneath this folder.
    pub root: PathBuf,
    /// The only role that the far side takes. A sink alone removes and compares nothing.
    pub only: Option<Role>,
    /// The weakest protection of streams that it accepts.
    pub least: Seal,
}

/// The options of a far side, as they were typed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeerOptions {
    pub cpus: Option<Cpus>,
    pub root: Option<PathBuf>,
    pub read_only: bool,
    pub write_only: bool,
    pub seal: Option<Seal>,
}

impl PeerOptions {
    /// Reads the words after `peer`. `datapump-peer` has no other parser.
    pub fn parse(words: impl IntoIterator<Item = OsString>) -> Result<PeerOptions, String> {
        let mut options = PeerOptions::default();
        let mut words = words.into_iter();
        while let Some(word) = words.next() {
            let (name, value) = split(&word);
            let mut value = || {
                let value = value.map(OsStr::to_os_string).or_else(|| words.next());
                value.ok_or_else(|| format!("{} needs a value", name.display()))
            };
            match name.to_str() {
                Some("--cpus") => options.cpus = Some(Cpus::parse(&text(value()?)?)?),
                Some("--root") => options.root = Some(value()?.into()),
                Some("--read-only") => options.read_only = true,
                Some("--write-only") => options.write_only = true,
                Some("--seal") => {
                    let name = text(value()?)?;
                    let seal = Seal::parse(&name);
                    options.seal = Some(seal.ok_or_else(|| format!("--seal '{name}'"))?);
                }
                _ => return Err(format!("'{}' is no option", word.display())),
            }
        }
        Ok(options)
    }

    /// What these options limit a far side to; `None` where they do not.
    pub fn restriction(&self) -> Result<Option<Restriction>, String> {
        let PeerOptions { root, read_only, write_only, seal, .. } = self;
        let only = match (read_only, write_only) {
            (true, true) => {
                return Err("--read-only and --write-only exclude each other: give one".into());
            }
            (true, false) => Some(Role::Source),
            (false, true) => Some(Role::Sink),
            (false, false) => None,
        };
        match root {
            Some(root) => {
                let least = seal.unwrap_or(Seal::Off);
                Ok(Some(Restriction { root: root.clone(), only, least }))
            }
            None if only.is_some() || seal.is_some() => {
                Err("a far side is limited to a folder first: add --root DIR".into())
            }
            None => Ok(None),
        }
    }
}

impl Restriction {
    /// Where paths may lead.
    pub(super) fn reach(&self) -> Result<Reach, Fault> {
        Reach::beneath(&self.root)
    }

    /// Refuses a request that goes beyond what is allowed. Paths are refused where they are
    /// resolved.
    pub(super) fn check(&self, open: &Open) -> Result<(), Fault> {
        match (self.only, open.role) {
            (Some(Role::Source), Role::Sink) => {
                return Err(Fault::usage(
                    "this login may only copy from the far side (it is --read-only there): copy \
                     to another place, or log in with another key",
                ));
            }
            (Some(Role::Sink), Role::Source) => {
                return Err(Fault::usage(
                    "this login may only copy to the far side (it is --write-only there): copy \
                     from another place, or log in with another key",
                ));
            }
            (Some(Role::Sink), Role::Sink) => write_only(&open.settings)?,
            _ => {}
        }
        let seal = open.settings.seal;
        if strength(seal) < strength(self.least) {
            return Err(Fault::usage(format!(
                "the far side does not accept --seal {}: use --seal {}",
                seal.name(),
                self.least.name()
            )));
        }
        match open.locations.contains(&Location::Stdio) {
            true => Err(Fault::usage("'-' is not allowed at the far side: name a file")),
            false => Ok(()),
        }
    }

    /// The same of a question. Files are compared with a receipt by their paths on this host, which
    /// could be replaced by links meanwhile.
    pub(super) fn check_ask(&self, ask: &Ask) -> Result<(), Fault> {
        match (ask, self.only) {
            (Ask::List { .. }, None | Some(Role::Source)) => Ok(()),
            (Ask::List { .. }, Some(Role::Sink)) => Err(only_copies("'datapump ls'")),
            (Ask::Verify { .. }, _) => Err(only_copies("'datapump verify'")),
        }
    }

    /// What the client asked sshd to run, which is not run: the CPUs that it names for the far side
    /// of a copy. The error is for what is clearly something else, and for a terminal.
    pub fn asked_cpus(&self) -> Result<Option<Cpus>, Fault> {
        let asked = std::env::var_os("SSH_ORIGINAL_COMMAND");
        match asked {
            Some(asked) => cpus_of(asked.as_bytes()),
            None if std::env::var_os("SSH_CONNECTION").is_some() => Err(only_copies("a shell")),
            None => Ok(None),
        }
    }
}

/// A login that only writes makes files, replaces them as `--overwrite` says, and resumes its own;
/// it removes nothing, and does not find out what is there.
fn write_only(settings: &Settings) -> Result<(), Fault> {
    let does = match settings {
        Settings { delete: Delete::On | Delete::Excluded, .. } => "delete: leave out --delete",
        Settings { dry_run: true, .. } => "say what is there: leave out --dry-run",
        Settings { skip_unchanged: SkipUnchanged::Checksum, .. } => {
            "compare with what is there: leave out --checksum"
        }
        Settings { skip_unchanged: SkipUnchanged::Times, .. } => {
            "compare with what is there: leave out --skip-unchanged and --update"
        }
        _ => return Ok(()),
    };
    Err(Fault::usage(format!(
        "this login may only write (it is --write-only there), and the far side does not {does}, \
         or log in with another key"
    )))
}

fn cpus_of(asked: &[u8]) -> Result<Option<Cpus>, Fault> {
    let asked = String::from_utf8_lossy(asked);
    let mut words = asked.split_whitespace();
    let program = words.next().unwrap_or("").rsplit('/').next().unwrap_or("");
    let words: Vec<&str> = words.collect();
    if OTHERS.contains(&program) {
        return Err(only_copies(program));
    }
    match words.first() {
        Some(&"probe") => return Err(only_copies("measurements and net tests")),
        Some(&"spread-far") => return Err(only_copies("the destination of a spread")),
        _ => {}
    }
    let cpus = words.iter().find_map(|word| word.strip_prefix("--cpus="));
    Ok(cpus.and_then(|list| Cpus::parse(list).ok()))
}

fn only_copies(what: &str) -> Fault {
    Fault::usage(format!(
        "this login is not for {what}: it is limited to 'datapump copy' by the command that its \
         key forces"
    ))
}

/// Programs that speak another protocol over ssh, and would wait for an answer to it.
const OTHERS: &[&str] = &["scp", "rsync", "sftp-server", "internal-sftp", "bbcp"];

fn strength(seal: Seal) -> u8 {
    match seal {
        Seal::Tls => 2,
        Seal::Auth => 1,
        Seal::Off => 0,
    }
}

/// `--name=value`, or a word alone.
fn split(word: &OsStr) -> (&OsStr, Option<&OsStr>) {
    let bytes = word.as_bytes();
    match bytes.iter().position(|byte| *byte == b'=') {
        Some(at) => (OsStr::from_bytes(&bytes[..at]), Some(OsStr::from_bytes(&bytes[at + 1..]))),
        None => (word, None),
    }
}

fn text(value: OsString) -> Result<String, String> {
    String::from_utf8(value.into_vec()).map_err(|_| "a value is not UTF-8".to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Option<Restriction>, String> {
        PeerOptions::parse(line.split_whitespace().map(OsString::from))?.restriction()
    }

    #[test]
    fn options_of_a_far_side() {
        let of = |only, least| Ok(Some(Restriction { root: "/d".into(), only, least }));
        let cases = [
            ("", Ok(None)),
            ("--cpus=0", Ok(None)),
            ("--root /d", of(None, Seal::Off)),
            ("--root=/d --read-only", of(Some(Role::Source), Seal::Off)),
            ("--write-only --cpus 0 --root /d", of(Some(Role::Sink), Seal::Off)),
            ("--root /d --seal tls", of(None, Seal::Tls)),
            ("--root /d --seal=auth", of(None, Seal::Auth)),
        ];
        for (line, expect) in cases {
            assert_eq!(parse(line), expect, "{line}");
        }
        let wrong = [
            "--root",
            "--read-only",
            "--write-only",
            "--seal tls",
            "--root /d --read-only --write-only",
            "--root /d --seal none",
            "--root /d --rea-only",
            "--root /d more",
            "--cpus=x",
        ];
        for line in wrong {
            assert!(parse(line).is_err(), "{line}");
        }
    }

    #[test]
    fn what_the_client_wanted_to_run() {
        let cpus = |list| Ok(Some(Cpus::parse(list).unwrap()));
        let cases = [
            ("datapump peer", Ok(None)),
            ("/opt/x/datapump peer --cpus=0", cpus("0")),
            ("datapump-peer peer --cpus=0-1", cpus("0-1")),
            ("datapump peer --cpus=x", Ok(None)),
            ("datapump peer --root / --seal off", Ok(None)),
            ("sh -c 'exec datapump peer'", Ok(None)),
            ("", Ok(None)),
            ("datapump probe", Err("measurements")),
            ("/usr/bin/rsync --server . x", Err("rsync")),
            ("scp -t x", Err("scp")),
        ];
        for (asked, expect) in cases {
            match (cpus_of(asked.as_bytes()), expect) {
                (Err(fault), Err(part)) => assert!(fault.text.contains(part), "{asked}: {fault}"),
                (got, expect) => assert_eq!(got.ok(), expect.ok(), "{asked}"),
            }
        }
    }

    #[test]
    fn requests_beyond_what_is_allowed() {
        let request = |role, seal, location| Open {
            role,
            locations: vec![location],
            settings: Settings { seal, ..Settings::default() },
            ports: None,
            secret: base::secret::SharedSecret([0; 32]),
            fingerprint: [0; 32],
            origin: None,
            window_bytes: 0,
            transfer: [0; 16],
            listed: false,
        };
        let (source, sink) = (Role::Source, Role::Sink);
        let cases = [
            (None, Seal::Off, source, Seal::Off, true),
            (None, Seal::Off, sink, Seal::Tls, true),
            (Some(source), Seal::Off, source, Seal::Off, true),
            (Some(source), Seal::Off, sink, Seal::Off, false),
            (Some(sink), Seal::Off, source, Seal::Off, false),
            (Some(sink), Seal::Off, sink, Seal::Off, true),
            (None, Seal::Tls, sink, Seal::Tls, true),
            (None, Seal::Tls, sink, Seal::Auth, false),
            (None, Seal::Tls, source, Seal::Off, false),
            (None, Seal::Auth, sink, Seal::Auth, true),
            (None, Seal::Auth, sink, Seal::Off, false),
        ];
        for (only, least, role, seal, expect) in cases {
            let restriction = Restriction { root: "/d".into(), only, least };
            let path = request(role, seal, Location::Path("x".into()));
            let allowed = restriction.check(&path);
            assert_eq!(allowed.is_ok(), expect, "{only:?} {least:?} {role:?} {seal:?}");
            assert!(restriction.check(&request(role, seal, Location::Stdio)).is_err());
        }
    }
}
