//! Bytes at no cost: a source that generates them, a sink that discards them. The shortest
//! endpoint; one with I/O is `pipe.rs`. `pump/lane/assembly.rs` decides which is used.

use super::endpoint::{Endpoint, Nature, Next};
use super::synthetic::DataGenerator;
use crate::io::buffer::Buffer;
use crate::io::request::{Leg, Request};

/// What a generating source puts into its bodies.
#[derive(Clone, Debug)]
pub enum Fill {
    /// Whatever is in the buffer: no byte is touched.
    Nothing,
    Zeros,
    /// The same bytes at the same address for every run with this seed.
    Seeded(u64),
    /// As compressible as data of some kind.
    Made(DataGenerator),
}

/// A null endpoint, as a source or a sink.
#[derive(Debug)]
pub struct Null {
    fill: Fill,
    depth: u32,
    /// A request gets the next of these and leaves the buffer that it has.
    spare: Vec<Buffer>,
    next_spare: usize,
}

impl Null {
    pub fn new(fill: Fill, depth: u32) -> Null {
        Null { fill, depth, spare: Vec::new(), next_spare: 0 }
    }

    /// Cycles through these buffers, one for each request.
    pub fn through(self, spare: Vec<Buffer>) -> Null {
        Null { spare, ..self }
    }

    fn exchange(&mut self, request: &mut Request) {
        if let Some(spare) = self.spare.get_mut(self.next_spare) {
            std::mem::swap(&mut request.buffer, spare);
            self.next_spare = (self.next_spare + 1) % self.spare.len();
        }
    }
}

impl Endpoint for Null {
    fn nature(&self) -> Nature {
        Nature::Addressed { depth: self.depth }
    }

    fn next(&mut self, request: &mut Request) -> Next {
        self.exchange(request);
        if request.leg == Leg::In {
            match &self.fill {
                Fill::Nothing => {}
                Fill::Zeros => request.body_mut().fill(0),
                Fill::Seeded(seed) => {
                    let start = request.label.extent.start;
                    fill_seeded(*seed, start, request.body_mut());
                }
                Fill::Made(generator) => {
                    let start = request.label.extent.start;
                    generator.fill(start, request.body_mut());
                }
            }
        }
        Next::Done
    }
}

/// Fills a body with the bytes that belong at `start`, a multiple of eight: word `n` of the stream
/// is SplitMix64 of `seed` and `n`, so any extent can be made and checked without its neighbours.
pub fn fill_seeded(seed: u64, start: u64, body: &mut [u8]) {
    for (word, chunk) in (start / 8..).zip(body.chunks_mut(8)) {
        let bytes = mix(seed, word).to_le_bytes();
        chunk.copy_from_slice(&bytes[..chunk.len()]);
    }
}

/// SplitMix64 of a seed and the number of a word.
pub fn mix(seed: u64, word: u64) -> u64 {
    let mut z = seed.wrapping_add(word.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each request gets the buffer that has been unused longest; its own comes back in turn.
    #[test]
    fn buffers_go_round() {
        let mut request = Request::several(1, 4096).remove(0);
        let mut null = Null::new(Fill::Nothing, 1).through(Buffer::several(3, 4096));
        let addresses: Vec<_> = (0..8)
            .map(|_| {
                assert!(matches!(null.next(&mut request), Next::Done));
                request.buffer.address()
            })
            .collect();
        assert_eq!(addresses[..4], addresses[4..]);
        assert!((0..4).all(|i| (0..i).all(|k| addresses[i] != addresses[k])), "{addresses:?}");
    }

    #[test]
    fn seeded_bytes_do_not_depend_on_the_cut() {
        let mut whole = [0; 4099];
        fill_seeded(7, 0, &mut whole);
        let mut part = [0; 1003];
        fill_seeded(7, 3096, &mut part);
        assert_eq!(part[..], whole[3096..]);
        let mut other = [0; 4099];
        fill_seeded(8, 0, &mut other);
        assert_ne!(other, whole);
        let ones: u32 = whole.iter().map(|byte| byte.count_ones()).sum();
        assert!((14_000..19_000).contains(&ones), "{ones} of 32792 bits are set");
    }
}
