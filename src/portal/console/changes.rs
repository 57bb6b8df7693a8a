//! What an act changed, field by field.

use maud::{Markup, html};
use serde_json::{Map, Value};

/// From how it was to how it is; what stayed the same is left out.
pub fn shown(before: Option<&str>, after: Option<&str>) -> Markup {
    let (before, after) = (fields(before), fields(after));
    let changes = changes(&before, &after);
    html! {
        @if changes.is_empty() { span.muted { "–" } }
        @else {
            ul.changes {
                @for (field, before, after) in &changes {
                    li {
                        span.muted { (field) ": " }
                        @if let Some(before) = before { (before) span aria-label=" to " { " → " } }
                        (after)
                    }
                }
            }
        }
    }
}

/// Of what is no object there is one field.
fn fields(json: Option<&str>) -> Map<String, Value> {
    let Some(json) = json else {
        return Map::new();
    };
    match serde_json::from_str(json) {
        Ok(Value::Object(fields)) => fields,
        Ok(other) => [("value".to_owned(), other)].into_iter().collect(),
        Err(_) => [("value".to_owned(), json.into())].into_iter().collect(),
    }
}

/// Each field that is not as it was: its name, how it was if it was there, how it is.
fn changes<'a>(
    before: &'a Map<String, Value>,
    after: &'a Map<String, Value>,
) -> Vec<(&'a str, Option<String>, String)> {
    let gone = before.iter().filter(|(name, _)| !after.contains_key(*name));
    let gone = gone.map(|(name, was)| (name.as_str(), Some(words(was)), words(&Value::Null)));
    let there = after.iter().filter_map(|(name, is)| {
        let was = before.get(name);
        // What was not there and is nothing is no change.
        let is_same = was.map_or(is.is_null(), |was| was == is);
        (!is_same).then(|| (name.as_str(), was.map(words), words(is)))
    });
    there.chain(gone).collect()
}

fn words(value: &Value) -> String {
    match value {
        Value::Null => "none".into(),
        Value::Bool(true) => "yes".into(),
        Value::Bool(false) => "no".into(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(before: Option<&str>, after: Option<&str>) -> Vec<String> {
        let (before, after) = (fields(before), fields(after));
        let changes = changes(&before, &after);
        changes
            .into_iter()
            .map(|(field, before, after)| match before {
                Some(before) => format!("{field}: {before} → {after}"),
                None => format!("{field}: {after}"),
            })
            .collect()
    }

    #[test]
    fn only_what_changed_is_told() {
        let before = r#"{"track":"personal","tier":"free","closed":false}"#;
        let after = r#"{"track":"personal","tier":"pro","closed":true}"#;
        let changed = ["tier: free → pro", "closed: no → yes"];
        assert_eq!(told(Some(before), Some(after)), changed);
        assert!(told(Some(before), Some(before)).is_empty());
    }

    #[test]
    fn what_is_new_has_no_before_and_what_is_gone_no_after() {
        assert_eq!(
            told(None, Some(r#"{"email":"a@b","name":null,"rpm":5}"#)),
            ["email: a@b", "rpm: 5"]
        );
        assert_eq!(told(Some(r#"{"rpm":5}"#), None), ["rpm: 5 → none"]);
        assert_eq!(
            told(Some(r#"{"rpm":5}"#), Some(r#"{"rpm":null}"#)),
            ["rpm: 5 → none"]
        );
    }

    #[test]
    fn what_is_no_object_is_shown_as_it_is() {
        assert_eq!(told(Some("3"), Some("[1]")), ["value: 3 → [1]"]);
        assert_eq!(told(None, Some("no JSON")), ["value: no JSON"]);
    }
}
