//! The terms of a page that a reader may not know, each with its meaning: only those that stand in
//! it.

use super::{Block, Page, Section};
use crate::plot::Table;

/// Empty where no such term is used.
pub(super) fn section(page: &Page) -> Option<Section> {
    let said = texts(page);
    let is_used = |term: &&(&str, &[&str], &str)| {
        term.1.iter().any(|form| said.iter().any(|text| has_word(text, form)))
    };
    let facts = WORDS.iter().filter(is_used);
    let facts = facts.map(|(name, _, meaning)| ((*name).to_string(), (*meaning).to_string()));
    Section::of("words", "Words", vec![Block::Facts(facts.collect())])
}

/// All texts of a page that are not numbers behind a chart.
fn texts(page: &Page) -> Vec<String> {
    let of_table = |table: &Table| -> Vec<String> {
        let names = table.columns.iter().map(|column| column.name.clone());
        names.chain(std::iter::once(table.caption.clone())).collect()
    };
    let of = |block: &Block| match block {
        Block::Lead(text) | Block::Text(text) => vec![text.clone()],
        Block::List(list) => list.clone(),
        Block::Facts(facts) => {
            facts.iter().map(|(name, value)| format!("{name} {value}")).collect()
        }
        Block::Table(table) => of_table(table),
        Block::Figures(figures) => {
            let text = |figure: &crate::plot::Figure| format!("{} {}", figure.title, figure.about);
            figures.iter().map(text).collect()
        }
        Block::Command(_) => Vec::new(),
    };
    page.sections.iter().flat_map(|section| section.blocks.iter().flat_map(of)).collect()
}

/// True if the form stands in the text as a word of its own.
fn has_word(text: &str, form: &str) -> bool {
    let is_letter = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
    text.match_indices(form).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let after = text[at + form.len()..].chars().next();
        !is_letter(before) && !is_letter(after)
    })
}

/// A term, the forms in which it is used, and what it means.
const WORDS: [(&str, &[&str], &str); 14] = [
    (
        "Cb, Cr, Cs",
        &["Cb", "Cr", "Cs"],
        "CPU time of a byte; of a request, however large; and, in addition, of a request that \
         finds the device idle",
    ),
    (
        "congestion window",
        &["congestion window", "Congestion window"],
        "how much TCP lets be on its way at once, before an acknowledgement comes",
    ),
    ("digest", &["digest", "Digest"], "the checksum that shows that bytes arrived unchanged"),
    (
        "lane",
        &["lane", "lanes", "lanes'"],
        "the thread of a stream on each host: it reads or receives, processes, sends or writes",
    ),
    (
        "compression",
        &["zlib", "zstd", "lz4"],
        "off, or how data is compressed before it is sent: the codec and, behind the colon, its \
         level: 1 is quick, a higher one takes more CPU time and makes less",
    ),
    (
        "middle half",
        &["middle half", "IQR"],
        "half of the values lie between these two, a quarter below and a quarter above",
    ),
    (
        "recovery episode",
        &["recovery episode", "recovery episodes", "Recovery episode"],
        "the time in which TCP sends again what was lost, and slows down",
    ),
    (
        "retransmitted",
        &["retransmitted", "sent again"],
        "sent once more because it seemed lost; a share of it is of all segments that were sent, \
         these included",
    ),
    (
        "RS*",
        &["RS*"],
        "the request size where a request costs as much CPU time as its bytes; smaller requests \
         cost mostly themselves",
    ),
    (
        "source, sink",
        &["source", "sink", "disk source", "disk sink"],
        "what bytes are read from; what they are written to",
    ),
    ("seal", &["seal"], "encryption and authentication of the data on its way (TLS)"),
    (
        "slow start",
        &["slow start"],
        "the beginning of a connection, in which TCP finds out how fast it may send",
    ),
    (
        "Theil-Sen",
        &["Theil-Sen"],
        "a line through the median of all slopes between two points, which outliers hardly move",
    ),
    (
        "window",
        &["window"],
        "the most that one stream may have on its way; with a long round trip a small one limits \
         the rate",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_terms_that_are_used_are_explained() {
        let page = |text: &str| Page {
            sections: vec![Section {
                blocks: vec![Block::Text(text.into())],
                ..Section::default()
            }],
            ..Page::default()
        };
        let terms = |text: &str| -> Vec<String> {
            let found = section(&page(text));
            let blocks = found.map(|section| section.blocks).unwrap_or_default();
            let of = |block: Block| match block {
                Block::Facts(facts) => facts,
                _ => Vec::new(),
            };
            blocks.into_iter().flat_map(of).map(|(name, _)| name).collect()
        };
        let cases: [(&str, &[&str]); 5] = [
            ("nothing to explain", &[]),
            ("RS* = 8 KiB", &["RS*"]),
            ("the lanes' time", &["lane"]),
            ("planes and windowsills", &[]),
            ("Theil-Sen: Cb = 1 ns/B; the seal", &["Cb, Cr, Cs", "seal", "Theil-Sen"]),
        ];
        for (text, expect) in cases {
            assert_eq!(terms(text), expect, "{text}");
        }
    }
}
