//! The calls of the last minutes by model, by upstream and by outcome or status, on the live page.

use std::collections::BTreeMap;

use maud::{Markup, html};

use crate::{
    gateway::breakdown::{Counts, MINUTES},
    portal::{formatting::count, table::scrolled},
};

/// Most rows of a table.
const MAX_ROWS: usize = 12;

/// All calls, and those that failed.
#[derive(Clone, Copy, Default)]
struct Row {
    calls: u64,
    failed: u64,
}

pub(super) fn tables(counts: &Counts) -> Markup {
    if counts.calls.is_empty() && counts.statuses.is_empty() {
        return html! { p.empty { "No requests in the last " (MINUTES) " minutes." } };
    }
    let mut models: BTreeMap<&str, Row> = BTreeMap::new();
    let mut upstreams: BTreeMap<&str, Row> = BTreeMap::new();
    for ((model, upstream, outcome), calls) in &counts.calls {
        let failed = if ["answered", "client_left"].contains(outcome) {
            0
        } else {
            *calls
        };
        let upstream = if upstream.is_empty() {
            "none"
        } else {
            upstream
        };
        for row in [
            models.entry(model).or_default(),
            upstreams.entry(upstream).or_default(),
        ] {
            row.calls += calls;
            row.failed += failed;
        }
    }
    html! {
        div.columns {
            section { (by("model", "Model", models)) }
            section { (by("upstream", "Upstream", upstreams)) }
            section { (by_status(&counts.statuses)) }
        }
    }
}

fn by(what: &str, heading: &str, rows: BTreeMap<&str, Row>) -> Markup {
    let mut rows: Vec<_> = rows.into_iter().collect();
    rows.sort_by_key(|(_, row)| std::cmp::Reverse(row.calls));
    let more = rows.len().saturating_sub(MAX_ROWS);
    rows.truncate(MAX_ROWS);
    let table = html! {
        table {
            caption { "By " (what) ", last " (MINUTES) " minutes" }
            thead { tr {
                th scope="col" { (heading) }
                th.number scope="col" { "Calls" }
                th.number scope="col" { "Failed" }
            } }
            tbody {
                @for (name, row) in &rows {
                    tr {
                        th scope="row" data-label=(heading) { code { (name) } }
                        td.number data-label="Calls" { (count(row.calls)) }
                        td.number data-label="Failed" { (count(row.failed)) }
                    }
                }
            }
        }
    };
    html! {
        @if rows.is_empty() { p.empty { "No calls in the last " (MINUTES) " minutes." } }
        @else { (scrolled(&format!("By {what}"), &table)) }
        @if more > 0 { p.muted { "and " (more) " more" } }
    }
}

fn by_status(statuses: &BTreeMap<u16, u64>) -> Markup {
    let table = html! {
        table {
            caption { "Requests by status, last " (MINUTES) " minutes" }
            thead { tr {
                th scope="col" { "Status" }
                th.number scope="col" { "Requests" }
            } }
            tbody {
                @for (status, requests) in statuses {
                    tr {
                        th scope="row" data-label="Status" { (status) }
                        td.number data-label="Requests" { (count(*requests)) }
                    }
                }
            }
        }
    };
    html! {
        @if statuses.is_empty() { p.empty { "No requests in the last " (MINUTES) " minutes." } }
        @else { (scrolled("By status", &table)) }
    }
}
