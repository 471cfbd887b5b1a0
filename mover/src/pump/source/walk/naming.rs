//! The names of the owners of what is offered: each is told once, with the first object that
//! belongs to it.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::io::accounts::{Account, Accounts};
use crate::wire::manifest::Entry;
use base::limits::OWNER_NAMES_MAX;
use base::owners::is_owner_name;
use base::settings::Settings;

/// Which names the sink has been told.
#[derive(Debug)]
pub(super) struct NamesTold {
    users: Option<Told>,
    groups: Option<Told>,
}

#[derive(Debug)]
struct Told {
    kind: Account,
    /// Read when the first owner is met.
    accounts: Option<Accounts>,
    met: BTreeSet<u32>,
}

impl NamesTold {
    /// For the owners that are kept, where their names count.
    pub(super) fn new(settings: &Settings) -> NamesTold {
        let told = |kind| Told { kind, accounts: None, met: BTreeSet::new() };
        let by_name = !settings.numeric_ids;
        NamesTold {
            users: (by_name && settings.keeps_users()).then(|| told(Account::User)),
            groups: (by_name && settings.keeps_groups()).then(|| told(Account::Group)),
        }
    }

    /// Adds the names that the sink does not know to an object that is about to be offered.
    pub(super) fn name(&mut self, entry: &mut Entry) {
        let Some(attributes) = &mut entry.attributes else { return };
        let user = self.users.as_mut().and_then(|users| users.name_of(attributes.uid));
        let group = self.groups.as_mut().and_then(|groups| groups.name_of(attributes.gid));
        if user.is_some() || group.is_some() {
            let attributes = Arc::make_mut(attributes);
            attributes.user = user.unwrap_or_default();
            attributes.group = group.unwrap_or_default();
        }
    }

    /// What the user must know.
    pub(super) fn take_warnings(&mut self) -> Vec<String> {
        let told = [&mut self.users, &mut self.groups].into_iter().flatten();
        told.filter_map(|told| told.accounts.as_mut()?.take_warning()).collect()
    }
}

impl Told {
    /// The name of an id that is met for the first time, where it has one.
    fn name_of(&mut self, id: u32) -> Option<Vec<u8>> {
        if self.met.len() == OWNER_NAMES_MAX || !self.met.insert(id) {
            return None;
        }
        let accounts = self.accounts.get_or_insert_with(|| Accounts::of(self.kind));
        let name = accounts.name_of(id)?.to_vec();
        is_owner_name(&name).then_some(name)
    }
}
