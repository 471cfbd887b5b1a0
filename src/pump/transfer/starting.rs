//! What one side of a transfer begins with.

use std::sync::Arc;

use super::super::assembly::{Assembly, pipe_window_bytes};
use super::super::brake::Brake;
use super::super::plan::Plan;
use super::super::walk::Sources;
use crate::base::job::Place;
use crate::base::settings::Settings;
use crate::base::tally::{About, SideReport};

/// The source's ledger, where the source is here. `far`: what it gives out travels on streams.
pub(super) fn plan_of(
    settings: &Settings,
    source: Option<&(Place, Sources)>,
    (window_bytes, far): (Option<u64>, bool),
    brake: &Arc<Brake>,
) -> Option<Arc<Plan>> {
    let window = window_bytes.or_else(|| kept_window(settings, source, far));
    let plan = Plan::new(settings.request_bytes, settings.rate, window, far, brake.clone());
    source.map(|_| Arc::new(plan.in_lockstep(settings.lockstep)))
}

/// What is read from a pipe is kept until it is settled: so much of it.
fn kept_window(settings: &Settings, source: Option<&(Place, Sources)>, far: bool) -> Option<u64> {
    let piped = matches!(source, Some((Place::Stdio, _)));
    (far && piped).then(|| pipe_window_bytes(settings))
}

/// What is known of a side before it has moved anything.
pub(super) fn first_report(assembly: &Assembly, about: About) -> SideReport {
    SideReport {
        depth: assembly.depth(),
        planned_memory_bytes: assembly.planned_memory_bytes,
        about,
        ..SideReport::default()
    }
}
