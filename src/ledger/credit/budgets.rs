//! The budgets beside an account's credit: taken in the same step, counted with each charge.

use super::{Credit, Refused, Wanted};
use crate::ledger::budgets::{Budgets, Counted, Place};

impl Credit {
    /// Sets a budget of this account, or replaces the one with its ID. What running calls hold counts from now on.
    pub(crate) fn put_budget(&mut self, account_id: &str, mut counted: Counted) {
        // A clock that was set back while the gateway was stopped begins no earlier period.
        self.tick(counted.starts_at);
        let open = self.holds.values().filter(|hold| !hold.charged);
        for hold in open {
            if counted.budget.is_above(&hold.payer) {
                counted.count(&hold.place);
            }
        }
        let budgets = self.budgets.get_or_insert_with(|| {
            let budgets = Budgets::default();
            Box::new((account_id.to_owned(), budgets))
        });
        budgets.1.put(counted);
    }

    pub(crate) fn remove_budget(&mut self, id: &str) {
        if let Some((_, budgets)) = self.budgets.as_deref_mut() {
            budgets.remove(id);
            if budgets.is_empty() {
                self.budgets = None;
            }
        }
    }

    /// The account's budgets; `None` if it has none.
    pub(crate) fn budgets(&self) -> Option<&Budgets> {
        self.budgets.as_deref().map(|(_, budgets)| budgets)
    }

    /// Takes `place` of all budgets above the call, instead of what it has taken before; or refuses and changes nothing.
    pub(super) fn take_of_budgets(
        &mut self,
        wanted: &Wanted<'_>,
        before: &Place,
        place: &Place,
    ) -> Result<(), Refused> {
        let Some((account_id, budgets)) = self.budgets.as_deref_mut() else {
            return Ok(());
        };
        let overdraft = wanted.overdraft.nanos();
        let taken = budgets.take(account_id, wanted.payer, before, place, overdraft);
        taken.map_err(Refused::OverBudget)
    }

    pub(super) fn contradiction_of_budgets(&self) -> Option<String> {
        let (account_id, budgets) = self.budgets.as_deref()?;
        let mut by_calls = budgets.without_holds();
        for hold in self.holds.values().filter(|hold| !hold.charged) {
            by_calls.add(account_id, &hold.payer, &hold.place);
        }
        budgets.all().find_map(|counted| {
            let by_calls = by_calls.get(&counted.budget)?;
            let (held, exposure) = (by_calls.held, by_calls.exposure);
            ((held, exposure) != (counted.held, counted.exposure)).then(|| {
                format!(
                    "{} nano-dollars are held and {} at risk of budget {} by count, {held} and {exposure} by calls",
                    counted.held, counted.exposure, counted.budget.id
                )
            })
        })
    }
}
