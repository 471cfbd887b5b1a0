//! What the lanes of a side share with its transfer.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

use crate::pump::cancellation::Cancellation;
use crate::pump::lane::assembly::pipe_window_bytes;
use crate::pump::sink::objects::{Complete, Objects};
use crate::pump::source::plan::Plan;
use crate::pump::watch::Watch;
use base::job::Location;
use base::settings::Settings;

/// The source's ledger, where the source is here; the sink's, where the sink is; and what stops
/// them all.
#[derive(Debug)]
pub struct Ledgers {
    pub plan: Option<Arc<Plan>>,
    pub objects: Option<Arc<Objects>>,
    /// What the sink's ledger passes on: objects of which every byte is accounted for.
    pub(super) complete: Option<Receiver<Complete>>,
    pub cancellation: Arc<Cancellation>,
}

/// Which ends of a transfer are on this host, and what lies between them.
#[derive(Clone, Copy, Debug)]
pub struct Here<'a> {
    pub source: Option<&'a Location>,
    pub sink: bool,
    /// The data is sent on streams.
    pub far: bool,
    /// How far beyond the lowest unsettled address the sink accepts bytes.
    pub window_bytes: Option<u64>,
}

impl Ledgers {
    pub fn new(settings: &Settings, here: Here<'_>, watch: &Arc<Watch>) -> Ledgers {
        let cancellation = Arc::new(Cancellation::default());
        let slot = settings.request_bytes;
        let plan = here.source.map(|location| {
            let window = here.window_bytes.or_else(|| kept_window(settings, location, here.far));
            let plan = Plan::new(slot, settings.rate, window, here.far, cancellation.clone());
            Arc::new(plan.in_lockstep(settings.lockstep))
        });
        let (complete_in, complete) = channel();
        let objects = || {
            let objects = Objects::new(slot, settings.digest, watch.clone(), complete_in);
            Arc::new(objects.digesting_also(settings.digest_also))
        };
        let objects = here.sink.then(objects);
        let complete = objects.is_some().then_some(complete);
        Ledgers { plan, objects, complete, cancellation }
    }
}

/// What is read from a pipe is kept until it is settled: this much of it.
fn kept_window(settings: &Settings, source: &Location, far: bool) -> Option<u64> {
    (far && *source == Location::Stdio).then(|| pipe_window_bytes(settings))
}
