//! A spread of 100 million files by 1,000 workers, without copying any: the plan as it is cut, the
//! workers as they decide over a storage that only counts, and the view of the coordinator over a
//! real job folder of that size. `cargo xtask sim --spread-scale` prints the page.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::fs;
use std::path::Path;
use std::time::Instant;

use analysis::shards::lease::LeaseTimes;
use analysis::shards::plan::{Cost, Cutter, Cutting};
use analysis::shards::worker::{Action, Answer, Call, Event, Worker};
use analysis::shards::{Claim, Held, names};
use base::units::{Nanos, Tick};
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
/// What a call takes at the storage: a round trip.
const CALL: Nanos = Nanos::from_millis(1);
const LOOKS: u32 = 20;

fn main() {
    // A test run of benches measures nothing.
    if std::env::args().any(|word| word == "--test") {
        return;
    }
    println!("# Spreads at scale\n\n{METHOD}\n\n| what | value | criterion |\n|---|---|---|");
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
    let cutting: Cutting = cutting(WORKERS, 1 << 30, false);
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

/// A storage that only counts: claims and what is open, answered at once.
#[derive(Debug, Default)]
struct Counting {
    open: BTreeSet<(u32, u32)>,
    claims: BTreeMap<u32, Held>,
    done: u32,
    total: u32,
    calls: u64,
    lists: u64,
    listed: u64,
    beats_read: u64,
    won: u64,
    lost: u64,
}

/// As many names as one list has at most.
const LISTED_MAX: usize = 4096;

impl Counting {
    fn of(count: u32) -> Counting {
        let open = (0..count).map(|shard| (shard, 0)).collect();
        Counting { open, total: count, ..Counting::default() }
    }

    fn answer(&mut self, who: &str, call: &Call) -> Answer {
        self.calls += 1;
        match call {
            Call::ListOpen => {
                let open: Vec<(u32, u32)> = self.open.iter().copied().take(LISTED_MAX).collect();
                (self.lists, self.listed) = (self.lists + 1, self.listed + open.len() as u64);
                Answer::Open(open)
            }
            Call::Claim { shard, attempts } => {
                let is_won = self.open.remove(&(*shard, *attempts));
                if !is_won {
                    self.lost += 1;
                    return Answer::Missing;
                }
                self.won += 1;
                let claim = Claim { shard: *shard, attempt: attempts + 1 };
                self.claims.insert(*shard, Held { claim, worker: who.to_string() });
                Answer::Moved
            }
            Call::IsMine(claim) => {
                let mine = self.claims.get(&claim.shard).is_some_and(|held| held.worker == who);
                if mine { Answer::Yes } else { Answer::No }
            }
            Call::Finish(claim, _) => {
                self.claims.remove(&claim.shard);
                self.done += 1;
                Answer::Moved
            }
            Call::OpenReady => Answer::Opened(0),
            Call::ListClaims => Answer::Claims(self.claims.values().cloned().collect()),
            Call::ReadBeats(workers) => {
                self.beats_read += workers.len() as u64;
                // Everybody lives: each look sees another number.
                let beat = |worker: &String| (worker.clone(), Some(self.calls));
                Answer::Beats(workers.iter().map(beat).collect())
            }
            Call::Count => Answer::Count { done: self.done, total: Some(self.total) },
            Call::Control => Answer::Yes,
            Call::Survey(_) => Answer::Surveyed(1),
            _ => Answer::Done,
        }
    }
}

/// Lets workers run until all shards are done. Returns the time that it took.
fn play(storage: &mut Counting, workers: usize, times: &dyn Fn(u32) -> Nanos) -> Nanos {
    let lease = LeaseTimes::default();
    let names: Vec<String> = (0..workers).map(|number| format!("node{number:04}-5f3a")).collect();
    let mut all: Vec<Worker> = names.iter().map(|name| Worker::new(name, lease, Tick(0))).collect();
    let mut copies: Vec<Option<Tick>> = vec![None; workers];
    let mut queue: BinaryHeap<Reverse<(Tick, usize, u64)>> = BinaryHeap::new();
    let mut events: BTreeMap<u64, Event> = BTreeMap::new();
    for worker in 0..workers {
        queue.push(Reverse((Tick(worker as u64), worker, 0)));
    }
    let (mut next, mut end) = (1, Tick(0));
    while let Some(Reverse((now, at, number))) = queue.pop() {
        let event = match copies[at].is_some_and(|until| until <= now) && number == 0 {
            true => {
                copies[at] = None;
                Event::CopyEnded(None)
            }
            false => events.remove(&number).unwrap_or(Event::Woke),
        };
        end = now;
        match all[at].step(now, event) {
            Action::Exit(_) => {}
            Action::Wait(until) if until.0 == u64::MAX => {}
            Action::Wait(until) => {
                let until = copies[at].map_or(until, |copied| copied.min(until));
                queue.push(Reverse((Tick(until.0.max(now.0 + 1)), at, 0)));
            }
            Action::Call(call) => {
                if let Call::StartCopy(claim) = &call {
                    copies[at] = Some(now.after(times(claim.shard)));
                }
                events.insert(next, Event::Answer(storage.answer(&names[at], &call)));
                queue.push(Reverse((now.after(CALL), at, next)));
                next += 1;
            }
        }
    }
    end.since(Tick(0))
}

fn claims(shards: &[Planned]) {
    let mut storage = Counting::of(shards.len() as u32);
    let took = play(&mut storage, WORKERS, &|shard| shards[shard as usize].time);
    let total: u64 = shards.iter().map(|shard| shard.time.0).sum();
    let ideal_s = Nanos(total / WORKERS as u64).seconds();
    let claims = storage.won as f64;
    row(
        "the job by 1,000 workers",
        &format!("{:.1} s, {ideal_s:.1} s of it copying", took.seconds()),
        "",
    );
    row("claims a second", &format!("{:.0}", claims / took.seconds()), "");
    row(
        "calls a second at the storage",
        &format!("{:.0}", storage.calls as f64 / took.seconds()),
        "",
    );
    row("calls a claim", &format!("{:.1}", storage.calls as f64 / claims), "");
    row("lists a claim", &format!("{:.2}", storage.lists as f64 / claims), "");
    row(
        "names in lists a claim",
        &format!("{:.0}", storage.listed as f64 / claims),
        "1,000 at most",
    );
    row("renames lost a claim", &format!("{:.2}", storage.lost as f64 / claims), "0.5 at most");
    row("beats read by who waited", &storage.beats_read.to_string(), "");
}

/// All want the one shard that is open.
fn contention() {
    let mut storage = Counting::of(1);
    play(&mut storage, WORKERS, &|_| Nanos::from_millis(5000));
    let text = format!("{} lost renames, {} won", storage.lost, storage.won);
    row("1,000 workers want one shard", &text, "one try each");
}

fn coordinator(shards: &[Planned]) {
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
    let memory = status_kib("VmRSS:") - before;
    row("memory of its view", &format!("{} MiB", memory >> 10), "300 MiB at most, all of it");
    row(
        "peak of this process, with all of the above",
        &format!("{} MiB", status_kib("VmHWM:") >> 10),
        "",
    );
    row("bytes a shard", &(memory * 1024 / shards.len() as u64).to_string(), "");
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
    let mut destination = Destination::Here(of_job);
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
most; of 1,000 workers that want one shard, each tries once.";
