//! The sockets of one side's data streams: watched, paced and cut.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use crate::io::backend::Wake;
use crate::io::tcp;
use crate::io::volume::Handle;
use crate::pump::cancellation::Cancellation;
use crate::pump::lane::StreamHandle;
use crate::pump::run::pace_controller::{DeepQueue, Look, PaceController};
use crate::pump::run::paths::{Paths, When};
use crate::pump::run::scavenger::Scavenger;
use crate::pump::run::stream_controller;
use crate::pump::transfer::Check;
use crate::pump::watch::Watch;
use crate::wire::message::Message;
use crate::wire::preamble::CONTROL_STREAM;
use base::job::{PathRole, PathSide, StreamPath};
use base::path::PathSample;
use base::settings::{Pace, Settings};
use base::units::{Nanos, Tick};

/// One stream's socket, until both sides have released the stream.
#[derive(Debug)]
struct Each {
    handle: StreamHandle,
    lane: Arc<dyn Wake>,
    lane_is_over: bool,
}

/// What chooses the pace.
#[derive(Debug)]
enum Controller {
    Auto(Box<PaceController>),
    Scavenger(Scavenger),
}

impl Controller {
    fn look(&mut self, at: Tick, looks: &[Look]) -> Option<u64> {
        match self {
            Controller::Auto(controller) => controller.look(at, looks),
            Controller::Scavenger(controller) => controller.look(at, looks),
        }
    }
}

/// All sockets of a side.
#[derive(Debug)]
pub(super) struct Sockets {
    role: PathRole,
    each: BTreeMap<u32, Each>,
    cancellation: Arc<Cancellation>,
    /// The samples of all of them.
    paths: Paths,
    /// Chooses a pace, where the user leaves it to us, and what each stream was given last.
    controller: Option<Controller>,
    paced: (Option<u64>, usize),
    /// What each stream has delivered, those included that have ended.
    delivered: BTreeMap<u32, u64>,
    /// When sockets are checked again.
    tend_at: Tick,
    /// The largest window that the peer's TCP has advertised; TCP keeps no history of it.
    pub window_seen_bytes: u64,
}

/// A limit that nothing reaches, and yet a limit: TCP begins to pace what it sends.
const PACE_UNLIMITED: u64 = 1 << 50;
/// Paths with a shorter round trip are not paced.
const PACED_FROM_RTT: Nanos = Nanos::from_millis(2);
/// How often sockets are checked for their pace and their windows.
const TEND_EVERY: Nanos = Nanos::from_millis(10);

impl Sockets {
    pub(super) fn new(role: PathRole, cancellation: Arc<Cancellation>) -> Sockets {
        Sockets {
            role,
            each: BTreeMap::new(),
            cancellation,
            paths: Paths::default(),
            controller: None,
            paced: (None, 0),
            delivered: BTreeMap::new(),
            tend_at: Tick(0),
            window_seen_bytes: 0,
        }
    }

    pub(super) fn add(&mut self, handle: StreamHandle, lane: Arc<dyn Wake>) {
        self.paths.add(&handle, self.role);
        self.cancellation.hold_socket(handle.socket.clone());
        self.each.insert(handle.number, Each { handle, lane, lane_is_over: false });
        self.tend_at = Tick(0); // streams join at any time: a new one is tended in the next turn
    }

    pub(crate) fn lane_over(&mut self, number: u32) {
        self.each.get_mut(&number).into_iter().for_each(|each| each.lane_is_over = true);
    }

    /// Ends a stream on this side; its lane sees that at once.
    pub(super) fn cut(&self, number: u32) {
        let Some(each) = self.each.get(&number) else { return };
        each.handle.given_up.store(true, Relaxed);
        tcp::cut(&each.handle.socket);
        each.lane.wake();
        self.cancellation.changes.notify();
    }

    /// Both sides have released it.
    pub(super) fn remove(&mut self, number: u32) {
        if let Some(each) = self.each.remove(&number) {
            self.cancellation.forget_socket(&each.handle.socket);
        }
    }

    /// Asks TCP about a stream.
    pub(super) fn check(&self, number: u32, check: Check, stall: Nanos) -> Option<bool> {
        let socket = &self.each.get(&number)?.handle.socket;
        Some(match check {
            Check::PathIsDead => tcp::path_is_dead(socket, stall),
            Check::IsStarved => tcp::is_starved(socket, Nanos(stall.0 / 2)),
        })
    }

    fn sockets(&self) -> impl Iterator<Item = &Handle> {
        self.each.values().map(|each| &each.handle.socket)
    }

    pub(crate) fn look_at_windows(&mut self) {
        if self.role == PathRole::Source {
            let seen = self.sockets().map(tcp::peer_window_bytes).max().unwrap_or(0);
            self.window_seen_bytes = self.window_seen_bytes.max(seen);
        }
    }

    /// What is seen of the streams; `left_bytes` are still to be moved.
    pub(super) fn streams_seen(
        &mut self,
        now: Tick,
        left_bytes: Option<u64>,
    ) -> stream_controller::Look {
        let (role, mut open) = (self.role, 0);
        let mut senders = self.paths.far_senders(role);
        for (number, each) in &self.each {
            let Some((sample, _)) = tcp::delivery(&each.handle.socket, now) else { continue };
            let bytes =
                if role == PathRole::Source { sample.bytes_acked } else { sample.bytes_received };
            self.delivered.insert(*number, bytes);
            let is_open = !each.lane_is_over && *number != CONTROL_STREAM;
            open += u16::from(is_open);
            if role == PathRole::Source && is_open {
                let clocks = self.paths.clocks(*number);
                senders.insert(*number, PathSample { clocks, ..sample });
            }
        }
        senders.retain(|number, _| self.each.get(number).is_some_and(|each| !each.lane_is_over));
        let delivered_bytes = self.delivered.values().sum();
        stream_controller::Look { at: now, delivered_bytes, open, left_bytes, senders }
    }

    /// Sets the pace of senders, and keeps the windows of receivers at what was asked for.
    pub(crate) fn tend(&mut self, now: Tick, settings: &Settings) {
        if now < self.tend_at {
            return;
        }
        match (self.role, settings.window_bytes) {
            (PathRole::Source, _) if matches!(settings.pace, Pace::Auto | Pace::Scavenger) => {
                self.pace(now, settings.pace);
            }
            (PathRole::Sink, Some(bytes)) => {
                self.sockets().for_each(|socket| tcp::keep_window(socket, bytes));
            }
            _ => {}
        }
        self.tend_at = now.after(TEND_EVERY);
    }

    /// Sets the pace of all streams where the user leaves it to us. A fixed one is set when a
    /// stream begins.
    fn pace(&mut self, now: Tick, how: Pace) {
        let alive = self.each.iter().filter(|(_, each)| !each.lane_is_over);
        let looked = alive.filter_map(|(number, each)| {
            let (sample, delivered_segments) = tcp::delivery(&each.handle.socket, now)?;
            Some(Look { stream: *number, sample, delivered_segments })
        });
        let looks: Vec<Look> = looked.collect();
        // With so short a round trip too little is in flight to arrive in a burst.
        let is_near = looks.iter().all(|look| look.sample.rtt_min < PACED_FROM_RTT);
        if is_near && how == Pace::Auto {
            return;
        }
        if self.controller.is_none() {
            self.controller = Some(self.controller(how));
        }
        let of_all = self.controller.as_mut().and_then(|controller| controller.look(now, &looks));
        let count = looks.len();
        if (of_all, count) == self.paced || count == 0 {
            return;
        }
        self.paced = (of_all, count);
        let of_each = of_all.map_or(PACE_UNLIMITED, |pace| (pace / count as u64).max(1));
        self.each.values().for_each(|each| tcp::set_pace(&each.handle.socket, of_each));
    }

    fn controller(&self, how: Pace) -> Controller {
        if how == Pace::Scavenger {
            return Controller::Scavenger(Scavenger::default());
        }
        let is_bbr = |socket: &Handle| tcp::congestion(socket).starts_with("bbr");
        let deep_queue = match self.sockets().all(is_bbr) {
            true => DeepQueue::Overruns,
            false => DeepQueue::Fills,
        };
        Controller::Auto(Box::new(PaceController::new(deep_queue)))
    }

    /// What `pace` has chosen for all streams together.
    pub(crate) fn pace_bytes_per_s(&self) -> Option<u64> {
        self.paced.0
    }

    /// Collects the samples of lanes, and samples the streams of those that have ended; true where
    /// it was time for the former.
    fn look(&mut self, now: Tick, when: When) -> bool {
        for (number, each) in self.each.iter().filter(|(_, each)| each.lane_is_over) {
            self.paths.look_behind(*number, &each.handle.socket, now, when);
        }
        self.paths.collect(now, when)
    }

    /// Samples, now and then, for the side that drives.
    pub(super) fn tell(&mut self, now: Tick) -> Vec<Message> {
        match self.look(now, When::InTime) {
            true => self.paths.tell(now, When::InTime),
            false => Vec::new(),
        }
    }

    /// Samples that have not been sent yet.
    pub(crate) fn last_samples(&mut self, now: Tick) -> Vec<Message> {
        self.look(now, When::AtEnd);
        self.paths.tell(now, When::AtEnd)
    }

    /// Keeps the samples, where this side drives.
    pub(super) fn keep(&mut self, now: Tick, watch: &Watch) {
        if self.look(now, When::InTime) {
            watch.show(|| self.paths.fresh());
            self.paths.keep();
        }
    }

    /// Samples of a stream from the far side.
    pub(crate) fn hear_samples(&mut self, stream: u32, samples: Vec<PathSample>, watch: &Watch) {
        self.paths.hear(stream, &samples);
        let (side, role) = (PathSide::Far, self.role.other());
        watch.show(|| [StreamPath { stream, side, role, samples }]);
    }

    /// All samples of the streams at the end.
    pub(super) fn finish(&mut self, now: Tick) -> Vec<StreamPath> {
        self.look(now, When::AtEnd);
        self.paths.finish()
    }
}
