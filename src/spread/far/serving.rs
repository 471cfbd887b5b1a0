//! The far end of a job: it carries out what is asked over a login, one line of JSON each, and
//! answers each with one, a walk of a source with as many as it takes, until its input ends.

use std::io::{self, BufRead, Read, Write};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::spread::destination::here::Here;
use crate::spread::destination::{DestinationFolder, Reply, Step};
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
    Greeting {
        program: String,
    },
    Reply(Reply),
    Source(Told),
    Failed {
        code: u8,
        why: String,
    },
    /// What was asked for goes on.
    Busy,
}

/// The word that starts this, and the line before its greeting: what is above was printed by a
/// login's start-up files.
pub(super) const WORD: &str = "spread-far";
pub(super) const MARK: &str = "datapump-spread";
pub(super) const PROGRAM: &str = concat!("datapump ", env!("CARGO_PKG_VERSION"));

/// `datapump spread-far`: the exit code.
pub fn main() -> u8 {
    match serve(&mut io::stdin().lock(), &mut io::stdout(), TELLS_EVERY) {
        Ok(()) => 0,
        Err(_) => Class::Unreachable.exit_code(),
    }
}

/// While it is busy it says so: who has asked takes one that is silent for lost.
fn serve(
    input: &mut dyn BufRead,
    output: &mut (dyn Write + Send),
    tells_every: Duration,
) -> io::Result<()> {
    writeln!(output, "\n{MARK}")?;
    say(output, &Response::Greeting { program: PROGRAM.to_string() })?;
    let output = Mutex::new(Output { to: output, is_busy: false });
    thread::scope(|scope| {
        let (_ended, wait) = mpsc::channel::<()>();
        let output = &output;
        scope.spawn(move || {
            while wait.recv_timeout(tells_every) == Err(RecvTimeoutError::Timeout) {
                let mut output = locked(output);
                if output.is_busy {
                    // Where nobody hears it, the next answer will notice.
                    let _ = say(output.to, &Response::Busy);
                }
            }
        });
        answer_all(input, output)
    })
}

/// What is said line by line, and whether an answer is due.
struct Output<'a> {
    to: &'a mut (dyn Write + Send),
    is_busy: bool,
}

fn locked<'a, 'b>(output: &'a Mutex<Output<'b>>) -> MutexGuard<'a, Output<'b>> {
    output.lock().unwrap_or_else(PoisonError::into_inner)
}

fn answer_all(input: &mut dyn BufRead, output: &Mutex<Output<'_>>) -> io::Result<()> {
    // The destination stays open from step to step.
    let mut here: Option<Here> = None;
    while let Some(line) = line(input)? {
        locked(output).is_busy = true;
        let done = match serde_json::from_slice::<Asked>(&line) {
            Ok(Asked::Step { place, step }) => {
                let same = here.take().filter(|here| *here.place() == place);
                let here = here.insert(same.unwrap_or_else(|| Here::new(place)));
                here.carry_out(&step).map(|reply| Some(Response::Reply(reply)))
            }
            Ok(Asked::Source(question)) => {
                let mut tell =
                    |told| say(locked(output).to, &Response::Source(told)).map_err(unheard);
                answer(&question, &mut tell).map(|()| None)
            }
            Err(why) => Err(Fault::peer(format!("this is no step of a spread: {why}"))),
        };
        let said = match done {
            Ok(said) => said,
            Err(fault) => Some(Response::Failed { code: fault.class.exit_code(), why: fault.text }),
        };
        let mut output = locked(output);
        output.is_busy = false;
        said.iter().try_for_each(|said| say(output.to, said))?;
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
const TELLS_EVERY: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::Arc;

    use super::*;
    use crate::spread::destination::{Linked, Name, Spot};

    fn answers(asked: &[Asked], after: &str) -> Vec<String> {
        let mut input = Vec::new();
        asked.iter().for_each(|one| say(&mut input, one).unwrap());
        input.extend(after.as_bytes());
        let mut output = Vec::new();
        serve(&mut &input[..], &mut output, TELLS_EVERY).unwrap();
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

    /// What is said, as it is seen while more is said.
    #[derive(Clone, Default)]
    struct Shared(Arc<Mutex<Vec<u8>>>);

    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// A digest of what nobody writes yet takes as long as that: meanwhile it is said to go on, and
    /// no more once it is answered.
    #[test]
    fn what_takes_long_is_said_to_go_on() {
        let scratch = tempfile::tempdir().unwrap();
        let place = DestinationFolder {
            folder: Name::from(scratch.path()),
            id: "1f".to_string(),
            token: "2e".to_string(),
        };
        let spot = Spot::Final(Name(b"slow".to_vec()));
        let (path, kind) = (place.path(&spot), rustix::fs::FileType::Fifo);
        rustix::fs::mknodat(rustix::fs::CWD, &path, kind, 0o600.into(), 0).unwrap();
        let mut input = Vec::new();
        say(&mut input, &Asked::Step { place, step: Step::Digest(spot) }).unwrap();
        let said = Shared::default();
        let text = || String::from_utf8(said.0.lock().unwrap().clone()).unwrap();
        thread::scope(|scope| {
            let mut output = said.clone();
            scope.spawn(move || serve(&mut &input[..], &mut output, Duration::from_millis(5)));
            while text().matches("\"busy\"").count() < 2 {
                thread::sleep(Duration::from_millis(5));
            }
            fs::write(&path, "abc").unwrap();
        });
        let last = text().lines().last().unwrap().to_string();
        let digest = Some(blake3::hash(b"abc").to_hex().to_string());
        match serde_json::from_str(&last).unwrap() {
            Response::Reply(reply) => assert_eq!(reply, Reply::Digest(digest)),
            other => panic!("{other:?}"),
        }
    }
}
