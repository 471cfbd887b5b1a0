//! A spread of 100 million files by 1,000 workers, without copying any: the plan as it is cut, the
//! workers as they decide over a storage that only counts, and the view of the coordinator over a
//! real job folder of that size. `cargo xtask sim --spread-scale` prints the page.

#[path = "../analysis/tests/claims/counting.rs"]
mod counting;

use std::fs;
use std::path::Path;
use std::time::Instant;

use analysis::shards::lease::LeaseTimes;
use analysis::shards::plan::{Cost, Cutter, Cutting};
use analysis::shards::{Claim, names};
use base::units::{Nanos, Tick};
use counting::{Counting, WorkerPool, play};
use datapump::spread::cutting;
use datapump::spread::destination::{Destination, DestinationFolder, Name};
use datapump::spread::folder::{JobFolder, Part, named};
use datapump::spread::records::{
    Beat, Copying, FORMAT, Manifest, PlanState, Shard, ShardDone, SourceRoot, text_of_path,
};
use datapump::spread::view::View;

const FILES: u64 = 100_000_000;
const WORKERS: usize = 1000;
/// Of a name below its source, and of a file.
const NAME_BYTES: usize = 40;
const FILE_BYTES: u64 = 100_000;
const LOOKS: u32 = 20;

fn main() {
    // A test run of benches measures nothing.
    if std::env::args().any(|word| word == "--test") {
        return;
    }
    println!("# Spreads at scale\n\n{METHOD}\n\n## The plan\n\n{HEAD}");
    let before = status_kib("VmHWM:");
    let began_s = cpu_s();
    let shards = plan();
    let took_s = cpu_s() - began_s;
    let peak = status_kib("VmHWM:");
    let bytes: u64 = shards.iter().map(|shard| shard.text_bytes).sum();
    row("entries planned", &FILES.to_string(), "");
    row("shards", &shards.len().to_string(), "");
    row("bytes of shard files", &gib(bytes), "");
    row("ledgers and receipts, a line of each for a file", &gib(FILES * 2 * line_bytes()), "");
    row("CPU of cutting, ns an entry", &format!("{:.0}", took_s * 1e9 / FILES as f64), "");
    row("memory of planning", &format!("{} MiB", (peak - before) >> 10), "256 MiB at most");
    claims(&shards);
    contention();
    coordinator(&shards);
}

#[derive(Clone, Copy, Debug)]
struct Planned {
    files: u64,
    bytes: u64,
    time: Nanos,
    text_bytes: u64,
}

fn plan() -> Vec<Planned> {
    let cutting: Cutting = cutting(WORKERS, 1 << 30, None);
    let mut cutter = Cutter::new(cutting);
    let mut shards = Vec::new();
    let mut keep = |batch: analysis::shards::plan::Batch<Vec<u8>>| {
        let header = shard(shards.len() as u32, batch.files, batch.bytes);
        let text_bytes = named(&header, &batch.items).len() as u64;
        let time = Cost::UNKNOWN.of(batch.files, batch.bytes);
        let (files, bytes) = (batch.files, batch.bytes);
        shards.push(Planned { files, bytes, time, text_bytes });
    };
    for _ in 0..FILES {
        if let Some(full) = cutter.add(vec![b'x'; NAME_BYTES], FILE_BYTES) {
            keep(full);
        }
    }
    cutter.rest().map(keep);
    shards
}

fn shard(number: u32, files: u64, bytes: u64) -> Shard {
    let predicted_ns = Cost::UNKNOWN.of(files, bytes).0;
    Shard { shard: number, source: 0, files, bytes, predicted_ns, range: None, whole: None }
}

fn line_bytes() -> u64 {
    let committed = datapump::spread::records::Committed {
        name: "x".repeat(NAME_BYTES),
        bytes: FILE_BYTES,
        digest: Some("0".repeat(64)),
    };
    serde_json::to_vec(&committed).unwrap().len() as u64 + 1
}

fn claims(shards: &[Planned]) {
    println!("\n## All workers alike\n\n{HEAD}");
    let planned = |_: usize, shard: u32| shards[shard as usize].time;
    let mut storage = Counting::of(shards.len() as u32);
    let alike = play(&mut storage, &WorkerPool { workers: WORKERS, times: &planned, die: None });
    counts(&storage, shards, alike);

    println!("\n## Every fourth takes four times as long\n\n{HEAD}");
    let uneven = |worker: usize, shard: u32| {
        let time = shards[shard as usize].time;
        if worker.is_multiple_of(4) { Nanos(time.0 * 4) } else { time }
    };
    let mut storage = Counting::of(shards.len() as u32);
    let took = play(&mut storage, &WorkerPool { workers: WORKERS, times: &uneven, die: None });
    counts(&storage, shards, took);

    println!("\n## Ten of 1,000 die half way\n\n{HEAD}");
    let (from, dies) = (Tick(alike.0 / 2), |worker: usize| worker % 100 == 7);
    let mut storage = Counting::of(shards.len() as u32);
    let die: Option<(Tick, &dyn Fn(usize) -> bool)> = Some((from, &dies));
    let took = play(&mut storage, &WorkerPool { workers: WORKERS, times: &planned, die });
    counts(&storage, shards, took);
    let late_s = took.seconds() - alike.seconds();
    row("later than without deaths", &format!("{late_s:.1} s"), "30 s at most");
}

fn counts(storage: &Counting, shards: &[Planned], took: Nanos) {
    let total: u64 = shards.iter().map(|shard| shard.time.0).sum();
    let ideal_s = Nanos(total / WORKERS as u64).seconds();
    let (claims, s) = (storage.won as f64, took.seconds());
    row("the job", &format!("{s:.1} s; as planned {ideal_s:.1} s of copying for each"), "");
    row("claims a second", &format!("{:.0}", claims / s), "");
    row("calls a second at the storage", &format!("{:.0}", storage.calls as f64 / s), "");
    row("calls a claim", &format!("{:.1}", storage.calls as f64 / claims), "");
    row("lists a claim", &format!("{:.2}", storage.lists as f64 / claims), "");
    let names = format!("{:.0}", storage.listed as f64 / claims);
    row("names in lists a claim", &names, "1,000 at most");
    row("renames lost a claim", &format!("{:.2}", storage.lost as f64 / claims), "0.5 at most");
    row("beats read by who waited", &storage.beats_read.to_string(), "200,000 at most");
}

/// All want the one shard that is open.
fn contention() {
    println!("\n## 1,000 workers want one shard\n\n{HEAD}");
    let mut storage = Counting::of(1);
    let times = |_, _| Nanos::from_millis(5000);
    play(&mut storage, &WorkerPool { workers: WORKERS, times: &times, die: None });
    let text = format!("{} lost renames, {} won", storage.lost, storage.won);
    row("tries", &text, "one each");
}

fn coordinator(shards: &[Planned]) {
    println!("\n## The coordinator\n\n{HEAD}");
    let place = tempfile::tempdir_in("/dev/shm").unwrap();
    let folder = fill(place.path(), shards);
    let before = status_kib("VmRSS:");
    let mut view = View::default();
    let (cpu, wall) = timed(|| drop(view.look(&folder).unwrap()));
    row(
        "the first look, which reads each receipt's head",
        &format!("{wall:.2} s, {cpu:.2} s of CPU"),
        "",
    );
    let (cpu, wall) = timed(|| (0..LOOKS).for_each(|_| drop(view.look(&folder).unwrap())));
    let (cpu, wall) = (cpu / f64::from(LOOKS), wall / f64::from(LOOKS));
    row("each later look", &format!("{:.1} ms, {:.1} ms of CPU", wall * 1e3, cpu * 1e3), "");
    let every_s = (wall * 20.0).max(0.2);
    row("CPU of the coordinator", &format!("{:.1} %", 100.0 * cpu / every_s), "5 % at most");
    // What it takes in memory that was used before and is free is not seen in the difference.
    let memory = status_kib("VmRSS:") - before;
    row("memory of its view, beyond what was free", &format!("{} MiB", memory >> 10), "");
    let peak = format!("{} MiB", status_kib("VmHWM:") >> 10);
    row("peak of this process, with all of the above", &peak, "300 MiB at most");
    let files: usize = Part::ALL.iter().map(|part| folder.names(*part).unwrap().len()).sum();
    row("files in the job folder at the end", &files.to_string(), "");
}

/// A folder at the end of the job: all is done but what the workers hold.
fn fill(place: &Path, shards: &[Planned]) -> JobFolder {
    let (source, target) = (place.join("source"), place.join("target"));
    fs::create_dir(&source).unwrap();
    fs::create_dir(&target).unwrap();
    let manifest = manifest(&source, &target);
    let (id, token) = (manifest.id.clone(), manifest.token.clone());
    let of_job = DestinationFolder { folder: Name::from(&*target), id, token };
    let mut destination = Destination::here(of_job);
    let folder = JobFolder::create(&place.join("job"), &manifest, &mut destination).unwrap();
    let write =
        |part: Part, name: &str, text: &[u8]| fs::write(folder.file(part, name), text).unwrap();
    for (number, planned) in shards.iter().enumerate() {
        let claim = Claim { shard: number as u32, attempt: 1 };
        let worker = format!("node{:04}-5f3a", number % WORKERS);
        let header = shard(claim.shard, planned.files, planned.bytes);
        write(Part::Shards, &names::of_shard(claim.shard), &named(&header, &[]));
        write(Part::Ledgers, &names::of_attempt(claim), b"");
        if number + WORKERS >= shards.len() {
            write(Part::Claims, &names::held(claim, &worker), b"");
            continue;
        }
        let done = ShardDone {
            shard: claim.shard,
            attempt: 1,
            worker: worker.clone(),
            host: worker.clone(),
            files: planned.files,
            bytes: planned.bytes,
            seconds: planned.time.seconds(),
            ..ShardDone::default()
        };
        let mut text = serde_json::to_vec(&done).unwrap();
        text.push(b'\n');
        write(Part::Receipts, &names::of_attempt(claim), &text);
        write(Part::Done, &names::held(claim, &worker), b"");
    }
    for number in 0..WORKERS {
        let name = format!("node{number:04}-5f3a");
        let beat = Beat { beat: 17, name: name.clone(), host: name.clone(), ..Beat::default() };
        write(Part::Workers, &name, &serde_json::to_vec(&beat).unwrap());
        write(Part::Events, &name, b"");
        write(Part::Logs, &name, b"");
    }
    let planned = Some(shards.len() as u32);
    folder.set_plan(&PlanState { planned, files: FILES, ..PlanState::default() }).unwrap();
    folder
}

fn manifest(source: &Path, target: &Path) -> Manifest {
    let copying = Copying {
        streams: 1,
        links: "copy".into(),
        engine: "auto".into(),
        direct: "auto".into(),
        preserve: true,
        skip_unchanged: false,
        filters: Vec::new(),
        min_size: None,
        max_size: None,
        bytes_per_second: None,
    };
    let root = SourceRoot { folder: text_of_path(source), prefix: String::new(), only: None };
    Manifest {
        format: FORMAT,
        version: env!("CARGO_PKG_VERSION").into(),
        id: "0".repeat(16),
        token: "0".repeat(32),
        sources: vec![root],
        destination: text_of_path(target),
        far: None,
        far_source: None,
        destination_was_empty: true,
        copying,
        times: LeaseTimes::default(),
        workers: WORKERS,
        split_above: 1 << 30,
        on: "local".into(),
        command: Vec::new(),
        began_unix_s: 0,
    }
}

/// CPU and wall time, in seconds.
fn timed(work: impl FnOnce()) -> (f64, f64) {
    let (cpu, began) = (cpu_s(), Instant::now());
    work();
    (cpu_s() - cpu, began.elapsed().as_secs_f64())
}

/// Of this process; a tick is 10 ms.
fn cpu_s() -> f64 {
    let text = fs::read_to_string("/proc/self/stat").unwrap();
    let fields = text.rsplit(") ").next().unwrap().split(' ');
    fields.skip(11).take(2).map(|field| field.parse::<f64>().unwrap()).sum::<f64>() / 100.0
}

fn status_kib(name: &str) -> u64 {
    let text = fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

fn gib(bytes: u64) -> String {
    format!("{:.1} GiB", bytes as f64 / (1_u64 << 30) as f64)
}

fn row(what: &str, value: &str, criterion: &str) {
    println!("| {what} | {value} | {criterion} |");
}

const METHOD: &str = "\
100 million files of 100 kB with names of 40 bytes, 1,000 workers, a lease of 15 s. The plan is cut
by the planner's own decisions, from entries that are made up. The workers are the state machines
that ship, over a storage in memory that only counts; each call takes a millisecond there, and a
copy what is predicted for its shard. The coordinator's view reads a real job folder in memory with
as many shards, all but the last 1,000 of them done; the names in shard files and the lines of
receipts are left out there, as it reads only their first lines.

Criterion, written before the first run: planning takes 256 MiB at most; the coordinator 300 MiB
and 5 % of a CPU at most; lists have 1,000 names a claim at most; a claim loses half a rename at
most; of 1,000 workers that want one shard, each tries once. Written before the second, when workers
chose otherwise: the same where a quarter of the workers is slow; those who wait read 200 beats each
at most; ten workers that die half way cost 30 s at most.";
const HEAD: &str = "| what | value | criterion |\n|---|---|---|";
