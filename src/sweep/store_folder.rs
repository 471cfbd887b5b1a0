//! The objects of a campaign at a store: all are below a folder of its own, in which nothing else
//! is, and which is removed at the end.

use std::collections::BTreeSet;
use std::sync::Arc;

use analysis::campaign::{Cell, Extent, Way};
use base::fault::Fault;
use base::job::ObjectUrl;
use mover::io::reach::Reach;
use mover::io::store::Stores;
use s3::{Requests, S3};

#[derive(Debug)]
pub(super) struct StoreFolder {
    options: s3::Options,
    folder: ObjectUrl,
    /// Whether what an earlier run of the campaign has left is gone.
    is_begun: bool,
    /// The lengths of which there is an object to be read.
    made: BTreeSet<u64>,
}

impl StoreFolder {
    /// Two hosts may begin campaigns in the same second.
    pub(super) fn new(
        url: &ObjectUrl,
        options: &s3::Options,
        campaign: &str,
        host: &str,
    ) -> StoreFolder {
        let slash = if url.key.is_empty() || url.key.ends_with('/') { "" } else { "/" };
        let key = format!("{}{slash}datapump-{campaign}-{host}/", url.key);
        StoreFolder {
            options: options.clone(),
            folder: ObjectUrl { bucket: url.bucket.clone(), key },
            is_begun: false,
            made: BTreeSet::new(),
        }
    }

    /// A client as each copy has its own, with connections that are not open yet.
    pub(super) fn client(&self) -> Arc<S3> {
        Arc::new(S3::new(self.options.clone()))
    }

    /// The same of a copy with this depth; without one it chooses its requests as a copy does.
    pub(super) fn client_with(&self, depth: Option<u16>) -> Arc<S3> {
        let requests = depth.map_or(Requests::ByRate, |_| Requests::AsAsked);
        Arc::new(S3::new(s3::Options { requests, ..self.options.clone() }))
    }

    /// Fails where nothing can be done. What an earlier run has left is removed.
    pub(super) fn begin(&mut self) -> Result<(), Fault> {
        if !self.is_begun {
            let client = self.client();
            client.open(&self.folder)?.check()?;
            client.remove_folder(&self.folder)?;
            self.is_begun = true;
        }
        Ok(())
    }

    /// The object that a cell writes or reads. Cells of the same length read the same.
    pub(super) fn object(&self, way: Way, cell: &Cell) -> ObjectUrl {
        match way {
            Way::Put => self.below(&format!("{PUT}{}", cell.index)),
            Way::Get => self.below(&format!("get/{}", bytes(cell.extent))),
        }
    }

    /// Whether what a cell reads is still to be made.
    pub(super) fn lacks(&self, way: Way, extent: Extent) -> bool {
        way == Way::Get && !self.made.contains(&bytes(extent))
    }

    pub(super) fn has_made(&mut self, extent: Extent) {
        self.made.insert(bytes(extent));
    }

    /// Removes what cells have written; it was measured.
    pub(super) fn forget_written(&self) -> Result<(), Fault> {
        self.client().remove_folder(&self.below(PUT))
    }

    /// Nothing is there where the campaign could not begin.
    pub(super) fn remove(&self) -> Result<(), Fault> {
        if !self.is_begun {
            return Ok(());
        }
        let removed = self.client().remove_folder(&self.folder);
        removed.map_err(|fault| {
            let text = format!(
                "what this campaign has written below '{}' could not be removed: {fault}; remove \
                 it with another tool, and its uploads with 'datapump clean {} --min-age off'",
                self.folder, self.folder
            );
            Fault { text, ..fault }
        })
    }

    fn below(&self, path: &str) -> ObjectUrl {
        let key = format!("{}{path}", self.folder.key);
        ObjectUrl { bucket: self.folder.bucket.clone(), key }
    }
}

/// How a client is given to a copy.
pub(super) fn reach(client: &Arc<S3>) -> Reach {
    Reach::Stores(client.clone())
}

/// A store is measured by lengths in bytes: what is read has an end.
fn bytes(extent: Extent) -> u64 {
    match extent {
        Extent::Bytes(bytes) => bytes,
        Extent::Time(_) => unreachable!("the command line has refused a time"),
    }
}

const PUT: &str = "put/";
