//! The size of the parts of an object that is written.

use crate::io::reach::Reach;
use crate::io::store::PartSize;
use crate::pump::lane::assembly::request_bytes_max;
use crate::pump::source::walk::Sources;
use base::job::{Job, Location};
use base::limits::{REQUEST_BYTES_MAX, REQUEST_BYTES_STEP, STORE_DEPTH};
use base::settings::Settings;

/// Parts that fit a single object: of a long one they are larger. What an earlier run has begun
/// keeps its parts.
pub(super) fn with_parts_for(job: &Job, sources: &Sources, reach: &Reach) -> Job {
    let mut job = job.clone();
    if let (Location::Object(_), Some(bytes)) = (&job.target, sources.single_bytes()) {
        job.settings.request_bytes = part_bytes(bytes, reach.part_size(), &job.settings);
    }
    job
}

/// A store takes so many parts that a very long object needs larger ones whoever has said what. A
/// part of a long object is a 256th of it where the user leaves that to us, and as long as memory
/// has room for all parts under way: fewer of them would cost more than their length gains.
fn part_bytes(object_bytes: u64, size: PartSize, settings: &Settings) -> u32 {
    let usual = u64::from(settings.request_bytes);
    let needed = object_bytes.div_ceil(PARTS_USUAL).next_multiple_of(REQUEST_BYTES_STEP.into());
    let larger = match size {
        PartSize::AsRequests => 0,
        PartSize::ByLength => {
            let depth = settings.depth_sink.unwrap_or(STORE_DEPTH);
            let fits = request_bytes_max(settings, u64::from(depth) + 1);
            (object_bytes / PARTS_OF_LONG).min(fits) >> 20 << 20
        }
    };
    usual.max(needed).max(larger).min(REQUEST_BYTES_MAX.into()) as u32
}

/// Of the 10,000 that a store takes.
const PARTS_USUAL: u64 = 9_000;
/// Many times as many as are under way: what is left for the last ones is little of the whole.
const PARTS_OF_LONG: u64 = 256;

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const GIB: u64 = 1 << 30;

    #[test]
    fn parts_grow_with_the_object_and_with_memory() {
        let by_length = PartSize::ByLength;
        let typed = PartSize::AsRequests;
        // MiB of the object, streams, requests of each, MiB of memory; KiB of a part.
        let cases = [
            (by_length, 100, 4, None, 1024, 8 << 10),
            (by_length, 512, 4, None, 1024, 8 << 10),
            (by_length, 2048, 4, None, 1024, 8 << 10),
            (by_length, 2560, 4, None, 1024, 10 << 10),
            (by_length, 4096, 4, None, 1024, 16 << 10),
            (by_length, 64 << 10, 4, None, 1024, 16 << 10),
            // As much as 9 requests of each stream have room for.
            (by_length, 4096, 4, None, 256, 8 << 10),
            (by_length, 4096, 4, None, 448, 11 << 10),
            (by_length, 4096, 4, Some(2), 256, 16 << 10),
            (by_length, 4096, 1, None, 256, 16 << 10),
            (by_length, 4096, 16, None, 1024, 8 << 10),
            // Not what somebody has asked for.
            (typed, 4096, 4, None, 1024, 8 << 10),
            // What 10,000 parts need.
            (typed, 100 << 10, 4, None, 256, 11_652),
            (by_length, 100 << 10, 4, None, 256, 11_652),
            (by_length, 1 << 20, 4, None, 256, 16 << 10),
        ];
        for (size, object, streams, depth_sink, memory, expect_kib) in cases {
            let settings = Settings {
                streams,
                depth_sink,
                request_bytes: 8 << 20,
                memory_bytes: memory * MIB,
                ..Settings::default()
            };
            let part = part_bytes(object * MIB, size, &settings);
            assert_eq!(part >> 10, expect_kib, "{object} MiB, {streams} streams, {memory} MiB");
            let fits = (object * MIB).div_ceil(part.into()) <= 10_000;
            assert!(fits || object * MIB > 156 * GIB, "{object} MiB in parts of {part}");
        }
    }
}
