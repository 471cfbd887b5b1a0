//! Pages of reports in a real browser: what is drawn is what the tables say, nothing is loaded or
//! run, and they are readable on wide and narrow screens, in the dark and without script.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::support::browser::{Browser, Look, PHONE, WIDE};
use crate::support::wan::Wan;
use crate::support::{Scene, recorded, run};
use analysis::record::options::Options;
use analysis::record::sample::{Conditions, Moved, Record, Remote, SeriesPoint, Side};
use base::settings::Settings;
use datapump::results::Store;

/// Names that a stranger may give to files, and to hosts.
fn hostile() -> Vec<String> {
    let long: String = "n".repeat(4000);
    [
        "<script>document.title='run'</script>",
        "</style><img src=http://example.invalid/x onerror=alert(1)>",
        "\"onmouseover='alert(1)",
        "txt.\u{202e}exe\u{1b}[31m",
        "{{7*7}} ${x} %s &amp;",
        &long,
    ]
    .map(String::from)
    .into()
}

/// A run whose streams are those of a table of samples of a real connection.
fn record(table: &str, sources: Vec<String>) -> Record {
    let paths = recorded::paths(table);
    let last = |path: &base::job::StreamPath| path.samples.last().map_or(0, |s| s.bytes_acked);
    let bytes: u64 = paths.iter().map(last).sum();
    let side = || Side {
        cpu_user_s: 0.4,
        cpu_system_s: 0.9,
        bytes,
        requests: bytes >> 20,
        fill_s: 0.5,
        pass_s: 0.7,
        gate_s: 3.0,
        drain_s: 2.0,
        stages_s: [("digest", 0.3), ("codec", 0.0), ("seal", 0.4)]
            .map(|(n, s)| (n.into(), s))
            .into(),
        engine: "uring".into(),
        depth: 4,
        congestion: "cubic".into(),
        ..Side::default()
    };
    Record {
        command: "copy".into(),
        version: "0.2.0".into(),
        started_unix_s: 1.79e9,
        sources,
        target: "dtn2:/store/".into(),
        options: Options { window_bytes: Some(1 << 20), ..Options::of(&Settings::default()) },
        conditions: Conditions { carrier: "tcp".into(), ..Conditions::default() },
        moved: Moved {
            bytes,
            elapsed_s: 10.0,
            goodput_bytes_per_s: bytes as f64 / 10.0,
            ..Moved::default()
        },
        remote: Some(Remote { host: "dtn2".into(), ..Remote::default() }),
        source: side(),
        sink: Some(side()),
        paths,
        ..Record::default()
    }
}

/// A copy inside one process: no streams, only bytes over time.
fn local() -> Record {
    let series =
        (0..100).map(|i| SeriesPoint { at_s: f64::from(i) / 10.0, bytes: i as u64 * 9999 });
    Record {
        sink: None,
        remote: None,
        target: "/store/copy".into(),
        series: series.collect(),
        paths: Vec::new(),
        ..record("pauses", vec!["/data/big.tar".into()])
    }
}

fn page_of(scene: &Scene, name: &str, record: &Record) -> PathBuf {
    let store = scene.path(format!("{name}.db"));
    Store::open(&store).unwrap().insert(record).unwrap();
    let page = scene.path(format!("{name}.html"));
    scene.succeed(&format!("report 1 --results @/{name}.db --html @/{name}.html"));
    page
}

#[test]
fn pages_in_a_browser() {
    let scene = Scene::new();
    let mut browser = Browser::start();
    let one = vec!["/data/big.tar".to_string()];
    let pages = [
        ("lockstep", record("hpss", one.clone())),
        ("pauses", record("pauses", one.clone())),
        ("four-streams", record("receive-window-4", one.clone())),
        ("losses", record("path-loss", one.clone())),
        ("local", local()),
        ("hostile", Record { target: hostile().join("/"), ..record("pauses", hostile()) }),
    ];
    for (name, record) in pages {
        let page = page_of(&scene, name, &record);
        let size = fs::metadata(&page).unwrap().len();
        assert!(size <= 600_000, "{name}: {size} bytes");
        for look in LOOKS {
            looked_at(&mut browser, &page, name, look);
        }
    }
}

/// The experiment of 2003: one stream hands over 32 MiB at a time over 100 Mbit/s and 102 ms. The
/// page shows the pauses and episodes that `explain`
/// counts, as marks and in its tables.
#[test]
fn the_lockstep_experiment_shows_its_pauses_and_episodes() {
    let scene = Scene::new();
    let wan = Wan::up("--rate 100Mbit --rtt 102ms --queue 128K");
    let line = "copy --streams 1 --congestion cubic --window 1M --lockstep 32M:250ms null:100M \
                far:null:";
    let mut copy = wan.datapump(&scene, line);
    copy.env("DATAPUMP_RESULTS", scene.path("results.db")).env_remove("DATAPUMP_NO_RECORD");
    let ran = run::to_end(copy, b"");
    assert_eq!(ran.code, 0, "{ran}");
    let verdict = &scene.succeed("explain --json --results @/results.db").events()[0];
    let stream = &verdict["streams"][0];
    let count = |name: &str| stream[name].as_array().unwrap().len() as u64;
    let (pauses, episodes) = (count("pause_list"), count("episodes"));
    assert!(pauses >= 2 && episodes >= 1, "{verdict}");
    scene.succeed("report --results @/results.db --html @/page.html");
    let page = scene.path("page.html");
    let mut browser = Browser::start();
    for look in LOOKS {
        looked_at(&mut browser, &page, "lockstep-real", look);
    }
    let mut tab = browser.open_file(&page, WIDE);
    let marked = tab.value(
        "[...document.querySelectorAll('#throughput [data-marks]')].map(m => +m.dataset.marks)",
    );
    let counts = [marked[0].as_u64(), marked[1].as_u64()];
    assert_eq!(counts, [Some(pauses), Some(episodes)], "{marked}");
    let captions = tab.value(
        "[...document.querySelectorAll('#throughput caption')].map(c => c.textContent).join()",
    );
    for text in [format!("Pause: {pauses}"), format!("Recovery episode: {episodes}")] {
        assert!(captions.as_str().unwrap().contains(&text), "{captions}");
    }
}

const LOOKS: [Look; 5] = [
    WIDE,
    Look { is_dark: true, ..WIDE },
    PHONE,
    Look { has_script: false, is_dark: true, ..PHONE },
    Look { is_printed: true, width: 800, ..WIDE },
];

fn looked_at(browser: &mut Browser, page: &Path, name: &str, look: Look) {
    let at = format!("{name} {look:?}");
    let mut tab = browser.open_file(page, look);
    let title = tab.value("document.title");
    assert_ne!(title, "run", "{at}: a name was run as a script");
    let seen = tab.value(SEEN);
    let strings = |key: &str| -> Vec<String> {
        let found = seen[key].as_array().unwrap_or_else(|| panic!("{at}: {key}: {seen}"));
        found.iter().map(Value::to_string).collect()
    };
    for key in ["counts", "unnamed", "faint", "outside"] {
        assert_eq!(strings(key), Vec::<String>::new(), "{at}: {key}");
    }
    assert!(seen["figures"].as_u64() >= Some(3), "{at}: {seen}");
    assert_eq!(seen["scripts"], 0, "{at}");
    let is_dark = look.is_dark && !look.is_printed;
    assert_eq!(seen["dark"], is_dark, "{at}");
    assert_eq!(tab.said, Vec::<String>::new(), "{at}");
    assert_eq!(tab.requests, [format!("file://{}", page.display())], "{at}");
    // More rules than ours, where a file of axe-core is named.
    if let Some(axe) = std::env::var_os("DATAPUMP_AXE").filter(|_| look.has_script) {
        tab.value(&format!("{}; 0", fs::read_to_string(axe).unwrap()));
        let found = tab.value(AXE);
        assert_eq!(found, serde_json::json!([]), "{at}: axe-core");
    }
    if let Some(folder) = std::env::var_os("DATAPUMP_PICTURES") {
        let scheme = if look.is_dark { "dark" } else { "light" };
        let file = Path::new(&folder).join(format!("{name}-{}-{scheme}.png", look.width));
        fs::write(file, tab.picture(6000.0)).unwrap();
    }
}

/// What is wrong with a page, by kind, and what it is like.
///
/// - `counts`: series whose path has another number of points than it says, or than its table.
/// - `unnamed`: charts without a title, a description, a label of each axis or a table; boxes that
///   scroll and cannot be reached or have no name; a page without a language.
/// - `faint`: text with less contrast to what is behind it than WCAG 2 AA asks for.
/// - `outside`: elements that reach out of the page, or texts of a chart that reach out of it or
///   lie on each other.
const AXE: &str = "axe.run().then(found => found.violations.map(rule => \
                   [rule.id, rule.impact, rule.nodes.map(node => node.html.slice(0, 200))]))";
const SEEN: &str = include_str!("support/seen.js");
