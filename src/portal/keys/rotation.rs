//! Rotation of a key: the form, and the page that shows the new secret once.

use std::sync::Arc;

use axum::{
    extract::{Path, State},
    response::{IntoResponse as _, Response},
};
use maud::{Markup, html};
use serde::Deserialize;

use super::{create::secret_once, details, own, shown_name};
use crate::{
    base::timestamp,
    gateway::Gateway,
    ledger::{DEFAULT_GRACE, Key},
    portal::{
        error::PortalError,
        form::{SignedForm, is_first_submission, once_field},
        formatting::moment,
        layout::{self, Page, Place},
        question::Question,
        session::SignedIn,
    },
};

/// How long the current secret can keep working, in seconds.
const GRACES: [(u32, &str); 4] = [
    (0, "not at all (it was leaked)"),
    (3_600, "for 1 hour"),
    (DEFAULT_GRACE, "for 24 hours"),
    (7 * 24 * 3_600, "for 7 days"),
];

pub(super) fn section(me: &SignedIn, key: &Key) -> Markup {
    html! {
        h2 #rotate { "Rotate key" }
        p {
            "Replaces the secret, for instance after a leak. The new one is shown once; name, limits and usage stay. "
            "Choose how long the current secret keeps working, so that you have time to update your programs."
        }
        form.inline method="post" action={ "/portal/keys/" (key.id) "/rotate" } {
            (me.token_field())
            (once_field())
            label { "Current secret keeps working"
                select name="grace" {
                    @for (seconds, shown) in GRACES {
                        option value=(seconds) selected[seconds == DEFAULT_GRACE] { (shown) }
                    }
                }
            }
            button type="submit" { "Rotate key" }
        }
    }
}

#[derive(Deserialize)]
pub(crate) struct RotateForm {
    #[serde(default)]
    grace: String,
    #[serde(default)]
    once: String,
    /// Not empty once the person has seen the question.
    #[serde(default)]
    confirmed: String,
}

/// The secrets that a rotation with this grace ends at once, as they are shown. At most two are valid after it.
fn ending(key: &Key, grace: u32) -> Vec<String> {
    let previous = key.previous_at(timestamp::now());
    let previous = previous.map(|previous| previous.prefix.as_str());
    let current = (grace == 0).then_some(key.prefix.as_str());
    let ending = previous.into_iter().chain(current);
    ending.map(|prefix| format!("{prefix}…")).collect()
}

/// Asks before secrets end at once, which cannot be undone.
fn ask(me: &SignedIn, key: &Key, form: &RotateForm, ending: &[String]) -> Page {
    let back = format!("/portal/keys/{}", key.id);
    let question = Question {
        title: &format!("Rotate {} now?", shown_name(key)),
        consequences: &format!(
            "Requests with {} are refused from then on. An ended secret cannot be restored.",
            ending.join(" or ")
        ),
        path: &format!("{back}/rotate"),
        fields: &[
            ("grace", &form.grace),
            ("once", &form.once),
            ("confirmed", "yes"),
        ],
        yes: "Rotate key now",
        no: ("Cancel", &back),
    };
    let content = question.shown(&me.token_field());
    layout::page(me, Place::Keys, "Rotate key", &content)
}

pub(crate) async fn rotate(
    State(gateway): State<Arc<Gateway>>,
    Path(id): Path<String>,
    SignedForm { me, form }: SignedForm<RotateForm>,
) -> Result<Response, PortalError> {
    let key = own(&gateway, &me, &id).await?;
    let mut graces = GRACES.into_iter().map(|(seconds, _)| seconds);
    let Some(grace) = graces.find(|seconds| seconds.to_string() == form.grace) else {
        let problem = "Choose one of the times in the list.";
        let page = details::page(&gateway, &me, &key, Some(problem), None).await?;
        return Ok(page.into_response());
    };
    let ending = ending(&key, grace);
    if !ending.is_empty() && form.confirmed.is_empty() {
        return Ok(ask(&me, &key, &form, &ending).into_response());
    }
    if !is_first_submission(&gateway, &me, &form.once).await? {
        let problem = "This form was sent before, and a secret is shown once. If you have not copied it, \
                       rotate the key again.";
        let page = details::page(&gateway, &me, &key, Some(problem), None).await?;
        return Ok(page.into_response());
    }
    let (key, secret) = gateway.ledger.rotate_key(&key.id, grace).await?;
    let ends = html! {
        @match &key.previous {
            Some(previous) => p {
                "The previous one, " code { (previous.prefix) "…" } ", is valid until "
                (moment(previous.valid_until)) "."
            },
            None => p { "The previous one no longer works." },
        }
    };
    let content = secret_once(&gateway, "New secret", &key, &secret, &ends);
    Ok(layout::page(&me, Place::Keys, "New secret", &content).into_response())
}
