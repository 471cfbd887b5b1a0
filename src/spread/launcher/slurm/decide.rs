//! What is done about an element of the array, and what is said of its worker. Slurm's own view is
//! never taken for more than it is: what it does not know is asked again.

use super::queue::{Detail, Listed, State};
use crate::spread::launcher::{End, WorkerState};

/// What this program remembers of an element.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Memory {
    /// How often it was put back into the queue, or its hold released, after it failed.
    pub(super) retries: u32,
    /// The same after something that is no failure: its time limit, its node, preemption.
    pub(super) interruptions: u32,
    /// In how many looks, one after the other, it was in a state that Slurm itself should leave, or
    /// not in the queue at all.
    pub(super) looks: u32,
    /// It does not run again: what was last said of it holds.
    pub(super) ended: Option<End>,
}

/// A request to Slurm about one element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Nothing,
    /// `scontrol update StartTime=now`: it waits because Slurm makes what it requeues wait.
    StartNow,
    /// `scontrol release`: Slurm held it.
    Release,
    /// `scontrol requeue`: it has ended, and its work is not done for all that is known.
    Requeue,
}

/// Retries of one worker. One that fails more often than that has a reason that stays.
pub(super) const RETRIES_MAX: u32 = 5;

/// A long copy meets its time limit often; but one that does nothing until then must end.
pub(super) const INTERRUPTIONS_MAX: u32 = 100;

/// Looks before something that Slurm should change by itself is taken for a state that stays.
const LOOKS: u32 = 3;

/// True where `scontrol show job` says what the list does not.
pub(super) fn needs_detail(listed: &Listed) -> bool {
    match listed.state {
        State::Pending => listed.reason == BEGIN_TIME,
        State::Failed | State::OutOfMemory => true,
        _ => false,
    }
}

/// One element that the queue knows. `detail` is there where it was asked for and answered.
pub(super) fn element(
    listed: &Listed,
    detail: Option<&Detail>,
    memory: &mut Memory,
) -> (Step, WorkerState) {
    let leaves_by_itself = matches!(listed.state, State::NodeFailed | State::Preempted);
    memory.looks = if leaves_by_itself { memory.looks + 1 } else { 0 };
    if let Some(end) = &memory.ended {
        return (Step::Nothing, WorkerState::Ended(end.clone()));
    }
    let pending = |why: &str| WorkerState::Pending(why.to_string());
    match &listed.state {
        State::Pending => waiting(listed, detail, memory),
        State::RequeuedAndHeld => release(memory),
        State::Running => (Step::Nothing, WorkerState::Running(listed.nodes.clone())),
        State::Completing => {
            let text = "it ends, or comes back into the queue";
            (Step::Nothing, WorkerState::Unknown(text.to_string()))
        }
        State::Completed => ended(memory, End::Code(0)),
        // By a person, or the site: it is not for us to start it again.
        State::Cancelled => ended(memory, End::Cancelled),
        State::Failed | State::OutOfMemory => failed(listed, detail, memory),
        State::TimedOut => again(memory, End::Lost("its time limit was over".to_string())),
        State::NodeFailed | State::Preempted if memory.looks < LOOKS => {
            (Step::Nothing, pending("Slurm puts it back into the queue"))
        }
        State::NodeFailed => again(memory, End::Lost("its node failed".to_string())),
        State::Preempted => again(memory, End::Lost("preempted".to_string())),
        State::Other(name) => (Step::Nothing, WorkerState::Unknown(format!("Slurm says {name}"))),
    }
}

/// One element that an answer of the controller does not have.
pub(super) fn absent(memory: &mut Memory) -> WorkerState {
    memory.looks += 1;
    if let Some(end) = &memory.ended {
        return WorkerState::Ended(end.clone());
    }
    if memory.looks < LOOKS {
        return WorkerState::Unknown("Slurm does not list it".to_string());
    }
    let end = End::Lost(LOST.to_string());
    memory.ended = Some(end.clone());
    WorkerState::Ended(end)
}

pub(super) const LOST: &str = "Slurm does not know it any more";
const BEGIN_TIME: &str = "BeginTime";

fn waiting(listed: &Listed, detail: Option<&Detail>, memory: &mut Memory) -> (Step, WorkerState) {
    let reason = listed.reason.as_str();
    let lower = reason.to_ascii_lowercase();
    if reason == BEGIN_TIME {
        // Before its first start the user may have asked for a time.
        let was_started = detail.is_some_and(|detail| detail.restarts > 0);
        let step = if was_started { Step::StartNow } else { Step::Nothing };
        return (step, WorkerState::Pending(reason.to_string()));
    }
    // A hold by a person (`JobHeldUser`, `JobHeldAdmin`) is theirs to release.
    if lower.contains("held") && (lower.contains("launch") || lower.contains("requeue")) {
        return release(memory);
    }
    (Step::Nothing, WorkerState::Pending(reason.to_string()))
}

fn failed(listed: &Listed, detail: Option<&Detail>, memory: &mut Memory) -> (Step, WorkerState) {
    let Some(detail) = detail else {
        return (Step::Nothing, WorkerState::Unknown(format!("failed: {}", listed.reason)));
    };
    let end = match (detail.exit_signal, detail.exit_code) {
        (0, 0) => End::Lost(format!("Slurm says it failed: {}", listed.reason)),
        (0, code) => End::Code(code),
        (signal, _) => End::Signal(signal),
    };
    match end {
        // Another start would end in the same way.
        End::Code(2 | 5 | 8) => ended(memory, end),
        // It was told to stop before its time limit.
        End::Code(130) => again(memory, end),
        _ => retry(memory, end),
    }
}

fn ended(memory: &mut Memory, end: End) -> (Step, WorkerState) {
    memory.ended = Some(end.clone());
    (Step::Nothing, WorkerState::Ended(end))
}

fn retry(memory: &mut Memory, end: End) -> (Step, WorkerState) {
    if memory.retries >= RETRIES_MAX {
        return ended(memory, end);
    }
    memory.retries += 1;
    requeue(&end)
}

fn again(memory: &mut Memory, end: End) -> (Step, WorkerState) {
    if memory.interruptions >= INTERRUPTIONS_MAX {
        return ended(memory, end);
    }
    memory.interruptions += 1;
    requeue(&end)
}

fn requeue(end: &End) -> (Step, WorkerState) {
    (Step::Requeue, WorkerState::Pending(format!("put back into the queue: {end}")))
}

fn release(memory: &mut Memory) -> (Step, WorkerState) {
    if memory.retries >= RETRIES_MAX {
        return ended(memory, End::Lost("Slurm holds it, as it failed too often".to_string()));
    }
    memory.retries += 1;
    (Step::Release, WorkerState::Pending("its hold is released".to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(state: State, reason: &str) -> Listed {
        Listed {
            job: 1,
            element: Some(0),
            state,
            reason: reason.into(),
            nodes: "c1".into(),
            runs_s: None,
        }
    }

    fn exit(code: u8, signal: u8) -> Option<Detail> {
        Some(Detail { exit_code: code, exit_signal: signal, restarts: 1 })
    }

    /// What is done at the first look at each state.
    #[test]
    fn one_look() {
        let first = Detail { restarts: 0, ..Detail::default() };
        let cases = [
            (State::Pending, "Resources", None, Step::Nothing),
            (State::Pending, "BeginTime", exit(0, 0), Step::StartNow),
            // It has not run yet: the user chose the time.
            (State::Pending, "BeginTime", Some(first), Step::Nothing),
            // Nobody knows: asked again.
            (State::Pending, "BeginTime", None, Step::Nothing),
            (State::Pending, "JobHeldUser", None, Step::Nothing),
            (State::Pending, "JobHeldAdmin", None, Step::Nothing),
            (State::Pending, "launch failed requeued held", None, Step::Release),
            (State::RequeuedAndHeld, "", None, Step::Release),
            (State::Running, "None", None, Step::Nothing),
            (State::Completed, "None", None, Step::Nothing),
            (State::Cancelled, "None", None, Step::Nothing),
            (State::Failed, "NonZeroExitCode", None, Step::Nothing),
            (State::Failed, "NonZeroExitCode", exit(7, 0), Step::Requeue),
            (State::Failed, "JobLaunchFailure", exit(0, 9), Step::Requeue),
            // Stopped by SIGTERM before its time limit.
            (State::Failed, "NonZeroExitCode", exit(130, 0), Step::Requeue),
            (State::Failed, "NonZeroExitCode", exit(2, 0), Step::Nothing),
            (State::Failed, "NonZeroExitCode", exit(5, 0), Step::Nothing),
            (State::Failed, "NonZeroExitCode", exit(8, 0), Step::Nothing),
            (State::TimedOut, "TimeLimit", None, Step::Requeue),
            (State::NodeFailed, "NodeDown", None, Step::Nothing),
            (State::Preempted, "None", None, Step::Nothing),
            (State::Other("REVOKED".into()), "", None, Step::Nothing),
        ];
        for (state, reason, detail, step) in cases {
            let listed = listed(state, reason);
            let mut memory = Memory::default();
            let (found, said) = element(&listed, detail.as_ref(), &mut memory);
            assert_eq!(found, step, "{listed:?} {detail:?}: {said:?}");
            let asks = found != Step::Nothing;
            assert!(!asks || matches!(said, WorkerState::Pending(_)), "{listed:?}: {said:?}");
        }
    }

    /// Slurm's own word is `done` only for what it calls completed.
    #[test]
    fn only_completed_is_success() {
        for state in [State::Failed, State::NodeFailed, State::Other("X".into()), State::Cancelled]
        {
            let (_, said) =
                element(&listed(state, ""), exit(0, 0).as_ref(), &mut Memory::default());
            assert_ne!(said, WorkerState::Ended(End::Code(0)));
        }
    }

    #[test]
    fn retries_have_a_limit() {
        for (code, count) in [(7, RETRIES_MAX), (130, INTERRUPTIONS_MAX)] {
            let mut memory = Memory::default();
            let failed = listed(State::Failed, "NonZeroExitCode");
            let detail = exit(code, 0);
            for _ in 0..count {
                assert_eq!(element(&failed, detail.as_ref(), &mut memory).0, Step::Requeue);
                let running = listed(State::Running, "None");
                assert_eq!(element(&running, None, &mut memory).0, Step::Nothing);
            }
            let last = element(&failed, detail.as_ref(), &mut memory);
            assert_eq!(last, (Step::Nothing, WorkerState::Ended(End::Code(code))));
            assert_eq!(absent(&mut memory), WorkerState::Ended(End::Code(code)));
        }
    }

    /// Slurm requeues what failed with its node, under the same number; where it does not, we do.
    #[test]
    fn slurm_gets_time_for_its_own_requeue() {
        let mut memory = Memory::default();
        let lost = listed(State::NodeFailed, "NodeDown");
        let steps: Vec<Step> = (0..3).map(|_| element(&lost, None, &mut memory).0).collect();
        assert_eq!(steps, [Step::Nothing, Step::Nothing, Step::Requeue]);
    }

    /// It stays what it is, also when Slurm has forgotten it.
    #[test]
    fn what_is_cancelled_stays_cancelled() {
        let mut memory = Memory::default();
        let ends = element(&listed(State::Completing, "None"), None, &mut memory);
        assert!(matches!(ends, (Step::Nothing, WorkerState::Unknown(_))), "{ends:?}");
        let cancelled = element(&listed(State::Cancelled, "None"), None, &mut memory);
        assert_eq!(cancelled, (Step::Nothing, WorkerState::Ended(End::Cancelled)));
        assert_eq!(absent(&mut memory), WorkerState::Ended(End::Cancelled));
    }

    #[test]
    fn what_is_not_listed_is_asked_again() {
        let mut memory = Memory::default();
        assert!(matches!(absent(&mut memory), WorkerState::Unknown(_)));
        assert!(matches!(absent(&mut memory), WorkerState::Unknown(_)));
        let running = listed(State::Running, "None");
        element(&running, None, &mut memory);
        assert!(matches!(absent(&mut memory), WorkerState::Unknown(_)));
        assert!(matches!(absent(&mut memory), WorkerState::Unknown(_)));
        assert!(matches!(absent(&mut memory), WorkerState::Ended(End::Lost(_))));
    }
}
