//! Has the number of streams chosen while a copy runs: looks at the sockets, and tells each step.

use std::sync::atomic::Ordering::Relaxed;

use crate::io::buffer::Buffer;
use crate::pump::lane::assembly::streams_max;
use crate::pump::run::sockets::Sockets;
use crate::pump::run::stream_controller::{Bounds, LOOK_EVERY, StreamController};
use crate::pump::transfer::Event;
use crate::pump::watch::Watch;
use base::job::Notice;
use base::settings::Settings;
use base::stream_steps::StreamStep;
use base::units::Tick;

/// Requests that a stream has still to send, about, when it is to end.
const LANE_REQUESTS: u64 = 2;

#[derive(Debug)]
pub(super) struct Chooser {
    controller: StreamController,
    look_at: Tick,
    steps: Vec<StreamStep>,
}

impl Chooser {
    /// `None` where the user has said how many streams there are.
    pub(super) fn of(settings: &Settings) -> Option<Chooser> {
        let bounds = Bounds {
            streams_max: streams_max(settings),
            cpus: std::thread::available_parallelism().map_or(1, |count| count.get() as u16),
            lane_bytes: LANE_REQUESTS * Buffer::total_bytes(settings.request_bytes) as u64,
        };
        settings.streams_auto.then(|| Chooser {
            controller: StreamController::new(settings.streams, bounds),
            look_at: Tick(0),
            steps: Vec::new(),
        })
    }

    /// Looks at the streams, when it is time; what the transfer is to do.
    pub(super) fn look(
        &mut self,
        now: Tick,
        sockets: &mut Sockets,
        watch: &Watch,
    ) -> Option<Event> {
        if now < self.look_at {
            return None;
        }
        self.look_at = now.after(LOOK_EVERY);
        let gauge = &watch.gauge;
        let is_known = gauge.walk_done.load(Relaxed) && !gauge.endless.load(Relaxed);
        let left =
            || gauge.bytes_found.load(Relaxed).saturating_sub(gauge.bytes_done.load(Relaxed));
        let look = sockets.streams_seen(now, is_known.then(left));
        let step = self.controller.look(&look)?;
        self.note(step, watch);
        (step.to != step.from).then_some(Event::Resize { streams: step.to })
    }

    /// All steps, once the copy is over.
    pub(super) fn end(mut self, watch: &Watch) -> Vec<StreamStep> {
        if let Some(step) = self.controller.end() {
            self.note(step, watch);
        }
        self.steps
    }

    fn note(&mut self, step: StreamStep, watch: &Watch) {
        watch.tell(Notice::Streams(step));
        self.steps.push(step);
    }
}
