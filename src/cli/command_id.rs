//! Every command that can be typed, as one row of one table: its words, and what it is for.

/// A command: a leaf of the command tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum CommandId {
    Copy,
    Demo,
    Verify,
    Compare,
    Ls,
    Clean,
    Submit,
    Queue,
    Limit,
    Measure,
    MeasureCodec,
    NetTest,
    ModelFit,
    ModelShow,
    ModelPredict,
    ResultsList,
    ResultsShow,
    ResultsExport,
    Explain,
    Report,
    Doctor,
    Sweep,
    SweepShow,
    SweepCompare,
    SweepProfile,
    Spread,
    SpreadStatus,
    SpreadResume,
    SpreadCancel,
    SpreadReport,
    SpreadWork,
    ConfigShow,
    Man,
    Completions,
    Complete,
    Peer,
    Probe,
    SpreadFar,
    SubmittedCopy,
}

/// One branch at the top of the command tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Branch {
    Command(CommandId),
    Group(&'static Group),
}

/// Commands that have their first word in common.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Group {
    pub name: &'static str,
    pub about: &'static str,
    /// The command of the first word alone, if there is one.
    pub alone: Option<CommandId>,
    pub commands: &'static [CommandId],
    /// What else may follow: a word of the command alone, which `--help` lists among the commands.
    pub words: &'static [(&'static str, &'static str)],
}

/// The command tree, in the order of `--help`.
pub(crate) const TREE: &[Branch] = &[
    Branch::Command(CommandId::Copy),
    Branch::Command(CommandId::Demo),
    Branch::Command(CommandId::Verify),
    Branch::Command(CommandId::Compare),
    Branch::Command(CommandId::Ls),
    Branch::Command(CommandId::Clean),
    Branch::Command(CommandId::Submit),
    Branch::Command(CommandId::Queue),
    Branch::Command(CommandId::Limit),
    Branch::Group(&Group {
        name: "measure",
        about: CommandId::Measure.about(),
        alone: Some(CommandId::Measure),
        commands: &[CommandId::MeasureCodec],
        words: &[],
    }),
    Branch::Command(CommandId::NetTest),
    Branch::Group(&Group {
        name: "model",
        about: "Fit, show and use the cost model of a host",
        alone: None,
        commands: &[CommandId::ModelFit, CommandId::ModelShow, CommandId::ModelPredict],
        words: &[],
    }),
    Branch::Group(&Group {
        name: "results",
        about: "List, show and export the recorded runs",
        alone: None,
        commands: &[CommandId::ResultsList, CommandId::ResultsShow, CommandId::ResultsExport],
        words: &[],
    }),
    Branch::Command(CommandId::Explain),
    Branch::Command(CommandId::Report),
    Branch::Command(CommandId::Doctor),
    Branch::Group(&Group {
        name: "sweep",
        about: CommandId::Sweep.about(),
        alone: Some(CommandId::Sweep),
        commands: &[CommandId::SweepShow, CommandId::SweepCompare, CommandId::SweepProfile],
        words: &[(
            "install",
            "Write a service and a timer of systemd that measure a campaign regularly",
        )],
    }),
    Branch::Group(&Group {
        name: "spread",
        about: CommandId::Spread.about(),
        alone: Some(CommandId::Spread),
        commands: &[
            CommandId::SpreadStatus,
            CommandId::SpreadResume,
            CommandId::SpreadCancel,
            CommandId::SpreadReport,
            CommandId::SpreadWork,
        ],
        words: &[],
    }),
    Branch::Group(&Group {
        name: "config",
        about: CommandId::ConfigShow.about(),
        alone: None,
        commands: &[CommandId::ConfigShow],
        words: &[],
    }),
    Branch::Command(CommandId::Man),
    Branch::Command(CommandId::Completions),
    Branch::Command(CommandId::Complete),
    Branch::Command(CommandId::Peer),
    Branch::Command(CommandId::Probe),
    Branch::Command(CommandId::SpreadFar),
    Branch::Command(CommandId::SubmittedCopy),
];

impl CommandId {
    /// Every command.
    pub(super) fn all() -> impl Iterator<Item = CommandId> {
        TREE.iter().flat_map(|branch| branch.commands())
    }

    /// The command as it is typed: `model fit`.
    pub(super) fn typed(self) -> String {
        match self.group() {
            Some(group) if group.alone != Some(self) => format!("{} {}", group.name, self.name()),
            _ => self.name().to_string(),
        }
    }

    /// `model` of `model fit`.
    pub(crate) fn first_word(self) -> &'static str {
        self.group().map_or(self.name(), |group| group.name)
    }

    /// Its last word.
    pub(super) fn name(self) -> &'static str {
        match self {
            CommandId::Copy => "copy",
            CommandId::Demo => "demo",
            CommandId::Verify => "verify",
            CommandId::Compare | CommandId::SweepCompare => "compare",
            CommandId::Ls => "ls",
            CommandId::Clean => "clean",
            CommandId::Submit => "submit",
            CommandId::Queue => "queue",
            CommandId::Limit => "limit",
            CommandId::Measure => "measure",
            CommandId::MeasureCodec => "codec",
            CommandId::NetTest => "net-test",
            CommandId::ModelFit => "fit",
            CommandId::ModelShow
            | CommandId::ResultsShow
            | CommandId::SweepShow
            | CommandId::ConfigShow => "show",
            CommandId::ModelPredict => "predict",
            CommandId::ResultsList => "list",
            CommandId::ResultsExport => "export",
            CommandId::Explain => "explain",
            CommandId::Report => "report",
            CommandId::Doctor => "doctor",
            CommandId::Sweep => "sweep",
            CommandId::SweepProfile => "profile",
            CommandId::Spread => "spread",
            CommandId::SpreadStatus => "status",
            CommandId::SpreadResume => "resume",
            CommandId::SpreadCancel => "cancel",
            CommandId::SpreadReport => "report",
            CommandId::SpreadWork => "work",
            CommandId::Man => "man",
            CommandId::Completions => "completions",
            CommandId::Complete => "complete",
            CommandId::Peer => "peer",
            CommandId::Probe => "probe",
            CommandId::SpreadFar => "spread-far",
            CommandId::SubmittedCopy => "submitted-copy",
        }
    }

    pub(super) const fn about(self) -> &'static str {
        match self {
            CommandId::Copy => {
                "Copy files, folders and streams between this host and another, or on this host"
            }
            CommandId::Demo => {
                "Demonstrate it on this host alone: make data, copy it encrypted, verify, clean up"
            }
            CommandId::Compare => "Say how two trees differ, here, at another host or in a store",
            CommandId::Ls => "List a folder: here, at another host, or in a store",
            CommandId::Verify => "Re-read files and compare them with a receipt (copy --manifest)",
            CommandId::Clean => {
                "Remove what abandoned copies have left below a folder, or in an object store"
            }
            CommandId::Submit => "Make one copy a job of Slurm, and follow it to its end",
            CommandId::Queue => "List the submitted copies, and start again what was interrupted",
            CommandId::Limit => "Show the copies that run here, or change the rate of one of them",
            CommandId::Measure => "Measure what a byte costs: parts alone, then their compositions",
            CommandId::MeasureCodec => {
                "Measure what compression costs and gains on this host, with data of each kind"
            }
            CommandId::NetTest => {
                "Test the path to a host: rate, retransmissions and round trip of every interval"
            }
            CommandId::ModelFit => "Fit the cost model to the runs of an experiment, or to a table",
            CommandId::ModelShow => "Show the cost model of a host",
            CommandId::ModelPredict => "Predict the time of a copy, without copying",
            CommandId::ResultsList => "List the newest runs, with rate and CPU time per byte",
            CommandId::ResultsShow => "Show the details of a run",
            CommandId::ResultsExport => "Write runs as CSV, JSON or Parquet",
            CommandId::Explain => {
                "Show the bottleneck of a recorded run, the evidence, and what to change"
            }
            CommandId::Report => {
                "Write a web page with charts: of a run, a campaign, a host, or of hosts over time"
            }
            CommandId::Doctor => {
                "Find what would slow copies down: on this host, on another and between them"
            }
            CommandId::Sweep => {
                "Try windows, streams and levels on many hosts, repeatedly, and report the best"
            }
            CommandId::SweepShow => "Show a campaign: medians, and the best setting of each host",
            CommandId::SweepCompare => "Compare two campaigns, cell by cell",
            CommandId::SweepProfile => {
                "Save the best setting of each host as a profile for copy --profile"
            }
            CommandId::Spread => {
                "Copy a dataset by many nodes: workers claim shards from a folder that they share"
            }
            CommandId::SpreadStatus => "Show how a job stands: shards, bytes, and each worker",
            CommandId::SpreadResume => "Continue a job, or take over one whose coordinator is gone",
            CommandId::SpreadCancel => "Stop a job's workers; 'spread resume' continues it",
            CommandId::SpreadReport => {
                "Show what each worker of a job did, what held it back, and who was slow"
            }
            CommandId::SpreadWork => "A worker of a job over many nodes; internal",
            CommandId::ConfigShow => {
                "Show the options of a copy that are set without typing them, and where"
            }
            CommandId::Peer => "The far side of a copy, started over ssh; internal",
            CommandId::Probe => "The host probe: reads counters during a measurement; internal",
            CommandId::SpreadFar => "The far end of a spread, started over ssh; internal",
            CommandId::SubmittedCopy => "Runs a submitted copy, started by Slurm; internal",
            CommandId::Man => "Print the man page of the program, or of a command",
            CommandId::Completions => "Print a shell's completions",
            CommandId::Complete => "The candidates that a shell's completion asks for; internal",
        }
    }

    /// Commands that only datapump itself starts, mostly on the other host.
    pub(crate) fn is_hidden(self) -> bool {
        matches!(
            self,
            CommandId::Complete
                | CommandId::Peer
                | CommandId::Probe
                | CommandId::SpreadFar
                | CommandId::SpreadWork
                | CommandId::SubmittedCopy
        )
    }

    fn group(self) -> Option<&'static Group> {
        TREE.iter().find_map(|branch| match branch {
            Branch::Group(group) if branch.commands().any(|command| command == self) => {
                Some(*group)
            }
            _ => None,
        })
    }
}

impl Branch {
    /// The first word of its commands.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Branch::Command(command) => command.name(),
            Branch::Group(group) => group.name,
        }
    }

    pub(super) fn commands(&self) -> impl Iterator<Item = CommandId> + use<> {
        let (first, others) = match *self {
            Branch::Command(command) => (Some(command), [].as_slice()),
            Branch::Group(group) => (group.alone, group.commands),
        };
        first.into_iter().chain(others.iter().copied())
    }
}

/// The branch that begins with this word.
pub(crate) fn branch(name: &str) -> Option<&'static Branch> {
    TREE.iter().find(|branch| branch.name() == name)
}
