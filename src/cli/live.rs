//! What others see of a command while it runs: `--live`, a page for browsers of this host; of a
//! copy also `--metrics`.

use std::collections::BTreeMap;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};

use super::console::Console;
use super::metrics::{self, Shown};
use super::order::CopyArgs;
use super::record::{self, Recording};
use super::results::environments;
use crate::results::Store;
use crate::spread::folder::JobFolder;
use crate::spread::history::HistoryReader;
use crate::telemetry::live::{Cost, Live, locked};
use crate::telemetry::under_way::UnderWay;
use analysis::diagnosis::Verdict;
use analysis::page::campaign::Campaign;
use analysis::page::{self, Page};
use analysis::record::options::Options;
use analysis::record::sample::{Environment, Record};
use analysis::report::json::Event;
use analysis::report::openmetrics::Figures;
use analysis::shards::overview::Overview;
use base::fault::Fault;
use base::job::StreamPath;
use mover::io::clock;
use mover::pump::watch::Watch;

/// What is shown of a copy, from its start to its end.
#[derive(Debug)]
pub(super) struct Watched {
    metrics: Shown,
    figures: Option<Figures>,
    live: Option<CopyShown>,
    /// The page of the whole run, and its bytes.
    last: Option<(Page, u64)>,
    recording: Recording,
}

impl Watched {
    /// Beside it where samples of streams are to be sent, if they are wanted.
    pub(super) fn open(
        args: &CopyArgs,
        console: &Console,
    ) -> Result<(Watched, Option<Sender<StreamPath>>), Fault> {
        let ends = vec![metrics::ends_of(&args.order.job)];
        let metrics = Shown::open(args.metrics.as_ref(), "copy", ends, console)?;
        let (live, paths) = args.live.map(|port| of_copy(port, args, console)).transpose()?.unzip();
        let recording = args.recording.clone();
        Ok((Watched { metrics, figures: None, live, last: None, recording }, paths))
    }

    pub(super) fn begins(&self, watch: &Arc<Watch>) {
        self.metrics.begins(0, Some(watch));
        if let Some(shown) = &self.live {
            shown.copy.begins(watch);
        }
    }

    /// The copy ran to its end.
    pub(super) fn made(&mut self, record: &Record, verdict: Option<&Verdict>) {
        self.figures = Some(Figures::of(record, verdict));
        if self.live.is_some() {
            let page = page::run::page(record.clone(), &known(record, &self.recording));
            self.last = Some((page, record.moved.bytes));
        }
    }

    pub(super) fn ended(self, console: &Console, exit_code: u8) {
        self.metrics.ended(console, 0, exit_code, self.figures);
        if let Some(CopyShown { live, .. }) = self.live {
            let bytes = self.last.as_ref().map_or(0, |(_, bytes)| *bytes);
            end(live, self.last.map(|(page, _)| page).as_ref(), bytes, console);
        }
    }
}

/// The page of a copy.
#[derive(Debug)]
struct CopyShown {
    live: Live,
    copy: Arc<UnderWay>,
}

/// The page of a campaign, from its first cell to its last; nothing happens without `--live`.
#[derive(Debug, Default)]
pub(super) struct Cells(Option<CellsShown>);

#[derive(Debug)]
struct CellsShown {
    live: Live,
    name: String,
    /// Without their samples.
    records: Arc<Mutex<Vec<Record>>>,
    /// Of those that were measured now.
    bytes: u64,
}

impl Cells {
    pub(super) fn open(
        port: Option<u16>,
        name: &str,
        before: Vec<Record>,
        console: &Console,
    ) -> Result<Cells, Fault> {
        let Some(port) = port else { return Ok(Cells::default()) };
        let records = Arc::new(Mutex::new(before));
        let (shown, its_name) = (Arc::clone(&records), name.to_string());
        let draw = move || page_of(&its_name, &shown);
        let live = open(port, &format!("Campaign {name}"), Arc::default(), console, draw)?;
        Ok(Cells(Some(CellsShown { live, name: name.to_string(), records, bytes: 0 })))
    }

    pub(super) fn measured(&mut self, record: &Record) {
        if let Some(shown) = &mut self.0 {
            shown.bytes += record.moved.bytes;
            let record = Record { paths: Vec::new(), series: Vec::new(), ..record.clone() };
            locked(&shown.records).push(record);
        }
    }

    pub(super) fn ended(self, console: &Console) {
        if let Some(CellsShown { live, name, records, bytes }) = self.0 {
            end(live, Some(&page_of(&name, &records)), bytes, console);
        }
    }
}

/// The page of a spread, from its start to its end; nothing happens without `--live`.
#[derive(Debug, Default)]
pub(super) struct JobShown {
    live: Option<Live>,
    job: Arc<Mutex<JobKnown>>,
}

/// What the coordinator sees of a job.
#[derive(Debug, Default)]
struct JobKnown {
    folder: Option<JobFolder>,
    overview: Overview,
    reader: HistoryReader,
    /// The newest page, where the job folder can be read no more.
    page: Page,
}

impl JobShown {
    /// Before the job has a folder: a port that is taken costs none.
    pub(super) fn open(port: Option<u16>, console: &Console) -> Result<JobShown, Fault> {
        let Some(port) = port else { return Ok(JobShown::default()) };
        let job: Arc<Mutex<JobKnown>> = Arc::default();
        let shown = Arc::clone(&job);
        let draw = move || locked(&shown).draw();
        let live = open(port, "Spread", Arc::default(), console, draw)?;
        Ok(JobShown { live: Some(live), job })
    }

    pub(super) fn begins(&self, folder: &JobFolder) {
        locked(&self.job).folder = Some(folder.clone());
    }

    pub(super) fn overview(&self, overview: &Overview) {
        if self.live.is_some() {
            locked(&self.job).overview = overview.clone();
        }
    }

    pub(super) fn ended(self, console: &Console) {
        let Some(live) = self.live else { return };
        let (page, bytes) = {
            let mut job = locked(&self.job);
            (job.draw(), job.overview.bytes)
        };
        end(live, Some(&page), bytes, console);
    }
}

impl JobKnown {
    fn draw(&mut self) -> Page {
        let read = self.folder.as_ref().map(|of| self.reader.read(of, self.overview.clone()));
        if let Some(Ok(history)) = read {
            self.page = page::spread::page(&history);
        }
        self.page.clone()
    }
}

fn page_of(name: &str, records: &Mutex<Vec<Record>>) -> Page {
    page::campaign::page(Campaign { name, records: &locked(records) }, None)
}

/// Serves the page of a copy.
fn of_copy(
    port: u16,
    args: &CopyArgs,
    console: &Console,
) -> Result<(CopyShown, Sender<StreamPath>), Fault> {
    let record = Record {
        command: "copy".into(),
        version: env!("CARGO_PKG_VERSION").into(),
        started_unix_s: clock::unix().as_secs_f64(),
        sources: args.sources.clone(),
        given: Some(args.given.clone()),
        target: args.target.clone(),
        options: Options::of(&args.order.job.settings),
        ..Record::default()
    };
    let title = page::run::title(&record);
    let cost = Arc::new(Cost::default());
    let (copy, paths) = UnderWay::collect(record, &cost);
    let (shown, pages) = (Arc::clone(&copy), Mutex::new(page::run::SoFar::default()));
    let draw = move || {
        let (record, progress) = shown.record();
        locked(&pages).page(record, &progress)
    };
    let live = open(port, &title, cost, console, draw)?;
    Ok((CopyShown { live, copy }, paths))
}

/// Serves a page, and says where.
fn open(
    port: u16,
    title: &str,
    cost: Arc<Cost>,
    console: &Console,
    draw: impl Fn() -> Page + Send + Sync + 'static,
) -> Result<Live, Fault> {
    let live = Live::open(port, title, cost, draw)?;
    let address = live.address();
    console.remark(&format!("the live page is at {address}"));
    console.event(&Event::Live { address });
    Ok(live)
}

/// Ends the page, and says what it cost.
fn end(live: Live, last: Option<&Page>, bytes: u64, console: &Console) {
    let cpu_s = live.ends(last).seconds();
    let cpu_ns_per_byte = (bytes > 0).then(|| cpu_s * 1e9 / bytes as f64);
    let of_byte = cpu_ns_per_byte.map_or(String::new(), |ns| format!(", {ns:.4} ns/B"));
    console.remark(&format!("the live page took {cpu_s:.3} s of CPU time{of_byte}"));
    console.event(&Event::LiveEnded { cpu_s, cpu_ns_per_byte });
}

/// What is known of the hosts of a recorded run.
fn known(record: &Record, recording: &Recording) -> BTreeMap<i64, Environment> {
    let read = || {
        let store = Store::open_existing(&record::store_path(recording.store.as_deref())?)?;
        environments(&store, std::slice::from_ref(record))
    };
    // Without them the page has fewer facts.
    if record.id > 0 { read().unwrap_or_default() } else { BTreeMap::new() }
}

/// Who sees how a job goes, besides the terminal.
pub(super) struct JobWatched {
    pub metrics: Shown,
    pub live: JobShown,
}

impl JobWatched {
    pub(super) fn overview(&self, overview: &Overview) {
        self.metrics.overview(overview);
        self.live.overview(overview);
    }
}
