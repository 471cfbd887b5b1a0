//! What a reader of a job should know: that nobody works on it, that a worker runs and does not
//! show itself, and what to do.

use super::overview::{JobState, Overview, WorkerView};
use serde::Serialize;

/// A worker as a queue lists it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Queued {
    /// The name that its process was started with.
    pub name: String,
    pub state: QueueState,
    /// Why it waits, in the queue's word and in ours.
    pub why: String,
    pub node: String,
    pub runs_s: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum QueueState {
    Pending,
    Running,
    Cancelled,
    /// On its way to another state, or ended.
    Other,
}

impl WorkerView {
    /// It shows itself, and has not ended.
    pub fn is_there(&self) -> bool {
        self.code.is_none() && !self.is_lost()
    }

    /// It shows itself no more, and has not said that it ends.
    pub fn is_lost(&self) -> bool {
        self.state == SILENT || self.state == LOST
    }
}

impl Overview {
    pub fn running(&self) -> usize {
        self.workers.iter().filter(|worker| worker.is_there()).count()
    }

    /// Workers that run for the queue for longer than a lease, and have not shown themselves.
    pub fn unshown(&self) -> impl Iterator<Item = &Queued> {
        let is_shown = |of: &&Queued| {
            let own = self.workers.iter().filter(|worker| worker.started_as == of.name);
            own.into_iter()
                .any(|worker| worker.is_there() || worker.is_lost() || worker.code == Some(0))
        };
        let runs_long = |of: &&Queued| {
            of.state == QueueState::Running && of.runs_s.is_some_and(|s| s as f64 > self.lease_s)
        };
        self.queue.iter().filter(runs_long).filter(move |of| !is_shown(of))
    }

    /// What to do about such a worker.
    pub fn unshown_text(&self, name: &str) -> String {
        let on = self.queue.iter().find(|of| of.name == name);
        let on = on.map_or(String::new(), |of| format!(" on {}", of.node));
        format!(
            "worker {name} runs{on} and does not show itself: is '{}' the same folder there, and \
             the program at the same path? What it prints is in '{}/logs'",
            self.job, self.job
        )
    }

    /// What is known of a worker that shows itself no more.
    pub fn silent_text(&self, of: &WorkerView) -> String {
        let has_it = |other: &&WorkerView| other.is_there() && other.shard == of.shard;
        let shard = of.shard.map_or(String::new(), |shard| {
            let holder = self.workers.iter().find(has_it);
            match holder {
                Some(holder) => format!("; its shard {shard} went to {}", holder.host),
                None => format!("; others take its shard {shard}"),
            }
        });
        let queued = self.queue.iter().find(|queued| queued.name == of.started_as);
        let queue = queued.map_or("", |queued| match queued.state {
            QueueState::Pending => "; Slurm has put it back into the queue",
            QueueState::Running => "; to Slurm it runs still",
            QueueState::Cancelled | QueueState::Other => "",
        });
        format!(
            "{} is lost: worker {} has shown no change for more than {:.0} s{shard}{queue}",
            of.host, of.name, self.lease_s
        )
    }

    /// What a reader should know, the most important first; of a job that goes well nothing.
    pub fn attention(&self) -> Vec<String> {
        let mut notes: Vec<String> = self.nobody().into_iter().collect();
        if self.state == JobState::Done {
            return notes;
        }
        let silent = self.workers.iter().filter(|worker| worker.state == SILENT);
        notes.extend(silent.map(|worker| self.silent_text(worker)));
        notes.extend(self.unshown().map(|of| self.unshown_text(&of.name)));
        let pending: Vec<&Queued> = self.in_queue(QueueState::Pending).collect();
        if let Some(first) = pending.first() {
            let why = if first.why.is_empty() { "no reason is given" } else { &first.why };
            notes.push(format!("in the queue: {} ({why})", workers(pending.len())));
        }
        let cancelled = self.in_queue(QueueState::Cancelled).count();
        if cancelled > 0 && self.state != JobState::Cancelled {
            notes.push(format!(
                "cancelled in Slurm: {}, which stay away until 'datapump spread resume {}'",
                workers(cancelled),
                self.job
            ));
        }
        notes
    }

    fn in_queue(&self, state: QueueState) -> impl Iterator<Item = &Queued> {
        self.queue.iter().filter(move |of| of.state == state)
    }

    /// That nobody works on a job that is not over.
    fn nobody(&self) -> Option<String> {
        if self.running() > 0 || self.is_finished {
            return None;
        }
        let job = &self.job;
        let resume = format!("'datapump spread resume {job}'");
        let is_asked = self.in_queue(QueueState::Pending).next().is_some()
            || self.in_queue(QueueState::Running).next().is_some();
        Some(match self.state {
            JobState::Cancelled => format!(
                "nobody works on it, as it was cancelled: {resume} continues, 'datapump spread \
                 cancel --forget {job}' gives it up"
            ),
            JobState::GivenUp => {
                "it was given up: what was committed stays at the destination, and nothing \
                 continues it"
                    .to_string()
            }
            JobState::Done => format!(
                "all shards are done; if no 'datapump spread' follows the job any more, {resume} \
                 finishes it"
            ),
            _ if is_asked => "no worker shows itself yet".to_string(),
            _ => format!("nobody works on it: {resume} continues"),
        })
    }
}

fn workers(count: usize) -> String {
    format!("{count} worker{}", if count == 1 { "" } else { "s" })
}

/// The state of a worker that may be lost.
pub const SILENT: &str = "silent";
/// In a job that is over: it has never said that it ends.
pub const LOST: &str = "lost";

#[cfg(test)]
mod tests {
    use super::*;

    fn job(state: JobState, workers: &[(&str, Option<u8>)], queue: &[Queued]) -> Overview {
        let worker = |(state, code): &(&str, Option<u8>)| WorkerView {
            started_as: "slurm-7-0".into(),
            state: (*state).into(),
            code: *code,
            ..WorkerView::default()
        };
        let workers = workers.iter().map(worker).collect();
        let (job, queue) = ("job".into(), queue.to_vec());
        Overview { job, state, workers, queue, lease_s: 15.0, ..Overview::default() }
    }

    fn queued(state: QueueState, runs_s: u64) -> Queued {
        let (name, node) = ("slurm-7-0".into(), "c1".into());
        Queued { name, state, why: "Resources".into(), node, runs_s: Some(runs_s) }
    }

    /// A job and the beginnings of what is said of it.
    #[test]
    fn what_a_reader_should_know() {
        let (runs, ended) = (("copying", None), ("ended", Some(130)));
        let on = |host: &str, state: &str| WorkerView {
            host: host.into(),
            started_as: "slurm-7-0".into(),
            state: state.into(),
            shard: Some(19),
            ..WorkerView::default()
        };
        let went_on = Overview {
            workers: vec![on("c2", SILENT), on("c1", "copying")],
            ..job(JobState::Running, &[], &[queued(QueueState::Running, 900)])
        };
        assert_eq!(
            went_on.attention(),
            ["c2 is lost: worker  has shown no change for more than 15 s; its shard 19 went to \
              c1; to Slurm it runs still"]
        );
        let cases: [(Overview, &[&str]); 10] = [
            (job(JobState::Running, &[runs], &[]), &[]),
            (job(JobState::Running, &[ended], &[]), &["nobody works on it: 'datapump spread res"]),
            (job(JobState::Cancelled, &[ended], &[]), &["nobody works on it, as it was cancel"]),
            (job(JobState::GivenUp, &[ended], &[]), &["it was given up: what was committed stays"]),
            (
                job(JobState::Running, &[("silent", None)], &[]),
                &["nobody works on it: ", " is lost"],
            ),
            (
                job(JobState::Running, &[], &[queued(QueueState::Pending, 0)]),
                &["no worker shows itself yet", "in the queue: 1 worker (Resources)"],
            ),
            (
                job(JobState::Running, &[ended], &[queued(QueueState::Running, 16)]),
                &["no worker shows itself yet", "worker slurm-7-0 runs on c1 and does not show"],
            ),
            // It has just been started.
            (
                job(JobState::Running, &[], &[queued(QueueState::Running, 14)]),
                &["no worker shows itself yet"],
            ),
            (job(JobState::Running, &[runs], &[queued(QueueState::Running, 900)]), &[]),
            (
                job(JobState::Running, &[runs], &[queued(QueueState::Cancelled, 900)]),
                &["cancelled in Slurm: 1 worker, which"],
            ),
        ];
        for (job, expect) in cases {
            let notes = job.attention();
            let agree = notes.iter().zip(expect).all(|(note, begin)| note.starts_with(begin));
            assert!(agree && notes.len() == expect.len(), "{notes:?}, not {expect:?}");
        }
    }

    #[test]
    fn a_job_that_is_over_needs_nobody() {
        let done = job(JobState::Done, &[("ended", Some(0))], &[]);
        assert!(done.attention()[0].starts_with("all shards are done"));
        let finished = Overview { is_finished: true, ..done };
        assert_eq!(finished.attention(), Vec::<String>::new());
    }
}
