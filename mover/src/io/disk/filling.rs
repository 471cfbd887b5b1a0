//! Writing whole files and zeros, and checking small files.

use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};

use crate::io::call::Call;
use crate::io::disk::calls::{is_still, status_from, umask};
use crate::io::disk::{Disk, ZEROS_BYTES};
use crate::io::holes;
use crate::io::request::ExtraPiece;
use crate::io::volume::{Access, Cache, Handle, Segment, Status, Volume, changed};
use base::fault::Fault;
use rustix::fs::{OFlags, SeekFrom};
use rustix::io::Errno;

impl Disk {
    /// The mode that a small file is created with, and whether it keeps that. All of its bytes have
    /// been checked before it is created, so nothing is gained by closing it to others until it has
    /// its name, except where owner or attributes follow.
    pub(super) fn first_mode(&self, segment: &Segment) -> (u32, bool) {
        let meta = &segment.meta;
        if meta.mtime.is_none() && !meta.owner.is_kept() {
            return (meta.mode, true);
        }
        let is_plain = meta.attributes.is_none()
            && !meta.owner.is_kept()
            && meta.mode & (umask() | !0o777) == 0;
        let is_exact = is_plain
            && self.parent(&segment.path).is_ok_and(|(parent, _)| !parent.may_change_modes());
        if is_exact { (meta.mode, true) } else { (0o600, false) }
    }

    /// Writes a small file with its metadata and digests, and says what it is then.
    pub(super) fn write_whole(
        &self,
        segment: &Segment,
        from: &[u8],
        extra: Option<&ExtraPiece>,
    ) -> Result<Status, Fault> {
        let path = &segment.path;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        let (mode, has_mode) = self.first_mode(segment);
        let open = || self.open_in_parent(path, flags, mode);
        let opened = match open() {
            // Left by an earlier run, under a name that only we use.
            Err(Errno::EXIST) => {
                let _ = self.remove(path);
                open()
            }
            opened => opened,
        };
        let fd = opened.map_err(|errno| self.fault(Call::Create, path, errno))?;
        self.fill(&fd, segment, from).map_err(|errno| self.fault(Call::Write, path, errno))?;
        match (segment.meta.mtime, has_mode) {
            (None, true) => Ok(()),
            (Some(mtime), true) => self.give_time(fd.as_fd(), path, mtime),
            (_, false) => self.give_metadata(fd.as_fd(), path, &segment.meta),
        }
        .and_then(|()| match extra.filter(|extra| !extra.sums.is_empty()) {
            Some(extra) => self.record_digests(fd.as_fd(), path, &extra.sums, segment.meta.mtime),
            None => Ok(()),
        })
        .map_err(|errno| self.fault(Call::SetMetadata, path, errno))?;
        rustix::fs::fstat(&fd)
            .map(|stat| status_from(&stat))
            .map_err(|errno| self.fault(Call::LookAt, path, errno))
    }

    /// Writes a new file; blocks of zeros become holes where that is asked.
    pub(super) fn fill(&self, fd: &OwnedFd, segment: &Segment, from: &[u8]) -> Result<(), Errno> {
        let mut at = 0;
        while at < from.len() {
            let run = match segment.sparse {
                false => at..from.len(),
                true => match holes::next_data(from, at) {
                    Some(run) => run,
                    None => break,
                },
            };
            at = run.start;
            while at < run.end {
                match rustix::io::pwrite(fd, &from[at..run.end], at as u64) {
                    Ok(count) => at += count,
                    Err(Errno::INTR) => {}
                    Err(errno) => return Err(errno),
                }
            }
        }
        match segment.sparse {
            true => rustix::fs::ftruncate(fd, from.len() as u64),
            false => Ok(()),
        }
    }

    /// Writes zeros over the data in a range, where no hole can be made. They go through the page
    /// cache: the end of a file is not aligned to blocks.
    pub(super) fn fill_with_zeros(
        &self,
        file: &Handle,
        path: &[u8],
        stretch: Range<u64>,
    ) -> Result<(), Fault> {
        let through = self.open(path, Access::Resume { cache: Cache::Through })?;
        let zeros = vec![0; ZEROS_BYTES];
        let mut at = stretch.start;
        while let Some(from) = self.next_data(file, path, at)?.filter(|from| *from < stretch.end) {
            let hole = match rustix::fs::seek(file.fd(), SeekFrom::Hole(from)) {
                Ok(hole) => hole,
                Err(Errno::INVAL | Errno::OPNOTSUPP | Errno::NXIO) => stretch.end,
                Err(errno) => return Err(self.fault(Call::FindData, path, errno)),
            };
            let end = hole.min(stretch.end).min(from + ZEROS_BYTES as u64);
            self.append(&through, path, from, &zeros[..(end - from) as usize])?;
            at = end;
        }
        Ok(())
    }

    pub(super) fn check_small(&self, fd: &OwnedFd, segment: &Segment) -> Result<(), Fault> {
        let still = is_still(fd.as_fd(), u64::from(segment.len), segment.meta.mtime);
        match still.map_err(|errno| self.fault(Call::LookAt, &segment.path, errno))? {
            true => Ok(()),
            false => Err(changed(self, &segment.path)),
        }
    }
}
