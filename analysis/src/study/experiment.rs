//! The runs of an experiment, and their order. Pure: the same design and seed give the same order.

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64;

use crate::record::sample::Scenario;

/// What is varied, and how often each combination is run.
#[derive(Clone, Debug, PartialEq)]
pub struct Design {
    pub scenarios: Vec<Scenario>,
    pub request_sizes: Vec<u32>,
    pub depths: Vec<u16>,
    /// Disks alone are also measured at this depth, at three sizes: at depth 1 every request finds
    /// the device idle, and the cost of that cannot be separated from that of a request.
    pub depth_apart: Option<u16>,
    pub repeats: u32,
    pub order: Order,
    pub soak: Soak,
    pub seed: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    Random,
    Given,
}

/// The CPUs on which a soaker counts idle time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Soak {
    None,
    /// On the first half of the CPUs.
    Some,
    All,
}

/// One combination of the values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cell {
    pub scenario: Scenario,
    pub request_bytes: u32,
    pub depth: u16,
}

/// Whether a run has a soaker: bandwidth is from runs without, CPU time from runs with one, as in
/// the report of Mayr and Gray (2000).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Beside {
    Nothing,
    Soaker,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    pub cell: Cell,
    pub beside: Beside,
    pub repeat: u32,
}

/// Runs between two calibrations of a soaker: about half a minute.
pub const BLOCK_RUNS: usize = 21;

impl Design {
    pub fn cells(&self) -> Vec<Cell> {
        let mut cells = Vec::new();
        for &scenario in &self.scenarios {
            for &request_bytes in &self.request_sizes {
                for &depth in &self.depths {
                    cells.push(Cell { scenario, request_bytes, depth });
                }
            }
            let apart = matches!(scenario, Scenario::DiskSource | Scenario::DiskSink);
            if let Some(depth) = self.depth_apart.filter(|_| apart) {
                let at = |request_bytes| Cell { scenario, request_bytes, depth };
                cells.extend(self.few_sizes().into_iter().map(at));
            }
        }
        cells
    }

    /// The first, the middle and the last size.
    fn few_sizes(&self) -> Vec<u32> {
        let sizes = &self.request_sizes;
        let mut few: Vec<u32> = [0, sizes.len() / 2, sizes.len().saturating_sub(1)]
            .iter()
            .filter_map(|place| sizes.get(*place).copied())
            .collect();
        few.dedup();
        few
    }

    /// Every run, in blocks. One repeat is a pass through all cells in random order, so that a slow
    /// minute of the machine affects no cell more than the others.
    pub fn blocks(&self) -> Vec<Vec<Run>> {
        let mut generator = Pcg64::seed_from_u64(self.seed);
        let mut runs = Vec::new();
        for repeat in 0..self.repeats {
            let mut pass: Vec<Run> = self
                .cells()
                .into_iter()
                .flat_map(|cell| {
                    let kinds = self.kinds(cell.scenario);
                    kinds.iter().map(move |&beside| Run { cell, beside, repeat })
                })
                .collect();
            if self.order == Order::Random {
                pass.shuffle(&mut generator);
            }
            runs.push(pass);
        }
        runs.iter().flat_map(|pass| pass.chunks(BLOCK_RUNS)).map(<[Run]>::to_vec).collect()
    }

    /// Halves give CPU time, and which of the two is slower: both from the same runs.
    fn kinds(&self, scenario: Scenario) -> &'static [Beside] {
        match self.soak {
            Soak::None => &[Beside::Nothing],
            Soak::Some | Soak::All if scenario.is_half() => &[Beside::Soaker],
            Soak::Some | Soak::All => &[Beside::Nothing, Beside::Soaker],
        }
    }

    /// The approximate duration: runs of `run_s` each, and the time between them.
    pub fn duration_s(&self, run_s: f64) -> f64 {
        let blocks = self.blocks();
        let runs: usize = blocks.iter().map(Vec::len).sum();
        let calibrations = if self.soak == Soak::None { 0 } else { blocks.len() };
        let pilots = self.cells().len();
        (runs + pilots) as f64 * (run_s + BETWEEN_RUNS_S) + calibrations as f64 * CALIBRATIONS_S
    }
}

impl Soak {
    pub const NAMES: &[&str] = &["none", "some", "all"];
    pub const ALL: &[Soak] = &[Soak::None, Soak::Some, Soak::All];

    pub fn name(self) -> &'static str {
        Soak::NAMES[self as usize]
    }

    /// The first of these CPUs, as many as are soaked.
    pub fn among(self, cpus: &[u32]) -> Vec<u32> {
        let count = match self {
            Soak::None => 0,
            Soak::Some => cpus.len().div_ceil(2),
            Soak::All => cpus.len(),
        };
        cpus[..count].to_vec()
    }
}

impl Order {
    pub const NAMES: &[&str] = &["random", "given"];
    pub const ALL: &[Order] = &[Order::Random, Order::Given];
}

/// Time between two runs: clean-up, and the start of the other end.
const BETWEEN_RUNS_S: f64 = 0.2;
/// Calibrations before and after a block.
const CALIBRATIONS_S: f64 = 4.2;

/// How many bytes a run must move to take `run_s`, from the time of a shorter pilot run. Whole
/// requests, at least one.
pub fn bytes_for(pilot_bytes: u64, pilot_s: f64, run_s: f64, request_bytes: u32) -> u64 {
    let request = u64::from(request_bytes);
    let wanted = pilot_bytes as f64 / pilot_s.max(1e-6) * run_s;
    // A pilot that was disturbed must not lead to an endless run.
    let wanted = wanted.clamp(request as f64, 1e15) as u64;
    wanted.div_ceil(request) * request
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn design() -> Design {
        Design {
            scenarios: vec![Scenario::Cpu, Scenario::Net],
            request_sizes: vec![16 << 10, 64 << 10, 1 << 20],
            depths: vec![1, 2],
            depth_apart: None,
            repeats: 5,
            order: Order::Random,
            soak: Soak::All,
            seed: 7,
        }
    }

    #[test]
    fn every_cell_is_run_as_often_in_every_pass() {
        for soak in [Soak::None, Soak::Some, Soak::All] {
            let design = Design { soak, ..design() };
            let mut times: BTreeMap<(Cell, Beside, u32), u32> = BTreeMap::new();
            for run in design.blocks().concat() {
                *times.entry((run.cell, run.beside, run.repeat)).or_default() += 1;
            }
            let kinds = if soak == Soak::None { 1 } else { 2 };
            assert_eq!(times.len(), 12 * kinds * 5, "{soak:?}");
            assert!(times.values().all(|count| *count == 1));
        }
    }

    #[test]
    fn disks_are_run_at_another_depth_too() {
        let scenarios = vec![Scenario::Cpu, Scenario::DiskSource, Scenario::DiskDisk];
        let design = Design { scenarios, depths: vec![1], depth_apart: Some(4), ..design() };
        let deep: Vec<Cell> = design.cells().into_iter().filter(|cell| cell.depth == 4).collect();
        assert!(deep.iter().all(|cell| cell.scenario == Scenario::DiskSource));
        let sizes: Vec<u32> = deep.iter().map(|cell| cell.request_bytes).collect();
        assert_eq!(sizes, [16 << 10, 64 << 10, 1 << 20]);
        assert_eq!(design.cells().len(), 9 + 3);
        let one = Design { request_sizes: vec![4096], ..design };
        assert_eq!(one.cells().len(), 3 + 1);
    }

    #[test]
    fn halves_are_run_beside_the_soaker_only() {
        let scenarios = vec![Scenario::DiskNet, Scenario::NetDisk];
        for (soak, beside) in [(Soak::All, Beside::Soaker), (Soak::None, Beside::Nothing)] {
            let runs = Design { scenarios: scenarios.clone(), soak, ..design() }.blocks().concat();
            assert_eq!(runs.len(), 2 * 3 * 2 * 5);
            assert!(runs.iter().all(|run| run.beside == beside), "{soak:?}");
        }
    }

    #[test]
    fn passes_follow_each_other() {
        let runs = design().blocks().concat();
        assert!(runs.is_sorted_by_key(|run| run.repeat));
        assert!(design().blocks().iter().all(|block| (1..=BLOCK_RUNS).contains(&block.len())));
    }

    #[test]
    fn an_order_comes_from_its_seed() {
        assert_eq!(design().blocks(), design().blocks());
        assert_ne!(design().blocks(), Design { seed: 8, ..design() }.blocks());
        let given = Design { order: Order::Given, soak: Soak::None, ..design() };
        let first: Vec<Cell> = given.blocks().concat()[..12].iter().map(|run| run.cell).collect();
        assert_eq!(first, given.cells());
    }

    #[test]
    fn runs_are_as_long_as_they_are_to_be() {
        let cases = [
            (64 << 20, 0.1, 1.0, 1 << 20, 640 << 20),
            (64 << 20, 2.0, 1.0, 1 << 20, 32 << 20),
            (1, 10.0, 1.0, 4096, 4096),
            (10_000, 1.0, 1.0, 4096, 12288),
        ];
        for (bytes, took_s, run_s, request, expect) in cases {
            assert_eq!(bytes_for(bytes, took_s, run_s, request), expect);
        }
        assert!(bytes_for(u64::MAX, 0.0, 1.0, 1 << 20) <= 1 << 50);
    }

    #[test]
    fn some_cpus_are_half_of_them() {
        assert_eq!(Soak::Some.among(&[0, 2]), [0]);
        assert_eq!(Soak::Some.among(&[5]), [5]);
        assert_eq!(Soak::All.among(&[0, 1, 4]), [0, 1, 4]);
        assert_eq!(Soak::None.among(&[0, 1]), [0; 0]);
    }
}
