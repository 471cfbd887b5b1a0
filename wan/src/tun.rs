//! Kernel features that need raw calls: a TUN device, a thread's own namespace, real-time
//! scheduling, a command that starts in a namespace. All `unsafe` of this crate is here.

#![allow(unsafe_code, reason = "the kernel offers these as raw calls only")]

use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::ioctl::{Updater, ioctl};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};

/// `struct ifreq` as `TUNSETIFF` reads it: a name, flags, and padding.
#[repr(C)]
struct Request {
    name: [u8; 16],
    flags: i16,
    room: [u8; 22],
}

const _: () = assert!(size_of::<Request>() == size_of::<libc::ifreq>());

/// A new TUN device in the calling thread's network namespace: whole IP packets without offloads,
/// so that each has the size that it would have on a wire.
pub(crate) fn open(name: &str) -> io::Result<OwnedFd> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(libc::O_NONBLOCK);
    let device = OwnedFd::from(options.open("/dev/net/tun")?);
    let flags = (libc::IFF_TUN | libc::IFF_NO_PI) as i16;
    let mut request = Request { name: [0; 16], flags, room: [0; 22] };
    request.name[..name.len()].copy_from_slice(name.as_bytes());
    const SET_DEVICE: rustix::ioctl::Opcode = libc::TUNSETIFF as rustix::ioctl::Opcode;
    // SAFETY: TUNSETIFF reads and writes a struct ifreq, of whose size and layout the request is.
    unsafe { ioctl(&device, Updater::<SET_DEVICE, Request>::new(&mut request))? };
    Ok(device)
}

/// Moves the calling thread into a new network namespace.
pub(crate) fn leave_network() -> io::Result<()> {
    // SAFETY: a new network namespace takes nothing from other threads; only CLONE_FILES would.
    Ok(unsafe { unshare_unsafe(UnshareFlags::NEWNET) }?)
}

/// Makes a command start in this namespace.
pub(crate) fn begin_in(command: &mut Command, namespace: OwnedFd) {
    let enter = move || {
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
        Ok(())
    };
    // SAFETY: between fork and exec it makes one system call, which allocates and locks nothing.
    unsafe { command.pre_exec(enter) };
}

/// Schedules the calling thread before all ordinary ones (SCHED_FIFO): a link that waits for a CPU
/// is not the requested link. The kernel reserves 5 % of a CPU for other threads.
pub(crate) fn run_first() -> io::Result<()> {
    let priority = libc::sched_param { sched_priority: 1 };
    // SAFETY: 0 is the calling thread, and the kernel only reads the structure.
    match unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const priority) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
