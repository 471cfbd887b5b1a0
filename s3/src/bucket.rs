//! A bucket, or what is below a key of it, as a volume of the mover.

mod markers;
mod store;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};

use crate::abilities::Kind;
use crate::checksum;
use crate::client::{Call, Client, Into, Trouble, lock};
use crate::listing::{self, Below, PAGE_KEYS, Page};
use crate::metadata::{self, Posix};
use crate::reading::{self, Reading, Seen};
use crate::refusal;
use crate::signing::encode;
use crate::tags;
use crate::upload::{self, Put, Upload};
use base::extra::ExtraSums;
use base::fault::{Class, Fault};
use base::job::ObjectUrl;
use base::owners::Owner;
use mover::io::request::ExtraPiece;
use mover::io::store::{Details, Listed, ListedKind, NewObject, OBJECT_DEVICE, Store};
use mover::io::volume::{
    Access, Durable, Handle, Identity, Kept, Left, Locked, Metadata, Mtime, Replace, Segment,
    Status, StatusKind, Volume,
};

#[derive(Debug)]
pub(crate) struct Bucket {
    client: Arc<Client>,
    bucket: String,
    /// In front of every path; empty, or with a slash at the end.
    prefix: String,
    /// For messages.
    root: PathBuf,
    /// Begun under names that only this volume knows.
    begun: Mutex<BTreeMap<Vec<u8>, Begun>>,
    /// All keys below the prefix, where they are few: most destinations are empty.
    known: OnceLock<Option<Vec<String>>>,
    /// Keys of uploads that earlier runs began: one may have been completed since all keys were
    /// listed.
    resumed: Mutex<BTreeSet<String>>,
    /// Folders of this run that are not left yet: nothing in the store stands for them.
    made: Mutex<BTreeSet<Vec<u8>>>,
    /// Folders in which this run has made something, and that are not left yet.
    filled: Mutex<BTreeSet<Vec<u8>>>,
    warnings: Mutex<Vec<String>>,
}

/// What a rename completes.
#[derive(Clone, Debug)]
enum Begun {
    Upload(Arc<Upload>),
    /// It was put whole.
    Put,
    Link {
        target: Vec<u8>,
        meta: Metadata,
    },
    /// Another name of a file becomes a copy.
    Copy(Vec<u8>),
}

impl Bucket {
    pub(crate) fn new(client: Arc<Client>, url: &ObjectUrl) -> Bucket {
        Bucket {
            client,
            bucket: url.bucket.clone(),
            prefix: url.key.clone(),
            root: PathBuf::from(url.to_string()),
            begun: Mutex::default(),
            known: OnceLock::new(),
            resumed: Mutex::default(),
            made: Mutex::default(),
            filled: Mutex::default(),
            warnings: Mutex::default(),
        }
    }

    /// The key of a path. What no key can be is refused by name.
    fn key(&self, path: &[u8]) -> Result<String, Fault> {
        let refused = |why: &str| {
            let name = self.shown(path);
            Err(Fault::new(Class::Local, format!("'{name}' cannot be the key of an object: {why}")))
        };
        let Ok(name) = std::str::from_utf8(path) else {
            return refused("it is not UTF-8: rename it");
        };
        let key = format!("{}{name}", self.prefix);
        match key.len() {
            0..=KEY_BYTES_MAX => Ok(key),
            _ => refused("it would have more than 1024 bytes: shorten it"),
        }
    }

    fn shown(&self, path: &[u8]) -> String {
        format!("{}{}", self.root.display(), String::from_utf8_lossy(path).escape_debug())
    }

    fn below<'a>(&'a self, prefix: &'a str, keys_max: u32) -> Below<'a> {
        Below { bucket: &self.bucket, prefix, delimited: false, keys_max }
    }

    /// All keys below the prefix; `None` where they are more than one page.
    fn known(&self) -> Result<Option<&Vec<String>>, Fault> {
        if let Some(known) = self.known.get() {
            return Ok(known.as_ref());
        }
        let below = self.below(&self.prefix, PAGE_KEYS);
        let page = match listing::asked(&self.client, below, None) {
            Ok(page) => page,
            // What is there is not known: only what has no name yet is written unless it is asked.
            Err(Trouble::Refused(refusal)) if refusal.is_denied() => Page::default(),
            Err(trouble) => return Err(refusal::fault(trouble, &self.bucket, &self.prefix)),
        };
        let is_all = page.is_last();
        let mut keys: Vec<String> = page.keys.into_iter().map(|key| key.name).collect();
        keys.sort();
        Ok(self.known.get_or_init(|| is_all.then_some(keys)).as_ref())
    }

    /// Whether an object, and whether a folder, may have a key: as was known at the beginning.
    fn may_be(&self, key: &str) -> Result<(bool, bool), Fault> {
        let Some(known) = self.known()? else { return Ok((true, true)) };
        let folder = format!("{key}/");
        let at = known.partition_point(|other| other[..] < folder[..]);
        let is_folder = known.get(at).is_some_and(|other| other.starts_with(&folder));
        let is_object = known.binary_search_by(|other| other.as_str().cmp(key)).is_ok();
        Ok((is_object || lock(&self.resumed).contains(key), is_folder))
    }

    fn look_at(&self, key: &str) -> Result<Option<Seen>, Fault> {
        reading::look(&self.client, &self.bucket, key)
    }

    /// Puts an object without bytes of a file: a marker, or a link.
    fn put_made(
        &self,
        key: &str,
        (meta, kind): (&Metadata, u32),
        body: &[u8],
        replace: Replace,
    ) -> Result<(), Trouble> {
        let (mut headers, left_out) = metadata::headers(meta, kind);
        self.warn(left_out);
        if kind == metadata::FOLDER {
            headers.push(("content-type".into(), "application/x-directory".into()));
        }
        let (sum, is_brief) = (checksum::of(body), kind == metadata::FOLDER);
        let put = Put { headers, body, sum, replace, is_brief };
        upload::put_with(&self.client, (&self.bucket, key), &put)
    }

    fn warn(&self, text: Option<&str>) {
        if let Some(text) = text {
            let mut warnings = lock(&self.warnings);
            let text = format!("'{}': {text}", self.root.display());
            if !warnings.contains(&text) {
                warnings.push(text);
            }
        }
    }

    fn take_begun(&self, path: &[u8]) -> Option<Begun> {
        lock(&self.begun).remove(path)
    }

    /// A server copies: a second name would need a file system.
    fn copy(&self, from: &[u8], to: &str, replace: Replace) -> Result<(), Fault> {
        let from = format!("{}/{}", self.bucket, encode(&self.key(from)?, b"/"));
        let (bucket, key) = (&self.bucket[..], to);
        let answer = self.client.write(Kind::Copy, replace, &|_| {
            let headers = vec![("x-amz-copy-source".to_string(), from.clone())];
            Call { method: "PUT", bucket, key, headers, ..Call::default() }
        });
        answer.map(|_| ()).map_err(|trouble| upload::refused(trouble, bucket, key))
    }

    /// All objects below the prefix.
    pub(crate) fn remove_all(&self) -> Result<(), Fault> {
        let mut keys = Vec::new();
        listing::pages(&self.client, self.below(&self.prefix, PAGE_KEYS), &mut |page: Page| {
            keys.extend(page.keys.into_iter().map(|key| key.name));
            true
        })?;
        keys.retain(|key| key.starts_with(&self.prefix));
        keys.iter().try_for_each(|key| self.delete(key))
    }

    fn delete(&self, key: &str) -> Result<(), Fault> {
        let (bucket, method) = (&self.bucket[..], "DELETE");
        let call = Call { method, bucket, key, ..Call::default() };
        self.client
            .call(&call, Into::Text)
            .map(|_| ())
            .map_err(|trouble| refusal::fault(trouble, bucket, key))
    }

    fn listed(&self, key: &listing::Key, details: Details) -> Listed {
        let path = key.name.as_bytes()[self.prefix.len().min(key.name.len())..].to_vec();
        let is_folder = path.ends_with(b"/") && key.size == 0 || path.is_empty();
        let kind = if is_folder { ListedKind::Folder } else { ListedKind::File };
        let plain =
            Listed { path, size: key.size, mtime: key.mtime, mode: None, attributes: None, kind };
        if details == Details::Listing {
            return plain;
        }
        match self.look_at(&key.name) {
            Ok(Some(seen)) => self.detailed(&key.name, plain, seen),
            Ok(None) => {
                let text = format!("'{}' changed while it was read: copy it again", key.name);
                failed(plain, Fault::new(Class::SourceChanged, text))
            }
            Err(fault) => failed(plain, fault),
        }
    }

    fn detailed(&self, key: &str, plain: Listed, seen: Seen) -> Listed {
        let Seen { size, mtime, posix, .. } = seen;
        let is_link = posix.is_link() && plain.kind == ListedKind::File && size <= LINK_BYTES_MAX;
        let mode = posix.permissions();
        let Posix { attributes, .. } = posix;
        let found = Listed { size, mtime, mode, attributes, ..plain };
        if !is_link {
            return found;
        }
        let mut target = vec![0; size as usize];
        match reading::read_small(&self.client, (&self.bucket, key), Some(mtime), &mut target) {
            Ok(()) => Listed { kind: ListedKind::Link(target), size: 0, ..found },
            Err(fault) => failed(found, fault),
        }
    }

    fn unsupported<T>(&self, what: &str, path: &[u8]) -> Result<T, Fault> {
        let text = format!("'{}': an object store cannot {what}", self.shown(path));
        Err(Fault::new(Class::Local, text))
    }
}

fn failed(found: Listed, fault: Fault) -> Listed {
    Listed { kind: ListedKind::Failed(fault), ..found }
}

impl Volume for Bucket {
    fn root(&self) -> &Path {
        &self.root
    }

    fn store(&self) -> Option<&dyn Store> {
        Some(self)
    }

    fn begin(&self, path: &[u8], object: &NewObject) -> Result<Handle, Fault> {
        let key = self.key(&object.path)?;
        self.warn(metadata::headers(&object.meta, metadata::FILE).1);
        let place = (self.bucket.clone(), key);
        let upload = Arc::new(Upload::new(self.client.clone(), place, object.clone())?);
        lock(&self.begun).insert(path.to_vec(), Begun::Upload(upload.clone()));
        Ok(Handle::Object(upload))
    }

    fn waits(&self) -> bool {
        true
    }

    fn status(&self, path: &[u8]) -> Result<Option<Status>, Fault> {
        if path.is_empty() || path == b"." || lock(&self.made).contains(path) {
            return Ok(Some(status_of(StatusKind::Directory, 0, Mtime::default(), 0o777)));
        }
        let key = self.key(path)?;
        let (may_be_object, may_be_folder) = self.may_be(&key)?;
        if may_be_object && let Some(seen) = self.look_at(&key)? {
            let kind = if seen.posix.is_link() { StatusKind::Link } else { StatusKind::File };
            let mode = seen.posix.permissions().unwrap_or(0o644);
            return Ok(Some(status_of_object(kind, (&key, &seen), mode)));
        }
        if may_be_folder && self.is_folder(path)? {
            return Ok(Some(status_of(StatusKind::Directory, 0, Mtime::default(), 0o777)));
        }
        Ok(None)
    }

    fn open(&self, path: &[u8], access: Access) -> Result<Handle, Fault> {
        let key = self.key(path)?;
        let Access::Read { .. } = access else {
            return self.unsupported("change what it has", path);
        };
        match self.look_at(&key)? {
            Some(seen) => {
                let place = (self.bucket.clone(), key);
                Ok(Handle::Object(Arc::new(Reading::new(self.client.clone(), place, seen))))
            }
            None => {
                let text = format!("'{}' is gone: copy it again", self.shown(path));
                Err(Fault::new(Class::SourceChanged, text))
            }
        }
    }

    fn status_of(&self, file: &Handle, path: &[u8]) -> Result<Status, Fault> {
        if let Handle::Object(object) = file
            && let Some((bytes, sum)) = object.written()
        {
            let mtime = Mtime::default();
            let made = status_of(StatusKind::File, bytes, mtime, 0o644);
            return Ok(Status { inode: (OBJECT_DEVICE, sum), ..made });
        }
        let key = self.key(path)?;
        match self.look_at(&key)? {
            Some(seen) => Ok(status_of_object(StatusKind::File, (&key, &seen), 0o644)),
            None => self.unsupported("find what is gone", path),
        }
    }

    fn is_still(&self, file: &Handle, _path: &[u8], then: (u64, Mtime)) -> Result<bool, Fault> {
        Ok(matches!(file, Handle::Object(object) if object.is_still(then)))
    }

    fn identity_of(&self, _file: &Handle, _path: &[u8]) -> Result<(Option<Identity>, u64), Fault> {
        Ok((Some(Identity { inode: 0, owner: 0, born: None }), 0))
    }

    fn next_data(&self, _file: &Handle, _path: &[u8], offset: u64) -> Result<Option<u64>, Fault> {
        Ok(Some(offset))
    }

    fn make_hole(&self, _: &Handle, path: &[u8], _: Range<u64>) -> Result<(), Fault> {
        self.unsupported("keep holes", path)
    }

    /// Folders come with what is in them; one is marked when it is left.
    fn make_directory(&self, path: &[u8], _mode: u32) -> Result<(), Fault> {
        self.key(path)?;
        lock(&self.made).insert(path.to_vec());
        Ok(())
    }

    fn make_directory_like(&self, path: &[u8], _like: &[u8]) -> Result<(), Fault> {
        self.key(path).map(|_| ())
    }

    fn set_directory_mode(&self, _path: &[u8], _mode: u32) -> Result<(), Fault> {
        Ok(())
    }

    fn set_owner(&self, path: &[u8], _: Owner, _: Option<u32>) -> Result<(), Fault> {
        self.unsupported("give what it has to somebody else", path)
    }

    fn make_link(&self, path: &[u8], target: &[u8], meta: &Metadata) -> Result<(), Fault> {
        let link = Begun::Link { target: target.to_vec(), meta: meta.clone() };
        lock(&self.begun).insert(path.to_vec(), link);
        Ok(())
    }

    fn make_hard_link(&self, path: &[u8], twin: &[u8]) -> Result<(), Fault> {
        lock(&self.begun).insert(path.to_vec(), Begun::Copy(twin.to_vec()));
        Ok(())
    }

    fn set_length(&self, _file: &Handle, _path: &[u8], _len: u64) -> Result<(), Fault> {
        Ok(())
    }

    /// It was given when the object was begun.
    fn set_metadata(&self, _file: &Handle, _path: &[u8], _meta: &Metadata) -> Result<(), Fault> {
        Ok(())
    }

    fn leave_directory(&self, path: &[u8], meta: Option<&Metadata>, _durable: Durable) -> Left {
        let given = match meta {
            Some(meta) if !path.is_empty() => self.mark(path, meta),
            _ => Ok(()),
        };
        lock(&self.made).remove(path);
        Left { given, synced: Ok(()) }
    }

    /// As tags: what is known only after an upload has begun cannot be among its headers.
    fn set_digests(
        &self,
        _file: Option<&Handle>,
        path: &[u8],
        sums: &ExtraSums,
    ) -> Result<(), Fault> {
        self.tag(&self.key(path)?, sums)
    }

    fn take_warnings(&self) -> Vec<String> {
        self.client.abilities.take_warnings().iter().for_each(|text| self.warn(Some(text)));
        std::mem::take(&mut lock(&self.warnings))
    }

    /// What a store has acknowledged is kept.
    fn sync(&self, _file: &Handle, _path: &[u8]) -> Result<(), Fault> {
        Ok(())
    }

    fn file_system_of(&self, _path: &[u8]) -> Result<u64, Fault> {
        Ok(1)
    }

    fn sync_all(&self, _path: &[u8]) -> Result<(), Fault> {
        Ok(())
    }

    fn sync_own_name(&self) -> Result<(), Fault> {
        Ok(())
    }

    fn sync_directory(&self, _path: &[u8]) -> Result<(), Fault> {
        Ok(())
    }

    fn rename(&self, from: &[u8], to: &[u8], replace: Replace) -> Result<(), Fault> {
        let begun = lock(&self.begun).get(from).cloned();
        let done = match begun {
            Some(Begun::Put) => Ok(()),
            Some(Begun::Upload(upload)) => upload.complete(replace).map(|is_summed| {
                let text = "the store keeps no checksum of whole objects: only parts were checked";
                self.warn((!is_summed).then_some(text));
            }),
            Some(Begun::Link { target, meta }) => {
                let key = self.key(to)?;
                self.put_made(&key, (&meta, metadata::LINK), &target, replace)
                    .map_err(|trouble| upload::refused(trouble, &self.bucket, &key))
            }
            Some(Begun::Copy(twin)) => self.copy(&twin, &self.key(to)?, replace),
            None => self.unsupported("rename", from),
        };
        if done.is_ok() {
            self.take_begun(from);
            self.note_made(to);
        }
        done
    }

    /// Only what was begun here, under a name that no object has.
    fn remove(&self, path: &[u8]) -> Result<(), Fault> {
        if let Some(Begun::Upload(upload)) = self.take_begun(path) {
            upload.abort();
        }
        Ok(())
    }

    fn names_in(
        &self,
        directory: &[u8],
        take: &mut dyn FnMut(&[u8], StatusKind),
    ) -> Result<(), Fault> {
        let prefix = match directory {
            b"" => self.prefix.clone(),
            directory => format!("{}/", self.key(directory)?),
        };
        let below = Below { delimited: true, ..self.below(&prefix, PAGE_KEYS) };
        listing::pages(&self.client, below, &mut |page: Page| {
            let keys = page.keys.iter().map(|key| (&key.name[..], StatusKind::File));
            let folders = page.folders.iter().map(|name| (&name[..], StatusKind::Directory));
            for (name, kind) in keys.chain(folders) {
                let name = name.strip_prefix(&prefix).unwrap_or("").trim_end_matches('/');
                if !name.is_empty() {
                    take(name.as_bytes(), kind);
                }
            }
            true
        })
    }

    fn clear(&self, path: &[u8], kind: StatusKind) -> Result<(), Fault> {
        let key = self.key(path)?;
        match kind {
            StatusKind::Directory => self.delete(&format!("{key}/")),
            _ => self.delete(&key),
        }
    }

    fn link_aside(&self, _path: &[u8], _to: &[u8]) -> Result<Kept, Fault> {
        Ok(Kept::Not)
    }

    fn move_aside(&self, path: &[u8], kind: StatusKind, to: &[u8]) -> Result<(), Fault> {
        if kind == StatusKind::Directory {
            return self.unsupported("move a folder", path);
        }
        self.copy(path, &self.key(to)?, Replace::Never)?;
        self.clear(path, kind)
    }

    fn open_locked(&self, path: &[u8]) -> Result<Locked, Fault> {
        self.unsupported("keep a journal", path)
    }

    fn read_at(
        &self,
        file: &Handle,
        path: &[u8],
        at: u64,
        into: &mut [u8],
    ) -> Result<usize, Fault> {
        let Handle::Object(object) = file else { return self.unsupported("read files", path) };
        let failed = |_| object.fault().unwrap_or_else(|| Fault::usage("the store"));
        object.read_at(at, into).map(|count| count as usize).map_err(failed)
    }

    fn append(&self, _: &Handle, path: &[u8], _: u64, _: &[u8]) -> Result<(), Fault> {
        self.unsupported("append", path)
    }

    fn read_link(&self, path: &[u8]) -> Result<Option<Vec<u8>>, Fault> {
        let key = self.key(path)?;
        let Some(seen) = self.look_at(&key)? else { return Ok(None) };
        if !seen.posix.is_link() || seen.size > LINK_BYTES_MAX {
            return Ok(None);
        }
        let mut target = vec![0; seen.size as usize];
        reading::read_small(&self.client, (&self.bucket, &key), None, &mut target)?;
        Ok(Some(target))
    }

    fn free_bytes(&self, _path: &[u8]) -> Result<u64, Fault> {
        Ok(u64::MAX)
    }

    fn read_small(&self, segment: &Segment, into: &mut [u8]) -> Result<(), Fault> {
        let key = self.key(&segment.path)?;
        let mtime = segment.meta.mtime;
        reading::read_small(&self.client, (&self.bucket, &key), mtime, into)
    }

    fn write_small(
        &self,
        segment: &Segment,
        from: &[u8],
        extra: Option<&ExtraPiece>,
    ) -> Result<Status, Fault> {
        let Some(new) = &segment.new else {
            return self.unsupported("write what has no key", &segment.path);
        };
        let key = self.key(&new.path)?;
        self.warn(metadata::headers(&new.meta, metadata::FILE).1);
        let known = extra.and_then(|extra| extra.crc64);
        let body = (from, known.unwrap_or_else(|| checksum::of(from)));
        upload::put(&self.client, (&self.bucket, &key), new, body)?;
        lock(&self.begun).insert(segment.path.clone(), Begun::Put);
        let mtime = new.meta.mtime.unwrap_or_default();
        let made = status_of(StatusKind::File, from.len() as u64, mtime, new.meta.mode);
        Ok(Status { inode: (OBJECT_DEVICE, body.1), ..made })
    }
}

fn status_of(kind: StatusKind, size: u64, mtime: Mtime, mode: u32) -> Status {
    Status { kind, size, mtime, mode, owner: (0, 0), inode: (0, 0), allocated_bytes: size }
}

/// What an object is, as its bytes say; where the store has no checksum of them, as its tag does.
/// By a tag that does not follow from its bytes nothing that was written is known, and one without
/// either is the same as no other.
fn status_of_object(kind: StatusKind, (key, seen): (&str, &Seen), mode: u32) -> Status {
    let inode = match seen.sum.or_else(|| tags::number_of_parts(&seen.tag)) {
        Some(number) => (OBJECT_DEVICE, number),
        None if seen.tag.is_empty() => (0, checksum::of(key.as_bytes())),
        None => (0, checksum::of(seen.tag.as_bytes())),
    };
    Status { inode, ..status_of(kind, seen.size, seen.mtime, mode) }
}

const KEY_BYTES_MAX: usize = 1024;
/// Paths are no longer.
const LINK_BYTES_MAX: u64 = 4095;

#[cfg(test)]
mod tests {
    use super::*;

    /// What a store tells decides which objects are the same; nothing says that none are.
    #[test]
    fn objects_of_which_nothing_is_told_are_not_the_same() {
        let inode = |key, tag: &str, sum| {
            let seen = Seen { tag: tag.to_string(), sum, ..Seen::default() };
            status_of_object(StatusKind::File, (key, &seen), 0o644).inode
        };
        assert_ne!(inode("a", "", None), inode("b", "", None));
        assert_eq!(inode("a", "\"1\"", None), inode("b", "\"1\"", None));
        assert_ne!(inode("a", "\"1\"", None), inode("b", "\"2\"", None));
        assert_eq!(inode("a", "", Some(7)), inode("b", "\"1\"", Some(7)));
    }
}
