//! Storage that a node sees through a FUSE file system, which can be cut off and healed, and which
//! holds written bytes back as the cache of a network file system does.
//!
//! The server is this process, outside the node, so what a node has written can still arrive after
//! the node is dead, or long after others took its work over. It keeps close-to-open consistency:
//! bytes reach the shared folder at `close` or `fsync` at the latest; names, and that there is no
//! such name, are remembered by the node for a while.

mod files;

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use fuser::{Config, Session, SessionACL};
use rustix::mount::MountFlags;
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};

use files::{Files, SharedTables};

/// How a node sees shared storage.
#[derive(Clone, Copy, Debug)]
pub struct Manner {
    /// Bytes written stay with the node until the file is closed or synced.
    pub caches_writes: bool,
    /// For how long a node believes what it knows of names and attributes.
    pub remembers_names: Duration,
    /// How long each write takes, at least.
    pub write_takes: Duration,
}

/// One node's storage; it ends when it is dropped.
#[derive(Debug)]
pub struct Storage {
    state: Arc<State>,
    tables: SharedTables,
}

/// What is to happen to requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line {
    Whole,
    /// Requests wait. Those for a link are carried out, and once more when it is healed: their
    /// first answer was lost.
    Cut,
    /// The content of files is not to be had; all else is.
    ReadsWait,
    /// The node is dead: nobody waits for an answer.
    Ended,
}

#[derive(Debug)]
struct State {
    line: Mutex<Line>,
    changed: Condvar,
}

impl Storage {
    /// Mounts it over `folder` in the mount namespace of a process.
    pub fn mount(first: i32, folder: &Path, manner: Manner) -> Result<Storage, String> {
        let told = |why: io::Error| format!("storage of a node at {}: {why}", folder.display());
        let root = File::open(folder).map(OwnedFd::from).map_err(told)?;
        let device = File::options().read(true).write(true).open("/dev/fuse").map_err(told)?;
        let device = OwnedFd::from(device);
        let namespace = File::open(format!("/proc/{first}/ns/mnt")).map_err(told)?;
        let options = format!(
            "fd={},rootmode=40000,user_id=0,group_id=0,allow_other,default_permissions",
            device.as_raw_fd()
        );
        let inside = || {
            enter(&namespace)?;
            let flags = MountFlags::NOSUID | MountFlags::NODEV;
            let options = std::ffi::CString::new(options).map_err(io::Error::other)?;
            rustix::mount::mount("shared", folder, "fuse", flags, &*options)?;
            Ok(())
        };
        let mounted = thread::scope(|scope| scope.spawn(inside).join());
        mounted.unwrap_or_else(|_| Err(io::Error::other("the thread panicked"))).map_err(told)?;
        let state = Arc::new(State { line: Mutex::new(Line::Whole), changed: Condvar::new() });
        let files = Files::new(root, manner, state.clone()).map_err(told)?;
        let tables = files.shared_tables();
        let session = Session::from_fd(files, device, SessionACL::All, Config::default());
        let session = session.map_err(told)?;
        // It ends with the mount, which ends with the last process of the node.
        thread::spawn(move || session.run().ok());
        Ok(Storage { state, tables })
    }

    /// From now on requests have no answer, as of a hard mount whose server is away.
    pub fn cut(&self) {
        self.state.set(Line::Cut);
    }

    /// From now on reads of files wait.
    pub fn hold_reads(&self) {
        self.state.set(Line::ReadsWait);
    }

    /// All that waits goes on, late as it is.
    pub fn heal(&self) {
        self.state.set(Line::Whole);
    }

    /// Passes on what is held, as packets that were under way when the node died.
    pub fn arrive_late(&self) -> Result<(), String> {
        self.tables.write_back(|_, _| true).map_err(|why| format!("late writes: {why:?}"))
    }

    /// Writes that reached a file under its final name, below a folder `dst`: nobody may change a
    /// file that others take for complete.
    pub fn writes_to_final_names(&self) -> Vec<String> {
        self.tables.writes_to_final_names()
    }

    /// Bytes that the node has written to files below a folder `dst`, under whatever name.
    pub fn written_bytes(&self) -> u64 {
        self.tables.written_bytes()
    }

    /// The node is about to be killed: its processes must not wait for storage.
    pub(crate) fn end(&self) {
        self.state.set(Line::Ended);
    }
}

impl Drop for Storage {
    fn drop(&mut self) {
        self.end();
    }
}

impl State {
    fn set(&self, line: Line) {
        *self.locked() = line;
        self.changed.notify_all();
    }

    fn locked(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_cut(&self) -> bool {
        *self.locked() == Line::Cut
    }

    fn is_ended(&self) -> bool {
        *self.locked() == Line::Ended
    }

    /// Waits while it is cut; false where the node is dead.
    fn pass(&self) -> bool {
        self.pass_unless(&[Line::Cut])
    }

    fn pass_to_read(&self) -> bool {
        self.pass_unless(&[Line::Cut, Line::ReadsWait])
    }

    fn pass_unless(&self, waits: &[Line]) -> bool {
        let mut line = self.locked();
        while waits.contains(&*line) {
            line = self.changed.wait(line).unwrap_or_else(PoisonError::into_inner);
        }
        *line != Line::Ended
    }
}

/// Moves the calling thread into a mount namespace.
#[allow(unsafe_code, reason = "the kernel offers it as a raw call only")]
fn enter(namespace: &File) -> io::Result<()> {
    // SAFETY: the thread stops sharing its root and current folder with others, and nothing else.
    unsafe { unshare_unsafe(UnshareFlags::FS) }?;
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Mount))?;
    Ok(())
}
