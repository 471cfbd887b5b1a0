//! Tells somebody of an alarm: a command gets it on standard input, a webhook by a POST.

use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use base::fault::{Class, Fault};
use base::units::Nanos;
use mover::io::clock;
use s3::post::Target;

/// Who is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Receiver {
    /// Run by a shell.
    Command(String),
    /// `http://HOST[:PORT]/PATH`, or the same with `https`.
    Webhook(Target),
}

impl Receiver {
    pub fn of(typed: &str) -> Result<Receiver, String> {
        if typed.trim().is_empty() {
            return Err(format!("write {PHRASE}"));
        }
        let (is_tls, rest) = match (typed.strip_prefix("http://"), typed.strip_prefix("https://")) {
            (Some(rest), _) => (false, rest),
            (_, Some(rest)) => (true, rest),
            _ => return Ok(Receiver::Command(typed.to_string())),
        };
        let (place, path) = rest.split_once('/').unwrap_or((rest, ""));
        let is_plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
        let (host, port) = match place.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, port.parse().ok()),
            _ => (place, Some(if is_tls { 443 } else { 80 })),
        };
        let (host, path) = (host.to_string(), format!("/{path}"));
        match port {
            Some(port) if !host.is_empty() && is_plain(place) && is_plain(&path) => {
                Ok(Receiver::Webhook(Target { is_tls, host, port, path }))
            }
            _ => Err(format!("write {PHRASE}")),
        }
    }

    /// The error says who was not told, and why.
    pub fn tell(&self, text: &str, json: &str) -> Result<(), Fault> {
        let failed = |who: &str, why: String| {
            Fault::new(Class::Local, format!("the alarm did not reach {who}: {why}"))
        };
        match self {
            Receiver::Command(command) => {
                run(command, text, json).map_err(|why| failed(&format!("'{command}'"), why))
            }
            Receiver::Webhook(hook) => {
                let scheme = if hook.is_tls { "https" } else { "http" };
                let who = format!("{scheme}://{}:{}{}", hook.host, hook.port, hook.path);
                post(hook, json).map_err(|why| failed(&who, why))
            }
        }
    }
}

fn run(command: &str, text: &str, json: &str) -> Result<(), String> {
    let mut child = Command::new("/bin/sh")
        .args(["-c", command])
        .env("DATAPUMP_ALARM", text)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .map_err(|why| why.to_string())?;
    if let Some(mut stdin) = child.stdin.take() {
        // The evidence fits into a pipe; a command that does not read it is none the worse.
        let _ = stdin.write_all(format!("{json}\n").as_bytes());
    }
    ends(&mut child)
}

/// A command that hangs is killed.
fn ends(child: &mut Child) -> Result<(), String> {
    let until = clock::now().after(COMMAND_TIME);
    loop {
        match child.try_wait().map_err(|why| why.to_string())? {
            Some(status) if status.success() => return Ok(()),
            Some(status) => return Err(status.to_string()),
            None if clock::now() < until => thread::sleep(BEAT),
            None => {
                let _ = child.kill().and_then(|()| child.wait().map(drop));
                return Err(format!("it has not ended after {} s", COMMAND_TIME.seconds()));
            }
        }
    }
}

fn post(hook: &Target, json: &str) -> Result<(), String> {
    match hook.post(json, HOOK_TIME)? {
        200..=299 => Ok(()),
        status => Err(format!("it answered with the status {status}")),
    }
}

pub const PHRASE: &str = "a command for a shell, or http[s]://HOST[:PORT]/PATH";
const COMMAND_TIME: Nanos = Nanos::from_millis(60_000);
const HOOK_TIME: Duration = Duration::from_secs(10);
const BEAT: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_command_or_a_webhook() {
        let of = |is_tls, host: &str, port, path: &str| {
            let target = Target { is_tls, host: host.into(), port, path: path.into() };
            Ok(Receiver::Webhook(target))
        };
        let hook = |host: &str, port, path: &str| of(false, host, port, path);
        let cases = [
            ("mail -s slow ada", Ok(Receiver::Command("mail -s slow ada".into()))),
            ("http://a.example/x", hook("a.example", 80, "/x")),
            ("http://127.0.0.1:8080", hook("127.0.0.1", 8080, "/")),
            ("http://[::1]:80/a/b", hook("[::1]", 80, "/a/b")),
            ("https://a.example/x", of(true, "a.example", 443, "/x")),
            ("https://a.example:8443", of(true, "a.example", 8443, "/")),
        ];
        for (typed, expect) in cases {
            assert_eq!(Receiver::of(typed), expect, "{typed}");
        }
        for typed in ["", "https://", "http://", "http://a:x/", "http://a/b c\r\nd"] {
            assert!(Receiver::of(typed).is_err(), "{typed}");
        }
    }

    #[test]
    fn a_command_gets_the_evidence() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("said");
        let of = |line: String| Receiver::Command(line).tell("text", "{\"a\":1}");
        of(format!("cat > {0}; echo \"$DATAPUMP_ALARM\" >> {0}", path.display())).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "{\"a\":1}\ntext\n");
        let why = of("exit 3".into()).unwrap_err();
        assert!(why.text.contains("did not reach 'exit 3': exit status: 3"), "{why}");
    }

    #[test]
    fn a_webhook_gets_the_evidence() {
        for (answer, is_good) in
            [("HTTP/1.1 204 No Content\r\n\r\n", true), ("HTTP/1.1 500 x\r\n\r\n", false)]
        {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let port = listener.local_addr().unwrap().port();
            let hears = thread::spawn(move || {
                let (mut stream, _) = listener.accept().unwrap();
                let mut said = Vec::new();
                while !said.ends_with(b"{\"a\":1}") {
                    let mut part = [0; 512];
                    let count = stream.read(&mut part).unwrap();
                    assert!(count > 0, "{said:?}");
                    said.extend_from_slice(&part[..count]);
                }
                stream.write_all(answer.as_bytes()).unwrap();
                String::from_utf8(said).unwrap()
            });
            let hook = Receiver::of(&format!("http://127.0.0.1:{port}/hook")).unwrap();
            assert_eq!(hook.tell("text", "{\"a\":1}").is_ok(), is_good);
            let said = hears.join().unwrap();
            assert!(said.starts_with("POST /hook HTTP/1.1\r\n"), "{said}");
            assert!(said.contains("Content-Length: 7\r\n"), "{said}");
        }
    }
}
