//! `datapump measure s3://BUCKET/PREFIX`: a campaign of one setting, both ways.

use super::at_store::{self, StoreArgs};
use super::regular::Regular;
use super::{BeginArgs, Measured, PASSES, Purpose, SweepArgs};
use crate::cli::options::recording::RESULTS;
use crate::cli::options::{copying, measuring, storage, stores};
use crate::cli::order::{ABOUT_FAR, Show, can_be_parts};
use crate::cli::settings::{remote, settings};
use crate::cli::typed::Typed;
use analysis::campaign::{Axes, Extent, Grid};
use base::limits::{STORE_DEPTH, STORE_REQUEST_BYTES};
use base::settings::DataSet;

/// `None` where what is measured is no store.
pub(crate) fn of(typed: &Typed) -> Result<Option<SweepArgs>, String> {
    let words = typed.words("WHAT");
    let words: Vec<String> = words.iter().map(|w| w.to_string_lossy().into_owned()).collect();
    let Some(url) = words.iter().find(|word| word.starts_with("s3://")) else {
        return refuse_without_store(typed).map(|()| None);
    };
    if words.len() > 1 {
        return Err(format!("{url} is measured by itself: leave the other words out"));
    }
    if let Some(name) = NOT_OF_STORES.iter().chain(&ABOUT_FAR).find(|name| typed.is_typed(name)) {
        return Err(format!(
            "--{name} is about the parts of a copy between hosts, and {url} is measured by \
             putting and getting an object: leave --{name} out"
        ));
    }
    let grid = grid(typed, url)?;
    let is_memory_typed = typed.value(&storage::MEMORY)?.is_some();
    let args = BeginArgs {
        measured: Measured::Store(StoreArgs::at(url, typed)?),
        purpose: Purpose::Measure,
        settings: at_store::with_memory(&grid, settings(typed)?, is_memory_typed)?,
        grid,
        passes: typed.value(&measuring::REPEAT)?.unwrap_or(PASSES),
        order: typed.value_or_default(&measuring::ORDER)?,
        seed: typed.value_or_default(&copying::SEED)?,
        data: DataSet::default(),
        remote: remote(typed)?,
        regular: Regular::default(),
        dry_run: false,
        show: Show::of(typed)?,
        metrics: None,
        live: None,
        store: typed.value(&RESULTS)?,
    };
    Ok(Some(SweepArgs::Begin(Box::new(args))))
}

/// What a copy has by itself, or the one setting that is typed.
fn grid(typed: &Typed, url: &str) -> Result<Grid, String> {
    let sizes = typed.value(&measuring::REQUEST_SIZES)?.unwrap_or_default();
    let depths = typed.value(&measuring::DEPTHS)?.unwrap_or_default();
    if sizes.len() > 1 || depths.len() > 1 {
        return Err(format!(
            "{url} is measured with one of --request-sizes and one of --depths: datapump sweep \
             {url} compares several"
        ));
    }
    sizes.iter().try_for_each(|bytes| can_be_parts("--request-sizes", *bytes))?;
    let axes = match sizes.is_empty() && depths.is_empty() {
        true => Axes::Store { request_sizes: Vec::new(), depths: Vec::new() },
        false => Axes::Store {
            request_sizes: vec![sizes.first().copied().unwrap_or(STORE_REQUEST_BYTES)],
            depths: vec![depths.first().copied().unwrap_or(STORE_DEPTH)],
        },
    };
    let bytes = typed.value_or_default(&measuring::BYTES)?.unwrap_or(at_store::OBJECT_BYTES);
    Ok(Grid { axes, extents: vec![Extent::Bytes(bytes)] })
}

fn refuse_without_store(typed: &Typed) -> Result<(), String> {
    let mut names = stores::TABLE.iter().map(|option| option.description().name);
    match names.find(|name| typed.is_typed(name)) {
        None => Ok(()),
        Some(name) => Err(format!(
            "--{name} is about an object store: write datapump measure s3://BUCKET/PREFIX, or \
             leave it out"
        )),
    }
}

const NOT_OF_STORES: [&str; 12] = [
    "soak",
    "cache",
    "file",
    "sink-folder",
    "on",
    "thorough",
    "window",
    "congestion",
    "pace",
    "dscp",
    "receive",
    "fsync",
];
