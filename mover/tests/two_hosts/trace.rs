//! What happened in a run, line by line: two runs of one seed have the same, byte for byte.

use std::fmt::Write;

use base::units::Tick;
use mover::pump::source::walk::WalkEvent;
use mover::pump::transfer::{Action, Event, Work};

/// A digest of all lines.
pub(crate) struct Trace {
    hasher: blake3::Hasher,
    lines: u64,
    line: String,
    is_shown: bool,
}

impl Trace {
    pub(crate) fn new() -> Trace {
        let is_shown = std::env::var_os("DATAPUMP_SIM_TRACE").is_some();
        Trace { hasher: blake3::Hasher::new(), lines: 0, line: String::new(), is_shown }
    }

    pub(crate) fn note(&mut self, host: &str, now: Tick, what: &str) {
        self.line.clear();
        writeln!(self.line, "{} {host} {what}", now.0).expect("a string takes anything");
        self.hasher.update(self.line.as_bytes());
        self.lines += 1;
        if self.is_shown {
            print!("{}", self.line);
        }
    }

    pub(crate) fn finish(&self) -> (u64, blake3::Hash) {
        (self.lines, self.hasher.finalize())
    }
}

pub(crate) fn of_event(event: &Event) -> String {
    match event {
        Event::Found(WalkEvent::Chunk(found)) => format!("found {}", found.len()),
        Event::Joined(stream) => format!("joined {}", stream.handle.number),
        Event::LaneOver(stream, over) => format!("over {stream:?} {:?}", over.fault),
        Event::Dealt(_) => "dealt".to_string(),
        other => format!("{other:?}"),
    }
}

pub(crate) fn of_action(action: &Action) -> String {
    match action {
        Action::StartLane(stream) => {
            format!("start {:?}", stream.as_ref().map(|stream| stream.handle.number))
        }
        Action::Finish(Work::Finish(objects)) => {
            let one = |object: &mover::pump::sink::objects::Complete| {
                format!("{} {:?}", object.wanted.number, object.outcome)
            };
            format!("finish {:?}", objects.iter().map(one).collect::<Vec<_>>())
        }
        Action::Finish(Work::Advance(advances) | Work::Stop { advances, .. }) => {
            let one = |advance: &mover::pump::sink::objects::Advance| {
                format!("{} {:?}", advance.number, advance.written.ranges)
            };
            format!("advance {:?}", advances.iter().map(one).collect::<Vec<_>>())
        }
        other => format!("{other:?}"),
    }
}
