//! Maps subjects of data sets to the scorer's domains.

use crate::scorer::DOMAINS;

const SUBJECTS: [(&str, &[&str]); 10] = [
    (
        "mathematics",
        &[
            "math",
            "gsm8k",
            "mathematics",
            "algebra",
            "statistics",
            "mgsm",
            "econometrics",
        ],
    ),
    (
        "code",
        &["crux", "mbpp", "human_eval", "computer", "machine_learning"],
    ),
    ("physics", &["physics", "engineering", "astronomy"]),
    ("chemistry", &["chemistry"]),
    (
        "health",
        &[
            "health",
            "medicine",
            "biology",
            "anatomy",
            "clinical",
            "genetics",
            "nutrition",
            "virology",
            "aging",
            "sexuality",
        ],
    ),
    ("law", &["law", "jurisprudence"]),
    (
        "business",
        &[
            "business",
            "economics",
            "accounting",
            "marketing",
            "management",
            "public_relations",
        ],
    ),
    (
        "society",
        &[
            "psychology",
            "sociology",
            "politics",
            "policy",
            "security_studies",
            "geography",
        ],
    ),
    ("history", &["history"]),
    (
        "philosophy",
        &[
            "philosophy",
            "moral",
            "logic",
            "religions",
            "business_ethics",
        ],
    ),
];

/// The domain of a subject: that of the longest name in the table which it contains, `general` if there is none.
pub fn of(group: &str, bench: &str) -> usize {
    let subject = if bench == "math-l5" { "math" } else { group };
    let names = SUBJECTS.iter().flat_map(|(domain, names)| {
        names
            .iter()
            .map(move |name| (name.len(), *domain))
            .zip(*names)
    });
    let best = names
        .filter(|(_, name)| subject.contains(**name))
        .map(|(found, _)| found)
        .max();
    let domain = best.map_or("general", |(_, domain)| domain);
    let at = DOMAINS.iter().position(|name| *name == domain);
    at.expect("the table names domains only")
}
