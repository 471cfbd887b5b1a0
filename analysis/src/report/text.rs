//! The end of a run as text.

use base::codec::Coding;
use base::job::{Carrier, FreeSpace, Outcome};
use base::settings::{Delete, Overwrite, Pace, Settings, SkipUnchanged};
use base::tally::{SideReport, Stage, Tally};
use base::units::{Bytes, Nanos, Rate};

use super::escape;
use super::live::count;
use crate::record::compression::{Compression, HeldBy, Without};

/// The summary of a transfer in a few lines: what moved, how fast, and what was there before.
pub fn summary(outcome: &Outcome, settings: &Settings) -> String {
    if let Some(room) = outcome.dry {
        return dry_run(outcome, settings, room);
    }
    let mut text = headline(outcome, settings);
    let before: Vec<String> =
        history(outcome).into_iter().map(|(name, value)| format!("{name}: {value}")).collect();
    if !before.is_empty() {
        text.push_str(&format!("  {}\n", before.join("; ")));
    }
    text
}

/// The figures of a transfer: how it moved, what it cost each side, and how the time of its
/// requests divides.
pub fn statistics(outcome: &Outcome, settings: &Settings) -> String {
    let mut text = String::from("\n");
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

/// The result of a dry run.
fn dry_run(outcome: &Outcome, settings: &Settings, room: FreeSpace) -> String {
    let failed = match outcome.failed {
        0 => String::new(),
        failed => format!("; {failed} would NOT be copied"),
    };
    let mut text = format!(
        "Dry run: would copy {}, {}{}{}{failed}\n",
        count(outcome.files, "file"),
        Bytes(outcome.bytes),
        kept(outcome, settings),
        deleted(outcome),
    );
    let mut facts = history(outcome);
    if let Some(free_bytes) = room.free_bytes {
        let verdict = match room.missing_bytes {
            0 => "enough".to_string(),
            missing => format!("{} are missing", Bytes(missing)),
        };
        facts.push(("free space", format!("{}, {verdict}", Bytes(free_bytes))));
    }
    for (name, value) in facts {
        text.push_str(&format!("  {name:<NAME_WIDTH$}{value}\n"));
    }
    text
}

/// Files that were left as they are, and why.
fn kept(outcome: &Outcome, settings: &Settings) -> String {
    let skips = settings.skip_unchanged != SkipUnchanged::No;
    let why = match settings.overwrite {
        Overwrite::Older if skips => "unchanged or newer at the destination",
        Overwrite::Older => "not older at the destination",
        _ => "unchanged",
    };
    match outcome.kept {
        0 => String::new(),
        kept => format!("; {kept} kept ({why})"),
    }
}

fn folders(outcome: &Outcome) -> String {
    match outcome.directories {
        0 => String::new(),
        1 => ", 1 folder".to_string(),
        folders => format!(", {folders} folders"),
    }
}

/// What was removed at the destination, or would be.
fn deleted(outcome: &Outcome) -> String {
    match (outcome.deleted, outcome.dry) {
        (0, _) => String::new(),
        (names, None) => format!("; {} deleted", count(names, "name")),
        (names, Some(_)) => format!("; would delete {}", count(names, "name")),
    }
}

/// `1.46 GiB in 3.40 s, 1 file: 461 MB/s (3.69 Gbit/s)`.
fn headline(outcome: &Outcome, settings: &Settings) -> String {
    let failed = match outcome.failed {
        0 => String::new(),
        failed if settings.delete != Delete::Off => format!("; {failed} NOT copied or deleted"),
        failed => format!("; {failed} NOT copied"),
    };
    let (kept, folders, deleted) = (kept(outcome, settings), folders(outcome), deleted(outcome));
    let of_all = match outcome.resumed_bytes {
        0 => String::new(),
        _ => format!(" of {}", Bytes(outcome.bytes)),
    };
    let login = match outcome.far {
        Some(_) => format!(" after {} of login", outcome.login),
        None => String::new(),
    };
    let rate = match outcome.moved_bytes() - outcome.hole_bytes() {
        0 => String::new(),
        _ => format!(": {}", outcome.rate()),
    };
    format!(
        "{}{of_all} in {}{login}, {}{folders}{rate}{kept}{deleted}{failed}\n",
        with_holes(outcome.moved_bytes(), outcome.hole_bytes()),
        outcome.moving(),
        count(outcome.files, "file"),
    )
}

/// `2 GiB (of which 1.99 GiB holes)`.
pub(crate) fn with_holes(bytes: u64, hole_bytes: u64) -> String {
    match hole_bytes {
        0 => Bytes(bytes).to_string(),
        _ => format!("{} (of which {} holes)", Bytes(bytes), Bytes(hole_bytes)),
    }
}

/// Options and what became of them, one fact per line.
fn facts(outcome: &Outcome, settings: &Settings) -> Vec<(&'static str, String)> {
    let checks = format!("digest {}, fsync {}", settings.digest.name(), settings.fsync.name());
    let mut facts = vec![("bytes", outcome.moved_bytes().to_string())];
    facts.extend(since_connected(outcome));
    match outcome.carrier {
        Carrier::Memory => {
            facts.push(("path", "inside this process, no network".to_string()));
            if settings.compress.is_on() {
                facts.push(("compression", "not used within one process".to_string()));
            }
            facts.push(("checks", checks));
        }
        Carrier::Tcp => {
            let streams = count(outcome.streams.into(), "TCP stream");
            let at_end = outcome.stream_steps.last().filter(|last| last.to != outcome.streams);
            let at_end = at_end.map_or(String::new(), |last| format!(", {} at the end", last.to));
            facts.push(("path", format!("{streams} to the far port{at_end}")));
            facts.push(("wire", wire(outcome)));
            facts.extend(compressed(outcome));
            facts.push(("checks", format!("seal {}, {checks}", settings.seal.name())));
            facts.push(("window", window(outcome, settings)));
            facts.extend(settled(outcome, settings));
        }
        Carrier::Control => {
            facts.push((
                "path",
                "the ssh connection: no data port was reached before all was copied".to_string(),
            ));
            facts.push(("wire", wire(outcome)));
            facts.extend(compressed(outcome));
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

/// What was there before, what was left out, and lost connections.
fn history(outcome: &Outcome) -> Vec<(&'static str, String)> {
    let mut facts = Vec::new();
    if outcome.resumed_bytes > 0 || outcome.held_files > 0 {
        let bytes = Bytes(outcome.resumed_bytes);
        let files = match outcome.held_files {
            0 => String::new(),
            files => format!(", and {}", count(files, "finished file")),
        };
        facts.push(("resumed", format!("{bytes} from an earlier run{files}")));
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

/// The counts of a side start at the last connection.
fn since_connected(outcome: &Outcome) -> Option<(&'static str, String)> {
    let bytes = source(outcome).tally.bytes;
    let text = || format!("figures below cover the last connection only ({})", Bytes(bytes));
    (outcome.retries > 0).then(|| ("connection", text()))
}

/// `4.02 GiB, 0.52 % more than the payload`.
fn wire(outcome: &Outcome) -> String {
    let Tally { wire_bytes, bytes, .. } = source(outcome).tally;
    match bytes {
        0 => Bytes(wire_bytes).to_string(),
        bytes => {
            let more = (wire_bytes as f64 / bytes as f64 - 1.0) * 100.0;
            let word = if more < 0.0 { "less" } else { "more" };
            let percent = more.abs();
            format!("{}, {percent:.2} % {word} than the payload", Bytes(wire_bytes))
        }
    }
}

/// What compression did to the payloads, and its CPU time at both ends.
fn compressed(outcome: &Outcome) -> Vec<(&'static str, String)> {
    let counts = &source(outcome).tally.compression;
    let Some(ratio) = counts.ratio() else { return Vec::new() };
    let shares: Vec<String> = counts
        .shares()
        .into_iter()
        .map(|(coding, share)| match coding {
            Coding::Raw => format!("{:.0} % uncompressed", share * 100.0),
            coding => format!("{:.0} % {}", share * 100.0, coding.typed()),
        })
        .collect();
    let mut facts = vec![(
        "compressed",
        format!(
            "{} to {}, a ratio of {ratio:.2}: {}",
            Bytes(counts.raw_bytes()),
            Bytes(counts.compressed_bytes),
            shares.join(", ")
        ),
    )];
    let Some(compression) = Compression::of(outcome) else { return facts };
    let spent: Vec<Nanos> =
        sides(outcome).iter().map(|(_, side)| side.tally.stages[Stage::Codec as usize]).collect();
    if let ([compress, decompress], Some(c_over_x)) =
        (&spent[..], compression.compress_over_decompress)
    {
        let text = format!(
            "{compress} to compress, {decompress} to decompress: compressing takes {c_over_x:.1}x \
             as long as decompressing"
        );
        facts.push(("codec", text));
    }
    facts.extend(compression.without.map(|without| ("off", without_compression(without))));
    facts
}

/// The estimate for `--compress off`, and its reason.
fn without_compression(without: Without) -> String {
    let rate = Rate { bytes_per_second: without.bytes_per_s };
    let (bound, why) = match without.held_by {
        HeldBy::Wire => ("", "the network was the limit"),
        HeldBy::Compression => {
            ("at least ", "compression was the limit, the network had capacity left")
        }
        HeldBy::Decompression => {
            ("at least ", "decompression was the limit, the network had capacity left")
        }
        HeldBy::Source => ("", "the source was the limit"),
    };
    format!("uncompressed estimate: {bound}{rate}; {why}")
}

/// The requested window, and the largest that the sink's TCP advertised to the source.
fn window(outcome: &Outcome, settings: &Settings) -> String {
    let asked = match settings.window_bytes {
        Some(bytes) => format!("requested {}", Bytes(bytes.into())),
        None => "automatic".to_string(),
    };
    match source(outcome).window_seen_bytes {
        0 => format!("{asked}, advertised: unknown"),
        seen => format!("{asked}, advertised {}", Bytes(seen)),
    }
}

/// Settings of the streams that differ from the host's defaults.
fn settled(outcome: &Outcome, settings: &Settings) -> Vec<(&'static str, String)> {
    let mut facts = Vec::new();
    let chosen = source(outcome).pace_bytes_per_s;
    let rate = |bytes_per_s: u64| Rate { bytes_per_second: bytes_per_s as f64 };
    match (settings.pace, chosen) {
        (Pace::Fixed(rate), _) => facts.push(("pace", format!("{rate}, all streams together"))),
        (Pace::Auto, Some(pace)) => {
            facts.push(("pace", format!("{}, as bursts were lost", rate(pace))));
        }
        (Pace::Scavenger, Some(pace)) => {
            facts.push(("pace", format!("{}, as others leave so much", rate(pace))));
        }
        (Pace::Auto | Pace::Scavenger | Pace::Off, _) => {}
    }
    if let Some(dscp) = settings.dscp {
        facts.push(("DSCP", format!("{dscp} ({})", dscp.code())));
    }
    if let Some(lockstep) = settings.lockstep {
        facts.push((
            "lockstep",
            format!(
                "each stream stopped after {}, for {} (--lockstep)",
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
    match per_byte(spent, source(outcome).tally.bytes) {
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

/// An engine's name, and why it is not the requested one: `threads (io_uring is switched off)`.
fn engine(side: &SideReport) -> (&str, Option<&str>) {
    match side.engine.split_once(" (") {
        Some((name, why)) => (name, Some(why.strip_suffix(')').unwrap_or(why))),
        None => (&side.engine, None),
    }
}

/// Columns padded to their widest cell; trailing spaces are removed.
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

/// How the time of a side's requests divides, in one sentence.
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
        "  {name}: mean request time {}{steps}:\n    \
         {}, {}, {}, {}.\n",
        mean(total),
        part("filling", life.fill),
        part("passing", life.pass),
        part("waiting", life.gate),
        part("draining", life.drain),
    )
}

/// The sides with their roles, source first.
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

/// The width of a name and the space after it.
const NAME_WIDTH: usize = 18;

#[cfg(test)]
pub(super) mod sample {
    use super::*;
    use base::tally::{About, Life};

    fn seconds(seconds: f64) -> Nanos {
        Nanos((seconds * 1e9) as u64)
    }

    /// A plausible push of 4 GiB over four streams.
    pub(crate) fn push() -> Outcome {
        let near = SideReport {
            tally: Tally {
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
                ..Tally::default()
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
            room: FreeSpace::default(),
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
            deleted: 0,
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
            stream_steps: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::fault::Class;

    /// The output of a copy, without and with `--stats`.
    fn check(name: &str, outcome: &Outcome) {
        let settings = Settings::default();
        let summary = summary(outcome, &settings);
        assert!(summary.lines().count() <= 3, "{summary}");
        let statistics = match outcome.dry {
            None => statistics(outcome, &settings),
            Some(_) => String::new(),
        };
        insta::assert_snapshot!(name, format!("{summary}{statistics}"));
    }

    #[test]
    fn a_push() {
        check("push", &sample::push());
    }

    /// A rate is of what was read, sent and written: holes took no time worth the name.
    #[test]
    fn holes_are_told_and_have_no_rate() {
        let cases = [
            (0, "4 GiB in 3.40 s after 220.0 ms of login, 1 file: 1263 MB/s"),
            (3 << 30, "4 GiB (of which 3 GiB holes) in 3.40 s after 220.0 ms of login, 1 file: 31"),
            // A lost stream had carried them too.
            (5 << 30, "4 GiB (of which 4 GiB holes) in 3.40 s after 220.0 ms of login, 1 file\n"),
        ];
        for (hole_bytes, expect) in cases {
            let mut outcome = sample::push();
            outcome.near.tally.hole_bytes = hole_bytes;
            let line = headline(&outcome, &Settings::default());
            assert!(line.starts_with(expect), "{line}");
        }
    }

    #[test]
    fn a_dry_run() {
        let mut outcome = sample::push();
        (outcome.files, outcome.kept, outcome.failed) = (3, 2, 1);
        outcome.near.excluded = 4;
        outcome.excluded = 4;
        outcome.dry = Some(FreeSpace { free_bytes: Some(3 << 30), missing_bytes: 1 << 30 });
        check("dry-run", &outcome);
    }

    /// One denominator for what this run moved, and another for the counts of the sides since their
    /// last connection.
    #[test]
    fn an_earlier_run_and_reconnections() {
        let mut outcome = sample::push();
        (outcome.resumed_bytes, outcome.held_files, outcome.retries) = (2 << 30, 7, 2);
        for side in [&mut outcome.near, outcome.far.as_mut().unwrap()] {
            (side.tally.bytes, side.tally.wire_bytes) = (1 << 30, (1 << 30) + (5 << 20));
        }
        check("resumed-and-reconnected", &outcome);
    }

    #[test]
    fn a_pull_over_the_ssh_connection_with_failures() {
        let mut outcome = sample::push();
        outcome.near_is_source = false;
        outcome.carrier = Carrier::Control;
        (outcome.files, outcome.directories, outcome.failed) = (340, 12, 2);
        outcome.worst = Some(Class::SomeFailed);
        check("pull-over-ssh", &outcome);
    }

    #[test]
    fn nothing_at_all_on_this_host() {
        let mut outcome = sample::push();
        (outcome.bytes, outcome.files, outcome.far) = (0, 0, None);
        (outcome.carrier, outcome.login) = (Carrier::Memory, Nanos(0));
        outcome.near = SideReport { engine: "threads".into(), depth: 1, ..SideReport::default() };
        check("nothing", &outcome);
    }

    /// Files that are kept have a reason.
    #[test]
    fn what_is_kept_is_told_why() {
        let outcome = Outcome { kept: 2, ..sample::push() };
        let cases = [
            (Overwrite::Never, SkipUnchanged::Times, "; 2 kept (unchanged)"),
            (Overwrite::Older, SkipUnchanged::No, "; 2 kept (not older at the destination)"),
            (
                Overwrite::Older,
                SkipUnchanged::Times,
                "; 2 kept (unchanged or newer at the destination)",
            ),
        ];
        for (overwrite, skip_unchanged, expect) in cases {
            let settings = Settings { overwrite, skip_unchanged, ..Settings::default() };
            assert_eq!(kept(&outcome, &settings), expect);
        }
    }
}
