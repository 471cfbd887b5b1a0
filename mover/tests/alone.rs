//! The far side alone, as the program that a host needs which others copy to and from.

use std::fs;
use std::sync::Arc;
use std::sync::mpsc::channel;

use base::job::{Job, Location, Remote};
use base::settings::Settings;
use mover::io::clock;
use mover::pump::watch::Watch;
use mover::remote::copy::run_with;
use mover::remote::demo::make_file;
use mover::remote::launch::Launch;

const BYTES: u64 = 3_000_001;

#[test]
fn the_far_side_alone_serves_a_push_and_a_pull() {
    let launch =
        Launch::Process { program: env!("CARGO_BIN_EXE_datapump-peer").into(), cpus: None };
    for is_pull in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (folder.path().join("from"), folder.path().join("to"));
        make_file(&from, 7, BYTES).unwrap();
        let far = || Some("far".to_string());
        let job = Job {
            sources: vec![Location::Path(from.clone())],
            source_host: if is_pull { far() } else { None },
            target: Location::Path(to.clone()),
            target_host: if is_pull { None } else { far() },
            listed: None,
            range: None,
            settings: Settings::default(),
            remote: Remote::default(),
        };
        let (notices, _told) = channel();
        let outcome = run_with(&job, &launch, &Arc::new(Watch::new(notices)), clock::now());
        assert_eq!(outcome.map(|outcome| outcome.bytes), Ok(BYTES), "pull: {is_pull}");
        assert!(fs::read(&from).unwrap() == fs::read(&to).unwrap(), "pull: {is_pull}");
    }
}
