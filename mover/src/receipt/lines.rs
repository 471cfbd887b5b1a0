//! The lines of receipts, and of what b3sum, md5sum, sha256sum and their like write.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

use super::ReceiptFile;
use super::kind::DigestOfList;
use base::extra::ExtraDigest;
use base::fault::Fault;

/// What the lines say of one file, and a path that stays inside.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub path: OsString,
    pub digests: Vec<ListedDigest>,
}

/// A digest as a line has it, and the kinds that it may be of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ListedDigest {
    pub kinds: Vec<DigestOfList>,
    pub hex: String,
}

/// The files of a receipt, one at a time: a receipt of a million files is never in memory.
pub(super) struct Lines {
    path: PathBuf,
    /// As messages name it.
    shown: String,
    reader: BufReader<File>,
    number: u64,
    form: Form,
    /// The first line of the next file.
    ahead: Option<Line>,
}

#[derive(Debug, PartialEq, Eq)]
struct Line {
    path: OsString,
    digest: ListedDigest,
}

/// How paths are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// As coreutils and b3sum do it: a backslash before a line says that its path has escapes.
    Coreutils,
    /// In a manifest of BagIt (RFC 8493, 2.1.3): line ends and percent signs are `%0A`, `%0D`,
    /// `%25`, and any blanks stand before the path.
    BagIt,
}

impl Lines {
    pub(super) fn open(receipt: &ReceiptFile) -> Result<Lines, Fault> {
        let ReceiptFile { path, shown, form } = receipt.clone();
        let file = File::open(&path).map_err(|why| Fault::io("open", &path, &why))?;
        let reader = BufReader::new(file);
        Ok(Lines { path, shown, reader, number: 0, form, ahead: None })
    }

    /// The next file, with all lines about it that follow one another; `Ok(None)` at the end.
    pub(super) fn next(&mut self) -> Result<Option<Entry>, Fault> {
        let first = match self.ahead.take() {
            Some(line) => line,
            None => match self.line()? {
                Some(line) => line,
                None => return Ok(None),
            },
        };
        let mut entry = Entry { path: first.path, digests: vec![first.digest] };
        while let Some(line) = self.line()? {
            if line.path != entry.path || entry.digests.len() >= DIGESTS_MAX {
                self.ahead = Some(line);
                break;
            }
            entry.digests.push(line.digest);
        }
        Ok(Some(entry))
    }

    /// Empty lines are skipped.
    fn line(&mut self) -> Result<Option<Line>, Fault> {
        loop {
            let mut line = Vec::new();
            let limited = &mut (&mut self.reader).take(LINE_BYTES_MAX);
            let read = limited.read_until(b'\n', &mut line);
            let read = read.map_err(|why| Fault::io("read", &self.path, &why))?;
            if read == 0 {
                return Ok(None);
            }
            self.number += 1;
            let line = line.strip_suffix(b"\n").unwrap_or(&line);
            if line.is_empty() {
                continue;
            }
            return match parse(line, self.form) {
                Ok(line) => Ok(Some(line)),
                Err(why) => Err(Fault::usage(format!(
                    "'{}' is no receipt: line {}: {why}",
                    self.shown, self.number
                ))),
            };
        }
    }
}

/// One line of a receipt, newline included.
pub(super) fn line(path: &[u8], digest: &str) -> Vec<u8> {
    let prefix = if digest.len() == CRC_HEX { CRC_PREFIX } else { b"" };
    escaped(path, &[prefix, digest.as_bytes(), b"  "].concat(), b"")
}

/// One with a tag.
pub(super) fn tagged(path: &[u8], kind: ExtraDigest, hex: &str) -> Vec<u8> {
    escaped(path, format!("{} (", kind.tag()).as_bytes(), format!(") = {hex}").as_bytes())
}

fn escaped(path: &[u8], before: &[u8], after: &[u8]) -> Vec<u8> {
    let mut line = Vec::with_capacity(path.len() + before.len() + after.len() + 2);
    if path.iter().any(|byte| ESCAPES.iter().any(|(plain, _)| plain == byte)) {
        line.push(b'\\');
    }
    line.extend_from_slice(before);
    for byte in path {
        match ESCAPES.iter().find(|(plain, _)| plain == byte) {
            Some((_, letter)) => line.extend_from_slice(&[b'\\', *letter]),
            None => line.push(*byte),
        }
    }
    line.extend_from_slice(after);
    line.push(b'\n');
    line
}

fn parse(line: &[u8], form: Form) -> Result<Line, &'static str> {
    let (is_escaped, line) = match line.strip_prefix(b"\\") {
        Some(rest) => (true, rest),
        None => (false, line),
    };
    let (kinds, hex, path) = match of_tag(line) {
        Some(parts) => parts,
        None => of_plain(line, form)?,
    };
    if !hex.iter().all(u8::is_ascii_hexdigit) {
        return Err(NO_DIGEST);
    }
    let path = match form {
        Form::BagIt => of_bag(path),
        Form::Coreutils if is_escaped => unescape(path)?,
        Form::Coreutils => path.to_vec(),
    };
    let path = stays_inside(path)?;
    let hex: String = hex.iter().map(|byte| char::from(byte.to_ascii_lowercase())).collect();
    // Adler-32 is a number to xrdcp, which leaves its zeros out.
    let digits = kinds.first().map_or(0, |kind| kind.digits());
    Ok(Line { path, digest: ListedDigest { hex: format!("{hex:0>digits$}"), kinds } })
}

type Parts<'a> = (Vec<DigestOfList>, &'a [u8], &'a [u8]);

/// `MD5 (path) = hex`.
fn of_tag(line: &[u8]) -> Option<Parts<'_>> {
    DigestOfList::ALL.into_iter().find_map(|kind| {
        let rest = line.strip_prefix(kind.tag().as_bytes())?.strip_prefix(b" (")?;
        let at = rest.windows(4).rposition(|part| part == b") = ")?;
        let (path, hex) = (&rest[..at], &rest[at + 4..]);
        has_digits(kind, hex).then_some((vec![kind], hex, path))
    })
}

/// `hex  path`, or `hex *path`; with one blank where Adler-32 stands alone, as xrdadler32 does it.
fn of_plain(line: &[u8], form: Form) -> Result<Parts<'_>, &'static str> {
    let (kind, line) = match line.strip_prefix(CRC_PREFIX) {
        Some(rest) => (Some(DigestOfList::Crc64Nvme), rest),
        None => (None, line),
    };
    let is_blank = |byte: &u8| *byte == b' ' || (form == Form::BagIt && *byte == b'\t');
    let len = line.iter().position(is_blank).ok_or("it is too short for a digest")?;
    let (hex, rest) = line.split_at(len);
    let kinds: Vec<DigestOfList> = match kind {
        Some(kind) => [kind].into_iter().filter(|kind| has_digits(*kind, hex)).collect(),
        None => DigestOfList::of_digits(len).collect(),
    };
    if kinds.is_empty() {
        return Err(NO_DIGEST);
    }
    if form == Form::BagIt {
        let path = rest.trim_ascii_start();
        return Ok((kinds, hex, path.strip_prefix(b"*").unwrap_or(path)));
    }
    let path = rest.strip_prefix(b"  ").or_else(|| rest.strip_prefix(b" *"));
    match (path, rest.strip_prefix(b" ")) {
        (Some(path), _) => Ok((kinds, hex, path)),
        (None, Some(path)) if kinds.contains(&DigestOfList::Adler32) => {
            Ok((vec![DigestOfList::Adler32], hex, path))
        }
        _ => Err("two blanks do not follow the digest"),
    }
}

fn has_digits(kind: DigestOfList, hex: &[u8]) -> bool {
    match kind {
        DigestOfList::Adler32 => (1..=kind.digits()).contains(&hex.len()),
        _ => hex.len() == kind.digits(),
    }
}

/// What is no escape of BagIt's stays as it is.
fn of_bag(path: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((first, after)) = rest.split_first() {
        let escaped = match (first, after.get(..2).map(<[u8]>::to_ascii_uppercase).as_deref()) {
            (b'%', Some(b"0A")) => Some(b'\n'),
            (b'%', Some(b"0D")) => Some(b'\r'),
            (b'%', Some(b"25")) => Some(b'%'),
            _ => None,
        };
        plain.push(escaped.unwrap_or(*first));
        rest = &after[if escaped.is_some() { 2 } else { 0 }..];
    }
    plain
}

fn unescape(path: &[u8]) -> Result<Vec<u8>, &'static str> {
    let mut plain = Vec::with_capacity(path.len());
    let mut bytes = path.iter();
    while let Some(byte) = bytes.next() {
        if *byte != b'\\' {
            plain.push(*byte);
            continue;
        }
        let known =
            bytes.next().and_then(|after| ESCAPES.iter().find(|(_, letter)| letter == after));
        plain.push(known.ok_or("its path has an unknown escape")?.0);
    }
    Ok(plain)
}

/// A receipt comes from elsewhere: its paths must not reach files that were never copied. What
/// `find .` puts in front is dropped: a store takes it for a part of the key.
fn stays_inside(path: Vec<u8>) -> Result<OsString, &'static str> {
    if path.contains(&0) {
        return Err("its path is no name");
    }
    let path = OsString::from_vec(path);
    let inner = |part: Component| matches!(part, Component::Normal(_) | Component::CurDir);
    if !Path::new(&path).components().all(inner) {
        return Err("its path is absolute or has '..': it would lead out of the folder");
    }
    let mut bytes = path.as_bytes();
    while let Some(rest) = bytes.strip_prefix(b"./") {
        bytes = &rest[rest.iter().take_while(|byte| **byte == b'/').count()..];
    }
    match bytes {
        b"" | b"." => Err("its path is no name"),
        bytes => Ok(OsStr::from_bytes(bytes).to_os_string()),
    }
}

const NO_DIGEST: &str = "it does not begin with a digest of a kind that is known (of 64 digits \
                         BLAKE3 and SHA-256, of 32 MD5 and XXH128, of 16 XXH3 and XXH64, of 8 \
                         Adler-32, CRC-32, CRC-32C, XXH32), nor with a tag as 'SHA256 (path) = '";
const CRC_PREFIX: &[u8] = b"crc64nvme:";
const CRC_HEX: usize = 16;
/// A byte that is escaped, and the letter that represents it after a backslash.
const ESCAPES: [(u8, u8); 3] = [(b'\\', b'\\'), (b'\n', b'n'), (b'\r', b'r')];
/// Two hexadecimal digests and a path whose every byte is escaped are shorter.
const LINE_BYTES_MAX: u64 = 16 << 10;
/// Lines about one file that are taken together.
const DIGESTS_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use base::limits::PATH_BYTES_MAX;
    use proptest::prelude::*;

    const _: () = assert!(2 * PATH_BYTES_MAX + 2 * 64 < LINE_BYTES_MAX as usize);

    fn blake3_hex(bytes: &[u8]) -> String {
        blake3::hash(bytes).to_hex().to_string()
    }

    #[test]
    fn lines_are_those_of_b3sum() {
        let hex = blake3_hex(b"x");
        let cases: [(&[u8], &str, String); 4] = [
            (b"a/b c", &hex, format!("{hex}  a/b c\n")),
            (b"a\\b\nc\r", &hex, format!("\\{hex}  a\\\\b\\nc\\r\n")),
            (b"a", "0123456789abcdef", "crc64nvme:0123456789abcdef  a\n".into()),
            (b"\\", "0123456789abcdef", "\\crc64nvme:0123456789abcdef  \\\\\n".into()),
        ];
        for (path, digest, expect) in cases {
            assert_eq!(line(path, digest), expect.as_bytes());
        }
        assert_eq!(line(b"\xff", &hex), [hex.as_bytes(), b"  \xff\n"].concat(), "names are bytes");
    }

    /// What other programs write, of an empty file.
    #[test]
    fn lines_of_other_programs_are_read() {
        use DigestOfList::{
            Adler32, Blake3, Crc32, Crc32c, Md5, Sha256, Xxh3, Xxh32, Xxh64, Xxh128,
        };
        let md5 = "d41d8cd98f00b204e9800998ecf8427e";
        let sha256 = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        let of_32 = &[Md5, Xxh128][..];
        let of_64 = &[Blake3, Sha256][..];
        let of_8 = &[Adler32, Crc32, Crc32c, Xxh32][..];
        let cases = [
            (format!("{md5}  a b"), Some((of_32, md5, "a b"))),
            (format!("{md5} *a"), Some((of_32, md5, "a"))),
            (format!("MD5 (a) (b) = {md5}"), Some((&[Md5][..], md5, "a) (b"))),
            (format!("SHA256 (a) = {}", sha256.to_uppercase()), Some((&[Sha256], sha256, "a"))),
            (format!("\\SHA256 (a\\nb) = {sha256}"), Some((&[Sha256], sha256, "a\nb"))),
            (format!("{sha256}  a"), Some((of_64, sha256, "a"))),
            (format!("BLAKE3 (a) = {sha256}"), Some((&[Blake3], sha256, "a"))),
            (format!("XXH128 (a) = {md5}"), Some((&[Xxh128], md5, "a"))),
            ("0123456789abcdef  a".into(), Some((&[Xxh3, Xxh64], "0123456789abcdef", "a"))),
            ("XXH3 (a) = 0123456789abcdef".into(), Some((&[Xxh3], "0123456789abcdef", "a"))),
            ("00000001  a".into(), Some((of_8, "00000001", "a"))),
            // xrdadler32, and xrdcp, of a file whose digest begins with zeros.
            ("005730c0 a".into(), Some((&[Adler32], "005730c0", "a"))),
            ("ADLER32 (a) = 5730c0".into(), Some((&[Adler32], "005730c0", "a"))),
            // find . -exec sha256sum
            (format!("{md5}  ./a"), Some((of_32, md5, "a"))),
            (format!("{md5}  .//./a/./b"), Some((of_32, md5, "a/./b"))),
            (format!("SHA256 (a) = {md5}"), None),
            ("CRC32C (a) = 5730c0".into(), None),
            (format!("{md5}00000000  a"), None),
            (format!("{md5} a"), None),
            (format!("{md5}  ./"), None),
            (format!("MD5 (../a) = {md5}"), None),
        ];
        for (text, expect) in cases {
            let found = parse(text.as_bytes(), Form::Coreutils).ok();
            let expect = expect.map(|(kinds, hex, path)| Line {
                path: path.into(),
                digest: ListedDigest { kinds: kinds.to_vec(), hex: hex.into() },
            });
            assert_eq!(found, expect, "{text}");
        }
    }

    /// As bagit 1.9 writes them: nothing else is an escape there.
    #[test]
    fn names_of_a_bag_are_read() {
        let md5 = "d41d8cd98f00b204e9800998ecf8427e";
        for (path, expect) in [
            ("  data/a%0Ab%0d%25", "data/a\nb\r%"),
            (" \t data/a\\n%20", "data/a\\n%20"),
            (" *data/100%", "data/100%"),
        ] {
            let line = parse(format!("{md5}{path}").as_bytes(), Form::BagIt).unwrap();
            assert_eq!(line.path.to_str(), Some(expect), "{path}");
        }
    }

    proptest! {
        #[test]
        fn lines_come_back(path in prop::collection::vec(1u8.., 1..40), which in 0..3_u8) {
            let (line, kinds, hex) = match which {
                0 => {
                    let hex = blake3_hex(&path);
                    (line(&path, &hex), vec![DigestOfList::Blake3, DigestOfList::Sha256], hex)
                }
                1 => {
                    let hex = "0123456789abcdef".to_string();
                    (line(&path, &hex), vec![DigestOfList::Crc64Nvme], hex)
                }
                _ => {
                    let hex = "01234567".to_string();
                    let line = tagged(&path, ExtraDigest::Adler32, &hex);
                    (line, vec![DigestOfList::Adler32], hex)
                }
            };
            prop_assert_eq!(line.iter().filter(|byte| **byte == b'\n').count(), 1);
            let read = parse(&line[..line.len() - 1], Form::Coreutils);
            match stays_inside(path) {
                Ok(path) => {
                    let digest = ListedDigest { kinds, hex };
                    prop_assert_eq!(read, Ok(Line { path, digest }));
                }
                Err(_) => prop_assert!(read.is_err()),
            }
        }

        #[test]
        fn rubbish_is_refused_without_a_panic(line in prop::collection::vec(any::<u8>(), 0..120)) {
            let _ = parse(&line, Form::Coreutils);
            let _ = parse(&line, Form::BagIt);
        }
    }
}
