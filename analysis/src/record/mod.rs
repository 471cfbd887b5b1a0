//! The data of one run: the record that the store keeps, that exports write as rows, and that all
//! models are fitted to. Pure: no file, no store, no clock.

pub mod columns;
pub mod compression;
pub mod copy_record;
pub mod export;
pub mod failures;
mod number;
pub mod options;
pub mod path_json;
pub mod paths;
pub mod sample;
