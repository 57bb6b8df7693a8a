//! The operator action on the secret that signs the portal's cookies. The secret itself is never recorded.

use super::{ActionError, OperatorActions};
use crate::{backoffice::COOKIES, base::timestamp};

impl OperatorActions {
    /// Replaces the secret and returns when.
    pub(crate) async fn rotate_cookie_secret(&self) -> Result<i64, ActionError> {
        let actions = self.clone();
        self.run_to_completion(async move {
            let now = timestamp::now();
            actions.gateway.rotate_cookie_secret(now).await?;
            actions.record("secret.rotate", COOKIES, None, None).await;
            Ok(now)
        })
        .await
    }
}
