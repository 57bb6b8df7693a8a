//! Whether a call may start: SPEC §8.1, §8.2.

use crate::{
    chat::ChatCall,
    error::GatewayError,
    gateway::Gateway,
    limits::{Admission, estimate_tokens},
    wire::chat::ResponseFormat,
};

/// Role, separators and the like, for each message or tool.
const TOKENS_PER_ITEM: u64 = 4;

/// Takes the call's place in the account's minute with the requested model.
pub fn admit(gateway: &Gateway, call: &ChatCall) -> Result<Admission, GatewayError> {
    let (account, model) = (call.user.as_str(), call.route.requested.id.as_str());
    let ceilings = gateway.ledger.ceilings(account, model, gateway.ceilings);
    gateway
        .limiter
        .admit(account, model, reservation(call), ceilings)
        .map_err(GatewayError::RateLimited)
}

/// What a call may use: its input, its schemas, and the budget of every completion.
fn reservation(call: &ChatCall) -> u64 {
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
    let output = u64::from(call.choices()) * u64::from(call.budget.reserved);
    messages.sum::<u64>() + tools.sum::<u64>() + format + output
}
