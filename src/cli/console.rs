//! All output of the program: text or JSON, standard output or error, and the progress line, around
//! which all else must be printed.

use std::fs::{File, OpenOptions};
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::order::{Amount, Channel, Form, Show};
use analysis::report::escape;
use analysis::report::json::{self, Event, Stamp};
use analysis::report::utc::utc;
use base::fault::Fault;

#[derive(Debug)]
pub(crate) struct Console {
    show: Show,
    started: Instant,
    /// Hidden unless standard error is a terminal and text is wanted.
    bar: ProgressBar,
    /// The log file, which gets all messages too.
    log: Option<Mutex<File>>,
}

impl Console {
    /// A console with a log file, to which lines are appended.
    pub(super) fn with_log(
        show: Show,
        started: Instant,
        log: Option<&Path>,
    ) -> Result<Console, Fault> {
        let open = |path: &Path| {
            let opened = OpenOptions::new().create(true).append(true).open(path);
            opened
                .map_err(|why| Fault::system(&format!("write the log '{}'", path.display()), &why))
        };
        let log = log.map(open).transpose()?.map(Mutex::new);
        Ok(Console { log, ..Console::new(show, started) })
    }

    pub(super) fn new(show: Show, started: Instant) -> Console {
        let draws = show.form == Form::Text && show.amount >= Amount::Usual;
        let target = match draws {
            true => ProgressDrawTarget::stderr_with_hz(DRAWS_PER_SECOND),
            false => ProgressDrawTarget::hidden(),
        };
        let bar = ProgressBar::with_draw_target(None, target);
        if let Ok(style) = ProgressStyle::with_template("{spinner} {wide_msg}") {
            bar.set_style(style);
        }
        Console { show, started, bar, log: None }
    }

    pub(super) fn show(&self) -> Show {
        self.show
    }

    pub(super) fn started(&self) -> Instant {
        self.started
    }

    /// True if there is a progress line that can be redrawn.
    pub(crate) fn has_line(&self) -> bool {
        !self.bar.is_hidden()
    }

    /// Draws the progress line.
    pub(super) fn draw(&self, line: String) {
        self.bar.set_message(escape::line(&line));
        self.bar.tick();
    }

    /// The width that a progress line may have.
    pub(super) fn columns(&self) -> usize {
        // The spinner and a space are in front of it.
        let size = rustix::termios::tcgetwinsize(io::stderr());
        let columns = size.map_or(0, |size| usize::from(size.ws_col));
        (if columns == 0 { COLUMNS } else { columns }).saturating_sub(2)
    }

    /// Removes the progress line.
    pub(super) fn clear(&self) {
        self.bar.finish_and_clear();
    }

    /// A message of the moment, such as a line of progress. Not in JSON, not when quiet.
    pub(crate) fn remark(&self, text: &str) {
        if self.show.form == Form::Text && self.show.amount >= Amount::Usual {
            self.say(Channel::Stderr, &escape::page(text));
        }
    }

    /// A file that was copied, or would be: for `--verbose`, and for the log.
    pub(super) fn file(&self, text: &str) {
        self.note(text);
        if self.says_files() {
            self.say(self.show.channel, &escape::line(text));
        }
    }

    /// True where `file` does anything.
    pub(super) fn shows_files(&self) -> bool {
        self.says_files() || self.log.is_some()
    }

    /// True where no error is one too many.
    pub(super) fn shows_all_errors(&self) -> bool {
        self.show.amount == Amount::Verbose
    }

    fn says_files(&self) -> bool {
        self.show.form == Form::Text && self.show.amount == Amount::Verbose
    }

    /// A problem that does not stop the run.
    pub(super) fn warning(&self, text: &str) {
        self.note(&format!("warning: {text}"));
        match self.show.form {
            Form::Json => self.event(&Event::Warning { text: text.to_string() }),
            Form::Text => self.remark(&format!("datapump: warning: {}", escape::line(text))),
        }
    }

    /// An error. Also with JSON, unless that is on standard error.
    pub(super) fn error(&self, text: &str) {
        self.note(&format!("error: {text}"));
        if self.show.form == Form::Text || self.show.channel == Channel::Stdout {
            self.say(Channel::Stderr, &format!("datapump: {}", escape::line(text)));
        }
    }

    /// A problem that is one of many: for the log alone.
    pub(super) fn error_of_many(&self, text: &str) {
        self.note(&format!("error: {text}"));
    }

    /// The summary of a run.
    pub(super) fn summary(&self, text: &str) {
        text.lines().filter(|line| !line.is_empty()).for_each(|line| self.note(line));
        if self.show.form == Form::Text && self.show.amount >= Amount::Usual {
            self.say(self.show.channel, &escape::page(text.trim_end()));
        }
    }

    /// An error in the command line. It quotes what was typed here, and may have several lines.
    pub(crate) fn refusal(&self, text: &str) {
        if self.show.form == Form::Text || self.show.channel == Channel::Stdout {
            self.say(Channel::Stderr, &format!("datapump: {}", escape::page(text)));
        }
    }

    /// A line of JSON, if JSON is wanted.
    pub(super) fn event(&self, event: &Event) {
        if self.show.form == Form::Json {
            let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let stamp = Stamp { unix, since_start: self.started.elapsed().into() };
            self.say(self.show.channel, &json::line(stamp, event));
        }
    }

    /// A line in the log. A log that cannot be written any more stops nothing.
    fn note(&self, text: &str) {
        let Some(log) = &self.log else { return };
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let line = format!("{} {}\n", utc(unix), escape::line(text));
        let mut file = log.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = file.write_all(line.as_bytes());
    }

    fn say(&self, channel: Channel, text: &str) {
        let line = format!("{text}\n");
        self.bar.suspend(|| print(channel, &line));
    }
}

/// The one door of text. The reader may be gone, or the disk full: the work continues without it.
fn print(channel: Channel, text: &str) {
    let result = match channel {
        Channel::Stdout => data().write_all(text.as_bytes()).and_then(|()| data().flush()),
        Channel::Stderr => io::stderr().lock().write_all(text.as_bytes()),
    };
    match (channel, result) {
        (Channel::Stdout, Err(why)) if why.kind() != io::ErrorKind::BrokenPipe => {
            LOST.get_or_init(|| Fault::system("write to standard output", &why));
        }
        _ => {}
    }
}

/// Why standard output lacks something of what was printed, where a reader that has gone is not
/// the reason.
pub(super) fn lost() -> Option<&'static Fault> {
    LOST.get()
}

static LOST: OnceLock<Fault> = OnceLock::new();

/// Prints one line of text that may come from another host: control characters are escaped.
pub(crate) fn say_line(channel: Channel, text: &str) {
    print(channel, &format!("{}\n", escape::line(text)));
}

/// Prints a fault that ends the program.
pub(crate) fn say_fault(fault: &Fault) {
    say_line(Channel::Stderr, &format!("datapump: {fault}"));
}

/// Prints a page for people, whose lines are our own. Returns the exit code.
pub(super) fn show_page(what: &str, text: &str) -> u8 {
    written(what, data().write_all(escape::page(text).as_bytes()))
}

/// Prints a line for programs, which is JSON.
pub(super) fn say_json(line: &str) {
    print(Channel::Stdout, &format!("{line}\n"));
}

/// Standard output as it is, for what programs read, such as exports, and for what is our own.
pub(super) fn data() -> io::StdoutLock<'static> {
    io::stdout().lock()
}

pub(super) fn is_for_a_terminal() -> bool {
    io::stdout().is_terminal()
}

/// A closed pipe is no error: the reader has what it wanted.
pub(super) fn written(what: &str, result: io::Result<()>) -> u8 {
    match result.and_then(|()| data().flush()) {
        Err(why) if why.kind() != io::ErrorKind::BrokenPipe => {
            let fault = Fault::system(&format!("print {what}"), &why);
            say_fault(&fault);
            fault.class.exit_code()
        }
        _ => 0,
    }
}

const DRAWS_PER_SECOND: u8 = 10;
/// For a terminal that does not report its width.
const COLUMNS: usize = 80;
