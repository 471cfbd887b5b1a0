//! Threads that do the passage's work beside the lanes, so that one stream can use every CPU.
//!
//! A lane gives its requests to its handle and takes them back there, in any order, all of them.
//! The pool owns a request while it works on it, so neither side waits for the other, except for a
//! short lock.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use crate::io::backend::Wake;
use crate::io::clock::Clock;
use crate::io::request::Request;
use crate::pump::lane::compression_controller::{CompressionController, Sent};
use crate::work::passage::Passage;
use base::codec::{Codec, CodecTime, DecompressionTime};
use base::fault::{Class, Fault};
use base::tally::Stage;
use base::units::{Nanos, Tick};

/// The threads. They end when the last lane has ended.
#[derive(Debug)]
pub struct WorkerPool {
    work: Work,
    queue: Arc<Queue>,
    workers: u16,
    threads: Vec<JoinHandle<()>>,
    /// The time up to which the time of payloads has been reported.
    told_at: Mutex<Tick>,
}

/// What a worker pool does.
#[derive(Clone, Debug)]
pub enum Work {
    Compress,
    /// Compresses as the advisor says.
    Choose(Arc<CompressionController>),
    Decompress,
}

impl Work {
    fn advisor(&self) -> Option<&CompressionController> {
        match self {
            Work::Choose(advisor) => Some(advisor),
            Work::Compress | Work::Decompress => None,
        }
    }
}

/// A request that is back from the worker pool.
#[derive(Debug)]
pub struct Passed {
    pub request: Box<Request>,
    pub spent: [Nanos; Stage::COUNT],
    pub outcome: Result<(), Fault>,
}

/// Where one lane gives its requests and takes them back.
#[derive(Debug)]
pub struct PoolHandle {
    /// Keeps the worker pool running.
    worker_pool: Arc<WorkerPool>,
    completions: Arc<CompletionQueue>,
    /// The count in the completion queue, kept here because it is read in each turn.
    away: usize,
    /// How many of the lane's requests are for the worker pool.
    requests: usize,
}

#[derive(Debug, Default)]
struct Queue {
    jobs: Mutex<Jobs>,
    more: Condvar,
    /// The time of payloads since the last report, by the format in which they came.
    codec_time: Mutex<[CodecTime; Codec::COUNT]>,
}

#[derive(Debug, Default)]
struct Jobs {
    waiting: VecDeque<Job>,
    /// Threads that wait for more.
    idle: usize,
    over: bool,
}

#[derive(Debug)]
struct Job {
    request: Box<Request>,
    completions: Arc<CompletionQueue>,
}

/// Completed requests of one lane, until it takes them.
#[derive(Debug)]
struct CompletionQueue {
    state: Mutex<State>,
    /// All requests are back.
    came: Condvar,
    lane: Arc<dyn Wake>,
}

#[derive(Debug, Default)]
struct State {
    passed: Vec<Passed>,
    /// Requests that the lane has given and not taken back.
    away: usize,
}

/// What each thread of a worker pool does, one request after the other.
#[derive(Debug)]
pub struct Worker {
    queue: Arc<Queue>,
    work: Work,
    clock: Arc<dyn Clock>,
    passage: Passage,
}

impl WorkerPool {
    /// A thread for each passage.
    pub fn start(
        passages: Vec<Passage>,
        work: Work,
        clock: Arc<dyn Clock>,
    ) -> Result<WorkerPool, Fault> {
        let (mut worker_pool, workers) = WorkerPool::without_threads(passages, work, clock);
        for (number, worker) in workers.into_iter().enumerate() {
            let thread = std::thread::Builder::new()
                .name(format!("datapump-work-{}", number + 1))
                .spawn(move || worker.run());
            match thread {
                Ok(thread) => worker_pool.threads.push(thread),
                Err(_) if number > 0 => break, // fewer are enough
                Err(error) => {
                    let text = format!(
                        "the system gives no thread to compress in ({error}): use --compress off"
                    );
                    return Err(Fault::new(Class::Local, text));
                }
            }
        }
        worker_pool.workers = worker_pool.threads.len() as u16;
        Ok(worker_pool)
    }

    /// The same, for a driver that steps the workers in turn.
    pub fn without_threads(
        passages: Vec<Passage>,
        work: Work,
        clock: Arc<dyn Clock>,
    ) -> (WorkerPool, Vec<Worker>) {
        let queue = Arc::new(Queue::default());
        let worker = |passage| Worker {
            queue: queue.clone(),
            work: work.clone(),
            clock: clock.clone(),
            passage,
        };
        let workers: Vec<Worker> = passages.into_iter().map(worker).collect();
        let told_at = Mutex::new(clock.now());
        let count = workers.len() as u16;
        (WorkerPool { work, queue, workers: count, threads: Vec::new(), told_at }, workers)
    }

    /// The handle of a lane that has this many additional requests for the pool.
    pub fn handle(self: &Arc<WorkerPool>, lane: Arc<dyn Wake>, requests: usize) -> PoolHandle {
        if let Some(advisor) = self.work.advisor() {
            advisor.join();
        }
        let completions = CompletionQueue { state: Mutex::default(), came: Condvar::new(), lane };
        PoolHandle {
            worker_pool: self.clone(),
            completions: Arc::new(completions),
            away: 0,
            requests,
        }
    }
}

impl WorkerPool {
    /// The time that payloads have taken since the last report; `None` where that was just now, or
    /// where there were none.
    pub fn decompression_time(&self, now: Tick) -> Option<DecompressionTime> {
        let mut told_at = self.told_at.lock().unwrap_or_else(PoisonError::into_inner);
        let elapsed = now.since(*told_at);
        if elapsed < TELL_EVERY {
            return None;
        }
        *told_at = now;
        let by_codec = std::mem::take(&mut *self.queue.codec_time());
        let has_news = by_codec.iter().any(|codec_time| codec_time.raw_bytes > 0);
        has_news.then_some(DecompressionTime { by_codec, elapsed, workers: self.workers })
    }

    pub fn record_decompression_time(&self, time: &DecompressionTime) {
        if let Some(advisor) = self.work.advisor() {
            advisor.record_decompression_time(time);
        }
    }
}

const TELL_EVERY: Nanos = Nanos::from_millis(200);
/// A lane is not told at once of a payload that took no longer.
const QUICK: Nanos = Nanos(500_000);

impl Drop for WorkerPool {
    fn drop(&mut self) {
        self.queue.lock().over = true;
        self.queue.more.notify_all();
        for thread in self.threads.drain(..) {
            if thread.join().is_err() && !std::thread::panicking() {
                panic!("a thread that compresses has panicked");
            }
        }
    }
}

impl Drop for PoolHandle {
    fn drop(&mut self) {
        if let Some(advisor) = self.worker_pool.work.advisor() {
            advisor.leave();
        }
    }
}

impl PoolHandle {
    /// True for a request that the worker pool has something to do for. One that is neither
    /// compressed nor probed is done sooner where it lies in the cache.
    pub fn takes(&self, request: &Request) -> bool {
        match &self.worker_pool.work {
            Work::Compress => true,
            Work::Choose(advisor) => advisor.should_probe(),
            Work::Decompress => request.label.codec != Codec::Raw,
        }
    }

    /// How many of the lane's requests are of no use now: without them what is in flight fits the
    /// caches better.
    pub(crate) fn idle_requests(&self) -> usize {
        let is_at_work =
            self.worker_pool.work.advisor().is_none_or(CompressionController::probes_all);
        if is_at_work { 0 } else { self.requests }
    }

    /// The lane has sent a frame.
    pub fn sent(&self, now: Tick, sent: Sent) {
        if let Some(advisor) = self.worker_pool.work.advisor() {
            advisor.sent(now, sent);
        }
    }

    /// Requests that are with the worker pool, or completed and not taken yet.
    pub fn away(&self) -> usize {
        self.away
    }

    pub fn give(&mut self, request: Box<Request>) {
        self.away += 1;
        self.completions.lock().away += 1;
        let queue = &self.worker_pool.queue;
        let mut jobs = queue.lock();
        jobs.waiting.push_back(Job { request, completions: self.completions.clone() });
        let has_idle = jobs.idle > 0;
        drop(jobs);
        if has_idle {
            queue.more.notify_one();
        }
    }

    /// Moves completed requests to the end of `into`.
    pub fn take(&mut self, into: &mut Vec<Passed>) {
        if self.away > 0 {
            let mut state = self.completions.lock();
            state.away -= state.passed.len();
            self.away = state.away;
            into.append(&mut state.passed);
        }
    }

    /// Waits until all requests are back.
    pub fn take_all(&mut self, into: &mut Vec<Passed>) {
        let is_out = |state: &mut State| state.passed.len() < state.away;
        let waited = self.completions.came.wait_while(self.completions.lock(), is_out);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner);
        into.append(&mut state.passed);
        (state.away, self.away) = (0, 0);
    }
}

impl Worker {
    fn run(mut self) {
        while let Some(job) = self.queue.next() {
            self.pass(job);
        }
    }

    /// Does the first job that waits; false where there is none.
    pub fn step(&mut self) -> bool {
        let job = self.queue.lock().waiting.pop_front();
        let was_there = job.is_some();
        job.into_iter().for_each(|job| self.pass(job));
        was_there
    }

    fn pass(&mut self, Job { mut request, completions }: Job) {
        let (codec, came) = (request.label.codec, request.raw_len());
        let outcome = self.passage.pass(&mut request, || self.clock.now());
        let spent = self.passage.take_spent();
        match self.work.advisor() {
            Some(advisor) => {
                advisor.record_overhead(request.raw_len(), spent[Stage::Digest as usize])
            }
            None => self.queue.note(codec, came, &spent),
        }
        completions.put(Passed { request, spent, outcome });
    }
}

impl Queue {
    fn note(&self, codec: Codec, raw_bytes: u32, spent: &[Nanos; Stage::COUNT]) {
        let codec_time = &mut self.codec_time()[codec as usize];
        codec_time.raw_bytes += u64::from(raw_bytes);
        spent.iter().for_each(|stage| codec_time.spent += *stage);
    }

    fn codec_time(&self) -> MutexGuard<'_, [CodecTime; Codec::COUNT]> {
        self.codec_time.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `None` when there will be no more jobs.
    fn next(&self) -> Option<Job> {
        let mut jobs = self.lock();
        while jobs.waiting.is_empty() && !jobs.over {
            jobs.idle += 1;
            jobs = self.more.wait(jobs).unwrap_or_else(PoisonError::into_inner);
            jobs.idle -= 1;
        }
        jobs.waiting.pop_front()
    }

    fn lock(&self) -> MutexGuard<'_, Jobs> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CompletionQueue {
    /// The lane is woken for several at a time where they complete quickly: each wake-up takes a
    /// CPU that another thread is using.
    fn put(&self, passed: Passed) {
        let spent: u64 = passed.spent.iter().map(|stage| stage.0).sum();
        let mut state = self.lock();
        state.passed.push(passed);
        let (done, away) = (state.passed.len(), state.away);
        drop(state);
        if done == away {
            self.came.notify_one();
        }
        if done * 2 >= away || spent > QUICK.0 {
            self.lane.wake();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::io::clock::HostClock;
    use crate::work::codec::CompressStep;
    use base::codec::{Codec, Coding};
    use base::extent::Extent;
    use base::label::{Kind, Label};

    #[derive(Debug)]
    struct Asleep;

    impl Wake for Asleep {
        fn wake(&self) {}
    }

    fn start(passages: Vec<Passage>, work: Work) -> WorkerPool {
        WorkerPool::start(passages, work, Arc::new(HostClock)).unwrap()
    }

    #[test]
    fn everything_comes_back_to_its_own_handle() {
        const BODY_BYTES: u32 = 8192;
        for workers in [1, 3] {
            let passage =
                || Passage::new(vec![Box::new(CompressStep::new(Coding::Zlib(1), BODY_BYTES))]);
            let worker_pool =
                Arc::new(start((0..workers).map(|_| passage()).collect(), Work::Compress));
            let mut handles: Vec<PoolHandle> =
                (0..2).map(|_| worker_pool.handle(Arc::new(Asleep), 0)).collect();
            drop(worker_pool);
            for round in 0..40_u32 {
                let handle = &mut handles[(round % 2) as usize];
                let mut request = Request::new(BODY_BYTES);
                let extent = Extent { start: round.into(), len: BODY_BYTES };
                let body_len = BODY_BYTES;
                request.label = Label { kind: Kind::Data, extent, body_len, ..Label::default() };
                handle.give(request);
            }
            for (number, handle) in handles.iter_mut().enumerate() {
                let mut passed = Vec::new();
                handle.take(&mut passed);
                assert_eq!(handle.away() + passed.len(), 20);
                handle.take_all(&mut passed);
                assert_eq!((handle.away(), passed.len()), (0, 20));
                for Passed { request, outcome, .. } in passed {
                    assert_eq!(outcome, Ok(()));
                    assert_eq!(request.label.extent.start % 2, number as u64);
                    assert_eq!(request.label.codec, Codec::Deflate);
                }
            }
        }
    }

    #[derive(Debug)]
    struct Ringing(mpsc::SyncSender<()>);

    impl Wake for Ringing {
        fn wake(&self) {
            let _ = self.0.try_send(());
        }
    }

    #[test]
    fn a_lane_that_has_given_all_it_has_is_woken() {
        for (workers, requests) in [(1, 1), (1, 5), (3, 4)] {
            let passages = (0..workers).map(|_| Passage::new(Vec::new())).collect();
            let worker_pool = Arc::new(start(passages, Work::Compress));
            let (rings, rung) = mpsc::sync_channel(1);
            let mut handle = worker_pool.handle(Arc::new(Ringing(rings)), 0);
            drop(worker_pool);
            let mut pool: Vec<Passed> = Vec::new();
            (0..requests).for_each(|_| handle.give(Request::new(4096)));
            for _ in 0..2000 {
                let woken = rung.recv_timeout(std::time::Duration::from_secs(60));
                assert_eq!(woken, Ok(()), "{} are away and nobody wakes the lane", handle.away());
                handle.take(&mut pool);
                pool.drain(..).for_each(|passed| handle.give(passed.request));
            }
        }
    }

    #[test]
    fn a_stretch_without_compressed_payloads_is_not_counted_with_what_follows() {
        let passages = vec![Passage::new(Vec::new())];
        let worker_pool = start(passages, Work::Decompress);
        let begun = HostClock.now();
        let after = |millis| begun.after(Nanos::from_millis(millis));
        assert_eq!(worker_pool.decompression_time(after(10_000)), None);
        let spent = [Nanos::from_millis(50), Nanos(0), Nanos(0)];
        worker_pool.queue.note(Codec::Zstd, 1 << 20, &spent);
        assert_eq!(worker_pool.decompression_time(after(10_100)), None, "that was just now");
        let told = worker_pool.decompression_time(after(10_250)).unwrap();
        assert_eq!((told.elapsed, told.workers), (Nanos::from_millis(250), 1));
        assert_eq!(told.by_codec[Codec::Zstd as usize].spent, spent[0]);
    }
}
