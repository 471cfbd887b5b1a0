//! This host: its environment, its files, the facts for `doctor`, the lock that a campaign holds on
//! it, and questions to copies that run on it. It reads only the host that it runs on.

pub(crate) mod checkup;
pub mod control;
pub mod environment;
pub mod file;
pub mod hold;
pub mod local_time;
