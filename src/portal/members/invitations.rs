//! Invitations to the account by its owners.

use std::sync::Arc;

use axum::{
    Extension,
    extract::State,
    http::StatusCode,
    response::{IntoResponse as _, Response},
};
use maud::{Markup, html};
use serde::Deserialize;

use super::{PATH, actions, page, read_role, role_field};
use crate::{
    api::Peer,
    backoffice::{Link, Purpose, TeamRole},
    base::timestamp,
    gateway::{
        Gateway,
        actions::{OneTimeLink, Roles},
    },
    portal::{
        confirmation::Confirmation,
        error::PortalError,
        form::SignedForm,
        formatting::moment,
        layout::{self, Page, Place},
        query::ReadQuery,
        question::Question,
        session::SignedIn,
        snippets::copy_button,
        table::scrolled,
    },
};

const WITHDRAW: &str = "/portal/members/invitations/withdraw";

/// The form to invite, and the invitations that were not used yet.
pub(crate) async fn section(gateway: &Gateway, me: &SignedIn) -> Result<Markup, PortalError> {
    let now = timestamp::now();
    let account = me.account.id.as_str();
    let open = gateway.backoffice.invitations_of(account, now).await?;
    Ok(html! {
        section #invitations {
            h2 { "Invitations" }
            form.inline method="post" action="/portal/members/invitations" {
                (me.token_field())
                label { "Invite by email"
                    input type="email" name="email" required maxlength="254" autocomplete="off";
                }
                label { "Role" (role_field("Role of the new member", TeamRole::Developer)) }
                button.primary type="submit" { "Invite" }
            }
            @if !open.is_empty() {
                (scrolled("Invitations", &table(&open)))
            }
        }
    })
}

fn table(open: &[Link]) -> Markup {
    html! {
        table {
            caption { "Pending invitations" }
            thead { tr {
                th scope="col" { "Email" }
                th scope="col" { "Role" }
                th scope="col" { "Valid until" }
                th scope="col" { span.unseen { "Actions" } }
            } }
            tbody {
                @for link in open {
                    tr {
                        th scope="row" { (link.email) }
                        td { (role_of(link)) }
                        td { (moment(link.expires_at)) }
                        td {
                            a.quiet.button href={ (WITHDRAW) "?email=" (layout::encoded(&link.email)) } {
                                "Withdraw" span.unseen { " the invitation of " (link.email) }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn role_of(link: &Link) -> &'static str {
    match &link.purpose {
        Purpose::Invitation { team_role, .. } => team_role.as_str(),
        Purpose::Proof { .. } | Purpose::Reset { .. } | Purpose::Email { .. } => "–",
    }
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
    Extension(Peer(peer)): Extension<Peer>,
    SignedForm { me, form }: SignedForm<InvitationForm>,
) -> Result<Response, PortalError> {
    let roles = Roles::of_member(read_role(&form.role)?);
    // Bounds the emails that owners cause, and how many addresses they can try.
    let throttle = &gateway.portal.throttle;
    throttle
        .message(&form.email, peer)
        .map_err(|seconds| PortalError::TooMany { seconds })?;
    let account = me.account.id.clone();
    let invited = actions(&gateway, &me)
        .invite(account, &form.email, roles)
        .await;
    match invited.map_err(PortalError::from) {
        Ok(link) => Ok(made(&gateway, &me, &link)),
        Err(PortalError::Invalid(problem)) => {
            let page = page(&gateway, &me, Some(&problem)).await?;
            Ok((StatusCode::BAD_REQUEST, page).into_response())
        }
        Err(error) => Err(error),
    }
}

/// The page after an invitation. Where emails prove who owns an address, the link is only in the email.
fn made(gateway: &Gateway, me: &SignedIn, link: &OneTimeLink) -> Response {
    let content = html! {
        h1 { "An invitation" }
        @if link.mailed {
            p { "We sent an email to " strong { (link.email) } ". The link in it works once, until " (moment(link.expires_at)) "." }
        } @else if gateway.mail.is_some() {
            p.problem role="alert" { "The email to " strong { (link.email) } " could not be sent. Invite them again in a moment." }
        } @else {
            p {
                "This link is for " strong { (link.email) } ". It works once, until "
                (moment(link.expires_at)) ", and is not shown again. Send it yourself: anyone who has it can join."
            }
            div.copyable.secret {
                code #new-link { (link.url.reveal()) }
                (copy_button("Copy", "the link"))
            }
        }
        p { a.button href=(PATH) { "Back to members" } }
    };
    layout::page(me, Place::Members, "An invitation", &content).into_response()
}

#[derive(Deserialize)]
pub(crate) struct WithdrawForm {
    #[serde(default)]
    email: String,
}

pub(crate) async fn confirm_withdraw(
    me: SignedIn,
    ReadQuery(query): ReadQuery<WithdrawForm>,
) -> Page {
    let question = Question {
        title: &format!("Withdraw the invitation of {}?", query.email),
        consequences: "The link in it stops working. You can invite them again with a new one.",
        path: WITHDRAW,
        fields: &[("email", &query.email)],
        yes: "Withdraw the invitation",
        no: ("Cancel", PATH),
    };
    let content = question.shown(&me.token_field());
    layout::page(&me, Place::Members, "Withdraw an invitation", &content)
}

pub(crate) async fn withdraw(
    State(gateway): State<Arc<Gateway>>,
    SignedForm { me, form }: SignedForm<WithdrawForm>,
) -> Result<Response, PortalError> {
    let account = me.account.id.clone();
    let done = Confirmation::new(format!("Invitation of {} withdrawn.", form.email));
    actions(&gateway, &me)
        .withdraw_invitation(account, form.email)
        .await?;
    Ok(me.redirect(PATH, &done))
}
