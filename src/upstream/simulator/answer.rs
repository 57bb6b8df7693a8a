//! Composes the simulator's responses and their usage.

use serde_json::json;

use super::{directives::Directives, example, tokens};
use crate::{
    prompt::ChatCall,
    wire::{
        chat::{
            Answer, Choice, FinishReason, Message, ResponseFormat, Role, ToolCall, ToolChoice,
            Usage,
        },
        json_text::JsonText,
    },
};

/// How many characters of the user's message a response quotes.
const QUOTED_CHARS: usize = 200;

/// The whole response to `call`, according to `directives`.
pub(crate) fn compose(call: &ChatCall, directives: &Directives) -> Answer {
    let tool_calls = tool_calls_for(call, directives);
    let (content, finish) = if tool_calls.is_empty() {
        let (text, finish) = truncate(full_text(call, directives), call);
        (Some(text), finish)
    } else {
        (None, FinishReason::ToolCalls)
    };
    let output_tokens = content.as_deref().map_or(0, tokens::count)
        + tool_calls.iter().map(call_tokens).sum::<u32>();
    let choice = |index| Choice {
        index,
        content: content.as_deref().map(JsonText::new),
        tool_calls: tool_calls.clone(),
        finish: directives.finish.unwrap_or(finish),
        logprobs: None,
    };
    let prompt = call.messages.iter().map(message_tokens).sum::<u32>();
    let cache_write = directives.cache_write + directives.cache_write_1h;
    let usage = Usage {
        // The prompt includes tokens read from and written to the cache.
        prompt: prompt.max(directives.cached + cache_write),
        cached: directives.cached,
        cache_write,
        cache_write_1h: directives.cache_write_1h,
        completion: call.choices() * (output_tokens + directives.reasoning),
        reasoning: call.choices() * directives.reasoning,
    };
    Answer {
        choices: (0..call.choices()).map(choice).collect(),
        usage: (!directives.no_usage).then_some(usage),
        native: None,
    }
}

/// The tools to call: those that directives name and the request offers, or else the one that `tool_choice` forces.
/// After a tool result none is called.
fn tool_calls_for(call: &ChatCall, directives: &Directives) -> Vec<ToolCall> {
    let mut last = latest(call);
    let after_tool_result = last
        .next()
        .is_some_and(|message| message.role == Role::Tool);
    if after_tool_result || call.tool_choice == Some(ToolChoice::None) {
        return Vec::new();
    }
    let offered = |name: &str| call.tools.iter().find(|tool| tool.function.name == name);
    let directed = directives
        .tools
        .iter()
        .filter(|(name, _)| offered(name).is_some());
    let mut calls: Vec<_> = directed
        .map(|(name, arguments)| (name.clone(), arguments.clone()))
        .collect();
    if calls.is_empty() {
        let forced = match &call.tool_choice {
            Some(ToolChoice::Required) => call.tools.first(),
            Some(ToolChoice::Named(name)) => offered(name),
            _ => None,
        };
        calls.extend(forced.map(|tool| {
            let schema = tool
                .function
                .parameters
                .as_ref()
                .map_or("{}", |schema| schema.as_json());
            (tool.function.name.clone(), example::object_for(schema))
        }));
    }
    let numbered = calls.into_iter().enumerate();
    numbered
        .map(|(at, (name, arguments))| {
            let id = format!("call_sim{:0>20}", call.messages.len() * 100 + at);
            ToolCall::new(id, name, JsonText::new(&arguments.to_string()))
        })
        .collect()
}

/// The messages, the last one first. System messages at the end, with which some clients remind the model of its
/// instructions, are not counted: what they follow is still the end of the conversation.
fn latest(call: &ChatCall) -> impl Iterator<Item = &Message> {
    let messages = call.messages.iter().rev();
    messages.skip_while(|message| message.role == Role::System)
}

/// The text before stop sequences and token limit are applied.
fn full_text(call: &ChatCall, directives: &Directives) -> String {
    if let Some(tokens) = directives.tokens {
        return tokens::filler_text(tokens);
    }
    let user_text = call
        .last_user_text()
        .map(JsonText::decode)
        .unwrap_or_default();
    match &call.response_format {
        Some(ResponseFormat::JsonSchema { json_schema }) => {
            let schema = json_schema
                .schema
                .as_ref()
                .map_or("{}", |schema| schema.as_json());
            return example::value_for(schema).to_string();
        }
        Some(ResponseFormat::JsonObject) => {
            return json!({ "simulator": true, "you_said": tail(&user_text) }).to_string();
        }
        Some(ResponseFormat::Text) | None => {}
    }
    if !directives.unknown.is_empty() {
        return format!(
            "This is Tollgate's simulator. It does not know {:?}.",
            directives.unknown
        );
    }
    let results: Vec<_> = latest(call)
        .take_while(|message| message.role == Role::Tool)
        .filter_map(|message| message.content.as_ref().map(JsonText::decode))
        .collect();
    if results.is_empty() {
        format!(
            "This is Tollgate's simulator. You said: {}",
            tail(&user_text)
        )
    } else {
        let results: Vec<_> = results.into_iter().rev().collect();
        format!(
            "This is Tollgate's simulator. The tools answered: {}",
            results.join("; ")
        )
    }
}

/// The last [`QUOTED_CHARS`] characters of a text.
fn tail(text: &str) -> String {
    let skipped = text.chars().count().saturating_sub(QUOTED_CHARS);
    text.chars().skip(skipped).collect()
}

/// Applies stop sequences and then the token limit, as a model would.
fn truncate(mut text: String, call: &ChatCall) -> (String, FinishReason) {
    let stops = call.settings.stop.iter().filter(|stop| !stop.is_empty());
    if let Some(at) = stops.filter_map(|stop| text.find(stop.as_str())).min() {
        text.truncate(at);
    }
    let budget = call
        .budget
        .max_tokens
        .unwrap_or(call.route.target.max_output);
    if tokens::count(&text) <= budget {
        return (text, FinishReason::Stop);
    }
    let kept = tokens::split(&text).take(budget as usize).collect();
    (kept, FinishReason::Length)
}

fn message_tokens(message: &Message) -> u32 {
    let content = message.content.as_ref().map(JsonText::decode);
    let content = content.as_deref().map_or(0, tokens::count);
    4 + content + message.tool_calls.iter().map(call_tokens).sum::<u32>()
}

fn call_tokens(call: &ToolCall) -> u32 {
    tokens::count(&call.function.name) + tokens::count(&call.function.arguments.decode())
}
