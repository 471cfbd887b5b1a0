//! `--metrics` with the programs that read it: promtool, node_exporter's textfile collector, and a
//! Prometheus that scrapes, evaluates the rules and answers every query of the dashboard.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::support::processes::send;
use crate::support::run::{self, Ran, Running};
use crate::support::{Scene, need, until, until_some};
use rustix::process::Signal;

/// The state after a copy that worked, and after one that failed, is good for promtool: names,
/// units, help, types. The number of series does not depend on the number of files.
#[test]
fn the_file_of_a_copy() {
    let scene = Scene::new();
    fs::create_dir(scene.path("tree")).unwrap();
    for number in 0..50 {
        fs::write(scene.path(format!("tree/<script>{number}")), vec![7; 4096]).unwrap();
    }
    let copy = "copy -r --metrics @/backup.prom @/tree far:@/copied";
    let progress = scene.succeed(copy);
    let text = metrics_of(&scene, "backup.prom");
    let sample = |name: &str| sample(&text, name, "");
    assert_eq!(sample("datapump_last_run_exit_code"), Some(0.0), "{progress}\n{text}");
    assert_eq!(sample("datapump_last_run_files"), Some(50.0), "{text}");
    assert_eq!(sample("datapump_last_run_bytes"), Some(50.0 * 4096.0), "{text}");
    assert_eq!(sample("datapump_run_in_progress"), Some(0.0), "{text}");
    assert!(sample("datapump_last_run_cpu_seconds_per_byte") > Some(0.0), "{text}");
    assert!(text.contains("name=\"backup\",command=\"copy\"") && text.contains("target=\"far\""));
    assert!(!text.contains("script") && !text.contains("copied"), "no file is named:\n{text}");
    let success = sample("datapump_last_success_timestamp_seconds").unwrap();

    let failed = scene.run("copy --metrics @/backup.prom @/nothing far:@/copied");
    assert_ne!(failed.code, 0, "{failed}");
    let text = metrics_of(&scene, "backup.prom");
    let of = |name: &str| self::sample(&text, name, "");
    assert_eq!(of("datapump_last_run_exit_code"), Some(f64::from(failed.code)), "{text}");
    assert_eq!(of("datapump_last_success_timestamp_seconds"), Some(success), "{text}");
    assert_eq!(of("datapump_last_run_bytes"), None, "nothing is known of it:\n{text}");
}

/// A spread, at its end: what it moved, its shards and its hosts.
#[test]
fn the_file_of_a_spread() {
    let scene = Scene::new();
    fs::create_dir(scene.path("tree")).unwrap();
    for number in 0..50 {
        fs::write(scene.path(format!("tree/{number}")), vec![7; 4096]).unwrap();
    }
    // A place that cannot be used ends it before anything is made.
    let ran = scene.run("spread --metrics @/no/a.prom --job @/job @/tree/ @/copied");
    assert_eq!(ran.code, 1, "{ran}");
    assert!(ran.stderr.contains("cannot write the metrics"), "{ran}");
    assert!(!scene.path("job").exists() && !scene.path("copied").exists(), "{ran}");
    let spread = "spread --metrics @/nightly.prom --on local:2 --job @/job @/tree/ @/copied";
    scene.succeed(spread);
    let text = metrics_of(&scene, "nightly.prom");
    let of = |name: &str, label: &str| sample(&text, name, label);
    assert_eq!(of("datapump_last_run_exit_code", ""), Some(0.0), "{text}");
    assert_eq!(of("datapump_last_run_files", ""), Some(50.0), "{text}");
    assert_eq!(of("datapump_spread_planned_bytes", ""), Some(50.0 * 4096.0), "{text}");
    assert!(of("datapump_spread_shards", "done") > Some(0.0), "{text}");
    assert_eq!(of("datapump_spread_shards", "open"), Some(0.0), "{text}");
    assert_eq!(of("datapump_spread_workers", "ended"), Some(2.0), "{text}");
    assert!(text.contains("command=\"spread\",source=\"local:2\""), "{text}");
}

/// What held a copy back is told by class.
#[test]
fn the_file_says_what_held_it_back() {
    let scene = Scene::new();
    let wan = crate::support::wan::Wan::up("--rate 100Mbit --rtt 40ms --queue 256K");
    let line = format!(
        "copy --streams 1 --window 64K --metrics {} null:8M far:null:",
        scene.path("wan.prom").display()
    );
    let ran = run::to_end(wan.datapump(&scene, &line), b"");
    assert_eq!(ran.code, 0, "{ran}");
    let text = metrics_of(&scene, "wan.prom");
    let is_held = |class: &str| sample(&text, "datapump_last_run_bottleneck", class);
    assert_eq!(is_held("receive_window"), Some(1.0), "{text}");
    assert_eq!(is_held("path_full"), Some(0.0), "{text}");
    assert!(sample(&text, "datapump_last_run_bottleneck_ratio", "receive_window") > Some(0.5));
    let trip_s = sample(&text, "datapump_last_run_round_trip_min_seconds", "").unwrap();
    assert!((0.0395..1.0).contains(&trip_s), "{trip_s}");
}

/// A place that cannot be used ends the copy before it begins.
#[test]
fn a_place_that_cannot_be_used() {
    let scene = Scene::new();
    fs::write(scene.path("file"), "x").unwrap();
    let cases = [
        ("--metrics @/no/a.prom", 1, "cannot write the metrics"),
        ("--metrics dtn2:9911", 2, "a name of a host is not looked up"),
        ("--metrics 192.0.2.1:9911", 1, "cannot listen at 192.0.2.1:9911"),
        ("--metrics @/a.prom --dry-run", 2, "a dry run moves nothing"),
    ];
    for (words, code, expect) in cases {
        let line = format!("copy {words} @/file @/new");
        let ran = scene.run(&line);
        assert_eq!(ran.code, code, "{line}\n{ran}");
        assert!(ran.stderr.contains(expect), "{line}\n{ran}");
        assert!(!scene.path("new").exists(), "{line}");
    }
}

/// The rules and their tests, by promtool.
#[test]
fn the_rules_hold_what_they_say() {
    for words in
        [["check", "rules", "datapump.rules.yml"], ["test", "rules", "datapump.rules.test.yml"]]
    {
        let mut promtool = Command::new(need("promtool", "prometheus"));
        promtool.args(words).current_dir(contrib("prometheus"));
        let ran = run::to_end(promtool, b"");
        assert_eq!(ran.code, 0, "{words:?}\n{ran}");
    }
}

/// A copy that is under way, one that has ended and one that has failed, as a Prometheus sees them:
/// all targets are up, each query of the dashboard has data, and the failed run raises its alert.
#[test]
fn a_prometheus_sees_copies_and_answers_the_dashboard() {
    let scene = Scene::new();
    fs::create_dir(scene.path("collected")).unwrap();
    fs::write(scene.path("file"), vec![1; 1 << 20]).unwrap();
    scene.succeed("copy --metrics @/collected/good.prom @/file far:@/copied");
    let failed = scene.run("copy --metrics @/collected/bad.prom @/nothing far:@/copied");
    assert_ne!(failed.code, 0, "{failed}");
    for name in ["sweep", "other"] {
        let text = CELLS.replace("NAME", name);
        fs::write(scene.path(format!("collected/{name}.prom")), text).unwrap();
    }
    let copy = Server::start(
        &scene,
        "live",
        scene.command(&scene.words("copy --rate 4MB --metrics 0 null:1G far:null:")),
        "http://",
    );
    until("the copy is under way", || {
        let page = get(copy.address, "/metrics", "");
        sample(&page, "datapump_run_in_progress", "") == Some(1.0)
    });
    for accept in ["text/plain", "application/openmetrics-text"] {
        let page = get(copy.address, "/metrics", accept);
        assert!(page.starts_with("HTTP/1.1 200 OK\r\n") && page.contains(accept), "{page}");
        let body = page.split_once("\r\n\r\n").unwrap().1;
        assert_eq!(body.ends_with("# EOF\n"), accept != "text/plain", "{body}");
        assert_eq!(sample(body, "datapump_run_in_progress", ""), Some(1.0), "{body}");
        if accept == "text/plain" {
            assert_good(body);
        }
    }
    assert!(get(copy.address, "/", "").contains("/metrics"));
    assert!(get(copy.address, "/etc/passwd", "").starts_with("HTTP/1.1 404 "));
    let mut exporter = Command::new(need("prometheus-node-exporter", "prometheus-node-exporter"));
    exporter.args(["--collector.disable-defaults", "--collector.textfile"]);
    exporter.arg(format!("--collector.textfile.directory={}", scene.path("collected").display()));
    exporter.arg("--web.listen-address=127.0.0.1:0");
    let mut exporter = Server::start(&scene, "exporter", exporter, "address=");
    let mut prometheus = prometheus(&scene, [copy.address, exporter.address]);
    let health = until_some("both targets are scraped", || {
        let answer = prometheus.api("targets", "");
        let targets = answer["data"]["activeTargets"].as_array()?.clone();
        let states: Vec<String> = targets.iter().map(|t| t["health"].to_string()).collect();
        let are_known = states.iter().all(|state| state != "\"unknown\"");
        (are_known && states.len() == 2).then_some(states)
    });
    assert_eq!(health, ["\"up\"", "\"up\""]);
    // The copies of this test send too few segments for a share of them.
    for query in dashboard().into_iter().filter(|it| !it.contains("retransmitted_ratio")) {
        until_some(&format!("data for {query}"), || {
            let answer = prometheus.api("query", &format!("query={}", spelled(&query)));
            assert_eq!(answer["status"], "success", "{query}: {answer}");
            (!answer["data"]["result"].as_array()?.is_empty()).then_some(())
        });
    }
    let fired = until_some("the failed run raises its alert", || {
        let answer = prometheus.api("alerts", "");
        let alerts = answer["data"]["alerts"].as_array()?.clone();
        alerts.into_iter().find(|alert| alert["state"] == "firing")
    });
    assert_eq!(fired["labels"]["alertname"], "DatapumpRunFailed", "{fired}");
    assert_eq!(fired["labels"]["name"], "bad", "{fired}");
    assert_no_error(&scene);
    // The copy ends when it is told to, whoever watches.
    send(copy.running.pid(), Signal::INT);
    prometheus.running.kill();
    exporter.running.kill();
    let ended = copy.running.end();
    assert_eq!(ended.code, 130, "{ended}");
}

/// Of files of several jobs in one folder: a series in two of them is an error at every scrape.
fn assert_no_error(scene: &Scene) {
    let log = fs::read_to_string(scene.path("exporter.err")).unwrap();
    let errors = log.lines().filter(|line| line.to_lowercase().contains("level=error"));
    assert_eq!(errors.collect::<Vec<_>>(), [""; 0], "{log}");
}

/// What a sweep adds to the state of its routes.
const CELLS: &str = "# HELP datapump_campaign_cells Cells of the campaign by state: measured or \
                     left.\n# TYPE datapump_campaign_cells gauge\n\
                     datapump_campaign_cells{name=\"NAME\",state=\"measured\"} 3\n";

/// A program that says on standard error where it listens.
struct Server {
    running: Running,
    address: SocketAddr,
}

impl Server {
    /// `mark` stands before the address.
    fn start(scene: &Scene, name: &str, command: Command, mark: &str) -> Server {
        let said = scene.path(format!("{name}.err"));
        let mut shell = Command::new("sh");
        shell.args(["-c", "exec \"$@\" 2>\"$0\""]).arg(&said);
        shell.arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            shell.env(name, value.unwrap_or_default());
        }
        let running = run::start(shell);
        let address = until_some(&format!("{name} says where it listens"), || {
            let text = fs::read_to_string(&said).unwrap_or_default();
            let addresses = text.split(mark).skip(1);
            let number = |part: &str| -> Option<SocketAddr> {
                let end = part.find(|c: char| c != '.' && c != ':' && !c.is_ascii_digit());
                part[..end?].parse().ok().filter(|address: &SocketAddr| address.port() != 0)
            };
            addresses.filter_map(number).next()
        });
        Server { running, address }
    }

    fn api(&self, what: &str, query: &str) -> Value {
        let page = get(self.address, &format!("/api/v1/{what}?{query}"), "application/json");
        let body = page.split_once("\r\n\r\n").map_or("", |(_, body)| body);
        // While it starts it has no answer.
        match page.starts_with("HTTP/1.1 503 ") {
            true => Value::Null,
            false => serde_json::from_str(body).unwrap_or_else(|why| panic!("{why}: {page}")),
        }
    }
}

fn prometheus(scene: &Scene, targets: [SocketAddr; 2]) -> Server {
    let rules = contrib("prometheus").join("datapump.rules.yml");
    let config = format!(
        "global: {{ scrape_interval: 1s, evaluation_interval: 1s }}\n\
         rule_files: ['{}']\n\
         scrape_configs:\n  - job_name: datapump\n    \
         static_configs: [{{ targets: ['{}', '{}'] }}]\n",
        rules.display(),
        targets[0],
        targets[1]
    );
    let file = scene.path("prometheus.yml");
    fs::write(&file, config).unwrap();
    let mut command = Command::new(need("prometheus", "prometheus"));
    command.arg(format!("--config.file={}", file.display()));
    command.arg(format!("--storage.tsdb.path={}", scene.path("series").display()));
    command.arg("--web.listen-address=127.0.0.1:0");
    Server::start(scene, "prometheus", command, "address=")
}

/// The queries of the dashboard, with its variables as Grafana fills them.
fn dashboard() -> Vec<String> {
    let text = fs::read_to_string(contrib("grafana").join("datapump.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().unwrap());
    let filled = |target: &Value| {
        let query = target["expr"].as_str().unwrap();
        query.replace("$name", ".*").replace("$__rate_interval", "5s")
    };
    let queries: Vec<String> = targets.map(filled).collect();
    assert!(queries.len() >= 12 && queries.iter().all(|query| !query.contains('$')), "{queries:?}");
    queries
}

/// In a query of an address.
fn spelled(text: &str) -> String {
    let byte = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    };
    text.bytes().map(byte).collect()
}

/// A whole answer, with its head.
fn get(address: SocketAddr, path: &str, accept: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nAccept: {accept}\r\n").unwrap();
    stream.write_all(b"Connection: close\r\n\r\n").unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).unwrap();
    page
}

fn contrib(folder: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("contrib").join(folder)
}

/// The metrics in a file, which promtool finds nothing wrong with.
fn metrics_of(scene: &Scene, name: &str) -> String {
    let text = fs::read_to_string(scene.path(name)).unwrap();
    assert_good(&text);
    text
}

fn assert_good(text: &str) {
    let mut promtool = Command::new(need("promtool", "prometheus"));
    promtool.args(["check", "metrics"]);
    let Ran { code, stdout, stderr } = run::to_end(promtool, text.as_bytes());
    assert!(code == 0 && stdout.is_empty() && stderr.is_empty(), "{code} {stderr}\n{text}");
}

/// The first sample of a metric, of a class if there is one.
fn sample(text: &str, name: &str, label: &str) -> Option<f64> {
    let begin = format!("{name}{{");
    let is_of = |line: &&str| {
        line.starts_with(&begin) && (label.is_empty() || line.contains(&format!("=\"{label}\"")))
    };
    text.lines().find(is_of)?.rsplit(' ').next()?.parse().ok()
}
