//! One campaign at a time on a host: two would measure each other. Who measures a host listens
//! under a name of the kernel's, which no other can take, and which goes with the process however
//! it ends; who is refused asks there who it is. Each network namespace has names of its own.

use std::io::{Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::thread;
use std::time::Duration;

/// Which end of the paths of a campaign a host is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Near,
    Far,
}

/// Claims this host until the process ends. The error names who has it.
pub fn hold(end: End, who: &str) -> Result<(), String> {
    let name = match end {
        End::Near => "datapump-sweep-near",
        End::Far => "datapump-sweep-far",
    };
    hold_as(name, who)
}

fn hold_as(name: &str, who: &str) -> Result<(), String> {
    let address = SocketAddr::from_abstract_name(name)
        .map_err(|why| format!("cannot make a name for this host: {why}"))?;
    let Ok(listener) = UnixListener::bind_addr(&address) else {
        let holder = ask(&address).unwrap_or_else(|| "another campaign".to_string());
        return Err(format!("it is being measured by {holder}: wait until that ends"));
    };
    let who = who.to_string();
    thread::spawn(move || {
        for asker in listener.incoming().flatten() {
            let mut asker: UnixStream = asker;
            // Who asks and goes away has not wanted to know.
            let _ = asker.set_write_timeout(Some(PATIENCE)).and(asker.write_all(who.as_bytes()));
        }
    });
    Ok(())
}

fn ask(address: &SocketAddr) -> Option<String> {
    let stream = UnixStream::connect_addr(address).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    let mut said = String::new();
    stream.take(SAID_BYTES_MAX).read_to_string(&mut said).ok()?;
    Some(said).filter(|said| !said.is_empty())
}

const PATIENCE: Duration = Duration::from_secs(2);
const SAID_BYTES_MAX: u64 = 300;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_comes_second_is_told_who_was_first() {
        let name = format!("datapump-test-{}", std::process::id());
        hold_as(&name, "sweep-1 of here").unwrap();
        let why = hold_as(&name, "sweep-2 of there").unwrap_err();
        assert_eq!(why, "it is being measured by sweep-1 of here: wait until that ends");
        hold_as(&format!("{name}-other"), "sweep-2").unwrap();
    }
}
