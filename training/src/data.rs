//! The training data: prompts with the scores of several models.

use std::{
    borrow::Borrow,
    collections::{BTreeMap, HashMap},
    fs,
    io::{self, Read as _},
    path::Path,
};

use crate::scorer::TIERS;
use lzma_rust2::XzReader;
use serde::Deserialize;

use crate::domains;

/// One line of the data.
#[derive(Deserialize)]
pub struct Row {
    pub bench: String,
    pub group: String,
    pub prompt: String,
    /// The score of each model, from 0 to 1.
    pub scores: BTreeMap<String, f64>,
}

pub struct Data {
    pub rows: Vec<Row>,
    /// The cluster of near-duplicates that each row belongs to, named by its smallest index.
    pub clusters: Vec<usize>,
    /// The mean score of each tier on each prompt.
    pub quality: Vec<[f32; TIERS]>,
    pub domains: Vec<usize>,
}

/// Subjects of `mmlu` whose labels are wrong: answers were truncated to one token, so models that calculate before they
/// answer score below chance.
const MISLABELLED: [&str; 11] = [
    "abstract_algebra",
    "college_mathematics",
    "elementary_mathematics",
    "high_school_mathematics",
    "college_physics",
    "high_school_physics",
    "college_chemistry",
    "high_school_chemistry",
    "professional_accounting",
    "high_school_statistics",
    "econometrics",
];
/// The data sets that are learned from. The data may have others, which are used for evaluation only; some of them may
/// not be used for anything else.
pub const KNOWN: [&str; 6] = ["mmlu", "mmlupro", "gsm8k", "math-l5", "crux", "ulab"];
pub const WEAK: &str = "mixtral-8x7b";
pub const STRONG: &str = "gpt-4-1106";
/// The end of each tier, as a share of the data set's models ranked from the weakest to the strongest.
const BANDS: [f64; TIERS] = [0.25, 0.60, 0.90, 1.0];

impl Row {
    pub fn is_known(&self) -> bool {
        KNOWN.contains(&self.bench.as_str())
    }

    pub fn is_mislabelled(&self) -> bool {
        self.bench == "mmlu" && MISLABELLED.contains(&self.group.as_str())
    }

    /// The scores of the weak and the strong model of the published pair.
    pub fn pair(&self) -> Option<(f64, f64)> {
        Some((*self.scores.get(WEAK)?, *self.scores.get(STRONG)?))
    }
}

impl Data {
    /// Reads the rows that may be learned from, and the others.
    pub fn read(path: &Path) -> Result<(Self, Others), String> {
        let text = text(path).map_err(|e| format!("{}: {e}", path.display()))?;
        let rows: Result<Vec<Row>, _> = text.lines().map(serde_json::from_str).collect();
        let rows = rows.map_err(|e| format!("{}: {e}", path.display()))?;
        let (rows, others): (Vec<Row>, Vec<Row>) = rows.into_iter().partition(Row::is_known);
        let others = Others::new(others, &rows);
        let data = Self {
            clusters: clusters(&rows),
            quality: quality(&rows),
            domains: rows
                .iter()
                .map(|row| domains::of(&row.group, &row.bench))
                .collect(),
            rows,
        };
        Ok((data, others))
    }

    /// The fold of a row, one of five; near-duplicates are in the same fold.
    pub fn fold(&self, row: usize) -> usize {
        (mixed(self.clusters[row] as u64) % 5) as usize
    }

    /// Up to `count` of the rows, chosen by cluster in a pseudo-random but fixed order.
    pub fn sample(&self, mut rows: Vec<usize>, count: usize, seed: u64) -> Vec<usize> {
        rows.sort_by_key(|&row| (mixed((self.clusters[row] as u64).wrapping_add(seed)), row));
        rows.truncate(count);
        rows.sort_unstable();
        rows
    }
}

/// Prompts for evaluation only.
pub struct Others {
    pub rows: Vec<Row>,
    /// For each row, whether it is not a near-duplicate of a prompt that was learned from.
    pub novel: Vec<bool>,
}

impl Others {
    fn new(rows: Vec<Row>, known: &[Row]) -> Self {
        if rows.is_empty() {
            let novel = Vec::new();
            return Self { rows, novel };
        }
        let all: Vec<&Row> = known.iter().chain(&rows).collect();
        let clusters = clusters(&all);
        // A cluster is named by its first row, and the known rows come first.
        let novel = clusters[known.len()..]
            .iter()
            .map(|first| *first >= known.len());
        Self {
            novel: novel.collect(),
            rows,
        }
    }
}

/// The text of the file, which may be compressed as `.xz`.
fn text(path: &Path) -> io::Result<String> {
    if path.extension().is_none_or(|extension| extension != "xz") {
        return fs::read_to_string(path);
    }
    let mut text = String::new();
    let several = true; // concatenated streams, as when `.xz` files are joined
    XzReader::new(fs::File::open(path)?, several).read_to_string(&mut text)?;
    Ok(text)
}

/// Pseudo-random number derived from `n` (SplitMix64).
pub fn mixed(n: u64) -> u64 {
    let mut z = n.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The cluster of each row. Prompts that share ten consecutive words are near-duplicates; the relation is transitive.
fn clusters<R: Borrow<Row>>(rows: &[R]) -> Vec<usize> {
    fn root(parents: &mut [usize], mut at: usize) -> usize {
        while parents[at] != at {
            parents[at] = parents[parents[at]];
            at = parents[at];
        }
        at
    }
    let mut parents: Vec<usize> = (0..rows.len()).collect();
    let mut seen: HashMap<u64, usize> = HashMap::new();
    for (at, row) in rows.iter().enumerate() {
        let text = row.borrow().prompt.to_lowercase();
        let words = text.split(|c: char| !c.is_alphanumeric());
        let words: Vec<u64> = words.filter(|w| !w.is_empty()).map(hash).collect();
        for run in words.windows(words.len().clamp(1, 10)) {
            let run = run.iter().fold(0, |all, word| mixed(all ^ word));
            let first = *seen.entry(run).or_insert(at);
            let (a, b) = (root(&mut parents, at), root(&mut parents, first));
            parents[a.max(b)] = a.min(b);
        }
    }
    (0..rows.len()).map(|at| root(&mut parents, at)).collect()
}

fn hash(word: &str) -> u64 {
    word.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// The quality of each tier on each prompt: the mean score of the tier's models.
///
/// A tier is a band of the data set's own ranking, because no model answered every set. If there is only the published
/// pair, its weak model represents tier 2 and its strong one tier 4; the others are interpolated as in the other sets:
/// tier 3 is two thirds of the way from tier 2 to tier 4, and tier 1 is two thirds of tier 2.
fn quality(rows: &[Row]) -> Vec<[f32; TIERS]> {
    let mut benches: BTreeMap<&str, BTreeMap<&str, (f64, f64)>> = BTreeMap::new();
    for row in rows {
        let models = benches.entry(&row.bench).or_default();
        for (model, score) in &row.scores {
            let (sum, count) = models.entry(model).or_default();
            (*sum, *count) = (*sum + score, *count + 1.0);
        }
    }
    let mut tiers: HashMap<(&str, &str), usize> = HashMap::new();
    for (bench, models) in &benches {
        let mut ranked: Vec<(&str, f64)> = models
            .iter()
            .map(|(model, (sum, count))| (*model, sum / count))
            .collect();
        ranked.sort_by(|a, b| a.1.total_cmp(&b.1).then(a.0.cmp(b.0)));
        for (rank, (model, _)) in ranked.iter().enumerate() {
            let place = (rank as f64 + 0.5) / ranked.len() as f64;
            let tier = BANDS
                .iter()
                .position(|end| place < *end)
                .unwrap_or(TIERS - 1);
            tiers.insert((bench, model), tier);
        }
    }
    let of = |row: &Row| {
        if row.bench == "mmlu" {
            let (weak, strong) = row.pair().unwrap_or_default();
            return [weak * 2.0 / 3.0, weak, (weak + 2.0 * strong) / 3.0, strong];
        }
        let mut sums = [(0.0, 0.0); TIERS];
        for (model, score) in &row.scores {
            let (sum, count) = &mut sums[tiers[&(row.bench.as_str(), model.as_str())]];
            (*sum, *count) = (*sum + score, *count + 1.0);
        }
        sums.map(|(sum, count)| sum / f64::max(count, 1.0))
    };
    rows.iter().map(|row| of(row).map(|q| q as f32)).collect()
}
