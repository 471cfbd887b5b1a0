//! The size of the parts of an object that is written, and how many streams have memory for them.

use crate::io::reach::Reach;
use crate::io::store::PartSize;
use crate::pump::lane::assembly::{generator_bytes, memory_bytes_for, request_bytes_max};
use crate::pump::source::walk::Sources;
use crate::pump::watch::Watch;
use base::job::{Job, Location};
use base::limits::{PARTS_MAX, REQUEST_BYTES_MAX, REQUEST_BYTES_STEP, STORE_DEPTH};
use base::settings::Settings;
use base::units::Bytes;

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
    let usual = settings.request_bytes;
    if object_bytes > PARTS_MAX * u64::from(REQUEST_BYTES_MAX) {
        return usual; // it is refused by its name, whatever its parts would be
    }
    let needed = object_bytes.div_ceil(PARTS_USUAL).next_multiple_of(REQUEST_BYTES_STEP.into());
    let larger = match size {
        PartSize::AsRequests => 0,
        PartSize::ByLength => {
            let depth = settings.depth_sink.unwrap_or(STORE_DEPTH);
            let fits = request_bytes_max(settings, u64::from(depth) + 1);
            (object_bytes / PARTS_OF_LONG).min(fits).min(LARGER_MAX) >> 20 << 20
        }
    };
    u64::from(usual).max(needed).max(larger).min(REQUEST_BYTES_MAX.into()) as u32
}

/// The settings of a copy whose earlier run may have begun with larger parts than this one would:
/// they can be continued where memory has room for those of one stream.
pub(super) fn for_any_parts(job: &Job) -> Job {
    let mut job = job.clone();
    if let Location::Object(_) = job.target {
        job.settings.streams = 1;
    }
    job
}

/// With as many streams as memory has room for parts of theirs; says so where some are left out.
pub(super) fn with_streams_for_parts(job: &Job, settings: Settings, watch: &Watch) -> Settings {
    let Location::Object(url) = &job.target else { return settings };
    let beside_bytes = generator_bytes(job.sources.first());
    let Some(fewer) = fewer_streams(&settings, beside_bytes) else { return settings };
    if fewer.streams == 0 {
        return Settings { streams: 1, ..settings }; // refused, with what one needs
    }
    watch.warn(format!(
        "the parts of '{url}' have {}, as a store takes {PARTS_MAX} of an object: {} of memory are \
         enough for {} of the {} streams; --memory {} is enough for all",
        Bytes(settings.request_bytes.into()),
        Bytes(settings.memory_bytes),
        fewer.streams,
        settings.streams,
        Bytes(fewer.memory_bytes_for_all).typed(),
    ));
    Settings { streams: fewer.streams, ..settings }
}

/// Less than what was asked for, and what that would take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FewerStreams {
    /// 0: there is no room for a single one.
    streams: u16,
    /// Whole MiB.
    memory_bytes_for_all: u64,
}

/// A stream has a request at each end at least. `None` where there is room for all of them.
fn fewer_streams(settings: &Settings, beside_bytes: u64) -> Option<FewerStreams> {
    let needs = |streams: u16| beside_bytes + memory_bytes_for(streams, 2, settings.request_bytes);
    let fits = |streams: &u16| needs(*streams) <= settings.memory_bytes;
    let streams = (1..=settings.streams).rev().find(fits).unwrap_or(0);
    let memory_bytes_for_all = needs(settings.streams).next_multiple_of(1 << 20);
    (streams < settings.streams).then_some(FewerStreams { streams, memory_bytes_for_all })
}

/// Of the `PARTS_MAX` that a store takes.
const PARTS_USUAL: u64 = 9_000;
/// Many times as many as are under way: what is left for the last ones is little of the whole.
const PARTS_OF_LONG: u64 = 256;
/// Longer parts only where there would be too many.
const LARGER_MAX: u64 = 16 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const GIB: u64 = 1 << 30;
    const TIB: u64 = 1 << 40;

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
            assert!((object * MIB).div_ceil(part.into()) <= PARTS_MAX, "{object} MiB: {part}");
        }
    }

    /// KiB of a part, and what of four streams is left with 256 MiB, 1 GiB and 8 GiB of memory.
    #[test]
    fn very_long_objects_have_fewer_streams_where_memory_is_short() {
        let cases = [
            (157 * GIB, 18_292, [4, 4, 4]),
            (800 * GIB, 93_208, [1, 4, 4]),
            (TIB, 119_308, [0, 4, 4]),
            (5 * TIB, 596_524, [0, 0, 4]),
            (TIB / 10 * 97, 1 << 20, [0, 0, 3]),
        ];
        for (object_bytes, expect_kib, expect_streams) in cases {
            for (memory, streams) in [256, 1024, 8192].into_iter().zip(expect_streams) {
                let settings = Settings {
                    streams: 4,
                    request_bytes: 8 << 20,
                    memory_bytes: memory * MIB,
                    ..Settings::default()
                };
                let request_bytes = part_bytes(object_bytes, PartSize::ByLength, &settings);
                assert_eq!(request_bytes >> 10, expect_kib, "{object_bytes}, {memory} MiB");
                assert!(object_bytes.div_ceil(request_bytes.into()) <= PARTS_MAX);
                let settings = Settings { request_bytes, ..settings };
                let fewer = fewer_streams(&settings, 0);
                let left = fewer.map_or(settings.streams, |fewer| fewer.streams);
                assert_eq!(left, streams, "{object_bytes}, {memory} MiB");
                // With what is said to be enough there are all.
                let memory_bytes = fewer.map_or(memory * MIB, |fewer| fewer.memory_bytes_for_all);
                assert_eq!(fewer_streams(&Settings { memory_bytes, ..settings }, 0), None);
            }
        }
        let settings = Settings { request_bytes: 8 << 20, ..Settings::default() };
        let part = part_bytes(11 * TIB, PartSize::ByLength, &settings);
        assert_eq!(part, 8 << 20, "no size would do");
    }
}
