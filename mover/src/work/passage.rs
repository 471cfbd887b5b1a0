//! The steps between source and sink, each timed by one reading of the clock.

use std::fmt;

use crate::io::request::Request;
use base::fault::Fault;
use base::tally::Stage;
use base::units::{Nanos, Tick};

/// One step of the passage: called once for each request, with a plain loop over bytes inside.
pub trait Step: Send + fmt::Debug {
    fn stage(&self) -> Stage;
    fn apply(&mut self, request: &mut Request) -> Result<(), Fault>;
}

/// The steps in order: at a source digest and compress, at a sink decompress and digest. The stream
/// does the sealing.
#[derive(Debug, Default)]
pub struct Passage {
    steps: Vec<Box<dyn Step>>,
    pub spent: [Nanos; Stage::COUNT],
}

impl Passage {
    pub fn new(steps: Vec<Box<dyn Step>>) -> Passage {
        Passage { steps, spent: Default::default() }
    }

    /// The time spent since the last call.
    pub(crate) fn take_spent(&mut self) -> [Nanos; Stage::COUNT] {
        std::mem::take(&mut self.spent)
    }

    pub fn pass(&mut self, request: &mut Request, now: impl Fn() -> Tick) -> Result<(), Fault> {
        if self.steps.is_empty() {
            return Ok(());
        }
        let mut lap = now();
        for step in &mut self.steps {
            step.apply(request)?;
            let done = now();
            self.spent[step.stage() as usize] += done.since(lap);
            lap = done;
        }
        Ok(())
    }
}
