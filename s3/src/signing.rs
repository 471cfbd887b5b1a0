//! Signatures of version 4, as "Authenticating Requests (AWS Signature Version 4)" describes them.

use aws_lc_rs::{digest, hmac};
use secrecy::{ExposeSecret, SecretString};

use crate::dates;

/// What signs requests.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    pub id: String,
    pub secret: SecretString,
    /// Of temporary credentials.
    pub token: Option<SecretString>,
}

impl Keys {
    pub(crate) fn of(id: String, secret: String, token: Option<String>) -> Keys {
        Keys { id, secret: secret.into(), token: token.map(SecretString::from) }
    }
}

/// A request before it is signed. Headers have small letters.
#[derive(Debug)]
pub(crate) struct Unsigned<'a> {
    pub method: &'a str,
    /// The path, encoded.
    pub path: &'a str,
    /// Not encoded, in any order.
    pub query: &'a [(&'a str, &'a str)],
    pub headers: &'a [(String, String)],
    pub payload: Payload<'a>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Payload<'a> {
    /// Hashed and signed.
    Signed(&'a [u8]),
    /// Its own checksum is signed instead, as a header.
    Unsigned,
}

/// The headers that a signature adds: all of them are sent.
pub(crate) fn sign(
    request: &Unsigned<'_>,
    keys: &Keys,
    region: &str,
    unix_s: u64,
) -> Vec<(String, String)> {
    let stamp = dates::stamp(unix_s);
    let hash = match request.payload {
        Payload::Signed(bytes) => hex(digest::digest(&digest::SHA256, bytes).as_ref()),
        Payload::Unsigned => "UNSIGNED-PAYLOAD".to_string(),
    };
    let mut added = vec![
        ("x-amz-content-sha256".to_string(), hash.clone()),
        ("x-amz-date".to_string(), stamp.clone()),
    ];
    added.extend(
        keys.token
            .iter()
            .map(|token| ("x-amz-security-token".into(), token.expose_secret().into())),
    );
    let is_signed =
        |name: &str| ["host", "range", "content-md5"].contains(&name) || name.starts_with("x-amz-");
    let mut signed: Vec<_> =
        request.headers.iter().chain(&added).filter(|(name, _)| is_signed(name)).collect();
    signed.sort();
    let names = signed.iter().map(|(name, _)| &name[..]).collect::<Vec<_>>().join(";");
    let mut canonical = format!("{}\n{}\n{}\n", request.method, request.path, query(request.query));
    for (name, value) in signed {
        canonical.push_str(&format!("{name}:{}\n", value.trim()));
    }
    canonical.push_str(&format!("\n{names}\n{hash}"));
    let day = &stamp[..8];
    let scope = format!("{day}/{region}/s3/aws4_request");
    let hashed = hex(digest::digest(&digest::SHA256, canonical.as_bytes()).as_ref());
    let text = format!("AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{hashed}");
    let mut key = format!("AWS4{}", keys.secret.expose_secret()).into_bytes();
    for part in [day, region, "s3", "aws4_request"] {
        key = hmac_of(&key, part.as_bytes());
    }
    let signature = hex(&hmac_of(&key, text.as_bytes()));
    let id = &keys.id;
    added.push((
        "authorization".to_string(),
        format!(
            "AWS4-HMAC-SHA256 Credential={id}/{scope},SignedHeaders={names},Signature={signature}"
        ),
    ));
    added
}

fn hmac_of(key: &[u8], text: &[u8]) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text).as_ref().to_vec()
}

/// The query as it is sent and signed: sorted and encoded.
pub(crate) fn query(pairs: &[(&str, &str)]) -> String {
    let mut encoded: Vec<String> = pairs
        .iter()
        .map(|(name, value)| format!("{}={}", encode(name, b""), encode(value, b"")))
        .collect();
    encoded.sort();
    encoded.join("&")
}

/// Everything but letters, digits, `-._~` and `keep` becomes `%XX`.
pub(crate) fn encode(text: &str, keep: &[u8]) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) || keep.contains(&byte) {
            true => encoded.push(char::from(byte)),
            false => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys() -> Keys {
        Keys {
            id: "AKIAIOSFODNN7EXAMPLE".into(),
            secret: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY".into(),
            token: None,
        }
    }

    fn header(name: &str, value: &str) -> (String, String) {
        (name.to_string(), value.to_string())
    }

    /// The examples of AWS' own description.
    #[test]
    fn published_examples_have_their_signatures() {
        let host = header("host", "examplebucket.s3.amazonaws.com");
        let cases = [
            (
                ("GET", "/test.txt", &[][..], vec![header("range", "bytes=0-9")]),
                "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
            ),
            (
                ("GET", "/", &[("lifecycle", "")][..], vec![]),
                "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543",
            ),
            (
                ("GET", "/", &[("prefix", "J"), ("max-keys", "2")][..], vec![]),
                "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
            ),
        ];
        for ((method, path, query, mut headers), expect) in cases {
            headers.insert(0, host.clone());
            let payload = Payload::Signed(b"");
            let unsigned = Unsigned { method, path, query, headers: &headers, payload };
            let added = sign(&unsigned, &keys(), "us-east-1", 1_369_353_600);
            let (_, authorization) = added.last().unwrap();
            assert!(authorization.ends_with(&format!("Signature={expect}")), "{authorization}");
        }
    }

    #[test]
    fn a_token_is_signed_too() {
        let keys = Keys { token: Some("t".into()), ..keys() };
        let headers = [header("host", "h"), header("x-amz-meta-b", " 1 "), header("accept", "x")];
        let (method, path, query) = ("PUT", "/b/k", &[][..]);
        let unsigned =
            Unsigned { method, path, query, headers: &headers, payload: Payload::Unsigned };
        let added = sign(&unsigned, &keys, "r", 0);
        let all = "host;x-amz-content-sha256;x-amz-date;x-amz-meta-b;x-amz-security-token";
        assert!(added.last().unwrap().1.contains(&format!("SignedHeaders={all},")), "{added:?}");
        assert!(added.contains(&header("x-amz-content-sha256", "UNSIGNED-PAYLOAD")));
        assert!(!format!("{keys:?}").contains("wJalr"), "a secret must not be printed");
    }

    #[test]
    fn names_are_encoded() {
        assert_eq!(encode("a b/ü~+\n", b"/"), "a%20b/%C3%BC~%2B%0A");
        assert_eq!(query(&[("b", "x/y"), ("a", "")]), "a=&b=x%2Fy");
    }
}
