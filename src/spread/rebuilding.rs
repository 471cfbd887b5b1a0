//! A job that is continued: what its folder lacks is made again from the manifest, the shards and
//! the receipts, and an unfinished plan is made anew beside what it has.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::sync::Mutex;

use super::coordinator::{Earlier, RunOrder};
use super::cutting;
use super::destination::{Destination, Reply, Step};
use super::ending::{head, is_done};
use super::folder::{JobFolder, Part, replace};
use super::giving::{close, keep_turn, open_part, restore, turn_of};
use super::ledgers::LOST;
use super::planning::hash_of;
use super::records::PlanState;
use analysis::shards::given::{self, PLANNED_MAX, Turns};
use analysis::shards::worker::Answer;
use analysis::shards::{Claim, names};
use base::fault::Fault;

/// What is to be done to continue a job, and what was repaired; `None` for one that is done. Where
/// nothing is left of the destination's side of it, the job was finished or given up.
pub fn resumed(
    folder: &JobFolder,
    program: PathBuf,
    ssh: Option<Vec<String>>,
) -> Result<Option<(RunOrder, Vec<String>)>, Fault> {
    // Whether the job has the destination still is asked without a proof that it has.
    let mut at = Destination::of(folder, "", ssh.as_deref()).unchecked();
    let mut repaired = Vec::new();
    for part in Part::ALL {
        make_if_missing(&folder.part(part), &mut repaired)?;
    }
    let attempts = match at.ask(&Step::ListStaging)? {
        Reply::Names(Some(attempts)) => attempts,
        _ if is_done(folder) => return Ok(None),
        _ => {
            return Err(Fault::usage(format!(
                "the job '{}' has nothing at '{}' any more: it was given up (spread cancel \
                 --forget)",
                folder.path().display(),
                folder.destination_shown(),
            )));
        }
    };
    replace(folder.path(), "token", folder.manifest.token.as_bytes())?;
    let plan = match folder.plan() {
        Ok(plan) => plan,
        Err(_) => {
            repaired.push("plan.json is not readable: the plan is made anew".to_string());
            PlanState::default()
        }
    };
    let shards = readable_shards(folder, &mut at, &mut repaired)?;
    let lost = plan.planned.is_some_and(|planned| planned_only(&shards).count() < planned as usize);
    name_all(folder, &shards, &attempts, &mut repaired)?;
    let is_planned = plan.planned.is_some() && !lost && folder.path().join("folders").exists();
    let earlier = (!is_planned).then(|| earlier(folder, &shards)).transpose()?;
    if !is_planned {
        folder.set_plan(&PlanState { planned: None, ..plan })?;
    }
    let manifest = &folder.manifest;
    let far = manifest.far.as_ref().or(manifest.far_source.as_ref());
    let cutting = cutting(manifest.workers, manifest.split_above, far)
        .limited(manifest.copying.bytes_per_second);
    let (destination, leaves) = (Mutex::default(), || false);
    let order = RunOrder { program, cutting, earlier, is_planned, ssh, destination, leaves };
    Ok(Some((order, repaired)))
}

fn make_if_missing(path: &PathBuf, repaired: &mut Vec<String>) -> Result<(), Fault> {
    match DirBuilder::new().mode(0o700).create(path) {
        Ok(()) => {
            repaired.push(format!("'{}' was missing", path.display()));
            Ok(())
        }
        Err(why) if why.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(why) => Err(Fault::write("make", path, &why)),
    }
}

/// The shards that can be read, with what each is predicted to take. Others are set aside: their
/// names are planned again.
fn readable_shards(
    folder: &JobFolder,
    at: &mut Destination,
    repaired: &mut Vec<String>,
) -> Result<BTreeMap<u32, f64>, Fault> {
    let mut readable = BTreeMap::new();
    let mut families = BTreeSet::new();
    // What was given away is told twice.
    for part in numbers(folder, Part::Given)? {
        let has_part = turn_of(folder, part).is_ok_and(|(turn, _)| turn.part.is_some());
        if has_part && folder.shard(part).is_err() {
            restore(folder, part)?;
            repaired.push(format!("shard {part} could not be read: it is written again"));
        }
    }
    for number in numbers(folder, Part::Shards)? {
        match folder.shard(number) {
            Ok((shard, _)) => drop(readable.insert(number, shard.predicted_ns as f64 / 1e9)),
            Err(_) => {
                repaired.push(format!("shard {number} cannot be read: it is planned again"));
                families.insert(given::planned(number));
            }
        }
    }
    // With what was given away of it, and what it was given away of.
    let is_of_them = |number: &u32| families.contains(&given::planned(*number));
    for number in numbers(folder, Part::Shards)?.iter().filter(|number| is_of_them(number)) {
        set_aside(folder, at, *number)?;
        readable.remove(number);
    }
    for part in numbers(folder, Part::Given)?.iter().filter(|number| is_of_them(number)) {
        close(folder, *part)?;
    }
    for part in readable.keys().filter(|number| **number >= PLANNED_MAX) {
        keep_turn(folder, *part)?;
    }
    Ok(readable)
}

fn numbers(folder: &JobFolder, part: Part) -> Result<Vec<u32>, Fault> {
    Ok(folder.names(part)?.iter().filter_map(|name| name.parse().ok()).collect())
}

fn planned_only(shards: &BTreeMap<u32, f64>) -> impl Iterator<Item = (&u32, &f64)> {
    shards.range(..PLANNED_MAX)
}

/// A shard that nobody can work on has no place among the others. A new one, with another number,
/// has its names.
fn set_aside(folder: &JobFolder, at: &mut Destination, number: u32) -> Result<(), Fault> {
    let name = names::of_shard(number);
    let path = folder.file(Part::Shards, &name);
    let aside = folder.file(Part::Shards, &format!(".{name}.damaged"));
    fs::rename(&path, &aside).map_err(|why| Fault::write("rename", &path, &why))?;
    keep_ledgers(folder, number)?;
    // A worker that has it still can commit nothing any more.
    at.ask(&Step::Fence(number))?;
    for part in NAMED {
        for name in folder.names(part)? {
            if shard_of(&name) == Some(number) {
                let path = folder.file(part, &name);
                fs::remove_file(&path).map_err(|why| Fault::write("remove", &path, &why))?;
            }
        }
    }
    Ok(())
}

/// What its attempts have committed is known to the shards that get its names.
fn keep_ledgers(folder: &JobFolder, number: u32) -> Result<(), Fault> {
    let path = folder.path().join(LOST);
    let fault = |why: io::Error| Fault::write("write", &path, &why);
    let mut lost = OpenOptions::new().append(true).create(true).open(&path).map_err(fault)?;
    for name in folder.names(Part::Ledgers)? {
        if names::parse_open(&name).is_some_and(|(shard, _)| shard == number) {
            let ledger = fs::read(folder.file(Part::Ledgers, &name)).map_err(fault)?;
            // A line that a killed attempt has not ended must not be one with the next.
            lost.write_all(&ledger).and_then(|()| lost.write_all(b"\n")).map_err(fault)?;
        }
    }
    lost.sync_all().map_err(fault)
}

/// Every shard has one name: one that has none is done where its receipt says so, and else open.
fn name_all(
    folder: &JobFolder,
    shards: &BTreeMap<u32, f64>,
    staging: &[String],
    repaired: &mut Vec<String>,
) -> Result<(), Fault> {
    // Twice: a worker may rename one from a part that is still to be listed to one that was.
    let mut named = BTreeSet::new();
    for part in [NAMED, NAMED].into_iter().flatten() {
        named.extend(folder.names(part)?.iter().filter_map(|name| shard_of(name)));
    }
    let mut attempts: BTreeMap<u32, u32> = BTreeMap::new();
    for part in [Part::Ledgers, Part::Receipts] {
        for name in folder.names(part)? {
            if let Some((shard, attempt)) = names::parse_open(&name) {
                let last = attempts.entry(shard).or_default();
                *last = attempt.max(*last);
            }
        }
    }
    // A staging folder of an attempt whose ledger is lost counts too.
    for (shard, attempt) in staging.iter().filter_map(|name| names::parse_open(name)) {
        let last = attempts.entry(shard).or_default();
        *last = attempt.max(*last);
    }
    for shard in shards.keys().copied().filter(|shard| !named.contains(shard)) {
        if shard >= PLANNED_MAX && open_part(folder, shard)? == Answer::Moved {
            continue;
        }
        let attempt = attempts.get(&shard).copied().unwrap_or(0);
        let claim = Claim { shard, attempt };
        let receipt = head(folder, &names::of_attempt(claim));
        let (path, what) = match receipt {
            Ok(head) => {
                let gave = gave(shard, shards);
                (folder.file(Part::Done, &names::done(claim, &head.worker, gave)), "done")
            }
            Err(_) => (folder.file(Part::Open, &names::open(shard, attempt)), "open"),
        };
        File::create(&path).map_err(|why| Fault::write("write", &path, &why))?;
        repaired.push(format!("shard {shard} had no name: it is {what}"));
    }
    Ok(())
}

/// At which turns a shard gave something away.
fn gave(shard: u32, shards: &BTreeMap<u32, f64>) -> Turns {
    let parts = shards.keys().filter(|part| given::giver(**part) == Some(shard));
    let turns = parts.filter_map(|part| given::turn_of(*part));
    turns.fold(Turns::default(), Turns::with)
}

/// The shard of a name in one of these parts.
fn shard_of(name: &str) -> Option<u32> {
    let open = names::parse_open(name).map(|(shard, _)| shard);
    open.or_else(|| names::parse_done(name).map(|(held, _)| held.claim.shard))
}

/// Where every shard has one name.
const NAMED: [Part; 4] = [Part::Open, Part::Claims, Part::Done, Part::Waiting];

/// What a plan that ended early has given to workers.
pub(super) fn planned_so_far(folder: &JobFolder) -> Result<Earlier, Fault> {
    let mut shards = BTreeMap::new();
    for number in numbers(folder, Part::Shards)? {
        let predicted_s = folder.shard_head(number)?.predicted_ns as f64 / 1e9;
        shards.insert(number, predicted_s);
    }
    earlier(folder, &shards)
}

fn earlier(folder: &JobFolder, shards: &BTreeMap<u32, f64>) -> Result<Earlier, Fault> {
    let mut hashes = HashSet::new();
    for shard in shards.keys() {
        let (header, names) = folder.shard(*shard)?;
        // A plan that ended among the ranges of a file has nothing that puts them together.
        if header.range.is_some() {
            continue;
        }
        hashes.extend(names.iter().map(|name| hash_of(header.source, name)));
    }
    // Numbers are never used again, also those of shards that were set aside.
    let aside = fs::read_dir(folder.part(Part::Shards)).into_iter().flatten().flatten();
    let aside = aside.filter_map(|entry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        name.strip_prefix('.')?.strip_suffix(".damaged")?.parse::<u32>().ok()
    });
    let planned = planned_only(shards).map(|(shard, _)| *shard);
    let last = planned.chain(aside.filter(|shard| *shard < PLANNED_MAX)).max();
    let next = last.map_or(0, |last| last + 1);
    let count = planned_only(shards).count() as u32;
    let predicted_s = planned_only(shards).map(|(_, predicted_s)| predicted_s).sum();
    Ok(Earlier { names: hashes, count, next, predicted_s })
}
