//! Converts between JSON in a string, as chats have it, and the JSON object that Gemini requires.

use serde_json::value::RawValue;

use crate::wire::{json_text::JsonText, shape::too_deep};

/// The JSON object in a text, with its exact digits and order. Any other text is wrapped in an object under `key`.
pub(crate) fn from_text(text: &JsonText, key: &str) -> Box<RawValue> {
    let decoded = text.decode();
    if decoded.trim().is_empty() && key == ARGUMENTS {
        return raw("{}".into());
    }
    // The request's depth was checked without looking into this string.
    if decoded.trim_start().starts_with('{')
        && !too_deep(decoded.as_bytes())
        && let Ok(object) = serde_json::from_str(&decoded)
    {
        return object;
    }
    raw(format!("{{\"{key}\":{}}}", text.as_json()))
}

/// Key for arguments that are not an object.
pub(crate) const ARGUMENTS: &str = "arguments";
/// Key for a tool's result that is not an object.
pub(crate) const RESULT: &str = "result";

fn raw(json: String) -> Box<RawValue> {
    RawValue::from_string(json).expect("an object with at most one JSON string is valid JSON")
}

/// Writes an object as text without the whitespace that Gemini indents its responses with. Numbers keep their digits.
pub(crate) fn to_text(object: &RawValue) -> JsonText {
    let json = object.get();
    let mut compact = String::with_capacity(json.len());
    let (mut in_string, mut escaped) = (false, false);
    for c in json.chars() {
        if in_string {
            (in_string, escaped) = (escaped || c != '"', c == '\\' && !escaped);
        } else if c.is_ascii_whitespace() {
            continue;
        } else {
            in_string = c == '"';
        }
        compact.push(c);
    }
    JsonText::new(&compact)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_becomes_an_object() {
        for (text, key, object) in [
            (r#"{"a":1}"#, ARGUMENTS, r#"{"a":1}"#),
            (
                r#" {"wei": 115792089237316195423570985008687907853} "#,
                RESULT,
                r#"{"wei": 115792089237316195423570985008687907853}"#,
            ),
            ("", ARGUMENTS, "{}"),
            ("", RESULT, r#"{"result":""}"#),
            ("sunny", RESULT, r#"{"result":"sunny"}"#),
            ("42", RESULT, r#"{"result":"42"}"#),
            ("[1,2]", RESULT, r#"{"result":"[1,2]"}"#),
            ("{not json", ARGUMENTS, r#"{"arguments":"{not json"}"#),
            (r#"{"a":1}{"#, RESULT, r#"{"result":"{\"a\":1}{"}"#),
            ("null", ARGUMENTS, r#"{"arguments":"null"}"#),
        ] {
            let read = from_text(&JsonText::new(text), key);
            assert_eq!(read.get(), object, "{text}");
        }
    }

    #[test]
    fn a_text_that_nests_too_deeply_is_wrapped() {
        let deep = format!("{}1{}", "{\"a\":".repeat(200), "}".repeat(200));
        let object = from_text(&JsonText::new(&deep), RESULT);
        assert!(object.get().starts_with(r#"{"result":"{"#));
    }

    #[test]
    fn only_whitespace_is_removed_from_arguments() {
        for (object, text) in [
            ("{\n  \"a\": [ 1 , 2 ]\n}", r#"{"a":[1,2]}"#),
            (r#"{ "a b" : " \" \\ " }"#, r#"{"a b":" \" \\ "}"#),
            (r#"{ "a" : "\\" , "b" : 1.10 }"#, r#"{"a":"\\","b":1.10}"#),
            ("{ \"ü\": \"\u{a0} 😀\" }", "{\"ü\":\"\u{a0} 😀\"}"),
            ("{}", "{}"),
        ] {
            let object: Box<RawValue> = serde_json::from_str(object).unwrap();
            assert_eq!(to_text(&object).decode(), text);
        }
    }
}
