//! What `--stall` does, in a world without a clock.

use std::sync::atomic::Ordering::Relaxed;

use super::{Hosts, Stuck};

impl Hosts {
    /// Where bits turn over, one of a length makes a reader wait for bytes that nobody sends. Its
    /// stream is given up, as the program does when nothing has come for `--stall`. Elsewhere
    /// whoever stands still has no excuse.
    pub(super) fn give_up_stalled(&mut self) -> Result<(), Stuck> {
        let flips = self.ground.weather.flip > 0;
        let mut pairs = self.pairs.iter_mut().filter(|_| flips);
        let stalled = pairs.find(|pair| !pair.broken && pair.source.is_some());
        let pair = stalled.ok_or(Stuck::Still)?;
        self.ground.world.cut(&pair.wire.socket);
        pair.wire.given_up.store(true, Relaxed);
        pair.broken = true;
        Ok(())
    }
}
