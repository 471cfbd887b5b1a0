//! `--live`: the page of a run while it runs, in a real browser and for others who ask its server.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::thread;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::browser::{Browser, Tab, WIDE};
use crate::support::data::write_file;
use crate::support::run::{self, Running};
use crate::support::wan::Wan;
use crate::support::{Scene, need, processes, until, until_some};

/// The page of a run, with what is in its address.
struct Page {
    running: Running,
    address: String,
    server: SocketAddr,
    /// `/TOKEN/`.
    path: String,
}

impl Page {
    fn of(command: Command) -> Page {
        let mut running = run::start(command);
        let said = running.wait_for_line("\"address\":\"");
        let address = said.split('"').next().unwrap().to_string();
        let (server, path) = address.strip_prefix("http://").unwrap().split_once('/').unwrap();
        let (server, path) = (server.parse().unwrap(), format!("/{path}"));
        Page { running, address, server, path }
    }

    /// A copy that is recorded.
    fn of_copy(scene: &Scene, line: &str) -> Page {
        let mut copy = scene.command(&scene.words(&format!("copy --json --live {line}")));
        copy.env("DATAPUMP_RESULTS", scene.path("results.db")).env_remove("DATAPUMP_NO_RECORD");
        Page::of(copy)
    }

    fn get(&self, path: &str, head: &str) -> String {
        ask(self.server, &format!("GET {path} HTTP/1.1\r\n{head}\r\n"))
    }

    fn own_host(&self) -> String {
        format!("Host: {}\r\n", self.server)
    }

    /// Who listens to the events, from a moment at which some have come.
    fn viewer(&self) -> BufReader<TcpStream> {
        self.try_viewer().expect("a page comes")
    }

    /// An error where the program has ended before.
    fn try_viewer(&self) -> io::Result<BufReader<TcpStream>> {
        let mut stream = TcpStream::connect(self.server)?;
        let (path, host) = (&self.path, self.own_host());
        write!(stream, "GET {path}events HTTP/1.1\r\n{host}\r\n")?;
        let mut viewer = BufReader::new(stream);
        let mut line = String::new();
        while line != "event: page\n" {
            line.clear();
            if viewer.read_line(&mut line)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(viewer)
    }
}

fn ask(server: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(server).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// What an event stream has from here to its end, by event.
fn events(mut viewer: BufReader<TcpStream>) -> Vec<String> {
    let mut text = String::new();
    viewer.read_to_string(&mut text).unwrap();
    text.split("event: ").map(String::from).collect()
}

/// The page fills while the copy runs, for two who look and a third who comes late, and ends as the
/// report of the run; nothing is asked for but the page, and nothing is wrong with it. A browser
/// that never reads holds nobody up.
#[test]
fn a_live_page_fills_and_ends_as_the_report() {
    let scene = Scene::new();
    let page = Page::of_copy(&scene, "--rate 1MB null:1G far:null:");
    let mut silent = TcpStream::connect(page.server).unwrap();
    write!(silent, "GET {}events HTTP/1.1\r\n{}\r\n", page.path, page.own_host()).unwrap();
    let second = page.viewer();
    let second = thread::spawn(move || events(second));
    let mut browser = Browser::start();
    let mut tab = browser.open(&page.address, WIDE);
    until("the browser shows samples", || points(&mut tab) > 0);
    let before = points(&mut tab);
    // What the reader opens stays open.
    tab.value("document.querySelector('#throughput details').open = true");
    until("there are more samples", || points(&mut tab) > before);
    assert_eq!(tab.value("document.querySelector('#throughput details').open"), json!(true));
    let late = page.get(&page.path, &page.own_host());
    assert!(late.contains("id=\"time-sequence\"") && late.contains("under way"), "{late}");
    tab.is_accessible("a copy");
    // It had more to do than it could until here, however late the browser was.
    scene.succeed(&format!("limit {} unlimited", page.running.pid()));
    let ran = page.running.end();
    assert_eq!(ran.code, 0, "{ran}");
    until("the browser has the end", || tab.value(STATE) == json!("ended"));
    let shown = tab.value(MAIN);
    assert_eq!(tab.said, Vec::<String>::new());
    let mut asked = tab.requests.clone();
    asked.retain(|address| *address != format!("{}events", page.address));
    assert_eq!(asked, [page.address]);
    assert_eq!(tab.value("document.scripts.length"), json!(2));

    scene.succeed("report --results @/results.db --html @/page.html");
    let report = browser.open_file(&scene.path("page.html"), WIDE).value(MAIN);
    assert_eq!(shown, report);
    let second = second.join().unwrap();
    assert!(second.len() > 2 && second.last().unwrap().starts_with("end\ndata: "), "{second:?}");

    let took = ran.events().into_iter().find(|event| event["event"] == "live_ended").unwrap();
    assert!(took["cpu_s"].as_f64() > Some(0.0), "{took}");
    assert!(took["cpu_ns_per_byte"].as_f64() > Some(0.0), "{took}");
    drop(silent);
}

const STATE: &str = "document.getElementById('state').textContent";
const MAIN: &str = "document.querySelector('main').textContent";

/// Samples of a stream in the chart of the time-sequence.
fn points(tab: &mut Tab<'_>) -> u64 {
    let found =
        tab.value("+document.querySelector('#time-sequence [data-points]')?.dataset.points || 0");
    found.as_u64().unwrap()
}

/// Who lacks the token, names another host, or asks from another page, gets nothing.
#[test]
fn only_who_has_the_address_is_answered() {
    let scene = Scene::new();
    let page = Page::of_copy(&scene, "--rate 1MB null:1G null:");
    let (port, own, path) = (page.server.port(), page.own_host(), page.path.clone());
    let by_name = format!("Host: localhost:{port}\r\n");
    let cases = [
        (path.clone(), own.clone(), 200),
        (path.clone(), by_name.clone(), 200),
        (path.clone(), format!("{own}Origin: http://127.0.0.1:{port}\r\n"), 200),
        (path.clone(), format!("{own}Origin: http://localhost:{port}\r\n"), 403),
        (path.clone(), format!("{own}Origin: http://example.invalid\r\n"), 403),
        (path.clone(), format!("{own}Origin: null\r\n"), 403),
        (path.clone(), format!("Host: example.invalid:{port}\r\n"), 403),
        (path.clone(), "Host: 127.0.0.1\r\n".into(), 403),
        (path.clone(), String::new(), 403),
        (path.clone(), format!("{own}{by_name}"), 400),
        ("/".into(), own.clone(), 404),
        ("/events".into(), own.clone(), 404),
        ("//events".into(), own.clone(), 404),
        (format!("/{}/", "0".repeat(32)), own.clone(), 404),
        (format!("{path}x"), own.clone(), 404),
        (path[..path.len() - 2].to_string() + "/", own.clone(), 404),
        (format!("{path}events"), format!("{own}Origin: http://example.invalid\r\n"), 403),
    ];
    for (path, head, code) in cases {
        let answer = page.get(&path, &head);
        assert!(answer.starts_with(&format!("HTTP/1.1 {code} ")), "{path} {head}: {answer}");
        assert_eq!(code == 200, answer.contains("id=\"page\""), "{path} {head}: {answer}");
        if code != 400 {
            assert!(answer.contains("\r\nReferrer-Policy: no-referrer\r\n"), "{answer}");
        }
    }
    let posted = ask(page.server, &format!("POST {path} HTTP/1.1\r\n{own}\r\n"));
    assert!(posted.starts_with("HTTP/1.1 405 "), "{posted}");
    let answer = page.get(&path, &own);
    for part in ["default-src 'none'", "connect-src 'self'", "frame-ancestors 'none'"] {
        assert!(answer.contains(part), "{part}: {answer}");
    }
    // More viewers than places: one is told so, and there is a place when another is gone.
    let mut viewers: Vec<_> = (0..6).map(|_| page.viewer()).collect();
    let full = page.get(&format!("{path}events"), &own);
    assert!(full.starts_with("HTTP/1.1 503 "), "{full}");
    viewers.pop();
    until("a place is free", || {
        let mut stream = TcpStream::connect(page.server).unwrap();
        // While all connections are taken it is closed without an answer.
        let asked = write!(stream, "GET {path}events HTTP/1.1\r\n{own}\r\n");
        let mut line = String::new();
        let answered = asked.and_then(|()| BufReader::new(stream).read_line(&mut line));
        answered.is_ok() && line.contains(" 200 ")
    });
    processes::send(page.running.pid(), Signal::INT);
    let ran = page.running.end();
    assert_eq!(ran.code, 130, "{ran}");
    // Who looked gets the last drawing, and that it was the last.
    let last = events(viewers.remove(0));
    assert!(last.last().unwrap().starts_with("end\ndata: "), "{last:?}");
}

/// A copy of two seconds inside one process has a plot too.
#[test]
fn a_short_copy_has_a_plot() {
    let scene = Scene::new();
    let has_seen_the_end = |_| {
        let page = Page::of_copy(&scene, "--rate 4MB null:8M null:");
        let all = page.try_viewer().map(events);
        let ran = page.running.end();
        assert_eq!(ran.code, 0, "{ran}");
        let Ok(all) = all else { return false };
        let last = all.last().unwrap();
        assert!(last.starts_with("end\n") && last.contains("<figure id=\"throughput\""), "{last}");
        assert!(last.contains("data-series=\"rate\""), "{last}");
        true
    };
    // The program waits for nobody: on a busy machine one may come too late.
    assert!((0..5).any(has_seen_the_end), "no page has an end");
}

/// A campaign has the cells that are measured; the page ends with its last one.
#[test]
fn the_page_of_a_campaign() {
    let wan = Wan::up("--rate 50Mbit --rtt 10ms --queue 2bdp");
    let scene = Scene::new();
    fs::write(scene.path("hosts"), "far\n").unwrap();
    let line = "sweep --results @/store --json --live --hosts @/hosts --streams 1 --windows 256K \
                --sizes 256K --repeat 2";
    let has_seen_the_end = |_| {
        let page = Page::of(wan.datapump(&scene, line));
        // The near host is a namespace, in which the page is served.
        let mut curl = Command::new(need("curl", "curl"));
        curl.args(["-sN", &format!("{}events", page.address)]);
        let seen = run::to_end(wan.near(curl), b"").stdout_text();
        let ran = page.running.end();
        assert_eq!(ran.code, 0, "{ran}");
        let last = seen.split("event: ").last().unwrap();
        if !last.starts_with("end\n") {
            return false;
        }
        let cells = ran.events().iter().filter(|event| event["event"] == "run").count();
        assert!(cells >= 2 && last.contains(&format!("{cells} cells")), "{ran}\n{last}");
        assert!(last.contains("Campaign sweep-"), "{last}");
        assert!(last.contains("<figure id=\"best\""), "{last}");
        true
    };
    // The program waits for nobody: on a busy machine curl may come too late for the last page.
    assert!((0..5).any(has_seen_the_end), "no page has an end");
}

/// The page of a spread fills while workers go on, and ends as the report of the job.
#[test]
fn the_page_of_a_spread() {
    let scene = Scene::new();
    fs::create_dir(scene.path("src")).unwrap();
    (0..60).for_each(|n| write_file(&scene.path(format!("src/{n}")), n, 50_000));
    let line = "spread @/src/ @/dst --on local:1 --job @/job --rate 1MB --json --live";
    let page = Page::of(scene.command(&scene.words(line)));
    // Its worker stands still until somebody looks.
    let worker = until_some("the worker has a shard", || {
        let beat = fs::read_dir(scene.path("job/workers")).ok()?.next()?.ok()?;
        let beat: Value = serde_json::from_slice(&fs::read(beat.path()).ok()?).ok()?;
        beat["shard"].as_u64()?;
        Some(beat["pid"].as_i64()? as i32)
    });
    processes::send(worker, Signal::STOP);
    let mut browser = Browser::start();
    let mut tab = browser.open(&page.address, WIDE);
    until("the browser shows a shard", || tab.value(BOXES).as_u64() > Some(0));
    processes::send(worker, Signal::CONT);
    let ran = page.running.end();
    assert_eq!(ran.code, 0, "{ran}");
    until("the browser has the end", || tab.value(STATE) == json!("ended"));
    let shown = tab.value(MAIN);
    tab.is_accessible("a spread that has ended");
    assert_eq!(tab.said, Vec::<String>::new());
    assert!(tab.value(BOXES).as_u64() > Some(0), "{shown}");
    scene.succeed("spread report @/job --html @/page.html");
    let report = browser.open_file(&scene.path("page.html"), WIDE).value(MAIN);
    assert_eq!(shown, report);
    // What cannot be shown ends it before anything is made.
    let refused = scene.run("spread @/src/ @/new --job @/other --live --quiet");
    assert!(refused.code == 2 && !scene.path("other").exists(), "{refused}");
}

/// Shards that are done or under way.
const BOXES: &str = "document.querySelectorAll('#timelines rect[class^=b]').length";

/// What cannot be shown ends the run before it begins.
#[test]
fn a_page_that_cannot_be_served() {
    let scene = Scene::new();
    fs::write(scene.path("file"), "x").unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let cases = [
        (format!("--live={port}"), 1, format!("cannot listen on port {port}")),
        ("--live=99999".into(), 2, "write a port from 1 to 65535".into()),
        ("--live --dry-run".into(), 2, "a dry run moves nothing".into()),
        ("--live --quiet".into(), 2, "nobody would read its address".into()),
    ];
    for (words, code, expect) in cases {
        let line = format!("copy {words} @/file @/new");
        let ran = scene.run(&line);
        assert_eq!(ran.code, code, "{line}\n{ran}");
        assert!(ran.stderr.contains(&expect), "{line}\n{ran}");
        assert!(!scene.path("new").exists(), "{line}");
    }
    // For people the address is a line of its own, and so is what it cost.
    let ran = scene.succeed("copy --live @/file @/new");
    assert_eq!(ran.stderr.matches("the live page is at http://127.0.0.1:").count(), 1, "{ran}");
    assert!(ran.stderr.contains(" ns/B"), "{ran}");
}
