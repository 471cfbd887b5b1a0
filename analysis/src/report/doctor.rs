//! The findings of `doctor` as a page: trouble first, with why and what to do, then what is good.

use super::escape;
use crate::doctor::{Finding, State};

/// Findings by host and path, in the order in which they came.
pub fn page(findings: &[Finding]) -> String {
    let mut of: Vec<&str> = Vec::new();
    for finding in findings {
        if !of.contains(&finding.of.as_str()) {
            of.push(&finding.of);
        }
    }
    let pages = of.iter().map(|of| {
        let own: Vec<&Finding> = findings.iter().filter(|finding| finding.of == *of).collect();
        section(of, &own)
    });
    pages.collect::<Vec<_>>().join("\n")
}

fn section(of: &str, findings: &[&Finding]) -> String {
    let mut text = format!("{}: {}\n", escape::line(of), tally(findings));
    for state in [State::Trouble, State::Advice, State::Unknown] {
        for finding in findings.iter().filter(|finding| finding.state == state) {
            text.push_str(&format!(
                "  {:<9}{}: {}\n",
                finding.state.name(),
                finding.check,
                escape::line(&finding.found)
            ));
            let more = [("why", &finding.why), ("do", &finding.remedy)];
            for (word, said) in more.iter().filter(|(_, said)| !said.is_empty()) {
                text.push_str(&format!("           {word:<4}{}\n", escape::line(said)));
            }
        }
    }
    let good = findings.iter().filter(|finding| finding.state == State::Good);
    for finding in good {
        let found = escape::line(&finding.found);
        text.push_str(&format!("  good     {}: {found}\n", finding.check));
    }
    text
}

/// `1 trouble, 2 advice, 14 good`.
fn tally(findings: &[&Finding]) -> String {
    let of = |state: State| {
        let count = findings.iter().filter(|finding| finding.state == state).count();
        (count > 0).then(|| format!("{count} {}", state.name()))
    };
    let all = [State::Trouble, State::Advice, State::Unknown, State::Good];
    all.into_iter().filter_map(of).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trouble_comes_first_and_says_what_to_do() {
        let finding = |of: &str, check, state| Finding {
            of: of.into(),
            check,
            state,
            found: "1".into(),
            why: if state == State::Good { String::new() } else { "because".into() },
            remedy: if state == State::Good { String::new() } else { "sysctl".into() },
        };
        let page = page(&[
            finding("near", "a", State::Good),
            finding("near", "b", State::Trouble),
            finding("far", "c", State::Good),
        ]);
        insta::assert_snapshot!("doctor", page);
        assert_eq!(
            page,
            "near: 1 trouble, 1 good\n  trouble  b: 1\n           why because\n           do  \
             sysctl\n  good     a: 1\n\nfar: 1 good\n  good     c: 1\n"
        );
    }
}
