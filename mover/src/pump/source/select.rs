//! Which names of a tree are copied: lines of gitignore rules, of which the last match counts.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use globset::{Candidate, GlobSet, GlobSetBuilder};

use super::gitignore::Rule;
use base::fault::Fault;
use base::limits::PATTERN_BYTES_MAX;

/// The rules of one transfer. A pure value: it knows names, not files.
#[derive(Clone, Debug, Default)]
pub struct Select {
    globs: GlobSet,
    /// In the order of the globs.
    rules: Vec<Rule>,
}

/// The kind of a name, as far as rules depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    Folder,
    Other,
}

impl Select {
    /// `lines` as they are sent: what matches is left out; after a `!` it is kept.
    pub fn new(lines: &[String]) -> Result<Select, Fault> {
        let wrong = |line: &str, why: String| Fault::usage(format!("the pattern '{line}': {why}"));
        let mut globs = GlobSetBuilder::new();
        let mut rules = Vec::with_capacity(lines.len());
        for line in lines {
            let rule = check(line).map_err(|why| wrong(line, why))?;
            globs.add(rule.glob.clone());
            rules.push(rule);
        }
        let globs = globs.build().map_err(|why| wrong(&lines.join(" "), why.to_string()))?;
        Ok(Select { globs, rules })
    }

    /// Whether the rules leave out this path below the root of the source. Paths below a folder
    /// that is left out are never checked.
    pub fn leaves_out(&self, path: &[u8], shape: Shape) -> bool {
        if self.rules.is_empty() {
            return false;
        }
        let path = Candidate::new(Path::new(OsStr::from_bytes(path)));
        let matching = self.globs.matches_candidate(&path).into_iter().rev();
        let mut rules = matching.map(|number| &self.rules[number]);
        let last = rules.find(|rule| !rule.only_folders || shape == Shape::Folder);
        last.is_some_and(|rule| !rule.keeps)
    }

    /// The same for a name from a list, whose parent folders were not checked.
    pub fn leaves_out_with_parents(&self, path: &[u8], shape: Shape) -> bool {
        let slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
        let mut folders = slashes.map(|(at, _)| &path[..at]);
        folders.any(|folder| self.leaves_out(folder, Shape::Folder)) || self.leaves_out(path, shape)
    }
}

/// Whether a pattern can be read, as it was typed. The error says what to type instead.
pub fn check_pattern(pattern: &str) -> Result<(), String> {
    check(pattern).map(drop)?;
    if pattern.starts_with('!') {
        return Err("a '!' is what --include is for; write \\! for a name that begins so".into());
    }
    Ok(())
}

/// The same for a line that may have a `!`.
pub fn check_line(line: &str) -> Result<(), String> {
    check(line).map(drop)
}

fn check(line: &str) -> Result<Rule, String> {
    let plain = line.strip_prefix('!').unwrap_or(line);
    if plain.trim().is_empty() || plain == "/" {
        return Err("write a name or a pattern such as '*.o' or '/build/'".into());
    }
    if line.len() > PATTERN_BYTES_MAX {
        return Err(format!("write at most {PATTERN_BYTES_MAX} bytes"));
    }
    if plain.starts_with('#') {
        return Err("a '#' begins a comment; write \\# for a name that begins so".into());
    }
    let path = plain.strip_prefix('/').unwrap_or(plain);
    if path.starts_with("./") || path.starts_with("../") {
        return Err(
            "names are below the source: leave './' out, or begin with '/' for its top".into()
        );
    }
    if path.contains("//") || path.starts_with('/') {
        return Err("no name has two slashes in a row: write one".into());
    }
    Rule::parse(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules() {
        use Shape::{Folder, Other};
        let cases: [(&[&str], &str, Shape, bool); 15] = [
            (&[], "a", Other, false),
            (&["*.o"], "a/b.o", Other, true),
            (&["*.o"], "a/b.c", Other, false),
            (&["*.o", "!keep.o"], "a/keep.o", Other, false),
            (&["!keep.o", "*.o"], "a/keep.o", Other, true),
            (&["/build"], "build", Folder, true),
            (&["/build"], "a/build", Folder, false),
            (&["a/b"], "a/b", Other, true),
            (&["a/b"], "c/a/b", Other, false),
            (&["tmp/"], "x/tmp", Folder, true),
            (&["tmp/"], "x/tmp", Other, false),
            (&["**/cache/*"], "x/cache/y", Other, true),
            (&["*", "!*/", "!*.rs"], "src/a.rs", Other, false),
            (&["*", "!*/", "!*.rs"], "src/a.c", Other, true),
            (&["\\#a"], "#a", Other, true),
        ];
        for (lines, path, shape, expect) in cases {
            let lines: Vec<String> = lines.iter().map(|line| line.to_string()).collect();
            let select = Select::new(&lines).unwrap();
            assert_eq!(select.leaves_out(path.as_bytes(), shape), expect, "{lines:?} {path}");
        }
    }

    #[test]
    fn names_need_not_be_utf8() {
        let select = Select::new(&["*.o".into()]).unwrap();
        assert!(select.leaves_out(b"\xff.o", Shape::Other));
        assert!(!select.leaves_out(b"\xff.c", Shape::Other));
    }

    #[test]
    fn a_listed_name_is_asked_about_with_its_folders() {
        let select = Select::new(&["/build/".into()]).unwrap();
        assert!(select.leaves_out_with_parents(b"build/a/b", Shape::Other));
        assert!(!select.leaves_out_with_parents(b"a/build", Shape::Other));
    }

    #[test]
    fn wrong_patterns_are_told() {
        for line in [
            "", " ", "!", "/", "a[", "#a", "./a", "!./a", "/../a", "a//b", "a ", "/ ", "//a",
            "a//", "a\\",
        ] {
            assert!(check_pattern(line).is_err(), "{line}");
            assert!(Select::new(&[line.into()]).is_err(), "{line}");
        }
        assert!(check_pattern("!a").is_err());
        for line in ["a", "*.o", "\\!a", "a b", "a\\ ", "[ab]", "{a", ".a", "..a"] {
            assert_eq!(check_pattern(line), Ok(()), "{line}");
        }
    }
}
