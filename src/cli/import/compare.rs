//! Compares both sides when everything is copied: numbers of rows, sums, balances, and audits.

use std::collections::BTreeMap;

use super::Source;
use crate::{
    base::money::NanoUsd,
    db::{
        copy::totals_of,
        postgres::{Address, Connected},
    },
    ledger,
};

/// At most this many differences are listed.
const MOST: usize = 20;

pub(super) struct Compared {
    pub differences: Vec<String>,
    /// How many balances were compared.
    pub balances: usize,
}

pub(super) async fn all(
    target: &Connected,
    address: &Address,
    source: &Source,
) -> Result<Compared, String> {
    let mut differences = Vec::new();
    for (table, totals) in source.tables().zip(&source.totals) {
        let copied = totals_of(target, table).await;
        let copied = copied.map_err(|error| error.to_string())?;
        differences.extend(totals.differences(&copied));
    }
    let there = ledger::import::balances_of_file(&source.file);
    let there = there.map_err(|error| error.to_string())?;
    let copied = ledger::import::balances(target).await;
    let copied = copied.map_err(|error| error.to_string())?;
    differences.extend(of_balances(&there, &copied));
    let audit = ledger::audit_database(address).await;
    let audit = audit.map_err(|error| error.to_string())?;
    let entries = |audit: &ledger::Audit| (audit.entries, audit.charges);
    if entries(&audit) != entries(&source.audit) {
        let ((entries, charges), (copied, copied_charges)) =
            (entries(&source.audit), entries(&audit));
        differences.push(format!(
            "the ledger has {entries} entries ({charges} charges), and its copy {copied} ({copied_charges})"
        ));
    }
    let violations = audit.violations.iter();
    differences.extend(violations.map(|found| format!("{}: {}", found.account_id, found.what)));
    let more = differences.len().saturating_sub(MOST);
    differences.truncate(MOST);
    if more > 0 {
        differences.push(format!("and {more} more"));
    }
    Ok(Compared {
        differences,
        balances: there.len(),
    })
}

fn of_balances(there: &BTreeMap<String, i64>, copied: &BTreeMap<String, i64>) -> Vec<String> {
    let shown = |balance: Option<&i64>| {
        balance.map_or("none".to_owned(), |nanos| NanoUsd::new(*nanos).to_string())
    };
    let accounts = there
        .keys()
        .chain(copied.keys().filter(|id| !there.contains_key(*id)));
    let different = accounts.filter(|id| there.get(*id) != copied.get(*id));
    different
        .map(|id| {
            let (balance, copied) = (shown(there.get(id)), shown(copied.get(id)));
            format!("{id} has the balance {balance}, and its copy {copied}")
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn balances_that_differ_or_are_missing_are_listed() {
        let balances = |of: &[(&str, i64)]| -> BTreeMap<String, i64> {
            of.iter()
                .map(|(id, nanos)| ((*id).into(), *nanos))
                .collect()
        };
        let there = balances(&[("a", 1_000_000_000), ("b", 2), ("c", 0)]);
        assert_eq!(of_balances(&there, &there), Vec::<String>::new());
        let copied = balances(&[("a", -1_500_000_000), ("b", 2), ("d", 0)]);
        let found = of_balances(&there, &copied);
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found[0].starts_with("a has the balance 1.0"), "{found:?}");
        assert!(found[1].contains("c has the balance 0") && found[1].ends_with("none"));
        assert!(found[2].starts_with("d has the balance none"));
    }
}
