//! How fast this host compresses and decompresses given bytes: the code of a transfer, on one
//! thread, without the transfer.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use base::codec::Coding;
use base::fault::{Class, Fault};
use base::job::Location;
use base::units::Nanos;
use mover::ends::null::fill_seeded;
use mover::ends::synthetic::DataGenerator;
use mover::io::system::CpuClock;
use mover::work::codec::{Compressor, Decompressor};

/// The result of one coding.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Speed {
    pub coding: Coding,
    pub raw_bytes: u64,
    /// Payloads that do not shrink count with their raw size.
    pub compressed_bytes: u64,
    /// CPU time of the fastest pass over all bytes.
    pub compress: Nanos,
    /// CPU time of decompression; payloads that are sent raw need none.
    pub decompress: Nanos,
}

/// The first bytes of a source, at most `bytes_max`, generated for payloads of this length.
pub(super) fn load(
    location: &Location,
    bytes_max: u64,
    payload_bytes: u32,
) -> Result<Vec<u8>, Fault> {
    let made = |len: &u64, fill: &dyn Fn(&mut [u8])| {
        let mut bytes = vec![0; (*len).min(bytes_max) as usize];
        fill(&mut bytes);
        Ok(bytes)
    };
    match location {
        Location::Path(path) => read(path, bytes_max),
        Location::Zero { len } | Location::Null { len } => made(len, &|_| {}),
        Location::Random { len, seed } => made(len, &|bytes| fill_seeded(*seed, 0, bytes)),
        Location::Synthetic { set, len, seed } => {
            let generator = DataGenerator::new(*set, *seed, payload_bytes);
            made(len, &|bytes| generator.fill(0, bytes))
        }
        Location::Stdio | Location::Endless | Location::EndlessSynthetic { .. } => {
            Err(Fault::usage("standard input cannot be measured: name a file"))
        }
        Location::Object(url) => {
            Err(Fault::usage(format!("'{url}' is in an object store: name a file")))
        }
    }
}

fn read(path: &Path, bytes_max: u64) -> Result<Vec<u8>, Fault> {
    let fault = |error| Fault::io("read", path, &error);
    // Opening a FIFO blocks until it has a writer.
    let kind = std::fs::metadata(path).map_err(fault)?.file_type();
    if !kind.is_file() {
        let what = if kind.is_dir() { "a folder" } else { "no regular file" };
        let text = format!("'{}' is {what}: name a file with bytes in it", path.display());
        return Err(Fault::usage(text));
    }
    let mut bytes = Vec::new();
    File::open(path).map_err(fault)?.take(bytes_max).read_to_end(&mut bytes).map_err(fault)?;
    match bytes.is_empty() {
        true => Err(Fault::usage(format!("'{}' is empty: name another file", path.display()))),
        false => Ok(bytes),
    }
}

/// Compresses and decompresses all payloads repeatedly for this time, at least three times.
pub(super) fn measure(
    coding: Coding,
    bytes: &[u8],
    payload_bytes: u32,
    at_least: Nanos,
) -> Result<Speed, Fault> {
    let clock = CpuClock::of_this_thread().and_then(|clock| clock.now().map(|_| clock));
    let clock =
        clock.ok_or_else(|| Fault::new(Class::Local, "this host has no per-thread CPU clock"))?;
    let now = || clock.now().unwrap_or_default();
    let mut compressor = Compressor::new(payload_bytes);
    let mut decompressor = Decompressor::new();
    let mut back = vec![0; payload_bytes as usize];
    let raw_bytes = bytes.len() as u64;
    let mut best = Speed {
        coding,
        raw_bytes,
        compressed_bytes: 0,
        compress: Nanos(u64::MAX),
        decompress: Nanos(u64::MAX),
    };
    let begun = now();
    for pass in 0_u32.. {
        if pass >= PASSES_MIN && Nanos(now().0 - begun.0) >= at_least {
            break;
        }
        let (mut compress, mut decompress) = (0, 0);
        best.compressed_bytes = 0;
        for payload in bytes.chunks(payload_bytes as usize) {
            let before = now().0;
            let compressed = compressor.compress(coding, payload);
            let between = now().0;
            compress += between - before;
            let Some(compressed) = compressed else {
                best.compressed_bytes += payload.len() as u64;
                continue;
            };
            best.compressed_bytes += compressed.len() as u64;
            let room = &mut back[..payload.len()];
            let decompressed = decompressor.decompress(coding.codec(), compressed, room);
            decompress += now().0 - between;
            assert!(
                decompressed.is_ok() && room == payload,
                "{coding:?}: decompressed data differs from the input"
            );
        }
        best.compress = best.compress.min(Nanos(compress));
        best.decompress = best.decompress.min(Nanos(decompress));
    }
    Ok(best)
}

const PASSES_MIN: u32 = 3;

#[cfg(test)]
mod tests {
    use rustix::fs::{FileType, Mode};

    use super::*;
    use base::settings::DataSet;

    /// The compression ratio of a coding, on the first bytes of a data set.
    fn ratio(set: DataSet, coding: Coding) -> f64 {
        let location = Location::Synthetic { set, len: 3 << 20, seed: 1 };
        let bytes = load(&location, 1 << 30, 1 << 20).unwrap();
        let speed = measure(coding, &bytes, 1 << 20, Nanos(0)).unwrap();
        assert!(speed.compress.0 > 0 && speed.decompress.0 > 0, "{speed:?}");
        speed.raw_bytes as f64 / speed.compressed_bytes as f64
    }

    #[test]
    fn records_compress_as_those_of_the_study_did() {
        let one = ratio(DataSet::Records, Coding::Zlib(1));
        let nine = ratio(DataSet::Records, Coding::Zlib(9));
        assert!((6.7..6.9).contains(&one), "zlib 1: {one}");
        assert!(nine >= one && nine < 1.2 * one, "zlib 9: {nine}, zlib 1: {one}");
    }

    #[test]
    fn text_compresses_as_text_does() {
        let six = ratio(DataSet::Text, Coding::Zlib(6));
        assert!((2.0..4.0).contains(&six), "{six}");
    }

    #[test]
    fn what_cannot_be_measured_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let empty = folder.path().join("empty");
        std::fs::write(&empty, b"").unwrap();
        let fifo = folder.path().join("fifo");
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, FileType::Fifo, Mode::from(0o600), 0).unwrap();
        for (location, expect) in [
            (Location::Stdio, "standard input"),
            (Location::Path(empty), "is empty"),
            (Location::Path(folder.path().join("none")), "none"),
            (Location::Path(folder.path().into()), "is a folder"),
            (Location::Path(fifo), "is no regular file"),
        ] {
            let fault = load(&location, 1, 4096).unwrap_err();
            assert!(fault.text.contains(expect), "{fault}");
        }
    }
}
