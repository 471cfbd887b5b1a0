//! What the start of workers takes, before the first byte, and their end: most of the time of a
//! small job.

use base::units::Nanos;

/// The way to a far host, as earlier copies have shown it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Route {
    /// How many were looked at; with none the rest is stated.
    pub copies: usize,
    pub login: Nanos,
    /// So many times as long as nodes are predicted to take.
    pub factor: f64,
}

impl Route {
    /// From the logins and the factors of the newest copies.
    pub fn of(mut copies: Vec<(f64, f64)>) -> Route {
        let middle = copies.len() / 2;
        copies.sort_by(|a, b| a.1.total_cmp(&b.1));
        match copies.get(middle) {
            Some((login_s, factor)) => {
                let login = Nanos((login_s.max(0.0) * 1e9) as u64);
                Route { copies: copies.len(), login, factor: *factor }
            }
            None => Route { copies: 0, login: LOGIN, factor: 1.0 },
        }
    }

    /// One copy of all of it, from one host.
    pub fn copy(self, total: Nanos) -> Nanos {
        self.login + self.copying(total)
    }

    pub fn copying(self, total: Nanos) -> Nanos {
        Nanos((total.0 as f64 * self.factor) as u64)
    }

    /// What a spread adds: the coordinator logs in, then each worker, and each of its shards costs
    /// a dozen round trips.
    pub fn added(self, shards: u64, nodes: u64) -> Nanos {
        Nanos(2 * self.login.0 + shards.div_ceil(nodes.max(1)) * ROUND_TRIPS.0)
    }
}

/// Where no copy has shown it.
const LOGIN: Nanos = Nanos::from_millis(500);
/// Over 20 ms; stated, as records do not have the time of one.
const ROUND_TRIPS: Nanos = Nanos::from_millis(250);

/// How workers come to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    Here,
    BySsh,
    InQueue,
}

impl Start {
    /// Stated, not measured: no job is in the store of records. A process, its claims and its last
    /// look take half a second; a login adds one, a queue some.
    pub fn time(self) -> Nanos {
        Nanos::from_millis(match self {
            Start::Here => 500,
            Start::BySsh => 1_500,
            Start::InQueue => 5_000,
        })
    }

    /// What a reader of a prediction should know of this time of it.
    pub fn told(self, time: Nanos) -> String {
        match self {
            Start::Here => format!("{time} of it are for the start and the end of the workers"),
            Start::BySsh => format!("{time} of it are for logins, and the workers' start and end"),
            Start::InQueue => format!(
                "{time} of it are for the start and the end of the workers, on nodes that are \
                 free: what the queue lets them wait comes on top"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_is_as_the_copies_before() {
        let total = Nanos::from_millis(1000);
        let unknown = Route::of(Vec::new());
        assert_eq!((unknown.copies, unknown.copy(total)), (0, Nanos::from_millis(1500)));
        let route = Route::of(vec![(0.25, 9.0), (0.5, 2.0), (0.1, 0.1)]);
        assert_eq!((route.copies, route.copy(total)), (3, Nanos::from_millis(2500)));
        assert_eq!(route.added(7, 3), Nanos::from_millis(1750));
    }
}
