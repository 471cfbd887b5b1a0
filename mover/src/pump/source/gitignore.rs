//! Lines of gitignore as globs. Braces mean nothing there, a class has POSIX names and escapes, and
//! never matches a slash; two asterisks mean more than one only where they are all between slashes
//! (gitignore(5), fnmatch(3) with FNM_PATHNAME).

use globset::{Glob, GlobBuilder};

/// One line.
#[derive(Clone, Debug)]
pub(super) struct Rule {
    /// What it matches, of paths below the root.
    pub(super) glob: Glob,
    /// It had a `!`: what matches is kept.
    pub(super) keeps: bool,
    pub(super) only_folders: bool,
}

impl Rule {
    /// The error says what to write.
    pub(super) fn parse(line: &str) -> Result<Rule, String> {
        let (keeps, line) = match line.strip_prefix('!') {
            Some(line) => (true, line),
            None => (false, line),
        };
        if ends_in_blank(line) {
            return Err("a blank at the end is not read: leave it out, or write '\\ ' for a name \
                        that ends in one"
                .into());
        }
        let (only_folders, line) = match line.strip_suffix('/') {
            Some(line) => (true, line),
            None => (false, line),
        };
        // A slash before its end, also one in a class, ties a line to the root.
        let is_tied = line.contains('/');
        let text = as_glob(line.strip_prefix('/').unwrap_or(line))?;
        let text = if is_tied { text } else { format!("**/{text}") };
        // What is in a folder, and not the folder.
        let text = if text.ends_with("/**") { text + "/*" } else { text };
        let glob = GlobBuilder::new(&text).literal_separator(true).backslash_escape(true).build();
        let glob = glob.map_err(|why| why.kind().to_string())?;
        Ok(Rule { glob, keeps, only_folders })
    }
}

/// A part of a name in a line, where that is all that is asked of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    Letter(char),
    /// Any one letter.
    One,
    /// Any letters, or none.
    Any,
    /// A class: some letter of it.
    OneOf,
}

/// The names of a line that has no `!` and no slash at its ends. `None` where a name is two
/// asterisks, or the line cannot be read.
pub(super) fn pieces(line: &str) -> Option<Vec<Vec<Piece>>> {
    let mut names = vec![Vec::new()];
    let mut rest = line.chars();
    while let Some(letter) = rest.next() {
        let piece = match letter {
            '/' => {
                names.push(Vec::new());
                continue;
            }
            '*' => Piece::Any,
            '?' => Piece::One,
            '\\' => Piece::Letter(rest.next()?),
            '[' => {
                let (_, after) = Class::parse(rest.as_str()).ok()?;
                rest = after.chars();
                Piece::OneOf
            }
            letter => Piece::Letter(letter),
        };
        names.last_mut()?.push(piece);
    }
    let is_way = |name: &Vec<Piece>| name[..] == [Piece::Any, Piece::Any];
    (!names.iter().any(|name| name.is_empty() || is_way(name))).then_some(names)
}

/// Blanks at the end count only where a backslash is before them.
fn ends_in_blank(line: &str) -> bool {
    let Some(before) = line.strip_suffix(' ') else { return false };
    before.bytes().rev().take_while(|byte| *byte == b'\\').count() % 2 == 0
}

/// The same where braces, asterisks and classes mean what they mean to git.
fn as_glob(line: &str) -> Result<String, String> {
    let mut glob = String::with_capacity(line.len());
    let mut rest = line.chars();
    while let Some(letter) = rest.next() {
        match letter {
            '*' => {
                let after = rest.as_str().trim_start_matches('*');
                let count = 1 + rest.as_str().len() - after.len();
                let is_alone = glob.is_empty() || glob.ends_with('/');
                let is_way = is_alone && (after.is_empty() || after.starts_with('/'));
                glob.push_str(if count > 1 && is_way { "**" } else { "*" });
                rest = after.chars();
            }
            '\\' => match rest.next() {
                Some(next) => glob.extend(['\\', next]),
                None => return Err("a '\\' at the end makes nothing literal: write '\\\\'".into()),
            },
            '{' | '}' => glob.extend(['\\', letter]),
            '[' => {
                let (class, after) = Class::parse(rest.as_str())?;
                glob.push_str(&class.as_glob());
                rest = after.chars();
            }
            letter => glob.push(letter),
        }
    }
    Ok(glob)
}

/// The members of a class, as ranges.
#[derive(Debug, Default, PartialEq, Eq)]
struct Class {
    is_negated: bool,
    ranges: Vec<(char, char)>,
}

impl Class {
    /// Reads one from behind its bracket, and returns what follows it.
    fn parse(text: &str) -> Result<(Class, &str), String> {
        let mut class = Class::default();
        let mut rest = text;
        if let Some(after) = rest.strip_prefix(['!', '^']) {
            (class.is_negated, rest) = (true, after);
        }
        let mut is_first = true;
        loop {
            if let Some(after) = rest.strip_prefix(']').filter(|_| !is_first) {
                return Ok((class, after));
            }
            is_first = false;
            if let Some((ranges, after)) = posix(rest)? {
                class.ranges.extend(ranges);
                rest = after;
                continue;
            }
            let (from, after) = member(rest).ok_or(UNCLOSED)?;
            rest = after;
            // Also before the end of a range that runs backwards.
            class.ranges.push((from, from));
            if let Some(after) = rest.strip_prefix('-').filter(|after| !after.starts_with(']')) {
                let (to, after) = member(after).ok_or(UNCLOSED)?;
                rest = after;
                class.ranges.push((from, to));
            }
        }
    }

    fn has(&self, letter: char) -> bool {
        self.ranges.iter().any(|(from, to)| (*from..=*to).contains(&letter))
    }

    /// Of a class that matches one name only that name, of one that matches none a byte that no
    /// name has.
    fn as_glob(&self) -> String {
        let ascii: Vec<char> = (1..128_u8).map(char::from).filter(|c| self.has(*c)).collect();
        let mut members: Vec<char> = ascii.into_iter().filter(|c| *c != '/').collect();
        let beyond = self.ranges.iter().filter(|(_, to)| !to.is_ascii());
        let beyond: Vec<(char, char)> =
            beyond.map(|(from, to)| ((*from).max('\u{80}'), *to)).filter(|(a, b)| a <= b).collect();
        if self.is_negated {
            members.push('/');
        }
        // Where they stand these mean something to a class.
        let special = |c: &char| [']', '-', '!', '^'].contains(c);
        let specials: Vec<char> = members.iter().copied().filter(special).collect();
        members.retain(|c| !special(c));
        let plain: String = members.iter().collect();
        let beyond: String = beyond.iter().map(|(from, to)| format!("{from}-{to}")).collect();
        let has = |c: char| specials.contains(&c).then_some(c);
        if self.is_negated || !plain.is_empty() || !beyond.is_empty() || has(']').is_some() {
            let mut glob = String::from(if self.is_negated { "[!" } else { "[" });
            glob.extend(has(']'));
            glob.push_str(&plain);
            glob.push_str(&beyond);
            glob.extend([has('^'), has('!'), has('-')].into_iter().flatten());
            glob.push(']');
            return glob;
        }
        match &specials[..] {
            [] => "[\0]".into(),
            [one] => format!("\\{one}"),
            several => {
                let each: Vec<String> = several.iter().map(|c| format!("\\{c}")).collect();
                format!("{{{}}}", each.join(","))
            }
        }
    }
}

/// A member, or an end of a range.
fn member(text: &str) -> Option<(char, &str)> {
    let text = text.strip_prefix('\\').unwrap_or(text);
    let letter = text.chars().next()?;
    Some((letter, &text[letter.len_utf8()..]))
}

/// The members of `[:alpha:]` and its like, in the C locale, and what follows it.
type Posix<'a> = (Vec<(char, char)>, &'a str);

fn posix(text: &str) -> Result<Option<Posix<'_>>, String> {
    let named = text.strip_prefix("[:").and_then(|inside| inside.split_once(":]"));
    let Some((name, after)) = named else { return Ok(None) };
    let is_of: fn(&char) -> bool = match name {
        "alnum" => char::is_ascii_alphanumeric,
        "alpha" => char::is_ascii_alphabetic,
        "blank" => |c| [' ', '\t'].contains(c),
        "cntrl" => char::is_ascii_control,
        "digit" => char::is_ascii_digit,
        "graph" => char::is_ascii_graphic,
        "lower" => char::is_ascii_lowercase,
        "print" => |c| c.is_ascii_graphic() || *c == ' ',
        "punct" => char::is_ascii_punctuation,
        "space" => |c| c.is_ascii_whitespace() || *c == '\x0b',
        "upper" => char::is_ascii_uppercase,
        "xdigit" => char::is_ascii_hexdigit,
        // Such a line matches nothing, for git.
        _ => return Err(format!("there is no class '[:{name}:]' of characters")),
    };
    let members = (1..128_u8).map(char::from).filter(is_of);
    Ok(Some((members.map(|c| (c, c)).collect(), after)))
}

const UNCLOSED: &str = "unclosed character class; missing ']'";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn braces_and_classes_are_gits() {
        for (line, expect) in [
            ("*.o", "*.o"),
            ("a**b/**/***/*", "a*b/**/**/*"),
            ("{a,b}", r"\{a,b\}"),
            (r"\{a\[", r"\{a\["),
            ("[ab]", "[ab]"),
            ("[!a]", "[!a/]"),
            ("[^a]", "[!a/]"),
            ("[]a]", "[]a]"),
            (r"[\]a]", "[]a]"),
            ("[!]]", "[!]/]"),
            ("[a-]", "[a-]"),
            ("[.-0]", "[.0]"),
            ("[/]", "[\0]"),
            ("[!/]", "[!/]"),
            ("[!!]", "[!/!]"),
            ("[-]", r"\-"),
            (r"[\^]", r"\^"),
            (r"[\^!]", r"{\!,\^}"),
            ("[[:digit:]x]", "[0123456789x]"),
            ("[![:upper:]]", "[!ABCDEFGHIJKLMNOPQRSTUVWXYZ/]"),
            ("[[:digit:]-]", "[0123456789-]"),
            ("[[x]", "[[x]"),
            ("[ü]", "[ü-ü]"),
        ] {
            assert_eq!(as_glob(line).as_deref(), Ok(expect), "{line}");
        }
        for line in ["[", "[a", "[]", r"[\]", "[!", "[[:alpha:]", "[[:bad:]]", "a\\"] {
            assert!(as_glob(line).is_err(), "{line}");
        }
    }
}
