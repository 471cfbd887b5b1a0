//! Two hosts in one thread, from a seed: lanes, finisher and conversation of both are stepped by
//! turns in a world that reorders, shortens, interrupts, fails, cuts, flips and crashes.
//!
//! `DATAPUMP_SIM_SEED=n` repeats one seed, `DATAPUMP_SIM_COUNT=n` runs so many.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, channel};

use datapump::base::codec::{Compress, Way};
use datapump::base::fault::{Class, Fault};
use datapump::base::job::Notice;
use datapump::base::settings::{DigestKind, Fsync, Settings};
use datapump::base::units::Tick;
use datapump::ends::stream::{StreamSink, StreamSource};
use datapump::ends::tree::Tree;
use datapump::io::call::Call;
use datapump::io::engine::Engine;
use datapump::io::request::Request;
use datapump::io::sim::{Dice, Failure, SimVolume, Weather, World};
use datapump::io::volume::Volume;
use datapump::pump::brake::Brake;
use datapump::pump::expected::Expected;
use datapump::pump::finisher::Finisher;
use datapump::pump::journal::{Held, Replay};
use datapump::pump::lane::{Lane, Parts, Patience, Turn, Wire};
use datapump::pump::objects::{Complete, Objects, Unfinished};
use datapump::pump::plan::Plan;
use datapump::pump::resume::{Memory, Voice};
use datapump::pump::sink::{Begin, Root, SinkSide, Target};
use datapump::pump::source::SourceSide;
use datapump::pump::walk::Found;
use datapump::pump::watch::Watch;
use datapump::wire::message::Message;
use datapump::work::codec::{Pack, Unpack};
use datapump::work::digest::{Check, Sign, to_hex};
use datapump::work::passage::Passage;
use datapump::work::sparse::{Expand, Squeeze};

#[path = "two_hosts/seals.rs"]
mod seals;
#[path = "two_hosts/stall.rs"]
mod stall;
#[path = "two_hosts/trees.rs"]
mod trees;

use seals::protections;
use trees::make_tree;

const SEEDS: u64 = 300;
const SLOT: u32 = 4096;
/// The largest request of any run.
const SLOT_MAX: u32 = 3 * SLOT;
const TRANSFER: [u8; 16] = [7; 16];

type Tree3 = BTreeMap<Vec<u8>, Vec<u8>>;

/// What a seed is expected to show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scenario {
    /// Late, short, interrupted, out of order: everything arrives.
    Rough,
    /// Some files cannot be read: those are named, the others arrive.
    Failing,
    /// Streams break, and bits flip on them: others take their place, and everything arrives.
    Breaking,
    /// The disk fills, or fails: the transfer may end, and another one goes on where it stopped.
    Ending,
    /// The power goes in the middle, or a process is killed, once or twice: every name has its
    /// bytes, and another transfer goes on.
    Crash,
}

impl Scenario {
    fn of(seed: u64) -> Scenario {
        match seed % 4 {
            0 | 1 => [Scenario::Rough, Scenario::Failing][(seed / 4 % 2) as usize],
            2 => [Scenario::Breaking, Scenario::Ending][(seed / 4 % 2) as usize],
            _ => Scenario::Crash,
        }
    }

    fn weather(self, dice: &mut Dice) -> Weather {
        let rough = Weather {
            late: 2 + dice.below(4),
            short: 1 + dice.below(4),
            interrupted: 3 + dice.below(10),
            ..Weather::default()
        };
        match self {
            Scenario::Rough | Scenario::Crash => rough,
            Scenario::Failing => Weather { read_fails: 25, ..rough },
            Scenario::Breaking => match dice.below(2) {
                0 => Weather { cut: 60, ..rough },
                _ => Weather { flip: 60, ..rough },
            },
            Scenario::Ending => match dice.below(2) {
                0 => Weather { disk_full: 30, ..rough },
                _ => Weather { write_fails: 30, ..rough },
            },
        }
    }
}

#[test]
fn every_seed() {
    for seed in seeds() {
        if let Err(text) = run(seed, Scenario::of(seed), 0) {
            panic!("seed {seed}: {text}\nrepeat it with: cargo xtask sim --seed {seed}");
        }
    }
}

/// Broken off again and again, also at once, by hand and by kill, each time with requests and a
/// digest of its own: what the journal says is here never shrinks, and what is sent in all is no
/// more than there is, and what it had not been told when a run ended.
#[test]
fn progress_only_grows() {
    for seed in seeds() {
        if let Err(text) = interrupted(seed) {
            panic!("seed {seed}: {text}");
        }
    }
}

fn interrupted(seed: u64) -> Result<(), String> {
    let mut hosts = Hosts::new(seed, Scenario::Rough, 0);
    if hosts.ground.settings.digest == DigestKind::None {
        return Ok(()); // what was only written cannot be read back and compared
    }
    let mut dice = Dice::new(!seed);
    let mut allowed_bytes: u64 = hosts.ground.sent.values().map(|bytes| bytes.len() as u64).sum();
    // These land each time, as nobody has to send them.
    let blocks = hosts.ground.sent.values().flat_map(|bytes| bytes.chunks(SLOT as usize));
    let holes = blocks.filter(|block| block.iter().all(|byte| *byte == 0));
    let holes_bytes: u64 = holes.map(|block| block.len() as u64).sum();
    let mut sent_bytes = 0;
    let mut here_bytes = 0;
    for _ in 0..1 + dice.below(6) {
        let steps = if dice.once_in(2) { dice.below(60) } else { dice.below(1500) };
        hosts.drive_for(steps);
        if hosts.closed {
            break;
        }
        let untold_bytes = hosts.untold_bytes();
        if dice.once_in(2) {
            hosts.stop();
        }
        sent_bytes += hosts.landed_bytes();
        allowed_bytes += untold_bytes + holes_bytes;
        let now = hosts.here_bytes();
        if now < here_bytes {
            return Err(format!("of {here_bytes} bytes that were here {now} are left"));
        }
        here_bytes = now;
        hosts.ground.settings.request_bytes = SLOT * (1 + dice.below(3) as u32);
        hosts.ground.settings.digest = [DigestKind::Blake3, DigestKind::Crc64][seed as usize % 2];
        hosts = hosts.after(Blow::Kill);
    }
    hosts.drive().map_err(|stuck| format!("the last run ended early: {stuck:?}"))?;
    sent_bytes += hosts.landed_bytes();
    if sent_bytes > allowed_bytes {
        return Err(format!("{sent_bytes} bytes were sent where {allowed_bytes} are allowed"));
    }
    hosts.check()
}

/// The alarm works: a disk that drops a byte must be noticed.
#[test]
fn the_canary_fails() {
    let noticed = (0..8).filter(|seed| run(*seed, Scenario::Rough, 1).is_err()).count();
    assert!(noticed >= 7, "a lying disk was noticed in only {noticed} of 8 worlds");
}

#[test]
fn the_same_seed_is_the_same_run() {
    let steps = |seed| Hosts::new(seed, Scenario::Rough, 0).drive().expect("a rough world arrives");
    assert_eq!(steps(8), steps(8));
    assert_ne!(steps(8), steps(16), "seeds that make no difference test nothing");
}

/// Each call of either disk fails once, with each kind of error, early and later. A failing call of
/// the destination ends the transfer where its class says so, one of the source never does; what
/// has a name is whole, and another run brings the rest.
#[test]
fn every_call_fails() {
    let mut met = BTreeSet::new();
    let errnos = [libc::EIO, libc::ENOSPC, libc::EACCES];
    let ends = [Call::Create, Call::Write, Call::Sync, Call::Rename, Call::SyncDirectory];
    for call in Call::ALL {
        for (errno, after, seed) in errnos.into_iter().flat_map(|errno| {
            [0, 1, 5].into_iter().flat_map(move |after| [0, 8, 16].map(|seed| (errno, after, seed)))
        }) {
            for at_source in [false, true] {
                let case = format!("{call:?} {errno} after {after}, seed {seed}, {at_source}");
                let mut hosts = Hosts::new(seed, Scenario::Rough, 0);
                let volume = match at_source {
                    true => hosts.ground.origin.clone(),
                    false => hosts.ground.target.clone(),
                };
                volume.fail(Failure { call, errno, after });
                let ended = hosts.drive();
                let hit = !volume.heal();
                met.extend(hit.then_some((call, at_source)));
                let class = call.class_of(errno);
                match &ended {
                    Err(Stuck::Still) => panic!("{case}: nobody can move and it is not over"),
                    Err(Stuck::Fault(fault)) => {
                        assert!(hit && !at_source, "{case}: ends with {fault}");
                        assert_eq!(fault.class, class, "{case}: {fault}");
                    }
                    Ok(_) if hit && class == Class::NoSpace => {
                        assert!(at_source || !ends.contains(&call), "{case}: goes on");
                    }
                    Ok(_) => {}
                }
                let sent = hosts.ground.sent.clone();
                let target = hosts.ground.target.clone();
                compare(&sent, &finals(target.files()))
                    .unwrap_or_else(|why| panic!("{case}: {why}"));
                if ended.is_ok() && hosts.failed.is_empty() {
                    assert_eq!(finals(target.files()).len(), sent.len(), "{case}");
                    continue;
                }
                let mut again = hosts.after(Blow::Kill);
                if let Err(stuck) = again.drive() {
                    panic!("{case}: the second run ended early: {stuck:?}");
                }
                assert_eq!(finals(target.files()), sent, "{case}: after another run");
            }
        }
    }
    let of_target = [
        Call::LookAt,
        Call::Create,
        Call::MakeDirectory,
        Call::MakeHardLink,
        Call::SetLength,
        Call::SetMetadata,
        Call::OpenDirectory,
        Call::Sync,
        Call::SyncDirectory,
        Call::Rename,
        Call::Remove,
        Call::Write,
        Call::FreeSpace,
    ];
    let of_source = [Call::Open, Call::LookAt, Call::Read, Call::FindData];
    for call in of_target {
        assert!(met.contains(&(call, false)), "{call:?} of the target was not met");
    }
    for call in of_source {
        assert!(met.contains(&(call, true)), "{call:?} of the source was not met");
    }
}

/// The first of them alone, where it is named and how many is not.
fn seeds() -> impl Iterator<Item = u64> {
    let named = env_number("DATAPUMP_SIM_SEED");
    let count = env_number("DATAPUMP_SIM_COUNT").unwrap_or(if named.is_some() { 1 } else { SEEDS });
    (0..count).map(move |at| named.unwrap_or(0) + at)
}

fn env_number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is no number: {text}")))
}

/// Runs a seed and checks what it left.
fn run(seed: u64, scenario: Scenario, lying_disk: u64) -> Result<(), String> {
    let mut hosts = Hosts::new(seed, scenario, lying_disk);
    let mut dice = Dice::new(!seed);
    if scenario == Scenario::Crash {
        for _ in 0..1 + dice.below(2) {
            hosts.drive_for(dice.below(600));
            hosts.check_after_crash()?;
            if hosts.closed {
                return hosts.check(); // all that another run would say is that the files exist
            }
            hosts = hosts.after(if dice.once_in(2) { Blow::Power } else { Blow::Kill });
        }
    }
    let ended = hosts.drive();
    match (scenario, ended) {
        (_, Err(Stuck::Still)) => return Err("nobody can move and it is not over".into()),
        (Scenario::Ending, Err(Stuck::Fault(_))) => {
            hosts.check()?;
            hosts.calm();
            hosts = hosts.after(Blow::Kill);
            hosts.drive().map_err(|stuck| format!("the second run ended early: {stuck:?}"))?;
        }
        (_, Err(Stuck::Fault(fault))) => {
            return Err(format!("ended with '{fault}' in weather that ends nothing"));
        }
        (_, Ok(_)) => {}
    }
    hosts.check()
}

/// What ends a sink in the middle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Blow {
    Power,
    Kill,
}

/// Why a drive ended early.
#[derive(Debug)]
enum Stuck {
    Fault(Fault),
    Still,
}

/// What two runs of one transfer share.
struct Ground {
    dice: Dice,
    world: Arc<World>,
    weather: Weather,
    sent: Tree3,
    offers: VecDeque<Vec<Found>>,
    origin: Arc<SimVolume>,
    target: Arc<SimVolume>,
    settings: Settings,
}

struct Hosts {
    ground: Ground,
    source: SourceSide,
    sink: SinkSide,
    to_offer: VecDeque<Vec<Found>>,
    to_sink: VecDeque<Message>,
    to_source: VecDeque<Message>,
    /// Each stream's lane at the source and at the sink.
    pairs: Vec<Pair>,
    makings: Makings,
    finisher: Finisher,
    complete: Receiver<Complete>,
    failed: Vec<(u64, Fault)>,
    finished: u64,
    watch: Arc<Watch>,
    /// Of what has landed in this run, what the journal has been told by now.
    told_bytes: u64,
    closed: bool,
    notices: Receiver<Notice>,
    digests: BTreeMap<u64, String>,
    /// Files that were said to have their names, by number.
    named: BTreeSet<u64>,
    steps: u64,
}

/// What another stream's lanes are made of.
struct Makings {
    brake: Arc<Brake>,
    plan: Arc<Plan>,
    objects: Arc<Objects>,
    seal: u64,
    next: u32,
}

struct Pair {
    wire: Wire,
    source: Option<Lane>,
    sink: Option<Lane>,
    broken: bool,
    told: bool,
}

impl Hosts {
    fn new(seed: u64, scenario: Scenario, lying_disk: u64) -> Hosts {
        let mut dice = Dice::new(seed);
        let weather = Weather { lying_disk, ..scenario.weather(&mut dice) };
        let world = World::new(seed ^ 0x5eed, weather);
        let digest = match weather.flip {
            0 => [DigestKind::Blake3, DigestKind::Crc64, DigestKind::None][dice.below(3) as usize],
            _ => [DigestKind::Blake3, DigestKind::Crc64][dice.below(2) as usize],
        };
        let settings = Settings {
            request_bytes: SLOT * (1 + dice.below(3) as u32),
            digest,
            fsync: if dice.once_in(4) { Fsync::Off } else { Fsync::File },
            ..Settings::default()
        };
        let origin = Arc::new(SimVolume::new(&world, "/origin"));
        let target = Arc::new(SimVolume::made(&world, "/target").with_mount(b"b"));
        let (sent, offers) = make_tree(&mut dice, &origin);
        Hosts::start(Ground { dice, world, weather, sent, offers, origin, target, settings })
    }

    /// A run of the transfer over what is there.
    fn start(mut ground: Ground) -> Hosts {
        let (notices_in, notices) = channel();
        let watch = Arc::new(Watch::new(notices_in));
        let brake = Arc::new(Brake::default());
        let volume: Arc<dyn Volume> = ground.target.clone();
        let tree = Target::Tree { volume: volume.clone(), rename: None, root: Root::FOUND };
        let voice = Voice { warn: &|_| {}, stopping: &|| false };
        let memory = Memory::open(&tree, TRANSFER, &ground.settings, "spare".into(), &voice)
            .expect("nobody else has the journal");
        ground.settings = ground.settings.cut_as(memory.cut);
        let settings = ground.settings.clone();
        let (slot, digest) = (settings.request_bytes, settings.digest);
        let plan = Arc::new(Plan::new(slot, None, None, true, brake.clone()));
        let (complete_in, complete) = channel();
        let objects = Arc::new(Objects::new(slot, digest, watch.clone(), complete_in));
        let (past, expected) = (memory.past, Expected::Anything);
        let begin = Begin { tag: memory.tag, past, alone: true, expected };
        let finisher = Finisher::new(Some(volume), settings.fsync, memory.journal);
        let seal = ground.dice.below(4);
        let makings =
            Makings { brake, plan: plan.clone(), objects: objects.clone(), seal, next: 0 };
        let mut hosts = Hosts {
            source: SourceSide::new(plan, settings.clone(), watch.clone()),
            sink: SinkSide::new(objects, settings, tree, watch.clone(), begin),
            watch,
            told_bytes: 0,
            to_offer: ground.offers.clone(),
            to_sink: VecDeque::new(),
            to_source: VecDeque::new(),
            pairs: Vec::new(),
            makings,
            finisher,
            complete,
            failed: Vec::new(),
            finished: 0,
            closed: false,
            notices,
            digests: BTreeMap::new(),
            named: BTreeSet::new(),
            steps: 0,
            ground,
        };
        for _ in 0..1 + hosts.ground.dice.below(3) {
            hosts.open_stream();
        }
        hosts
    }

    /// The sink's host is hit, and somebody types the same command again.
    fn after(mut self, blow: Blow) -> Hosts {
        if blow == Blow::Power {
            self.ground.target.lose_power(&mut self.ground.dice);
            if self.ground.settings.fsync == Fsync::Off {
                // No promise was made for what had its name; what had not is still looked at.
                for path in finals(self.ground.target.files()).keys() {
                    self.ground.target.remove(path).expect("a simulated name goes");
                }
            }
        }
        self.abandon_lanes();
        let Ground { dice, world, weather, sent, offers, origin, target, settings } = &self.ground;
        Hosts::start(Ground {
            dice: dice.clone(),
            world: world.clone(),
            weather: *weather,
            sent: sent.clone(),
            offers: offers.clone(),
            origin: origin.clone(),
            target: target.clone(),
            settings: settings.clone(),
        })
    }

    /// Ends a run as `Running::stop` does.
    fn stop(&mut self) {
        let objects = &self.makings.objects;
        let advances = objects.take_advances();
        let Unfinished { told, untold } = objects.unfinished();
        let small = self.complete.try_iter().filter(|object| object.wanted.file.is_none());
        for name in small.map(|object| object.wanted.temporary).chain(untold) {
            self.ground.target.remove(&name).expect("a simulated name goes");
        }
        self.finisher.stop(&advances, &told);
    }

    /// What has arrived in this run.
    fn landed_bytes(&self) -> u64 {
        let gauge = &self.watch.gauge;
        gauge.bytes_done.load(Relaxed) - gauge.bytes_held.load(Relaxed)
    }

    /// What may be sent again after this run: what the journal has not been told, and files that
    /// have all their bytes and no name yet, or are sent whole.
    fn untold_bytes(&mut self) -> u64 {
        let waiting: Vec<Complete> = self.complete.try_iter().collect();
        let complete: u64 = waiting.iter().map(|object| object.wanted.size).sum();
        let small = self.ground.sent.values().map(|bytes| bytes.len() as u64);
        let small: u64 = small.filter(|size| *size <= SLOT_MAX.into()).sum();
        self.landed_bytes() - self.told_bytes + complete + small
    }

    /// What has its final name, and what the journal says of the rest.
    fn here_bytes(&self) -> u64 {
        let files = self.ground.target.files();
        let journal = files.iter().find(|(path, _)| path.ends_with(b".journal"));
        let mut replay = Replay::default();
        if let Some((_, bytes)) = journal {
            replay.take(bytes, &TRANSFER);
        }
        let here = |held: &Held| held.ranges.total();
        let partials: u64 =
            replay.partials().map(|part| here(&part.flushed) + here(&part.written)).sum();
        let parts = files.keys().filter(|path| path.ends_with(b".part")).count();
        assert!(parts >= replay.partials().count(), "the journal speaks of parts that are gone");
        partials + finals(files).values().map(|bytes| bytes.len() as u64).sum::<u64>()
    }

    fn calm(&mut self) {
        self.ground.weather.disk_full = 0;
        self.ground.weather.write_fails = 0;
        self.ground.world.set_weather(self.ground.weather);
    }

    /// Steps everybody until it is over; the number of steps.
    fn drive(&mut self) -> Result<u64, Stuck> {
        let mut still = 0;
        loop {
            if self.is_over() {
                return Ok(self.steps);
            }
            let before = self.progress();
            self.step().map_err(Stuck::Fault)?;
            still = if self.progress() == before { still + 1 } else { 0 };
            // In calm weather a few rounds show whether anybody can move.
            if still == 400 {
                let calm = Weather { late: 0, interrupted: 0, ..self.ground.weather };
                self.ground.world.set_weather(calm);
            }
            if still > 1200 {
                self.give_up_stalled()?;
                still = 0;
            }
        }
    }

    fn drive_for(&mut self, steps: u64) {
        for _ in 0..steps {
            if self.is_over() || self.step().is_err() {
                return;
            }
        }
    }

    fn progress(&self) -> (u64, usize, u64, usize) {
        (
            self.ground.world.landings(),
            self.to_offer.len(),
            self.finished,
            self.to_sink.len() + self.to_source.len(),
        )
    }

    fn is_over(&self) -> bool {
        self.source.is_over() && self.sink.is_over() && self.pairs.is_empty() && self.closed
    }

    /// Somebody, chosen by the dice, does one thing.
    fn step(&mut self) -> Result<(), Fault> {
        self.steps += 1;
        let pick = self.ground.dice.below(2 * self.pairs.len() as u64 + 7) as usize;
        if let Some(pair) = self.pairs.get_mut(pick / 2) {
            match pick % 2 {
                0 => pair.step(|pair| &mut pair.source)?,
                _ => pair.step(|pair| &mut pair.sink)?,
            }
            if pair.broken || pair.source.is_none() {
                self.ground.world.cut(&pair.wire.socket); // what is under way still comes
            }
            return Ok(());
        }
        match pick - 2 * self.pairs.len() {
            0 => self.offer(),
            1 => self.deliver_to_sink(),
            2 => self.deliver_to_source(),
            3 => {
                self.to_source.extend(self.sink.acknowledge());
                Ok(())
            }
            4 => self.advance(),
            5 => {
                self.part_with_streams();
                Ok(())
            }
            _ => self.finish(),
        }
    }

    fn advance(&mut self) -> Result<(), Fault> {
        let advances = self.makings.objects.take_advances();
        self.told_bytes = self.landed_bytes();
        self.finisher.advance(&advances)
    }

    /// Streams that both sides have let go: the sink says so behind its last acknowledgement.
    fn part_with_streams(&mut self) {
        self.pairs.retain(|pair| pair.broken || pair.source.is_some() || pair.sink.is_some());
        for index in 0..self.pairs.len() {
            let pair = &mut self.pairs[index];
            let both_over = pair.source.is_none() && pair.sink.is_none();
            if !both_over || std::mem::replace(&mut pair.told, true) {
                continue;
            }
            let stream = pair.wire.number;
            while let Some(ack) = self.sink.acknowledge() {
                self.to_source.push_back(ack);
            }
            self.to_source.push_back(Message::Lost { stream });
        }
    }

    fn offer(&mut self) -> Result<(), Fault> {
        if let Some(found) = self.to_offer.pop_front() {
            let offer = self.source.offer(found)?;
            self.to_sink.push_back(offer);
            if self.to_offer.is_empty() {
                let end = self.source.end_walk();
                self.to_sink.push_back(end);
            }
        }
        Ok(())
    }

    fn deliver_to_sink(&mut self) -> Result<(), Fault> {
        match self.to_sink.pop_front().map(|message| over_the_wire(&message)) {
            Some(Message::Offer { first, entries }) => {
                let answers = self.sink.offer(first, entries)?;
                self.to_source.extend(answers);
                Ok(())
            }
            Some(Message::OfferEnd { objects, .. }) => self.sink.end_offers(objects),
            Some(other) => panic!("{other:?} to a sink"),
            None => Ok(()),
        }
    }

    fn deliver_to_source(&mut self) -> Result<(), Fault> {
        match self.to_source.pop_front().map(|message| over_the_wire(&message)) {
            Some(Message::Want { wanted, .. }) => self.source.want(&wanted),
            Some(Message::HeldRanges { object, ranges }) => self.source.note_held(object, &ranges),
            Some(Message::Ack { ranges, .. }) => self.source.acknowledged(Tick(0), &ranges),
            Some(Message::Lost { stream }) => {
                self.source.plan.lost(stream);
                self.pairs.retain(|pair| pair.wire.number != stream);
                if !self.source.plan.is_settled() {
                    self.open_stream();
                }
                Ok(())
            }
            Some(Message::Held { objects }) => {
                for (object, sum) in objects {
                    self.source.held_whole(object)?;
                    self.finished += 1;
                    if let Some(sum) = sum {
                        self.digests.insert(object, to_hex(self.ground.settings.digest, &sum));
                    }
                }
                Ok(())
            }
            Some(Message::Finished { objects }) => {
                for (object, sum) in objects {
                    self.source.settle(object)?;
                    self.finished += 1;
                    if let Some(sum) = sum {
                        self.named.insert(object);
                        self.digests.insert(object, to_hex(self.ground.settings.digest, &sum));
                    }
                }
                Ok(())
            }
            Some(Message::Failed { object, fault }) => {
                self.source.settle(object)?;
                self.finished += 1;
                self.failed.push((object, fault));
                Ok(())
            }
            Some(other) => panic!("{other:?} to a source"),
            None => Ok(()),
        }
    }

    fn finish(&mut self) -> Result<(), Fault> {
        let epoch: Vec<Complete> = self.complete.try_iter().take(5).collect();
        if epoch.is_empty() {
            if self.sink.is_over() && !std::mem::replace(&mut self.closed, true) {
                self.finisher.close(self.sink.ending());
            }
            return Ok(());
        }
        let finished = self.finisher.epoch(epoch);
        self.to_source.extend(self.sink.finished(&finished));
        match finished.iter().find_map(|object| object.outcome.as_ref().err()) {
            Some(fault) if fault.ends_transfer() => Err(fault.clone()),
            _ => Ok(()),
        }
    }

    fn open_stream(&mut self) {
        let Makings { brake, plan, objects, seal, next } = &mut self.makings;
        let Ground { dice, world, settings, .. } = &mut self.ground;
        let wire = Wire::new(*next, world.connect());
        *next += 1;
        let (source, sink) = lanes(dice, world, settings, (brake, plan, objects), (*seal, &wire));
        let (source, sink) = (Some(source), Some(sink));
        self.pairs.push(Pair { wire, source, sink, broken: false, told: false });
    }

    /// Lanes that will never move again; the kernel would take back what is in the air.
    fn abandon_lanes(&mut self) {
        let lanes = self.pairs.iter_mut().flat_map(|pair| [pair.source.take(), pair.sink.take()]);
        lanes.flatten().for_each(Lane::end_by_kill);
    }

    /// Every name that is no temporary one has exactly its source's bytes; in weather that loses
    /// nothing all are there, and what is missing was named.
    fn check(&mut self) -> Result<(), String> {
        let Ground { sent, target, .. } = &self.ground;
        let arrived = finals(target.files());
        compare(sent, &arrived)?;
        self.check_room()?;
        if self.is_over() {
            let all =
                arrived.len() + self.failed.iter().filter(|(_, f)| f.class != Class::Usage).count();
            if all != sent.len() {
                return Err(format!(
                    "{} sent, {} arrived, {} named as failed: {:?}",
                    sent.len(),
                    arrived.len(),
                    self.failed.len(),
                    self.failed.first()
                ));
            }
            // Another run goes on with what has failed.
            let mut left = target.files().into_keys();
            let goes_on = !self.failed.is_empty();
            if let Some(left) = left.find(|path| is_temporary(path) && !goes_on) {
                return Err(format!("{} was left", left.escape_ascii()));
            }
            self.check_digests()?;
        }
        let _ = self.notices.try_iter().count();
        Ok(())
    }

    /// A file with holes takes no more room than its data, also where it was gone on with.
    fn check_room(&self) -> Result<(), String> {
        let Ground { sent, target, offers, .. } = &self.ground;
        for Found { entry, .. } in offers.iter().flatten().filter(|found| found.entry.sparse) {
            let (Some(takes), Some(bytes)) =
                (target.room_bytes(&entry.path), sent.get(&entry.path))
            else {
                continue;
            };
            let is_data = |block: &&[u8]| block.iter().any(|byte| *byte != 0);
            let data = bytes.chunks(SLOT as usize).filter(is_data).count() as u64;
            if takes > data * u64::from(SLOT) {
                let name = entry.path.escape_ascii();
                return Err(format!("{name}: {data} blocks of data take {takes} bytes"));
            }
        }
        Ok(())
    }

    /// The digests that were reported are those of the bytes.
    fn check_digests(&self) -> Result<(), String> {
        if self.ground.settings.digest != DigestKind::Blake3 {
            return Ok(());
        }
        let sent = self.ground.sent.values();
        let mut expected: Vec<String> =
            sent.map(|bytes| blake3::hash(bytes).to_hex().to_string()).collect();
        for digest in self.digests.values() {
            let Some(at) = expected.iter().position(|expect| expect == digest) else {
                return Err(format!("a digest of nothing that was sent: {digest}"));
            };
            expected.swap_remove(at);
        }
        Ok(())
    }

    fn check_after_crash(&mut self) -> Result<(), String> {
        if self.ground.settings.fsync == Fsync::Off {
            return Ok(()); // nothing was promised
        }
        let left = finals(self.ground.target.files_after_crash());
        let offered: Vec<_> = self.ground.offers.iter().flatten().map(|f| &f.entry).collect();
        let mut named = self.named.iter().map(|number| &offered[*number as usize].path);
        let lost = named.find(|path| !left.contains_key(*path));
        let lost = lost.map(|path| format!("{} was there for good", path.escape_ascii()));
        compare(&self.ground.sent, &left)
            .and(lost.map_or(Ok(()), Err))
            .map_err(|text| format!("after a crash at step {}: {text}", self.steps))
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        // A lane that is dropped must have nothing in the air, whatever the weather.
        self.abandon_lanes();
    }
}

impl Pair {
    /// Steps one of its lanes. When one ends early the other loses the stream too.
    fn step(&mut self, lane: impl Fn(&mut Pair) -> &mut Option<Lane>) -> Result<(), Fault> {
        let slot = lane(self);
        let Some(running) = slot else { return Ok(()) };
        if running.turn(Patience::Step)? != Turn::Over {
            return Ok(());
        }
        let over = slot.take().map(Lane::into_over).expect("it is here");
        if let Some(fault) = over.fault {
            assert!(matches!(fault.class, Class::Unreachable | Class::Corrupt), "{fault}");
            self.broken = true;
            self.wire.given_up.store(true, std::sync::atomic::Ordering::Relaxed);
        }
        Ok(())
    }
}

/// As it would be read at the other end.
fn over_the_wire(message: &Message) -> Message {
    let bytes = message.encode();
    let heard = Message::decode(&bytes[4..]).expect("what we write we can read");
    assert_eq!(heard, *message);
    heard
}

fn finals(files: Tree3) -> Tree3 {
    files.into_iter().filter(|(path, _)| !is_temporary(path)).collect()
}

fn is_temporary(path: &[u8]) -> bool {
    path.ends_with(b".part") || path.ends_with(b".journal")
}

fn compare(sent: &Tree3, arrived: &Tree3) -> Result<(), String> {
    for (path, bytes) in arrived {
        let name = path.escape_ascii();
        match sent.get(path) {
            None => return Err(format!("{name} arrived and was not sent")),
            Some(expect) if expect != bytes => {
                return Err(format!("{name} has {} bytes that are not its own", bytes.len()));
            }
            Some(_) => {}
        }
    }
    Ok(())
}

/// A stream's lanes on either host; pools of few buffers.
fn lanes(
    dice: &mut Dice,
    world: &Arc<World>,
    settings: &Settings,
    (brake, plan, objects): (&Arc<Brake>, &Arc<Plan>, &Arc<Objects>),
    (seal, wire): (u64, &Wire),
) -> (Lane, Lane) {
    let (slot, digest) = (settings.request_bytes, settings.digest);
    let (sealing, opening) = protections(seal, wire.number as u16);
    let socket = wire.socket.clone();
    // Each stream in another way, and some not at all.
    let way = [Way::Raw, Way::Lz4, Way::Zlib(1), Way::Zstd(1)][wire.number as usize % 4];
    let depth = 1 + dice.below(3) as u32;
    let requests = |dice: &mut Dice| (0..2 + dice.below(2)).map(|_| Request::new(slot)).collect();
    let source = Lane::new(Parts {
        engine: Engine::new(Box::new(world.backend())),
        source: Box::new(Tree::new(depth)),
        passage: Passage::new(vec![
            Box::new(Sign::new(digest, slot)),
            Box::new(Squeeze),
            Box::new(Pack::new(way, slot)),
        ]),
        desk: None,
        sink: Box::new(StreamSink::new(socket.clone(), sealing, digest, slot)),
        plan: Some(plan.clone()),
        objects: None,
        brake: brake.clone(),
        stream: Some(wire.clone()),
        requests: requests(dice),
    });
    let sink = Lane::new(Parts {
        engine: Engine::new(Box::new(world.backend())),
        source: Box::new(
            StreamSource::new(socket, opening, digest, slot, b"").unpacking(Compress::Always(way)),
        ),
        passage: Passage::new(vec![
            Box::new(Unpack::new(slot)),
            Box::new(Expand::new(slot)),
            Box::new(Check::new(digest, slot)),
        ]),
        desk: None,
        sink: Box::new(Tree::new(depth)),
        plan: None,
        objects: Some(objects.clone()),
        brake: brake.clone(),
        stream: Some(wire.clone()),
        requests: requests(dice),
    });
    (source, sink)
}
