use super::*;

/// A part with its times in microseconds at one request in flight, and at four.
fn stage(part: Part, alone_us: f64, deep_us: f64, is_blocking: bool) -> Stage {
    Stage {
        part,
        alone_s: [(1, alone_us * 1e-6), (4, deep_us * 1e-6)].into(),
        holds_lane_s: if is_blocking { alone_us * 1e-6 } else { 10e-6 },
        is_blocking,
    }
}

fn source(alone_us: f64, deep_us: f64) -> Stage {
    stage(Part::DiskSource, alone_us, deep_us, false)
}

fn sink(alone_us: f64, deep_us: f64) -> Stage {
    stage(Part::DiskSink, alone_us, deep_us, false)
}

fn network(alone_us: f64) -> Stage {
    stage(Part::NetSink, alone_us, alone_us, true)
}

fn memory(alone_us: f64) -> Stage {
    stage(Part::DiskSink, alone_us, alone_us, true)
}

/// Two ends on one device share a wake-up of 60 µs.
const ONE_DEVICE: Option<f64> = Some(60e-6);

#[test]
fn the_slowest_of_lane_parts_device_and_cpus_binds() {
    let two = || vec![source(100.0, 40.0), sink(80.0, 30.0)];
    let to_memory = || vec![source(100.0, 40.0), memory(50.0)];
    let over_net = || vec![source(100.0, 40.0), network(50.0), sink(80.0, 30.0)];
    // Stages, what is shared, CPU time; depth and lanes; microseconds a request, and the bound.
    let cases = [
        // Alone in flight: one part after the other, less the wake-up that is shared.
        (two(), None, 5.0, (1, 1), 180.0, Bound::Lane),
        (two(), ONE_DEVICE, 5.0, (1, 1), 120.0, Bound::Lane),
        (over_net(), None, 5.0, (1, 1), 230.0, Bound::Lane),
        (to_memory(), None, 5.0, (1, 1), 150.0, Bound::Lane),
        // Deeper, the slowest part; on one device both.
        (two(), None, 5.0, (4, 1), 40.0, Bound::DiskSource),
        (two(), ONE_DEVICE, 5.0, (4, 1), 70.0, Bound::Device),
        (two(), None, 5.0, (2, 1), 100.0, Bound::DiskSource),
        (two(), None, 5.0, (2, 2), 40.0, Bound::DiskSource),
        // Calls that block add up, with the CPU time of those that do not.
        (to_memory(), None, 5.0, (4, 1), 60.0, Bound::Lane),
        (to_memory(), None, 5.0, (4, 2), 40.0, Bound::DiskSource),
        (over_net(), None, 5.0, (4, 1), 60.0, Bound::Lane),
        (over_net(), None, 5.0, (4, 4), 50.0, Bound::Network),
        // More lanes at depth 1.
        (to_memory(), None, 5.0, (1, 2), 100.0, Bound::DiskSource),
        (to_memory(), None, 5.0, (1, 4), 40.0, Bound::DiskSource),
        // CPUs.
        (two(), ONE_DEVICE, 200.0, (1, 1), 200.0, Bound::Cpus),
        (to_memory(), None, 90.0, (4, 4), 90.0, Bound::Cpus),
    ];
    for (stages, shared_wake_s, cpus_us, (depth, lanes), micros, bound) in cases {
        let needs =
            Needs { stages, shared_wake_s, cpus_s: cpus_us * 1e-6, request_bytes: 1_000_000 };
        let rate = needs.rate(depth, lanes).unwrap();
        let expect = 1e6 / (micros * 1e-6);
        assert_eq!(rate.bound, bound, "depth {depth}, {lanes} lanes: {needs:?}");
        assert!((rate.bytes_per_s / expect - 1.0).abs() < 1e-9, "{rate:?}: {micros} µs, {needs:?}");
    }
}

#[test]
fn nothing_known_gives_no_rate() {
    let needs = Needs { stages: Vec::new(), shared_wake_s: None, cpus_s: 0.0, request_bytes: 4096 };
    assert_eq!(needs.rate(1, 1), None);
}

#[test]
fn planted_compositions_are_predicted_and_laid_out_by_depth_and_lanes() {
    let study = crate::study::Study::of(&crate::study::tests::planted(0.02));
    for one in &study.compositions {
        for seen in &one.sizes {
            let error = seen.rate_error().unwrap();
            assert!(error < 0.05, "{error}: {:?} {seen:?}", one.scenario);
            assert_eq!(seen.predicted_rate.unwrap().bound, Bound::Lane);
        }
    }
    assert_eq!(study.rate_grids.len(), 4, "disk-disk, disk-net-disk and its halves");
    for grid in &study.rate_grids {
        assert_eq!(grid.request_bytes, 1 << 20);
        assert!(grid.by_depth.iter().all(|lanes| lanes.len() == usize::from(GRID)), "{grid:?}");
        let rates: Vec<f64> = grid.by_depth[0].iter().map(|rate| rate.bytes_per_s).collect();
        assert!(rates.is_sorted(), "more lanes are never slower: {grid:?}");
    }
}
