//! The text that `sbatch` is given: an array whose elements are workers. Of all that a user names,
//! only the program and the job folder come into it, each in quotes, and options of a known form.

use std::path::Path;

use base::fault::Fault;
use serde::{Deserialize, Serialize};

/// What a site asks of a job, as the user gives it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    pub partition: Option<String>,
    pub account: Option<String>,
    pub qos: Option<String>,
    /// As Slurm takes it: `8:00:00`.
    pub time_limit: Option<String>,
    /// How many workers, where that is given.
    pub workers: Option<usize>,
    /// Other options of `sbatch`, by their long names: `constraint=dtn`.
    pub extra: Vec<String>,
}

/// What an element of an array executes.
#[derive(Clone, Copy, Debug)]
pub struct Element<'a> {
    pub program: &'a Path,
    pub job_folder: &'a Path,
    /// CPUs that a worker is given, where that is known.
    pub cpus: Option<u32>,
}

/// The script for so many workers.
pub fn array(request: &Request, element: &Element<'_>, workers: usize) -> Result<String, Fault> {
    let job_folder = text_of(element.job_folder)?;
    let program = text_of(element.program)?;
    let last = workers.saturating_sub(1);
    let mut own = vec![
        "job-name=datapump-spread".to_string(),
        format!("array=0-{last}"),
        "nodes=1".to_string(),
        "ntasks=1".to_string(),
    ];
    own.extend(element.cpus.map(|cpus| format!("cpus-per-task={cpus}")));
    own.push(format!("output=\"{}/{LOGS}/slurm-%A-%a.txt\"", in_pattern(job_folder)?));
    let program = quoted(program);
    let job_folder = quoted(job_folder);
    let command = format!("{program} spread work {job_folder} --worker \\\n  \"{NAME}\"");
    script(request, own, &command)
}

/// The script of one copy, whose words stand in files of a folder: what they are never comes here.
pub fn copy(request: &Request, program: &Path, folder: &Path) -> Result<String, Fault> {
    let (program, folder) = (text_of(program)?, text_of(folder)?);
    let own = vec![
        "job-name=datapump-copy".to_string(),
        // An array of one, which is followed as one of many is.
        "array=0-0".to_string(),
        "nodes=1".to_string(),
        "ntasks=1".to_string(),
        format!("output=\"{}/log.txt\"", in_pattern(folder)?),
    ];
    let command = format!("{} submitted-copy {}", quoted(program), quoted(folder));
    script(request, own, &command)
}

/// The folder of the job folder that has what workers print.
pub const LOGS: &str = "logs";
const NAME: &str = "slurm-$SLURM_ARRAY_JOB_ID-$SLURM_ARRAY_TASK_ID";

/// What `NAME` is in an element of a job.
pub(super) fn process_name((job, element): (u64, u64)) -> String {
    format!("slurm-{job}-{element}")
}

/// How long before its time limit a worker is told to stop.
const WARNING_S: u32 = 60;

fn script(request: &Request, own: Vec<String>, command: &str) -> Result<String, Fault> {
    let mut lines = own;
    lines.extend(["requeue", "open-mode=append", "export=NONE"].into_iter().map(str::to_string));
    // To the process that the script becomes: `B:` is the batch step.
    lines.push(format!("signal=B:TERM@{WARNING_S}"));
    let given = [
        ("partition", &request.partition),
        ("account", &request.account),
        ("qos", &request.qos),
        ("time", &request.time_limit),
    ];
    for (name, value) in given {
        lines.extend(value.as_ref().map(|value| format!("{name}={value}")));
    }
    for line in &lines[lines.len() - given.iter().filter(|(_, value)| value.is_some()).count()..] {
        plain(line)?;
    }
    for line in &request.extra {
        lines.push(extra(line)?);
    }
    let mut text = "#!/bin/sh\n".to_string();
    for line in lines {
        text.push_str(&format!("#SBATCH --{line}\n"));
    }
    text.push_str(&format!("exec {command}\n"));
    Ok(text)
}

/// One option of `sbatch`, without its dashes.
fn extra(line: &str) -> Result<String, Fault> {
    let option = line.trim().trim_start_matches("--");
    plain(option)?;
    let name = option.split_once('=').map_or(option, |(name, _)| name);
    let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if name.is_empty() || name.starts_with('-') || !name.chars().all(is_name) {
        return Err(Fault::usage(format!(
            "--sbatch '{line}': write a long option of sbatch and its value: constraint=dtn"
        )));
    }
    match OURS.iter().find(|(ours, _)| *ours == name) {
        Some((_, why)) => Err(Fault::usage(format!("--sbatch '{line}': {why}"))),
        None => Ok(option.to_string()),
    }
}

/// Options that must be as we give them, and why.
const OURS: &[(&str, &str)] = &[
    ("array", "elements of the array are workers: --workers says how many"),
    ("export", "no variable of your environment goes to a node, as it may be a secret"),
    ("export-file", "no variable of your environment goes to a node, as it may be a secret"),
    ("get-user-env", "the environment of a worker is that of a login on its node"),
    ("no-requeue", "a worker whose node is lost is started again"),
    ("open-mode", "a worker that is started again adds to its log"),
    ("output", "what workers print is kept in the job folder"),
    ("error", "what workers print is kept in the job folder"),
    ("signal", "workers are told to stop a minute before their time limit"),
    ("wait", "the command waits by itself"),
    ("wrap", "the script is ours"),
];

/// Option values have no blanks, quotes or control characters, which the script could take for
/// something else.
fn plain(option: &str) -> Result<(), Fault> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_=.,:/+@%&|*()[]^~".contains(c);
    match option.chars().find(|c| !is_plain(*c)) {
        None => Ok(()),
        Some(c) => Err(Fault::usage(format!(
            "the option of Slurm '{}' has the character {c:?}, which is not passed on",
            option.escape_debug()
        ))),
    }
}

fn text_of(path: &Path) -> Result<&str, Fault> {
    let text = path.to_str().filter(|text| text.starts_with('/'));
    text.ok_or_else(|| {
        Fault::usage(format!(
            "Slurm needs an absolute path in UTF-8: '{}' is none",
            path.display().to_string().escape_debug()
        ))
    })
}

/// In quotes of the shell: nothing between them has a meaning.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// A folder in the name of a file that Slurm opens. It has replacements (`%j`) and quotes of its
/// own, so what could be taken for one is refused.
fn in_pattern(folder: &str) -> Result<&str, Fault> {
    match folder.chars().find(|c| c.is_control() || "\"'\\%#".contains(*c)) {
        None => Ok(folder),
        Some(c) => Err(Fault::usage(format!(
            "Slurm cannot write to a folder whose path has the character {c:?}: '{}': choose \
             another by --job",
            folder.escape_debug()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn element<'a>(folder: &'a str) -> Element<'a> {
        let program = Path::new("/opt/data pump/datapump");
        Element { program, job_folder: Path::new(folder), cpus: Some(5) }
    }

    #[test]
    fn the_script_of_an_array() {
        let request = Request {
            partition: Some("dtn".into()),
            account: Some("phys-1".into()),
            qos: None,
            time_limit: Some("1-08:00:00".into()),
            workers: None,
            extra: vec!["--constraint=dtn&ib".into(), "exclusive".into()],
        };
        insta::assert_snapshot!(array(&request, &element("/shared/my job"), 3).unwrap(), @r#"
        #!/bin/sh
        #SBATCH --job-name=datapump-spread
        #SBATCH --array=0-2
        #SBATCH --nodes=1
        #SBATCH --ntasks=1
        #SBATCH --cpus-per-task=5
        #SBATCH --output="/shared/my job/logs/slurm-%A-%a.txt"
        #SBATCH --requeue
        #SBATCH --open-mode=append
        #SBATCH --export=NONE
        #SBATCH --signal=B:TERM@60
        #SBATCH --partition=dtn
        #SBATCH --account=phys-1
        #SBATCH --time=1-08:00:00
        #SBATCH --constraint=dtn&ib
        #SBATCH --exclusive
        exec '/opt/data pump/datapump' spread work '/shared/my job' --worker \
          "slurm-$SLURM_ARRAY_JOB_ID-$SLURM_ARRAY_TASK_ID"
        "#);
    }

    #[test]
    fn the_script_of_a_copy() {
        let program = Path::new("/bin/datapump");
        let text = copy(&Request::default(), program, Path::new("/shared/copy-1")).unwrap();
        assert!(
            text.ends_with("\nexec '/bin/datapump' submitted-copy '/shared/copy-1'\n"),
            "{text}"
        );
        assert!(text.contains("#SBATCH --output=\"/shared/copy-1/log.txt\"\n"), "{text}");
        assert!(text.contains("#SBATCH --array=0-0\n"), "{text}");
    }

    /// Whatever is between quotes of the shell stays between them.
    #[test]
    fn quotes_hold() {
        assert_eq!(quoted("a b"), "'a b'");
        assert_eq!(quoted("it's $(rm)\n"), "'it'\\''s $(rm)\n'");
    }

    #[test]
    fn what_could_be_taken_for_something_else_is_refused() {
        let folders = ["/a\"b", "/a'b", "/a\nb", "/a%jb", "/a\\b", "/a#b", "relative", "/a\tb"];
        for folder in folders {
            let made = array(&Request::default(), &element(folder), 1);
            assert_eq!(
                made.map_err(|fault| fault.class),
                Err(base::fault::Class::Usage),
                "{folder}"
            );
        }
        let extras = [
            "export=ALL",
            "--export=AWS_SECRET_ACCESS_KEY",
            "array=0-9",
            "",
            "=x",
            "-p dtn",
            "p dtn",
            "comment=a\nb",
            "comment='a'",
            "comment=\"a b\"",
            "comment=`id`",
            "comment=$(id)",
            "no-requeue",
            "wrap=id",
            "Constraint=x",
        ];
        for line in extras {
            let request = Request { extra: vec![line.into()], ..Request::default() };
            assert!(array(&request, &element("/a"), 1).is_err(), "{line}");
        }
        let request =
            Request { partition: Some("dtn\n#SBATCH --uid=0".into()), ..Request::default() };
        assert!(array(&request, &element("/a"), 1).is_err());
    }
}
