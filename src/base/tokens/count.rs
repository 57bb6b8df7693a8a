//! How many tokens a prompt has: an estimate to reserve by, and a bound that no tokenizer exceeds.

use super::{Sender, TOKENS_PER_MESSAGE, estimate_part};

/// What providers write around a conversation of their own: chat templates have system prompts, dates and marks.
const REQUEST_ALLOWANCE: u64 = 96;
/// What the words around a message take at most: role, separators, end marks.
const MESSAGE_ALLOWANCE: u64 = 16;
/// The same for the definition of a tool.
const TOOL_ALLOWANCE: u64 = 16;
/// What providers write of their own around tools and schemas: instructions on how to call them.
const INSTRUCTIONS_ALLOWANCE: u64 = 512;
/// No model reads more bytes than this. Texts beyond it are counted in bytes, without a look at them.
const LONGEST_ESTIMATED: u64 = 4 << 20;

/// What an estimate has for the definition of a tool, beside its texts.
const TOOL_TOKENS: u64 = 4;

/// The tokens of a prompt, before a provider has counted them.
#[derive(Clone, Copy, Debug, Default)]
pub struct TokenCount {
    /// What tokenizers count, or a little more: it is what calls reserve and hold.
    pub estimate: u64,
    /// What a provider can count at most: a byte-level tokenizer makes no more tokens than there are bytes. What a call
    /// can cost at most goes by this and never by the estimate.
    pub bound: u64,
    /// How many bytes the estimate had to merge; there is a bound for a request.
    merged: usize,
    sender: Sender,
}

impl TokenCount {
    pub fn text(&mut self, text: &str) {
        self.sent(text);
        self.estimate += if self.bound > LONGEST_ESTIMATED {
            text.len() as u64
        } else {
            estimate_part(self.sender, text, &mut self.merged)
        };
    }

    /// What is sent but is no part of the prompt.
    pub fn sent(&mut self, text: &str) {
        self.bound += text.len() as u64;
    }

    /// A request of this account begins.
    pub fn request(account_id: &str) -> Self {
        Self {
            bound: REQUEST_ALLOWANCE,
            sender: Sender::new(account_id),
            ..Self::default()
        }
    }

    /// A message begins.
    pub fn message(&mut self) {
        self.estimate += TOKENS_PER_MESSAGE;
        self.bound += MESSAGE_ALLOWANCE;
    }

    /// The definition of a tool begins.
    pub fn tool(&mut self) {
        self.estimate += TOOL_TOKENS;
        self.bound += TOOL_ALLOWANCE;
    }

    /// The provider adds instructions, for tools or a format.
    pub fn instructions(&mut self) {
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
    fn what_no_model_reads_is_counted_in_bytes() {
        let mut count = TokenCount::request("account");
        count.text("one two three");
        assert_eq!(count.estimate, 3);
        count.text(&"word ".repeat(1 << 20));
        assert_eq!(count.estimate, 3 + (5 << 20));
        assert!(count.bound >= count.estimate);
    }
}
