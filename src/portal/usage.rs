//! The usage page: requests, tokens and cost by model, key, project, member or session, and by day.

use std::{collections::HashMap, sync::Arc};

use axum::{
    extract::State,
    http::header,
    response::{IntoResponse as _, Response},
};
use maud::{Markup, html};
use serde::Deserialize;

mod csv;
mod names;
mod sessions;
mod shown;
mod sums;

use self::{
    names::Names,
    shown::{RANGES, Shown, choices},
    sums::{Group, GroupBy, Totals},
};
use super::{
    chart::{Chart, Series, Unit},
    days,
    error::PortalError,
    formatting,
    layout::{self, Page, Place},
    paging,
    query::{ReadQuery, non_empty},
    session::SignedIn,
    sight::Sight,
};
use crate::{
    base::timestamp,
    gateway::Gateway,
    ledger::{DayUse, SessionCursor, SessionUse, SessionsPage},
};

const RANGE: u16 = 30;

#[derive(Deserialize)]
pub(crate) struct UsageQuery {
    days: Option<String>,
    by: Option<String>,
    /// The last session of the page before.
    before: Option<String>,
}

impl UsageQuery {
    fn days(&self) -> Result<u16, PortalError> {
        let Some(text) = non_empty(self.days.as_ref()) else {
            return Ok(RANGE);
        };
        let mut ranges = RANGES.into_iter();
        ranges
            .find(|days| days.to_string() == text)
            .ok_or_else(|| PortalError::Invalid("Usage is shown for 7, 30 or 90 days.".into()))
    }

    fn shown(&self) -> Result<Shown, PortalError> {
        let Some(text) = non_empty(self.by.as_ref()) else {
            return Ok(Shown::Groups(GroupBy::Model));
        };
        let unknown = "Usage is shown by model, key, project, member or session.";
        Shown::parse(text).ok_or_else(|| PortalError::Invalid(unknown.into()))
    }

    fn before(&self) -> Result<Option<SessionCursor>, PortalError> {
        paging::cursor(self.before.as_ref(), "sessions", SessionCursor::parse)
    }
}

/// The selected days and the usage rows on them.
struct PeriodUsage {
    days: Vec<String>,
    rows: Vec<DayUse>,
    sight: Sight,
}

impl PeriodUsage {
    async fn read(gateway: &Gateway, me: &SignedIn, count: u16) -> Result<Self, PortalError> {
        let days = days::last(count, timestamp::now());
        let sight = Sight::of(gateway, me).await?;
        let (Some(first), Some(last)) = (days.first(), days.last()) else {
            return Ok(Self {
                days,
                rows: Vec::new(),
                sight,
            });
        };
        let rows = gateway.ledger.usage_days(&me.account.id, first, last);
        let mut rows = rows.await?;
        sight.restrict(gateway, &mut rows).await?;
        Ok(Self { days, rows, sight })
    }

    /// One page of the sessions of coding agents on these days. It reads the calls of these days, so it is read only
    /// where it is shown.
    async fn sessions(
        &self,
        gateway: &Gateway,
        me: &SignedIn,
        before: Option<SessionCursor>,
    ) -> Result<Vec<SessionUse>, PortalError> {
        let page = SessionsPage {
            account_id: Some(me.account.id.clone()),
            seen: self.sight.calls().cloned(),
            from_ms: self.begin().saturating_mul(1_000),
            to_ms: i64::MAX,
            before,
            limit: paging::QUERIED,
        };
        Ok(gateway.ledger.sessions(page).await?)
    }

    /// How many requests of these days got the response of another one. They are counted for the account as a whole.
    async fn replays(&self, gateway: &Gateway, me: &SignedIn) -> Result<u64, PortalError> {
        if self.sight.calls().is_some() {
            return Ok(0);
        }
        let counting = gateway
            .ledger
            .count_replays(&me.account.id, self.begin(), i64::MAX / 1_000);
        Ok(counting.await?)
    }

    /// When the first day begins, in seconds.
    fn begin(&self) -> i64 {
        let first = self.days.first().map(|day| format!("{day}T00:00:00Z"));
        first
            .and_then(|first| timestamp::read(&first))
            .unwrap_or_default()
    }
}

pub(crate) async fn show(
    State(gateway): State<Arc<Gateway>>,
    me: SignedIn,
    ReadQuery(query): ReadQuery<UsageQuery>,
) -> Result<Page, PortalError> {
    let (count, shown) = (query.days()?, query.shown()?);
    let used = PeriodUsage::read(&gateway, &me, count).await?;
    let parts = match shown {
        Shown::Groups(by) => groups(&gateway, &me, &used, by).await?,
        Shown::Sessions => {
            let before = query.before()?;
            let is_first = before.is_none();
            let mut sessions = used.sessions(&gateway, &me, before).await?;
            sessions::table(count, &mut sessions, is_first)
        }
    };
    let replays = used.replays(&gateway, &me).await?;
    let content = html! {
        h1 { "Usage" }
        (choices(count, shown))
        (totals(&Totals::of(&used.rows), replays))
        (parts)
        (day_table(&used))
        p { a.button href={ "/portal/usage.csv?days=" (count) } { "Download as CSV" } }
    };
    Ok(layout::page(&me, Place::Usage, "Usage", &content))
}

/// Charts and a table of the usage by model, key, project or member.
async fn groups(
    gateway: &Gateway,
    me: &SignedIn,
    used: &PeriodUsage,
    by: GroupBy,
) -> Result<Markup, PortalError> {
    let names = match by {
        GroupBy::Model => Names::default(),
        GroupBy::Key | GroupBy::Project | GroupBy::Member => {
            Names::read(gateway, me, &used.rows).await?
        }
    };
    let groups = sums::grouped(&used.rows, by, &names);
    Ok(html! {
        div.charts {
            (chart("Cost a day", Unit::Dollars, &used.days, &groups, |used| {
                u64::try_from(used.cost.nanos()).unwrap_or(0)
            }))
            (chart("Requests a day", Unit::Requests, &used.days, &groups, |used| used.calls))
        }
        (group_table(by, &groups))
    })
}

pub(crate) async fn csv(
    State(gateway): State<Arc<Gateway>>,
    me: SignedIn,
    ReadQuery(query): ReadQuery<UsageQuery>,
) -> Result<Response, PortalError> {
    let used = PeriodUsage::read(&gateway, &me, query.days()?).await?;
    let names = Names::read(&gateway, &me, &used.rows).await?;
    let first = used.days.first().map_or("", String::as_str);
    let last = used.days.last().map_or("", String::as_str);
    let attachment = format!("attachment; filename=\"usage-{first}-to-{last}.csv\"");
    let headers = [
        (header::CONTENT_TYPE, "text/csv; charset=utf-8".to_owned()),
        (header::CONTENT_DISPOSITION, attachment),
    ];
    Ok((headers, csv::render(&used.rows, &names)).into_response())
}

/// `replays` are the requests that got the response of another one.
fn totals(totals: &Totals, replays: u64) -> Markup {
    html! {
        div.grid {
            section.card {
                h2 { "Cost" }
                p.figure { (formatting::money(totals.cost)) }
            }
            section.card {
                h2 { "Requests" }
                p.figure { (formatting::count(totals.calls)) }
                p.muted { (formatting::count(totals.charged)) " of them charged" }
                @if replays > 0 {
                    p.muted { (formatting::count(replays)) " retries got an earlier response and cost nothing" }
                }
            }
            section.card {
                h2 { "Input tokens" }
                p.figure { (formatting::count(totals.prompt)) }
                p.muted { (formatting::count(totals.cached)) " of them cached" }
            }
            section.card {
                h2 { "Output tokens" }
                p.figure { (formatting::count(totals.completion)) }
                p.muted { (formatting::count(totals.reasoning)) " of them reasoning" }
            }
        }
    }
}

fn chart(
    title: &str,
    unit: Unit,
    days: &[String],
    groups: &[Group],
    value: impl Fn(&Totals) -> u64,
) -> Markup {
    let series = groups.iter().map(|group| Series {
        name: group.label(),
        values: days
            .iter()
            .map(|day| group.by_day.get(day.as_str()).map_or(0, &value))
            .collect(),
    });
    let series = series.collect();
    let chart = Chart {
        title,
        unit,
        days,
        series,
    };
    chart.draw()
}

fn group_table(by: GroupBy, groups: &[Group]) -> Markup {
    let (caption, name) = match by {
        GroupBy::Model => ("Usage by model", "Model"),
        GroupBy::Key => ("Usage by key", "Key"),
        GroupBy::Project => ("Usage by project", "Project"),
        GroupBy::Member => ("Usage by member", "Member"),
    };
    let rows = html! {
        @for group in groups {
            tr {
                th scope="row" {
                    (group.name)
                    @if let Some(prefix) = &group.prefix { " " code { (prefix) "…" } }
                }
                (cells(&group.totals))
            }
        }
    };
    table(caption, name, groups.is_empty(), &rows)
}

/// Usage by day, newest first. Days without requests have no row.
fn day_table(used: &PeriodUsage) -> Markup {
    let mut by_day: HashMap<&str, Totals> = HashMap::new();
    for row in &used.rows {
        by_day.entry(&row.day).or_default().add(row);
    }
    let days = used.days.iter().rev();
    let days = days.filter_map(|day| Some((day, by_day.get(day.as_str())?)));
    let rows = html! {
        @for (day, totals) in days {
            tr {
                th scope="row" { time datetime=(day) { (days::long(day)) } }
                (cells(totals))
            }
        }
    };
    table("Usage by day", "Day (UTC)", used.rows.is_empty(), &rows)
}

fn table(caption: &str, name: &str, is_empty: bool, rows: &Markup) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-label=(caption) {
            table {
                caption { (caption) }
                thead {
                    tr {
                        th scope="col" { (name) }
                        th.number scope="col" { "Requests" }
                        th.number scope="col" { "Input tokens" }
                        th.number scope="col" { "Cached input" }
                        th.number scope="col" { "Output tokens" }
                        th.number scope="col" { "Cost" }
                    }
                }
                tbody {
                    @if is_empty {
                        tr { td.muted colspan="6" { "Nothing was used in these days." } }
                    }
                    (rows)
                }
            }
        }
    }
}

fn cells(totals: &Totals) -> Markup {
    html! {
        td.number { (formatting::count(totals.calls)) }
        td.number { (formatting::count(totals.prompt)) }
        td.number { (formatting::count(totals.cached)) }
        td.number { (formatting::count(totals.completion)) }
        td.number { (formatting::money(totals.cost)) }
    }
}
