//! The data streams in a capture of a WAN, seen at the sender's interface: what was sent, what was
//! retransmitted, and when nothing was sent. It does not use the program's own records.

use std::collections::BTreeMap;
use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;

/// One direction of a connection, from the side that sent most, with the acknowledgements.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stream {
    pub events: Vec<Event>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Event {
    /// Since the first packet in the file.
    pub at_s: f64,
    pub what: What,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum What {
    /// So many bytes from this place of the stream on; `again` when they had been sent before.
    Sent { from: u64, bytes: u32, again: bool },
    /// All bytes before this place have arrived.
    Acked { until: u64 },
}

/// From the first retransmitted segment until all data sent by then had arrived.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Episode {
    pub at_s: f64,
    pub segments: u64,
}

/// Nothing was sent although everything had arrived.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Pause {
    /// When the last byte before it was sent.
    pub at_s: f64,
    pub length_s: f64,
    /// Where in the stream it is.
    pub place_bytes: u64,
    /// New bytes since the pause before.
    pub bytes_before: u64,
    /// Sent in the first quarter of a round trip behind it.
    pub burst_bytes: u64,
}

/// All data streams in a file, ssh left out, in the order of their first packets.
pub(crate) fn streams(pcap: &Path) -> Result<Vec<Stream>, String> {
    let bytes = fs::read(pcap).map_err(|why| format!("{}: {why}", pcap.display()))?;
    of_bytes(&bytes).ok_or_else(|| format!("{}: no capture of raw IP packets", pcap.display()))
}

fn of_bytes(bytes: &[u8]) -> Option<Vec<Stream>> {
    let head: [u8; 4] = bytes.get(..4)?.try_into().ok()?;
    if u32::from_le_bytes(head) != NANOSECONDS_LITTLE_ENDIAN {
        return None;
    }
    let mut connections: Vec<Connection> = Vec::new();
    let mut places: BTreeMap<[SocketAddress; 2], usize> = BTreeMap::new();
    let mut began_s = None;
    let mut rest = bytes.get(24..)?;
    while let Some((at_s, packet, behind)) = record(rest) {
        rest = behind;
        let at_s = at_s - *began_s.get_or_insert(at_s);
        let Some(segment) = segment(packet) else { continue };
        if segment.from.1 == SSH || segment.to.1 == SSH {
            continue;
        }
        let mut ends = [segment.from, segment.to];
        ends.sort_unstable();
        // A connection that begins with the ports of an earlier one is another.
        let begins = segment.flags & (SYN | ACK) == SYN;
        let place = match places.get(&ends).filter(|_| !begins) {
            Some(place) => *place,
            None => {
                connections.push(Connection::new(ends));
                places.insert(ends, connections.len() - 1);
                connections.len() - 1
            }
        };
        connections[place].take(at_s, &segment);
    }
    Some(connections.into_iter().filter_map(Connection::stream).collect())
}

impl Stream {
    pub(crate) fn sent_again(&self) -> u64 {
        let again = |event: &&Event| matches!(event.what, What::Sent { again: true, .. });
        self.events.iter().filter(again).count() as u64
    }

    #[allow(dead_code, reason = "experiments look at them one by one")]
    pub(crate) fn segments(&self) -> u64 {
        let sent = |event: &&Event| matches!(event.what, What::Sent { .. });
        self.events.iter().filter(sent).count() as u64
    }

    /// Losses within a round trip of each other are one episode.
    pub(crate) fn episodes(&self, round_trip_s: f64) -> Vec<Episode> {
        let mut found: Vec<Episode> = Vec::new();
        let (mut high, mut point) = (0u64, None);
        let mut last_sign_s = f64::NEG_INFINITY;
        for event in &self.events {
            match event.what {
                What::Sent { again: true, .. } => {
                    let goes_on = point.is_some() || event.at_s - last_sign_s < round_trip_s;
                    last_sign_s = event.at_s;
                    match found.last_mut().filter(|_| goes_on) {
                        Some(episode) => episode.segments += 1,
                        None => found.push(Episode { at_s: event.at_s, segments: 1 }),
                    }
                    point.get_or_insert(high);
                }
                What::Sent { from, bytes, .. } => high = high.max(from + u64::from(bytes)),
                What::Acked { until } => {
                    if point.is_some_and(|point| until >= point) {
                        point = None;
                        last_sign_s = event.at_s;
                    }
                }
            }
        }
        found
    }

    /// By the definition of the samples: half a round trip with nothing in flight, or one and a
    /// half without a segment. What follows the last byte but one is the end of the stream.
    pub(crate) fn pauses(&self, round_trip_s: f64) -> Vec<Pause> {
        let mut found: Vec<Pause> = Vec::new();
        let (mut high, mut acked, mut acked_at_s) = (0u64, 0u64, 0.0);
        let (mut last_s, mut since) = (None, 0u64);
        for (index, event) in self.events.iter().enumerate() {
            let (from, bytes) = match event.what {
                What::Sent { from, bytes, .. } => (from, bytes),
                What::Acked { until } if until > acked => {
                    (acked, acked_at_s) = (until, event.at_s);
                    continue;
                }
                What::Acked { .. } => continue,
            };
            let quiet_s = last_s.map_or(0.0, |last_s| event.at_s - last_s);
            let empty_s = event.at_s - acked_at_s;
            let long = quiet_s >= 1.5 * round_trip_s
                || (quiet_s >= empty_s && empty_s >= (round_trip_s / 2.0).max(PAUSE_S_MIN));
            if long && acked >= high && high > HANDSHAKE_BYTES_MAX && !self.is_farewell(index) {
                found.push(Pause {
                    at_s: event.at_s - quiet_s,
                    length_s: quiet_s,
                    place_bytes: high,
                    bytes_before: high - since,
                    burst_bytes: self.sent_within(index, round_trip_s / 4.0),
                });
                since = high;
            }
            last_s = Some(event.at_s);
            high = high.max(from + u64::from(bytes));
        }
        found
    }

    fn is_farewell(&self, index: usize) -> bool {
        self.sent_within(index, f64::INFINITY) <= FAREWELL_BYTES_MAX
    }

    fn sent_within(&self, index: usize, seconds: f64) -> u64 {
        let until_s = self.events[index].at_s + seconds;
        let within = self.events[index..].iter().take_while(|event| event.at_s <= until_s);
        within
            .map(|event| match event.what {
                What::Sent { bytes, .. } => u64::from(bytes),
                What::Acked { .. } => 0,
            })
            .sum()
    }
}

/// An address and a port.
type SocketAddress = (Ipv4Addr, u16);

struct Segment {
    from: SocketAddress,
    to: SocketAddress,
    sequence: u32,
    acknowledged: u32,
    flags: u8,
    payload_bytes: u32,
}

/// Both directions of one connection, each as seen by its sender.
struct Connection {
    ends: [SocketAddress; 2],
    directions: [Direction; 2],
}

#[derive(Default)]
struct Direction {
    /// The sequence number of the stream's first byte.
    first: Option<u32>,
    high: u64,
    acked: u64,
    events: Vec<Event>,
}

impl Connection {
    fn new(ends: [SocketAddress; 2]) -> Connection {
        Connection { ends, directions: [Direction::default(), Direction::default()] }
    }

    fn take(&mut self, at_s: f64, segment: &Segment) {
        let own = usize::from(segment.from != self.ends[0]);
        self.directions[own].send(at_s, segment);
        if segment.flags & ACK != 0 {
            self.directions[1 - own].hear(at_s, segment.acknowledged);
        }
    }

    fn stream(self) -> Option<Stream> {
        let most = self.directions.into_iter().max_by_key(|direction| direction.high)?;
        (most.high > 0).then_some(Stream { events: most.events })
    }
}

impl Direction {
    fn send(&mut self, at_s: f64, segment: &Segment) {
        let syn = u32::from(segment.flags & SYN != 0);
        let first = *self.first.get_or_insert(segment.sequence.wrapping_add(syn));
        if segment.payload_bytes == 0 {
            return;
        }
        let from = place(self.high, first, segment.sequence);
        let again = from < self.high;
        self.high = self.high.max(from + u64::from(segment.payload_bytes));
        let what = What::Sent { from, bytes: segment.payload_bytes, again };
        self.events.push(Event { at_s, what });
    }

    fn hear(&mut self, at_s: f64, acknowledged: u32) {
        let Some(first) = self.first else { return };
        // That of a FIN is one beyond the last byte.
        let until = place(self.high, first, acknowledged).min(self.high);
        if until > self.acked {
            self.acked = until;
            self.events.push(Event { at_s, what: What::Acked { until } });
        }
    }
}

/// The position of a sequence number in the stream: the one nearest to the highest so far.
fn place(high: u64, first: u32, sequence: u32) -> u64 {
    let known = first.wrapping_add(high as u32);
    let off = i64::from(sequence.wrapping_sub(known) as i32);
    high.saturating_add_signed(off)
}

/// The first packet, its time, and the rest.
fn record(bytes: &[u8]) -> Option<(f64, &[u8], &[u8])> {
    let word = |at: usize| {
        let word: [u8; 4] = bytes.get(at..at + 4)?.try_into().ok()?;
        Some(u32::from_le_bytes(word))
    };
    let at_s = f64::from(word(0)?) + f64::from(word(4)?) / 1e9;
    let end = 16 + word(8)? as usize;
    Some((at_s, bytes.get(16..end)?, &bytes[end..]))
}

/// A TCP segment in a packet of IPv4.
fn segment(packet: &[u8]) -> Option<Segment> {
    let two = |at: usize| Some(u16::from_be_bytes(packet.get(at..at + 2)?.try_into().ok()?));
    let four = |at: usize| Some(u32::from_be_bytes(packet.get(at..at + 4)?.try_into().ok()?));
    let (version, tcp) = (packet.first()? >> 4, usize::from(packet.first()? & 0xf) * 4);
    if version != 4 || packet.get(9) != Some(&TCP) {
        return None;
    }
    let data = tcp + usize::from(packet.get(tcp + 12)? >> 4) * 4;
    Some(Segment {
        from: (four(12)?.into(), two(tcp)?),
        to: (four(16)?.into(), two(tcp + 2)?),
        sequence: four(tcp + 4)?,
        acknowledged: four(tcp + 8)?,
        flags: *packet.get(tcp + 13)?,
        payload_bytes: u32::from(two(2)?).checked_sub(data as u32)?,
    })
}

const NANOSECONDS_LITTLE_ENDIAN: u32 = 0xa1b2_3c4d;
const TCP: u8 = 6;
const SYN: u8 = 2;
const ACK: u8 = 16;
const SSH: u16 = 22;
const PAUSE_S_MIN: f64 = 0.020;
/// Keys, proofs and the header of a frame: the stream then waits for work, which is no pause.
const HANDSHAKE_BYTES_MAX: u64 = 4096;
const FAREWELL_BYTES_MAX: u64 = 128;
