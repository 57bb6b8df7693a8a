//! Whether a call may start, and what it comes to: SPEC §8.1, §8.2, §8.6.

use crate::{
    chat::{ChatCall, Route},
    error::GatewayError,
    gateway::Gateway,
    ledger::{Caller, Held, HoldRefused, HoldRequest, Shortage},
    limits::{Admission, estimate_tokens},
    money::NanoUsd,
    time_text,
    wire::chat::{ResponseFormat, Usage},
};

/// How far an account may go below zero by calls that cost more than they held: five dollars.
const MAX_OVERDRAFT: NanoUsd = NanoUsd::new(5_000_000_000);
/// Role, separators and the like, for each message or tool.
const TOKENS_PER_ITEM: u64 = 4;

/// A call that may start: its place in the minute, and the credit set aside for it.
///
/// Dropped without being settled, the credit is given back and the place counts as a request that
/// used nothing.
pub struct Admitted<'a> {
    place: Admission,
    credit: Held<'a>,
}

/// Limits first, credit second: both or neither.
pub fn admit<'a>(
    gateway: &'a Gateway,
    caller: &Caller,
    call: &ChatCall,
) -> Result<Admitted<'a>, GatewayError> {
    let (account_id, model) = (caller.account_id.as_str(), call.route.requested.id.as_str());
    let ceilings = gateway.ledger.ceilings(account_id, model, gateway.ceilings);
    let (input, prices) = (estimated_input(call), call.route.target.prices);
    let times = u64::from(call.choices());
    let output = times * u64::from(call.budget.reserved);
    let most = times * u64::from(call.budget.most);
    let place = gateway
        .limiter
        .admit(account_id, model, input + output, ceilings)
        .map_err(GatewayError::RateLimited)?;
    let held = gateway.ledger.hold(HoldRequest {
        account_id,
        key_id: &caller.key_id,
        amount: prices.cost(input, 0, output),
        worst: prices.cost(input, 0, most),
        overdraft: MAX_OVERDRAFT,
    });
    match held {
        Ok(credit) => Ok(Admitted { place, credit }),
        Err(refused) => {
            place.cancel();
            Err(unpaid(refused, gateway.links.billing.clone()))
        }
    }
}

impl Admitted<'_> {
    /// When the credit the call is paid from expires.
    pub fn credits_expire_at(&self) -> Option<i64> {
        self.credit.expires_at
    }

    /// The call never reached a provider.
    pub fn cancel(self) {
        self.place.cancel();
    }

    /// Charges what was used and puts it in the place of what was reserved. When this returns, the
    /// charge is committed.
    pub async fn settle(self, call: &ChatCall, usage: Usage) -> Result<(), GatewayError> {
        let Route { requested, target } = &call.route;
        let charged = self.credit.settle(requested, target, usage, call.stream);
        charged.await.map_err(|error| {
            tracing::error!(%error, account.id = call.user, "a charge could not be written");
            GatewayError::CreditUnavailable
        })?;
        self.place.settle(usage.total());
        Ok(())
    }
}

fn unpaid(refused: HoldRefused, billing_url: String) -> GatewayError {
    match refused {
        HoldRefused::KeyInactive => GatewayError::InvalidKey,
        HoldRefused::NoAccount { balance } => GatewayError::NoAccount {
            balance,
            billing_url,
        },
        HoldRefused::Short(Shortage::Insufficient { balance }) => {
            GatewayError::InsufficientCredits {
                balance,
                billing_url,
            }
        }
        HoldRefused::Short(Shortage::Expired { balance, at }) => GatewayError::CreditsExpired {
            balance,
            expired_at: time_text::shown(at),
            billing_url,
        },
    }
}

/// The tokens of everything the model reads: messages, tools and schemas.
fn estimated_input(call: &ChatCall) -> u64 {
    let messages = call.messages.iter().map(|message| {
        let content = message.content.as_ref().map_or("", |text| text.as_json());
        let calls = message.tool_calls.iter().map(|call| &call.function);
        let calls = calls.map(|function| {
            estimate_tokens(&function.name) + estimate_tokens(function.arguments.as_json())
        });
        TOKENS_PER_ITEM + estimate_tokens(content) + calls.sum::<u64>()
    });
    let tools = call.tools.iter().map(|tool| {
        let parameters = tool.function.parameters.as_ref();
        let texts = [
            tool.function.name.as_str(),
            tool.function.description.as_deref().unwrap_or_default(),
            parameters.map_or("", |schema| schema.as_json()),
        ];
        TOKENS_PER_ITEM + texts.into_iter().map(estimate_tokens).sum::<u64>()
    });
    let format = match &call.response_format {
        Some(ResponseFormat::JsonSchema { json_schema }) => {
            let schema = json_schema.schema.as_ref();
            schema.map_or(0, |schema| estimate_tokens(schema.as_json()))
        }
        _ => 0,
    };
    messages.sum::<u64>() + tools.sum::<u64>() + format
}
