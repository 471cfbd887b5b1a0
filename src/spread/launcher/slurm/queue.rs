//! What Slurm's clients print about jobs, as values.

use analysis::shards::overview::{QueueState, Queued};

/// One element of an array, or a job that is none, as `squeue` lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Listed {
    /// The job: of all elements of an array the same.
    pub(super) job: u64,
    pub(super) element: Option<u64>,
    pub(super) state: State,
    /// Why it waits, in Slurm's word.
    pub(super) reason: String,
    pub(super) nodes: String,
    /// Since it was started.
    pub(super) runs_s: Option<u64>,
}

/// The states of a job that differ for us.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum State {
    Pending,
    Running,
    /// It ends, or is on its way back into the queue.
    Completing,
    Completed,
    Failed,
    Cancelled,
    TimedOut,
    NodeFailed,
    Preempted,
    OutOfMemory,
    /// Held by Slurm after it failed.
    RequeuedAndHeld,
    /// Another, by its name.
    Other(String),
}

impl State {
    fn named(word: &str) -> State {
        match word {
            "PENDING" => State::Pending,
            "RUNNING" | "SUSPENDED" | "STOPPED" | "RESIZING" | "SIGNALING" => State::Running,
            "COMPLETING" | "CONFIGURING" | "REQUEUED" | "REQUEUE_FED" | "STAGE_OUT" => {
                State::Completing
            }
            "COMPLETED" => State::Completed,
            "FAILED" => State::Failed,
            "CANCELLED" => State::Cancelled,
            "TIMEOUT" => State::TimedOut,
            "NODE_FAIL" | "BOOT_FAIL" => State::NodeFailed,
            "PREEMPTED" => State::Preempted,
            "OUT_OF_MEMORY" => State::OutOfMemory,
            "REQUEUE_HOLD" | "SPECIAL_EXIT" => State::RequeuedAndHeld,
            other => State::Other(other.to_string()),
        }
    }
}

/// `--format` of `squeue`, which `listed` reads.
pub(super) const FORMAT: &str = "%F|%K|%T|%N|%M|%r";

/// Lines that are none of `FORMAT` are not ours, such as a site's notices.
pub(super) fn listed(text: &str) -> Vec<Listed> {
    text.lines().filter_map(line).collect()
}

fn line(line: &str) -> Option<Listed> {
    let mut fields = line.trim().splitn(6, '|');
    let job = fields.next()?.parse().ok()?;
    // `N/A` of a job that is no array.
    let element = fields.next()?;
    let element = match element.parse() {
        Ok(element) => Some(element),
        Err(_) if element == "N/A" => None,
        Err(_) => return None,
    };
    let state = State::named(fields.next()?);
    let nodes = fields.next()?.to_string();
    let runs_s = seconds(fields.next()?);
    // `%r` is without brackets, but what `%R` shows is not.
    let reason = fields.next()?.trim_matches(['(', ')']).to_string();
    Some(Listed { job, element, state, reason, nodes, runs_s })
}

/// Of `D-HH:MM:SS`, without what is zero at its beginning.
fn seconds(text: &str) -> Option<u64> {
    let (days, time) = text.split_once('-').unwrap_or(("0", text));
    let add = |sum: u64, part: &str| Some(sum * 60 + part.parse::<u64>().ok()?);
    let of_day = time.split(':').try_fold(0, add)?;
    Some(days.parse::<u64>().ok()? * 86_400 + of_day)
}

/// An element for those who look at the job: under the name of its process.
pub(super) fn told(listed: Listed, name: String) -> Queued {
    let state = match &listed.state {
        State::Pending | State::RequeuedAndHeld => QueueState::Pending,
        State::Running => QueueState::Running,
        State::Cancelled => QueueState::Cancelled,
        _ => QueueState::Other,
    };
    let why = match (meaning(&listed.reason), listed.reason.as_str()) {
        (Some(meaning), reason) => format!("{reason}: {meaning}"),
        (None, "None") => String::new(),
        (None, reason) => reason.to_string(),
    };
    Queued { name, state, why, node: listed.nodes, runs_s: listed.runs_s }
}

/// What `squeue` and `status` say of a job, beside Slurm's own word for it.
pub(super) fn meaning(reason: &str) -> Option<&'static str> {
    MEANINGS.iter().find(|(name, _)| *name == reason).map(|(_, meaning)| *meaning)
}

/// Of the reasons for which jobs wait, those that are met most. The guide has them too.
pub(super) const MEANINGS: &[(&str, &str)] = &[
    ("BeginTime", "Slurm lets what it puts back into the queue wait about two minutes"),
    ("Resources", "it waits until nodes are free"),
    ("Priority", "others are before it"),
    ("JobHeldUser", "its owner holds it: scontrol release"),
    ("JobHeldAdmin", "an administrator holds it: ask them"),
    ("Dependency", "it waits for another job"),
    ("PartitionDown", "the partition is down"),
    ("PartitionTimeLimit", "--time-limit is longer than the partition allows"),
    ("ReqNodeNotAvail", "the nodes that it may have are down or reserved"),
    ("QOSMaxJobsPerUserLimit", "you have as many jobs as the QOS allows"),
    ("AssocGrpJobsLimit", "the account has as many jobs as it may have"),
];

/// More of one element, as `scontrol show job --oneliner` prints it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Detail {
    pub(super) exit_code: u8,
    pub(super) exit_signal: u8,
    /// How often it was started again.
    pub(super) restarts: u32,
}

pub(super) fn detail(text: &str) -> Option<Detail> {
    // Fields that a user can choose come with blanks in them, so ours are searched for as words
    // that are followed by numbers; those of a name come later in the line than those here.
    let field = |name: &str| text.split_whitespace().find_map(|word| word.strip_prefix(name));
    let (code, signal) = field("ExitCode=")?.split_once(':')?;
    Some(Detail {
        exit_code: code.parse().ok()?,
        exit_signal: signal.parse().ok()?,
        restarts: field("Restarts=").and_then(|count| count.parse().ok()).unwrap_or(0),
    })
}

/// The number of the job that `sbatch --parsable` prints, before the cluster's name and after what
/// a site prints.
pub(super) fn submitted(text: &str) -> Option<u64> {
    let lines = text.lines().rev().map(str::trim);
    lines.filter_map(|line| line.split(';').next()?.parse().ok()).next()
}

/// How many elements an array may have: `MaxArraySize` of `scontrol show config` is one more than
/// the greatest index.
pub(super) fn array_elements_max(config: &str) -> Option<usize> {
    let line = config.lines().find_map(|line| line.strip_prefix("MaxArraySize"))?;
    line.trim().strip_prefix('=')?.trim().parse().ok()
}

/// Nodes that could run something, and the CPUs of the smallest, of `sinfo --format "%D|%c|%T"`.
pub(super) fn nodes(text: &str) -> (usize, Option<u32>) {
    let fields = text.lines().filter_map(|line| {
        let mut fields = line.trim().split('|');
        let count: usize = fields.next()?.parse().ok()?;
        // `8+` where nodes differ.
        let cpus: u32 = fields.next()?.trim_end_matches('+').parse().ok()?;
        // `*`: does not respond; `~`, `#`: powered off, or starting.
        let state = fields.next()?;
        let usable = ["idle", "mixed", "allocated", "completing"];
        let is_usable = !state.ends_with('*') && usable.iter().any(|word| state.starts_with(word));
        is_usable.then_some((count, cpus))
    });
    fields.fold((0, None), |(nodes, least), (count, cpus)| {
        (nodes + count, Some(least.map_or(cpus, |least: u32| least.min(cpus))))
    })
}

/// What to say where none of the listed partitions is one that is wanted.
pub(super) fn missing_partition(text: &str, wanted: &str) -> Option<String> {
    let mut there: Vec<&str> = text.lines().map(str::trim).filter(|of| !of.is_empty()).collect();
    there.sort_unstable();
    there.dedup();
    let missing = wanted.split(',').find(|of| !there.contains(of))?;
    (!there.is_empty())
        .then(|| format!("Slurm has no partition '{missing}': there are {}", there.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_that_is_not_there() {
        let listed = "dtn\nurgent\ndtn\n";
        assert_eq!(missing_partition(listed, "urgent,dtn"), None);
        assert_eq!(missing_partition("", "dtn"), None, "nothing is known");
        let text = missing_partition(listed, "dtn,nope").unwrap();
        assert_eq!(text, "Slurm has no partition 'nope': there are dtn, urgent");
    }

    #[test]
    fn a_listing_is_read() {
        let text = "srun: notice\n12|0|RUNNING|c1|0:00|None\n12|1|PENDING||0:00|BeginTime\n\
                    12|2|PENDING||0:00|launch failed requeued held\n\
                    13|N/A|COMPLETING|c[1-2]|0:00|None\n12|3-9|PENDING||0:00|Resources\n\
                    12|4|REVOKED||0:00|\n";
        let of = |element: Option<u64>, state, nodes: &str, reason: &str| Listed {
            job: if element.is_some() { 12 } else { 13 },
            element,
            state,
            reason: reason.into(),
            nodes: nodes.into(),
            runs_s: Some(0),
        };
        let expected = vec![
            of(Some(0), State::Running, "c1", "None"),
            of(Some(1), State::Pending, "", "BeginTime"),
            of(Some(2), State::Pending, "", "launch failed requeued held"),
            of(None, State::Completing, "c[1-2]", "None"),
            of(Some(4), State::Other("REVOKED".into()), "", ""),
        ];
        assert_eq!(listed(text), expected);
        assert_eq!(listed(""), vec![]);
    }

    #[test]
    fn times_are_read() {
        for (text, expect) in [
            ("0:07", Some(7)),
            ("12:03", Some(723)),
            ("1:00:00", Some(3600)),
            ("2-01:00:01", Some(176_401)),
            ("INVALID", None),
            ("", None),
        ] {
            assert_eq!(seconds(text), expect, "{text}");
        }
    }

    /// Whoever reads the guide finds each reason that the program explains.
    #[test]
    fn the_guide_has_the_reasons() {
        let guide = include_str!("../../../../docs/guide/slurm.md");
        for (reason, _) in MEANINGS {
            assert!(guide.contains(&format!("`{reason}`")), "{reason}");
        }
    }

    #[test]
    fn details_are_read() {
        let text = "JobId=14 ArrayJobId=12 ArrayTaskId=1 JobName=datapump-spread UserId=root(0) \
                    JobState=FAILED Reason=NonZeroExitCode Dependency=(null) Requeue=1 Restarts=2 \
                    BatchFlag=1 Reboot=0 ExitCode=3:9 RunTime=00:00:01 Comment=ExitCode=0:0";
        let expected = Detail { exit_code: 3, exit_signal: 9, restarts: 2 };
        assert_eq!(detail(text), Some(expected));
        for text in ["", "slurm_load_jobs error: Invalid job id specified", "ExitCode=x:0"] {
            assert_eq!(detail(text), None, "{text}");
        }
    }

    #[test]
    fn the_number_of_a_job_is_read() {
        for (text, job) in [
            ("123\n", Some(123)),
            ("123;cluster\n", Some(123)),
            ("Welcome\n-- 9 messages\n123\n", Some(123)),
            ("", None),
            ("Submitted batch job\n", None),
        ] {
            assert_eq!(submitted(text), job, "{text:?}");
        }
    }

    #[test]
    fn the_site_is_read() {
        let config =
            "MaxArrayTasks           = 7\nMaxArraySize            = 1001\nMaxJobCount = 5\n";
        assert_eq!(array_elements_max(config), Some(1001));
        assert_eq!(array_elements_max("Slurmctld(primary) at ctl is DOWN"), None);
        assert_eq!(
            nodes("2|16|idle\n1|8+|mixed\n3|4|down*\n1|2|idle*\n1|2|drained\n"),
            (3, Some(8))
        );
        assert_eq!(nodes(""), (0, None));
    }
}
