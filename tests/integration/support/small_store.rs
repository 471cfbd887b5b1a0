//! A small store that keeps what it is given, and has one fault: what it refuses, or how it
//! answers.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex};

use super::scripted_store::{Answer, Asked, ScriptedStore};

/// What is refused before anything is done; `None` lets it pass.
pub(crate) type Refuses = fn(&Asked, &Kept) -> Option<Answer>;
/// What becomes of the headers of an answer; of a listing, of its text.
pub(crate) type Edits = fn(&Asked, String) -> String;

/// All objects and parts.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    pub objects: BTreeMap<String, Object>,
    parts: BTreeMap<u32, Vec<u8>>,
    begun: String,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Object {
    pub body: Vec<u8>,
    /// Metadata and checksums, as they came.
    pub headers: String,
}

impl Kept {
    pub(crate) fn is_folder(&self, key: &str) -> bool {
        self.objects.keys().any(|known| known.starts_with(&format!("{key}/")))
    }
}

pub(crate) struct SmallStore {
    pub asked: ScriptedStore,
    pub kept: Arc<Mutex<Kept>>,
}

impl SmallStore {
    pub(crate) fn new(refuses: Refuses, edits: Edits) -> SmallStore {
        let kept = Arc::new(Mutex::new(Kept::default()));
        let known = kept.clone();
        let asked = ScriptedStore::new(move |asked| {
            let mut kept = known.lock().unwrap();
            match refuses(asked, &kept) {
                Some(refused) => refused,
                None => edited(asked, answer(asked, &mut kept), edits),
            }
        });
        SmallStore { asked, kept }
    }

    pub(crate) fn put(&self, key: &str, body: &[u8], headers: &str) {
        let object = Object { body: body.to_vec(), headers: headers.to_string() };
        self.kept.lock().unwrap().objects.insert(key.to_string(), object);
    }

    pub(crate) fn keys(&self) -> Vec<String> {
        self.kept.lock().unwrap().objects.keys().cloned().collect()
    }
}

fn edited(asked: &Asked, answer: Answer, edits: Edits) -> Answer {
    match answer {
        Answer::Of(200, headers, body) if asked.query.contains("list-type") => {
            let text = edits(asked, String::from_utf8(body).unwrap());
            Answer::Of(200, headers, text.into_bytes())
        }
        Answer::Of(status, headers, body) => Answer::Of(status, edits(asked, headers), body),
        Answer::Silence => Answer::Silence,
    }
}

fn answer(asked: &Asked, kept: &mut Kept) -> Answer {
    if asked.query.contains("list-type") {
        return listing(asked, kept);
    }
    let exists = kept.objects.contains_key(&asked.key);
    if exists && asked.header("if-none-match") == "*" {
        return Answer::refused(412, "PreconditionFailed");
    }
    let number = asked.query.split('&').find_map(|pair| pair.strip_prefix("partNumber="));
    match (&asked.method[..], number) {
        ("POST", _) if asked.query.starts_with("uploads") => {
            (kept.parts, kept.begun) = (BTreeMap::new(), headers_of(asked));
            Answer::text(200, "<R><UploadId>u</UploadId></R>")
        }
        ("PUT", Some(number)) => {
            kept.parts.insert(number.parse().unwrap(), asked.body.clone());
            Answer::Of(200, tag_of(&asked.body), Vec::new())
        }
        ("POST", _) => {
            let body = std::mem::take(&mut kept.parts).into_values().flatten().collect();
            let headers = std::mem::take(&mut kept.begun) + &headers_of(asked);
            kept.objects.insert(asked.key.clone(), Object { body, headers });
            Answer::text(200, "<R><ETag>t</ETag></R>")
        }
        ("PUT", _) => {
            let object = match asked.header("x-amz-copy-source").split_once('/') {
                Some((_, from)) => kept.objects[from].clone(),
                None => Object { body: asked.body.clone(), headers: headers_of(asked) },
            };
            let headers = tag_of(&object.body);
            kept.objects.insert(asked.key.clone(), object);
            Answer::Of(200, headers, Vec::new())
        }
        ("DELETE", _) => {
            kept.objects.remove(&asked.key);
            Answer::Of(204, String::new(), Vec::new())
        }
        _ => match kept.objects.get(&asked.key) {
            Some(object) => read(asked, object),
            None => Answer::refused(404, "NoSuchKey"),
        },
    }
}

fn read(asked: &Asked, object: &Object) -> Answer {
    let (size, mut headers) = (object.body.len(), object.headers.clone() + &tag_of(&object.body));
    headers.push_str("Last-Modified: Thu, 01 Jan 2026 00:00:00 GMT\r\n");
    let range = asked.header("range").trim_start_matches("bytes=").split_once('-');
    match range {
        Some(_) if size == 0 => Answer::refused(416, "InvalidRange"),
        Some((from, to)) => {
            let (from, to): (usize, usize) = (from.parse().unwrap(), to.parse().unwrap());
            headers.push_str(&format!("Content-Range: bytes {from}-{to}/{size}\r\n"));
            Answer::Of(206, headers, object.body[from..=to].to_vec())
        }
        None => {
            headers.push_str(&format!("Content-Length: {size}\r\n"));
            Answer::Of(200, headers, object.body.clone())
        }
    }
}

fn listing(asked: &Asked, kept: &Kept) -> Answer {
    let prefix = asked.query.split('&').find_map(|pair| pair.strip_prefix("prefix="));
    let prefix = prefix.unwrap_or("").replace("%2F", "/");
    let mut text = String::from("<L>");
    for (key, object) in kept.objects.iter().filter(|(key, _)| key.starts_with(&prefix)) {
        text.push_str(&format!(
            "<Contents><Key>{key}</Key><Size>{}</Size>\
             <LastModified>2026-01-01T00:00:00Z</LastModified></Contents>",
            object.body.len()
        ));
    }
    Answer::text(200, &(text + "</L>"))
}

/// What a store tells of an object again.
fn headers_of(asked: &Asked) -> String {
    let is_kept = |name: &str| {
        name.starts_with("x-amz-meta-") || name.starts_with("x-amz-checksum-crc64nvme")
    };
    let lines = asked.head.lines().filter(|line| is_kept(line));
    lines.map(|line| format!("{line}\r\n")).collect()
}

fn tag_of(body: &[u8]) -> String {
    let mut hasher = DefaultHasher::new();
    body.hash(&mut hasher);
    format!("ETag: \"{:x}\"\r\n", hasher.finish())
}
