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
    let bytes = text.as_bytes();
    // In sixths of a token, so that fractions add up without floating point.
    let mut sixths = 0_u64;
    let mut run = 0_u64;
    let mut before = Class::Break;
    let mut escaped = false;
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        at += 1;
        let class = match (CLASSES[usize::from(byte)], byte) {
            (Class::Inside, _) => continue,
            (Class::Lower, b'n' | b'r' | b't') if escaped => Class::Break,
            (class, _) => class,
        };
        if byte == b'\\' && !escaped {
            escaped = true;
            continue;
        }
        escaped = false;
        let word_goes_on = before == Class::Upper && class == Class::Lower;
        let run_before = if class == before || word_goes_on {
            run
        } else {
            0
        };
        run = run_before + 1;
        before = class;
        sixths += match (class, byte) {
            // Most of a text: all letters of a word at once.
            (Class::Lower, _) => {
                let others = bytes[at..]
                    .iter()
                    .take_while(|byte| byte.is_ascii_lowercase());
                let others = others.count();
                at += others;
                run += others as u64;
                (pieces(run) - pieces(run_before)) * 6
            }
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
    sixths.div_ceil(6)
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
}
