//! The models as the contract lists them, written a second time: a test's expectation must not come from the
//! catalog under test.

pub const MODELS: [&str; 17] = [
    "svc-standard",
    "svc-native-fast",
    "svc-native-flash",
    "svc-native-light",
    "svc-native-standard",
    "svc-native-promax",
    "svc-basic",
    "svc-pro",
    "svc-light-coding",
    "svc-pro-coding",
    "svc-max-coding",
    "svc-hybrid-semantic",
    "svc-hybrid-cost",
    "svc-hybrid-tiered",
    "svc-hybrid-turn",
    "svc-flex-alpha-5.6",
    "svc-flex-beta-3.6",
];

/// §2.8, the notes on the Flex models.
pub fn drops(model: &str, parameter: &str) -> bool {
    let dropped: &[&str] = match model {
        "svc-flex-alpha-5.6" => &[
            "frequency_penalty",
            "logit_bias",
            "presence_penalty",
            "seed",
            "temperature",
            "top_p",
        ],
        "svc-flex-beta-3.6" => &[
            "frequency_penalty",
            "presence_penalty",
            "temperature",
            "top_k",
            "top_p",
        ],
        _ => &[],
    };
    dropped.contains(&parameter)
}

/// §8.3.
pub fn minimum_output(model: &str) -> Option<u64> {
    match model {
        "svc-flex-beta-3.6" | "svc-pro" | "svc-pro-coding" | "svc-standard" => Some(128),
        "svc-light-coding" | "svc-native-flash" | "svc-native-standard" => Some(4_096),
        _ => None,
    }
}

/// §2.8.
pub fn maximum_output(model: &str) -> u64 {
    match model {
        "svc-flex-alpha-5.6" => 128_000,
        _ => 66_000,
    }
}

/// §2.2, rule 2.
pub fn has_identity_prompt(model: &str) -> bool {
    !model.starts_with("svc-native-") && !model.starts_with("svc-flex-")
}

/// §2.8: every model but the hybrids.
pub fn has_prompt_caching(model: &str) -> bool {
    !is_hybrid(model)
}

pub fn is_hybrid(model: &str) -> bool {
    model.starts_with("svc-hybrid-")
}
