//! How many requests a lane has at each end, within the memory limit.

use base::limits::STORE_DEPTH;
use base::settings::Direct;

/// Requests of a lane at an end that may wait for a device.
pub(super) const DEPTH_WAITING: u32 = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Depths {
    pub source: u32,
    pub sink: u32,
}

/// What an end waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waits {
    Never,
    ForDevice,
    ForStore,
}

impl Waits {
    /// Requests at this end where the user has said nothing.
    pub(super) fn usual_depth(self, direct: Direct) -> u32 {
        match (self, direct) {
            (Waits::Never, _) => 1,
            (Waits::ForDevice, Direct::On | Direct::Auto) => DEPTH_WAITING,
            (Waits::ForDevice, Direct::Off) => 2,
            (Waits::ForStore, _) => STORE_DEPTH.into(),
        }
    }
}

/// Which end keeps its requests where memory is short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keeps {
    Neither,
    /// As long as the other end has more than one.
    Source,
    Sink,
    /// Always.
    AllOfSink,
}

impl Keeps {
    /// A request of an object store takes a round trip and more, one of a device milliseconds.
    pub(super) fn between(source: Waits, sink: Waits) -> Keeps {
        match (source, sink) {
            (Waits::ForStore, Waits::Never | Waits::ForDevice) => Keeps::Source,
            (Waits::Never | Waits::ForDevice, Waits::ForStore) => Keeps::Sink,
            _ => Keeps::Neither,
        }
    }
}

impl Depths {
    /// With fewer requests; `None` where nothing would move.
    pub(super) fn shortened(self, keeps: Keeps) -> Option<Depths> {
        let Depths { source, sink } = self;
        let shorter = match keeps {
            Keeps::Source if sink > 1 => Depths { source, sink: sink - 1 },
            Keeps::Sink if source > 1 => Depths { source: source - 1, sink },
            Keeps::AllOfSink => Depths { source: (source - 1).max(1), sink },
            _ => Depths { source: (source - 1).max(1), sink: (sink - 1).max(1) },
        };
        (shorter != self).then_some(shorter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is left of depths when there is memory for so many requests.
    #[test]
    fn a_store_keeps_its_requests_longest() {
        let (device, store) = (Waits::ForDevice, Waits::ForStore);
        let cases = [
            ((device, device), 8, (4, 4)),
            ((device, device), 7, (3, 3)),
            ((device, store), 12, (4, 8)),
            ((device, store), 9, (1, 8)),
            ((device, store), 6, (1, 5)),
            ((device, store), 2, (1, 1)),
            ((store, device), 6, (5, 1)),
            ((store, Waits::Never), 6, (5, 1)),
            ((store, store), 12, (6, 6)),
        ];
        for ((source, sink), fits, expect) in cases {
            let usual = |waits: Waits| waits.usual_depth(Direct::Auto);
            let mut depths = Depths { source: usual(source), sink: usual(sink) };
            while depths.source + depths.sink > fits {
                depths = depths.shortened(Keeps::between(source, sink)).unwrap();
            }
            assert_eq!((depths.source, depths.sink), expect, "{source:?} {sink:?} {fits}");
        }
        let least = Depths { source: 1, sink: 1 };
        for keeps in [Keeps::Neither, Keeps::Source, Keeps::Sink] {
            assert_eq!(least.shortened(keeps), None);
        }
        let pipe = Depths { source: 2, sink: 9 };
        let shorter = pipe.shortened(Keeps::AllOfSink);
        assert_eq!(shorter, Some(Depths { source: 1, sink: 9 }), "the other side knows its window");
        assert_eq!(shorter.unwrap().shortened(Keeps::AllOfSink), None);
    }
}
