//! Records of runs, and what follows from them: models, diagnosis, predictions, reports. Everything
//! here is pure: no file, socket, program, thread or clock. The modules are in the order of their
//! dependencies (ARCHITECTURE.md), and `tests/tidy.rs` checks who may use whom.

pub mod accounting;
pub mod campaign;
pub mod diagnosis;
pub mod doctor;
pub mod model;
pub mod nettest;
pub mod page;
pub mod plot;
pub mod predict;
pub mod record;
pub mod report;
pub mod shards;
pub mod statistics;
pub mod study;
pub mod trend;
