//! Putting it together: ledgers, lanes, and the two sides of a transfer.

pub mod afterwards;
pub mod assembly;
pub mod brake;
pub mod clean;
pub mod compare;
pub mod crew;
pub mod finisher;
pub mod gate;
pub mod governor;
pub mod journal;
pub mod lane;
pub mod names;
pub mod objects;
pub mod packing;
pub mod paths;
pub mod places;
pub mod plan;
pub mod receipt;
pub mod resume;
pub mod select;
pub mod sink;
pub mod source;
pub mod transfer;
pub mod walk;
pub mod watch;
pub mod wires;
