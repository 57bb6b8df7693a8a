//! Accounts with credit, and the calls that benchmarks charge to them.

use tollgate::{
    base::{keys::ApiKey, money::NanoUsd},
    catalog::{Model, Tier, Track},
    ledger::{CallId, Caller, HoldRequest, Ledger, NewAccount, NewGrant},
    wire::chat::Usage,
};

/// The usage of every call that is charged.
pub const USAGE: Usage = Usage {
    prompt: 11,
    cached: 0,
    cache_write: 0,
    cache_write_1h: 0,
    completion: 3,
    reasoning: 0,
};

/// Creates an account with more credit than can be spent, and this many keys.
pub async fn customer(ledger: &Ledger, email: &str, keys: usize) -> Vec<(Caller, ApiKey)> {
    let new = NewAccount {
        email: email.into(),
        name: None,
        track: Track::Business,
        tier: Tier::Flex,
    };
    let account = ledger.create_account(new).await.unwrap();
    let grant = NewGrant {
        amount: NanoUsd::new(i64::MAX / 4),
        expires_at: None,
        reason: None,
        reference: None,
    };
    ledger.add_grant(&account.id, grant).await.unwrap();
    let mut customers = Vec::new();
    for number in 0..keys {
        let name = format!("key {number}");
        let (_, key) = ledger
            .create_key(&account.id, name.into(), u32::MAX)
            .await
            .unwrap();
        let caller = ledger.fresh_caller(key.digest()).await.unwrap();
        customers.push((caller.unwrap(), key));
    }
    customers
}

/// A hold for a call of usual size.
pub fn hold_request<'a>(
    id: CallId,
    caller: &'a Caller,
    model: &'a Model,
    request_id: &'a str,
) -> HoldRequest<'a> {
    HoldRequest {
        id,
        seen: caller.seen,
        reservations: &[],
        request_id,
        account_id: &caller.account_id,
        payer: &caller.payer,
        secret: caller.digest,
        model: &model.id,
        routed_model: &model.id,
        prices: model.prices.clone(),
        stream: false,
        reserved_tokens: 4_100,
        amount: NanoUsd::new(37_000_000),
        worst: NanoUsd::new(37_000_000),
        decision: None,
        agent: None,
        idempotency: None,
        overdraft: NanoUsd::default(),
    }
}
