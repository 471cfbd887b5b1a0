//! The state of runs for those who watch many: metrics for Prometheus, in a file that is replaced
//! whole, or over HTTP while the program runs; and the page of a command under way.

pub mod alarm;
mod file;
pub mod http;
pub mod live;
pub mod under_way;

use std::fmt;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use self::http::{Answer, Request, Server};
use analysis::report::openmetrics::{self, Format, LastRun, Route, RouteState, Running, State};
use analysis::shards::overview::Overview;
use base::fault::{Class, Fault};
use mover::io::clock;
use mover::pump::watch::Watch;

/// Where metrics are shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    Address(SocketAddr),
    File(PathBuf),
}

impl Destination {
    /// An address is a port (then of this host alone), or an IP address with its port.
    pub fn of(typed: &str) -> Result<Destination, String> {
        let port = |text: &str| text.parse::<u16>().ok();
        let alone = typed.strip_prefix(':').or_else(|| typed.strip_prefix("localhost:"));
        if let Some(port) = port(alone.unwrap_or(typed)) {
            return Ok(Destination::Address((IpAddr::V4(Ipv4Addr::LOCALHOST), port).into()));
        }
        if let Ok(address) = typed.parse() {
            return Ok(Destination::Address(address));
        }
        let is_named = |(host, end): (&str, &str)| !host.contains('/') && port(end).is_some();
        match typed.rsplit_once(':') {
            Some(parts) if is_named(parts) => {
                Err(format!("write {PHRASE}: a name of a host is not looked up"))
            }
            _ if typed.is_empty() => Err(format!("write {PHRASE}")),
            _ => Ok(Destination::File(PathBuf::from(typed))),
        }
    }

    /// The name of the job: that of the file without its ending. Over HTTP it is the command, as an
    /// address serves one process.
    pub fn job(&self, command: &str) -> String {
        match self {
            Destination::Address(_) => command.to_string(),
            Destination::File(path) => {
                path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
            }
        }
    }
}

pub const PHRASE: &str = "a port such as 9911, an address such as 192.0.2.1:9911, or the name of \
                          a file such as /var/lib/node_exporter/copy.prom";

/// Metrics of the routes of a command, from its start to its end.
pub struct Metrics {
    shared: Arc<Shared>,
    output: Output,
}

enum Output {
    Http(Server),
    File { path: PathBuf, end: Sender<()>, refresh: Option<JoinHandle<()>> },
}

struct Shared {
    state: Mutex<State>,
    /// The run that is under way on each route.
    watches: Mutex<Vec<Weak<Watch>>>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state of this moment.
    fn text(&self, format: Format) -> String {
        let mut state = self.state().clone();
        let watches = self.watches.lock().unwrap_or_else(PoisonError::into_inner);
        for (route, watch) in state.routes.iter_mut().zip(watches.iter()) {
            if let (Some(running), Some(watch)) = (&mut route.running, watch.upgrade()) {
                seen(running, &watch);
            }
        }
        drop(watches);
        openmetrics::write(&state, format)
    }
}

fn seen(running: &mut Running, watch: &Watch) {
    use std::sync::atomic::Ordering::Relaxed;
    let gauge = &watch.gauge;
    let done = gauge.bytes_done.load(Relaxed);
    running.bytes = done.saturating_sub(gauge.bytes_held.load(Relaxed));
    running.files = gauge.files_done.load(Relaxed);
}

impl Metrics {
    /// Listens, or writes the file for the first time: if that fails, nothing else has begun.
    pub fn open(to: &Destination, version: &str, routes: Vec<Route>) -> Result<Metrics, Fault> {
        let of = |route: Route| RouteState { route, ..RouteState::default() };
        let mut state = State {
            version: version.to_string(),
            routes: routes.into_iter().map(of).collect(),
            cells: None,
            spread: None,
        };
        if let Destination::File(path) = to {
            file::read_back(path, &mut state);
        }
        let watches = Mutex::new(state.routes.iter().map(|_| Weak::new()).collect());
        let shared = Arc::new(Shared { state: Mutex::new(state), watches });
        let output = match to {
            Destination::Address(address) => Output::Http(serve(*address, &shared)?),
            Destination::File(path) => {
                file::replace(path, &shared.text(Format::Text))?;
                let (end, ended) = mpsc::channel();
                let (path, shared) = (path.clone(), Arc::clone(&shared));
                let again = path.clone();
                let refresh = thread::spawn(move || {
                    while ended.recv_timeout(REFRESH_EVERY) == Err(RecvTimeoutError::Timeout) {
                        // The end of the run reports what is wrong with the file.
                        let _ = file::replace(&again, &shared.text(Format::Text));
                    }
                });
                Output::File { path, end, refresh: Some(refresh) }
            }
        };
        Ok(Metrics { shared, output })
    }

    /// Where they are, for people.
    pub fn place(&self) -> String {
        match &self.output {
            Output::Http(server) => format!("http://{}/metrics", server.address()),
            Output::File { path, .. } => path.display().to_string(),
        }
    }

    /// A run begins on a route.
    pub fn begins(&self, route: usize, watch: Option<&Arc<Watch>>) {
        let started_unix_s = clock::unix().as_secs_f64();
        if let Some(route) = self.shared.state().routes.get_mut(route) {
            route.running = Some(Running { started_unix_s, ..Running::default() });
        }
        let mut watches = self.shared.watches.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = watches.get_mut(route) {
            *known = watch.map(Arc::downgrade).unwrap_or_default();
        }
    }

    /// A run has ended on a route.
    pub fn ended(&self, route: usize, last: LastRun) -> Result<(), Fault> {
        if let Some(route) = self.shared.state().routes.get_mut(route) {
            route.running = None;
            if last.exit_code == 0 {
                route.success_unix_s = Some(last.ended_unix_s);
            }
            route.last = Some(last);
        }
        self.write()
    }

    /// The cells of the campaign that are measured, and those that are left.
    pub fn cells(&self, cells: [u64; 2]) -> Result<(), Fault> {
        self.shared.state().cells = Some(cells);
        self.write()
    }

    /// How a dataset over many nodes stands.
    pub fn overview(&self, overview: Overview) {
        let mut state = self.shared.state();
        if let Some(running) = state.routes.first_mut().and_then(|one| one.running.as_mut()) {
            // Counters never fall, also where a worker was lost with what it had under way.
            running.bytes = running.bytes.max(overview.bytes);
            running.files = running.files.max(overview.files);
        }
        state.spread = Some(overview);
    }

    fn write(&self) -> Result<(), Fault> {
        match &self.output {
            Output::Http(_) => Ok(()),
            Output::File { path, .. } => file::replace(path, &self.shared.text(Format::Text)),
        }
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").field("place", &self.place()).finish_non_exhaustive()
    }
}

impl Drop for Metrics {
    /// Nothing is written after the last state.
    fn drop(&mut self) {
        if let Output::File { end, refresh, .. } = &mut self.output {
            let _ = end.send(());
            refresh.take().map(JoinHandle::join);
        }
    }
}

fn serve(address: SocketAddr, shared: &Arc<Shared>) -> Result<Server, Fault> {
    let shared = Arc::clone(shared);
    listen(address, move |wanted| (wanted, shared.text(wanted)))
}

/// Serves what another process writes into a file as text, also while that process is gone.
pub fn serve_file(address: SocketAddr, path: PathBuf) -> Result<Server, Fault> {
    listen(address, move |_| (Format::Text, fs::read_to_string(&path).unwrap_or_default()))
}

/// The page has the form that the reader asks for, or says which one it has.
fn listen(
    address: SocketAddr,
    page: impl Fn(Format) -> (Format, String) + Send + Sync + 'static,
) -> Result<Server, Fault> {
    let listener = TcpListener::bind(address).map_err(|why| {
        let text = format!("--metrics: cannot listen at {address}: {why}; name another port");
        Fault::new(Class::Local, text)
    })?;
    let answer = move |request: &Request| match request.path.as_str() {
        // A page of another site could give its name this address, and read the answer.
        _ if !names_this_host(&request.host) => {
            Answer::status(403, "ask by this host's address or name\n")
        }
        "/metrics" => {
            let wants_open = request.accept.contains("application/openmetrics-text");
            let wanted = if wants_open { Format::OpenMetrics } else { Format::Text };
            let (format, text) = page(wanted);
            Answer::ok(format.content_type(), text)
        }
        "/" => Answer::ok("text/plain; charset=utf-8", "metrics are at /metrics\n".into()),
        _ => Answer::status(404, "only /metrics is here\n"),
    };
    Server::start(listener, answer)
        .map_err(|why| Fault::system(&format!("serve metrics at {address}"), &why))
}

/// True for an address, which no name server can have put there, for `localhost`, and for this
/// host's own name with any domain.
fn names_this_host(asked: &str) -> bool {
    let name = asked.rsplit_once(':').map_or(asked, |(name, port)| match port.parse::<u16>() {
        Ok(_) => name,
        Err(_) => asked,
    });
    let address = name.trim_start_matches('[').trim_end_matches(']');
    let node = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let first = |name: &str| name.split('.').next().unwrap_or_default().to_ascii_lowercase();
    address.parse::<IpAddr>().is_ok()
        || name.eq_ignore_ascii_case("localhost")
        || (!name.is_empty() && first(name) == first(&node))
}

/// A file is for a collector that reads it about as often.
const REFRESH_EVERY: Duration = Duration::from_secs(15);

/// The file of a failing run keeps when its route last succeeded.
const SUCCESS: &str = "datapump_last_success_timestamp_seconds";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_or_a_file() {
        let local = |port: u16| Ok(Destination::Address(([127, 0, 0, 1], port).into()));
        let file = |path: &str| Ok(Destination::File(path.into()));
        let cases = [
            ("9911", local(9911)),
            (":9911", local(9911)),
            ("localhost:9911", local(9911)),
            ("0", local(0)),
            ("192.0.2.1:80", Ok(Destination::Address(([192, 0, 2, 1], 80).into()))),
            ("[::1]:80", Ok(Destination::Address("[::1]:80".parse().unwrap()))),
            ("/var/lib/a.prom", file("/var/lib/a.prom")),
            ("a.prom", file("a.prom")),
            ("./9911", file("./9911")),
            ("dir/a:80", file("dir/a:80")),
            ("99999", file("99999")),
        ];
        for (typed, expect) in cases {
            assert_eq!(Destination::of(typed), expect, "{typed}");
        }
        for typed in ["dtn2:9911", ""] {
            assert!(Destination::of(typed).unwrap_err().starts_with("write a port"), "{typed}");
        }
        let job = |typed: &str| Destination::of(typed).unwrap().job("copy");
        assert_eq!([job("a/backup.prom"), job("9911")], ["backup", "copy"]);
    }

    #[test]
    fn only_who_names_this_host_is_answered() {
        let node = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let own = [node.clone(), format!("{node}:9911"), node.to_uppercase()];
        for name in own.iter().map(String::as_str).chain([
            "127.0.0.1:9911",
            "localhost:9911",
            "LOCALHOST",
            "[::1]:9911",
            "192.0.2.7",
        ]) {
            assert!(names_this_host(name), "{name}");
        }
        for name in ["", ":9911", "evil.example:9911", "127.0.0.1.evil.example", "localhost.evil"] {
            assert!(!names_this_host(name), "{name}");
        }
    }

    fn route() -> Route {
        Route {
            name: "backup".into(),
            command: "copy".into(),
            source: "a".into(),
            target: "b".into(),
        }
    }

    /// A file has the last success also after a run that failed, in another process.
    #[test]
    fn a_failure_keeps_the_last_success() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("backup.prom");
        let to = Destination::File(path.clone());
        let ends = |exit_code: u8, ended_unix_s: f64| {
            let metrics = Metrics::open(&to, "0.2.0", vec![route()]).unwrap();
            metrics.begins(0, None);
            metrics.ended(0, LastRun { ended_unix_s, exit_code, figures: None }).unwrap();
            drop(metrics);
            let text = std::fs::read_to_string(&path).unwrap();
            let value = |name: &str| {
                let line = text.lines().find(|line| line.starts_with(&format!("{name}{{")));
                line.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
            };
            (value(SUCCESS), value("datapump_last_run_exit_code"))
        };
        assert_eq!(ends(6, 1000.0), (None, Some(6.0)));
        assert_eq!(ends(0, 2000.0), (Some(2000.0), Some(0.0)));
        assert_eq!(ends(6, 3000.0), (Some(2000.0), Some(6.0)));
        // While the next run is under way, the last one is still known.
        let metrics = Metrics::open(&to, "0.2.0", vec![route()]).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains("datapump_last_run_exit_code{") && text.contains(" 6\n"), "{text}");
        drop(metrics);
        let names: Vec<_> = std::fs::read_dir(folder.path()).unwrap().collect();
        assert_eq!(names.len(), 1, "no temporary file is left: {names:?}");
    }

    #[test]
    fn a_place_that_cannot_be_used_is_named() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap();
        let cases = [
            (Destination::Address(address), format!("cannot listen at {address}")),
            (Destination::File("/no/such/a.prom".into()), "'/no/such/a.prom'".into()),
        ];
        for (to, expect) in cases {
            let fault = Metrics::open(&to, "0.2.0", vec![route()]).unwrap_err();
            assert!(fault.text.contains(&expect), "{fault}");
        }
    }
}
