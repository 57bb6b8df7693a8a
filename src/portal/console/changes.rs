//! The fields that an operator action changed.

use maud::{Markup, html};
use serde_json::{Map, Value};

/// The changed fields as a list of `before → after`; unchanged fields are left out.
pub(crate) fn list(before: Option<&str>, after: Option<&str>) -> Markup {
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

/// The fields of a JSON object. Any other text becomes a single field, `value`.
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

/// Each changed field: its name, its old value unless it is new, and its new value.
fn changes<'a>(
    before: &'a Map<String, Value>,
    after: &'a Map<String, Value>,
) -> Vec<(&'a str, Option<String>, String)> {
    let gone = before.iter().filter(|(name, _)| !after.contains_key(*name));
    let gone = gone.map(|(name, was)| {
        (
            name.as_str(),
            Some(shown_value(was)),
            shown_value(&Value::Null),
        )
    });
    let there = after.iter().filter_map(|(name, is)| {
        let was = before.get(name);
        // A new field that is null is not a change.
        let is_same = was.map_or(is.is_null(), |was| was == is);
        (!is_same).then(|| (name.as_str(), was.map(shown_value), shown_value(is)))
    });
    there.chain(gone).collect()
}

fn shown_value(value: &Value) -> String {
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

    fn listed(before: Option<&str>, after: Option<&str>) -> Vec<String> {
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
    fn only_changed_fields_are_listed() {
        let before = r#"{"track":"personal","tier":"free","closed":false}"#;
        let after = r#"{"track":"personal","tier":"pro","closed":true}"#;
        let changed = ["tier: free → pro", "closed: no → yes"];
        assert_eq!(listed(Some(before), Some(after)), changed);
        assert!(listed(Some(before), Some(before)).is_empty());
    }

    #[test]
    fn new_fields_have_no_before_and_removed_fields_no_after() {
        assert_eq!(
            listed(None, Some(r#"{"email":"a@b","name":null,"rpm":5}"#)),
            ["email: a@b", "rpm: 5"]
        );
        assert_eq!(listed(Some(r#"{"rpm":5}"#), None), ["rpm: 5 → none"]);
        assert_eq!(
            listed(Some(r#"{"rpm":5}"#), Some(r#"{"rpm":null}"#)),
            ["rpm: 5 → none"]
        );
    }

    #[test]
    fn values_other_than_objects_are_shown_unchanged() {
        assert_eq!(listed(Some("3"), Some("[1]")), ["value: 3 → [1]"]);
        assert_eq!(listed(None, Some("no JSON")), ["value: no JSON"]);
    }
}
