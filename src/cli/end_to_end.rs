//! The last stage of `datapump measure`: copies of the default kind, from which predictions are
//! made.

use std::path::{Path, PathBuf};

use super::console::Console;
use crate::host::environment;
use crate::measure::trials::{self, Order};
use crate::results::Store;
use analysis::model::end_to_end::TrialCopy;
use analysis::model::end_to_end::records::record;
use analysis::report::json::Event;
use analysis::report::live;
use base::fault::Fault;
use base::units::{Bytes, Nanos};
use mover::io::clock;
use mover::pump::watch::Watch;

/// Copies that are to be made.
#[derive(Debug)]
pub(super) struct Stage {
    order: Order,
    copies: usize,
}

/// What the copies are made with; `None` for the default.
#[derive(Debug)]
pub(crate) struct Wanted<'a> {
    /// A folder on a disk.
    pub place: Option<&'a Path>,
    pub seed: u64,
    pub repeats: Option<u32>,
    /// Limit of the size of a copy.
    pub bytes_max: Option<u64>,
}

impl Stage {
    pub(super) fn of(wanted: Wanted<'_>) -> Result<Stage, Fault> {
        let Wanted { place, seed, repeats, bytes_max } = wanted;
        let order = Order {
            memory: memory_folder(),
            disk: folder_of(place.map_or_else(|| PathBuf::from("."), Path::to_path_buf)),
            seed,
            repeats: repeats.unwrap_or(trials::REPEATS),
            bytes_max,
        };
        let copies = order.jobs()?.len();
        Ok(Stage { order, copies })
    }

    pub(super) fn copies(&self) -> usize {
        self.copies
    }

    /// The estimated duration.
    pub(crate) fn duration_s(&self) -> f64 {
        trials::duration_s(self.copies)
    }

    /// Makes all copies, each a run of the experiment.
    pub(crate) fn carry_out(
        &self,
        store: &mut Store,
        experiment: &str,
        console: &Console,
        watch: &Watch,
    ) -> Result<(), Fault> {
        let environment = store.environment(&environment::here())?;
        let began = clock::now();
        self.order.run(&|| watch.stopping(), &mut |made| {
            let mut record = record(made, experiment, self.order.seed, environment);
            record.id = store.insert(&record)?;
            console.event(&Event::Run { record: Box::new(record) });
            let elapsed_s = clock::now().since(began).seconds();
            let left_s = elapsed_s / made.number as f64 * (made.of - made.number) as f64;
            let line = told(made, left_s);
            match console.has_line() {
                true => console.draw(line),
                false if made.number % REMARK_EVERY == 0 => console.remark(&line),
                false => {}
            }
            Ok(())
        })
    }
}

fn told(made: &TrialCopy, left_s: f64) -> String {
    let TrialCopy { sample, number, of, .. } = made;
    format!(
        "{number} of {of} copies, {} left: {} {} to {}, {} in {} files: {}",
        live::clock(Nanos((left_s * 1e9) as u64)),
        sample.carrier,
        sample.source,
        sample.sink,
        Bytes(sample.shape().bytes()),
        sample.files,
        Nanos((sample.elapsed_s * 1e9) as u64)
    )
}

/// A folder in memory.
fn memory_folder() -> PathBuf {
    let shared = Path::new("/dev/shm");
    if shared.is_dir() { shared.to_path_buf() } else { std::env::temp_dir() }
}

/// A folder, or that of a file.
fn folder_of(place: PathBuf) -> PathBuf {
    match place.is_dir() {
        true => place,
        false => match place.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent.to_path_buf(),
            _ => PathBuf::from("."),
        },
    }
}

/// Copies between two lines of progress, if there is no line that can be redrawn.
const REMARK_EVERY: usize = 20;
