//! What a file has besides bytes, mode and time.

/// An extended attribute's full name, such as `user.colour` or `system.posix_acl_access`, and its
/// value.
pub type Xattr = (Vec<u8>, Vec<u8>);

/// Owner, group and extended attributes; access control lists are among those.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    pub uid: u32,
    pub gid: u32,
    pub xattrs: Vec<Xattr>,
    /// The names of user and group at the source; empty where they have none, or were told before.
    pub user: Vec<u8>,
    pub group: Vec<u8>,
}

impl Attributes {
    pub fn has_names(&self) -> bool {
        !self.user.is_empty() || !self.group.is_empty()
    }

    /// Bytes that they take in an offer.
    pub fn bytes(&self) -> usize {
        let each = |(name, value): &Xattr| 4 + name.len() + value.len();
        14 + self.user.len() + self.group.len() + self.xattrs.iter().map(each).sum::<usize>()
    }
}
