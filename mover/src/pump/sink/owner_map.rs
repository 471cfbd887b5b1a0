//! Which user and group an object gets here: by the rules of the command line, by the name that its
//! owner has at the source, or by the same number.

use std::collections::BTreeMap;

use crate::io::accounts::{Account, Accounts};
use crate::wire::manifest::Entry;
use base::attributes::Attributes;
use base::fault::Fault;
use base::limits::OWNER_NAMES_MAX;
use base::owners::{FromOwner, Owner, OwnerRule, ToOwner};
use base::settings::Settings;

/// The owners of the source, and those that they become.
#[derive(Debug)]
pub struct OwnerMap {
    users: Option<IdMap>,
    groups: Option<IdMap>,
}

#[derive(Debug)]
struct IdMap {
    kind: Account,
    rules: Vec<(FromOwner, u32)>,
    /// Those that have a name at the source.
    named: BTreeMap<u32, u32>,
    /// Read when a name is to be looked up.
    accounts: Option<Accounts>,
    host: fn(Account) -> Accounts,
    takes_names: bool,
}

impl OwnerMap {
    /// The fault names what nobody is called here.
    pub fn of(settings: &Settings) -> Result<OwnerMap, Fault> {
        OwnerMap::on(settings, Accounts::of)
    }

    /// The same on a host with these accounts.
    pub fn on(settings: &Settings, host: fn(Account) -> Accounts) -> Result<OwnerMap, Fault> {
        let map = |kind, rules: &[OwnerRule]| IdMap::of((kind, host), rules, !settings.numeric_ids);
        let users = settings.keeps_users().then(|| map(Account::User, &settings.user_rules));
        let groups = settings.keeps_groups().then(|| map(Account::Group, &settings.group_rules));
        Ok(OwnerMap { users: users.transpose()?, groups: groups.transpose()? })
    }

    /// Takes in the names that come with these entries. A source names an id once.
    pub(crate) fn learn(&mut self, entries: &[Entry]) -> Result<(), Fault> {
        let named = || {
            let all = entries.iter().filter_map(|entry| entry.attributes.as_deref());
            all.filter(|attributes| attributes.has_names())
        };
        let user = |it: &'_ Attributes| (it.uid, it.user.clone());
        let group = |it: &'_ Attributes| (it.gid, it.group.clone());
        learn(&mut self.users, named().map(user))?;
        learn(&mut self.groups, named().map(group))
    }

    /// What the user must know.
    pub(crate) fn take_warnings(&mut self) -> Vec<String> {
        let maps = [&mut self.users, &mut self.groups].into_iter().flatten();
        maps.filter_map(|map| map.accounts.as_mut()?.take_warning()).collect()
    }

    pub(crate) fn owner_of(&self, attributes: Option<&Attributes>) -> Owner {
        let (users, groups) = (self.users.as_ref(), self.groups.as_ref());
        match attributes {
            Some(there) => Owner {
                user: users.map(|users| users.id_of(there.uid)),
                group: groups.map(|groups| groups.id_of(there.gid)),
            },
            // What comes from a pipe or is generated belongs to nobody; rules for all count.
            None => Owner {
                user: users.and_then(|users| users.ruled(NOBODY, None)),
                group: groups.and_then(|groups| groups.ruled(NOBODY, None)),
            },
        }
    }
}

fn learn(
    map: &mut Option<IdMap>,
    names: impl Iterator<Item = (u32, Vec<u8>)>,
) -> Result<(), Fault> {
    let names: Vec<(u32, Vec<u8>)> = names.filter(|(_, name)| !name.is_empty()).collect();
    match map {
        _ if names.is_empty() => Ok(()),
        Some(map) if map.takes_names => map.learn(names),
        _ => Err(Fault::peer("the peer sent names of owners, which nobody asked for")),
    }
}

impl IdMap {
    fn of(
        (kind, host): (Account, fn(Account) -> Accounts),
        rules: &[OwnerRule],
        takes_names: bool,
    ) -> Result<IdMap, Fault> {
        let (named, resolved) = (BTreeMap::new(), Vec::with_capacity(rules.len()));
        let mut map = IdMap { kind, rules: resolved, named, accounts: None, host, takes_names };
        let to_names = rules.iter().filter_map(|rule| match &rule.to {
            ToOwner::Name(name) => Some(name.as_bytes()),
            ToOwner::Id(_) => None,
        });
        let to_names: Vec<&[u8]> = to_names.collect();
        if !to_names.is_empty() {
            map.accounts().look_up_names(to_names.into_iter());
        }
        for rule in rules {
            let id = match &rule.to {
                ToOwner::Id(id) => *id,
                ToOwner::Name(name) => map
                    .accounts()
                    .id_of(name.as_bytes())
                    .ok_or_else(|| no_account(kind, name, rule))?,
            };
            map.rules.push((rule.from.clone(), id));
        }
        Ok(map)
    }

    fn accounts(&mut self) -> &mut Accounts {
        self.accounts.get_or_insert_with(|| (self.host)(self.kind))
    }

    fn learn(&mut self, names: Vec<(u32, Vec<u8>)>) -> Result<(), Fault> {
        let by_name = names.iter().filter(|(id, name)| self.ruled(*id, Some(name)).is_none());
        let by_name: Vec<Vec<u8>> = by_name.map(|(_, name)| name.clone()).collect();
        self.accounts().look_up_names(by_name.iter().map(Vec::as_slice));
        for (id, name) in names {
            let here = match self.ruled(id, Some(&name)) {
                Some(ruled) => ruled,
                None if id == ROOT => ROOT,
                None => self.accounts().id_of(&name).unwrap_or(id),
            };
            if self.named.insert(id, here).is_some() || self.named.len() > OWNER_NAMES_MAX {
                return Err(Fault::peer(format!(
                    "the peer named the {} {id} twice, or more of them than it may",
                    self.kind.text()
                )));
            }
        }
        Ok(())
    }

    fn id_of(&self, id: u32) -> u32 {
        let named = self.named.get(&id).copied();
        named.or_else(|| self.ruled(id, None)).unwrap_or(id)
    }

    /// What the first rule that matches says.
    fn ruled(&self, id: u32, name: Option<&[u8]>) -> Option<u32> {
        self.rules.iter().find(|(from, _)| from.matches(id, name)).map(|(_, to)| *to)
    }
}

fn no_account(kind: Account, name: &str, rule: &OwnerRule) -> Fault {
    let kind = kind.text();
    Fault::usage(format!(
        "there is no {kind} '{name}' at the destination for the rule '{}' (--chown, --usermap or \
         --groupmap): write a {kind} that it has, or the number of one",
        rule.typed()
    ))
}

/// The user and the group of this number are nobody else on any host.
const ROOT: u32 = 0;
/// No user or group has this number.
const NOBODY: u32 = u32::MAX;

#[cfg(test)]
mod tests {
    use super::*;
    use base::fault::Class;
    use std::sync::Arc;

    fn settings(users: &str, numeric_ids: bool) -> Settings {
        let user_rules = match users {
            "" => Vec::new(),
            rules => OwnerRule::parse_all(rules).unwrap(),
        };
        Settings { archive: true, numeric_ids, user_rules, ..Settings::default() }
    }

    fn entry(uid: u32, user: &str, group: &str) -> Entry {
        let (user, group) = (user.as_bytes().to_vec(), group.as_bytes().to_vec());
        let attributes = Attributes { uid, gid: 50, user, group, ..Attributes::default() };
        Entry { attributes: Some(Arc::new(attributes)), ..Entry::default() }
    }

    const LINES: &[u8] = b"root:x:0:0:\nalice:x:1001:1:\nbob:x:1002:1:\n";

    /// The same map on a host with these users.
    fn map(rules: &str, numeric_ids: bool) -> OwnerMap {
        OwnerMap::on(&settings(rules, numeric_ids), |kind| Accounts::from_lines(kind, LINES))
            .unwrap()
    }

    #[test]
    fn who_gets_what() {
        // Rules, the id and its name at the source, and the id here.
        let cases = [
            ("", 7, "alice", 1001),
            ("", 7, "carol", 7),
            ("", 7, "", 7),
            ("", 0, "root", 0),
            ("", 0, "alice", 0),
            ("", 7, "root", 0),
            ("alice:5", 7, "alice", 5),
            ("alice:5", 7, "bob", 1002),
            ("alice:5,*:6", 7, "bob", 6),
            ("*:6,alice:5", 7, "alice", 6),
            (":5", 7, "", 5),
            (":5", 7, "alice", 1001),
            ("0-9:5", 7, "alice", 5),
            ("root:5", 0, "root", 5),
            ("*:5", 0, "root", 5),
        ];
        for (rules, id, name, expect) in cases {
            let mut map = map(rules, false);
            let entry = entry(id, name, "");
            map.learn(std::slice::from_ref(&entry)).unwrap();
            let owner = map.owner_of(entry.attributes.as_deref());
            assert_eq!(owner.user, Some(expect), "{rules}: {id} {name}");
            assert_eq!(owner.group, Some(50));
        }
    }

    #[test]
    fn what_has_no_owner_gets_that_of_all() {
        let user = |rules: &str| map(rules, false).owner_of(None).user;
        let users = ["", "0-9:5", "alice:5", "*:5", ":7", "0-9:5,*:6"].map(user);
        assert_eq!(users, [None, None, None, Some(5), Some(7), Some(6)]);
    }

    #[test]
    fn ids_stay_numbers_where_that_is_asked() {
        let map = map("alice:5,7:6", true);
        let user = |id| map.owner_of(entry(id, "", "").attributes.as_deref()).user;
        assert_eq!([user(7), user(1001)], [Some(6), Some(1001)]);
    }

    #[test]
    fn names_are_learned_once_and_where_they_are_asked_for() {
        let mut asked = map("", false);
        asked.learn(&[entry(7, "alice", "")]).unwrap();
        assert_eq!(asked.learn(&[entry(7, "alice", "")]).unwrap_err().class, Class::Peer);
        let unasked = map("", true).learn(&[entry(7, "alice", "")]);
        assert_eq!(unasked.unwrap_err().class, Class::Peer);
        let only_users = Settings { archive: false, ..settings("*:5", false) };
        let mut only_users = OwnerMap::of(&only_users).unwrap();
        assert_eq!(only_users.owner_of(entry(7, "", "").attributes.as_deref()).group, None);
        assert_eq!(only_users.learn(&[entry(7, "a", "g")]).unwrap_err().class, Class::Peer);
        let mut many = map("*:5", false);
        let most = OWNER_NAMES_MAX as u32;
        let entries: Vec<Entry> = (0..=most).map(|id| entry(id, "a", "")).collect();
        many.learn(&entries[..most as usize]).unwrap();
        assert_eq!(many.learn(&entries[most as usize..]).unwrap_err().class, Class::Peer);
    }

    #[test]
    fn a_name_that_nobody_has_is_refused() {
        let fault = OwnerMap::of(&settings("a:0,b:no-such-user", false)).unwrap_err();
        assert_eq!(fault.class, Class::Usage);
        let expect = "there is no user 'no-such-user' at the destination for the rule \
                      'b:no-such-user'";
        assert!(fault.text.starts_with(expect), "{fault}");
    }
}
