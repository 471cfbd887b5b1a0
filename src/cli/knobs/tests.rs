use super::*;
use crate::base::settings::Pace;

fn knob(name: &str) -> &'static Knob {
    all().find(|knob| knob.name == name).unwrap()
}

#[test]
fn defaults_are_those_of_the_settings() {
    for knob in all().filter(|knob| !knob.default.is_empty()) {
        if matches!(knob.kind, Kind::Words(_) | Kind::Text(_)) {
            continue; // Their defaults name a program that stays unset.
        }
        let mut options = Options::default();
        knob.set(&mut options, OsStr::new(knob.default)).unwrap();
        assert_eq!(options, Options::default(), "--{}", knob.name);
    }
}

#[test]
fn names_and_letters_are_unique_and_texts_are_there() {
    let rows: Vec<_> = all().collect();
    for (i, knob) in rows.iter().enumerate() {
        // Two commands may mean different things by one name; one command may not.
        let beside = |other: &&&Knob| other.verbs.iter().any(|verb| knob.verbs.contains(verb));
        let before: Vec<_> = rows[..i].iter().filter(beside).collect();
        assert!(before.iter().all(|other| other.name != knob.name), "--{}", knob.name);
        let same = |other: &Knob| other.letter.is_some() && other.letter == knob.letter;
        assert!(!before.iter().any(|other| same(other)), "--{}", knob.name);
        assert!(!knob.help.is_empty() && !knob.help.ends_with('.'), "--{}", knob.name);
        assert_eq!(knob.value.is_empty(), matches!(knob.kind, Kind::Flag(_)), "--{}", knob.name);
    }
}

#[test]
fn wrong_values_are_told_what_to_type() {
    let cases = [
        ("streams", "0", "--streams '0': write a number from 1 to 64"),
        ("streams", "65", "--streams '65': write a number from 1 to 64"),
        ("streams", "four", "--streams 'four': write a number from 1 to 64"),
        ("streams", "-1", "--streams '-1': write a number from 1 to 64"),
        ("request-size", "5000", "--request-size '5000': write a multiple of 4K from 4K to 16M"),
        ("request-size", "32M", "--request-size '32M': write a multiple of 4K from 4K to 16M"),
        ("depth-sink", "257", "--depth-sink '257': write a number from 1 to 256, or auto"),
        ("window", "2G", "--window '2G': write a size from 4K to 1G, or auto"),
        ("memory", "1M", "--memory '1M': write a size from 64M up"),
        (
            "rate",
            "100mbit",
            "--rate '100mbit': write 100Mbit (bits) or 80MB (bytes a second), or unlimited",
        ),
        ("engine", "epoll", "--engine 'epoll': write auto, uring or threads"),
        ("fsync", "all", "--fsync 'all': write file or off"),
        ("interval", "0", "--interval '0': write seconds from 0.1 to 3600"),
        ("interval", "nan", "--interval 'nan': write seconds from 0.1 to 3600"),
        (
            "ports",
            "9-8",
            "--ports '9-8': write LO-HI, for instance 50000-50100 (ports from 1 to 65535)",
        ),
        ("ssh", "ssh 'a", "--ssh 'ssh 'a': a quote is not closed"),
        ("ssh", " ", "--ssh ' ': write a command"),
        ("manifest", "", "--manifest needs a file name"),
        ("retry-for", "8d", RETRY_FOR),
        ("retry-for", "1w", "--retry-for '1w': write a time such as 90s, 10m or 2h"),
        ("exclude", "a[", "--exclude 'a[': "),
        (
            "pace",
            "fast",
            "--pace 'fast': write 100Mbit (bits) or 80MB (bytes a second), auto or off",
        ),
        ("dscp", "af44", "--dscp 'af44': write a name (cs0 to cs7, af11 to af43, ef, va, le)"),
        ("lockstep", "32M", "--lockstep '32M': write SIZE:TIME, for instance 32M:250ms"),
        ("max-errors", "-1", "--max-errors '-1': write a number from 0 to 4294967295"),
    ];
    for (name, typed, expect) in cases {
        let mut options = Options::default();
        let got = knob(name).set(&mut options, OsStr::new(typed)).unwrap_err();
        assert!(got.starts_with(expect), "{got}");
        assert_eq!(options, Options::default(), "an error changes nothing");
    }
}

const RETRY_FOR: &str = "--retry-for '8d': write a time such as 90s, 10m or 2h (a week at \
                         most), or off";

#[test]
fn good_values_arrive() {
    let mut options = Options::default();
    let cases = [
        ("streams", "64"),
        ("request-size", "1M"),
        ("depth-source", "8"),
        ("window", "64K"),
        ("rate", "100Mbit"),
        ("congestion", "bbr"),
        ("ports", "50000:50100"),
        ("interval", "0.5"),
        ("ssh", "ssh -p 22"),
        ("retry-for", "2h"),
        ("pace", "90Mbit"),
        ("dscp", "ef"),
        ("lockstep", "32M:250ms"),
    ];
    for (name, typed) in cases {
        knob(name).set(&mut options, OsStr::new(typed)).unwrap();
    }
    let settings = &options.settings;
    assert_eq!((settings.streams, settings.request_bytes), (64, 1 << 20));
    assert_eq!((settings.depth_source, settings.window_bytes), (Some(8), Some(64 << 10)));
    assert_eq!(settings.rate, Some(Rate { bytes_per_second: 12.5e6 }));
    assert_eq!(settings.pace, Pace::Fixed(Rate { bytes_per_second: 11.25e6 }));
    assert_eq!(settings.dscp.map(|dscp| dscp.code()), Some(46));
    assert_eq!(settings.lockstep.map(|lockstep| lockstep.every_bytes), Some(32 << 20));
    assert_eq!(settings.congestion.as_deref(), Some("bbr"));
    assert_eq!(options.remote.ports, Some((50000, 50100)));
    assert_eq!(options.interval, Some(Nanos::from_millis(500)));
    assert_eq!(options.remote.retry_for.seconds(), 7200.0);
    assert_eq!(options.remote.ssh.unwrap(), ["ssh", "-p", "22"]);
}
