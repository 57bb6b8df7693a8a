//! Texts of alerts: titles, summaries, advice and emails.

use serde_json::Value;

use crate::{
    backoffice::{Alert, AlertKind, Event, mail::Email},
    base::timestamp,
};

/// Returns the account whose credit an alert is about.
pub(crate) fn account_of(kind: AlertKind, subject: &str) -> Option<&str> {
    match kind {
        AlertKind::BalanceLow => Some(subject),
        AlertKind::CreditExpiring | AlertKind::BudgetReached => subject.split('/').next(),
        _ => None,
    }
}

pub(crate) fn title(kind: AlertKind) -> &'static str {
    match kind {
        AlertKind::BalanceLow => "Low balance",
        AlertKind::CreditExpiring => "Credit expires soon",
        AlertKind::BudgetReached => "Budget reached",
        AlertKind::UpstreamFailing => "Upstream failing",
        AlertKind::UpstreamRefuses => "Provider refuses key or model",
        AlertKind::StreamUnbilled => "Calls not charged",
        AlertKind::UsageOverBound => "Provider reports too many tokens",
        AlertKind::AuditMismatch => "Ledger does not add up",
        AlertKind::Test => "Test",
    }
}

/// Returns what an operator can do about a kind of alert.
pub(crate) fn advice(kind: AlertKind) -> &'static str {
    match kind {
        AlertKind::BalanceLow => {
            "Grant the account credit, or let its owner know: without any, its requests are refused."
        }
        AlertKind::CreditExpiring => {
            "Let the owner know, or grant the same amount with a later expiry."
        }
        AlertKind::BudgetReached => {
            "No action needed: the account's owners and billing members were notified, and can change the budget."
        }
        AlertKind::UpstreamFailing => {
            "See its last failure on the page Deployments, ask its provider, or add another deployment for its models."
        }
        AlertKind::UpstreamRefuses => {
            "Check the provider's API key, its account's credit and access, and the deployment's `upstream_model`: 401 is the key, 402 the account, 403 access, 404 the model or `base_url`."
        }
        AlertKind::StreamUnbilled => {
            "Check these requests: if a provider sends responses without usage, correct its configuration; if charges could not be written, check the store."
        }
        AlertKind::UsageOverBound => {
            "Compare the provider's bill with the usage in the log: calls were charged up to what their requests could use, and you pay the rest."
        }
        AlertKind::AuditMismatch => {
            "Run the audit to see what differs. These accounts are frozen until an audit finds nothing."
        }
        AlertKind::Test => "No action needed: this test shows that alerts are delivered.",
    }
}

/// Returns one sentence about the present state, without its full stop.
pub(crate) fn summary(kind: AlertKind, subject: &str, detail: &str) -> String {
    let detail: Value = serde_json::from_str(detail).unwrap_or_default();
    let text = |key: &str| detail[key].as_str().unwrap_or("?");
    let number = |key: &str| detail[key].as_u64().unwrap_or_default();
    match kind {
        AlertKind::BalanceLow => format!(
            "{subject} has {} available, less than {}",
            dollars(text("available")),
            dollars(text("threshold"))
        ),
        AlertKind::CreditExpiring => format!(
            "{} of {} expires at {}",
            dollars(text("left")),
            text("account"),
            text("expires_at")
        ),
        AlertKind::BudgetReached => {
            let of = format!("the budget of the {} `{}`", text("scope"), text("name"));
            let (spent, amount) = (dollars(text("spent")), dollars(text("amount")));
            match number("percent") {
                100 => format!("{of} is used up: {spent} of {amount} is spent"),
                percent => format!("{percent}% of {of} is spent: {spent} of {amount}"),
            }
        }
        AlertKind::UpstreamFailing => {
            format!(
                "the circuit of {subject} is open: {} in a row",
                counted(number("failures_in_a_row"), "failure")
            )
        }
        AlertKind::StreamUnbilled => {
            let least = if detail["at_least"] == true {
                "at least "
            } else {
                ""
            };
            format!(
                "{least}{} of {subject} could not be charged within an hour",
                counted(number("calls_in_an_hour"), "call")
            )
        }
        AlertKind::UpstreamRefuses => format!(
            "{subject} refused {} with status {}",
            counted(number("calls"), "request"),
            number("status")
        ),
        AlertKind::UsageOverBound => format!(
            "{subject} reported more tokens than {} could use; {} was not charged",
            counted(number("calls"), "request"),
            dollars(text("not_charged"))
        ),
        AlertKind::AuditMismatch => format!(
            "the ledger entries of {} do not add up",
            counted(number("accounts"), "account")
        ),
        AlertKind::Test => "this is a test".into(),
    }
}

fn counted(number: u64, what: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {what}{plural}")
}

/// Formats a decimal amount: `1.200000` → `$1.20`.
pub(crate) fn dollars(amount: &str) -> String {
    let (sign, amount) = amount
        .strip_prefix('-')
        .map_or(("", amount), |it| ("-", it));
    let (whole, decimals) = amount.split_once('.').unwrap_or((amount, ""));
    let kept = decimals.trim_end_matches('0');
    format!("{sign}${whole}.{kept:0<2}")
}

/// Returns the email to an operator. `console` is the URL of the console's page of alerts, if the console is served.
pub(crate) fn to_operator(to: &str, alert: &Alert, event: Event, console: Option<&str>) -> Email {
    let link = console.map_or_else(String::new, |console| format!("\n{console}\n"));
    let summary = summary(alert.kind, &alert.subject, &alert.detail);
    let (title, since) = (title(alert.kind), timestamp::shown(alert.opened_at));
    let advice = advice(alert.kind);
    let (subject, text) = match event {
        Event::Opened => (
            format!("Tollgate: {title}"),
            format!("Since {since}: {summary}.\n\n{advice}\n{link}"),
        ),
        Event::Closed => {
            let until = timestamp::shown(alert.closed_at.unwrap_or_default());
            (
                format!("Tollgate: {title}: resolved"),
                format!("From {since} to {until}: {summary}.\n\nThe alert is resolved.\n{link}"),
            )
        }
    };
    Email {
        to: to.to_owned(),
        subject,
        text,
    }
}

/// Returns the email to an account's owner; `None` for alerts that are not about an account.
pub(crate) fn to_customer(to: &str, alert: &Alert, billing: &str) -> Option<Email> {
    let detail: Value = serde_json::from_str(&alert.detail).unwrap_or_default();
    let text = |key: &str| detail[key].as_str().unwrap_or("?");
    let (subject, first) = match alert.kind {
        AlertKind::BalanceLow => (
            "Your balance is low",
            format!(
                "Your account has {} left for new requests. Once it is used up, requests are refused.",
                dollars(text("available"))
            ),
        ),
        AlertKind::CreditExpiring => (
            "Some of your credit expires soon",
            format!(
                "{} of your credit expires at {}. Credit that you do not use by then is lost.",
                dollars(text("left")),
                text("expires_at")
            ),
        ),
        AlertKind::BudgetReached => return Some(about_budget(to, &detail)),
        _ => return None,
    };
    Some(Email {
        to: to.to_owned(),
        subject: subject.into(),
        text: format!("{first}\n\nSee your balance and add credit:\n{billing}\n"),
    })
}

fn about_budget(to: &str, detail: &Value) -> Email {
    let text = |key: &str| detail[key].as_str().unwrap_or("?");
    let percent = detail["percent"].as_u64().unwrap_or_default();
    let per = match text("period") {
        "total" => "in total".to_owned(),
        period => format!("a {period}"),
    };
    let then = match (detail["hard"].as_bool(), percent) {
        (Some(false), _) => "Requests continue: this budget only warns.",
        (_, 100) => "Requests that would exceed it are refused.",
        _ => "Once it is used up, requests are refused.",
    };
    let resets = match detail["resets_at"].as_str() {
        Some(at) => format!(" It resets at {at}."),
        None => String::new(),
    };
    Email {
        to: to.to_owned(),
        subject: match percent {
            100 => format!("The budget {} is used up", text("name")),
            percent => format!("{percent}% of the budget {} is spent", text("name")),
        },
        text: format!(
            "The budget of the {} `{}` is {} {per}, and {} of it is spent. {then}{resets}\n",
            text("scope"),
            text("name"),
            dollars(text("amount")),
            dollars(text("spent")),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summary_of_each_kind() {
        let low = r#"{"available":"-0.500000","threshold":"5.000000"}"#;
        for (kind, subject, detail, expected) in [
            (
                AlertKind::BalanceLow,
                "acct_1",
                low,
                "acct_1 has -$0.50 available, less than $5.00",
            ),
            (
                AlertKind::CreditExpiring,
                "acct_1/grant_1",
                r#"{"account":"acct_1","left":"7.000000001","expires_at":"2027-01-15T08:00:00Z"}"#,
                "$7.000000001 of acct_1 expires at 2027-01-15T08:00:00Z",
            ),
            (
                AlertKind::UpstreamFailing,
                "local/*",
                r#"{"failures_in_a_row":1}"#,
                "the circuit of local/* is open: 1 failure in a row",
            ),
            (
                AlertKind::StreamUnbilled,
                "local",
                r#"{"calls_in_an_hour":100,"at_least":true}"#,
                "at least 100 calls of local could not be charged within an hour",
            ),
            (
                AlertKind::UpstreamRefuses,
                "local",
                r#"{"calls":3,"status":401}"#,
                "local refused 3 requests with status 401",
            ),
            (
                AlertKind::UsageOverBound,
                "local",
                r#"{"calls":2,"not_charged":"0.620000"}"#,
                "local reported more tokens than 2 requests could use; $0.62 was not charged",
            ),
            (
                AlertKind::AuditMismatch,
                "ledger",
                r#"{"accounts":2}"#,
                "the ledger entries of 2 accounts do not add up",
            ),
            (
                AlertKind::BudgetReached,
                "acct_1/budget_1/0/80",
                r#"{"percent":80,"scope":"key","name":"ci","spent":"16.100000","amount":"20.000000"}"#,
                "80% of the budget of the key `ci` is spent: $16.10 of $20.00",
            ),
            (AlertKind::Test, "test_1", "not JSON", "this is a test"),
        ] {
            assert_eq!(summary(kind, subject, detail), expected);
        }
    }

    #[test]
    fn an_email_links_to_the_console_if_it_is_served() {
        let alert = Alert {
            seq: 1,
            id: "alert_1".into(),
            kind: AlertKind::Test,
            subject: "test_1".into(),
            detail: "{}".into(),
            opened_at: 0,
            seen_at: 0,
            closed_at: Some(0),
            announced: true,
        };
        for event in [Event::Opened, Event::Closed] {
            let text = |console| to_operator("a@example.com", &alert, event, console).text;
            let (with, without) = (text(Some("https://gate.example/alerts")), text(None));
            assert_eq!(with, format!("{without}\nhttps://gate.example/alerts\n"));
            assert!(without.ends_with(".\n"), "{without:?}");
        }
    }
}
