//! What a budget can stand at: the account, its projects, its members and its keys, by the names that people know.

use maud::{Markup, html};

use crate::{
    backoffice::Person,
    gateway::Gateway,
    ledger::{Budget, BudgetScope, DEFAULT_PROJECT, Key, Project},
    portal::{
        error::PortalError,
        keys::shown_name,
        projects::{self, DEFAULT_NAME},
    },
};

pub(super) struct Places {
    projects: Vec<Project>,
    people: Vec<Person>,
    keys: Vec<Key>,
}

impl Places {
    pub(super) async fn read(gateway: &Gateway, account_id: &str) -> Result<Self, PortalError> {
        Ok(Self {
            projects: gateway.ledger.projects(account_id).await?,
            people: gateway.backoffice.people_of(account_id).await?,
            keys: gateway.ledger.keys(account_id).await?,
        })
    }

    /// What a budget stands at, by its present name.
    pub(super) fn name_of(&self, budget: &Budget) -> String {
        let id = budget.scope_id.as_str();
        match budget.scope {
            BudgetScope::Account => "Whole account".into(),
            BudgetScope::Project => format!("Project {}", projects::name_of(&self.projects, id)),
            BudgetScope::Member => {
                let person = self.people.iter().find(|person| person.id == id);
                person.map_or_else(|| budget.name.clone(), |person| person.email.clone())
            }
            BudgetScope::Key => {
                let key = self.keys.iter().find(|key| key.id == id);
                format!("Key {}", key.map_or(&*budget.name, shown_name))
            }
        }
    }

    /// The field of a form. `chosen` is its value, empty before one was chosen.
    pub(super) fn field(&self, chosen: &str) -> Markup {
        let open = self.projects.iter().filter(|project| !project.archived);
        let option = |value: &str, name: &Markup| {
            html! { option value=(value) selected[value == chosen] { (name) } }
        };
        let of = |scope: BudgetScope, id: &str, name: Markup| {
            option(&format!("{}:{id}", scope.as_str()), &name)
        };
        html! {
            label { "Applies to"
                select name="place" {
                    (option(BudgetScope::Account.as_str(), &html! { "Whole account" }))
                    optgroup label="Projects" {
                        (of(BudgetScope::Project, DEFAULT_PROJECT, html! { (DEFAULT_NAME) }))
                        @for project in open { (of(BudgetScope::Project, &project.id, html! { (project.name) })) }
                    }
                    optgroup label="Members" {
                        @for person in &self.people { (of(BudgetScope::Member, &person.id, html! { (person.email) })) }
                    }
                    @if !self.keys.is_empty() {
                        optgroup label="Keys" {
                            @for key in &self.keys {
                                (of(BudgetScope::Key, &key.id, html! { (shown_name(key)) " (" (key.prefix) "…)" }))
                            }
                        }
                    }
                }
            }
        }
    }
}

/// The value of the field for the place of a budget, as [`parse`] reads it.
pub(super) fn value_of(budget: &Budget) -> String {
    match budget.scope {
        BudgetScope::Account => BudgetScope::Account.as_str().to_owned(),
        scope => format!("{}:{}", scope.as_str(), budget.scope_id),
    }
}

/// The value of the field: `account`, or a scope and an ID.
pub(super) fn parse(value: &str) -> Option<(BudgetScope, Option<String>)> {
    if value == BudgetScope::Account.as_str() {
        return Some((BudgetScope::Account, None));
    }
    let (scope, id) = value.split_once(':')?;
    let scope = BudgetScope::parse(scope).filter(|scope| *scope != BudgetScope::Account)?;
    Some((scope, Some(id.to_owned())))
}
