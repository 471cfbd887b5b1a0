//! What is known of one run: the record that the store keeps, that exports have rows of, and that
//! all models are made from. Pure: it knows no file, no store and no clock.

pub mod columns;
pub mod copy_record;
pub mod export;
mod number;
pub mod options;
pub mod packed;
pub mod path_json;
pub mod paths;
pub mod sample;
