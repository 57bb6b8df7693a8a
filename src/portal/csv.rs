//! CSV files to download (RFC 4180).

use axum::{
    body::Body,
    http::{HeaderValue, header},
    response::Response,
};

/// The most rows of a file whose length depends on the number of requests.
pub(crate) const MAX_ROWS: usize = 50_000;

/// A file to download.
pub(crate) fn attachment(name: &str, body: Body) -> Response {
    let mut response = Response::new(body);
    let disposition = format!("attachment; filename=\"{name}.csv\"");
    let disposition = HeaderValue::try_from(disposition).unwrap_or(HeaderValue::from_static(
        "attachment; filename=\"download.csv\"",
    ));
    let headers = response.headers_mut();
    let csv = HeaderValue::from_static("text/csv; charset=utf-8");
    headers.insert(header::CONTENT_TYPE, csv);
    headers.insert(header::CONTENT_DISPOSITION, disposition);
    response
}

/// Quotes a text as one field. What spreadsheets would run as a formula gets an apostrophe before it: at the start of the
/// text, and after what some of them take for the end of a field.
pub(crate) fn field(text: &str) -> String {
    let guard = if text.starts_with(['\t', '\r', '\n']) {
        "'"
    } else {
        ""
    };
    let mut guarded = String::with_capacity(text.len());
    let mut is_start = true;
    for char in text.chars() {
        if is_start && matches!(char, '=' | '+' | '-' | '@') {
            guarded.push('\'');
        }
        guarded.push(char);
        is_start = matches!(char, ';' | '\t' | '\r' | '\n');
    }
    let text = guarded;
    if text.contains([',', '"', '\r', '\n']) {
        format!("\"{guard}{}\"", text.replace('"', "\"\""))
    } else {
        format!("{guard}{text}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_quoted_and_formulas_escaped() {
        for (text, expected) in [
            ("plain", "plain"),
            ("", ""),
            ("a,b", "\"a,b\""),
            ("say \"hi\"", "\"say \"\"hi\"\"\""),
            ("two\r\nlines", "\"two\r\nlines\""),
            ("=1+1", "'=1+1"),
            ("+1", "'+1"),
            ("-1", "'-1"),
            ("@SUM(A1)", "'@SUM(A1)"),
            ("\tcmd", "'\tcmd"),
            ("=HYPERLINK(\"x\",1)", "\"'=HYPERLINK(\"\"x\"\",1)\""),
            ("\r=1", "\"'\r'=1\""),
            ("a;=1", "a;'=1"),
            ("a\t@SUM(A1)", "a\t'@SUM(A1)"),
            ("a=1", "a=1"),
        ] {
            assert_eq!(field(text), expected, "{text:?}");
        }
    }
}
