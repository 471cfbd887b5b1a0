//! A campaign as text: its duration, its order, its results.

use serde::Serialize;

use super::explain::bits;
use super::live;
use super::sheet::{self, Form, Sheet};
use crate::campaign::study::{
    self, Best, Choice, Growth, Length, Model, PASSES_MIN, Point, Row as Found,
};
use crate::campaign::{Cell, Extent, Kind, Plan, Setting};
use crate::record::sample::Record;
use crate::statistics::Estimate;
use base::units::{Bytes, Nanos};

/// A cell for other programs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    pub order_index: u32,
    pub host: String,
    pub choice: &'static str,
    /// Null where the window is left to TCP.
    pub window_bytes: Option<u32>,
    pub streams: u16,
    pub compress: String,
    /// One of the two ends the copy.
    pub extent_s: Option<f64>,
    pub extent_bytes: Option<u64>,
    pub pass: u32,
}

/// The plan of a campaign, and its duration.
pub fn opening(hosts: &[String], plan: &Plan) -> String {
    let load = plan.load(ASSUMED_BYTES_PER_S);
    let grid = &plan.grid;
    let has_sizes = grid.extents.iter().any(|extent| matches!(extent, Extent::Bytes(_)));
    let assumed = if has_sizes { ", if paths carry 100 Mbit/s" } else { "" };
    format!(
        "{} on {}: {} x {} x {} x {}, plus {}, repeated {}\n\
         estimated duration {}{assumed}; each path is loaded for {} of it ({:.0} %); the seed \
         is {}",
        live::count(load.cells as u64, "cell"),
        live::count(hosts.len() as u64, "host"),
        live::count(grid.windows.len() as u64, "window"),
        live::count(grid.streams.len() as u64, "number") + " of streams",
        live::count(grid.levels.len() as u64, "level"),
        live::count(grid.extents.len() as u64, "length"),
        live::count(plan.auto.len() as u64, "automatic setting"),
        live::count(plan.passes.into(), "time"),
        live::clock(Nanos((load.duration_s * 1e9) as u64)),
        live::clock(Nanos((load.path_busy_s * 1e9) as u64)),
        load.path_busy_s / load.duration_s.max(1e-9) * 100.0,
        plan.seed,
    )
}

/// The order of all cells.
pub fn order(hosts: &[String], cells: &[Cell]) -> String {
    let columns = ["cell", "pass", "host", "window", "streams", "level", "length", "choice"];
    let mut sheet = Sheet::new("The order", &columns);
    for cell in cells {
        sheet.row(vec![
            cell.index.to_string(),
            (cell.pass + 1).to_string(),
            hosts[cell.host].clone(),
            window(cell.setting.window_bytes),
            cell.setting.streams.to_string(),
            level(&cell.setting),
            cell.extent.typed(),
            cell.kind.name().to_string(),
        ]);
    }
    sheet.write(Form::Text)
}

pub fn rows(hosts: &[String], cells: &[Cell]) -> Vec<Row> {
    let row = |cell: &Cell| {
        let (extent_s, extent_bytes) = match cell.extent {
            Extent::Time(time) => (Some(time.seconds()), None),
            Extent::Bytes(bytes) => (None, Some(bytes)),
        };
        Row {
            order_index: cell.index,
            host: hosts[cell.host].clone(),
            choice: cell.kind.name(),
            window_bytes: cell.setting.window_bytes,
            streams: cell.setting.streams,
            compress: cell.setting.compress.typed(),
            extent_s,
            extent_bytes,
            pass: cell.pass,
        }
    };
    cells.iter().map(row).collect()
}

pub(crate) fn window(bytes: Option<u32>) -> String {
    bytes.map_or("auto".into(), |bytes| Bytes(bytes.into()).typed())
}

fn level(setting: &Setting) -> String {
    plain(&setting.compress.typed())
}

/// zlib's levels as numbers, as SLAC wrote them; others as in `--compress`.
pub(crate) fn plain(typed: &str) -> String {
    match typed.strip_prefix("zlib:") {
        Some(level) => level.to_string(),
        None if typed == "off" => "0".to_string(),
        None => typed.to_string(),
    }
}

/// A finished cell, in one line.
pub fn line(hosts: &[String], cell: &Cell, record: &Record, done: usize, of: usize) -> String {
    let rows = study::rows(std::slice::from_ref(record));
    let figures = rows.first().map(figures).unwrap_or_default();
    format!("{done:>4} of {of}  {}: {figures}", words(hosts, cell))
}

/// `anl  window 64K  8 streams  level 1  10s`.
pub fn words(hosts: &[String], cell: &Cell) -> String {
    let setting = &cell.setting;
    format!(
        "{}  window {}  {}  level {}  {}{}",
        hosts[cell.host],
        window(setting.window_bytes),
        live::count(setting.streams.into(), "stream"),
        level(setting),
        cell.extent.typed(),
        if cell.kind == Kind::Auto { "  (auto)" } else { "" },
    )
}

fn figures(row: &Found) -> String {
    let mut text = bits(row.rate.median);
    if let Some(ratio) = row.compression_ratio.filter(|ratio| *ratio > 1.005) {
        text.push_str(&format!(", compression ratio {ratio:.2}"));
    }
    let (rest, load) = (millis(row.rtt_unloaded_s), millis(row.rtt_loaded_s));
    text.push_str(&format!(", round trip {rest} at rest, {load} under load"));
    text.push_str(&format!(", CPU {} here, {} there", cpu(row.cpu_source), cpu(row.cpu_sink)));
    text
}

/// The results of a campaign.
/// `left`: the hosts with missing cells, and how many.
pub fn page(name: &str, records: &[Record], left: &[(String, usize)], form: Form) -> String {
    let rows = study::rows(records);
    let hosts: Vec<&str> = study::best(&rows).iter().map(|best| best.host).collect();
    let mut text = String::new();
    for host in hosts {
        text.push_str(&host_sheet(host, &rows).write(form));
        text.push('\n');
    }
    for sheet in growth_sheets(&rows) {
        text.push_str(&sheet.write(form));
        text.push('\n');
    }
    let mut best = best_sheet(name, records, &rows);
    if !left.is_empty() {
        let of = |(host, cells): &(String, usize)| {
            format!("{host} ({})", live::count(*cells as u64, "cell"))
        };
        let hosts: Vec<String> = left.iter().map(of).collect();
        let hosts = hosts.join(", ");
        best.note(format!("not measured: {hosts}; continue with: datapump sweep --resume {name}"));
    }
    text.push_str(&best.write(form));
    text
}

fn host_sheet(host: &str, rows: &[Found]) -> Sheet {
    let mut sheet = Sheet::new(format!("{host}: medians of all passes"), &COLUMNS);
    let mut of_host: Vec<&Found> = rows.iter().filter(|row| row.point.host == host).collect();
    of_host.sort_by(|a, b| b.rate.median.total_cmp(&a.rate.median));
    for row in of_host {
        let Point { kind, choice, extent, .. } = &row.point;
        sheet.row(vec![
            window(choice.window_bytes),
            choice.streams.to_string(),
            plain(&choice.level),
            extent.typed(),
            kind.name().into(),
            row.rate.n.to_string(),
            bits(row.rate.median),
            range(row),
            row.compression_ratio.map_or("-".into(), |ratio| format!("{ratio:.2}")),
            millis(row.rtt_unloaded_s),
            millis(row.rtt_loaded_s),
            cpu(row.cpu_source),
            cpu(row.cpu_sink),
        ]);
    }
    let disturbed: usize = rows.iter().filter(|r| r.point.host == host).map(|r| r.disturbed).sum();
    if disturbed > 0 {
        let cells = live::count(disturbed as u64, "cell");
        sheet.note(format!("in {cells} the hypervisor took more than 1 % of CPU time (steal)"));
    }
    sheet
}

fn growth_sheets(rows: &[Found]) -> Vec<Sheet> {
    study::growths(rows).iter().map(growth_sheet).collect()
}

fn growth_sheet(growth: &Growth<'_>) -> Sheet {
    let first = &growth.lengths[0].row.point;
    let title = format!("{}: how long a copy must be, {}", first.host, chosen_by(first));
    let columns = ["length", "n", "median", "95 %", "IQR", "of the longest"];
    let mut sheet = Sheet::new(title, &columns);
    for Length { row, rate } in &growth.lengths {
        sheet.row(vec![
            row.point.extent.typed(),
            row.rate.n.to_string(),
            bits(rate.value),
            format!("{} to {}", bits(rate.low), bits(rate.high)),
            range(row),
            sheet::percent(rate.value / growth.asymptote.value),
        ]);
    }
    let Estimate { value, low, high } = growth.asymptote;
    let asymptote = format!("{} ({} to {})", bits(value), bits(low), bits(high));
    let from = |length: Length<'_>| {
        format!("from {} ({}) on", length.row.point.extent.typed(), other_length(length))
    };
    if let Some(length) = growth.close_at {
        let from = from(length);
        sheet.note(format!("{from} the rate is within 5 % of the three longest, {asymptote}"));
    }
    sheet.note(match growth.reached_at {
        Some(length) => format!(
            "{} the rate no longer increases: its 95 % interval overlaps that of the three longest",
            from(length)
        ),
        None => "the rate is still increasing: no 95 % interval overlaps that of the three longest"
            .to_string(),
    });
    if let Some([shorter, longer]) = growth.fall {
        sheet.note(format!(
            "from {} to {} the rate falls, and their 95 % intervals do not overlap: conditions \
             changed during the campaign",
            shorter.row.point.extent.typed(),
            longer.row.point.extent.typed(),
        ));
    }
    if let Some(Model { t0_s, bytes_per_s }) = &growth.model {
        sheet.note(format!(
            "time = {:.3} s ({:.3} to {:.3}) + bytes / {} ({} to {})",
            t0_s.value,
            t0_s.low,
            t0_s.high,
            bits(bytes_per_s.value),
            bits(bytes_per_s.low),
            bits(bytes_per_s.high),
        ));
    }
    if growth.lengths.iter().any(|length| length.row.rate.n < REPEATS_MIN) {
        sheet.note(few_passes());
    }
    sheet
}

/// For a number of bytes its time, for a time its bytes.
fn other_length(length: Length<'_>) -> String {
    match length.row.point.extent {
        Extent::Bytes(bytes) => format!("{:.1} s", bytes as f64 / length.rate.value),
        Extent::Time(time) => Bytes((time.seconds() * length.rate.value) as u64).to_string(),
    }
}

fn best_sheet(name: &str, records: &[Record], rows: &[Found]) -> Sheet {
    let columns = ["host", "best of the grid", "median", "auto", "median", "auto/best", "95 %"];
    let mut sheet = Sheet::new(format!("{name}: the best setting of each host"), &columns);
    for best in study::best(rows) {
        let (setting, rate) = best.grid.map_or(("-".into(), "-".into()), |row| {
            (chosen(&row.point.choice), bits(row.rate.median))
        });
        for (auto, ratio) in &best.auto {
            sheet.row(vec![
                best.host.into(),
                setting.clone(),
                rate.clone(),
                chosen(&auto.point.choice),
                bits(auto.rate.median),
                ratio.map_or("-".into(), |ratio| format!("{:.3}", ratio.value)),
                ratio.map_or("-".into(), |r| interval(&r)),
            ]);
        }
    }
    if let Some(duty) = study::duty(records) {
        sheet.note(format!(
            "{}; load in {} of the time",
            live::count(records.len() as u64, "cell"),
            sheet::percent(duty)
        ));
    }
    if rows.iter().any(|row| row.rate.n < REPEATS_MIN) {
        sheet.note(few_passes());
    }
    sheet.note("'datapump sweep profile' saves the recommended settings, for copy --profile HOST");
    sheet
}

/// Differences of the second campaign from the first.
pub fn comparison(names: [&str; 2], before: &[Record], after: &[Record], form: Form) -> String {
    let (before, after) = (study::rows(before), study::rows(after));
    let changes = study::changes(&before, &after);
    let columns =
        ["host", "setting", "length", "before", "after", "after/before", "95 %", "changed"];
    let mut sheet = Sheet::new(format!("{} compared with {}", names[1], names[0]), &columns);
    for change in &changes {
        let point = &change.after.point;
        let changed = match change.ratio {
            Some(ratio) if change.is_one() && ratio.value > 1.0 => "faster",
            Some(_) if change.is_one() => "slower",
            _ => "no",
        };
        sheet.row(vec![
            point.host.clone(),
            chosen_by(point),
            point.extent.typed(),
            bits(change.before.rate.median),
            bits(change.after.rate.median),
            change.ratio.map_or("-".into(), |ratio| format!("{:.3}", ratio.value)),
            change.ratio.map_or("-".into(), |ratio| interval(&ratio)),
            changed.into(),
        ]);
    }
    let only = before.len() + after.len() - 2 * changes.len();
    if only > 0 {
        sheet.note(format!("{} in only one campaign", live::count(only as u64, "setting")));
    }
    if changes.iter().any(|change| change.before.rate.n.min(change.after.rate.n) < REPEATS_MIN) {
        sheet.note(few_passes());
    }
    sheet.write(form)
}

/// The lines of a profile: options of `copy` with their values.
pub fn profile(name: &str, best: &Best<'_>) -> String {
    let mut text = format!("# {}, measured by {name}\n", best.host);
    let Some(row) = best.advised() else {
        text.push_str("# no setting is significantly faster than the defaults");
        if best.grid.is_some_and(|row| row.rate.n < PASSES_MIN) {
            text.push_str(&format!(" (at least {PASSES_MIN} passes are needed)"));
        }
        text.push('\n');
        return text;
    };
    let Choice { window_bytes, streams, level } = &row.point.choice;
    text.push_str(&format!("# {}, over {} passes\n", bits(row.rate.median), row.rate.n));
    text.push_str(&format!("streams {streams}\nwindow {}\n", window(*window_bytes)));
    if best.usual().is_none_or(|usual| usual.point.choice.level != *level) {
        text.push_str(&format!("compress {level}\n"));
    }
    text
}

/// True for what `profile` writes.
pub fn is_profile(text: &str) -> bool {
    let first = text.lines().next().unwrap_or_default();
    first.starts_with("# ") && first.contains(", measured by ")
}

pub(crate) fn chosen(choice: &Choice) -> String {
    let Choice { window_bytes, streams, level } = choice;
    let streams = live::count((*streams).into(), "stream");
    format!("window {}, {streams}, level {}", window(*window_bytes), plain(level))
}

/// The same, with `auto` for the program's own choice.
fn chosen_by(point: &Point) -> String {
    let by = if point.kind == Kind::Auto { ", auto" } else { "" };
    chosen(&point.choice) + by
}

/// A single pass has no range.
fn range(row: &Found) -> String {
    match row.rate.n {
        1 => "-".into(),
        _ => bits(row.rate.interquartile_range()),
    }
}

fn few_passes() -> String {
    format!("an interval of fewer than {REPEATS_MIN} passes is unreliable")
}

fn interval(ratio: &Estimate) -> String {
    match ratio.low == ratio.high {
        true => "-".into(),
        false => format!("{:.3} to {:.3}", ratio.low, ratio.high),
    }
}

fn millis(seconds: Option<f64>) -> String {
    seconds.map(|seconds| seconds * 1e3).map_or("-".into(), |ms| match ms < 1.0 {
        true => format!("{ms:.3} ms"),
        false => format!("{ms:.1} ms"),
    })
}

fn cpu(share: Option<f64>) -> String {
    share.map_or("-".into(), |share| format!("{:.0} %", share * 100.0))
}

const COLUMNS: [&str; 13] = [
    "window", "streams", "level", "length", "choice", "n", "median", "IQR", "ratio", "rest",
    "load", "CPU here", "there",
];
/// With fewer repeats an interval says little.
const REPEATS_MIN: usize = 5;
/// The assumed rate of a path that is not known: 100 Mbit/s.
pub const ASSUMED_BYTES_PER_S: f64 = 12.5e6;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::campaign::study::tests::campaign;
    use crate::campaign::study::{best, rows};

    #[test]
    fn pages() {
        let (before, after) = (campaign([40, 40, 41, 39, 40]), campaign([50, 51, 50, 49, 50]));
        let left = [("ornl".to_string(), 3)];
        for form in [Form::Text, Form::Markdown] {
            let name = |page| format!("campaign-{page}-{form:?}").to_lowercase();
            insta::assert_snapshot!(name("page"), page("one", &before, &left, form));
            let compared = comparison(["one", "two"], &before, &after, form);
            insta::assert_snapshot!(name("comparison"), compared);
        }
        let rows = rows(&before);
        insta::assert_snapshot!("campaign-profile", profile("one", &best(&rows)[0]));
    }
}
