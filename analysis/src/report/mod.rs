//! Output for people and programs: pure functions from values to text. Nothing here measures,
//! prints or decides.

pub mod campaign;
pub mod codecs;
pub mod compare;
pub mod curves;
pub mod doctor;
pub mod end_to_end;
pub mod explain;
pub mod files;
pub mod json;
pub mod listing;
pub mod live;
pub mod nettest;
pub mod openmetrics;
pub mod predicted;
pub(crate) mod rates;
pub mod results;
pub mod sheet;
pub mod soaker_summary;
pub mod spread;
pub mod stream_steps;
pub mod tables;
pub mod text;
pub mod trend;
pub mod utc;
pub mod xplot;

pub use base::escape;
