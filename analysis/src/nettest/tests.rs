use super::*;

const MS: u64 = 1_000_000;

/// From and to in milliseconds, and whether it is omitted.
type Part = (u64, u64, bool);

fn span(omit_ms: u64, time_ms: u64, interval_ms: u64) -> Span {
    let of = Nanos::from_millis;
    Span { omit: of(omit_ms), time: of(time_ms), interval: of(interval_ms) }
}

#[test]
fn intervals_cover_the_time_and_restart_behind_what_is_omitted() {
    let cases: [(Span, &[Part]); 5] = [
        (span(0, 2000, 1000), &[(0, 1000, false), (1000, 2000, false)]),
        (span(1000, 1000, 1000), &[(0, 1000, true), (0, 1000, false)]),
        (span(500, 2500, 2000), &[(0, 500, true), (0, 2000, false), (2000, 2500, false)]),
        (span(0, 300, 1000), &[(0, 300, false)]),
        (span(0, 0, 1000), &[]),
    ];
    for (span, expect) in cases {
        let found: Vec<Part> =
            span.intervals().map(|one| (one.from.0 / MS, one.to.0 / MS, one.omitted)).collect();
        assert_eq!(found, expect, "{span:?}");
    }
    let span = span(500, 2500, 2000);
    let last = span.intervals().last().unwrap();
    assert_eq!(span.bounds(Tick(7), last), (Tick(7 + 2500 * MS), Tick(7 + 3000 * MS)));
    assert_eq!(span.end(Tick(7)), Tick(7 + 3000 * MS));
}

/// A stream of 1000 bytes a millisecond from `begins_ms` of its clock on, sampled every 10 ms.
fn path(stream: u32, side: PathSide, role: PathRole, begins_ms: u64) -> StreamPath {
    let sample = |step: u64| {
        let moving_ms = (step * 10).saturating_sub(100);
        let moved = moving_ms * 1000;
        let mut sample = PathSample {
            at: Tick((begins_ms + step * 10) * MS),
            rtt: Nanos::from_millis(20 + step / 100),
            mss_bytes: 1000,
            cwnd_segments: 10 + step as u32,
            ..PathSample::default()
        };
        match role {
            PathRole::Source => {
                sample.bytes_acked = 77 + moved;
                // A tenth is retransmitted.
                sample.bytes_sent = 77 + moved + moved / 10;
                sample.bytes_retransmitted = moved / 10;
                sample.segments_retransmitted = moved / 10_000;
            }
            PathRole::Sink => sample.bytes_received = 33 + moved,
        }
        sample
    };
    StreamPath { stream, side, role, samples: (0..400).map(sample).collect() }
}

fn direction_samples(direction: Direction, streams: u32, spacing: Nanos) -> DirectionSamples {
    let near = match direction {
        Direction::Forward => PathRole::Source,
        Direction::Reverse => PathRole::Sink,
    };
    let mut direction_samples = DirectionSamples::new(direction, spacing);
    for stream in 0..streams {
        direction_samples.see(&path(stream, PathSide::Near, near, 5_000));
        // The far end has another clock.
        direction_samples.see(&path(stream, PathSide::Far, near.other(), 900_000));
    }
    direction_samples
}

#[test]
fn both_directions_and_any_spacing_give_the_same() {
    for direction in [Direction::Forward, Direction::Reverse] {
        for (streams, spacing_ms) in [(1, 0), (1, 1000), (4, 500), (4, 3000)] {
            let direction_samples =
                direction_samples(direction, streams, Nanos::from_millis(spacing_ms));
            let began = direction_samples.began().unwrap();
            assert_eq!(began, Tick(5_110 * MS), "{direction:?}");
            let (from, to) = (began.after(Nanos(500 * MS)), began.after(Nanos(1500 * MS)));
            let moved = direction_samples.between(from, to);
            assert_eq!(moved.len(), streams as usize + 1);
            let context = format!("{direction:?} {streams} {spacing_ms}");
            for one in &moved[..streams as usize] {
                assert_eq!(one.bytes, 1_000_000, "{context}");
                assert_eq!(one.rate_bits_per_s, 8e6, "{context}");
                assert_eq!(one.retransmitted_segments, Some(100), "{context}");
                let window = one.congestion_window_bytes.unwrap();
                assert!((168_000..=171_000).contains(&window), "{context}: {window}");
                let rtt_s = one.rtt_s.unwrap();
                assert!((0.0205..0.0215).contains(&rtt_s), "{context}: {rtt_s}");
            }
            let sum = moved.last().unwrap();
            assert_eq!((sum.stream, sum.bytes), (None, 1_000_000 * u64::from(streams)));
            let total = direction_samples.total(from, to);
            for (ends, again) in [(&total.sender, Some(100)), (&total.receiver, None)] {
                assert_eq!(ends.len(), streams as usize + 1, "{context}");
                assert_eq!(ends[0].bytes, 1_000_000, "{context}");
                assert_eq!(ends[0].retransmitted_segments, again, "{context}");
                let sum = ends.last().unwrap();
                assert_eq!((sum.stream, sum.bytes), (None, 1_000_000 * u64::from(streams)));
            }
        }
    }
}

#[test]
fn what_is_not_known_is_left_out() {
    let mut direction_samples = DirectionSamples::new(Direction::Reverse, Nanos(0));
    assert_eq!(direction_samples.began(), None);
    assert!(!direction_samples.is_known_until(Tick(0)));
    assert_eq!(direction_samples.between(Tick(0), Tick(1)).len(), 1, "the sum of nothing");
    direction_samples.see(&path(0, PathSide::Near, PathRole::Sink, 5_000));
    let (from, to) = (Tick(6_000 * MS), Tick(7_000 * MS));
    let alone = direction_samples.between(from, to)[0];
    assert_eq!((alone.bytes, alone.retransmitted_segments), (1_000_000, None));
    assert_eq!((alone.congestion_window_bytes, alone.rtt_s), (None, None));
    assert!(direction_samples.total(from, to).sender.is_empty());
    assert!(!direction_samples.is_known_until(to), "the sender's part is still to come");
    direction_samples.see(&path(0, PathSide::Far, PathRole::Source, 1_000));
    assert!(direction_samples.is_known_until(to));
    assert!(!direction_samples.is_known_until(Tick(60_000 * MS)));
    assert_eq!(
        direction_samples.between(Tick(60_000 * MS), Tick(61_000 * MS)).len(),
        1,
        "it is over"
    );
}

#[test]
fn what_is_forgotten_changes_nothing_later() {
    let mut direction_samples = direction_samples(Direction::Reverse, 2, Nanos(0));
    let (from, to) = (Tick(6_005 * MS), Tick(7_005 * MS));
    let before = direction_samples.between(from, to);
    direction_samples.forget(from);
    assert_eq!(direction_samples.between(from, to), before);
    assert!(direction_samples.streams[&0].near.samples.len() < 400);
    assert!(direction_samples.streams[&0].far.samples.len() < 400);
}
