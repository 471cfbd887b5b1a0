//! Between the claim and the survey: what earlier attempts could still do must be over.

use super::{Answer, State, Worker};

impl Worker {
    /// What comes after a call of this part.
    pub(super) fn after_fence(&mut self, state: State, answer: Answer) -> State {
        let attempt = self.claim.map_or(0, |claim| claim.attempt);
        match (state, answer) {
            (State::ShowBusy, _) => {
                self.shows_idle = false;
                State::Ledger
            }
            (State::Ledger, _) if attempt > 1 => State::Tombstone(1),
            // The first attempt has none to fence.
            (State::Ledger, _) => State::Staging,
            (State::Tombstone(of), Answer::Folder) => State::Remove(of),
            (State::Tombstone(of), _) if of + 1 < attempt => State::Tombstone(of + 1),
            (State::Tombstone(_), _) => self.close_turns(),
            (State::Remove(of), Answer::GoesOn) => State::Remove(of),
            // Only a tombstone says that it cannot be made again.
            (State::Remove(of), _) => State::Tombstone(of),
            (State::CloseTurn(given), Answer::Stands) => State::OpenEarlier(given),
            (State::CloseTurn(_), Answer::Closed) => {
                self.turn += 1;
                self.close_turns()
            }
            (State::CloseTurn(_), _) => {
                self.turn += 1;
                State::Staging
            }
            (State::OpenEarlier(_), _) => {
                self.gave = self.gave.with(self.turn);
                self.turn += 1;
                self.close_turns()
            }
            (state, _) => state,
        }
    }

    /// Earlier attempts took turns in their order, so the first that can be closed is the last.
    fn close_turns(&self) -> State {
        self.part_at(self.turn).map_or(State::Staging, State::CloseTurn)
    }
}
