//! Digests of files in their extended attributes, where archives look for them.

use std::os::fd::BorrowedFd;

use crate::io::attributes::What;
use crate::io::clock;
use crate::io::disk::Disk;
use crate::io::volume::Mtime;
use base::extra::{ExtraDigest, ExtraSums, hex};
use rustix::fs::{Mode, XattrFlags, fsetxattr};
use rustix::io::Errno;

impl Disk {
    /// As text in `user.checksum.NAME`, and as XRootD has them in `user.XrdCks.NAME`. A file system
    /// without attributes is told once. `mtime` is the file's, where that is known.
    pub(super) fn record_digests(
        &self,
        file: BorrowedFd<'_>,
        path: &[u8],
        sums: &ExtraSums,
        mtime: Option<Mtime>,
    ) -> Result<(), Errno> {
        let mtime = match mtime {
            Some(mtime) => mtime.seconds,
            None => rustix::fs::fstat(file)?.st_mtime,
        };
        let recorded = match record(file, sums, mtime) {
            // Its mode allows nobody to write, not even its owner.
            Err(Errno::ACCESS) => {
                let mode = Mode::from_raw_mode(rustix::fs::fstat(file)?.st_mode & 0o7777);
                rustix::fs::fchmod(file, mode | Mode::WUSR)
                    .and_then(|()| record(file, sums, mtime))
                    .and(self.give_mode(path, || rustix::fs::fchmod(file, mode)))
            }
            recorded => recorded,
        };
        match recorded {
            // No room is most often no room for attributes, of which ext4 keeps one block for a
            // file: a disk that is full refuses the bytes of the next file.
            Err(errno @ (Errno::IO | Errno::ROFS)) => Err(errno),
            Err(errno) => {
                self.refuse(What::Digests, path, errno);
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }
}

fn record(file: BorrowedFd<'_>, sums: &ExtraSums, mtime: i64) -> Result<(), Errno> {
    let now = clock::unix().as_secs() as i64;
    for (kind, sum) in sums.iter() {
        let set = |name: String, value: &[u8]| fsetxattr(file, name, value, XattrFlags::empty());
        set(format!("user.checksum.{}", kind.name()), hex(sum).as_bytes())?;
        set(format!("user.XrdCks.{}", kind.name()), &of_xrootd(kind, sum, (mtime, now)))?;
    }
    Ok(())
}

/// What XRootD keeps of a digest: its name in 16 bytes, the time of the file that it is of, how
/// much later it was computed, 3 bytes that are reserved, the length of the digest, and 64 bytes
/// that begin with it. Numbers are big-endian.
fn of_xrootd(kind: ExtraDigest, sum: &[u8], (mtime, now): (i64, i64)) -> [u8; 96] {
    let mut value = [0; 96];
    value[..kind.name().len()].copy_from_slice(kind.name().as_bytes());
    value[16..24].copy_from_slice(&mtime.to_be_bytes());
    let later = now.saturating_sub(mtime).clamp(i32::MIN.into(), i32::MAX.into()) as i32;
    value[24..28].copy_from_slice(&later.to_be_bytes());
    value[31] = sum.len() as u8;
    value[32..32 + sum.len()].copy_from_slice(sum);
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn xrootd_finds_its_fields() {
        let value = of_xrootd(ExtraDigest::Adler32, &[1, 2, 3, 4], (0x1122_3344, 0x1122_3346));
        assert_eq!(value[..8], *b"adler32\0");
        assert_eq!(value[16..28], [0, 0, 0, 0, 0x11, 0x22, 0x33, 0x44, 0, 0, 0, 2]);
        assert_eq!(value[28..37], [0, 0, 0, 4, 1, 2, 3, 4, 0]);
    }
}
