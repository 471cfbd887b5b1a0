//! Users and groups of this host, by name and by id: what `/etc/passwd` and `/etc/group` say, and
//! what `getent` does of others, such as those of LDAP, which a static program cannot ask itself.

use std::collections::HashMap;
use std::fs;
use std::io::Read;
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

/// What a name or an id is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Account {
    User,
    Group,
}

impl Account {
    pub fn text(self) -> &'static str {
        match self {
            Account::User => "user",
            Account::Group => "group",
        }
    }

    /// The name of the table, for `getent` and below `/etc`.
    fn table(self) -> &'static str {
        match self {
            Account::User => "passwd",
            Account::Group => "group",
        }
    }
}

/// The accounts of one kind.
#[derive(Debug)]
pub struct Accounts {
    kind: Account,
    ids: HashMap<Vec<u8>, u32>,
    names: HashMap<u32, Vec<u8>>,
    asks: Asks,
}

/// Whether `getent` is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asks {
    Yes,
    /// It is not there.
    No,
    /// It did not answer in time. The user is to be told.
    Silent,
    SilentAndTold,
}

impl Accounts {
    pub fn of(kind: Account) -> Accounts {
        // A host without that file has no names.
        let lines = fs::read(format!("/etc/{}", kind.table())).unwrap_or_default();
        Accounts { asks: Asks::Yes, ..Accounts::from_lines(kind, &lines) }
    }

    /// Those of `passwd(5)` or `group(5)`, and no others.
    pub fn from_lines(kind: Account, lines: &[u8]) -> Accounts {
        let (ids, names) = (HashMap::new(), HashMap::new());
        let mut accounts = Accounts { kind, ids, names, asks: Asks::No };
        accounts.note(lines);
        accounts
    }

    /// Finds out about these names, as far as they are not known.
    pub fn look_up_names<'a>(&mut self, names: impl Iterator<Item = &'a [u8]>) {
        let unknown = names.filter(|name| !self.ids.contains_key(*name) && may_be_asked(name));
        let unknown: Vec<&str> = unknown.filter_map(|name| str::from_utf8(name).ok()).collect();
        self.ask(&unknown);
    }

    pub fn id_of(&self, name: &[u8]) -> Option<u32> {
        self.ids.get(name).copied()
    }

    pub fn name_of(&mut self, id: u32) -> Option<&[u8]> {
        if !self.names.contains_key(&id) {
            self.ask(&[&id.to_string()]);
        }
        self.names.get(&id).map(Vec::as_slice)
    }

    /// What the user must know once: that names of this host may be missing.
    pub fn take_warning(&mut self) -> Option<String> {
        let is_silent = self.asks == Asks::Silent;
        is_silent.then(|| self.asks = Asks::SilentAndTold)?;
        Some(format!(
            "'getent {}' did not answer within {} s: {}s that are not in /etc/{0} are kept by \
             their numbers",
            self.kind.table(),
            ANSWER_WITHIN.as_secs(),
            self.kind.text()
        ))
    }

    fn ask(&mut self, keys: &[&str]) {
        for keys in keys.chunks(KEYS_MAX) {
            if self.asks != Asks::Yes {
                return;
            }
            match getent(self.kind.table(), keys) {
                Ok(lines) => self.note(&lines),
                Err(asks) => self.asks = asks,
            }
        }
    }

    /// Takes in lines of `passwd(5)` or `group(5)`. The first that has a name or an id counts.
    fn note(&mut self, lines: &[u8]) {
        for line in lines.split(|byte| *byte == b'\n') {
            let mut fields = line.split(|byte| *byte == b':');
            let (Some(name), Some(id)) = (fields.next(), fields.nth(1)) else { continue };
            let id = str::from_utf8(id).ok().and_then(|id| id.parse().ok());
            if let Some(id) = id.filter(|_| !name.is_empty()) {
                self.ids.entry(name.to_vec()).or_insert(id);
                self.names.entry(id).or_insert_with(|| name.to_vec());
            }
        }
    }
}

/// Names may be a peer's. A number is taken for an id.
fn may_be_asked(name: &[u8]) -> bool {
    name.iter().all(u8::is_ascii_graphic)
        && !name.starts_with(b"-")
        && !name.iter().all(u8::is_ascii_digit)
}

/// The lines for these keys.
fn getent(table: &str, keys: &[&str]) -> Result<Vec<u8>, Asks> {
    let mut command = Command::new("getent");
    command.args([table, "--"]).args(keys);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().map_err(|_| Asks::No)?;
    let output = child.stdout.take().ok_or(Asks::No)?;
    let (tell, told) = channel();
    thread::spawn(move || {
        let mut lines = Vec::new();
        let read = output.take(ANSWER_BYTES_MAX).read_to_end(&mut lines);
        drop(tell.send(read.map(|_| lines)));
    });
    let answer = told.recv_timeout(ANSWER_WITHIN);
    let _ = child.kill();
    let _ = child.wait();
    answer.ok().and_then(Result::ok).ok_or(Asks::Silent)
}

/// Names or ids in one question.
const KEYS_MAX: usize = 256;
const ANSWER_BYTES_MAX: u64 = 1 << 20;
/// Less than the time after which a peer that says nothing is given up.
const ANSWER_WITHIN: Duration = Duration::from_secs(4);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_accounts() {
        let mut accounts = Accounts::from_lines(
            Account::User,
            b"root:x:0:0:root:/r:/bin/sh\nme:x:7:1::/h:\ntoor:x:0:0:\nme:x:9:\n+\n:x:5:\nx:y:z\n",
        );
        let ids = ["root", "me", "toor", "+", "", "x"].map(|name| accounts.id_of(name.as_bytes()));
        assert_eq!(ids, [Some(0), Some(7), Some(0), None, None, None]);
        let mut name = |id| accounts.name_of(id).map(|name| String::from_utf8_lossy(name).into());
        let names: [Option<String>; 4] = [name(0), name(7), name(9), name(5)];
        assert_eq!(names, [Some("root".into()), Some("me".into()), Some("me".into()), None]);
    }

    #[test]
    fn this_host_has_root() {
        let mut users = Accounts::of(Account::User);
        assert_eq!(users.id_of(b"root"), Some(0));
        assert_eq!(users.name_of(0), Some(&b"root"[..]));
        let names: [&[u8]; 3] = [b"-h", b"no such user", b"0"];
        users.look_up_names(names.into_iter());
        assert_eq!(names.map(|name| users.id_of(name)), [None; 3]);
        assert_eq!(users.take_warning(), None);
        users.asks = Asks::Silent;
        assert!(users.take_warning().is_some_and(|text| text.contains("'getent passwd' did not")));
        assert_eq!(users.take_warning(), None);
    }
}
