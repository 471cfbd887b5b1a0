//! The options of what is recorded, and of reading it.

use std::path::PathBuf;

use super::kind::{Kind, Limits};
use super::{AnyOption, CliOption, Group, MOVING};
use crate::cli::command_id::CommandId;
use analysis::record::export::{Format, What};
use analysis::report::sheet::Form;
use analysis::report::utc;
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
    CommandId::Report,
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
const RUNS: &[CommandId] = &[CommandId::ResultsList, CommandId::ResultsExport];
const REPORT: &[CommandId] = &[CommandId::Report];
const OF_A_TIME: &[CommandId] =
    &[CommandId::ResultsList, CommandId::ResultsExport, CommandId::Report];
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

/// A time: a date, or so long ago.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Since {
    UnixSeconds(u64),
    SecondsAgo(u64),
}

impl Since {
    pub(crate) fn unix_s(self, now_unix_s: f64) -> f64 {
        match self {
            Since::UnixSeconds(seconds) => seconds as f64,
            Since::SecondsAgo(seconds) => now_unix_s - seconds as f64,
        }
    }
}

/// In the order of `--help`.
pub(crate) const TABLE: &[&dyn AnyOption] = &[
    &RESULTS,
    &NO_RECORD,
    &INPUT,
    &LIMIT,
    &COMMAND,
    &MATCH,
    &SINCE,
    &EXPERIMENT,
    &CPU_FROM,
    &MODEL_FORMAT,
    &EXPORT_FORMAT,
    &SHOW_FORMAT,
    &COMPARE_FORMAT,
    &WHAT,
    &PATH_SAMPLES,
    &SETTINGS_TOO,
    &OUTPUT,
    &HTML,
    &SVG,
    &XPLOT,
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

pub(crate) static COMMAND: CliOption<String> = CliOption {
    name: "command",
    letter: None,
    value: "NAME",
    kind: Kind::Choice(RECORDED, |i| RECORDED[i].to_string()),
    default: "",
    help: "Only runs of this command",
    more: "",
    group: Group::Recording,
    commands: RUNS,
};

pub(crate) static MATCH: CliOption<String> = CliOption {
    name: "match",
    letter: None,
    value: "TEXT",
    kind: Kind::Text(|text| text),
    default: "",
    help: "Only runs with this text in a source, the destination or the name of a host",
    more: "Case does not matter.",
    group: Group::Recording,
    commands: RUNS,
};

pub(crate) static SINCE: CliOption<Since> = CliOption {
    name: "since",
    letter: None,
    value: "DATE",
    kind: Kind::Parsed(SINCE_PHRASE, since),
    default: "",
    help: "Only runs that started at this time or later",
    more: "Dates are in UTC, as in the list. 7d is a week ago. A report is then about the rates \
           that campaigns found on each host, and when they changed.",
    group: Group::Recording,
    commands: OF_A_TIME,
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

pub(crate) static SETTINGS_TOO: CliOption<bool> = CliOption {
    name: "verbose",
    letter: Some('v'),
    value: "",
    kind: Kind::Flag(|| true),
    default: "",
    help: "Show the settings of each host's kernel, too",
    more: "",
    group: Group::Recording,
    commands: &[CommandId::ResultsShow],
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

pub(crate) static HTML: CliOption<PathBuf> = CliOption {
    name: "html",
    letter: None,
    value: "FILE",
    kind: Kind::Path(|path| path),
    default: "",
    help: "Write the report to this file, as a web page that loads nothing",
    more: "An existing file is not replaced.",
    group: Group::Recording,
    commands: &[CommandId::Report, CommandId::SpreadReport],
};

pub(crate) static SVG: CliOption<PathBuf> = CliOption {
    name: "svg",
    letter: None,
    value: "DIR",
    kind: Kind::Path(|path| path),
    default: "",
    help: "Write each chart of the report to a file in this folder, as SVG",
    more: "The folder is made if it does not exist. Existing files are not replaced.",
    group: Group::Recording,
    commands: REPORT,
};

pub(crate) static XPLOT: CliOption<PathBuf> = CliOption {
    name: "xplot",
    letter: None,
    value: "DIR",
    kind: Kind::Path(|path| path),
    default: "",
    help: "Write the time-sequence of each stream of a run to a file in this folder, for xplot",
    more: "White is sent, green acknowledged, yellow the limit of the peer's window, red sent \
           again, as tcptrace draws it; recovery episodes and pauses have names. The folder is \
           made if it does not exist. Existing files are not replaced.",
    group: Group::Recording,
    commands: REPORT,
};

const EXPORT_NAMES: &[&str] = &[Format::ALL[0].0, Format::ALL[1].0, Format::ALL[2].0];
const RECORDED: &[&str] = &["copy", "demo", "net-test", "measure", "sweep"];
const SINCE_PHRASE: &str = "a date such as 2026-11-25 or '2026-11-25 10:30', or an age such as \
                            30m, 12h or 7d";

fn since(text: &str) -> Result<Since, String> {
    if let Some(seconds) = utc::unix_s(text) {
        return Ok(Since::UnixSeconds(seconds));
    }
    let units = [('m', 60), ('h', 3600), ('d', 24 * 3600)];
    let age = units.into_iter().find_map(|(unit, seconds)| {
        text.strip_suffix(unit)?.parse::<u32>().ok().map(|number| u64::from(number) * seconds)
    });
    age.map(Since::SecondsAgo).ok_or_else(|| format!("write {SINCE_PHRASE}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::options::CommandId;

    #[test]
    fn since_a_date_or_an_age() {
        let cases = [
            ("1970-01-02", Some(86_400.0)),
            ("1970-01-02 00:01", Some(86_460.0)),
            ("30m", Some(1e9 - 1800.0)),
            ("12h", Some(1e9 - 43_200.0)),
            ("7d", Some(1e9 - 604_800.0)),
            ("7", None),
            ("-1d", None),
            ("d", None),
            ("soon", None),
        ];
        for (text, expect) in cases {
            let found = SINCE.kind.read_text(text).ok().map(|since| since.unix_s(1e9));
            assert_eq!(found, expect, "{text}");
        }
    }

    #[test]
    fn every_command_that_records_can_be_asked_for() {
        let recording = NO_RECORD.commands.iter().chain([&CommandId::Measure, &CommandId::Sweep]);
        for command in recording {
            assert!(RECORDED.contains(&command.first_word()), "{}", command.typed());
        }
    }
}
