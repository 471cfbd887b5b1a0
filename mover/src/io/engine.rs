//! What every backend would repeat: the rest of a short transfer, retries, and the number of
//! requests in flight.

use std::io;
use std::sync::Arc;

use super::backend::{Backend, Completion, Verb, Wait, Wake};
use super::request::Request;
use super::sampler::Sampler;
use base::units::Tick;

/// Calls on data, and those that returned less than was asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub calls: u64,
    pub partial_returns: u64,
    pub partial_bytes: u64,
    /// File requests submitted with no other in flight here: the device may have been idle.
    pub starts: u64,
}

/// A backend with its bookkeeping. Dropped only with nothing in flight.
#[derive(Debug)]
pub struct Engine {
    backend: Box<dyn Backend>,
    in_flight: usize,
    files_in_flight: usize,
    is_watched: bool,
    pub counts: Counts,
    completions: Vec<Completion>,
}

impl Engine {
    pub fn new(backend: Box<dyn Backend>) -> Engine {
        Engine {
            backend,
            in_flight: 0,
            files_in_flight: 0,
            is_watched: false,
            counts: Counts::default(),
            completions: Vec::new(),
        }
    }

    pub fn name(&self) -> &'static str {
        self.backend.name()
    }

    pub fn now(&self) -> Tick {
        self.backend.now()
    }

    pub fn waker(&self) -> Arc<dyn Wake> {
        self.backend.waker()
    }

    pub fn register(&mut self, requests: &mut [Box<Request>]) {
        self.backend.register(requests);
    }

    /// Samples a stream on the thread that uses this engine.
    pub fn watch(&mut self, sampler: Sampler) {
        self.backend.watch(sampler);
        self.is_watched = true;
    }

    /// No clock needs to be read where no stream is sampled.
    pub(crate) fn is_watched(&self) -> bool {
        self.is_watched
    }

    pub fn sampler(&mut self) -> Option<&mut Sampler> {
        match self.is_watched {
            true => self.backend.sampler(),
            false => None,
        }
    }

    /// Requests that have been submitted and not been returned.
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    pub fn submit(&mut self, verb: Verb, mut request: Box<Request>) {
        request.moved = 0;
        self.in_flight += 1;
        self.counts.calls += 1;
        if verb.is_of_files() {
            self.counts.starts += u64::from(self.files_in_flight == 0);
            self.files_in_flight += 1;
        }
        self.backend.submit(verb, request);
    }

    /// Returns what has ended, with its outcome. The rest of a short transfer is submitted again.
    pub fn reap(&mut self, wait: Wait, done: &mut Vec<Box<Request>>) -> io::Result<()> {
        let mut completions = std::mem::take(&mut self.completions);
        let reaped = self.backend.reap(wait, &mut completions);
        for completion in completions.drain(..) {
            let is_of_files = completion.verb.is_of_files();
            if let Some(request) = self.settle(completion) {
                self.in_flight -= 1;
                self.files_in_flight -= usize::from(is_of_files);
                done.push(request);
            }
        }
        self.completions = completions;
        reaped
    }

    /// The request when its verb has ended; `None` when the rest is submitted again.
    fn settle(&mut self, completion: Completion) -> Option<Box<Request>> {
        let Completion { verb, mut request, result } = completion;
        match result {
            Ok(count) => {
                let asked = request.span.end - request.span.start - request.moved;
                assert!(count <= asked, "{verb:?} moved {count} of {asked} bytes");
                request.moved += count;
                if request.moved < request.need {
                    self.counts.partial_returns += 1;
                    self.counts.partial_bytes += u64::from(count);
                }
                if count > 0 && request.moved < request.need {
                    self.again(verb, request);
                    return None;
                }
                request.outcome = Ok(request.moved);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                self.again(verb, request);
                return None;
            }
            Err(error) => request.outcome = Err(error.raw_os_error().unwrap_or(libc::EIO)),
        }
        request.hops += 1;
        Some(request)
    }

    fn again(&mut self, verb: Verb, request: Box<Request>) {
        self.counts.calls += 1;
        self.backend.submit(verb, request);
    }

    /// Gives up the requests in flight, as the end of a process does. For simulations.
    pub fn abandon(&mut self) {
        self.in_flight = 0;
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        // A lane that fails drains first; one that panics must not hide its own message.
        if !std::thread::panicking() {
            assert_eq!(self.in_flight, 0, "an engine dropped with requests in flight");
        }
    }
}
