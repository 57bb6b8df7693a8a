//! §2.4, §8.4 and §2.1: the caller's tools, the choice among them, structured output.

use serde_json::{Value, json};

use crate::support::{
    TestGateway,
    bodies::{hello_with, tool},
    models::MODELS,
};

const MODEL: &str = "svc-native-fast";

fn tools(count: usize) -> Value {
    (0..count).map(|at| tool(&format!("f{at}"))).collect()
}

/// The limit is 50 tools for one provider family and 100 for the others.
#[tokio::test]
async fn each_model_has_a_maximum_number_of_tools() {
    let gateway = TestGateway::start().await;
    for model in MODELS {
        let most = if model == "svc-flex-beta-3.6" {
            50
        } else {
            100
        };
        let body = hello_with(model, json!({ "tools": tools(most) }));
        let sent = gateway.forwards(&body).await;
        assert_eq!(sent["tools"], tools(most), "{model}");
        let body = hello_with(model, json!({ "tools": tools(most + 1) }));
        gateway.refuses(&body, "tools").await;
    }
}

#[tokio::test]
async fn a_tool_choice_without_tools_is_not_forwarded() {
    let gateway = TestGateway::start().await;
    let plain = gateway.forwards(&hello_with(MODEL, json!({}))).await;
    for more in [
        json!({ "tools": [] }),
        json!({ "tools": null, "tool_choice": "auto" }),
        json!({ "tool_choice": "none" }),
        json!({ "tool_choice": "required", "tools": [] }),
        json!({ "parallel_tool_calls": true }),
        json!({ "parallel_tool_calls": false, "tools": [] }),
        json!({ "tool_choice": { "type": "function", "function": { "name": "f" } } }),
        json!({ "tool_choice": { "type": "allowed_tools", "allowed_tools": {
            "mode": "auto", "tools": [{ "type": "function", "function": { "name": "f" } }],
        } } }),
    ] {
        let sent = gateway.forwards(&hello_with(MODEL, more.clone())).await;
        assert_eq!(sent, plain, "{more}");
    }
}

#[tokio::test]
async fn a_tool_choice_is_forwarded_unchanged() {
    let gateway = TestGateway::start().await;
    for model in MODELS {
        for choice in [
            json!("none"),
            json!("auto"),
            json!("required"),
            json!({ "type": "function", "function": { "name": "f1" } }),
        ] {
            let more = json!({ "tools": tools(3), "tool_choice": choice });
            let sent = gateway.forwards(&hello_with(model, more)).await;
            assert_eq!(sent["tool_choice"], choice, "{model}");
            assert_eq!(sent["tools"], tools(3), "{model}");
        }
        let sent = gateway
            .forwards(&hello_with(model, json!({ "tools": tools(3) })))
            .await;
        assert_eq!(sent.get("tool_choice"), None, "`auto` goes without saying");
    }
}

#[tokio::test]
async fn an_unknown_tool_choice_is_refused() {
    let gateway = TestGateway::start().await;
    let named = |name: &str| json!({ "type": "function", "function": { "name": name } });
    let allowed = |mode: &str, names: &[&str]| {
        let tools: Vec<_> = names.iter().map(|name| named(name)).collect();
        json!({ "type": "allowed_tools", "allowed_tools": { "mode": mode, "tools": tools } })
    };
    for choice in [
        json!("always"),
        json!("Auto"),
        json!(""),
        json!("f0"),
        json!({}),
        json!({ "type": "function" }),
        json!({ "type": "function", "name": "f0" }),
        json!({ "type": "custom", "custom": { "name": "f0" } }),
        named("f9"),
        named("F0"),
        named(""),
        allowed("auto", &["f0", "f9"]),
        allowed("none", &["f0"]),
        allowed("required", &[]),
        allowed("auto", &[]),
        json!({ "type": "allowed_tools", "mode": "auto", "tools": [] }),
    ] {
        let more = json!({ "tools": tools(3), "tool_choice": choice });
        gateway
            .refuses(&hello_with(MODEL, more), "tool_choice")
            .await;
    }
}

#[tokio::test]
async fn only_allowed_tools_are_offered() {
    let gateway = TestGateway::start().await;
    for mode in ["auto", "required"] {
        let more = json!({
            "tools": tools(4),
            "tool_choice": { "type": "allowed_tools", "allowed_tools": { "mode": mode, "tools": [
                { "type": "function", "function": { "name": "f3" } },
                { "type": "function", "function": { "name": "f1" } },
            ] } },
        });
        let sent = gateway.forwards(&hello_with(MODEL, more)).await;
        assert_eq!(sent["tools"], json!([tool("f1"), tool("f3")]), "{mode}");
        assert_eq!(sent["tool_choice"], mode);
    }
}

#[tokio::test]
async fn a_tool_is_a_function_with_a_name() {
    let gateway = TestGateway::start().await;
    let at = "tools[1]";
    for (wrong, param) in [
        (
            json!({ "type": "web_search", "function": { "name": "f" } }),
            format!("{at}.type"),
        ),
        (
            json!({ "type": "custom", "custom": { "name": "f" } }),
            format!("{at}.type"),
        ),
        (
            json!({ "type": 5, "function": { "name": "f" } }),
            format!("{at}.type"),
        ),
        (json!({ "type": "function" }), at.to_owned()),
        (json!({ "function": { "name": "f" } }), at.to_owned()),
        (json!({ "type": "function", "name": "f" }), at.to_owned()),
        (json!("f"), at.to_owned()),
        (
            json!({ "type": "function", "function": {} }),
            format!("{at}.function"),
        ),
        (
            json!({ "type": "function", "function": { "name": 5 } }),
            format!("{at}.function.name"),
        ),
        (
            json!({ "type": "function", "function": { "name": "f", "description": 5 } }),
            format!("{at}.function.description"),
        ),
        (
            json!({ "type": "function", "function": { "name": "f", "parameters": "{}" } }),
            format!("{at}.function.parameters"),
        ),
        (
            json!({ "type": "function", "function": { "name": "f", "parameters": [] } }),
            format!("{at}.function.parameters"),
        ),
        (
            json!({ "type": "function", "function": { "name": "f", "strict": "yes" } }),
            format!("{at}.function.strict"),
        ),
    ] {
        let body = hello_with(MODEL, json!({ "tools": [tool("good"), wrong] }));
        gateway.refuses(&body, &param).await;
    }
}

/// Optional fields that official clients send with a tool's name.
#[tokio::test]
async fn optional_tool_fields_may_be_present_or_absent() {
    let gateway = TestGateway::start().await;
    for (function, forwarded) in [
        (json!({ "name": "f" }), json!({ "name": "f" })),
        (
            json!({ "name": "f", "description": null, "parameters": null, "strict": null }),
            json!({ "name": "f" }),
        ),
        (
            json!({ "name": "f", "description": "", "parameters": {}, "strict": true }),
            json!({ "name": "f", "description": "", "parameters": {}, "strict": true }),
        ),
        (
            json!({ "name": "f", "strict": false, "description": "Adds \"two\" numbers.\n" }),
            json!({ "name": "f", "strict": false, "description": "Adds \"two\" numbers.\n" }),
        ),
    ] {
        let more = json!({ "tools": [{ "type": "function", "function": function }] });
        let sent = gateway.forwards(&hello_with(MODEL, more)).await;
        assert_eq!(sent["tools"][0]["function"], forwarded, "{function}");
    }
}

/// Contains everything that parsing and serializing JSON could normalize.
const SCHEMA: &str = r##"{"$schema":"http://json-schema.org/draft-07/schema#", "type" : "object",
  "properties":{"z":{"type":"number","maximum":1e3,"default":1.0},"a":{"$ref":"#/$defs/A"},
  "big":{"const":123456789012345678901234567890},"\u0061b":{"pattern":"^\\d+\/$","title":"\u00fc"}},
  "$defs":{"A":{"enum":[null,true,-0.0]}},"required":["z","a"],"required":["z"],"additionalProperties":false}"##;

#[tokio::test]
async fn a_schema_is_forwarded_byte_for_byte() {
    let gateway = TestGateway::start().await;
    let body = format!(
        r#"{{"model":"{MODEL}","messages":[{{"role":"user","content":"Hi"}}],
            "tools":[{{"type":"function","function":{{"name":"f","parameters":{SCHEMA}}}}}],
            "response_format":{{"type":"json_schema","json_schema":{{"name":"n","schema":{SCHEMA}}}}}}}"#
    );
    gateway.chat_text(body).await.assert_ok();
    let text = gateway.upstream.last_text();
    assert_eq!(text.matches(SCHEMA).count(), 2, "{text}");
}

#[tokio::test]
async fn the_three_response_formats_are_forwarded() {
    let gateway = TestGateway::start().await;
    let schema = json!({ "type": "object", "properties": { "a": { "type": "string" } } });
    for model in MODELS {
        for (format, forwarded) in [
            (json!({ "type": "text" }), None),
            (
                json!({ "type": "json_object" }),
                Some(json!({ "type": "json_object" })),
            ),
            (
                json!({ "type": "json_schema", "json_schema": { "name": "n", "schema": schema } }),
                Some(
                    json!({ "type": "json_schema", "json_schema": { "name": "n", "schema": schema } }),
                ),
            ),
            (
                json!({ "json_schema": { "schema": schema, "strict": true, "name": "n",
                    "description": "d" }, "type": "json_schema" }),
                Some(json!({ "type": "json_schema", "json_schema": { "name": "n",
                    "description": "d", "strict": true, "schema": schema } })),
            ),
            (
                json!({ "type": "json_schema", "json_schema": { "name": "n", "strict": false,
                    "description": null, "schema": schema } }),
                Some(json!({ "type": "json_schema", "json_schema": { "name": "n",
                    "strict": false, "schema": schema } })),
            ),
        ] {
            let body = hello_with(model, json!({ "response_format": format }));
            let sent = gateway.forwards(&body).await;
            assert_eq!(sent.get("response_format"), forwarded.as_ref(), "{body}");
        }
    }
}

#[tokio::test]
async fn an_unknown_response_format_is_refused() {
    let gateway = TestGateway::start().await;
    let inner = "response_format.json_schema";
    for (format, param) in [
        (json!({}), "response_format".to_owned()),
        (json!({ "type": "xml" }), "response_format.type".to_owned()),
        (json!({ "type": "JSON" }), "response_format.type".to_owned()),
        (json!({ "type": 5 }), "response_format.type".to_owned()),
        (
            json!({ "type": "json_schema" }),
            "response_format".to_owned(),
        ),
        (
            json!({ "type": "json_schema", "json_schema": null }),
            "response_format".to_owned(),
        ),
        (
            json!({ "type": "json_schema", "json_schema": "{}" }),
            inner.to_owned(),
        ),
        (
            json!({ "type": "json_schema", "json_schema": { "schema": {} } }),
            inner.to_owned(),
        ),
        (
            json!({ "type": "json_schema", "json_schema": { "name": 5, "schema": {} } }),
            format!("{inner}.name"),
        ),
        (
            json!({ "type": "json_schema", "json_schema": { "name": "n", "schema": [] } }),
            format!("{inner}.schema"),
        ),
        (
            json!({ "type": "json_schema", "json_schema": { "name": "n", "schema": "{}" } }),
            format!("{inner}.schema"),
        ),
        (
            json!({ "type": "json_schema", "json_schema": { "name": "n", "strict": "yes" } }),
            format!("{inner}.strict"),
        ),
    ] {
        let body = hello_with(MODEL, json!({ "response_format": format }));
        gateway.refuses(&body, &param).await;
    }
}
