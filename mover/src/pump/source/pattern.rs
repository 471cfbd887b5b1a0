//! Names with wildcards, as a shell expands them: `*`, `?`, `[a-z]`, and `\` in front of a
//! character that stands for itself. The far side expands what was typed, and this host matches
//! what comes back with the same patterns.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use globset::{GlobBuilder, GlobMatcher};

use crate::io::reach::{self, Reach};
use base::fault::Fault;

/// A pattern for one name: no slash is in it.
#[derive(Clone, Debug)]
pub struct Pattern {
    matcher: GlobMatcher,
    /// It begins with a dot itself: other patterns match no name that does.
    hidden: bool,
}

impl Pattern {
    /// Reads a pattern. The error says what to write instead.
    pub fn new(typed: &[u8]) -> Result<Pattern, String> {
        let shown = typed.escape_ascii();
        let text = std::str::from_utf8(typed)
            .map_err(|_| format!("the pattern '{shown}' is not UTF-8: name the folder above it"))?;
        let glob = GlobBuilder::new(&as_glob(text)).literal_separator(true).build();
        let glob = glob.map_err(|why| {
            format!("the pattern '{shown}': {}; a \\ makes a character literal", why.kind())
        })?;
        Ok(Pattern { matcher: glob.compile_matcher(), hidden: text.starts_with(['.', '\\']) })
    }

    /// Whether this name matches, as a whole.
    pub fn matches(&self, name: &[u8]) -> bool {
        (self.hidden || !name.starts_with(b".")) && self.matcher.is_match(OsStr::from_bytes(name))
    }
}

/// True for a path that is expanded where nothing has it as its name.
pub fn is_pattern(path: &Path) -> bool {
    path.as_os_str().as_bytes().iter().any(|byte| WILDCARDS.contains(byte) || *byte == b'\\')
}

/// What this path stands for: itself where it exists, else what matches it, sorted. Never empty.
pub fn expand(path: &Path, reach: &Reach) -> Result<Vec<PathBuf>, Fault> {
    if !is_pattern(path) || reach.is_there(path) {
        return Ok(vec![path.to_path_buf()]);
    }
    let bytes = path.as_os_str().as_bytes();
    let is_folder = bytes.ends_with(b"/");
    let start = if bytes.starts_with(b"/") { "/" } else { "" };
    let mut found = vec![PathBuf::from(start)];
    let mut unread = None;
    for typed in bytes.split(|byte| *byte == b'/').filter(|typed| !typed.is_empty()) {
        found = match typed.iter().any(|byte| WILDCARDS.contains(byte)) {
            true => {
                let pattern = Pattern::new(typed).map_err(Fault::usage)?;
                matching(&found, &pattern, (path, reach), &mut unread)?
            }
            false => found.iter().map(|above| above.join(literal(typed))).collect(),
        };
    }
    found.retain(|path| match is_folder {
        true => reach.is_folder(path),
        false => reach.is_there(path),
    });
    match (found.is_empty(), unread) {
        (true, Some((folder, error))) => Err(reach::fault("list", &folder, &error)),
        (true, None) => {
            let why = Fault::io("find", path, &io::ErrorKind::NotFound.into());
            Err(Fault { text: format!("nothing there matches '{}'", path.display()), ..why })
        }
        // A slash at the end keeps its meaning.
        (false, _) if is_folder => Ok(found.iter().map(|path| path.join("")).collect()),
        (false, _) => Ok(found),
    }
}

/// What matches in these folders. The first folder that cannot be listed is told.
fn matching(
    folders: &[PathBuf],
    pattern: &Pattern,
    (path, reach): (&Path, &Reach),
    unread: &mut Option<(PathBuf, io::Error)>,
) -> Result<Vec<PathBuf>, Fault> {
    let mut found = Vec::new();
    for above in folders {
        let folder = if above.as_os_str().is_empty() { Path::new(".") } else { above };
        let fits = |name: &OsStr| pattern.matches(name.as_bytes());
        let names = reach.names(folder, fits, MATCHES_MAX + 1);
        match names {
            Ok(mut names) => {
                names.sort();
                found.extend(names.iter().map(|name| above.join(name)));
            }
            // Patterns in the middle of a path match files too.
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => {}
            Err(error) => {
                unread.get_or_insert((folder.to_path_buf(), error));
            }
        }
        if found.len() > MATCHES_MAX {
            return Err(Fault::usage(format!(
                "'{}' matches more than {MATCHES_MAX} names: copy the folder with -r and --include",
                path.display()
            )));
        }
    }
    Ok(found)
}

/// A name without the `\` in front of its characters.
fn literal(typed: &[u8]) -> OsString {
    let mut name = Vec::with_capacity(typed.len());
    let mut bytes = typed.iter();
    while let Some(byte) = bytes.next() {
        name.push(if *byte == b'\\' { *bytes.next().unwrap_or(byte) } else { *byte });
    }
    OsString::from_vec(name)
}

/// A shell's pattern for one name as `globset` reads it, where braces and `**` mean more.
fn as_glob(text: &str) -> String {
    let mut glob = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    while let Some(letter) = rest.next() {
        match letter {
            '\\' => glob.extend(['\\', rest.next().unwrap_or('\\')]),
            '{' | '}' => glob.extend(['\\', letter]),
            '*' if rest.peek() == Some(&'*') => {}
            '[' => {
                // A class goes to its bracket, which may come first in it as a member.
                glob.push('[');
                glob.extend(rest.next_if(|next| ['!', '^'].contains(next)));
                glob.extend(rest.next_if_eq(&']'));
                for member in rest.by_ref() {
                    glob.push(member);
                    if member == ']' {
                        break;
                    }
                }
            }
            letter => glob.push(letter),
        }
    }
    glob
}

const WILDCARDS: &[u8] = b"*?[";
/// About what a shell's command line holds.
const MATCHES_MAX: usize = 50_000;

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn patterns_match_as_in_a_shell() {
        let cases: [(&str, &[&str], &[&str]); 14] = [
            ("*.tar", &["a.tar", "a b.tar", "\n.tar", "{}.tar"], &["a.tar.gz", ".a.tar", "tar"]),
            ("*", &["a", "a.b"], &[".a"]),
            (".*", &[".a"], &["a"]),
            ("**", &["a", "abc"], &[".a"]),
            ("a**b", &["ab", "axb"], &["a"]),
            ("?", &["a", "*"], &["ab", "", "."]),
            ("[ab]x", &["ax", "bx"], &["cx", "[ab]x"]),
            ("[!ab]x", &["cx"], &["ax"]),
            ("[]a]x", &["]x", "ax"], &["bx"]),
            ("[a-c]", &["b"], &["d"]),
            (r"\*", &["*"], &["a"]),
            (r"a\ b*", &["a b", "a bc"], &["a\\ b"]),
            ("{a,b}*", &["{a,b}", "{a,b}c"], &["a", "b"]),
            ("a[{]b", &["a{b"], &["a\\b"]),
        ];
        for (typed, yes, no) in cases {
            let pattern = Pattern::new(typed.as_bytes()).unwrap();
            for name in yes {
                assert!(pattern.matches(name.as_bytes()), "{typed} matches {name}");
            }
            for name in no {
                assert!(!pattern.matches(name.as_bytes()), "{typed} does not match {name}");
            }
        }
        assert!(Pattern::new(b"*\xff").unwrap_err().contains("is not UTF-8"));
        assert!(Pattern::new(b"a[b").unwrap_err().starts_with("the pattern 'a[b': unclosed"));
        assert!(Pattern::new(b"*").unwrap().matches(b"\xff"));
    }

    #[test]
    fn what_exists_is_found_and_a_name_that_exists_is_itself() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["a.tar", "b.tar", "c d.tar", "*.gz", "x.gz", ".h.tar", "[1]", "1"] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        for name in ["d1", "d2"] {
            fs::create_dir(folder.path().join(name)).unwrap();
            fs::write(folder.path().join(name).join("e"), "").unwrap();
        }
        let found = |typed: &str| {
            let path = PathBuf::from(format!("{}/{typed}", folder.path().display()));
            let found = expand(&path, &Reach::Host).map_err(|fault| fault.text)?;
            let name = |path: &PathBuf| {
                let path = path.to_str().unwrap();
                path.strip_prefix(folder.path().to_str().unwrap()).unwrap()[1..].to_string()
            };
            Ok::<Vec<String>, String>(found.iter().map(name).collect())
        };
        let cases: [(&str, &[&str]); 11] = [
            ("*.tar", &["a.tar", "b.tar", "c d.tar"]),
            ("*.gz", &["*.gz"]),
            (r"\*.gz", &["*.gz"]),
            ("?.gz", &["*.gz", "x.gz"]),
            ("[1]", &["[1]"]),
            ("d*/e", &["d1/e", "d2/e"]),
            ("d*/", &["d1/", "d2/"]),
            ("[a-z]*/", &["d1/", "d2/"]),
            ("*/e", &["d1/e", "d2/e"]),
            (r"c\ d.tar", &["c d.tar"]),
            ("nothing", &["nothing"]),
        ];
        for (typed, expect) in cases {
            assert_eq!(found(typed).unwrap(), expect, "{typed}");
        }
        for typed in ["*.zip", "d*/f", "a.tar/*", r"no\ thing"] {
            let why = found(typed).unwrap_err();
            assert!(why.starts_with("nothing there matches '"), "{typed}: {why}");
        }
    }
}
