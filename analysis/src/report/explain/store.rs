//! What held back a copy from or to an object store, as a sentence and as a page.

use super::{bits, fact, percent, size, time};
use crate::diagnosis::store::{StoreBottleneck, StoreVerdict};
use crate::report::live::count;

/// The verdict in one sentence, for the summary of a copy.
pub fn sentence(verdict: &StoreVerdict) -> String {
    let Some(class) = verdict.primary else {
        let shares = verdict.shares.iter().take(3);
        let parts: Vec<String> = shares
            .map(|share| format!("{} {}", share.class.name(), percent(share.share)))
            .collect();
        return format!("{}: {}", StoreVerdict::MIXED, parts.join(", "));
    };
    let of_time = |class| {
        let mut shares = verdict.shares.iter();
        let share = shares.find(|share| share.class == class).map_or(0.0, |share| share.share);
        format!("{} of the time of its requests", percent(share))
    };
    let (name, of_it) = (class.name(), of_time(class));
    let (latency, each) = (time(verdict.first_byte_s), size(verdict.request_bytes));
    let per_s = verdict.requests_per_s;
    match class {
        StoreBottleneck::FirstByte => {
            format!("{name}: an answer begins after {latency}, {of_it}")
        }
        StoreBottleneck::Requests => {
            format!("{name}: {per_s:.1} of {each} each, and an answer begins after {latency}")
        }
        StoreBottleneck::Throttled => {
            let asked = count(verdict.slow_downs, "time");
            format!("{name}: {asked} it asked for fewer requests, {of_it}")
        }
        StoreBottleneck::Failing => {
            let failures = count(verdict.failures, "request");
            format!("{name}: {failures} failed and had to be tried again, {of_it}")
        }
        StoreBottleneck::Signing => {
            format!("{name}: {of_it} is this host's CPU, at {per_s:.1} requests per second")
        }
        StoreBottleneck::Bodies => {
            format!("{name}, or its disks: bodies move at {}", bits(verdict.bytes_per_s))
        }
        StoreBottleneck::Elsewhere => {
            let under_way = verdict.under_way;
            format!("{name}: only {under_way:.2} requests were under way; look at the other end")
        }
    }
}

/// What to change.
pub fn advice(class: Option<StoreBottleneck>) -> &'static str {
    match class {
        Some(StoreBottleneck::FirstByte) => {
            "have more requests under way (--streams, --depth-source or --depth-sink), or larger \
             ones (--request-size 16M)"
        }
        Some(StoreBottleneck::Requests) => {
            "have more requests under way (--streams), or make few objects of many: tar c FOLDER | \
             datapump copy - s3://BUCKET/KEY"
        }
        Some(StoreBottleneck::Throttled) => {
            "ask whoever runs the store for a higher limit, spread keys over more prefixes, or \
             have fewer requests under way (--streams 1)"
        }
        Some(StoreBottleneck::Failing) => {
            "look at the store's own log: its answers have the reason"
        }
        Some(StoreBottleneck::Signing) => {
            "make larger requests (--request-size), or larger objects"
        }
        Some(StoreBottleneck::Bodies) => {
            "nothing at this end while the path is full; else more requests (--streams)"
        }
        Some(StoreBottleneck::Elsewhere) => {
            "see --stats: reading, writing or digests here are slower than the store"
        }
        None => "nothing stands out: see the shares",
    }
}

/// The sentence as a line of the summary; nothing where the store had little to do.
pub fn line(verdict: &StoreVerdict) -> String {
    let is_short = verdict.requests as f64 <= SHORT_S * verdict.requests_per_s;
    match verdict.primary {
        Some(StoreBottleneck::Elsewhere) => String::new(),
        _ if is_short => String::new(),
        _ => fact("held back by", &sentence(verdict)),
    }
}

/// A copy of less is over before anybody asks.
const SHORT_S: f64 = 1.0;

/// The whole verdict.
pub fn page(verdict: &StoreVerdict) -> String {
    let mut text = format!("held back by: {}\n\n", sentence(verdict));
    for share in &verdict.shares {
        let of_it = format!("{} of the time", percent(share.share));
        text.push_str(&fact(&of_it, share.class.name()));
    }
    text.push_str(&format!("\nwhat to change\n  {}\n\nthe store\n", advice(verdict.primary)));
    let figures = [
        ("requests", format!("{} ({:.1} a second)", verdict.requests, verdict.requests_per_s)),
        ("under way", format!("{:.1} on average", verdict.under_way)),
        ("bytes of a request", size(verdict.request_bytes)),
        ("first byte", format!("{} after the request", time(verdict.first_byte_s))),
        ("asked for fewer", count(verdict.slow_downs, "time")),
        ("tried again", count(verdict.failures, "time")),
    ];
    for (name, value) in figures {
        text.push_str(&fact(name, &value));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnosis::store::diagnose;
    use base::store_times::StoreTimes;
    use base::units::Nanos;

    #[test]
    fn a_sentence_names_class_and_cause() {
        let ms = Nanos::from_millis;
        let times = StoreTimes { requests: 60, body_bytes: 6000, ..StoreTimes::default() };
        let cases = [
            (
                StoreTimes { first_byte: ms(18_000), ..times },
                "the store: requests per second: 60.0 of 100 B each, and an answer begins after \
                 300 ms",
            ),
            (
                StoreTimes { slowed: ms(900), first_byte: ms(100), slow_downs: 6, ..times },
                "the store throttles: 6 times it asked for fewer requests, 90 % of the time of its \
                 requests",
            ),
        ];
        for (times, says) in cases {
            let verdict = diagnose(&times, ms(1000)).unwrap();
            assert_eq!(sentence(&verdict), says);
            assert!(page(&verdict).contains(advice(verdict.primary)));
        }
    }
}
