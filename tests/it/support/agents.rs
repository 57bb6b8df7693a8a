//! Requests in the form in which coding agents send them.

use serde_json::{Value, json};

use super::responses::MODEL;

pub fn function(name: &str) -> Value {
    json!({
        "type": "function", "name": name, "description": format!("Runs {name}."), "strict": false,
        "parameters": { "type": "object", "properties": { "a": { "type": "string" } } },
    })
}

pub fn user(text: &str) -> Value {
    json!({
        "type": "message", "role": "user", "content": [{ "type": "input_text", "text": text }],
    })
}

pub fn developer(text: &str) -> Value {
    json!({
        "type": "message", "role": "developer", "content": [{ "type": "input_text", "text": text }],
    })
}

pub fn namespace(name: &str, tools: &[Value]) -> Value {
    json!({
        "type": "namespace", "name": name, "description": format!("Tools of {name}."), "tools": tools,
    })
}

/// The tool by which Codex edits files.
pub fn apply_patch() -> Value {
    json!({
        "type": "custom", "name": "apply_patch", "description": "Edits files.",
        "format": {
            "type": "grammar", "syntax": "lark",
            "definition": "start: begin_patch hunk+ end_patch\nbegin_patch: \"*** Begin Patch\" LF\n",
        },
    })
}

/// Codex with a model that it does not know.
pub fn codex(prompt: &str) -> Value {
    json!({
        "model": MODEL, "stream": true, "tool_choice": "auto", "parallel_tool_calls": true,
        "reasoning": { "summary": "auto" }, "store": false,
        "include": ["reasoning.encrypted_content"], "prompt_cache_key": "thread-1",
        "client_metadata": { "x-codex-installation-id": "i" },
        "input": [developer("You are a coding agent."), user("<environment_context/>"), user(prompt)],
        "tools": [
            function("exec_command"), function("write_stdin"), function("update_plan"),
            namespace("multi_agent_v1", &[function("spawn_agent"), function("wait_agent")]),
            { "type": "web_search", "external_web_access": false },
            namespace("mcp__tiny", &[function("add")]),
        ],
    })
}

/// Codex with a model of its catalog, which has a tool of free text.
pub fn codex_with_catalog(prompt: &str) -> Value {
    let mut body = codex(prompt);
    body["text"] = json!({ "verbosity": "low" });
    body["reasoning"] = json!({ "effort": "medium", "summary": "auto" });
    body["tools"].as_array_mut().unwrap().push(apply_patch());
    body
}

/// Codex without a configured model: the tools are in the first item.
pub fn codex_lite(prompt: &str) -> Value {
    let mut exec = apply_patch();
    exec["name"] = "exec".into();
    let mut body = codex(prompt);
    let fields = body.as_object_mut().unwrap();
    fields.remove("tools");
    fields.insert("parallel_tool_calls".into(), false.into());
    let reasoning = json!({ "effort": "low", "context": "all_turns" });
    fields.insert("reasoning".into(), reasoning);
    fields.insert("text".into(), json!({ "verbosity": "low" }));
    let tools = [
        namespace("functions", &[exec, function("wait")]),
        namespace("clock", &[function("now")]),
        namespace("collaboration", &[function("ask")]),
    ];
    let item = json!({ "type": "additional_tools", "role": "developer", "tools": tools });
    body["input"].as_array_mut().unwrap().insert(0, item);
    body
}

/// Cline with OpenAI's API at another address.
pub fn cline(prompt: &str) -> Value {
    json!({
        "model": MODEL, "stream": true, "truncation": "auto",
        "include": ["web_search_call.action.sources"],
        "input": [{ "role": "developer", "content": "You are Cline." }, { "role": "user", "content": prompt }],
        "tools": [
            { "type": "web_search" }, { "type": "image_generation" },
            function("read_file"), function("write_file"),
        ],
    })
}

/// The names of the functions in the body that a provider received.
pub fn offered(sent: &Value) -> Vec<&str> {
    let tools = sent["tools"].as_array().map(Vec::as_slice);
    let names = tools.unwrap_or_default().iter();
    names
        .map(|tool| tool["function"]["name"].as_str().unwrap())
        .collect()
}
