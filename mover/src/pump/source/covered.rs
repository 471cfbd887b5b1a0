//! Patterns that keep nothing: what one of them matches a later one leaves out. Who writes them as
//! rsync reads them, where the first match counts, loses files without a word.

use super::gitignore::{Piece, pieces};

/// Where a line with `!` has no effect: that line without it, and the later one that covers it.
/// Only what is certain is told: where every name that the first matches is also matched by the
/// second, and no line after that can keep it.
pub fn covered(lines: &[String]) -> Vec<(&str, &str)> {
    let parsed: Vec<Option<Parsed<'_>>> = lines.iter().map(|line| Parsed::of(line)).collect();
    let mut found = Vec::new();
    for (at, kept) in parsed.iter().enumerate() {
        let Some(kept) = kept.as_ref().filter(|it| it.keeps) else { continue };
        let later = parsed.iter().enumerate().skip(at + 1);
        let covers = |other: &Option<Parsed<'_>>| {
            other.as_ref().is_some_and(|it| !it.keeps && it.covers(kept))
        };
        let Some((place, Some(by))) = later.rev().find(|(_, other)| covers(other)) else {
            continue;
        };
        let may_keep = |other: &Option<Parsed<'_>>| {
            other.as_ref().is_none_or(|it| it.keeps && !it.is_apart_from(kept))
        };
        if !parsed[place + 1..].iter().any(may_keep) {
            found.push((kept.text, by.text));
        }
    }
    found
}

/// A line, as far as it can be compared with another.
struct Parsed<'a> {
    /// Without its `!`.
    text: &'a str,
    keeps: bool,
    only_folders: bool,
    /// It counts from the root.
    is_tied: bool,
    /// The names that it matches, folder by folder.
    names: Vec<Vec<Piece>>,
}

impl Parsed<'_> {
    /// `None` for what is not compared: two asterisks between slashes, and what cannot be read.
    fn of(line: &str) -> Option<Parsed<'_>> {
        let (keeps, text) = match line.strip_prefix('!') {
            Some(text) => (true, text),
            None => (false, line),
        };
        let (only_folders, plain) = match text.strip_suffix('/') {
            Some(plain) => (true, plain),
            None => (false, text),
        };
        let is_tied = plain.contains('/');
        let names = pieces(plain.strip_prefix('/').unwrap_or(plain))?;
        Some(Parsed { text, keeps, only_folders, is_tied, names })
    }

    /// Whether every name that the other matches is matched by this, or is in a folder that is.
    fn covers(&self, other: &Parsed<'_>) -> bool {
        if self.text == other.text {
            return true;
        }
        let whole = other.names.len();
        (1..=whole).any(|depth| {
            let is_folder = depth < whole || other.only_folders;
            (is_folder || !self.only_folders) && self.covers_names(&other.names[..depth], other)
        })
    }

    fn covers_names(&self, names: &[Vec<Piece>], other: &Parsed<'_>) -> bool {
        match (self.is_tied, &self.names[..], names) {
            (false, [own], [.., last]) => is_within(last, own),
            (true, own, names) => {
                other.is_tied
                    && own.len() == names.len()
                    && own.iter().zip(names).all(|(own, name)| is_within(name, own))
            }
            _ => false,
        }
    }

    /// Whether no name is matched by both: their last names are plain, and differ.
    fn is_apart_from(&self, other: &Parsed<'_>) -> bool {
        let plain = |it: &Parsed<'_>| {
            let last = it.names.last()?;
            let is_plain = last.iter().all(|piece| matches!(piece, Piece::Letter(_)));
            is_plain.then(|| last.clone())
        };
        match (plain(self), plain(other)) {
            (Some(own), Some(other)) => own != other,
            _ => false,
        }
    }
}

/// Whether each name that the first pattern matches is matched by the second: an asterisk of the
/// first is matched by one of the second alone, and a letter that is left open by one or by a `?`.
fn is_within(name: &[Piece], pattern: &[Piece]) -> bool {
    match (pattern.split_first(), name.split_first()) {
        (None, first) => first.is_none(),
        (Some((Piece::Any, rest)), Some((_, names))) => {
            is_within(name, rest) || is_within(names, pattern)
        }
        (Some((Piece::Any, rest)), None) => is_within(name, rest),
        (Some(_), None) => false,
        (Some((own, rest)), Some((first, names))) => {
            let fits = match (own, first) {
                (Piece::One, Piece::One) => true,
                // Of what is longer than a byte a `?` matches one.
                (Piece::One, Piece::Letter(letter)) => letter.is_ascii(),
                (Piece::Letter(own), Piece::Letter(letter)) => own == letter,
                _ => false,
            };
            fits && is_within(names, rest)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pump::source::select::{Select, Shape};

    fn found(lines: &[&str]) -> Vec<(String, String)> {
        let lines: Vec<String> = lines.iter().map(|line| line.to_string()).collect();
        covered(&lines).into_iter().map(|(a, b)| (a.into(), b.into())).collect()
    }

    #[test]
    fn what_is_certain_is_found() {
        type Case<'a> = (&'a [&'a str], Option<(&'a str, &'a str)>);
        let cases: [Case<'_>; 28] = [
            (&["!keep.tmp", "*.tmp"], Some(("keep.tmp", "*.tmp"))),
            (&["*.tmp", "!keep.tmp"], None),
            (&["!*.rs", "*"], Some(("*.rs", "*"))),
            (&["!*.rs", "*.rs"], Some(("*.rs", "*.rs"))),
            (&["!a*b.rs", "*b.rs"], Some(("a*b.rs", "*b.rs"))),
            (&["!a?.rs", "a*.rs"], Some(("a?.rs", "a*.rs"))),
            (&["!a*.rs", "a?.rs"], None),
            (&["!a[bc].rs", "a*.rs"], Some(("a[bc].rs", "a*.rs"))),
            (&["!a[bc].rs", "a[bc].rs"], Some(("a[bc].rs", "a[bc].rs"))),
            (&["!é", "?"], None),
            (&["!a[bc].rs", "ab.rs"], None),
            (&["!*.rs", "a.rs"], None),
            (&["!/src/a.rs", "*.rs"], Some(("/src/a.rs", "*.rs"))),
            (&["!a.rs", "/a.rs"], None),
            (&["!/a.rs", "/*.rs"], Some(("/a.rs", "/*.rs"))),
            (&["!src/a.rs", "/src/*"], Some(("src/a.rs", "/src/*"))),
            (&["!src/a.rs", "src"], Some(("src/a.rs", "src"))),
            (&["!src/a.rs", "src/"], Some(("src/a.rs", "src/"))),
            (&["!src", "src/"], None),
            (&["!src/", "src/"], Some(("src/", "src/"))),
            (&["!src/", "src"], Some(("src/", "src"))),
            (&["!keep.tmp", "*.tmp", "!keep.tmp"], None),
            (&["!keep.tmp", "*.tmp", "!other.tmp"], Some(("keep.tmp", "*.tmp"))),
            (&["!keep.tmp", "*.tmp", "!k*"], None),
            (&["!keep.tmp", "*.tmp", "!**/keep.tmp"], None),
            (&["!**/a", "a"], None),
            (&["!\\*a", "\\*a"], Some(("\\*a", "\\*a"))),
            (&["!b", "\\*a", "[ab]"], None),
        ];
        for (lines, expect) in cases {
            let expect: Vec<(String, String)> =
                expect.into_iter().map(|(a, b)| (a.into(), b.into())).collect();
            assert_eq!(found(lines), expect, "{lines:?}");
        }
    }

    /// What is told is so for all short names: without the line that keeps them the same are left
    /// out.
    #[test]
    fn nothing_is_told_that_is_not_so() {
        let words =
            ["a", "b", "*", "?", "a*", "*b", "[ab]", "/a", "a/b", "a/", "*/", "/*/b", "**/a"];
        let names: Vec<String> = {
            let one = ["a", "b", "ab", "ba", "c"];
            let two = one.iter().flat_map(|x| one.iter().map(move |y| format!("{x}/{y}")));
            one.iter().map(|name| (*name).to_string()).chain(two).collect()
        };
        let mut told = 0;
        let signs = ["", "!"];
        let each = || signs.iter().flat_map(|sign| words.iter().map(move |w| format!("{sign}{w}")));
        for (first, second, third) in
            each().flat_map(|first| each().map(move |second| (first.clone(), second))).flat_map(
                |(first, second)| each().map(move |third| (first.clone(), second.clone(), third)),
            )
        {
            let lines = vec![first, second, third];
            let Some((kept, _)) = covered(&lines).first().copied() else { continue };
            told += 1;
            let place = lines.iter().position(|line| line.strip_prefix('!') == Some(kept)).unwrap();
            let mut without = lines.clone();
            without.remove(place);
            let [with, without] = [&lines, &without].map(|lines| Select::new(lines).unwrap());
            for (name, shape) in
                names.iter().flat_map(|name| [(name, Shape::Other), (name, Shape::Folder)])
            {
                let asked = |rules: &Select| rules.leaves_out_with_parents(name.as_bytes(), shape);
                assert_eq!(asked(&with), asked(&without), "{lines:?}: {name} {shape:?}");
            }
        }
        assert!(told > 500, "{told}");
    }
}
