//! What holds for models, and ceilings a minute.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{ActError, Acts};
use crate::{
    catalog::Model,
    ledger::{CeilingChange, LimitRule, ModelSettings},
};

/// What is to become of the ceilings of an account, a model, both together or all.
#[derive(Clone, Debug, Default)]
pub struct LimitChange {
    pub account: Option<String>,
    pub model: Option<String>,
    pub requests: CeilingChange,
    pub tokens: CeilingChange,
}

impl Acts {
    /// Sets what is given, and keeps the rest.
    pub async fn change_model(
        &self,
        id: String,
        enabled: Option<bool>,
        unlisted: Option<bool>,
    ) -> Result<Arc<Model>, ActError> {
        let model = self.gateway.routes().catalog.find(&id).cloned();
        let model = model.ok_or(ActError::NoSuchModel(id))?;
        let acts = self.clone();
        self.whole(async move {
            let ledger = &acts.gateway.ledger;
            ledger.refresh().await?;
            let before = shown(&model, ledger.model_settings(&model.id));
            let settings = ledger.set_model(&model.id, enabled, unlisted).await?;
            let after = shown(&model, settings);
            if before != after {
                let (before, after) = (Some(before), Some(after));
                acts.record("model.change", &model.id, before, after).await;
            }
            Ok(model)
        })
        .await
    }

    pub async fn change_limit(&self, change: LimitChange) -> Result<LimitRule, ActError> {
        for (name, value) in [("rpm", change.requests), ("tpm", change.tokens)] {
            if value == CeilingChange::Set(0) {
                return Err(ActError::ZeroCeiling(name));
            }
        }
        let acts = self.clone();
        self.whole(async move {
            let ledger = &acts.gateway.ledger;
            if let Some(account) = &change.account {
                ledger.account(account).await?;
            }
            let routes = acts.gateway.routes();
            let unknown = |id: &&String| routes.catalog.find(id).is_none();
            if let Some(model) = change.model.as_ref().filter(unknown) {
                return Err(ActError::NoSuchModel(model.clone()));
            }
            ledger.refresh().await?;
            let mut rules = ledger.limits().into_iter();
            let same =
                |rule: &LimitRule| rule.account == change.account && rule.model == change.model;
            let before = rules.find(same).map(|rule| ceilings(&rule));
            let LimitChange {
                account,
                model,
                requests,
                tokens,
            } = change;
            let rule = ledger.set_limit(account, model, requests, tokens).await?;
            let is_none = rule.requests.is_none() && rule.tokens.is_none();
            let after = (!is_none).then(|| ceilings(&rule));
            if before != after {
                acts.record("limit.change", &subject(&rule), before, after)
                    .await;
            }
            Ok(rule)
        })
        .await
    }
}

fn shown(model: &Model, settings: ModelSettings) -> Value {
    json!({
        "enabled": settings.enabled,
        "unlisted": settings.unlisted.unwrap_or(model.unlisted),
    })
}

fn ceilings(rule: &LimitRule) -> Value {
    json!({
        "account": rule.account,
        "model": rule.model,
        "rpm": rule.requests,
        "tpm": rule.tokens,
    })
}

/// Whose limit it is: an account's, else a model's, else everyone's.
fn subject(rule: &LimitRule) -> String {
    let named = rule.account.as_ref().or(rule.model.as_ref());
    named.cloned().unwrap_or_else(|| "limits".into())
}
