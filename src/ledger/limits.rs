//! The operator's rate-limit ceilings: for all, for a model, for an account, or for one account with one model.

use std::collections::HashMap;

use crate::base::rate::Ceilings;

/// Ceilings that the operator has set. `None` as account or model means all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LimitRule {
    pub account: Option<String>,
    pub model: Option<String>,
    pub requests: Option<u32>,
    pub tokens: Option<u32>,
}

/// The ceilings of one rule.
#[derive(Clone, Copy, Default)]
pub(crate) struct Set {
    pub requests: Option<u32>,
    pub tokens: Option<u32>,
}

/// All rules by account and model; the empty string stands for all.
#[derive(Default)]
pub(crate) struct LimitRules {
    by_account: HashMap<String, HashMap<String, Set>>,
}

impl LimitRules {
    /// The ceilings of an account with a model: each from the most specific rule that sets it. A rule for the account
    /// takes precedence over one for the model.
    pub(crate) fn ceilings(&self, account: &str, model: &str, default: Ceilings) -> Ceilings {
        if self.by_account.is_empty() {
            return default;
        }
        let specific_first = [(account, model), (account, ""), ("", model), ("", "")];
        let rules = specific_first.map(|(account, model)| {
            let rules = self.by_account.get(account)?;
            rules.get(model).copied()
        });
        let mut found = rules.iter().flatten();
        let requests = found.clone().find_map(|set| set.requests);
        let tokens = found.find_map(|set| set.tokens);
        Ceilings {
            requests: requests.unwrap_or(default.requests),
            tokens: tokens.unwrap_or(default.tokens),
        }
    }

    /// Replaces the rule for this account and model; a rule that sets no ceiling is removed.
    pub(crate) fn put(&mut self, rule: &LimitRule) {
        let account = rule.account.as_deref().unwrap_or_default();
        let model = rule.model.as_deref().unwrap_or_default();
        let rules = self.by_account.entry(account.to_owned()).or_default();
        if rule.requests.is_none() && rule.tokens.is_none() {
            rules.remove(model);
        } else {
            let (requests, tokens) = (rule.requests, rule.tokens);
            rules.insert(model.to_owned(), Set { requests, tokens });
        }
        self.by_account.retain(|_, rules| !rules.is_empty());
    }

    pub(crate) fn get(&self, account: Option<&str>, model: Option<&str>) -> Set {
        let rules = self.by_account.get(account.unwrap_or_default());
        let rule = rules.and_then(|rules| rules.get(model.unwrap_or_default()));
        rule.copied().unwrap_or_default()
    }

    /// All rules, sorted by account and model.
    pub(crate) fn all(&self) -> Vec<LimitRule> {
        let named = |name: &String| (!name.is_empty()).then(|| name.clone());
        let mut rules: Vec<_> = self
            .by_account
            .iter()
            .flat_map(|(account, rules)| {
                rules.iter().map(move |(model, set)| LimitRule {
                    account: named(account),
                    model: named(model),
                    requests: set.requests,
                    tokens: set.tokens,
                })
            })
            .collect();
        rules.sort_by(|a, b| (&a.account, &a.model).cmp(&(&b.account, &b.model)));
        rules
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_specific_rule_counts_for_each_ceiling() {
        let default = Ceilings {
            requests: 60,
            tokens: 1_000,
        };
        let mut rules = LimitRules::default();
        let mut put = |account: Option<&str>, model: Option<&str>, requests, tokens| {
            let (account, model) = (account.map(Into::into), model.map(Into::into));
            rules.put(&LimitRule {
                account,
                model,
                requests,
                tokens,
            });
        };
        put(None, Some("m"), Some(10), Some(100));
        put(Some("a"), None, Some(20), None);
        put(Some("a"), Some("m"), None, Some(300));
        put(Some("b"), Some("m"), Some(1), None);
        put(Some("b"), Some("m"), None, None);
        let ceilings = |account, model| {
            let Ceilings { requests, tokens } = rules.ceilings(account, model, default);
            (requests, tokens)
        };
        assert_eq!(ceilings("a", "m"), (20, 300));
        assert_eq!(ceilings("a", "n"), (20, 1_000));
        assert_eq!(
            ceilings("b", "m"),
            (10, 100),
            "a rule without a ceiling is removed"
        );
        assert_eq!(ceilings("b", "n"), (60, 1_000));
        assert_eq!(rules.all().len(), 3);
    }
}
