//! The page of all listed models: IDs, prices, and the plan that includes each.

use std::sync::Arc;

use axum::extract::State;
use maud::{Markup, html};

use super::{
    error::PortalError,
    formatting::{count, money},
    layout::{self, Page, Place},
    plan::tier_name,
    session::SignedIn,
    snippets::copy_button,
    table::scrolled,
};
use crate::{
    base::money::{NanoUsd, TokenPrice},
    catalog::{Model, Plan, Prices},
    gateway::Gateway,
};

pub(crate) async fn show(
    State(gateway): State<Arc<Gateway>>,
    me: SignedIn,
) -> Result<Page, PortalError> {
    gateway.ledger.refresh().await?;
    let models = gateway.visible_models(Plan::ALL);
    let content = html! {
        h1 { "Models" }
        p.muted {
            "Prices are US dollars per million tokens. A model that chooses among others is billed at \
             the price of the one that answers, at most the price shown."
        }
        @if models.is_empty() {
            p.empty { "No models available." }
        } @else {
            (scrolled("Models", &html! {
                table {
                    caption { "Models and their prices per million tokens" }
                    thead {
                        tr {
                            th scope="col" { "Model" }
                            th scope="col" { "ID" }
                            th.number scope="col" { "Input" }
                            th.number scope="col" { "Cached input" }
                            th.number scope="col" { "Output" }
                            th.number scope="col" { "Context" }
                            th.number scope="col" { "Max output" }
                            th scope="col" { "Your plan" }
                        }
                    }
                    tbody {
                        @for model in &models { (row(model, me.account.plan)) }
                    }
                }
            }))
        }
    };
    Ok(layout::page(&me, Place::Models, "Models", &content))
}

fn row(model: &Model, plan: Plan) -> Markup {
    let rates = &model.prices.rates;
    html! {
        tr {
            th.prose scope="row" {
                (model.name)
                @if !model.description.is_empty() {
                    div.muted { (model.description) }
                }
                @for line in further_prices(&model.prices) { div.muted { (line) } }
            }
            td { div.copyable.slim { code.whole { (model.id) } (copy_button("Copy", &model.id)) } }
            @for rate in [rates.input, rates.cached_input, rates.output] {
                td.number { (shown_rate(model, rate)) }
            }
            td.number { (count(model.context_length.into())) }
            td.number { (count(model.max_output.into())) }
            td {
                @if plan.includes(model.min_tier) {
                    span.badge.good { "Included" }
                } @else {
                    a href="/portal/plan" { "Needs " (tier_name(model.min_tier)) }
                }
            }
        }
    }
}

/// Prices that the table has no column for: cache writes, fees, and rates above a prompt length.
fn further_prices(prices: &Prices) -> Vec<String> {
    let mut lines = Vec::new();
    let rates = &prices.rates;
    if rates.cache_write != rates.input {
        let write = rate_per_million(rates.cache_write);
        lines.push(format!("{write} for input written to the cache"));
    }
    if rates.cache_write_1h != rates.input {
        let write = rate_per_million(rates.cache_write_1h);
        lines.push(format!("{write} for input kept in the cache for an hour"));
    }
    if prices.request > NanoUsd::default() {
        lines.push(format!("{} for each answer", money(prices.request)));
    }
    for above in &prices.above {
        let (tokens, rates) = (count(above.prompt_tokens.into()), &above.rates);
        let [input, cached, output] =
            [rates.input, rates.cached_input, rates.output].map(rate_per_million);
        lines.push(format!(
            "Prompts above {tokens} tokens: input {input}, cached {cached}, output {output}"
        ));
    }
    lines
}

/// A price of a model as it is shown: for a hybrid it is the most that a call can cost.
pub(crate) fn shown_rate(model: &Model, rate: TokenPrice) -> String {
    let up_to = if model.is_hybrid() { "up to " } else { "" };
    format!("{up_to}{}", rate_per_million(rate))
}

/// A token price in US dollars per million tokens.
pub(crate) fn rate_per_million(rate: TokenPrice) -> String {
    // Pico-dollars a token equal micro-dollars a million tokens.
    money(NanoUsd::new(rate.picos().saturating_mul(1_000)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_price_reads_as_it_is_written_in_the_catalog() {
        for (written, shown) in [
            ("2.00", "$2.00"),
            ("0.000001", "$0.000001"),
            ("36", "$36.00"),
        ] {
            let rate = TokenPrice::parse_per_million(written).unwrap();
            assert_eq!(rate_per_million(rate), shown);
        }
    }
}
