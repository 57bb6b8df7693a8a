//! Outcomes of requests in customers' terms. No text names a provider or its failure.

use maud::{Markup, html};

use crate::ledger::Outcome;

/// A short label, and an explanation.
///
/// There is no `_` arm, so that a new outcome does not compile without a text for customers.
fn label_and_explanation(outcome: Outcome) -> (&'static str, &'static str) {
    match outcome {
        Outcome::Answered => ("Answered", "The model answered in full."),
        Outcome::ClientLeft => (
            "Client disconnected",
            "Your client closed the connection before the answer was complete. The tokens that the \
             model had used are charged.",
        ),
        Outcome::ProviderFailed => (
            "Failed",
            "The model could not answer, and nothing of an answer was sent. Nothing was charged. It \
             is safe to try again.",
        ),
        Outcome::Interrupted => (
            "Interrupted",
            "The answer broke off before its end, and your client got an error. Nothing was charged. \
             Try the whole request again.",
        ),
        Outcome::NoUsage => (
            "Not billed (no usage reported)",
            "The answer came without a count of its tokens, so nothing was charged.",
        ),
        Outcome::NotCharged => (
            "Not delivered",
            "The charge could not be written, so nothing was charged and the answer was not \
             completed. Try again.",
        ),
        Outcome::NotRenewed => (
            "Stopped between steps",
            "The request needed another step after running a tool, and there was not enough credit \
             for it, the limit per minute was reached, or its key was disabled. Nothing was charged.",
        ),
        Outcome::Stopped => (
            "Stopped",
            "The service was restarted before the answer was complete. Nothing was charged. It is \
             safe to try again.",
        ),
        Outcome::Lost => (
            "Failed",
            "The request ended because of an error on our side. Nothing was charged.",
        ),
    }
}

pub(crate) fn explanation(outcome: Outcome) -> &'static str {
    label_and_explanation(outcome).1
}

/// The label in a select field, where labels must be distinct.
pub(crate) fn option_label(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Lost => "Failed (error on our side)",
        other => label_and_explanation(other).0,
    }
}

pub(crate) fn badge(outcome: Outcome) -> Markup {
    let class = match outcome {
        Outcome::Answered => "badge good",
        Outcome::ClientLeft => "badge",
        Outcome::ProviderFailed
        | Outcome::Interrupted
        | Outcome::NoUsage
        | Outcome::NotCharged
        | Outcome::NotRenewed
        | Outcome::Stopped
        | Outcome::Lost => "badge bad",
    };
    html! { span class=(class) { (label_and_explanation(outcome).0) } }
}

/// The text for a stored tool outcome.
pub(crate) fn tool_result(kept: &str) -> &'static str {
    match kept {
        "done" => "Done",
        "unknown_tool" => "No such tool",
        "bad_arguments" => "Invalid arguments",
        "timed_out" => "Took too long",
        _ => "Failed",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_outcome_has_a_text_and_labels_are_distinct() {
        let mut choices: Vec<_> = Outcome::ALL.into_iter().map(option_label).collect();
        choices.sort_unstable();
        choices.dedup();
        assert_eq!(choices.len(), Outcome::ALL.len());
        for outcome in Outcome::ALL {
            let text = explanation(outcome).to_lowercase();
            assert!(text.ends_with('.'), "{text}");
            for inner in ["provider", "upstream", "database", "gateway", "operator"] {
                assert!(!text.contains(inner), "{text}");
            }
        }
    }
}
