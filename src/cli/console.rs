//! The one door through which the program speaks: text or JSON, standard output or error, and the
//! progress line that everything else must be printed around.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
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
    /// Where everything that is told is written too.
    log: Option<Mutex<File>>,
}

impl Console {
    /// The same with a log, which is appended to.
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

    /// True when there is a line that can be drawn again and again.
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
        // The spinner and a blank stand before it.
        let size = rustix::termios::tcgetwinsize(io::stderr());
        let columns = size.map_or(0, |size| usize::from(size.ws_col));
        (if columns == 0 { COLUMNS } else { columns }).saturating_sub(2)
    }

    /// Takes the progress line away.
    pub(super) fn clear(&self) {
        self.bar.finish_and_clear();
    }

    /// A passing remark, such as a line of progress. Not for programs, not when quiet.
    pub(crate) fn remark(&self, text: &str) {
        if self.show.form == Form::Text && self.show.amount >= Amount::Usual {
            self.say(Channel::Stderr, &escape::page(text));
        }
    }

    /// A file that was copied, or would be: for who asks for each, and for the log.
    pub(super) fn file(&self, text: &str) {
        self.note(text);
        if self.show.form == Form::Text && self.show.amount == Amount::Verbose {
            self.say(self.show.channel, &escape::line(text));
        }
    }

    /// Something that people should know although the run goes on.
    pub(super) fn warning(&self, text: &str) {
        self.note(&format!("warning: {text}"));
        match self.show.form {
            Form::Json => self.event(&Event::Warning { text: text.to_string() }),
            Form::Text => self.remark(&format!("datapump: warning: {}", escape::line(text))),
        }
    }

    /// Something that went wrong. Also beside JSON, unless that has the channel.
    pub(super) fn error(&self, text: &str) {
        self.note(&format!("error: {text}"));
        if self.show.form == Form::Text || self.show.channel == Channel::Stdout {
            self.say(Channel::Stderr, &format!("datapump: {}", escape::line(text)));
        }
    }

    /// The summary of a run.
    pub(super) fn summary(&self, text: &str) {
        text.lines().filter(|line| !line.is_empty()).for_each(|line| self.note(line));
        if self.show.form == Form::Text && self.show.amount >= Amount::Usual {
            self.say(self.show.channel, &escape::page(text.trim_end()));
        }
    }

    /// What is wrong with the command line: it was typed here, and may take several lines.
    pub(crate) fn refusal(&self, text: &str) {
        if self.show.form == Form::Text || self.show.channel == Channel::Stdout {
            self.say(Channel::Stderr, &format!("datapump: {}", escape::page(text)));
        }
    }

    /// A line of JSON, if that is what is spoken.
    pub(super) fn event(&self, event: &Event) {
        if self.show.form == Form::Json {
            let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let stamp = Stamp { unix, since_start: self.started.elapsed().into() };
            self.say(self.show.channel, &json::line(stamp, event));
        }
    }

    /// A line in the log. Whoever takes the log away has what it had until then.
    fn note(&self, text: &str) {
        let Some(log) = &self.log else { return };
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let line = format!("{} {}\n", utc(unix), escape::line(text));
        let mut file = log.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = file.write_all(line.as_bytes());
    }

    fn say(&self, channel: Channel, text: &str) {
        let line = format!("{text}\n");
        self.bar.suspend(|| match channel {
            Channel::Stdout => print(&mut io::stdout().lock(), &line),
            Channel::Stderr => print(&mut io::stderr().lock(), &line),
        });
    }
}

/// Whoever reads may have gone; the work goes on without them.
pub(super) fn print(out: &mut dyn Write, text: &str) {
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// The same for one line of words that may be a stranger's.
pub(crate) fn print_line(out: &mut dyn Write, text: &str) {
    print(out, &format!("{}\n", escape::line(text)));
}

const DRAWS_PER_SECOND: u8 = 10;
/// Where a terminal does not say how wide it is.
const COLUMNS: usize = 80;
