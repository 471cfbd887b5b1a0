//! The threads of one side, each of which reports to the transfer by events.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;

use crate::pump::lane::{Lane, Over};
use crate::pump::sink::compare::Compare;
use crate::pump::sink::finisher::{EPOCH_OBJECTS_MAX, Finisher};
use crate::pump::source::walk::Sources;
use crate::pump::transfer::{CHUNKS_AHEAD, Event, Work};
use crate::wire::message::Message;
use base::fault::{Class, Fault};
use base::settings::Settings;

pub(super) type FinisherThread = (Sender<Work>, JoinHandle<()>);

/// A walk of the sources that has begun. It ends when this is dropped.
#[derive(Debug)]
pub struct Walking {
    /// Lets it continue by one chunk.
    pub(super) go_on: SyncSender<()>,
    /// Reading the sources may wait for a device.
    pub(super) sources_wait: bool,
}

/// Finds what to offer, up to `CHUNKS_AHEAD` chunks ahead: taking one lets it continue. It may
/// begin long before the transfer, during a login for example.
pub fn start_walk(sources: Sources, settings: &Settings, events: Sender<Event>) -> Walking {
    let (go_on, may_go_on) = sync_channel(CHUNKS_AHEAD);
    (0..CHUNKS_AHEAD).for_each(|_| go_on.try_send(()).expect("it has room for so many"));
    let (settings, sources_wait) = (settings.clone(), sources.wait());
    spawn("datapump-walk", move || {
        let walked = catch_unwind(AssertUnwindSafe(|| {
            sources.walk(&settings, &mut |sighting| {
                may_go_on.recv().is_ok() && events.send(Event::Found(sighting)).is_ok()
            });
        }));
        let _ = events.send(match walked {
            Ok(()) => Event::Walked,
            Err(_) => Event::Failed(panicked("the walk")),
        });
    });
    Walking { go_on, sources_wait }
}

pub(super) fn lane(stream: Option<u32>, lane: Lane, events: Sender<Event>) -> JoinHandle<()> {
    spawn("datapump-lane", move || {
        let run = catch_unwind(AssertUnwindSafe(|| lane.run()));
        let over = run.unwrap_or_else(|_| failed(panicked("a lane")));
        let _ = events.send(Event::LaneOver(stream, over));
    })
}

/// A lane that could not be started.
pub(super) fn not_started(stream: Option<u32>, fault: Fault) -> Event {
    Event::LaneOver(stream, failed(fault))
}

fn failed(fault: Fault) -> Over {
    Over { fault: Some(fault), ..Over::default() }
}

/// Compares the files here with what is offered.
pub(super) fn compare(mut compare: Compare, events: Sender<Event>) -> Sender<Message> {
    let (offered, messages) = channel::<Message>();
    spawn("datapump-compare", move || {
        let compared = catch_unwind(AssertUnwindSafe(|| {
            while let Ok(message) = messages.recv() {
                let same = compare.same(&message);
                let _ = events.send(Event::Compared(message, same));
            }
        }));
        if compared.is_err() {
            let _ = events.send(Event::Failed(panicked("what compares")));
        }
    });
    offered
}

/// Finishes, and journals, the work that it gets.
pub(super) fn finish(mut finisher: Finisher, events: Sender<Event>) -> FinisherThread {
    // All work is of open objects, and the credit of offers limits those.
    let (work_in, work) = channel::<Work>();
    let thread = spawn("datapump-finish", move || {
        let run = AssertUnwindSafe(|| work_off(&mut finisher, &work, &events));
        if let Err(panic) = catch_unwind(run) {
            let _ = events.send(Event::Failed(panicked("the finisher")));
            resume_unwind(panic); // joining it reports that, too
        }
    });
    (work_in, thread)
}

fn work_off(finisher: &mut Finisher, work: &Receiver<Work>, events: &Sender<Event>) {
    let mut next = work.recv().ok();
    while let Some(mut now) = next.take() {
        if let Work::Finish(epoch) = &mut now {
            // What has gathered in the meantime is synced with it.
            while epoch.len() < EPOCH_OBJECTS_MAX {
                match work.try_recv() {
                    Ok(Work::Finish(more)) => epoch.extend(more),
                    other => {
                        next = other.ok();
                        break;
                    }
                }
            }
        }
        if let Some(event) = now.run(finisher) {
            let _ = events.send(event);
        }
        next = next.or_else(|| work.recv().ok());
    }
}

fn panicked(who: &str) -> Fault {
    Fault::new(Class::Local, format!("{who} panicked (its message is above): please report this"))
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
    std::thread::Builder::new().name(name.into()).spawn(work).expect("the system gives a thread")
}
