//! The details of one request: time, key, model, cost and outcome.

use maud::{Markup, html};

use super::{key_label, outcome};
use crate::{
    base::{
        money::{NanoUsd, TokenPrice},
        timestamp,
    },
    catalog::{Line, TokenKind},
    gateway::Gateway,
    ledger::{Breakdown, Call, Charged, Key, Replay, ReplayKind, Step},
    portal::{
        error::PortalError,
        formatting,
        layout::{self, Page, Place},
        models::rate_per_million,
        session::SignedIn,
        table::scrolled,
    },
    wire::agent::Agent,
};

/// The page of a call that the person sees.
pub(super) async fn page(
    gateway: &Gateway,
    me: &SignedIn,
    call: &Call,
    keys: &[Key],
) -> Result<Page, PortalError> {
    let replays = gateway.ledger.replays_of(call.id).await?;
    let content = html! {
        nav.back aria-label="Back" { a href="/portal/requests" { "All requests" } }
        h1 { "Request " code.whole { (call.id) } }
        p { (outcome::badge(call.outcome)) " " (outcome::explanation(call)) }
        (facts(call, keys))
        (cost(call))
        (steps(&call.steps))
        (retries(&replays))
    };
    Ok(layout::page(me, Place::Requests, "Request", &content))
}

fn facts(call: &Call, keys: &[Key]) -> Markup {
    let first_byte = call.first_byte_ms.map(|at| at - call.admitted_ms);
    html! {
        dl {
            dt { "Started" }
            dd {
                (formatting::moment(call.admitted_ms.div_euclid(1_000))) " "
                span.muted { (timestamp::shown_ms(call.admitted_ms)) }
            }
            dt { "Key" }
            dd { (key_label(keys, &call.payer.key_id)) }
            dt { "Requested model" }
            dd { code { (call.model) } }
            (chosen(call))
            dt { "Response" }
            dd { @if call.stream { "Streamed" } @else { "Not streamed" } }
            dt { "Time to first byte" }
            dd {
                @match first_byte {
                    Some(ms) => { (formatting::duration(ms)) },
                    None => { "No response" },
                }
            }
            dt { "Duration" }
            dd { (formatting::duration(call.ended_ms - call.admitted_ms)) }
            @if let Some(sender) = call.agent.as_deref() { (agent(sender)) }
            dt { "Request ID" }
            dd {
                code.whole { (call.request_id) } " "
                span.muted { "Include it when you ask for help." }
            }
        }
    }
}

/// The model that answered the call, in full or in part; if it did not, the one that was chosen, unless it is the requested
/// one. The console's details page shows it too.
pub(crate) fn chosen(call: &Call) -> Markup {
    let answered = call.charged.is_some() || call.first_byte_ms.is_some();
    html! {
        @if answered {
            dt { "Answered by" }
            dd { code { (call.routed_model) } }
        } @else if call.routed_model != call.model {
            dt { "Chosen model" }
            dd { code { (call.routed_model) } " " span.muted { "No response" } }
        }
    }
}

/// The requests that got the response of this one. The console's details page shows them too.
pub(crate) fn retries(replays: &[Replay]) -> Markup {
    html! {
        @if !replays.is_empty() {
            section {
                h2 { "Retries that got this response" }
                p { "They cost nothing." }
                ul {
                    @for replay in replays {
                        li {
                            code.whole { (replay.request_id) } " "
                            @match replay.kind {
                                ReplayKind::Attached => "while it was written",
                                ReplayKind::Replayed => "afterwards",
                            }
                            " " span.muted { (timestamp::shown_ms(replay.at_ms)) }
                        }
                    }
                }
            }
        }
    }
}

/// What the coding agent that sent a request said about itself. The console's details page shows it too.
pub(crate) fn agent(agent: &Agent) -> Markup {
    let said = [
        ("Coding agent", &agent.client),
        ("Session", &agent.session),
        ("Agent of the session", &agent.id),
        ("Started by", &agent.parent_id),
        ("Role", &agent.role),
    ];
    html! {
        @for (name, value) in said {
            @if let Some(value) = value {
                dt { (name) }
                dd { code.whole { (value) } }
            }
        }
    }
}

/// The cost of a call and its calculation. The console's details page shows it too.
pub(crate) fn cost(call: &Call) -> Markup {
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

/// The bill: each kind of token at its rate. Only the sum is rounded, so the parts are shown exactly.
fn bill(call: &Call, charged: Charged) -> Markup {
    let usage = charged.usage;
    let Breakdown { lines, answers } = call.breakdown(usage);
    let fee = call.prices.request;
    html! {
        (scrolled("Cost breakdown", &html! {
            table {
                caption { "Cost breakdown" }
                thead {
                    tr {
                        th scope="col" { "Tokens" }
                        th.number scope="col" { "Count" }
                        th.number scope="col" { "Rate per million" }
                        th.number scope="col" { "Amount" }
                    }
                }
                tbody {
                    @for Line { kind, tokens, rate } in lines {
                        tr {
                            th scope="row" {
                                (kind.name())
                                @if kind == TokenKind::Output && usage.reasoning > 0 {
                                    " " span.muted {
                                        "(" (formatting::count(usage.reasoning.into())) " of them reasoning)"
                                    }
                                }
                            }
                            td.number { (formatting::count(tokens)) }
                            td.number { (rate_per_million(rate)) }
                            td.number { (exactly(tokens, rate)) }
                        }
                    }
                    @if fee > NanoUsd::default() {
                        tr {
                            th scope="row" { "Fee for each answer of the model" }
                            td.number { (formatting::count(answers)) }
                            td.number { (formatting::money(fee)) " each" }
                            td.number { (formatting::money(times(fee, answers))) }
                        }
                    }
                }
                tfoot {
                    tr {
                        th scope="row" colspan="3" { "Charged" }
                        td.number { (formatting::money(charged.cost)) }
                    }
                }
            }
        }))
        p.muted { "The sum is rounded up to a billionth of a dollar, once." }
    }
}

fn balance(charged: Charged) -> Markup {
    html! {
        dl {
            dt { "Balance before" }
            dd { (formatting::money(charged.balance_before)) }
            dt { "Balance after" }
            dd { (formatting::money(charged.balance_after)) }
        }
    }
}

/// The steps of a call with built-in tools; empty for others.
fn steps(steps: &[Step]) -> Markup {
    if steps.is_empty() {
        return html! {};
    }
    html! {
        section {
            h2 { "Steps" }
            p.muted { "Arguments and results of tools are not stored." }
            (scrolled("Steps", &html! {
                table {
                    caption { "Steps, in order" }
                    thead {
                        tr {
                            th scope="col" { "Step" }
                            th scope="col" { "Result" }
                            th.number scope="col" { "Duration" }
                        }
                    }
                    tbody {
                        @for step in steps { (step_row(step)) }
                    }
                }
            }))
        }
    }
}

fn step_row(step: &Step) -> Markup {
    let took = |ms: &u64| formatting::duration(i64::try_from(*ms).unwrap_or(i64::MAX));
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
                    (formatting::count((*prompt_tokens).into())) " tokens in, "
                    (formatting::count((*completion_tokens).into())) " out"
                }
                td.number { (took(ms)) }
            }
        },
        Step::Tool {
            name, outcome, ms, ..
        } => html! {
            tr {
                th scope="row" { "Tool " code { (name) } }
                td { (outcome::tool_result(outcome)) }
                td.number { (took(ms)) }
            }
        },
    }
}

fn times(fee: NanoUsd, requests: u64) -> NanoUsd {
    let requests = i64::try_from(requests).unwrap_or(i64::MAX);
    NanoUsd::new(fee.nanos().saturating_mul(requests))
}

/// The price of some tokens in dollars, exact to the pico-dollar.
fn exactly(tokens: u64, rate: TokenPrice) -> String {
    const PER_DOLLAR: u128 = 1_000_000_000_000;
    let picos = u128::from(tokens) * u128::from(rate.picos().unsigned_abs());
    let whole = u64::try_from(picos / PER_DOLLAR).unwrap_or(u64::MAX);
    let decimals = format!("{:012}", picos % PER_DOLLAR);
    let kept = decimals.trim_end_matches('0').len().max(2);
    format!("${}.{}", formatting::count(whole), &decimals[..kept])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_exact_to_the_pico_dollar() {
        let exact = |tokens, rate| exactly(tokens, TokenPrice::parse_per_million(rate).unwrap());
        assert_eq!(exact(600, "2.00"), "$0.0012");
        assert_eq!(exact(1, "0.000001"), "$0.000000000001");
        assert_eq!(exact(0, "9"), "$0.00");
        assert_eq!(exact(1_000_000_000, "36"), "$36,000.00");
        assert_eq!(exact(u32::MAX.into(), "1000000"), "$4,294,967,295.00");
    }
}
