//! What `wan test conditions` claims about each condition of a path, as data: the criteria.

/// A scenario, what runs on it, and what must be seen.
pub(super) struct Case {
    pub name: &'static str,
    /// As `::wan::Scenario` reads it.
    pub scenario: &'static str,
    /// Options of one iperf3 from near to far; empty: none runs.
    pub load: &'static str,
    /// Meanwhile, ping: this many packets, one in each so many milliseconds.
    pub ping: Ping,
    pub claims: &'static [Claim],
}

pub(super) struct Ping {
    pub count: u32,
    pub every_ms: u32,
}

/// A quantity, and the least and the greatest value that agree with what was asked.
pub(super) struct Claim {
    pub what: Quantity,
    pub least: f64,
    pub most: f64,
}

/// Times are seconds since the scenario began.
#[derive(Clone, Copy, Debug)]
pub(super) enum Quantity {
    /// iperf3's receiver, in Mbit/s, between these times.
    Rate(f64, f64),
    /// All rivals together.
    RivalRate(f64, f64),
    /// iperf3 and rivals together.
    SumRate(f64, f64),
    /// iperf3's rate in parts of what each flow would get if all got the same.
    FairParts(f64, f64),
    /// Jain's index of iperf3's flow and each rival.
    Jain(f64, f64),
    /// iperf3's datagrams that were lost.
    DatagramLoss,
    /// Segments that iperf3's sender sent again.
    Retransmits,
    /// The mean round trip that iperf3's TCP measured, in ms.
    TcpRtt,
    /// Pings that were sent between these times, in ms.
    PingMedian(f64, f64),
    PingLoss,
    /// The mean number of pings that were lost in a row.
    PingRun,
    /// Answers that came behind those of later pings.
    PingReordered,
    /// The median of datagrams from near to far, or back, in ms.
    OneWay(Host),
    /// Connections on the near host of which `ss` says this word.
    Sockets(&'static str),
    /// A counter of the kernel, by `nstat`.
    Counter(Host, &'static str),
    /// Packets with "congestion experienced" that the far host's kernel received, of each that the
    /// link marked.
    MarksReceived,
    PolicerDrops,
    QueueDrops,
    AqmDrops,
    Marks,
    /// Transfers of short rivals.
    Completed,
    /// Their median time in ms.
    CompletedMedian,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Host {
    Near,
    Far,
}

use Quantity::*;

const fn claim(what: Quantity, least: f64, most: f64) -> Claim {
    Claim { what, least, most }
}

/// 20 a second.
const fn pings(seconds: u32) -> Ping {
    Ping { count: seconds * 20, every_ms: 50 }
}

/// TCP with time stamps has 1448 of 1500 bytes: 48.27 of 50 Mbit/s, 19.31 of 20, 9.65 of 10.
pub(super) const CASES: &[Case] = &[
    Case {
        name: "rivals, one cubic",
        scenario: "--rate 50Mbit --rtt 20ms --rivals cubic",
        load: "-C cubic -t 20",
        ping: pings(20),
        claims: &[
            claim(SumRate(5.0, 19.0), 46.8, 48.8),
            claim(FairParts(5.0, 19.0), 0.6, 1.4),
            claim(Sockets("cubic"), 2.0, f64::MAX),
        ],
    },
    Case {
        name: "rivals, four cubic",
        scenario: "--rate 50Mbit --rtt 20ms --rivals 4xcubic",
        load: "-C cubic -t 20",
        ping: pings(20),
        claims: &[
            claim(SumRate(5.0, 19.0), 46.8, 48.8),
            claim(FairParts(5.0, 19.0), 0.5, 1.7),
            claim(Jain(5.0, 19.0), 0.85, 1.0),
        ],
    },
    Case {
        name: "rivals, four BBR",
        scenario: "--rate 50Mbit --rtt 20ms --rivals 4xbbr",
        load: "-C cubic -t 20",
        ping: pings(20),
        claims: &[claim(SumRate(5.0, 19.0), 46.0, 48.8), claim(Sockets("bbr"), 4.0, f64::MAX)],
    },
    Case {
        name: "rivals, the other way",
        scenario: "--rate 50Mbit --rtt 20ms --rivals cubic,back",
        load: "-C cubic -t 12",
        ping: pings(12),
        claims: &[claim(Rate(4.0, 11.0), 36.0, 48.8), claim(RivalRate(4.0, 11.0), 36.0, 48.8)],
    },
    Case {
        name: "rivals, on and off",
        scenario: "--rate 50Mbit --rtt 20ms --rivals on-off,on=3s,off=3s",
        load: "-C cubic -t 18",
        ping: pings(18),
        claims: &[
            claim(RivalRate(3.3, 5.9), 0.0, 0.1),
            claim(RivalRate(7.0, 9.0), 8.0, 40.0),
            claim(RivalRate(9.3, 11.9), 0.0, 0.1),
            claim(Rate(10.0, 12.0), 45.0, 48.8),
            claim(Rate(13.0, 15.0), 8.0, 42.0),
        ],
    },
    Case {
        name: "rivals, that come and go",
        scenario: "--rate 50Mbit --rtt 20ms --rivals 2xcubic,at=4s,for=4s",
        load: "-C cubic -t 12",
        ping: pings(12),
        claims: &[
            claim(RivalRate(0.0, 4.0), 0.0, 0.0),
            claim(Rate(2.0, 4.0), 45.0, 48.8),
            claim(Rate(6.0, 8.0), 5.0, 35.0),
            claim(RivalRate(8.2, 12.0), 0.0, 0.1),
            claim(Rate(9.5, 12.0), 45.0, 48.8),
        ],
    },
    Case {
        // 32 of 64 KiB a second: 16.8 Mbit/s. Four round trips, and 11 ms of transmission.
        name: "rivals, short",
        scenario: "--rate 50Mbit --rtt 20ms --rivals 8xshort,size=64K,every=250ms",
        load: "",
        ping: pings(10),
        claims: &[
            claim(RivalRate(1.0, 9.0), 16.3, 17.3),
            claim(Completed, 300.0, 335.0),
            claim(CompletedMedian, 75.0, 115.0),
        ],
    },
    Case {
        // 1476 of 1448 bytes: 40.77 Mbit/s are offered.
        name: "policer, datagrams above it",
        scenario: "--rate 100Mbit --rtt 20ms --policer 20Mbit,64K",
        load: "-u -b 40M -l 1448 -t 6",
        ping: pings(6),
        claims: &[
            claim(DatagramLoss, 0.49, 0.53),
            claim(PingMedian(1.0, 5.0), 20.0, 21.0),
            claim(QueueDrops, 0.0, 0.0),
        ],
    },
    Case {
        name: "policer, datagrams below it",
        scenario: "--rate 100Mbit --rtt 20ms --policer 20Mbit,64K",
        load: "-u -b 15M -l 1448 -t 6",
        ping: pings(6),
        claims: &[claim(DatagramLoss, 0.0, 0.0), claim(PolicerDrops, 0.0, 0.0)],
    },
    Case {
        name: "policer, TCP",
        scenario: "--rate 100Mbit --rtt 20ms --policer 20Mbit,64K",
        load: "-C cubic -t 15",
        ping: pings(15),
        claims: &[
            claim(Rate(5.0, 15.0), 10.0, 19.4),
            claim(PingMedian(5.0, 14.0), 20.0, 21.5),
            claim(PolicerDrops, 1.0, f64::MAX),
            claim(QueueDrops, 0.0, 0.0),
        ],
    },
    Case {
        name: "a short queue instead, TCP",
        scenario: "--rate 20Mbit --rtt 20ms --queue 64K",
        load: "-C cubic -t 15",
        ping: pings(15),
        claims: &[
            claim(Rate(5.0, 15.0), 18.3, 19.5),
            claim(PingMedian(5.0, 14.0), 26.0, 48.0),
            claim(QueueDrops, 1.0, f64::MAX),
        ],
    },
    Case {
        // The queue holds 80 ms, of which cubic leaves 30 to 100 %.
        name: "first in, first out, 4 bdp",
        scenario: "--rate 50Mbit --rtt 20ms --queue 4bdp",
        load: "-C cubic -t 15",
        ping: pings(15),
        claims: &[claim(Rate(5.0, 15.0), 46.8, 48.8), claim(PingMedian(5.0, 14.0), 60.0, 102.0)],
    },
    Case {
        name: "fq_codel without ECN",
        scenario: "--rate 50Mbit --rtt 20ms --aqm fq_codel",
        load: "-C cubic -t 15",
        ping: pings(15),
        claims: &[
            claim(Rate(5.0, 15.0), 44.0, 48.8),
            claim(PingMedian(5.0, 14.0), 20.0, 22.5),
            claim(TcpRtt, 20.0, 35.0),
            claim(AqmDrops, 1.0, f64::MAX),
            claim(Marks, 0.0, 0.0),
            claim(QueueDrops, 0.0, 0.0),
        ],
    },
    Case {
        name: "fq_codel with ECN",
        scenario: "--rate 50Mbit --rtt 20ms --aqm fq_codel-ecn",
        load: "-C cubic -t 15",
        ping: pings(15),
        claims: &[
            claim(Rate(5.0, 15.0), 44.0, 48.8),
            claim(PingMedian(5.0, 14.0), 20.0, 22.5),
            claim(TcpRtt, 20.0, 35.0),
            claim(Marks, 1.0, f64::MAX),
            claim(MarksReceived, 1.0, 1.0),
            claim(Sockets("ecn"), 1.0, f64::MAX),
            claim(AqmDrops, 0.0, 5.0),
            claim(Retransmits, 0.0, 5.0),
            claim(Counter(Host::Far, "TcpInCsumErrors"), 0.0, 0.0),
        ],
    },
    Case {
        name: "fq_codel, beside four BBR",
        scenario: "--rate 50Mbit --rtt 20ms --aqm fq_codel --rivals 4xbbr",
        load: "-C cubic -t 20",
        ping: pings(20),
        claims: &[
            claim(SumRate(5.0, 19.0), 46.0, 48.8),
            claim(FairParts(5.0, 19.0), 0.85, 1.15),
            claim(PingMedian(5.0, 19.0), 20.0, 24.0),
        ],
    },
    Case {
        name: "reordering, pings",
        scenario: "--rate 50Mbit --rtt 20ms --reorder 5%,20ms --reorder-back none",
        load: "",
        ping: Ping { count: 5000, every_ms: 2 },
        claims: &[claim(PingReordered, 0.04, 0.06), claim(PingLoss, 0.0, 0.0)],
    },
    Case {
        name: "reordering, TCP",
        scenario: "--rate 50Mbit --rtt 20ms --reorder 1%,5ms --reorder-back none",
        load: "-C cubic -t 10",
        ping: pings(10),
        claims: &[
            claim(Counter(Host::Near, "TcpExtTCPSACKReorder"), 1.0, f64::MAX),
            claim(Counter(Host::Far, "TcpExtTCPOFOQueue"), 1.0, f64::MAX),
        ],
    },
    Case {
        name: "losses, in runs",
        scenario: "--rate 50Mbit --rtt 20ms --loss 10%,4 --loss-back 0",
        load: "",
        ping: Ping { count: 10_000, every_ms: 2 },
        claims: &[claim(PingLoss, 0.07, 0.13), claim(PingRun, 3.2, 4.8)],
    },
    Case {
        name: "losses, each by itself",
        scenario: "--rate 50Mbit --rtt 20ms --loss 10% --loss-back 0",
        load: "",
        ping: Ping { count: 10_000, every_ms: 2 },
        claims: &[claim(PingLoss, 0.085, 0.115), claim(PingRun, 1.05, 1.18)],
    },
    Case {
        // The two rows of the slow phase fail: runs/2026-11-26-wan-ground.md.
        name: "changes of the rate",
        scenario: "--rate 50Mbit --rtt 20ms --at 5s --rate 10Mbit --at 15s --rate 50Mbit",
        load: "-C cubic -t 20",
        ping: pings(20),
        claims: &[
            claim(Rate(2.0, 5.0), 46.0, 48.8),
            claim(Rate(5.5, 15.0), 8.8, 9.9),
            claim(Rate(10.0, 15.0), 9.3, 9.9),
            claim(Rate(17.0, 20.0), 45.0, 48.8),
        ],
    },
    Case {
        name: "a change of the round trip",
        scenario: "--rate 50Mbit --rtt 20ms --at 3s --rtt 60ms",
        load: "",
        ping: pings(6),
        claims: &[claim(PingMedian(0.2, 2.7), 20.0, 20.5), claim(PingMedian(3.3, 5.7), 60.0, 61.2)],
    },
    Case {
        name: "ways that differ",
        scenario: "--rate 50Mbit --rate-back 5Mbit --rtt 60ms --delay-back 45ms",
        load: "-C cubic -t 15",
        ping: pings(15),
        claims: &[
            claim(OneWay(Host::Far), 15.0, 15.6),
            claim(OneWay(Host::Near), 45.0, 45.9),
            claim(Rate(5.0, 15.0), 45.0, 48.8),
        ],
    },
    Case {
        name: "1 Gbit/s with delay",
        scenario: "--rate 1Gbit --rtt 20ms --aqm fq_codel",
        load: "-C cubic -t 12",
        ping: pings(12),
        claims: &[claim(Rate(5.0, 12.0), 900.0, 975.0), claim(PingMedian(5.0, 11.0), 20.0, 25.0)],
    },
];
