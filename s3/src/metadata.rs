//! What POSIX keeps of a file, as user metadata of an object, in the forms that s3fs and rclone
//! know: `mode` with the kind of file (decimal, as s3fs has it; rclone's octal is read too),
//! `mtime` in seconds with a fraction, `uid`, `gid`, and `xattr` as s3fs has it.

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
    pub(crate) fn of(head: &Head) -> Posix {
        let get = |name: &str| head.get(&format!("x-amz-meta-{name}"));
        let (uid, gid) = (get("uid").parse().ok(), get("gid").parse().ok());
        let xattrs = read_xattrs(get("xattr"));
        let has_some = uid.is_some() || gid.is_some() || !xattrs.is_empty();
        let attributes = has_some.then(|| {
            let (uid, gid) = (uid.unwrap_or(0), gid.unwrap_or(0));
            Arc::new(Attributes { uid, gid, xattrs, ..Attributes::default() })
        });
        Posix { mode: read_mode(get("mode")), mtime: read_mtime(get("mtime")), attributes }
    }

    pub(crate) fn is_link(&self) -> bool {
        self.mode.is_some_and(|mode| mode & KIND == LINK)
    }

    pub(crate) fn permissions(&self) -> Option<u32> {
        self.mode.map(|mode| mode & 0o7777)
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
    if let Some(Mtime { seconds, nanos }) = meta.mtime {
        add("mtime", format!("{seconds}.{nanos:09}"));
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

/// s3fs: decimal. rclone: octal, with a zero in front or six digits.
fn read_mode(text: &str) -> Option<u32> {
    match text.starts_with('0') || text.len() >= 6 {
        true => u32::from_str_radix(text, 8).ok(),
        false => text.parse().ok(),
    }
}

fn read_mtime(text: &str) -> Option<Mtime> {
    if text.contains('T') {
        return dates::iso(text).map(|(seconds, nanos)| Mtime { seconds, nanos });
    }
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, ""));
    let whole: i64 = seconds.parse().ok()?;
    let nanos: u32 = format!("{fraction:0<9}").get(..9)?.parse().ok()?;
    // The fraction of what is written by this program counts forward, also before 1970.
    Some(Mtime { seconds: whole, nanos })
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
        let posix = Posix::of(&Head { status: 200, headers });
        assert_eq!((posix.permissions(), posix.mtime), (Some(0o640), meta.mtime));
        assert_eq!(posix.attributes, meta.attributes);
        assert!(!posix.is_link());
    }

    #[test]
    fn forms_of_others_are_read() {
        let cases = [
            ("33188", Some(0o100_644)),
            ("100644", Some(0o100_644)),
            ("0644", Some(0o644)),
            ("16877", Some(0o040_755)),
            ("41471", Some(0o120_777)),
            ("", None),
            ("rw", None),
        ];
        for (text, expect) in cases {
            assert_eq!(Posix::of(&head(&[("mode", text)])).mode, expect, "{text}");
        }
        let cases = [
            ("1354040105", Some((1_354_040_105, 0))),
            ("1354040105.123456789", Some((1_354_040_105, 123_456_789))),
            ("1354040105.5", Some((1_354_040_105, 500_000_000))),
            ("2012-11-27T18:15:05.5Z", Some((1_354_040_105, 500_000_000))),
            ("yesterday", None),
        ];
        for (text, expect) in cases {
            let expect = expect.map(|(seconds, nanos)| Mtime { seconds, nanos });
            assert_eq!(Posix::of(&head(&[("mtime", text)])).mtime, expect, "{text}");
        }
        assert!(Posix::of(&head(&[("mode", "41471")])).is_link());
        assert_eq!(
            Posix::of(&head(&[("xattr", "%7B%22user.a%22%3A%20%22AA%3D%3D%22%7D")]))
                .attributes
                .unwrap()
                .xattrs,
            [(b"user.a".to_vec(), vec![0])]
        );
        assert_eq!(Posix::of(&head(&[("xattr", "junk")])).attributes, None);
    }

    #[test]
    fn what_does_not_fit_is_told() {
        let xattrs = vec![(b"user.a".to_vec(), vec![1; 2000])];
        let attributes = Some(Arc::new(Attributes { xattrs, ..Attributes::default() }));
        let (headers, left_out) = headers(&Metadata { attributes, ..Metadata::default() }, FILE);
        assert!(left_out.is_some() && headers.iter().all(|(name, _)| name != "x-amz-meta-xattr"));
    }
}
