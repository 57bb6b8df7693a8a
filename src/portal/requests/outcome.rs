//! Outcomes of requests in customers' terms. No text names a provider or its failure.

use maud::{Markup, html};

use crate::{
    ledger::{Call, Outcome},
    wire::error::RecordedFailure,
};

/// A short label, and an explanation.
///
/// There is no `_` arm, so that a new outcome does not compile without a text for customers.
fn label_and_explanation(outcome: Outcome) -> (&'static str, &'static str) {
    match outcome {
        Outcome::Answered => ("Answered", "The model answered in full."),
        Outcome::ClientLeft => (
            "Client disconnected",
            "Your client closed the connection before the answer was complete.",
        ),
        Outcome::ProviderFailed => (
            "Failed",
            "The model could not answer, and no part of an answer was sent. Nothing was charged.",
        ),
        Outcome::Interrupted => (
            "Interrupted",
            "The answer broke off before its end, and your client was told so. Nothing was charged.",
        ),
        Outcome::NoUsage => (
            "Not billed (no usage reported)",
            "The model answered, but its tokens were not reported. Nothing was charged.",
        ),
        Outcome::NotCharged => (
            "Not delivered",
            "We could not save the charge, so the answer was not completed and nothing was charged. \
             It is safe to send the request again.",
        ),
        Outcome::NotRenewed => (
            "Stopped after a tool",
            "The request needed another step after running a tool. There was not enough credit for \
             it, a limit per minute was reached, or its key was disabled. Nothing was charged.",
        ),
        Outcome::Stopped => (
            "Service restarted",
            "The service was restarted before the answer was complete. Nothing was charged. It is \
             safe to send the request again.",
        ),
        Outcome::Lost => (
            "Internal error",
            "Something went wrong on our side. Nothing was charged. It is safe to send the request \
             again; if it happens again, ask for help and quote the request ID.",
        ),
    }
}

pub(crate) fn label(outcome: Outcome) -> &'static str {
    label_and_explanation(outcome).0
}

/// What happened to a call, and what its sender can do.
pub(crate) fn explanation(call: &Call) -> String {
    let explanation = label_and_explanation(call.outcome).1;
    let more = match (call.outcome, call.failure.as_deref()) {
        (Outcome::ProviderFailed, Some(failure)) => advice(RecordedFailure::read(failure)),
        (Outcome::Interrupted, failure) => advice_midway(failure.map(RecordedFailure::read)),
        (Outcome::ClientLeft, _) if call.charged.is_some() => {
            "The model continued, and everything it used was charged."
        }
        (Outcome::ClientLeft, _) => "Nothing was charged.",
        _ => return explanation.to_owned(),
    };
    format!("{explanation} {more}")
}

/// Why a model could not answer, and whether a request is worth sending again.
fn advice(failure: RecordedFailure) -> &'static str {
    match failure {
        RecordedFailure::Refused => {
            "The model rejected this request: sent again unchanged, it will fail again. The error that your \
             client received says what to change."
        }
        RecordedFailure::RateLimited => {
            "The model had too many requests at that moment. It is safe to send the request again, after a pause."
        }
        RecordedFailure::Timeout => {
            "The model did not answer in time. It is safe to send the request again."
        }
        RecordedFailure::Misconfigured => {
            "The model could not be used, through a fault on our side. It is safe to send the request again \
             later; if it still fails, ask for help and quote the request ID."
        }
        RecordedFailure::Unavailable => {
            "The model was not available. It is safe to send the request again."
        }
    }
}

/// Why an answer broke off, and whether its request is worth sending again.
fn advice_midway(failure: Option<RecordedFailure>) -> &'static str {
    match failure {
        Some(RecordedFailure::Timeout) => {
            "The model stopped writing and did not go on in time. It is safe to send the whole request again."
        }
        Some(RecordedFailure::Unavailable) | None => {
            "The connection to the model broke, or the model failed. It is safe to send the whole request again."
        }
        Some(failure) => advice(failure),
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
    html! { span class=(class) { (label(outcome)) } }
}

/// The label for operators, who know the parts of the system.
pub(crate) fn operator_label(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::ProviderFailed => "Provider failed",
        Outcome::NotCharged => "Withheld (charge not saved)",
        Outcome::NotRenewed => "Next step refused",
        Outcome::Stopped => "Gateway stopped",
        other => label(other),
    }
}

/// The text for a stored tool outcome.
pub(crate) fn tool_result(kept: &str) -> &'static str {
    match kept {
        "done" => "Done",
        "unknown_tool" => "No such tool",
        "bad_arguments" => "Invalid arguments from the model",
        "timed_out" => "Timed out",
        _ => "Failed",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_outcome_has_a_text_and_labels_are_distinct() {
        let mut labels: Vec<_> = Outcome::ALL.into_iter().map(label).collect();
        labels.sort_unstable();
        labels.dedup();
        assert_eq!(labels.len(), Outcome::ALL.len());
        let explanations = Outcome::ALL.map(|outcome| label_and_explanation(outcome).1);
        let failures = [
            RecordedFailure::Refused,
            RecordedFailure::RateLimited,
            RecordedFailure::Timeout,
            RecordedFailure::Misconfigured,
            RecordedFailure::Unavailable,
        ];
        let midway = failures.map(|failure| advice_midway(Some(failure)));
        assert!(midway[0].contains("it will fail again"), "{}", midway[0]);
        let advice = failures.map(advice);
        for text in explanations.into_iter().chain(advice).chain(midway) {
            let text = text.to_lowercase();
            assert!(text.ends_with('.'), "{text}");
            for inner in ["provider", "upstream", "database", "gateway", "operator"] {
                assert!(!text.contains(inner), "{text}");
            }
        }
    }
}
