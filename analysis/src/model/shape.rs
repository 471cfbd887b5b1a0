//! What is copied, as the numbers that the cost of a copy depends on.

use base::limits::DIRECT_BYTES_MIN;

/// Number of files and bytes. Files of 16 MiB and more bypass the page cache at a disk and never
/// share a request: their bytes have another cost.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Shape {
    pub files: u64,
    pub small_bytes: u64,
    pub large_bytes: u64,
}

/// The length from which the bytes of a file count as large.
pub(crate) const LARGE_FROM_BYTES: u64 = DIRECT_BYTES_MIN;

impl Shape {
    pub fn add(&mut self, file_bytes: u64) {
        self.files += 1;
        let bytes = match file_bytes < LARGE_FROM_BYTES {
            true => &mut self.small_bytes,
            false => &mut self.large_bytes,
        };
        *bytes = bytes.saturating_add(file_bytes);
    }

    pub fn bytes(&self) -> u64 {
        self.small_bytes.saturating_add(self.large_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_tell_large_from_small() {
        let mut shape = Shape::default();
        for bytes in [0, LARGE_FROM_BYTES - 1, LARGE_FROM_BYTES, u64::MAX] {
            shape.add(bytes);
        }
        assert_eq!(shape.files, 4);
        assert_eq!(shape.small_bytes, LARGE_FROM_BYTES - 1);
        assert_eq!(shape.bytes(), u64::MAX, "sums do not run over");
    }
}
