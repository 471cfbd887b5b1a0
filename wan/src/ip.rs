//! What the link reads and writes in the header of an IP packet: its flow, and the marks of
//! explicit congestion notification (RFC 3168).

use std::hash::{DefaultHasher, Hash, Hasher};

/// A number for the flow of a packet: addresses, protocol, and ports where it has them. `salt`
/// makes other numbers of the same flows.
pub(crate) fn flow(packet: &[u8], salt: u64) -> u64 {
    // The same numbers in every run, unlike those of a `HashMap`.
    let mut hasher = DefaultHasher::new();
    salt.hash(&mut hasher);
    if let Some(header) = Ipv4::of(packet) {
        packet[9].hash(&mut hasher);
        packet[12..20].hash(&mut hasher);
        let has_ports = matches!(packet[9], TCP | UDP) && !header.is_fragment;
        if let Some(ports) = packet.get(header.len..header.len + 4).filter(|_| has_ports) {
            ports.hash(&mut hasher);
        }
    }
    hasher.finish()
}

/// Sets "congestion experienced" in a packet whose sender can use it, and corrects the checksum of
/// the header. Returns false for a packet that must be dropped instead.
pub(crate) fn mark_congestion(packet: &mut [u8]) -> bool {
    if Ipv4::of(packet).is_none() {
        return false;
    }
    match packet[1] & ECN {
        NOT_CAPABLE => false,
        CONGESTION_EXPERIENCED => true,
        _ => {
            let before = u16::from_be_bytes([packet[0], packet[1]]);
            packet[1] |= CONGESTION_EXPERIENCED;
            let after = u16::from_be_bytes([packet[0], packet[1]]);
            let sum = u16::from_be_bytes([packet[10], packet[11]]);
            packet[10..12].copy_from_slice(&corrected(sum, before, after).to_be_bytes());
            true
        }
    }
}

/// The checksum after one word of the header has changed (RFC 1624, equation 3).
fn corrected(sum: u16, before: u16, after: u16) -> u16 {
    let mut total = u32::from(!sum) + u32::from(!before) + u32::from(after);
    total = (total & 0xffff) + (total >> 16);
    total = (total & 0xffff) + (total >> 16);
    !(total as u16)
}

struct Ipv4 {
    len: usize,
    is_fragment: bool,
}

impl Ipv4 {
    /// `None` for what is no whole IPv4 header.
    fn of(packet: &[u8]) -> Option<Ipv4> {
        let first = *packet.first()?;
        let len = usize::from(first & 0xf) * 4;
        let is_whole = first >> 4 == 4 && len >= 20 && packet.len() >= len;
        // More fragments follow, or this is not the first one.
        is_whole.then(|| Ipv4 { len, is_fragment: packet[6] & 0x3f != 0 || packet[7] != 0 })
    }
}

const TCP: u8 = 6;
const UDP: u8 = 17;
/// The two bits of ECN in the second byte of the header.
const ECN: u8 = 0b11;
const NOT_CAPABLE: u8 = 0b00;
const CONGESTION_EXPERIENCED: u8 = 0b11;

#[cfg(test)]
mod tests {
    use super::*;

    /// A header with a valid checksum, and ports.
    fn packet(traffic_class: u8, protocol: u8, ports: [u8; 4], identification: u16) -> Vec<u8> {
        let mut bytes = vec![0x45, traffic_class, 0, 40, 0, 0, 0x40, 0, 64, protocol, 0, 0];
        bytes[4..6].copy_from_slice(&identification.to_be_bytes());
        bytes.extend([10, 77, 0, 1, 10, 77, 0, 2]);
        let sum = !sum_of(&bytes);
        bytes[10..12].copy_from_slice(&sum.to_be_bytes());
        bytes.extend(ports);
        bytes.extend([0; 16]);
        bytes
    }

    /// The ones' complement sum of a header: 0xffff if its checksum is right.
    fn sum_of(header: &[u8]) -> u16 {
        let words = header[..20].chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1]));
        let total = words.sum::<u32>();
        let total = (total & 0xffff) + (total >> 16);
        (total + (total >> 16)) as u16
    }

    #[test]
    fn marks_leave_the_checksum_right() {
        // (second byte, may it be marked, second byte after that): the upper bits stay.
        let cases =
            [(0x00, false, 0x00), (0x02, true, 0x03), (0x01, true, 0x03), (0x03, true, 0x03)];
        for (before, is_marked, after) in cases {
            for upper in [0, 0xb8] {
                // Every value of the checksum comes up.
                for identification in 0..=u16::MAX {
                    let mut bytes = packet(before | upper, TCP, [0; 4], identification);
                    assert_eq!(mark_congestion(&mut bytes), is_marked);
                    assert_eq!(bytes[1], after | upper);
                    assert_eq!(sum_of(&bytes), 0xffff, "{before} {upper} {identification}");
                }
            }
        }
        for mut other in [vec![], vec![0x60; 40], vec![0x45; 19], vec![0x41; 40]] {
            let before = other.clone();
            assert!(!mark_congestion(&mut other));
            assert_eq!(other, before);
        }
    }

    #[test]
    fn flows_are_told_by_addresses_protocol_and_ports() {
        let one = packet(0, TCP, [0, 1, 0, 2], 1);
        let same = packet(2, TCP, [0, 1, 0, 2], 7);
        assert_eq!(flow(&one, 1), flow(&same, 1));
        assert_ne!(flow(&one, 1), flow(&one, 2));
        let mut elsewhere = one.clone();
        elsewhere[19] = 9;
        for other in [packet(0, TCP, [0, 1, 0, 3], 1), packet(0, UDP, [0, 1, 0, 2], 1), elsewhere] {
            assert_ne!(flow(&one, 1), flow(&other, 1));
        }
        // ICMP has no ports, and neither do fragments.
        let ping = |rest| flow(&packet(0, 1, rest, 1), 1);
        assert_eq!(ping([8, 0, 1, 2]), ping([8, 0, 3, 4]));
        let fragment = |ports| {
            let mut bytes = packet(0, UDP, ports, 1);
            bytes[7] = 185;
            flow(&bytes, 1)
        };
        assert_eq!(fragment([0, 1, 0, 2]), fragment([9, 9, 9, 9]));
        assert_eq!(flow(&[], 1), flow(&[0x60; 40], 1));
    }
}
