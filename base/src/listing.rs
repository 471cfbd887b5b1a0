//! What a folder has, or a store below a prefix, for people who look.

use crate::settings::{Moment, choice};

choice!(
    /// What an item is.
    ItemKind {
        File = "file",
        Folder = "folder",
        Link = "link",
        /// A device, pipe or socket.
        Special = "special",
    }
);

/// One name in a folder, with what is known of it there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    pub name: Vec<u8>,
    pub kind: ItemKind,
    /// Of a file.
    pub bytes: Option<u64>,
    pub mtime: Option<Moment>,
    /// Permission bits.
    pub mode: Option<u32>,
    /// User and group, by their names there where they have some.
    pub owner: Option<(String, String)>,
    /// Of a symbolic link.
    pub link_target: Vec<u8>,
    /// Of a folder whose contents were counted.
    pub below: Option<Sum>,
}

/// Files, and the bytes in them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    pub files: u64,
    pub bytes: u64,
}

impl Sum {
    pub fn add(&mut self, other: Sum) {
        self.files += other.files;
        self.bytes += other.bytes;
    }
}

impl Item {
    /// A folder of which only the name is known.
    pub fn folder(name: Vec<u8>) -> Item {
        Item {
            name,
            kind: ItemKind::Folder,
            bytes: None,
            mtime: None,
            mode: None,
            owner: None,
            link_target: Vec::new(),
            below: None,
        }
    }

    /// What it adds to a sum.
    pub fn sum(&self) -> Sum {
        match self.kind {
            ItemKind::Folder => self.below.unwrap_or_default(),
            _ => Sum { files: 1, bytes: self.bytes.unwrap_or(0) },
        }
    }
}
