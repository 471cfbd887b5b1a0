//! Copies with compressed payloads: the same bytes arrive, and the counts say what was compressed.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::channel;

use crate::support::data::{assert_same, bytes, write_file, write_tree};
use crate::support::{PROGRAM, Scene, each};
use base::codec::{Coding, Compress};
use base::job::{Job, Location, Outcome, Remote};
use base::settings::{DigestKind, Fsync, Seal, Settings};
use base::tally::Stage;
use mover::io::clock;
use mover::pump::watch::Watch;
use mover::remote::copy::run_with;
use mover::remote::launch::Launch;

/// A copy between this process and another.
fn copy(pull: bool, settings: Settings, source: &Path, target: &Path) -> Outcome {
    let far = Some("far".to_string());
    let job = Job {
        sources: vec![Location::Path(source.to_path_buf())],
        source_host: far.clone().filter(|_| pull),
        target: Location::Path(target.to_path_buf()),
        target_host: far.filter(|_| !pull),
        settings,
        listed: None,
        range: None,
        remote: Remote::default(),
    };
    let (notices, _heard) = channel();
    let launch = Launch::Process { program: PathBuf::from(PROGRAM), cpus: None };
    run_with(&job, &launch, &Arc::new(Watch::new(notices)), clock::now()).unwrap()
}

/// Data that shrinks, data that does not, a hole, and files of every length.
fn write_data(root: &Path) {
    write_tree(root);
    let lines: Vec<String> = (0..90_000_u64).map(|i| format!("line {i} of {}\n", i * i)).collect();
    fs::write(root.join("text"), lines.concat()).unwrap();
    write_file(&root.join("noise"), 7, 1_500_000);
    fs::write(root.join("both"), [bytes(8, 700_000), vec![0; 900_000]].concat()).unwrap();
    fs::File::create(root.join("hole")).unwrap().set_len(3_000_000).unwrap();
}

#[test]
fn compressed_bytes_arrive_as_they_were() {
    let cases = [
        (false, 1, Seal::Tls, DigestKind::Blake3, "zstd:3"),
        (true, 1, Seal::Auth, DigestKind::Blake3, "zlib:1"),
        (false, 4, Seal::Off, DigestKind::Crc64, "lz4"),
        (true, 3, Seal::Tls, DigestKind::None, "zstd:-5"),
        (false, 2, Seal::Auth, DigestKind::None, "zlib:9"),
        (false, 2, Seal::Tls, DigestKind::Blake3, "auto"),
        (true, 1, Seal::Off, DigestKind::Crc64, "auto"),
    ];
    each(cases, |(pull, streams, seal, digest, compress)| {
        let scene = Scene::new();
        let (source, target) = (scene.path("source"), scene.path("target"));
        write_data(&source);
        let compress = Compress::parse(compress).unwrap();
        let settings = Settings {
            streams: *streams,
            seal: *seal,
            digest: *digest,
            compress,
            request_bytes: 256 << 10,
            fsync: Fsync::Off,
            recursive: true,
            ..Settings::default()
        };
        // With a slash at the end the content of the folder is copied.
        let outcome = copy(*pull, settings, &source.join(""), &target);
        assert_same(&source, &target);
        check_tally(&outcome, compress);
    });
}

fn check_tally(outcome: &Outcome, compress: Compress) {
    let far = outcome.far.as_ref().unwrap();
    let (source, sink) = match outcome.near_is_source {
        true => (&outcome.near.tally, &far.tally),
        false => (&far.tally, &outcome.near.tally),
    };
    let compression = &source.compression;
    // Holes are sent without payload.
    assert_eq!(compression.raw_bytes(), source.bytes);
    assert_eq!(source.bytes, sink.bytes);
    // What auto chooses for so few bytes is not tested.
    let Compress::Always(coding) = compress else { return };
    assert!(compression.by_coding[coding.index()] > 3_000_000, "{compression:?}");
    assert!(compression.by_coding[Coding::Raw.index()] > 1_500_000, "{compression:?}");
    assert!(compression.compressed_bytes + 1_500_000 < compression.raw_bytes(), "{compression:?}");
    assert!(source.wire_bytes + 1_000_000 < source.bytes, "{}", source.wire_bytes);
    for tally in [source, sink] {
        assert!(tally.stages[Stage::Codec as usize].0 > 0, "{tally:?}");
    }
}

/// If the memory is too little for a coding that was typed, the command line is refused; a coding
/// that the program would choose is not used then.
#[test]
fn memory_for_packing_is_in_the_sum() {
    let scene = Scene::new();
    write_data(&scene.path("source"));
    let demo = |more: &str| scene.run(&format!("demo --bytes 4M --streams 4 --memory 64M {more}"));
    let ran = demo("--compress zstd:19");
    assert_eq!(ran.code, 2, "{ran}");
    assert!(ran.stderr.contains("of memory are too little"), "{ran}");
    let ran = demo("");
    assert_eq!(ran.code, 0, "{ran}");
}
