//! Changes in JSON that stays as it is written otherwise: values replaced, members removed.

use std::ops::Range;

use serde_json::value::RawValue;

use crate::wire::json_writer::JsonWriter;

/// A text as JSON.
pub(super) fn quoted(text: &str) -> String {
    let mut json = JsonWriter::default();
    json.string(text);
    json.into_string()
}

/// Where a value is in the text that it was parsed from.
pub(super) fn range_in(text: &str, raw: &RawValue) -> Option<Range<usize>> {
    let start = raw.get().as_ptr().addr();
    let start = start.checked_sub(text.as_ptr().addr())?;
    let range = start..start + raw.get().len();
    // Another text would be there if the parser had copied the value.
    (text.get(range.clone()) == Some(raw.get())).then_some(range)
}

/// Where a member of an object is, from its value. Its key is the text before the value, and has no quotation mark in it.
pub(super) fn with_key(json: impl AsRef<[u8]>, value: &Range<usize>) -> Range<usize> {
    let json = json.as_ref();
    let mut marks = (0..value.start).rev();
    let mut mark = || marks.find(|at| json[*at] == b'"');
    let start = mark().and_then(|_| mark()).unwrap_or(value.start);
    start..value.end
}

/// The ranges of these members of one object with the commas that go with them, if others stay. They are in order.
pub(super) fn with_commas(json: &str, members: Vec<Range<usize>>) -> Vec<Range<usize>> {
    let mut removed: Vec<Range<usize>> = Vec::new();
    for member in members {
        let rest = json[member.end..].trim_start();
        let rest = rest.strip_prefix(',').map_or(rest, str::trim_start);
        let end = json.len() - rest.len();
        match removed.last_mut() {
            Some(last) if last.end == member.start => last.end = end,
            _ => removed.push(member.start..end),
        }
    }
    // What is last has no comma after it, but one before it.
    if let Some(last) = removed.last_mut()
        && json[last.end..].starts_with('}')
    {
        let before = json[..last.start].trim_end();
        last.start = before.strip_suffix(',').unwrap_or(before).len();
    }
    removed
}

/// The bytes with some ranges replaced, which do not overlap.
pub(super) fn replaced(bytes: &[u8], mut changes: Vec<(Range<usize>, String)>) -> Vec<u8> {
    changes.sort_by_key(|(range, _)| range.start);
    let added: usize = changes.iter().map(|(_, text)| text.len()).sum();
    let mut written = Vec::with_capacity(bytes.len() + added);
    let mut at = 0;
    for (range, text) in changes {
        written.extend_from_slice(&bytes[at..range.start]);
        written.extend_from_slice(text.as_bytes());
        at = range.end;
    }
    written.extend_from_slice(&bytes[at..]);
    written
}
