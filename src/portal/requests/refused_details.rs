//! The details of a refused request: what was wrong, what to do, and how often it happens.

use maud::{Markup, html};

use super::{filter::Filter, key_label, refused, remedy};
use crate::{
    backoffice::{RefusedCount, RefusedRequest},
    base::timestamp,
    gateway::Gateway,
    ledger::Key,
    portal::{
        error::PortalError,
        formatting::{count, duration, moment},
        layout::{self, Page, Place},
        rights::Right,
        session::SignedIn,
    },
};

/// The page of a refused request that the person sees.
pub(super) async fn page(
    gateway: &Gateway,
    me: &SignedIn,
    one: &RefusedRequest,
    keys: &[Key],
) -> Result<Page, PortalError> {
    let often = HowOften::of(gateway, one).await?;
    let same = Filter {
        key: Some(&one.key_id),
        status: Some(one.status),
        code: Some(&one.code),
        ..Filter::default()
    };
    let content = html! {
        nav.back aria-label="Back" { a href=(refused::PATH) { "Refused requests" } }
        h1 { "Refused request " code.whole { (one.request_id) } }
        (verdict(one))
        (what_to_do(me, one))
        section {
            h2 { "Details" }
            dl {
                dt { "Key" } dd { (key_label(keys, &one.key_id)) }
                (facts(one))
            }
        }
        (often.shown(&same.path(refused::PATH, None)))
    };
    Ok(layout::page(
        me,
        Place::Requests,
        "Refused request",
        &content,
    ))
}

/// What was wrong. The console shows it too.
pub(crate) fn verdict(one: &RefusedRequest) -> Markup {
    html! {
        p { (refused::badge(one)) " Nothing was charged." }
        p.problem { (one.message) }
    }
}

/// What its sender can do. The console shows it too.
pub(crate) fn advice(one: &RefusedRequest) -> Markup {
    html! {
        h2 { "What to do" }
        p { (remedy::of(&one.code, one.status).advice) }
    }
}

fn what_to_do(me: &SignedIn, one: &RefusedRequest) -> Markup {
    let remedy = remedy::of(&one.code, one.status);
    html! {
        section {
            (advice(one))
            @if let Some(page) = remedy.page {
                @if me.may(page.right()) {
                    @let (path, name) = page.link(one);
                    p { a.button href=(path) { (name) } }
                } @else {
                    p.muted { (ask(page.right())) }
                }
            }
        }
    }
}

/// Whom to ask for what a person may not do.
fn ask(right: Right) -> &'static str {
    match right {
        Right::Billing | Right::Budgets => {
            "Ask an owner of the account, or a member with the role billing."
        }
        _ => "Ask an owner of the account.",
    }
}

/// The facts about a refused request but for its key. The console shows them too.
pub(crate) fn facts(one: &RefusedRequest) -> Markup {
    html! {
        dt { "Time" }
        dd {
            (moment(one.at_ms.div_euclid(1_000))) " "
            span.muted { (timestamp::shown_ms(one.at_ms)) }
        }
        dt { "Model" } dd { (refused::model(one)) }
        dt { "Endpoint" } dd { (refused::endpoint(one)) }
        dt { "Status" } dd { (one.status) }
        dt { "Code" } dd { code { (one.code) } }
        @if let Some(param) = &one.param { dt { "Parameter" } dd { code.whole { (param) } } }
        @if let Some(agent) = &one.agent { dt { "Coding agent" } dd { code.whole { (agent) } } }
        dt { "Took" } dd { (duration(one.took_ms)) }
        dt { "Request ID" } dd { code.whole { (one.request_id) } }
    }
}

/// How often the key was refused for the same reason.
pub(crate) struct HowOften {
    hour: i64,
    day: i64,
}

impl HowOften {
    pub(crate) async fn of(gateway: &Gateway, one: &RefusedRequest) -> Result<Self, PortalError> {
        let now = refused::this_minute();
        let since = async |minutes: i64| {
            let account_id = Some(one.account_id.as_str());
            let counts = gateway.backoffice.refused_counts(account_id, now - minutes);
            let same = |count: &&RefusedCount| {
                count.key_id == one.key_id && count.status == one.status && count.code == one.code
            };
            let counts = counts.await?;
            let requests = counts.iter().filter(same).map(|count| count.requests);
            Ok::<i64, PortalError>(requests.sum())
        };
        Ok(Self {
            hour: since(60).await?,
            day: since(24 * 60).await?,
        })
    }

    /// `list` is the list of these requests.
    pub(crate) fn shown(&self, list: &str) -> Markup {
        let times = |number: i64| match number {
            1 => "1 time".to_owned(),
            number => format!("{} times", count(number.unsigned_abs())),
        };
        html! {
            section {
                h2 { "How often" }
                p {
                    "Requests with this key were refused for this reason "
                    (times(self.hour)) " in the last hour and " (times(self.day)) " in the last 24 hours. "
                    a href=(list) { "Show them" }
                }
            }
        }
    }
}
