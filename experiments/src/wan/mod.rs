//! `cargo xtask wan`: an emulated WAN, for people. The WAN itself is the crate `wan`.

mod cases;
mod conditions;
mod control;
pub(crate) mod selftest;
mod shown;

use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use ::wan::{KINDS, Profile, Rivals, RunningRivals, Schedule};

use control::{Request, Status};
use xtask::packages;
use xtask::step::target_folder;

pub(crate) fn wan(words: &[&str]) -> Result<(), String> {
    // Words after `--` belong to another program.
    let end = words.iter().position(|word| *word == "--").unwrap_or(words.len());
    let (words, command) = words.split_at(end);
    let mut words = words.to_vec();
    let name = take_name(&mut words)?;
    match words.as_slice() {
        ["up", profile @ ..] => up(&name, profile),
        ["serve", profile @ ..] => control::serve(&name, &Profile::from_words(profile)?),
        ["set", change @ ..] => set(&name, change),
        ["cut"] => tell(&name, &Request::Cut(None)),
        ["cut", seconds] => tell(&name, &Request::Cut(Some(duration(seconds)?))),
        ["mend"] => tell(&name, &Request::Mend),
        ["status"] => tell(&name, &Request::Status),
        ["down"] => tell(&name, &Request::Down),
        ["run"] => run(&name, command, false),
        ["run", "--far"] => run(&name, command, true),
        ["rivals", kinds @ ..] => rivals(&name, kinds),
        ["test", "conditions", options @ ..] => conditions::test(options),
        ["test", options @ ..] => {
            packages::ensure(packages::FOR_WAN)?;
            selftest::test(options)
        }
        [] => Err(USAGE.to_string()),
        [first, ..] => Err(format!("wan {first} is not understood so:\n{USAGE}")),
    }
}

/// Starts the process that owns the WAN, and returns when it is up.
fn up(name: &str, profile: &[&str]) -> Result<(), String> {
    // An invalid profile is refused before anything is installed or started.
    Profile::from_words(profile)?;
    packages::ensure(packages::FOR_WAN)?;
    if control::ask(name, &Request::Status).is_ok() {
        return Err(format!(
            "a WAN named {name} is up already: cargo xtask wan down --name {name}"
        ));
    }
    let log = control::log_of(name)?;
    let told = |why: std::io::Error| format!("the WAN's process: {why}");
    let mut serve = Command::new(std::env::current_exe().map_err(told)?);
    serve.args(["wan", "serve", "--name", name]).args(profile);
    serve.stdin(Stdio::null()).stdout(Stdio::piped());
    serve.stderr(File::create(&log).map_err(told)?);
    let mut serve = serve.spawn().map_err(told)?;
    let mut said = String::new();
    if let Some(pipe) = serve.stdout.take() {
        BufReader::new(pipe).read_line(&mut said).map_err(told)?;
    }
    if said.trim() != control::UP {
        serve.wait().ok();
        let words = std::fs::read_to_string(&log).unwrap_or_default();
        return Err(format!("the WAN does not come up: {}", words.trim()));
    }
    let status = control::ask(name, &Request::Status)?;
    println!("\n{}", shown::status(name, &status));
    println!("\n{}", shown::example(name, &status, &program()));
    Ok(())
}

fn set(name: &str, words: &[&str]) -> Result<(), String> {
    Schedule::from_words(words)?;
    let words = words.iter().map(ToString::to_string).collect();
    tell(name, &Request::Set(words))
}

/// Sends a request, and prints the status after it.
fn tell(name: &str, request: &Request) -> Result<(), String> {
    let status = control::ask(name, request)?;
    println!("{}", shown::status(name, &status));
    Ok(())
}

/// Runs other flows on the path for their time, and prints what they got.
fn rivals(name: &str, words: &[&str]) -> Result<(), String> {
    let all: Vec<Rivals> =
        words.iter().map(|word| Rivals::from_word(word)).collect::<Result<_, _>>()?;
    if all.is_empty() {
        return Err(format!("name them: cargo xtask wan rivals 4xcubic,for=30s ({KINDS})"));
    }
    if let Some(endless) = all.iter().find(|rivals| rivals.time.is_none()) {
        return Err(format!("rivals {endless}: say for how long: {endless},for=30s"));
    }
    let Status { access, .. } = control::ask(name, &Request::Status)?;
    let open = |path: &Path| File::open(path).map_err(|why| format!("{}: {why}", path.display()));
    let (near, far) = (open(&access.near)?, open(&access.far)?);
    let running: Vec<RunningRivals> = all
        .iter()
        .map(|rivals| RunningRivals::start(&near, &far, rivals))
        .collect::<Result<_, _>>()?;
    let outcomes: Vec<_> =
        all.into_iter().zip(running.into_iter().map(RunningRivals::wait)).collect();
    println!("{}", shown::outcomes(&outcomes));
    Ok(())
}

/// Replaces this process by the command, on one of the hosts.
fn run(name: &str, command: &[&str], far: bool) -> Result<(), String> {
    let [_, program, arguments @ ..] = command else {
        return Err("name what to run: cargo xtask wan run [--far] -- COMMAND".to_string());
    };
    let Status { access, .. } = control::ask(name, &Request::Status)?;
    let path = if far { access.far } else { access.near };
    let namespace = File::open(&path).map_err(|why| format!("{}: {why}", path.display()))?;
    ::wan::enter_myself(&namespace)
        .map_err(|why| format!("the namespace cannot be entered: {why}"))?;
    let why = Command::new(program).args(arguments).exec();
    Err(format!("{program}: {why}"))
}

/// The last build of `datapump`.
pub(crate) fn program() -> Option<PathBuf> {
    let built = ["release", "debug"].map(|kind| target_folder().join(kind).join("datapump"));
    let time = |path: &Path| path.metadata().and_then(|metadata| metadata.modified()).ok();
    built.into_iter().filter(|path| path.exists()).max_by_key(|path| time(path))
}

/// `--name NAME`, anywhere in the words.
fn take_name(words: &mut Vec<&str>) -> Result<String, String> {
    let Some(at) = words.iter().position(|word| *word == "--name") else {
        return Ok("wan".to_string());
    };
    let name = *words.get(at + 1).ok_or("--name needs a name")?;
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if name.is_empty()
        || !name.chars().all(is_plain)
        || Path::new(name).file_name() != Some(OsStr::new(name))
    {
        return Err(format!("--name {name}: letters, digits, - and _ only"));
    }
    words.drain(at..at + 2);
    Ok(name.to_string())
}

fn duration(seconds: &str) -> Result<f64, String> {
    let number = seconds.strip_suffix('s').unwrap_or(seconds).parse::<f64>().ok();
    let number = number.filter(|number| (0.0..=86_400.0).contains(number));
    number.ok_or_else(|| format!("cut {seconds}: write seconds, as 2 or 0.5"))
}

const USAGE: &str = "\
cargo xtask wan COMMAND [--name NAME]
  up [--rate 100Mbit] [--rtt 10ms] [--queue 64K|1bdp] [--aqm fq_codel|fq_codel-ecn]
     [--policer 20Mbit,64K] [--loss 0.1%|1%,8] [--reorder 1%,10ms] [--jitter 1ms] [--seed N]
     [--rate-back R] [--delay-back T] [--queue-back Q] [--aqm-back A] [--policer-back P]
     [--loss-back L] [--reorder-back R] [--jitter-back T] [--sysctl KEY=VALUE]... [--pcap FILE]
                         near (10.77.0.1) and far (10.77.0.2), joined by a link of this kind, at
                         most 1Gbit
  up --rate none         joined by a veth pair, as fast as the kernel is; --veth --rate 10Gbit puts
                         token buckets before it; neither has anything else of a link
  set [--rate …] [--rtt …] [--queue …] …
                         changes the path while it is in use
  set [--rate …] --at 10s --rate … --at 20s --rate …
                         the same at times that count from now
  rivals [COUNTx]KIND,for=30s[,at=5s][,back]...
                         other flows on the path, and what they got: cubic, bbr or reno all the
                         time; on-off,on=2s,off=2s; short,size=64K,every=250ms
  cut [SECONDS]          nothing arrives, for this time or until it is mended
  mend                   ends a cut
  run [--far] -- COMMAND on the near host, or the far one
  status                 what it is, and what its packets met
  test [--quick]         rate, delay, loss and CPU of several links against iperf3 and ping
  test conditions [--only NAME] [--criteria]
                         rivals, policers, AQM, reordering, runs of losses and changes against
                         iperf3 and ping; 7 minutes; writes runs/DATE-wan-ground.md
  down                   the same as status, for the last time; ends what runs there
A packet meets, in this order: the policer, a token bucket (a rate, and the bytes of the bucket)
that drops what comes too fast; the queue, which holds bytes (1bdp: rate x rtt), the packet that is
being sent included, and drops what does not fit, unless --aqm manages it, up to 15 MB then; the
rate; loss (1%,8: in runs of 8 packets on average); the delay, half of the rtt unless --delay-back
says how much is the way back; reordering (such a share of packets comes so much later, and others
overtake them); jitter, up to so much, in order. fq_codel-ecn marks packets, and makes the hosts ask
for that when they connect. What -back does not name is the same both ways.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_seconds_are_read() {
        let mut words = vec!["set", "--name", "b-2", "--loss", "0"];
        assert_eq!(take_name(&mut words).unwrap(), "b-2");
        assert_eq!(words, ["set", "--loss", "0"]);
        assert_eq!(take_name(&mut words).unwrap(), "wan");
        for name in ["", "..", "a/b", "a b"] {
            assert!(take_name(&mut vec!["up", "--name", name]).is_err(), "{name}");
        }
        assert!(take_name(&mut vec!["up", "--name"]).is_err());
        assert_eq!((duration("2"), duration("0.5s")), (Ok(2.0), Ok(0.5)));
        for seconds in ["", "-1", "x", "NaN", "1e99"] {
            assert!(duration(seconds).is_err(), "{seconds}");
        }
    }
}
