//! Path samples in few bytes: each is its difference from the sample before, as most numbers do not
//! change within some milliseconds. The wire and the results store use this format.
//!
//! ```text
//! a sample  which numbers have changed, one bit each | what was added to each of these
//! both      LEB128: seven bits a byte, the lowest first; what was added is zigzag, wrapping
//! ```

use super::path::PathSample;
use super::units::{Nanos, Tick};

/// How a number behaves over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Course {
    Varies,
    /// A counter: it never falls.
    Grows,
}

/// One row for each number of a sample, in the order in which they are packed and written. Released
/// rows stay as they are; new ones are added.
macro_rules! numbers {
    ($($name:literal $course:ident $($field:ident).+;)+) => {
        /// The name of each number where it is written for people, units included.
        pub const NAMES: [&str; COUNT] = [$($name,)+];
        pub const COURSES: [Course; COUNT] = [$(Course::$course,)+];
        pub const COUNT: usize = [$($name,)+].len();

        /// A sample as numbers.
        pub fn numbers(sample: &PathSample) -> [u64; COUNT] {
            [$(sample.$($field).+.number(),)+]
        }

        /// The sample that has these numbers; `None` where one does not fit its field.
        pub fn of_numbers(numbers: &[u64; COUNT]) -> Option<PathSample> {
            let mut sample = PathSample::default();
            let mut numbers = numbers.iter();
            $(sample.$($field).+ = Number::of(*numbers.next()?)?;)+
            Some(sample)
        }
    };
}

numbers! {
    "at_ns" Grows at;
    "rtt_ns" Varies rtt;
    "rtt_deviation_ns" Varies rtt_deviation;
    "rtt_min_ns" Varies rtt_min;
    "mss_bytes" Varies mss_bytes;
    "cwnd_segments" Varies cwnd_segments;
    "ssthresh_segments" Varies ssthresh_segments;
    "unacked_segments" Varies unacked_segments;
    "lost_segments" Varies lost_segments;
    "unsent_bytes" Varies unsent_bytes;
    "peer_window_bytes" Varies peer_window_bytes;
    "state" Varies state;
    "app_limited" Varies app_limited;
    "delivery_bytes_per_s" Varies delivery_bytes_per_s;
    "pace_max_bytes_per_s" Varies pace_max_bytes_per_s;
    "bytes_sent" Grows bytes_sent;
    "bytes_acked" Grows bytes_acked;
    "bytes_retransmitted" Grows bytes_retransmitted;
    "bytes_received" Grows bytes_received;
    "segments_sent" Grows segments_sent;
    "segments_retransmitted" Grows segments_retransmitted;
    "busy_ns" Grows busy;
    "window_limited_ns" Grows window_limited;
    "buffer_limited_ns" Grows buffer_limited;
    "receive_threshold_bytes" Varies receive_threshold_bytes;
    "send_buffer_bytes" Varies send_buffer_bytes;
    "receive_buffer_bytes" Varies receive_buffer_bytes;
    "source_ns" Grows clocks.source;
    "passage_ns" Grows clocks.passage;
    "sink_ns" Grows clocks.sink;
    "idle_ns" Grows clocks.idle;
    "segments_marked" Grows segments_marked;
    "segments_duplicate" Grows segments_duplicate;
    "reorderings" Grows reorderings;
    "timeouts" Grows timeouts;
}

/// The numbers of a sample for other programs: `None` for what the kernel did not measure or has no
/// limit for. It has very large numbers for that, which would distort sums, and which programs with
/// integers of 64 bits and a sign cannot read.
pub fn exported(sample: &PathSample) -> [Option<u64>; COUNT] {
    let mut exported = numbers(sample).map(|number| Some(number).filter(|n| *n < NONE_FROM));
    for ((number, name), value) in exported.iter_mut().zip(NAMES).zip(numbers(sample)) {
        if NONES.iter().any(|none| none.name == name && value >= none.from) {
            *number = None;
        }
    }
    exported
}

/// The sample that was exported as these numbers; `None` where one does not fit its field.
pub fn of_exported(exported: &[Option<u64>; COUNT]) -> Option<PathSample> {
    let mut numbers = [0; COUNT];
    for ((number, exported), name) in numbers.iter_mut().zip(exported).zip(NAMES) {
        let none = NONES.iter().find(|none| none.name == name).map_or(0, |none| none.written);
        *number = exported.unwrap_or(none);
    }
    of_numbers(&numbers)
}

/// A number of the kernel that means none.
struct NoNumber {
    name: &'static str,
    /// From here on: kernels differ.
    from: u64,
    /// The one that samples have for it.
    written: u64,
}

const NONES: [NoNumber; 3] = [
    // Microseconds in 32 bits, all ones; with a margin for what was added to them.
    NoNumber { name: "rtt_min_ns", from: 4_000_000_000_000, written: u32::MAX as u64 * 1000 },
    // `TCP_INFINITE_SSTHRESH`.
    NoNumber { name: "ssthresh_segments", from: 0x7fff_ffff, written: u32::MAX as u64 },
    NoNumber { name: "pace_max_bytes_per_s", from: NONE_FROM, written: u64::MAX },
];

/// Larger than any integer of SQL and of most programs.
const NONE_FROM: u64 = 1 << 63;

/// No sample takes more bytes than this: all bits, and every number at its longest.
pub(crate) const SAMPLE_BYTES_MAX: usize = COUNT.div_ceil(7) + COUNT * NUMBER_BYTES_MAX;
const NUMBER_BYTES_MAX: usize = 10;
const _: () = assert!(COUNT < 64);

/// The largest value of a counter: sums of a few cannot overflow.
pub(crate) const COUNTER_MAX: u64 = u64::MAX >> 2;

/// The sample, with no counter below that of an earlier one: samples are in the order of time, so
/// their counters never fall, whatever the kernel reports.
pub fn not_behind(sample: &PathSample, earlier: &PathSample) -> PathSample {
    let before = numbers(earlier);
    let mut now = numbers(sample);
    for ((number, before), course) in now.iter_mut().zip(before).zip(COURSES) {
        if course == Course::Grows {
            *number = (*number).max(before).min(COUNTER_MAX);
        }
    }
    of_numbers(&now).unwrap_or(*earlier)
}

/// Writes samples one by one.
#[derive(Debug)]
pub struct Packer {
    last: [u64; COUNT],
}

impl Default for Packer {
    fn default() -> Packer {
        Packer { last: [0; COUNT] }
    }
}

impl Packer {
    pub fn put(&mut self, sample: &PathSample, out: &mut Vec<u8>) {
        let now = numbers(sample);
        let changed = now.iter().zip(self.last).enumerate();
        let bits =
            changed.fold(0, |bits, (at, (now, last))| bits | (u64::from(*now != last) << at));
        put_number(bits, out);
        for (now, last) in now.iter().zip(self.last).filter(|(now, last)| **now != *last) {
            put_number(zigzag(now.wrapping_sub(last)), out);
        }
        self.last = now;
    }
}

pub fn pack(samples: &[PathSample]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut packer = Packer::default();
    samples.iter().for_each(|sample| packer.put(sample, &mut bytes));
    bytes
}

/// Reads exactly `count` samples. Bytes that cannot be a series of samples are refused, with the
/// reason.
pub fn unpack(mut bytes: &[u8], count: usize) -> Result<Vec<PathSample>, &'static str> {
    // Each sample takes a byte at least: a `count` above the input's length gets no memory.
    if count > bytes.len() {
        return Err("it ends too early");
    }
    let mut samples = Vec::with_capacity(count);
    let mut last = [0u64; COUNT];
    for _ in 0..count {
        let bits = take_number(&mut bytes)?;
        if bits >> COUNT != 0 {
            return Err("it has numbers that nobody knows");
        }
        let mut now = last;
        for (at, number) in now.iter_mut().enumerate() {
            if (bits >> at) & 1 == 1 {
                *number = number.wrapping_add(unzigzag(take_number(&mut bytes)?));
            }
        }
        let falls = now.iter().zip(last).zip(COURSES).any(|((now, last), course)| {
            course == Course::Grows && (*now < last || *now > COUNTER_MAX)
        });
        if falls {
            return Err("a counter of it cannot be");
        }
        samples.push(of_numbers(&now).ok_or("a number of it is too large")?);
        last = now;
    }
    match bytes {
        [] => Ok(samples),
        _ => Err("it has bytes too many"),
    }
}

fn put_number(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn take_number(bytes: &mut &[u8]) -> Result<u64, &'static str> {
    let mut number = 0;
    for at in 0..NUMBER_BYTES_MAX {
        let (first, rest) = bytes.split_first().ok_or("it ends too early")?;
        *bytes = rest;
        let part = u64::from(first & 0x7f);
        if at == NUMBER_BYTES_MAX - 1 && part > 1 {
            break;
        }
        number |= part << (7 * at);
        if first & 0x80 == 0 {
            return Ok(number);
        }
    }
    Err("a number of it is too large")
}

/// Numbers with a sign become small ones without: 0, -1, 1, -2 become 0, 1, 2, 3.
fn zigzag(number: u64) -> u64 {
    let signed = number.cast_signed();
    ((signed << 1) ^ (signed >> 63)).cast_unsigned()
}

fn unzigzag(number: u64) -> u64 {
    (number >> 1) ^ (number & 1).wrapping_neg()
}

/// A field as a number, and back where it fits.
trait Number: Sized {
    fn number(self) -> u64;
    fn of(number: u64) -> Option<Self>;
}

impl Number for u64 {
    fn number(self) -> u64 {
        self
    }
    fn of(number: u64) -> Option<u64> {
        Some(number)
    }
}

impl Number for u32 {
    fn number(self) -> u64 {
        self.into()
    }
    fn of(number: u64) -> Option<u32> {
        number.try_into().ok()
    }
}

impl Number for u8 {
    fn number(self) -> u64 {
        self.into()
    }
    fn of(number: u64) -> Option<u8> {
        number.try_into().ok()
    }
}

impl Number for bool {
    fn number(self) -> u64 {
        self.into()
    }
    fn of(number: u64) -> Option<bool> {
        (number < 2).then_some(number == 1)
    }
}

impl Number for Nanos {
    fn number(self) -> u64 {
        self.0
    }
    fn of(number: u64) -> Option<Nanos> {
        Some(Nanos(number))
    }
}

impl Number for Tick {
    fn number(self) -> u64 {
        self.0
    }
    fn of(number: u64) -> Option<Tick> {
        Some(Tick(number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Some samples: numbers from raw ones, each fitted to its field and to the sample before.
    fn samples(raw: &[[u64; COUNT]]) -> Vec<PathSample> {
        let mut last = PathSample::default();
        let fits = |at: usize, number: u64| {
            [number, number >> 32, number >> 56, number >> 63].into_iter().find(|number| {
                let mut alone = [0; COUNT];
                alone[at] = *number;
                of_numbers(&alone).is_some()
            })
        };
        let each = raw.iter().map(|raw| {
            let mut now = *raw;
            now.iter_mut()
                .enumerate()
                .for_each(|(at, number)| *number = fits(at, *number).unwrap());
            last = not_behind(&of_numbers(&now).unwrap(), &last);
            last
        });
        each.collect()
    }

    #[test]
    fn every_field_has_its_own_number() {
        for at in 0..COUNT {
            let mut alone = [0; COUNT];
            alone[at] = 1;
            let sample = of_numbers(&alone).unwrap();
            assert_eq!(numbers(&sample), alone, "{}", NAMES[at]);
            assert_ne!(sample, PathSample::default(), "{}", NAMES[at]);
        }
    }

    #[test]
    fn none_is_not_exported_as_a_number() {
        let none = |name: &str, number: u64| {
            let mut alone = [0; COUNT];
            let place = NAMES.iter().position(|known| *known == name).unwrap();
            alone[place] = number;
            let sample = of_numbers(&alone).unwrap();
            (exported(&sample)[place], of_exported(&exported(&sample)).unwrap() == sample)
        };
        let cases = [
            ("pace_max_bytes_per_s", u64::MAX, (None, true)),
            ("pace_max_bytes_per_s", 0, (Some(0), true)),
            ("pace_max_bytes_per_s", 12_500_000, (Some(12_500_000), true)),
            ("ssthresh_segments", u64::from(u32::MAX), (None, true)),
            ("ssthresh_segments", 0x7fff_ffff, (None, false)),
            ("ssthresh_segments", 0x7fff_fffe, (Some(0x7fff_fffe), true)),
            ("rtt_min_ns", u64::from(u32::MAX) * 1000, (None, true)),
            ("rtt_min_ns", 49_677_000, (Some(49_677_000), true)),
            ("delivery_bytes_per_s", u64::MAX, (None, false)),
        ];
        for (name, number, expect) in cases {
            assert_eq!(none(name, number), expect, "{name} {number}");
        }
    }

    #[test]
    fn what_stays_costs_a_byte() {
        let sample = PathSample { at: Tick(5), bytes_sent: 1 << 40, ..PathSample::default() };
        let bytes = pack(&[sample; 9]);
        let first = pack(&[sample]);
        assert_eq!(bytes.len(), first.len() + 8);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let whole = pack(&[PathSample { at: Tick(7), ..PathSample::default() }; 2]);
        let falling = [&whole[..], &pack_raw(1, zigzag(u64::MAX))].concat();
        let unknown = pack_raw(1 << COUNT, 0);
        let flag =
            pack_raw(1 << NAMES.iter().position(|n| *n == "app_limited").unwrap(), zigzag(2));
        let cases: [(&[u8], usize, &str); 9] = [
            (&whole, 3, "it ends too early"),
            (&whole, 1, "it has bytes too many"),
            (&whole[..1], 1, "it ends too early"),
            (&[], usize::MAX, "it ends too early"),
            (&falling, 3, "a counter of it cannot be"),
            (&unknown, 1, "it has numbers that nobody knows"),
            (&flag, 1, "a number of it is too large"),
            (&[0xff; 11], 1, "a number of it is too large"),
            (&pack_raw(1, zigzag(COUNTER_MAX + 1)), 1, "a counter of it cannot be"),
        ];
        for (bytes, count, expect) in cases {
            assert_eq!(unpack(bytes, count).unwrap_err(), expect, "{bytes:x?}");
        }
        assert_eq!(unpack(&whole, 2).unwrap().len(), 2);
    }

    fn pack_raw(bits: u64, number: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        put_number(bits, &mut bytes);
        put_number(number, &mut bytes);
        bytes
    }

    proptest! {
        #[test]
        fn there_and_back(raw: Vec<[u64; COUNT]>) {
            let samples = samples(&raw);
            let bytes = pack(&samples);
            prop_assert!(bytes.len() <= samples.len() * SAMPLE_BYTES_MAX);
            prop_assert_eq!(unpack(&bytes, samples.len()).unwrap(), samples);
        }

        #[test]
        fn rubbish_never_panics(bytes: Vec<u8>, count in 0usize..40) {
            let _ = unpack(&bytes, count);
        }
    }
}
