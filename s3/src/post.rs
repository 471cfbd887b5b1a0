//! A POST to a server that is no store, such as a webhook: one request, one answer.

use std::io;
use std::time::Duration;

use crate::addresses;
use crate::connection::{Connection, unmonitored};
use crate::trust;
use crate::waits::{Limits, Stop, Wait};

/// Where to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    pub is_tls: bool,
    /// An IPv6 address stands in brackets.
    pub host: String,
    pub port: u16,
    pub path: String,
}

impl Target {
    /// Sends JSON, and returns the status of the answer. Under TLS the server needs a certificate
    /// that this host trusts: `SSL_CERT_FILE` names a file in place of the system's.
    pub fn post(&self, json: &str, silent_max: Duration) -> Result<u16, String> {
        let tls = match self.is_tls {
            true => Some(trust::of(None, TRUST).map_err(|fault| fault.text)?),
            false => None,
        };
        let wait = Wait::new(Limits::of(silent_max), &Stop::default());
        let name = format!("{}:{}", self.host, self.port);
        let addresses = addresses::find(&name, &mut wait.clone()).map_err(|why| why.to_string())?;
        let head = format!(
            "POST {} HTTP/1.1\r\nHost: {}:{}\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\nConnection: close\r\n\r\n",
            self.path,
            self.host,
            self.port,
            json.len()
        );
        // A name may have an address at which nobody listens, and one at which the server does.
        let mut failed = io::Error::other("the name has no address");
        for address in addresses {
            match Connection::open(address, &self.host, tls.as_ref(), wait.clone()) {
                Ok(mut connection) => {
                    let answer = connection.ask(&head, json.as_bytes(), "POST", &mut unmonitored);
                    return answer.map(|(head, _)| head.status).map_err(|why| why.to_string());
                }
                Err(why) => failed = why,
            }
        }
        Err(failed.to_string())
    }
}

const TRUST: &str = "name a file with the variable SSL_CERT_FILE";
