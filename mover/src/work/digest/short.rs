//! BLAKE3 of short files, in less time: `blake3::hash` hashes 16 chunks at once where the processor
//! can, and the 7 that are left over in three steps that take almost three times as long.
//!
//! Here each step has as many inputs as the processor hashes in the same time, some of them twice.
//! The tree is that of the specification (section 2.1): neighbours are merged level by level, and
//! one without a neighbour goes up as it is. `blake3::platform` is no stable interface, so
//! `Cargo.toml` names the version, and a test compares the digests.

use blake3::IncrementCounter;
use blake3::hazmat::{HasherExt, Mode, merge_subtrees_root};
use blake3::platform::Platform;

use base::label::Sum;

/// The digest of a whole file.
pub(super) fn hash(bytes: &[u8]) -> Sum {
    match bytes.len() {
        SHORT_MIN..=SHORT_MAX => hash_short(bytes, Platform::detect()),
        _ => *blake3::hash(bytes).as_bytes(),
    }
}

fn hash_short(bytes: &[u8], platform: Platform) -> Sum {
    let (chunks, rest) = bytes.as_chunks::<CHUNK_BYTES>();
    let mut nodes = [[0; 32]; NODES_MAX];
    let leaf = (IncrementCounter::Yes, [0, CHUNK_START, CHUNK_END]);
    hash_all(platform, chunks, leaf, &mut nodes);
    let mut count = chunks.len();
    if !rest.is_empty() {
        let offset = (count * CHUNK_BYTES) as u64;
        let mut last = blake3::Hasher::new();
        nodes[count] = last.set_input_offset(offset).update(rest).finalize_non_root();
        count += 1;
    }
    let mut parents = [[0; 32]; NODES_MAX];
    while count > 2 {
        let (pairs, _) = nodes[..count].as_flattened().as_chunks::<64>();
        hash_all(platform, pairs, (IncrementCounter::No, [PARENT, 0, 0]), &mut parents);
        if count % 2 == 1 {
            parents[count / 2] = nodes[count - 1];
        }
        count = count.div_ceil(2);
        nodes[..count].copy_from_slice(&parents[..count]);
    }
    *merge_subtrees_root(&nodes[0], &nodes[1], Mode::Hash).as_bytes()
}

/// Hashes each input, in steps of as many as are hashed at once. `nodes` has room for a full last
/// step.
fn hash_all<const N: usize>(
    platform: Platform,
    inputs: &[[u8; N]],
    (counted, [flags, start, end]): (IncrementCounter, [u8; 3]),
    nodes: &mut [Sum],
) {
    let degree = platform.simd_degree();
    for (step, some) in inputs.chunks(STEP).enumerate() {
        let mut all = [&some[0]; STEP];
        all.iter_mut().zip(some).for_each(|(place, input)| *place = input);
        let count = some.len().next_power_of_two().min(some.len().next_multiple_of(degree));
        let first = step * STEP;
        let counter = match counted {
            IncrementCounter::Yes => first as u64,
            IncrementCounter::No => 0,
        };
        let out = nodes[first..first + count].as_flattened_mut();
        platform.hash_many(&all[..count], &IV, counter, counted, flags, start, end, out);
    }
}

const CHUNK_BYTES: usize = 1024;
/// Below this there is nothing to gain.
const SHORT_MIN: usize = 2 * CHUNK_BYTES + 1;
/// Beyond this what is left over counts for little.
const SHORT_MAX: usize = 64 * CHUNK_BYTES;
/// Inputs of one step: no processor hashes more at once.
const STEP: usize = 16;
/// Chunks of the longest, and what a last step adds to them.
const NODES_MAX: usize = SHORT_MAX / CHUNK_BYTES + STEP;

/// The specification's constants (sections 2.1 and 2.2): flags, and the first words of each state.
const CHUNK_START: u8 = 1 << 0;
const CHUNK_END: u8 = 1 << 1;
const PARENT: u8 = 1 << 2;
const IV: [u32; 8] = [
    0x6A09_E667,
    0xBB67_AE85,
    0x3C6E_F372,
    0xA54F_F53A,
    0x510E_527F,
    0x9B05_688C,
    0x1F83_D9AB,
    0x5BE0_CD19,
];

#[cfg(test)]
mod tests {
    use super::*;

    /// Every number of chunks, whole and not, on every processor that this one can be.
    #[test]
    fn the_digest_is_that_of_the_specification() {
        let data: Vec<u8> = (0..SHORT_MAX + 2000).map(|i| (i * 7 + i / 251) as u8).collect();
        let chunks = (0..=SHORT_MAX / CHUNK_BYTES + 1).map(|chunks| chunks * CHUNK_BYTES);
        let lengths = chunks.flat_map(|len| [len.saturating_sub(1), len, len + 1, len + 700]);
        let mut platforms = vec![Platform::detect(), Platform::Portable];
        #[cfg(target_arch = "x86_64")]
        platforms
            .extend([Platform::sse2(), Platform::sse41(), Platform::avx2()].into_iter().flatten());
        for len in lengths {
            let bytes = &data[..len];
            let expect = *blake3::hash(bytes).as_bytes();
            assert_eq!(hash(bytes), expect, "{len}");
            if (SHORT_MIN..=SHORT_MAX).contains(&len) {
                for platform in &platforms {
                    assert_eq!(hash_short(bytes, *platform), expect, "{len} {platform:?}");
                }
            }
        }
    }
}
