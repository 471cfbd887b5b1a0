//! Blocks of zeros are not sent: the source takes them out of a payload, and the sink puts them
//! back where a map after the payload says.

use super::passage::Step;
use crate::io::holes;
use crate::io::request::Request;
use crate::wire::frame::crc32c;
use base::fault::{Class, Fault};
use base::label::{Kind, MAP_CHECK_BYTES, MAPPED_BYTES_MAX, map_bytes};
use base::limits::HEADROOM_BYTES;
use base::tally::Stage;

const CHECK_BYTES: usize = MAP_CHECK_BYTES as usize;

/// At the source: takes out the blocks that were found to be zeros when the file was read.
#[derive(Debug, Default)]
pub struct Squeeze;

impl Step for Squeeze {
    fn stage(&self) -> Stage {
        Stage::Codec
    }

    fn apply(&mut self, request: &mut Request) -> Result<(), Fault> {
        // What could not be read is listed after the payload, where the map would be.
        let is_whole = request.label.kind == Kind::Data && request.label.voids_len == 0;
        if !is_whole || request.map.is_empty() {
            return Ok(());
        }
        debug_assert!(
            request.label.extent.len <= MAPPED_BYTES_MAX,
            "its map fits the block behind"
        );
        let map = std::mem::take(&mut request.map);
        let count = holes::squeeze(request.body_mut(), &map);
        let at = HEADROOM_BYTES as usize + count;
        let behind = &mut request.buffer.bytes_mut()[at..at + CHECK_BYTES + map.len()];
        behind[..CHECK_BYTES].copy_from_slice(&crc32c(&map).to_le_bytes());
        behind[CHECK_BYTES..].copy_from_slice(&map);
        let label = &mut request.label;
        label.kind = Kind::Sparse;
        label.voids_len = map_bytes(label.extent.len) as u16;
        label.body_len = count as u32 + u32::from(label.voids_len);
        request.map = map;
        Ok(())
    }
}

/// At the sink: makes a payload as long as its extent again.
#[derive(Debug)]
pub struct Expand {
    body_bytes_max: u32,
}

impl Expand {
    pub fn new(body_bytes_max: u32) -> Expand {
        Expand { body_bytes_max }
    }
}

impl Step for Expand {
    fn stage(&self) -> Stage {
        Stage::Codec
    }

    fn apply(&mut self, request: &mut Request) -> Result<(), Fault> {
        if request.label.kind != Kind::Sparse {
            return Ok(());
        }
        let count = check_map(request)?;
        let len = request.label.extent.len;
        if request.payload_len() != count || len > self.body_bytes_max {
            return Err(unfit(request));
        }
        let mut map = std::mem::take(&mut request.map);
        map.clear();
        map.extend_from_slice(request.carried_map());
        request.label.kind = Kind::Data;
        request.label.voids_len = 0;
        request.label.body_len = len;
        holes::expand(request.body_mut(), &map, count as usize);
        request.map = map;
        Ok(())
    }
}

/// Bytes that a map leaves in its payload. A map that is as it was sent, and names blocks beyond
/// the end, is the peer's fault.
pub(crate) fn check_map(request: &Request) -> Result<u32, Fault> {
    let behind = &request.body()[request.payload_len() as usize..];
    let (check, map) = behind.split_first_chunk().ok_or_else(|| unfit(request))?;
    if crc32c(map) != u32::from_le_bytes(*check) {
        let text = format!(
            "the map of the {} bytes at address {} arrived other than it was sent: suspect \
             memory or wire",
            request.label.extent.len, request.label.extent.start
        );
        return Err(Fault::new(Class::Corrupt, text));
    }
    holes::mapped_bytes(map, request.label.extent.len).ok_or_else(|| unfit(request))
}

fn unfit(request: &Request) -> Fault {
    let label = &request.label;
    Fault::peer(format!(
        "the peer sent {} bytes and a map that does not make them the {} at address {}: the \
         peer's fault, or somebody's who plays it",
        request.payload_len(),
        label.extent.len,
        label.extent.start
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::frame;
    use crate::work::codec::{CompressStep, DecompressStep};
    use base::codec::{Codec, Coding};
    use base::extent::Extent;
    use base::label::Label;

    const ROOM: u32 = 64 << 10;
    const BLOCK: u32 = 4096;

    /// A request whose blocks are data where `data` says so.
    fn request(len: u32, data: impl Fn(u32) -> bool) -> Box<Request> {
        let mut request = Request::new(ROOM);
        let extent = Extent { start: 0, len };
        request.label = Label { kind: Kind::Data, extent, body_len: len, ..Label::default() };
        for (block, bytes) in (0..).zip(request.body_mut().chunks_mut(BLOCK as usize)) {
            bytes.fill(if data(block) { 1 + block as u8 } else { 0 });
        }
        request.find_holes();
        request
    }

    #[test]
    fn what_is_squeezed_becomes_what_it_was() {
        let shapes: [fn(u32) -> bool; 5] =
            [|_| false, |n| n == 0, |n| n % 3 == 1, |n| n == 15, |n| n != 7];
        for len in [BLOCK + 1, 3 * BLOCK - 7, ROOM] {
            for (number, data) in shapes.into_iter().enumerate() {
                for coding in [Coding::Raw, Coding::Lz4, Coding::Zlib(1), Coding::Zstd(1)] {
                    let mut request = request(len, data);
                    let (before, raw) = (request.body().to_vec(), request.left_out());
                    Squeeze.apply(&mut request).unwrap();
                    let sparse = request.label.kind == Kind::Sparse;
                    assert_eq!((sparse, request.left_out()), (raw > 0, raw), "{len}, {number}");
                    let travels = request.label.body_len;
                    assert!(travels <= len - raw + map_bytes(len), "{len}, {number}");
                    CompressStep::new(coding, ROOM).apply(&mut request).unwrap();
                    assert_eq!(request.raw_len(), len - raw, "{len}, {number}, {coding:?}");
                    request.map.clear();
                    DecompressStep::new(ROOM).apply(&mut request).unwrap();
                    Expand::new(ROOM).apply(&mut request).unwrap();
                    assert_eq!(request.body(), before, "{len}, {number}, {coding:?}");
                    assert_eq!(request.label.kind, Kind::Data);
                    assert_eq!((request.label.codec, request.label.voids_len), (Codec::Raw, 0));
                }
            }
        }
    }

    /// A map that does not fit the block behind a body would not be taken by the other side.
    #[test]
    fn a_long_request_is_a_hole_or_is_sent_with_its_zeros() {
        let cases = [
            (MAPPED_BYTES_MAX, true, (MAPPED_BYTES_MAX - BLOCK, Kind::Sparse)),
            (MAPPED_BYTES_MAX + BLOCK, true, (0, Kind::Data)),
            (MAPPED_BYTES_MAX + BLOCK, false, (MAPPED_BYTES_MAX + BLOCK, Kind::Data)),
        ];
        for (len, has_data, expect) in cases {
            let mut request = Request::new(len);
            let extent = Extent { start: 0, len };
            request.label = Label { kind: Kind::Data, extent, body_len: len, ..Label::default() };
            request.body_mut()[BLOCK as usize] = u8::from(has_data);
            request.find_holes();
            let left_out = request.left_out();
            if left_out < len {
                Squeeze.apply(&mut request).unwrap();
            }
            assert_eq!((left_out, request.label.kind), expect, "{len}, {has_data}");
            if request.label.kind == Kind::Sparse {
                let label = frame::decode(&frame::encode(&request.label)).unwrap();
                assert_eq!(label, request.label);
                Expand::new(len).apply(&mut request).unwrap();
                assert_eq!(request.body()[BLOCK as usize], 1);
            }
        }
    }

    /// A change to a squeezed request, and whose fault it is.
    type Harm = (&'static str, fn(&mut Request), Class);

    #[test]
    fn a_map_that_does_not_fit_is_refused() {
        fn map_at(request: &Request) -> usize {
            HEADROOM_BYTES as usize + request.payload_len() as usize
        }
        /// Changes the map, and corrects its checksum.
        fn change(request: &mut Request, change: impl Fn(&mut [u8])) {
            let (at, end) = (map_at(request), request.body_span().end as usize);
            let behind = &mut request.buffer.bytes_mut()[at..end];
            change(&mut behind[CHECK_BYTES..]);
            let check = crc32c(&behind[CHECK_BYTES..]);
            behind[..CHECK_BYTES].copy_from_slice(&check.to_le_bytes());
        }
        let harms: [Harm; 6] = [
            (
                "a bit flips",
                |r| {
                    let at = map_at(r) + 4;
                    r.buffer.bytes_mut()[at] ^= 2
                },
                Class::Corrupt,
            ),
            ("more data than came", |r| change(r, |map| map[0] |= 0x80), Class::Peer),
            ("less data than came", |r| change(r, |map| map[0] = 0), Class::Peer),
            ("a block behind the end", |r| change(r, |map| map[1] |= 0x80), Class::Peer),
            ("a longer extent", |r| r.label.extent.len += 8 * BLOCK, Class::Peer),
            (
                "no map",
                |r| r.label.body_len -= u32::from(std::mem::take(&mut r.label.voids_len)),
                Class::Peer,
            ),
        ];
        for (name, harm, class) in harms {
            let mut request = request(12 * BLOCK - 5, |block| block < 5);
            Squeeze.apply(&mut request).unwrap();
            harm(&mut request);
            let fault = Expand::new(ROOM).apply(&mut request).expect_err(name);
            assert_eq!(fault.class, class, "{name}: {fault}");
        }
    }
}
