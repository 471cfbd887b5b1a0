//! Files of a simulated world, by name: what was not synced can be lost.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{File, ROOM_BYTES, Rng, World};
use crate::io::call::Call;
use crate::io::request::ExtraPiece;
use crate::io::volume::{
    Access, Durable, Handle, Identity, Kept, Left, Locked, Metadata, Mtime, Replace, Segment,
    Status, StatusKind, Volume, changed,
};
use base::fault::Fault;
use base::owners::Owner;

/// The smallest unit that a disk writes.
const BLOCK_BYTES: usize = 512;

/// A tree of simulated files.
#[derive(Debug)]
pub struct SimVolume {
    world: Arc<World>,
    root: PathBuf,
    names: Mutex<Names>,
    /// Mount points: directories whose file system includes everything below.
    mounts: Vec<Vec<u8>>,
    failure: Mutex<Option<Failure>>,
}

/// One call that fails with this error, after `after` such calls that succeed.
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
    /// The root's own name may be lost, and with it everything below.
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

    /// Makes one call fail from now on.
    pub fn fail(&self, failure: Failure) {
        *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(failure);
    }

    /// Removes the planned failure; true where it had not happened yet.
    pub fn heal(&self) -> bool {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).take().is_some()
    }

    /// Checked by every call before it does anything.
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

    /// A root that was just created: its own name is not durable.
    pub fn made(world: &Arc<World>, root: &str) -> SimVolume {
        let volume = SimVolume::new(world, root);
        volume.lock().rootless = true;
        volume
    }

    /// The same volume with another file system at this directory.
    pub fn with_mount(mut self, directory: &[u8]) -> SimVolume {
        self.mounts.push(directory.to_vec());
        self
    }

    /// The number of the file system that this directory is on.
    fn mount_of(&self, directory: &[u8]) -> usize {
        let is_below = |mount: &&Vec<u8>| {
            directory
                .strip_prefix(&mount[..])
                .is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
        };
        let longest = self.mounts.iter().filter(is_below).max_by_key(|mount| mount.len());
        longest.map_or(0, |found| 1 + self.mounts.iter().position(|one| one == found).expect("it"))
    }

    /// Puts a file there, durable from the beginning.
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

    /// The space that a file takes on the disk.
    pub fn room_bytes(&self, path: &[u8]) -> Option<u64> {
        let world = self.world.lock();
        let names = self.lock();
        let Some(Node::File(id)) = names.now.get(path) else { return None };
        Some(world.files[*id as usize].room.len() as u64 * ROOM_BYTES as u64)
    }

    /// What is left after a power failure: names of synced directories, bytes of synced files.
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

    /// Simulates a power failure: of what was not synced the disk has kept some blocks and lost
    /// others, of names likewise.
    pub fn lose_power(&self, rng: &mut Rng) {
        let mut world = self.world.lock();
        let mut names = self.lock();
        let Names { now, durable, rootless } = &mut *names;
        if std::mem::take(rootless) && rng.once_in(2) {
            now.clear();
            durable.clear();
        }
        let all: BTreeSet<Vec<u8>> = now.keys().chain(durable.keys()).cloned().collect();
        let mut left = BTreeMap::new();
        for path in all {
            let node = if rng.once_in(2) { now.get(&path) } else { durable.get(&path) };
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
            let len = if rng.once_in(2) { file.bytes.len() } else { durable.len() };
            let mut bytes = vec![0; len.max(durable.len())];
            for (block, at) in bytes.chunks_mut(BLOCK_BYTES).zip((0..).step_by(BLOCK_BYTES)) {
                let from = if rng.once_in(2) { &file.bytes } else { &durable };
                let from = from.get(at..).unwrap_or_default();
                let count = block.len().min(from.len());
                block[..count].copy_from_slice(&from[..count]);
                // What was synced is there, whatever was written later.
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
    Status { kind, size, mtime, mode: 0o755, owner: (0, 0), inode: (0, id), allocated_bytes: 0 }
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

    fn set_owner(&self, path: &[u8], _owner: Owner, _mode: Option<u32>) -> Result<(), Fault> {
        self.ask(Call::SetMode, path)
    }

    fn make_directory_like(&self, path: &[u8], _like: &[u8]) -> Result<(), Fault> {
        self.make_directory(path, 0o700)
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

    fn names_in(
        &self,
        directory: &[u8],
        take: &mut dyn FnMut(&[u8], StatusKind),
    ) -> Result<(), Fault> {
        self.ask(Call::List, directory)?;
        let front = if directory.is_empty() { Vec::new() } else { [directory, b"/"].concat() };
        let mut found: BTreeMap<Vec<u8>, StatusKind> = BTreeMap::new();
        for (path, node) in &self.lock().now {
            let Some(rest) = path.strip_prefix(&front[..]) else { continue };
            let kind = match node {
                _ if rest.contains(&b'/') => StatusKind::Directory,
                Node::File(_) => StatusKind::File,
                Node::Directory => StatusKind::Directory,
                Node::Link(_) => StatusKind::Link,
            };
            found.insert(rest.split(|byte| *byte == b'/').next().unwrap_or(rest).to_vec(), kind);
        }
        found.into_iter().for_each(|(name, kind)| take(&name, kind));
        Ok(())
    }

    fn clear(&self, path: &[u8], _kind: StatusKind) -> Result<(), Fault> {
        self.remove(path)
    }

    fn link_aside(&self, path: &[u8], to: &[u8]) -> Result<Kept, Fault> {
        self.make_hard_link(to, path).map(|()| Kept::Linked)
    }

    fn move_aside(&self, path: &[u8], _kind: StatusKind, to: &[u8]) -> Result<(), Fault> {
        self.ask(Call::Move, path)?;
        let mut names = self.lock();
        match names.now.remove(path) {
            Some(node) => {
                names.now.insert(to.to_vec(), node);
                Ok(())
            }
            None => Err(self.fault(Call::Move, path, libc::ENOENT)),
        }
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
        let read_fails = world.fault_rates.read_fails;
        if world.rng.once_in(read_fails) {
            return Err(self.fault(Call::Read, &segment.path, libc::EIO));
        }
        let file = &world.files[id as usize];
        if file.bytes.len() != into.len() || Some(file.mtime) != segment.meta.mtime {
            return Err(changed(self, &segment.path));
        }
        into.copy_from_slice(&file.bytes);
        Ok(())
    }

    fn write_small(
        &self,
        segment: &Segment,
        from: &[u8],
        _extra: Option<&ExtraPiece>,
    ) -> Result<Status, Fault> {
        self.ask(Call::Write, &segment.path)?;
        self.lock().now.remove(&segment.path);
        let id = self.create(&segment.path)?;
        let mut world = self.world.lock();
        world.storm().map_err(|errno| self.fault(Call::Write, &segment.path, errno))?;
        let lying_disk = world.fault_rates.lying_disk;
        let lies = world.rng.once_in(lying_disk);
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
        drop(world);
        self.status_of(&Handle::Sim(id), &segment.path)
    }
}
