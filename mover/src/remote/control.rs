//! The control connection: messages over two pipes, read and written on separate threads so that
//! neither side can wait for the other to read.

use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::io::retry_on_intr;

use super::install::skip_script;
use super::write_queue::{WriteQueue, broken};
use crate::ends::stream::Protection;
use crate::io::clock;
use crate::io::volume::Handle;
use crate::pump::lane::StreamHandle;
use crate::pump::lane::assembly::Stream;
use crate::pump::run::Line;
use crate::pump::transfer::{Backlog, Event, PeerActivity, heard_bytes};
use crate::wire::message::{CARRIED_PREFIX_BYTES, MARK, Message};
use crate::wire::preamble::CONTROL_STREAM;
use base::fault::{Class, Fault};
use base::limits::NOISE_BYTES_MAX;
use base::units::Nanos;

/// The writing end, shared with the relay of a carried stream. Sending never waits for the network.
#[derive(Clone)]
pub struct ControlLine {
    queue: Arc<WriteQueue>,
    carrier: Carrier,
}

impl ControlLine {
    pub fn new(writer: impl Write + Send + 'static, carrier: Carrier) -> ControlLine {
        ControlLine { queue: WriteQueue::start(writer), carrier }
    }

    /// Marks where the protocol begins, after whatever a login shell has printed.
    pub(crate) fn send_mark(&mut self) -> Result<(), Fault> {
        self.queue.push(MARK.to_vec())
    }

    /// While this side is busy with something else, the peer gets a ping this often.
    pub(crate) fn set_heartbeat(&self, every: Option<Duration>) {
        self.queue.set_heartbeat(every);
    }

    /// Waits until the connection has accepted most of what was queued: for `stall` at most where
    /// it accepts nothing.
    pub(crate) fn await_room(
        &self,
        stall: Nanos,
        stopping: &dyn Fn() -> bool,
    ) -> Result<(), Fault> {
        let (mut written, mut since) = (self.written_bytes(), clock::now());
        while self.is_full() {
            if stopping() {
                return Err(Fault::interrupted());
            }
            if self.written_bytes() != written {
                (written, since) = (self.written_bytes(), clock::now());
            }
            if clock::now().since(since) > stall {
                let text = format!("the connection to the other side took nothing for {stall}");
                return Err(Fault::new(Class::Unreachable, text));
            }
            thread::sleep(ROOM_PAUSE);
        }
        Ok(())
    }

    /// Grows while the connection accepts bytes.
    pub(crate) fn written_bytes(&self) -> u64 {
        self.queue.written_bytes()
    }

    /// Closes our direction after what is queued; true where all of it is written within this time.
    /// The peer sees the end of its input.
    pub(crate) fn close_within(&self, patience: Duration) -> bool {
        self.queue.close();
        self.queue.ends_within(patience)
    }
}

impl Line for ControlLine {
    fn send(&mut self, message: &Message) -> Result<(), Fault> {
        match message {
            Message::Stop(_) => self.queue.push_last(message.encode()),
            _ => self.queue.push(message.encode()),
        }
    }

    fn is_full(&self) -> bool {
        self.queue.is_full()
    }

    /// What the lane writes is sent as messages; what the peer sends so is what the lane reads.
    fn carry(&mut self) -> Result<Stream, Fault> {
        let pair =
            UnixStream::pair().and_then(|(ours, lanes)| Ok((ours.try_clone()?, ours, lanes)));
        let (ours, for_reader, lanes) =
            pair.map_err(|error| Fault::system("make a pair of sockets", &error))?;
        *self.carrier.stream.lock().unwrap_or_else(PoisonError::into_inner) = Some(for_reader);
        self.carrier.begun.notify_all();
        let queue = self.queue.clone();
        let relay = move || {
            let mut piece = Vec::new();
            loop {
                piece.clear();
                piece.reserve_exact(CARRIED_PREFIX_BYTES + CARRIED_BYTES_MAX);
                piece.extend_from_slice(&[0; CARRIED_PREFIX_BYTES]);
                let read = retry_on_intr(|| rustix::io::read(&ours, spare_capacity(&mut piece)));
                let Ok(1..) = read else { return };
                Message::frame_carried(&mut piece);
                match queue.push_carried(piece) {
                    Ok(spare) => piece = spare,
                    Err(_) => return,
                }
            }
        };
        thread::Builder::new()
            .name("datapump-carry".into())
            .spawn(relay)
            .map_err(|error| Fault::system("start a thread", &error))?;
        let handle = StreamHandle::new(CONTROL_STREAM, Handle::new(OwnedFd::from(lanes)));
        // The connection protects it.
        Ok(Stream { handle, protection: Protection::Off })
    }
}

impl std::fmt::Debug for ControlLine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ControlLine")
    }
}

/// Where carried data goes, once the connection carries it.
#[derive(Debug, Default)]
pub struct Carrying {
    stream: Mutex<Option<UnixStream>>,
    begun: Condvar,
    pub pulse: Arc<PeerActivity>,
}

pub type Carrier = Arc<Carrying>;

/// Whether other bytes may come before the first message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Noise {
    /// A login shell may have printed something: skip to the mark.
    UntilMark,
    /// Where a forced command starts this side, the script for a shell comes first.
    Script,
}

/// Reads messages until the connection ends, and reports each as an event; then calls `at_end`.
pub(crate) fn start_reader(
    reader: impl Read + Send + 'static,
    noise: Noise,
    events: Sender<Event>,
    carrier: Carrier,
    at_end: impl FnOnce() + Send + 'static,
) {
    let work = move || {
        let mut backlog = Backlog::default();
        let ended = (|| {
            let mut reader = match noise {
                Noise::UntilMark => after_mark(reader)?,
                Noise::Script => skip_script(reader),
            };
            let mut buffer = Vec::new();
            while let Some(bytes) = read_message(&mut reader, &mut buffer)? {
                if let Some(data) = Message::carried_data(bytes) {
                    carrier.pulse.hand_on(|| deliver(&carrier, data))?;
                    continue;
                }
                let message = Message::decode(bytes)?;
                let bytes = heard_bytes(&message, bytes.len());
                let heard = events.send(Event::Heard(message));
                let ticket = backlog.count(bytes).map(Event::Dealt);
                if heard.is_err() || ticket.is_some_and(|it| events.send(it).is_err()) {
                    return Ok(());
                }
            }
            Ok(())
        })();
        carrier.stream.lock().unwrap_or_else(PoisonError::into_inner).take();
        let _ = events.send(Event::Closed(ended.err()));
        at_end();
    };
    thread::Builder::new()
        .name("datapump-control".into())
        .spawn(work)
        .expect("the system gives a thread");
}

/// Passes carried bytes to the lane. If the lane is slow, so is the connection, as TCP would be.
/// The first may be here before the message that lets the connection carry them is handled.
fn deliver(carrier: &Carrier, bytes: &[u8]) -> Result<(), Fault> {
    let stream = carrier.stream.lock().unwrap_or_else(PoisonError::into_inner);
    let waited = carrier.begun.wait_timeout_while(stream, CARRIED_WITHIN, |it| it.is_none());
    let (stream, _) = waited.unwrap_or_else(PoisonError::into_inner);
    let Some(mut stream) = stream.as_ref() else {
        return Err(Fault::peer("the peer sends data over a connection that carries none"));
    };
    // A lane that has ended has reported the reason itself.
    let _ = stream.write_all(bytes);
    Ok(())
}

/// How long it may take to handle the messages that are heard before the first carried bytes.
const CARRIED_WITHIN: Duration = Duration::from_secs(10);

/// The bytes of the next message, in a buffer that serves all of them.
fn read_message<'a>(
    reader: &mut impl Read,
    buffer: &'a mut Vec<u8>,
) -> Result<Option<&'a [u8]>, Fault> {
    let mut envelope = [0; 4];
    match reader.read(&mut envelope[..1]) {
        Ok(0) => return Ok(None),
        Ok(_) => {}
        Err(error) => return Err(broken(&error)),
    }
    reader.read_exact(&mut envelope[1..]).map_err(|error| broken(&error))?;
    let length = Message::length(envelope)?;
    if buffer.len() < length {
        buffer.resize(length, 0);
    }
    reader.read_exact(&mut buffer[..length]).map_err(|error| broken(&error))?;
    Ok(Some(&buffer[..length]))
}

/// Reads up to the mark. If that never comes, the error shows what came instead.
fn after_mark(mut reader: impl Read + Send + 'static) -> Result<Box<dyn Read + Send>, Fault> {
    let mut seen = Vec::new();
    let mut byte = [0];
    while !seen.ends_with(MARK) {
        match reader.read(&mut byte) {
            Ok(1..) => seen.push(byte[0]),
            Ok(0) => return Err(no_peer(&seen)),
            Err(error) => {
                let fault = error.get_ref().and_then(|inner| inner.downcast_ref::<Fault>());
                return Err(fault.cloned().unwrap_or_else(|| no_peer(&seen)));
            }
        }
        if seen.len() > NOISE_BYTES_MAX {
            return Err(no_peer(&seen));
        }
    }
    Ok(Box::new(reader))
}

fn no_peer(seen: &[u8]) -> Fault {
    let text = match seen {
        b"" => "the far side said nothing: no datapump was started there".to_string(),
        _ => {
            let shown = String::from_utf8_lossy(&seen[..seen.len().min(200)])
                .trim()
                .escape_debug()
                .to_string();
            format!(
                "the far side is no datapump peer; it said: {shown}; is that a forced command, a \
                 restricted shell, or a wrong --remote-datapump?"
            )
        }
    };
    Fault::new(if seen.is_empty() { Class::Unreachable } else { Class::Version }, text)
}

const CARRIED_BYTES_MAX: usize = 64 << 10;
const ROOM_PAUSE: Duration = Duration::from_millis(10);
const _: () = assert!(CARRIED_BYTES_MAX < base::limits::MESSAGE_BYTES_MAX);

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Cursor;
    use std::sync::mpsc::channel;

    use super::*;
    use crate::pump::run::Line;

    /// Says when all of it has been read.
    struct Told {
        bytes: Cursor<Vec<u8>>,
        read: Sender<()>,
    }

    impl Read for Told {
        fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
            let count = self.bytes.read(into)?;
            if self.bytes.position() == self.bytes.get_ref().len() as u64 {
                let _ = self.read.send(());
            }
            Ok(count)
        }
    }

    /// A far source may send data behind the message that allows it, before that is handled here.
    #[test]
    fn carried_bytes_that_come_early_are_not_lost() {
        let (read, was_read) = channel();
        let bytes = Cursor::new(Message::Carried(b"first".to_vec()).encode());
        let carrier = Carrier::default();
        let mut line = ControlLine::new(std::io::sink(), carrier.clone());
        let (events, _heard) = channel();
        start_reader(Told { bytes, read }, Noise::Script, events, carrier, || {});
        was_read.recv().unwrap();
        let stream = line.carry().unwrap();
        let mut lane = File::from(stream.handle.socket.fd().try_clone_to_owned().unwrap());
        let mut first = [0; 5];
        lane.read_exact(&mut first).unwrap();
        assert_eq!(&first, b"first");
    }
}
