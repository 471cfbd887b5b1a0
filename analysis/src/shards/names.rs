//! The names of a job folder's files: a name says everything about a claim, so that renaming is all
//! it takes to change it.

use super::given::Turns;
use super::{Claim, Held};

/// A shard that nobody works on: `0000007.2`, after two attempts.
pub fn open(shard: u32, attempts: u32) -> String {
    format!("{shard:07}.{attempts}")
}

/// An attempt of a worker at a shard, under way or done: `0000007.3.node1-5f3a`.
pub fn held(claim: Claim, worker: &str) -> String {
    format!("{}.{worker}", of_attempt(claim))
}

/// An attempt that is done, with the turns at which its shard gave something away, if it did:
/// `0000007.3.node1-5f3a` or `0000007.3.node1-5f3a.5`.
pub fn done(claim: Claim, worker: &str, gave: Turns) -> String {
    match gave {
        Turns(0) => held(claim, worker),
        Turns(turns) => format!("{}.{turns}", held(claim, worker)),
    }
}

/// What belongs to one attempt, whoever makes it: `0000007.3`.
pub fn of_attempt(claim: Claim) -> String {
    open(claim.shard, claim.attempt)
}

/// What describes a shard.
pub fn of_shard(shard: u32) -> String {
    format!("{shard:07}")
}

/// The shard and its attempts so far. `None` for a name of something else.
pub fn parse_open(name: &str) -> Option<(u32, u32)> {
    let (shard, attempts) = name.split_once('.')?;
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    (digits(shard) && digits(attempts))
        .then(|| Some((shard.parse().ok()?, attempts.parse().ok()?)))?
}

pub fn parse_held(name: &str) -> Option<Held> {
    let (rest, worker) = name.rsplit_once('.')?;
    let (shard, attempt) = parse_open(rest)?;
    is_worker(worker).then(|| Held { claim: Claim { shard, attempt }, worker: worker.to_string() })
}

pub fn parse_done(name: &str) -> Option<(Held, Turns)> {
    let with_turns = || {
        let (rest, turns) = name.rsplit_once('.')?;
        Some((parse_held(rest)?, Turns(turns.parse().ok()?)))
    };
    parse_held(name).map(|held| (held, Turns::default())).or_else(with_turns)
}

/// The number at the end of a worker's name as it was started; of one without, some number.
pub(super) fn number_of(worker: &str) -> u64 {
    let digits = worker.len() - worker.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    match worker[worker.len() - digits..].parse::<u64>() {
        Ok(number) => number,
        Err(_) => worker.bytes().fold(0, |sum, byte| (sum * 31 + u64::from(byte)) % 65_521),
    }
}

/// Whether a word can be the name of a worker.
pub fn is_worker(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    (1..=WORKER_BYTES_MAX).contains(&name.len()) && name.bytes().all(plain)
}

/// What `--worker` takes, as a phrase.
pub const WORKER_PHRASE: &str = "a name of letters, digits and dashes";

const WORKER_BYTES_MAX: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_return() {
        let claim = Claim { shard: 12_345_678, attempt: 40 };
        let held_by = Held { claim, worker: "node-1-5f".into() };
        assert_eq!(parse_held(&held(claim, "node-1-5f")), Some(held_by.clone()));
        assert_eq!(parse_open(&open(7, 0)), Some((7, 0)));
        for gave in [Turns(0), Turns(5), Turns(255)] {
            let name = done(claim, "node-1-5f", gave);
            assert_eq!(parse_done(&name), Some((held_by.clone(), gave)), "{name}");
        }
        assert_eq!(parse_done("7.1.a.256"), None);
        for other in ["", ".", "7", "7.", ".7", "a.1", "7.1.", "7.1.a.b", "7.1.a/b", "+7.1", "7.-1"]
        {
            assert_eq!((parse_held(other), parse_open(other)), (None, None), "{other}");
        }
    }
}
