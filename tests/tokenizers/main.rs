//! Estimates and counts texts for `tests/tokenizers/run`: reads a JSON string per line, writes three numbers per
//! line.

use std::io::{BufRead as _, Write as _};

use tollgate::base::tokens::estimate_tokens;

fn main() {
    if std::env::args().nth(1).as_deref() != Some("count") {
        // Run by `cargo test` without arguments, it has nothing to do.
        return;
    }
    let o200k = tiktoken_rs::o200k_base_singleton();
    let cl100k = tiktoken_rs::cl100k_base_singleton();
    let mut out = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let text: String = serde_json::from_str(&line.expect("a line")).expect("a JSON string");
        let estimate = estimate_tokens(&text);
        let (o200k, cl100k) = (o200k.count_ordinary(&text), cl100k.count_ordinary(&text));
        writeln!(out, "{estimate} {o200k} {cl100k}").expect("somebody reads it");
    }
}
