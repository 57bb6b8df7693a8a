//! Budgets of the account, its projects, members and keys: owners and billing people see, set and remove them.
//!
//! Each change is recorded as an action of the person.

use std::sync::Arc;

use axum::{
    Router,
    extract::{Path, State},
    response::{IntoResponse as _, Response},
    routing::get,
};
use maud::{Markup, html};
use serde::Deserialize;

mod bar;
mod places;

pub(crate) use self::bar::{bar, bars};
use self::places::Places;
use super::{
    confirmation::Confirmation,
    error::PortalError,
    form::{EmptyForm, SignedForm},
    formatting::{moment, money},
    layout::{self, Page, Place},
    question::Question,
    session::SignedIn,
    sign_in::problem_notice,
    table::scrolled,
};
use crate::{
    gateway::{
        Gateway,
        actions::{self, NewBudget, OperatorActions},
    },
    ledger::{Budget, BudgetState, Period, Schedule},
};

const PATH: &str = "/portal/budgets";

pub(crate) fn router() -> Router<Arc<Gateway>> {
    Router::new().route(PATH, get(show).post(set)).route(
        "/portal/budgets/{id}/remove",
        get(confirm_remove).post(remove),
    )
}

async fn show(State(gateway): State<Arc<Gateway>>, me: SignedIn) -> Result<Page, PortalError> {
    page(&gateway, &me, None, None).await
}

/// The page, with why nothing was set and what was typed.
async fn page(
    gateway: &Gateway,
    me: &SignedIn,
    problem: Option<&str>,
    typed: Option<BudgetForm>,
) -> Result<Page, PortalError> {
    let budgets = gateway.ledger.budgets(&me.account.id).await?;
    let places = Places::read(gateway, &me.account.id).await?;
    let typed = typed.unwrap_or_else(|| BudgetForm::new(timezone(&budgets)));
    let content = html! {
        h1 { "Budgets" }
        p.muted {
            "Limits on spending per day, week, month or in total, for the whole account, a project, a member or one key. "
            "A request that would exceed one of its budgets is refused before it costs anything."
        }
        (problem_notice(problem))
        @if budgets.is_empty() {
            p.empty { "No budgets yet. Only the account's credit limits spending." }
        } @else {
            (scrolled("Your budgets", &table(&budgets, &places)))
        }
        h2 { "Set budget" }
        (form(me, &places, &typed))
    };
    Ok(layout::page(me, Place::Budgets, "Budgets", &content))
}

fn table(budgets: &[BudgetState], places: &Places) -> Markup {
    html! {
        table {
            caption { "Budgets and spending in the current period" }
            thead { tr {
                th scope="col" { "For" }
                th scope="col" { "Spent" }
                th.number scope="col" { "Reserved" }
                th.number scope="col" { "Remaining" }
                th scope="col" { "Resets" }
                th scope="col" { span.unseen { "Actions" } }
            } }
            tbody { @for state in budgets { (row(state, places)) } }
        }
    }
}

fn row(state: &BudgetState, places: &Places) -> Markup {
    let budget = &state.budget;
    let name = places.name_of(budget);
    html! {
        tr {
            th scope="row" {
                (name)
                @if !budget.hard { " " span.badge { "warns only" } }
            }
            td { (bar(state)) }
            td.number { (money(state.held)) }
            td.number { (money(state.remaining())) }
            td {
                @match state.period.ends_at {
                    Some(at) => { (moment(at)) " (" (budget.schedule.timezone()) ")" },
                    None => span.muted { "never" },
                }
            }
            td.actions {
                a.quiet.button.bad href={ (PATH) "/" (budget.id) "/remove" } {
                    "Remove" span.unseen { " budget: " (name) }
                }
            }
        }
    }
}

/// The time zone to suggest: that of the budgets there are.
fn timezone(budgets: &[BudgetState]) -> &str {
    let first = budgets.first();
    first.map_or(Schedule::UTC, |state| state.budget.schedule.timezone())
}

const PERIODS: [(Period, &str); 4] = [
    (Period::Day, "Day"),
    (Period::Week, "Week"),
    (Period::Month, "Month"),
    (Period::Total, "Total (never resets)"),
];

fn form(me: &SignedIn, places: &Places, typed: &BudgetForm) -> Markup {
    html! {
        form.stack method="post" action=(PATH) {
            (me.token_field())
            (places.field(&typed.place))
            label { "US dollars"
                input type="text" name="amount" required inputmode="decimal" placeholder="e.g. 20.00" autocomplete="off" value=(typed.amount);
            }
            label { "Period"
                select name="period" {
                    @for (period, name) in PERIODS {
                        option value=(period.as_str()) selected[typed.period == period.as_str()] { (name) }
                    }
                }
            }
            label { "Time zone"
                input type="text" name="timezone" value=(typed.timezone) autocomplete="off";
                span.muted { "For example Europe/Berlin. Days begin at midnight there." }
            }
            label { "First day of the week or month"
                input type="number" name="anchor" min="1" max="28" placeholder="1" value=(typed.anchor);
                span.muted { "A week begins on Monday (1) to Sunday (7), a month on its 1st to 28th day." }
            }
            label.check {
                input type="checkbox" name="soft" value="yes" checked[!typed.soft.is_empty()];
                " Warn only: do not refuse requests"
            }
            p.muted { "Owners and billing members get an email when 50, 80 and 100 % are spent." }
            button.primary type="submit" { "Set budget" }
        }
    }
}

#[derive(Default, Deserialize)]
struct BudgetForm {
    #[serde(default)]
    place: String,
    #[serde(default)]
    amount: String,
    #[serde(default)]
    period: String,
    #[serde(default)]
    timezone: String,
    #[serde(default)]
    anchor: String,
    #[serde(default)]
    soft: String,
}

impl BudgetForm {
    /// The form before anything was typed.
    fn new(timezone: &str) -> Self {
        Self {
            period: Period::Month.as_str().to_owned(),
            timezone: timezone.to_owned(),
            ..Self::default()
        }
    }

    /// The budget to set, or what is wrong.
    fn checked(&self, account_id: &str) -> Result<NewBudget, String> {
        let unknown = || "Choose from the lists.".to_owned();
        let (scope, scope_id) = places::parse(&self.place).ok_or_else(unknown)?;
        let period = Period::parse(&self.period).ok_or_else(unknown)?;
        let amount = self.amount.trim().trim_start_matches('$');
        let amount = actions::amount(amount);
        let amount =
            amount.map_err(|_| "A budget is US dollars above zero, e.g. 20.00.".to_owned())?;
        // The field is there for every period.
        let anchor = match (self.anchor.trim(), period) {
            ("", _) | (_, Period::Day | Period::Total) => None,
            (day, _) => Some(day.parse().unwrap_or(0)),
        };
        let timezone = self.timezone.trim();
        Ok(NewBudget {
            account_id: account_id.to_owned(),
            scope,
            scope_id,
            name: None,
            amount,
            period,
            timezone: (!timezone.is_empty()).then(|| timezone.to_owned()),
            anchor,
            hard: self.soft.is_empty(),
            thresholds: None,
        })
    }
}

async fn set(
    State(gateway): State<Arc<Gateway>>,
    SignedForm { me, form }: SignedForm<BudgetForm>,
) -> Result<Response, PortalError> {
    let new = match form.checked(&me.account.id) {
        Ok(new) => new,
        Err(problem) => return refused(&gateway, &me, &problem, form).await,
    };
    let before = earlier(&gateway, &new).await?;
    // The form knows nothing of names and thresholds.
    let new = NewBudget {
        name: before.as_ref().map(|before| before.name.clone()),
        thresholds: before.as_ref().map(|before| before.thresholds.clone()),
        ..new
    };
    let actions = OperatorActions::by(&gateway, &me.person.email);
    match actions.set_budget(new).await.map_err(PortalError::from) {
        Ok(set) => {
            let done = saved(before.as_deref(), &set.budget.id);
            Ok(me.redirect(PATH, &done))
        }
        Err(PortalError::Invalid(problem)) => refused(&gateway, &me, &problem, form).await,
        Err(error) => Err(error),
    }
}

/// The budget that this one replaces.
async fn earlier(gateway: &Gateway, new: &NewBudget) -> Result<Option<Arc<Budget>>, PortalError> {
    let place = new.scope_id.as_deref().unwrap_or(&new.account_id);
    let states = gateway.ledger.budgets(&new.account_id).await?;
    let mut budgets = states.into_iter().map(|state| state.budget);
    Ok(budgets.find(|budget| {
        (budget.scope, budget.scope_id.as_str()) == (new.scope, place)
            && budget.schedule.period() == new.period
    }))
}

/// Undone by the budget that there was, or by removing the new one.
fn saved(before: Option<&Budget>, id: &str) -> Confirmation {
    let done = Confirmation::new("Budget saved. It applies from now on.");
    let Some(before) = before else {
        return done.undone_by(&format!("{PATH}/{id}/remove"), &[]);
    };
    let schedule = &before.schedule;
    done.undone_by(
        PATH,
        &[
            ("place", &places::value_of(before)),
            ("amount", &money(before.amount).replace(',', "")),
            ("period", schedule.period().as_str()),
            ("timezone", schedule.timezone()),
            ("anchor", &schedule.anchor().to_string()),
            ("soft", if before.hard { "" } else { "yes" }),
        ],
    )
}

/// The account's budget with this ID, and the name of what it is for.
async fn named(
    gateway: &Gateway,
    me: &SignedIn,
    id: &str,
) -> Result<(Arc<Budget>, String), PortalError> {
    let budgets = gateway.ledger.budgets(&me.account.id).await?;
    let mut budgets = budgets.into_iter().map(|state| state.budget);
    let budget = budgets.find(|budget| budget.id == id);
    let budget = budget.ok_or(PortalError::NotFound)?;
    let places = Places::read(gateway, &me.account.id).await?;
    let name = places.name_of(&budget);
    Ok((budget, name))
}

async fn confirm_remove(
    State(gateway): State<Arc<Gateway>>,
    Path(id): Path<String>,
    me: SignedIn,
) -> Result<Page, PortalError> {
    let (budget, name) = named(&gateway, &me, &id).await?;
    let question = Question {
        title: &format!("Remove budget: {name}?"),
        consequences: &format!(
            "The limit of {} no longer applies. Other budgets and the account's credit still do.",
            bar::limit(&budget)
        ),
        path: &format!("{PATH}/{}/remove", budget.id),
        fields: &[],
        yes: "Remove budget",
        no: ("Cancel", PATH),
    };
    let content = question.shown(&me.token_field());
    Ok(layout::page(&me, Place::Budgets, "Remove budget", &content))
}

async fn remove(
    State(gateway): State<Arc<Gateway>>,
    Path(id): Path<String>,
    SignedForm { me, form: _ }: SignedForm<EmptyForm>,
) -> Result<Response, PortalError> {
    let (budget, name) = named(&gateway, &me, &id).await?;
    let actions = OperatorActions::by(&gateway, &me.person.email);
    actions.remove_budget(budget.id.clone()).await?;
    let done = Confirmation::new(format!("Budget removed: {name}."));
    Ok(me.redirect(PATH, &done))
}

/// The page with why nothing was set, and the form as it was typed.
async fn refused(
    gateway: &Gateway,
    me: &SignedIn,
    problem: &str,
    typed: BudgetForm,
) -> Result<Response, PortalError> {
    let page = page(gateway, me, Some(problem), Some(typed)).await?;
    Ok(page.into_response())
}
