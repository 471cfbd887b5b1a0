//! One end of a transfer as it is typed: `path`, `[user@]host:path`, `-`, `null:4G`.

use std::ffi::{OsStr, OsString};
use std::net::Ipv6Addr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use base::job::Location;
use base::settings::DataSet;
use base::units::parse_size;

/// A parsed end: the host, and the location there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct EndArg {
    /// `[user@]host` as ssh takes it; `None` for this host.
    pub host: Option<String>,
    pub location: Location,
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
        match split(word)? {
            (None, location) => Ok(EndArg { host: None, location: here(location, role, seed)? }),
            (Some(host), location) => {
                Ok(EndArg { location: there(&host, location, role, seed)?, host: Some(host) })
            }
        }
    }
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
        return Err(format!("'{shown}' is a URL: write [user@]host:path"));
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

/// `[USER@]HOST[:FOLDER]`, where the colon may be missing; the folder is then the home folder.
pub(crate) fn host_and_folder(word: &OsStr) -> Result<(String, PathBuf), String> {
    let text = word.to_str().ok_or("the host's name is not UTF-8")?;
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
        None => Ok(Location::Path(home(word)?)),
    }
}

/// A path is relative to the home folder there, where ssh starts; no shell expands a tilde.
fn home(word: &OsStr) -> Result<PathBuf, String> {
    let bytes = word.as_bytes();
    let path = match bytes {
        b"" | b"~" => b".".to_vec(),
        [b'~', b'/', rest @ ..] => match rest.iter().position(|b| *b != b'/') {
            Some(first) => rest[first..].to_vec(),
            None => b"./".to_vec(),
        },
        [b'~', ..] => {
            let shown = word.to_string_lossy();
            return Err(format!(
                "'{shown}' is not expanded there: write the whole path, or ./{shown}"
            ));
        }
        _ => bytes.to_vec(),
    };
    Ok(PathBuf::from(OsString::from_vec(path)))
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

#[cfg(test)]
mod tests {
    use super::*;

    fn path(path: &str) -> Location {
        Location::Path(PathBuf::from(path))
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
            ("me@host:a b", Some("me@host"), path("a b")),
            ("me@corp@host:a", Some("me@corp@host"), path("a")),
            ("[::1]:a", Some("::1"), path("a")),
            ("me@[fe80::1%eth0]:/a", Some("me@fe80::1%eth0"), path("/a")),
            ("[host]:a", Some("host"), path("a")),
            ("host:null:4G", Some("host"), Location::Null { len: 4 << 30 }),
            ("host:random:1", Some("host"), Location::Random { len: 1, seed: 7 }),
        ];
        for (word, host, location) in cases {
            assert_eq!(read(word), Ok(EndArg { host: host.map(String::from), location }), "{word}");
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
            ("ssh://host/a", "'ssh://host/a' is a URL: write [user@]host:path"),
            ("host:~you/a", "'~you/a' is not expanded there"),
        ];
        for (word, expect) in cases {
            let why = read(word).unwrap_err();
            assert!(why.starts_with(expect), "{word}: {why}");
        }
    }

    #[test]
    fn targets_take_no_size() {
        let target = |word: &str| EndArg::parse(OsStr::new(word), Role::Target, 0);
        assert_eq!(target("null:"), Ok(EndArg { host: None, location: Location::Null { len: 0 } }));
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
