//! `datapump verify`: reads files again and compares them with a receipt.

use std::ffi::OsStr;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use super::console::Console;
use super::endpoint::{EndArg, Role};
use super::order::Show;
use super::progress::Collected;
use super::typed::Typed;
use super::words::quote;
use super::{conclude, read_again, start, watched};
use analysis::report::live::Phase;
use base::fault::Fault;
use base::job::Location;
use mover::receipt;
use tempfile::NamedTempFile;

#[derive(Debug)]
pub(crate) struct VerifyArgs {
    manifest: PathBuf,
    root: PathBuf,
    /// The root as it was typed.
    shown: String,
    show: Show,
}

impl VerifyArgs {
    pub(super) fn of(typed: &Typed) -> Result<VerifyArgs, String> {
        // clap has made sure that both are there.
        let path = typed.word("PATH").unwrap_or_default();
        Ok(VerifyArgs {
            manifest: PathBuf::from(typed.word("MANIFEST").unwrap_or_default()),
            root: root(&path)?,
            shown: path.to_string_lossy().into_owned(),
            show: Show::of(typed)?,
        })
    }
}

/// The folder or file that a receipt is checked against: always of this host.
fn root(word: &OsStr) -> Result<PathBuf, String> {
    match EndArg::parse(word, Role::Target, 0)? {
        EndArg { host: None, location: Location::Path(path), .. } => Ok(path),
        EndArg { host: Some(host), location: Location::Path(path), .. } => Err(format!(
            "verify reads files of this host: run it there, as in \
             ssh {host} datapump verify - {} < MANIFEST",
            quote(&path.to_string_lossy())
        )),
        EndArg { location: Location::Object(url), .. } => Err(format!(
            "'{url}' is in an object store: copy it to this host and verify it there, or see the \
             checksum that the store has"
        )),
        _ => Err("verify needs a file or a folder to read".into()),
    }
}

/// Standard input as a file, since a receipt is read twice.
fn of_stdin() -> Result<NamedTempFile, Fault> {
    let fault = |why| Fault::system("read the receipt from standard input", &why);
    let mut file = NamedTempFile::new().map_err(fault)?;
    io::copy(&mut io::stdin().lock(), &mut file).map_err(fault)?;
    Ok(file)
}

pub(super) fn run(args: &VerifyArgs, started: Instant) -> u8 {
    let VerifyArgs { manifest, root, shown, show } = args;
    let console = Arc::new(Console::new(*show, started));
    let receipt = manifest.to_string_lossy().into_owned();
    let kept = match receipt.as_str() {
        "-" => of_stdin().map(Some),
        _ => Ok(None),
    };
    let kept = match kept {
        Ok(kept) => kept,
        Err(fault) => return conclude(&console, Err(fault), Collected::default()),
    };
    let manifest = kept.as_ref().map_or(manifest.as_path(), NamedTempFile::path);
    console.event(&start("verify", vec![receipt], Some(shown.clone()), None));
    let threads = thread::available_parallelism().map_or(1, |cores| cores.get());
    let (result, collected) = watched(&console, Phase::Finding, None, |watch| {
        receipt::verify(manifest, root, threads, watch)
    });
    let elapsed = started.elapsed().into();
    conclude(&console, result.map(|found| read_again(&found, elapsed)), collected)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verify_reads_here() {
        assert_eq!(root(OsStr::new("a/")), Ok(PathBuf::from("a/")));
        let there = root(OsStr::new("h:a")).unwrap_err();
        assert!(there.contains("ssh h datapump verify - a < MANIFEST"), "{there}");
        assert!(root(OsStr::new("-")).is_err());
    }
}
