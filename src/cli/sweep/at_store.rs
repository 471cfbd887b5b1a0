//! A campaign at an object store: what is varied, and what it does not take.

use std::ffi::OsStr;

use crate::cli::endpoint::{EndArg, Role};
use crate::cli::options::stores::TABLE as STORES;
use crate::cli::options::sweeping;
use crate::cli::order::{ABOUT_FAR, can_be_parts, stores_of};
use crate::cli::typed::Typed;
use analysis::campaign::{Axes, Extent, Grid, Setting, Way};
use base::fault::Fault;
use base::job::{Location, ObjectUrl};
use base::limits::{HEADROOM_BYTES, STORE_DEPTH};
use base::settings::Settings;
use base::units::Bytes;
use mover::io::store::Stores;

/// Where the objects of a campaign are.
#[derive(Clone, Debug)]
pub(super) struct StoreArgs {
    pub url: ObjectUrl,
    pub options: s3::Options,
}

impl StoreArgs {
    /// `None` for a word that is no URL of a store.
    pub(super) fn of(word: &str, typed: &Typed) -> Result<Option<StoreArgs>, String> {
        if !word.starts_with("s3://") {
            return Ok(None);
        }
        let none_here = NO_AXES.iter().chain(&ABOUT_FAR).find(|name| typed.is_typed(name));
        match none_here {
            Some(name) => Err(format!(
                "--{name} is about copies to hosts, and {word} is measured over --request-sizes \
                 and --depths, for each of --sizes: leave --{name} out"
            )),
            None => StoreArgs::at(word, typed).map(Some),
        }
    }

    pub(super) fn at(url: &str, typed: &Typed) -> Result<StoreArgs, String> {
        let end = EndArg::parse(OsStr::new(url), Role::Target, 0)?;
        let options = stores_of(typed)?;
        match end.location {
            Location::Object(url) => Ok(StoreArgs { url, options }),
            _ => Err(format!("{url} names no store: write s3://BUCKET/PREFIX")),
        }
    }

    /// Fails where nothing could be measured, before anything is said of how long that takes. A dry
    /// run asks nobody.
    pub(super) fn check(&self, dry_run: bool) -> Result<(), Fault> {
        let store = s3::S3::new(self.options.clone()).open(&self.url)?;
        if dry_run { Ok(()) } else { store.check() }
    }

    pub(super) fn routes(&self) -> Vec<String> {
        Way::ALL.iter().map(|way| way.route(&self.url.to_string())).collect()
    }
}

/// What only a store takes, without one.
pub(super) fn refuse_without_store(typed: &Typed) -> Result<(), String> {
    let mut names = STORES.iter().map(|option| option.description().name);
    let of_stores = [sweeping::REQUEST_SIZES.name, sweeping::DEPTHS.name];
    match names.by_ref().chain(of_stores).find(|name| typed.is_typed(name)) {
        None => Ok(()),
        Some(name) => Err(format!(
            "--{name} is about an object store: write datapump sweep s3://BUCKET/PREFIX, or leave \
             it out"
        )),
    }
}

pub(super) fn grid(typed: &Typed) -> Result<Grid, String> {
    let sizes = typed.value(&sweeping::SIZES)?.unwrap_or_else(|| vec![OBJECT_BYTES]);
    let request_sizes =
        typed.value(&sweeping::REQUEST_SIZES)?.unwrap_or_else(|| REQUEST_SIZES.to_vec());
    for bytes in &request_sizes {
        can_be_parts("--request-sizes", *bytes)?;
    }
    Ok(Grid {
        axes: Axes::Store {
            request_sizes,
            depths: typed.value(&sweeping::DEPTHS)?.unwrap_or_else(|| DEPTHS.to_vec()),
        },
        extents: sizes.into_iter().map(Extent::Bytes).collect(),
    })
}

/// What a copy has by itself.
pub(super) fn auto() -> Vec<Setting> {
    vec![Setting::Store { request_bytes: None, depth: None }]
}

/// With memory for the largest cell: with less, a copy would have fewer requests under way than its
/// cell says. A limit that was typed is kept.
pub(super) fn with_memory(
    grid: &Grid,
    settings: Settings,
    is_typed: bool,
) -> Result<Settings, String> {
    let needed = grid.axes.settings().iter().map(|cell| memory_bytes(cell, &settings)).max();
    let needed = needed.unwrap_or(0);
    match needed <= settings.memory_bytes {
        true => Ok(settings),
        false if !is_typed => Ok(Settings { memory_bytes: needed, ..settings }),
        false => Err(format!(
            "the largest cell needs {} for its requests, and --memory is {}: raise it to {}, or \
             lower --request-sizes or --depths",
            Bytes(needed),
            Bytes(settings.memory_bytes).typed(),
            Bytes(needed).typed(),
        )),
    }
}

/// Each stream has its requests at the store, and one at the other end.
fn memory_bytes(cell: &Setting, settings: &Settings) -> u64 {
    let Setting::Store { request_bytes: Some(request), depth: Some(depth) } = *cell else {
        return 0;
    };
    let each = u64::from(request) + u64::from(HEADROOM_BYTES) + OF_A_REQUEST_BYTES;
    let requests = u64::from(settings.streams) * (u64::from(depth) + 1);
    (requests * each + OF_A_COPY_BYTES).next_multiple_of(1 << 20)
}

/// Options of a campaign over hosts.
const NO_AXES: [&str; 14] = [
    "hosts",
    "preset",
    "windows",
    "streams",
    "levels",
    "time",
    "durations",
    "request-size",
    "units",
    "window",
    "congestion",
    "pace",
    "dscp",
    "seal",
];
const REQUEST_SIZES: &[u32] = &[5 << 20, 8 << 20, 16 << 20];
/// What each stream of a copy may have, and what is less.
const DEPTHS: &[u16] = &[STORE_DEPTH / 4, STORE_DEPTH / 2, STORE_DEPTH];
/// As many requests of 16 MiB as the four streams of a copy have under way at most.
pub(super) const OBJECT_BYTES: u64 = 512 << 20;
const OF_A_REQUEST_BYTES: u64 = 64 << 10;
/// The program, its ledger and its generator.
const OF_A_COPY_BYTES: u64 = 64 << 20;
