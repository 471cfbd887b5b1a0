//! The far end of a job: it carries out what is asked over a login, one line of JSON each, and
//! answers each with one, a walk of a source with as many as it takes, until its input ends.

use std::io::{self, BufRead, Read, Write};

use serde::{Deserialize, Serialize};

use crate::spread::destination::{DestinationFolder, Reply, Step, here};
use crate::spread::source::{Question, Told, answer};
use base::fault::{Class, Fault};

/// What is asked of it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Asked {
    Step { place: DestinationFolder, step: Step },
    Source(Question),
}

/// What it is answered.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Response {
    Greeting { program: String },
    Reply(Reply),
    Source(Told),
    Failed { code: u8, why: String },
}

/// The word that starts this, and the line before its greeting: what is above was printed by a
/// login's start-up files.
pub(super) const WORD: &str = "spread-far";
pub(super) const MARK: &str = "datapump-spread";
pub(super) const PROGRAM: &str = concat!("datapump ", env!("CARGO_PKG_VERSION"));

/// `datapump spread-far`: the exit code.
pub fn main() -> u8 {
    match serve(&mut io::stdin().lock(), &mut io::stdout().lock()) {
        Ok(()) => 0,
        Err(_) => Class::Unreachable.exit_code(),
    }
}

fn serve(input: &mut dyn BufRead, output: &mut dyn Write) -> io::Result<()> {
    writeln!(output, "\n{MARK}")?;
    say(output, &Response::Greeting { program: PROGRAM.to_string() })?;
    while let Some(line) = line(input)? {
        let done = match serde_json::from_slice::<Asked>(&line) {
            Ok(Asked::Step { place, step }) => {
                here::carry_out(&place, &step).map(|reply| Some(Response::Reply(reply)))
            }
            Ok(Asked::Source(question)) => {
                answer(&question, &mut |told| say(output, &Response::Source(told)).map_err(unheard))
                    .map(|()| None)
            }
            Err(why) => Err(Fault::peer(format!("this is no step of a spread: {why}"))),
        };
        let said = match done {
            Ok(said) => said,
            Err(fault) => Some(Response::Failed { code: fault.class.exit_code(), why: fault.text }),
        };
        said.iter().try_for_each(|said| say(output, said))?;
    }
    Ok(())
}

fn unheard(why: io::Error) -> Fault {
    Fault::new(Class::Unreachable, format!("nobody hears what is told: {why}"))
}

/// One line that a value makes.
pub(super) fn say<T: Serialize>(output: &mut dyn Write, value: &T) -> io::Result<()> {
    let mut text = serde_json::to_vec(value)?;
    text.push(b'\n');
    output.write_all(&text)?;
    output.flush()
}

/// The next line without its end; `None` at the end of the input, or where it breaks off.
pub(super) fn line(input: &mut dyn BufRead) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    input.take(LINE_BYTES_MAX).read_until(b'\n', &mut line)?;
    Ok((line.pop() == Some(b'\n')).then_some(line))
}

/// More than a step with its most names, of the greatest length, needs.
const LINE_BYTES_MAX: u64 = 64 << 20;

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::spread::destination::{Linked, Name, Spot};

    fn answers(asked: &[Asked], after: &str) -> Vec<String> {
        let mut input = Vec::new();
        asked.iter().for_each(|one| say(&mut input, one).unwrap());
        input.extend(after.as_bytes());
        let mut output = Vec::new();
        serve(&mut &input[..], &mut output).unwrap();
        String::from_utf8(output).unwrap().lines().map(str::to_string).collect()
    }

    /// A file gets its name over the lines as it does here, also where the answer was lost and
    /// the step is asked for again; and none is replaced.
    #[test]
    fn steps_arrive_as_they_are_asked() {
        let scratch = tempfile::tempdir().unwrap();
        let place = DestinationFolder {
            folder: Name::from(scratch.path()),
            id: "1f".to_string(),
            token: "2e".to_string(),
        };
        let staged = |name: &[u8]| Spot::Staged { attempt: "3.1".into(), name: Name(name.into()) };
        let name = b"a folder/\xffnew\nline".to_vec();
        let ask = |step| Asked::Step { place: place.clone(), step };
        let before = answers(
            &[
                ask(Step::Prepare),
                ask(Step::IsTaken),
                ask(Step::Take { job: "/job".into() }),
                ask(Step::IsTaken),
                ask(Step::MakeStaging { attempt: "3.1".into(), tries: 2 }),
                ask(Step::MakeStaging { attempt: "3.1".into(), tries: 2 }),
            ],
            "",
        );
        assert_eq!((&*before[0], &*before[1]), ("", MARK));
        let reply = |line: &String| match serde_json::from_str(line).unwrap() {
            Response::Reply(reply) => reply,
            other => panic!("{other:?}"),
        };
        let replies: Vec<Reply> = before[3..].iter().map(reply).collect();
        let (folder, was_empty) = (Name::from(&*scratch.path().canonicalize().unwrap()), true);
        let prepared = Reply::Prepared { folder, was_empty };
        assert_eq!(
            replies,
            [prepared, Reply::No, Reply::Done, Reply::Yes, Reply::Done, Reply::Stands]
        );
        fs::write(place.path(&staged(b"0/x")), "new").unwrap();
        fs::write(scratch.path().join("old"), "old").unwrap();
        let link = |to: &[u8]| (staged(b"0/x"), Spot::Final(Name(to.to_vec())));
        let link_all =
            || ask(Step::Link(vec![link(&name), link(b"old"), (staged(b"1/x"), staged(b"y"))]));
        for _ in 0..2 {
            let said = answers(&[link_all()], "");
            let linked = vec![Linked::Ours, Linked::Exists, Linked::Gone];
            assert_eq!(reply(&said[3]), Reply::Linked(linked));
        }
        assert_eq!(fs::read(scratch.path().join("old")).unwrap(), b"old");
        assert_eq!(fs::read(place.path(&Spot::Final(Name(name)))).unwrap(), b"new");
    }

    #[test]
    fn what_is_no_step_is_refused_and_half_a_line_is_the_end() {
        let said = answers(&[], "{}\n{\"step\":");
        assert_eq!(said.len(), 4);
        assert!(said[3].contains("\"failed\":{\"code\":9"), "{}", said[3]);
    }
}
