//! Why an object is copied: how it differs from what has its name at the destination.

use crate::settings::choice;

choice!(
    /// One thing in which the two differ.
    Change {
        Kind = "kind",
        Size = "size",
        Time = "time",
        Contents = "contents",
        Mode = "mode",
        Owner = "owner",
    }
);

/// Some of these.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changes(u8);

impl Changes {
    pub const NONE: Changes = Changes(0);

    pub fn of(all: impl IntoIterator<Item = Change>) -> Changes {
        Changes(all.into_iter().fold(0, |code, change| code | 1 << change as u8))
    }

    pub fn from_code(code: u8) -> Option<Changes> {
        (code < 1 << Change::ALL.len()).then_some(Changes(code))
    }

    pub fn code(self) -> u8 {
        self.0
    }

    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub fn has(self, change: Change) -> bool {
        self.0 & 1 << change as u8 != 0
    }

    pub fn and(self, others: Changes) -> Changes {
        Changes(self.0 | others.0)
    }

    pub fn iter(self) -> impl Iterator<Item = Change> {
        Change::ALL.iter().copied().filter(move |change| self.has(*change))
    }
}

/// Why an object is copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reason {
    /// Nothing has its name.
    #[default]
    New,
    /// Something has, and differs in this; in nothing where it is replaced whatever it is.
    Changed(Changes),
}

impl Reason {
    /// `new`, or what differs.
    pub fn words(self) -> Vec<&'static str> {
        match self {
            Reason::New => vec!["new"],
            Reason::Changed(changes) => changes.iter().map(Change::name).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_have_a_code_and_words() {
        let some = Changes::of([Change::Time, Change::Size]);
        assert_eq!(Changes::from_code(some.code()), Some(some));
        assert_eq!(Reason::Changed(some).words(), ["size", "time"]);
        assert_eq!(Reason::New.words(), ["new"]);
        assert!(Reason::Changed(Changes::NONE).words().is_empty());
        assert_eq!(Changes::from_code(1 << 6), None);
    }
}
