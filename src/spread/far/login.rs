//! The near end of a login: what is asked goes out, and far sides of copies are started over it.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::Write;
use std::process::ChildStdin;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use rustix::pipe::{PipeFlags, pipe_with};

use super::pieces::{Piece, pass_on};
use base::fault::{Class, Fault};
use mover::remote::tunnel::{Started, Tunnel};

/// One login, as its worker and the copies of that use it.
#[derive(Debug, Default)]
pub(super) struct Login {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    queue: VecDeque<Piece>,
    /// How many of those are bytes of far sides.
    bytes_pieces: usize,
    is_over: bool,
    peers: BTreeMap<u32, Peer>,
    last: u32,
}

/// A far side that runs.
#[derive(Debug)]
struct Peer {
    output: Arc<File>,
    code: Sender<u8>,
}

impl Login {
    /// What is queued goes to `input` from now on.
    pub(super) fn start(mut input: ChildStdin) -> Arc<Login> {
        let login = Arc::new(Login::default());
        let queued = login.clone();
        thread::spawn(move || {
            while let Some(piece) = queued.next() {
                if piece.write(&mut input).is_err() {
                    return queued.end();
                }
            }
        });
        login
    }

    /// A line never waits for the network, and what follows it may be asked for meanwhile.
    pub(super) fn say(&self, line: Vec<u8>) {
        self.locked().queue.push_back(Piece::Line(line));
        self.changed.notify_all();
    }

    /// Takes what a far side has written, or that it has ended.
    pub(super) fn take(&self, piece: Piece) {
        match piece {
            Piece::Bytes(number, bytes) => {
                let output = self.locked().peers.get(&number).map(|peer| peer.output.clone());
                // A copy that has ended reads no more.
                drop(output.map(|output| (&*output).write_all(&bytes)));
            }
            Piece::End(number, code) => {
                let peer = self.locked().peers.remove(&number);
                let _ = peer.map(|peer| peer.code.send(code));
            }
            Piece::Line(_) | Piece::Start(_) => {}
        }
    }

    /// It is lost, or not needed any more: what is queued is written, and each copy sees its end.
    pub(super) fn end(&self) {
        let peers = {
            let mut state = self.locked();
            state.is_over = true;
            std::mem::take(&mut state.peers)
        };
        self.changed.notify_all();
        drop(peers);
    }

    fn next(&self) -> Option<Piece> {
        let state = self.locked();
        let waits = |state: &mut State| state.queue.is_empty() && !state.is_over;
        let waited = self.changed.wait_while(state, waits);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner);
        let next = state.queue.pop_front();
        if matches!(next, Some(Piece::Bytes(..))) {
            state.bytes_pieces -= 1;
        }
        self.changed.notify_all();
        next
    }

    /// Of a far side: it waits for the network, as what goes there directly does.
    fn push(&self, piece: Piece) -> bool {
        let state = self.locked();
        let waits = |state: &mut State| state.bytes_pieces >= PIECES_MAX && !state.is_over;
        let waited = self.changed.wait_while(state, waits);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner);
        if state.is_over {
            return false;
        }
        state.bytes_pieces += usize::from(matches!(piece, Piece::Bytes(..)));
        state.queue.push_back(piece);
        self.changed.notify_all();
        true
    }

    fn locked(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Starts far sides over a login.
#[derive(Clone, Debug)]
pub(super) struct Over(pub(super) Arc<Login>);

impl Tunnel for Over {
    fn start(&self) -> Result<Started, Fault> {
        let fault = |why: rustix::io::Errno| Fault::system("make a pipe", &why.into());
        let (theirs, input) = pipe_with(PipeFlags::CLOEXEC).map_err(fault)?;
        let (output, ours) = pipe_with(PipeFlags::CLOEXEC).map_err(fault)?;
        let (tell, code) = channel();
        let login = self.0.clone();
        let number = {
            let mut state = login.locked();
            if state.is_over {
                return Err(Fault::new(Class::Unreachable, "the login was lost"));
            }
            state.last += 1;
            let number = state.last;
            let peer = Peer { output: Arc::new(File::from(ours)), code: tell };
            state.peers.insert(number, peer);
            state.queue.push_back(Piece::Start(number));
            number
        };
        login.changed.notify_all();
        thread::spawn(move || {
            let mut from = File::from(theirs);
            if pass_on(&mut from, number, &mut |piece| login.push(piece)) {
                login.push(Piece::End(number, 0));
            }
        });
        Ok(Started { input, output, code })
    }
}

/// So many wait to be written; a copy that carries its data so has a queue of its own besides.
const PIECES_MAX: usize = 4;
