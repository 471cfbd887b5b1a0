//! What a bucket does as a store: listings, many small objects at a time, and uploads that another
//! run continues.

use std::os::unix::fs::DirBuilderExt;
use std::sync::{Arc, Mutex};

use crate::bucket::Bucket;
use crate::checksum;
use crate::client::{Call, Into, Trouble, lock};
use crate::listing::{self, Below, PAGE_KEYS, Page};
use crate::parts;
use crate::refusal;
use crate::upload::refusal_of_length;
use base::extra::ExtraSums;
use base::fault::Fault;
use mover::io::disk::Disk;
use mover::io::request::ExtraPiece;
use mover::io::store::{Details, Listed, ListedKind, ListedPart, Store};
use mover::io::volume::{Mtime, Segment, Status, Volume};

impl Bucket {
    /// Gives an object its digests as tags. A store that has none, or a user who may not, is told.
    pub(super) fn tag(&self, key: &str, sums: &ExtraSums) -> Result<(), Fault> {
        let mut body = String::from("<Tagging><TagSet>");
        for (kind, hex) in sums.hex() {
            let name = kind.name();
            body.push_str(&format!("<Tag><Key>checksum.{name}</Key><Value>{hex}</Value></Tag>"));
        }
        body.push_str("</TagSet></Tagging>");
        let body = body.as_bytes();
        let headers = self.client.abilities.check().headers(body, checksum::of(body));
        let (bucket, query) = (&self.bucket[..], &[("tagging", "")]);
        let call = Call { method: "PUT", bucket, key, query, headers, body, ..Call::default() };
        match self.client.call(&call, Into::Text) {
            Err(Trouble::Refused(refusal)) => {
                let text = format!(
                    "the store refuses tags, so digests are only in the receipt: {}",
                    refusal.told()
                );
                self.warn(Some(&text));
                Ok(())
            }
            Err(Trouble::Lost(fault)) => Err(fault),
            Ok(_) => Ok(()),
        }
    }
}

/// A folder of which a listing has the name.
fn folder(name: &str) -> Listed {
    Listed {
        path: name.as_bytes().to_vec(),
        size: 0,
        mtime: Mtime::default(),
        mode: None,
        attributes: None,
        kind: ListedKind::Folder,
    }
}

impl Store for Bucket {
    fn check(&self) -> Result<(), Fault> {
        let page = listing::asked(&self.client, self.below(&self.prefix, 1), None);
        match page {
            Err(Trouble::Refused(refusal)) if refusal.is_denied() => Ok(()), // it may be written
            Err(trouble) => Err(refusal::fault(trouble, &self.bucket, &self.prefix)),
            Ok(_) => Ok(()),
        }
    }

    fn list(&self, details: Details, take: &mut dyn FnMut(Listed) -> bool) -> Result<(), Fault> {
        let below = self.below(&self.prefix, PAGE_KEYS);
        listing::pages(&self.client, below, &mut |page: Page| {
            let keys = page.keys.into_iter().filter(|key| key.name.starts_with(&self.prefix));
            let keys: Vec<listing::Key> = keys.collect();
            let listed = match details {
                Details::Listing => {
                    keys.iter().map(|key| self.listed(key, details)).collect::<Vec<_>>()
                }
                Details::All => listing::each(&keys, |key| self.listed(key, details)),
            };
            listed.into_iter().all(&mut *take)
        })
    }

    fn list_folder(&self, take: &mut dyn FnMut(Listed) -> bool) -> Result<(), Fault> {
        let below = Below { delimited: true, ..self.below(&self.prefix, PAGE_KEYS) };
        listing::pages(&self.client, below, &mut |page: Page| {
            let keys = page.keys.iter().filter(|key| key.name.starts_with(&self.prefix));
            let objects = keys.map(|key| self.listed(key, Details::Listing));
            let folders = page.folders.iter().filter_map(|name| name.strip_prefix(&self.prefix));
            objects.chain(folders.map(folder)).all(&mut *take)
        })
    }

    fn refusal(&self, path: &[u8], size: u64, part_bytes: u32) -> Option<Fault> {
        refusal_of_length((&self.bucket, &self.key(path).ok()?), size, part_bytes)
    }

    fn look(&self, path: &[u8]) -> Result<Option<Listed>, Fault> {
        let key = self.key(path)?;
        let seen = match self.look_at(&key) {
            // The answer to this request has no body: where there was one, another says more.
            Err(fault) if fault.ends_transfer() => return Err(fault),
            Err(fault) => return Err(self.check().err().unwrap_or(fault)),
            Ok(seen) => seen,
        };
        Ok(seen.map(|seen| Listed {
            path: path.to_vec(),
            size: seen.size,
            mtime: seen.mtime,
            mode: seen.posix.permissions(),
            attributes: seen.posix.attributes,
            kind: ListedKind::File,
        }))
    }

    fn journals(&self) -> Result<Arc<dyn Volume>, Fault> {
        let folder = self.client.journals()?;
        let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder);
        made.map_err(|error| Fault::io("make the folder", &folder, &error))?;
        Ok(Arc::new(Disk::open(&folder)?))
    }

    fn parts(&self, path: &[u8], id: &str) -> Result<Option<Vec<ListedPart>>, Fault> {
        let key = self.key(path)?;
        lock(&self.resumed).insert(key.clone());
        parts::all(&self.client, (&self.bucket, &key), id)
    }

    fn abandon(&self, path: &[u8], id: &str) {
        if let Ok(key) = self.key(path) {
            // What stays is found by `clean`.
            let _ = parts::abort(&self.client, (&self.bucket, &key), id);
        }
    }

    fn is_folder(&self, path: &[u8]) -> Result<bool, Fault> {
        let prefix = format!("{}/", self.key(path)?);
        let mut is_folder = false;
        // A page may have nothing, and more behind it.
        listing::pages(&self.client, self.below(&prefix, 1), &mut |page: Page| {
            is_folder = page.keys.iter().any(|key| key.name.starts_with(&prefix));
            !is_folder
        })?;
        Ok(is_folder)
    }

    fn read_many(&self, segments: &[Segment], into: &mut [u8]) -> Vec<(u16, Fault)> {
        let mut left = into;
        let mut places = Vec::with_capacity(segments.len());
        for segment in segments {
            let (place, rest) = left.split_at_mut(segment.len as usize);
            left = rest;
            places.push((segment, Mutex::new(place)));
        }
        let read = listing::each(&places, |(segment, place)| {
            let into = &mut lock(place)[..];
            let read = self.read_small(segment, into);
            if read.is_err() {
                into.fill(0);
            }
            read
        });
        listing::failures(read)
    }

    fn write_many(
        &self,
        segments: &[Segment],
        skip: &[u16],
        from: &[u8],
        extra: &[ExtraPiece],
    ) -> Vec<(u16, Result<Status, Fault>)> {
        let numbered = (0_u16..).zip(segments).filter(|(index, _)| !skip.contains(index));
        let numbered: Vec<(u16, &Segment)> = numbered.collect();
        let written = listing::each(&numbered, |(index, segment)| {
            let bytes = &from[segment.at as usize..(segment.at + segment.len) as usize];
            self.write_small(segment, bytes, ExtraPiece::of(extra, *index))
        });
        numbered.iter().map(|(index, _)| *index).zip(written).collect()
    }
}
