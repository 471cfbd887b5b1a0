//! Files that fail for one reason after the other: a few are named, and the others counted, so that
//! a second run over a complete tree does not say a line for each of its files.

use std::collections::BTreeMap;

/// The files of one reason.
#[derive(Debug)]
struct Met {
    first: String,
    count: u64,
}

/// The reasons of a run, each with how often it was met.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    by_reason: BTreeMap<String, Met>,
}

impl Refusals {
    /// Whether this one is still named.
    pub(super) fn is_named(&mut self, text: &str) -> bool {
        let reason = without_names(text);
        let known = self.by_reason.contains_key(&reason);
        if !known && self.by_reason.len() >= REASONS_MAX {
            return true;
        }
        let met = Met { first: text.to_string(), count: 0 };
        let met = self.by_reason.entry(reason).or_insert(met);
        met.count += 1;
        met.count <= NAMED_MAX
    }

    /// What is said at the end of those that were not named.
    pub(super) fn rest(&self) -> impl Iterator<Item = String> {
        self.by_reason.values().filter(|met| met.count > NAMED_MAX).map(|met| {
            let more = met.count - NAMED_MAX;
            format!("and {more} more as the first of them, {}; -v names all", met.first)
        })
    }
}

/// A reason is the same whatever is named in it.
fn without_names(text: &str) -> String {
    text.split('\'').step_by(2).collect()
}

const NAMED_MAX: u64 = 10;
/// Beyond that each is named.
const REASONS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_are_named_and_the_rest_is_counted() {
        let mut refusals = Refusals::default();
        let named = (0..4801).filter(|i| refusals.is_named(&format!("'d/{i}' exists: do this")));
        assert_eq!(named.count(), 10);
        assert!(refusals.is_named("cannot open 'd/1': permission denied"));
        let rest: Vec<String> = refusals.rest().collect();
        let expect = "and 4791 more as the first of them, 'd/0' exists: do this; -v names all";
        assert_eq!(rest, [expect]);
    }
}
