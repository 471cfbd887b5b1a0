//! A malicious peer: its actions, step by step.

use std::os::unix::net::{UnixListener, UnixStream};

use base::codec::{Coding, Compress};
use base::extent::Extent;
use base::label::{Kind, Label};
use base::settings::{DigestKind, Seal, Settings};
use base::tally::SideReport;
use mover::wire::manifest::Entry;
use mover::wire::message::{Message, Opened, Origin};

use super::run::{self, Ran};
use super::speaker::{Speaker, Watched, watch};
use super::{Scene, far, need};

/// The next action of a malicious peer.
#[derive(Clone, Debug)]
pub(crate) enum Move {
    Say(Message),
    Raw(Vec<u8>),
    Frame(Label, Vec<u8>),
    /// Waits until the honest side has answered or offered so many objects.
    Hear(u64),
    /// Ends the transfer as if all were well.
    Finish(u64),
}

/// Which side the hostile peer is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Stands {
    Near,
    Far,
}

/// An honest `datapump copy`, whose ssh leads to this test: `codings` are its sources and its
/// target.
pub(crate) fn against_near(
    scene: &Scene,
    codings: &str,
    origin: Option<Origin>,
    moves: &[Move],
) -> (Ran, Watched) {
    near_with(scene, codings, opened(origin), |speaker| {
        play(speaker, scene, moves, Stands::Far);
    })
}

/// The same; the far side does what it likes after it was opened.
pub(crate) fn near_with(
    scene: &Scene,
    codings: &str,
    opened: Opened,
    act: impl FnOnce(&mut Speaker),
) -> (Ran, Watched) {
    near_on(scene, codings, opened, |speaker, _| act(speaker))
}

/// The same with the connection, which it may close.
pub(crate) fn near_on(
    scene: &Scene,
    codings: &str,
    opened: Opened,
    act: impl FnOnce(&mut Speaker, &UnixStream),
) -> (Ran, Watched) {
    let socket = scene.path("socket");
    let listener = UnixListener::bind(&socket).unwrap();
    let socat = need("socat", "socat");
    let lines = format!("exec {} -t 0.05 - UNIX-CONNECT:{}", socat.display(), socket.display());
    let ssh = scene.script("ssh", &lines);
    let line = format!("copy --ssh {} {OPTIONS} {codings}", ssh.display());
    let running = run::start(scene.command(&scene.words(&line)));
    let watched = watch(running.pid());
    let (connection, _) = listener.accept().unwrap();
    let [from, to] = [0, 1].map(|_| connection.try_clone().unwrap());
    let mut speaker = Speaker::follower(from, to);
    if speaker.answer(opened) {
        act(&mut speaker, &connection);
    }
    let watched = watched.join().unwrap();
    drop(speaker);
    (running.end(), watched)
}

/// The answer of a far side that names a port without a listener.
pub(crate) fn opened(origin: Option<Origin>) -> Opened {
    Opened {
        fingerprint: [7; 32],
        port: far::closed_port(),
        addresses: vec!["127.0.0.1".into()],
        origin,
        window_bytes: 0,
        rename: None,
        cut: Settings::default().cut(),
    }
}

/// Plays all moves, then listens until the honest side ends; returns its last message.
pub(crate) fn play(speaker: &mut Speaker, scene: &Scene, moves: &[Move], place: Stands) -> String {
    if let Some(said) = steps(speaker, scene, moves, place) {
        return said;
    }
    let mut said = String::new();
    while let Some(message) = speaker.hear() {
        match message {
            Message::Stop(fault) => said.push_str(&fault.text),
            Message::Report(_) => return said,
            _ => {}
        }
    }
    said
}

/// Plays all moves; if the honest side ends before, returns its message.
pub(crate) fn steps(
    speaker: &mut Speaker,
    scene: &Scene,
    moves: &[Move],
    place: Stands,
) -> Option<String> {
    let mut answered = 0;
    for step in moves {
        match step {
            Move::Say(message) => speaker.say(&placed(message, scene)),
            Move::Raw(bytes) => speaker.raw(bytes),
            Move::Frame(label, body) => speaker.frame(label, body),
            Move::Hear(count) => {
                while answered < *count {
                    match speaker.hear() {
                        Some(Message::Want { wanted, .. }) => answered += wanted.len() as u64,
                        Some(Message::Offer { entries, .. }) => answered += entries.len() as u64,
                        Some(Message::Stop(fault)) => return Some(fault.text),
                        Some(_) => {}
                        None => break,
                    }
                }
            }
            Move::Finish(objects) => finish(speaker, *objects, place),
        }
    }
    None
}

fn finish(speaker: &mut Speaker, objects: u64, place: Stands) {
    speaker.say(&Message::OfferEnd { objects, bytes: 0 });
    speaker.end_frames();
    if matches!(place, Stands::Near) {
        return;
    }
    let mut settled = 0;
    while settled < objects {
        match speaker.hear() {
            Some(Message::Finished { objects } | Message::Held { objects }) => {
                settled += objects.len() as u64;
            }
            Some(Message::Failed { .. } | Message::Kept { .. }) => settled += 1,
            Some(Message::Stop(_)) | None => return,
            Some(_) => {}
        }
    }
    speaker.say(&Message::Report(Box::<SideReport>::default()));
}

/// Completes a link that leads out of the destination with the real path.
fn placed(message: &Message, scene: &Scene) -> Message {
    let mut message = message.clone();
    if let Message::Offer { entries, .. } = &mut message {
        for entry in entries.iter_mut().filter(|entry| entry.link_target == b"OUTSIDE") {
            entry.link_target = scene.path("outside").display().to_string().into();
        }
    }
    message
}

pub(crate) fn file(path: &str, size: u64) -> Entry {
    Entry { size, mode: 0o644, path: path.into(), ..Entry::default() }
}

pub(crate) fn offer(entries: Vec<Entry>) -> Move {
    Move::Say(offer_at(0, entries))
}

pub(crate) fn offer_at(first: u64, entries: Vec<Entry>) -> Message {
    Message::Offer { first, entries }
}

pub(crate) fn payload(start: u64, body: &[u8]) -> Move {
    let len = body.len() as u32;
    let extent = Extent { start, len };
    let label = Label { kind: Kind::Data, extent, body_len: len, ..Label::default() };
    Move::Frame(label, body.to_vec())
}

/// Options of the honest side: everything on the control connection, and nothing is sealed.
const OPTIONS: &str = "--streams 1 --request-size 64K --seal off --digest none --compress zstd:1";

/// The same for an honest far side.
pub(crate) fn settings() -> Settings {
    Settings {
        streams: 1,
        request_bytes: 64 << 10,
        seal: Seal::Off,
        digest: DigestKind::None,
        compress: Compress::Always(Coding::Zstd(1)),
        recursive: true,
        ..Settings::default()
    }
}
