//! The tables of the 1-1 data pump report (Mayr and Gray, 2000) as values: its predictions follow
//! from its constants, and our fit is compared. K is 1024, as its 64 KB are.
//!
//! Slips of the report itself, which are named here and not copied: the caption of Table 5 says
//! 139 ns where 139 us is meant. The predictions of Table 1 are those of Cb = 0.6 ns, to the last
//! digit, where its caption and all later sums say 0.5, which errs by up to 15 % and not 2. Its
//! relative error is max/min - 1, computed from numbers before they were rounded for print, so
//! that printed errors and those of printed numbers differ a little.

use analysis::model::curve::Curve;
use analysis::model::fit::{Fit, Intervals, Known, Observation};
use analysis::model::observations;
use analysis::report::curves;
use analysis::report::sheet::Form;
use analysis::statistics::symmetric_error;

struct Published {
    name: &'static str,
    /// As its caption says.
    cb_ns: f64,
    /// What its predictions were computed with.
    cb_ns_used: f64,
    cr_us: f64,
    /// Request size in KB, observed and predicted nanoseconds for each byte, error in percent.
    rows: &'static [(u32, f64, f64, f64)],
    /// The last digit of a printed prediction.
    print_ns: f64,
    /// How far a printed error may be from that of the printed numbers, in percent points.
    error_slack: f64,
    /// The largest error of our fit, in percent, rounded up.
    ours_at_most: f64,
}

const TABLES: [Published; 7] = [
    Published {
        name: "Table 1, disk source",
        cb_ns: 0.5,
        cb_ns_used: 0.6,
        cr_us: 86.0,
        rows: &[
            (32, 3.2, 3.2, 0.0),
            (64, 1.9, 1.9, 0.0),
            (128, 1.3, 1.3, 0.0),
            (256, 0.95, 0.93, 2.0),
        ],
        print_ns: 0.1,
        error_slack: 1.0,
        ours_at_most: 2.0,
    },
    Published {
        name: "Table 2, disk sink",
        cb_ns: 1.6,
        cb_ns_used: 1.6,
        cr_us: 73.0,
        rows: &[
            (32, 5.3, 3.8, 39.0),
            (64, 2.8, 2.7, 4.0),
            (128, 2.2, 2.2, 0.0),
            (256, 1.3, 1.9, 46.0),
        ],
        print_ns: 0.1,
        error_slack: 1.0,
        ours_at_most: 17.0,
    },
    Published {
        name: "Table 3, network sender",
        cb_ns: 20.0,
        cb_ns_used: 20.0,
        cr_us: 40.0,
        rows: &[(32, 23.0, 21.0, 6.0), (64, 20.0, 21.0, 3.0), (128, 20.0, 20.0, 0.0)],
        print_ns: 1.0,
        error_slack: 4.0,
        ours_at_most: 4.0,
    },
    Published {
        name: "Table 4, network receiver",
        cb_ns: 40.0,
        cb_ns_used: 40.0,
        cr_us: 20.0,
        rows: &[(32, 39.0, 41.0, 4.0), (64, 40.0, 40.0, 0.0), (128, 43.0, 40.0, 6.0)],
        print_ns: 1.0,
        error_slack: 2.0,
        ours_at_most: 7.0,
    },
    Published {
        name: "Table 5, disk to disk",
        cb_ns: 2.1,
        cb_ns_used: 2.1,
        cr_us: 139.0,
        rows: &[
            (32, 8.1, 6.4, 28.0),
            (64, 4.8, 4.2, 13.0),
            (128, 2.9, 3.2, 9.0),
            (256, 2.2, 2.6, 17.0),
        ],
        print_ns: 0.1,
        error_slack: 2.0,
        ours_at_most: 4.0,
    },
    Published {
        name: "Table 6, sender",
        cb_ns: 20.5,
        cb_ns_used: 20.5,
        cr_us: 106.0,
        rows: &[
            (32, 25.5, 23.7, 7.0),
            (64, 22.3, 22.1, 1.0),
            (128, 22.9, 21.3, 8.0),
            (256, 22.5, 20.9, 8.0),
        ],
        print_ns: 0.1,
        error_slack: 1.0,
        ours_at_most: 7.0,
    },
    Published {
        name: "Table 7, receiver",
        cb_ns: 41.6,
        cb_ns_used: 41.6,
        cr_us: 73.0,
        rows: &[
            (32, 45.2, 43.8, 3.0),
            (64, 46.1, 42.7, 8.0),
            (128, 46.3, 42.2, 10.0),
            (256, 45.3, 41.9, 8.0),
        ],
        print_ns: 0.1,
        error_slack: 1.0,
        ours_at_most: 2.0,
    },
];

/// Table 8, with the pump first: Cb in nanoseconds, Cr in microseconds.
const PUMP: (f64, f64) = (0.0, 20.0);
const DISK_SOURCE: (f64, f64) = (0.5, 66.0);
const DISK_SINK: (f64, f64) = (1.6, 53.0);
const NET_SOURCE: (f64, f64) = (40.0, 0.0);
const NET_SINK: (f64, f64) = (20.0, 20.0);

fn fit(table: &Published) -> Fit {
    let mut text = String::from("request_size,ns_per_byte\n");
    table.rows.iter().for_each(|(size, ns, ..)| text.push_str(&format!("{size}KB,{ns}\n")));
    let runs: Vec<Observation> = observations::read(text.as_bytes()).unwrap();
    Fit::of(&runs, Known::default(), 1).unwrap()
}

#[test]
fn printed_predictions_follow_from_printed_constants() {
    for table in &TABLES {
        for (size, observed, predicted, error) in table.rows {
            let follows = table.cb_ns_used + table.cr_us * 1e3 / f64::from(size << 10);
            // Half of the last digit, and a tenth of it for a number that was cut, not rounded.
            let off = (follows - predicted).abs();
            assert!(off <= 0.61 * table.print_ns, "{} {size}K: {follows}", table.name);
            let of_print = symmetric_error(*observed, *predicted) * 100.0;
            assert!(
                (of_print - error).abs() <= table.error_slack,
                "{} {size}K: {of_print}",
                table.name
            );
        }
    }
}

#[test]
fn tables_are_sums_of_table_8() {
    let cases = [
        (&TABLES[0], vec![PUMP, DISK_SOURCE]),
        (&TABLES[1], vec![PUMP, DISK_SINK]),
        (&TABLES[2], vec![PUMP, NET_SINK]),
        (&TABLES[3], vec![PUMP, NET_SOURCE]),
        (&TABLES[4], vec![DISK_SOURCE, PUMP, DISK_SINK]),
        (&TABLES[5], vec![DISK_SOURCE, PUMP, NET_SINK]),
        (&TABLES[6], vec![NET_SOURCE, PUMP, DISK_SINK]),
    ];
    for (table, parts) in cases {
        let (cb, cr) = parts.iter().fold((0.0, 0.0), |sum, part| (sum.0 + part.0, sum.1 + part.1));
        assert!(
            (cb - table.cb_ns).abs() < 1e-9 && (cr - table.cr_us).abs() < 1e-9,
            "{}",
            table.name
        );
    }
}

/// The fit is never worse at its worst size than the constants that were chosen by eye.
#[test]
fn our_fit_beside_theirs() {
    for table in &TABLES {
        let fit = fit(table);
        let theirs = |(size, observed, ..): &(u32, f64, f64, f64)| {
            symmetric_error(*observed, table.cb_ns + table.cr_us * 1e3 / f64::from(size << 10))
        };
        let theirs = table.rows.iter().map(theirs).fold(0.0, f64::max);
        assert!(fit.max_error() <= theirs + 0.005, "{}: {} {theirs}", table.name, fit.max_error());
        assert!(
            fit.max_error() * 100.0 <= table.ours_at_most,
            "{}: {:?}",
            table.name,
            fit.errors()
        );
        assert_eq!((fit.intervals, fit.lack_of_fit), (Intervals::Residuals, None));
        assert_eq!(fit.adequate(), fit.max_error() <= 0.10, "without repeats errors judge");
    }
}

#[test]
fn table_1_refits() {
    let fit = fit(&TABLES[0]);
    let by_caption = |row: &(u32, f64, f64, f64)| {
        symmetric_error(row.1, TABLES[0].cb_ns + TABLES[0].cr_us * 1e3 / f64::from(row.0 << 10))
    };
    let worst = TABLES[0].rows.iter().map(by_caption).fold(0.0, f64::max);
    assert!(worst > 0.14, "the caption's constants err by {worst}, not by the 2 % that it prints");
    assert!((fit.cb_ns.value - 0.64).abs() <= 0.02, "{:?}", fit.cb_ns);
    assert!((fit.cr_ns.value - 84e3).abs() <= 2e3, "{:?}", fit.cr_ns);
    assert!(fit.at_bound.names().is_empty());
    assert!(fit.adequate());
}

/// A byte costs more in larger requests, which takes a request that gives time back: because
/// returns are partial, requests are no measure of calls.
#[test]
fn table_4_is_at_the_bound_and_says_what_does_not_fit() {
    let fit = fit(&TABLES[3]);
    assert_eq!((fit.at_bound.names(), fit.cr_ns.value), (vec!["Cr"], 0.0));
    assert!(fit.theil_sen.unwrap().slope < 0.0);
    assert!(fit.max_error() > 0.05, "{:?}", fit.errors());
    let runs: Vec<Observation> =
        TABLES[3].rows.iter().map(|row| Observation::per_byte(row.0 << 10, row.1)).collect();
    let curve = Curve::of(&runs, Known::default(), None, 1).unwrap();
    let text = curves::curve("Table 4", &curve).write(Form::Text);
    assert!(text.contains("Cr is at its bound 0"), "{text}");
    assert!(text.contains("the misfit that this leaves goes from"), "{text}");
    assert!(text.contains("lack of fit is judged by the largest error"), "{text}");
}

#[test]
fn balance_sizes() {
    let balance = |part: (f64, f64)| {
        analysis::model::fit::balance_bytes(part.0, part.1 * 1e3).map(|bytes| bytes.round())
    };
    assert_eq!(balance(PUMP), None, "a pump's bytes cost nothing");
    assert_eq!(balance(DISK_SOURCE), Some(132_000.0));
    assert_eq!(balance(DISK_SINK), Some(33_125.0));
    assert_eq!(balance(NET_SINK), Some(1_000.0));
    assert_eq!(balance(NET_SOURCE), Some(0.0));
}
