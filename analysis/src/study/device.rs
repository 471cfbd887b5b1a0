//! Whether the two ends of a network wake up one device together: then their costs cannot be
//! separated, as one end may be spared the other's wake-up.

use serde::Serialize;

use super::cells::{self, Cell};
use crate::record::sample::{Record, Scenario};

/// Interrupts of the devices of a host that has both ends.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Interrupts {
    /// Per request, while both ends were active.
    pub together: f64,
    /// The sum for reading alone and writing alone.
    pub alone: f64,
}

impl Interrupts {
    /// Of a transfer from disk to disk by two processes of one host; `None` where interrupts were
    /// not counted, where a part was not measured alone, and where files have no device.
    pub fn of(cell: &Cell, all: &[Cell], run: &Record) -> Option<Interrupts> {
        if cell.key.scenario != Scenario::DiskNetDisk || run.machines.len() != 1 {
            return None;
        }
        let alone = |scenario, conditions: String| {
            let part = all.iter().find(|one| {
                (one.key.scenario, &one.key.conditions) == (scenario, &conditions)
                    && (one.key.depths, one.key.request_bytes)
                        == (cell.key.depths, cell.key.request_bytes)
            });
            part?.interrupts_per_request.filter(|count| *count >= DEVICE_MIN)
        };
        Some(Interrupts {
            together: cell.interrupts_per_request?,
            alone: alone(Scenario::DiskSource, cells::source_conditions(run))?
                + alone(Scenario::DiskSink, cells::sink_conditions(run))?,
        })
    }

    /// True where so many wake-ups are missing that the costs of one end mean nothing.
    pub(crate) fn are_shared(&self) -> bool {
        self.together < (1.0 - SHARED_MAX) * self.alone
    }
}

/// With fewer, requests do not reach a device but the page cache or memory.
const DEVICE_MIN: f64 = 0.5;
/// A wake-up is up to half of the cost of an end's request, and predictions are judged by 15 %.
const SHARED_MAX: f64 = 0.1;
