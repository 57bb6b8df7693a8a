//! The table of the sessions of coding agents.

use maud::{Markup, html};

use super::period::Period;
use crate::{
    ledger::{SessionCursor, SessionUse},
    portal::{
        formatting::{count, moment, money},
        layout, paging,
        table::scrolled,
    },
};

/// One page of sessions, and the links to others. `is_first` tells whether it is the newest page; `requests`, whether the
/// person may see the requests of a session.
pub(crate) fn table(
    period: Period,
    sessions: &mut Vec<SessionUse>,
    is_first: bool,
    requests: bool,
) -> Markup {
    let older = paging::cut(sessions).map(SessionUse::cursor);
    let first = format!("/portal/usage?{}&by=session", period.query());
    let older = older.map(|cursor: SessionCursor| {
        let before = cursor.to_text();
        format!("{first}&before={}", layout::encoded(&before))
    });
    html! {
        (scrolled("Usage by session", &html! {
            table {
                caption { "Usage by session of a coding agent" }
                thead {
                    tr {
                        th scope="col" { "Session" }
                        th scope="col" { "Last used" }
                        th.number scope="col" { "Requests" }
                        th.number scope="col" { "Input tokens" }
                        th.number scope="col" { "Cached input" }
                        th.number scope="col" { "Output tokens" }
                        th.number scope="col" { "Cost" }
                    }
                }
                tbody {
                    @if sessions.is_empty() {
                        tr { td.muted colspan="7" {
                            "No coding agent named its session in this period. Claude Code and Codex do."
                        } }
                    }
                    @for used in sessions.iter() { (row(used, requests)) }
                }
            }
        }))
        (paging::links("sessions", (!is_first).then_some(first.as_str()), older.as_deref()))
    }
}

fn row(used: &SessionUse, requests: bool) -> Markup {
    let path = format!(
        "/portal/requests?session={}",
        layout::encoded(&used.session)
    );
    html! {
        tr {
            th scope="row" {
                @if requests { a href=(path) { code { (used.session) } } }
                @else { code { (used.session) } }
                @if let Some(client) = &used.client { " " span.muted { (client) } }
            }
            td data-label="Last used" { (moment(used.last_ms.div_euclid(1_000))) }
            td.number data-label="Requests" { (count(used.calls)) }
            td.number data-label="Input tokens" { (count(used.prompt)) }
            td.number data-label="Cached input" { (cache_hits(used)) }
            td.number data-label="Output tokens" { (count(used.completion)) }
            td.number data-label="Cost" { (money(used.cost)) }
        }
    }
}

/// The share of input that came from a provider's cache, e.g. `38.5 %`.
fn cache_hits(used: &SessionUse) -> String {
    match used.cache_hits() {
        Some(hits) => format!("{}.{} %", hits / 100, hits % 100 / 10),
        None => "–".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_has_one_decimal() {
        let shown = |cached, prompt| {
            cache_hits(&SessionUse {
                prompt,
                cached,
                ..SessionUse::default()
            })
        };
        assert_eq!(shown(0, 0), "–");
        assert_eq!(shown(0, 10), "0.0 %");
        assert_eq!(shown(385, 1_000), "38.5 %");
        assert_eq!(shown(2, 3), "66.6 %");
        assert_eq!(shown(10, 10), "100.0 %");
    }
}
