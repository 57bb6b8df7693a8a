//! Estimates how many tokens a text has: an upper bound, close to what tokenizers count.
//!
//! The estimate is never below the count of cl100k, o200k, Llama 3 and Qwen 2.5, on any text, so that no request can
//! send more input than was reserved. No rule of thumb can promise that and stay close: random letters have several
//! times the tokens of words of the same length. So the estimate counts as cl100k and o200k do, with their
//! vocabularies, and takes the larger result. Llama 3 and Qwen 2.5 have cl100k's merges and others of lower priority,
//! which only make fewer tokens; where they split a text differently, the larger number is taken (`tally`).
//!
//! Most of a text consists of words that are in a table (`block`, `word_table`). The rest is split into pre-tokens
//! as the two tokenizers do (`ascii`, `pieces`) and merged (`merge`), unless the result is cached
//! (`piece_cache`). Longer texts that are sent repeatedly have a cache of their own (`text_cache`).

mod ascii;
mod block;
mod count;
mod kinds;
mod merge;
mod piece_cache;
mod pieces;
mod table;
mod tally;
#[cfg(test)]
mod tests;
mod text_cache;
mod vocabulary;
mod word_table;

use unicode_normalization::{IsNormalized, UnicodeNormalization as _, is_nfc_quick};

pub(crate) use count::TokenCount;
pub(crate) use text_cache::Sender;

use self::{
    merge::LONGEST_MERGED,
    tally::{MERGE_BUDGET, Tally},
};

/// Tokens of a message besides its texts: role, separators and the like.
pub(crate) const TOKENS_PER_MESSAGE: u64 = 4;

/// Estimates the tokens of a text: at least as many as each of the tokenizers counts.
pub fn estimate_tokens(text: &str) -> u64 {
    count(text, &mut 0)
}

/// Estimates the tokens of one of the texts of a request. `merged` counts the bytes of the request that were merged.
pub(crate) fn estimate_part(sender: Sender, text: &str, merged: &mut usize) -> u64 {
    text_cache::tokens(sender, text, || {
        let tokens = count(text, merged);
        // If the merge budget ran out, bytes were counted in part: another request may get a lower result.
        let is_certain = MERGE_BUDGET.saturating_sub(*merged) >= LONGEST_MERGED;
        (tokens, is_certain)
    })
}

fn count(text: &str, merged: &mut usize) -> u64 {
    let mut left = MERGE_BUDGET.saturating_sub(*merged);
    let mut tally = |text: &str| {
        let tally = Tally::with_budget(text, left);
        left = tally.budget;
        tally
    };
    let counted = tally(text);
    let mut tokens = counted.cl100k.max(counted.o200k);
    // Qwen normalizes the text to NFC first, which can change its tokens.
    if counted.may_compose && is_nfc_quick(text.chars()) != IsNormalized::Yes {
        let composed: String = text.nfc().collect();
        tokens = tokens.max(tally(&composed).cl100k);
    }
    *merged = MERGE_BUDGET - left;
    tokens
}
