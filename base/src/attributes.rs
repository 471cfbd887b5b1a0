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
}

impl Attributes {
    /// Bytes that they take in an offer.
    pub fn bytes(&self) -> usize {
        let each = |(name, value): &Xattr| 4 + name.len() + value.len();
        10 + self.xattrs.iter().map(each).sum::<usize>()
    }
}
