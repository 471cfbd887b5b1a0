//! ETags as most stores make them: of an object that was put whole the MD5 of its bytes, of one in
//! parts the MD5 of the MD5s of its parts, with their number behind it.

use md5::{Digest, Md5};

use crate::checksum;

/// That of an object of these parts, where each tag is an MD5.
pub(crate) fn of_parts<'a>(parts: impl Iterator<Item = &'a str>) -> Option<String> {
    let (mut all, mut count) = (Md5::new(), 0);
    for tag in parts {
        all.update(md5_of(bare(tag))?);
        count += 1;
    }
    (count > 0).then(|| format!("{}-{count}", hex(&all.finalize())))
}

/// That of an object that is put whole.
pub(crate) fn of_bytes(bytes: &[u8]) -> String {
    hex(&Md5::digest(bytes))
}

/// The same as the header `Content-MD5` has it.
pub(crate) fn content_md5(bytes: &[u8]) -> String {
    checksum::base64(&Md5::digest(bytes))
}

/// A weak tag may be of other bytes, so it never matches a condition (RFC 9110, 13.1.1).
pub(crate) fn is_strong(tag: &str) -> bool {
    !tag.is_empty() && !tag.starts_with("W/")
}

/// Whether a store that has such tags means the same; quotes do not count, nor that one is weak.
pub(crate) fn is_same(one: &str, other: &str) -> bool {
    bare(one) == bare(other)
}

/// A tag of an object in parts follows from its bytes; its number.
pub(crate) fn number_of_parts(tag: &str) -> Option<u64> {
    let (sum, count) = bare(tag).split_once('-')?;
    let is_tag = md5_of(sum).is_some() && count.parse::<u32>().is_ok();
    is_tag.then(|| checksum::of(bare(tag).as_bytes()))
}

fn bare(tag: &str) -> &str {
    tag.trim_start_matches("W/").trim_matches('"')
}

fn md5_of(hex: &str) -> Option<[u8; 16]> {
    let mut bytes = [0; 16];
    if hex.len() != 2 * bytes.len() || !hex.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    for (place, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&hex[2 * place..2 * place + 2], 16).ok()?;
    }
    Some(bytes)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two parts, "hello" and "world": the MD5 of their MD5s is Python's.
    #[test]
    fn tags_are_those_of_stores() {
        let parts = [of_bytes(b"hello"), of_bytes(b"world")];
        assert_eq!(parts[0], "5d41402abc4b2a76b9719d911017c592");
        let quoted: Vec<String> = parts.iter().map(|part| format!("\"{part}\"")).collect();
        let whole = of_parts(quoted.iter().map(|part| &part[..])).unwrap();
        assert_eq!(whole, "065947336a2f2a95ba8899f3675c3be6-2");
        assert!(is_same(&format!("\"{whole}\""), &whole));
        assert_eq!(number_of_parts(&format!("\"{whole}\"")), number_of_parts(&whole));
        assert!(number_of_parts(&whole).is_some());
        for other in ["", "abc-2", &parts[0], "5d41402abc4b2a76b9719d911017c5zz-2"] {
            assert_eq!(number_of_parts(other), None, "{other}");
        }
        assert_eq!(of_parts([&parts[0][..], "no MD5"].into_iter()), None);
        assert_eq!(content_md5(b"hello"), "XUFAKrxLKna5cZ2REBfFkg=="); // of openssl
        for (tag, strong) in [("\"1\"", true), ("W/\"1\"", false), ("", false)] {
            assert_eq!(is_strong(tag), strong, "{tag}");
        }
        assert!(is_same("W/\"1\"", "\"1\"") && !is_same("W/\"1\"", "W/\"2\""));
    }
}
