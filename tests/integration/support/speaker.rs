//! A peer that sends what a test wants, in the program's own protocol.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::process::{Child, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use base::extent::Extent;
use base::job::Location;
use base::label::{Kind, Label};
use base::settings::Settings;
use mover::wire::frame;
use mover::wire::message::{Carries, MARK, Message, Open, Opened, Origin, Role, VERSION_MAX};

use super::{PATIENCE, Scene};

/// One end of a control connection in the hands of a test.
pub(crate) struct Speaker {
    writer: Box<dyn Write + Send>,
    heard: Receiver<Message>,
    /// Heard already, and not handed on.
    put_back: VecDeque<Message>,
    frames: u64,
}

impl Speaker {
    /// Greets an honest follower, which says its mark first.
    pub(crate) fn driver(
        reader: impl Read + Send + 'static,
        writer: impl Write + Send + 'static,
    ) -> Self {
        let mut speaker = Speaker::new(reader, Box::new(writer), Mark::Skip);
        speaker.say(&hello());
        assert!(matches!(speaker.hear(), Some(Message::Hello { .. })), "no greeting");
        speaker
    }

    /// Greets an honest driver.
    pub(crate) fn follower(
        reader: impl Read + Send + 'static,
        writer: impl Write + Send + 'static,
    ) -> Self {
        let mut speaker = Speaker::new(reader, Box::new(writer), Mark::None);
        speaker.raw(MARK);
        speaker.say(&hello());
        assert!(matches!(speaker.hear(), Some(Message::Hello { .. })), "no greeting");
        speaker
    }

    fn new(
        mut reader: impl Read + Send + 'static,
        writer: Box<dyn Write + Send>,
        mark: Mark,
    ) -> Self {
        let (heard_in, heard) = mpsc::channel();
        thread::spawn(move || {
            let mut first = Vec::new();
            match mark {
                Mark::Skip => drop(skip_mark(&mut reader)?),
                Mark::None => first = skip_script(&mut reader),
            }
            let mut reader = first.as_slice().chain(reader);
            while let Some(bytes) = envelope(&mut reader) {
                heard_in.send(Message::decode(&bytes[4..]).ok()?).ok()?;
            }
            Some(())
        });
        Speaker { writer, heard, put_back: VecDeque::new(), frames: 0 }
    }

    /// The other side may have closed the connection: that is no error.
    pub(crate) fn say(&mut self, message: &Message) {
        self.raw(&message.encode());
    }

    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        self.try_raw(bytes);
    }

    /// False if the connection is closed.
    pub(crate) fn try_raw(&mut self, bytes: &[u8]) -> bool {
        self.writer.write_all(bytes).and_then(|()| self.writer.flush()).is_ok()
    }

    /// A frame of a data stream that the control connection carries.
    pub(crate) fn frame(&mut self, label: &Label, body: &[u8]) {
        let bytes = [&frame::encode(label)[..], body].concat();
        for part in bytes.chunks(32 << 10) {
            self.say(&Message::Carried(part.to_vec()));
        }
        self.frames += 1;
    }

    /// The last frame of a data stream.
    pub(crate) fn end_frames(&mut self) {
        self.frame(&end_frame(self.frames), &[]);
    }

    /// The next message of the other side; `None` if the connection ends before.
    pub(crate) fn hear(&mut self) -> Option<Message> {
        self.hear_within(PATIENCE)
    }

    pub(crate) fn hear_within(&mut self, patience: Duration) -> Option<Message> {
        self.put_back.pop_front().or_else(|| self.heard.recv_timeout(patience).ok())
    }

    /// Opens a transfer as its driver, with the data on this connection.
    pub(crate) fn open(&mut self, role: Role, location: Location, settings: Settings) {
        self.open_port(role, location, settings);
        self.say(&Message::Carry(Carries::All));
    }

    /// Opens a transfer as its driver; returns the data port.
    pub(crate) fn open_port(&mut self, role: Role, location: Location, settings: Settings) -> u16 {
        self.ask(role, vec![location], settings);
        match self.hear() {
            Some(Message::Opened(opened)) => {
                if role == Role::Source {
                    self.say(&Message::Cut(opened.cut));
                }
                opened.port
            }
            answer => panic!("not opened: {answer:?}"),
        }
    }

    /// Asks to open a transfer as its driver.
    pub(crate) fn ask(&mut self, role: Role, locations: Vec<Location>, settings: Settings) {
        self.ask_for(role, locations, settings, false);
    }

    /// The same, for a list of names that comes later.
    pub(crate) fn ask_for(
        &mut self,
        role: Role,
        locations: Vec<Location>,
        settings: Settings,
        listed: bool,
    ) {
        let origin = Origin { single: false, endless: false };
        self.say(&Message::Open(Box::new(Open {
            role,
            locations,
            settings,
            ports: None,
            secret: base::secret::SharedSecret([7; 32]),
            fingerprint: [7; 32],
            origin: (role == Role::Sink).then_some(origin),
            window_bytes: 0,
            transfer: [7; 16],
            listed,
        })));
    }

    /// Answers a driver, which finds no data port and lets this connection carry the data; false if
    /// it rejects the answer.
    pub(crate) fn answer(&mut self, opened: Opened) -> bool {
        assert!(matches!(self.hear(), Some(Message::Open(_))), "not asked to open");
        self.say(&Message::Opened(opened));
        // Offers, or a list of names, may come first, and a driver that ends gives a reason.
        let mut others = VecDeque::new();
        let answer = loop {
            match self.hear() {
                Some(Message::Carry(_)) => break true,
                Some(Message::Stop(_)) | None => break false,
                Some(other) => others.push_back(other),
            }
        };
        self.put_back = others;
        answer
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mark {
    Skip,
    None,
}

pub(crate) fn hello() -> Message {
    Message::Hello { min: VERSION_MAX, max: VERSION_MAX, program: "a test".into() }
}

/// It says how many frames come before it.
pub(crate) fn end_frame(frames: u64) -> Label {
    Label { kind: Kind::End, extent: Extent { start: frames, len: 0 }, ..Label::default() }
}

/// Reads up to the mark, and returns all of it.
pub(crate) fn skip_mark(reader: &mut impl Read) -> Option<Vec<u8>> {
    let mut seen = Vec::new();
    while !seen.ends_with(MARK) {
        let mut byte = [0];
        reader.read_exact(&mut byte).ok()?;
        seen.push(byte[0]);
    }
    Some(seen)
}

/// One message with its envelope; `None` if the connection ends.
pub(crate) fn envelope(reader: &mut impl Read) -> Option<Vec<u8>> {
    let mut bytes = vec![0; 4];
    reader.read_exact(&mut bytes).ok()?;
    let length = Message::length(*bytes.first_chunk()?).ok()?;
    bytes.resize(4 + length, 0);
    reader.read_exact(&mut bytes[4..]).ok()?;
    Some(bytes)
}

/// `datapump peer` alone; the test holds its pipes.
pub(crate) fn honest_follower(scene: &Scene) -> Child {
    let mut command = scene.here(&scene.far_program());
    command.arg("peer").stdin(Stdio::piped()).stdout(Stdio::piped());
    command.spawn().unwrap()
}

/// Watches a process: its peak memory, and whether it had to be killed at the deadline.
pub(crate) fn watch(pid: i32) -> thread::JoinHandle<Watched> {
    thread::spawn(move || {
        let deadline = Instant::now() + PATIENCE;
        let mut watched = Watched::default();
        while !super::processes::ends_within(pid, Duration::from_millis(20)) {
            let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
            let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
            watched.memory_bytes_max = watched.memory_bytes_max.max(kib.unwrap_or(0) << 10);
            if status.contains("State:\tZ") {
                break;
            }
            if Instant::now() > deadline {
                watched.killed = true;
                super::processes::send(pid, rustix::process::Signal::KILL);
                break;
            }
        }
        watched
    })
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Watched {
    pub memory_bytes_max: u64,
    pub killed: bool,
}

/// What a driver sends to a shell comes first, where it may be one that answers. Returns what was
/// read of a message instead.
pub(crate) fn skip_script(reader: &mut impl Read) -> Vec<u8> {
    let mut seen = vec![0; 4];
    match reader.read_exact(&mut seen) {
        Ok(()) if seen == b"# da" => {}
        Ok(()) => return seen,
        Err(_) => return Vec::new(),
    }
    let mut byte = [0];
    while !seen.ends_with(b"} # datapump: end of the script\n")
        && reader.read_exact(&mut byte).is_ok()
    {
        seen.push(byte[0]);
    }
    Vec::new()
}
