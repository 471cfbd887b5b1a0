//! What a sink passes to its finisher: complete objects, and updates of the journal.

use crate::pump::sink::finisher::{EPOCH_OBJECTS_MAX, Ending, Finished, Finisher};
use crate::pump::sink::mirror::Pass;
use crate::pump::sink::objects::{Advance, Complete};
use crate::pump::source::Settled;
use crate::pump::transfer::Event;
use crate::pump::transfer::{Action, Core};
use base::fault::Fault;
use base::units::{Nanos, Tick};

/// The work of the finisher.
#[derive(Debug)]
pub enum Work {
    Finish(Vec<Complete>),
    Advance(Vec<Advance>),
    /// A step of removing what the source does not have.
    Remove(Box<Pass>),
    Stop {
        advances: Vec<Advance>,
        left: Vec<(u64, Vec<u8>)>,
    },
    Close(Ending),
}

impl Work {
    /// Does it; returns the result as an event, where there is one.
    pub fn run(self, finisher: &mut Finisher) -> Option<Event> {
        match self {
            Work::Finish(epoch) => Some(Event::Finished(finisher.epoch(epoch))),
            Work::Advance(advances) => Some(Event::Advanced(finisher.advance(&advances))),
            Work::Remove(pass) => Some(Event::Removed(finisher.remove(pass))),
            Work::Stop { advances, left } => {
                finisher.stop(&advances, &left);
                None
            }
            Work::Close(ending) => {
                finisher.close(ending);
                None
            }
        }
    }
}

/// What has been written since the journal was last updated.
#[derive(Clone, Copy, Debug)]
pub(super) struct News {
    pub bytes: u64,
    pub since: Tick,
    /// The finisher is working on it.
    pub under_way: bool,
}

impl News {
    pub(super) fn none(since: Tick) -> News {
        News { bytes: 0, since, under_way: false }
    }
}

/// The journal is updated at least this often, as far as the disk can follow.
const NEWS_BYTES: u64 = 64 << 20;
const NEWS_AFTER: Nanos = Nanos::from_millis(1_000);

impl Core {
    /// Has the journal updated with what has been written, when it is time.
    pub(super) fn tell_journal(&mut self) {
        let Some(sink) = &self.sink else { return };
        let due = self.news.bytes >= NEWS_BYTES || self.now.since(self.news.since) >= NEWS_AFTER;
        if self.news.under_way || !due {
            return;
        }
        self.news = News::none(self.now);
        let advances = sink.objects.take_advances();
        if !advances.is_empty() {
            self.news.under_way = true;
            self.actions.push_back(Action::Finish(Work::Advance(advances)));
        }
    }

    pub(super) fn feed_finisher(&mut self) {
        let Some(complete) = &self.complete else { return };
        loop {
            let epoch: Vec<Complete> = complete.try_iter().take(EPOCH_OBJECTS_MAX).collect();
            if epoch.is_empty() {
                return;
            }
            self.actions.push_back(Action::Finish(Work::Finish(epoch)));
        }
    }

    /// The finisher has finished some objects.
    pub(super) fn finish(&mut self, finished: &[Finished]) -> Result<(), Fault> {
        let sink = self.sink.as_mut().expect("a finisher is the sink's");
        let messages = sink.finished(finished);
        if self.source.is_none() {
            for object in finished {
                let (number, path) = (object.number, object.path.clone());
                match &object.outcome {
                    Ok(sum) => {
                        let (kind, bytes) = (object.kind, object.bytes);
                        let settled = Settled { number, path, kind, bytes };
                        self.finished_well(settled, (*sum, object.extra));
                    }
                    Err(fault) => {
                        self.not_copied(number);
                        self.failed(path, fault.clone());
                    }
                }
            }
        }
        for message in messages {
            self.say_to_source(message)?;
        }
        match finished.iter().find_map(|object| object.outcome.as_ref().err()) {
            Some(fault) if fault.ends_transfer() => Err(fault.clone()),
            _ => Ok(()),
        }
    }
}
