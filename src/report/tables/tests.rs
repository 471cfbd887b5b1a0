use super::*;
use crate::lab::sample::Record;
use crate::lab::study::tests::planted;

#[test]
fn every_table_and_figure_is_there_in_both_forms() {
    let study = Study::of(&planted(0.03));
    let environments =
        [Environment { host: "ada|1".into(), facts: [("kernel".into(), "6".into())].into() }];
    for form in [Form::Text, Form::Markdown] {
        let text = page(&study, &environments, form);
        for table in 1..=8 {
            assert!(text.contains(&format!("Table {table}. ")), "{table}: {text}");
        }
        for figure in 2..=6 {
            assert!(text.contains(&format!("Figure {figure}. ")), "{figure}: {text}");
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
    let text = |records: &[Record]| page(&Study::of(records), &[], Form::Markdown);
    assert_eq!(text(&records), text(&other));
}

#[test]
fn nothing_measured_is_said() {
    let text = page(&Study::of(&[]), &[], Form::Text);
    assert!(text.contains("not measured"), "{text}");
    assert!(!text.contains("Table 1"), "{text}");
}
