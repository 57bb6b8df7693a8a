//! The forms of an export: CSV as in RFC 4180, and JSON lines.

use std::io::Write as _;

use clap::ValueEnum;

use crate::ledger::export::{Column, Value};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// A line of column names, then a line for each row
    Csv,
    /// A JSON object in each line
    Jsonl,
}

impl Format {
    /// Writes what stands before all rows.
    pub(crate) fn write_header(self, columns: &[Column], out: &mut Vec<u8>) {
        if self == Self::Csv {
            let names = columns.iter().map(|column| column.name);
            out.extend_from_slice(names.collect::<Vec<_>>().join(",").as_bytes());
            out.push(b'\n');
        }
    }

    pub(crate) fn write_row(self, columns: &[Column], values: &[Value<'_>], out: &mut Vec<u8>) {
        match self {
            Self::Csv => write_csv(values, out),
            Self::Jsonl => write_json(columns, values, out),
        }
    }
}

fn write_csv(values: &[Value<'_>], out: &mut Vec<u8>) {
    for (at, value) in values.iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        match value {
            Value::Null => Ok(()),
            Value::Integer(number) => write!(out, "{number}"),
            Value::Bool(flag) => write!(out, "{flag}"),
            Value::Call(id) => write!(out, "{id}"),
            Value::Text(text) => {
                write_cell(text, out);
                Ok(())
            }
            Value::Json(json) => {
                write_cell(&json.to_string(), out);
                Ok(())
            }
        }
        .expect("a buffer takes everything");
    }
    out.push(b'\n');
}

/// An empty text is quoted, because an empty cell is a missing value.
fn write_cell(text: &str, out: &mut Vec<u8>) {
    let is_plain = !text.is_empty() && !text.contains(['"', ',', '\r', '\n']);
    if is_plain {
        out.extend_from_slice(text.as_bytes());
        return;
    }
    out.push(b'"');
    out.extend_from_slice(text.replace('"', "\"\"").as_bytes());
    out.push(b'"');
}

fn write_json(columns: &[Column], values: &[Value<'_>], out: &mut Vec<u8>) {
    for (at, (column, value)) in columns.iter().zip(values).enumerate() {
        out.push(if at == 0 { b'{' } else { b',' });
        let name = column.name;
        match value {
            Value::Null => write!(out, "\"{name}\":null"),
            Value::Integer(number) => write!(out, "\"{name}\":{number}"),
            Value::Bool(flag) => write!(out, "\"{name}\":{flag}"),
            Value::Call(id) => write!(out, "\"{name}\":\"{id}\""),
            Value::Text(text) => write!(out, "\"{name}\":{}", serde_json::Value::from(*text)),
            Value::Json(json) => write!(out, "\"{name}\":{json}"),
        }
        .expect("a buffer takes everything");
    }
    out.extend_from_slice(b"}\n");
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::ledger::{
        CallId,
        export::{Column, Kind},
    };

    const COLUMNS: [Column; 3] = [
        Column {
            name: "a",
            sql: "a",
            kind: Kind::Text,
        },
        Column {
            name: "b",
            sql: "b",
            kind: Kind::Integer,
        },
        Column {
            name: "c",
            sql: "c",
            kind: Kind::Json,
        },
    ];

    fn written(format: Format, values: &[Value<'_>]) -> String {
        let mut out = Vec::new();
        format.write_row(&COLUMNS, values, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn cells_are_quoted_where_they_must_be() {
        for (text, cell) in [
            ("plain", "plain"),
            ("", "\"\""),
            ("a,b", "\"a,b\""),
            ("say \"hi\"", "\"say \"\"hi\"\"\""),
            ("two\nlines", "\"two\nlines\""),
            ("two\r\nlines", "\"two\r\nlines\""),
            (" space ", " space "),
            ("=1+1", "=1+1"),
            ("ä\u{1F980}", "ä\u{1F980}"),
        ] {
            let values = [Value::Text(text), Value::Null, Value::Bool(true)];
            assert_eq!(written(Format::Csv, &values), format!("{cell},,true\n"));
        }
        let values = [
            Value::Call(CallId(1)),
            Value::Integer(-7),
            Value::Json(json!({ "b": "c" })),
        ];
        assert_eq!(
            written(Format::Csv, &values),
            "call_0000000000001,-7,\"{\"\"b\"\":\"\"c\"\"}\"\n"
        );
    }

    #[test]
    fn a_json_line_has_numbers_texts_and_objects() {
        let values = [
            Value::Text("two\nlines, \"quoted\""),
            Value::Integer(i64::MAX),
            Value::Json(json!({ "b": [1] })),
        ];
        assert_eq!(
            written(Format::Jsonl, &values),
            "{\"a\":\"two\\nlines, \\\"quoted\\\"\",\"b\":9223372036854775807,\"c\":{\"b\":[1]}}\n"
        );
        let values = [Value::Null, Value::Bool(false), Value::Call(CallId(2))];
        assert_eq!(
            written(Format::Jsonl, &values),
            "{\"a\":null,\"b\":false,\"c\":\"call_0000000000002\"}\n"
        );
    }

    #[test]
    fn only_csv_has_a_header() {
        let mut out = Vec::new();
        Format::Csv.write_header(&COLUMNS, &mut out);
        assert_eq!(out, b"a,b,c\n");
        out.clear();
        Format::Jsonl.write_header(&COLUMNS, &mut out);
        assert_eq!(out, b"");
    }
}
