//! An object that is written: whole where one request holds it, else in parts, in any order. It
//! gets its name when all of it is there.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex};

use crate::abilities::{Check, Kind};
use crate::answers::{Element, escaped};
use crate::checksum::{self, Ranges};
use crate::client::{Answer, Call, Client, Into, Trouble, lock};
use crate::metadata;
use crate::reading;
use crate::refusal::{self, Refusal};
use crate::tags;
use base::fault::{Class, Fault};
use base::limits::{PARTS_MAX, REQUEST_BYTES_MAX};
use base::units::Bytes;
use mover::io::store::{self, NewObject, Object, UploadedPart};
use mover::io::volume::{Mtime, Replace};

#[derive(Debug)]
pub(crate) struct Upload {
    client: Arc<Client>,
    bucket: String,
    key: String,
    new: NewObject,
    state: Mutex<State>,
    fault: Mutex<Option<Fault>>,
}

#[derive(Debug, Default)]
struct State {
    /// The store's name of the upload, once it has begun.
    id: Option<String>,
    /// By their offsets.
    parts: BTreeMap<u64, UploadedPart>,
    /// In the store already, and not known to be what belongs there.
    unproved: BTreeMap<u64, UploadedPart>,
    /// Offsets of parts that no journal has yet.
    news: BTreeSet<u64>,
    sums: Ranges,
    bytes: u64,
    /// It was put whole, with this checksum.
    put: Option<u64>,
}

impl Upload {
    pub(crate) fn new(
        client: Arc<Client>,
        (bucket, key): (String, String),
        new: NewObject,
    ) -> Result<Upload, Fault> {
        if let Some(size) = new.size
            && let Some(fault) = refusal_of_length((&bucket, &key), size, new.part_bytes)
        {
            return Err(fault);
        }
        let mut state = State::default();
        if let Some(prior) = &new.prior {
            state.id = Some(prior.id.clone());
            state.unproved = prior.unproved.clone();
            for (offset, part) in &prior.parts {
                state.add(*offset, part.clone());
            }
        }
        let (state, fault) = (Mutex::new(state), Mutex::default());
        Ok(Upload { client, bucket, key, new, state, fault })
    }

    fn write(&self, at: u64, bytes: &[u8], sum: Option<u64>) -> Result<(), Fault> {
        let sum = sum.unwrap_or_else(|| checksum::of(bytes));
        if at == 0 && self.new.size == Some(bytes.len() as u64) {
            put(&self.client, (&self.bucket, &self.key), &self.new, (bytes, sum))?;
            let mut state = lock(&self.state);
            (state.put, state.bytes) = (Some(sum), bytes.len() as u64);
            return Ok(());
        }
        let part_bytes = u64::from(self.new.part_bytes);
        assert!(at.is_multiple_of(part_bytes), "a part begins at {at}");
        let number = at / part_bytes + 1;
        if number > PARTS_MAX {
            return Err(too_long(&self.bucket, &self.key, (self.new.size, self.new.part_bytes)));
        }
        let is_there = |part: &UploadedPart| part.len == bytes.len() as u64 && part.sum == sum;
        if self.adopt(at, is_there) {
            return Ok(());
        }
        let (id, number_text) = (self.id()?, number.to_string());
        let query = [("partNumber", &number_text[..]), ("uploadId", &id)];
        let answer = self.client.write(Kind::Part, Replace::Allowed, &|check| Call {
            method: "PUT",
            query: &query,
            headers: check.headers(bytes, sum),
            body: bytes,
            is_summed: check.is_header(),
            ..self.call()
        });
        let answer = answer.map_err(|trouble| self.told(trouble))?;
        let tag = answer.head.get("etag").to_string();
        let told = checksum::read(answer.head.get("x-amz-checksum-crc64nvme"));
        if told.is_some_and(|told| told != sum) {
            let url = self.url();
            let text = format!(
                "'{url}': a part has another checksum in the store than it was sent with: suspect \
                 the store, or what is in front of it"
            );
            return Err(Fault::new(Class::Corrupt, text));
        }
        let mut state = lock(&self.state);
        state.add(at, UploadedPart { len: bytes.len() as u64, sum, tag });
        state.news.insert(at);
        Ok(())
    }

    /// A part of an earlier run that has the checksum of the same bytes, read again, is not sent
    /// again.
    fn adopt(&self, at: u64, is_there: impl Fn(&UploadedPart) -> bool) -> bool {
        let mut state = lock(&self.state);
        let Some(part) = state.unproved.remove(&at).filter(is_there) else { return false };
        state.add(at, part);
        state.news.insert(at);
        true
    }

    /// Begins the upload, once.
    fn id(&self) -> Result<String, Fault> {
        let mut state = lock(&self.state);
        if let Some(id) = &state.id {
            return Ok(id.clone());
        }
        let (meta, _) = metadata::headers(&self.new.meta, metadata::FILE);
        let answer = self.client.write(Kind::Begin, Replace::Allowed, &|check| {
            let mut headers = meta.clone();
            if check == Check::Crc64 {
                headers.push(("x-amz-checksum-algorithm".into(), "CRC64NVME".into()));
                headers.push(("x-amz-checksum-type".into(), "FULL_OBJECT".into()));
            }
            Call { method: "POST", query: &[("uploads", "")], headers, ..self.call() }
        });
        let answer = answer.map_err(|trouble| self.told(trouble))?;
        let id = answer.document("the start of an upload")?.get("UploadId").to_string();
        if id.is_empty() {
            let text = format!("the store began no upload for '{}'", self.url());
            return Err(Fault::new(Class::Peer, text));
        }
        state.id = Some(id.clone());
        Ok(id)
    }

    /// Gives the object its name. True where the store keeps the checksum of all of it.
    pub(crate) fn complete(&self, replace: Replace) -> Result<bool, Fault> {
        let state = lock(&self.state);
        if state.put.is_some() {
            return Ok(true);
        }
        let Some(id) = &state.id else {
            drop(state);
            let empty = (&b""[..], checksum::of(b""));
            put(&self.client, (&self.bucket, &self.key), &self.new, empty)?;
            return Ok(true);
        };
        let Some(sum) = state.sums.whole(state.bytes) else {
            let text = format!("'{}' is not complete: copy it again", self.url());
            return Err(Fault::new(Class::Local, text));
        };
        let answered = self.asked_to_complete((&state, id), sum, replace);
        let (bytes, tag) = (state.bytes, state.tag());
        drop(state);
        match answered {
            Ok(document) => match document.get("ChecksumCRC64NVME") {
                "" => self.appears((bytes, sum)),
                told if checksum::read(told) == Some(sum) => Ok(true),
                told if told.contains('-') => Ok(false),
                _ => Err(self.withdrawn()),
            },
            // The store has carried out an earlier try, whose answer was lost, or an earlier run's
            // request; or somebody has removed the upload.
            Err(Trouble::Refused(refusal)) if is_perhaps_there(&refusal) => {
                match self.is_completed(&refusal, (bytes, sum, tag)) {
                    true => {
                        self.abort(); // of another upload the parts would stay
                        Ok(true)
                    }
                    false => Err(self.told(Trouble::Refused(refusal))),
                }
            }
            Err(trouble) => Err(self.told(trouble)),
        }
    }

    fn asked_to_complete(
        &self,
        (state, id): (&State, &str),
        sum: u64,
        replace: Replace,
    ) -> Result<Element, Trouble> {
        let body = |check| state.completion(self.new.part_bytes, check);
        let (with_sums, without) = (body(Check::Crc64), body(Check::Signed));
        let query = [("uploadId", id)];
        let answer = self.client.write(Kind::Complete, replace, &|check| {
            let (body, headers) = match check {
                Check::Crc64 => (&with_sums, state.sums_of_whole(sum)),
                Check::Md5 | Check::Signed => (&without, Vec::new()),
            };
            Call { method: "POST", query: &query, headers, body: body.as_bytes(), ..self.call() }
        });
        refused_late(&answer?)
    }

    /// After a completion that was refused: true where the object is there as it was written. A
    /// store that has no upload any more may still be making the object.
    fn is_completed(&self, refusal: &Refusal, object: (u64, u64, Option<String>)) -> bool {
        let is_there = || is_there(&self.client, (&self.bucket, &self.key), &object);
        match refusal.status {
            412 => is_there(),
            _ => self.client.wait_for(|| is_there().then_some(())).is_some(),
        }
    }

    /// After a completion whose answer has no checksum: the store keeps none, or another request of
    /// this upload is still being carried out. True where the object has its checksum.
    fn appears(&self, (bytes, sum): (u64, u64)) -> Result<bool, Fault> {
        let seen = self.client.wait_for(|| {
            match reading::look(&self.client, &self.bucket, &self.key) {
                Ok(None) => None,
                Ok(Some(seen)) => Some(Some(seen)),
                Err(_) => Some(None), // it may be written and not be looked at
            }
        });
        match seen {
            None => {
                let url = self.url();
                let text = format!("the store says that '{url}' is complete, and does not have it");
                Err(Fault::new(Class::Peer, text))
            }
            Some(None) => Ok(false),
            Some(Some(seen)) if seen.size != bytes => Err(self.withdrawn()),
            Some(Some(seen)) => match seen.sum {
                None => Ok(false),
                Some(told) if told == sum => Ok(true),
                Some(_) => Err(self.withdrawn()),
            },
        }
    }

    /// Removes what has been written. The store may keep parts that are still under way.
    pub(crate) fn abort(&self) {
        let Some(id) = lock(&self.state).id.take() else { return };
        let query = &[("uploadId", &id[..])];
        let call = Call { method: "DELETE", query, is_clearing: true, ..self.call() };
        let _ = self.client.call(&call, Into::Text);
    }

    fn call(&self) -> Call<'_> {
        Call { bucket: &self.bucket, key: &self.key, ..Call::default() }
    }

    fn told(&self, trouble: Trouble) -> Fault {
        refused(trouble, &self.bucket, &self.key)
    }

    fn url(&self) -> String {
        format!("s3://{}/{}", self.bucket, self.key.escape_debug())
    }

    fn withdrawn(&self) -> Fault {
        withdraw(&self.client, &self.bucket, &self.key)
    }
}

/// An object that is not what was sent, as the store says: its name is not left to it.
fn withdraw(client: &Client, bucket: &str, key: &str) -> Fault {
    let call = Call { method: "DELETE", bucket, key, is_clearing: true, ..Call::default() };
    let done = match client.call(&call, Into::Text) {
        Ok(_) => "it is deleted",
        Err(_) => "and it cannot be deleted: delete it",
    };
    let url = format!("s3://{bucket}/{}", key.escape_debug());
    let text = format!(
        "'{url}' has another checksum or length in the store than it was sent with: {done}; \
         suspect the store, or what is in front of it"
    );
    Fault::new(Class::Corrupt, text)
}

impl Object for Upload {
    fn read_at(&self, _at: u64, _into: &mut [u8]) -> io::Result<u32> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn write_at(&self, at: u64, bytes: &[u8], crc64: Option<u64>) -> io::Result<u32> {
        match self.write(at, bytes, crc64) {
            Ok(()) => Ok(bytes.len() as u32),
            Err(fault) => {
                lock(&self.fault).get_or_insert(fault);
                Err(io::Error::other("the store"))
            }
        }
    }

    fn is_still(&self, _then: (u64, Mtime)) -> bool {
        true
    }

    fn fault(&self) -> Option<Fault> {
        lock(&self.fault).clone()
    }

    fn take_parts(&self) -> Option<store::Upload> {
        let mut state = lock(&self.state);
        let id = state.id.clone()?;
        let news = std::mem::take(&mut state.news);
        let part = |at: u64| state.parts.get(&at).map(|part| (at, part.clone()));
        let parts = news.into_iter().filter_map(part).collect();
        Some(store::Upload { id, parts, unproved: BTreeMap::new() })
    }

    fn number_by_tag(&self) -> Option<u64> {
        tags::number_of_parts(&lock(&self.state).tag()?)
    }

    fn written(&self) -> Option<(u64, u64)> {
        let state = lock(&self.state);
        match state.put {
            Some(sum) => Some((state.bytes, sum)),
            None => Some((state.bytes, state.sums.whole(state.bytes)?)),
        }
    }
}

impl State {
    /// The tag that most stores give to the object of these parts.
    fn tag(&self) -> Option<String> {
        tags::of_parts(self.parts.values().map(|part| &part.tag[..]))
    }

    /// What the store is told to put together.
    fn completion(&self, part_bytes: u32, check: Check) -> String {
        let mut body = String::from("<CompleteMultipartUpload>");
        for (offset, part) in &self.parts {
            let number = offset / u64::from(part_bytes) + 1;
            let tag = escaped(&part.tag);
            body.push_str(&format!("<Part><PartNumber>{number}</PartNumber><ETag>{tag}</ETag>"));
            if check == Check::Crc64 {
                let sum = checksum::written(part.sum);
                body.push_str(&format!("<ChecksumCRC64NVME>{sum}</ChecksumCRC64NVME>"));
            }
            body.push_str("</Part>");
        }
        body.push_str("</CompleteMultipartUpload>");
        body
    }

    fn sums_of_whole(&self, sum: u64) -> Vec<(String, String)> {
        vec![
            ("x-amz-checksum-crc64nvme".to_string(), checksum::written(sum)),
            ("x-amz-checksum-type".to_string(), "FULL_OBJECT".to_string()),
            ("x-amz-mp-object-size".to_string(), self.bytes.to_string()),
        ]
    }

    fn add(&mut self, at: u64, part: UploadedPart) {
        self.bytes += part.len;
        self.sums.add(at, part.len, part.sum);
        self.parts.insert(at, part);
    }
}

/// Puts a whole object.
pub(crate) fn put(
    client: &Client,
    (bucket, key): (&str, &str),
    new: &NewObject,
    (body, sum): (&[u8], u64),
) -> Result<(), Fault> {
    let (headers, _) = metadata::headers(&new.meta, metadata::FILE);
    let put = Put { headers, body, sum, replace: new.replace, is_brief: false };
    put_with(client, (bucket, key), &put).map_err(|trouble| refused(trouble, bucket, key))
}

/// An object that is put whole.
#[derive(Debug)]
pub(crate) struct Put<'a> {
    pub headers: Vec<(String, String)>,
    pub body: &'a [u8],
    pub sum: u64,
    pub replace: Replace,
    /// It can be done without.
    pub is_brief: bool,
}

pub(crate) fn put_with(
    client: &Client,
    (bucket, key): (&str, &str),
    put: &Put<'_>,
) -> Result<(), Trouble> {
    let Put { headers, body, sum, replace, is_brief } = put;
    let answered = client.write(Kind::Put, *replace, &|check| {
        let headers = [&headers[..], &check.headers(body, *sum)].concat();
        let (is_summed, is_brief) = (check.is_header(), *is_brief);
        let call = Call { method: "PUT", bucket, key, headers, body, ..Call::default() };
        Call { is_summed, is_brief, ..call }
    });
    match answered {
        Ok(answer) => {
            let told = checksum::read(answer.head.get("x-amz-checksum-crc64nvme"));
            match told.is_none_or(|told| told == *sum) {
                true => Ok(()),
                false => Err(Trouble::Lost(withdraw(client, bucket, key))),
            }
        }
        // Perhaps it is there because the answer to an earlier try was lost.
        Err(Trouble::Refused(refusal)) if refusal.status == 412 => {
            let object = (body.len() as u64, *sum, Some(tags::of_bytes(body)));
            match is_there(client, (bucket, key), &object) {
                true => Ok(()),
                false => Err(Trouble::Refused(refusal)),
            }
        }
        Err(trouble) => Err(trouble),
    }
}

/// What a store may answer to a completion that it has carried out before.
fn is_perhaps_there(refusal: &Refusal) -> bool {
    refusal.code == "NoSuchUpload" || refusal.status == 412
}

/// True where an object of this length and checksum has the key; where the store tells no checksum,
/// of this tag.
fn is_there(
    client: &Client,
    (bucket, key): (&str, &str),
    (bytes, sum, tag): &(u64, u64, Option<String>),
) -> bool {
    reading::look(client, bucket, key).is_ok_and(|seen| {
        seen.is_some_and(|seen| {
            let has_bytes = match seen.sum {
                Some(told) => told == *sum,
                None => tag.as_ref().is_some_and(|tag| tags::is_same(tag, &seen.tag)),
            };
            seen.size == *bytes && has_bytes
        })
    })
}

/// An answer that begins as a success may end as an error.
pub(crate) fn refused_late(answer: &Answer) -> Result<Element, Trouble> {
    match Element::parse(&answer.text) {
        Some(document) if document.name == "Error" => {
            let mut refusal = Refusal::of(answer);
            refusal.status = 400;
            Err(Trouble::Refused(refusal))
        }
        Some(document) => Ok(document),
        None => Ok(Element::default()),
    }
}

pub(crate) fn refused(trouble: Trouble, bucket: &str, key: &str) -> Fault {
    match &trouble {
        Trouble::Refused(refusal) if refusal.status == 412 => {
            let url = format!("s3://{bucket}/{}", key.escape_debug());
            let text = format!(
                "'{url}' exists: --update (-u) replaces what is older, --overwrite always replaces \
                 all"
            );
            Fault::new(Class::Local, text)
        }
        _ => refusal::fault(trouble, bucket, key),
    }
}

/// Why no object of this length can be written in parts of this one.
pub(crate) fn refusal_of_length(
    (bucket, key): (&str, &str),
    size: u64,
    part_bytes: u32,
) -> Option<Fault> {
    let is_too_long = size.div_ceil(part_bytes.into()) > PARTS_MAX;
    is_too_long.then(|| too_long(bucket, key, (Some(size), part_bytes)))
}

/// `size` is not known of a pipe.
fn too_long(bucket: &str, key: &str, (size, part_bytes): (Option<u64>, u32)) -> Fault {
    let url = format!("s3://{bucket}/{}", key.escape_debug());
    let most = PARTS_MAX * u64::from(REQUEST_BYTES_MAX);
    let parts = format!("{PARTS_MAX} parts of {}", Bytes(part_bytes.into()));
    let text = match size {
        Some(size) if size > most => format!(
            "'{url}' would have {}, and an object in a store has {} at most: split it",
            Bytes(size),
            Bytes(most)
        ),
        Some(size) => format!(
            "'{url}' would have {}, more than {parts}, and a store takes no more: write \
             --request-size {} or more",
            Bytes(size),
            Bytes(size.div_ceil(PARTS_MAX).next_multiple_of(1 << 20)).typed()
        ),
        None if part_bytes < REQUEST_BYTES_MAX => {
            let larger = u64::from(part_bytes).saturating_mul(8).min(REQUEST_BYTES_MAX.into());
            format!(
                "'{url}' would have more than {parts}, and a store takes no more: begin again \
                 with larger ones; --request-size {} is enough for {}",
                Bytes(larger).typed(),
                Bytes(larger * PARTS_MAX)
            )
        }
        None => {
            format!("'{url}' would have more than {parts}, and a store takes no more: split it")
        }
    };
    Fault::new(Class::Usage, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_long_is_told_what_to_write() {
        const MIB: u32 = 1 << 20;
        let cases = [
            (Some(100 << 30), 8 * MIB, "100 GiB, more than 10000 parts of 8 MiB", "size 11M or"),
            (Some(5 << 40), 16 * MIB, "5 TiB, more than 10000 parts of 16 MiB", "size 525M or"),
            (Some(11 << 40), 8 * MIB, "11 TiB, and an object in a store has 9.77 TiB", "split it"),
            (None, 8 * MIB, "more than 10000 parts of 8 MiB", "size 64M is enough for 625 GiB"),
            (None, 256 * MIB, "more than 10000 parts of 256 MiB", "size 1G is enough for 9.77 TiB"),
            (None, 1024 * MIB, "more than 10000 parts of 1 GiB", "split it"),
        ];
        for (size, part_bytes, what, advice) in cases {
            let Fault { text, class, .. } = too_long("b", "k", (size, part_bytes));
            assert_eq!(class, Class::Usage);
            assert!(text.starts_with("'s3://b/k' would have "), "{text}");
            assert!(text.contains(what) && text.contains(advice), "{text}");
        }
    }
}
