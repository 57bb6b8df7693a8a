//! Budgets: how much an account, a project, a member or a key may spend in a period.
//!
//! A budget counts the calls below it that were held in its present period: the cost of those that were charged, and the
//! holds of those that run. A hold is placed only if it fits into all hard budgets above its call, in the same step in
//! which credit is held. So a budget is exceeded at most by what the running calls may cost beyond their holds, which is
//! bounded as it is for credit: by `overdraft`.

use std::sync::Arc;

use serde::Deserialize;

mod counted;
mod manage;
mod schedule;
mod shortage;
#[cfg(test)]
mod tests;

pub(crate) use counted::{Budgets, Counted, Place, Spent, in_order};
pub(crate) use manage::BudgetChange;
pub(crate) use schedule::{BadSchedule, Bounds, Period, Schedule};
pub use shortage::BudgetShortage;
pub(crate) use shortage::narrowest_first;

use super::Payer;
use crate::base::money::NanoUsd;

/// The most budgets of an account.
pub(crate) const MAX_BUDGETS: usize = 1_000;

/// What a budget stands at, the narrowest last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum BudgetScope {
    Account,
    Project,
    Member,
    Key,
}

impl BudgetScope {
    pub(crate) const ALL: [Self; 4] = [Self::Account, Self::Project, Self::Member, Self::Key];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Account => "account",
            Self::Project => "project",
            Self::Member => "member",
            Self::Key => "key",
        }
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scope| scope.as_str() == text)
    }
}

/// The rules of a budget. One place has at most one budget for each kind of period.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Budget {
    /// `budget_…`
    pub id: String,
    pub account_id: String,
    pub scope: BudgetScope,
    /// The account, project, member or key.
    pub scope_id: String,
    pub name: String,
    pub amount: NanoUsd,
    pub schedule: Schedule,
    /// Refuses what does not fit. A soft budget only alerts.
    pub hard: bool,
    /// Percentages of the amount at which people are told.
    pub thresholds: Vec<u8>,
    pub created_at: i64,
}

impl Budget {
    /// Whether it stands above the calls of this payer.
    pub(crate) fn is_above(&self, payer: &Payer) -> bool {
        let of_payer = match self.scope {
            BudgetScope::Account => return true,
            BudgetScope::Project => Some(payer.project()),
            BudgetScope::Member => payer.member_id.as_deref(),
            BudgetScope::Key => Some(payer.key_id.as_str()),
        };
        of_payer == Some(self.scope_id.as_str())
    }

    /// The period that this time is in.
    pub(crate) fn period_at(&self, at: i64) -> Bounds {
        self.schedule.bounds(at, self.created_at)
    }
}

/// A budget and what counts against it now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BudgetState {
    pub budget: Arc<Budget>,
    pub period: Bounds,
    pub spent: NanoUsd,
    pub held: NanoUsd,
}

impl BudgetState {
    /// What new calls can hold; below zero if calls cost more than they held.
    pub(crate) fn remaining(&self) -> NanoUsd {
        let counted = self.spent.nanos().saturating_add(self.held.nanos());
        NanoUsd::new(self.budget.amount.nanos().saturating_sub(counted))
    }

    /// How much of the amount was spent, in whole percent.
    pub(crate) fn percent_spent(&self) -> i64 {
        let amount = i128::from(self.budget.amount.nanos().max(1));
        let percent = i128::from(self.spent.nanos()) * 100 / amount;
        i64::try_from(percent).unwrap_or(i64::MAX)
    }
}
