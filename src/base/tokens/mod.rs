//! An upper bound of the tokens that a text has, close to what tokenizers count.
//!
//! The promise: the estimate is never below what cl100k, o200k, Llama 3 and Qwen 2.5 count, on any text, so that
//! nobody can send more input than was reserved. No rule of thumb can promise that and stay near the truth: random
//! letters have several times the tokens of words as long. So it counts as cl100k and o200k do, with their
//! vocabularies, and takes the larger result. Llama 3 and Qwen 2.5 have cl100k's merges and others of lower priority,
//! which only make fewer tokens; where they cut a text differently, the larger number counts ([`tally`]).
//!
//! Most of a text is words that a table has ([`block`], [`words`]). The rest is cut as the two tokenizers do
//! ([`ascii`], [`pieces`]) and merged ([`merge`]), unless it was lately ([`recent`]). Longer texts that come again are
//! not even looked at ([`remembered`]).

mod ascii;
mod block;
mod count;
mod kinds;
mod merge;
mod pieces;
mod recent;
mod remembered;
mod table;
mod tally;
#[cfg(test)]
mod tests;
mod vocabulary;
mod words;

use unicode_normalization::{IsNormalized, UnicodeNormalization as _, is_nfc_quick};

pub use count::TokenCount;
pub use remembered::Sender;

use self::{
    merge::LONGEST_MERGED,
    tally::{MOST_MERGED, Tally},
};

/// Role, separators and the like, for each message.
pub const TOKENS_PER_MESSAGE: u64 = 4;

/// The tokens of a text: at least as many as each of the tokenizers counts.
pub fn estimate_tokens(text: &str) -> u64 {
    count(text, &mut 0)
}

/// The same for one of the texts of a request, of which so many bytes have been `merged`.
pub fn estimate_part(sender: Sender, text: &str, merged: &mut usize) -> u64 {
    remembered::tokens(sender, text, || {
        let tokens = count(text, merged);
        // Where bytes were counted for want of merging, another request may have more to spend.
        let is_certain = MOST_MERGED.saturating_sub(*merged) >= LONGEST_MERGED;
        (tokens, is_certain)
    })
}

fn count(text: &str, merged: &mut usize) -> u64 {
    let mut left = MOST_MERGED.saturating_sub(*merged);
    let mut tally = |text: &str| {
        let tally = Tally::merging(text, left);
        left = tally.merging;
        tally
    };
    let counted = tally(text);
    let mut tokens = counted.cl100k.max(counted.o200k);
    // Qwen composes characters first, which makes other tokens of them.
    if counted.may_compose && is_nfc_quick(text.chars()) != IsNormalized::Yes {
        let composed: String = text.nfc().collect();
        tokens = tokens.max(tally(&composed).cl100k);
    }
    *merged = MOST_MERGED - left;
    tokens
}
