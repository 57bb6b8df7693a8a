//! The list of everyone who can sign in, with search.

use std::sync::Arc;

use axum::extract::State;
use maud::{Markup, html};
use serde::Deserialize;

use super::{
    access::SignedInOperator,
    account_names::AccountNames,
    frame::{self, Place, search},
    paging,
};
use crate::{
    backoffice::{Person, Role},
    gateway::Gateway,
    portal::{
        error::PortalError,
        formatting::moment,
        layout::{self, Page},
        query::{ReadQuery, non_empty},
        table::scrolled,
    },
};

#[derive(Deserialize)]
pub(crate) struct PeopleQuery {
    text: Option<String>,
    before: Option<String>,
}

pub(crate) async fn list(
    State(gateway): State<Arc<Gateway>>,
    me: SignedInOperator,
    ReadQuery(query): ReadQuery<PeopleQuery>,
) -> Result<Page, PortalError> {
    let text = non_empty(query.text.as_ref()).unwrap_or_default();
    let before = paging::cursor(query.before.as_ref(), "people", paging::position)?;
    let is_first = before.is_none();
    let page = gateway
        .backoffice
        .people_page(text, before, paging::QUERIED);
    let mut people = page.await?;
    let newest = format!("/portal/console/people?text={}", layout::encoded(text));
    let older = paging::cut(&mut people).map(|last| {
        format!(
            "{newest}&before={}-{}",
            last.created_at,
            layout::encoded(&last.id)
        )
    });
    let newest = (!is_first).then_some(newest);
    let ids = people.iter().map(|person| person.account_id.as_str());
    let names = AccountNames::read(&gateway, ids).await?;
    let content = html! {
        h1 { "People" }
        p.muted { "Everyone who can sign in. They are invited, given a role and removed on the page of their account." }
        (search("/portal/console/people", "Part of an email", text))
        @if people.is_empty() {
            p.empty { @if is_first { "No matching people." } @else { "No older people." } }
        } @else {
            (scrolled("People", &table(&people, &names)))
        }
        (paging::links("people", newest.as_deref(), older.as_deref()))
    };
    Ok(frame::page(&me, Place::People, "People", &content))
}

fn table(people: &[Person], names: &AccountNames) -> Markup {
    html! {
        table {
            caption { "People, newest first" }
            thead { tr {
                th scope="col" { "Email" }
                th scope="col" { "Name" }
                th scope="col" { "Role" }
                th scope="col" { "Account" }
                th scope="col" { "Since" }
            } }
            tbody {
                @for person in people {
                    tr {
                        th scope="row" { (person.email) }
                        td { (name(person)) }
                        td { (role(person.role)) }
                        td { (names.link_to(&person.account_id, "#people")) }
                        td { (moment(person.created_at)) }
                    }
                }
            }
        }
    }
}

pub(crate) fn name(person: &Person) -> Markup {
    html! {
        @match &person.name {
            Some(name) => { (name) },
            None => { span.muted { "–" } },
        }
    }
}

pub(crate) fn role(role: Role) -> Markup {
    match role {
        Role::Operator => html! { span.badge.good { "operator" } },
        Role::Customer => html! { span.badge { "customer" } },
    }
}
