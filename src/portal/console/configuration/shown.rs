//! What the pages show and change: the newest version of the store, whether or not this gateway can use it.

use std::sync::Arc;

use maud::{Markup, html};

use crate::{
    backoffice::BackofficeError,
    config::changes::{Entry, Kind, Revision},
    gateway::{Gateway, Routes},
};

pub(super) struct Shown {
    /// What is in use here.
    pub routes: Arc<Routes>,
    /// The version that changes are based on.
    pub newest: Revision,
    /// Why the newest version is not in use here.
    problem: Option<Arc<String>>,
}

impl Shown {
    pub(super) async fn now(gateway: &Arc<Gateway>) -> Result<Self, BackofficeError> {
        gateway.follow_configuration().await?;
        Ok(Self {
            newest: gateway.configuration.newest(),
            problem: gateway.configuration.problem(),
            routes: gateway.routes(),
        })
    }

    /// The number of the version in use here.
    pub(super) fn in_use(&self) -> i64 {
        self.routes.revision.number
    }

    pub(super) fn entries(&self, kind: Kind) -> Vec<Entry> {
        self.routes.base.entries(kind, &self.newest.changes)
    }

    pub(super) fn entry(&self, kind: Kind, name: &str) -> Option<Entry> {
        let mut entries = self.entries(kind).into_iter();
        entries.find(|entry| entry.name == name)
    }

    /// Why this gateway does not use what is shown; nothing if it does.
    pub(super) fn problem(&self) -> Markup {
        html! {
            @if let Some(problem) = &self.problem {
                div.problem role="alert" {
                    p {
                        "This gateway cannot use the newest version and keeps version " (self.in_use())
                        ". It tries again every few seconds. Shown and changed here is version " (self.newest.number) "."
                    }
                    pre.whole-text { (problem) }
                }
            }
        }
    }
}
