//! Reduces the table of embeddings from 384 floats per piece to the scorer's 64 signed bytes.

use std::{fs, path::Path};

use crate::scorer::{DIM, Features, Vocabulary, Weights, fingerprint};

pub const RAW: usize = 384;
const MAGIC: &[u8; 8] = b"TGTABLE1";

/// The file that `distill` writes: the vocabulary, one piece per line, and the embedding of each piece.
pub struct Table {
    pub pieces: Vec<String>,
    pub numbers: Vec<f32>,
}

impl Table {
    pub fn write(&self, path: &Path) -> Result<(), String> {
        let words = self.pieces.join("\n");
        let mut file = MAGIC.to_vec();
        file.extend((words.len() as u64).to_le_bytes());
        file.extend(words.bytes());
        file.extend(self.numbers.iter().flat_map(|n| n.to_le_bytes()));
        fs::write(path, file).map_err(|e| format!("{}: {e}", path.display()))
    }

    pub fn read(path: &Path) -> Result<Self, String> {
        let bad = || format!("{} is not a table of pieces", path.display());
        let file = fs::read(path).map_err(|e| format!("{}: {e}", path.display()))?;
        let rest = file.strip_prefix(MAGIC).ok_or_else(bad)?;
        let (size, rest) = rest.split_first_chunk().ok_or_else(bad)?;
        let size = usize::try_from(u64::from_le_bytes(*size)).map_err(|_| bad())?;
        let (words, rest) = rest.split_at_checked(size).ok_or_else(bad)?;
        let words = str::from_utf8(words).map_err(|_| bad())?;
        let pieces: Vec<String> = words.lines().map(str::to_owned).collect();
        let numbers = rest.as_chunks().0.iter().map(|n| f32::from_le_bytes(*n));
        let numbers: Vec<f32> = numbers.collect();
        if numbers.len() == pieces.len() * RAW {
            Ok(Self { pieces, numbers })
        } else {
            Err(bad())
        }
    }

    /// The pieces that consist of letters: the scorer splits only words.
    fn letters_only(&self) -> Self {
        let mut kept = Self {
            pieces: Vec::new(),
            numbers: Vec::new(),
        };
        for (piece, numbers) in self.pieces.iter().zip(self.numbers.chunks_exact(RAW)) {
            let (text, _) = split(piece);
            if !text.is_empty() && text.chars().all(char::is_alphabetic) {
                kept.pieces.push(piece.clone());
                kept.numbers.extend(numbers);
            }
        }
        kept
    }

    /// The part of the weights that has the table, fitted to the prompts.
    ///
    /// Frequent pieces are weighted less, and the common mean is subtracted. The 64 directions are the principal
    /// components of whole prompts, each scaled to the same variance.
    pub fn pack(&self, prompts: &[&str]) -> Weights {
        let mut table = self.letters_only();
        let prints: Vec<u32> = table
            .pieces
            .iter()
            .map(|piece| split(piece))
            .map(|(text, within)| fingerprint(text, within))
            .collect();
        let vocabulary = Vocabulary::new(&prints);
        let documents: Vec<Vec<u32>> = prompts
            .iter()
            .map(|prompt| Features::pieces(prompt, &vocabulary))
            .collect();
        let rarity = rarity(&documents, prints.len());
        table.centre(&documents, &rarity);
        let (directions, spreads) = table.directions(&documents, &rarity);
        let mut rows = Vec::with_capacity(prints.len() * DIM);
        for (numbers, rarity) in table.numbers.chunks_exact(RAW).zip(&rarity) {
            for (direction, spread) in directions.iter().zip(&spreads) {
                let along: f64 = numbers
                    .iter()
                    .zip(direction)
                    .map(|(n, d)| f64::from(*n) * d)
                    .sum();
                rows.push(along * rarity / spread.sqrt().max(1e-6));
            }
        }
        Weights {
            rows: quantise(&rows).into(),
            fingerprints: prints,
            ..Weights::default()
        }
    }

    /// Subtracts the mean of all prompts; otherwise any two would be similar.
    fn centre(&mut self, documents: &[Vec<u32>], rarity: &[f64]) {
        let (mut middle, mut all) = (vec![0.0; RAW], 0.0);
        for &piece in documents.iter().flatten() {
            let weight = rarity[piece as usize];
            all += weight;
            let numbers = &self.numbers[piece as usize * RAW..][..RAW];
            for (middle, number) in middle.iter_mut().zip(numbers) {
                *middle += weight * f64::from(*number);
            }
        }
        for row in self.numbers.chunks_exact_mut(RAW) {
            for (number, middle) in row.iter_mut().zip(&middle) {
                *number -= (middle / f64::max(all, 1e-6)) as f32;
            }
        }
    }

    fn directions(&self, documents: &[Vec<u32>], rarity: &[f64]) -> (Vec<Vec<f64>>, Vec<f64>) {
        let mut spread = vec![0.0_f64; RAW * RAW];
        let means: Vec<Vec<f64>> = documents
            .iter()
            .step_by(2)
            .map(|d| self.mean(d, rarity))
            .collect();
        let count = means.len() as f64;
        let mut middle = vec![0.0; RAW];
        for mean in &means {
            for (middle, number) in middle.iter_mut().zip(mean) {
                *middle += number / count;
            }
        }
        for mean in means {
            let from: Vec<f64> = mean.iter().zip(&middle).map(|(a, b)| a - b).collect();
            for (row, a) in spread.chunks_exact_mut(RAW).zip(&from) {
                for (to, b) in row.iter_mut().zip(&from) {
                    *to += a * b / count;
                }
            }
        }
        principal(&spread)
    }

    fn mean(&self, document: &[u32], rarity: &[f64]) -> Vec<f64> {
        let mut sum = vec![0.0; RAW];
        for &piece in document {
            let numbers = &self.numbers[piece as usize * RAW..][..RAW];
            for (sum, number) in sum.iter_mut().zip(numbers) {
                *sum += f64::from(*number) * rarity[piece as usize];
            }
        }
        let length = sum.iter().map(|n| n * n).sum::<f64>().sqrt().max(1e-6);
        sum.into_iter().map(|n| n / length).collect()
    }
}

/// The text of a piece, and whether it is within a word.
fn split(piece: &str) -> (&str, bool) {
    piece
        .strip_prefix("##")
        .map_or((piece, false), |rest| (rest, true))
}

/// Weight of each piece: near 1 for rare ones, small for frequent ones.
fn rarity(documents: &[Vec<u32>], pieces: usize) -> Vec<f64> {
    let mut counts = vec![0.5; pieces];
    for piece in documents.iter().flatten() {
        counts[*piece as usize] += 1.0;
    }
    let all: f64 = counts.iter().sum();
    counts
        .iter()
        .map(|count| 1e-3 / (1e-3 + count / all))
        .collect()
}

/// The principal components, by power iteration from a fixed start.
fn principal(spread: &[f64]) -> (Vec<Vec<f64>>, Vec<f64>) {
    let start = |i: usize, j: usize| ((i * 7919 + j * 104_729) % 1009) as f64 / 1009.0 - 0.5;
    let mut found: Vec<Vec<f64>> = (0..DIM)
        .map(|i| (0..RAW).map(|j| start(i, j)).collect())
        .collect();
    let mut sizes = vec![0.0; DIM];
    for _ in 0..60 {
        for at in 0..DIM {
            let mut image = vec![0.0; RAW];
            for (row, amount) in spread.chunks_exact(RAW).zip(&found[at]) {
                for (to, number) in image.iter_mut().zip(row) {
                    *to += amount * number;
                }
            }
            for before in &found[..at] {
                let along: f64 = image.iter().zip(before).map(|(a, b)| a * b).sum();
                for (to, number) in image.iter_mut().zip(before) {
                    *to -= along * number;
                }
            }
            sizes[at] = image.iter().map(|n| n * n).sum::<f64>().sqrt();
            found[at] = image.into_iter().map(|n| n / sizes[at]).collect();
        }
    }
    (found, sizes)
}

/// Quantises to eight bits. One number in a thousand is clipped, so that the others have a higher resolution.
fn quantise(numbers: &[f64]) -> Vec<u8> {
    let mut sizes: Vec<f64> = numbers.iter().map(|n| n.abs()).collect();
    sizes.sort_by(f64::total_cmp);
    let cut = sizes[sizes.len() * 999 / 1000];
    let fit = |n: &f64| (n / cut * 127.0).round().clamp(-127.0, 127.0) as i8;
    let fit = |n: &f64| fit(n).cast_unsigned();
    numbers.iter().map(fit).collect()
}
