//! Memory that requests travel in: aligned for direct I/O, with room in front and behind.
//!
//! ```text
//! | headroom 4096 | body, whole blocks | tailroom: padding, voids, TLS overhead |
//! ```

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::fmt;
use std::ptr::NonNull;

use crate::base::limits::{BLOCK_BYTES, HEADROOM_BYTES};

/// An owned stretch of aligned memory. It stays where it is for its whole life, so the kernel may
/// know it.
pub struct Buffer {
    memory: NonNull<u8>,
    layout: Layout,
    /// Which registered buffer this is, where a ring knows it.
    pub fixed: Option<u16>,
}

impl Buffer {
    /// Room for a body of `body_bytes`, its header, and what TLS adds to both.
    pub fn new(body_bytes: u32) -> Buffer {
        let layout = Layout::from_size_align(Buffer::total_bytes(body_bytes), BLOCK_BYTES as usize)
            .expect("a buffer of a permitted size");
        // SAFETY: the layout's size is not zero: it holds at least the headroom.
        let memory = unsafe { alloc_zeroed(layout) };
        let Some(memory) = NonNull::new(memory) else { handle_alloc_error(layout) };
        Buffer { memory, layout, fixed: None }
    }

    /// What one buffer takes. A TLS record of 16 KiB adds 22 bytes; 1/512 of the body covers that,
    /// and a block more covers the header's record, two bytes a voided segment, and the padding of
    /// direct I/O.
    pub fn total_bytes(body_bytes: u32) -> usize {
        let block = BLOCK_BYTES as usize;
        let body = (body_bytes as usize).next_multiple_of(block);
        HEADROOM_BYTES as usize + body + (body / 512).next_multiple_of(block) + block
    }

    pub fn len(&self) -> usize {
        self.layout.size()
    }

    pub fn is_empty(&self) -> bool {
        false
    }

    pub fn bytes(&self) -> &[u8] {
        // SAFETY: `memory` is a live allocation of `layout.size()` initialised bytes that only we
        // own.
        unsafe { std::slice::from_raw_parts(self.memory.as_ptr(), self.layout.size()) }
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as `bytes`, and `&mut self` makes the borrow exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.memory.as_ptr(), self.layout.size()) }
    }

    pub fn address(&self) -> *mut u8 {
        self.memory.as_ptr()
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this very layout, and dropped once.
        unsafe { dealloc(self.memory.as_ptr(), self.layout) }
    }
}

// SAFETY: the memory is owned by this value alone; no other handle to it exists.
unsafe impl Send for Buffer {}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({} bytes)", self.len())
    }
}
