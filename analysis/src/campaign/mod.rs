//! A campaign: which settings are tried on which routes, in which order, how often; a copy of it as
//! a record; and the analysis of its records. Pure: the same plan gives the same order. It needs no
//! host and no store.

pub mod fields;
pub mod study;

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64;

use crate::study::experiment::Order;
use base::codec::Compress;
use base::units::{Bytes, Nanos};

/// What is tried, and how often.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// How many hosts there are: a cell has the index of its host among them. The two ways to an
    /// object store and back count as two.
    pub hosts: usize,
    pub grid: Grid,
    /// The program's own choice of settings; tried in every pass, to be compared with the best of
    /// the grid.
    pub auto: Vec<Setting>,
    /// One pass through all cells is one replicate.
    pub passes: u32,
    pub order: Order,
    pub seed: u64,
}

/// Every combination of these is a cell of each host.
#[derive(Clone, Debug, PartialEq)]
pub struct Grid {
    pub axes: Axes,
    pub extents: Vec<Extent>,
}

/// What is varied: every combination of the values of all lists is a setting.
#[derive(Clone, Debug, PartialEq)]
pub enum Axes {
    /// Of a copy to another host.
    Path {
        /// `None` leaves the window to TCP.
        windows: Vec<Option<u32>>,
        streams: Vec<u16>,
        levels: Vec<Compress>,
    },
    /// Of a copy from or to an object store.
    Store {
        request_sizes: Vec<u32>,
        /// Requests under way at each stream.
        depths: Vec<u16>,
    },
}

/// What ends a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Extent {
    Time(Nanos),
    Bytes(u64),
}

/// How a copy is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    Path {
        window_bytes: Option<u32>,
        streams: u16,
        compress: Compress,
    },
    /// `None` is what a copy has by itself.
    Store {
        request_bytes: Option<u32>,
        depth: Option<u16>,
    },
}

/// The two ways of an object store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Put,
    Get,
}

/// Whether a cell is one of the grid, or the program's own choice of settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Grid,
    Auto,
}

/// One copy of a campaign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    /// Its index in the order of all cells, from 0.
    pub index: u32,
    pub host: usize,
    pub kind: Kind,
    pub setting: Setting,
    pub extent: Extent,
    pub pass: u32,
}

/// What a campaign will take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    pub cells: usize,
    pub duration_s: f64,
    /// The part of the whole duration in which the path to any one host is loaded.
    pub path_busy_s: f64,
}

impl Plan {
    /// Every copy in the order in which they are made.
    pub fn cells(&self) -> Vec<Cell> {
        let mut generator = Pcg64::seed_from_u64(self.seed);
        let mut cells = Vec::new();
        for pass in 0..self.passes {
            let mut of_pass: Vec<Cell> =
                (0..self.hosts).flat_map(|host| self.pass_of_host(pass, host)).collect();
            if self.order == Order::Random {
                of_pass.shuffle(&mut generator);
            }
            cells.extend(of_pass);
        }
        (0..).zip(&mut cells).for_each(|(index, cell)| cell.index = index);
        cells
    }

    /// In the order of the lists: the last one varies fastest. The program's own choice comes last.
    fn pass_of_host(&self, pass: u32, host: usize) -> Vec<Cell> {
        let of_grid = self.grid.axes.settings().into_iter().map(|setting| (Kind::Grid, setting));
        let auto = self.auto.iter().map(|setting| (Kind::Auto, *setting));
        let at_each_length = |(kind, setting)| {
            let cell = move |extent: &Extent| Cell {
                index: 0,
                host,
                kind,
                setting,
                extent: *extent,
                pass,
            };
            self.grid.extents.iter().map(cell)
        };
        of_grid.chain(auto).flat_map(at_each_length).collect()
    }

    /// The duration if each copy is followed by a pause of its own length. The rate of a copy is
    /// not known before it is made: `assumed_bytes_per_s` stands for it.
    pub fn load(&self, assumed_bytes_per_s: f64) -> Load {
        let cells = self.cells();
        let busy_s = |cell: &Cell| {
            let moving_s = match cell.extent {
                Extent::Time(time) => time.seconds(),
                Extent::Bytes(bytes) => bytes as f64 / assumed_bytes_per_s,
            };
            moving_s + AROUND_A_COPY_S
        };
        let all_s: f64 = cells.iter().map(busy_s).sum();
        let of_host = |host| cells.iter().filter(move |cell| cell.host == host).map(busy_s).sum();
        Load {
            cells: cells.len(),
            duration_s: all_s * 2.0,
            path_busy_s: (0..self.hosts).map(of_host).fold(0.0, f64::max),
        }
    }
}

impl Axes {
    /// The last list varies fastest.
    pub fn settings(&self) -> Vec<Setting> {
        let mut settings = Vec::new();
        match self {
            Axes::Path { windows, streams, levels } => {
                for &window_bytes in windows {
                    for &streams in streams {
                        let of = |&compress| Setting::Path { window_bytes, streams, compress };
                        settings.extend(levels.iter().map(of));
                    }
                }
            }
            Axes::Store { request_sizes, depths } => {
                for &bytes in request_sizes {
                    let request_bytes = Some(bytes);
                    let of = |&depth| Setting::Store { request_bytes, depth: Some(depth) };
                    settings.extend(depths.iter().map(of));
                }
            }
        }
        settings
    }
}

impl Way {
    pub const ALL: [Way; 2] = [Way::Put, Way::Get];

    /// The route of a store, as a host has its name.
    pub fn route(self, url: &str) -> String {
        match self {
            Way::Put => format!("to {url}"),
            Way::Get => format!("from {url}"),
        }
    }
}

impl Extent {
    /// As typed on the command line.
    pub fn typed(self) -> String {
        match self {
            Extent::Time(time) => format!("{}s", time.seconds()),
            Extent::Bytes(bytes) => Bytes(bytes).typed(),
        }
    }
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Kind::Grid => "grid",
            Kind::Auto => "auto",
        }
    }
}

/// The orders of SLAC's measurements of 2001, as printed on their page: windows in KiB.
pub const SLAC_WINDOWS_KIB: [u32; 8] = [8, 1024, 16, 512, 32, 256, 128, 64];
pub const SLAC_STREAMS: [u16; 17] = [1, 20, 5, 12, 8, 10, 4, 25, 11, 3, 7, 40, 15, 9, 2, 30, 6];
pub const SLAC_LEVELS: [u8; 8] = [0, 5, 1, 7, 3, 9, 2, 4];

/// Login before a copy, and its end.
const AROUND_A_COPY_S: f64 = 0.6;

#[cfg(test)]
mod tests {
    use super::*;
    use base::codec::Coding;

    fn level(level: u8) -> Compress {
        if level == 0 { Compress::Off } else { Compress::Always(Coding::Zlib(level)) }
    }

    fn auto() -> Setting {
        Setting::Path { window_bytes: None, streams: 4, compress: Compress::Off }
    }

    fn slac(passes: u32) -> Plan {
        Plan {
            hosts: 2,
            grid: Grid {
                axes: Axes::Path {
                    windows: SLAC_WINDOWS_KIB.iter().map(|kib| Some(kib << 10)).collect(),
                    streams: SLAC_STREAMS.to_vec(),
                    levels: SLAC_LEVELS.iter().map(|number| level(*number)).collect(),
                },
                extents: vec![Extent::Time(Nanos::from_millis(10_000))],
            },
            auto: vec![auto()],
            passes,
            order: Order::Given,
            seed: 1,
        }
    }

    /// The page of 30 December 2001: "windows (by default …) streams (by default …) compression
    /// factors (by default …)".
    #[test]
    fn the_order_is_that_of_the_page() {
        const WINDOWS: &str = "8kBytes, 1024kBytes, 16kBytes, 512kBytes, 32kBytes, 256kBytes, \
                               128kBytes, 64kBytes";
        const STREAMS: &str = "1,20,5,12,8,10,4,25,11,3,7,40,15,9,2,30,6";
        const LEVELS: &str = "0 5 1 7 3 9 2 4";
        let mut expect = Vec::new();
        for window in WINDOWS.split(", ") {
            for streams in STREAMS.split(',') {
                for factor in LEVELS.split(' ') {
                    let kib: u32 = window.strip_suffix("kBytes").unwrap().parse().unwrap();
                    let (streams, factor) = (streams.parse().unwrap(), factor.parse().unwrap());
                    let (window_bytes, compress) = (Some(kib << 10), level(factor));
                    expect.push(Setting::Path { window_bytes, streams, compress });
                }
            }
        }
        let cells = slac(2).cells();
        assert_eq!(cells.len(), 2 * 2 * (8 * 17 * 8 + 1));
        for (pass, of_pass) in cells.chunks(2 * 1089).enumerate() {
            for (host, of_host) in of_pass.chunks(1089).enumerate() {
                let (grid, of_auto) = of_host.split_at(1088);
                assert!(of_host.iter().all(|c| c.host == host && c.pass as usize == pass));
                assert_eq!(grid.iter().map(|cell| cell.setting).collect::<Vec<_>>(), expect);
                assert_eq!((of_auto[0].kind, of_auto[0].setting), (Kind::Auto, auto()));
            }
        }
        assert!(cells.iter().zip(0..).all(|(cell, index)| cell.index == index));
    }

    #[test]
    fn each_way_of_a_store_has_every_size_with_every_depth() {
        let own = Setting::Store { request_bytes: None, depth: None };
        let plan = Plan {
            hosts: Way::ALL.len(),
            grid: Grid {
                axes: Axes::Store { request_sizes: vec![5, 8], depths: vec![1, 4] },
                extents: vec![Extent::Bytes(64)],
            },
            auto: vec![own],
            ..slac(1)
        };
        let of = |bytes, depth| Setting::Store { request_bytes: Some(bytes), depth: Some(depth) };
        let all = [of(5, 1), of(5, 4), of(8, 1), of(8, 4), own];
        for (host, of_host) in plan.cells().chunks(all.len()).enumerate() {
            assert!(of_host.iter().all(|cell| cell.host == host));
            assert_eq!(of_host.iter().map(|cell| cell.setting).collect::<Vec<_>>(), all);
        }
    }

    #[test]
    fn every_pass_is_complete_and_mixed_by_its_seed() {
        let plan = Plan { order: Order::Random, ..slac(3) };
        let cells = plan.cells();
        let bare = |cell: &Cell| Cell { index: 0, pass: 0, ..*cell };
        let sorted = |cells: &[Cell]| {
            let mut words: Vec<String> = cells.iter().map(|c| format!("{:?}", bare(c))).collect();
            words.sort();
            words
        };
        let passes: Vec<&[Cell]> = cells.chunks(cells.len() / 3).collect();
        assert!(passes.iter().all(|pass| sorted(pass) == sorted(passes[0])));
        let order = |cells: &[Cell]| cells.iter().map(bare).collect::<Vec<_>>();
        assert_ne!(order(passes[0]), order(passes[1]));
        assert_eq!(cells, plan.cells());
        assert_ne!(cells, Plan { seed: 2, ..plan }.cells());
    }

    #[test]
    fn a_load_is_at_most_half_of_the_time() {
        let load = slac(1).load(1e6);
        assert_eq!(load.cells, 2178);
        assert!((load.duration_s - 2178.0 * 2.0 * 10.6).abs() < 1.0, "{load:?}");
        assert!((load.path_busy_s - load.duration_s / 4.0).abs() < 1.0, "two hosts: {load:?}");
        let mut sizes = slac(1);
        sizes.grid.extents = vec![Extent::Bytes(20_000_000)];
        assert!((sizes.load(1e6).duration_s - 2178.0 * 2.0 * 20.6).abs() < 1.0);
    }
}
