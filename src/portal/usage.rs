//! The usage page: requests, errors, tokens, cost and latency by model, key, project, member or session, and by day, hour or
//! minute.

use std::{collections::HashMap, sync::Arc};

use axum::{extract::State, response::Response};
use maud::{Markup, html};
use serde::Deserialize;

mod csv;
mod latency;
mod names;
mod period;
mod sessions;
mod shown;
mod sums;

use self::{
    latency::{Latencies, Latency, cell},
    names::Names,
    period::{Bars, Period, PeriodQuery},
    shown::{Shown, choices},
    sums::{Group, GroupBy, Totals},
};
use super::{
    chart::{Chart, Series, Unit},
    csv::attachment,
    days,
    error::PortalError,
    formatting,
    layout::{self, Page, Place},
    paging,
    query::{ReadQuery, non_empty},
    rights::Right,
    session::SignedIn,
    sight::Sight,
    table::scrolled,
};
use crate::{
    base::timestamp,
    gateway::Gateway,
    ledger::{DayUse, SessionCursor, SessionUse, SessionsPage, SpansPage, SumsOf, Timing},
};

#[derive(Deserialize)]
pub(crate) struct UsageQuery {
    #[serde(flatten)]
    period: PeriodQuery,
    by: Option<String>,
    /// The last session of the page before.
    before: Option<String>,
}

impl UsageQuery {
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

/// The selected period and its usage rows.
struct PeriodUsage {
    bars: Bars,
    rows: Vec<DayUse>,
    sight: Sight,
}

impl PeriodUsage {
    /// The period, without its rows.
    async fn of(gateway: &Gateway, me: &SignedIn, period: Period) -> Result<Self, PortalError> {
        Ok(Self {
            bars: period.bars(timestamp::now()),
            rows: Vec::new(),
            sight: Sight::of(gateway, me).await?,
        })
    }

    /// Days are summed up in the ledger. Hours and minutes are sums of the calls of a day at most.
    async fn read(
        &self,
        gateway: &Gateway,
        me: &SignedIn,
        sums_of: SumsOf,
    ) -> Result<Vec<DayUse>, PortalError> {
        let Self { bars, sight, .. } = self;
        if let Some(step) = bars.step {
            let page = SpansPage {
                account_id: me.account.id.clone(),
                seen: sight.calls().cloned(),
                from_ms: bars.begin.saturating_mul(1_000),
                to_ms: bars.end.saturating_mul(1_000),
                step_ms: step.saturating_mul(1_000),
            };
            return Ok(gateway.ledger.usage_spans(page).await?);
        }
        let first = bars.names.first().map_or("", String::as_str);
        let last = bars.names.last().map_or("", String::as_str);
        let account_id = &me.account.id;
        let rows = gateway
            .ledger
            .usage_days(account_id, (first, last), sight.sums(sums_of));
        let mut rows = rows.await?;
        sight.restrict(gateway, &mut rows).await?;
        Ok(rows)
    }

    /// How long the latest answered requests of the period took.
    async fn timings(&self, gateway: &Gateway, me: &SignedIn) -> Result<Vec<Timing>, PortalError> {
        let (begin, end) = (self.begin_ms(), self.bars.end.saturating_mul(1_000));
        let timings = gateway
            .ledger
            .latest_timings(&me.account.id, self.sight.calls(), begin, end);
        Ok(timings.await?)
    }

    fn begin_ms(&self) -> i64 {
        self.bars.begin.saturating_mul(1_000)
    }

    /// One page of the sessions of coding agents in the period. It reads the calls of the period, so it is read only where
    /// it is shown.
    async fn sessions(
        &self,
        gateway: &Gateway,
        me: &SignedIn,
        before: Option<SessionCursor>,
    ) -> Result<Vec<SessionUse>, PortalError> {
        let page = SessionsPage {
            account_id: Some(me.account.id.clone()),
            seen: self.sight.calls().cloned(),
            from_ms: self.begin_ms(),
            to_ms: self.bars.end.saturating_mul(1_000),
            before,
            limit: paging::QUERIED,
        };
        Ok(gateway.ledger.sessions(page).await?)
    }

    /// How many requests of the period got the response of another one. They are counted for the account as a whole.
    async fn replays(&self, gateway: &Gateway, me: &SignedIn) -> Result<u64, PortalError> {
        if self.sight.calls().is_some() {
            return Ok(0);
        }
        let counting = gateway
            .ledger
            .count_replays(&me.account.id, self.bars.begin, self.bars.end);
        Ok(counting.await?)
    }
}

pub(crate) async fn show(
    State(gateway): State<Arc<Gateway>>,
    me: SignedIn,
    ReadQuery(query): ReadQuery<UsageQuery>,
) -> Result<Page, PortalError> {
    let (period, shown) = (Period::read(&query.period)?, query.shown()?);
    let mut used = PeriodUsage::of(&gateway, &me, period).await?;
    let (rows, timings, replays) = tokio::try_join!(
        used.read(&gateway, &me, shown.sums_of()),
        used.timings(&gateway, &me),
        used.replays(&gateway, &me),
    )?;
    used.rows = rows;
    let names = match shown {
        Shown::Groups(GroupBy::Model) | Shown::Sessions => Names::default(),
        Shown::Groups(_) => Names::read(&gateway, &me, &used.rows).await?,
    };
    let by = match shown {
        Shown::Groups(by) => Some(by),
        Shown::Sessions => None,
    };
    let latencies = Latencies::of(&timings, by, &names);
    let parts = if let Some(by) = by {
        groups(&used, by, &names, &latencies)
    } else {
        let before = query.before()?;
        let is_first = before.is_none();
        let mut sessions = used.sessions(&gateway, &me, before).await?;
        sessions::table(period, &mut sessions, is_first, me.may(Right::Requests))
    };
    let content = html! {
        h1 { "Usage" }
        @if used.bars.step.is_some() { p.muted data-zone-note { "Times are in UTC." } }
        (choices(period, shown))
        (totals(&Totals::of(&used.rows), replays, &latencies.all))
        (parts)
        (time_table(&used))
        (latencies.note())
        @if me.may(Right::Requests) {
            p.muted { a href="/portal/requests/refused" { "Refused requests" } " cost nothing and are not counted here." }
        }
        p { a.button href={ "/portal/usage.csv?" (period.query()) } download { "Download as CSV" } }
    };
    Ok(layout::page(&me, Place::Usage, "Usage", &content))
}

/// Charts and a table of the usage by model, key, project or member.
fn groups(used: &PeriodUsage, by: GroupBy, names: &Names, latencies: &Latencies<'_>) -> Markup {
    let groups = sums::grouped(&used.rows, by, names);
    html! {
        div.charts {
            (chart("cost", Unit::Dollars, &used.bars, &groups, |used| {
                u64::try_from(used.cost.nanos()).unwrap_or(0)
            }))
            (chart("requests", Unit::Requests, &used.bars, &groups, |used| used.calls))
        }
        (group_table(by, &groups, latencies))
    }
}

pub(crate) async fn csv(
    State(gateway): State<Arc<Gateway>>,
    me: SignedIn,
    ReadQuery(query): ReadQuery<UsageQuery>,
) -> Result<Response, PortalError> {
    let mut used = PeriodUsage::of(&gateway, &me, Period::read(&query.period)?).await?;
    used.rows = used.read(&gateway, &me, SumsOf::Each).await?;
    let names = Names::read(&gateway, &me, &used.rows).await?;
    let first = used.bars.names.first().map_or("", String::as_str);
    let last = used.bars.names.last().map_or("", String::as_str);
    let name = format!("usage-{first}-to-{last}").replace(':', "");
    let body = csv::render(&used.rows, &names).into();
    Ok(attachment(&name, body))
}

/// `replays` are the requests that got the response of another one.
fn totals(totals: &Totals, replays: u64, latency: &Latency) -> Markup {
    html! {
        div.grid {
            section.card {
                h2 { "Cost" }
                p.figure { (formatting::money(totals.cost)) }
            }
            section.card {
                h2 { "Requests" }
                p.figure { (formatting::count(totals.calls)) }
                p.muted {
                    (formatting::count(totals.errors())) " failed (" (totals.error_rate()) "), "
                    (formatting::count(totals.charged)) " charged"
                }
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
            (latency_card("Time to first token", latency.first_token()))
            (latency_card("Duration", latency.duration()))
        }
    }
}

/// The median of a latency, and its 95th percentile.
fn latency_card(title: &str, both: Option<(i64, i64)>) -> Markup {
    html! {
        @if let Some((median, high)) = both {
            section.card {
                h2 { (title) }
                p.figure { (formatting::duration(median)) }
                p.muted { "median; 95 % within " (formatting::duration(high)) }
            }
        }
    }
}

fn chart(
    what: &str,
    unit: Unit,
    bars: &Bars,
    groups: &[Group],
    value: impl Fn(&Totals) -> u64,
) -> Markup {
    let series = groups.iter().map(|group| Series {
        name: group.label(),
        values: bars
            .names
            .iter()
            .map(|name| group.by_day.get(name.as_str()).map_or(0, &value))
            .collect(),
    });
    let chart = Chart {
        title: &bars.titled(what),
        unit,
        days: &bars.names,
        series: series.collect(),
    };
    chart.draw()
}

fn group_table(by: GroupBy, groups: &[Group], latencies: &Latencies<'_>) -> Markup {
    let (caption, name) = match by {
        GroupBy::Model => ("Usage by model", "Model"),
        GroupBy::Key => ("Usage by key", "Key"),
        GroupBy::Project => ("Usage by project", "Project"),
        GroupBy::Member => ("Usage by member", "Member"),
    };
    let name = html! { (name) };
    let rows = html! {
        @for group in groups {
            @let latency = latencies.group(group.id);
            tr {
                th scope="row" {
                    (group.name)
                    @if let Some(prefix) = &group.prefix { " " code { (prefix) "…" } }
                }
                (cells(&group.totals))
                td.number data-label="Time to first token" { (cell(latency.and_then(Latency::first_token))) }
                td.number data-label="Duration" { (cell(latency.and_then(Latency::duration))) }
            }
        }
    };
    let more = ["Time to first token", "Duration"];
    table(caption, &name, &more, groups.is_empty(), &rows)
}

/// Usage by day, hour or minute, newest first. Those without requests have no row.
fn time_table(used: &PeriodUsage) -> Markup {
    let mut sums: HashMap<&str, Totals> = HashMap::new();
    for row in &used.rows {
        sums.entry(&row.day).or_default().add(row);
    }
    let newest = used.bars.names.iter().rev();
    let newest = newest.filter_map(|name| Some((name, sums.get(name.as_str())?)));
    let rows = html! {
        @for (name, totals) in newest {
            tr {
                th scope="row" {
                    @match timestamp::read(name) {
                        Some(time) => (formatting::minute(time)),
                        // Days begin at midnight in UTC for all readers.
                        None => (days::long(name)),
                    }
                }
                (cells(totals))
            }
        }
    };
    // A script shows times in the time zone of the reader.
    let of_time = |name: &str| html! { (name) " " span data-zone { "(UTC)" } };
    let (caption, name) = match used.bars.unit() {
        "day" => ("Usage by day", html! { "Day (UTC)" }),
        "hour" => ("Usage by hour", of_time("Hour")),
        _ => ("Usage by minute", of_time("Minute")),
    };
    table(caption, &name, &[], used.rows.is_empty(), &rows)
}

fn table(caption: &str, name: &Markup, more: &[&str], is_empty: bool, rows: &Markup) -> Markup {
    html! {
        (scrolled(caption, &html! {
            table {
                caption { (caption) }
                thead {
                    tr {
                        th scope="col" { (name) }
                        th.number scope="col" { "Requests" }
                        th.number scope="col" { "Errors" }
                        th.number scope="col" { "Input tokens" }
                        th.number scope="col" { "Cached input" }
                        th.number scope="col" { "Output tokens" }
                        th.number scope="col" { "Cost" }
                        @for name in more { th.number scope="col" { (name) } }
                    }
                }
                tbody {
                    @if is_empty {
                        tr { td.muted colspan=(7 + more.len()) { "No usage in this period." } }
                    }
                    (rows)
                }
            }
        }))
    }
}

fn cells(totals: &Totals) -> Markup {
    html! {
        td.number data-label="Requests" { (formatting::count(totals.calls)) }
        td.number data-label="Errors" { (totals.error_rate()) }
        td.number data-label="Input tokens" { (formatting::count(totals.prompt)) }
        td.number data-label="Cached input" { (formatting::count(totals.cached)) }
        td.number data-label="Output tokens" { (formatting::count(totals.completion)) }
        td.number data-label="Cost" { (formatting::money(totals.cost)) }
    }
}
