//! What a worker asks of the shared storage, what it is told, and what it wants next.

use super::given::{Demand, Turns};
use super::{Claim, Held};
use base::fault::Class;
use base::units::Tick;

/// One call. Each does one thing that is atomic on the storage, or can be repeated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// Writes the number where others read it.
    Beat(u64),
    /// Reads whether the job goes on.
    Control,
    /// The shards that nobody works on.
    ListOpen,
    /// Opens the shards whose condition has come true: a file all of whose ranges are done.
    OpenReady,
    /// How many shards are done, and how many there are.
    Count,
    ListClaims,
    /// Shows those who hold shards that this worker waits for one, or that it waits no more.
    ShowIdle,
    ShowBusy,
    ReadBeats(Vec<String>),
    /// Renames an open shard to a claim of this worker, with the next attempt.
    Claim {
        shard: u32,
        attempts: u32,
    },
    /// Looks whether a claim has this worker's name still.
    IsMine(Claim),
    IsDone(Claim, Turns),
    /// Renames the claim of a worker that is taken for lost to an open shard.
    Expire(Held),
    /// Renames a claim of this worker to an open shard.
    Release(Claim),
    /// Makes the file in which this attempt notes what it is about to commit.
    OpenLedger(Claim),
    /// Makes a file of the name of an attempt's staging folder, which can then never be made.
    Tombstone(Claim),
    /// Removes the staging folder of an attempt.
    RemoveStaging(Claim),
    MakeStaging(Claim),
    /// Closes a turn at which the shard could give something away: earlier attempts then cannot.
    CloseTurn(Given),
    /// Who waits, and how far the own copy is.
    LookAround(Claim),
    /// Takes so many files out of the copy, which has not begun with them.
    SetAside(Claim, u64),
    /// Writes down, once and for good, that these are another shard's.
    Give(Given, Vec<u64>),
    /// Makes an open shard of what was given away.
    OpenGiven(Given),
    /// Reads what the shard has, and what earlier attempts have committed of it.
    Survey(Claim),
    StartCopy(Claim),
    StopCopy,
    /// Notes on stable storage that these are about to be committed.
    Intend(Vec<u64>),
    /// Links a staged item to its final name.
    Link(u64),
    /// Writes the receipt of the shard, and syncs the folders of its items.
    Receipt(Claim),
    /// Renames the claim to a shard that is done.
    Finish(Claim, Turns),
}

/// A part of a shard that an attempt gives away, or may not give away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Given {
    pub claim: Claim,
    /// The number of the shard that the part is.
    pub part: u32,
}

/// What a call found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    Done,
    /// A rename found its file, or did not.
    Moved,
    Missing,
    Yes,
    No,
    Open(Vec<(u32, u32)>),
    /// Who holds what, and how many workers show that they wait.
    Claims {
        held: Vec<Held>,
        waiting: u64,
    },
    Beats(Vec<(String, Option<u64>)>),
    /// The total is known once the plan is complete.
    Count {
        done: u32,
        total: Option<u32>,
    },
    /// So many shards were opened.
    Opened(u32),
    Demand(Demand),
    SetAside(Vec<u64>),
    /// The turn was closed by an earlier attempt, without a part.
    Closed,
    /// A tombstone stands already; or a staging folder does.
    Stands,
    Folder,
    /// Something is left in a folder, or of a survey: call again.
    GoesOn,
    /// So many items are to be copied.
    Surveyed(u64),
    /// The final name exists: the same file, or another.
    Exists,
    /// The staged item is not there any more.
    Gone,
    /// The call failed: what it was to do may be done or not.
    Trouble(Class),
}

/// What a worker is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Time has gone by, or the worker has just begun.
    Woke,
    Answer(Answer),
    /// These items are complete in the staging folder, on stable storage.
    Staged(Vec<u64>),
    /// The copy has ended; `None` if it went through all items.
    CopyEnded(Option<Class>),
    Stop,
}

/// What a worker wants next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    Call(Call),
    /// Something must happen, or this time be reached.
    Wait(Tick),
    Exit(End),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Every shard is done.
    Done,
    Stopped,
    Failed(Class),
}
