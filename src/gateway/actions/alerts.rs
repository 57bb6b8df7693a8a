//! Operator action that tests the delivery of alerts.

use serde_json::json;

use super::{ActionError, OperatorActions};
use crate::{backoffice::BackofficeError, base::timestamp, gateway::alerts};

impl OperatorActions {
    /// Queues a test alert to operators on every configured channel.
    pub(crate) async fn test_alert(&self) -> Result<Result<(), BackofficeError>, ActionError> {
        let actions = self.clone();
        self.run_to_completion(async move {
            let sent = alerts::send_test(&actions.gateway, timestamp::now()).await;
            if sent.is_ok() {
                let alerts = &actions.gateway.alerts;
                let to = json!({
                    "webhook": alerts.webhook.is_some(),
                    "letters": alerts.settings.mail_to.len(),
                });
                actions.record("alert.test", "alerts", None, Some(to)).await;
            }
            Ok(sent)
        })
        .await
    }
}
