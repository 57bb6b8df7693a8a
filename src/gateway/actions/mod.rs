//! Everything an operator can do, by the operator API or in the console: done in the ledger or the
//! office, then written down with who did it, how it was and how it is.
//!
//! An act that was begun is done and written down in a task of its own, even if whoever asked for it
//! hangs up. Where it cannot be written down it stands all the same, and the log has what was lost.

use std::sync::Arc;

use serde_json::Value;

mod accounts;
mod alerts;
mod error;
mod keys;
mod payments;
mod people;
mod settings;

pub use self::{
    error::{ActError, MAX_KEY_NAME, amount},
    payments::{DeliverAgain, settle, settle_what_is_left},
    people::HandedLink,
    settings::LimitChange,
};
use crate::{
    backoffice::Action,
    base::{keys::random_id, timestamp},
    gateway::Gateway,
    ledger::{Audit, LedgerError},
};

/// Who came with the operator token has no other name.
pub const TOKEN: &str = "operator token";

/// An operator at work.
#[derive(Clone)]
pub struct Acts {
    gateway: Arc<Gateway>,
    who: Arc<str>,
}

impl Acts {
    pub fn by(gateway: &Arc<Gateway>, who: &str) -> Self {
        Self {
            gateway: gateway.clone(),
            who: who.into(),
        }
    }

    pub fn by_token(gateway: &Arc<Gateway>) -> Self {
        Self::by(gateway, TOKEN)
    }

    /// Looks at everything in the books.
    pub async fn audit(&self) -> Result<Audit, ActError> {
        let acts = self.clone();
        self.whole(async move {
            let audit = acts.gateway.ledger.audit().await?;
            let found = serde_json::json!({
                "ok": audit.violations.is_empty(),
                "accounts": audit.accounts.len(),
                "entries": audit.entries,
                "charges": audit.charges,
                "violations": audit.violations.len(),
            });
            acts.record("audit.run", "ledger", None, Some(found)).await;
            acts.gateway.alerts.want();
            Ok(audit)
        })
        .await
    }

    /// Carries an act through, whether or not anyone waits for it.
    async fn whole<T: Send + 'static>(
        &self,
        act: impl Future<Output = Result<T, ActError>> + Send + 'static,
    ) -> Result<T, ActError> {
        match self.gateway.tasks.spawn(act).await {
            Ok(done) => done,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_) => Err(LedgerError::Stopped.into()),
            },
        }
    }

    async fn record(&self, what: &str, subject: &str, before: Option<Value>, after: Option<Value>) {
        let id = random_id("action_");
        self.record_once(&id, what, subject, before, after).await;
    }

    /// Of all that are recorded under one ID, wherever that is, the first is kept.
    async fn record_once(
        &self,
        id: &str,
        what: &str,
        subject: &str,
        before: Option<Value>,
        after: Option<Value>,
    ) {
        let action = Action {
            at_ms: timestamp::now_ms(),
            actor: self.who.to_string(),
            what: what.to_owned(),
            subject: subject.to_owned(),
            before: before.map(|before| before.to_string()),
            after: after.map(|after| after.to_string()),
        };
        if let Err(error) = self.gateway.backoffice.record_once(id, &action).await {
            tracing::error!(
                %error,
                at = timestamp::shown_ms(action.at_ms),
                actor = action.actor,
                what = action.what,
                subject = action.subject,
                before = action.before,
                after = action.after,
                "an operator's act was done and could not be written down",
            );
        }
    }
}
