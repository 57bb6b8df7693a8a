//! The input of a custom tool.
//!
//! Providers know no such tools, so a custom tool is offered as a function with the one field `input`. The model's
//! arguments are then `{"input":"…"}`, and the text in it is what the caller's tool gets. It is read out while it
//! arrives, so that it can be streamed.

use std::sync::LazyLock;

use serde_json::json;

use crate::wire::{chat::Schema, json_text::JsonText};

/// The parameters of the function in place of a custom tool.
pub(super) static PARAMETERS: LazyLock<Schema> = LazyLock::new(|| {
    let schema = json!({
        "type": "object",
        "properties": {
            "input": { "type": "string", "description": "The whole input of the tool, as text." },
        },
        "required": ["input"],
        "additionalProperties": false,
    });
    Schema::new(schema.as_object().expect("written above"))
});

/// The arguments of the function with this input.
pub(super) fn arguments(input: &JsonText) -> JsonText {
    JsonText::new(&format!("{{\"input\":{}}}", input.as_json()))
}

/// What comes before the text.
const HEAD: &[u8] = b"{\"input\":\"";
/// Indexes in [`HEAD`] before which JSON allows white space.
const GAPS: [usize; 4] = [0, 1, 8, 9];

/// Reads the input out of arguments that arrive in pieces.
///
/// Arguments of another form are the input as they are. Within the text, mistakes of models are forgiven: line breaks and
/// unknown escapes stand for themselves.
#[derive(Debug, Default)]
pub(super) struct InputReader {
    state: State,
    /// Text that may still turn out to be of another form.
    head: String,
    /// The first half of a surrogate pair.
    high: Option<u16>,
}

#[derive(Debug)]
enum State {
    /// Before the text, with this many bytes of [`HEAD`].
    Head(usize),
    Text,
    /// After a backslash.
    Escape,
    /// After `\u` and these digits.
    Unicode(String),
    /// After the text: whatever follows is not part of it.
    Closed,
    /// The arguments have another form.
    AsTheyAre,
}

impl Default for State {
    fn default() -> Self {
        Self::Head(0)
    }
}

impl InputReader {
    /// Appends to `input` what the next piece of the arguments adds to it.
    pub(super) fn push(&mut self, piece: &str, input: &mut String) {
        let mut rest = piece;
        while let Some(c) = rest.chars().next() {
            match self.state {
                State::Closed => return,
                State::AsTheyAre => {
                    input.push_str(rest);
                    return;
                }
                State::Text => {
                    let end = rest.find(['"', '\\']).unwrap_or(rest.len());
                    if end > 0 {
                        self.end_pair(input);
                        input.push_str(&rest[..end]);
                        rest = &rest[end..];
                        continue;
                    }
                    if c == '"' {
                        self.end_pair(input);
                    }
                    self.state = if c == '"' {
                        State::Closed
                    } else {
                        State::Escape
                    };
                }
                State::Head(at) => self.head(c, at, input),
                State::Escape => self.escape(c, input),
                State::Unicode(_) => {
                    if !self.digit(c, input) {
                        continue; // it is not part of the escape
                    }
                }
            }
            rest = &rest[c.len_utf8()..];
        }
    }

    /// Whether the end of the text has arrived.
    pub(super) fn is_closed(&self) -> bool {
        matches!(self.state, State::Closed)
    }

    /// Whether the arguments have another form, and are the input as they are.
    pub(super) fn has_other_form(&self) -> bool {
        matches!(self.state, State::AsTheyAre)
    }

    fn head(&mut self, c: char, at: usize, input: &mut String) {
        self.head.push(c);
        if u8::try_from(c) == Ok(HEAD[at]) {
            let is_whole = at + 1 == HEAD.len();
            self.state = if is_whole {
                State::Text
            } else {
                State::Head(at + 1)
            };
        } else if !(c.is_ascii_whitespace() && GAPS.contains(&at)) {
            input.push_str(&std::mem::take(&mut self.head));
            self.state = State::AsTheyAre;
        }
    }

    fn escape(&mut self, c: char, input: &mut String) {
        self.state = State::Text;
        if c == 'u' {
            self.state = State::Unicode(String::with_capacity(4));
            return;
        }
        self.end_pair(input);
        match c {
            '"' | '\\' | '/' => input.push(c),
            'b' => input.push('\u{8}'),
            'f' => input.push('\u{c}'),
            'n' => input.push('\n'),
            'r' => input.push('\r'),
            't' => input.push('\t'),
            other => input.extend(['\\', other]),
        }
    }

    /// Takes a digit of a `\u` escape; returns whether it was one.
    fn digit(&mut self, c: char, input: &mut String) -> bool {
        let State::Unicode(digits) = &mut self.state else {
            return true;
        };
        if !c.is_ascii_hexdigit() {
            let text = format!("\\u{digits}");
            self.state = State::Text;
            self.end_pair(input);
            input.push_str(&text);
            return false;
        }
        digits.push(c);
        if digits.len() == 4 {
            let unit = u16::from_str_radix(digits, 16).unwrap_or_default();
            self.state = State::Text;
            self.unit(unit, input);
        }
        true
    }

    /// Adds a UTF-16 unit; a pair of surrogates is one character.
    fn unit(&mut self, unit: u16, input: &mut String) {
        if (0xD800..0xDC00).contains(&unit) {
            self.end_pair(input);
            self.high = Some(unit);
            return;
        }
        let units = self.high.take().into_iter().chain([unit]);
        for decoded in char::decode_utf16(units) {
            input.push(decoded.unwrap_or(char::REPLACEMENT_CHARACTER));
        }
    }

    /// Half of a pair whose other half does not follow is no character.
    fn end_pair(&mut self, input: &mut String) {
        if self.high.take().is_some() {
            input.push(char::REPLACEMENT_CHARACTER);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The input of arguments that arrive in pieces of this many characters, and whether its end was seen.
    fn read(arguments: &str, size: usize) -> (String, bool) {
        let (mut reader, mut input) = (InputReader::default(), String::new());
        let all: Vec<char> = arguments.chars().collect();
        for piece in all.chunks(size) {
            reader.push(&piece.iter().collect::<String>(), &mut input);
        }
        (input, reader.is_closed())
    }

    #[test]
    fn the_text_is_unescaped_however_it_is_cut() {
        for (arguments, input, is_closed) in [
            (r#"{"input":"a\nb"}"#, "a\nb", true),
            (" {\n\"input\" : \"a\" } ", "a", true),
            (r#"{"input":""}"#, "", true),
            (
                r#"{"input":"\"\\\/\b\f\r\t\u00e9"}"#,
                "\"\\/\u{8}\u{c}\r\té",
                true,
            ),
            (r#"{"input":"\ud83d\ude00!"}"#, "😀!", true),
            (r#"{"input":"\ud83d!"}"#, "\u{fffd}!", true),
            (r#"{"input":"\ud83d\n\ude00"}"#, "\u{fffd}\n\u{fffd}", true),
            (r#"{"input":"\ud83d\ud83d\ude00"}"#, "\u{fffd}😀", true),
            (r#"{"input":"\ud83d"}"#, "\u{fffd}", true),
            // Mistakes of models.
            ("{\"input\":\"a\nb\"}", "a\nb", true),
            (r#"{"input":"\d+ \u12 x"}"#, r"\d+ \u12 x", true),
            (r#"{"input":"a","why":"b"}"#, "a", true),
            // Cut off.
            (r#"{"input":"a\"#, "a", false),
            (r#"{"input":"a\u00"#, "a", false),
            (r#"{"inp"#, "", false),
            ("", "", false),
            // Another form.
            ("{}", "{}", false),
            (r#"{"patch":"a"}"#, r#"{"patch":"a"}"#, false),
            (r#"{"input":5}"#, r#"{"input":5}"#, false),
            ("*** Begin Patch\n", "*** Begin Patch\n", false),
            ("über", "über", false),
        ] {
            for size in [1, 2, 3, 100] {
                let found = read(arguments, size);
                assert_eq!(
                    found,
                    (input.to_owned(), is_closed),
                    "{arguments} by {size}"
                );
            }
        }
    }

    proptest! {
        #[test]
        fn arguments_lead_back_to_their_input(text in "(?s).{0,60}", size in 1..9_usize) {
            let written = arguments(&JsonText::new(&text)).decode();
            prop_assert_eq!(read(&written, size), (text.clone(), true));
            let json: serde_json::Value = serde_json::from_str(&written).unwrap();
            prop_assert_eq!(&json["input"], &text);
        }
    }
}
