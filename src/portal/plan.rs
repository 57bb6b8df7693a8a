//! The account's plan: the models it includes and its rate limits.

use std::sync::Arc;

use axum::extract::State;
use maud::{Markup, html};

use super::{
    error::PortalError,
    formatting::count,
    layout::{self, Page, Place},
    session::SignedIn,
    table::scrolled,
};
use crate::{
    base::rate::Ceilings,
    catalog::{Model, Plan, Tier, Track},
    gateway::Gateway,
};

pub(crate) async fn show(
    State(gateway): State<Arc<Gateway>>,
    me: SignedIn,
) -> Result<Page, PortalError> {
    gateway.ledger.refresh().await?;
    let (plan, models) = (me.account.plan, gateway.visible_models(Plan::ALL));
    let content = html! {
        h1 { "Plan and limits" }
        div.grid {
            section.card {
                h2 { "Your plan" }
                p.figure { (tier_name(plan.tier())) }
                p.muted { (track_name(plan.track())) " track" }
            }
            (upgrade(plan))
        }
        (tiers(plan, &models))
        (limits(&gateway, &me, &models))
    };
    Ok(layout::page(&me, Place::Plan, "Plan and limits", &content))
}

pub(crate) fn tier_name(tier: Tier) -> &'static str {
    match tier {
        Tier::Free => "Free",
        Tier::Basic => "Basic",
        Tier::Standard => "Standard",
        Tier::Pro => "Pro",
        Tier::Max => "Max",
        Tier::Flex => "Flex",
    }
}

fn track_name(track: Track) -> &'static str {
    match track {
        Track::Personal => "Personal",
        Track::Business => "Business",
    }
}

/// How to change the plan.
fn upgrade(plan: Plan) -> Markup {
    html! {
        section.card {
            h2 { "Change plan" }
            @if plan.tier() == Tier::Flex {
                p { "Your plan includes every model." }
            } @else {
                p { "Ask your provider for another plan. It applies to new requests." }
            }
        }
    }
}

/// Each tier, with the models that it adds to the tiers before it.
fn tiers(plan: Plan, models: &[Arc<Model>]) -> Markup {
    let adds = |tier| models.iter().filter(move |model| model.min_tier == tier);
    html! {
        section {
            h2 { "Plans" }
            (scrolled("Plans", &html! {
                table {
                    caption { "Each plan also includes the models of the plans above it" }
                    thead {
                        tr {
                            th scope="col" { "Plan" }
                            th scope="col" { "Track" }
                            th scope="col" { "Additional models" }
                        }
                    }
                    tbody {
                        @for tier in Tier::ALL {
                            tr {
                                th scope="row" {
                                    (tier_name(tier))
                                    @if tier == plan.tier() { " " span.badge.good { "your plan" } }
                                }
                                td { (track_name(track_of(tier))) }
                                td.prose {
                                    @if adds(tier).next().is_none() {
                                        span.muted { "None" }
                                    } @else {
                                        ul.plain {
                                            @for model in adds(tier) { li { code { (model.id) } } }
                                        }
                                    }
                                }
                            }
                        }
                    }
                }
            }))
            p { a href="/portal/models" { "Models and prices" } }
        }
    }
}

fn track_of(tier: Tier) -> Track {
    let business = Plan::new(Track::Business, tier);
    business.map_or(Track::Personal, Plan::track)
}

/// The account's ceilings for the rate-limit window: for all models, and for models with rules of their own.
fn limits(gateway: &Gateway, me: &SignedIn, models: &[Arc<Model>]) -> Markup {
    let ceilings = |model: &str| {
        let ledger = &gateway.ledger;
        ledger.ceilings(&me.account.id, model, gateway.ceilings)
    };
    let all = ceilings("");
    let included = models
        .iter()
        .filter(|model| me.account.plan.includes(model.min_tier));
    let others: Vec<_> = included
        .map(|model| (model, ceilings(&model.id)))
        .filter(|(_, own)| *own != all)
        .collect();
    let rest = if others.is_empty() {
        "Every model"
    } else {
        "Every other model"
    };
    html! {
        section {
            h2 { "Limits per minute" }
            p.muted { "Limits apply to each model separately, across all of your keys. Tokens are those of the input plus the maximum output of each request." }
            (scrolled("Limits per minute", &html! {
                table {
                    caption { "Limits per minute" }
                    thead {
                        tr {
                            th scope="col" { "Model" }
                            th.number scope="col" { "Requests" }
                            th.number scope="col" { "Tokens" }
                        }
                    }
                    tbody {
                        @for (model, own) in &others {
                            tr { th scope="row" { code { (model.id) } } (cells(*own)) }
                        }
                        tr { th scope="row" { (rest) } (cells(all)) }
                    }
                }
            }))
        }
    }
}

fn cells(ceilings: Ceilings) -> Markup {
    html! {
        td.number { (count(ceilings.requests.into())) }
        td.number { (count(ceilings.tokens.into())) }
    }
}
