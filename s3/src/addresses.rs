//! The addresses that a store's name has: connections are spread over all of them, and one that
//! asks for less is asked less.

use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Mutex;

use crate::client::lock;
use crate::waits::{Wait, is_stopped};
use base::units::{Nanos, Tick};

#[derive(Debug, Default)]
pub(crate) struct Addresses {
    names: Mutex<BTreeMap<String, Resolved>>,
    paces: Mutex<BTreeMap<SocketAddr, Pace>>,
}

#[derive(Debug)]
struct Resolved {
    addresses: Vec<SocketAddr>,
    next: usize,
    at: Tick,
}

/// How long an address is left alone, and until when.
#[derive(Debug)]
struct Pace {
    penalty: Nanos,
    until: Tick,
}

impl Addresses {
    #[cfg(test)]
    pub(crate) fn known(host: &str, addresses: Vec<SocketAddr>) -> Addresses {
        let resolved = Resolved { addresses, next: 0, at: Tick(u64::MAX) };
        let known = Addresses::default();
        lock(&known.names).insert(host.to_string(), resolved);
        known
    }

    /// The address for the next connection, and how long it is to be left alone first.
    pub(crate) fn next(
        &self,
        (host, port): (&str, u16),
        now: Tick,
        wait: &mut Wait,
    ) -> io::Result<(SocketAddr, Nanos)> {
        let candidates = self.resolve((host, port), now, wait)?;
        let paces = lock(&self.paces);
        let wait = |address: &SocketAddr| {
            paces.get(address).map_or(Nanos(0), |pace| pace.until.since(now))
        };
        let best = candidates.into_iter().map(|address| (address, wait(&address)));
        Ok(best.min_by_key(|(_, wait)| *wait).expect("one at least"))
    }

    /// All addresses of a name, another one in front each time.
    fn resolve(
        &self,
        (host, port): (&str, u16),
        now: Tick,
        wait: &mut Wait,
    ) -> io::Result<Vec<SocketAddr>> {
        let mut names = lock(&self.names);
        let known = names.get_mut(host).filter(|known| now.since(known.at) < KNOWN_FOR);
        let resolved = match known {
            Some(known) => known,
            None => {
                let name = if host.contains(':') && !host.ends_with(']') {
                    host.to_string()
                } else {
                    format!("{host}:{port}")
                };
                let addresses = find(&name, wait)?;
                let resolved = Resolved { addresses, next: 0, at: now };
                names.entry(host.to_string()).insert_entry(resolved).into_mut()
            }
        };
        resolved.next = (resolved.next + 1) % resolved.addresses.len();
        let mut addresses = resolved.addresses.clone();
        addresses.rotate_left(resolved.next);
        Ok(addresses)
    }

    /// How an address has answered: what fails, or asks for less, waits twice as long each time.
    pub(crate) fn note(&self, address: SocketAddr, well: bool, now: Tick) {
        let mut paces = lock(&self.paces);
        if well {
            if let Some(pace) = paces.get_mut(&address) {
                pace.penalty.0 /= 2;
            }
            return;
        }
        let pace = paces.entry(address).or_insert(Pace { penalty: Nanos(0), until: now });
        pace.penalty = Nanos((pace.penalty.0 * 2).clamp(PENALTY_MIN.0, PENALTY_MAX.0));
        pace.until = now.after(pace.penalty);
    }
}

/// All addresses of `HOST:PORT`.
pub(crate) fn find(name: &str, wait: &mut Wait) -> io::Result<Vec<SocketAddr>> {
    let asked = name.to_string();
    let look = move || asked.to_socket_addrs().map(|found| found.collect::<Vec<_>>());
    let found = wait.at_most(wait.limits.connect).apart(look).map_err(|why| match why {
        why if is_stopped(&why) => why,
        why => io::Error::new(why.kind(), format!("cannot find {name}: {why}")),
    })?;
    match found.is_empty() {
        true => Err(io::Error::other(format!("{name} has no address"))),
        false => Ok(found),
    }
}

const KNOWN_FOR: Nanos = Nanos::from_millis(60_000);
const PENALTY_MIN: Nanos = Nanos::from_millis(20);
const PENALTY_MAX: Nanos = Nanos::from_millis(2_000);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::waits::{Limits, Stop};

    #[test]
    fn an_address_that_fails_is_left_alone() {
        let two: Vec<SocketAddr> =
            ["127.0.0.1:1", "127.0.0.2:1"].map(|text| text.parse().unwrap()).to_vec();
        let now = Tick(1);
        let addresses = Addresses::known("h", two.clone());
        let wait = Wait::new(Limits::near(), &Stop::default());
        let next = |now| addresses.next(("h", 1), now, &mut wait.clone()).unwrap();
        let mut seen: Vec<SocketAddr> = (0..4).map(|_| next(now).0).collect();
        seen.sort();
        assert_eq!(seen, [two[0], two[0], two[1], two[1]], "in turns");
        addresses.note(two[0], false, now);
        assert!((0..4).all(|_| next(now) == (two[1], Nanos(0))));
        addresses.note(two[1], false, now);
        addresses.note(two[1], false, now);
        assert!(
            (0..4).all(|_| next(now) == (two[0], PENALTY_MIN)),
            "the one that may be asked first"
        );
        let later = now.after(PENALTY_MAX);
        assert!((0..4).any(|_| next(later) == (two[0], Nanos(0))));
    }
}
