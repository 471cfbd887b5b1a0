//! Credentials, where AWS' own tools look for them and in their order: a profile that was typed, or
//! variables, then a profile, a program that it names, a container, the instance.

use std::io::{self, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::addresses;
use crate::connection::{Connection, unmonitored};
use crate::dates;
use crate::settings::Surroundings;
use crate::signing::Keys;
use crate::waits::{Limits, SILENT_MAX, Stop, Wait, is_stopped};
use base::fault::{Class, Fault};

/// Keys and when they expire, in seconds since 1970.
#[derive(Clone, Debug)]
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
pub(crate) fn find(around: &Surroundings, stop: &Stop) -> Result<Found, Fault> {
    // A profile that was typed is not another account than it says.
    if !around.is_typed
        && let (Some(id), Some(secret)) =
            (around.get("AWS_ACCESS_KEY_ID"), around.get("AWS_SECRET_ACCESS_KEY"))
    {
        return Ok(lasting(Keys::of(id, secret, around.get("AWS_SESSION_TOKEN"))));
    }
    if let (Some(id), Some(secret)) =
        (around.of_profile("aws_access_key_id"), around.of_profile("aws_secret_access_key"))
    {
        return Ok(lasting(Keys::of(id, secret, around.of_profile("aws_session_token"))));
    }
    if let Some(command) = around.of_profile("credential_process") {
        return of_program(around, &command, &mut Wait::new(Limits::of(SILENT_MAX), stop));
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
    let mut near = Wait::new(Limits::near(), stop);
    if let Some(found) = of_container(around, &mut near)? {
        return Ok(found);
    }
    if around.get("AWS_EC2_METADATA_DISABLED").is_none_or(|off| off != "true")
        && let Some(found) = of_instance(around, &mut near)?
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

/// What the program prints that a profile names. What it was started with may be a secret.
fn of_program(around: &Surroundings, command: &str, wait: &mut Wait) -> Result<Found, Fault> {
    let name = &around.profile_name;
    let wrong = |why: String| {
        Fault::new(Class::Local, format!("the credential_process of '{name}': {why}"))
    };
    let ran = output_of(command, wait).map_err(|error| match is_stopped(&error) {
        true => Fault::interrupted(),
        false => wrong(error.to_string()),
    })?;
    if !ran.status.success() {
        let said = String::from_utf8_lossy(&ran.stderr);
        return Err(wrong(format!("{}: {}", ran.status, said.trim())));
    }
    let text = String::from_utf8_lossy(&ran.stdout);
    read(&text, ["AccessKeyId", "SecretAccessKey", "SessionToken"])
        .ok_or_else(|| wrong("it prints no credentials".to_string()))
}

/// Runs a command until it ends, or the wait for it does. It may ask somebody for a code.
pub(crate) fn output_of(command: &str, wait: &mut Wait) -> io::Result<Output> {
    let mut child = Command::new("sh")
        .args(["-c", command])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let read = |pipe: Option<Box<dyn Read + Send>>| {
        let mut bytes = Vec::new();
        match pipe {
            Some(pipe) => pipe.take(ANSWER_BYTES_MAX).read_to_end(&mut bytes).map(|_| bytes),
            None => Ok(bytes),
        }
    };
    let text = move || {
        let said = std::thread::spawn(move || read(stderr.map(|pipe| Box::new(pipe) as _)));
        let printed = read(stdout.map(|pipe| Box::new(pipe) as _))?;
        Ok((printed, said.join().unwrap_or(Ok(Vec::new()))?))
    };
    let ended = wait.at_most(wait.limits.head).apart(text).and_then(|(stdout, stderr)| {
        // One that prints without end is at its end when nobody reads any more.
        while child.try_wait()?.is_none() {
            wait.sleep(LOOK_PAUSE)?;
        }
        Ok(Output { status: child.wait()?, stdout, stderr })
    });
    if ended.is_err() {
        let _ = child.kill();
        let _ = child.wait();
    }
    ended
}

/// Credentials as JSON, under these names.
fn read(text: &str, [id, secret, token]: [&str; 3]) -> Option<Found> {
    let value: Value = serde_json::from_str(text).ok()?;
    let get = |name: &str| value[name].as_str().map(String::from);
    let expires = get("Expiration").and_then(|date| dates::iso(&date.replace("+00:00", "Z")));
    Some(Found {
        keys: Keys::of(get(id)?, get(secret)?, get(token)),
        expires_unix_s: expires.map(|(seconds, _)| seconds.max(0) as u64),
    })
}

const OF_SERVICES: [&str; 3] = ["AccessKeyId", "SecretAccessKey", "Token"];

fn of_container(around: &Surroundings, wait: &mut Wait) -> Result<Option<Found>, Fault> {
    let url = match around.get("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI") {
        Some(path) => format!("http://169.254.170.2{path}"),
        None => match around.get("AWS_CONTAINER_CREDENTIALS_FULL_URI") {
            Some(url) => url,
            None => return Ok(None),
        },
    };
    let wrong = |why: &str| {
        Fault::new(Class::Local, format!("the container's credentials at '{url}': {why}"))
    };
    let place = Service::of(&url).filter(|place| place.is_of_container());
    let Some(place) = place else {
        return Err(wrong("only a host of the container itself is asked over http"));
    };
    let file = around.get("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
    let in_file = file.and_then(|file| std::fs::read_to_string(file).ok());
    let token = in_file.or_else(|| around.get("AWS_CONTAINER_AUTHORIZATION_TOKEN"));
    let header = token.map(|token| format!("authorization: {}\r\n", token.trim()));
    let text = place.get("GET", &header.unwrap_or_default(), wait);
    let text = text.map_err(|error| match is_stopped(&error) {
        true => Fault::interrupted(),
        false => wrong(&error.to_string()),
    })?;
    read(&text, OF_SERVICES).map(Some).ok_or_else(|| wrong("the answer has no credentials"))
}

/// The instance's own role, with a token as version 2 of its service wants it.
fn of_instance(around: &Surroundings, wait: &mut Wait) -> Result<Option<Found>, Fault> {
    let asked = ask_instance(around, wait);
    match asked {
        Err(error) if is_stopped(&error) => Err(Fault::interrupted()),
        asked => Ok(asked.ok().and_then(|text| read(&text, OF_SERVICES))),
    }
}

fn ask_instance(around: &Surroundings, wait: &mut Wait) -> io::Result<String> {
    let base = around
        .get("AWS_EC2_METADATA_SERVICE_ENDPOINT")
        .unwrap_or_else(|| "http://169.254.169.254".to_string());
    let base = base.trim_end_matches('/');
    let mut get = |path: &str, method: &str, header: &str| {
        let place = Service::of(&format!("{base}{path}")).ok_or(io::ErrorKind::NotFound)?;
        place.get(method, header, wait)
    };
    let lasts = "x-aws-ec2-metadata-token-ttl-seconds: 300\r\n";
    let token = get("/latest/api/token", "PUT", lasts)?;
    let header = format!("x-aws-ec2-metadata-token: {}\r\n", token.trim());
    let roles = "/latest/meta-data/iam/security-credentials/";
    let role = get(roles, "GET", &header)?;
    let role = role.lines().next().ok_or(io::ErrorKind::NotFound)?;
    get(&format!("{roles}{}", role.trim()), "GET", &header)
}

/// A URL of a service of this host. It is there at once or not at all.
#[derive(Debug)]
pub(crate) struct Service {
    /// With its port, where it has one.
    host: String,
    /// Without it, and without brackets.
    name: String,
    port: u16,
    path: String,
}

impl Service {
    pub(crate) fn of(url: &str) -> Option<Service> {
        let rest = url.strip_prefix("http://")?;
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (host, path) = rest.split_at(end);
        let (name, port) = match host.rsplit_once(':') {
            Some((name, port)) if !port.ends_with(']') => (name, port.parse().ok()?),
            _ => (host, 80),
        };
        let name = match name.strip_prefix('[') {
            Some(name) => name.strip_suffix(']')?,
            None => name,
        };
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-:_".contains(&byte);
        let is_host = !name.is_empty() && name.bytes().all(is_plain);
        let is_path = path.bytes().all(|byte| byte.is_ascii_graphic());
        let path = if path.starts_with('/') { path.to_string() } else { format!("/{path}") };
        let (host, name) = (host.to_string(), name.to_string());
        (is_host && is_path).then_some(Service { host, name, port, path })
    }

    /// One that cannot be somebody else's.
    fn is_of_container(&self) -> bool {
        match self.name.parse::<IpAddr>() {
            Ok(address) => CONTAINER_HOSTS.contains(&address),
            Err(_) => self.name == "localhost",
        }
    }

    pub(crate) fn get(&self, method: &str, header: &str, wait: &mut Wait) -> io::Result<String> {
        let Service { host, name, port, path } = self;
        let address = match name.parse() {
            Ok(address) => SocketAddr::new(address, *port),
            Err(_) => addresses::find(&format!("{name}:{port}"), wait)?[0],
        };
        if name == "localhost" && !address.ip().is_loopback() {
            return Err(io::Error::other("localhost is another host"));
        }
        let mut connection = Connection::open(address, host, None, wait.clone())?;
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: {host}\r\ncontent-length: 0\r\n{header}\r\n"
        );
        let (answer, _) = connection.ask(&head, b"", method, &mut unmonitored)?;
        connection.expect_text();
        let mut text = String::new();
        Body(&mut connection).take(ANSWER_BYTES_MAX).read_to_string(&mut text)?;
        match answer.status {
            200 => Ok(text),
            status => Err(io::Error::other(format!("status {status}"))),
        }
    }
}

const CONTAINER_HOSTS: [IpAddr; 5] = [
    IpAddr::V4(Ipv4Addr::new(169, 254, 170, 2)),
    IpAddr::V4(Ipv4Addr::new(169, 254, 170, 23)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x23)),
    IpAddr::V4(Ipv4Addr::LOCALHOST),
    IpAddr::V6(Ipv6Addr::LOCALHOST),
];
const ANSWER_BYTES_MAX: u64 = 64 << 10;
const LOOK_PAUSE: Duration = Duration::from_millis(20);

struct Body<'a>(&'a mut Connection);

impl Read for Body<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.read(into, &mut unmonitored)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use secrecy::ExposeSecret;
    use std::io::Write;
    use std::net::TcpListener;

    fn told(found: &Found) -> (&str, &str, Option<&str>) {
        let Keys { id, secret, token } = &found.keys;
        (id, secret.expose_secret(), token.as_ref().map(ExposeSecret::expose_secret))
    }

    fn around(pairs: &[(&str, &str)]) -> Surroundings {
        let off = ("AWS_EC2_METADATA_DISABLED", "true");
        let pairs = [off].into_iter().chain(pairs.iter().copied());
        let pairs = pairs.map(|(name, value)| (name.to_string(), value.to_string()));
        Surroundings::of(pairs.collect(), None).unwrap()
    }

    fn of(around: &Surroundings) -> Result<Found, Fault> {
        find(around, &Stop::default())
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
        let found = of(&around(&variables)).unwrap();
        assert_eq!(told(&found), ("I", "S", None));
        assert!(!found.is_stale(u64::MAX / 2));
        let none = of(&around(&[])).unwrap_err();
        assert!(none.text.contains("AWS_ACCESS_KEY_ID"), "{none}");
    }

    #[test]
    fn profiles_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let of = |text: &str| {
            let path = folder.path().join("config");
            std::fs::write(&path, text).unwrap();
            of(&around(&[("AWS_CONFIG_FILE", path.to_str().unwrap())]))
        };
        let found = of("[default]\naws_access_key_id=I\naws_secret_access_key=S\n").unwrap();
        assert_eq!(found.keys.id, "I");
        let printed = ANSWER.replace('\n', "").replace("\"Token\"", "\"SessionToken\"");
        let found = of(&format!("[default]\ncredential_process = echo '{printed}'\n")).unwrap();
        assert_eq!(told(&found).2, Some("T"));
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
        let found = of(&around(&[("AWS_CONTAINER_CREDENTIALS_FULL_URI", &url)])).unwrap();
        assert_eq!((told(&found).0, told(&found).2), ("I", Some("T")));
        let url = service(&["TOKEN", "my-role", ANSWER]);
        let pairs =
            [("AWS_EC2_METADATA_SERVICE_ENDPOINT", &url[..]), ("AWS_EC2_METADATA_DISABLED", "no")];
        assert_eq!(told(&of(&around(&pairs)).unwrap()).1, "S");
    }

    /// A host is compared as a host: none that begins alike gets the token.
    #[test]
    fn the_token_of_a_container_goes_to_its_own_hosts_only() {
        for (url, is_own) in [
            ("http://169.254.170.2/creds", true),
            ("http://169.254.170.23:80/creds", true),
            ("http://127.0.0.1:8080/creds", true),
            ("http://127.0.0.1", true),
            ("http://localhost/creds", true),
            ("http://localhost:1/creds", true),
            ("http://[fd00:ec2::23]/creds", true),
            ("http://[::1]:9/creds", true),
            ("http://127.0.0.199:1/creds", false),
            ("http://127.0.0.1.example.com/creds", false),
            ("http://127.0.0.1@example.com/creds", false),
            ("http://localhost.example.com/creds", false),
            ("http://localhost@example.com/creds", false),
            ("http://localhostile/creds", false),
            ("http://169.254.170.2.example.com/creds", false),
            ("http://169.254.170.25/creds", false),
            ("http://[fd00:ec2::24]/creds", false),
            ("http://[fd00:ec2::23].example.com/creds", false),
            ("http://localhost?@example.com/creds", true),
            ("http://localhost:x/creds", false),
            ("http:///creds", false),
            ("https://localhost/creds", false),
            ("http://example.com/creds", false),
        ] {
            let own = Service::of(url).filter(Service::is_of_container);
            assert_eq!(own.is_some(), is_own, "{url}");
        }
        let elsewhere = ("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://localhost.example/creds");
        let fault = of(&around(&[elsewhere])).unwrap_err();
        assert!(fault.text.contains("only a host of the container"), "{fault}");
    }
}
