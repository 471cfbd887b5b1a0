//! The rules for the path between two hosts, from a test connection over it.

use super::finding::{Facts, Finding, PathProbe, RuleResult, TestConnection};
use base::units::Nanos;

pub(super) fn findings(of: &str, knocked: &PathProbe, near: &Facts<'_>) -> Vec<Finding> {
    let mut found = vec![
        login(knocked).of(of, "ssh"),
        versions(knocked).of(of, "versions"),
        clocks(knocked).of(of, "clocks"),
        port(knocked).of(of, "data port"),
    ];
    if let Ok(tried) = &knocked.tried {
        found.push(round_trip(tried).of(of, "round trip"));
        found.push(full_packets(tried).of(of, "full packets"));
        found.extend(path_mtu(tried, near).map(|result| result.of(of, "path MTU")));
        found.push(options(tried).of(of, "TCP options"));
    }
    found
}

fn login(knocked: &PathProbe) -> RuleResult {
    let found = format!("logged in after {}", knocked.login);
    match knocked.login > LOGIN_SLOW {
        true => RuleResult::advice(
            found,
            "every copy waits for the login; often caused by a DNS or GSSAPI timeout",
            "ssh -o GSSAPIAuthentication=no HOST true, and 'UseDNS no' in the far sshd_config; \
             or ControlMaster in ~/.ssh/config",
        ),
        false => RuleResult::good(found),
    }
}

fn versions(knocked: &PathProbe) -> RuleResult {
    RuleResult::good(format!("{} on both", knocked.program))
}

fn clocks(knocked: &PathProbe) -> RuleResult {
    // How the request's time divides into both ways is unknown: the error is half of it at most.
    let doubt_s = knocked.asked.seconds() / 2.0;
    let apart_s = knocked.clock_apart_s;
    let found = format!("offset {apart_s:+.3} s ± {doubt_s:.3} s");
    match apart_s.abs() - doubt_s > CLOCKS_APART_S {
        true => RuleResult::advice(
            found,
            "modification times are compared across hosts: --overwrite older and logs mislead",
            "timedatectl set-ntp true, on both",
        ),
        false => RuleResult::good(found),
    }
}

fn port(knocked: &PathProbe) -> RuleResult {
    match &knocked.tried {
        Ok(tried) => RuleResult::good(format!("reached {}", tried.address)),
        Err(why) => RuleResult::trouble(
            why,
            "data has to go over the ssh connection, in one stream",
            "open a range of ports on the far host, and copy --ports 50000-50100: \
             iptables -I INPUT -p tcp --dport 50000:50100 -j ACCEPT",
        ),
    }
}

fn round_trip(tried: &TestConnection) -> RuleResult {
    RuleResult::good(format!("{} least, {} smoothed", tried.round_trip_min, tried.round_trip))
}

/// A black hole drops full packets and passes small ones, so connections are made and then stand
/// still.
fn full_packets(tried: &TestConnection) -> RuleResult {
    let why = "full-size packets are lost without an ICMP error (PMTU black hole, RFC 2923): \
               connections stall as soon as data flows";
    let remedy = "let ICMP 'fragmentation needed' pass in all firewalls; until then \
                  sysctl -w net.ipv4.tcp_mtu_probing=1 on both, or a smaller MTU on the interface";
    match (tried.there, tried.back) {
        (true, true) => RuleResult::good("pass both ways"),
        (false, true) => RuleResult::trouble("pass only from far to near", why, remedy),
        (true, false) => RuleResult::trouble("pass only from near to far", why, remedy),
        (false, false) => RuleResult::trouble("pass neither way", why, remedy),
    }
}

fn path_mtu(tried: &TestConnection, near: &Facts<'_>) -> Option<RuleResult> {
    let mtu = f64::from(tried.path_mtu_bytes);
    // The loopback interface takes one byte more than an IP packet can have.
    let own = near.number("mtu_bytes")?.min(IP_BYTES_MAX);
    let found = format!("{mtu:.0} bytes");
    Some(match mtu + 0.5 < own && mtu > 0.0 {
        true => RuleResult::advice(
            found,
            format!(
                "the interface has {own:.0}: a tunnel or a smaller link is on the path; each \
                 connection loses a packet to discover it"
            ),
            format!("ip route change … mtu {mtu:.0}, or find what is between: tracepath HOST"),
        ),
        false => RuleResult::good(found),
    })
}

fn options(tried: &TestConnection) -> RuleResult {
    let missing: Vec<&str> = [
        ("window scaling", tried.window_scaling),
        ("selective acknowledgements", tried.selective),
        ("timestamps", tried.timestamps),
    ]
    .iter()
    .filter(|(_, agreed)| !agreed)
    .map(|(name, _)| *name)
    .collect();
    match missing.is_empty() {
        true => RuleResult::good("window scaling, selective acknowledgements, timestamps"),
        false => RuleResult::trouble(
            format!("no {}", missing.join(", no ")),
            "a host has it off, or a middlebox removes it from the SYN",
            "see what the hosts' sysctls say; if they are on, look at firewalls and accelerators: \
             tcpdump -v 'tcp[tcpflags] & tcp-syn != 0' on both sides",
        ),
    }
}

const LOGIN_SLOW: Nanos = Nanos(3_000_000_000);
const CLOCKS_APART_S: f64 = 1.0;
/// The length of an IP packet is a 16-bit field (RFC 791, 3.1).
const IP_BYTES_MAX: f64 = 65535.0;
