//! One end of a transfer as it is typed: `path`, `[user@]host:path`, `ssh://host:port/path`,
//! `s3://bucket/key`, `-`, `null:4G`.

use std::ffi::{OsStr, OsString};
use std::net::Ipv6Addr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use super::settings::ssh_to;
use base::job::{Location, ObjectUrl, Remote};
use base::settings::DataSet;
use base::units::parse_size;
use mover::remote::launch::Launch;

/// A parsed end: the host, and the location there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct EndArg {
    /// `[user@]host` as ssh takes it; `None` for this host.
    pub host: Option<String>,
    /// The port of ssh that a URL names.
    pub port: Option<u16>,
    pub location: Location,
}

/// Where something is read, and nothing is copied.
#[derive(Debug)]
pub(super) enum ReadAt {
    Here(PathBuf),
    /// Another host reads it.
    There(Launch, PathBuf),
    Store(ObjectUrl),
}

impl ReadAt {
    /// `None` where the word names nothing that lasts.
    pub(super) fn of(word: &OsStr, far: Remote) -> Result<Option<ReadAt>, String> {
        Ok(match EndArg::parse(word, Role::Target, 0)? {
            EndArg { host: None, location: Location::Path(path), .. } => Some(ReadAt::Here(path)),
            EndArg { host: Some(host), location: Location::Path(path), port } => {
                let remote = Remote { ssh: ssh_to(far.ssh.clone(), port, None), ..far };
                Some(ReadAt::There(Launch::Ssh { host, remote }, path))
            }
            EndArg { location: Location::Object(url), .. } => Some(ReadAt::Store(url)),
            _ => None,
        })
    }

    /// The other host, where one reads it.
    pub(super) fn host(&self) -> Option<&String> {
        match self {
            ReadAt::There(Launch::Ssh { host, .. }, _) => Some(host),
            _ => None,
        }
    }
}

/// Which end a word stands for; the two parse generators differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Source,
    Target,
}

impl EndArg {
    /// Reads one word. The error names it and says what to write instead.
    pub(super) fn parse(word: &OsStr, role: Role, seed: u64) -> Result<EndArg, String> {
        if word.is_empty() {
            return Err(
                "an empty word is no file: name a file or a folder ('.' is this one)".into()
            );
        }
        if let Some(url) = word.as_bytes().strip_prefix(STORE_URL) {
            return Ok(EndArg { host: None, port: None, location: object(word, url)? });
        }
        if let Some(url) = word.as_bytes().strip_prefix(URL) {
            let Url { host, port, path } = Url::parse(word, url)?;
            let location = Location::Path(home(OsStr::from_bytes(&path)));
            return Ok(EndArg { host: Some(host), port, location });
        }
        match split(word)? {
            (None, location) => {
                Ok(EndArg { host: None, port: None, location: here(location, role, seed)? })
            }
            (Some(host), location) => {
                let location = there(&host, location, role, seed)?;
                Ok(EndArg { host: Some(host), port: None, location })
            }
        }
    }
}

/// What `s3://bucket/key` names; `rest` is what follows the scheme. A key is written as it is.
fn object(word: &OsStr, rest: &[u8]) -> Result<Location, String> {
    let shown = word.to_string_lossy();
    let rest = std::str::from_utf8(rest)
        .map_err(|_| format!("'{shown}' is not UTF-8, as keys of a store are"))?;
    let (bucket, key) = rest.split_once('/').unwrap_or((rest, ""));
    if bucket.is_empty() {
        return Err(format!("'{shown}' names no bucket: write s3://BUCKET/KEY"));
    }
    let key = key.trim_start_matches('/');
    if key.contains('\0') || key.split('/').any(|part| matches!(part, "." | "..")) {
        return Err(format!("'{shown}': a key with '.' or '..' between slashes is no name here"));
    }
    Ok(Location::Object(ObjectUrl { bucket: bucket.to_string(), key: key.to_string() }))
}

/// What `ssh://[user@]host[:port][/path]` names. As with git, the path begins at the root, and
/// `/~/` is the home folder.
struct Url {
    host: String,
    port: Option<u16>,
    /// Empty for the home folder.
    path: Vec<u8>,
}

impl Url {
    /// `rest` is what follows the scheme.
    fn parse(word: &OsStr, rest: &[u8]) -> Result<Url, String> {
        let shown = word.to_string_lossy();
        let wrong = |why: &str| format!("'{shown}': {why}: write ssh://[user@]host[:port]/path");
        let (front, path) =
            rest.split_at(rest.iter().position(|b| *b == b'/').unwrap_or(rest.len()));
        let front = std::str::from_utf8(front).map_err(|_| wrong("the host is not UTF-8"))?;
        let (user, name) = match front.rsplit_once('@') {
            Some((user, name)) => (Some(user), name),
            None => (None, front),
        };
        if user.is_some_and(|user| user.contains(':')) {
            return Err(wrong("a password has no place in a URL, ssh asks for it"));
        }
        let (name, port) = match name.rsplit_once(':') {
            Some((name, port)) if name.starts_with('[') == name.ends_with(']') => {
                (name, Some(port))
            }
            _ => (name, None),
        };
        let number = |port: &str| match port.parse() {
            Ok(port @ 1_u16..) => Ok(port),
            _ => Err(wrong("a port is a number from 1 to 65535")),
        };
        if !name.starts_with('[') && name.contains(':') {
            return Err(wrong("put an IPv6 address in brackets"));
        }
        let typed = user.map_or(name.to_string(), |user| format!("{user}@{name}"));
        let path = decoded(path).ok_or_else(|| wrong("a % in a URL is written as %25"))?;
        let path = path.strip_prefix(b"/").filter(|path| path.starts_with(b"~")).unwrap_or(&path);
        Ok(Url {
            host: host(&shown, &typed)?,
            port: port.map(number).transpose()?,
            path: path.to_vec(),
        })
    }
}

/// The bytes of a path in a URL; `None` where a `%` is not followed by a byte that a name may have.
fn decoded(path: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = path.iter();
    let mut decoded = Vec::with_capacity(path.len());
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'%' => {
                let digits = [*bytes.next()?, *bytes.next()?];
                let digits = std::str::from_utf8(&digits).ok()?;
                let byte = u8::from_str_radix(digits, 16).ok()?;
                Some(byte).filter(|byte| *byte > 0 && !digits.starts_with('+'))?
            }
            byte => *byte,
        });
    }
    Some(decoded)
}

/// Splits a word at the colon after the host. As with scp, a colon after a slash is part of a name,
/// and so is a leading colon.
fn split(word: &OsStr) -> Result<(Option<String>, &OsStr), String> {
    let bytes = word.as_bytes();
    if generator(word).is_some() {
        return Ok((None, word));
    }
    let Some(at) = host_end(bytes) else {
        return Ok((None, word));
    };
    let path = OsStr::from_bytes(&bytes[at + 1..]);
    let shown = word.to_string_lossy();
    if path.as_bytes().starts_with(b"//") {
        return Err(format!(
            "'{shown}' is a URL that datapump does not know: write [user@]host:path, or \
             ssh://[user@]host[:port]/path, or s3://bucket/key"
        ));
    }
    let typed = std::str::from_utf8(&bytes[..at]).map_err(|_| {
        format!("'{shown}': the host's name is not UTF-8 (write ./ in front of a file)")
    })?;
    if let Some(address) = bare_v6(bytes) {
        return Err(format!(
            "'{shown}': put an IPv6 address in brackets, as in [{address}]:path \
             (write ./ in front of a file)"
        ));
    }
    if path.as_bytes().starts_with(b":") {
        return Err(format!(
            "'{shown}' is an rsync module: write [user@]host:path (host:./:name for a colon)"
        ));
    }
    if typed == "s3" {
        let key = String::from_utf8_lossy(path.as_bytes()).into_owned();
        return Err(format!(
            "'{shown}' would be a file of a host that is called s3: write s3://{} for a store, or \
             ssh://s3/PATH for that host",
            key.trim_start_matches('/')
        ));
    }
    Ok((Some(host(&shown, typed)?), path))
}

/// The position of the colon after the host, if there is one.
fn host_end(bytes: &[u8]) -> Option<usize> {
    let slash = bytes.iter().position(|b| *b == b'/').unwrap_or(bytes.len());
    let front = &bytes[..slash];
    let address = match front.iter().position(|b| *b == b'[') {
        Some(0) => Some(0),
        Some(open) if front[open - 1] == b'@' => Some(open),
        _ => None,
    };
    if let Some(open) = address {
        let close = open + front[open..].iter().position(|b| *b == b']')?;
        return (front.get(close + 1) == Some(&b':')).then_some(close + 1);
    }
    front.iter().position(|b| *b == b':').filter(|at| *at > 0)
}

/// The IPv6 address at the front of a word that should have had brackets.
fn bare_v6(bytes: &[u8]) -> Option<Ipv6Addr> {
    let text = std::str::from_utf8(bytes).ok()?;
    let text = text.split('/').next()?;
    let text = text.rsplit_once('@').map_or(text, |(_, host)| host);
    let ends = text.match_indices(':').map(|(at, _)| at).chain([text.len()]);
    ends.filter_map(|end| text[..end].parse().ok()).next_back()
}

/// The host of an end of a copy, as it is typed.
pub(super) fn host_of(word: &OsStr) -> Option<String> {
    if word.as_bytes().starts_with(STORE_URL) {
        return None;
    }
    match word.as_bytes().strip_prefix(URL) {
        Some(url) => Url::parse(word, url).ok().map(|url| url.host),
        None => split(word).ok()?.0,
    }
}

/// The host of a word that is one, perhaps with a folder.
pub(super) fn host_as_typed(word: &OsStr) -> Result<String, String> {
    match host_of(word) {
        Some(host) => Ok(host),
        None => host_and_folder(word).map(|(host, _)| host),
    }
}

/// `[USER@]HOST[:FOLDER]`, where the colon may be missing; the folder is then the home folder.
pub(crate) fn host_and_folder(word: &OsStr) -> Result<(String, PathBuf), String> {
    let text = word.to_str().ok_or("the host's name is not UTF-8")?;
    if text.contains("://") {
        return Err(format!("'{text}' is a URL: write [user@]host, and --port for a port of ssh"));
    }
    let end = host_end(text.as_bytes()).unwrap_or(text.len());
    let folder = text.get(end + 1..).filter(|folder| !folder.is_empty()).unwrap_or(".");
    Ok((host(text, &text[..end])?, PathBuf::from(folder)))
}

/// Checks a host and removes its brackets.
fn host(word: &str, typed: &str) -> Result<String, String> {
    let (user, name) = match typed.rsplit_once('@') {
        Some((user, name)) => (Some(user), name),
        None => (None, typed),
    };
    let bare = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    if user == Some("") {
        return Err(format!("'{word}': no user before the @"));
    }
    if bare.is_empty() {
        return Err(format!("'{word}': no host before the colon"));
    }
    // ssh would take such a word as one of its options.
    if typed.starts_with('-') || bare.starts_with('-') {
        return Err(format!(
            "'{word}': a host does not begin with a dash (write ./ in front of a file)"
        ));
    }
    if typed.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return Err(format!(
            "'{word}': a host cannot contain spaces (write ./ in front of a file)"
        ));
    }
    Ok(user.map_or(bare.to_string(), |user| format!("{user}@{bare}")))
}

fn here(word: &OsStr, role: Role, seed: u64) -> Result<Location, String> {
    if word == "-" {
        return Ok(Location::Stdio);
    }
    match generator(word) {
        Some((kind, size)) => generated(kind, size, role, seed),
        None => Ok(Location::Path(PathBuf::from(word))),
    }
}

fn there(host: &str, word: &OsStr, role: Role, seed: u64) -> Result<Location, String> {
    if word == "-" {
        return Err(format!(
            "'{host}:-': the far side's standard input and output carry the protocol; \
             name a file there, or run datapump there"
        ));
    }
    match generator(word) {
        Some((kind, size)) => generated(kind, size, role, seed),
        None => Ok(Location::Path(home(word))),
    }
}

/// A path is relative to the home folder there, where ssh starts; no shell expands a tilde. The
/// home folder of another user is the far side's to find.
fn home(word: &OsStr) -> PathBuf {
    let bytes = word.as_bytes();
    let path = match bytes {
        b"" | b"~" => b".".to_vec(),
        [b'~', b'/', rest @ ..] => match rest.iter().position(|b| *b != b'/') {
            Some(first) => rest[first..].to_vec(),
            None => b"./".to_vec(),
        },
        // The folder alone is what is in it, as with ~.
        [b'~', rest @ ..] if !rest.contains(&b'/') => [bytes, b"/"].concat(),
        _ => bytes.to_vec(),
    };
    PathBuf::from(OsString::from_vec(path))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Generator {
    Null,
    Zero,
    Random,
    Set(DataSet),
}

impl Generator {
    fn name(self) -> &'static str {
        match self {
            Generator::Null => "null",
            Generator::Zero => "zero",
            Generator::Random => "random",
            Generator::Set(set) => set.name(),
        }
    }
}

/// A generator, and its size as typed.
fn generator(word: &OsStr) -> Option<(Generator, &OsStr)> {
    let sets = DataSet::ALL.iter().map(|set| Generator::Set(*set));
    [Generator::Null, Generator::Zero, Generator::Random].into_iter().chain(sets).find_map(
        |generator| {
            let behind = word.as_bytes().strip_prefix(generator.name().as_bytes())?;
            Some((generator, OsStr::from_bytes(behind.strip_prefix(b":")?)))
        },
    )
}

fn generated(kind: Generator, size: &OsStr, role: Role, seed: u64) -> Result<Location, String> {
    let name = kind.name();
    match (role, kind) {
        (Role::Target, Generator::Null) if size.is_empty() => return Ok(Location::Null { len: 0 }),
        (Role::Target, Generator::Null) => {
            return Err(
                "null: accepts any amount of data: write null: without a size as the destination"
                    .into(),
            );
        }
        (Role::Target, _) => {
            return Err(format!("{name}: only generates data: write null: as the destination"));
        }
        (Role::Source, _) if size.is_empty() => {
            return Err(format!("{name}: as a source needs a size: write {name}:4G"));
        }
        (Role::Source, _) => {}
    }
    let text = size.to_string_lossy();
    let len = parse_size(&text).map_err(|why| format!("{name}:{text}: {why}"))?;
    Ok(match kind {
        Generator::Null => Location::Null { len },
        Generator::Zero => Location::Zero { len },
        Generator::Random => Location::Random { len, seed },
        Generator::Set(set) => Location::Synthetic { set, len, seed },
    })
}

const URL: &[u8] = b"ssh://";
const STORE_URL: &[u8] = b"s3://";

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn where_something_is_read() {
        let at = |word| ReadAt::of(OsStr::new(word), Remote::default());
        assert!(matches!(at("a/"), Ok(Some(ReadAt::Here(path))) if path == Path::new("a/")));
        let there = at("ssh://h:23/a").unwrap();
        let Some(ReadAt::There(Launch::Ssh { host, remote }, path)) = there else {
            panic!("{there:?}")
        };
        assert_eq!((&host[..], path.as_path()), ("h", Path::new("/a")));
        assert_eq!(remote.ssh.unwrap().join(" "), "ssh -p 23");
        assert!(matches!(at("s3://b/k"), Ok(Some(ReadAt::Store(_)))));
        assert!(matches!(at("-"), Ok(None)));
    }

    fn path(path: &str) -> Location {
        Location::Path(PathBuf::from(path))
    }

    fn null_here() -> EndArg {
        EndArg { host: None, port: None, location: Location::Null { len: 0 } }
    }

    fn read(word: &str) -> Result<EndArg, String> {
        EndArg::parse(OsStr::new(word), Role::Source, 7)
    }

    #[test]
    fn words_are_read_as_scp_reads_them() {
        let cases = [
            ("a", None, path("a")),
            ("a/", None, path("a/")),
            ("./a:b", None, path("./a:b")),
            ("/x:y", None, path("/x:y")),
            ("a/b:c", None, path("a/b:c")),
            (":a", None, path(":a")),
            ("[a]", None, path("[a]")),
            ("[a]b:c", None, path("[a]b:c")),
            ("-", None, Location::Stdio),
            ("./-", None, path("./-")),
            ("null:4G", None, Location::Null { len: 4 << 30 }),
            ("zero:1", None, Location::Zero { len: 1 }),
            ("random:2K", None, Location::Random { len: 2048, seed: 7 }),
            ("text:2K", None, Location::Synthetic { set: DataSet::Text, len: 2048, seed: 7 }),
            ("h:mix:1", Some("h"), Location::Synthetic { set: DataSet::Mix, len: 1, seed: 7 }),
            ("host:a", Some("host"), path("a")),
            ("host:/a:b", Some("host"), path("/a:b")),
            ("host:", Some("host"), path(".")),
            ("host:~", Some("host"), path(".")),
            ("host:~/a/", Some("host"), path("a/")),
            ("host:~//a", Some("host"), path("a")),
            ("host:~/", Some("host"), path("./")),
            ("host:~you/a", Some("host"), path("~you/a")),
            ("host:~you", Some("host"), path("~you/")),
            ("host:./~you", Some("host"), path("./~you")),
            ("host:/a/*.b", Some("host"), path("/a/*.b")),
            ("me@host:a b", Some("me@host"), path("a b")),
            ("me@corp@host:a", Some("me@corp@host"), path("a")),
            ("[::1]:a", Some("::1"), path("a")),
            ("me@[fe80::1%eth0]:/a", Some("me@fe80::1%eth0"), path("/a")),
            ("[host]:a", Some("host"), path("a")),
            ("host:null:4G", Some("host"), Location::Null { len: 4 << 30 }),
            ("host:random:1", Some("host"), Location::Random { len: 1, seed: 7 }),
        ];
        for (word, host, location) in cases {
            let host = host.map(String::from);
            assert_eq!(read(word), Ok(EndArg { host, port: None, location }), "{word}");
        }
    }

    #[test]
    fn urls() {
        let cases = [
            ("ssh://h", "h", None, "."),
            ("ssh://h/", "h", None, "/"),
            ("ssh://h/a/b", "h", None, "/a/b"),
            ("ssh://me@h:2222/a", "me@h", Some(2222), "/a"),
            ("ssh://h/~", "h", None, "."),
            ("ssh://h/~/a/", "h", None, "a/"),
            ("ssh://h:22/~you/a", "h", Some(22), "~you/a"),
            ("ssh://h/~you", "h", None, "~you/"),
            ("ssh://[::1]/a", "::1", None, "/a"),
            ("ssh://me@[fe80::1%eth0]:22/a", "me@fe80::1%eth0", Some(22), "/a"),
            ("ssh://h/a%20b%25/%ff", "h", None, "/a b%/\u{fffd}"),
            ("ssh://h/null:4G", "h", None, "/null:4G"),
            ("ssh://h/*.tar", "h", None, "/*.tar"),
        ];
        for (word, host, port, location) in cases {
            let end = read(word).unwrap();
            let Location::Path(path) = end.location else { panic!("{word}") };
            assert_eq!((end.host.as_deref(), end.port), (Some(host), port), "{word}");
            assert_eq!(path.to_string_lossy(), location, "{word}");
            assert_eq!(host_of(OsStr::new(word)).as_deref(), Some(host), "{word}");
        }
        let wrong = [
            ("ssh://", "'ssh://': no host before the colon"),
            ("ssh:///a", "'ssh:///a': no host"),
            ("ssh://h:0/a", "'ssh://h:0/a': a port is a number from 1 to 65535"),
            ("ssh://h:/a", "'ssh://h:/a': a port is a number"),
            ("ssh://h:65536/a", "'ssh://h:65536/a': a port is a number"),
            ("ssh://::1/a", "'ssh://::1/a': put an IPv6 address in brackets"),
            ("ssh://me:pw@h/a", "'ssh://me:pw@h/a': a password has no place in a URL"),
            ("ssh://-oX/a", "'ssh://-oX/a': a host does not begin with a dash"),
            ("ssh://h/a%", "'ssh://h/a%': a % in a URL is written as %25"),
            ("ssh://h/a%00", "'ssh://h/a%00': a % in a URL"),
            ("ssh://h/a%+1", "'ssh://h/a%+1': a % in a URL"),
            ("scp://h/a", "'scp://h/a' is a URL that datapump does not know: write"),
        ];
        for (word, expect) in wrong {
            let why = read(word).unwrap_err();
            assert!(why.starts_with(expect), "{word}: {why}");
        }
    }

    #[test]
    fn urls_of_stores_name_objects() {
        let cases = [
            ("s3://b/a/b%20c", "b", "a/b%20c"),
            ("s3://b/a/", "b", "a/"),
            ("s3://b", "b", ""),
            ("s3://b//a:b", "b", "a:b"),
        ];
        for (word, bucket, key) in cases {
            let url = ObjectUrl { bucket: bucket.into(), key: key.into() };
            let expect = EndArg { host: None, port: None, location: Location::Object(url) };
            assert_eq!(read(word), Ok(expect), "{word}");
            assert_eq!(host_of(OsStr::new(word)), None, "{word}");
        }
        for (word, expect) in [
            ("s3:///a", "'s3:///a' names no bucket"),
            ("s3://b/a/../c", "'s3://b/a/../c': a key with '.' or '..'"),
            ("s3://b/.", "'s3://b/.': a key with"),
        ] {
            let why = read(word).unwrap_err();
            assert!(why.starts_with(expect), "{word}: {why}");
        }
    }

    #[test]
    fn wrong_words_are_told_what_to_write() {
        let cases = [
            ("", "an empty word is no file"),
            ("null:", "null: as a source needs a size: write null:4G"),
            ("records:", "records: as a source needs a size: write records:4G"),
            ("random:x", "random:x: 'x' does not begin with a number"),
            ("host:zero:", "zero: as a source needs a size"),
            ("host:-", "'host:-': the far side's standard input"),
            ("-oProxyCommand=x:a", "'-oProxyCommand=x:a': a host does not begin with a dash"),
            ("me@-x:a", "'me@-x:a': a host does not begin with a dash"),
            ("@host:a", "'@host:a': no user before the @"),
            ("me@:a", "'me@:a': no host before the colon"),
            ("[]:a", "'[]:a': no host before the colon"),
            ("a b:c", "'a b:c': a host cannot contain spaces"),
            ("fe80::1:x", "'fe80::1:x': put an IPv6 address in brackets, as in [fe80::1]:path"),
            ("host::module", "'host::module' is an rsync module"),
            ("me@::1", "'me@::1': put an IPv6 address in brackets"),
        ];
        for (word, expect) in cases {
            let why = read(word).unwrap_err();
            assert!(why.starts_with(expect), "{word}: {why}");
        }
    }

    #[test]
    fn targets_take_no_size() {
        let target = |word: &str| EndArg::parse(OsStr::new(word), Role::Target, 0);
        assert_eq!(target("null:"), Ok(null_here()));
        assert_eq!(target("h:null:").unwrap().host.as_deref(), Some("h"));
        assert!(target("null:4G").unwrap_err().contains("without a size"));
        assert!(target("zero:").unwrap_err().contains("write null:"));
        assert!(target("random:4G").unwrap_err().contains("write null:"));
    }

    #[test]
    fn paths_need_not_be_utf8_but_hosts_must() {
        let end = EndArg::parse(OsStr::from_bytes(b"host:\xff"), Role::Source, 0).unwrap();
        assert_eq!(end.location, Location::Path(PathBuf::from(OsStr::from_bytes(b"\xff"))));
        assert!(EndArg::parse(OsStr::from_bytes(b"\xff:a"), Role::Source, 0).is_err());
    }
}
