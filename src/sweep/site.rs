//! Where a route of a campaign leads: its failures, and of a far host its host probe and its
//! reflector of round-trip probes.

use std::path::Path;

use super::round_trips;
use crate::host::checkup::Toward;
use crate::host::environment;
use crate::probe::Probe;
use crate::probe::knock;
use crate::results::Store;
use analysis::campaign::Extent;
use analysis::record::sample::Environment;
use base::fault::Fault;
use base::job::Remote;
use base::units::{Nanos, Tick};
use mover::io::clock;
use mover::io::echo::Reflector;
use mover::remote::addresses;
use mover::remote::launch::Launch;
use mover::remote::streams;

#[derive(Debug)]
pub(crate) struct Site {
    host: String,
    met: Option<ConnectedHost>,
    /// Faults since the last success.
    failures: u32,
    rests_until: Tick,
    fault: Option<Fault>,
}

/// A connected host.
#[derive(Debug)]
pub(crate) struct ConnectedHost {
    pub launch: Launch,
    pub probe: Probe,
    /// The number of its environment in the store.
    pub environment: i64,
    /// `None` while a prober uses it, and after its connection broke.
    pub reflector: Option<Reflector>,
    pub near_facts: Environment,
}

impl Site {
    pub(super) fn new(host: &str) -> Site {
        Site { host: host.into(), met: None, failures: 0, rests_until: Tick(0), fault: None }
    }

    pub(crate) fn is_ready(&self, now: Tick) -> bool {
        now >= self.rests_until
    }

    /// When it is tried again even if no other host is left; `None`: never.
    pub(super) fn returns(&self) -> Option<Tick> {
        (self.failures < FAILURES_MAX).then_some(self.rests_until)
    }

    pub(crate) fn has_worked(&mut self) {
        (self.failures, self.fault) = (0, None);
    }

    /// Counts a failure; returns the time until the next try, which doubles each time.
    pub(crate) fn has_failed(&mut self, fault: Fault, extent: Extent) -> Nanos {
        self.failures += 1;
        self.fault = Some(fault);
        self.met = None;
        let usual = match extent {
            Extent::Time(time) => time,
            Extent::Bytes(_) => REST_MIN,
        };
        let rest = Nanos(usual.max(REST_MIN).0 << self.failures.min(DOUBLINGS_MAX)).min(REST_MAX);
        self.rests_until = clock::now().after(rest);
        rest
    }

    pub(crate) fn last_fault(&mut self) -> Option<Fault> {
        self.fault.take()
    }

    /// The connected host, after a login if there is no connection.
    pub(super) fn meet(
        &mut self,
        campaign: &str,
        remote: &Remote,
        store: &mut Store,
    ) -> Result<&mut ConnectedHost, Fault> {
        let met = match self.met.take() {
            Some(met) => met,
            None => ConnectedHost::at(&self.host, campaign, remote, store)?,
        };
        let met = self.met.insert(met);
        if met.reflector.is_none() {
            met.reflector = Some(met.new_reflector(&self.host, remote.ports)?);
        }
        Ok(met)
    }
}

impl ConnectedHost {
    fn at(
        host: &str,
        campaign: &str,
        remote: &Remote,
        store: &mut Store,
    ) -> Result<ConnectedHost, Fault> {
        let launch = Launch::Ssh { host: host.to_string(), remote: remote.clone() };
        let mut probe = Probe::start(&launch)?;
        let near_facts = environment::here();
        probe.hold(&format!("{campaign} of {}", near_facts.host))?;
        let environment = store.environment(&probe.environment()?)?;
        Ok(ConnectedHost { launch, probe, environment, reflector: None, near_facts })
    }

    /// The host's kernel if it answers ICMP, else the probe, with an echo port.
    fn new_reflector(&mut self, host: &str, ports: Option<(u16, u16)>) -> Result<Reflector, Fault> {
        let facts = self.probe.checkup(Path::new("."), Toward::WhoLoggedIn)?;
        let named: Vec<String> = facts.get("reached_at").cloned().into_iter().collect();
        let choice = addresses::choose(&self.launch, &named);
        let answers = |address: std::net::SocketAddr| round_trips::answers(address.ip()).ok();
        if let Some(reflector) = choice.tries.iter().copied().find_map(answers) {
            return Ok(reflector);
        }
        let token = streams::random()?;
        let port = self.probe.reflect(ports, &token)?;
        let (connection, _) = knock::introduced(&choice.tries, port, &token).map_err(|why| {
            let text = format!(
                "no round trips can be measured to {host}: nothing answers there by ICMP, and \
                 {why}; open a port range with --ports LO-HI, or name its address with \
                 --addresses"
            );
            Fault::new(base::fault::Class::Unreachable, text)
        })?;
        Reflector::tcp(connection).map_err(|why| Fault::system("use a connection", &why))
    }
}

/// After so many failures in a row, a host is tried again only while others are measured.
const FAILURES_MAX: u32 = 4;
/// With these doublings an hour, the longest cell, does not overflow.
const DOUBLINGS_MAX: u32 = 16;
const REST_MIN: Nanos = Nanos::from_millis(500);
const REST_MAX: Nanos = Nanos::from_millis(600_000);
