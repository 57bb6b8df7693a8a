//! The people of an account: invite, change roles, reset passwords, remove.

use std::sync::Arc;

use axum::{extract::State, response::Response};
use maud::{Markup, html};
use serde::Deserialize;

use super::{
    access::{Id, OperatorForm, SignedInOperator},
    accounts::path,
    frame::{self, Place},
    people::{name, role},
};
use crate::{
    backoffice::{Link, Person, Role},
    gateway::{
        Gateway,
        actions::{OneTimeLink, Roles},
    },
    portal::{
        confirmation::Confirmation,
        error::PortalError,
        form::EmptyForm,
        formatting::moment,
        layout::{self, Page},
        query::ReadQuery,
        question::Question,
        snippets::copy_button,
        table::scrolled,
    },
};

/// The roles of an invitation: those in the account, and that of an operator, who is an owner too.
const ROLES: [&str; 5] = ["owner", "billing", "developer", "viewer", "operator"];

pub(crate) fn section(
    me: &SignedInOperator,
    account_id: &str,
    people: &[Person],
    invited: &[Link],
) -> Markup {
    let table = html! {
        table {
            caption { "Members, oldest first" }
            thead { tr {
                th scope="col" { "Email" }
                th scope="col" { "Name" }
                th scope="col" { "Role" }
                th scope="col" { "Role in the account" }
                th scope="col" { "Two-factor" }
                th scope="col" { "Since" }
                th scope="col" { span.unseen { "Actions" } }
            } }
            tbody {
                @for person in people {
                    tr {
                        th scope="row" { (person.email) }
                        td data-label="Name" { (name(person)) }
                        td data-label="Role" { (role(person.role)) }
                        td data-label="Role in the account" { (person.team_role.as_str()) }
                        td data-label="Two-factor" { @if person.second_factor_at.is_some() { "on" } @else { "–" } }
                        td data-label="Since" { (moment(person.created_at)) }
                        td { div.actions { (forms(me, person)) } }
                    }
                }
            }
        }
    };
    html! {
        section #people {
            h2 { "Members" }
            @if people.is_empty() { p.empty { "No members yet." } }
            @else { (scrolled("People", &table)) }
            (open_invitations(account_id, invited))
            form.inline method="post" action={ (path(account_id)) "/invitations" } {
                (me.token_field())
                label { "Invite by email"
                    input type="email" name="email" required maxlength="254" autocomplete="off";
                }
                label { "Role"
                    select name="role" {
                        @for role in ROLES { option value=(role) { (role) } }
                    }
                }
                button type="submit" { "Invite" }
            }
        }
    }
}

/// The table of open invitations; empty if there are none.
fn open_invitations(account_id: &str, invited: &[Link]) -> Markup {
    let table = html! {
        table {
            caption { "Pending invitations" }
            thead { tr {
                th scope="col" { "Email" }
                th scope="col" { "Valid until" }
                th scope="col" { span.unseen { "Actions" } }
            } }
            tbody {
                @for link in invited {
                    tr {
                        th scope="row" { (link.email) }
                        td { (moment(link.expires_at)) }
                        td {
                            a.quiet.button href={ (path(account_id)) "/invitations/withdraw?email=" (layout::encoded(&link.email)) } {
                                "Withdraw" span.unseen { " the invitation of " (link.email) }
                            }
                        }
                    }
                }
            }
        }
    };
    html! { @if !invited.is_empty() { (scrolled("Invitations", &table)) } }
}

fn forms(me: &SignedInOperator, person: &Person) -> Markup {
    let address = person_path(&person.id);
    let (other, verb) = match person.role {
        Role::Customer => (Role::Operator, "Make operator"),
        Role::Operator => (Role::Customer, "Make customer"),
    };
    html! {
        @if !is_oneself(me, person) {
            form method="post" action={ (address) "/role" } {
                (me.token_field())
                input type="hidden" name="role" value=(other.as_str());
                button.quiet type="submit" { (verb) span.unseen { " " (person.email) } }
            }
        }
        form method="post" action={ (address) "/reset" } {
            (me.token_field())
            button.quiet type="submit" { "New password" span.unseen { " for " (person.email) } }
        }
        @if !is_oneself(me, person) && person.second_factor_at.is_some() {
            a.quiet.button href={ (address) "/second-factor" } {
                "Reset two-factor" span.unseen { " of " (person.email) }
            }
        }
        @if !is_oneself(me, person) {
            a.quiet.button.bad href={ (address) "/remove" } { "Remove" span.unseen { " " (person.email) } }
        }
        a.quiet.button href={ "/portal/console/actions?subject=" (layout::encoded(&person.id)) } {
            "History" span.unseen { " of " (person.email) }
        }
    }
}

fn person_path(id: &str) -> String {
    format!("/portal/console/people/{}", layout::encoded(id))
}

fn is_oneself(me: &SignedInOperator, person: &Person) -> bool {
    let known = me.session.person.as_ref();
    known.is_some_and(|known| known.id == person.id)
}

#[derive(Deserialize)]
pub(crate) struct InvitationForm {
    #[serde(default)]
    email: String,
    #[serde(default)]
    role: String,
}

pub(crate) async fn invite(
    State(gateway): State<Arc<Gateway>>,
    Id(id): Id,
    OperatorForm { me, form }: OperatorForm<InvitationForm>,
) -> Result<Page, PortalError> {
    let roles = Roles::parse(&form.role).ok_or_else(no_such_role)?;
    let back = path(&id);
    let actions = me.actions(&gateway);
    let handed = actions.invite(id, &form.email, roles).await?;
    Ok(handed_page(&me, "An invitation", &handed, &back))
}

#[derive(Deserialize)]
pub(crate) struct WithdrawForm {
    #[serde(default)]
    email: String,
}

pub(crate) async fn confirm_withdraw(
    me: SignedInOperator,
    Id(id): Id,
    ReadQuery(query): ReadQuery<WithdrawForm>,
) -> Page {
    let back = path(&id);
    let question = Question {
        title: &format!("Withdraw the invitation of {}?", query.email),
        consequences: "The link in it stops working. You can invite them again with a new one.",
        path: &format!("{back}/invitations/withdraw"),
        fields: &[("email", &query.email)],
        yes: "Withdraw the invitation",
        no: ("Cancel", &back),
    };
    let content = question.shown(&me.token_field());
    frame::page(&me, Place::Accounts, "Withdraw an invitation", &content)
}

pub(crate) async fn withdraw(
    State(gateway): State<Arc<Gateway>>,
    Id(id): Id,
    OperatorForm { me, form }: OperatorForm<WithdrawForm>,
) -> Result<Response, PortalError> {
    let back = path(&id);
    let done = Confirmation::new(format!("Invitation of {} withdrawn.", form.email));
    let actions = me.actions(&gateway);
    actions.withdraw_invitation(id, form.email).await?;
    Ok(me.redirect(&back, &done))
}

pub(crate) async fn reset(
    State(gateway): State<Arc<Gateway>>,
    Id(id): Id,
    OperatorForm { me, form: _ }: OperatorForm<EmptyForm>,
) -> Result<Page, PortalError> {
    let person = found(&gateway, &id).await?;
    let handed = me.actions(&gateway).reset_password(id).await?;
    let back = path(&person.account_id);
    Ok(handed_page(&me, "A new password", &handed, &back))
}

/// The page with a new one-time link, the only place where it is shown.
fn handed_page(me: &SignedInOperator, title: &str, handed: &OneTimeLink, back: &str) -> Page {
    let content = html! {
        h1 { (title) }
        p {
            "This link is for " strong { (handed.email) } ". It works once, until "
            (moment(handed.expires_at)) ", and is not shown again. Anyone who has it can sign in."
        }
        @if handed.mailed { p { "It was sent to them by email." } }
        @else { p { "It was not sent by email: send it yourself." } }
        div.copyable.secret {
            code #new-link { (handed.url.reveal()) }
            (copy_button("Copy", "the link"))
        }
        p { a.button href={ (back) "#people" } { "I have copied it" } }
    };
    frame::page(me, Place::Accounts, title, &content)
}

#[derive(Deserialize)]
pub(crate) struct NewRole {
    #[serde(default)]
    role: String,
}

pub(crate) async fn set_role(
    State(gateway): State<Arc<Gateway>>,
    Id(id): Id,
    OperatorForm { me, form }: OperatorForm<NewRole>,
) -> Result<Response, PortalError> {
    let role = read_role(&form.role)?;
    let before = found(&gateway, &id).await?.role;
    let person = me.actions(&gateway).set_role(id, role).await?;
    let now = match role {
        Role::Operator => "an operator",
        Role::Customer => "a customer",
    };
    let undo = format!("{}/role", person_path(&person.id));
    let done = Confirmation::new(format!("{} is now {now}.", person.email))
        .undone_by(&undo, &[("role", before.as_str())]);
    Ok(me.redirect(&path(&person.account_id), &done))
}

pub(crate) async fn confirm_remove(
    State(gateway): State<Arc<Gateway>>,
    me: SignedInOperator,
    Id(id): Id,
) -> Result<Page, PortalError> {
    let person = found(&gateway, &id).await?;
    let back = path(&person.account_id);
    let question = Question {
        title: &format!("Remove {}?", person.email),
        consequences: "They are signed out everywhere and cannot sign in any more. The account stays, with its keys and its credit. API keys that they know work until they are disabled.",
        path: &format!("{}/remove", person_path(&person.id)),
        fields: &[],
        yes: "Remove person",
        no: ("Cancel", &back),
    };
    let content = question.shown(&me.token_field());
    Ok(frame::page(
        &me,
        Place::Accounts,
        "Remove a person",
        &content,
    ))
}

pub(crate) async fn remove(
    State(gateway): State<Arc<Gateway>>,
    Id(id): Id,
    OperatorForm { me, form: _ }: OperatorForm<EmptyForm>,
) -> Result<Response, PortalError> {
    let person = me.actions(&gateway).remove_person(id).await?;
    let done = Confirmation::new(format!("{} removed.", person.email));
    Ok(me.redirect(&path(&person.account_id), &done))
}

pub(crate) async fn confirm_factor_reset(
    State(gateway): State<Arc<Gateway>>,
    me: SignedInOperator,
    Id(id): Id,
) -> Result<Page, PortalError> {
    let person = found(&gateway, &id).await?;
    let back = path(&person.account_id);
    let title = "Reset two-factor authentication";
    let question = Question {
        title: &format!("{title} of {}?", person.email),
        consequences: "They sign in with their password alone until they set it up again. Verify that the request really comes from them: call them back, or ask for something that only they know.",
        path: &format!("{}/second-factor", person_path(&person.id)),
        fields: &[],
        yes: "Reset two-factor authentication",
        no: ("Cancel", &back),
    };
    let content = question.shown(&me.token_field());
    Ok(frame::page(&me, Place::Accounts, title, &content))
}

pub(crate) async fn reset_factor(
    State(gateway): State<Arc<Gateway>>,
    Id(id): Id,
    OperatorForm { me, form: _ }: OperatorForm<EmptyForm>,
) -> Result<Response, PortalError> {
    let person = me.actions(&gateway).reset_second_factor(id).await?;
    let done = format!("Two-factor authentication of {} reset.", person.email);
    let back = format!("{}#people", path(&person.account_id));
    Ok(me.redirect(&back, &Confirmation::new(done)))
}

async fn found(gateway: &Gateway, id: &str) -> Result<Person, PortalError> {
    let person = gateway.backoffice.person(id).await?;
    person.ok_or(PortalError::NotFound)
}

fn read_role(text: &str) -> Result<Role, PortalError> {
    Role::parse(text).ok_or_else(no_such_role)
}

fn no_such_role() -> PortalError {
    PortalError::Invalid("There is no such role.".into())
}
