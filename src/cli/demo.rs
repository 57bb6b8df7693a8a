//! The demo account of `tollgate dev`: with credit, a key, and a person to sign in as.

use std::collections::BTreeMap;

use crate::{
    backoffice::{BackofficeError, NewPerson, Role, TeamRole},
    base::{
        keys::{ApiKey, random_text},
        money::NanoUsd,
        rate::Ceilings,
        timestamp,
    },
    catalog::{Tier, Track},
    gateway::Gateway,
    ledger::{Edit, Ledger, LedgerError, NewAccount, NewGrant},
};

pub(crate) const DEMO_EMAIL: &str = "demo@tollgate.local";
const DEMO_CREDIT: i64 = 100_000_000_000;
const PASSWORD_CHARS: usize = 16;
/// Requests and tokens per minute with each model.
const DEMO_LIMITS: Ceilings = Ceilings {
    requests: 600,
    tokens: 2_000_000,
};

pub(crate) struct Demo {
    pub key: ApiKey,
    pub password: String,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum DemoError {
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    #[error(transparent)]
    Backoffice(#[from] BackofficeError),
    #[error("the password could not be hashed")]
    Password,
}

impl Demo {
    /// Creates the demo account, or reuses the key and password of an earlier start (`before`) if they still work.
    pub(crate) async fn prepare(
        gateway: &Gateway,
        before: &BTreeMap<String, String>,
    ) -> Result<Self, DemoError> {
        let key = before.get("OPENAI_API_KEY");
        let key = demo_key(&gateway.ledger, key.and_then(|key| ApiKey::parse(key))).await?;
        widen_limits(&gateway.ledger, &key).await?;
        let password = before.get("TOLLGATE_PORTAL_PASSWORD").cloned();
        let password = demo_person(gateway, &key, password).await?;
        Ok(Self { key, password })
    }
}

/// Ensures that the demo person exists, and returns their password: `known` if it still works, else a new one.
async fn demo_person(
    gateway: &Gateway,
    key: &ApiKey,
    known: Option<String>,
) -> Result<String, DemoError> {
    let (backoffice, passwords) = (&gateway.backoffice, &gateway.backoffice.passwords);
    let person = backoffice.person_by_email(DEMO_EMAIL).await?;
    let stored = person.as_ref().and_then(|person| person.password.clone());
    if let Some(known) = known
        && stored.is_some()
        && passwords.verify(known.clone(), stored).await
    {
        return Ok(known);
    }
    let password = random_text(PASSWORD_CHARS);
    let hash = passwords.hash(password.clone()).await;
    let hash = hash.map_err(|_| DemoError::Password)?;
    let now = timestamp::now();
    if let Some(person) = person {
        backoffice
            .set_password(&person.id, &hash, None, now)
            .await?;
        return Ok(password);
    }
    let caller = gateway.ledger.fresh_caller(key.digest()).await?;
    let account_id = caller.map(|caller| caller.account_id);
    backoffice
        .add_person(NewPerson {
            email: DEMO_EMAIL.into(),
            name: Some("Demo".into()),
            password: Some(hash),
            role: Role::Operator,
            account_id: account_id.ok_or(LedgerError::Unavailable)?,
            team_role: TeamRole::Owner,
            now,
        })
        .await?;
    Ok(password)
}

/// The key of an earlier start (`known`) if it still works, else a new one for the demo account.
async fn demo_key(ledger: &Ledger, known: Option<ApiKey>) -> Result<ApiKey, LedgerError> {
    if let Some(key) = known {
        let caller = ledger.fresh_caller(key.digest()).await?;
        if caller.is_some_and(|caller| !caller.account_closed) {
            return Ok(key);
        }
    }
    let demo = |account: &crate::ledger::Account| account.email == DEMO_EMAIL && !account.closed;
    let account_id = match ledger.accounts().await?.into_iter().find(demo) {
        Some(account) => account.id,
        None => demo_account(ledger).await?,
    };
    // Without dev.env there is a new key at each start, which must not fail for it.
    let created = ledger.create_key(&account_id, "dev".into(), u32::MAX);
    Ok(created.await?.1)
}

/// Gives the demo account room for a coding agent, which sends many large requests, unless it has limits of its own.
async fn widen_limits(ledger: &Ledger, key: &ApiKey) -> Result<(), LedgerError> {
    let caller = ledger.fresh_caller(key.digest()).await?;
    let account_id = caller.ok_or(LedgerError::Unavailable)?.account_id;
    let mut rules = ledger.limits().into_iter();
    if rules.any(|rule| rule.account.as_ref() == Some(&account_id)) {
        return Ok(());
    }
    let (requests, tokens) = (
        Edit::Set(DEMO_LIMITS.requests),
        Edit::Set(DEMO_LIMITS.tokens),
    );
    let set = ledger.set_limit(Some(account_id), None, requests, tokens);
    set.await.map(drop)
}

async fn demo_account(ledger: &Ledger) -> Result<String, LedgerError> {
    let account = NewAccount {
        email: DEMO_EMAIL.into(),
        name: Some("Demo".into()),
        track: Track::Business,
        tier: Tier::Flex,
    };
    let account = ledger.create_account(account).await?;
    let credit = NewGrant {
        amount: NanoUsd::new(DEMO_CREDIT),
        expires_at: None,
        reason: Some("for trying things out".into()),
        reference: None,
    };
    ledger.add_grant(&account.id, credit).await?;
    Ok(account.id)
}
