//! The key that pays for a person's calls in the playground.

use axum::{
    http::{HeaderValue, StatusCode, header::RETRY_AFTER},
    response::{IntoResponse, Response},
};

use crate::{
    api::RequestLog,
    gateway::Gateway,
    ledger::{Caller, Key, NewKey},
    portal::{error::PortalError, keys::create::new_key, session::SignedIn},
    wire::error::GatewayError,
};

/// Name of the API key with which the playground makes a person's calls. It is an ordinary key that belongs to them,
/// so its usage is shown separately and disabling it disables their playground. Its secret is never shown.
const KEY_NAME: &str = "Playground";

/// Whether the playground uses the key, so that its secret may never have been shown.
pub(crate) fn is_playground_key(key: &Key) -> bool {
    key.name == KEY_NAME && key.payer.member_id.is_some()
}

/// Why there is no caller to pay for a call.
pub(super) enum NoCaller {
    Refused(GatewayError),
    /// Too many keys were created lately.
    Throttled {
        error: GatewayError,
        seconds: u64,
    },
}

impl IntoResponse for NoCaller {
    fn into_response(self) -> Response {
        match self {
            Self::Refused(error) => error.into_response(),
            Self::Throttled { error, seconds } => {
                let mut response = error.into_response();
                *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
                let seconds = HeaderValue::from(seconds);
                response.headers_mut().insert(RETRY_AFTER, seconds);
                response
            }
        }
    }
}

/// The caller whose key is that of the person's playground, which is created at their first call. A key that is not
/// valid, e.g. because it was disabled, is noted in `log`: the refusal is listed with it.
pub(super) async fn paying(
    gateway: &Gateway,
    me: &SignedIn,
    log: &RequestLog,
) -> Result<Caller, NoCaller> {
    // Like the API, start no new calls once shutdown was requested.
    if gateway.shutdown.is_requested() {
        return Err(NoCaller::Refused(GatewayError::ShuttingDown));
    }
    let unavailable = |_| NoCaller::Refused(GatewayError::CreditUnavailable);
    let keys = gateway.ledger.keys(&me.account.id).await;
    let mut keys = keys.map_err(unavailable)?.into_iter();
    let member_id = Some(&me.person.id);
    let own = keys.find(|key| is_playground_key(key) && key.payer.member_id.as_ref() == member_id);
    let new = NewKey {
        member_id: member_id.cloned(),
        ..KEY_NAME.into()
    };
    let key = match own {
        Some(key) => key,
        None => match new_key(gateway, me, new).await {
            Ok((key, _)) => key,
            Err(error) => return Err(without_key(&error)),
        },
    };
    let caller = gateway.ledger.fresh_caller(key.digest).await;
    let caller = caller.map_err(unavailable)?;
    caller.ok_or_else(|| {
        log.invalid_key(key.digest);
        NoCaller::Refused(GatewayError::InvalidKey)
    })
}

/// The error if the key could not be created.
fn without_key(error: &PortalError) -> NoCaller {
    let refused = GatewayError::InvalidRequest {
        message: format!("The playground needs a key of its own. {error}"),
        param: None,
    };
    match error {
        PortalError::Invalid(_) => NoCaller::Refused(refused),
        PortalError::TooMany { seconds } => NoCaller::Throttled {
            error: refused,
            seconds: *seconds,
        },
        _ => NoCaller::Refused(GatewayError::CreditUnavailable),
    }
}
