//! Who files belong to: owners, their names at the source, and rules such as `alice:bob`.

use crate::limits::{NAME_BYTES_MAX, OWNER_RULES_BYTES_MAX};

/// A user and a group, by their ids. `None`: the one of the file stays as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Owner {
    pub user: Option<u32>,
    pub group: Option<u32>,
}

impl Owner {
    pub fn is_kept(self) -> bool {
        self != Owner::default()
    }
}

/// What a rule matches, and what becomes of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnerRule {
    pub from: FromOwner,
    pub to: ToOwner,
}

/// The owner of a file at its source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FromOwner {
    /// An id that has no name there.
    Nameless,
    Name(String),
    /// A name with `*`, `?` or `[a-z]`; `*` matches an id without a name too.
    Pattern(String),
    /// Both are included.
    Ids(u32, u32),
}

/// The owner that it gets, by what the destination calls it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToOwner {
    Name(String),
    Id(u32),
}

/// The values of `--usermap` and `--groupmap`, as the user reads them.
pub const OWNER_RULES_PHRASE: &str = "FROM:TO,FROM:TO,... where FROM is a name, a pattern such as \
                                      '*', an id, ids such as 1000-1999, or nothing for ids \
                                      without a name, and TO is a name or an id";

/// The values of `--chown`, as the user reads them.
pub const CHOWN_PHRASE: &str = "USER:GROUP, USER or :GROUP, each a name or an id";

/// What `--chown` says: rules for users and for groups.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chown {
    pub users: Vec<OwnerRule>,
    pub groups: Vec<OwnerRule>,
}

impl Chown {
    /// The error says what to write.
    pub fn parse(text: &str) -> Result<Chown, String> {
        let (user, group) = text.split_once(':').unwrap_or((text, ""));
        let rule = |name: &str| match name.is_empty() {
            true => Some(Vec::new()),
            false => ToOwner::parse(name).map(|to| {
                let from = FromOwner::Pattern("*".into());
                vec![OwnerRule { from, to }]
            }),
        };
        match (rule(user), rule(group)) {
            (Some(users), Some(groups)) if !(users.is_empty() && groups.is_empty()) => {
                Ok(Chown { users, groups })
            }
            _ => Err(format!("write {CHOWN_PHRASE}")),
        }
    }
}

impl OwnerRule {
    /// Reads rules as rsync does: `alice:bob,1000-1999:nobody,*:root`. The error says what to
    /// write.
    pub fn parse_all(text: &str) -> Result<Vec<OwnerRule>, String> {
        if text.len() > OWNER_RULES_BYTES_MAX {
            return Err(format!("write rules of {OWNER_RULES_BYTES_MAX} bytes at most"));
        }
        let rules: Option<Vec<OwnerRule>> = text.split(',').map(OwnerRule::parse).collect();
        rules.ok_or_else(|| format!("write {OWNER_RULES_PHRASE}"))
    }

    pub fn parse(text: &str) -> Option<OwnerRule> {
        let (from, to) = text.split_once(':')?;
        Some(OwnerRule { from: FromOwner::parse(from)?, to: ToOwner::parse(to)? })
    }

    /// As it would be typed.
    pub fn typed(&self) -> String {
        let from = match &self.from {
            FromOwner::Nameless => String::new(),
            FromOwner::Name(name) | FromOwner::Pattern(name) => name.clone(),
            FromOwner::Ids(low, high) if low == high => low.to_string(),
            FromOwner::Ids(low, high) => format!("{low}-{high}"),
        };
        match &self.to {
            ToOwner::Name(name) => format!("{from}:{name}"),
            ToOwner::Id(id) => format!("{from}:{id}"),
        }
    }

    /// All of them as they would be typed.
    pub fn typed_all(rules: &[OwnerRule]) -> String {
        rules.iter().map(OwnerRule::typed).collect::<Vec<String>>().join(",")
    }
}

impl FromOwner {
    fn parse(text: &str) -> Option<FromOwner> {
        let is_number = text.starts_with(|c: char| c.is_ascii_digit())
            && text.chars().all(|c| c.is_ascii_digit() || c == '-');
        if is_number {
            let (low, high) = text.split_once('-').unwrap_or((text, text));
            let (low, high) = (low.parse().ok()?, high.parse().ok()?);
            return (low <= high).then_some(FromOwner::Ids(low, high));
        }
        match text {
            "" => Some(FromOwner::Nameless),
            text if text.contains(['*', '?', '[']) => {
                fits(text).then(|| FromOwner::Pattern(text.to_string()))
            }
            text => fits(text).then(|| FromOwner::Name(text.to_string())),
        }
    }

    /// Whether it is about this id, with its name at the source where it has one.
    pub fn matches(&self, id: u32, name: Option<&[u8]>) -> bool {
        match self {
            FromOwner::Nameless => name.is_none(),
            FromOwner::Name(known) => name == Some(known.as_bytes()),
            FromOwner::Pattern(pattern) => fits_pattern(pattern.as_bytes(), name.unwrap_or(b"")),
            FromOwner::Ids(low, high) => (*low..=*high).contains(&id),
        }
    }
}

impl ToOwner {
    fn parse(text: &str) -> Option<ToOwner> {
        if !text.is_empty() && text.chars().all(|c| c.is_ascii_digit()) {
            // The greatest number means in system calls that nothing is changed.
            return text.parse().ok().filter(|id| *id != u32::MAX).map(ToOwner::Id);
        }
        let is_name = fits(text) && !text.contains(['*', '?', '[']);
        is_name.then(|| ToOwner::Name(text.to_string()))
    }
}

fn fits(text: &str) -> bool {
    is_owner_name(text.as_bytes()) && !text.contains(',')
}

/// True for what can be a name in `passwd(5)` or `group(5)`.
pub fn is_owner_name(name: &[u8]) -> bool {
    let breaks = |byte: &u8| matches!(byte, b'\0' | b':' | b'\n');
    !name.is_empty() && name.len() <= NAME_BYTES_MAX && !name.iter().any(breaks)
}

/// Whether a name fits a pattern of the shell. Where it does not, what the last `*` stands for
/// grows by a byte.
fn fits_pattern(pattern: &[u8], name: &[u8]) -> bool {
    let (mut at, mut in_name) = (0, 0);
    let mut star = None;
    loop {
        match (pattern.get(at), name.get(in_name)) {
            (None, None) => return true,
            (Some(b'*'), _) => {
                star = Some((at + 1, in_name));
                at += 1;
                continue;
            }
            (Some(_), Some(byte)) => {
                if let Some(length) = matched(&pattern[at..], *byte) {
                    (at, in_name) = (at + length, in_name + 1);
                    continue;
                }
            }
            (None, Some(_)) | (Some(_), None) => {}
        }
        match star {
            Some((after, from)) if from < name.len() => {
                star = Some((after, from + 1));
                (at, in_name) = (after, from + 1);
            }
            _ => return false,
        }
    }
}

/// The length of what stands for one byte at the front of a pattern, where this byte fits it.
fn matched(pattern: &[u8], byte: u8) -> Option<usize> {
    let set = pattern.strip_prefix(b"[").and_then(|rest| {
        let inside = rest.strip_prefix(b"!").or(rest.strip_prefix(b"^")).unwrap_or(rest);
        // A bracket that comes first is one of the set.
        let end = 1 + inside.iter().skip(1).position(|byte| *byte == b']')?;
        Some((&inside[..end], rest.len() != inside.len(), pattern.len() - inside.len() + end + 1))
    });
    let Some((mut set, is_other, length)) = set else {
        return (pattern[0] == b'?' || pattern[0] == byte).then_some(1);
    };
    let mut is_in = false;
    while let Some((first, rest)) = set.split_first() {
        let (last, after) = match rest {
            [b'-', last, after @ ..] => (last, after),
            rest => (first, rest),
        };
        is_in |= (*first..=*last).contains(&byte);
        set = after;
    }
    (is_in != is_other).then_some(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_read_and_typed() {
        let fine = [
            "alice:bob",
            "*:0",
            ":nobody",
            "1000-1999:bob",
            "7:8",
            "a-b:c",
            "a:b,*:c",
            "a*:b",
            "3com:x",
            "[a-c]?:d",
            "0:4294967294",
        ];
        for text in fine {
            let rules = OwnerRule::parse_all(text).unwrap();
            assert_eq!(OwnerRule::typed_all(&rules), text);
        }
        let long = format!("{}:a", "a".repeat(NAME_BYTES_MAX + 1));
        let wrong = [
            "",
            "alice",
            "a:",
            "9-8:a",
            "9-:a",
            "1-2-3:a",
            "a:4294967295",
            "a:b,",
            "a:b:c",
            "a:*",
            "4294967296:a",
            "a\0:b",
            &long,
        ];
        for text in wrong {
            assert!(OwnerRule::parse_all(text).is_err(), "{text}");
        }
        let many = |count| OwnerRule::parse_all(&vec!["a:b"; count].join(","));
        assert!(many(OWNER_RULES_BYTES_MAX / 4).is_ok());
        assert!(many(OWNER_RULES_BYTES_MAX / 4 + 1).is_err());
    }

    #[test]
    fn what_rules_match() {
        let cases = [
            ("alice:0", 5, Some("alice"), true),
            ("alice:0", 5, Some("bob"), false),
            ("alice:0", 5, None, false),
            ("*:0", 5, None, true),
            ("*:0", 5, Some("bob"), true),
            (":0", 5, None, true),
            (":0", 5, Some("alice"), false),
            ("4-6:0", 6, Some("alice"), true),
            ("4-6:0", 7, Some("alice"), false),
            ("5:0", 5, None, true),
            ("?*:0", 5, None, false),
            ("a*e:0", 5, Some("alice"), true),
            ("a*c*:0", 5, Some("alice"), true),
            ("a*c:0", 5, Some("alice"), false),
            ("?lice:0", 5, Some("alice"), true),
            ("[a-c]lice:0", 5, Some("alice"), true),
            ("[!a-c]lice:0", 5, Some("alice"), false),
            ("[^x]lice:0", 5, Some("alice"), true),
            ("[]a]lice:0", 5, Some("alice"), true),
            ("*[a-c:0", 5, Some("x[a-c"), true),
        ];
        for (rule, id, name, expect) in cases {
            let OwnerRule { from, .. } = OwnerRule::parse(rule).unwrap();
            assert_eq!(from.matches(id, name.map(str::as_bytes)), expect, "{rule} {id} {name:?}");
        }
    }

    #[test]
    fn one_owner_for_all() {
        let typed = |text| {
            let Chown { users, groups } = Chown::parse(text).unwrap();
            (OwnerRule::typed_all(&users), OwnerRule::typed_all(&groups))
        };
        assert_eq!(typed("a:b"), ("*:a".into(), "*:b".into()));
        assert_eq!(typed("a"), ("*:a".into(), String::new()));
        assert_eq!(typed("a:"), ("*:a".into(), String::new()));
        assert_eq!(typed(":5"), (String::new(), "*:5".into()));
        for wrong in ["", ":", "a:b:c", "a,b", "*", "4294967295"] {
            assert!(Chown::parse(wrong).is_err(), "{wrong}");
        }
    }
}
