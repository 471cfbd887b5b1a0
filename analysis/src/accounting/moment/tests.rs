use super::*;

#[test]
fn names_are_the_same_after_a_restart() {
    let cases = [
        ("kworker/u8:23-events_unbound", "kworker/u8-events_unbound"),
        ("kworker/u8:2+flush-254:0", "kworker/u8-writeback"),
        ("kworker/u8:2-flush-btrfs-1", "kworker/u8-writeback"),
        ("kworker/u8:5-writeback", "kworker/u8-writeback"),
        ("kworker/0:3", "kworker/0"),
        ("kworker/0:1H-kblockd", "kworker/0-kblockd"),
        ("kworker/R-dio/vda", "kworker/R-dio/vda"),
        ("ksoftirqd/1", "ksoftirqd/1"),
        ("jbd2/vda1-8", "jbd2/vda1"),
        ("jbd2/dm-0-8", "jbd2/dm-0"),
        ("irq/24-ACPI:Ged", "irq/ACPI:Ged"),
        ("irq/24", "irq/24"),
        ("kswapd0", "kswapd0"),
        ("kworker/", "kworker/"),
        ("", ""),
    ];
    for (name, expect) in cases {
        assert_eq!(plain_name(name), expect, "{name}");
    }
}

#[test]
fn cpus_are_read_whatever_stands_there() {
    let times =
        |idle_s, iowait_s, steal_s, total_s| CpuTimes { idle_s, iowait_s, steal_s, total_s };
    let cases: [(&str, &[(u32, CpuTimes)]); 6] = [
        (
            "cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 100 0 200 300 40 0 10 50 0 0\nintr 1 2\ncpu7 1 1 1 1\n",
            &[(0, times(3.0, 0.4, 0.5, 7.0))],
        ),
        (
            "cpu 1\ncpu0 1 1 1 100\ncpu2 0 0 0 200 0 0 0 0\n",
            &[(0, times(1.0, 0.0, 0.0, 1.03)), (2, times(2.0, 0.0, 0.0, 2.0))],
        ),
        ("cpu0 x y z\n", &[(0, CpuTimes::default())]),
        ("cpu0 1 1 1 -5 1\n", &[(0, times(0.0, 0.0, 0.0, 0.03))]),
        ("cpux 1 1 1 1\n", &[]),
        ("", &[]),
    ];
    for (text, expect) in cases {
        let got: Vec<_> = read_cpus(text, 100).into_iter().collect();
        assert_eq!(got, expect, "{text}");
    }
}

#[test]
fn interrupts_of_devices_are_read() {
    let cases = [
        ("cpu0 1 1 1 1\nintr 900 0 7 0 5\nctxt 12\n", 12),
        ("intr 900\n", 0),
        ("intr 9 x 4 -1 18446744073709551615\n", u64::MAX),
        ("ctxt 12\n", 0),
        ("", 0),
    ];
    for (text, expect) in cases {
        assert_eq!(read_device_interrupts(text), expect, "{text}");
    }
}

#[test]
fn only_threads_of_the_kernel_are_read() {
    let cases = [
        (
            "5858 (kworker/u8:0-iou_exit) I 2 0 0 0 -1 69238880 0 0 0 0 0 9 0 0 20 0 1 0 1215351",
            Some(("kworker/u8-iou_exit", 1_215_351)),
        ),
        ("31 (a) b) (c) S 2 0 0 0 -1 2097152 0 0 0 0 0 1 0 0 20 0 1 0 7 0", Some(("a) b) (c", 7))),
        ("900 (bash) S 1 900 900 0 -1 4194560 0 0 0 0 0 1 0 0 20 0 1 0 77 0", None),
        ("900 (cut", None),
        ("900 (short) S 2 0", None),
        ("", None),
    ];
    for (text, expect) in cases {
        let got = read_kernel_thread(text);
        let got = got.as_ref().map(|(name, started)| (name.as_str(), *started));
        assert_eq!(got, expect, "{text}");
    }
    assert_eq!(read_available_bytes("MemFree: 1 kB\nMemAvailable:   2048 kB\n"), 2 << 20);
    assert_eq!(read_available_bytes("MemAvailable: much\n"), 0);
    let orders = "Node 0, zone DMA 0 0 0 0 0 0 0 0 1 1 3\n";
    let cases = [
        ("9\n", orders, Some(9..11)),
        ("11\n", orders, None),
        // No driver has asked for it.
        ("4294967295\n", orders, None),
        ("", orders, None),
        ("9\n", "", None),
    ];
    for (parameter, buddyinfo, expect) in cases {
        assert_eq!(read_orders_given_back(parameter, buddyinfo), expect, "{parameter:?}");
    }
}

fn thread(pid: u32, started: u64, name: &str, cpu: Option<u32>, cpu_ns: u64) -> ThreadTime {
    ThreadTime { pid, started, name: name.into(), cpu, cpu_ns }
}

fn times(idle_s: f64, iowait_s: f64, steal_s: f64) -> CpuTimes {
    CpuTimes { idle_s, iowait_s, steal_s, total_s: 0.0 }
}

fn soaker(since_ns: u64, iterations: u64, cpu_ns: u64) -> SoakerTimes {
    SoakerTimes { since_ns, iterations, cpu_ns }
}

/// Two CPUs over ten seconds: the first is soaked, the second is idle for six.
fn pair() -> (Moment, Moment) {
    let from = Moment {
        at_ns: 1_000_000_000,
        cpus: [(0, times(5.0, 1.0, 0.0)), (1, times(5.0, 1.0, 2.0))].into(),
        soakers: [(0, soaker(7, 1000, 3_000_000_000))].into(),
        kernel_threads: vec![
            thread(10, 1, "ksoftirqd/0", Some(0), 500),
            thread(11, 1, "kworker/u8-writeback", None, 1_000_000_000),
            thread(12, 1, "kworker/u8-writeback", None, 100),
            thread(13, 1, "kswapd0", None, 900),
        ],
        ..Moment::default()
    };
    let to = Moment {
        at_ns: 11_000_000_000,
        // iowait decreased.
        cpus: [(0, times(5.0, 0.5, 1.0)), (1, times(11.0, 1.0, 2.0))].into(),
        soakers: [(0, soaker(7, 9000, 10_000_000_000))].into(),
        kernel_threads: vec![
            thread(10, 1, "ksoftirqd/0", Some(0), 500),
            thread(11, 1, "kworker/u8-writeback", None, 2_000_000_000),
            thread(12, 99, "kworker/u8-writeback", None, 500_000_000),
            thread(14, 50, "jbd2/vda1", None, 250_000_000),
        ],
        ..Moment::default()
    };
    (from, to)
}

#[test]
fn what_passed_between_two_moments() {
    let (from, to) = pair();
    let machine = from.until(&to);
    // CPU 0: 10 less 1 stolen, 7 of it soaked. CPU 1: 10 less 6 idle.
    assert_eq!((machine.cpus, machine.span_s, machine.steal_s), (2, 10.0, 1.0));
    assert_eq!(machine.busy_idle_s, 9.0 + 4.0 - 7.0);
    assert_eq!((machine.busy_clock_s, machine.busy_iter_s), (Some(2.0), None));
    assert_eq!(machine.soaked_cpus, [0]);
    let threads: Vec<_> =
        machine.kernel_threads.iter().map(|t| (t.name.as_str(), t.cpu, t.cpu_s)).collect();
    // One worker ended and its number was reused; one thread did nothing.
    assert_eq!(threads, [("jbd2/vda1", None, 0.25), ("kworker/u8-writeback", None, 1.5)]);
}

#[test]
fn moments_that_do_not_fit_give_nothing_instead_of_nonsense() {
    let (from, to) = pair();
    let backwards = to.until(&from);
    assert_eq!((backwards.span_s, backwards.busy_idle_s), (0.0, 0.0));
    let rested = Moment { soakers: [(0, soaker(8, 9000, 10))].into(), ..to.clone() };
    assert_eq!(from.until(&rested).busy_clock_s, None, "it rested meanwhile");
    let empty = Moment::default();
    let machine = empty.until(&to);
    assert_eq!((machine.cpus, machine.busy_clock_s), (0, None));
    assert_eq!(machine.busy_idle_s, 0.0);
}
