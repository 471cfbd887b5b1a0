//! What the program chose by itself, and the command that repeats a run.

use crate::page::Block;
use crate::record::options::Options;
use crate::record::sample::{Record, Side};
use base::units::{Bytes, Rate};

/// What was left to the program, and what it did.
pub(super) fn choices(record: &Record) -> Vec<Block> {
    let options = &record.options;
    let mut facts = vec![
        ("streams".to_string(), options.streams.to_string()),
        ("request size".into(), Bytes(options.request_bytes.into()).to_string()),
        (
            "window".into(),
            options
                .window_bytes
                .map_or("auto: left to TCP".into(), |bytes| Bytes(bytes.into()).to_string()),
        ),
        ("compression".into(), options.compress.clone()),
        ("carrier".into(), record.conditions.carrier.clone()),
    ];
    let sides = [("sending host", Some(&record.source)), ("receiving host", record.sink.as_ref())];
    for (name, side) in sides.into_iter().filter_map(|(name, side)| Some((name, side?))) {
        facts.extend(of_side(name, side, options));
    }
    if let Some(predicted) = &record.predicted {
        let rate = predicted.rate_bytes_per_s.map(|rate| Rate { bytes_per_second: rate });
        let told = rate.map_or(String::new(), |rate| format!("{rate}, "));
        let time = format!(
            "{told}{:.2} s ({:.2} to {:.2})",
            predicted.elapsed_s, predicted.elapsed_low_s, predicted.elapsed_high_s
        );
        facts.push(("predicted before it began".into(), time));
    }
    facts.retain(|(_, value)| !value.is_empty());
    vec![Block::Facts(facts)]
}

fn of_side(name: &str, side: &Side, options: &Options) -> Vec<(String, String)> {
    let asked = if options.engine == "auto" { " (auto)" } else { "" };
    let pace = match (options.pace.as_str(), side.pace_chosen_bytes_per_s) {
        ("auto", Some(chosen)) => {
            let rate = Rate { bytes_per_second: chosen as f64 };
            format!("{rate}: auto chose it, as bursts were lost")
        }
        ("auto", None) => "none: auto saw no need".into(),
        (fixed, _) => fixed.to_string(),
    };
    let mut facts = vec![
        (format!("engine, {name}"), format!("{}{asked}", side.engine)),
        (format!("depth, {name}"), side.depth.to_string()),
        (format!("congestion control, {name}"), side.congestion.clone()),
        (format!("peak memory, {name}"), Bytes(side.peak_memory_bytes).to_string()),
    ];
    if name == "sending host" {
        facts.push(("pace of all streams".into(), pace));
    }
    facts.retain(|(_, value)| value.trim() != "" && value != "0" && value != " (auto)");
    facts
}

pub(super) fn blocks(record: &Record) -> Vec<Block> {
    let Some(line) = line(record) else { return Vec::new() };
    vec![
        Block::Text(
            "With the options that it had, from the command line, the configuration, the \
             environment and a profile:"
                .into(),
        ),
        Block::Command(line),
    ]
}

/// The command line, where it is known.
pub fn line(record: &Record) -> Option<String> {
    let given = record.given.as_ref()?;
    let ends: Vec<&String> = match record.command.as_str() {
        "copy" => record.sources.iter().chain([&record.target]).collect(),
        "net-test" => record.remote.iter().map(|remote| &remote.host).collect(),
        _ => return None,
    };
    if record.sources.is_empty() {
        return None;
    }
    let mut words = vec!["datapump".to_string(), record.command.clone()];
    words.extend(given.iter().map(|word| quoted(word)));
    if ends.iter().any(|end| end.starts_with('-') && *end != "-") {
        words.push("--".into());
    }
    words.extend(ends.into_iter().map(|end| quoted(end)));
    Some(words.join(" "))
}

/// A word as a shell takes it back; what would hide or reverse text is spelled out.
pub(in crate::page) fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "%+,-./:=@_".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_string();
    }
    let safe = crate::report::escape::line(word) == word;
    match safe {
        true => format!("'{}'", word.replace('\'', "'\\''")),
        false => {
            let spelled = |c: char| match c {
                '\'' | '\\' => format!("\\{c}"),
                c if crate::report::escape::line(&c.to_string()) == c.to_string() => c.to_string(),
                c if u32::from(c) < 0x80 => format!("\\x{:02x}", u32::from(c)),
                c => format!("\\U{:08x}", u32::from(c)),
            };
            format!("$'{}'", word.chars().map(spelled).collect::<String>())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_for_a_shell() {
        let cases = [
            ("dtn2:/store/a.tar", "dtn2:/store/a.tar"),
            ("a b", "'a b'"),
            ("it's", "'it'\\''s'"),
            ("$(rm -rf x)", "'$(rm -rf x)'"),
            ("a\nb'\u{202e}", "$'a\\x0ab\\'\\U0000202e'"),
            ("", "''"),
        ];
        for (word, expect) in cases {
            assert_eq!(quoted(word), expect);
        }
    }

    #[test]
    fn the_command_has_what_was_given() {
        let words = |words: &[&str]| Some(words.iter().map(|word| word.to_string()).collect());
        let record = |given, source: &str| Record {
            command: "copy".into(),
            sources: vec![source.into()],
            target: "far:null:".into(),
            given,
            ..Record::default()
        };
        let cases = [
            (words(&[]), "null:1G", Some("datapump copy null:1G far:null:")),
            (
                words(&["--streams", "1", "--exclude=-a b"]),
                "a",
                Some("datapump copy --streams 1 '--exclude=-a b' a far:null:"),
            ),
            (words(&["--delete"]), "-x", Some("datapump copy --delete -- -x far:null:")),
            (words(&[]), "-", Some("datapump copy - far:null:")),
            (None, "a", None),
        ];
        for (given, source, expect) in cases {
            assert_eq!(line(&record(given, source)).as_deref(), expect);
        }
    }
}
