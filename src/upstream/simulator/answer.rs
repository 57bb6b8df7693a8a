//! What the simulator says, and what it counts.

use serde_json::json;

use super::{directives::Directives, example, pace};
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

const QUOTED_CHARS: usize = 200;

/// The whole answer to `call`, as `script` asks for it.
pub fn compose(call: &ChatCall, script: &Directives) -> Answer {
    let tool_calls = called_tools(call, script);
    let (content, finish) = if tool_calls.is_empty() {
        let (text, finish) = cut(said(call, script), call);
        (Some(text), finish)
    } else {
        (None, FinishReason::ToolCalls)
    };
    let written = content.as_deref().map_or(0, pace::count_tokens)
        + tool_calls.iter().map(call_tokens).sum::<u32>();
    let choice = |index| Choice {
        index,
        content: content.as_deref().map(JsonText::new),
        tool_calls: tool_calls.clone(),
        finish: script.finish.unwrap_or(finish),
        logprobs: None,
    };
    let prompt = call.messages.iter().map(message_tokens).sum::<u32>();
    let cache_write = script.cache_write + script.cache_write_1h;
    let usage = Usage {
        // What came from a cache or was written to it is part of what was read.
        prompt: prompt.max(script.cached + cache_write),
        cached: script.cached,
        cache_write,
        cache_write_1h: script.cache_write_1h,
        completion: call.choices() * (written + script.reasoning),
        reasoning: call.choices() * script.reasoning,
    };
    Answer {
        choices: (0..call.choices()).map(choice).collect(),
        usage: (!script.no_usage).then_some(usage),
    }
}

fn called_tools(call: &ChatCall, script: &Directives) -> Vec<ToolCall> {
    let answering = call
        .messages
        .last()
        .is_some_and(|message| message.role == Role::Tool);
    if answering || call.tool_choice == Some(ToolChoice::None) {
        return Vec::new();
    }
    let offered = |name: &str| call.tools.iter().find(|tool| tool.function.name == name);
    let directed = script
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

/// The text before it meets the caller's limits.
fn said(call: &ChatCall, script: &Directives) -> String {
    if let Some(tokens) = script.tokens {
        return pace::words(tokens);
    }
    let heard = call
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
            return json!({ "simulator": true, "you_said": tail(&heard) }).to_string();
        }
        Some(ResponseFormat::Text) | None => {}
    }
    if !script.unknown.is_empty() {
        return format!(
            "This is Tollgate's simulator. It does not know {:?}.",
            script.unknown
        );
    }
    let answers: Vec<_> = call
        .messages
        .iter()
        .rev()
        .take_while(|message| message.role == Role::Tool)
        .filter_map(|message| message.content.as_ref().map(JsonText::decode))
        .collect();
    if answers.is_empty() {
        format!("This is Tollgate's simulator. You said: {}", tail(&heard))
    } else {
        let answers: Vec<_> = answers.into_iter().rev().collect();
        format!(
            "This is Tollgate's simulator. The tools answered: {}",
            answers.join("; ")
        )
    }
}

/// The end of what was said.
fn tail(text: &str) -> String {
    let skipped = text.chars().count().saturating_sub(QUOTED_CHARS);
    text.chars().skip(skipped).collect()
}

/// Stop sequences, then the budget: as a real model would end.
fn cut(mut text: String, call: &ChatCall) -> (String, FinishReason) {
    let stops = call.settings.stop.iter().filter(|stop| !stop.is_empty());
    if let Some(at) = stops.filter_map(|stop| text.find(stop.as_str())).min() {
        text.truncate(at);
    }
    let budget = call
        .budget
        .max_tokens
        .unwrap_or(call.route.target.max_output);
    if pace::count_tokens(&text) <= budget {
        return (text, FinishReason::Stop);
    }
    let kept = pace::tokens(&text).take(budget as usize).collect();
    (kept, FinishReason::Length)
}

fn message_tokens(message: &Message) -> u32 {
    let content = message.content.as_ref().map(JsonText::decode);
    let content = content.as_deref().map_or(0, pace::count_tokens);
    4 + content + message.tool_calls.iter().map(call_tokens).sum::<u32>()
}

fn call_tokens(call: &ToolCall) -> u32 {
    pace::count_tokens(&call.function.name) + pace::count_tokens(&call.function.arguments.decode())
}
