//! Projects of an account: create, rename and archive.

use std::sync::Arc;

use axum::{
    extract::{Path, State},
    response::{IntoResponse as _, Response},
};
use maud::{Markup, html};
use serde::Deserialize;

use super::{
    confirmation::Confirmation,
    error::PortalError,
    form::{EmptyForm, SignedForm, is_first_submission, once_field},
    formatting::moment,
    layout::{self, Page, Place},
    names::{self, MAX_NAME},
    question::Question,
    session::SignedIn,
    sign_in::problem_notice,
    table::scrolled,
};
use crate::{
    gateway::Gateway,
    ledger::{DEFAULT_PROJECT, LedgerError, Project},
};

const PATH: &str = "/portal/projects";
/// The name of the project of keys that name none.
pub(crate) const DEFAULT_NAME: &str = "Default";
/// The most projects that people can create in an account, archived ones included: each stays for the history.
const MAX_PROJECTS: usize = 200;
const NAME_NEEDED: &str = "A project needs a name of at most 100 characters.";

/// The name of a project by its ID, or the ID of an unknown one.
pub(crate) fn name_of<'a>(projects: &'a [Project], id: &'a str) -> &'a str {
    if id == DEFAULT_PROJECT {
        return DEFAULT_NAME;
    }
    let project = projects.iter().find(|project| project.id == id);
    project.map_or(id, |project| &project.name)
}

pub(crate) async fn list(
    State(gateway): State<Arc<Gateway>>,
    me: SignedIn,
) -> Result<Page, PortalError> {
    page(&gateway, &me, None).await
}

async fn page(
    gateway: &Gateway,
    me: &SignedIn,
    problem: Option<&str>,
) -> Result<Page, PortalError> {
    let projects = gateway.ledger.projects(&me.account.id).await?;
    let content = html! {
        nav.back aria-label="Back" { a href="/portal/keys" { "API keys" } }
        h1 { "Projects" }
        p.muted {
            "A key belongs to a project, and its usage is counted for it. Keys without one belong to "
            (DEFAULT_NAME) "."
        }
        (problem_notice(problem))
        form.inline method="post" action=(PATH) {
            (me.token_field())
            (once_field())
            label { "Name of the new project"
                input type="text" name="name" required maxlength=(MAX_NAME) placeholder="e.g. website" autocomplete="off";
            }
            button.primary type="submit" { "Create project" }
        }
        @if projects.is_empty() {
            p.empty { "No projects yet besides " (DEFAULT_NAME) "." }
        } @else {
            (scrolled("Your projects", &table(me, &projects)))
        }
    };
    Ok(layout::page(me, Place::Projects, "Projects", &content))
}

fn table(me: &SignedIn, projects: &[Project]) -> Markup {
    html! {
        table {
            thead { tr {
                th scope="col" { "Name" }
                th scope="col" { "ID" }
                th scope="col" { "Created" }
                th scope="col" { span.unseen { "Actions" } }
            } }
            tbody { @for project in projects { (row(me, project)) } }
        }
    }
}

fn row(me: &SignedIn, project: &Project) -> Markup {
    html! {
        tr {
            th scope="row" {
                (project.name)
                @if project.archived { " " span.badge { "archived" } }
            }
            td { code { (project.id) } }
            td { (moment(project.created_at)) }
            td.actions { @if !project.archived { (actions(me, project)) } }
        }
    }
}

fn actions(me: &SignedIn, project: &Project) -> Markup {
    let path = |verb: &str| format!("{PATH}/{}/{verb}", project.id);
    html! {
        details {
            summary { "Rename" span.unseen { " " (project.name) } }
            form.inline method="post" action=(path("rename")) {
                (me.token_field())
                label { "New name"
                    input type="text" name="name" required maxlength=(MAX_NAME) value=(project.name) autocomplete="off";
                }
                button type="submit" { "Save" }
            }
        }
        a.quiet.button href=(path("archive")) { "Archive" span.unseen { " " (project.name) } }
    }
}

#[derive(Deserialize)]
pub(crate) struct NameForm {
    #[serde(default)]
    name: String,
    #[serde(default)]
    once: String,
}

pub(crate) async fn create(
    State(gateway): State<Arc<Gateway>>,
    SignedForm { me, form }: SignedForm<NameForm>,
) -> Result<Response, PortalError> {
    let Some(name) = names::checked(&form.name) else {
        return refused(&gateway, &me, NAME_NEEDED).await;
    };
    let ledger = &gateway.ledger;
    if ledger.projects(&me.account.id).await?.len() >= MAX_PROJECTS {
        let problem =
            format!("An account can have at most {MAX_PROJECTS} projects, archived ones included.");
        return refused(&gateway, &me, &problem).await;
    }
    let mut done = Confirmation::new(format!("Project {name} created."));
    if is_first_submission(&gateway, &me, &form.once).await? {
        let new = ledger.create_project(&me.account.id, name.into()).await?;
        // Projects are not deleted, for the history; a new one has none.
        done = done.undone_by(&format!("{PATH}/{}/archive", new.id), &[]);
    }
    Ok(me.redirect(PATH, &done))
}

/// The project, if it is one of this account and open.
async fn own(gateway: &Gateway, me: &SignedIn, id: &str) -> Result<Project, PortalError> {
    let projects = gateway.ledger.projects(&me.account.id).await?;
    let mut open = projects.into_iter().filter(|project| !project.archived);
    let found = open.find(|project| project.id == id);
    found.ok_or(PortalError::NotFound)
}

pub(crate) async fn rename(
    State(gateway): State<Arc<Gateway>>,
    Path(id): Path<String>,
    SignedForm { me, form }: SignedForm<NameForm>,
) -> Result<Response, PortalError> {
    let project = own(&gateway, &me, &id).await?;
    let Some(name) = names::checked(&form.name) else {
        return refused(&gateway, &me, NAME_NEEDED).await;
    };
    let ledger = &gateway.ledger;
    ledger.rename_project(&project.id, name.into()).await?;
    let back = format!("{PATH}/{}/rename", project.id);
    let done = Confirmation::new(format!("Project {} is now called {name}.", project.name))
        .undone_by(&back, &[("name", &project.name)]);
    Ok(me.redirect(PATH, &done))
}

pub(crate) async fn confirm_archive(
    State(gateway): State<Arc<Gateway>>,
    Path(id): Path<String>,
    me: SignedIn,
) -> Result<Page, PortalError> {
    let project = own(&gateway, &me, &id).await?;
    let question = Question {
        title: &format!("Archive {}?", project.name),
        consequences: "New keys cannot belong to an archived project, and it cannot be opened again. Its usage stays in your history.",
        path: &format!("{PATH}/{}/archive", project.id),
        fields: &[],
        yes: "Archive project",
        no: ("Cancel", PATH),
    };
    let content = question.shown(&me.token_field());
    Ok(layout::page(&me, Place::Keys, "Archive project", &content))
}

pub(crate) async fn archive(
    State(gateway): State<Arc<Gateway>>,
    Path(id): Path<String>,
    SignedForm { me, form: _ }: SignedForm<EmptyForm>,
) -> Result<Response, PortalError> {
    let project = own(&gateway, &me, &id).await?;
    match gateway.ledger.archive_project(&project.id).await {
        Ok(_) => {
            let done = Confirmation::new(format!("Project {} archived.", project.name));
            Ok(me.redirect(PATH, &done))
        }
        Err(LedgerError::ProjectInUse) => {
            let problem = format!(
                "Keys belong to {}. Move them to another project or delete them first.",
                project.name
            );
            refused(&gateway, &me, &problem).await
        }
        Err(error) => Err(error.into()),
    }
}

/// The page of projects with why nothing was changed.
async fn refused(gateway: &Gateway, me: &SignedIn, problem: &str) -> Result<Response, PortalError> {
    Ok(page(gateway, me, Some(problem)).await?.into_response())
}
