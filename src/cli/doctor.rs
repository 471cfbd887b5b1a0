//! `datapump doctor`: what would slow copies down on this host, on another, and on the path between
//! them. Nothing is changed.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Instant;

use super::console::Console;
use super::endpoint;
use super::options::measuring::{FILE, TARGET};
use super::order::Show;
use super::settings::remote;
use super::typed::Typed;
use crate::host::checkup::Toward;
use crate::measure;
use crate::probe::{Probe, path};
use analysis::doctor::{self, Finding, Goal, PathProbe, State};
use analysis::report::doctor as page;
use analysis::report::json::{self, Event};
use base::fault::{Class, Fault};
use base::job::Remote;
use base::units::{Nanos, Rate};
use mover::io::clock;
use mover::remote::addresses;
use mover::remote::launch::Launch;
use mover::remote::streams;

#[derive(Debug)]
pub(crate) struct DoctorArgs {
    /// The other host, and the folder there.
    far: Option<(String, PathBuf)>,
    /// The other host as it was typed.
    shown: Option<String>,
    /// The folder of this host that is checked.
    folder: PathBuf,
    /// The rate to judge by; `None` for that of the interface.
    target: Option<Rate>,
    remote: Remote,
    show: Show,
}

impl DoctorArgs {
    pub(super) fn of(typed: &Typed) -> Result<DoctorArgs, String> {
        let host = typed.word("HOST");
        Ok(DoctorArgs {
            far: host.as_deref().map(endpoint::host_and_folder).transpose()?,
            shown: host.map(|host| host.to_string_lossy().into_owned()),
            folder: typed.value(&FILE)?.unwrap_or_else(|| PathBuf::from(".")),
            target: typed.value(&TARGET)?.flatten(),
            remote: remote(typed)?,
            show: Show::of(typed)?,
        })
    }
}

pub(super) fn run(args: &DoctorArgs, started: Instant) -> u8 {
    let console = Console::new(args.show, started);
    console.event(&super::start("doctor", args.shown.iter().cloned().collect(), None, None));
    let examined = examine(args, &console);
    console.clear();
    let (class, text) = match examined {
        Err(fault) => (Some(fault.class), Some(fault.text)),
        Ok(Examined { findings, not_reached }) => {
            let trouble = trouble(&findings);
            console.summary(&page::page(&findings));
            console.event(&Event::Findings { findings });
            let class = trouble.as_ref().map(|_| not_reached.unwrap_or(Class::Local));
            (class, trouble)
        }
    };
    if let Some(text) = text.as_ref() {
        console.error(text);
    }
    let end = json::end(class, text);
    let code = end.exit_code;
    console.event(&Event::End(Box::new(end)));
    code
}

/// Trouble is an error, so that a script notices it; advice is not.
fn trouble(findings: &[Finding]) -> Option<String> {
    let of = findings.iter().filter(|finding| finding.state == State::Trouble);
    let mut checks: Vec<&str> = of.map(|finding| finding.check).collect();
    checks.dedup();
    (!checks.is_empty()).then(|| format!("trouble with {}", checks.join(", ")))
}

struct Examined {
    findings: Vec<Finding>,
    /// Why the other host could not be asked.
    not_reached: Option<Class>,
}

type Facts = BTreeMap<String, String>;

fn examine(args: &DoctorArgs, console: &Console) -> Result<Examined, Fault> {
    let mut near = Probe::start(&measure::own_process()?)?;
    let folder = std::path::absolute(&args.folder).unwrap_or_else(|_| args.folder.clone());
    let alone = |near: &mut Probe| {
        let facts = all_facts(near, &folder, Toward::World)?;
        Ok(doctor::of_host(THIS_HOST, &facts, &goal(args, &[&facts], None)))
    };
    let Some((host, far_folder)) = &args.far else {
        return Ok(Examined { findings: alone(&mut near)?, not_reached: None });
    };
    if console.has_line() {
        console.remark(&format!("connecting to {host}"));
    }
    let mut far = match Other::meet(host, args) {
        Ok(far) => far,
        Err(fault) => {
            let mut findings = vec![doctor::not_reached(host, &fault)];
            findings.extend(alone(&mut near)?);
            return Ok(Examined { findings, not_reached: Some(fault.class) });
        }
    };
    if let Some(text) = far.probe.installed() {
        console.warning(&text);
    }
    let far_facts = all_facts(&mut far.probe, far_folder, Toward::WhoLoggedIn)?;
    let named: Vec<String> = far_facts.get("reached_at").cloned().into_iter().collect();
    let choice = addresses::choose(&launch(host, args), &named);
    let toward = choice.tries.first().map_or(Toward::World, |at| Toward::Address(at.ip()));
    let facts = all_facts(&mut near, &folder, toward)?;
    let knocked = far.knock(&choice.tries, args)?;
    let round_trip = knocked.tried.as_ref().map_or(knocked.asked, |tried| tried.round_trip_min);
    let goal = goal(args, &[&facts, &far_facts], Some(round_trip));
    let mut findings = doctor::of_path(host, &knocked, &facts);
    findings.extend(doctor::of_host(THIS_HOST, &facts, &goal));
    findings.extend(doctor::of_host(host, &far_facts, &goal));
    Ok(Examined { findings, not_reached: None })
}

fn launch(host: &str, args: &DoctorArgs) -> Launch {
    Launch::Ssh { host: host.to_string(), remote: args.remote.clone() }
}

/// The probe on the other host, and how long the login took.
struct Other {
    probe: Probe,
    login: Nanos,
}

impl Other {
    fn meet(host: &str, args: &DoctorArgs) -> Result<Other, Fault> {
        let begun = clock::now();
        let probe = Probe::start(&launch(host, args))?;
        Ok(Other { probe, login: clock::now().since(begun) })
    }

    fn knock(&mut self, addresses: &[SocketAddr], args: &DoctorArgs) -> Result<PathProbe, Fault> {
        let token = streams::random()?;
        path::try_path(&mut self.probe, self.login, addresses, args.remote.ports, token)
    }
}

/// The facts of the environment. Those of the checkup replace them, since they are of the interface
/// to the other host.
fn all_facts(probe: &mut Probe, folder: &Path, toward: Toward) -> Result<Facts, Fault> {
    let mut facts = probe.environment()?.facts;
    facts.extend(probe.checkup(folder, toward)?);
    Ok(facts)
}

/// The rate that is wanted, else the speed of the slowest interface that reports one.
fn goal(args: &DoctorArgs, facts: &[&Facts], round_trip: Option<Nanos>) -> Goal {
    let mbit = |facts: &&Facts| facts.get("interface_mbit")?.parse::<f64>().ok();
    let slowest = facts.iter().filter_map(mbit).fold(f64::INFINITY, f64::min);
    let slowest = if slowest.is_finite() { slowest } else { USUAL_MBIT };
    let wanted = args.target.map(|rate| rate.bytes_per_second);
    Goal { bytes_per_s: wanted.unwrap_or(slowest * 1e6 / 8.0), round_trip }
}

const THIS_HOST: &str = "this host";
/// If no interface reports its speed: a gigabit a second.
const USUAL_MBIT: f64 = 1000.0;
