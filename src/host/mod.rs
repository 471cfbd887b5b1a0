//! This host: its environment, its files, the facts for `doctor`, and the lock that a campaign
//! holds on it. It reads only the host that it runs on.

pub(crate) mod checkup;
pub mod environment;
pub mod file;
pub mod hold;
