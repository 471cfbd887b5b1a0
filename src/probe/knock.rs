//! A test connection between two hosts, opened as a copy opens its streams: whether it can be
//! established, what both ends negotiate, and whether full-size packets arrive.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::thread;
use std::time::Duration;

use analysis::doctor::TestConnection;
use base::fault::reason;
use base::units::Nanos;
use mover::io::tcp::{self, Tuning};
use mover::io::{clock, system};

/// A secret that both ends share, so that the listener knows its peer.
pub(crate) type Token = [u8; 32];

/// What the listener does with a connection that has sent the token.
type Service = fn(TcpStream) -> io::Result<()>;

/// The far end: a thread listens, for a limited time, for a peer that sends the token.
pub fn answer(ports: Option<(u16, u16)>, token: Token) -> Result<u16, String> {
    listen(ports, token, exchange)
}

/// Like `answer`, but echoes all bytes.
pub(crate) fn reflect(ports: Option<(u16, u16)>, token: Token) -> Result<u16, String> {
    listen(ports, token, echo)
}

fn listen(ports: Option<(u16, u16)>, token: Token, service: Service) -> Result<u16, String> {
    let listener = tcp::listen(ports, &Tuning::default())
        .map_err(|why| format!("cannot listen on a port: {}", reason(&why)))?;
    let address =
        listener.local_addr().map_err(|why| format!("a listener has no port: {}", reason(&why)))?;
    listener.set_nonblocking(true).map_err(|why| format!("cannot listen: {}", reason(&why)))?;
    thread::spawn(move || wait(&listener, &token, service));
    Ok(address.port())
}

/// Serves one peer that sends the token; closes all other connections.
fn wait(listener: &TcpListener, token: &Token, service: Service) {
    let begun = clock::now();
    while clock::now().since(begun) < LISTEN_FOR {
        match listener.accept() {
            Ok((connection, _)) => {
                if greet(connection, token).is_ok_and(|known| service(known).is_ok()) {
                    return;
                }
            }
            Err(_) => thread::sleep(LOOK_EVERY),
        }
    }
}

fn greet(mut connection: TcpStream, token: &Token) -> io::Result<TcpStream> {
    connection.set_nonblocking(false)?;
    patient(&connection)?;
    let mut said = Token::default();
    connection.read_exact(&mut said)?;
    if said != *token {
        return Err(ErrorKind::PermissionDenied.into());
    }
    connection.write_all(token)?;
    Ok(connection)
}

fn echo(mut connection: TcpStream) -> io::Result<()> {
    connection.set_read_timeout(None)?;
    let mut bytes = [0; 64];
    loop {
        match connection.read(&mut bytes)? {
            0 => return Ok(()),
            count => connection.write_all(&bytes[..count])?,
        }
    }
}

fn exchange(mut connection: TcpStream) -> io::Result<()> {
    let there = arrives(&mut connection);
    connection.write_all(&[u8::from(there)])?;
    connection.write_all(&vec![0; BULK_BYTES])?;
    // The other side closes the connection when it has all bytes or its time-out is over.
    let _ = connection.read(&mut [0]);
    Ok(())
}

/// The near end: connects, sends the token and expects it back.
pub(crate) fn introduced(
    addresses: &[SocketAddr],
    port: u16,
    token: &Token,
) -> Result<(TcpStream, SocketAddr), String> {
    let (mut connection, address) = connect(addresses, port)?;
    let talked = patient(&connection).and_then(|()| {
        connection.write_all(token)?;
        let mut said = Token::default();
        connection.read_exact(&mut said)?;
        Ok(said)
    });
    match talked {
        Ok(said) if said == *token => Ok((connection, address)),
        Ok(_) => Err(format!("something else answers at {address}")),
        Err(why) => Err(format!("connected to {address}, but got no answer: {why}")),
    }
}

/// Sends many full-size packets and waits for as many.
pub fn knock(addresses: &[SocketAddr], port: u16, token: &Token) -> Result<TestConnection, String> {
    let (mut connection, address) = introduced(addresses, port, token)?;
    let sent = connection.write_all(&vec![0; BULK_BYTES]);
    let mut there = [0];
    let told = connection.read_exact(&mut there);
    let back = arrives(&mut connection);
    let agreed = system::agreed(connection.as_fd()).unwrap_or_default();
    Ok(TestConnection {
        address: address.to_string(),
        round_trip: agreed.rtt,
        round_trip_min: agreed.rtt_min,
        path_mtu_bytes: agreed.path_mtu_bytes,
        window_scaling: agreed.window_scaling,
        selective: agreed.selective,
        timestamps: agreed.timestamps,
        there: sent.is_ok() && told.is_ok() && there == [1],
        back,
    })
}

fn connect(addresses: &[SocketAddr], port: u16) -> Result<(TcpStream, SocketAddr), String> {
    let mut last =
        "no address of the other host is known: name one with --addresses LIST".to_string();
    for address in addresses {
        let mut address = *address;
        address.set_port(port);
        match tcp::connect(address, &Tuning::default(), PATIENCE) {
            Ok(connection) => return Ok((connection, address)),
            Err(why) => last = format!("cannot connect to {address}: {why}"),
        }
    }
    Err(last)
}

fn patient(connection: &TcpStream) -> io::Result<()> {
    connection.set_nodelay(true)?;
    connection.set_read_timeout(Some(PATIENCE))?;
    connection.set_write_timeout(Some(PATIENCE))
}

fn arrives(connection: &mut TcpStream) -> bool {
    connection.read_exact(&mut vec![0; BULK_BYTES]).is_ok()
}

/// About 90 full-size packets.
const BULK_BYTES: usize = 128 << 10;
/// Longer than several retransmissions: one lost packet must not look like a black hole.
const PATIENCE: Duration = Duration::from_secs(5);
const LISTEN_FOR: Nanos = Nanos(30_000_000_000);
const LOOK_EVERY: Duration = Duration::from_millis(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_knows_the_token_is_served_and_others_are_not() {
        let token = [7; 32];
        let port = answer(None, token).unwrap();
        let here = [SocketAddr::from(([127, 0, 0, 1], 0))];
        let stranger = knock(&here, port, &[8; 32]).unwrap_err();
        assert!(stranger.contains("but got no answer"), "{stranger}");
        let tried = knock(&here, port, &token).unwrap();
        assert!(tried.there && tried.back && tried.window_scaling, "{tried:?}");
        assert!(tried.path_mtu_bytes >= 1280 && tried.round_trip_min.0 > 0, "{tried:?}");
    }

    #[test]
    fn a_host_without_that_port_is_named() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        let why = knock(&[SocketAddr::from(([127, 0, 0, 1], 0))], port, &[0; 32]).unwrap_err();
        assert!(why.starts_with("cannot connect to 127.0.0.1:"), "{why}");
        let why = knock(&[], 1, &[0; 32]).unwrap_err();
        assert!(why.starts_with("no address of the other host is known"), "{why}");
    }
}
