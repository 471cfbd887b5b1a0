//! Owners, extended attributes and access control lists: reading and setting them.

use std::ffi::OsStr;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::Path;

use rustix::fs::{AtFlags, Gid, Uid, XattrFlags};
use rustix::io::Errno;

use base::attributes::{Attributes, Xattr};
use base::owners::Owner;

/// Something that the file system or its permissions refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    pub what: What,
    /// The attribute's name.
    pub name: Vec<u8>,
    pub errno: Errno,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum What {
    Owner,
    Attribute,
    AccessList,
    /// The root of the destination.
    Root,
    /// The sync of the names in a folder.
    Names,
    /// The name under which a file is kept until it is complete.
    Temporary,
    /// Its digests, as attributes.
    Digests,
    Mode,
    Time,
    /// Who has made a file.
    WhoMade,
    /// A name that must be new.
    NewName,
    /// Another name of a file.
    HardLink,
}

impl What {
    /// What is not preserved then, and what helps.
    pub fn text(self) -> &'static str {
        match self {
            What::Owner => {
                "owner and group are not kept; only root can give files to others: run the \
                 destination's side as root"
            }
            What::Attribute => {
                "extended attributes are not kept: they need a file system that has them, with \
                 room for them, and root for some"
            }
            What::AccessList => {
                "access control lists are not kept: they need a file system that has them"
            }
            What::Digests => {
                "digests are in no extended attributes, only in the receipt: attributes need a \
                 file system that has them, with room for them"
            }
            What::Mode => {
                "permissions are not kept: the file system has none, or does not let this user \
                 change them"
            }
            What::Time => {
                "times are not kept: the file system has none for it, or does not let this user \
                 change them; --skip-unchanged copies again what has another time"
            }
            What::WhoMade => {
                "the file system does not say whose a file is, so what an earlier copy left is \
                 taken for ours: whoever else may write here could have changed it"
            }
            What::NewName => {
                "the file system can neither rename without replacing nor make hard links, so each \
                 name is looked at before it is taken: one that another program makes in that \
                 moment is replaced"
            }
            What::HardLink => {
                "second names of files are files of their own: the file system has no hard links"
            }
            What::Root => "it belongs to somebody else and keeps its own mode and time",
            What::Temporary => {
                "somebody else has taken the name that this copy would keep it under until it is \
                 complete: it has another one, by which another run could not go on with it"
            }
            What::Names => {
                "new names in it may not outlast a loss of power: it can be written to but not \
                 read, and its file system has no files without a name to sync it by"
            }
        }
    }
}

/// Attributes that are copied: the kernel generates the others, or they say where a file lies.
fn is_copied(name: &[u8]) -> bool {
    let spaces: [&[u8]; 3] = [b"user.", b"trusted.", b"security."];
    is_access_list(name)
        || spaces.iter().any(|space| name.starts_with(space)) && !is_of_file_system(name)
}

/// Attributes that belong to a file system, to a kernel or to a host, not to a file: as such a
/// name, or as what begins like this.
fn is_of_file_system(name: &[u8]) -> bool {
    STAYS.iter().any(|(known, _)| match known.strip_suffix(b"*") {
        Some(start) => name.starts_with(start),
        None => name == *known,
    })
}

/// Each with the reason. `/etc/xattr.conf`, which `cp` and `getfattr` come with, says `skip` to
/// those marked with it; its `afs.*` and `xfsroot.*` are in no space that is copied.
const STAYS: &[(&[u8], &str)] = &[
    (b"trusted.SGI_ACL_FILE", "skip: XFS keeps system.posix_acl_access in it, with numbers of ids"),
    (b"trusted.SGI_ACL_DEFAULT", "skip: and system.posix_acl_default"),
    (b"trusted.SGI_CAP_FILE", "skip: XFS of IRIX"),
    (b"trusted.SGI_DMI_*", "skip: XFS, of hierarchical storage"),
    (b"trusted.SGI_MAC_FILE", "skip: XFS of IRIX"),
    (b"user.Beagle.*", "skip: an index of file contents"),
    (b"security.evm", "skip: only the kernel may write it"),
    (b"security.selinux", "the policy of a host says it by where a file lies"),
    (b"trusted.overlay.*", "overlayfs: whiteouts, redirects and origins, by inode numbers"),
    (b"user.overlay.*", "the same, where it is mounted with userxattr"),
];

fn is_access_list(name: &[u8]) -> bool {
    name == b"system.posix_acl_access" || name == b"system.posix_acl_default"
}

/// The extended attributes of `path`; a link is not followed.
pub fn read(path: &Path) -> Result<Vec<Xattr>, Errno> {
    let mut found = Vec::new();
    let bytes = match rustix::fs::llistxattr_query(path) {
        Ok(0) | Err(Errno::NOTSUP) => return Ok(found),
        Ok(bytes) => bytes,
        Err(errno) => return Err(errno),
    };
    let mut names = vec![0; bytes];
    let count = rustix::fs::llistxattr(path, &mut names[..])?;
    for name in names[..count].split(|byte| *byte == 0).filter(|name| is_copied(name)) {
        match read_one(path, name) {
            Ok(value) => found.push((name.to_vec(), value)),
            // Removed in the meantime, or not readable for this user.
            Err(Errno::NODATA | Errno::PERM | Errno::ACCESS | Errno::NOTSUP) => {}
            Err(errno) => return Err(errno),
        }
    }
    found.sort();
    Ok(found)
}

fn read_one(path: &Path, name: &[u8]) -> Result<Vec<u8>, Errno> {
    let mut value = vec![0; rustix::fs::lgetxattr_query(path, name)?];
    let count = rustix::fs::lgetxattr(path, name, &mut value[..])?;
    value.truncate(count);
    Ok(value)
}

/// Sets the attributes of a file, and removes those that its source does not have, such as an
/// inherited access control list. Returns what was refused; the rest is done.
pub fn give(file: BorrowedFd<'_>, attributes: &Attributes) -> Vec<Refused> {
    let mut refused = Vec::new();
    let mut tried = |name: &[u8], result: Result<(), Errno>| {
        let what = if is_access_list(name) { What::AccessList } else { What::Attribute };
        if let Err(errno) = result {
            refused.push(Refused { what, name: name.to_vec(), errno });
        }
    };
    for name in surplus(file, attributes) {
        tried(&name, rustix::fs::fremovexattr(file, &name[..]));
    }
    // A source may be of another version, or lie.
    for (name, value) in attributes.xattrs.iter().filter(|(name, _)| is_copied(name)) {
        tried(name, rustix::fs::fsetxattr(file, &name[..], value, XattrFlags::empty()));
    }
    refused
}

/// Sets the attributes of a new symbolic link in this folder. No call takes the folder and a name:
/// its path leads through the descriptor, and the last name is not followed.
pub fn give_link(folder: BorrowedFd<'_>, link: &OsStr, attributes: &Attributes) -> Vec<Refused> {
    let path = Path::new("/proc/self/fd").join(folder.as_raw_fd().to_string()).join(link);
    let set = |(name, value): &Xattr| {
        let set = rustix::fs::lsetxattr(&path, &name[..], value, XattrFlags::empty());
        set.err().map(|errno| Refused { what: What::Attribute, name: name.clone(), errno })
    };
    attributes.xattrs.iter().filter(|(name, _)| is_copied(name)).filter_map(set).collect()
}

/// Sets the owner of what `name` is in this folder, or of the open file itself where it is empty;
/// a link is not followed. A user who is not root can still set a group that they belong to.
pub fn give_owner(at: BorrowedFd<'_>, name: &OsStr, owner: Owner) -> Result<(), Errno> {
    let (user, group) = (owner.user.map(Uid::from_raw), owner.group.map(Gid::from_raw));
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::EMPTY_PATH;
    match rustix::fs::chownat(at, name, user, group, flags) {
        Err(Errno::PERM) if user.is_some() && group.is_some() => {
            let _ = rustix::fs::chownat(at, name, None, group, flags);
            Err(Errno::PERM)
        }
        result => result,
    }
}

fn surplus(file: BorrowedFd<'_>, attributes: &Attributes) -> Vec<Vec<u8>> {
    let bytes = rustix::fs::flistxattr_query(file).unwrap_or(0);
    let mut names = vec![0; bytes];
    let count = match bytes {
        0 => 0,
        _ => rustix::fs::flistxattr(file, &mut names[..]).unwrap_or(0),
    };
    let ours =
        |name: &&[u8]| (name.starts_with(b"user.") && is_copied(name)) || is_access_list(name);
    let wanted = |name: &[u8]| attributes.xattrs.iter().any(|(known, _)| known == name);
    let names = names[..count].split(|byte| *byte == 0).filter(ours);
    names.filter(|name| !wanted(name)).map(<[u8]>::to_vec).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_belongs_to_a_file_system_stays() {
        let cases = [
            ("user.a", true),
            ("user.overlay.opaque", false),
            ("user.overlayx", true),
            ("user.Beagle.Uid", false),
            ("trusted.k", true),
            ("trusted.SGI_ACL_FILE", false),
            ("trusted.SGI_ACL_DEFAULT", false),
            ("trusted.SGI_ACL_FILES", true),
            ("trusted.SGI_DMI_x", false),
            ("trusted.overlay.redirect", false),
            ("security.capability", true),
            ("security.ima", true),
            ("security.evm", false),
            ("security.selinux", false),
            ("system.posix_acl_access", true),
            ("system.posix_acl_default", true),
            ("system.nfs4_acl", false),
            ("xfsroot.a", false),
            ("afs.acl", false),
        ];
        for (name, expect) in cases {
            assert_eq!(is_copied(name.as_bytes()), expect, "{name}");
        }
    }
}
