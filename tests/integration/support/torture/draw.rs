//! The plan of a stress round: derived from a seed alone.

use std::io::Read;

/// What is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Load {
    /// One large file.
    Large,
    /// A tree into a folder that the copy makes.
    Tree,
    /// A file of many islands of data.
    Sparse,
    /// Some files of the tree, by `--files-from`.
    List,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Direction {
    Local,
    Push,
    Pull,
}

/// What is between the two sides. A rate holds on both: on loopback it is `--rate`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Path {
    pub wan: bool,
    pub rate_mbit: u64,
    pub rtt_ms: u64,
    pub loss_permille: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    KillNear,
    KillFar,
    KillSsh,
    /// The sshd process that serves this one login is killed.
    KillSession,
    /// The far side is stopped for a while.
    StopFar,
    /// The far host's sshd and this one login are ended; sshd starts again after a while.
    RestartSshd,
    /// Nothing arrives for a while: both ways, or one.
    Cut,
    CutForward,
    CutBack,
    /// Ctrl-C to the program alone, and to its whole group.
    Interrupt,
    InterruptGroup,
    /// The destination has no more room; afterwards it has.
    Full,
    /// The source changes.
    Touch,
    Append,
    Rewrite,
}

/// When a fault is injected: by observed progress, so that a slow machine changes nothing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Moment {
    /// As soon as ssh runs (a local copy: the program).
    Login,
    /// As soon as the far program runs.
    Begun,
    /// When the destination holds this share of what it lacked as the run began.
    Share(f64),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Strike {
    pub fault: Fault,
    pub moment: Moment,
    /// For how long, where a fault has a length.
    pub seconds: f64,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Plan {
    pub load: Load,
    pub direction: Direction,
    pub path: Path,
    /// More options of every copy.
    pub options: String,
    pub strikes: Vec<Strike>,
}

impl Plan {
    /// The plan of one round of a seed.
    pub(crate) fn of(seed: u64, round: u64, only: Option<Load>, wan: bool) -> Plan {
        let mut rng = Rng::of(seed, round);
        let load = rng.one(&[Load::Large, Load::Tree, Load::Sparse, Load::List]);
        let load = only.unwrap_or(load);
        let direction = match wan {
            true => rng.one(&[Direction::Push, Direction::Pull]),
            false => rng.one(&[
                Direction::Push,
                Direction::Pull,
                Direction::Push,
                Direction::Pull,
                Direction::Local,
            ]),
        };
        let path = match wan {
            true => Path {
                wan,
                rate_mbit: rng.one(&[20, 50, 100, 200, 400]),
                rtt_ms: rng.one(&[1, 10, 30, 30, 60, 120]),
                loss_permille: rng.one(&[0, 1, 5, 10, 20]),
            },
            false => Path {
                wan,
                rate_mbit: rng.one(&[200, 400, 800, 1600]),
                rtt_ms: 0,
                loss_permille: 0,
            },
        };
        let words = [
            rng.one(&["", "", "--fsync off"]),
            rng.one(&["", "", "--streams 1", "--streams 2", "--streams 8"]),
            rng.one(&["", "", "--compress off", "--compress zstd:3"]),
            rng.one(&["", "", "", "--request-size 64K", "--request-size 256K"]),
            rng.one(&["", "", "--seal off", "--seal auth"]),
        ];
        let words: Vec<&str> = words.into_iter().filter(|word| !word.is_empty()).collect();
        let faults = faults(direction, wan);
        let strikes = (0..rng.below(STRIKES_MAX) + 1).map(|_| Strike {
            fault: rng.one(&faults),
            moment: match rng.below(8) {
                0 => Moment::Login,
                1 => Moment::Begun,
                _ => Moment::Share(0.02 + 0.9 * rng.share()),
            },
            seconds: 2.0 + 18.0 * rng.share().powi(2),
        });
        let mut strikes: Vec<Strike> = strikes.collect();
        // A source changes once: with a second change a result could not be attributed.
        let mut changed = false;
        strikes.retain(|strike| {
            !strike.fault.changes_source() || !std::mem::replace(&mut changed, true)
        });
        Plan { load, direction, path, options: words.join(" "), strikes }
    }

    /// Bytes in flight in its streams: sent and not written.
    pub(crate) fn in_flight_bytes(&self) -> u64 {
        let mut words = self.options.split_whitespace().skip_while(|word| *word != "--streams");
        let streams = words.nth(1).and_then(|count| count.parse().ok()).unwrap_or(STREAMS_USUAL);
        streams * IN_FLIGHT_BYTES
    }
}

impl Fault {
    pub(crate) fn changes_source(self) -> bool {
        matches!(self, Fault::Touch | Fault::Append | Fault::Rewrite)
    }

    /// The run in which this fault is injected ends by it, and another follows.
    pub(crate) fn ends_run(self) -> bool {
        use Fault::{Full, Interrupt, InterruptGroup, KillNear};
        matches!(self, KillNear | Interrupt | InterruptGroup | Full)
    }
}

fn faults(direction: Direction, wan: bool) -> Vec<Fault> {
    use Fault::*;
    let mut faults =
        vec![KillNear, KillNear, Interrupt, InterruptGroup, Full, Touch, Append, Rewrite];
    if direction != Direction::Local {
        faults.extend([KillNear, KillFar, KillFar, KillFar, KillSsh, KillSsh, KillSession]);
        faults.extend([StopFar, StopFar, Interrupt, InterruptGroup]);
    }
    if wan {
        faults.extend([Cut, Cut, CutForward, CutBack, RestartSshd, RestartSshd]);
    }
    faults
}

/// Numbers of one round.
struct Rng(blake3::OutputReader);

impl Rng {
    fn of(seed: u64, round: u64) -> Rng {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&seed.to_le_bytes()).update(&round.to_le_bytes());
        Rng(hasher.finalize_xof())
    }

    fn below(&mut self, end: u64) -> u64 {
        let mut bytes = [0; 8];
        self.0.read_exact(&mut bytes).unwrap();
        u64::from_le_bytes(bytes) % end
    }

    fn share(&mut self) -> f64 {
        self.below(1 << 32) as f64 / (1_u64 << 32) as f64
    }

    fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }
}

const STRIKES_MAX: u64 = 5;
/// If a plan has no `--streams`.
const STREAMS_USUAL: u64 = 4;
/// Of one stream: four requests of 1 MiB at each end. What TCP holds is within the one second that
/// the bound allows beside it.
const IN_FLIGHT_BYTES: u64 = 8 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_draw_is_its_seeds() {
        let plans = |seed| (0..400).map(move |round| Plan::of(seed, round, None, round % 2 == 1));
        assert!(plans(7).eq(plans(7)), "the same seed draws the same");
        assert!(!plans(7).eq(plans(8)));
        for plan in plans(7) {
            assert!((1..=STRIKES_MAX as usize).contains(&plan.strikes.len()), "{plan:?}");
            let changes = plan.strikes.iter().filter(|strike| strike.fault.changes_source());
            assert!(changes.count() <= 1, "{plan:?}");
            assert!(!(plan.path.wan && plan.direction == Direction::Local), "{plan:?}");
            let far_faults = faults(Direction::Push, plan.path.wan);
            assert!(plan.strikes.iter().all(|strike| far_faults.contains(&strike.fault)));
        }
        let strikes: Vec<Strike> = plans(7).flat_map(|plan| plan.strikes).collect();
        for fault in faults(Direction::Push, true) {
            assert!(strikes.iter().any(|strike| strike.fault == fault), "never {fault:?}");
        }
        let early = |strike: &&Strike| !matches!(strike.moment, Moment::Share(_));
        assert!(strikes.iter().filter(early).count() > strikes.len() / 8, "too few short ones");
        let only = (0..50).map(|round| Plan::of(7, round, Some(Load::Sparse), false).load);
        assert!(only.into_iter().all(|load| load == Load::Sparse));
    }
}
