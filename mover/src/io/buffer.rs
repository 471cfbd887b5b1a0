//! Memory that requests travel in: aligned for direct I/O, with room in front and behind.
//!
//! ```text
//! | headroom 4096 | body, whole blocks | tailroom: voids or digests, the seal's tag |
//! ```

use std::fmt;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

use base::limits::{BLOCK_BYTES, HEADROOM_BYTES};

/// An owned range of aligned memory. It never moves, so it can be registered with the kernel.
pub struct Buffer {
    start: NonNull<u8>,
    len: usize,
    /// The index of the registered buffer, where a ring has it.
    pub fixed: Option<u16>,
    /// The mapping that it is a part of.
    _memory: Arc<Memory>,
}

impl Buffer {
    /// Room for a body of `body_bytes`, its header, and what a seal adds to both.
    pub fn new(body_bytes: u32) -> Buffer {
        let len = Buffer::total_bytes(body_bytes);
        let memory = Arc::new(Memory::map(len, Pages::Usual));
        Buffer { start: memory.start, len, fixed: None, _memory: memory }
    }

    /// `count` buffers side by side, in huge pages where they fill one: a disk then takes a request
    /// in one piece instead of page by page.
    pub fn several(count: usize, body_bytes: u32) -> Vec<Buffer> {
        let len = Buffer::total_bytes(body_bytes);
        let bytes = Buffer::several_bytes(count, body_bytes);
        let pages = if bytes >= HUGE_BYTES { Pages::Huge } else { Pages::Usual };
        let memory = Arc::new(Memory::map(bytes.max(len), pages));
        let buffer = |index: usize| {
            // SAFETY: `index` is below `count`, so the start lies within the `bytes` mapped.
            let start = unsafe { memory.start.add(index * len) };
            Buffer { start, len, fixed: None, _memory: memory.clone() }
        };
        (0..count).map(buffer).collect()
    }

    /// What `several` takes: whole huge pages, unless most of one would be wasted.
    pub(crate) fn several_bytes(count: usize, body_bytes: u32) -> usize {
        let bytes = count * Buffer::total_bytes(body_bytes);
        match bytes >= HUGE_BYTES / 2 {
            true => bytes.next_multiple_of(HUGE_BYTES),
            false => bytes,
        }
    }

    /// What several buffers take at most besides their own bytes.
    pub(crate) const ROUNDING_BYTES: u64 = HUGE_BYTES as u64;

    /// The size of one buffer: a block behind the body holds the void list, the map or the digests,
    /// a block more the tag of the seal.
    pub(crate) fn total_bytes(body_bytes: u32) -> usize {
        let block = BLOCK_BYTES as usize;
        let body = (body_bytes as usize).next_multiple_of(block);
        HEADROOM_BYTES as usize + body + 2 * block
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        false
    }

    pub fn bytes(&self) -> &[u8] {
        // SAFETY: `len` bytes from `start` on are mapped as long as `_memory` lives, zeros from the
        // beginning, and no other buffer has any of them.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as `bytes`, and `&mut self` makes the borrow exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }

    pub fn address(&self) -> *mut u8 {
        self.start.as_ptr()
    }
}

// SAFETY: no other buffer has this part of the memory, and its bytes are plain.
unsafe impl Send for Buffer {}

/// A memory mapping; buffers are cut out of it.
struct Memory {
    mapped: NonNull<u8>,
    mapped_bytes: usize,
    /// The first byte of the first buffer.
    start: NonNull<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Pages {
    Usual,
    Huge,
}

/// A huge page of x86-64, and of arm64 with pages of 4 KiB.
const HUGE_BYTES: usize = 2 << 20;

impl Memory {
    fn map(bytes: usize, pages: Pages) -> Memory {
        // Kernels before 6.7 begin a mapping at any page; what lies before `start` is never touched
        // and takes no memory.
        let spare = if pages == Pages::Huge { HUGE_BYTES } else { 0 };
        let mapped_bytes = bytes + spare;
        let (access, private) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: a new anonymous mapping at an address of the kernel's choice overlaps no other
        // memory.
        let mapped = unsafe { mmap_anonymous(null_mut(), mapped_bytes, access, private) };
        let mapped = mapped.unwrap_or_else(|why| {
            panic!("the system gives no {bytes} bytes for buffers: {why}; lower --memory")
        });
        let mapped = NonNull::new(mapped.cast::<u8>()).expect("no mapping begins at address 0");
        let skip = if spare > 0 { mapped.as_ptr().align_offset(HUGE_BYTES) } else { 0 };
        // SAFETY: `skip` is below HUGE_BYTES, which is how much more has been mapped.
        let start = unsafe { mapped.add(skip) };
        if pages == Pages::Huge {
            // SAFETY: the range lies in our own mapping. On a system without huge pages the call
            // fails, and usual ones are used.
            let _ = unsafe { madvise(start.as_ptr().cast(), bytes, Advice::LinuxHugepage) };
        }
        Memory { mapped, mapped_bytes, start }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: mapped in `map` with exactly this length; the last buffer in it is gone.
        let unmapped = unsafe { munmap(self.mapped.as_ptr().cast(), self.mapped_bytes) };
        debug_assert!(unmapped.is_ok());
    }
}

// SAFETY: only addresses are kept here; the bytes are reached through the buffers, which do not
// overlap.
unsafe impl Send for Memory {}
// SAFETY: as above; nothing of it changes before it is dropped.
unsafe impl Sync for Memory {}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({} bytes)", self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn side_by_side_and_apart() {
        for (count, body_bytes) in [(1, 1), (2, 4096), (3, 100_000), (6, 1 << 20), (40, 65_536)] {
            let mut buffers = Buffer::several(count, body_bytes);
            assert_eq!(buffers.len(), count);
            for (mark, buffer) in buffers.iter_mut().enumerate() {
                assert_eq!(buffer.len(), Buffer::total_bytes(body_bytes));
                assert_eq!(buffer.address().align_offset(BLOCK_BYTES as usize), 0);
                assert!(buffer.bytes().iter().all(|byte| *byte == 0));
                buffer.bytes_mut().fill(mark as u8 + 1);
            }
            // The others stay when one is dropped.
            buffers.remove(0);
            for (mark, buffer) in buffers.iter().enumerate() {
                assert!(buffer.bytes().iter().all(|byte| *byte == mark as u8 + 2));
            }
            let bytes = Buffer::several_bytes(count, body_bytes);
            assert!((count * Buffer::total_bytes(body_bytes)..).contains(&bytes));
        }
        assert!(Buffer::several(0, 4096).is_empty());
    }
}
