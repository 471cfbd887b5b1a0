//! `~USER` at the front of a path that was typed for this host elsewhere: no shell has seen it.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use base::fault::Fault;
use base::job::Location;

/// The same places with the home folder of each user who is named. A path without `~` is taken from
/// the folder where ssh starts, which is the home folder of the user who has logged in.
pub fn expanded(locations: &[Location]) -> Result<Vec<Location>, Fault> {
    let expand = |location: &Location| match location {
        Location::Path(path) => expand(path, home_of).map(Location::Path),
        other => Ok(other.clone()),
    };
    locations.iter().map(expand).collect()
}

/// The same for a side that is limited to a folder: that is the home folder, and of nobody else's
/// anything is said.
pub(crate) fn expanded_beneath(locations: &[Location]) -> Result<Vec<Location>, Fault> {
    let expand = |location: &Location| match location {
        Location::Path(path) => expand(path, |_| None).map(Location::Path),
        other => Ok(other.clone()),
    };
    locations.iter().map(expand).collect()
}

fn expand(path: &Path, home_of: impl Fn(&str) -> Option<PathBuf>) -> Result<PathBuf, Fault> {
    let Some(rest) = path.as_os_str().as_bytes().strip_prefix(b"~") else {
        return Ok(path.to_path_buf());
    };
    let end = rest.iter().position(|byte| *byte == b'/').unwrap_or(rest.len());
    let (user, below) = rest.split_at(end);
    let home = match std::str::from_utf8(user) {
        Ok("") => Some(PathBuf::from(".")),
        Ok(user) => home_of(user),
        Err(_) => None,
    };
    let home = home.ok_or_else(|| {
        Fault::usage(format!(
            "'{}': there is no user '{}' here: write the whole path, or ./~ for a name that begins \
             with ~",
            path.display(),
            user.escape_ascii()
        ))
    })?;
    let whole = [home.into_os_string().as_bytes(), below].concat();
    Ok(PathBuf::from(std::ffi::OsString::from_vec(whole)))
}

/// As the system's files know it, or what else it asks for users, such as LDAP: a static program
/// cannot ask that itself.
fn home_of(user: &str) -> Option<PathBuf> {
    let file = fs::read("/etc/passwd").unwrap_or_default();
    home_in(&file, user).or_else(|| {
        let mut command = Command::new("getent");
        let asked = command.args(["passwd", "--", user]).stdin(Stdio::null()).output().ok()?;
        home_in(&asked.stdout, user)
    })
}

/// The home folder in lines of `passwd(5)`.
fn home_in(lines: &[u8], user: &str) -> Option<PathBuf> {
    lines.split(|byte| *byte == b'\n').find_map(|line| {
        let mut fields = line.split(|byte| *byte == b':');
        let home = (fields.next() == Some(user.as_bytes())).then(|| fields.nth(4))??;
        (!home.is_empty()).then(|| PathBuf::from(OsStr::from_bytes(home)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn homes_of_users() {
        let lines = b"root:x:0:0:root:/r:/bin/sh\nme:x:1:1::/h/me:\nnone:x:2:2:::\n+\n";
        let home = |user: &str| home_in(lines, user);
        let cases = [
            ("a", Ok("a")),
            ("/a~", Ok("/a~")),
            ("./~me", Ok("./~me")),
            ("~/a", Ok("./a")),
            ("~me/", Ok("/h/me/")),
            ("~root/a/*.b", Ok("/r/a/*.b")),
            ("~me/..", Ok("/h/me/..")),
            ("~none/a", Err("'~none/a': there is no user 'none' here")),
            ("~+/a", Err("'~+/a': there is no user '+' here")),
        ];
        for (path, expect) in cases {
            match (expand(Path::new(path), home), expect) {
                (Ok(path), Ok(expect)) => assert_eq!(path, Path::new(expect)),
                (Err(fault), Err(expect)) => assert!(fault.text.starts_with(expect), "{fault}"),
                (got, _) => panic!("{path}: {got:?}"),
            }
        }
        assert!(home_of("root").is_some_and(|home| home.is_absolute()));
        assert_eq!(home_of("-h"), None);
    }
}
