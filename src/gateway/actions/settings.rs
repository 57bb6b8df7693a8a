//! Operator actions on model settings and rate limits.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{ActionError, OperatorActions};
use crate::{
    catalog::Model,
    ledger::{Edit, LimitRule, ModelSettings},
};

/// A change of the rate limits of an account, of a model, of both together, or of all.
#[derive(Clone, Debug, Default)]
pub(crate) struct LimitChange {
    pub account: Option<String>,
    pub model: Option<String>,
    pub requests: Edit<u32>,
    pub tokens: Edit<u32>,
}

impl OperatorActions {
    /// Changes the settings that are given and keeps the others.
    pub(crate) async fn change_model(
        &self,
        id: String,
        enabled: Option<bool>,
        unlisted: Option<bool>,
    ) -> Result<Arc<Model>, ActionError> {
        let model = self.gateway.routes().catalog.find(&id).cloned();
        let model = model.ok_or(ActionError::NoSuchModel(id))?;
        let actions = self.clone();
        self.run_to_completion(async move {
            let ledger = &actions.gateway.ledger;
            ledger.refresh().await?;
            let before = settings_json(&model, ledger.model_settings(&model.id));
            let settings = ledger.set_model(&model.id, enabled, unlisted).await?;
            let after = settings_json(&model, settings);
            if before != after {
                let (before, after) = (Some(before), Some(after));
                actions
                    .record("model.change", &model.id, before, after)
                    .await;
            }
            Ok(model)
        })
        .await
    }

    pub(crate) async fn change_limit(&self, change: LimitChange) -> Result<LimitRule, ActionError> {
        for (name, value) in [("rpm", change.requests), ("tpm", change.tokens)] {
            if value == Edit::Set(0) {
                return Err(ActionError::ZeroCeiling(name));
            }
        }
        let actions = self.clone();
        self.run_to_completion(async move {
            let ledger = &actions.gateway.ledger;
            if let Some(account) = &change.account {
                ledger.account(account).await?;
            }
            let routes = actions.gateway.routes();
            let unknown = |id: &&String| routes.catalog.find(id).is_none();
            if let Some(model) = change.model.as_ref().filter(unknown) {
                return Err(ActionError::NoSuchModel(model.clone()));
            }
            ledger.refresh().await?;
            let mut rules = ledger.limits().into_iter();
            let same_scope =
                |rule: &LimitRule| rule.account == change.account && rule.model == change.model;
            let before = rules.find(same_scope).map(|rule| rule_json(&rule));
            let LimitChange {
                account,
                model,
                requests,
                tokens,
            } = change;
            let rule = ledger.set_limit(account, model, requests, tokens).await?;
            let is_none = rule.requests.is_none() && rule.tokens.is_none();
            let after = (!is_none).then(|| rule_json(&rule));
            if before != after {
                actions
                    .record("limit.change", &subject(&rule), before, after)
                    .await;
            }
            Ok(rule)
        })
        .await
    }
}

fn settings_json(model: &Model, settings: ModelSettings) -> Value {
    json!({
        "enabled": settings.enabled,
        "unlisted": settings.unlisted.unwrap_or(model.unlisted),
    })
}

fn rule_json(rule: &LimitRule) -> Value {
    json!({
        "account": rule.account,
        "model": rule.model,
        "rpm": rule.requests,
        "tpm": rule.tokens,
    })
}

/// Returns the subject to record for a rule: its account, else its model, else `limits`.
fn subject(rule: &LimitRule) -> String {
    let named = rule.account.as_ref().or(rule.model.as_ref());
    named.cloned().unwrap_or_else(|| "limits".into())
}
