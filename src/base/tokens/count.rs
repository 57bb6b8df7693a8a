//! The tokens of a prompt: an estimate, which sizes reservations and holds, and a bound that no tokenizer exceeds.

use super::{Sender, TOKENS_PER_MESSAGE, estimate_part};

/// Most tokens that a provider's chat template adds to a conversation: system prompt, date, special tokens.
const REQUEST_ALLOWANCE: u64 = 96;
/// Most tokens that a chat template adds to a message: role, separators, end tokens.
const MESSAGE_ALLOWANCE: u64 = 16;
/// Most tokens that a chat template adds to the definition of a tool.
const TOOL_ALLOWANCE: u64 = 16;
/// Most tokens of the instructions that providers add for tools and schemas.
const INSTRUCTIONS_ALLOWANCE: u64 = 512;
/// No model reads more bytes than this. Texts beyond it count one token per byte, without an estimate.
const LONGEST_ESTIMATED: u64 = 4 << 20;

/// Estimated tokens of the definition of a tool, besides its texts.
const TOOL_TOKENS: u64 = 4;

/// The tokens of a prompt, before a provider has counted them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TokenCount {
    /// The tokens that tokenizers count, or a few more. It sizes reservations and holds.
    pub estimate: u64,
    /// The most tokens that a provider can count: a byte-level tokenizer makes no more tokens than there are bytes. The
    /// worst-case cost of a call is computed from this and never from the estimate.
    pub bound: u64,
    /// How many bytes the estimate has merged so far; the merge budget of a request limits them.
    merged: usize,
    sender: Sender,
}

impl TokenCount {
    /// Counts a text of the prompt.
    pub(crate) fn text(&mut self, text: &str) {
        self.sent(text);
        self.estimate += if self.bound > LONGEST_ESTIMATED {
            text.len() as u64
        } else {
            estimate_part(self.sender, text, &mut self.merged)
        };
    }

    /// Counts a text that is sent but is not part of the prompt, in the bound only.
    pub(crate) fn sent(&mut self, text: &str) {
        self.bound += text.len() as u64;
    }

    /// The count of a new request of this account.
    pub(crate) fn request(account_id: &str) -> Self {
        Self {
            bound: REQUEST_ALLOWANCE,
            sender: Sender::new(account_id),
            ..Self::default()
        }
    }

    /// Counts the start of a message.
    pub(crate) fn message(&mut self) {
        self.estimate += TOKENS_PER_MESSAGE;
        self.bound += MESSAGE_ALLOWANCE;
    }

    /// Counts the start of a tool's definition.
    pub(crate) fn tool(&mut self) {
        self.estimate += TOOL_TOKENS;
        self.bound += TOOL_ALLOWANCE;
    }

    /// Counts instructions that the provider adds, for tools or a format.
    pub(crate) fn instructions(&mut self) {
        self.bound += INSTRUCTIONS_ALLOWANCE;
    }
}

impl std::ops::AddAssign for TokenCount {
    fn add_assign(&mut self, other: Self) {
        self.estimate += other.estimate;
        self.bound += other.bound;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_too_long_for_any_model_are_counted_in_bytes() {
        let mut count = TokenCount::request("account");
        count.text("one two three");
        assert_eq!(count.estimate, 3);
        count.text(&"word ".repeat(1 << 20));
        assert_eq!(count.estimate, 3 + (5 << 20));
        assert!(count.bound >= count.estimate);
    }
}
