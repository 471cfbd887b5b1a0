//! What a copy from or to an object store means.

use super::{Wanted, memory_suffices};
use crate::cli::endpoint::EndArg;
use crate::cli::options::stores;
use crate::cli::typed::Typed;
use base::job::Location;
use base::limits::{PART_BYTES_MIN, STORE_REQUEST_BYTES};
use base::settings::Settings;
use base::units::Bytes;
use mover::io::store::PartSize;

/// Requests to a store are large: each has a first byte to wait for, and becomes a part of an
/// object, of which a store takes 10,000, none but the last of less than 5 MiB.
pub(super) fn for_stores(
    wanted: &Wanted,
    sources: &[EndArg],
    target: &EndArg,
) -> Result<Settings, String> {
    let is_store = |end: &EndArg| matches!(end.location, Location::Object(_));
    let mut settings = wanted.settings.clone();
    if !is_store(target) && !sources.iter().any(is_store) {
        return Ok(settings);
    }
    settings.request_bytes = wanted.request_bytes.unwrap_or(STORE_REQUEST_BYTES);
    if is_store(target) {
        can_be_parts("--request-size", settings.request_bytes)?;
    }
    memory_suffices(&settings)?;
    Ok(settings)
}

/// How many requests are under way at a store: what they move decides, unless a depth is typed.
pub(super) fn requests_of(settings: &Settings) -> s3::Requests {
    match settings.depth_source.or(settings.depth_sink) {
        Some(_) => s3::Requests::AsAsked,
        None => s3::Requests::ByRate,
    }
}

/// A value of this option as the size of an object's parts.
pub(in crate::cli) fn can_be_parts(option: &str, request_bytes: u32) -> Result<(), String> {
    match request_bytes < PART_BYTES_MIN {
        false => Ok(()),
        true => Err(format!(
            "{option} is {}, and a part of an object in a store has 5M at least: write 5M or \
             more, or leave it out",
            Bytes(request_bytes.into()).typed()
        )),
    }
}

/// How object stores are reached.
pub(in crate::cli) fn stores_of(typed: &Typed) -> Result<s3::Options, String> {
    Ok(s3::Options {
        endpoint: typed.value(&stores::S3_ENDPOINT)?,
        profile: typed.value(&stores::S3_PROFILE)?,
        region: typed.value(&stores::S3_REGION)?,
        ca: typed.value(&stores::S3_CA)?,
        addressing: typed.value_or_default(&stores::S3_ADDRESSING)?,
        requester_pays: typed.has(&stores::S3_REQUESTER_PAYS),
        silent_max: None,
        part_size: PartSize::AsRequests,
        requests: s3::Requests::AsAsked,
    })
}
