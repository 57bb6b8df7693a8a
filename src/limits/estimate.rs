//! How many tokens a text has, before anyone has counted them.
//!
//! A tokenizer per vendor would be slow and wrong for all the others. This walks the bytes once and
//! counts what tokenizers make tokens of: words and their pieces, runs of digits, marks and spaces,
//! characters of scripts that get a token each. It errs on the high side; what is reserved too
//! much is given back when the provider has counted.

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
    let (blocks, rest) = text.as_bytes().as_chunks::<64>();
    for block in blocks {
        tally.add(block, Plain::of(block));
    }
    let mut last = [0; 64];
    last[..rest.len()].copy_from_slice(rest);
    tally.add(rest, Plain::of(&last));
    tally.sixths.div_ceil(6)
}

/// Which of 64 bytes are small letters, and which are spaces: a bit each. They are most of a text.
#[derive(Clone, Copy)]
struct Plain {
    letters: u64,
    spaces: u64,
}

impl Plain {
    fn of(block: &[u8; 64]) -> Self {
        /// One in each of eight bytes, and the first bit of each.
        const EACH: u64 = u64::from_ne_bytes([1; 8]);
        const FIRST_BITS: u64 = EACH << 7;
        /// Brings the first bits of eight bytes together in the highest byte.
        const GATHER: u64 = 0x0002_0408_1020_4081;
        let mut plain = Self {
            letters: 0,
            spaces: 0,
        };
        for (eight, place) in block.as_chunks::<8>().0.iter().zip((0..).step_by(8)) {
            let eight = u64::from_le_bytes(*eight);
            // Sums of seven bits each, which reach the first bit of their own byte and no further.
            let low = eight & !FIRST_BITS;
            let from_a = low + EACH * u64::from(0x80 - b'a');
            let past_z = low + EACH * u64::from(0x7F - b'z');
            let no_space = (low ^ (EACH * u64::from(b' '))) + (FIRST_BITS - EACH);
            let letters = from_a & !past_z & !eight & FIRST_BITS;
            let spaces = !no_space & !eight & FIRST_BITS;
            plain.letters |= (letters.wrapping_mul(GATHER) >> 56) << place;
            plain.spaces |= (spaces.wrapping_mul(GATHER) >> 56) << place;
        }
        plain
    }

    /// From a byte on, as far as there are letters and spaces; and how far that is.
    fn from(self, at: usize) -> (Self, u32) {
        let (letters, spaces) = (self.letters >> at, self.spaces >> at);
        let length = (letters | spaces).trailing_ones();
        let within = u64::MAX.checked_shr(64 - length).unwrap_or(0);
        let (letters, spaces) = (letters & within, spaces & within);
        (Self { letters, spaces }, length)
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

    fn add(&mut self, bytes: &[u8], plain: Plain) {
        let mut at = 0;
        while let Some(&byte) = bytes.get(at) {
            let (words, length) = plain.from(at);
            if length == 0 || self.escaped {
                self.character(byte);
                at += 1;
            } else {
                self.words(words, length);
                at += length as usize;
            }
        }
    }

    /// Letters and spaces, `length` of them.
    fn words(&mut self, plain: Plain, length: u32) {
        let Plain { letters, spaces } = plain;
        // What goes on from before.
        let is_word = matches!(self.before, Class::Lower | Class::Upper);
        let going_on = match self.before {
            Class::Lower | Class::Upper => letters.trailing_ones(),
            Class::Space => spaces.trailing_ones(),
            _ => 0,
        };
        if going_on > 0 {
            let run = self.run + u64::from(going_on);
            let second_space = self.run < 2 && run >= 2;
            let tokens = if is_word {
                pieces(run) - pieces(self.run)
            } else {
                u64::from(second_space)
            };
            self.sixths += tokens * 6;
            self.run = run;
        }
        // What begins here: a token for each word and for each six letters more, and for each second space.
        let new = u64::MAX.checked_shl(going_on).unwrap_or(0);
        let (words, gaps) = (letters & new, spaces & new);
        let mut tokens = starts(words) + starts(gaps & (gaps << 1));
        let four = words & (words << 1);
        let four = four & (four << 2);
        let mut seventh = four & (four << 3);
        while seventh != 0 {
            tokens += starts(seventh);
            seventh &= seventh << 6;
        }
        self.sixths += tokens * 6;
        if going_on < length {
            let last = 64 - length;
            let (letters, spaces) = (words << last, gaps << last);
            self.run = u64::from(letters.leading_ones() + spaces.leading_ones());
            self.before = match spaces.leading_ones() {
                0 => Class::Lower,
                _ => Class::Space,
            };
        } else if is_word {
            self.before = Class::Lower;
        }
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

/// How many runs of bits there are.
fn starts(bits: u64) -> u64 {
    u64::from((bits & !(bits << 1)).count_ones())
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
            text in r#"([a-z]{0,20}|[A-Za-z]{0,4}| {0,3}|[`{z@\[a~]{1,3}|\\[nrtu"\\]|[0-9]{0,5}|[éж网😀]|\PC){0,60}"#,
        ) {
            proptest::prop_assert_eq!(estimate_tokens(&text), letter_by_letter(&text));
        }
    }
}
