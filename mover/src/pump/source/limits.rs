//! Which files are copied by their size and time.

use base::settings::{Moment, Settings};

/// The limits of one transfer. Folders are in none of them: they are copied for what is in them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Limits {
    min_bytes: Option<u64>,
    max_bytes: Option<u64>,
    newer: Option<Moment>,
}

impl Limits {
    pub(crate) fn of(settings: &Settings) -> Limits {
        let &Settings { min_size: min_bytes, max_size: max_bytes, newer, .. } = settings;
        Limits { min_bytes, max_bytes, newer }
    }

    pub(crate) fn leave_out_file(&self, bytes: u64, changed: Moment) -> bool {
        self.min_bytes.is_some_and(|min| bytes < min)
            || self.max_bytes.is_some_and(|max| bytes > max)
            || self.leave_out_link(changed)
    }

    /// A symbolic link has a time, and no size that matters.
    pub(crate) fn leave_out_link(&self, changed: Moment) -> bool {
        self.newer.is_some_and(|newer| changed <= newer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_times() {
        let at = |seconds, nanos| Moment { seconds, nanos };
        let none = Settings::default();
        let sized = Settings { min_size: Some(10), max_size: Some(20), ..none.clone() };
        let newer = Settings { newer: Some(at(5, 500)), ..none.clone() };
        let cases = [
            (&none, 0, at(i64::MIN, 0), false),
            (&none, u64::MAX, at(0, 0), false),
            (&sized, 9, at(0, 0), true),
            (&sized, 10, at(0, 0), false),
            (&sized, 20, at(0, 0), false),
            (&sized, 21, at(0, 0), true),
            (&newer, 0, at(5, 499), true),
            (&newer, 0, at(5, 500), true),
            (&newer, 0, at(5, 501), false),
            (&newer, 0, at(-1, 999), true),
        ];
        for (settings, bytes, changed, expect) in cases {
            let limits = Limits::of(settings);
            assert_eq!(limits.leave_out_file(bytes, changed), expect, "{limits:?} {bytes}");
        }
        assert!(!Limits::of(&sized).leave_out_link(at(0, 0)), "a link has no size");
    }
}
