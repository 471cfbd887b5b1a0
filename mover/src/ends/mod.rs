//! The two ends of a pump; each file serves both directions.

pub mod endpoint;
pub mod null;
pub mod pipe;
pub mod stream;
pub mod synthetic;
pub mod tree;
