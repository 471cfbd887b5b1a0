//! A request that is filled: its passage, its way to the sink, and its end.

use crate::io::request::{Leg, Request};
use crate::io::sampler::Awaited;
use crate::pump::lane::compression_controller::Sent;
use crate::pump::lane::worker_pool::Passed;
use crate::pump::lane::{Lane, State, held_up};
use crate::work::voids;
use base::fault::Fault;
use base::label::Kind;

impl Lane {
    /// The source has filled it: it goes through the passage, and to the gate.
    pub(super) fn turn_around(&mut self, mut request: Box<Request>) -> Result<(), Fault> {
        self.filling -= 1;
        let now = self.now();
        request.stamps.filled = now;
        if let Some(plan) = &self.parts.plan {
            plan.filled(now, &request);
            if self.state == State::Broken {
                self.pool.push(request);
                return Ok(());
            }
        }
        if let Some(objects) = &self.parts.objects {
            if let Err(fault) = objects.admit(&mut request) {
                self.pool.push(request);
                return Err(fault);
            }
            request.fill_hole();
        }
        match &mut self.parts.pool_handle {
            Some(handle) if handle.takes(&request) => {
                handle.give(request);
                Ok(())
            }
            _ => {
                let passed = self.pass(&mut request);
                self.go_on(request, passed)
            }
        }
    }

    /// Takes the completions of the worker pool, and returns their number.
    pub(super) fn take_passed(&mut self) -> Result<usize, Fault> {
        let Some(handle) = &mut self.parts.pool_handle else { return Ok(0) };
        let mut passed = std::mem::take(&mut self.passed);
        handle.take(&mut passed);
        let count = passed.len();
        let mut ended = Ok(());
        for Passed { request, spent, outcome } in passed.drain(..) {
            for (sum, stage) in self.tally.stages.iter_mut().zip(spent) {
                *sum += stage;
            }
            match &ended {
                Ok(()) => ended = self.go_on(request, outcome),
                Err(_) => self.pool.push(request),
            }
        }
        self.passed = passed;
        ended.map(|()| count)
    }

    /// It has been through the passage: it goes to the gate.
    pub(super) fn go_on(
        &mut self,
        mut request: Box<Request>,
        passed: Result<(), Fault>,
    ) -> Result<(), Fault> {
        if let Err(fault) = passed {
            if let Some(objects) = &self.parts.objects {
                objects.release(&request);
            }
            self.pool.push(request);
            if !self.is_of_stream(&fault) {
                return Err(fault);
            }
            self.break_off(fault);
            return Ok(());
        }
        request.stamps.passed = self.now();
        if self.parts.pool_handle.is_some() && self.parts.plan.is_some() {
            request.uncompressed_len = request.raw_len();
        }
        if let Some(sampler) = self.parts.engine.sampler() {
            let stamps = &request.stamps;
            sampler.add(Awaited::Passage, stamps.passed.since(stamps.filled));
        }
        self.gate.arrive(request);
        Ok(())
    }

    pub(super) fn pass(&mut self, request: &mut Request) -> Result<(), Fault> {
        let engine = &self.parts.engine;
        self.parts.passage.pass(request, || engine.now())
    }

    /// The extent cannot be read, or written: its object fails, the others continue.
    pub(super) fn void(
        &mut self,
        leg: Leg,
        mut request: Box<Request>,
        fault: Fault,
    ) -> Result<(), Fault> {
        if leg == Leg::Out && fault.ends_transfer() {
            self.pool.push(request);
            return Err(fault);
        }
        request.voids.push((0, fault));
        match leg {
            Leg::In => {
                request.label.kind = Kind::Void;
                request.label.body_len = 0;
                request.label.voids_len = 0;
                voids::write(&mut request);
                self.turn_around(request)
            }
            Leg::Out => {
                self.retire(request);
                Ok(())
            }
        }
    }

    /// The sink has taken it: it is counted, and goes back to the pool.
    pub(super) fn retire(&mut self, mut request: Box<Request>) {
        self.gate.leave();
        request.stamps.retired = self.now();
        if let Some(objects) = &self.parts.objects {
            objects.record_written(&mut request);
            self.clock(Awaited::Sink, request.stamps.retired);
        }
        let stamps = &request.stamps;
        let tally = &mut self.tally;
        tally.hole_bytes += u64::from(request.left_out());
        if matches!(request.label.kind, Kind::Data | Kind::Sparse) {
            tally.requests += 1;
            tally.bytes += u64::from(match request.label.kind {
                Kind::Sparse => request.label.extent.len,
                _ => request.raw_len(),
            });
            if let Some(handle) = &self.parts.pool_handle
                && self.parts.plan.is_some()
            {
                let raw_bytes = request.uncompressed_len;
                tally.compression.note(request.coding, raw_bytes, request.payload_len());
                let sent = Sent {
                    raw_bytes,
                    wire_bytes: request.label.body_len,
                    held_up: held_up(self.parts.stream.as_ref(), stamps),
                };
                handle.sent(stamps.retired, sent);
            }
            tally.life.fill += stamps.filled.since(stamps.departed);
            tally.life.pass += stamps.passed.since(stamps.filled);
            tally.life.gate += stamps.admitted.since(stamps.passed);
            tally.life.drain += stamps.retired.since(stamps.admitted);
        }
        self.pool.push(request);
        assert!(self.pool.len() <= self.pool_size, "a request came back twice");
    }
}
