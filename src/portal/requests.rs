//! An account's requests: a list to look through, and the story of each. Never what they said.

mod list;
mod outcome;
mod story;

pub use self::{
    list::{show, table},
    story::{cost, one},
};

use maud::{Markup, html};

use super::keys::shown_name;
use crate::ledger::Key;

/// The page of one request.
pub fn path(id: impl std::fmt::Display) -> String {
    format!("/portal/requests/{id}")
}

/// A key as its owner knows it.
fn key_words(keys: &[Key], id: &str) -> Markup {
    let key = keys.iter().find(|key| key.id == id);
    html! {
        @match key {
            Some(key) => { (shown_name(key)) " " code { (key.prefix) "…" } },
            None => { code { (id) } },
        }
    }
}
