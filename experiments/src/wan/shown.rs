//! Printed output about a WAN.

use std::path::PathBuf;

use ::wan::{FAR_ADDRESS, Outcome, Rivals, SLOT, WayCounters, jain};

use super::control::Status;
use crate::page::table;

/// Its profile, and the counters of its packets.
pub(super) fn status(name: &str, status: &Status) -> String {
    let Status { profile, counters, pid, up_s, .. } = status;
    let forward = column(&counters.forward, *up_s);
    let back = column(&counters.back, *up_s);
    let mut text = format!("WAN {name}, process {pid}, up {up_s:.1} s\n{profile}\n");
    text.push_str(&format!("{:<24} {:>16} {:>16}", "", "near to far", "far to near"));
    for (row, (forward, back)) in ROWS.iter().zip(forward.iter().zip(back)) {
        text.push_str(&format!("\n{row:<24} {forward:>16} {back:>16}"));
    }
    text
}

/// The values of `ROWS`, in that order.
fn column(counters: &WayCounters, up_s: f64) -> [String; ROWS.len()] {
    let WayCounters { packets, late_ns_max, late_packets, kernel_drops, cpu_ns } = counters;
    [
        packets.packets_in.to_string(),
        packets.bytes_in.to_string(),
        packets.packets_out.to_string(),
        packets.bytes_out.to_string(),
        packets.policer_drops.to_string(),
        packets.queue_drops.to_string(),
        packets.aqm_drops.to_string(),
        packets.marks.to_string(),
        packets.losses.to_string(),
        packets.reordered.to_string(),
        packets.cut_drops.to_string(),
        kernel_drops.to_string(),
        packets.queue_bytes_max.to_string(),
        late_packets.to_string(),
        format!("{:.3}", *late_ns_max as f64 / 1e6),
        format!("{:.1}", *cpu_ns as f64 / 1e7 / up_s.max(1e-9)),
    ]
}

/// Example commands.
pub(super) fn example(name: &str, status: &Status, program: &Option<PathBuf>) -> String {
    let option = if name == "wan" { String::new() } else { format!(" --name {name}") };
    let ssh = &status.access.ssh;
    let Some(program) = program else {
        return "no datapump is built: cargo build, and make the WAN again".to_string();
    };
    let run = format!("cargo xtask wan run{option} --");
    format!(
        "{run} {} copy --ssh '{ssh}' FILE far:/tmp/\n\
         {run} {ssh} far\n\
         {run} ping -c 3 {FAR_ADDRESS}\n\
         cargo xtask wan run{option} --far -- iperf3 -s",
        program.display()
    )
}

/// What rivals got.
pub(super) fn outcomes(outcomes: &[(Rivals, Outcome)]) -> String {
    let row = |(rivals, outcome): &(Rivals, Outcome)| {
        let slots = outcome.flows.iter().map(|flow| flow.received_bytes.len()).max().unwrap_or(0);
        let (from, until) = (rivals.after, SLOT * slots as u32);
        let rates: Vec<f64> =
            outcome.flows.iter().map(|flow| flow.bits_per_s(from, until)).collect();
        let completed = outcome.completed();
        let median = completed.get(completed.len() / 2);
        vec![
            rivals.to_string(),
            format!("{:.2}", rates.iter().sum::<f64>() / 1e6),
            format!("{:.3}", jain(&rates)),
            completed.len().to_string(),
            median.map_or("-".to_string(), |time| format!("{:.1}", time.as_secs_f64() * 1e3)),
            outcome.broken().to_string(),
        ]
    };
    let rows: Vec<Vec<String>> = outcomes.iter().map(row).collect();
    table(&["rivals", "Mbit/s", "Jain's index", "transfers", "median ms", "broken"], &rows)
}

const ROWS: [&str; 16] = [
    "packets in",
    "bytes in",
    "packets out",
    "bytes out",
    "dropped by the policer",
    "dropped by a full queue",
    "dropped by CoDel",
    "marked by CoDel",
    "lost at random",
    "overtaken by others",
    "lost in cuts",
    "dropped by devices",
    "queue, most bytes",
    "more than 1 ms late",
    "latest, ms",
    "CPU, %",
];
