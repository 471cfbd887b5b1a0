//! The far end of a job: it carries out what is asked over a login, one line of JSON each, and
//! answers each with one, a walk of a source with as many as it takes, until its input ends.
//! Meanwhile it starts the far sides of copies, which read and write over the same login.

use std::collections::BTreeMap;
use std::io::{self, BufRead, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, Scope};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::pieces::{Piece, pass_on};
use crate::spread::destination::here::Here;
use crate::spread::destination::{DestinationFolder, Reply, Step};
use crate::spread::source::{Question, Told, answer};
use base::fault::{Class, Fault};
use mover::io::system;

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
        let (ended, wait) = mpsc::channel::<()>();
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
        let (ask, asked) = mpsc::channel();
        let answering = scope.spawn(move || {
            let answered = answer_all(&asked, output);
            drop(ended);
            answered
        });
        let heard = hear(input, &ask, Peers { scope, output, inputs: BTreeMap::new() });
        drop(ask);
        let broken = |_| io::Error::from(io::ErrorKind::BrokenPipe);
        answering.join().map_err(broken)?.and(heard)
    })
}

/// Takes what comes until it ends. A step never holds up what a copy says, nor the reverse.
fn hear(
    input: &mut dyn BufRead,
    ask: &Sender<Vec<u8>>,
    mut peers: Peers<'_, '_, '_>,
) -> io::Result<()> {
    while let Some(piece) = Piece::read(input)? {
        match piece {
            Piece::Line(line) => {
                if ask.send(line).is_err() {
                    return Ok(());
                }
            }
            Piece::Start(number) => peers.start(number),
            Piece::Bytes(number, bytes) => peers.give(number, &bytes),
            Piece::End(number, _) => drop(peers.inputs.remove(&number)),
        }
    }
    Ok(())
}

/// The far sides of copies that run.
struct Peers<'scope, 'env, 'a> {
    scope: &'scope Scope<'scope, 'env>,
    output: &'scope Mutex<Output<'a>>,
    inputs: BTreeMap<u32, ChildStdin>,
}

impl Peers<'_, '_, '_> {
    fn start(&mut self, number: u32) {
        let output = self.output;
        let Ok(mut child) = started() else {
            // As a shell says that a program cannot be run.
            let end = Piece::End(number, CANNOT_RUN);
            return drop(end.write(locked(output).to));
        };
        self.inputs.extend(child.stdin.take().map(|input| (number, input)));
        self.scope.spawn(move || {
            if let Some(mut from) = child.stdout.take() {
                pass_on(&mut from, number, &mut |piece| piece.write(locked(output).to).is_ok());
            }
            let code = child.wait().ok().and_then(|status| status.code());
            let code = code.and_then(|code| u8::try_from(code).ok()).unwrap_or(LOST);
            let _ = Piece::End(number, code).write(locked(output).to);
        });
    }

    fn give(&mut self, number: u32, bytes: &[u8]) {
        // One that has ended reads nothing any more.
        if let Some(input) = self.inputs.get_mut(&number)
            && input.write_all(bytes).is_err()
        {
            self.inputs.remove(&number);
        }
    }
}

/// The same program as this one, which ends with it.
fn started() -> io::Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    // Under the name that this one was started by.
    std::env::args_os().next().map(|name| command.arg0(name));
    command.arg("peer").stdin(Stdio::piped()).stdout(Stdio::piped());
    system::end_with_parent(&mut command);
    command.spawn()
}

/// What is said piece by piece, and whether an answer is due.
struct Output<'a> {
    to: &'a mut (dyn Write + Send),
    is_busy: bool,
}

fn locked<'a, 'b>(output: &'a Mutex<Output<'b>>) -> MutexGuard<'a, Output<'b>> {
    output.lock().unwrap_or_else(PoisonError::into_inner)
}

fn answer_all(asked: &Receiver<Vec<u8>>, output: &Mutex<Output<'_>>) -> io::Result<()> {
    // The destination stays open from step to step.
    let mut here: Option<Here> = None;
    while let Ok(line) = asked.recv() {
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
    Piece::Line(serde_json::to_vec(value)?).write(output)
}

const CANNOT_RUN: u8 = 126;
/// As ssh says that what it started was killed, or lost.
const LOST: u8 = 255;
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
