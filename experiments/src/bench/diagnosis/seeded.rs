//! Cells that nobody has chosen: kinds and counts stand here, what each is like follows from a
//! seed. The bottleneck of each is clearly the lowest, by the formulas that science knows for it.

use super::cells::*;
use crate::random::Random;

/// Forty cells of this seed, the same for each who asks.
pub(super) fn all(seed: &str) -> Vec<Cell> {
    let mut random = Random::from_words(seed);
    let kinds =
        KINDS.iter().flat_map(|(count, kind)| (0..*count).map(move |number| (number, kind)));
    kinds.map(|(number, kind)| kind(number, &mut random)).collect()
}

type Kind = fn(u64, &mut Random) -> Cell;

const KINDS: [(u64, Kind); 17] = [
    (5, full),
    (2, managed),
    (1, reordered),
    (1, changing),
    (5, window),
    (4, loss),
    (2, shallow),
    (4, policed),
    (6, shared),
    (2, paced),
    (1, source),
    (1, reader),
    (2, pauses),
    (1, buffer),
    (1, cpu),
    (1, pulled),
    (1, disk),
];

/// A path without its queue, and a copy over it.
struct Drawn {
    mbit: u64,
    rtt_ms: u64,
    streams: u64,
    congestion: &'static str,
}

impl Drawn {
    fn of(random: &mut Random, rates_mbit: &[u64], rtts_ms: &[u64]) -> Drawn {
        Drawn {
            mbit: random.one_of(rates_mbit),
            rtt_ms: random.one_of(rtts_ms),
            streams: random.one_of(&[1, 2, 4, 8]),
            congestion: random.one_of(&["cubic", "cubic", "bbr"]),
        }
    }

    /// What a round trip holds.
    fn product_bytes(&self) -> u64 {
        self.mbit * self.rtt_ms * 1000 / 8
    }

    fn path(&self, more: &str) -> String {
        format!("--rate {}Mbit --rtt {}ms {more}", self.mbit, self.rtt_ms)
    }

    /// As long as usual at this rate.
    fn cell(&self, name: String, class: &'static str, more: (&str, &str), mbit: f64) -> Cell {
        let (path, options) = more;
        let copy = format!("--streams {} --congestion {} {options}", self.streams, self.congestion);
        let mib = (mbit * 1e6 / 8.0 * SECONDS as f64 / 1_048_576.0).ceil().max(1.0);
        let [name, path, copy] = [name, self.path(path), copy.trim_end().to_string()].map(leaked);
        cell(name, class, path, copy, mib as u64, SECONDS)
    }

    fn whole(&self, name: &str, number: u64, path: &str) -> Cell {
        self.cell(format!("{name}-{number}"), FULL, (path, ""), self.mbit as f64)
    }
}

/// Cells live as long as the bench.
fn leaked(text: String) -> &'static str {
    text.leak()
}

fn full(number: u64, random: &mut Random) -> Cell {
    let drawn = Drawn::of(random, &[20, 50, 100, 200], &[10, 20, 40, 80, 120]);
    drawn.whole("seeded-full", number, "--queue 1bdp")
}

fn managed(number: u64, random: &mut Random) -> Cell {
    let drawn = Drawn::of(random, &[50, 100], &[20, 30, 50]);
    drawn.whole("seeded-managed", number, random.one_of(&["--aqm fq_codel", "--aqm fq_codel-ecn"]))
}

fn reordered(number: u64, random: &mut Random) -> Cell {
    let drawn = Drawn::of(random, &[50, 100], &[20, 30, 50]);
    drawn.whole("seeded-reordered", number, "--queue 1bdp --reorder 1%,5ms")
}

fn changing(number: u64, random: &mut Random) -> Cell {
    let drawn = Drawn::of(random, &[60, 120], &[20, 30, 50]);
    let path = format!("--queue 1bdp --at 5s --rate {}Mbit", drawn.mbit / 3);
    let mbit = drawn.mbit as f64 * 0.6;
    drawn.cell(format!("seeded-changing-{number}"), FULL, (&path, ""), mbit)
}

/// All windows together allow a tenth to four tenths of the path.
fn window(number: u64, random: &mut Random) -> Cell {
    let mut drawn = Drawn::of(random, &[50, 100, 200], &[20, 40, 80, 120, 200]);
    let all_bytes = drawn.product_bytes() * random.between(10, 40) / 100;
    drawn.streams = drawn.streams.min((all_bytes / 1024 / WINDOW_MIN_KIB).max(1));
    let kib = (all_bytes / drawn.streams / 1024).max(WINDOW_MIN_KIB);
    let window = format!("--window {kib}K");
    let mbit = (kib * 1024 * drawn.streams * 8) as f64 / (drawn.rtt_ms * 1000) as f64;
    drawn.cell(format!("seeded-window-{number}"), WINDOW, ("--queue 1bdp", &window), mbit)
}

/// By Mathis' formula all streams have a twentieth to four tenths of the path.
fn loss(number: u64, random: &mut Random) -> Cell {
    let mut drawn = Drawn::of(random, &[100, 200], &[20, 30, 50, 80]);
    drawn.congestion = "cubic";
    let per_mille = random.one_of(&[3_u64, 5, 10, 20]);
    let share = 1.22 * 1448.0 * 8.0
        / (drawn.rtt_ms as f64 * 1000.0)
        / (per_mille as f64 / 1000.0).sqrt()
        / drawn.mbit as f64;
    drawn.streams = drawn.streams.min((0.4 / share).floor().max(1.0) as u64);
    let mbit = share * (drawn.streams * drawn.mbit) as f64;
    let path = format!("--queue 1bdp --loss {}.{}%", per_mille / 10, per_mille % 10);
    drawn.cell(format!("seeded-loss-{number}"), LOSS, (&path, ""), mbit)
}

/// A queue of a twentieth to a seventh of what a round trip holds: CUBIC empties it each time.
fn shallow(number: u64, random: &mut Random) -> Cell {
    let mut drawn = Drawn::of(random, &[100], &[40, 60, 80, 100]);
    drawn.congestion = "cubic";
    drawn.streams = random.one_of(&[1, 4]);
    let queue = format!("--queue {}K", drawn.product_bytes() / random.between(7, 20) / 1024);
    let mbit = 0.6 * drawn.mbit as f64;
    drawn.cell(format!("seeded-shallow-{number}"), SHALLOW, (&queue, "--pace off"), mbit)
}

/// A tenth to a third of the link passes, and a bucket of an eighth of a second to a half of it.
fn policed(number: u64, random: &mut Random) -> Cell {
    let drawn = Drawn::of(random, &[100, 200], &[20, 30, 50, 80]);
    let mbit = drawn.mbit / random.between(3, 10);
    let kib = mbit * 1_000_000 / 8 / random.between(2, 8) / 1024;
    let path = format!("--policer {mbit}Mbit,{kib}K");
    drawn.cell(format!("seeded-policed-{number}"), POLICER, (&path, ""), mbit as f64)
}

fn shared(number: u64, random: &mut Random) -> Cell {
    let drawn = Drawn::of(random, &[50, 100], &[10, 20, 30, 50]);
    let (rivals, flows) = random.one_of(&[
        ("cubic", 1),
        ("2xcubic", 2),
        ("4xcubic", 4),
        ("8xcubic", 8),
        ("4xreno", 4),
    ]);
    let mbit = (drawn.mbit * drawn.streams) as f64 / (drawn.streams + flows) as f64;
    beside(
        rivals,
        drawn.cell(format!("seeded-shared-{number}"), SHARED, ("--queue 1bdp", ""), mbit),
    )
}

fn paced(number: u64, random: &mut Random) -> Cell {
    let drawn = Drawn::of(random, &[50, 100, 200], &[10, 20, 50, 100]);
    let mbit = drawn.mbit * random.between(15, 50) / 100;
    let pace = format!("--pace {mbit}Mbit");
    drawn.cell(format!("seeded-paced-{number}"), PACING, ("--queue 1bdp", &pace), mbit as f64)
}

fn source(number: u64, random: &mut Random) -> Cell {
    let drawn = Drawn::of(random, &[100], &[10, 20, 50, 100]);
    let mbit = random.between(10, 40);
    let name = format!("seeded-source-{number}");
    let cell = drawn.cell(name, SOURCE, ("--queue 1bdp", ""), mbit as f64);
    with(Plant::Source(mbit * 1_000_000), cell)
}

fn reader(number: u64, random: &mut Random) -> Cell {
    let drawn = Drawn::of(random, &[100], &[10, 20, 50]);
    let mbit = random.between(10, 40);
    // What stands in buffers comes at the path's rate.
    let name = format!("seeded-reader-{number}");
    let cell = drawn.cell(name, RECEIVER, ("--queue 1bdp", ""), 1.5 * mbit as f64);
    with(Plant::Reader(mbit * 1_000_000), cell)
}

/// A pause takes four tenths to two thirds of the time of a block and its pause.
fn pauses(number: u64, random: &mut Random) -> Cell {
    let mut drawn = Drawn::of(random, &[50, 100], &[20, 50]);
    drawn.streams = 1;
    let mib = random.one_of(&[4_u64, 8]);
    let block_ms = (mib << 20) * 8 / drawn.mbit / 1000;
    let pause_ms = block_ms * random.between(70, 200) / 100;
    let lockstep = format!("--lockstep {mib}M:{pause_ms}ms");
    let mbit = (drawn.mbit * block_ms) as f64 / (block_ms + pause_ms) as f64;
    drawn.cell(format!("seeded-pauses-{number}"), PAUSES, ("--queue 1bdp", &lockstep), mbit)
}

/// Half of a buffer holds data: all of them allow up to a third of the path.
fn buffer(number: u64, random: &mut Random) -> Cell {
    let mut drawn = Drawn::of(random, &[100], &[50, 80, 100]);
    drawn.congestion = "cubic";
    drawn.streams = random.one_of(&[1, 2, 4]);
    let bytes = drawn.product_bytes() / 3 / drawn.streams;
    let setting = leaked(format!("net.ipv4.tcp_wmem=4096 {0} {0}", bytes.min(65_536)));
    let mbit = drawn.mbit as f64 / 5.0;
    let name = format!("seeded-buffer-{number}");
    with(Plant::Setting(setting), drawn.cell(name, BUFFER, ("--queue 1bdp", ""), mbit))
}

fn cpu(number: u64, random: &mut Random) -> Cell {
    let copy = leaked(format!("--streams {} --congestion cubic", random.one_of(&[1_u64, 4])));
    let name = leaked(format!("seeded-cpu-{number}"));
    with(Plant::Quota(random.between(8, 15)), cell(name, CPU, VETH, copy, 1500, SECONDS))
}

/// A window, and the far host sends.
fn pulled(number: u64, random: &mut Random) -> Cell {
    let cell = window(number, random);
    with(Plant::Pull, Cell { name: leaked(format!("seeded-pulled-{number}")), ..cell })
}

fn disk(number: u64, random: &mut Random) -> Cell {
    let drawn = Drawn::of(random, &[100], &[10, 20]);
    let bytes_per_s = random.between(3, 6) * 1_000_000;
    let mbit = bytes_per_s as f64 * 8e-6;
    let name = format!("seeded-disk-{number}");
    let (class, plant) = random.one_of(&[
        (SOURCE, Plant::SourceDisk(bytes_per_s)),
        (RECEIVER, Plant::SinkDisk(bytes_per_s)),
    ]);
    with(plant, drawn.cell(name, class, ("--queue 1bdp", ""), mbit))
}

const SECONDS: u64 = 14;
/// A window of fewer segments makes TCP wait for more than its window.
const WINDOW_MIN_KIB: u64 = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::diagnosis::course;

    #[test]
    fn cells_of_a_seed_can_be_made() {
        for seed in ["0", "1", "be7b2ab2", "a2d1225b"] {
            let cells = all(seed);
            assert_eq!(cells.len(), 40, "{seed}");
            for (at, cell) in cells.iter().enumerate() {
                assert_eq!(course::scenario(cell).err(), None, "{cell:?}");
                assert!(cells[..at].iter().all(|other| other.name != cell.name), "{cell:?}");
                assert!((1..2000).contains(&cell.mib), "{cell:?}");
            }
            let again = all(seed);
            assert!(cells.iter().zip(&again).all(|(one, other)| one.path == other.path), "{seed}");
        }
    }
}
