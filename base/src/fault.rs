//! What can go wrong, sorted by who must act; the class chooses the exit code.

use std::fmt;
use std::io;
use std::path::Path;

/// Who must act, and so which exit code ends the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Class {
    /// Something on this host that fits no other class: the text says what.
    Local = 1,
    /// The command line is wrong: the user must change it.
    Usage = 2,
    /// Some files could not be copied or deleted; the others are complete.
    SomeFailed = 3,
    /// A source file changed while it was read: copy it again.
    SourceChanged = 4,
    /// The destination has no free space, or takes no writes: the user must free some.
    NoSpace = 5,
    /// Bytes arrived or were read back wrong: suspect memory, disk or wire.
    Corrupt = 6,
    /// The far host, its ssh or its data ports cannot be reached, or the connection was cut.
    Unreachable = 7,
    /// The far side has no datapump, or one that speaks no common version: install the same.
    Version = 8,
    /// The peer broke the protocol: suspect it.
    Peer = 9,
    /// Stopped by a signal.
    Interrupted = 130,
}

impl Class {
    /// Every class with the sentence that the README and the man page print, in order of exit code.
    pub const ALL: &[(Class, &str)] = &[
        (Class::Local, "an error that fits no other code; the message says what to do"),
        (Class::Usage, "the command line is wrong, or what it asks for is refused"),
        (
            Class::SomeFailed,
            "some files were not copied, or not deleted (each is named); all others are complete",
        ),
        (Class::SourceChanged, "a source file changed while it was read"),
        (Class::NoSpace, "the destination has no room, or takes no writes at all"),
        (Class::Corrupt, "verification failed: bytes are not what their digest says"),
        (
            Class::Unreachable,
            "the far host, its ssh or its ports cannot be reached, or the connection broke",
        ),
        (
            Class::Version,
            "the far side has no datapump, or a version that shares no protocol with this one",
        ),
        (Class::Peer, "the peer sent something that the protocol forbids"),
        (Class::Interrupted, "stopped by Ctrl-C or a signal"),
    ];

    pub fn exit_code(self) -> u8 {
        self as u8
    }

    pub fn from_code(code: u8) -> Option<Class> {
        Class::ALL.iter().map(|(class, _)| *class).find(|class| class.exit_code() == code)
    }
}

/// One failure: who must act, what happened where, and what to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    pub class: Class,
    pub text: String,
    /// It happened at the other host of a copy: paths in the text are that one's.
    pub is_far: bool,
}

impl Fault {
    pub fn new(class: Class, text: impl Into<String>) -> Fault {
        Fault { class, text: text.into(), is_far: false }
    }

    /// The same, seen from the other host.
    pub fn from_other_side(self) -> Fault {
        Fault { is_far: !self.is_far, ..self }
    }

    pub fn usage(text: impl Into<String>) -> Fault {
        Fault::new(Class::Usage, text)
    }

    pub fn peer(text: impl Into<String>) -> Fault {
        Fault::new(Class::Peer, text)
    }

    pub fn interrupted() -> Fault {
        Fault::new(Class::Interrupted, "interrupted")
    }

    /// A failed call on a path: `cannot open '/a/b': permission denied`.
    pub fn io(doing: &str, what: &Path, why: &io::Error) -> Fault {
        Fault::new(class_of(why), format!("cannot {doing} '{}': {}", what.display(), reason(why)))
    }

    /// A failed change to a destination. A disk with an I/O error counts as full: the next write
    /// fails too.
    pub fn write(doing: &str, what: &Path, why: &io::Error) -> Fault {
        let fault = Fault::io(doing, what, why);
        match why.raw_os_error() {
            Some(EIO) => Fault { class: Class::NoSpace, ..fault },
            _ => fault,
        }
    }

    /// A failed call on something without a path.
    pub fn system(doing: &str, why: &io::Error) -> Fault {
        Fault::new(class_of(why), format!("cannot {doing}: {}", reason(why)))
    }

    /// The same of what has another name in the same folder.
    pub fn renamed(self, from: &[u8], to: &[u8]) -> Fault {
        let last = |path: &[u8]| {
            let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
            String::from_utf8_lossy(name).into_owned()
        };
        match last(from) {
            from if from.is_empty() => self,
            from => Fault { text: self.text.replace(&from, &last(to)), ..self },
        }
    }

    /// True when the whole transfer must end: the next file would fail in the same way.
    pub fn ends_transfer(&self) -> bool {
        matches!(
            self.class,
            Class::NoSpace | Class::Unreachable | Class::Version | Class::Peer | Class::Interrupted
        )
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Fault {}

/// Input/output error, as every Unix numbers it.
const EIO: i32 = 5;

fn class_of(why: &io::Error) -> Class {
    match why.kind() {
        io::ErrorKind::StorageFull
        | io::ErrorKind::QuotaExceeded
        | io::ErrorKind::ReadOnlyFilesystem => Class::NoSpace,
        io::ErrorKind::Interrupted => Class::Interrupted,
        _ => Class::Local,
    }
}

/// The operating system's own sentence, in lower case and without the error number.
pub fn reason(why: &io::Error) -> String {
    let text = why.to_string();
    let plain = text.split(" (os error").next().unwrap_or(&text);
    let mut letters = plain.chars();
    match letters.next() {
        Some(first) => first.to_lowercase().chain(letters).collect(),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_has_the_name_that_the_user_knows() {
        let fault = Fault::new(Class::Local, "cannot make the link '/d/a/.x.part': no");
        assert_eq!(
            fault.renamed(b"a/.x.part", b"a/link").text,
            "cannot make the link '/d/a/link': no"
        );
    }

    #[test]
    fn codes_are_distinct_and_return() {
        for (i, (class, _)) in Class::ALL.iter().enumerate() {
            assert_eq!(Class::from_code(class.exit_code()), Some(*class));
            assert!(Class::ALL[..i].iter().all(|(other, _)| other.exit_code() < class.exit_code()));
        }
        assert_eq!(Class::from_code(0), None);
    }

    #[test]
    fn full_disk_ends_the_transfer() {
        let fault = Fault::io("write", Path::new("/a"), &io::Error::from_raw_os_error(28));
        assert_eq!((fault.class, fault.ends_transfer()), (Class::NoSpace, true));
        assert_eq!(fault.text, "cannot write '/a': no space left on device");
    }
}
