//! Asks a far side something, instead of copying.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use super::control::{Carrier, ControlLine, Noise, start_reader};
use super::launch::{LEAVES_WITHIN, Launch, Launched, Login};
use super::peer::{PROGRAM, heartbeat, silent};
use crate::folder_listing::Sums;
use crate::io::clock;
use crate::pump::run::Line;
use crate::pump::transfer::Event;
use crate::pump::watch::Watch;
use crate::receipt::{DigestOfList, Form, ReceiptFile};
use crate::wire::message::{Answer, Ask, Message, PIECE_BYTES_MAX, ReceiptForm};
use crate::wire::session::Session;
use base::extra::ExtraSums;
use base::fault::{Class, Fault};
use base::job::{FileKind, Notice, Verified};
use base::listing::Item;
use base::settings::Settings;

/// What is in a folder there.
pub fn list(
    launch: &Launch,
    path: &Path,
    sums: Sums,
    watch: &Arc<Watch>,
) -> Result<Vec<Item>, Fault> {
    let ask = Ask::List { path: path.to_path_buf(), sums: sums == Sums::Yes };
    let (mut all, mut bytes) = (Vec::new(), 0);
    let answered = ask_far(launch, &ask, None, watch, &mut |answer| match answer {
        Answer::Items(items) => {
            bytes += items.iter().map(bytes_of).sum::<usize>();
            all.extend(items);
            let text = "the far side lists more than a folder can be expected to have";
            (bytes > LISTED_BYTES_MAX).then(|| Err(Fault::peer(text)))
        }
        Answer::Listed => Some(Ok(())),
        _ => Some(Err(Fault::peer("the far side answers something else than a listing"))),
    });
    answered.map(|()| all)
}

/// Reads the files there again that a receipt of this host names, and reports to `watch` every one
/// that is not as it says.
pub fn verify(
    launch: &Launch,
    path: &Path,
    receipt: &ReceiptFile,
    watch: &Arc<Watch>,
) -> Result<(Verified, Vec<DigestOfList>), Fault> {
    let is_bagit = receipt.form == Form::BagIt;
    let form = ReceiptForm { shown: receipt.shown.clone(), is_bagit };
    let ask = Ask::Verify { path: path.to_path_buf(), receipt: form };
    let host = launch.host().unwrap_or("this host");
    ask_far(launch, &ask, Some(&receipt.path), watch, &mut |answer| match answer {
        Answer::Matches { path, bytes, digest } => {
            let (kind, extra) = (FileKind::File, ExtraSums::NONE);
            watch.tell(Notice::FileDone { path, kind, bytes, reason: None, digest, extra });
            None
        }
        Answer::Differs { path, fault } => {
            let fault = Fault { text: format!("{host}: {}", fault.text), ..fault };
            watch.tell(Notice::FileFailed { path, fault });
            None
        }
        Answer::Verified { found, kinds } => {
            let known = DigestOfList::ALL.into_iter();
            Some(Ok((found, known.filter(|it| kinds.iter().any(|k| k == it.tag())).collect())))
        }
        _ => Some(Err(Fault::peer("the far side answers something else than what it read"))),
    })
}

/// What an item takes in memory.
fn bytes_of(item: &Item) -> usize {
    let owner = item.owner.as_ref().map_or(0, |(user, group)| user.len() + group.len());
    size_of::<Item>() + item.name.len() + item.link_target.len() + owner
}

/// Some millions of names. A far side that lies could fill this host's memory.
const LISTED_BYTES_MAX: usize = 1 << 30;

/// Takes answers, until one ends the conversation.
type Take<'a, T> = dyn FnMut(Answer) -> Option<Result<T, Fault>> + 'a;

fn ask_far<T>(
    launch: &Launch,
    ask: &Ask,
    receipt: Option<&Path>,
    watch: &Arc<Watch>,
    take: &mut Take<'_, T>,
) -> Result<T, Fault> {
    let open = |path| File::open(path).map_err(|why| Fault::io("open", path, &why));
    let receipt = receipt.map(open).transpose()?;
    let tell = watch.clone();
    let (mut launched, stdin, stdout) = launch.start(Login::First, move |line| tell.warn(line))?;
    let line = ControlLine::new(stdin, Carrier::default());
    let (events_in, events) = channel();
    start_reader(stdout, Noise::UntilMark, events_in, Carrier::default(), || {});
    let mut asking = Asking { launch, ask, receipt, watch, line: line.clone() };
    let heard = asking.converse(&events, &launched, take);
    let heard = heard.map_err(|fault| match fault.class {
        _ if watch.stopping() => Fault::interrupted(),
        Class::Unreachable | Class::Peer => launched.explain(fault).fault,
        _ => fault,
    });
    match line.close_within(WRITTEN_WITHIN) {
        true => drop(launched.end(LEAVES_WITHIN)),
        false => launched.cut(),
    }
    heard
}

struct Asking<'a> {
    launch: &'a Launch,
    ask: &'a Ask,
    receipt: Option<File>,
    watch: &'a Watch,
    line: ControlLine,
}

impl Asking<'_> {
    fn converse<T>(
        &mut self,
        events: &Receiver<Event>,
        launched: &Launched,
        take: &mut Take<'_, T>,
    ) -> Result<T, Fault> {
        let stall = Settings::default().stall;
        let mut session = Session::asking(PROGRAM, clock::now());
        let (mut heard, mut patience) = (clock::now(), Login::First.patience(stall));
        let mut sent = 0;
        loop {
            match events.recv_timeout(LOOK_EVERY) {
                Ok(Event::Heard(message)) => {
                    session.hear(clock::now(), &message)?;
                    heard = clock::now();
                    match message {
                        Message::Hello { .. } => {
                            self.greet(&mut session)?;
                            self.line.set_heartbeat(Some(heartbeat(stall)));
                            patience = Some(stall);
                        }
                        Message::Stop(fault) => return Err(self.in_far_words(fault)),
                        Message::Warning { text } => self.watch.warn(text),
                        Message::Answer(Answer::Progress { found, done }) => {
                            let gauge = &self.watch.gauge;
                            gauge.files_found.store(found.files, Relaxed);
                            gauge.bytes_found.store(found.bytes, Relaxed);
                            gauge.files_done.store(done.files, Relaxed);
                            gauge.bytes_done.store(done.bytes, Relaxed);
                        }
                        Message::Answer(answer) => {
                            if let Some(end) = take(answer) {
                                return end;
                            }
                        }
                        _ => {}
                    }
                }
                Ok(Event::Closed(fault)) => {
                    let gone = || Fault::new(Class::Unreachable, "the far side went away");
                    return Err(fault.unwrap_or_else(gone));
                }
                Ok(_) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Fault::new(Class::Unreachable, "the far side went away"));
                }
            }
            if self.watch.stopping() {
                return Err(Fault::interrupted());
            }
            if launched.sent_bytes() > sent {
                (sent, heard) = (launched.sent_bytes(), clock::now());
            }
            if patience.is_some_and(|patience| clock::now().since(heard) > patience) {
                return Err(silent("the far side", clock::now().since(heard)));
            }
        }
    }

    /// Greets, asks, and sends the receipt.
    fn greet(&mut self, session: &mut Session) -> Result<(), Fault> {
        self.line.send(&session.hello())?;
        self.line.send(&Message::Ask(self.ask.clone()))?;
        let Some(mut file) = self.receipt.take() else { return Ok(()) };
        loop {
            let mut bytes = Vec::new();
            let read = (&mut file).take(PIECE_BYTES_MAX as u64).read_to_end(&mut bytes);
            read.map_err(|why| Fault::system("read the receipt", &why))?;
            let last = bytes.is_empty();
            self.line.await_room(Settings::default().stall, &|| self.watch.stopping())?;
            self.line.send(&Message::Piece { bytes, last })?;
            if last {
                return Ok(());
            }
        }
    }

    fn in_far_words(&self, fault: Fault) -> Fault {
        match self.launch.host() {
            Some(host) => Fault { text: format!("{host}: {}", fault.text), ..fault },
            None => fault,
        }
    }
}

const LOOK_EVERY: Duration = Duration::from_millis(50);
const WRITTEN_WITHIN: Duration = Duration::from_millis(300);
