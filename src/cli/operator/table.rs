//! Renders a response of the operator API as text: a list as a table, an object with one field per line.

use serde_json::{Map, Value};

pub(crate) fn render(response: &Value) -> String {
    match response.get("data").and_then(Value::as_array) {
        Some(rows) => rows_as_table(rows),
        None => fields_by_line(response.as_object().unwrap_or(&Map::new())),
    }
}

fn fields_by_line(fields: &Map<String, Value>) -> String {
    let width = fields.keys().map(String::len).max().unwrap_or(0);
    let shown = fields.iter().filter(|(name, _)| *name != "object");
    let lines: Vec<_> = shown
        .map(|(name, value)| format!("{name:width$}  {}", cell(value)))
        .collect();
    lines.join("\n")
}

fn rows_as_table(rows: &[Value]) -> String {
    let Some(Value::Object(first)) = rows.first() else {
        return "none".into();
    };
    let names: Vec<&String> = first.keys().filter(|name| *name != "object").collect();
    let header = names.iter().map(|name| name.to_uppercase()).collect();
    let cells = |row: &Value| -> Vec<String> {
        names
            .iter()
            .map(|name| row.get(name.as_str()).map(cell).unwrap_or_default())
            .collect()
    };
    let lines: Vec<Vec<String>> = std::iter::once(header)
        .chain(rows.iter().map(cells))
        .collect();
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max();
    let widths: Vec<_> = (0..names.len())
        .map(|column| width(column).unwrap_or(0))
        .collect();
    let line = |cells: &Vec<String>| {
        let padded = cells
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:width$}"));
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    lines.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn cell(value: &Value) -> String {
    match value {
        Value::Null => "-".into(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
