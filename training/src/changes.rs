//! Changes to a prompt that do not change its task.

use crate::data::mixed;

pub type Change = fn(&str) -> String;

pub const CHANGES: [(&str, Change); 7] = [
    ("upper case", |text| text.to_uppercase()),
    ("5 % typos", |text| typos(text, 20, 1)),
    ("greeting", |text| format!("Hello there! {text}")),
    ("longer greeting", |text| {
        format!("Good morning, could you please help me with this: {text}")
    }),
    ("thanks", |text| format!("{text} Thanks!")),
    ("double spaces", |text| {
        text.replace(' ', "  ").replace('\n', "\n\n")
    }),
    ("added lines", |text| {
        format!(
            "\n\n {}\n\t\n",
            text.replace(". ", ".\n\n").replace(", ", ",\t ")
        )
    }),
];

/// Adds a typo to one word of `one_in`: two letters swapped, one removed or one doubled.
pub fn typos(text: &str, one_in: u64, seed: u64) -> String {
    let mut out = String::with_capacity(text.len() + 16);
    let mut state = mixed(seed ^ text.len() as u64);
    for part in text.split_inclusive(|c: char| !c.is_alphabetic()) {
        let word = part.trim_end_matches(|c: char| !c.is_alphabetic());
        state = mixed(state);
        if word.chars().count() < 4 || !state.is_multiple_of(one_in) {
            out.push_str(part);
            continue;
        }
        let mut letters: Vec<char> = word.chars().collect();
        let at = 1 + (state >> 20) as usize % (letters.len() - 2);
        match (state >> 40) % 3 {
            0 => letters.swap(at, at + 1),
            1 => _ = letters.remove(at),
            _ => letters.insert(at, letters[at]),
        }
        out.extend(letters);
        out.push_str(&part[word.len()..]);
    }
    out
}

/// A multiple-choice question without its options.
pub fn stem(text: &str) -> String {
    let ends = [
        "\nA.",
        "\nA)",
        "\n(A)",
        "\nOptions:",
        "\nChoices:",
        " A. ",
        " A) ",
    ];
    let end = ends.iter().filter_map(|end| text.find(end)).min();
    let stem = &text[..end.unwrap_or(text.len())];
    let stem = stem.trim();
    // Some prompts consist of options only; they stay as they are.
    if stem.len() < 20 {
        text.into()
    } else {
        stem.into()
    }
}
