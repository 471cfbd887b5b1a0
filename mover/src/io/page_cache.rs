//! How much of a file is in the page cache.

use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::fs::{Access, AtFlags, CWD, accessat, fstat, fstatfs};

use super::system::{mapped_cached_bytes, stat_cached_bytes};

/// In whole pages; `None` where it is not known.
///
/// The pages of a file on overlayfs are those of the file below. A mapping leads to them;
/// `cachestat` does not, and finds none.
pub fn cached_bytes(file: BorrowedFd<'_>) -> Option<u64> {
    match fstatfs(file).is_ok_and(|of| of.f_type as u64 == OVERLAY) {
        true if may_ask(file) => by_places(file),
        true => None,
        false => stat_cached_bytes(file),
    }
}

/// To others than the owner and who may write a file the kernel says that all of it is there.
fn may_ask(file: BorrowedFd<'_>) -> bool {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    fstat(file).is_ok_and(|stat| stat.st_uid == rustix::process::geteuid().as_raw())
        || accessat(CWD, path, Access::WRITE_OK, AtFlags::EACCESS).is_ok()
}

/// A long file is looked at in some places, spread evenly: each page that is looked at takes time.
fn by_places(file: BorrowedFd<'_>) -> Option<u64> {
    let len = u64::try_from(fstat(file).ok()?.st_size).ok()?;
    let every = len.div_ceil(PLACES).next_multiple_of(PLACE_BYTES);
    let (mut looked_at, mut cached) = (0, 0);
    let mut at = 0;
    while at < len {
        let end = len.min(at + PLACE_BYTES);
        looked_at += end - at;
        cached += mapped_cached_bytes(file, at..end)?.min(end - at);
        at += every;
    }
    (looked_at > 0).then(|| (u128::from(cached) * u128::from(len) / u128::from(looked_at)) as u64)
}

/// Of `statfs(2)`.
const OVERLAY: u64 = 0x794c_7630;
const PLACES: u64 = 64;
const PLACE_BYTES: u64 = 4 << 20;

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd;

    use super::*;

    /// Both ways to ask see the same, of a file with data and holes and of a short one.
    #[test]
    fn a_mapping_sees_what_the_kernel_counts() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        for len in [1, 4096, 100_000, 9 << 20, 1 << 30] {
            std::fs::write(&path, vec![1; 100_000.min(len)]).unwrap();
            let file = File::options().read(true).write(true).open(&path).unwrap();
            file.set_len(len as u64).unwrap();
            let Some(counted) = stat_cached_bytes(file.as_fd()) else { return };
            let seen = by_places(file.as_fd()).unwrap();
            let whole = counted.min(len as u64);
            // Of the long one the place with the data stands for the stretch to the next place.
            let expect = if len > 256 << 20 { whole * 4 } else { whole };
            assert!(seen.abs_diff(expect) <= 4096, "{len}: {seen}, {counted} are counted");
        }
    }
}
