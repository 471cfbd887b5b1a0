//! How a job went, read from its folder for a page: logs and receipts, each part of them once.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};

use super::ending::{Line, each_line};
use super::folder::{JobFolder, Part};
use super::records::{EventLine, ReceiptLine, path_of};
use analysis::report::utc::unix_s;
use analysis::shards::history::{Finished, Happened, JobHistory};
use analysis::shards::overview::Overview;
use analysis::shards::{Claim, names};
use base::fault::Fault;
use mover::io::clock;

/// Reads a job repeatedly, what does not change only once.
#[derive(Debug, Default)]
pub struct HistoryReader {
    /// How far each log was read.
    read: BTreeMap<String, u64>,
    log: Vec<Happened>,
    finished: BTreeMap<Claim, Finished>,
    failures: BTreeMap<Claim, Vec<String>>,
}

impl HistoryReader {
    /// What is known of the job now, beside how it stands.
    pub fn read(&mut self, folder: &JobFolder, overview: Overview) -> Result<JobHistory, Fault> {
        let began_unix_s = folder.manifest.began_unix_s as f64;
        for name in folder.names(Part::Events)? {
            let text = self.new_lines(folder, &name)?;
            for line in text.lines().filter_map(|line| serde_json::from_str(line).ok()) {
                self.log.extend(happened(line, began_unix_s));
            }
        }
        // Whatever the order of names and of looks was. The lines of a worker stay in theirs.
        self.log.sort_by(|a, b| a.at_s.total_cmp(&b.at_s).then_with(|| a.who.cmp(&b.who)));
        for (held, _) in folder.names(Part::Done)?.iter().filter_map(|name| names::parse_done(name))
        {
            if !self.finished.contains_key(&held.claim) {
                self.finish(folder, held.claim)?;
            }
        }
        let manifest = &folder.manifest;
        let shown =
            |text: &str| path_of(text).map_or_else(String::new, |p| p.display().to_string());
        let unplanned = folder.plan()?.unplanned.into_iter().map(|failed| failed.why);
        Ok(JobHistory {
            began_unix_s,
            until_s: match overview.is_finished {
                true => overview.elapsed_s,
                false => clock::unix().as_secs_f64() - began_unix_s,
            },
            version: manifest.version.clone(),
            sources: manifest.sources.iter().map(|source| shown(&source.folder)).collect(),
            target: shown(&manifest.destination),
            on: manifest.on.clone(),
            command: manifest.command.clone(),
            limit_bytes_per_s: manifest
                .copying
                .bytes_per_second
                .map(|share| share * manifest.workers as f64),
            overview,
            log: self.log.clone(),
            finished: self.finished.clone(),
            failures: unplanned.chain(self.failures.values().flatten().cloned()).collect(),
        })
    }

    /// Whole lines that were added to a log.
    fn new_lines(&mut self, folder: &JobFolder, name: &str) -> Result<String, Fault> {
        let path = folder.file(Part::Events, name);
        let from = self.read.get(name).copied().unwrap_or(0);
        let read = || -> io::Result<Vec<u8>> {
            let mut file = File::open(&path)?;
            file.seek(SeekFrom::Start(from))?;
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes)?;
            let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            bytes.truncate(whole);
            Ok(bytes)
        };
        let bytes = read().map_err(|why| Fault::io("read", &path, &why))?;
        self.read.insert(name.to_string(), from + bytes.len() as u64);
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn finish(&mut self, folder: &JobFolder, claim: Claim) -> Result<(), Fault> {
        let is_range = folder.shard(claim.shard)?.0.range.is_some();
        let mut finished = Finished::default();
        let mut failures = Vec::new();
        each_line(folder, &names::of_attempt(claim), &mut |line| {
            match line {
                Line::Head(head) => {
                    finished = Finished { host: head.host, bytes: head.moved_bytes };
                }
                Line::Item(ReceiptLine::Failed(failed)) if !is_range => failures.push(failed.why),
                Line::Item(_) => {}
            }
            Ok(())
        })?;
        self.finished.insert(claim, finished);
        self.failures.insert(claim, failures);
        Ok(())
    }
}

fn happened(line: EventLine, began_unix_s: f64) -> Option<Happened> {
    let millis: f64 = line.time_utc.get(20..23)?.parse().ok()?;
    let at_s = unix_s(line.time_utc.get(..19)?)? as f64 + millis / 1e3 - began_unix_s;
    let claim = line.shard.zip(line.attempt).map(|(shard, attempt)| Claim { shard, attempt });
    Some(Happened { at_s, who: line.who, what: line.what, claim, why: line.why })
}
