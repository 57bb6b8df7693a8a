//! The `usage` object of this API.

use crate::wire::{chat::Usage, json_writer::JsonWriter};

/// Writes the usage. Unlike a chat's prompt tokens, `input_tokens` exclude those read from or written to a cache.
pub(super) fn write(usage: Usage, json: &mut JsonWriter) {
    let fresh = usage.prompt.saturating_sub(usage.cached);
    let fresh = fresh.saturating_sub(usage.cache_write);
    let five_minutes = usage.cache_write.saturating_sub(usage.cache_write_1h);
    json.raw("{\"input_tokens\":").number(fresh);
    json.raw(",\"cache_creation_input_tokens\":")
        .number(usage.cache_write);
    json.raw(",\"cache_read_input_tokens\":")
        .number(usage.cached);
    json.raw(",\"cache_creation\":{\"ephemeral_5m_input_tokens\":")
        .number(five_minutes);
    json.raw(",\"ephemeral_1h_input_tokens\":")
        .number(usage.cache_write_1h);
    json.raw("},\"output_tokens\":").number(usage.completion);
    json.raw(",\"output_tokens_details\":{\"thinking_tokens\":")
        .number(usage.reasoning);
    json.raw("},\"server_tool_use\":null,\"service_tier\":\"standard\"}");
}
