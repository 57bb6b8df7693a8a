//! Sums of usage rows by model, key, project or member, and by day, hour or minute.

use std::collections::HashMap;

use super::names::{Named, Names};
use crate::{base::money::NanoUsd, ledger::DayUse};

/// Most groups of a page.
const MAX_GROUPS: usize = 200;
/// The ID of groups that were merged; no other group has it.
const MERGED: &str = "*";

/// What usage is grouped by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GroupBy {
    Model,
    Key,
    Project,
    Member,
}

impl GroupBy {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Model => "model",
            Self::Key => "key",
            Self::Project => "project",
            Self::Member => "member",
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    pub calls: u64,
    pub charged: u64,
    pub prompt: u64,
    pub cached: u64,
    pub completion: u64,
    pub reasoning: u64,
    pub cost: NanoUsd,
}

impl Totals {
    /// The calls that were not charged. Refused requests are no calls.
    pub(crate) fn errors(&self) -> u64 {
        self.calls.saturating_sub(self.charged)
    }

    /// The share of requests that were errors, e.g. `2.5 %`.
    pub(crate) fn error_rate(&self) -> String {
        let all = u128::from(self.calls);
        let rounded = u128::from(self.errors()) * 1_000 + all / 2;
        match rounded.checked_div(all) {
            None => "–".into(),
            Some(0) if self.errors() > 0 => "< 0.1 %".into(),
            Some(tenths) => format!("{}.{} %", tenths / 10, tenths % 10),
        }
    }

    pub(crate) fn of(rows: &[DayUse]) -> Self {
        let mut totals = Self::default();
        for row in rows {
            totals.add(row);
        }
        totals
    }

    pub(crate) fn add(&mut self, row: &DayUse) {
        self.merge(&Self {
            calls: row.calls,
            charged: row.charged,
            prompt: row.prompt,
            cached: row.cached,
            completion: row.completion,
            reasoning: row.reasoning,
            cost: row.cost,
        });
    }

    fn merge(&mut self, other: &Self) {
        for (sum, more) in [
            (&mut self.calls, other.calls),
            (&mut self.charged, other.charged),
            (&mut self.prompt, other.prompt),
            (&mut self.cached, other.cached),
            (&mut self.completion, other.completion),
            (&mut self.reasoning, other.reasoning),
        ] {
            *sum = sum.saturating_add(more);
        }
        let cost = self.cost.nanos().saturating_add(other.cost.nanos());
        self.cost = NanoUsd::new(cost);
    }
}

/// The usage of one model, key, project or member.
pub(crate) struct Group<'a> {
    /// Empty for service keys.
    pub id: &'a str,
    pub name: &'a str,
    /// The prefix of a key; names of keys are not unique.
    pub prefix: Option<&'a str>,
    pub totals: Totals,
    pub by_day: HashMap<&'a str, Totals>,
}

impl Group<'_> {
    /// Name and prefix as one text.
    pub(crate) fn label(&self) -> String {
        match self.prefix {
            Some(prefix) => format!("{} ({prefix}…)", self.name),
            None => self.name.to_owned(),
        }
    }
}

/// The groups, most expensive first. If there are too many for a page, the last ones are merged into one.
pub(crate) fn grouped<'a>(rows: &'a [DayUse], by: GroupBy, names: &'a Names) -> Vec<Group<'a>> {
    let mut groups: HashMap<&str, Group<'a>> = HashMap::new();
    for row in rows {
        let Named { id, name, prefix } = names.group(row, by);
        let group = groups.entry(id).or_insert_with(|| Group {
            id,
            name,
            prefix,
            totals: Totals::default(),
            by_day: HashMap::new(),
        });
        group.totals.add(row);
        group.by_day.entry(&row.day).or_default().add(row);
    }
    let mut groups: Vec<_> = groups.into_iter().collect();
    groups.sort_by(|(id, one), (other_id, other)| {
        let order = |totals: &Totals| (totals.cost, totals.calls);
        order(&other.totals)
            .cmp(&order(&one.totals))
            .then(id.cmp(other_id))
    });
    let mut groups: Vec<_> = groups.into_iter().map(|(_, group)| group).collect();
    if groups.len() > MAX_GROUPS {
        let rest = groups.split_off(MAX_GROUPS - 1);
        groups.push(merged(rest));
    }
    groups
}

fn merged(groups: Vec<Group<'_>>) -> Group<'_> {
    let mut all = Group {
        id: MERGED,
        name: "all others",
        prefix: None,
        totals: Totals::default(),
        by_day: HashMap::new(),
    };
    for group in groups {
        all.totals.merge(&group.totals);
        for (day, totals) in &group.by_day {
            all.by_day.entry(day).or_default().merge(totals);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(day: &str, key: &str, model: &str, calls: u64, nanos: i64) -> DayUse {
        DayUse {
            day: day.into(),
            project_id: "default".into(),
            key_id: key.into(),
            model: model.into(),
            calls,
            charged: calls,
            prompt: 10 * calls,
            cached: 2 * calls,
            completion: 3 * calls,
            reasoning: calls,
            cost: NanoUsd::new(nanos),
            last_ms: 0,
        }
    }

    #[test]
    fn rows_are_summed_by_what_is_chosen_most_expensive_first() {
        let rows = [
            row("2026-11-15", "key_a", "cheap", 1, 5),
            row("2026-11-15", "key_b", "dear", 2, 70),
            row("2026-11-16", "key_a", "dear", 3, 30),
        ];
        let names = Names::default();
        let summary = |by| -> Vec<_> {
            let groups = grouped(&rows, by, &names);
            let summary = groups.iter().map(|group| {
                let (totals, days) = (group.totals, group.by_day.len());
                (group.label(), totals.calls, totals.cost.nanos(), days)
            });
            summary.collect()
        };
        assert_eq!(
            summary(GroupBy::Model),
            [("dear".into(), 5, 100, 2), ("cheap".into(), 1, 5, 1)]
        );
        assert_eq!(
            summary(GroupBy::Key),
            [("key_b".into(), 2, 70, 1), ("key_a".into(), 4, 35, 2)]
        );
        assert_eq!(summary(GroupBy::Project), [("Default".into(), 6, 105, 2)]);
        assert_eq!(
            summary(GroupBy::Member),
            [("Service keys".into(), 6, 105, 2)]
        );
        let all = Totals::of(&rows);
        assert_eq!((all.prompt, all.cached, all.completion), (60, 12, 18));
    }

    #[test]
    fn a_page_has_a_bounded_number_of_groups_with_the_same_totals() {
        let rows: Vec<_> = (0..1_000)
            .map(|key| row("2026-11-15", &format!("key_{key}"), "m", 1, key))
            .collect();
        let names = Names::default();
        let groups = grouped(&rows, GroupBy::Key, &names);
        assert_eq!(groups.len(), MAX_GROUPS);
        assert_eq!(
            (groups[0].name, groups[199].name),
            ("key_999", "all others")
        );
        let mut all = Totals::default();
        let mut by_day = Totals::default();
        for group in &groups {
            all.merge(&group.totals);
            by_day.merge(&group.by_day["2026-11-15"]);
        }
        assert_eq!((all, by_day), (Totals::of(&rows), Totals::of(&rows)));
    }

    #[test]
    fn calls_that_were_not_charged_are_errors() {
        let rate = |calls, charged| {
            let totals = Totals {
                calls,
                charged,
                ..Totals::default()
            };
            (totals.errors(), totals.error_rate())
        };
        assert_eq!(rate(0, 0), (0, "–".into()));
        assert_eq!(rate(10, 10), (0, "0.0 %".into()));
        assert_eq!(rate(40, 39), (1, "2.5 %".into()));
        assert_eq!(rate(13, 12), (1, "7.7 %".into()));
        assert_eq!(rate(5_000, 4_999), (1, "< 0.1 %".into()));
    }

    #[test]
    fn sums_saturate() {
        let rows = [
            row("2026-11-15", "k", "m", 1, i64::MAX),
            row("2026-11-16", "k", "m", 1, i64::MAX),
        ];
        assert_eq!(Totals::of(&rows).cost, NanoUsd::new(i64::MAX));
    }
}
