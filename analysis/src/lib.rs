//! What is known of runs, and what it means: records, models, diagnosis, predictions, and how they
//! are told. Everything here is pure: no file, socket, program, thread or clock. The modules stand
//! in order of dependency, which ARCHITECTURE.md has, and `tests/tidy.rs` keeps the walls.

pub mod accounting;
pub mod campaign;
pub mod diagnosis;
pub mod doctor;
pub mod model;
pub mod nettest;
pub mod predict;
pub mod record;
pub mod report;
pub mod statistics;
pub mod study;
