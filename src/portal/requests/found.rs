//! Requests with an ID: calls and refused requests, as far as a person sees them.

use crate::{
    api::loggable,
    backoffice::RefusedRequest,
    gateway::Gateway,
    ledger::{Call, Key},
    portal::{error::PortalError, session::SignedIn, sight::Sight},
};

/// The requests of the account with a call ID, a request ID, or the ID of a refused request.
pub(crate) struct Found {
    pub calls: Vec<Call>,
    pub refused: Vec<RefusedRequest>,
}

impl Found {
    /// A request of another account, or one that the person does not see, is not among them.
    pub(crate) async fn with_id(
        gateway: &Gateway,
        me: &SignedIn,
        id: &str,
    ) -> Result<Self, PortalError> {
        let (id, account_id) = (loggable(id), me.account.id.as_str());
        if id.is_empty() || id.contains('\0') {
            return Ok(Self::nothing());
        }
        let sight = Sight::of(gateway, me).await?;
        let mut calls = gateway.ledger.find_calls_of(account_id, &id).await?;
        calls.retain(|call| sight.sees_call(call));
        // What was refused a moment ago is found too.
        gateway.write_refused_now().await;
        let refused = gateway.backoffice.find_refused(&id, Some(account_id));
        let mut refused = refused.await?;
        refused.retain(|one| sight.sees(one.member_id.as_deref(), one.project_id.as_deref()));
        Ok(Self { calls, refused })
    }

    fn nothing() -> Self {
        Self {
            calls: Vec::new(),
            refused: Vec::new(),
        }
    }

    pub(crate) fn is_nothing(&self) -> bool {
        self.calls.is_empty() && self.refused.is_empty()
    }

    /// The path of the page of the only request.
    pub(crate) fn only(&self) -> Option<String> {
        match (self.calls.as_slice(), self.refused.as_slice()) {
            ([call], []) => Some(super::path(call.id)),
            ([], [refused]) => Some(super::path(&refused.id)),
            _ => None,
        }
    }

    /// The keys of these requests that the person sees.
    pub(crate) async fn keys(
        &self,
        gateway: &Gateway,
        me: &SignedIn,
    ) -> Result<Vec<Key>, PortalError> {
        let of_calls = self.calls.iter().map(|call| call.payer.key_id.as_str());
        let of_refused = self.refused.iter().map(|one| one.key_id.as_str());
        keys_seen(gateway, me, of_calls.chain(of_refused)).await
    }
}

/// The keys with these IDs that the person sees.
pub(crate) async fn keys_seen(
    gateway: &Gateway,
    me: &SignedIn,
    ids: impl Iterator<Item = &str>,
) -> Result<Vec<Key>, PortalError> {
    let mut keys = gateway.ledger.keys_with_ids(ids).await?;
    keys.retain(|key| key.account_id == me.account.id && me.sees_key(key));
    Ok(keys)
}
