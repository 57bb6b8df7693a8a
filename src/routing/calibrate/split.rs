//! Splits the labels into two halves: one for fitting, one for checking the fit.

use std::collections::BTreeMap;

use sha2::{Digest as _, Sha256};

use super::labels::Label;

/// For each label, whether it is in the half for fitting.
///
/// Prompts with equal sets of words are in the same half, because a fit to one of them has seen the others. The half
/// depends on the words only and not on the position in the file.
pub(crate) fn fitting_half(labels: &[Label]) -> Vec<bool> {
    let mut groups: BTreeMap<[u8; 32], Vec<usize>> = BTreeMap::new();
    for (at, label) in labels.iter().enumerate() {
        let digest = Sha256::digest(words(&label.prompt).as_bytes());
        groups.entry(digest.into()).or_default().push(at);
    }
    let mut fits = vec![false; labels.len()];
    let (mut fitted, mut held_out) = (0, 0);
    for group in groups.values() {
        if fitted <= held_out {
            fitted += group.len();
            for at in group {
                fits[*at] = true;
            }
        } else {
            held_out += group.len();
        }
    }
    fits
}

/// The sorted distinct words of a text in lower case; if it has none, the text itself.
fn words(text: &str) -> String {
    let lower = text.to_lowercase();
    let parts = lower.split(|c: char| !c.is_alphanumeric());
    let mut words: Vec<_> = parts.filter(|word| !word.is_empty()).collect();
    words.sort_unstable();
    words.dedup();
    if words.is_empty() {
        text.trim().to_owned()
    } else {
        words.join(" ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prompts_of_the_same_words_are_in_the_same_half() {
        let label = |prompt: String| Label {
            prompt,
            scores: BTreeMap::new(),
        };
        let words = (0..100).map(|at| format!("Question {at} of many"));
        let groups = words.flat_map(|text| [text.to_uppercase(), format!("  {text}?! {text}")]);
        let labels: Vec<_> = groups.map(label).collect();
        let fits = fitting_half(&labels);
        for pair in fits.chunks(2) {
            assert_eq!(pair[0], pair[1]);
        }
        assert_eq!(fits.iter().filter(|fits| **fits).count(), 100);
        let mut backwards = labels;
        backwards.reverse();
        let mut again = fitting_half(&backwards);
        again.reverse();
        assert_eq!(again, fits, "the position in the file does not matter");
    }
}
