//! What is printed about a WAN.

use std::path::PathBuf;

use ::wan::{FAR_ADDRESS, WayCounters};

use super::control::Status;

/// What it is, and what its packets met.
pub fn status(name: &str, status: &Status) -> String {
    let Status { profile, counters, pid, up_s, .. } = status;
    let mut text = format!("WAN {name}, process {pid}, up {up_s:.1} s\n{profile}\n{HEADING}\n");
    for (way, counters) in [("near to far", &counters.forward), ("far to near", &counters.back)] {
        text.push_str(&row(way, counters, *up_s));
        text.push('\n');
    }
    text.trim_end().to_string()
}

fn row(way: &str, counters: &WayCounters, up_s: f64) -> String {
    let WayCounters { packets, late_ns_max, late_packets, kernel_drops, cpu_ns } = counters;
    format!(
        "{way:<12} {:>11} {:>14} {:>11} {:>14} {:>9} {:>7} {:>7} {:>10} {:>8.3} {:>8} {:>7} {:>5.1}",
        packets.packets_in,
        packets.bytes_in,
        packets.packets_out,
        packets.bytes_out,
        packets.queue_drops,
        packets.losses,
        packets.cut_drops,
        packets.queue_bytes_max,
        *late_ns_max as f64 / 1e6,
        late_packets,
        kernel_drops,
        *cpu_ns as f64 / 1e7 / up_s.max(1e-9),
    )
}

/// Lines to copy.
pub fn example(name: &str, status: &Status, program: &Option<PathBuf>) -> String {
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

const HEADING: &str = "             packets in       bytes in packets out      bytes out queue drops  \
                       losses  cut queue max  late ms  late >1ms  kernel CPU %";
