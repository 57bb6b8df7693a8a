//! What to do about a refused request, by the code of its error (`Envelope::reason`).

use crate::{backoffice::RefusedRequest, portal::rights::Right};

/// Why requests with a code are refused, and what helps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Remedy {
    /// What was wrong, in a few words.
    pub title: &'static str,
    /// What to do next; the first sentence says it.
    pub advice: &'static str,
    pub page: Option<HelpPage>,
}

impl Remedy {
    /// The first sentence of the advice, which says what to do. For lists.
    pub(crate) fn brief(&self) -> &'static str {
        let end = self
            .advice
            .find(". ")
            .map_or(self.advice.len(), |at| at + 1);
        &self.advice[..end]
    }
}

/// A page of the portal that helps, and who may open it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HelpPage {
    Billing,
    Budgets,
    Keys,
    /// The page of the key that the request had.
    Key,
    Models,
    Plan,
    Refused,
}

impl HelpPage {
    pub(crate) fn link(self, refused: &RefusedRequest) -> (String, &'static str) {
        let (path, name) = match self {
            Self::Billing => ("/portal/billing", "Open Billing"),
            Self::Budgets => ("/portal/budgets", "Open Budgets"),
            Self::Keys => ("/portal/keys", "Open API keys"),
            Self::Key => {
                let path = format!("/portal/keys/{}", refused.key_id);
                return (path, "Open the key");
            }
            Self::Models => ("/portal/models", "See all models"),
            Self::Plan => ("/portal/plan", "Open Plan and limits"),
            Self::Refused => ("/portal/requests/refused", "See refused requests"),
        };
        (path.to_owned(), name)
    }

    pub(crate) fn right(self) -> Right {
        match self {
            Self::Billing => Right::Billing,
            Self::Budgets => Right::Budgets,
            Self::Keys | Self::Key => Right::Keys,
            Self::Models | Self::Plan => Right::Member,
            Self::Refused => Right::Requests,
        }
    }
}

/// The remedy for a code, whose requests had this status.
pub(crate) fn of(code: &str, status: u16) -> Remedy {
    let (title, advice, page) = of_request(code, status)
        .or_else(|| of_account(code))
        .or_else(|| of_retry(code))
        .unwrap_or((
            "Refused",
            "Read the message. If it does not help, contact support and quote the request ID.",
            None,
        ));
    Remedy {
        title,
        advice,
        page,
    }
}

type Row = (&'static str, &'static str, Option<HelpPage>);

/// Codes for which the request has to be changed.
fn of_request(code: &str, status: u16) -> Option<Row> {
    Some(match code {
        "invalid_request_error" => match status {
            408 => (
                "Request too slow",
                "Check the connection and send the request again. It did not arrive in time.",
                None,
            ),
            413 => (
                "Request too large",
                "Send a smaller request: shorten the conversation, or leave out attachments.",
                None,
            ),
            431 => (
                "Headers too large",
                "Remove headers that are not needed and send the request again.",
                None,
            ),
            _ => (
                "Invalid request",
                "Change the request as the message says, and send it again. The same request would be refused again.",
                None,
            ),
        },
        "thread_unsupported_request" => (
            "Threads are not supported",
            "Send the whole conversation in “messages” and leave “thread” out.",
            None,
        ),
        "context_length_exceeded" => (
            "Conversation too long",
            "Shorten the conversation, lower max_tokens, or use a model with a longer context.",
            Some(HelpPage::Models),
        ),
        "model_not_found" => (
            "Unknown model",
            "Check the spelling of the model’s name. The page Models lists the names that you can use.",
            Some(HelpPage::Models),
        ),
        "route_not_found" => (
            "Unknown path",
            "Check the base URL of your client: it ends in /v1, and clients add the rest of the path themselves.",
            None,
        ),
        "websocket_not_served" => (
            "No WebSocket",
            "Nothing to do: clients that try a WebSocket first send the request by HTTP afterwards.",
            None,
        ),
        "previous_response_not_found" => (
            "Response not found",
            "Send the whole conversation: the stored response has expired, was deleted, or never existed.",
            None,
        ),
        "upstream_error" => (
            "Refused by the provider",
            "Check the request, or use another model. The model’s provider refused it.",
            Some(HelpPage::Models),
        ),
        _ => return None,
    })
}

/// Codes that have to do with the key, the plan, credit or limits.
fn of_account(code: &str) -> Option<Row> {
    Some(match code {
        "missing_api_key" => (
            "No API key",
            "Send an API key in the header Authorization.",
            Some(HelpPage::Keys),
        ),
        "invalid_api_key" => (
            "Invalid API key",
            "Enable the key, or use another one. It was disabled, deleted or expired when this request came, or its old \
             secret was used after a rotation.",
            Some(HelpPage::Keys),
        ),
        "no_account" => (
            "Account closed",
            "Contact support to open the account again. It is closed.",
            None,
        ),
        "insufficient_credits" => (
            "Not enough credit",
            "Add credit. If other requests were running, their reserved credit is released when they end; a lower \
             max_tokens needs less.",
            Some(HelpPage::Billing),
        ),
        "credits_expired" => (
            "Credit expired",
            "Add credit to go on. The account’s credit has expired.",
            Some(HelpPage::Billing),
        ),
        "budget_exceeded" => (
            "Budget used up",
            "Raise the budget, wait until its next period, or lower max_tokens. A budget above this key has no room for \
             the request.",
            Some(HelpPage::Budgets),
        ),
        "tier_upgrade_required" => (
            "Not in your plan",
            "Use a model that your plan includes, or upgrade the plan.",
            Some(HelpPage::Plan),
        ),
        "model_not_allowed" => (
            "Model not allowed for this key",
            "Add the model to the key, or use another key. This one may call certain models only.",
            Some(HelpPage::Key),
        ),
        "rpm_exceeded" => (
            "Too many requests",
            "Wait as long as Retry-After says, and send fewer requests at a time. Official clients do this by \
             themselves.",
            Some(HelpPage::Plan),
        ),
        "tpm_exceeded" => (
            "Too many tokens",
            "Wait as long as Retry-After says, lower max_tokens, or shorten the conversation.",
            Some(HelpPage::Plan),
        ),
        "abandoned_exceeded" => (
            "Too many abandoned requests",
            "Let your clients read responses to the end, then send again. They disconnect before that.",
            None,
        ),
        "refusals_exceeded" => (
            "Too many refused requests",
            "Correct the errors that came before this one, wait a minute, and send again.",
            Some(HelpPage::Refused),
        ),
        "counts_exceeded" => (
            "Too many token counts",
            "Wait as long as Retry-After says, and count tokens less often.",
            None,
        ),
        _ => return None,
    })
}

/// Codes of retries, and of failures for which the request can be sent again.
fn of_retry(code: &str) -> Option<Row> {
    Some(match code {
        "idempotency_in_progress" => (
            "Still running",
            "Send the request again in a moment to get its response. Another one with the same Idempotency-Key is still \
             running.",
            None,
        ),
        "idempotency_key_reused" => (
            "Idempotency-Key used before",
            "Use a new Idempotency-Key for each new request. This one belongs to another path or body.",
            None,
        ),
        "answer_not_kept" => (
            "Response not stored",
            "Use another Idempotency-Key to run the request again. It ran once, and its response is not stored any \
             more.",
            None,
        ),
        "overloaded"
        | "rate_limit_unavailable"
        | "body_memory_exhausted"
        | "credit_reservation_unavailable"
        | "admission_state_unavailable"
        | "recording_cut"
        | "service_unavailable"
        | "gateway_error"
        | "internal_error"
        | "server_error" => (
            "Temporarily unavailable",
            "Send the request again in a moment; official clients do this by themselves. Nothing is wrong with it. If \
             it happens often, contact support and quote the request ID.",
            None,
        ),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Codes by `Envelope::reason`, which a test of `wire::error` compares with all errors.
    const CODES: &[&str] = crate::wire::error::REASONS;

    #[test]
    fn every_code_has_a_remedy() {
        for code in CODES {
            let remedy = of(code, 400);
            assert_ne!(remedy.title, "Refused", "{code}");
            assert!(remedy.advice.ends_with('.'), "{code}");
            let brief = remedy.brief();
            assert!(brief.ends_with('.') && brief.len() <= 140, "{brief}");
        }
        assert_eq!(of("a_new_code", 400).title, "Refused");
        assert_eq!(of("a_new_code", 400).brief(), "Read the message.");
        assert_eq!(of("invalid_request_error", 413).title, "Request too large");
    }
}
