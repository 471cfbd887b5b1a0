//! What a volume can be asked to do, and what a failure of it means: the call and the error number
//! decide that, never a message.

use std::io;
use std::path::Path;

use base::fault::{Class, Fault};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Call {
    Open,
    LookAt,
    Read,
    ReadLink,
    /// Finds where a file has data.
    FindData,
    Create,
    /// Opens an existing file to write the parts that are missing.
    Resume,
    Reserve,
    /// Frees the space of a range, which then reads as zeros.
    MakeHole,
    MakeDirectory,
    SetMode,
    MakeLink,
    SetLinkTime,
    MakeHardLink,
    SetLength,
    SetMetadata,
    OpenDirectory,
    Sync,
    SyncDirectory,
    Rename,
    Remove,
    /// Moves it to a folder for backups.
    Move,
    /// Reads the names in a directory.
    List,
    Lock,
    Write,
    FreeSpace,
}

impl Call {
    pub const ALL: [Call; 26] = [
        Call::Open,
        Call::LookAt,
        Call::Read,
        Call::ReadLink,
        Call::FindData,
        Call::Create,
        Call::Resume,
        Call::Reserve,
        Call::MakeHole,
        Call::MakeDirectory,
        Call::SetMode,
        Call::MakeLink,
        Call::SetLinkTime,
        Call::MakeHardLink,
        Call::SetLength,
        Call::SetMetadata,
        Call::OpenDirectory,
        Call::Sync,
        Call::SyncDirectory,
        Call::Rename,
        Call::Remove,
        Call::Move,
        Call::List,
        Call::Lock,
        Call::Write,
        Call::FreeSpace,
    ];

    /// The words between "cannot" and a path.
    pub fn text(self) -> &'static str {
        match self {
            Call::Open | Call::Resume => "open",
            Call::LookAt => "look at",
            Call::Read => "read",
            Call::ReadLink => "read the link",
            Call::FindData => "look for holes in",
            Call::Create => "create",
            Call::Reserve => "reserve room for",
            Call::MakeHole => "make a hole in",
            Call::MakeDirectory => "make the directory",
            Call::SetMode => "set the mode of",
            Call::MakeLink => "make the link",
            Call::SetLinkTime => "set the time of the link",
            Call::MakeHardLink => "make another name of",
            Call::SetLength => "set the length of",
            Call::SetMetadata => "set mode and time of",
            Call::OpenDirectory => "open the directory",
            Call::Sync => "sync",
            Call::SyncDirectory => "sync the directory of",
            Call::Rename => "give its name to",
            Call::Remove => "remove",
            Call::Move => "move to --backup-dir",
            Call::List => "list",
            Call::Lock => "lock",
            Call::Write => "write",
            Call::FreeSpace => "ask for the free space of",
        }
    }

    /// True for calls that a source makes too: their failure concerns one file. A failure of any
    /// other call concerns the disk that is written to.
    pub(crate) fn only_reads(self) -> bool {
        use Call::{FindData, List, LookAt, Open, Read, ReadLink};
        matches!(self, Open | LookAt | Read | ReadLink | FindData | List)
    }

    /// True for calls to which EXDEV means what its name says. To others it means that a path
    /// leaves the folder that it may not leave (`RESOLVE_BENEATH`).
    fn needs_one_file_system(self) -> bool {
        matches!(self, Call::Rename | Call::Move | Call::MakeHardLink)
    }

    /// Who must act when this fails. A disk with an I/O error counts as full: the next write fails
    /// too.
    pub fn class_of(self, errno: i32) -> Class {
        match errno {
            libc::ENOSPC | libc::EDQUOT | libc::EROFS | libc::EIO if !self.only_reads() => {
                Class::NoSpace
            }
            _ => Class::Local,
        }
    }

    pub fn fault(self, path: &Path, errno: i32) -> Fault {
        let class = self.class_of(errno);
        if errno == libc::EXDEV && !self.needs_one_file_system() {
            let (doing, path) = (self.text(), path.display());
            let text = format!(
                "cannot {doing} '{path}': a link is in the place of a folder above it, and leads \
                 out of the destination: remove the link"
            );
            return Fault::new(class, text);
        }
        if errno == libc::ESPIPE && self == Call::Write {
            let text = format!(
                "cannot write '{}': the file system takes the bytes of a file only in their order; \
                 mount it with a cache (rclone mount: --vfs-cache-mode writes)",
                path.display()
            );
            return Fault::new(class, text);
        }
        let fault = Fault::io(self.text(), path, &io::Error::from_raw_os_error(errno));
        Fault { class, ..fault }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_whole() {
        let mut sorted = Call::ALL;
        sorted.sort_unstable();
        assert_eq!(sorted, Call::ALL, "in the order of the enum, so none is there twice");
        assert_eq!(Call::ALL.len(), Call::FreeSpace as usize + 1);
    }

    #[test]
    fn bytes_that_must_come_in_their_order_say_so() {
        let says = |call: Call| call.fault(Path::new("/a"), libc::ESPIPE).text;
        assert!(says(Call::Write).ends_with("(rclone mount: --vfs-cache-mode writes)"));
        assert_eq!(says(Call::Read), "cannot read '/a': illegal seek");
    }

    /// The error's number and the call decide, one by one.
    #[test]
    fn what_a_failure_means() {
        let ends = [libc::ENOSPC, libc::EDQUOT, libc::EROFS, libc::EIO];
        let goes_on = [libc::EACCES, libc::EPERM, libc::ENOENT, libc::EMFILE, libc::EFBIG];
        let reading =
            [Call::Open, Call::LookAt, Call::Read, Call::ReadLink, Call::FindData, Call::List];
        for call in Call::ALL {
            for errno in ends.iter().chain(&goes_on).copied() {
                let fault = call.fault(Path::new("/a"), errno);
                let expect = ends.contains(&errno) && !reading.contains(&call);
                assert_eq!(fault.ends_transfer(), expect, "{call:?} {errno}: {fault}");
                assert!(fault.text.starts_with(&format!("cannot {} '/a': ", call.text())));
            }
        }
    }
}
