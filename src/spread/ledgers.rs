//! Ledgers: what attempts have noted before they committed it, and so what is committed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, BufRead, BufReader};

use super::folder::{JobFolder, Part};
use super::records::{Committed, bytes_of};
use analysis::shards::{Claim, names};
use base::fault::Fault;

/// What ledgers say of names: those of this shard, and those of shards that were lost.
#[derive(Debug, Default)]
pub(super) struct Noted {
    here: BTreeMap<Vec<u8>, Committed>,
    lost: BTreeMap<Vec<u8>, Committed>,
}

impl Noted {
    /// What was committed under a final name. A name that a lost shard had is believed where the
    /// file has the digest that was noted.
    pub(super) fn of(
        &self,
        name: &[u8],
        digest_there: &mut dyn FnMut() -> Result<Option<String>, Fault>,
    ) -> Result<Option<&Committed>, Fault> {
        if let Some(committed) = self.here.get(name) {
            return Ok(Some(committed));
        }
        let Some(committed) = self.lost.get(name) else { return Ok(None) };
        let Some(digest) = &committed.digest else { return Ok(None) };
        Ok((digest_there()?.as_ref() == Some(digest)).then_some(committed))
    }

    /// Reads the ledgers of a claim's attempts. `had_staging` are those that were fenced with a
    /// staging folder: they have a ledger.
    pub(super) fn read(
        folder: &JobFolder,
        of: Claim,
        had_staging: &BTreeSet<Claim>,
    ) -> Result<Noted, Fault> {
        let mut noted = Noted::default();
        for attempt in 1..=of.attempt {
            let claim = Claim { attempt, ..of };
            let path = folder.file(Part::Ledgers, &names::of_attempt(claim));
            let fault = |why: io::Error| Fault::io("read", &path, &why);
            // It is made before the staging folder: where there was one, it is asked again.
            let file = match File::open(&path) {
                Ok(file) => file,
                Err(why) if why.kind() == io::ErrorKind::NotFound => {
                    match had_staging.contains(&claim) {
                        true => return Err(fault(why)),
                        false => continue,
                    }
                }
                Err(why) => return Err(fault(why)),
            };
            read_ledger(file, &mut noted.here).map_err(fault)?;
        }
        let path = folder.path().join(LOST);
        match File::open(&path) {
            Ok(file) => {
                read_ledger(file, &mut noted.lost).map_err(|why| Fault::io("read", &path, &why))?
            }
            Err(why) if why.kind() == io::ErrorKind::NotFound => {}
            Err(why) => return Err(Fault::io("read", &path, &why)),
        }
        Ok(noted)
    }
}

fn read_ledger(file: File, noted: &mut BTreeMap<Vec<u8>, Committed>) -> io::Result<()> {
    for line in BufReader::new(file).split(b'\n') {
        // The last line may be half of one: what it names was not committed.
        let Ok(committed) = serde_json::from_slice::<Committed>(&line?) else { continue };
        let Some(name) = bytes_of(&committed.name) else { continue };
        noted.insert(name, committed);
    }
    Ok(())
}

/// The ledgers of shards that could not be read any more.
pub(super) const LOST: &str = "lost";
