//! How many tokens a text has, before anyone has counted them.
//!
//! A tokenizer per vendor would be slow and wrong for all the others. This walks the bytes once and
//! counts what tokenizers make tokens of: words and their pieces, runs of digits, marks and spaces,
//! characters of scripts that get a token each. It errs on the high side; what is reserved too
//! much is given back when the provider has counted.

use super::byte_bits::{BLOCK, Block, Bytes};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Lower,
    Upper,
    Digit,
    Space,
    Break,
    Mark,
    /// The first byte of a character outside ASCII.
    Foreign,
    /// Its other bytes, which are passed over.
    Inside,
}

/// Role, separators and the like, for each message.
pub const TOKENS_PER_MESSAGE: u64 = 4;

/// What each byte is, outside of escapes.
const CLASSES: [Class; 256] = {
    let mut classes = [Class::Mark; 256];
    let mut byte: u8 = 0;
    loop {
        classes[byte as usize] = class_of(byte);
        if byte == u8::MAX {
            break classes;
        }
        byte += 1;
    }
};

const fn class_of(byte: u8) -> Class {
    match byte {
        b'a'..=b'z' => Class::Lower,
        b'A'..=b'Z' => Class::Upper,
        b'0'..=b'9' => Class::Digit,
        b' ' => Class::Space,
        b'\n' | b'\r' | b'\t' => Class::Break,
        0x80..=0xBF => Class::Inside,
        0xC0.. => Class::Foreign,
        _ => Class::Mark,
    }
}

/// A token reaches some six letters: how many begin among the first `letters` of a word.
const fn pieces(letters: u64) -> u64 {
    letters.div_ceil(6)
}

/// The tokens of a text, or of a JSON string that has not been unescaped.
pub fn estimate_tokens(text: &str) -> u64 {
    let mut tally = Tally::new();
    let (blocks, rest) = text.as_bytes().as_chunks();
    for block in blocks {
        tally.add(block, Easy::of(block));
    }
    if !rest.is_empty() {
        let mut last = [0; BLOCK];
        last[..rest.len()].copy_from_slice(rest);
        tally.add(rest, Easy::of(&last));
    }
    tally.sixths.div_ceil(6)
}

/// What kind of character each byte of a block is, a bit for each: of those that need not be looked at one by one,
/// which are nearly all. Not among them is what is escaped, outside of ASCII or a capital behind another.
#[derive(Clone, Copy)]
struct Easy {
    lower: u64,
    upper: u64,
    digits: u64,
    spaces: u64,
    marks: u64,
}

impl Easy {
    fn of(block: &Block) -> Self {
        let block = Bytes::of(block);
        let (lower, upper) = (block.within(b'a', b'z'), block.within(b'A', b'Z'));
        let (digits, spaces) = (block.within(b'0', b'9'), block.within(b' ', b' '));
        let written = block.within(b' ', b'~') & !block.within(b'\\', b'\\');
        Self {
            lower,
            upper: upper & !(upper << 1),
            digits,
            spaces,
            marks: written & !(lower | upper | digits | spaces),
        }
    }

    /// From a byte on, as far as they go; and how far that is.
    fn from(self, at: usize) -> (Self, u32) {
        let all = self.lower | self.upper | self.digits | self.spaces | self.marks;
        let length = (all >> at).trailing_ones();
        let within = u64::MAX.checked_shr(64 - length).unwrap_or(0);
        (self.map(|bits| bits >> at & within), length)
    }

    fn map(self, change: impl Fn(u64) -> u64) -> Self {
        Self {
            lower: change(self.lower),
            upper: change(self.upper),
            digits: change(self.digits),
            spaces: change(self.spaces),
            marks: change(self.marks),
        }
    }
}

/// What was counted, and what the last character was.
struct Tally {
    /// In sixths of a token, so that fractions add up without floating point.
    sixths: u64,
    before: Class,
    /// How many of its class there were in a row.
    run: u64,
    /// It was a backslash that begins something.
    escaped: bool,
}

impl Tally {
    fn new() -> Self {
        Self {
            sixths: 0,
            before: Class::Break,
            run: 0,
            escaped: false,
        }
    }

    fn add(&mut self, bytes: &[u8], easy: Easy) {
        let mut at = 0;
        while let Some(&byte) = bytes.get(at) {
            let (easy, length) = easy.from(at);
            let second_capital = self.before == Class::Upper && easy.upper & 1 == 1;
            if length == 0 || self.escaped || second_capital {
                self.character(byte);
                at += 1;
            } else {
                self.characters(easy, length);
                at += length as usize;
            }
        }
    }

    /// Easy ones, `length` of them.
    fn characters(&mut self, easy: Easy, length: u32) {
        let going_on = match self.before {
            Class::Lower | Class::Upper => easy.lower,
            Class::Digit => easy.digits,
            Class::Space => easy.spaces,
            Class::Mark => easy.marks,
            Class::Break | Class::Foreign | Class::Inside => 0,
        };
        let going_on = going_on.trailing_ones();
        self.go_on(going_on);
        if going_on == length {
            return;
        }
        // What begins here. A word ends before a capital, too.
        let new = u64::MAX << going_on;
        let easy = easy.map(|bits| bits & new);
        let letters = easy.lower | easy.upper;
        let words = first(letters) | easy.upper;
        // A token for each word and for each six letters more, for each three digits, for each second space.
        let mut tokens = words | first(easy.spaces & easy.spaces << 1);
        let inside = letters & !words;
        let three = inside & inside << 1 & inside << 2;
        let mut seventh = three & three << 3;
        while seventh != 0 {
            tokens |= first(seventh);
            seventh &= seventh << 6;
        }
        let (mut digits, two) = (easy.digits, easy.digits & easy.digits << 1);
        while digits != 0 {
            tokens |= first(digits);
            digits &= two << 1 & digits << 3;
        }
        // Marks pair up: `":`, `},`.
        let (mut marks, mut seconds) = (easy.marks, 0);
        while marks != 0 {
            tokens |= first(marks);
            let second = marks & marks << 1;
            seconds += u64::from(first(second).count_ones());
            marks = second & second << 1;
        }
        self.sixths += 6 * u64::from(tokens.count_ones()) + seconds;
        self.end(easy, words, length);
    }

    /// So many more of what there was before.
    fn go_on(&mut self, count: u32) {
        if count == 0 {
            return;
        }
        let (run, longer) = (self.run, self.run + u64::from(count));
        self.sixths += match self.before {
            Class::Digit => 6 * (longer.div_ceil(3) - run.div_ceil(3)),
            Class::Space => 6 * u64::from(run < 2 && longer >= 2),
            Class::Mark => 6 * (longer.div_ceil(2) - run.div_ceil(2)) + longer / 2 - run / 2,
            _ => {
                self.before = Class::Lower;
                6 * (pieces(longer) - pieces(run))
            }
        };
        self.run = longer;
    }

    /// What the last of them were, and how many in a row.
    fn end(&mut self, easy: Easy, words: u64, length: u32) {
        let to_the_end = |bits: u64| bits << (64 - length);
        let last = to_the_end(1 << (length - 1));
        let is = |bits| to_the_end(bits) & last != 0;
        let in_a_row = |bits| to_the_end(bits).leading_ones();
        let (before, run) = if is(easy.lower | easy.upper) {
            let class = if is(easy.upper) {
                Class::Upper
            } else {
                Class::Lower
            };
            (class, to_the_end(words).leading_zeros() + 1)
        } else if is(easy.spaces) {
            (Class::Space, in_a_row(easy.spaces))
        } else if is(easy.marks) {
            (Class::Mark, in_a_row(easy.marks))
        } else {
            (Class::Digit, in_a_row(easy.digits))
        };
        (self.before, self.run) = (before, run.into());
    }

    /// Any byte.
    fn character(&mut self, byte: u8) {
        let class = match (CLASSES[usize::from(byte)], byte) {
            (Class::Inside, _) => return,
            (Class::Lower, b'n' | b'r' | b't') if self.escaped => Class::Break,
            (class, _) => class,
        };
        if byte == b'\\' && !self.escaped {
            self.escaped = true;
            return;
        }
        self.escaped = false;
        let word_goes_on = self.before == Class::Upper && class == Class::Lower;
        let goes_on = class == self.before || word_goes_on;
        self.run = if goes_on { self.run + 1 } else { 1 };
        self.before = class;
        let run = self.run;
        self.sixths += match (class, byte) {
            (Class::Lower, _) => u64::from(run % 6 == 1) * 6,
            (Class::Upper, _) if run == 1 => 6,
            (Class::Digit, _) => u64::from(run % 3 == 1) * 6,
            // One space belongs to the word after it; more of them make a token.
            (Class::Space, _) => u64::from(run == 2) * 6,
            (Class::Break, _) => u64::from(run == 1) * 6,
            // Marks pair up: `":`, `},`.
            (Class::Mark, _) if run % 2 == 1 => 6,
            (Class::Mark, _) => 1,
            // Capitals in a row are rare; accents and Cyrillic share tokens, ideographs hardly do, emoji take several.
            (Class::Upper, _) | (Class::Foreign, 0xC0..=0xDF) => 3,
            (Class::Foreign, 0xE0..=0xEF) => 7,
            (Class::Foreign, _) => 20,
            (Class::Inside, _) => 0,
        };
    }
}

/// The first bit of each run of them.
fn first(bits: u64) -> u64 {
    bits & !(bits << 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CJK: &str = "网关在每次调用之前预留额度，并在供应商报告实际用量之后结算。\
        如果客户端中途断开连接，网关仍会读取到最后的用量信息。ゲートウェイは呼び出しの前に残高を確保し、\
        実際の使用量が報告された後に精算します。게이트웨이는 호출 전에 잔액을 예약합니다.";
    const RUSSIAN: &str = "Шлюз резервирует средства до вызова и рассчитывается, когда поставщик \
        сообщил фактическое число токенов. Отключение клиента не является скидкой.";
    const EMOJI: &str = "😀🎉🚀 ok 👩‍👩‍👧‍👦 fine 🇫🇷";

    /// Against real tokenizers: never far below, and not so high that it gets in the way.
    #[test]
    fn the_estimate_is_near_what_tokenizers_count() {
        let json = include_str!("../../tests/clients/package-lock.json");
        let minified: serde_json::Value = serde_json::from_str(json).unwrap();
        let minified = minified.to_string();
        let samples = [
            ("prose", include_str!("../../docs/ARCHITECTURE.md"), 1.5),
            ("code", include_str!("../metered/shape.rs"), 1.6),
            ("json", json, 1.6),
            ("minified json", &minified, 1.6),
            ("cjk", CJK, 2.2),
            ("russian", RUSSIAN, 2.2),
            ("emoji", EMOJI, 2.2),
        ];
        let tokenizers = [
            ("o200k", tiktoken_rs::o200k_base().unwrap()),
            ("cl100k", tiktoken_rs::cl100k_base().unwrap()),
        ];
        for (name, text, highest) in samples {
            let escaped = serde_json::to_string(text).unwrap();
            for (tokenizer, counter) in &tokenizers {
                let counted = counter.encode_ordinary(text).len();
                for estimate in [estimate_tokens(text), estimate_tokens(&escaped)] {
                    #[expect(clippy::cast_precision_loss, reason = "a ratio to look at")]
                    let ratio = estimate as f64 / counted as f64;
                    eprintln!("{name} {tokenizer}: {estimate} for {counted}, {ratio:.2}");
                    assert!(ratio > 0.9, "{name} {tokenizer}: {estimate} for {counted}");
                    assert!(
                        ratio < highest,
                        "{name} {tokenizer}: {estimate} for {counted}"
                    );
                }
            }
        }
    }

    /// The same without a word at a time: one letter after the other.
    fn letter_by_letter(text: &str) -> u64 {
        let mut tally = Tally::new();
        text.bytes().for_each(|byte| tally.character(byte));
        tally.sixths.div_ceil(6)
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig::with_cases(4_000))]
        #[test]
        fn words_at_once_come_to_what_their_letters_do(
            text in r#"([a-z]{0,20}|[A-Z][a-z]{0,9}|[A-Za-z]{0,4}| {0,3}|[!-/`{z@\[a~]{1,5}|\\[nrtu"\\]|[0-9]{0,8}|[\x00-\x7f]|[éж网😀]|\PC){0,60}"#,
        ) {
            proptest::prop_assert_eq!(estimate_tokens(&text), letter_by_letter(&text));
        }
    }
}
