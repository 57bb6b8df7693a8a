//! The response object. It always has every field.

use serde_json::{Value, json};

use super::{
    echo::Echo,
    output::{OutputItem, finished},
    tool_names::ToolNames,
};
use crate::wire::chat::{Answer, Bill, FinishReason};

/// A response in the making: the fields that are known before the provider has responded.
#[derive(Debug)]
pub(crate) struct NewResponse {
    pub id: String,
    pub created_at: u64,
    pub echo: Echo,
    /// Leads from the provider's names of tools to the caller's.
    pub names: ToolNames,
}

/// How a response ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ending {
    pub reason: FinishReason,
    pub bill: Option<Bill>,
    /// Unix seconds.
    pub at: u64,
}

impl NewResponse {
    /// The object at the start, without output.
    pub(crate) fn in_progress(&self) -> Value {
        self.object("in_progress", &[], None, None, self.echo.store)
    }

    /// The object of a response that was not streamed.
    pub(crate) fn whole(
        &self,
        answer: &Answer,
        bill: Option<Bill>,
        at: u64,
        stored: bool,
    ) -> Value {
        let reason = answer.choices.first().map(|choice| choice.finish);
        let ending = Ending {
            reason: reason.unwrap_or(FinishReason::Stop),
            bill,
            at,
        };
        let items = OutputItem::all_of(answer, &self.id, &self.names);
        self.finished(&items, ending, stored)
    }

    /// The object of a response that failed, with the output that was sent. It is not stored.
    pub(crate) fn failed(&self, output: &[Value], message: &str) -> Value {
        let mut object = self.object("failed", output, None, None, false);
        object["error"] = json!({ "code": "server_error", "message": message });
        object
    }

    pub(crate) fn finished(&self, items: &[OutputItem], ending: Ending, stored: bool) -> Value {
        let (status, why) = status(ending.reason);
        let output = finished(items, ending.reason);
        let completed_at = (status == "completed").then_some(ending.at);
        let mut object = self.object(status, &output, ending.bill, completed_at, stored);
        if let Some(reason) = why {
            object["incomplete_details"] = json!({ "reason": reason });
        }
        object
    }

    fn object(
        &self,
        status: &str,
        output: &[Value],
        bill: Option<Bill>,
        completed_at: Option<u64>,
        store: bool,
    ) -> Value {
        let echo = &self.echo;
        json!({
            "id": self.id,
            "object": "response",
            "created_at": self.created_at,
            "completed_at": completed_at,
            "status": status,
            "background": false,
            "error": null,
            "incomplete_details": null,
            "instructions": echo.instructions,
            "max_output_tokens": echo.max_output_tokens,
            "max_tool_calls": echo.max_tool_calls,
            "model": echo.model,
            "output": output,
            "parallel_tool_calls": echo.parallel_tool_calls,
            "previous_response_id": echo.previous_response_id,
            "prompt_cache_key": echo.prompt_cache_key,
            "reasoning": echo.reasoning,
            "safety_identifier": echo.safety_identifier,
            "service_tier": "default",
            "store": store,
            "temperature": echo.temperature,
            "text": echo.text,
            "tool_choice": echo.tool_choice,
            "tools": echo.tools,
            "top_logprobs": echo.top_logprobs,
            "top_p": echo.top_p,
            "presence_penalty": 0,
            "frequency_penalty": 0,
            "truncation": echo.truncation,
            "usage": bill.map(usage),
            "user": echo.user,
            "metadata": echo.metadata,
        })
    }
}

/// The body of the response to a deletion.
pub(crate) fn deleted(id: &str) -> Value {
    json!({ "id": id, "object": "response", "deleted": true })
}

/// The status of a finished response, and the reason if it is incomplete.
pub(crate) fn status(reason: FinishReason) -> (&'static str, Option<&'static str>) {
    match reason {
        FinishReason::Stop | FinishReason::ToolCalls => ("completed", None),
        FinishReason::Length => ("incomplete", Some("max_output_tokens")),
        FinishReason::ContentFilter => ("incomplete", Some("content_filter")),
    }
}

fn usage(Bill { usage, cost }: Bill) -> Value {
    json!({
        "input_tokens": usage.prompt,
        "input_tokens_details": {
            "cached_tokens": usage.cached,
            "cache_write_tokens": usage.cache_write,
        },
        "output_tokens": usage.completion,
        "output_tokens_details": { "reasoning_tokens": usage.reasoning },
        "total_tokens": usage.total(),
        "cost": cost,
    })
}
