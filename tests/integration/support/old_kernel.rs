//! A system whose calls are those of Linux 4.18, the oldest that is supported: no `io_uring`, no
//! `openat2`, no `cachestat`, and no other call that is newer.

#![allow(unsafe_code, reason = "a filter of system calls is set between fork and exec")]

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// For the program and its children the newer calls return that they do not exist.
pub(crate) fn without_newer_calls(command: &mut Command) {
    // SAFETY: between fork and exec the closure makes system calls only, and takes no lock.
    unsafe { command.pre_exec(refuse_newer_calls) };
}

/// From here on all architectures share numbers: Linux 5.1 was the first to give one out, and
/// every call before it has a lower number.
const FIRST_NEWER: u32 = 424;

fn refuse_newer_calls() -> io::Result<()> {
    let step = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
    let nosys = libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32;
    let mut steps = [
        // The first word of a seccomp filter's input is the number of the call.
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        step(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, 0, 1, FIRST_NEWER),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, nosys),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let filter = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
    // SAFETY: the pointers are to structures that live until the calls are over.
    let refused = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter) == 0
            && libc::syscall(libc::SYS_openat2, -1, 0, 0, 0) == -1
            && *libc::__errno_location() == libc::ENOSYS
    };
    match refused {
        true => Ok(()),
        false => Err(io::Error::other("the call is not refused")),
    }
}
