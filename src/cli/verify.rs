//! `datapump verify`: reads files again and compares them with a receipt.

use std::ffi::OsStr;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use super::console::Console;
use super::endpoint::{EndArg, Role};
use super::order::{Show, stores_of};
use super::progress::Collected;
use super::typed::Typed;
use super::words::quote;
use super::{conclude, read_again, start, watched};
use analysis::report::live::Phase;
use base::fault::Fault;
use base::job::{Location, ObjectUrl, Verified};
use mover::io::store::Stores;
use mover::pump::watch::Watch;
use mover::receipt::{self, DigestOfList, Root};
use s3::S3;
use tempfile::NamedTempFile;

#[derive(Debug)]
pub(crate) struct VerifyArgs {
    manifest: PathBuf,
    place: VerifyTarget,
    stores: s3::Options,
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
            place: place(&path)?,
            stores: stores_of(typed)?,
            shown: path.to_string_lossy().into_owned(),
            show: Show::of(typed)?,
        })
    }
}

/// Where the files of a receipt are.
#[derive(Debug, PartialEq, Eq)]
enum VerifyTarget {
    /// A folder or a file of this host.
    Here(PathBuf),
    Store(ObjectUrl),
}

/// What a receipt is checked against: of this host, or of a store that it asks.
fn place(word: &OsStr) -> Result<VerifyTarget, String> {
    match EndArg::parse(word, Role::Target, 0)? {
        EndArg { host: None, location: Location::Path(path), .. } => Ok(VerifyTarget::Here(path)),
        EndArg { host: Some(host), location: Location::Path(path), .. } => Err(format!(
            "verify reads files of this host: run it there, as in \
             ssh {host} datapump verify - {} < MANIFEST",
            quote(&path.to_string_lossy())
        )),
        EndArg { location: Location::Object(url), .. } => Ok(VerifyTarget::Store(url)),
        _ => Err("verify needs a file or a folder to read".into()),
    }
}

/// A key that an object has names the receipt's only file; any other is a folder.
fn root(place: &VerifyTarget, stores: &s3::Options, watch: &Arc<Watch>) -> Result<Root, Fault> {
    let url = match place {
        VerifyTarget::Here(path) => return Ok(Root::Here(path.clone())),
        VerifyTarget::Store(url) => url,
    };
    let stores = S3::new(stores.clone());
    let watch = watch.clone();
    stores.stop_when(Arc::new(move || watch.stopping()));
    let open = |key: String| stores.open(&ObjectUrl { bucket: url.bucket.clone(), key });
    let below = |folder: &str| match folder {
        "" => String::new(),
        folder => format!("{folder}/"),
    };
    if !url.means_folder() {
        let (folder, name) = url.key.rsplit_once('/').unwrap_or(("", &url.key));
        let store = open(below(folder))?;
        if store.look(name.as_bytes())?.is_some() {
            return Ok(Root::Store(store, Some(name.as_bytes().to_vec())));
        }
    }
    let store = open(below(url.key.trim_end_matches('/')))?;
    store.check()?;
    Ok(Root::Store(store, None))
}

/// Standard input as a file, since a receipt is read twice.
fn of_stdin() -> Result<NamedTempFile, Fault> {
    let fault = |why| Fault::system("read the receipt from standard input", &why);
    let mut file = NamedTempFile::new().map_err(fault)?;
    io::copy(&mut io::stdin().lock(), &mut file).map_err(fault)?;
    Ok(file)
}

pub(super) fn run(args: &VerifyArgs, started: Instant) -> u8 {
    let VerifyArgs { manifest, place, stores, shown, show } = args;
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
    let (result, collected) = watched(&console, Phase::Finding, None, None, |watch| {
        let root = root(place, stores, watch)?;
        receipt::verify(manifest, &root, threads, watch)
    });
    let elapsed = started.elapsed().into();
    let tell = |(found, kinds): (Verified, Vec<DigestOfList>)| {
        let kinds = kinds.into_iter().map(DigestOfList::tag).collect();
        read_again(&found, kinds, elapsed)
    };
    conclude(&console, result.map(tell), collected)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verify_reads_here() {
        assert_eq!(place(OsStr::new("a/")), Ok(VerifyTarget::Here(PathBuf::from("a/"))));
        let there = place(OsStr::new("h:a")).unwrap_err();
        assert!(there.contains("ssh h datapump verify - a < MANIFEST"), "{there}");
        assert!(place(OsStr::new("-")).is_err());
    }
}
