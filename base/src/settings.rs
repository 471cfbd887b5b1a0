//! What the options mean once they are parsed. The far side gets the same value.

use super::codec::Compress;
use super::dscp::Dscp;
use super::extra::ExtraDigests;
use super::limits::{LOCKSTEP_BYTES_MAX, LOCKSTEP_BYTES_MIN, LOCKSTEP_PAUSE_MAX, STREAMS_MAX};
use super::owners::OwnerRule;
use super::units::{Bytes, Nanos, Rate, parse_rate, parse_size};

/// Everything that both sides of a transfer must know about how to move bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    pub streams: u16,
    /// `streams` is only how many there are at first: while the copy runs more are opened, and some
    /// ended.
    pub streams_auto: bool,
    pub request_bytes: u32,
    /// Requests in flight at the source of each lane; `None` lets the engine choose.
    pub depth_source: Option<u16>,
    pub depth_sink: Option<u16>,
    /// The TCP window to advertise; `None` leaves autotuning alone.
    pub window_bytes: Option<u32>,
    /// The congestion control's kernel name; `None` leaves the host's default.
    pub congestion: Option<String>,
    pub rate: Option<Rate>,
    /// How TCP spaces what it sends.
    pub pace: Pace,
    /// How data streams are marked for the network; `None` leaves the host's default.
    pub dscp: Option<Dscp>,
    /// Only for measuring what it costs.
    pub lockstep: Option<Lockstep>,
    pub engine: EngineChoice,
    pub direct: Direct,
    pub receive: Receive,
    pub seal: Seal,
    pub digest: DigestKind,
    /// Who digests what is sealed by `tls`.
    pub verify: Verify,
    /// Computed besides.
    pub digest_also: ExtraDigests,
    pub fsync: Fsync,
    pub overwrite: Overwrite,
    pub memory_bytes: u64,
    pub preallocate: Preallocate,
    /// Keep mode and mtime.
    pub preserve: bool,
    /// Keep owner, extended attributes, access control lists and all bits of the mode too.
    pub archive: bool,
    /// Owners are kept by their ids and not by their names.
    pub numeric_ids: bool,
    /// Who gets the files of whom; the first rule that matches counts.
    pub user_rules: Vec<OwnerRule>,
    pub group_rules: Vec<OwnerRule>,
    pub recursive: bool,
    pub links: Links,
    /// Lines of gitignore rules: what matches is left out; after a `!` it is kept.
    pub filters: Vec<String>,
    /// Files of fewer bytes, and of more, are left out.
    pub min_size: Option<u64>,
    pub max_size: Option<u64>,
    /// Files that were not changed after this are left out.
    pub newer: Option<Moment>,
    pub skip_unchanged: SkipUnchanged,
    /// Whether what the source does not have is removed.
    pub delete: Delete,
    /// Nothing is removed where there is more than this to remove.
    pub delete_max: Option<u64>,
    /// A folder below the destination for what is replaced or removed.
    pub backup_dir: Option<String>,
    /// Only say what would be copied.
    pub dry_run: bool,
    /// A dry run that compares two trees: what is in a source folder has its name in the
    /// destination, which is there.
    pub compare: bool,
    /// Objects that may fail before the transfer ends; `None` for any number.
    pub errors_max: Option<u32>,
    /// Ignore what an earlier transfer has left.
    pub fresh: bool,
    /// Make the folders above the destination that are missing.
    pub mkpath: bool,
    /// Copy each name of a file that has several as a file of its own.
    pub names_apart: bool,
    /// How long a connection may move nothing before it is given up.
    pub stall: Nanos,
    pub path_samples: PathSamples,
    /// Only on data streams: inside one process nothing is compressed.
    pub compress: Compress,
    /// Memory that a lane with a null end at one side of a network cycles through, one request
    /// after the other, so that the bytes are in no cache of the CPU, as with files. 0: requests
    /// keep their buffers. Only for measuring.
    pub null_cycle_bytes: u32,
}

/// How TCP spaces what it sends. The rate is that of all streams together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// The congestion control decides.
    Off,
    /// A pace is set where bursts cause losses.
    Auto,
    /// Only what other traffic leaves is taken.
    Scavenger,
    Fixed(Rate),
}

/// The values of `--pace`, as the user reads them.
pub const PACE_PHRASE: &str = "100Mbit (bits) or 80MB (bytes a second), auto, scavenger or off";

impl Pace {
    /// The error says what to write instead.
    pub fn parse(text: &str) -> Result<Pace, String> {
        match text {
            "off" => Ok(Pace::Off),
            "auto" => Ok(Pace::Auto),
            "scavenger" => Ok(Pace::Scavenger),
            rate => parse_rate(rate).map(Pace::Fixed).map_err(|_| format!("write {PACE_PHRASE}")),
        }
    }

    /// As it would be typed; rates in whole bytes a second.
    pub fn typed(self) -> String {
        match self {
            Pace::Off => "off".to_string(),
            Pace::Auto => "auto".to_string(),
            Pace::Scavenger => "scavenger".to_string(),
            Pace::Fixed(rate) => format!("{:.0}B", rate.bytes_per_second),
        }
    }

    /// The share of one of `streams` streams, in bytes a second, where it is known beforehand.
    pub fn of_each_stream(self, streams: u16) -> Option<u64> {
        match self {
            Pace::Off | Pace::Auto | Pace::Scavenger => None,
            Pace::Fixed(rate) => {
                Some((rate.bytes_per_second / f64::from(streams.max(1))).max(1.0) as u64)
            }
        }
    }
}

/// After `every_bytes` of a stream the source waits until the sink has them all, and then for
/// `pause`, as movers do that hand over one block at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lockstep {
    pub every_bytes: u64,
    pub pause: Nanos,
}

/// The values of `--lockstep`, as the user reads them.
pub const LOCKSTEP_PHRASE: &str =
    "SIZE:TIME, for instance 32M:250ms (4K to 1T, and ms or s up to an hour)";

impl Lockstep {
    /// `32M:250ms`. The error says what to write instead.
    pub fn parse(text: &str) -> Result<Lockstep, String> {
        let parsed = text.split_once(':').and_then(|(every, pause)| {
            let every_bytes = parse_size(every).ok()?;
            let (number, unit_ns) = match (pause.strip_suffix("ms"), pause.strip_suffix('s')) {
                (Some(number), _) => (number, 1_000_000),
                (None, Some(number)) => (number, 1_000_000_000),
                (None, None) => return None,
            };
            let pause = Nanos(number.parse::<u64>().ok()?.checked_mul(unit_ns)?);
            Some(Lockstep { every_bytes, pause })
        });
        parsed.filter(|lockstep| lockstep.fits()).ok_or_else(|| format!("write {LOCKSTEP_PHRASE}"))
    }

    pub fn fits(&self) -> bool {
        let sizes = LOCKSTEP_BYTES_MIN..=LOCKSTEP_BYTES_MAX;
        sizes.contains(&self.every_bytes) && self.pause <= LOCKSTEP_PAUSE_MAX
    }

    /// As it would be typed.
    pub fn typed(&self) -> String {
        format!("{}:{}ms", Bytes(self.every_bytes).typed(), self.pause.0 / 1_000_000)
    }
}

/// A time of a file, since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment {
    pub seconds: i64,
    /// Less than a second.
    pub nanos: u32,
}

/// How objects are cut into requests and digested; both sides must agree about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    pub request_bytes: u32,
    pub digest: DigestKind,
}

impl DigestKind {
    /// True for a digest that detects less.
    pub fn is_weaker_than(self, other: DigestKind) -> bool {
        let strength = |kind| match kind {
            DigestKind::None => 0,
            DigestKind::Crc64 => 1,
            DigestKind::Blake3 => 2,
        };
        strength(self) < strength(other)
    }
}

impl Settings {
    /// Whether files get users as at their source, or as rules say.
    pub fn keeps_users(&self) -> bool {
        self.preserve && (self.archive || !self.user_rules.is_empty())
    }

    pub fn keeps_groups(&self) -> bool {
        self.preserve && (self.archive || !self.group_rules.is_empty())
    }

    pub fn keeps_owners(&self) -> bool {
        self.keeps_users() || self.keeps_groups()
    }

    /// The size of requests where nobody has said one: smaller where the memory has no room for
    /// what many streams have under way.
    pub fn usual_request_bytes(&self) -> u32 {
        let usual = Settings::default();
        let streams = if self.streams_auto { STREAMS_MAX } else { self.streams };
        if streams <= usual.streams {
            return usual.request_bytes;
        }
        let fits = self.memory_bytes / (u64::from(streams) * REQUESTS_OF_A_STREAM);
        let fits = 1_u64 << fits.max(1).ilog2();
        fits.clamp(REQUEST_BYTES_LEAST.into(), usual.request_bytes.into()) as u32
    }

    pub fn cut(&self) -> Cut {
        Cut { request_bytes: self.request_bytes, digest: self.digest }
    }

    /// The same settings, with what both sides have agreed about.
    pub fn cut_as(&self, cut: Cut) -> Settings {
        let Cut { request_bytes, digest } = cut;
        Settings { request_bytes, digest, ..self.clone() }
    }
}

/// What a stream and its files have under way at least, with what is computed beside it.
const REQUESTS_OF_A_STREAM: u64 = 5;
/// With smaller ones a copy takes more CPU time than memory is worth.
const REQUEST_BYTES_LEAST: u32 = 128 << 10;

/// An option with named values: one table of names makes the parser, the help and the codes.
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
pub(crate) use choice;

choice!(
    /// Which backend does the input and output.
    EngineChoice { Auto = "auto", Uring = "uring", Threads = "threads", }
);
choice!(
    /// How the body of a frame is received from a socket.
    Receive {
        /// One call waits for all of it (`MSG_WAITALL`), where the lane has nothing else to do.
        WaitAll = "waitall",
        /// Each call takes what has arrived.
        Any = "any",
    }
);
choice!(
    /// Which bytes are digested. The first two differ where frames are sealed by `tls` and the
    /// digest is BLAKE3.
    Verify {
        /// Those that the source has read, and at the sink those that have arrived.
        Received = "received",
        /// Those that the source has read. The sink checks a CRC-64 of them.
        Source = "source",
        /// As `Received`; and what the medium gives back, after the sync and before the final name.
        Disk = "disk",
    }
);
choice!(
    /// Whether files bypass the page cache.
    Direct { Auto = "auto", On = "on", Off = "off", }
);
choice!(
    /// How data streams are protected.
    Seal {
        /// Encrypted with keys of a TLS 1.3 handshake: secret and tamper-evident.
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
    /// Whether a file is on stable storage before it gets its final name.
    Fsync { File = "file", Off = "off", }
);
choice!(
    /// What happens to a destination file that exists.
    Overwrite { Never = "never", Older = "older", Always = "always", }
);
choice!(
    /// Whether a file gets its length, and space for it, before its bytes arrive. `Auto`: where it
    /// bypasses the page cache.
    Preallocate { Off = "off", On = "on", Auto = "auto", }
);

choice!(
    /// What is done with symbolic links below a source.
    Links { Copy = "copy", Follow = "follow", Skip = "skip", Safe = "safe", }
);
choice!(
    /// Which destination files count as unchanged.
    SkipUnchanged {
        No = "no",
        /// Of the same size and modification time.
        Times = "times",
        /// Of the same size and bytes.
        Checksum = "checksum",
    }
);

choice!(
    /// Whether names in the folders of a destination that their source does not have are removed.
    Delete {
        Off = "off",
        /// What the filters leave out stays.
        On = "on",
        /// What the filters leave out is removed too.
        Excluded = "excluded",
    }
);

choice!(
    /// Generated data that compresses like data of a kind.
    #[derive(Default)]
    DataSet {
        /// Records of measurements with reserved space between them, which compress well.
        #[default]
        Records = "records",
        Text = "text",
        /// Each request (1 MiB by default) is either records or noise.
        Mix = "mix",
        /// Text and noise in turns of 16 requests.
        Runs = "runs",
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
            streams_auto: false,
            request_bytes: 1 << 20,
            depth_source: None,
            depth_sink: None,
            window_bytes: None,
            congestion: None,
            rate: None,
            pace: Pace::Auto,
            dscp: None,
            lockstep: None,
            engine: EngineChoice::Auto,
            direct: Direct::Auto,
            receive: Receive::WaitAll,
            seal: Seal::Tls,
            verify: Verify::Received,
            digest_also: ExtraDigests::NONE,
            digest: DigestKind::Blake3,
            fsync: Fsync::File,
            overwrite: Overwrite::Never,
            memory_bytes: 256 << 20,
            preallocate: Preallocate::Auto,
            preserve: true,
            archive: false,
            numeric_ids: false,
            user_rules: Vec::new(),
            group_rules: Vec::new(),
            recursive: false,
            links: Links::Copy,
            filters: Vec::new(),
            min_size: None,
            max_size: None,
            newer: None,
            skip_unchanged: SkipUnchanged::No,
            delete: Delete::Off,
            delete_max: None,
            backup_dir: None,
            dry_run: false,
            compare: false,
            errors_max: None,
            fresh: false,
            mkpath: false,
            names_apart: false,
            stall: Nanos::from_millis(10_000),
            path_samples: PathSamples::On,
            null_cycle_bytes: 0,
            compress: Compress::Off,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pace_is_read_and_typed() {
        let fixed = |bytes_per_second| Pace::Fixed(Rate { bytes_per_second });
        let cases = [
            ("off", Some(Pace::Off)),
            ("auto", Some(Pace::Auto)),
            ("scavenger", Some(Pace::Scavenger)),
            ("100Mbit", Some(fixed(12.5e6))),
            ("80MB", Some(fixed(80e6))),
            ("", None),
            ("0", None),
            ("fast", None),
        ];
        for (text, expect) in cases {
            assert_eq!(Pace::parse(text).ok(), expect, "{text}");
            if let Some(pace) = expect {
                assert_eq!(Pace::parse(&pace.typed()), Ok(pace), "{text}");
            }
        }
        assert_eq!(fixed(12.5e6).of_each_stream(4), Some(3_125_000));
        assert_eq!(fixed(1.0).of_each_stream(64), Some(1), "a pace of nothing would never end");
        assert_eq!(Pace::Auto.of_each_stream(4), None);
    }

    #[test]
    fn a_lockstep_is_read_and_typed() {
        let lockstep =
            |every_bytes, millis| Lockstep { every_bytes, pause: Nanos::from_millis(millis) };
        let cases = [
            ("32M:250ms", Some(lockstep(32 << 20, 250))),
            ("4K:0s", Some(lockstep(4 << 10, 0))),
            ("1G:2s", Some(lockstep(1 << 30, 2000))),
            ("1G:3600s", Some(lockstep(1 << 30, 3_600_000))),
            ("1G:3601s", None),
            ("4K", None),
            ("4095:1s", None),
            ("2T:1s", None),
            ("32M:250", None),
            ("32M:-1s", None),
            ("32M:99999999999999999999s", None),
            ("32M:18446744073709551615s", None),
            (":", None),
        ];
        for (text, expect) in cases {
            assert_eq!(Lockstep::parse(text).ok(), expect, "{text}");
            if let Some(lockstep) = expect {
                assert_eq!(Lockstep::parse(&lockstep.typed()), Ok(lockstep), "{text}");
            }
        }
    }
}
