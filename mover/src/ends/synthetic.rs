//! Data sets that are generated as they are read: the same bytes at the same address for every run
//! of a seed, and as compressible as data of their kind.
//!
//! Data that is slow to generate is generated once, as a tape of 16 MiB that repeats: payloads are
//! compressed one by one, and no codec here finds a repetition so far back. Where kinds alternate,
//! each begins with a request, so that a payload is of one kind whatever the size of requests.

use std::sync::Arc;

use super::null::{fill_seeded, mix};
use base::settings::DataSet;

/// Generates the bytes of one data set.
#[derive(Clone, Debug)]
pub struct DataGenerator {
    set: DataSet,
    seed: u64,
    request_bytes: u64,
    tape: Arc<Vec<u8>>,
}

impl DataGenerator {
    /// The memory that one takes.
    pub const BYTES: u64 = TAPE_BYTES as u64;

    pub fn new(set: DataSet, seed: u64, request_bytes: u32) -> DataGenerator {
        let tape = match set {
            DataSet::Records | DataSet::Mix => records(seed),
            DataSet::Text | DataSet::Runs => text(seed),
        };
        DataGenerator { set, seed, request_bytes: request_bytes.into(), tape: Arc::new(tape) }
    }

    /// Fills `body` with the bytes that belong at `start`, a multiple of eight.
    pub fn fill(&self, start: u64, body: &mut [u8]) {
        let mut at = start;
        let mut rest = body;
        while !rest.is_empty() {
            let (stretch, is_noise) = self.stretch(at);
            let left = stretch - at % stretch;
            let on_tape = TAPE_BYTES as u64 - at % TAPE_BYTES as u64;
            let count = (rest.len() as u64).min(left).min(on_tape) as usize;
            let (piece, behind) = rest.split_at_mut(count);
            match is_noise {
                true => fill_seeded(self.seed, at, piece),
                false => self.play(at, piece),
            }
            at += count as u64;
            rest = behind;
        }
    }

    /// The length of a run of one kind at this address, and whether it is noise.
    fn stretch(&self, at: u64) -> (u64, bool) {
        match self.set {
            DataSet::Records | DataSet::Text => (TAPE_BYTES as u64, false),
            DataSet::Mix => {
                let stretch = self.request_bytes;
                (stretch, mix(!self.seed, at / stretch) % 2 == 1)
            }
            DataSet::Runs => {
                let stretch = self.request_bytes * RUN_REQUESTS;
                (stretch, at / stretch % 2 == 1)
            }
        }
    }

    fn play(&self, at: u64, body: &mut [u8]) {
        let from = (at % TAPE_BYTES as u64) as usize;
        body.copy_from_slice(&self.tape[from..from + body.len()]);
    }
}

/// Stands for the Objectivity files of SLAC (2001): a header with a counter, measurements with two
/// decimals, and reserved space that is empty. zlib:1 makes them 6.8 times smaller, and zlib:9
/// hardly more.
fn records(seed: u64) -> Vec<u8> {
    let mut tape = Vec::with_capacity(TAPE_BYTES + RECORD_BYTES);
    let mut word = 0;
    for number in 0_u32.. {
        if tape.len() >= TAPE_BYTES {
            break;
        }
        tape.extend_from_slice(&number.to_be_bytes());
        tape.extend_from_slice(&0x020e_u16.to_be_bytes());
        tape.extend_from_slice(&(MEASUREMENTS as u16).to_be_bytes());
        tape.extend_from_slice(&(1_000_000 + 40 * u64::from(number)).to_be_bytes());
        for _ in 0..MEASUREMENTS {
            let value = (mix(seed, word) % 10_000) as f32 / 100.0;
            word += 1;
            tape.extend_from_slice(&value.to_be_bytes());
        }
        tape.resize(tape.len() + RESERVED_BYTES, 0);
    }
    tape.truncate(TAPE_BYTES);
    tape
}

/// Words of a generated vocabulary, the frequent ones short, in lines.
fn text(seed: u64) -> Vec<u8> {
    const LETTERS: &[u8] = b"eeeeeeetttttaaaaaooooiiiinnnnssssrrrrhhhlllddcumfpgwybvk";
    let mut rng = 0;
    let mut roll = |below: u64| {
        rng += 1;
        mix(seed ^ 0x7465_7874, rng) % below
    };
    let words: Vec<Vec<u8>> = (1..VOCABULARY)
        .map(|rank| {
            let length = 2 + u64::from(rank.ilog2()) / 2 + roll(4);
            (0..length).map(|_| LETTERS[roll(LETTERS.len() as u64) as usize]).collect()
        })
        .collect();
    let mut tape = Vec::with_capacity(TAPE_BYTES + 64);
    let mut line_end = 70;
    while tape.len() < TAPE_BYTES {
        // The product of two random numbers is often small, as ranks are in Zipf's law.
        let rank = roll(VOCABULARY) * roll(VOCABULARY) / VOCABULARY;
        let rank = rank * roll(VOCABULARY) / VOCABULARY;
        tape.extend_from_slice(&words[(rank as usize).min(words.len() - 1)]);
        let is_end = tape.len() >= line_end;
        tape.push(if is_end { b'\n' } else { b' ' });
        if is_end {
            line_end = tape.len() + 70;
        }
    }
    tape.truncate(TAPE_BYTES);
    tape
}

const TAPE_BYTES: usize = 16 << 20;
/// 504 in all, so that records are not aligned with blocks.
const RECORD_BYTES: usize = 16 + 4 * MEASUREMENTS + RESERVED_BYTES;
const MEASUREMENTS: usize = 22;
const RESERVED_BYTES: usize = 400;
const VOCABULARY: u64 = 8192;
/// Requests of one kind in a row.
const RUN_REQUESTS: u64 = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_do_not_depend_on_the_cut() {
        const REQUEST_BYTES: u32 = 12 << 10;
        let request = u64::from(REQUEST_BYTES);
        for set in DataSet::ALL {
            let generator = DataGenerator::new(*set, 3, REQUEST_BYTES);
            // Where kinds change, and where the tape repeats.
            for middle in [request, request * RUN_REQUESTS, TAPE_BYTES as u64] {
                let start = middle - 4096;
                let mut whole = vec![0; 8192];
                generator.fill(start, &mut whole);
                let mut parts = vec![0; 8192];
                let (front, back) = parts.split_at_mut(1000);
                generator.fill(start, front);
                generator.fill(start + 1000, back);
                assert!(whole == parts, "{set:?} at {middle}");
                let mut other = vec![0; 8192];
                DataGenerator::new(*set, 4, REQUEST_BYTES).fill(start, &mut other);
                assert!(other != whole, "{set:?}: another seed");
            }
        }
    }
}
