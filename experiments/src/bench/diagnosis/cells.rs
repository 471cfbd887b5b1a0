//! The planted bottlenecks: data, one value per cell.

use super::conditions;

/// One copy over one path with one planted bottleneck, and the correct class.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cell {
    pub name: &'static str,
    /// The class in the words of `explain --json`.
    pub class: &'static str,
    /// Words of `cargo xtask wan up`.
    pub path: &'static str,
    /// Options of `datapump copy`.
    pub copy: &'static str,
    pub mib: u64,
    /// The approximate duration of the copy.
    pub seconds: u64,
    pub plant: Plant,
    /// Other flows on the path until the copy ends, in the words of `cargo xtask wan rivals`; or
    /// nothing. They begin before the copy, or as their `at=` says.
    pub beside: &'static str,
}

/// The planted bottleneck, beyond the words of the path and of the copy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Plant {
    Nothing,
    /// A program that writes to the copy's standard input, at this many bits a second.
    Source(u64),
    /// One that reads its standard output.
    Reader(u64),
    /// A setting of both hosts, `KEY=VALUE`.
    Setting(&'static str),
    /// The sending process gets this many hundredths of a CPU.
    Quota(u64),
    /// The receiving one.
    FarQuota(u64),
    /// The source is a file that is read past the cache, on a disk that is held to this many bytes
    /// a second.
    SourceDisk(u64),
    /// So is the destination.
    SinkDisk(u64),
    /// The destination is a file that is written through the cache, on a disk that is held to this
    /// many bytes a second: it takes all, and the sync takes long.
    SinkSync(u64),
    /// The source is a tree of files of this many bytes, copied to a tree; both in memory.
    Files(u64),
    /// The far host sends.
    Pull,
    /// A variable of the sending process, `NAME=VALUE`.
    Variable(&'static str),
    /// Every so many ms the link is down for so many ms.
    Cuts(u64, u64),
}

/// Cells whose advice is followed: a second copy with all changes that `explain` advises.
pub(super) const FOLLOWED: &[&str] = &[
    "window-102-1",
    "window-20-1",
    "window-50-4",
    "pauses-50-1",
    "pauses-20-4",
    "pacing-102-1",
    "pacing-30-4",
    "shallow-50-1",
    "shallow-102-4",
    "loss-20-1",
    "loss-10-2",
];

/// All of them, the first ones first.
pub(super) fn all() -> Vec<Cell> {
    FIRST.iter().chain(conditions::CELLS).copied().collect()
}

const FIRST: &[Cell] = &[
    cell("short-102-1", TOO_SHORT, LONG, "--streams 1 --congestion cubic", 3, 1),
    cell("short-20-4", TOO_SHORT, NEAR, "--streams 4 --congestion bbr", 1, 1),
    cell(
        "pauses-50-1",
        PAUSES,
        MIDDLE,
        "--streams 1 --congestion cubic --lockstep 8M:400ms",
        90,
        13,
    ),
    cell(
        "pauses-20-4",
        PAUSES,
        SLOW,
        "--streams 4 --congestion cubic --lockstep 1M:1500ms",
        32,
        13,
    ),
    cell("window-102-1", WINDOW, LONG, "--streams 1 --congestion bbr --window 256K", 32, 14),
    cell("window-20-1", WINDOW, NEAR, "--streams 1 --congestion cubic --window 64K", 40, 13),
    cell("window-50-4", WINDOW, MIDDLE, "--streams 4 --congestion cubic --window 32K", 32, 13),
    cell("window-102-4", WINDOW, LONG, "--streams 4 --congestion cubic --window 64K", 32, 14),
    cell("window-10-1", WINDOW, FAST, "--streams 1 --congestion cubic --window 64K", 70, 12),
    cell(
        "window-hpss-1",
        WINDOW,
        "--rate 100Mbit --rtt 102ms --queue 128K",
        "--streams 1 --congestion cubic --window 256K --lockstep 32M:250ms",
        36,
        16,
    ),
    cell("window-180-1", WINDOW, SLOWEST, "--streams 1 --congestion cubic --window 64K", 4, 13),
    with(
        Plant::Reader(30_000_000),
        cell("reader-102-1", RECEIVER, LONG, "--streams 1 --congestion cubic", 60, 16),
    ),
    with(
        Plant::Reader(20_000_000),
        cell("reader-20-4", RECEIVER, NEAR, "--streams 4 --congestion cubic", 50, 18),
    ),
    with(
        Plant::Setting("net.ipv4.tcp_wmem=4096 65536 65536"),
        cell("buffer-102-1", BUFFER, LONG, "--streams 1 --congestion cubic", 10, 13),
    ),
    with(
        Plant::Setting("net.ipv4.tcp_wmem=4096 32768 32768"),
        cell("buffer-50-4", BUFFER, MIDDLE, "--streams 4 --congestion cubic", 70, 13),
    ),
    with(
        Plant::Source(20_000_000),
        cell("source-102-1", SOURCE, LONG, "--streams 1 --congestion cubic", 30, 13),
    ),
    with(
        Plant::Source(30_000_000),
        cell("source-20-4", SOURCE, NEAR, "--streams 4 --congestion cubic", 40, 12),
    ),
    with(NO_AES, cell("passage-veth-1", PASSAGE, VETH, "--streams 1 --congestion cubic", 2048, 12)),
    with(NO_AES, cell("passage-veth-4", PASSAGE, VETH, "--streams 4 --congestion cubic", 2048, 12)),
    cell("pacing-102-1", PACING, LONG, "--streams 1 --congestion cubic --pace 30Mbit", 45, 13),
    cell("pacing-10-1", PACING, FAST, "--streams 1 --congestion bbr --pace 50Mbit", 70, 12),
    cell("pacing-30-4", PACING, "--rate 60Mbit --rtt 30ms", FOUR_AT_20, 30, 13),
    cell("loss-20-1", LOSS, LOSSY, "--streams 1 --congestion cubic", 14, 18),
    cell(
        "loss-50-4",
        LOSS,
        "--rate 100Mbit --rtt 50ms --loss 0.5%",
        "--streams 4 --congestion cubic",
        28,
        15,
    ),
    cell(
        "loss-10-2",
        LOSS,
        "--rate 100Mbit --rtt 10ms --loss 2%",
        "--streams 2 --congestion reno",
        24,
        14,
    ),
    cell("full-102-1", FULL, LONG, "--streams 1 --congestion cubic", 180, 16),
    cell("full-30-4", FULL, "--rate 30Mbit --rtt 30ms", "--streams 4 --congestion cubic", 50, 15),
    cell("full-180-1", FULL, SLOWEST, "--streams 1 --congestion bbr", 15, 14),
    cell("full-20-4", FULL, NEAR, "--streams 4 --congestion bbr", 130, 12),
    cell(
        "shallow-50-1",
        SHALLOW,
        "--rate 100Mbit --rtt 50ms --queue 64K",
        "--streams 1 --congestion cubic --pace off",
        80,
        17,
    ),
    cell(
        "shallow-102-4",
        SHALLOW,
        "--rate 100Mbit --rtt 102ms --queue 64K",
        "--streams 4 --congestion cubic --pace off",
        90,
        18,
    ),
    with(
        Plant::Quota(10),
        cell("cpu-veth-1", CPU, VETH, "--streams 1 --congestion cubic --seal off", 2048, 12),
    ),
    with(
        Plant::Quota(15),
        cell("cpu-veth-4", CPU, VETH, "--streams 4 --congestion cubic", 2048, 12),
    ),
    with(
        Plant::Cuts(2000, 300),
        cell(
            "cuts-20-1",
            UNDETERMINED,
            "--rate 50Mbit --rtt 20ms",
            "--streams 1 --congestion cubic",
            40,
            12,
        ),
    ),
    with(
        Plant::Cuts(1500, 400),
        cell("cuts-50-4", UNDETERMINED, MIDDLE, "--streams 4 --congestion cubic", 50, 14),
    ),
    beside("4xcubic", cell("beside-4-cubic-4", SHARED, THIRTY, FOUR, 80, 14)),
    beside("4xcubic", cell("beside-4-cubic-1", SHARED, THIRTY, ONE, 32, 14)),
    beside("4xcubic", cell("beside-4-cubic-4-bbr", SHARED, THIRTY, FOUR_BBR, 110, 14)),
    beside("cubic", cell("beside-1-cubic-4", SHARED, THIRTY, FOUR, 110, 14)),
    beside("8xcubic", cell("beside-8-cubic-4", SHARED, THIRTY, FOUR, 55, 14)),
    beside("bbr", cell("beside-1-bbr-4", SHARED, THIRTY, FOUR, 75, 14)),
    beside("on-off", cell("beside-on-off-4", SHARED, THIRTY, FOUR, 150, 14)),
    beside("4xcubic", cell("beside-slow-4", SHARED, "--rate 20Mbit --rtt 10ms", FOUR, 15, 14)),
    beside(
        "4xcubic",
        cell("beside-long-4", SHARED, "--rate 50Mbit --rtt 102ms --queue 1bdp", FOUR, 35, 15),
    ),
    beside(
        "4xcubic",
        cell("beside-shallow-4", SHARED, "--rate 100Mbit --rtt 20ms --queue 64K", FOUR, 80, 14),
    ),
    cell("alone-30-4", FULL, THIRTY, FOUR, 160, 14),
    cell("alone-30-4-bbr", FULL, THIRTY, FOUR_BBR, 160, 14),
    cell("alone-slow-4", FULL, "--rate 20Mbit --rtt 10ms", FOUR, 32, 14),
    cell("alone-codel-4", FULL, "--rate 100Mbit --rtt 30ms --aqm fq_codel", FOUR, 160, 14),
];

pub(super) const fn cell(
    name: &'static str,
    class: &'static str,
    path: &'static str,
    copy: &'static str,
    mib: u64,
    seconds: u64,
) -> Cell {
    Cell { name, class, path, copy, mib, seconds, plant: Plant::Nothing, beside: "" }
}

pub(super) const fn beside(rivals: &'static str, cell: Cell) -> Cell {
    Cell { beside: rivals, ..cell }
}

pub(super) const fn with(plant: Plant, cell: Cell) -> Cell {
    Cell { plant, ..cell }
}

pub(super) const TOO_SHORT: &str = "too_short";
pub(super) const PAUSES: &str = "pauses";
pub(super) const WINDOW: &str = "receive_window";
pub(super) const RECEIVER: &str = "slow_receiver";
pub(super) const SYNC: &str = "slow_sync";
pub(super) const SMALL: &str = "small_files";
pub(super) const BUFFER: &str = "send_buffer";
pub(super) const SOURCE: &str = "slow_source";
pub(super) const PASSAGE: &str = "slow_passage";
pub(super) const PACING: &str = "pacing";
pub(super) const LOSS: &str = "path_loss";
pub(super) const FULL: &str = "path_full";
pub(super) const SHARED: &str = "shared_bottleneck";
pub(super) const POLICER: &str = "policer";
pub(super) const SHALLOW: &str = "shallow_buffer";
pub(super) const CPU: &str = "host_cpu";
pub(super) const UNDETERMINED: &str = "undetermined";

pub(super) const LONG: &str = "--rate 100Mbit --rtt 102ms --queue 1bdp";
pub(super) const MIDDLE: &str = "--rate 100Mbit --rtt 50ms --queue 1bdp";
pub(super) const NEAR: &str = "--rate 100Mbit --rtt 20ms --queue 1bdp";
pub(super) const THIRTY: &str = "--rate 100Mbit --rtt 30ms --queue 1bdp";
pub(super) const FAST: &str = "--rate 300Mbit --rtt 10ms --queue 1bdp";
pub(super) const SLOW: &str = "--rate 50Mbit --rtt 20ms --queue 1bdp";
pub(super) const SLOWEST: &str = "--rate 10Mbit --rtt 180ms --queue 1bdp";
pub(super) const LOSSY: &str = "--rate 100Mbit --rtt 20ms --queue 1bdp --loss 1%";
pub(super) const VETH: &str = "--rate none";
pub(super) const ONE: &str = "--streams 1 --congestion cubic";
pub(super) const FOUR: &str = "--streams 4 --congestion cubic";
pub(super) const FOUR_BBR: &str = "--streams 4 --congestion bbr";
pub(super) const FOUR_AT_20: &str = "--streams 4 --congestion cubic --pace 20Mbit";
/// TLS without the CPU's AES instructions, as on an old host.
pub(super) const NO_AES: Plant = Plant::Variable("OPENSSL_ia32cap=~0x200000200000000");
