//! Whether the two ends of a network wake one device together: then what each of them costs cannot
//! be told, as neither knows whose wake it is spared.

use serde::Serialize;

use super::cells::{self, Cell};
use crate::record::sample::{Record, Scenario};

/// Interrupts of the devices of a host that has both ends.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Interrupts {
    /// For each request, while both ends were at work.
    pub together: f64,
    /// The sum of what reading and writing take alone.
    pub alone: f64,
}

impl Interrupts {
    /// Of a transfer from disk to disk by two processes of one host; `None` where interrupts were
    /// not counted, where a part was not measured alone, and where its files have no device.
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

    /// True where so many wakes are missing that costs of one end say nothing.
    pub(crate) fn are_shared(&self) -> bool {
        self.together < (1.0 - SHARED_MAX) * self.alone
    }
}

/// With fewer a request is not one of a device: it ends in the page cache, or in memory.
const DEVICE_MIN: f64 = 0.5;
/// A wake is up to half of what a request of an end costs, and predictions are judged by 15 %.
const SHARED_MAX: f64 = 0.1;
