//! What a far side does that is asked something, and is to copy nothing.

use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use super::control::ControlLine;
use super::home;
use super::restriction::Restriction;
use crate::folder_listing::{self, Sums};
use crate::io::reach::Reach;
use crate::pump::run::Line;
use crate::pump::watch::Watch;
use crate::receipt::{self, Form, ReceiptFile, Root};
use crate::wire::message::{Answer, Ask, ITEMS_MAX, Message, ReceiptForm};
use base::fault::Fault;
use base::job::{Location, Notice};
use base::listing::Sum;
use base::settings::Settings;

/// Answers, and ends. `hear` gives the next message of the driver.
pub(super) fn answer(
    ask: Ask,
    restriction: Option<&Restriction>,
    line: &ControlLine,
    hear: &mut dyn FnMut() -> Result<Message, Fault>,
) -> Result<(), Fault> {
    restriction.map_or(Ok(()), |restriction| restriction.check_ask(&ask))?;
    match ask {
        Ask::List { path, sums } => {
            let reach = restriction.map_or(Ok(Reach::Host), Restriction::reach)?;
            let path = [Location::Path(path)];
            let expanded = match reach {
                Reach::Host | Reach::Stores(_) => home::expanded(&path)?,
                Reach::Beneath(_) => home::expanded_beneath(&path)?,
            };
            let sums = if sums { Sums::Yes } else { Sums::No };
            let items = telling(line, |watch| match &expanded[..] {
                [Location::Path(path)] => folder_listing::of_path(path, sums, &reach, watch),
                _ => Err(Fault::peer("what is to be listed is no path")),
            })?;
            items.chunks(ITEMS_MAX).try_for_each(|some| say(line, Answer::Items(some.to_vec())))?;
            say(line, Answer::Listed)
        }
        Ask::Verify { path, receipt } => {
            let folder = tempfile::tempdir();
            let folder =
                folder.map_err(|why| Fault::system("make a folder for the receipt", &why))?;
            let receipt = received(folder.path().join("receipt"), receipt, hear)?;
            let root = match &home::expanded(&[Location::Path(path)])?[..] {
                [Location::Path(path)] => Root::Here(path.clone()),
                _ => return Err(Fault::peer("what is to be verified is no path")),
            };
            let threads = thread::available_parallelism().map_or(1, |cores| cores.get());
            let verify = |watch: &Arc<Watch>| receipt::verify(&receipt, &root, threads, watch);
            let (found, kinds) = telling(line, verify)?;
            let kinds = kinds.into_iter().map(|kind| kind.tag().to_string()).collect();
            say(line, Answer::Verified { found, kinds })
        }
    }
}

fn say(line: &ControlLine, answer: Answer) -> Result<(), Fault> {
    // The process ends with its connection, and is stopped so.
    line.await_room(Settings::default().stall, &|| false)?;
    line.clone().send(&Message::Answer(answer))
}

/// Writes the pieces of a receipt into a file.
fn received(
    path: PathBuf,
    form: ReceiptForm,
    hear: &mut dyn FnMut() -> Result<Message, Fault>,
) -> Result<ReceiptFile, Fault> {
    let fault = |why| Fault::system("keep the receipt", &why);
    let mut file = File::create(&path).map_err(fault)?;
    loop {
        match hear()? {
            Message::Piece { bytes, last } => {
                file.write_all(&bytes).map_err(fault)?;
                if last {
                    let path = fs::canonicalize(&path).map_err(fault)?;
                    let ReceiptForm { shown, is_bagit } = form;
                    let form = if is_bagit { Form::BagIt } else { Form::Coreutils };
                    return Ok(ReceiptFile { path, shown, form });
                }
            }
            other => {
                let name = other.name();
                return Err(Fault::peer(format!("the peer sent {name} instead of a receipt")));
            }
        }
    }
}

/// Does the work, and tells meanwhile what its watch is told, and how far it has come.
fn telling<T: Send>(
    line: &ControlLine,
    work: impl FnOnce(&Arc<Watch>) -> Result<T, Fault> + Send,
) -> Result<T, Fault> {
    let (notices, told) = channel();
    let watch = Arc::new(Watch::new(notices));
    thread::scope(|scope| {
        let worker = scope.spawn(|| work(&watch));
        let told = tell(line, &watch, &told, &|| worker.is_finished());
        if told.is_err() {
            watch.stop();
        }
        let panicked =
            |_| Err(Fault::system("answer", &std::io::Error::other("a thread panicked")));
        let done = worker.join().unwrap_or_else(panicked);
        told.and(done)
    })
}

fn tell(
    line: &ControlLine,
    watch: &Watch,
    told: &Receiver<Notice>,
    is_over: &dyn Fn() -> bool,
) -> Result<(), Fault> {
    let pending = watch.pending();
    let mut is_last = false;
    loop {
        match told.recv_timeout(if is_last { Duration::ZERO } else { TELL_EVERY }) {
            Ok(notice) => {
                pending.heard(&notice);
                match notice {
                    Notice::FileDone { path, bytes, digest, .. } => {
                        say(line, Answer::Matches { path, bytes, digest })?;
                    }
                    Notice::FileFailed { path, fault } => {
                        say(line, Answer::Differs { path, fault })?;
                    }
                    Notice::Warning(text) => line.clone().send(&Message::Warning { text })?,
                    _ => {}
                }
            }
            Err(RecvTimeoutError::Timeout) if !is_last => {
                let gauge = &watch.gauge;
                let sum = |files: &AtomicU64, bytes: &AtomicU64| Sum {
                    files: files.load(Relaxed),
                    bytes: bytes.load(Relaxed),
                };
                let found = sum(&gauge.files_found, &gauge.bytes_found);
                let done = sum(&gauge.files_done, &gauge.bytes_done);
                say(line, Answer::Progress { found, done })?;
                // What it told before its end is heard once more.
                is_last = is_over();
            }
            Err(_) => return Ok(()),
        }
    }
}

const TELL_EVERY: Duration = Duration::from_millis(100);
