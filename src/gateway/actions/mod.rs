//! Operator actions: every change that an operator can make through the operator API or the console.
//!
//! An action changes the ledger or the backoffice, and is then recorded in the backoffice with its actor, time, and
//! state before and after. Both steps run in a task of their own, so an action that has begun is finished and
//! recorded even if the client disconnects. If recording fails, the change stays, and the log has the record.

use std::sync::Arc;

use serde_json::Value;

mod accounts;
mod alerts;
mod budgets;
mod configuration;
mod erasure;
mod error;
mod identity;
mod keys;
mod members;
mod payments;
mod people;
mod projects;
mod secret;
mod settings;
mod top_ups;

pub(crate) use self::{
    budgets::NewBudget,
    configuration::NewVersion,
    erasure::finish_deletions,
    error::{ActionError, MAX_NAME, amount, rolled_back},
    identity::NewEmail,
    payments::{DeliverAgain, credit_payment, credit_pending_payments},
    people::{OneTimeLink, Roles},
    settings::LimitChange,
    top_ups::BadTopUp,
};
use crate::{
    backoffice::Action,
    base::{keys::random_id, timestamp},
    gateway::Gateway,
    ledger::{Audit, LedgerError},
};

/// Actor of actions that are authorized by the operator token, which belongs to no person.
pub(crate) const TOKEN: &str = "operator token";

/// Performs and records the actions of one actor.
#[derive(Clone)]
pub(crate) struct OperatorActions {
    gateway: Arc<Gateway>,
    actor: Arc<str>,
}

impl OperatorActions {
    pub(crate) fn by(gateway: &Arc<Gateway>, actor: &str) -> Self {
        Self {
            gateway: gateway.clone(),
            actor: actor.into(),
        }
    }

    pub(crate) fn by_token(gateway: &Arc<Gateway>) -> Self {
        Self::by(gateway, TOKEN)
    }

    /// Recomputes every balance of the ledger, and requests an alert check of the result.
    pub(crate) async fn audit(&self) -> Result<Audit, ActionError> {
        let actions = self.clone();
        self.run_to_completion(async move {
            let audit = actions.gateway.ledger.audit().await?;
            let found = serde_json::json!({
                "ok": audit.violations.is_empty(),
                "accounts": audit.accounts.len(),
                "entries": audit.entries,
                "charges": audit.charges,
                "violations": audit.violations.len(),
            });
            actions
                .record("audit.run", "ledger", None, Some(found))
                .await;
            actions.gateway.alerts.request_check();
            Ok(audit)
        })
        .await
    }

    /// Runs an action in a task of its own, so that it completes even if the caller's future is dropped.
    async fn run_to_completion<T: Send + 'static>(
        &self,
        action: impl Future<Output = Result<T, ActionError>> + Send + 'static,
    ) -> Result<T, ActionError> {
        match self.gateway.tasks.spawn(action).await {
            Ok(done) => done,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_) => Err(LedgerError::Stopped.into()),
            },
        }
    }

    /// Records a completed action with the state before and after it.
    async fn record(&self, what: &str, subject: &str, before: Option<Value>, after: Option<Value>) {
        let id = random_id("action_");
        self.record_once(&id, what, subject, before, after).await;
    }

    /// Records a completed action under an ID. If any gateway has recorded this ID before, the first record is kept.
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
            actor: self.actor.to_string(),
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
                "an operator action was performed, but recording it failed",
            );
        }
    }
}
