//! Results for single files as text: copied, failed, verified, cleaned up.

use std::path::Path;

use base::fault::Fault;
use base::job::{CleanEvent, Cleaned, Verified};
use base::reason::{Changes, Reason};
use base::units::{Bytes, Nanos, Rate};

use super::escape;
use super::live::count;

/// Whether things were done, or would be done in a dry run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dry {
    Yes,
    No,
}

/// The direction in which files are copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direction {
    ToFar,
    #[default]
    ToHere,
    /// Nothing is copied: two trees are compared.
    Compared,
}

/// The summary of `verify`, with the kinds of digests that files had.
pub fn verified(found: &Verified, kinds: &[&str], elapsed: Nanos) -> String {
    let rate = Rate::of(found.bytes, elapsed);
    let by = if kinds.is_empty() { String::new() } else { format!(" by {}", kinds.join(", ")) };
    let read = format!("{} read in {elapsed}{by}: {rate}", Bytes(found.bytes));
    if found.worst().is_none() {
        return format!("{}; {read}\n", all_match(found.files));
    }
    let bad = [
        (found.differing, "differing"),
        (found.missing, "missing"),
        (found.unreadable, "unreadable"),
    ];
    let bad: Vec<String> = bad
        .into_iter()
        .filter(|(number, _)| *number > 0)
        .map(|(number, how)| format!("{number} {how}"))
        .collect();
    format!("{}, {} matching; {read}\n", bad.join(", "), found.files)
}

/// The line of `clean` for one file. `dry` is for a dry run.
pub fn sight(sight: &CleanEvent, dry: Dry) -> String {
    let word = if dry == Dry::Yes { "would be removed" } else { "removed" };
    match sight {
        CleanEvent::Removed { path, bytes } => {
            format!("{word}: {} ({})", shown(path), Bytes(*bytes))
        }
        CleanEvent::Held(path) => format!("kept: {} (in use by a running copy)", shown(path)),
        CleanEvent::Young(path) => format!("kept: {} (it may be under way)", shown(path)),
        CleanEvent::Failed(fault) => fault.text.clone(),
    }
}

/// The summary of `clean`.
pub fn cleaned(cleaned: &Cleaned, dry: Dry) -> String {
    let word = if dry == Dry::Yes { "would be removed" } else { "removed" };
    let held = match cleaned.held {
        0 => String::new(),
        held => format!("; {} kept, in use by a running copy", count(held, "file")),
    };
    let young = match cleaned.young {
        0 => String::new(),
        young => format!("; {} kept, not as old as --min-age", count(young, "upload")),
    };
    format!("{} {word}, {}{held}{young}\n", count(cleaned.files, "file"), Bytes(cleaned.bytes))
}

fn all_match(files: u64) -> String {
    match files {
        0 => "the receipt has no files".to_string(),
        1 => "the file matches the receipt".to_string(),
        files => format!("all {files} files match the receipt"),
    }
}

/// A file in one line, as rsync itemizes: `>f      12 MiB  size,time  name`, with the reason why it
/// is copied, where it is.
pub fn itemized(direction: Direction, path: &[u8], bytes: u64, reason: Option<Reason>) -> String {
    let sign = match direction {
        Direction::ToFar => '<',
        Direction::ToHere | Direction::Compared => '>',
    };
    item(sign, &Bytes(bytes).to_string(), reason, path)
}

/// A file that stays, with another mode or owner.
pub fn adjusted(path: &[u8], changes: Changes) -> String {
    item('.', "", Some(Reason::Changed(changes)), path)
}

fn item(sign: char, size: &str, reason: Option<Reason>, path: &[u8]) -> String {
    let words = match reason.map(Reason::words).as_deref() {
        None => String::new(),
        Some([]) => format!("{:<9}  ", "same"),
        Some(words) => format!("{:<9}  ", words.join(",")),
    };
    format!("{sign}f {size:>11}  {words}{}", String::from_utf8_lossy(path))
}

/// A name that was removed in one line, as rsync itemizes it.
pub fn deleted(path: &[u8]) -> String {
    format!("*deleting                  {}", String::from_utf8_lossy(path))
}

/// A failed object in one line: its name, unless the fault says it, and why.
pub fn failed(path: &[u8], fault: &Fault) -> String {
    named(path, &fault.text)
}

/// A text with the name in front that it is about, unless it has it.
pub fn named(path: &[u8], text: &str) -> String {
    let name = String::from_utf8_lossy(path);
    match path.is_empty() || text.contains(name.as_ref()) || text.contains('\'') {
        true => text.to_string(),
        false => format!("{name}: {text}"),
    }
}

fn shown(path: &Path) -> String {
    escape::line(&path.to_string_lossy())
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::fault::Class;
    use base::reason::Change;

    #[test]
    fn verdicts() {
        let second = Nanos::from_millis(1000);
        let well = Verified { files: 3, bytes: 1 << 30, ..Verified::default() };
        let cases = [
            (
                well,
                &["SHA256"][..],
                "all 3 files match the receipt; 1 GiB read in 1.00 s by SHA256: \
                 1074 MB/s (8.59 Gbit/s)\n",
            ),
            (
                Verified { differing: 1, unreadable: 2, ..well },
                &[],
                "1 differing, 2 unreadable, 3 matching; 1 GiB read in 1.00 s: \
                 1074 MB/s (8.59 Gbit/s)\n",
            ),
        ];
        for (found, kinds, expect) in cases {
            assert_eq!(verified(&found, kinds, second), expect);
        }
    }

    #[test]
    fn a_file_and_why_it_is_copied() {
        let changed = |all: &[Change]| Reason::Changed(Changes::of(all.iter().copied()));
        let cases = [
            (Reason::New, "<f       5 MiB  new        a/b"),
            (changed(&[Change::Size, Change::Time]), "<f       5 MiB  size,time  a/b"),
            (changed(&[]), "<f       5 MiB  same       a/b"),
        ];
        for (reason, expect) in cases {
            assert_eq!(itemized(Direction::ToFar, b"a/b", 5 << 20, Some(reason)), expect);
        }
        let mode = Changes::of([Change::Mode]);
        assert_eq!(adjusted(b"a/b", mode), ".f              mode       a/b");
        assert_eq!(deleted(b"a/b"), "*deleting                  a/b");
    }

    #[test]
    fn a_failure_names_its_file_once() {
        let cases: [(&[u8], &str, &str); 3] = [
            (b"a", "cannot open 'a': no", "cannot open 'a': no"),
            (b"b", "no room", "b: no room"),
            (b"", "no room", "no room"),
        ];
        for (path, why, expect) in cases {
            assert_eq!(failed(path, &Fault::new(Class::Local, why)), expect);
        }
    }
}
