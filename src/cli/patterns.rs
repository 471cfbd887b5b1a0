//! What `--exclude`, `--include` and `--exclude-from` leave out and keep, in their order on the
//! command line: the last match counts.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::options::copying::{EXCLUDE, EXCLUDE_FROM, FILES_FROM, INCLUDE};
use super::typed::Typed;
use base::fault::reason;
use base::limits::FILTER_BYTES_MAX;
use mover::pump::source::covered::covered;
use mover::pump::source::select;

/// The value of one of these options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Filter {
    /// As it is sent: a `!` in front keeps what matches.
    Line(String),
    /// A file of such lines.
    File(PathBuf),
}

/// All lines. Files are read; `-` is standard input.
pub(super) fn filters(typed: &Typed) -> Result<Vec<String>, String> {
    let filters = typed.values(&[&EXCLUDE, &INCLUDE, &EXCLUDE_FROM])?;
    let is_input = |filter: &&Filter| matches!(filter, Filter::File(path) if is_stdin(path));
    let names_from_input = match FILES_FROM.commands.contains(&typed.command) {
        true => typed.value(&FILES_FROM)?.is_some_and(|path| is_stdin(&path)),
        false => false,
    };
    if filters.iter().filter(is_input).count() + usize::from(names_from_input) > 1 {
        return Err("standard input is read once: of --exclude-from and --files-from one may be \
                    '-'"
        .into());
    }
    let mut lines = Vec::new();
    for filter in filters {
        match filter {
            Filter::Line(line) => lines.push(line),
            Filter::File(path) => lines.extend(of_file(&path)?),
        }
    }
    Ok(lines)
}

/// Warnings of patterns that keep nothing, because a later one matches all that they do.
pub(super) fn without_effect(lines: &[String]) -> Vec<String> {
    let text = |(kept, by): (&str, &str)| {
        format!(
            "what --include '{kept}' keeps is left out by the --exclude '{by}' after it: the last \
             match counts, so write --include after --exclude"
        )
    };
    covered(lines).into_iter().map(text).collect()
}

fn is_stdin(path: &Path) -> bool {
    path.as_os_str() == "-"
}

fn of_file(path: &Path) -> Result<Vec<String>, String> {
    let name =
        if is_stdin(path) { "standard input".into() } else { format!("'{}'", path.display()) };
    let mut bytes = Vec::new();
    let most = FILE_BYTES_MAX + 1;
    let read = match is_stdin(path) {
        true => io::stdin().lock().take(most).read_to_end(&mut bytes),
        false => File::open(path).and_then(|file| file.take(most).read_to_end(&mut bytes)),
    };
    read.map_err(|why| format!("--exclude-from: cannot read {name}: {}", reason(&why)))?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(format!("--exclude-from: {name} is longer than a list of patterns can be"));
    }
    lines_of(&bytes).map_err(|(line, why)| format!("--exclude-from: {name}, line {line}: {why}"))
}

/// The patterns of a file, as gitignore(5) reads it: no empty lines, no comments, no blanks at the
/// end. An error has the number of its line.
fn lines_of(bytes: &[u8]) -> Result<Vec<String>, (usize, String)> {
    let bytes = bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(bytes);
    let mut lines = Vec::new();
    for (number, line) in (1..).zip(bytes.split(|byte| *byte == b'\n')) {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let line = std::str::from_utf8(line).map_err(|_| (number, "it is not UTF-8".into()))?;
        let line = without_blanks(line);
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        check(line).map_err(|why| (number, why))?;
        lines.push(line.to_string());
    }
    Ok(lines)
}

/// Spaces at the end do not count, but for one that a backslash is before.
fn without_blanks(line: &str) -> &str {
    let plain = line.trim_end_matches(' ');
    let backslashes = plain.bytes().rev().take_while(|byte| *byte == b'\\').count();
    match plain.len() < line.len() && backslashes % 2 == 1 {
        true => &line[..=plain.len()],
        false => plain,
    }
}

/// What another program's list means by its first letters is more often that than a name.
fn check(line: &str) -> Result<(), String> {
    let why = match line {
        line if line.starts_with("- ") || line.starts_with("+ ") => {
            "rsync's '- ' and '+ ' are not read: leave '- ' out and write '!' for '+ ' (the last \
             line that matches counts, not the first), or '\\- ' for a name that begins so"
        }
        line if line.starts_with(';') => {
            "a comment begins with '#'; write '\\;' for a name that begins so"
        }
        _ => return select::check_line(line),
    };
    Err(why.into())
}

/// Which some editors write in front of UTF-8.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";
/// Patterns, comments and all.
const FILE_BYTES_MAX: u64 = 16 * FILTER_BYTES_MAX as u64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_as_gitignore_says() {
        type Case<'a> = (&'a [u8], Result<&'a [&'a str], (usize, &'a str)>);
        let cases: [Case<'_>; 18] = [
            (b"", Ok(&[])),
            (b"*.o", Ok(&["*.o"])),
            (b"*.o\n!keep.o\n/build/\n", Ok(&["*.o", "!keep.o", "/build/"])),
            (b"# objects\n\n*.o\n   \n#\n", Ok(&["*.o"])),
            (b"a   \nb\\ \nc\\ \\   \n", Ok(&["a", "b\\ ", "c\\ \\ "])),
            (b"a\nc\\\n", Err((2, "a '\\' at the end"))),
            (b"a   \nb\\ \nc\\\\  \n", Ok(&["a", "b\\ ", "c\\\\"])),
            (b"b\\    \n", Ok(&["b\\ "])),
            (b"\\#a\n\\!b\n", Ok(&["\\#a", "\\!b"])),
            (b" a\n", Ok(&[" a"])),
            (b"\xef\xbb\xbfa\r\nb\r\n", Ok(&["a", "b"])),
            (b"a\t\n", Ok(&["a\t"])),
            (b"a\n\xff\n", Err((2, "not UTF-8"))),
            (b"a\n\n[b\n", Err((3, ""))),
            (b"- *.o\n", Err((1, "rsync's"))),
            (b"*.o\n+ a\n", Err((2, "rsync's"))),
            (b"; a\n", Err((1, "'#'"))),
            (b"!\n", Err((1, "write a name"))),
        ];
        for (bytes, expect) in cases {
            let text = bytes.escape_ascii();
            match (lines_of(bytes), expect) {
                (Ok(lines), Ok(expect)) => assert_eq!(lines, expect, "{text}"),
                (Err((line, why)), Err((at, part))) => {
                    assert_eq!(line, at, "{text}: {why}");
                    assert!(why.contains(part), "{text}: {why}");
                }
                (found, _) => panic!("{text}: {found:?}"),
            }
        }
    }
}
