//! Lanes of a simulated host: real ones, over backends of the world, with pools of few buffers.

use std::sync::Arc;

use base::codec::{Coding, Compress};
use base::settings::Settings;
use mover::ends::endpoint::Endpoint;
use mover::ends::stream::{StreamSink, StreamSource};
use mover::ends::tree::Tree;
use mover::io::engine::Engine;
use mover::io::request::Request;
use mover::io::sim::{Rng, World};
use mover::pump::cancellation::Cancellation;
use mover::pump::lane::assembly::Stream;
use mover::pump::lane::compression_controller::CompressionController;
use mover::pump::lane::worker_pool::{Work, Worker, WorkerPool};
use mover::pump::lane::{Lane, Parts};
use mover::pump::sink::objects::Objects;
use mover::pump::source::plan::Plan;
use mover::pump::transfer::Ledgers;
use mover::work::codec::{CompressStep, DecompressStep};
use mover::work::digest::{Check, Sign};
use mover::work::passage::{Passage, Step};
use mover::work::sparse::{Expand, Squeeze};

use super::Fixture;

/// What lanes of a host are made of.
pub(crate) struct Lanes {
    plan: Option<Arc<Plan>>,
    objects: Option<Arc<Objects>>,
    cancellation: Arc<Cancellation>,
    world: Arc<World>,
    settings: Settings,
}

impl Lanes {
    pub(crate) fn new(fixture: &Fixture, ledgers: &Ledgers) -> Lanes {
        Lanes {
            plan: ledgers.plan.clone(),
            objects: ledgers.objects.clone(),
            cancellation: ledgers.cancellation.clone(),
            world: fixture.world.clone(),
            settings: fixture.settings.clone(),
        }
    }

    pub(crate) fn lane(
        &self,
        stream: Option<Stream>,
        compressors: Option<&Compressors>,
        rng: &mut Rng,
    ) -> Lane {
        let (slot, digest) = (self.settings.request_bytes, self.settings.digest);
        let depth = 1 + rng.below(3) as u32;
        let number = stream.as_ref().map_or(0, |stream| stream.handle.number);
        // Without workers each stream compresses in another way, and some not at all.
        let coding =
            [Coding::Raw, Coding::Lz4, Coding::Zlib(1), Coding::Zstd(1)][number as usize % 4];
        let wire = stream.as_ref().map(|stream| stream.handle.clone());
        let tree = || Box::new(Tree::new(depth)) as Box<dyn Endpoint>;
        let is_source = self.plan.is_some();
        let (source, sink): (Box<dyn Endpoint>, Box<dyn Endpoint>) = match stream {
            None => (tree(), tree()),
            Some(Stream { handle, protection }) if is_source => {
                let stream = StreamSink::new(handle.socket, protection, digest);
                (tree(), Box::new(stream.verifying(self.settings.verify)))
            }
            Some(Stream { handle, protection }) => {
                let stream = StreamSource::new(handle.socket, protection, digest, slot);
                let compress = match compressors {
                    Some(_) => self.settings.compress,
                    None => Compress::Always(coding),
                };
                (Box::new(stream.decompressing(compress).verifying(self.settings.verify)), tree())
            }
        };
        let codec = compressors.is_none().then(|| codec(coding, is_source, slot));
        let steps = steps(&self.settings, (is_source, wire.is_none()), codec);
        let engine = Engine::new(Box::new(self.world.backend()));
        let handle =
            compressors.map(|compressors| compressors.worker_pool.handle(engine.waker(), 2));
        let requests = 2 + rng.below(2) + if handle.is_some() { 2 } else { 0 };
        Lane::new(Parts {
            engine,
            source,
            passage: Passage::new(steps),
            pool_handle: handle,
            sink,
            plan: self.plan.clone(),
            objects: self.objects.clone(),
            cancellation: self.cancellation.clone(),
            stream: wire,
            requests: (0..requests).map(|_| Request::new(slot)).collect(),
        })
    }
}

/// How a side compresses, or decompresses.
fn codec(coding: Coding, compresses: bool, slot: u32) -> Box<dyn Step> {
    match compresses {
        true => Box::new(CompressStep::new(coding, slot)),
        false => Box::new(DecompressStep::new(slot)),
    }
}

fn steps(
    settings: &Settings,
    (is_source, is_local): (bool, bool),
    codec: Option<Box<dyn Step>>,
) -> Vec<Box<dyn Step>> {
    let (digest, slot) = (settings.digest, settings.request_bytes);
    let mut steps: Vec<Box<dyn Step>> = Vec::new();
    match (is_source, is_local) {
        (true, true) => steps.push(Box::new(Sign::new(digest, slot))),
        (true, false) => {
            steps.push(Box::new(Sign::new(digest, slot)));
            steps.push(Box::new(Squeeze));
            steps.extend(codec);
        }
        (false, _) => {
            steps.extend(codec);
            steps.push(Box::new(Expand::new(slot)));
            steps.push(Box::new(Check::new(digest, slot)));
        }
    }
    steps
}

/// The workers of a side, which step by turns.
pub(crate) struct Compressors {
    pub worker_pool: Arc<WorkerPool>,
    workers: Vec<Worker>,
    /// The source's choices depend on what decompression takes here.
    pub tells: bool,
}

impl Compressors {
    /// Workers in some seeds; in others the lanes do it themselves.
    pub(crate) fn new(fixture: &mut Fixture, is_source: bool) -> Option<Compressors> {
        let settings = &fixture.settings;
        if settings.compress == Compress::Off {
            return None;
        }
        let slot = settings.request_bytes;
        let count = 1 + fixture.rng.below(3);
        let clock = fixture.world.clone();
        let work = match (is_source, settings.compress) {
            (false, _) => Work::Decompress,
            (true, Compress::Auto) => {
                Work::Choose(Arc::new(CompressionController::new(count as usize, clock.clone())))
            }
            (true, _) => Work::Compress,
        };
        let step = || -> Box<dyn Step> {
            match (&work, settings.compress) {
                (Work::Choose(advisor), _) => {
                    Box::new(CompressStep::choosing(advisor.clone(), slot))
                }
                (Work::Compress, Compress::Always(coding)) => {
                    Box::new(CompressStep::new(coding, slot))
                }
                _ => Box::new(DecompressStep::new(slot)),
            }
        };
        let passage = |_| Passage::new(steps(settings, (is_source, false), Some(step())));
        let passages = (0..count).map(passage).collect();
        let (worker_pool, workers) = WorkerPool::without_threads(passages, work.clone(), clock);
        let tells = !is_source && settings.compress == Compress::Auto;
        Some(Compressors { worker_pool: Arc::new(worker_pool), workers, tells })
    }

    /// One of them does what waits first.
    pub(crate) fn step(&mut self, rng: &mut Rng) {
        let worker = rng.below(self.workers.len() as u64) as usize;
        self.workers[worker].step();
    }

    /// All that waits is done.
    pub(crate) fn finish(&mut self) {
        while self.workers[0].step() {}
    }
}
