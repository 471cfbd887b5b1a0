//! Experiments, benches and long tests: comparisons with other tools, over an emulated WAN, on
//! hosts that lose their power. `cargo xtask` lists the commands; never shipped.

mod bench;
mod experiment;
mod install;
mod page;
mod power_cut;
mod quota;
mod random;
mod said;
mod spread_faults;
mod spread_peers;
mod torture;
mod wan;

use std::process::ExitCode;

fn main() -> ExitCode {
    bench::machine::commit();
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["torture", options @ ..] => torture::torture(options),
        ["spread-faults", options @ ..] => spread_faults::spread_faults(options),
        ["spread-peers", options @ ..] => spread_peers::spread_peers(options),
        ["install-matrix", options @ ..] => install::matrix(options),
        ["power-cut", "connect", port, command @ ..] => power_cut::connect(port, command),
        ["power-cut", options @ ..] => power_cut::power_cut(options),
        ["bench", "peers", options @ ..] => bench::peers(options),
        ["bench", "many", options @ ..] => bench::many(options),
        ["bench", "overlap", options @ ..] => bench::overlap(options),
        ["bench", "predict", options @ ..] => bench::predict(options),
        ["bench", "profiles", options @ ..] => bench::profiles(options),
        ["bench", "shared", options @ ..] => bench::shared(options),
        ["bench", "cube", options @ ..] => bench::cube(options),
        ["bench", "streams", options @ ..] => bench::streams(options),
        ["bench", "walk", options @ ..] => bench::walk(options),
        ["bench", "windows", options @ ..] => bench::windows(options),
        ["bench", "diagnosis", options @ ..] => bench::diagnosis(options),
        ["bench", "net-test", options @ ..] => bench::net_test(options),
        ["bench", "instructions"] => bench::instructions(),
        ["wan", words @ ..] => wan::wan(words),
        ["experiment", words @ ..] => experiment::experiment(words),
        _ => Err(USAGE.to_string()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("xtask: {why}");
            ExitCode::FAILURE
        }
    }
}

const USAGE: &str = "\
cargo xtask COMMAND
  torture [--rounds N] [--seed S] [--only large|tree|sparse|list] [--path loopback|wan|30ms]
          [--first N] [--minutes N] [--disk DIR]
                         copies that are interrupted at random; writes runs/DATE-torture.md
  spread-faults [--rounds N] [--seed S] [--first N] [--only FAULT]
                         spreads over a real Slurm whose nodes, storage and daemons fail; writes
                         runs/DATE-spread-faults.md
  spread-peers [--rounds N]
                         the same over three nodes by datapump, rclone, fpsync and parallel, and
                         what a node's death does to each; writes runs/DATE-spread-peers.md
  power-cut [--rounds N] [--file-system ext4|xfs|btrfs] [--seed S] [--first N] [--disk DIR]
                         the sink in a guest that loses its power; writes runs/DATE-power-cut.md
  install-matrix [--archive FILE] [--program FILE] [--peer FILE] [--only NAME]
                         copies to far hosts of all kinds, which have no datapump; writes
                         runs/DATE-install.md
  bench peers [--quick] [--rounds N] [--size SIZE] [--only SCENARIO,...] [--disk DIR]
              [--peer NAME=PATH]...
                         datapump beside its peers, found in PATH or named: wdt, bbcp, mscp,
                         globus-gridftp-server, globus-url-copy; writes runs/DATE-peers.md
  bench peers --only grid
                         no option beside 24 sets of options: one file sealed and clear, small
                         files, disk, and 12 for null to null; a whole bench leaves them out;
                         writes runs/DATE-peers-grid.md
  bench many [--files N] [--disk DIR] [--only TOOL]
                         10,000,000 empty files; writes runs/DATE-many.md
  bench overlap          source and sink held to 200 MB/s each: do they overlap?
  bench predict [--short] [--seed N] [--disk DIR] [--memory-in-hand]
                         40 copies, each predicted and made; writes runs/DATE-prediction.md
  bench predict --wan [--program FILE]
                         20 copies over a WAN, predicted from others that went the same way;
                         writes runs/DATE-prediction-wan.md
  bench predict --routes [--seed N] [--disk DIR] [--program FILE]
                         56 copies of 1 to 3 s, each predicted from the others over its route;
                         writes runs/DATE-prediction-routes.md
  bench profiles [--only NAME] [--rounds N] [--fresh] [--program FILE]
                         copies beside the best iperf3 on the paths that something is promised
                         for; goes on where it stopped; writes runs/DATE-profiles.md
  bench shared [--scavenger] [--program FILE] [--criteria]
                         a copy beside other flows that come and go: its part, theirs, and how
                         soon it has the path again; 16 minutes; writes runs/DATE-shared.md, or
                         with --scavenger, for --pace scavenger, runs/DATE-scavenger.md
  bench cube [--program FILE] [--criteria]
                         copies through a source disk, a link and a sink disk that are held to
                         three rates each: 27 cells, 15 minutes; writes runs/DATE-cube.md
  bench streams [--only NAME] [--jobs N] [--program FILE] [--criteria]
                         what --streams auto makes of 27 paths, beside the best fixed number;
                         keeps finished paths; writes runs/DATE-streams.md
  bench walk [--files N] [--rounds N] [--folder DIR] [--program FILE]
                         the planner's walk beside fpart and fd; writes runs/DATE-walk.md
  bench windows [--program FILE]
                         is the window that is advertised the one that was asked for?
                         writes runs/DATE-windows.md
  bench diagnosis [--only NAME] [--resume | --kept] [--program FILE]
                         planted bottlenecks over the WAN: are they found, and does advice help?
                         writes runs/DATE-diagnosis.md
  bench net-test [--program FILE] [--only PATH]
                         does datapump net-test say what iperf3 says? 20 minutes; writes
                         runs/DATE-net-test.md
  bench instructions     instructions a request by callgrind, against benches/instructions.txt
  experiment NAME...|list|all [--program FILE]
                         findings of the reports (docs/REFERENCES.md), found again
                         over an emulated WAN; writes runs/DATE-NAME.md and runs/data/
  experiment compression-grid [--only DATA/LINK] [--seconds N] [--resume] [--program FILE]
                         compression left to the program beside every fixed way; 3 hours; goes
                         on where it stopped with --resume
  wan up|set|cut|mend|run|status|test|down …
                         an emulated WAN: cargo xtask wan says more";
