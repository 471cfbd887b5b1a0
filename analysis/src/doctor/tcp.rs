//! The rules for TCP's settings on a host.

use super::finding::{Facts, Goal, Rule, RuleResult};
use base::units::{Bytes, Rate};

pub(super) const RULES: &[(&str, Rule)] = &[
    ("receive buffer", receive_buffer),
    ("send buffer", send_buffer),
    ("receive autotuning", autotuning),
    ("explicit windows", explicit_windows),
    ("window scaling", window_scaling),
    ("selective acknowledgements", selective_acknowledgements),
    ("timestamps", timestamps),
    ("slow start after idle", slow_start_after_idle),
    ("congestion control", congestion_control),
    ("memory for TCP", memory),
];

fn receive_buffer(facts: &Facts<'_>, goal: &Goal) -> Option<RuleResult> {
    buffer(facts, goal, "tcp_rmem")
}

fn send_buffer(facts: &Facts<'_>, goal: &Goal) -> Option<RuleResult> {
    buffer(facts, goal, "tcp_wmem")
}

/// The limit of autotuning for one stream. About half of a buffer is payload.
fn buffer(facts: &Facts<'_>, goal: &Goal, name: &str) -> Option<RuleResult> {
    let key = format!("net.ipv4.{name}");
    let most = facts.sysctl_most(&key)?;
    let found = format!("{key} up to {}", Bytes(most as u64));
    let Some(product) = goal.product_bytes() else {
        return Some(match most < BUFFER_USUAL {
            true => RuleResult::advice(
                &found,
                "below the kernel default: a long path is capped at a window for each round trip \
                 and stream",
                raise(facts, &key, BUFFER_USUAL),
            ),
            false => RuleResult::good(found),
        });
    };
    let want = (2.0 * product).max(BUFFER_LEAST);
    if most >= want {
        return Some(RuleResult::good(found));
    }
    let round_trip_s = goal.round_trip.map_or(0.0, |time| time.seconds());
    let reach = Rate { bytes_per_second: most / 2.0 / round_trip_s.max(1e-6) };
    let why = format!(
        "one stream reaches about {reach} on this path of {:.1} ms; {} are {} in flight",
        round_trip_s * 1e3,
        Rate { bytes_per_second: goal.bytes_per_s },
        Bytes(product as u64),
    );
    let remedy = raise(facts, &key, want);
    // Several streams share the path: the default of four allows for a buffer a fourth of the size.
    Some(match most * STREAMS_USUAL >= want {
        true => RuleResult::advice(found, why, remedy),
        false => RuleResult::trouble(found, why, remedy),
    })
}

fn raise(facts: &Facts<'_>, key: &str, want: f64) -> String {
    let first: Vec<&str> =
        facts.sysctl(key).unwrap_or("4096 131072").split_whitespace().take(2).collect();
    // Whole mebibytes are easier to read.
    let want = (want / MIB).ceil() * MIB;
    format!("sysctl -w {key}='{} {want:.0}'", first.join(" "))
}

fn autotuning(facts: &Facts<'_>, _: &Goal) -> Option<RuleResult> {
    let key = "net.ipv4.tcp_moderate_rcvbuf";
    on(facts, key, "receive windows do not grow: a long path is never filled")
}

fn window_scaling(facts: &Facts<'_>, _: &Goal) -> Option<RuleResult> {
    on(facts, "net.ipv4.tcp_window_scaling", "no window is above 64 KiB (RFC 7323)")
}

fn selective_acknowledgements(facts: &Facts<'_>, _: &Goal) -> Option<RuleResult> {
    on(
        facts,
        "net.ipv4.tcp_sack",
        "of several losses in a window only one is repaired per round trip (RFC 2018)",
    )
}

fn timestamps(facts: &Facts<'_>, _: &Goal) -> Option<RuleResult> {
    on(
        facts,
        "net.ipv4.tcp_timestamps",
        "round trips of retransmitted segments are not measured, and old segments are taken for \
         new ones on fast paths (RFC 7323)",
    )
}

/// A setting that should be on.
fn on(facts: &Facts<'_>, key: &str, why: &str) -> Option<RuleResult> {
    Some(match facts.sysctl(key)? {
        "0" => RuleResult::trouble(format!("{key} = 0"), why, format!("sysctl -w {key}=1")),
        value => RuleResult::good(format!("{key} = {value}")),
    })
}

fn explicit_windows(facts: &Facts<'_>, goal: &Goal) -> Option<RuleResult> {
    let (receive, send) = ("net.core.rmem_max", "net.core.wmem_max");
    let most = facts.sysctl_most(receive)?.min(facts.sysctl_most(send)?);
    let found = format!("{receive} and {send}, smaller of both: {}", Bytes(most as u64));
    // The kernel doubles the requested size, and half of that is payload.
    Some(match goal.product_bytes() {
        Some(product) if most < product => RuleResult::advice(
            found,
            format!(
                "--window above {} is reduced to that; auto is not limited by it",
                Bytes(most as u64)
            ),
            format!("sysctl -w {receive}={0:.0} {send}={0:.0}", (product / MIB).ceil() * MIB),
        ),
        _ => RuleResult::good(found),
    })
}

fn slow_start_after_idle(facts: &Facts<'_>, goal: &Goal) -> Option<RuleResult> {
    let key = "net.ipv4.tcp_slow_start_after_idle";
    let value = facts.sysctl(key)?;
    let found = format!("{key} = {value}");
    // On a short path the congestion window grows back at once.
    let is_long = goal.round_trip.is_none_or(|time| time.seconds() >= LONG_S);
    let is_bbr = facts.sysctl(CONGESTION).is_some_and(|name| name.starts_with("bbr"));
    Some(match value != "0" && is_long && !is_bbr {
        true => RuleResult::advice(
            found,
            "a stream that waits for its source for longer than a retransmission timeout begins \
             with ten segments again (RFC 2861)",
            format!("sysctl -w {key}=0"),
        ),
        false => RuleResult::good(found),
    })
}

fn congestion_control(facts: &Facts<'_>, _: &Goal) -> Option<RuleResult> {
    let name = facts.sysctl(CONGESTION)?;
    let found = format!("{CONGESTION} = {name}");
    if FOR_LONG_PATHS.contains(&name) {
        return Some(RuleResult::good(found));
    }
    let available = facts.sysctl("net.ipv4.tcp_available_congestion_control").unwrap_or("");
    let better = FOR_LONG_PATHS.iter().find(|one| available.split(' ').any(|name| name == **one));
    let better = better.copied().unwrap_or("cubic");
    Some(RuleResult::advice(
        found,
        "it takes long to fill a path again after a loss: one segment for each round trip \
         (RFC 9438, 1)",
        format!("sysctl -w {CONGESTION}={better}, or copy --congestion {better}"),
    ))
}

/// The memory limit of all TCP sockets of the host.
fn memory(facts: &Facts<'_>, goal: &Goal) -> Option<RuleResult> {
    let key = "net.ipv4.tcp_mem";
    let most = facts.sysctl_most(key)? * PAGE;
    let found = format!("{key}: {} for all connections", Bytes(most as u64));
    let want = goal.product_bytes().map_or(MEMORY_LEAST, |product| MEMORY_LEAST.max(4.0 * product));
    Some(match most < want {
        true => RuleResult::trouble(
            found,
            "above that TCP shrinks windows and drops segments",
            format!(
                "sysctl -w {key}='{0:.0} {0:.0} {1:.0}'",
                want / PAGE / 2.0,
                (want / PAGE).ceil()
            ),
        ),
        false => RuleResult::good(found),
    })
}

const CONGESTION: &str = "net.ipv4.tcp_congestion_control";
/// Algorithms that grow with time or follow a model, and so fill a long path.
const FOR_LONG_PATHS: &[&str] = &["bbr", "cubic", "bbr3", "bbr2", "htcp", "scalable", "illinois"];
const MIB: f64 = 1048576.0;
const PAGE: f64 = 4096.0;
/// Defaults of Linux: 6 MiB to receive, 4 MiB to send.
const BUFFER_USUAL: f64 = 4.0 * MIB;
const BUFFER_LEAST: f64 = MIB;
const MEMORY_LEAST: f64 = 64.0 * MIB;
/// The default number of streams of a copy.
const STREAMS_USUAL: f64 = 4.0;
/// A path with at least this round trip is a long one.
const LONG_S: f64 = 0.005;
