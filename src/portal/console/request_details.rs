//! The details of one request for operators, including upstreams and failures, which customers do not see.

use std::sync::Arc;

use axum::extract::State;
use maud::{Markup, html};
use serde_json::Value;

use super::{
    access::{Id, SignedInOperator},
    account_names::AccountNames,
    frame::{self, Place},
    refused,
    requests::{outcome, path},
};
use crate::{
    base::timestamp,
    gateway::Gateway,
    ledger::{Attempt, Call, CallId, Step},
    portal::{
        error::PortalError,
        formatting::{count, duration, moment, money},
        layout::{self, Page},
        requests as customers,
        table::scrolled,
    },
};

pub(crate) async fn show(
    State(gateway): State<Arc<Gateway>>,
    me: SignedInOperator,
    Id(id): Id,
) -> Result<Page, PortalError> {
    let Some(id) = CallId::parse(&id) else {
        gateway.write_refused_now().await;
        let refused = gateway.backoffice.find_refused(&id, None).await?;
        let one = refused.iter().find(|one| one.id == id);
        let one = one.ok_or(PortalError::NotFound)?;
        return refused::details(&gateway, &me, one).await;
    };
    let call = gateway.ledger.call(id).await?;
    let call = call.ok_or(PortalError::NotFound)?;
    let mut others = gateway.ledger.find_calls(&call.request_id).await?;
    others.retain(|other| other.id != call.id);
    let replays = gateway.ledger.replays_of(call.id).await?;
    let names = AccountNames::read(&gateway, [call.account_id.as_str()]).await?;
    let content = html! {
        nav.back aria-label="Back" { a href="/portal/console/requests" { "All requests" } }
        h1 { "Request " code.whole { (call.id) } }
        p { (outcome(call.outcome)) }
        @if let Some(failure) = &call.failure { p.problem.failure { (failure) } }
        (facts(&call, &names))
        (attempts(&call.attempts))
        (customers::cost(&call))
        (steps(&call.steps))
        (customers::retries(&replays))
        (decision(call.decision.as_deref()))
        @if !others.is_empty() {
            section {
                h2 { "All with the same request ID" }
                ul { @for other in &others { li { a href=(path(other.id)) { (other.id) } } } }
            }
        }
    };
    Ok(frame::page(&me, Place::Requests, "Request", &content))
}

fn facts(call: &Call, names: &AccountNames) -> Markup {
    let first_byte = call.first_byte_ms.map(|at| at - call.admitted_ms);
    html! {
        dl {
            dt { "Request ID" } dd { code.whole { (call.request_id) } }
            dt { "Account" } dd { (names.link(&call.account_id)) }
            dt { "Key" } dd { a href={ "/portal/console/requests?key=" (layout::encoded(&call.payer.key_id)) } { code { (call.payer.key_id) } } }
            dt { "Requested model" } dd { code { (call.model) } }
            (customers::chosen(call))
            dt { "Upstream" } dd { (call.upstream.as_deref().unwrap_or("none")) }
            dt { "Response" } dd { @if call.stream { "Streamed" } @else { "Not streamed" } }
            dt { "Admitted" } dd { (moment(call.admitted_ms.div_euclid(1_000))) " " span.muted { (timestamp::shown_ms(call.admitted_ms)) } }
            dt { "Time to first byte" } dd { @match first_byte { Some(ms) => { (duration(ms)) }, None => { "No response" } } }
            dt { "Duration" } dd { (duration(call.ended_ms - call.admitted_ms)) }
            dt { "Reserved tokens" } dd { (count(call.reserved_tokens)) " tokens of the rate-limit window" }
            dt { "Reserved credit" } dd { (money(call.held)) ", at most " (money(call.most)) }
            @if let Some(agent) = call.agent.as_deref() { (customers::agent(agent)) }
            @if let Some(cost) = call.provider_cost {
                dt { "Provider cost" } dd { (money(cost.rounded_up())) }
            }
        }
    }
}

fn attempts(attempts: &[Attempt]) -> Markup {
    let table = html! {
        table {
            caption { "Upstreams that failed, in order" }
            thead { tr {
                th scope="col" { "Upstream" } th scope="col" { "Error" } th.number scope="col" { "Duration" }
            } }
            tbody {
                @for attempt in attempts {
                    tr {
                        th scope="row" { (attempt.upstream) }
                        td.failure { (attempt.failure) }
                        td.number { (duration(ms(attempt.ms))) }
                    }
                }
            }
        }
    };
    html! {
        @if !attempts.is_empty() {
            section { h2 { "Failed attempts" } (scrolled("Failed attempts", &table)) }
        }
    }
}

fn steps(steps: &[Step]) -> Markup {
    let table = html! {
        table {
            caption { "The provider's answers and the gateway's own tools, in order" }
            thead { tr {
                th scope="col" { "Step" } th scope="col" { "Result" } th.number scope="col" { "Duration" }
            } }
            tbody { @for step in steps { (step_row(step)) } }
        }
    };
    html! {
        @if !steps.is_empty() {
            section { h2 { "Steps" } (scrolled("Steps", &table)) }
        }
    }
}

fn step_row(step: &Step) -> Markup {
    let (name, came, took) = match step {
        Step::Provider {
            upstream,
            finish_reason,
            prompt_tokens,
            cached_tokens,
            cache_write_tokens,
            cache_write_1h_tokens: _,
            completion_tokens,
            ms,
        } => (
            html! { "Answer of " (upstream) },
            html! {
                (count((*prompt_tokens).into())) " tokens in (" (count((*cached_tokens).into())) " cached"
                @if *cache_write_tokens > 0 { ", " (count((*cache_write_tokens).into())) " written to the cache" }
                "), "
                (count((*completion_tokens).into())) " out"
                @if let Some(reason) = finish_reason { ", " code { (reason) } }
            },
            ms,
        ),
        Step::Tool {
            name,
            arguments_bytes,
            outcome,
            result_bytes,
            ms,
        } => (
            html! { "Tool " code { (name) } },
            html! { (outcome) ", " (arguments_bytes) " bytes in, " (result_bytes) " out" },
            ms,
        ),
    };
    html! {
        tr { th scope="row" { (name) } td { (came) } td.number { (duration(self::ms(*took))) } }
    }
}

/// The routing decision of a hybrid, as indented JSON.
fn decision(kept: Option<&str>) -> Markup {
    let Some(kept) = kept else { return html! {} };
    let read = serde_json::from_str::<Value>(kept);
    let shown = read
        .ok()
        .and_then(|value| serde_json::to_string_pretty(&value).ok());
    html! {
        section {
            h2 { "Routing" }
            pre.json tabindex="0" { (shown.as_deref().unwrap_or(kept)) }
        }
    }
}

fn ms(ms: u64) -> i64 {
    i64::try_from(ms).unwrap_or(i64::MAX)
}
