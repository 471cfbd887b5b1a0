//! A list of names to copy, as `--files-from` gives it: checked as a whole before anything is
//! copied, and kept in a temporary file, as it may be larger than the memory.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::wire::manifest::path_is_safe;
use base::fault::Fault;

/// What ends a name in a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    Line,
    Nul,
}

/// Checked names in the order of the list, which can be read repeatedly. Takes sixteen bytes of
/// memory for each.
#[derive(Debug)]
pub struct Names {
    /// Each name, followed by a NUL.
    spool: BufWriter<File>,
    /// Sorted once the list is complete.
    hashes: Vec<u128>,
}

/// Which some editors write in front of UTF-8.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

impl Names {
    pub fn new() -> Result<Names, Fault> {
        let spool = tempfile::tempfile().map_err(|why| spool_fault(&why))?;
        Ok(Names { spool: BufWriter::new(spool), hashes: Vec::new() })
    }

    /// Reads a whole list; `-` is standard input. An error names its line.
    pub fn read(list: &Path, ending: Ending) -> Result<Names, Fault> {
        match list.as_os_str() == "-" {
            true => Names::read_from(&mut io::stdin().lock(), list, ending),
            false => {
                let file = File::open(list).map_err(|why| Fault::io("open", list, &why))?;
                Names::read_from(&mut BufReader::new(file), list, ending)
            }
        }
    }

    fn read_from(from: &mut dyn BufRead, list: &Path, ending: Ending) -> Result<Names, Fault> {
        let mut names = Names::new()?;
        let end = if ending == Ending::Nul { 0 } else { b'\n' };
        let (mut line, mut returns, mut count_of_lines) = (Vec::new(), 0_u64, 0_u64);
        for number in 1_u64.. {
            line.clear();
            // One more than the longest good name: a line without an end must not fill the memory.
            let mut some = (&mut *from).take(LINE_BYTES_MAX);
            let count = some.read_until(end, &mut line);
            if count.map_err(|why| Fault::io("read", list, &why))? == 0 {
                break;
            }
            if line.last() == Some(&end) {
                line.pop();
            }
            count_of_lines += 1;
            returns += u64::from(end == b'\n' && line.last() == Some(&b'\r'));
            if number == 1 && end == b'\n' && line.starts_with(BYTE_ORDER_MARK) {
                return Err(Fault::usage(format!(
                    "'{}' begins with a byte order mark: save it as plain UTF-8, or use -0",
                    list.display()
                )));
            }
            let Some(name) = plain(&line) else { continue };
            names.push(name).map_err(|fault| {
                Fault::usage(format!("'{}', line {number}: {}", list.display(), fault.text))
            })?;
        }
        if returns > 0 && returns == count_of_lines {
            return Err(Fault::usage(format!(
                "each line of '{}' ends in CR LF: write it with LF alone (tr -d '\\r'), or with \
                 NUL and -0 where names end in CR",
                list.display()
            )));
        }
        names.complete()?;
        Ok(names)
    }

    /// Adds one name, as the list or the peer gives it.
    pub fn push(&mut self, name: &[u8]) -> Result<(), Fault> {
        if !path_is_safe(name) {
            return Err(Fault::usage(format!(
                "'{}' is no name below the source folder: write one without '..' and without a \
                 '/' in front",
                name.escape_ascii()
            )));
        }
        self.hashes.push(hash_of(name));
        let written = self.spool.write_all(name).and_then(|()| self.spool.write_all(&[0]));
        written.map_err(|why| spool_fault(&why))
    }

    /// Ends the list. A name that is in it twice would be copied twice at once.
    pub fn complete(&mut self) -> Result<(), Fault> {
        self.spool.flush().map_err(|why| spool_fault(&why))?;
        self.hashes.sort_unstable();
        let pairs = self.hashes.windows(2);
        let twice: BTreeSet<u128> =
            pairs.filter(|pair| pair[0] == pair[1]).map(|pair| pair[0]).collect();
        if twice.is_empty() {
            return Ok(());
        }
        let mut seen: BTreeSet<Vec<u8>> = BTreeSet::new();
        let mut repeated = None;
        self.each(&mut |name| {
            if twice.contains(&hash_of(name)) && !seen.insert(name.to_vec()) {
                repeated = Some(name.to_vec());
            }
            repeated.is_none()
        })?;
        match repeated {
            None => Ok(()),
            Some(name) => Err(Fault::usage(format!(
                "the list of names has '{}' twice: leave one out, as 'sort -u' does",
                name.escape_ascii()
            ))),
        }
    }

    /// Whether a complete list has this name.
    pub fn contains(&self, name: &[u8]) -> bool {
        self.hashes.binary_search(&hash_of(name)).is_ok()
    }

    /// Every name of a complete list in order, until `take` returns false.
    pub fn each(&self, take: &mut dyn FnMut(&[u8]) -> bool) -> Result<(), Fault> {
        let mut spool = BufReader::new(From { file: self.spool.get_ref(), at: 0 });
        let mut name = Vec::new();
        loop {
            name.clear();
            match spool.read_until(0, &mut name) {
                Ok(0) => return Ok(()),
                Ok(_) => {
                    name.pop();
                    if !take(&name) {
                        return Ok(());
                    }
                }
                Err(why) => return Err(spool_fault(&why)),
            }
        }
    }
}

/// A file read from its start, independent of other readers.
struct From<'a> {
    file: &'a File,
    at: u64,
}

impl Read for From<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read_at(into, self.at)?;
        self.at += count as u64;
        Ok(count)
    }
}

/// A line as a name: a leading `./` and a trailing slash are removed, as `find` and `ls -p` print
/// them. `None` for a line without a name.
fn plain(line: &[u8]) -> Option<&[u8]> {
    let mut name = line;
    while let Some(rest) = name.strip_prefix(b"./") {
        name = rest;
    }
    // An absolute name keeps its slash, so that it is refused.
    let name = if name.len() > 1 { name.strip_suffix(b"/").unwrap_or(name) } else { name };
    (!name.is_empty() && name != b".").then_some(name)
}

/// The hash that represents a name in memory.
pub(crate) fn hash_of(name: &[u8]) -> u128 {
    let sum = blake3::hash(name);
    let mut first = [0; 16];
    first.copy_from_slice(&sum.as_bytes()[..16]);
    u128::from_le_bytes(first)
}

fn spool_fault(why: &io::Error) -> Fault {
    Fault::system("keep the list of names in a temporary file ($TMPDIR or /tmp)", why)
}

const LINE_BYTES_MAX: u64 = 8192;

#[cfg(test)]
mod tests {
    use super::*;

    fn check(list: &[u8], ending: Ending, expect: Result<&[&[u8]], &str>) {
        let read = Names::read_from(&mut &list[..], Path::new("list"), ending);
        match (read, expect) {
            (Ok(names), Ok(expect)) => {
                let mut got = Vec::new();
                names
                    .each(&mut |name| {
                        got.push(name.to_vec());
                        true
                    })
                    .unwrap();
                assert_eq!(got, expect, "{}", list.escape_ascii());
            }
            (Err(fault), Err(expect)) => assert!(fault.text.starts_with(expect), "{fault}"),
            (got, _) => panic!("{}: {got:?}", list.escape_ascii()),
        }
    }

    #[test]
    fn lists() {
        let long = vec![b'a'; 10_000];
        check(b"", Ending::Line, Ok(&[]));
        check(b"a\nb/c\n", Ending::Line, Ok(&[b"a", b"b/c"]));
        check(b"./a\n.\n\nb/\nc", Ending::Line, Ok(&[b"a", b"b", b"c"]));
        check(b"a\nb\0\xff\0", Ending::Nul, Ok(&[b"a\nb", b"\xff"]));
        check(b"a\n../b\n", Ending::Line, Err("'list', line 2: '../b' is no name below"));
        check(b"/a\n", Ending::Line, Err("'list', line 1: '/a' is no name below"));
        check(b"a//b\n", Ending::Line, Err("'list', line 1: 'a//b'"));
        check(b"a\nb\n./a/\n", Ending::Line, Err("the list of names has 'a' twice"));
        check(b"a\r\nb\r\n", Ending::Line, Err("each line of 'list' ends in CR LF"));
        check(b"a\r\nb\n", Ending::Line, Ok(&[b"a\r", b"b"]));
        check(b"a\r\0", Ending::Nul, Ok(&[b"a\r"]));
        check(b"\xef\xbb\xbfa\n", Ending::Line, Err("'list' begins with a byte order mark"));
        check(&long, Ending::Line, Err("'list', line 1: 'aaaa"));
    }
}
