//! Uploads of many parts that were begun and neither completed nor aborted: what a program that was
//! killed leaves in a store, unseen in listings and paid for.

use std::path::PathBuf;
use std::time::Duration;

use crate::answers::{Element, decoded};
use crate::client::{Call, Client, Into};
use crate::dates;
use crate::listing::{self, Tokens};
use crate::parts;
use crate::refusal;
use base::fault::{Class, Fault};
use base::job::{CleanEvent, Cleaned, Cleaning, ObjectUrl};
use mover::io::clock;

/// An upload that is not complete.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Pending {
    key: String,
    id: String,
    begun_s: i64,
}

/// Removes uploads of this key, and of keys below it as a folder, that are at least so old: a store
/// does not say whether somebody still writes.
pub(crate) fn clean(
    client: &Client,
    url: &ObjectUrl,
    age_min: Duration,
    cleaning: Cleaning,
    tell: &mut dyn FnMut(&CleanEvent),
) -> Cleaned {
    let mut cleaned = Cleaned::default();
    let failed = |cleaned: &mut Cleaned, fault: Fault, tell: &mut dyn FnMut(&CleanEvent)| {
        cleaned.failed += 1;
        tell(&CleanEvent::Failed(fault));
    };
    let now_s = clock::unix().as_secs() as i64;
    let mut tokens = Tokens::default();
    loop {
        let page = match page(client, url, tokens.last()) {
            Ok(page) => page,
            Err(fault) => {
                failed(&mut cleaned, fault, tell);
                return cleaned;
            }
        };
        for upload in page.uploads.iter().filter(|upload| is_below(&url.key, &upload.key)) {
            let shown = ObjectUrl { bucket: url.bucket.clone(), key: upload.key.clone() };
            let path = PathBuf::from(shown.to_string());
            if now_s.saturating_sub(upload.begun_s) < age_min.as_secs() as i64 {
                cleaned.young += 1;
                tell(&CleanEvent::Young(path));
                continue;
            }
            match remove(client, &url.bucket, upload, cleaning) {
                Ok(bytes) => {
                    cleaned.files += 1;
                    cleaned.bytes += bytes;
                    tell(&CleanEvent::Removed { path, bytes });
                }
                Err(fault) => failed(&mut cleaned, fault, tell),
            }
        }
        let Some(next) = page.next else { return cleaned };
        if next.0.is_empty() || !tokens.turn_to(next) {
            let endless = listing::endless("list of uploads", (&url.bucket, &url.key));
            failed(&mut cleaned, endless, tell);
            return cleaned;
        }
    }
}

fn is_below(wanted: &str, key: &str) -> bool {
    match key.strip_prefix(wanted) {
        Some(rest) => {
            wanted.is_empty() || wanted.ends_with('/') || rest.is_empty() || rest.starts_with('/')
        }
        None => false,
    }
}

/// The size of its parts, and its end.
fn remove(
    client: &Client,
    bucket: &str,
    upload: &Pending,
    cleaning: Cleaning,
) -> Result<u64, Fault> {
    let place = (bucket, &upload.key[..]);
    // One that is gone meanwhile has no parts.
    let parts = parts::all(client, place, &upload.id)?.unwrap_or_default();
    if cleaning == Cleaning::Remove {
        parts::abort(client, place, &upload.id)?;
    }
    Ok(parts.iter().map(|part| part.len).sum())
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Page {
    uploads: Vec<Pending>,
    /// The key and the id after which the next page begins.
    next: Option<(String, String)>,
}

fn page(client: &Client, url: &ObjectUrl, from: Option<&(String, String)>) -> Result<Page, Fault> {
    let mut query = vec![("uploads", ""), ("encoding-type", "url"), ("prefix", &url.key[..])];
    if let Some((key, id)) = from {
        query.extend([("key-marker", &key[..]), ("upload-id-marker", &id[..])]);
    }
    let call = Call { method: "GET", bucket: &url.bucket, query: &query, ..Call::default() };
    let answer = client.call(&call, Into::Text);
    let answer = answer.map_err(|trouble| refusal::fault(trouble, &url.bucket, &url.key))?;
    read(&answer.document("a list of uploads")?).ok_or_else(|| {
        let text = format!("the store's list of uploads to '{url}' cannot be read");
        Fault::new(Class::Peer, text)
    })
}

fn read(document: &Element) -> Option<Page> {
    let is_url = document.get("EncodingType") == "url";
    let name = |text: &str| if is_url { decoded(text) } else { Some(text.to_string()) };
    let upload = |upload: &Element| {
        let (begun_s, _) = dates::iso(upload.get("Initiated"))?;
        Some(Pending {
            key: name(upload.get("Key"))?,
            id: Some(upload.get("UploadId").to_string()).filter(|id| !id.is_empty())?,
            begun_s,
        })
    };
    let uploads = document.all("Upload").map(upload).collect::<Option<_>>()?;
    let next = match document.is_true("IsTruncated") {
        true => {
            let key = name(document.get("NextKeyMarker"))?;
            Some((key, document.get("NextUploadIdMarker").to_string()))
        }
        false => None,
    };
    Some(Page { uploads, next })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_read() {
        let text = "<ListMultipartUploadsResult><EncodingType>url</EncodingType><IsTruncated>true\
                    </IsTruncated><NextKeyMarker>a%0Ab</NextKeyMarker><NextUploadIdMarker>7\
                    </NextUploadIdMarker><Upload><Key>a%0Ab</Key><UploadId>7</UploadId><Initiated>\
                    1970-01-02T00:00:00.000Z</Initiated></Upload></ListMultipartUploadsResult>";
        let upload = Pending { key: "a\nb".into(), id: "7".into(), begun_s: 86_400 };
        let next = Some(("a\nb".to_string(), "7".to_string()));
        let page = read(&Element::parse(text).unwrap()).unwrap();
        assert_eq!(page, Page { uploads: vec![upload], next });
        for bad in [("<UploadId>7<", "<UploadId><"), ("1970-01-02T", "yesterday")] {
            let text = text.replace(bad.0, bad.1);
            assert_eq!(read(&Element::parse(&text).unwrap()), None, "{bad:?}");
        }
    }

    #[test]
    fn keys_are_below_a_key_as_files_are_below_a_folder() {
        for (wanted, key, expect) in [
            ("", "a/b", true),
            ("a", "a", true),
            ("a", "a/b", true),
            ("a", "ab", false),
            ("a/", "a/b", true),
            ("a/", "a", false),
            ("b", "a", false),
        ] {
            assert_eq!(is_below(wanted, key), expect, "{key} below {wanted}");
        }
    }
}
