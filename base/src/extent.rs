//! Ranges of a transfer's address space.

use std::collections::BTreeMap;

/// A range of the transfer's address space, short enough for one request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Extent {
    pub start: u64,
    pub len: u32,
}

impl Extent {
    #[inline]
    pub fn end(self) -> u64 {
        self.start + u64::from(self.len)
    }
}

/// A set of addresses, kept as ranges that neither touch nor overlap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExtentSet {
    /// start → end, exclusive.
    ranges: BTreeMap<u64, u64>,
}

impl ExtentSet {
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// The ranges in ascending order, as (start, end).
    #[inline]
    pub fn ranges(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.ranges.iter().map(|(start, end)| (*start, *end))
    }

    #[inline]
    pub fn contains(&self, address: u64) -> bool {
        self.end_of(address).is_some()
    }

    /// True when any of `start..end` is in the set.
    #[inline]
    pub fn touches(&self, start: u64, end: u64) -> bool {
        self.ranges.range(..end).next_back().is_some_and(|(_, reaches)| *reaches > start)
    }

    /// The end of the range that contains `address`.
    pub fn end_of(&self, address: u64) -> Option<u64> {
        let (_, end) = self.ranges.range(..=address).next_back()?;
        (*end > address).then_some(*end)
    }

    #[inline]
    pub fn range_count(&self) -> usize {
        self.ranges.len()
    }

    /// Addresses in the set.
    #[inline]
    pub fn total(&self) -> u64 {
        self.ranges().map(|(start, end)| end - start).sum()
    }

    /// Adds `start..end`. Returns false and changes nothing if any of it is already in the set.
    #[must_use]
    pub fn insert_new(&mut self, start: u64, end: u64) -> bool {
        assert!(start <= end, "a range that ends before it starts");
        if start == end {
            return true;
        }
        let before = self.ranges.range(..=start).next_back().map(|(s, e)| (*s, *e));
        let after = self.ranges.range(start..).next().map(|(s, e)| (*s, *e));
        if before.is_some_and(|(_, e)| e > start) || after.is_some_and(|(s, _)| s < end) {
            return false;
        }
        let mut new_start = start;
        let mut new_end = end;
        if let Some((s, e)) = before
            && e == start
        {
            new_start = s;
        }
        if let Some((s, e)) = after
            && s == end
        {
            self.ranges.remove(&s);
            new_end = e;
        }
        self.ranges.insert(new_start, new_end);
        true
    }

    /// Removes `start..end`, all of which must be in the set.
    pub fn remove(&mut self, start: u64, end: u64) {
        let (from, to) = self
            .ranges
            .range(..=start)
            .next_back()
            .map(|(from, to)| (*from, *to))
            .filter(|(_, to)| end <= *to)
            .expect("only what is here can be taken out");
        self.ranges.remove(&from);
        if from < start {
            self.ranges.insert(from, start);
        }
        if end < to {
            self.ranges.insert(end, to);
        }
    }

    /// The ranges of `0..size` that are not in the set.
    pub fn gaps(&self, size: u64) -> Vec<(u64, u64)> {
        let mut gaps = Vec::new();
        let mut at = 0;
        for (start, end) in self.ranges().chain([(size, size)]) {
            if at < start {
                gaps.push((at, start));
            }
            at = end;
        }
        gaps
    }

    /// The first address not in the set, counting from zero.
    #[inline]
    pub fn first_gap(&self) -> u64 {
        match self.ranges.first_key_value() {
            Some((0, end)) => *end,
            _ => 0,
        }
    }

    pub fn clear(&mut self) {
        self.ranges.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn like_a_bitmap(steps in prop::collection::vec((0u64..200, 0u64..20), 1..60)) {
            let mut set = ExtentSet::default();
            let mut bits = [false; 256];
            for (start, len) in steps {
                let range = start as usize..(start + len) as usize;
                let fresh = bits[range.clone()].iter().all(|bit| !bit);
                prop_assert_eq!(set.insert_new(start, start + len), fresh);
                if fresh {
                    bits[range].fill(true);
                }
                let count = bits.iter().filter(|bit| **bit).count() as u64;
                prop_assert_eq!(set.total(), count);
                let gap = bits.iter().position(|bit| !bit).unwrap() as u64;
                prop_assert_eq!(set.first_gap(), gap);
                let ranges: Vec<_> = set.ranges().collect();
                prop_assert!(ranges.windows(2).all(|pair| pair[0].1 < pair[1].0));
                let gaps: u64 = set.gaps(256).iter().map(|(start, end)| end - start).sum();
                prop_assert_eq!(gaps + count, 256);
                // The first range loses its middle again.
                if let Some((from, to)) = ranges.first().filter(|(from, to)| to - from > 8) {
                    set.remove(from + 3, to - 2);
                    bits[*from as usize + 3..*to as usize - 2].fill(false);
                }
            }
        }
    }
}
