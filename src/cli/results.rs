//! `datapump results`.

use std::ffi::OsString;
use std::time::Instant;

use super::args::Options;

pub fn run(
    action: &OsString,
    runs: &[OsString],
    options: &Options,
    started: Instant,
) -> Result<u8, String> {
    let _ = (action, runs, options, started);
    Err("results is being built".into())
}
