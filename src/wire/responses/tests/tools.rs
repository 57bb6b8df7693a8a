//! Tools of every kind, and the functions that a provider gets for them.

use serde_json::{Value, json};

use super::{parse, refused};
use crate::wire::chat::{AllowedTools, ToolChoice, ToolExecution};

fn function(name: &str) -> Value {
    json!({ "type": "function", "name": name, "parameters": { "type": "object" } })
}

fn custom(name: &str) -> Value {
    json!({ "type": "custom", "name": name })
}

fn namespace(name: &str, tools: Value) -> Value {
    json!({ "type": "namespace", "name": name, "description": "All about it.", "tools": tools })
}

/// The names of the functions that a provider gets for a request.
fn names(more: Value) -> Vec<String> {
    let tools = parse(more).unwrap().chat.tools;
    tools.into_iter().map(|tool| tool.function.name).collect()
}

#[test]
fn a_custom_tool_becomes_a_function_with_its_grammar() {
    let grammar = json!({ "type": "grammar", "syntax": "lark", "definition": "start: /.+/" });
    let tools = json!([
        { "type": "custom", "name": "patch", "description": "Edits files.", "format": grammar },
        { "type": "custom", "name": "say", "description": "Says it.", "format": { "type": "text" } },
        { "type": "custom", "name": "exec", "format": grammar },
    ]);
    let request = parse(json!({ "tools": tools })).unwrap();
    assert_eq!(request.echo.tools, tools, "as they were sent");
    let sent = json!(request.chat.tools);
    let schema = &sent[0]["function"]["parameters"];
    assert_eq!(schema["required"], json!(["input"]));
    assert_eq!(schema["properties"]["input"]["type"], "string");
    let text = "The input must match this lark grammar:\nstart: /.+/";
    for (at, description) in [
        (0, format!("Edits files.\n\n{text}")),
        (1, "Says it.".to_owned()),
        (2, text.to_owned()),
    ] {
        assert_eq!(sent[at]["function"]["description"], description);
        assert_eq!(&sent[at]["function"]["parameters"], schema);
    }
}

#[test]
fn a_namespace_is_flattened_for_the_provider_and_repeated_nested() {
    let tools = json!([
        function("mcp__tiny__add"),
        namespace(
            "mcp__tiny",
            json!([
                { "type": "function", "name": "add", "description": "Adds.", "strict": false,
                  "parameters": { "type": "object" } },
                custom("patch"),
            ])
        ),
    ]);
    let request = parse(json!({ "tools": tools })).unwrap();
    let mut echoed = tools.clone();
    echoed[0]["description"] = Value::Null;
    echoed[0]["strict"] = Value::Null;
    assert_eq!(request.echo.tools, echoed);
    let sent = json!(request.chat.tools);
    let name = |at: usize| sent[at]["function"]["name"].as_str().unwrap();
    assert_eq!(name(0), "mcp__tiny__add", "a plain function keeps its name");
    assert!(name(1).starts_with("mcp__tiny__add_"), "{}", name(1));
    assert_eq!(name(2), "mcp__tiny__patch");
    let added = request.names.tool(name(1));
    assert_eq!(added.namespace.as_deref(), Some("mcp__tiny"));
    assert_eq!(added.name, "add");
    let about = "All about it.\n\nAdds.";
    assert_eq!(
        sent[1]["function"]["description"], about,
        "once for all of them"
    );
    assert_eq!(sent[2]["function"].get("description"), None);
}

#[test]
fn fields_of_tools_that_change_nothing_are_dropped() {
    let mut more = function("f");
    for field in ["defer_loading", "output_schema", "allowed_callers", "async"] {
        more[field] = json!([1]);
    }
    let request = parse(json!({ "tools": [more] })).unwrap();
    let sent = json!(request.chat.tools);
    assert_eq!(
        sent[0]["function"],
        json!({ "name": "f", "parameters": { "type": "object" } })
    );
}

#[test]
fn tools_that_agents_always_add_are_left_out() {
    let kinds = [
        "web_search",
        "web_search_preview",
        "web_search_2025_08_26",
        "web_search_preview_2025_03_11",
        "image_generation",
    ];
    for kind in kinds {
        let hosted = json!({ "type": kind, "external_web_access": false });
        let request = parse(json!({ "tools": [hosted, function("f")] })).unwrap();
        assert_eq!(request.echo.tools.as_array().unwrap().len(), 1, "{kind}");
        assert_eq!(request.chat.tools.len(), 1);
        assert_eq!(request.chat.tool_execution, ToolExecution::Execute);
        // The built-in tools are not offered in their place.
        for choice in ["auto", "none"] {
            let request = parse(json!({ "tools": [hosted], "tool_choice": choice })).unwrap();
            assert_eq!(request.echo.tools, json!([]));
            assert_eq!(request.chat.tool_execution, ToolExecution::Passthrough);
        }
        let allowed = json!({ "type": "allowed_tools", "mode": "auto", "tools": [hosted] });
        for choice in [json!("required"), json!({ "type": kind }), allowed] {
            let more = json!({ "tools": [hosted], "tool_choice": choice });
            assert_eq!(refused(more), "tool_choice", "{choice}");
        }
        let forced = json!({ "tools": [function("f")], "tool_choice": { "type": kind } });
        assert_eq!(refused(forced), "tool_choice");
        let required = json!({ "tools": [hosted, function("f")], "tool_choice": "required" });
        assert_eq!(
            parse(required).unwrap().chat.tool_choice,
            Some(ToolChoice::Required)
        );
    }
    // Without tools there is nothing to leave out.
    let request = parse(json!({ "tools": [] })).unwrap();
    assert_eq!(request.chat.tool_execution, ToolExecution::Execute);
}

#[test]
fn tools_come_from_items_too() {
    let item =
        |tools: Value| json!({ "type": "additional_tools", "role": "developer", "tools": tools });
    let said = json!({ "role": "user", "content": "Hi" });
    let first = item(json!([namespace(
        "functions",
        json!([custom("exec"), function("wait")])
    )]));
    assert_eq!(
        names(json!({ "input": [first, said] })),
        ["functions__exec", "functions__wait"]
    );
    let request = parse(json!({ "input": [first, said] })).unwrap();
    assert_eq!(request.echo.tools, json!([]), "they are not repeated");
    // A later definition replaces an earlier one, in its place.
    let again = json!({ "type": "function", "name": "f", "description": "Better." });
    let more = json!({ "tools": [function("f")], "input": [item(json!([function("g")])), said,
                       item(json!([again]))] });
    assert_eq!(names(more.clone()), ["f", "g"]);
    let sent = json!(parse(more).unwrap().chat.tools);
    assert_eq!(sent[0]["function"]["description"], "Better.");
    // An item alone is no input, and an empty one does not switch the built-in tools on.
    assert_eq!(refused(json!({ "input": [first] })), "input");
    let request = parse(json!({ "input": [item(json!([])), said] })).unwrap();
    assert_eq!(request.chat.tool_execution, ToolExecution::Passthrough);
    assert_eq!(
        refused(json!({ "input": [said, item(json!([{ "type": "mcp" }]))] })),
        "input[1].tools[0].type"
    );
}

#[test]
fn tools_that_cannot_be_served_are_refused_by_their_place() {
    for (tools, param) in [
        (
            json!([namespace("a", json!([{ "type": "mcp" }]))]),
            "tools[0].tools[0].type",
        ),
        (
            json!([namespace("a", json!([namespace("b", json!([]))]))]),
            "tools[0].tools[0].type",
        ),
        (
            json!([namespace("a", json!([{ "type": "web_search" }]))]),
            "tools[0].tools[0].type",
        ),
        (
            json!([namespace("a", json!([function("f"), { "type": "custom" }]))]),
            "tools[0].tools[1].name",
        ),
        (json!([custom("f"), custom("f")]), "tools[1].name"),
        (
            json!([
                namespace("a", json!([function("f")])),
                namespace("a", json!([function("f")]))
            ]),
            "tools[1].tools[0].name",
        ),
        (
            json!([{ "type": "custom", "name": "f", "format": { "type": "xml" } }]),
            "tools[0].format.type",
        ),
        (
            json!([{ "type": "custom", "name": "f", "format": { "type": "grammar" } }]),
            "tools[0].format.definition",
        ),
    ] {
        assert_eq!(refused(json!({ "tools": tools })), param, "{tools}");
    }
    // One name for tools of different kinds is no clash.
    assert_eq!(
        names(json!({ "tools": [custom("f"), function("f")] }))[1],
        "f"
    );
}

#[test]
fn the_choice_names_tools_of_every_kind() {
    let tools = json!([
        function("f"),
        custom("f"),
        namespace("a", json!([function("f"), custom("g")])),
    ]);
    let all = names(json!({ "tools": tools }));
    let tool = |kind: &str, name: &str| json!({ "type": kind, "name": name });
    let inside = |kind: &str, name: &str| json!({ "type": kind, "name": name, "namespace": "a" });
    for (choice, at) in [
        (tool("function", "f"), 0),
        (tool("custom", "f"), 1),
        (inside("function", "f"), 2),
        (inside("custom", "g"), 3),
    ] {
        let request = parse(json!({ "tools": tools, "tool_choice": choice })).unwrap();
        assert_eq!(
            request.chat.tool_choice,
            Some(ToolChoice::Named(all[at].clone()))
        );
        assert_eq!(request.echo.tool_choice, choice);
    }
    let some = json!([tool("custom", "f"), { "type": "web_search" }, inside("function", "f")]);
    let some = json!({ "type": "allowed_tools", "mode": "required", "tools": some });
    let request = parse(json!({ "tools": tools, "tool_choice": some })).unwrap();
    let allowed = AllowedTools {
        required: true,
        names: all[1..3].to_vec(),
    };
    assert_eq!(request.chat.tool_choice, Some(ToolChoice::Allowed(allowed)));
    for choice in [
        tool("custom", "g"),
        inside("custom", "f"),
        tool("function", "a__f"),
        tool("tool_search", "f"),
        json!({ "type": "custom" }),
        json!({ "type": "apply_patch" }),
    ] {
        let more = json!({ "tools": tools, "tool_choice": choice });
        assert_eq!(refused(more), "tool_choice", "{choice}");
    }
}
