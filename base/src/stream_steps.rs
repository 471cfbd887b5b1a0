//! How a copy chose its number of streams (`--streams auto`): what it did, and why.

use super::settings::choice;
use super::units::{Nanos, Rate};

choice!(
    /// Why the number of streams changes, or stays.
    StepReason {
        /// More are tried: the window that the receiver advertises holds each stream back.
        ReceiveWindow = "receive-window",
        /// More are tried: the send buffer does.
        SendBuffer = "send-buffer",
        /// More are tried: losses by chance do, without a queue.
        Losses = "losses",
        /// More are tried: each stream's thread is busy, and the host has idle CPUs.
        Cpu = "cpu",
        /// Fewer are tried: a queue stands, so the path is full.
        Queue = "queue",
        /// Back to the number before, to measure that once more.
        Compare = "compare",
        /// More streams were faster than fewer before and after: they stay.
        Gain = "gain",
        /// More streams were no faster: there are as many as before.
        NoGain = "no-gain",
        /// Fewer streams are as fast: they stay.
        AsFast = "as-fast",
        /// Fewer streams were slower: there are as many as before.
        Slower = "slower",
        /// Others fill the path too: more than four would take from them.
        Others = "others",
        /// Settled: a queue stands, so the path is full.
        PathFull = "path-full",
        /// Settled: no more are allowed, or fit into the memory.
        Most = "most",
        /// Settled: nothing was seen that more streams would help against.
        NothingSeen = "nothing-seen",
        /// Settled: the time for trials is over.
        Time = "time",
        /// Settled: streams were not opened, or had not ended, in time.
        Late = "late",
        /// The copy ended before the number was settled.
        Short = "short",
    }
);

/// A change of the number of streams; or, where both numbers are the same, why it stays.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StreamStep {
    /// Since the first bytes arrived.
    pub at: Nanos,
    pub from: u16,
    pub to: u16,
    pub reason: StepReason,
    /// What was delivered before the trial, and in it, as far as that is known by now.
    pub before: Option<Rate>,
    pub after: Option<Rate>,
}
