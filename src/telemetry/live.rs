//! A page of a command while it runs: for browsers of this host that have its address, which has a
//! token. It is drawn when somebody looks, at most each second, and as seldom as its cost asks for.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::http::{Answer, Request, Server};
use analysis::page::{Page, live};
use base::fault::{Class, Fault};
use base::units::{Nanos, Tick};
use mover::io::clock;

/// A page that is served until it is dropped.
#[derive(Debug)]
pub struct Live {
    shared: Arc<Shared>,
    server: Server,
}

/// What the page costs: CPU time of all that is done for it.
#[derive(Debug, Default)]
pub struct Cost(AtomicU64);

impl Cost {
    pub fn add(&self, cpu: Nanos) {
        self.0.fetch_add(cpu.0, Relaxed);
    }

    pub fn cpu(&self) -> Nanos {
        Nanos(self.0.load(Relaxed))
    }
}

struct Shared {
    token: String,
    title: String,
    began: Tick,
    draw: Box<dyn Fn() -> Page + Send + Sync>,
    drawn: Mutex<Drawn>,
    viewers: Mutex<Viewers>,
    /// The end of the run, or of a viewer.
    changed: Condvar,
    cost: Arc<Cost>,
}

/// The newest drawing.
#[derive(Debug, Default)]
struct Drawn {
    /// The next is not due before; `None` where there is none yet.
    next: Option<Tick>,
    body: Arc<str>,
}

#[derive(Debug, Default)]
struct Viewers {
    /// Those who get each drawing.
    count: usize,
    /// The page of the whole run, when it is over.
    last: Option<Arc<str>>,
}

impl Live {
    /// Listens on this port of this host, or on a free one for 0.
    pub fn open(
        port: u16,
        title: &str,
        cost: Arc<Cost>,
        draw: impl Fn() -> Page + Send + Sync + 'static,
    ) -> Result<Live, Fault> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map_err(|why| {
            let text = format!("--live: cannot listen on port {port}: {why}; name another port");
            Fault::new(Class::Local, text)
        })?;
        let failed = |why: io::Error| Fault::system("serve the live page", &why);
        let port = listener.local_addr().map_err(failed)?.port();
        let shared = Arc::new(Shared {
            token: token().map_err(failed)?,
            title: title.to_string(),
            began: clock::now(),
            draw: Box::new(draw),
            drawn: Mutex::default(),
            viewers: Mutex::default(),
            changed: Condvar::new(),
            cost,
        });
        let of_server = Arc::clone(&shared);
        let server = Server::start(listener, move |request| answer(&of_server, port, request))
            .map_err(failed)?;
        Ok(Live { shared, server })
    }

    pub fn address(&self) -> String {
        format!("http://{}/{}/", self.server.address(), self.shared.token)
    }

    /// The command is over: who looks gets this page, or the last drawing again. Those who do not
    /// read are not waited for, and the others not for longer than `FAREWELL`.
    pub fn ends(self, page: Option<&Page>) -> Nanos {
        let before = clock::thread_cpu();
        let last = match page {
            Some(page) => live::body(page).into(),
            None => Arc::clone(&locked(&self.shared.drawn).body),
        };
        self.shared.cost.add(clock::thread_cpu() - before);
        let mut viewers = locked(&self.shared.viewers);
        viewers.last = Some(last);
        self.shared.changed.notify_all();
        let are_there = |viewers: &mut Viewers| viewers.count > 0;
        drop(self.shared.changed.wait_timeout_while(viewers, FAREWELL, are_there));
        self.shared.cost.cpu()
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("title", &self.title).finish_non_exhaustive()
    }
}

impl Shared {
    /// The body of the page now: the last drawing, if that is not old enough.
    fn body(&self) -> Arc<str> {
        if let Some(last) = &locked(&self.viewers).last {
            return Arc::clone(last);
        }
        let mut drawn = locked(&self.drawn);
        let now = clock::now();
        if now >= self.due(&drawn) {
            drawn.body = live::body(&(self.draw)()).into();
            drawn.next = Some(next_second(self.began, now));
        }
        Arc::clone(&drawn.body)
    }

    fn is_over(&self) -> bool {
        locked(&self.viewers).last.is_some()
    }

    /// When another drawing is due: in the next second, if what the page took until now is paid.
    fn due(&self, drawn: &Drawn) -> Tick {
        drawn.next.map_or(self.began, |next| next.max(paid(self.began, self.cost.cpu())))
    }

    /// Waits until another drawing is due, or the command is over, for a second at most.
    fn wait(&self) {
        let due = self.due(&locked(&self.drawn));
        let until_due = due.since(clock::now()).min(EACH);
        let viewers = locked(&self.viewers);
        let goes_on = |viewers: &mut Viewers| viewers.last.is_none();
        drop(self.changed.wait_timeout_while(viewers, until_due.into(), goes_on));
    }
}

/// The next whole second of the page. Seconds are counted from its beginning and not from the last
/// drawing: one that takes long, or begins late, does not put off those after it.
fn next_second(began: Tick, now: Tick) -> Tick {
    let seconds = now.since(began).0 / EACH.0;
    began.after(Nanos((seconds + 1) * EACH.0))
}

/// When what was spent is within the share of a CPU that the page may have.
fn paid(began: Tick, spent: Nanos) -> Tick {
    began.after(Nanos(spent.0.saturating_mul(CPU_ONE_OF)))
}

/// Only for who has the token, names this host, and asks from this page.
fn answer(shared: &Arc<Shared>, port: u16, request: &Request) -> Answer {
    let before = clock::thread_cpu();
    let answer = judged(shared, port, request)
        .with("Referrer-Policy", "no-referrer")
        .with("Cross-Origin-Resource-Policy", "same-origin");
    shared.cost.add(clock::thread_cpu() - before);
    answer
}

fn judged(shared: &Arc<Shared>, port: u16, request: &Request) -> Answer {
    let host = [format!("127.0.0.1:{port}"), format!("localhost:{port}")]
        .into_iter()
        .find(|host| *host == request.host);
    let is_own = host.is_some_and(|host| {
        request.origin.is_empty() || request.origin == format!("http://{host}")
    });
    if !is_own {
        return Answer::status(403, "this page is for browsers of this host alone\n");
    }
    let below = request.path.strip_prefix('/').and_then(|path| path.split_once('/'));
    match below {
        Some((token, "")) if token == shared.token => {
            let body = shared.body();
            let state = if shared.is_over() { "ended" } else { "under way" };
            Answer::ok("text/html; charset=utf-8", live::whole(&shared.title, state, &body))
                .with("Content-Security-Policy", &live::policy())
        }
        Some((token, "events")) if token == shared.token => match Viewer::enter(shared) {
            Some(viewer) if !request.is_head => events(viewer),
            Some(_) => Answer::ok(EVENTS, String::new()),
            None => Answer::status(503, "so many browsers are not served\n"),
        },
        _ => Answer::status(404, "the address of this page has a token\n"),
    }
}

/// Server-sent events: `page` with each drawing, `end` with the last.
fn events(viewer: Viewer) -> Answer {
    let mut sent: Option<Arc<str>> = None;
    let mut has_ended = false;
    let mut before = None;
    let parts = move || {
        let shared = &viewer.0;
        // Writing the last part counts too; all of it is on this thread.
        let counted = before.replace(clock::thread_cpu());
        if let Some(counted) = counted {
            shared.cost.add(clock::thread_cpu() - counted);
        }
        if has_ended {
            return None;
        }
        if sent.is_some() {
            shared.wait();
        }
        has_ended = shared.is_over();
        let body = shared.body();
        if !has_ended && sent.as_ref().is_some_and(|sent| Arc::ptr_eq(sent, &body)) {
            // A comment, which shows whether somebody is still there.
            return Some(":\n\n".to_string());
        }
        let part = event(if has_ended { "end" } else { "page" }, &body);
        sent = Some(body);
        Some(part)
    };
    Answer::parts(EVENTS, Box::new(parts))
}

fn event(name: &str, body: &str) -> String {
    let lines: String = body.split('\n').map(|line| format!("data: {line}\n")).collect();
    format!("event: {name}\n{lines}\n")
}

/// One who gets each drawing, until it is dropped.
struct Viewer(Arc<Shared>);

impl Viewer {
    /// `None` where there are too many.
    fn enter(shared: &Arc<Shared>) -> Option<Viewer> {
        let mut viewers = locked(&shared.viewers);
        let has_place = viewers.count < VIEWERS_MAX;
        has_place.then(|| {
            viewers.count += 1;
            Viewer(Arc::clone(shared))
        })
    }
}

impl Drop for Viewer {
    fn drop(&mut self) {
        locked(&self.0.viewers).count -= 1;
        self.0.changed.notify_all();
    }
}

/// 128 random bits.
fn token() -> io::Result<String> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

const EVENTS: &str = "text/event-stream";
/// From one drawing to the next.
const EACH: Nanos = Nanos::from_millis(1000);
/// Less than one per cent of a CPU is spent on the page, and on no drawing more while that is
/// exceeded. The rest of it is for the drawing that exceeds it, and for the last page.
const CPU_ONE_OF: u64 = 110;
/// So that one of the connections of the server is left for who opens the page.
const VIEWERS_MAX: usize = 6;
/// For writing the last page to who reads.
const FAREWELL: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests {
    use super::*;

    /// A drawing that is late, or takes long, puts off no later one; the cost does.
    #[test]
    fn a_drawing_is_due_each_second() {
        let at = |millis: u64| Tick(7).after(Nanos::from_millis(millis));
        for (now, expect) in [(0, 1000), (999, 1000), (1000, 2000), (1300, 2000), (3999, 4000)] {
            assert_eq!(next_second(at(0), at(now)), at(expect), "{now}");
        }
        for (spent, expect) in [(0, 0), (4, 440), (20, 2200)] {
            assert_eq!(paid(at(0), Nanos::from_millis(spent)), at(expect), "{spent}");
        }
    }
}
