//! What a sink hands to its finisher: what is complete, and what the journal is to be told.

use std::sync::mpsc::{Sender, SyncSender, sync_channel};
use std::thread::JoinHandle;

use super::super::finisher::{EPOCH_OBJECTS_MAX, Ending, Finisher};
use super::super::objects::{Advance, Complete};
use super::{Event, Running, spawn};
use crate::base::units::{Nanos, Tick};
use crate::io::clock;

pub(super) type FinisherThread = (SyncSender<Work>, JoinHandle<()>);

/// What the finisher is given to do.
#[derive(Debug)]
pub(super) enum Work {
    Finish(Vec<Complete>),
    Advance(Vec<Advance>),
    Stop { advances: Vec<Advance>, left: Vec<(u64, Vec<u8>)> },
    Close(Ending),
}

/// What has been written since the journal was told of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct News {
    pub bytes: u64,
    pub since: Tick,
    /// The finisher is at it.
    pub under_way: bool,
}

impl News {
    pub fn none(since: Tick) -> News {
        News { bytes: 0, since, under_way: false }
    }
}

/// The journal is told at least this often, while the disk can follow.
const NEWS_BYTES: u64 = 64 << 20;
const NEWS_AFTER: Nanos = Nanos::from_millis(1_000);

impl Running {
    /// Has the journal told of what has been written, when it is time.
    pub(super) fn tell_journal(&mut self) {
        let (Some(sink), Some((finisher, _))) = (&self.sink, &self.finisher) else { return };
        let now = clock::now();
        let due = self.news.bytes >= NEWS_BYTES || now.since(self.news.since) >= NEWS_AFTER;
        if self.news.under_way || !due {
            return;
        }
        self.news = News::none(now);
        let advances = sink.objects.take_advances();
        if !advances.is_empty() {
            self.news.under_way = finisher.send(Work::Advance(advances)).is_ok();
        }
    }

    pub(super) fn feed_finisher(&mut self) {
        let (Some(complete), Some((finisher, _))) = (&self.complete, &self.finisher) else {
            return;
        };
        loop {
            let epoch: Vec<Complete> = complete.try_iter().take(EPOCH_OBJECTS_MAX).collect();
            if epoch.is_empty() || finisher.send(Work::Finish(epoch)).is_err() {
                return;
            }
        }
    }
}

/// Starts the thread that finishes, and journals, what is handed to it.
pub(super) fn start(mut finisher: Finisher, events: Sender<Event>) -> FinisherThread {
    let (work_in, work) = sync_channel::<Work>(1024);
    let thread = spawn("datapump-finish", move || {
        let mut next = work.recv().ok();
        while let Some(now) = next.take() {
            match now {
                Work::Finish(mut epoch) => {
                    // What has gathered meanwhile is synced with it.
                    while epoch.len() < EPOCH_OBJECTS_MAX {
                        match work.try_recv() {
                            Ok(Work::Finish(more)) => epoch.extend(more),
                            other => {
                                next = other.ok();
                                break;
                            }
                        }
                    }
                    let _ = events.send(Event::Finished(finisher.epoch(epoch)));
                }
                Work::Advance(advances) => {
                    let _ = events.send(Event::Advanced(finisher.advance(&advances)));
                }
                Work::Stop { advances, left } => finisher.stop(&advances, &left),
                Work::Close(ending) => finisher.close(ending),
            }
            next = next.or_else(|| work.recv().ok());
        }
    });
    (work_in, thread)
}
