//! Is `--compress auto` as fast as the best manual choice, for any data and link? Every fixed
//! coding has a short run in each cell, then auto and the best two take turns.
//!
//! Each measurement is a line of `runs/data/compression-grid.csv`, so an interrupted grid can
//! continue.

mod kept;
mod page;

use ::wan::{Profile, Wan};

use super::Experiment;
use super::shown::Shown;
use super::testbed::Testbed;
use super::timed::{self, Programs, Seen, Stretch};
use crate::bench::machine;
use kept::{Kept, Key, Row, Stage};
use xtask::step::root;

pub(super) const GRID: Experiment = Experiment {
    name: "compression-grid",
    title: "auto beside every fixed way of packing",
    about: "Six kinds of data over seven links. Each fixed way is run once in every cell; then \
            auto and the two that were best take turns. Rates are of payload that has arrived, \
            behind a ramp; where kinds of data take turns (mix, runs), over the same bytes for \
            all of a cell. A request is a quarter of a second of the link at most. Links of 100 \
            Mbit/s and less are the emulated WAN with a round trip of 10 ms, faster ones a \
            veth pair with a token bucket; the unlimited one is the loopback of one host. All \
            options but these are as they are when nothing is chosen: four streams, TLS, BLAKE3. \
            Cells of 100 Mbit/s and less leave processors idle (but for zeros): they were run two \
            at a time, those of 2 and 10 Mbit/s beside builds.",
    run,
};

/// A link, and the options of a copy over it.
#[derive(Debug)]
struct Link {
    name: &'static str,
    /// Words of `cargo xtask wan up`.
    wan: &'static str,
    request: &'static str,
    /// Time after which slow start is over and the choice is settled.
    ramp_s: f64,
    to: &'static str,
}

struct Options {
    /// `DATA/LINK`, either of which may be omitted.
    only: Option<String>,
    seconds: f64,
    resume: bool,
}

fn run(testbed: &Testbed) -> Result<Shown, String> {
    let options = options(&testbed.options)?;
    let cells = cells(options.only.as_deref())?;
    let mut kept = Kept::open(&root().join("runs/data/compression-grid.csv"))?;
    if !options.resume {
        kept.forget(|row| cells.iter().any(|(link, data)| row.is_of(data, link.name)))?;
    }
    println!("{} cells, {} s each way\n", cells.len(), options.seconds);
    for link in LINKS {
        let data = cells.iter().filter(|(other, _)| other.name == link.name).map(|(_, data)| *data);
        let left: Vec<&str> =
            data.filter(|data| !is_done(&kept, data, link, options.seconds)).collect();
        if left.is_empty() {
            continue;
        }
        let words: Vec<&str> = link.wan.split_whitespace().collect();
        let wan = Wan::up(&Profile::from_words(&words)?, Some(&testbed.program))?;
        for data in left {
            Cell { wan: &wan, testbed, link, data, seconds: options.seconds }.measure(&mut kept)?;
        }
    }
    Ok(page::shown(&kept, options.seconds))
}

fn options(words: &[String]) -> Result<Options, String> {
    let mut options = Options { only: None, seconds: 10.0, resume: false };
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{NAME}: {word} needs a value"));
        match word.as_str() {
            "--resume" => options.resume = true,
            "--only" => options.only = Some(value()?.clone()),
            "--seconds" => {
                let text = value()?;
                let seconds = text.parse().ok().filter(|seconds| (1.0..=600.0).contains(seconds));
                options.seconds = seconds.ok_or_else(|| {
                    format!("{NAME}: --seconds {text}: write a number from 1 to 600")
                })?;
            }
            _ => return Err(format!("{NAME}: {word} is unknown: {USAGE}")),
        }
    }
    Ok(options)
}

/// The requested cells: `records/50Mbit`, `records`, or `50Mbit`.
fn cells(only: Option<&str>) -> Result<Vec<(&'static Link, &'static str)>, String> {
    let all = LINKS.iter().flat_map(|link| DATA.iter().map(move |data| (link, *data)));
    let is_wanted = |(link, data): &(&Link, &str)| {
        only.is_none_or(|only| {
            let cell = format!("{data}/{}", link.name);
            [*data, link.name, &cell].contains(&only)
        })
    };
    let cells: Vec<(&Link, &str)> = all.filter(is_wanted).collect();
    match cells.is_empty() {
        false => Ok(cells),
        true => Err(format!(
            "{NAME}: --only takes DATA/LINK, DATA or LINK, of {} and {}",
            DATA.join(", "),
            LINKS.iter().map(|link| link.name).collect::<Vec<_>>().join(", ")
        )),
    }
}

fn is_done(kept: &Kept, data: &str, link: &Link, seconds: f64) -> bool {
    let turns = turns(kept, data, link, seconds);
    turns.is_some_and(|turns| turns.iter().all(|key| kept.find(key).is_some()))
}

/// What takes turns in a cell: auto, the best two, and off where compression may only cost. `None`
/// while short runs are missing.
fn turns(kept: &Kept, data: &str, link: &Link, seconds: f64) -> Option<Vec<Key>> {
    let mut ways = vec![AUTO];
    let best = kept.best_looks(data, link.name, seconds);
    if best.len() < CANDIDATES.len() {
        return None;
    }
    ways.extend(best.into_iter().take(2));
    if link.name == UNLIMITED && !ways.contains(&OFF) {
        ways.push(OFF);
    }
    let key = |round: usize, place: usize| {
        // Each is the first one once.
        let way = ways[(place + round) % ways.len()];
        Key::new(data, link.name, Stage::Turn(round), way, seconds)
    };
    let count = ways.len();
    Some(
        (0..ROUNDS)
            .flat_map(|round| (0..count).map(move |at| (round, at)))
            .map(|(r, p)| key(r, p))
            .collect(),
    )
}

/// One kind of data over one link.
struct Cell<'a> {
    wan: &'a Wan,
    testbed: &'a Testbed,
    link: &'static Link,
    data: &'static str,
    seconds: f64,
}

impl Cell<'_> {
    fn measure(&self, kept: &mut Kept) -> Result<(), String> {
        for way in CANDIDATES {
            self.once(kept, Key::new(self.data, self.link.name, Stage::Look, way, self.seconds))?;
        }
        let turns = turns(kept, self.data, self.link, self.seconds);
        for key in turns.ok_or("not everything has had its look")? {
            self.once(kept, key)?;
        }
        Ok(())
    }

    /// Runs one copy, unless it is already measured.
    fn once(&self, kept: &mut Kept, key: Key) -> Result<(), String> {
        if kept.find(&key).is_some() {
            return Ok(());
        }
        let Link { request, to, .. } = self.link;
        let words =
            format!("--compress {} --request-size {request} {}:64T {to}:null:", key.way, self.data);
        let programs = Programs { near: &self.testbed.program, far: &self.testbed.program };
        let seen = timed::copy(self.wan, programs, &words, self.stretch(kept))?;
        let row = Row::new(key, seen, &machine::head());
        println!("{}", row.line());
        kept.add(row)
    }

    /// Mixed data is measured over the bytes that off moves in the time; off comes first.
    fn stretch(&self, kept: &Kept) -> Stretch {
        let (ramp_s, seconds) = (self.link.ramp_s, self.seconds);
        let off = Key::new(self.data, self.link.name, Stage::Look, OFF, seconds);
        match kept.find(&off) {
            Some(off) if MIXED.contains(&self.data) => Stretch::Bytes {
                from: off.bytes_per_s() * ramp_s,
                to: off.bytes_per_s() * (ramp_s + seconds),
                seconds_max: 2.0 * (ramp_s + seconds),
            },
            _ => Stretch::Time { ramp_s, seconds },
        }
    }
}

const NAME: &str = "experiment compression-grid";
const USAGE: &str = "experiment compression-grid [--only DATA/LINK] [--seconds N] [--resume]";
const DATA: [&str; 6] = ["zero", "random", "records", "text", "mix", "runs"];
/// Data of several kinds: the measured kind depends on the position.
const MIXED: [&str; 2] = ["mix", "runs"];
const OFF: &str = "off";
const AUTO: &str = "auto";
/// Off first.
const CANDIDATES: [&str; 8] =
    [OFF, "lz4", "zstd:-1", "zstd:1", "zstd:3", "zstd:9", "zlib:1", "zlib:6"];
const ROUNDS: usize = 3;
const UNLIMITED: &str = "unlimited";

const LINKS: &[Link] = &[
    link("2Mbit", "--rate 2Mbit --rtt 10ms --queue 16K", "32K", 4.0),
    link("10Mbit", "--rate 10Mbit --rtt 10ms --queue 64K", "256K", 3.0),
    link("50Mbit", "--rate 50Mbit --rtt 10ms --queue 128K", "1M", 2.0),
    link("100Mbit", "--rate 100Mbit --rtt 10ms --queue 256K", "1M", 2.0),
    link("400Mbit", "--veth --rate 400Mbit", "1M", 2.0),
    link("1Gbit", "--veth --rate 1Gbit", "1M", 2.0),
    Link { to: "near", ..link(UNLIMITED, "--rate none", "1M", 2.0) },
];

const fn link(name: &'static str, wan: &'static str, request: &'static str, ramp_s: f64) -> Link {
    Link { name, wan, request, ramp_s, to: "far" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_what_a_wan_takes() {
        for link in LINKS {
            let words: Vec<&str> = link.wan.split_whitespace().collect();
            let profile = Profile::from_words(&words);
            assert!(profile.is_ok(), "{}: {profile:?}", link.name);
        }
    }

    #[test]
    fn cells_are_asked_for_by_either_name() {
        for (only, count) in
            [(None, 42), (Some("mix"), 7), (Some("2Mbit"), 6), (Some("mix/2Mbit"), 1)]
        {
            assert_eq!(cells(only).unwrap().len(), count, "{only:?}");
        }
        assert!(cells(Some("mix/3Mbit")).unwrap_err().contains("--only takes DATA/LINK"));
    }

    #[test]
    fn the_best_two_take_turns_with_auto() {
        let folder = tempfile::tempdir().unwrap();
        let mut kept = Kept::open(&folder.path().join("compression-grid.csv")).unwrap();
        let link = &LINKS[6];
        for (place, way) in CANDIDATES.iter().enumerate() {
            assert_eq!(turns(&kept, "text", link, 2.0), None);
            let key = Key::new("text", link.name, Stage::Look, way, 2.0);
            let seen = Seen { bytes_per_s: 1e6 * place as f64, wire_bytes_per_s: None };
            kept.add(Row::new(key, seen, "abc1234")).unwrap();
        }
        let turns = turns(&kept, "text", link, 2.0).unwrap();
        assert_eq!(turns.len(), ROUNDS * 4);
        let first: Vec<&str> = turns[..4].iter().map(|key| key.way.as_str()).collect();
        assert_eq!(first, ["auto", "zlib:6", "zlib:1", "off"]);
        assert!(!is_done(&kept, "text", link, 2.0));
    }
}
