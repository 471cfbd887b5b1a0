//! Packets in a file for tcpdump: headers only, with times in nanoseconds.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub(crate) struct Pcap {
    file: BufWriter<File>,
    /// The time of day when the link's clock began.
    began: Duration,
}

impl Pcap {
    /// Creates a file; the times of its packets count from now.
    pub(crate) fn create(path: &Path) -> io::Result<Pcap> {
        let mut file = BufWriter::with_capacity(1 << 20, File::create(path)?);
        // Magic (nanoseconds), version 2.4, time zone, accuracy, snapshot length, kind of link.
        let words = [0xa1b2_3c4d_u32, 2 | 4 << 16, 0, 0, SNAP_BYTES as u32, RAW_IP];
        words.iter().try_for_each(|word| file.write_all(&word.to_le_bytes()))?;
        let began = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Ok(Pcap { file, began })
    }

    /// A full disk breaks the file, never the link.
    pub(crate) fn write(&mut self, at_ns: u64, packet: &[u8]) {
        let at = self.began + Duration::from_nanos(at_ns);
        let kept = &packet[..packet.len().min(SNAP_BYTES)];
        let words =
            [at.as_secs() as u32, at.subsec_nanos(), kept.len() as u32, packet.len() as u32];
        let mut head = [0; 16];
        for (place, word) in head.chunks_mut(4).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        self.file.write_all(&head).and_then(|()| self.file.write_all(kept)).ok();
    }
}

/// Enough for the headers of IP and TCP with all options.
const SNAP_BYTES: usize = 128;
/// LINKTYPE_RAW: a packet begins with its IP header.
const RAW_IP: u32 = 101;
