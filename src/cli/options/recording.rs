//! The options of what is recorded, and of reading it.

use std::path::PathBuf;

use super::kind::{Kind, Limits};
use super::{AnyOption, CliOption, Group, MOVING};
use crate::cli::command_id::CommandId;
use analysis::record::export::{Format, What};
use analysis::report::sheet::Form;
use analysis::study::CpuFrom;
use base::settings::PathSamples;

const RECORDS: &[CommandId] = &[
    CommandId::Copy,
    CommandId::Demo,
    CommandId::Measure,
    CommandId::MeasureCodec,
    CommandId::NetTest,
    CommandId::ModelFit,
    CommandId::ModelShow,
    CommandId::ModelPredict,
    CommandId::ResultsList,
    CommandId::ResultsShow,
    CommandId::ResultsExport,
    CommandId::Explain,
    CommandId::Sweep,
    CommandId::SweepShow,
    CommandId::SweepCompare,
    CommandId::SweepProfile,
];
const RECORDED_OR_NOT: &[CommandId] =
    &[CommandId::Copy, CommandId::Demo, CommandId::NetTest, CommandId::MeasureCodec];
const FIT: &[CommandId] = &[CommandId::ModelFit];
const LIST: &[CommandId] = &[CommandId::ResultsList];
const CHOSEN: &[CommandId] =
    &[CommandId::ModelFit, CommandId::ResultsList, CommandId::ResultsExport];
const MODELS: &[CommandId] = &[CommandId::ModelFit, CommandId::ModelShow];
const EXPORT: &[CommandId] = &[CommandId::ResultsExport];
const SHOW: &[CommandId] = &[CommandId::SweepShow];
const COMPARE: &[CommandId] = &[CommandId::SweepCompare];
const WRITING: &[CommandId] = &[
    CommandId::ModelFit,
    CommandId::ModelShow,
    CommandId::ResultsExport,
    CommandId::SweepShow,
    CommandId::SweepCompare,
];

/// How a model is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PageFormat {
    Text,
    Json,
    Markdown,
}

impl PageFormat {
    const NAMES: &[&str] = &["text", "json", "markdown"];
    const ALL: &[PageFormat] = &[PageFormat::Text, PageFormat::Json, PageFormat::Markdown];
}

/// How a campaign is written: as a page, or its runs for other programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CampaignFormat {
    Page(Form),
    Runs(Format),
}

impl CampaignFormat {
    const NAMES: &[&str] = &["text", "markdown", "csv", "json", "parquet"];
    const ALL: &[CampaignFormat] = &[
        CampaignFormat::Page(Form::Text),
        CampaignFormat::Page(Form::Markdown),
        CampaignFormat::Runs(Format::Csv),
        CampaignFormat::Runs(Format::Json),
        CampaignFormat::Runs(Format::Parquet),
    ];
}

/// In the order of `--help`.
pub(crate) const TABLE: &[&dyn AnyOption] = &[
    &RESULTS,
    &NO_RECORD,
    &INPUT,
    &LIMIT,
    &EXPERIMENT,
    &CPU_FROM,
    &MODEL_FORMAT,
    &EXPORT_FORMAT,
    &SHOW_FORMAT,
    &COMPARE_FORMAT,
    &WHAT,
    &PATH_SAMPLES,
    &OUTPUT,
];

pub(crate) static RESULTS: CliOption<PathBuf> = CliOption {
    name: "results",
    letter: None,
    value: "FILE",
    kind: Kind::Path(|path| path),
    default: "",
    help: "The results store, an SQLite file",
    more: "By default, the file that the variable DATAPUMP_RESULTS names, else \
           datapump/results.db in $XDG_STATE_HOME or ~/.local/state.",
    group: Group::Recording,
    commands: RECORDS,
};

pub(crate) static NO_RECORD: CliOption<bool> = CliOption {
    name: "no-record",
    letter: None,
    value: "",
    kind: Kind::Flag(|| true),
    default: "",
    help: "Do not record this run in the results store",
    more: "The variable DATAPUMP_NO_RECORD, set to 1, does the same.",
    group: Group::Recording,
    commands: RECORDED_OR_NOT,
};

pub(crate) static INPUT: CliOption<PathBuf> = CliOption {
    name: "input",
    letter: None,
    value: "FILE",
    kind: Kind::Path(|path| path),
    default: "",
    help: "Fit the measurements in this CSV file (- is standard input), not those in the store",
    more: "The first line names the columns: request_size (32K or 32768) and ns_per_byte, or \
           request_size, bytes, cpu_s and, if they were counted, calls and starts; also depth, \
           if it differs between runs.",
    group: Group::Recording,
    commands: FIT,
};

pub(crate) static LIMIT: CliOption<u32> = CliOption {
    name: "limit",
    letter: None,
    value: "N",
    kind: Kind::Number(Limits::count(1, u32::MAX as u64), |n| n as u32),
    default: "20",
    help: "Number of runs in the list, the newest ones",
    more: "",
    group: Group::Recording,
    commands: LIST,
};

pub(crate) static EXPERIMENT: CliOption<String> = CliOption {
    name: "experiment",
    letter: None,
    value: "NAME",
    kind: Kind::Text(|text| text),
    default: "",
    help: "Only runs of this experiment",
    more: "Default for a model: the newest one.",
    group: Group::Recording,
    commands: CHOSEN,
};

pub(crate) static CPU_FROM: CliOption<CpuFrom> = CliOption {
    name: "cpu",
    letter: None,
    value: "KIND",
    kind: Kind::Choice(CpuFrom::NAMES, |i| CpuFrom::ALL[i]),
    default: "soaked",
    help: "Which runs the tables take CPU time from",
    more: "soaked: runs beside a soaker. bare: runs without one, where CPU time is from clocks \
           alone. The other kind is summarized below. Models of hosts are always fitted to \
           bare runs, as copies have no soaker.",
    group: Group::Recording,
    commands: FIT,
};

pub(crate) static MODEL_FORMAT: CliOption<PageFormat> = CliOption {
    name: "format",
    letter: None,
    value: "FORMAT",
    kind: Kind::Choice(PageFormat::NAMES, |i| PageFormat::ALL[i]),
    default: "",
    help: "Output format",
    more: "",
    group: Group::Recording,
    commands: MODELS,
};

pub(crate) static EXPORT_FORMAT: CliOption<Format> = CliOption {
    name: "format",
    letter: None,
    value: "FORMAT",
    kind: Kind::Choice(EXPORT_NAMES, |i| Format::ALL[i].1),
    default: "json",
    help: "Output format",
    more: "",
    group: Group::Recording,
    commands: EXPORT,
};

pub(crate) static SHOW_FORMAT: CliOption<CampaignFormat> = CliOption {
    name: "format",
    letter: None,
    value: "FORMAT",
    kind: Kind::Choice(CampaignFormat::NAMES, |i| CampaignFormat::ALL[i]),
    default: "",
    help: "Output format",
    more: "",
    group: Group::Recording,
    commands: SHOW,
};

pub(crate) static COMPARE_FORMAT: CliOption<Form> = CliOption {
    name: "format",
    letter: None,
    value: "FORMAT",
    kind: Kind::Choice(&["text", "markdown"], |i| [Form::Text, Form::Markdown][i]),
    default: "text",
    help: "Output format",
    more: "",
    group: Group::Recording,
    commands: COMPARE,
};

pub(crate) static WHAT: CliOption<What> = CliOption {
    name: "what",
    letter: None,
    value: "WHAT",
    kind: Kind::Choice(What::NAMES, |i| What::ALL[i]),
    default: "runs",
    help: "What a row of the output is",
    more: "With paths, each row is one sample of one data stream at one of its ends: TCP_INFO, \
           and how the lane spent its time. json always has runs with their paths inside.",
    group: Group::Recording,
    commands: EXPORT,
};

pub(crate) static PATH_SAMPLES: CliOption<PathSamples> = CliOption {
    name: "path-samples",
    letter: None,
    value: "HOW",
    kind: Kind::Choice(PathSamples::NAMES, |i| PathSamples::ALL[i]),
    default: "on",
    help: "Whether TCP_INFO of each stream is sampled while it runs",
    more: "Its cost is negligible. The samples are recorded with the run, and the verdict on \
           the path is made from them. off is for measuring that cost.",
    group: Group::Recording,
    commands: MOVING,
};

pub(crate) static OUTPUT: CliOption<PathBuf> = CliOption {
    name: "output",
    letter: None,
    value: "FILE",
    kind: Kind::Path(|path| path),
    default: "",
    help: "Write to this file instead of standard output",
    more: "An existing file is not replaced.",
    group: Group::Recording,
    commands: WRITING,
};

const EXPORT_NAMES: &[&str] = &[Format::ALL[0].0, Format::ALL[1].0, Format::ALL[2].0];
