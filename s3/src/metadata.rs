//! What POSIX keeps of a file, as user metadata of an object, in the forms that s3fs and rclone
//! know: `mode` with the kind of file (decimal, as s3fs has it; rclone's octal is read too),
//! `mtime` in seconds with a fraction, `uid`, `gid`, and `xattr` as s3fs has it. What mc, s3cmd and
//! AWS DataSync write is read too.

use std::sync::Arc;

use serde_json::{Map, Value};

use crate::answers::decoded;
use crate::checksum::{base64, unbase64};
use crate::connection::Head;
use crate::dates;
use crate::signing::encode;
use base::attributes::{Attributes, Xattr};
use base::owners::Owner;
use mover::io::volume::{Metadata, Mtime};

/// The kinds of files, as modes have them.
pub(crate) const FILE: u32 = 0o100_000;
pub(crate) const FOLDER: u32 = 0o040_000;
pub(crate) const LINK: u32 = 0o120_000;
const KIND: u32 = 0o170_000;

/// What an object's headers say of the file that it was.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Posix {
    pub mode: Option<u32>,
    pub mtime: Option<Mtime>,
    pub attributes: Option<Arc<Attributes>>,
}

impl Posix {
    pub(crate) fn of(head: &Head, key: &str) -> Posix {
        let get = |name: &str| head.get(&format!("x-amz-meta-{name}"));
        let is_folder = key.ends_with('/');
        let all = [
            Told::of_s3fs_or_rclone(&get, is_folder),
            Told::of_list(get("mc-attrs")),
            Told::of_list(get("s3cmd-attrs")),
            Told::of_datasync(&get),
        ];
        let told = all.into_iter().reduce(Told::or).unwrap_or_default();
        let xattrs = read_xattrs(get("xattr"));
        let has_some = told.uid.is_some() || told.gid.is_some() || !xattrs.is_empty();
        let attributes = has_some.then(|| {
            let (uid, gid) = (told.uid.unwrap_or(0), told.gid.unwrap_or(0));
            Arc::new(Attributes { uid, gid, xattrs, ..Attributes::default() })
        });
        Posix { mode: told.mode, mtime: told.mtime, attributes }
    }

    pub(crate) fn is_link(&self) -> bool {
        self.mode.is_some_and(|mode| mode & KIND == LINK)
    }

    pub(crate) fn permissions(&self) -> Option<u32> {
        self.mode.map(|mode| mode & 0o7777)
    }
}

/// What one of the forms says.
#[derive(Clone, Debug, Default)]
struct Told {
    mode: Option<u32>,
    mtime: Option<Mtime>,
    uid: Option<u32>,
    gid: Option<u32>,
}

impl Told {
    fn of_s3fs_or_rclone<'a>(get: &dyn Fn(&str) -> &'a str, is_folder: bool) -> Told {
        let mode = read_mode(get("mode"), is_folder);
        let is_decimal = mode.is_some() && mode == get("mode").parse().ok();
        Told {
            mode,
            mtime: read_mtime(get("mtime"), is_decimal),
            uid: get("uid").parse().ok(),
            gid: get("gid").parse().ok(),
        }
    }

    /// `mode:33188/mtime:1700000000#5/uid:0`, as mc and s3cmd write it; the number behind the hash
    /// is nanoseconds that count forward.
    fn of_list(text: &str) -> Told {
        let get = |name: &str| {
            let pairs = text.split('/').filter_map(|pair| pair.split_once(':'));
            pairs.into_iter().find(|(known, _)| *known == name).map_or("", |(_, value)| value)
        };
        let (seconds, nanos) = get("mtime").split_once('#').unwrap_or((get("mtime"), "0"));
        let mtime = seconds.parse().ok().zip(nanos.parse().ok());
        Told {
            mode: get("mode").parse().ok(),
            mtime: mtime.and_then(|(seconds, nanos)| checked(seconds, nanos)),
            uid: get("uid").parse().ok(),
            gid: get("gid").parse().ok(),
        }
    }

    /// An octal mode, and a time in milliseconds, or in nanoseconds with `ns` behind it.
    fn of_datasync<'a>(get: &dyn Fn(&str) -> &'a str) -> Told {
        let time = get("file-mtime");
        let nanos: Option<i128> = match time.strip_suffix("ns") {
            Some(nanos) => nanos.parse().ok(),
            None => time.parse::<i64>().ok().map(|millis| i128::from(millis) * 1_000_000),
        };
        Told {
            mode: u32::from_str_radix(get("file-permissions"), 8).ok(),
            mtime: nanos.and_then(of_nanos),
            uid: get("file-owner").parse().ok(),
            gid: get("file-group").parse().ok(),
        }
    }

    fn or(self, other: Told) -> Told {
        Told {
            mode: self.mode.or(other.mode),
            mtime: self.mtime.or(other.mtime),
            uid: self.uid.or(other.uid),
            gid: self.gid.or(other.gid),
        }
    }
}

/// When an object was last changed: what it was as a file, or what the store says.
pub(crate) fn mtime_of(head: &Head, posix: &Posix) -> Mtime {
    let modified = dates::http(head.get("last-modified")).unwrap_or(0);
    posix.mtime.unwrap_or(Mtime { seconds: modified, nanos: 0 })
}

/// The headers for a file; with them, what does not fit in.
pub(crate) fn headers(meta: &Metadata, kind: u32) -> (Vec<(String, String)>, Option<&'static str>) {
    let mut headers = Vec::new();
    let mut add = |name: &str, value: String| headers.push((format!("x-amz-meta-{name}"), value));
    add("mode", (kind | meta.mode).to_string());
    if let Some(mtime) = meta.mtime {
        add("mtime", written_mtime(mtime));
    }
    let attributes = meta.attributes.as_deref();
    let Owner { user, group } = meta.owner;
    if let Some(uid) = user.or(attributes.map(|all| all.uid)) {
        add("uid", uid.to_string());
    }
    if let Some(gid) = group.or(attributes.map(|all| all.gid)) {
        add("gid", gid.to_string());
    }
    let xattrs = attributes.map_or(&[][..], |all| &all.xattrs);
    if xattrs.is_empty() {
        return (headers, None);
    }
    match written_xattrs(xattrs) {
        Some(text) if text.len() <= XATTRS_BYTES_MAX => {
            add("xattr", text);
            (headers, None)
        }
        _ => (headers, Some("extended attributes are not kept: a store has 2 KiB for metadata")),
    }
}

/// S3 takes 2 KiB of metadata.
const XATTRS_BYTES_MAX: usize = 1800;

/// s3fs: decimal, with the kind of file; of folders that `mkdir` made without. rclone: octal, with
/// or without.
fn read_mode(text: &str, is_folder: bool) -> Option<u32> {
    let (decimal, octal) = (text.parse().ok(), u32::from_str_radix(text, 8).ok());
    let has_kind = |mode: &u32| [FILE, FOLDER, LINK].contains(&(mode & !0o7777));
    if text.starts_with('0') {
        return octal;
    }
    let known = decimal.filter(has_kind).or(octal.filter(has_kind));
    match decimal {
        Some(0..0o10000) if !is_folder => known.or(octal).or(decimal),
        _ => known.or(decimal),
    }
}

/// Before 1970 a fraction counts backward, as in any decimal number and as rclone has it. s3fs, and
/// whoever copies from it, needs nine digits and counts them forward, so here there are never nine.
fn written_mtime(Mtime { seconds, nanos }: Mtime) -> String {
    if seconds >= 0 || nanos == 0 {
        return format!("{seconds}.{nanos:09}");
    }
    let (whole, fraction) = ((seconds + 1).unsigned_abs(), 1_000_000_000 - nanos);
    let text = format!("-{whole}.{fraction:09}");
    match text.trim_end_matches('0') {
        trimmed if trimmed.len() == text.len() => text + "0",
        trimmed => trimmed.to_string(),
    }
}

/// `is_s3fs`: beside a mode as s3fs writes it.
fn read_mtime(text: &str, is_s3fs: bool) -> Option<Mtime> {
    if text.contains('T') {
        return dates::iso(text).map(|(seconds, nanos)| Mtime { seconds, nanos });
    }
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let seconds: i64 = whole.parse().ok()?;
    let nanos: u32 = format!("{fraction:0<9}").get(..9)?.parse().ok()?;
    let is_forward = is_s3fs && fraction.len() == 9;
    match whole.starts_with('-') && nanos > 0 && !is_forward {
        true => checked(seconds.checked_sub(1)?, 1_000_000_000 - nanos),
        false => checked(seconds, nanos),
    }
}

fn of_nanos(nanos: i128) -> Option<Mtime> {
    const SECOND: i128 = 1_000_000_000;
    let seconds = i64::try_from(nanos.div_euclid(SECOND)).ok()?;
    checked(seconds, nanos.rem_euclid(SECOND) as u32)
}

fn checked(seconds: i64, nanos: u32) -> Option<Mtime> {
    (nanos < 1_000_000_000).then_some(Mtime { seconds, nanos })
}

/// JSON of names and values in base64, encoded as a URL is.
fn written_xattrs(xattrs: &[Xattr]) -> Option<String> {
    let mut all = Map::new();
    for (name, value) in xattrs {
        all.insert(String::from_utf8(name.clone()).ok()?, Value::String(base64(value)));
    }
    Some(encode(&Value::Object(all).to_string(), b""))
}

fn read_xattrs(text: &str) -> Vec<Xattr> {
    let all = decoded(text).and_then(|text| serde_json::from_str::<Map<String, Value>>(&text).ok());
    let read =
        |(name, value): (String, Value)| Some((name.into_bytes(), unbase64(value.as_str()?)?));
    all.unwrap_or_default().into_iter().filter_map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(pairs: &[(&str, &str)]) -> Head {
        let pairs =
            pairs.iter().map(|(name, value)| (format!("x-amz-meta-{name}"), (*value).into()));
        Head { status: 200, headers: pairs.collect() }
    }

    #[test]
    fn what_is_written_is_read() {
        let xattrs = vec![(b"user.a".to_vec(), vec![0, 255, 7]), (b"user.b".to_vec(), vec![])];
        let attributes = Attributes { uid: 7, gid: 8, xattrs, ..Attributes::default() };
        let meta = Metadata {
            mode: 0o640,
            mtime: Some(Mtime { seconds: 1_640_995_200, nanos: 5 }),
            owner: Owner { user: Some(7), group: Some(8) },
            attributes: Some(Arc::new(attributes)),
        };
        let (headers, left_out) = headers(&meta, FILE);
        assert_eq!(left_out, None);
        assert!(headers.contains(&("x-amz-meta-mode".into(), "33184".into())), "{headers:?}");
        let expect = ("x-amz-meta-mtime".to_string(), "1640995200.000000005".to_string());
        assert!(headers.contains(&expect), "{headers:?}");
        let posix = Posix::of(&Head { status: 200, headers }, "k");
        assert_eq!((posix.permissions(), posix.mtime), (Some(0o640), meta.mtime));
        assert_eq!(posix.attributes, meta.attributes);
        assert!(!posix.is_link());
    }

    /// Of a file, and of a folder.
    #[test]
    fn modes_of_others_are_read() {
        let cases = [
            ("33188", Some(0o100_644), Some(0o100_644)),
            ("100644", Some(0o100_644), Some(0o100_644)),
            ("40755", Some(0o040_755), Some(0o040_755)),
            ("16877", Some(0o040_755), Some(0o040_755)),
            ("41471", Some(0o120_777), Some(0o120_777)),
            ("120777", Some(0o120_777), Some(0o120_777)),
            ("0644", Some(0o644), Some(0o644)),
            // What has no kind is octal of a file, and decimal of a folder of s3fs.
            ("644", Some(0o644), Some(644)),
            ("755", Some(0o755), Some(755)),
            ("2755", Some(0o2755), Some(2755)),
            ("493", Some(0o755), Some(0o755)),
            ("4516", Some(0o010_644), Some(0o010_644)),
            ("", None, None),
            ("rw", None, None),
        ];
        for (text, file, folder) in cases {
            let read = |key| Posix::of(&head(&[("mode", text)]), key).mode;
            assert_eq!((read("k"), read("k/")), (file, folder), "{text}");
        }
        assert!(Posix::of(&head(&[("mode", "41471")]), "k").is_link());
    }

    /// Alone as rclone has it, and beside a mode of s3fs.
    #[test]
    fn times_of_others_are_read() {
        let same = |seconds, nanos| (Some((seconds, nanos)), Some((seconds, nanos)));
        let cases = [
            ("1354040105", same(1_354_040_105, 0)),
            ("1354040105.123456789", same(1_354_040_105, 123_456_789)),
            ("1354040105.5", same(1_354_040_105, 500_000_000)),
            ("2012-11-27T18:15:05.5Z", same(1_354_040_105, 500_000_000)),
            ("-152391232.75", same(-152_391_233, 250_000_000)),
            ("-0.5", same(-1, 500_000_000)),
            ("-1.1234567890", same(-2, 876_543_211)),
            ("-2.000000000", same(-2, 0)),
            (
                "-152391233.250000000",
                (Some((-152_391_234, 750_000_000)), Some((-152_391_233, 250_000_000))),
            ),
            ("-9223372036854775808.5", (None, None)),
            ("yesterday", (None, None)),
        ];
        for (text, (alone, beside)) in cases {
            let of =
                |time: Option<(i64, u32)>| time.map(|(seconds, nanos)| Mtime { seconds, nanos });
            assert_eq!(Posix::of(&head(&[("mtime", text)]), "k").mtime, of(alone), "{text}");
            let read = Posix::of(&head(&[("mtime", text), ("mode", "33188")]), "k").mtime;
            assert_eq!(read, of(beside), "{text}");
        }
    }

    #[test]
    fn times_are_written_as_numbers() {
        let cases = [
            (0, 5, "0.000000005"),
            (-2, 500_000_000, "-1.5"),
            (-1, 500_000_000, "-0.5"),
            (-2, 0, "-2.000000000"),
            (-2, 876_543_211, "-1.1234567890"),
            (i64::MIN, 1, "-9223372036854775807.9999999990"),
        ];
        for (seconds, nanos, text) in cases {
            let mtime = Mtime { seconds, nanos };
            assert_eq!(written_mtime(mtime), text);
            assert_eq!(read_mtime(text, true), Some(mtime), "{text}");
        }
    }

    #[test]
    fn lists_of_others_are_read() {
        let mc = "atime:1700000002#5/gid:7/gname:g/mode:33261/mtime:1700000001#123456789/uid:8";
        let s3cmd =
            "atime:1/ctime:2/gid:7/gname:g/md5:0a/mode:33184/mtime:1700000001/uid:8/uname:u";
        let datasync = |time| {
            vec![
                ("file-permissions", "0640"),
                ("file-mtime", time),
                ("file-owner", "8"),
                ("file-group", "7"),
            ]
        };
        let cases = [
            (vec![("mc-attrs", mc)], 0o755, (1_700_000_001, 123_456_789)),
            (vec![("s3cmd-attrs", s3cmd)], 0o640, (1_700_000_001, 0)),
            (datasync("1700000001123456789ns"), 0o640, (1_700_000_001, 123_456_789)),
            (datasync("1700000001123"), 0o640, (1_700_000_001, 123_000_000)),
            (datasync("-1500"), 0o640, (-2, 500_000_000)),
            // What is read of s3fs counts before all others.
            (vec![("mc-attrs", mc), ("mode", "33188"), ("mtime", "5.5")], 0o644, (5, 500_000_000)),
        ];
        for (pairs, mode, (seconds, nanos)) in cases {
            let posix = Posix::of(&head(&pairs), "k");
            let read = (posix.permissions(), posix.mtime);
            assert_eq!(read, (Some(mode), Some(Mtime { seconds, nanos })), "{pairs:?}");
            let attributes = posix.attributes.unwrap();
            assert_eq!((attributes.uid, attributes.gid), (8, 7), "{pairs:?}");
        }
        for bad in ["mtime:1#1000000000", "mtime:x", "mtime", ""] {
            assert_eq!(Posix::of(&head(&[("mc-attrs", bad)]), "k"), Posix::default(), "{bad}");
        }
    }

    #[test]
    fn attributes_of_s3fs_are_read() {
        let read = |text| Posix::of(&head(&[("xattr", text)]), "k").attributes;
        let xattrs = &read("%7B%22user.a%22%3A%20%22AA%3D%3D%22%7D").unwrap().xattrs;
        assert_eq!(xattrs[..], [(b"user.a".to_vec(), vec![0])]);
        assert_eq!(read("junk"), None);
    }

    #[test]
    fn what_does_not_fit_is_told() {
        let xattrs = vec![(b"user.a".to_vec(), vec![1; 2000])];
        let attributes = Some(Arc::new(Attributes { xattrs, ..Attributes::default() }));
        let (headers, left_out) = headers(&Metadata { attributes, ..Metadata::default() }, FILE);
        assert!(left_out.is_some() && headers.iter().all(|(name, _)| name != "x-amz-meta-xattr"));
    }
}
