//! Where data connections go: to addresses of the host that was typed, as this host resolves it. An
//! address that the far side names counts only if it is one of them, or is allowed by
//! `--addresses`: a far side that lies cannot choose where this host connects.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

use super::launch::Launch;
use base::addresses::AddressList;
use base::fault::Fault;

/// Where to connect, best first, and what is refused.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// With port 0.
    pub tries: Vec<SocketAddr>,
    /// Addresses that the far side names and nothing here allows.
    pub refused: Vec<IpAddr>,
}

impl Choice {
    /// Why there is no data connection to this port, and what to do about it, for the user.
    pub fn explain(&self, host: &str, port: u16, fault: &Fault) -> (String, String) {
        let list = |addresses: &mut dyn Iterator<Item = IpAddr>| {
            addresses.map(|address| address.to_string()).collect::<Vec<_>>().join(",")
        };
        let tried = list(&mut self.tries.iter().map(SocketAddr::ip));
        let refused = list(&mut self.refused.iter().copied());
        let unknown = format!(
            "the far side names {refused}, which this host does not know as an address of '{host}'"
        );
        let ports = "open a port range with --ports LO-HI";
        let allow = format!("--addresses {refused} allows it");
        match (tried.is_empty(), refused.is_empty()) {
            (true, true) => ("no address of the far side is known here".into(), NAME_SOME.into()),
            (true, false) => (unknown, allow),
            (false, is_all) => {
                let what = format!(
                    "no data port of the far side can be reached ({fault}; tried {tried} port \
                     {port})"
                );
                match is_all {
                    true => (what, ports.into()),
                    false => (format!("{what}, and {unknown}"), format!("{ports}, or {allow}")),
                }
            }
        }
    }
}

const NAME_SOME: &str = "--addresses LIST names some";

/// Chooses for a far side that was started in this way and names these addresses.
pub fn choose(launch: &Launch, named: &[String]) -> Choice {
    Known::of(launch).choose(named)
}

/// Addresses of the far side, as far as this host knows them by itself.
#[derive(Debug)]
pub struct Known<'a> {
    launch: &'a Launch,
    /// Best first.
    own: Vec<SocketAddr>,
    /// The configuration of ssh has been read.
    has_all: bool,
}

impl Known<'_> {
    /// May wait for a resolver; there is time for that during a login.
    pub fn of(launch: &Launch) -> Known<'_> {
        let Launch::Ssh { host, .. } = launch else {
            return Known { launch, own: resolve("127.0.0.1"), has_all: true };
        };
        let name = host.rsplit_once('@').map_or(host.as_str(), |(_, name)| name);
        let mut known = Known { launch, own: resolve(name), has_all: false };
        if known.own.is_empty() {
            known.look_into_configuration();
        }
        known
    }

    /// The address that is tried first, if nothing is listed and the far side names no better one.
    pub fn first(&self) -> Option<IpAddr> {
        let listed = match self.launch {
            Launch::Ssh { remote, .. } => remote.addresses.hosts().flat_map(resolve).next(),
            Launch::Process { .. } => None,
        };
        listed.or(self.own.first().copied()).map(|address| address.ip())
    }

    /// Chooses, where the far side names these addresses.
    pub fn choose(mut self, named: &[String]) -> Choice {
        let Launch::Ssh { remote, .. } = self.launch else {
            return Choice { tries: self.own, refused: Vec::new() };
        };
        let named: Vec<IpAddr> = named.iter().filter_map(|name| name.parse().ok()).collect();
        let is_own = |address: &IpAddr| self.own.iter().any(|at| is_same(at.ip(), *address));
        // A name that resolves to where the login went needs no look into ssh's configuration.
        if named.is_empty() || !named.iter().all(is_own) {
            self.look_into_configuration();
        }
        let listed = remote.addresses.hosts().flat_map(resolve).collect();
        rank(listed, &named, self.own, &remote.addresses)
    }

    fn look_into_configuration(&mut self) {
        let Launch::Ssh { host, remote } = self.launch else { return };
        if !std::mem::replace(&mut self.has_all, true) {
            let meant = hostname_of(host, remote.ssh.as_deref());
            self.own.splice(0..0, meant.iter().flat_map(|name| resolve(name)));
        }
    }
}

/// Listed addresses first; then allowed ones that the far side names: it was reached there.
fn rank(
    listed: Vec<SocketAddr>,
    named: &[IpAddr],
    own: Vec<SocketAddr>,
    allowed: &AddressList,
) -> Choice {
    let mut choice = Choice { tries: listed, refused: Vec::new() };
    for &address in named {
        let known = own.iter().chain(&choice.tries).find(|at| is_same(at.ip(), address)).copied();
        match known {
            Some(at) => choice.tries.push(at),
            None if allowed.has(address) => choice.tries.push(SocketAddr::new(address, 0)),
            None => choice.refused.push(address),
        }
    }
    choice.tries.extend(own);
    let mut seen = Vec::new();
    choice.tries.retain(|at| {
        let is_new = !seen.contains(at);
        seen.push(*at);
        is_new
    });
    choice
}

fn is_same(one: IpAddr, other: IpAddr) -> bool {
    one.to_canonical() == other.to_canonical()
}

fn resolve(name: &str) -> Vec<SocketAddr> {
    (name, 0).to_socket_addrs().map(Iterator::collect).unwrap_or_default()
}

/// The host name that ssh resolves the typed host to, where the program is ssh. A process that
/// copies often asks for each host once.
fn hostname_of(host: &str, ssh: Option<&[String]>) -> Option<String> {
    static KNOWN: Mutex<BTreeMap<Vec<String>, String>> = Mutex::new(BTreeMap::new());
    let plain = ["ssh".to_string()];
    let words = ssh.unwrap_or(&plain);
    let asked = [words, &[host.to_string()]].concat();
    let known = || KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(name) = known().get(&asked) {
        return Some(name.clone());
    }
    let found = looked_up(host, words)?;
    known().insert(asked, found.clone());
    Some(found)
}

/// `-G` prints the configuration of ssh and connects to nothing.
fn looked_up(host: &str, words: &[String]) -> Option<String> {
    // Another command may come before it, such as `sudo`.
    words.iter().find(|word| word.rsplit('/').next() == Some("ssh"))?;
    let (program, arguments) = words.split_first()?;
    let mut command = Command::new(program);
    command.args(arguments).arg("-G").arg(host).stdin(Stdio::null()).stderr(Stdio::null());
    let said = command.output().ok().filter(|said| said.status.success())?;
    hostname_in(&String::from_utf8_lossy(&said.stdout))
}

fn hostname_in(configuration: &str) -> Option<String> {
    let hostname = configuration.lines().find_map(|line| line.strip_prefix("hostname "));
    hostname.map(str::to_string).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_that_are_known_here_are_tried() {
        // Listed, named, known here, allowed networks, then what is tried and what is refused.
        type Case<'a> = (&'a str, &'a str, &'a str, &'a str, &'a str, &'a str);
        let cases: [Case<'_>; 9] = [
            ("", "10.0.0.1", "10.0.0.1", "", "10.0.0.1", ""),
            // A host of several addresses, or several hosts of one name: where the login went.
            ("", "10.0.0.2", "10.0.0.1 10.0.0.2", "", "10.0.0.2 10.0.0.1", ""),
            // Behind a jump host or a NAT it knows itself by another address.
            ("", "192.168.0.5", "10.0.0.1", "", "10.0.0.1", "192.168.0.5"),
            ("", "192.168.0.5", "", "", "", "192.168.0.5"),
            ("", "192.168.0.5", "10.0.0.1", "192.168.0.0/16", "192.168.0.5 10.0.0.1", ""),
            // An interface for data that the far side does not name.
            ("10.9.0.1", "10.0.0.1", "10.0.0.1", "", "10.9.0.1 10.0.0.1", ""),
            ("192.168.0.5", "192.168.0.5", "10.0.0.1", "", "192.168.0.5 10.0.0.1", ""),
            // A far side that lies.
            ("", "203.0.113.9 ::1", "10.0.0.1", "", "10.0.0.1", "203.0.113.9 ::1"),
            ("", "::ffff:10.0.0.1", "10.0.0.1", "", "10.0.0.1", ""),
        ];
        for case @ (listed, named, own, networks, tries, refused) in cases {
            let ips = |text: &str| -> Vec<IpAddr> {
                text.split_whitespace().map(|word| word.parse().unwrap()).collect()
            };
            let at = |text| ips(text).into_iter().map(|ip| SocketAddr::new(ip, 0)).collect();
            let allowed = match networks {
                "" => AddressList::default(),
                networks => AddressList::parse(networks).unwrap(),
            };
            let choice = rank(at(listed), &ips(named), at(own), &allowed);
            assert_eq!(choice, Choice { tries: at(tries), refused: ips(refused) }, "{case:?}");
        }
    }

    #[test]
    fn what_ssh_says_it_would_do() {
        let said = "host far\nuser root\nhostname 127.0.0.1\nport 2200\n";
        assert_eq!(hostname_in(said).as_deref(), Some("127.0.0.1"));
        assert_eq!(hostname_in("user root\n"), None);
        let nobody = ["false".to_string()];
        assert_eq!(hostname_of("far", Some(&nobody)), None);
    }
}
