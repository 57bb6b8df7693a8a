//! Entries as text: one line for each value, in one order, so that two entries can be compared line by line.

use std::fmt::Write as _;

use toml::{Table, Value};

/// Longest line of a list; the items of a longer one have lines of their own.
const MAX_LINE: usize = 90;

/// Keys that come first, in this order; the others follow by name.
const ORDER: [&str; 24] = [
    "name",
    "description",
    "model",
    "provider",
    "upstream_model",
    "kind",
    "base_url",
    "auth",
    "credentials_file",
    "api_key_env",
    "api_key_file",
    "min_tier",
    "input",
    "output",
    "cached_input",
    "cache_write",
    "cache_write_1h",
    "request",
    "image",
    "context_length",
    "max_output",
    "min_output",
    "weight",
    "priority",
];

/// The values of an entry that are no tables, by their dotted keys, in the order of its text.
pub(crate) fn leaves(entry: &Table) -> Vec<(String, String)> {
    let mut leaves = Vec::new();
    collect("", entry, &mut leaves);
    leaves
}

/// The entry as TOML.
pub(crate) fn write(entry: &Table) -> String {
    let mut text = String::new();
    for (key, value) in leaves(entry) {
        let _ = writeln!(text, "{key} = {value}");
    }
    text
}

fn collect(prefix: &str, table: &Table, leaves: &mut Vec<(String, String)>) {
    let mut keys: Vec<&String> = table.keys().collect();
    keys.sort_by_key(|key| {
        let known = ORDER.iter().position(|one| one == key);
        (known.unwrap_or(ORDER.len()), key.as_str())
    });
    for key in keys {
        let path = format!("{prefix}{}", written_key(key));
        match &table[key] {
            Value::Table(inner) if !inner.is_empty() => collect(&format!("{path}."), inner, leaves),
            value => leaves.push((path, written(value))),
        }
    }
}

fn written_key(key: &str) -> String {
    let is_bare = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if !key.is_empty() && key.chars().all(is_bare) {
        key.to_owned()
    } else {
        Value::from(key).to_string()
    }
}

fn written(value: &Value) -> String {
    let line = value.to_string();
    match value {
        Value::Array(items) if line.len() > MAX_LINE => {
            let mut text = "[\n".to_owned();
            for item in items {
                let _ = writeln!(text, "  {item},");
            }
            text.push(']');
            text
        }
        _ => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_written_in_one_order_and_read_back() {
        let text = "z = 1\ndescription = \"two\\nlines\"\nname = \"A\"\n[cost]\noutput = \"2\"\ninput = \"1\"\n[timeouts]\n";
        let entry: Table = text.parse().unwrap();
        let written = write(&entry);
        let keys: Vec<_> = leaves(&entry).into_iter().map(|(key, _)| key).collect();
        assert_eq!(
            keys,
            [
                "name",
                "description",
                "cost.input",
                "cost.output",
                "timeouts",
                "z"
            ]
        );
        assert_eq!(written.parse::<Table>().unwrap(), entry, "{written}");
    }

    #[test]
    fn strange_keys_and_long_lists_are_read_back() {
        let long = "x".repeat(60);
        let text = format!(
            "\"a b\" = {{ \"\" = [\"{long}\", \"{long}\"] }}\nabove = [{{ prompt_tokens = 5, input = \"1\" }}]\n"
        );
        let entry: Table = text.parse().unwrap();
        let written = write(&entry);
        assert_eq!(written.parse::<Table>().unwrap(), entry, "{written}");
        assert!(written.contains("\"a b\".\"\" = [\n  \"x"), "{written}");
    }
}
