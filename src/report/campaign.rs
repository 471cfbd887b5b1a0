//! A campaign in words: what it will take, its order, what it found.

use serde::Serialize;

use super::live;
use super::sheet::{Form, Sheet};
use crate::base::units::{Bytes, Nanos};
use crate::lab::campaign::{Cell, Extent, Plan, Setting};

/// A cell for other programs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    pub order_index: u32,
    pub host: String,
    pub kind: &'static str,
    /// Null where the window is left to TCP.
    pub window_bytes: Option<u32>,
    pub streams: u16,
    pub compress: String,
    /// One of both ends the copy.
    pub seconds: Option<f64>,
    pub bytes: Option<u64>,
    pub pass: u32,
}

/// What a campaign is, and what it will take.
pub fn opening(hosts: &[String], plan: &Plan) -> String {
    let load = plan.load(ASSUMED_BYTES_PER_S);
    let grid = &plan.grid;
    let has_sizes = grid.extents.iter().any(|extent| matches!(extent, Extent::Bytes(_)));
    let assumed = if has_sizes { ", if paths carry 100 Mbit/s" } else { "" };
    format!(
        "{} on {}: {} x {} x {} x {}, and {} of its own choice, {}\n\
         that takes about {}{assumed}; each path is loaded for {} of it ({:.0} %); the seed is {}",
        live::count(load.cells as u64, "cell"),
        live::count(hosts.len() as u64, "host"),
        live::count(grid.windows.len() as u64, "window"),
        live::count(grid.streams.len() as u64, "number") + " of streams",
        live::count(grid.levels.len() as u64, "level"),
        live::count(grid.extents.len() as u64, "length"),
        plan.auto.len(),
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
        let (seconds, bytes) = match cell.extent {
            Extent::Time(time) => (Some(time.seconds()), None),
            Extent::Bytes(bytes) => (None, Some(bytes)),
        };
        Row {
            order_index: cell.index,
            host: hosts[cell.host].clone(),
            kind: cell.kind.name(),
            window_bytes: cell.setting.window_bytes,
            streams: cell.setting.streams,
            compress: cell.setting.compress.typed(),
            seconds,
            bytes,
            pass: cell.pass,
        }
    };
    cells.iter().map(row).collect()
}

fn window(bytes: Option<u32>) -> String {
    bytes.map_or("auto".into(), |bytes| Bytes(bytes.into()).typed())
}

/// zlib's levels as numbers, as SLAC wrote them; others in the words of `--compress`.
fn level(setting: &Setting) -> String {
    let typed = setting.compress.typed();
    match typed.strip_prefix("zlib:") {
        Some(level) => level.to_string(),
        None if typed == "off" => "0".to_string(),
        None => typed,
    }
}

/// How fast a path is taken to be when nothing is known of it: 100 Mbit/s.
const ASSUMED_BYTES_PER_S: f64 = 12.5e6;
