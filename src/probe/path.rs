//! The path to another host, measured with the probe there: the difference of the clocks, and
//! whether a connection like a stream of a copy can be established.

use std::net::SocketAddr;

use super::Probe;
use super::knock::{Token, knock};
use analysis::doctor::PathProbe;
use base::fault::{Class, Fault};
use base::units::Nanos;
use mover::io::clock;
use mover::remote::peer::PROGRAM;

/// Asks the far probe for its time and for a port, and opens a test connection to it.
pub(crate) fn try_path(
    far: &mut Probe,
    login: Nanos,
    addresses: &[SocketAddr],
    ports: Option<(u16, u16)>,
    token: Token,
) -> Result<PathProbe, Fault> {
    let begun = clock::now();
    let before_s = clock::unix().as_secs_f64();
    let there_s = far.unix_s()?;
    let asked = clock::now().since(begun);
    let tried = match far.listen(ports, &token) {
        Ok(port) => knock(addresses, port, &token),
        Err(fault) if fault.class == Class::Local => Err(fault.text),
        Err(fault) => return Err(fault),
    };
    Ok(PathProbe {
        login,
        program: PROGRAM.to_string(),
        clock_apart_s: there_s - before_s - asked.seconds() / 2.0,
        asked,
        tried,
    })
}
