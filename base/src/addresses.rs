//! Addresses that people allow: `--addresses 10.1.0.5,10.2.0.0/16,storage.example.org`.

use core::net::IpAddr;

/// Addresses, networks and names of hosts, in the order in which they were typed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddressList(Vec<Allowed>);

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Allowed {
    /// One address, or a name that this host's resolver knows.
    Host(String),
    Network(Network),
}

/// All addresses that begin with the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    prefix_bits: u32,
}

impl AddressList {
    pub fn parse(text: &str) -> Result<AddressList, String> {
        let wrong = || format!("write {ADDRESSES_PHRASE}");
        let allowed = |word: &str| match word.split_once('/') {
            Some((address, bits)) => Network::parse(address, bits).map(Allowed::Network),
            None => is_host(word).then(|| Allowed::Host(word.to_string())),
        };
        let list: Option<Vec<Allowed>> = text.split(',').map(|word| allowed(word.trim())).collect();
        list.map(AddressList).ok_or_else(wrong)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Single addresses and names of hosts, in their order.
    pub fn hosts(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|allowed| match allowed {
            Allowed::Host(host) => Some(host.as_str()),
            Allowed::Network(_) => None,
        })
    }

    /// True where a network of the list has this address.
    pub fn has(&self, address: IpAddr) -> bool {
        self.0.iter().any(|allowed| match allowed {
            Allowed::Network(network) => network.has(address),
            Allowed::Host(_) => false,
        })
    }
}

impl Network {
    fn parse(address: &str, bits: &str) -> Option<Network> {
        let address: IpAddr = address.parse().ok()?;
        let prefix_bits = bits.parse().ok().filter(|bits| *bits <= bits_of(address).1)?;
        Some(Network { address, prefix_bits })
    }

    fn has(self, other: IpAddr) -> bool {
        let ((one, bits), (two, other_bits)) =
            (bits_of(self.address), bits_of(other.to_canonical()));
        bits == other_bits && (one ^ two).checked_shr(bits - self.prefix_bits).unwrap_or(0) == 0
    }
}

/// The address as a number, and how many bits that has.
fn bits_of(address: IpAddr) -> (u128, u32) {
    match address {
        IpAddr::V4(address) => (address.to_bits().into(), u32::BITS),
        IpAddr::V6(address) => (address.to_bits(), u128::BITS),
    }
}

fn is_host(word: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-._:%".contains(c);
    !word.is_empty() && !word.starts_with('-') && word.chars().all(plain)
}

pub const ADDRESSES_PHRASE: &str =
    "a list of addresses, networks and names, for instance 10.1.0.5,10.2.0.0/16,host";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_have_their_addresses() {
        let cases = [
            ("10.2.0.0/16", "10.2.255.255", true),
            ("10.2.0.0/16", "::ffff:10.2.3.4", true),
            ("10.2.0.0/16", "10.3.0.0", false),
            ("10.2.0.0/16", "fe80::1", false),
            ("0.0.0.0/0", "203.0.113.1", true),
            ("0.0.0.0/0", "::1", false),
            ("::/0", "2001:db8::1", true),
            ("2001:db8::/32", "2001:db8:ffff::1", true),
            ("2001:db8::/32", "2001:db9::1", false),
            ("10.1.0.5/32", "10.1.0.5", true),
            ("10.1.0.5/32", "10.1.0.4", false),
            ("10.1.0.5", "10.1.0.5", false),
        ];
        for (list, address, expect) in cases {
            let list = AddressList::parse(list).unwrap();
            assert_eq!(list.has(address.parse().unwrap()), expect, "{list:?} {address}");
        }
    }

    #[test]
    fn what_is_no_list_is_refused() {
        for text in ["", ",", "10.0.0.0/33", "::/129", "host/8", "10.0.0.0/", "a b", "-o", "a,,b"] {
            assert!(AddressList::parse(text).is_err(), "{text:?}");
        }
        let list = AddressList::parse("10.1.0.5, storage.example.org,fe80::1%eth0,10.0.0.0/8");
        let hosts: Vec<String> = list.unwrap().hosts().map(str::to_string).collect();
        assert_eq!(hosts, ["10.1.0.5", "storage.example.org", "fe80::1%eth0"]);
    }
}
