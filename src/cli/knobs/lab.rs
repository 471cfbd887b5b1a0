//! The knobs of measuring.

use super::{Group, Kind, Knob, Limits, Range};
use crate::base::limits;
use crate::base::settings::PathSamples;
use crate::cli::command::Verb;
use crate::measure::rig::Cache;
use crate::record::export::What;
use crate::study::CpuFrom;
use crate::study::experiment::{Order, Soak};

const MEASURE: &[Verb] = &[Verb::Measure];
/// Takes a folder to work in or to look at.
const PLACED: &[Verb] = &[Verb::Measure, Verb::Doctor];
const DOCTOR: &[Verb] = &[Verb::Doctor];
const MODEL: &[Verb] = &[Verb::Model];
const RESULTS: &[Verb] = &[Verb::Results];
const READING: &[Verb] = &[Verb::Model, Verb::Results];
const WRITING: &[Verb] = &[Verb::Model, Verb::Results, Verb::Sweep];
const RECORDED: &[Verb] = &[Verb::Copy, Verb::Demo];
/// A net test among them; other measurements are always recorded.
const RECORDED_OR_NOT: &[Verb] = &[Verb::Copy, Verb::Demo, Verb::Measure];
const RECORDS: &[Verb] = &[
    Verb::Copy,
    Verb::Demo,
    Verb::Measure,
    Verb::Model,
    Verb::Results,
    Verb::Explain,
    Verb::Sweep,
];

pub const LAB: &[Knob] = &[
    Knob {
        name: "request-sizes",
        letter: None,
        value: "LIST",
        kind: Kind::List(Limits::REQUEST_BYTES, Range::Doubling, |o, sizes| {
            o.measure.request_sizes = sizes.iter().map(|size| *size as u32).collect();
        }),
        default: "16K..1M",
        help: "Request sizes that are measured",
        more: "16K..1M doubles from one to the other; 16K,96K are just these.",
        group: Group::Measuring,
        verbs: MEASURE,
    },
    Knob {
        name: "depths",
        letter: None,
        value: "LIST",
        kind: Kind::List(Limits::count(1, limits::DEPTH_MAX as u64), Range::Each, |o, depths| {
            o.measure.depths = Some(depths.iter().map(|depth| *depth as u16).collect());
        }),
        default: "",
        help: "Request depths that are measured, of both ends [default: 1]",
        more: "1..4 are 1, 2, 3 and 4. The end that is a connection has one request in the air: \
               its depth is the buffers behind it.",
        group: Group::Measuring,
        verbs: MEASURE,
    },
    Knob {
        name: "bytes",
        letter: None,
        value: "SIZE",
        kind: Kind::NumberOr("auto", Limits::bytes(4096, 1 << 50), |o, n| o.measure.bytes = n),
        default: "auto",
        help: "How much each run moves",
        more: "auto sizes each run to take a second or more. null to null counts requests anyway.",
        group: Group::Measuring,
        verbs: MEASURE,
    },
    Knob {
        name: "repeat",
        letter: None,
        value: "N",
        kind: Kind::Number(Limits::count(1, 1000), |o, n| o.measure.repeat = Some(n as u32)),
        default: "",
        help: "How often each combination is run [default: 5]",
        more: "One repeat is a pass through all combinations, so that a slow minute of the machine \
               hits none of them more than the others.",
        group: Group::Measuring,
        verbs: MEASURE,
    },
    Knob {
        name: "order",
        letter: None,
        value: "HOW",
        kind: Kind::Choice(Order::NAMES, |o, i| o.measure.order = Order::ALL[i]),
        default: "random",
        help: "In which order combinations are run",
        more: "random mixes every pass by --seed.",
        group: Group::Measuring,
        verbs: MEASURE,
    },
    Knob {
        name: "soak",
        letter: None,
        value: "CPUS",
        kind: Kind::Choice(Soak::NAMES, |o, i| o.measure.soak = Soak::ALL[i]),
        default: "all",
        help: "On which CPUs a soaker counts the time that is left",
        more: "Each combination is run without the soaker for its bandwidth and beside it for its \
               CPU time. A soaker is a thread of the lowest priority on each CPU; some are half of \
               them. With none, idle time is what the kernel says it is.",
        group: Group::Measuring,
        verbs: MEASURE,
    },
    Knob {
        name: "cache",
        letter: None,
        value: "HOW",
        kind: Kind::Choice(Cache::NAMES, |o, i| o.measure.cache = Cache::ALL[i]),
        default: "bypass",
        help: "How the page cache stands to the files",
        more: "bypass is direct I/O; with warm all that is read is in it, with cold nothing.",
        group: Group::Measuring,
        verbs: MEASURE,
    },
    Knob {
        name: "file",
        letter: None,
        value: "PATH",
        kind: Kind::Path(|o, path| o.measure.place = Some(path)),
        default: "",
        help: "The folder where files are made, or a file to read [default: this folder]",
        more: "What is made is removed at the end. A file that is named is only read.",
        group: Group::Measuring,
        verbs: PLACED,
    },
    Knob {
        name: "sink-folder",
        letter: None,
        value: "PATH",
        kind: Kind::Path(|o, path| o.measure.sink_place = Some(path)),
        default: "",
        help: "The folder where files are written, if it is another than --file's",
        more: "With a disk of its own for each end, neither spares the other anything. Whole \
               copies stay between --file and memory.",
        group: Group::Measuring,
        verbs: MEASURE,
    },
    Knob {
        name: "target",
        letter: None,
        value: "RATE",
        kind: Kind::RateOr("interface", |o, rate| o.target = rate),
        default: "interface",
        help: "The rate that copies are to reach",
        more: "interface is that of the slower interface, or 1 Gbit where none tells its speed.",
        group: Group::Measuring,
        verbs: DOCTOR,
    },
    Knob {
        name: "on",
        letter: None,
        value: "HOST[:FOLDER]",
        kind: Kind::Text(|o, host| o.measure.on = Some(host)),
        default: "",
        help: "Another host as the other end of the network, reached by ssh",
        more: "Without it the other end is another process on this host.",
        group: Group::Measuring,
        verbs: MEASURE,
    },
    Knob {
        name: "thorough",
        letter: None,
        value: "",
        kind: Kind::Flag(|o| o.measure.thorough = true),
        default: "",
        help: "Measure depths 1 to 4, ten times each; says first how long it takes",
        more: "",
        group: Group::Measuring,
        verbs: MEASURE,
    },
    Knob {
        name: "results",
        letter: None,
        value: "FILE",
        kind: Kind::Path(|o, path| o.results = Some(path)),
        default: "",
        help: "The results store, an SQLite file",
        more: "Left out, it is what the variable DATAPUMP_RESULTS names, else datapump/results.db \
               in $XDG_STATE_HOME or ~/.local/state.",
        group: Group::Recording,
        verbs: RECORDS,
    },
    Knob {
        name: "explain",
        letter: None,
        value: "",
        kind: Kind::Flag(|o| o.explain = true),
        default: "",
        help: "Show why the copy was not faster, with the evidence, and what to change",
        more: "The summary has it in one sentence. Later, 'datapump explain' shows the same of \
               a run that was recorded.",
        group: Group::Showing,
        verbs: RECORDED_OR_NOT,
    },
    Knob {
        name: "no-record",
        letter: None,
        value: "",
        kind: Kind::Flag(|o| o.no_record = true),
        default: "",
        help: "Do not record this run in the results store",
        more: "The same with the variable DATAPUMP_NO_RECORD set to 1.",
        group: Group::Recording,
        verbs: RECORDED_OR_NOT,
    },
    Knob {
        name: "input",
        letter: None,
        value: "FILE",
        kind: Kind::Path(|o, path| o.input = Some(path)),
        default: "",
        help: "Fit the measurements in this CSV file, - for standard input, not those in the store",
        more: "The first line names the columns: request_size (32K or 32768) and ns_per_byte, or \
               request_size, bytes, cpu_s and, where they were counted, calls and starts; depth \
               too, where runs differ in it.",
        group: Group::Recording,
        verbs: MODEL,
    },
    Knob {
        name: "limit",
        letter: None,
        value: "N",
        kind: Kind::Number(Limits::count(1, u32::MAX as u64), |o, n| o.limit = n as u32),
        default: "20",
        help: "Runs that a list shows, the newest",
        more: "",
        group: Group::Recording,
        verbs: RESULTS,
    },
    Knob {
        name: "experiment",
        letter: None,
        value: "NAME",
        kind: Kind::Text(|o, name| o.experiment = Some(name)),
        default: "",
        help: "Only runs of this experiment",
        more: "A model is made from the newest one where nothing is said.",
        group: Group::Recording,
        verbs: READING,
    },
    Knob {
        name: "cpu",
        letter: None,
        value: "KIND",
        kind: Kind::Choice(CpuFrom::NAMES, |o, i| o.cpu_from = CpuFrom::ALL[i]),
        default: "soaked",
        help: "Which runs the tables take CPU time from",
        more: "soaked are those beside a soaker, bare those without, by clocks alone; the other \
               kind is summed up below. Models of hosts are always from bare runs, as copies have \
               no soaker.",
        group: Group::Recording,
        verbs: MODEL,
    },
    Knob {
        name: "format",
        letter: None,
        value: "FORMAT",
        kind: Kind::Choice(FORMATS, |o, i| o.format = Some(i)),
        default: "",
        help: "How it is written",
        more: "model writes text, json or markdown; results export writes csv, json or parquet, \
               and sweep show any of them.",
        group: Group::Recording,
        verbs: WRITING,
    },
    Knob {
        name: "what",
        letter: None,
        value: "WHAT",
        kind: Kind::Choice(What::NAMES, |o, i| o.export = What::ALL[i]),
        default: "runs",
        help: "What export writes rows of",
        more: "With paths each line is one sample of one data stream, as one of its ends saw it: \
               what TCP_INFO said and where the time of the lane went. json has runs with their \
               paths inside, whatever is said here.",
        group: Group::Recording,
        verbs: RESULTS,
    },
    Knob {
        name: "path-samples",
        letter: None,
        value: "HOW",
        kind: Kind::Choice(PathSamples::NAMES, |o, i| {
            o.settings.path_samples = PathSamples::ALL[i];
        }),
        default: "on",
        help: "Whether TCP's view of each stream is sampled while it runs",
        more: "It takes no time worth mentioning, is recorded with the run, and is what a verdict \
               on the path is made from. off is for measuring just that.",
        group: Group::Recording,
        verbs: RECORDED,
    },
    Knob {
        name: "output",
        letter: None,
        value: "FILE",
        kind: Kind::Path(|o, path| o.output = Some(path)),
        default: "",
        help: "Write there, and not to standard output",
        more: "A file that is there already is not replaced.",
        group: Group::Recording,
        verbs: WRITING,
    },
];

/// The forms in which results and models are written; not every command has all.
pub const FORMATS: &[&str] = &["text", "json", "markdown", "csv", "parquet"];
