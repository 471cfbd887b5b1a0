//! A host is measured by one campaign at a time: two would disturb each other, also those of two
//! users. The process that measures a host listens on an abstract Unix socket: only one process can
//! bind its name, and the name is free when that process ends. A process that is refused asks there
//! who the holder is. Each network namespace has names of its own.
//!
//! Any user can bind the name, a malicious one too. A lock file in each user's home would prevent
//! that, but two users would disturb each other unnoticed. That is worse: a refusal is visible and
//! names the user, which the kernel knows (SO_PEERCRED).

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::thread;
use std::time::Duration;

use base::fault::reason;
use rustix::net::sockopt::socket_peercred;
use rustix::process::geteuid;

/// Which end of the paths of a campaign a host is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathEnd {
    Near,
    Far,
}

/// Reserves this host until the process ends. The error names the holder.
pub fn hold(end: PathEnd, who: &str) -> Result<(), String> {
    let name = match end {
        PathEnd::Near => "datapump-sweep-near",
        PathEnd::Far => "datapump-sweep-far",
    };
    hold_as(name, who)
}

fn hold_as(name: &str, who: &str) -> Result<(), String> {
    let address = SocketAddr::from_abstract_name(name)
        .map_err(|why| format!("cannot make a name for this host: {}", reason(&why)))?;
    let refused =
        |holder: String| format!("it is being measured by {holder}: wait until that ends");
    let listener = match UnixListener::bind_addr(&address) {
        Ok(listener) => listener,
        Err(_) => {
            let (said, user) = ask(&address, who).ok_or_else(|| {
                refused(format!("an unknown process (socket @{name} does not answer)"))
            })?;
            // A process of the same campaign held it: its connection broke, and it did not notice.
            let bound = (said == who).then(|| bind_given_up(&address)).flatten();
            bound.ok_or_else(|| refused(format!("{said}, user {user}")))?
        }
    };
    let who = who.to_string();
    thread::spawn(move || answer(listener, &who));
    Ok(())
}

/// Binds a name that its holder has given up. A child that the holder has just forked keeps the
/// socket until it executes its program.
fn bind_given_up(address: &SocketAddr) -> Option<UnixListener> {
    let attempts = PATIENCE.as_millis() / ATTEMPT_EVERY.as_millis();
    (0..attempts).find_map(|attempt| {
        if attempt > 0 {
            thread::sleep(ATTEMPT_EVERY);
        }
        UnixListener::bind_addr(address).ok()
    })
}

/// Answers until a process of the same campaign and user asks for the name.
fn answer(listener: UnixListener, who: &str) {
    loop {
        let Ok((mut asker, _)) = listener.accept() else { continue };
        let is_same = hear(&asker).is_ok_and(|asks| asks == who);
        let gives_way = is_same && user_of(&asker) == Some(geteuid().as_raw());
        if gives_way {
            drop(listener);
            let _ = asker.write_all(who.as_bytes());
            return;
        }
        // A process that asks and disconnects needs no answer.
        let _ = asker.set_write_timeout(Some(PATIENCE)).and(asker.write_all(who.as_bytes()));
    }
}

/// The holder's description of itself, and its user.
fn ask(address: &SocketAddr, who: &str) -> Option<(String, u32)> {
    let mut stream = UnixStream::connect_addr(address).ok()?;
    let user = user_of(&stream)?;
    let _ = stream.write_all(who.as_bytes()).and(stream.shutdown(Shutdown::Write));
    let said = hear(&stream).unwrap_or_default();
    Some((if said.is_empty() { "another process".into() } else { said }, user))
}

fn hear(stream: &UnixStream) -> io::Result<String> {
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut said = Vec::new();
    stream.take(SAID_BYTES_MAX).read_to_end(&mut said)?;
    Ok(String::from_utf8_lossy(&said).into_owned())
}

fn user_of(stream: &UnixStream) -> Option<u32> {
    Some(socket_peercred(stream).ok()?.uid.as_raw())
}

const PATIENCE: Duration = Duration::from_secs(2);
const ATTEMPT_EVERY: Duration = Duration::from_millis(10);
const SAID_BYTES_MAX: u64 = 300;

#[cfg(test)]
mod tests {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, bind, socket};

    use super::*;

    #[test]
    fn who_comes_second_is_told_who_was_first() {
        let name = format!("datapump-test-{}", std::process::id());
        hold_as(&format!("{name}-campaign"), "sweep-1 of here").unwrap();
        // These two hold a name and do not follow the protocol.
        let address = SocketAddr::from_abstract_name(format!("{name}-mute")).unwrap();
        let mute = UnixListener::bind_addr(&address).unwrap();
        let hung_up = thread::spawn(move || drop(mute.accept()));
        let deaf = socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
        let its_name = format!("{name}-deaf");
        bind(&deaf, &SocketAddrUnix::new_abstract_name(its_name.as_bytes()).unwrap()).unwrap();
        let user = geteuid().as_raw();
        let cases = [
            ("campaign", format!("sweep-1 of here, user {user}")),
            ("mute", format!("another process, user {user}")),
            ("deaf", format!("an unknown process (socket @{name}-deaf does not answer)")),
        ];
        for (part, who) in cases {
            let why = hold_as(&format!("{name}-{part}"), "sweep-2 of there").unwrap_err();
            assert_eq!(why, format!("it is being measured by {who}: wait until that ends"));
        }
        hung_up.join().unwrap();
        hold_as(&format!("{name}-other"), "sweep-2").unwrap();
    }

    /// The holder's connection broke, and it did not notice.
    #[test]
    fn what_is_left_of_a_campaign_gives_way_to_it() {
        let name = format!("datapump-test-{}-left", std::process::id());
        for _ in 0..3 {
            hold_as(&name, "sweep-1 of here").unwrap();
            assert!(hold_as(&name, "sweep-2 of here").unwrap_err().contains("sweep-1 of here"));
        }
    }
}
