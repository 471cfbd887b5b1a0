//! What the start of workers takes, before the first byte, and their end: most of the time of a
//! small job.

use base::units::Nanos;

/// How workers come to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    Here,
    BySsh,
    InQueue,
}

impl Start {
    /// Stated, not measured: no job is in the store of records. A process, its claims and its last
    /// look take a second and a half; a login adds one, a queue some.
    pub fn time(self) -> Nanos {
        Nanos::from_millis(match self {
            Start::Here => 1_500,
            Start::BySsh => 2_500,
            Start::InQueue => 5_000,
        })
    }

    /// What a reader of a prediction should know of it.
    pub fn told(self) -> String {
        let time = self.time();
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
