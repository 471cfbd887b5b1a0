//! The second stage of a copy: both ends are opened, here or with a far side, so that a part can be
//! run. Only this stage differs between copies on one host and copies to another.

use std::sync::Arc;
use std::sync::mpsc::channel;

use super::part_size::{for_any_parts, with_parts_for, with_streams_for_parts};
use super::resolve::{Resolved, near_sources, refuse_into_itself, refuse_to_delete_source};
use crate::io::medium::{self, TransferEnd};
use crate::io::reach::Reach;
use crate::pump::lane::assembly::pipe_window_bytes;
use crate::pump::run::{Part, start_walk};
use crate::pump::sink::Target;
use crate::pump::sink::expected::Expected;
use crate::pump::sink::journal::TransferId;
use crate::pump::sink::resume::{ResumeCallbacks, ResumeState};
use crate::pump::watch::Watch;
use crate::remote::peer::tag;
use crate::wire::message::Role;
use base::fault::Fault;
use base::job::{Carrier, Job};
use base::settings::Settings;
use base::tally::About;
use base::units::Nanos;

/// A copy that is ready to run.
#[derive(Debug)]
pub(super) struct Opened {
    pub part: Part,
    pub how: How,
}

/// How a copy is carried out.
#[derive(Clone, Debug)]
pub(super) struct How {
    /// As both sides have agreed on them.
    pub settings: Settings,
    /// The role of this side.
    pub role: Role,
    /// Streams at the start.
    pub streams: u16,
    /// How long it took until the two sides had agreed.
    pub login: Nanos,
}

/// Both ends in this process.
pub(super) fn here(resolved: &Resolved, watch: &Arc<Watch>) -> Result<Opened, Fault> {
    let job = &resolved.job;
    let sources = near_sources(job, resolved.names.as_ref(), &resolved.reach)?;
    refuse_into_itself(job)?;
    refuse_to_delete_source(job)?;
    let job = &with_parts_for(job, &sources, &resolved.reach);
    let target = Target::find(&job.target, sources.origin, &job.settings, &resolved.reach)?;
    let resume_state = resume_state(&target, &for_any_parts(job), resolved.transfer, watch)?;
    let settings = with_streams_for_parts(job, job.settings.cut_as(resume_state.cut), watch);
    let how = How {
        role: Role::Source,
        streams: settings.streams,
        login: Nanos(0),
        settings: settings.clone(),
    };
    let (events_in, events) = channel();
    let walking = start_walk(sources, &settings, events_in.clone());
    let part = Part {
        window_bytes: window_of(&target, &settings),
        settings,
        source: Some((job.sources[0].clone(), walking)),
        sink: Some(target),
        streams: Vec::new(),
        peer: None,
        rename: None,
        carrier: Carrier::Memory,
        about: About {
            sink_file_system: medium::file_system(&job.target),
            ..medium::about(&job.sources, TransferEnd::Source, String::new(), &Reach::Host)
        },
        resume_state,
        expected: Expected::Anything,
        watch: watch.clone(),
        events: (events_in, events),
        early: Vec::new(),
    };
    Ok(Opened { part, how })
}

/// What earlier runs left where this host has the sink.
pub(super) fn resume_state(
    target: &Target,
    job: &Job,
    transfer: TransferId,
    watch: &Watch,
) -> Result<ResumeState, Fault> {
    // What is here of the rest of its file would be taken for some of it.
    if job.range.is_some() {
        return Ok(ResumeState::none(tag()?, &job.settings));
    }
    let callbacks =
        ResumeCallbacks { warn: &|text| watch.warn(text), stopping: &|| watch.stopping() };
    ResumeState::open(target, transfer, &job.settings, tag()?, &callbacks)
}

pub(super) fn window_of(target: &Target, settings: &Settings) -> Option<u64> {
    matches!(target, Target::Pipe).then(|| pipe_window_bytes(settings))
}
