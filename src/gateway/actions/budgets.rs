//! Actions on budgets.

use serde_json::{Value, json};

use super::{ActionError, MAX_NAME, OperatorActions};
use crate::{
    base::money::NanoUsd,
    ledger::{
        Budget, BudgetChange, BudgetScope, BudgetState, DEFAULT_PROJECT, LedgerError, Period,
        Schedule,
    },
};

/// The percentages at which people are told, unless others are chosen.
const THRESHOLDS: [u8; 3] = [50, 80, 100];
const MAX_THRESHOLDS: usize = 10;
/// A billion dollars: what a budget counts stays far from the largest number.
const MAX_AMOUNT: NanoUsd = NanoUsd::new(1_000_000_000_000_000_000);

/// A budget to set, as a person or a program asks for it.
#[derive(Clone, Debug)]
pub(crate) struct NewBudget {
    pub account_id: String,
    pub scope: BudgetScope,
    /// The project, member or key; not needed for the account.
    pub scope_id: Option<String>,
    /// By default the name of what it stands at.
    pub name: Option<String>,
    pub amount: NanoUsd,
    pub period: Period,
    pub timezone: Option<String>,
    pub anchor: Option<i64>,
    pub hard: bool,
    pub thresholds: Option<Vec<u8>>,
}

impl OperatorActions {
    /// Sets a budget, from the next hold on.
    pub(crate) async fn set_budget(&self, new: NewBudget) -> Result<BudgetState, ActionError> {
        let actions = self.clone();
        self.run_to_completion(async move {
            let change = actions.checked(new).await?;
            let ledger = &actions.gateway.ledger;
            let earlier = ledger.budgets(&change.account_id).await?.into_iter();
            let same = |state: &BudgetState| {
                let budget = &state.budget;
                (budget.scope, &budget.scope_id) == (change.scope, &change.scope_id)
                    && budget.schedule.period() == change.schedule.period()
            };
            let before = earlier.map(|state| (same(&state), state)).find(|it| it.0);
            let before = before.map(|(_, state)| recorded(&state.budget));
            let set = ledger.set_budget(change).await?;
            let after = recorded(&set.budget);
            if before.as_ref() != Some(&after) {
                let id = set.budget.id.clone();
                actions.record("budget.set", &id, before, Some(after)).await;
            }
            Ok(set)
        })
        .await
    }

    pub(crate) async fn remove_budget(&self, id: String) -> Result<Budget, ActionError> {
        let actions = self.clone();
        self.run_to_completion(async move {
            let removed = actions.gateway.ledger.remove_budget(&id).await?;
            let before = Some(recorded(&removed));
            actions.record("budget.remove", &id, before, None).await;
            Ok(removed)
        })
        .await
    }

    async fn checked(&self, new: NewBudget) -> Result<BudgetChange, ActionError> {
        if new.amount <= NanoUsd::default() || new.amount > MAX_AMOUNT {
            return Err(ActionError::BudgetAmount);
        }
        let thresholds = thresholds(new.thresholds)?;
        let timezone = new.timezone.as_deref();
        let schedule = Schedule::new(new.period, timezone, new.anchor)?;
        let (scope_id, known_as) = self.place(&new.account_id, new.scope, new.scope_id).await?;
        let name = new.name.map(|name| name.trim().to_owned());
        let name = name.unwrap_or(known_as);
        if name.is_empty() || name.chars().count() > MAX_NAME {
            return Err(ActionError::BudgetName);
        }
        Ok(BudgetChange {
            account_id: new.account_id,
            scope: new.scope,
            scope_id,
            name,
            amount: new.amount,
            schedule,
            hard: new.hard,
            thresholds,
        })
    }

    /// What a budget is to stand at, and what people call that.
    async fn place(
        &self,
        account_id: &str,
        scope: BudgetScope,
        id: Option<String>,
    ) -> Result<(String, String), ActionError> {
        let ledger = &self.gateway.ledger;
        let account = ledger.account(account_id).await?;
        let missing = |id: String| {
            let what = scope.as_str();
            ActionError::Ledger(LedgerError::NotFound { what, id })
        };
        let id = match (scope, id) {
            (BudgetScope::Account, None) => account.id.clone(),
            (_, None) => return Err(ActionError::BudgetPlace(scope.as_str())),
            (_, Some(id)) => id,
        };
        let known_as = match scope {
            BudgetScope::Account if id == account.id => {
                Some(account.name.unwrap_or_else(|| "Account".to_owned()))
            }
            BudgetScope::Account => None,
            BudgetScope::Project if id == DEFAULT_PROJECT => Some("Default".to_owned()),
            BudgetScope::Project => {
                let projects = ledger.projects(account_id).await?.into_iter();
                let mut open = projects.filter(|project| !project.archived);
                open.find(|project| project.id == id).map(|it| it.name)
            }
            BudgetScope::Member => {
                let person = self.gateway.backoffice.person(&id).await?;
                let person = person.filter(|person| person.account_id == account_id);
                person.map(|person| person.email)
            }
            BudgetScope::Key => {
                let mut keys = ledger.keys(account_id).await?.into_iter();
                let key = keys.find(|key| key.id == id);
                key.map(|key| {
                    if key.name.is_empty() {
                        key.prefix
                    } else {
                        key.name
                    }
                })
            }
        };
        match known_as {
            Some(known_as) => Ok((id, cut(&known_as))),
            None => Err(missing(id)),
        }
    }
}

/// A name that another limit applies to, such as an email address.
fn cut(name: &str) -> String {
    name.chars().take(MAX_NAME).collect()
}

fn thresholds(chosen: Option<Vec<u8>>) -> Result<Vec<u8>, ActionError> {
    let Some(mut chosen) = chosen else {
        return Ok(THRESHOLDS.to_vec());
    };
    chosen.sort_unstable();
    chosen.dedup();
    let are_right = chosen.iter().all(|percent| (1..=100).contains(percent));
    if !are_right || chosen.len() > MAX_THRESHOLDS {
        return Err(ActionError::BudgetThresholds);
    }
    Ok(chosen)
}

/// A budget in the log of actions.
fn recorded(budget: &Budget) -> Value {
    let schedule = &budget.schedule;
    json!({
        "account": budget.account_id,
        "scope": budget.scope.as_str(),
        "scope_id": budget.scope_id,
        "name": budget.name,
        "amount": budget.amount,
        "period": schedule.period().as_str(),
        "timezone": schedule.timezone(),
        "anchor": schedule.has_anchor().then(|| schedule.anchor()),
        "hard": budget.hard,
        "thresholds": budget.thresholds,
    })
}
