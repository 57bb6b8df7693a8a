//! Auto top-up: the form, and the consent to charge a saved card.

use std::sync::Arc;

use axum::{
    extract::State,
    http::StatusCode,
    response::{IntoResponse as _, Response},
};
use maud::{Markup, html};
use serde::Deserialize;

use super::checkout;
use crate::{
    backoffice::{Bought, NewTopUp, TopUp, TopUpState, payments::Payments},
    base::{money::NanoUsd, month::Month, timestamp},
    gateway::{
        Gateway,
        actions::{BadTopUp, OperatorActions},
    },
    portal::{
        confirmation::Confirmation,
        days,
        error::PortalError,
        form::{EmptyForm, SignedForm},
        formatting::{moment, money},
        layout::{self, Page, Place},
        notice,
        question::Question,
        session::SignedIn,
        sign_in::problem_notice,
    },
};

const PATH: &str = "/portal/billing/top-up";
const OFF: &str = "/portal/billing/top-up/off";

/// An account's settings, and what was bought this month.
pub(crate) struct Shown {
    top_up: Option<TopUp>,
    bought: Bought,
    month: Month,
}

impl Shown {
    /// `None` without a payment provider.
    pub(crate) async fn of(gateway: &Gateway, me: &SignedIn) -> Result<Option<Self>, PortalError> {
        if gateway.payments.is_none() {
            return Ok(None);
        }
        let account = me.account.id.as_str();
        let month = Month::of_ms(timestamp::now_ms());
        let since = month.first_ms() / 1_000;
        Ok(Some(Self {
            top_up: gateway.backoffice.top_up(account).await?,
            bought: gateway.backoffice.topped_up_since(account, since).await?,
            month,
        }))
    }

    fn state(&self) -> TopUpState {
        let state = self.top_up.as_ref().map(|top_up| top_up.state);
        state.unwrap_or(TopUpState::Off)
    }

    fn is_at_maximum(&self) -> bool {
        let top_up = self.top_up.as_ref();
        top_up.is_some_and(|top_up| top_up.is_at_maximum(self.bought))
    }

    /// The warning that no credit is bought: it is paused, or the maximum of the month is reached.
    pub(crate) fn notice(&self) -> Markup {
        let problem = self.top_up.as_ref().and_then(|it| it.problem.as_deref());
        html! {
            @if self.state() == TopUpState::Paused {
                (notice::warning(&html! {
                    strong { "Auto top-up is paused: " (problem.unwrap_or("the last payment failed")) "." }
                    " No more credit is bought. " a href=(PATH) { "Turn it on again" }
                }))
            } @else if self.is_at_maximum() {
                (notice::warning(&html! {
                    strong { "Monthly maximum reached." }
                    " No more credit is bought until " (days::short(&self.month.next().first_day())) " (UTC). "
                    a href=(PATH) { "Change the maximum" }
                }))
            }
        }
    }

    pub(crate) fn card(&self) -> Markup {
        html! {
            section.card #top-up {
                h2 { "Auto top-up" }
                @match (&self.top_up, self.state()) {
                    (Some(top_up), TopUpState::On) => {
                        p { span.badge.good { "On" } " " (rule(top_up.threshold, top_up.amount, top_up.monthly_max)) }
                        p.muted { (bought(self.bought, top_up.monthly_max)) }
                    },
                    (Some(top_up), TopUpState::Waiting) => {
                        p { span.badge { "Waiting for a card" } " " (rule(top_up.threshold, top_up.amount, top_up.monthly_max)) }
                        p.muted { "It starts when you have paid once and your card is saved." }
                    },
                    (_, TopUpState::Paused) => { p { span.badge.bad { "Paused" } " No credit is bought until you turn it on again." } },
                    _ => { p { "Off. Buy credit automatically when your balance runs low." } },
                }
                div.inline {
                    a.button href=(PATH) { @if self.state() == TopUpState::On { "Change" } @else { "Set up auto top-up" } }
                    @if self.state() != TopUpState::Off {
                        a.button href=(OFF) { "Turn off" span.unseen { " auto top-up" } }
                    }
                }
            }
        }
    }
}

/// What was bought this month, and what counts besides.
fn bought(bought: Bought, monthly_max: NanoUsd) -> Markup {
    let none = NanoUsd::default();
    html! {
        (money(bought.paid)) " of " (money(monthly_max)) " bought this month (UTC)."
        @if bought.pending > none { " " (money(bought.pending)) " pending." }
        @if bought.unknown > none { " " (money(bought.unknown)) " with unknown outcome, which counts as bought." }
    }
}

/// The rule in one sentence, which is part of the consent.
fn rule(threshold: NanoUsd, amount: NanoUsd, monthly_max: NanoUsd) -> String {
    format!(
        "When the balance falls below {}, buy {}, at most {} a month.",
        money(threshold),
        money(amount),
        money(monthly_max)
    )
}

/// The words that a person agrees to; they are stored with the settings and in the log of actions.
fn consent(payments: &Payments, new: &NewTopUp) -> String {
    let rule = rule(new.threshold, new.amount, new.monthly_max);
    let name = payments.provider.name();
    format!(
        "I allow my card to be saved by {name} and charged automatically. {rule} I can turn this off at any time."
    )
}

#[derive(Default, Deserialize)]
pub(crate) struct TopUpForm {
    #[serde(default)]
    threshold: String,
    #[serde(default)]
    amount: String,
    #[serde(default)]
    monthly_max: String,
    #[serde(default)]
    consent: String,
}

pub(crate) async fn show(
    State(gateway): State<Arc<Gateway>>,
    me: SignedIn,
) -> Result<Page, PortalError> {
    let stored = gateway.backoffice.top_up(&me.account.id).await?;
    let form = stored.map_or_else(
        || TopUpForm {
            threshold: "5.00".into(),
            ..TopUpForm::default()
        },
        |stored| TopUpForm {
            threshold: plain(stored.threshold),
            amount: plain(stored.amount),
            monthly_max: plain(stored.monthly_max),
            consent: String::new(),
        },
    );
    page(&gateway, &me, &form, None).await
}

async fn page(
    gateway: &Gateway,
    me: &SignedIn,
    form: &TopUpForm,
    problem: Option<&str>,
) -> Result<Page, PortalError> {
    let payments = gateway.payments.as_ref().ok_or(PortalError::NotFound)?;
    let stored = gateway.backoffice.top_up(&me.account.id).await?;
    let usable = stored
        .as_ref()
        .filter(|stored| stored.card.is_some() && stored.provider == payments.provider.key());
    let card_of = usable.map(|stored| stored.consent_by.as_str());
    let has_card = card_of == Some(me.person.email.as_str());
    let is_on = stored
        .as_ref()
        .is_some_and(|stored| stored.state == TopUpState::On);
    let (least, most) = (money(payments.offer.min), money(payments.offer.max));
    let content = html! {
        p.back { a href="/portal/billing" { "Billing" } }
        h1 { "Auto top-up" }
        p { "Buys credit with your saved card when your balance runs low, so that requests are not refused." }
        (problem_notice(problem))
        form.stack method="post" action=(PATH) {
            (me.token_field())
            label { "When the balance falls below (US dollars)"
                input type="text" name="threshold" value=(form.threshold) required inputmode="decimal" autocomplete="off";
            }
            label { "Buy (US dollars)"
                input type="text" name="amount" value=(form.amount) required inputmode="decimal" autocomplete="off"
                    placeholder="25.00" aria-describedby="amount-hint";
                span.muted #amount-hint { (least) " to " (most) ", in whole cents." }
            }
            label { "At most in a calendar month (US dollars)"
                input type="text" name="monthly_max" value=(form.monthly_max) required inputmode="decimal" autocomplete="off"
                    placeholder="100.00" aria-describedby="max-hint";
                span.muted #max-hint { "Payments that you make yourself do not count. Months begin in UTC." }
            }
            label.check {
                input type="checkbox" name="consent" value="yes" required;
                " I allow my card to be saved by " (payments.provider.name())
                " and charged automatically by these rules. I can turn this off at any time."
            }
            @if has_card || payments.is_test() {
                button.primary type="submit" { @if is_on { "Save" } @else { "Turn on" } }
            } @else {
                p.muted {
                    "To save your card, you buy this amount once now, on " (payments.provider.name()) "’s page."
                    @if let Some(other) = card_of { " The card of " (other) " is not charged any more." }
                }
                button.primary type="submit" { "Continue to payment" }
            }
        }
        @if let Some(stored) = stored.filter(|stored| stored.state == TopUpState::On) {
            p.muted { "Turned on by " (stored.consent_by) ", " (moment(stored.consent_at)) ": “" (stored.consent) "”" }
        }
    };
    Ok(layout::page(me, Place::Billing, "Auto top-up", &content))
}

pub(crate) async fn set(
    State(gateway): State<Arc<Gateway>>,
    SignedForm { me, form }: SignedForm<TopUpForm>,
) -> Result<Response, PortalError> {
    let payments = gateway.payments.as_ref().ok_or(PortalError::NotFound)?;
    if me.account.closed {
        return Err(PortalError::Invalid("This account is closed.".into()));
    }
    let mut new = NewTopUp {
        account_id: me.account.id.clone(),
        threshold: dollars(&form.threshold),
        amount: dollars(&form.amount),
        monthly_max: dollars(&form.monthly_max),
        consent: String::new(),
        consent_by: me.person.email.clone(),
        provider: payments.provider.key(),
        now: timestamp::now(),
    };
    let problem = match BadTopUp::check(&new, &payments.offer) {
        Err(problem) => Some(problem.to_string()),
        Ok(()) if form.consent != "yes" => {
            Some("Allow your card to be charged, or auto top-up cannot work.".to_owned())
        }
        Ok(()) => None,
    };
    if let Some(problem) = problem {
        let page = page(&gateway, &me, &form, Some(&problem)).await?;
        return Ok((StatusCode::BAD_REQUEST, page).into_response());
    }
    new.consent = consent(payments, &new);
    let (amount, account) = (new.amount, new.account_id.clone());
    let before = gateway.backoffice.top_up(&account).await?;
    let was_on = before.is_some_and(|before| before.state == TopUpState::On);
    let actions = OperatorActions::by(&gateway, &me.person.email);
    let set = actions.set_top_up(new).await;
    let mut set = set.map_err(|error| PortalError::Unavailable(error.to_string()))?;
    if set.state == TopUpState::Waiting && payments.is_test() {
        // The pretended card needs no payment to be saved.
        let card = ("cus_test", "pi_test");
        let agreed = (payments.provider.key(), set.consent_id.as_str());
        let saved = gateway.backoffice.save_card(&account, agreed, card);
        if saved.await? {
            set.state = TopUpState::On;
        }
    }
    if set.state == TopUpState::Waiting {
        return checkout::order(&gateway, &me, payments, amount, Some(set.consent_id)).await;
    }
    // Other settings are not brought back by a button: each needs the consent to its own amounts.
    let mut done = Confirmation::new("Auto top-up is on.");
    if !was_on {
        done = done.undone_by(OFF, &[]);
    }
    Ok(me.redirect("/portal/billing", &done))
}

/// Asks before it is turned off: turning it on again needs the consent again.
pub(crate) async fn confirm_off(me: SignedIn) -> Page {
    let question = Question {
        title: "Turn off auto top-up?",
        consequences: "Your card is not charged any more. When your credit is used up, requests are refused until you buy more. To turn it on again, you allow the charges again.",
        path: OFF,
        fields: &[],
        yes: "Turn off auto top-up",
        no: ("Cancel", "/portal/billing"),
    };
    let content = question.shown(&me.token_field());
    layout::page(&me, Place::Billing, "Turn off auto top-up", &content)
}

pub(crate) async fn turn_off(
    State(gateway): State<Arc<Gateway>>,
    SignedForm { me, form: _ }: SignedForm<EmptyForm>,
) -> Result<Response, PortalError> {
    let actions = OperatorActions::by(&gateway, &me.person.email);
    let off = actions.turn_off_top_up(me.account.id.clone());
    off.await
        .map_err(|error| PortalError::Unavailable(error.to_string()))?;
    let done = Confirmation::new("Auto top-up is off. Your card is not charged any more.");
    Ok(me.redirect("/portal/billing", &done))
}

/// An amount that a person typed; zero, which is refused, if it is none.
fn dollars(text: &str) -> NanoUsd {
    let text = text.trim();
    NanoUsd::parse(text.strip_prefix('$').unwrap_or(text)).unwrap_or_default()
}

/// An amount as a person types it: `25.00`.
fn plain(amount: NanoUsd) -> String {
    money(amount).replace(['$', ','], "")
}
