//! Synthetic series as input of episodes, pauses and windows.

use super::episodes::{Episode, episodes, losses};
use super::pauses::{Pause, Waiting, habit, pauses, period};
use super::series::Series;
use super::sharing::sharing;
use super::windows::{OFTEN, cut, fastest};
use crate::statistics::Spread;
use base::path::PathSample;
use base::units::{Nanos, Tick};

const ROUND_TRIP_S: f64 = 0.1;
const EVERY_S: f64 = 0.025;
const MSS: u32 = 1448;

/// A stream of 12.5 MB/s that stops for `pause_s` after every `block_s` of sending, and loses
/// `lost` segments at the end of each pause.
fn stopping(block_s: f64, pause_s: f64, lost: u64, seconds: f64) -> Series<'static> {
    let mut sample = PathSample {
        rtt: nanos(ROUND_TRIP_S),
        rtt_min: nanos(ROUND_TRIP_S),
        mss_bytes: MSS,
        cwnd_segments: 1000,
        ssthresh_segments: 900,
        peer_window_bytes: 4 << 20,
        ..PathSample::default()
    };
    let mut samples = vec![sample];
    let cycle_s = block_s + pause_s;
    let mut stopped = false;
    for index in 1..(seconds / EVERY_S) as u64 {
        let at_s = index as f64 * EVERY_S;
        let stops = at_s % cycle_s >= block_s;
        sample.at = Tick(nanos(at_s).0);
        if stops {
            sample.clocks.idle += nanos(EVERY_S);
        } else {
            sample.bytes_sent += (12.5e6 * EVERY_S) as u64;
            sample.segments_sent += 216;
            sample.clocks.sink += nanos(EVERY_S);
        }
        sample.bytes_acked = sample.bytes_sent - sample.bytes_retransmitted;
        sample.unacked_segments = if stops { 0 } else { 800 };
        sample.unsent_bytes = if stops { 0 } else { 100_000 };
        let resumes = stopped && !stops;
        sample.segments_retransmitted += if resumes { lost } else { 0 };
        sample.bytes_retransmitted += if resumes { lost * u64::from(MSS) } else { 0 };
        stopped = stops;
        samples.push(sample);
    }
    Series::of(samples)
}

fn nanos(seconds: f64) -> Nanos {
    Nanos((seconds * 1e9).round() as u64)
}

#[test]
fn pauses_are_found_with_their_length_and_cause() {
    for (block_s, pause_s) in [(2.7, 0.25), (1.0, 0.4), (0.5, 1.0)] {
        let series = stopping(block_s, pause_s, 0, 20.0);
        let found = pauses(&series, ROUND_TRIP_S);
        let expect = (20.0 / (block_s + pause_s)) as usize;
        assert!(found.len().abs_diff(expect) <= 1, "{block_s} {pause_s}: {}", found.len());
        for pause in &found {
            assert!((pause.length_s - pause_s).abs() <= 0.026, "{pause:?}");
            assert_eq!(pause.waiting, Waiting::Peer);
        }
        let between = habit(&found, &[], 20.0, ROUND_TRIP_S).bytes_between.unwrap();
        assert!((between.median / (12.5e6 * block_s) - 1.0).abs() < 0.1, "{between:?}");
    }
    assert!(pauses(&stopping(30.0, 1.0, 0, 20.0), ROUND_TRIP_S).is_empty());
    assert!(
        pauses(&stopping(1.0, 0.03, 0, 20.0), ROUND_TRIP_S).is_empty(),
        "shorter than it shows"
    );
}

#[test]
fn losses_behind_pauses_are_theirs() {
    let series = stopping(2.7, 0.25, 68, 60.0);
    let found = episodes(&series, ROUND_TRIP_S);
    let pauses = pauses(&series, ROUND_TRIP_S);
    assert_eq!(found.len(), pauses.len());
    let losses = losses(&series, &found);
    assert_eq!(losses.per_episode, 68.0);
    assert_eq!(losses.retransmitted_segments, 68 * found.len() as u64);
    let linked = habit(&pauses, &found, 60.0, ROUND_TRIP_S);
    assert!(linked.causes_losses && linked.episodes_after_pause == found.len(), "{linked:?}");
    // The same number of losses at other times is not caused by the pauses.
    let elsewhere: Vec<Episode> =
        found.iter().map(|episode| Episode { at_s: episode.at_s + 1.3, ..*episode }).collect();
    assert!(!habit(&pauses, &elsewhere, 60.0, ROUND_TRIP_S).causes_losses);
}

#[test]
fn signs_within_a_round_trip_are_one_episode() {
    let at = |millis: u64, again: u64, state: u8| PathSample {
        at: Tick(millis * 1_000_000),
        rtt: nanos(ROUND_TRIP_S),
        segments_retransmitted: again,
        state,
        ..PathSample::default()
    };
    let check = |samples: &[PathSample], expect: &[u64]| {
        let found = episodes(&Series::of(samples), ROUND_TRIP_S);
        let again: Vec<u64> = found.iter().map(|episode| episode.retransmitted_segments).collect();
        assert_eq!(again, expect);
    };
    check(&[at(0, 0, 0), at(25, 1, 0), at(50, 3, 0), at(375, 3, 0), at(400, 4, 0)], &[3, 1]);
    check(&[at(0, 0, 0), at(25, 1, 3), at(300, 1, 3), at(325, 9, 3), at(350, 9, 0)], &[9]);
    check(&[at(0, 0, 0), at(25, 0, 3), at(50, 0, 0)], &[]);
    check(&[at(0, 5, 0), at(25, 5, 0)], &[]);
}

#[test]
fn a_period_needs_regular_pauses() {
    let spread = |values: &[f64]| Spread::of(values).unwrap();
    let mebi = f64::from(1 << 20);
    let regular = spread(&[32.0 * mebi, 33.0 * mebi, 32.5 * mebi]);
    let blocks = [("the mover's block".to_string(), 30_000_000)];
    let cases = [
        (regular, 1, &[][..], Some(32 << 20)),
        (spread(&[30e6, 30.2e6, 29.9e6]), 1, &blocks[..], Some(30_000_000)),
        (spread(&[8.0 * mebi; 4]), 4, &[], Some(32 << 20)),
        (spread(&[10.0 * mebi, 32.0 * mebi, 60.0 * mebi]), 1, &[], None),
        (spread(&[24.0 * mebi; 4]), 1, &[], None),
        (spread(&[4096.0; 9]), 1, &[], None),
        (spread(&[32.0 * mebi]), 1, &[], None),
    ];
    for (bytes, sharing, blocks, expect) in cases {
        let found = period(&bytes, sharing, blocks);
        assert_eq!(found.map(|period| period.bytes), expect, "{bytes:?}");
    }
}

#[test]
fn pauses_are_left_out_of_features() {
    let series = stopping(1.0, 0.4, 0, 14.0);
    let found = pauses(&series, ROUND_TRIP_S);
    let cut = cut(&series, &found, ROUND_TRIP_S, fastest(&series, OFTEN));
    assert!(cut.ramp_s < 0.5, "{}", cut.ramp_s);
    let paused: f64 = cut.windows.iter().map(|window| window.paused_s).sum();
    let all: f64 = cut.windows.iter().map(|window| window.duration_s).sum();
    assert!((paused / all - 0.4 / 1.4).abs() < 0.04, "{paused} of {all}");
    // The last window ends within a pause that has no end.
    for window in &cut.windows[..cut.windows.len() - 1] {
        assert!((window.goodput / 12.5e6 - 1.0).abs() < 0.12, "{window:?}");
        assert!(window.queued > 0.9 && window.idle < 0.1, "{window:?}");
    }
    let none: &[Pause] = &[];
    assert_eq!(habit(none, &[], 0.0, ROUND_TRIP_S).count, 0);
}

/// A stream with a queue that stands at a bottleneck; the rate at which it is served swings by a
/// share of it, once in three seconds.
fn served(swing: f64, queue_s: f64, seconds: f64) -> Series<'static> {
    served_at(|at_s| 1.0 + swing * (at_s * std::f64::consts::TAU / 3.0).sin(), queue_s, seconds)
}

/// One that is served at so many times 100 Mbit/s.
fn served_at(share: impl Fn(f64) -> f64, queue_s: f64, seconds: f64) -> Series<'static> {
    let base = PathSample {
        rtt_min: nanos(ROUND_TRIP_S),
        mss_bytes: MSS,
        ssthresh_segments: 900,
        ..PathSample::default()
    };
    let samples: Vec<PathSample> = (0..(seconds / EVERY_S) as u64)
        .map(|index| {
            let at_s = index as f64 * EVERY_S;
            let rate = 12.5e6 * share(at_s);
            let sent = (12.5e6 * at_s) as u64;
            PathSample {
                at: Tick(nanos(at_s).0),
                rtt: nanos(ROUND_TRIP_S + queue_s),
                bytes_sent: sent,
                bytes_acked: sent,
                unacked_segments: (rate * (ROUND_TRIP_S + queue_s) / f64::from(MSS)) as u32,
                ..base
            }
        })
        .collect();
    Series::of(samples)
}

#[test]
fn sharing_is_how_much_the_rate_of_a_standing_queue_varies() {
    let cases = [
        // Two thirds of a sine lie within 0.866 of its swing; bins even out some of it.
        ("a swing of a fifth", served(0.2, 0.05, 30.0), Some((1.0, 0.14, 0.175))),
        ("an even rate", served(0.0, 0.05, 30.0), Some((1.0, 0.0, 0.001))),
        (
            "a rate that changed once",
            served_at(|at_s| if at_s < 12.0 { 1.0 } else { 0.4 }, 0.05, 30.0),
            Some((1.0, 0.0, 0.01)),
        ),
        (
            "a rate that changed and came back",
            served_at(|at_s| if (10.0..=20.0).contains(&at_s) { 0.4 } else { 1.0 }, 0.05, 30.0),
            Some((1.0, 0.25, 0.5)),
        ),
        ("no queue", served(0.2, 0.0, 30.0), None),
        (
            "three segments wait",
            served_at(|at_s| if at_s % 6.0 < 3.0 { 0.02 } else { 0.03 }, 0.012, 30.0),
            None,
        ),
        ("too short", served(0.2, 0.05, 3.0), None),
    ];
    for (name, series, expect) in cases {
        let sharing = sharing(&[(&series, 0.0)], ROUND_TRIP_S);
        match (sharing, expect) {
            (None, None) => {}
            (Some(found), Some((queued, least, most))) => {
                assert_eq!(found.queued, queued, "{name}");
                assert!((least..=most).contains(&found.variation), "{name}: {found:?}");
            }
            other => panic!("{name}: {other:?}"),
        }
    }
    // Of two streams that swing against each other the sum is even: not others, but each other.
    let (one, other) = (served(0.2, 0.05, 30.0), served(-0.2, 0.05, 30.0));
    let both = sharing(&[(&one, 0.0), (&other, 0.0)], ROUND_TRIP_S).unwrap();
    assert!(both.variation < 0.01, "{both:?}");
    assert_eq!(sharing(&[], ROUND_TRIP_S), None);
}
