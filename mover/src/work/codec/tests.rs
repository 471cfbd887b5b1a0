use proptest::prelude::*;

use super::*;
use base::extent::Extent;
use base::label::Label;

const BODY_BYTES: u32 = 64 << 10;

/// A request with this payload, and a list of voids after it where there is one.
fn request(payload: &[u8], voids: usize) -> Box<Request> {
    let mut request = Request::new(BODY_BYTES);
    let extent = Extent { start: 0, len: payload.len() as u32 };
    let body_len = payload.len() as u32;
    request.label = Label { kind: Kind::Data, extent, body_len, ..Label::default() };
    request.body_mut().copy_from_slice(payload);
    for segment in 0..voids {
        request.voids.push((segment as u16, Fault::new(Class::Local, "gone")));
    }
    crate::work::voids::write(&mut request);
    request
}

fn codings() -> impl Strategy<Value = Coding> {
    (0..Coding::COUNT).prop_map(Coding::at)
}

/// Bytes that shrink, that do not, and both.
fn payload() -> impl Strategy<Value = Vec<u8>> {
    let random = prop::collection::vec(any::<u8>(), 0..2000);
    let repeated = (random.clone(), 1..40usize).prop_map(|(bytes, times)| bytes.repeat(times));
    let zeros = (0..BODY_BYTES as usize).prop_map(|len| vec![0; len]);
    prop_oneof![random, repeated, zeros].prop_map(|mut bytes| {
        bytes.truncate(BODY_BYTES as usize);
        bytes
    })
}

proptest! {
    #[test]
    fn compression_loses_nothing(coding in codings(), payload in payload(), voids in 0..3usize) {
        let mut sent = request(&payload, voids);
        let body = sent.body().to_vec();
        CompressStep::new(coding, BODY_BYTES).apply(&mut sent).unwrap();
        prop_assert!(sent.body().len() <= body.len(), "it grew");
        prop_assert_eq!(sent.label.codec == Codec::Raw, sent.body().len() == body.len());
        prop_assert_eq!(sent.label.codec, sent.coding.codec());
        DecompressStep::new(BODY_BYTES).apply(&mut sent).unwrap();
        prop_assert_eq!(sent.body(), body);
        prop_assert_eq!(sent.label.codec, Codec::Raw);
        prop_assert_eq!(sent.payload_len() as usize, payload.len());
    }

    /// One compressor for many payloads: none depends on those before it.
    #[test]
    fn each_payload_stands_alone(
        parts in prop::collection::vec((codings(), payload()), 1..6),
    ) {
        let (mut compressor, mut decompressor) = (Compressor::new(BODY_BYTES), Decompressor::new());
        for (coding, part) in parts {
            let Some(compressed) = compressor.compress(coding, &part) else { continue };
            let mut back = vec![0; part.len()];
            prop_assert_eq!(decompressor.decompress(coding.codec(), compressed, &mut back), Ok(()));
            prop_assert_eq!(back, part);
        }
    }

    #[test]
    fn rubbish_is_refused_or_fits(
        codec in 1..4u8, bytes in prop::collection::vec(any::<u8>(), 0..500), len in 0..5000usize,
    ) {
        let codec = Codec::from_code(codec).unwrap();
        let _ = Decompressor::new().decompress(codec, &bytes, &mut vec![0; len]);
    }
}

#[test]
fn what_does_not_shrink_goes_as_it_is() {
    let mut noise = vec![0; BODY_BYTES as usize];
    blake3::Hasher::new().finalize_xof().fill(&mut noise);
    for coding in Coding::all() {
        assert_eq!(Compressor::new(BODY_BYTES).compress(coding, &noise), None, "{coding:?}");
        let compressed = Compressor::new(BODY_BYTES).compress(coding, &[7; 4096]).map(<[u8]>::len);
        assert_eq!(compressed.is_none(), coding == Coding::Raw, "{coding:?}");
        assert!(compressed.is_none_or(|len| len < 64), "{coding:?}: {compressed:?}");
    }
}

#[test]
fn what_does_not_shrink_leaves_nothing_behind() {
    let mut noise = vec![0; BODY_BYTES as usize];
    blake3::Hasher::new().finalize_xof().fill(&mut noise);
    for before in Coding::all() {
        for coding in Coding::all().filter(|coding| *coding != Coding::Raw) {
            let mut compressor = Compressor::new(BODY_BYTES);
            assert_eq!(compressor.compress(before, &noise), None);
            assert!(
                compressor.compress(coding, &[7; 4096]).is_some(),
                "{coding:?} behind noise, {before:?}"
            );
        }
    }
}

/// What a frame may claim about compressed bytes, and whose fault it is when that is wrong.
#[test]
fn bombs_are_the_peers_fault() {
    let zeros = vec![0; BODY_BYTES as usize];
    for coding in [Coding::Lz4, Coding::Zlib(9), Coding::Zstd(19)] {
        let mut good = request(&zeros, 1);
        CompressStep::new(coding, BODY_BYTES).apply(&mut good).unwrap();
        assert!(good.body().len() < 400, "{coding:?}: a bomb of {} bytes", good.body().len());
        let len = good.label.extent.len;
        type Change = fn(&mut Request);
        let cases: [(&str, Change, Option<Class>); 5] = [
            ("as it was compressed", |_| {}, None),
            ("longer than it says", |r| r.label.extent.len -= 1, Some(Class::Peer)),
            ("shorter than it says", |r| r.label.extent.len -= 4096, Some(Class::Peer)),
            ("more than a request", |r| r.label.extent.len += 1, Some(Class::Peer)),
            ("damaged", |r| r.body_mut()[1] ^= 1, Some(Class::Corrupt)),
        ];
        for (what, change, expect) in cases {
            let mut request = copy_of(&good);
            change(&mut request);
            let outcome = DecompressStep::new(BODY_BYTES).apply(&mut request);
            let class = outcome.as_ref().err().map(|fault| fault.class);
            assert_eq!(class, expect, "{coding:?}, {what}: {outcome:?}");
        }
        let mut long = copy_of(&good);
        long.label.extent.len = u32::MAX;
        let fault = DecompressStep::new(BODY_BYTES).apply(&mut long).unwrap_err();
        assert!(fault.text.contains("the peer sent"), "{fault}");
        assert!(len == BODY_BYTES);
    }
}

fn copy_of(request: &Request) -> Box<Request> {
    let mut copy = Request::new(BODY_BYTES);
    copy.label = request.label;
    copy.buffer.bytes_mut().copy_from_slice(request.buffer.bytes());
    copy
}

/// The printed plan of memory relies on it.
#[test]
fn a_compressor_takes_no_more_than_is_planned() {
    for body_bytes in [64 << 10, 1 << 20, 4 << 20] {
        for coding in [Coding::Zstd(-5), Coding::Zstd(4), Coding::Zstd(9), Coding::Zstd(19)] {
            let mut compressor = Compressor::new(body_bytes);
            compressor.compress(coding, &vec![1; body_bytes as usize]).unwrap();
            let context = compressor.zstd.as_mut().unwrap().context_mut().sizeof() as u64;
            let used = context + compressor.compressed.len() as u64;
            assert!(
                used <= compressor_bytes(coding, body_bytes),
                "{coding:?} of {body_bytes}: {used}"
            );
        }
    }
}
