//! A campaign as text: its duration, its order, its results.

use serde::Serialize;

use super::explain::bits;
use super::live;
use super::sheet::{self, Form, Sheet};
use crate::campaign::study::{
    self, Best, Choice, Growth, HeldBack, Length, Model, PASSES_MIN, Point, Row as Found,
};
use crate::campaign::{Axes, Cell, Extent, Kind, Load, Plan, Setting};
use crate::diagnosis::store::{StoreBottleneck, StoreVerdict};
use crate::record::sample::Record;
use crate::statistics::Estimate;
use base::units::{Bytes, Nanos};

/// A cell for other programs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    pub order_index: u32,
    pub host: String,
    pub choice: &'static str,
    #[serde(flatten)]
    pub setting: Options,
    /// One of the two ends the copy.
    pub extent_s: Option<f64>,
    pub extent_bytes: Option<u64>,
    pub pass: u32,
}

/// What a cell varies, by the names of the options of `copy`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Options {
    Path {
        /// Null where the window is left to TCP.
        window_bytes: Option<u32>,
        streams: u16,
        compress: String,
    },
    Store {
        /// Null where it is left to the program, as the depth.
        request_bytes: Option<u32>,
        depth: Option<u16>,
    },
}

/// The plan of a campaign, and its duration.
pub fn opening(hosts: &[String], plan: &Plan) -> String {
    let load = plan.load(ASSUMED_BYTES_PER_S);
    let grid = &plan.grid;
    let sizes = || grid.extents.iter().filter(|extent| matches!(extent, Extent::Bytes(_)));
    let assumed = if sizes().next().is_some() { ", if paths carry 100 Mbit/s" } else { "" };
    let (axes, routes) = match &grid.axes {
        Axes::Path { windows, streams, levels } => {
            let windows = live::count(windows.len() as u64, "window");
            let streams = live::count(streams.len() as u64, "number") + " of streams";
            let levels = live::count(levels.len() as u64, "level");
            (format!("{windows} x {streams} x {levels}"), live::count(hosts.len() as u64, "host"))
        }
        Axes::Store { request_sizes, depths } => {
            let sizes = live::count(request_sizes.len() as u64, "size") + " of requests";
            let depths = live::count(depths.len() as u64, "depth");
            (format!("{sizes} x {depths}"), live::count(hosts.len() as u64, "route"))
        }
    };
    format!(
        "{} on {routes}: {axes} x {}, plus {}, repeated {}\n\
         estimated duration {}{assumed}; each path is loaded for {} of it ({:.0} %); the seed \
         is {}",
        live::count(load.cells as u64, "cell"),
        live::count(grid.extents.len() as u64, "length"),
        live::count(plan.auto.len() as u64, "automatic setting"),
        live::count(plan.passes.into(), "time"),
        live::clock(Nanos((load.duration_s * 1e9) as u64)),
        live::clock(Nanos((load.path_busy_s * 1e9) as u64)),
        load.path_busy_s / load.duration_s.max(1e-9) * 100.0,
        plan.seed,
    )
}

/// The same where one setting is measured.
pub fn measuring(routes: &[String], plan: &Plan) -> String {
    let Load { duration_s, .. } = plan.load(ASSUMED_BYTES_PER_S);
    let lengths: Vec<String> = plan.grid.extents.iter().map(|extent| extent.typed()).collect();
    format!(
        "measuring {}: an object of {}, {} each\n\
         estimated duration {}, if paths carry 100 Mbit/s; the seed is {}",
        routes.join(" and "),
        lengths.join(", "),
        live::count(plan.passes.into(), "time"),
        live::clock(Nanos((duration_s * 1e9) as u64)),
        plan.seed,
    )
}

/// The order of all cells.
pub fn order(hosts: &[String], cells: &[Cell]) -> String {
    let names = cells.first().map_or(PATH_AXES, |cell| axes(&cell.setting).0);
    let columns = [&["cell", "pass", "host"], names, &["length", "choice"]].concat();
    let mut sheet = Sheet::new("The order", &columns);
    for cell in cells {
        let place = [cell.index.to_string(), (cell.pass + 1).to_string()];
        let mut row = place.to_vec();
        row.push(hosts[cell.host].clone());
        row.extend(axes(&cell.setting).1);
        row.extend([cell.extent.typed(), cell.kind.name().to_string()]);
        sheet.row(row);
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
            setting: match cell.setting {
                Setting::Path { window_bytes, streams, compress } => {
                    Options::Path { window_bytes, streams, compress: compress.typed() }
                }
                Setting::Store { request_bytes, depth } => Options::Store { request_bytes, depth },
            },
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

/// A depth; `auto` where it is left to the program.
pub(crate) fn depth(depth: Option<u16>) -> String {
    depth.map_or("auto".into(), |depth| depth.to_string())
}

/// The names of the axes, and the values of a cell.
fn axes(setting: &Setting) -> (&'static [&'static str], Vec<String>) {
    match *setting {
        Setting::Path { window_bytes, streams, compress } => {
            (PATH_AXES, vec![window(window_bytes), streams.to_string(), compress.typed()])
        }
        Setting::Store { request_bytes, depth: requests } => {
            (STORE_AXES, vec![window(request_bytes), depth(requests)])
        }
    }
}

/// The same of copies that were made.
pub(crate) fn axes_of(choice: &Choice) -> (&'static [&'static str], Vec<String>) {
    match choice {
        Choice::Path { window_bytes, streams, level } => {
            (PATH_AXES, vec![window(*window_bytes), streams.to_string(), level.clone()])
        }
        Choice::Store { request_bytes, depth: requests } => {
            (STORE_AXES, vec![window(Some(*request_bytes)), depth(*requests)])
        }
    }
}

/// A finished cell, in one line.
pub fn line(hosts: &[String], cell: &Cell, record: &Record, done: usize, of: usize) -> String {
    let rows = study::rows(std::slice::from_ref(record));
    let figures = rows.first().map(figures).unwrap_or_default();
    format!("{done:>4} of {of}  {}: {figures}", words(hosts, cell))
}

/// `anl  window 64K  8 streams  compression zlib:1  10s`.
pub fn words(hosts: &[String], cell: &Cell) -> String {
    let setting = match cell.setting {
        Setting::Path { window_bytes, streams, compress } => format!(
            "window {}  {}  compression {}",
            window(window_bytes),
            live::count(streams.into(), "stream"),
            compress.typed(),
        ),
        Setting::Store { request_bytes, depth: requests } => {
            format!("request {}  depth {}", window(request_bytes), depth(requests))
        }
    };
    format!(
        "{}  {setting}  {}{}",
        hosts[cell.host],
        cell.extent.typed(),
        if cell.kind == Kind::Auto { "  (auto)" } else { "" },
    )
}

fn figures(row: &Found) -> String {
    let mut text = bits(row.rate.median);
    if let Some(ratio) = row.compression_ratio.filter(|ratio| *ratio > 1.005) {
        text.push_str(&format!(", compression ratio {ratio:.2}"));
    }
    if let Choice::Store { .. } = row.point.choice {
        let held_back = row
            .held_back
            .map_or(String::new(), |held| format!(", held back by: {}", bottleneck(held.class)));
        return format!("{text}, CPU {} here{held_back}", cpu(row.cpu_source));
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
    let mut of_host: Vec<&Found> = rows.iter().filter(|row| row.point.host == host).collect();
    of_host.sort_by(|a, b| b.rate.median.total_cmp(&a.rate.median));
    let names = of_host.first().map_or(PATH_AXES, |row| axes_of(&row.point.choice).0);
    let is_store = names == STORE_AXES;
    let more: &[&str] = if is_store { &STORE_COLUMNS } else { &PATH_COLUMNS };
    let columns = [names, &COLUMNS, more].concat();
    let mut sheet = Sheet::new(format!("{host}: medians of all passes"), &columns);
    for row in of_host {
        let Point { kind, choice, extent, .. } = &row.point;
        let mut cells = axes_of(choice).1;
        cells.extend([
            extent.typed(),
            kind.name().into(),
            row.rate.n.to_string(),
            bits(row.rate.median),
            range(row),
        ]);
        match is_store {
            true => cells.extend([cpu(row.cpu_source), held_back(row)]),
            false => cells.extend([
                row.compression_ratio.map_or("-".into(), |ratio| format!("{ratio:.2}")),
                millis(row.rtt_unloaded_s),
                millis(row.rtt_loaded_s),
                cpu(row.cpu_source),
                cpu(row.cpu_sink),
            ]),
        }
        sheet.row(cells);
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
    if rows.iter().any(|row| matches!(row.point.choice, Choice::Path { .. })) {
        let saves = "'datapump sweep profile' saves the recommended settings, for copy --profile \
                     HOST";
        sheet.note(saves);
    }
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

/// The lines of a profile: options of `copy` with their values. A store has none: the two ways
/// have settings of their own.
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
    let Choice::Path { window_bytes, streams, level } = &row.point.choice else { return text };
    text.push_str(&format!("# {}, over {} passes\n", bits(row.rate.median), row.rate.n));
    text.push_str(&format!("streams {streams}\nwindow {}\n", window(*window_bytes)));
    if best.usual().is_none_or(|usual| usual.point.choice.level() != level) {
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
    match choice {
        Choice::Path { window_bytes, streams, level } => {
            let streams = live::count((*streams).into(), "stream");
            format!("window {}, {streams}, compression {level}", window(*window_bytes))
        }
        Choice::Store { request_bytes, depth: requests } => {
            format!("request {}, depth {}", window(Some(*request_bytes)), depth(*requests))
        }
    }
}

/// What held most cells back; with fewer than all, how many.
pub(crate) fn held_back(row: &Found) -> String {
    match row.held_back {
        None => "-".into(),
        Some(HeldBack { class, cells, of }) if cells == of => bottleneck(class).into(),
        Some(HeldBack { class, cells, of }) => {
            format!("{} ({cells} of {of})", bottleneck(class))
        }
    }
}

fn bottleneck(class: Option<StoreBottleneck>) -> &'static str {
    class.map_or(StoreVerdict::MIXED, StoreBottleneck::name)
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

const PATH_AXES: &[&str] = &["window", "streams", "compression"];
const STORE_AXES: &[&str] = &["request", "depth"];
const COLUMNS: [&str; 5] = ["length", "choice", "n", "median", "IQR"];
const PATH_COLUMNS: [&str; 5] = ["ratio", "rest", "load", "CPU here", "there"];
const STORE_COLUMNS: [&str; 2] = ["CPU here", "held back by"];
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
