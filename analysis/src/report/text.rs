//! The end of a run as text.

use std::path::Path;

use base::codec::Coding;
use base::fault::Fault;
use base::job::{Carrier, Cleaned, FreeSpace, Outcome, Sight, Verified};
use base::settings::{Pace, Settings};
use base::tally::{SideReport, Stage, Tally};
use base::units::{Bytes, Nanos, Rate};

use super::escape;
use super::live::count;
use crate::record::packed::{HeldBy, Packed, Without};

/// Whether things were done, or only would be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dry {
    Yes,
    No,
}

/// The summary of a transfer: what moved, how, what it cost each side, and where requests spent
/// their life.
pub fn summary(outcome: &Outcome, settings: &Settings) -> String {
    if let Some(room) = outcome.dry {
        return dry_run(outcome, room);
    }
    let mut text = headline(outcome);
    text.push('\n');
    for (name, value) in facts(outcome, settings) {
        text.push_str(&format!("  {name:<NAME_WIDTH$}{value}\n"));
    }
    text.push('\n');
    text.push_str(&table(outcome));
    text.push('\n');
    for (name, side) in sides(outcome) {
        text.push_str(&life(name, &side.tally));
    }
    for (name, side) in sides(outcome) {
        if let (engine, Some(why)) = engine(side) {
            text.push_str(&format!(
                "  {name}: engine {}: {}\n",
                escape::line(engine),
                escape::line(why)
            ));
        }
    }
    text
}

/// What a dry run found.
fn dry_run(outcome: &Outcome, room: FreeSpace) -> String {
    let failed = match outcome.failed {
        0 => String::new(),
        failed => format!("; {failed} would NOT be copied"),
    };
    let mut text = format!(
        "dry run, nothing was copied: {} in {}{} would be{}{failed}\n\n",
        Bytes(outcome.bytes),
        count(outcome.files, "file"),
        folders(outcome),
        kept(outcome),
    );
    let mut facts = vec![("bytes", outcome.bytes.to_string())];
    facts.extend(history(outcome));
    if let Some(free_bytes) = room.free_bytes {
        let missing = outcome.bytes.saturating_sub(free_bytes);
        let verdict = match missing {
            0 => "enough".to_string(),
            missing => format!("{} are missing", Bytes(missing)),
        };
        facts.push(("room", format!("{} are free, {verdict}", Bytes(free_bytes))));
    }
    for (name, value) in facts {
        text.push_str(&format!("  {name:<NAME_WIDTH$}{value}\n"));
    }
    text
}

fn kept(outcome: &Outcome) -> String {
    match outcome.kept {
        0 => String::new(),
        kept => format!("; {kept} unchanged"),
    }
}

fn folders(outcome: &Outcome) -> String {
    match outcome.directories {
        0 => String::new(),
        1 => ", 1 folder".to_string(),
        folders => format!(", {folders} folders"),
    }
}

fn headline(outcome: &Outcome) -> String {
    let failed = match outcome.failed {
        0 => String::new(),
        failed => format!("; {failed} NOT copied"),
    };
    let (kept, folders) = (kept(outcome), folders(outcome));
    format!(
        "{} in {}, {}{folders}: {}{kept}{failed}\n",
        Bytes(outcome.bytes),
        outcome.elapsed,
        count(outcome.files, "file"),
        Rate::of(outcome.bytes.saturating_sub(outcome.resumed_bytes), outcome.elapsed),
    )
}

/// What was asked for and what it became, one fact a line.
fn facts(outcome: &Outcome, settings: &Settings) -> Vec<(&'static str, String)> {
    let checks = format!("digest {}, fsync {}", settings.digest.name(), settings.fsync.name());
    let mut facts = vec![("bytes", outcome.bytes.to_string())];
    facts.extend(history(outcome));
    match outcome.carrier {
        Carrier::Memory => {
            facts.push(("path", "inside this process, no network".to_string()));
            if settings.compress.is_on() {
                facts.push(("packed", "nothing: within a process nothing travels".to_string()));
            }
            facts.push(("checks", checks));
        }
        Carrier::Tcp => {
            facts.push((
                "path",
                format!("{} to the far port", count(outcome.streams.into(), "TCP stream")),
            ));
            facts.push(("wire", wire(outcome)));
            facts.extend(packed(outcome));
            facts.push(("checks", format!("seal {}, {checks}", settings.seal.name())));
            facts.push(("window", window(outcome, settings)));
            facts.extend(settled(outcome, settings));
        }
        Carrier::Control => {
            facts.push(("path", "the ssh connection: no data port could be reached".to_string()));
            facts.push(("wire", wire(outcome)));
            facts.extend(packed(outcome));
            facts.push(("checks", checks));
        }
    }
    let requests = format!(
        "{} of {} each",
        source(outcome).tally.requests,
        Bytes(outcome.request_bytes.into())
    );
    facts.push(("requests", requests));
    if let Some(rate) = settings.rate {
        facts.push(("rate limit", rate.to_string()));
    }
    facts.push(("cpu", cpu_of_all(outcome)));
    facts
}

/// What was there before, what was left out, and what broke on the way.
fn history(outcome: &Outcome) -> Vec<(&'static str, String)> {
    let mut facts = Vec::new();
    if outcome.resumed_bytes > 0 || outcome.held_files > 0 {
        let bytes = Bytes(outcome.resumed_bytes);
        let files = match outcome.held_files {
            0 => String::new(),
            files => format!(", and {}", count(files, "finished file")),
        };
        facts.push(("resumed", format!("{bytes} were there from an earlier run{files}")));
    }
    if outcome.excluded > 0 {
        facts.push(("left out", format!("{} by filters", count(outcome.excluded, "name"))));
    }
    if outcome.retries > 0 {
        let times = count(outcome.retries.into(), "time");
        facts.push(("connection", format!("reconnected {times}")));
    }
    facts
}

/// `4.02 GiB, 0.52 % more than the bytes themselves`.
fn wire(outcome: &Outcome) -> String {
    let wire_bytes = source(outcome).tally.wire_bytes;
    match outcome.bytes {
        0 => Bytes(wire_bytes).to_string(),
        bytes => {
            let more = (wire_bytes as f64 / bytes as f64 - 1.0) * 100.0;
            let word = if more < 0.0 { "less" } else { "more" };
            let percent = more.abs();
            format!("{}, {percent:.2} % {word} than the bytes themselves", Bytes(wire_bytes))
        }
    }
}

/// What became of payloads that were to be packed, and what that took at both ends.
fn packed(outcome: &Outcome) -> Vec<(&'static str, String)> {
    let packing = &source(outcome).tally.packing;
    let Some(ratio) = packing.ratio() else { return Vec::new() };
    let shares: Vec<String> = packing
        .shares()
        .into_iter()
        .map(|(coding, share)| match coding {
            Coding::Raw => format!("{:.0} % as they were", share * 100.0),
            coding => format!("{:.0} % {}", share * 100.0, coding.typed()),
        })
        .collect();
    let mut facts = vec![(
        "packed",
        format!(
            "{} to {}, a ratio of {ratio:.2}: {}",
            Bytes(packing.raw_bytes()),
            Bytes(packing.packed_bytes),
            shares.join(", ")
        ),
    )];
    let Some(packed) = Packed::of(outcome) else { return facts };
    let spent: Vec<Nanos> =
        sides(outcome).iter().map(|(_, side)| side.tally.stages[Stage::Codec as usize]).collect();
    if let ([pack, unpack], Some(c_over_x)) = (&spent[..], packed.pack_over_unpack) {
        let text = format!("{pack} to pack, {unpack} to unpack: {c_over_x:.1} times as long");
        facts.push(("codec", text));
    }
    facts.extend(packed.without.map(|without| ("off", without_packing(without))));
    facts
}

/// What the copy would have been with `--compress off`, and why that is believed.
fn without_packing(without: Without) -> String {
    let rate = Rate { bytes_per_second: without.bytes_per_s };
    let (bound, why) = match without.held_by {
        HeldBy::Wire => ("", "the wire carried what it could"),
        HeldBy::Packing => (" at least", "packing held this back, so the wire was never full"),
        HeldBy::Unpacking => (" at least", "unpacking held this back, so the wire was never full"),
        HeldBy::Source => ("", "the source held this back"),
    };
    format!("would have moved {rate}{bound}: {why}")
}

/// The window that was asked for, and the largest that the sink's TCP advertised to the source.
fn window(outcome: &Outcome, settings: &Settings) -> String {
    let asked = match settings.window_bytes {
        Some(bytes) => format!("asked {}", Bytes(bytes.into())),
        None => "left to TCP".to_string(),
    };
    match source(outcome).window_seen_bytes {
        0 => format!("{asked}, advertised: unknown"),
        seen => format!("{asked}, advertised {}", Bytes(seen)),
    }
}

/// How the streams were set otherwise than the host does by itself.
fn settled(outcome: &Outcome, settings: &Settings) -> Vec<(&'static str, String)> {
    let mut facts = Vec::new();
    let chosen = source(outcome).pace_bytes_per_s;
    let rate = |bytes_per_s: u64| Rate { bytes_per_second: bytes_per_s as f64 };
    match (settings.pace, chosen) {
        (Pace::Fixed(rate), _) => facts.push(("pace", format!("{rate}, all streams together"))),
        (Pace::Auto, Some(pace)) => {
            facts.push(("pace", format!("{}, as bursts were lost", rate(pace))));
        }
        (Pace::Auto | Pace::Off, _) => {}
    }
    if let Some(dscp) = settings.dscp {
        facts.push(("mark", format!("{dscp} (DSCP {})", dscp.code())));
    }
    if let Some(lockstep) = settings.lockstep {
        facts.push((
            "lockstep",
            format!(
                "each stream stopped after {}, for {} (for the lab)",
                Bytes(lockstep.every_bytes),
                lockstep.pause
            ),
        ));
    }
    facts
}

fn cpu_of_all(outcome: &Outcome) -> String {
    let spent = sides(outcome)
        .iter()
        .fold(Nanos(0), |spent, (_, side)| spent + side.cpu_user + side.cpu_system);
    let who = if outcome.far.is_some() { " on both sides" } else { "" };
    match per_byte(spent, outcome.bytes) {
        Some(per_byte) => format!("{spent}{who}, {per_byte} a byte"),
        None => format!("{spent}{who}"),
    }
}

/// `0.97 ns`.
fn per_byte(spent: Nanos, bytes: u64) -> Option<String> {
    (bytes > 0).then(|| format!("{:.2} ns", spent.0 as f64 / bytes as f64))
}

/// One column for each side, source first.
fn table(outcome: &Outcome) -> String {
    let sides = sides(outcome);
    type Cell = fn(&SideReport) -> String;
    let rows: [(&str, Cell); 9] = [
        ("engine", |side| engine(side).0.to_string()),
        ("depth", |side| side.depth.to_string()),
        ("congestion", |side| or_dash(&side.congestion)),
        ("cpu user", |side| side.cpu_user.to_string()),
        ("cpu system", |side| side.cpu_system.to_string()),
        ("cpu per byte", |side| {
            per_byte(side.cpu_user + side.cpu_system, side.tally.bytes).unwrap_or("-".into())
        }),
        ("calls", |side| side.tally.calls.to_string()),
        ("partial returns", |side| partial(&side.tally)),
        ("memory peak", |side| {
            let (peak, planned) = (side.peak_memory_bytes, side.planned_memory_bytes);
            format!("{}, planned {}", Bytes(peak), Bytes(planned))
        }),
    ];
    let cells: Vec<Vec<String>> = rows
        .iter()
        .filter(|(name, _)| *name != "congestion" || outcome.carrier == Carrier::Tcp)
        .map(|(name, cell)| {
            let values = sides.iter().map(|(_, side)| cell(side));
            std::iter::once((*name).to_string()).chain(values).collect()
        })
        .collect();
    let heads = sides.iter().map(|(name, _)| (*name).to_string());
    let heads = std::iter::once(String::new()).chain(heads).collect();
    aligned(std::iter::once(heads).chain(cells).collect())
}

/// An engine's name, and why it is not the one that was asked for: `threads (io_uring is switched
/// off)`.
fn engine(side: &SideReport) -> (&str, Option<&str>) {
    match side.engine.split_once(" (") {
        Some((name, why)) => (name, Some(why.strip_suffix(')').unwrap_or(why))),
        None => (&side.engine, None),
    }
}

/// Columns padded to their widest cell; trailing blanks taken off.
fn aligned(rows: Vec<Vec<String>>) -> String {
    let plain = |row: Vec<String>| row.iter().map(|cell| escape::line(cell)).collect();
    let rows: Vec<Vec<String>> = rows.into_iter().map(plain).collect();
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let mut widths: Vec<usize> = (0..columns).map(width).collect();
    if let Some(first) = widths.first_mut() {
        *first = (*first).max(NAME_WIDTH - 2);
    }
    let mut text = String::new();
    for row in &rows {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        let line = format!("  {}", cells.collect::<Vec<_>>().join("  "));
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

fn partial(tally: &Tally) -> String {
    match tally.partial_returns {
        0 => "none".to_string(),
        returns => format!("{returns}, {} on average", Bytes(tally.partial_bytes / returns)),
    }
}

fn or_dash(text: &str) -> String {
    if text.is_empty() { "-".to_string() } else { text.to_string() }
}

/// Where a side's requests spent their life, in one sentence.
fn life(name: &str, tally: &Tally) -> String {
    let life = tally.life;
    let total = life.total();
    if tally.requests == 0 || total.0 == 0 {
        return format!("  {name}: no request was timed.\n");
    }
    let mean = |spent: Nanos| Nanos(spent.0 / tally.requests);
    let part = |doing: &str, spent: Nanos| {
        let percent = spent.0 as f64 * 100.0 / total.0 as f64;
        format!("{doing} {percent:.0} % ({})", mean(spent))
    };
    let steps: Vec<String> = Stage::NAMES
        .iter()
        .zip(tally.stages)
        .filter(|(_, spent)| spent.0 > 0)
        .map(|(name, spent)| format!("{name} {}", mean(spent)))
        .collect();
    let steps = match steps.is_empty() {
        true => String::new(),
        false => format!(" ({})", steps.join(", ")),
    };
    format!(
        "  {name}: a request lived {} on average{steps}:\n    \
         {}, {}, {}, {}.\n",
        mean(total),
        part("filling", life.fill),
        part("passing", life.pass),
        part("waiting", life.gate),
        part("draining", life.drain),
    )
}

/// The sides by what they did, source first.
fn sides(outcome: &Outcome) -> Vec<(&'static str, &SideReport)> {
    match (&outcome.far, outcome.near_is_source) {
        (None, _) => vec![("this host", &outcome.near)],
        (Some(far), true) => vec![("source (here)", &outcome.near), ("sink (there)", far)],
        (Some(far), false) => vec![("source (there)", far), ("sink (here)", &outcome.near)],
    }
}

fn source(outcome: &Outcome) -> &SideReport {
    match &outcome.far {
        Some(far) if !outcome.near_is_source => far,
        _ => &outcome.near,
    }
}

/// What `verify` says at the end.
pub fn verified(found: &Verified, elapsed: Nanos) -> String {
    let rate = Rate::of(found.bytes, elapsed);
    let read = format!("{} read in {elapsed}: {rate}", Bytes(found.bytes));
    if found.worst().is_none() {
        return format!("{} what the receipt says; {read}\n", all_of(found.files));
    }
    let bad = [
        (found.differing, "differing"),
        (found.missing, "missing"),
        (found.unreadable, "unreadable"),
    ];
    let bad: Vec<String> = bad
        .into_iter()
        .filter(|(number, _)| *number > 0)
        .map(|(number, how)| format!("{number} {how}"))
        .collect();
    format!("{}, {} as the receipt says; {read}\n", bad.join(", "), found.files)
}

/// What `clean` says of one thing. `dry` is for what only would be done.
pub fn sight(sight: &Sight, dry: Dry) -> String {
    let word = if dry == Dry::Yes { "would be removed" } else { "removed" };
    match sight {
        Sight::Removed { path, bytes } => format!("{word}: {} ({})", shown(path), Bytes(*bytes)),
        Sight::Held(path) => format!("left: {} (of a copy that runs)", shown(path)),
        Sight::Failed(fault) => fault.text.clone(),
    }
}

/// And at its end.
pub fn cleaned(cleaned: &Cleaned, dry: Dry) -> String {
    let word = if dry == Dry::Yes { "would be removed" } else { "removed" };
    let held = match cleaned.held {
        0 => String::new(),
        held => format!("; {} left, of a copy that runs", count(held, "file")),
    };
    format!("{} {word}, {}{held}\n", count(cleaned.files, "file"), Bytes(cleaned.bytes))
}

fn all_of(files: u64) -> String {
    match files {
        0 => "no files are".to_string(),
        1 => "the file is".to_string(),
        files => format!("all {files} files are"),
    }
}

/// A failed object in one line: its name, unless the fault says it, and why.
pub fn failed(path: &[u8], fault: &Fault) -> String {
    let name = String::from_utf8_lossy(path);
    match path.is_empty() || fault.text.contains(name.as_ref()) {
        true => fault.text.clone(),
        false => format!("{name}: {}", fault.text),
    }
}

fn shown(path: &Path) -> String {
    escape::line(&path.to_string_lossy())
}

/// The width of a name with the gap behind it.
const NAME_WIDTH: usize = 18;

#[cfg(test)]
pub(super) mod sample {
    use super::*;
    use base::codec::Packing;
    use base::tally::{About, Life};

    fn seconds(seconds: f64) -> Nanos {
        Nanos((seconds * 1e9) as u64)
    }

    /// A push of 4 GiB over four streams, as it could have been.
    pub(crate) fn push() -> Outcome {
        let near = SideReport {
            tally: Tally {
                packing: Packing::default(),
                requests: 16384,
                bytes: 4 << 30,
                wire_bytes: (4 << 30) + (22 << 20),
                life: Life {
                    fill: seconds(7.0),
                    pass: seconds(1.5),
                    gate: seconds(3.5),
                    drain: seconds(2.0),
                },
                stages: [seconds(0.9), Nanos(0), seconds(0.6)],
                calls: 32768,
                partial_returns: 0,
                partial_bytes: 0,
                starts: 0,
            },
            cpu_user: seconds(1.21),
            cpu_system: seconds(0.94),
            peak_memory_bytes: 41 << 20,
            planned_memory_bytes: 38 << 20,
            engine: "uring".into(),
            depth: 16,
            congestion: "cubic".into(),
            window_seen_bytes: 6 << 20,
            window_scale: Some(7),
            pace_bytes_per_s: None,
            excluded: 0,
            free_bytes: None,
            about: About::default(),
        };
        let mut far = near.clone();
        far.tally.partial_returns = 120;
        far.tally.partial_bytes = 120 * (64 << 10);
        far.engine = "threads (io_uring is switched off: kernel.io_uring_disabled = 2)".into();
        far.depth = 4;
        Outcome {
            files: 1,
            directories: 0,
            failed: 0,
            kept: 0,
            excluded: 0,
            resumed_bytes: 0,
            held_files: 0,
            retries: 0,
            dry: None,
            request_bytes: 1 << 20,
            worst: None,
            bytes: 4 << 30,
            elapsed: seconds(3.62),
            login: seconds(0.22),
            streams: 4,
            carrier: Carrier::Tcp,
            near_is_source: true,
            near,
            far: Some(far),
            paths: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::fault::Class;

    fn check(outcome: &Outcome, expect: &str) {
        let got = summary(outcome, &Settings::default());
        assert_eq!(got, expect, "\n{got}");
    }

    #[test]
    fn a_push() {
        check(
            &sample::push(),
            "\
4 GiB in 3.62 s, 1 file: 1186 MB/s (9.49 Gbit/s)

  bytes             4294967296
  path              4 TCP streams to the far port
  wire              4.02 GiB, 0.54 % more than the bytes themselves
  checks            seal tls, digest blake3, fsync file
  window            left to TCP, advertised 6 MiB
  requests          16384 of 1 MiB each
  cpu               4.30 s on both sides, 1.00 ns a byte

                    source (here)           sink (there)
  engine            uring                   threads
  depth             16                      4
  congestion        cubic                   cubic
  cpu user          1.21 s                  1.21 s
  cpu system        940.0 ms                940.0 ms
  cpu per byte      0.50 ns                 0.50 ns
  calls             32768                   32768
  partial returns   none                    120, 64 KiB on average
  memory peak       41 MiB, planned 38 MiB  41 MiB, planned 38 MiB

  source (here): a request lived 854.5 µs on average (digest 54.9 µs, seal 36.6 µs):
    filling 50 % (427.2 µs), passing 11 % (91.6 µs), waiting 25 % (213.6 µs), \
            draining 14 % (122.1 µs).
  sink (there): a request lived 854.5 µs on average (digest 54.9 µs, seal 36.6 µs):
    filling 50 % (427.2 µs), passing 11 % (91.6 µs), waiting 25 % (213.6 µs), \
            draining 14 % (122.1 µs).
  sink (there): engine threads: io_uring is switched off: kernel.io_uring_disabled = 2
",
        );
    }

    #[test]
    fn a_dry_run() {
        let mut outcome = sample::push();
        (outcome.files, outcome.kept, outcome.failed) = (3, 2, 1);
        outcome.near.excluded = 4;
        outcome.excluded = 4;
        outcome.dry = Some(FreeSpace { free_bytes: Some(3 << 30) });
        check(
            &outcome,
            "\
dry run, nothing was copied: 4 GiB in 3 files would be; 2 unchanged; 1 would NOT be copied

  bytes             4294967296
  left out          4 names by filters
  room              3 GiB are free, 1 GiB are missing
",
        );
    }

    #[test]
    fn an_earlier_run_and_reconnections() {
        let mut outcome = sample::push();
        (outcome.resumed_bytes, outcome.held_files, outcome.retries) = (2 << 30, 7, 2);
        let text = summary(&outcome, &Settings::default());
        for line in [
            "4 GiB in 3.62 s, 1 file: 593 MB/s (4.75 Gbit/s)\n",
            "  resumed           2 GiB were there from an earlier run, and 7 finished files\n",
            "  connection        reconnected 2 times\n",
        ] {
            assert!(text.contains(line), "{line}{text}");
        }
    }

    #[test]
    fn a_pull_over_the_ssh_connection_with_failures() {
        let mut outcome = sample::push();
        outcome.near_is_source = false;
        outcome.carrier = Carrier::Control;
        (outcome.files, outcome.directories, outcome.failed) = (340, 12, 2);
        outcome.worst = Some(Class::SomeFailed);
        check(
            &outcome,
            "\
4 GiB in 3.62 s, 340 files, 12 folders: 1186 MB/s (9.49 Gbit/s); 2 NOT copied

  bytes             4294967296
  path              the ssh connection: no data port could be reached
  wire              4.02 GiB, 0.54 % more than the bytes themselves
  checks            digest blake3, fsync file
  requests          16384 of 1 MiB each
  cpu               4.30 s on both sides, 1.00 ns a byte

                    source (there)          sink (here)
  engine            threads                 uring
  depth             4                       16
  cpu user          1.21 s                  1.21 s
  cpu system        940.0 ms                940.0 ms
  cpu per byte      0.50 ns                 0.50 ns
  calls             32768                   32768
  partial returns   120, 64 KiB on average  none
  memory peak       41 MiB, planned 38 MiB  41 MiB, planned 38 MiB

  source (there): a request lived 854.5 µs on average (digest 54.9 µs, seal 36.6 µs):
    filling 50 % (427.2 µs), passing 11 % (91.6 µs), waiting 25 % (213.6 µs), \
            draining 14 % (122.1 µs).
  sink (here): a request lived 854.5 µs on average (digest 54.9 µs, seal 36.6 µs):
    filling 50 % (427.2 µs), passing 11 % (91.6 µs), waiting 25 % (213.6 µs), \
            draining 14 % (122.1 µs).
  source (there): engine threads: io_uring is switched off: kernel.io_uring_disabled = 2
",
        );
    }

    #[test]
    fn nothing_at_all_on_this_host() {
        let mut outcome = sample::push();
        (outcome.bytes, outcome.files, outcome.far) = (0, 0, None);
        outcome.carrier = Carrier::Memory;
        outcome.near = SideReport { engine: "threads".into(), depth: 1, ..SideReport::default() };
        check(
            &outcome,
            "\
0 B in 3.62 s, 0 files: 0.0 kB/s (0.0 kbit/s)

  bytes             0
  path              inside this process, no network
  checks            digest blake3, fsync file
  requests          0 of 1 MiB each
  cpu               0 ns

                    this host
  engine            threads
  depth             1
  cpu user          0 ns
  cpu system        0 ns
  cpu per byte      -
  calls             0
  partial returns   none
  memory peak       0 B, planned 0 B

  this host: no request was timed.
",
        );
    }

    #[test]
    fn verdicts() {
        let second = Nanos::from_millis(1000);
        let well = Verified { files: 3, bytes: 1 << 30, ..Verified::default() };
        let cases = [
            (
                well,
                "all 3 files are what the receipt says; 1 GiB read in 1.00 s: \
                 1074 MB/s (8.59 Gbit/s)\n",
            ),
            (
                Verified { differing: 1, unreadable: 2, ..well },
                "1 differing, 2 unreadable, 3 as the receipt says; 1 GiB read in 1.00 s: \
                 1074 MB/s (8.59 Gbit/s)\n",
            ),
        ];
        for (found, expect) in cases {
            assert_eq!(verified(&found, second), expect);
        }
    }

    #[test]
    fn a_failure_names_its_file_once() {
        let cases: [(&[u8], &str, &str); 3] = [
            (b"a", "cannot open 'a': no", "cannot open 'a': no"),
            (b"b", "no room", "b: no room"),
            (b"", "no room", "no room"),
        ];
        for (path, why, expect) in cases {
            assert_eq!(failed(path, &Fault::new(Class::Local, why)), expect);
        }
    }
}
