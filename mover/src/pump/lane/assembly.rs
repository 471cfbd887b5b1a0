//! Builds lanes: their engine, endpoints, depths and memory.

use std::sync::Arc;

use crate::ends::endpoint::Endpoint;
use crate::ends::null::{Fill, Null};
use crate::ends::pipe::{PipeSink, PipeSource, Turn};
use crate::ends::stream::{Protection, StreamSink, StreamSource};
use crate::ends::synthetic::DataGenerator;
use crate::ends::tree::Tree;
use crate::io::backend::Backend;
use crate::io::buffer::Buffer;
use crate::io::clock::HostClock;
use crate::io::engine::Engine;
use crate::io::request::Request;
use crate::io::sampler::Sampler;
use crate::io::threads::Threads;
use crate::io::volume::Handle;
use crate::pump::cancellation::Cancellation;
use crate::pump::lane::compression_controller::CompressionController;
use crate::pump::lane::depths::{DEPTH_WAITING, Depths, Keeps, Waits};
use crate::pump::lane::worker_pool::{Work, WorkerPool};
use crate::pump::lane::{Lane, Parts, StreamHandle};
use crate::pump::sink::Target;
use crate::pump::sink::objects::Objects;
use crate::pump::source::plan::Plan;
use crate::work::codec::{self, CompressStep, DecompressStep};
use crate::work::digest::{Check, Sign};
use crate::work::extra::Also;
use crate::work::passage::{Passage, Step};
use crate::work::sparse::{Expand, Squeeze};
use base::codec::{Coding, Compress, DecompressionTime};
use base::fault::{Class, Fault};
use base::job::Location;
use base::limits::STREAMS_MAX;
use base::settings::{EngineChoice, Pace, PathSamples, Settings};
use base::units::{Bytes, Tick};

/// A connection whose handshake has ended.
#[derive(Debug)]
pub struct Stream {
    pub handle: StreamHandle,
    pub protection: Protection,
}

/// This host's part of a transfer: one end in files, the other in a stream or in files too.
#[derive(Debug)]
pub struct Ends {
    pub settings: Settings,
    /// The source's location and ledger, where it is here. `source_waits`: it may be on a device.
    pub source: Option<(Location, Arc<Plan>)>,
    pub sink: Option<(Target, Arc<Objects>)>,
    pub source_waits: bool,
    pub cancellation: Arc<Cancellation>,
}

/// Makes lanes, all of one kind.
#[derive(Debug)]
pub(crate) struct Assembly {
    ends: Ends,
    depths: Depths,
    pool_requests: usize,
    pipes: Pipes,
    turn: Arc<Turn>,
    /// Does the passage where payloads are compressed.
    worker_pool: Option<Arc<WorkerPool>>,
    pub planned_memory_bytes: u64,
}

/// What a lane takes at most besides its buffers: stack, samples, the state of its seal.
const LANE_BYTES: u64 = 512 << 10;
/// The program itself: pages of its code that are in use, and its memory before any lane.
const PROGRAM_BYTES: u64 = 13 << 20;
/// What the ledgers take at most: every object in flight with its names.
pub(crate) const LEDGER_BYTES: u64 = 12 << 20;

/// Bytes beyond the lowest unsettled one that a pipe sink can hold.
pub(crate) fn pipe_window_bytes(settings: &Settings) -> u64 {
    let depth = pipe_depth(settings);
    u64::from(depth - 1) * u64::from(settings.request_bytes)
}

/// The most streams that a transfer has at a time: those that were asked for, or as many as fit
/// into the memory of either side. A lane has one request for the stream, the others for its files.
pub(crate) fn streams_max(settings: &Settings) -> u16 {
    if !settings.streams_auto {
        return settings.streams;
    }
    let depth = |asked: Option<u16>| asked.map_or(DEPTH_WAITING, u32::from);
    let depth = depth(settings.depth_source).max(depth(settings.depth_sink));
    let requests = u64::from(depth + 1) * Buffer::total_bytes(settings.request_bytes) as u64;
    let each = requests + u64::from(settings.null_cycle_bytes) + LANE_BYTES;
    let free = settings.memory_bytes.saturating_sub(PROGRAM_BYTES + LEDGER_BYTES);
    // One more is for the control connection, which may carry data too.
    let lanes = (free / each).saturating_sub(1).min(STREAMS_MAX.into()) as u16;
    lanes.max(settings.streams)
}

/// Each lane of a pipe sink can hold a whole window: otherwise all lanes could hold late bytes, and
/// wait forever for the first ones.
fn pipe_depth(settings: &Settings) -> u32 {
    let each =
        Buffer::total_bytes(settings.request_bytes) as u64 * u64::from(streams_max(settings));
    (settings.memory_bytes / 4 / each).clamp(4, 256) as u32
}

impl Assembly {
    /// For this many lanes at a time.
    pub(crate) fn new(ends: Ends, lanes: usize) -> Result<Assembly, Fault> {
        let lanes = lanes as u64;
        let workers = Workers::of(&ends, lanes);
        let depths = depths(&ends, lanes, workers)?;
        let pipes = Pipes::open(&ends)?;
        let planned_memory_bytes = planned(&ends, depths, lanes, workers);
        let pool_requests = pool_requests(lanes, workers);
        let (turn, worker_pool) = (Arc::default(), worker_pool(&ends, workers)?);
        Ok(Assembly { ends, depths, pool_requests, pipes, turn, worker_pool, planned_memory_bytes })
    }

    /// Requests in flight at this host's end of files.
    pub(crate) fn depth(&self) -> u16 {
        let depth = if self.ends.source.is_some() { self.depths.source } else { self.depths.sink };
        depth as u16
    }

    /// The time of decompression here since the last call, where the source's choices depend on it;
    /// a few times a second.
    pub(crate) fn decompression_time(&self, now: Tick) -> Option<DecompressionTime> {
        let chooses = self.ends.settings.compress == Compress::Auto && self.ends.source.is_none();
        self.worker_pool.as_ref().filter(|_| chooses)?.decompression_time(now)
    }

    /// The sink has reported its time of decompression.
    pub(crate) fn record_decompression_time(&self, time: &DecompressionTime) {
        if let Some(worker_pool) = &self.worker_pool {
            worker_pool.record_decompression_time(time);
        }
    }

    /// A lane, with a stream where one of its ends is one; and the name of its engine.
    pub(crate) fn lane(&self, stream: Option<Stream>) -> Result<(Lane, String), Fault> {
        let Assembly { ends, depths, pipes, turn, worker_pool, .. } = self;
        let (backend, name) = backend(ends)?;
        let mut engine = Engine::new(backend);
        if let Some(sampler) = stream.as_ref().and_then(|stream| sampler(&ends.settings, stream)) {
            engine.watch(sampler);
        }
        if matches!(ends.sink, Some((Target::Pipe, _))) {
            turn.join(engine.waker());
        }
        let wire = stream.as_ref().map(|stream| stream.handle.clone());
        let (source, sink) = endpoints(ends, stream, *depths, pipes, turn);
        let handle = worker_pool
            .as_ref()
            .map(|worker_pool| worker_pool.handle(engine.waker(), self.pool_requests));
        let lane = Lane::new(Parts {
            engine,
            source,
            passage: Passage::new(steps(ends, None)),
            pool_handle: handle,
            sink,
            plan: ends.source.as_ref().map(|(_, plan)| plan.clone()),
            objects: ends.sink.as_ref().map(|(_, objects)| objects.clone()),
            cancellation: ends.cancellation.clone(),
            stream: wire,
            requests: Request::several(
                requests(ends, *depths) + self.pool_requests,
                ends.settings.request_bytes,
            ),
        });
        Ok((lane, name))
    }
}

/// Samples a stream, where it is TCP and the settings ask for it.
fn sampler(settings: &Settings, stream: &Stream) -> Option<Sampler> {
    let StreamHandle { socket, outbox, .. } = &stream.handle;
    match settings.path_samples {
        PathSamples::On => Sampler::new(socket.clone(), outbox.clone()),
        PathSamples::Off => None,
    }
}

/// The largest request of which every lane can have so many.
pub(crate) fn request_bytes_max(settings: &Settings, of_a_lane: u64) -> u64 {
    let lanes = u64::from(settings.streams.max(1));
    let left = settings.memory_bytes.saturating_sub(fixed_bytes(lanes));
    (left / (lanes * of_a_lane.max(1))).saturating_sub(Buffer::total_bytes(0) as u64)
}

/// The memory with which so many lanes have so many requests each: what is planned at most, where
/// nothing is compressed or generated.
pub(crate) fn memory_bytes_for(lanes: u16, of_a_lane: u64, request_bytes: u32) -> u64 {
    let lanes = u64::from(lanes);
    fixed_bytes(lanes) + lanes * of_a_lane * Buffer::total_bytes(request_bytes) as u64
}

/// What so many lanes take besides their requests.
fn fixed_bytes(lanes: u64) -> u64 {
    PROGRAM_BYTES + LEDGER_BYTES + lanes * (LANE_BYTES + Buffer::ROUNDING_BYTES)
}

/// The memory of a source that generates its data.
pub(crate) fn generator_bytes(source: Option<&Location>) -> u64 {
    match source {
        Some(Location::Synthetic { .. } | Location::EndlessSynthetic { .. }) => {
            DataGenerator::BYTES
        }
        _ => 0,
    }
}

fn planned(ends: &Ends, depths: Depths, lanes: u64, workers: Option<Workers>) -> u64 {
    let body = ends.settings.request_bytes;
    let requests = requests(ends, depths) + pool_requests(lanes, workers);
    let requests = Buffer::several_bytes(requests, body) as u64;
    let codecs = workers.map_or(0, |workers| workers.count * workers.work.bytes(body));
    let cycle = Buffer::several_bytes(cycle_count(ends), body) as u64;
    let made = generator_bytes(ends.source.as_ref().map(|(place, _)| place));
    lanes * (requests + cycle + LANE_BYTES) + made + codecs + PROGRAM_BYTES + LEDGER_BYTES
}

/// How many requests a lane has for its ends.
fn requests(ends: &Ends, depths: Depths) -> usize {
    let requests = match (&ends.source, &ends.sink) {
        // What has arrived is consumed at once: nothing is held while the next arrives.
        (None, Some((Target::Null, _))) if codec_work(ends).is_none() => depths.source,
        _ => depths.source + depths.sink,
    };
    requests as usize
}

/// A lane's share of the requests that keep a worker pool busy.
fn pool_requests(lanes: u64, workers: Option<Workers>) -> usize {
    (workers.map_or(0, |workers| JOBS_PER_WORKER * workers.count) / lanes.max(1)) as usize
}

/// Jobs for each worker of a worker pool: one in work, one waiting for it. With more lanes than
/// that, their own requests are enough.
const JOBS_PER_WORKER: u64 = 2;

/// What is compressed or decompressed here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CodecWork {
    Compress(Coding),
    Choose,
    Decompress,
}

impl CodecWork {
    /// Memory that one worker needs for it.
    fn bytes(self, body_bytes: u32) -> u64 {
        match self {
            CodecWork::Compress(coding) => codec::compressor_bytes(coding, body_bytes),
            CodecWork::Choose => codec::compressor_bytes(Coding::Zstd(9), body_bytes),
            CodecWork::Decompress => codec::decompressor_bytes(body_bytes),
        }
    }
}

/// Inside one process nothing is compressed.
fn codec_work(ends: &Ends) -> Option<CodecWork> {
    match (ends.settings.compress, &ends.source, &ends.sink) {
        (Compress::Always(coding), Some(_), None) => Some(CodecWork::Compress(coding)),
        (Compress::Auto, Some(_), None) => Some(CodecWork::Choose),
        (Compress::Always(_) | Compress::Auto, None, Some(_)) => Some(CodecWork::Decompress),
        (Compress::Off, ..) | (_, Some(_), Some(_)) | (_, None, None) => None,
    }
}

/// The threads that compress or decompress.
#[derive(Clone, Copy, Debug)]
struct Workers {
    work: CodecWork,
    count: u64,
}

impl Workers {
    /// One for each CPU, in half of the memory that lanes leave. With `auto`, nothing is compressed
    /// where that is too little.
    fn of(ends: &Ends, lanes: u64) -> Option<Workers> {
        let work = codec_work(ends)?;
        let Settings { request_bytes, memory_bytes, .. } = ends.settings;
        let least = least_depths(ends);
        let left = memory_bytes.saturating_sub(planned(ends, least, lanes, None));
        let each =
            work.bytes(request_bytes) + JOBS_PER_WORKER * Buffer::total_bytes(request_bytes) as u64;
        let processors = std::thread::available_parallelism().map_or(1, |count| count.get() as u64);
        let count = processors.min(WORKERS_MAX).min((left / 2 / each).max(1));
        let workers = Some(Workers { work, count });
        let fits = planned(ends, least, lanes, workers) <= memory_bytes;
        workers.filter(|_| fits || work != CodecWork::Choose)
    }
}

const WORKERS_MAX: u64 = 32;

/// One pool for all lanes of a side, so that one stream can use every CPU too.
fn worker_pool(ends: &Ends, workers: Option<Workers>) -> Result<Option<Arc<WorkerPool>>, Fault> {
    let Some(Workers { work, count }) = workers else { return Ok(None) };
    let slot = ends.settings.request_bytes;
    let mut passages: Vec<Vec<Box<dyn Step>>> = Vec::new();
    let work = match work {
        CodecWork::Compress(coding) => {
            let compress = || Box::new(CompressStep::new(coding, slot)) as Box<dyn Step>;
            passages.extend((0..count).map(|_| steps(ends, Some(compress()))));
            Work::Compress
        }
        CodecWork::Choose => {
            let advisor = Arc::new(CompressionController::new(count as usize, Arc::new(HostClock)));
            let compress =
                || Box::new(CompressStep::choosing(advisor.clone(), slot)) as Box<dyn Step>;
            passages.extend((0..count).map(|_| steps(ends, Some(compress()))));
            Work::Choose(advisor)
        }
        CodecWork::Decompress => {
            let decompress = || Box::new(DecompressStep::new(slot)) as Box<dyn Step>;
            passages.extend((0..count).map(|_| steps(ends, Some(decompress()))));
            Work::Decompress
        }
    };
    let passages = passages.into_iter().map(Passage::new).collect();
    WorkerPool::start(passages, work, Arc::new(HostClock))
        .map(|worker_pool| Some(Arc::new(worker_pool)))
}

/// Depths as asked for, or as the endpoints need them; less where memory is short, never zero.
fn depths(ends: &Ends, lanes: u64, workers: Option<Workers>) -> Result<Depths, Fault> {
    let settings = &ends.settings;
    let (source_waits, sink_waits) = (source_waits(ends), sink_waits(ends));
    let usual = |waits: Waits| waits.usual_depth(settings.direct);
    let mut source = settings.depth_source.map_or(usual(source_waits), u32::from);
    let mut sink = settings.depth_sink.map_or(usual(sink_waits), u32::from);
    if ends.source.is_none() {
        source = 1;
    }
    match ends.sink {
        None => sink = 1,
        Some((Target::Pipe, _)) => sink = pipe_depth(settings),
        Some(_) => {}
    }
    let keeps = match ends.sink {
        // A pipe's depth is its window, which the other side knows already.
        Some((Target::Pipe, _)) => Keeps::AllOfSink,
        _ => Keeps::between(source_waits, sink_waits),
    };
    let mut depths = Depths { source, sink };
    loop {
        let needed = planned(ends, depths, lanes, workers);
        if needed <= settings.memory_bytes {
            return Ok(depths);
        }
        depths = depths.shortened(keeps).ok_or_else(|| too_little(settings, lanes, needed))?;
    }
}

fn too_little(settings: &Settings, lanes: u64, needed_bytes: u64) -> Fault {
    let (streams, or_fewer) = match lanes {
        1 => ("one stream".to_string(), ""),
        _ => (format!("{lanes} streams"), ", or fewer --streams"),
    };
    Fault::usage(format!(
        "{} of memory are too little for {streams} with requests of {}: give --memory {} or \
         more{or_fewer}",
        Bytes(settings.memory_bytes),
        Bytes(settings.request_bytes.into()),
        Bytes(needed_bytes.next_multiple_of(1 << 20)).typed(),
    ))
}

fn source_waits(ends: &Ends) -> Waits {
    match ends.source {
        Some((Location::Object(_), _)) => Waits::ForStore,
        _ if ends.source_waits => Waits::ForDevice,
        _ => Waits::Never,
    }
}

fn sink_waits(ends: &Ends) -> Waits {
    match ends.sink.as_ref().and_then(|(target, _)| target.volume()) {
        Some(volume) if volume.store().is_some() => Waits::ForStore,
        Some(volume) if volume.waits() => Waits::ForDevice,
        _ => Waits::Never,
    }
}

/// With less, nothing moves.
fn least_depths(ends: &Ends) -> Depths {
    let sink = match &ends.sink {
        Some((Target::Pipe, _)) => pipe_depth(&ends.settings),
        _ => 1,
    };
    Depths { source: 1, sink }
}

/// io_uring where files may wait for a device, blocking calls elsewhere: measured best (runs/).
fn backend(ends: &Ends) -> Result<(Box<dyn Backend>, String), Fault> {
    let threads = || -> Result<Box<dyn Backend>, Fault> {
        let threads = Threads::new().map_err(|error| Fault::system("make an event", &error))?;
        Ok(Box::new(threads))
    };
    let neither_waits = !ends.source_waits && sink_waits(ends) == Waits::Never;
    match ends.settings.engine {
        EngineChoice::Threads => Ok((threads()?, "threads".into())),
        EngineChoice::Auto if neither_waits => Ok((threads()?, "threads".into())),
        choice => match ring() {
            Ok(ring) => Ok((ring, "uring".into())),
            Err(error) if choice == EngineChoice::Auto => {
                Ok((threads()?, format!("threads (no io_uring here: {error})")))
            }
            Err(error) => {
                let text =
                    format!("this host gives no io_uring ({error}): --engine auto takes threads");
                Err(Fault::new(Class::Local, text))
            }
        },
    }
}

#[cfg(target_os = "linux")]
fn ring() -> std::io::Result<Box<dyn Backend>> {
    Ok(Box::new(crate::io::uring::Uring::new()?))
}

#[cfg(not(target_os = "linux"))]
fn ring() -> std::io::Result<Box<dyn Backend>> {
    Err(std::io::ErrorKind::Unsupported.into())
}

/// What lanes share: standard input and output, where an end is a pipe, and the data generator.
#[derive(Debug, Default)]
struct Pipes {
    input: Option<Handle>,
    output: Option<Handle>,
    generator: Option<DataGenerator>,
}

impl Pipes {
    fn open(ends: &Ends) -> Result<Pipes, Fault> {
        use std::os::fd::AsFd;
        let own = |fd: std::io::Result<std::os::fd::OwnedFd>| {
            let fd = fd.map_err(|error| Fault::system("use standard input or output", &error))?;
            Ok(Handle::new(fd))
        };
        let mut pipes = Pipes::default();
        if let Some((Location::Stdio, _)) = &ends.source {
            pipes.input = Some(own(std::io::stdin().as_fd().try_clone_to_owned())?);
        }
        if let Some((
            Location::Synthetic { set, seed, .. } | Location::EndlessSynthetic { set, seed },
            _,
        )) = &ends.source
        {
            pipes.generator = Some(DataGenerator::new(*set, *seed, ends.settings.request_bytes));
        }
        if let Some((Target::Pipe, _)) = &ends.sink {
            pipes.output = Some(own(std::io::stdout().as_fd().try_clone_to_owned())?);
        }
        Ok(pipes)
    }
}

/// The buffers that a lane with a null end here cycles through.
fn cycle(ends: &Ends) -> Vec<Buffer> {
    let body = ends.settings.request_bytes;
    let mut buffers = Buffer::several(cycle_count(ends), body);
    // Memory that was never written is one page of zeros, again and again.
    buffers.iter_mut().for_each(|buffer| buffer.bytes_mut().fill(1));
    buffers
}

/// Over a network only: nothing looks at bytes that go from null to a disk or back.
fn cycle_count(ends: &Ends) -> usize {
    let null = matches!(
        (&ends.source, &ends.sink),
        (Some((Location::Null { .. } | Location::Endless, _)), None)
            | (None, Some((Target::Null, _)))
    );
    let bytes = if null { ends.settings.null_cycle_bytes as usize } else { 0 };
    bytes.div_ceil(Buffer::total_bytes(ends.settings.request_bytes))
}

fn endpoints(
    ends: &Ends,
    stream: Option<Stream>,
    depths: Depths,
    pipes: &Pipes,
    turn: &Arc<Turn>,
) -> (Box<dyn Endpoint>, Box<dyn Endpoint>) {
    let settings = &ends.settings;
    let body = settings.request_bytes;
    let local_source = ends.source.as_ref().map(|(place, _)| match place {
        Location::Path(_) | Location::Object(_) => {
            Box::new(Tree::new(depths.source)) as Box<dyn Endpoint>
        }
        Location::Stdio => {
            let input = pipes.input.clone().expect("standard input is open");
            Box::new(PipeSource::new(input))
        }
        Location::Null { .. } | Location::Endless => {
            Box::new(Null::new(Fill::Nothing, depths.source).through(cycle(ends)))
        }
        Location::Zero { .. } => Box::new(Null::new(Fill::Zeros, depths.source)),
        Location::Random { seed, .. } => Box::new(Null::new(Fill::Seeded(*seed), depths.source)),
        Location::Synthetic { .. } | Location::EndlessSynthetic { .. } => {
            let generator = pipes.generator.clone().expect("made when this side began");
            Box::new(Null::new(Fill::Made(generator), depths.source))
        }
    });
    let local_sink = ends.sink.as_ref().map(|(target, _)| match target {
        Target::Null | Target::Absent { .. } => {
            Box::new(Null::new(Fill::Nothing, depths.sink).through(cycle(ends)))
                as Box<dyn Endpoint>
        }
        Target::Pipe => {
            let output = pipes.output.clone().expect("standard output is open");
            Box::new(PipeSink::new(output, turn.clone(), depths.sink))
        }
        Target::Tree { .. } => Box::new(Tree::new(depths.sink)),
    });
    match (local_source, local_sink, stream) {
        (Some(source), Some(sink), None) => (source, sink),
        (Some(source), None, Some(Stream { handle, protection })) => {
            let stream = StreamSink::new(handle.socket, protection, settings.digest);
            (source, Box::new(stream.verifying(settings.verify)))
        }
        (None, Some(sink), Some(Stream { handle, protection })) => {
            let (digest, socket) = (settings.digest, handle.socket);
            let stream = StreamSource::new(socket, protection, digest, body);
            let stream = match settings.pace {
                Pace::Scavenger => stream.acknowledging_at_once(),
                _ => stream.reading(settings.receive),
            };
            let stream = stream.decompressing(settings.compress).verifying(settings.verify);
            (Box::new(stream), sink)
        }
        _ => panic!("a lane has one source and one sink"),
    }
}

/// The source signs, the sink checks; where both are here the bytes never left memory. Digests are
/// of data before holes are taken out and before compression.
fn steps(ends: &Ends, codec: Option<Box<dyn Step>>) -> Vec<Box<dyn Step>> {
    let (kind, slot) = (ends.settings.digest, ends.settings.request_bytes);
    let mut steps: Vec<Box<dyn Step>> = Vec::new();
    match (&ends.source, &ends.sink) {
        (Some(_), Some(_)) => {
            steps.push(Box::new(Sign::new(kind, slot).with(also(ends))));
        }
        (Some(_), None) => {
            steps.push(Box::new(Sign::new(kind, slot)));
            steps.push(Box::new(Squeeze));
            steps.extend(codec);
        }
        (None, _) => {
            steps.extend(codec);
            steps.push(Box::new(Expand::new(slot)));
            steps.push(Box::new(Check::new(kind, slot).with(also(ends))));
        }
    }
    steps
}

/// Digests besides, where they are asked for, and what a store checks each part with.
fn also(ends: &Ends) -> Also {
    let volume = ends.sink.as_ref().and_then(|(target, _)| target.volume());
    let crc64 = volume.is_some_and(|volume| volume.store().is_some());
    Also { kinds: ends.settings.digest_also, crc64 }
}
