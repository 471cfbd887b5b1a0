//! How a payload may be compressed: formats and levels.

use super::units::Nanos;

/// The format of a payload on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum Codec {
    /// As it is.
    #[default]
    Raw = 0,
    /// RFC 1951, without the wrapping of zlib or gzip.
    Deflate = 1,
    /// RFC 8878, one frame.
    Zstd = 2,
    /// An LZ4 block, without a frame around it.
    Lz4 = 3,
}

impl Codec {
    pub const COUNT: usize = 4;

    pub fn from_code(code: u8) -> Option<Codec> {
        match code {
            0 => Some(Codec::Raw),
            1 => Some(Codec::Deflate),
            2 => Some(Codec::Zstd),
            3 => Some(Codec::Lz4),
            _ => None,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Codec::Raw => "raw",
            Codec::Deflate => "deflate",
            Codec::Zstd => "zstd",
            Codec::Lz4 => "lz4",
        }
    }
}

/// How a payload is compressed: a format and its level. Levels are those of the libraries: zlib 1
/// to 9, zstd -5 to 19.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Hash)]
pub enum Coding {
    #[default]
    Raw,
    Lz4,
    Zlib(u8),
    Zstd(i8),
}

const ZLIB_LEVELS: u8 = 9;
const ZSTD_MIN: i8 = -5;
const ZSTD_MAX: i8 = 19;
const ZLIB_AT: usize = 2;
const ZSTD_AT: usize = ZLIB_AT + ZLIB_LEVELS as usize;

impl Coding {
    /// The number of codings; each has an index below it.
    pub const COUNT: usize = ZSTD_AT + (ZSTD_MAX - ZSTD_MIN) as usize + 1;

    pub fn all() -> impl Iterator<Item = Coding> {
        (0..Coding::COUNT).map(Coding::at)
    }

    pub fn index(self) -> usize {
        match self {
            Coding::Raw => 0,
            Coding::Lz4 => 1,
            Coding::Zlib(level) => ZLIB_AT + usize::from(level) - 1,
            Coding::Zstd(level) => ZSTD_AT + (level - ZSTD_MIN) as usize,
        }
    }

    /// The coding with an index below `COUNT`.
    pub fn at(place: usize) -> Coding {
        match place {
            0 => Coding::Raw,
            1 => Coding::Lz4,
            ZLIB_AT..ZSTD_AT => Coding::Zlib((place - ZLIB_AT) as u8 + 1),
            _ => Coding::Zstd((place - ZSTD_AT) as i8 + ZSTD_MIN),
        }
    }

    pub fn codec(self) -> Codec {
        match self {
            Coding::Raw => Codec::Raw,
            Coding::Lz4 => Codec::Lz4,
            Coding::Zlib(_) => Codec::Deflate,
            Coding::Zstd(_) => Codec::Zstd,
        }
    }

    /// The level within its format; 0 where there are none.
    pub fn level(self) -> i8 {
        match self {
            Coding::Raw | Coding::Lz4 => 0,
            Coding::Zlib(level) => level as i8,
            Coding::Zstd(level) => level,
        }
    }

    /// The coding of a format and a level; `None` for a level that the format does not have.
    pub fn of(codec: Codec, level: i8) -> Option<Coding> {
        let coding = match codec {
            Codec::Raw if level == 0 => Coding::Raw,
            Codec::Lz4 if level == 0 => Coding::Lz4,
            Codec::Raw | Codec::Lz4 => return None,
            Codec::Deflate => Coding::Zlib(u8::try_from(level).ok()?),
            Codec::Zstd => Coding::Zstd(level),
        };
        coding.fits().then_some(coding)
    }

    /// As it would be typed.
    pub fn typed(self) -> String {
        match self {
            Coding::Raw => "off".to_string(),
            Coding::Lz4 => "lz4".to_string(),
            Coding::Zlib(level) => format!("zlib:{level}"),
            Coding::Zstd(level) => format!("zstd:{level}"),
        }
    }

    fn parse(text: &str) -> Option<Coding> {
        let coding = match text.split_once(':') {
            None if text == "lz4" => Coding::Lz4,
            Some(("zlib", level)) => match level.parse().ok()? {
                // As with bbcp, zlib's level 0 is no compression.
                0 => Coding::Raw,
                level => Coding::Zlib(level),
            },
            Some(("zstd", level)) => Coding::Zstd(level.parse().ok()?),
            _ => return None,
        };
        coding.fits().then_some(coding)
    }

    fn fits(self) -> bool {
        match self {
            Coding::Raw | Coding::Lz4 => true,
            Coding::Zlib(level) => (1..=ZLIB_LEVELS).contains(&level),
            Coding::Zstd(level) => (ZSTD_MIN..=ZSTD_MAX).contains(&level),
        }
    }
}

/// Whether payloads are compressed on data streams, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compress {
    Off,
    /// A coding for each payload, by what it gains; measured while the transfer runs.
    Auto,
    /// This coding for every payload; those that do not shrink are sent raw.
    Always(Coding),
}

/// The values of `--compress`, as the user reads them.
pub const COMPRESS_PHRASE: &str = "auto, off, lz4, zlib:0 to zlib:9, or zstd:-5 to zstd:19";

impl Compress {
    /// The error says what to write instead.
    pub fn parse(text: &str) -> Result<Compress, String> {
        match text {
            "off" => Ok(Compress::Off),
            "auto" => Ok(Compress::Auto),
            text => Coding::parse(text)
                .map(Compress::always)
                .ok_or_else(|| format!("write {COMPRESS_PHRASE}")),
        }
    }

    fn always(coding: Coding) -> Compress {
        match coding {
            Coding::Raw => Compress::Off,
            coding => Compress::Always(coding),
        }
    }

    /// As it would be typed.
    pub fn typed(self) -> String {
        match self {
            Compress::Off => "off".to_string(),
            Compress::Auto => "auto".to_string(),
            Compress::Always(coding) => coding.typed(),
        }
    }

    pub fn is_on(self) -> bool {
        self != Compress::Off
    }
}

/// Payload bytes by coding, and their size after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompressionCounts {
    /// Payload bytes of each coding, by `Coding::index`.
    pub by_coding: [u64; Coding::COUNT],
    /// Bytes of all payloads on the wire, without frames and seals.
    pub compressed_bytes: u64,
}

impl Default for CompressionCounts {
    fn default() -> CompressionCounts {
        CompressionCounts { by_coding: [0; Coding::COUNT], compressed_bytes: 0 }
    }
}

impl CompressionCounts {
    pub fn note(&mut self, coding: Coding, raw_bytes: u32, compressed_bytes: u32) {
        self.by_coding[coding.index()] += u64::from(raw_bytes);
        self.compressed_bytes += u64::from(compressed_bytes);
    }

    pub fn add(&mut self, other: &CompressionCounts) {
        for (mine, theirs) in self.by_coding.iter_mut().zip(other.by_coding) {
            *mine = mine.saturating_add(theirs);
        }
        self.compressed_bytes = self.compressed_bytes.saturating_add(other.compressed_bytes);
    }

    /// Payload bytes before compression; 0 where nothing was to be compressed.
    pub fn raw_bytes(&self) -> u64 {
        self.by_coding.iter().fold(0, |sum, bytes| sum.saturating_add(*bytes))
    }

    /// The compression ratio of all payloads; `None` where there were none.
    pub fn ratio(&self) -> Option<f64> {
        (self.compressed_bytes > 0).then(|| self.raw_bytes() as f64 / self.compressed_bytes as f64)
    }

    /// The codings that were used and their shares of the bytes, the largest first.
    pub fn shares(&self) -> Vec<(Coding, f64)> {
        let all = self.raw_bytes().max(1) as f64;
        let mut shares: Vec<(Coding, f64)> = Coding::all()
            .map(|coding| (coding, self.by_coding[coding.index()] as f64 / all))
            .filter(|(_, share)| *share > 0.0)
            .collect();
        shares.sort_by(|(_, one), (_, other)| other.total_cmp(one));
        shares
    }
}

/// Payload bytes of one format, and the time spent on them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CodecTime {
    pub raw_bytes: u64,
    pub spent: Nanos,
}

/// The time that a sink's passage (decompression and digest) took since its last report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DecompressionTime {
    /// By the code of the format: raw is the first.
    pub by_codec: [CodecTime; Codec::COUNT],
    pub elapsed: Nanos,
    /// Threads that decompress.
    pub workers: u16,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_its_index() {
        for (place, coding) in Coding::all().enumerate() {
            assert_eq!(coding.index(), place);
            assert!(coding.fits(), "{coding:?}");
            assert_eq!(Codec::from_code(coding.codec() as u8), Some(coding.codec()));
            assert_eq!(Coding::of(coding.codec(), coding.level()), Some(coding));
        }
        assert_eq!(Coding::at(Coding::COUNT - 1), Coding::Zstd(19));
    }

    #[test]
    fn compression_is_read_and_typed() {
        let cases = [
            ("off", Some(Compress::Off)),
            ("auto", Some(Compress::Auto)),
            ("lz4", Some(Compress::Always(Coding::Lz4))),
            ("zlib:1", Some(Compress::Always(Coding::Zlib(1)))),
            ("zlib:9", Some(Compress::Always(Coding::Zlib(9)))),
            ("zstd:-5", Some(Compress::Always(Coding::Zstd(-5)))),
            ("zstd:19", Some(Compress::Always(Coding::Zstd(19)))),
            ("zlib:10", None),
            ("zlib:-1", None),
            ("zstd:20", None),
            ("zstd:-6", None),
            ("zstd:999", None),
            ("zstd", None),
            ("lz4:1", None),
            ("gzip", None),
            ("", None),
        ];
        for (text, expect) in cases {
            assert_eq!(Compress::parse(text).ok(), expect, "{text}");
            if let Some(compress) = expect {
                assert_eq!(compress.typed(), text);
            }
        }
        assert_eq!(Compress::parse("zlib:0"), Ok(Compress::Off), "as with bbcp");
    }

    #[test]
    fn shares_and_ratio() {
        let mut compression = CompressionCounts::default();
        assert_eq!((compression.ratio(), compression.shares()), (None, vec![]));
        compression.note(Coding::Zstd(3), 300, 75);
        compression.note(Coding::Raw, 100, 100);
        let mut all = CompressionCounts::default();
        all.add(&compression);
        assert_eq!(all.shares(), [(Coding::Zstd(3), 0.75), (Coding::Raw, 0.25)]);
        assert_eq!(all.ratio(), Some(400.0 / 175.0));
    }
}
