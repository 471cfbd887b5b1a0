//! Files through io_uring; sockets, and calls that only copy, as blocking calls beside it.
//!
//! Measured (`runs/`): one TCP stream gains nothing from a ring; direct I/O at a depth of four and
//! more costs half of what it costs with threads.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Arc;

use io_uring::{IoUring, opcode, squeue, types};

use super::backend::{Backend, Completion, Speed, Verb, Wait, Wake};
use super::clock;
use super::request::Request;
use super::sampler::{Awaited, Sampler};
use super::threads::Threads;
use base::limits::DEPTH_MAX;
use base::units::Tick;

/// The ring of one lane.
pub struct Uring {
    /// Declared first: the ring is dropped before the buffers that may be registered with it.
    ring: IoUring,
    /// Requests on the ring, by the number in their user data.
    in_flight: Vec<Option<(Verb, Box<Request>)>>,
    free: Vec<u32>,
    in_ring: usize,
    registered: Registered,
    threads: Threads,
}

/// Whether the buffers are registered. Registration touches every page of them: a copy of few
/// requests ends before it has used most of them.
#[derive(Debug)]
enum Registered {
    No,
    /// Registered after `launches` more submissions.
    In {
        launches: usize,
        stretches: Vec<Stretch>,
    },
    Yes,
}

/// A buffer as it is registered.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    address: usize,
    bytes: usize,
}

impl Uring {
    /// Sets up a ring. Sandboxes and old kernels refuse, each in their own way.
    pub fn new() -> io::Result<Uring> {
        let entries = u32::from(DEPTH_MAX) * 2;
        // Not SINGLE_ISSUER: a lane is built on another thread than the one it runs on.
        let ring = IoUring::builder()
            .setup_coop_taskrun()
            .build(entries)
            .or_else(|_| IoUring::new(entries))?;
        Uring::probe(&ring)?;
        Ok(Uring {
            ring,
            in_flight: Vec::new(),
            free: Vec::new(),
            in_ring: 0,
            registered: Registered::No,
            threads: Threads::new()?,
        })
    }

    fn probe(ring: &IoUring) -> io::Result<()> {
        let mut probe = io_uring::Probe::new();
        ring.submitter().register_probe(&mut probe)?;
        let needed = [
            opcode::Read::CODE,
            opcode::Write::CODE,
            opcode::ReadFixed::CODE,
            opcode::WriteFixed::CODE,
        ];
        match needed.iter().all(|code| probe.is_supported(*code)) {
            true => Ok(()),
            false => {
                Err(io::Error::new(io::ErrorKind::Unsupported, "the kernel's ring is too old"))
            }
        }
    }

    fn launch(&mut self, verb: Verb, request: Box<Request>) {
        let id = self.free.pop().unwrap_or_else(|| {
            self.in_flight.push(None);
            self.in_flight.len() as u32 - 1
        });
        self.register_when_due();
        let entry = self.entry(&verb, &request).user_data(u64::from(id));
        self.in_flight[id as usize] = Some((verb, request));
        self.in_ring += 1;
        // SAFETY: the entry points into the request's buffer and names a file that its verb owns;
        // both stay in `in_flight`, unmoved and untouched, until the completion with this id is
        // reaped, and for good where the ring is dropped before that.
        while unsafe { self.ring.submission().push(&entry) }.is_err() {
            self.ring.submit().expect("a ring that takes what it is given");
        }
        // Submit at once: the lane may be about to block in a send.
        if let Err(error) = self.ring.submit() {
            assert!(is_busy(&error), "the ring refuses work: {error}");
        }
    }

    /// Registered buffers save the kernel a page walk for each request. Without the memory
    /// allowance (8 MiB for an unprivileged user) the ring works as well with plain ones.
    fn register_when_due(&mut self) {
        let Registered::In { launches, stretches } = &mut self.registered else { return };
        if *launches > 0 {
            *launches -= 1;
            return;
        }
        let slices = stretches
            .iter()
            .map(|stretch| libc::iovec {
                iov_base: stretch.address as *mut libc::c_void,
                iov_len: stretch.bytes,
            })
            .collect::<Vec<_>>();
        // SAFETY: the buffers belong to requests of the lane that owns this ring and that drains it
        // before either is dropped, or leaks what is on it; their memory never moves.
        let told = unsafe { self.ring.submitter().register_buffers(&slices) };
        self.registered = if told.is_ok() { Registered::Yes } else { Registered::No };
    }

    fn entry(&self, verb: &Verb, request: &Request) -> squeue::Entry {
        let pending = request.pending();
        let (at, len) =
            (request.buffer.address().wrapping_add(pending.start), pending.len() as u32);
        let fixed = match self.registered {
            Registered::Yes => request.buffer.fixed,
            Registered::No | Registered::In { .. } => None,
        };
        let moved = u64::from(request.moved);
        match verb {
            Verb::ReadAt { file, offset, .. } => {
                let fd = types::Fd(file.fd().as_raw_fd());
                match fixed {
                    Some(index) => {
                        opcode::ReadFixed::new(fd, at, len, index).offset(offset + moved).build()
                    }
                    None => opcode::Read::new(fd, at, len).offset(offset + moved).build(),
                }
            }
            Verb::WriteAt { file, offset, .. } => {
                let fd = types::Fd(file.fd().as_raw_fd());
                match fixed {
                    Some(index) => {
                        opcode::WriteFixed::new(fd, at, len, index).offset(offset + moved).build()
                    }
                    None => opcode::Write::new(fd, at, len).offset(offset + moved).build(),
                }
            }
            other => panic!("{other:?} does not go on the ring"),
        }
    }

    fn collect(&mut self, completions: &mut Vec<Completion>) {
        self.threads.collect(completions);
        let entries = self.ring.completion();
        for entry in entries {
            let id = entry.user_data() as u32;
            let (verb, request) =
                self.in_flight[id as usize].take().expect("a completion of something in flight");
            self.free.push(id);
            self.in_ring -= 1;
            let result = match entry.result() {
                count @ 0.. => Ok(count as u32),
                errno => Err(io::Error::from_raw_os_error(-errno)),
            };
            completions.push(Completion { verb, request, result });
        }
    }

    /// Waits for the ring alone, the cheapest wait. A lane whose stream is sampled returns for each
    /// sample; on a kernel that cannot do that (before Linux 5.11) samples are late.
    fn wait_ring(&mut self) -> io::Result<()> {
        self.threads.begin();
        loop {
            let timed = self.ring.params().is_feature_ext_arg();
            let due = self.threads.sampler().filter(|_| timed).map(|sampler| sampler.due());
            let waited = match due {
                Some(due) => {
                    let wait = due.since(clock::now()).0;
                    let wait = types::Timespec::from(std::time::Duration::from_nanos(wait));
                    let args = types::SubmitArgs::new().timespec(&wait);
                    self.ring.submitter().submit_with_args(1, &args)
                }
                None => self.ring.submit_and_wait(1),
            };
            if let Some(sampler) = self.threads.sampler() {
                sampler.lap(sampler.awaited());
            }
            match waited {
                Err(error) if error.raw_os_error() == Some(libc::ETIME) => {}
                Err(error) if !is_busy(&error) && !is_interrupted(&error) => return Err(error),
                Ok(_) | Err(_) => return Ok(()),
            }
        }
    }
}

impl Drop for Uring {
    fn drop(&mut self) {
        // Only a lane that panics leaves requests on the ring. The kernel may go on with them after
        // the ring is closed, so their memory and files are leaked until this process ends.
        self.in_flight.drain(..).for_each(std::mem::forget);
    }
}

impl Backend for Uring {
    fn name(&self) -> &'static str {
        "uring"
    }

    fn now(&self) -> Tick {
        self.threads.now()
    }

    fn submit(&mut self, verb: Verb, request: Box<Request>) {
        match verb {
            Verb::ReadAt { speed: Speed::Cached | Speed::Device, .. }
            | Verb::WriteAt { speed: Speed::Cached | Speed::Device, .. } => {
                let awaited = match verb {
                    Verb::ReadAt { .. } => Awaited::Source,
                    _ => Awaited::Sink,
                };
                self.threads.begin();
                self.launch(verb, request);
                self.threads.lap(awaited);
            }
            _ => self.threads.submit(verb, request),
        }
    }

    fn reap(&mut self, wait: Wait, completions: &mut Vec<Completion>) -> io::Result<()> {
        self.collect(completions);
        if !completions.is_empty() {
            return Ok(());
        }
        if self.in_ring == 0 {
            return self.threads.reap(wait, completions);
        }
        match wait {
            Wait::Completion if self.threads.waiting() == 0 => self.wait_ring()?,
            Wait::Poll => {}
            Wait::Completion | Wait::CompletionOrWake => {
                let ring = RingFd(self.ring.as_raw_fd());
                self.threads.wait(None, Some(&ring))?;
            }
            Wait::Until(deadline) => {
                let ring = RingFd(self.ring.as_raw_fd());
                self.threads.wait(Some(deadline), Some(&ring))?;
            }
        }
        self.collect(completions);
        self.threads.receive_ready(completions);
        Ok(())
    }

    fn waker(&self) -> Arc<dyn Wake> {
        self.threads.waker()
    }

    fn watch(&mut self, sampler: Sampler) {
        self.threads.watch(sampler);
    }

    fn sampler(&mut self) -> Option<&mut Sampler> {
        self.threads.sampler()
    }

    fn register(&mut self, requests: &mut [Box<Request>]) {
        let mut stretches = Vec::with_capacity(requests.len());
        for (index, request) in requests.iter_mut().enumerate() {
            request.buffer.fixed = u16::try_from(index).ok();
            let (address, bytes) = (request.buffer.address() as usize, request.buffer.len());
            stretches.push(Stretch { address, bytes });
        }
        self.registered = Registered::In { launches: 2 * stretches.len(), stretches };
    }
}

impl std::fmt::Debug for Uring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Uring({} in flight)", self.in_ring)
    }
}

/// A ring's descriptor, to be polled with others while the ring is alive.
struct RingFd(i32);

impl AsFd for RingFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: only made inside `reap`, which borrows the ring for longer than this value lives.
        unsafe { BorrowedFd::borrow_raw(self.0) }
    }
}

fn is_interrupted(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::Interrupted
}

fn is_busy(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EBUSY | libc::EAGAIN))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::volume::Handle;
    use base::limits::HEADROOM_BYTES;

    /// True while this address is mapped.
    fn is_mapped(address: usize) -> bool {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        maps.lines().any(|line| {
            let (start, end) = line.split(' ').next().unwrap().split_once('-').unwrap();
            let at = |text| usize::from_str_radix(text, 16).unwrap();
            (at(start)..at(end)).contains(&address)
        })
    }

    /// A lane that panics drops its ring with requests on it.
    #[test]
    fn what_the_kernel_may_write_to_outlives_the_ring() {
        let (from, into) = rustix::pipe::pipe().unwrap();
        let mut ring = Uring::new().expect("this host has io_uring");
        let mut request = Request::several(1, 4096).pop().unwrap();
        request.ask(HEADROOM_BYTES..HEADROOM_BYTES + 4096);
        let address = request.buffer.address() as usize;
        // Nothing comes through this pipe: the kernel waits.
        let verb = Verb::ReadAt { file: Handle::new(from), offset: 0, speed: Speed::Device };
        ring.submit(verb, request);
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
            assert_eq!(ring.in_ring, 0, "a lane that panics");
        }));
        assert!(panicked.is_err());
        assert!(is_mapped(address), "the kernel has a request with memory that is gone");
        drop(into);
    }

    #[test]
    fn knows_its_buffers_when_they_have_gone_round() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        let file = Handle::new(std::fs::File::create(path).unwrap().into());
        let mut ring = Uring::new().expect("this host has io_uring");
        let mut pool = Request::several(2, 4096);
        ring.register(&mut pool);
        let mut completions = Vec::new();
        for launch in 1..=5 {
            let mut request = pool.pop().unwrap();
            request.ask(HEADROOM_BYTES..HEADROOM_BYTES + 4096);
            let verb = Verb::WriteAt { file: file.clone(), offset: 0, speed: Speed::Device };
            ring.submit(verb, request);
            ring.reap(Wait::Completion, &mut completions).unwrap();
            pool.extend(completions.drain(..).map(|completion| {
                assert_eq!(completion.result.unwrap(), 4096);
                completion.request
            }));
            let knows = matches!(ring.registered, Registered::Yes);
            assert_eq!(knows, launch > 4, "after {launch}");
        }
    }
}
