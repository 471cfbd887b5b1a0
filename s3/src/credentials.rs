//! Credentials, where AWS' own tools look for them and in their order: variables, profiles, a
//! program that a profile names, a container, the instance.

use std::io::Read;
use std::net::ToSocketAddrs;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::connection::{Connection, unmonitored};
use crate::dates;
use crate::settings::Surroundings;
use crate::signing::Keys;
use base::fault::{Class, Fault};

/// Keys and when they expire, in seconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub keys: Keys,
    pub expires_unix_s: Option<u64>,
}

impl Found {
    /// True where new ones are needed soon.
    pub(crate) fn is_stale(&self, unix_s: u64) -> bool {
        self.expires_unix_s.is_some_and(|expires| unix_s + EARLY_S > expires)
    }
}

/// Temporary credentials are replaced this long before they expire.
const EARLY_S: u64 = 300;

/// Finds credentials. The error says where they were looked for.
pub(crate) fn find(around: &Surroundings) -> Result<Found, Fault> {
    if let (Some(id), Some(secret)) =
        (around.get("AWS_ACCESS_KEY_ID"), around.get("AWS_SECRET_ACCESS_KEY"))
    {
        return Ok(lasting(Keys { id, secret, token: around.get("AWS_SESSION_TOKEN") }));
    }
    if let (Some(id), Some(secret)) =
        (around.of_profile("aws_access_key_id"), around.of_profile("aws_secret_access_key"))
    {
        return Ok(lasting(Keys { id, secret, token: around.of_profile("aws_session_token") }));
    }
    if let Some(command) = around.of_profile("credential_process") {
        return of_program(&command);
    }
    for other in ["role_arn", "sso_session", "sso_start_url", "web_identity_token_file"] {
        if around.of_profile(other).is_some() {
            return Err(Fault::usage(format!(
                "the profile '{}' has {other}, which datapump does not know: run 'aws configure \
                 export-credentials --profile {} --format env' and use what it prints, or set \
                 credential_process in the profile",
                around.profile_name, around.profile_name
            )));
        }
    }
    if let Some(found) = of_container(around)? {
        return Ok(found);
    }
    if around.get("AWS_EC2_METADATA_DISABLED").is_none_or(|off| off != "true")
        && let Some(found) = of_instance(around)
    {
        return Ok(found);
    }
    Err(Fault::usage(format!(
        "no credentials for the store: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or name a \
         profile of ~/.aws/credentials with --s3-profile ('{}' has none)",
        around.profile_name
    )))
}

fn lasting(keys: Keys) -> Found {
    Found { keys, expires_unix_s: None }
}

/// What the program prints that a profile names.
fn of_program(command: &str) -> Result<Found, Fault> {
    let wrong = |why: String| {
        Fault::new(Class::Local, format!("credential_process '{command}' of the profile: {why}"))
    };
    let ran = Command::new("sh")
        .args(["-c", command])
        .output()
        .map_err(|error| wrong(error.to_string()))?;
    if !ran.status.success() {
        let said = String::from_utf8_lossy(&ran.stderr);
        return Err(wrong(format!("{}: {}", ran.status, said.trim())));
    }
    let text = String::from_utf8_lossy(&ran.stdout);
    read(&text, ["AccessKeyId", "SecretAccessKey", "SessionToken"])
        .ok_or_else(|| wrong("it prints no credentials".to_string()))
}

/// Credentials as JSON, under these names.
fn read(text: &str, [id, secret, token]: [&str; 3]) -> Option<Found> {
    let value: Value = serde_json::from_str(text).ok()?;
    let get = |name: &str| value[name].as_str().map(String::from);
    let expires = get("Expiration").and_then(|date| dates::iso(&date.replace("+00:00", "Z")));
    Some(Found {
        keys: Keys { id: get(id)?, secret: get(secret)?, token: get(token) },
        expires_unix_s: expires.map(|(seconds, _)| seconds.max(0) as u64),
    })
}

const OF_SERVICES: [&str; 3] = ["AccessKeyId", "SecretAccessKey", "Token"];

fn of_container(around: &Surroundings) -> Result<Option<Found>, Fault> {
    let url = match around.get("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI") {
        Some(path) => format!("http://169.254.170.2{path}"),
        None => match around.get("AWS_CONTAINER_CREDENTIALS_FULL_URI") {
            Some(url) => url,
            None => return Ok(None),
        },
    };
    let file = around.get("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
    let in_file = file.and_then(|file| std::fs::read_to_string(file).ok());
    let token = in_file.or_else(|| around.get("AWS_CONTAINER_AUTHORIZATION_TOKEN"));
    let header = token.map(|token| format!("authorization: {}\r\n", token.trim()));
    let wrong = |why: &str| {
        Fault::new(Class::Local, format!("the container's credentials at '{url}': {why}"))
    };
    // Only hosts that cannot be somebody else's.
    if !CONTAINER_HOSTS.iter().any(|host| url.starts_with(&format!("http://{host}"))) {
        return Err(wrong("only a host of the container itself is asked over http"));
    }
    let text =
        get(&url, "GET", &header.unwrap_or_default()).map_err(|error| wrong(&error.to_string()))?;
    read(&text, OF_SERVICES).map(Some).ok_or_else(|| wrong("the answer has no credentials"))
}

const CONTAINER_HOSTS: [&str; 5] =
    ["169.254.170.2/", "169.254.170.23/", "127.0.0.1", "localhost", "[fd00:ec2::23]/"];

/// The instance's own role, with a token as version 2 of its service wants it.
fn of_instance(around: &Surroundings) -> Option<Found> {
    let base = around
        .get("AWS_EC2_METADATA_SERVICE_ENDPOINT")
        .unwrap_or_else(|| "http://169.254.169.254".to_string());
    let base = base.trim_end_matches('/');
    let lasts = "x-aws-ec2-metadata-token-ttl-seconds: 300\r\n";
    let token = get(&format!("{base}/latest/api/token"), "PUT", lasts).ok()?;
    let header = format!("x-aws-ec2-metadata-token: {}\r\n", token.trim());
    let roles = format!("{base}/latest/meta-data/iam/security-credentials/");
    let role = get(&roles, "GET", &header).ok()?;
    let text = get(&format!("{roles}{}", role.lines().next()?.trim()), "GET", &header).ok()?;
    read(&text, OF_SERVICES)
}

/// Asks a service of this host. It is there at once or not at all.
fn get(url: &str, method: &str, header: &str) -> std::io::Result<String> {
    let rest = url.strip_prefix("http://").unwrap_or(url);
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    let with_port = if host.contains(':') && !host.ends_with(']') {
        host.to_string()
    } else {
        format!("{host}:80")
    };
    let address = with_port.to_socket_addrs()?.next().ok_or(std::io::ErrorKind::NotFound)?;
    std::net::TcpStream::connect_timeout(&address, THERE_WITHIN)?;
    let mut connection = Connection::open(address, host, (None, THERE_WITHIN))?;
    let head =
        format!("{method} /{path} HTTP/1.1\r\nhost: {host}\r\ncontent-length: 0\r\n{header}\r\n");
    let (answer, _) = connection.ask(&head, b"", method, &mut unmonitored)?;
    let mut text = String::new();
    Body(&mut connection).take(64 << 10).read_to_string(&mut text)?;
    match answer.status {
        200 => Ok(text),
        status => Err(std::io::Error::other(format!("status {status}"))),
    }
}

const THERE_WITHIN: Duration = Duration::from_millis(1000);

struct Body<'a>(&'a mut Connection);

impl Read for Body<'_> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        self.0.read(into, &mut unmonitored)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::TcpListener;

    fn around(pairs: &[(&str, &str)]) -> Surroundings {
        let off = ("AWS_EC2_METADATA_DISABLED", "true");
        let pairs = [off].into_iter().chain(pairs.iter().copied());
        let pairs = pairs.map(|(name, value)| (name.to_string(), value.to_string()));
        Surroundings::of(pairs.collect(), None).unwrap()
    }

    /// Answers one request after the other and closes.
    fn service(answers: &'static [&'static str]) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            let mut answers = answers.iter();
            while let Ok((mut tcp, _)) = listener.accept() {
                let mut asked = [0; 4096];
                if tcp.read(&mut asked).unwrap_or(0) == 0 {
                    continue; // a look whether something is there
                }
                let Some(text) = answers.next() else { return };
                let len = text.len();
                let _ = write!(tcp, "HTTP/1.1 200 OK\r\nContent-Length: {len}\r\n\r\n{text}");
            }
        });
        format!("http://{address}")
    }

    const ANSWER: &str = r#"{"AccessKeyId": "I", "SecretAccessKey": "S", "Token": "T",
                             "Expiration": "2030-01-01T00:00:00Z"}"#;

    #[test]
    fn variables_come_first() {
        let variables = [("AWS_ACCESS_KEY_ID", "I"), ("AWS_SECRET_ACCESS_KEY", "S")];
        let found = find(&around(&variables)).unwrap();
        assert_eq!(found.keys, Keys { id: "I".into(), secret: "S".into(), token: None });
        assert!(!found.is_stale(u64::MAX / 2));
        let none = find(&around(&[])).unwrap_err();
        assert!(none.text.contains("AWS_ACCESS_KEY_ID"), "{none}");
    }

    #[test]
    fn profiles_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let of = |text: &str| {
            let path = folder.path().join("config");
            std::fs::write(&path, text).unwrap();
            find(&around(&[("AWS_CONFIG_FILE", path.to_str().unwrap())]))
        };
        let found = of("[default]\naws_access_key_id=I\naws_secret_access_key=S\n").unwrap();
        assert_eq!(found.keys.id, "I");
        let printed = ANSWER.replace('\n', "").replace("\"Token\"", "\"SessionToken\"");
        let found = of(&format!("[default]\ncredential_process = echo '{printed}'\n")).unwrap();
        assert_eq!(found.keys.token.as_deref(), Some("T"));
        assert!(!found.is_stale(1_893_455_000) && found.is_stale(1_893_456_000));
        for (text, says) in [
            ("[default]\ncredential_process = false\n", "exit status: 1"),
            ("[default]\ncredential_process = echo {}\n", "prints no credentials"),
            ("[default]\nrole_arn = x\n", "has role_arn"),
            ("[default]\nsso_session = x\n", "export-credentials"),
        ] {
            let fault = of(text).unwrap_err();
            assert!(fault.text.contains(says), "{text}: {fault}");
        }
    }

    #[test]
    fn containers_and_instances_are_asked() {
        let url = format!("{}/creds", service(&[ANSWER]));
        let found = find(&around(&[("AWS_CONTAINER_CREDENTIALS_FULL_URI", &url)])).unwrap();
        assert_eq!((&found.keys.id[..], found.keys.token.as_deref()), ("I", Some("T")));
        let elsewhere = ("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://example.com/creds");
        let fault = find(&around(&[elsewhere])).unwrap_err();
        assert!(fault.text.contains("only a host of the container"), "{fault}");
        let url = service(&["TOKEN", "my-role", ANSWER]);
        let pairs =
            [("AWS_EC2_METADATA_SERVICE_ENDPOINT", &url[..]), ("AWS_EC2_METADATA_DISABLED", "no")];
        assert_eq!(find(&around(&pairs)).unwrap().keys.secret, "S");
    }
}
