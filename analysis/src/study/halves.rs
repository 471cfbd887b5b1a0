//! The cost of a network's ends depends on which of them waits: none, as between null ends; the
//! receiver, for a disk that feeds the sender; or the sender, for a disk that drains the receiver.
//! A half is a transfer with only one of these disks and a null end.

use serde::Serialize;

use super::cells::{self, Cell, ProcessRole};
use crate::record::sample::{Record, Scenario};

/// Where the cost of a network's ends in a composition is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Network {
    /// From null ends, never idle.
    FlatOut,
    /// With the disk at the source.
    Fed,
    /// With the disk at the sink.
    Drained,
}

impl Network {
    pub fn name(self) -> &'static str {
        match self {
            Network::FlatOut => "full rate",
            Network::Fed => "fed",
            Network::Drained => "drained",
        }
    }

    /// The end whose disk is the bottleneck.
    pub(crate) fn disk_at(self) -> Option<ProcessRole> {
        match self {
            Network::FlatOut => None,
            Network::Fed => Some(ProcessRole::Source),
            Network::Drained => Some(ProcessRole::Sink),
        }
    }
}

/// The two halves of a transfer from disk over network to disk, at its request size.
#[derive(Debug)]
pub(crate) struct Halves<'a> {
    fed: &'a Cell,
    drained: &'a Cell,
}

impl<'a> Halves<'a> {
    /// `None` unless both were measured, with a soaker or without as this cell.
    pub(crate) fn of(cell: &Cell, all: &'a [Cell], run: &Record) -> Option<Halves<'a>> {
        if cell.key.scenario != Scenario::DiskNetDisk {
            return None;
        }
        let half = |scenario| {
            let conditions = cells::conditions(run, scenario);
            all.iter().find(|one| {
                (one.key.scenario, &one.key.conditions) == (scenario, &conditions)
                    && (one.key.depths, one.key.request_bytes)
                        == (cell.key.depths, cell.key.request_bytes)
                    && one.cpu_from.is_none_or(|from| Some(from) == cell.cpu_from)
            })
        };
        Some(Halves { fed: half(Scenario::DiskNet)?, drained: half(Scenario::NetDisk)? })
    }

    /// The slower half, which limits the whole transfer; if both have valid runs.
    pub(crate) fn slower(&self) -> Option<(Network, &'a Cell)> {
        let rate = |half: &Cell| Some(half.rate.as_ref()?.median);
        let (fed, drained) = (rate(self.fed)?, rate(self.drained)?);
        Some(match fed <= drained {
            true => (Network::Fed, self.fed),
            false => (Network::Drained, self.drained),
        })
    }

    /// Valid runs, of the half with fewer of them.
    pub(crate) fn runs(&self) -> usize {
        let of = |half: &Cell| half.source.as_ref().map_or(0, |side| side.cost_ns.n);
        of(self.fed).min(of(self.drained))
    }

    /// Gates that their runs failed.
    pub(crate) fn voids(&self) -> impl Iterator<Item = (String, usize)> {
        let of = |half: &'a Cell| half.voids.clone().into_iter();
        of(self.fed).chain(of(self.drained))
    }
}
