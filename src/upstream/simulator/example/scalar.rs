//! Example numbers and strings within a schema's bounds.

use serde_json::{Value, json};

/// The smallest integer within the bounds; without a lower bound, 1 or the upper bound if that is smaller.
pub(crate) fn integer(schema: &Value) -> Value {
    json!(round(lowest(schema, true)))
}

pub(crate) fn number(schema: &Value) -> Value {
    let lowest = lowest(schema, false);
    if lowest.fract() == 0.0 {
        return json!(round(lowest));
    }
    json!(lowest)
}

fn lowest(schema: &Value, whole: bool) -> f64 {
    let bound = |key: &str| schema.get(key).and_then(Value::as_f64);
    let step = bound("multipleOf").filter(|step| *step > 0.0);
    let unit = step.unwrap_or(1.0);
    let from = bound("minimum").or(bound("exclusiveMinimum").map(|above| above + 1e-9));
    let most = bound("maximum").or(bound("exclusiveMaximum").map(|below| below - 1e-9));
    let on_grid = whole || step.is_some();
    match (from, most) {
        (Some(from), _) if on_grid => (from / unit).ceil() * unit,
        (Some(from), _) if bound("minimum").is_none() => from.floor() + 1.0,
        (Some(from), _) => from,
        (None, Some(most)) if most < unit => (most / unit).floor() * unit,
        (None, _) => unit,
    }
}

/// Rounds to an integer: exact up to 2⁵³, which is enough for an example.
#[expect(
    clippy::cast_possible_truncation,
    reason = "a float beyond the range becomes the nearest integer"
)]
fn round(number: f64) -> i64 {
    number.round() as i64
}

pub(crate) fn text(schema: &Value) -> Value {
    let known = match schema.get("format").and_then(Value::as_str) {
        Some("date-time") => "2026-01-01T00:00:00Z",
        Some("date") => "2026-01-01",
        Some("time") => "00:00:00Z",
        Some("duration") => "P1D",
        Some("email") => "user@example.com",
        Some("hostname") => "example.com",
        Some("uri" | "url") => "https://example.com",
        Some("uuid") => "00000000-0000-4000-8000-000000000000",
        Some("ipv4") => "127.0.0.1",
        Some("ipv6") => "::1",
        _ => "example",
    };
    let length = |key: &str| schema.get(key).and_then(Value::as_u64);
    let length = |key: &str| length(key).and_then(|length| usize::try_from(length).ok());
    let least = length("minLength").unwrap_or(0).min(4_096);
    let most = length("maxLength").unwrap_or(usize::MAX);
    let padded = format!("{known:x<least$}");
    json!(padded.chars().take(most).collect::<String>())
}

/// The `at`th of several distinct values, derived from `value`.
pub(crate) fn nth_variant(schema: &Value, value: Value, at: usize) -> Value {
    let choices = schema.get("enum").and_then(Value::as_array);
    if let Some(choice) = choices.and_then(|choices| choices.get(at)) {
        return choice.clone();
    }
    match value {
        Value::Number(number) => match number.as_i64() {
            Some(number) => json!(number.saturating_add(i64::try_from(at).unwrap_or(0))),
            None => json!(number),
        },
        Value::String(text) if at > 0 => json!(format!("{text}{at}")),
        Value::Bool(flag) => json!(flag == at.is_multiple_of(2)),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_their_bounds() {
        for (schema, expected) in [
            (json!({}), json!(1)),
            (json!({"minimum":3,"multipleOf":5}), json!(5)),
            (json!({"minimum":1.5}), json!(2)),
            (json!({"exclusiveMinimum":5}), json!(6)),
            (json!({"exclusiveMaximum":1}), json!(0)),
            (json!({"maximum":-4}), json!(-4)),
            (
                json!({"exclusiveMinimum":9_223_372_036_854_775_807_i64}),
                json!(i64::MAX),
            ),
        ] {
            assert_eq!(integer(&schema), expected, "{schema}");
        }
        for (schema, expected) in [
            (json!({"minimum":1.5}), json!(1.5)),
            (json!({"exclusiveMinimum":5.5}), json!(6)),
            (json!({"multipleOf":0.25}), json!(0.25)),
            (json!({"maximum":0.5}), json!(0)),
        ] {
            assert_eq!(number(&schema), expected, "{schema}");
        }
    }
}
