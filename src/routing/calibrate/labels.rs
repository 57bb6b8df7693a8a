//! Reads labels: prompts with scores of models, one JSON object per line.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::catalog::Catalog;

/// The most bad lines that the error lists.
const MAX_REPORTED: usize = 10;

/// A prompt with the scores of models on it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Label {
    pub prompt: String,
    /// By catalog ID, from 0 to 1.
    pub scores: BTreeMap<String, f64>,
}

/// Reads all labels. The error lists the bad lines with the reasons.
pub(crate) fn read(text: &str, catalog: &Catalog) -> Result<Vec<Label>, String> {
    let (mut labels, mut wrong) = (Vec::new(), Vec::new());
    for (at, line) in text.lines().enumerate() {
        let line = line.trim_start_matches('\u{feff}');
        if line.trim().is_empty() {
            continue;
        }
        match label(line, catalog) {
            Ok(label) => labels.push(label),
            Err(why) => wrong.push(format!("line {}: {why}", at + 1)),
        }
    }
    if wrong.is_empty() {
        return Ok(labels);
    }
    let more = wrong.len().saturating_sub(MAX_REPORTED);
    wrong.truncate(MAX_REPORTED);
    if more > 0 {
        wrong.push(format!("and {more} more"));
    }
    Err(wrong.join("\n- "))
}

fn label(line: &str, catalog: &Catalog) -> Result<Label, String> {
    let value: Value = serde_json::from_str(line)
        .map_err(|error| format!("this is not JSON from column {} on", error.column()))?;
    let prompt = value["prompt"].as_str().unwrap_or_default();
    if prompt.trim().is_empty() {
        return Err("there is no `prompt`".into());
    }
    let written = value["scores"].as_object();
    let written = written
        .filter(|scores| !scores.is_empty())
        .ok_or("there are no `scores`; expected e.g. {\"svc-pro\": 0.8}")?;
    let mut scores = BTreeMap::new();
    for (id, score) in written {
        match catalog.find(id) {
            None => return Err(format!("`{id}` is no model of the catalog")),
            Some(model) if model.is_hybrid() => {
                let instead = "score the models that it chooses from";
                return Err(format!("`{id}` is a hybrid: {instead}"));
            }
            Some(_) => {}
        }
        let score = score
            .as_f64()
            .filter(|score| (0.0..=1.0).contains(score))
            .ok_or_else(|| {
                format!("the score of `{id}` is {score}; expected a number from 0 to 1")
            })?;
        scores.insert(id.clone(), score);
    }
    Ok(Label {
        prompt: prompt.to_owned(),
        scores,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_lines_are_reported_by_number() {
        let catalog = Catalog::built_in();
        let good = r#"{"prompt": "Hi", "scores": {"svc-pro": 1, "svc-basic": 0.5}, "bench": "x"}"#;
        let read_one = read(&format!("\u{feff}{good}\n\n  \n"), &catalog).unwrap();
        assert_eq!(read_one.len(), 1);
        assert_eq!(read_one[0].scores.len(), 2);
        for (line, why) in [
            ("{", "this is not JSON from column 1 on"),
            ("[]", "there is no `prompt`"),
            (
                r#"{"prompt": " ", "scores": {"svc-pro": 1}}"#,
                "there is no `prompt`",
            ),
            (r#"{"prompt": "Hi"}"#, "there are no `scores`"),
            (r#"{"prompt": "Hi", "scores": {}}"#, "there are no `scores`"),
            (
                r#"{"prompt": "Hi", "scores": {"gpt": 1}}"#,
                "`gpt` is no model of the catalog",
            ),
            (
                r#"{"prompt": "Hi", "scores": {"svc-hybrid-cost": 1}}"#,
                "`svc-hybrid-cost` is a hybrid: score the models that it chooses from",
            ),
            (
                r#"{"prompt": "Hi", "scores": {"svc-pro": 1.01}}"#,
                "the score of `svc-pro` is 1.01; expected a number from 0 to 1",
            ),
            (
                r#"{"prompt": "Hi", "scores": {"svc-pro": "1"}}"#,
                "the score of `svc-pro` is \"1\"; expected a number from 0 to 1",
            ),
        ] {
            let error = read(&format!("{good}\n\n{line}\n{good}"), &catalog).unwrap_err();
            assert!(error.starts_with(&format!("line 3: {why}")), "{error}");
        }
        let error = read(&"{\n".repeat(13), &catalog).unwrap_err();
        assert_eq!(error.matches("line ").count(), 10, "{error}");
        assert!(error.ends_with("and 3 more"), "{error}");
    }
}
