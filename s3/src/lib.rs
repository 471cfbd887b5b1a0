//! Object stores as ends of a copy: a client of S3 whose calls block, so that it needs no runtime.
//! The mover calls it from the threads on which it waits for devices.

mod abandoned;
mod abilities;
mod addresses;
mod answers;
mod bucket;
mod checksum;
mod client;
mod concurrency;
mod connection;
mod credentials;
mod dates;
mod foreign;
mod listing;
mod metadata;
mod parts;
pub mod post;
mod reading;
mod refusal;
mod settings;
mod signing;
mod tags;
mod trust;
mod under_way;
mod upload;
mod usual;
mod waits;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use base::fault::Fault;
use base::job::{CleanEvent, Cleaned, Cleaning, ObjectUrl};
use base::store_times::StoreTimes;
use mover::io::store::{PartSize, Stopping, Store, Stores, TellRefused};

use crate::bucket::Bucket;
use crate::client::{Client, lock};
pub use crate::settings::{Addressing, Options, Requests};
use crate::waits::Stop;

/// The stores of a command: all have the same endpoint and credentials.
#[derive(Debug)]
pub struct S3 {
    options: Options,
    /// Made when the first store is opened.
    client: Mutex<Option<Arc<Client>>>,
    stop: Stop,
}

impl S3 {
    pub fn new(options: Options) -> S3 {
        S3 { options, client: Mutex::new(None), stop: Stop::default() }
    }

    /// Removes uploads to a key, and below it, that were begun so long ago and never completed.
    pub fn clean(
        &self,
        url: &ObjectUrl,
        age_min: Duration,
        cleaning: Cleaning,
        tell: &mut dyn FnMut(&CleanEvent),
    ) -> Cleaned {
        let client = settings::check_bucket(&url.bucket).and_then(|()| self.client());
        match client {
            Ok(client) => abandoned::clean(&client, url, age_min, cleaning, tell),
            Err(fault) => {
                tell(&CleanEvent::Failed(fault));
                Cleaned { failed: 1, ..Cleaned::default() }
            }
        }
    }

    /// Removes all objects below a folder of the caller's own, and all uploads to such.
    pub fn remove_folder(&self, folder: &ObjectUrl) -> Result<(), Fault> {
        settings::check_bucket(&folder.bucket)?;
        assert!(folder.key.ends_with('/'), "what is beside a folder stays");
        Bucket::new(self.client()?, folder).remove_all()?;
        let mut failed = None;
        let mut tell = |event: &CleanEvent| {
            if let CleanEvent::Failed(fault) = event {
                failed = Some(fault.clone());
            }
        };
        self.clean(folder, Duration::ZERO, Cleaning::Remove, &mut tell);
        failed.map_or(Ok(()), Err)
    }

    /// What all requests have taken so far.
    pub fn times(&self) -> StoreTimes {
        lock(&self.client).as_ref().map(|client| client.times()).unwrap_or_default()
    }

    fn client(&self) -> Result<Arc<Client>, Fault> {
        let mut client = lock(&self.client);
        match &*client {
            Some(client) => Ok(client.clone()),
            None => Ok(client.insert(Arc::new(Client::new(&self.options, &self.stop)?)).clone()),
        }
    }
}

impl Stores for S3 {
    fn open(&self, url: &ObjectUrl) -> Result<Arc<dyn Store>, Fault> {
        settings::check_bucket(&url.bucket)?;
        Ok(Arc::new(Bucket::new(self.client()?, url)))
    }

    fn part_size(&self) -> PartSize {
        self.options.part_size
    }

    fn stop_when(&self, stopping: Stopping) {
        self.stop.when(stopping);
    }

    fn when_refused(&self, tell: TellRefused) {
        self.stop.when_refused(tell);
    }
}
