//! Files that do not report their size: the kernel generates them when they are read, below
//! `/proc`, `/sys` and the like. They report 0, or a page; their size is what a reader finds.

use std::os::fd::BorrowedFd;

use rustix::io::Errno;

/// A larger file is neither a setting nor a table: reading it may never end.
const SIZE_BYTES_MAX: u64 = 16 << 20;

/// The size that a reader finds.
pub(super) fn size(fd: BorrowedFd<'_>) -> Result<u64, Errno> {
    let mut bytes = vec![0; READ_BYTES];
    let mut size = 0;
    loop {
        match read_at(fd, &mut bytes, size)? {
            0 => return Ok(size),
            count => size += count as u64,
        }
        if size > SIZE_BYTES_MAX {
            return Err(Errno::FBIG);
        }
    }
}

/// True for a file that does not report its size, has been read this far, and ends here. Its last
/// byte is not read again: a setting can be read only from its beginning.
pub(crate) fn ends_at(fd: BorrowedFd<'_>, size: u64) -> Result<bool, Errno> {
    if !is_unsized(fd)? {
        return Ok(false);
    }
    Ok(read_at(fd, &mut [0], size)? == 0)
}

fn read_at(fd: BorrowedFd<'_>, into: &mut [u8], at: u64) -> Result<usize, Errno> {
    loop {
        match rustix::io::pread(fd, &mut *into, at) {
            Err(Errno::INTR) => {}
            read => return read,
        }
    }
}

/// True for a file on a file system that does not report sizes.
pub(crate) fn is_unsized(fd: BorrowedFd<'_>) -> Result<bool, Errno> {
    Ok(UNTOLD_MAGICS.contains(&(rustix::fs::fstatfs(fd)?.f_type as u64)))
}

const READ_BYTES: usize = 64 << 10;

/// File systems of the kernel's own (`linux/magic.h`).
const UNTOLD_MAGICS: [u64; 9] = [
    0x9fa0,      // proc
    0x6265_6572, // sysfs
    0x6462_6720, // debugfs
    0x7472_6163, // tracefs
    0x7363_6673, // securityfs
    0x6367_7270, // cgroup2
    0x0027_e0eb, // cgroup
    0x6265_6570, // configfs
    0xf97c_ff8c, // selinux
];
