//! The page with the results of the rounds.

use std::time::Duration;

use super::disk::{BLOCK_BYTES, Unflushed};
use super::near::Retry;
use super::round::{CutShown, Shown, few};
use super::{Cleans, Options, Results};
use crate::page::table;

pub(super) fn page(
    options: &Options,
    notes: &[String],
    cleans: &Cleans,
    results: &Results,
    time: Duration,
) -> String {
    let mut page = String::from("# Power cuts: the sink in a guest\n\n");
    for note in notes {
        page.push_str(&format!("- {note}\n"));
    }
    page.push_str(&format!(
        "\nFrom seed {} in {:.0} s: `cargo xtask power-cut --rounds {} --seed {}`.\n\n{METHOD}\n",
        options.seed,
        time.as_secs_f64(),
        options.rounds,
        options.seed
    ));
    page.push_str(&table(&CLEAN_COLUMNS, &whole(cleans)));
    page.push('\n');
    page.push_str(&table(&CUT_COLUMNS, &cut(results)));
    page.push_str(&format!("\nA block is {BLOCK_BYTES} bytes.\n"));
    page.push_str(&remarks(results));
    page
}

/// Copies without cuts.
fn whole(cleans: &Cleans) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    for (kind, load, clean, broken) in cleans {
        rows.push(vec![
            kind.name().to_string(),
            format!("{load:?}"),
            clean.counts.writes.to_string(),
            clean.counts.flushes.to_string(),
            format!("{:.1} s", clean.time.as_secs_f64()),
            format!("{} MiB", clean.bytes >> 20),
            broken.to_string(),
        ]);
    }
    rows
}

/// The results of the rounds, by file system.
fn cut(results: &Results) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    for (kind, rounds) in results {
        let shown: Vec<&Shown> =
            rounds.iter().filter_map(|(_, shown)| shown.as_ref().ok()).collect();
        let cuts: Vec<&CutShown> = shown.iter().flat_map(|shown| &shown.cuts).collect();
        let with = |is: &dyn Fn(&CutShown) -> bool| cuts.iter().filter(|cut| is(cut)).count();
        let ways = [Unflushed::Lost, Unflushed::Mixed, Unflushed::Kept]
            .map(|way| with(&|cut| cut.unflushed == way).to_string());
        let sum = |of: &dyn Fn(&CutShown) -> u64| cuts.iter().map(|cut| of(cut)).sum::<u64>();
        let mut resent: Vec<u64> = shown.iter().map(|shown| shown.resent_bytes >> 20).collect();
        resent.sort_unstable();
        let believed: u64 = shown.iter().map(|shown| shown.believed_bytes >> 20).sum();
        let median = resent.get(resent.len() / 2).unwrap_or(&0);
        let most = resent.last().unwrap_or(&0);
        rows.push(vec![
            kind.name().to_string(),
            rounds.len().to_string(),
            cuts.len().to_string(),
            ways.join(" / "),
            with(&|cut| cut.retry == Retry::LogsInAgain).to_string(),
            format!("{}, {}", sum(&|cut| cut.blocks), sum(&|cut| cut.lost)),
            sum(&|cut| cut.final_names).to_string(),
            format!("{believed} MiB"),
            format!("{median} and {most} MiB"),
            shown.iter().filter(|shown| shown.journal_left).count().to_string(),
            (rounds.len() - shown.len()).to_string(),
        ]);
    }
    rows
}

/// Failures, and remarks that are not failures.
fn remarks(results: &Results) -> String {
    let mut text = String::new();
    for (kind, rounds) in results {
        for (number, shown) in rounds {
            match shown {
                Err(why) => {
                    text.push_str(&format!("- {} round {number} failed: {why}\n", kind.name()));
                }
                Ok(shown) if !shown.attributes.is_empty() => text.push_str(&format!(
                    "- {} round {number}: other mode or time: {}\n",
                    kind.name(),
                    few(&shown.attributes)
                )),
                Ok(_) => {}
            }
        }
    }
    match text.is_empty() {
        true => "No round failed, and every final name had its source's mode and time.\n".into(),
        false => format!("\n{text}"),
    }
}

const CLEAN_COLUMNS: [&str; 7] =
    ["file system", "what", "writes", "flushes", "time", "moved", "broken without syncs"];
const CUT_COLUMNS: [&str; 11] = [
    "file system",
    "rounds",
    "cuts",
    "lost / mixed / kept",
    "healed in the run",
    "blocks in the cache, and lost",
    "final names compared at cuts",
    "believed",
    "sent again, median and most",
    "journal left at the end",
    "failed",
];
const METHOD: &str = "\
The sink is a guest (Debian's kernel under emulation) with one disk, a network block device with a \
volatile cache. At a random request of that disk (in place of any write or flush, or just before \
or behind a flush) the guest is killed (SIGKILL) and the disk keeps what was flushed; of what was \
not, all is lost, or each block by itself is lost or holds any of the versions written since the \
flush, or all is kept. The disk is then mounted, which replays the file system's own journal, and \
every final name is compared with its source, byte by byte. The guest starts again, and the copy \
goes on: within the same run, which logs in again, or by the same command. When that has ended \
with exit code 0 the power goes at once, with all lost that was not flushed, and the trees must be \
equal with no part left. The journal's own removal is not synced, so it may be there again: the \
same command takes all for done and removes it, which is tried after each copy that nothing cut. \
Large is one file of 192 MiB, Tree 500 files of up to 6 MiB. \
The data goes over four TCP streams, `--fsync \
file`, `--stall 120`.

**Criterion** (fixed before the run): no round fails. A round fails where a final name has not all \
its source's bytes at a cut, where a run that nothing cuts any more does not end with exit code 0, \
where something differs, is missing or is left over after a good end, or where all runs of a round \
together send more than the source has and, for each cut, 64 MiB, 32 MiB that streams hold, and \
what a copy moves in a second. And the rounds can fail: \
a copy of Tree with `--fsync off`, whose power goes at its end, must be seen to lack names or \
bytes (the last column of the first table counts them).
";
