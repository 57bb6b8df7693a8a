//! An account's requests: a list with filters, the same as CSV, and the details of each; those that were refused have a list of their
//! own. Prompts and responses are not part of it.

pub(crate) mod csv;
mod details;
pub(crate) mod filter;
mod found;
pub(crate) mod list;
pub(crate) mod merged;
mod open;
mod outcome;
pub(crate) mod refused;
pub(crate) mod refused_details;
mod remedy;
pub(crate) mod times;

pub(crate) use self::{
    details::{agent, chosen, cost, retries},
    list::{listed, show},
    open::{find, show as show_details},
    outcome::{label as outcome_label, operator_label},
};

use maud::{Markup, html};

use super::keys::shown_name;
use crate::ledger::Key;

/// The path of a request's details page.
pub(crate) fn path(id: impl std::fmt::Display) -> String {
    format!("/portal/requests/{id}")
}

/// The name and prefix of a key; its ID if the key is not in `keys`.
fn key_label(keys: &[Key], id: &str) -> Markup {
    let key = keys.iter().find(|key| key.id == id);
    html! {
        @match key {
            Some(key) => { (shown_name(key)) " " code { (key.prefix) "…" } },
            None => { code { (id) } },
        }
    }
}
