//! `datapump demo`: a demonstration on this host alone.

use std::sync::Arc;
use std::time::Instant;

use super::console::Console;
use super::options::{copying, moving, showing};
use super::order::{self, Show};
use super::record::{self, Recording};
use super::settings::settings;
use super::typed::Typed;
use super::{conclude, explain, moved, start, watched};
use analysis::report::live::Phase;
use base::codec::Compress;
use base::settings::Settings;
use mover::remote::demo::{self, DemoOrder};

#[derive(Debug)]
pub(crate) struct DemoArgs {
    settings: Settings,
    /// The size of the one large file.
    bytes: u64,
    /// The number of small files beside it.
    files: u64,
    explain: bool,
    stats: bool,
    show: Show,
    recording: Recording,
}

impl DemoArgs {
    pub(super) fn of(typed: &Typed) -> Result<DemoArgs, String> {
        let compress = typed.value(&moving::COMPRESS)?.unwrap_or(Compress::Auto);
        let settings = Settings { compress, streams_auto: false, ..settings(typed)? };
        order::memory_suffices(&settings)?;
        Ok(DemoArgs {
            settings,
            bytes: typed.value_or_default(&copying::DEMO_BYTES)?,
            files: typed.value_or_default(&copying::DEMO_FILES)?,
            explain: typed.has(&showing::EXPLAIN),
            stats: typed.has(&showing::STATS),
            show: Show::of(typed)?,
            recording: Recording::of(typed)?,
        })
    }
}

pub(super) fn run(args: &DemoArgs, started: Instant) -> u8 {
    let console = Arc::new(Console::new(args.show, started));
    let order = DemoOrder { settings: args.settings.clone(), bytes: args.bytes, files: args.files };
    console.event(&start("demo", Vec::new(), None, Some(&order.settings)));
    let (result, collected) = watched(&console, Phase::Connecting, None, None, |watch| {
        demo::run(&order, watch, &|step| console.remark(step))
    });
    let conclusion = result.map(|outcome| {
        let made = (&outcome, &order.settings);
        let ends = record::Ends::of_demo();
        let record = record::keep(&console, &args.recording, "demo", &ends, made, &collected);
        let mut conclusion = moved(made, record, args.stats);
        conclusion
            .summary
            .push_str("  verified            all files read again and equal; removed\n");
        let verdict = explain::of_copy(&outcome, &order.settings);
        conclusion.explained(&console, &outcome, verdict, args.explain)
    });
    conclude(&console, conclusion, collected)
}
