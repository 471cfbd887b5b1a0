//! `datapump verify`: reads files again and compares them with a receipt.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use super::console::Console;
use super::endpoint::ReadAt;
use super::order::{Show, stores_of};
use super::progress::Collected;
use super::settings::remote;
use super::typed::Typed;
use super::{conclude, first_phase, read_again, start, watched};
use base::fault::Fault;
use base::job::{ObjectUrl, Verified};
use mover::io::store::Stores;
use mover::pump::watch::Watch;
use mover::receipt::{self, DigestOfList, ReceiptFile, Root};
use mover::remote::asking;
use s3::S3;
use tempfile::NamedTempFile;

#[derive(Debug)]
pub(crate) struct VerifyArgs {
    manifest: PathBuf,
    at: ReadAt,
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
            at: ReadAt::of(&path, remote(typed)?)?
                .ok_or("verify needs a file or a folder to read")?,
            stores: stores_of(typed)?,
            shown: path.to_string_lossy().into_owned(),
            show: Show::of(typed)?,
        })
    }
}

/// A key that an object has names the receipt's only file; any other is a folder.
fn at_store(url: &ObjectUrl, stores: &s3::Options, watch: &Arc<Watch>) -> Result<Root, Fault> {
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
    let VerifyArgs { manifest, at, stores, shown, show } = args;
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
    let file = match &kept {
        None => ReceiptFile::of(manifest),
        Some(kept) => ReceiptFile { shown: receipt.clone(), ..ReceiptFile::of(kept.path()) },
    };
    console.event(&start("verify", vec![receipt], Some(shown.clone()), None));
    let first = first_phase(&console, at.host());
    let threads = thread::available_parallelism().map_or(1, |cores| cores.get());
    let (result, collected) = watched(&console, first, None, None, |watch| match at {
        ReadAt::Here(path) => receipt::verify(&file, &Root::Here(path.clone()), threads, watch),
        ReadAt::There(launch, path) => asking::verify(launch, path, &file, watch),
        ReadAt::Store(url) => {
            receipt::verify(&file, &at_store(url, stores, watch)?, threads, watch)
        }
    });
    let elapsed = started.elapsed().into();
    let tell = |(found, kinds): (Verified, Vec<DigestOfList>)| {
        let kinds = kinds.into_iter().map(DigestOfList::tag).collect();
        read_again(&found, kinds, elapsed)
    };
    conclude(&console, result.map(tell), collected)
}
