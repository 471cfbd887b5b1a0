use super::*;
use proptest::prelude::*;

const SIZES: [u32; 7] = [16, 32, 64, 128, 256, 512, 1024];

/// Runs of a part with planted costs. `calls` gives the calls for a request, by size.
fn planted(cb: f64, cr: f64, noise: f64, seed: u64, calls: fn(u32) -> f64) -> Vec<Observation> {
    let mut generator = generator(seed);
    let mut normal = || (0..12).map(|_| generator.random::<f64>()).sum::<f64>() - 6.0;
    let mut runs = Vec::new();
    for size in SIZES.map(|kibibytes| kibibytes << 10) {
        for repeat in 0..10 {
            let bytes = 1e9 + f64::from(repeat) * 1e7;
            let calls = bytes / f64::from(size) * calls(size);
            let cpu_s = (bytes * cb + calls * cr) / 1e9 * (1.0 + noise * normal());
            let depth = 1;
            runs.push(Observation {
                request_bytes: size,
                depth,
                bytes,
                calls,
                starts: calls,
                cpu_s,
            });
        }
    }
    runs
}

fn whole(_: u32) -> f64 {
    1.0
}

fn check(fit: &Fit, cb: f64, cr: f64, within: f64) {
    let near =
        |found: f64, planted: f64, unit: f64| (found - planted).abs() <= within * planted.max(unit);
    assert!(near(fit.cb_ns.value, cb, 0.05), "Cb {cb}: {:?}", fit.cb_ns);
    assert!(near(fit.cr_ns.value, cr, 1000.0), "Cr {cr}: {:?}", fit.cr_ns);
}

#[test]
fn planted_costs_are_found() {
    let partial = |size: u32| f64::from(size >> 10).sqrt();
    type Case = (f64, f64, f64, fn(u32) -> f64);
    let cases: [Case; 7] = [
        (0.5, 20_000.0, 0.0, whole),
        (0.5, 20_000.0, 0.02, whole),
        (0.5, 20_000.0, 0.02, partial),
        (40.0, 3_000.0, 0.001, partial),
        (0.0, 1_500.0, 0.0, whole),
        (0.0, 1_500.0, 0.02, whole),
        (0.3, 0.0, 0.0, whole),
    ];
    for (cb, cr, noise, calls) in cases {
        let fit = Fit::of(&planted(cb, cr, noise, 5, calls), Known::default(), 1).unwrap();
        check(&fit, cb, cr, 0.12 + 1e-6);
        assert!(fit.max_error() < 0.05 && fit.adequate(), "{fit:?}");
    }
}

#[test]
fn what_is_known_is_taken_off_once() {
    let known = Known { cb_ns: 0.01, cr_ns: 500.0 };
    let mut runs = planted(0.4, 9_000.0, 0.01, 2, |size| f64::from(size >> 10).sqrt());
    for run in &mut runs {
        let requests = run.bytes / f64::from(run.request_bytes);
        run.cpu_s += (run.bytes * known.cb_ns + requests * known.cr_ns) / 1e9;
    }
    let fit = Fit::of(&runs, known, 1).unwrap();
    check(&fit, 0.4, 9_000.0, 0.03);
    assert!(fit.max_error() < 0.03, "the whole cost is predicted: {:?}", fit.sizes);
}

/// Runs at several depths: at greater depths fewer requests are starts.
fn planted_starts(cb: f64, cr: f64, cs: f64, noise: f64, depths: &[u16]) -> Vec<Observation> {
    let mut all = Vec::new();
    for depth in depths {
        let seed = 70 + u64::from(*depth);
        all.extend(planted(cb, cr, 0.0, seed, whole).into_iter().map(|mut run| {
            run.depth = *depth;
            run.starts = run.calls / f64::from(*depth);
            run.cpu_s += run.starts * cs / 1e9;
            run
        }));
    }
    let mut generator = generator(9);
    all.iter_mut().for_each(|run| run.cpu_s *= 1.0 + noise * (generator.random::<f64>() - 0.5));
    all
}

#[test]
fn planted_starts_are_found_where_they_can_be_told() {
    // At one depth every request is a start: Cr includes both.
    type Case<'a> = (&'a [u16], f64, Option<f64>, f64);
    let cases: [Case<'_>; 5] = [
        (&[1], 21_000.0, None, 30_000.0),
        (&[4], 21_000.0, None, 14_250.0),
        (&[1, 4], 21_000.0, Some(21_000.0), 9_000.0),
        (&[1, 2, 3, 4], 21_000.0, Some(21_000.0), 9_000.0),
        (&[1, 4], 0.0, Some(0.0), 9_000.0),
    ];
    for (depths, cs, found, cr) in cases {
        let runs = planted_starts(0.05, 9_000.0, cs, 0.04, depths);
        let fit = Fit::resampled(&runs, Known::default(), 1, 200).unwrap();
        assert_eq!(fit.cs_ns.is_some(), found.is_some(), "{depths:?}: {fit:?}");
        let near = |seen: f64, expect: f64| (seen - expect).abs() <= 0.03 * expect + 300.0;
        assert!(near(fit.cr_ns.value, cr), "{depths:?}: {:?}", fit.cr_ns);
        if let (Some(seen), Some(expect)) = (fit.cs_ns, found) {
            assert!(near(seen.value, expect) && seen.low <= seen.high, "{depths:?}: {seen:?}");
        }
        assert!(fit.max_error() < 0.05 && fit.adequate(), "{:?}", fit.sizes);
        assert_eq!(fit.sizes.len(), 7 * depths.len());
    }
}

/// Requests that cost more when fewer of them are starts.
#[test]
fn starts_that_would_give_time_back_are_at_their_bound() {
    let mut runs = planted_starts(0.05, 9_000.0, 0.0, 0.02, &[1, 4]);
    runs.iter_mut().filter(|run| run.depth == 4).for_each(|run| run.cpu_s *= 1.1);
    let fit = Fit::resampled(&runs, Known::default(), 1, 50).unwrap();
    assert_eq!((fit.at_bound.names(), fit.cs_ns.unwrap().value), (vec!["Cs"], 0.0));
}

/// A cost that grows with the request size would need a negative cost per request.
#[test]
fn a_bound_is_named() {
    let growing = [(32 << 10, 39.0), (64 << 10, 40.0), (128 << 10, 43.0)];
    let runs = growing.map(|(size, ns)| Observation::per_byte(size, ns));
    let fit = Fit::of(&runs, Known::default(), 1).unwrap();
    assert_eq!((fit.at_bound.names(), fit.cr_ns.value), (vec!["Cr"], 0.0));
    assert!(fit.theil_sen.unwrap().slope < 0.0);
    let steep = [(32 << 10, 40.0), (64 << 10, 15.0), (128 << 10, 6.0)];
    let runs = steep.map(|(size, ns)| Observation::per_byte(size, ns));
    let fit = Fit::of(&runs, Known::default(), 1).unwrap();
    assert_eq!((fit.at_bound.names(), fit.cb_ns.value), (vec!["Cb"], 0.0));
}

#[test]
fn a_few_wild_runs_move_nothing() {
    let mut runs = planted(0.5, 20_000.0, 0.02, 3, whole);
    for place in [3, 17, 24, 38, 55] {
        runs[place].cpu_s *= 8.0;
    }
    check(&Fit::of(&runs, Known::default(), 1).unwrap(), 0.5, 20_000.0, 0.05);
}

#[test]
fn a_misfit_is_shown() {
    let mut runs = planted(0.5, 20_000.0, 0.01, 4, whole);
    for run in runs.iter_mut().filter(|run| run.request_bytes >= 512 << 10) {
        run.cpu_s *= 1.8;
    }
    let fit = Fit::of(&runs, Known::default(), 1).unwrap();
    assert_eq!(fit.lack_of_fit_passes(), Some(false), "{:?}", fit.lack_of_fit);
    assert!(!fit.adequate() && fit.max_error() > 0.2, "{:?}", fit.sizes);
}

/// Runs that are equal to the last digit have no variance to compare a misfit with.
#[test]
fn equal_runs_do_no_harm() {
    let sizes = [(16 << 10, 3.0), (32 << 10, 2.0), (64 << 10, 1.9), (128 << 10, 1.0)];
    let once = sizes.map(|(size, ns)| Observation::per_byte(size, ns));
    let runs: Vec<Observation> = once.iter().chain(&once).copied().collect();
    let fit = Fit::of(&runs, Known::default(), 1).unwrap();
    assert_eq!(fit.lack_of_fit_passes(), Some(false), "{:?}", fit.lack_of_fit);
}

#[test]
fn without_enough_there_is_no_fit() {
    let one = Observation::per_byte(65536, 1.0);
    let nan = Observation { cpu_s: f64::NAN, ..one };
    let zero = Observation { cpu_s: 0.0, ..one };
    let same = Observation { request_bytes: 4096, ..one };
    let cases = [
        (vec![], NoFit::Nothing { left_out: 0 }),
        (vec![nan], NoFit::Nothing { left_out: 0 }),
        (vec![zero, zero], NoFit::Nothing { left_out: 2 }),
        (vec![one, one], NoFit::OneSize { request_bytes: 65536 }),
        (vec![one, same], NoFit::CallsAlike),
    ];
    for (runs, expect) in cases {
        assert_eq!(Fit::of(&runs, Known::default(), 1).unwrap_err(), expect);
    }
}

/// Of a hundred fits, most 95 % intervals contain what was planted: a correct interval would give
/// less than 88 once in three hundred, and percentile intervals of ten runs are a little narrow.
#[test]
fn intervals_cover() {
    let mut held = (0, 0);
    for seed in 0..40 {
        let runs = planted(0.5, 20_000.0, 0.03, 1000 + seed, whole);
        let fit = Fit::resampled(&runs, Known::default(), 1, 400).unwrap();
        held.0 += usize::from(fit.cb_ns.low <= 0.5 && 0.5 <= fit.cb_ns.high);
        held.1 += usize::from(fit.cr_ns.low <= 20_000.0 && 20_000.0 <= fit.cr_ns.high);
    }
    assert!(held.0 >= 34 && held.1 >= 34, "{held:?} of 40");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn any_planted_costs_are_found(
        cb in 0.02..50.0f64, balance in 1e3..1e6f64, seed in 0u64..1000, partial in any::<bool>()
    ) {
        let cr = cb * balance;
        let calls = if partial { |size: u32| f64::from(size >> 10).sqrt() } else { whole };
        let runs = planted(cb, cr, 0.01, seed, calls);
        let fit = Fit::resampled(&runs, Known::default(), 1, 20).unwrap();
        prop_assert!(fit.max_error() < 0.03, "{:?}", fit.sizes);
        let middle = 65536u32;
        let x = calls(middle) / f64::from(middle);
        let (found, truth) = (fit.cost_ns(middle, x, x), cb + cr * x);
        prop_assert!((found / truth - 1.0).abs() < 0.02, "{found} for {truth}");
    }

    #[test]
    fn order_does_not_matter(seed in 0u64..100) {
        let runs = planted(0.5, 20_000.0, 0.05, seed, whole);
        let mut other = runs.clone();
        other.reverse();
        let fit = |runs: &[Observation]| Fit::resampled(runs, Known::default(), 9, 20).unwrap();
        prop_assert_eq!(fit(&runs), fit(&other));
    }

    #[test]
    fn nothing_panics(runs in prop::collection::vec(
        (any::<u32>(), 0u16..3, any::<f64>(), any::<f64>(), any::<f64>(), any::<f64>()), 0..9
    )) {
        let runs: Vec<Observation> = runs
            .into_iter()
            .map(|(request_bytes, depth, bytes, calls, starts, cpu_s)| {
                Observation { request_bytes, depth, bytes, calls, starts, cpu_s }
            })
            .collect();
        let _ = Fit::resampled(&runs, Known::default(), 1, 20);
    }
}
