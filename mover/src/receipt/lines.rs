//! The lines of receipts, and of what b3sum, md5sum, sha256sum and their like write.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

use crate::work::digest::{Whole, to_hex};
use crate::work::extra::Running;
use base::extra::{ExtraDigest, ExtraDigests};
use base::fault::Fault;
use base::settings::DigestKind;

/// The digest that a line has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    Main(DigestKind),
    Extra(ExtraDigest),
}

impl Algorithm {
    /// What a line without a tag may have, by the name of the algorithm.
    pub const NAMES: [&str; 5] = ["blake3", "adler32", "crc32c", "md5", "sha256"];

    pub fn parse(name: &str) -> Option<Algorithm> {
        match name {
            "blake3" => Some(Algorithm::Main(DigestKind::Blake3)),
            name => ExtraDigest::parse(name).map(Algorithm::Extra),
        }
    }

    fn tag(self) -> &'static str {
        match self {
            Algorithm::Main(_) => "BLAKE3",
            Algorithm::Extra(kind) => kind.tag(),
        }
    }

    fn hex_len(self) -> usize {
        match self {
            Algorithm::Main(DigestKind::Crc64) => 16,
            Algorithm::Main(_) => 64,
            Algorithm::Extra(kind) => 2 * kind.bytes(),
        }
    }
}

/// Digests of one file, as all of its lines have them, and a path that stays inside.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub path: OsString,
    pub digests: Vec<(Algorithm, String)>,
}

/// The digests of bytes that are read once, in their order.
pub(super) struct Digests {
    blake3: Option<Whole>,
    crc64: Option<Whole>,
    extra: Running,
}

impl Digests {
    pub(super) fn of(entry: &Entry) -> Digests {
        let has = |kind| entry.digests.iter().any(|(algorithm, _)| *algorithm == kind);
        let main = |kind| has(Algorithm::Main(kind)).then(|| Whole::new(kind));
        let extra = entry.digests.iter().filter_map(|(algorithm, _)| match algorithm {
            Algorithm::Extra(kind) => Some(*kind),
            Algorithm::Main(_) => None,
        });
        Digests {
            blake3: main(DigestKind::Blake3),
            crc64: main(DigestKind::Crc64),
            extra: Running::new(ExtraDigests::of(extra)),
        }
    }

    pub(super) fn update(&mut self, bytes: &[u8]) {
        self.blake3.iter_mut().chain(&mut self.crc64).for_each(|digest| digest.update(bytes));
        self.extra.update(bytes);
    }

    /// True where all that the lines say is so.
    pub(super) fn match_all(self, entry: &Entry) -> bool {
        let mut found: Vec<(Algorithm, String)> = Vec::new();
        for (kind, whole) in [(DigestKind::Blake3, self.blake3), (DigestKind::Crc64, self.crc64)] {
            let hex = whole.map(|whole| to_hex(kind, &whole.finish()));
            found.extend(hex.map(|hex| (Algorithm::Main(kind), hex)));
        }
        let extra = self.extra.finish().hex();
        found.extend(extra.into_iter().map(|(kind, hex)| (Algorithm::Extra(kind), hex)));
        entry.digests.iter().all(|digest| found.contains(digest))
    }
}

/// The files of a receipt, one at a time: a receipt of a million files is never in memory.
pub(super) struct Lines {
    path: PathBuf,
    reader: BufReader<File>,
    number: u64,
    plain: Option<Algorithm>,
    /// The first line of the next file.
    ahead: Option<Line>,
}

#[derive(Debug, PartialEq, Eq)]
struct Line {
    path: OsString,
    digest: (Algorithm, String),
}

impl Lines {
    /// `plain` is what lines without a tag have, where their length does not say it.
    pub(super) fn open(path: &Path, plain: Option<Algorithm>) -> Result<Lines, Fault> {
        let file = File::open(path).map_err(|why| Fault::io("open", path, &why))?;
        let (path, reader) = (path.to_path_buf(), BufReader::new(file));
        Ok(Lines { path, reader, number: 0, plain, ahead: None })
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
            return match parse(line, self.plain) {
                Ok(line) => Ok(Some(line)),
                Err(why) => Err(Fault::usage(format!(
                    "'{}' is no receipt: line {}: {why}",
                    self.path.display(),
                    self.number
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

fn parse(line: &[u8], plain: Option<Algorithm>) -> Result<Line, &'static str> {
    let (is_escaped, line) = match line.strip_prefix(b"\\") {
        Some(rest) => (true, rest),
        None => (false, line),
    };
    let (algorithm, hex, path) = match of_tag(line) {
        Some(parts) => parts,
        None => of_plain(line, plain)?,
    };
    if hex.len() != algorithm.hex_len() || !hex.iter().all(u8::is_ascii_hexdigit) {
        return Err(NO_DIGEST);
    }
    let path = if is_escaped { unescape(path)? } else { path.to_vec() };
    let path = stays_inside(OsString::from_vec(path))?;
    let hex = hex.iter().map(|byte| char::from(byte.to_ascii_lowercase())).collect();
    Ok(Line { path, digest: (algorithm, hex) })
}

type Parts<'a> = (Algorithm, &'a [u8], &'a [u8]);

/// `MD5 (path) = hex`.
fn of_tag(line: &[u8]) -> Option<Parts<'_>> {
    let extra = ExtraDigest::ALL.iter().map(|kind| Algorithm::Extra(*kind));
    let all = extra.chain([Algorithm::Main(DigestKind::Blake3)]);
    for algorithm in all {
        let rest = line.strip_prefix(algorithm.tag().as_bytes());
        let Some(rest) = rest.and_then(|rest| rest.strip_prefix(b" (")) else { continue };
        let (front, hex) = rest.split_at_checked(rest.len().checked_sub(algorithm.hex_len())?)?;
        return Some((algorithm, hex, front.strip_suffix(b") = ")?));
    }
    None
}

/// `hex  path`, or `hex *path`.
fn of_plain(line: &[u8], plain: Option<Algorithm>) -> Result<Parts<'_>, &'static str> {
    let (algorithm, line) = match line.strip_prefix(CRC_PREFIX) {
        Some(rest) => (Some(Algorithm::Main(DigestKind::Crc64)), rest),
        None => (plain, line),
    };
    let len = line.iter().position(|byte| *byte == b' ').ok_or("it is too short for a digest")?;
    let (hex, rest) = line.split_at(len);
    let by_length = || match len {
        64 => Some(Algorithm::Main(DigestKind::Blake3)),
        32 => Some(Algorithm::Extra(ExtraDigest::Md5)),
        _ => None,
    };
    let algorithm = algorithm.or_else(by_length).ok_or(NO_DIGEST)?;
    let path = rest.strip_prefix(b"  ").or_else(|| rest.strip_prefix(b" *"));
    Ok((algorithm, hex, path.ok_or("two blanks do not follow the digest")?))
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

/// A receipt comes from elsewhere: its paths must not reach files that were never copied.
fn stays_inside(path: OsString) -> Result<OsString, &'static str> {
    let bytes = path.as_bytes();
    if bytes.is_empty() || bytes.contains(&0) {
        return Err("its path is no name");
    }
    let inner = |part: Component| matches!(part, Component::Normal(_) | Component::CurDir);
    match Path::new(OsStr::new(&path)).components().all(inner) {
        true => Ok(path),
        false => Err("its path is absolute or has '..': it would lead out of the folder"),
    }
}

const NO_DIGEST: &str = "it does not begin with a digest (BLAKE3, crc64nvme:, MD5, or another that \
                         --algorithm names), nor with a tag as 'SHA256 (path) = '";
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

    /// What coreutils and b3sum write, of an empty file.
    #[test]
    fn lines_of_other_programs_are_read() {
        let md5 = "d41d8cd98f00b204e9800998ecf8427e";
        let sha256 = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        let blake3 = blake3_hex(b"");
        let is_md5 = Algorithm::Extra(ExtraDigest::Md5);
        let is_sha256 = Algorithm::Extra(ExtraDigest::Sha256);
        let cases = [
            (format!("{md5}  a b"), None, Some((is_md5, "a b"))),
            (format!("{md5} *a"), None, Some((is_md5, "a"))),
            (format!("MD5 (a) (b) = {md5}"), None, Some((is_md5, "a) (b"))),
            (format!("SHA256 (a) = {}", sha256.to_uppercase()), None, Some((is_sha256, "a"))),
            (format!("\\SHA256 (a\\nb) = {sha256}"), None, Some((is_sha256, "a\nb"))),
            (format!("{sha256}  a"), Some(is_sha256), Some((is_sha256, "a"))),
            (format!("{blake3}  a"), None, Some((Algorithm::Main(DigestKind::Blake3), "a"))),
            (
                format!("BLAKE3 (a) = {blake3}"),
                None,
                Some((Algorithm::Main(DigestKind::Blake3), "a")),
            ),
            (format!("SHA256 (a) = {md5}"), None, None),
            ("00000001  a".to_string(), None, None),
            (format!("{md5} a"), None, None),
            (format!("MD5 (../a) = {md5}"), None, None),
        ];
        for (text, plain, expect) in cases {
            let found = parse(text.as_bytes(), plain).ok();
            let found = found.map(|line| (line.digest.0, line.path.into_string().unwrap()));
            let expect = expect.map(|(algorithm, path)| (algorithm, path.to_string()));
            assert_eq!(found, expect, "{text}");
        }
    }

    proptest! {
        #[test]
        fn lines_come_back(path in prop::collection::vec(1u8.., 1..40), which in 0..3_u8) {
            let (line, digest) = match which {
                0 => {
                    let hex = blake3_hex(&path);
                    (line(&path, &hex), (Algorithm::Main(DigestKind::Blake3), hex))
                }
                1 => {
                    let hex = "0123456789abcdef".to_string();
                    (line(&path, &hex), (Algorithm::Main(DigestKind::Crc64), hex))
                }
                _ => {
                    let hex = "01234567".to_string();
                    let kind = ExtraDigest::Adler32;
                    (tagged(&path, kind, &hex), (Algorithm::Extra(kind), hex))
                }
            };
            prop_assert_eq!(line.iter().filter(|byte| **byte == b'\n').count(), 1);
            let path = OsString::from_vec(path);
            let read = parse(&line[..line.len() - 1], None);
            match stays_inside(path.clone()) {
                Ok(_) => prop_assert_eq!(read, Ok(Line { path, digest })),
                Err(_) => prop_assert!(read.is_err()),
            }
        }

        #[test]
        fn rubbish_is_refused_without_a_panic(line in prop::collection::vec(any::<u8>(), 0..120)) {
            let _ = parse(&line, None);
            let _ = parse(&line, Some(Algorithm::Extra(ExtraDigest::Adler32)));
        }
    }
}
