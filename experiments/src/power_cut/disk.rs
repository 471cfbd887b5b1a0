//! A disk with a volatile cache, for a guest, whose power can fail at any request.
//!
//! It is a network block device on a Unix socket. Writes that are not flushed are kept in memory;
//! when the power fails, random numbers from a seed decide which of them had reached the medium.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use crate::random::Random;

/// The size of an atomic write, which is reported to the guest.
pub(super) const BLOCK_BYTES: usize = 4096;

/// When the power fails, counted from the time at which this is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cut {
    Never,
    /// In place of this write or flush.
    Request(u64),
    /// In place of this flush: all writes for it are in the cache.
    BeforeFlush(u64),
    /// In place of the first request after this flush.
    AfterFlush(u64),
}

/// What happens to writes that were not flushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unflushed {
    Lost,
    /// Each block is either lost, or has the content of any of the writes since the last flush.
    Mixed,
    /// All are on the medium, so that only the guest's own memory is lost.
    Kept,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub writes: u64,
    pub flushes: u64,
}

/// The disk during one boot.
pub(super) struct Disk {
    state: Arc<Mutex<State>>,
    /// Receives once, when the power has failed.
    pub gone: Receiver<()>,
}

struct State {
    medium: File,
    bytes: u64,
    /// Blocks that were written and not flushed, with every content since the last flush.
    cache: BTreeMap<u64, Vec<Box<[u8]>>>,
    since_set: Counts,
    cut: Cut,
    power: bool,
    tell: Sender<()>,
}

impl Disk {
    /// Serves a file at a socket to one guest.
    pub(super) fn serve(image: &Path, socket: &Path) -> Result<Disk, String> {
        let text = |why: io::Error| format!("{}: {why}", image.display());
        let medium = File::options().read(true).write(true).open(image).map_err(text)?;
        let bytes = medium.metadata().map_err(text)?.len();
        let _ = std::fs::remove_file(socket);
        let listener = UnixListener::bind(socket).map_err(text)?;
        let (tell, gone) = channel();
        let state = Arc::new(Mutex::new(State::new(medium, bytes, tell)));
        let served = state.clone();
        thread::spawn(move || {
            // A guest that is killed closes its end, and that ends the thread.
            if let Ok((stream, _)) = listener.accept() {
                let _ = converse(&stream, &served);
            }
        });
        Ok(Disk { state, gone })
    }

    pub(super) fn set(&self, cut: Cut) {
        let mut state = locked(&self.state);
        (state.cut, state.since_set) = (cut, Counts::default());
    }

    /// Requests since the cut was set.
    pub(super) fn since_set(&self) -> Counts {
        locked(&self.state).since_set
    }

    /// Turns the power off, if it is still on, and leaves a random part of the cache on the medium;
    /// returns the number of blocks in the cache, and how many of them were lost.
    pub(super) fn power_off(
        &self,
        unflushed: Unflushed,
        random: &mut Random,
    ) -> Result<(u64, u64), String> {
        locked(&self.state).power_off(unflushed, random)
    }
}

fn locked(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl State {
    fn new(medium: File, bytes: u64, tell: Sender<()>) -> State {
        let (cache, since_set) = (BTreeMap::new(), Counts::default());
        State { medium, bytes, cache, since_set, cut: Cut::Never, power: true, tell }
    }

    fn power_off(
        &mut self,
        unflushed: Unflushed,
        random: &mut Random,
    ) -> Result<(u64, u64), String> {
        self.power = false;
        let cache = std::mem::take(&mut self.cache);
        let (blocks, mut lost) = (cache.len() as u64, 0);
        let keep_share = random.share();
        for (block, versions) in cache {
            let kept = match unflushed {
                Unflushed::Lost => None,
                Unflushed::Kept => versions.last(),
                Unflushed::Mixed if random.share() < keep_share => {
                    versions.get(random.below(versions.len() as u64) as usize)
                }
                Unflushed::Mixed => None,
            };
            match kept {
                Some(bytes) => {
                    let written = self.medium.write_all_at(bytes, block * BLOCK_BYTES as u64);
                    written.map_err(|why| format!("the disk's image: {why}"))?;
                }
                None => lost += 1,
            }
        }
        Ok((blocks, lost))
    }

    /// False when the power fails in place of this request.
    fn goes_on(&mut self, is_flush: bool) -> bool {
        let since = &mut self.since_set;
        let cut = match self.cut {
            Cut::Never => false,
            Cut::Request(number) => since.writes + since.flushes + 1 >= number,
            Cut::BeforeFlush(number) => is_flush && since.flushes + 1 >= number,
            Cut::AfterFlush(number) => since.flushes >= number,
        };
        if !self.power || cut {
            if self.power {
                let _ = self.tell.send(());
            }
            self.power = false;
            return false;
        }
        match is_flush {
            true => since.flushes += 1,
            false => since.writes += 1,
        }
        true
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.medium.read_exact_at(into, offset)?;
        let first = offset / BLOCK_BYTES as u64;
        for (block, part) in (first..).zip(into.chunks_mut(BLOCK_BYTES)) {
            if let Some(bytes) = self.cache.get(&block).and_then(|versions| versions.last()) {
                part.copy_from_slice(&bytes[..part.len()]);
            }
        }
        Ok(())
    }

    fn write(&mut self, offset: u64, bytes: &[u8], through: bool) -> io::Result<()> {
        let first = offset / BLOCK_BYTES as u64;
        for (block, part) in (first..).zip(bytes.chunks(BLOCK_BYTES)) {
            match through {
                true => {
                    self.cache.remove(&block);
                    self.medium.write_all_at(part, block * BLOCK_BYTES as u64)?;
                }
                false => self.cache.entry(block).or_default().push(part.into()),
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        for (block, versions) in std::mem::take(&mut self.cache) {
            let last = versions.last().expect("a block of the cache was written");
            self.medium.write_all_at(last, block * BLOCK_BYTES as u64)?;
        }
        Ok(())
    }
}

const IS_FIXED_NEWSTYLE: u16 = 1;
const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
const OPTION_GO: u32 = 7;
const REPLY_ACK: u32 = 1;
const REPLY_INFO: u32 = 3;
const REPLY_UNSUPPORTED: u32 = 0x8000_0001;
/// It has flags, and supports flushes and writes through the cache (FUA).
const EXPORT_FLAGS: u16 = 1 | 4 | 8;
const REQUEST_MAGIC: u32 = 0x2560_9513;
const REPLY_MAGIC: u32 = 0x6744_6698;
const READ: u16 = 0;
const WRITE: u16 = 1;
const DISCONNECT: u16 = 2;
const FLUSH: u16 = 3;
const THROUGH: u16 = 1;
const EINVAL: u32 = 22;
/// No client asks for more at once.
const REQUEST_BYTES_MAX: usize = 64 << 20;

fn converse(mut stream: &UnixStream, state: &Mutex<State>) -> io::Result<()> {
    greet(stream, locked(state).bytes)?;
    loop {
        let mut head = [0; 28];
        stream.read_exact(&mut head)?;
        let magic = u32::from_be_bytes(head[..4].try_into().expect("four bytes"));
        let flags = u16::from_be_bytes(head[4..6].try_into().expect("two bytes"));
        let kind = u16::from_be_bytes(head[6..8].try_into().expect("two bytes"));
        let offset = u64::from_be_bytes(head[16..24].try_into().expect("eight bytes"));
        let length = u32::from_be_bytes(head[24..].try_into().expect("four bytes")) as usize;
        if magic != REQUEST_MAGIC || length > REQUEST_BYTES_MAX || kind == DISCONNECT {
            return Ok(());
        }
        let mut bytes = vec![0; if matches!(kind, READ | WRITE) { length } else { 0 }];
        if kind == WRITE {
            stream.read_exact(&mut bytes)?;
        }
        let mut state = locked(state);
        if matches!(kind, WRITE | FLUSH) && !state.goes_on(kind == FLUSH) {
            return Ok(());
        }
        let whole_blocks = offset.is_multiple_of(BLOCK_BYTES as u64)
            && length.is_multiple_of(BLOCK_BYTES)
            && offset.checked_add(length as u64).is_some_and(|end| end <= state.bytes);
        let error = match kind {
            READ | WRITE if !whole_blocks => EINVAL,
            READ => code(state.read(offset, &mut bytes)),
            WRITE => code(state.write(offset, &bytes, flags & THROUGH != 0)),
            FLUSH => code(state.flush()),
            _ => EINVAL,
        };
        drop(state);
        let mut reply = Vec::with_capacity(16 + length);
        reply.extend(REPLY_MAGIC.to_be_bytes());
        reply.extend(error.to_be_bytes());
        reply.extend(&head[8..16]);
        if kind == READ && error == 0 {
            reply.extend(&bytes);
        }
        stream.write_all(&reply)?;
    }
}

fn code(done: io::Result<()>) -> u32 {
    match done {
        Ok(()) => 0,
        Err(why) => why.raw_os_error().unwrap_or(5).cast_unsigned(),
    }
}

/// Negotiates the one export, under any name.
fn greet(mut stream: &UnixStream, size: u64) -> io::Result<()> {
    stream.write_all(b"NBDMAGIC")?;
    stream.write_all(&OPTION_MAGIC.to_be_bytes())?;
    stream.write_all(&IS_FIXED_NEWSTYLE.to_be_bytes())?;
    stream.read_exact(&mut [0; 4])?;
    loop {
        let mut head = [0; 16];
        stream.read_exact(&mut head)?;
        let option = u32::from_be_bytes(head[8..12].try_into().expect("four bytes"));
        let length = u32::from_be_bytes(head[12..].try_into().expect("four bytes"));
        io::copy(&mut stream.take(length.into()), &mut io::sink())?;
        let mut reply = |kind: u32, fields: &[u8]| {
            let mut reply = OPTION_REPLY_MAGIC.to_be_bytes().to_vec();
            reply.extend(option.to_be_bytes());
            reply.extend(kind.to_be_bytes());
            reply.extend((fields.len() as u32).to_be_bytes());
            reply.extend(fields);
            stream.write_all(&reply)
        };
        if option != OPTION_GO {
            reply(REPLY_UNSUPPORTED, &[])?;
            continue;
        }
        let mut export = vec![0, 0];
        export.extend(size.to_be_bytes());
        export.extend(EXPORT_FLAGS.to_be_bytes());
        reply(REPLY_INFO, &export)?;
        let mut blocks = vec![0, 3];
        for bytes in [BLOCK_BYTES as u32, BLOCK_BYTES as u32, 32 << 20] {
            blocks.extend(bytes.to_be_bytes());
        }
        reply(REPLY_INFO, &blocks)?;
        return reply(REPLY_ACK, &[]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Unflushed; 3] = [Unflushed::Lost, Unflushed::Mixed, Unflushed::Kept];

    fn disk() -> (State, Receiver<()>) {
        let medium = tempfile::tempfile().unwrap();
        medium.set_len(4 * BLOCK_BYTES as u64).unwrap();
        let (tell, gone) = channel();
        (State::new(medium, 4 * BLOCK_BYTES as u64, tell), gone)
    }

    /// The first byte of each of two blocks, after some writes and a power cut.
    fn left(unflushed: Unflushed, seed: u64) -> [u8; 2] {
        let (mut state, _gone) = disk();
        state.write(0, &[1; BLOCK_BYTES], false).unwrap();
        state.flush().unwrap();
        state.write(0, &[2; 2 * BLOCK_BYTES], false).unwrap();
        state.write(0, &[3; BLOCK_BYTES], false).unwrap();
        let mut seen = [0; 2 * BLOCK_BYTES];
        state.read(0, &mut seen).unwrap();
        assert_eq!([seen[0], seen[BLOCK_BYTES]], [3, 2], "what was written is read");
        state.power_off(unflushed, &mut Random::of(seed, 0)).unwrap();
        state.read(0, &mut seen).unwrap();
        [seen[0], seen[BLOCK_BYTES]]
    }

    #[test]
    fn what_was_flushed_stays() {
        for unflushed in ALL {
            let mut seen: Vec<[u8; 2]> = (0..200).map(|seed| left(unflushed, seed)).collect();
            seen.sort_unstable();
            seen.dedup();
            let expected: &[[u8; 2]] = match unflushed {
                Unflushed::Lost => &[[1, 0]],
                Unflushed::Kept => &[[3, 2]],
                Unflushed::Mixed => &[[1, 0], [1, 2], [2, 0], [2, 2], [3, 0], [3, 2]],
            };
            assert_eq!(seen, expected, "{unflushed:?}");
        }
    }

    #[test]
    fn a_write_through_the_cache_stays() {
        let (mut state, _gone) = disk();
        state.write(0, &[1; BLOCK_BYTES], false).unwrap();
        state.write(0, &[2; BLOCK_BYTES], true).unwrap();
        state.power_off(Unflushed::Lost, &mut Random::of(0, 0)).unwrap();
        let mut seen = [0; BLOCK_BYTES];
        state.read(0, &mut seen).unwrap();
        assert_eq!(seen[0], 2);
    }

    /// Writes and flushes (F) until the power fails.
    #[test]
    fn the_power_goes_at_its_moment() {
        let requests = "wwFwFww";
        for (cut, answered) in [
            (Cut::Never, 7),
            (Cut::Request(1), 0),
            (Cut::Request(4), 3),
            (Cut::BeforeFlush(1), 2),
            (Cut::BeforeFlush(2), 4),
            (Cut::AfterFlush(1), 3),
            (Cut::AfterFlush(2), 5),
        ] {
            let (mut state, gone) = disk();
            state.cut = cut;
            let done = requests.chars().take_while(|kind| state.goes_on(*kind == 'F')).count();
            assert_eq!(done, answered, "{cut:?}");
            assert_eq!(gone.try_recv().is_ok(), cut != Cut::Never, "{cut:?}");
            assert_eq!(state.goes_on(false), cut == Cut::Never, "what is gone stays gone");
        }
    }
}
