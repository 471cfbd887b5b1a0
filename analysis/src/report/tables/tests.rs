use super::*;
use crate::record::sample::{Gate, Record};
use crate::study::CpuFrom;
use crate::study::tests::planted;

fn studies(records: &[Record]) -> Studies {
    Studies::of(records, None, CpuFrom::Soaked)
}

#[test]
fn every_table_and_figure_is_there_in_both_forms() {
    let study = Studies::of(&planted(0.03), None, CpuFrom::Soaked);
    let environments =
        [Environment { host: "ada|1".into(), facts: [("kernel".into(), "6".into())].into() }];
    for form in [Form::Text, Form::Markdown] {
        let text = page(&study, &environments, form);
        insta::assert_snapshot!(format!("model-{form:?}").to_lowercase(), text);
        for table in ["1", "2", "3", "4", "5", "6", "6a", "6b", "7", "7a", "7b", "8", "9"] {
            assert!(text.contains(&format!("Table {table}. ")), "{table}: {text}");
        }
        for figure in 2..=6 {
            assert!(text.contains(&format!("Figure {figure}. ")), "{figure}: {text}");
        }
        for heading in ["The same without the soaker, by clocks alone", "What a soaker changes"] {
            assert!(text.contains(heading), "{heading}: {text}");
        }
        assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
    }
    assert!(page(&study, &environments, Form::Markdown).contains("### Host ada\\|1"));
}

#[test]
fn the_same_records_give_the_same_text() {
    let records = planted(0.05);
    let mut other: Vec<Record> = records.clone();
    other.rotate_left(77);
    let text = |records: &[Record]| page(&studies(records), &[], Form::Markdown);
    assert_eq!(text(&records), text(&other));
}

#[test]
fn nothing_measured_is_said() {
    let text = page(&studies(&[]), &[], Form::Text);
    assert!(text.contains("not measured"), "{text}");
    assert!(!text.contains("Table 1"), "{text}");
}

/// However many runs fail a gate, with different messages, there is one line for it.
#[test]
fn a_gate_is_named_once() {
    let mut records = planted(0.03);
    for (i, record) in records.iter_mut().enumerate().filter(|(i, _)| i % 3 == 0) {
        let value = 0.05 + i as f64 / 1e5;
        record.gates[0] = Gate { name: "drift".into(), value, limit: 0.03, passed: false };
        record.void_reason = Some(format!("the CPUs' speed changed by {value}"));
    }
    let text = page(&studies(&records), &[], Form::Text);
    let lines = |word: &str| text.lines().filter(|line| line.contains(word)).count();
    assert_eq!(lines("the CPUs' speed changed by"), 1, "{text}");
    assert_eq!(lines("runs void (gate: drift)"), 7, "one for each composition: {text}");
    let row = text.lines().find(|line| line.trim_start().starts_with("drift  ")).unwrap();
    assert!(row.contains("134"), "{row}");
}

#[test]
fn without_a_soaker_there_is_nothing_to_compare() {
    let mut records = planted(0.03);
    records.retain(|record| record.conditions.soaked_cpus.is_empty());
    let text = page(&studies(&records), &[], Form::Text);
    assert!(!text.contains("What a soaker changes"), "{text}");
    assert!(text.contains("Table 8"), "{text}");
}

#[test]
fn reads_of_headers_are_no_reads_of_payload() {
    let text = page(&studies(&planted(0.0)), &[], Form::Text);
    let at = text.find("what a read of payload returns").unwrap();
    let row = text[at..].lines().find(|line| line.trim_start().starts_with("1M")).unwrap();
    let words: Vec<&str> = row.split_whitespace().collect();
    assert_eq!(words, ["1M", "1/1", "64.00", "KiB", "6.3", "%", "93.8", "%", "16.00"]);
}
