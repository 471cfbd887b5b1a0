//! A world in memory, driven by a seed: files that forget what was not synced, connections that
//! deliver when they like, transfers that come back short, interrupted, in another order, or not at
//! all.
//!
//! Nothing here blocks: whoever steps the world decides when something can land.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::backend::{Backend, Landing, Verb, Wait, Wake};
use super::call::Call;
use super::clock::Clock;
use super::request::Request;
use super::volume::{
    Access, Durable, Handle, Identity, Left, Locked, Metadata, Mtime, Replace, Segment, Status,
    StatusKind, Volume, changed,
};
use super::{blocking, holes};
use crate::base::fault::Fault;
use crate::base::units::{Nanos, Tick};

mod dice;

pub use self::dice::Dice;

/// How the world misbehaves: each is the odds, once in so many; 0 is never.
#[derive(Clone, Copy, Debug, Default)]
pub struct Weather {
    /// Something in the air does not land at this look.
    pub late: u64,
    /// A transfer moves less than it was asked.
    pub short: u64,
    pub interrupted: u64,
    pub read_fails: u64,
    pub write_fails: u64,
    pub disk_full: u64,
    /// A connection breaks.
    pub cut: u64,
    /// A bit flips on a connection.
    pub flip: u64,
    /// A connection takes what is sent and brings nothing any more.
    pub stuck: u64,
    /// A write says that it is done and drops a byte: no honest disk, but a test of the tests.
    pub lying_disk: u64,
}

/// Everything there is: connections, files, dice.
#[derive(Debug)]
pub struct World {
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    dice: Dice,
    weather: Weather,
    now: Tick,
    sockets: Vec<Socket>,
    files: Vec<File>,
    /// Landings so far: who steps the world sees by it whether anything moves.
    landings: u64,
}

#[derive(Debug, Default)]
struct Socket {
    bytes: VecDeque<u8>,
    cut: bool,
    /// What is sent from now on is lost on its way.
    stuck: bool,
    /// When the last byte came to its end.
    came_at: Tick,
}

/// Bytes under way on one connection at most.
const SOCKET_BYTES: usize = 20_000;

#[derive(Clone, Debug, Default)]
struct File {
    bytes: Vec<u8>,
    durable: Option<Vec<u8>>,
    mtime: Mtime,
    /// Blocks that it takes on the disk: those that were written, and are no holes again.
    room: BTreeSet<u64>,
}

impl File {
    fn takes(&mut self, at: usize, count: usize) {
        let blocks = (at / ROOM_BYTES) as u64..(at + count).div_ceil(ROOM_BYTES) as u64;
        self.room.extend(blocks);
    }

    /// Only what is not zeros takes room.
    fn takes_data(&mut self) {
        let mut from = 0;
        while let Some(data) = holes::next_data(&self.bytes, from) {
            from = data.end;
            self.takes(data.start, data.len());
        }
    }
}

/// What is given room to at once.
const ROOM_BYTES: usize = crate::base::limits::BLOCK_BYTES as usize;

impl World {
    pub fn new(seed: u64, weather: Weather) -> Arc<World> {
        let inner = Inner {
            dice: Dice::new(seed),
            weather,
            now: Tick(0),
            sockets: Vec::new(),
            files: Vec::new(),
            landings: 0,
        };
        Arc::new(World { inner: Mutex::new(inner) })
    }

    /// A connection: what is sent to it is received from it.
    pub fn connect(&self) -> Handle {
        let mut world = self.lock();
        let came_at = world.now;
        world.sockets.push(Socket { came_at, ..Socket::default() });
        Handle::Sim(world.sockets.len() as u64 - 1)
    }

    pub fn backend(self: &Arc<World>) -> SimBackend {
        SimBackend { world: self.clone(), flying: Vec::new() }
    }

    pub fn landings(&self) -> u64 {
        self.lock().landings
    }

    pub fn now(&self) -> Tick {
        self.lock().now
    }

    /// So much time goes by.
    pub fn wait(&self, time: Nanos) {
        let mut world = self.lock();
        world.now = world.now.after(time);
    }

    /// True when nothing has come on a connection for so long, and nothing waits to be read.
    pub fn is_starved(&self, socket: &Handle, time: Nanos) -> bool {
        let Handle::Sim(id) = socket else { panic!("a real handle in a simulated world") };
        let world = self.lock();
        let socket = &world.sockets[*id as usize];
        socket.bytes.is_empty() && world.now.since(socket.came_at).0 > time.0
    }

    pub fn set_weather(&self, weather: Weather) {
        self.lock().weather = weather;
    }

    /// Ends a connection, as a peer that goes away does.
    pub fn cut(&self, socket: &Handle) {
        if let Handle::Sim(id) = socket {
            self.lock().sockets[*id as usize].cut = true;
        }
    }

    /// Ends a connection at once: what is under way on it is lost.
    pub fn reset(&self, socket: &Handle) {
        if let Handle::Sim(id) = socket {
            let socket = &mut self.lock().sockets[*id as usize];
            socket.bytes.clear();
            socket.cut = true;
        }
    }

    /// True for a connection that brings nothing any more.
    pub fn is_stuck(&self, socket: &Handle) -> bool {
        matches!(socket, Handle::Sim(id) if self.lock().sockets[*id as usize].stuck)
    }

    /// What the other end of a connection says, whatever room there is.
    pub fn say(&self, socket: &Handle, bytes: &[u8]) {
        if let Handle::Sim(id) = socket {
            self.lock().sockets[*id as usize].bytes.extend(bytes);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// Tries a verb now; `None` when it has to wait.
    fn attempt(&mut self, verb: &Verb, request: &mut Request) -> Option<io::Result<u32>> {
        let weather = self.weather;
        if self.dice.once_in(weather.late) {
            return None;
        }
        if self.dice.once_in(weather.interrupted) {
            return Some(Err(io::ErrorKind::Interrupted.into()));
        }
        let asked = request.pending().len();
        let count = match self.dice.once_in(weather.short) && asked > 1 {
            true => 1 + self.dice.below(asked as u64 - 1) as usize,
            false => asked,
        };
        match verb {
            Verb::Receive { socket: Handle::Sim(id), .. } => self.receive(*id, count, request),
            Verb::Send { socket: Handle::Sim(id) } => self.send(*id, count, request),
            Verb::ReadAt { file: Handle::Sim(id), offset, .. } => {
                Some(self.read_at(*id, offset + u64::from(request.moved), count, request))
            }
            Verb::WriteAt { file: Handle::Sim(id), offset, .. } => {
                Some(self.write_at(*id, offset + u64::from(request.moved), count, request))
            }
            other => panic!("{other:?} in a simulated world"),
        }
    }

    fn receive(&mut self, id: u64, count: usize, request: &mut Request) -> Option<io::Result<u32>> {
        let socket = &mut self.sockets[id as usize];
        if socket.bytes.is_empty() {
            return socket.cut.then_some(Ok(0));
        }
        let count = count.min(socket.bytes.len());
        for byte in &mut request.pending_bytes_mut()[..count] {
            *byte = socket.bytes.pop_front().expect("counted");
        }
        if self.dice.once_in(self.weather.flip) {
            let at = self.dice.below(count as u64) as usize;
            request.pending_bytes_mut()[at] ^= 1 << self.dice.below(8);
        }
        Some(Ok(count as u32))
    }

    fn send(&mut self, id: u64, count: usize, request: &mut Request) -> Option<io::Result<u32>> {
        if self.dice.once_in(self.weather.cut) {
            self.sockets[id as usize].cut = true;
        }
        let sticks = self.dice.once_in(self.weather.stuck);
        let socket = &mut self.sockets[id as usize];
        if socket.cut {
            return Some(Err(io::Error::from_raw_os_error(libc::EPIPE)));
        }
        socket.stuck |= sticks;
        if socket.stuck {
            return Some(Ok(count as u32));
        }
        let count = count.min(SOCKET_BYTES - socket.bytes.len());
        if count == 0 {
            return None;
        }
        socket.bytes.extend(&request.pending_bytes()[..count]);
        socket.came_at = self.now;
        Some(Ok(count as u32))
    }

    fn read_at(
        &mut self,
        id: u64,
        at: u64,
        count: usize,
        request: &mut Request,
    ) -> io::Result<u32> {
        if self.dice.once_in(self.weather.read_fails) {
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        let bytes = &self.files[id as usize].bytes;
        let at = (at as usize).min(bytes.len());
        let count = count.min(bytes.len() - at);
        request.pending_bytes_mut()[..count].copy_from_slice(&bytes[at..at + count]);
        Ok(count as u32)
    }

    fn write_at(
        &mut self,
        id: u64,
        at: u64,
        count: usize,
        request: &mut Request,
    ) -> io::Result<u32> {
        self.storm().map_err(io::Error::from_raw_os_error)?;
        let lies = self.dice.once_in(self.weather.lying_disk);
        let file = &mut self.files[id as usize];
        let end = at as usize + count;
        if file.bytes.len() < end {
            file.bytes.resize(end, 0);
        }
        file.bytes[at as usize..end].copy_from_slice(&request.pending_bytes()[..count]);
        file.takes(at as usize, count);
        if lies {
            file.bytes[at as usize] ^= 0xff;
        }
        Ok(count as u32)
    }

    /// What a disk may answer to any write.
    fn storm(&mut self) -> Result<(), i32> {
        if self.dice.once_in(self.weather.disk_full) {
            return Err(libc::ENOSPC);
        }
        match self.dice.once_in(self.weather.write_fails) {
            true => Err(libc::EIO),
            false => Ok(()),
        }
    }
}

impl Clock for World {
    /// Looking takes a little time: whoever measures sees some.
    fn now(&self) -> Tick {
        let mut world = self.lock();
        world.now.0 += 1000;
        world.now
    }

    fn thread_cpu(&self) -> Nanos {
        Nanos(self.lock().now.0)
    }
}

/// One lane's way into the world.
#[derive(Debug)]
pub struct SimBackend {
    world: Arc<World>,
    flying: Vec<(Verb, Request)>,
}

impl Backend for SimBackend {
    fn name(&self) -> &'static str {
        "sim"
    }

    fn now(&self) -> Tick {
        Clock::now(&*self.world)
    }

    fn submit(&mut self, verb: Verb, request: Request) {
        self.flying.push((verb, request));
    }

    /// Lets land what can, in an order of its own. Never waits, whatever it is asked.
    fn reap(&mut self, _wait: Wait, landings: &mut Vec<Landing>) -> io::Result<()> {
        let mut left = Vec::new();
        while !self.flying.is_empty() {
            let pick = self.world.lock().dice.below(self.flying.len() as u64) as usize;
            let (verb, mut request) = self.flying.swap_remove(pick);
            let result = match &verb {
                // Small files go through their volume, which takes the lock itself.
                Verb::Gather(batch) => Some(Ok(blocking::gather(batch, &mut request))),
                Verb::Scatter(batch) => Some(Ok(blocking::scatter(batch, &mut request))),
                verb => self.world.lock().attempt(verb, &mut request),
            };
            match result {
                Some(result) => {
                    self.world.lock().landings += 1;
                    landings.push(Landing { verb, request, result });
                }
                None => left.push((verb, request)),
            }
        }
        self.flying = left;
        Ok(())
    }

    fn waker(&self) -> Arc<dyn Wake> {
        Arc::new(Silent)
    }
}

/// Nobody sleeps here, so nobody has to be woken.
#[derive(Debug)]
struct Silent;

impl Wake for Silent {
    fn wake(&self) {}
}

/// The least that a disk writes at once.
const BLOCK_BYTES: usize = 512;

/// A tree of simulated files.
#[derive(Debug)]
pub struct SimVolume {
    world: Arc<World>,
    root: PathBuf,
    names: Mutex<Names>,
    /// Directories with a file system of their own, which sees what is below.
    mounts: Vec<Vec<u8>>,
    failure: Mutex<Option<Failure>>,
}

/// One call that is to fail, with this error: the first, or one after so many that go well.
#[derive(Clone, Copy, Debug)]
pub struct Failure {
    pub call: Call,
    pub errno: i32,
    pub after: u64,
}

#[derive(Debug, Default)]
struct Names {
    now: BTreeMap<Vec<u8>, Node>,
    durable: BTreeMap<Vec<u8>, Node>,
    /// The root's own name may be lost, and with it all that is below.
    rootless: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Node {
    File(u64),
    Directory,
    Link(Vec<u8>),
}

impl SimVolume {
    pub fn new(world: &Arc<World>, root: &str) -> SimVolume {
        SimVolume {
            world: world.clone(),
            root: PathBuf::from(root),
            names: Mutex::default(),
            failure: Mutex::default(),
            mounts: Vec::new(),
        }
    }

    /// From now on one call fails.
    pub fn fail(&self, failure: Failure) {
        *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(failure);
    }

    /// Nothing fails any more; true where it still would have.
    pub fn heal(&self) -> bool {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).take().is_some()
    }

    /// Asked by every call before it does anything.
    fn ask(&self, call: Call, path: &[u8]) -> Result<(), Fault> {
        let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *failure {
            Some(planned) if planned.call == call && planned.after > 0 => planned.after -= 1,
            Some(planned) if planned.call == call => {
                let errno = planned.errno;
                *failure = None;
                return Err(self.fault(call, path, errno));
            }
            _ => {}
        }
        Ok(())
    }

    /// A root that has been made just now: its own name is not durable.
    pub fn made(world: &Arc<World>, root: &str) -> SimVolume {
        let volume = SimVolume::new(world, root);
        volume.lock().rootless = true;
        volume
    }

    /// The same with another file system at this directory.
    pub fn with_mount(mut self, directory: &[u8]) -> SimVolume {
        self.mounts.push(directory.to_vec());
        self
    }

    /// The place of the file system that this directory is on.
    fn mount_of(&self, directory: &[u8]) -> usize {
        let is_below = |mount: &&Vec<u8>| {
            directory
                .strip_prefix(&mount[..])
                .is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
        };
        let longest = self.mounts.iter().filter(is_below).max_by_key(|mount| mount.len());
        longest.map_or(0, |found| 1 + self.mounts.iter().position(|one| one == found).expect("it"))
    }

    /// Puts a file there, durable as if it had always been.
    pub fn put(&self, path: &[u8], bytes: Vec<u8>, mtime: Mtime) {
        let mut world = self.world.lock();
        let durable = Some(bytes.clone());
        let mut file = File { durable, bytes, mtime, ..File::default() };
        file.takes_data();
        world.files.push(file);
        let node = Node::File(world.files.len() as u64 - 1);
        let mut names = self.lock();
        names.now.insert(path.to_vec(), node.clone());
        names.durable.insert(path.to_vec(), node);
    }

    /// The files by name, as a reader sees them now.
    pub fn files(&self) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let world = self.world.lock();
        let file = |(path, node): (&Vec<u8>, &Node)| match node {
            Node::File(id) => Some((path.clone(), world.files[*id as usize].bytes.clone())),
            Node::Directory | Node::Link(_) => None,
        };
        self.lock().now.iter().filter_map(file).collect()
    }

    /// What a file takes on the disk.
    pub fn room_bytes(&self, path: &[u8]) -> Option<u64> {
        let world = self.world.lock();
        let names = self.lock();
        let Some(Node::File(id)) = names.now.get(path) else { return None };
        Some(world.files[*id as usize].room.len() as u64 * ROOM_BYTES as u64)
    }

    /// What is left after the power went: names of synced directories, bytes of synced files.
    pub fn files_after_crash(&self) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let world = self.world.lock();
        let file = |(path, node): (&Vec<u8>, &Node)| match node {
            Node::File(id) => {
                let durable = world.files[*id as usize].durable.clone();
                Some((path.clone(), durable.unwrap_or_default()))
            }
            Node::Directory | Node::Link(_) => None,
        };
        let names = self.lock();
        match names.rootless {
            true => BTreeMap::new(),
            false => names.durable.iter().filter_map(file).collect(),
        }
    }

    /// Takes the power away: of what was not synced the disk has kept this block and lost that one,
    /// of names likewise.
    pub fn lose_power(&self, dice: &mut Dice) {
        let mut world = self.world.lock();
        let mut names = self.lock();
        let Names { now, durable, rootless } = &mut *names;
        if std::mem::take(rootless) && dice.once_in(2) {
            now.clear();
            durable.clear();
        }
        let all: BTreeSet<Vec<u8>> = now.keys().chain(durable.keys()).cloned().collect();
        let mut left = BTreeMap::new();
        for path in all {
            let node = if dice.once_in(2) { now.get(&path) } else { durable.get(&path) };
            if let Some(node) = node {
                left.insert(path, node.clone());
            }
        }
        let files: BTreeSet<u64> = left
            .values()
            .filter_map(|node| match node {
                Node::File(id) => Some(*id),
                Node::Directory | Node::Link(_) => None,
            })
            .collect();
        for id in files {
            let file = &mut world.files[id as usize];
            let durable = file.durable.clone().unwrap_or_default();
            let len = if dice.once_in(2) { file.bytes.len() } else { durable.len() };
            let mut bytes = vec![0; len.max(durable.len())];
            for (block, at) in bytes.chunks_mut(BLOCK_BYTES).zip((0..).step_by(BLOCK_BYTES)) {
                let from = if dice.once_in(2) { &file.bytes } else { &durable };
                let from = from.get(at..).unwrap_or_default();
                let count = block.len().min(from.len());
                block[..count].copy_from_slice(&from[..count]);
                // What was synced is there, whatever came later.
                if at < durable.len() && file.bytes.get(at..at + 1) == durable.get(at..at + 1) {
                    let sure = &durable[at..durable.len().min(at + block.len())];
                    if file.bytes.get(at..at + sure.len()) == Some(sure) {
                        block[..sure.len()].copy_from_slice(sure);
                    }
                }
            }
            file.bytes.clone_from(&bytes);
            file.durable = Some(bytes);
        }
        *durable = left.clone();
        *now = left;
    }

    fn lock(&self) -> MutexGuard<'_, Names> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fault(&self, call: Call, path: &[u8], errno: i32) -> Fault {
        call.fault(&self.root.join(String::from_utf8_lossy(path).as_ref()), errno)
    }

    fn file(&self, path: &[u8]) -> Result<u64, Fault> {
        match self.lock().now.get(path) {
            Some(Node::File(id)) => Ok(*id),
            _ => Err(self.fault(Call::Open, path, libc::ENOENT)),
        }
    }

    fn create(&self, path: &[u8]) -> Result<u64, Fault> {
        let mut world = self.world.lock();
        let mut names = self.lock();
        if names.now.contains_key(path) {
            return Err(self.fault(Call::Create, path, libc::EEXIST));
        }
        world.files.push(File::default());
        let id = world.files.len() as u64 - 1;
        names.now.insert(path.to_vec(), Node::File(id));
        Ok(id)
    }
}

fn file_status(file: &File, id: u64) -> Status {
    let status = status_of(StatusKind::File, file.bytes.len() as u64, file.mtime, id);
    Status { allocated_bytes: (file.room.len() * ROOM_BYTES) as u64, ..status }
}

fn directory_of(path: &[u8]) -> &[u8] {
    &path[..path.iter().rposition(|byte| *byte == b'/').unwrap_or(0)]
}

fn status_of(kind: StatusKind, size: u64, mtime: Mtime, id: u64) -> Status {
    Status { kind, size, mtime, mode: 0o755, inode: (0, id), allocated_bytes: 0 }
}

impl Volume for SimVolume {
    fn root(&self) -> &Path {
        &self.root
    }

    fn waits(&self) -> bool {
        true
    }

    fn status(&self, path: &[u8]) -> Result<Option<Status>, Fault> {
        self.ask(Call::LookAt, path)?;
        let world = self.world.lock();
        Ok(self.lock().now.get(path).map(|node| match node {
            Node::File(id) => {
                let file = &world.files[*id as usize];
                file_status(file, *id)
            }
            Node::Directory => status_of(StatusKind::Directory, 0, Mtime::default(), u64::MAX),
            Node::Link(_) => status_of(StatusKind::Link, 0, Mtime::default(), u64::MAX),
        }))
    }

    fn open(&self, path: &[u8], access: Access) -> Result<Handle, Fault> {
        match access {
            Access::Read { .. } => {
                self.ask(Call::Open, path)?;
                self.file(path).map(Handle::Sim)
            }
            Access::Resume { .. } => {
                self.ask(Call::Resume, path)?;
                self.file(path).map(Handle::Sim)
            }
            Access::Create { reserve, .. } => {
                self.ask(Call::Create, path)?;
                self.lock().now.remove(path);
                let id = self.create(path)?;
                if reserve.is_some() {
                    self.ask(Call::Reserve, path)?;
                }
                Ok(Handle::Sim(id))
            }
        }
    }

    fn status_of(&self, file: &Handle, path: &[u8]) -> Result<Status, Fault> {
        self.ask(Call::LookAt, path)?;
        let Handle::Sim(id) = file else { panic!("a real handle in a simulated volume") };
        let world = self.world.lock();
        let file = &world.files[*id as usize];
        Ok(file_status(file, *id))
    }

    fn identity_of(&self, file: &Handle, path: &[u8]) -> Result<(Option<Identity>, u64), Fault> {
        let Status { inode, size, .. } = self.status_of(file, path)?;
        Ok((Some(Identity { inode: inode.1, owner: 0, born: None }), size))
    }

    fn next_data(&self, file: &Handle, path: &[u8], offset: u64) -> Result<Option<u64>, Fault> {
        self.ask(Call::FindData, path)?;
        let Handle::Sim(id) = file else { panic!("a real handle in a simulated volume") };
        let world = self.world.lock();
        let bytes = world.files[*id as usize].bytes.iter().enumerate();
        let mut data = bytes.skip(offset as usize).filter(|(_, byte)| **byte != 0);
        Ok(data.next().map(|(at, _)| at as u64))
    }

    fn make_hole(&self, file: &Handle, path: &[u8], stretch: Range<u64>) -> Result<(), Fault> {
        self.ask(Call::MakeHole, path)?;
        let Handle::Sim(id) = file else { panic!("a real handle in a simulated volume") };
        let mut world = self.world.lock();
        world.storm().map_err(|errno| self.fault(Call::MakeHole, path, errno))?;
        let file = &mut world.files[*id as usize];
        let end = (stretch.end as usize).min(file.bytes.len());
        let start = (stretch.start as usize).min(end);
        file.bytes[start..end].fill(0);
        let inside = start.div_ceil(ROOM_BYTES) as u64..(stretch.end as usize / ROOM_BYTES) as u64;
        file.room.retain(|block| !inside.contains(block));
        Ok(())
    }

    fn set_directory_mode(&self, path: &[u8], _mode: u32) -> Result<(), Fault> {
        self.ask(Call::SetMode, path)?;
        Ok(())
    }

    fn make_directory(&self, path: &[u8], _mode: u32) -> Result<(), Fault> {
        self.ask(Call::MakeDirectory, path)?;
        self.lock().now.insert(path.to_vec(), Node::Directory);
        Ok(())
    }

    fn make_link(&self, path: &[u8], target: &[u8], _meta: &Metadata) -> Result<(), Fault> {
        self.ask(Call::MakeLink, path)?;
        self.lock().now.insert(path.to_vec(), Node::Link(target.to_vec()));
        self.ask(Call::SetLinkTime, path)
    }

    fn make_hard_link(&self, path: &[u8], twin: &[u8]) -> Result<(), Fault> {
        self.ask(Call::MakeHardLink, path)?;
        let id = self.file(twin)?;
        self.lock().now.insert(path.to_vec(), Node::File(id));
        Ok(())
    }

    fn set_length(&self, file: &Handle, path: &[u8], len: u64) -> Result<(), Fault> {
        self.ask(Call::SetLength, path)?;
        let Handle::Sim(id) = file else { panic!("a real handle in a simulated volume") };
        let mut world = self.world.lock();
        let file = &mut world.files[*id as usize];
        file.bytes.resize(len as usize, 0);
        file.room.retain(|block| *block * (ROOM_BYTES as u64) < len);
        Ok(())
    }

    fn set_metadata(&self, file: &Handle, path: &[u8], meta: &Metadata) -> Result<(), Fault> {
        self.ask(Call::SetMetadata, path)?;
        let Handle::Sim(id) = file else { panic!("a real handle in a simulated volume") };
        self.world.lock().files[*id as usize].mtime = meta.mtime.unwrap_or_default();
        Ok(())
    }

    fn leave_directory(&self, path: &[u8], meta: Option<&Metadata>, durable: Durable) -> Left {
        let given = self
            .ask(Call::OpenDirectory, path)
            .and_then(|()| meta.map_or(Ok(()), |_| self.ask(Call::SetMetadata, path)));
        let synced = match durable {
            Durable::Now if path.is_empty() => self.sync_directory(b"."),
            Durable::Now => self.sync_directory(&[path, b"/"].concat()),
            Durable::Later => Ok(()),
        };
        Left { given, synced }
    }

    fn sync(&self, file: &Handle, path: &[u8]) -> Result<(), Fault> {
        self.ask(Call::Sync, path)?;
        let Handle::Sim(id) = file else { panic!("a real handle in a simulated volume") };
        let mut world = self.world.lock();
        world.storm().map_err(|errno| self.fault(Call::Sync, path, errno))?;
        let file = &mut world.files[*id as usize];
        file.durable = Some(file.bytes.clone());
        Ok(())
    }

    fn file_system_of(&self, path: &[u8]) -> Result<u64, Fault> {
        Ok(self.mount_of(directory_of(path)) as u64)
    }

    fn sync_all(&self, path: &[u8]) -> Result<(), Fault> {
        self.ask(Call::Sync, path)?;
        let mut world = self.world.lock();
        world.storm().map_err(|errno| self.fault(Call::Sync, path, errno))?;
        let synced = self.mount_of(directory_of(path));
        let here = |name: &Vec<u8>| self.mount_of(directory_of(name)) == synced;
        let mut names = self.lock();
        let Names { now, durable, rootless } = &mut *names;
        *rootless &= synced != 0;
        durable.retain(|name, _| !here(name));
        for (name, node) in now.iter().filter(|(name, _)| here(name)) {
            if let Node::File(id) = node {
                let file = &mut world.files[*id as usize];
                file.durable = Some(file.bytes.clone());
            }
            durable.insert(name.clone(), node.clone());
        }
        Ok(())
    }

    fn sync_own_name(&self) -> Result<(), Fault> {
        self.lock().rootless = false;
        Ok(())
    }

    fn sync_directory(&self, path: &[u8]) -> Result<(), Fault> {
        self.ask(Call::SyncDirectory, path)?;
        let directory = &path[..path.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1)];
        let inside =
            |name: &[u8]| name.strip_prefix(directory).is_some_and(|rest| !rest.contains(&b'/'));
        let mut names = self.lock();
        let Names { now, durable, .. } = &mut *names;
        durable.retain(|name, _| !inside(name));
        durable.extend(
            now.iter().filter(|(name, _)| inside(name)).map(|(n, v)| (n.clone(), v.clone())),
        );
        Ok(())
    }

    fn rename(&self, from: &[u8], to: &[u8], replace: Replace) -> Result<(), Fault> {
        self.ask(Call::Rename, to)?;
        let mut names = self.lock();
        if replace == Replace::Never && names.now.contains_key(to) {
            return Err(self.fault(Call::Rename, to, libc::EEXIST));
        }
        match names.now.remove(from) {
            Some(node) => {
                names.now.insert(to.to_vec(), node);
                Ok(())
            }
            None => Err(self.fault(Call::Rename, to, libc::ENOENT)),
        }
    }

    fn remove(&self, path: &[u8]) -> Result<(), Fault> {
        self.ask(Call::Remove, path)?;
        self.lock().now.remove(path);
        Ok(())
    }

    fn open_locked(&self, path: &[u8]) -> Result<Locked, Fault> {
        self.ask(Call::Lock, path)?;
        self.file(path).or_else(|_| self.create(path)).map(|id| Locked::Ours(Handle::Sim(id)))
    }

    fn read_at(
        &self,
        file: &Handle,
        path: &[u8],
        at: u64,
        into: &mut [u8],
    ) -> Result<usize, Fault> {
        self.ask(Call::Read, path)?;
        let Handle::Sim(id) = file else { panic!("a real handle in a simulated volume") };
        let world = self.world.lock();
        let bytes = &world.files[*id as usize].bytes;
        let at = (at as usize).min(bytes.len());
        let count = into.len().min(bytes.len() - at);
        into[..count].copy_from_slice(&bytes[at..at + count]);
        Ok(count)
    }

    fn append(&self, file: &Handle, path: &[u8], at: u64, bytes: &[u8]) -> Result<(), Fault> {
        self.ask(Call::Write, path)?;
        let Handle::Sim(id) = file else { panic!("a real handle in a simulated volume") };
        let mut world = self.world.lock();
        let file = &mut world.files[*id as usize];
        file.bytes.resize(at as usize, 0);
        file.bytes.extend_from_slice(bytes);
        Ok(())
    }

    fn read_link(&self, path: &[u8]) -> Result<Option<Vec<u8>>, Fault> {
        self.ask(Call::ReadLink, path)?;
        match self.lock().now.get(path) {
            Some(Node::Link(target)) => Ok(Some(target.clone())),
            _ => Ok(None),
        }
    }

    fn free_bytes(&self, path: &[u8]) -> Result<u64, Fault> {
        self.ask(Call::FreeSpace, path)?;
        Ok(1 << 40)
    }

    fn read_small(&self, segment: &Segment, into: &mut [u8]) -> Result<(), Fault> {
        self.ask(Call::Read, &segment.path)?;
        let id = self.file(&segment.path)?;
        let mut world = self.world.lock();
        let read_fails = world.weather.read_fails;
        if world.dice.once_in(read_fails) {
            return Err(self.fault(Call::Read, &segment.path, libc::EIO));
        }
        let file = &world.files[id as usize];
        if file.bytes.len() != into.len() || Some(file.mtime) != segment.meta.mtime {
            return Err(changed(self, &segment.path));
        }
        into.copy_from_slice(&file.bytes);
        Ok(())
    }

    fn write_small(&self, segment: &Segment, from: &[u8]) -> Result<(), Fault> {
        self.ask(Call::Write, &segment.path)?;
        self.lock().now.remove(&segment.path);
        let id = self.create(&segment.path)?;
        let mut world = self.world.lock();
        world.storm().map_err(|errno| self.fault(Call::Write, &segment.path, errno))?;
        let lying_disk = world.weather.lying_disk;
        let lies = world.dice.once_in(lying_disk);
        let file = &mut world.files[id as usize];
        file.bytes = from.to_vec();
        match segment.sparse {
            true => file.takes_data(),
            false => file.takes(0, from.len()),
        }
        file.mtime = segment.meta.mtime.unwrap_or_default();
        if lies && !from.is_empty() {
            file.bytes[0] ^= 0xff;
        }
        Ok(())
    }
}
