//! Copies of endless data that are stopped after the measurement: how much arrived in a span of
//! time, or how long a span of bytes took.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use ::wan::Wan;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// The part of a copy that is measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Stretch {
    /// A span of time after a ramp, which begins with the first byte that arrived.
    Time { ramp_s: f64, seconds: f64 },
    /// From one byte to another, so that all copies have the same data; at most `seconds_max`.
    Bytes { from: f64, to: f64, seconds_max: f64 },
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Seen {
    pub bytes_per_s: f64,
    /// The rate on the path in this span, including headers; `None` where it is not counted.
    pub wire_bytes_per_s: Option<f64>,
}

/// The bytes that had arrived at a time.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Look {
    at_s: f64,
    bytes: f64,
}

/// The programs to run on either host.
#[derive(Clone, Copy, Debug)]
pub(super) struct Programs<'a> {
    pub near: &'a Path,
    pub far: &'a Path,
}

/// Runs `datapump copy` with these words on the near host until the end of the span.
pub(super) fn copy(
    wan: &Wan,
    programs: Programs<'_>,
    words: &str,
    stretch: Stretch,
) -> Result<Seen, String> {
    let told = |why: std::io::Error| format!("datapump: {why}");
    let mut copy = Command::new(programs.near);
    copy.args(["copy", "--json", "--no-record", "--interval", "0.1"]);
    copy.args(["--ssh", &wan.ssh_command()]).arg("--remote-datapump").arg(programs.far);
    copy.args(words.split_whitespace()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut running = Running(wan.near(copy).map_err(told)?.spawn().map_err(told)?);
    let events = BufReader::new(running.0.stdout.take().ok_or("it has no output")?).lines();
    let mut looks: Vec<Look> = Vec::new();
    let mut wire = Wire::default();
    for line in events {
        let line = line.map_err(told)?;
        let Ok(event) = serde_json::from_str::<Value>(&line) else { continue };
        match event["event"].as_str() {
            Some("progress") => {}
            Some("end") => {
                return Err(format!("copy {words} ended too early: {}", event["message"]));
            }
            _ => continue,
        }
        let number = |name: &str| event[name].as_f64().unwrap_or(0.0);
        let look = Look { at_s: number("elapsed_s"), bytes: number("bytes_done") };
        if looks.is_empty() && look.bytes == 0.0 {
            continue;
        }
        looks.push(look);
        if let Some(bytes_per_s) = rate(&looks, stretch) {
            let wire_bytes_per_s = wire.rate(look, wan);
            return Ok(Seen { bytes_per_s, wire_bytes_per_s });
        }
        if begins(&looks, stretch) {
            wire.begin(look, wan);
        }
    }
    Err(format!("copy {words} ended without a word"))
}

/// Interrupted on drop, as a user would do it.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(pid) = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw) {
            kill_process(pid, Signal::INT).ok();
        }
        self.0.wait().ok();
    }
}

/// The bytes on the path at the beginning of the span.
#[derive(Default)]
struct Wire(Option<(f64, u64)>);

impl Wire {
    fn begin(&mut self, look: Look, wan: &Wan) {
        self.0.get_or_insert_with(|| (look.at_s, sent(wan)));
    }

    fn rate(&self, look: Look, wan: &Wan) -> Option<f64> {
        let (since_s, before) = self.0?;
        let bytes = sent(wan) - before;
        (bytes > 0).then(|| bytes as f64 / (look.at_s - since_s).max(1e-9))
    }
}

fn sent(wan: &Wan) -> u64 {
    wan.counters().forward.packets.bytes_out
}

fn begins(looks: &[Look], stretch: Stretch) -> bool {
    let (Some(first), Some(last)) = (looks.first(), looks.last()) else { return false };
    match stretch {
        Stretch::Time { ramp_s, .. } => last.at_s >= first.at_s + ramp_s,
        Stretch::Bytes { from, .. } => last.bytes >= from,
    }
}

/// Bytes a second in the span; `None` before its end.
fn rate(looks: &[Look], stretch: Stretch) -> Option<f64> {
    let (first, last) = (looks.first()?, looks.last()?);
    match stretch {
        Stretch::Time { ramp_s, seconds } => {
            let from_s = first.at_s + ramp_s;
            let to_s = from_s + seconds;
            (last.at_s >= to_s).then(|| steps_rate(looks, from_s, to_s))
        }
        Stretch::Bytes { from, to, seconds_max } if last.bytes < to => {
            let is_late = last.at_s >= first.at_s + seconds_max;
            let since = time_of(looks, from).map_or(*first, |at_s| Look { at_s, bytes: from });
            is_late.then(|| (last.bytes - since.bytes) / (last.at_s - since.at_s).max(1e-9))
        }
        Stretch::Bytes { from, to, .. } => {
            Some((to - from) / (time_of(looks, to)? - time_of(looks, from)?).max(1e-9))
        }
    }
}

/// Requests arrive whole: measured from one sample with new bytes to another, so that no part of a
/// request is counted or missed.
fn steps_rate(looks: &[Look], from_s: f64, to_s: f64) -> f64 {
    let within = looks.windows(2).filter(|pair| pair[1].at_s >= from_s && pair[1].at_s <= to_s);
    let news: Vec<Look> =
        within.filter(|pair| pair[1].bytes > pair[0].bytes).map(|pair| pair[1]).collect();
    match (news.first(), news.last()) {
        (Some(first), Some(last)) if last.at_s > first.at_s => {
            (last.bytes - first.bytes) / (last.at_s - first.at_s)
        }
        _ => 0.0,
    }
}

/// Interpolated between two samples.
fn time_of(looks: &[Look], bytes: f64) -> Option<f64> {
    let after = looks.partition_point(|look| look.bytes < bytes);
    let (after, before) = (looks.get(after)?, after.checked_sub(1).map(|place| looks[place]));
    let before = before.unwrap_or(*after);
    let share = (bytes - before.bytes) / (after.bytes - before.bytes).max(1e-9);
    Some(before.at_s + share.min(1.0) * (after.at_s - before.at_s))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A request of 10 bytes every second, from the first second on.
    fn looks(until_s: u32) -> Vec<Look> {
        (0..=until_s * 10)
            .map(|tenths| Look {
                at_s: 5.0 + f64::from(tenths) / 10.0,
                bytes: f64::from(10 * (1 + tenths / 10)),
            })
            .collect()
    }

    #[test]
    fn a_rate_is_that_of_the_stretch() {
        let time = Stretch::Time { ramp_s: 1.5, seconds: 4.0 };
        assert_eq!(rate(&looks(5), time), None);
        assert!(!begins(&looks(1), time) && begins(&looks(2), time));
        assert!((rate(&looks(6), time).unwrap() - 10.0).abs() < 1e-9);
        let bytes = Stretch::Bytes { from: 20.0, to: 60.0, seconds_max: 9.0 };
        assert_eq!(rate(&looks(4), bytes), None);
        assert!((rate(&looks(7), bytes).unwrap() - 10.0).abs() < 1e-6);
        let late = Stretch::Bytes { from: 20.0, to: 600.0, seconds_max: 6.0 };
        assert_eq!(rate(&looks(5), late), None);
        assert!((rate(&looks(6), late).unwrap() - 10.0).abs() < 0.5);
    }
}
