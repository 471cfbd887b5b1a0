//! Where the far host has no program for the far side, one is sent over the connection to it.
//!
//! The far command is the plain word `/bin/sh`, and what it reads is `bootstrap.sh`. That starts a
//! program which an earlier copy has brought, or the host's own; else it asks for the bytes of one.
//! docs/decisions/0055-nothing-to-install.md has the reasons.

use std::ffi::OsStr;
use std::fmt::{self, Write as _};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ChildStdout;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use super::installed::{digest_of, file_name};
use super::launch::Tell;
use crate::wire::message::{MARK, VERSION_MAX, VERSION_MIN};
use base::fault::{Class, Fault};
use base::job::Install;
use base::units::Bytes;

/// What the far program is started as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// The far side of a copy.
    Peer,
    /// The counters of the far host; only the whole program has it.
    Probe,
    /// The destination of a spread; only the whole program has it.
    SpreadFar,
}

impl Part {
    pub(super) fn of(words: &[String]) -> Part {
        match words.first().map(String::as_str) {
            Some("probe") => Part::Probe,
            Some("spread-far") => Part::SpreadFar,
            _ => Part::Peer,
        }
    }

    fn word(self) -> &'static str {
        match self {
            Part::Peer => "peer",
            Part::Probe => "probe",
            Part::SpreadFar => "spread-far",
        }
    }

    /// The program, as files that are sent are called.
    pub(super) fn stem(self) -> &'static str {
        match self {
            Part::Peer => "datapump-peer",
            Part::Probe | Part::SpreadFar => "datapump",
        }
    }

    /// What a far program must answer with exit code 0 before it is started.
    fn ask(self) -> String {
        match self {
            Part::Peer => format!("--speaks={VERSION_MIN}-{VERSION_MAX}"),
            Part::Probe | Part::SpreadFar => format!("--is={}", env!("CARGO_PKG_VERSION")),
        }
    }

    /// What it prints before it says anything else.
    fn mark(self) -> &'static [u8] {
        match self {
            Part::Peer => MARK,
            Part::Probe => b"\ndatapump-probe\n",
            Part::SpreadFar => b"\ndatapump-spread",
        }
    }
}

/// A program of this host that can be sent to one of this architecture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Program {
    /// As `uname -m` says it.
    arch: &'static str,
    file: PathBuf,
    digest: String,
}

/// The programs that can be sent: `datapump-peer-ARCH` beside this program or in `../lib/datapump`.
/// For hosts like this one, where there is none, `datapump-peer` beside it or this program itself.
pub(super) fn programs(part: Part) -> Vec<Program> {
    let Ok(own) = super::launch::own_program() else { return Vec::new() };
    let files = files_beside(part, &own).into_iter();
    // One that cannot be read is as one that is not there.
    let read = files.filter_map(|(arch, file)| {
        let digest = File::open(&file).and_then(digest_of).ok()?;
        Some(Program { arch, file, digest })
    });
    read.collect()
}

fn files_beside(part: Part, own: &Path) -> Vec<(&'static str, PathBuf)> {
    let beside = own.parent().unwrap_or(Path::new("/"));
    let folders = [beside.to_path_buf(), beside.join("../lib/datapump")];
    let brought = ARCHITECTURES.iter().filter_map(|arch| {
        let name = format!("{}-{arch}", part.stem());
        let file = folders.iter().map(|folder| folder.join(&name)).find(|file| file.is_file())?;
        Some((*arch, file))
    });
    let mut files: Vec<_> = brought.collect();
    let here = ARCHITECTURES.iter().find(|arch| **arch == std::env::consts::ARCH);
    if let Some(here) = here.filter(|here| !files.iter().any(|(arch, _)| arch == *here)) {
        let mover = beside.join(part.stem());
        let file = if mover.is_file() { mover } else { own.to_path_buf() };
        files.push((here, file));
    }
    files
}

/// Architectures as `uname -m` says them, which is also how Rust names these.
const ARCHITECTURES: [&str; 5] = ["x86_64", "aarch64", "riscv64", "s390x", "loongarch64"];

/// What `/bin/sh` reads at the far host. `words` need no quoting.
pub(super) fn script(
    part: Part,
    words: &str,
    install: Install,
    programs: &[Program],
    token: &str,
) -> String {
    let mut cases = String::new();
    for Program { arch, digest, .. } in programs {
        let name = file_name(part.stem(), digest);
        let _ = writeln!(cases, "'Linux {arch}') digest={digest} name={name} ;;");
    }
    let in_path = if install == Install::Always { "false" } else { "true" };
    let filled = include_str!("bootstrap.sh")
        .replace("@PROGRAMS@\n", &cases)
        .replace("@PART@", part.word())
        .replace("@ASK@", &part.ask())
        .replace("@WORDS@", words)
        .replace("@IN_PATH@", in_path)
        .replace("@TOKEN@", token);
    let lines = filled.lines().map(str::trim_start);
    let mut script = String::from(SCRIPT_BEGINS);
    for line in lines.filter(|line| !line.is_empty() && !line.starts_with('#')) {
        script.push_str(line);
        script.push('\n');
    }
    script + SCRIPT_ENDS
}

/// The first and the last line of the script. A far side that a forced command starts gets the
/// script before the first message, and leaves it out: no envelope has a length like this. A
/// start-up file that reads a line takes the first.
pub(super) const SCRIPT_BEGINS: &str = "# datapump starts its far side\n";
pub(super) const SCRIPT_ENDS: &str = "} # datapump: end of the script\n";

/// Skips the script where it comes before the messages.
pub(super) fn skip_script(mut reader: impl Read + Send + 'static) -> Box<dyn Read + Send> {
    let begins = &SCRIPT_BEGINS.as_bytes()[..4];
    let mut first = Vec::new();
    let read = reader.by_ref().take(4).read_to_end(&mut first);
    if read.is_ok() && first == begins {
        let mut seen = first;
        let mut byte = [0];
        while !seen.ends_with(SCRIPT_ENDS.as_bytes()) && seen.len() < SCRIPT_BYTES_MAX {
            match reader.read(&mut byte) {
                Ok(1..) => seen.push(byte[0]),
                Ok(0) | Err(_) => break,
            }
        }
        return Box::new(reader);
    }
    Box::new(io::Cursor::new(first).chain(reader))
}

const SCRIPT_BYTES_MAX: usize = 64 << 10;

/// How the installation goes on, for those who wait for the far side.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// The far side, or the script that starts it, has said something.
    begun: AtomicBool,
    /// Grows while a program is sent.
    sent_bytes: AtomicU64,
    /// Why no far side was started.
    fault: Mutex<Option<Fault>>,
    /// What the user is told of it.
    note: Mutex<Option<String>>,
}

impl Progress {
    pub(super) fn has_begun(&self) -> bool {
        self.begun.load(Relaxed)
    }

    pub(super) fn sent_bytes(&self) -> u64 {
        self.sent_bytes.load(Relaxed)
    }

    pub(super) fn fault(&self) -> Option<Fault> {
        self.fault.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn note(&self) -> Option<String> {
        self.note.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// What the far host says. Until the far side's mark, records of the script are answered.
#[derive(Debug)]
pub struct FarOutput {
    stdout: ChildStdout,
    /// The last bytes, as many as a mark has.
    tail: Vec<u8>,
    installing: Option<Installing>,
}

impl FarOutput {
    pub(super) fn plain(stdout: ChildStdout) -> FarOutput {
        FarOutput { stdout, tail: Vec::new(), installing: None }
    }

    pub(super) fn answering(stdout: ChildStdout, installing: Installing) -> FarOutput {
        FarOutput { stdout, tail: Vec::new(), installing: Some(installing) }
    }
}

impl Read for FarOutput {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let Some(installing) = &mut self.installing else { return self.stdout.read(into) };
        let wanted = into.len().min(1);
        let count = self.stdout.read(&mut into[..wanted])?;
        self.tail.extend_from_slice(&into[..count]);
        let surplus = self.tail.len().saturating_sub(MARK.len());
        self.tail.drain(..surplus);
        if self.tail.ends_with(installing.part.mark()) {
            installing.progress.begun.store(true, Relaxed);
            self.installing = None; // and with it this end of its input
        } else if self.tail == BOOT {
            installing.progress.begun.store(true, Relaxed);
            let line = read_line(&mut self.stdout)?;
            installing.hear(&line)?;
        }
        Ok(count)
    }
}

/// A line of the script's, without control characters.
fn read_line(from: &mut impl Read) -> io::Result<String> {
    let mut line = Vec::new();
    let mut byte = [0];
    while line.len() < LINE_BYTES_MAX && from.read(&mut byte)? == 1 && byte[0] != b'\n' {
        line.push(byte[0]);
    }
    Ok(String::from_utf8_lossy(&line).into_owned())
}

/// What precedes a record of the script; as long as the mark.
const BOOT: &[u8] = b"\0datapump-boot\0\n";
const _: () = assert!(BOOT.len() == MARK.len());
const LINE_BYTES_MAX: usize = 4 << 10;
/// A program is sent at most so often: once for each folder that is tried.
const SENT_MAX: usize = 5;

/// The near end of the conversation with the script.
pub(super) struct Installing {
    pub part: Part,
    pub host: String,
    pub programs: Vec<Program>,
    /// Where the bytes go: the far side's standard input, to which nothing else is written before
    /// its mark.
    pub input: File,
    pub progress: Arc<Progress>,
    pub tell: Option<Tell>,
    /// Folders that were tried, and why they do not serve.
    pub tried: Vec<String>,
    pub sent: usize,
}

impl fmt::Debug for Installing {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "Installing at {}", self.host)
    }
}

impl Installing {
    /// Answers a record of the script.
    fn hear(&mut self, line: &str) -> io::Result<()> {
        let (what, rest) = line.split_once(' ').unwrap_or((line, ""));
        match what {
            "tried" => {
                let (folder, why) = rest.split_once('\t').unwrap_or((rest, ""));
                self.tried.push(format!("{}: {}", shown(folder), reason(why)));
                Ok(())
            }
            "send" => {
                let mut words = rest.splitn(4, ' ');
                let mut next = || words.next().unwrap_or_default();
                let (there, arch, codec, folder) = (next(), next(), next(), next());
                let program = self.programs.iter().find(|program| program.arch == arch);
                match program.cloned().filter(|_| self.sent < SENT_MAX) {
                    Some(program) => self.send(&program, codec, there, folder),
                    None => self.fail(format!("{} asks for a program of no use", self.host)),
                }
            }
            "system" => self.fail(self.no_program_for(rest)),
            "unfit" => self.fail(self.does_not_run(rest)),
            "none" => self.fail(self.no_folder(rest)),
            _ => self.fail(format!("{} gives an answer that makes no sense", self.host)),
        }
    }

    fn send(
        &mut self,
        program: &Program,
        codec: &str,
        there: &str,
        folder: &str,
    ) -> io::Result<()> {
        let packed = match packed(&program.file, codec) {
            Ok(packed) => packed,
            Err(why) => {
                let file = program.file.display();
                return self
                    .fail(format!("cannot read '{file}', which {} needs: {why}", self.host));
            }
        };
        self.sent += 1;
        let before = self.tried.last().map_or(String::new(), |tried| format!("{tried}; "));
        let text = format!(
            "{before}{} at {}: sending {} ({} packed) to {}, where it stays for later copies; \
             --install never prevents that",
            lack(there),
            self.host,
            file_name(self.part.stem(), &program.digest),
            Bytes(packed.len() as u64),
            shown(folder),
        );
        self.note(text);
        let mut input = &self.input;
        let mut written = input.write_all(format!("{}\n", packed.len()).as_bytes());
        for piece in packed.chunks(PIECE_BYTES) {
            written = written.and_then(|()| input.write_all(piece));
            self.progress.sent_bytes.fetch_add(piece.len() as u64, Relaxed);
        }
        // Where the far side has gone, its output ends too.
        drop(written);
        Ok(())
    }

    fn note(&self, text: String) {
        match &self.tell {
            Some(tell) => tell.say(text),
            None => {
                let note = &self.progress.note;
                *note.lock().unwrap_or_else(PoisonError::into_inner) = Some(text);
            }
        }
    }

    /// No far side will be started.
    fn fail(&self, text: String) -> io::Result<()> {
        let fault = Fault::new(Class::Version, text);
        let kept = &self.progress.fault;
        *kept.lock().unwrap_or_else(PoisonError::into_inner) = Some(fault.clone());
        Err(io::Error::other(fault))
    }

    fn no_program_for(&self, rest: &str) -> String {
        let (there, system) = rest.split_once(' ').unwrap_or(("none", rest));
        let (host, lack) = (&self.host, lack(there));
        let Some(arch) = system.strip_prefix("Linux ") else {
            return format!("{lack} at {host}, which runs {}: it needs Linux", shown(system));
        };
        let name = format!("{}-{}", self.part.stem(), shown(arch));
        format!(
            "{lack} at {host}, whose processor is {}, and none here for it: put {name} of the same \
             release beside this program or into ../lib/datapump, or install datapump {} there",
            shown(arch),
            env!("CARGO_PKG_VERSION"),
        )
    }

    fn does_not_run(&self, rest: &str) -> String {
        let (status, why) = rest.split_once(' ').unwrap_or((rest, ""));
        let program = self.programs.first().map(|program| program.file.display().to_string());
        let why = match (status, why) {
            ("127", _) => "its dynamic loader is not there".to_string(),
            (_, "") => format!("exit code {}", shown(status)),
            _ => reason(why),
        };
        let (stem, arch) = (self.part.stem(), std::env::consts::ARCH);
        let package = match self.part {
            Part::Peer => "datapump-mover",
            Part::Probe | Part::SpreadFar => "datapump",
        };
        format!(
            "'{}' of this host does not run at {}: {why}; put a statically linked {stem}-{arch} \
             beside this program (cargo build --profile dist -p {package} --target \
             {arch}-unknown-linux-musl makes one, with a C compiler for musl), or install datapump \
             {} there",
            program.unwrap_or_default(),
            self.host,
            env!("CARGO_PKG_VERSION"),
        )
    }

    fn no_folder(&self, there: &str) -> String {
        format!(
            "{} at {}, and it has no folder for one: {}; set DATAPUMP_DIR there to a folder from \
             which programs run, or install datapump {} there",
            lack(there),
            self.host,
            self.tried.join("; "),
            env!("CARGO_PKG_VERSION"),
        )
    }
}

/// What the far host does not have.
fn lack(there: &str) -> &'static str {
    match there {
        "other" => "there is no datapump that fits this one",
        _ => "there is no datapump",
    }
}

/// The last part of what a shell says: the reason alone.
fn reason(why: &str) -> String {
    let why = shown(why);
    let last = why.rsplit(": ").next().unwrap_or_default().trim();
    if last.is_empty() { "it cannot be written".to_string() } else { last.to_string() }
}

/// What a far host says, without what paints a terminal.
fn shown(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(SHOWN_CHARS_MAX).collect()
}

const SHOWN_CHARS_MAX: usize = 300;
const PIECE_BYTES: usize = 64 << 10;

/// The file as the far host can unpack it.
fn packed(file: &Path, codec: &str) -> io::Result<Vec<u8>> {
    let bytes = fs::read(file)?;
    match codec {
        "zstd" => zstd::bulk::compress(&bytes, ZSTD_LEVEL),
        "gzip" => {
            let level = flate2::Compression::new(GZIP_LEVEL);
            let mut packing = flate2::write::GzEncoder::new(Vec::new(), level);
            packing.write_all(&bytes)?;
            packing.finish()
        }
        _ => Ok(bytes),
    }
}

/// Packing takes a tenth of a second or so, once for a host.
const ZSTD_LEVEL: i32 = 6;
const GZIP_LEVEL: u32 = 6;

/// True for a name that a program has which was sent.
pub(super) fn is_sent_name(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    [Part::Peer, Part::Probe].iter().any(|part| {
        let rest = name.strip_prefix(part.stem()).and_then(|rest| rest.strip_prefix('-'));
        let digest = rest.and_then(|rest| rest.rsplit_once('-')).map(|(_, digest)| digest);
        digest.is_some_and(|digest| {
            digest.len() == super::installed::NAME_DIGITS
                && digest.bytes().all(|byte| byte.is_ascii_hexdigit())
        })
    })
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    fn program(arch: &'static str) -> Program {
        Program { arch, file: "/nowhere".into(), digest: "0123456789abcdef".repeat(4) }
    }

    /// Each of our shells takes the script as it takes it from `ssh`.
    #[test]
    fn shells_can_read_the_script() {
        let programs = [program("x86_64"), program("aarch64")];
        let text = script(Part::Peer, "peer", Install::Auto, &programs, "1234");
        assert!(!text.contains('@'), "{text}");
        assert!(text.starts_with(SCRIPT_BEGINS) && text.ends_with(SCRIPT_ENDS));
        let mut shell = Command::new("/bin/sh");
        shell.arg("-n").stdin(Stdio::piped()).stderr(Stdio::piped());
        let mut shell = shell.spawn().unwrap();
        shell.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        let said = shell.wait_with_output().unwrap();
        assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    }

    #[test]
    fn the_script_before_messages_is_left_out() {
        let script = script(Part::Peer, "peer", Install::Auto, &[program("x86_64")], "1234");
        let message = [5, 0, 0, 0, 1, 2, 3, 4, 5];
        for before in ["", script.as_str()] {
            let all = [before.as_bytes(), &message].concat();
            let mut rest = Vec::new();
            skip_script(io::Cursor::new(all)).read_to_end(&mut rest).unwrap();
            assert_eq!(rest, message);
        }
        let mut rest = Vec::new();
        skip_script(io::Cursor::new([5, 0])).read_to_end(&mut rest).unwrap();
        assert_eq!(rest, [5, 0]);
    }

    /// What lies beside the program or in `../lib/datapump`, and what is sent of it.
    #[test]
    fn the_program_for_each_processor() {
        let here = ARCHITECTURES.iter().find(|arch| **arch == std::env::consts::ARCH).unwrap();
        let other = ARCHITECTURES.iter().find(|arch| arch != &here).unwrap();
        let peer = |arch: &str| format!("datapump-peer-{arch}");
        let (mine, others) = (peer(here), peer(other));
        let brought = format!("lib/datapump/{mine}");
        type Case<'a> = (&'a [&'a str], &'a [(&'a str, &'a str)]);
        let cases: [Case<'_>; 5] = [
            (&[], &[(here, "bin/datapump")]),
            (&["bin/datapump-peer"], &[(here, "bin/datapump-peer")]),
            (&["bin/datapump-peer", &brought], &[(here, &brought)]),
            (
                &[&format!("bin/{mine}"), &brought, &format!("bin/{others}")],
                &[(here, &format!("bin/{mine}")), (other, &format!("bin/{others}"))],
            ),
            (
                &[&format!("lib/datapump/{others}")],
                &[(other, &format!("lib/datapump/{others}")), (here, "bin/datapump")],
            ),
        ];
        for (files, expect) in cases {
            let folder = tempfile::tempdir().unwrap();
            for below in ["bin", "lib/datapump"] {
                fs::create_dir_all(folder.path().join(below)).unwrap();
            }
            files.iter().for_each(|file| fs::write(folder.path().join(file), file).unwrap());
            let own = folder.path().join("bin/datapump");
            let mut found: Vec<(&str, PathBuf)> = files_beside(Part::Peer, &own);
            let name = |path: &Path| {
                let path = path.to_string_lossy().replace("bin/../", "");
                path.strip_prefix(&format!("{}/", folder.path().display())).unwrap().to_string()
            };
            found.sort();
            let found: Vec<_> = found.iter().map(|(arch, path)| (*arch, name(path))).collect();
            let mut expect: Vec<_> =
                expect.iter().map(|(arch, path)| (*arch, path.to_string())).collect();
            expect.sort();
            assert_eq!(found, expect, "{files:?}");
        }
    }

    #[test]
    fn what_does_not_run_is_named_with_what_to_build() {
        let cases = [
            (Part::Peer, "datapump-mover"),
            (Part::Probe, "datapump"),
            (Part::SpreadFar, "datapump"),
        ];
        for (part, package) in cases {
            let installing = Installing {
                part,
                host: "dtn2".into(),
                programs: vec![program("x86_64")],
                input: File::open("/dev/null").unwrap(),
                progress: Arc::default(),
                tell: None,
                tried: Vec::new(),
                sent: 1,
            };
            let text = installing.does_not_run("127 not found");
            let arch = std::env::consts::ARCH;
            let build = format!("-p {package} --target {arch}-unknown-linux-musl makes one");
            let file = format!("a statically linked {}-{arch} beside", part.stem());
            for expect in ["'/nowhere' of this host", "at dtn2: its dynamic loader", &build, &file]
            {
                assert!(text.contains(expect), "{expect}: {text}");
            }
        }
    }

    #[test]
    fn a_reason_is_the_last_that_a_shell_says() {
        let cases = [
            ("/bin/sh: 5: cannot create /x/.new-1: Permission denied", "Permission denied"),
            ("mkdir: cannot create directory '/x': Read-only file system", "Read-only file system"),
            ("it is a symbolic link", "it is a symbolic link"),
            ("gzip: stdout: No space left on device\u{1b}[31m", "No space left on device[31m"),
            ("", "it cannot be written"),
        ];
        cases.iter().for_each(|(said, expect)| assert_eq!(reason(said), *expect));
    }
}
