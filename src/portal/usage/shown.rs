//! What the usage page shows: the links by which people choose the period and the grouping.

use maud::{Markup, html};

use super::{period::Period, sums::GroupBy};
use crate::ledger::SumsOf;

/// What usage is divided by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shown {
    Groups(GroupBy),
    /// The sessions of coding agents.
    Sessions,
}

impl Shown {
    const ALL: [Self; 5] = [
        Self::Groups(GroupBy::Model),
        Self::Groups(GroupBy::Key),
        Self::Groups(GroupBy::Project),
        Self::Groups(GroupBy::Member),
        Self::Sessions,
    ];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Groups(by) => by.as_str(),
            Self::Sessions => "session",
        }
    }

    /// The sums that are read for it. A member's are those of the keys that they made.
    pub(crate) fn sums_of(self) -> SumsOf {
        match self {
            Self::Groups(GroupBy::Model) => SumsOf::Model,
            Self::Groups(GroupBy::Key | GroupBy::Member) => SumsOf::Key,
            Self::Groups(GroupBy::Project) => SumsOf::Project,
            Self::Sessions => SumsOf::Day,
        }
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|shown| shown.as_str() == text)
    }
}

/// Links to select the period and the grouping.
pub(crate) fn choices(period: Period, shown: Shown) -> Markup {
    let chosen = |is: bool| is.then_some("true");
    html! {
        nav.choices aria-label="What is shown" {
            (period.choices(shown.as_str()))
            ul {
                @for one in Shown::ALL {
                    li {
                        a href={ "/portal/usage?" (period.query()) "&by=" (one.as_str()) }
                            aria-current=[chosen(one == shown)] { "By " (one.as_str()) }
                    }
                }
            }
        }
        (period.form(shown.as_str()))
    }
}
