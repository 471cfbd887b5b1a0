//! The file that names the hosts of a campaign.

use std::ffi::OsStr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::cli::endpoint;

/// One host, and its destination folder; without one, the data is discarded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Host {
    /// `[user@]host` as ssh takes it.
    pub name: String,
    pub folder: Option<PathBuf>,
}

/// One host a line; what follows a `#` is a comment. The error has the number of the line.
pub(super) fn read(text: &str) -> Result<Vec<Host>, String> {
    let mut hosts: Vec<(usize, Host)> = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let word = line.split('#').next().unwrap_or_default().trim();
        if word.is_empty() {
            continue;
        }
        if word.contains(char::is_whitespace) {
            return Err(format!("line {number}: '{word}': write one host per line"));
        }
        if word.starts_with("s3://") {
            return Err(format!(
                "line {number}: '{word}' is an object store: it is measured by itself, with \
                 datapump sweep {word}"
            ));
        }
        let host = host(word).map_err(|why| format!("line {number}: {why}"))?;
        if let Some((first, _)) = hosts.iter().find(|(_, other)| other.name == host.name) {
            return Err(format!(
                "line {number}: '{word}': {} is already in line {first}: name each host once",
                host.name
            ));
        }
        hosts.push((number, host));
    }
    match hosts.is_empty() {
        true => Err("it names no host: write [USER@]HOST[:FOLDER], one per line".into()),
        false => Ok(hosts.into_iter().map(|(_, host)| host).collect()),
    }
}

fn host(word: &str) -> Result<Host, String> {
    let (name, folder) = endpoint::host_and_folder(OsStr::new(word))?;
    let named = !word.ends_with(':') && folder.as_os_str() != ".";
    Ok(Host { name, folder: named.then_some(folder) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_read() {
        let text = "# sites\n\nanl  # 2 CPUs\nme@cern:/scratch\n  [fe80::1]:\n";
        let host = |name: &str, folder: Option<&str>| Host {
            name: name.into(),
            folder: folder.map(PathBuf::from),
        };
        let expect = [host("anl", None), host("me@cern", Some("/scratch")), host("fe80::1", None)];
        assert_eq!(read(text).unwrap(), expect);
    }

    #[test]
    fn what_is_wrong_has_its_line() {
        let cases = [
            ("", "it names no host"),
            ("# all gone\n", "it names no host"),
            ("a\nb c\n", "line 2: 'b c': write one host per line"),
            ("a\n\n-oProxyCommand=x\n", "line 3: '-oProxyCommand=x': a host does not begin"),
            ("a\n@b\n", "line 2: '@b': no user"),
            ("s3://b/p\n", "line 1: 's3://b/p' is an object store"),
            ("a\nb\na\n", "line 3: 'a': a is already in line 1"),
            ("me@a\nb\nme@a:/tmp\n", "line 3: 'me@a:/tmp': me@a is already in line 1"),
        ];
        for (text, expect) in cases {
            let why = read(text).unwrap_err();
            assert!(why.starts_with(expect), "{text}: {why}");
        }
    }
}
