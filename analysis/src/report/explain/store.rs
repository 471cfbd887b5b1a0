//! What held back a copy from or to an object store, as a sentence and as a page.

use super::{bits, fact, percent, size, time};
use crate::campaign::study::{self, Row};
use crate::diagnosis::store::{StoreBottleneck, StoreVerdict, kept};
use crate::record::sample::Record;
use crate::report::live::count;
use base::units::Bytes;

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

/// What putting and getting an object cost: a paragraph for each way, `to` the store first.
pub fn costs(records: &[Record]) -> String {
    let rows = study::rows(records);
    let paragraphs: Vec<String> = rows.iter().rev().map(|row| cost(row, records)).collect();
    paragraphs.join("\n")
}

fn cost(row: &Row, records: &[Record]) -> String {
    let Row { point, rate, rates, cpu_source, .. } = row;
    let request = Bytes(point.choice.bytes().unwrap_or(0).into());
    let mut text = format!(
        "{}: {}, {}, in requests of {}\n",
        point.host,
        point.extent.typed(),
        count(rate.n as u64, "time"),
        request.typed()
    );
    let (least, most) = rates
        .iter()
        .fold((f64::MAX, 0.0_f64), |(least, most), rate| (least.min(*rate), most.max(*rate)));
    let median = bits(rate.median);
    text.push_str(&fact("rate", &format!("{median} ({} to {})", bits(least), bits(most))));
    if let Some(share) = cpu_source {
        let per_byte_ns = share / rate.median.max(1.0) * 1e9;
        let cpu = format!("{per_byte_ns:.2} ns/B ({} of a CPU)", percent(*share));
        text.push_str(&fact("CPU time here", &cpu));
    }
    let Some(verdict) = verdict_of_median(row, records) else { return text };
    let requests = format!(
        "{} ({:.1} a second), {:.1} under way on average",
        verdict.requests, verdict.requests_per_s, verdict.under_way
    );
    text.push_str(&fact("requests", &requests));
    let first_byte = format!("{} after the request", time(verdict.first_byte_s));
    text.push_str(&fact("first byte", &first_byte));
    text.push_str(&fact("held back by", &sentence(&verdict)));
    text.push_str(&fact("what to change", advice(verdict.primary)));
    text
}

/// Of the copy whose rate is the median, or the next below it.
fn verdict_of_median(row: &Row, records: &[Record]) -> Option<StoreVerdict> {
    let of_row = records.iter().filter(|record| study::point(record).as_ref() == Some(&row.point));
    let rate = |record: &Record| record.moved.goodput_bytes_per_s;
    let mut of_row: Vec<&Record> = of_row.collect();
    of_row.sort_by(|one, other| rate(one).total_cmp(&rate(other)));
    kept(of_row.get(of_row.len().saturating_sub(1) / 2)?)
}

/// What to change.
pub fn advice(class: Option<StoreBottleneck>) -> &'static str {
    match class {
        Some(StoreBottleneck::FirstByte) => {
            "have more requests under way (--memory 512M, then --streams 8), or larger ones \
             (--request-size 16M)"
        }
        Some(StoreBottleneck::Requests) => {
            "have more requests under way (--streams 8), or make few objects of many: tar c \
             FOLDER | datapump copy - s3://BUCKET/KEY"
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
            "nothing at this end while the path is full; else more requests (--memory 512M)"
        }
        Some(StoreBottleneck::Elsewhere) => {
            "see --stats: reading, writing or digests here are slower than the store"
        }
        None => "nothing stands out: see the shares",
    }
}

/// Lines of the summary: what was sent again, and the sentence, which is left out where the store
/// had little to do. `name` is what the sentence is told as.
pub fn lines(verdict: &StoreVerdict, name: &str) -> String {
    let again = match verdict.sent_again {
        0 => String::new(),
        many => {
            let requests = format!("{}, each on a new connection", count(many, "request"));
            fact("sent again", &requests)
        }
    };
    let is_short = verdict.requests as f64 <= SHORT_S * verdict.requests_per_s;
    match verdict.primary {
        Some(StoreBottleneck::Elsewhere) => again,
        _ if is_short => again,
        _ => again + &fact(name, &sentence(verdict)),
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
        ("on a new connection", count(verdict.sent_again, "time")),
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

    #[test]
    fn what_was_sent_again_is_told_of_every_copy() {
        let ms = Nanos::from_millis;
        let times = StoreTimes { requests: 60, receiving: ms(10), ..StoreTimes::default() };
        for (sent_again, says) in
            [(0, ""), (1, "1 request, each on a new"), (3, "3 requests, each on a new")]
        {
            let verdict = diagnose(&StoreTimes { sent_again, ..times }, ms(1000)).unwrap();
            assert_eq!(verdict.primary, Some(StoreBottleneck::Elsewhere));
            let lines = lines(&verdict, "held back by");
            assert_eq!(
                (lines.lines().count(), lines.contains(says)),
                (sent_again.min(1) as usize, true)
            );
        }
    }
}
