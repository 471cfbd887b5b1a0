//! How two trees differ, as text.

use serde::Serialize;

use base::reason::{Changes, Reason};

use super::live::count;

/// What is told of one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Difference {
    OnlyInA,
    OnlyInB,
    Differs(Changes),
}

impl Difference {
    /// Of what a copy from A to B would do.
    pub fn of(reason: Reason) -> Difference {
        match reason {
            Reason::New => Difference::OnlyInA,
            Reason::Changed(changes) => Difference::Differs(changes),
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Difference::OnlyInA => "only_in_a",
            Difference::OnlyInB => "only_in_b",
            Difference::Differs(_) => "differs",
        }
    }
}

/// The names of two trees, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Compared {
    pub equal: u64,
    pub differing: u64,
    pub only_in_a: u64,
    pub only_in_b: u64,
}

impl Compared {
    pub fn add(&mut self, difference: Difference) {
        match difference {
            Difference::OnlyInA => self.only_in_a += 1,
            Difference::OnlyInB => self.only_in_b += 1,
            Difference::Differs(_) => self.differing += 1,
        }
    }

    pub fn differences(&self) -> u64 {
        self.differing + self.only_in_a + self.only_in_b
    }

    /// `by`: what was compared.
    pub fn summary(&self, by: &str) -> String {
        let equal = count(self.equal, "file");
        if self.differences() == 0 {
            return format!("no difference: {equal} equal by {by}\n");
        }
        let all = [
            (self.differing, if self.differing == 1 { "differs" } else { "differ" }),
            (self.only_in_a, "only in A"),
            (self.only_in_b, "only in B"),
        ];
        let all = all.into_iter().filter(|(number, _)| *number > 0);
        let all: Vec<String> = all.map(|(number, how)| format!("{number} {how}")).collect();
        format!("{}; {equal} equal by {by}\n", all.join(", "))
    }
}

/// A difference in one line.
pub fn line(path: &[u8], difference: Difference) -> String {
    let name = String::from_utf8_lossy(path);
    match difference {
        Difference::OnlyInA => format!("only in A  {name}"),
        Difference::OnlyInB => format!("only in B  {name}"),
        Difference::Differs(changes) => {
            let words = Reason::Changed(changes).words().join(", ");
            format!("differs    {name} ({words})")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::reason::Change;

    #[test]
    fn lines_and_sums() {
        let some = Changes::of([Change::Size, Change::Time]);
        let differences = [Difference::OnlyInA, Difference::OnlyInB, Difference::Differs(some)];
        let mut all = Compared { equal: 1, ..Compared::default() };
        assert_eq!(all.summary("size and time"), "no difference: 1 file equal by size and time\n");
        differences.into_iter().for_each(|difference| all.add(difference));
        all.add(Difference::OnlyInA);
        let expect = "1 differs, 2 only in A, 1 only in B; 1 file equal by contents\n";
        assert_eq!(all.summary("contents"), expect);
        let lines = differences.map(|difference| line(b"a/b", difference));
        let expect = ["only in A  a/b", "only in B  a/b", "differs    a/b (size, time)"];
        assert_eq!(lines, expect);
    }
}
