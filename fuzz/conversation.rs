//! A whole conversation with each role: what a peer may say after the two have met, messages as the
//! loop of a transfer hands them on, and frames on a stream with the lane that ships.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

use base::codec::{Codec, Compress};
use base::extent::Extent;
use base::fault::Fault;
use base::job::{Job, Location, Notice, Remote};
use base::label::{Kind, Label, MAP_CHECK_BYTES, Sum, map_bytes};
use base::settings::{DigestKind, Overwrite, Settings, Verify};
use base::units::Tick;
use mover::ends::stream::{Protection, StreamSource};
use mover::ends::tree::Tree;
use mover::io::accounts::Accounts;
use mover::io::engine::Engine;
use mover::io::request::Request;
use mover::io::sim::{FaultRates, SimVolume, World};
use mover::io::volume::{Handle, Mtime, Volume};
use mover::pump::cancellation::Cancellation;
use mover::pump::lane::{Lane, Parts, Patience, StreamHandle, Turn};
use mover::pump::sink::expected::Expected;
use mover::pump::sink::finisher::Finisher;
use mover::pump::sink::mirror::Mirror;
use mover::pump::sink::objects::{Complete, Objects};
use mover::pump::sink::owner_map::OwnerMap;
use mover::pump::sink::resume::{ResumeCallbacks, ResumeState};
use mover::pump::sink::{Begin, Root, SinkSide, Target};
use mover::pump::source::SourceSide;
use mover::pump::source::plan::Plan;
use mover::pump::source::walk::Found;
use mover::pump::watch::Watch;
use mover::wire::frame::{self, HEADER_BYTES};
use mover::wire::manifest::{Entry, path_is_safe};
use mover::wire::message::{Message, Open, Opened, Origin, Role};
use mover::wire::reader::Reader;
use mover::wire::session::Session;
use mover::work::codec::DecompressStep;
use mover::work::digest::Check;
use mover::work::passage::Passage;
use mover::work::seal::frame_keys::{FrameKeys, SEAL_TAG_BYTES, Suite};
use mover::work::sparse::Expand;

/// The first byte says who we are and how we are set; then each step is an act of our own, a
/// message of the peer behind its length, or a frame. Whatever comes, we refuse it or go on; what
/// has a final name was offered under it and is as long as was offered, and what a near sink did
/// not ask for has none.
pub(crate) fn conversation(bytes: &[u8]) {
    let mut from = Reader::new(bytes);
    let Ok(side) = from.u8() else { return };
    let mut host = Host::new(side);
    while host.step(&mut from).is_ok() {}
    host.check();
}

/// One side of a transfer; a sink with one stream.
struct Host {
    session: Session,
    source: Option<SourceSide>,
    sink: Option<(SinkSide, Finisher, Receiver<Complete>)>,
    volume: Arc<SimVolume>,
    /// A near sink that asked for what is in `d`.
    asked: bool,
    stream: Option<Stream>,
    offered: Vec<(Vec<u8>, u64)>,
    own: u64,
    _notices: Receiver<Notice>,
}

impl Host {
    fn new(side: u8) -> Host {
        let (drives, is_sink, is_sealed) = (side & 1 == 0, side & 2 == 0, side & 32 != 0);
        let settings = Settings {
            recursive: true,
            archive: side & 4 != 0,
            preserve: side & 8 == 0,
            overwrite: if side & 16 != 0 { Overwrite::Always } else { Overwrite::Never },
            request_bytes: SLOT_BYTES,
            digest: if is_sealed { DigestKind::Blake3 } else { DigestKind::None },
            verify: if is_sealed { Verify::Source } else { Verify::Received },
            ..Settings::default()
        };
        let world = World::new(7, FaultRates::default());
        let volume = Arc::new(SimVolume::new(&world, "/sink"));
        volume.put(b"there", b"before".to_vec(), Mtime::default());
        let (notices_in, notices) = channel();
        let watch = Arc::new(Watch::new(notices_in));
        let asked = is_sink && drives;
        let expected = if asked { expected(&settings) } else { Expected::Anything };
        let sink = is_sink.then(|| sink(&volume, &settings, &watch, expected));
        let stream = sink.as_ref().map(|(sink, ..)| Stream::new(&world, &sink.objects, &settings));
        let source = (!is_sink).then(|| {
            let plan = Plan::new(settings.request_bytes, None, None, true, Arc::default());
            SourceSide::new(Arc::new(plan), settings.clone(), watch.clone())
        });
        let session = met(drives, if is_sink { Role::Sink } else { Role::Source }, &settings);
        let offered = Vec::new();
        Host { session, source, sink, volume, asked, stream, offered, own: 0, _notices: notices }
    }

    /// An error where the bytes are used up or something was refused.
    fn step(&mut self, from: &mut Reader<'_>) -> Result<(), Fault> {
        let length = from.u16()?;
        match (length, &mut self.stream) {
            (0, _) => return self.act(),
            (FRAME, Some(stream)) => return stream.take_frame(framed(from)?),
            (RAW_FRAME, Some(stream)) => {
                return stream.take_frame(from.take(HEADER_BYTES)?.to_vec());
            }
            _ => {}
        }
        let message = Message::decode(from.take(usize::from(length))?)?;
        self.session.hear(Tick(0), &message)?;
        match (&mut self.sink, &mut self.source) {
            (Some((sink, ..)), _) => tell_sink(sink, &mut self.session, &mut self.offered, message),
            (_, Some(source)) => tell_source(source, message),
            _ => unreachable!("one of the two is here"),
        }
    }

    /// The sink finishes what it can, the source offers a file more.
    fn act(&mut self) -> Result<(), Fault> {
        if let Some((sink, finisher, complete)) = &mut self.sink {
            let finished = finisher.epoch(complete.try_iter().take(100).collect());
            for message in sink.finished(&finished).into_iter().chain(sink.acknowledge()) {
                self.session.say(Tick(0), &message);
            }
        }
        let Some(source) = self.source.as_mut().filter(|_| self.own < OWN_MAX) else {
            return Ok(());
        };
        let path = format!("own{}", self.own).into_bytes();
        let entry = Entry { size: self.own * 4000, mode: 0o644, path, ..Entry::default() };
        let offer = source.offer(vec![Found { entry, from: None }])?;
        self.session.say(Tick(0), &offer);
        self.own += 1;
        if self.own == OWN_MAX {
            let end = source.end_walk();
            self.session.say(Tick(0), &end);
        }
        Ok(())
    }

    fn check(&self) {
        for (path, bytes) in self.volume.files().iter().filter(|(path, _)| **path != b"there") {
            assert!(path_is_safe(path), "{path:?}");
            let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
            let is_ours = name.starts_with(b".datapump-");
            let offered = (path.clone(), bytes.len() as u64);
            assert!(is_ours || self.offered.contains(&offered), "nobody offered {offered:?}");
            assert!(!self.asked || is_ours || path.starts_with(b"d/"), "nobody asked for {path:?}");
        }
    }
}

/// A stream with the lane that takes from it, as a sink has it.
struct Stream {
    world: Arc<World>,
    /// The peer's, where frames are sealed: it is hostile, and has them all the same.
    keys: Option<FrameKeys>,
    socket: Handle,
    lane: Option<Lane>,
}

impl Stream {
    fn new(world: &Arc<World>, objects: &Arc<Objects>, settings: &Settings) -> Stream {
        let (socket, digest) = (world.connect(), settings.digest);
        let keys = || FrameKeys::new(Suite::Aes128Gcm, &[7; 32]);
        let is_sealed = settings.verify == Verify::Source;
        let protection = if is_sealed { Protection::Tls(keys()) } else { Protection::Off };
        let source = StreamSource::new(socket.clone(), protection, digest, SLOT_BYTES)
            .decompressing(Compress::Auto)
            .verifying(settings.verify);
        let lane = Lane::new(Parts {
            engine: Engine::new(Box::new(world.backend())),
            source: Box::new(source),
            passage: Passage::new(vec![
                Box::new(DecompressStep::new(SLOT_BYTES)),
                Box::new(Expand::new(SLOT_BYTES)),
                Box::new(Check::new(digest, SLOT_BYTES)),
            ]),
            pool_handle: None,
            sink: Box::new(Tree::new(2)),
            plan: None,
            objects: Some(objects.clone()),
            cancellation: Arc::new(Cancellation::default()),
            stream: Some(StreamHandle::new(0, socket.clone())),
            requests: (0..3).map(|_| Request::new(SLOT_BYTES)).collect(),
        });
        let keys = is_sealed.then(keys);
        Stream { world: world.clone(), keys, socket, lane: Some(lane) }
    }

    /// A frame, sealed where frames are: only what its header and body say is the fuzzer's.
    fn take_frame(&mut self, frame: Vec<u8>) -> Result<(), Fault> {
        let Some(keys) = &mut self.keys else { return self.take(&frame) };
        let (header, body) = frame.split_at(HEADER_BYTES);
        let mut sealed = Vec::new();
        for part in [header, body].into_iter().filter(|part| !part.is_empty()) {
            let at = sealed.len();
            sealed.extend(part);
            sealed.extend([0; SEAL_TAG_BYTES]);
            keys.seal(&mut sealed[at..])?;
        }
        self.take(&sealed)
    }

    /// The peer sends this, and all that can move does.
    fn take(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        self.world.say(&self.socket, bytes);
        let Some(lane) = &mut self.lane else { return Ok(()) };
        let mut before = u64::MAX;
        while self.world.completions() != before {
            before = self.world.completions();
            if lane.turn(Patience::Step)? == Turn::Over {
                let over = self.lane.take().map(Lane::into_over).expect("it is here");
                return over.fault.map_or(Ok(()), Err);
            }
        }
        Ok(())
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.world.cut(&self.socket);
        if let Some(lane) = &mut self.lane {
            lane.abandon();
        }
    }
}

/// A frame whose header is well made, whatever it says: a byte each for the kind, the codec, and
/// where it begins in requests, then where in the request, how long it is, and its body.
fn framed(from: &mut Reader<'_>) -> Result<Vec<u8>, Fault> {
    let (kind, codec, request) = (from.u8()?, from.u8()?, from.u8()?);
    let (within, len, body_len) = (from.u16()?, from.u16()?, from.u16()?);
    let mut body = from.take(usize::from(body_len))?.to_vec();
    let kinds = [Kind::Data, Kind::Void, Kind::End, Kind::Zero, Kind::Sparse];
    // The last is data with digests, which begin where the extent ends.
    let is_digested = usize::from(kind) % 6 == 5;
    let kind = if is_digested { Kind::Data } else { kinds[usize::from(kind) % 6] };
    let codec = Codec::from_code(codec % 4).expect("one of four");
    let compressed_check = if codec == Codec::Raw { 0 } else { frame::crc32c(&body) };
    let mut voids_len = if kind == Kind::Void { body.len() } else { 0 };
    if kind == Kind::Sparse {
        let map = from.take((map_bytes(len.into()) - MAP_CHECK_BYTES) as usize)?;
        body.extend(frame::crc32c(map).to_le_bytes());
        body.extend(map);
        voids_len = map.len() + MAP_CHECK_BYTES as usize;
    }
    let start = u64::from(request) * u64::from(SLOT_BYTES) + u64::from(within);
    let label = Label {
        kind,
        extent: Extent { start, len: len.into() },
        body_len: body.len() as u32,
        voids_len: voids_len as u16,
        codec,
        compressed_check,
        digests_len: if is_digested { (body.len() as u16).saturating_sub(len) } else { 0 },
        digest: if is_digested { crc64(&body[..body.len().min(len.into())]) } else { [0; 32] },
    };
    let mut bytes = frame::encode(&label).to_vec();
    bytes.extend(body);
    Ok(bytes)
}

/// As the digest of a frame that has digests of its own.
fn crc64(bytes: &[u8]) -> Sum {
    let mut sum = [0; 32];
    let check = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc64Nvme, bytes);
    sum[..8].copy_from_slice(&check.to_le_bytes());
    sum
}

fn sink(
    volume: &Arc<SimVolume>,
    settings: &Settings,
    watch: &Arc<Watch>,
    expected: Expected,
) -> (SinkSide, Finisher, Receiver<Complete>) {
    let volume: Arc<dyn Volume> = volume.clone();
    let target = Target::Tree { volume: volume.clone(), rename: None, root: Root::FOUND };
    let callbacks = ResumeCallbacks { warn: &|_| {}, stopping: &|| false };
    let resume_state = ResumeState::open(&target, [7; 16], settings, "spare".into(), &callbacks)
        .expect("nobody else has the journal");
    let (complete_in, complete) = channel();
    let (slot, digest) = (settings.request_bytes, settings.digest);
    let objects = Arc::new(Objects::new(slot, digest, watch.clone(), complete_in));
    let mirror = Mirror::of(&target, settings, &resume_state.tag, None);
    let begin = Begin {
        tag: resume_state.tag,
        prior_runs: resume_state.prior_runs,
        alone: true,
        expected,
        mirror: mirror.expect("the filters are good"),
        owners: OwnerMap::on(settings, |kind| Accounts::from_lines(kind, b"root:x:0:"))
            .expect("there are no rules"),
        backup: None,
    };
    let finisher = Finisher::new(Some(volume), settings.fsync, resume_state.journal);
    (SinkSide::new(objects, settings.clone(), target, watch.clone(), begin), finisher, complete)
}

/// `copy -r far:d HERE`.
fn expected(settings: &Settings) -> Expected {
    let job = Job {
        sources: vec![Location::Path(PathBuf::from("d"))],
        source_host: Some("far".into()),
        target: Location::Path(PathBuf::from("/sink")),
        target_host: None,
        settings: settings.clone(),
        listed: None,
        range: None,
        remote: Remote::default(),
    };
    Expected::of(&job, Origin { single: false, endless: false }, None)
        .expect("a folder was asked for")
}

/// A session that has met its peer and moves.
fn met(drives: bool, role: Role, settings: &Settings) -> Session {
    let now = Tick(0);
    let origin = Some(Origin { single: false, endless: false });
    let open = Open {
        role: if drives { role.other() } else { role },
        locations: vec![Location::Stdio],
        settings: settings.clone(),
        ports: None,
        secret: base::secret::SharedSecret([0; 32]),
        fingerprint: [0; 32],
        origin,
        window_bytes: 0,
        transfer: [0; 16],
        listed: false,
    };
    let far_is_source = open.role == Role::Source;
    let opened = Opened {
        fingerprint: [0; 32],
        port: 1,
        addresses: Vec::new(),
        origin: origin.filter(|_| far_is_source),
        window_bytes: 0,
        rename: None,
        cut: settings.cut(),
    };
    let (open, opened) = (Message::Open(Box::new(open)), Message::Opened(opened));
    let mut session = match drives {
        true => Session::driver(role, "fuzz", now),
        false => Session::follower("fuzz", now),
    };
    let hello = session.hello();
    session.hear(now, &hello).expect("our own version");
    let (said, heard) = if drives { (open, opened) } else { (opened, open) };
    if drives {
        session.say(now, &said);
        session.hear(now, &heard).expect("an honest answer");
    } else {
        session.hear(now, &heard).expect("an honest request");
        session.say(now, &said);
    }
    session
}

fn tell_sink(
    sink: &mut SinkSide,
    session: &mut Session,
    offered: &mut Vec<(Vec<u8>, u64)>,
    message: Message,
) -> Result<(), Fault> {
    match message {
        Message::Offer { first, entries } => {
            // The simulated volume keeps a file's holes in memory too.
            if entries.iter().any(|entry| entry.size > SIZE_MAX) {
                return Err(Fault::peer("more than the simulated volume has"));
            }
            offered.extend(entries.iter().map(|entry| (entry.path.clone(), entry.size)));
            for answer in sink.offer(first, entries)? {
                session.say(Tick(0), &answer);
            }
            Ok(())
        }
        Message::OfferEnd { objects, .. } => sink.end_offers(objects),
        Message::PipeEnd { bytes } => sink.objects.end_pipe(bytes),
        Message::Unoffered { .. } => {
            sink.note_unoffered();
            Ok(())
        }
        Message::Stop(fault) => Err(fault),
        _ => Ok(()),
    }
}

fn tell_source(source: &mut SourceSide, message: Message) -> Result<(), Fault> {
    match message {
        Message::Want { wanted, .. } => source.want(&wanted),
        Message::HeldRanges { object, ranges } => source.note_held(object, &ranges),
        Message::Ack { ranges, .. } => source.acknowledged(Tick(0), &ranges),
        Message::Finished { objects } => {
            objects.iter().try_for_each(|(object, _)| source.settle(*object).map(drop))
        }
        Message::Held { objects } => {
            objects.iter().try_for_each(|(object, _)| source.held_whole(*object).map(drop))
        }
        Message::Failed { object, .. } | Message::Kept { object } => {
            source.settle(object).map(drop)
        }
        Message::Stop(fault) => Err(fault),
        _ => Ok(()),
    }
}

const OWN_MAX: u64 = 50;
/// What pipes and files beyond it would do is up to the other targets and the hostile suite.
const SIZE_MAX: u64 = 1 << 20;
const SLOT_BYTES: u32 = 4 << 10;
/// In place of a length: a frame, and 64 bytes that are to be its header.
const FRAME: u16 = u16::MAX;
const RAW_FRAME: u16 = u16::MAX - 1;
