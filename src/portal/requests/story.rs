//! The story of one request: when, by which key and model, what it came to, how it ended.

use std::sync::Arc;

use axum::extract::{Path, State, rejection::PathRejection};
use maud::{Markup, html};

use super::{key_words, outcome};
use crate::{
    base::{
        money::{NanoUsd, TokenPrice},
        timestamp,
    },
    catalog::{Line, TokenKind},
    gateway::Gateway,
    ledger::{Breakdown, Call, CallId, Charged, Key, Step},
    portal::{
        error::PortalError,
        layout::{self, Page, Place},
        models::rate_words,
        session::SignedIn,
        words,
    },
};

pub async fn one(
    State(gateway): State<Arc<Gateway>>,
    me: SignedIn,
    id: Result<Path<String>, PathRejection>,
) -> Result<Page, PortalError> {
    let id = id.ok().and_then(|Path(id)| CallId::parse(&id));
    let id = id.ok_or(PortalError::NotFound)?;
    let call = gateway.ledger.call(id).await?;
    // Another account's request is none, and takes no other way than one that never was.
    let call = call.filter(|call| call.account_id == me.account.id);
    let call = call.ok_or(PortalError::NotFound)?;
    let keys = gateway.ledger.keys(&me.account.id).await?;
    let content = html! {
        nav.back aria-label="Back" { a href="/portal/requests" { "All requests" } }
        h1 { "Request " code.whole { (call.id) } }
        p { (outcome::badge(call.outcome)) " " (outcome::sentence(call.outcome)) }
        (facts(&call, &keys))
        (cost(&call))
        (steps(&call.steps))
    };
    Ok(layout::page(&me, Place::Requests, "Request", &content))
}

fn facts(call: &Call, keys: &[Key]) -> Markup {
    let first_byte = call.first_byte_ms.map(|at| at - call.admitted_ms);
    html! {
        dl {
            dt { "Begun" }
            dd {
                (words::moment(call.admitted_ms.div_euclid(1_000))) " "
                span.muted { (timestamp::shown_ms(call.admitted_ms)) }
            }
            dt { "Key" }
            dd { (key_words(keys, &call.key_id)) }
            dt { "Model asked for" }
            dd { code { (call.model) } }
            dt { "Answered by" }
            dd {
                @if call.routed_model == call.model { "the same model" }
                @else { code { (call.routed_model) } }
            }
            dt { "Form" }
            dd { @if call.stream { "A stream" } @else { "One answer" } }
            dt { "Time to first byte" }
            dd {
                @match first_byte {
                    Some(ms) => { (words::duration(ms)) },
                    None => { "There was none" },
                }
            }
            dt { "Took" }
            dd { (words::duration(call.ended_ms - call.admitted_ms)) }
            dt { "Request ID" }
            dd {
                code.whole { (call.request_id) } " "
                span.muted { "Quote it when you ask for help." }
            }
        }
    }
}

/// What it came to, and how; also for the operator's own story.
pub fn cost(call: &Call) -> Markup {
    html! {
        section {
            h2 { "Cost" }
            @match call.charged {
                Some(charged) => { (bill(call, charged)) (balance(charged)) },
                None => { p { "Nothing was charged." } },
            }
        }
    }
}

/// Each kind of token at its rate. Only the sum is rounded, so that the parts are told exactly.
fn bill(call: &Call, charged: Charged) -> Markup {
    let usage = charged.usage;
    let Breakdown { lines, answers } = call.breakdown(usage);
    let fee = call.prices.request;
    html! {
        div.scroll tabindex="0" role="region" aria-label="What it cost" {
            table {
                caption { "What it cost" }
                thead {
                    tr {
                        th scope="col" { "Tokens" }
                        th.number scope="col" { "Count" }
                        th.number scope="col" { "Rate per million" }
                        th.number scope="col" { "Comes to" }
                    }
                }
                tbody {
                    @for Line { kind, tokens, rate } in lines {
                        tr {
                            th scope="row" {
                                (kind.name())
                                @if kind == TokenKind::Output && usage.reasoning > 0 {
                                    " " span.muted {
                                        "(" (words::count(usage.reasoning.into())) " of them reasoning)"
                                    }
                                }
                            }
                            td.number { (words::count(tokens)) }
                            td.number { (rate_words(rate)) }
                            td.number { (exactly(tokens, rate)) }
                        }
                    }
                    @if fee > NanoUsd::default() {
                        tr {
                            th scope="row" { "Fee for each answer of the model" }
                            td.number { (words::count(answers)) }
                            td.number { (words::money(fee)) " each" }
                            td.number { (words::money(times(fee, answers))) }
                        }
                    }
                }
                tfoot {
                    tr {
                        th scope="row" colspan="3" { "Charged" }
                        td.number { (words::money(charged.cost)) }
                    }
                }
            }
        }
        p.muted { "The sum is rounded up to a billionth of a dollar, once." }
    }
}

fn balance(charged: Charged) -> Markup {
    html! {
        dl {
            dt { "Balance before" }
            dd { (words::money(charged.balance_before)) }
            dt { "Balance after" }
            dd { (words::money(charged.balance_after)) }
        }
    }
}

/// What was done, where the gateway ran tools.
fn steps(steps: &[Step]) -> Markup {
    if steps.is_empty() {
        return html! {};
    }
    html! {
        section {
            h2 { "Steps" }
            p.muted { "What tools were asked and what they said is not kept." }
            div.scroll tabindex="0" role="region" aria-label="Steps" {
                table {
                    caption { "Steps, in order" }
                    thead {
                        tr {
                            th scope="col" { "Step" }
                            th scope="col" { "What came of it" }
                            th.number scope="col" { "Took" }
                        }
                    }
                    tbody {
                        @for step in steps { (step_row(step)) }
                    }
                }
            }
        }
    }
}

fn step_row(step: &Step) -> Markup {
    let took = |ms: &u64| words::duration(i64::try_from(*ms).unwrap_or(i64::MAX));
    match step {
        Step::Provider {
            prompt_tokens,
            completion_tokens,
            ms,
            ..
        } => html! {
            tr {
                th scope="row" { "The model answered" }
                td {
                    (words::count((*prompt_tokens).into())) " tokens in, "
                    (words::count((*completion_tokens).into())) " out"
                }
                td.number { (took(ms)) }
            }
        },
        Step::Tool {
            name, outcome, ms, ..
        } => html! {
            tr {
                th scope="row" { "Tool " code { (name) } }
                td { (outcome::of_tool(outcome)) }
                td.number { (took(ms)) }
            }
        },
    }
}

fn times(fee: NanoUsd, requests: u64) -> NanoUsd {
    let requests = i64::try_from(requests).unwrap_or(i64::MAX);
    NanoUsd::new(fee.nanos().saturating_mul(requests))
}

/// In dollars, to the last trillionth.
fn exactly(tokens: u64, rate: TokenPrice) -> String {
    const PER_DOLLAR: u128 = 1_000_000_000_000;
    let picos = u128::from(tokens) * u128::from(rate.picos().unsigned_abs());
    let whole = u64::try_from(picos / PER_DOLLAR).unwrap_or(u64::MAX);
    let decimals = format!("{:012}", picos % PER_DOLLAR);
    let kept = decimals.trim_end_matches('0').len().max(2);
    format!("${}.{}", words::count(whole), &decimals[..kept])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_told_to_the_last_trillionth() {
        let told = |tokens, rate| exactly(tokens, TokenPrice::parse_per_million(rate).unwrap());
        assert_eq!(told(600, "2.00"), "$0.0012");
        assert_eq!(told(1, "0.000001"), "$0.000000000001");
        assert_eq!(told(0, "9"), "$0.00");
        assert_eq!(told(1_000_000_000, "36"), "$36,000.00");
        assert_eq!(told(u32::MAX.into(), "1000000"), "$4,294,967,295.00");
    }
}
