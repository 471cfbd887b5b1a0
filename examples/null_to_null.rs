//! Measures what the pump itself costs: requests whose bytes are not made, not digested and not
//! written, through one process. It is the lower bound of what a copy costs on this host.
//!
//! ```sh
//! cargo run --release --example null_to_null -- [GIB]
//! ```

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::channel;

use base::job::{Job, Location, Remote};
use base::settings::{DigestKind, Settings};
use base::units::Bytes;
use mover::pump::watch::Watch;
use mover::remote::copy;

fn main() -> ExitCode {
    let gib = std::env::args().nth(1).map_or(Ok(64), |word| word.parse::<u64>());
    let Ok(gib) = gib else {
        eprintln!("usage: null_to_null [GIB]");
        return ExitCode::from(2);
    };
    let (notices, _told) = channel();
    let watch = Arc::new(Watch::new(notices));
    for streams in [1, 2, 4] {
        let job = Job {
            sources: vec![Location::Null { len: gib << 30 }],
            source_host: None,
            target: Location::Null { len: 0 },
            target_host: None,
            listed: None,
            range: None,
            settings: Settings { streams, digest: DigestKind::None, ..Settings::default() },
            remote: Remote::default(),
        };
        match copy::run(&job, &watch) {
            Ok(outcome) => {
                let cpu = outcome.near.cpu_user + outcome.near.cpu_system;
                let requests = outcome.bytes / u64::from(outcome.request_bytes);
                println!(
                    "{streams} lanes: {} in {}, {:.0} ns of CPU a request of {}",
                    Bytes(outcome.bytes),
                    outcome.moving(),
                    cpu.0 as f64 / requests as f64,
                    Bytes(outcome.request_bytes.into()),
                );
            }
            Err(fault) => {
                eprintln!("{fault}");
                return ExitCode::from(fault.class.exit_code());
            }
        }
    }
    ExitCode::SUCCESS
}
