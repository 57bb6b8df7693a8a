//! What a change would do, before it is applied; and applying it.

use std::sync::Arc;

use axum::{
    extract::{Path, State},
    http::StatusCode,
    response::{IntoResponse as _, Response},
};
use maud::{Markup, html};

use super::{
    PATH, difference,
    draft::{Draft, Intent, Typed},
    edit::{form_page, read_kind},
    mistakes, page,
    shown::Shown,
};
use crate::{
    config::changes::{Changes, Kind},
    gateway::{
        Gateway,
        actions::{ActionError, NewVersion},
        configuration::check,
    },
    portal::{
        confirmation::Confirmation,
        console::access::{OperatorForm, SignedInOperator},
        error::PortalError,
        formatting::moment,
    },
};

pub(crate) async fn submit(
    State(gateway): State<Arc<Gateway>>,
    Path(kind): Path<String>,
    OperatorForm { me, form }: OperatorForm<Typed>,
) -> Result<Response, PortalError> {
    let kind = read_kind(&kind)?;
    let shown = Shown::now(&gateway).await?;
    let mut draft = Draft::submitted(kind, &form, &shown);
    if draft.based_on != shown.newest.number {
        return conflict(&gateway, &me, &shown, &mut draft).await;
    }
    let step = form.get("do").map_or("preview", String::as_str);
    if step == "edit" {
        return Ok(form_page(&me, &shown, &draft, &[], None).into_response());
    }
    let (changes, name) = match draft.changes(&shown) {
        Ok(changed) => changed,
        Err(wrong) => return Ok(refused(&me, &shown, &draft, &wrong)),
    };
    if let Err(wrong) = check(&gateway, changes.clone()).await {
        return Ok(refused(&me, &shown, &draft, &wrong));
    }
    if step != "apply" {
        return Ok(preview(&me, &shown, &draft, &changes, &name));
    }
    let new = NewVersion {
        changes,
        based_on: draft.based_on,
        note: draft.note.clone(),
    };
    match me.actions(&gateway).change_configuration(new).await {
        Ok(number) => {
            let (to, number) = (draft.based_on.to_string(), number.to_string());
            let text = format!("{name} is saved. Version {number} of the configuration is in use.");
            let undo = [("to", to.as_str()), ("based_on", number.as_str())];
            let done = Confirmation::new(text).undone_by(&format!("{PATH}/rollback"), &undo);
            Ok(me.redirect(PATH, &done))
        }
        Err(ActionError::ConfigurationConflict) => {
            let shown = Shown::now(&gateway).await?;
            conflict(&gateway, &me, &shown, &mut draft).await
        }
        Err(ActionError::Configuration(wrong)) => Ok(refused(&me, &shown, &draft, &wrong)),
        Err(error) => Err(error.into()),
    }
}

/// The form again with what is wrong. A removal that is refused shows its reasons alone.
fn refused(me: &SignedInOperator, shown: &Shown, draft: &Draft, wrong: &[String]) -> Response {
    let page = if draft.intent == Intent::Set {
        form_page(me, shown, draft, wrong, None)
    } else {
        let content = html! {
            p.back { a href={ (PATH) "#" (draft.kind.plural()) } { "Configuration" } }
            h1 { (heading(draft)) }
            (mistakes(wrong))
        };
        page(me, shown, &heading(draft), &content)
    };
    (StatusCode::BAD_REQUEST, page).into_response()
}

/// The form again with what was typed, based on the newest version.
async fn conflict(
    gateway: &Gateway,
    me: &SignedInOperator,
    shown: &Shown,
    draft: &mut Draft,
) -> Result<Response, PortalError> {
    let number = shown.newest.number;
    let newest = gateway.backoffice.config_version(number).await?;
    let explained = html! {
        div.problem role="alert" {
            p {
                "The configuration was changed in the meantime"
                @if let Some((newest, _)) = &newest {
                    ": version " (newest.number) " by " (newest.actor) ", " (moment(newest.at_ms.div_euclid(1_000)))
                }
                ". Your change was not applied; your input is kept. See "
                a href={ (PATH) "/history/" (number) } { "what changed" }
                ", then preview your change again."
            }
        }
    };
    if draft.intent == Intent::Set {
        draft.based_on = number;
    } else {
        // Nothing was typed: the form shows the entry as it is now.
        let entry = shown.entry(draft.kind, &draft.name);
        let entry = entry.ok_or(PortalError::NotFound)?;
        *draft = Draft::of_entry(draft.kind, Some(&entry), shown);
    }
    let page = form_page(me, shown, draft, &[], Some(&explained));
    Ok((StatusCode::CONFLICT, page).into_response())
}

fn heading(draft: &Draft) -> String {
    let kind = draft.kind.as_str();
    match draft.intent {
        Intent::Set if draft.is_new => format!("Add the {kind}?"),
        Intent::Set => format!("Change {}?", draft.name),
        Intent::Remove => format!("Remove {}?", draft.name),
        Intent::Revert => format!("Use {} as in the file?", draft.name),
    }
}

fn preview(
    me: &SignedInOperator,
    shown: &Shown,
    draft: &Draft,
    changes: &Changes,
    name: &str,
) -> Response {
    let text = |changes: &Changes| {
        let entries = shown.routes.base.entries(draft.kind, changes);
        let entry = entries.into_iter().find(|entry| entry.name == name);
        entry
            .and_then(|entry| entry.current_text())
            .unwrap_or_default()
    };
    let (before, after) = (text(&shown.newest.changes), text(changes));
    let unchanged = before == after;
    let content = html! {
        p.back { a href={ (PATH) "#" (draft.kind.plural()) } { "Configuration" } }
        h1 { (heading(draft)) }
        p { span.muted { (draft.kind.as_str()) } " " code { (name) } }
        @if unchanged { p.notice { "Nothing would change." } }
        @else {
            p { (effect(draft)) }
            (difference(&before, &after))
        }
        form.inline method="post" action={ (PATH) "/" (draft.kind.plural()) } {
            (me.token_field())
            @for (name, value) in draft.hidden_fields() { input type="hidden" name=(name) value=(value); }
            @if !unchanged { button.primary type="submit" name="do" value="apply" { "Apply" } }
            @if draft.intent == Intent::Set { button type="submit" name="do" value="edit" { "Back to the form" } }
            a.button href=(PATH) { "Cancel" }
        }
    };
    page(me, shown, &heading(draft), &content).into_response()
}

/// What applying it means.
fn effect(draft: &Draft) -> Markup {
    html! {
        "Nothing is applied yet. "
        @if draft.kind == Kind::Model {
            "New prices apply to calls that start afterwards; running calls are charged at their old prices."
        } @else {
            "Running calls finish with the old settings."
        }
    }
}
