//! What the program chose by itself, and the command that repeats a run.

use crate::page::Block;
use crate::record::options::Options;
use crate::record::sample::{Record, Side};
use base::settings::Settings;
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
    if record.sources.is_empty() || !matches!(record.command.as_str(), "copy" | "net-test") {
        return Vec::new();
    }
    vec![
        Block::Text(
            "With the options that differ from the defaults, and the numbers that were used:"
                .into(),
        ),
        Block::Command(line(record)),
    ]
}

/// The command line.
fn line(record: &Record) -> String {
    let usual = Options::of(&Settings::default());
    let options = &record.options;
    let mut words: Vec<String> = vec!["datapump".into(), record.command.clone()];
    let mut option = |name: &str, value: Option<String>, usual: Option<String>| {
        if let Some(value) =
            value.filter(|value| Some(value) != usual.as_ref() && !value.is_empty())
        {
            words.push(format!("--{name}"));
            words.push(quoted(&value));
        }
    };
    let text = |number: u64| Some(number.to_string());
    let size = |bytes: u32| Some(Bytes(bytes.into()).typed());
    let rate = |rate: Option<f64>| rate.map(|rate| format!("{rate:.0}B"));
    let some = |text: &str| Some(text.to_string());
    let streams = if options.streams_auto { some("auto") } else { text(options.streams.into()) };
    option("streams", streams, text(usual.streams.into()));
    option("request-size", size(options.request_bytes), size(usual.request_bytes));
    option("window", options.window_bytes.and_then(size), None);
    option("congestion", options.congestion.clone(), None);
    option("rate", rate(options.rate_bytes_per_s), None);
    option("pace", some(&options.pace), some(&usual.pace));
    option("lockstep", options.lockstep.clone(), None);
    option("depth-source", options.depth_source.map(|depth| depth.to_string()), None);
    option("depth-sink", options.depth_sink.map(|depth| depth.to_string()), None);
    option("engine", some(&options.engine), some(&usual.engine));
    option("direct", some(&options.direct), some(&usual.direct));
    option("seal", some(&options.seal), some(&usual.seal));
    option("digest", some(&options.digest), some(&usual.digest));
    option("fsync", some(&options.fsync), some(&usual.fsync));
    option("compress", some(&options.compress), some(&usual.compress));
    if options.recursive {
        words.push("-r".into());
    }
    let ends = record.sources.iter().chain([&record.target]);
    let is_copy = record.command == "copy";
    words.extend(ends.filter(|_| is_copy).map(|end| quoted(end)));
    let host = record.remote.as_ref().map(|remote| quoted(&remote.host));
    words.extend(host.filter(|_| !is_copy));
    words.join(" ")
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
    fn only_what_differs_is_in_the_command() {
        let options = Options { streams: 1, window_bytes: Some(1 << 20), ..usual() };
        let record = Record {
            command: "copy".into(),
            sources: vec!["null:1G".into()],
            target: "far:null:".into(),
            options,
            ..Record::default()
        };
        assert_eq!(line(&record), "datapump copy --streams 1 --window 1M null:1G far:null:");
    }

    fn usual() -> Options {
        Options::of(&Settings::default())
    }
}
