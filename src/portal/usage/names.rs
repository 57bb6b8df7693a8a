//! The names of what usage is grouped by: keys, projects and members.

use std::collections::{HashMap, HashSet};

use super::sums::GroupBy;
use crate::{
    gateway::Gateway,
    ledger::{DayUse, Key, Project},
    portal::{error::PortalError, keys::shown_name, projects, session::SignedIn},
};

/// The group of keys that no person made.
const SERVICE_KEYS: &str = "Service keys";

/// What pages call keys, projects and members. What is not in here is called by its ID.
#[derive(Default)]
pub(crate) struct Names {
    keys: HashMap<String, Key>,
    /// IDs of those that the person may see. The others are called by their IDs.
    seen_keys: HashSet<String>,
    projects: Vec<Project>,
    /// Emails by the ID of the person.
    people: HashMap<String, String>,
}

/// One group of usage.
pub(crate) struct Named<'a> {
    pub id: &'a str,
    pub name: &'a str,
    /// The prefix of a key; names of keys are not unique.
    pub prefix: Option<&'a str>,
}

impl Names {
    /// The names for these rows: of their keys, deleted ones too, and of the account's projects and people.
    pub(crate) async fn read(
        gateway: &Gateway,
        me: &SignedIn,
        rows: &[DayUse],
    ) -> Result<Self, PortalError> {
        let ids = rows.iter().map(|row| row.key_id.as_str());
        let keys = gateway.ledger.keys_with_ids(ids).await?;
        let projects = gateway.ledger.projects(&me.account.id).await?;
        let people = gateway.backoffice.people_of(&me.account.id).await?;
        let seen = keys.iter().filter(|key| me.sees_key(key));
        Ok(Self {
            seen_keys: seen.map(|key| key.id.clone()).collect(),
            keys: keys.into_iter().map(|key| (key.id.clone(), key)).collect(),
            projects,
            people: people
                .into_iter()
                .map(|person| (person.id, person.email))
                .collect(),
        })
    }

    /// The row's key, if the person may see it.
    pub(crate) fn key(&self, row: &DayUse) -> Option<&Key> {
        let key = self.keys.get(&row.key_id);
        key.filter(|key| self.seen_keys.contains(&key.id))
    }

    pub(crate) fn project<'a>(&'a self, row: &'a DayUse) -> &'a str {
        projects::name_of(&self.projects, &row.project_id)
    }

    /// The person who made the row's key: the email, or the ID of one who was removed. `None` for a service key.
    pub(crate) fn member(&self, row: &DayUse) -> Option<&str> {
        let id = self.member_id(&row.key_id)?;
        Some(self.people.get(id).map_or(id, String::as_str))
    }

    fn member_id(&self, key_id: &str) -> Option<&str> {
        self.keys.get(key_id)?.payer.member_id.as_deref()
    }

    /// The ID of the group that a request belongs to, given its model, key and project.
    pub(crate) fn group_id<'a>(
        &'a self,
        by: GroupBy,
        (model, key_id, project_id): (&'a str, &'a str, &'a str),
    ) -> &'a str {
        match by {
            GroupBy::Model => model,
            GroupBy::Key => key_id,
            GroupBy::Project => project_id,
            GroupBy::Member => self.member_id(key_id).unwrap_or_default(),
        }
    }

    /// The group that a row belongs to.
    pub(crate) fn group<'a>(&'a self, row: &'a DayUse, by: GroupBy) -> Named<'a> {
        let plain = |id, name| Named {
            id,
            name,
            prefix: None,
        };
        match by {
            GroupBy::Model => plain(&row.model, &row.model),
            GroupBy::Project => plain(&row.project_id, self.project(row)),
            GroupBy::Member => plain(
                self.member_id(&row.key_id).unwrap_or_default(),
                self.member(row).unwrap_or(SERVICE_KEYS),
            ),
            GroupBy::Key => {
                let key = self.key(row);
                Named {
                    id: &row.key_id,
                    name: key.map_or(&row.key_id, shown_name),
                    prefix: key.map(|key| key.prefix.as_str()),
                }
            }
        }
    }
}
