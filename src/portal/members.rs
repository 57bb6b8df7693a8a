//! The members of the account: who they are, invitations, roles, removal, and leaving.
//!
//! Every member sees the list; only owners change it. Each change is recorded as an action of the owner.

use std::sync::Arc;

use axum::{
    Router,
    extract::{Path, State},
    response::{IntoResponse as _, Response},
    routing::{get, post},
};
use maud::{Markup, html};
use serde::Deserialize;

mod invitations;
mod leave;

use super::{
    confirmation::Confirmation,
    error::PortalError,
    form::{EmptyForm, SignedForm},
    formatting::moment,
    layout::{self, Page, Place},
    question::Question,
    rights::Right,
    session::SignedIn,
    sign_in::problem_notice,
    table::scrolled,
};
use crate::{
    backoffice::{Person, Role, TeamRole},
    gateway::{Gateway, actions::OperatorActions},
};

pub(crate) fn router() -> Router<Arc<Gateway>> {
    Router::new()
        .route(PATH, get(show))
        .route(
            "/portal/members/leave",
            get(leave::confirm).post(leave::leave),
        )
        .route("/portal/members/invitations", post(invitations::invite))
        .route(
            "/portal/members/invitations/withdraw",
            get(invitations::confirm_withdraw).post(invitations::withdraw),
        )
        .route("/portal/members/{id}/role", post(set_role))
        .route(
            "/portal/members/{id}/remove",
            get(confirm_remove).post(remove),
        )
}

const PATH: &str = "/portal/members";

async fn show(State(gateway): State<Arc<Gateway>>, me: SignedIn) -> Result<Page, PortalError> {
    page(&gateway, &me, None).await
}

async fn page(
    gateway: &Gateway,
    me: &SignedIn,
    problem: Option<&str>,
) -> Result<Page, PortalError> {
    let people = gateway.backoffice.people_of(&me.account.id).await?;
    let content = html! {
        h1 { "Members" }
        p.muted { "People who can sign in to this account, and what they can do." }
        (problem_notice(problem))
        (scrolled("Members", &table(me, &people)))
        @if me.may(Right::Members) { (invitations::section(gateway, me).await?) }
        (roles())
        p { a href="/portal/members/leave" { "Leave this account" } }
    };
    Ok(layout::page(me, Place::Members, "Members", &content))
}

fn table(me: &SignedIn, people: &[Person]) -> Markup {
    html! {
        table {
            caption { "Members, oldest first" }
            thead { tr {
                th scope="col" { "Email" }
                th scope="col" { "Name" }
                th scope="col" { "Role" }
                th scope="col" { "Since" }
                @if me.may(Right::Members) { th scope="col" { span.unseen { "Actions" } } }
            } }
            tbody {
                @for person in people {
                    tr {
                        th scope="row" {
                            (person.email)
                            @if person.id == me.person.id { " " span.badge.good { "you" } }
                        }
                        td { (person.name.as_deref().unwrap_or("–")) }
                        td { (person.team_role.as_str()) }
                        td { (moment(person.created_at)) }
                        @if me.may(Right::Members) { td { (forms(me, person)) } }
                    }
                }
            }
        }
    }
}

fn forms(me: &SignedIn, person: &Person) -> Markup {
    let path = format!("{PATH}/{}", person.id);
    html! {
        @if is_changeable(me, person) {
            div.actions {
                form method="post" action={ (path) "/role" } {
                    (me.token_field())
                    (role_field(&format!("Role of {}", person.email), person.team_role))
                    button.quiet type="submit" { "Change" span.unseen { " the role of " (person.email) } }
                }
                @if person.id != me.person.id {
                    a.quiet.button.bad href={ (path) "/remove" } { "Remove" span.unseen { " " (person.email) } }
                }
            }
        }
    }
}

/// A field to choose a role, with a label for screen readers.
fn role_field(label: &str, chosen: TeamRole) -> Markup {
    html! {
        select name="role" aria-label=(label) {
            @for role in TeamRole::ALL {
                option value=(role.as_str()) selected[role == chosen] { (role.as_str()) }
            }
        }
    }
}

/// What each role may do.
fn roles() -> Markup {
    let rows = [
        (
            TeamRole::Owner,
            "Everything: keys and requests of all members, credit, and the members themselves.",
        ),
        (
            TeamRole::Billing,
            "Credit, payments and usage; no keys and no requests.",
        ),
        (
            TeamRole::Developer,
            "Keys of their own, the playground, and the usage and requests of their keys and of the projects that these belong to.",
        ),
        (
            TeamRole::Viewer,
            "Usage and models, without changing anything.",
        ),
    ];
    html! {
        section {
            h2 { "Roles" }
            dl {
                @for (role, what) in rows { dt { (role.as_str()) } dd { (what) } }
            }
        }
    }
}

/// Operators of the gateway are changed by operators only.
fn is_changeable(me: &SignedIn, person: &Person) -> bool {
    person.role != Role::Operator || me.person.role == Role::Operator
}

/// A member of the account whom the owner may change.
async fn changeable(gateway: &Gateway, me: &SignedIn, id: &str) -> Result<Person, PortalError> {
    let person = gateway.backoffice.person(id).await?;
    let person = person.filter(|person| person.account_id == me.account.id);
    let person = person.ok_or(PortalError::NotFound)?;
    if !is_changeable(me, &person) {
        let problem =
            "This member is an operator of the gateway. Only an operator can change them.";
        return Err(PortalError::Invalid(problem.into()));
    }
    Ok(person)
}

#[derive(Deserialize)]
struct NewRole {
    #[serde(default)]
    role: String,
    /// Not empty once an owner has seen the question about their own role.
    #[serde(default)]
    confirmed: String,
}

/// Asks owners before they give up their own role, which they cannot take back.
fn ask(me: &SignedIn, role: TeamRole) -> Page {
    let new = with_article(role);
    let question = Question {
        title: &format!("Become {new}?"),
        consequences: "You are no longer an owner of this account and cannot change that back: only another owner can make you one again.",
        path: &format!("{PATH}/{}/role", me.person.id),
        fields: &[("role", role.as_str()), ("confirmed", "yes")],
        yes: &format!("Become {new}"),
        no: ("Cancel", PATH),
    };
    let content = question.shown(&me.token_field());
    layout::page(me, Place::Members, "Your role", &content)
}

/// Whether another member is an owner too. The last owner is refused, not asked.
async fn has_other_owner(gateway: &Gateway, me: &SignedIn) -> Result<bool, PortalError> {
    let people = gateway.backoffice.people_of(&me.account.id).await?;
    let mut others = people.iter().filter(|person| person.id != me.person.id);
    Ok(others.any(|person| person.team_role == TeamRole::Owner))
}

async fn set_role(
    State(gateway): State<Arc<Gateway>>,
    Path(id): Path<String>,
    SignedForm { me, form }: SignedForm<NewRole>,
) -> Result<Response, PortalError> {
    let person = changeable(&gateway, &me, &id).await?;
    let role = read_role(&form.role)?;
    let mut done = Confirmation::new(format!("{} is now {}.", person.email, with_article(role)));
    if person.id == me.person.id {
        let is_asked = role != TeamRole::Owner && form.confirmed.is_empty();
        if is_asked && has_other_owner(&gateway, &me).await? {
            return Ok(ask(&me, role).into_response());
        }
    } else {
        let before = person.team_role.as_str();
        done = done.undone_by(&format!("{PATH}/{}/role", person.id), &[("role", before)]);
    }
    match actions(&gateway, &me).set_team_role(person.id, role).await {
        Ok(_) => Ok(me.redirect(PATH, &done)),
        Err(error) => refused(&gateway, &me, error.into()).await,
    }
}

async fn confirm_remove(
    State(gateway): State<Arc<Gateway>>,
    Path(id): Path<String>,
    me: SignedIn,
) -> Result<Page, PortalError> {
    let person = changeable(&gateway, &me, &id).await?;
    let question = Question {
        title: &format!("Remove {}?", person.email),
        consequences: "They are signed out at once, and the keys that they made are permanently deleted. Running requests finish and are charged. Their usage stays in your history.",
        path: &format!("{PATH}/{}/remove", person.id),
        fields: &[],
        yes: "Remove member",
        no: ("Cancel", PATH),
    };
    let content = question.shown(&me.token_field());
    Ok(layout::page(
        &me,
        Place::Members,
        "Remove a member",
        &content,
    ))
}

async fn remove(
    State(gateway): State<Arc<Gateway>>,
    Path(id): Path<String>,
    SignedForm { me, form: _ }: SignedForm<EmptyForm>,
) -> Result<Response, PortalError> {
    let person = changeable(&gateway, &me, &id).await?;
    let done = Confirmation::new(format!("{} removed. Their keys are deleted.", person.email));
    match actions(&gateway, &me).remove_member(person.id).await {
        Ok(_) => Ok(me.redirect(PATH, &done)),
        Err(error) => refused(&gateway, &me, error.into()).await,
    }
}

/// The list with why nothing was changed, status 409, if the change would have left the account without an owner.
async fn refused(
    gateway: &Gateway,
    me: &SignedIn,
    error: PortalError,
) -> Result<Response, PortalError> {
    match error {
        PortalError::LastOwner(_) => {
            let page = page(gateway, me, Some(&error.to_string())).await?;
            Ok((error.status(), page).into_response())
        }
        error => Err(error),
    }
}

fn with_article(role: TeamRole) -> &'static str {
    match role {
        TeamRole::Owner => "an owner",
        TeamRole::Billing => "a billing member",
        TeamRole::Developer => "a developer",
        TeamRole::Viewer => "a viewer",
    }
}

fn read_role(text: &str) -> Result<TeamRole, PortalError> {
    TeamRole::parse(text).ok_or_else(|| PortalError::Invalid("There is no such role.".into()))
}

/// The actions of a member, who is recorded by email address, as operators are.
fn actions(gateway: &Arc<Gateway>, me: &SignedIn) -> OperatorActions {
    OperatorActions::by(gateway, &me.person.email)
}
