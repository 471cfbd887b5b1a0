//! What TCP and a lane's own clocks report of one data stream over time: plain numbers, counted
//! from the start of the stream.

use super::units::{Nanos, Tick};

/// The state of a stream at one moment. Counters of bytes and times never fall.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathSample {
    /// On the clock of the host that took the sample.
    pub at: Tick,
    /// Smoothed round-trip time, its mean deviation, and the least one seen (RFC 6298).
    pub rtt: Nanos,
    pub rtt_deviation: Nanos,
    pub rtt_min: Nanos,
    /// The largest segment that is sent.
    pub mss_bytes: u32,
    /// Congestion window and slow-start threshold, in segments; no threshold yet is `u32::MAX`.
    pub cwnd_segments: u32,
    pub ssthresh_segments: u32,
    /// Segments that are sent and not acknowledged; of those, the ones believed lost.
    pub unacked_segments: u32,
    pub lost_segments: u32,
    /// Written to the socket and not sent yet.
    pub unsent_bytes: u32,
    /// The window that the peer advertises.
    pub peer_window_bytes: u32,
    /// The kernel's congestion state: 0 open, 1 disorder, 2 window reduced, 3 recovery, 4 loss.
    pub state: u8,
    /// The newest estimate of the delivery rate was limited by the application, not by the path.
    pub app_limited: bool,
    pub delivery_bytes_per_s: u64,
    /// `u64::MAX` where no pace is set.
    pub pace_max_bytes_per_s: u64,
    pub bytes_sent: u64,
    pub bytes_acked: u64,
    pub bytes_retransmitted: u64,
    pub bytes_received: u64,
    /// Segments with data that were sent, and those sent again.
    pub segments_sent: u64,
    pub segments_retransmitted: u64,
    /// Segments acknowledged under a mark of congestion (ECN). The receiver repeats a mark until it
    /// is answered, so each counts for about a round trip (RFC 3168).
    pub segments_marked: u64,
    /// Segments that arrived twice (DSACK, RFC 2883): sent again without need.
    pub segments_duplicate: u64,
    /// How often segments were found to have overtaken others.
    pub reorderings: u64,
    /// Retransmission timeouts; 0 before Linux 6.7.
    pub timeouts: u64,
    /// Time with anything to send or unacknowledged; of that, time limited by the peer's window,
    /// and by our send buffer.
    pub busy: Nanos,
    pub window_limited: Nanos,
    pub buffer_limited: Nanos,
    /// The receive side: the limit up to which the window that we advertise may grow.
    pub receive_threshold_bytes: u32,
    /// Socket buffers as the kernel counts them; 0 where they were not read.
    pub send_buffer_bytes: u32,
    pub receive_buffer_bytes: u32,
    /// The lane's own clocks, for what the kernel cannot know.
    pub clocks: LaneClocks,
}

/// Where a lane's time went. The rest of the time since it began is its own bookkeeping.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaneClocks {
    /// Waiting for the source: reading files, or receiving where the source is the stream.
    pub source: Nanos,
    /// In the steps of the passage: digest, codec, seal.
    pub passage: Nanos,
    /// Waiting for the sink: blocked in send, or writing files where the sink is the disk.
    pub sink: Nanos,
    /// With nothing to do: no credit, nothing offered, nothing wanted.
    pub idle: Nanos,
}
