//! Receipts and monthly statements: pages to print or to save as PDF.

use std::sync::Arc;

use axum::extract::{Path, State};
use maud::{Markup, html};

use super::history::signed;
use crate::{
    backoffice::{Checkout, Receipt, payments::TEST_PROVIDER},
    base::{money::NanoUsd, month::Month, timestamp},
    gateway::{
        Gateway,
        actions::ActionError,
        statements::{self, Line, Statement},
    },
    portal::{
        assets, days,
        error::PortalError,
        formatting::{count, moment, money},
        layout::{self, Page, Place},
        session::SignedIn,
        table::scrolled,
        test_mode,
    },
};

/// The list of statements.
pub(crate) async fn list(
    State(gateway): State<Arc<Gateway>>,
    me: SignedIn,
) -> Result<Page, PortalError> {
    let now_ms = timestamp::now_ms();
    let months = statements::months(&gateway, &me.account, now_ms).await;
    let months = months.map_err(unavailable)?;
    let content = html! {
        p.back { a href="/portal/billing" { "Billing" } }
        h1 { "Statements" }
        p { "A month’s statement is final an hour after the month has ended (UTC), and does not change after that." }
        ul {
            @for month in &months {
                li {
                    a href={ "/portal/billing/statements/" (month) } { (named(&month.to_string())) }
                    @if *month == Month::of_ms(now_ms) { " " span.badge { "To date" } }
                }
            }
        }
        p { a href="/portal/billing/details" { "Change the name and address on statements" } }
    };
    Ok(layout::page(&me, Place::Billing, "Statements", &content))
}

pub(crate) async fn statement(
    State(gateway): State<Arc<Gateway>>,
    Path(month): Path<String>,
    me: SignedIn,
) -> Result<Page, PortalError> {
    let month = Month::parse(&month).ok_or(PortalError::NotFound)?;
    let made = statements::statement(&gateway, &me.account, month, timestamp::now_ms()).await;
    let made = made.map_err(unavailable)?.ok_or(PortalError::NotFound)?;
    let to = bill_to(&gateway, &me).await?;
    let title = match made.issued_at {
        Some(_) => format!("Statement {}", made.number(&me.account.id)),
        None => format!("Statement to date, {}", named(&made.month)),
    };
    let content = html! {
        (head(&title))
        (parties(&gateway, &to))
        dl {
            dt { "Period" } dd { (named(&made.month)) " (UTC)" }
            dt { "Account" } dd { code { (me.account.id) } }
            dt { "Issued" }
            dd { @match made.issued_at { Some(at) => { (moment(at)) }, None => { "Not final: the month is not over" } } }
        }
        (statement_table(&made))
    };
    Ok(document(
        &title,
        "/portal/billing/statements",
        "Statements",
        &content,
    ))
}

fn statement_table(made: &Statement) -> Markup {
    html! {
        (scrolled("Statement", &html! {
            table {
                caption { "All amounts in US dollars; days in UTC" }
                thead {
                    tr {
                        th scope="col" { "Date" }
                        th scope="col" { "Description" }
                        th.number scope="col" { "Requests" }
                        th.number scope="col" { "Tokens" }
                        th.number scope="col" { "Amount" }
                    }
                }
                tbody.sum { (balance_row("Opening balance", made.opening)) }
                tbody { @for line in &made.lines { (statement_line(line)) } }
                tbody.sum { (balance_row("Closing balance", made.closing)) }
            }
        }))
        h2 { "Summary" }
        dl.totals {
            dt { "Opening balance" } dd { (amount(made.opening)) }
            @for (name, sum) in statements::totals(made) {
                dt { (name) } dd { (signed(sum.nanos())) }
            }
            dt { "Closing balance" } dd { (amount(made.closing)) }
        }
    }
}

fn balance_row(name: &str, balance: i64) -> Markup {
    html! { tr { td {} th scope="row" { (name) } td {} td {} td.number { (amount(balance)) } } }
}

fn statement_line(line: &Line) -> Markup {
    html! {
        tr {
            @match line {
                Line::Charges { day, model, requests, tokens, amount } => {
                    td { time datetime=(day) { (days::long(day)) } }
                    th scope="row" { (model) }
                    td.number { (count(*requests)) }
                    td.number { (count(*tokens)) }
                    td.number { (signed(*amount)) }
                },
                Line::Entry { at, text, amount, .. } => {
                    td { (days::long(&timestamp::day(*at))) }
                    th scope="row" { (text) }
                    td {} td {}
                    td.number { (signed(*amount)) }
                },
                Line::Sum { text, amount, .. } => {
                    td {}
                    th scope="row" { (text) }
                    td {} td {}
                    td.number { (signed(*amount)) }
                },
            }
        }
    }
}

pub(crate) async fn receipt(
    State(gateway): State<Arc<Gateway>>,
    Path(number): Path<String>,
    me: SignedIn,
) -> Result<Page, PortalError> {
    if number.contains('\0') {
        return Err(PortalError::NotFound);
    }
    let found = gateway.backoffice.receipt(&me.account.id, &number).await?;
    let checkout = found.ok_or(PortalError::NotFound)?;
    let paid = checkout.receipt.as_ref().ok_or(PortalError::NotFound)?;
    let to = bill_to(&gateway, &me).await?;
    let title = format!("Receipt {}", paid.number);
    let content = html! {
        (head(&title))
        @if checkout.provider == TEST_PROVIDER { p.notice { "Test payment: no card was charged." } }
        (parties(&gateway, &to))
        (receipt_details(&checkout, paid, &me))
    };
    Ok(document(&title, "/portal/billing", "Billing", &content))
}

fn receipt_details(checkout: &Checkout, paid: &Receipt, me: &SignedIn) -> Markup {
    html! {
        dl {
            dt { "Date paid" } dd { (moment(paid.paid_at)) }
            dt { "Paid with" }
            dd { @if checkout.provider == TEST_PROVIDER { "Test payment" } @else { "Card, by Stripe" } }
            @if let Some(session) = &checkout.session { dt { "Payment" } dd { code { (session) } } }
            dt { "Ordered by" }
            dd { @if checkout.automatic { "Auto top-up, set up by " } (checkout.person) }
            dt { "Account" } dd { code { (me.account.id) } }
        }
        table {
            caption { "Amounts in US dollars" }
            thead { tr { th scope="col" { "Item" } th.number scope="col" { "Amount" } } }
            tbody {
                tr {
                    th scope="row" {
                        "Credit for API requests"
                        @if let Some(at) = paid.expires_at { ", expires " (moment(at)) }
                    }
                    td.number { (money(paid.amount)) }
                }
            }
            tfoot { tr { th scope="row" { "Total paid" } td.number { (money(paid.amount)) } } }
        }
    }
}

/// The title, and what is not printed.
fn head(title: &str) -> Markup {
    html! {
        h1 { (title) }
        p.no-print {
            button.primary type="button" hidden data-print { "Print or save as PDF" }
            noscript { "To save this page as PDF, print it." }
        }
    }
}

fn parties(gateway: &Gateway, to: &[String]) -> Markup {
    let seller = &gateway.portal.seller;
    html! {
        div.parties {
            section {
                h2 { "From" }
                @if seller.is_empty() { p { (gateway.portal.url) } }
                @else { p { @for line in seller { (line) br; } } }
            }
            section {
                h2 { "To" }
                p { @for line in to { (line) br; } }
                p.no-print { a href="/portal/billing/details" { "Change" span.unseen { " the name and address" } } }
            }
        }
    }
}

/// The customer's lines: those that were entered, or else what is known of the account.
async fn bill_to(gateway: &Gateway, me: &SignedIn) -> Result<Vec<String>, PortalError> {
    let entered = gateway.backoffice.bill_to(&me.account.id).await?;
    if !entered.is_empty() {
        return Ok(entered.lines().map(str::to_owned).collect());
    }
    let name = me.account.name.clone();
    Ok(name.into_iter().chain([me.account.email.clone()]).collect())
}

fn document(title: &str, back: &str, back_name: &str, content: &Markup) -> Page {
    let styles = html! { link rel="stylesheet" href=(assets::path("documents.css")); };
    let body = html! {
        main.document #content tabindex="-1" {
            (test_mode::notice())
            p.back.no-print { a href=(back) { (back_name) } }
            (content)
        }
    };
    layout::framed(title, &styles, &body)
}

/// `October 2026`.
fn named(month: &str) -> String {
    const NAMES: [&str; 12] = [
        "January",
        "February",
        "March",
        "April",
        "May",
        "June",
        "July",
        "August",
        "September",
        "October",
        "November",
        "December",
    ];
    let parts = month.split_once('-');
    let named = parts.and_then(|(year, number)| {
        let number: usize = number.parse().ok()?;
        let name = NAMES.get(number.checked_sub(1)?)?;
        Some(format!("{name} {year}"))
    });
    named.unwrap_or_else(|| month.to_owned())
}

fn amount(nanos: i64) -> String {
    money(NanoUsd::new(nanos))
}

fn unavailable(error: ActionError) -> PortalError {
    match error {
        ActionError::Ledger(error) => error.into(),
        ActionError::Backoffice(error) => error.into(),
        error => PortalError::Unavailable(error.to_string()),
    }
}
