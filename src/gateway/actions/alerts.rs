//! Whether alerts arrive.

use serde_json::json;

use super::{ActError, Acts};
use crate::{backoffice::BackofficeError, base::timestamp, gateway::alerts};

impl Acts {
    /// Sends a test alert to operators, by every way there is.
    pub async fn test_alert(&self) -> Result<Result<(), BackofficeError>, ActError> {
        let acts = self.clone();
        self.whole(async move {
            let sent = alerts::send_test(&acts.gateway, timestamp::now()).await;
            if sent.is_ok() {
                let alerts = &acts.gateway.alerts;
                let to = json!({
                    "webhook": alerts.webhook.is_some(),
                    "letters": alerts.settings.mail_to.len(),
                });
                acts.record("alert.test", "alerts", None, Some(to)).await;
            }
            Ok(sent)
        })
        .await
    }
}
