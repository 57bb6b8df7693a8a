//! Generates the tables of the token estimate (`src/base/tokens`): the merges of two vocabularies, a table of their
//! common words, and the class of each character. Tells the program its commit (`build/commit.rs`).
//!
//! The vocabularies come from `tiktoken-rs`, the character classes from `regex-syntax`; neither is part of the program.
//! The build fails if a vocabulary does not have the properties that the estimate relies on.

use std::{
    env,
    error::Error,
    fs, iter,
    path::{Path, PathBuf},
};

use regex_syntax::hir::{Class, HirKind};
use tiktoken_rs::CoreBPE;
use unicode_normalization::{IsNormalized, char::canonical_combining_class, is_nfc_quick};

#[path = "build/commit.rs"]
mod commit;
#[path = "src/base/tokens/merge.rs"]
mod merge;
#[path = "src/base/tokens/table.rs"]
#[expect(dead_code, reason = "the program uses the rest")]
mod table;

use table::{
    KIND_BLOCK, Kind, LONGEST_WORD, MAY_COMPOSE, Merges, NO_PAIR, PairSlot, TOKEN_BITS,
    WORD_PROBES, WORD_SLOT, WORD_SLOTS, WordSlot,
};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> Result<()> {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=build/commit.rs");
    println!("cargo:rerun-if-changed=src/base/tokens/merge.rs");
    println!("cargo:rerun-if-changed=src/base/tokens/table.rs");
    commit::export();
    let folder = PathBuf::from(env::var("OUT_DIR")?);
    let write = |name: &str, bytes: &[u8]| fs::write(folder.join(name), bytes);
    if are_made(&folder) {
        return Ok(());
    }

    let cl100k = Vocabulary::of(&tiktoken_rs::cl100k_base()?, 18)?;
    let o200k = Vocabulary::of(&tiktoken_rs::o200k_base()?, 19)?;
    check_numbers(&o200k)?;
    write("cl100k", cl100k.slots.as_flattened())?;
    write("o200k", o200k.slots.as_flattened())?;
    write("words", words(&cl100k, &o200k).as_flattened())?;
    write("kinds", &kinds()?)?;
    write("made", &[])?;
    Ok(())
}

/// Whether this program has made the tables before. After a commit only the version changes; after a change of what tables
/// are made of, this program is compiled again.
fn are_made(folder: &Path) -> bool {
    let time = |path: PathBuf| fs::metadata(path).and_then(|file| file.modified()).ok();
    let made = time(folder.join("made"));
    let compiled = env::current_exe().ok().and_then(time);
    made.is_some() && compiled.is_some() && made > compiled
}

/// The tokens of a vocabulary in the order of their ranks, and the table of its merges.
struct Vocabulary {
    tokens: Vec<Vec<u8>>,
    slots: Vec<PairSlot>,
}

impl Vocabulary {
    /// Builds the merge table of a tokenizer's vocabulary, with two to the power of `bits` slots.
    ///
    /// Each token is merged with the merges of lower rank. Two tokens must remain: the pair from which it is merged.
    /// If that holds for all tokens, merging by pairs gives the same result as looking up the merged bytes.
    fn of(tokenizer: &CoreBPE, bits: u32) -> Result<Self> {
        let mut vocabulary = Self {
            tokens: Vec::new(),
            slots: vec![NO_PAIR.to_le_bytes(); 1 << bits],
        };
        let mut bytes = [false; 256];
        for rank in 0_u32.. {
            let Ok(token) = tokenizer.decode_bytes(&[rank]) else {
                break;
            };
            match (rank, token.as_slice()) {
                (..=255, [byte]) => bytes[usize::from(*byte)] = true,
                (256.., token) => vocabulary.add_merge(rank, token)?,
                _ => return Err(format!("token {rank} should be one byte: {token:?}").into()),
            }
            vocabulary.tokens.push(token);
        }
        if bytes.contains(&false) {
            return Err("a vocabulary lacks a byte".into());
        }
        Ok(vocabulary)
    }

    fn add_merge(&mut self, rank: u32, token: &[u8]) -> Result<()> {
        let (count, parts) = merge::merge_long(self.merges(), token);
        if count != 2 {
            return Err(format!("token {rank} is not merged from two: {token:?}").into());
        }
        let [left, right] = [0, usize::from(parts[0].next)].map(|at| parts[at].token);
        let key = table::pair_key(left, right);
        let mut at = table::pair_hash(key) % self.slots.len();
        while self.slots[at] != NO_PAIR.to_le_bytes() {
            at = (at + 1) % self.slots.len();
        }
        self.slots[at] = (key << TOKEN_BITS | u64::from(rank)).to_le_bytes();
        Ok(())
    }

    fn merges(&self) -> Merges<'_> {
        Merges(&self.slots)
    }
}

/// Checks that up to three digits are one token, which the estimate relies on.
fn check_numbers(vocabulary: &Vocabulary) -> Result<()> {
    let numbers = (0..1000).flat_map(|n| [format!("{n}"), format!("{n:02}"), format!("{n:03}")]);
    for number in numbers {
        if merge::count(vocabulary.merges(), number.as_bytes()) != 1 {
            return Err(format!("{number} is not one token").into());
        }
    }
    Ok(())
}

/// The word table: words that are a token of either vocabulary, with the larger of their two token counts.
///
/// The most common words are added first. A word whose slots are all taken is left out.
fn words(cl100k: &Vocabulary, o200k: &Vocabulary) -> Vec<WordSlot> {
    let mut slots = vec![[0; WORD_SLOT]; WORD_SLOTS];
    for rank in 0..o200k.tokens.len() {
        for (tokens, others) in [(o200k, cl100k), (cl100k, o200k)] {
            let Some(token) = tokens.tokens.get(rank).filter(|token| is_word(token)) else {
                continue;
            };
            let mut slot = [0; WORD_SLOT];
            slot[..token.len()].copy_from_slice(token);
            let first = table::word_hash(u128::from_le_bytes(slot));
            let count = merge::count(others.merges(), token);
            slot[LONGEST_WORD] = u8::try_from(count).expect("a word has at most fifteen bytes");
            let probes = (0..WORD_PROBES).map(|probe| first ^ probe);
            let free = probes
                .take_while(|&at| slots[at] != slot)
                .find(|&at| slots[at] == [0; WORD_SLOT]);
            if let Some(at) = free {
                slots[at] = slot;
            }
        }
    }
    slots
}

/// Whether a token may be a pre-token of both tokenizers: ASCII letters, without a capital after a lowercase letter and
/// with at most one other character before them, or no letters at all. Tokens with digits are excluded, because digits
/// are counted one by one.
fn is_word(token: &[u8]) -> bool {
    let before = token
        .iter()
        .take_while(|byte| !byte.is_ascii_alphanumeric())
        .count();
    let letters = &token[before..];
    let mut small = letters
        .iter()
        .skip_while(|letter| letter.is_ascii_uppercase());
    token.is_ascii()
        && token.len() <= LONGEST_WORD
        && (before <= 1 || letters.is_empty())
        && small.all(u8::is_ascii_lowercase)
}

/// The table of kinds: the block number for each [`KIND_BLOCK`] characters, then the distinct blocks.
fn kinds() -> Result<Vec<u8>> {
    let mut kinds = vec![Kind::Other as u8; 0x11_0000];
    for (class, kind) in [
        (r"[\p{Lu}\p{Lt}]", Kind::Upper),
        (r"\p{Ll}", Kind::Lower),
        (r"[\p{Lm}\p{Lo}]", Kind::Letter),
        (r"\p{M}", Kind::Mark),
        (r"\p{N}", Kind::Number),
        (r"\s", Kind::Space),
        (r"[\r\n]", Kind::Newline),
    ] {
        let parsed = regex_syntax::parse(class)?;
        let HirKind::Class(Class::Unicode(ranges)) = parsed.kind() else {
            return Err(format!("{class} is not a character class").into());
        };
        for range in ranges.ranges() {
            kinds[range.start() as usize..=range.end() as usize].fill(kind as u8);
        }
    }
    for char in '\u{80}'..=char::MAX {
        if canonical_combining_class(char) != 0
            || is_nfc_quick(iter::once(char)) != IsNormalized::Yes
        {
            kinds[char as usize] |= MAY_COMPOSE;
        }
    }
    let mut blocks: Vec<&[u8]> = Vec::new();
    let mut table = Vec::new();
    for block in kinds.chunks(KIND_BLOCK) {
        let known = blocks.iter().position(|known| *known == block);
        let number = known.unwrap_or_else(|| {
            blocks.push(block);
            blocks.len() - 1
        });
        table.push(u8::try_from(number)?);
    }
    table.extend(blocks.concat());
    Ok(table)
}
