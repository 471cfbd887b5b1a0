//! The queue of the control connection, and the thread that writes it. A pipe may block for as long
//! as the network does; senders do not wait.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use crate::wire::message::Message;
use base::fault::{Class, Fault};

/// Messages, pieces of carried data, and the state of the connection.
#[derive(Default)]
pub(crate) struct WriteQueue {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    messages: VecDeque<Vec<u8>>,
    message_bytes: usize,
    /// Framed already. Messages overtake them.
    carried: VecDeque<Vec<u8>>,
    /// Buffers of pieces that have been written, for those to come.
    spare: Vec<Vec<u8>>,
    /// A ping is written when nothing else has been for this long.
    heartbeat: Option<Duration>,
    /// Bytes that the connection has accepted.
    written_bytes: u64,
    closed: bool,
    /// The thread has written everything, or has given up.
    ended: bool,
    broken: Option<Fault>,
}

/// What is written in one call.
enum Next {
    Messages(Vec<u8>),
    Carried(Vec<u8>),
}

impl Next {
    fn bytes(&self) -> &[u8] {
        let (Next::Messages(bytes) | Next::Carried(bytes)) = self;
        bytes
    }
}

impl WriteQueue {
    /// Starts the thread that writes; it ends when the queue is closed and empty, or the connection
    /// is broken.
    pub(super) fn start(writer: impl Write + Send + 'static) -> Arc<WriteQueue> {
        let queue = Arc::new(WriteQueue::default());
        let shared = queue.clone();
        thread::Builder::new()
            .name("datapump-writer".into())
            .spawn(move || shared.write_all_of(writer))
            .expect("the system gives a thread");
        queue
    }

    /// Adds a message without waiting. If the connection accepts nothing for long, the queue
    /// overflows in the end: callers that can hold back ask `is_full` first.
    pub(super) fn push(&self, message: Vec<u8>) -> Result<(), Fault> {
        let mut state = self.lock();
        if let Some(fault) = &state.broken {
            return Err(fault.clone());
        }
        if state.message_bytes + message.len() > QUEUED_BYTES_MAX {
            return Err(Fault::new(
                Class::Unreachable,
                format!("the far side takes nothing: {} bytes wait for it", state.message_bytes),
            ));
        }
        if !state.closed {
            state.message_bytes += message.len();
            state.messages.push_back(message);
            self.changed.notify_all();
        }
        Ok(())
    }

    /// Adds the last message of all. It replaces a long queue, which no longer matters.
    pub(crate) fn push_last(&self, message: Vec<u8>) -> Result<(), Fault> {
        let mut state = self.lock();
        if state.message_bytes >= FULL_BYTES {
            state.messages.clear();
            state.message_bytes = 0;
        }
        state.carried.clear();
        drop(state);
        self.push(message)
    }

    /// Adds a piece of carried data, once there is room for it, and gives a buffer for the next.
    pub(crate) fn push_carried(&self, piece: Vec<u8>) -> Result<Vec<u8>, Fault> {
        let state = self.lock();
        let has_no_room = |state: &mut State| {
            state.carried.len() >= CARRIED_PIECES && state.broken.is_none() && !state.closed
        };
        let waited = self.changed.wait_while(state, has_no_room);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner);
        match (&state.broken, state.closed) {
            (Some(fault), _) => Err(fault.clone()),
            (None, true) => Err(Fault::new(Class::Unreachable, "the connection is closed")),
            (None, false) => {
                state.carried.push_back(piece);
                self.changed.notify_all();
                Ok(state.spare.pop().unwrap_or_default())
            }
        }
    }

    /// True while so much is queued that callers who can should not add to it.
    pub(super) fn is_full(&self) -> bool {
        self.lock().message_bytes >= FULL_BYTES
    }

    /// Grows while the connection accepts bytes.
    pub(crate) fn written_bytes(&self) -> u64 {
        self.lock().written_bytes
    }

    /// Sends a ping where nothing was sent for this long, whatever other threads do.
    pub(crate) fn set_heartbeat(&self, every: Option<Duration>) {
        self.lock().heartbeat = every;
        self.changed.notify_all();
    }

    /// No more is added; what is queued is still written.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }

    /// True when all has been written, or never will be, within this time.
    pub(super) fn ends_within(&self, patience: Duration) -> bool {
        let waited = self.changed.wait_timeout_while(self.lock(), patience, |state| !state.ended);
        waited.unwrap_or_else(PoisonError::into_inner).0.ended
    }

    fn write_all_of(&self, mut writer: impl Write) {
        while let Some(next) = self.next() {
            let written = writer.write_all(next.bytes()).and_then(|()| writer.flush());
            let mut state = self.lock();
            match written {
                Ok(()) => {
                    state.written_bytes += next.bytes().len() as u64;
                    if let Next::Carried(piece) = next {
                        state.spare.push(piece);
                    }
                }
                Err(error) => {
                    state.broken = Some(broken(&error));
                    state.messages.clear();
                    state.carried.clear();
                    break;
                }
            }
            self.changed.notify_all();
        }
        // The peer sees the end of its input before the waiting thread here is told.
        drop(writer);
        self.lock().ended = true;
        self.changed.notify_all();
    }

    /// What is written next; `None` when nothing more will be.
    fn next(&self) -> Option<Next> {
        let mut state = self.lock();
        loop {
            if let Some(mut messages) = state.messages.pop_front() {
                while let Some(next) = state.messages.front()
                    && messages.len() + next.len() <= WRITTEN_BYTES_MAX
                {
                    messages.extend_from_slice(next);
                    state.messages.pop_front();
                }
                state.message_bytes -= messages.len();
                return Some(Next::Messages(messages));
            }
            if let Some(piece) = state.carried.pop_front() {
                return Some(Next::Carried(piece));
            }
            if state.closed {
                return None;
            }
            let Some(every) = state.heartbeat else {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let waited = self.changed.wait_timeout(state, every);
            let (after, wait) = waited.unwrap_or_else(PoisonError::into_inner);
            state = after;
            if wait.timed_out() && state.heartbeat == Some(every) {
                return Some(Next::Messages(Message::Ping.encode()));
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The fault of a connection that ended while it was used.
pub(super) fn broken(error: &io::Error) -> Fault {
    let why = match error.kind() {
        io::ErrorKind::UnexpectedEof => {
            "its connection ended in the middle of a message".to_string()
        }
        _ => error.to_string(),
    };
    Fault::new(Class::Unreachable, format!("the far side went away: {why}"))
}

/// With this much queued nothing is offered or acknowledged until some has been written.
const FULL_BYTES: usize = 256 << 10;
/// What cannot be held back (answers to what the peer has offered) is limited by the credit for
/// objects; a peer that reads never lets this much wait.
const QUEUED_BYTES_MAX: usize = 32 << 20;
/// Messages are written together up to this.
const WRITTEN_BYTES_MAX: usize = 32 << 10;
/// Pieces of carried data in the queue: the next is read while one is written.
const CARRIED_PIECES: usize = 2;

#[cfg(test)]
mod tests {
    use std::io::{PipeReader, Read, pipe};

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    /// A queue into a pipe that has no reader yet.
    fn queue() -> (Arc<WriteQueue>, PipeReader) {
        let (reader, writer) = pipe().unwrap();
        (WriteQueue::start(writer), reader)
    }

    fn read_all(mut reader: PipeReader) -> Vec<u8> {
        let mut all = Vec::new();
        reader.read_to_end(&mut all).unwrap();
        all
    }

    /// More than a pipe holds, and no reader: the sender does not block, and all arrives in the
    /// end, in order.
    #[test]
    fn a_pipe_that_takes_nothing_holds_nobody_up() {
        let (queue, reader) = queue();
        for number in 0..100_u8 {
            queue.push(vec![number; 8 << 10]).unwrap();
        }
        assert!(queue.is_full());
        queue.close();
        let all = read_all(reader);
        let expect: Vec<u8> = (0..100).flat_map(|number| vec![number; 8 << 10]).collect();
        assert_eq!(all, expect);
        assert!(queue.ends_within(LONG) && !queue.is_full());
        assert_eq!(queue.written_bytes(), all.len() as u64);
    }

    #[test]
    fn what_waits_has_a_bound() {
        let (queue, reader) = queue();
        let pushed = (0..).find_map(|count| queue.push(vec![0; 1 << 20]).err().map(|f| (count, f)));
        let (count, fault) = pushed.unwrap();
        assert_eq!(fault.class, Class::Unreachable);
        assert!((QUEUED_BYTES_MAX >> 20..=(QUEUED_BYTES_MAX >> 20) + 1).contains(&count));
        drop(reader);
    }

    /// The last message does not wait for those that no longer matter.
    #[test]
    fn the_last_message_overtakes_what_waits() {
        let (queue, reader) = queue();
        (0..100).for_each(|_| queue.push(vec![0; 8 << 10]).unwrap());
        queue.push_last(b"stop".to_vec()).unwrap();
        queue.close();
        let all = read_all(reader);
        assert!(all.ends_with(b"stop") && all.len() < 100 * (8 << 10), "{} bytes", all.len());
    }

    /// Messages overtake carried data, little of which is queued.
    #[test]
    fn messages_overtake_carried_data() {
        let (queue, reader) = queue();
        // The first blocks the thread: a pipe takes less than this.
        queue.push(vec![1; 1 << 20]).unwrap();
        (0..CARRIED_PIECES).for_each(|_| drop(queue.push_carried(vec![2; 10]).unwrap()));
        queue.push(vec![3; 10]).unwrap();
        queue.close();
        let all = read_all(reader);
        let expect = [vec![3; 10], vec![2; 10 * CARRIED_PIECES]].concat();
        assert_eq!(all[1 << 20..], expect);
    }

    /// However many pieces are carried, few buffers serve them.
    #[test]
    fn carried_data_reuses_its_buffers() {
        let (queue, reader) = queue();
        let reader = thread::spawn(move || read_all(reader));
        let mut piece = Vec::new();
        let mut allocated = 0;
        for number in 0..1000_u32 {
            allocated += usize::from(piece.capacity() == 0);
            piece.clear();
            piece.extend_from_slice(&number.to_le_bytes());
            piece = queue.push_carried(piece).unwrap();
        }
        queue.close();
        let expect: Vec<u8> = (0..1000_u32).flat_map(u32::to_le_bytes).collect();
        assert_eq!(reader.join().unwrap(), expect);
        assert!(allocated <= CARRIED_PIECES + 2, "{allocated} buffers");
    }

    #[test]
    fn a_broken_pipe_is_told_to_everybody() {
        let (queue, reader) = queue();
        drop(reader);
        queue.push(vec![0]).unwrap();
        assert!(queue.ends_within(LONG));
        assert_eq!(queue.push(vec![0]).unwrap_err().class, Class::Unreachable);
        assert_eq!(queue.push_carried(vec![0]).unwrap_err().class, Class::Unreachable);
    }

    #[test]
    fn silence_is_filled() {
        let (queue, mut reader) = queue();
        queue.set_heartbeat(Some(Duration::from_millis(1)));
        let mut bytes = vec![0; Message::Ping.encode().len() * 2];
        reader.read_exact(&mut bytes).unwrap();
        assert_eq!(bytes, [Message::Ping.encode(), Message::Ping.encode()].concat());
        queue.set_heartbeat(None);
        queue.close();
    }
}
