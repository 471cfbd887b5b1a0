//! This host: its environment, its files, what a doctor wants to know of it, and the hold that a
//! campaign has on it. It reads the host that it runs on, and knows no other.

pub(crate) mod checkup;
pub mod environment;
pub mod file;
pub mod hold;
