//! The command line as typed arguments: which command, and its own arguments, already checked.

use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;

use clap_complete::Shell;

use super::bbcp;
use super::clean::CleanArgs;
use super::codec::CodecArgs;
use super::command_id::CommandId;
use super::compare::CompareArgs;
use super::config::Outside;
use super::config_show::ShowConfigArgs;
use super::demo::DemoArgs;
use super::doctor::DoctorArgs;
use super::explain::ExplainArgs;
use super::limit::LimitArgs;
use super::ls::LsArgs;
use super::man::ManArgs;
use super::measure::MeasureArgs;
use super::model::{FitArgs, ShowModelArgs};
use super::nettest::NetTestArgs;
use super::old_forms;
use super::options::{moving, remote, showing};
use super::order::{CopyArgs, Form};
use super::parser;
use super::prediction::PredictArgs;
use super::report::ReportArgs;
use super::results::{ExportArgs, ListArgs, ShowRunsArgs};
use super::spread::{CancelArgs, JobArgs, JobReportArgs, ResumeArgs, SpreadArgs, WorkArgs};
use super::submit::{QueueArgs, SubmitArgs};
use super::sweep::{CompareCampaignsArgs, ProfileArgs, ShowCampaignArgs, SweepArgs, measured};
use super::typed::{Stop, Typed};
use super::verify::VerifyArgs;
use base::cpus::Cpus;
use mover::remote::restriction::PeerOptions;

/// A command line that can be carried out.
#[derive(Debug)]
pub(crate) struct Args {
    pub task: Task,
    /// The form in which an error is reported.
    pub form: Form,
    /// The CPUs that this side is bound to.
    pub cpus: Option<Cpus>,
}

/// A command with its own arguments.
#[derive(Debug)]
pub(crate) enum Task {
    Copy(Box<CopyArgs>),
    Demo(Box<DemoArgs>),
    Verify(Box<VerifyArgs>),
    Compare(Box<CompareArgs>),
    Ls(Box<LsArgs>),
    Clean(CleanArgs),
    Submit(SubmitArgs),
    Queue(QueueArgs),
    SubmittedCopy(PathBuf),
    Limit(LimitArgs),
    Measure(Box<MeasureArgs>),
    MeasureCodec(CodecArgs),
    NetTest(Box<NetTestArgs>),
    ModelFit(FitArgs),
    ModelShow(ShowModelArgs),
    ModelPredict(Box<PredictArgs>),
    ResultsList(ListArgs),
    ResultsShow(ShowRunsArgs),
    ResultsExport(ExportArgs),
    Explain(ExplainArgs),
    Report(ReportArgs),
    Doctor(DoctorArgs),
    Sweep(SweepArgs),
    SweepShow(ShowCampaignArgs),
    SweepCompare(CompareCampaignsArgs),
    SweepProfile(ProfileArgs),
    Spread(Box<SpreadArgs>),
    SpreadStatus(JobArgs),
    SpreadResume(ResumeArgs),
    SpreadCancel(CancelArgs),
    SpreadReport(JobReportArgs),
    SpreadWork(WorkArgs),
    ConfigShow(ShowConfigArgs),
    Man(ManArgs),
    Completions(Shell),
    Complete(Vec<OsString>),
    Peer(PeerOptions),
    Probe,
    SpreadFar,
}

impl Args {
    /// Reads the words of a command line, the program's name first.
    pub(super) fn parse(
        words: impl IntoIterator<Item = OsString>,
        outside: &Outside,
    ) -> Result<Args, Stop> {
        let words = bbcp::words(words.into_iter().collect())?;
        let args = Typed::parse_with(&words, outside).and_then(|typed| {
            Args::of(&typed).map_err(|why| Stop::wrong(&words, typed.with_origins(why)))
        });
        match (args, old_forms::net_test(&words)) {
            (Err(Stop::Wrong { .. }), Some(text)) => Err(Stop::wrong(&words, text)),
            (args, _) => args,
        }
    }

    pub(super) fn of(typed: &Typed) -> Result<Args, String> {
        let form = match typed.maybe(&showing::JSON)? {
            Some(true) => Form::Json,
            _ => Form::Text,
        };
        Ok(Args { task: Task::of(typed)?, form, cpus: typed.maybe(&moving::CPUS)? })
    }
}

impl Task {
    fn of(typed: &Typed) -> Result<Task, String> {
        Ok(match typed.command {
            CommandId::Copy => Task::Copy(Box::new(CopyArgs::of(typed)?)),
            CommandId::Demo => Task::Demo(Box::new(DemoArgs::of(typed)?)),
            CommandId::Verify => Task::Verify(Box::new(VerifyArgs::of(typed)?)),
            CommandId::Compare => Task::Compare(Box::new(CompareArgs::of(typed)?)),
            CommandId::Ls => Task::Ls(Box::new(LsArgs::of(typed)?)),
            CommandId::Clean => Task::Clean(CleanArgs::of(typed)?),
            CommandId::Submit => Task::Submit(SubmitArgs::of(typed)?),
            CommandId::Queue => Task::Queue(QueueArgs::of(typed)?),
            CommandId::SubmittedCopy => {
                Task::SubmittedCopy(typed.word("FOLDER").unwrap_or_default().into())
            }
            CommandId::Limit => Task::Limit(LimitArgs::of(typed)?),
            CommandId::Measure => match measured::of(typed)? {
                Some(at_store) => Task::Sweep(at_store),
                None => Task::Measure(Box::new(MeasureArgs::of(typed)?)),
            },
            CommandId::MeasureCodec => Task::MeasureCodec(CodecArgs::of(typed)?),
            CommandId::NetTest => Task::NetTest(Box::new(NetTestArgs::of(typed)?)),
            CommandId::ModelFit => Task::ModelFit(FitArgs::of(typed)?),
            CommandId::ModelShow => Task::ModelShow(ShowModelArgs::of(typed)?),
            CommandId::ModelPredict => Task::ModelPredict(Box::new(PredictArgs::of(typed)?)),
            CommandId::ResultsList => Task::ResultsList(ListArgs::of(typed)?),
            CommandId::ResultsShow => Task::ResultsShow(ShowRunsArgs::of(typed)?),
            CommandId::ResultsExport => Task::ResultsExport(ExportArgs::of(typed)?),
            CommandId::Explain => Task::Explain(ExplainArgs::of(typed)?),
            CommandId::Report => Task::Report(ReportArgs::of(typed)?),
            CommandId::Doctor => Task::Doctor(DoctorArgs::of(typed)?),
            CommandId::Sweep => Task::Sweep(SweepArgs::of(typed)?),
            CommandId::SweepShow => Task::SweepShow(ShowCampaignArgs::of(typed)?),
            CommandId::SweepCompare => Task::SweepCompare(CompareCampaignsArgs::of(typed)?),
            CommandId::SweepProfile => Task::SweepProfile(ProfileArgs::of(typed)?),
            CommandId::Spread => Task::Spread(Box::new(SpreadArgs::of(typed)?)),
            CommandId::SpreadStatus => Task::SpreadStatus(JobArgs::of(typed)?),
            CommandId::SpreadResume => Task::SpreadResume(ResumeArgs::of(typed)?),
            CommandId::SpreadCancel => Task::SpreadCancel(CancelArgs::of(typed)?),
            CommandId::SpreadReport => Task::SpreadReport(JobReportArgs::of(typed)?),
            CommandId::SpreadWork => Task::SpreadWork(WorkArgs::of(typed)?),
            CommandId::ConfigShow => Task::ConfigShow(ShowConfigArgs::of(typed)?),
            CommandId::Man => Task::Man(ManArgs::of(typed)?),
            CommandId::Complete => Task::Complete(typed.words(parser::LINE).to_vec()),
            CommandId::Completions => Task::Completions(shell(typed)?),
            CommandId::Peer => Task::Peer(peer(typed)?),
            CommandId::Probe => Task::Probe,
            CommandId::SpreadFar => Task::SpreadFar,
        })
    }
}

fn peer(typed: &Typed) -> Result<PeerOptions, String> {
    let options = PeerOptions {
        cpus: typed.value(&moving::CPUS)?,
        root: typed.value(&remote::ROOT)?,
        read_only: typed.has(&remote::READ_ONLY),
        write_only: typed.has(&remote::WRITE_ONLY),
        seal: typed.value(&remote::LEAST_SEAL)?,
    };
    options.restriction()?;
    Ok(options)
}

fn shell(typed: &Typed) -> Result<Shell, String> {
    let word = typed.word(parser::SHELL).unwrap_or_default();
    Shell::from_str(&word.to_string_lossy())
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt;
    use std::path::PathBuf;

    use super::*;
    use crate::cli::order::Order;
    use base::job::Location;

    fn parse(line: &str) -> Result<Args, Stop> {
        let words = line.split_whitespace().map(OsString::from);
        Args::parse(std::iter::once(OsString::from("datapump")).chain(words), &Outside::default())
    }

    fn copy(line: &str) -> CopyArgs {
        match parse(line) {
            Ok(Args { task: Task::Copy(copy), .. }) => *copy,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn sources_and_target() {
        let args = copy("copy -r a b/ host:c -s 8 --streams=2 --json");
        assert_eq!((args.sources, args.target), (vec!["a".into(), "b/".into()], "host:c".into()));
        let settings = args.order.job.settings;
        assert_eq!(settings.streams, 2, "the last one counts");
        assert!(settings.recursive && args.order.show.form == Form::Json);
    }

    /// As with cp and rsync, an option may stand anywhere before `--`.
    #[test]
    fn options_between_the_ends() {
        let lines = [
            "copy -r --json a b c",
            "copy a -r --json b c",
            "copy a b -r c --json",
            "copy a b --json c -r",
            "copy -r a --json b -- c",
        ];
        for line in lines {
            let args = copy(line);
            let ends = (args.sources, args.target);
            assert_eq!(ends, (vec!["a".into(), "b".into()], "c".into()), "{line}");
            let order = args.order;
            assert!(order.job.settings.recursive && order.show.form == Form::Json, "{line}");
        }
        let args = copy("copy a -s 2 --exclude x b -- -s");
        assert_eq!((args.sources, args.target), (vec!["a".into(), "b".into()], "-s".into()));
        assert_eq!(args.order.job.settings.streams, 2);
    }

    #[test]
    fn names_need_not_be_utf8() {
        let bad = OsString::from_vec(vec![b'a', 0xff]);
        let words = ["datapump", "copy", "--manifest"].map(OsString::from).into_iter();
        let words = words.chain([bad.clone(), bad.clone(), bad.clone()]);
        let parsed = Args::parse(words, &Outside::default());
        let Ok(Args { task: Task::Copy(args), .. }) = parsed else { panic!() };
        let Order { job, receipt, .. } = args.order;
        assert_eq!(receipt.map(|receipt| receipt.path), Some(PathBuf::from(bad.clone())));
        assert_eq!(job.sources, [Location::Path(PathBuf::from(bad.clone()))]);
        assert_eq!(job.target, Location::Path(PathBuf::from(bad)));
    }

    #[test]
    fn wrong_lines_are_told_what_to_write() {
        let cases = [
            ("", "no command; write 'datapump copy SRC DST'"),
            ("a host:b", "the command is missing; write: datapump copy a host:b"),
            ("-r a/ b/", "the command is missing; write: datapump copy -r a/ b/"),
            ("coyp a b", "unrecognized subcommand 'coyp'"),
            ("copy a", "copy needs a source and a destination"),
            ("copy -s 99 a b", "--streams '99': write a number from 1 to 64"),
            ("copy -s -1 a b", "--streams '-1': write a number from 1 to 64"),
            ("copy --sael off a b", "unexpected argument '--sael' found"),
            ("copy --seal none a b", "--seal 'none': write tls, auth or off"),
            ("peer --read-only", "a far side is limited to a folder first: add --root DIR"),
            ("peer --root d --read-only --write-only", "--read-only and --write-only exclude"),
            ("demo x", "unexpected argument 'x' found"),
            (
                "measure net far",
                "a net test is a command of its own now; write: datapump net-test far",
            ),
            (
                "measure net -R",
                "a net test is a command of its own now; write: datapump net-test -R",
            ),
            ("measure cpu -R", "a net test is a command of its own now: write datapump net-test"),
            ("measure net --request-sizes 5K", "--request-sizes '5K': write sizes such as 16K..1M"),
            ("results drop", "results 'drop': write list, show or export"),
            ("results", "results needs a word for what to do: write list, show or export"),
            ("model", "model needs a word for what to do: write fit, show or predict"),
            ("model predict a", "model predict needs a source and a destination"),
            ("model show a b", "unexpected argument 'b' found"),
            ("results --limit 2 show 1", "--limit is an option of results list, and results show"),
            ("measure --no-record cpu", "--no-record is an option of measure codec, and measure"),
            ("measure cpu codec", "'codec' cannot be measured: write cpu, disk-source"),
            ("sweep --what runs", "unexpected argument '--what' found"),
            ("sweep compare a", "compare needs two campaigns"),
            ("sweep shew", "sweep shew: write show, compare, profile or install"),
        ];
        for (line, expect) in cases {
            match parse(line) {
                Err(Stop::Wrong { text, .. }) => {
                    assert!(text.starts_with(expect), "{line}: {text}")
                }
                other => panic!("{line}: {other:?}"),
            }
        }
    }

    /// Words that are near to hidden commands too.
    #[test]
    fn no_suggestion_names_a_hidden_command() {
        let cases = [
            ("copi", "some similar subcommands exist: 'compare', 'config', 'completions', 'copy'"),
            ("kopy a b", "a similar subcommand exists: 'copy'"),
            ("complet", "some similar subcommands exist: 'copy', 'compare', 'completions'"),
            ("peers", ""),
            ("propes", ""),
        ];
        let tip = |line: &str| match parse(line) {
            Err(Stop::Wrong { text, .. }) => {
                text.split_once("tip: ").map(|(_, tip)| tip.to_string()).unwrap_or_default()
            }
            other => panic!("{line}: {other:?}"),
        };
        assert_eq!(cases.map(|(line, _)| (line, tip(line))), cases.map(|(l, tip)| (l, tip.into())));
    }

    /// Before an action was a command of its own, options could precede its word; they still can.
    #[test]
    fn options_in_front_of_the_word_of_a_command() {
        for line in ["results list --limit 3 1 2", "results --limit 3 list 1 2"] {
            assert!(matches!(parse(line), Ok(Args { task: Task::ResultsList(_), .. })), "{line}");
        }
        for line in ["sweep show --format csv", "sweep --format csv --results r show"] {
            assert!(matches!(parse(line), Ok(Args { task: Task::SweepShow(_), .. })), "{line}");
        }
        for line in ["measure codec --thorough a", "measure --json --thorough codec a"] {
            assert!(matches!(parse(line), Ok(Args { task: Task::MeasureCodec(_), .. })), "{line}");
        }
    }

    #[test]
    fn patterns_stay_in_order() {
        let args = copy("copy --exclude *.o --include=keep.o -r --exclude tmp/ a b");
        assert_eq!(args.order.job.settings.filters, ["*.o", "!keep.o", "tmp/"]);
    }

    #[test]
    fn json_is_known_even_when_the_rest_is_wrong() {
        assert!(matches!(parse("copy --json -s 0 a b"), Err(Stop::Wrong { json: true, .. })));
        assert!(matches!(parse("copy -s 0 a -- --json"), Err(Stop::Wrong { json: false, .. })));
        assert!(matches!(parse("copy --help"), Err(Stop::Help(_))));
    }
}
