//! The remaining credit: what is left of each grant, in the order in which grants are used.

use maud::{Markup, html};

use super::Notes;
use crate::{
    ledger::GrantLeft,
    portal::{
        formatting::{moment, money},
        table::scrolled,
    },
};

pub(crate) fn section(left: &[GrantLeft], notes: &Notes<'_>) -> Markup {
    html! {
        section {
            h2 { "Remaining credit" }
            @if left.is_empty() {
                p.empty { "No credit left." }
            } @else {
                (scrolled("Remaining credit", &table(left, notes)))
            }
        }
    }
}

fn table(left: &[GrantLeft], notes: &Notes<'_>) -> Markup {
    html! {
        table {
            caption { "Credit that expires first is used first" }
            thead {
                tr {
                    th scope="col" { "Credit" }
                    th.number scope="col" { "Remaining" }
                    th.number scope="col" { "Reserved" }
                    th scope="col" { "Expires" }
                }
            }
            tbody {
                @for grant in left {
                    tr {
                        th scope="row" data-label="Credit" {
                            (notes.get(grant.grant_id.as_str()).copied().unwrap_or("Credit"))
                        }
                        td.number data-label="Remaining" { (money(grant.left)) }
                        td.number data-label="Reserved" { (money(grant.held)) }
                        td data-label="Expires" {
                            @match grant.expires_at {
                                Some(at) => { (moment(at)) },
                                None => { "Never" },
                            }
                        }
                    }
                }
            }
        }
    }
}
