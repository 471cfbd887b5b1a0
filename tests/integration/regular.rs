//! Campaigns that are measured regularly: one after the other, with an alarm, thinned, as units of
//! systemd, and as a page over time.

use std::fs;
use std::process::Command;

use crate::support::browser::{Browser, WIDE};
use crate::support::run;
use crate::support::wan::Wan;
use crate::support::{Scene, need, processes, until};
use analysis::record::options::Options;
use analysis::record::sample::{
    Cell, Moved, PlaceInExperiment, Record, Remote, Scenario, SeriesPoint,
};
use datapump::results::{Experiment, Filter, Store};
use rustix::process::Signal;

/// One campaign of three copies with default options, which began so many seconds after 1970.
fn campaign(store: &mut Store, started_unix_s: f64, bytes_per_s: f64) {
    campaign_of(store, started_unix_s, bytes_per_s, &["far"]);
}

pub(crate) fn campaign_of(
    store: &mut Store,
    started_unix_s: f64,
    bytes_per_s: f64,
    hosts: &[&str],
) {
    let name = format!("sweep-{started_unix_s:.0}");
    let experiment = Experiment {
        name: name.clone(),
        command: "sweep".into(),
        started_unix_s,
        more: [("regular".to_string(), true.into())].into(),
        ..Experiment::default()
    };
    store.begin_experiment(&experiment).unwrap();
    for (pass, host) in (0..3).flat_map(|pass| hosts.iter().map(move |host| (pass, *host))) {
        let record = Record {
            command: "sweep".into(),
            started_unix_s,
            place: Some(PlaceInExperiment {
                experiment: name.clone(),
                scenario: Scenario::Net,
                seed: 0,
                order_index: pass,
                repeat: pass,
                block: 0,
            }),
            options: Options { streams: 4, compress: "off".into(), ..Options::default() },
            moved: Moved { bytes: bytes_per_s as u64 + u64::from(pass), ..Moved::default() },
            remote: Some(Remote { host: host.into(), ..Remote::default() }),
            cell: Some(Cell {
                choice: "auto".into(),
                extent_s: Some(1.0),
                moving_s: Some(1.0),
                ..Cell::default()
            }),
            series: vec![SeriesPoint { at_s: 1.0, bytes: 1 }],
            ..Record::default()
        };
        store.insert(&record).unwrap();
    }
}

fn names(scene: &Scene) -> Vec<String> {
    let store = Store::open_existing(&scene.path("store")).unwrap();
    store.experiments().unwrap().into_iter().map(|experiment| experiment.name).collect()
}

/// Seconds since 1970.
fn now() -> f64 {
    std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs_f64()
}

/// Two real campaigns, one after the other, until SIGINT; then the program ends with the code of an
/// interrupted one.
#[test]
fn campaigns_follow_each_other_until_they_are_stopped() {
    let wan = Wan::up("--rate 50Mbit --rtt 10ms --queue 2bdp");
    let scene = Scene::new();
    fs::write(scene.path("hosts"), "far\n").unwrap();
    let line = format!("sweep --results @/store {GRID} --every 1s --metrics @/sweep.prom");
    let running = run::start(wan.datapump(&scene, &line));
    until("two campaigns are begun", || scene.path("store").exists() && names(&scene).len() >= 2);
    processes::send(running.pid(), Signal::INT);
    let ran = running.end();
    assert_eq!(ran.code, 130, "{ran}");
    let store = Store::open_existing(&scene.path("store")).unwrap();
    let experiments = store.experiments().unwrap();
    assert!(experiments.iter().all(|one| one.more["regular"] == true), "{experiments:?}");
    let filter = Filter { experiment: Some(experiments[0].name.clone()), ..Filter::default() };
    assert_eq!(store.records(&filter).unwrap().len(), 2, "the first is whole: {ran}");
    let metrics = fs::read_to_string(scene.path("sweep.prom")).unwrap();
    assert!(metrics.contains("command=\"sweep\",") && metrics.contains("target=\"far\""));
    let left = "datapump_campaign_cells{name=\"sweep\",state=\"left\"}";
    assert!(metrics.contains(left), "{metrics}");
    assert!(metrics.contains("datapump_last_run_rate_bytes_per_second{"), "{metrics}");
}

/// A port for metrics is served by the process that waits for the next campaign: also when none is
/// under way.
#[test]
fn a_port_is_served_between_two_campaigns() {
    let wan = Wan::up("--rate 50Mbit --rtt 10ms --queue 2bdp");
    let scene = Scene::new();
    fs::write(scene.path("hosts"), "far\n").unwrap();
    let line = format!("sweep --results @/store {GRID} --every 8h --metrics 9911");
    let running = run::start(wan.datapump(&scene, &line));
    let page = || {
        let mut curl = Command::new(need("curl", "curl"));
        curl.args(["-s", "http://127.0.0.1:9911/metrics"]);
        run::to_end(wan.near(curl), b"").stdout_text()
    };
    until("the campaign is measured", || {
        page().contains("datapump_campaign_cells{name=\"sweep\",state=\"left\"} 0\n")
    });
    let children = format!("/proc/{0}/task/{0}/children", running.pid());
    until("its process is gone", || fs::read_to_string(&children).unwrap().trim().is_empty());
    let text = page();
    assert!(text.contains("name=\"sweep\",command=\"sweep\","), "{text}");
    assert!(text.contains("datapump_last_run_exit_code{") && text.contains("target=\"far\""));
    assert!(
        text.contains("datapump_campaign_cells{name=\"sweep\",state=\"measured\"} 2\n"),
        "{text}"
    );
    processes::send(running.pid(), Signal::INT);
    let ran = running.end();
    assert_eq!(ran.code, 130, "{ran}");
    assert_eq!(ran.stderr.matches("metrics are at").count(), 1, "{ran}");
}

/// Two hosts became slow. The webhook is behind TLS with a certificate of an authority of this
/// test, and refuses the first alarm: the second one comes all the same, and old campaigns are
/// removed.
#[test]
fn alarms_reach_a_webhook_over_https_and_one_that_fails_holds_none_back() {
    let wan = Wan::up("--rate 20Mbit --rtt 10ms --queue 2bdp");
    let scene = Scene::new();
    let hosts = ["far", "root@far"];
    fs::write(scene.path("hosts"), hosts.join("\n")).unwrap();
    let mut store = Store::open(&scene.path("store")).unwrap();
    let newest = now() - 3600.0;
    for at in 0..21 {
        let rate = if at < 18 { 1e9 } else { 2.4e6 } + f64::from(at);
        campaign_of(&mut store, newest - f64::from(20 - at) * 21_600.0, rate, &hosts);
    }
    drop(store);
    certificates(&scene);
    let mut python = Command::new(need("python3", "python3"));
    python.args(["-c", WEBHOOK]).current_dir(scene.path(""));
    let mut server = run::start(wan.near(python));
    assert_eq!(server.wait_for_line(""), "listening");
    let line =
        format!("sweep --results @/store {GRID} --keep 4d --alarm https://localhost:9443/hook");
    let mut command = wan.datapump(&scene, &line);
    command.env("SSL_CERT_FILE", scene.path("ca.pem")).env_remove("SSL_CERT_DIR");
    let ran = run::to_end(command, b"");
    assert_eq!(ran.code, 0, "{ran}");
    let refused = "did not reach https://localhost:9443/hook: it answered with the status 500";
    assert_eq!(ran.stderr.matches(refused).count(), 1, "{ran}");
    let told = fs::read_to_string(scene.path("told")).unwrap();
    let told: Vec<serde_json::Value> =
        told.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let mut of: Vec<&str> = told.iter().filter_map(|alarm| alarm["host"].as_str()).collect();
    of.sort_unstable();
    assert_eq!(of, hosts, "{told:?}");
    let left = names(&scene);
    assert!(left.len() <= 18, "campaigns of five days ago are removed: {left:?}");
    server.kill();
}

/// An authority, and a certificate of it for `localhost`.
fn certificates(scene: &Scene) {
    let openssl = need("openssl", "openssl");
    fs::write(scene.path("names"), "subjectAltName=DNS:localhost\n").unwrap();
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
    for line in [
        format!("req -x509 {key} -keyout ca.key -out ca.pem -days 9 -subj /CN=authority"),
        format!("req {key} -keyout server.key -out server.csr -subj /CN=localhost"),
        "x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -out server.pem -days 9 \
         -extfile names"
            .to_string(),
    ] {
        let mut made = Command::new(&openssl);
        made.args(line.split(' ')).current_dir(scene.path(""));
        let ran = run::to_end(made, b"");
        assert_eq!(ran.code, 0, "{line}\n{ran}");
    }
}

/// Keeps what is posted, a line each, and refuses the first.
const WEBHOOK: &str = "
import http.server, ssl
told = []
class Hook(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        told.append(self.rfile.read(int(self.headers['Content-Length'])).decode())
        open('told', 'w').write('\\n'.join(told))
        self.send_response(500 if len(told) == 1 else 204)
        self.end_headers()
    def log_message(self, *args):
        pass
server = http.server.ThreadingHTTPServer(('127.0.0.1', 9443), Hook)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain('server.pem', 'server.key')
server.socket = context.wrap_socket(server.socket, server_side=True)
print('listening', flush=True)
server.serve_forever()
";

/// Eighteen fast campaigns, three slow ones, and then a real one over a slow path: it is the
/// fourth, so its alarm comes, with the evidence; the next one says nothing. Old campaigns
/// are thinned.
#[test]
fn an_alarm_comes_once_and_old_campaigns_are_thinned() {
    let wan = Wan::up("--rate 20Mbit --rtt 10ms --queue 2bdp");
    let scene = Scene::new();
    fs::write(scene.path("hosts"), "far\n").unwrap();
    let mut store = Store::open(&scene.path("store")).unwrap();
    let newest = now() - 3600.0;
    for at in 0..21 {
        let rate = if at < 18 { 1e9 } else { 2.4e6 };
        campaign(&mut store, newest - f64::from(20 - at) * 21_600.0, rate + f64::from(at));
    }
    drop(store);
    let alarm = "cat >> \"$TO\"; echo \"$DATAPUMP_ALARM\" >> \"$TO\"";
    let sweep = || {
        let line = format!("sweep --results @/store {GRID} --thin 2d --keep 4d");
        let mut words = scene.words(&line);
        words.extend(["--alarm".into(), alarm.into()]);
        words.extend(["--ssh".into(), wan.ssh_command().into()]);
        let mut command = wan.near(scene.command(&words));
        command.env("TO", scene.path("alarms"));
        let ran = run::to_end(command, b"");
        assert_eq!(ran.code, 0, "{ran}");
        ran
    };
    let ran = sweep();
    assert!(ran.stderr.contains("the rate to far changed: it fell to 0.0"), "{ran}");
    let told = fs::read_to_string(scene.path("alarms")).unwrap();
    let evidence: serde_json::Value = serde_json::from_str(told.lines().next().unwrap()).unwrap();
    assert_eq!(evidence["host"], "far", "{told}");
    assert!(evidence["samples"].as_array().unwrap().len() >= 12, "{told}");
    assert!(told.lines().nth(1).unwrap().starts_with("the rate to far changed"), "{told}");
    // Of 21 campaigns in five days: none that is older than four days; one a day of those that are
    // older than two.
    let left = names(&scene);
    assert!((10..=13).contains(&left.len()), "{left:?}");
    let store = Store::open_existing(&scene.path("store")).unwrap();
    let series = |name: &String| {
        let filter = Filter { experiment: Some(name.clone()), ..Filter::default() };
        store.records(&filter).unwrap().iter().map(|record| record.series.len()).sum::<usize>()
    };
    assert_eq!(series(&left[0]), 0, "the oldest is thin");
    assert!(series(&left[left.len() - 2]) > 0, "a new one is not");
    drop(store);
    let again = sweep();
    assert!(!again.stderr.contains("changed"), "{again}");
    assert_eq!(fs::read_to_string(scene.path("alarms")).unwrap(), told, "it is told once");
}

/// The units are good for systemd, and run this campaign.
#[test]
fn units_are_verified_by_systemd() {
    let analyze = need("systemd-analyze", "systemd");
    let scene = Scene::new();
    fs::write(scene.path("my hosts 100%"), "far\n").unwrap();
    let mut words = scene.words("sweep install --every 6h --keep 400d --units @/units --hosts");
    words.push(scene.path("my hosts 100%").into());
    words.extend(["--alarm".into(), "echo \"$DATAPUMP_ALARM\" \\100%".into()]);
    let ran = run::to_end(scene.command(&words), b"");
    assert_eq!(ran.code, 0, "{ran}");
    assert!(ran.stderr.contains("enable --now datapump-sweep-my-hosts-100-.timer"), "{ran}");
    let said = ran.stdout_text();
    let units: Vec<&str> = said.lines().collect();
    assert_eq!(units.len(), 2, "{ran}");
    let mut verify = Command::new(analyze);
    verify.arg("verify").arg("--man=no").args(&units);
    let verified = run::to_end(verify, b"");
    let about = |line: &&str| line.contains("datapump");
    let complaints: Vec<&str> = verified.stderr.lines().filter(about).collect();
    assert_eq!((verified.code, complaints), (0, Vec::new()), "{verified}");
    let service = fs::read_to_string(units[0]).unwrap();
    let line = service.lines().find(|line| line.starts_with("ExecStart=")).unwrap();
    assert!(!line.contains("install") && !line.contains("--every"), "{line}");
    assert!(line.contains("100%%") && line.contains("$$DATAPUMP_ALARM"), "{line}");
    // What is there is not replaced.
    let ran = run::to_end(scene.command(&words), b"");
    assert!(ran.code == 1 && ran.stderr.contains("exists: remove it"), "{ran}");
}

/// What contradicts itself is refused before anything is measured.
#[test]
fn regular_campaigns_that_make_no_sense() {
    let scene = Scene::new();
    fs::write(scene.path("hosts"), "far\n").unwrap();
    let cases = [
        ("install --hosts @/hosts", "add how often"),
        ("install --hosts @/hosts --every 6h --dry-run", "leave --dry-run out"),
        ("install --every 6h", "a campaign needs hosts"),
        ("--hosts @/hosts --units @/units", "leave it out"),
        ("install --hosts @/hosts --every 6h --metrics 9911", "name a file"),
        ("--hosts @/hosts --thin 9d --keep 2d", "--thin is an age before --keep"),
        ("--hosts @/hosts --every 6", "write a time such as 30m"),
        ("--hosts @/hosts --alarm https://", "write a command"),
        ("--resume --every 6h", "a resumed campaign keeps its original options"),
    ];
    for (words, expect) in cases {
        let ran = scene.run(&format!("sweep --results @/store {words}"));
        assert_eq!(ran.code, 2, "{words}\n{ran}");
        assert!(ran.stderr.contains(expect), "{words}\n{ran}");
    }
    assert!(!scene.path("store").exists() && !scene.path("units").exists());
}

/// Fourteen days with a step on the ninth, as a page in a browser.
#[test]
fn a_page_over_time_shows_the_step() {
    let scene = Scene::new();
    let mut store = Store::open(&scene.path("store")).unwrap();
    let newest = now() - 3600.0;
    for at in 0..56 {
        let rate = if at < 32 { 11.9e6 } else { 8.3e6 } + f64::from(at % 7) * 5e4;
        campaign(&mut store, newest - f64::from(55 - at) * 21_600.0, rate);
    }
    drop(store);
    let ran = scene.succeed("report --since 30d --results @/store --html @/routes.html");
    assert!(ran.stdout_text().starts_with("Routes over time:"), "{ran}");
    let mut browser = Browser::start();
    let mut tab = browser.open_file(&scene.path("routes.html"), WIDE);
    let lead = tab.value("document.querySelector('.lead').textContent");
    assert_eq!(lead, "The rate of 1 of 1 route changed.");
    let marks = tab.value("+document.querySelector('#trend-0 [data-marks]').dataset.marks");
    assert_eq!(marks, 1);
    let points = tab.value("+document.querySelector('#trend-0 [data-points]').dataset.points");
    assert_eq!(points, 56);
    assert_eq!(tab.said, Vec::<String>::new());
    let week = scene.succeed("report --since 7d far --results @/store --html @/week.html");
    assert_eq!(week.code, 0);
    let page = fs::read_to_string(scene.path("week.html")).unwrap();
    assert!(page.contains("No route has changed its rate."), "the step is older");
    browser.looks_at(&scene.path("routes.html"), "routes");
}

/// One pass of two cells of half a second.
const GRID: &str = "--hosts @/hosts --windows auto --streams 2 --time 0.5 --repeat 1";
