//! Which requests and usage of the account a person sees.

use super::{error::PortalError, session::SignedIn};
use crate::{
    backoffice::TeamRole,
    gateway::Gateway,
    ledger::{Call, DayUse, Key, SeenCalls, SumsOf},
};

/// Developers see the requests of keys that they made, and of the projects that their live keys belong to; the default
/// project, to which every key without another one belongs, is not shared. The other roles see the whole account.
pub(crate) enum Sight {
    Account,
    Own(SeenCalls),
}

impl Sight {
    pub(crate) async fn of(gateway: &Gateway, me: &SignedIn) -> Result<Self, PortalError> {
        if me.person.team_role != TeamRole::Developer {
            return Ok(Self::Account);
        }
        let keys = gateway.ledger.keys(&me.account.id).await?;
        let own = keys.iter().filter(|key| me.sees_key(key));
        let mut project_ids: Vec<_> = own.filter_map(|key| key.payer.project_id.clone()).collect();
        project_ids.sort_unstable();
        project_ids.dedup();
        Ok(Self::Own(SeenCalls {
            member_id: me.person.id.clone(),
            project_ids,
        }))
    }

    /// The restriction of a query for calls.
    pub(crate) fn calls(&self) -> Option<&SeenCalls> {
        match self {
            Self::Account => None,
            Self::Own(seen) => Some(seen),
        }
    }

    pub(crate) fn sees_call(&self, call: &Call) -> bool {
        let payer = &call.payer;
        self.sees(payer.member_id.as_deref(), payer.project_id.as_deref())
    }

    /// Whether the person sees requests with a key of this member and project.
    pub(crate) fn sees(&self, member_id: Option<&str>, project_id: Option<&str>) -> bool {
        let seen = self.calls();
        seen.is_none_or(|seen| seen.include(member_id, project_id))
    }

    /// What to read for sums that the person sees: each one if some are left out afterwards.
    pub(crate) fn sums(&self, wanted: SumsOf) -> SumsOf {
        match self {
            Self::Account => wanted,
            Self::Own(_) => SumsOf::Each,
        }
    }

    /// Keeps the sums that the person sees.
    pub(crate) async fn restrict(
        &self,
        gateway: &Gateway,
        sums: &mut Vec<DayUse>,
    ) -> Result<(), PortalError> {
        let Self::Own(seen) = self else {
            return Ok(());
        };
        let ids = sums.iter().map(|sum| sum.key_id.as_str());
        let keys = gateway.ledger.keys_with_ids(ids).await?;
        sums.retain(|sum| {
            let key = keys.iter().find(|key: &&Key| key.id == sum.key_id);
            let member_id = key.and_then(|key| key.payer.member_id.as_deref());
            seen.include(member_id, Some(&sum.project_id))
        });
        Ok(())
    }
}
