//! The fuzz targets over the committed corpus, without a fuzzing engine: a regression test for what
//! fuzzing has found.

#[path = "../../fuzz/targets.rs"]
mod targets;

use std::fs;
use std::path::Path;

type Target = (&'static str, fn(&[u8]));

const TARGETS: &[Target] = &[
    ("frame", targets::frame),
    ("message", targets::message),
    ("session", targets::session),
    ("manifest", targets::manifest),
    ("journal", targets::journal),
    ("decompress", targets::decompress),
    ("conversation", targets::conversation),
];

#[test]
fn the_corpus_is_replayed() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus");
    for (name, target) in TARGETS {
        let inputs: Vec<_> = fs::read_dir(corpus.join(name))
            .unwrap_or_else(|why| panic!("fuzz/corpus/{name}: {why}"))
            .map(|entry| entry.unwrap().path())
            .collect();
        assert!((1..300).contains(&inputs.len()), "{name}: {} inputs", inputs.len());
        for input in inputs {
            let bytes = fs::read(&input).unwrap();
            assert!(bytes.len() < INPUT_BYTES_MAX, "{}: minimise it", input.display());
            println!("{}", input.display());
            target(&bytes);
        }
    }
}

/// Every target has a fuzz program, and every fuzz program is replayed here.
#[test]
fn targets_and_programs_agree() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/fuzz_targets");
    let mut programs: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path().file_stem().unwrap().to_string_lossy().into_owned())
        .collect();
    programs.sort();
    let mut names: Vec<&str> = TARGETS.iter().map(|(name, _)| *name).collect();
    names.sort();
    assert_eq!(programs, names);
}

const INPUT_BYTES_MAX: usize = 4096;
