//! An object that is read in ranges: always the one that was looked at first, and all of it checked
//! against its checksum where the store has one of the whole object.

use std::io;
use std::sync::{Arc, Mutex};

use crate::checksum::{self, Ranges};
use crate::client::{Call, Client, Into, Trouble, lock};
use crate::connection::Head;
use crate::dates;
use crate::foreign::{Check, Foreign, Verdict};
use crate::listing::{self, Below};
use crate::metadata::{Posix, mtime_of};
use crate::refusal;
use crate::tags;
use base::fault::{Class, Fault};
use mover::io::store::Object;
use mover::io::volume::Mtime;

#[derive(Debug)]
pub(crate) struct Reading {
    client: Arc<Client>,
    bucket: String,
    key: String,
    pub seen: Seen,
    sums: Mutex<Ranges>,
    /// Of one that another writer has left a checksum of.
    foreign: Option<Mutex<Check>>,
    fault: Mutex<Option<Fault>>,
}

/// What an object was when it was looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    pub size: u64,
    /// Of the file that it was, or of the object.
    pub mtime: Mtime,
    /// When the store got it.
    pub modified_s: i64,
    /// The same as the store says it.
    pub modified: String,
    pub tag: String,
    /// Of the whole object.
    pub sum: Option<u64>,
    /// The same of another kind, where there is none of ours.
    pub foreign: Option<Foreign>,
    pub posix: Posix,
}

impl Seen {
    /// `None` where the answer does not say how long the object is.
    pub(crate) fn of(head: &Head, key: &str) -> Option<Seen> {
        let size = match head.get("content-range").rsplit_once('/') {
            Some((_, size)) => size.parse().ok()?,
            None => head.get("content-length").parse().ok()?,
        };
        Some(Seen { size, ..Seen::unsized_of(head, key) })
    }

    /// All but the length.
    fn unsized_of(head: &Head, key: &str) -> Seen {
        let posix = Posix::of(head, key);
        let is_whole = head.get("x-amz-checksum-type") != "COMPOSITE" && head.status != 206;
        let sum = checksum::read(head.get("x-amz-checksum-crc64nvme")).filter(|_| is_whole);
        let is_foreign = is_whole && sum.is_none();
        let modified = head.get("last-modified");
        Seen {
            size: 0,
            mtime: mtime_of(head, &posix),
            modified_s: dates::http(modified).unwrap_or(0),
            modified: modified.to_string(),
            tag: head.get("etag").to_string(),
            sum,
            foreign: if is_foreign { Foreign::of(head) } else { None },
            posix,
        }
    }

    /// Whether an answer is of another object, which a store that ignores conditions may send: it
    /// has another tag or, where it has none, another time.
    fn is_other(&self, head: &Head) -> bool {
        let tag = head.get("etag");
        if !tag.is_empty() && !self.tag.is_empty() {
            return !tags::is_same(tag, &self.tag);
        }
        let modified = dates::http(head.get("last-modified"));
        modified.is_some_and(|modified_s| self.modified_s != 0 && modified_s != self.modified_s)
    }

    /// That what is read next must be the same object. A weak tag would never match, so the time
    /// does; a store that ignores conditions is found by its answer.
    fn condition(&self) -> Option<(String, String)> {
        match (tags::is_strong(&self.tag), &self.modified[..]) {
            (true, _) => Some(("if-match".to_string(), self.tag.clone())),
            (false, "") => None,
            (false, time) => Some(("if-unmodified-since".to_string(), time.to_string())),
        }
    }

    /// A listing has the store's own time, and a header only its seconds.
    fn has_time(&self, then: Mtime) -> bool {
        self.mtime == then || self.modified_s == then.seconds
    }
}

/// Looks at an object; `None` where there is none.
pub(crate) fn look(client: &Client, bucket: &str, key: &str) -> Result<Option<Seen>, Fault> {
    let look = |is_brief| {
        client.read(&mut |headers| {
            let call = Call { method: "HEAD", bucket, key, headers, ..Call::default() };
            client.call(&Call { is_brief, ..call }, Into::Text)
        })
    };
    let answered = match look(true) {
        Ok(answer) => return sized(client, (bucket, key), &answer.head).map(Some),
        // The answer has no body that says why: that to another request has.
        Err(Trouble::Refused(refusal)) if refusal.hides_why() => {
            match first_byte(client, (bucket, key)) {
                Err(Trouble::Refused(refusal)) if refusal.is_passing() => {
                    if is_folder(client, (bucket, key))? {
                        return Ok(None); // some stores fail where a folder has the name
                    }
                    look(false).map(|answer| answer.head)
                }
                found => found,
            }
        }
        Err(trouble) => Err(trouble),
    };
    match answered {
        Ok(head) => sized(client, (bucket, key), &head).map(Some),
        Err(Trouble::Refused(refusal)) if refusal.status == 404 && !refusal.is_of_all() => Ok(None),
        Err(trouble) => Err(refusal::fault(trouble, bucket, key)),
    }
}

/// The length is that of the answer, or of another to a request for the first byte: some stores and
/// what is in front of them leave it out without a body.
fn sized(client: &Client, (bucket, key): (&str, &str), head: &Head) -> Result<Seen, Fault> {
    if let Some(seen) = Seen::of(head, key) {
        return Ok(seen);
    }
    let url = format!("s3://{bucket}/{}", key.escape_debug());
    let first = first_byte(client, (bucket, key));
    let first = first.map_err(|trouble| unread(trouble, bucket, key))?;
    let seen = Seen::unsized_of(head, key);
    if seen.is_other(&first) {
        return Err(changed(&url));
    }
    match Seen::of(&first, key) {
        Some(Seen { size, .. }) => Ok(Seen { size, ..seen }),
        None => {
            let text = format!("the store does not say how long '{url}' is");
            Err(Fault::new(Class::Peer, text))
        }
    }
}

/// The head of an answer that has no more of an object than its first byte.
fn first_byte(client: &Client, (bucket, key): (&str, &str)) -> Result<Head, Trouble> {
    let headers = vec![("range".to_string(), "bytes=0-0".to_string())];
    let call = Call { method: "GET", bucket, key, is_brief: true, ..Call::default() };
    let answered = client.call(&Call { headers, ..call.clone() }, Into::Small(&mut [0]));
    let answered = match answered {
        // An empty object has no first byte.
        Err(Trouble::Refused(refusal)) if refusal.status == 416 => {
            client.call(&call, Into::Small(&mut []))
        }
        answered => answered,
    };
    answered.map(|answer| answer.head)
}

fn is_folder(client: &Client, (bucket, key): (&str, &str)) -> Result<bool, Fault> {
    let prefix = format!("{key}/");
    let below = Below { bucket, prefix: &prefix, delimited: false, keys_max: 1 };
    let page = listing::page(client, below, None)?;
    Ok(page.keys.iter().any(|key| key.name.starts_with(&prefix)))
}

impl Reading {
    pub(crate) fn new(client: Arc<Client>, (bucket, key): (String, String), seen: Seen) -> Reading {
        let (sums, fault) = (Mutex::default(), Mutex::default());
        let foreign = seen.foreign.as_ref().map(|foreign| Mutex::new(Check::of(foreign)));
        Reading { client, bucket, key, seen, sums, foreign, fault }
    }

    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), Fault> {
        let sum = self.receive(at, into)?;
        self.check((at, into.len() as u64), sum)?;
        self.check_foreign(at, into)
    }

    /// One range, with its checksum where it is needed.
    fn receive(&self, at: u64, into: &mut [u8]) -> Result<Option<u64>, Fault> {
        let len = into.len() as u64;
        let mut headers = vec![("range".to_string(), format!("bytes={at}-{}", at + len - 1))];
        headers.extend(self.seen.condition());
        let (bucket, key) = (&self.bucket[..], &self.key[..]);
        let call = Call { method: "GET", bucket, key, headers, ..Call::default() };
        let into_it = match self.seen.sum {
            Some(_) => Into::Summed(&mut *into),
            None => Into::Exactly(&mut *into),
        };
        let answer = match self.client.call(&call, into_it) {
            Ok(answer) => answer,
            Err(trouble) => return Err(unread(trouble, bucket, key)),
        };
        if self.seen.is_other(&answer.head) {
            return Err(changed(&self.url()));
        }
        let size = self.seen.size;
        let expect = format!("bytes {at}-{}/{size}", at + len - 1);
        let told = answer.head.get("content-range");
        let is_all = answer.head.status == 200 && at == 0 && len == size;
        if told != expect && !(is_all && told.is_empty()) {
            let text = format!(
                "the store was asked for {expect} of '{}' and sent '{}': its answers cannot be \
                 trusted",
                self.url(),
                told.escape_debug()
            );
            return Err(Fault::new(Class::Peer, text));
        }
        Ok(answer.crc64)
    }

    /// The whole object is checked with its last range, which is not passed on if it is wrong.
    fn check(&self, (at, len): (u64, u64), sum: Option<u64>) -> Result<(), Fault> {
        let (Some(expect), Some(sum)) = (self.seen.sum, sum) else { return Ok(()) };
        let mut sums = lock(&self.sums);
        sums.add(at, len, sum);
        match sums.whole(self.seen.size) {
            Some(sum) if sum != expect => Err(corrupt(&self.url())),
            _ => Ok(()),
        }
    }

    /// The same with what another writer has left, which may need bytes in order.
    fn check_foreign(&self, at: u64, bytes: &[u8]) -> Result<(), Fault> {
        let Some(foreign) = &self.foreign else { return Ok(()) };
        let mut check = lock(foreign);
        check.add(at, bytes);
        loop {
            match check.verdict(self.seen.size) {
                Verdict::Open | Verdict::Same => return Ok(()),
                Verdict::Other => return Err(corrupt(&self.url())),
                Verdict::From(at) => {
                    let left = self.seen.size - at;
                    let mut again = vec![0; left.min(AGAIN_BYTES) as usize];
                    self.receive(at, &mut again)?;
                    check.add(at, &again);
                }
            }
        }
    }

    fn url(&self) -> String {
        format!("s3://{}/{}", self.bucket, self.key.escape_debug())
    }
}

const AGAIN_BYTES: u64 = 8 << 20;

impl Object for Reading {
    fn read_at(&self, at: u64, into: &mut [u8]) -> io::Result<u32> {
        let left = usize::try_from(self.seen.size.saturating_sub(at)).unwrap_or(usize::MAX);
        let len = into.len().min(left);
        let into = &mut into[..len];
        if into.is_empty() {
            return Ok(0);
        }
        match self.read(at, into) {
            Ok(()) => Ok(into.len() as u32),
            Err(fault) => {
                lock(&self.fault).get_or_insert(fault);
                Err(io::Error::other("the store"))
            }
        }
    }

    fn write_at(&self, _at: u64, _bytes: &[u8], _crc64: Option<u64>) -> io::Result<u32> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn is_still(&self, (size, mtime): (u64, Mtime)) -> bool {
        self.seen.size == size && self.seen.has_time(mtime)
    }

    fn fault(&self) -> Option<Fault> {
        lock(&self.fault).clone()
    }
}

/// Reads a small object whole. It must have this length, and this time where one is given.
pub(crate) fn read_small(
    client: &Client,
    (bucket, key): (&str, &str),
    mtime: Option<Mtime>,
    into: &mut [u8],
) -> Result<(), Fault> {
    let url = format!("s3://{bucket}/{}", key.escape_debug());
    let answer = client.read(&mut |headers| {
        let call = Call { method: "GET", bucket, key, headers, ..Call::default() };
        client.call(&call, Into::Small(&mut *into))
    });
    let answer = answer.map_err(|trouble| unread(trouble, bucket, key))?;
    let len = into.len() as u64;
    // One without a length was received, and is as long.
    let seen = Seen::of(&answer.head, key)
        .unwrap_or_else(|| Seen { size: len, ..Seen::unsized_of(&answer.head, key) });
    let is_same = seen.size == len && mtime.is_none_or(|mtime| seen.has_time(mtime));
    // A listing may say of a link what the link is, and not what it leads to.
    if !is_same && !mtime.is_some_and(|then| is_listed(client, (bucket, key), (len, then))) {
        return Err(changed(&url));
    }
    if seen.size != len {
        let text = format!(
            "the store lists '{url}' with {len} bytes, and it has {}: without --no-preserve each \
             object is asked for its length",
            seen.size
        );
        return Err(Fault::new(Class::Local, text));
    }
    let is_foreign = seen.foreign.is_none_or(|foreign| foreign.is_of(into));
    match is_foreign && (seen.sum.is_none() || seen.sum == answer.crc64) {
        true => Ok(()),
        false => Err(corrupt(&url)),
    }
}

/// Whether the store's listing still has an object as it was: nobody has changed it.
fn is_listed(client: &Client, (bucket, key): (&str, &str), (size, mtime): (u64, Mtime)) -> bool {
    let below = Below { bucket, prefix: key, delimited: false, keys_max: 1 };
    listing::page(client, below, None).is_ok_and(|page| {
        page.keys.first() == Some(&listing::Key { name: key.to_string(), size, mtime })
    })
}

fn unread(trouble: Trouble, bucket: &str, key: &str) -> Fault {
    let is_other = |status| matches!(status, 404 | 412 | 416);
    match &trouble {
        Trouble::Refused(refusal) if is_other(refusal.status) && refusal.code != "NoSuchBucket" => {
            changed(&format!("s3://{bucket}/{}", key.escape_debug()))
        }
        _ => refusal::fault(trouble, bucket, key),
    }
}

fn changed(url: &str) -> Fault {
    let text = format!("'{url}' changed while it was read: copy it again");
    Fault::new(Class::SourceChanged, text)
}

fn corrupt(url: &str) -> Fault {
    let text = format!("'{url}' is not what its checksum in the store says: suspect the store");
    Fault::new(Class::Corrupt, text)
}
