//! What the knobs mean once they are parsed. The same value travels to the far side.

use super::units::{Nanos, Rate};

/// Everything that both sides of a transfer must know about how to move bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    pub streams: u16,
    pub request_bytes: u32,
    /// Requests in flight at the source of each lane; `None` lets the engine choose.
    pub depth_source: Option<u16>,
    pub depth_sink: Option<u16>,
    /// The TCP window to advertise; `None` leaves autotuning alone.
    pub window_bytes: Option<u32>,
    /// The congestion control's kernel name; `None` leaves the host's default.
    pub congestion: Option<String>,
    pub rate: Option<Rate>,
    pub engine: EngineChoice,
    pub direct: Direct,
    pub receive: Receive,
    pub seal: Seal,
    pub digest: DigestKind,
    pub fsync: Fsync,
    pub overwrite: Overwrite,
    pub memory_bytes: u64,
    pub preallocate: Preallocate,
    /// Keep mode and mtime.
    pub preserve: bool,
    /// Keep owner, extended attributes, access control lists and all bits of the mode too.
    pub archive: bool,
    pub recursive: bool,
    pub links: Links,
    /// Lines of gitignore rules: what matches is left out; behind a `!` it is kept.
    pub filters: Vec<String>,
    pub skip_unchanged: SkipUnchanged,
    /// Only say what would be copied.
    pub dry_run: bool,
    /// Objects that may fail before the transfer ends; `None` for any number.
    pub errors_max: Option<u32>,
    /// Do not look at what an earlier transfer has left.
    pub fresh: bool,
    /// How long a connection may move nothing before it is given up.
    pub stall: Nanos,
    pub path_samples: PathSamples,
}

/// A knob with a few named values: the table of names makes parser, help and wire at once.
macro_rules! choice {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $text:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum $name { $($(#[$vdoc])* $variant,)+ }

        impl $name {
            pub const ALL: &[$name] = &[$($name::$variant,)+];
            pub const NAMES: &[&str] = &[$($text,)+];

            pub fn name(self) -> &'static str {
                Self::NAMES[self as usize]
            }

            pub fn parse(text: &str) -> Option<$name> {
                Self::NAMES.iter().position(|name| *name == text).map(|i| Self::ALL[i])
            }

            pub fn from_code(code: u8) -> Option<$name> {
                Self::ALL.get(usize::from(code)).copied()
            }
        }
    };
}

choice!(
    /// Which backend does the input and output.
    EngineChoice { Auto = "auto", Uring = "uring", Threads = "threads", }
);
choice!(
    /// How a source takes a body off a socket.
    Receive {
        /// One call waits for all of it, where nothing else is to be done.
        WaitAll = "waitall",
        /// Each call takes what is there.
        Any = "any",
    }
);
choice!(
    /// Whether files bypass the page cache.
    Direct { Auto = "auto", On = "on", Off = "off", }
);
choice!(
    /// How data streams are protected.
    Seal {
        /// TLS 1.3: secret and tamper-evident.
        Tls = "tls",
        /// Clear text with a keyed tag on each block: tamper-evident, not secret.
        Auth = "auth",
        /// Clear text; connections still prove that they belong to the transfer.
        Off = "off",
    }
);
choice!(
    /// The digest that follows the bytes from source to sink.
    DigestKind { Blake3 = "blake3", Crc64 = "crc64", None = "none", }
);
choice!(
    /// Whether a file is on stable storage before it gets its name.
    Fsync { File = "file", Off = "off", }
);
choice!(
    /// What happens to a destination file that exists.
    Overwrite { Never = "never", Older = "older", Always = "always", }
);
choice!(
    /// Whether a file's blocks are reserved before its bytes arrive.
    Preallocate { Off = "off", On = "on", }
);

choice!(
    /// What becomes of symbolic links below a source.
    Links { Copy = "copy", Follow = "follow", Skip = "skip", }
);
choice!(
    /// Which destination files are taken for what they should be.
    SkipUnchanged {
        No = "no",
        /// Of the same size and modification time.
        Times = "times",
        /// Of the same size and bytes.
        Checksum = "checksum",
    }
);

choice!(
    /// Whether TCP's view of each stream is sampled; off is for measuring what that costs.
    PathSamples { On = "on", Off = "off", }
);

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            streams: 4,
            request_bytes: 1 << 20,
            depth_source: None,
            depth_sink: None,
            window_bytes: None,
            congestion: None,
            rate: None,
            engine: EngineChoice::Auto,
            direct: Direct::Auto,
            receive: Receive::WaitAll,
            seal: Seal::Tls,
            digest: DigestKind::Blake3,
            fsync: Fsync::File,
            overwrite: Overwrite::Never,
            memory_bytes: 256 << 20,
            preallocate: Preallocate::Off,
            preserve: true,
            archive: false,
            recursive: false,
            links: Links::Copy,
            filters: Vec::new(),
            skip_unchanged: SkipUnchanged::No,
            dry_run: false,
            errors_max: None,
            fresh: false,
            stall: Nanos::from_millis(10_000),
            path_samples: PathSamples::On,
        }
    }
}
