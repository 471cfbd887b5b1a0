//! Command lines of earlier versions that mean something else now: what to type in their place.

use std::ffi::{OsStr, OsString};

use super::command_id::CommandId;
use super::options;
use super::typed::Typed;
use super::words::quote;

/// What to type instead of `measure net --time 10 HOST` and the like: before `net-test` was a
/// command of its own, a host or one of its options asked for a net test. `None` for other words.
pub(super) fn net_test(words: &[OsString]) -> Option<String> {
    if words.get(1)? != CommandId::Measure.name() {
        return None;
    }
    let rest = &words[2..];
    let asked = rest.iter().take_while(|word| *word != "--").any(|word| is_of_net_test(word));
    let at = rest.iter().position(|word| word == NET);
    let rest = (0..).zip(rest).filter(|(i, _)| Some(*i) != at).map(|(_, word)| &**word);
    let line = [OsStr::new("datapump"), OsStr::new(CommandId::NetTest.name())].into_iter();
    let line: Vec<OsString> = line.chain(rest).map(OsStr::to_os_string).collect();
    let fits = |typed: Typed| asked || typed.word("HOST").is_some();
    if at.is_some() && Typed::parse(&line).is_ok_and(fits) {
        let line: Vec<String> = line.iter().map(|word| quote(&word.to_string_lossy())).collect();
        return Some(format!("a net test is a command of its own now; write: {}", line.join(" ")));
    }
    asked.then(|| {
        "a net test is a command of its own now: write datapump net-test --time 10 HOST, or leave \
         its options out"
            .into()
    })
}

/// True for an option of `net-test` that neither `measure` nor `measure codec` has.
fn is_of_net_test(word: &OsStr) -> bool {
    let Some(word) = word.to_str() else { return false };
    let is = |command, long: Option<&str>, letter: Option<char>| {
        options::of(command).map(|option| option.description()).any(|option| {
            long.is_some_and(|long| option.name == long)
                || (letter.is_some() && option.letter == letter)
        })
    };
    let (long, letter) = match (word.strip_prefix("--"), word.strip_prefix('-')) {
        (Some(long), _) => (long.split('=').next(), None),
        (None, Some(letters)) => (None, letters.chars().next()),
        (None, None) => return false,
    };
    let measures = [CommandId::Measure, CommandId::MeasureCodec];
    is(CommandId::NetTest, long, letter)
        && !measures.into_iter().any(|command| is(command, long, letter))
}

const NET: &str = "net";
