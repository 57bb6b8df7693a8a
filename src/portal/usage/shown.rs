//! What the usage page shows: the links by which people choose the period and the grouping.

use maud::{Markup, html};

use super::sums::GroupBy;

/// The periods to choose from, in days.
pub(crate) const RANGES: [u16; 3] = [7, 30, 90];

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

    fn as_str(self) -> &'static str {
        match self {
            Self::Groups(by) => by.as_str(),
            Self::Sessions => "session",
        }
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|shown| shown.as_str() == text)
    }
}

/// Links to select the period and the grouping.
pub(crate) fn choices(count: u16, shown: Shown) -> Markup {
    let chosen = |is: bool| is.then_some("true");
    html! {
        nav.choices aria-label="What is shown" {
            ul {
                @for days in RANGES {
                    li {
                        a href={ "/portal/usage?days=" (days) "&by=" (shown.as_str()) }
                            aria-current=[chosen(days == count)] { (days) " days" }
                    }
                }
            }
            ul {
                @for one in Shown::ALL {
                    li {
                        a href={ "/portal/usage?days=" (count) "&by=" (one.as_str()) }
                            aria-current=[chosen(one == shown)] { "By " (one.as_str()) }
                    }
                }
            }
        }
    }
}
